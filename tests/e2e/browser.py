"""A real browser for tests: Chromium without a window, driven over a pipe (its DevTools protocol)."""

import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path

# What it is asked by and answers on.
ASKED, ANSWERED = 3, 4
SECONDS = 60


def program() -> str | None:
    names = ("chromium", "chromium-browser", "google-chrome")
    return next(filter(None, map(shutil.which, names)), None)


class Browser:
    """One page at a time. Ends with the `with` that it stands in."""

    def __init__(self, folder: Path):
        to_child, self.to = os.pipe()
        self.of, of_child = os.pipe()

        def at_their_numbers() -> None:
            # Neither may lie where the other goes.
            high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in (to_child, of_child)]
            os.dup2(high[0], ASKED)
            os.dup2(high[1], ANSWERED)

        words = ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", f"--user-data-dir={folder}"]
        self.process = subprocess.Popen([program(), *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                        close_fds=False, preexec_fn=at_their_numbers)
        os.close(to_child)
        os.close(of_child)
        self.number, self.session, self.rest, self.complaints = 0, None, b"", []

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, *_) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.to)
        os.close(self.of)

    def message(self) -> dict:
        end = time.monotonic() + SECONDS
        while b"\0" not in self.rest:
            if not select.select([self.of], [], [], max(0, end - time.monotonic()))[0]:
                raise TimeoutError("the browser does not answer")
            got = os.read(self.of, 1 << 16)
            if not got:
                raise EOFError("the browser has ended")
            self.rest += got
        text, self.rest = self.rest.split(b"\0", 1)
        return json.loads(text)

    def ask(self, method: str, **parameters: object) -> dict:
        self.number += 1
        session = {"sessionId": self.session} if self.session else {}
        asked = {"id": self.number, "method": method, "params": parameters} | session
        os.write(self.to, json.dumps(asked).encode() + b"\0")
        while True:
            message = self.message()
            if message.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded"):
                self.complaints.append(message["params"])
            if message.get("id") == self.number:
                assert "error" not in message, message
                return message["result"]

    def open(self, url: str) -> None:
        """Opens a page; `complaints` has what its scripts and its policy complain of from now on."""
        self.session = None
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Runtime", "Log", "Page"):
            self.ask(f"{domain}.enable")
        self.ask("Page.navigate", url=url)

    def text(self, part: str) -> str:
        """What stands in the part with this id, its pieces with a blank between them; empty if there is none."""
        script = f"(document.getElementById('{part}')?.innerText ?? document.getElementById('{part}')?.textContent ?? '')"
        return " ".join((self.value(script) or "").split())

    def value(self, script: str) -> object:
        return self.ask("Runtime.evaluate", expression=script)["result"].get("value")

    def count(self, selector: str) -> int:
        """How many elements there are of a kind."""
        return self.value(f"document.querySelectorAll('{selector}').length")

    def attribute(self, selector: str, name: str) -> str:
        """That of the first element of a kind."""
        return self.value(f"document.querySelector('{selector}').getAttribute('{name}')")

    def titles(self) -> list[str]:
        """Those of the sections that are shown."""
        script = "[...document.querySelectorAll('h2')].filter(e => e.offsetParent).map(e => e.textContent).join('|')"
        return (self.value(script) or "").split("|")

    def wait_for(self, part: str, found) -> str:
        """The text of a part, once `found` is true of it."""
        end = time.monotonic() + SECONDS
        while not found(text := self.text(part)):
            assert time.monotonic() < end, f"{part} says {text!r}; complaints: {self.complaints}"
            time.sleep(0.1)
        return text

"""A running query whose rows a test takes as they come, and what it says on stderr."""

import queue
import subprocess
import threading
import time
from pathlib import Path

import harness
import pytest

PATIENCE_SECONDS = 60
# How long to look for rows that must not be there. Too short a look can only miss a fault.
LOOK_SECONDS = 0.5


class Listened:
    """A running query."""

    def __init__(self, script: Path, *words: str):
        command = [str(harness.program()), "run", str(script), "--format", "csv", *words]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        stdin=subprocess.DEVNULL, text=True)
        self.lines: queue.Queue[str] = queue.Queue()
        self.errors: list[str] = []
        self.threads = [threading.Thread(target=read, daemon=True) for read in (self._listen, self._listen_errors)]
        for thread in self.threads:
            thread.start()

    def _listen(self) -> None:
        for line in self.process.stdout:
            self.lines.put(line.strip())

    def _listen_errors(self) -> None:
        for line in self.process.stderr:
            self.errors.append(line)

    def said(self) -> str:
        """What stderr has said so far."""
        return "".join(self.errors)

    def says(self, words: str) -> None:
        """Waits until stderr has said so: it comes by a way of its own, perhaps after the rows."""
        end = time.monotonic() + PATIENCE_SECONDS
        while words not in self.said() and time.monotonic() < end:
            assert self.process.poll() is None, self.said()
            time.sleep(0.02)
        assert words in self.said(), self.said()

    def next(self) -> str:
        """The next line of its output; waits for it."""
        end = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < end:
            try:
                return self.lines.get(timeout=0.2)
            except queue.Empty:
                assert self.process.poll() is None, self.said()
        raise AssertionError(f"no row for {PATIENCE_SECONDS} s: {self.said()}")

    def nothing(self) -> None:
        """No line is there, nor comes while one looks."""
        with pytest.raises(queue.Empty):
            line = self.lines.get(timeout=LOOK_SECONDS)
            raise AssertionError(f"too early: {line}")

    def ended(self, code: int = 0) -> str:
        """Waits for its end with an exit code; what stderr has said."""
        found = self.process.wait(timeout=PATIENCE_SECONDS)
        self.threads[1].join(PATIENCE_SECONDS)
        assert found == code, self.said()
        return self.said()

    def kill(self) -> None:
        """Ends it, whatever has become of it."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

"""Starts jobs on several processes, which tests then watch and disturb."""

import os
import re
import subprocess
import time
from pathlib import Path

from conftest import WINDOW, generated

PATIENCE_SECONDS = 60
# In the environment of all processes of a job: the folder of its script.
MARK = "MILLSTREAM_TEST_JOB"
OF_A_JOB = re.compile(r"/millstream(-\d+)?/(\d+\.sock|\.\d+\.new)$")
# Each of up to four processes reads.
ENDLESS = generated(per_second=20_000, more=", 'splits' = '4'") + WINDOW.replace("'10' SECOND", "'1' SECOND")


def children(pid: int) -> list[int]:
    """The processes that `pid` has started, in the order in which it did."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += [int(word) for word in task.read_text().split()]
        except OSError:
            pass  # that thread has ended
    return sorted(found)


def is_alive(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until(what, condition) -> None:
    """Waits for `condition`, and fails with the name of it."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < end, f"never: {what}"
        time.sleep(0.01)


class Job:
    """A job, and its processes. The test waits until it runs, unless it says otherwise."""

    def __init__(self, command: list[str], folder: Path, processes: int, running: bool = True):
        self.folder = folder
        self.before = self.traces()
        self.main = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                     stdin=subprocess.DEVNULL, env=os.environ | {MARK: str(folder)})
        self.others: list[int] = []
        if running:
            self.line = self.main.stdout.readline()
            self.others = children(self.main.pid)
            assert len(self.others) == processes - 1, self.main.stderr.read() if self.main.poll() else self.others

    def traces(self) -> set[str]:
        """Names that a job might leave behind: of files, of shared memory and of sockets."""
        sockets = [line.split()[7:] for line in Path("/proc/net/unix").read_text().splitlines()]
        # Those of other jobs of this machine come and go: each has a socket `PID.sock`.
        named = (name for found in sockets for name in found if not OF_A_JOB.search(name))
        names = [*os.listdir("/dev/shm"), *named]
        return {name for name in names if "millstream" in name} | set(os.listdir(self.folder))

    def processes(self) -> list[int]:
        """All processes of the job that are alive, whoever is their parent now."""
        mark = f"{MARK}={self.folder}\0".encode()
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if mark in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                pass
        return found

    def wait_for_others(self, number: int) -> None:
        """Waits until at least so many other processes have been started."""
        def started() -> bool:
            self.others = children(self.main.pid)
            return len(self.others) >= number
        wait_until(f"{number} processes are started", started)

    def end(self) -> tuple[int, str]:
        """Waits for the end of all; returns exit code and stderr. Nothing is left behind."""
        _, err = self.main.communicate(timeout=PATIENCE_SECONDS)
        wait_until(f"no process of {self.others} is left", lambda: not self.processes())
        # Other tests run beside this one: what is left behind stays, what is theirs goes.
        left = self.traces() - self.before

        def gone() -> bool:
            left.intersection_update(self.traces())
            return not left

        wait_until("what a job leaves behind is gone", gone)
        stderr = err.decode()
        assert "panicked" not in stderr and "internal error" not in stderr, stderr
        return self.main.returncode, stderr

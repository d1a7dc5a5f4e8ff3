#!/usr/bin/env python3
"""Golden checkpoints: a checkpoint of each release, from which every later program goes on.

    tests/golden.py            writes the checkpoint of the program at hand into tests/golden/VERSION

A directory has the script, the files as the job had read them, the output and the state. `later` has the lines that come
after them, and `expected.txt` the rows of a job that was never stopped. tests/e2e/test_golden.py goes on from a copy.
"""

import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import harness

GOLDEN = harness.ROOT / "tests" / "golden"
TABLES = ("a", "b")
# Of the checkpoint: records of `a` and of `b`, and all of them.
READ, ALL = (40, 12), (100, 34)


def stamp(ms: int) -> str:
    return f"2024-01-01 00:{ms // 60_000:02}:{ms // 1000 % 60:02}.{ms % 1000:03}"


def lines(table: str, first: int, last: int) -> str:
    """Records of a table. The last comes so much later than the others that all windows before are complete."""
    text = ""
    for n in range(first, last):
        far = 600_000 if n + 1 == ALL[TABLES.index(table)] else 0
        if table == "a":
            text += f"{'xyz'[n % 3]},{n * 7 % 20},{n * 0.1:.1f},{stamp(n * 900 + far)}\n"
        else:
            text += f"{'xyz'[n % 3]},{n},{stamp(n * 3000 + far)}\n"
    return text


def rows(folder: Path) -> Counter:
    """The visible rows of all outputs, each with its output's name."""
    return Counter(f"{path.parent.name}: {row}" for path in folder.glob("*/part-*")
                   for row in path.read_text().splitlines()[1:])


def start(folder: Path, *words: object) -> subprocess.Popen:
    words = [harness.program(), "run", folder / "job.sql", "--checkpoint", folder / "state", "--every", "50ms",
             "--set", "checkpoint.retained=1", *words]
    return subprocess.Popen([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def run(folder: Path, workers: int, expected: Counter | None = None) -> str:
    """Runs the job until its rows are the expected ones, or nothing more comes, and stops it with a last checkpoint."""
    job = start(folder, "--workers", workers)
    until, seen, since = time.monotonic() + 30, Counter(), time.monotonic()
    while time.monotonic() < until and job.poll() is None and rows(folder) != expected:
        if (found := rows(folder)) != seen:
            seen, since = found, time.monotonic()
        if expected is None and time.monotonic() > since + 2:
            break
        time.sleep(0.05)
    job.send_signal(signal.SIGINT)
    return job.communicate(timeout=60)[1].decode()


def add(folder: Path, texts: list[str]) -> None:
    for table, text in zip(TABLES, texts):
        with (folder / f"{table}.csv").open("a") as file:
            file.write(text)


def begin(folder: Path) -> None:
    """The script, and what the job reads before its checkpoint."""
    shutil.copy(GOLDEN / "job.sql", folder)
    heads = ["k,v,x,ts\n", "k,w,ts\n"]
    add(folder, [head + lines(table, 0, read) for table, head, read in zip(TABLES, heads, READ)])


def write() -> None:
    version = subprocess.run([harness.program(), "--version"], capture_output=True, text=True, check=True).stdout.split()[-1]
    place = GOLDEN / version
    if place.exists():
        raise SystemExit(f"{place} is there: a golden checkpoint is never written again")
    with tempfile.TemporaryDirectory(prefix="millstream-golden-") as name:
        whole, stopped = Path(name) / "whole", Path(name) / "stopped"
        later = [lines(table, read, end) for table, read, end in zip(TABLES, READ, ALL)]
        for folder in (whole, stopped):
            folder.mkdir()
            begin(folder)
        add(whole, later)
        run(whole, 1)
        run(stopped, 2)
        (stopped / "later").mkdir()
        for table, text in zip(TABLES, later):
            (stopped / "later" / f"{table}.csv").write_text(text)
        (stopped / "expected.txt").write_text("".join(f"{row}\n" for row in sorted(rows(whole).elements())))
        print(f"{sum(rows(stopped).values())} of {sum(rows(whole).values())} rows before the checkpoint")
        shutil.copytree(stopped, place)


if __name__ == "__main__":
    sys.exit(write())

#!/usr/bin/env python3
"""Runs the SQL files, and random queries against DuckDB, with each level of vector instructions (MILLSTREAM_CPU).

A level that the processor lacks is named, and not run. The greatest level is the one of all other suites: it has
no runs here. The instructions themselves are compared form by form in unit tests, whatever the level.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

import harness

LEVELS = ("portable", "avx2", "avx512")
TESTS = Path(__file__).resolve().parent
SUITES = ("run_sql.py", "--whole"), ("oracle/run.py", "--count", "12")


def supported(level: str) -> bool:
    """Whether the program runs at a level. Any failure but the one for a level that the processor lacks is raised."""
    words = [str(harness.program()), "run", "-e", "SELECT 1"]
    done = subprocess.run(words, env=os.environ | {harness.LEVEL: level}, capture_output=True, text=True)
    if done.returncode != 0 and "this processor has no such instructions" not in done.stderr:
        raise RuntimeError(f"{harness.LEVEL}={level}: {done.stderr}")
    return done.returncode == 0


def main() -> int:
    failed = 0
    levels = [level for level in LEVELS if supported(level)]
    for level in LEVELS:
        if level not in levels:
            print(f"{level}: not run, this processor has no such instructions")
        elif level == levels[-1]:
            print(f"{level}: the level of the other suites on this processor")
        for words in SUITES if level in levels[:-1] else ():
            begin = time.monotonic()
            done = subprocess.run([sys.executable, TESTS / words[0], *words[1:]], text=True,
                                  env=os.environ | {harness.LEVEL: level}, capture_output=True)
            last = (done.stdout.splitlines() or ["no output"])[-1]
            print(f"{level}: {' '.join(words)}: {last} ({time.monotonic() - begin:.0f} s)", flush=True)
            if done.returncode != 0:
                failed += 1
                print(done.stdout + done.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Counts the instructions of what a join does with each record before its window fires, by callgrind.

    tests/appends.py                          # nb8, one worker and two
    tests/appends.py nb8_rows --workers 1

- append: keys are encoded, hashed and routed where there are several workers, and the row is written into its bag
  (`Bags::add`).
- take in: all that an arriving batch costs the join (`Join::update`): windows, the filter of each side, and the append.

The program is the one that MILLSTREAM_LAB_BIN names, otherwise the newest build; only a release build counts. Long copies are
made by moves of vectors here: glibc would use `rep movsb`, of which valgrind counts every byte as an instruction.
"""

import argparse
import json
import os
import re
import subprocess
import sys

import harness

JOIN = "millstream_engine::operator::join::"
PARTS = {
    "append": f"{JOIN}bags::Bags::add",
    "take in": f"<{JOIN}Join as millstream_engine::operator::Operator>::update",
}
NO_REP = "glibc.cpu.x86_rep_movsb_threshold=4294967296:glibc.cpu.x86_rep_stosb_threshold=4294967296"


def counted(function: str, words: list[str]) -> tuple[int, dict]:
    """Instructions within a function, and what the command printed."""
    # A pattern that matched closures within the function would end the counting there.
    valgrind = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", f"--toggle-collect={function}"]
    environment = {**os.environ, "GLIBC_TUNABLES": NO_REP}
    done = subprocess.run([*valgrind, *words], capture_output=True, text=True, stdin=subprocess.DEVNULL, env=environment)
    found = re.search(r"Collected : (\d+)", done.stderr)
    if done.returncode != 0 or not found:
        sys.exit(f"{' '.join(words)}: exit code {done.returncode}\n{done.stderr}")
    if int(found[1]) == 0:
        sys.exit(f"{' '.join(words)}: {function} is not a function of the program, or did not run")
    return int(found[1]), json.loads(done.stdout)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload", nargs="?", default="nb8", help="nb8 or nb8_rows (nb8)")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2], help="(1 2)")
    parser.add_argument("--records", type=int, help="(the workload's number)")
    chosen = parser.parse_args()
    records = [] if chosen.records is None else ["--records", str(chosen.records)]
    for workers in chosen.workers:
        words = [str(harness.laboratory()), "bench", chosen.workload, "--workers", str(workers), *records, "--json"]
        for part, function in PARTS.items():
            instructions, line = counted(function, words)
            print(f"{chosen.workload}, workers {workers}, {part}: {instructions / line['records']:.1f} instructions a record")
    return 0


if __name__ == "__main__":
    sys.exit(main())

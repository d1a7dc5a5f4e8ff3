#!/usr/bin/env python3
"""Compares benchmark commands by turns, so that drift of the machine's speed affects all of them alike.

    tests/pairs.py 20 'target/release/millstream-lab bench nb7 --processes 2 --workers 1' \\
                      'target/release/millstream-lab bench nb7 --processes 2 --workers 1 --exchange interleaved'

Runs every command in each of the turns (20 here), starting with another one each time. Prints for each command the median, least
and greatest rate, and the ratio of the first command's rate to its own in the same turn: median, quartiles, least and greatest.
The commands may run different programs, for example those of two commits. A run with a wrong answer ends the comparison.
"""

import argparse
import json
import shlex
import statistics
import subprocess
import sys


def rate(command: str) -> float:
    """Million records a second."""
    done = subprocess.run([*shlex.split(command), "--json"], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        sys.exit(f"{command}: exit code {done.returncode}\n{done.stderr}")
    return json.loads(done.stdout)["mrec_per_s"]


def quartiles(numbers: list[float]) -> tuple[float, float]:
    return tuple(statistics.quantiles(numbers, n=4, method="inclusive")[::2]) if len(numbers) > 1 else (numbers[0],) * 2


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("turns", type=int, metavar="N", help="how often each command runs")
    parser.add_argument("commands", nargs="+", metavar="COMMAND", help="`millstream-lab bench …`, without --json")
    chosen = parser.parse_args()
    if chosen.turns < 1:
        parser.error("N: once at least")
    commands = chosen.commands
    rates: list[list[float]] = [[] for _ in commands]
    for turn in range(chosen.turns):
        for i in range(len(commands)):
            at = (turn + i) % len(commands)
            rates[at].append(rate(commands[at]))
    for command, own in zip(commands, rates, strict=True):
        ratios = [first / one for first, one in zip(rates[0], own, strict=True)]
        low, high = quartiles(ratios)
        print(f"{command}\n  {statistics.median(own):.1f} million records/s ({min(own):.1f} to {max(own):.1f})")
        if own is not rates[0]:
            print(f"  the first to this one: {statistics.median(ratios):.3f} (quartiles {low:.2f} and {high:.2f}, "
                  f"{min(ratios):.2f} to {max(ratios):.2f})")
    return 0


if __name__ == "__main__":
    sys.exit(main())

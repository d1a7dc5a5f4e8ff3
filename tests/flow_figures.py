#!/usr/bin/env python3
"""Measures every figure of flows, compares with MPI, and adds all to the report page: docs/flows.md.

    tests/flow_figures.py DIR [--short] [--turns N] [--figures NAMES]

Runs `millstream-lab bench flow NAME --json` for each figure and then tests/flow_baselines.py, appends their lines to
DIR/flows.jsonl, and writes DIR/report.md (tests/report.py). Without Open MPI the comparisons are left out, and it says so.
Prints which relations are met. Nothing else should run at the same time. Needs what tests/report.py needs.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import harness
import report
import shuffle_baselines
from shuffle_baselines import answer, known

FIGURES = ["memory", "shuffle-bandwidth", "shuffle-latency", "shuffle-scale", "replicate-bandwidth", "replicate-latency", "combine",
           "point-to-point", "collective", "straggler", "join", "consensus"]
BASELINES = ["point-to-point", "collective", "straggler", "join"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--short", action="store_true", help="few points with little data, to try the figures out")
    parser.add_argument("--turns", type=int, default=5, help="of comparisons with MPI (5)")
    parser.add_argument("--figures", type=known(FIGURES), default=FIGURES, help="by commas (all)")
    chosen = parser.parse_args()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    lines = chosen.folder / "flows.jsonl"
    short = ["--short"] if chosen.short else []
    for name in chosen.figures:
        found = answer([str(harness.laboratory()), "bench", "flow", name, *short, "--json"])
        with lines.open("a") as file:
            file.write(json.dumps(found) + "\n")
        print(name, flush=True)
        for relation in found["relations"]:
            print(f"  {'met' if relation['met'] else 'NOT MET'}: {relation['text']}: {relation['found']}", flush=True)
    compared = [name for name in BASELINES if name in chosen.figures]
    if compared and not shuffle_baselines.has_mpi():
        print("no comparison with MPI: install Open MPI with `.ci/setup mpi`")
    elif compared:
        script = harness.ROOT / "tests" / "flow_baselines.py"
        compared += ["shuffle"] if "collective" in compared else []
        subprocess.run([sys.executable, str(script), str(chosen.turns), *short, "--figures", ",".join(compared), "--lines", str(lines)],
                       check=True)
    return report.write(chosen.folder)


if __name__ == "__main__":
    sys.exit(main())

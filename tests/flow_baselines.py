#!/usr/bin/env python3
"""Compares `millstream-lab bench flow` with MPI and with `bench shuffle`, by turns on the same data: docs/flows.md.

    tests/flow_baselines.py 5                                           # all figures
    tests/flow_baselines.py 5 --figures join,collective --lines FILE.jsonl

- point-to-point: flows between pairs of threads of two processes, against MPI_Send and MPI_Recv for each tuple; then two threads
  of a process against two processes with a thread each
- collective: all processes with all, against MPI_Alltoall in rounds of 8 tuples, with 2 and 4 processes
- straggler: receivers that compute, without and with a process that takes twice as long, against MPI_Alltoall of whole batches
- join: the radix join against a join by histograms and MPI_Put
- shuffle: tuples of 16 bytes between two processes, against the designs of `bench shuffle`

A baseline is tests/flow_baselines.c, whose processes `mpirun` starts; with more processes than cores it says --oversubscribe.
Prints medians, the ratios of a turn, and whether the thesis' relation is met. `--lines` appends a line for each figure, which
tests/report.py plots. Every answer is checked. Nothing else should run at the same time.

The program is the one that MILLSTREAM_LAB_BIN names, otherwise the newest build; take a release build. The baselines need a C
compiler and Open MPI (`.ci/setup mpi`).
"""

import argparse
import datetime
import json
import os
import shlex
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

import harness
import shuffle_baselines
from shuffle_baselines import answer, known, mpirun

SOURCE = harness.ROOT / "tests" / "flow_baselines.c"
FIGURES = ["point-to-point", "collective", "straggler", "join", "shuffle"]
DESIGNS = ["SEMQ/WR", "SEMQ/RD", "MEMQ/WR", "MEMQ/RD"]
# Tuples of a round of batched Alltoall: 8 KiB for each process, as a flow's segment.
BATCH_BYTES = 8192
COMPUTE_US = 10

Options = argparse.Namespace
Run = Callable[[], float]


def arguments() -> Options:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("turns", type=int, metavar="N", help="how often each run is repeated")
    parser.add_argument("--figures", type=known(FIGURES), default=FIGURES, help=f"by commas ({','.join(FIGURES)})")
    parser.add_argument("--short", action="store_true", help="little data, to try the script out")
    parser.add_argument("--lines", type=Path, metavar="FILE", help="append a line for each figure to this file")
    chosen = parser.parse_args()
    if chosen.turns < 1:
        parser.error("N: once at least")
    if chosen.lines and not chosen.lines.parent.is_dir():
        parser.error(f"--lines: there is no folder {chosen.lines.parent}")
    return chosen


# --- runs -----------------------------------------------------------------------------------------

class Figure:
    """A figure while it is measured: its points and relations, for the report."""

    def __init__(self, name: str, options: Options, program: Path):
        self.name, self.options, self.program = name, options, program
        self.points: list[dict] = []
        self.relations: list[dict] = []
        self.machine: dict = {}

    def tuples(self, usual: int) -> int:
        return usual // 100 if self.options.short else usual

    def flow(self, figure: str, **options: object) -> Callable[[], dict]:
        """A run of `bench flow`; the point that it prints last."""
        words = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", str(value))]
        command = [str(harness.laboratory()), "bench", "flow", figure, *words, "--turns", "1", "--json"]

        def run() -> dict:
            found = answer(command)
            self.machine = found["machine"]
            return found

        return run

    def rate(self, figure: str, **options: object) -> Run:
        run = self.flow(figure, **options)
        return lambda: run()["points"][-1]["mrec_per_s"]

    def mpi(self, how: str, processes: int, threads: int, tuples: int, tuple_bytes: int, batch: int = 1, compute: float = 0,
            straggler: float = 0) -> Callable[[], dict]:
        words = [how, processes, threads, tuples, tuple_bytes, batch, compute, straggler]
        command = [*mpirun(processes), str(self.program), *map(str, words)]
        return lambda: answer(command)

    def compare(self, place: dict, runs: dict[str, Run]) -> dict[str, list[float]]:
        """Runs all by turns, beginning with another one each time. Prints and keeps the medians."""
        names = list(runs)
        found: dict[str, list[float]] = {name: [] for name in names}
        for turn in range(self.options.turns):
            for i in range(len(names)):
                name = names[(turn + i) % len(names)]
                found[name].append(runs[name]())
        print(f"{self.name}: {', '.join(f'{key} {value}' for key, value in place.items())}")
        for name, own in found.items():
            line = f"  {name:<20} {statistics.median(own):>10.4g} ({min(own):.4g} to {max(own):.4g})"
            if name != names[0]:
                line += f"   {names[0]} to it: {shuffle_baselines.spread(ratios(found[names[0]], own))}"
            print(line, flush=True)
            self.points.append(place | {"way": name, "median": statistics.median(own), "least": min(own), "greatest": max(own)})
        return found

    def relate(self, text: str, found: float, met: bool) -> None:
        print(f"  {'met' if met else 'NOT MET'}: {text}: {found:.3f}", flush=True)
        self.relations.append({"text": text, "found": round(found, 4), "met": met})

    def keep(self) -> None:
        """Appends the figure's line."""
        if not self.options.lines:
            return
        command = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
        date = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        line = {"bench": "flow", "figure": f"{self.name}, compared", "points": self.points, "relations": self.relations, "ok": True,
                "short": self.options.short, "command": command, "date": date, "machine": self.machine}
        with self.options.lines.open("a") as file:
            file.write(json.dumps(line) + "\n")


def ratios(ours: list[float], theirs: list[float]) -> list[float]:
    return [one / other for one, other in zip(ours, theirs, strict=True)]


def median_ratio(found: dict[str, list[float]], one: str, other: str) -> float:
    return statistics.median(ratios(found[one], found[other]))


# --- figures --------------------------------------------------------------------------------------

def point_to_point(figure: Figure) -> None:
    for tuple_bytes in (16, 64, 256, 1024, 4096):
        tuples = figure.tuples(min(20_000_000, (1 << 29) // tuple_bytes))
        few = figure.tuples(500_000)
        send = figure.mpi("send", 2, 1, few, tuple_bytes)
        found = figure.compare({"tuple_bytes": tuple_bytes, "processes": 2, "threads": 1}, {
            "flow": figure.rate("point-to-point", tuple_bytes=tuple_bytes, tuples=tuples),
            "MPI_Send": lambda send=send: send()["mrec_per_s"]})
        if tuple_bytes == 16:
            ratio = median_ratio(found, "flow", "MPI_Send")
            figure.relate("16 bytes: rate of the flow to MPI by tuple, above 1", ratio, ratio > 1)
    # Of each thread. MPI's threads wait for one another, so few take long enough.
    tuples, few = figure.tuples(10_000_000), figure.tuples(50_000)
    rates = {}
    for way, processes, threads in (("1 thread", 2, 1), ("2 threads", 2, 2), ("2 processes", 4, 1)):
        send = figure.mpi("send", processes, threads, few, 16)
        rates[way] = figure.compare({"tuple_bytes": 16, "processes": processes, "threads": threads}, {
            "flow": figure.rate("point-to-point", tuple_bytes=16, tuples=tuples, processes=processes, threads=threads),
            "MPI_Send": lambda send=send: send()["mrec_per_s"]})
    for name, way, holds in (("threads degrade MPI: 2 threads to 1, below 1", "2 threads", lambda ratio: ratio < 1),
                             ("processes do not: 2 pairs of processes to 1, from 0.9", "2 processes", lambda ratio: ratio >= 0.9)):
        ratio = statistics.median(rates[way]["MPI_Send"]) / statistics.median(rates["1 thread"]["MPI_Send"])
        figure.relate(name, ratio, holds(ratio))


def collective(figure: Figure) -> None:
    for processes in (2, 4):
        by_length = []
        for tuple_bytes in (16, 64, 256, 1024, 4096):
            tuples = figure.tuples(min(10_000_000, (1 << 28) // tuple_bytes))
            # Whole rounds.
            few = figure.tuples(min(800_000, (1 << 27) // tuple_bytes)) // 8 * 8
            rounds = figure.mpi("alltoall", processes, 1, few, tuple_bytes, batch=8)
            found = figure.compare({"tuple_bytes": tuple_bytes, "processes": processes}, {
                "flow": figure.rate("collective", tuple_bytes=tuple_bytes, tuples=tuples, processes=processes),
                "MPI_Alltoall": lambda rounds=rounds: rounds()["mrec_per_s"]})
            by_length.append(median_ratio(found, "flow", "MPI_Alltoall"))
        text = f"{processes} processes, 16 bytes: rate of the flow to Alltoall of 8 tuples, above 1"
        figure.relate(text, by_length[0], by_length[0] > 1)
        text = f"{processes} processes, 4096 bytes: the same, 0.8 to 1.25"
        figure.relate(text, by_length[-1], 0.8 <= by_length[-1] <= 1.25)


def straggler(figure: Figure) -> None:
    processes, tuple_bytes = 2, 16
    batch = BATCH_BYTES // tuple_bytes * processes
    tuples = figure.tuples(5_000_000) // batch * batch

    def flow(at: int) -> Run:
        run = figure.flow("straggler", tuple_bytes=tuple_bytes, tuples=tuples, processes=processes)
        return lambda: run()["points"][at]["seconds"]

    def mpi(slow: float) -> Run:
        run = figure.mpi("alltoall", processes, 1, tuples, tuple_bytes, batch=batch, compute=COMPUTE_US, straggler=slow)
        return lambda: run()["seconds"]

    found = figure.compare({"tuple_bytes": tuple_bytes, "processes": processes, "unit": "seconds"}, {
        "flow": flow(0), "flow, straggler": flow(1), "Alltoall": mpi(COMPUTE_US), "Alltoall, straggler": mpi(2 * COMPUTE_US)})
    ours = median_ratio(found, "flow, straggler", "flow")
    theirs = median_ratio(found, "Alltoall, straggler", "Alltoall")
    figure.relate("time with a straggler, times that without: batched Alltoall to the flow, above 1", theirs / ours, theirs > ours)


def join(figure: Figure) -> None:
    rows = figure.tuples(10_000_000)
    for processes in (2, 4):
        run, put = figure.flow("join", tuples=rows, processes=processes), figure.mpi("join", processes, 1, rows, 16, batch=rows)
        answers = set()

        def ours(run: Callable[[], dict] = run, answers: set = answers) -> float:
            point = run()["points"][0]
            answers.add((point["pairs"], point["sum"]))
            return point["seconds"]

        def theirs(run: Callable[[], dict] = put, answers: set = answers) -> float:
            line = run()
            answers.add((line["count"], line["sum"]))
            return line["seconds"]

        found = figure.compare({"processes": processes, "rows": rows, "unit": "seconds"}, {"flow": ours, "MPI_Put": theirs})
        if len(answers) != 1:
            sys.exit(f"the joins differ: {answers}")
        ratio = median_ratio(found, "flow", "MPI_Put")
        figure.relate(f"{processes} processes: time of the join over flows to that by histograms and MPI_Put, below 1", ratio, ratio < 1)


def shuffle(figure: Figure) -> None:
    tuples = figure.tuples(20_000_000)
    lab = str(harness.laboratory())

    def design(name: str) -> Run:
        command = [lab, "bench", "shuffle", "--design", name, "--tuples", str(tuples), "--json"]
        return lambda: answer(command)["mrec_per_s"]

    found = figure.compare({"tuple_bytes": 16, "processes": 2}, {
        "flow": figure.rate("collective", tuple_bytes=16, tuples=tuples), **{name: design(name) for name in DESIGNS}})
    best = max(DESIGNS, key=lambda name: statistics.median(found[name]))
    ratio = median_ratio(found, "flow", best)
    figure.relate(f"rate of the flow to the best design, {best}, from 0.95", ratio, ratio >= 0.95)


def main() -> int:
    options = arguments()
    needs_mpi = any(name != "shuffle" for name in options.figures)
    if needs_mpi and not shuffle_baselines.has_mpi():
        sys.exit("there is no mpicc or no mpirun; install Open MPI with `.ci/setup mpi`, or use --figures shuffle")
    program = shuffle_baselines.compiled(SOURCE, "flows", ["mpicc", "-pthread"]) if needs_mpi else Path()
    print(f"{os.cpu_count()} cores; mpirun gets --oversubscribe with more processes")
    works = dict(zip(FIGURES, (point_to_point, collective, straggler, join, shuffle), strict=True))
    for name in options.figures:
        figure = Figure(name, options, program)
        works[name](figure)
        figure.keep()
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Compares `millstream-lab bench shuffle` with MPI and plain sockets, by turns on the same data: docs/shuffle.md.

    tests/shuffle_baselines.py 10                                   # every design against all, then adaptive against fixed depths
    tests/shuffle_baselines.py 10 --parts designs --against unix,tcp
    tests/shuffle_baselines.py 10 --parts buffers --designs SEMQ/WR,MESQ/SR

- designs: each design directly followed by each baseline, so that drift of the machine's speed affects both alike. A baseline is
  a program of its own, tests/shuffle_baselines.c: `alltoallv` (MPI_Alltoallv in rounds of --round-bytes), `isend` (MPI_Isend and
  MPI_Irecv), `unix` and `tcp` (sockets), the last three with messages of 64 KiB.
- buffers: for each design and compute cost, `adaptive` directly followed by each fixed depth.

Prints for each run the median, least and greatest rate, and the ratio of the first one's rate to its own in the same turn: median,
quartiles, least and greatest. Every answer is checked; a wrong one ends the comparison. Nothing else should run at the same time.

The program is the one that MILLSTREAM_LAB_BIN names, otherwise the newest build; take a release build. The baselines need a C
compiler, and MPI's need Open MPI (`.ci/setup mpi`).
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import harness
from pairs import quartiles

SOURCE = harness.ROOT / "tests" / "shuffle_baselines.c"
DESIGNS = ["MEMQ/SR", "SEMQ/SR", "MESQ/SR", "SESQ/SR", "MEMQ/RD", "SEMQ/RD", "MEMQ/WR", "SEMQ/WR"]
MPI = ["alltoallv", "isend"]
BASELINES = [*MPI, "unix", "tcp"]
PARTS = ["designs", "buffers"]
RUN_SECONDS_MAX = 600
MESSAGE_BYTES = 65536

Options = argparse.Namespace


def words(text: str) -> list[str]:
    return [word for word in text.split(",") if word]


def known(names: list[str]) -> Callable[[str], list[str]]:
    def parse(text: str) -> list[str]:
        for word in words(text):
            if word not in names:
                raise argparse.ArgumentTypeError(f"there is no {word!r}; there are {', '.join(names)}")
        return words(text)

    return parse


def arguments() -> Options:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("turns", type=int, metavar="N", help="how often each run is repeated")
    parser.add_argument("--parts", type=known(PARTS), default=PARTS, help="by commas (designs,buffers)")
    parser.add_argument("--designs", type=words, default=DESIGNS, help="by commas (the eight)")
    parser.add_argument("--against", type=known(BASELINES), default=BASELINES, help=f"by commas ({','.join(BASELINES)})")
    parser.add_argument("--own", choices=["keep", "send"], default="keep",
                        help="a process keeps its own tuples where they are, or sends them to itself (keep)")
    parser.add_argument("--processes", type=int, default=2, help="(2)")
    parser.add_argument("--tuples", type=int, default=10_000_000, help="of 16 bytes, that each process sends (10000000)")
    parser.add_argument("--round-bytes", type=int, default=1 << 20, help="of a process in a round of alltoallv (1048576)")
    parser.add_argument("--baseline-buffers", type=int, default=2, help="of isend and sockets, for each peer (2)")
    parser.add_argument("--options", type=str.split, default=[], help="further options of each `bench shuffle`, as one word")
    parser.add_argument("--compute-us", type=words, default=["0", "1", "10"], help="of the part buffers (0,1,10)")
    parser.add_argument("--depths", type=words, default=["2", "4", "8", "16", "64"], help="of the part buffers (2,4,8,16,64)")
    parser.add_argument("--lines", type=Path, metavar="FILE", help="append the lines of `bench shuffle` to this file")
    chosen = parser.parse_args()
    if chosen.turns < 1:
        parser.error("N: once at least")
    if chosen.lines and not chosen.lines.parent.is_dir():
        parser.error(f"--lines: there is no folder {chosen.lines.parent}")
    return chosen


# --- runs -----------------------------------------------------------------------------------------

def run(command: list[str], options: Options) -> float:
    """Million tuples that all processes together received in a second."""
    found = answer(command)
    if options.lines and found["bench"] == "shuffle":
        with options.lines.open("a") as file:
            file.write(json.dumps(found) + "\n")
    return found["mrec_per_s"]


def answer(command: list[str]) -> dict:
    """The line that a command prints, whose answer is right."""
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=RUN_SECONDS_MAX)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr}")
    found = json.loads(done.stdout)
    # Both programs have checked this, and say so.
    if found["ok"] is not True:
        sys.exit(f"{' '.join(command)}: the answer is wrong")
    return found


def shuffle(options: Options, design: str, *more: str) -> list[str]:
    return [str(harness.laboratory()), "bench", "shuffle", "--design", design, "--processes", str(options.processes),
            "--tuples", str(options.tuples), *options.options, *more, "--json"]


def baseline(options: Options, program: Path, how: str) -> list[str]:
    size = options.round_bytes if how == "alltoallv" else MESSAGE_BYTES
    command = [str(program), how, str(options.processes), str(options.tuples), "0", str(size), str(options.baseline_buffers),
               options.own]
    return [*mpirun(options.processes), *command] if how in MPI else command


def mpirun(processes: int) -> list[str]:
    """As Millstream's processes: not bound to processors, which they yield if there is nothing to do."""
    launch = ["mpirun", "-n", str(processes), "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"]
    if processes > (os.cpu_count() or 1):
        launch.append("--oversubscribe")
    if os.geteuid() == 0:
        launch.append("--allow-run-as-root")
    return launch


def compile_baselines(against: list[str]) -> Path:
    """The program of the baselines, with MPI if that is compared with."""
    mpi = any(how in MPI for how in against)
    if mpi and not has_mpi():
        sys.exit("there is no mpicc or no mpirun; install Open MPI with `.ci/setup mpi`, or use --against unix,tcp")
    return compiled(SOURCE, "with-mpi" if mpi else "sockets", ["mpicc", "-DWITH_MPI"] if mpi else ["cc"])


def has_mpi() -> bool:
    return bool(shutil.which("mpicc") and shutil.which("mpirun"))


def compiled(source: Path, name: str, compiler: list[str]) -> Path:
    folder = Path(os.environ.get("CARGO_TARGET_DIR", harness.ROOT / "target")) / "shuffle-baselines"
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / name
    subprocess.run([*compiler, "-std=gnu11", "-O3", "-Wall", "-Wextra", "-o", str(program), str(source)], check=True)
    return program


# --- comparisons ----------------------------------------------------------------------------------

def compare(title: str, runs: dict[str, list[str]], options: Options) -> dict[str, list[float]]:
    """Runs all by turns, starting with another one each time, and prints how the first relates to the others."""
    names = list(runs)
    rates: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(options.turns):
        for i in range(len(names)):
            name = names[(turn + i) % len(names)]
            rates[name].append(run(runs[name], options))
    print(title)
    ratios = {}
    for name, own in rates.items():
        line = f"  {name:<12} {statistics.median(own):>8.1f} million tuples/s ({min(own):.1f} to {max(own):.1f})"
        if name != names[0]:
            ratios[name] = [first / one for first, one in zip(rates[names[0]], own, strict=True)]
            line += f"   {names[0]} to it: {spread(ratios[name])}"
        print(line, flush=True)
    return ratios


def spread(ratios: list[float]) -> str:
    low, high = quartiles(ratios)
    return (f"{statistics.median(ratios):.3f} (quartiles {low:.2f} and {high:.2f}, "
            f"{min(ratios):.2f} to {max(ratios):.2f})")


def designs(options: Options) -> None:
    program = compile_baselines(options.against)
    best: dict[str, tuple[str, list[float]]] = {}
    for design in options.designs:
        runs = {design: shuffle(options, design, "--own", options.own)}
        runs |= {how: baseline(options, program, how) for how in options.against}
        for how, ratios in compare(f"repartition, {options.processes} processes: {design}", runs, options).items():
            if how not in best or statistics.median(ratios) > statistics.median(best[how][1]):
                best[how] = design, ratios
    for how, (design, ratios) in best.items():
        print(f"best against {how}: {design}, {spread(ratios)}")


def buffers(options: Options) -> None:
    worst: tuple[float, str] | None = None
    for design in options.designs:
        for compute in options.compute_us:
            depths = ["adaptive", *(f"fixed:{depth}" for depth in options.depths)]
            runs = {depth: shuffle(options, design, "--buffers", depth, "--compute-us", compute) for depth in depths}
            title = f"{design}, {compute} us for each 32 KiB"
            ratios = compare(title, runs, options)
            # The lowest ratio is that to the best depth.
            depth = min(ratios, key=lambda name: statistics.median(ratios[name]))
            print(f"  adaptive to the best, {depth}: {spread(ratios[depth])}")
            found = statistics.median(ratios[depth]), f"{title}: adaptive to the best, {depth}: {spread(ratios[depth])}"
            worst = min(worst or found, found)
    if worst:
        print(f"lowest of all: {worst[1]}")


def main() -> int:
    options = arguments()
    if "designs" in options.parts:
        designs(options)
    if "buffers" in options.parts:
        buffers(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())

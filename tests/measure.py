#!/usr/bin/env python3
"""Measures what the paper's figures show, and draws the report.

    tests/measure.py DIR [--sets 5] [--parts scale,skew,counts] [--quick] …

Appends JSON lines to DIR/scale.jsonl, DIR/skew.jsonl and DIR/counts.jsonl, then runs `millstream report DIR`. A set runs
the whole grid once. Runs that are compared follow each other directly, in every other set in reverse order. So drift of the
machine's speed affects all of them alike, and the report can pair the runs.

- scale: workloads by processes and workers, over every fabric, with every exchange; one worker beside `handwritten`.
- skew: keys with a Zipf distribution, z from 0 to 2.
- counts: the workers' instructions and cache misses per record, by callgrind. This is slow; once is enough.

The program is the one that MILLSTREAM_BIN names, otherwise the newest build. For numbers that count, use a release build
and run nothing else.
"""

import argparse
import json
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import harness

WORKLOADS = ["ysb", "ysb_small", "nb7", "cm"]
PARTS = ["scale", "skew", "counts"]
EXCHANGES = ["late-merge", "repartition", "interleaved"]
SKEWS = ["0", "0.2", "0.4", "0.6", "0.8", "1", "1.2", "1.4", "1.6", "1.8", "2"]
RUN_SECONDS_MAX = 1800
# A first level and a last level that are the same on every machine: 32 KiB and 32 MiB.
CALLGRIND = ["valgrind", "--tool=callgrind", "--cache-sim=yes", "--D1=32768,8,64", "--LL=33554432,16,64",
             "--separate-threads=yes", "--trace-children=yes", "--fair-sched=yes"]


@dataclass(frozen=True)
class Layout:
    """How many processes, and workers of each."""

    processes: int
    workers: int

    @staticmethod
    def parse(text: str) -> "Layout":
        if not re.fullmatch(r"[1-9]\d{0,2}x[1-9]\d{0,2}", text):
            raise argparse.ArgumentTypeError(f"expected PROCESSESxWORKERS, for example 2x1; found {text!r}")
        return Layout(*map(int, text.split("x")))

    def words(self, fabric: str, exchange: str) -> list[str]:
        words = ["--workers", str(self.workers)]
        if self.processes > 1:
            words += ["--processes", str(self.processes), "--fabric", fabric]
        if self.processes * self.workers > 1:
            words += ["--exchange", exchange]
        return words


def split(text: str) -> list[str]:
    return [word for word in text.split(",") if word]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="DIR", help="where lines and report.html go")
    parser.add_argument("--sets", type=int, default=5, help="how often the grid is gone through (5)")
    parser.add_argument("--parts", type=split, default=PARTS, help=f"of {','.join(PARTS)} (all)")
    parser.add_argument("--workloads", type=split, default=WORKLOADS, help="by commas (ysb,ysb_small,nb7,cm)")
    parser.add_argument("--layouts", type=lambda text: [Layout.parse(word) for word in split(text)],
                        default=[Layout(*at) for at in ((1, 1), (1, 2), (2, 1), (2, 2), (4, 1))],
                        help="PROCESSESxWORKERS, by commas (1x1,1x2,2x1,2x2,4x1)")
    # Processes that are so slow as under valgrind count as dead, after two seconds.
    parser.add_argument("--count-layouts", type=lambda text: [Layout.parse(word) for word in split(text)],
                        default=[Layout(1, 1), Layout(1, 2)], help="the same, for counts (1x1,1x2)")
    parser.add_argument("--fabrics", type=split, default=["shm", "tcp"], help="by commas (shm,tcp)")
    parser.add_argument("--exchanges", type=split, default=EXCHANGES, help="by commas (all three)")
    parser.add_argument("--skews", type=split, default=SKEWS, help="exponents, by commas (0 to 2 in steps of 0.2)")
    parser.add_argument("--skew-workload", default="ysb", help="the workload with skewed keys (ysb)")
    parser.add_argument("--records", type=int, help="of every run (the workload's number)")
    parser.add_argument("--quick", action="store_true", help="20,000 records and 2 sets: to see whether it works")
    chosen = parser.parse_args()
    if unknown := set(chosen.parts) - set(PARTS):
        parser.error(f"--parts: there is no {', '.join(sorted(unknown))}")
    if chosen.quick:
        chosen.records, chosen.sets = chosen.records or 20_000, 2
    return chosen


def exchanges(chosen: argparse.Namespace, layout: Layout) -> list[str]:
    """Those that `layout` can run: one worker has nobody to exchange with."""
    return chosen.exchanges if layout.processes * layout.workers > 1 else ["late-merge"]


def scale(chosen: argparse.Namespace) -> Iterator[list[list[str]]]:
    """Groups of commands: those of a group are compared with each other."""
    for workload in chosen.workloads:
        for layout in chosen.layouts:
            for fabric in chosen.fabrics if layout.processes > 1 else [""]:
                group = [[workload, *layout.words(fabric, one)] for one in exchanges(chosen, layout)]
                if layout == Layout(1, 1):
                    group.append([workload, "--workers", "1", "--engine", "handwritten"])
                yield group


def skew(chosen: argparse.Namespace) -> Iterator[list[list[str]]]:
    """On two processes of one worker each where these are measured, else on the last layout."""
    layout = Layout(2, 1) if Layout(2, 1) in chosen.layouts else chosen.layouts[-1]
    for zipf in chosen.skews:
        yield [[chosen.skew_workload, *layout.words(chosen.fabrics[0], one), "--zipf", zipf]
               for one in exchanges(chosen, layout)]


def command(chosen: argparse.Namespace, words: list[str]) -> list[str]:
    records = [] if chosen.records is None or "--records" in words else ["--records", str(chosen.records)]
    return [str(harness.program()), "bench", *words, *records, "--json"]


def run(words: list[str]) -> subprocess.CompletedProcess:
    return subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=RUN_SECONDS_MAX)


def measure(chosen: argparse.Namespace, part: str, groups: list[list[list[str]]]) -> int:
    """Goes through the groups set by set; returns how many runs failed."""
    failed = 0
    for number in range(1, chosen.sets + 1):
        for group in groups:
            for words in group if number % 2 else group[::-1]:
                done = run(command(chosen, words))
                told = f"{part}, set {number} of {chosen.sets}: {' '.join(words)}"
                # A run with a wrong answer fails, too, and its line says so.
                with (chosen.folder / f"{part}.jsonl").open("a", encoding="utf-8") as file:
                    file.write(done.stdout)
                if done.returncode == 0:
                    print(f"{told}: {json.loads(done.stdout)['mrec_per_s']}", file=sys.stderr)
                else:
                    failed += 1
                    print(f"{told}: exit code {done.returncode}\n{done.stderr}", file=sys.stderr)
    return failed


# What only workers of a kind run, by the names of functions; a thread is of the first kind that fits.
ROLES = [("repartition-sender", "exchange::sender::"), ("repartition-receiver", "delivery::exchanged::"),
         ("late-merge", "millstream_engine::worker::")]
# Numbers of records whose answers are known: else computing the answer would be counted with the hand-written loop.
PUBLISHED = (None, 1_000_000, 20_000_000)
COUNTED = ["Ir", "D1mr", "D1mw", "DLmr", "DLmw"]


def events(text: str) -> list[int]:
    """What a thread's file of callgrind adds up to, in the order of COUNTED."""
    names = re.search(r"^events: (.*)", text, re.M)
    totals = re.search(r"^(?:totals|summary): (.*)", text, re.M)
    if not names or not totals:
        return [0] * len(COUNTED)
    by_name = dict(zip(names[1].split(), map(int, totals[1].split()), strict=False))
    return [by_name.get(name, 0) for name in COUNTED]


def threads(words: list[str]) -> tuple[dict, dict[str, list[int]]]:
    """Runs a command under callgrind: what it printed, and the events of its threads by role."""
    roles: dict[str, list[int]] = {}
    with tempfile.TemporaryDirectory(prefix="millstream-measure-") as folder:
        done = run([*CALLGRIND, f"--callgrind-out-file={folder}/out.%p", *words])
        if done.returncode != 0:
            raise RuntimeError(f"{shlex.join(words)}: exit code {done.returncode}\n{done.stderr}")
        for path in Path(folder).glob("out.*-*"):
            text = path.read_text(errors="replace")
            main = [("main", "thread: 1\n")]
            role = next((role for role, mark in main + ROLES if mark in text), "other")
            so_far = roles.setdefault(role, [0] * len(COUNTED))
            roles[role] = [a + b for a, b in zip(so_far, events(text), strict=True)]
    return json.loads(done.stdout), roles


def counts_line(line: dict, role: str, counted: list[int]) -> dict:
    instructions, *misses = counted
    per_record = {"instructions_per_record": instructions, "d1_misses_per_record": misses[0] + misses[1],
                  "ll_misses_per_record": misses[2] + misses[3]}
    kept = ("engine", "workload", "processes", "workers", "fabric", "exchange", "zipf", "records", "ok", "date", "machine")
    return {name: line[name] for name in kept if name in line} | {
        "command": f"{shlex.join(CALLGRIND)} {line['command']}", "role": role,
        **{name: round(number / max(line["records"], 1), 4) for name, number in per_record.items()},
    }


def counts(chosen: argparse.Namespace) -> int:
    """Counts what workers do; the hand-written loop runs on the thread that generates, which is subtracted."""
    failed = 0
    with (chosen.folder / "counts.jsonl").open("a", encoding="utf-8") as file:
        for workload in chosen.workloads:
            runs = [[workload, *layout.words(chosen.fabrics[0], exchange)]
                    for layout in chosen.count_layouts for exchange in exchanges(chosen, layout)
                    if exchange != "interleaved"]
            if chosen.records in PUBLISHED:
                runs.append([workload, "--workers", "1", "--engine", "handwritten"])
            for words in runs:
                print(f"counts: {' '.join(words)}", file=sys.stderr)
                try:
                    line, roles = threads(command(chosen, words))
                    if line["engine"] == "handwritten":
                        _, before = threads(command(chosen, [workload, "--workers", "1", "--generate-only"]))
                        found = [a - b for a, b in zip(roles["main"], before["main"], strict=True)]
                        roles = {"handwritten": [max(number, 0) for number in found]}
                    kinds = [role for role in roles if role not in ("main", "other")]
                    if not kinds:
                        raise RuntimeError("no thread of a worker was found")
                except (RuntimeError, OSError, subprocess.TimeoutExpired) as error:
                    failed += 1
                    print(f"counts: {' '.join(words)}: {error}", file=sys.stderr)
                    continue
                file.writelines(json.dumps(counts_line(line, role, roles[role])) + "\n" for role in kinds)
                file.flush()
    return failed


def main() -> int:
    chosen = arguments()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    failed = 0
    if "scale" in chosen.parts:
        failed += measure(chosen, "scale", list(scale(chosen)))
    if "skew" in chosen.parts:
        failed += measure(chosen, "skew", list(skew(chosen)))
    if "counts" in chosen.parts:
        failed += counts(chosen)
    report = subprocess.run([str(harness.program()), "report", str(chosen.folder)])
    print(f"{failed} runs failed" if failed else "all runs succeeded", file=sys.stderr)
    return 1 if failed or report.returncode else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Random queries over random data, against DuckDB, under every schedule (promise P2).

Every seed makes one case: a file with disorder and late records, a table, a query. The case runs with 1, 2 and 4
workers, tiny and large epochs and batches, each fragment mode, seeded simulated schedules, on several processes, and
with records exchanged in place of late merge; and again over more data. The first run reads CSV, the others any format. All runs must write the same bytes, and these
must be DuckDB's rows. The counters must show that what the case tests really happened; README.md lists them by run.

    tests/oracle/run.py --count 100          seeds 0 to 99
    tests/oracle/run.py --seed 17            one case; its files stay in target/oracle/17
"""

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parent.parent)]
import cases  # noqa: E402
import formats  # noqa: E402
import harness  # noqa: E402
import script  # noqa: E402
from case import BITS, LINES, SPREADS, Case  # noqa: E402
from collected import ESTIMATES, ORDERED, settled  # noqa: E402
from reference import Reference  # noqa: E402
from values import Wrong, parsed  # noqa: E402

KEPT = harness.ROOT / "target" / "oracle"
# Counters of which at least one run of the whole suite must have some.
HAPPENED = ("epochs", "empty_epochs", "joint_rows_in", "rows_shipped", "merges", "index_growths",
            "mode_switches", "late_records", "null_time_records", "windows_fired_early", "batches_stolen", "inner_rows", "rows_sent", "messages_sent")
# The share of schedules that are also run on several processes.
SEVERAL_PROCESSES = 0.5


@dataclass
class Report:
    """What came of one seed."""

    seed: int
    runs: int = 0
    wrong: list[str] = field(default_factory=list)
    stats: harness.Stats = field(default_factory=dict)
    kinds: set[str] = field(default_factory=set)


def schedules(rng: random.Random) -> list[dict[str, object]]:
    """Settings of the runs of a case as it is. The first is the plain one."""
    rows, modes = [1, 7, 64], ["auto", "aggregate", "pass-through"]
    runs: list[dict[str, object]] = [
        {"workers": 1},
        {"workers": 1, "batch.rows": 64, "epoch.bytes": 1},
        {"workers": 4, "batch.rows": rng.choice(rows), "epoch.bytes": 1, "fragment.mode": "pass-through"},
        {"workers": 4, "batch.rows": rng.choice(rows), "epoch.bytes": 1, "fragment.mode": "aggregate"},
        {"workers": 2, "batch.rows": rng.choice(rows), "epoch.bytes": "4KB", "fragment.bytes": "1KB",
         "fragment.mode": rng.choice(modes)},
    ]
    for workers in (2, rng.choice([3, 4])):
        runs.append({"workers": workers, "batch.rows": rng.choice(rows + [64]),
                     "epoch.bytes": rng.choice([1, "4KB", "64MB"]), "fragment.mode": rng.choice(modes),
                     "simulate": rng.randrange(1 << 32)})
    if rng.random() < SEVERAL_PROCESSES:
        runs.append(processes(rng) | {"batch.rows": rng.choice(rows), "epoch.bytes": rng.choice([1, "4KB", "64MB"])})
    # The files are small, so their windows are packed, which those of larger files are not.
    return [run | {"windows.pack": "1 s"} if at % 2 else run for at, run in enumerate(runs)]


def processes(rng: random.Random) -> dict[str, object]:
    """Several processes, for a share of the runs: starting them takes longer than most cases."""
    return {"processes": rng.choice([2, 4]), "fabric": rng.choice(["shm", "tcp"]), "workers": rng.choice([1, 2]),
            "fragment.mode": rng.choice(["auto", "aggregate", "pass-through"])}


def exchanged(rng: random.Random, rows: list[int]) -> list[dict[str, object]]:
    """A run in which records are exchanged in place of late merge, for as large a share of the cases."""
    several = processes(rng) | {"exchange": rng.choice(["repartition", "interleaved"]), "batch.rows": rng.choice(rows)}
    return [several] if rng.random() < SEVERAL_PROCESSES else []


def schedules_of_enlarged(rng: random.Random) -> list[dict[str, object]]:
    """Settings of the runs of an enlarged case. What counters must show is in `happened`."""
    modes = ["auto", "aggregate", "pass-through"]
    runs: list[dict[str, object]] = [
        {"workers": 1, "batch.rows": 256, "epoch.bytes": 1, "windows.pack": "1 s"},
        {"workers": 2, "batch.rows": 1024, "epoch.bytes": "128KB", "fragment.mode": "auto", "windows.pack": "1 s",
         "simulate": rng.randrange(1 << 32)},
        {"workers": rng.choice([2, 4]), "epoch.bytes": rng.choice(["256KB", "64MB"]),
         "fragment.mode": rng.choice(modes)},
    ]
    if rng.random() < SEVERAL_PROCESSES:
        runs.append(processes(rng) | {"batch.rows": 1024, "epoch.bytes": rng.choice(["256KB", "64MB"])})
    return runs


def check(seed: int, folder: Path) -> Report:
    """Runs one case, and the same query over more data, under all their schedules."""
    report, rng = Report(seed), random.Random(seed)
    # Chance of its own: what is drawn for late merge does not depend on it.
    exchanging = random.Random(f"exchange {seed}")
    case = cases.make(seed)
    exchange = lambda rows: [] if case.has_several() else exchanged(exchanging, rows)  # noqa: E731
    check_runs(case, folder, schedules(rng) + exchange([1, 7, 64]), report)
    if case.kind != "stateless" and not report.wrong:
        runs = schedules_of_enlarged(rng) + exchange([1024])
        check_runs(cases.enlarged(case), folder / "enlarged", runs, report)
        report.kinds |= kinds(case)
    return report


KINDS = ("int", "double", "float", "decimal", "bool", "date", "timestamp", "string", "bytes")
NUMBERS = ("int", "double", "float", "decimal")
# What the enlarged cases of a suite must have met: keys of every type, plain and computed, every
# aggregate of every type it takes, every clause.
MET = {f"key {kind}" for kind in KINDS} | {"computed key", "two keys"}
MET |= {f"{function} {kind}" for function in ("sum", "avg") for kind in NUMBERS}
MET |= {f"{function} {kind}" for function in ("count", "min", "max") for kind in KINDS}
MET |= {"upper window", "upper again", "upper whole", "two uppers"}
MET |= {f"{of}{kind}" for of in ("", "upper ") for kind in ("tumble", "hop", "cumulate", "session")}
MET |= {"shared sessions", "distinct of sessions", "where above sessions"}
MET |= {"window condition", "late for some windows"}
MET |= {"union", "side", "union of stages"}
MET |= {"spread", "line", "bits", "bools", "distinct"}
MET |= {*ORDERED, *ESTIMATES, "distinct array_agg", "distinct listagg", "ROLLUP", "CUBE", "GROUPING SETS"}
MET |= {f"{of} of {rows}" for of in ("ROW_NUMBER", "RANK", "DENSE_RANK") for rows in ("records", "results")}
MET |= {"upper first_value", "upper last_value", "several files", "ordered windows", "ordered whole", "decimal arithmetic", "sets of sessions"}
MET |= {"count *", "ratio double", "filter", "where", "having", "view", "lateness", "offset", "window", "whole"}


def kinds(case: Case) -> set[str]:
    """What of `MET` a case has."""
    found = {case.kind} | {f"key {key.type.kind}" for key in case.keys}
    for a in case.aggregates:
        found.add(f"{a.function} {a.argument.type.kind if a.argument else '*'}")
    found |= {a.function for a in case.aggregates} | {f"distinct {a.function}" for a in case.aggregates if a.distinct}
    found |= {f"upper {function}" for upper in case.uppers for function, _ in upper.aggregates}
    found |= {case.sets.form} if case.sets else set()
    if case.ranking:
        found.add(f"{case.ranking.function} of {'records' if case.ranking.of_records else 'results'}")
    found |= {f"upper {upper.kind}" for upper in case.uppers}
    names = {column.name for column in case.columns}
    present = {
        "computed key": any(key.ours not in names for key in case.keys),
        "two keys": len(case.keys) >= 2,
        "spread": any(a.function in SPREADS for a in case.aggregates),
        "line": any(a.function in LINES for a in case.aggregates),
        "bits": any(a.function in BITS for a in case.aggregates),
        "bools": any(a.function in ("bool_and", "bool_or") for a in case.aggregates),
        "distinct": any(a.distinct for a in case.aggregates),
        "filter": any(a.filter for a in case.aggregates),
        "where": case.where,
        "having": case.having,
        "view": case.view_where,
        "lateness": case.lateness_us,
        "offset": case.windows.offset_us,
        "window condition": case.window_where,
        "shared sessions": case.has_sessions() and len(case.partition) < len(case.keys),
        "distinct of sessions": case.has_sessions() and any(a.distinct for a in case.aggregates),
        "where above sessions": case.has_sessions() and case.where,
        "two uppers": len(case.uppers) == 2,
        "union": case.second_delay_us is not None,
        "side": case.side,
        "several files": case.splits > 1,
        "ordered windows": case.ordering and case.kind == "window",
        "ordered whole": case.ordering and case.kind == "whole",
        "decimal arithmetic": any(a.argument and "DECIMAL(24" in a.argument.duck for a in case.aggregates),
        "sets of sessions": case.sets and case.has_sessions(),
        "union of stages": case.second_delay_us is not None and len(case.uppers) == 2,
    }
    windowed = [upper.windows for upper in case.uppers if upper.kind == "window"]
    found |= {case.windows.kind} if case.kind == "window" else set()
    found |= {f"upper {windows.kind}" for windows in windowed}
    return found | {name for name, there in present.items() if there}


def check_runs(case: Case, folder: Path, schedules: list[dict[str, object]], report: Report) -> None:
    """Runs a case under these schedules, of which the first is compared with DuckDB's rows and the
    others with the first."""
    script.write(case, folder)
    # Chance of its own, as above.
    drawing = random.Random(f"formats {case.seed} {case.burst is not None}")
    reference = Reference(case, folder)
    report.kinds |= {"late for some windows"} if any(reference.assigned.partly) else set()
    expected, exact = reference.rows(), reference.counters()
    fires_early = reference.fires_early()
    first: harness.Run | None = None
    for settings in schedules:
        shutil.rmtree(folder / "side", ignore_errors=True)
        form = "csv" if first is None else formats.draw(drawing, counts_batches(settings, case))
        path = formats.write(case, folder, form)
        report.kinds.add(f"format {form}")
        result = harness.run("run", path, "--format", "csv", settings=settings)
        report.runs += 1
        harness.add(report.stats, result.stats)
        wrong = harness.sound(result)
        if result.code != 0:
            wrong.append(f"exit code {result.code}: {result.stderr.strip()}")
        elif first is None:
            wrong += differences(case, reference, expected, result)
        elif result.stdout != first.stdout:
            wrong.append(f"other bytes than the plain run, which read CSV: {form}")
        if result.code == 0 and case.side:
            wrong += side_differs(folder / "side", reference.side())
        if result.code == 0:
            wrong += counters(exact, fires_early, settings | {"format": form}, case, result.stats)
            wrong += happened(settings, case, result.stats) if case.burst else []
        if first is None:
            first = result
        report.wrong += [f"{result.shell()}\n{w}" for w in wrong]
        if report.wrong:
            break


def side_differs(folder: Path, expected: list[str]) -> list[str]:
    """How the second result differs from DuckDB's."""
    found = sorted(line for path in folder.glob("part-*") for line in path.read_text().splitlines())
    return [] if found == expected else [f"the second result is {found[:8]}, expected {expected[:8]}"]


def differences(case: Case, reference: Reference, expected: list[tuple], result: harness.Run
                ) -> list[str]:
    """How the output differs from DuckDB's rows."""
    types = reference.types()
    _, *rows = harness.parse_csv(result.stdout.decode("utf-8"))
    try:
        if any(len(row) != len(types) for row in rows):
            raise Wrong(f"a row does not have {len(types)} fields")
        found = [tuple(parsed(v, t) for v, t in zip(row, types, strict=True)) for row in rows]
    except Wrong as error:
        return [str(error)]
    expected = settled(expected, found)
    if case.kind == "stateless" or case.ordering:
        if found == expected:
            return []
        at = next((i for i, (f, e) in enumerate(zip(found, expected)) if f != e), min(len(found), len(expected)))
        return [f"row {at} is {found[at:at + 1]}, expected {expected[at:at + 1]} "
                f"({len(found)} rows, expected {len(expected)})"]
    wrong = []
    if reference.is_windowed() and [r[0] for r in found] != sorted(r[0] for r in found):
        wrong.append("windows are not in the order of event time")
    missing, extra = Counter(expected) - Counter(found), Counter(found) - Counter(expected)
    if missing or extra:
        show = lambda rows: "\n".join(f"    {row}" for row in sorted(rows, key=repr)[:8])  # noqa: E731
        wrong.append(f"{len(found)} rows, expected {len(expected)}\n  missing:\n{show(missing)}"
                     f"\n  not expected:\n{show(extra)}")
    return wrong


def counters(exact: dict[str, int], fires_early: bool, settings: dict[str, object], case: Case,
             stats: harness.Stats) -> list[str]:
    """Counters that do not say what this run must have done."""
    wrong = [f"counter {name} is {stats.get(name)}, expected {value}"
             for name, value in exact.items() if stats.get(name) != value]
    tiny = settings.get("epoch.bytes") == 1 and settings["format"] not in formats.COLUMNAR
    rows_per_batch = int(settings.get("batch.rows", 1 << 14))
    if case.kind != "stateless" and not case.is_limited() and tiny and case.records() > 4 * rows_per_batch:
        if stats.get("epochs", 0) < 3:
            wrong.append(f"only {stats.get('epochs')} epochs with epochs of one batch")
    # With one worker the reader is a few batches ahead at most, so a window that passed in the first
    # three quarters of many batches fires before the end.
    if fires_early and not case.burst and not case.has_several() and not case.is_limited() and one_worker(settings) and len(case.rows) > 60 * rows_per_batch:
        if not stats.get("windows_fired_early"):
            wrong.append("no window fired before the end of the input")
    return wrong


def counts_batches(settings: dict[str, object], case: Case) -> bool:
    """Whether a run must show what only small batches make happen, but for epochs of one batch."""
    return one_worker(settings) or (case.burst is not None and "simulate" in settings)


def one_worker(settings: dict[str, object]) -> bool:
    """Whether a run has just one worker, and so does the same every time."""
    return settings["workers"] == 1 and "processes" not in settings


def happened(settings: dict[str, object], case: Case, stats: harness.Stats) -> list[str]:
    """What did not happen in this run of an enlarged case, and had to.

    One worker, or the simulation of two, does the same in every run with the same seed; what threads
    do depends on the machine, so that nothing is asked of their run but what holds for all.
    """
    needed = {"index_growths": 1}
    if case.kind == "window":
        needed["late_records"] = 3
    if one_worker(settings):
        needed["epochs"] = 20
    if "simulate" in settings:
        needed |= {"epochs": 3, "fragment_rows_in": 1_000, "rows_shipped": 1_000, "merges": 1}
    if case.kind == "window" and not case.has_several() and case.splits == 1 and (one_worker(settings) or "simulate" in settings):
        needed["windows_fired_early"] = 1
    return [f"counter {name} is {stats.get(name)}, which shows less than {least} of what this run is for"
            for name, least in needed.items() if stats.get(name, 0) < least]


def in_own_folder(seed: int) -> Report:
    with tempfile.TemporaryDirectory(prefix="millstream-oracle-") as name:
        folder = Path(name) / str(seed)
        try:
            report = check(seed, folder)
        except Exception as error:  # a fault of the test itself: report it with its seed
            report = Report(seed, wrong=[f"the test failed: {type(error).__name__}: {error}"])
        if report.wrong:
            kept = KEPT / str(seed)
            shutil.rmtree(kept, ignore_errors=True)
            shutil.copytree(folder, kept)
            report.wrong = [w.replace(str(folder), str(kept)) for w in report.wrong]
    return report


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seed", type=int, help="one case only, keeping its files")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=100, help="how many seeds")
    parser.add_argument("--show", action="store_true", help="print the queries and run nothing")
    options = parser.parse_args()

    if options.show:
        first = options.first if options.seed is None else options.seed
        for seed in range(first, first + (options.count if options.seed is None else 1)):
            case = cases.make(seed)
            print(f"-- seed {seed}: {case.records()} records\n{script.sql(case)}")
            if case.kind != "stateless":
                large = cases.enlarged(case)
                print(f"-- seed {seed}, enlarged: {large.records()} records\n{script.sql(large)}")
        return 0
    if options.seed is not None:
        report = check(options.seed, KEPT / str(options.seed))
        print("\n".join(report.wrong) or f"seed {options.seed}: {report.runs} runs agree")
        print(f"{int(not report.wrong)} passed, {int(bool(report.wrong))} failed")
        return 1 if report.wrong else 0

    start, total, runs, failed, met = time.monotonic(), {}, 0, 0, set()
    with ProcessPoolExecutor() as pool:
        for report in pool.map(in_own_folder, range(options.first, options.first + options.count)):
            runs += report.runs
            harness.add(total, report.stats)
            met |= report.kinds
            if report.wrong:
                failed += 1
                print(f"FAIL seed {report.seed}; repeat with: tests/oracle/run.py --seed {report.seed}")
                print("  " + "\n".join(report.wrong).replace("\n", "\n  "), flush=True)
    for name in HAPPENED if options.count >= 32 else ():
        if not total.get(name):
            failed += 1
            print(f"FAIL the suite as a whole: no run has any {name}")
    missing = {f"format {form}" for form in formats.FORMATS} - met
    if options.count >= 32 and missing:
        failed += 1
        print(f"FAIL the suite as a whole: no run has read any {', '.join(sorted(missing))}")
    if options.count >= 200 and MET - met:
        failed += 1
        print(f"FAIL the suite as a whole: no enlarged case has any {', '.join(sorted(MET - met))}")
    print(f"{options.count} cases in {runs} runs, {time.monotonic() - start:.0f} s; over all runs: "
          + ", ".join(f"{name} {total.get(name, 0)}" for name in HAPPENED))
    print(f"{max(0, options.count - failed)} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

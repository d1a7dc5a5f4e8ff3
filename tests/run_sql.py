#!/usr/bin/env python3
"""Runs every tests/sql/*.sql and compares stdout, byte by byte, with the .expected beside it.

Each file runs with combinations of workers, batch size, epoch size and fragment mode below, on several
processes, with records exchanged in place of late merge (split and interleaved roles), and with seeded
simulated schedules: stdout must be the same bytes every time (promise P2). A file has a third of the
combinations and half of the runs on several processes or with exchanged records, its neighbours have
the others; with --full it has all.

Directives in a file's comments:
  -- settings: key=value, key=value     added to every run
  -- counters: records=9 late_records=2  counters that every run must report
  -- answer: by hand | by DuckDB        where the expected file comes from (required)
  -- exchange: refused                   the exchanged baseline refuses its queries: several stages
  -- outputs: kept, counts               directories that it writes: stdout is followed by a line `== kept`,
                                         the lines of all files there, sorted, and so on

Also, what the runs are meant to test must have happened in them, as far as a file's data can show it: see
`happened`. Indexes that grow and fragments that change their mode need thousands of keys in a window;
these are asserted for every enlarged case of the oracle suite.
"""

import argparse
import difflib
import itertools
import re
import sys
import tempfile
from pathlib import Path

import harness

FOLDER = Path(__file__).resolve().parent / "sql"
WORKERS = (1, 2, 4)
BATCH_ROWS = (1, 3, 16384)
EPOCH_BYTES = (1, "64MB")
FRAGMENT_MODES = ("auto", "aggregate", "pass-through")
PROCESSES = (2, 4)
FABRICS = ("shm", "tcp")
EXCHANGES = ("repartition", "interleaved")
QUICK: dict[str, object] = {"workers": 2, "batch.rows": 3, "epoch.bytes": 1}
WHOLE: dict[str, object] = {"workers": 2}
# Processes (one by default), workers and batch size of the runs in which records are exchanged.
EXCHANGING = (
    {"workers": 2, "batch.rows": 1},
    {"processes": 2, "fabric": "shm", "workers": 1, "batch.rows": 16384},
    {"processes": 2, "fabric": "shm", "workers": 2, "batch.rows": 3, "epoch.bytes": 1},
    {"processes": 4, "fabric": "tcp", "workers": 1, "batch.rows": 3},
)


def combinations(seeds: int, part: int | None) -> list[dict[str, object]]:
    """Settings of all runs of one file, or a part of them, by its number; the first is the plain one."""
    third, half = (None, None) if part is None else (part % 3, part // 3 % 2)
    result: list[dict[str, object]] = [{"workers": 1}]
    for workers, rows, epoch in itertools.product(WORKERS, BATCH_ROWS, EPOCH_BYTES):
        # Fragments hold state for other workers, so with one worker their mode cannot matter much.
        for mode in FRAGMENT_MODES if workers > 1 else FRAGMENT_MODES[:1]:
            # A third has every batch size and every mode with each number of workers above one.
            place = WORKERS.index(workers) + BATCH_ROWS.index(rows) + FRAGMENT_MODES.index(mode)
            if third is None or place % 3 == third:
                result.append({"workers": workers, "batch.rows": rows, "epoch.bytes": epoch, "fragment.mode": mode})
    several: list[dict[str, object]] = []
    for at, (processes, fabric) in enumerate(itertools.product(PROCESSES, FABRICS)):
        for workers, rows, epoch, mode in ((1, 16384, "64MB", "auto"), (2, 3, 1, FRAGMENT_MODES[at % 3])):
            several.append({"processes": processes, "fabric": fabric, "workers": workers, "batch.rows": rows,
                            "epoch.bytes": epoch, "fragment.mode": mode})
    several += [layout | {"exchange": exchange} for exchange in EXCHANGES for layout in EXCHANGING]
    # Pairs differ in what a half should have of both kinds.
    result += [run for at, run in enumerate(several) if half is None or (at + at // 2) % 2 == half]
    for seed in range(1, seeds + 1):
        result.append({"workers": WORKERS[seed % 3], "batch.rows": BATCH_ROWS[seed % 2],
                       "epoch.bytes": EPOCH_BYTES[seed % 5 == 0],
                       "fragment.mode": FRAGMENT_MODES[seed // 2 % 3], "simulate": seed})
    # The files are small, so their windows are packed, which those of larger files are not.
    return [settings | {"windows.pack": "1 s"} if at % 2 else settings for at, settings in enumerate(result)]


def directive(text: str, name: str) -> str | None:
    found = re.search(rf"^-- {name}: *(.*)$", text, re.MULTILINE)
    return found.group(1).strip() if found else None


def pairs(text: str | None, separator: str | None = ",") -> dict[str, str]:
    return dict(part.strip().split("=", 1) for part in text.split(separator)) if text else {}


def run(path: Path, settings: dict[str, object]) -> harness.Run:
    """One run of one file. What it writes to its outputs stands behind what it prints."""
    outputs = directive(path.read_text(), "outputs")
    if not outputs:
        return harness.run("run", path, "--format", "csv", settings=settings)
    with tempfile.TemporaryDirectory(prefix="millstream-sql-") as name:
        folder = Path(name)
        (folder / "data").symlink_to(FOLDER / "data")
        script = folder / path.name
        script.write_bytes(path.read_bytes())
        result = harness.run("run", script, "--format", "csv", settings=settings)
        for output in outputs.split(", "):
            files = sorted((folder / output).glob("part-*"))
            lines = sorted(line for file in files for line in file.read_bytes().splitlines())
            result.stdout += b"".join(line + b"\n" for line in [b"== " + output.encode(), *lines])
    return result


def problems(path: Path, settings: dict[str, object], expected: bytes, counters: dict[str, str]
             ) -> tuple[harness.Run, list[str]]:
    """One run of one file and what is wrong with it."""
    result = run(path, settings)
    wrong = harness.sound(result)
    if result.code != 0:
        wrong.append(f"exit code {result.code}\n{result.stderr}")
    elif result.stdout != expected:
        lines = (expected.decode("utf-8", "replace"), result.stdout.decode("utf-8", "replace"))
        diff = difflib.unified_diff(*(t.splitlines() for t in lines), "expected", "stdout", lineterm="")
        wrong.append("stdout differs\n" + "\n".join(itertools.islice(diff, 40)))
    for name, value in counters.items():
        if result.code == 0 and result.stats.get(name) != int(value):
            wrong.append(f"counter {name} is {result.stats.get(name)}, expected {value}")
    return result, wrong


def happened(results: list[harness.Run]) -> list[str]:
    """What did not happen in the runs of one file, and should have.

    Only runs that do the same every time are looked at: simulated ones, and those with one worker.
    """
    plain = results[0].stats
    alone = [r for r in results if "processes" not in r.settings]
    steady = [r for r in alone if "simulate" in r.settings or r.settings["workers"] == 1]
    total: harness.Stats = {}
    for result in steady:
        harness.add(total, result.stats)
    needed = {"epochs": 0, "merges": 0, "rows_shipped": 0, "windows_fired_early": 0, "batches_stolen": 0}
    if plain.get("records", 0) >= 4:
        needed["batches_stolen"] = 1
        if plain.get("windows", 0) >= 1:
            needed |= {"epochs": 2 * len(steady), "merges": 1, "rows_shipped": 1}
        if plain.get("windows", 0) >= 4:
            needed["windows_fired_early"] = 1
    missing = [f"over {len(steady)} runs, counter {name} is {total.get(name, 0)}, expected {least} at least"
               for name, least in needed.items() if total.get(name, 0) < least]
    return missing + not_exchanged(results) + not_shipped(results)


def not_exchanged(results: list[harness.Run]) -> list[str]:
    """Runs that should have exchanged records and did not: late merge puts them into fragments and joint tables."""
    grouped = results[0].stats.get("windows", 0) >= 1
    wrong = []
    for result in results:
        if "exchange" in result.settings:
            exchanged, kept = (sum(result.stats.get(name, 0) for name in names)
                               for names in (("rows_shipped",), ("fragment_rows_in", "joint_rows_in")))
            if kept or (grouped and not exchanged):
                wrong.append(f"{exchanged} records exchanged, {kept} kept for late merge: {result.shell()}")
    return wrong


def late_merge(results: list[harness.Run]) -> list[harness.Run]:
    """The runs on several processes in which partial state is merged late."""
    return [result for result in results if "processes" in result.settings and "exchange" not in result.settings]


def not_shipped(results: list[harness.Run]) -> list[str]:
    """Late merge tells leaders elsewhere at least that there is nothing more to come."""
    grouped = results[0].stats.get("windows", 0) >= 1
    return [f"nothing went to other processes: {result.shell()}" for result in late_merge(results)
            if grouped and not result.stats.get("messages_sent")]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*", help="only files whose name contains one of these")
    parser.add_argument("--seeds", type=int, default=8, help="simulated schedules per file")
    parser.add_argument("--full", action="store_true", help="every combination for each file")
    parser.add_argument("--quick", action="store_true", help="one run of each file, with two workers: `make check`")
    parser.add_argument("--whole", action="store_true", help="the same with whole batches, as users have them")
    options = parser.parse_args()

    files = sorted(FOLDER.glob("*.sql"))
    files = [f for f in files if not options.names or any(n in f.name for n in options.names)]
    if not files:
        print("0 passed, 1 failed: there are no such SQL files")
        return 1
    passed, failed, total = 0, 0, {}
    short = options.quick or options.whole
    shipped = dict.fromkeys(itertools.product(PROCESSES, FABRICS), 0)
    for place, path in enumerate(files):
        text = path.read_text()
        expected = path.with_suffix(".expected")
        if not expected.exists() or not directive(text, "answer"):
            print(f"FAIL {path.name}: needs {expected.name} and a line `-- answer: …`")
            failed += 1
            continue
        own = pairs(directive(text, "settings"))
        exchanged = directive(text, "exchange") != "refused"
        layouts = combinations(options.seeds, None if options.full else place)
        if short:
            layouts = [WHOLE if options.whole else QUICK]
        jobs = [own | c for c in layouts if exchanged or "exchange" not in c]
        counters = pairs(directive(text, "counters"), separator=None)
        answer = expected.read_bytes()
        results = harness.run_all(jobs, lambda s: problems(path, s, answer, counters))
        bad = [(result, wrong) for result, wrong in results if wrong]
        missing = [] if bad or short else happened([result for result, _ in results])
        for result, _ in results:
            harness.add(total, result.stats)
        for result in late_merge([result for result, _ in results]):
            layout = result.settings["processes"], result.settings["fabric"]
            shipped[layout] += result.stats.get("rows_sent", 0)
        ok = not bad and not missing
        passed, failed = passed + ok, failed + (not ok)
        print(f"{'ok  ' if ok else 'FAIL'} {path.name} ({len(jobs)} runs)", flush=True)
        for line in missing:
            print(f"  {line}")
        for result, wrong in bad[:2]:
            print(f"  {result.shell()}\n    " + "\n".join(wrong).replace("\n", "\n    "))
        if len(bad) > 2:
            print(f"  … and {len(bad) - 2} more of its runs")
    if not options.names and not short:
        for name in ("epochs", "rows_shipped", "late_records", "windows_fired_early", "rows_sent", "messages_sent"):
            if not total.get(name):
                print(f"FAIL the suite as a whole: no run has any {name}")
                failed += 1
        for (processes, fabric), rows in shipped.items():
            if not rows:
                print(f"FAIL the suite as a whole: late merge on {processes} processes over {fabric} sent no rows")
                failed += 1
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

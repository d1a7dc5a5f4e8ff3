#!/usr/bin/env python3
"""Random joins over random data, against DuckDB, under several schedules (promise P2).

Every seed makes two files, whose records are out of order but never late, and a query that joins them: of any kind, in
windows of any kind, within an interval of time, with the versions of a table as of now (a lookup) or of the row's time
(a temporal join), or in none of these, each side records or a grouping of them, with any number of keys and perhaps a
condition. Of windows, a side may be the maxima of the other one. What is joined within an interval may be the results
of a stage, too: counts in windows or sessions, or records that have others near; and both sides may be the same. All
runs must write the same bytes, and these must be DuckDB's rows.

    tests/oracle/joins.py --count 100        seeds 0 to 99
    tests/oracle/joins.py --seed 17          one case; its files stay in target/oracle-joins/17
"""

import argparse
import datetime as dt
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import duckdb

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parent.parent)]
import harness  # noqa: E402
from case import EPOCH, MILLIS  # noqa: E402
from expressions import INT, Column  # noqa: E402
from records import columns, value  # noqa: E402
from script import field_text  # noqa: E402
from values import canonical, parsed  # noqa: E402
from windows import Windows, interval  # noqa: E402

KEPT = harness.ROOT / "target" / "oracle-joins"
START_US = 1_704_067_200_000_000
VERSIONS = ("lookup", "temporal")
KINDS = ("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "EXISTS", "NOT EXISTS")


@dataclass
class Side:
    """A table, and what the join takes of it."""

    name: str
    columns: list[Column]
    rows: list[list]
    delay_us: int
    # The key of a grouping; `None`: the records themselves.
    grouped: Column | None
    where: str | None
    # Of an interval join: its rows are counts in these windows, and their time is the windows'.
    counted: Windows | None = None
    # The same: its rows are the records that have another one so much earlier and later, which has the same value of a
    # column; microseconds.
    near: tuple[int, int, str] | None = None
    # Of a join in windows: the greatest count of each window alone.
    most: bool = False

    def shown(self) -> list[tuple[str, Column]]:
        """Names and columns of what the join sees, but for windows."""
        if self.grouped:
            counts = [(self.grouped.name, self.grouped), ("n", Column("n", INT, "BIGINT", "BIGINT"))]
            if self.most:
                return counts[1:]
            return counts + ([("ts", Column("ts", MILLIS, "TIMESTAMP(3)", "TIMESTAMP"))] if self.counted else [])
        return [(column.name, column) for column in self.columns]

    def ours(self, windows: Windows | None) -> str:
        if self.most:
            counts = replace(self, most=False).ours(windows)
            return f"SELECT window_start, window_end, MAX(n) AS n FROM ({counts}) GROUP BY window_start, window_end"
        if self.near:
            return self.met(self.name, "ts", moved)
        if self.counted:
            by = f"window_start, window_end, window_time, {self.grouped.name}"
            where = f" WHERE {self.where}" if self.where else ""
            return (f"SELECT {self.grouped.name}, COUNT(*) AS n, window_time AS ts "
                    f"FROM {self.counted.call(self.name, 'ts', self.partition())}{where} GROUP BY {by}")
        source = windows.call(self.name, "ts") if windows else self.name
        where = f" WHERE {self.where}" if self.where else ""
        if not self.grouped:
            return f"SELECT * FROM {source}{where}"
        window = "window_start, window_end, " if windows else ""
        by = f"{window}{self.grouped.name}"
        return f"SELECT {by}, COUNT(*) AS n FROM {source}{where} GROUP BY {by}"

    def partition(self) -> list[str]:
        """What tells sessions apart."""
        return [self.grouped.name] if self.counted.is_session else []

    def duck(self, windows: Windows | None, timed_only: bool) -> str:
        if self.most:
            counts = replace(self, most=False).duck(windows, timed_only)
            return f"SELECT start_, end_, max(n) AS n FROM ({counts}) GROUP BY start_, end_"
        if self.near:
            with_time = f"(SELECT * FROM {self.name} WHERE ts_ IS NOT NULL)"
            return self.met(with_time, "ts_", lambda time, us: f"{time} + {us}")
        if self.counted:
            timed = self.counted.duck(f"SELECT * FROM {self.name} WHERE ts_ IS NOT NULL", "ts_", self.partition())
            where = f" WHERE {self.where}" if self.where else ""
            counts = f'"{self.grouped.name}", count(*) AS n'
            return (f"SELECT {counts}, end_ - 1000 AS ts_, make_timestamp(end_ - 1000) AS ts "
                    f'FROM ({timed}){where} GROUP BY start_, end_, "{self.grouped.name}"')
        timed = f"SELECT * FROM {self.name}" + (" WHERE ts_ IS NOT NULL" if windows or timed_only else "")
        source = windows.duck(timed, "ts_") if windows else timed
        where = f" WHERE {self.where}" if self.where else ""
        if not self.grouped:
            return f"SELECT * FROM ({source}){where}"
        by = ("start_, end_, " if windows else "") + f'"{self.grouped.name}"'
        return f"SELECT {by}, count(*) AS n FROM ({source}){where} GROUP BY {by}"

    def met(self, source: str, time: str, moved: Callable[[str, int], str]) -> str:
        """The records that have another one near."""
        earlier_us, later_us, column = self.near
        within = f"o.{time} BETWEEN {moved(f'i.{time}', -earlier_us)} AND {moved(f'i.{time}', later_us)}"
        other = f'o."{column}" = i."{column}" AND o.b < i.b'
        where = f" AND i.{self.where}" if self.where else ""
        exists = f"EXISTS (SELECT 1 FROM {source} AS o WHERE {other} AND {within})"
        return f"SELECT i.* FROM {source} AS i WHERE {exists}{where}"


@dataclass
class Case:
    seed: int
    kind: str
    windows: Windows | None
    left: Side
    right: Side
    # Of both sides.
    keys: list[tuple[str, str]]
    condition: str | None
    after: str | None
    # By how much the left side's time is more than the right side's, at least and at most, microseconds; and how that
    # is written.
    interval: tuple[int, int] | None = None
    form: int = 0
    # Whether the right side has versions: "lookup" or "temporal".
    version: str | None = None

    def sides(self) -> list[tuple[str, Side]]:
        both = [("l", self.left), ("r", self.right)]
        return both if "JOIN" in self.kind else both[:1]

    def tables(self) -> list[Side]:
        return [self.left] + ([self.right] if self.right.name != self.left.name else [])

    def how(self) -> str:
        if self.interval:
            staged = all(side.counted or side.near for side in (self.left, self.right))
            return "interval of results" if staged else "interval"
        return self.version or (self.windows.kind if self.windows else "none")

    def within(self, duck: bool) -> list[str]:
        """Conditions on the times."""
        if not self.interval:
            return []
        least, most = self.interval
        if duck:
            return [f"l.ts_ - r.ts_ BETWEEN {least} AND {most}"]
        if self.form == 0:
            return [f"l.ts BETWEEN {moved('r.ts', least)} AND {moved('r.ts', most)}"]
        if self.form == 1:
            return [f"r.ts BETWEEN {moved('l.ts', -most)} AND {moved('l.ts', -least)}"]
        return [f"{moved('r.ts', least)} <= l.ts", f"{moved('l.ts', -most)} <= r.ts"]

    def on(self, window: list[str], duck: bool) -> str:
        equal = [f"l.{name} = r.{name}" for name in window] + self.within(duck)
        equal += [f'l."{left}" = r."{right}"' for left, right in self.keys]
        return " AND ".join(equal + ([self.condition] if self.condition else [])) or "TRUE"

    def query(self, left: str, right: str, window: list[str], shown: list[str], duck: bool) -> str:
        after = f" WHERE {self.after}" if self.after else ""
        if "JOIN" in self.kind:
            return f"SELECT {', '.join(shown)} FROM ({left}) AS l {self.kind} ({right}) AS r ON {self.on(window, duck)}{after}"
        exists = f"{self.kind} (SELECT 1 FROM ({right}) AS r WHERE {self.on(window, duck)})"
        return f"SELECT {', '.join(shown)} FROM ({left}) AS l WHERE {exists}" + (f" AND {self.after}" if self.after else "")

    def names(self, window: str) -> list[str]:
        """What is shown, and in the end the window of each side."""
        names = [f'{alias}."{name}"' for alias, side in self.sides() for name, _ in side.shown()]
        return names + ([window.format(alias) for alias, _ in self.sides()] if self.windows else [])

    def types(self) -> list:
        types = [column.type for _, side in self.sides() for _, column in side.shown()]
        return types + ([MILLIS] * len(self.sides()) if self.windows else [])

    def ours(self) -> str:
        window = ["window_start", "window_end"] if self.windows else []
        shown = [f"{name} AS c{i}" for i, name in enumerate(self.names("{}.window_start"))]
        if self.version:
            time, left = "l.ts", self.left.ours(None)
            if self.version == "lookup":
                time, left = "l.p_", f"SELECT *, PROCTIME() AS p_ FROM ({left})"
            after = f" WHERE {self.after}" if self.after else ""
            return (f"SELECT {', '.join(shown)} FROM ({left}) AS l {self.kind} rights FOR SYSTEM_TIME AS OF {time} AS r "
                    f"ON {self.on([], False)}{after}")
        return self.query(self.left.ours(self.windows), self.right.ours(self.windows), window, shown, duck=False)

    def temporal(self) -> str:
        """The version of each row: of several of one time the last."""
        key = ", ".join(f'"{right}"' for _, right in self.keys)
        equal = " AND ".join(f'l."{left}" = r."{right}"' for left, right in self.keys)
        condition = f" AND {self.condition}" if self.condition else ""
        after = f" WHERE {self.after}" if self.after else ""
        return f"""WITH l AS (SELECT *, row_number() OVER () AS n_ FROM ({self.left.duck(None, True)})),
            versions AS (SELECT *, rowid AS place_ FROM rights WHERE ts_ IS NOT NULL),
            lasts AS (SELECT * FROM versions
                QUALIFY row_number() OVER (PARTITION BY {key}, ts_ ORDER BY place_ DESC) = 1),
            met AS (SELECT l.n_, r.place_ FROM l ASOF JOIN lasts AS r ON {equal} AND l.ts_ >= r.ts_)
            SELECT {', '.join(self.names(''))} FROM l
            {self.kind} (SELECT met.n_, versions.* FROM met JOIN versions USING (place_)) AS r ON l.n_ = r.n_{condition}{after}"""

    def duck(self) -> str:
        if self.version == "temporal":
            return self.temporal()
        window = ["start_", "end_"] if self.windows else []
        shown = self.names("make_timestamp({}.start_)")
        sides = [side.duck(self.windows, self.interval is not None) for side in (self.left, self.right)]
        return self.query(*sides, window, shown, duck=True)


def moved(time: str, us: int) -> str:
    """A time and an interval, as people write it."""
    if us == 0:
        return time
    return f"{time} {'+' if us > 0 else '-'} {interval(abs(us))}"


def side(rng: random.Random, name: str, unit_us: int) -> Side:
    count = rng.choice([0, 1, 20, 120, 120, 120])
    delay_us = rng.choice([0, unit_us // 3, 3 * unit_us]) // 1000 * 1000
    digits = rng.choice([3, 6])
    named = columns(rng, digits)
    null_rate, spread = rng.choice([0, 0.05, 0.3]), rng.choice([2, 2, 5, 40])
    step_us = 6 * unit_us // max(count, 6) // 1000 * 1000
    rows, now = [], START_US
    for _ in range(count):
        now += rng.choice([0, step_us, step_us, 2 * step_us])
        ts = now - (rng.randint(0, delay_us) // 1000 * 1000 if delay_us else 0)
        row = [None if null_rate and rng.random() < 0.05 else ts]
        row += [None if rng.random() < null_rate else value(rng, column, spread) for column in named[1:]]
        rows.append(row)
    grouped = rng.choice(named[1:]) if rng.random() < 0.3 else None
    where = rng.choice([None, None, "b >= 0", "b IS NOT NULL"])
    return Side(name, named, rows, delay_us, grouped, where)


def staged(seed: int, unit_us: int, left: Side, right: Side) -> tuple[Side, Side]:
    """Sides of an interval join: often results of stages."""
    rng = random.Random(f"staged {seed}")

    def any_of(side: Side) -> Side:
        column = rng.choice(side.columns[1:])
        match rng.choice(["records", "records", "counted", "counted", "near"]):
            case "counted":
                kind = rng.choice(["tumble", "tumble", "hop", "cumulate", "session"])
                size_us = max(unit_us // rng.choice([1, 3, 10]) // 1000 * 1000, 10_000)
                windows = Windows(kind, size_us, 0, 1 if kind in ("tumble", "session") else rng.choice([2, 3]))
                return replace(side, grouped=column, counted=windows)
            case "near":
                bounds = [rng.choice([0, 0.5, 2]) * unit_us // 1000 * 1000 for _ in range(2)]
                others = [c.name for c in side.columns[2:] if c.type.kind != "bytes"]
                if others:
                    return replace(side, near=(int(bounds[0]), int(bounds[1]), rng.choice(others)))
        return side

    left = any_of(left)
    same = rng.choice([None, None, left, replace(left, grouped=None, counted=None, near=None)])
    return left, same or any_of(right)


def make(seed: int) -> Case:
    rng = random.Random(f"join {seed}")
    unit_us = rng.choice([1_000_000, 7_000_000, 250_000])
    kind = rng.choice(["tumble", "tumble", "hop", "hop", "cumulate", "interval", "interval", "interval", "interval",
                       "none", "lookup", "temporal", "temporal"])
    windows = within = None
    if kind == "interval":
        bounds = [rng.choice([-3, -1, -0.25, 0, 0, 0.5, 2]) * unit_us // 1000 * 1000 for _ in range(2)]
        within = (int(min(bounds)), int(max(bounds)))
    elif kind not in ("none", *VERSIONS):
        offset_us = rng.choice([0, unit_us // 4 // 1000 * 1000])
        windows = Windows(kind, unit_us, offset_us, 1 if kind == "tumble" else rng.choice([1, 2, 3]))
    left, right = side(rng, "lefts", unit_us), side(rng, "rights", unit_us)
    if within or kind in VERSIONS:
        left.grouped = right.grouped = None
    if within:
        left, right = staged(seed, unit_us, left, right)
    elif windows and right.grouped and random.Random(f"most {seed}").random() < 0.4:
        left = replace(right, most=True)
    comparable = [(a, b) for a, x in left.shown() for b, y in right.shown()
                  if x.type.kind == y.type.kind and x.type.kind != "bytes" and "ts" not in (a, b)]
    # Columns of one name have the same values, so that there are pairs.
    alike = [(a, b) for a, b in comparable if a == b]
    usual = alike if alike and rng.random() < 0.8 else comparable
    keys = rng.sample(usual, min(len(usual), rng.choice([0, 1, 1, 1, 2])))
    numbers = [[name for name, column in s.shown() if column.type.kind == "int"] for s in (left, right)]
    condition = None
    if all(numbers) and rng.random() < 0.35:
        a, b = rng.choice(numbers[0]), rng.choice(numbers[1])
        condition = rng.choice([f'l."{a}" < r."{b}"', f'CAST(l."{a}" AS BIGINT) + CAST(r."{b}" AS BIGINT) > 2', f'l."{a}" <> r."{b}"'])
    join = rng.choice(KINDS)
    if join == "FULL JOIN" and not keys and not windows and not within:
        keys = comparable[:1] or keys
    if kind in VERSIONS:
        join, right.where = rng.choice(KINDS[:2]), None
    if kind == "temporal":
        keys = [pair for pair in keys if [other for _, other in keys].count(pair[1]) == 1] or alike[:1]
    after = None
    if numbers[0] and rng.random() < 0.2:
        after = f'l."{rng.choice(numbers[0])}" ' + rng.choice(["> 0", "IS NULL", "IS NOT NULL"])
    version = kind if kind in VERSIONS else None
    if not keys and version:
        version = "lookup"
    return Case(seed, join, windows, left, right, keys, condition, after, within, rng.randrange(3), version)


def write(case: Case, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    text = ""
    for each in case.tables():
        lines = [",".join(column.name for column in each.columns)]
        lines += [",".join(field_text(v, c) for v, c in zip(row, each.columns)) for row in each.rows]
        (folder / f"{each.name}.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
        declared = "".join(f"    {c.name} {c.declared},\n" for c in each.columns)
        if case.version == "temporal" and each is case.right:
            declared += f"    PRIMARY KEY ({', '.join(right for _, right in case.keys)}) NOT ENFORCED,\n"
        delay = f" - {interval(each.delay_us)}" if each.delay_us else ""
        text += (f"CREATE TABLE {each.name} (\n{declared}    WATERMARK FOR ts AS ts{delay}\n) WITH ("
                 f"'connector' = 'file', 'path' = '{each.name}.csv', 'format' = 'csv');\n\n")
    path = folder / "query.sql"
    path.write_text(f"{text}{case.ours()};\n", encoding="utf-8")
    return path


def expected(case: Case) -> Counter:
    db = duckdb.connect()
    for each in case.tables():
        declared = ", ".join(f'"{c.name}" {c.duck}' for c in each.columns)
        db.execute(f"CREATE TABLE {each.name} ({declared}, ts_ BIGINT)")
        rows = [[None if row[0] is None else EPOCH + dt.timedelta(microseconds=row[0]), *row[1:], row[0]]
                for row in each.rows]
        if rows:
            db.executemany(f"INSERT INTO {each.name} VALUES ({', '.join('?' * (len(each.columns) + 1))})", rows)
    return Counter(tuple(canonical(v, t) for v, t in zip(row, case.types())) for row in db.execute(case.duck()).fetchall())


def schedules(rng: random.Random, case: Case) -> list[dict[str, object]]:
    rows = [1, 7, 64]
    runs: list[dict[str, object]] = [
        {"workers": 1},
        {"workers": 4, "batch.rows": 1, "epoch.bytes": 1},
        {"workers": 2, "batch.rows": rng.choice(rows), "epoch.bytes": rng.choice([1, "4KB"]),
         "simulate": rng.randrange(1 << 32)},
    ]
    several = {"processes": 2, "fabric": rng.choice(["shm", "tcp"]), "workers": rng.choice([1, 2]),
               "batch.rows": rng.choice(rows)}
    if rng.random() < 0.4:
        runs.append(several | {"epoch.bytes": rng.choice([1, "64MB"])})
    sides = (case.left, case.right)
    stages = case.version == "lookup" or any(side.grouped or side.near for side in sides) or len(case.tables()) == 1
    stages = stages or case.interval and case.kind == "FULL JOIN"
    if rng.random() < 0.3 and not stages:
        runs.append(several | {"exchange": rng.choice(["interleaved", "repartition"])})
    return runs


def check(seed: int, folder: Path) -> list[str]:
    case = make(seed)
    path, right, first = write(case, folder), expected(case), None
    for settings in schedules(random.Random(f"schedules {seed}"), case):
        result = harness.run("run", path, "--format", "csv", settings=settings)
        wrong = harness.sound(result)
        if result.code != 0:
            wrong.append(f"exit code {result.code}: {result.stderr.strip()}")
        elif first is None:
            first = result
            _, *rows = harness.parse_csv(result.stdout.decode("utf-8"))
            found = Counter(tuple(parsed(v, t) for v, t in zip(row, case.types(), strict=True)) for row in rows)
            if found != right:
                show = lambda rows: "\n".join(f"    {row}" for row in sorted(rows, key=repr)[:6])  # noqa: E731
                wrong.append(f"{found.total()} rows, expected {right.total()}\n  missing:\n{show(right - found)}"
                             f"\n  not expected:\n{show(found - right)}")
        elif result.stdout != first.stdout:
            wrong.append("other bytes than the plain run")
        if wrong:
            return [f"{result.shell()}\n{each}" for each in wrong]
    return []


def in_own_folder(seed: int) -> tuple[int, str, int, list[str]]:
    with tempfile.TemporaryDirectory(prefix="millstream-joins-") as name:
        try:
            case, wrong = make(seed), check(seed, Path(name))
            return seed, f"{case.kind} {case.how()}", expected(case).total(), wrong
        except Exception as error:  # a fault of the test itself: report it with its seed
            return seed, "", 0, [f"the test failed: {type(error).__name__}: {error}"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seed", type=int, help="one case only, keeping its files")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=100, help="how many seeds")
    options = parser.parse_args()
    if options.seed is not None:
        wrong = check(options.seed, KEPT / str(options.seed))
        print(make(options.seed).ours(), *wrong, sep="\n")
        return 1 if wrong else 0
    start, met, rows, failed = time.monotonic(), set(), 0, 0
    with ProcessPoolExecutor() as pool:
        for seed, kind, count, wrong in pool.map(in_own_folder, range(options.first, options.first + options.count)):
            met |= {kind} if count else set()
            rows += count
            if wrong:
                failed += 1
                print(f"FAIL seed {seed}; repeat with: tests/oracle/joins.py --seed {seed}")
                print("  " + "\n".join(wrong).replace("\n", "\n  "), flush=True)
    hows = ("tumble", "hop", "cumulate", "interval", "interval of results", "none")
    wanted = {f"{kind} {how}" for kind in KINDS for how in hows}
    missing = (wanted | {f"{kind} {version}" for kind in KINDS[:2] for version in VERSIONS}) - met
    if options.count >= 800 and missing:
        failed += 1
        print(f"FAIL the suite as a whole: no case has rows of {', '.join(sorted(missing))}")
    print(f"{options.count} joins, {rows} rows, {time.monotonic() - start:.0f} s")
    print(f"{max(0, options.count - failed)} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

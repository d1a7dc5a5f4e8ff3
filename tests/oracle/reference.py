"""The right answer to a case: lateness record by record in Python, everything else by DuckDB.

Sums and means of floating point numbers are recomputed exactly and rounded once, as
Millstream promises to; means of integers and decimals with exact fractions.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path

import duckdb

from case import (MILLIS, SPREADS, Aggregate, Burst, Case, exact_columns, output_columns, ranked_columns,
                  result_columns, window_columns)
from collected import Collected
from exact import float_value, line, mean, spread
from expressions import DOUBLE, Type
from records import timestamp_text
from script import field_text
from values import canonical


@dataclass
class Assigned:
    """What the records of a case count for, judged one after the other."""

    # Per record, the windows that it counts for; none of sessions, which DuckDB finds.
    windows: list[list[tuple[int, int]]] = field(default_factory=list)
    # Per record, whether it is late: no window is left that it could count for.
    late: list[bool] = field(default_factory=list)
    # Per record, whether it is late for some of its windows, but not for all.
    partly: list[bool] = field(default_factory=list)
    # The watermark before the last quarter of the records, of one file.
    early: int | None = None


def assign(case: Case) -> Assigned:
    """Assigns windows record by record.

    A record is late for a window if its end, plus what is allowed, is not beyond the running maximum of the
    watermark of its file just before it. For a session it is late if its own time, plus what is allowed, is
    before that.
    """
    result, delays = Assigned(), [case.delay_us] * case.splits + [case.second_delay_us or 0]
    watermarks: list[int | None] = [None] * len(delays)
    for i, (ts, *_) in enumerate(case.rows):
        file = case.file_of(i)
        if case.burst and i == case.burst.at:
            own = case.burst.ts - case.delay_us
            watermarks[0] = own if watermarks[0] is None else max(watermarks[0], own)
        watermark = watermarks[file]
        if i == len(case.rows) * 3 // 4 and len(case.files()) == 1:
            result.early = watermark
        windows, partly = [], False
        if ts is None:
            late = False
        elif case.windows.is_session:
            late = watermark is not None and ts + case.lateness_us < watermark
        else:
            windows = case.windows.open_for(ts, watermark, case.lateness_us)
            late = not windows
            partly = 0 < len(windows) < len(case.windows.open_for(ts, None, 0))
        result.partly.append(partly)
        result.windows.append(windows)
        result.late.append(late)
        if ts is not None:
            own = ts - delays[file]
            watermarks[file] = own if watermark is None else max(watermark, own)
    return result


def place(case: Case, row: int) -> int:
    """Where a row stands among those of its time: by table, file and position, which the burst moves on."""
    moved = case.burst.unique + case.burst.repeated if case.burst and row >= case.burst.at else 0
    return (case.file_of(row) << 32) + row + moved


class Reference:
    """A case's data in DuckDB."""

    def __init__(self, case: Case, folder: Path):
        self.case = case
        self.assigned = assign(case)
        self.db = duckdb.connect()
        self.db.execute("SET threads = 1")
        path = folder / "reference.json"
        names = [c.name for c in case.columns]
        with open(path, "w", encoding="utf-8") as file:
            # A burst's templates come last, to be copied from.
            models = [[*t, None] for t in case.burst.templates] if case.burst else []
            for i, row in enumerate([*case.rows, *models]):
                own = i < len(case.rows)
                record = {"rid": str(i), "place_": str(place(case, i) if own else 0),
                          "late": str(own and self.assigned.late[i]),
                          "partly": str(own and self.assigned.partly[i])}
                for column, value in zip(case.columns, row, strict=True):
                    if column.type.kind == "string":
                        record[column.name] = value
                    elif value is not None:
                        record[column.name] = field_text(value, column)
                file.write(json.dumps(record) + "\n")
        schema = {n: "VARCHAR" for n in ["rid", "place_", "late", "partly", *names]}
        casts = ["rid::BIGINT AS rid", "place_::BIGINT AS place_", "late::BOOLEAN AS late", "partly::BOOLEAN AS partly"]
        for c in case.columns:
            text = f'from_base64("{c.name}")' if c.type.kind == "bytes" else f'"{c.name}"::{c.duck}'
            casts.append(f'{text} AS "{c.name}"')
        self.db.execute(f"CREATE TABLE events AS SELECT {', '.join(casts)} FROM "
                        "read_json(?, columns = ?, format = 'newline_delimited')", [str(path), schema])
        if case.burst:
            self.add_burst(case.burst, len(case.rows))
        bounds = [(i, *each) for i, windows in enumerate(self.assigned.windows) for each in windows]
        if case.burst and not case.windows.is_session:
            bounds += [(-1, *each) for each in case.windows.open_for(case.burst.ts, None, 0)]
        self.db.execute("CREATE TABLE assigned AS SELECT unnest(?::BIGINT[]) AS rid, unnest(?::BIGINT[]) AS start_, "
                        "unnest(?::BIGINT[]) AS end_", [list(column) for column in zip(*bounds)] or [[], [], []])

    def add_burst(self, burst: Burst, rid: int) -> None:
        """Adds the burst's records: its templates, at its time and with its keys."""
        models = ", ".join(str(rid + i) for i in range(len(burst.templates)))
        columns = [c for c in self.case.columns if c.name not in ("ts", "u_")]
        names = ", ".join(f'"{c.name}"' for c in columns)
        self.db.execute("CREATE TABLE keys AS SELECT unnest(?) AS key, unnest(?) AS model, unnest(?) AS n",
                        [*zip(*((k, n % len(burst.templates), n) for n, k in enumerate(burst.keys())))])
        ts = timestamp_text(burst.ts, 6)
        self.db.execute(f"INSERT INTO events (rid, place_, late, partly, ts, u_, {names}) "
                        f"SELECT -1, {burst.at} + n, FALSE, FALSE, TIMESTAMP '{ts}', key, {names} "
                        f"FROM keys, events WHERE rid = {rid} + model")
        self.db.execute(f"DELETE FROM events WHERE rid IN ({models})")

    def source(self) -> str:
        """The records in each of their windows, if there are any: with columns `start_` and `end_` in microseconds."""
        case = self.case
        if case.kind != "window":
            return "events"
        rows = "SELECT * FROM events JOIN assigned USING (rid)"
        if case.windows.is_session:
            kept = f"SELECT * FROM events WHERE {self.taken()} AND NOT late AND ts IS NOT NULL"
            rows = case.windows.duck(kept, "epoch_us(ts)", [key.duck for key in case.partition])
        return f"(SELECT *, make_timestamp(start_) AS window_start, make_timestamp(end_) AS window_end FROM ({rows}))"

    def taken(self) -> str:
        """The condition on what a windowing takes: what is above SESSION does not keep records from it."""
        view_where = self.case.view_where
        if self.case.has_sessions():
            return f"({view_where.duck if view_where else 'TRUE'})"
        return f"({self.case.condition()})"

    def condition(self) -> str:
        """On the rows of `source`."""
        bounds = self.case.window_where
        return self.case.condition() + (f" AND ({bounds.duck})" if bounds else "")

    def count(self, condition: str, source: str = "events") -> int:
        found = self.db.execute(f"SELECT COUNT(*) FROM {source} WHERE {condition}").fetchone()
        return found[0] if found else 0

    def in_some_window(self) -> str:
        """A condition on windows leaves a record out that is in none of those that pass, late or not."""
        case = self.case
        if not case.window_where or case.kind != "window" or case.windows.is_session:
            return ""
        bounds = [(i, *each) for i, (ts, *_) in enumerate(case.rows) if ts is not None
                  for each in case.windows.open_for(ts, None, 0)]
        self.db.execute("CREATE OR REPLACE TABLE lies AS SELECT unnest(?::BIGINT[]) AS rid, "
                        "make_timestamp(unnest(?::BIGINT[])) AS window_start, make_timestamp(unnest(?::BIGINT[])) AS "
                        "window_end", [list(column) for column in zip(*bounds)] or [[], [], []])
        return f" AND rid IN (SELECT rid FROM lies WHERE {case.window_where.duck})"

    def counters(self) -> dict[str, int]:
        """Counters that every run must report exactly."""
        passed = self.taken()
        windowed = self.case.kind == "window"
        if windowed and "window_start" in passed:
            # Only tumbling windows have this among the conditions on records.
            start = self.case.windows.duck_start("epoch_us(ts)", self.case.windows.size_us)
            passed = passed.replace("window_start", f"make_timestamp({start})")
        passed += self.in_some_window()
        # Two stages drop them, unless they are one: both group by the window alone, or by what tells sessions apart.
        alone = self.case.partition if self.case.has_sessions() else []
        stages = 2 if self.case.side and len(self.case.keys) > len(alone) else 1
        count = lambda which: stages * self.count(f"{passed} AND {which}") if windowed else 0  # noqa: E731
        exact = {"late_records": count("late"), "partly_late_records": count("partly")}
        if self.case.is_limited():
            return {"records": self.case.records()} if self.case.kind == "whole" else {}
        if self.case.has_sessions() and self.case.where:
            # Conditions on what tells sessions apart are below them, those on anything else above.
            return {"records": self.case.records()}
        exact["records"] = self.case.records()
        if windowed:
            exact["null_time_records"] = stages * self.count(f"{passed} AND ts IS NULL")
        return exact

    def fires_early(self) -> bool:
        """Whether a window with rows has surely passed before the last quarter of the input."""
        if self.case.kind != "window" or self.assigned.early is None:
            return False
        latest_end = self.assigned.early - self.case.lateness_us
        if self.case.windows.is_session:
            # They fire with the end of a part of a gap.
            latest_end -= self.case.windows.unit_us
        inside = f"end_ <= {latest_end} AND rid < {len(self.case.rows) // 2}"
        return self.count(f"({self.condition()}) AND {inside}", self.source()) > 0

    # The answer ----------------------------------------------------------------------------------

    def rows(self) -> list[tuple]:
        """Expected rows, in the form of `canonical`."""
        case, rows = self.case, self.unordered()
        if case.ranking and not case.ranking.of_records:
            rows = case.ranking.applied(rows, ranked_columns(case))
        return case.ordering.applied(rows, output_columns(case)) if case.ordering else rows

    def unordered(self) -> list[tuple]:
        """Those before they are ranked and put in order."""
        case = self.case
        if case.ranking and case.ranking.of_records:
            found = self.db.execute(case.ranking.duck(case, self.source(), self.condition())).fetchall()
            return [tuple(canonical(v, t) for v, t in zip(r, self.types(), strict=True)) for r in found]
        if case.uppers:
            types = list(ranked_columns(case).values())
            found = self.db.execute(self.stages()).fetchall()
            return [tuple(canonical(v, t) for v, t in zip(r, types, strict=True)) for r in found]
        if case.kind == "stateless":
            outputs = ", ".join(e.duck for e in case.outputs)
            limit = f"LIMIT {case.limit} OFFSET {case.offset}" if case.limit is not None else ""
            found = self.db.execute(f"SELECT {outputs} FROM events WHERE {case.condition()} "
                                    f"ORDER BY rid {limit}").fetchall()
            types = [e.type for e in case.outputs]
            return [tuple(canonical(v, t) for v, t in zip(r, types, strict=True)) for r in found]
        columns: list[str] = []
        readers = []
        groups = self.groups()
        if case.kind == "window":
            groups += ["start_", "end_", "window_start", "window_end"]
            shown = window_columns(case)
            columns += shown
            readers += [(1, lambda v: canonical(v, MILLIS))] * len(shown)
        for i in case.shown:
            columns.append(case.keys[i].duck)
            readers.append((1, lambda v, t=case.keys[i].type: canonical(v, t)))
        for a in case.aggregates:
            parts, reader = parts_of(a)
            columns += parts
            readers.append((len(parts), reader))
        group_by = f"GROUP BY {', '.join(groups)}" if groups else ""
        having = f"HAVING {case.having.duck}" if case.having else ""
        found = self.db.execute(f"SELECT {', '.join(columns)} FROM {self.source()} WHERE {self.condition()} "
                                f"{group_by} {having}").fetchall()
        result = []
        for row in found:
            values, at = [], 0
            for width, reader in readers:
                values.append(reader(*row[at : at + width]))
                at += width
            result.append(tuple(values))
        return result

    def groups(self) -> list[str]:
        """What GROUP BY names beside the window."""
        keys = [key.duck for key in self.case.keys]
        return self.case.sets.groups(keys) if self.case.sets else keys

    def stages(self) -> str:
        """The query of a case with `uppers`. Windows go by their start, their end and the time of their results,
        in microseconds."""
        case = self.case
        groups, columns = self.groups(), []
        bounds = ["ws_", "we_", "wt_"]
        if case.kind == "window":
            groups += ["start_", "end_"]
            columns = ["start_ AS ws_", "end_ AS we_", "end_ - 1000 AS wt_"]
        used = exact_columns(case)
        columns += [f"{case.keys[i].duck} AS k{i}" for i in case.shown if f"k{i}" in used]
        columns += [f"{a.duck()} AS a{i}" for i, a in enumerate(case.aggregates) if f"a{i}" in used]
        group_by = f"GROUP BY {', '.join(groups)}" if groups else ""
        having = f"HAVING {case.having.duck}" if case.having else ""
        # Without a column that is exact, the rows themselves still count.
        text = (f"SELECT {', '.join(columns) or 'COUNT(*) AS rows_'} FROM {self.source()} WHERE {self.condition()} "
                f"{group_by} {having}")
        below = (bounds if case.kind == "window" else []) + list(used)
        for level, upper in enumerate(case.uppers):
            calls = zip(upper.duck(below), upper.results(level), strict=True)
            results = [f"{call} AS {name}" for call, name in calls]
            rows, groups, named = f"({text})", {"again": bounds}.get(upper.kind, []), []
            if upper.kind == "window":
                rows = f"({upper.windows.duck(text, 'wt_', upper.keys)})"
                groups = ["start_", "end_"]
                named = ["start_ AS ws_", "end_ AS we_", "end_ - 1000 AS wt_"]
            below = (bounds if upper.kind != "whole" else []) + upper.keys + upper.results(level)
            text = (f"SELECT {', '.join((named or groups) + upper.keys + results)} FROM {rows} "
                    f"WHERE {upper.where or 'TRUE'}" + (f" GROUP BY {', '.join(groups + upper.keys)}"
                                                        if groups + upper.keys else ""))
        place = {"window_start": "ws_", "window_end": "we_"}
        names = [f"make_timestamp({place[name]})" for name in window_columns(case)] + list(result_columns(case))
        return f"SELECT {', '.join(names)} FROM ({text})"

    def side(self) -> list[str]:
        """The lines that a case with a `side` writes there, sorted."""
        if self.case.kind != "window":
            return [str(self.count(self.case.condition()))]
        groups = ", ".join(["start_", "end_", *(key.duck for key in self.case.partition)])
        found = self.db.execute(f"SELECT make_timestamp(start_), COUNT(*) FROM {self.source()} "
                                f"WHERE {self.condition()} GROUP BY {groups}").fetchall()
        return sorted(f"{canonical(start, MILLIS)},{n}" for start, n in found)

    def is_windowed(self) -> bool:
        """Whether the result's first column is its window's start or end, in whose order windows come."""
        return bool(window_columns(self.case))

    def types(self) -> list[Type]:
        """The types of the output columns."""
        if self.case.kind == "stateless":
            return [e.type for e in self.case.outputs]
        return list(output_columns(self.case).values())


def parts_of(a: Aggregate):
    """What to ask DuckDB for, and how to make the aggregate's value of it."""
    type_ = a.result()
    if isinstance(a, Collected):
        return [a.listed()], a.value
    floating = a.argument is not None and a.argument.type.kind in ("double", "float")
    where = f" FILTER (WHERE {a.filter.duck})" if a.filter else ""
    if a.second and a.function != "regr_count":
        y, x = (f"({e.duck})::DOUBLE" for e in (a.argument, a.second))
        return [f"list([{y}, {x}]){where}"], lambda pairs: canonical(line(a.function, pairs or []), DOUBLE)
    distinct = "DISTINCT " if a.distinct else ""
    if a.function in SPREADS:
        listed = f"list({distinct}({a.argument.duck})::DOUBLE){where}"
        return [listed], lambda xs: canonical(spread(a.function, [x for x in xs or [] if x is not None]), DOUBLE)
    if a.function in ("sum", "avg", "ratio") and floating:
        listed = f"list({distinct}({a.argument.duck})::DOUBLE){where}"
        return [listed, "COUNT(*)"], lambda xs, n: canonical(float_value(a.function, xs, n), DOUBLE)
    if a.function == "avg":
        x = a.argument.duck
        parts = [f"{function}({distinct}{x}){where}" for function in ("SUM", "COUNT")]
        return parts, lambda s, n: canonical(mean(s, n, type_), type_)
    return [a.duck()], lambda v: canonical(v, type_)

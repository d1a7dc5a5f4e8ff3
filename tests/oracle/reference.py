"""The right answer to a case: lateness record by record in Python, everything else by DuckDB.

Sums and means of floating point numbers are recomputed exactly and rounded once, as
Millstream promises to; means of integers and decimals with exact fractions.
"""

import base64
import datetime as dt
import json
import math
import struct
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Decimal, localcontext
from fractions import Fraction
from pathlib import Path

import duckdb

from case import (EPOCH, MILLIS, SPREADS, Aggregate, Burst, Case, exact_columns, output_columns, result_columns,
                  result_type, window_columns)
from expressions import DOUBLE, FLOAT, Type
from records import timestamp_text
from script import field_text


class Wrong(Exception):
    """The program's output cannot be read as an answer at all."""


@dataclass
class Assigned:
    """What the records of a case count for, judged one after the other."""

    # Per record, the windows that it counts for; none of sessions, which DuckDB finds.
    windows: list[list[tuple[int, int]]] = field(default_factory=list)
    # Per record, whether it is late: no window is left that it could count for.
    late: list[bool] = field(default_factory=list)
    # Per record, whether it is late for some of its windows, but not for all.
    partly: list[bool] = field(default_factory=list)
    # The watermark before the last quarter of the records, of one table.
    early: int | None = None


def assign(case: Case) -> Assigned:
    """Assigns windows record by record.

    A record is late for a window if its end, plus what is allowed, is not beyond the running maximum of the
    watermark of its table just before it. For a session it is late if its own time, plus what is allowed, is
    before that.
    """
    result, delays = Assigned(), [case.delay_us, case.second_delay_us or 0]
    watermarks: list[int | None] = [None, None]
    for i, (ts, *_) in enumerate(case.rows):
        table = int(case.is_in_second(i))
        if case.burst and i == case.burst.at:
            own = case.burst.ts - case.delay_us
            watermarks[0] = own if watermarks[0] is None else max(watermarks[0], own)
        watermark = watermarks[table]
        if i == len(case.rows) * 3 // 4 and case.second_delay_us is None:
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
            own = ts - delays[table]
            watermarks[table] = own if watermark is None else max(watermark, own)
    return result


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
                record = {"rid": str(i), "late": str(own and self.assigned.late[i]),
                          "partly": str(own and self.assigned.partly[i])}
                for column, value in zip(case.columns, row, strict=True):
                    if column.type.kind == "string":
                        record[column.name] = value
                    elif value is not None:
                        record[column.name] = field_text(value, column)
                file.write(json.dumps(record) + "\n")
        schema = {n: "VARCHAR" for n in ["rid", "late", "partly", *names]}
        casts = ["rid::BIGINT AS rid", "late::BOOLEAN AS late", "partly::BOOLEAN AS partly"]
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
        self.db.execute("CREATE TABLE keys AS SELECT unnest(?) AS key, unnest(?) AS model",
                        [*zip(*((k, n % len(burst.templates)) for n, k in enumerate(burst.keys())))])
        ts = timestamp_text(burst.ts, 6)
        self.db.execute(f"INSERT INTO events (rid, late, partly, ts, u_, {names}) "
                        f"SELECT -1, FALSE, FALSE, TIMESTAMP '{ts}', key, {names} "
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

    def counters(self) -> dict[str, int]:
        """Counters that every run must report exactly."""
        passed = self.taken()
        windowed = self.case.kind == "window"
        if windowed and "window_start" in passed:
            # Only tumbling windows have this among the conditions on records.
            start = self.case.windows.duck_start("epoch_us(ts)", self.case.windows.size_us)
            passed = passed.replace("window_start", f"make_timestamp({start})")
        # Two stages drop them, unless they are one: both group by the window alone, or by what tells sessions apart.
        alone = self.case.partition if self.case.has_sessions() else []
        stages = 2 if self.case.side and len(self.case.keys) > len(alone) else 1
        count = lambda which: stages * self.count(f"{passed} AND {which}") if windowed else 0  # noqa: E731
        exact = {"late_records": count("late"), "partly_late_records": count("partly")}
        if self.case.has_sessions() and self.case.where:
            # Conditions on what tells sessions apart are below them, those on anything else above.
            return {"records": self.case.records()}
        if self.case.limit is None:
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
        case = self.case
        if case.uppers:
            types = self.types()
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
        groups = [k.duck for k in case.keys]
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

    def stages(self) -> str:
        """The query of a case with `uppers`. Windows go by their start, their end and the time of their results,
        in microseconds."""
        case = self.case
        groups, columns = [k.duck for k in case.keys], []
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
        for level, upper in enumerate(case.uppers):
            results = [f"{call} AS {name}" for call, name in zip(upper.calls(), upper.results(level), strict=True)]
            rows, groups, named = f"({text})", {"again": bounds}.get(upper.kind, []), []
            if upper.kind == "window":
                rows = f"({upper.windows.duck(text, 'wt_', upper.keys)})"
                groups = ["start_", "end_"]
                named = ["start_ AS ws_", "end_ AS we_", "end_ - 1000 AS wt_"]
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
    type_ = result_type(a)
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


def float_value(function: str, values: list | None, rows: int) -> float | None:
    known = [v for v in values or [] if v is not None]
    if not known:
        return None
    if function == "avg":
        return exact_mean(known)
    return exact_sum(known) / (rows if function == "ratio" else 1)


def exact_sum(values: list[float]) -> float:
    """The sum, rounded once; with the rules of IEEE 754 for what is not a number."""
    special = [v for v in values if not math.isfinite(v)]
    return sum(special) if special else math.fsum(values) + 0.0


def exact_mean(values: list[float]) -> float:
    """The exact sum divided by the count, rounded once."""
    if not all(map(math.isfinite, values)):
        return exact_sum(values)
    # Every double is a whole number of the smallest one, 2^-1074.
    total = sum(n << 1074 - d.bit_length() + 1 for n, d in map(float.as_integer_ratio, values))
    return float(Fraction(total, len(values) << 1074))


class Sums:
    """Exact sums of pairs of doubles, and what follows from them.

    DuckDB's own variances are rounded at each step. These are rounded where docs/sql.md says: before and behind
    the division.
    """

    def __init__(self, pairs: list):
        self.n = len(pairs)
        ys, xs = ([Fraction(pair[at]) for pair in pairs] for at in (0, 1))
        self.y, self.x = sum(ys), sum(xs)
        self.sxx = self.n * sum(x * x for x in xs) - self.x**2
        self.syy = self.n * sum(y * y for y in ys) - self.y**2
        self.sxy = self.n * sum(x * y for x, y in zip(xs, ys, strict=True)) - self.x * self.y


def over(upper: Fraction, lower: Fraction | int) -> float:
    return float(upper) / float(lower)


def spread(function: str, values: list[float]) -> float | None:
    n = len(values)
    if not n or (n == 1 and function.endswith("_samp")):
        return None
    if not all(map(math.isfinite, values)):
        return math.nan
    square = over(Sums([(x, x) for x in values]).sxx, n * (n - 1 if function.endswith("_samp") else n))
    return math.sqrt(square) if function.startswith("stddev") else square


def line(function: str, pairs: list) -> float | None:
    pairs = [pair for pair in pairs if None not in pair]
    used = {"regr_avgx": [1], "regr_sxx": [1], "regr_avgy": [0], "regr_syy": [0]}.get(function, [0, 1])
    n = len(pairs)
    if not n or (n == 1 and function == "covar_samp"):
        return None
    if function.startswith("regr_avg"):
        return exact_mean([pair[used[0]] for pair in pairs])
    if not all(math.isfinite(pair[at]) for pair in pairs for at in used):
        return math.nan
    s = Sums([[pair[at] if at in used else 0.0 for at in (0, 1)] for pair in pairs])
    match function:
        case "covar_pop" | "covar_samp":
            return over(s.sxy, n * (n - 1 if function == "covar_samp" else n))
        case "regr_sxx" | "regr_syy" | "regr_sxy":
            return over({"regr_sxx": s.sxx, "regr_syy": s.syy, "regr_sxy": s.sxy}[function], n)
        case "corr":
            square = s.sxx * s.syy
            return max(-1.0, min(1.0, float(s.sxy) / math.sqrt(float(square)))) if square else None
        case "regr_slope":
            return over(s.sxy, s.sxx) if s.sxx else None
        case "regr_intercept":
            return over(s.y * s.sxx - s.x * s.sxy, n * s.sxx) if s.sxx else None
        case _:
            return (min(1.0, over(s.sxy**2, s.sxx * s.syy)) if s.syy else 1.0) if s.sxx else None


def mean(total, count: int, type_: Type):
    if not count:
        return None
    if type_.kind == "double":
        return float(Fraction(int(total), count))
    with localcontext(prec=60):
        return (Decimal(total) / count).quantize(Decimal(1).scaleb(-type_.scale), ROUND_HALF_UP)


# One form for values from either side --------------------------------------------------------------


def canonical(value, type_: Type):
    """A value such that equal values compare equal, sort, and print plainly."""
    if value is None:
        return None
    match type_.kind:
        case "int":
            return int(value)
        case "double" | "float":
            if type_ == FLOAT:
                value = struct.unpack("f", struct.pack("f", value))[0]
            return "NaN" if math.isnan(value) else repr(value + 0.0)
        case "decimal":
            return f"{Decimal(value):.{type_.scale}f}"
        case "timestamp":
            us = (value - EPOCH) // dt.timedelta(microseconds=1)
            return timestamp_text(us, type_.scale)
        case "date":
            return value.isoformat()
        case "bytes":
            return base64.b64encode(bytes(value)).decode()
        case _:
            return value


def parsed(text: str | None, type_: Type):
    """A field of the program's CSV output in the same form."""
    if text is None:
        return None
    try:
        match type_.kind:
            case "int":
                return int(text)
            case "double" | "float":
                return canonical(float(text), type_)
            case "bool":
                return {"true": True, "false": False}[text]
            case _:
                return text
    except (ValueError, KeyError):
        raise Wrong(f"{text!r} is no {type_.kind}") from None

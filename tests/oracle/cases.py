"""One test case from a seed: data, a table over it, and a query in both dialects."""

import base64
import dataclasses
import datetime as dt
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

from expressions import (BOOL, BYTES, DATE, DOUBLE, FLOAT, INT, STRING, STRINGS, Column, Expr,
                         Expressions, Type, same, template)

EPOCH = dt.datetime(1970, 1, 1)
MILLIS = Type("timestamp", 3)
# Where event time starts: ordinary, around the epoch, long before it, before a leap day's end.
EPOCH_2024 = 1_704_067_200_000_000
STARTS = ["2024-01-01 00:00:00", "1969-12-31 23:58:00", "1901-05-05 12:34:56", "2024-02-29 23:50:00"]


@dataclass(frozen=True)
class Aggregate:
    """`function` is count, sum, avg, min, max, ratio (a sum divided by COUNT(*)) or one of those below.

    Of two arguments, as SQL has them, `second` is the last one.
    """

    function: str
    argument: Expr | None
    filter: Expr | None
    second: Expr | None = None
    distinct: bool = False

    def ours(self) -> str:
        return self._text("ours")

    def duck(self) -> str:
        return self._text("duck")

    def _text(self, dialect: str) -> str:
        inner = "*" if self.argument is None else getattr(self.argument, dialect)
        where = f" FILTER (WHERE {getattr(self.filter, dialect)})" if self.filter else ""
        if self.function == "ratio":
            return f"SUM({inner}){where} / COUNT(*)"
        if self.second:
            inner += f", {getattr(self.second, dialect)}"
        return f"{self.function.upper()}({'DISTINCT ' if self.distinct else ''}{inner}){where}"


@dataclass
class Burst:
    """Records that fall into one window: each with a key of its own, then with few keys.

    They stand before `rows[at]`, at the event time `ts`, which moves no watermark and is late for
    none. The column `u_` tells them apart; the others are those of the `templates` in turn.
    """

    at: int
    ts: int
    templates: list[list]
    unique: int = 20_000
    repeated: int = 6_000

    def keys(self) -> Iterator[int]:
        yield from range(self.unique)
        # Of the keys that have been there, every 64th.
        yield from (i * 64 % self.unique // 64 * 64 for i in range(self.repeated))


@dataclass(frozen=True)
class Upper:
    """An aggregation over what the one below gives.

    `kind` is window (TUMBLE over `window_time`), again (GROUP BY the window below) or whole. Columns
    are named as below; aggregates are a function and its column, `None` for COUNT(*).
    """

    kind: str
    size_us: int
    offset_us: int
    where: str | None
    keys: list[str]
    aggregates: list[tuple[str, str | None]]

    def results(self, level: int) -> list[str]:
        """Names of the aggregates' columns."""
        return [f"b{level}_{i}" for i in range(len(self.aggregates))]

    def calls(self) -> list[str]:
        return [f"{function.upper()}({column or '*'})" for function, column in self.aggregates]


@dataclass
class Case:
    """Everything that follows from a seed."""

    seed: int
    kind: str  # window, whole or stateless
    columns: list[Column]
    rows: list[list]
    ts_digits: int
    delay_us: int
    lateness_us: int
    size_us: int
    offset_us: int
    where: Expr | None = None
    view_where: Expr | None = None
    keys: list[Expr] = field(default_factory=list)
    shown: list[int] = field(default_factory=list)
    aggregates: list[Aggregate] = field(default_factory=list)
    having: Expr | None = None
    outputs: list[Expr] = field(default_factory=list)
    limit: int | None = None
    offset: int = 0
    burst: Burst | None = None
    uppers: list[Upper] = field(default_factory=list)
    # The delay of the watermark of a second table, in which about half of the rows are; `events` is both.
    second_delay_us: int | None = None
    # Whether a second query counts the records, in a statement set with the first.
    side: bool = False

    def is_in_second(self, row: int) -> bool:
        """Whether a row is in the second table. What `enlarged` adds is not."""
        added = self.columns[-1].name == "u_" and self.rows[row][-1] is not None
        return self.second_delay_us is not None and not added and bool(row * 2654435761 >> 9 & 1)

    def has_several(self) -> bool:
        """Whether there are several stages, sources or outputs."""
        several = self.uppers or self.second_delay_us is not None or self.side
        return bool(several) or any(a.distinct for a in self.aggregates)

    def records(self) -> int:
        return len(self.rows) + (self.burst.unique + self.burst.repeated if self.burst else 0)

    def filters(self) -> list[Expr]:
        return [f for f in (self.view_where, self.where) if f]

    def condition(self, dialect: str = "duck") -> str:
        return " AND ".join(f"({getattr(f, dialect)})" for f in self.filters()) or "TRUE"


def interval(us: int) -> str:
    """An exact interval literal; sizes are whole milliseconds."""
    if us % 1_000_000 == 0:
        return f"INTERVAL '{us // 1_000_000}' SECOND"
    return f"INTERVAL '{us // 1_000_000}.{us % 1_000_000 // 1000:03}' SECOND"


def make(seed: int) -> Case:
    rng = random.Random(f"millstream {seed}")
    size_us = rng.choice([1_000_000, 2_500_000, 10_000_000, 60_000_000])
    delay_us = rng.choice([0, 1_000_000, 3_000_000, 3_000_000])
    case = Case(
        seed=seed,
        kind=rng.choices(["window", "whole", "stateless"], [80, 10, 10])[0],
        columns=[], rows=[],
        ts_digits=rng.choice([0, 3, 3, 6, 9]),
        delay_us=delay_us,
        lateness_us=rng.choice([0, 0, 0, 2_000_000]),
        size_us=size_us,
        offset_us=rng.choice([0, 0, size_us // 4 // 1000 * 1000]),
    )
    case.columns = columns(rng, case.ts_digits)
    count = rng.choices([0, 1, 2, 40, 400, 2_000, 6_000], [2, 2, 2, 10, 30, 30, 15])[0]
    case.rows = list(data(rng, case, count))
    query(rng, case)
    if case.kind != "stateless":
        # Chance of its own: the rest of a case does not depend on it.
        case.uppers = uppers(random.Random(f"stages {seed}"), case)
        graph = random.Random(f"graph {seed}")
        if graph.random() < 0.3:
            case.second_delay_us = graph.choice([0, delay_us, 2 * delay_us + 1_000_000])
        case.side = graph.random() < 0.3
        # Chance of its own, too.
        more = random.Random(f"composed {seed}")
        draw = Expressions(more, case.columns)
        # What a set of statements and a DISTINCT both drop, they may count together.
        drawn = range(more.choice([0, 1, 2]))
        case.aggregates += [composed(more, draw, may_be_distinct=not case.side) for _ in drawn]
    return case


def exact_columns(case: Case) -> dict[str, Type]:
    """Columns of the first aggregation's result that DuckDB works out exactly."""
    columns = {f"k{i}": case.keys[i].type for i in case.shown}
    for i, a in enumerate(case.aggregates):
        if a.function in ("count", "sum", "min", "max"):
            columns[f"a{i}"] = INT if a.function == "count" or a.argument is None else a.argument.type
    return {name: type_ for name, type_ in columns.items() if type_.kind not in ("double", "float")}


def uppers(rng: random.Random, case: Case) -> list[Upper]:
    """None for most cases; one or two for the others."""
    result: list[Upper] = []
    columns, kind, size_us = exact_columns(case), case.kind, case.size_us
    for level in range(rng.choice([0, 0, 1, 2])):
        kind = rng.choice(["window", "window", "again", "whole"]) if kind != "whole" else "whole"
        if kind == "window":
            size_us = rng.choice([size_us, 2 * size_us, 3 * size_us, 7_000_000])
        names = list(columns)
        numbers = [name for name in names if columns[name].kind == "int"]
        where = f"{rng.choice(numbers)} > {rng.choice([-5, 0, 1])}" if numbers and rng.random() < 0.3 else None
        aggregates: list[tuple[str, str | None]] = [("count", None)]
        for _ in range(rng.randint(0, 2)):
            function = rng.choice(["count", "sum", "min", "max"])
            usable = [n for n in names if function != "sum" or columns[n].kind in ("int", "decimal")]
            if usable:
                aggregates.append((function, rng.choice(usable)))
        keys = rng.sample(names, min(len(names), rng.choice([0, 1, 1, 2])))
        offset_us = rng.choice([0, 0, size_us // 4 // 1000 * 1000])
        upper = Upper(kind, size_us, offset_us, where, keys, aggregates)
        types = [columns[c] if c and f != "count" else INT for f, c in aggregates]
        columns = {k: columns[k] for k in keys} | dict(zip(upper.results(level), types, strict=True))
        result.append(upper)
    return result


def result_columns(case: Case) -> dict[str, Type]:
    """Columns of the last of `case.uppers`, but for its window."""
    columns = exact_columns(case)
    for level, upper in enumerate(case.uppers):
        types = [columns[c] if c and f != "count" else INT for f, c in upper.aggregates]
        columns = {k: columns[k] for k in upper.keys} | dict(zip(upper.results(level), types, strict=True))
    return columns


def enlarged(case: Case) -> Case:
    """The same query over data in which everything happens that a case is there to withstand.

    First a window with a record, then one that is so far ahead that it fires; then a burst of unique
    keys, for which fragments stop to aggregate, and of repeating ones; then records that are late.
    In between and after that, the case's own records. A further key, `u_`, is NULL except in what is
    added here. WHERE lets all that is added pass, and HAVING one in 64 groups of the burst, but for
    every 16th seed all of them.
    """
    rng = random.Random(f"enlarged {case.seed}")
    own = case.rows or list(data(rng, case, 40))
    u = Column("u_", INT, "BIGINT", "BIGINT")
    large = dataclasses.replace(case, columns=[*case.columns, u], rows=[[*row, None] for row in own])
    half, unit = len(own) // 2, 10 ** max(0, 6 - case.ts_digits)
    times = [row[0] for row in own[:half] if row[0] is not None] or [EPOCH_2024]
    first, behind = max(times), case.delay_us + case.lateness_us
    ahead = (first + 3 * case.size_us + behind) // unit * unit + unit
    model = [rng.choice(own) for _ in range(7)]
    added = lambda ts, key: [[ts, *rng.choice(model)[1:], key]]  # noqa: E731
    late = [row for n in (1, 2, 3)
            for row in added((ahead - n * case.size_us - behind) // unit * unit, -n)]
    large.rows[half:half] = added(first, -4) + added(ahead, -5) + late
    large.burst = Burst(half + 2, ahead, model)
    ours = [template("({0}) OR u_ IS NOT NULL", BOOL, f) if f else None
            for f in (case.where, case.view_where)]
    large.where, large.view_where = ours
    large.keys = [*case.keys, u.expr()]
    large.shown = [*case.shown, len(case.keys)]
    if case.seed % 16 != 7:
        sample = same("COALESCE(u_, 0) % 64 = 0", BOOL)
        large.having = template("({0}) AND {1}", BOOL, case.having, sample) if case.having else sample
    return large


def columns(rng: random.Random, ts_digits: int) -> list[Column]:
    digits = rng.choice([0, 3, 6])
    scale = rng.choice([2, 2, 5])
    optional = [
        Column("tiny", INT, "TINYINT", "BIGINT"),
        Column("small", INT, "SMALLINT", "BIGINT"),
        Column("Mixed", INT, "INT", "BIGINT"),
        Column("d", DOUBLE, "DOUBLE", "DOUBLE"),
        Column("f", FLOAT, "FLOAT", "FLOAT"),
        Column("m", Type("decimal", scale), f"DECIMAL(14, {scale})", f"DECIMAL(14, {scale})"),
        Column("flag", BOOL, "BOOLEAN", "BOOLEAN"),
        Column("day_", DATE, "DATE", "DATE"),
        Column("at_", Type("timestamp", digits), f"TIMESTAMP({digits})", "TIMESTAMP"),
        Column("s", STRING, "STRING", "VARCHAR"),
        Column("raw_", BYTES, "BYTES", "BLOB"),
    ]
    chosen = [c for c in optional if rng.random() < 0.6]
    # The event time comes first in `Case.rows`; its place in the file is drawn when it is written.
    ts = Column("ts", Type("timestamp", ts_digits), f"TIMESTAMP({ts_digits})", "TIMESTAMP")
    return [ts, Column("b", INT, "BIGINT", "BIGINT"), *chosen]


def times(rng: random.Random, case: Case, step: int, late_rate: float, edge_rate: float):
    """Event times in microseconds without end: bounded disorder, some beyond it, some at edges."""
    start = dt.datetime.fromisoformat(rng.choice(STARTS))
    now = top = (start - EPOCH) // dt.timedelta(microseconds=1)
    unit = 10 ** max(0, 6 - case.ts_digits)
    behind = case.delay_us + case.lateness_us
    while True:
        now += rng.choice([0, step, step, 2 * step])
        ts = now - rng.randint(0, case.delay_us)
        if rng.random() < late_rate:
            ts -= rng.randint(0, 2 * case.size_us + 2 * case.delay_us)
        if rng.random() < 0.05:  # exactly at a window's edge, or just before it
            ts = (ts - case.offset_us) // case.size_us * case.size_us + case.offset_us
            ts -= rng.choice([0, unit])
        elif rng.random() < edge_rate:
            # Brings the watermark exactly to the end of a window, or just short of it; then comes the
            # last record that could belong to that window.
            edge = -((case.offset_us + behind - top) // case.size_us) * case.size_us + case.offset_us
            ts = edge + behind - rng.choice([0, unit])
            now = max(now, ts)
            top = max(top, ts // unit * unit)
            yield ts // unit * unit
            ts = edge - unit
        ts = ts // unit * unit
        top = max(top, ts)
        yield ts


def data(rng: random.Random, case: Case, count: int):
    """Rows as Python values."""
    step = 12 * case.size_us // max(count, 12)
    null_rate = rng.choice([0, 0.02, 0.2])
    few = rng.choice([2, 5, 40, 5_000])
    kinds = [(c, rng.choice([few, 3, 1_000])) for c in case.columns[1:]]
    special_rate = rng.choice([0, 0, 0.02])
    edge_rate = rng.choice([0, 0.02, 0.02])
    stream = times(rng, case, step, rng.choice([0, 0.01, 0.1]), edge_rate)
    for _, ts in zip(range(count), stream):
        row = [None if null_rate and rng.random() < null_rate / 4 else ts]
        for column, spread in kinds:
            if rng.random() < null_rate:
                row.append(None)
            elif column.type.kind in ("double", "float") and rng.random() < special_rate:
                row.append(rng.choice([math.nan, math.inf, -math.inf]))
            else:
                row.append(value(rng, column, spread))
        yield row


def value(rng: random.Random, column: Column, spread: int):
    n = rng.randrange(spread)
    match column.type.kind:
        case "int":
            return {"tiny": n % 255 - 127,  # ABS(-128) would overflow
                     "small": n - 2}.get(column.name, n - spread // 3)
        case "double":
            # Decimal fractions, magnitudes that make naive sums depend on their order, signed zero.
            return rng.choice([n / 10, n / 1000, -n / 7, n * 1e12 + 0.1, -n * 1e12, -0.0, 0.1, 1e-9])
        case "float":
            return rng.choice([n / 8, -n / 4, 0.5, 0.1])
        case "decimal":
            return Decimal(n - spread // 3).scaleb(-column.type.scale)
        case "bool":
            return rng.random() < 0.5
        case "date":
            return dt.date(2024, 2, 20) + dt.timedelta(days=n % 60 - 30)
        case "timestamp":
            us = n * 777_000_001 % 7_200_000_000
            unit = 10 ** (6 - column.type.scale)
            return dt.datetime(2024, 1, 1) + dt.timedelta(microseconds=us // unit * unit)
        case "string":
            return rng.choice(STRINGS) if spread < 100 else f"user-{n:05}"
        case _:
            return bytes([n % 256, n // 256 % 256]) if n % 5 else b"\x00"


def query(rng: random.Random, case: Case) -> None:
    draw = Expressions(rng, case.columns)
    if rng.random() < 0.6:
        case.where = draw.boolean(2)
    if case.kind == "window" and rng.random() < 0.1:
        # The window's own columns may be filtered on like any other.
        bound = f"window_start >= TIMESTAMP '{rng.choice(STARTS)}'"
        case.where = template(f"({{0}}) AND {bound}", BOOL, case.where or draw.boolean(0))
    if rng.random() < 0.25:
        case.view_where = draw.boolean(1)
    if case.kind == "stateless":
        case.outputs = [draw.any() for _ in range(rng.randint(1, 5))]
        if rng.random() < 0.5:
            case.limit, case.offset = rng.choice([0, 1, 10, 500]), rng.choice([0, 0, 3])
        return
    case.keys = [draw.any() for _ in range(rng.randint(0, 4))]
    case.keys = [k for i, k in enumerate(case.keys) if k not in case.keys[:i]]
    case.shown = [i for i in range(len(case.keys)) if rng.random() < 0.9]
    case.aggregates = [aggregate(rng, draw) for _ in range(rng.randint(1, 5))]
    if rng.random() < 0.4:
        case.having = having(rng, draw, case)


def aggregate(rng: random.Random, draw: Expressions) -> Aggregate:
    filter_ = draw.boolean(1) if rng.random() < 0.3 else None
    match rng.choice(["count", "count", "sum", "sum", "avg", "min", "max", "ratio"]):
        case "count":
            return Aggregate("count", draw.any() if rng.random() < 0.5 else None, filter_)
        case "ratio":
            argument = draw.double()
            return Aggregate("ratio" if argument else "count", argument, filter_)
        case "sum" | "avg" as function:
            pick = rng.choice([draw.integer, draw.double, draw.double, draw.decimal])
            return Aggregate(function, pick() or draw.integer(), filter_)
        case function:
            return Aggregate(function, draw.any(), filter_)


# Of one argument, and of `y` and `x`; all of them are doubles.
SPREADS = ["var_pop", "var_samp", "stddev_pop", "stddev_samp"]
LINES = ["covar_pop", "covar_samp", "corr", "regr_avgx", "regr_avgy", "regr_sxx", "regr_syy", "regr_sxy", "regr_slope",
         "regr_intercept", "regr_r2"]
BITS = ["bit_and", "bit_or", "bit_xor"]


def composed(rng: random.Random, draw: Expressions, may_be_distinct: bool) -> Aggregate:
    """An aggregate that is made of others, or that takes each value once."""
    filter_ = draw.boolean(1) if rng.random() < 0.3 else None
    number = lambda: rng.choice([draw.integer, draw.double, draw.decimal])() or draw.integer()  # noqa: E731
    kinds = ["spread", "line", "line", "count", "bits", "bools"] + ["distinct"] * (4 if may_be_distinct else 0)
    match rng.choice(kinds):
        case "spread":
            return Aggregate(rng.choice(SPREADS), number(), filter_)
        case "line":
            return Aggregate(rng.choice(LINES), number(), filter_, second=number())
        case "count":
            return Aggregate("regr_count", number(), filter_, second=number())
        case "bits":
            return Aggregate(rng.choice(BITS), draw.integer(), filter_)
        case "bools":
            return Aggregate(rng.choice(["bool_and", "bool_or"]), draw.boolean(1), filter_)
        case _:
            function = rng.choice(["count", "count", "sum", "avg", *SPREADS, "bit_xor"])
            argument = {"count": draw.any, "bit_xor": draw.integer}.get(function, number)()
            return Aggregate(function, argument, filter_, distinct=True)


def having(rng: random.Random, draw: Expressions, case: Case) -> Expr:
    x = draw.column("int")
    choices = [
        template(f"COUNT(*) > {rng.randint(1, 4)}", BOOL),
        template("SUM({0}) >= %d" % rng.randint(-5, 50), BOOL, x),
        template("MAX({0}) IS NOT NULL", BOOL, draw.any()),
        template("COUNT({0}) % 2 = 0", BOOL, draw.any()),
    ]
    if case.keys:
        choices.append(template("({0}) IS NOT NULL", BOOL, rng.choice(case.keys)))
    return rng.choice(choices)


# Writing it down ---------------------------------------------------------------------------------


def timestamp_text(us: int, digits: int) -> str:
    seconds, fraction = divmod(us, 1_000_000)
    text = (EPOCH + dt.timedelta(seconds=seconds)).isoformat(" ")
    return text + ("." + f"{fraction:06}000"[:digits] if digits else "")


# Stands for a burst's key in the text of its records: a number that occurs nowhere else.
MARK = 808080808080808080


def field_text(value, column: Column) -> str:
    """A CSV field; NULL is empty, the empty string is quoted."""
    if value is None:
        return ""
    match column.type.kind:
        case "timestamp":
            if isinstance(value, dt.datetime):
                value = (value - EPOCH) // dt.timedelta(microseconds=1)
            return timestamp_text(value, column.type.scale)
        case "bool":
            return "true" if value else "false"
        case "bytes":
            return base64.b64encode(value).decode()
        case "string" if value == "" or any(c in value for c in ',"\n\r'):
            return '"' + value.replace('"', '""') + '"'
        case "double" | "float":
            return repr(value).replace("nan", "NaN").replace("inf", "Infinity")
        case _:
            return str(value)


def lines(case: Case, line: Callable[[list], str]) -> Iterator[tuple[bool, str]]:
    """All records as `line` writes a row, and whether each is in the second table."""
    for i, row in enumerate(case.rows):
        if case.burst and i == case.burst.at:
            forms = [line([case.burst.ts, *t[1:], MARK]) for t in case.burst.templates]
            for n, key in enumerate(case.burst.keys()):
                yield False, forms[n % len(forms)].replace(str(MARK), str(key), 1)
        yield case.is_in_second(i), line(row)


def write(case: Case, folder: Path) -> Path:
    """Writes data.csv, perhaps second.csv, and query.sql; returns the latter's path."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = random.Random(case.seed)
    order = list(range(len(case.columns)))
    rng.shuffle(order)
    opened = lambda name: open(folder / name, "w", encoding="utf-8", newline="")  # noqa: E731
    with opened("data.csv") as file, opened("second.csv") as second:
        for each in (file, second):
            each.write(",".join(case.columns[i].name for i in order) + "\n")
        line = lambda row: ",".join(field_text(row[i], case.columns[i]) for i in order) + "\n"  # noqa: E731
        for is_second, text in lines(case, line):
            (second if is_second else file).write(text)
    path = folder / "query.sql"
    path.write_text(sql(case), encoding="utf-8")
    return path


def csv_table(case: Case, name: str, stem: str, delay_us: int) -> str:
    return table(case, name, f"{stem}.csv", delay_us, "csv")


def table(case: Case, name: str, path: str, delay_us: int, form: str) -> str:
    declared = "".join(f"    {c.name} {c.declared},\n" for c in case.columns)
    delay = f" - {interval(delay_us)}" if delay_us else ""
    return (f"CREATE TABLE {name} (\n{declared}    WATERMARK FOR ts AS ts{delay}\n) WITH ("
            f"'connector' = 'file', 'path' = '{path}', 'format' = '{form}');\n\n")


def sql(case: Case, declare: Callable[[Case, str, str, int], str] = csv_table) -> str:
    """The whole script in Millstream's dialect. `declare` writes the statement for a table: its name, the name of its
    file without a suffix, the delay of its watermark."""
    if case.second_delay_us is None:
        text = declare(case, "events", "data", case.delay_us)
    else:
        text = declare(case, "events1", "data", case.delay_us)
        text += declare(case, "events2", "second", case.second_delay_us)
        text += "CREATE VIEW events AS SELECT * FROM events1 UNION ALL SELECT * FROM events2;\n\n"
    if case.lateness_us:
        text += f"SET 'allowed_lateness' = '{case.lateness_us} us';\n\n"
    source = "events"
    if case.view_where:
        source = "some_events"
        text += f"CREATE VIEW some_events AS SELECT * FROM events WHERE {case.view_where.ours};\n\n"
    where = f"\nWHERE {case.where.ours}" if case.where else ""
    if case.kind == "stateless":
        names = ", ".join(f"{e.ours} AS c{i}" for i, e in enumerate(case.outputs))
        limit = f"\nLIMIT {case.limit} OFFSET {case.offset}" if case.limit is not None else ""
        return text + f"SELECT {names}\nFROM {source}{where}{limit};\n"
    outputs = [f"{case.keys[i].ours} AS k{i}" for i in case.shown]
    outputs += [f"{a.ours()} AS a{i}" for i, a in enumerate(case.aggregates)]
    groups = [k.ours for k in case.keys]
    if case.kind == "window":
        outputs.insert(0, "window_start")
        groups = ["window_start", "window_end", *groups]
        shift = f", {interval(case.offset_us)}" if case.offset_us else ""
        source = f"TABLE(TUMBLE(TABLE {source}, DESCRIPTOR(ts), {interval(case.size_us)}{shift}))"
    side = f"SELECT {'window_start, ' if case.kind == 'window' else ''}COUNT(*)\nFROM {source}{where}"
    side += "\nGROUP BY window_start, window_end" if case.kind == "window" else ""
    if case.uppers:
        # What the rows above call it.
        outputs[:1] = WINDOW if case.kind == "window" else outputs[:1]
        groups += ["window_time"] if case.kind == "window" else []
    query = f"SELECT {', '.join(outputs)}\nFROM {source}{where}"
    if groups:
        query += f"\nGROUP BY {', '.join(groups)}"
    if case.having:
        query += f"\nHAVING {case.having.ours}"
    for level in range(len(case.uppers)):
        text += f"CREATE VIEW level{level} AS\n{query};\n\n"
        query = upper_sql(case, level)
    if not case.side:
        return f"{text}{query};\n"
    shown = "".join(f", {name} {declared(type_)}" for name, type_ in output_columns(case).items())
    counted = f"{'window_start TIMESTAMP(3), ' if case.kind == 'window' else ''}n BIGINT"
    return (f"{text}CREATE TABLE shown ({shown[2:]}) WITH ('connector' = 'print');\n"
            f"CREATE TABLE side ({counted}) WITH ('connector' = 'file', 'path' = 'side', 'format' = 'csv', "
            f"'csv.header' = 'false');\n\nEXECUTE STATEMENT SET BEGIN\nINSERT INTO shown {query};\n"
            f"INSERT INTO side {side};\nEND;\n")


def declared(type_: Type) -> str:
    """A type in which all values of `type_` fit."""
    names = {"int": "BIGINT", "double": "DOUBLE", "float": "FLOAT", "decimal": f"DECIMAL(38, {type_.scale})",
             "bool": "BOOLEAN", "date": "DATE", "timestamp": f"TIMESTAMP({type_.scale})", "string": "STRING",
             "bytes": "BYTES"}
    return names[type_.kind]


def result_type(a: Aggregate) -> Type:
    argument = a.argument.type if a.argument else INT
    match a.function:
        case "count" | "regr_count":
            return INT
        case "ratio":
            return DOUBLE
        case function if function in SPREADS + LINES:
            return DOUBLE
        case "bool_and" | "bool_or":
            return BOOL
        case "sum" if argument.kind == "float":
            return DOUBLE
        case "avg":
            return Type("decimal", argument.scale + 4) if argument.kind == "decimal" else DOUBLE
        case _:
            return argument


def output_columns(case: Case) -> dict[str, Type]:
    """The columns of the query's result, of a grouping."""
    windowed = (case.uppers[-1].kind != "whole") if case.uppers else case.kind == "window"
    window = {"window_start": MILLIS} if windowed else {}
    if case.uppers:
        return window | result_columns(case)
    keys = {f"k{i}": case.keys[i].type for i in case.shown}
    return window | keys | {f"a{i}": result_type(a) for i, a in enumerate(case.aggregates)}


WINDOW = ["window_start AS ws_", "window_end AS we_", "window_time AS wt_"]


def upper_sql(case: Case, level: int) -> str:
    """One of the aggregations above the first, which keeps its window if there is another one above it."""
    upper, is_last = case.uppers[level], level + 1 == len(case.uppers)
    source, window = f"level{level}", []
    if upper.kind == "window":
        shift = f", {interval(upper.offset_us)}" if upper.offset_us else ""
        source = f"TABLE(TUMBLE(TABLE {source}, DESCRIPTOR(wt_), {interval(upper.size_us)}{shift}))"
        window = ["window_start", "window_end", "window_time"]
    elif upper.kind == "again":
        window = ["ws_", "we_", "wt_"]
    named = [f"{name} AS {of}" for name, of in zip(window, ["ws_", "we_", "wt_"], strict=False)]
    results = [f"{call} AS {name}" for call, name in zip(upper.calls(), upper.results(level), strict=True)]
    shown = (named[:1] if is_last else named) + upper.keys + results
    text = f"SELECT {', '.join(shown)}\nFROM {source}"
    if upper.where:
        text += f"\nWHERE {upper.where}"
    groups = (window[:2] if is_last else window) + upper.keys
    return text + (f"\nGROUP BY {', '.join(groups)}" if groups else "")

"""The query of a case: conditions, keys, aggregates, and the aggregations above the first."""

import dataclasses
import random

from case import BITS, LINES, SPREADS, Aggregate, Case, Upper, exact_columns, result_columns
from expressions import BOOL, INT, Expr, Expressions, same, template
from records import STARTS, timestamp_text
from windows import Windows


def query(rng: random.Random, case: Case) -> None:
    draw = Expressions(rng, case.columns)
    if rng.random() < 0.6:
        case.where = draw.boolean(2)
    if case.kind == "window" and rng.random() < 0.1:
        # The window's own columns may be filtered on like any other.
        bound = f"window_start >= TIMESTAMP '{rng.choice(STARTS)}'"
        if case.windows.kind == "tumble":
            case.where = template(f"({{0}}) AND {bound}", BOOL, case.where or draw.boolean(0))
    if case.kind == "window" and case.windows.kind != "tumble":
        case.window_where = window_condition(random.Random(f"bounds {case.seed}"), case)
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


def window_condition(rng: random.Random, case: Case) -> Expr | None:
    """A condition on the window alone, for a few cases: some windows pass it."""
    times = [row[0] for row in case.rows if row[0] is not None]
    if not times or rng.random() > 0.2:
        return None
    bound = timestamp_text(rng.choice(times), 3)
    return same(f"{rng.choice(['window_start >', 'window_end <=', 'window_end >'])} TIMESTAMP '{bound}'", BOOL)


def partition(rng: random.Random, case: Case) -> None:
    """Makes of some keys, or of all, what tells sessions apart. What WHERE leaves out, the view may leave out."""
    case.partition = case.keys[:rng.randint(0, len(case.keys)) if rng.random() < 0.5 else len(case.keys)]
    plain = {column.name for column in case.columns}
    name = lambda i, key: key.ours if key.ours in plain else f"g{i}_"  # noqa: E731
    for i, key in enumerate(case.partition):
        case.keys[i] = dataclasses.replace(key, ours=name(i, key))
    if case.where and rng.random() < 0.5:
        both = (case.view_where, case.where)
        case.view_where = template("({0}) AND ({1})", BOOL, *both) if case.view_where else case.where
        case.where = None
    if case.having:
        case.having = having(rng, Expressions(rng, case.columns), case)


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


def uppers(rng: random.Random, case: Case) -> list[Upper]:
    """None for most cases; one or two for the others."""
    result: list[Upper] = []
    columns, kind, size_us = exact_columns(case), case.kind, case.windows.unit_us
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
        above = upper_windows(random.Random(f"windows {case.seed} {level}"), Windows("tumble", size_us, offset_us))
        if above.is_session:
            where = None
        upper = Upper(kind, above, where, keys, aggregates)
        types = [columns[c] if c and f != "count" else INT for f, c in aggregates]
        columns = {k: columns[k] for k in keys} | dict(zip(upper.results(level), types, strict=True))
        result.append(upper)
    return result


def ends(rng: random.Random, case: Case) -> None:
    """Adds the first and last values of rows that windows have fired, where DuckDB knows all columns of these rows."""
    columns = exact_columns(case)
    complete = 0 < len(columns) == len(case.shown) + len(case.aggregates)
    for level, upper in enumerate(case.uppers):
        if complete and rng.random() < 0.5:
            upper.aggregates.append((rng.choice(["first_value", "last_value"]), rng.choice(list(columns))))
        columns, complete = result_columns(case, level + 1), True


def upper_windows(rng: random.Random, tumble: Windows) -> Windows:
    """Windows over those of `uppers`."""
    kind = rng.choice(["tumble", "tumble", "hop", "cumulate", "session"])
    if kind == "session":
        return Windows(kind, max(1000, tumble.unit_us // rng.choice([1, 1, 4]) // 1000 * 1000))
    return Windows(kind, tumble.unit_us, tumble.offset_us, 1 if kind == "tumble" else rng.choice([2, 3, 5]))

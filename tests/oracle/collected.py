"""Aggregates that depend on the order of records, and estimates: drawn, and computed of records that are in order.

Records are in the order of event time, then of input, split and position in the split. An estimate is not a value but
bounds (`Near`), within which what the program gives must lie.
"""

import math
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from case import Aggregate
from expressions import DOUBLE, INT, STRING, Expr, Expressions, Type, same
from values import canonical, comparable

ORDERED = ["first_value", "last_value", "min_by", "max_by", "listagg", "array_agg"]
ESTIMATES = ["approx_count_distinct", "approx_percentile", "approx_top_k"]
# Different values of which APPROX_TOP_K counts exactly.
EXACTLY = 2048


@dataclass(frozen=True)
class Near:
    """What an estimate may be."""

    text: str
    accepts: Callable[[object], bool]
    # Of two in otherwise equal rows, the greater one.
    size: float = 0.0


@dataclass(frozen=True)
class Collected(Aggregate):
    """`second` is what MIN_BY and MAX_BY compare, a separator, or the constant of an estimate."""

    # "", IGNORE NULLS or RESPECT NULLS.
    nulls: str = ""

    def ours(self) -> str:
        call, filter_, where = super().ours().partition(" FILTER (")
        return call + (f" {self.nulls}" if self.nulls else "") + filter_ + where

    def result(self) -> Type:
        match self.function:
            case "listagg":
                return STRING
            case "array_agg":
                return Type("array", of=self.argument.type)
            case "approx_count_distinct":
                return INT
            case "approx_percentile":
                return DOUBLE
            case "approx_top_k":
                return Type("counts", of=self.argument.type)
            case _:
                return self.argument.type

    def listed(self) -> str:
        """The arguments of a group's records in their order, in DuckDB's SQL."""
        second = f", 'y': {self.second.duck}" if self.second else ""
        where = f" FILTER (WHERE {self.filter.duck})" if self.filter else ""
        return f"list({{'x': {self.argument.duck}{second}}} ORDER BY ts NULLS FIRST, place_){where}"

    def value(self, records: list[dict] | None):
        """Of these records, in the form of `canonical`."""
        second = self.second.type if self.second else INT
        pairs = [(canonical(r["x"], self.argument.type), canonical(r.get("y"), second)) for r in records or []]
        xs = [x for x, _ in pairs if x is not None or self.nulls == "RESPECT NULLS"]
        match self.function:
            case "first_value" | "last_value":
                return None if not xs else xs[0 if self.function == "first_value" else -1]
            case "min_by" | "max_by":
                compared = [pair for pair in pairs if pair[1] is not None]
                best = min if self.function == "min_by" else max
                # Of several, either of them gives the first.
                return best(compared, key=lambda pair: comparable(pair[1], second))[0] if compared else None
            case "array_agg":
                listed = xs if self.nulls else [x for x, _ in pairs]
                return tuple(dict.fromkeys(listed) if self.distinct else listed) or None
            case "listagg":
                return self.joined([pair for pair in pairs if pair[0] is not None])
            case "approx_count_distinct":
                return count_near(len(set(xs)))
            case "approx_percentile":
                return percentile_near(xs, self.argument.type, Fraction(self.second.ours))
            case _:
                return most_frequent(xs, self.argument.type, int(self.second.ours))

    def joined(self, pairs: list[tuple[str, str | None]]) -> str | None:
        if self.distinct:
            pairs = list(dict.fromkeys(pairs))
        texts = [(y or "" if self.second else ",") + x if i else x for i, (x, y) in enumerate(pairs)]
        return "".join(texts) if pairs else None


def draw(rng: random.Random, drawn: Expressions, functions: list[str]) -> Collected:
    filter_ = drawn.boolean(1) if rng.random() < 0.3 else None
    function, second, nulls = rng.choice(functions), None, rng.choice(["", "", "IGNORE NULLS", "RESPECT NULLS"])
    text = lambda: drawn.string() or Expr("CAST(b AS STRING)", "CAST(b AS VARCHAR)", STRING)  # noqa: E731
    match function:
        case "first_value" | "last_value":
            return Collected(function, drawn.any(), filter_, nulls=nulls)
        case "min_by" | "max_by":
            return Collected(function, drawn.any(), filter_, second=drawn.any())
        case "array_agg":
            return Collected(function, drawn.any(), filter_, distinct=rng.random() < 0.4, nulls=nulls)
        case "listagg":
            second = rng.choice([None, same("'; '", STRING), text()])
            return Collected(function, text(), filter_, second=second, distinct=rng.random() < 0.4)
        case "approx_count_distinct":
            return Collected(function, drawn.any(), filter_)
        case "approx_percentile":
            number = rng.choice([drawn.integer, drawn.double, drawn.decimal])() or drawn.integer()
            return Collected(function, number, filter_, second=same(rng.choice(["0", "0.25", "0.5", "0.75", "1"]), INT))
        case _:
            return Collected(function, drawn.any(), filter_, second=same(str(rng.choice([1, 3, 100])), INT))


# Estimates ----------------------------------------------------------------------------------------


def count_near(n: int) -> int | Near:
    """A standard error of 0.8% lets 5% happen once in a billion groups; of few values, two may share a register."""
    least = 1 + n // 20
    if n <= 1:
        return n
    return Near(f"{n} to within {least}", lambda found: found is not None and abs(int(found) - n) <= least, n)


def percentile_near(xs: list, type_: Type, share: Fraction):
    """The value at or below which this share lies, rounded towards zero by less than 1 in 128."""
    if not xs:
        return None
    ordered = sorted(xs, key=lambda x: comparable(x, type_))
    value = float(ordered[max(0, math.ceil(share * len(ordered)) - 1)])
    if not math.isfinite(value) or value == 0 or (value == int(value) and abs(value) <= 256):
        return canonical(value, DOUBLE)

    def accepts(found) -> bool:
        ratio = float(found) / value if found is not None else 0
        return 127 / 128 < ratio <= 1

    return Near(f"{value!r} or less by under 1 in 128", accepts, value)


def most_frequent(xs: list, type_: Type, k: int):
    """The most frequent values and how often each comes, exactly if they are few."""
    counts = Counter(xs)
    # Counted before, in a Counter, equal values are one; so they are in order.
    ordered = sorted(counts.items(), key=lambda pair: (-pair[1], comparable(pair[0], type_)))[:k]
    if len(counts) <= EXACTLY:
        return tuple(ordered) or None

    def accepts(found) -> bool:
        shown = [count for _, count in found or ()]
        real = all(0 <= count - counts[x] <= len(xs) / 100 for x, count in found or ())
        return len(shown) == k and real and shown == sorted(shown, reverse=True)

    return Near(f"about {ordered}", accepts)


def settled(expected: list[tuple], found: list[tuple]) -> list[tuple]:
    """The expected rows, of which one column at most is an estimate: where a row is found that is right, with that
    row's estimate, and else with what was allowed."""
    others: dict[tuple, list] = {}
    rows = sorted(((row, next((i for i, v in enumerate(row) if isinstance(v, Near)), None)) for row in expected),
                  key=lambda pair: pair[0][pair[1]].size if pair[1] is not None else 0.0)
    at = next((i for _, i in rows if i is not None), None)
    if at is None:
        return expected
    for row in found:
        if row[at] is not None:
            others.setdefault(row[:at] + row[at + 1:], []).append(row[at])
    for values in others.values():
        values.sort(key=lambda v: float(v) if isinstance(v, int | str) else 0.0)
    result = []
    for row, i in rows:
        value = row[at]
        if i is not None:
            there = others.get(row[:at] + row[at + 1:], [])
            right = next((n for n, v in enumerate(there) if value.accepts(v)), None)
            value = value.text if right is None else there.pop(right)
        result.append((*row[:at], value, *row[at + 1:]))
    return result

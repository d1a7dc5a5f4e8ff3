"""Sums, means and variances without rounding errors: rounded once, where docs/sql.md says so."""

import math
from decimal import ROUND_HALF_UP, Decimal, localcontext
from fractions import Fraction

from expressions import Type


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
        (ys, y_digits), (xs, x_digits) = (whole([pair[at] for pair in pairs]) for at in (0, 1))
        of = lambda number, digits: Fraction(number, 1 << digits)  # noqa: E731
        self.y, self.x = of(sum(ys), y_digits), of(sum(xs), x_digits)
        self.sxx = of(deviations(xs, xs), 2 * x_digits)
        self.syy = of(deviations(ys, ys), 2 * y_digits)
        self.sxy = of(deviations(xs, ys), x_digits + y_digits)


def deviations(us: list[int], vs: list[int]) -> int:
    """The sum of the products of their deviations from their means, times how many there are."""
    return len(us) * sum(u * v for u, v in zip(us, vs, strict=True)) - sum(us) * sum(vs)


def whole(values: list[float]) -> tuple[list[int], int]:
    """The values times a power of two that makes them whole numbers, and the power."""
    ratios = [value.as_integer_ratio() for value in values]
    digits = max((d.bit_length() - 1 for _, d in ratios), default=0)
    return [n << digits - d.bit_length() + 1 for n, d in ratios], digits


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

"""What a test case is: its data, its query, and the types of the columns that come out."""

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from expressions import BOOL, DOUBLE, INT, Column, Expr, Type
from windows import Windows

if TYPE_CHECKING:
    from ranking import Ordering, Ranking
    from sets import Sets

EPOCH = dt.datetime(1970, 1, 1)
MILLIS = Type("timestamp", 3)
# Aggregates of one argument, and of `y` and `x`; all of them are doubles.
SPREADS = ["var_pop", "var_samp", "stddev_pop", "stddev_samp"]
LINES = ["covar_pop", "covar_samp", "corr", "regr_avgx", "regr_avgy", "regr_sxx", "regr_syy", "regr_sxy", "regr_slope",
         "regr_intercept", "regr_r2"]
BITS = ["bit_and", "bit_or", "bit_xor"]


@dataclass(frozen=True)
class Aggregate:
    """`function` is count, sum, avg, min, max, ratio (a sum divided by COUNT(*)), grouping or one of those above.

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

    def result(self) -> Type:
        argument = self.argument.type if self.argument else INT
        match self.function:
            case "count" | "regr_count" | "grouping":
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
                return Type("decimal", max(argument.scale, 6)) if argument.kind == "decimal" else DOUBLE
            case _:
                return argument

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

    `kind` is window (`windows` over `window_time`), again (GROUP BY the window below) or whole. Columns
    are named as below; aggregates are a function and its column, `None` for COUNT(*). Sessions are those
    of all keys.
    """

    kind: str
    windows: Windows
    where: str | None
    keys: list[str]
    aggregates: list[tuple[str, str | None]]

    def results(self, level: int) -> list[str]:
        """Names of the aggregates' columns."""
        return [f"b{level}_{i}" for i in range(len(self.aggregates))]

    def calls(self) -> list[str]:
        return [f"{function.upper()}({column or '*'})" for function, column in self.aggregates]

    def duck(self, columns: list[str]) -> list[str]:
        """The calls in DuckDB's SQL, over rows with these columns: in the order of their time, then of all columns."""
        by = ", ".join(f"{column} NULLS FIRST" for column in (["wt_"] if "wt_" in columns else []) + columns)
        ends = {"first_value": "first", "last_value": "last"}
        return [f"{ends[function]}({column} ORDER BY {by}) FILTER (WHERE {column} IS NOT NULL)" if function in ends
                else call for (function, column), call in zip(self.aggregates, self.calls(), strict=True)]


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
    # Also of a case without windows, whose records come at their pace.
    windows: Windows
    where: Expr | None = None
    view_where: Expr | None = None
    # Of windows whose columns cannot stand beside those of records.
    window_where: Expr | None = None
    # What tells sessions apart: the first of the keys, which go by the names of columns that the view has for them.
    partition: list[Expr] = field(default_factory=list)
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
    # Files in which the rows of the first table are.
    splits: int = 1
    sets: "Sets | None" = None
    ranking: "Ranking | None" = None
    ordering: "Ordering | None" = None

    def file_of(self, row: int) -> int:
        """The file in which a row is: of the first table or, the last of all, the second."""
        if self.is_in_second(row):
            return self.splits
        return 0 if self._is_added(row) else (row * 2654435761 >> 16) % self.splits

    def files(self) -> list[str]:
        """The names of the files, without a suffix."""
        first = ["data"] if self.splits == 1 else [f"data-{i}" for i in range(self.splits)]
        return first + ["second"] * (self.second_delay_us is not None)

    def is_in_second(self, row: int) -> bool:
        """Whether a row is in the second table. What `enlarged` adds is not."""
        return self.second_delay_us is not None and not self._is_added(row) and bool(row * 2654435761 >> 9 & 1)

    def _is_added(self, row: int) -> bool:
        return self.columns[-1].name == "u_" and self.rows[row][-1] is not None

    def has_several(self) -> bool:
        """Whether there are several stages, sources or outputs."""
        ranked = self.ranking and not self.ranking.of_records
        several = self.uppers or self.second_delay_us is not None or self.side or self.sets or ranked
        return bool(several) or any(a.distinct for a in self.aggregates)

    def records(self) -> int:
        return len(self.rows) + (self.burst.unique + self.burst.repeated if self.burst else 0)

    def has_sessions(self) -> bool:
        return self.kind == "window" and self.windows.is_session

    def is_limited(self) -> bool:
        """Whether a LIMIT ends the query."""
        return self.limit is not None or (self.ordering is not None and self.ordering.limit is not None)

    def filters(self) -> list[Expr]:
        return [f for f in (self.view_where, self.where) if f]

    def condition(self, dialect: str = "duck") -> str:
        return " AND ".join(f"({getattr(f, dialect)})" for f in self.filters()) or "TRUE"


# Columns and their types --------------------------------------------------------------------------


def declared(type_: Type) -> str:
    """A type in which all values of `type_` fit."""
    names = {"int": "BIGINT", "double": "DOUBLE", "float": "FLOAT", "decimal": f"DECIMAL(38, {type_.scale})",
             "bool": "BOOLEAN", "date": "DATE", "timestamp": f"TIMESTAMP({type_.scale})", "string": "STRING",
             "bytes": "BYTES"}
    if type_.of:
        inner = declared(type_.of)
        return f"ARRAY<{inner}>" if type_.kind == "array" else f"ARRAY<ROW<`value` {inner}, `count` BIGINT>>"
    return names[type_.kind]


def output_columns(case: Case) -> dict[str, Type]:
    """The columns of the query's result, but of one without state."""
    rank = {"rn": INT} if case.ranking else {}
    return ranked_columns(case) | rank


def ranked_columns(case: Case) -> dict[str, Type]:
    """Those beside the rank."""
    window = dict.fromkeys(window_columns(case), MILLIS)
    if case.ranking and case.ranking.of_records:
        return window | {f"c{i}": e.type for i, e in enumerate(case.outputs)}
    if case.uppers:
        return window | result_columns(case)
    keys = {f"k{i}": case.keys[i].type for i in case.shown}
    return window | keys | {f"a{i}": a.result() for i, a in enumerate(case.aggregates)}


def window_columns(case: Case) -> list[str]:
    """Those of the window's columns that the result shows, first of all. Windows come in their order."""
    windows = case.windows if case.kind == "window" else None
    for upper in case.uppers:
        windows = {"window": upper.windows, "again": windows, "whole": None}[upper.kind]
    if windows is None:
        return []
    return ["window_start"] if windows.kind == "tumble" else ["window_end", "window_start"]


def exact_columns(case: Case) -> dict[str, Type]:
    """Columns of the first aggregation's result that DuckDB works out exactly."""
    columns = {f"k{i}": case.keys[i].type for i in case.shown}
    for i, a in enumerate(case.aggregates):
        if a.function in ("count", "sum", "min", "max", "grouping"):
            columns[f"a{i}"] = INT if a.function in ("count", "grouping") or a.argument is None else a.argument.type
    return {name: type_ for name, type_ in columns.items() if type_.kind not in ("double", "float")}


def result_columns(case: Case, levels: int | None = None) -> dict[str, Type]:
    """Columns of the last of `case.uppers`, or of the first ones, but for its window."""
    columns = exact_columns(case)
    for level, upper in enumerate(case.uppers[:levels]):
        types = [columns[c] if c and f != "count" else INT for f, c in upper.aggregates]
        columns = {k: columns[k] for k in upper.keys} | dict(zip(upper.results(level), types, strict=True))
    return columns

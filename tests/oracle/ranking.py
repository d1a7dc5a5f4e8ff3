"""Rows in an order, and the first of each window: ORDER BY, LIMIT, and Top-N by ROW_NUMBER, RANK or DENSE_RANK."""

import random
from collections.abc import Mapping
from dataclasses import dataclass

from case import Case, output_columns, window_columns
from expressions import INT, Expr, Expressions, Type, same
from values import comparable

SCALARS = ("int", "double", "float", "decimal", "bool", "date", "timestamp", "string", "bytes")


@dataclass(frozen=True)
class Order:
    """A key of an ORDER BY. `nulls` is "", FIRST or LAST; NULL is less than any value."""

    key: Expr
    descending: bool
    nulls: str

    def nulls_first(self) -> bool:
        return self.nulls == "FIRST" or (not self.nulls and not self.descending)

    def ours(self) -> str:
        return self.key.ours + " DESC" * self.descending + (f" NULLS {self.nulls}" if self.nulls else "")

    def duck(self) -> str:
        return self.key.duck + " DESC" * self.descending + f" NULLS {'FIRST' if self.nulls_first() else 'LAST'}"


@dataclass(frozen=True)
class Ordering:
    """ORDER BY and LIMIT of the whole query. Keys are columns of the result."""

    keys: list[Order]
    limit: int | None
    offset: int

    def ours(self) -> str:
        limit = "" if self.limit is None else f" LIMIT {self.limit}" + f" OFFSET {self.offset}" * (self.offset > 0)
        return f"\nORDER BY {', '.join(key.ours() for key in self.keys)}{limit}"

    def keeps_last(self) -> bool:
        """Whether the one row of a time is the last that came: by the latest time alone, as in Flink."""
        return (self.function == "ROW_NUMBER" and self.most == 1 and len(self.keys) == 1 and self.keys[0].descending
                and self.keys[0].key.ours in ("ts", "window_time"))

    def applied(self, rows: list[tuple], columns: Mapping[str, Type]) -> list[tuple]:
        rows = put_in_order(rows, columns, [*self.keys, *left_to_right(columns, "LAST")])
        return rows[self.offset:] if self.limit is None else rows[self.offset:self.offset + self.limit]


@dataclass(frozen=True)
class Ranking:
    """The rows of each window with these ranks. They are records, or what comes of a GROUP BY."""

    of_records: bool
    function: str
    # What PARTITION BY names: of the window, and beside it. Of records, the case's keys stand beside it.
    window: list[str]
    by: list[str]
    keys: list[Order]
    least: int
    most: int
    form: int
    # On what is left.
    after: Expr | None = None

    def over(self, by: list[str]) -> str:
        return (f"{self.function}() OVER (PARTITION BY {', '.join([*self.window, *by])} "
                f"ORDER BY {', '.join(key.ours() for key in self.keys)})")

    def bound(self, dialect: str) -> str:
        forms = [f"rn BETWEEN {self.least} AND {self.most}", f"rn <= {self.most} AND rn >= {self.least}"]
        if self.least == 1:
            forms += [f"rn <= {self.most}", f"rn < {self.most + 1}", f"{self.most} >= rn"]
        if self.least == self.most:
            forms.append(f"rn = {self.most}")
        return forms[self.form % len(forms)] + (f" AND ({getattr(self.after, dialect)})" if self.after else "")

    def ours(self, query: str, shown: list[str]) -> str:
        """Around a query, of which the rows are ranked."""
        ranked = f"SELECT *, {self.over(self.by)} AS rn FROM (\n{query}\n)"
        return f"SELECT {', '.join([*shown, 'rn'])} FROM (\n{ranked}\n) WHERE {self.bound('ours')}"

    def records(self, case: Case, source: str, where: str) -> str:
        """The query over the records of windows."""
        shown = [*window_columns(case), *(f"{e.ours} AS c{i}" for i, e in enumerate(case.outputs)), "rn"]
        over = self.over([key.ours for key in case.keys])
        return (f"SELECT {', '.join(shown)} FROM (\nSELECT *, {over} AS rn\nFROM {source}{where}\n) "
                f"WHERE {self.bound('ours')}")

    def duck(self, case: Case, source: str, where: str) -> str:
        """The same in DuckDB's SQL, of records in their windows."""
        shown = [*window_columns(case), *(e.duck for e in case.outputs), "rn"]
        by = ["start_", "end_", *(key.duck for key in case.keys)]
        # Other functions give rows with equal keys one rank.
        place = ["ts", "place_"] if self.function == "ROW_NUMBER" else []
        if self.keeps_last():
            place = ["ts DESC", "place_ DESC"]
        keys = [*(key.duck() for key in self.keys), *place]
        return (f"SELECT {', '.join(shown)} FROM (SELECT *, {self.function}() OVER (PARTITION BY {', '.join(by)} "
                f"ORDER BY {', '.join(keys)}) AS rn FROM {source} WHERE {where}) WHERE {self.bound('duck')}")

    def keeps_last(self) -> bool:
        """Whether the one row of a time is the last that came: by the latest time alone, as in Flink."""
        return (self.function == "ROW_NUMBER" and self.most == 1 and len(self.keys) == 1 and self.keys[0].descending
                and self.keys[0].key.ours in ("ts", "window_time"))

    def applied(self, rows: list[tuple], columns: Mapping[str, Type]) -> list[tuple]:
        """Of the rows of a GROUP BY. Those with equal keys are in the order of their columns, NULL first."""
        names, parts = list(columns), {}
        apart = [i for i, name in enumerate(names) if name in self.by or name in self.window]
        ties = left_to_right(columns, "FIRST")
        if self.keeps_last():
            ties = [Order(order.key, True, "LAST") for order in ties]
        for row in put_in_order(rows, columns, [*self.keys, *ties]):
            parts.setdefault(tuple(row[i] for i in apart), []).append(row)
        keys = [names.index(key.key.ours) for key in self.keys]
        result = []
        for part in parts.values():
            rank = dense = 0
            before = None
            for number, row in enumerate(part, 1):
                values = tuple(row[i] for i in keys)
                if number == 1 or values != before:
                    rank, dense, before = number, dense + 1, values
                n = {"ROW_NUMBER": number, "RANK": rank, "DENSE_RANK": dense}[self.function]
                result += [(*row, n)] if self.least <= n <= self.most else []
        return result


def left_to_right(columns: Mapping[str, Type], nulls: str) -> list[Order]:
    return [Order(same(name, type_), False, nulls) for name, type_ in columns.items()]


def put_in_order(rows: list[tuple], columns: Mapping[str, Type], orders: list[Order]) -> list[tuple]:
    names, rows = list(columns), list(rows)
    for order in reversed(orders):
        at, type_ = names.index(order.key.ours), columns[order.key.ours]
        # Of what is then turned round, where it descends.
        null = (0 if order.nulls_first() != order.descending else 2, 0)
        key = lambda row: null if row[at] is None else (1, comparable(row[at], type_))  # noqa: B023, E731
        rows.sort(key=key, reverse=order.descending)
    return rows


# What is drawn ------------------------------------------------------------------------------------


def orders(rng: random.Random, keys: list[Expr]) -> list[Order]:
    return [Order(key, rng.random() < 0.5, rng.choice(["", "", "FIRST", "LAST"])) for key in keys]


def draw(rng: random.Random, case: Case) -> None:
    """Gives a case a ranking, or an order of its rows, or both."""
    of = rng.choices([None, "records", "results"], [78, 10, 12])[0]
    if of == "records" and case.kind == "window":
        case.ranking, case.outputs = of_records(rng, case)
        case.aggregates, case.uppers, case.having, case.side = [], [], None, False
    elif of == "results" and window_columns(case):
        case.ranking = of_results(rng, case)
    if rng.random() < 0.15 and columns_to_order(case):
        case.ordering, case.side = ordering(rng, case), False


def ranks(rng: random.Random) -> tuple[str, int, int, int]:
    most = rng.choice([1, 1, 2, 3, 10, 200])
    least = rng.choice([1, 1, 1, most, max(1, most - 1)])
    return rng.choice(["ROW_NUMBER", "ROW_NUMBER", "RANK", "DENSE_RANK"]), least, most, rng.randrange(60)


def of_records(rng: random.Random, case: Case) -> tuple[Ranking, list[Expr]]:
    function, *rest = ranks(rng)
    named = ["window_start", "window_end"]
    is_one_enough = case.windows.kind in ("tumble", "hop")
    window = rng.choice([named, named[::-1], named[:1], named[1:]] if is_one_enough else [named])
    expressions = Expressions(rng, case.columns)
    keys = [case.columns[0].expr()] if rng.random() < 0.3 else [expressions.any() for _ in range(rng.randint(1, 2))]
    outputs = [column.expr() for column in case.columns if rng.random() < 0.6] + [expressions.any()]
    return Ranking(True, function, window, [], orders(rng, keys), *rest), outputs


def columns_to_order(case: Case) -> dict[str, Type]:
    """The columns of the result that keys may name, but those of its window."""
    return {n: t for n, t in output_columns(case).items() if t.kind in SCALARS and not n.startswith("window_")}


def of_results(rng: random.Random, case: Case) -> Ranking | None:
    function, *rest = ranks(rng)
    columns = columns_to_order(case)
    if not columns:
        return None
    names = rng.sample(list(columns), len(columns))
    keys, by = names[:rng.randint(1, 2)], names[2:2 + rng.choice([0, 0, 1])]
    keys = orders(rng, [same(n, columns[n]) for n in keys])
    # The first is enough: sessions that end together have begun at different times.
    window = window_columns(case)[:rng.choice([1, 2])]
    return Ranking(False, function, window, by, keys, *rest)


def ordering(rng: random.Random, case: Case) -> Ordering:
    columns, window = columns_to_order(case), window_columns(case)
    names = rng.sample(list(columns), min(len(columns), rng.choice([0, 1, 2] if window else [1, 2])))
    # The first of the window's columns, in whose order windows come.
    first = [Order(same(name, Type("timestamp", 3)), False, "") for name in window[:1]]
    limit, offset = rng.choice([(None, 0), (None, 0), (rng.choice([1, 10, 500]), rng.choice([0, 0, 3]))])
    return Ordering(first + orders(rng, [same(n, columns[n]) for n in names]), limit, offset)

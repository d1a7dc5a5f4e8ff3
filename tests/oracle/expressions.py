"""Random typed expressions, written twice: for Millstream and for DuckDB.

Both texts mean the same by construction. Where the two dialects differ (rounding casts, integer division, the type
of a decimal literal), the generator avoids the case or writes the type explicitly.
"""

import random
from dataclasses import dataclass

STRINGS = ["a", "b", "Abc", "zoë", "Ж", "日本", "with,comma", 'with "quote"', "it's", "two\nlines",
           "", " pad ", "NULL", "🙂", "aXb%", "null"]


@dataclass(frozen=True)
class Type:
    """`kind` is int, double, float, decimal, bool, date, timestamp, string or bytes; or, of results, array (of `of`) or
    counts: pairs of a value and how often it comes."""

    kind: str
    scale: int = 0  # digits after the point: of a decimal, or of a timestamp's seconds
    of: "Type | None" = None


INT, DOUBLE, FLOAT, BOOL = Type("int"), Type("double"), Type("float"), Type("bool")
DATE, STRING, BYTES = Type("date"), Type("string"), Type("bytes")


@dataclass(frozen=True)
class Expr:
    """One expression in both dialects."""

    ours: str
    duck: str
    type: Type


@dataclass(frozen=True)
class Column:
    """A column of the data: its name, its type here and as declared to each engine."""

    name: str
    type: Type
    declared: str
    duck: str

    def expr(self) -> Expr:
        return Expr(self.name, self.name, self.type)


def same(text: str, type_: Type) -> Expr:
    """Spelled alike in both dialects."""
    return Expr(text, text, type_)


def template(form: str, type_: Type, *parts: Expr) -> Expr:
    return Expr(form.format(*(p.ours for p in parts)), form.format(*(p.duck for p in parts)), type_)


def quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


class Expressions:
    """Draws expressions over the given columns."""

    def __init__(self, rng: random.Random, columns: list[Column]):
        self.rng = rng
        self.columns = columns

    def column(self, *kinds: str) -> Expr | None:
        fitting = [c for c in self.columns if c.type.kind in kinds]
        return self.rng.choice(fitting).expr() if fitting else None

    def any(self, depth: int = 1) -> Expr:
        """An expression of any type: a plain column half of the time."""
        if depth == 0 or self.rng.random() < 0.5:
            return self.rng.choice(self.columns).expr()
        draw = self.rng.choice([self.integer, self.double, self.decimal, self.string, self.boolean])
        return draw(depth) or self.integer(depth)

    def integer(self, depth: int = 1) -> Expr:
        rng = self.rng
        x = self.column("int")
        if depth == 0 or rng.random() < 0.4:
            return x
        c = rng.randint(1, 9)
        match rng.randrange(9):
            case 0:
                return template("({0} + %d)" % c, INT, x)
            case 1:
                return template("({0} %% %d)" % c, INT, x)
            case 2:
                return template("({0} * %d)" % c, INT, x)
            case 3:
                return template("ABS({0})", INT, x)
            case 4:
                return template("CASE WHEN {0} THEN {1} ELSE {2} END", INT, self.boolean(depth - 1),
                                x, self.integer(depth - 1))
            case 5:
                return template("COALESCE({0}, %d)" % -c, INT, x)
            case 6:
                return template("NULLIF({0}, %d)" % c, INT, x)
            case 7:
                s = self.column("string")
                return Expr(f"CHAR_LENGTH({s.ours})", f"length({s.duck})", INT) if s else x
            case _:
                day = self.column("date")
                return template("EXTRACT(MONTH FROM {0})", INT, day) if day else x

    def double(self, depth: int = 1) -> Expr | None:
        rng = self.rng
        x = self.column("double", "float")
        if x is None or depth == 0 or rng.random() < 0.5:
            return x
        wide = template("CAST({0} AS DOUBLE)", DOUBLE, x) if x.type.kind == "float" else x
        c = round(rng.uniform(-3, 3), 3)
        match rng.randrange(4):
            case 0:
                return template("({0} * CAST(%s AS DOUBLE))" % c, DOUBLE, wide)
            case 1:
                return template("({0} + CAST({1} AS DOUBLE))", DOUBLE, wide, self.column("int"))
            case 2:
                return template("CASE WHEN {0} THEN {1} END", DOUBLE, self.boolean(depth - 1), wide)
            case _:
                return template("ABS({0})", DOUBLE, wide)

    def decimal(self, depth: int = 1) -> Expr | None:
        x = self.column("decimal")
        if x is None or depth == 0 or self.rng.random() < 0.6:
            return x
        if self.rng.random() < 0.5:
            return template("({0} + {0})", x.type, x)
        return template("CASE WHEN {0} THEN {1} END", x.type, self.boolean(depth - 1), x)

    def arithmetic(self) -> Expr | None:
        """Exact arithmetic of a decimal column, and perhaps something around it. DuckDB is given digits enough."""
        rng, column = self.rng, self.column("decimal")
        if column is None:
            return None
        wide = lambda e: Expr(e.ours, f"CAST({e.duck} AS DECIMAL(24, {e.type.scale}))", e.type)  # noqa: E731
        of = lambda digits: Type("decimal", digits)  # noqa: E731
        x, scale, digits = wide(column), column.type.scale, rng.choice([1, 2, 3])
        number = same(f"{rng.randint(0, 9)}.{rng.randint(0, 10 ** digits - 1):0{digits}}", of(digits))
        match rng.randrange(4):
            case 0:
                y = wide(self.column("decimal"))
                made = template(f"({{0}} {rng.choice('+-')} {{1}})", of(max(scale, y.type.scale)), x, y)
            case 1:
                made = template(f"({{0}} {rng.choice('+-')} {{1}})", of(max(scale, digits)), x, number)
            case 2:
                made = template("({0} * {1})", of(scale + digits), x, number)
            case _:
                made = template(f"({{0}} {rng.choice('+-*')} {{1}})", of(scale), x, self.column("int"))
        fewer = rng.randint(0, made.type.scale)
        forms = {"{0}": made.type, "(-{0})": made.type, "ABS({0})": made.type, "CEIL({0})": of(0), "FLOOR({0})": of(0),
                 f"CAST({{0}} AS DECIMAL(24, {fewer}))": of(fewer)}
        form = rng.choice(list(forms))
        return template(form, forms[form], made)

    def string(self, depth: int = 1) -> Expr | None:
        rng = self.rng
        x = self.column("string")
        if x is None or depth == 0 or rng.random() < 0.5:
            return x
        match rng.randrange(5):
            case 0:
                return template("UPPER({0})", STRING, x)
            case 1:
                return template("({0} || '-')", STRING, x)
            case 2:
                return template("COALESCE({0}, 'none')", STRING, x)
            case 3:
                return template("SUBSTRING({0}, 1, 2)", STRING, x)
            case _:
                return template("CASE WHEN {0} THEN 'yes' WHEN {1} THEN {2} END", STRING,
                                self.boolean(0), self.boolean(0), x)

    def boolean(self, depth: int = 1) -> Expr:
        """A predicate; any of them can be NULL."""
        rng = self.rng
        if depth > 0 and rng.random() < 0.4:
            left, right = self.boolean(depth - 1), self.boolean(depth - 1)
            form = rng.choice(["({0} AND {1})", "({0} OR {1})", "NOT ({0})"])
            return template(form, BOOL, left, right)
        x = rng.choice(self.columns)
        e = x.expr()
        if rng.random() < 0.15:
            return template(rng.choice(["{0} IS NULL", "{0} IS NOT NULL"]), BOOL, e)
        compare = rng.choice(["=", "<>", "<", "<=", ">", ">="])
        match x.type.kind:
            case "int":
                if rng.random() < 0.3:
                    low = rng.randint(-20, 10)
                    return template("{0} BETWEEN %d AND %d" % (low, low + 15), BOOL, e)
                return template("{0} %s %d" % (compare, rng.randint(-5, 15)), BOOL, e)
            case "double" | "float":
                # Thresholds that no sum of the data hits.
                bound = rng.randint(-20, 40) + 0.00371
                return template("{0} %s CAST(%s AS DOUBLE)" % (rng.choice("<>"), bound), BOOL, e)
            case "decimal":
                number = f"{rng.randint(-20, 40)}.{rng.randint(0, 99):02}"
                return template("{0} %s CAST('%s' AS DECIMAL(12, 2))" % (compare, number), BOOL, e)
            case "string":
                if rng.random() < 0.3:
                    return template("{0} LIKE '%s'" % rng.choice(["a%", "%b%", "_", "with%"]), BOOL, e)
                values = ", ".join(quote(s) for s in rng.sample(STRINGS, 3))
                return template("{0} %s (%s)" % (rng.choice(["IN", "NOT IN"]), values), BOOL, e)
            case "bool":
                return e
            case "date":
                return template("{0} %s DATE '2024-02-%02d'" % (compare, rng.randint(20, 29)), BOOL, e)
            case "timestamp":
                text = "{0} %s TIMESTAMP '2024-01-01 00:%02d:00'"
                return template(text % (compare, rng.randint(0, 59)), BOOL, e)
            case _:
                return template("{0} IS NOT NULL", BOOL, e)

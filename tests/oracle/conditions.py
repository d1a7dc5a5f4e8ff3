#!/usr/bin/env python3
"""Random conditions over values that may be NULL, against DuckDB.

Every seed makes a table of some rows and conditions over it: lists, comparisons, BETWEEN, LIKE, IS NULL and the like,
most of them of one column, within AND, OR, NOT and CASE. Each condition stands in a SELECT, a WHERE, a FILTER, a CASE, a
HAVING and in the ON of a join. No rewriting of conditions may lose a NULL, a NaN or the sign of a zero.

    tests/oracle/conditions.py --count 100        seeds 0 to 99
    tests/oracle/conditions.py --seed 17          one case; its files stay in target/oracle-conditions/17
"""

import argparse
import csv
import io
import random
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import duckdb

sys.path[:0] = [str(Path(__file__).resolve().parent.parent)]
import harness  # noqa: E402

KEPT = harness.ROOT / "target" / "oracle-conditions"
CONDITIONS = 25
ROWS = 24
TYPES = {"id": ("INT", "INT"), "i": ("INT", "INT"), "j": ("BIGINT", "BIGINT"), "s": ("STRING", "VARCHAR"),
         "d": ("DOUBLE", "DOUBLE"), "z": ("DOUBLE", "DOUBLE")}
WHOLE = ["-1", "0", "1", "2", "3"]
DOUBLES = ["-1.5E0", "0E0", "-0E0", "1E0", "2.5E0", "CAST('NaN' AS DOUBLE)"]
LITERALS = {"i": WHOLE, "j": WHOLE, "s": ["''", "'a'", "'b'", "'ab'", "'A'"], "d": DOUBLES, "z": DOUBLES}
VALUES = {"i": ["", "-1", "0", "1", "2", "3"], "j": ["", "0", "1", "2", "7"], "s": ["", "a", "b", "ab", "A"],
          "d": ["", "-1.5", "0.0", "-0.0", "1.0", "NaN", "Infinity"], "z": ["", "0.0", "-0.0", "1.0"]}
PATTERNS = ["'a'", "'a%'", "'%b'", "'_'", "'%'", "''", "CAST(NULL AS VARCHAR)"]
COMPARISONS = ["=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"]
NULL = "CAST(NULL AS BOOLEAN)"


class Draw:
    """Conditions; `name` says how a column is written."""

    def __init__(self, rng: random.Random, name) -> None:
        self.rng, self.name = rng, name

    def value(self, column: str) -> str:
        """A column, or what is computed of it."""
        own, literal = self.name(column), self.rng.choice(LITERALS[column])
        if column == "s" or self.rng.random() < 0.75:
            return own
        computed = [f"{own} - {own}", f"{own} * 0", f"NULLIF({own}, {literal})", f"COALESCE({own}, {literal})",
                    f"CASE {own} WHEN {literal} THEN {self.name(column)} ELSE {literal} END"]
        # NaN where z is zero, with its sign bit set.
        return self.rng.choice(computed + [f"{self.name('z')} / {self.name('z')}"] * (column in "dz"))

    def literals(self, column: str) -> str:
        drawn = self.rng.choices(LITERALS[column], k=self.rng.randrange(1, 5))
        return ", ".join(drawn + ["NULL"] * (self.rng.random() < 0.2))

    def leaf(self, column: str) -> str:
        rng, value, negated = self.rng, self.value(column), self.rng.choice(["", "NOT "])
        literal = rng.choice(LITERALS[column])
        match rng.randrange(10):
            case 0 | 1 | 2:
                return f"{value} {negated}IN ({self.literals(column)})"
            case 3 | 4:
                return f"{value} {rng.choice(COMPARISONS)} {literal}"
            case 5:
                other = self.value("j" if column == "i" else column)
                return f"{value} {rng.choice(COMPARISONS)} {rng.choice([other, value])}"
            case 6:
                return f"{literal} {rng.choice(COMPARISONS[:6])} {value}"
            case 7:
                return f"{value} {negated}BETWEEN {literal} AND {rng.choice(LITERALS[column])}"
            case 8 if column == "s":
                return f"{value} {negated}LIKE {rng.choice(PATTERNS)}"
            case 8:
                return rng.choice(["TRUE", "FALSE", NULL])
            case _:
                return f"{value} IS {negated}NULL"

    def condition(self, column: str, depth: int) -> str:
        rng = self.rng
        if depth == 0:
            return self.leaf(column if rng.random() < 0.8 else rng.choice(list(LITERALS)))
        one, two = (self.condition(column, depth - 1) for _ in range(2))
        match rng.randrange(12):
            case 0 | 1 | 2 | 3:
                return f"({one}) AND ({two})"
            case 4 | 5 | 6 | 7:
                return f"({one}) OR ({two})"
            case 8:
                return f"NOT ({one})"
            case 9:
                return f"({one}) {rng.choice(['IS TRUE', 'IS NOT TRUE', 'IS FALSE', 'IS NOT FALSE', 'IS NULL'])}"
            case 10:
                otherwise = rng.choice(["", f" ELSE {rng.choice(['TRUE', 'FALSE', NULL])}", f" ELSE {two}"])
                then = rng.choice(["TRUE", "FALSE", two])
                if column in "ij" and rng.random() < 0.5:
                    return f"CASE {self.name(column)} WHEN {rng.choice(WHOLE)} THEN {then} WHEN 3 THEN {one}{otherwise} END"
                return f"CASE WHEN {one} THEN {then}{otherwise} END"
            case _:
                return f"({one}) {rng.choice(['=', '<>', 'IS DISTINCT FROM'])} ({two})"

    def any(self) -> str:
        return self.condition(self.rng.choice(list(LITERALS)), self.rng.choice([1, 2, 2, 3]))


def queries(rng: random.Random) -> list[str]:
    """Queries that both understand; the first column names the query."""
    plain, maxima = Draw(rng, lambda c: c), Draw(rng, lambda c: f"MAX({c})")
    joined = Draw(rng, lambda c: f"{rng.choice('ab')}.{c}")
    all_ = [plain.any() for _ in range(CONDITIONS)]
    shown = ", ".join(f"{condition} AS c{i}" for i, condition in enumerate(all_))
    counted = ", ".join(f"COUNT(*) FILTER (WHERE {condition}) AS c{i}" for i, condition in enumerate(all_))
    cases = ", ".join(f"CASE WHEN {one} THEN 'x' WHEN {two} THEN 'y' ELSE 'z' END AS c{i}"
                      for i, (one, two) in enumerate(zip(all_, all_[1:])))
    result = [f"SELECT 'select' AS q, id, {shown} FROM t", f"SELECT 'filter' AS q, 0 AS id, {counted} FROM t",
              f"SELECT 'case' AS q, id, {cases} FROM t"]
    for i, condition in enumerate(all_):
        result.append(f"SELECT 'where {i}' AS q, id FROM t WHERE {condition}")
    for i in range(CONDITIONS // 3):
        kind = rng.choice(["JOIN", "LEFT JOIN"])
        result += [f"SELECT 'having {i}' AS q, id FROM t GROUP BY id HAVING {maxima.any()}",
                   f"SELECT 'on {i}' AS q, a.id AS id, b.id AS other FROM t AS a {kind} t AS b ON a.i = b.i AND ({joined.any()})"]
    return result


def check(seed: int, folder: Path) -> tuple[int, list[str]]:
    """How many queries were compared, and what is wrong."""
    rng = random.Random(seed)
    rows = [[str(row)] + [rng.choice(VALUES[c]) for c in LITERALS] for row in range(ROWS)]
    asked = queries(rng)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "t.csv").write_text("\n".join([",".join(TYPES)] + [",".join(row) for row in rows]) + "\n")
    columns = ", ".join(f"{name} {ours}" for name, (ours, _) in TYPES.items())
    table = f"CREATE TABLE t ({columns}) WITH ('connector' = 'file', 'format' = 'csv', 'path' = 't.csv');\n"
    script = ";\n".join(query.replace("AS VARCHAR", "AS STRING") for query in asked)
    (folder / "q.sql").write_text(table + script + ";\n")
    run = harness.run("run", "q.sql", "--format", "csv", cwd=folder, stats=False, settings={"workers": 1 + seed % 2})
    if run.code:
        return 0, [f"seed {seed}: exit code {run.code}: {run.stderr}"]
    ours: dict[str, list[list[str]]] = {}
    for row in csv.reader(io.StringIO(run.stdout.decode())):
        if row[0] != "q":
            ours.setdefault(row[0], []).append(row[1:])
    duck = duckdb.connect()
    duck.execute(f"CREATE TABLE t ({', '.join(f'{name} {type_}' for name, (_, type_) in TYPES.items())})")
    duck.executemany(f"INSERT INTO t VALUES ({', '.join('?' * len(TYPES))})", [[v or None for v in row] for row in rows])
    wrong = []
    for query in asked:
        name = query.split("'")[1]
        text = lambda v: "" if v is None else str(v).lower() if isinstance(v, bool) else str(v)  # noqa: E731
        expected = sorted([text(v) for v in row[1:]] for row in duck.execute(query).fetchall())
        found = sorted(ours.get(name, []))
        if found != expected:
            at = [i for a, b in zip(found, expected) for i in range(len(a)) if a[i] != b[i]][:1]
            wrong.append(f"seed {seed}: {name}: {query if name not in ('select', 'filter', 'case') else at}\n"
                         f"  expected {expected[:9]}\n  found    {found[:9]}")
    return len(asked), wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20, help="seeds from 0")
    parser.add_argument("--seed", type=int, help="this one alone; keeps its files")
    options = parser.parse_args()
    if options.seed is not None:
        compared, wrong = check(options.seed, KEPT / str(options.seed))
    else:
        with tempfile.TemporaryDirectory(prefix="millstream-conditions-") as folder, ProcessPoolExecutor() as pool:
            seeds = range(options.count)
            done = list(pool.map(check, seeds, [Path(folder) / str(seed) for seed in seeds]))
        compared, wrong = sum(count for count, _ in done), [line for _, lines in done for line in lines]
    print("\n".join(wrong))
    print(f"{compared} queries compared, {len(wrong)} wrong")
    return 1 if wrong or not compared else 0


if __name__ == "__main__":
    sys.exit(main())

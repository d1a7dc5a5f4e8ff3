"""UNNEST of random arrays, against DuckDB, whatever the numbers of workers, processes and records in a batch."""

import csv
import io
import random

import duckdb
import harness
import pytest

CASES = 12
RECORDS = 200
WINDOW_S = 20

# What is unnested: in our SQL and in DuckDB's. Each gives one column of integers, some of them NULL.
ARRAYS = [
    ("ARRAY[a, b]", "[a, b]"),
    ("ARRAY[a, NULL, a + b, b]", "[a, NULL, a + b, b]"),
    ("CASE WHEN a > 2 THEN ARRAY[a, b, id] END", "CASE WHEN a > 2 THEN [a, b, id] END"),
    ("CASE WHEN b > 2 THEN ARRAY[a] ELSE ARRAY[b, b, id] END", "CASE WHEN b > 2 THEN [a] ELSE [b, b, id] END"),
    ("MAP['x', ARRAY[a, id]][s]", "CASE WHEN s = 'x' THEN [a, id] END"),
]
CONDITIONS = ["e > 2", "e IS NULL OR a < 5", "MOD(id, 3) <> 1", "TRUE"]


def records(rng: random.Random) -> str:
    lines = ["ts,id,a,b,s"]
    second = 0
    for number in range(RECORDS):
        second += rng.choice([0, 0, 1, 7])
        value = lambda: "" if rng.random() < 0.2 else str(rng.randrange(8))  # noqa: E731
        stamp = f"2024-01-01 00:{second // 60:02}:{second % 60:02}.000"
        lines.append(f"{stamp},{number},{value()},{value()},{rng.choice('xyz')}")
    return "\n".join(lines) + "\n"


def query(kind: str, condition: str) -> tuple[str, str]:
    """The SELECT of a kind over the elements, in our SQL and in DuckDB's."""
    if kind == "elements":
        both = f"SELECT id, s, e FROM elements WHERE {condition}"
        return both, both
    if kind == "groups":
        both = f"SELECT e, COUNT(*), COUNT(a), SUM(id), MAX(s) FROM elements WHERE {condition} GROUP BY e"
        return both, both
    ours = f"""SELECT window_start, e, COUNT(*), SUM(a), MIN(id)
               FROM TABLE(TUMBLE(TABLE elements, DESCRIPTOR(ts), INTERVAL '{WINDOW_S}' SECOND))
               WHERE {condition} GROUP BY window_start, window_end, e"""
    start = f"time_bucket(INTERVAL '{WINDOW_S} seconds', ts)"
    return ours, f"SELECT {start}, e, COUNT(*), SUM(a), MIN(id) FROM elements WHERE {condition} GROUP BY ALL"


def shown(value: object) -> str:
    if value is None:
        return ""
    return value.strftime("%Y-%m-%d %H:%M:%S.000") if hasattr(value, "strftime") else str(value)


@pytest.mark.parametrize("seed", range(CASES))
def test_elements_are_what_duckdb_says(script, seed):
    rng = random.Random(seed)
    script.data("t.csv", records(rng))
    kind = ["elements", "groups", "windows"][seed % 3]
    (ours, theirs), join = rng.choice(ARRAYS), rng.choice(["CROSS JOIN {}", "LEFT JOIN {} ON TRUE"])
    our_select, their_select = query(kind, rng.choice(CONDITIONS))
    columns = "ts TIMESTAMP(3), id INT, a INT, b INT, s STRING"
    sql = f"""CREATE TABLE t ({columns}, WATERMARK FOR ts AS ts)
              WITH ('connector' = 'file', 'format' = 'csv', 'path' = 't.csv');
              CREATE VIEW elements AS SELECT * FROM t {join.format(f"UNNEST({ours}) AS u (e)")};
              {our_select};"""
    duck = duckdb.connect()
    duck.execute(f"CREATE TABLE t AS SELECT * FROM read_csv('{script.folder / 't.csv'}', header = true, columns = "
                 "{'ts': 'TIMESTAMP', 'id': 'INTEGER', 'a': 'INTEGER', 'b': 'INTEGER', 's': 'VARCHAR'})")
    lateral = join.replace("JOIN", "JOIN LATERAL").format(f"(SELECT unnest({theirs}) AS e) AS u")
    duck.execute(f"CREATE VIEW elements AS SELECT * FROM t {lateral}")
    expected = sorted([shown(value) for value in row] for row in duck.execute(their_select).fetchall())
    assert len(expected) > 5
    for settings in [
        {"workers": 1},
        {"workers": rng.choice([2, 4]), "batch_rows": rng.choice([1, 7, 64]), "epoch_bytes": 1},
        {"processes": 2, "workers": rng.choice([1, 2]), "batch_rows": rng.choice([1, 7, 16384])},
    ]:
        text = script.run(sql, **settings).stdout.decode()
        rows = list(csv.reader(io.StringIO(text)))[1:]
        assert sorted(rows) == expected, (settings, sql)


def test_a_late_record_counts_once_however_many_elements_it_has(script):
    """More elements than are taken at once: the answers are those of tests/sql/late_records, 18,000 times."""
    script.data("late.csv", (harness.ROOT / "tests" / "sql" / "data" / "late.csv").read_bytes())
    inner = f"ARRAY[{', '.join(['v'] * 120)}]"
    sql = f"""CREATE TABLE events (ts TIMESTAMP(3), v BIGINT, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
              WITH ('connector' = 'file', 'path' = 'late.csv', 'format' = 'csv');
              SELECT window_start, COUNT(*) AS n, SUM(x) AS total
              FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '10' SECOND))
              CROSS JOIN UNNEST(ARRAY[{', '.join([inner] * 150)}]) AS o (l) CROSS JOIN UNNEST(l) AS x
              GROUP BY window_start, window_end;"""
    for settings in [{"workers": 1}, {"workers": 2, "batch_rows": 1}, {"processes": 2, "workers": 1}]:
        result = script.run(sql, **settings)
        rows = [row.split(",")[1:] for row in result.stdout.decode().splitlines()[1:]]
        times = 18_000
        assert rows == [[str(n * times), str(total * times)] for n, total in [(2, 5), (3, 42), (2, 320)]]
        assert result.stats["late_records"] == 3, settings

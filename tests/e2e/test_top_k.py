"""APPROX_TOP_K of random records against DuckDB's exact counts: equal up to 2,048 different values in a group, and
within what docs/sql.md promises beyond; in the same bytes whatever the numbers of workers, processes and records in a
batch."""

import csv
import io
import json
import math
import random

import duckdb
import pytest

EXACT = 2048
TABLE = """CREATE TABLE t (ts TIMESTAMP(3), k INT, x BIGINT, s STRING, WATERMARK FOR ts AS ts - INTERVAL '1' HOUR)
           WITH ('connector' = 'file', 'format' = 'csv', 'path' = 't.csv');"""
FUNCTIONS = {
    "tumble": "TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '5' MINUTE)",
    "hop": "HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE, INTERVAL '5' MINUTE)",
    "session": "SESSION(TABLE t PARTITION BY k, DESCRIPTOR(ts), INTERVAL '20' MINUTE)",
}


def records(rng: random.Random, count: int, draw) -> str:
    lines = ["ts,k,x,s"]
    for _ in range(count):
        second, value = rng.randrange(900), draw(rng)
        number = "" if rng.random() < 0.1 else value
        lines.append(f"2024-01-01 00:{second // 60:02}:{second % 60:02},{rng.randrange(2)},{number},v{value}")
    return "\n".join(lines) + "\n"


def theirs(script, kind: str, query: str) -> list[tuple]:
    """DuckDB's rows of a query over records `w` with their windows; a session has all records of a key."""
    slide = {"tumble": 300, "hop": 60}.get(kind)
    assigned = "SELECT *, 0 AS start FROM r" if slide is None else f"""
        SELECT *, (epoch(ts)::BIGINT // {slide} - i) * {slide} AS start FROM r, range({300 // slide}) AS n(i)"""
    path = script.folder / "t.csv"
    duck = duckdb.connect()
    duck.execute(f"""CREATE VIEW r AS SELECT * FROM read_csv('{path}', header = true, columns =
        {{'ts': 'TIMESTAMP', 'k': 'INT', 'x': 'BIGINT', 's': 'VARCHAR'}})""")
    return duck.execute(f"WITH w AS ({assigned}) {query}").fetchall()


def printed(script, sql: str, rng: random.Random) -> list[list[str]]:
    """The rows of a query, which are the same however it runs."""
    texts = set()
    for settings in [{"workers": 1}, {"workers": 3, "batch_rows": rng.choice([7, 64]), "epoch_bytes": 1},
                     {"processes": 2, "workers": rng.choice([1, 2]), "batch_rows": rng.choice([64, 16384])},
                     {"workers": 2, "fragment_mode": "pass-through"}]:
        result = script.run(TABLE + sql, **settings)
        assert result.code == 0, result.stderr
        texts.add(result.stdout)
    assert len(texts) == 1, "not the same bytes"
    csv.field_size_limit(1 << 30)
    return list(csv.reader(io.StringIO(texts.pop().decode())))[1:]


def ours(text: str) -> list[tuple]:
    return [(pair["value"], pair["count"]) for pair in json.loads(text or "[]")]


def top(counts: list[tuple], k: int) -> list[tuple]:
    return sorted(counts, key=lambda pair: (-pair[1], pair[0]))[:k]


@pytest.mark.parametrize("seed", range(6))
def test_few_values_are_counted_exactly(script, seed):
    rng = random.Random(seed)
    kind, values, k = list(FUNCTIONS)[seed % 3], rng.choice([3, 40, EXACT]), rng.choice([1, 5, 1000])
    script.data("t.csv", records(rng, 9_000, lambda rng: min(rng.randrange(values), rng.randrange(values)) - 9))
    rows = printed(script, f"""SELECT CAST(EXTRACT(EPOCH FROM window_start) AS BIGINT), k, APPROX_TOP_K(x, {k}),
        APPROX_TOP_K(s, {k}), APPROX_TOP_K(x, 3) FILTER (WHERE s < 'v2')
        FROM TABLE({FUNCTIONS[kind]}) GROUP BY window_start, window_end, k;""", rng)
    histograms = theirs(script, kind, """SELECT start, k, map_entries(histogram(x)), map_entries(histogram(s)),
        map_entries(histogram(x) FILTER (s < 'v2')) FROM w GROUP BY start, k""")
    pairs = lambda entries: [(entry["key"], entry["value"]) for entry in entries or []]  # noqa: E731
    expected = sorted((0 if kind == "session" else start, key, top(pairs(x), k), top(pairs(s), k), top(pairs(some), 3))
                      for start, key, x, s, some in histograms)
    found = sorted((0 if kind == "session" else int(start), int(key), ours(x), ours(s), ours(some))
                   for start, key, x, s, some in rows)
    assert len(found) >= 2 and found == expected


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_estimates_keep_their_bounds(script, kind):
    """Half of the records have the value 1, 2, 3, …, rarer and rarer; the others any of 100,000."""
    rng = random.Random(kind)
    draw = lambda rng: int(1 / (1 - rng.random())) if rng.random() < 0.5 else rng.randrange(100_000)  # noqa: E731
    script.data("t.csv", records(rng, 60_000, draw))
    rows = printed(script, f"""SELECT CAST(EXTRACT(EPOCH FROM window_start) AS BIGINT), k, APPROX_TOP_K(x, 1000)
        FROM TABLE({FUNCTIONS[kind]}) GROUP BY window_start, window_end, k;""", rng)
    groups: dict[tuple[int, int], dict[int, int]] = {}
    counted = "SELECT start, k, x, count(*) FROM w WHERE x IS NOT NULL GROUP BY ALL"
    for start, key, value, count in theirs(script, kind, counted):
        groups.setdefault((start, key), {})[value] = count
    estimated, beyond, least, many = 0, 0, math.inf, 0
    for start, key, text in rows:
        counts = groups.pop((0 if kind == "session" else int(start), int(key)))
        found, total = ours(text), sum(counts.values())
        if len(counts) <= EXACT:
            assert found == top(list(counts.items()), 1000)
            continue
        many += 1
        assert len(found) == 1000 and found == top(found, 1000)
        assert all(estimate >= counts[value] for value, estimate in found)
        beyond += sum(estimate - counts[value] > math.e / 2048 * total for value, estimate in found)
        estimated += len(found)
        # Far more than 1,000 values are estimated as rarer than these.
        assert {value for value, count in counts.items() if count > 0.007 * total} <= {value for value, _ in found}
        least = min(least, sum(count > 0.007 * total for count in counts.values()))
    assert not groups and many >= 2 and least >= 5
    assert beyond <= 0.018 * estimated

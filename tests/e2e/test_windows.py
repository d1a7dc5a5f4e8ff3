"""Windows that hop and cumulate, and sessions, of random records, against DuckDB, whatever the numbers of workers,
processes and records in a batch. Some sessions are shared by groups, and some records are left out above the windows,
where they make sessions longer all the same. No record is late here: tests/oracle and the engine's simulations have those."""

import csv
import io
import random

import duckdb
import pytest

CASES = 24
RECORDS = 400
SECONDS = 3600
COLUMNS = "ts TIMESTAMP(3), k STRING, s STRING, v INT"
#: Aggregates, in our SQL and in DuckDB's alike.
AGGREGATES = ["COUNT(*)", "COUNT(v)", "SUM(v)", "MIN(v)", "MAX(s)", "COUNT(DISTINCT v)", "BIT_OR(v)",
              "SUM(v) FILTER (WHERE v > 3)", "MIN(s)", "COUNT(DISTINCT s) FILTER (WHERE v > 2)"]
#: The keys that sessions are of, further keys, and a condition above the windows.
SHARED = [(["k"], [], ""), (["k"], ["s"], ""), (["k"], [], "WHERE v <> 3"), (["k"], ["s", "v"], "WHERE s <> 'x' OR v > 5"),
          ([], ["k"], ""), (["k", "s"], ["v"], ""), (["s"], ["k"], "WHERE k IS NOT NULL"), ([], ["s"], "WHERE v > 6")]


def records(rng: random.Random) -> str:
    """Up to eight seconds out of order, with holes."""
    lines = ["ts,k,s,v"]
    second = 0
    for _ in range(RECORDS):
        second += rng.choices([0, 1, 7, 200], [60, 20, 15, 1])[0]
        at = (second + rng.randrange(8)) % SECONDS
        second = min(second, SECONDS - 20)
        key = "" if rng.random() < 0.1 else rng.choice("abcde")
        value = "" if rng.random() < 0.2 else str(rng.randrange(8))
        lines.append(f"2024-01-01 00:{at // 60:02}:{at % 60:02}.{rng.choice(['000', '500'])},{key},"
                     f"{rng.choice('xyz')},{value}")
    return "\n".join(lines) + "\n"


def windows(kind: str, part: list[str], rng: random.Random) -> tuple[str, str]:
    """The table function, and a SELECT for DuckDB that gives each record with its windows. Sessions are of `part`."""
    unit, count = rng.choice([1, 5, 60]), rng.choice([2, 3, 12])
    size = unit * count
    args = f"DESCRIPTOR(ts), INTERVAL '{unit}' SECOND, INTERVAL '{size}' SECOND"
    if kind == "hop":
        last = f"(epoch_ms(ts) // {unit * 1000}) * {unit * 1000}"
        return f"HOP(TABLE t, {args})", f"""
            SELECT *, {last} - i * {unit * 1000} AS ws, {last} - i * {unit * 1000} + {size * 1000} AS we
            FROM t, range({count}) r(i)"""
    if kind == "cumulate":
        first = f"(epoch_ms(ts) // {size * 1000}) * {size * 1000}"
        return f"CUMULATE(TABLE t, {args})", f"""
            SELECT *, {first} AS ws, {first} + i * {unit * 1000} AS we FROM t, range(1, {count + 1}) r(i)
            WHERE {first} + i * {unit * 1000} > epoch_ms(ts)"""
    gap = unit * 1000
    by = f"PARTITION BY {', '.join(part)}" if part else ""
    same = ", ".join([*part, "n"])
    return f"SESSION(TABLE t {by}, DESCRIPTOR(ts), INTERVAL '{unit}' SECOND)", f"""
        WITH gaps AS (SELECT *, epoch_ms(ts) - lag(epoch_ms(ts)) OVER ({by} ORDER BY ts) AS gap FROM t),
        numbered AS (SELECT *, count(*) FILTER (WHERE gap > {gap}) OVER ({by} ORDER BY ts) AS n FROM gaps)
        SELECT *, min(epoch_ms(ts)) OVER (PARTITION BY {same}) AS ws,
               max(epoch_ms(ts)) OVER (PARTITION BY {same}) + {gap} AS we FROM numbered"""


def shown(value: object) -> str:
    return "" if value is None else str(value)


def table(columns: str) -> str:
    """Declares the table whose records every test writes; none of them is late."""
    return f"""CREATE TABLE t ({columns}, WATERMARK FOR ts AS ts - INTERVAL '1' HOUR)
               WITH ('connector' = 'file', 'format' = 'csv', 'path' = 't.csv');"""


def duckdb_says(script, columns: str, query: str) -> list[list[str]]:
    """DuckDB's rows of a query over the same records."""
    duck = duckdb.connect()
    types = columns.replace("TIMESTAMP(3)", "TIMESTAMP").split(", ")
    types = "{" + ", ".join(f"'{name}': '{kind}'" for name, kind in (column.split() for column in types)) + "}"
    path = script.folder / "t.csv"
    duck.execute(f"CREATE TABLE t AS SELECT * FROM read_csv('{path}', header = true, columns = {types})")
    return [[shown(value) for value in row] for row in duck.execute(query).fetchall()]


def runs(script, sql: str, rng: random.Random):
    """With one worker, with several and with several processes, with short windows, panes and gaps packed or not: what
    each prints."""
    packs = ["0", "1 min", "10 min", "1 hour"]
    for settings in [
        {"workers": 1, "windows_pack": "1 s"},
        {"workers": rng.choice([2, 4]), "batch_rows": rng.choice([1, 7, 64]), "epoch_bytes": 1,
         "windows_pack": rng.choice(packs)},
        {"processes": 2, "workers": rng.choice([1, 2]), "batch_rows": rng.choice([1, 7, 16384]),
         "windows_pack": rng.choice(packs)},
        {"workers": 3, "windows_pack": rng.choice(packs[1:])},
    ]:
        result = script.run(sql, **settings)
        assert result.code == 0, result.stderr
        yield settings, result.stdout.decode()


def rows_of(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text)))[1:]


def are_the_rows(script, sql: str, rng: random.Random, expected: list[list[str]]) -> None:
    """Each run has these rows, which begin with start and end of a window, in the same bytes."""
    texts = set()
    for settings, text in runs(script, sql, rng):
        rows = [[start.split(".")[0], end.split(".")[0], *rest] for start, end, *rest in rows_of(text)]
        assert sorted(rows) == expected, (settings, sql)
        texts.add(text)
    assert len(texts) == 1, "not the same bytes"


@pytest.mark.parametrize("seed", range(CASES))
def test_windows_are_what_duckdb_says(script, seed):
    rng = random.Random(seed)
    script.data("t.csv", records(rng))
    kind = ["hop", "cumulate", "session"][seed % 3]
    # What sessions are of, by what else records are grouped, and which of them are left out.
    part, more, where = SHARED[seed // 3 % len(SHARED)]
    function, assigned = windows(kind, part, rng)
    calls = ", ".join(rng.sample(AGGREGATES, 4))
    keys = ", ".join(part + more)
    sql = f"""{table(COLUMNS)}
              SELECT EXTRACT(EPOCH FROM window_start) * 1000, EXTRACT(EPOCH FROM window_end) * 1000, {keys}, {calls}
              FROM TABLE({function}) {where} GROUP BY window_start, window_end, {keys};"""
    query = f"SELECT ws, we, {keys}, {calls} FROM ({assigned}) {where} GROUP BY ws, we, {keys}"
    expected = sorted(duckdb_says(script, COLUMNS, query))
    assert len(expected) > (20 if part else 5)
    are_the_rows(script, sql, rng, expected)


@pytest.mark.parametrize("seed", range(CASES))
def test_rows_of_windows_come_in_the_order_that_is_asked_for(script, seed):
    rng = random.Random(f"ordered {seed}")
    script.data("t.csv", records(rng))
    function, assigned = windows(["hop", "cumulate", "session"][seed % 3], ["k"], rng)
    keys = rng.sample(["n", "m", "k"], rng.randint(1, 3))
    keys = [f"{key} {rng.choice(['ASC', 'DESC'])} NULLS {rng.choice(['FIRST', 'LAST'])}" for key in keys]
    keys += ["start", "k NULLS LAST"]
    limit = rng.choice(["", f"LIMIT {rng.randint(0, 40)}", f"LIMIT {rng.randint(1, 40)} OFFSET {rng.randint(0, 60)}"])
    sql = f"""{table(COLUMNS)}
              SELECT k, COUNT(v) AS n, MAX(s) AS m, EXTRACT(EPOCH FROM window_start) * 1000 AS start
              FROM TABLE({function}) GROUP BY window_start, window_end, k
              ORDER BY window_end, {', '.join(keys)} {limit};"""
    query = f"""SELECT k, COUNT(v) AS n, MAX(s) AS m, ws AS start FROM ({assigned}) GROUP BY ws, we, k
                ORDER BY we, {', '.join(keys)} {limit}"""
    expected = duckdb_says(script, COLUMNS, query)
    assert limit or len(expected) > 20
    for settings, text in runs(script, sql, rng):
        rows = [[*rest, start.split(".")[0]] for *rest, start in rows_of(text)]
        assert rows == expected, (settings, sql)


#: How rows are ranked, in our SQL and in DuckDB's alike. ROW_NUMBER of equal keys goes by time, then by position.
RANKINGS = [("ROW_NUMBER", "v DESC NULLS LAST", "v DESC NULLS LAST, ts, at_"),
            ("ROW_NUMBER", "s, v", "s, v NULLS FIRST, ts, at_"), ("ROW_NUMBER", "ts DESC", "ts DESC, at_"),
            ("RANK", "v NULLS LAST, s DESC", "v NULLS LAST, s DESC"), ("DENSE_RANK", "v", "v NULLS FIRST")]


@pytest.mark.parametrize("seed", range(CASES))
def test_the_first_rows_of_windows_are_what_duckdb_says(script, seed):
    rng = random.Random(f"ranked {seed}")
    header, *lines = records(rng).splitlines()
    script.data("t.csv", "\n".join([f"at_,{header}"] + [f"{n},{line}" for n, line in enumerate(lines)]) + "\n")
    function, assigned = windows(["hop", "cumulate", "session"][seed % 3], ["k"], rng)
    rank, ours, theirs = rng.choice(RANKINGS)
    first = rng.choice([1, 2, 5])
    sql = f"""{table(f"at_ INT, {COLUMNS}")}
              SELECT EXTRACT(EPOCH FROM window_start) * 1000, EXTRACT(EPOCH FROM window_end) * 1000, k, r, at_, s, v
              FROM (SELECT *, {rank}() OVER (PARTITION BY window_start, window_end, k ORDER BY {ours}) AS r
                    FROM TABLE({function})) WHERE r <= {first};"""
    query = f"""SELECT ws, we, k, {rank}() OVER (PARTITION BY ws, we, k ORDER BY {theirs}) AS r, at_, s, v
                FROM ({assigned}) QUALIFY r <= {first}"""
    expected = sorted(duckdb_says(script, f"at_ INT, {COLUMNS}", query))
    assert len(expected) > 20
    are_the_rows(script, sql, rng, expected)


@pytest.mark.parametrize("seed", range(6))
def test_the_first_of_aggregates_are_taken_of_finished_values(script, seed):
    """Each worker has a part of every group, which says nothing of which group is the first; and most windows have
    several of the same count. Of those the first is that with the least columns, from left to right."""
    rng = random.Random(f"first {seed}")
    script.data("t.csv", records(rng))
    kind = ["hop", "cumulate", "session"][seed % 3]
    function, assigned = windows(kind, [], rng)
    rank, first = [("ROW_NUMBER", 1), ("ROW_NUMBER", 2), ("RANK", 1)][seed // 2]
    theirs = "c DESC" if rank == "RANK" else "c DESC, k NULLS FIRST, s"
    grouped = "k, s, COUNT(*) AS c, SUM(v) AS total"
    ranked = f"{rank}() OVER (PARTITION BY window_start, window_end ORDER BY c DESC) AS r"
    sql = f"""{table(COLUMNS)}
              SELECT EXTRACT(EPOCH FROM window_start) * 1000, EXTRACT(EPOCH FROM window_end) * 1000, k, s, c, total
              FROM (SELECT *, {ranked} FROM (SELECT window_start, window_end, {grouped} FROM TABLE({function})
                    GROUP BY window_start, window_end, k, s)) WHERE r <= {first};"""
    query = f"""SELECT ws, we, k, s, c, total FROM (SELECT ws, we, {grouped} FROM ({assigned}) GROUP BY ws, we, k, s)
                QUALIFY {rank}() OVER (PARTITION BY ws, we ORDER BY {theirs}) <= {first}"""
    expected = sorted(duckdb_says(script, COLUMNS, query))
    ties = f"SELECT count(*) FROM (SELECT ws, we, {grouped} FROM ({assigned}) GROUP BY ws, we, k, s " \
           "QUALIFY rank() OVER (PARTITION BY ws, we ORDER BY c DESC) = 1)"
    windows_there = len({(start, end) for start, end, *_ in expected})
    # Sessions may be few.
    assert kind == "session" or int(duckdb_says(script, COLUMNS, ties)[0][0]) > windows_there, "no ties"
    are_the_rows(script, sql, rng, expected)
    for settings in [{"workers": 4, "batch_rows": 1}, {"workers": 4, "batch_rows": 1, "fragment_mode": "pass-through"}]:
        result = script.run(sql, **settings)
        rows = rows_of(result.stdout.decode())
        rows = [[start.split(".")[0], end.split(".")[0], *rest] for start, end, *rest in rows]
        assert sorted(rows) == expected, settings


@pytest.mark.parametrize("processes", [1, 2])
def test_small_files_have_few_slices_however_many_windows(script, processes):
    """Three stages of 500 windows each: a table, a delta and a step for each of them cost far more than the records."""
    rows = [(2 * i, i % 5, f"x{i % 7}") for i in range(500)]
    script.data("t.csv", "ts,v,s\n" + "".join(f"2024-01-01 00:{at // 60:02}:{at % 60:02},{v},{s}\n" for at, v, s in rows))
    query = table("ts TIMESTAMP(3), v INT, s STRING") + """
        SELECT LISTAGG(DISTINCT s) AS s, SUM(DISTINCT v) AS v
        FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '2' SECOND)) GROUP BY window_start, window_end;"""
    epochs = []
    for pack in ["auto", "1 s"]:
        result = script.run(query, processes=processes, workers=2, windows_pack=pack)
        assert result.stdout.decode().splitlines()[1:] == [f"{s},{v}" for _, v, s in rows], result.stderr
        epochs.append(result.stats["epochs"])
    assert epochs[0] < 100 < epochs[1], epochs

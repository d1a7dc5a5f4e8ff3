"""ORDER BY over inputs that end: random orders against DuckDB, files that keep the order, too little memory,
and Ctrl-C before the end."""

import os
import random
import signal

import duckdb
import pytest
from jobs import PATIENCE_SECONDS

TABLE = """CREATE TABLE t (id BIGINT, k BIGINT, x DOUBLE, s STRING)
WITH ('connector' = 'file', 'path' = 'rows.csv', 'format' = 'csv', 'csv.header' = 'false');
"""


def rows(rng: random.Random) -> list[tuple]:
    maybe = lambda value: None if rng.random() < 0.2 else value  # noqa: E731
    return [(i, maybe(rng.randint(-3, 3)), maybe(rng.choice((-1.5, 0.0, 2.25))), maybe(rng.choice("abc")))
            for i in range(300)]


def line(row: tuple) -> str:
    return ",".join("" if value is None else str(value) for value in row) + "\n"


def order(rng: random.Random, columns: list[str], last: str) -> str:
    """Some keys; the last makes the order of all rows known."""
    keys = rng.sample(columns, rng.randint(1, len(columns))) + [last]
    return ", ".join(f"{key} {rng.choice(('ASC', 'DESC'))} NULLS {rng.choice(('FIRST', 'LAST'))}" for key in keys)


def limit(rng: random.Random) -> str:
    return rng.choice(("", f"LIMIT {rng.randint(0, 40)}", f"LIMIT {rng.randint(1, 40)} OFFSET {rng.randint(0, 290)}"))


@pytest.mark.parametrize("seed", range(6))
def test_random_orders(script, seed):
    rng = random.Random(seed)
    given = rows(rng)
    script.data("rows.csv", "".join(map(line, given)))
    queries = []
    for _ in range(6):
        queries.append(f"SELECT id, k, x, s FROM t WHERE id % 7 <> 3 ORDER BY {order(rng, ['k', 'x', 's'], 'id')} "
                       f"{limit(rng)}")
        queries.append(f"SELECT k, s, COUNT(*) AS n, MAX(id) AS m FROM t GROUP BY k, s "
                       f"ORDER BY {order(rng, ['k', 's', 'n'], 'm')} {limit(rng)}")
    duck = duckdb.connect()
    duck.execute("CREATE TABLE t (id BIGINT, k BIGINT, x DOUBLE, s VARCHAR)")
    duck.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", given)
    expected = "".join(line(row) for query in queries for row in duck.execute(query).fetchall())
    for settings in ({"workers": 1}, {"workers": 3, "batch_rows": 7}, {"workers": 2, "simulate": seed + 1}):
        done = script.run(TABLE + ";\n".join(queries) + ";\n", **settings)
        assert done.code == 0, done.stderr
        found = [row for row in done.stdout.decode().splitlines() if not row.startswith(("id,", "k,s"))]
        assert "".join(f"{row}\n" for row in found) == expected, queries


def test_a_file_keeps_the_order(script):
    values = list(range(20_000))
    random.Random(1).shuffle(values)
    script.data("rows.csv", "".join(f"{value},{value % 10},0.5,a\n" for value in values))
    sink = "CREATE TABLE o (k BIGINT, id BIGINT) WITH ('connector' = 'file', 'path' = 'out', 'format' = 'csv');\n"
    done = script.run(TABLE + sink + "INSERT INTO o SELECT k, id FROM t ORDER BY k, id DESC;", workers=4)
    assert done.code == 0, done.stderr
    [path] = script.folder.glob("out/part-*")
    found = [line for line in path.read_text().splitlines() if line[0].isdigit()]
    assert found == [f"{k},{value}" for k in range(10) for value in range(19_990 + k, -1, -10)]


def test_a_file_keeps_the_order_of_windows(script):
    seconds = [value // 100 for value in range(20_000)]
    script.data("rows.csv", "".join(f"2024-01-01 {s // 3600:02}:{s // 60 % 60:02}:{s % 60:02},{n % 100}\n"
                                    for n, s in enumerate(seconds)))
    sql = """CREATE TABLE t (ts TIMESTAMP(3), k BIGINT, WATERMARK FOR ts AS ts)
             WITH ('connector' = 'file', 'path' = 'rows.csv', 'format' = 'csv', 'csv.header' = 'false');
             CREATE TABLE o (k BIGINT, n BIGINT) WITH ('connector' = 'file', 'path' = 'out', 'format' = 'csv');
             INSERT INTO o SELECT k, COUNT(*) FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '50' SECOND))
             GROUP BY window_start, window_end, k ORDER BY window_end, k DESC;"""
    done = script.run(sql, workers=4, batch_rows=64)
    assert done.code == 0, done.stderr
    [path] = script.folder.glob("out/part-*")
    found = [line for line in path.read_text().splitlines() if line[0].isdigit()]
    assert found == [f"{k},50" for _ in range(4) for k in range(99, -1, -1)]


def test_a_sort_that_does_not_fit_the_memory_is_an_error(script):
    script.data("rows.csv", "".join(f"{value},1,0.5,a\n" for value in range(20_000)))
    done = script.run(TABLE + "SELECT id, REPEAT(s, 2000) AS r FROM t ORDER BY id DESC;", workers=1, memory="16MB")
    message = done.stderr if isinstance(done.stderr, str) else done.stderr.decode()
    assert done.code == 1 and done.stdout.decode().count("aaa") == 0, message
    assert "the output needs more memory than it may use" in message and "--set memory=" in message
    assert "give ORDER BY a LIMIT" in message and "0 keys" not in message and "shorter window" not in message


@pytest.mark.parametrize("processes", [1, 2])
def test_ctrl_c_before_the_input_ends_gives_no_rows(job, script, processes):
    os.mkfifo(script.folder / "rows.csv")
    running = job(TABLE + "SELECT id FROM t ORDER BY id DESC;", processes, "shm", running=False)
    with open(script.folder / "rows.csv", "w", encoding="utf-8") as pipe:
        # More than a pipe holds: when all is written, some has been read.
        pipe.write("".join(f"{value},1,0.5,a\n" for value in range(100_000)))
        pipe.flush()
        running.main.send_signal(signal.SIGINT)
        running.main.wait(PATIENCE_SECONDS)
    assert running.main.stdout.read() in (b"", b"id\n")
    code, stderr = running.end()
    last = stderr.splitlines()[-1]
    assert code == 130 and last.startswith("interrupted: ") and ", no windows, 0 rows, " in last, stderr

"""Temporal joins of many keys and slices of time, against DuckDB: the answer is the same for any layout."""

import collections
import random

import duckdb
import harness
import pytest

START_MS = 1_704_067_200_000
ORDERS, VERSIONS, KEYS = 20_000, 8_000, 1_500
LAYOUTS = [{"workers": 1}, {"workers": 3, "batch.rows": 100, "epoch.bytes": 1000},
           {"processes": 2, "workers": 2, "batch.rows": 700}, {"workers": 2, "exchange": "interleaved"}]
QUERY = """
CREATE TABLE orders (ts TIMESTAMP(3), id INT, k STRING, WATERMARK FOR ts AS ts - INTERVAL '2' SECOND)
WITH ('connector' = 'file', 'path' = 'orders.csv', 'format' = 'csv');
CREATE TABLE versions (
    ts TIMESTAMP(3), k STRING, v INT, WATERMARK FOR ts AS ts - INTERVAL '3' SECOND, PRIMARY KEY (k) NOT ENFORCED
) WITH ('connector' = 'file', 'path' = 'versions-*.csv', 'format' = 'csv');
SELECT id, v FROM orders LEFT JOIN versions FOR SYSTEM_TIME AS OF orders.ts AS x ON orders.k = x.k;
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A folder with the files, and the rows that there should be."""
    folder, rng = tmp_path_factory.mktemp("temporal"), random.Random(5)
    duck = duckdb.connect()

    def draw(count: int, late_ms: int) -> list[tuple[int, str]]:
        """Times that go up but for a little, and keys, some of which come often."""
        rows = []
        for at in range(count):
            ms = max(0, at * 60_000 // count - rng.randrange(late_ms))
            rows.append((ms, f"key {min(rng.randrange(KEYS), rng.randrange(KEYS))}"))
        return rows

    orders = [(ms, i, key) for i, (ms, key) in enumerate(draw(ORDERS, 2_000))]
    versions = [(ms, key, i) for i, (ms, key) in enumerate(draw(VERSIONS, 3_000))]
    texts = dict(duck.sql(f"""SELECT i, strftime(make_timestamp_ms({START_MS} + i), '%Y-%m-%d %H:%M:%S.%g')
        FROM range(60_000) AS t (i)""").fetchall())
    (folder / "orders.csv").write_text("ts,id,k\n" + "".join(f"{texts[ms]},{i},{key}\n" for ms, i, key in orders))
    # Of versions with one time that of the later file counts, so each file has a part in order.
    for part in range(4):
        rows = versions[part * VERSIONS // 4:(part + 1) * VERSIONS // 4]
        text = "".join(f"{texts[ms]},{key},{v}\n" for ms, key, v in rows)
        (folder / f"versions-{part}.csv").write_text("ts,k,v\n" + text)
    duck.execute("CREATE TABLE orders (ms INT, id INT, k TEXT)").executemany("INSERT INTO orders VALUES (?, ?, ?)", orders)
    duck.execute("CREATE TABLE versions (ms INT, k TEXT, v INT)")
    duck.executemany("INSERT INTO versions VALUES (?, ?, ?)", versions)
    rows = duck.sql("""SELECT id, v FROM orders ASOF LEFT JOIN (
        SELECT * FROM versions QUALIFY row_number() OVER (PARTITION BY k, ms ORDER BY v DESC) = 1) AS versions
        ON orders.k = versions.k AND orders.ms >= versions.ms""").fetchall()
    assert sum(v is None for _, v in rows) > 100 and len({v for _, v in rows}) > 2_000
    (folder / "query.sql").write_text(QUERY)
    return folder, collections.Counter(rows)


@pytest.mark.parametrize("settings", LAYOUTS, ids=str)
def test_many_versions_of_many_keys(settings, data):
    folder, expected = data
    result = harness.run("run", folder / "query.sql", "--format", "csv", settings=settings)
    assert result.code == 0, result.stderr
    assert harness.sound(result) == []
    assert result.stats["late_records"] == 0
    _, *lines = result.stdout.decode().splitlines()
    rows = [tuple(int(value) if value else None for value in line.split(",")) for line in lines]
    assert collections.Counter(rows) == expected

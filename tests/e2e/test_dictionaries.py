"""Texts that stand in files as dictionaries: what groups or filters by them looks at each value once."""

import duckdb
import pytest

WAYS = [{"workers": 1}, {"workers": 3, "batch_rows": 700}, {"processes": 2}, {"workers": 2, "exchange": "repartition"}]
# Few texts, some of them NULL, some of them long; and texts that are all different.
DATA = """SELECT TIMESTAMP '2024-01-01' + to_seconds(i) AS ts, i AS n,
    CASE i % 11 WHEN 3 THEN NULL WHEN 4 THEN '' ELSE repeat('page ' || (i * i % 13)::VARCHAR, 1 + i % 4) END AS page,
    'only ' || i::VARCHAR AS own, ['DE', 'FR', 'it', NULL][1 + i // 5 % 4] AS country
    FROM range(20000) AS t (i)"""
TABLE = """CREATE TABLE visits (ts TIMESTAMP(6), n BIGINT, page STRING, own STRING, country STRING, {}
    WATERMARK FOR ts AS ts) WITH ('connector' = 'file', 'format' = '{}', 'path' = '{}');\n"""
# A query, and the same for DuckDB.
QUERIES = [
    ("SELECT page, COUNT(*) AS c, SUM(n) AS s FROM visits GROUP BY page", None),
    ("SELECT country, COUNT(*) AS c FROM visits WHERE page <> '' AND n > 10 GROUP BY country", None),
    ("SELECT country, page, COUNT(*) AS c FROM visits GROUP BY country, page", None),
    ("SELECT country, COUNT(*) AS c FROM visits WHERE country = 'DE' OR country IS NULL GROUP BY country", None),
    ("SELECT COUNT(*) AS c FROM visits WHERE UPPER(country) LIKE '%I%'", None),
    ("SELECT page, COUNT(*) AS c FROM visits WHERE country <> 'FR' AND page > 'page 2' GROUP BY page", None),
    ("SELECT own, COUNT(*) AS c FROM visits WHERE own < 'only 11' GROUP BY own", None),
    ("SELECT country, MIN(page) AS least, MAX(page) AS most FROM visits GROUP BY country", None),
    ("SELECT DISTINCT country FROM visits", None),
    ("SELECT UPPER(country) AS u, country, COUNT(*) AS c FROM visits GROUP BY UPPER(country), country", None),
    ("SELECT window_start, page, COUNT(*) AS c FROM TABLE(TUMBLE(TABLE visits, DESCRIPTOR(ts), INTERVAL '1' HOUR)) "
     "WHERE country = 'it' GROUP BY window_start, window_end, page",
     "SELECT time_bucket(INTERVAL '1 hour', ts) AS window_start, page, COUNT(*) AS c FROM visits WHERE country = 'it' "
     "GROUP BY window_start, page"),
    ("SELECT window_start, country, COUNT(*) AS c FROM TABLE(HOP(TABLE visits, DESCRIPTOR(ts), INTERVAL '30' MINUTE, "
     "INTERVAL '1' HOUR)) WHERE window_start >= TIMESTAMP '2024-01-01 01:00:00' GROUP BY window_start, window_end, country "
     "HAVING window_start = TIMESTAMP '2024-01-01 02:00:00'",
     "SELECT TIMESTAMP '2024-01-01 02:00:00' AS window_start, country, COUNT(*) AS c FROM visits "
     "WHERE ts >= '2024-01-01 02:00:00' AND ts < '2024-01-01 03:00:00' GROUP BY country"),
]


def write_visits(script, writer: str) -> str:
    """Writes the data with DuckDB or with Millstream; returns where they are."""
    path = script.folder / "visits.parquet"
    connection = duckdb.connect()
    connection.execute(f"COPY ({DATA}) TO '{path}' (FORMAT parquet, ROW_GROUP_SIZE 6000)")
    if writer == "duckdb":
        return path.name
    columns = "ts TIMESTAMP(6), n BIGINT, page STRING, own STRING, country STRING"
    copied = script.run(f"CREATE TABLE copy ({columns}) WITH ('connector' = 'file', 'format' = 'parquet', 'path' = 'copy');\n"
                        "INSERT INTO copy SELECT ts, n, page, own, country FROM 'visits.parquet';", workers=1)
    assert copied.code == 0, copied.stderr
    return "copy"


def expected(query: str, columns: str) -> list[tuple]:
    connection = duckdb.connect()
    connection.execute(f"CREATE TABLE visits AS {DATA}")
    rows = connection.execute(f"SELECT {columns} FROM ({query})").fetchall()
    return sorted(tuple("" if value is None else str(value) for value in row) for row in rows)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("writer", ["duckdb", "millstream"])
@pytest.mark.parametrize("more", ["", "file STRING METADATA FROM 'path', "])
def test_dictionaries_of_parquet_change_no_result(script, way, writer, more):
    path = write_visits(script, writer)
    for query, other in QUERIES:
        words = ["--processes", way["processes"], "--workers", 1] if "processes" in way else []
        settings = {key: value for key, value in way.items() if key != "processes"}
        result = script.run(TABLE.format(more, "parquet", path) + query + ";", *words, **settings)
        assert result.code == 0, (query, result.stderr)
        header, *lines = result.stdout.decode().splitlines()
        found = sorted(tuple(value.strip('"').removesuffix(".000") for value in line.split(",")) for line in lines)
        assert found == expected(other or query, header), query


@pytest.mark.parametrize("query", [
    "SELECT window_start, country, COUNT(*) AS c FROM TABLE(SESSION(TABLE visits PARTITION BY country, DESCRIPTOR(ts), "
    "INTERVAL '3' SECOND)) GROUP BY window_start, window_end, country",
    "SELECT window_start, page, COUNT(*) AS c FROM TABLE(CUMULATE(TABLE visits, DESCRIPTOR(ts), INTERVAL '10' MINUTE, "
    "INTERVAL '1' HOUR)) WHERE country LIKE 'F%' GROUP BY window_start, window_end, page",
])
def test_windows_of_dictionaries_are_those_of_csv(script, query):
    path = write_visits(script, "millstream")
    duckdb.connect().execute(f"COPY ({DATA}) TO '{script.folder / 'visits.csv'}'")
    of_csv = script.run(TABLE.format("", "csv', 'csv.header' = 'true", "visits.csv") + query + ";", workers=2)
    assert of_csv.code == 0 and of_csv.stats["rows"] > 10, of_csv.stderr
    for settings in ({"workers": 1}, {"workers": 3, "batch_rows": 500}):
        of_parquet = script.run(TABLE.format("", "parquet", path) + query + ";", **settings)
        assert of_parquet.stdout == of_csv.stdout, of_parquet.stderr

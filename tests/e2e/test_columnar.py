"""Parquet files that DuckDB writes, against CSV of the same rows, and damaged ones."""

import subprocess
from datetime import date, timedelta
from pathlib import Path

import duckdb
import harness
import pytest
from conftest import Script

# An hour, of which each minute has rows of its own; texts of few values and of many, NULLs, numbers of several types.
ROWS = """SELECT TIMESTAMP '2024-01-01 00:00:00' + INTERVAL (i * 36) MILLISECOND AS ts, i::BIGINT AS n,
    CASE WHEN i % 11 <> 0 THEN 'user ' || (i % 37) END AS user_name, 'text ' || i AS note,
    ((i % 1000) / 4)::DECIMAL(9, 2) AS price, i % 3 = 0 AS third, DATE '2024-01-01' + (i % 400)::INTEGER AS day,
    (i % 100)::TINYINT AS small, i::DOUBLE / 4 AS ratio
FROM range({rows}) AS all_rows(i) ORDER BY i"""
COLUMNS = ("ts TIMESTAMP(6), n BIGINT, user_name STRING, note STRING, price DECIMAL(10, 2), third BOOLEAN, day DATE, "
           "small INT, ratio DOUBLE")
# As CSV, with all that can be written in it.
CSV = "(HEADER, TIMESTAMPFORMAT '%Y-%m-%d %H:%M:%S.%f')"
BY_MINUTE = """SELECT window_start, third, COUNT(*) AS records, COUNT(user_name) AS users, MIN(note) AS least,
    MAX(day) AS latest, SUM(price) AS price, SUM(small) AS small, SUM(ratio) AS ratio
FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) {where}
GROUP BY window_start, window_end, third;"""


def table(path: str, format: str, delay: str = "") -> str:
    return (f"CREATE TABLE events ({COLUMNS}, WATERMARK FOR ts AS ts{delay}) "
            f"WITH ('connector' = 'file', 'path' = '{path}', 'format' = '{format}');\n")


def write(script: Script, name: str, options: str, rows: int = 100_000, more: str = "") -> Path:
    path = script.folder / name
    duckdb.sql(f"COPY ({ROWS.format(rows=rows)}{more}) TO '{path}' {options}")
    return path


def result(script: Script, sql: str, **settings: object) -> list[str]:
    done = script.run(sql, **settings)
    assert done.code == 0, done.stderr
    return sorted(done.stdout.decode().splitlines())


@pytest.fixture
def files(script: Script) -> list[str]:
    """The same rows in several files: as CSV, and as Parquet in several ways of writing it."""
    write(script, "rows.csv", CSV)
    for number, options in enumerate(["COMPRESSION zstd, ROW_GROUP_SIZE 10000", "COMPRESSION snappy",
                                      "COMPRESSION gzip, ROW_GROUP_SIZE 40000, PARQUET_VERSION V2",
                                      "COMPRESSION lz4, ROW_GROUP_SIZE 3000"]):
        write(script, f"rows-{number}.parquet", f"(FORMAT parquet, {options})")
    return [f"rows-{number}.parquet" for number in range(4)]


@pytest.mark.parametrize("workers", [1, 3])
def test_what_duckdb_writes_is_what_csv_has(script, files, workers):
    query = BY_MINUTE.format(where="")
    expected = result(script, table("rows.csv", "csv") + query, workers=workers)
    assert len(expected) > 100
    for path in files:
        assert result(script, table(path, "parquet") + query, workers=workers) == expected, path


@pytest.mark.parametrize("where", [
    "WHERE n < 25000",
    "WHERE n >= 99000 AND third",
    "WHERE ts >= TIMESTAMP '2024-01-01 00:30:00' AND ts < TIMESTAMP '2024-01-01 00:31:00'",
    "WHERE user_name = 'user 7' AND n BETWEEN 50000 AND 52000",
    "WHERE user_name > 'v'",
    "WHERE day = DATE '2025-02-03' AND note LIKE '%9'",
    "WHERE 100000 / (n + 1) > 5 AND n < 70000",
    "WHERE n < 20000 OR third",
])
def test_rows_left_out_by_statistics_change_no_result(script, files, where):
    """Records come in a disorder that makes some late: those that are left out move the watermark, too."""
    mixed = " + (CASE WHEN i % 1000 = 999 THEN -5000 ELSE 0 END)"
    rows = ROWS.replace("(i * 36)", f"((i * 36){mixed})")
    for name, options in [("mixed.csv", CSV), ("mixed.parquet", "(FORMAT parquet, ROW_GROUP_SIZE 5000)")]:
        duckdb.sql(f"COPY ({rows.format(rows=100_000)}) TO '{script.folder / name}' {options}")
    query = BY_MINUTE.format(where=where)
    for csv, parquet in [("rows.csv", files[0]), ("mixed.csv", "mixed.parquet")]:
        runs = [script.run(table(path, format) + query, workers=2)
                for path, format in [(csv, "csv"), (parquet, "parquet")]]
        assert [run.code for run in runs] == [0, 0], runs[1].stderr
        assert sorted(runs[0].stdout.splitlines()) == sorted(runs[1].stdout.splitlines()), where
        # All records count, also those that are left out, and as many are late.
        for counter in ["records", "late_records", "null_time_records"]:
            assert runs[0].stats[counter] == runs[1].stats[counter], counter


def test_columns_of_rows_left_out_are_not_read(script):
    """A damaged column chunk is found by whoever reads it."""
    path = write(script, "rows.parquet", "(FORMAT parquet, ROW_GROUP_SIZE 10000)")
    [(start, length)] = duckdb.sql(f"""SELECT data_page_offset, total_compressed_size FROM parquet_metadata('{path}')
        WHERE row_group_id = 3 AND path_in_schema = 'note'""").fetchall()
    whole = path.read_bytes()
    path.write_bytes(whole[:start] + bytes(length) + whole[start + length:])
    for where, reads in [("", True), ("WHERE n < 30000", False), ("WHERE n >= 35000 AND n < 35001", True),
                         ("WHERE n = 95000", False), ("WHERE n < 30000 AND 1 / (n + 1) >= 0", True)]:
        done = script.run(table("rows.parquet", "parquet") + BY_MINUTE.format(where=where))
        assert (done.code != 0) == reads, (where, done.stderr)
        if reads:
            assert "rows.parquet, row group 3" in done.stderr, done.stderr


def test_processes_share_a_file(script, files):
    query = "SELECT third, COUNT(*) AS records, SUM(n) AS n FROM events GROUP BY third;"
    expected = result(script, table("rows.csv", "csv") + query)
    for path in files[:2]:
        done = script.run(table(path, "parquet") + query, "--processes", 2, workers=1)
        assert done.code == 0 and sorted(done.stdout.decode().splitlines()) == expected, done.stderr


def test_a_dictionary_far_smaller_than_its_rows_stays_within_memory(script):
    """A column of long texts, of which there are few: 30 MB unpacked per hundred kilobytes packed."""
    path = script.folder / "texts.parquet"
    duckdb.sql(f"""COPY (SELECT i::BIGINT AS n, repeat('long text ' || (i % 100), 100) AS s FROM range(1000000) AS r(i))
        TO '{path}' (FORMAT parquet)""")
    assert path.stat().st_size * 100 < 1_000_000 * 1100
    sql = ("CREATE TABLE t (n BIGINT, s STRING) WITH ('connector' = 'file', 'path' = 'texts.parquet', "
           "'format' = 'parquet');\nSELECT s, COUNT(*) AS records FROM t GROUP BY s;")
    rows = result(script, sql, memory="64MB", workers=2)
    assert len(rows) == 101 and all(line.endswith(",10000") for line in rows[:-1])


def test_damaged_files_are_errors_with_their_place(script):
    path = write(script, "rows.parquet", "(FORMAT parquet, ROW_GROUP_SIZE 3000)", rows=10_000)
    whole = path.read_bytes()
    sql = table("rows.parquet", "parquet") + BY_MINUTE.format(where="")
    for end in [0, 3, 8, 100, len(whole) // 2, len(whole) - 1]:
        path.write_bytes(whole[:end])
        done = script.run(sql)
        assert done.code != 0 and "rows.parquet" in done.stderr, (end, done.stderr)
        assert "panicked" not in done.stderr, done.stderr
    # Zeros in the pages, and in what says where they lie.
    for start in range(4, len(whole), len(whole) // 25):
        path.write_bytes(whole[:start] + bytes(40) + whole[start + 40:])
        done = script.run(sql)
        assert done.code == 0 or "rows.parquet" in done.stderr, (start, done.stderr)
        assert "panicked" not in done.stderr, done.stderr


@pytest.mark.parametrize("name", ["file.arrow", "plain.arrow", "stream.arrow", "pages.parquet", "instants.parquet"])
@pytest.mark.parametrize("where", ["", " WHERE n >= 26", " WHERE n = 5"])
def test_what_pyarrow_writes(script, name, where):
    """Files of `columnar/write.py`, whose types are all laid out in other ways than they are kept."""
    format = "arrow" if name.endswith(".arrow") else "parquet"
    script.data(name, (Path(__file__).parent / "columnar" / name).read_bytes())
    sql = (f"CREATE TABLE t (n BIGINT, `text` STRING, `view` STRING, name STRING, price DECIMAL(9, 2), ts TIMESTAMP(9), "
           f"`at` TIMESTAMP_LTZ(9), `day` DATE) WITH ('connector' = 'file', 'path' = '{name}', 'format' = '{format}');\n"
           f"SELECT * FROM t{where};")
    expected = []
    for n in range(40):
        text = f"text {n}" if n % 5 else ""
        day = date(2024, 1, 1) + timedelta(days=n)
        time = f"{day} 00:00:00.000000000"
        expected.append(f"{n},{text},{text},name {n % 3},{n / 4:.2f},{time},{time}Z,{day}")
    wanted = {"": expected, " WHERE n >= 26": expected[26:], " WHERE n = 5": expected[5:6]}[where]
    done = script.run(sql, workers=1)
    assert done.code == 0, done.stderr
    if name == "instants.parquet":
        # Instants of 96 bits say nothing of zones.
        wanted = [row.replace("Z,", ",") for row in wanted]
        assert [row.replace("Z,", ",") for row in done.stdout.decode().splitlines()[1:]] == wanted
    else:
        assert done.stdout.decode().splitlines()[1:] == wanted


def test_a_stream_is_read_from_a_pipe(script):
    path = Path(__file__).parent / "columnar" / "stream.arrow"
    sql = script.write("CREATE TABLE t (n BIGINT) WITH ('connector' = 'file', 'path' = '/dev/stdin', 'format' = 'arrow');"
                       "SELECT COUNT(*) AS records, SUM(n) AS n FROM t;")
    command = [str(harness.program()), "run", "--format", "csv", str(sql)]
    with subprocess.Popen(["cat", path], stdout=subprocess.PIPE) as cat:
        done = subprocess.run(command, stdin=cat.stdout, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "records,n\n40,780\n"), done.stderr

"""Metadata columns: where a record stands, and of which file. What they must be is known from the bytes of the files,
and is the same for any number of workers and processes and any batch size."""

import gzip
import os
import socket
import subprocess

import harness
import pytest
from listened import PATIENCE_SECONDS, Listened

RECORDS = 3000
METADATA = "path STRING NOT NULL METADATA, at BIGINT METADATA FROM 'offset' VIRTUAL"
WAYS = [(1, 1, 5000), (3, 1, 7), (1, 2, 100), (2, 2, 999)]


def table(options: str, columns: str = "n BIGINT", name: str = "t") -> str:
    return f"CREATE TABLE {name} ({columns}, {METADATA}) WITH ({options});\n"


def file(path: str, format: str) -> str:
    return f"'connector' = 'file', 'path' = '{path}', 'format' = '{format}'"


def lines(format: str, count: int = RECORDS, first: int = 0) -> list[str]:
    """Lines of lengths that differ, each with its number."""
    numbers = range(first, first + count)
    return {"csv": [f"{n},{'x' * (n % 41)}\n" for n in numbers],
            "ndjson": [f'{{"s": "{"é" * (n % 13)}", "n": {n}}}\r\n' for n in numbers],
            "raw": [f"{n}{' ' * (n % 5)}\n" for n in numbers]}[format]


def offsets(text: list[str], first: int = 0, at: int = 0) -> list[tuple[int, int]]:
    """Number and offset of each line."""
    found = []
    for n, line in enumerate(text, first):
        found.append((n, at))
        at += len(line.encode())
    return found


def in_order(result: harness.Run) -> list[list[str]]:
    assert result.code == 0, result.stderr
    return sorted(harness.parse_csv(result.stdout.decode())[1:], key=lambda row: (row[0], int(row[1])))


@pytest.mark.parametrize("workers, processes, batch_rows", WAYS)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("format", ["csv", "ndjson", "raw"])
def test_the_offset_of_a_line_is_that_of_its_first_byte(script, format, packed, workers, processes, batch_rows):
    expected = []
    for number, name in enumerate(["a", "b", "c"]):
        text = lines(format, RECORDS, number * RECORDS)
        data = "".join(text).encode()
        script.data(name, gzip.compress(data) if packed else data)
        expected += [[str(script.folder / name), str(at), str(n)] for n, at in offsets(text, number * RECORDS)]
    columns = {"csv": "n BIGINT, s STRING", "ndjson": "n BIGINT", "raw": "line STRING"}[format]
    n = "CAST(TRIM(line) AS BIGINT)" if format == "raw" else "n"
    sql = table(file("[abc]", format), columns) + f"SELECT path, at, {n} AS n FROM t;"
    result = script.run(sql, "--processes", processes, workers=workers, batch_rows=batch_rows)
    assert in_order(result) == sorted(expected, key=lambda row: (row[0], int(row[1])))


@pytest.mark.parametrize("workers, processes, batch_rows", WAYS)
@pytest.mark.parametrize("format", ["parquet", "arrow"])
def test_the_offset_in_a_column_file_is_the_row_number(script, format, workers, processes, batch_rows):
    script.data("t.csv", "".join(lines("csv")))
    options = file("out", format) + (", 'parquet.block.size' = '64 KB'" if format == "parquet" else "")
    made = ("CREATE TABLE t (n BIGINT, s STRING) WITH (" + file("t.csv", "csv") + ");\n"
            f"CREATE TABLE o (n BIGINT, s STRING) WITH ({options});\nINSERT INTO o SELECT n, s FROM t;")
    assert script.run(made, workers=1, batch_rows=100).code == 0
    part = script.folder / "out" / "part-0-0"
    for query in ["SELECT path, at, n FROM t;", "SELECT path, at, at AS n FROM t;"]:
        result = script.run(table(file("out", format)) + query, "--processes", processes, workers=workers,
                            batch_rows=batch_rows)
        assert in_order(result) == [[str(part), str(n), str(n)] for n in range(RECORDS)]
    # What a condition leaves out does not change what the others are.
    result = script.run(table(file("out", format)) + "SELECT path, at, n FROM t WHERE n >= 2990 AND at > 0;")
    assert [row[1:] for row in in_order(result)] == [[str(n), str(n)] for n in range(2990, RECORDS)]


def test_records_of_several_lines_headers_marks_and_blank_lines(script):
    parts = ["\ufeff", "n,s\r\n", "\r\n", '1,"a\nb"\r\n', "\n", "2,é\r\n", '3,""\n', "4,x"]
    script.data("x.csv", "".join(parts))
    starts = [sum(len(part.encode()) for part in parts[:i]) for i in (3, 5, 6, 7)]
    sql = table(file("x.csv", "csv"), "s STRING, n BIGINT") + "SELECT path, at, n FROM t;"
    for workers, processes, batch_rows in WAYS:
        result = script.run(sql, "--processes", processes, workers=workers, batch_rows=batch_rows)
        assert [row[1:] for row in in_order(result)] == [[str(at), str(n)] for n, at in enumerate(starts, 1)]
    # Malformed records that are left out do not move the others.
    script.data("x.csv", "1,a\nx,b\n3,c\n3,c,d\n5,e\n")
    skip = table(file("x.csv", "csv") + ", 'on_error' = 'skip'", "n BIGINT, s STRING") + "SELECT path, at, n FROM t;"
    for batch_rows in (1, 2, 100):
        assert [row[1:] for row in in_order(script.run(skip, batch_rows=batch_rows))] == \
            [["0", "1"], ["8", "3"], ["18", "5"]]


@pytest.mark.parametrize("processes", [1, 2])
def test_when_a_file_was_last_written(script, processes):
    for name, seconds in [("a", 1_700_000_000), ("b", -1)]:
        script.data(name, "1\n")
        os.utime(script.folder / name, ns=(0, seconds * 10**9 + 123_456_789))
    columns = ("n BIGINT, s TIMESTAMP(0) METADATA FROM 'file.modified', "
               "`file.modified` TIMESTAMP(3) NOT NULL METADATA VIRTUAL, "
               "z TIMESTAMP_LTZ(6) METADATA FROM 'file.modified' VIRTUAL")
    sql = (f"CREATE TABLE t ({columns}) WITH ({file('[ab]', 'csv')});\n"
           "SELECT s, `file.modified` AS m, CAST(z AS TIMESTAMP(6)) AS z FROM t ORDER BY s LIMIT 9;")
    result = script.run(sql, "--processes", processes)
    assert harness.parse_csv(result.stdout.decode())[1:] == [
        ["1969-12-31 23:59:59", "1969-12-31 23:59:59.123", "1969-12-31 23:59:59.123456"],
        ["2023-11-14 22:13:20", "2023-11-14 22:13:20.123", "2023-11-14 22:13:20.123456"]], result.stderr


@pytest.mark.parametrize("workers, processes, batch_rows", WAYS)
def test_event_time_may_be_computed_of_metadata(script, workers, processes, batch_rows):
    """A record's second is its offset: two bytes each, so thirty records are in a minute."""
    script.data("x.csv", "1\n" * 100)
    sql = ("CREATE TABLE t (n BIGINT, at BIGINT METADATA FROM 'offset', ts AS TO_TIMESTAMP_SECONDS(at), "
           f"WATERMARK FOR ts AS ts) WITH ({file('x.csv', 'csv')});\n"
           "SELECT window_start, COUNT(*) AS n, SUM(at) AS s FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), "
           "INTERVAL '1' MINUTE)) GROUP BY window_start, window_end;")
    result = script.run(sql, "--processes", processes, workers=workers, batch_rows=batch_rows)
    expected = [[f"1970-01-01 00:0{m}:00.000", str(len(at)), str(sum(at))]
                for m in range(4) if (at := [i * 2 for i in range(100) if i * 2 // 60 == m])]
    assert harness.parse_csv(result.stdout.decode())[1:] == expected, result.stderr


def test_tables_that_are_like_others_and_tables_that_are_written(script):
    script.data("x.csv", "7\n8\n")
    sql = (table(file("x.csv", "csv")) + "CREATE TABLE u (twice AS at * 2) LIKE t;\n"
           "CREATE TABLE o (n BIGINT, at BIGINT METADATA FROM 'offset' VIRTUAL, "
           f"path STRING METADATA VIRTUAL, m BIGINT) WITH ({file('out', 'ndjson')});\n"
           "INSERT INTO o SELECT n, twice FROM u;\nSELECT n, m, at, path FROM o;")
    result = script.run(sql, workers=1)
    assert result.code == 0, result.stderr
    written = str(script.folder / "out" / "part-0-0")
    assert (script.folder / "out" / "part-0-0").read_text() == '{"n":7,"m":0}\n{"n":8,"m":4}\n'
    assert harness.parse_csv(result.stdout.decode())[1:] == [["7", "0", "0", written], ["8", "4", "14", written]]


def test_standard_input_has_offsets_and_no_path(script):
    sql = "CREATE TABLE t (n BIGINT, {}) WITH ('connector' = 'stdin', 'format' = 'csv');\nSELECT n, at FROM t;"
    query = script.write(sql.format("at BIGINT METADATA FROM 'offset'"))
    for words in [[], ["--processes", "2"]]:
        result = subprocess.run([str(harness.program()), "run", str(query), "--format", "csv", *words],
                                capture_output=True, input="10\n\n200\n3", text=True, timeout=60)
        # A blank line is a record where there is a single column.
        assert result.stdout == "n,at\n10,0\n,3\n200,4\n3,8\n", result.stderr
    result = script.run(sql.format("at STRING METADATA FROM 'path'"))
    assert result.code != 0 and "'stdin' has no metadata 'path'" in result.stderr, result.stderr
    assert "'offset' (BIGINT)" in result.stderr, result.stderr


def test_lines_over_tcp_have_offsets(script):
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(PATIENCE_SECONDS)
        options = f"'hostname' = 'localhost', 'port' = '{server.getsockname()[1]}', 'format' = 'raw'"
        sql = (f"CREATE TABLE t (s STRING, at BIGINT METADATA FROM 'offset') WITH ('connector' = 'socket', {options});\n"
               "SELECT at, s FROM t;")
        job = Listened(script.write(sql))
        try:
            with server.accept()[0] as sender:
                sender.sendall(b"a\nbc")
                assert [job.next(), job.next()] == ["at,s", "0,a"]
                sender.sendall(b"d\n\nlast")
            assert [job.next(), job.next(), job.next()] == ["2,bcd", '6,""', "7,last"]
            job.ended()
        finally:
            job.kill()


def test_files_that_are_followed(script):
    script.data("a.log", "x\n")
    sql = ("CREATE TABLE t (s STRING, path STRING METADATA, at BIGINT METADATA FROM 'offset') "
           f"WITH ({file('*.log', 'raw')}, 'follow' = 'true');\nSELECT path, at, s FROM t;")
    job = Listened(script.write(sql))
    try:
        assert [job.next(), job.next()] == ["path,at,s", f"{script.folder}/a.log,0,x"]
        with open(script.folder / "a.log", "a") as log:
            log.write("yy\nz")
            log.flush()
            assert job.next() == f"{script.folder}/a.log,2,yy"
            script.data("b.log", "new\n")
            assert job.next() == f"{script.folder}/b.log,0,new"
            log.write("!\n")
        assert job.next() == f"{script.folder}/a.log,5,z!"
    finally:
        job.kill()


def test_a_pipe_was_never_written(script):
    sql = ("CREATE TABLE t (n BIGINT, path STRING METADATA, m TIMESTAMP(3){} METADATA FROM 'file.modified') WITH ("
           + file("/dev/stdin", "csv") + ");\nSELECT n, path, m FROM t;")
    for null, expected in [("", "1,/dev/stdin,\n"), (" NOT NULL", None)]:
        result = subprocess.run([str(harness.program()), "run", str(script.write(sql.format(null))), "--format", "csv"],
                                capture_output=True, input="1\n", text=True, timeout=60)
        if expected:
            assert result.stdout == "n,path,m\n" + expected, result.stderr
        else:
            assert result.returncode == 1, result.stdout
            assert "column 'm' is NOT NULL, and nothing says when this was last written" in result.stderr

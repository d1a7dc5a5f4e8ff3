"""Files that are damaged, odd or out of reach: each is read as it should be, or refused with its place and a way on."""

import gzip
import json
import os
import re
import shutil
import subprocess

import duckdb
import harness
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import cannot_run

GOOD = '{"a": 1, "s": "x"}\n'


def rows(result: harness.Run) -> list[str]:
    assert result.code == 0, result.stderr
    return result.stdout.decode().splitlines()[1:]


def statement(message: str) -> str:
    """The CREATE TABLE that a message shows."""
    found = re.search(r"CREATE TABLE .*?\)\s*WITH \(.*?\);", message, re.DOTALL)
    assert found, message
    return found[0] + "\n"


@pytest.mark.parametrize("lines, name, place", [
    (GOOD * 50 + "Traceback (most recent call last):\n" + GOOD * 50, "big.ndjson", "big.ndjson:51:1"),
    ("a,s\n" + "1,x\n" * 50 + "Traceback,most,recent\n" + "1,x\n" * 50, "big.csv", "big.csv:52:"),
])
def test_one_line_that_is_no_record_shows_what_leaves_it_out(script, lines, name, place):
    """Both from FROM and, where nothing can be declared without it, from init."""
    script.data(name, lines)
    result = script.run(f"SELECT COUNT(*) AS n FROM '{name}';")
    assert result.code != 0 and place in result.stderr and "on_error" in result.stderr, result.stderr
    declared = statement(result.stderr)
    assert rows(script.run(declared + "SELECT COUNT(*) AS n, SUM(a) AS s FROM big;")) == ["100,100"]
    shown = harness.run("init", script.folder / name, stats=False)
    if name.endswith("ndjson"):
        assert shown.code != 0 and "on_error" in shown.stderr and place in shown.stderr, shown.stderr
        assert "CREATE TABLE big" in shown.stderr
    else:
        assert shown.code == 0 and b"'on_error' = 'skip'" in shown.stdout, shown.stdout


CSV = "CREATE TABLE t (a BIGINT, s STRING) WITH ('connector' = 'file', 'format' = '{}', 'path' = '{}');\n"


@pytest.mark.parametrize("workers, rows_of_batch", [(1, 1), (3, 7), (2, 16384)])
def test_marks_line_ends_and_packing_make_no_difference(script, workers, rows_of_batch):
    """A byte order mark, CRLF, and parts of gzip that end within a line."""
    csv = "\ufeffa,s\r\n" + "".join(f"{n},x{n}\r\n" for n in range(500))
    ndjson = "\ufeff" + "".join(f'{{"a": {n}, "s": "x{n}"}}\r\n' for n in range(500))
    for format, text in [("csv", csv), ("ndjson", ndjson)]:
        data = text.encode()
        parts = b"".join(gzip.compress(data[start:start + 1001]) for start in range(0, len(data), 1001))
        script.data(f"plain.{format}", data)
        script.data(f"packed.{format}.gz", parts)
        for name in [f"plain.{format}", f"packed.{format}.gz"]:
            result = script.run(CSV.format(format, name) + "SELECT COUNT(*) AS n, SUM(a) AS a, MAX(s) AS s FROM t;",
                                workers=workers, batch_rows=rows_of_batch)
            assert rows(result) == ["500,124750,x99"]


@pytest.mark.parametrize("workers, rows_of_batch", [(1, 1), (2, 16384)])
@pytest.mark.parametrize("format, line", [("csv", b"7,a\xff\xfeb\n"), ("ndjson", b'{"a": 7, "s": "a\xff\xfeb"}\n')])
def test_broken_utf8_is_an_error_with_its_place(script, format, line, workers, rows_of_batch):
    good = {"csv": b"1,x\n", "ndjson": b'{"a": 1, "s": "x"}\n'}[format]
    script.data("x", good * 99 + line + good * 99)
    query = "SELECT COUNT(*) AS n, COUNT(s) AS s FROM t;"
    result = script.run(CSV.format(format, "x") + query, workers=workers, batch_rows=rows_of_batch)
    assert result.code == 1 and "x:100:" in result.stderr and "UTF-8" in result.stderr, result.stderr
    skip = CSV.format(format, "x").replace("'connector'", "'on_error' = 'skip', 'connector'")
    assert rows(script.run(skip + query, workers=workers, batch_rows=rows_of_batch)) == ["198,198"]


@pytest.mark.parametrize("format, beginning", [("csv", b'1,"'), ("csv", b"1,"), ("ndjson", b'{"a": 1, "s": "')])
def test_a_line_of_100_mb_is_refused_with_its_place(script, format, beginning):
    good = {"csv": b"1,x\n", "ndjson": b'{"a": 1, "s": "x"}\n'}[format]
    script.data("x", good * 2 + beginning + b"y" * 100_000_000 + b"\n" + good)
    result = script.run(CSV.format(format, "x") + "SELECT COUNT(*) AS n FROM t WHERE s <> 'z';", workers=2)
    assert result.code == 1 and "x:3:" in result.stderr and "help" in result.stderr, result.stderr


@pytest.mark.parametrize("beside", ["file", "packed", "stdin"])
@pytest.mark.parametrize("format, beginning", [("csv", b'1,"'), ("csv", b"1,"), ("ndjson", b'{"a": 1, "s": "')])
def test_a_line_of_100_mb_is_left_out_where_malformed_records_are(script, format, beginning, beside):
    """Its first 64 KiB are kept."""
    good = {"csv": b"1,x\n", "ndjson": b'{"a": 1, "s": "x"}\n'}[format]
    long = beginning + b"y" * 100_000_000
    data = good * 2 + long + b"\n" + good
    script.data("x", gzip.compress(data, 1) if beside == "packed" else data)
    table = CSV.format(format, "x").replace("'connector'", "'on_error' = 'table:bad', 'connector'")
    if beside == "packed":
        shutil.move(script.folder / "x", script.folder / "x.gz")
        table = table.replace("'x'", "'x.gz'")
    if beside == "stdin":
        table = table.replace("'file'", "'stdin'").replace(", 'path' = 'x'", "")
    bad = "CREATE TABLE bad (raw STRING, place STRING, reason STRING) WITH ('connector' = 'file', 'format' = 'ndjson', 'path' = 'bad');\n"
    path = script.write(bad + table + "SELECT COUNT(*) AS n, SUM(a) AS a FROM t;")
    words = [harness.program(), "run", path, "--format", "csv", "--workers", "2"]
    with open(script.folder / "x" if beside == "stdin" else os.devnull, "rb") as given:
        result = subprocess.run(words, stdin=given, capture_output=True)
    assert (result.returncode, result.stdout) == (0, b"n,a\n3,3\n"), result.stderr
    assert b"1 malformed record left out" in result.stderr, result.stderr
    [row] = [json.loads(line) for part in (script.folder / "bad").glob("part-*") for line in part.open()]
    assert row["raw"].encode() == long[:64 << 10]
    assert re.search(r":3:\d+$", row["place"]) and "64 MiB" in row["reason"], row


def test_a_line_of_100_mb_at_the_end_is_left_out(script):
    """It has no line end, and no other process takes it for a record of its own."""
    script.data("x", b"1,x\n" * 2 + b"1," + b"y" * 100_000_000)
    table = CSV.format("csv", "x").replace("'connector'", "'on_error' = 'skip', 'connector'")
    for words in ([], ["--processes", 2]):
        result = script.run(table + "SELECT COUNT(*) AS n FROM t;", *words, workers=1)
        assert rows(result) == ["2"] and result.stats["malformed_records"] == 1, result.stderr


def test_ten_thousand_columns(script):
    """From a file in FROM, and a few of them."""
    names = [f"c{n}" for n in range(10_000)]
    script.data("wide.csv", ",".join(names) + "\n" + ",".join(str(n) for n in range(10_000)) + "\n" +
                ",".join("1" for _ in names) + "\n")
    script.data("wide.ndjson", "{" + ", ".join(f'"{name}": {n}' for n, name in enumerate(names)) + "}\n")
    assert rows(script.run("SELECT SUM(c9999) AS a, SUM(c1) AS b FROM 'wide.csv';")) == ["10000,2"]
    assert rows(script.run("SELECT SUM(c9999) AS a, SUM(c1) AS b FROM 'wide.ndjson';")) == ["9999,1"]
    columns = ", ".join(f"{n} AS {name}" for n, name in enumerate(names[:3000]))
    duckdb.sql(f"COPY (SELECT {columns}) TO '{script.folder / 'wide.parquet'}' (FORMAT parquet)")
    assert rows(script.run("SELECT SUM(c2999) AS a FROM 'wide.parquet';")) == ["2999"]


def test_columns_of_one_name(script):
    """By name neither can be meant; a file in FROM names the second by its field's number."""
    script.data("x.csv", "a,s,a\n1,x,2\n")
    result = script.run(CSV.format("csv", "x.csv") + "SELECT a FROM t;")
    assert result.code != 0 and "x.csv" in result.stderr and "'a'" in result.stderr, result.stderr
    assert rows(script.run("SELECT a, a_3 FROM 'x.csv';")) == ["1,2"]


def unprivileged() -> list[str]:
    """What runs a program without root's right to pass over all others."""
    if os.geteuid() != 0:
        return []
    setpriv = shutil.which("setpriv")
    if not setpriv:
        cannot_run("there is no setpriv")
    return [setpriv, "--bounding-set", "-dac_override,-dac_read_search"]


def test_a_directory_or_file_without_rights_is_said_with_what_to_do(script):
    prefix = unprivileged()
    folder = script.folder / "closed"
    folder.mkdir()
    (folder / "x.csv").write_text("a\n1\n")
    script.data("closed.csv", "a\n1\n")
    (script.folder / "closed.csv").chmod(0)
    folder.chmod(0)
    try:
        for path, follow in [("closed", ""), ("closed/x.csv", ""), ("closed/*.csv", ""), ("closed.csv", ""),
                             ("closed", "'follow' = 'true', ")]:
            text = ("CREATE TABLE t (a BIGINT) WITH ('connector' = 'file', 'format' = 'csv', "
                    f"{follow}'path' = '{path}');\nSELECT a FROM t;\n")
            command = [*prefix, str(harness.program()), "run", str(script.write(text))]
            result = subprocess.run(command, capture_output=True, text=True, timeout=60)
            assert result.returncode in (1, 2) and result.stdout == "", (path, result)
            assert "closed" in result.stderr and "ermission denied" in result.stderr, (path, result.stderr)
            assert "help" in result.stderr, (path, result.stderr)
    finally:
        folder.chmod(0o755)


FILES = "CREATE TABLE t (a BIGINT{}) {}WITH ('connector' = 'file', 'format' = 'csv', 'path' = '{}');\n"


@pytest.mark.parametrize("sql", [
    "SELECT COUNT(*) AS n FROM 'g/*/*.csv';",
    "SELECT COUNT(*) AS n FROM 'g/*/x.csv';",
    "SELECT COUNT(*) AS n FROM 'g/**/*.csv';",
    FILES.format("", "", "g/*/*.csv") + "SELECT COUNT(*) AS n FROM t;",
    FILES.format("", "", "g/b") + "SELECT COUNT(*) AS n FROM t;",
    FILES.format("", "", "g/b/*") + "SELECT COUNT(*) AS n FROM t;",
    FILES.format("", "", "g/*/*.csv', 'follow' = 'true") + "SELECT a FROM t;",
    FILES.format(", k BIGINT", "PARTITIONED BY (k) ", "p") + "SELECT COUNT(*) AS n FROM t;",
    "SELECT COUNT(*) AS n FROM 'g/b';",
])
def test_a_directory_that_may_only_be_listed_leaves_no_file_out(script, sql):
    """Its entries can be seen, and not looked at."""
    prefix = unprivileged()
    for name in ["g/a", "g/b", "p/k=1", "p/k=2"]:
        (script.folder / name).mkdir(parents=True)
        (script.folder / name / "x.csv").write_text("a\n1\n")
    closed = [script.folder / "g/b", script.folder / "p/k=2"]
    for folder in closed:
        folder.chmod(0o644)
    try:
        command = [*prefix, str(harness.program()), "run", str(script.write(sql))]
        result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    finally:
        for folder in closed:
            folder.chmod(0o755)
    assert result.returncode in (1, 2) and result.stdout == "", result
    assert re.search(r"(g/b|p/k=2)/x\.csv\S*: Permission denied", result.stderr), result.stderr
    assert "chmod" in result.stderr, result.stderr


def test_a_link_that_leads_nowhere_is_said(script):
    script.data("x.csv", "a\n1\n")
    (script.folder / "y.csv").symlink_to("gone.csv")
    for path in ["y.csv", "*.csv", "."]:
        result = script.run(f"SELECT COUNT(*) AS n FROM '{path}';")
        assert result.code != 0 and "leads nowhere, to 'gone.csv'" in result.stderr, (path, result.stderr)
        assert "y.csv" in result.stderr and "help" in result.stderr, (path, result.stderr)


def test_a_link_in_a_circle_is_not_followed(script):
    (script.folder / "s").mkdir()
    script.data("s/x.csv", "a\n1\n")
    (script.folder / "s" / "loop").symlink_to(".")
    assert rows(script.run("SELECT COUNT(*) AS n FROM 's/**/*.csv';")) == ["1"]


def skippable(first: int, content: bytes) -> bytes:
    """A frame of zstd that readers leave out."""
    return bytes([first, 0x2a, 0x4d, 0x18]) + len(content).to_bytes(4, "little") + content


def test_zstd_that_begins_with_a_frame_to_leave_out(script):
    """As pzstd writes it. The frame of one block that is not packed is written by hand (RFC 8878)."""
    text = b"a\n1\n2\n"
    header = bytes([0x28, 0xb5, 0x2f, 0xfd, 0x20, len(text)])  # one segment, its length in one byte
    block = ((len(text) << 3) | 1).to_bytes(3, "little") + text  # the last, as it is
    packed = skippable(0x50, b"1234") + header + block + skippable(0x5f, b"")
    script.data("x.csv.zst", packed)
    script.data("plain.csv", packed)
    for name in ["x.csv.zst", "plain.csv"]:
        assert rows(script.run(f"SELECT COUNT(*) AS n, SUM(a) AS a FROM '{name}';")) == ["2,3"]


def test_what_is_behind_gzip(script):
    """Zeros fill a block of a tape; anything else is no data."""
    packed = gzip.compress(b"a\n1\n2\n")
    script.data("zeros.csv.gz", packed + bytes(1000))
    assert rows(script.run("SELECT COUNT(*) AS n FROM 'zeros.csv.gz';")) == ["2"]
    script.data("more.csv.gz", packed + bytes(3) + b"rubbish")
    result = script.run("SELECT COUNT(*) AS n FROM 'more.csv.gz';")
    assert result.code != 0 and f"offset {len(packed) + 3}" in result.stderr, result.stderr
    assert "more.csv.gz" in result.stderr and "in the middle" not in result.stderr, result.stderr


@pytest.mark.parametrize("format", ["parquet", "arrow"])
def test_batches_have_the_rows_that_the_setting_says_in_every_format(script, format):
    """A filter with an error in one row: the batch before it has been printed, whatever the format decodes at once."""
    script.data("x.csv", "a,s\n" + "".join(f"{n},x\n" for n in range(5000)))
    into = (f"CREATE TABLE w (a BIGINT, s STRING) WITH ('connector' = 'file', 'format' = '{format}', 'path' = 'out');\n"
            "INSERT INTO w SELECT a, s FROM t;\n")
    assert script.run(CSV.format("csv", "x.csv") + into, workers=1).code == 0
    read = (f"CREATE TABLE r (a BIGINT) WITH ('connector' = 'file', 'format' = '{format}', 'path' = 'out/part-0-0');\n"
            "SELECT a, 1 / (a - 4999) AS b FROM r;")
    for rows_of_batch, expected in [(16384, 0), (1000, 4000), (10, 4990)]:
        result = script.run(read, workers=1, batch_rows=rows_of_batch)
        assert result.code == 1 and "division" in result.stderr.lower(), result.stderr
        assert len(result.stdout.splitlines()[1:]) == expected, result.stderr


def made(options: str, columns: str = "a BIGINT") -> str:
    return f"CREATE TABLE t ({columns}) WITH ('connector' = 'file', {options});\n"


@pytest.mark.parametrize("sql, message, way_on", [
    (made("'path' = 'o', 'format' = 'parquet', 'parquet.compresion' = 'zstd'") + "INSERT INTO t SELECT a FROM 'x.csv';",
     "parquet.compresion", "did you mean 'parquet.compression'?"),
    (made("'path' = 'x.csv', 'formt' = 'csv'") + "SELECT a FROM t;", "needs a format", "did you mean 'format' by 'formt'?"),
    (made("'pth' = 'x.csv', 'format' = 'csv'") + "SELECT a FROM t;", "option 'pth'", "did you mean 'path'?"),
    ("INSERT INTO 'out.csv' SELECT a FROM 'x.csv';", "'out.csv' is a file", "CREATE TABLE results"),
    ("CREATE TABLE t LIKE 'x.csv';", "'x.csv' is a file", "millstream init x.csv"),
    ("FROM 'x.csv';", "expected a statement, found FROM", "SELECT * FROM"),
    ("SELECT * FROM read_csv('x.csv');", "read_csv", "FROM 'data.csv'"),
    ("SELECT * FROM '';", "none is there", "FROM 'data/events.csv'"),
    (made("'path' = 'o', 'format' = 'raw'", "s STRING") + "INSERT INTO t SELECT CAST(a AS STRING) FROM 'x.csv';",
     "raw is read, and not written", "csv, ndjson, parquet and arrow"),
    (made("'path' = 'x.csv', 'format' = 'raw'") + "SELECT a FROM t;", "type BIGINT", "declare the column STRING"),
    (made("'path' = 'half.csv', 'format' = 'csv'") + "SELECT a FROM t;", "half.csv:2:1", "DOUBLE or DECIMAL"),
    (made("'path' = 'x.csv', 'format' = 'csv', 'csv.field-delimiter' = 'ab'") + "SELECT a FROM t;", "one ASCII character", "tabulator"),
    (made("'path' = 'x.csv', 'format' = 'csv', 'csv.header' = 'no'") + "SELECT a FROM t;", "expected 'auto'", "names the columns"),
])
def test_messages_show_a_way_on(script, sql, message, way_on):
    script.data("x.csv", "a\n1\n")
    script.data("half.csv", "a\n1.25\n")
    result = script.run(sql)
    assert result.code != 0 and message in result.stderr, result.stderr
    assert way_on in result.stderr.split("help: ", 1)[1], result.stderr


def test_null_within_what_may_have_none_is_said_in_plain_words(script):
    duckdb.sql(f"COPY (SELECT [1, NULL] AS l) TO '{script.folder / 'x.parquet'}' (FORMAT parquet)")
    table = ("CREATE TABLE t (l ARRAY<INT NOT NULL>) "
             "WITH ('connector' = 'file', 'format' = 'parquet', 'path' = 'x.parquet');\n")
    result = script.run(table + "SELECT l FROM t;")
    assert result.code == 1 and "'l': NULL within, where the type has NOT NULL" in result.stderr, result.stderr


WIDE = ", ".join(f"c{n} BIGINT" for n in range(200))


def bombs(folder) -> None:
    """Files of a few kilobytes that stand for 80 MB and more, by pyarrow."""
    count = 5_000
    lists = pa.ListViewArray.from_arrays([0] * count, [count] * count, pa.array(range(count)))
    with pa.ipc.new_file(folder / "views.arrow", pa.schema([("a", lists.type)])) as out:
        out.write_batch(pa.record_batch([lists], names=["a"]))
    keys = pa.array([0] * 10_000, pa.int32())
    texts = pa.DictionaryArray.from_arrays(keys, pa.array(["x" * 100_000, *map(str, range(9_999))]))
    with pa.ipc.new_stream(folder / "dictionary.arrow", pa.schema([("s", texts.type)])) as out:
        out.write_batch(pa.record_batch([texts], names=["s"]))
    packed = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_file(folder / "packed.arrow", pa.schema([("s", pa.string())]), options=packed) as out:
        out.write_batch(pa.record_batch([pa.array(["q" * 1000] * 100_000)], names=["s"]))
    pq.write_table(pa.table({"s": ["x" * 10_000_000] * 10}), folder / "page.parquet", compression="zstd",
                   use_dictionary=False)
    zeros = pa.array([0], pa.int8()).take(pa.array([0] * 10_000_000, pa.int32()))
    one = pa.ListArray.from_arrays(pa.array([0, len(zeros)], pa.int32()), zeros)
    pq.write_table(pa.table({"a": one}), folder / "values.parquet", compression="zstd")


@pytest.mark.parametrize("name, column, place", [
    ("views.arrow", "CARDINALITY(a)", "views.arrow, batch 1: column 'a'"),
    ("dictionary.arrow", "CHAR_LENGTH(s)", "dictionary.arrow, batch 1: column 's'"),
    ("packed.arrow", "CHAR_LENGTH(s)", "packed.arrow, batch 1"),
    ("page.parquet", "CHAR_LENGTH(s)", "page.parquet, row group 0"),
    ("values.parquet", "CARDINALITY(a)", "values.parquet, row group 0"),
])
def test_a_header_that_promises_more_than_the_budget_is_refused(script, name, column, place):
    """Before any of it is decoded; with a larger budget it is read."""
    bombs(script.folder)
    sql = f"SELECT COUNT(*) AS n, MAX({column}) AS m FROM '{name}';"
    result = script.run(sql, memory="64MB")
    assert result.code == 1 and place in result.stderr, result.stderr
    assert re.search(r"would take \d+ bytes or more, of 33554432", result.stderr), result.stderr
    assert "--set memory" in result.stderr and "damaged" not in result.stderr, result.stderr
    if name != "dictionary.arrow":  # A gigabyte.
        assert script.run(sql, memory="2GB").code == 0


def test_one_record_that_decodes_to_more_than_the_budget_is_malformed(script):
    """An array of empty rows takes a thousand times its length. Beside it, all is as it would be without it."""
    lines = [b'{"a":[{"c7": 7}]}', b'{"a":[' + b"{}," * 100_000 + b"{}]}", b'{"a":[]}']
    script.data("x.ndjson", b"\n".join(lines) + b"\n")
    table = (f"CREATE TABLE t (a ARRAY<ROW<{WIDE}>>) WITH ('connector' = 'file', 'format' = 'ndjson', "
             "'path' = 'x.ndjson'{});\nSELECT COUNT(*) AS n, SUM(CARDINALITY(a)) AS s FROM t;")
    result = script.run(table.replace("{}", ""), memory="64MB")
    assert result.code == 1 and "x.ndjson:2:" in result.stderr and "--set memory" in result.stderr, result.stderr
    result = script.run(table.replace("{}", ", 'on_error' = 'skip'"), memory="64MB")
    assert rows(result) == ["2,1"] and result.stats["malformed_records"] == 1, result.stderr
    assert rows(script.run(table.replace("{}", ""), memory="2GB")) == ["3,100002"]

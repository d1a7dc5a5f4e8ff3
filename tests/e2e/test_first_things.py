"""What new users type first: SELECT without FROM, a script on standard input, another delimiter."""

import subprocess

import harness
import pytest
from conftest import events

ROWS = "ts,k,v\n2024-01-01 00:00:01,1,10\n2024-01-01 00:00:02,2,\n"
LAYOUTS = [{"workers": 1}, {"workers": 3}, {"workers": 1, "processes": 2}, {"workers": 2, "exchange": "interleaved"}]


# Worked out by hand.
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("query, rows", [
    ("SELECT 1", "1\n1\n"),
    ("SELECT 1 + 1 AS two, 'a' AS a, NULL AS n", "two,a,n\n2,a,\n"),
    ("SELECT 1 AS x WHERE 1 = 2", ""),
    ("SELECT COUNT(*) AS n, SUM(3) AS s", "n,s\n1,3\n"),
    ("SELECT x + 1 AS y FROM (SELECT 1 AS x) t", "y\n2\n"),
    ("WITH a AS (SELECT 2 AS x) SELECT x FROM a", "x\n2\n"),
    ("SELECT 1 AS x LIMIT 0", ""),
    ("SELECT DISTINCT 1 AS x", "x\n1\n"),
    ("VALUES (1), (2)", "column1\n1\n2\n"),
    ("VALUES (1, 'a'), (2.5, NULL)", "column1,column2\n1.0,a\n2.5,\n"),
    ("SELECT k, v * 2 AS w FROM (VALUES (1 + 1, ABS(-3)), (3, 4)) AS t(k, v) WHERE k > 2", "k,w\n3,8\n"),
    ("SELECT x, COUNT(*) AS n FROM (VALUES ('a'), ('b'), ('a')) AS t(x) GROUP BY x ORDER BY n DESC",
     "x,n\na,2\nb,1\n"),
    ("VALUES (1), (2), (3) ORDER BY column1 DESC LIMIT 1", "column1\n3\n"),
])
def test_a_query_without_from_has_one_row(script, query, rows, layout):
    result = script.run(query + ";", **layout)
    assert result.code == 0, result.stderr
    lines = result.stdout.decode()
    # Where there are no rows a header may stand alone.
    assert lines == rows or rows == "" and lines in ("", "x\n"), lines


def piped(text: str, *words: str) -> subprocess.CompletedProcess:
    return subprocess.run([str(harness.program()), *words], input=text.encode(), capture_output=True, timeout=60)


@pytest.mark.parametrize("words", [(), ("--processes", "2")])
def test_a_script_comes_from_standard_input(words):
    done = piped("SELECT 1 AS x;\n", "run", "-", "--format", "csv", *words)
    assert (done.returncode, done.stdout) == (0, b"x\n1\n"), done.stderr
    assert b"one row" in piped("SELECT 1 AS x;\n", "explain", "-").stdout
    done = piped("SELECT\nx;\n", "run", "-", *words)
    assert done.returncode == 2 and b"<standard input>:2:1" in done.stderr, done.stderr


@pytest.mark.parametrize("words", [(), ("--processes", "2")])
@pytest.mark.parametrize("path", ["/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"])
@pytest.mark.parametrize("more", ["", "SELECT 1 AS x;\n"])
def test_a_script_on_standard_input_is_not_read_as_data(words, path, more):
    table = f"CREATE TABLE t (k STRING) WITH ('connector' = 'file', 'path' = '{path}', 'format' = 'csv');\n"
    done = piped(table + more + "SELECT COUNT(*) FROM t;\n", "run", "-", *words)
    assert (done.returncode, done.stdout) == (2, b""), done.stderr
    said = done.stderr.decode()
    assert "standard input can be read only once, and the SQL was read from it" in said, said
    assert f"<standard input>:{3 if more else 2}:1" in said and "after -e" in said, said


TABLE = "CREATE TABLE t (k STRING) WITH ('connector' = 'stdin', 'format' = 'csv', 'csv.header' = 'false');\n"


@pytest.mark.parametrize("words", [["run", "-"], ["run", "-", "--processes", "2"], []])
def test_a_script_in_a_file_on_standard_input_is_not_read_as_data(tmp_path, words):
    (tmp_path / "q.sql").write_text(TABLE + "SELECT COUNT(*) AS n FROM t;\n")
    with open(tmp_path / "q.sql") as given:
        done = subprocess.run([str(harness.program()), *words], stdin=given, capture_output=True, timeout=60)
    assert done.returncode == 2 and b"the SQL was read from it" in done.stderr, done


@pytest.mark.parametrize("words", [(), ("--processes", "2")])
@pytest.mark.parametrize("read, left", [(0, "a\nb\nc\n"), (2, "b\nc\n")])
def test_of_a_file_on_standard_input_the_rest_is_read(tmp_path, words, read, left):
    (tmp_path / "data").write_text("a\nb\nc\n")
    (tmp_path / "q.sql").write_text(TABLE + "SELECT k FROM t;\n")
    with open(tmp_path / "data", "rb", buffering=0) as given:
        given.read(read)
        done = subprocess.run([str(harness.program()), "run", str(tmp_path / "q.sql"), "--format", "csv", *words],
                              stdin=given, capture_output=True, timeout=60)
    assert (done.returncode, done.stdout.decode()) == (0, "k\n" + left), done.stderr


def test_a_minus_is_no_path():
    table = "CREATE TABLE t (k STRING) WITH ('connector' = 'file', 'path' = '-', 'format' = 'csv');"
    done = piped("k\n", "run", "-e", table + "SELECT k FROM t;")
    assert done.returncode == 2 and "'path' = '/dev/stdin'" in done.stderr.decode(), done.stderr


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("given, byte", [(";", ";"), ("\\t", "\t"), ("\t", "\t"), ("|", "|"), ("-", "-")])
def test_rows_are_written_with_another_delimiter(script, given, byte, layout):
    script.data("events.csv", ROWS)
    sql = events() + "SELECT k, v, CAST(k AS STRING) || ';|' AS s, -k AS m FROM events;"
    result = script.run(sql, f"--delimiter={given}", **layout)
    minus = ['"-1"', '"-2"'] if byte == "-" else ["-1", "-2"]
    text = [f'"{k};|"' if byte in ";|" else f"{k};|" for k in (1, 2)]
    rows = ["kvsm", ["1", "10", text[0], minus[0]], ["2", "", text[1], minus[1]]]
    assert (result.code, result.stdout.decode()) == (0, "".join(byte.join(row) + "\n" for row in rows)), result.stderr


@pytest.mark.parametrize("words, message", [
    (["--format", "csv", "--delimiter", "ab"], "one ASCII character"),
    (["--format", "csv", "--delimiter", "a"], "one ASCII character"),
    (["--format", "csv", "--delimiter", '"'], "cannot stand between fields"),
    (["--format", "ndjson", "--delimiter", ";"], "--delimiter goes with --format csv"),
    (["--delimiter", ";"], "--delimiter goes with --format csv"),
])
def test_a_delimiter_that_cannot_be_is_refused(words, message):
    done = piped("SELECT 1;", "run", "-", *words)
    assert done.returncode == 2 and message in done.stderr.decode(), done.stderr


@pytest.mark.parametrize("layout", LAYOUTS)
def test_rows_are_written_from_values(script, layout):
    table = "CREATE TABLE out (k BIGINT, name STRING) WITH ('connector' = 'file', 'path' = 'out', 'format' = 'csv');\n"
    result = script.run(table + "INSERT INTO out VALUES (1, 'a'), (2, NULL);", **layout)
    assert result.code == 0, result.stderr
    written = "".join(path.read_text() for path in sorted((script.folder / "out").glob("part-*")))
    assert sorted(line for line in written.splitlines() if line != "k,name") == ["1,a", "2,"]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("query", [
    "SELECT k FROM t LIMIT 0",
    "SELECT k FROM t ORDER BY k LIMIT 0",
    "SELECT k, COUNT(*) AS n FROM t GROUP BY k LIMIT 0",
    "SELECT COUNT(*) AS n FROM t ORDER BY n LIMIT 0",
])
def test_limit_0_reads_nothing(script, query, layout):
    """Neither the records, of which one is malformed, nor to the end of them."""
    script.data("t.csv", "k\n" + "1\n" * 1000 + "x\n")
    table = "CREATE TABLE t (k BIGINT) WITH ('connector' = 'file', 'path' = 't.csv', 'format' = 'csv');\n"
    result = script.run(table + query + ";", **layout)
    assert result.code == 0, result.stderr
    assert len(result.stdout.splitlines()) <= 1, result.stdout
    assert "0 records" in result.stderr, result.stderr

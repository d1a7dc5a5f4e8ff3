"""From nothing to a result: files named in FROM, init, check, standard input, LIKE."""

import gzip
import os
import random
import re
import subprocess

import harness
import pytest

EVENTS = [(f"2024-05-01 12:00:{second:02}", f"/page{second % 3}", second * 10) for second in range(40)]


def csv_text(rows=EVENTS) -> str:
    return "ts,page,millis\n" + "".join(f"{ts},{page},{millis}\n" for ts, page, millis in rows)


def ndjson_text(rows=EVENTS) -> str:
    return "".join(f'{{"ts": "{ts}", "page": "{page}", "millis": {millis}}}\n' for ts, page, millis in rows)


def parquet(path, rows=EVENTS, millis: str = "BIGINT") -> None:
    duckdb = pytest.importorskip("duckdb")
    values = ", ".join(f"(TIMESTAMP '{ts}', '{page}', {millis})" for ts, page, millis in rows)
    duckdb.connect().execute(f"COPY (SELECT ts::TIMESTAMP_MS AS ts, page, millis::{millis} AS millis "
                             f"FROM (VALUES {values}) AS t(ts, page, millis)) TO '{path}' (FORMAT parquet)")


class Folder:
    """Commands in a folder of their own."""

    def __init__(self, path):
        self.path = path

    def write(self, name: str, content: str | bytes) -> None:
        file = self.path / name
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else content.encode())

    def command(self, *words: object, input: bytes | None = None, **env: str) -> harness.Run:
        command = [str(harness.program()), *map(str, words)]
        given = {"input": input} if input is not None else {"stdin": subprocess.DEVNULL}
        done = subprocess.run(command, cwd=self.path, capture_output=True, timeout=60, env=os.environ | env, **given)
        result = harness.Run(command, done.returncode, done.stdout, done.stderr.decode("utf-8", "replace"))
        assert harness.sound(result) == [], result.stderr
        return result

    def query(self, sql: str, *words: object, code: int = 0, input: bytes | None = None, **env: str) -> harness.Run:
        result = self.command("run", "-e", sql, "--format", "csv", *words, input=input, **env)
        assert result.code == code, result.stderr
        return result


@pytest.fixture
def folder(tmp_path) -> Folder:
    return Folder(tmp_path)


def rows(result: harness.Run) -> list[str]:
    return result.stdout.decode().splitlines()[1:]


def windows(source: str, time: str = "ts", size: str = "20' SECOND") -> str:
    return (f"SELECT window_start, page, COUNT(*) AS n, SUM(millis) AS millis "
            f"FROM TABLE(TUMBLE(TABLE {source}, DESCRIPTOR({time}), INTERVAL '{size})) "
            f"GROUP BY window_start, window_end, page")


# Worked out from EVENTS: seconds 0 to 19 and 20 to 39, by the remainder of three.
BY_WINDOW = [
    "2024-05-01 12:00:00.000,/page0,7,630", "2024-05-01 12:00:00.000,/page1,7,700",
    "2024-05-01 12:00:00.000,/page2,6,570", "2024-05-01 12:00:20.000,/page0,7,2100",
    "2024-05-01 12:00:20.000,/page1,6,1770", "2024-05-01 12:00:20.000,/page2,7,2030",
]


@pytest.mark.parametrize("processes", [1, 2])
def test_a_file_in_from_is_read_as_it_lies_there(folder, processes):
    folder.write("events.ndjson", ndjson_text())
    result = folder.query("SELECT count(*) FROM 'events.ndjson'", "--processes", processes)
    assert rows(result) == ["40"]
    said = [line for line in result.stderr.splitlines() if "events.ndjson: 3 columns" in line]
    assert len(said) == 1, result.stderr
    assert "event time ts, watermark ts (records are in order)" in said[0]


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("kind", ["csv", "ndjson", "csv.gz", "parquet"])
def test_a_window_over_a_pattern_of_files(folder, kind, processes):
    folder.write("logs/README", "not among them")
    for number, part in enumerate([EVENTS[:25], EVENTS[25:]]):
        name = f"logs/{number}.{kind}"
        if kind == "parquet":
            parquet(folder.path / name, part)
        elif kind == "csv.gz":
            folder.write(name, gzip.compress(csv_text(part).encode()))
        else:
            folder.write(name, csv_text(part) if kind == "csv" else ndjson_text(part))
    result = folder.query(windows(f"'logs/*.{kind}'"), "--processes", processes)
    assert rows(result) == BY_WINDOW


def test_a_directory_and_a_file_without_a_telling_name(folder):
    folder.write("in/a", csv_text())
    folder.write("b", ndjson_text())
    assert rows(folder.query("SELECT SUM(millis) AS n FROM 'in'")) == ["7800"]
    assert rows(folder.query("SELECT SUM(millis) AS n FROM 'b' WHERE page = '/page1'")) == ["2470"]


def test_files_in_views_unions_and_statement_sets(folder):
    folder.write("a.csv", csv_text())
    folder.write("b.ndjson", ndjson_text())
    result = folder.query("CREATE VIEW v AS SELECT page FROM 'a.csv' UNION ALL SELECT page FROM 'b.ndjson'; "
                          "SELECT page, COUNT(*) AS n FROM v GROUP BY page;")
    assert sorted(rows(result)) == ["/page0,28", "/page1,26", "/page2,26"]


def test_the_watermark_fits_the_disorder_of_the_sample(folder):
    late = EVENTS[:20] + [("2024-05-01 12:00:16", "/page9", 1)] + EVENTS[20:]
    folder.write("events.csv", csv_text(late))
    result = folder.query(windows("'events.csv'"))
    assert "watermark ts - INTERVAL '5' SECOND (records are up to 3 s out of order)" in result.stderr
    assert "2024-05-01 12:00:00.000,/page9,1,1" in rows(result) and " 0 late records" in result.stderr


def test_numbers_since_1970_are_an_event_time(folder):
    lines = "".join(f"{1_714_564_800_000 + n * 1000},{n}\n" for n in range(30))
    folder.write("events.csv", "at_ms,n\n" + lines)
    sql = ("SELECT window_start, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE 'events.csv', DESCRIPTOR(ts), "
           "INTERVAL '20' SECOND)) GROUP BY window_start, window_end")
    result = folder.query(sql)
    assert rows(result) == ["2024-05-01 12:00:00.000,20", "2024-05-01 12:00:20.000,10"]
    assert "event time ts = to_timestamp_millis(at_ms)" in result.stderr


@pytest.mark.parametrize("kind", ["csv", "ndjson", "parquet", "csv.gz"])
def test_what_init_prints_runs_as_it_is(folder, kind):
    name = f"my events-1.{kind}"
    if kind == "parquet":
        parquet(folder.path / name)
    else:
        text = ndjson_text() if kind == "ndjson" else csv_text()
        folder.write(name, gzip.compress(text.encode()) if kind.endswith("gz") else text)
    printed = folder.command("init", name)
    assert printed.code == 0 and printed.stderr == "", printed.stderr
    text = printed.stdout.decode()
    for part in ["CREATE TABLE my_events_1 (", "ts TIMESTAMP(3)", "page STRING", "millis BIGINT",
                 "WATERMARK FOR ts AS ts", f"'path' = '{name}'"]:
        assert part in text, text
    folder.write("events.sql", printed.stdout)
    checked = folder.command("check", "events.sql")
    assert checked.code == 0 and "2 statements, no errors" in checked.stderr, checked.stderr
    result = folder.command("run", "events.sql", "--format", "csv")
    assert result.code == 0, result.stderr
    assert sum(int(row.split(",")[1]) for row in rows(result)) == 40


ACCESS = """127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET /a.gif HTTP/1.0" 200 2326
127.0.0.1 - - [10/Oct/2000:13:55:37 -0700] "GET /b HTTP/1.0" 404 -
10.0.0.7 - - [10/Oct/2000:13:56:01 -0700] "POST /x HTTP/1.1" 200 12 "http://a.b/c" "Mozilla/5.0 (X11)"
"""
SYSLOG = "May  6 08:00:01 host1 sshd[1234]: Accepted key: root\nMay 16 08:00:02 host1 kernel: eth0 up\n"
SYSLOG_5424 = "<34>1 2003-10-11T22:14:15.003+02:00 host1 su - ID47 - 'su root' failed\n"


@pytest.mark.parametrize("text, columns, first", [
    (ACCESS, "ts, host, remote_user, request, status, bytes",
     "2000-10-10 20:55:36.000Z,127.0.0.1,frank,GET /a.gif HTTP/1.0,200,2326"),
    (SYSLOG, "ts, host, program, pid, message", "1972-05-06 08:00:01.000,host1,sshd,1234,Accepted key: root"),
    # 29 February is a day of leap years only.
    (SYSLOG.replace("May  6", "Feb 29"), "ts, host", "1972-02-29 08:00:01.000,host1"),
    (SYSLOG_5424, "ts, host, program, message", "2003-10-11 20:14:15.003Z,host1,su,'su root' failed"),
])
def test_init_of_a_log_finds_its_columns(folder, text, columns, first):
    folder.write("x.log", text)
    printed = folder.command("init", "x.log").stdout.decode()
    assert "'format' = 'raw'" in printed and "WATERMARK FOR ts AS ts" in printed, printed
    folder.write("x.sql", printed + f"SELECT {columns} FROM x;")
    result = folder.command("run", "x.sql", "--format", "csv")
    assert result.code == 0 and first in result.stdout.decode().splitlines(), (printed, result)


def test_times_of_another_form_are_an_event_time(folder):
    folder.write("x.csv", "at,n\n2024/05/01 12:30,1\n2024/05/01 12:31,2\n")
    result = folder.query("SELECT ts, n FROM 'x.csv'")
    assert rows(result) == ["2024-05-01 12:30:00.000,1", "2024-05-01 12:31:00.000,2"]
    assert "event time ts = TO_TIMESTAMP(at, 'yyyy/MM/dd HH:mm')" in result.stderr
    # The message shows the form of a pattern.
    result = folder.query("SELECT TO_TIMESTAMP(at, 'dd/MMM/yyyy:HH:mm:ss Z') AS x FROM 'x.csv'", code=1)
    assert "does not have the form of the pattern: '31/Jan/2024:12:30:00 +0100'" in result.stderr


def test_init_of_strange_names(folder):
    folder.write("x.csv", 'a b,SELECT,"q""t",1st,größe,a b\n1,2,3,4,5,6\n')
    printed = folder.command("init", "x.csv")
    folder.write("x.sql", printed.stdout)
    assert rows(folder.command("run", "x.sql", "--format", "csv")) == ["1"], printed.stdout
    result = folder.query('SELECT `a b` + `SELECT` + `1st` + größe AS n FROM \'x.csv\'')
    assert rows(result) == ["12"]


def test_init_of_a_directory_of_several_formats(folder):
    for name, text in [("a.csv", "n\n1\n"), ("b.ndjson", '{"n": 1}\n'), ("c.ndjson", '{"n": 2}\n'), ("README", "x")]:
        folder.write(f"d/{name}", text)
    for words in [["init", "d"], ["init", "d/*"], ["run", "-e", "SELECT * FROM 'd'"]]:
        refused = folder.command(*words).stderr
        assert "its files are of several formats: csv (a.csv), ndjson (b.ndjson and 1 other)" in refused, refused
        assert "name those of one format by a pattern: 'd/*.csv' or 'd/*.ndjson'" in refused, refused
        assert "header" not in refused, refused
    for pattern in ["d/*.csv", "d/*.ndjson"]:
        assert "n BIGINT" in folder.command("init", pattern).stdout.decode()


def test_init_of_several_files(folder):
    folder.write("a.csv", csv_text())
    folder.write("b/a.csv", csv_text())
    printed = folder.command("init", "a.csv", "b/*.csv").stdout.decode()
    assert "CREATE TABLE a (" in printed and "CREATE TABLE b (" in printed


def test_check_says_all_mistakes_at_once_with_their_places(folder):
    folder.write("q.sql", "CREATE TABLE t (v BIGNT) WITH ('connector' = 'datagen');\n"
                          "SELECT v FROM t;\n"
                          "CREATE TABLE u (v BIGINT) WITH ('connector' = 'datagen');\n"
                          "SELECT w FROM u;\n"
                          "SELEC 1;\n"
                          "SELECT v FROM 'nosuch.csv';\n"
                          "INSERT INTO nowhere SELECT v FROM u;\n")
    result = folder.command("check", "q.sql")
    places = re.findall(r"q\.sql:(\d+):(\d+)", result.stderr)
    assert places == [("1", "19"), ("4", "8"), ("5", "1"), ("6", "15"), ("7", "13")], result.stderr
    assert result.code == 2 and "7 statements, 5 errors" in result.stderr
    assert result.stdout == b""


def test_check_runs_nothing(folder):
    folder.write("events.csv", csv_text())
    folder.write("q.sql", "CREATE TABLE out (n BIGINT) WITH ('connector' = 'file', 'format' = 'csv', 'path' = 'out');\n"
                          "CREATE TABLE pipe (n BIGINT) WITH ('connector' = 'stdin', 'format' = 'csv');\n"
                          "INSERT INTO out SELECT millis FROM 'events.csv';\nSELECT n FROM pipe;\n")
    result = folder.command("check", "q.sql")
    assert result.code == 0 and result.stdout == b"" and "4 statements, no errors" in result.stderr, result.stderr
    assert not (folder.path / "out").exists()


@pytest.mark.parametrize("processes", [1, 2])
def test_standard_input_and_output(folder, processes):
    folder.write("q.sql", "CREATE TABLE events (ts TIMESTAMP(3), page STRING, millis INT, WATERMARK FOR ts AS ts) "
                          "WITH ('connector' = 'stdin', 'format' = 'ndjson');\n"
                          "CREATE TABLE result (page STRING, n BIGINT) "
                          "WITH ('connector' = 'stdout', 'format' = 'ndjson');\n"
                          "INSERT INTO result SELECT page, COUNT(*) AS n FROM events GROUP BY page;\n")
    result = folder.command("run", "q.sql", "--processes", processes, input=ndjson_text().encode())
    assert result.code == 0, result.stderr
    lines = [re.sub(r"\s", "", line) for line in result.stdout.decode().splitlines()]
    assert sorted(lines) == ['{"page":"/page0","n":14}', '{"page":"/page1","n":13}', '{"page":"/page2","n":13}']


def test_the_format_of_a_table_that_prints_counts_before_that_of_the_command(folder):
    folder.write("events.csv", csv_text(EVENTS[:1]))
    for format, expected in [("csv", b"millis\n0\n"), ("ndjson", b'{"millis":0}\n')]:
        result = folder.query(f"CREATE TABLE o (millis BIGINT) WITH ('connector' = 'stdout', 'format' = '{format}'); "
                              "INSERT INTO o SELECT millis FROM 'events.csv'")
        assert result.stdout.replace(b" ", b"") == expected


def test_a_table_like_another(folder):
    folder.write("a.csv", csv_text())
    folder.write("b.csv", csv_text(EVENTS[:5]))
    create = ("CREATE TABLE a (ts TIMESTAMP(3), page STRING, millis INT, twice AS millis * 2, WATERMARK FOR ts AS ts) "
              "WITH ('connector' = 'file', 'format' = 'csv', 'path' = 'a.csv');\n")
    like = "CREATE TABLE b WITH ('path' = 'b.csv') LIKE a;\n"
    assert rows(folder.query(create + like + "SELECT SUM(twice) AS n FROM b;")) == ["200"]
    assert len(rows(folder.query(create + like + windows("b")))) == 3
    result = folder.query(create + "CREATE TABLE b (page STRING) LIKE a; SELECT * FROM b;", code=2)
    assert "both tables have a column 'page'" in result.stderr
    result = folder.query(create + "CREATE TABLE b LIKE a (EXCLUDING WATERMARK); SELECT * FROM b;", code=2)
    assert "did you mean WATERMARKS?" in result.stderr
    result = folder.query(create + "CREATE TABLE b LIKE c; SELECT * FROM b;", code=2)
    assert "there is no table 'c'" in result.stderr


# Typing mistakes: the statement, and what the message says.
MISTAKES = [
    ("SELECT * FROM 'evnets.csv'", "did you mean", "events.csv"),
    ("SELECT * FROM 'events.cvs'", "did you mean", "events.csv"),
    ("SELECT * FROM '*.tsv'", "no file matches", "*.tsv"),
    ("SELECT * FROM ''", "a file's name stands between the quotes", "FROM 'data/events.csv'"),
    ("SELECT * FROM events.csv", "single quotes", "FROM 'events.csv'"),
    ('SELECT * FROM "events.csv"', "single quotes", "FROM 'events.csv'"),
    ("SELECT pgae FROM 'events.csv'", "did you mean", "page"),
    ("SELECT * FROM 'nosuch/events.csv'", "nosuch", ""),
    ("INSERT INTO 'events.csv' SELECT 1 AS n", "INSERT INTO", ""),
    ("SELECT * FROM TABLE(TUMBLE('events.csv', DESCRIPTOR(ts), INTERVAL '1' MINUTE))", "TABLE", ""),
    ("CREATE TABLE t (n INT) WITH ('connector' = 'stdin', 'format' = 'csv', 'path' = 'x'); SELECT * FROM t",
     "standard input has no path", ""),
    ("CREATE TABLE t (n INT) WITH ('connector' = 'sdtin', 'format' = 'csv'); SELECT * FROM t", "did you mean 'stdin'", ""),
    ("CREATE TABLE t (n INT) WITH ('connector' = 'stdin'); SELECT * FROM t", "format", ""),
    ("CREATE TABLE t (n INT) WITH ('connector' = 'file', 'format' = 'csv', 'path' = '${env:NO_SUCH_ONE}'); "
     "SELECT * FROM t", "NO_SUCH_ONE", "there is no environment variable"),
    ("CREATE TABLE t (n INT) WITH ('connector' = 'file', 'format' = 'csv', 'path' = '${HOME}/x'); SELECT * FROM t",
     "${env:NAME}", "${HOME}"),
]


@pytest.mark.parametrize("sql, expected, more", MISTAKES)
def test_typing_mistakes_are_explained(folder, sql, expected, more):
    folder.write("events.csv", csv_text())
    result = folder.query(sql, code=2)
    assert expected in result.stderr and more in result.stderr, result.stderr
    assert "<command line>:1:" in result.stderr and result.stdout == b""


def test_a_table_of_the_same_name_is_not_a_file(folder):
    folder.write("events", csv_text())
    create = "CREATE TABLE events (v BIGINT) WITH ('connector' = 'datagen', 'number-of-rows' = '3');"
    result = folder.query(create + "SELECT * FROM 'events'", code=2)
    assert "in single quotes is a file" in result.stderr
    assert rows(folder.query(create + "SELECT COUNT(*) AS n FROM './events'")) == ["40"]


def test_init_of_what_is_not_there(folder):
    folder.write("events.csv", csv_text())
    result = folder.command("init", "evnets.csv")
    assert result.code == 2 and "did you mean" in result.stderr and result.stdout == b"", result.stderr
    assert folder.command("init").code == 2


@pytest.mark.parametrize("name", ["x.csv", "x.ndjson", "x.parquet", "x"])
def test_an_empty_file_is_refused(folder, name):
    folder.write(name, b"")
    for words in [("init", name), ("run", "-e", f"SELECT * FROM '{name}'")]:
        result = folder.command(*words)
        assert result.code in (1, 2) and name in result.stderr and result.stdout == b"", result.stderr
    if not name.endswith("parquet"):
        assert "it is empty" in result.stderr and "CREATE TABLE" in result.stderr, result.stderr


def test_a_header_alone_is_a_table_without_rows(folder):
    folder.write("x.csv", "ts,page,millis\n")
    result = folder.query("SELECT COUNT(*) AS n FROM 'x.csv'")
    assert rows(result) == ["0"] and "there are no records" in result.stderr
    printed = folder.command("init", "x.csv").stdout.decode()
    assert "there are no records" in printed and "millis STRING" in printed


@pytest.mark.parametrize("empty", [1, 3])
def test_files_with_a_header_alone_do_not_make_columns_of_text(folder, empty):
    for number in range(3 + 2 * empty):
        is_empty = not empty <= number < empty + 3
        folder.write(f"in/{number}.csv", "n,d\n" + ("" if is_empty else f"{number},2024-05-0{number + 1}\n"))
    result = folder.query("SELECT SUM(n) AS n, MAX(d) AS d FROM 'in/*.csv'")
    assert rows(result) == [f"{3 * empty + 3},2024-05-0{empty + 3}"] and "no records" not in result.stderr, result.stderr


def test_an_instant_that_does_not_fit_shows_a_column_of_instants(folder):
    lines = [f"2024-05-01 12:00:00,{n}\n" for n in range(200_000)]
    lines[50_000] = "2024-05-01 12:00:00+02:00,50000\n"
    folder.write("mid.csv", "ts,n\n" + "".join(lines))
    result = folder.query("SELECT COUNT(ts) AS n FROM 'mid.csv'", code=1)
    create = proposed(result)
    assert "ts TIMESTAMP_LTZ(3)" in create, create
    assert rows(folder.query(create + "SELECT COUNT(ts) AS n FROM mid")) == ["200000"]


RUBBISH = {
    "png": b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x01",
    "random": random.Random(1).randbytes(20_000),
    "utf16": "a,b\n1,2\n".encode("utf-16"),
    "elf": b"\x7fELF\x02\x01\x01\x00" + bytes(100),
    "quotes": b'"' * 5001,
    "commas": b"," * 5000,
    "braces": b"{" * 100_000,
    "newlines": b"\n" * 5000,
    "latin1": "größe,ä\nx,ö\n".encode("latin-1"),
}


@pytest.mark.parametrize("kind", RUBBISH)
@pytest.mark.parametrize("suffix", ["csv", "ndjson", "parquet", "csv.gz", "bin"])
def test_rubbish_is_no_table_or_one_of_text(folder, kind, suffix):
    """Whatever a file contains: the program ends with a message or rows."""
    folder.write(f"x.{suffix}", RUBBISH[kind])
    for words in [("init", f"x.{suffix}"), ("run", "-e", f"SELECT * FROM 'x.{suffix}'")]:
        result = folder.command(*words)
        assert result.code in (0, 1, 2)
        if result.code:
            assert "x." in result.stderr, result.stderr
    if suffix in ("parquet", "csv.gz", "ndjson") and kind != "newlines":
        assert result.code != 0


def long_text(kind: str, bad: str, records: int = 200_000) -> str:
    """Ordered records, of which one, out of the sample, has another value."""
    lines = []
    for number in range(records):
        value = bad if number == 50_000 else str(number)
        time = f"2024-05-{1 + number // 86_400:02} {number // 3600 % 24:02}:{number // 60 % 60:02}:{number % 60:02}"
        lines.append(f"{time},{value}\n" if kind == "csv" else f'{{"ts": "{time}", "n": {value}}}\n')
    return ("ts,n\n" if kind == "csv" else "") + "".join(lines)


def proposed(result: harness.Run) -> str:
    """The CREATE TABLE of an error message."""
    found = re.search(r"CREATE TABLE .*?;", result.stderr, re.DOTALL)
    assert found, result.stderr
    return found[0]


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("kind, bad, column", [
    ("csv", "1.5", "n DOUBLE"), ("csv", "much", "n STRING"), ("csv", "99999999999999999999", "n DECIMAL(38, 0)"),
    ("csv", "NULL", "n BIGINT"),
    ("ndjson", "1.7", "n DOUBLE"), ("ndjson", '"much"', "n STRING"), ("ndjson", "99999999999999999999", "n DECIMAL(38, 0)"),
    ("ndjson", "true", "n STRING"),
])
def test_a_value_that_does_not_fit_shows_the_statement_that_works(folder, kind, bad, column, processes):
    folder.write(f"long.{kind}", long_text(kind, bad))
    result = folder.query(f"SELECT COUNT(n) AS n, COUNT(*) AS m FROM 'long.{kind}'", "--processes", processes, code=1)
    line = 50_002 if kind == "csv" else 50_001
    assert f"long.{kind}:{line}:" in result.stderr, result.stderr
    assert "inferred" in result.stderr and result.stdout == b""
    create = proposed(result)
    assert column in create, create
    again = folder.query(create + "SELECT COUNT(n) AS n, COUNT(*) AS m FROM long")
    null = bad == "NULL"
    assert rows(again) == [f"{200_000 - null},200000"]


# What is usual, what comes late, and the column that holds both, which reads the late value so.
LOST_DIGITS = [
    ("csv", "99999999999999999999", "99999999999999999999.5", "v DECIMAL(38, 1)", "99999999999999999999.5"),
    ("csv", "12", "0012", "v STRING", "0012"),
    ("csv", "1.5", "9007199254740993", "v DECIMAL(38, 9)", "9007199254740993.000000000"),
    ("ndjson", "1.5", "-9007199254740993", "v DECIMAL(38, 9)", "-9007199254740993.000000000"),
    ("csv", "1.5", "9007199254740993.0", "v DECIMAL(38, 9)", "9007199254740993.000000000"),
    ("csv", "2024-05-01 12:00:00.5", "2024-05-01 12:00:00.999999", "v TIMESTAMP(6)", "2024-05-01 12:00:00.999999"),
    ("csv", "12:00:00", "12:00:00.0000001", "v TIME(9)", "12:00:00.000000100"),
    ("ndjson", "99999999999999999999", "99999999999999999999.5", "v DECIMAL(38, 1)", "99999999999999999999.5"),
    ("ndjson", '"2024-05-01 12:00:00.5"', '"2024-05-01 12:00:00.9999991"', "v TIMESTAMP(9)",
     "2024-05-01 12:00:00.999999100"),
    ("ndjson", '"12:00:00"', '"12:00:00.999999"', "v TIME(6)", "12:00:00.999999"),
]


@pytest.mark.parametrize("kind, usual, late, column, text", LOST_DIGITS)
def test_a_late_value_is_never_rounded(folder, kind, usual, late, column, text):
    values = [late if number == 50_000 else usual for number in range(200_000)]
    head, line = ("number,v\n", "{},{}\n") if kind == "csv" else ("", '{{"number": {}, "v": {}}}\n')
    folder.write(f"long.{kind}", head + "".join(line.format(*of) for of in enumerate(values)))
    result = folder.query(f"SELECT COUNT(v) AS n FROM 'long.{kind}'", code=1)
    assert f"long.{kind}:{50_001 + (kind == 'csv')}:" in result.stderr and result.stdout == b"", result.stderr
    create = proposed(result)
    assert column in create, create
    assert rows(folder.query(create + "SELECT v FROM long WHERE number = 50000")) == [text]


def out_of_order(kind: str) -> str:
    """60,000 seconds, of which an hour stands later in the file, where no sample looks."""
    seconds = list(range(60_000))
    seconds = seconds[:15_000] + seconds[18_600:22_000] + seconds[15_000:18_600] + seconds[22_000:]
    lines = []
    for number in seconds:
        text = f"{number // 3600:02}:{number // 60 % 60:02}:{number % 60:02}"
        lines.append({"csv": f"2024-05-01 {text},filling to make the file a longer one\n",
                      "ndjson": f'{{"ts": "2024-05-01T{text}", "n": "filling"}}\n',
                      "computed": f"{1_714_521_600 + number},filling to make the file a longer one as well\n"}[kind])
    return {"csv": "ts,n\n", "ndjson": "", "computed": "epoch,n\n"}[kind] + "".join(lines)


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("kind", ["csv", "ndjson", "computed"])
def test_no_record_is_late_where_nobody_has_declared_a_watermark(folder, kind, processes):
    name = f"long.{kind if kind == 'ndjson' else 'csv'}"
    folder.write(name, out_of_order(kind))
    result = folder.query(
        f"SELECT window_start, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE '{name}', DESCRIPTOR(ts), INTERVAL '1' HOUR)) "
        "GROUP BY window_start, window_end", "--processes", processes)
    assert [line.split(",")[1] for line in rows(result)] == ["3600"] * 16 + ["2400"], result.stderr
    assert " 0 late records" in result.stderr and "up to 2 h out of order" in result.stderr, result.stderr
    # Where event time does not count, nothing is looked at.
    assert "of the sample are in order" in folder.query(f"SELECT COUNT(*) AS n FROM '{name}'").stderr


def test_members_that_the_sample_does_not_have_are_named(folder):
    line = '{{"n": {}, "u": {{"id": 1{}}}{}}}\n'
    text = [line.format(number, ', "rare": 2' if number == 60_000 else "", ', "more": 3' if number in (50_001, 55_555) else "")
            for number in range(200_000)]
    folder.write("long.ndjson", "".join(text))
    said = folder.query("SELECT * FROM 'long.ndjson'").stderr
    for place, member in [("50002:", "more"), ("60001:", "u.rare")]:
        assert re.search(f"long.ndjson:{place}\\d+: the member '{member}', which the sample does not have", said), said
    assert said.count("the member") == 2 and "millstream init 'long.ndjson'" in said, said
    # Who names columns wants no others.
    assert "the member" not in folder.query("SELECT SUM(n) AS n FROM 'long.ndjson'").stderr


def test_lines_that_end_with_cr_alone_are_refused(folder):
    folder.write("x.csv", "a,b\r1,2\r3,4\r")
    assert "carriage return (CR) alone" in folder.query("SELECT * FROM 'x.csv'", code=2).stderr
    said = folder.query("CREATE TABLE t (a INT, b INT) WITH ('connector' = 'file', 'format' = 'csv', 'path' = 'x.csv'); "
                        "SELECT a FROM t", code=1).stderr
    assert "x.csv:1:4: " in said and "carriage return (CR) alone" in said and "tr '" in said, said
    folder.write("x.ndjson", '{"a": 1}\r{"a": 2}\r')
    assert "carriage return (CR) alone" in folder.query("SELECT * FROM 'x.ndjson'", code=2).stderr


def test_quotes_that_are_no_quotes_are_said(folder):
    folder.write("x.csv", 'a,b\n1,2\n3,"\n4,x\n')
    result = folder.query("SELECT * FROM 'x.csv'")
    assert "quotes are read as they stand" in result.stderr and "line 3" in result.stderr, result.stderr


def test_partitions_of_files_in_from_are_columns(folder):
    for day, page, n in [("2024-05-01", "7", 1), ("2024-05-02", "8", 2), ("2024-05-02", "__HIVE_DEFAULT_PARTITION__", 3)]:
        (folder.path / f"in/day={day}/page={page}").mkdir(parents=True)
        folder.write(f"in/day={day}/page={page}/x.csv", f"n,note\n{n},x\n")
    assert sorted(rows(folder.query("SELECT day, page, n FROM 'in/**/*.csv'"))) == [
        "2024-05-01,7,1", "2024-05-02,,3", "2024-05-02,8,2"]
    create = folder.command("init", "in/**/*.csv").stdout.decode()
    assert "day DATE" in create and "page BIGINT" in create and "PARTITIONED BY (day, page)" in create, create
    # What a condition leaves out is not opened: it could not be read.
    folder.write("in/day=2024-05-02/page=8/x.csv", "n,note\nmuch,x\n")
    tables = ["'in/**/*.csv'", "t"]
    declared = ("CREATE TABLE t (n BIGINT, note STRING, day DATE, page BIGINT, file STRING METADATA FROM 'path') "
                "PARTITIONED BY (day, page) WITH ('connector' = 'file', 'format' = 'csv', 'path' = 'in'); ")
    for where, expected in [("day < DATE '2024-05-02'", ["1"]), ("page IN (7, 9)", ["1"]), ("page IS NULL", ["3"]),
                            ("page = 9", []), ("file NOT LIKE '%page=8%'", ["1", "3"])]:
        for table in tables[1:] if "file" in where else tables:
            result = folder.query(f"{declared}SELECT n FROM {table} WHERE {where} AND n < 100")
            assert sorted(rows(result)) == expected, (where, table, result.stderr)
    assert "much" in folder.query(f"{declared}SELECT n FROM t WHERE page = 8", code=1).stderr


def test_files_of_other_types_are_an_error_with_their_place(folder):
    parquet(folder.path / "a.parquet")
    parquet(folder.path / "b.parquet", millis="DOUBLE")
    parquet(folder.path / "c.parquet")
    result = folder.query("SELECT SUM(millis) AS n FROM '*.parquet'", code=1)
    assert "b.parquet" in result.stderr and "column 'millis'" in result.stderr and "DOUBLE" in result.stderr
    assert "those of one schema" in result.stderr, result.stderr


def test_json_values_of_several_kinds_are_read_as_they_are_written(folder):
    folder.write("x.ndjson", '{"v": 1.50}\n{"v": "x"}\n{"v": {"a": [1, 2]}}\n{"v": null}\n')
    result = folder.query("SELECT v FROM 'x.ndjson'")
    assert rows(result) == ["1.50", "x", '"{""a"": [1, 2]}"', ""], result.stdout
    assert "as they are written" in result.stderr


SECRET = "hunter2-and-more"


def secret_free(folder: Folder, result: harness.Run) -> None:
    assert SECRET not in result.stderr and SECRET.encode() not in result.stdout, result.stderr
    for path in folder.path.glob("*.json"):
        assert SECRET not in path.read_text()


@pytest.mark.parametrize("written", ["${env:TOKEN}", "${file:token}"])
@pytest.mark.parametrize("processes", [1, 2])
def test_a_secret_is_never_shown(folder, written, processes):
    folder.write("token", SECRET + "\n")
    folder.write(f"{SECRET}/a.csv", csv_text())
    folder.write(f"{SECRET}/bad.csv", "ts,page,millis\n2024-05-01 12:00:00,/x,much\n")
    columns = "(ts TIMESTAMP(3), page STRING, millis INT, WATERMARK FOR ts AS ts)"

    def table(name: str, more: str = "") -> str:
        return (f"CREATE TABLE {name} {columns} WITH ('connector' = 'file', 'format' = 'csv'{more}, "
                f"'path' = '{written}/{name}.csv'); ")

    def run(sql: str, *words: object, code: int = 0) -> harness.Run:
        result = folder.query(sql, "--processes", processes, "--stats-json", "stats.json", *words, code=code,
                              TOKEN=SECRET)
        secret_free(folder, result)
        return result

    assert rows(run(table("a") + "SELECT SUM(millis) AS n FROM a;")) == ["7800"]
    # A file that is not there, a value that does not fit, records that are left out, options that do not exist.
    assert written in run(table("b") + "SELECT * FROM b;", code=2).stderr
    assert f"{written}/bad.csv:2:" in run(table("bad") + "SELECT SUM(millis) AS n FROM bad;", code=1).stderr
    skipped = run(table("bad", ", 'csv.ignore-parse-errors' = 'true'") + "SELECT SUM(millis) AS n FROM bad;")
    assert f"{written}/bad.csv:2:" in skipped.stderr, skipped.stderr
    # A column that would show the path.
    shows = table("a").replace("page STRING", "page STRING METADATA FROM 'path'")
    assert "column 'page'" in run(shows + "SELECT page FROM a;", code=2).stderr
    run(table("a", f", 'csv.heder' = '{written}'") + "SELECT * FROM a;", code=2)
    run(table("a", f", 'csv.header' = '{written}'") + "SELECT * FROM a;", code=2)
    # What is written: it is there, and a second job tells of it.
    into = (f"CREATE TABLE o (n BIGINT) WITH ('connector' = 'file', 'format' = 'csv', 'path' = '{written}/out'); "
            "INSERT INTO o SELECT SUM(millis) AS n FROM a;")
    run(table("a") + into)
    parts = [part.read_text() for part in (folder.path / SECRET / "out").glob("part-*")]
    assert any("7800" in part for part in parts), parts
    assert f"{written}/out: 1 file of former jobs" in run(table("a") + into).stderr
    # Plans.
    for words in [("explain", "-e"), ("run", "-e")]:
        sql = table("a") + ("EXPLAIN " if words[0] == "run" else "") + "SELECT SUM(millis) AS n FROM a;"
        plan = folder.command(*words, sql, TOKEN=SECRET)
        assert plan.code == 0 and f"{written}/a.csv" in plan.stdout.decode(), plan.stdout
        secret_free(folder, plan)
    secret_free(folder, folder.command("check", "-e", table("b") + "SELECT * FROM b;", TOKEN=SECRET))


@pytest.mark.parametrize("secret", ["priv/", "./priv", "priv/.", "priv//x", "priv/x/", "../{name}/priv", "{path}/priv/"])
def test_a_secret_in_a_path_is_not_shown_as_the_files_are_found(folder, secret):
    (folder.path / "priv").mkdir()
    folder.write("priv/x/f.csv", "k\nq\n")
    secret = secret.format(name=folder.path.name, path=folder.path)
    for tail in ("/*/f.csv", "*/f.csv", "/x/*.csv", "/**/*.csv", "/x", "/x/g.csv", "/f.csv"):
        sql = f"CREATE TABLE t (k BIGINT) WITH ('connector' = 'file', 'format' = 'csv', 'path' = '${{env:X}}{tail}'); "
        for query in ("SELECT * FROM t", "EXPLAIN SELECT * FROM t"):
            result = folder.command("run", "-e", sql + query, X=secret)
            assert "priv" not in result.stderr + result.stdout.decode(), (secret, tail, result.stderr)


def test_a_dollar_sign_in_the_name_of_a_file(folder):
    folder.write("${env:HOME}.csv", csv_text())
    assert rows(folder.query("SELECT COUNT(*) AS n FROM '${env:HOME}.csv'")) == ["40"]
    folder.write("x.sql", folder.command("init", "${env:HOME}.csv").stdout)
    result = folder.command("run", "x.sql", "--format", "csv")
    assert sum(int(row.split(",")[1]) for row in rows(result)) == 40


def test_a_pipe_in_from_is_refused(folder):
    os.mkfifo(folder.path / "p.csv")
    result = folder.query("SELECT * FROM 'p.csv'", code=2)
    assert "no regular file" in result.stderr and "CREATE TABLE" in result.stderr, result.stderr
    result = folder.query("SELECT * FROM '/dev/stdin'", code=2, input=b"a,b\n1,2\n")
    assert "'connector' = 'stdin'" in result.stderr, result.stderr


def test_a_wrong_level_of_instructions_is_an_error_at_the_start(folder):
    result = folder.command("run", "-e", "SELECT 1", MILLSTREAM_CPU="AVX2")
    assert (result.code, result.stdout) == (2, b"")
    assert result.stderr == "error: MILLSTREAM_CPU is 'AVX2'\n  help: the values are portable, avx2, avx512\n"
    assert folder.command("--version", MILLSTREAM_CPU="AVX2").code == 0
    for level in ("portable", ""):
        assert rows(folder.query("SELECT 1", MILLSTREAM_CPU=level)) == ["1"]

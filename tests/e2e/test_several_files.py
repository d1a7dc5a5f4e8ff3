"""Tables of several files, packed files, and formats other than CSV."""

import bz2
import gzip
import re
import subprocess

import duckdb
import harness
import pytest

HOURS = 150


def logs(path: str, format: str = "csv") -> str:
    return (f"CREATE TABLE logs (ts TIMESTAMP(3), n BIGINT, WATERMARK FOR ts AS ts) "
            f"WITH ('connector' = 'file', 'path' = '{path}', 'format' = '{format}');\n")


BY_HOUR = ("SELECT window_start, COUNT(*) AS records, SUM(n) AS n "
           "FROM TABLE(TUMBLE(TABLE logs, DESCRIPTOR(ts), INTERVAL '1' HOUR)) GROUP BY window_start, window_end;")
RECORDS = "SELECT COUNT(*) AS records, SUM(n) AS n FROM logs;"


def rows(result: harness.Run) -> list[str]:
    return result.stdout.decode().splitlines()[1:]


def hour(number: int, format: str) -> str:
    """The records of an hour: a second each, with the numbers from 1 on."""
    day, of_day = divmod(number, 24)
    lines = []
    for second in range(600):
        time = f"2024-01-{day + 1:02} {of_day:02}:{second // 60:02}:{second % 60:02}"
        if format == "ndjson":
            lines.append(f'{{"n": {second + 1}, "ts": "{time}"}}\n')
        else:
            lines.append(f"{time},{second + 1}\n")
    return "".join(lines)


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("format", ["csv", "ndjson"])
def test_a_file_for_each_hour_is_read_hour_by_hour(script, format, processes):
    """More files than the program may have open, and memory for a few windows only."""
    for number in range(HOURS):
        text = hour(number, format).encode()
        name = f"hour-{number:03}.{format}"
        if number % 3 == 1:
            script.data(name + ".gz", gzip.compress(text))
        elif number % 3 == 2:
            script.data(name + ".bz2", bz2.compress(text))
        else:
            script.data(name, text)
    query = script.write(logs("hour-*", format) + BY_HOUR)
    command = f"ulimit -n 100 && exec {harness.program()} run {query} --format csv --workers 2 --processes {processes}"
    result = subprocess.run(["bash", "-c", command], cwd=script.folder, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    hours = result.stdout.splitlines()[1:]
    assert len(hours) == HOURS and hours == sorted(hours)
    assert all(row.endswith(",600,180300") for row in hours), hours


@pytest.mark.parametrize("workers", [1, 4])
def test_files_over_the_same_hour_make_nothing_late(script, workers):
    for name in "abc":
        script.data(f"{name}.csv", hour(5, "csv"))
    result = script.run(logs("?.csv") + BY_HOUR, workers=workers, batch_rows=50)
    assert rows(result) == ["2024-01-01 05:00:00.000,1800,540900"]
    assert result.stats["late_records"] == 0


@pytest.mark.parametrize("processes", [1, 3])
def test_a_directory_is_its_files(script, processes):
    (script.folder / "in").mkdir()
    for number in range(3):
        script.data(f"in/{number}", hour(number, "csv"))
    script.data("in/_SUCCESS", "")
    script.data("in/.part.inprogress", "rubbish")
    result = script.run(logs("in") + RECORDS, "--processes", processes)
    assert rows(result) == ["1800,540900"]


@pytest.mark.parametrize("processes", [1, 2])
def test_a_packed_file_that_is_cut_off_ends_the_job(script, processes):
    packed = gzip.compress(hour(0, "csv").encode())
    script.data("whole.csv.gz", packed)
    result = script.run(logs("whole.csv.gz") + RECORDS, "--processes", processes)
    assert rows(result) == ["600,180300"]
    script.data("cut.csv.gz", packed[:-20])
    result = script.run(logs("cut.csv.gz") + RECORDS, "--processes", processes)
    assert result.code == 1 and result.stdout == b""
    assert "cut.csv.gz: the file ends in the middle of its gzip data" in result.stderr, result.stderr


# Where one process takes a packed file for another than the others do, all wait for each other.
@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("call, error, said", [
    ("pread64", "EINTR", None), ("pread64", "EIO", "Input/output error"), ("open64", "ENOENT", "No such file"),
])
def test_a_call_that_fails_once_in_another_process(script, before_libc, call, error, said, packed):
    before_libc(f"""
        #include <errno.h>
        #include <fcntl.h>
        #include <stdarg.h>
        #include <stdio.h>
        #include <string.h>
        #include <unistd.h>
        static int fails(const char *call, const char *path) {{
            static int failed = 0;
            char words[4096] = "";
            if (failed || strcmp(call, "{call}") || !strstr(path, "/x.csv")) return 0;
            FILE *own = fopen("/proc/self/cmdline", "r");
            size_t length = fread(words, 1, sizeof words, own);
            fclose(own);
            if (memmem(words, length, "query.sql", 9)) return 0;
            failed = 1;
            errno = {error};
            return 1;
        }}
        ssize_t pread64(int file, void *to, size_t bytes, off_t at) {{
            ssize_t (*real)(int, void *, size_t, off_t) = dlsym(RTLD_NEXT, "pread64");
            char link[64], path[4096] = "";
            snprintf(link, sizeof link, "/proc/self/fd/%d", file);
            if (readlink(link, path, sizeof path - 1) > 0 && fails("pread64", path)) return -1;
            return real(file, to, bytes, at);
        }}
        int open64(const char *path, int flags, ...) {{
            int (*real)(const char *, int, ...) = dlsym(RTLD_NEXT, "open64");
            va_list more;
            va_start(more, flags);
            int mode = va_arg(more, int);
            va_end(more);
            return fails("open64", path) ? -1 : real(path, flags, mode);
        }}
    """)
    text = ("ts,n\n" + "2024-01-01 00:00:01,1\n" * 5000).encode()
    script.data("x.csv", gzip.compress(text) if packed else text)
    result = script.run(logs("x.csv") + RECORDS, "--processes", 3)
    # What is packed only one process opens.
    fails = said and not packed
    assert result.code == (1 if fails else 0) and "internal" not in result.stderr, result.stderr
    if fails:
        assert f"x.csv: {said}" in result.stderr, result.stderr
    else:
        assert rows(result) == ["5000,5000"], result.stderr


def test_a_packed_pipe_is_unpacked(script):
    query = script.write(logs("/dev/stdin", "ndjson") + RECORDS)
    result = subprocess.run([str(harness.program()), "run", str(query), "--format", "csv"], capture_output=True,
                            input=gzip.compress(hour(0, "ndjson").encode()), timeout=60)
    assert result.stdout.decode().splitlines()[1:] == ["600,180300"], result.stderr


@pytest.mark.parametrize("workers", [1, 2])
def test_pretty_printed_json_is_refused_with_its_place(script, workers):
    script.data("pretty.ndjson", '{\n  "n": 1,\n  "ts": "2024-01-01 00:00:00"\n}\n' * 1000)
    result = script.run(logs("pretty.ndjson", "ndjson") + RECORDS, workers=workers)
    assert result.code == 1
    assert "pretty.ndjson:1:1: the object that starts here does not end on its line" in result.stderr
    assert "jq -c" in result.stderr


def test_malformed_json_is_left_out_by_its_own_option(script):
    script.data("x.ndjson", '{"N": 1}\n{"n": "x"}\n{"n": 2}\n')
    skip = logs("x.ndjson", "ndjson").replace("'ndjson'", "'ndjson', 'json.ignore-parse-errors' = 'true'")
    result = script.run(skip + RECORDS)
    assert rows(result) == ["2,3"], result.stderr
    assert "1 malformed record left out" in result.stderr, result.stderr
    assert "x.ndjson:2:7: expected BIGINT for column 'n', found \"x\"" in result.stderr, result.stderr
    assert "left out ('on_error')" in result.stderr and "csv." not in result.stderr, result.stderr


def test_raw_lines(script):
    script.data("x.log", b"GET /a\r\nPOST /b\n\nGET /c")
    create = "CREATE TABLE lines (line STRING) WITH ('connector' = 'file', 'path' = 'x.log', 'format' = 'raw');\n"
    result = script.run(create + "SELECT COUNT(*) AS n FROM lines WHERE line LIKE 'GET %';")
    assert rows(result) == ["2"]
    two = create.replace("line STRING", "line STRING, n INT")
    result = script.run(two + "SELECT COUNT(*) AS n FROM lines;")
    assert result.code != 0 and "raw" in result.stderr, result.stderr


def parquet(script, name: str, select: str) -> None:
    duckdb.sql(f"COPY ({select}) TO '{script.folder / name}' (FORMAT parquet)")


def declared(message: str) -> str:
    """The CREATE TABLE that a message shows."""
    found = re.search(r"CREATE TABLE .*?\)\s*WITH \(.*?\);", message, re.DOTALL)
    assert found, message
    return found[0] + "\n"


@pytest.mark.parametrize("first, last", [("INTEGER", "BIGINT"), ("BIGINT", "INTEGER")])
def test_of_several_schemas_the_wider_type_is_inferred(script, first, last):
    parquet(script, "x1.parquet", f"SELECT 1::{first} AS a")
    parquet(script, "x2.parquet", f"SELECT 2::{last} AS a")
    assert rows(script.run("SELECT SUM(a) AS a FROM 'x*.parquet';")) == ["3"]
    shown = harness.run("init", script.folder / "x*.parquet", stats=False)
    assert shown.code == 0 and b"a BIGINT" in shown.stdout, shown.stdout


def test_a_file_in_the_midst_with_a_wider_type_shows_the_table_that_takes_it(script):
    for name, of in [("x1", "INTEGER"), ("x2", "BIGINT"), ("x3", "INTEGER")]:
        parquet(script, f"{name}.parquet", f"SELECT 5::{of} AS a, 'x' AS s")
    result = script.run("SELECT SUM(a) AS a FROM 'x*.parquet';")
    assert result.code != 0 and "x2.parquet" in result.stderr, result.stderr
    table = re.search(r"select from (\w+)", result.stderr)[1]
    again = script.run(declared(result.stderr) + f"SELECT SUM(a) AS a FROM {table};")
    assert rows(again) == ["15"], again.stderr


def test_columns_that_files_have_not_in_common_are_left_out_and_said(script):
    parquet(script, "x1.parquet", "SELECT 1 AS a, 'x' AS s, 1 AS only_first")
    parquet(script, "x2.parquet", "SELECT 2 AS a, 7 AS s, 1 AS only_last")
    result = script.run("SELECT * FROM 'x*.parquet';")
    assert result.code == 0 and sorted(result.stdout.decode().split()) == ["1", "2", "a"], result
    for word in ["column s", "only_first", "only_last"]:
        assert word in result.stderr, result.stderr


def test_columns_of_files_in_the_midst_are_said(script):
    parquet(script, "x1.parquet", "SELECT 1 AS a")
    parquet(script, "x2.parquet", "SELECT 2 AS a, 1 AS only_here")
    parquet(script, "x3.parquet", "SELECT 3 AS a")
    for name, text in [("y1", "a,b\n1,2\n"), ("y2", "a,only_here,b\n3,4,5\n"), ("y3", "b,a\n6,7\n")]:
        script.data(f"{name}.csv", text)
    for files, rows in [("x*.parquet", ["1", "2", "3"]), ("y*.csv", ["1,2", "3,5", "7,6"])]:
        result = script.run(f"SELECT * FROM '{files}';")
        assert sorted(result.stdout.decode().split()[1:]) == rows, result.stderr
        assert re.search(r"left out as \S+1\.\w+ does not have them: only_here \(\S+2\.\w+\)", result.stderr), result.stderr


def test_a_csv_file_without_a_column_shows_the_table_without_it(script):
    for name, text in [("x1", "a,b\n1,2\n"), ("x2", "a\n3\n"), ("x3", "a,b\n5,6\n")]:
        script.data(f"{name}.csv", text)
    result = script.run("SELECT SUM(a) AS a FROM 'x*.csv';")
    assert result.code != 0 and "x2.csv" in result.stderr and "no column 'b'" in result.stderr, result.stderr
    table = re.search(r"select from (\w+)", result.stderr)[1]
    assert rows(script.run(declared(result.stderr) + f"SELECT SUM(a) AS a FROM {table};")) == ["9"]


@pytest.mark.parametrize("good, bad", [('{"arr": [1, 2]}', '{"arr": ["str"]}'),
                                       ('{"arr": {"n": [1], "s": "x"}}', '{"arr": {"n": [1.5], "s": "x"}}')])
def test_an_element_that_does_not_fit_shows_the_table_with_a_wider_one(script, good, bad):
    script.data("x.ndjson", (good + "\n") * 60_000 + bad + "\n" + (good + "\n") * 60_000)
    result = script.run("SELECT COUNT(arr) AS n FROM 'x.ndjson';")
    assert result.code != 0 and "x.ndjson:60001:" in result.stderr, result.stderr
    table = declared(result.stderr)
    assert "on_error" not in table, table
    assert rows(script.run(table + "SELECT COUNT(arr) AS n FROM x;")) == ["120001"]

"""Files as sinks: the formats, files that are rolled, partitions, and what a crash or a full disk leaves."""

import os
import random
import re
import resource
import signal
import subprocess
import time
from pathlib import Path

import duckdb
import harness
import pytest
from conftest import COLUMNS, WINDOW, generated, into
from jobs import ENDLESS, wait_until

FORMATS = ["csv", "ndjson", "parquet", "arrow"]
TYPES = {"ts": "TIMESTAMP(3)", "k": "BIGINT", "s": "STRING", "d": "DOUBLE", "p": "DECIMAL(10, 2)", "b": "BOOLEAN",
         "day": "DATE"}
DUCK_TYPES = TYPES | {"ts": "TIMESTAMP", "s": "VARCHAR"}
DECLARED = ", ".join(f"{name} {type}" for name, type in TYPES.items())
NULL = "__HIVE_DEFAULT_PARTITION__"


def data(rows: int = 3000) -> str:
    """Values of all these types, NULLs and texts that need care, as CSV."""
    texts = ['"a,b"', '"say ""hi"""', '"two\nlines"', "é", '""', "", "x=y/z%"]
    lines = ["ts,k,s,d,p,b,day"]
    for n in range(rows):
        values = [f"2024-01-01 {n // 3600:02}:{n // 60 % 60:02}:{n % 60:02}.{n % 1000:03}", str(n % 7), texts[n % 7],
                  repr(n / 7), f"{n % 90}.{n % 100:02}", ["true", "false"][n % 2], f"2024-02-{n % 28 + 1:02}"]
        # Never the time, nor all at once.
        lines.append(",".join("" if at and (n + at) % 11 == 0 else value for at, value in enumerate(values)))
    return "\n".join(lines) + "\n"


SOURCE = (f"CREATE TABLE events ({DECLARED}, WATERMARK FOR ts AS ts) "
          "WITH ('connector' = 'file', 'path' = 'events.csv', 'format' = 'csv');\n")


def reads(format: str, paths: str, hive: bool = False) -> str:
    """How DuckDB reads such files."""
    columns = f"columns = {DUCK_TYPES}"
    more = f", hive_partitioning = {hive}"
    csv = "header = true, delim = ',', quote = '\"', escape = '\"', nullstr = '', allow_quoted_nulls = false"
    return {"csv": f"read_csv('{paths}', {csv}, {columns}{more})",
            "ndjson": f"read_json('{paths}', format = 'newline_delimited', {columns}{more})",
            "parquet": f"read_parquet('{paths}'{more})"}[format]


def rows_of(table: str) -> list[tuple]:
    return sorted(duckdb.sql(f"SELECT {', '.join(TYPES)} FROM {table}").fetchall(), key=repr)


def visible(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("part-*"))


def unfinished(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob(".part-*.inprogress"))


@pytest.mark.parametrize("processes, workers", [(1, 1), (2, 2)])
@pytest.mark.parametrize("format", FORMATS)
def test_each_format_holds_the_rows_that_were_inserted(script, format, processes, workers):
    script.data("events.csv", data())
    declared = into(f"'format' = '{format}'", columns=DECLARED)
    done = script.run(SOURCE + declared + "INSERT INTO results SELECT * FROM events;", "--processes", processes,
                      workers=workers)
    assert (done.code, done.stdout) == (0, b"") and done.stats["rows"] == 3000, done.stderr
    out = script.folder / "out"
    assert visible(out) == [f"part-{p}-{w}" for p in range(processes) for w in range(workers)]
    assert unfinished(out) == []
    if format != "arrow":
        assert rows_of(reads(format, f"{out}/part-*")) == rows_of(reads("csv", f"{script.folder}/events.csv"))
        return
    # DuckDB does not read it without an extension. The format's own marks stand at both ends.
    for path in out.iterdir():
        whole = path.read_bytes()
        assert whole.startswith(b"ARROW1\0\0") and whole.endswith(b"ARROW1"), path
    back = "CREATE TABLE back ({}) WITH ('connector' = 'file', 'path' = 'out', 'format' = 'arrow');\n".format(DECLARED)
    read = script.run(back + "SELECT * FROM back;")
    if "'arrow' comes in a later version" not in read.stderr:
        printed = script.run(SOURCE + "SELECT * FROM events;")
        assert (read.code, printed.code) == (0, 0), read.stderr + printed.stderr
        whole = [sorted(map(repr, harness.parse_csv(run.stdout.decode()))) for run in (read, printed)]
        assert whole[0] == whole[1]


MANY = generated(rows=40_000, step="5 ms", more=", 'seed' = '5', 'splits' = '4'").replace("'9'", "'99'")


def written(script, options: str, *words: object, query: str = WINDOW, **settings: object) -> list[list[str]]:
    """The lines of all files that a query writes as CSV, without the header."""
    done = script.run(MANY + into("'format' = 'csv', " + options) + "INSERT INTO results " + query, *words, **settings)
    assert done.code == 0, done.stderr
    out = script.folder / "out"
    assert sorted(os.listdir(out)) == visible(out), "nothing else is left"
    files = [(out / name).read_text().splitlines() for name in visible(out)]
    assert all(lines[0] == "window_start,k,n" for lines in files)
    return [lines[1:] for lines in files]


@pytest.mark.parametrize("processes, workers", [(1, 1), (2, 2)])
@pytest.mark.parametrize("options, of_a_file", [
    ("'sink.rolling-policy.rows' = '50'", lambda lines: len(lines) <= 50),
    # A file is looked at after 1,024 rows, which are about 28 bytes each.
    ("'sink.rolling-policy.file-size' = '2 KB'", lambda lines: len(lines) <= 1024 + 2048 // 20),
    ("'sink.rolling-policy.window' = 'true'", lambda lines: len({line.split(",")[0] for line in lines}) == 1),
])
def test_files_are_rolled(script, options, of_a_file, processes, workers):
    printed = script.run(MANY + WINDOW, workers=1).stdout.decode().splitlines()[1:]
    files = written(script, options, "--processes", processes, workers=workers)
    assert len(files) >= 8 and all(lines and of_a_file(lines) for lines in files), [len(lines) for lines in files]
    assert sorted(line for lines in files for line in lines) == sorted(printed)


ROLLED = "'format' = '{}', 'sink.rolling-policy.rollover-interval' = '200 ms'"


@pytest.mark.parametrize("format", FORMATS)
def test_an_endless_query_shows_files_while_it_runs(job, script, format):
    out = script.folder / "out"
    out.mkdir()
    running = job(ENDLESS.replace("SELECT", into(ROLLED.format(format)) + "INSERT INTO results SELECT", 1), 2, "shm",
                  running=False)
    wait_until("both processes have shown files", lambda: {name[5] for name in visible(out)} == {"0", "1"})
    if format in ("csv", "parquet"):
        read = {"csv": "read_csv", "parquet": "read_parquet"}[format]
        assert duckdb.sql(f"SELECT sum(n) > 0 FROM {read}('{out}/part-*')").fetchall() == [(True,)]
    # A second job does not get between.
    second = script.run(MANY + into() + "INSERT INTO results " + WINDOW)
    assert second.code == 1 and "another job is writing it" in second.stderr, second.stderr
    running.main.send_signal(signal.SIGINT)
    code, stderr = running.end()
    assert code == 130, stderr


@pytest.mark.parametrize("options", [ROLLED.format("csv").replace("200 ms", "1 h"), "'format' = 'csv'"])
def test_two_jobs_do_not_write_into_one_directory(job, script, options):
    out = script.folder / "out"
    out.mkdir()
    first = job(ENDLESS.replace("SELECT", into(options) + "INSERT INTO results SELECT", 1), 1, "shm", running=False)
    wait_until("rows are written", lambda: any(path.stat().st_size > 40 for path in out.iterdir()))
    for other in ("'format' = 'csv'", "'format' = 'csv', 'sink.rolling-policy.rows' = '10'"):
        second = script.run(MANY + into(other) + "INSERT INTO results " + WINDOW)
        assert second.code == 1 and "another job is writing it" in second.stderr, second.stderr
    first.main.send_signal(signal.SIGINT)
    assert first.end()[0] == 130 and len(unfinished(out)) == 1


THREE = "CREATE TABLE o (k BIGINT, p STRING){} WITH ('connector' = 'file', 'path' = 'out', 'format' = 'csv'{});\n"


def inserted(script, table: str, *inserts: str, processes: int = 1) -> str:
    sql = table + "".join(f"INSERT {insert} AS t (k, p);\n" for insert in inserts)
    done = script.run(sql, "--processes", processes, workers=2)
    assert done.code == 0, done.stderr
    assert not unfinished(script.folder / "out") and not list(script.folder.glob("out/.*")), done.stderr
    return done.stderr


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("rolled", ["", ", 'sink.rolling-policy.rows' = '1'"])
def test_an_insert_adds_files_and_overwrite_replaces_them(script, rolled, processes):
    out, table = script.folder / "out", THREE.format("", rolled)
    rows = lambda: duckdb.sql(f"SELECT k FROM read_csv('{out}/part-*') ORDER BY k").fetchall()
    into = "INTO o SELECT k, p FROM (VALUES (CAST({} AS BIGINT), 'a'), (CAST({} AS BIGINT), 'b'))"
    inserted(script, table, into.format(1, 2), into.format(3, 4), processes=processes)
    before = {path: path.read_bytes() for path in out.iterdir()}
    said = inserted(script, table, into.format(5, 6), processes=processes)
    assert f"out: {len(before)} files of former jobs stay beside the new ones" in said
    assert all(path.read_bytes() == content for path, content in before.items())
    assert rows() == [(n,) for n in range(1, 7)]
    files = len(visible(out))
    said = inserted(script, table, into.replace("INTO", "OVERWRITE").format(7, 8), processes=processes)
    assert f"out: it replaces {files} files of former jobs: part-" in said and rows() == [(7,), (8,)], said


def test_overwrite_replaces_the_partitions_that_get_rows_when_it_has_ended_well(script):
    out = script.folder / "out"
    table = THREE.format(" PARTITIONED BY (p)", ", 'sink.partition-commit.policy.kind' = 'success-file'")
    rows = lambda: duckdb.sql(f"SELECT k, p FROM read_csv('{out}/*/part-*', hive_partitioning = true) ORDER BY k").fetchall()
    values = "{} o SELECT k, p FROM (VALUES (CAST({} AS BIGINT), 'a'), (CAST({} AS BIGINT), '{}'))"
    inserted(script, table, values.format("INTO", 1, 2, "b"))
    failed = script.run(table + "INSERT OVERWRITE o SELECT 1 / (k - 8), p FROM (VALUES (7, 'a'), (8, 'a')) AS t (k, p);")
    assert failed.code == 1 and rows() == [(1, "a"), (2, "b")], failed.stderr
    inserted(script, table, values.format("OVERWRITE", 3, 4, "a"))
    assert rows() == [(2, "b"), (3, "a"), (4, "a")] and len(list(out.glob("*/_SUCCESS"))) == 2


def test_an_insert_that_never_ends_into_files_that_are_not_rolled_is_told(job, script):
    endless = "CREATE TABLE e (k BIGINT, p STRING) WITH ('connector' = 'datagen', 'rows-per-second' = '10');\n"
    insert, words = "INSERT INTO o SELECT k, p FROM e;", "the query never ends, and its files get their names when it"
    for rolled, expected in (("", True), (", 'sink.rolling-policy.rows' = '1'", False)):
        checked = harness.run("check", script.write(endless + THREE.format("", rolled) + insert), stats=False)
        assert checked.code == 0 and (words in checked.stderr) == expected, checked.stderr
    (script.folder / "out").mkdir()
    running = job(endless + THREE.format("", "") + insert, 1, "shm", running=False)
    wait_until("it writes", lambda: unfinished(script.folder / "out"))
    running.main.send_signal(signal.SIGINT)
    assert words in running.end()[1]


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("format", ["csv", "ndjson", "parquet"])
def test_partitions_are_what_duckdb_reads_as_such(script, format, processes):
    script.data("events.csv", data())
    declared = into(f"'format' = '{format}'", columns=DECLARED).replace(" WITH", " PARTITIONED BY (b, s) WITH")
    done = script.run(SOURCE + declared + "INSERT INTO results SELECT * FROM events;", "--processes", processes, workers=1)
    assert done.code == 0, done.stderr
    out = script.folder / "out"
    assert {path.name for path in out.iterdir()} == {"b=true", "b=false", f"b={NULL}"}
    # The empty text and NULL are one, as in Hive; DuckDB reads it as NULL.
    assert {path.name for path in (out / "b=true").iterdir()} == {
        "s=a,b", "s=say %22hi%22", "s=two%0Alines", "s=é", f"s={NULL}", "s=x%3Dy%2Fz%25"}
    whole = [[tuple(None if value == "" else value for value in row) for row in rows_of(table)] for table in (
        reads("csv", f"{script.folder}/events.csv"), hive(format, out))]
    assert sorted(whole[0], key=repr) == sorted(whole[1], key=repr)


@pytest.mark.parametrize("by", ["", "s"])
@pytest.mark.parametrize("format, more", [
    ("csv", ""), ("ndjson", ""), ("parquet", "'parquet.compression' = 'zstd', 'parquet.block.size' = '1 MB', "),
    ("arrow", "'arrow.compression' = 'lz4', "),
])
def test_the_same_table_reads_what_was_written(script, format, more, by):
    rolled = "'sink.rolling-policy.rows' = '2', 'sink.rolling-policy.file-size' = '1 MB'"
    partitions = f" PARTITIONED BY ({by})" if by else ""
    sql = (f"CREATE TABLE o (k BIGINT, s STRING){partitions} WITH ('connector' = 'file', 'path' = 'out', "
           f"'format' = '{format}', {more}{rolled}, 'sink.rolling-policy.rollover-interval' = '1 h', "
           "'sink.rolling-policy.window' = 'false');\n")
    values = ", ".join(f"(CAST({k} AS BIGINT), '{'ab'[k % 2]}')" for k in range(5))
    done = script.run(f"{sql}INSERT INTO o SELECT k, s FROM (VALUES {values}) AS t (k, s);\nSELECT k, s FROM o;", workers=1)
    assert done.code == 0, done.stderr
    assert sorted(done.stdout.decode().splitlines()[-5:]) == ["0,a", "1,b", "2,a", "3,b", "4,a"]
    # A misspelt one is still found.
    done = script.run(sql.replace("policy.rows", "policy.row") + "SELECT k, s FROM o;", workers=1)
    assert done.code == 2 and "did you mean 'sink.rolling-policy.rows'?" in done.stderr, done.stderr


def hive(format: str, out: Path) -> str:
    """The partitions as DuckDB reads them, in their types."""
    kept = {name: type for name, type in DUCK_TYPES.items() if name not in ("b", "s")}
    table = reads(format, f"{out}/**/part-*", hive=True).replace(str(DUCK_TYPES), str(kept))
    columns = ", ".join("CAST(b AS BOOLEAN) AS b" if name == "b" else name for name in TYPES)
    return f"(SELECT {columns} FROM {table})"


PARTITIONED = into("{}", columns="k BIGINT, ts TIMESTAMP(3)").replace(" WITH", " PARTITIONED BY (k) WITH")


def limited(script, sql: str, which: int, limit: int) -> subprocess.CompletedProcess:
    """Runs a script under a limit of the system."""
    return subprocess.run([harness.program(), "run", script.write(sql), "--workers", "2"], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=harness.TIMEOUT_SECONDS,
                          preexec_fn=lambda: resource.setrlimit(which, (limit, limit)))


@pytest.mark.parametrize("more", ["", ", 'sink.rolling-policy.file-size' = '1 MB'"])
def test_of_many_partitions_few_files_are_open(script, more):
    sql = (generated(rows=400, step="5 ms").replace("'fields.k.min' = '0', 'fields.k.max' = '9'",
                                                   "'fields.k.kind' = 'sequence'") +
           PARTITIONED.format("'format' = 'parquet'" + more) + "INSERT INTO results SELECT k, ts FROM events;")
    done = limited(script, sql, resource.RLIMIT_NOFILE, 300)
    assert done.returncode == 0, done.stderr
    found = duckdb.sql(f"SELECT count(*), count(DISTINCT k), max(k) FROM "
                       f"read_parquet('{script.folder}/out/*/part-*', hive_partitioning = true)").fetchall()
    assert found == [(400, 400, 399)]


@pytest.mark.parametrize("processes", [1, 3])
@pytest.mark.parametrize("rolled", ["", ", 'sink.rolling-policy.rows' = '50'"])
def test_partitions_are_marked_when_the_job_has_ended_well(script, rolled, processes):
    options = f"'format' = 'csv', 'sink.partition-commit.policy.kind' = 'success-file'{rolled}"
    declared = PARTITIONED.format(options)
    insert = "INSERT INTO results SELECT k, ts FROM events WHERE {};"
    out = script.folder / "out"

    def marked(name: str) -> list[str]:
        return sorted(path.parent.name for path in out.rglob(name))

    fails = "100 / (TIMESTAMPDIFF(SECOND, TIMESTAMP '2024-01-01 00:00:04', ts)) < 1000"
    sql = generated(rows=1000, step="5 ms").replace("'9'", "'4'")
    done = script.run(sql + declared + insert.format(fails), "--processes", processes)
    assert done.code == 1, done.stderr
    assert marked("_SUCCESS") == []
    subprocess.run(["rm", "-r", out], check=True)
    done = script.run(sql + declared + insert.format("k <> 2"), "--processes", processes)
    assert done.code == 0, done.stderr
    assert marked("_SUCCESS") == ["k=0", "k=1", "k=3", "k=4"] == sorted(path.name for path in out.iterdir())
    # Whoever reads the directory passes over them.
    found = duckdb.sql(f"SELECT count(*) FROM read_csv('{out}/*/part-*')").fetchall()
    read = script.run("CREATE TABLE results (k BIGINT, ts TIMESTAMP(3)) PARTITIONED BY (k) WITH ('connector' = 'file', "
                      "'path' = 'out', 'format' = 'csv');\nSELECT COUNT(*) AS n FROM results;")
    assert read.stdout.decode() == f"n\n{found[0][0]}\n", read.stderr
    for path in out.rglob("part-*"):
        path.unlink()
    done = script.run(sql + declared + insert.format("k = 2"), "--processes", processes)
    assert done.code == 0 and marked("_SUCCESS") == [f"k={k}" for k in range(5)], done.stderr
    named = declared.replace(rolled, "") if rolled else declared
    named = named.replace("'success-file'", "'success-file', 'sink.partition-commit.success-file.name' = '_done'")
    done = script.run(sql + named + insert.format("k = 2"), "--processes", processes)
    assert done.code == 0 and marked("_done") == ["k=2"], done.stderr


KILLED = generated(rows=200_000, step="5 ms").replace("'9'", "'19'")


def killed_at(job, script, sql: str, processes: int, delay_seconds: float) -> None:
    """Starts a job, and kills one of its processes after so long."""
    running = job(sql, processes, "shm", running=False)
    out = script.folder / "out"
    wait_until("it has begun", lambda: running.main.poll() is not None or out.exists() and any(out.iterdir()))
    time.sleep(delay_seconds)
    running.main.kill()
    running.main.communicate()
    wait_until("all have ended", lambda: not running.processes())


def whole_rows(format: str, out: Path) -> int:
    """Rows in files with final names, every one of which has to be whole."""
    if not visible(out):
        return 0
    read = {"csv": "read_csv", "parquet": "read_parquet"}[format]
    return duckdb.sql(f"SELECT count(ts) FROM {read}('{out}/**/part-*')").fetchall()[0][0]


@pytest.mark.parametrize("format, processes", [("csv", 1), ("parquet", 1), ("parquet", 2)])
def test_kill_at_any_moment_leaves_no_half_file_and_the_next_job_adds_its_own(job, script, format, processes):
    chance, out = random.Random(f"{format}{processes}"), script.folder / "out"
    # It takes half a second.
    sql = KILLED.replace(");\n", ", 'rows-per-second' = '400000');\n") + PARTITIONED.format(f"'format' = '{format}'") + "INSERT INTO results SELECT k, ts FROM events;"
    found_something = 0
    for _ in range(6):
        killed_at(job, script, sql, processes, chance.uniform(0, 0.8))
        shown, left = whole_rows(format, out), len(unfinished(out))
        if not shown and left:
            found_something += 1
        done = script.run(sql, "--processes", processes, workers=1)
        assert done.code == 0, done.stderr
        assert ("of former jobs stay beside the new ones" in done.stderr) == (shown > 0), done.stderr
        counted = "1 unfinished file " if left == 1 else f"{left} unfinished files "
        said = f"out: {counted}of a job that did not end well will be removed" in done.stderr
        assert said == (left > 0), (left, done.stderr)
        assert whole_rows(format, out) == shown + 200_000 and unfinished(out) == []
        assert not list(out.glob(".part-*.lock"))
        subprocess.run(["rm", "-r", out], check=True)
    assert found_something, "it was never killed while it wrote"


def test_kill_leaves_rolled_files_whole(job, script):
    chance, out = random.Random(7), script.folder / "out"
    options = "'format' = 'parquet', 'sink.rolling-policy.rows' = '500'"
    sql = (generated(rows=None, per_second=200_000, more=", 'splits' = '4'").replace("'9'", "'19'") +
           into(options, columns="k BIGINT, ts TIMESTAMP(3)") + "INSERT INTO results SELECT k, ts FROM events;")
    for _ in range(6):
        killed_at(job, script, sql, 2, chance.uniform(0.1, 0.5))
        assert whole_rows("parquet", out) == 500 * len(visible(out))
        subprocess.run(["rm", "-r", out], check=True)


# Files that are written take no more than so many bytes, all together.
FULL = """
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
static long room = 100000;
static int counts(int file) {
    char link[64], path[4096] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    return readlink(link, path, sizeof path - 1) > 0 && strstr(path, ".inprogress") != NULL;
}
ssize_t write(int file, const void *from, size_t bytes) {
    ssize_t (*real)(int, const void *, size_t) = dlsym(RTLD_NEXT, "write");
    if (!counts(file)) return real(file, from, bytes);
    if (room <= 0) { errno = ENOSPC; return -1; }
    if ((long)bytes > room) bytes = room;
    room -= bytes;
    return real(file, from, bytes);
}
"""
# It is noticed when they are synced.
FULL_LATE = FULL.split("static long room")[0] + """
int fsync(int file) {
    char link[64], path[4096] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    if (readlink(link, path, sizeof path - 1) <= 0 || strstr(path, ".inprogress") == NULL) return 0;
    errno = ENOSPC;
    return -1;
}
"""


@pytest.mark.parametrize("full", [FULL, FULL_LATE], ids=["while writing", "while syncing"])
@pytest.mark.parametrize("format", FORMATS)
def test_a_full_disk_is_said_of_a_file_and_nothing_gets_a_final_name(script, before_libc, format, full):
    before_libc(full)
    sql = KILLED + into(f"'format' = '{format}'", columns="k BIGINT, ts TIMESTAMP(3)")
    done = script.run(sql + "INSERT INTO results SELECT k, ts FROM events;", workers=2)
    assert done.code == 1, done.stderr
    assert "out/.part-0-" in done.stderr and ".inprogress: No space left on device (os error 28)" in done.stderr, done.stderr
    assert "help: make room there" in done.stderr, done.stderr
    assert visible(script.folder / "out") == []


@pytest.mark.parametrize("format", FORMATS)
def test_a_limit_of_file_sizes_is_said_of_a_file(script, format):
    sql = KILLED + into(f"'format' = '{format}'", columns="k BIGINT, ts TIMESTAMP(3)")
    done = limited(script, sql + "INSERT INTO results SELECT k, ts FROM events;", resource.RLIMIT_FSIZE, 64 << 10)
    assert done.returncode == 1, done.stderr
    assert "out/.part-0-" in done.stderr and "File too large" in done.stderr, done.stderr
    assert visible(script.folder / "out") == []


def test_when_the_disk_is_full_what_was_rolled_stays_whole(script, before_libc):
    before_libc(FULL)
    sql = KILLED + into("'format' = 'csv', 'sink.rolling-policy.rows' = '500'", columns="k BIGINT, ts TIMESTAMP(3)")
    done = script.run(sql + "INSERT INTO results SELECT k, ts FROM events;", workers=1)
    assert done.code == 1 and "No space left on device" in done.stderr, done.stderr
    out = script.folder / "out"
    assert len(visible(out)) > 2 and whole_rows("csv", out) == 500 * len(visible(out))


@pytest.mark.parametrize("sql, place, expected", [
    ("CREATE TABLE t (k BIGINT, s STRING) PARTITIONED BY (x) WITH ('connector' = 'file', 'path' = 'out', "
     "'format' = 'csv');", "x", "there is no column 'x' to partition by"),
    ("CREATE TABLE t (k BIGINT, s STRING) PARTITIONED BY (s, s) WITH ('connector' = 'file', 'path' = 'out', "
     "'format' = 'csv');", "s", "column 's' is named twice"),
    ("CREATE TABLE t (k BIGINT) PARTITIONED BY (k) WITH ('connector' = 'file', 'path' = 'out', 'format' = 'csv');",
     "", "no column is left for the files"),
    ("CREATE TABLE t (k BIGINT, s STRING) PARTITIONED BY (s) WITH ('connector' = 'print');", "",
     "the connector 'print' has no partitions"),
    ("CREATE TABLE t (k BIGINT) WITH ('connector' = 'file', 'path' = 'out', 'format' = 'csv', "
     "'sink.rolling-policy.row' = '5');", "", "did you mean 'sink.rolling-policy.rows'?"),
    (f"CREATE TABLE t ({COLUMNS}) WITH ('connector' = 'file', 'path' = 'out', 'format' = 'parquet', "
     "'parquet.compression' = 'zip');", "", "'snappy', 'zstd', 'gzip', 'lz4' or 'none'"),
])
def test_what_cannot_be_written_is_said_before_anything_runs(script, sql, place, expected):
    done = script.run(sql + "\nSELECT 1;")
    assert done.code == 2 and done.stdout == b"" and expected in done.stderr, done.stderr
    if place:
        assert f"query.sql:1:{sql.index(f'({place}') + 2}" in done.stderr or "named twice" in expected, done.stderr


DOCS = (harness.ROOT / "docs" / "connectors.md").read_text().split("## Files that are written")[1].split("\n## ")[0]


def test_the_examples_of_the_documentation_run(script):
    found = re.findall(r"```sql\n(.*?)```", DOCS, re.DOTALL)
    examples = [example for example in found if "INSERT" in example]
    assert len(examples) == 4
    for example in examples:
        done = script.run(example, workers=2)
        assert done.code == 0, done.stderr
    rows = {name: duckdb.sql(f"SELECT count(*) FROM {read}('{script.folder}/{name}')").fetchall()[0][0] for name, read in [
        ("clicks/part-*", "read_parquet"), ("archive/part-*", "read_json"), ("per_page/page=*/part-*", "read_parquet")]}
    assert rows["archive/part-*"] == rows["per_page/page=*/part-*"] == 10_000
    # 10,000 seconds are 167 minutes, with up to ten pages.
    assert 1_600 < rows["clicks/part-*"] <= 1_670


@pytest.mark.parametrize("format", FORMATS)
def test_what_a_table_writes_it_reads_whatever_the_types(script, format):
    """Times of whole seconds, of which Parquet has none, and values made of others, of which CSV has none."""
    types = "at TIMESTAMP(0), t TIME(0), l ARRAY<BIGINT>, r ROW<a STRING, b ARRAY<DOUBLE>>, m MAP<STRING, INT>"
    script.data("x.ndjson", '{"at": "2024-05-01 12:00:03", "t": "01:02:03", "l": [1, null], '
                '"r": {"a": "say \\"hi\\", é\\n", "b": [0.5]}, "m": {"k,": 1}}\n{"l": [], "r": {}, "m": {}}\n')
    read = f"CREATE TABLE x ({types}) WITH ('connector' = 'file', 'format' = 'ndjson', 'path' = 'x.ndjson');\n"
    table = f"CREATE TABLE o ({types}) WITH ('connector' = 'file', 'format' = '{format}', 'path' = 'o');\n"
    assert script.run(read + table + "INSERT INTO o SELECT * FROM x;", workers=1).code == 0
    expected = script.run(read + "SELECT * FROM x;", workers=1)
    again = script.run(table + "SELECT * FROM o;", workers=1)
    assert again.code == 0 and again.stdout == expected.stdout, (again.stdout, again.stderr)
    assert again.stdout.count(b"2024-05-01 12:00:03") == 1 and b'say \\' in again.stdout, again.stdout


@pytest.mark.parametrize("text", ["[1", "[1] 2", "[\"\"x\"\"]", "{}", "[1.5]", "1"])
def test_csv_with_text_that_is_no_array_says_where(script, text):
    script.data("x.csv", f'n,l\n1,"[1]"\n2,"{text}"\n3,"[2, 3]"\n4,\n')
    table = "CREATE TABLE t (n BIGINT, l ARRAY<BIGINT>) WITH ('connector' = 'file', 'format' = 'csv', 'path' = 'x.csv'{});\n"
    result = script.run(table.format("") + "SELECT n, CARDINALITY(l) AS c FROM t;")
    assert result.code == 1 and "x.csv:3:3: expected ARRAY<BIGINT> for column 'l'" in result.stderr, result.stderr
    result = script.run(table.format(", 'on_error' = 'skip'") + "SELECT n, CARDINALITY(l) AS c FROM t;")
    assert result.stdout.decode().splitlines()[1:] == ["1,1", "3,2", "4,"], result.stderr


@pytest.mark.parametrize("format", ["parquet", "arrow"])
def test_a_time_with_more_digits_than_its_column_is_an_error(script, format):
    def table(digits: int) -> str:
        return (f"CREATE TABLE o{digits} (at TIMESTAMP({digits})) "
                f"WITH ('connector' = 'file', 'format' = '{format}', 'path' = 'o');\n")
    script.data("x.csv", "at\n2024-05-01 12:00:03.5\n")
    x = "CREATE TABLE x (at TIMESTAMP(3)) WITH ('connector' = 'file', 'format' = 'csv', 'path' = 'x.csv');\n"
    assert script.run(x + table(3) + "INSERT INTO o3 SELECT at FROM x;").code == 0
    result = script.run(table(0) + "SELECT at FROM o0;")
    assert result.code == 1 and "'at': a time with more digits than TIMESTAMP(0)" in result.stderr, result.stderr

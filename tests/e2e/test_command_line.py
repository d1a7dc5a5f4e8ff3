"""The command line: options, formats, where output goes, exit codes."""

import csv
import io
import json
import os
import re
import subprocess

import harness
import pytest
from conftest import WINDOW, events, generated

ROWS = "ts,k,v\n2024-01-01 00:00:01,1,10\n2024-01-01 00:00:02,2,\n2024-01-01 00:00:11,1,30\n"


@pytest.mark.parametrize("words", [["--help"], ["run", "--help"], ["--version"], ["fabric"],
                                   ["explain", str(harness.ROOT / "examples/stateless.sql")]])
def test_an_answer_that_cannot_be_written_is_an_error(words):
    with open("/dev/full", "w") as full:
        done = subprocess.run([harness.program(), *words], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1 and "the output: No space left on device" in done.stderr, done.stderr


def test_rows_go_to_stdout_and_the_closing_line_to_stderr(script):
    script.data("events.csv", ROWS)
    result = script.run(events() + WINDOW)
    assert result.code == 0
    assert result.stdout.decode().splitlines() == [
        "window_start,k,n",
        "2024-01-01 00:00:00.000,1,1",
        "2024-01-01 00:00:00.000,2,1",
        "2024-01-01 00:00:10.000,1,1",
    ]
    last = result.stderr.strip().splitlines()[-1]
    # Records, windows, rows, late records, seconds and records/s, in words or as name=value.
    for number in ("3", "2", "0"):
        assert re.search(rf"\b{number}\b", last), last
    for word in ("records", "windows", "rows", "late", "records/s"):
        assert word in last, last


def test_the_same_query_in_all_formats(script):
    script.data("events.csv", ROWS)
    path = script.write(events() + "SELECT ts, k, v FROM events;")
    as_csv = harness.run("run", path, "--format", "csv").stdout.decode()
    as_json = harness.run("run", path, "--format", "ndjson").stdout.decode()
    as_table = harness.run("run", path, "--format", "table").stdout.decode()
    rows = list(csv.DictReader(io.StringIO(as_csv)))
    objects = [json.loads(line) for line in as_json.splitlines()]
    assert [(r["ts"], r["k"], r["v"]) for r in rows] == [
        (o["ts"], str(o["k"]), "" if o["v"] is None else str(o["v"])) for o in objects
    ]
    assert objects[1] == {"ts": "2024-01-01 00:00:02.000", "k": 2, "v": None}
    for cell in ("ts", "k", "v", "2024-01-01 00:00:11.000", "30"):
        assert cell in as_table


def test_table_is_the_usual_format(script):
    script.data("events.csv", ROWS)
    path = script.write(events() + WINDOW)
    assert harness.run("run", path).stdout == harness.run("run", path, "--format", "table").stdout


def test_statements_on_the_command_line_resolve_paths_from_the_current_directory(script):
    script.data("events.csv", ROWS)
    result = harness.run("run", "-e", events() + "SELECT k FROM events", "--format", "csv",
                         cwd=script.folder)
    assert (result.code, result.stdout) == (0, b"k\n1\n2\n1\n"), result.stderr


def test_paths_resolve_from_the_folder_of_the_file(script, tmp_path_factory):
    script.data("events.csv", ROWS)
    path = script.write(events() + "SELECT k FROM events;")
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    result = harness.run("run", path, "--format", "csv", cwd=elsewhere)
    assert (result.code, result.stdout) == (0, b"k\n1\n2\n1\n"), result.stderr


def test_the_closing_line_of_a_query_without_windows_and_of_a_simulated_one(script):
    script.data("events.csv", ROWS)
    last = script.run(events() + "SELECT k, COUNT(*) AS n FROM events GROUP BY k;").stderr.splitlines()[-1]
    assert last.startswith("3 records, no windows, 2 rows, 0 late records, "), last
    last = script.run(events() + "SELECT k FROM events;", simulate=3).stderr.splitlines()[-1]
    assert last.endswith("of virtual time") and "records/s" not in last, last


def test_explain_names_types_as_sql_does(script):
    script.data("events.csv", ROWS)
    path = script.write(events("k BIGINT, v BIGINT, s STRING") + "SELECT k, s, ts, COUNT(*) FROM events GROUP BY k, s, ts;")
    text = harness.run("explain", path, stats=False).stdout.decode()
    layout = text[text.index("State layout"):]
    assert "k BIGINT, s STRING, ts TIMESTAMP(3)" in layout, layout
    assert "Int64" not in layout and "Utf8" not in layout


@pytest.mark.parametrize("words", [["explain"], ["run"]])
def test_output_that_cannot_be_written_is_an_error_or_a_quiet_end(script, words):
    script.data("events.csv", ROWS)
    path = script.write(events() + ("" if words == ["explain"] else "EXPLAIN ") + "SELECT k FROM events;")
    command = " ".join([str(harness.program()), *words, str(path)])
    full = subprocess.run(f"{command} > /dev/full", shell=True, capture_output=True, timeout=60)
    assert full.returncode == 1 and b"No space left" in full.stderr, full.stderr
    closed = subprocess.run(f"{command} | true; exit ${{PIPESTATUS[0]}}", shell=True, capture_output=True,
                            timeout=60, executable="/bin/bash")
    assert (closed.returncode, closed.stderr) == (0, b""), closed.stderr
    # Errors that nobody can be told of change nothing else.
    nobody = subprocess.run(f"{command} > /dev/null 2> /dev/full", shell=True, timeout=60)
    assert nobody.returncode == 0


def test_a_script_that_is_no_text_is_refused_with_its_place(script):
    path = script.write("")
    path.write_bytes(b"SELECT 1\nFROM \xc3\xa9t\xff;\n")
    result = harness.run("run", path, stats=False)
    assert result.code == 2
    assert "query.sql:2:8: expected SQL in UTF-8, found the byte 0xff" in result.stderr, result.stderr


def test_rows_for_an_output_that_is_closed_are_an_error(script):
    path = script.write("SELECT 1 AS a;")
    table = "CREATE TABLE out (a INT) WITH ('connector' = 'blackhole'); INSERT INTO out VALUES (1);"
    for words, code in [(f"run {path}", 1), (f"run {path} --format csv", 1), (f"explain {path}", 1), (f"< {path}", 1),
                        (f'run -e "{table}"', 0)]:
        done = subprocess.run(f"{harness.program()} {words} >&-", shell=True, capture_output=True, timeout=60)
        assert done.returncode == code, done.stderr
        assert (b"standard output is closed" in done.stderr) == (code == 1), done.stderr


@pytest.mark.parametrize("word, meant", [("rnu", "'run'"), ("sehll", "'shell'"), ("nod", None)])
def test_a_mistyped_command_is_told_with_the_one_that_is_meant(word, meant):
    done = harness.run(word, stats=False)
    assert done.code == 2 and f"unrecognized subcommand '{word}'" in done.stderr, done.stderr
    assert (f"a similar subcommand exists: {meant}" in done.stderr) == (meant is not None), done.stderr


def test_help_lists_the_settings():
    text = harness.run("run", "--help", stats=False).stdout.decode()
    for key in ("workers", "memory", "epoch.bytes", "fragment.mode", "allowed_lateness", "simulate"):
        assert key in text, text


def test_set_on_the_command_line_wins_nothing_over_a_wrong_name(script):
    script.data("events.csv", ROWS)
    result = script.run(events() + WINDOW, "--set", "epoch.byte=1")
    assert result.code == 2
    assert "epoch.byte" in result.stderr and "did you mean 'epoch.bytes'?" in result.stderr
    assert result.stdout == b""


@pytest.mark.parametrize("words, expected", [
    (["run"], ["FILE", "-e"]),
    (["run", "--workers", "0", "-e", "SELECT 1"], ["workers", "1 to 256"]),
    (["run", "--workers", "many", "-e", "SELECT 1"], ["workers", "many"]),
    (["run", "--format", "cvs", "-e", "SELECT 1"], ["cvs", "csv"]),
    (["run", "--fromat", "csv", "-e", "SELECT 1"], ["--fromat", "--format"]),
    (["run", "--set", "memory=lots", "-e", "SELECT 1"], ["memory", "lots", "1GB"]),
    (["run", "--set", "memory", "-e", "SELECT 1"], ["memory", "="]),
    (["run", "--set", "memory=99999999999999999999GB", "-e", "SELECT 1"], ["does not fit", "1GB"]),
    (["runn", "x.sql"], ["runn", "run"]),
    (["bench", "ysb", "--json"], ["another program, millstream-lab", "millstream-lab -- bench"]),
    ([], ["run", "explain"]),
])
def test_wrong_usage_says_what_to_write_and_exits_2(words, expected):
    result = harness.run(*words, stats=False)
    assert result.code == 2, result.stderr
    assert result.stdout == b""
    for text in expected:
        assert text in result.stderr, result.stderr
    assert harness.sound(result) == []


def test_help_and_version_go_to_stdout():
    for word, expected in (("--help", b"run"), ("--version", b"millstream")):
        result = harness.run(word, stats=False)
        assert result.code == 0
        assert expected in result.stdout


def test_explain_shows_plan_pipelines_and_state(script):
    script.data("events.csv", ROWS)
    path = script.write(events() + "SELECT window_start, k, SUM(v) AS total FROM TABLE(TUMBLE("
                        "TABLE events, DESCRIPTOR(ts), INTERVAL '10' SECOND)) WHERE v > 3 "
                        "GROUP BY window_start, window_end, k;")
    result = harness.run("explain", path, stats=False)
    assert result.code == 0, result.stderr
    text = result.stdout.decode().lower()
    for word in ("pipeline", "tumble", "events.csv", "sum", "bytes", "key"):
        assert word in text, text


@pytest.mark.parametrize("explain", [True, False])
def test_control_characters_are_escaped_in_what_explain_prints(script, explain):
    script.data("events.csv", ROWS)
    query = ("SELECT k AS \"name\033[31m\", COUNT(*) FILTER (WHERE k < 3 OR 'text\u202e' = CAST(k AS STRING)) AS n "
             "FROM events WHERE CAST(k AS STRING) <> 'bell\a' GROUP BY k;")
    path = script.write(events() + ("" if explain else "EXPLAIN ") + query)
    result = harness.run("explain" if explain else "run", path, stats=False)
    assert result.code == 0, result.stderr
    text = result.stdout.decode()
    for shown in (r"name\u{1b}[31m", r"text\u{202e}", r"bell\u{7}"):
        assert shown in text, text
    assert not re.search("[^\n -~]", text), text


def test_explain_runs_nothing(script):
    result = harness.run("explain", script.write(generated() + WINDOW), stats=False, timeout=30)
    assert result.code == 0, result.stderr


def test_the_statistics_have_every_counter(script):
    script.data("events.csv", ROWS)
    stats = script.run(events() + WINDOW).stats
    assert stats["records"] == 3 and stats["windows"] == 2 and stats["rows"] == 3
    for name in ("late_records", "null_time_records", "ahead_records", "epochs", "rows_shipped",
                 "mode_switches", "merges", "index_growths", "state_bytes_peak", "elapsed_us"):
        assert name in stats


@pytest.mark.parametrize("place", ["missing/stats.json", "folder", "events.csv/stats.json"])
def test_a_place_for_the_statistics_that_cannot_be_written_to_is_found_before_the_run(script, place):
    script.data("events.csv", ROWS)
    (script.folder / "folder").mkdir()
    path = script.folder / place
    result = harness.run("run", script.write(events() + WINDOW), "--stats-json", path, stats=False)
    assert (result.code, result.stdout) == (2, b""), result.stderr
    assert f"cannot write --stats-json {path}: " in result.stderr


def test_a_run_that_fails_to_plan_leaves_files_for_the_statistics_alone(script):
    script.data("events.csv", ROWS)
    old, new, link = (script.folder / name for name in ("old.json", "new.json", "link.json"))
    old.write_text("old")
    link.symlink_to(new)
    for path in (old, new, link):
        result = harness.run("run", script.write(events() + "SELECT q FROM events;"), "--stats-json", path, stats=False)
        assert result.code == 2
    assert old.read_text() == "old" and not new.exists() and link.is_symlink()
    for path in (old, link):
        result = harness.run("run", script.write(events() + WINDOW), "--stats-json", path, stats=False)
        assert result.code == 0 and json.loads(path.read_text())["records"] == 3


def test_the_statistics_go_into_a_pipe(script):
    script.data("events.csv", ROWS)
    os.mkfifo(script.folder / "pipe")
    reader = subprocess.Popen(["cat", str(script.folder / "pipe")], stdout=subprocess.PIPE)
    result = harness.run("run", script.write(events() + WINDOW), "--stats-json", script.folder / "pipe",
                         stats=False, timeout=30)
    reader_out, _ = reader.communicate(timeout=30)
    assert result.code == 0 and json.loads(reader_out)["records"] == 3


def test_a_file_of_records_is_no_script(tmp_path):
    (tmp_path / "events.csv").write_text("a\n1\n")
    done = harness.run("run", tmp_path / "events.csv", stats=False)
    assert done.code == 2 and "is a file of records, not of SQL" in done.stderr, done.stderr
    assert f"SELECT * FROM '{tmp_path}/events.csv'" in done.stderr

@pytest.mark.parametrize("words", [["x.sql"], ["-e", "SELECT 1 AS a"], ["-e", "-- so\nSELECT 1 AS a"], ["-c", "SELECT 1 AS a"], ["SELECT 1 AS a"],
                                   ["run", "SELECT 1 AS a"], ["run", "-c", "SELECT 1 AS a"], ["x.sql", "--quiet"]])
def test_a_script_and_sql_run_without_a_command(script, words):
    (script.folder / "x.sql").write_text("SELECT 1 AS a;")
    done = harness.run(*words, "--format", "csv", cwd=script.folder)
    assert (done.code, done.stdout) == (0, b"a\n1\n"), done.stderr
    assert ("1 record" in done.stderr) == ("--quiet" not in words)


@pytest.mark.parametrize("words, told", [(["rnu"], "'run'"), (["no.sql"], "cannot read no.sql"),
                                         (["SELEC 1 AS a"], "did you mean SELECT?")])
def test_what_is_neither_command_nor_script_is_told(script, words, told):
    done = harness.run(*words, cwd=script.folder, stats=False)
    assert done.code == 2 and told in done.stderr, done.stderr


def answered(script, sql: str, code: int = 0) -> str:
    done = script.run(sql)
    assert done.code == code, done.stderr
    return done.stderr if code else done.stdout.decode()


def test_declarations_and_settings_are_shown_as_they_were_written(script):
    table = "CREATE TABLE t (k  BIGINT) -- keys\nWITH ('connector' = 'datagen', 'seed' = '1')"
    view = "CREATE OR REPLACE VIEW v AS SELECT k + 2 AS k FROM t"
    text = answered(script, f"{table}; CREATE VIEW v AS SELECT k FROM t; {view}; CREATE TABLE IF NOT EXISTS t (n INT) "
                            "WITH ('connector' = 'print'); SHOW CREATE TABLE t; SHOW CREATE VIEW v;")
    assert text == f"{table};\n{view};\n"
    assert "there is no table 'tt'" in answered(script, f"{table}; SHOW CREATE TABLE tt;", 2)
    settings = "SET 'batch.rows' = '17'; SET 'join.within' = '2 s'; {} SHOW SETTINGS LIKE '%i%';"
    value = lambda reset, key: re.search(rf"^{key},([^,]*),", answered(script, settings.format(reset)), re.M)[1]
    assert value("", "join.within") == "2 s" and value("RESET 'join.within';", "join.within") == ""
    shown = answered(script, "SET 'batch.rows' = '17'; SET 'join.within' = '2 s'; RESET batch.rows; SET;")
    assert "join.within,2 s," in shown and "batch.rows,,1 to 1048576," in shown
    assert "2 s" not in answered(script, settings.format("RESET;"))
    assert "did you mean 'batch.rows'?" in answered(script, "RESET 'batch.row';", 2)


def test_lists_are_restricted_by_like(script):
    views = "CREATE VIEW aa AS SELECT 1 AS k; CREATE VIEW ab AS SELECT 1 AS k; CREATE VIEW b AS SELECT 1 AS k; "
    assert answered(script, views + "SHOW TABLES LIKE 'a%'") == "table name\naa\nab\n"
    lines = answered(script, "SHOW FUNCTIONS LIKE 'log_'").splitlines()
    assert lines == ["function name,example", "LOG2,LOG2(8)"]
    declared = "CREATE FUNCTION twice (x BIGINT) RETURNS BIGINT RETURN 2 * x; SHOW USER FUNCTIONS LIKE '%'"
    assert answered(script, declared) == "function name,example\nTWICE,TWICE(x BIGINT)\n"


@pytest.mark.parametrize("kilobytes", [64, 256])
def test_a_small_limit_of_the_stack_ends_no_command(script, kilobytes):
    command = ["sh", "-c", f'ulimit -s {kilobytes} && exec "$@"', "sh", str(harness.program()), "SELECT 1 AS a"]
    done = subprocess.run([*command, "--format", "csv"], capture_output=True, timeout=60, stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stdout) == (0, b"a\n1\n"), done.stderr

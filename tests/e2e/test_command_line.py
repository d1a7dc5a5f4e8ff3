"""The command line: options, formats, where output goes, exit codes."""

import csv
import io
import json
import re

import harness
import pytest
from conftest import WINDOW, events, generated

ROWS = "ts,k,v\n2024-01-01 00:00:01,1,10\n2024-01-01 00:00:02,2,\n2024-01-01 00:00:11,1,30\n"


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
    (["runn", "x.sql"], ["runn", "run"]),
    (["bench", "ysbb"], ["ysbb", "ysb"]),
    ([], ["run", "explain", "bench"]),
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

"""Logs of a run, `--log json` and `--log text`."""

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import harness
import pytest
from jobs import PATIENCE_SECONDS, children
from watched import LIVE, LONG_WINDOWS


def logged(folder, sql: str, *more: str, environment=None) -> tuple[int, list[dict]]:
    """A run's exit code, and its log."""
    path = Path(folder) / "logged.sql"
    path.write_text(sql)
    done = subprocess.run([harness.program(), "run", str(path), *more], capture_output=True, text=True, env=environment,
                          timeout=PATIENCE_SECONDS)
    return done.returncode, [json.loads(line) for line in done.stderr.splitlines()]


TEN = "CREATE TABLE ten (n BIGINT) WITH ('connector' = 'datagen', 'number-of-rows' = '10');\n"


@pytest.mark.parametrize("processes", [1, 2])
def test_every_line_of_a_json_log_is_an_object(tmp_path, place, processes):
    sql = TEN + "SELECT COUNT(*) AS n FROM ten;\nSELECT n FROM ten;"
    code, log = logged(tmp_path, sql, "--log", "json", "--processes", str(processes), environment=place)
    assert code == 0
    assert all({"time", "level", "process", "message"} <= set(line) for line in log), log
    ends = [line for line in log if line["message"].startswith("query ended")]
    assert [(line["records"], line["rows"]) for line in ends] == [(10, 1), (10, 10)]
    assert [line["statement"] for line in log if line["message"] == "query started"] == [2, 3]
    times = [time.strptime(line["time"][:19], "%Y-%m-%dT%H:%M:%S") for line in log]
    assert times == sorted(times) and all(line["time"].endswith("Z") for line in log)


@pytest.mark.parametrize("processes", [1, 2])
def test_a_log_says_what_happened_to_sources_windows_and_files(tmp_path, place, processes):
    """The record of 12:00:05 comes after that of 12:00:20, whose window is complete then."""
    (tmp_path / "events.csv").write_text("ts,k\n2024-01-01 12:00:00,1\n2024-01-01 12:00:20,2\n2024-01-01 12:00:05,3\n")
    sql = """CREATE TABLE events (ts TIMESTAMP(3), k BIGINT, WATERMARK FOR ts AS ts)
        WITH ('connector' = 'file', 'path' = 'events.csv', 'format' = 'csv');
        CREATE TABLE counts (w TIMESTAMP(3), n BIGINT) WITH ('connector' = 'file', 'path' = 'counts', 'format' = 'csv');
        INSERT INTO counts SELECT window_start, COUNT(*)
        FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY window_start, window_end;"""
    code, log = logged(tmp_path, sql, "--log", "json", "--processes", str(processes), "--workers", "1", environment=place)
    assert code == 0, log

    def of(message: str) -> list[dict]:
        return [line for line in log if line["message"].startswith(message)]

    every = list(range(processes))
    start, = of("query started")
    assert start["statement"] == 3 and start["sql"].startswith("INSERT INTO counts SELECT window_start")
    starts = of("workers start")
    assert sorted(line["process"] for line in starts) == every
    assert {(line["processes"], line["workers"], line["outputs"]) for line in starts} == {(processes, 1, 1)}
    # All processes read a file, each some of its records.
    for message in ("a source has been opened", "a source has ended"):
        assert sorted(line["process"] for line in of(message)) == every
        assert all("events.csv" in line["source"] and line["splits"] == 1 for line in of(message))
    assert sum(line["records"] for line in of("a source has ended")) == 3
    late, = of("the first records come too late")
    assert (late["level"], late["stage"]) == ("warn", 1) and late["split"].endswith("events.csv")
    files = [(line["table"], line["file"]) for line in of("a file has its final name")]
    written = {str(path.relative_to(tmp_path / "counts")) for path in (tmp_path / "counts").rglob("part-*")}
    assert files and {table for table, _ in files} == {"counts"}
    assert sorted(file for _, file in files) == sorted(written)
    assert [line["peer"] for line in of("process 1 has joined")] == every[1:]
    end, = of("query ended")
    assert (end["level"], end["records"], end["late_records"]) == ("warn", 3, 1)


def test_a_log_says_that_a_process_is_lost(tmp_path, place):
    path = tmp_path / "logged.sql"
    path.write_text(LIVE + LONG_WINDOWS)
    command = [harness.program(), "run", str(path), "--log", "json", "--processes", "2"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=place) as process:
        log = (json.loads(line) for line in process.stderr)
        next(line for line in log if line["message"] == "workers start" and line["process"] == 1)
        peer, = children(process.pid)
        os.kill(peer, signal.SIGKILL)
        rest = list(log)
    assert process.returncode == 1
    lost = [(line["level"], line["message"]) for line in rest if line.get("peer") == 1]
    assert lost == [("warn", "process 1 was killed by signal 9 (SIGKILL)")]
    assert [line["message"] for line in rest if line["level"] == "error"] == [lost[0][1]]


def test_levels_of_a_log_leave_out_what_is_below(tmp_path, place):
    sql = TEN + "SELECT COUNT(*) AS n FROM ten;"
    everything = logged(tmp_path, sql, "--log", "json", "--log-level", "debug", "--processes", "2", environment=place)[1]
    assert {line["level"] for line in everything} >= {"debug", "info"}
    assert any(line["message"] == "process 1 is started" and line["pid"] > 0 for line in everything)
    for level, allowed in [("warn", {"warn", "error"}), ("error", {"error"})]:
        code, log = logged(tmp_path, sql, "--log", "json", "--log-level", level, environment=place)
        assert code == 0 and {line["level"] for line in log} <= allowed


def test_records_that_are_left_out_are_a_warning(tmp_path, place):
    (tmp_path / "bad.csv").write_text("n\n1\nx\n")
    sql = ("CREATE TABLE b (n BIGINT) WITH ('connector' = 'file', 'format' = 'csv', 'path' = 'bad.csv', 'on_error' = 'skip');\n"
           "SELECT n FROM b;")
    log = logged(tmp_path, sql, "--log", "json", "--log-level", "warn", environment=place)[1]
    assert [(line["level"], line["statement"], line["malformed_records"]) for line in log] == [("warn", 2, 1)]


def test_a_mistake_is_logged_as_an_error_with_its_place(tmp_path, place):
    code, log = logged(tmp_path, TEN + "SELECT m FROM ten;", "--log", "json", environment=place)
    assert code == 2 and [line["level"] for line in log] == ["error"]
    assert log[0]["message"].startswith("there is no column 'm'") and "logged.sql:2:8" in log[0]["message"]
    (tmp_path / "bad.csv").write_text("n\n1\nx\n")
    sql = "CREATE TABLE b (n BIGINT) WITH ('connector' = 'file', 'format' = 'csv', 'path' = 'bad.csv');\nSELECT n FROM b;"
    code, log = logged(tmp_path, sql, "--log", "json", environment=place)
    assert code == 1 and log[-1]["level"] == "error" and "bad.csv:3:1" in log[-1]["message"], log


def test_a_log_for_reading_has_a_line_for_each_event(tmp_path, place):
    path = tmp_path / "logged.sql"
    path.write_text(TEN + "SELECT COUNT(*) AS n FROM ten;")
    done = subprocess.run([harness.program(), "run", str(path), "--log", "text"], capture_output=True, text=True, env=place)
    lines = done.stderr.splitlines()
    head = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z INFO  process=0 "
    expected = ["query started", "workers start", "a source has been opened", "a source has ended", "query ended: 10 records"]
    assert len(lines) == len(expected)
    assert all(re.match(head + message, line) for message, line in zip(expected, lines)), lines
    assert "records=10" in lines[-1] and 'sql="SELECT COUNT(*) AS n FROM ten" statement=2' in lines[0]
    wrong = subprocess.run([harness.program(), "run", str(path), "--log-level", "debug"], capture_output=True, text=True)
    assert wrong.returncode == 2 and "--log" in wrong.stderr


def test_a_log_says_why_no_rows_come(tmp_path, place):
    """After ten seconds, also where stderr is no terminal."""
    path = tmp_path / "logged.sql"
    path.write_text(LIVE + LONG_WINDOWS)
    with subprocess.Popen([harness.program(), "run", str(path), "--log", "json"], stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, text=True, env=place) as process:
        log = (json.loads(line) for line in process.stderr)
        why = next(line for line in log if line["message"].startswith("no rows for"))
        process.send_signal(signal.SIGINT)
        rest = list(log)
    assert why["level"] == "warn" and "window" in why["message"]
    assert process.returncode == 130 and any("records" in line for line in rest)

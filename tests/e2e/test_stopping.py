"""Signals: which of them stop a job, and what the job then reports."""

import os
import re
import signal
import time

import pytest
from conftest import events, generated, into
from jobs import ENDLESS, PATIENCE_SECONDS, wait_until
from watched import ask

WINDOWS = """SELECT window_start, COUNT(*) AS n
FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY window_start, window_end{}"""


def counted(job, folder, processes: int, query: str, lines: str, rows: int) -> str:
    """Runs a query over a pipe that stays open, waits for so many rows, presses Ctrl-C; the closing line."""
    os.mkfifo(folder / "events.csv")
    running = job(events("k BIGINT", delay=" - INTERVAL '10' SECOND") + query, processes, "shm", running=False)
    with open(folder / "events.csv", "w", encoding="utf-8") as pipe:
        pipe.write("ts,k\n" + lines)
        pipe.flush()
        for _ in range(1 + rows):
            assert running.main.stdout.readline().endswith(b"\n")
        running.main.send_signal(signal.SIGINT)
        running.main.wait(PATIENCE_SECONDS)
    code, stderr = running.end()
    assert code == 130, stderr
    return stderr.splitlines()[-1]


# By hand: at 12:00:35 less 10 s the windows of 12:00:00 and 12:00:10 are over, those of :20 and :30 are open.
LINES = "".join(f"2024-01-01 12:00:{second:02},{second}\n" for second in (5, 15, 16, 25, 35))


@pytest.mark.parametrize("processes", [1, 2])
def test_ctrl_c_says_how_many_windows_were_open(job, script, processes):
    last = counted(job, script.folder, processes, WINDOWS.format(";"), LINES, 2)
    assert last.startswith("interrupted with 2 windows open: 5 records, 2 windows, 2 rows, "), last


def test_windows_of_several_keys_are_counted_once(job, script):
    sql = WINDOWS.format(", k;").replace("SELECT", "SELECT k,")
    lines = "".join(f"2024-01-01 12:00:{second:02},{second}{digit}\n" for second in (5, 15, 16, 25, 35)
                    for digit in range(10))
    last = counted(job, script.folder, 2, sql, lines, 30)
    assert last.startswith("interrupted with 2 windows open: "), last


SESSIONS = """CREATE VIEW few AS SELECT * FROM events WHERE k <> 38;
SELECT window_start, COUNT(*) AS n
FROM TABLE(SESSION(TABLE few{}, DESCRIPTOR(ts), INTERVAL '{}' SECOND))
GROUP BY window_start, window_end{};"""


@pytest.mark.parametrize("processes", [1, 2])
def test_ctrl_c_says_that_sessions_were_open(job, script, processes):
    # At 12:00:25 the sessions of seconds 5, 15 and 16 are over; those of 25 and 35 would not fire together.
    sql = SESSIONS.format(" PARTITION BY k", 4, ", k")
    last = counted(job, script.folder, processes, sql, LINES, 3)
    assert last.startswith("interrupted with 2 windows open: 5 records, 3 windows, 3 rows, "), last


def test_a_query_without_windows_has_none_open(job, script):
    last = counted(job, script.folder, 1, "SELECT k FROM events;", LINES, 5)
    assert last.startswith("interrupted: 5 records, no windows, 5 rows, "), last


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT])
def test_a_signal_that_is_ignored_at_the_start_stays_ignored(job, processes, number):
    """`nohup` ignores SIGHUP, a shell that is no terminal's ignores SIGINT in what it runs in the background."""
    before = signal.signal(number, signal.SIG_IGN)
    try:
        running = job(ENDLESS, processes, "shm")
    finally:
        signal.signal(number, before)
    for pid in [running.main.pid, *running.others]:
        os.kill(pid, number)
    running.main.send_signal(number)
    # It goes on: windows of a second come for longer than a job takes to stop.
    for _ in range(4 * 10):
        assert running.main.stdout.readline().endswith(b"\n")
    running.main.send_signal(signal.SIGTERM)
    code, stderr = running.end()
    assert code == 130, stderr
    assert "interrupted with " in stderr.splitlines()[-1], stderr


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT, signal.SIGTERM])
def test_a_signal_that_is_not_ignored_ends_it(job, number):
    running = job(ENDLESS, 1, "shm")
    os.kill(running.main.pid, number)
    code, stderr = running.end()
    assert code == 130, stderr


@pytest.mark.parametrize("processes", [1, 2])
def test_ctrl_c_while_a_pipe_is_waited_for_says_so(job, script, processes):
    os.mkfifo(script.folder / "events.csv")
    running = job(events("k BIGINT") + "SELECT k FROM events;", processes, "shm", running=False)
    # Waits until the program opens it, which then waits for a header.
    pipe = os.open(script.folder / "events.csv", os.O_WRONLY)
    running.main.send_signal(signal.SIGINT)
    running.main.wait(PATIENCE_SECONDS)
    os.close(pipe)
    code, stderr = running.end()
    assert code == 130, stderr
    assert stderr.splitlines()[-1].startswith("interrupted while "), stderr


@pytest.mark.parametrize("processes", [1, 2])
def test_ctrl_c_of_explain_analyze_shows_the_plan_so_far(job, processes):
    sql = generated(per_second=1000) + "EXPLAIN ANALYZE SELECT k + 1 AS k FROM events;"
    running = job(sql, processes, "shm", running=False)
    wait_until("it runs", lambda: "\nrunning for " in ask(os.environ, "why", running.main.pid).stdout)
    time.sleep(0.5)
    running.main.send_signal(signal.SIGINT)
    shown = running.main.stdout.read().decode()
    code, stderr = running.end()
    assert code == 130 and "interrupted: " in stderr, stderr
    assert shown.startswith("logical plan\n") and re.search(r"\nin all\n  = [1-9][\d,]* records", shown), shown


# What was written reaches the disk when the test says so.
SLOW_SYNC = """
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>
static int slow(void) {
    close(open(getenv("SLOW_BEGUN"), O_CREAT | O_WRONLY, 0600));
    while (access(getenv("SLOW_GO"), F_OK) != 0) usleep(10000);
    return 0;
}
int fsync(int file) { return slow(); }
int fdatasync(int file) { return slow(); }
"""


@pytest.mark.parametrize("processes", [1, 2])
def test_ctrl_c_while_files_reach_the_disk_is_not_lost(job, script, before_libc, monkeypatch, tmp_path_factory,
                                                       processes):
    folder, out = tmp_path_factory.mktemp("slow"), script.folder / "out"
    out.mkdir()
    before_libc(SLOW_SYNC)
    monkeypatch.setenv("SLOW_BEGUN", str(folder / "begun"))
    monkeypatch.setenv("SLOW_GO", str(folder / "go"))
    sql = generated(rows=1000) + into(columns="k BIGINT") + "INSERT INTO results SELECT k FROM events;\nSELECT 1 AS later;"
    running = job(sql, processes, "shm", running=False)
    wait_until("files reach the disk", (folder / "begun").exists)
    running.main.send_signal(signal.SIGINT)
    # Nothing shows when the signal has been taken; one that is late comes before the files get names, or the test fails.
    time.sleep(0.3)
    (folder / "go").touch()
    assert running.main.stdout.read() == b""
    code, stderr = running.end()
    assert code == 130, stderr
    assert "interrupted: 1,000 records" in stderr, stderr
    assert all(name.startswith(".part-") for name in os.listdir(out)), os.listdir(out)

"""`millstream stop --drain`: what was read or accepted counts, once, on any number of processes."""

import http.client
import os
import re
import signal
import socket
import subprocess
import threading
import time

import harness
import pytest
from conftest import events, generated
from jobs import PATIENCE_SECONDS, children, wait_until
from watched import LIVE, LONG_WINDOWS, ask, report

# Long enough that a few thousand rows fill what waits for a reader of the output.
PAD = "x" * 200


def snapshot(place) -> dict:
    return (report(place) or {}).get("snapshot") or {}


def begin_to_drain(place) -> subprocess.Popen:
    """Asks the job to drain. It goes on until somebody reads its output."""
    asked = subprocess.Popen([harness.program(), "stop", "--drain"], env=place, stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL)
    wait_until("draining", lambda: snapshot(place).get("phase") in ("draining", "ending"))
    return asked


def stuck(place) -> bool:
    """Whether more rows than a pipe takes wait for a reader of the output, and nothing happens any more."""
    looks = []
    for _ in range(3):
        now = snapshot(place)
        looks.append((now.get("records"), [output["queued_bytes"] for output in now.get("outputs", [])]))
        time.sleep(0.1)
    return looks[0] == looks[1] == looks[2] and sum(looks[0][1]) > 100_000


def closing_line(stderr: str) -> str:
    """The line with the counters."""
    return next(line for line in stderr.splitlines() if " records, " in line)


def test_open_windows_of_several_processes_fire(start, place):
    job = start(LIVE + LONG_WINDOWS, "--processes", 2)

    def both_read() -> bool:
        return [split["records"] > 0 for split in snapshot(place).get("splits", [])] == [True, True]

    wait_until("both splits are read", both_read)
    assert ask(place, "stop", "--drain").returncode == 0
    out, err = job.communicate(timeout=PATIENCE_SECONDS)
    assert job.returncode == 0, err
    counted = sum(int(row.split(",")[2]) for row in out.splitlines()[1:])
    line = closing_line(err)
    assert line.startswith(f"{counted:,} records, ") and " 0 late records, " in line, err


def test_a_file_that_all_processes_read_ends_at_one_place(start, script, place):
    rows = [f"{n},{PAD}" for n in range(100_000)]
    script.data("events.csv", "\n".join(["k,pad", *rows]) + "\n")
    table = "CREATE TABLE events (k BIGINT, pad STRING)" \
        " WITH ('connector' = 'file', 'path' = 'events.csv', 'format' = 'csv');\n"
    job = start(table + "SELECT k, pad FROM events; SELECT 1 AS n;", "--processes", 2, "--set", "memory=16MB")
    wait_until("nobody reads", lambda: stuck(place))
    asked = begin_to_drain(place)
    out, err = job.communicate(timeout=PATIENCE_SECONDS)
    assert (job.returncode, asked.wait(PATIENCE_SECONDS)) == (0, 0), err
    found = out.splitlines()[1:]
    # What came after the part that was read is missing, and nothing else.
    assert 0 < len(found) < len(rows) and found == rows[: len(found)]
    assert err.splitlines()[-1] == "drained: 1 statement not run"


def test_a_followed_file_counts_as_far_as_it_was_read(start, script, place):
    script.data("events.csv", "ts,k\n")
    table = events("k BIGINT").replace("'format'", "'follow' = 'true', 'format'")
    job = start(table + LONG_WINDOWS, "--processes", 2)
    for minute in range(3):
        with open(script.folder / "events.csv", "a") as file:
            file.write(f"2024-01-01 12:{minute:02}:00,7\n" * 5)
        wait_until("records", lambda: snapshot(place).get("records") == 5 * (minute + 1))  # noqa: B023
    assert ask(place, "stop", "--drain").returncode == 0
    out, err = job.communicate(timeout=PATIENCE_SECONDS)
    assert (job.returncode, out.splitlines()[1:]) == (0, ["2024-01-01 12:00:00.000,7,15"]), err


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_process_that_is_lost_meanwhile_ends_the_job(start, place, number):
    sql = generated(rows=10**12, step="1 ms", more=", 'splits' = '2'").replace("k BIGINT", "k BIGINT, pad STRING")
    job = start(sql + "SELECT k, ts, pad FROM events;", "--processes", 2, "--set", "memory=16MB")
    wait_until("nobody reads", lambda: stuck(place))
    peer, = children(job.pid)
    if number == signal.SIGSTOP:
        # It cannot hear of it.
        os.kill(peer, number)
        asked = subprocess.Popen([harness.program(), "stop", "--drain"], env=place)
    else:
        asked = begin_to_drain(place)
        os.kill(peer, number)
    assert job.wait(PATIENCE_SECONDS) == 1
    asked.wait(PATIENCE_SECONDS)
    told = job.stderr.read()
    expected = "was killed by signal 9" if number == signal.SIGKILL else "has not answered for 2 s"
    assert f"error: process 1 {expected}" in told, told


@pytest.mark.parametrize("processes", [1, 2])
def test_bodies_that_were_accepted_count(start, place, processes):
    table = "CREATE TABLE events (k BIGINT, pad STRING)" \
        " WITH ('connector' = 'http', 'listen' = '127.0.0.1:0', 'format' = 'csv', 'max-body' = '1 MB');\n"
    job = start(table + "SELECT k, pad FROM events;", "--processes", processes, "--set", "memory=16MB")
    address = re.search(r"http://([\d.]+):(\d+)", job.stderr.readline())

    def post(first: int) -> int:
        connection = http.client.HTTPConnection(address[1], int(address[2]), timeout=PATIENCE_SECONDS)
        connection.request("POST", "/", "".join(f"{k},{PAD}\n" for k in range(first, first + 100)))
        status = connection.getresponse().status
        connection.close()
        return status

    # Until nobody takes them in any more, and too many wait.
    accepted: list[int] = []
    while (status := post(100 * len(accepted))) == 202:
        accepted.append(100 * len(accepted))
    assert status == 429
    asked = begin_to_drain(place)
    assert post(10**9) == 503
    out, err = job.communicate(timeout=PATIENCE_SECONDS)
    assert (job.returncode, asked.wait(PATIENCE_SECONDS)) == (0, 0), err
    found = [int(row.split(",")[0]) for row in out.splitlines()[1:]]
    assert found == list(range(100 * len(accepted)))


def test_of_senders_at_work_each_knows_what_counts(start, script, place):
    table = "CREATE TABLE events (k BIGINT)" \
        " WITH ('connector' = 'http', 'listen' = '127.0.0.1:0', 'format' = 'csv');\n"
    with open(script.folder / "rows.csv", "w") as rows:
        job = start(table + "SELECT k FROM events;", stdout=rows)
    address = re.search(r"http://([\d.]+):(\d+)", job.stderr.readline())
    accepted: list[int] = []
    answers: list[int] = []

    def send(first: int) -> None:
        for k in range(first, first + 10**6):
            connection = http.client.HTTPConnection(address[1], int(address[2]), timeout=PATIENCE_SECONDS)
            try:
                connection.request("POST", "/", f"{k}\n")
                answers.append(connection.getresponse().status)
            except (OSError, http.client.HTTPException):
                return  # the job is gone
            finally:
                connection.close()
            if answers[-1] != 202:
                return
            accepted.append(k)

    senders = [threading.Thread(target=send, args=(10**6 * number,)) for number in range(4)]
    for sender in senders:
        sender.start()
    wait_until("some are accepted", lambda: len(accepted) > 200)
    assert ask(place, "stop", "--drain").returncode == 0
    for sender in senders:
        sender.join(PATIENCE_SECONDS)
    assert job.wait(PATIENCE_SECONDS) == 0
    assert set(answers) <= {202, 503}
    found = [int(row) for row in (script.folder / "rows.csv").read_text().splitlines()[1:]]
    # One whose answer did not arrive may count, too.
    assert len(found) == len(set(found)) and set(accepted) <= set(found) and len(found) <= len(accepted) + 4


def test_lines_that_a_socket_has_received_count(start, place):
    table = "CREATE TABLE events (k BIGINT)" \
        " WITH ('connector' = 'socket', 'listen' = '127.0.0.1:0', 'format' = 'csv');\n"
    job = start(table + "SELECT k FROM events;")
    address = re.search(r"on ([\d.]+):(\d+)", job.stderr.readline())
    with socket.create_connection((address[1], int(address[2]))) as sender:
        sender.sendall(b"1\n2\n3\n4")
        wait_until("three records", lambda: snapshot(place).get("records") == 3)
        assert ask(place, "stop", "--drain").returncode == 0
    out, err = job.communicate(timeout=PATIENCE_SECONDS)
    assert (job.returncode, out.splitlines()[1:]) == (0, ["1", "2", "3"]), err
    assert "drained in the middle of line 4, which is left out" in err

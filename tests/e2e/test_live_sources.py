"""Sources that come in their own time: lines over TCP, records over HTTP, files that are followed."""

import http.client
import os
import re
import signal
import socket
import subprocess
import time

import pytest
from listened import LOOK_SECONDS, PATIENCE_SECONDS, Listened

TABLE = "CREATE TABLE events (ts TIMESTAMP(3), k BIGINT, WATERMARK FOR ts AS ts) WITH ({});\n"
WINDOWS = """SELECT window_start, COUNT(*) AS n, SUM(k) AS s
FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY window_start, window_end;"""
HEADER = "window_start,n,s"
FIRST = "2024-01-01 12:00:00.000,2,3"
SECOND = "2024-01-01 12:00:10.000,1,3"


def record(second: int, k: int) -> str:
    return f"2024-01-01 12:00:{second:02},{k}\n"


def in_json(second: int, k: int) -> str:
    return f'{{"ts": "2024-01-01T12:00:{second:02}", "k": {k}}}\n'


class Running(Listened):
    """A running query over a live source."""

    def __init__(self, script, options: str, query: str, *words: str):
        super().__init__(script.write(TABLE.format(options) + query), *words)

    def address(self) -> tuple[str, int]:
        """Where it listens, which it says on stderr."""
        end = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < end:
            found = re.search(r"waits for .* on (?:http://)?([\d.]+):(\d+)", self.said())
            if found:
                return found[1], int(found[2])
            assert self.process.poll() is None, self.said()
            time.sleep(0.02)
        raise AssertionError(f"it does not say where it listens: {''.join(self.errors)}")

    def interrupt(self) -> str:
        """Presses Ctrl-C; what stderr says."""
        self.process.send_signal(signal.SIGINT)
        return self.ended(130)


@pytest.fixture
def running(script):
    started = []

    def begin(options: str, query: str = WINDOWS, *words: str) -> Running:
        started.append(Running(script, options, query, *words))
        return started[-1]

    yield begin
    for one in started:
        one.kill()


# --- socket ---------------------------------------------------------------------------------------

@pytest.mark.parametrize("processes", ["1", "2"])
def test_lines_over_tcp_until_the_sender_closes_the_connection(running, processes):
    job = running("'connector' = 'socket', 'listen' = '127.0.0.1:0', 'format' = 'csv'", WINDOWS,
                  "--processes", processes)
    with socket.create_connection(job.address()) as sender:
        sender.sendall((record(1, 1) + record(2, 2)).encode())
        sender.sendall(record(10, 3).encode())
        assert (job.next(), job.next()) == (HEADER, FIRST)
        # The last line has no line end.
        sender.sendall(b"2024-01-01 12:00:09,5\n2024-01-01 12:00:2")
        job.nothing()
        sender.sendall(b"0,7")
    assert [job.next(), job.next()] == [SECOND, "2024-01-01 12:00:20.000,1,7"]
    assert "1 late" in job.ended()


def test_it_connects_as_a_client_and_ctrl_c_ends_it(running):
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(PATIENCE_SECONDS)
        port = server.getsockname()[1]
        job = running(f"'connector' = 'socket', 'hostname' = 'localhost', 'port' = '{port}', 'format' = 'ndjson'")
        sender, _ = server.accept()
        with sender:
            sender.sendall((in_json(1, 1) + in_json(2, 2) + in_json(10, 3)).encode())
            assert (job.next(), job.next()) == (HEADER, FIRST)
            assert "interrupted" in job.interrupt()


def test_a_refused_connection_is_an_error_that_says_what_to_do(script):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    sql = TABLE.format(f"'connector' = 'socket', 'hostname' = '127.0.0.1', 'port' = '{port}', 'format' = 'csv'")
    result = script.run(sql + WINDOWS)
    assert result.code == 1
    assert "refused" in result.stderr and "start the sender first" in result.stderr


# --- http -----------------------------------------------------------------------------------------

HTTP = "'connector' = 'http', 'listen' = '127.0.0.1:0', 'format' = '{}'"


def post(connection: http.client.HTTPConnection, body: str) -> tuple[int, str]:
    connection.request("POST", "/", body.encode())
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


@pytest.mark.parametrize("processes", ["1", "2"])
def test_records_over_http(running, processes):
    job = running(HTTP.format("ndjson"), WINDOWS, "--processes", processes)
    connection = http.client.HTTPConnection(*job.address(), timeout=PATIENCE_SECONDS)
    assert post(connection, in_json(1, 1) + in_json(2, 2)) == (202, "2 records accepted\n")
    status, text = post(connection, in_json(3, 3) + '{"k": "x"}\n')
    assert status == 400 and ", body 2:2:" in text and "expected BIGINT" in text
    job.nothing()
    assert post(connection, in_json(10, 3)) == (202, "1 record accepted\n")
    assert (job.next(), job.next()) == (HEADER, FIRST)
    connection.request("GET", "/")
    assert connection.getresponse().status == 405
    assert "interrupted with 1 window open: 3 records" in job.interrupt()


def test_a_body_of_empty_objects_is_counted_before_it_is_accepted(running):
    """A megabyte that stands for 640. An array of such objects in one record is refused."""
    columns = ", ".join(f"c{n} BIGINT" for n in range(200))
    tables = "".join(f"CREATE TABLE {name} ({columns}, a ARRAY<ROW<{columns}>>) WITH ({options});\n"
                     for name, options in [("w", HTTP.format("ndjson")), ("b", "'connector' = 'blackhole'")])
    job = running(HTTP.format("csv"), tables + "INSERT INTO b SELECT * FROM w;", "--workers", "2", "--set", "memory=64MB")
    connection = http.client.HTTPConnection(*job.address(), timeout=PATIENCE_SECONDS)
    connection.connect()
    assert post(connection, "{}\n" * 400_000) == (202, "400000 records accepted\n")
    status, text = post(connection, '{"a": [' + "{}," * 100_000 + "{}]}")
    assert status == 413 and ", body 2:1:" in text and "--set memory" in text, text
    with open(f"/proc/{job.process.pid}/status") as lines:
        peak = next(int(line.split()[1]) >> 10 for line in lines if line.startswith("VmHWM"))
    assert peak < 400, f"{peak} MiB"


def test_tables_that_share_a_port(script):
    """Each with a path; a body in chunks, and one of an array."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    table = ("CREATE TABLE {0} (k BIGINT) WITH ('connector' = 'http', 'listen' = '{1}', 'path' = '/{0}', "
             "'format' = 'ndjson');\n")
    job = Listened(script.write(table.format("a", port) + table.format("b", port) +
                                "SELECT k, 'a' AS t FROM a UNION ALL SELECT k, 'b' AS t FROM b;"))
    try:
        for name in "ab":
            job.says(f"waits for POST requests on http://127.0.0.1:{port}/{name}")
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_SECONDS)
        rows = set()
        for path, body in [("/a", [b'{"k": 1}\n{"k"', b": 2}\n"]), ("/b", b'[{"k": 3},\n {"k": 4}]')]:
            connection.request("POST", path, body, encode_chunked=isinstance(body, list))
            answer = connection.getresponse()
            assert (answer.status, answer.read()) == (202, b"2 records accepted\n")
            rows |= {job.next() for _ in range(2 if rows else 3)}
        assert rows == {"k,t", "1,a", "2,a", "3,b", "4,b"}
    finally:
        job.kill()


def test_bodies_of_csv_with_and_without_a_header(running):
    job = running(HTTP.format("csv"))
    connection = http.client.HTTPConnection(*job.address(), timeout=PATIENCE_SECONDS)
    assert post(connection, "k,ts\n1,2024-01-01 12:00:01\n")[0] == 202
    assert post(connection, record(2, 2) + record(10, 3))[0] == 202
    assert (job.next(), job.next()) == (HEADER, FIRST)


def test_a_port_that_is_taken_is_an_error(script):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        sql = TABLE.format(f"'connector' = 'http', 'listen' = '127.0.0.1:{port}', 'format' = 'csv'")
        result = script.run(sql + WINDOWS)
    assert result.code == 1
    assert "take another port" in result.stderr


# --- follow ---------------------------------------------------------------------------------------

FOLLOW = "'connector' = 'file', 'follow' = 'true', 'format' = 'csv', 'path' = '{}'"


def append(path, text: str) -> None:
    with open(path, "a", encoding="utf-8") as file:
        file.write(text)


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_file_is_followed_through_rotation_and_truncation(running, script, processes):
    path = script.folder / "events.csv"
    append(path, "ts,k\n" + record(1, 1))
    job = running(FOLLOW.format("events.csv"), WINDOWS, "--processes", processes)
    job.nothing()
    append(path, record(2, 2) + "2024-01-01 12:00:1")
    job.nothing()
    append(path, "0,3\n")
    assert (job.next(), job.next()) == (HEADER, FIRST)
    os.rename(path, script.folder / "events.csv.1")
    append(path, "ts,k\n" + record(20, 4))
    assert job.next() == SECOND
    path.write_text("ts,k\n" + record(30, 5), encoding="utf-8")
    assert job.next() == "2024-01-01 12:00:20.000,1,4"
    job.says("events.csv: truncated or written anew")
    said = job.interrupt()
    assert said.count("truncated or written anew") == 1, said
    assert "interrupted with 1 window open: 5 records" in said


def test_a_file_that_begins_as_it_did_and_is_longer_is_read_anew(running, script):
    """Its header is longer than what a file is known by."""
    path, head = script.folder / "x.csv", "ts,k," + ",".join(f"column_number_{n:02}" for n in range(20)) + "\n"

    def lines(*of: tuple[int, int]) -> str:
        return head + "".join(record(*one).strip() + "," * 20 + "\n" for one in of)
    path.write_text(lines((1, 1)))
    job = running(FOLLOW.format("x.csv"), "SELECT k FROM events;")
    assert (job.next(), job.next()) == ("k", "1")
    path.write_text(lines((2, 7), (3, 8), (4, 9)))
    assert [job.next() for _ in range(3)] == ["7", "8", "9"]
    assert "truncated or written anew" in job.interrupt()


def test_new_files_of_a_directory_are_found(running, script):
    folder = script.folder / "logs"
    folder.mkdir()
    job = running(FOLLOW.format("logs"))
    time.sleep(LOOK_SECONDS)
    append(folder / "b.csv", record(1, 1) + record(2, 2))
    job.nothing()
    append(folder / "a.csv", record(10, 3))
    assert (job.next(), job.next()) == (HEADER, FIRST)


SILENT = """CREATE TABLE silent (ts TIMESTAMP(3), k BIGINT, WATERMARK FOR ts AS ts)
WITH ({}, 'scan.watermark.idle-timeout' = '200 ms');
"""
LEFT_JOIN = SILENT + """SELECT l.k, r.k AS other FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '10' SECOND)) AS l
LEFT JOIN TABLE(TUMBLE(TABLE silent, DESCRIPTOR(ts), INTERVAL '10' SECOND)) AS r
ON l.window_start = r.window_start AND l.window_end = r.window_end AND l.k = r.k;"""
INTERVAL_JOIN = SILENT + """SELECT l.k, r.k AS other FROM events AS l
LEFT JOIN silent AS r ON l.k = r.k AND r.ts BETWEEN l.ts - INTERVAL '3' SECOND AND l.ts + INTERVAL '3' SECOND;"""
ONE_AFTER_THE_OTHER = SILENT + """CREATE VIEW both_ AS SELECT ts, k FROM events UNION ALL SELECT ts, k + 10 FROM silent;
SELECT MIN(k) AS k, MAX(k) - 10 AS other FROM TABLE(TUMBLE(TABLE both_, DESCRIPTOR(ts), INTERVAL '1' SECOND))
GROUP BY window_start, window_end;"""


@pytest.mark.parametrize("processes", ["1", "2"])
@pytest.mark.parametrize("query, rows", [
    (LEFT_JOIN, ["1,", "2,2"]), (INTERVAL_JOIN, ["1,", "2,2"]), (ONE_AFTER_THE_OTHER, ["1,-9", "2,2"]),
], ids=["window", "interval", "union"])
def test_a_silent_table_does_not_hold_back_what_it_is_combined_with(running, script, query, rows, processes):
    append(script.folder / "events.csv", "ts,k\n" + record(1, 1))
    append(script.folder / "silent.csv", "ts,k\n" + record(2, 2))
    job = running(FOLLOW.format("events.csv"), query.format(FOLLOW.format("silent.csv")), "--processes", processes)
    job.nothing()
    append(script.folder / "events.csv", record(2, 2) + record(20, 3))
    assert [job.next() for _ in range(3)] == ["k,other", *rows]
    # What comes of it after all is late where its windows have gone, and counts where they have not.
    append(script.folder / "silent.csv", record(3, 4) + record(20, 3))
    job.nothing()
    append(script.folder / "events.csv", record(40, 5))
    assert job.next() == "3,3"
    assert "1 late record" in job.interrupt()


@pytest.mark.parametrize("options, expected", [
    (FOLLOW.format("missing.csv"), "there is no file"),
    (FOLLOW.format("events.csv").replace("'csv'", "'parquet'", 1), "has lines"),
    ("'connector' = 'stdin', 'follow' = 'true', 'format' = 'csv'", "leave it out"),
])
def test_what_cannot_be_followed_is_refused(script, options, expected):
    script.data("events.csv", "ts,k\n")
    result = script.run(TABLE.format(options) + WINDOWS)
    assert result.code != 0 and expected in result.stderr, result.stderr


# --- for long -------------------------------------------------------------------------------------

def resident_mib(process: subprocess.Popen) -> float:
    """Memory that it takes now."""
    with open(f"/proc/{process.pid}/status", encoding="utf-8") as status:
        return int(re.search(r"VmRSS:\s+(\d+)", status.read())[1]) / 1024


@pytest.mark.parametrize("source", ["http", "follow"])
def test_memory_stays_flat_at_50_000_events_per_second(running, script, source):
    """The short form; MILLSTREAM_SOAK_SECONDS=600 is the long one."""
    seconds = max(11, int(os.environ.get("MILLSTREAM_SOAK_SECONDS", "12")))
    path = script.folder / "events.csv"
    path.touch()
    job = running(HTTP.format("csv") if source == "http" else FOLLOW.format("events.csv"))
    connection = source == "http" and http.client.HTTPConnection(*job.address(), timeout=PATIENCE_SECONDS)
    begin, early = time.monotonic(), 0.0
    for tick in range(seconds * 10):
        second = tick // 10
        stamp = f"2024-01-01 {second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"
        text = f"{stamp},1\n" * 5000
        if source == "follow":
            append(path, text)
        else:
            while post(connection, text)[0] == 429:
                time.sleep(1)
        if tick == seconds * 10 // 3:
            early = resident_mib(job.process)
        time.sleep(max(0.0, begin + (tick + 1) / 10 - time.monotonic()))
    assert job.next() == HEADER
    # Of the last window nobody knows yet whether it is over.
    for window in range((seconds - 1) // 10):
        second = window * 10
        stamp = f"2024-01-01 {second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}.000"
        assert job.next() == f"{stamp},500000,500000"
    late = resident_mib(job.process)
    assert late < early + 100, f"{early:.0f} MiB after a third, {late:.0f} MiB at the end"


@pytest.mark.parametrize("path", ["${env:MILLSTREAM_TEST_SECRET}/l/*.log", "l/${env:MILLSTREAM_TEST_SECRET}*.log"])
def test_a_file_that_is_written_anew_is_told_without_the_secret_in_its_path(script, monkeypatch, path):
    monkeypatch.setenv("MILLSTREAM_TEST_SECRET", "hunter2")
    folder = script.folder / ("hunter2/l" if "/l/" in path else "l")
    folder.mkdir(parents=True)
    log = folder / ("x.log" if "/l/" in path else "hunter2x.log")
    log.write_text("one\ntwo\n")
    job = Listened(script.write(f"CREATE TABLE t (line STRING) WITH ('connector' = 'file', 'format' = 'raw', "
                                f"'follow' = 'true', 'path' = '{path}');\nSELECT line FROM t;"))
    try:
        assert [job.next() for _ in range(3)] == ["line", "one", "two"]
        log.write_text("new\n")
        assert job.next() == "new"
        job.says("truncated or written anew")
        assert "hunter2" not in job.said() and "${env:MILLSTREAM_TEST_SECRET}" in job.said(), job.said()
    finally:
        job.kill()


def test_a_partition_does_not_show_the_secret_in_its_path(script, monkeypatch):
    monkeypatch.setenv("MILLSTREAM_TEST_SECRET", "hunter2")
    (script.folder / "k/p=hunter2").mkdir(parents=True)
    script.data("k/p=hunter2/x.csv", "a\n1\n")
    table = ("CREATE TABLE t (a BIGINT, p STRING) PARTITIONED BY (p) WITH ('connector' = 'file', 'format' = 'csv', "
             "'path' = 'k/p=${env:MILLSTREAM_TEST_SECRET}/*.csv');\n")
    result = script.run(table + "SELECT a, p FROM t;")
    assert result.code == 2 and "column 'p'" in result.stderr, result.stderr
    assert "hunter2" not in result.stderr and b"hunter2" not in result.stdout, result


def test_a_port_alone_is_one_of_this_machine(running):
    job = running("'connector' = 'socket', 'listen' = '0', 'format' = 'csv'")
    host, port = job.address()
    assert host == "127.0.0.1"
    with socket.create_connection((host, port)) as sender:
        sender.sendall((record(1, 1) + record(2, 2) + record(10, 3)).encode())
    assert [job.next() for _ in range(3)] == [HEADER, FIRST, SECOND]

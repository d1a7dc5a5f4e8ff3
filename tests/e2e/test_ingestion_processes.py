"""Ingestion into a job of several processes: over rings, each process takes producers."""

import json
import os
import re
import signal
import socket
import struct
import time
from pathlib import Path

import pyarrow
import pytest
from jobs import children, wait_until
from listened import PATIENCE_SECONDS, Listened
from watched import ask, report

COUNTS = "CREATE TABLE counts (s TIMESTAMP(3), page STRING, n BIGINT{}) WITH ('connector' = 'channel', {});\n"
# A record for each millisecond.
MADE = """CREATE TABLE made (n BIGINT, s AS CAST(TO_TIMESTAMP_LTZ(n, 3) AS TIMESTAMP(3)), WATERMARK FOR s AS s) WITH (
    'connector' = 'datagen', {}'fields.n.kind' = 'sequence', 'fields.n.start' = '0'{});
"""
WINDOWS = """SELECT window_start, COUNT(*) AS n, SUM(n) AS s FROM TABLE(TUMBLE(TABLE counts, DESCRIPTOR(s),
    INTERVAL '1' SECOND)) GROUP BY window_start, window_end;"""
ROWS = "SELECT n FROM counts;"


class Ingesting:
    """A job that listens, and the jobs that are its producers."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.jobs: list[Listened] = []
        self.address = ""

    def start(self, sql: str, *words: str) -> Listened:
        path = self.folder / f"{len(self.jobs)}.sql"
        path.write_text(sql)
        self.jobs.append(Listened(path, *words))
        return self.jobs[-1]

    def listen(self, options: str, query: str, *words: str) -> Listened:
        listens = f"'listen' = '127.0.0.1:0', 'transport' = 'shm'{options}"
        job = self.start(COUNTS.format(", WATERMARK FOR s AS s", listens) + query, *words)
        job.says("waits for producers on")
        self.heard(job.said())
        return job

    def heard(self, said: str) -> None:
        self.address = re.search(r"waits for producers on ([\d.]+:\d+), counts", said)[1]

    def send(self, name: str, rows: int | None = None) -> Listened:
        """Starts a producer of so many rows, or of rows until somebody ends it: a thousand each second."""
        ends = f", 'number-of-rows' = '{rows}', 'fields.n.end' = '{rows - 1}'" if rows else ""
        made = MADE.format("'rows-per-second' = '1000', ", ends)
        connects = f"'connect' = '{self.address}', 'producer' = '{name}'"
        return self.start(made + COUNTS.format("", connects) + "INSERT INTO counts SELECT s, 'page', n FROM made;")

    def send_in_turn(self, job: Listened, *names: str) -> list[Listened]:
        """Starts producers, of which the first comes to process 0, the second to process 1, and so on."""
        found = []
        for name in names:
            found.append(self.send(name))
            wait_until(name, lambda: re.search(rf"producer {name} \([\d.:]+\) has joined", job.said()))
        return found


@pytest.fixture
def ingesting(tmp_path):
    found = Ingesting(tmp_path)
    yield found
    for job in reversed(found.jobs):
        job.kill()


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_rows_reach_the_workers_of_all_processes_and_the_answer_is_that_of_one(ingesting, transport):
    answers = []
    for processes in (1, 2, 3):
        options = f", 'bounded' = 'true', 'producers' = '4', 'transport' = '{transport}'"
        sql = COUNTS.format(", WATERMARK FOR s AS s", f"'listen' = '127.0.0.1:0'{options}") + WINDOWS
        job = ingesting.start(sql, "--processes", str(processes), "--workers", "1", "--log", "json")
        job.says("waits for producers on")
        ingesting.heard(job.said())
        producers = [ingesting.send(name, 5_000) for name in "abcd"]
        for producer in producers:
            assert "5,000 rows" in producer.ended()
        said = job.ended()
        answers.append([job.lines.get(timeout=PATIENCE_SECONDS) for _ in range(6)])
        log = [json.loads(line) for line in said.splitlines()]
        read = {line["process"]: line["records"] for line in log if line["message"] == "a source has ended"}
        assert sum(read.values()) == 20_000, said
        assert {process: records // 5_000 for process, records in read.items()} == \
            [{0: 4}, {0: 2, 1: 2}, {0: 2, 1: 1, 2: 1}][processes - 1], said
        for name in "abcd":
            assert re.search(rf"producer {name} \([\d.:]+\) has ended after 5000 records", said), said
    assert answers[0] == ["window_start,n,s"] + [
        f"1970-01-01 00:00:0{second}.000,4000,{4 * sum(range(second * 1000, second * 1000 + 1000))}"
        for second in range(5)]
    assert answers[1:] == answers[:1] * 2


def test_windows_wait_for_producers_of_all_processes_and_for_no_idle_process(ingesting):
    job = ingesting.listen(", 'producers' = '2'", WINDOWS, "--processes", "3")
    ingesting.send_in_turn(job, "first")
    time.sleep(2)
    job.nothing()
    ingesting.send_in_turn(job, "second")
    # Process 2 has no producer.
    assert (job.next(), job.next()) == ("window_start,n,s", "1970-01-01 00:00:00.000,2000,999000")
    ingesting.jobs[-1].process.kill()
    job.says("producer second")
    job.says("was lost after")
    # Windows do not wait for the lost producer.
    rows = [job.next().split(",") for _ in range(3)]
    assert [row[0] for row in rows] == [f"1970-01-01 00:00:0{second}.000" for second in (1, 2, 3)]
    assert rows[-1][1:] == ["1000", "3499500"], rows


@pytest.mark.parametrize("on_loss", ["notice", "fail"])
def test_a_producer_of_another_process_that_is_killed_is_named(ingesting, on_loss):
    job = ingesting.listen(f", 'on_loss' = '{on_loss}'", ROWS, "--processes", "2")
    _, second = ingesting.send_in_turn(job, "first", "second")
    second.process.kill()
    lost = r"producer second \([\d.:]+\) was lost after [\d,]+ records"
    if on_loss == "notice":
        wait_until("lost", lambda: re.search(lost + ", which count", job.said()))
        assert job.process.poll() is None
    else:
        said = job.ended(1)
        assert re.search(r"error: process 1: channel counts: " + lost, said), said


def test_a_process_that_is_killed_ends_the_job(ingesting):
    job = ingesting.listen("", ROWS, "--processes", "2")
    producers = ingesting.send_in_turn(job, "first", "second")
    peer, = children(job.process.pid)
    os.kill(peer, signal.SIGKILL)
    assert "error: process 1 was killed by signal 9 (SIGKILL)" in job.ended(1)
    for producer in producers:
        assert "error: channel counts at 127.0.0.1" in producer.ended(1)


def test_a_drained_job_takes_what_lies_in_the_rings_of_all_processes(ingesting, place, start):
    options = "'listen' = '127.0.0.1:0', 'transport' = 'shm'"
    job = start(COUNTS.format(", WATERMARK FOR s AS s", options) + ROWS, "--processes", "2")
    ingesting.heard(job.stderr.readline())
    producers = [ingesting.send("first"), ingesting.send("second")]
    wait_until("records", lambda: ((report(place) or {}).get("snapshot") or {}).get("records", 0) > 1_000)
    assert ask(place, "stop", "--drain").returncode == 0
    out, err = job.communicate(timeout=PATIENCE_SECONDS)
    found = [int(line) for line in out.splitlines()[1:]]
    assert job.returncode == 0, err
    taken = []
    for producer in producers:
        said = producer.ended(1)
        taken.append(int(re.search(r"being drained.*\(records taken before: (\d+)\)", said)[1]))
    assert sorted(found) == sorted([*range(taken[0]), *range(taken[1])]), err


def greeted(address: tuple[str, int], schema: pyarrow.Schema, **greeting: str) -> str:
    """The first answer to a greeting of version 2."""
    texts = json.dumps({"table": "counts"} | greeting).encode(), schema.serialize().to_pybytes()[8:]
    return answered(address, b"MSINGEST" + struct.pack("<I", 2) + b"".join(
        struct.pack("<I", len(text)) + text for text in texts))


def answered(address: tuple[str, int], sent: bytes) -> str:
    with socket.create_connection(address, PATIENCE_SECONDS) as stream:
        stream.sendall(sent)
        answer = b""
        while len(answer) < 4 or len(answer) < 4 + struct.unpack_from("<I", answer)[0]:
            part = stream.recv(4096)
            assert part, answer
            answer += part
    return answer[4:].decode()


def test_rubbish_and_wrong_tokens_are_refused_by_each_process(ingesting):
    schema = pyarrow.schema([("s", pyarrow.timestamp("ms")), ("page", pyarrow.string()), ("n", pyarrow.int64())])
    job = ingesting.listen(", 'token' = 's3cret', 'producers.max' = '2'", ROWS, "--processes", "2")
    ports = [int(ingesting.address.split(":")[1])]
    end = time.monotonic() + PATIENCE_SECONDS
    while len(ports) < 2:
        # The first one has a slot of process 0, and is waited for.
        answer = json.loads(greeted(("127.0.0.1", ports[0]), schema, token="s3cret"))
        ports += [answer["elsewhere"]] if "elsewhere" in answer else []
        assert time.monotonic() < end, answer
    for port in ports:
        address = ("127.0.0.1", port)
        assert "has a token" in greeted(address, schema), port
        assert "has a token" in greeted(address, schema, token="s3creT"), port
        assert "no table 'bets'" in greeted(address, schema, token="s3cret", table="bets"), port
        assert "no column" in greeted(address, pyarrow.schema([("n", pyarrow.int64())]), token="s3cret"), port
        for rubbish in (b"GET / HTTP/1.1\r\n\r\n", b"MSINGEST" + b"\xff" * 100, b"\0" * 5000):
            assert "refused" in answered(address, rubbish), port
    assert job.process.poll() is None, job.said()
    assert "s3cret" not in job.said()

"""Inputs that cannot be read again, with a journal: what was accepted counts once, whatever is killed."""

import http.client
import os
import random
import signal
import socket
import subprocess
import threading
import time
from collections import Counter
from pathlib import Path

import harness
import pytest

PATIENCE_SECONDS = 60
OUT = "CREATE TABLE o (n BIGINT) WITH ('connector' = 'file', 'path' = 'o', 'format' = 'csv', 'csv.header' = 'false');\n" \
    "INSERT INTO o SELECT n FROM a;"


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Journaled:
    """A job over an input with a journal, which is started again and again."""

    def __init__(self, folder: Path, environment: dict):
        self.folder, self.environment, self.port = folder, environment, free_port()
        self.job: subprocess.Popen | None = None

    def start(self, options: str, *words: object, every: str = "30ms", stdin=subprocess.DEVNULL, journal: str = "kept"):
        script = self.folder / "job.sql"
        with_journal = f", 'journal' = '{journal}'" if journal else ""
        script.write_text(f"CREATE TABLE a (n BIGINT) WITH ({options}{with_journal});\n{OUT}")
        state = ["--checkpoint", self.folder / "state", "--every", every] if every else []
        command = [str(word) for word in [harness.program(), "run", script, *state, *words]]
        self.job = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=stdin,
                                    env=self.environment)
        return self.job

    def kill(self, how: int = signal.SIGKILL) -> str:
        self.job.send_signal(how)
        return self.ends()

    def ends(self) -> str:
        _, said = self.job.communicate(timeout=PATIENCE_SECONDS)
        return said.decode()

    def drain(self) -> str:
        asked = subprocess.run([harness.program(), "stop", "--drain"], env=self.environment, capture_output=True)
        said = self.ends()
        assert (asked.returncode, self.job.returncode) == (0, 0), said
        return said

    def rows(self) -> Counter:
        rows = (path.read_text().splitlines() for path in (self.folder / "o").glob("part-*"))
        return Counter(int(row) for part in rows for row in part)

    def waits_for(self, what, condition) -> None:
        until = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            assert time.monotonic() < until, what
            time.sleep(0.01)

    def kept(self) -> bytes:
        """All bytes in the journal."""
        read = b""
        for path in (self.folder / "kept").glob("segment-*"):
            try:
                read += path.read_bytes()
            except FileNotFoundError:
                pass  # it has been trimmed
        return read

    def post(self, body: str, fields: dict | None = None) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_SECONDS)
        try:
            connection.request("POST", "/", body, fields or {})
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def sends(self, numbers: range, producer: str) -> None:
        """Sends each number as a body, again and again until it is accepted."""
        for n in numbers:
            fields = {"Millstream-Producer": producer, "Millstream-Sequence": str(n)}
            while True:
                try:
                    status, text = self.post(f'{{"n": {n}}}\n', fields)
                except (OSError, http.client.HTTPException):
                    time.sleep(0.005)  # nobody listens, or the answer is lost
                    continue
                if status == 202:
                    break
                assert status in (429, 503), text
                time.sleep(0.005)

    @property
    def http(self) -> str:
        return f"'connector' = 'http', 'listen' = '{self.port}', 'format' = 'ndjson'"

    @property
    def listens(self) -> str:
        return f"'connector' = 'socket', 'listen' = '{self.port}', 'format' = 'csv'"

    def connect(self) -> socket.socket:
        """A sender, as soon as somebody listens."""
        until = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return socket.create_connection(("127.0.0.1", self.port))
            except ConnectionRefusedError:
                assert time.monotonic() < until and self.job.poll() is None, self.job.communicate()
                time.sleep(0.01)


@pytest.fixture
def journaled(tmp_path: Path, place: dict):
    journaled = Journaled(tmp_path, place)
    yield journaled
    if journaled.job and journaled.job.poll() is None:
        journaled.job.kill()
        journaled.job.communicate()


def once(numbers: range) -> Counter:
    return Counter(numbers)


def test_what_producers_send_again_counts_once_whenever_the_job_is_killed(journaled):
    ranges = [range(start, start + 400) for start in (0, 1000, 2000)]
    producers = [threading.Thread(target=journaled.sends, args=(numbers, f"p{numbers.start}")) for numbers in ranges]
    journaled.start(journaled.http)
    for producer in producers:
        producer.start()
    rng, crashes = random.Random(7), 0
    while any(producer.is_alive() for producer in producers):
        time.sleep(rng.uniform(0.05, 0.5))
        journaled.kill()
        crashes += 1
        assert not journaled.rows() - sum(map(once, ranges), Counter()), "a row too often"
        journaled.start(journaled.http, "--workers", rng.choice([1, 3]))
    assert crashes > 2
    # The last answer may be that of a job which was killed.
    journaled.waits_for("a job that listens", lambda: journaled.connect().close() is None)
    said = journaled.drain()
    assert journaled.rows() == sum(map(once, ranges), Counter()), said
    # The journal of a job that has ended is empty, but for its producers.
    assert len(journaled.kept()) < 1000, len(journaled.kept())
    assert b"p1000" in journaled.kept()


def test_a_body_is_durable_before_it_is_answered(journaled):
    journaled.start(journaled.http, every="1 day")
    journaled.connect().close()
    for n in range(50):
        assert journaled.post(f'{{"n": {n}}}\n')[0] == 202
        assert f'{{"n": {n}}}\n'.encode() in journaled.kept()
    journaled.kill()
    assert not journaled.rows()
    # No checkpoint was written, so all is read from the beginning.
    journaled.start(journaled.http)
    journaled.waits_for("all rows", lambda: journaled.rows() == once(range(50)))
    journaled.kill(signal.SIGINT)
    assert journaled.rows() == once(range(50))


def test_lines_of_a_connection_survive(journaled):
    for crash in range(4):
        journaled.start(journaled.listens, every="20ms" if crash % 2 else "1 day")
        sender = journaled.connect()
        first = crash * 1000
        # A sender that comes later may begin with the header, or leave it out.
        text = "n\n" if crash != 2 else ""
        sender.sendall((text + "".join(f"{n}\n" for n in range(first, first + 1000)) + "99").encode())
        journaled.waits_for("the last line", lambda last=first + 999: f"\n{last}\n".encode() in journaled.kept())
        time.sleep(0.1)
        journaled.kill()
        sender.close()
    journaled.start(journaled.listens)
    sender = journaled.connect()
    sender.sendall(b"4000\n4001")
    sender.close()
    said = journaled.ends()
    assert journaled.job.returncode == 0, said
    assert journaled.rows() == once(range(4002)), said
    journaled.start(journaled.listens)
    assert "the job has ended" in journaled.ends()


def test_a_pipe_that_has_ended_is_not_waited_for_again(journaled):
    pipe = journaled.folder / "pipe"
    os.mkfifo(pipe)
    options = "'connector' = 'file', 'path' = 'pipe', 'format' = 'csv'"
    journaled.start(options, every="1 day")
    with pipe.open("w") as writer:
        writer.write("n\n" + "".join(f"{n}\n" for n in range(20_000)))
        writer.flush()
        journaled.waits_for("all of it", lambda: b"\n19999\n" in journaled.kept())
        journaled.job.send_signal(signal.SIGSTOP)
        journaled.kill()
    journaled.start(options, every="1 day")
    with pipe.open("w") as writer:
        writer.write("n\n20000\n20001")
    assert journaled.ends() is not None and journaled.job.returncode == 0
    assert journaled.rows() == once(range(20_002))


def test_standard_input_goes_on(journaled):
    options = "'connector' = 'stdin', 'format' = 'csv'"
    job = journaled.start(options, stdin=subprocess.PIPE, every="1 day")
    job.stdin.write(b"n\n1\n2\n")
    job.stdin.flush()
    journaled.waits_for("both lines", lambda: b"1\n2\n" in journaled.kept())
    journaled.kill()
    job = journaled.start(options, stdin=subprocess.PIPE, every="1 day")
    job.stdin.write(b"n\n3\n")
    _, said = job.communicate(timeout=PATIENCE_SECONDS)
    assert job.returncode == 0 and journaled.rows() == once(range(1, 4)), said


def test_a_full_journal_holds_senders_up_until_checkpoints_make_room(journaled):
    options = journaled.http + ", 'max-body' = '1 MB', 'journal_bytes' = '16 MB'"
    journaled.start(options, every="1 day")
    journaled.connect().close()
    padded = [f'{{"n": {n}, "pad": "{"x" * 900_000}"}}\n' for n in range(40)]
    accepted = 0
    while (answer := journaled.post(padded[accepted]))[0] == 202:
        accepted += 1
    assert answer[0] == 503 and "the journal is full" in answer[1] and "journal_bytes" in answer[1], answer
    assert 10 < accepted <= 18
    journaled.kill(signal.SIGINT)
    journaled.start(options)
    journaled.connect().close()
    until = time.monotonic() + PATIENCE_SECONDS
    while accepted < 40:
        status, text = journaled.post(padded[accepted])
        accepted += status == 202
        assert status in (202, 503) and time.monotonic() < until, text
    journaled.drain()
    assert journaled.rows() == once(range(40))


def test_a_full_journal_is_told_where_lines_wait(journaled):
    options = journaled.listens + ", 'journal_bytes' = '16 MB', 'csv.header' = 'false'"
    journaled.start(options, every="1 day")
    sender = journaled.connect()
    sender.settimeout(2)
    sent = 0
    with pytest.raises(TimeoutError):
        while True:
            sent += sender.send(b"1234567\n" * 100_000)
    assert sent > 16 << 20
    said = journaled.kill(signal.SIGINT)
    assert "it is not read, because its journal takes no more" in said and "journal_bytes" in said, said


@pytest.mark.parametrize("words, options, journal, expected", [
    ([], None, "", "'journal' = 'DIR'"),
    ([], "'connector' = 'file', 'path' = 'job.sql', 'format' = 'csv'", "kept", "files can be read again"),
    ([], "'connector' = 'stdin', 'format' = 'parquet'", "kept", "write csv, ndjson or raw"),
    (["--set", "checkpoint.path=none"], None, "kept", "give the job --checkpoint DIR, or leave out 'journal'"),
])
def test_what_cannot_be_is_refused(journaled, words, options, journal, expected):
    every = "" if words else "1s"
    journaled.start(options or journaled.http, *words, journal=journal, every=every)
    said = journaled.ends()
    assert journaled.job.returncode != 0 and expected in said, said


def test_a_journal_is_of_one_job_and_one_input(journaled):
    journaled.start(journaled.http)
    journaled.connect().close()
    assert journaled.post('{"n": 1}\n')[0] == 202
    first, journaled.folder = journaled.job, journaled.folder / "second"
    journaled.folder.mkdir()
    port, journaled.port = journaled.port, free_port()
    journaled.start(journaled.http, journal="../kept")
    assert "another job, or another table, has this journal open" in journaled.ends()
    first.send_signal(signal.SIGINT)
    first.communicate(timeout=PATIENCE_SECONDS)
    journaled.start(journaled.http, journal="../kept")
    said = journaled.ends()
    assert journaled.job.returncode == 1 and f"it is the journal of 'table a, http 127.0.0.1:{port}'" in said, said


def test_a_damaged_journal_is_named(journaled):
    journaled.start(journaled.http, every="1 day")
    journaled.connect().close()
    for n in range(3):
        assert journaled.post(f'{{"n": {n}}}\n')[0] == 202
    journaled.kill()
    segment = journaled.folder / "kept" / "segment-1"
    data = segment.read_bytes()
    at = data.index(b'{"n": 1}')
    segment.write_bytes(data[:at] + b"x" + data[at + 1:])
    journaled.start(journaled.http, every="1 day")
    said = journaled.ends()
    assert journaled.job.returncode == 1 and "segment-1 is damaged" in said and "from offset" in said, said
    # Torn, in place of damaged: the last body is gone, as if it had never been answered.
    segment.write_bytes(data[:-3])
    journaled.start(journaled.http)
    journaled.waits_for("both rows", lambda: journaled.rows() == once(range(2)))
    journaled.kill(signal.SIGINT)
    assert journaled.rows() == once(range(2))


def test_a_sequence_needs_a_journal(journaled):
    journaled.start(journaled.http, journal="", every="")
    journaled.connect().close()
    status, text = journaled.post('{"n": 1}\n', {"Millstream-Producer": "p", "Millstream-Sequence": "1"})
    assert status == 400 and "needs a table with a 'journal'" in text, text


def test_explain_says_that_there_is_a_journal(journaled):
    script = journaled.folder / "job.sql"
    script.write_text(f"CREATE TABLE a (n BIGINT) WITH ({journaled.http}, 'journal' = 'kept');\nEXPLAIN SELECT n FROM a;")
    said = harness.run("run", script, stats=False)
    assert said.code == 0 and "journal kept" in said.stdout.decode(), said.stdout
    assert not (journaled.folder / "kept").exists()

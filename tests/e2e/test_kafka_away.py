"""A job that writes to Kafka while the broker is away, or silent: the user is told, Ctrl-C ends the job soon, and the next run
writes each row exactly once."""

import json
import os
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest

import harness
from test_kafka import COLUMNS, NAMES, broker, message, table  # noqa: F401, F811: fixtures among them
from test_kafka_exact import COUNT

ROWS = "s TIMESTAMP(3), k INT, n BIGINT"
EXACTLY = ", 'sink.delivery-guarantee' = 'exactly-once', 'sink.transactional-id-prefix' = 'PREFIX'"
# Told after four seconds at most, on a machine that is busy.
TOLD_SECONDS, STOP_SECONDS = 20, 10


class Job:
    """A job from a followed file, which grows without a broker, to a topic."""

    def __init__(self, broker, folder: Path, more: str):
        self.broker, self.folder, self.sink = broker, folder, broker.topic(next(NAMES))
        self.input, self.errors = folder / "in.json", folder / "errors"
        self.input.write_text("")
        source = (f"CREATE TABLE t ({COLUMNS}) WITH ('connector' = 'file', 'path' = '{self.input}', 'format' = 'json', "
                  "'follow' = 'true');\n")
        more, self.exactly = more.replace("PREFIX", self.sink), more.startswith(EXACTLY)
        (folder / "job.sql").write_text(source + table(broker, self.sink, ROWS, more, name="o", bounded=False, start="") + COUNT)
        self.process: subprocess.Popen | None = None

    def start(self, *words: object) -> None:
        command = [harness.program(), "run", "job.sql", *words]
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen([str(word) for word in command], cwd=self.folder, stdout=subprocess.PIPE,
                                            stderr=errors)

    def append(self, first: int, end: int) -> None:
        with self.input.open("a") as file:
            file.write("".join(message(n) + "\n" for n in range(first, end)))

    def said(self) -> str:
        return self.errors.read_text(errors="replace")

    def until(self, what: str, condition, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert self.process.poll() is None, self.said()
            assert time.monotonic() < end, f"{what}\n{self.said()}"
            time.sleep(0.05)

    def counted(self) -> Counter:
        rows = [json.loads(value) for value in self.broker.values(self.sink)[0]]
        keys = [(row["s"], row["k"]) for row in rows]
        assert len(set(keys)) == len(keys) or not self.exactly, "a row is there twice"
        assert all(row["n"] == 20 for row in rows)
        return Counter(keys)

    def ctrl_c(self) -> None:
        self.process.send_signal(signal.SIGINT)
        began = time.monotonic()
        self.process.communicate(timeout=60)
        took = time.monotonic() - began
        assert self.process.returncode == 130, self.said()
        assert took < STOP_SECONDS, f"{took:.1f} s\n{self.said()}"


@pytest.fixture
def job(broker, tmp_path):
    """Makes jobs. Afterwards the broker is there again."""
    made: list[Job] = []

    def make(more: str) -> Job:
        made.append(Job(broker, tmp_path, more))
        return made[-1]

    yield make
    for one in made:
        if one.process and one.process.poll() is None:
            one.process.kill()
            one.process.communicate()
    os.kill(broker.process.pid, signal.SIGCONT) if broker.process.poll() is None else broker.start()


SAVED = ("--checkpoint", "state", "--every", "200ms")


@pytest.mark.parametrize("more, processes, is_silent", [
    (EXACTLY, 1, False), (EXACTLY, 2, False), (EXACTLY, 1, True), (EXACTLY + ", 'sink.spool' = 'kept'", 1, True), ("", 1, False),
], ids=["replay", "two processes", "a silent broker", "a spool", "at least once"])
def test_a_stop_while_the_broker_is_away(broker, job, more, processes, is_silent):
    one = job(more)
    one.start(*SAVED, "--processes", processes)
    one.append(0, 1_000)
    # Nine windows of five keys are whole.
    one.until("the first rows", lambda: len(one.counted()) == 45, 60)
    if is_silent:
        os.kill(broker.process.pid, signal.SIGSTOP)
    else:
        broker.end()
    one.append(1_000, 2_000)
    told = f"topic '{one.sink}' at {broker.servers} cannot be written: "
    one.until("a notice", lambda: told in one.said(), TOLD_SECONDS)
    one.ctrl_c()
    assert f"topic '{one.sink}' at {broker.servers} cannot be written, and no row is lost: " in one.said()
    if is_silent:
        os.kill(broker.process.pid, signal.SIGCONT)
    else:
        broker.start()
    one.append(2_000, 3_000)
    one.start(*SAVED)
    one.until("all rows", lambda: len(one.counted()) >= 145, 60)
    one.ctrl_c()
    assert len(one.counted()) == 145


def test_a_stop_without_checkpoints_says_what_is_lost(broker, job):
    one = job("")
    one.start()
    one.append(0, 1_000)
    one.until("the first rows", lambda: len(one.counted()) == 45, 60)
    broker.end()
    one.append(1_000, 2_000)
    one.until("a notice", lambda: "cannot be written: " in one.said(), TOLD_SECONDS)
    one.ctrl_c()
    assert "cannot be written, and rows that wait for it are lost: " in one.said()


def test_a_broker_that_comes_back_is_told(broker, job):
    one = job(EXACTLY)
    one.start(*SAVED)
    one.append(0, 1_000)
    one.until("the first rows", lambda: len(one.counted()) == 45, 60)
    broker.end()
    one.append(1_000, 2_000)
    one.until("a notice", lambda: "cannot be written: " in one.said(), TOLD_SECONDS)
    broker.start()
    one.until("the next rows", lambda: len(one.counted()) == 95, 60)
    one.until("news", lambda: f"topic '{one.sink}' at {broker.servers} is written again, after " in one.said(), 10)


def test_a_broker_that_goes_away_during_the_last_checkpoint(broker, job):
    """Ctrl-C comes before anybody knows."""
    one = job(EXACTLY)
    one.start("--checkpoint", "state", "--every", "1h")
    one.append(0, 1_000)
    one.until("the first rows", lambda: len(one.counted()) == 45, 60)
    broker.end()
    one.append(1_000, 2_000)
    time.sleep(1)
    one.ctrl_c()
    assert "cannot be written, and no row is lost: " in one.said()
    broker.start()
    one.append(2_000, 3_000)
    one.start(*SAVED)
    one.until("all rows", lambda: len(one.counted()) >= 145, 60)
    assert len(one.counted()) == 145

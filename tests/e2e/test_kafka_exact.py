"""Jobs between topics of a real broker that are killed, or whose topics and broker change: each row exactly once."""

import json
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest

import broker as kafka
import harness
from conftest import cannot_run
from test_kafka import COLUMNS, NAMES, broker, lines_of, message, table, topic  # noqa: F401, F811: fixtures among them

COUNT = ("INSERT INTO o SELECT window_start, k, COUNT(*) FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), "
         "INTERVAL '2' SECOND)) GROUP BY window_start, window_end, k;")


class Job:
    """A job from topic to topic, which is started again and again."""

    def __init__(self, broker, folder: Path, source: str, sink: str, bounded: bool = False, more: str = "",
                 columns: str = "s TIMESTAMP(3), k INT, n BIGINT", query: str = COUNT):
        self.folder, self.state, self.started = folder, folder / "state", []
        exactly = f", 'sink.delivery-guarantee' = 'exactly-once', 'sink.transactional-id-prefix' = '{sink}'"
        text = (table(broker, source, COLUMNS, more, bounded=bounded) +
                table(broker, sink, columns, exactly, name="o", bounded=False, start="") + query)
        self.script = folder / "job.sql"
        self.script.write_text(text)

    def start(self, workers: int = 1, every: str = "100ms", *more: object) -> subprocess.Popen:
        command = [harness.program(), "run", self.script, "--checkpoint", self.state, "--every", every, "--workers",
                   workers, *more]
        words = [str(word) for word in command]
        self.started.append(subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
        return self.started[-1]

    def ends(self) -> None:
        for job in self.started:
            if job.poll() is None:
                job.kill()
            job.communicate()


@pytest.fixture
def jobs():
    started: list[Job] = []
    yield started
    for job in started:
        job.ends()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_rows_are_there_exactly_once(broker, tmp_path, jobs, how):
    """Killed at many moments, with other numbers of workers each time."""
    source, sink = broker.topic(next(NAMES), 2), broker.topic(next(NAMES), 2)
    job = Job(broker, tmp_path, source, sink)
    jobs.append(job)
    producer = broker.producer()
    for run in range(6):
        running = job.start(workers=1 + run % 2)
        for n in range(2_000 * run, 2_000 * (run + 1)):
            producer.produce(source, message(n), partition=n % 2)
        producer.flush(30)
        time.sleep(0.3 + 0.25 * run)
        assert running.poll() is None, running.communicate()
        running.send_signal(how)
        running.communicate(timeout=60)
    for n in range(2_000 * 6, 2_000 * 6 + 300):
        producer.produce(source, message(n), partition=n % 2)
    producer.flush(30)
    job.start(workers=2)
    expected = Counter((n // 100, n % 5) for n in range(2_000 * 6))
    until = time.monotonic() + 40
    while True:
        found = [json.loads(value) for of in broker.values(sink, 2) for value in of]
        if len(found) >= len(expected) or time.monotonic() > until:
            break
        time.sleep(0.3)
    counted = Counter()
    for row in found:
        time_of = row["s"].replace("T", " ")
        seconds = int(time_of[11:13]) * 3600 + int(time_of[14:16]) * 60 + int(time_of[17:19])
        assert (seconds // 2, row["k"]) not in counted, f"twice: {row}"
        counted[(seconds // 2, row["k"])] = row["n"]
    wrong = {key: (counted.get(key), count) for key, count in expected.items() if counted.get(key) != count}
    assert not wrong


def test_records_without_windows_are_there_exactly_once(broker, tmp_path, jobs):
    source, sink = broker.topic(next(NAMES)), broker.topic(next(NAMES))
    job = Job(broker, tmp_path, source, sink, columns="k INT, n BIGINT", query="INSERT INTO o SELECT k, n FROM t;",
              more=", 'json.ignore-parse-errors' = 'false'")
    job.script.write_text(job.script.read_text().replace(f"({COLUMNS})", "(k INT, n BIGINT)"))
    jobs.append(job)
    producer = broker.producer()
    for run in range(5):
        running = job.start(workers=1 + run % 2)
        for n in range(1_500 * run, 1_500 * (run + 1)):
            producer.produce(source, json.dumps({"k": n % 5, "n": n}))
            if n % 300 == 0:
                producer.flush(30)
                time.sleep(0.1)
        producer.flush(30)
        assert running.poll() is None, running.communicate()
        running.kill()
        running.communicate(timeout=60)
    job.start(workers=2)
    until = time.monotonic() + 40
    while len(found := broker.values(sink)[0]) < 7_500 and time.monotonic() < until:
        time.sleep(0.3)
    assert [json.loads(value)["n"] for value in found] == list(range(7_500))


def test_offsets_are_committed_to_the_group(broker, topic, tmp_path, jobs):
    sink = broker.topic(next(NAMES))
    job = Job(broker, tmp_path, topic, sink, more=", 'properties.group.id' = 'lag'")
    jobs.append(job)
    broker.fill(topic, [message(n) for n in range(1_000)])
    job.start()
    until = time.monotonic() + 30
    while broker.committed("lag", topic) != 1_000:
        assert time.monotonic() < until, broker.committed("lag", topic)
        time.sleep(0.2)


def test_the_end_of_a_bounded_read_is_committed(broker, topic, tmp_path, jobs):
    """So that the next night's job goes on there."""
    nightly = ", 'properties.group.id' = 'nightly', 'properties.auto.offset.reset' = 'earliest'"
    job = Job(broker, tmp_path, topic, broker.topic(next(NAMES)), bounded=True, more=nightly)
    job.script.write_text(job.script.read_text().replace("earliest-offset", "group-offsets"))
    jobs.append(job)
    for night in range(2):
        broker.fill(topic, [message(n) for n in range(100)])
        running = job.start(1, "100ms", "--fresh")
        said = running.communicate(timeout=60)
        assert running.returncode == 0, said
        assert broker.committed("nightly", topic) == 100 * (night + 1)


def until(what: str, condition, running: subprocess.Popen) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert running.poll() is None, running.communicate()
        assert time.monotonic() < end, what
        time.sleep(0.1)


def splits_of(job: Job, table: str = "t") -> set[str]:
    """The partitions in the last checkpoint."""
    words = [str(harness.program()), "checkpoint", "show", str(job.state), "--json"]
    shown = subprocess.run(words, capture_output=True, text=True)
    return set(json.loads(shown.stdout)["sources"][table]["splits"]) if shown.returncode == 0 else set()


@pytest.mark.parametrize("processes", [1, 2])
def test_new_partitions_join_a_running_job(broker, tmp_path, jobs, processes):
    """At a checkpoint, with kills before and after: no record is lost or counted twice."""
    source, sink = broker.topic(next(NAMES), processes), broker.topic(next(NAMES), 2)
    job = Job(broker, tmp_path, source, sink, more=", 'scan.topic-partition-discovery.interval' = '300 ms'")
    jobs.append(job)
    partitions = processes
    for partition in range(partitions):
        broker.fill(source, [message(n) for n in range(partition, 500, partitions)], partition)
    for run in range(3):
        running = job.start(1 + run % 2, "200ms", "--processes", processes)
        until("a checkpoint", lambda: len(splits_of(job)) == partitions, running)
        # The partitions that are there stand at their last records, so nothing of the new one is late.
        broker.grow(source, partitions + 1)
        new = [message(n) for n in range(500 * (run + 1), 500 * (run + 2), 2)]
        if run == 1:
            # Before it can have joined.
            running.kill()
            running.communicate(timeout=60)
            running = job.start(2, "200ms", "--processes", processes)
        broker.fill(source, new, partitions)
        partitions += 1
        until("the new partition", lambda: f"{source}-{partitions - 1}" in splits_of(job), running)
        time.sleep(0.1 * run)
        running.kill()
        _, said = running.communicate(timeout=60)
        assert f"{source}-{partitions - 1} is new, and is read from the next checkpoint on".encode() in said, said
        others = [message(n) for n in range(500 * (run + 1) + 1, 500 * (run + 2), 2)]
        broker.fill(source, others, 0)
        for partition in range(1, partitions - 1):
            broker.fill(source, others[-1:], partition)
    job.start(2, "200ms", "--processes", processes)
    for partition in range(partitions):
        broker.fill(source, [message(n) for n in range(2_000, 2_300)], partition)
    extra = Counter()
    for run in range(3):
        last = 500 * (run + 2) - 1
        extra[(last // 100, last % 5)] += processes + run - 1
    expected = Counter((n // 100, n % 5) for n in range(2_000)) + extra
    end = time.monotonic() + 40
    while True:
        found = [json.loads(value) for of in broker.values(sink, 2) for value in of]
        if len(found) >= len(expected) or time.monotonic() > end:
            break
        time.sleep(0.3)
    counted = Counter()
    for row in found:
        minutes, seconds = row["s"].replace("T", " ").split(" ")[1].split(":")[1:]
        key = ((60 * int(minutes) + int(float(seconds))) // 2, row["k"])
        assert key not in counted, f"twice: {row}"
        counted[key] = row["n"]
    wrong = {key: (counted.get(key), count) for key, count in expected.items() if counted.get(key) != count}
    assert not wrong


def test_new_partitions_join_a_job_without_checkpoints(broker, topic, script, start):
    broker.fill(topic, [json.dumps({"v": n}) for n in range(3)])
    more = ", 'scan.topic-partition-discovery.interval' = '300 ms'"
    process = start(table(broker, topic, "v INT", more, bounded=False) + "SELECT v FROM t;")
    assert lines_of(process, 4) == ["v", "0", "1", "2"]
    broker.grow(topic, 2)
    broker.fill(topic, [json.dumps({"v": n}) for n in range(10, 13)], partition=1)
    assert lines_of(process, 3) == ["10", "11", "12"]
    broker.fill(topic, [json.dumps({"v": 3})])
    assert lines_of(process, 1) == ["3"]


def test_rows_do_not_wait_for_the_second_checkpoint(broker, topic, tmp_path, jobs):
    """Several processes: the first checkpoint is taken when the job starts."""
    sink = broker.topic(next(NAMES))
    job = Job(broker, tmp_path, topic, sink)
    jobs.append(job)
    broker.fill(topic, [message(n) for n in range(1_000)])
    running = job.start(2, "1h", "--processes", 2)
    until("rows of 9 windows", lambda: len(broker.values(sink)[0]) == 45, running)


@pytest.mark.parametrize("processes", [1, 2])
def test_the_clock_decides_nothing_that_is_computed_again(broker, topic, tmp_path, jobs, processes):
    """A record two days ahead of the clock may be in the past when a later job computes its window again."""
    sink = broker.topic(next(NAMES))
    job = Job(broker, tmp_path, topic, sink)
    jobs.append(job)
    future = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(time.time() + 2 * 86_400))
    broker.fill(topic, [message(n) for n in range(100)] + [json.dumps({"k": 9, "ts": future})])
    running = job.start(2, "1h", "--processes", processes)
    until("rows of the one window", lambda: len(broker.values(sink)[0]) == 5, running)


@pytest.mark.parametrize("packing", ["none", "lz4"])
def test_rows_without_windows_of_four_partitions_are_the_same_bytes(broker, script, packing):
    """A bounded topic is cut into the same chunks, however its batches come."""
    topic = broker.topic(next(NAMES), 4)
    for partition in range(4):
        values = (json.dumps({"k": partition, "n": n, "text": "x" * 50}) for n in range(20_000 + 3_000 * partition))
        broker.fill(topic, values, partition=partition, linger_ms=50, compression_type=packing)
    sql = table(broker, topic, "k INT, n INT") + "SELECT k, n FROM t;"
    found = {script.run(sql, "--workers", *words).stdout for words in ([1], [2], [3], [1], [1, "--processes", 2])}
    assert len(found) == 1 and found.pop().count(b"\n") == 98_001


def test_rows_without_windows_keep_their_order(broker, topic, tmp_path, jobs):
    """Exactly once by replay, the rows of a second partition would have no place among those of the first. The next run
    has a spool."""
    sink = broker.topic(next(NAMES))
    job = Job(broker, tmp_path, topic, sink, columns="k INT, n INT", query="INSERT INTO o SELECT k, 1 FROM t;",
              more=", 'scan.topic-partition-discovery.interval' = '300 ms'")
    jobs.append(job)
    broker.fill(topic, [message(n) for n in range(10)])
    running = job.start()
    until("rows", lambda: len(broker.values(sink)[0]) == 10, running)
    broker.grow(topic, 2)
    broker.fill(topic, [message(n) for n in range(10)], partition=1)
    time.sleep(1.5)
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=60)
    assert f"{topic}-1 is new, and this run does not read it".encode() in said, said
    assert len(broker.values(sink)[0]) == 10
    running = job.start()
    until("rows of both", lambda: len(broker.values(sink)[0]) == 20, running)


def test_a_new_partition_that_no_checkpoint_can_take_is_refused(broker, tmp_path, jobs):
    """Without discovery its records would come between rows that are computed again."""
    source, sink = broker.topic(next(NAMES)), broker.topic(next(NAMES))
    job = Job(broker, tmp_path, source, sink, more=", 'scan.topic-partition-discovery.interval' = '0'")
    jobs.append(job)
    broker.fill(source, [message(n) for n in range(1_000)])
    running = job.start()
    until("rows", lambda: len(broker.values(sink)[0]) == 45, running)
    running.kill()
    running.communicate(timeout=60)
    broker.grow(source, 2)
    broker.fill(source, [message(n) for n in range(1_000)], partition=1)
    _, said = job.start().communicate(timeout=60)
    assert f"'{source}-1' has come since the last checkpoint".encode() in said, said
    assert len(broker.values(sink)[0]) == 45


def test_a_topic_that_was_made_again_is_refused(broker, tmp_path, jobs):
    source, sink = broker.topic(next(NAMES)), broker.topic(next(NAMES))
    job = Job(broker, tmp_path, source, sink)
    jobs.append(job)
    broker.fill(source, [message(n) for n in range(1_000)])
    running = job.start()
    time.sleep(1)
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=60)
    broker.delete(source)
    time.sleep(1)
    broker.topic(source)
    _, said = job.start().communicate(timeout=60)
    assert b"made again" in said, said


def test_another_job_with_the_same_prefix_is_told(broker, tmp_path, jobs):
    source, sink = broker.topic(next(NAMES)), broker.topic(next(NAMES))
    producer = broker.producer()

    def feed(n: int) -> None:
        for one in range(n, n + 200):
            producer.produce(source, message(one))
        producer.flush(30)

    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first, second = Job(broker, tmp_path / "a", source, sink), Job(broker, tmp_path / "b", source, sink)
    jobs.extend([first, second])
    feed(0)
    one = first.start()
    time.sleep(1.5)
    other = second.start()
    time.sleep(1.5)
    until = time.monotonic() + 30
    n = 200
    while one.poll() is None:
        assert time.monotonic() < until
        feed(n)
        n += 200
        time.sleep(0.2)
    _, said = one.communicate()
    assert b"another job writes with the same id" in said, said
    assert other.poll() is None


def test_the_broker_goes_away_and_comes_back(tmp_path_factory, tmp_path, jobs):
    why = kafka.missing()
    if why:
        cannot_run(why)
    broker = kafka.Broker(tmp_path_factory.mktemp("broker"))
    broker.start()
    try:
        source, sink = broker.topic("source"), broker.topic("sink")
        job = Job(broker, tmp_path, source, sink)
        jobs.append(job)
        running = job.start()
        broker.fill(source, [message(n) for n in range(2_000)])
        time.sleep(1)
        broker.end()
        time.sleep(3)
        broker.start()
        broker.fill(source, [message(n) for n in range(2_000, 4_200)])
        until = time.monotonic() + 60
        while len(found := broker.values(sink)[0]) < 200:
            assert running.poll() is None, running.communicate()
            assert time.monotonic() < until, len(found)
            time.sleep(0.5)
        assert len({(json.loads(v)["s"], json.loads(v)["k"]) for v in found}) == len(found)
        assert all(json.loads(v)["n"] == 20 for v in found[:200])
    finally:
        broker.end()

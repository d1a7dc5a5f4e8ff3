"""What may go wrong between a job and its broker, made to go wrong by a proxy between: rows are there exactly once."""

import json
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import broker as kafka
import harness
import kafka_proxy as faults
from conftest import cannot_run

NAMES = iter(f"trap-{number:04}" for number in range(1_000))


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    if why := kafka.missing():
        cannot_run(why)
    port = kafka.free_port()
    more = "\ntransaction.abort.timed.out.transaction.cleanup.interval.ms=100\n"
    broker = kafka.Broker(tmp_path_factory.mktemp("broker"), more, advertised=port)
    broker.proxy = faults.Proxy(port, broker.port)
    broker.start()
    yield broker
    broker.end()
    broker.proxy.end()


@pytest.fixture
def proxy(broker):
    broker.proxy.clear()
    yield broker.proxy
    broker.proxy.clear()


class Job:
    """The records of a topic of one partition, by window or as they come, into another topic."""

    def __init__(self, broker, folder: Path, partitions: int = 1, more: str = "", query: str = "SELECT k FROM t",
                 sinks: int = 1):
        self.broker, self.folder, self.process = broker, folder, None
        self.source, self.sink = broker.topic(next(NAMES), partitions), broker.topic(next(NAMES), sinks)
        self.producer = broker.producer()
        servers = f"127.0.0.1:{broker.proxy.port}"
        common = f"'connector' = 'kafka', 'properties.bootstrap.servers' = '{servers}', 'format' = 'json'"
        (folder / "job.sql").write_text(
            "CREATE TABLE t (k INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND) WITH "
            f"({common}, 'topic' = '{self.source}', 'scan.startup.mode' = 'earliest-offset');\n"
            f"CREATE TABLE o (k INT) WITH ({common}, 'topic' = '{self.sink}', 'sink.delivery-guarantee' = 'exactly-once', "
            f"'sink.transactional-id-prefix' = '{self.sink}'{more});\nINSERT INTO o {query};\n")

    def start(self, workers: int = 1, every: str = "100ms") -> None:
        words = [harness.program(), "run", self.folder / "job.sql", "--checkpoint", self.folder / "state", "--every", every,
                 "--workers", workers]
        self.process = subprocess.Popen(list(map(str, words)), stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def feed(self, *numbers: int, partition: int = 0, second: int | None = None) -> None:
        for n in numbers:
            at = n if second is None else second
            text = json.dumps({"k": n, "ts": f"2024-01-01 {at // 3600:02}:{at // 60 % 60:02}:{at % 60:02}"})
            self.producer.produce(self.source, text, partition=partition)
        assert self.producer.flush(30) == 0

    def rows(self, partition: int = 0) -> list[int]:
        return [json.loads(value)["k"] for value in self.broker.values(self.sink, partition + 1)[partition]]

    def until(self, what: Callable[[], bool], seconds: float = 60) -> None:
        end = time.monotonic() + seconds
        while not what():
            assert self.process.poll() is None, self.process.communicate()
            if time.monotonic() > end:
                self.process.kill()
                pytest.fail(f"still not, {self.rows()[-5:]}: {self.process.communicate()}")
            time.sleep(0.05)

    def has(self, *numbers: int) -> None:
        self.until(lambda: len(self.rows()) >= len(numbers))
        assert self.rows() == list(numbers)

    def kill(self, how: int = signal.SIGKILL) -> str:
        self.process.send_signal(how)
        return self.process.communicate(timeout=60)[1].decode()

    def end(self) -> None:
        if self.process and self.process.poll() is None:
            self.kill()


@pytest.fixture
def job(broker, proxy, tmp_path):
    started: list[Job] = []

    def begin(**words) -> Job:
        started.append(Job(broker, tmp_path, **words))
        return started[-1]

    yield begin
    for one in started:
        one.end()


def begun(job, **words) -> Job:
    """A job that has written its first rows."""
    one = job(**words)
    one.feed(*range(10))
    one.start()
    one.has(*range(10))
    return one


# --- transactions ---------------------------------------------------------------------------------

@pytest.mark.parametrize("api", [faults.END_TXN, faults.TXN_OFFSET_COMMIT])
def test_a_transaction_that_expires_is_written_again(job, proxy, api):
    one = begun(job, more=", 'properties.transaction.timeout.ms' = '1000'")
    proxy.on(api, request=faults.late(3))
    one.feed(10, 11, 12)
    one.has(*range(13))
    one.feed(13)
    one.has(*range(14))


def test_a_transaction_expires_whose_beginning_is_not_known(job, proxy):
    """The answer to its first write is lost."""
    one = begun(job, more=", 'properties.transaction.timeout.ms' = '1000'")
    proxy.on(faults.PRODUCE, response=lambda frame: time.sleep(3))
    one.feed(10, 11, 12)
    one.has(*range(13))


def test_a_transaction_that_expires_is_no_loop_of_restarts(job, proxy):
    one = begun(job, more=", 'properties.transaction.timeout.ms' = '1000'")
    rule = proxy.on(faults.END_TXN, request=faults.late(60))
    one.feed(10, 11, 12)
    one.until(lambda: rule.left == 0)
    one.kill()
    time.sleep(2)
    one.start()
    one.has(*range(13))


@pytest.mark.parametrize("api, rule", [
    (faults.PRODUCE, lambda job: faults.produced(job.sink, faults.TRANSACTION_ABORTABLE)),
    (faults.TXN_OFFSET_COMMIT, lambda job: faults.with_code(9 + 1 + 1 + len(job.sink) + 1 + 4, faults.TRANSACTION_ABORTABLE)),
    (faults.END_TXN, lambda job: faults.end_txn(faults.TRANSACTION_ABORTABLE)),
], ids=["produce", "marker", "end"])
def test_an_abortable_transaction_is_aborted(job, proxy, api, rule):
    one = begun(job)
    # However often the same request came again, the answer would be the same.
    proxy.on(api, request=drop, response=rule(one)) if api == faults.END_TXN else proxy.on(api, response=rule(one))
    begins = proxy.count(faults.INIT_PRODUCER_ID)
    one.feed(10, 11, 12)
    one.has(*range(13))
    assert proxy.count(faults.INIT_PRODUCER_ID) > begins


def drop(frame: bytes) -> bytes:
    """A request to commit becomes one to abort: the boolean in front of the tags at the end."""
    return frame[:-2] + b"\0" + frame[-1:]


def test_a_send_that_fails_commits_nothing(job, proxy):
    one = begun(job)
    rule = proxy.on(faults.PRODUCE, 100, response=faults.produced(one.sink, faults.MESSAGE_TOO_LARGE))
    ends = proxy.count(faults.END_TXN)
    one.feed(10, 11, 12)
    said = one.process.communicate(timeout=60)[1].decode()
    assert one.process.returncode == 1 and one.sink in said and "MessageTooLarge" in said.replace(" ", ""), said
    assert rule.left < 100 and proxy.count(faults.END_TXN) == ends
    proxy.clear()
    one.start()
    one.has(*range(13))


@pytest.mark.parametrize("when", ["request", "response"])
@pytest.mark.parametrize("api", [faults.PRODUCE, faults.TXN_OFFSET_COMMIT, faults.END_TXN, faults.INIT_PRODUCER_ID,
                                 faults.FIND_COORDINATOR])
def test_a_connection_that_ends_before_or_in_a_response(job, proxy, api, when):
    one = begun(job)
    if api in (faults.INIT_PRODUCER_ID, faults.FIND_COORDINATOR):
        # They come at a start, and after a fault.
        proxy.on(faults.END_TXN, response=faults.cut)
    proxy.on(api, 2, **{when: faults.cut})
    one.feed(10, 11, 12)
    one.has(*range(13))
    one.feed(13)
    one.has(*range(14))


@pytest.mark.parametrize("when", ["request", "response"])
@pytest.mark.parametrize("api", [faults.PRODUCE, faults.TXN_OFFSET_COMMIT, faults.END_TXN, faults.INIT_PRODUCER_ID])
def test_a_kill_between_cut_and_commit(job, proxy, api, when):
    """While this request is on its way, before the broker has it or before its answer is back."""
    one = begun(job)
    if api == faults.INIT_PRODUCER_ID:
        one.kill()
    rule = proxy.on(api, **{when: faults.late(3)})
    one.feed(10, 11, 12)
    if api == faults.INIT_PRODUCER_ID:
        one.start()
    one.until(lambda: rule.left == 0)
    time.sleep(0.2)
    one.kill()
    # The broker may get the request of a job that is dead.
    one.start(workers=2)
    one.has(*range(13))
    one.feed(13)
    one.has(*range(14))
    assert one.rows() == list(range(14))


def test_records_of_a_partition_that_moves_are_written_once(job, proxy):
    one = begun(job)
    proxy.on(faults.PRODUCE, 3, response=faults.produced(one.sink, faults.NOT_LEADER))
    one.feed(10, 11, 12)
    one.has(*range(13))


def test_a_broker_that_forgets_the_marker_is_noticed(job):
    """Also of rows that came behind the first checkpoint, which knows of none."""
    one = job()
    one.feed(*range(10))
    one.start(every="1h")
    one.has(*range(10))
    one.kill()
    group = f"{one.sink}-o"
    one.broker.admin().delete_consumer_groups([group])[group].result(30)
    one.start()
    said = one.process.communicate(timeout=60)[1].decode()
    assert one.process.returncode == 1 and "forgotten" in said and "--fresh" in said, said
    assert one.rows() == list(range(10))


# --- starting again -------------------------------------------------------------------------------

WINDOWS = "SELECT SUM(k) FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY window_start, window_end"


def test_fewer_workers_leave_no_open_transaction(job, proxy):
    one = job(query=WINDOWS, sinks=3, more=", 'sink.partitioner' = 'round-robin'")
    one.feed(*range(200))
    one.start(workers=4)

    def all_rows() -> list[int]:
        return [json.loads(value)["k"] for of in one.broker.values(one.sink, 3) for value in of]

    one.until(lambda: len(all_rows()) >= 18)
    proxy.on(faults.END_TXN, request=faults.late(2))
    one.feed(*range(200, 300))
    time.sleep(0.5)
    one.kill()
    one.start(workers=1)
    one.feed(*range(300, 400))
    sums = [sum(range(first, first + 10)) for first in range(0, 380, 10)]
    one.until(lambda: len(all_rows()) >= len(sums))
    # A reader of committed rows comes to the end: no transaction of the earlier job is open.
    assert sorted(all_rows())[:len(sums)] == sums


def test_a_partition_at_its_end_holds_nobody_back(job):
    """Its watermark is in the checkpoint: it has no record that would bring it again."""
    one = job(query=WINDOWS, partitions=2)
    one.feed(*range(50), partition=0)
    one.feed(1000, partition=1, second=500)
    one.start()
    one.has(*(sum(range(first, first + 10)) for first in range(0, 40, 10)))
    time.sleep(0.5)
    one.kill()
    one.start()
    one.feed(*range(50, 100), partition=0)
    one.has(*(sum(range(first, first + 10)) for first in range(0, 90, 10)))


# --- reading --------------------------------------------------------------------------------------

@pytest.mark.parametrize("code", [faults.NOT_LEADER, faults.FENCED_LEADER_EPOCH, faults.UNKNOWN_LEADER_EPOCH])
def test_a_leader_that_is_another_now(job, proxy, code):
    one = begun(job)
    rule = proxy.on(faults.FETCH, 3, response=faults.fetched(code))
    one.feed(*range(10, 500))
    one.has(*range(500))
    one.until(lambda: rule.left == 0)
    one.feed(500)
    one.has(*range(501))


@pytest.mark.parametrize("api", [faults.FETCH, faults.METADATA, faults.API_VERSIONS, faults.OFFSET_COMMIT])
def test_connections_that_end_while_reading(job, proxy, api):
    one = begun(job)
    if api != faults.FETCH:
        proxy.on(faults.FETCH, 3, response=faults.cut)
    proxy.on(api, 3, response=faults.cut)
    one.feed(*range(10, 500))
    one.has(*range(500))


def test_slow_answers(job, proxy):
    one = begun(job)
    for api in (faults.FETCH, faults.PRODUCE, faults.END_TXN):
        proxy.on(api, 2, response=faults.late(1.5))
    one.feed(*range(10, 50))
    one.has(*range(50))


def test_a_response_that_lies_is_asked_for_again(job, proxy):
    """It promises more topics than there are bytes in all memory of this machine."""
    one = begun(job)
    head = 5 + 4 + 2 + 4
    proxy.on(faults.FETCH, 2, response=lambda frame: frame[:head] + b"\xff\xff\xff\xff\x0f" + frame[head + 1:])
    one.feed(*range(10, 50))
    one.has(*range(50))

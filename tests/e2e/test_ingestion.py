"""Programs that stream Arrow batches into a job over Arrow Flight: `'connector' = 'channel'`."""

import datetime
import os
import re
import signal
import struct
import subprocess
import sys
import threading
import time

import pyarrow
import pyarrow.flight
import pytest
from jobs import wait_until
from listened import PATIENCE_SECONDS, Listened
from watched import ask, report

TABLE = """CREATE TABLE clicks (ts TIMESTAMP(6), k BIGINT, page STRING, WATERMARK FOR ts AS ts) WITH (
    'connector' = 'channel', 'listen' = '127.0.0.1:0'{});
"""
WINDOWS = """SELECT window_start, COUNT(*) AS n, SUM(k) AS s, MAX(page) AS p
FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY window_start, window_end;"""
HEADER = "window_start,n,s,p"
SCHEMA = pyarrow.schema([("k", pyarrow.int32()), ("ts", pyarrow.timestamp("us")),
                         ("page", pyarrow.dictionary(pyarrow.int8(), pyarrow.string()))])
NOON = datetime.datetime(2024, 1, 1, 12, tzinfo=datetime.timezone.utc)


def rows(*records: tuple[float, int]) -> pyarrow.RecordBatch:
    """Records: seconds behind noon, and keys. The columns have another order and other types than the table's."""
    stamps = [NOON.replace(tzinfo=None) + datetime.timedelta(seconds=second) for second, _ in records]
    pages = pyarrow.array([f"/page/{k}" for _, k in records]).dictionary_encode()
    arrays = [pyarrow.array([k for _, k in records], pyarrow.int32()), pyarrow.array(stamps, pyarrow.timestamp("us")),
              pages.cast(SCHEMA.field("page").type)]
    return pyarrow.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def records(place) -> int:
    """Records that the one job has read."""
    return ((report(place) or {}).get("snapshot") or {}).get("records", 0)


def watermark(second: float) -> bytes:
    return struct.pack("<q", int((NOON.timestamp() + second) * 1_000_000))


class Running(Listened):
    def address(self) -> str:
        end = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < end:
            found = re.search(r"waits for Arrow Flight on (grpc://[\d.]+:\d+), clicks", self.said())
            if found:
                return found[1]
            assert self.process.poll() is None, self.said()
            time.sleep(0.02)
        raise AssertionError(f"it does not say where it listens: {self.said()}")

    def producer(self, name: str, schema: pyarrow.Schema = SCHEMA, token: str | None = None) -> "Producer":
        return Producer(self.address(), name, schema, token)


class Producer:
    def __init__(self, address: str, name: str, schema: pyarrow.Schema, token: str | None):
        self.client = pyarrow.flight.connect(address)
        headers = [(b"millstream-producer", name.encode())]
        if token:
            headers.append((b"authorization", f"Bearer {token}".encode()))
        options = pyarrow.flight.FlightCallOptions(headers=headers)
        path = pyarrow.flight.FlightDescriptor.for_path("clicks")
        self.writer, self.reader = self.client.do_put(path, schema, options)

    def send(self, *records: tuple[float, int], until: float | None = None) -> None:
        if until is None:
            self.writer.write_batch(rows(*records))
        elif records:
            self.writer.write_with_metadata(rows(*records), watermark(until))
        else:
            self.writer.write_metadata(watermark(until))

    def end(self) -> int:
        """Ends the stream; how many records the job has taken."""
        self.writer.done_writing()
        taken = int(self.reader.read().to_pybytes())
        self.writer.close()
        self.client.close()
        return taken


@pytest.fixture
def running(script):
    started = []

    def begin(options: str = "", query: str = WINDOWS, *words: str) -> Running:
        started.append(Running(script.write(TABLE.format(options) + query), *words))
        return started[-1]

    yield begin
    for one in started:
        one.kill()


@pytest.mark.parametrize("words", [["--workers", "1"], ["--workers", "2"], ["--processes", "2"]])
def test_two_producers_fill_the_windows_of_a_bounded_table(running, words):
    job = running(", 'producers' = '2', 'bounded' = 'true'", WINDOWS, *words)
    first, second = job.producer("first"), job.producer("second")
    first.send((1, 1), (25, 2))
    second.send((3, 10))
    # The window waits for the second producer.
    job.nothing()
    second.send((31, 20))
    assert (job.next(), job.next()) == (HEADER, "2024-01-01 12:00:00.000,2,11,/page/10")
    first.send((26, 4))
    assert (first.end(), second.end()) == (3, 2)
    assert [job.next(), job.next()] == ["2024-01-01 12:00:20.000,2,6,/page/4",
                                       "2024-01-01 12:00:30.000,1,20,/page/20"]
    said = job.ended()
    assert "5 records" in said and "0 late" in said, said
    assert re.search(r"producer first \([\d.:]+\) has joined", said), said
    assert re.search(r"producer second \([\d.:]+\) has ended after 2 records", said), said


def test_watermarks_travel_with_batches_and_without(running):
    job = running()
    producer = job.producer("p")
    producer.send((1, 1), (2, 2))
    job.nothing()
    producer.send(until=10)
    assert (job.next(), job.next()) == (HEADER, "2024-01-01 12:00:00.000,2,3,/page/2")
    producer.send((11, 5), until=20)
    assert job.next() == "2024-01-01 12:00:10.000,1,5,/page/5"
    producer.send((19, 6))
    assert producer.end() == 4
    job.process.send_signal(signal.SIGINT)
    assert "1 late" in job.ended(130)


def test_who_has_gone_holds_nobody_back(running):
    job = running(", 'producers' = '2'")
    stays, goes = job.producer("stays"), job.producer("goes")
    stays.send((1, 1), (15, 2))
    goes.send((2, 4))
    job.nothing()
    assert goes.end() == 1
    assert (job.next(), job.next()) == (HEADER, "2024-01-01 12:00:00.000,2,5,/page/4")
    # And a new one begins where the others are.
    later = job.producer("later")
    later.send((16, 8))
    # Records of two streams come in any order.
    job.nothing()
    stays.send((21, 1))
    job.nothing()
    later.send((20, 9))
    assert job.next() == "2024-01-01 12:00:10.000,2,10,/page/8"


PROGRAM = """import sys, pyarrow, pyarrow.flight
client = pyarrow.flight.connect(sys.argv[1])
schema = pyarrow.schema([("ts", pyarrow.timestamp("us")), ("k", pyarrow.int64()), ("page", pyarrow.string())])
options = pyarrow.flight.FlightCallOptions(headers=[(b"millstream-producer", b"doomed")])
writer, _ = client.do_put(pyarrow.flight.FlightDescriptor.for_path("clicks"), schema, options)
writer.write_batch(pyarrow.record_batch([[1], [1], ["x"]], schema=schema))
print("sent", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("bounded", [False, True])
def test_a_producer_that_is_killed_is_named(running, bounded):
    job = running(", 'bounded' = 'true'" if bounded else "")
    with subprocess.Popen([sys.executable, "-c", PROGRAM, job.address()], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout.readline() == "sent\n"
        # The batch is on its way.
        job.says("producer doomed")
        time.sleep(0.3)
        program.kill()
        if bounded:
            said = job.ended(1)
            assert re.search(r"producer doomed \([\d.:]+\) was lost after 1 record\b", said), said
            assert "'on_loss' = 'notice'" in said, said
        else:
            job.says("was lost after 1 record, which count")
            other = job.producer("other")
            other.send((1, 1), (12, 1))
            assert (job.next(), job.next()) == (HEADER, "1970-01-01 00:00:00.000,1,1,x")


def test_what_does_not_fit_is_refused_and_the_job_goes_on(running):
    job = running(", 'token' = 'abc', 'producers.max' = '1'")

    def refused(name: str, match: str, schema: pyarrow.Schema = SCHEMA, token: str | None = "abc",
                path: str = "clicks") -> None:
        client = pyarrow.flight.connect(job.address())
        headers = [(b"millstream-producer", name.encode())] + \
            ([(b"authorization", f"Bearer {token}".encode())] if token else [])
        options = pyarrow.flight.FlightCallOptions(headers=headers, timeout=PATIENCE_SECONDS)
        with pytest.raises(pyarrow.ArrowException, match=match):
            writer, reader = client.do_put(pyarrow.flight.FlightDescriptor.for_path(path), schema, options)
            writer.done_writing()
            reader.read()
            writer.close()
        client.close()

    refused("a", "table 'clicks' has a token", token=None)
    refused("a", "table 'clicks' has a token", token="abd")
    refused("a", "no table 'klicks': there is clicks", path="klicks")
    refused("a", "there is no column 'page'", pyarrow.schema([("ts", pyarrow.timestamp("us")), ("k", pyarrow.int64())]))
    refused("a", "column 'k' is declared as BIGINT, but comes as STRING",
            pyarrow.schema([("ts", pyarrow.timestamp("us")), ("k", pyarrow.string()), ("page", pyarrow.string())]))
    refused("a b", "a producer's name has 1 to 64 letters")
    producer = job.producer("right", token="abc")
    producer.send((1, 1), (11, 1))
    assert (job.next(), job.next()) == (HEADER, "2024-01-01 12:00:00.000,1,1,/page/1")
    refused("b", "has 1 producer already; 'producers.max'")
    assert "abc" not in job.said()
    client = pyarrow.flight.connect(job.address())
    schema = client.get_schema(pyarrow.flight.FlightDescriptor.for_path("clicks")).schema
    assert schema.names == ["ts", "k", "page"] and schema.field("ts").type == pyarrow.timestamp("us")
    with pytest.raises(pyarrow.ArrowNotImplementedError, match="producers call DoPut"):
        client.do_get(pyarrow.flight.Ticket(b"x")).read_all()
    client.close()


def test_stop_with_drain_takes_what_has_come(start, place):
    job = start(TABLE.format("") + WINDOWS)
    address = re.search(r"grpc://[\d.]+:\d+", job.stderr.readline())[0]
    producer = Producer(address, "p", SCHEMA, None)
    producer.send((1, 1), (2, 2), (13, 4))
    wait_until("records", lambda: records(place) == 3)
    assert ask(place, "stop", "--drain").returncode == 0
    out, err = job.communicate(timeout=PATIENCE_SECONDS)
    assert (job.returncode, out.splitlines()) == (0, [HEADER, "2024-01-01 12:00:00.000,2,3,/page/2",
                                                      "2024-01-01 12:00:10.000,1,4,/page/4"]), err
    with pytest.raises(pyarrow.ArrowException):
        for _ in range(1000):
            producer.send((3, 3))
            time.sleep(0.01)


def test_a_job_with_checkpoints_is_refused(script, tmp_path):
    result = script.run(TABLE.format("") + WINDOWS, "--checkpoint", str(tmp_path / "state"))
    assert result.code == 1
    assert "channel clicks: its records come only once" in result.stderr, result.stderr
    assert "write to Kafka or to files" in result.stderr, result.stderr


def test_an_address_in_use_is_an_error_that_names_it(running, script):
    job = running()
    port = job.address().rsplit(":", 1)[1]
    result = script.run(TABLE.format("").replace("127.0.0.1:0", f"127.0.0.1:{port}") + WINDOWS)
    assert result.code == 1 and "channel clicks" in result.stderr and "in use" in result.stderr, result.stderr


def test_many_producers_lose_nothing(running):
    """Eight producers, each a thread, of a job that is slower than they are."""
    count, batches = 8, 50
    job = running(f", 'producers' = '{count}', 'bounded' = 'true'",
                  "SELECT k, COUNT(*) AS n, COUNT(DISTINCT page) AS p FROM clicks GROUP BY k;",
                  "--set", "memory=64MB", "--stats-json", os.devnull)
    address = job.address()
    taken = []

    def produce(number: int) -> None:
        producer = Producer(address, f"p{number}", SCHEMA, None)
        for at in range(batches):
            producer.send(*((at * 0.001 + n * 1e-6, (number * 31 + n) % 100) for n in range(500)))
        taken.append(producer.end())

    threads = [threading.Thread(target=produce, args=(number,)) for number in range(count)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert taken == [batches * 500] * count
    assert job.next() == "k,n,p"
    rows = [job.next().split(",") for _ in range(100)]
    assert sorted((int(k), int(n), int(p)) for k, n, p in rows) == \
        [(k, count * batches * 5, 1) for k in range(100)]
    said = job.ended()
    assert f"{count * batches * 500:,} records" in said, said


COUNTS = "CREATE TABLE counts (s TIMESTAMP(3), page STRING, n BIGINT, WATERMARK FOR s AS s) WITH ({});\n"


@pytest.mark.parametrize("transport", ["shm", "tcp"])
@pytest.mark.parametrize("words", [["--workers", "2"], ["--processes", "2"]])
def test_a_job_feeds_another_one_over_a_ring(script, transport, words):
    """100,000 records, counted by page and second in one job, and by page in the other."""
    listens = f"'connector' = 'channel', 'listen' = '127.0.0.1:0', 'transport' = '{transport}', 'bounded' = 'true', " \
        "'segment' = '4 KB'"
    job = Listened(script.write(COUNTS.format(listens) + "SELECT page, SUM(n) AS n, COUNT(*) AS seconds FROM counts "
                                "GROUP BY page ORDER BY page;"), *words)
    try:
        job.says("waits for producers on")
        address = re.search(r"waits for producers on ([\d.]+:\d+), counts", job.said())[1]
        sql = """CREATE TABLE made (n BIGINT, ts AS CAST(TO_TIMESTAMP_LTZ(n, 3) AS TIMESTAMP(3)),
    page AS CONCAT('/', CAST(n % 7 AS STRING)), WATERMARK FOR ts AS ts) WITH ('connector' = 'datagen',
    'number-of-rows' = '100000', 'fields.n.kind' = 'sequence', 'fields.n.start' = '0', 'fields.n.end' = '99999');
""" + COUNTS.replace(", WATERMARK FOR s AS s", "").format(
            f"'connector' = 'channel', 'connect' = '{address}', 'producer' = 'first-job'") + """
INSERT INTO counts SELECT window_start, page, COUNT(*) FROM TABLE(TUMBLE(TABLE made, DESCRIPTOR(ts),
    INTERVAL '1' SECOND)) GROUP BY window_start, window_end, page;"""
        first = script.run(sql, *words)
        assert first.code == 0 and "700 rows" in first.stderr, first.stderr
        rows = [job.next() for _ in range(8)]
        assert rows == ["page,n,seconds"] + [f"/{k},{(100_000 - k + 6) // 7},100" for k in range(7)]
        said = job.ended()
        assert re.search(r"producer first-job \([\d.:]+\) has ended after 700 records", said), said
    finally:
        job.kill()


# Rows that go on, one each millisecond of the clock.
ENDLESS = """CREATE TABLE made (n BIGINT, s AS CAST(TO_TIMESTAMP_LTZ(n, 3) AS TIMESTAMP(3)), WATERMARK FOR s AS s) WITH (
    'connector' = 'datagen', 'rows-per-second' = '1000', 'fields.n.kind' = 'sequence', 'fields.n.start' = '0');
"""


def feeding(address: str) -> str:
    """A job that is the producer `first-job` until it is stopped."""
    written = COUNTS.replace(", WATERMARK FOR s AS s", "").format(
        f"'connector' = 'channel', 'connect' = '{address}', 'producer' = 'first-job'")
    return ENDLESS + written + "INSERT INTO counts SELECT s, 'page', n FROM made;"


def listening(transport: str) -> str:
    return COUNTS.format(f"'connector' = 'channel', 'listen' = '127.0.0.1:0', 'transport' = '{transport}'") + \
        "SELECT n FROM counts;"


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_a_producer_with_a_ring_that_is_killed_is_named(script, transport):
    job = Listened(script.write(listening(transport)))
    first = None
    try:
        job.says("waits for producers on")
        address = re.search(r"waits for producers on ([\d.]+:\d+), counts", job.said())[1]
        first = Listened(script.write(feeding(address)))
        assert [job.next() for _ in range(100)] == ["n", *map(str, range(99))]
        first.process.kill()
        job.says("was lost after")
        assert re.search(r"producer first-job \([\d.:]+\) was lost after [\d,]+ records, which count", job.said()), job.said()
        assert job.process.poll() is None
    finally:
        for one in filter(None, (first, job)):
            one.kill()


def test_a_ring_is_drained(start, script, place):
    """What a producer has been told to be taken is just what the job gives."""
    job = start(listening("shm"))
    address = re.search(r"producers on ([\d.]+:\d+), counts", job.stderr.readline())[1]
    first = Listened(script.write(feeding(address)))
    try:
        wait_until("records", lambda: records(place) > 100)
        assert ask(place, "stop", "--drain").returncode == 0
        out, err = job.communicate(timeout=PATIENCE_SECONDS)
        found = out.splitlines()[1:]
        assert (job.returncode, found) == (0, [str(n) for n in range(len(found))]), err
        said = first.ended(1)
        taken = re.search(r"being drained.*\(records taken before: (\d+)\)", said)
        assert taken and int(taken[1]) == len(found), said
    finally:
        first.kill()


def test_a_table_to_write_says_what_is_wrong(script):
    table = COUNTS.replace(", WATERMARK FOR s AS s", "")
    select = "SELECT TIMESTAMP '2024-01-01 00:00:00' AS s, 'a' AS page, 1 AS n FROM (VALUES (1)) AS t(x)"
    insert = f"INSERT INTO counts {select};"
    result = script.run(table.format("'connector' = 'channel'") + insert)
    assert result.code == 2 and "'connect' = '127.0.0.1:8815'" in result.stderr, result.stderr
    result = script.run(table.format("'connector' = 'channel', 'connect' = '127.0.0.1:1'") + insert)
    assert result.code == 1 and "channel counts at 127.0.0.1:1" in result.stderr, result.stderr
    result = script.run(table.format("'connector' = 'channel', 'connect' = '127.0.0.1:1'") + "SELECT * FROM counts;")
    assert result.code == 2 and "cannot be read" in result.stderr and "'listen'" in result.stderr, result.stderr

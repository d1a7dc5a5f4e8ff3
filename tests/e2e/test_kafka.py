"""Kafka as source and sink, over a real broker."""

import json
import re
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest

import broker as kafka
import harness
from conftest import cannot_run
from jobs import wait_until
from test_live import address_of, get, values
from watched import ask


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    why = kafka.missing()
    if why:
        cannot_run(why)
    broker = kafka.Broker(tmp_path_factory.mktemp("broker"))
    broker.start()
    yield broker
    broker.end()


NAMES = iter(f"topic-{number}" for number in range(1_000))


@pytest.fixture
def topic(broker) -> str:
    return broker.topic(next(NAMES))


def table(broker, topic: str, columns: str, more: str = "", name: str = "t", bounded: bool = True,
          start: str = "earliest-offset", form: str = "json") -> str:
    options = {"connector": "kafka", "topic": topic, "properties.bootstrap.servers": broker.servers}
    if form:
        options["format"] = form
    if start:
        options["scan.startup.mode"] = start
    if bounded:
        options["scan.bounded.mode"] = "latest-offset"
    listed = ", ".join(f"'{key}' = '{value}'" for key, value in options.items())
    return f"CREATE TABLE {name} ({columns}) WITH ({listed}{more});\n"


def rows(result) -> list[list[str]]:
    return [line.split(",") for line in result.stdout.decode().splitlines()[1:]]


# --- reading --------------------------------------------------------------------------------------

@pytest.mark.parametrize("packing", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_of_every_compression(broker, topic, script, packing):
    values = [json.dumps({"n": n, "text": "x" * (n % 50)}) for n in range(3_000)]
    broker.fill(topic, values, **{"compression_type": packing})
    result = script.run(table(broker, topic, "n BIGINT, text STRING") +
                        "SELECT COUNT(*), SUM(n), SUM(CHAR_LENGTH(text)) FROM t;")
    expected = [3_000, sum(range(3_000)), sum(n % 50 for n in range(3_000))]
    assert rows(result) == [[str(number) for number in expected]]


def test_columns_beside_the_records(broker, topic, script):
    producer = broker.producer()
    producer.produce(topic, '{"v": 1}', key="a", headers=[("h", b"x"), ("h", b"y")], timestamp=1_700_000_000_123)
    producer.produce(topic, '{"v": 2}', timestamp=1_700_000_001_000)
    producer.flush(30)
    columns = ("v INT, p INT METADATA FROM 'partition' VIRTUAL, `offset` BIGINT METADATA VIRTUAL, "
               "ts TIMESTAMP(3) METADATA FROM 'timestamp', kind STRING METADATA FROM 'timestamp-type' VIRTUAL, "
               "topic STRING METADATA VIRTUAL, epoch INT METADATA FROM 'leader-epoch' VIRTUAL, "
               "headers MAP<STRING, BYTES> METADATA")
    result = script.run(table(broker, topic, columns) +
                        "SELECT v, p, `offset`, ts, kind, topic, epoch, CARDINALITY(headers) FROM t;")
    assert [row[:3] for row in rows(result)] == [["1", "0", "0"], ["2", "0", "1"]]
    assert rows(result)[0][3:] == ["2023-11-14 22:13:20.123", "CreateTime", topic, "0", "1"], result.stdout
    assert rows(result)[1][7] == "0"


def test_keys_and_values(broker, topic, script):
    producer = broker.producer()
    for key, value in (("a", "1,x"), ("b", "2,y"), (None, "3,z")):
        producer.produce(topic, value, key=key)
    producer.flush(30)
    more = ", 'key.format' = 'raw', 'key.fields' = 'k_id', 'key.fields-prefix' = 'k_', 'value.format' = 'csv', " \
           "'value.fields-include' = 'EXCEPT_KEY'"
    result = script.run(table(broker, topic, "k_id STRING, n INT, s STRING", more, form="") + "SELECT * FROM t;")
    assert rows(result) == [["a", "1", "x"], ["b", "2", "y"], ["", "3", "z"]]


def test_tombstones(broker, topic, script):
    producer = broker.producer()
    for value in ('{"v": 1}', None, '{"v": 3}'):
        producer.produce(topic, value, key="k")
    producer.flush(30)
    columns = "v INT, `offset` BIGINT METADATA VIRTUAL"
    skipped = script.run(table(broker, topic, columns) + "SELECT * FROM t;")
    assert rows(skipped) == [["1", "0"], ["3", "2"]]
    assert "tombstone" in skipped.stderr and "offset 1" in skipped.stderr, skipped.stderr
    kept = script.run(table(broker, topic, columns, ", 'value.tombstones' = 'null'") + "SELECT * FROM t;")
    assert rows(kept) == [["1", "0"], ["", "1"], ["3", "2"]]


def test_a_malformed_message_names_its_place(broker, topic, script):
    broker.fill(topic, ['{"v": 1}', "oops", '{"v": 3}'])
    text = table(broker, topic, "v INT") + "SELECT * FROM t;"
    result = harness.run("run", script.write(text))
    assert result.code != 0
    assert f"topic '{topic}', partition 0, offset 1" in result.stderr, result.stderr
    left_out = script.run(table(broker, topic, "v INT", ", 'on_error' = 'skip'") + "SELECT * FROM t;")
    assert rows(left_out) == [["1"], ["3"]]


@pytest.mark.parametrize("workers", [1, 2])
def test_aborted_transactions_leave_gaps(broker, topic, script, workers):
    producer = broker.producer(transactional_id=f"{topic}-writer")
    producer.init_transactions(30)
    for number, commits in enumerate([True, False, True, False]):
        producer.begin_transaction()
        for n in range(10):
            producer.produce(topic, json.dumps({"v": 100 * number + n}))
        # What is not sent yet would not be sent at all.
        producer.flush(30)
        (producer.commit_transaction if commits else producer.abort_transaction)(30)
    # It ends with a gap: the last transaction and its end count for nobody.
    result = script.run(table(broker, topic, "v INT") + "SELECT * FROM t;", workers=workers)
    assert rows(result) == [[str(v)] for v in [*range(10), *range(200, 210)]]
    everything = script.run(table(broker, topic, "v INT", ", 'properties.isolation.level' = 'read_uncommitted'") +
                            "SELECT COUNT(*) FROM t;")
    assert rows(everything) == [["40"]]


def test_where_reading_begins_and_ends(broker, script):
    topic = broker.topic(next(NAMES), 2)
    for partition in range(2):
        producer = broker.producer()
        for n in range(10):
            producer.produce(topic, json.dumps({"v": 10 * partition + n}), partition=partition,
                             timestamp=1_700_000_000_000 + 1_000 * n)
        producer.flush(30)

    def read(start: str, more: str = "", bounded: bool = True) -> list[int]:
        text = table(broker, topic, "v INT", more, start=start, bounded=bounded) + "SELECT v FROM t;"
        return sorted(int(row[0]) for row in rows(script.run(text)))

    assert read("earliest-offset") == list(range(20))
    assert read("latest-offset") == []
    assert read("timestamp", ", 'scan.startup.timestamp-millis' = '1700000005000'") == [5, 6, 7, 8, 9, *range(15, 20)]
    specific = ", 'scan.startup.specific-offsets' = 'partition:0,offset:8;partition:1,offset:9'"
    assert read("specific-offsets", specific) == [8, 9, 19]
    until = ", 'scan.bounded.mode' = 'timestamp', 'scan.bounded.timestamp-millis' = '1700000002000'"
    assert read("earliest-offset", until, bounded=False) == [0, 1, 10, 11]
    until = ", 'scan.bounded.mode' = 'specific-offsets', 'scan.bounded.specific-offsets' = " \
            "'partition:0,offset:3;partition:1,offset:0'"
    assert read("earliest-offset", until, bounded=False) == [0, 1, 2]
    group = ", 'properties.group.id' = 'nobody', 'properties.auto.offset.reset' = 'earliest'"
    assert read("group-offsets", group) == list(range(20))
    # Of partitions without a specific end nothing is read; without a specific start they begin where the group is.
    until = ", 'scan.bounded.mode' = 'specific-offsets', 'scan.bounded.specific-offsets' = 'partition:1,offset:2'"
    assert read("earliest-offset", until, bounded=False) == [10, 11]
    specific = ", 'scan.startup.specific-offsets' = 'partition:0,offset:8'"
    assert read("specific-offsets", specific) == [8, 9, *range(10, 20)]
    broker.commit("of-others", topic, 6, partition=1)
    specific += ", 'properties.group.id' = 'of-others'"
    assert read("specific-offsets", specific) == [8, 9, *range(16, 20)]


def test_windows_over_four_partitions(broker, script):
    topic = broker.topic(next(NAMES), 4)
    expected: Counter = Counter()
    for partition in range(4):
        values = []
        for n in range(5_000):
            second = n // 100
            values.append(json.dumps({"k": n % 7, "ts": f"2024-01-01 00:{second // 60:02}:{second % 60:02}"}))
            expected[(second // 10, n % 7)] += 1
        broker.fill(topic, values, partition)
    columns = "k INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND"
    query = ("SELECT window_start, k, COUNT(*) FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND)) "
             "GROUP BY window_start, window_end, k;")
    found = set()
    for words in ([], ["--processes", "2"]):
        for workers in (1, 2):
            result = script.run(table(broker, topic, columns) + query, *words, workers=workers)
            found.add(result.stdout)
    assert len(found) == 1
    counted = {(int(row[0][17:19]) // 10, int(row[1])): int(row[2]) for row in rows(result)}
    assert counted == dict(expected)


def lines_of(process: subprocess.Popen, count: int, seconds: float = 30) -> list[str]:
    """The first lines that a program prints."""
    import threading
    found: list[str] = []
    reader = threading.Thread(target=lambda: [found.append(process.stdout.readline()) for _ in range(count)],
                              daemon=True)
    reader.start()
    reader.join(seconds)
    return [line.strip() for line in found]


def test_an_empty_partition_keeps_nobody_waiting(broker, script, start):
    topic = broker.topic(next(NAMES), 3)
    broker.fill(topic, [json.dumps({"v": n}) for n in range(3)], partition=1)
    process = start(table(broker, topic, "v INT", bounded=False) + "SELECT v FROM t;")
    assert lines_of(process, 4) == ["v", "0", "1", "2"]


def test_a_partition_that_is_read_to_its_end_is_idle(broker, script, start):
    topic = broker.topic(next(NAMES), 2)
    broker.fill(topic, [message(n) for n in range(300)], partition=1)
    more = ", 'scan.watermark.idle-timeout' = '500 ms'"
    query = ("SELECT window_start, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '2' SECOND)) "
             "GROUP BY window_start, window_end;")
    process = start(table(broker, topic, COLUMNS, more, bounded=False) + query)
    assert lines_of(process, 2)[1] == "2024-01-01 00:00:00.000,100"


@pytest.mark.parametrize("processes", [1, 2])
def test_the_lag_of_partitions_is_told(broker, script, start, place, processes):
    """Of a job that stands still, as nobody reads its rows."""
    topic = broker.topic(next(NAMES), 3)
    long = "x" * 2_000
    broker.fill(topic, [json.dumps({"v": n, "s": long}) for n in range(8_000)], partition=1)
    broker.fill(topic, [json.dumps({"v": n, "s": long}) for n in range(3_000)], partition=2)
    job = start(table(broker, topic, "v INT, s STRING", bounded=False) + "SELECT v, s FROM t;",
                "--metrics", "127.0.0.1:0", "--set", "memory=32MB", "--processes", processes)
    url = address_of(job, "--metrics")

    def lags() -> tuple[float, ...]:
        """Of the partitions, and of the table."""
        found = re.findall(r'millstream_split_lag_records\{.*name="[^"]*-(\d)"\} (\d+)', get(url + "metrics"))
        of = {int(partition): float(lag) for partition, lag in found}
        whole = values(get(url + "metrics")).get("millstream_source_lag_records", -1)
        return (*(of.get(partition, -1) for partition in range(3)), whole)

    def still() -> tuple[float, ...]:
        """Once it stands still: all rows that have room have been read."""
        before, until = lags(), time.monotonic() + 40
        while time.monotonic() < until:
            time.sleep(1)
            now = lags()
            if now == before and -1 not in now and now[3] == sum(now[:3]):
                return now
            before = now
        raise AssertionError(before)

    first = still()
    assert first[0] == 0 and 0 < first[1] <= 8_000 and 0 < first[2] <= 3_000 and sum(first[1:3]) < 11_000, first
    # The queues of both partitions are full, so nothing is fetched, and the ends are asked for.
    broker.fill(topic, [json.dumps({"v": n, "s": long}) for n in range(4_000)], partition=2)
    wait_until("a greater lag", lambda: lags()[2] == first[2] + 4_000)
    told = ask(place, "why", job.pid).stdout
    behind = max((first[1], 1), (first[2] + 4_000, 2))
    assert f"a lag of {int(first[1] + first[2]) + 4_000:,} records, most of them in t ({topic}-{behind[1]}): " in told, told


@pytest.mark.parametrize("kind, counted", [("LogAppendTime", "2"), ("CreateTime", "1")])
def test_the_logs_clock_decides_what_is_too_far_ahead(broker, script, kind, counted):
    """A record was three seconds ahead when it was written, and is not when it is read."""
    topic, now = broker.topic(next(NAMES), message_timestamp_type=kind), int(time.time())
    text = [time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(at)) for at in (now - 2, now + 3)]
    broker.fill(topic, [json.dumps({"ts": text[at]}) for at in (0, 1, 0)])
    time.sleep(max(0, now + 3.2 - time.time()))
    query = ("SET 'watermark.max_ahead' = '1 s';\n" +
             table(broker, topic, "ts TIMESTAMP(3), WATERMARK FOR ts AS ts") +
             "SELECT window_start, COUNT(*) FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' SECOND)) "
             "GROUP BY window_start, window_end;")
    found = rows(script.run(query))
    assert found == [[f"{text[0]}.000", counted], [f"{text[1]}.000", "1"]]


# --- mistakes -------------------------------------------------------------------------------------

@pytest.mark.parametrize("options, said", [
    ({"topic": "no-such-topic"}, "there is no topic 'no-such-topic'"),
    ({"properties.bootstrap.servers": "127.0.0.1:1"}, "127.0.0.1:1"),
    ({"properties.bootstrap.servers": "nowhere"}, "host:port"),
    ({"format": "jsn"}, "did you mean 'json'?"),
    ({"format": "protobuf"}, "'protobuf'"),
    ({"scan.startup.mode": "earliest"}, "did you mean 'earliest-offset'?"),
    ({"properties.security.protocol": "SASL_PLAINTEXT"}, "name and a password"),
    ({"properties.grup.id": "x"}, "properties.group.id"),
    ({"scan.startup.mode": None}, "earliest-offset"),
    ({"topic": None}, "topic"),
])
def test_mistakes_are_named_quickly(broker, topic, script, options, said):
    usual = {"connector": "kafka", "topic": topic, "properties.bootstrap.servers": broker.servers, "format": "json",
             "scan.startup.mode": "earliest-offset", "scan.bounded.mode": "latest-offset"}
    listed = ", ".join(f"'{key}' = '{value}'" for key, value in (usual | options).items() if value is not None)
    began = time.monotonic()
    result = harness.run("run", script.write(f"CREATE TABLE t (v INT) WITH ({listed}); SELECT * FROM t;"))
    assert result.code != 0 and said in result.stderr, result.stderr
    assert time.monotonic() - began < 20


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_names_and_passwords(broker, topic, script, mechanism, monkeypatch):
    broker.fill(topic, ['{"v": 1}'])

    def options(password: str) -> str:
        return f"""CREATE TABLE t (v INT) WITH ('connector' = 'kafka', 'topic' = '{topic}', 'format' = 'json',
            'properties.bootstrap.servers' = '127.0.0.1:{broker.secured}', 'scan.startup.mode' = 'earliest-offset',
            'scan.bounded.mode' = 'latest-offset', 'properties.security.protocol' = 'SASL_PLAINTEXT',
            'properties.sasl.mechanism' = '{mechanism}', 'properties.sasl.jaas.config' =
            'org.apache.kafka.common.security.scram.ScramLoginModule required username="me" password="{password}";');
            SELECT * FROM t;"""

    assert rows(script.run(options("my-secret"))) == [["1"]]
    monkeypatch.setenv("KAFKA_PASSWORD", "wrong-secret")
    for wrong in ("wrong-secret", "${env:KAFKA_PASSWORD}"):
        result = harness.run("run", script.write(options(wrong)))
        assert result.code != 0 and "user 'me' is refused" in result.stderr, result.stderr
        assert "wrong-secret" not in result.stderr + result.stdout.decode()


def test_offsets_below_the_log_are_told(broker, topic, script):
    from confluent_kafka import TopicPartition
    broker.fill(topic, ['{"v": 1}'] * 10)
    broker.admin().delete_records([TopicPartition(topic, 0, 5)])[TopicPartition(topic, 0, 5)].result(30)
    more = ", 'scan.startup.specific-offsets' = 'partition:0,offset:2'"
    text = table(broker, topic, "v INT", more, start="specific-offsets") + "SELECT * FROM t;"
    result = harness.run("run", script.write(text))
    assert result.code != 0 and "offset 2" in result.stderr and "offset 5" in result.stderr, result.stderr
    assert "earliest-offset" in result.stderr


# --- writing --------------------------------------------------------------------------------------

def test_rows_are_written(broker, topic, script):
    text = table(broker, topic, "k STRING, n INT, d DECIMAL(5, 2)", name="o", bounded=False, start="",
                 more=", 'key.format' = 'raw', 'key.fields' = 'k'")
    script.run(text + "INSERT INTO o VALUES ('a', 1, 1.5), ('b', NULL, 2), ('a', 3, NULL);")
    messages = broker.read(topic)[0]
    assert sorted(message.value().decode() for message in messages) == [
        '{"k":"a","n":1,"d":1.50}', '{"k":"a","n":3,"d":null}', '{"k":"b","n":null,"d":2.00}']
    assert Counter(message.key() for message in messages) == {b"a": 2, b"b": 1}


def test_the_default_partitioner_is_javas(broker, script):
    topic = broker.topic(next(NAMES), 5)
    keys = [f"key-{n}" for n in range(50)]
    java = broker.topic(next(NAMES), 5)
    producer = broker.producer(partitioner="murmur2")
    for key in keys:
        producer.produce(java, "x", key=key)
    producer.flush(30)
    text = table(broker, topic, "k STRING", name="o", bounded=False, start="",
                 more=", 'key.format' = 'raw', 'key.fields' = 'k', 'properties.compression.type' = 'lz4'")
    script.run(text + "INSERT INTO o VALUES " + ", ".join(f"('{key}')" for key in keys) + ";")

    def by_partition(of: str) -> list[set]:
        return [{message.key() for message in messages} for messages in broker.read(of, 5)]

    assert by_partition(topic) == by_partition(java)


def test_exactly_once_needs_checkpoints(broker, topic, script):
    more = ", 'sink.delivery-guarantee' = 'exactly-once', 'sink.transactional-id-prefix' = 'p'"
    text = table(broker, topic, "n INT", more, name="o", bounded=False, start="")
    result = harness.run("run", script.write(text + "INSERT INTO o VALUES (1);"))
    assert result.code != 0 and "--checkpoint" in result.stderr, result.stderr


def test_a_time_out_above_the_brokers_is_refused(broker, topic, script, tmp_path):
    more = ", 'sink.delivery-guarantee' = 'exactly-once', 'sink.transactional-id-prefix' = 'q', " \
           "'properties.transaction.timeout.ms' = '3600000'"
    text = table(broker, topic, "n INT", more, name="o", bounded=False, start="")
    result = harness.run("run", script.write(text + "INSERT INTO o VALUES (1);"), "--checkpoint", tmp_path / "state")
    assert result.code != 0 and "3600000" in result.stderr and "900000" in result.stderr, result.stderr


# --- jobs that go on ------------------------------------------------------------------------------

COLUMNS = "k INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND"
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


def message(n: int) -> str:
    second = n // 50
    return json.dumps({"k": n % 5, "ts": f"2024-01-01 {second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"})


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

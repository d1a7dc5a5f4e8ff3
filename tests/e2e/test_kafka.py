"""Kafka as source and sink, over a real broker."""

import json
import re
import socket
import subprocess
import time
from collections import Counter

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
COLUMNS = "k INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND"


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


def message(n: int) -> str:
    second = n // 50
    return json.dumps({"k": n % 5, "ts": f"2024-01-01 {second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"})


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
               "headers MAP<STRING, BYTES> METADATA, "
               "many ARRAY<ROW<key STRING, `value` BYTES>> METADATA FROM 'header-list' VIRTUAL")
    result = script.run(table(broker, topic, columns) +
                        "SELECT v, p, `offset`, ts, kind, topic, epoch, CARDINALITY(headers), CARDINALITY(many), "
                        "many[1].key, CAST(many[1].`value` AS STRING), CAST(many[2].`value` AS STRING) FROM t;")
    assert [row[:3] for row in rows(result)] == [["1", "0", "0"], ["2", "0", "1"]]
    assert rows(result)[0][3:8] == ["2023-11-14 22:13:20.123", "CreateTime", topic, "0", "1"], result.stdout
    assert rows(result)[0][8:] == ["2", "h", "x", "y"], result.stdout
    assert rows(result)[1][7:] == ["0", "0", "", "", ""], result.stdout


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
    until = ", 'scan.bounded.mode' = 'group-offsets', 'properties.group.id' = 'of-others'"
    without = harness.run("run", script.write(
        table(broker, topic, "v INT", until, bounded=False) + "SELECT v FROM t;"))
    assert without.code != 0 and "'of-others' has no offset" in without.stderr, without.stderr
    broker.commit("of-others", topic, 2, partition=0)
    assert read("earliest-offset", until, bounded=False) == [0, 1, *range(10, 16)]


def test_several_topics_are_one_table(broker, script):
    topics = [broker.topic(next(NAMES), 1 + number % 2) for number in range(3)]
    for number, topic in enumerate(topics):
        broker.fill(topic, [json.dumps({"v": 10 * number + n}) for n in range(10)], partition=number % 2)

    def read(option: str, value: str) -> list[int]:
        text = table(broker, "of-all", "v INT").replace("'topic' = 'of-all'", f"'{option}' = '{value}'")
        return sorted(int(row[0]) for row in rows(script.run(text + "SELECT v FROM t;")))

    assert read("topic", f"{topics[2]};{topics[0]}") == [*range(10), *range(20, 30)]
    assert read("topic-pattern", f"{topics[0].replace('t', '.')}|{topics[1]}|{topics[2]}") == list(range(30))
    # Not Kafka's own topics, which are no JSON.
    broker.commit("anybody", topics[0], 1)
    assert read("topic-pattern", f"{topics[1]}|__.*") == list(range(10, 20))


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

# It takes connections, and says nothing.
SILENT = socket.create_server(("127.0.0.1", 0))


@pytest.mark.parametrize("options, said", [
    ({"topic": "no-such-topic"}, "there is no topic 'no-such-topic'"),
    ({"properties.bootstrap.servers": "127.0.0.1:1"}, "127.0.0.1:1"),
    ({"properties.bootstrap.servers": "nowhere"}, "host:port"),
    ({"properties.bootstrap.servers": f"127.0.0.1:{SILENT.getsockname()[1]}"}, "no answer in time"),
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
    broker.commit("behind", topic, 3)
    behind = table(broker, topic, "v INT", ", 'properties.group.id' = 'behind'", start="group-offsets")
    result = harness.run("run", script.write(behind + "SELECT * FROM t;"))
    assert result.code != 0 and "offset 3" in result.stderr and "offset 5" in result.stderr, result.stderr


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

"""Avro and Debezium's envelope over a real broker. A library that is not ours makes the messages, and reads ours."""

import datetime
import decimal
import io
import json
import os
import signal
import subprocess
import time

import broker as kafka
import fastavro
import harness
import pytest
from conftest import cannot_run
from jobs import PATIENCE_SECONDS
from registry import Apicurio, Registry

UTC = datetime.timezone.utc


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    why = kafka.missing()
    if why:
        cannot_run(why)
    broker = kafka.Broker(tmp_path_factory.mktemp("broker"))
    broker.start()
    yield broker
    broker.end()


NAMES = iter(f"avro-{number}" for number in range(1_000))


@pytest.fixture
def topic(broker) -> str:
    return broker.topic(next(NAMES))


@pytest.fixture
def registry():
    registry = Registry()
    yield registry
    registry.stop()


def table(broker, topic: str, columns: str, options: dict[str, str], name: str = "t", form: str = "avro-confluent",
          bounded: bool = True) -> str:
    every = {"connector": "kafka", "topic": topic, "properties.bootstrap.servers": broker.servers,
             "scan.startup.mode": "earliest-offset"}
    if form:
        every["format"] = form
    if bounded:
        every["scan.bounded.mode"] = "latest-offset"
    listed = ", ".join(f"'{key}' = '{value}'" for key, value in (every | options).items())
    return f"CREATE TABLE {name} ({columns}) WITH ({listed});\n"


def url(registry, form: str = "avro-confluent") -> dict[str, str]:
    return {f"{form}.url": registry.url}


def rows(result) -> list[list[str]]:
    return [line.split(",") for line in result.stdout.decode().splitlines()[1:]]


def body(schema: dict, value: dict) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def message(registry, topic: str, schema: dict, value: dict, part: str = "value") -> bytes:
    number = registry.register(f"{topic}-{part}", json.dumps(schema))
    return b"\0" + number.to_bytes(4, "big") + body(schema, value)


def read(registry, data: bytes) -> dict:
    """A message of ours, as the other library reads it."""
    assert data[0] == 0
    schema = json.loads(registry.schema(int.from_bytes(data[1:5], "big")))
    stream = io.BytesIO(data[5:])
    value = fastavro.schemaless_reader(stream, fastavro.parse_schema(schema), None)
    assert stream.read() == b""
    return value


def record(name: str, *fields: dict) -> dict:
    return {"type": "record", "name": name, "namespace": "shop", "fields": list(fields)}


def field(name: str, of: object, **more: object) -> dict:
    return {"name": name, "type": of} | more


# --- reading --------------------------------------------------------------------------------------

@pytest.mark.parametrize("workers", [1, 2])
def test_schemas_that_change(broker, topic, registry, script, workers):
    """Messages of four schemas, mixed: promoted, in another order, with null, with more and with fewer fields."""
    schemas = [
        record("A", field("n", "int"), field("s", "string")),
        record("B", field("s", ["null", "string"]), field("more", {"type": "array", "items": "double"}),
               field("n", "long")),
        record("C", field("n", ["null", "long"], default=None)),
        record("D", field("e", ["int", "string", "null"]), field("n", "int"),
               field("s", {"type": "enum", "name": "E", "symbols": ["x", "y"]})),
    ]
    values, expected = [], []
    for n in range(2_000):
        of = n % 4
        value = [{"n": n, "s": f"s{n}"}, {"s": None if n % 8 == 1 else f"b{n}", "more": [0.5] * (n % 3), "n": n << 20},
                 {"n": None if n % 8 == 2 else n}, {"e": "z", "n": -n, "s": "xy"[n % 2]}][of]
        values.append(message(registry, topic, schemas[of], value))
        expected.append([str(value["n"]) if value["n"] is not None else "", value.get("s") or ""])
    broker.fill(topic, values)
    result = script.run(table(broker, topic, "n BIGINT, s STRING", url(registry)) + "SELECT n, s FROM t;",
                        workers=workers)
    assert rows(result) == expected
    assert len([line for line in registry.requests if "/ids/" in line]) == 4, registry.requests


def test_values_of_every_type(broker, topic, registry, script):
    inner = record("Inner", field("x", "int"), field("y", ["null", "string"]))
    schema = record(
        "All", field("b", "boolean"), field("f", "float"), field("d", "double"), field("raw", "bytes"),
        field("price", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}),
        field("day", {"type": "int", "logicalType": "date"}),
        field("ms", {"type": "long", "logicalType": "timestamp-millis"}),
        field("us", {"type": "long", "logicalType": "local-timestamp-micros"}),
        field("part", ["null", inner]), field("again", "Inner"), field("items", {"type": "array", "items": ["null", "long"]}),
        field("pairs", {"type": "map", "values": "int"}), field("id", {"type": "string", "logicalType": "uuid"}))
    at = datetime.datetime(2024, 2, 29, 12, 30, 15, 250_000, tzinfo=UTC)
    value = {"b": True, "f": 0.5, "d": -1.25, "raw": b"\x00\xff", "price": decimal.Decimal("-1234.50"),
             "day": datetime.date(1969, 7, 20), "ms": at, "us": datetime.datetime(2024, 2, 29, 12, 30, 15, 250_001),
             "part": {"x": 1, "y": "é"}, "again": {"x": 2, "y": None}, "items": [1, None, 3], "pairs": {"k": 7},
             "id": "f81d4fae-7dec-11d0-a765-00a0c91e6bf6"}
    broker.fill(topic, [message(registry, topic, schema, value)])
    columns = ("b BOOLEAN, f DOUBLE, d DOUBLE, raw BYTES, price DECIMAL(12, 3), `day` DATE, ms TIMESTAMP(3), "
               "us TIMESTAMP(6), part ROW<y STRING, x BIGINT, z INT>, again ROW<x INT>, items ARRAY<BIGINT>, "
               "pairs MAP<STRING, INT>, id STRING")
    result = script.run(table(broker, topic, columns, url(registry)) +
                        "SELECT b, f, d, ENCODE(raw, 'hex'), price, `day`, ms, us, part.y, part.x, part.z, again.x, "
                        "CARDINALITY(items), items[3], pairs['k'], id FROM t;")
    assert rows(result) == [["true", "0.5", "-1.25", "00ff", "-1234.500", "1969-07-20", "2024-02-29 12:30:15.250",
                             "2024-02-29 12:30:15.250001", "é", "1", "", "2", "3", "3", "7", value["id"]]]


def test_keys_have_a_registry_too(broker, topic, registry, script):
    producer = broker.producer()
    key, value = record("Key", field("id", "long")), record("Value", field("s", "string"))
    for n in range(3):
        producer.produce(topic, message(registry, topic, value, {"s": f"v{n}"}),
                         key=message(registry, topic, key, {"id": n}, "key"))
    producer.flush(30)
    options = {"key.format": "avro-confluent", "key.fields": "k_id", "key.fields-prefix": "k_",
               "value.format": "avro-confluent", "value.fields-include": "EXCEPT_KEY"}
    options |= {f"{part}.avro-confluent.url": registry.url for part in ("key", "value")}
    result = script.run(table(broker, topic, "k_id BIGINT, s STRING", options, form="") + "SELECT * FROM t;")
    assert rows(result) == [["0", "v0"], ["1", "v1"], ["2", "v2"]]


def test_messages_without_a_registry(broker, topic, script):
    """The schema is that of the table, as Flink derives it."""
    nullable = [field(name, ["null", of], default=None) for name, of in
                (("n", "long"), ("s", "string"), ("ts", {"type": "long", "logicalType": "timestamp-millis"}))]
    schema = record("Any", *nullable, field("must", "int"))
    at = datetime.datetime(2024, 1, 1, tzinfo=UTC)
    broker.fill(topic, [body(schema, {"n": 5, "s": "five", "ts": at, "must": 1}),
                        body(schema, {"n": None, "s": None, "ts": None, "must": 2})])
    columns = "n BIGINT, s STRING, ts TIMESTAMP(3), must INT NOT NULL"
    result = script.run(table(broker, topic, columns, {}, form="avro") + "SELECT * FROM t;")
    assert rows(result) == [["5", "five", "2024-01-01 00:00:00.000", "1"], ["", "", "", "2"]]
    broker.fill(topic, [b"oops"])
    result = harness.run("run", script.write(table(broker, topic, columns, {}, form="avro") + "SELECT * FROM t;"))
    assert result.code != 0 and f"topic '{topic}', partition 0, offset 2" in result.stderr, result.stderr


# --- writing --------------------------------------------------------------------------------------

def test_rows_are_read_by_the_other_library(broker, registry, script):
    sink = check_written(broker, registry, script)
    assert set(registry.subjects) == {f"{sink}-key", f"{sink}-value"}


def check_written(broker, registry, script) -> str:
    """Writes rows, reads them with the other library, and with ours. Returns the topic."""
    source, sink = broker.topic(next(NAMES)), broker.topic(next(NAMES))
    broker.fill(source, [json.dumps({"n": n, "s": f"s{n}" if n % 2 else None, "price": f"{n}.25",
                                     "ts": f"2024-01-01 00:00:0{n}.500", "d": "2024-02-29", "items": [n, None],
                                     "part": {"x": n}, "pairs": {"k": n}}) for n in range(3)])
    columns = ("n INT NOT NULL, s STRING, price DECIMAL(8, 2), ts TIMESTAMP(3), d DATE, items ARRAY<INT>, "
               "part ROW<x INT>, pairs MAP<STRING, INT>")
    options = {"key.format": "avro-confluent", "key.fields": "n", "value.format": "avro-confluent"}
    options |= {f"{part}.avro-confluent.url": registry.url for part in ("key", "value")}
    text = table(broker, source, columns, {}, form="json") + table(broker, sink, columns, options, "out", form="")
    script.run(text + "INSERT INTO out SELECT * FROM t;")
    found = broker.read(sink)[0]
    assert [read(registry, one.key()) for one in found] == [{"n": n} for n in range(3)]
    assert [read(registry, one.value()) for one in found] == [
        {"n": n, "s": f"s{n}" if n % 2 else None, "price": decimal.Decimal(f"{n}.25"),
         "ts": datetime.datetime(2024, 1, 1, 0, 0, n, 500_000, tzinfo=UTC), "d": datetime.date(2024, 2, 29),
         "items": [n, None], "part": {"x": n}, "pairs": {"k": n}} for n in range(3)]
    # What we wrote, we read.
    result = script.run(table(broker, sink, columns, options, form="") + "SELECT n, s, price, ts, part.x FROM t;")
    assert rows(result)[2] == ["2", "", "2.25", "2024-01-01 00:00:02.500", "2"]
    return sink


def test_a_schema_and_a_subject_of_ones_own(broker, topic, registry, script):
    schema = record("Mine", field("b", "string"), field("a", ["long", "null"]))
    options = url(registry) | {"avro-confluent.schema": json.dumps(schema), "avro-confluent.subject": "mine"}
    options["avro-confluent.auto.register.schemas"] = "false"
    text = table(broker, topic, "a INT, b STRING", options) + "INSERT INTO t VALUES (1, 'x');"
    result = harness.run("run", script.write(text))
    assert result.code != 0 and "the subject 'mine' does not take the schema" in result.stderr, result.stderr
    registry.register("mine", json.dumps(schema))
    script.run(text)
    assert [read(registry, one.value()) for one in broker.read(topic)[0]] == [{"a": 1, "b": "x"}]


@pytest.mark.skipif("MILLSTREAM_APICURIO" not in os.environ, reason="make test-long starts Apicurio")
def test_a_registry_that_is_not_ours(broker, script, tmp_path):
    registry = Apicurio(tmp_path)
    try:
        check_written(broker, registry, script)
        secured = table(broker, broker.topic(next(NAMES)), "n INT", {"avro-confluent.url": registry.url + "/missing"})
        error, _ = failing(script, secured + "INSERT INTO t VALUES (1);")
        assert f"registry {registry.url}/missing: " in error, error
        assert registry.process.poll() is None
    finally:
        registry.end()


# --- what goes wrong ------------------------------------------------------------------------------

def failing(script, text: str) -> tuple[str, float]:
    began = time.monotonic()
    result = harness.run("run", script.write(text))
    assert result.code != 0
    return result.stderr, time.monotonic() - began


def test_a_registry_that_does_not_answer(broker, topic, registry, script):
    query = "SELECT * FROM t;"
    text = table(broker, topic, "n INT", url(registry)) + query
    registry.stop()
    error, _ = failing(script, text)
    assert f"registry {registry.url}: no answer" in error and "check 'avro-confluent.url'" in error, error
    registry.start()
    registry.delay = 60
    error, _ = failing(script, text)
    assert f"registry {registry.url}: no answer in time" in error, error
    registry.delay, registry.fault = 0, 503
    error, _ = failing(script, text)
    assert "it answers 503 Service Unavailable (switched)" in error, error


def test_passwords(broker, topic, script, registry):
    secured, tokens = Registry(password="me:se:cret"), Registry(token="abc.def")
    value = message(secured, topic, record("R", field("n", "int")), {"n": 1})
    tokens.register("any", secured.schemas[0])
    broker.fill(topic, [value])
    query = "SELECT * FROM t;"
    basic = {"avro-confluent.basic-auth.credentials-source": "USER_INFO",
             "avro-confluent.basic-auth.user-info": "me:se:cret"}
    assert rows(script.run(table(broker, topic, "n INT", url(secured) | basic) + query)) == [["1"]]
    bearer = {"avro-confluent.bearer-auth.credentials-source": "STATIC_TOKEN",
              "avro-confluent.bearer-auth.token": "abc.def"}
    assert rows(script.run(table(broker, topic, "n INT", url(tokens) | bearer) + query)) == [["1"]]
    wrong = {"avro-confluent.basic-auth.user-info": "me:wrong-password"}
    for options in (url(secured), url(secured) | wrong, url(tokens) | wrong):
        error, _ = failing(script, table(broker, topic, "n INT", options) + query)
        assert "it refuses us: 401 Unauthorized" in error and "basic-auth.user-info" in error, error
        assert "wrong-password" not in error
    secured.stop(), tokens.stop()


def test_malformed_messages(broker, topic, registry, script):
    good = message(registry, topic, record("R", field("n", "int")), {"n": 1})
    bad = {1: (b'{"n": 1}', "expected the byte 0"), 2: (good[:4] + b"\x01\x02", "is unknown to the registry"),
           3: (good[:5], "does not fit its schema"), 4: (b"", "found no byte")}
    broker.fill(topic, [good, *(text for text, _ in bad.values()), good])
    for offset, (_, part) in bad.items():
        start = {"scan.startup.mode": "specific-offsets",
                 "scan.startup.specific-offsets": f"partition:0,offset:{offset}"}
        error, _ = failing(script, table(broker, topic, "n INT", url(registry) | start) + "SELECT * FROM t;")
        assert f"topic '{topic}', partition 0, offset {offset}: " in error and part in error, error
    options = url(registry) | {"on_error": "skip"}
    result = script.run(table(broker, topic, "n INT", options) + "SELECT * FROM t;")
    assert rows(result) == [["1"], ["1"]]
    bad_rows = ("CREATE TABLE bad (raw BYTES, place STRING, reason STRING) "
                "WITH ('connector' = 'file', 'path' = 'bad', 'format' = 'ndjson');\n")
    kept = bad_rows + table(broker, topic, "n INT", url(registry) | {"on_error": "table:bad"}) + "SELECT * FROM t;"
    assert rows(script.run(kept)) == [["1"], ["1"]]
    lines = [line for path in (script.folder / "bad").glob("part-*") for line in path.read_text().splitlines()]
    found = {row["place"]: row["reason"] for row in map(json.loads, lines)}
    assert len(found) == 4 and all(any(f"offset {offset}" in place and part in reason for place, reason in found.items())
                                   for offset, (_, part) in bad.items()), found


def test_columns_that_a_schema_does_not_have(broker, topic, registry, script):
    value = message(registry, topic, record("R", field("n", "double"), field("s", "string")), {"n": 1.5, "s": "x"})
    broker.fill(topic, [value])
    for columns, part in (("n INT", "the field 'n' is double, which a column of type INT does not take"),
                          ("s STRING, m INT NOT NULL", "no field 'm', and the column is NOT NULL"),
                          ("m INT", "it has none of the table's columns")):
        error, _ = failing(script, table(broker, topic, columns, url(registry)) + "SELECT * FROM t;")
        assert part in error and "schema 300" in error and "offset 0" in error, error


def test_a_registry_that_is_away_for_a_while(broker, topic, registry, script):
    """A new schema comes while the registry is away: the job waits for it, and loses nothing."""
    old, new = record("R", field("n", "int")), record("R", field("n", "long"), field("m", "int"))
    broker.fill(topic, [message(registry, topic, old, {"n": 1})])
    text = table(broker, topic, "n BIGINT, m INT", url(registry), bounded=False) + "SELECT n, m FROM t LIMIT 3;"
    job = subprocess.Popen([harness.program(), "run", str(script.write(text)), "--format", "csv"],
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        until = time.monotonic() + PATIENCE_SECONDS
        while not any("/ids/300" in line for line in registry.requests):
            assert time.monotonic() < until and job.poll() is None
            time.sleep(0.05)
        data = message(registry, topic, new, {"n": 2, "m": 3})
        asked = len(registry.requests)
        registry.fault = 503
        broker.fill(topic, [data, message(registry, topic, old, {"n": 4})])
        while len(registry.requests) < asked + 2:
            assert time.monotonic() < until and job.poll() is None
            time.sleep(0.05)
        registry.fault = 0
        out, error = job.communicate(timeout=PATIENCE_SECONDS)
    finally:
        job.send_signal(signal.SIGKILL)
        job.wait()
    assert out.splitlines()[1:] == ["1,", "2,3", "4,"], error
    assert "it answers 503" in error and "trying again" in error, error


def test_exactly_once_in_avro(broker, registry, script, tmp_path):
    """Started again from its checkpoint, a job writes no row twice."""
    source, sink = broker.topic(next(NAMES)), broker.topic(next(NAMES))
    schema = record("R", field("n", "int"), field("ts", {"type": "long", "logicalType": "timestamp-millis"}))
    at = [datetime.datetime.fromtimestamp(n / 10, UTC) for n in range(100)]
    broker.fill(source, [message(registry, source, schema, {"n": n, "ts": ts}) for n, ts in enumerate(at)])
    out = url(registry) | {"sink.delivery-guarantee": "exactly-once", "sink.transactional-id-prefix": sink}
    text = table(broker, source, "n INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts", url(registry)) + table(
        broker, sink, "w TIMESTAMP(3), s BIGINT", out, "out") + (
        "INSERT INTO out SELECT window_start, SUM(n) FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' SECOND)) "
        "GROUP BY window_start, window_end;")
    result = harness.run("run", script.write(text), "--checkpoint", str(tmp_path / "state"))
    assert result.code == 0, result.stderr
    harness.run("run", script.write(text), "--checkpoint", str(tmp_path / "state"))
    found = [read(registry, one.value())["s"] for one in broker.read(sink)[0]]
    assert found == [sum(range(10 * n, 10 * n + 10)) for n in range(10)]


# --- Debezium -------------------------------------------------------------------------------------

CHANGES = [("c", None, {"id": 1, "name": "scooter"}), ("r", None, {"id": 2, "name": "car"}),
           ("u", {"id": 1, "name": "scooter"}, {"id": 1, "name": "bike"}), ("d", {"id": 2, "name": "car"}, None)]
ENVELOPE = "op STRING, before ROW<id BIGINT, name STRING>, after ROW<id BIGINT, name STRING>, ts_ms BIGINT"
QUERY = "SELECT op, after.id, after.name, before.name, ts_ms FROM t;"
EXPECTED = [["c", "1", "scooter", "", "5"], ["r", "2", "car", "", "5"], ["u", "1", "bike", "scooter", "5"],
            ["d", "", "", "car", "5"]]


@pytest.mark.parametrize("with_schema", [False, True])
def test_changes_in_json(broker, topic, script, with_schema):
    changes = [{"op": op, "before": before, "after": after, "ts_ms": 5, "source": {"db": "shop"}}
               for op, before, after in CHANGES]
    producer = broker.producer()
    for change in changes:
        producer.produce(topic, json.dumps({"schema": {}, "payload": change} if with_schema else change), key="k")
    # What follows a deletion.
    producer.produce(topic, None, key="k")
    producer.flush(30)
    options = {"debezium-json.schema-include": "true"} if with_schema else {}
    text = table(broker, topic, ENVELOPE, options, form="debezium-json")
    assert rows(script.run(text + QUERY)) == EXPECTED
    inserted = script.run(text + "SELECT after.name FROM t WHERE op IN ('c', 'r');")
    assert rows(inserted) == [["scooter"], ["car"]]
    assert rows(script.run(text + "SELECT COUNT(*) FROM t;")) == [["4"]]
    kept = table(broker, topic, ENVELOPE, options | {"value.tombstones": "null"}, form="debezium-json")
    assert rows(script.run(kept + QUERY)) == [*EXPECTED, ["", "", "", "", ""]]
    broker.fill(topic, ["{}" if with_schema else "[]"])
    error, _ = failing(script, text + QUERY)
    assert f"topic '{topic}', partition 0, offset 5: " in error, error
    assert rows(script.run(table(broker, topic, ENVELOPE, options | {"debezium-json.ignore-parse-errors": "true"},
                                 form="debezium-json") + QUERY)) == EXPECTED


def test_changes_in_avro(broker, topic, registry, script):
    value = record("Value", field("id", "long"), field("name", ["null", "string"]))
    schema = {"type": "record", "name": "Envelope", "namespace": "server.shop.items", "fields": [
        field("before", ["null", value], default=None), field("after", ["null", "shop.Value"], default=None),
        field("source", record("Source", field("db", "string"))), field("op", "string"),
        field("ts_ms", ["null", "long"], default=None)]}
    producer = broker.producer()
    for op, before, after in CHANGES:
        change = {"op": op, "before": before, "after": after, "ts_ms": 5, "source": {"db": "shop"}}
        producer.produce(topic, message(registry, topic, schema, change))
    producer.produce(topic, None, key="k")
    producer.flush(30)
    form = "debezium-avro-confluent"
    text = table(broker, topic, ENVELOPE + ", source ROW<db STRING>", url(registry, form), form=form)
    assert rows(script.run(text + QUERY)) == EXPECTED
    only = script.run(text + "SELECT source.db, after.name FROM t WHERE op = 'u';")
    assert rows(only) == [["shop", "bike"]]


def test_a_table_of_changes_has_the_columns_of_the_envelope(broker, topic, script):
    error, _ = failing(script, table(broker, topic, "id BIGINT, name STRING", {}, form="debezium-json") +
                       "SELECT * FROM t;")
    assert "no column 'id'" in error and "after ROW" in error, error
    error, _ = failing(script, table(broker, topic, "op STRING, ts_ms BIGINT", {}, form="debezium-json") +
                       "INSERT INTO t VALUES ('c', 1);")
    assert "the format 'debezium-json' is read only" in error, error


def test_options(broker, topic, registry, script):
    for options, part in (
            ({}, "needs a registry of schemas"),
            ({"avro-confluent.url": "localhost"}, "expected the URL"),
            ({"avro-confluent.url": "http://me:secret@localhost:1"}, "basic-auth.user-info"),
            (url(registry) | {"avro-confluent.properties.x": "y"}, "do not run here"),
            (url(registry) | {"avro-confluent.basic-auth.credentials-source": "SASL_INHERIT"}, "expected 'USER_INFO'"),
            (url(registry) | {"avro-confluent.schema": "[1]"}, "no schema of Avro"),
            (url(registry) | {"avro-confluent.urls": "x"}, "avro-confluent.urls"),
            ({"avro-confluent.url": "https://localhost:1", "avro-confluent.ssl.truststore.location": "a.jks"},
             "expected certificates in PEM")):
        error, _ = failing(script, table(broker, topic, "n INT", options) + "SELECT * FROM t;")
        assert part in error, error
    error, _ = failing(script, table(broker, topic, "n INT", {"avro.encoding": "json"}, form="avro") + "SELECT * FROM t;")
    assert "expected 'binary'" in error, error

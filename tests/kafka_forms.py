"""Formats of messages for the crashes over Kafka: JSON, Avro without a registry, and Avro with one. A library that is not ours
writes and reads Avro."""

import datetime
import io
import json
import random

import fastavro

from registry import Registry

NAMES = ["json", "avro", "avro-confluent"]
DAY = datetime.datetime(2024, 1, 1, tzinfo=datetime.timezone.utc)
TYPES = {"BIGINT": "long", "TIMESTAMP(3)": {"type": "long", "logicalType": "timestamp-millis"}}


def stamp(millis: int) -> str:
    seconds = millis // 1000
    return f"2024-01-01 {seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{millis % 1000:03}"


def millis(text: str) -> int:
    clock = text.replace("T", " ").split(" ")[1]
    hours, minutes, seconds = clock.split(":")
    return (int(hours) * 60 + int(minutes)) * 60_000 + round(float(seconds) * 1000)


def record(fields: list[dict]) -> dict:
    return {"type": "record", "name": "record", "namespace": "org.apache.flink.avro.generated", "fields": fields}


def schema_of(columns: str) -> dict:
    """The schema of a table of columns that may be NULL."""
    named = [column.split(" ", 1) for column in columns.split(", ")]
    return record([{"name": name, "type": ["null", TYPES[of]], "default": None} for name, of in named])


# Schemas of other writers of the input: none of the columns can be NULL, and one has another type, order and neighbour.
OTHERS = [record([{"name": name, "type": TYPES[of]} for name, of in [("k", "BIGINT"), ("v", "BIGINT"), ("ts", "TIMESTAMP(3)")]]),
          record([{"name": "ts", "type": TYPES["TIMESTAMP(3)"]}, {"name": "more", "type": {"type": "array", "items": "string"}},
                  {"name": "v", "type": "long"}, {"name": "k", "type": "int"}])]


class Form:
    """A format of messages of one topic."""

    def __init__(self, name: str, registry: Registry, topic: str, columns: str):
        self.name, self.registry, self.subject = name, registry, f"{topic}-value"
        self.table = fastavro.parse_schema(schema_of(columns))
        self.others = [fastavro.parse_schema(schema) for schema in OTHERS]

    def options(self, prefix: str = "") -> str:
        """Of the table that reads or writes the messages."""
        url = f", '{prefix}avro-confluent.url' = '{self.registry.url}'" if self.name == "avro-confluent" else ""
        return f"'{prefix}format' = '{self.name}'{url}"

    def message(self, k: int, v: int, ts: int, rng: random.Random) -> bytes:
        if self.name == "json":
            return json.dumps({"k": k, "v": v, "ts": stamp(ts)}).encode()
        # Without a registry all messages have the schema of the table.
        schema = self.table if self.name == "avro" else rng.choice([self.table, *self.others])
        out = io.BytesIO()
        if self.name == "avro-confluent":
            plain = {key: value for key, value in schema.items() if not key.startswith("__")}
            out.write(b"\0" + self.registry.register(self.subject, json.dumps(plain)).to_bytes(4, "big"))
        value = {"k": k, "v": v, "ts": DAY + datetime.timedelta(milliseconds=ts), "more": ["x"] * (v % 3)}
        fastavro.schemaless_writer(out, schema, value)
        return out.getvalue()

    def row(self, message: bytes) -> tuple:
        """The values of a written row; a time as milliseconds of the day."""
        if self.name == "json":
            return row(message.decode())
        stream, schema = io.BytesIO(message), self.table
        if self.name == "avro-confluent":
            head = stream.read(5)
            assert head[0] == 0, head
            schema = fastavro.parse_schema(json.loads(self.registry.schema(int.from_bytes(head[1:], "big"))))
        value = fastavro.schemaless_reader(stream, schema, None)
        assert stream.read() == b""
        return tuple((one - DAY) // datetime.timedelta(milliseconds=1) if isinstance(one, datetime.datetime) else one
                     for one in value.values())


def row(text: str) -> tuple:
    """The values of a row as JSON."""
    return tuple(millis(value) if name == "s" else value for name, value in json.loads(text).items())

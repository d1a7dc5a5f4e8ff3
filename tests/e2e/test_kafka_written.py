"""What a sink of Kafka writes beside values: times, headers, and the key of the last row."""

import json
import time

import harness
import pytest
from test_kafka import NAMES, broker, table, topic  # noqa: F401, F811: fixtures among them

HEADERS = "v INT, at TIMESTAMP(3) METADATA FROM 'timestamp', headers MAP<STRING, BYTES> METADATA, " \
          "`offset` BIGINT METADATA VIRTUAL"


def upserts(broker, topic: str, columns: str, more: str = "") -> str:
    return f"CREATE TABLE o ({columns}) WITH ('connector' = 'upsert-kafka', 'topic' = '{topic}', " \
           f"'properties.bootstrap.servers' = '{broker.servers}', 'key.format' = 'json', 'value.format' = 'json'{more});\n"


# --- times and headers ----------------------------------------------------------------------------

def test_times_and_headers_are_written(broker, topic, script):
    into = table(broker, topic, HEADERS, name="o", bounded=False, start="")
    script.run(into + "INSERT INTO o VALUES "
               "(1, TIMESTAMP '2023-11-14 22:13:20.123', MAP['a', CAST('x' AS BYTES), 'b', CAST('' AS BYTES)]), "
               "(2, NULL, NULL);")
    before = time.time()
    found = {json.loads(message.value())["v"]: message for message in broker.read(topic)[0]}
    assert all(list(json.loads(message.value())) == ["v"] for message in found.values())
    assert found[1].timestamp() == (1, 1_700_000_000_123)
    assert sorted(found[1].headers()) == [("a", b"x"), ("b", b"")]
    assert found[2].headers() is None
    assert abs(found[2].timestamp()[1] / 1000 - before) < 600


def test_columns_that_no_insert_names_are_null(broker, topic, script):
    into = table(broker, topic, HEADERS, name="o", bounded=False, start="")
    script.run(into + "INSERT INTO o (at, v) VALUES (TIMESTAMP '1970-01-01 00:00:01', 7);")
    message, = broker.read(topic)[0]
    assert (message.value(), message.timestamp()[1], message.headers()) == (b'{"v":7}', 1_000, None)


def test_times_and_headers_go_from_topic_to_topic(broker, topic, script):
    other = broker.topic(next(NAMES))
    producer = broker.producer()
    for v in range(100):
        producer.produce(topic, json.dumps({"v": v}), headers=[("n", str(v).encode())], timestamp=1_000 * v + 1)
    producer.flush(30)
    script.run(table(broker, topic, HEADERS) + table(broker, other, HEADERS, name="o", bounded=False, start="") +
               "INSERT INTO o SELECT v, at, headers FROM t;")
    found = [(message.value(), message.timestamp()[1], message.headers()) for message in broker.read(other)[0]]
    assert found == [(f'{{"v":{v}}}'.encode(), 1_000 * v + 1, [("n", str(v).encode())]) for v in range(100)]


@pytest.mark.parametrize("columns, insert, said", [
    ("v INT, p INT METADATA FROM 'partition'", "VALUES (1, 2)", "nothing can be written to 'p'"),
    ("v INT, at TIMESTAMP(3) METADATA FROM 'timestamp' VIRTUAL", "VALUES (1, NULL)", "takes 1 column (v)"),
])
def test_what_is_only_read_is_refused(broker, topic, script, columns, insert, said):
    into = table(broker, topic, columns, name="o", bounded=False, start="")
    result = harness.run("run", script.write(into + f"INSERT INTO o {insert};"))
    assert result.code != 0 and said in result.stderr, result.stderr


# --- the last row of each key ---------------------------------------------------------------------

def test_rows_of_a_key_are_in_one_partition_in_order(broker, script):
    topic = broker.topic(next(NAMES), 3)
    script.data("x.csv", "".join(f"{n % 20},{n}\n" for n in range(2_000)))
    source = "CREATE TABLE t (k INT, n INT) WITH ('connector' = 'file', 'path' = 'x.csv', 'format' = 'csv');\n"
    script.run(source + upserts(broker, topic, "k INT, n INT, PRIMARY KEY (k) NOT ENFORCED") +
               "INSERT INTO o SELECT k, n FROM t;", workers=2)
    partitions = [[(json.loads(message.key()), json.loads(message.value())) for message in of]
                  for of in broker.read(topic, 3)]
    of_key: dict[int, list] = {}
    for number, messages in enumerate(partitions):
        for key, value in messages:
            assert key == {"k": value["k"]}
            of_key.setdefault(value["k"], []).append((number, value["n"]))
    for k in range(20):
        assert len({number for number, _ in of_key[k]}) == 1
        assert [n for _, n in of_key[k]] == list(range(k, 2_000, 20))


def test_the_value_of_an_upsert_may_leave_the_key_out(broker, topic, script):
    more = ", 'key.fields-prefix' = 'k_', 'value.fields-include' = 'EXCEPT_KEY'"
    script.run(upserts(broker, topic, "k_a INT, v INT, k_b STRING, PRIMARY KEY (k_a, k_b) NOT ENFORCED", more) +
               "INSERT INTO o VALUES (1, 2, 'x');")
    message, = broker.read(topic)[0]
    assert (message.key(), message.value()) == (b'{"a":1,"b":"x"}', b'{"v":2}')


@pytest.mark.parametrize("columns, more, query, said", [
    ("k INT, v INT", "", "INSERT INTO o VALUES (1, 2);", "PRIMARY KEY (column, …) NOT ENFORCED"),
    ("k INT, v INT, PRIMARY KEY (k) NOT ENFORCED", ", 'key.fields' = 'v'", "INSERT INTO o VALUES (1, 2);",
     "the key is the PRIMARY KEY"),
    ("k INT, v INT, PRIMARY KEY (k) NOT ENFORCED", "", "INSERT INTO o VALUES (1, 2), (NULL, 3);",
     "NULL in the PRIMARY KEY"),
    ("k INT, v INT, PRIMARY KEY (k) NOT ENFORCED", "", "SELECT * FROM o;", "'connector' = 'kafka'"),
])
def test_mistakes_with_upserts_are_named(broker, topic, script, columns, more, query, said):
    result = harness.run("run", script.write(upserts(broker, topic, columns, more) + query))
    assert result.code != 0 and said in result.stderr, result.stderr

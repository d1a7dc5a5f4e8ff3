"""The queries of NEXMark over a topic of four partitions give what DuckDB gives over the generator's events."""

import collections
import json
import re

import pytest

import broker as kafka
from conftest import cannot_run
from test_nexmark import EVENTS, EXAMPLES, EXPECTED, TABLES, events, run, shown, tables, write_side_input  # noqa: F401

PARTITIONS = 4


@pytest.fixture(scope="module")
def topic(tmp_path_factory):
    """The declarations, of a topic with all events. As in Flink's suite, events go to partitions in turns."""
    if why := kafka.missing():
        cannot_run(why)
    broker = kafka.Broker(tmp_path_factory.mktemp("broker"))
    broker.start()
    broker.topic("nexmark", PARTITIONS)
    declared = re.compile(r"CREATE TABLE nexmark \((.*?)\) WITH \(\n.*?\n\);\n", re.S)
    options = (f"'connector' = 'kafka', 'topic' = 'nexmark', 'properties.bootstrap.servers' = '{broker.servers}', "
               "'properties.group.id' = 'nexmark', 'scan.startup.mode' = 'earliest-offset', "
               "'sink.partitioner' = 'round-robin', 'format' = 'json'")
    columns = declared.search(TABLES)[1]
    run(tables() + f"CREATE TABLE kafka ({columns}) WITH ({options});\n"
        "INSERT INTO kafka SELECT event_type, person, auction, bid FROM nexmark;", tmp_path_factory.mktemp("script"))
    assert sum(map(len, broker.read("nexmark", PARTITIONS))) == EVENTS
    yield declared.sub(f"CREATE TABLE nexmark ({columns}) WITH ({options}, 'scan.bounded.mode' = 'latest-offset');\n", TABLES)
    broker.end()


def printed(query: str) -> str:
    return (EXAMPLES / f"{query}.sql").read_text().replace("'connector' = 'blackhole'", "'connector' = 'print', "
                                                           "'format' = 'ndjson'")


@pytest.mark.parametrize("query", sorted(EXPECTED))
def test_a_query_over_a_topic_gives_what_duckdb_gives(query, topic, events, tmp_path):  # noqa: F811
    write_side_input(tmp_path)
    result = run(topic + printed(query), tmp_path)
    rows = [tuple(json.loads(line, parse_float=str).values()) for line in result.stdout.decode().splitlines()]
    expected = [tuple(map(shown, row)) for row in events.sql(EXPECTED[query]).fetchall()]
    assert collections.Counter(rows) == collections.Counter(expected)


@pytest.mark.parametrize("query", ["q0", "q5", "q7", "q8", "q11"])
def test_the_same_on_two_processes(query, topic, events, tmp_path):  # noqa: F811
    result = run(topic + printed(query), tmp_path, workers=1, processes=2)
    rows = [tuple(json.loads(line, parse_float=str).values()) for line in result.stdout.decode().splitlines()]
    expected = [tuple(map(shown, row)) for row in events.sql(EXPECTED[query]).fetchall()]
    assert collections.Counter(rows) == collections.Counter(expected)


def test_files_and_windows_of_the_clock(topic, tmp_path):
    bids = EVENTS * 46 // 50
    run(topic + (EXAMPLES / "q10.sql").read_text(), tmp_path)
    written = [line for path in (tmp_path / "bid").rglob("part-*") for line in path.read_text().splitlines()[1:]]
    assert len(written) == bids
    result = run(topic + printed("q12"), tmp_path)
    assert sum(json.loads(line)["bid_count"] for line in result.stdout.decode().splitlines()) == bids

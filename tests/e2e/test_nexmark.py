"""The queries of NEXMark give the same answers as DuckDB, over the same events.

The events are written to Parquet files by Millstream, and read by DuckDB. Its queries are written by
hand for it. They have no windows: `starts` are times.
"""

import collections
import decimal
import json
import re
from datetime import datetime

import duckdb
import harness
import pytest

EXAMPLES = harness.ROOT / "examples" / "nexmark"
TABLES = (EXAMPLES / "tables.sql").read_text()
EVENTS, RATE = 30_000, 250  # two minutes

# What DuckDB says, by query. A window of ten seconds is `w(t)`, its start.
LEVELS = ("true", "price < 10000", "price >= 10000 AND price < 1000000", "price >= 1000000")
COUNTS = ", ".join(f"count(*) FILTER ({level})" for level in LEVELS)
DISTINCT = ", ".join(f"count(DISTINCT {column}) FILTER ({level})"
                     for column in ("bidder", "auction") for level in LEVELS)
OPEN = "A.id = B.auction AND B.dateTime >= A.dateTime AND B.dateTime <= A.expires"
EXPECTED = {
    "q0": "SELECT auction, bidder, price, dateTime, extra FROM bid",
    "q1": "SELECT auction, bidder, (price * 908 / 1000.0)::DECIMAL(23, 3), dateTime, extra FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE auction % 123 = 0",
    "q3": """SELECT name, city, state, A.id FROM auction A, person P
        WHERE seller = P.id AND category = 10 AND state IN ('OR', 'ID', 'CA')""",
    "q4": f"""SELECT category, sum(final) // count(*) FROM (
        SELECT category, max(price) AS final FROM auction A, bid B WHERE {OPEN} GROUP BY A.id, category)
        GROUP BY category""",
    "q5": """WITH counts AS (
            SELECT auction, start, count(*) AS num FROM (
                SELECT auction, epoch_ms(dateTime) // 2000 * 2000 - 2000 * step AS start
                FROM bid, range(5) AS t (step))
            GROUP BY auction, start)
        SELECT auction, num FROM counts c
        WHERE num = (SELECT max(num) FROM counts m WHERE m.start = c.start)""",
    "q7": """WITH most AS (SELECT w(dateTime) AS start, max(price) AS price FROM bid GROUP BY 1)
        SELECT auction, bidder, B.price, dateTime, extra FROM bid B JOIN most
        ON B.price = most.price AND epoch_ms(dateTime) BETWEEN start AND start + 10000""",
    "q7-window": """WITH most AS (SELECT w(dateTime) AS start, max(price) AS price FROM bid GROUP BY 1)
        SELECT auction, bidder, B.price, dateTime, extra FROM bid B JOIN most
        ON B.price = most.price AND w(dateTime) = start""",
    "q8": """SELECT DISTINCT P.id, name, make_timestamp_ms(w(P.dateTime)) FROM person P, auction A
        WHERE P.id = seller AND w(P.dateTime) = w(A.dateTime)""",
    "q9": f"""SELECT A.*, B.auction, bidder, price, B.dateTime, B.extra FROM auction A, bid B WHERE {OPEN}
        QUALIFY row_number() OVER (PARTITION BY A.id ORDER BY price DESC, B.dateTime) = 1""",
    "q11": """WITH marked AS (
            SELECT bidder, dateTime, dateTime - lag(dateTime) OVER one > INTERVAL 10 SECONDS AS new
            FROM bid WINDOW one AS (PARTITION BY bidder ORDER BY dateTime)),
        numbered AS (
            SELECT bidder, dateTime, sum(coalesce(new, true)::INT) OVER (
                PARTITION BY bidder ORDER BY dateTime) AS session FROM marked)
        SELECT bidder, count(*), min(dateTime), max(dateTime) + INTERVAL 10 SECONDS
        FROM numbered GROUP BY bidder, session""",
    "q13": """SELECT auction, bidder, price, dateTime, 'value ' || auction % 10000 FROM bid
        WHERE auction % 10000 % 3 = 0""",
    "q14": """SELECT auction, bidder, (price * 908 / 1000.0)::DECIMAL(23, 3),
            CASE WHEN hour(dateTime) BETWEEN 8 AND 18 THEN 'dayTime'
                 WHEN hour(dateTime) NOT IN (7, 19) THEN 'nightTime' ELSE 'otherTime' END,
            dateTime, extra, len(regexp_extract_all(extra, 'c'))
        FROM bid WHERE price * 908 > 1000000000 AND price * 908 < 50000000000""",
    "q15": f"SELECT strftime(dateTime, '%Y-%m-%d'), {COUNTS}, {DISTINCT} FROM bid GROUP BY 1",
    "q16": f"""SELECT channel, strftime(dateTime, '%Y-%m-%d'), max(strftime(dateTime, '%H:%M')), {COUNTS},
        {DISTINCT} FROM bid GROUP BY 1, 2""",
    "q17": f"""SELECT auction, strftime(dateTime, '%Y-%m-%d'), {COUNTS}, min(price), max(price),
        sum(price) // count(*), sum(price)::BIGINT FROM bid GROUP BY 1, 2""",
    "q18": """SELECT bid.* FROM bid
        QUALIFY row_number() OVER (PARTITION BY bidder, auction ORDER BY dateTime DESC) = 1""",
    "q19": """SELECT bid.*, row_number() OVER (PARTITION BY auction ORDER BY price DESC, dateTime) AS n FROM bid
        QUALIFY n <= 10""",
    "q20": """SELECT auction, bidder, price, channel, url, B.dateTime, B.extra, itemName, description,
        initialBid, reserve, A.dateTime, expires, seller, category, A.extra
        FROM bid B, auction A WHERE auction = A.id AND category = 10""",
    "q21": """SELECT * FROM (SELECT auction, bidder, price, channel, CASE channel
            WHEN 'Apple' THEN '0' WHEN 'Google' THEN '1' WHEN 'Facebook' THEN '2' WHEN 'Baidu' THEN '3'
            ELSE nullif(regexp_extract(url, 'channel_id=(.*)$', 1), '') END AS id FROM bid)
        WHERE id IS NOT NULL""",
    "q22": """SELECT auction, bidder, price, channel, split_part(url, '/', 4), split_part(url, '/', 5),
        split_part(url, '/', 6) FROM bid""",
}


def tables(**options: object) -> str:
    """The declarations, of fewer events, with more options."""
    options = {"first-event.rate": RATE, "next-event.rate": RATE, "events.num": EVENTS, **options}
    text = TABLES
    for key, value in options.items():
        text, found = re.subn(rf"('{re.escape(key)}') = '\d+'", rf"\1 = '{value}'", text)
        if not found:
            text = text.replace("'connector' = 'nexmark'", f"'connector' = 'nexmark',\n    '{key}' = '{value}'")
    return text


def run(script: str, cwd, workers: int = 2, processes: int = 1) -> harness.Run:
    path = cwd / "script.sql"
    path.write_text(script)
    settings = {"workers": workers} | ({"processes": processes} if processes > 1 else {})
    result = harness.run("run", path, settings=settings)
    assert result.code == 0, result.stderr
    assert harness.sound(result) == []
    return result


def shown(value: object) -> object:
    """A value of DuckDB's as Millstream writes it to NDJSON."""
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S.") + f"{value.microsecond // 1000:03}"
    return str(value) if isinstance(value, decimal.Decimal) else value


@pytest.fixture(scope="module")
def events(tmp_path_factory):
    """DuckDB, with the events as tables."""
    folder = tmp_path_factory.mktemp("events")
    columns = re.search(r"event_type INT,.*?extra  VARCHAR>,\n.*?extra  VARCHAR>,\n.*?extra  VARCHAR>", TABLES, re.S)
    run(tables() + f"""
        CREATE TABLE written ({columns[0]}) WITH ('connector' = 'file', 'path' = 'events', 'format' = 'parquet');
        INSERT INTO written SELECT event_type, person, auction, bid FROM nexmark;""", folder)
    duck = duckdb.connect()
    duck.sql("CREATE MACRO w(t) AS epoch_ms(t) // 10000 * 10000")
    duck.sql(f"CREATE TABLE events AS SELECT * FROM read_parquet('{folder}/events/part-*')")
    for number, kind in enumerate(("person", "auction", "bid")):
        duck.sql(f"CREATE VIEW {kind} AS SELECT {kind}.* FROM events WHERE event_type = {number}")
    return duck


def test_the_events_are_those_that_were_asked_for(events):
    counts = events.sql("SELECT event_type, count(*) FROM events GROUP BY 1 ORDER BY 1").fetchall()
    assert counts == [(0, EVENTS // 50), (1, 3 * EVENTS // 50), (2, 46 * EVENTS // 50)]
    [(first, last)] = events.sql("SELECT min(dateTime), max(dateTime) FROM bid").fetchall()
    assert first == datetime(2015, 7, 15, 0, 0, 0, 16_000)  # the fifth event
    assert last == datetime(2015, 7, 15, 0, 1, 59, 996_000)


def write_side_input(folder) -> None:
    """The file of q13."""
    side = "".join(f"{key},value {key}\n" for key in range(0, 10_000, 3))
    (folder / "side_input.csv").write_text("key,value\n" + side)


@pytest.mark.parametrize(("processes", "workers", "splits"), [(1, 1, 1), (1, 2, 2), (1, 4, 4), (1, 3, 4), (2, 1, 2)])
@pytest.mark.parametrize("query", sorted(EXPECTED))
def test_a_query_gives_what_duckdb_gives(query, processes, workers, splits, events, tmp_path):
    text = (EXAMPLES / f"{query}.sql").read_text()
    assert text.count("'connector' = 'blackhole'") == 1
    text = text.replace("'connector' = 'blackhole'", "'connector' = 'print', 'format' = 'ndjson'")
    write_side_input(tmp_path)
    result = run(tables(splits=splits) + text, tmp_path, workers, processes)
    lines = result.stdout.decode().splitlines()
    rows = [tuple(json.loads(line, parse_float=str).values()) for line in lines]
    expected = [tuple(map(shown, row)) for row in events.sql(EXPECTED[query]).fetchall()]
    assert len(expected) > (0 if query == "q15" else 3)
    assert collections.Counter(rows) == collections.Counter(expected)


ENDLESS = {  # what is said of a query over a stream without an end; None: it runs
    **dict.fromkeys(["q0", "q1", "q2", "q5", "q7", "q7-window", "q8", "q10", "q11", "q12", "q13", "q14", "q21", "q22"]),
    "q3": "its rows would have to be kept for ever",
    "q4": "says only one way how far apart the times of two rows may be",
    "q15": "a GROUP BY without a window would never give a result",
    "q16": "a GROUP BY without a window would never give a result",
    "q17": "a GROUP BY without a window would never give a result",
    "q9": "says only one way how far apart the times of two rows may be",
    "q18": "a rank of ROW_NUMBER without a window would never be final",
    "q19": "a rank of ROW_NUMBER without a window would never be final",
    "q20": "its rows would have to be kept for ever",
}


@pytest.mark.parametrize("query", sorted(ENDLESS))
def test_a_query_over_a_stream_without_an_end_runs_or_is_refused_with_the_reason(query, tmp_path):
    (tmp_path / "side_input.csv").write_text("key,value\n1,one\n")
    script = tmp_path / "script.sql"
    script.write_text(tables(**{"events.num": 0}) + (EXAMPLES / f"{query}.sql").read_text())
    result = harness.run("check", script, stats=False)
    said = ENDLESS[query]
    assert result.code == (2 if said else 0), result.stderr
    assert (said or "no errors") in result.stderr + result.stdout.decode()


def test_a_setting_bounds_the_state_of_a_join_over_a_stream_without_an_end(tmp_path):
    for query in ("q3", "q20"):
        script = tmp_path / "script.sql"
        text = (EXAMPLES / f"{query}.sql").read_text()
        script.write_text("SET 'join.within' = '1 hour';\n" + tables(**{"events.num": 0}) + text)
        result = harness.run("check", script, stats=False)
        assert (result.code, "no errors" in result.stderr + result.stdout.decode()) == (0, True), result.stderr


@pytest.mark.parametrize("query, times", [("q3", "A.dateTime, P.dateTime"), ("q20", "B.dateTime, A.dateTime")])
def test_a_join_within_an_interval_that_a_setting_says(query, times, events, tmp_path):
    left, right = times.split(", ")
    near = f" AND abs(epoch_ms({left}) - epoch_ms({right})) <= 2000"
    expected = [tuple(map(shown, row)) for row in events.sql(EXPECTED[query] + near).fetchall()]
    whole = events.sql(EXPECTED[query]).fetchall()
    assert 0 < len(expected) < len(whole)
    text = (EXAMPLES / f"{query}.sql").read_text()
    text = text.replace("'connector' = 'blackhole'", "'connector' = 'print', 'format' = 'ndjson'")
    result = run("SET 'join.within' = '2 s';\n" + tables() + text, tmp_path)
    rows = [tuple(json.loads(line).values()) for line in result.stdout.decode().splitlines()]
    assert collections.Counter(rows) == collections.Counter(expected)


def test_every_example_is_tested():
    named = {path.stem for path in EXAMPLES.glob("*.sql")} - {"tables"}
    assert named == set(ENDLESS)
    assert named == {*EXPECTED, "q10", "q12"}


@pytest.mark.parametrize("query", ["q0", "q5", "q8"])
def test_a_query_reads_the_events_once(query, tmp_path):
    result = run(tables() + (EXAMPLES / f"{query}.sql").read_text(), tmp_path)
    assert result.stats["records"] == EVENTS


# The options of q10's table in Flink's suite, but for those that the example has.
COMMITS = """'sink.partition-commit.trigger' = 'partition-time',
    'sink.partition-commit.delay' = '1 min',
    'partition.time-extractor.timestamp-pattern' = '$dt $hm:00',
    'sink.rolling-policy.check-interval' = '1min',
    """
POLICY = "'sink.partition-commit.policy.kind' = 'success-file',\n    "


@pytest.mark.parametrize("more", ["", COMMITS, COMMITS + POLICY], ids=["as it stands", "others", "Flink's options"])
def test_q10_writes_a_directory_for_each_minute(events, tmp_path, more):
    text = (EXAMPLES / "q10.sql").read_text().replace("'format' = 'csv'", more + "'format' = 'csv'")
    assert text.count("'format'") == 1 and more in text
    run(tables() + text, tmp_path)
    found = {}
    for minute in sorted((tmp_path / "bid" / "dt=2015-07-15").iterdir()):
        assert (minute / "_SUCCESS").exists() == (POLICY in more)
        files = f"read_csv('{minute}/part-*', header = true, all_varchar = true, hive_partitioning = false)"
        found[minute.name] = collections.Counter(duckdb.sql(f"SELECT * FROM {files}").fetchall())
    expected = {
        f"hm=00%3A0{minute}": collections.Counter(
            tuple(str(shown(value)) for value in row) for row in events.sql(
                EXPECTED["q0"] + f" WHERE minute(dateTime) = {minute}").fetchall())
        for minute in (0, 1)
    }
    assert found == expected


def test_q12_counts_every_bid_in_some_window(events, tmp_path):
    text = (EXAMPLES / "q12.sql").read_text()
    text = text.replace("'connector' = 'blackhole'", "'connector' = 'print', 'format' = 'ndjson'")
    result = run(tables() + text, tmp_path)
    counts = collections.Counter()
    for line in result.stdout.decode().splitlines():
        row = json.loads(line)
        start, end = (datetime.fromisoformat(row[key]) for key in ("starttime", "endtime"))
        assert (end - start).total_seconds() == 10
        counts[row["bidder"]] += row["bid_count"]
    assert counts == dict(events.sql("SELECT bidder, count(*) FROM bid GROUP BY 1").fetchall())

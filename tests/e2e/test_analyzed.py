"""What EXPLAIN ANALYZE and the counters say of sources, conditions, sides and windows."""

import re

import pytest

# A record a second, of two keys in turn; and one in four seconds, of the first key.
LEFT = "ts,k,v\n" + "".join(f"2024-01-01 12:00:{s:02},{s % 2},{s}\n" for s in range(20))
RIGHT = "ts,k,w\n" + "".join(f"2024-01-01 12:00:{s:02},0,{s}\n" for s in range(0, 20, 4))
TABLES = "".join(
    f"CREATE TABLE {name} (ts TIMESTAMP(3), k BIGINT, {value} BIGINT, WATERMARK FOR ts AS ts) "
    f"WITH ('connector' = 'file', 'path' = '{name}.csv', 'format' = 'csv');\n" for name, value in [("a", "v"), ("b", "w")])
BY_TIME = "a JOIN b ON a.k = b.k AND a.ts BETWEEN b.ts AND b.ts + INTERVAL '5' SECOND"
TUMBLE = "TABLE(TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '5' SECOND))"


@pytest.fixture(params=[("--workers", 2), ("--processes", 2)], ids=["workers", "processes"])
def analyze(script, request):
    """Runs EXPLAIN ANALYZE of a query; returns its lines from the first source on, and the run."""
    script.data("a.csv", LEFT)
    script.data("b.csv", RIGHT)

    def analyze(query: str) -> tuple[str, object]:
        done = script.run(TABLES + f"EXPLAIN ANALYZE {query};", *request.param)
        assert done.code == 0, done.stderr
        text = done.stdout.decode()
        return text[re.search("^(source 1|stage 1|first pipeline)", text, re.MULTILINE).start():], done

    return analyze


def taken(text: str) -> list[str]:
    """Which lines were measured, up to their first comma, and the lines before them."""
    return re.findall(r"^ *(\w+).*\n  = ([^;]*?)(?:, [\d,]+ (?:records|rows)/s|\n)", text.split("\nin all")[0], re.MULTILINE)


def test_rows_that_a_condition_leaves_out_are_not_taken(analyze):
    for value, let_through in [(0, "0 rows"), (1, "1 row"), (7, "7 rows")]:
        text, done = analyze(f"SELECT k, COUNT(*) AS n FROM a WHERE v < {value} GROUP BY k")
        keys = {0: "0 rows", 1: "1 row", 7: "2 rows"}[value]
        assert taken(text) == [("read", "20 records"), ("filter", f"{let_through} let through"),
                               ("soft", f"{let_through} taken"), ("result", keys)], text
        assert [(of["rows_in"], of["rows_in_by_input"]) for of in done.stats["stages"]] == [(value, [value])]


def test_late_rows_are_taken_if_their_condition_lets_them_through(script, analyze):
    # Both come when the first five seconds are over, and one of them is let through.
    script.data("a.csv", LEFT + "2024-01-01 12:00:00,0,3\n2024-01-01 12:00:00,0,30\n")
    text, done = analyze(f"SELECT window_start, COUNT(*) AS n FROM {TUMBLE} WHERE v < 7 GROUP BY window_start, window_end")
    assert ("filter", "8 rows let through") in taken(text) and re.search(r"\n  = 8 rows taken, .*, 1 late record; ", text), text
    assert ("result", "2 rows in 2 windows") in taken(text), text
    assert done.stats["stages"][0]["rows_in"] == 8 and done.stats["stages"][0]["late_records"] == 1


def test_rows_that_having_leaves_out_are_told_where_it_stands(analyze):
    # Four of the values below 7 are even, and three are odd.
    text, _ = analyze("SELECT k, COUNT(*) AS n FROM a WHERE v < 7 GROUP BY k HAVING COUNT(*) > 3")
    assert taken(text)[1:] == [("filter", "7 rows let through"), ("soft", "7 rows taken"), ("filter", "1 row let through"),
                               ("result", "1 row")], text


def test_a_join_tells_what_came_of_each_source_and_side_and_has_no_windows(analyze):
    """By hand: the even seconds up to 8 meet 0; 0; 0 and 4; 4; 4 and 8."""
    text, done = analyze(f"SELECT v, w FROM {BY_TIME} WHERE v < 10 AND w < 10")
    assert taken(text) == [("read", "20 records"), ("read", "5 records"), ("filter", "10 rows let through"),
                           ("filter", "3 rows let through"), ("soft", "13 rows taken"), ("result", "7 rows")], text
    for name, records in [("a", 20), ("b", 5)]:
        assert re.search(rf"\n  read {name}: .*\n  = {records} records, [\d,]+ records/s, \d+ B, 0\.\d{{3}} s\n", text), text
    assert "window" not in text.split("in all")[1], text
    assert "25 records, no windows, 7 rows" in done.stderr and done.stats["windows"] == 0
    assert [of["rows_in_by_input"] for of in done.stats["stages"]] == [[10, 3]]
    sources = [(of["source"], of["records"], of["input_bytes"]) for of in done.stats["sources"]]
    assert [source[:2] for source in sources] == [(1, 20), (2, 5)]
    assert sum(source[2] for source in sources) == done.stats["input_bytes"]


def test_inputs_of_a_stage_are_told_one_by_one(analyze):
    text, _ = analyze("SELECT k, COUNT(*) AS n FROM (SELECT k FROM a WHERE v < 7 UNION ALL SELECT k FROM b) GROUP BY k")
    assert [what for what in taken(text) if what[0] != "read"][:-2] == [("filter", "7 rows let through"), ("records", "5 rows")]
    assert taken(text)[-2:] == [("soft", "12 rows taken"), ("result", "2 rows")], text
    # Without state, too.
    text, _ = analyze("SELECT k FROM a WHERE v < 7 UNION ALL SELECT k FROM b WHERE w < 5")
    assert taken(text) == [("read", "20 records"), ("read", "5 records"), ("filter", "7 rows let through"),
                           ("filter", "2 rows let through"), ("result", "9 rows")], text


def test_windows_of_a_query_are_counted_beside_a_join_by_time(analyze):
    query = f"SELECT v FROM {BY_TIME} UNION ALL SELECT COUNT(*) FROM {TUMBLE} GROUP BY window_start, window_end"
    text, done = analyze(query)
    # Each even second meets one record or two: those from 4, 8, 12 and 16 on, and a second after, meet two.
    assert done.stats["windows"] == 4 and taken(text)[-1][1].endswith(" rows in 4 windows"), text

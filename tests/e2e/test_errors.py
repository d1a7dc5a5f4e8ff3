"""Errors say where they are, what was expected and what to write instead, and the exit code is the right one."""

import re

import harness
import pytest
from conftest import WINDOW, events, generated

GOOD = "ts,k,v\n2024-01-01 00:00:01,1,10\n"
TUMBLE = "FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '10' SECOND))"
GROUP = "GROUP BY window_start, window_end"

# The query, the words that the message must have, and the text that must be underlined.
WRONG_SQL = {
    "column": (f"SELECT kk, COUNT(*) AS n {TUMBLE} {GROUP}, kk", ["kk", "did you mean 'k'?"], "kk"),
    "column in WHERE": ("SELECT k FROM events WHERE vv = 1", ["vv", "did you mean 'v'?"], "vv"),
    "table": ("SELECT k FROM event", ["event", "did you mean 'events'?"], "event"),
    "function": (f"SELECT SUMM(v) AS s {TUMBLE} {GROUP}", ["SUMM", "did you mean", "did you mean SUM"], "SUMM"),
    "spelling": ("SELEKT k FROM events", ["SELEKT"], "SELEKT"),
    # WHERE reads as a table's name here and v as its alias, so it is the = that cannot follow.
    "missing table": ("SELECT k FROM WHERE v = 1", [], "="),
    "open string": ("SELECT 'abc FROM events", ["string"], None),
    "open bracket": ("SELECT (k FROM events", [], None),
    "types": ("SELECT k FROM events WHERE ts > TRUE AND k LIKE DATE '2024-01-01'", [], None),
    "JOIN": ("SELECT a.k FROM events a JOIN events FOR SYSTEM_TIME AS OF a.ts AS b ON a.k = b.k",
             ["'events' has no PRIMARY KEY", "NOT ENFORCED"], "a.ts"),
    "UNION": ("SELECT k FROM events UNION ALL SELECT ts FROM events", ["UNION", "CAST"], None),
    "EXCEPT": ("SELECT k FROM events EXCEPT SELECT v FROM events", ["EXCEPT", "UNION ALL"], None),
    "OVER": ("SELECT SUM(v) OVER (PARTITION BY k) FROM events", ["OVER"], None),
    "subquery": ("SELECT k FROM events WHERE k NOT IN (SELECT v FROM events)", ["NULL", "NOT EXISTS"],
                 "k NOT IN (SELECT v FROM events"),
    "DISTINCT": (f"SELECT CORR(DISTINCT k, v) AS n {TUMBLE} {GROUP}", ["DISTINCT"], None),
    "HOP": ("SELECT COUNT(*) AS n FROM TABLE(HOP(TABLE events, DESCRIPTOR(ts), INTERVAL '2' SECOND, "
            f"INTERVAL '5' SECOND)) {GROUP}", ["HOP", "multiple", "4 s"], None),
    "rollup": (f"SELECT k, COUNT(*) AS n {TUMBLE} GROUP BY ROLLUP (window_start, k)", ["grouping set"], None),
    "DELETE": ("DELETE FROM events", ["DELETE"], None),
    "time column": ("SELECT COUNT(*) AS n FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(tss), "
                    f"INTERVAL '1' SECOND)) {GROUP}", ["tss", "did you mean 'ts'?"], "tss"),
    "zero window": ("SELECT COUNT(*) AS n FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), "
                    f"INTERVAL '0' SECOND)) {GROUP}", [], None),
    "ungrouped column": (f"SELECT k, v, COUNT(*) AS n {TUMBLE} {GROUP}, k", ["v", "GROUP BY"], None),
    "unknown type": ("CREATE TABLE t (a MAP<INT, INT>) WITH ('connector' = 'file')", [], None),
}


@pytest.mark.parametrize("name", WRONG_SQL)
def test_wrong_sql_is_refused_with_its_place(script, name):
    query, words, underlined = WRONG_SQL[name]
    script.data("events.csv", GOOD)
    result = script.run(events() + "\n  " + query + ";\n")
    assert result.code == 2, result.stderr
    assert result.stdout == b""
    for word in words:
        assert word in result.stderr, result.stderr
    assert "DataFusion" not in result.stderr and "ParserError" not in result.stderr
    place = re.search(r"query\.sql:(\d+):(\d+)", result.stderr)
    assert place, result.stderr
    if underlined is None:
        return
    # The place is that of the text, and the carets stand under it.
    lines = (events() + "\n  " + query + ";\n").splitlines()
    line, column = int(place[1]), int(place[2])
    assert lines[line - 1][column - 1 :].startswith(underlined), result.stderr
    shown = result.stderr.splitlines()
    carets = next(i for i, text in enumerate(shown) if re.search(r"\^+", text))
    run = re.search(r"\^+", shown[carets])
    assert shown[carets - 1][run.start() : run.end()] == underlined, result.stderr


def test_deep_nesting_is_an_error_and_no_overflow(script):
    script.data("events.csv", GOOD)
    deep = 5_000
    for query in ("SELECT " + "(" * deep + "k" + ")" * deep + " FROM events;",
                  "SELECT " + "NOT " * deep + "TRUE FROM events;",
                  "SELECT k" + " + 1" * deep + " FROM events;",
                  "SELECT " + "CASE WHEN TRUE THEN " * deep + "1" + " END" * deep + " FROM events;"):
        result = script.run(events() + query)
        assert result.code in (0, 2), (result.code, result.stderr[:500])
        assert len(result.stderr) < 20_000


def test_group_by_on_an_unbounded_table_shows_what_to_write(script):
    result = script.run(generated() + "SELECT k, COUNT(*) AS n FROM events GROUP BY k;")
    assert result.code == 2
    for word in ("TUMBLE", "TABLE events", "DESCRIPTOR(ts)", "GROUP BY window_start, window_end"):
        assert word in result.stderr, result.stderr


def test_a_window_without_a_watermark_shows_the_line_to_add(script):
    script.data("events.csv", GOOD)
    result = script.run("CREATE TABLE events (ts TIMESTAMP(3), k BIGINT, v BIGINT) WITH ("
                        "'connector' = 'file', 'path' = 'events.csv', 'format' = 'csv');\n" + WINDOW)
    assert result.code == 2
    assert "WATERMARK FOR ts AS ts" in result.stderr, result.stderr


@pytest.mark.parametrize("options, words", [
    ("'connector' = 'fiel', 'path' = 'events.csv'", ["fiel", "did you mean 'file'?"]),
    ("'connector' = 'file', 'format' = 'csv'", ["path"]),
    ("'connector' = 'file', 'path' = 'events.csv', 'format' = 'cvs'", ["cvs", "csv"]),
    ("'connector' = 'file', 'path' = 'events.csv', 'format' = 'csv', 'csv.heder' = 'true'",
     ["csv.heder", "did you mean 'csv.header'?"]),
    ("'connector' = 'jdbc', 'url' = 't'", ["jdbc", "does not run here"]),
    ("'path' = 'events.csv'", ["connector"]),
])
def test_wrong_table_options_name_the_option(script, options, words):
    script.data("events.csv", GOOD)
    result = script.run(f"CREATE TABLE t (ts TIMESTAMP(3), k BIGINT, v BIGINT) WITH ({options});\n"
                        "SELECT k FROM t;")
    assert result.code == 2, result.stderr
    for word in words:
        assert word in result.stderr, result.stderr


def test_a_missing_data_file_is_named(script):
    script.data("events.csv", GOOD)
    result = script.run(events(path="event.csv") + WINDOW)
    assert result.code in (1, 2), result.stderr
    assert str(script.folder / "event.csv") in result.stderr, result.stderr
    assert "events.csv" in result.stderr.replace(str(script.folder / "event.csv"), ""), result.stderr


def test_a_missing_script_is_named(script):
    result = harness.run("run", script.folder / "no.sql", stats=False)
    assert result.code == 2
    assert "no.sql" in result.stderr
    assert harness.sound(result) == []


BAD_ROWS = {
    "not a number": ("2024-01-01 00:00:02,abc,1", 3, 21, ["BIGINT", "'k'", "'abc'"]),
    "out of range": ("2024-01-01 00:00:02,9223372036854775808,1", 3, 21, ["BIGINT", "'k'"]),
    "not a time": ("yesterday,1,1", 3, 1, ["TIMESTAMP(3)", "'ts'", "'yesterday'"]),
    "no such day": ("2023-02-29 00:00:00,1,1", 3, 1, ["'ts'", "2023-02-29"]),
    "open quote": ('2024-01-01 00:00:02,"1,1', 3, 21, ["quote"]),
    "too few fields": ("2024-01-01 00:00:02,1", 3, None, ["2", "3"]),
}


@pytest.mark.parametrize("name", BAD_ROWS)
@pytest.mark.parametrize("workers", [1, 4])
def test_a_malformed_row_is_reported_with_file_line_and_column(script, name, workers):
    row, line, column, words = BAD_ROWS[name]
    script.data("events.csv", GOOD + row + "\n2024-01-01 00:00:03,1,1\n")
    result = script.run(events() + "SELECT ts, k, v FROM events;", workers=workers, batch_rows=1)
    assert result.code == 1, result.stderr
    place = f"events.csv:{line}:" + (str(column) if column else "")
    assert place in result.stderr, result.stderr
    for word in words:
        assert word in result.stderr, result.stderr


def test_a_malformed_row_far_into_a_file_keeps_its_line(script):
    rows = "".join(f"2024-01-01 00:{i // 60 % 60:02}:{i % 60:02},{i},\"two\nlines\"\n" for i in range(3_000))
    script.data("events.csv", "ts,k,s\n" + rows + "2024-01-01 01:00:00,x,s\n")
    for settings in ({"workers": 1}, {"workers": 4, "batch_rows": 7}, {"workers": 2, "simulate": 3}):
        result = script.run(events("k BIGINT, s STRING") + "SELECT k, s FROM events;", **settings)
        assert result.code == 1
        assert "events.csv:6002:21" in result.stderr, result.stderr


def test_invalid_utf8_is_an_error(script):
    script.data("events.csv", b"ts,k,s\n2024-01-01 00:00:01,1,ok\n2024-01-01 00:00:02,1,\xff\xfe\n")
    result = script.run(events("k BIGINT, s STRING") + "SELECT s FROM events;")
    assert result.code == 1
    assert "events.csv:3:" in result.stderr and "UTF-8" in result.stderr, result.stderr


def test_malformed_rows_can_be_skipped(script):
    script.data("events.csv", GOOD + "2024-01-01 00:00:02,abc,1\n2024-01-01 00:00:03,3,1\n")
    table = events().replace("'format' = 'csv'", "'format' = 'csv', 'csv.ignore-parse-errors' = 'true'")
    result = script.run(table + "SELECT k FROM events;")
    assert (result.code, result.stdout) == (0, b"k\n1\n3\n"), result.stderr
    assert result.stats["malformed_records"] == 1
    assert "1 malformed record left out" in result.stderr and "on_error" in result.stderr


@pytest.mark.parametrize("settings", [{"workers": 1}, {"workers": 4, "batch_rows": 1}])
def test_every_malformed_row_that_is_skipped_is_counted(script, settings):
    # A wrong number, too few fields, too many, text after a quote, two wrong fields in one record,
    # and a quote that is never closed.
    wrong = ["2024-01-01 00:00:02,abc,1", "2024-01-01 00:00:02,1", "2024-01-01 00:00:02,1,1,1",
             '2024-01-01 00:00:02,"1"x,1', "yesterday,x,1", '2024-01-01 00:00:02,1,"1']
    script.data("events.csv", GOOD + "2024-01-01 00:00:03,3,1\n" + "\n".join(wrong) + "\n")
    table = events().replace("'format' = 'csv'", "'format' = 'csv', 'csv.ignore-parse-errors' = 'true'")
    result = script.run(table + f"SELECT MIN(k) AS a, MAX(v) AS b, COUNT(*) AS n {TUMBLE} {GROUP};", **settings)
    assert (result.code, result.stdout) == (0, b"a,b,n\n1,10,2\n"), result.stderr
    assert result.stats["malformed_records"] == len(wrong), result.stderr
    assert result.stats["records"] == 2
    # Nothing to say where nothing was left out.
    script.data("events.csv", GOOD)
    result = script.run(table + "SELECT k FROM events;")
    assert len(result.stderr.splitlines()) == 1 and result.stats["malformed_records"] == 0


def test_a_time_that_no_window_can_hold_is_not_called_missing(script):
    # The year 292,277 in seconds, an absent time, and a good one.
    script.data("events.csv", "s,k\n9161467200000,1\n,2\n1,3\n")
    table = ("CREATE TABLE events (s BIGINT, k BIGINT, ts AS to_timestamp_seconds(s), "
             "WATERMARK FOR ts AS ts) WITH ('connector' = 'file', 'path' = 'events.csv', 'format' = 'csv');\n")
    result = script.run(table + f"SELECT COUNT(*) AS n {TUMBLE} {GROUP};")
    assert (result.code, result.stdout) == (0, b"n\n1\n"), result.stderr
    assert (result.stats["unusable_time_records"], result.stats["null_time_records"]) == (1, 1)
    assert "1 record without an event time" in result.stderr
    assert "1 record with an event time beyond" in result.stderr


def test_a_mean_may_fit_where_its_sum_does_not(script):
    # 30,000 numbers of 38 nines: their sum takes more than 127 bits.
    nines = f"{'9' * 32}.{'9' * 6}"
    script.data("events.csv", "ts,d\n" + f"2024-01-01 00:00:01,{nines}\n" * 30_000)
    table = events("d DECIMAL(38, 6)")
    result = script.run(table + f"SELECT AVG(d) AS mean, AVG(-d) AS other {TUMBLE} {GROUP};")
    assert (result.code, result.stdout) == (0, f"mean,other\n{nines},-{nines}\n".encode()), result.stderr
    result = script.run(table + f"SELECT SUM(d) AS s {TUMBLE} {GROUP};")
    assert result.code == 1
    whole, rest = divmod(30_000 * (10 ** 38 - 1), 10 ** 6)
    assert f"SUM(d) overflows: the value {whole}.{rest:06} does not fit DECIMAL(38, 6)" in result.stderr, result.stderr
    assert "CAST(x AS DOUBLE)" in result.stderr, result.stderr


def test_what_128_bits_hold_and_38_digits_do_not_is_an_error(script):
    nines = "9" * 38
    script.data("events.csv", f"ts,d\n2024-01-01 00:00:01,{nines}\n2024-01-01 00:00:02,\n2024-01-01 00:00:03,-1\n")
    table = events("d DECIMAL(38, 0)")
    result = script.run(table + "SELECT d + 0 AS d, CAST(d + 0 AS STRING) AS t FROM events;")
    assert (result.code, result.stdout) == (0, f"d,t\n{nines},{nines}\n,\n-1,-1\n".encode()), result.stderr
    for query, wrong, value in [
        ("SELECT d + 1 AS x FROM events", "d + 1", 10 ** 38),
        ("SELECT CAST(0 - 1 - d AS STRING) AS x FROM events", "0 - 1 - d", -(10 ** 38)),
        ("SELECT MAX(d) + 1 AS x FROM events", "MAX(d) + 1", 10 ** 38),
        ("SELECT COUNT(*) AS x FROM events GROUP BY d + 1", "d + 1", 10 ** 38),
    ]:
        result = script.run(table + query + ";")
        assert (result.code, result.stdout) == (1, b""), result
        assert f"cannot evaluate {wrong}: {value} does not fit DECIMAL(38, 0)" in result.stderr, result.stderr
        assert "^" * len(wrong) in result.stderr and "CAST(x AS DOUBLE)" in result.stderr, result.stderr
    # A sum within 128 bits, with all its digits.
    script.data("events.csv", f"ts,d\n2024-01-01 00:00:01,{nines}\n2024-01-01 00:00:02,34568\n")
    result = script.run(table + f"SELECT SUM(d) AS s {TUMBLE} {GROUP};")
    assert result.code == 1
    assert f"SUM(d) overflows: the value {int(nines) + 34568} does not fit DECIMAL(38, 0)" in result.stderr, result.stderr
    # A quotient has six digits after the point at least.
    script.data("events.csv", f"ts,d\n2024-01-01 00:00:01,15{'0' * 32}\n")
    result = script.run(table + "SELECT d / CAST('0.1' AS DECIMAL(2, 1)) AS x FROM events;")
    assert result.code == 1
    assert f": 15{'0' * 33}.000000 does not fit DECIMAL(38, 6)" in result.stderr, result.stderr


def test_an_undeclared_column_in_the_file_is_ignored_and_a_missing_one_is_not(script):
    script.data("events.csv", "extra,ts,k\nx,2024-01-01 00:00:01,1\n")
    table = events().replace("'format' = 'csv'", "'format' = 'csv', 'csv.header' = 'true'")
    result = script.run(table + "SELECT k FROM events;")
    assert result.code != 0
    assert "'v'" in result.stderr, result.stderr
    result = script.run(table.replace(", v BIGINT", "") + "SELECT k FROM events;")
    assert (result.code, result.stdout) == (0, b"k\n1\n"), result.stderr


def test_a_sum_that_does_not_fit_is_an_error(script):
    script.data("events.csv", GOOD + "2024-01-01 00:00:02,1,9223372036854775807\n")
    for settings in ({"workers": 1}, {"workers": 4, "epoch_bytes": 1, "batch_rows": 1}):
        result = script.run(events() + f"SELECT SUM(v) AS s {TUMBLE} {GROUP};", **settings)
        assert result.code == 1
        for word in ("overflow", "9223372036854775817", "BIGINT", "DECIMAL"):
            assert word in result.stderr, result.stderr


@pytest.mark.parametrize("expression, word", [
    ("v + 9223372036854775800", "v + 9223372036854775800"),
    ("k / (v - 10)", "/"),
    ("k % (v - 10)", "%"),
    ("CAST('x' || CAST(k AS STRING) AS BIGINT)", "x1"),
])
def test_an_expression_that_fails_is_named(script, expression, word):
    script.data("events.csv", GOOD)
    for query in (f"SELECT {expression} AS x FROM events;",
                  f"SELECT MAX({expression}) AS x {TUMBLE} {GROUP};"):
        result = script.run(events() + query)
        assert result.code == 1, (result.stdout, result.stderr)
        assert word in result.stderr, result.stderr


@pytest.mark.parametrize("aggregate", [
    "SUM(v)",
    "SUM(v + 0)",
    "MAX(v) FILTER (WHERE v > 5)",
    "SUM(CASE WHEN v > 5 THEN v ELSE 0 END)",
    "COALESCE(MAX(v - 0), 0)",
])
def test_an_expression_over_an_aggregate_that_fails_is_underlined(script, aggregate):
    script.data("events.csv", f"ts,k,v\n2024-01-01 00:00:01,1,{2 ** 63 - 1}\n")
    result = script.run(events() + f"SELECT SUM(v - 1) + 1 AS other, {aggregate} + 1 AS x {TUMBLE} {GROUP};")
    assert (result.code, result.stdout) == (1, b""), result
    lines = result.stderr.splitlines()
    marked = next(i for i, line in enumerate(lines) if "^" in line)
    start = lines[marked].index("^")
    assert lines[marked - 1][start:start + lines[marked].count("^")] == f"{aggregate} + 1", result.stderr


@pytest.mark.parametrize("bad, shown", [
    ("\033[31mred", r"\u{1b}[31mred"),
    ("\rover", r"\rover"),
    ("bell\a", r"bell\u{7}"),
    ("\u009b31m", r"\u{9b}31m"),
    ("\u202eturned", r"\u{202e}turned"),
    ("tab\tstays", "tab\tstays"),
    ("back\\slash é 語", "back\\slash é 語"),
])
def test_control_characters_of_data_are_escaped_in_messages(script, bad, shown):
    script.data("events.csv", f'ts,b\n2024-01-01 00:00:01,"{bad}"\n')
    result = script.run(events("b STRING") + "SELECT CAST(b AS INT) AS n FROM events;\n")
    assert result.code == 1
    assert f"cannot cast '{shown}'" in result.stderr, result.stderr


@pytest.mark.parametrize("control, shown", [("\033", r"\u{1b}"), ("\0", r"\u{0}"), ("\u009b", r"\u{9b}")])
def test_control_characters_of_sql_are_escaped_and_the_mark_stays_in_its_place(script, control, shown):
    script.data("events.csv", "ts,k,v\n")
    query = f"SELECT k, {control} FROM events;"
    result = script.run(events() + query)
    assert result.code == 2
    assert f"found {shown}" in result.stderr, result.stderr
    assert not re.search(r"[^\n\t -~]", result.stderr), result.stderr
    lines = result.stderr.splitlines()
    marks = next(i for i, line in enumerate(lines) if line.strip("| ^") == "" and "^" in line)
    # In the line of SQL one space stands for the character, so that the mark is in its column.
    line, bar = lines[marks - 1], lines[marks].index("| ") + 2
    assert line[bar:] == query.replace(control, " ")
    assert lines[marks][bar:] == " " * query.index(control) + "^"


# Line 5 is the first that cannot be divided: the record before takes two lines, and there is a comment.
DIVISORS = 'ts,a,b,name\n2024-01-01 00:00:01,8,2,"two\nlines"\n# a comment\n2024-01-01 00:00:02,9,0,x\n2024-01-01 00:00:03,7,0,y\n'
DIVIDED = ("CREATE TABLE events (ts TIMESTAMP(3), a BIGINT, b BIGINT, name STRING, q AS a / b{})\n"
           "WITH ('connector' = 'file', 'path' = 'divisors.csv', 'format' = 'csv', 'csv.allow-comments' = 'true');\n")
AS_IT_IS = ", WATERMARK FOR ts AS ts"
WINDOWS = "FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY window_start, window_end"


@pytest.mark.parametrize("layout", [
    {"workers": 1}, {"workers": 2, "batch_rows": 1}, {"workers": 1, "processes": 2, "batch_rows": 2},
    {"workers": 2, "batch_rows": 1, "exchange": "interleaved"},
])
@pytest.mark.parametrize("query, watermark", [
    ("SELECT a / b AS x FROM events;", ""),
    ("SELECT q FROM events;", ""),
    ("SELECT a / b AS x FROM events LIMIT 2;", ""),
    ("SELECT a FROM events WHERE a / b > 0;", ""),
    ("SELECT COUNT(*) AS n FROM events WHERE q > 0;", ""),
    ("SELECT SUM(a / b) AS s FROM events;", ""),
    ("SELECT SUM(q) FILTER (WHERE a > 7) AS s FROM events;", ""),
    ("SELECT COUNT(*) FILTER (WHERE a / b > 0) AS n FROM events;", ""),
    ("SELECT a / b AS x, COUNT(*) AS n FROM events GROUP BY a / b;", ""),
    (f"SELECT MAX(a / b) AS s {WINDOWS};", AS_IT_IS),
    (f"SELECT COUNT(*) AS n {WINDOWS};", ", WATERMARK FOR ts AS CASE WHEN a / b > 0 THEN ts ELSE ts END"),
])
def test_a_failing_expression_names_the_record(script, query, watermark, layout):
    script.data("divisors.csv", DIVISORS)
    result = script.run(DIVIDED.format(watermark) + query, **layout)
    assert result.code == 1, result.stderr
    # Two records fail. Of several workers, each says which one it has met first.
    alone = layout["workers"] == 1 and "processes" not in layout
    line = "5" if alone else "[56]"
    assert re.search(rf"division by zero, for the record at \S*divisors\.csv:{line}\n", result.stderr), result.stderr
    assert "report it" not in result.stderr, result.stderr


@pytest.mark.parametrize("query", [
    "SELECT 1 AS x FROM events WHERE 1 / 0 > 1;",
    "SELECT a FROM events WHERE a > 1 / 0;",
    "SELECT COUNT(*) AS n FROM events WHERE 1 / 0 > 1;",
    "CREATE VIEW v AS SELECT a FROM events WHERE 1 / 0 > 1; SELECT a FROM v;",
    "SELECT a FROM events WHERE 1 / 0 > 1 UNION ALL SELECT b FROM events WHERE 1 / 0 > 1;",
])
def test_a_constant_that_fails_names_the_first_record(script, query):
    script.data("divisors.csv", DIVISORS)
    result = script.run(DIVIDED.format("") + query, workers=1)
    assert result.code == 1, result.stderr
    assert re.search(r"1 / 0: division by zero, for the record at \S*divisors\.csv:2\n", result.stderr), result.stderr


@pytest.mark.parametrize("layout", [{"workers": 1}, {"workers": 2, "batch_rows": 1}, {"workers": 1, "processes": 2, "batch_rows": 1}])
def test_rows_beyond_a_limit_are_not_evaluated(script, layout):
    script.data("divisors.csv", DIVISORS)
    for query in ("SELECT a / b AS q FROM events LIMIT 1;", "SELECT q FROM events WHERE 8 / b > 1 LIMIT 1;"):
        result = script.run(DIVIDED.format("") + query, **layout)
        assert (result.code, result.stdout) == (0, b"q\n4\n"), result.stderr


@pytest.mark.parametrize("number, function", [
    ("1704067201", "to_timestamp_seconds"), ("1704067201000", "to_timestamp_millis"),
    ("1704067201000000", "to_timestamp_micros"), ("1704067201000000000", "CAST(to_timestamp_nanos(x) AS TIMESTAMP(6))"),
])
def test_numbers_where_a_time_belongs_are_told_by_their_size(script, number, function):
    script.data("events.csv", f"ts,k,v\n{number},1,10\n")
    result = script.run(events() + WINDOW)
    form = function if "(" in function else f"{function}(x)"
    assert result.code == 1 and form in result.stderr, result.stderr
    # The advice, followed, gives the time that is meant: 2024-01-01 00:00:01.
    table = events().replace("ts TIMESTAMP(3)", f"t BIGINT, ts AS {form.replace('(x)', '(t)')}").replace("'path'", "'csv.header' = 'false', 'path'")
    script.data("events.csv", f"{number},1,10\n")
    result = script.run(table + WINDOW)
    assert (result.code, result.stdout) == (0, b"window_start,k,n\n2024-01-01 00:00:00.000,1,1\n"), result.stderr


def test_where_a_relative_path_starts_is_said(script):
    wrong = events(path="nothing/like/it.csv") + "SELECT k FROM events;"
    result = script.run(wrong)
    assert "a relative path starts at the directory of the SQL file" in result.stderr, result.stderr
    result = harness.run("run", "-e", wrong)
    assert result.code == 2 and "a relative path starts at the current directory" in result.stderr, result.stderr

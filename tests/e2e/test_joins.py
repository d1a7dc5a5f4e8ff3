"""Joins whose sides are as uneven as can be: what they give, and what memory they take for it."""

import re

import harness
import pytest

BUDGET = "64MB"
MIB = 1 << 20
# Key, time and what a row needs besides.
ROW_BYTES = 32


def table(name: str, rows: int, keys: int, step: str) -> str:
    """Records `step` apart, whose keys are below `keys`."""
    return (f"CREATE TABLE {name} (k BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('connector' = 'datagen', "
            f"'number-of-rows' = '{rows}', 'fields.k.min' = '0', 'fields.k.max' = '{keys - 1}', "
            f"'fields.ts.kind' = 'sequence', 'fields.ts.step' = '{step}', "
            "'fields.ts.start' = '2024-01-01 00:00:00');\n")


def windowed(name: str, length: str) -> str:
    return f"TABLE(TUMBLE(TABLE {name}, DESCRIPTOR(ts), INTERVAL {length})) AS {name}"


def join(kind: str, length: str) -> str:
    return (f"FROM {windowed('a', length)} {kind} {windowed('b', length)} ON a.window_start = b.window_start "
            "AND a.window_end = b.window_end AND a.k = b.k")


OUT = "CREATE TABLE pairs (k BIGINT, l TIMESTAMP(3), r TIMESTAMP(3)) WITH ('connector' = 'blackhole');\n"
PAIRS = "INSERT INTO pairs SELECT a.k, a.ts, b.ts "


def within_budget(result: harness.Run) -> None:
    assert result.code == 0, result.stderr
    assert result.stats["memory_bytes_peak"] <= 64 * MIB, result.stats


@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("kind", ["JOIN", "FULL JOIN"])
@pytest.mark.parametrize("left, right", [(1_000, 1_000), (1_000_000, 1), (1, 1_000_000)])
def test_a_million_matches_of_one_key(script, left, right, kind, workers):
    """Pairs are no state: what is kept is the rows of the window."""
    tables = table("a", left, 1, "1 ms") + table("b", right, 1, "1 ms")
    result = script.run(tables + OUT + PAIRS + join(kind, "'1' HOUR") + ";", workers=workers, memory=BUDGET)
    within_budget(result)
    assert result.stats["rows"] == 1_000_000
    assert result.stats["state_live_bytes_at_peak"] <= (left + right) * ROW_BYTES + workers * MIB


NEAR = "AND b.ts BETWEEN a.ts - INTERVAL '1' HOUR AND a.ts + INTERVAL '1' HOUR"


@pytest.mark.parametrize("joined, name, held, helps", [
    (join("JOIN", "'1' HOUR"), "join on (k)", r"\d+ rows", "use a shorter window, or take fewer columns or rows"),
    (f"FROM a JOIN b ON a.k = b.k {NEAR}", "join on (k)", r"\d+ rows", "use a shorter interval"),
    ("FROM a JOIN b ON a.k = b.k", "join on (k)", r"\d+ rows", "SET 'join.within' = '1 hour'"),
    (None, "join within sessions by (k)", r"the records of \d keys?", "use a shorter gap"),
], ids=["windows", "interval", "whole", "session"])
def test_too_little_memory_says_what_a_join_holds(script, joined, name, held, helps):
    tables = table("a", 1_500_000, 1, "1 ms") + table("b", 1, 1, "1 ms")
    sql = tables + OUT + PAIRS + joined + ";" if joined else one_session(1_500_000, 1, "1 ms")
    result = script.run(sql, workers=1, memory="16MB")
    assert result.code == 1
    said = f"error: {re.escape(name)} needs more memory than it may use: .* for {held} and the budget"
    assert re.search(said, result.stderr) and helps in result.stderr, result.stderr
    assert "memory='...'" in result.stderr and "fewer keys" not in result.stderr


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("step", ["1 ms", "9 us"], ids=["of many slices", "of one slice"])
@pytest.mark.parametrize("left, right", [(1_000_000, 1), (1, 1_000_000)])
def test_a_million_matches_of_one_session(script, left, right, step, workers):
    """Of each record little more is kept than what the join gives of it."""
    result = script.run(one_session(left, right, step), workers=workers, memory=BUDGET)
    within_budget(result)
    assert result.stdout.decode().splitlines() == ["n,l,r", sums_of_pairs(left, right)]


def test_a_session_of_more_rows_on_both_sides_than_are_read_together(script):
    left, right = 8_300, 8_200
    result = script.run(one_session(left, right, "1 ms"), workers=2)
    assert result.stdout.decode().splitlines() == ["n,l,r", sums_of_pairs(left, right)]


def sums_of_pairs(left: int, right: int) -> str:
    """Each number below `left` with each below `right`: how many, and the sums of both sides."""
    return f"{left * right},{sum(range(left)) * right},{sum(range(right)) * left}"


def one_session(left: int, right: int, step: str) -> str:
    """Counts and sums all pairs of the records of two tables, which are numbered and in one session."""
    def numbered(name: str, rows: int) -> str:
        return table(name, rows, 1, step).replace("TIMESTAMP(3)", "TIMESTAMP(6), v BIGINT").replace(
            "WITH (", "WITH ('fields.v.kind' = 'sequence', 'fields.v.start' = '0', ")

    return numbered("a", left) + numbered("b", right) + """
        CREATE VIEW both_kinds AS
        SELECT 'a' AS kind, k, ts, v FROM a UNION ALL SELECT 'b' AS kind, k, ts, v FROM b;
        WITH s AS (SELECT * FROM TABLE(SESSION(TABLE both_kinds PARTITION BY k, DESCRIPTOR(ts), INTERVAL '10' SECOND)))
        SELECT COUNT(*) AS n, SUM(l) AS l, SUM(r) AS r FROM (
            SELECT a.v AS l, b.v AS r
            FROM (SELECT * FROM s WHERE kind = 'a') AS a JOIN (SELECT * FROM s WHERE kind = 'b') AS b
            ON a.k = b.k AND a.window_start = b.window_start AND a.window_end = b.window_end
        );"""


def test_a_million_matches_on_two_processes(script):
    tables = table("a", 1_000_000, 1, "1 ms") + table("b", 1, 1, "1 ms")
    result = script.run(tables + OUT + PAIRS + join("JOIN", "'1' HOUR") + ";", "--processes", 2, workers=1, memory=BUDGET)
    assert (result.code, result.stats["rows"]) == (0, 1_000_000), result.stderr


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("a, b", [(("1 ms", 1_000_000), ("100 ms", 10_000)), (("100 ms", 10_000), ("1 ms", 1_000_000))])
def test_a_table_with_a_hundred_times_the_records_does_not_run_ahead(script, a, b, workers):
    """Two windows are kept at the most, and what batches in flight hold."""
    batch, window = 1_000, 10_100
    tables = table("a", a[1], 1_000, a[0]) + table("b", b[1], 1_000, b[0])
    result = script.run(tables + "SELECT COUNT(*) AS n " + join("JOIN", "'10' SECOND") + ";", workers=workers,
                        memory=BUDGET, batch_rows=batch)
    within_budget(result)
    [count] = result.stdout.decode().splitlines()[1:]
    assert 90_000 < int(count) < 110_000
    # Each worker may hold one batch that it reads, and the leader one that waits.
    assert result.stats["state_live_bytes_at_peak"] <= (2 * window + 2 * workers * batch) * ROW_BYTES


@pytest.mark.parametrize("workers", [1, 2])
def test_an_interval_join_keeps_what_the_watermark_allows(script, workers):
    """A million records a side, of which two seconds are kept: rows, and rows where they may find partners."""
    tables = table("a", 1_000_000, 1_000, "1 ms") + table("b", 1_000_000, 1_000, "1 ms")
    near = "FROM a JOIN b ON a.k = b.k AND a.ts BETWEEN b.ts - INTERVAL '1' SECOND AND b.ts + INTERVAL '1' SECOND"
    result = script.run(tables + "SELECT COUNT(*) AS n " + near + ";", workers=workers, memory=BUDGET, batch_rows=1_000)
    within_budget(result)
    [count] = result.stdout.decode().splitlines()[1:]
    # Two of two thousand by chance, and one because both tables draw the same keys.
    assert 2_900_000 < int(count) < 3_100_000
    # All of it would be eight million rows, 200 MB: a row stands in each slice of a second where it may find partners.
    assert result.stats["state_live_bytes_at_peak"] <= 6 * MIB

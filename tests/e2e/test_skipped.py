"""Skipped records: how many there were, and where the first of them is."""

import pytest
from conftest import events

TUMBLE = "FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '10' SECOND))"
QUERY = f"SELECT COUNT(k) AS n {TUMBLE} GROUP BY window_start, window_end;"
SKIP = events("k BIGINT").replace("'csv');", "'csv', 'csv.ignore-parse-errors' = 'true', 'csv.header' = 'true');")

# Lines of the file after its header, how many count, and what the report says.
CASES = [
    ("2024-01-01 00:00:01,1\n2024-01-01 00:00:02,2\n", 2, []),
    ("2024-01-01 00:00:01,1\n2024-01-01 00:00:02,x\nnever,2\n", 1,
     ["2 malformed records left out", "the first at {}:3:21: expected BIGINT for column 'k', found 'x'"]),
    ("2024-01-01 00:00:01\n", 0, ["1 malformed record left out", "  at {}:2:1: expected 2 fields"]),
    ("2024-01-01 00:00:01,1\n\n,2\n2024-01-01 00:00:03,3\n,4\n", 2,
     ["2 records without an event time", "the first at {}:4\n"]),
    (",x\n,2\n", 0, ["1 malformed record", "  at {}:2:2: expected BIGINT", "1 record without", "  at {}:3\n"]),
]


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("lines, counted, parts", CASES)
def test_the_first_record_that_does_not_count_is_shown(script, lines, counted, parts, workers):
    script.data("events.csv", "ts,k\n" + lines)
    result = script.run(SKIP + QUERY, "--workers", workers)
    assert result.code == 0, result.stderr
    assert result.stdout == (f"n\n{counted}\n" if counted else "n\n").encode()
    for part in parts:
        assert part.format(script.folder / "events.csv") in result.stderr, result.stderr
    assert ("\n  at " in result.stderr or "first at" in result.stderr) == bool(parts), result.stderr


def test_the_first_is_the_same_with_any_number_of_workers_and_size_of_batches(script):
    lines = [f"2024-01-01 00:00:{i % 60:02},{i}\n" for i in range(5_000)]
    for number in (3_000, 3_001, 4_500):
        lines[number] = f",{number}\n"
    for number in (2_500, 2_501, 4_000):
        lines[number] = "bad,bad\n"
    script.data("events.csv", "ts,k\n" + "".join(lines))
    for workers in (1, 2, 4):
        for rows in (1, 7, 1_000):
            result = script.run(SKIP + QUERY, "--workers", workers, batch_rows=rows)
            assert result.code == 0, result.stderr
            assert "events.csv:3002\n" in result.stderr, result.stderr
            assert "events.csv:2502:1: expected TIMESTAMP(3)" in result.stderr, result.stderr


def test_a_filtered_record_is_not_reported(script):
    script.data("events.csv", "ts,k\n,1\n,2\n2024-01-01 00:00:01,2\n")
    result = script.run(SKIP + QUERY.replace("GROUP", "WHERE k = 2 GROUP"))
    assert (result.code, result.stdout) == (0, b"n\n1\n"), result.stderr
    assert "1 record without an event time" in result.stderr
    assert "events.csv:3\n" in result.stderr, result.stderr


def test_where_there_is_no_file_the_record_is_counted(script):
    table = ("CREATE TABLE events (k BIGINT, ts AS CASE WHEN k < 5 THEN to_timestamp_seconds(k) END, "
             "WATERMARK FOR ts AS ts) WITH ('connector' = 'datagen', 'number-of-rows' = '10', "
             "'fields.k.kind' = 'sequence', 'fields.k.start' = '0', 'fields.k.end' = '9');\n")
    result = script.run(table + QUERY)
    assert result.code == 0, result.stderr
    assert "5 records without an event time" in result.stderr, result.stderr
    assert "record 6\n" in result.stderr, result.stderr

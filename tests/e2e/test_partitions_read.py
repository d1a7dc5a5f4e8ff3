"""Partitioned directories are read with their columns, whoever has written them."""

import re

import harness
import pytest

ROWS = 400
WAYS = [(1, 1), (3, 1), (2, 2)]


def table(name: str, columns: str, by: str, path: str, format: str = "csv") -> str:
    return (f"CREATE TABLE {name} ({columns}) PARTITIONED BY ({by}) "
            f"WITH ('connector' = 'file', 'path' = '{path}', 'format' = '{format}');\n")


def rows(result: harness.Run) -> list[list[str | None]]:
    assert result.code == 0, result.stderr
    return sorted(harness.parse_csv(result.stdout.decode())[1:], key=lambda row: [value or "" for value in row])


@pytest.mark.parametrize("workers, processes", WAYS)
@pytest.mark.parametrize("format", ["csv", "ndjson", "parquet", "arrow"])
def test_what_a_job_has_written_by_partitions_is_read_back(script, format, workers, processes):
    kinds = ["a", "b/c", "100%", "", "x=y", "é"]
    data = [(n, n % 3 - 1, kinds[n % len(kinds)], f"2024-05-0{n % 2 + 1} 12:00:00.{n % 2}00") for n in range(ROWS)]
    script.data("t.csv", "".join(f'{n},{k},{s and chr(34) + s + chr(34)},{ts}\n' for n, k, s, ts in data))
    columns = "n BIGINT, k INT, s STRING, ts TIMESTAMP(3)"
    made = (f"CREATE TABLE t ({columns}) WITH ('connector' = 'file', 'path' = 't.csv', 'format' = 'csv');\n"
            + table("o", columns, "ts, s, k", "out", format) + "INSERT INTO o SELECT * FROM t;")
    words = ["--processes", processes]
    assert script.run(made, *words, workers=workers, batch_rows=50).code == 0
    read = table("o", columns, "ts, s, k", "out", format)
    expected = sorted([str(n), str(k), s, ts] for n, k, s, ts in data)
    found = rows(script.run(read + "SELECT n, k, s, ts FROM o;", *words, workers=workers, batch_rows=7))
    assert sorted([n, k, s or "", ts] for n, k, s, ts in found) == expected
    # A column of partitions alone, and conditions on both kinds.
    found = rows(script.run(read + "SELECT k, COUNT(*) AS c FROM o GROUP BY k;", *words, workers=workers))
    assert found == sorted([str(k), str(sum(row[1] == k for row in data))] for k in (-1, 0, 1))
    found = rows(script.run(read + "SELECT n FROM o WHERE k = 1 AND n < 10 AND s = 'b/c';", *words, workers=workers))
    assert found == [[str(n)] for n, k, s, _ in data if k == 1 and n < 10 and s == "b/c"]


def test_partitions_that_others_have_written(script):
    for place, text in [("Day=2024-05-01/hour=7/x.csv", "1\n"), ("Day=2024-05-02/hour=8/y.csv", "2\n3\n"),
                        ("Day=2024-05-02/hour=__HIVE_DEFAULT_PARTITION__/z.csv", "4\n"), ("_SUCCESS", "no"),
                        ("Day=2024-05-02/_old/x.csv", "no")]:
        (script.folder / "in" / place).parent.mkdir(parents=True, exist_ok=True)
        script.data(f"in/{place}", text)
    columns = "n BIGINT, day DATE, hour INT, at BIGINT METADATA FROM 'offset' VIRTUAL"
    expected = [["1", "2024-05-01", "7", "0"], ["2", "2024-05-02", "8", "0"], ["3", "2024-05-02", "8", "2"],
                ["4", "2024-05-02", None, "0"]]
    for path in ["in", "in/*/hour=*/*.csv", "in/**/hour=*/?.csv"]:
        query = table("t", columns, "day, hour", path) + "SELECT n, day, hour, at FROM t WHERE n < 9;"
        found = rows(script.run(query))
        assert [row for row in found if row[1]] == expected, path
    # A value that does not fit is an error only where it is read.
    for wanted, code in [("n, hour", 0), ("day", 1)]:
        wrong = table("t", columns.replace("day DATE", "day INT"), "day, hour", "in") + f"SELECT {wanted} FROM t;"
        result = script.run(wrong)
        assert result.code == code, result.stderr
    # Workers read several files at once: either directory's may be the first.
    assert re.search(r"in/Day=(2024-05-0[12])/hour=\w+/[xyz]\.csv: expected INT for column 'day', "
                     r"found '\1' in the path", result.stderr), result.stderr
    never = table("t", columns.replace("hour INT", "hour INT NOT NULL"), "day, hour", "in") + "SELECT hour FROM t;"
    result = script.run(never)
    assert result.code == 1 and "column 'hour' is NOT NULL, and this partition has no value" in result.stderr


@pytest.mark.parametrize("where, found", [
    ("(day = 1 AND n > 0) OR (day = 2 AND n > 1)", ["1", "2"]),
    ("n > 0 AND (day = 1 OR (day = 2 AND s = 'x'))", ["1", "2"]),
    ("day IN (1, 5) AND n IN (1, 2)", ["1"]),
    ("(n = 7 AND day IN (2, 5)) OR day < 2", ["1"]),
])
def test_a_file_that_a_condition_excludes_is_not_opened(script, where, found):
    for day, text in [(1, "1,x"), (2, "2,x"), (3, "no,record,at,all")]:
        (script.folder / "in" / f"day={day}").mkdir(parents=True)
        script.data(f"in/day={day}/x.csv", f"{text}\n")
    read = table("t", "n BIGINT, s STRING, day INT", "day", "in")
    assert [row[0] for row in rows(script.run(read + f"SELECT n FROM t WHERE {where};"))] == found
    assert script.run(read + "SELECT n FROM t WHERE day = 3 OR n = 1;").code == 1


def test_what_lies_in_no_partition_is_refused(script):
    (script.folder / "in" / "day=1").mkdir(parents=True)
    script.data("in/day=1/x.csv", "1\n")
    script.data("in/stray.csv", "1\n")
    read = table("t", "n BIGINT, day INT", "day", "in") + "SELECT n, day FROM t;"
    result = script.run(read)
    assert result.code != 0 and "in/stray.csv: it is in no directory 'day=…'" in result.stderr, result.stderr
    (script.folder / "in" / "stray.csv").unlink()
    assert rows(script.run(read)) == [["1", "1"]]
    result = script.run(table("t", "n BIGINT, month INT", "month", "in/*/*") + "SELECT n, month FROM t;")
    assert result.code != 0 and "in no directory 'month=…', as PARTITIONED BY (month) has it" in result.stderr

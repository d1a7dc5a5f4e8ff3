"""CSV files as people have them: first lines that are no header, quotes that are never closed; and reading back
what was written."""

import csv
import json
import random

import harness
import pytest

TABLE = ("CREATE TABLE t ({}) WITH ('connector' = 'file', 'path' = 't.csv', 'format' = 'csv'{});\n")
TEXTS = "k STRING, v STRING"
REMARK = "t.csv:1:1: read as a record; if it is a header, say so with 'csv.header' = 'true' (or 'false')"


@pytest.mark.parametrize("processes", [1, 3])
@pytest.mark.parametrize("columns, lines, more, said", [
    (TEXTS, "name,city\na,b\n", "", True),
    (TEXTS, "name,city\na,b\n", ", 'csv.header' = 'false'", False),
    (TEXTS, "v,k\na,b\nc,d\n", "", False),
    ("k STRING, v BIGINT", "a,1\nb,2\n", "", False),
])
def test_what_was_decided_of_a_first_line_is_said_where_it_is_in_doubt(script, columns, lines, more, said, processes):
    script.data("t.csv", lines)
    result = script.run(TABLE.format(columns, more) + "SELECT COUNT(k) AS n FROM t;", "--processes", processes,
                        workers=1)
    assert (result.code, result.stdout) == (0, b"n\n2\n"), result.stderr
    assert result.stderr.count(REMARK) == said, result.stderr
    # Once, however many queries read the file.
    count = "SELECT COUNT(k) AS n FROM t;"
    again = count + TABLE.format(columns, more).replace("TABLE t", "TABLE again") + count + count.replace("t;", "again;")
    result = script.run(TABLE.format(columns, more) + again, "--processes", processes, workers=1)
    assert (result.code, result.stderr.count(REMARK)) == (0, said), result.stderr


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("more", ["", ", 'csv.ignore-parse-errors' = 'true'"])
@pytest.mark.parametrize("lines, parts", [
    ("key,value\n1,2\n", ["t.csv:1:1: the first line is neither a header with the table's columns nor a record",
                          "expected BIGINT for column 'k', found 'key'", "'csv.header' = 'true'", "'csv.header' = 'false'"]),
    ("k,value\n1,2\n", ["t.csv:1:1: the header has no column 'v'", "'csv.header' = 'false'"]),
    ("k;v\n1;2\n", ["expected 2 fields, one for each column, found 1", "set 'csv.field-delimiter' to it"]),
])
def test_a_first_line_that_may_be_either_is_refused(script, lines, parts, more, processes):
    script.data("t.csv", lines)
    result = script.run(TABLE.format("k BIGINT, v BIGINT", more) + "SELECT COUNT(k) AS n FROM t;", "--processes",
                        processes, workers=1)
    assert (result.code, result.stdout) == (1, b""), result.stderr
    assert all(part in result.stderr for part in parts), result.stderr


@pytest.mark.parametrize("columns, lines", [
    ("country STRING, v INT", "country,2023\nde,7\n"),
    ("name STRING, country STRING, v INT", "de,Country,2023\nde,fr,7\n"),
    ("country STRING, name STRING", "country,1\n3,c\n"),
])
def test_one_name_of_a_column_is_doubt(script, columns, lines):
    """A header that has another name for a column must not count as data."""
    script.data("t.csv", lines)
    asked = "SELECT COUNT(*) AS n FROM t;"
    result = script.run(TABLE.format(columns, "") + asked, workers=1)
    assert (result.code, result.stdout) == (1, b""), result.stderr
    said = "t.csv:1:1: the first line may be a header or a record: it has the name of column country, but not of "
    assert said in result.stderr, result.stderr
    assert "'csv.header' = 'true'" in result.stderr and "'csv.header' = 'false'" in result.stderr, result.stderr
    # The way out that it names.
    result = script.run(TABLE.format(columns.replace("INT", "STRING"), ", 'csv.header' = 'false'") + asked, workers=1)
    assert (result.code, result.stdout) == (0, f"n\n{lines.count(chr(10))}\n".encode()), result.stderr


@pytest.mark.parametrize("bytes_, left_out", [((1 << 20) - 1, False), (1 << 20, True)])
def test_a_closed_field_that_is_too_long_is_called_that(script, bytes_, left_out):
    script.data("t.csv", f'k,v\n1,"{"x" * bytes_}"\n2,y\n')
    sql = TABLE.format("k BIGINT, v STRING", ", 'csv.ignore-parse-errors' = 'true'") + "SELECT COUNT(*) AS n FROM t;"
    result = script.run(sql, workers=1)
    assert (result.code, result.stdout) == (0, f"n\n{1 if left_out else 2}\n".encode()), result.stderr
    said = "t.csv:2:3: the field in quotes that starts here is longer than 1 MiB"
    assert (said in result.stderr) == left_out and "never closed" not in result.stderr, result.stderr


@pytest.mark.parametrize("seed", range(3))
def test_open_quotes_cost_their_lines_whoever_reads_them(script, seed):
    """Lines are good but for those whose quote stays open; the expected rows are those of the good ones."""
    draw = random.Random(seed)
    lines, wrong = [], []
    for number in range(3_000):
        good = [f"{number},plain", f'{number},"in quotes"', f'{number},"two\nlines"', f'{number},"a ""word"""']
        if draw.random() < 0.01:
            wrong.append(1 + sum(line.count("\n") + 1 for line in lines))
            lines.append(f'{number},"open')
            # Behind an open quote the next one must be another field's, with text behind it.
            lines.append(f'{number},"in quotes"')
        else:
            lines.append(draw.choice(good))
    script.data("t.csv", "k,v\n" + "\n".join(lines) + "\n")
    rows = [row for line in lines for row in csv.reader([line]) if not line.endswith(',"open')]
    total = sum(int(line.split(",")[0]) for line in lines if not line.endswith(',"open'))
    sql = TABLE.format("k BIGINT, v STRING", ", 'csv.ignore-parse-errors' = 'true'")
    sql += "SELECT COUNT(*) AS n, SUM(k) AS k, SUM(CHAR_LENGTH(v)) AS v FROM t;"
    told = set()
    for processes, workers, batch_rows in [(1, 1, 16_384), (1, 3, 100), (1, 2, 1), (2, 1, 1_000), (3, 2, 16_384)]:
        result = script.run(sql, "--processes", processes, workers=workers, batch_rows=batch_rows)
        n, k, v = result.stdout.decode().splitlines()[1].split(",")
        assert (result.code, int(n), int(k)) == (0, len(rows), total), result.stderr
        assert f"{len(wrong)} malformed records left out" in result.stderr, result.stderr
        place = f"t.csv:{wrong[0] + 1}:"
        assert place in result.stderr and "the quote that opens here is never closed" in result.stderr, result.stderr
        told.add(v)
    assert len(told) == 1, told


def test_an_open_quote_is_named_where_nothing_is_left_out(script):
    script.data("t.csv", 'k,v\n1,a\n2,"b\n' + "3,c\n" * 500 + '4,"d"\n')
    for processes in (1, 2):
        result = script.run(TABLE.format("k BIGINT, v STRING", "") + "SELECT COUNT(*) FROM t;", "--processes", processes,
                            workers=1)
        assert result.code == 1
        assert "t.csv:3:3: the quote that opens here is closed on line 504, where text follows" in result.stderr
        assert "'csv.disable-quote-character' = 'true'" in result.stderr, result.stderr


def test_one_column_of_nulls_and_empty_texts_is_read_back(script):
    script.data("t.csv", 'k,v\n1,\n2,""\n3,x\n4,\n')
    out = "CREATE TABLE o (v STRING) WITH ('connector' = 'file', 'path' = '{}', 'format' = 'csv');\n"
    sql = (TABLE.format("k BIGINT, v STRING", "") + out.format("out") + "INSERT INTO o SELECT v FROM t LIMIT 9;\n"
           + "DROP TABLE o;\n" + out.format("out/part-0-0")
           + "SELECT COUNT(*) AS all_rows, COUNT(v) AS texts, COUNT(NULLIF(v, '')) AS longer FROM o;")
    result = script.run(sql, workers=1)
    assert (result.code, result.stdout) == (0, b"all_rows,texts,longer\n4,2,1\n"), result.stderr
    assert (script.folder / "out/part-0-0").read_text() == 'v\n\n""\nx\n\n'


def test_json_is_json(script):
    """Python's reader is the judge; what it must find is what the CSV file holds."""
    texts = ['a"b', "back\\slash", "line\nend", "\ttab\r", "\u0001\u001f\u007f", "\u2028\u00e9\u4e16\U0001f600", "", "</script>"]
    rows = [[str(n), text, value] for n, (text, value) in
            enumerate(zip(texts, ["1.5", "NaN", "Infinity", "-Infinity", "-0.0", "1e300", "", "5e-324"]))]
    with open(script.folder / "t.csv", "w", encoding="utf-8", newline="") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows([["k", "v", "f"], *rows])
    sql = (TABLE.format("k BIGINT, v STRING, f DOUBLE", "")
           + 'SELECT k AS "a \\ ""name""", v, f, CAST(k AS DECIMAL(38, 20)) AS d, k > 3 AS b, '
           + "to_timestamp_millis(k) AS ts, CAST(NULL AS INT) AS nothing FROM t;")
    result = harness.run("run", script.write(sql), "--format", "ndjson", settings={"workers": 1})
    assert result.code == 0, result.stderr
    found = [json.loads(line) for line in result.stdout.decode().removesuffix("\n").split("\n")]
    assert [row["v"] for row in found] == texts
    assert [row['a \\ "name"'] for row in found] == list(range(8))
    assert [row["f"] for row in found] == [1.5, "NaN", "Infinity", "-Infinity", -0.0, 1e300, None, 5e-324]
    assert [row["b"] for row in found] == [False] * 4 + [True] * 4
    assert all(row["nothing"] is None and row["d"] == n for n, row in enumerate(found))
    assert found[1]["ts"] == "1970-01-01 00:00:00.001"

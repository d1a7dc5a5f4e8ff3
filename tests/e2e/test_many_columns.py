"""Queries with more than 64 aggregates that can be NULL: more than a word of state has bits."""

import csv
import io

import pytest

COLUMNS = 200
KEYS = 5
RECORDS = 3_000

# A column has a number now and then only, some never; a key and a column that met none give NULL.
CELLS = [
    [r * (c + 1) if (r * 31 + c * 17) % 997 < 2 else None for c in range(COLUMNS - 1)] + [None]
    for r in range(RECORDS)
]


def sums():
    """What each key's row is, without a look at the program."""
    for key in range(KEYS):
        columns = zip(*(CELLS[r] for r in range(key, RECORDS, KEYS)))
        met = [[cell for cell in column if cell is not None] for column in columns]
        yield [str(key)] + [str(of(cells)) if cells else "" for cells in met for of in (sum, max)]


@pytest.mark.parametrize(
    "options, workers",
    [
        ((), 1),
        ((), 3),
        (("--processes", 2), 2),
        (("--set", "exchange=interleaved"), 3),
        (("--set", "exchange=repartition", "--processes", 2), 2),
    ],
)
def test_each_of_hundreds_of_aggregates_can_be_null(script, options, workers):
    lines = (",".join([str(r % KEYS)] + ["" if c is None else str(c) for c in cells]) for r, cells in enumerate(CELLS))
    script.data("wide.csv", "\n".join(lines) + "\n")
    columns = ", ".join(f"c{c} BIGINT" for c in range(COLUMNS))
    calls = ", ".join(f"SUM(c{c}), MAX(c{c})" for c in range(COLUMNS))
    done = script.run(
        f"CREATE TABLE t (k BIGINT, {columns}) WITH ("
        "'connector' = 'filesystem', 'path' = 'wide.csv', 'format' = 'csv', 'csv.header' = 'false');\n"
        f"SELECT k, {calls} FROM t GROUP BY k;\n",
        *options,
        workers=workers,
    )
    assert done.code == 0, done.stderr
    header, *rows = csv.reader(io.StringIO(done.stdout.decode()))
    expected = list(sums())
    # Every key has both, and the last column is nowhere met.
    assert all(0 < row.count("") < len(row) and row[-2:] == ["", ""] for row in expected)
    assert len(header) == 1 + 2 * COLUMNS
    assert sorted(rows) == expected


def test_a_row_too_long_for_a_message_is_refused_before_the_others_hear_of_it(script):
    columns = 5_000
    script.data("wide.csv", ",".join(["1"] * columns) + "\n")
    text = (
        f"CREATE TABLE t ({', '.join(f'c{c} BIGINT' for c in range(columns))}) WITH ("
        "'connector' = 'filesystem', 'path' = 'wide.csv', 'format' = 'csv', 'csv.header' = 'false');\n"
        f"SELECT {', '.join(f'SUM(c{c})' for c in range(columns))} FROM t;\n"
    )
    done = script.run(text, workers=1)
    assert done.code == 0, done.stderr
    assert done.stdout.decode().splitlines()[-1] == ",".join(["1"] * columns)
    done = script.run(text, "--processes", 2, workers=1)
    message = done.stderr.decode() if isinstance(done.stderr, bytes) else done.stderr
    assert done.code == 1, message
    assert "bytes per key, and a message between processes has room for" in message
    assert "run it in one process" in message
    assert "process 1" not in message

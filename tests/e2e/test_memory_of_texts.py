"""The memory budget with long keys and long texts. The other tests of memory are in test_memory.py; both files take minutes."""

from pathlib import Path

import pytest
from conftest import WINDOW
from test_memory import MIB, WORKERS, allowed, base, peak, show

__all__ = ["base"]


@pytest.fixture(scope="session")
def long_keys(tmp_path_factory) -> Path:
    """A million distinct keys of about 100 bytes in one window."""
    path = tmp_path_factory.mktemp("long-keys") / "events.csv"
    with open(path, "w", encoding="ascii") as file:
        file.write("ts,k\n")
        for i in range(1_000_000):
            file.write(f"2024-01-01 00:00:01,{i * 7919 % 1_000_003:010}-{'x' * 89}\n")
    return path


def long_keys_sql(path: Path) -> str:
    return (f"CREATE TABLE events (ts TIMESTAMP(3), k STRING, WATERMARK FOR ts AS ts)\n"
            f"WITH ('connector' = 'file', 'path' = '{path}', 'format' = 'csv');\n" + WINDOW)


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("budget", [100, 300, 600])
def test_many_long_keys_in_one_window(script, base, long_keys, capsys, workers, budget):
    nothing = base(workers)
    limit = allowed(nothing, budget, workers)
    code, used, stderr = peak(script, long_keys_sql(long_keys), workers=workers, memory=f"{budget}MB")
    show(capsys, f"long keys, {workers} workers, {budget} MB", used, nothing, limit, code)
    # The keys alone are 100 MB. State and sorted rows of the window fit into 300 MB.
    assert code == (1 if budget == 100 else 0), stderr
    if code == 1:
        for word in ("memory", "keys", str(budget * MIB), "--set memory="):
            assert word in stderr, stderr
    else:
        assert sum(1 for _ in open(script.folder / "out.csv", "rb")) == 1_000_001
    assert used <= limit


WIDE_TEXTS = "CREATE TABLE events (k BIGINT) WITH ('connector' = 'datagen', 'number-of-rows' = '8000',\n" \
             "    'fields.k.kind' = 'sequence');\n"


def sixty(form: str) -> str:
    return ", ".join(form.format(i) for i in range(60))


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("query, fits", [
    ("SELECT " + sixty("REPEAT('x', 3000 + CAST(k % 7 AS INT)) AS c{}") + " FROM events;", False),
    ("SELECT SUM(" + " + ".join(f"CHAR_LENGTH(REPEAT('x', 3000 + CAST(k % 7 AS INT) + {i}))" for i in range(60)) +
     ") AS n FROM events;", True),
    ("SELECT " + sixty("MAX(REPEAT('x', 3000 + CAST(k % 7 AS INT) + {0})) AS c{0}") + " FROM events;", True),
    ("SELECT COUNT(*) AS n FROM events GROUP BY " + sixty("REPEAT('x', 3000 + CAST(k % 7 AS INT) + {})") + ";", True),
    ("SELECT k, " + sixty("REPEAT('x', 3000 + CAST(k % 7 AS INT)) AS c{}") + " FROM events GROUP BY k;", False),
    ("INSERT INTO nothing SELECT k, " + sixty("LPAD('x', 3000 + CAST(k % 7 AS INT)) AS c{}") +
     " FROM events GROUP BY k;", True),
])
def test_texts_of_all_columns_have_one_bound(script, base, capsys, workers, query, fits):
    """Sixty columns of 3 kB: a batch of all 8000 rows would have 1.4 GB of them, a bound for each 64 MB sixty times."""
    types = ", ".join(f"c{i} STRING" for i in range(60))
    nothing = f"CREATE TABLE nothing (k BIGINT, {types}) WITH ('connector' = 'blackhole');\n"
    unused = base(workers)
    # What a worker uses for the batch at hand: its texts, what they are made of, and what is written of them.
    limit = allowed(unused, 64, workers) + workers * 4 * 64 * MIB
    code, used, stderr = peak(script, WIDE_TEXTS + nothing + query, workers=workers, memory="64MB")
    show(capsys, f"sixty texts, {workers} workers", used, unused, limit, code)
    assert used <= limit
    assert code == (0 if fits else 1), stderr
    if not fits:
        assert "than 64 MB together" in stderr and "batch.rows" in stderr or "needs more memory" in stderr, stderr

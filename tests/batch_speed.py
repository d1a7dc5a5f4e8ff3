#!/usr/bin/env python3
"""How fast queries over a file that ends are, beside DuckDB's query for the same rows, by turns with the same threads.

    tests/batch_speed.py windows                        windows and sessions of milliseconds
    tests/batch_speed.py distinct --threads 1           COUNT(DISTINCT) and the sketches, with one thread only
    tests/batch_speed.py windows --only tumble,hop --keys 1 --pairs 5

The file is Parquet, made by DuckDB where it is not there: 20 million records in the order of their time, 25 of them in 3
milliseconds, with keys of 1, 1,000 and 1,000,000 values. Millstream's time is that of the whole program, from its start
to its end; its rows go to a blackhole. DuckDB's time is that of the query alone, which counts its rows and sums them up.
Both must have the same number of rows. `--check` compares these sums, too; Millstream then adds them up in a query
around the query, so the times are not those of the query. Estimates are compared roughly.

Prints a line for each query and number of threads: medians, and the median of the ratios of the pairs (above 1:
Millstream is quicker). MILLSTREAM_BIN is the program, a release build (otherwise the newest).
"""

import argparse
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

import duckdb
import harness

COLUMNS = "ts TIMESTAMP(6), k1 BIGINT, k1000 BIGINT, k1000000 BIGINT, v BIGINT, x DOUBLE"
KEYS = ("1", "1000", "1000000")


@dataclass
class Query:
    """The same rows, asked of both. `{k}` is the key's column, `{t}` the table."""

    name: str
    ours: str
    theirs: str
    # The types of the columns of `ours` after the key.
    types: str
    # Columns whose sums are compared, and whether they are estimates.
    sums: tuple[str, ...] = ("n", "s")
    estimates: bool = False


def windowed(name: str, function: str, theirs: str) -> Query:
    ours = (f"SELECT {{k}}, window_start AS w, COUNT(*) AS n, SUM(v) AS s FROM TABLE({function}) "
            "GROUP BY {k}, window_start, window_end")
    return Query(name, ours, theirs, "w TIMESTAMP(3), n BIGINT, s BIGINT")


def tumble(ms: int) -> Query:
    return windowed(
        f"tumble {ms} ms", f"TUMBLE(TABLE {{t}}, DESCRIPTOR(ts), INTERVAL '{ms / 1000}' SECOND)",
        f"SELECT epoch_ms(ts) // {ms} AS w, {{k}}, count(*) AS n, sum(v) AS s FROM {{t}} GROUP BY ALL")


def panes(ms: int) -> str:
    """What DuckDB groups first: otherwise it would take each record for each of its windows."""
    return f"SELECT epoch_ms(ts) // {ms} AS p, {{k}}, count(*) AS n, sum(v) AS s FROM {{t}} GROUP BY ALL"


def hop(slide: int, size: int) -> Query:
    count = size // slide
    return windowed(
        f"hop {size} ms / {slide} ms",
        f"HOP(TABLE {{t}}, DESCRIPTOR(ts), INTERVAL '{slide / 1000}' SECOND, INTERVAL '{size / 1000}' SECOND)",
        f"SELECT p - i AS w, {{k}}, sum(n)::BIGINT AS n, sum(s) AS s FROM ({panes(slide)}), range({count}) AS r(i) "
        "GROUP BY ALL")


def cumulate(step: int, size: int) -> Query:
    count = size // step
    return windowed(
        f"cumulate {size} ms / {step} ms",
        f"CUMULATE(TABLE {{t}}, DESCRIPTOR(ts), INTERVAL '{step / 1000}' SECOND, INTERVAL '{size / 1000}' SECOND)",
        f"SELECT p // {count} AS w, i, {{k}}, sum(n)::BIGINT AS n, sum(s) AS s "
        f"FROM ({panes(step)}), range({count}) AS r(i) WHERE i >= p % {count} GROUP BY ALL")


def session(gap: int) -> Query:
    return windowed(
        f"session {gap} ms", f"SESSION(TABLE {{t}} PARTITION BY {{k}}, DESCRIPTOR(ts), INTERVAL '{gap / 1000}' SECOND)",
        "SELECT {k}, number, count(*) AS n, sum(v) AS s FROM (SELECT {k}, v, sum(begins) OVER "
        "(PARTITION BY {k} ORDER BY m ROWS UNBOUNDED PRECEDING) AS number FROM (SELECT {k}, v, epoch_ms(ts) AS m, "
        f"CASE WHEN epoch_ms(ts) - lag(epoch_ms(ts)) OVER (PARTITION BY {{k}} ORDER BY ts) <= {gap} "
        "THEN 0 ELSE 1 END AS begins FROM {t})) GROUP BY ALL")


def keyed(name: str, ours: str, theirs: str, kind: str, estimates: bool) -> Query:
    return Query(name, f"SELECT {{k}}, {ours} AS n FROM {{t}} GROUP BY {{k}}",
                 f"SELECT {{k}}, {theirs} AS n FROM {{t}} GROUP BY {{k}}", f"n {kind}", ("n",), estimates)


def sketch(name: str, kind: str, ours: str, theirs: str | None = None) -> Query:
    return keyed(name, ours, theirs or ours, kind, True)


WINDOWS = [tumble(1), tumble(10), hop(1, 10), hop(1, 50), cumulate(1, 10), cumulate(1, 50), session(1)]
DISTINCT = [
    keyed("count distinct", "COUNT(DISTINCT v)", "count(DISTINCT v)", "BIGINT", False),
    sketch("approx count distinct", "BIGINT", "APPROX_COUNT_DISTINCT(v)"),
    sketch("approx percentile", "DOUBLE", "APPROX_PERCENTILE(x, 0.5)", "approx_quantile(x, 0.5)"),
    sketch("approx top k", "INT", "CARDINALITY(APPROX_TOP_K(v, 10))", "len(approx_top_k(v, 10))"),
]


def make(path: Path, records: int) -> None:
    """Writes the file."""
    # Numbers that repeat nowhere, mixed well enough: the low bits of a product have all the factor's.
    mixed = "((i * 2654435761) % 4294967296)"
    duckdb.sql(f"""COPY (SELECT TIMESTAMP '2024-01-01 00:00:00' + to_milliseconds(i * 3 // 25) AS ts, 0::BIGINT AS k1,
        (hash(i) % 1000)::BIGINT AS k1000, (hash(i) % 1000000)::BIGINT AS k1000000, (hash(i + 1) % 1000000)::BIGINT AS v,
        {mixed} / 1048576.0 AS x FROM range({records}) AS r(i)) TO '{path}.part' (FORMAT parquet)""")
    Path(f"{path}.part").rename(path)


def script(query: Query, path: Path, key: str, check: bool) -> str:
    inner = query.ours.format(k=f"k{key}", t="t")
    table = f"CREATE TABLE t ({COLUMNS}, WATERMARK FOR ts AS ts) WITH ('connector' = 'file', 'path' = '{path}', 'format' = 'parquet');"
    if check:
        sums = ", ".join(f"SUM({name}) AS {name}" for name in query.sums)
        return f"{table} SELECT COUNT(*) AS c, {sums} FROM ({inner}) AS inner_rows;"
    return (f"{table} CREATE TABLE nowhere (k BIGINT, {query.types}) WITH ('connector' = 'blackhole'); "
            f"INSERT INTO nowhere {inner};")


def millstream(query: Query, path: Path, key: str, workers: int, check: bool) -> tuple[float, tuple[float, ...]]:
    """Seconds, and the number of rows, with the sums if they are wanted."""
    begun = time.perf_counter()
    run = harness.run("run", "-e", script(query, path, key, check), "--format", "csv", settings={"workers": workers},
                      timeout=600)
    seconds = time.perf_counter() - begun
    assert run.code == 0, run.stderr
    if check:
        return seconds, tuple(map(float, run.stdout.decode().splitlines()[1].split(",")))
    return seconds, (run.stats["rows"],)


def by_duckdb(query: Query, path: Path, key: str, threads: int) -> tuple[float, tuple[float, ...]]:
    """Seconds, and the number of rows and their sums."""
    connection = duckdb.connect(config={"threads": threads})
    inner = query.theirs.format(k=f"k{key}", t=f"read_parquet('{path}')")
    sums = ", ".join(f"sum({name})" for name in query.sums)
    begun = time.perf_counter()
    answer = connection.execute(f"SELECT count(*), {sums} FROM ({inner})").fetchone()
    seconds = time.perf_counter() - begun
    connection.close()
    return seconds, tuple(map(float, answer))


def agree(query: Query, ours: tuple[float, ...], theirs: tuple[float, ...]) -> bool:
    if ours[0] != theirs[0]:
        return False
    error = 0.1 if query.estimates else 0
    return all(abs(a - b) <= error * abs(b) for a, b in zip(ours[1:], theirs[1:]))


def compare(query: Query, path: Path, key: str, threads: int, given: argparse.Namespace) -> float:
    """The median of our seconds."""
    ours, theirs, ratios = [], [], []
    for _ in range(given.pairs):
        seconds, answer = millstream(query, path, key, threads, given.check)
        other, expected = by_duckdb(query, path, key, threads)
        assert agree(query, answer, expected), f"{query.name}, {key} keys: {answer}, DuckDB {expected}"
        ours.append(seconds)
        theirs.append(other)
        ratios.append(other / seconds)
    print(f"{query.name:24} {key:>8} key(s) {threads} thread(s): {statistics.median(ours):7.3f} s, "
          f"DuckDB {statistics.median(theirs):7.3f} s, ratio {statistics.median(ratios):5.2f}", flush=True)
    return statistics.median(ours)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["windows", "distinct"])
    parser.add_argument("--only", help="queries whose names begin with one of these, separated by commas")
    parser.add_argument("--records", type=int, default=20_000_000)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--keys", help="1, 1000 or 1000000, several with commas; default 1 (windows) or all (distinct)")
    parser.add_argument("--folder", type=Path, default=Path("target/batch_speed"))
    parser.add_argument("--check", action="store_true", help="compare the sums, too")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    path = (given.folder / f"records-{given.records}.parquet").resolve()
    if not path.exists():
        make(path, given.records)
    windows = given.what == "windows"
    keys = given.keys.split(",") if given.keys else list(KEYS[:1] if windows else KEYS)
    if set(keys) - set(KEYS):
        parser.error(f"--keys: some of {', '.join(KEYS)}")
    queries = WINDOWS if windows else DISTINCT
    if given.only:
        queries = [query for query in queries if query.name.startswith(tuple(given.only.split(",")))]
    if not queries:
        parser.error("--only: no query's name begins so")
    for query in queries:
        for key in keys:
            seconds = [compare(query, path, key, threads, given) for threads in map(int, given.threads.split(","))]
            if len(seconds) > 1 and seconds[-1] > seconds[0]:
                print(f"{query.name}: more threads are slower", flush=True)


if __name__ == "__main__":
    main()

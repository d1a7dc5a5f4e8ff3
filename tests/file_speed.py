#!/usr/bin/env python3
"""How fast files are read, beside DuckDB: `millstream-lab bench files` and the same query in DuckDB, by turns.

Both read the same file with the same number of threads, in the same run. The answers must agree: the number of result
rows, the records counted in them, and their sum. Prints a line for each format and number of threads: the median times
and the median of the ratios of the pairs (above 1: Millstream is quicker), and for two threads the speed-up over one.

    tests/file_speed.py --records 20000000 --pairs 5        with MILLSTREAM_LAB_BIN, a release build

DuckDB reads Arrow files through another package only, so that format has no ratio.
"""

import argparse
import json
import os
import statistics
import subprocess
import time
from pathlib import Path

import duckdb

COLUMNS = {"ts": "TIMESTAMP", "user_id": "BIGINT", "price": "DOUBLE", "quantity": "INTEGER", "country": "VARCHAR",
           "page": "VARCHAR"}
TYPES = "{" + ", ".join(f"'{name}': '{kind}'" for name, kind in COLUMNS.items()) + "}"
TABLES = {
    "csv": "read_csv('{}', header = true, columns = " + TYPES + ")",
    "ndjson": "read_json('{}', format = 'newline_delimited', columns = " + TYPES + ")",
    "parquet": "read_parquet('{}')",
}
QUERY = """SELECT count(*), sum(n)::BIGINT, sum(s) FROM (
    SELECT time_bucket(INTERVAL '1 minute', ts) AS w, user_id, count(*) AS n, sum(price) AS s
    FROM {} WHERE quantity > 20 GROUP BY w, user_id)"""


def millstream(words: list[object]) -> dict:
    """What `millstream-lab bench files` says of itself."""
    program = os.environ.get("MILLSTREAM_LAB_BIN", "target/release/millstream-lab")
    done = subprocess.run([program, "bench", "files", *map(str, words)], capture_output=True, text=True, check=True)
    return json.loads(done.stdout) if "--json" in words else {}


def by_duckdb(table: str, threads: int) -> tuple[float, tuple]:
    """Seconds, and the answer."""
    connection = duckdb.connect(config={"threads": threads})
    begun = time.perf_counter()
    answer = connection.execute(QUERY.format(table)).fetchone()
    seconds = time.perf_counter() - begun
    connection.close()
    return seconds, answer


def agree(ours: dict, theirs: tuple) -> bool:
    """Whether both have the same answer; sums of DOUBLE may differ in their last digits."""
    rows, counted, total = theirs
    return (ours["rows"], ours["counted"]) == (rows, counted) and abs(ours["sum"] - total) <= 1e-9 * abs(total)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=20_000_000)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--formats", default="csv,ndjson,parquet,arrow")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--folder", type=Path, default=Path("target/files"))
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    for form in given.formats.split(","):
        path = given.folder / f"events-{given.records}.{form}"
        named = ["--format", form, "--file", path, "--records", given.records]
        if not path.exists():
            millstream([*named, "--generate-only"])
        alone = 0.0
        for threads in map(int, given.threads.split(",")):
            ours, theirs, ratios = [], [], []
            for _ in range(given.pairs):
                run = millstream([*named, "--workers", threads, "--json"])
                ours.append(run["seconds"])
                if form in TABLES:
                    seconds, answer = by_duckdb(TABLES[form].replace("{}", str(path)), threads)
                    assert agree(run, answer), f"{form}: {run} and {answer}"
                    theirs.append(seconds)
                    ratios.append(seconds / run["seconds"])
            seconds = statistics.median(ours)
            line = f"{form:8} {threads} thread(s): {seconds:7.3f} s, {path.stat().st_size / seconds / 1e6:6.0f} MB/s"
            if ratios:
                line += f", DuckDB {statistics.median(theirs):7.3f} s, ratio {statistics.median(ratios):5.2f}"
            if threads == 1:
                alone = seconds
            elif alone:
                line += f", {alone / seconds:4.2f} times one thread"
            print(line, flush=True)


if __name__ == "__main__":
    main()

"""Processing time: `proc AS PROCTIME()`, of which the clock, not the records, moves windows on."""

from datetime import datetime, timezone

import pytest
from test_pipe import Piped

CLICKS = ("CREATE TABLE clicks (k BIGINT, proc AS PROCTIME()) WITH ('connector' = 'file', 'format' = 'csv', "
          "'path' = 'events.csv');\n")
COUNT = ("SELECT window_start, window_end, k, COUNT(*) AS n FROM TABLE({}(TABLE clicks{}, DESCRIPTOR(proc), {})) "
         "GROUP BY window_start, window_end, k;")
KINDS = {
    "tumble": COUNT.format("TUMBLE", "", "INTERVAL '0.5' SECOND"),
    "hop": COUNT.format("HOP", "", "INTERVAL '0.25' SECOND, INTERVAL '0.5' SECOND"),
    "session": COUNT.format("SESSION", " PARTITION BY k", "INTERVAL '0.5' SECOND"),
}


def now() -> datetime:
    return datetime.now(timezone.utc).replace(tzinfo=None)


@pytest.fixture
def piped(script):
    started = []

    def begin(sql: str, *words: str) -> Piped:
        started.append(Piped(script, sql, *words))
        return started[-1]

    yield begin
    for one in started:
        one.kill()


@pytest.mark.parametrize("words", [("--workers", "1"), ("--workers", "2"), ("--processes", "2")])
@pytest.mark.parametrize("kind", KINDS)
def test_windows_fire_by_the_clock(piped, kind, words):
    begun = now()
    job = piped(CLICKS + KINDS[kind], *words)
    job.write("k\n1\n1\n2\n")
    # Nothing more comes, and the input has not ended.
    assert job.next() == "window_start,window_end,k,n"
    counts: dict[str, int] = {}
    ends = []
    # Each record is in two windows that hop.
    wanted = {"1": 4, "2": 2} if kind == "hop" else {"1": 2, "2": 1}
    while counts != wanted:
        start, end, key, count = job.next().split(",")
        counts[key] = counts.get(key, 0) + int(count)
        assert counts[key] <= wanted[key]
        start, end = datetime.fromisoformat(start), datetime.fromisoformat(end)
        assert start < end <= now() and end > begun
        ends.append(end)
    assert ends == sorted(ends)
    job.write("3\n3\n")
    job.end()
    # The last lines may come after the end of the program.
    rest, wanted = [], 4 if kind == "hop" else 2
    while sum(int(count) for *_, count in rest) < wanted:
        rest.append(job.next().split(","))
    assert sum(int(count) for *_, count in rest) == wanted
    assert {key for *_, key, _ in rest} == {"3"}


def test_files_have_no_late_records(script):
    script.data("events.csv", "k\n" + "".join(f"{i % 7}\n" for i in range(200_000)))
    for words in [(), ("--workers", 2), ("--processes", 2)]:
        sql = CLICKS + ("SELECT SUM(n) AS n FROM (SELECT window_end, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE clicks, "
                        "DESCRIPTOR(proc), INTERVAL '0.001' SECOND)) GROUP BY window_start, window_end);")
        result = script.run(sql, *words, batch_rows=100)
        assert (result.code, result.stdout) == (0, b"n\n200000\n"), result.stderr
        assert result.stats["late_records"] == 0


def test_the_time_of_reading_is_a_column_like_any_other(script):
    script.data("events.csv", "k\n1\n2\n")
    before = now().replace(microsecond=0)
    result = script.run(CLICKS + "SELECT k, CAST(proc AS TIMESTAMP(3)) AS at, proc IS NULL AS none FROM clicks;")
    rows = [line.split(",") for line in result.stdout.decode().splitlines()[1:]]
    assert [(key, none) for key, _, none in rows] == [("1", "false"), ("2", "false")]
    assert all(before <= datetime.fromisoformat(at) <= now() for _, at, _ in rows), rows


@pytest.mark.parametrize("sql, words", [
    (CLICKS + "SELECT PROCTIME() AS t FROM clicks;", ["PROCTIME() stands in CREATE TABLE", "proc AS PROCTIME()"]),
    (CLICKS.replace("PROCTIME()", "CAST(PROCTIME() AS DATE)"), ["PROCTIME() stands in CREATE TABLE"]),
    (CLICKS.replace("PROCTIME()", "PROCTIME(), WATERMARK FOR proc AS proc"), ["'proc' is processing time"]),
    (CLICKS + "SELECT CURRENT_WATERMARK(k) AS w FROM clicks;", ["takes the event time, not BIGINT"]),
    (CLICKS + "SELECT CURRENT_WATERMARK(proc) AS w FROM clicks;",
     ["takes a rowtime attribute, and 'proc' is processing time"]),
])
def test_where_it_does_not_run(script, sql, words):
    script.data("events.csv", "k\n1\n")
    result = script.run(sql)
    assert result.code == 2, result.stderr
    assert all(word in result.stderr for word in words), result.stderr

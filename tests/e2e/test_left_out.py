"""Records that do not count, in tables of their own: malformed ones (`on_error`) and late ones (`late`)."""

import json
import random
import shutil
from datetime import datetime, timedelta

import pytest

BAD = ("CREATE TABLE bad_rows (raw STRING, place STRING, reason STRING) "
       "WITH ('connector' = 'file', 'path' = '{}', 'format' = 'ndjson');\n")
TABLE = ("CREATE TABLE events (ts TIMESTAMP(3), k BIGINT, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND) "
         "WITH ('connector' = 'file', 'path' = '{}', 'format' = '{}'{});\n")
TUMBLE = "TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '10' SECOND))"
COUNT = f"SELECT window_start, COUNT(*) AS n FROM {TUMBLE} {{}} GROUP BY window_start, window_end;"
START = datetime(2024, 1, 1)
WAYS = [{"workers": 1}, {"workers": 3, "batch_rows": 7}, {"workers": 2, "batch_rows": 1}, {"processes": 2}]


def rows_in(folder) -> list[dict]:
    """The rows of a directory of NDJSON files that a job has written."""
    parts = [path for path in folder.iterdir() if path.name.startswith("part-")]
    return [json.loads(line) for path in parts for line in path.read_text().splitlines()]


def run(script, sql: str, way: dict):
    """Runs a script in one of the ways; every run writes to a directory of its own."""
    words = ["--processes", way["processes"], "--workers", 1] if "processes" in way else []
    return script.run(sql, *words, **{key: value for key, value in way.items() if key != "processes"})


@pytest.mark.parametrize("way", WAYS)
def test_malformed_records_of_a_csv_file_come_as_they_stand(script, way):
    lines = [f"2024-01-01 00:{i // 60:02}:{i % 60:02},{i}" for i in range(2_000)]
    lines[3], lines[500], lines[1_999] = "never,3", "2024-01-01 00:08:20,1,2", 'x"y,z'
    script.data("events.csv", "ts,k\n" + "\n".join(lines) + "\n")
    table = TABLE.format("events.csv", "csv", ", 'on_error' = 'table:bad_rows'")
    result = run(script, BAD.format("bad") + table + "SELECT COUNT(ts) AS n, SUM(k) AS s FROM events;", way)
    assert result.code == 0, result.stderr
    counted = [i for i in range(2_000) if i not in (3, 500, 1_999)]
    assert result.stdout == f"n,s\n{len(counted)},{sum(counted)}\n".encode()
    place = str(script.folder / "events.csv")
    bad = sorted((row["place"], row["raw"]) for row in rows_in(script.folder / "bad"))
    assert bad == sorted([(f"{place}:5:1", lines[3]), (f"{place}:502:1", lines[500]), (f"{place}:2001:1", lines[1_999])])
    reasons = {row["raw"]: row["reason"] for row in rows_in(script.folder / "bad")}
    assert reasons[lines[3]] == "expected TIMESTAMP(3) for column 'ts', found 'never'"
    assert reasons[lines[500]].startswith("expected 2 fields"), reasons
    assert (result.stats["malformed_records"], result.stats["rows"]) == (3, 1)
    assert "3 malformed records left out" in result.stderr, result.stderr


@pytest.mark.parametrize("way", WAYS)
def test_malformed_records_of_ndjson_files_come_from_all_files(script, way):
    (script.folder / "in").mkdir()
    expected = []
    for number in range(3):
        lines = [json.dumps({"ts": f"2024-01-01 00:{i // 60:02}:{i % 60:02}", "k": i}) for i in range(100)]
        lines[10 * number] = '{"ts": 1.5}'
        lines[50] = '{"k": "x"'
        lines[70] = ""
        script.data(f"in/{number}.ndjson", "\r\n".join(lines) + "\n")
        path = str(script.folder / "in" / f"{number}.ndjson")
        expected += [(f"{path}:{10 * number + 1}", lines[10 * number]), (f"{path}:51", lines[50])]
    table = TABLE.format("in", "ndjson", ", 'on_error' = 'table:bad_rows'")
    result = run(script, BAD.format("bad") + table + "SELECT COUNT(*) AS n, MAX(ts) AS t, MAX(k) AS k FROM events;", way)
    assert (result.code, result.stdout) == (0, b"n,t,k\n291,2024-01-01 00:01:39.000,99\n"), result.stderr
    bad = rows_in(script.folder / "bad")
    assert sorted((row["place"].rsplit(":", 1)[0], row["raw"]) for row in bad) == sorted(expected)
    assert all(row["reason"] for row in bad)


def test_bytes_that_are_no_text_are_kept_as_bytes(script):
    script.data("events.csv", b"ts,k\n2024-01-01 00:00:01,\xff\n")
    bad = BAD.format("bad").replace("raw STRING", "raw BYTES")
    table = TABLE.format("events.csv", "csv", ", 'on_error' = 'table:bad_rows'")
    result = script.run(bad + table + "SELECT k FROM events;")
    assert (result.code, result.stdout) == (0, b"k\n"), result.stderr
    # In base64, as bytes are written.
    assert [row["raw"] for row in rows_in(script.folder / "bad")] == ["MjAyNC0wMS0wMSAwMDowMDowMSz/"]


def test_skip_leaves_them_out_and_fail_is_the_default(script):
    script.data("events.csv", "ts,k\n2024-01-01 00:00:01,x\n2024-01-01 00:00:02,2\n")
    for more, code, rows in [("skip", 0, b"k\n2\n"), ("fail", 1, None)]:
        table = TABLE.format("events.csv", "csv", f", 'on_error' = '{more}'")
        result = script.run(table + "SELECT k FROM events;")
        assert result.code == code, result.stderr
        assert rows is None or result.stdout == rows
    assert "events.csv:2:21: expected BIGINT" in result.stderr


COMPUTED = ("CREATE TABLE events (a STRING, b BIGINT, n AS CAST(a AS INT), q AS 100 / b, ts AS to_timestamp_seconds(b), "
            "WATERMARK FOR ts AS ts) WITH ('connector' = 'file', 'path' = 'events.{}', 'format' = '{}', "
            "'on_error' = '{}');\n")


def values(number: int) -> tuple[str, int]:
    """What a record holds: sometimes a text that is no number, sometimes a divisor of 0."""
    return ("x" if number % 97 == 5 else str(number), 0 if number % 101 == 7 else number + 1)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("form", ["csv", "ndjson"])
def test_records_whose_columns_cannot_be_computed_are_malformed(script, way, form):
    records = [values(number) for number in range(3_000)]
    lines = [f"{a},{b}" if form == "csv" else json.dumps({"a": a, "b": b}) for a, b in records]
    lines[10] = "1,2,3" if form == "csv" else "{"
    script.data(f"events.{form}", "a,b\n" * (form == "csv") + "\n".join(lines) + "\n")
    bad = [i for i, (a, b) in enumerate(records) if i == 10 or a == "x" or b == 0]
    counted = [i for i in range(3_000) if i not in bad]
    query = "SELECT COUNT(*) AS c, SUM(n) AS n, SUM(q) AS q FROM events;"
    result = run(script, BAD.format("bad") + COMPUTED.format(form, form, "table:bad_rows") + query, way)
    assert result.code == 0, result.stderr
    total = sum(100 // (i + 1) for i in counted)
    assert result.stdout == f"c,n,q\n{len(counted)},{sum(counted)},{total}\n".encode()
    rows = {row["raw"]: row for row in rows_in(script.folder / "bad")}
    assert sorted(rows) == sorted({lines[i] for i in bad})
    assert len(rows_in(script.folder / "bad")) == result.stats["malformed_records"] == len(bad)
    first = lines.index(next(line for i, line in enumerate(lines) if records[i][0] == "x"))
    row = rows[lines[first]]
    assert row["place"].startswith(f"{script.folder / 'events.'}{form}:{first + 1 + (form == 'csv')}"), row
    assert "CAST(a AS INT)" in row["reason"] and "'x'" in row["reason"], row
    zero = rows[lines[7]]
    assert "100 / b" in zero["reason"] and "zero" in zero["reason"], zero
    # Records that no query computes anything of are no worse than others.
    plain = script.run(COMPUTED.format(form, form, "skip") + "SELECT COUNT(*) AS c FROM events;")
    assert plain.stdout == b"c\n2999\n", plain.stderr
    # Windows, too.
    windows = COUNT.replace("'10' SECOND", "'1' DAY").replace("COUNT(*) AS n", "COUNT(*) AS c, SUM(n) AS n")
    skipped = run(script, COMPUTED.format(form, form, "skip") + windows.format(""), way)
    kept = [i for i, (a, _) in enumerate(records) if a != "x" and i != 10]
    assert skipped.stdout.decode().splitlines()[1].split(",", 1)[1] == f"{len(kept)},{sum(kept)}", skipped.stderr
    failed = script.run(COMPUTED.format(form, form, "fail") + query)
    assert failed.code == 1, failed.stderr


@pytest.mark.parametrize("way", [{"workers": 1}, {"workers": 1, "batch_rows": 7}, {"workers": 1, "batch_rows": 1}])
@pytest.mark.parametrize("form", ["csv", "ndjson"])
def test_malformed_records_come_in_the_order_of_the_file(script, way, form):
    """Those that are no records, and those of which a column cannot be computed, whatever chunk they are in."""
    records = [values(number) for number in range(2_000)]
    lines = [f"{a},{b}" if form == "csv" else json.dumps({"a": a, "b": b}) for a, b in records]
    for number in range(3, 2_000, 89):
        lines[number] = f"{number},1,2" if form == "csv" else f'{{"a": "{number}'
    bad = [line for number, line in enumerate(lines) if number % 89 == 3 or records[number][0] == "x" or not records[number][1]]
    script.data(f"events.{form}", "a,b\n" * (form == "csv") + "\n".join(lines) + "\n")
    query = "SELECT COUNT(*) AS c, SUM(n) AS n, SUM(q) AS q FROM events;"
    result = run(script, BAD.format("bad") + COMPUTED.format(form, form, "table:bad_rows") + query, way)
    assert result.code == 0, result.stderr
    assert [row["raw"] for row in rows_in(script.folder / "bad")] == bad
    # The first is one of which a column cannot be computed, before one that is no record, and is what is told.
    first = "events." + form + (":5" if form == "csv" else ":4")
    assert f"the first at {script.folder / first}:" in result.stderr, result.stderr
    lines[1] = lines[5]
    script.data(f"events.{form}", "a,b\n" * (form == "csv") + "\n".join(lines) + "\n")
    for on_error in ("table:bad_rows", "skip"):
        shutil.rmtree(script.folder / "bad")
        sql = BAD.format("bad") + COMPUTED.format(form, form, on_error) + query
        result = run(script, sql, way)
        (script.folder / "bad").mkdir(exist_ok=True)
        first = "events." + form + (":3: cannot" if form == "csv" else ":2: cannot")
        assert f"the first at {script.folder / first}" in result.stderr, result.stderr


@pytest.mark.parametrize("way", WAYS)
def test_lines_that_are_no_text_are_malformed(script, way):
    lines = [f"line {i}".encode() for i in range(2_000)]
    lines[7], lines[900], lines[1_999] = b"caf\xe9", b"\xff", b"\xc3"
    script.data("x.log", b"\n".join(lines) + b"\n")
    table = "CREATE TABLE lines (line {}) WITH ('connector' = 'file', 'path' = 'x.log', 'format' = 'raw', 'on_error' = '{}');\n"
    query = "SELECT COUNT(line) AS n, MIN(line) AS least FROM lines;"
    kept = run(script, BAD.format("bad").replace("raw STRING", "raw BYTES") + table.format("STRING", "table:bad_rows") + query, way)
    assert (kept.code, kept.stdout) == (0, b"n,least\n1997,line 0\n"), kept.stderr
    place = str(script.folder / "x.log")
    found = sorted((row["place"], row["raw"], row["reason"]) for row in rows_in(script.folder / "bad"))
    why = "the line is not valid UTF-8"
    assert found == sorted([(f"{place}:8:4", "Y2Fm6Q==", why), (f"{place}:901:1", "/w==", why), (f"{place}:2000:1", "ww==", why)])
    skipped = run(script, table.format("STRING", "skip") + query, way)
    assert skipped.stdout == kept.stdout
    said = f"3 malformed records left out ('on_error')\n  the first at {place}:8:4: {why}\n"
    assert said in skipped.stderr, skipped.stderr
    bytes_ = run(script, table.format("BYTES", "skip") + "SELECT COUNT(line) AS n FROM lines;", way)
    assert (bytes_.stdout, bytes_.stats["malformed_records"]) == (b"n\n2000\n", 0), bytes_.stderr
    failed = run(script, table.format("STRING", "fail") + query, way)
    # On several processes it is the line of the process that comes first.
    places = ("8:4", "901:1", "2000:1") if way.get("processes", 1) > 1 else ("8:4",)
    assert failed.code == 1 and any(f"{place}:{at}: {why}" in failed.stderr for at in places), failed.stderr
    wrong = script.run(table.format("STRING", "often") + query)
    assert wrong.code != 0 and "'fail', 'skip' or 'table:NAME'" in wrong.stderr, wrong.stderr


def late_by_a_model(times: list[datetime], size: int, lateness: int = 0) -> list[int]:
    """The numbers of the records that are late: by the greatest time before each."""
    late, greatest = [], None
    for number, time in enumerate(times):
        start = START + timedelta(seconds=(time - START).total_seconds() // size * size)
        closed = start + timedelta(seconds=size + lateness)
        if greatest is not None and closed <= greatest - timedelta(seconds=5):
            late.append(number)
        greatest = time if greatest is None else max(greatest, time)
    return late


def disordered(seed: int, count: int) -> list[datetime]:
    """Times that go on by a second, of which some come far too late."""
    pick = random.Random(seed)
    back = [pick.choice([0, 0, 0, 2, 6, 30]) for _ in range(count)]
    return [START + timedelta(seconds=max(0, i - back[i])) for i in range(count)]


LATE = ("CREATE TABLE late_rows (k BIGINT, ts TIMESTAMP(3), place STRING, reason STRING) "
        "WITH ('connector' = 'file', 'path' = '{}', 'format' = 'ndjson');\n")


@pytest.mark.parametrize("lateness", [0, 8])
@pytest.mark.parametrize("way", WAYS)
def test_late_records_come_with_their_place_and_the_reason(script, way, lateness):
    times = disordered(7, 3_000)
    late = late_by_a_model(times, 10, lateness)
    assert 100 < len(late) < 2_000
    script.data("events.csv", "ts,k\n" + "".join(f"{time},{i}\n" for i, time in enumerate(times)))
    table = TABLE.format("events.csv", "csv", ", 'late' = 'table:late_rows'")
    setting = f"SET 'allowed_lateness' = '{lateness} s';\n"
    result = run(script, setting + LATE.format("late") + table + COUNT.format(""), way)
    assert result.code == 0, result.stderr
    rows = rows_in(script.folder / "late")
    assert sorted(row["k"] for row in rows) == late
    assert result.stats["late_records"] == len(late)
    counted = sum(int(line.split(",")[1]) for line in result.stdout.decode().splitlines()[1:])
    assert counted == len(times) - len(late)
    for row in rows:
        assert row["place"] == f"{script.folder / 'events.csv'}:{row['k'] + 2}"
        assert datetime.fromisoformat(row["ts"]) == times[row["k"]]
        start = START + timedelta(seconds=(times[row["k"]] - START).total_seconds() // 10 * 10)
        assert f"its window ended at {start + timedelta(seconds=10)}" in row["reason"], row
        watermark = max(times[:row["k"]]) - timedelta(seconds=5)
        assert row["reason"].endswith(f"the watermark was at {watermark}"), row


def test_only_records_that_the_query_wants_are_late_for_it(script):
    times = disordered(8, 500)
    late = [number for number in late_by_a_model(times, 10) if number % 3 == 0]
    script.data("events.csv", "ts,k\n" + "".join(f"{time},{i}\n" for i, time in enumerate(times)))
    table = TABLE.format("events.csv", "csv", ", 'late' = 'table:late_rows'")
    result = script.run(LATE.format("late") + table + COUNT.format("WHERE MOD(k, 3) = 0"))
    assert result.code == 0, result.stderr
    assert sorted(row["k"] for row in rows_in(script.folder / "late")) == late


@pytest.mark.parametrize("window, listed", [
    ("TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '1' MINUTE)", ["b"]),
    ("HOP(TABLE events, DESCRIPTOR(ts), INTERVAL '1' MINUTE, INTERVAL '1' MINUTE)", ["b"]),
    ("CUMULATE(TABLE events, DESCRIPTOR(ts), INTERVAL '1' MINUTE, INTERVAL '1' MINUTE)", ["b"]),
    # b is in [11:59:30, 12:00:30) and [12:00, 12:01); WHERE leaves the first out.
    ("HOP(TABLE events, DESCRIPTOR(ts), INTERVAL '30' SECOND, INTERVAL '1' MINUTE)", ["b"]),
    # [12:00, 13:00) has a window that has not ended, in which b counts.
    ("CUMULATE(TABLE events, DESCRIPTOR(ts), INTERVAL '1' MINUTE, INTERVAL '1' HOUR)", []),
])
def test_a_record_whose_windows_where_leaves_out_is_not_late(script, window, listed):
    script.data("lt.csv", "ts,k\n2024-05-01 12:00:00,a\n2024-05-01 12:01:30,a\n2024-05-01 12:00:20,b\n"
                          "2024-05-01 11:00:00,zz\n")
    table = ("CREATE TABLE events (ts TIMESTAMP(3), k STRING, WATERMARK FOR ts AS ts) WITH "
             "('connector' = 'file', 'path' = 'lt.csv', 'format' = 'csv', 'late' = 'table:late_rows');\n")
    count = (f"SELECT window_start, window_end, COUNT(*) FROM TABLE({window}) WHERE window_start >= "
             "TIMESTAMP '2024-05-01 12:00:00' GROUP BY window_start, window_end;")
    late = LATE.replace("k BIGINT", "k STRING").format("late")
    result = script.run(late + table + count)
    assert result.code == 0, result.stderr
    assert [row["k"] for row in rows_in(script.folder / "late")] == listed
    assert result.stats["late_records"] == len(listed)


def test_where_asks_of_windows_of_local_time(script):
    # 23:00 in UTC is 01:00 of the next day in Zurich. Its windows begin at 12:00 of the day before, and at midnight.
    script.data("events.csv", "ts,k\n2024-04-30 23:00:00Z,1\n")
    sql = ("SET 'time_zone' = 'Europe/Zurich';\nCREATE TABLE events (ts TIMESTAMP_LTZ(3), k BIGINT, WATERMARK FOR ts AS "
           "ts) WITH ('connector' = 'file', 'path' = 'events.csv', 'format' = 'csv');\n")
    window = "HOP(TABLE events, DESCRIPTOR(ts), INTERVAL '12' HOUR, INTERVAL '1' DAY)"
    for start in ("2024-04-30 12:00:00", "2024-05-01 00:00:00"):
        query = (f"SELECT window_start, COUNT(*) AS n FROM TABLE({window}) "
                 f"WHERE window_start = TIMESTAMP '{start}' GROUP BY window_start, window_end;")
        result = script.run(sql + query)
        assert result.stdout == f"window_start,n\n{start}.000,1\n".encode(), result.stderr


@pytest.mark.parametrize("way", WAYS)
def test_of_several_windows_each_has_its_own_late_records(script, way):
    times = disordered(9, 1_000)
    script.data("events.csv", "ts,k\n" + "".join(f"{time},{i}\n" for i, time in enumerate(times)))
    table = TABLE.format("events.csv", "csv", ", 'late' = 'table:late_rows'")
    sinks = "".join(f"CREATE TABLE s{i} (w TIMESTAMP(3), n BIGINT) WITH ('connector' = 'blackhole');\n" for i in (1, 2))
    wide = COUNT.replace("'10' SECOND", "'20' SECOND").format("")
    both = f"EXECUTE STATEMENT SET BEGIN INSERT INTO s1 {COUNT.format('')} INSERT INTO s2 {wide} END;"
    result = run(script, LATE.format("late") + table + sinks + both, way)
    assert result.code == 0, result.stderr
    expected = sorted(late_by_a_model(times, 10) + late_by_a_model(times, 20))
    assert sorted(row["k"] for row in rows_in(script.folder / "late")) == expected


ELEMENTS = ("CREATE TABLE events (ts TIMESTAMP(3), k BIGINT, xs ARRAY<INT>, WATERMARK FOR ts AS ts) WITH "
            "('connector' = 'file', 'path' = 'events.ndjson', 'format' = 'ndjson', 'late' = 'table:late_rows');\n"
            "CREATE VIEW elements AS SELECT * FROM (SELECT * FROM events WHERE k < 5) CROSS JOIN UNNEST(xs) AS x "
            "WHERE x > 0;\n")


@pytest.mark.parametrize("way", WAYS)
def test_records_without_elements_are_counted_as_late_where_they_are_listed(script, way):
    # Records 2 to 5 come after 12:10. Their elements: none, three, NULL, one; the query does not want record 5.
    records = [("12:00:00", [1, 2]), ("12:10:00", [1]), ("12:00:10", []), ("12:00:20", [-5, 6, 7]),
               ("12:00:30", None), ("12:00:40", [1]), ("12:20:00", [-1])]
    lines = [json.dumps({"ts": f"2024-05-01 {ts}", "k": k, "xs": xs}) for k, (ts, xs) in enumerate(records)]
    script.data("events.ndjson", "\n".join(lines) + "\n")
    sql = LATE.format("late") + ELEMENTS + (
        "SELECT window_start, COUNT(*) AS n, SUM(x) AS total FROM TABLE(TUMBLE(TABLE elements, DESCRIPTOR(ts), "
        "INTERVAL '1' MINUTE)) GROUP BY window_start, window_end;")
    result = run(script, sql, way)
    assert result.code == 0, result.stderr
    assert result.stdout == b"window_start,n,total\n2024-05-01 12:00:00.000,2,3\n2024-05-01 12:10:00.000,1,1\n"
    assert sorted(row["k"] for row in rows_in(script.folder / "late")) == [2, 3, 4]
    assert result.stats["late_records"] == 3



def test_two_tables_may_share_one_and_a_limit_ends_the_job(script):
    script.data("a.csv", "v\nx\n1\n")
    script.data("b.csv", "v\ny\n2\n")
    tables = "".join(f"CREATE TABLE {name} (v BIGINT) WITH ('connector' = 'file', 'path' = '{name}.csv', "
                     "'format' = 'csv', 'csv.header' = 'true', 'on_error' = 'table:bad_rows');\n" for name in "ab")
    result = script.run(BAD.format("bad") + tables + "SELECT v FROM a UNION ALL SELECT v FROM b;")
    assert (result.code, result.stdout) == (0, b"v\n1\n2\n"), result.stderr
    assert sorted(row["raw"] for row in rows_in(script.folder / "bad")) == ["x", "y"]
    endless = ("CREATE TABLE t (n BIGINT, ts AS to_timestamp_seconds(n), WATERMARK FOR ts AS ts) WITH ('connector' = "
               "'datagen', 'rows-per-second' = '1000', 'late' = 'table:late_rows', 'fields.n.kind' = 'sequence', "
               "'fields.n.start' = '0');\n")
    late = "CREATE TABLE late_rows (n BIGINT) WITH ('connector' = 'blackhole');\n"
    result = script.run(endless + late + "SELECT n FROM t LIMIT 3;")
    assert (result.code, result.stdout) == (0, b"n\n0\n1\n2\n"), result.stderr


EVENTS = TABLE.format("events.csv", "csv", ", '{}' = '{}'")
ANY = "SELECT k FROM events;"
WRONG = [
    (EVENTS.format("on_error", "table:nowhere") + ANY, "there is no table 'nowhere'", "CREATE TABLE nowhere (raw BYTES"),
    (EVENTS.format("on_error", "table:events") + ANY, "cannot go to 'events' itself", "declare it"),
    (EVENTS.format("on_error", "table:") + ANY, "'table:' names no table", "table:bad_rows"),
    (EVENTS.format("on_error", "ignore") + ANY, "expected 'fail', 'skip' or 'table:NAME', found 'ignore'", ""),
    (EVENTS.format("late", "skip") + ANY, "'late' is 'drop' or 'table:NAME', not 'skip'", ""),
    (EVENTS.format("late", "table:nowhere") + COUNT.format(""), "there is no table 'nowhere'", "declare it before"),
    (EVENTS.format("late", "table:late_rows").replace(", WATERMARK FOR ts AS ts - INTERVAL '5' SECOND", "") + ANY,
     "nothing can be late here", "declare WATERMARK"),
    ("CREATE TABLE bad (raw STRING, row_number BIGINT) WITH ('connector' = 'blackhole');\n"
     + EVENTS.format("on_error", "table:bad") + ANY, "nothing for column 'row_number' of 'bad'", "raw, place, reason"),
    ("CREATE TABLE bad (place BIGINT) WITH ('connector' = 'blackhole');\n" + EVENTS.format("on_error", "table:bad")
     + ANY, "column 'place' of 'bad' is BIGINT, and here is STRING", "declare it STRING"),
    ("CREATE TABLE late_rows (k BIGINT NOT NULL) WITH ('connector' = 'blackhole');\n"
     + EVENTS.format("late", "table:late_rows") + COUNT.format(""), "is NOT NULL, and may be NULL", "leave NOT NULL out"),
    ("CREATE VIEW bad AS SELECT 1 AS raw;\n" + EVENTS.format("on_error", "table:bad") + ANY,
     "nothing can be inserted into the view 'bad'", "declare it"),
    ("CREATE TABLE bad (raw STRING) WITH ('connector' = 'print');\n" + EVENTS.format("on_error", "table:bad") + ANY,
     "would be written to the same place as the query's rows", "a file"),
    ("CREATE TABLE bad (raw STRING) WITH ('connector' = 'blackhole');\n" + EVENTS.format("on_error", "table:bad")
     + "INSERT INTO bad SELECT 'x' FROM events;", "would be written to the same place as INSERT INTO bad", "own"),
]


@pytest.mark.parametrize("sql, message, help_", WRONG)
def test_mistakes_are_found_before_anything_runs(script, sql, message, help_):
    script.data("events.csv", "ts,k\n2024-01-01 00:00:01,1\n")
    result = script.run(sql)
    assert result.code == 2 and result.stdout == b"", result.stderr
    assert message in result.stderr and help_ in result.stderr, result.stderr
    assert "query.sql:" in result.stderr, result.stderr

"""The memory budget, as the system sees it: resident memory of whole jobs, at their peak.

A job may take the memory of an almost empty job (the program, its libraries' tables, a stack per worker) plus its
budget. What the budget cannot count (unused memory in the allocator, buffers of the current batch) may be at most
a seventh of the budget and some megabytes per worker. The rings between several processes come on top.
"""

import datetime
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import harness
import pytest
from conftest import WINDOW, events, generated, into

MIB = 1 << 20
WORKERS = [1, 2, 4]
RING_BYTES = 8 * 64 * 1024


# What a program takes at its peak counts from what whoever starts it has ever taken. So a small program starts it, and
# tells the peak of its child, or of a process that this one has started, whichever is larger.
MEASURE = """import resource, subprocess, sys
code = subprocess.call(sys.argv[1:])
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)
sys.exit(code)"""


def command(path: Path, settings: dict[str, object]) -> list[str]:
    return [str(harness.program()), "run", "--format", "csv", str(path), *harness.set_options(settings)]


def peak(script, sql: str, **settings: object) -> tuple[int, int, str]:
    """Exit code, peak resident bytes, stderr."""
    with open(script.folder / "out.csv", "wb") as out:
        done = subprocess.run([sys.executable, "-c", MEASURE, *command(script.write(sql), settings)], stdout=out,
                              stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
    stderr, _, kib = done.stderr.rstrip("\n").rpartition("\n")
    return done.returncode, int(kib) * 1024, stderr


def allowed(base: int, budget_mib: int, workers: int) -> int:
    """Beside the budget each worker has a batch, and its allocator pages for pieces of every size, of half a MiB each if
    these are large."""
    return base + int(budget_mib * MIB * 1.15) + workers * 12 * MIB


def rings(processes: int, workers: int) -> int:
    """Rings of one process: to each other process, and from there, one for each of the workers and one for messages.
    Of a ring to send with there is a copy here, and over shared memory the peer's own is here, too."""
    return (processes - 1) * (workers + 1) * 3 * RING_BYTES


def show(capsys, what: str, used: int, base: int, limit: int, code: int) -> None:
    with capsys.disabled():
        print(f"\n{what}: {used / MIB:.0f} MiB at the peak, {base / MIB:.0f} without state, "
              f"at most {limit / MIB:.0f}, exit code {code}")


@pytest.fixture
def base(script):
    """Resident bytes of a job with one record."""
    def measure(workers: int, **settings: object) -> int:
        code, used, stderr = peak(script, generated(rows=1, step="1 ms") + WINDOW, workers=workers, **settings)
        assert code == 0, stderr
        return used
    return measure


WIDE = """SELECT window_start, k, COUNT(*) AS n, SUM(k) AS s, MIN(k) AS low, MAX(k) AS high, AVG(k) AS mean,
    SUM(k + CAST(0.5 AS DOUBLE)) AS total, AVG(k * CAST(0.3 AS DOUBLE)) AS middle,
    MIN(CONCAT('a', CAST(k AS STRING))) AS first, MAX(CONCAT('b', CAST(k AS STRING))) AS last,
    SUM(k + CAST(1 AS DECIMAL(20, 2))) AS exact
FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '600' SECOND))
GROUP BY window_start, window_end, k;
"""


def unique_keys(rows: int, step: str, more: str = "") -> str:
    return (generated(rows=rows, step=step, more=more)
            .replace("'fields.k.min' = '0', 'fields.k.max' = '9'", "'fields.k.kind' = 'sequence'"))


@pytest.mark.parametrize("workers", WORKERS)
def test_wide_aggregates(script, base, capsys, workers):
    # About half a kilobyte of state per key: 100,000 keys fit, 1,000,000 don't.
    nothing = base(workers)
    limit = allowed(nothing, 128, workers)
    for rows, expected in [(100_000, 0), (1_000_000, 1)]:
        sql = unique_keys(rows, "1 us") + WIDE
        code, used, stderr = peak(script, sql, workers=workers, memory="128MB")
        show(capsys, f"{rows} wide rows, {workers} workers, 128 MB", used, nothing, limit, code)
        assert code == expected, stderr
        assert used <= limit


@pytest.mark.parametrize("workers", WORKERS)
def test_many_open_windows(script, base, capsys, workers):
    """Windows of a second that wait a day for late records: all are open at once."""
    sql = unique_keys(2_000_000, "10 ms") + WINDOW.replace("'10' S", "'1' S")
    nothing = base(workers)
    limit = allowed(nothing, 64, workers)
    code, used, stderr = peak(script, sql, workers=workers, memory="64MB", allowed_lateness="1 day")
    show(capsys, f"20,000 open windows, {workers} workers, 64 MB", used, nothing, limit, code)
    assert code == 1 and str(64 * MIB) in stderr, stderr
    assert used <= limit
    # With a minute of lateness a few windows are open, and all goes through.
    settings = {"workers": workers, "memory": "64MB", "allowed_lateness": "60 s", "batch.rows": 1000}
    code, used, stderr = peak(script, sql, **settings)
    assert code == 0, stderr
    assert used <= limit


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("step", ["10 ms", "1 s"])
def test_small_windows(script, base, capsys, workers, step):
    """Windows that fire as they come go through a budget that holds some hundred of them: state does not pile
    up at whoever is ahead, and what has fired frees its memory before anybody decides that it does not fit."""
    rows = {"10 ms": 2_000_000, "1 s": 50_000}[step]
    sql = generated(rows=rows, step=step) + WINDOW.replace("'10' S", "'1' S")
    nothing = base(workers)
    limit = allowed(nothing, 32, workers)
    code, used, stderr = peak(script, sql, workers=workers, memory="32MB")
    show(capsys, f"windows of {'100 records' if step == '10 ms' else 'one'}, {workers} workers, 32 MB", used, nothing, limit, code)
    assert code == 0, stderr
    assert used <= limit


@pytest.mark.parametrize("fabric", ["shm", "tcp"])
def test_state_beyond_one_budget_fits_several_processes(script, base, capsys, fabric):
    """Rows go to files, of which each process writes its own; printed, they would all go through one budget."""
    rows, processes, budget = 2_000_000, 4, 38

    def sql(path: str) -> str:
        return unique_keys(rows, "1 us", ", 'splits' = '4'") + into(path=path) + "INSERT INTO results " + WINDOW

    def run(path: str, **settings: object) -> tuple[int, int, str]:
        return peak(script, sql(path), workers=1, **settings)

    state = script.run(sql("plenty"), workers=1).stats["state_bytes_rest"]
    assert 2 * budget * MIB <= state <= 2.1 * budget * MIB
    code, _, stderr = run("alone", memory=f"{budget}MB")
    assert code == 1 and "error: aggregate by (k) needs more memory" in stderr and str(budget * MIB) in stderr, stderr

    together = {"processes": processes, "fabric": fabric}
    nothing = base(1, **together)
    for each, expected in [(budget, 0), (16, 1)]:
        code, used, stderr = run(f"with {each} MB", memory=f"{each}MB", **together)
        limit = allowed(nothing, each, 1) + rings(processes, 1)
        show(capsys, f"{state / MIB:.0f} MiB of state, 4 processes over {fabric}, {each} MB", used, nothing, limit, code)
        assert code == expected, stderr
        assert used <= limit
    # Four times as much is not enough either.
    assert re.search(r"error: process \d: aggregate by \(k\) needs more memory", stderr) and str(16 * MIB) in stderr, stderr
    written = sorted((script.folder / f"with {budget} MB").iterdir())
    assert [path.name for path in written] == [f"part-{process}-0" for process in range(processes)]
    seen = bytearray(rows)
    for path in written:
        with open(path, encoding="ascii") as file:
            assert next(file) == "window_start,k,n\n"
            for line in file:
                start, k, n = line.split(",")
                assert (start, n, seen[int(k)]) == ("2024-01-01 00:00:00.000", "1\n", 0), line
                seen[int(k)] = 1
    assert all(seen)


def resident_bytes(pid: int) -> int:
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmRSS"))


def cpu_ticks(pid: int) -> int:
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return int(fields[11]) + int(fields[12])


def wait_until_it_rests(process: subprocess.Popen) -> None:
    """Waits until the program has stopped working: less than a tenth of a core over a second."""
    per_second, deadline = os.sysconf("SC_CLK_TCK"), time.monotonic() + 60
    while time.monotonic() < deadline:
        before = cpu_ticks(process.pid)
        time.sleep(1)
        if process.poll() is not None:
            pytest.fail(f"it ended: {process.stderr.read().decode()}")
        if cpu_ticks(process.pid) - before < per_second / 10:
            return
    pytest.fail("it still works although nobody reads its output")


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("query", ["stateless", "windows"])
def test_a_reader_that_waits_stops_the_job(script, base, capsys, workers, query):
    """Output that nobody takes must not pile up: the job waits instead."""
    sql = unique_keys(50_000_000, "1 ms")
    sql += "SELECT k, ts FROM events;" if query == "stateless" else WINDOW
    nothing = base(workers)
    process = subprocess.Popen(command(script.write(sql), {"workers": workers, "memory": "64MB"}), stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
    try:
        assert process.stdout.readline()
        wait_until_it_rests(process)
        used, limit = resident_bytes(process.pid), allowed(nothing, 64, workers)
        show(capsys, f"nobody reads, {query}, {workers} workers, 64 MB", used, nothing, limit, 0)
        assert used <= limit
        # When the reader goes on, so does the job.
        for _ in range(100_000):
            assert process.stdout.readline().endswith(b"\n")
    finally:
        process.stdout.close()
        process.kill()
        process.stderr.close()
        process.wait()


MANY_KEYS = """
CREATE TABLE v (id BIGINT, k BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND) WITH (
    'connector' = 'datagen', 'number-of-rows' = '2000000', 'splits' = '4', 'seed' = '7', 'fields.id.kind' = 'sequence',
    'fields.k.min' = '1', 'fields.k.max' = '200000', 'fields.ts.start' = '2024-01-01 00:00:00',
    'fields.ts.step' = '20 us');
SELECT window_start, k, COUNT(*) AS n, SUM(id) AS s
FROM TABLE(TUMBLE(TABLE v, DESCRIPTOR(ts), INTERVAL '1' SECOND))
GROUP BY window_start, window_end, k;
"""


def test_scarce_memory_loses_no_rows(script):
    """Workers that pass rows of some keys through and aggregate others, and have hardly room to: all records count."""
    path = script.write(MANY_KEYS)

    def lines(**settings: object) -> list[str]:
        done = subprocess.run(command(path, settings), capture_output=True, text=True, check=True)
        return done.stdout.split("\n")

    alone = lines(workers=1)
    assert sum(int(line.split(",")[2]) for line in alone[1:] if line) == 2_000_000
    for seed in range(1, 3):
        assert lines(workers=4, memory="24MB", simulate=seed) == alone, f"simulate={seed}"


def test_long_texts_are_made_a_few_rows_at_a_time(script):
    script.data("events.csv", "ts,k,name\n" + "".join(f"2024-01-01 00:00:01,{k},{name}\n"
                                                     for k, name in [(1, "ab"), (2, "xaa"), (3, "z")]))
    result = script.run(events("k BIGINT, name STRING") + """
        SELECT LENGTH(LPAD(name, 10000000, 'é')) AS padded, RIGHT(LPAD(name, 10000000, 'é'), 3) AS padded_end,
               OCTET_LENGTH(REPEAT(name, 5000000)) AS repeated,
               LENGTH(REPLACE(REPEAT(name, 200000), 'a', 'bcdefghijk')) AS replaced,
               LENGTH(REGEXP_REPLACE(REPEAT(name, 400000), '[a]', REPEAT('y', 20))) AS matched,
               LENGTH(REPEAT('x', 9000000) || name) AS joined, SUBSTR(REPEAT('xy', 15000000), k * 2, 2) AS part
        FROM events;""", workers=1)
    assert result.code == 0, result.stderr
    assert result.stdout.decode().splitlines()[1:] == [
        "10000000,éab,10000000,2200000,8400000,9000002,yx",
        "10000000,xaa,15000000,4200000,16400000,9000003,yx",
        "10000000,ééz,5000000,200000,400000,9000001,yx",
    ]


def long_texts(count: int, length: int) -> str:
    """So many records, two of each key, whose keys are that long."""
    return "ts,k\n" + "".join(f"2024-01-01 00:00:01,{i % (count // 2):06}{'x' * (length - 6)}\n" for i in range(count))


@pytest.mark.parametrize("exchange", ["late-merge", "interleaved"])
@pytest.mark.parametrize("count, length", [(26, 10_000), (4, 1_000_000)])
@pytest.mark.parametrize("workers", WORKERS)
def test_a_few_long_keys_take_what_they_take(script, workers, count, length, exchange):
    """What a batch may bring is what it holds: not as many rows as one may have, each with the longest key."""
    script.data("events.csv", long_texts(count, length))
    keys = events("k STRING") + "SELECT k, COUNT(*) AS n, MAX(k) AS most FROM events GROUP BY k;"
    result = script.run(keys, workers=workers, memory="64MB", exchange=exchange)
    assert result.code == 0, result.stderr
    lines = result.stdout.splitlines()[1:]
    assert [line.split(b",")[1] for line in lines] == [b"2"] * (count // 2)
    assert all(len(line) == 2 * length + 3 for line in lines)


def seconds(number: int) -> str:
    at = datetime.datetime(2024, 1, 1) + datetime.timedelta(seconds=number)
    return f"{at:%Y-%m-%d %H:%M:%S}.000"


def every_two_seconds(texts: list[str]) -> str:
    return "ts,i,s\n" + "".join(f"{seconds(2 * i)},{i % 3},{text}\n" for i, text in enumerate(texts))


def hopping(values: list, answer) -> list[str]:
    """Of windows of 14 s every 2 s: their start, and the answer for their values."""
    return [f"{seconds(2 * i - 12)},{answer(values[max(i - 6, 0):i + 1])}" for i in range(len(values) + 6)]


HOP = "HOP(TABLE events, DESCRIPTOR(ts), INTERVAL '2' SECOND, INTERVAL '14' SECOND)"
LONG_TEXTS = [chr(97 + i % 26) * 1_000_000 for i in range(40)]


@pytest.mark.parametrize("pack", ["0", "1 hour"])
@pytest.mark.parametrize("workers", [1, 3])
def test_a_stage_asks_for_as_many_long_texts_as_it_hands_on(script, workers, pack):
    """Forty records of a megabyte. The second stage has a window's one row at a time, not as many as fit a batch."""
    script.data("events.csv", every_two_seconds(LONG_TEXTS))
    query = f"""
        SELECT window_start, MAX(s) AS most, COUNT(DISTINCT i) AS n FROM TABLE({HOP})
        GROUP BY window_start, window_end;"""
    result = script.run(events("i INT, s STRING") + query, workers=workers, memory="128MB", windows_pack=pack)
    assert result.code == 0, result.stderr
    expected = hopping(LONG_TEXTS, lambda texts: f"{max(texts)},{min(len(texts), 3)}")
    assert result.stdout.decode().splitlines()[1:] == expected


def test_a_long_list_of_one_group_passes_from_stage_to_stage(script):
    texts = [f"x{i % 3}" for i in range(20_000)]
    script.data("events.csv", every_two_seconds(texts))
    query = """
        SELECT b, c, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY b) AS place FROM (
            SELECT window_start, window_end, LISTAGG(s) AS b, COUNT(DISTINCT i) AS c
            FROM TABLE(SESSION(TABLE events, DESCRIPTOR(ts), INTERVAL '10' SECOND))
            GROUP BY window_start, window_end);"""
    query = f"SELECT b, c FROM ({query.strip()[:-1]}) WHERE place <= 2;"
    result = script.run(events("i INT, s STRING") + query, workers=3, memory="64MB")
    assert result.code == 0, result.stderr
    assert result.stdout.decode().splitlines()[1:] == [f'"{",".join(texts)}",3']


def test_few_keys_of_many_workers_fit_little_memory(script):
    """Sketches and DISTINCT in small windows that hop; and tables that are nearly empty do not fill the budget."""
    texts = [f"x{i % 3}" for i in range(500)]
    script.data("events.csv", every_two_seconds(texts))
    query = f"""
        SELECT window_start, LISTAGG(DISTINCT s) AS b, SUM(DISTINCT i) AS c, APPROX_COUNT_DISTINCT(s) AS d,
               APPROX_PERCENTILE(i, 0.0) AS p
        FROM TABLE({HOP}) GROUP BY window_start, window_end;"""

    def answer(texts: list[str]) -> str:
        all = list(dict.fromkeys(texts))
        numbers = {int(text[1:]) for text in all}
        joined = ",".join(all)
        return f'{joined if len(all) == 1 else chr(34) + joined + chr(34)},{sum(numbers)},{len(all)},{min(numbers)}.0'

    expected = hopping(texts, answer)
    for pack in ["0", "1 hour"]:
        result = script.run(events("i INT, s STRING") + query, workers=7, memory="32MB", windows_pack=pack)
        assert result.code == 0, result.stderr
        assert result.stdout.decode().splitlines()[1:] == expected


def limited(script, sql: str, kib: int, *more: str, **settings: object) -> subprocess.CompletedProcess:
    """A run with that much address space."""
    words = ["sh", "-c", f'ulimit -v {kib}; exec "$@"', "sh", *command(script.write(sql), settings), *more]
    return subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)


def test_the_default_budget_knows_the_limit_of_address_space(script):
    """Half of what is left of 1 GiB beside 384 MiB for stacks and the like: the keys do not fit that, and it says so."""
    sql = unique_keys(20_000_000, "1 us") + WINDOW.replace("'10' S", "'600' S")
    done = limited(script, sql, 1 << 20, workers=1)
    assert done.returncode == 1, done.stderr
    assert f"the budget is {320 * MIB} bytes" in done.stderr, done.stderr


def test_memory_that_the_system_refuses_ends_with_a_message(script):
    """A budget beyond what there is: no abort."""
    sql = unique_keys(20_000_000, "1 us") + WINDOW.replace("'10' S", "'600' S")
    done = limited(script, sql, 1 << 20, workers=1, memory="100GB")
    assert done.returncode == 1, (done.returncode, done.stderr)
    assert "error: out of memory: the system has refused" in done.stderr, done.stderr
    assert "--set memory=" in done.stderr and "ulimit -v" in done.stderr, done.stderr


def test_too_little_address_space_for_planning_says_so(script):
    done = limited(script, "SELECT 1 AS x FROM (VALUES (1)) AS t(x);", 300_000, workers=1)
    assert done.returncode == 1, (done.returncode, done.stderr)
    assert "the system refuses a thread with a stack of 256 MB" in done.stderr, done.stderr
    assert "ulimit -v" in done.stderr and "report it" not in done.stderr, done.stderr


def test_too_little_address_space_in_a_process_is_told_of_it(script):
    """There are limits that are enough for planning, and too little for a process with channels. Which, depends on how
    the program was built."""
    sql = "CREATE TABLE t (k BIGINT) WITH ('connector' = 'datagen', 'number-of-rows' = '1');\nSELECT k FROM t;"
    limits = range(300_000, 2_000_000, 10_000)
    for kib in limits:
        done = limited(script, sql, kib, "--processes", "2", workers=1)
        if "failed to initiate panic" in done.stderr:
            # Rust's own start of a thread: there is room for the stack, and none for the stack of signals.
            continue
        # Whatever else is refused, the limit is named: no process is only silent.
        assert "ulimit -v" in done.stderr, (kib, done.stderr)
        too_little = done.stderr.startswith(("error: cannot plan", "error: out of memory"))
        if not too_little and "refuses a thread (" not in done.stderr:
            break
    assert done.returncode == 1, (done.returncode, done.stderr)
    assert done.stderr.startswith("error: process "), done.stderr
    assert "cannot plan the statement" in done.stderr and "ulimit -v" in done.stderr, done.stderr



def test_a_batch_of_many_texts_has_few_rows(script, base):
    columns = ", ".join(f"c{n} STRING" for n in range(200))
    sql = (f"CREATE TABLE g ({columns}) WITH ('connector' = 'datagen', 'number-of-rows' = '5000');\n"
           f"CREATE TABLE b ({columns}) WITH ('connector' = 'blackhole');\nINSERT INTO b SELECT * FROM g;")
    code, used, stderr = peak(script, sql, workers=2, memory="64MB")
    assert code == 0 and used <= allowed(base(2), 64, 2), (used, stderr)

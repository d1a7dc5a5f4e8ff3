"""Files that change while a job reads them, and inputs that can be read only once."""

import os
import subprocess
import threading
import time

import harness
import pytest
from jobs import PATIENCE_SECONDS


def numbers(path: str = "numbers.csv", name: str = "numbers", columns: str = "a BIGINT") -> str:
    return (f"CREATE TABLE {name} ({columns}) WITH ('connector' = 'file', 'path' = '{path}', 'format' = 'csv', "
            f"'csv.header' = 'false');\n")


def start(script, sql: str, processes: int, **options) -> subprocess.Popen:
    command = [str(harness.program()), "run", str(script.write(sql)), "--format", "csv", "--workers", "1",
               "--processes", str(processes)]
    return subprocess.Popen(command, cwd=script.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            **options)


@pytest.mark.parametrize("processes", [1, 2, 3])
@pytest.mark.parametrize("how", ["truncate", "rewrite"])
def test_a_file_that_is_truncated_behind_its_readers_ends_the_job(script, processes, how):
    script.data("numbers.csv", "".join(f"{i:07}\n" for i in range(2_000_000)))
    job = start(script, numbers() + "SELECT a, a + 1, a + 2, a + 3 FROM numbers;", processes)
    # Nobody reads what it prints, so it cannot have read the file to its end.
    first = job.stdout.readline()
    with open(script.folder / "numbers.csv", "w", encoding="utf-8") as file:
        if how == "rewrite":
            file.write("7\n" * 1_000)
    rest, errors = job.communicate(timeout=PATIENCE_SECONDS)
    assert job.returncode == 1, errors
    assert first.startswith("a,") and len(rest.splitlines()) < 2_000_000
    message = "numbers.csv: it became shorter while it was read: expected 16000000 bytes, found "
    assert message in errors and "help: " in errors, errors


@pytest.mark.parametrize("processes", [1, 2])
def test_a_file_that_grows_has_no_half_records(script, processes):
    """Half a line is the number 100 or 1000, which no whole one is."""
    path, over = script.folder / "numbers.csv", threading.Event()
    script.data("numbers.csv", "10000,0\n" * 100)

    def append() -> None:
        with open(path, "ab", buffering=0) as file:
            while not over.is_set() and file.tell() < 200_000_000:
                file.write(b"10000,")
                file.write(b"0\n100")
                file.write(b"00,0\n")

    writer = threading.Thread(target=append)
    writer.start()
    try:
        for _ in range(10):
            before = path.stat().st_size
            result = script.run(numbers(columns="a BIGINT, b BIGINT")
                                + "SELECT COUNT(*), COUNT(b), MIN(a), MAX(a) FROM numbers;",
                                "--processes", processes, workers=1)
            assert result.code == 0, result.stderr
            count, whole, least, greatest = map(int, result.stdout.decode().splitlines()[1].split(","))
            assert (least, greatest) == (10_000, 10_000) and count == whole
            assert before // 8 <= count <= path.stat().st_size // 8 + 1
    finally:
        over.set()
        writer.join()


def test_processes_never_read_two_files_of_one_name(script):
    """One file after the other takes the name: each run reads one of them, or says what it has found."""
    path, over = script.folder / "numbers.csv", threading.Event()
    # Longer after each run that met two files: on a slow machine some are to meet one, too.
    pauses = [0.001]
    script.data("numbers.csv", "1\n" * 100_000)

    def replace() -> None:
        version = 1
        while not over.is_set():
            version += 1
            script.data("new", f"{version % 10}\n" * 100_000)
            os.rename(script.folder / "new", path)
            over.wait(pauses[-1])

    replacing, ends = threading.Thread(target=replace), {0: 0, 1: 0}
    replacing.start()
    try:
        for _ in range(20):
            result = script.run(numbers() + "SELECT COUNT(*), MIN(a), MAX(a) FROM numbers;", "--processes", 2, workers=1)
            ends[result.code] += 1
            if result.code == 0:
                count, least, greatest = map(int, result.stdout.decode().splitlines()[1].split(","))
                assert count == 100_000 and least == greatest, result.stdout
            else:
                assert "numbers.csv: it was replaced by another file while" in result.stderr, result.stderr
                pauses.append(min(2 * pauses[-1], 2))
    finally:
        over.set()
        replacing.join()
    # The length of the table is told: a run can meet one and the same file, and some do.
    assert sum(ends.values()) == 20 and ends[0] > 0, ends


def test_a_file_that_does_not_tell_its_length_is_read_by_one_process(script):
    sql = (numbers("/proc/filesystems", columns="line STRING").replace("'false'", "'false', 'csv.field-delimiter' = '|'")
           + "SELECT COUNT(*) FROM numbers;")
    expected = len(open("/proc/filesystems", encoding="utf-8").read().splitlines())
    for processes in (1, 2):
        result = script.run(sql, "--processes", processes, workers=1)
        assert result.code == 0, result.stderr
        assert int(result.stdout.splitlines()[1]) == expected > 0


TWICE = "SELECT COUNT(*) FROM numbers;\nSELECT SUM(a) FROM {};\n"


@pytest.mark.parametrize("second", ["numbers", "others"])
@pytest.mark.parametrize("processes", [1, 2])
def test_standard_input_is_read_once(script, processes, second):
    sql = numbers("/dev/stdin") + numbers("/dev/fd/0", "others") + TWICE.format(second)
    job = start(script, sql, processes, stdin=subprocess.PIPE)
    output, errors = job.communicate("1\n2\n", timeout=PATIENCE_SECONDS)
    assert (job.returncode, output) == (2, ""), errors
    assert "standard input can be read only once, and the query on line 3 reads it\n" in errors, errors
    assert "query.sql:4:" in errors and "help: save it in a file" in errors, errors


def test_a_named_pipe_is_read_once(script):
    os.mkfifo(script.folder / "numbers.csv")
    writer = subprocess.Popen(["sh", "-c", "timeout 20 echo 1 > numbers.csv"], cwd=script.folder)
    result = script.run(numbers() + TWICE.format("numbers"), workers=1)
    assert result.code != 0
    assert "numbers.csv' can be read only once" in result.stderr, result.stderr
    writer.kill()
    writer.wait()


def test_what_can_be_read_again_is(script):
    """A file as standard input, and what is explained and not read."""
    script.data("numbers.csv", "1\n2\n")
    with open(script.folder / "numbers.csv", encoding="utf-8") as file:
        job = start(script, numbers("/dev/stdin") + TWICE.format("numbers"), 1, stdin=file)
        output, errors = job.communicate(timeout=PATIENCE_SECONDS)
    assert job.returncode == 0, errors
    assert [line for line in output.splitlines() if line.isdigit()] == ["2", "3"]
    sql = numbers("/dev/stdin") + "EXPLAIN SELECT SUM(a) FROM numbers;\nSELECT COUNT(*) FROM numbers;"
    job = start(script, sql, 1, stdin=subprocess.PIPE)
    output, errors = job.communicate("1\n2\n", timeout=PATIENCE_SECONDS)
    assert job.returncode == 0 and output.splitlines()[-1] == "2", errors


AHEAD = """CREATE TABLE events (ts TIMESTAMP(3), v BIGINT, WATERMARK FOR ts AS ts)
WITH ('connector' = 'file', 'path' = '{}', 'format' = 'csv', 'csv.header' = 'false');
SELECT window_start, SUM(v) AS total FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY window_start, window_end;
"""
# The third record is late, whatever the clock says, if the second is believed.
AHEAD_DATA = "2024-01-01 00:00:00,1\n9000-01-01 00:00:00,2\n2024-01-01 00:00:01,4\n"


@pytest.mark.parametrize("kind, setting, late", [
    ("file", None, 1), ("file", "1 day", 0), ("file", "none", 1), ("pipe", None, 0), ("pipe", "none", 1),
])
def test_who_is_late_in_a_file_does_not_depend_on_the_clock(script, kind, setting, late):
    script.data("events.csv", AHEAD_DATA)
    sql = AHEAD.format("/dev/stdin" if kind == "pipe" else "events.csv")
    if setting:
        sql = f"SET 'watermark.max_ahead' = '{setting}';\n" + sql
    job = start(script, sql, 1, stdin=subprocess.PIPE)
    output, errors = job.communicate(AHEAD_DATA, timeout=PATIENCE_SECONDS)
    assert job.returncode == 0, errors
    rows = output.splitlines()[1:]
    assert [row.split(",")[1] for row in rows] == [str(5 - 4 * late), "2"], output
    # The one that is not believed is shown.
    path = "/dev/stdin" if kind == "pipe" else script.folder / "events.csv"
    said = f"1 record so far ahead of the clock that the watermark does not follow ('watermark.max_ahead')\n  at {path}:2\n"
    assert (said in errors) == (not late), errors


@pytest.fixture
def impatient(monkeypatch):
    """A second in which nothing happens is taken for a query that is stuck."""
    monkeypatch.setenv("MILLSTREAM_STUCK_SECONDS", "1")


SLOW = {
    "rows": "SELECT a, a + 1, a + 2 FROM numbers;",
    "groups": "SELECT a, COUNT(*), SUM(a) FROM numbers GROUP BY a;",
}


@pytest.mark.parametrize("query", SLOW)
@pytest.mark.parametrize("processes", [2, 3])
def test_a_slow_reader_is_waited_for(script, impatient, processes, query):
    script.data("numbers.csv", "".join(f"{i:07}\n" for i in range(300_000)))
    job = start(script, numbers() + SLOW[query], processes)
    output = b""
    # Nothing at all for a while, then little by little.
    time.sleep(4)
    for _ in range(20):
        output += os.read(job.stdout.fileno(), 20_000)
        time.sleep(0.2)
    rest, errors = job.communicate(timeout=PATIENCE_SECONDS)
    assert job.returncode == 0, errors
    assert len((output.decode() + rest).splitlines()) == 300_001


@pytest.mark.parametrize("processes", [2, 3])
def test_a_source_without_data_is_waited_for(script, impatient, processes):
    job = start(script, numbers("/dev/stdin") + "SELECT COUNT(*) FROM numbers;", processes, stdin=subprocess.PIPE)
    for _ in range(2):
        job.stdin.write("1\n")
        job.stdin.flush()
        time.sleep(3)
    output, errors = job.communicate(timeout=PATIENCE_SECONDS)
    assert job.returncode == 0, errors
    assert output.splitlines()[-1] == "2"


def test_a_slow_generator_is_waited_for(script, impatient):
    result = script.run("CREATE TABLE slow (a BIGINT) WITH ('connector' = 'datagen', 'number-of-rows' = '4', "
                        "'rows-per-second' = '1');\nSELECT COUNT(*) FROM slow;", "--processes", 2, workers=1)
    assert result.code == 0, result.stderr
    assert result.stdout.splitlines()[-1] == b"4"

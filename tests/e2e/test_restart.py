"""Checkpoints, as users meet them: stopping and going on, looking, edited queries, mistakes."""

import json
import os
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest

import harness

SOURCE = """CREATE TABLE a (k BIGINT, v BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH (
    'connector' = 'file', 'path' = 'a.csv', 'format' = 'csv', 'follow' = 'true');
CREATE TABLE o (s TIMESTAMP(3), k BIGINT, n BIGINT) WITH (
    'connector' = 'file', 'path' = 'o', 'format' = 'csv', 'csv.header' = 'false');
"""
COUNT = "INSERT INTO o SELECT window_start, k, COUNT(*) FROM TABLE(TUMBLE(TABLE a, DESCRIPTOR(ts), " \
    "INTERVAL '{size}' SECOND)) GROUP BY window_start, window_end, k;"
QUERY = SOURCE + COUNT.format(size=10)


def lines(first: int, last: int) -> str:
    """Ten records a second of event time, of three keys."""
    def stamp(n: int) -> str:
        return f"2024-01-{1 + n // 864000:02} {n // 36000 % 24:02}:{n // 600 % 60:02}:{n // 10 % 60:02}.{n % 10}00"

    return "".join(f"{n % 3},{n},{stamp(n)}\n" for n in range(first, last))


class Restarted:
    """A job that is started again and again."""

    def __init__(self, folder: Path):
        self.folder, self.state = folder, folder / "state"
        self.data = folder / "a.csv"
        self.data.write_text("k,v,ts\n")
        self.started: list[subprocess.Popen] = []

    def add(self, first: int, last: int) -> None:
        with self.data.open("a") as file:
            file.write(lines(first, last))

    def start(self, sql: str = QUERY, *words: object, every: str = "50ms") -> subprocess.Popen:
        script = self.folder / "job.sql"
        script.write_text(sql)
        command = [harness.program(), "run", script, "--checkpoint", self.state, "--every", every, *words]
        words = [str(word) for word in command]
        self.started.append(subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
        return self.started[-1]

    def rows(self) -> Counter:
        return Counter(row for path in (self.folder / "o").glob("part-*") for row in path.read_text().splitlines())

    def waits_for(self, rows: int) -> None:
        """Until so many rows are visible."""
        until = time.monotonic() + 30
        while sum(self.rows().values()) < rows:
            assert time.monotonic() < until, self.rows()
            time.sleep(0.02)

    def stops(self, job: subprocess.Popen, how: int) -> str:
        job.send_signal(how)
        _, said = job.communicate(timeout=60)
        return said.decode()

    def command(self, *words: object) -> harness.Run:
        return harness.run("checkpoint", *words, stats=False)


@pytest.fixture
def restarted(tmp_path: Path):
    restarted = Restarted(tmp_path)
    yield restarted
    for job in restarted.started:
        if job.poll() is None:
            job.kill()
            job.communicate()


def expected(last: int, windows: int) -> Counter:
    """The first windows of so many records."""
    counts: Counter = Counter()
    for n in range(last):
        if n // 100 < windows:
            counts[f"2024-01-01 00:{n // 600:02}:{n // 100 * 10 % 60:02}.000,{n % 3}"] += 1
    return Counter(f"{key},{count}" for key, count in counts.items())


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_job_goes_on_where_it_was(restarted, how):
    restarted.add(0, 1050)
    job = restarted.start()
    restarted.waits_for(30)
    said = restarted.stops(job, how)
    assert "resumed" not in said
    restarted.add(1050, 2050)
    job = restarted.start(QUERY, "--workers", 3)
    restarted.waits_for(60)
    said = restarted.stops(job, signal.SIGKILL)
    assert "resumed from checkpoint" in said, said
    assert restarted.rows() == expected(2050, 20)


def test_ctrl_c_takes_a_last_checkpoint(restarted):
    restarted.add(0, 1050)
    job = restarted.start(every="1 day")
    deadline = time.monotonic() + 30
    while not (restarted.folder / "o").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    time.sleep(0.5)
    assert restarted.rows() == Counter()
    said = restarted.stops(job, signal.SIGINT)
    assert job.returncode == 130 and "; the same command goes on from the last checkpoint" in said, said
    assert restarted.rows() == expected(1050, 10)


def test_a_job_that_has_ended_says_so(restarted):
    restarted.add(0, 1050)
    bounded = QUERY.replace(", 'follow' = 'true'", "")
    job = restarted.start(bounded)
    job.communicate(timeout=60)
    assert job.returncode == 0
    rows = restarted.rows()
    assert rows == expected(1050, 11)
    job = restarted.start(bounded)
    _, said = job.communicate(timeout=60)
    assert (job.returncode, restarted.rows()) == (0, rows)
    assert "the job has ended" in said.decode() and "--fresh" in said.decode()
    job = restarted.start(bounded, "--fresh")
    _, said = job.communicate(timeout=60)
    assert job.returncode == 0 and b"resumed" not in said
    assert restarted.rows() == Counter({row: 2 * times for row, times in rows.items()})
    numbers = [line.split()[0] for line in restarted.command("list", restarted.state).stdout.decode().splitlines()]
    assert len(numbers) > 1, "those of the first run stay"


def test_checkpoints_are_shown_verified_and_deleted(restarted):
    restarted.add(0, 1050)
    job = restarted.start()
    restarted.waits_for(30)
    restarted.stops(job, signal.SIGINT)
    listed = restarted.command("list", restarted.state).stdout.decode()
    numbers = [int(line.split()[0]) for line in listed.splitlines()]
    assert numbers == sorted(numbers) and 1 <= len(numbers) <= 3, listed
    shown = restarted.command("show", restarted.state).stdout.decode()
    for word in ("table a", "a.csv: 1,050 records", "stage", "output o"):
        assert word in shown, shown
    manifest = json.loads(restarted.command("show", restarted.state, "--json").stdout)
    assert manifest["checkpoint"] == numbers[-1]
    stage = manifest["stages"][0]["names"][0]
    state = restarted.command("show", restarted.state, "--state", stage, "--format", "csv").stdout.decode()
    # 50 records of the open window.
    assert len(state.splitlines()) == 4 and "$" not in state, state
    assert sum(int(line.split(",")[-1]) for line in state.splitlines()[1:]) == 50, state
    verified = restarted.command("verify", restarted.state)
    assert verified.code == 0 and verified.stdout.decode().count("is whole") == len(numbers)
    file = restarted.state / manifest["stages"][0]["files"][0]["name"]
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    verified = restarted.command("verify", restarted.state, numbers[-1])
    assert verified.code == 1 and "damaged" in verified.stdout.decode() and file.name in verified.stdout.decode()
    job = restarted.start()
    _, said = job.communicate(timeout=60)
    assert job.returncode == 1 and b"damaged" in said and b"--restore" in said, said
    job = restarted.start(QUERY, "--restore", numbers[0], every="1 day")
    time.sleep(0.5)
    said = restarted.stops(job, signal.SIGKILL)
    assert f"checkpoint {numbers[0]} is not the last: rows that outputs have got since it come once more" in said, said
    for words in (["delete"], ["show"], ["verify"]):
        missing = restarted.command(*words, restarted.state, 9999)
        said = f"it has no checkpoint 9999\n  help: its checkpoints are {', '.join(map(str, numbers))}\n"
        assert missing.code == 1 and said in missing.stderr, missing.stderr
    for number in reversed(numbers):
        deleted = restarted.command("delete", restarted.state, number)
        assert deleted.code == 0 and ("no checkpoint is left" in deleted.stderr) == (number == numbers[0]), deleted.stderr
        listed = restarted.command("list", restarted.state).stdout.decode().splitlines()
        assert str(number) not in [line.split()[0] for line in listed], listed
    empty = restarted.command("verify", restarted.state)
    assert empty.code == 1 and "it has no checkpoint" in empty.stderr, empty.stderr


@pytest.mark.parametrize("window, shown", [
    ("TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '10' SECOND)", "1 open window: {0}1:40.000 to {0}1:50.000"),
    ("HOP(TABLE a, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '20' SECOND)",
     "4 open windows: the first {0}1:25.000 to {0}1:45.000, the last {0}1:40.000 to {0}2:00.000"),
    ("CUMULATE(TABLE a, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '20' SECOND)",
     "4 open windows: the first {0}1:40.000 to {0}1:45.000, the last {0}1:40.000 to {0}2:00.000"),
])
@pytest.mark.parametrize("words", [["--workers", 2], ["--processes", 2]])
def test_open_windows_are_shown(restarted, window, shown, words):
    """105 seconds of records have been read, also after a restart and without any new record."""
    sql = QUERY.replace("TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '10' SECOND)", window)
    assert window in sql
    restarted.add(0, 1050)
    for number in range(2):
        job = restarted.start(sql, *words)
        restarted.waits_for(30 if "TUMBLE" in window else 60)
        time.sleep(0.5 * number)
        restarted.stops(job, signal.SIGINT)
        said = restarted.command("show", restarted.state).stdout.decode()
        assert f"\n  {shown.format('2024-01-01 00:0')}\n" in said, said


def test_state_files_are_parquet(restarted):
    import duckdb

    restarted.add(0, 1050)
    job = restarted.start()
    restarted.waits_for(30)
    restarted.stops(job, signal.SIGINT)
    rows = duckdb.sql(f"SELECT * FROM '{restarted.state}/state/*.parquet'").columns
    assert "k" in rows, rows


def test_an_output_directory_may_be_taken_away(restarted):
    import shutil

    restarted.add(0, 1050)
    job = restarted.start()
    restarted.waits_for(30)
    restarted.stops(job, signal.SIGKILL)
    shutil.rmtree(restarted.folder / "o")
    restarted.add(1050, 2050)
    job = restarted.start()
    restarted.waits_for(30)
    restarted.stops(job, signal.SIGINT)
    assert restarted.rows() == expected(2050, 20) - expected(1050, 10)


@pytest.mark.parametrize("words", [["--workers", 2], ["--processes", 2]])
def test_files_of_all_runs_can_be_moved_into_one_directory(restarted, words):
    taken = restarted.folder / "taken"
    taken.mkdir()
    for run, how in enumerate([signal.SIGKILL, signal.SIGINT, signal.SIGKILL, signal.SIGINT]):
        restarted.add(1000 * run, 1000 * run + 1000)
        job = restarted.start(QUERY, *words)
        # The last window of each run is open.
        restarted.waits_for(30 if run else 27)
        restarted.stops(job, how)
        for path in (restarted.folder / "o").glob("part-*"):
            assert not (taken / path.name).exists(), path
            path.rename(taken / path.name)
    rows = Counter(row for path in taken.glob("part-*") for row in path.read_text().splitlines())
    assert rows == expected(4000, 39)


def test_a_directory_that_cannot_be_made_is_refused(restarted):
    restarted.state = Path("/proc/checkpoints")
    _, said = restarted.start().communicate(timeout=60)
    assert b"/proc/checkpoints: the directory cannot be made" in said, said


def child_of(process: int) -> int:
    """The process that a supervisor watches over, or that a job of two processes has started."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = stat.read_text().rsplit(")", 1)[1].split()[1]
        except OSError:
            # The process has ended meanwhile.
            continue
        if parent == str(process):
            return int(stat.parent.name)
    raise AssertionError("it has no child")


def test_a_killed_job_is_started_again(restarted):
    restarted.add(0, 1050)
    job = restarted.start(QUERY, "--restart", 2)
    restarted.waits_for(30)
    for last, rows in ((2050, 60), (3050, 90)):
        os.kill(child_of(job.pid), signal.SIGKILL)
        restarted.add(last - 1000, last)
        restarted.waits_for(rows)
    os.kill(child_of(job.pid), signal.SIGKILL)
    _, said = job.communicate(timeout=60)
    assert job.returncode == 1 and "3 times within an hour" in said.decode(), said
    assert restarted.rows() == expected(3050, 30)


@pytest.mark.parametrize("fabric", ["shm", "tcp"])
@pytest.mark.parametrize("victim", [0, 1])
def test_processes_go_on_when_one_of_them_is_killed(restarted, victim, fabric):
    restarted.add(0, 1050)
    processes = ["--fabric", fabric, "--workers", 2, "--processes"]
    for number, count in enumerate([2, 3, 1, 2]):
        job = restarted.start(QUERY, *processes, count)
        last = 1050 + 1000 * number
        restarted.waits_for(30 * (number + 1))
        assert restarted.rows() == expected(last, 10 * (number + 1))
        if count == 2:
            os.kill(child_of(job.pid) if victim else job.pid, signal.SIGKILL)
        else:
            job.send_signal(signal.SIGKILL)
        _, said = job.communicate(timeout=60)
        assert said.count(b"resumed from checkpoint") == (number > 0), said
        assert job.returncode == (1 if count == 2 and victim == 1 else -9), said
        assert (b"help: the same command goes on" in said) == (job.returncode == 1), said
        restarted.add(last, last + 1000)


def test_processes_stop_behind_a_last_checkpoint(restarted):
    restarted.add(0, 1050)
    for how, last in [(signal.SIGINT, 1050), (signal.SIGTERM, 2050)]:
        job = restarted.start(QUERY, "--processes", 3, every="1 day")
        time.sleep(1.5)
        assert restarted.rows() == (expected(1050, 10) if last > 1050 else Counter())
        said = restarted.stops(job, how)
        assert job.returncode == 130, said
        assert restarted.rows() == expected(last, last // 100), said
        restarted.add(last, last + 1000)


@pytest.mark.parametrize("files", [1, 9])
def test_processes_that_have_ended_say_so(restarted, files):
    """One file that all processes read, and files of their own."""
    folder = restarted.folder / "in"
    folder.mkdir()
    for number in range(files):
        records = "".join(lines(n, n + 1) for n in range(number, 20_000, files))
        (folder / f"{number}.csv").write_text("k,v,ts\n" + records)
    sql = QUERY.replace(", 'follow' = 'true'", "").replace("'a.csv'", "'in/*.csv'")
    job = restarted.start(sql, "--processes", 2, every="10ms")
    time.sleep(0.3)
    restarted.stops(job, signal.SIGKILL)
    job = restarted.start(sql, "--processes", 3, every="10ms")
    _, said = job.communicate(timeout=60)
    assert job.returncode == 0, said
    rows = restarted.rows()
    assert rows == expected(20_000, 200), said
    for words in (["--processes", 2], []):
        job = restarted.start(sql, *words)
        _, said = job.communicate(timeout=60)
        assert (job.returncode, restarted.rows()) == (0, rows), said
        assert b"the job has ended" in said and b"--fresh" in said
    listed = restarted.command("list", restarted.state).stdout.decode().splitlines()
    assert "20000 records" in listed[-1] and "the job has ended" in listed[-1], listed
    assert not list((restarted.folder / "o").glob(".*"))


def test_a_job_is_started_again_with_all_its_processes(restarted):
    restarted.add(0, 1050)
    job = restarted.start(QUERY, "--processes", 2, "--restart", 3)
    restarted.waits_for(30)
    for last, rows, victim in ((2050, 60, 1), (3050, 90, 0), (4050, 120, 1)):
        first = child_of(job.pid)
        os.kill(child_of(first) if victim else first, signal.SIGKILL)
        restarted.add(last - 1000, last)
        restarted.waits_for(rows)
    said = restarted.stops(job, signal.SIGTERM)
    assert said.count("has lost a process; it starts again") == 2, said
    assert restarted.rows() == expected(4050, 40)


def test_a_full_disk_does_not_end_the_job(restarted):
    """The directory of checkpoints cannot be written for a while: rows wait, and come when it can."""
    restarted.add(0, 1050)
    job = restarted.start()
    restarted.waits_for(30)
    state = restarted.state / "state"
    state.rename(restarted.state / "away")
    state.write_text("no directory")
    restarted.add(1050, 2050)
    time.sleep(0.5)
    assert job.poll() is None
    visible = restarted.rows()
    state.unlink()
    (restarted.state / "away").rename(state)
    restarted.waits_for(60)
    said = restarted.stops(job, signal.SIGINT)
    assert visible == expected(1050, 10)
    assert "cannot be written" in said and "is written, after" in said, said
    assert restarted.rows() == expected(2050, 20)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("words", [["--workers", 2], ["--processes", 2]])
def test_the_wait_for_a_store_that_is_away_can_be_ended(restarted, words, how):
    """The directory of checkpoints goes away before a LIMIT ends the job."""
    sql = SOURCE + "INSERT INTO o SELECT ts, k, v FROM a LIMIT 2000;"
    restarted.add(0, 1050)
    job = restarted.start(sql, *words)
    restarted.waits_for(1050)
    away = restarted.folder / "away"
    restarted.state.rename(away)
    restarted.state.write_text("no directory")
    restarted.add(1050, 3000)
    waits = next(line.decode() for line in job.stderr if b"the job has ended" in line)
    assert "tried again for 600s, or until Ctrl-C" in waits, waits
    begin = time.monotonic()
    said = restarted.stops(job, how)
    assert job.returncode == 130 and time.monotonic() - begin < 20, said
    assert "is not written, and no row is lost" in said and "gets its names" not in said, said
    assert "; the same command goes on from the last checkpoint" in said, said
    assert sum(restarted.rows().values()) == 1050
    restarted.state.unlink()
    away.rename(restarted.state)
    job = restarted.start(sql, *words)
    _, said = job.communicate(timeout=60)
    assert job.returncode == 0, said
    assert restarted.rows() == Counter(f"{ts},{k},{v}" for k, v, ts in
                                       (line.split(",") for line in lines(0, 2000).splitlines()))


def test_files_memory_and_descriptors_stay_bounded(restarted):
    """A job with many checkpoints: the short form; MILLSTREAM_SOAK_SECONDS=3600 with checkpoints every 10 s is the long
    one."""
    seconds = int(os.environ.get("MILLSTREAM_SOAK_SECONDS", "8"))
    every = min(10.0, seconds / 100)
    job = restarted.start(every=f"{int(1000 * every)}ms")
    seen = []
    for tick in range(seconds * 5):
        restarted.add(tick * 400, tick * 400 + 400)
        time.sleep(0.2)
        if tick % 5 == 0 and tick > seconds:
            status = Path(f"/proc/{job.pid}/status").read_text()
            resident = int(status[status.index("VmRSS:") + 6:].split()[0]) // 1024
            descriptors = len(os.listdir(f"/proc/{job.pid}/fd"))
            kept = sum(1 for path in restarted.state.rglob("*") if path.is_file())
            seen.append((resident, descriptors, kept))
    numbers = restarted.command("list", restarted.state).stdout.decode().split("\n")
    restarted.stops(job, signal.SIGINT)
    assert len(numbers) <= 5, numbers
    # A checkpoint in the making is beside the three that stay; each has a few files.
    assert max(kept for _, _, kept in seen) <= 30, seen
    assert max(fds for _, fds, _ in seen) <= min(fds for _, fds, _ in seen) + 8, seen
    assert seen[-1][0] < seen[0][0] + 50, seen


@pytest.mark.parametrize("words, message", [
    (["--fresh"], "say where they are with --checkpoint DIR"),
    (["--restore", "3"], "say where they are with --checkpoint DIR"),
    (["--checkpoint", "state", "--every", "1ms"], "10 ms to 1 day"),
    (["--checkpoint", "http://host/bucket"], "write s3://bucket/prefix"),
    (["--checkpoint", "S3://bucket/jobs"], "write s3://bucket/jobs"),
    (["--checkpoint", "state", "--restore", "7"], "it has no checkpoint 7"),
    (["--checkpoint", "state", "--fresh", "--restore", "7"], "cannot be used with"),
])
def test_mistakes_are_told(restarted, words, message):
    script = restarted.folder / "job.sql"
    script.write_text(QUERY.replace(", 'follow' = 'true'", ""))
    done = harness.run("run", script, *words, stats=False, cwd=restarted.folder)
    assert done.code in (1, 2) and message in done.stderr, done.stderr


def test_two_jobs_of_a_script_are_refused(restarted):
    script = restarted.folder / "job.sql"
    script.write_text(QUERY.replace(", 'follow' = 'true'", "") + COUNT.format(size=20))
    done = harness.run("run", script, "--checkpoint", restarted.state, stats=False)
    assert done.code == 2 and "BEGIN STATEMENT SET" in done.stderr, done.stderr


def test_what_cannot_be_read_again_is_refused(restarted):
    script = restarted.folder / "job.sql"
    sql = QUERY.replace("'connector' = 'file', 'path' = 'a.csv', 'format' = 'csv', 'follow' = 'true'",
                        "'connector' = 'socket', 'listen' = '127.0.0.1:0', 'format' = 'csv'")
    script.write_text(sql)
    done = harness.run("run", script, "--checkpoint", restarted.state, stats=False)
    assert done.code in (1, 2) and "come only once" in done.stderr and "help:" in done.stderr, done.stderr


def test_limit_and_order_go_on(restarted):
    """A script that is killed gives, in all, the first rows once; NOW() is that of the first start."""
    restarted.add(0, 10_000)
    sql = SOURCE.replace("n BIGINT", "n BIGINT, started TIMESTAMP(3)") + \
        "INSERT INTO o SELECT ts, k, v, CAST(NOW() AS TIMESTAMP(3)) FROM a LIMIT 15000;"
    job = restarted.start(sql, every="10ms")
    restarted.waits_for(10_000)
    restarted.stops(job, signal.SIGKILL)
    restarted.add(10_000, 20_000)
    job = restarted.start(sql, every="10ms")
    job.communicate(timeout=60)
    rows = restarted.rows()
    assert sum(rows.values()) == 15_000 and max(rows.values()) == 1
    assert len({row.split(",")[3] for row in rows}) == 1


@pytest.mark.parametrize("words", [[], ["--processes", 2]])
def test_a_lookup_table_that_has_changed_is_told(restarted, words):
    """All rows meet the files as they are at a start, or have become meanwhile."""
    sql = SOURCE.replace("ts TIMESTAMP(3),", "ts TIMESTAMP(3), proc AS PROCTIME(),", 1) + """
        CREATE TABLE names (k BIGINT, id BIGINT) WITH ('connector' = 'file', 'path' = 'names', 'format' = 'csv');
        INSERT INTO o SELECT a.ts, a.k, n.id FROM a JOIN names FOR SYSTEM_TIME AS OF a.proc AS n ON a.k = n.k;"""
    names = restarted.folder / "names"
    names.mkdir()
    for k, file in enumerate(["x.csv", "y.csv", "z.csv"]):
        (names / file).write_text(f"k,id\n{k},{k}\n")
    remark = "lookup table 'names' has changed since the checkpoint: "
    restarted.add(0, 300)
    job = restarted.start(sql, *words)
    restarted.waits_for(300)
    assert "lookup table" not in restarted.stops(job, signal.SIGKILL)
    (names / "x.csv").write_text("k,id\n0,1000\n")
    (names / "y.csv").rename(names / "w.csv")
    for more in ([300, 600], [600, 900]):
        job = restarted.start(sql, *words)
        restarted.add(*more)
        restarted.waits_for(more[1])
        said = restarted.stops(job, signal.SIGINT)
        told = [line for line in said.splitlines() if "lookup table" in line]
        changes = f"{remark}names/w.csv is new, names/x.csv was written, names/y.csv is gone"
        assert told == ([changes] if more[0] == 300 else []), said
    assert Counter(row.split(",")[2] for row in restarted.rows().elements()) == \
        {"0": 100, "1000": 200, "1": 300, "2": 300}


def test_explain_tells_how_often_rows_come(restarted):
    def explained(query: str, *words: object, source: str = SOURCE) -> str:
        script = restarted.folder / "job.sql"
        script.write_text(source + "CREATE TABLE p (s TIMESTAMP(3), k BIGINT, n BIGINT) WITH ('connector' = 'print');\n" + query)
        return harness.run("explain", script, *words, stats=False).stdout.decode()

    both = "BEGIN STATEMENT SET; " + COUNT.format(size=10) + COUNT.format(size=20).replace("INTO o", "INTO p") + "END;"
    assert "checkpoints" not in explained(both)
    assert explained(both, "--set", "checkpoint.path=state").endswith("""
checkpoints every 10s in state
  INSERT INTO o: each row once, when its checkpoint is written
  INSERT INTO p: each row at least once; after a crash, rows since the last checkpoint come again
""")
    restarted.add(0, 50)
    overwrites, ends = COUNT.format(size=10).replace("INTO o", "OVERWRITE o"), SOURCE.replace(", 'follow' = 'true'", "")
    replaced = explained(overwrites, "--set", "checkpoint.path=state", source=ends)
    assert "  INSERT OVERWRITE o: each row once, and none before the job has ended\n" in replaced, replaced
    shown = explained("SELECT k FROM a;", "--set", "checkpoint.path=state", "--set", "checkpoint.interval=1 min")
    assert shown.endswith("""
checkpoints every 60s in state
  result: each row at least once; after a crash, rows since the last checkpoint come again
"""), shown


def test_metrics_tell_of_checkpoints(restarted):
    import urllib.request

    restarted.add(0, 1050)
    job = restarted.start(QUERY, "--metrics", "127.0.0.1:0", "--restart", 1)

    def metrics() -> dict[str, str]:
        line = next(line.decode() for line in job.stderr if b"http://" in line)
        url = line[line.index("http://"):].split()[0].rstrip("/") + "/metrics"
        url = url.replace("/metrics/metrics", "/metrics")
        restarted.waits_for(30)
        with urllib.request.urlopen(url) as answer:
            return dict(line.rsplit(" ", 1) for line in answer.read().decode().splitlines() if line[0] != "#")

    found = metrics()
    assert found["millstream_restarts_total"] == "0"
    assert float(found["millstream_checkpoints_total"]) >= 1 and found["millstream_checkpoint_failures_total"] == "0"
    assert 0 <= float(found["millstream_checkpoint_age_seconds"]) < 60
    assert 0 < float(found["millstream_checkpoint_duration_seconds"]) < 60
    assert float(found["millstream_checkpoint_bytes"]) > 0
    os.kill(child_of(job.pid), signal.SIGKILL)
    assert metrics()["millstream_restarts_total"] == "1"
    restarted.stops(job, signal.SIGTERM)

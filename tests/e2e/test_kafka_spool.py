"""Rows of Kafka that vary from run to run, and are there once: they wait in a spool for their checkpoint."""

import json
import signal
import subprocess
import time
from pathlib import Path

import broker as kafka
import harness
import pytest
from bucket import NAME
from conftest import cannot_run
from test_bucket import bucket, service  # noqa: F401, F811: fixtures
from test_kafka import COLUMNS, NAMES, broker, message, table  # noqa: F401, F811: fixtures among them
from test_kafka_exact import Job, jobs  # noqa: F401, F811: fixtures among them

WAIT_SECONDS = 60


class Spooled(Job):
    """A job into a topic whose name is the transactional id's prefix, too."""

    def __init__(self, broker, folder: Path, tables: str, query: str, columns: str, more: str = ""):
        self.sink = broker.topic(next(NAMES), 2)
        exactly = ", 'sink.delivery-guarantee' = 'exactly-once', " \
                  f"'sink.transactional-id-prefix' = '{self.sink}'{more}"
        into = table(broker, self.sink, columns, exactly, name="o", bounded=False, start="")
        self.folder, self.state, self.started, self.broker = folder, folder / "state", [], broker
        self.script = folder / "job.sql"
        self.script.write_text(tables + into + query)

    def start(self, workers: int = 1, every: str = "100ms", more=()) -> subprocess.Popen:
        words = [harness.program(), "run", self.script, "--checkpoint", self.state, "--every", every, "--workers",
                 workers, *more]
        self.said = (self.folder / "said").open("a+b")
        self.started.append(subprocess.Popen([str(word) for word in words], stdout=subprocess.DEVNULL,
                                             stderr=self.said))
        return self.started[-1]

    def ended(self, seconds: float = WAIT_SECONDS) -> str:
        """Waits for the end of the last run; what all runs have said."""
        self.started[-1].wait(seconds)
        return (self.folder / "said").read_text()

    def rows(self) -> list[dict]:
        return [json.loads(value) for of in self.broker.values(self.sink, 2) for value in of]

    def until(self, what: str, condition) -> None:
        """Waits for a condition while the job runs."""
        end = time.monotonic() + WAIT_SECONDS
        while not condition():
            assert self.started[-1].poll() is None, self.ended()
            assert time.monotonic() < end, f"never: {what}"
            time.sleep(0.05)

    def kill(self) -> None:
        """A run has not ended by itself before."""
        assert self.started[-1].poll() is None, self.ended()
        self.started[-1].kill()
        self.started[-1].wait()

    def manifests(self) -> int:
        """The number of the last checkpoint."""
        return max((int(path.stem.split("-")[1]) for path in self.state.glob("manifest-*.json")), default=0)

    def spool(self) -> list[Path]:
        return [path for path in self.state.glob("spool/*/*") if not path.name.startswith(".")]

    def explained(self) -> str:
        text = self.script.read_text().replace("INSERT INTO o", "EXPLAIN INSERT INTO o")
        other = self.folder / "explain.sql"
        other.write_text(text)
        result = harness.run("run", other, "--checkpoint", self.state)
        assert result.code == 0, result.stderr
        return result.stdout.decode()


def numbers(rate: int, more: str = "") -> str:
    """A table of the numbers from 0 on."""
    return f"CREATE TABLE t (n BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '{rate}', " \
           f"'fields.n.kind' = 'sequence', 'fields.n.start' = '0'{more});\n"


# --- queries whose rows vary ----------------------------------------------------------------------

EXPLAINED = "each row exactly once by a spool, visible when its checkpoint is written: "


def test_each_row_of_four_partitions_is_there_once(broker, tmp_path, jobs):
    """Killed at many moments, with other numbers of workers and processes each time."""
    source = broker.topic(next(NAMES), 4)
    job = Spooled(broker, tmp_path, table(broker, source, "n BIGINT", bounded=False),
                  "INSERT INTO o SELECT n FROM t;", "n BIGINT")
    jobs.append(job)
    assert EXPLAINED + "it has no window, and reads several partitions" in job.explained()
    producer = broker.producer()
    for run in range(6):
        running = job.start(workers=1 + run % 2, more=["--processes", "2"] if run == 4 else [])
        for n in range(2_000 * run, 2_000 * (run + 1)):
            producer.produce(source, json.dumps({"n": n}), partition=n % 4)
        producer.flush(30)
        time.sleep(0.3 + 0.25 * run)
        if run == 3:
            running.send_signal(signal.SIGINT)
            job.ended()
        else:
            job.kill()
    job.start(workers=2)
    job.until("all rows", lambda: len(job.rows()) >= 12_000)
    assert sorted(row["n"] for row in job.rows()) == list(range(12_000))


def test_each_row_with_the_time_of_reading_is_there_once(broker, tmp_path, jobs):
    source = broker.topic(next(NAMES))
    job = Spooled(broker, tmp_path, table(broker, source, "n BIGINT, at AS PROCTIME()", bounded=False),
                  "INSERT INTO o SELECT n, at FROM t;", "n BIGINT, at TIMESTAMP(3)")
    jobs.append(job)
    assert EXPLAINED + "it reads the clock (PROCTIME)" in job.explained()
    for run in range(4):
        job.start(workers=1 + run % 2)
        broker.fill(source, [json.dumps({"n": n}) for n in range(1_000 * run, 1_000 * (run + 1))])
        time.sleep(0.4 + 0.3 * run)
        job.kill()
    job.start()
    job.until("all rows", lambda: len(job.rows()) >= 4_000)
    assert sorted(row["n"] for row in job.rows()) == list(range(4_000))


def test_a_limit_counts_the_rows_of_all_runs(broker, tmp_path, jobs):
    source = broker.topic(next(NAMES), 4)
    job = Spooled(broker, tmp_path, table(broker, source, "n BIGINT", bounded=False),
                  "INSERT INTO o SELECT n FROM t LIMIT 2500;", "n BIGINT")
    jobs.append(job)
    assert EXPLAINED + "it has a LIMIT" in job.explained()
    for run in range(3):
        running = job.start(workers=1 + run % 2)
        for partition in range(4):
            numbers_of = range(1_000 * run + partition, 1_000 * (run + 1), 4)
            broker.fill(source, [json.dumps({"n": n}) for n in numbers_of], partition=partition)
        time.sleep(0.6)
        if run < 2:
            job.kill()
    said = job.ended()
    assert running.returncode == 0, said
    found = [row["n"] for row in job.rows()]
    assert len(found) == len(set(found)) == 2_500
    # It has ended, and writes nothing once more.
    again = job.start()
    said = job.ended()
    assert again.returncode == 0, said
    assert len(job.rows()) == 2_500 and job.spool() == []


def test_windows_of_idle_partitions_are_there_once(broker, tmp_path, jobs):
    """One partition stays empty, so the clock decides when windows are complete."""
    source = broker.topic(next(NAMES), 2)
    idle = ", 'scan.watermark.idle-timeout' = '200 ms'"
    job = Spooled(broker, tmp_path, table(broker, source, COLUMNS, idle, bounded=False),
                  "INSERT INTO o SELECT window_start, COUNT(*) FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), "
                  "INTERVAL '2' SECOND)) GROUP BY window_start, window_end;", "s TIMESTAMP(3), n BIGINT")
    jobs.append(job)
    assert EXPLAINED + "a table has 'scan.watermark.idle-timeout'" in job.explained()
    for run in range(4):
        job.start(workers=1 + run % 2)
        broker.fill(source, [message(n) for n in range(1_000 * run, 1_000 * (run + 1))], partition=1)
        time.sleep(0.5 + 0.2 * run)
        job.kill()
    broker.fill(source, [message(n) for n in range(4_000, 4_300)], partition=1)
    job.start()
    job.until("all windows", lambda: len(job.rows()) >= 40)
    found = {row["s"]: row["n"] for row in job.rows() if row["n"] == 100}
    assert len(found) >= 40 and len(job.rows()) == len({row["s"] for row in job.rows()})


@pytest.mark.parametrize("partitions, query, why", [
    (4, "INSERT INTO o SELECT e FROM t CROSS JOIN UNNEST(ARRAY[n, n + 1]) AS u (e);", "reads several partitions"),
    (1, "INSERT INTO o SELECT n FROM t UNION ALL SELECT m FROM u;", "reads several partitions"),
    (4, "SET 'lookup.reload' = '0';\n"
     "INSERT INTO o SELECT t.n FROM t JOIN names FOR SYSTEM_TIME AS OF t.at ON t.n = names.id;",
     "reads several partitions"),
    (1, "INSERT INTO o SELECT t.n FROM t JOIN names FOR SYSTEM_TIME AS OF t.at ON t.n = names.id;", "looks up rows"),
    (1, "INSERT INTO o SELECT n FROM t;", "by replay"),
])
def test_what_makes_rows_vary(broker, tmp_path, partitions, query, why):
    """No window puts these rows into an order."""
    one, other = broker.topic(next(NAMES), partitions), broker.topic(next(NAMES))
    (tmp_path / "names.csv").write_text("id\n1\n")
    columns = "n BIGINT, at AS PROCTIME()" if "names" in query else "n BIGINT"
    declared = (table(broker, one, columns, bounded=False) + table(broker, other, "m BIGINT", name="u", bounded=False) +
                f"CREATE TABLE names (id BIGINT) WITH ('connector' = 'file', 'path' = '{tmp_path}/names.csv', "
                "'format' = 'csv');\n")
    assert why in Spooled(broker, tmp_path, declared, query, "n BIGINT").explained()


def test_a_query_without_them_takes_the_replay(broker, tmp_path, jobs):
    job = Spooled(broker, tmp_path, numbers(100), "INSERT INTO o SELECT n FROM t;", "n BIGINT")
    assert "INSERT INTO o: each row exactly once by replay, visible at once" in job.explained()
    spooled = Spooled(broker, tmp_path, numbers(100), "INSERT INTO o SELECT n FROM t;", "n BIGINT",
                      ", 'sink.spool' = 'rows'")
    assert EXPLAINED + "'sink.spool' is given" in spooled.explained()


def test_a_replay_that_becomes_a_spool(broker, tmp_path, jobs):
    """The topic grows while the job is dead, whose rows since its checkpoint are there."""
    source = broker.topic(next(NAMES))
    job = Spooled(broker, tmp_path, table(broker, source, "n BIGINT", bounded=False),
                  "INSERT INTO o SELECT n FROM t;", "n BIGINT")
    jobs.append(job)
    assert "by replay" in job.explained()
    broker.fill(source, [json.dumps({"n": n}) for n in range(500)])
    job.start(every="60s")
    job.until("the rows", lambda: len(job.rows()) == 500)
    job.kill()
    broker.grow(source, 2)
    assert EXPLAINED in job.explained()
    broker.fill(source, [json.dumps({"n": n}) for n in range(500, 700)], partition=1)
    job.start()
    consecutive(job, 700)


# --- between checkpoint and commit ----------------------------------------------------------------

def stopped_before_commit(broker, job: Spooled) -> None:
    """Kills a job whose checkpoint is written, and whose rows are not: the broker does not answer."""
    job.start()
    job.until("the first rows", lambda: len(job.rows()) > 0)
    for _ in range(20):
        before = job.manifests()
        broker.process.send_signal(signal.SIGSTOP)
        try:
            # Another checkpoint shows that the commit of the one before is over. There is none if that commit waits.
            end = time.monotonic() + 2
            while not (found := job.manifests() > before and job.spool()) and time.monotonic() < end:
                time.sleep(0.05)
            if found:
                time.sleep(0.3)
                job.kill()
                return
        finally:
            broker.process.send_signal(signal.SIGCONT)
        time.sleep(0.17)
    pytest.fail("no checkpoint was begun while the broker did not answer")


def consecutive(job: Spooled, count: int) -> None:
    """At least so many rows are there, from 0 on, each once."""
    job.until(f"{count} rows", lambda: len(job.rows()) >= count)
    found = sorted(row["n"] for row in job.rows())
    assert found == list(range(len(found)))


def test_a_commit_is_made_up_for(broker, tmp_path, jobs):
    job = Spooled(broker, tmp_path, numbers(2_000), "INSERT INTO o SELECT n FROM t;", "n BIGINT",
                  ", 'sink.spool' = 'state'")
    jobs.append(job)
    stopped_before_commit(broker, job)
    there = len(job.rows())
    waiting = job.spool()
    assert waiting
    job.start(workers=2)
    consecutive(job, there + 2_000)
    job.kill()
    # What was open when the jobs were killed goes with the next starts.
    job.start()
    consecutive(job, there + 4_000)
    assert not set(waiting) & set(job.spool())


def test_a_spool_that_is_gone_or_damaged_is_named(broker, tmp_path, jobs):
    job = Spooled(broker, tmp_path, numbers(2_000), "INSERT INTO o SELECT n FROM t;", "n BIGINT",
                  ", 'sink.spool' = 'state'")
    jobs.append(job)
    stopped_before_commit(broker, job)
    there = len(job.rows())
    kept = {path: path.read_bytes() for path in job.spool()}
    for change in (lambda path, _: path.unlink(), lambda path, _: path.write_bytes(b""),
                   lambda path, bytes: path.write_bytes(bytes[:-1] + b"\xff")):
        for path, content in kept.items():
            change(path, content)
        running = job.start()
        said = job.ended()
        assert running.returncode != 0 and any(path.name in said for path in kept) and "--restore" in said, said
        assert len(job.rows()) == there
        for path, content in kept.items():
            path.write_bytes(content)
    job.start()
    consecutive(job, there + 1_000)


def test_rows_go_on_from_the_checkpoint_before(broker, tmp_path, jobs):
    job = Spooled(broker, tmp_path, numbers(2_000), "INSERT INTO o SELECT n FROM t;", "n BIGINT",
                  ", 'sink.spool' = 'state'")
    jobs.append(job)
    stopped_before_commit(broker, job)
    there, last = len(job.rows()), job.manifests()
    for path in job.spool():
        path.unlink()
    job.start(more=["--restore", str(last - 1)])
    consecutive(job, there + 1_000)


class InBucket(Spooled):
    """Its checkpoints, and so its spool, are in a bucket."""

    def __init__(self, bucket, *words):
        super().__init__(*words)
        self.bucket, self.state = bucket, f"s3://{NAME}/jobs/state"

    def manifests(self) -> int:
        keys = self.bucket.keys("jobs/state/manifest-")
        return max((int(key.split("-")[-1].removesuffix(".json")) for key in keys), default=0)

    def spool(self) -> list[str]:
        return self.bucket.keys("jobs/state/spool/")


def test_a_spool_is_where_the_checkpoints_are(broker, bucket, tmp_path, jobs):
    job = InBucket(bucket, broker, tmp_path, numbers(500), "INSERT INTO o SELECT n FROM t LIMIT 1000000000;",
                   "n BIGINT")
    jobs.append(job)
    stopped_before_commit(broker, job)
    there, waiting = len(job.rows()), job.spool()
    job.start()
    consecutive(job, there + 500)
    assert waiting and not set(waiting) & set(job.spool())


# --- transactions ---------------------------------------------------------------------------------

def test_more_rows_than_a_transaction_has(broker, tmp_path, jobs):
    """An interval of some hundred thousand rows, and a crash in the middle of its commit."""
    rows = 300_000
    tables = f"CREATE TABLE t (n BIGINT) WITH ('connector' = 'datagen', 'number-of-rows' = '{rows}', " \
             "'fields.n.kind' = 'sequence', 'fields.n.start' = '0');\n"
    text = "x" * 60
    job = Spooled(broker, tmp_path, tables, f"INSERT INTO o SELECT n, '{text}' FROM t;", "n BIGINT, s STRING",
                  ", 'sink.spool' = 'state', 'properties.transaction.timeout.ms' = '5000'")
    jobs.append(job)
    running = job.start(workers=2, every="60s")
    while job.manifests() == 0:
        assert running.poll() is None, job.ended()
    job.kill()
    assert len(job.rows()) < rows
    for _ in range(2):
        running = job.start(workers=2, every="60s")
        said = job.ended()
        assert running.returncode == 0, said
    assert sorted(row["n"] for row in job.rows()) == list(range(rows))


@pytest.mark.parametrize("more", ["", ", 'sink.spool' = 'state'"])
def test_a_transaction_that_the_broker_has_ended_is_written_again(tmp_path_factory, tmp_path, jobs, more):
    why = kafka.missing()
    if why:
        cannot_run(why)
    broker = kafka.Broker(tmp_path_factory.mktemp("broker"),
                          "transaction.abort.timed.out.transaction.cleanup.interval.ms=100\n")
    broker.start()
    try:
        more += ", 'properties.transaction.timeout.ms' = '1000'"
        job = Spooled(broker, tmp_path, numbers(5_000), "INSERT INTO o SELECT n FROM t;", "n BIGINT", more)
        jobs.append(job)
        running = job.start(every="50ms", more=["--log", "text", "--log-level", "warn"])
        job.until("the first rows", lambda: len(job.rows()) > 0)
        for turn in range(30):
            running.send_signal(signal.SIGSTOP)
            time.sleep(1.6)
            running.send_signal(signal.SIGCONT)
            time.sleep(0.5 + 0.013 * turn)
            if b"written again" in (tmp_path / "said").read_bytes():
                break
        consecutive(job, len(job.rows()) + 2_000)
        job.kill()
        said = job.ended()
        assert "written again" in said, f"no transaction was open in any turn: {said}"
    finally:
        broker.end()

"""Checkpoints and outputs in a bucket of S3."""

import io
import os
import signal
import subprocess
import time
from collections import Counter

import pyarrow.parquet
import pytest
from bucket import NAME, Bucket
from test_restart import COUNT, QUERY, SOURCE, Restarted, expected

import harness

STATE, OUTPUT = f"s3://{NAME}/jobs/state", f"s3://{NAME}/out"
TO_BUCKET = QUERY.replace("'path' = 'o'", f"'path' = '{OUTPUT}'")


@pytest.fixture(scope="module")
def service():
    service = Bucket()
    yield service
    service.close()


@pytest.fixture
def bucket(service, monkeypatch):
    """An empty bucket without faults, which programs find by their environment."""
    service.fault, service.faults = (lambda method, path: None), 0
    service.request("POST", "/moto-api/reset")
    service.request("PUT", f"/{NAME}")
    for name, value in service.environment.items():
        monkeypatch.setenv(name, value)
    return service


class InBucket(Restarted):
    """A job whose output is in a bucket."""

    def __init__(self, folder, bucket):
        super().__init__(folder)
        self.bucket, self.state = bucket, STATE

    def rows(self) -> Counter:
        keys = self.bucket.keys("out/")
        return Counter(row for key in keys for row in self.bucket.read(key).decode().splitlines())


@pytest.fixture
def job(bucket, tmp_path):
    job = InBucket(tmp_path, bucket)
    yield job
    for started in job.started:
        if started.poll() is None:
            started.kill()
            started.communicate()


def test_a_killed_job_goes_on(job, bucket):
    """Checkpoints and rows in a bucket: each row once, at any moment, and no upload is left by a job that ends well."""
    for last in (1050, 2050, 3050, 4050):
        job.add(last - 1050 if last == 1050 else last - 1000, last)
        running = job.start(TO_BUCKET, every="100ms")
        job.waits_for(3 * (last // 100))
        assert job.rows() == expected(last, last // 100)
        job.stops(running, signal.SIGKILL)
    job.add(4050, 5050)
    running = job.start(TO_BUCKET, every="100ms")
    job.waits_for(150)
    said = job.stops(running, signal.SIGINT)
    assert "resumed from checkpoint" in said, said
    assert job.rows() == expected(5050, 50)


def test_checkpoints_in_a_bucket_are_shown_and_deleted(job, bucket):
    job.add(0, 1050)
    running = job.start(TO_BUCKET, every="100ms")
    job.waits_for(30)
    job.stops(running, signal.SIGINT)
    listed = job.command("list", STATE)
    numbers = [line.split()[0] for line in listed.stdout.decode().splitlines()]
    assert "table a: watermark" in job.command("show", STATE).stdout.decode()
    assert job.command("verify", STATE).code == 0
    before = len(bucket.keys("jobs/state/"))
    assert before >= 2 and numbers
    damaged = bucket.keys("jobs/state/state/")[-1]
    bucket.request("DELETE", f"/{NAME}/{damaged}")
    done = job.command("verify", STATE)
    name = damaged.removeprefix("jobs/state/")
    assert done.code == 1 and f"{name}: it is not there" in done.stdout.decode(), done
    assert job.command("delete", STATE, numbers[0]).code == 0
    assert len(bucket.keys("jobs/state/")) < before


@pytest.mark.parametrize("what", ["lost", "late", 503, 500])
def test_faults_of_the_service_lose_and_double_nothing(job, bucket, what):
    """Every third request fails, or its answer is lost: also of the manifest ("if absent") and of complete uploads."""
    asked = [0]

    def fault(method, path):
        asked[0] += 1
        return what if asked[0] % 3 == 0 and (what != "late" or asked[0] % 6 == 0) else None

    bucket.fault = fault
    for last in (1050, 2050):
        job.add(last - 1050 if last == 1050 else last - 1000, last)
        running = job.start(TO_BUCKET, every="100ms")
        job.waits_for(3 * (last // 100))
        job.stops(running, signal.SIGKILL)
    bucket.fault = lambda method, path: None
    running = job.start(TO_BUCKET, every="100ms")
    job.waits_for(60)
    job.stops(running, signal.SIGINT)
    assert bucket.faults > 3
    assert job.rows() == expected(2050, 20)


def test_a_bucket_that_is_gone_for_a_while_does_not_end_the_job(job, bucket):
    job.add(0, 1050)
    running = job.start(TO_BUCKET, every="100ms")
    job.waits_for(30)
    # Nothing is repeated that is forbidden.
    bucket.fault = lambda method, path: 403 if "/jobs/state/manifest" in path and method == "PUT" else None
    job.add(1050, 2050)
    time.sleep(1)
    assert running.poll() is None
    assert job.rows() == expected(1050, 10)
    bucket.fault = lambda method, path: None
    job.waits_for(60)
    said = job.stops(running, signal.SIGINT)
    assert "cannot be written" in said and "is written, after" in said, said
    assert job.rows() == expected(2050, 20)


def test_results_without_checkpoints_become_visible_at_the_end(bucket, tmp_path):
    """Parquet, partitions with marks, and a file of several parts."""
    script = tmp_path / "job.sql"
    script.write_text(f"""CREATE TABLE n (k BIGINT, t STRING) WITH ('connector' = 'datagen', 'number-of-rows' = '400000',
    'fields.k.kind' = 'sequence', 'fields.k.start' = '1', 'fields.k.end' = '400000', 'fields.t.length' = '100');
CREATE TABLE o (p BIGINT, k BIGINT, t STRING) PARTITIONED BY (p) WITH ('connector' = 'file', 'format' = 'parquet',
    'path' = '{OUTPUT}', 'sink.partition-commit.policy.kind' = 'success-file');
INSERT INTO o SELECT CASE WHEN k > 1000 THEN 1 ELSE 0 END, k, t FROM n;
""")
    done = harness.run("run", script, stats=False)
    assert done.code == 0, done.stderr
    keys = bucket.keys("out/")
    assert "out/p=0/_SUCCESS" in keys and "out/p=1/_SUCCESS" in keys, keys
    found = Counter()
    for key in keys:
        if not key.endswith("_SUCCESS"):
            found.update(pyarrow.parquet.read_table(io.BytesIO(bucket.read(key)), columns=["k"])["k"].to_pylist())
    assert found == Counter(range(1, 400_001))
    assert sum(len(bucket.read(key)) for key in keys) > 40_000_000
    assert bucket.uploads() == 0


@pytest.mark.parametrize("path, message", [
    ("s3://", "no URL of a bucket"),
    ("s3://no-such-bucket/out", "make the bucket, or name another one"),
])
def test_a_wrong_place_is_told(bucket, tmp_path, path, message):
    script = tmp_path / "job.sql"
    (tmp_path / "a.csv").write_text("k,v,ts\n1,1,2024-01-01 00:00:00\n")
    script.write_text(SOURCE.replace("'path' = 'o'", f"'path' = '{path}'").replace(", 'follow' = 'true'", "") + COUNT.format(size=10))
    done = harness.run("run", script, stats=False)
    assert done.code in (1, 2) and message in done.stderr, done.stderr
    script.write_text(SOURCE.replace(", 'follow' = 'true'", "") + COUNT.format(size=10))
    done = harness.run("run", script, "--checkpoint", path, stats=False)
    assert done.code in (1, 2) and message in done.stderr, done.stderr


def test_nothing_in_a_bucket_is_overwritten(bucket, tmp_path):
    script = tmp_path / "job.sql"
    (tmp_path / "a.csv").write_text("k,v,ts\n1,1,2024-01-01 00:00:00\n")
    script.write_text(TO_BUCKET.replace(", 'follow' = 'true'", "").replace("INSERT INTO", "INSERT OVERWRITE"))
    done = harness.run("run", script, stats=False)
    assert done.code == 2 and "can be overwritten" in done.stderr, done.stderr

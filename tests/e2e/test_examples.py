"""The examples run unchanged and give the same answers as DuckDB."""

import math
import shutil
from fractions import Fraction

import duckdb
import harness
import pytest

EXAMPLES = harness.ROOT / "examples"
DATA = EXAMPLES / "data" / "google-cluster-task-events-2011.csv"


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.sql")), ids=lambda p: p.name)
def test_every_example_runs(path, tmp_path):
    # In a copy: some write files beside themselves.
    (tmp_path / "data").symlink_to(EXAMPLES / "data")
    result = harness.run("run", shutil.copy(path, tmp_path))
    assert result.code == 0, result.stderr
    assert harness.sound(result) == []
    assert result.stdout.count(b"\n") > 3


def rows_of(name: str, **settings) -> list[list[str | None]]:
    result = harness.run("run", EXAMPLES / name, "--format", "csv", settings=settings)
    assert result.code == 0, result.stderr
    return harness.parse_csv(result.stdout.decode())[1:]


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_cluster_monitoring_is_what_duckdb_says(workers):
    # The trace is in order, so nothing is late. Means are exact and rounded once, at
    # the end, so they are compared bit for bit.
    found = duckdb.sql(f"""
        SELECT strftime(to_timestamp(time_s // 2 * 2) AT TIME ZONE 'UTC', '%Y-%m-%d %H:%M:%S.000'),
               job_id, list(cpu_request)
        FROM read_csv('{DATA}') GROUP BY 1, 2 ORDER BY 1, 2""").fetchall()
    expected = [[start, str(job), float(sum(map(Fraction, cpu)) / len(cpu))] for start, job, cpu in found]
    assert len(expected) > 1_000
    rows = [[start, job, float(cpu)] for start, job, cpu in
            rows_of("cluster-monitoring.sql", workers=workers, **{"epoch.bytes": 4096})]
    assert rows == expected


def test_busiest_users_is_what_duckdb_says():
    found = duckdb.sql(f"""
        SELECT strftime(to_timestamp(time_s // 60 * 60) AT TIME ZONE 'UTC', '%Y-%m-%d %H:%M:%S.000'),
               user_id, COUNT(*), COUNT(*) FILTER (WHERE event_type = 0),
               COUNT(*) FILTER (WHERE event_type IN (2, 3)),
               list(memory_request) FILTER (WHERE event_type = 0), MAX(priority)
        FROM read_csv('{DATA}') GROUP BY 1, 2 HAVING COUNT(*) >= 100 ORDER BY 1, 2""").fetchall()
    expected = [[*map(str, row[:5]), math.fsum(row[5]) if row[5] else None, str(row[6])] for row in found]
    rows = [[*row[:5], float(row[5]) if row[5] else None, row[6]] for row in rows_of("busiest-users.sql")]
    assert rows == expected


def test_stateless_is_what_duckdb_says():
    found = duckdb.sql(f"""
        SELECT strftime(to_timestamp(time_s) AT TIME ZONE 'UTC', '%Y-%m-%d %H:%M:%S'), job_id, task_index,
               CASE event_type WHEN 0 THEN 'submitted' WHEN 1 THEN 'scheduled' ELSE 'ended' END,
               cpu_request * 100
        FROM read_csv('{DATA}', parallel = false) WHERE cpu_request > 0.2 LIMIT 10""").fetchall()
    rows = [[row[0][:19], *row[1:4], float(row[4])] for row in rows_of("stateless.sql")]
    assert rows == [[*map(str, row[:4]), row[4]] for row in found]


def test_generated_makes_every_record():
    rows = rows_of("generated.sql")
    windows, groups = rows[:10], rows[11:]  # row 10 is the second query's header
    assert [row[1] for row in windows] == ["100000"] * 10
    assert len(groups) == 10 and sum(int(row[1]) for row in groups) == 1_000_000
    assert {row[0] for row in groups} == {str(i) for i in range(10)}

"""Running jobs: when windows fire, how they stop, what happens when their output is closed, and how much processor
time and memory they use."""

import datetime as dt
import json
import os
import signal
import subprocess
import time

import harness
import pytest
from conftest import WINDOW, events, generated
from jobs import children

SECOND = dt.timedelta(seconds=1)
PATIENCE_SECONDS = 60


def start(script, sql: str, *words: str) -> subprocess.Popen:
    command = [str(harness.program()), "run", str(script.write(sql)), "--format", "csv", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            stdin=subprocess.DEVNULL)


def stop(process: subprocess.Popen) -> tuple[bytes, str]:
    """Ctrl-C; returns what was left in its output."""
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE_SECONDS)
    return out, err.decode()


@pytest.fixture
def running(script):
    """Starts programs, and ends them whatever happens to the test."""
    started = []

    def begin(sql: str, *words: str) -> subprocess.Popen:
        started.append(start(script, sql, *words))
        return started[-1]

    yield begin
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


SECONDLY = """SELECT window_start, window_end, COUNT(*) AS n, MAX(ts) AS last
FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '1' SECOND))
GROUP BY window_start, window_end;
"""


@pytest.mark.parametrize("workers", ["1", "2"])
def test_no_window_fires_before_its_end_and_each_fires_while_the_input_goes_on(running, workers):
    """Promise P1, with event time on the wall clock: a window's rows must not appear before its end
    plus the watermark's delay, must be complete, and must not wait for the end of the input."""
    process = running(generated(per_second=1_000) + SECONDLY, "--workers", workers)
    assert process.stdout.readline() == b"window_start,window_end,n,last\n"
    seen = []
    while len(seen) < 4:
        line = process.stdout.readline().decode().strip()
        arrived = dt.datetime.now(dt.UTC).replace(tzinfo=None)
        assert line, process.stderr.read().decode()
        first, end, count, last = line.split(",")
        end, last = dt.datetime.fromisoformat(end), dt.datetime.fromisoformat(last)
        assert arrived >= end + 0.2 * SECOND, f"{line} appeared at {arrived}"
        assert last < end
        seen.append((first, int(count)))
    assert process.poll() is None
    # All but the first window, which began before the job did, have every record.
    assert [n for _, n in seen[1:]] == [1_000] * 3
    assert len({first for first, _ in seen}) == 4
    _, stderr = stop(process)
    assert process.returncode == 130, stderr


def test_rows_of_a_file_appear_before_its_end(script):
    rows = "".join(f"2024-01-01 {i // 3600:02}:{i // 60 % 60:02}:{i % 60:02},{i % 7},1\n" for i in range(40_000))
    script.data("events.csv", "ts,k,v\n" + rows)
    result = script.run(events() + WINDOW, workers=1, batch_rows=64, windows_pack="1 s")
    assert result.code == 0
    assert result.stats["windows"] == 4_000
    assert result.stats["windows_fired_early"] > 3_000


def test_ctrl_c_ends_with_130_and_complete_lines(running):
    process = running(generated(per_second=5_000) + "SELECT k, ts FROM events;", "--workers", "2")
    for _ in range(100):
        assert process.stdout.readline().endswith(b"\n")
    rest, stderr = stop(process)
    assert process.returncode == 130, stderr
    assert rest == b"" or rest.endswith(b"\n")
    assert "panicked" not in stderr and "error" not in stderr.lower(), stderr


def test_ctrl_c_ends_a_job_whose_output_nobody_reads(running):
    process = running(generated() + "SELECT k, ts FROM events;", "--workers", "2")
    process.stdout.readline()
    # The pipe is full when the job no longer uses the processor.
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=PATIENCE_SECONDS) == 130
    assert b"interrupted" in process.stderr.read()


def test_ctrl_c_leaves_all_counters(running, tmp_path):
    path = tmp_path / "stats.json"
    table = generated().replace("'fields.k.min' = '0', 'fields.k.max' = '9'", "'fields.k.kind' = 'sequence'")
    process = running(table + WINDOW, "--workers", "2", "--stats-json", str(path))
    process.stdout.readline()
    time.sleep(1)
    _, stderr = stop(process)
    assert process.returncode == 130, stderr
    # Keys that are all new make every index grow.
    assert json.loads(path.read_text())["index_growths"] > 0


def test_ctrl_c_ends_a_job_that_waits_for_input(running):
    process = running(generated(per_second=1) + WINDOW, "--workers", "2")
    assert process.stdout.readline() == b"window_start,k,n\n"
    _, stderr = stop(process)
    assert process.returncode == 130, stderr


def test_a_signal_to_terminate_ends_it_too(running):
    process = running(generated(per_second=10) + WINDOW)
    process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode in (130, 143, -signal.SIGTERM)


@pytest.mark.parametrize("format_", ["csv", "ndjson", "table"])
def test_a_closed_pipe_ends_it_quietly(script, format_):
    script.write(generated() + "SELECT k, ts FROM events;")
    line = (f"set -o pipefail; {harness.program()} run query.sql --format {format_} --workers 2 "
            "| head -n 1 > first-line")
    done = subprocess.run(["bash", "-c", line], cwd=script.folder, capture_output=True,
                          timeout=PATIENCE_SECONDS)
    stderr = done.stderr.decode()
    assert done.returncode == 0, stderr
    assert (script.folder / "first-line").read_bytes().strip()
    for word in ("panicked", "error", "Broken pipe"):
        assert word not in stderr, stderr


def test_a_closed_pipe_ends_a_windowed_job_at_its_next_row(running):
    process = running(generated(per_second=1_000) + SECONDLY)
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(timeout=PATIENCE_SECONDS) == 0


def test_limit_ends_an_endless_input(script):
    result = script.run(generated() + "SELECT k FROM events WHERE k >= 0 LIMIT 5;", workers=2)
    assert result.code == 0
    assert len(result.stdout.splitlines()) == 6


@pytest.mark.parametrize("processes", [1, 2])
def test_limit_ends_endless_windows_that_have_an_order(script, processes):
    query = """SELECT window_end, k FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '0.2' SECOND))
               GROUP BY window_start, window_end, k ORDER BY window_end, COUNT(*) DESC, k LIMIT 12;"""
    result = script.run(generated(per_second=1_000) + query, workers=2, processes=processes)
    assert result.code == 0, result.stderr
    ends = [line.split(b",")[0] for line in result.stdout.splitlines()[1:]]
    assert len(ends) == 12 and ends == sorted(ends)


@pytest.mark.parametrize("layout", ["1x2", "2x1 shm", "2x1 tcp"])
def test_an_idle_job_hardly_uses_the_processor(running, capsys, layout):
    counts, _, fabric = layout.partition(" ")
    processes, workers = counts.split("x")
    more = ["--processes", processes, "--fabric", fabric] if fabric else []
    process = running(generated(per_second=1) + WINDOW, "--workers", workers, *more)
    process.stdout.readline()
    members = [process.pid, *children(process.pid)]
    assert len(members) == int(processes)

    def cpu_seconds() -> float:
        ticks = 0
        for member in members:
            with open(f"/proc/{member}/stat", encoding="ascii") as file:
                fields = file.read().rsplit(")", 1)[1].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    time.sleep(0.5)
    before, start_s = cpu_seconds(), time.monotonic()
    time.sleep(3)
    share = (cpu_seconds() - before) / (time.monotonic() - start_s)
    with capsys.disabled():
        print(f"\nan idle job ({layout}) uses {share:.2%} of a core")
    assert process.poll() is None
    stop(process)


# Memory --------------------------------------------------------------------------------------------


def peak_bytes(command: list[str]) -> tuple[int, int, str]:
    """Exit code, peak resident bytes, stderr."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                               stdin=subprocess.DEVNULL)
    stderr = process.stderr.read().decode()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, usage.ru_maxrss * 1024, stderr


def unique_keys(rows: int, step: str) -> str:
    return (generated(rows=rows, step=step)
            .replace("'fields.k.min' = '0', 'fields.k.max' = '9'", "'fields.k.kind' = 'sequence'"))


@pytest.mark.parametrize("workers", ["1", "2"])
def test_state_beyond_its_budget_ends_the_job_with_an_error(script, workers):
    budget = 64 << 20
    command = [str(harness.program()), "run", "--format", "csv", "--workers", workers]
    small = unique_keys(1_000, "1 us") + WINDOW
    code, base, stderr = peak_bytes([*command, str(script.write(small)), "--set", "memory=64MB"])
    assert code == 0, stderr
    # Twenty million keys in one window need far more than 64 MB.
    large = unique_keys(20_000_000, "1 us") + WINDOW.replace("'10' S", "'600' S")
    code, peak, stderr = peak_bytes([*command, str(script.write(large)), "--set", "memory=64MB"])
    assert code == 1, stderr
    for word in ("memory", "keys", "budget", str(budget), "--set memory="):
        assert word in stderr, stderr
    assert "panicked" not in stderr
    assert peak < base + 2 * budget, f"{peak >> 20} MiB at its peak, {base >> 20} MiB without state"


def test_many_windows_fit_into_a_budget_that_all_of_them_would_not(script):
    # Five million unique keys in 500 windows: a few windows at a time are small.
    sql = unique_keys(5_000_000, "1 ms") + WINDOW
    result = script.run(sql, workers=2, memory="64MB")
    assert result.code == 0, result.stderr
    assert result.stats["windows"] == 500
    assert len(result.stdout.splitlines()) == 5_000_001
    assert result.stats["state_bytes_peak"] <= 64 << 20

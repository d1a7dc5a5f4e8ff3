"""Jobs on several processes that lose a process, a connection or a disk: all processes end, and say which one failed."""

import ctypes
import errno
import json
import os
import random
import re
import resource
import signal
import socket
import subprocess
import time
from pathlib import Path

import harness
import pytest
from conftest import WINDOW, cannot_run, events, generated
from jobs import ENDLESS, PATIENCE_SECONDS, children, is_alive, wait_until

FABRICS = ["shm", "tcp"]
KILLED = "was killed by signal 9 (SIGKILL)"


def waits_for_a_pipe(job, script):
    """A job whose process 0 waits for somebody who opens a named pipe."""
    os.mkfifo(script.folder / "events.csv")
    running = job(events() + WINDOW, 2, "shm", running=False)
    running.wait_for_others(1)
    # From here on it waits; if it should come later, the test is a weaker one.
    time.sleep(0.5)
    return running


def test_a_killed_process_ends_a_job_that_waits_for_a_pipe(job, script):
    running = waits_for_a_pipe(job, script)
    os.kill(running.others[0], signal.SIGKILL)
    code, stderr = running.end()
    assert (code, stderr) == (1, f"error: process 1 {KILLED}\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_job_that_waits_for_a_pipe(job, script, number):
    running = waits_for_a_pipe(job, script)
    running.main.send_signal(number)
    code, stderr = running.end()
    assert code == 130 and "error" not in stderr, stderr


def test_nobody_is_left_of_a_job_that_waits_for_a_pipe(job, script):
    running = waits_for_a_pipe(job, script)
    running.main.kill()
    code, stderr = running.end()
    assert code == -signal.SIGKILL
    assert re.fullmatch("process 1 stops: process 0 has (ended|closed its connection)\n", stderr), stderr


def moments(longest_seconds: float) -> list[float]:
    """Random moments of a start, early ones more often; MILLSTREAM_MOMENTS is their number."""
    number = int(os.environ.get("MILLSTREAM_MOMENTS", 10))
    return [longest_seconds * random.random() ** 2 for _ in range(number)]


def test_nobody_is_left_of_a_process_0_that_is_killed_while_it_starts(job):
    for moment in moments(0.2):
        running = job(ENDLESS, 4, "shm", running=False)
        time.sleep(moment)
        running.main.kill()
        code, stderr = running.end()
        assert code == -signal.SIGKILL, (moment, stderr)
        for line in stderr.splitlines():
            assert re.fullmatch(r"process [1-3] stops: process 0 has (ended|closed its connection)", line), stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_processes_start_ends_them(job, number):
    for moment in moments(0.1):
        running = job(ENDLESS, 4, "shm", running=False)
        # Not before it can be interrupted in its own way.
        running.wait_for_others(1)
        time.sleep(moment)
        running.main.send_signal(number)
        code, stderr = running.end()
        assert code == 130 and "error" not in stderr and "refused" not in stderr, stderr


@pytest.mark.parametrize("fabric", FABRICS)
def test_whoever_is_killed_while_processes_start_is_named(job, fabric):
    for moment in moments(0.15):
        running = job(ENDLESS, 4, fabric, running=False)
        running.wait_for_others(3)
        time.sleep(moment)
        victim = random.randrange(3)
        os.kill(running.others[victim], signal.SIGKILL)
        code, stderr = running.end()
        assert code == 1
        errors = [line for line in stderr.splitlines() if " records, " not in line]
        assert errors == [f"error: process {victim + 1} {KILLED}"], (moment, stderr)


@pytest.mark.parametrize("fabric", FABRICS)
def test_a_process_0_that_is_stopped_is_named_by_all(job, fabric):
    running = job(ENDLESS, 3, fabric)
    running.main.send_signal(signal.SIGSTOP)
    wait_until("the others end", lambda: not any(map(is_alive, running.others)))
    running.main.send_signal(signal.SIGCONT)
    code, stderr = running.end()
    assert code == 1
    for process in (1, 2):
        assert f"process {process} stops: process 0 has not answered for 2 s\n" in stderr, stderr
    assert "error: process 0 has not answered for 2 s\n" in stderr, stderr


def runs_as_another(pid: int) -> bool:
    try:
        return b"\0node" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def test_why_names_a_process_that_has_not_joined(job):
    """It is stopped between its start and its joining, which is seldom hit at once."""
    for _ in range(60):
        running = job(ENDLESS, 3, "shm", running=False)
        while not (len(others := children(running.main.pid)) == 2 and all(map(runs_as_another, others))):
            assert running.main.poll() is None, running.main.stderr.read()
        os.kill(others[1], signal.SIGSTOP)
        time.sleep(0.5)
        told = harness.run("why", running.main.pid, stats=False).stdout.decode()
        for pid in others:
            os.kill(pid, signal.SIGKILL)
        running.end()
        # On a busy machine the coordinator may not have come so far.
        if "starting for" in told and "reads the script" not in told:
            assert "waiting for process 2 to join" in told
            return
    raise AssertionError("it was never stopped early enough")


@pytest.mark.parametrize("fabric", FABRICS)
@pytest.mark.parametrize("process", [0, 1])
def test_a_short_pause_is_no_failure(job, fabric, process):
    running = job(ENDLESS, 3, fabric)
    paused = [running.main.pid, *running.others][process]
    for seconds in (0.7, 1.3):
        os.kill(paused, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(paused, signal.SIGCONT)
        # Longer than from one sign of life to the next: pauses that follow each other at once are one long one.
        time.sleep(0.7)
    assert running.main.stdout.readline()
    running.main.send_signal(signal.SIGINT)
    code, stderr = running.end()
    assert code == 130 and "error" not in stderr, stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_closing_line_of_a_job_that_is_stopped_counts_all_processes(job, script, number):
    path = script.folder.parent / f"{script.folder.name}.json"
    running = job(ENDLESS, 4, "shm", "--stats-json", path)
    counted = 0
    for _ in range(30):
        counted += int(running.main.stdout.readline().split(b",")[2])
    # Twice at once, as programs do that signal a process and its group.
    running.main.send_signal(number)
    running.main.send_signal(number)
    code, stderr = running.end()
    assert code == 130, stderr
    records = json.loads(path.read_text())["records"]
    path.unlink()
    # Each of the four has read about a fourth, and three windows that have fired are among it.
    assert records >= counted > 0, (records, counted)
    assert f"{records:,} records, " in stderr and "without those of" not in stderr, stderr


def test_the_closing_line_names_whose_counters_are_missing(job):
    running = job(ENDLESS, 3, "shm")
    os.kill(running.others[1], signal.SIGKILL)
    code, stderr = running.end()
    assert code == 1 and re.search(r"^[\d,]+ records, .*, without those of process 2$", stderr, re.M), stderr


def test_an_address_space_that_is_too_small_is_told_with_the_setting(script):
    done = subprocess.run([str(harness.program()), "run", str(script.write(FEW)), "--processes", "2", "--set", "memory=8GB"],
                          capture_output=True, text=True, timeout=PATIENCE_SECONDS, stdin=subprocess.DEVNULL,
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30)))
    assert done.returncode == 1, done.stderr
    assert "mmap failed: Cannot allocate memory" in done.stderr, done.stderr
    assert "ulimit -v" in done.stderr and "lower the setting 'memory'" in done.stderr, done.stderr
    assert harness.sound(done) == [], done.stderr


def with_open_files(soft: int, hard: int, *words: object) -> subprocess.CompletedProcess:
    """Runs the program with limits of open files."""
    return subprocess.run([str(harness.program()), *map(str, words)], capture_output=True, text=True,
                          timeout=PATIENCE_SECONDS, stdin=subprocess.DEVNULL,
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard)))


FEW = generated(rows=4_000, step="50 ms") + WINDOW


@pytest.mark.parametrize("fabric", FABRICS)
def test_many_processes_need_no_higher_soft_limit_of_open_files(script, fabric):
    alone = script.run(FEW, workers=1)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    together = with_open_files(128, hard, "run", script.write(FEW), "--format", "csv", "--processes", 16,
                               "--fabric", fabric, "--workers", 1, "--set", "memory=32MB")
    assert together.returncode == 0, together.stderr
    assert together.stdout.encode() == alone.stdout and len(alone.stdout.splitlines()) > 100


@pytest.mark.parametrize("fabric", FABRICS)
@pytest.mark.parametrize("limit", [12, 20, 32, 48])
def test_too_few_open_files_are_told_with_the_limit(script, fabric, limit):
    done = with_open_files(limit, limit, "run", script.write(FEW), "--processes", 16, "--fabric", fabric,
                           "--workers", 1, "--set", "memory=32MB")
    assert done.returncode == 1, done.stderr
    assert "(os error 24)" in done.stderr, done.stderr
    assert f"each process may have {limit} files open; raise this limit (ulimit -n)" in done.stderr, done.stderr
    assert done.stderr.count("error: ") == 1, done.stderr


def sockets(pid: int) -> dict[int, int]:
    """A process's sockets: file descriptors by inode."""
    found = {}
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        target = os.readlink(entry)
        if target.startswith("socket:["):
            found[int(target[8:-1])] = int(entry.name)
    return found


def connections(pid: int) -> dict[tuple[str, str], int]:
    """A process's open TCP connections: file descriptors by own and other address."""
    own = sockets(pid)
    found = {}
    for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]:
        _, here, there, state, *rest = line.split()
        if state == "01" and int(rest[5]) in own:
            found[here, there] = own[int(rest[5])]
    return found


def cut(pid: int, other: int) -> None:
    """Cuts a TCP connection between two processes under their feet."""
    at_other = connections(other)
    mine = [fd for (here, there), fd in connections(pid).items() if (there, here) in at_other]
    handle = os.pidfd_open(pid)
    pidfd_getfd = 438
    copy = ctypes.CDLL(None, use_errno=True).syscall(pidfd_getfd, handle, mine[0], 0)
    os.close(handle)
    if copy < 0 and ctypes.get_errno() in (errno.EPERM, errno.ENOSYS):
        cannot_run("this machine lets nobody take hold of another process's connection")
    assert copy >= 0, os.strerror(ctypes.get_errno())
    with socket.socket(fileno=copy) as taken:
        taken.shutdown(socket.SHUT_RDWR)


def test_a_cut_connection_between_two_processes_ends_the_job(job):
    running = job(ENDLESS, 3, "tcp")
    cut(*running.others)
    code, stderr = running.end()
    assert code == 1
    # Either of the two may be the first to notice; or the third, when one of them has stopped because of that.
    assert re.search(r"^error: process ([01]: process 2|[02]: process 1) is gone: .*the channel", stderr, re.M), stderr


@pytest.mark.parametrize("fabric", FABRICS)
def test_a_cut_connection_to_process_0_ends_the_job(job, fabric):
    running = job(ENDLESS, 3, fabric)
    cut(running.others[1], running.main.pid)
    code, stderr = running.end()
    assert code == 1
    # Either of the two may be the first to notice; or the third, when process 2 has stopped because of that.
    assert re.search(r"^error: process (2 has closed its connection|2: process 0 is gone|[01]: process 2 is gone)",
                     stderr, re.M), stderr


def test_every_process_may_be_the_one_that_cannot_read_a_record(script):
    # Chunks of the file are decoded in turns: whose turn it is depends on where the bad record is.
    named = set()
    rows = [f"2024-01-01 00:00:{i // 100_000:02},{i % 7},{i}\n" for i in range(400_000)]
    for bad in range(0, 400_000, 40_000):
        script.data("events.csv", "ts,k,v\n" + "".join(rows[:bad]) + "2024-01-01 00:01:00,x,1\n" + "".join(rows[bad:]))
        sql = events() + WINDOW.replace("COUNT(*)", "SUM(v)")
        result = harness.run("run", script.write(sql), "--format", "csv", "--processes", 2, "--workers", 1)
        assert result.code == 1
        found = re.search(rf"^error: process ([01]): .*events\.csv:{bad + 2}:21: ", result.stderr, re.M)
        assert found, result.stderr
        named.add(found[1])
    assert named == {"0", "1"}

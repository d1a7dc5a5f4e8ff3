"""Jobs whose processes something else starts: by hand, or by a launcher."""

import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import harness
import pytest
from conftest import WINDOW, cannot_run, events, generated
from jobs import PATIENCE_SECONDS

SQL = generated(rows=60_000, step="5 ms", more=", 'splits' = '4'") + WINDOW
ENDLESS = generated(per_second=1000, more=", 'splits' = '4'") + WINDOW.replace("'10' SECOND", "'1' SECOND")


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class Ranks:
    """The processes of a job."""

    def __init__(self, folder: Path, sql: str, of: int):
        self.folder, self.of = folder, of
        self.script = folder / "job.sql"
        self.script.write_text(sql)
        self.secret = folder / "token"
        self.secret.write_text("a secret of the test, long enough\n")
        self.port = free_port()
        self.started: dict[int, subprocess.Popen] = {}

    def start(self, rank: int, *more: object, folder: Path | None = None, secret: Path | None = None) -> subprocess.Popen:
        words = [harness.program(), "run", self.script, "--rank", rank, "--of", self.of, "--listen", f"127.0.0.1:{self.port}",
                 "--token-file", secret or self.secret, "--workers", 1, "--format", "csv", *more]
        self.started[rank] = subprocess.Popen([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                              text=True, cwd=folder or self.folder)
        return self.started[rank]

    def ended(self, rank: int) -> tuple[int, str, str]:
        out, err = self.started[rank].communicate(timeout=PATIENCE_SECONDS)
        return self.started[rank].returncode, out, err


@pytest.fixture
def ranks(tmp_path):
    made: list[Ranks] = []

    def make(sql: str = SQL, of: int = 3) -> Ranks:
        made.append(Ranks(tmp_path, sql, of))
        return made[-1]

    yield make
    for one in made:
        for process in one.started.values():
            process.kill()
            process.communicate()


@pytest.mark.parametrize("fabric", [None, "tcp"])
def test_ranks_print_what_one_process_prints(ranks, script, fabric):
    """Process 0 comes last, and the others wait for it."""
    job, more = ranks(), ["--fabric", fabric] if fabric else []
    for rank in (2, 1):
        job.start(rank, *more)
    time.sleep(0.5)
    job.start(0, *more)
    code, out, err = job.ended(0)
    assert code == 0, err
    assert out == script.run(SQL, workers=1).stdout.decode() and len(out.splitlines()) > 100
    assert [job.ended(rank)[:2] for rank in (1, 2)] == [(0, "")] * 2
    assert f"process 0 of 3 (--rank); process 0 listens at 127.0.0.1:{job.port}" in err
    assert ("connected by 'shm': all processes are on this host" in err) == (fabric is None)


def test_files_are_found_from_the_directory_of_process_0(ranks, script, tmp_path):
    rows = "".join(f"2024-01-01 00:{i // 600 % 60:02}:{i // 10 % 60:02},{i % 7},{i}\n" for i in range(30_000))
    script.data("events.csv", "ts,k,v\n" + rows)
    alone = script.run(events() + WINDOW, workers=1)
    job = ranks(events(path=script.folder / "events.csv") + WINDOW, of=2)
    other = tmp_path / "other"
    other.mkdir()
    job.start(1, folder=other)
    job.start(0)
    code, out, err = job.ended(0)
    assert (code, out) == (0, alone.stdout.decode()), err


def test_a_rank_that_is_killed_is_named(ranks):
    job = ranks(ENDLESS)
    for rank in range(3):
        job.start(rank)
    assert job.started[0].stdout.readline(), "a first row"
    job.started[2].kill()
    code, _, err = job.ended(0)
    assert code == 1 and "process 2" in err, err
    assert job.ended(1)[0] != 0


@pytest.mark.parametrize("ends", [signal.SIGKILL, signal.SIGINT])
def test_ranks_end_with_process_0(ranks, ends):
    job = ranks(ENDLESS)
    for rank in range(3):
        job.start(rank)
    assert job.started[0].stdout.readline(), "a first row"
    # A launcher sends a signal to stop to all.
    for rank in (1, 2):
        job.started[rank].send_signal(signal.SIGINT)
    time.sleep(0.3)
    assert all(job.started[rank].poll() is None for rank in (0, 1, 2))
    job.started[0].send_signal(ends)
    begin = time.monotonic()
    codes = [job.ended(rank)[0] for rank in (1, 2)]
    assert time.monotonic() - begin < 4 and 0 not in codes


def test_who_has_another_secret_is_refused_and_the_job_goes_on(ranks, tmp_path):
    job = ranks(of=2)
    other = tmp_path / "other-token"
    other.write_text("another secret, long enough, too\n")
    job.start(0)
    stranger = job.start(1, secret=other)
    time.sleep(1)
    assert stranger.poll() is None, "it may be that process 0 is still to come"
    stranger.kill()
    stranger.communicate()
    job.start(1)
    code, out, err = job.ended(0)
    assert code == 0 and out, err
    assert "it does not hold this job's token" in err


@pytest.mark.parametrize("words, said", [
    (["--rank", "0"], "--of"),
    (["--rank", "2", "--of", "2", "--listen", "127.0.0.1:7700", "--token-file", "t"], "process 2 of 2"),
    (["--rank", "0", "--of", "2", "--token-file", "t"], "say --listen HOST:PORT"),
    (["--rank", "0", "--of", "2", "--listen", "127.0.0.1:7700"], "say --token-file PATH"),
    (["--rank", "0", "--of", "2", "--listen", "127.0.0.1:7700", "--token-file", "none"], "--token-file none: No such file"),
    (["--rank", "0", "--of", "2", "--listen", "127.0.0.1:7700", "--token-file", "short"], "expected 16 at least"),
    (["--rank", "0", "--of", "2", "--listen", "10.0.0.1:7700", "--token-file", "t"], "say --insecure"),
    (["--rank", "0", "--of", "2", "--processes", "2"], "cannot be used with"),
    (["--of", "2"], "there is no --rank"),
    (["--insecure"], "there is no --rank"),
])
def test_mistakes_are_named(tmp_path, words, said):
    (tmp_path / "short").write_text("secret")
    command = [str(harness.program()), "run", "-e", "SELECT 1", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, cwd=tmp_path)
    assert done.returncode == 2 and said in done.stderr, done.stderr


def test_a_port_that_is_taken_is_named(ranks):
    job = ranks(of=2)
    with socket.create_server(("127.0.0.1", job.port)):
        job.start(0)
        code, _, err = job.ended(0)
    assert code == 1 and "cannot listen for the other processes" in err, err


def test_mpirun_needs_no_option(tmp_path, script):
    """Open MPI's launcher tells each process its place; nothing of MPI is linked."""
    if not shutil.which("mpirun"):
        cannot_run("there is no mpirun: `.ci/setup mpi`")
    job = tmp_path / "job.sql"
    job.write_text(SQL)
    command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "3", str(harness.program()), "run", str(job),
               "--workers", "1", "--format", "csv"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, cwd=tmp_path,
                          env=os.environ | {"XDG_RUNTIME_DIR": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    assert done.stdout == script.run(SQL, workers=1).stdout.decode()
    assert "process 0 of 3 (Open MPI)" in done.stderr
    assert sorted(path.name for path in tmp_path.glob(".millstream*")) == [], "nothing is left behind"


def test_slurms_environment_is_enough(tmp_path, script):
    """As `srun` sets it for three tasks on one node."""
    job = tmp_path / "job.sql"
    job.write_text(SQL)
    slurm = {"SLURM_JOB_ID": str(os.getpid()), "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "3", "SLURM_NODEID": "0",
             "SLURM_STEP_NODELIST": "node[001-001]", "SLURM_STEP_TASKS_PER_NODE": "3", "XDG_RUNTIME_DIR": str(tmp_path)}
    words = [str(harness.program()), "run", str(job), "--workers", "1", "--format", "csv"]
    started = [subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path,
                                env=os.environ | slurm | {"SLURM_PROCID": str(rank)}) for rank in range(3)]
    ends = [process.communicate(timeout=PATIENCE_SECONDS) for process in started]
    assert [process.returncode for process in started] == [0] * 3, ends
    assert ends[0][0] == script.run(SQL, workers=1).stdout.decode() and ends[1][0] == ends[2][0] == ""

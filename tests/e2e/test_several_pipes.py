"""Several named pipes in one query: their writers may come in any order, or never."""

import contextlib
import os
import pathlib
import signal
import subprocess

import pytest
from jobs import PATIENCE_SECONDS, wait_until

# One writer opens both pipes before it writes to either. Opening waits for the reader.
WRITER = 'exec 3> "$1" 4> "$2"; echo 1 >&3; echo 2 >&4; echo 3 >&3'
ORDERS = [("one.csv", "two.csv"), ("two.csv", "one.csv")]
UNION = "SELECT COUNT(*) AS n, SUM(a) AS s FROM (SELECT a FROM one UNION ALL SELECT a FROM two);\n"
SET = "EXECUTE STATEMENT SET BEGIN INSERT INTO three SELECT a FROM one; INSERT INTO four SELECT a FROM two; END;\n"


def pipes(script) -> str:
    """Makes two pipes; the tables over them."""
    for name in ("one", "two"):
        os.mkfifo(script.folder / f"{name}.csv")
    return "".join(f"CREATE TABLE {name} (a BIGINT) WITH ('connector' = 'file', 'path' = '{path}', "
                   "'format' = 'csv', 'csv.header' = 'false');\n"
                   for name, path in (("one", "one.csv"), ("two", "two.csv"), ("three", "3"), ("four", "4")))


def written(job, folder, order) -> tuple[int, bytes, str]:
    """Lets a writer open the pipes in this order; exit code, result and stderr."""
    writer = subprocess.Popen(["sh", "-c", WRITER, "sh", *order], cwd=folder)
    try:
        output, errors = job.main.communicate(timeout=PATIENCE_SECONDS)
        assert writer.wait(PATIENCE_SECONDS) == 0
    finally:
        writer.kill()
        writer.wait()
    return job.main.returncode, output, errors.decode()


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("order", ORDERS)
def test_a_union_of_pipes_whose_writers_come_in_any_order(job, script, order, processes):
    running = job(pipes(script) + UNION, processes, "shm", running=False)
    code, output, errors = written(running, script.folder, order)
    # By hand: three numbers, 1 and 3 of one pipe and 2 of the other.
    assert (code, output) == (0, b"n,s\n3,6\n"), errors


@pytest.mark.parametrize("order", ORDERS)
def test_a_statement_set_over_pipes_whose_writers_come_in_any_order(job, script, order):
    running = job(pipes(script) + SET, 1, "shm", running=False)
    code, _, errors = written(running, script.folder, order)
    assert code == 0, errors
    found = {}
    for name, folder in (("one.csv", "3"), ("two.csv", "4")):
        lines = "".join(part.read_text() for part in (script.folder / folder).glob("part-*")).splitlines()
        found[name] = lines
    assert found == {order[0]: ["1", "3"], order[1]: ["2"]}


def thread_names(pid: int) -> list[str]:
    names = []
    for thread in os.listdir(f"/proc/{pid}/task"):
        # Threads come and go.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            names.append(pathlib.Path(f"/proc/{pid}/task/{thread}/comm").read_text())
    return names


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("present", [None, "one.csv", "two.csv"])
def test_ctrl_c_while_a_writer_never_comes(job, script, present, processes):
    running = job(pipes(script) + UNION, processes, "shm", running=False)
    pid = running.main.pid
    if present is None:
        # The threads that open the pipes are there.
        wait_until("both pipes are being opened", lambda: thread_names(pid).count("pipe\n") == 2)
        running.main.send_signal(signal.SIGINT)
    else:
        pipe = os.open(script.folder / present, os.O_WRONLY)
        os.write(pipe, b"1\n")
        running.main.send_signal(signal.SIGINT)
    running.main.wait(PATIENCE_SECONDS)
    if present is not None:
        os.close(pipe)
    code, stderr = running.end()
    assert code == 130, stderr
    assert stderr.splitlines()[-1].startswith("interrupted while "), stderr

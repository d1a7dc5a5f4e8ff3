"""Files as sinks: one file per process and worker, which gets its final name only when the whole job is done."""

import os
import resource
import signal
import subprocess
import time
from pathlib import Path

import harness
import pytest
from conftest import generated, into
from jobs import ENDLESS, PATIENCE_SECONDS, wait_until
from watched import ask

QUERY = """SELECT window_start, k, COUNT(*) AS n
FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY window_start, window_end, k;
"""
# 20 windows of 10 s with 100 keys each.
SOURCE = generated(rows=40_000, step="5 ms", more=", 'seed' = '5', 'splits' = '4'").replace("'9'", "'99'")


def parts(folder: Path) -> dict[str, list[str]]:
    """The lines of all files of a result, by name."""
    return {path.name: path.read_text().splitlines() for path in sorted(folder.iterdir())}


@pytest.mark.parametrize("processes, workers, fabric",
                         [(1, 1, "shm"), (1, 3, "shm"), (2, 1, "tcp"), (2, 2, "shm"), (4, 1, "shm"), (4, 1, "tcp")])
def test_every_worker_of_every_process_writes_a_file_of_its_own(script, processes, workers, fabric):
    printed = script.run(SOURCE + QUERY, workers=1).stdout.decode().splitlines()
    assert len(printed) == 1 + 20 * 100
    done = script.run(SOURCE + into() + "INSERT INTO results " + QUERY, "--processes", processes, "--fabric", fabric,
                      workers=workers)
    assert (done.code, done.stdout) == (0, b""), done.stderr
    assert done.stats["rows"] == 2000 and "2,000 rows" in done.stderr
    files = parts(script.folder / "out")
    assert list(files) == [f"part-{p}-{w}" for p in range(processes) for w in range(workers)]
    for lines in files.values():
        # Each leader has some of the 100 keys of each window.
        assert lines[0] == printed[0] and len(lines) > 1
    assert sorted(line for lines in files.values() for line in lines[1:]) == sorted(printed[1:])


def test_rows_as_json_and_what_has_been_written_can_be_read(script):
    json = script.run(SOURCE + into("'format' = 'ndjson'") + "INSERT INTO results " + QUERY, "--processes", 2, workers=1)
    assert json.code == 0, json.stderr
    first = parts(script.folder / "out")["part-1-0"][0]
    assert first.startswith('{"window_start":"2024-01-01') and first.endswith("}"), first
    read = """CREATE TABLE part (k BIGINT, n BIGINT) WITH ('connector' = 'file', 'path' = 'csv/part-1-1', 'format' = 'csv');
        SELECT SUM(n) AS n FROM part;"""
    both = script.run(SOURCE + into(path="csv") + "INSERT INTO results " + QUERY + read, "--processes", 2, workers=2)
    assert both.code == 0, both.stderr
    lines = parts(script.folder / "csv")["part-1-1"][1:]
    assert both.stdout.decode().splitlines() == ["n", str(sum(int(line.split(",")[2]) for line in lines))]


@pytest.mark.parametrize("query, expected", [
    ("SELECT COUNT(*) FROM events", ["n", "40000"]),
    ("SELECT COUNT(*) FROM events WHERE k < 0", ["n", "0"]),
    ("SELECT 7 FROM events LIMIT 3", ["n", "7", "7", "7"]),
])
@pytest.mark.parametrize("processes", [1, 3])
def test_what_all_workers_have_to_agree_on_is_one_file(script, query, expected, processes):
    sql = SOURCE + into(columns="n BIGINT") + f"INSERT INTO results {query};"
    done = script.run(sql, "--processes", processes, workers=2)
    assert done.code == 0, done.stderr
    assert parts(script.folder / "out") == {"part-0-0": expected}


def test_stateless_rows_stay_where_they_were_read(script):
    sql = SOURCE + into(columns="k BIGINT") + "INSERT INTO results SELECT k FROM events WHERE k < 50;"
    files = []
    for processes in (1, 3):
        done = script.run(sql.replace("'out'", f"'out{processes}'"), "--processes", processes, workers=1)
        assert done.code == 0, done.stderr
        files.append(parts(script.folder / f"out{processes}"))
    assert list(files[1]) == ["part-0-0", "part-1-0", "part-2-0"]
    rows = [sorted(line for lines in all.values() for line in lines[1:]) for all in files]
    assert rows[0] == rows[1] and len(rows[0]) > 10_000


@pytest.mark.parametrize("failing", [0, 1, 2])
@pytest.mark.parametrize("fabric", ["shm", "tcp"])
def test_a_full_disk_in_one_process_ends_all_and_no_file_looks_whole(script, failing, fabric, before_libc):
    out = script.folder / "out"
    # What this process writes goes to a disk that is full.
    before_libc(f"""
        #include <errno.h>
        #include <stdio.h>
        #include <string.h>
        #include <unistd.h>
        ssize_t write(int file, const void *from, size_t bytes) {{
            ssize_t (*real)(int, const void *, size_t) = dlsym(RTLD_NEXT, "write");
            char link[64], path[4096] = "";
            snprintf(link, sizeof link, "/proc/self/fd/%d", file);
            if (readlink(link, path, sizeof path - 1) > 0 && strstr(path, ".part-{failing}-0.inprogress")) {{
                errno = ENOSPC;
                return -1;
            }}
            return real(file, from, bytes);
        }}
        """)
    done = script.run(SOURCE + into() + "INSERT INTO results " + QUERY, "--processes", 3, "--fabric", fabric, workers=1)
    assert done.code == 1
    expected = f"out/.part-{failing}-0.inprogress: No space left on device (os error 28)"
    assert f"error: process {failing}: " in done.stderr and expected in done.stderr, done.stderr
    assert "help: make room there" in done.stderr
    assert all(name.startswith(".part-") for name in os.listdir(out)), os.listdir(out)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_job_that_is_ended_leaves_no_file_that_looks_whole(job, script, number):
    (script.folder / "out").mkdir()
    sql = ENDLESS.replace("SELECT", into() + "INSERT INTO results SELECT", 1)
    running = job(sql, 3, "shm", running=False)
    def rows_are_written() -> bool:
        return all((script.folder / f"out/.part-{p}-0.inprogress").exists() for p in range(3)) and any(
            path.stat().st_size > 40 for path in (script.folder / "out").iterdir())
    wait_until("rows are written", rows_are_written)
    running.wait_for_others(2)
    os.kill(running.others[1] if number == signal.SIGKILL else running.main.pid, number)
    code, stderr = running.end()
    assert code == (1 if number == signal.SIGKILL else 130), stderr
    assert sorted(os.listdir(script.folder / "out")) == [f".part-{p}-0.inprogress" for p in range(3)]


# Before it gives a file this name, the program waits for another file.
SLOW_NAMING = """
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int linkat(int in, const char *from, int out, const char *to, int flags) {
    int (*real)(int, const char *, int, const char *, int) = dlsym(RTLD_NEXT, "linkat");
    if (strstr(to, getenv("SLOW_NAME"))) {
        close(open(getenv("SLOW_BEGUN"), O_CREAT | O_WRONLY, 0600));
        while (access(getenv("SLOW_GO"), F_OK) != 0) usleep(10000);
    }
    return real(in, from, out, to, flags);
}
"""


@pytest.mark.parametrize("how", ["a signal", "two signals", "a request"])
@pytest.mark.parametrize("processes", [1, 2])
def test_a_result_that_gets_its_names_is_waited_for(job, script, before_libc, monkeypatch, tmp_path_factory, processes,
                                                    how):
    impatient = how == "two signals"
    folder, out = tmp_path_factory.mktemp("slow"), script.folder / "out"
    out.mkdir()
    before_libc(SLOW_NAMING)
    for key, value in [("NAME", f"part-{processes - 1}-0"), ("BEGUN", folder / "begun"), ("GO", folder / "go")]:
        monkeypatch.setenv(f"SLOW_{key}", str(value))
    running = job(SOURCE + into() + "INSERT INTO results " + QUERY, processes, "shm", running=False)
    wait_until("names are given", (folder / "begun").exists)
    assert "\ncommitting for " in ask(os.environ, "why", running.main.pid).stdout
    if how == "a request":
        asking = subprocess.Popen([harness.program(), "stop", str(running.main.pid)])
    else:
        running.main.send_signal(signal.SIGINT)
    # Longer than what a job gets that does not stop.
    time.sleep(2.5)
    assert running.main.poll() is None
    if impatient:
        running.main.send_signal(signal.SIGINT)
        running.main.wait(PATIENCE_SECONDS)
    (folder / "go").touch()
    code, stderr = running.end()
    if how == "a request":
        assert asking.wait(PATIENCE_SECONDS) == 0
    # All that was to be done is done, unless somebody could not wait.
    assert code == (130 if impatient else 0), stderr
    assert "the result is complete and gets its names: the program ends after that" in stderr, stderr
    assert "rows that nobody has read" not in stderr, stderr
    if impatient:
        assert "files called part-* are whole, but some are missing" in stderr, stderr
        assert f"part-{processes - 1}-0" not in os.listdir(out)
    else:
        assert sorted(os.listdir(out)) == [f"part-{p}-0" for p in range(processes)]
        assert sum(len(lines) - 1 for lines in parts(out).values()) == 20 * 100
        assert "2,000 rows" in stderr, stderr


@pytest.mark.parametrize("processes", [1, 2])
def test_what_is_no_plain_file_is_neither_followed_nor_waited_for(script, processes):
    out, victim = script.folder / "out", script.folder / "victim"
    out.mkdir()
    victim.write_text("mine\n")
    part = out / f".part-{processes - 1}-0.inprogress"
    for make in (lambda: part.symlink_to(victim), lambda: os.mkfifo(part)):
        make()
        done = script.run(SOURCE + into() + "INSERT INTO results " + QUERY, "--processes", processes, workers=1)
        assert done.code == 1 and f"{part.name}: it is not a plain file" in done.stderr, done.stderr
        assert victim.read_text() == "mine\n"
        part.unlink()


@pytest.mark.parametrize("where, processes", [("stdout", 1), ("stdout", 2), ("files", 1), ("files", 2), ("stats", 1)])
def test_a_limit_of_file_sizes_ends_it_with_a_message(script, where, processes):
    sql = SOURCE + (into() + "INSERT INTO results " if where == "files" else "") + QUERY
    words = ["--stats-json", script.folder / "stats.json"] if where == "stats" else []
    limit = 512 if where == "stats" else 4096
    with open(script.folder / "rows" if where == "stdout" else os.devnull, "wb") as rows:
        done = subprocess.run(
            [harness.program(), "run", script.write(sql), "--format", "csv", "--processes", str(processes), "--fabric",
             "tcp", "--workers", "1", *map(str, words)],
            stdout=rows, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
    assert done.returncode == 1, done.stderr
    assert "File too large" in done.stderr, done.stderr
    named = {"stdout": "the output", "files": ".inprogress", "stats": "stats.json"}[where]
    assert named in done.stderr, done.stderr
    assert ("ulimit -f" in done.stderr) == (where != "stats"), done.stderr


def test_a_result_is_never_written_over(script):
    sql = SOURCE + into() + "INSERT INTO results " + QUERY
    first = script.run(sql, "--processes", 2, workers=1)
    assert first.code == 0, first.stderr
    for processes in (1, 2, 3):
        before = parts(script.folder / "out")
        again = script.run(sql, "--processes", processes, workers=1)
        assert again.code == 0 and "of former jobs stay beside the new ones" in again.stderr, again.stderr
        after = parts(script.folder / "out")
        assert len(after) > len(before) and {name: after[name] for name in before} == before


def test_a_directory_that_cannot_be_is_named_before_anything_is_read(script):
    script.data("plain", "text\n")
    for path, expected in [("plain", "plain: it is not a directory"), ("plain/out", "plain/out: Not a directory")]:
        for processes in (1, 2):
            done = script.run(SOURCE + into(path=path) + "INSERT INTO results " + QUERY, "--processes", processes)
            assert done.code == 1 and expected in done.stderr, done.stderr
    wrong = script.run(SOURCE + into("'format' = 'raw'", columns="k STRING") +
                       "INSERT INTO results SELECT CAST(k AS STRING) FROM events;")
    assert wrong.code == 2 and "csv, ndjson, parquet and arrow" in wrong.stderr, wrong.stderr

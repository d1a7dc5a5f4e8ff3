"""What shows a running job: the progress line, the local socket, metrics and the page."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import socket
import stat
import struct
import subprocess
import termios
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import harness
import pytest
from conftest import events, generated, into
from jobs import PATIENCE_SECONDS, is_alive, wait_until
from watched import LIVE, LONG_WINDOWS, WINDOWS, ask, report, wait_for_phase


# --- the progress line ----------------------------------------------------------------------------

class Terminal:
    """A terminal of so many columns, and what has been written to it."""

    def __init__(self, columns: int):
        self.ours, self.theirs = pty.openpty()
        fcntl.ioctl(self.theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self.text = ""

    def read(self, seconds: float = 0.05) -> str:
        """Reads for so long, or to the end; returns all that has come so far."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if not select.select([self.ours], [], [], left)[0]:
                break
            try:
                part = os.read(self.ours, 1 << 16)
            except OSError:  # as a terminal ends
                break
            if not part:
                break
            self.text += part.decode()
        return self.text

    def read_until(self, what: str, pattern: str) -> re.Match:
        wait_until(what, lambda: re.search(pattern, self.read()))
        return re.search(pattern, self.text)

    def shown(self) -> list[str]:
        """Whatever has stood in a line: what is drawn over another counts beside it."""
        bare = re.sub(r"\x1b\[[0-9;]*m", "", self.text)
        return [piece for line in bare.split("\n") for piece in re.split(r"\r(?:\x1b\[K)?", line) if piece]


def on_terminal(start, sql: str, columns: int, *words: object, both: bool = False, **options):
    """A job whose stderr is a terminal; `both`: so is its stdout."""
    terminal = Terminal(columns)
    job = start(sql, *words, stderr=terminal.theirs, **({"stdout": terminal.theirs} if both else {}), **options)
    os.close(terminal.theirs)
    return job, terminal


@pytest.mark.parametrize("columns", [40, 120])
def test_a_line_says_what_a_job_does_and_fits(start, place, columns):
    job, terminal = on_terminal(start, LIVE + LONG_WINDOWS, columns)
    terminal.read_until("records per second", r"[1-9][0-9.]*k? records/s")
    terminal.read(1.5)
    job.send_signal(signal.SIGINT)
    job.wait(PATIENCE_SECONDS)
    terminal.read(1)
    *lines, closing = terminal.shown()
    assert closing.startswith("interrupted with ") and " open: " in closing, terminal.text
    # Two columns are left for the ^C that a terminal shows.
    assert lines and all(len(line) <= columns - 2 for line in lines), lines
    last = lines[-1]
    # 20,000 records a second, give or take what a busy machine does.
    assert re.search(r"^[0-9.]+k? records/s", last), last
    assert re.search(r" · at \d\d:\d\d:\d\d", last), last
    if columns == 120:
        assert re.search(r"B/s · at \S+ · \S+ \w+ behind · [12] open · \S+ k?B state$", last), last
    # The line has gone before the closing line stands there.
    assert terminal.text.rstrip().endswith(closing) and f"\r\x1b[K{closing}" in terminal.text, terminal.text


@pytest.mark.parametrize("columns", [40, 100])
def test_files_show_how_much_is_read_and_the_time_left(script, start, columns):
    """A pipe would have no length: the file is read slowly because its rows are not taken."""
    line = "2024-01-01 12:00:00,7\n"
    script.data("events.csv", "ts,k\n" + line * 600_000)
    job, terminal = on_terminal(start, events("k BIGINT") + "SELECT k, ts FROM events;", columns, "--set", "memory=16MB")
    found = terminal.read_until("a percentage", r"(\d+) % · [^·]* left")
    assert 0 <= int(found[1]) <= 100
    assert all(len(line) < columns for line in terminal.shown()), terminal.shown()
    job.stdout.close()
    job.wait(PATIENCE_SECONDS)
    assert job.returncode == 0, terminal.read(1)


@pytest.mark.parametrize("through", [None, "cat"])
def test_rows_and_the_line_do_not_mix(start, through):
    """On a terminal, also if rows come there through another program."""
    if through is None:
        job, terminal = on_terminal(start, LIVE + WINDOWS, 100, both=True)
    else:
        terminal = Terminal(100)
        job = start(LIVE + WINDOWS, stderr=terminal.theirs)
        passing_on = subprocess.Popen([through], stdin=job.stdout, stdout=terminal.theirs)
        os.close(terminal.theirs)
        job.stdout.close()
    terminal.read_until("rows of two windows", r"(?s)(\d\d:\d\d:\d\d)\.000,.*(?!\1)\d\d:\d\d:\d\d\.000,")
    terminal.read_until("a line", "records/s")
    terminal.read_until("rows behind a line", r"(?s)records/s.*\.000,\d,\d")
    terminal.read_until("a line behind rows", r"(?s)records/s.*\.000,\d,\d.*records/s")
    job.send_signal(signal.SIGINT)
    job.wait(PATIENCE_SECONDS)
    if through is not None:
        assert passing_on.wait(PATIENCE_SECONDS) == 0
    terminal.read(1)
    rows = [line for line in terminal.shown() if re.search(r"\d,\d", line) and "records/s" not in line]
    assert rows and all(re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.000,\d,\d+", row) for row in rows), rows
    # Wherever a row begins, the line has been erased.
    assert "state\x1b[0m2" not in terminal.text, terminal.text


@pytest.mark.parametrize("more, shows", [({"NO_COLOR": "1"}, True), ({"NO_COLOR": ""}, True), ({"TERM": "dumb"}, False)])
def test_the_environment_says_what_a_terminal_gets(start, place, more, shows):
    job, terminal = on_terminal(start, LIVE + LONG_WINDOWS, 80, env=place | more)
    if shows:
        terminal.read_until("a line", "records/s")
    else:
        wait_until("it runs", lambda: (report(place) or {}).get("phase") == "running")
        terminal.read(1.5)
    job.send_signal(signal.SIGINT)
    job.wait(PATIENCE_SECONDS)
    text = terminal.read(1)
    assert ("\x1b[2m" in text) == (more.get("NO_COLOR") == ""), text
    assert ("\x1b" in text) == shows, text


@pytest.mark.parametrize("quiet", [True, False])
def test_no_line_where_none_is_wanted(start, place, quiet):
    """`--quiet` on a terminal; and without it, where stderr is none."""
    if quiet:
        job, terminal = on_terminal(start, LIVE + LONG_WINDOWS, 80, "--quiet")
    else:
        job, terminal = start(LIVE + LONG_WINDOWS), None
    wait_until("it runs", lambda: (report(place) or {}).get("phase") == "running")
    time.sleep(1.5)
    job.send_signal(signal.SIGINT)
    job.wait(PATIENCE_SECONDS)
    text = terminal.read(1) if terminal else job.stderr.read()
    assert text == "" if quiet else len(text.splitlines()) == 1 and text.startswith("interrupted with "), text


def test_after_ten_seconds_without_rows_it_says_why(script, start):
    os.mkfifo(script.folder / "a.csv")
    os.mkfifo(script.folder / "b.csv")
    table = events("k BIGINT", path="{}.csv").replace("TABLE events", "TABLE {}")
    view = "CREATE VIEW events AS SELECT * FROM a UNION ALL SELECT * FROM b;\n"
    sql = table.replace("{}", "a") + table.replace("{}", "b") + view + WINDOWS
    job, terminal = on_terminal(start, sql, 200)
    with open(script.folder / "a.csv", "w") as a, open(script.folder / "b.csv", "w") as b:
        a.write("ts,k\n2024-01-01 12:00:00,1\n2024-01-01 12:00:05,1\n")
        b.write("ts,k\n2024-01-01 12:00:00,1\n")
        a.flush(), b.flush()
        terminal.read_until("why", r"no rows for 1\d s: ")
        terminal.read(0.5)
        text = "\n".join(terminal.shown())
        assert re.search(r"window \[2024-01-01 12:00:00, 12:00:01\) of stage \d waits for b \(\S*b\.csv\): its watermark is "
                         r"2024-01-01 12:00:00, and must be 12:00:01, and nothing has come for 1\d s", text), text
        assert "help: other inputs are far enough" in text and "'scan.watermark.idle-timeout' = '10 s'" in text, text
        assert not re.search(r"waits for a \(", text), text
    job.wait(PATIENCE_SECONDS)
    assert job.returncode == 0


def test_a_job_that_waits_for_the_writer_of_a_pipe_says_so(script, start):
    os.mkfifo(script.folder / "events.csv")
    job, terminal = on_terminal(start, events("k BIGINT") + "SELECT k FROM events;", 200)
    terminal.read_until("a line", r"waiting for a writer of \S*/events.csv · planning for ")
    terminal.read_until("why", r"no rows yet: planning for 1\d s: waiting for a writer of the pipe \S*/events.csv "
                               r"\(table events\)")
    with open(script.folder / "events.csv", "w") as writer:
        terminal.read_until("a writer", r"waiting for the first bytes of \S*/events.csv · planning for ")
        writer.write("ts,k\n2024-01-01 12:00:00,1\n")
    job.wait(PATIENCE_SECONDS)
    assert job.returncode == 0


def test_a_record_from_the_future_is_told(script, start):
    """Nobody ignores its time; the others are of now, and late."""
    os.mkfifo(script.folder / "events.csv")
    sql = "SET 'watermark.max_ahead' = 'none';\n" + events("k BIGINT") + WINDOWS
    job, terminal = on_terminal(start, sql, 200)
    with open(script.folder / "events.csv", "w") as writer:
        writer.write("ts,k\n2099-01-01 00:00:00,1\n" + time.strftime("%Y-%m-%d %H:%M:%S,2\n", time.gmtime()) * 128)
        writer.flush()
        terminal.read_until("the line", r"at 2099-01-01 00:00:00 · \d+ d \d+ h ahead · 128 late")
        terminal.read_until("why", r"no rows for 1\d s: 128 of 129 records came too late: the watermark of .* is "
                                   r"2099-01-01 00:00:00, \d+ d \d+ h ahead of the clock\s+help: .*'watermark.max_ahead'")
    job.wait(PATIENCE_SECONDS)


def test_a_reader_that_goes_ends_a_job_whose_line_is_shown(start):
    job, terminal = on_terminal(start, LIVE + "SELECT k FROM events;", 80)
    terminal.read_until("a line", "records/s")
    job.stdout.close()
    job.wait(PATIENCE_SECONDS)
    assert job.returncode == 0, terminal.read(1)
    assert terminal.read(1).splitlines()[-1].count("records/s") == 1, terminal.text


def test_a_terminal_that_goes_away_does_no_harm(start):
    """Without a session of its own the job hears no SIGHUP; writing to the terminal fails."""
    job, terminal = on_terminal(start, LIVE + LONG_WINDOWS, 80)
    terminal.read_until("a line", "records/s")
    os.close(terminal.ours)
    time.sleep(1)
    assert job.poll() is None
    job.send_signal(signal.SIGINT)
    job.wait(PATIENCE_SECONDS)
    assert job.returncode == 130


# --- jobs, why, stop ------------------------------------------------------------------------------

def socket_of(place, job: subprocess.Popen) -> Path:
    return Path(place["XDG_RUNTIME_DIR"]) / "millstream" / f"{job.pid}.sock"


def test_jobs_are_listed_asked_and_stopped(start, place):
    assert ask(place, "jobs").stderr == "no job is running\n"
    assert ask(place, "why").returncode == 1
    first = start(LIVE + LONG_WINDOWS)
    wait_for_phase(place, "running")
    path = socket_of(place, first)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    second = start(LIVE + LONG_WINDOWS)
    wait_until("both", lambda: len(ask(place, "jobs").stdout.splitlines()) == 3)
    head, *rows = ask(place, "jobs").stdout.splitlines()
    assert head.split() == ["JOB", "RUNNING", "PHASE", "RECORDS", "ROWS", "SCRIPT"]
    assert {int(row.split()[0]) for row in rows} == {first.pid, second.pid}, rows
    assert {json.loads(line)["job"] for line in ask(place, "jobs", "--json").stdout.splitlines()} \
        == {first.pid, second.pid}
    # Which one?
    for command in ("why", "stop"):
        answer = ask(place, command)
        assert answer.returncode == 2 and f"{min(first.pid, second.pid)}, " in answer.stderr, answer.stderr
    answer = ask(place, "why", 1)
    assert answer.returncode == 1 and "there is no job 1" in answer.stderr, answer.stderr
    answer = ask(place, "why", second.pid)
    assert answer.stdout.startswith(f"job {second.pid}: ") and "running for " in answer.stdout, answer.stdout
    assert ask(place, "stop", first.pid).stderr == f"job {first.pid} has ended\n"
    # It has: whoever waits for `stop` finds nothing running.
    assert first.wait(PATIENCE_SECONDS) == 130 and not path.exists()
    assert first.stderr.read().startswith("interrupted with ")
    assert ask(place, "stop").returncode == 0
    assert second.wait(PATIENCE_SECONDS) == 130


def test_a_suspended_job_is_listed_and_not_asked(start, place):
    job = start(LIVE + LONG_WINDOWS)
    wait_for_phase(place, "running")
    job.send_signal(signal.SIGSTOP)
    try:
        wait_until("suspended", lambda: is_suspended(job.pid))
        listed = ask(place, "jobs")
        assert listed.stdout.splitlines()[1].split() == [str(job.pid), "-", "suspended", "-", "-", "-"], listed.stdout
        told = f"job {job.pid} is suspended, and does not answer\n  help: `fg` in its terminal, or `kill -CONT "
        assert listed.returncode == 0 and listed.stderr.startswith(told), listed.stderr
        assert json.loads(ask(place, "jobs", "--json").stdout) == {"job": job.pid, "silent": "suspended"}
        for words in (("why",), ("why", "--json"), ("stop",), ("stop", "--drain")):
            answer = ask(place, *words)
            assert (answer.returncode, answer.stdout) == (1, ""), words
            assert answer.stderr.startswith(f"error: {told}"), answer.stderr
    finally:
        job.send_signal(signal.SIGCONT)
    # Nobody has asked it to end.
    assert wait_for_phase(place, "running")["job"] == job.pid
    assert ask(place, "stop").returncode == 0


def is_suspended(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def test_drain_fires_what_is_open_and_ends_well(script, start, place):
    os.mkfifo(script.folder / "events.csv")
    job = start(events("k BIGINT") + WINDOWS)
    with open(script.folder / "events.csv", "w") as pipe:
        pipe.write("ts,k\n2024-01-01 12:00:00,1\n2024-01-01 12:00:00.5,1\n2024-01-01 12:00:05,2\n")
        pipe.flush()
        wait_until("three records", lambda: ((report(place) or {}).get("snapshot") or {}).get("records") == 3)
        assert ask(place, "stop", "--drain").returncode == 0
        assert job.wait(PATIENCE_SECONDS) == 0
    assert job.stdout.read().splitlines()[1:] == ["2024-01-01 12:00:00.000,1,2", "2024-01-01 12:00:05.000,2,1"]
    assert job.stderr.read().startswith("3 records, 2 windows, 2 rows, ")


def test_a_script_that_is_drained_ends_with_that_query(start, place):
    job = start(generated(rows=10**12, step="1 ms") + "SELECT COUNT(*) AS n FROM events; SELECT 1 AS n;")
    wait_until("records", lambda: ((report(place) or {}).get("snapshot") or {}).get("records", 0) > 0)
    assert ask(place, "stop", "--drain").returncode == 0
    assert job.wait(PATIENCE_SECONDS) == 0
    assert len(job.stdout.read().splitlines()) == 2
    assert job.stderr.read().splitlines()[-1] == "drained: 1 statement not run"


def test_several_processes_are_seen_as_one(start, place):
    job = start(LIVE + LONG_WINDOWS, "--processes", 2)
    told = wait_for_phase(place, "running")

    def all_seen() -> bool:
        told.update(report(place))
        snapshot = told["snapshot"] or {}
        return {worker["process"] for worker in snapshot.get("workers", [])} == {0, 1} \
            and all(split["records"] > 0 for split in snapshot["splits"])

    wait_until("both processes", all_seen)
    snapshot = told["snapshot"]
    assert not any(split["elsewhere"] for split in snapshot["splits"]), snapshot["splits"]
    assert [(channel["from"], channel["to"]) for channel in snapshot["channels"]] == [(0, 1), (1, 0)]
    assert ask(place, "why").returncode == 0 and ask(place, "stop").returncode == 0
    assert job.wait(PATIENCE_SECONDS) == 130


def test_a_process_without_splits_takes_no_watermark_away(start, place):
    job = start(generated(per_second=20_000) + LONG_WINDOWS, "--processes", 2)
    wait_for_phase(place, "running")
    wait_until("a watermark", lambda: re.search(r"watermark \S+ \S+, .* behind the clock", ask(place, "why").stdout))
    assert ask(place, "stop").returncode == 0
    assert job.wait(PATIENCE_SECONDS) == 130


def test_what_a_killed_job_leaves_is_removed(script, start, place):
    job = start(LIVE + LONG_WINDOWS)
    wait_for_phase(place, "running")
    job.kill()
    job.wait()
    assert socket_of(place, job).exists()
    lock = script.folder / "out" / ".part-0.lock"
    lock.parent.mkdir()
    lock.touch()
    # The next job removes both, without being asked for any.
    ask(place, "run", script.write(into() + "INSERT INTO results SELECT TIMESTAMP '2024-01-01 00:00:00', 1, 1;"))
    assert not socket_of(place, job).exists() and list(lock.parent.glob("part-*")) and not lock.exists()
    assert ask(place, "jobs").stderr == "no job is running\n"


def test_a_folder_of_somebody_else_is_not_used(script, start, place):
    """Whoever could look into the folder could ask the jobs of others."""
    folder = Path(place["XDG_RUNTIME_DIR"]) / "millstream"
    folder.mkdir(mode=0o755)
    job = start(LIVE + LONG_WINDOWS)
    other = Path(place["TMPDIR"]) / f"millstream-{os.getuid()}" / f"{job.pid}.sock"
    wait_until("the socket elsewhere", other.exists)
    assert list(folder.iterdir()) == []
    wait_for_phase(place, "running")


def test_folders_that_others_can_look_into_are_named(start, place):
    folder = Path(place["TMPDIR"]) / f"millstream-{os.getuid()}"
    for path in (folder, Path(place["XDG_RUNTIME_DIR"]) / "millstream"):
        path.mkdir(mode=0o755)
    job = start(LIVE + LONG_WINDOWS)
    for command in (["jobs"], ["jobs", "--json"], ["stop", job.pid], ["why"]):
        done = ask(place, *command)
        assert done.returncode == 1 and f"help: chmod 700 {folder}" in done.stderr, done.stderr
    job.send_signal(signal.SIGINT)
    assert f"will not reach this job: {folder}" in job.communicate(timeout=PATIENCE_SECONDS)[1]


def test_a_job_that_cannot_answer_has_not_ended(start, place):
    job = start(LIVE + LONG_WINDOWS)
    wait_for_phase(place, "running")
    held = []
    for _ in range(64):
        held.append(socket.socket(socket.AF_UNIX))
        held[-1].connect(str(socket_of(place, job)))
    done = ask(place, "stop")
    assert done.returncode == 1 and "closed the connection without an answer" in done.stderr, done.stderr
    for connection in held:
        connection.close()
    assert job.poll() is None
    wait_until("it answers again", lambda: ask(place, "stop").returncode == 0)


def test_rubbish_on_the_socket_does_no_harm(start, place):
    job = start(LIVE + LONG_WINDOWS)
    wait_for_phase(place, "running")
    silent = []
    for rubbish in (b"", b"\n", b"{}\n", b"\xff" * 5000, b'"report"', b'"REPORT"\n'):
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(str(socket_of(place, job)))
        try:
            connection.sendall(rubbish)
        except OSError:
            pass  # it has had enough
        silent.append(connection)
    assert ask(place, "why").returncode == 0
    for connection in silent:
        connection.close()
    assert job.poll() is None


def test_why_answers_in_every_phase(script, start, place):
    """The script comes late, then its pipe's writer, then the reader of its rows."""
    os.mkfifo(script.folder / "events.csv")
    sql = events("k BIGINT") + "SELECT k, ts FROM events;"
    command = [str(harness.program()), "run", "-", "--format", "csv", "--workers", "2", "--set", "memory=256MB"]
    job = subprocess.Popen(command, cwd=script.folder, env=place, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE)
    try:
        wait_for_phase(place, "starting")
        assert "starting for " in ask(place, "why").stdout
        job.stdin.write(sql.encode())
        job.stdin.close()
        wait_for_phase(place, "planning")
        wait_until("the pipe is opened", lambda: report(place)["awaited"])
        [awaited] = report(place)["awaited"]
        assert (awaited["table"], awaited["has_writer"]) == ("events", False)
        assert f"waiting for a writer of the pipe {awaited['path']} (table events)" in ask(place, "why").stdout
        with open(script.folder / "events.csv", "w") as pipe:
            # Which columns there are is part of the plan.
            pipe.write("ts,k\n")
            pipe.flush()
            told = wait_for_phase(place, "running")
            assert told["snapshot"]["phase"] == "reading"
            wait_until("nothing comes", lambda: "nothing has come from " in ask(place, "why").stdout)
            # One worker writes, and waits for a reader; the other reads on.
            writer = threading.Thread(target=lambda: (pipe.write("2024-01-01 12:00:00,1\n" * 100_000), pipe.flush()))
            writer.start()
            wait_until("rows wait", lambda: re.search("wait for whoever reads the output|to an output that nobody reads",
                                                      ask(place, "why").stdout))
            writer.join(PATIENCE_SECONDS)
            assert not writer.is_alive()
        wait_until("all has been read", lambda: report(place)["snapshot"]["phase"] == "ending")
        assert "reads" in ask(place, "why").stdout
        assert len(job.stdout.read().splitlines()) == 100_001
        assert job.wait(PATIENCE_SECONDS) == 0
    finally:
        if is_alive(job.pid):
            job.kill()
        job.stdout.close(), job.stderr.close(), job.wait()
    assert ask(place, "jobs").stderr == "no job is running\n"


# --- metrics and the page -------------------------------------------------------------------------

def address_of(job: subprocess.Popen, option: str) -> str:
    line = job.stderr.readline()
    assert line.startswith(f"{option}: http://127.0.0.1:"), line
    return line.split(": ", 1)[1].strip()


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=PATIENCE_SECONDS) as answer:
        return answer.read().decode()


def listed() -> dict[str, str]:
    """Names and kinds of metrics, as the page lists them."""
    page = (harness.ROOT / "docs" / "metrics.md").read_text()
    return dict(re.findall(r"^\| `(millstream_\w+)` \| (\w+) \|", page, re.MULTILINE))


def values(text: str) -> dict[str, float]:
    """The last value of each name."""
    return {re.split(r"[ {]", line)[0]: float(line.rsplit(" ", 1)[1])
            for line in text.splitlines() if not line.startswith("#")}


def test_metrics_are_those_that_are_listed(script, start):
    """A job of two processes that reads a file slowly and as it happens has something to say of each."""
    job = start(LIVE + WINDOWS, "--processes", 2, "--metrics", "127.0.0.1:0")
    url = address_of(job, "--metrics")
    drain = threading.Thread(target=job.stdout.read, daemon=True)
    drain.start()
    wait_until("windows", lambda: values(get(url + "metrics")).get("millstream_output_windows_total", 0) >= 2)
    text = get(url + "metrics")
    kinds = dict(line.split()[2:] for line in text.splitlines() if line.startswith("# TYPE "))
    assert kinds == listed()
    found = values(text)
    bare = {re.sub("_(sum|count)$", "", name) if name.startswith("millstream_fire_latency") else name for name in found}
    # Only what has an end can be read to a part, only a log has a lag, and this job has no checkpoints.
    others = {name for name in listed() if name.startswith("millstream_checkpoint") or "_lag_records" in name}
    assert bare == set(listed()) - {"millstream_input_read_ratio"} - others
    assert found["millstream_query_running"] == 1 and found["millstream_queries_total"] == 1
    assert found["millstream_records_total"] > 20_000 and found["millstream_fire_latency_seconds_count"] >= 2
    assert 0 <= found["millstream_source_watermark_lag_seconds"] < 60
    labels = set(re.findall(r'millstream_worker_seconds_total\{process="(\d)",worker="(\d)",state="(\w+)"\}', text))
    assert labels == {(p, "0", state) for p in "01" for state in ("busy", "idle", "blocked")}
    assert get(url + "healthz") == "ok\n"
    with pytest.raises(urllib.error.HTTPError, match="404"):
        get(url)
    job.send_signal(signal.SIGINT)
    assert job.wait(PATIENCE_SECONDS) == 130


def test_files_have_a_share_that_is_read(script, start):
    script.data("events.csv", "ts,k\n" + "2024-01-01 12:00:00,7\n" * 400_000)
    job = start(events("k BIGINT") + "SELECT k, ts FROM events;", "--metrics", "127.0.0.1:0", "--set", "memory=16MB")
    url = address_of(job, "--metrics")
    wait_until("a share", lambda: 0 < values(get(url + "metrics")).get("millstream_input_read_ratio", 0) <= 1)
    job.stdout.close()
    assert job.wait(PATIENCE_SECONDS) == 0


def test_counters_do_not_go_back_while_a_process_is_late(start):
    job = start(LIVE + WINDOWS, "--processes", 3, "--metrics", "127.0.0.1:0")
    url = address_of(job, "--metrics")

    def counters() -> dict[str, float]:
        lines = [line.rsplit(" ", 1) for line in get(url + "metrics").splitlines() if not line.startswith("#")]
        return {name: float(value) for name, value in lines if "_total" in name}

    wait_until("records of all", lambda: counters().get("millstream_records_total", 0) > 10_000)
    before = counters()
    nodes = Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()
    assert len(nodes) == 2
    for node in map(int, nodes):
        os.kill(node, signal.SIGSTOP)
    try:
        time.sleep(0.3)  # as long as a snapshot is as good as new, and longer
        late = [counters() for _ in range(2)]
    finally:
        for node in map(int, nodes):
            os.kill(node, signal.SIGCONT)
    for now in late:
        assert {name: now.get(name) for name in before if now.get(name, 0) < before[name]} == {}


@pytest.mark.parametrize("words, told", [
    (["--metrics", "9464"], "expected ADDRESS:PORT, for example 127.0.0.1:9464"),
    (["--ui", ":80"], "expected ADDRESS:PORT"),
    # Of no interface: it is kept for documentation.
    (["--metrics", "192.0.2.1:9464"], "no interface of this machine has that address"),
    (["--ui", "localhost:7999", "--metrics", "127.0.0.1:7999"], "--ui: --metrics has 127.0.0.1:7999"),
    (["--ui", "localhost:7999", "--metrics", "0.0.0.0:7999"], "--ui: --metrics has 0.0.0.0:7999")])
def test_a_wrong_address_is_told_with_a_right_one(words, told):
    done = harness.run("run", "-e", "SELECT 1 AS a", *words, stats=False)
    assert done.code == 2 and told in done.stderr, done.stderr


@pytest.mark.parametrize("option", ["--ui", "--metrics"])
def test_an_address_of_all_interfaces_is_warned_of(option):
    done = harness.run("run", "-e", "SELECT 1 AS a", option, "0.0.0.0:0", stats=False)
    assert done.code == 0 and f"{option}: all who can reach this machine can read 0.0.0.0:" in done.stderr, done.stderr
    done = harness.run("run", "-e", "SELECT 1 AS a", option, "127.0.0.1:0", stats=False)
    assert done.code == 0 and "reach" not in done.stderr, done.stderr


def test_a_job_is_a_number(start, place):
    job = start(LIVE + LONG_WINDOWS)
    wait_for_phase(place, "running")
    for command, number in (("why", "x"), ("stop", ""), ("stop", " ")):
        done = ask(place, command, number)
        assert done.returncode == 2 and "`millstream jobs` lists them" in done.stderr, done.stderr
    assert job.poll() is None


@pytest.mark.parametrize("option", ["--metrics", "--ui"])
def test_a_port_in_use_is_an_error_before_anything_runs(start, script, option):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        job = start(LIVE + LONG_WINDOWS, option, address)
        assert job.wait(PATIENCE_SECONDS) == 2
    assert job.stdout.read() == ""
    error = job.stderr.read()
    assert error.startswith(f"error: {option}: cannot listen on {address}: ") and "another port" in error, error


def test_a_hundred_scrapers_do_no_harm(start):
    job = start(LIVE + LONG_WINDOWS, "--metrics", "127.0.0.1:0")
    url = address_of(job, "--metrics")
    port = int(url.rsplit(":", 1)[1].strip("/"))
    # Some who say nothing, or half of something.
    idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(20)]
    idle[0].sendall(b"GET /metr")
    answers = []

    def scrape() -> None:
        answers.extend(get(url + "metrics") for _ in range(5))

    scrapers = [threading.Thread(target=scrape) for _ in range(100)]
    for one in scrapers:
        one.start()
    for one in scrapers:
        one.join(PATIENCE_SECONDS)
    assert len(answers) == 500 and all("millstream_info" in answer for answer in answers)
    before = values(answers[-1])["millstream_records_total"]
    wait_until("it goes on", lambda: values(get(url + "metrics"))["millstream_records_total"] > before)
    for one in idle:
        one.close()
    job.send_signal(signal.SIGINT)
    assert job.wait(PATIENCE_SECONDS) == 130


def answered(port: int, request: bytes, *, half: bool = False) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS) as connection:
        connection.sendall(request)
        if half:
            connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(1 << 16), b""))


def test_requests_that_cannot_be_answered_are_refused(start):
    job = start(LIVE + LONG_WINDOWS, "--metrics", "127.0.0.1:0")
    port = int(address_of(job, "--metrics").rsplit(":", 1)[1].strip("/"))
    for request, status in [(b"POST /metrics HTTP/1.1\r\n\r\n", b"405"), (b"nonsense\r\n\r\n", b"400"),
                            (b"GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n", b"421"),
                            (b"GET /" + b"x" * 9000, b"431"), (b"GET /healthz HTTP/1.0\r\n\r\n", b"200")]:
        assert answered(port, request).split()[1] == status, request
    for target in [b"/healthz HTTP/1.1", b"/healthz HTTP/1.1\r\nHost: evil.example", b"/nothing HTTP/1.1", b"nonsense"]:
        assert answered(port, b"HEAD " + target + b"\r\n\r\n").endswith(b"\r\n\r\n"), target


@pytest.mark.parametrize("half", [False, True])
def test_a_request_may_end_its_lines_with_a_line_feed_and_name_a_whole_address(start, half):
    job = start(LIVE + LONG_WINDOWS, "--metrics", "127.0.0.1:0")
    port = int(address_of(job, "--metrics").rsplit(":", 1)[1].strip("/"))
    for request in [b"GET /healthz HTTP/1.0\n\n", b"GET /healthz HTTP/1.1\nHost: localhost\n\n",
                    b"GET http://127.0.0.1/healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"]:
        # It is not waited for, as a request is that is not there as a whole.
        before = time.monotonic()
        assert answered(port, request, half=half).endswith(b"\r\n\r\nok\n"), request
        assert time.monotonic() - before < 4, request
    # The name counts that the target has, since a server must not look at the field then.
    request = b"GET http://evil.example/healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    assert answered(port, request).split()[1] == b"421"
    assert answered(port, b"GET /healthz HTTP/1.1\r\n", half=True).split()[1] == b"400"


def test_connections_that_are_silent_make_room(start):
    job = start(LIVE + LONG_WINDOWS, "--metrics", "127.0.0.1:0")
    url = address_of(job, "--metrics")
    port = int(url.rsplit(":", 1)[1].strip("/"))
    before = time.monotonic()
    # As many as are open at a time (docs/metrics.md), and some more.
    silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(300)]
    assert get(url + "healthz") == "ok\n" and "millstream_info" in get(url + "metrics")
    # It did not take until they had been waited for.
    assert time.monotonic() - before < 4
    silent[0].settimeout(PATIENCE_SECONDS)
    assert silent[0].recv(1) == b""  # the oldest has ended
    for one in silent:
        one.close()


def test_the_page_shows_what_the_job_does(start):
    job = start(LIVE + LONG_WINDOWS, "--ui", "127.0.0.1:0")
    url = address_of(job, "--ui")
    page = get(url)
    assert page.startswith("<!DOCTYPE html>") and "Content-Security-Policy" in page
    # It needs nothing from elsewhere: the one address names a language.
    assert re.findall(r"\w+://[^\"' ]*", page) == ["http://www.w3.org/2000/svg"]
    wait_until("records", lambda: (json.loads(get(url + "report"))["report"]["snapshot"] or {}).get("records", 0) > 0)
    told = json.loads(get(url + "report"))
    assert told["why"][0]["what"].startswith("window ["), told["why"]
    assert told["report"]["phase"] == "running" and told["report"]["job"] == job.pid

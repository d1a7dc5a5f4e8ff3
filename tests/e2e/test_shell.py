"""`millstream` without a command: on a terminal, and fed by a pipe."""

import fcntl
import os
import pty
import re
import select
import signal
import stat
import struct
import subprocess
import termios
import time

import harness
import pytest
from watched import ask, report

SECONDS = 60
# The end of a line of progress that is erased; what the editor draws with; what may be the beginning of either; and the
# prompt on a line of its own.
ERASED = re.compile(r"\x1b\[0m\r\x1b\[K")
DRAWING = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
UNFINISHED = re.compile(r"(\x1b\[0m\r?)?(\x1b(\[[0-9;?]*)?)?\Z")
PROMPT = "\n\rmillstream> "
EVENTS = "ts,k,v\n" + "".join(f"2024-01-01 00:00:{s:02},{'ab'[s % 2]},{s}\n" for s in range(20))
TABLE = ("CREATE TABLE events (ts TIMESTAMP(3), k STRING, v BIGINT, WATERMARK FOR ts AS ts)\n"
         "WITH ('connector' = 'file', 'path' = 'events.csv', 'format' = 'csv');")
ENDLESS = ("CREATE TABLE endless (n BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '1000', "
           "'fields.n.kind' = 'sequence', 'fields.n.start' = '1');")


class Terminal:
    """The shell on a terminal of its own."""

    def __init__(self, folder, stdout=None, **environment):
        self.ours, theirs = pty.openpty()
        os.set_blocking(self.ours, False)
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 250, 0, 0))
        env = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
        env |= {"HOME": str(folder), "TERM": "xterm"} | environment
        self.process = subprocess.Popen([harness.program()], stdin=theirs, stdout=stdout or theirs, stderr=theirs, cwd=folder,
                                        env=env, start_new_session=True,
                                        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        os.close(theirs)
        self.seen, self.cut = "", ""
        self.expect("millstream> ")

    def read(self, seconds: float) -> bool:
        """Reads what there is. Whether the terminal is still there."""
        if not select.select([self.ours], [], [], seconds)[0]:
            return True
        try:
            new = self.cut + os.read(self.ours, 1 << 16).decode("utf-8", "replace")
            self.cut = UNFINISHED.search(new)[0]
            # What takes the place of progress is seen as a line after it.
            self.seen += DRAWING.sub("", ERASED.sub("\r\n", new[:len(new) - len(self.cut)]))
        except BlockingIOError:
            return True
        except OSError:  # as a terminal ends
            return False
        return True

    def expect(self, text: str) -> str:
        """Waits for a text; returns, and takes away, what came up to it."""
        end = time.monotonic() + SECONDS
        while text not in self.seen:
            assert self.read(0.2) or text in self.seen, f"the shell has ended: {self.seen[-2000:]!r}"
            assert time.monotonic() < end, f"no {text!r} in {self.seen[-2000:]!r}"
        before, _, self.seen = self.seen.partition(text)
        return before

    def send(self, text: str) -> None:
        """Types a text, and reads meanwhile what comes of it."""
        self.send_bytes(text.encode())

    def send_bytes(self, rest: bytes) -> None:
        end = time.monotonic() + SECONDS
        while rest:
            assert time.monotonic() < end, f"{len(rest)} bytes are not read"
            self.read(0)
            if select.select([], [self.ours], [], 0.2)[1]:
                try:
                    rest = rest[os.write(self.ours, rest[:4096]):]
                except BlockingIOError:
                    pass

    def settle(self) -> None:
        """Waits until nothing comes any more."""
        end = time.monotonic() + SECONDS
        while select.select([self.ours], [], [], 1)[0]:
            assert self.read(0) and time.monotonic() < end

    def answer(self, text: str) -> str:
        """What comes between a statement and the next prompt."""
        self.send(text + "\r")
        return self.expect(PROMPT)

    def leave(self, code: int = 0) -> None:
        end = time.monotonic() + SECONDS
        while self.process.poll() is None:
            self.read(0.1)
            assert time.monotonic() < end, "the shell does not end"
        while select.select([self.ours], [], [], 0)[0] and self.read(0):
            pass
        os.close(self.ours)
        assert self.process.returncode == code, self.seen
        assert "panicked" not in self.seen


@pytest.fixture
def shell(tmp_path):
    (tmp_path / "events.csv").write_text(EVENTS)
    begun = []

    def begin(**environment):
        begun.append(Terminal(tmp_path, **environment))
        return begun[-1]

    yield begin
    for one in begun:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait()


def test_statements_share_a_session(shell):
    terminal = shell()
    for line in TABLE.split("\n")[:1]:
        terminal.send(line + "\r")
        terminal.expect("...> ")
    assert "ok" in terminal.answer(TABLE.split("\n")[1])
    assert "ok" in terminal.answer("CREATE VIEW odd AS SELECT v FROM events WHERE MOD(v, 2) = 1;")
    # By hand: the odd numbers up to 19.
    assert "100" in terminal.answer("SELECT SUM(v) AS total FROM odd;")
    tables = terminal.answer("SHOW TABLES;")
    assert "events" in tables and "odd" in tables
    views = terminal.answer("SHOW VIEWS;")
    assert "odd" in views and "events" not in views.split("SHOW VIEWS;")[-1]
    assert "COUNT" in terminal.answer("SHOW FUNCTIONS;")
    described = terminal.answer("\\d events")
    assert "TIMESTAMP(3)" in described and "watermark" in described and "BIGINT" in described
    assert all("BIGINT" in terminal.answer(f"\\d {file}") for file in ["events.csv", "'events.csv'", "event*.csv"])
    plan = terminal.answer("EXPLAIN SELECT COUNT(*) AS n FROM events;")
    assert "logical plan" in plan and "State layout" in plan
    analyzed = terminal.answer("EXPLAIN ANALYZE SELECT COUNT(*) AS n FROM events;")
    assert "= 20 records" in analyzed and "= 20 rows taken" in analyzed and "= 1 row\r" in analyzed
    terminal.send("\\q\r")
    terminal.leave()


def test_an_error_does_not_end_the_shell(shell):
    terminal = shell()
    assert "error: there is no table 'nowhere'" in terminal.answer("SELECT a FROM nowhere;")
    assert "error:" in terminal.answer("SELEC 1;")
    assert "\\? lists them" in terminal.answer("\\nonsense")
    assert "cannot read nowhere.sql" in terminal.answer("\\i nowhere.sql")
    assert "there is no format" in terminal.answer("\\format xml")
    assert "EXPLAIN ANALYZE" in terminal.answer("\\?")
    assert "42" in terminal.answer("SELECT 42 AS a;")
    terminal.send("\x04")
    terminal.leave()


def test_rows_may_go_into_a_file_while_somebody_types(tmp_path):
    with open(tmp_path / "rows", "w") as rows:
        terminal = Terminal(tmp_path, stdout=rows)
        terminal.answer("SELECT 6 * 7 AS answer;")
        terminal.send("\\q\r")
        terminal.leave()
    assert (tmp_path / "rows").read_text().split() == ["┌──────────┐", "│", "answer", "│", "├──────────┤", "│", "42", "│",
                                                       "└──────────┘"]


def test_a_query_that_was_left_behind_says_nothing_of_its_end(tmp_path):
    reader, writer = os.pipe()
    terminal = Terminal(tmp_path, stdout=writer)
    os.close(writer)
    terminal.answer(ENDLESS.replace("'1000'", "'1000000'"))
    terminal.send("SELECT n FROM endless;\r")
    terminal.expect("records/s")
    # Nobody reads the rows, so it cannot stop once the pipe is full: nothing more comes.
    waiting = []
    while len(waiting) < 2 or waiting[-1] > waiting[-2] or waiting[-1] == 0:
        assert len(waiting) < SECONDS, waiting
        time.sleep(1)
        waiting.append(struct.unpack("i", fcntl.ioctl(reader, termios.FIONREAD, b"\0" * 4))[0])
    terminal.send("\x03")
    time.sleep(0.5)
    terminal.send("\x03")
    terminal.expect("the query was left behind")
    terminal.expect(PROMPT)
    os.close(reader)
    terminal.settle()
    assert "interrupted" not in terminal.seen, terminal.seen
    terminal.send("\\q\r")
    terminal.leave()


def test_ctrl_c_of_explain_analyze_shows_the_plan_so_far(shell):
    terminal = shell()
    terminal.answer(ENDLESS)
    terminal.send("EXPLAIN ANALYZE SELECT n + 1 AS n FROM endless;\r")
    terminal.expect("records/s")
    terminal.send("\x03")
    terminal.expect("logical plan")
    assert re.search(r"= [1-9][\d,]* records", terminal.expect("interrupted: "))
    terminal.expect(PROMPT)
    terminal.send("\\q\r")
    terminal.leave()


def test_timing_and_formats_change(shell):
    terminal = shell()
    assert "records/s" not in terminal.answer("SELECT COUNT(*) AS n FROM 'events.csv';")
    assert "timing is on" in terminal.answer("\\timing")
    assert "20 records, no windows, 1 row" in terminal.answer("SELECT COUNT(*) AS n FROM 'events.csv';")
    assert "timing is off" in terminal.answer("\\timing off")
    terminal.answer("\\format csv")
    assert "\r\nn\r\n20" in terminal.answer("SELECT COUNT(*) AS n FROM 'events.csv';")
    terminal.answer("CREATE TABLE kept (n BIGINT) WITH ('connector' = 'file', 'path' = 'kept', 'format' = 'csv');")
    assert "1 row inserted" in terminal.answer("INSERT INTO kept SELECT COUNT(*) FROM 'events.csv';")
    terminal.send("exit;\r")
    terminal.leave()


def test_values_have_lines_of_their_own_and_rows_go_to_a_file(shell, tmp_path):
    terminal = shell()
    assert "for each value" in terminal.answer("\\x")
    text = terminal.answer("SELECT v, k AS letter FROM 'events.csv' WHERE v < 2;")
    assert "── row 2 ──\r\nv      │ 1\r\nletter │ b\r" in text, text
    terminal.answer("\\x")
    terminal.answer("\\format csv")
    terminal.answer("\\o 'rows.csv'")
    assert "42" not in terminal.answer("SELECT COUNT(*) + 22 AS n FROM 'events.csv';")
    assert "42" in terminal.answer("\\o") + terminal.answer("SELECT 40 + 2 AS n;")
    assert (tmp_path / "rows.csv").read_text() == "n\n42\n"
    assert "cannot write no/where" in terminal.answer("\\o no/where")


def test_the_last_statement_is_edited_and_executed(shell, tmp_path):
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\n[ \"$1\" = -x ] && sed -i 's/1 AS a/6 * 7 AS a/' \"$2\"\n")
    editor.chmod(0o755)
    terminal = shell(EDITOR=f"{editor} -x", TMPDIR=str(tmp_path))
    terminal.answer("SELECT 1 AS a;")
    assert "42" in terminal.answer("\\e")
    assert not list(tmp_path.glob("*.sql"))


def test_the_history_is_searched_whatever_the_case(shell):
    terminal = shell()
    terminal.answer("SELECT 41 + 1 AS Answer;")
    terminal.send("\x12ANSWER")
    terminal.expect("AS Answer")
    terminal.send("\r")
    assert "42" in terminal.expect(PROMPT)


LEFT_OUT = ("CREATE TABLE few (k BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) "
            "WITH ('connector' = 'file', 'path' = 'few.csv', 'format' = 'csv', 'on_error' = 'skip');\n",
            "SELECT window_start, COUNT(k) AS n FROM TABLE(TUMBLE(TABLE few, DESCRIPTOR(ts), INTERVAL '10' SECOND)) "
            "GROUP BY window_start, window_end;\n")


def few(folder) -> list[str]:
    rows = ["1,2024-01-01 00:00:01", "x,2024-01-01 00:00:01", "3,2024-01-01 00:00:30", "4,2024-01-01 00:00:02"]
    (folder / "few.csv").write_text("\n".join(["k,ts", *rows, ""]))
    return ["1 malformed record left out ('on_error')", "few.csv:3:1: expected BIGINT", "1 late record left out ('late')"]


def test_the_shell_tells_what_was_left_out_without_timing(shell, tmp_path):
    told = few(tmp_path)
    terminal = shell()
    terminal.answer(LEFT_OUT[0].strip())
    text = terminal.answer(LEFT_OUT[1].strip())
    assert all(words in text for words in told) and "records/s" not in text, text


@pytest.mark.parametrize("words, last", [(["--quiet"], "left out ('late')"), ([], "records/s"),
                                         (["--quiet", "--processes", "2", "--workers", "1"], "left out ('late')")])
def test_what_was_left_out_is_told_however_a_script_runs(script, words, last):
    told = few(script.folder)
    done = script.run("".join(LEFT_OUT), *words)
    assert done.code == 0 and all(words in done.stderr for words in told), done.stderr
    assert done.stderr.rstrip().endswith(last), done.stderr


def test_rows_come_while_the_query_runs_and_ctrl_c_ends_it_alone(shell):
    terminal = shell()
    terminal.answer(ENDLESS)
    terminal.answer("\\format csv")
    terminal.send("SELECT n FROM endless;\r")
    terminal.expect("\n1000\r")
    terminal.send("\x03")
    terminal.expect("interrupted")
    terminal.expect(PROMPT)
    # The shell is still there, and so is its session.
    assert "endless" in terminal.answer("SHOW TABLES;")
    # What was typed is left out.
    terminal.send("SELECT nonsense\x03")
    terminal.expect(PROMPT)
    assert "7" in terminal.answer("SELECT 7 AS seven;")
    terminal.send("SELECT\r")
    terminal.expect("...> ")
    terminal.send("\x03")
    terminal.expect(PROMPT)
    assert "8" in terminal.answer("SELECT 8 AS eight;")
    terminal.send("\\q\r")
    terminal.leave()


# Its windows take an hour.
HOURS = ("CREATE TABLE hours (n BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('connector' = 'datagen', "
         "'rows-per-second' = '1000');")
HOURLY = ("SELECT window_start, COUNT(*) AS records FROM TABLE(TUMBLE(TABLE hours, DESCRIPTOR(ts), INTERVAL '1' HOUR)) "
          "GROUP BY window_start, window_end;")


def test_a_query_shows_progress_says_why_no_rows_come_and_is_a_job(shell, place):
    terminal = shell(XDG_RUNTIME_DIR=place["XDG_RUNTIME_DIR"])
    assert "ok" in terminal.answer(HOURS)
    assert ask(place, "jobs").stderr == "no job is running\n", "a shell that waits is no job"
    terminal.send(HOURLY + "\r")
    terminal.expect("records/s")
    listed = ask(place, "jobs").stdout.splitlines()
    assert len(listed) == 2 and f"{terminal.process.pid} " in listed[1] and "<shell> SELECT window_start" in listed[1]
    assert "statement 2: SELECT window_start" in ask(place, "why", str(terminal.process.pid)).stdout
    terminal.expect("no rows for 10")
    terminal.expect("window [")
    # Somebody ends the query. The shell stays, and shows no more progress.
    stopped = ask(place, "stop")
    assert stopped.returncode == 0 and "has ended" in stopped.stderr, stopped
    terminal.expect(PROMPT)
    terminal.settle()
    assert terminal.seen.strip() == "", "something stands behind the prompt"
    assert ask(place, "jobs").stderr == "no job is running\n"
    # One that is drained tells what it has counted.
    terminal.send(HOURLY + "\r")
    terminal.expect("records/s")
    drained = ask(place, "stop", "--drain")
    assert drained.returncode == 0, drained
    terminal.expect("window_start")
    terminal.expect(PROMPT)
    assert "rows" not in terminal.answer("SHOW VIEWS;")
    terminal.send("\\q\r")
    terminal.leave()


def test_what_follows_a_query_that_was_drained_is_not_run(place):
    shell = subprocess.Popen([harness.program()], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             env=place, text=True)
    shell.stdin.write(f"{HOURS}\n{HOURLY} SELECT 'second';\nSELECT 'third';\n")
    shell.stdin.close()
    end = time.monotonic() + SECONDS
    while (report(place) or {}).get("phase") != "running":
        assert time.monotonic() < end and shell.poll() is None
    drained = ask(place, "stop", "--drain")
    assert drained.returncode == 0, drained
    out, err = shell.stdout.read(), shell.stderr.read()
    assert shell.wait(SECONDS) == 0 and "window_start" in out and "second" not in out and "third" not in out, (out, err)
    assert err.endswith("drained: statements that follow are not run\n"), err


def test_a_query_that_waits_for_a_writer_is_ended_and_takes_nothing(shell, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    terminal = shell()
    terminal.answer("CREATE TABLE t (a STRING) WITH ('connector' = 'file', 'path' = 'pipe', 'format' = 'raw');")
    terminal.send("SELECT a FROM t;\r")
    terminal.expect("planning for")
    terminal.send("\x03")
    terminal.expect("interrupted before it runs")
    terminal.expect(PROMPT)
    assert "│ t " in terminal.answer("SHOW TABLES;")
    # The next one that reads the pipe gets all that is written.
    terminal.send("SELECT a FROM t;\r")
    terminal.expect("planning for")
    with open(tmp_path / "pipe", "w") as writer:
        for number in range(10):
            writer.write(f"row {number}\n")
            writer.flush()
            time.sleep(0.05)
    rows = terminal.expect(PROMPT)
    assert all(f"row {number}" in rows for number in range(10)), rows
    # Somebody else ends one.
    terminal.send("SELECT a FROM t;\r")
    terminal.expect("planning for")
    assert ask(os.environ | {"HOME": str(tmp_path)}, "stop", terminal.process.pid).returncode == 0
    terminal.expect(PROMPT)
    terminal.send("\\q\r")
    terminal.leave()


def test_what_is_typed_ahead_is_executed(shell):
    terminal = shell()
    terminal.send("SELECT 1 + 10 AS a;\rSELECT 1 + 20 AS b;\rSELECT 1 +\r30 AS c;\r")
    for value in ["11", "21", "31"]:
        terminal.expect(f" {value} ")
    terminal.expect(PROMPT)
    terminal.send("\\q\r")
    terminal.leave()


def test_a_script_is_text_and_whoever_waits_for_it_may_stop(shell, tmp_path):
    (tmp_path / "latin.sql").write_bytes(b"SELECT 1 AS one;\nSELECT 'caf\xe9' AS x;\n")
    (tmp_path / "good.sql").write_text("SELECT 40 + 2 AS x;\n")
    os.mkfifo(tmp_path / "pipe.sql")
    terminal = shell()
    answer = terminal.answer("\\i latin.sql")
    assert "latin.sql:2:12: expected SQL in UTF-8, found the byte 0xe9" in answer and "one" not in answer, answer
    assert "is a file of records, not of SQL" in terminal.answer("\\i events.csv")
    assert "42" in terminal.answer("\\i good.sql")
    assert "no script" in terminal.answer("\\i /dev/zero")
    assert "\\timing is on or off, not 'maybe'" in terminal.answer("\\timing maybe")
    terminal.send("\\i pipe.sql\r")
    terminal.expect("pipe.sql\r\n")
    time.sleep(0.5)
    terminal.send("\x03")
    terminal.expect("the file was left behind")
    terminal.expect(PROMPT)
    assert "42" in terminal.answer("\\i good.sql")
    terminal.send("\\q\r")
    terminal.leave()


def test_a_signal_ends_the_shell_and_leaves_the_terminal_as_it_was(shell):
    terminal = shell()
    os.kill(terminal.process.pid, signal.SIGTERM)
    end = time.monotonic() + SECONDS
    while terminal.process.poll() is None and time.monotonic() < end:
        time.sleep(0.05)
    lflag = termios.tcgetattr(terminal.ours)[3]
    assert lflag & termios.ECHO and lflag & termios.ICANON
    terminal.leave(130)
    running = shell()
    running.answer(ENDLESS)
    running.send("SELECT n FROM endless;\r")
    running.expect("│")
    os.kill(running.process.pid, signal.SIGTERM)
    running.leave(130)


def test_words_are_completed(shell):
    terminal = shell()
    terminal.answer(TABLE.replace("\n", " "))
    terminal.send("SEL\t MAX(v) AS v FR\t ev\t;\r")
    assert "19" in terminal.expect(PROMPT)
    terminal.send("DESCRIBE ev\t;\r")
    assert "STRING" in terminal.expect(PROMPT)
    terminal.send("SELECT COUNT(*) AS n FROM 'eve\t';\r")
    assert "20" in terminal.expect(PROMPT)
    terminal.send("\\q\r")
    terminal.leave()


@pytest.mark.parametrize("state", [False, True])
def test_the_history_is_kept_for_its_user_alone(shell, tmp_path, state):
    environment = {"XDG_STATE_HOME": str(tmp_path / "state")} if state else {}
    path = tmp_path / "state/millstream/history" if state else tmp_path / ".millstream_history"
    terminal = shell(**environment)
    terminal.send("SELECT 1 +\r")
    terminal.expect("...> ")
    assert "42" in terminal.answer("41 AS b;")
    terminal.answer(" SELECT 'secret' AS s;")
    terminal.send("\\q\r")
    terminal.leave()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "41 AS b" in path.read_text() and "secret" not in path.read_text()
    terminal = shell(**environment)
    # \q is the last, the statement the one before.
    terminal.send("\x1b[A\x1b[A")
    assert "42" in terminal.answer("")
    terminal.send("\x04")
    terminal.leave()


def test_a_terminal_that_cannot_do_anything_will_do(shell):
    terminal = shell(TERM="dumb", NO_COLOR="1")
    terminal.send("SELECT 5 AS five;\r")
    assert "five" in terminal.expect("millstream> ")
    terminal.send("\x04")
    terminal.leave()


def test_garbage_on_a_terminal_is_refused_and_forgotten(shell):
    terminal = shell()
    terminal.send("x" * 300_000)
    terminal.send("\r")
    terminal.expect("error: the line is longer than 4096 bytes")
    terminal.expect(PROMPT)
    # Printable lines of any length, none of them a statement; it is the quote that is not closed.
    lines = [bytes(33 + (i * 7 + j * j) % 90 for j in range(i % 200)).decode() for i in range(2000)]
    text = "\r".join(line.replace(";", "").replace("\\", "") for line in lines)
    terminal.send(text + "\r;'\"`*/;\r")
    # A terminal throws away what has not been read when Ctrl-C comes.
    for _ in range(2):
        terminal.settle()
        terminal.send("\x03")
    terminal.settle()
    terminal.send("SELECT 4 + 5 AS nine;\r")
    terminal.expect("nine │")
    terminal.expect(" 9 │")
    terminal.expect(PROMPT)
    terminal.send("\x04")
    terminal.leave()


# --- not on a terminal ----------------------------------------------------------------------------

def piped(text: bytes | str, folder) -> subprocess.CompletedProcess:
    text = text if isinstance(text, bytes) else text.encode()
    done = subprocess.run([harness.program()], input=text, capture_output=True, cwd=folder, timeout=SECONDS)
    for word in (b"panicked", b"internal error"):
        assert word not in done.stderr
    return done


def test_a_pipe_is_read_statement_by_statement(tmp_path):
    (tmp_path / "events.csv").write_text(EVENTS)
    done = piped(f"\\format csv\n{TABLE}\nSELECT MAX(v) AS v\nFROM events;\nSELECT k, COUNT(*) AS n\nFROM events GROUP BY k",
                 tmp_path)
    assert (done.returncode, done.stdout.decode()) == (0, "v\n19\nk,n\na,10\nb,10\n")
    assert done.stderr.count(b"\n20 records, no windows, ") == 2


def test_an_answer_comes_before_the_pipe_ends(tmp_path):
    with subprocess.Popen([harness.program()], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          cwd=tmp_path) as process:
        process.stdin.write(b"\\format csv\nSELECT 1 AS a;\n")
        process.stdin.flush()
        assert [process.stdout.readline() for _ in range(2)] == [b"a\n", b"1\n"]
        process.stdin.close()
        assert process.wait(SECONDS) == 0


def test_a_pipe_that_is_no_text_is_refused_with_its_place(tmp_path):
    done = piped(b"SELECT 1 AS a;\nSELECT 2,\n'caf\xe9';\n", tmp_path)
    assert done.returncode == 2, done.stderr
    assert b"<standard input>:3:5: expected SQL in UTF-8, found the byte 0xe9\n  help: convert it" in done.stderr


def test_the_first_error_in_a_pipe_is_placed_and_ends_it(tmp_path):
    done = piped("SELECT 1 AS a;\n\nSELECT 2 AS a;\nSELECT\n  b FROM c;\nSELECT 3 AS a;\n", tmp_path)
    assert done.returncode == 2
    assert b"<standard input>:5:10" in done.stderr, done.stderr
    assert b"2" in done.stdout and b"3" not in done.stdout
    assert piped("\\nope\nSELECT 1 AS a;\n", tmp_path).returncode == 2
    assert piped("\n", tmp_path).returncode == 0
    nothing = piped("", tmp_path)
    assert nothing.returncode == 2 and b"Usage: millstream" in nothing.stderr


@pytest.mark.parametrize("text", [
    bytes((i * i * 31 + i // 7) % 256 for i in range(10 << 20)),
    b"(" * (4 << 20),
    b"SELECT 1 " * (1 << 18),
    ("'" + "ä;\n" * (1 << 20)).encode() * 3,
    b"\n" * (2 << 20),
    b"/*" * (5 << 20),
    b"x" * (17 << 20),
    b"a" * (10 << 20),
    b";" * (2 << 20),
], ids=["bytes", "brackets", "words", "quotes", "blank lines", "comments", "one word", "a statement", "semicolons"])
def test_garbage_in_a_pipe_ends_well(tmp_path, text):
    done = piped(text, tmp_path)
    assert done.returncode in (0, 2), done.stderr[-1000:]
    assert done.returncode == 0 or done.stderr.startswith(b"error: ") or b"standard input" in done.stderr
    assert len(done.stderr) < 100_000


def test_describe_and_show_run_in_scripts(script):
    script.data("events.csv", EVENTS)
    done = script.run(TABLE.replace("v BIGINT", "v BIGINT NOT NULL, twice AS v * 2, at BIGINT METADATA FROM 'offset' VIRTUAL")
                      + "CREATE VIEW some AS SELECT k, v FROM events; DESCRIBE events; DESC some; SHOW TABLES; SHOW VIEWS;")
    assert done.code == 0, done.stderr
    assert done.stdout.decode().splitlines() == [
        "name,type,null,extras,watermark",
        "ts,TIMESTAMP(3),true,,ts",
        "k,STRING,true,,",
        "v,BIGINT,false,,",
        "twice,BIGINT,false,AS v * 2,",
        "at,BIGINT,true,METADATA FROM 'offset' VIRTUAL,",
        "name,type,null,extras,watermark",
        "k,STRING,true,,",
        "v,BIGINT,false,,",
        "table name", "events", "some", "view name", "some",
    ]
    # A file is what FROM takes it for.
    done = script.run("DESCRIBE 'events.csv'; DESC '*.csv';")
    assert done.stdout.decode().splitlines() == 2 * [
        "name,type,null,extras,watermark", "ts,TIMESTAMP(3),true,,ts", "k,STRING,true,,", "v,BIGINT,true,,"]
    assert "did you mean 'events'?" in script.run(TABLE + "DESCRIBE event;").stderr
    assert "SHOW TABLES, SHOW VIEWS" in script.run("SHOW JOBS;").stderr


def test_explain_analyze_counts_records_that_are_late_for_some_windows(script):
    # When 12:00:02 comes, 12:00:31 has closed its windows that end at 12:00:10, 20 and 30, but not those after.
    script.data("events.csv", "ts,k\n2024-01-01 12:00:00,1\n2024-01-01 12:00:31,1\n2024-01-01 12:00:02,1\n")
    table = ("CREATE TABLE events (ts TIMESTAMP(3), k BIGINT, WATERMARK FOR ts AS ts) "
             "WITH ('connector' = 'file', 'path' = 'events.csv', 'format' = 'csv');\n")
    window = "CUMULATE(TABLE events, DESCRIPTOR(ts), INTERVAL '10' SECOND, INTERVAL '1' MINUTE)"
    done = script.run(table + f"EXPLAIN ANALYZE SELECT COUNT(*) FROM TABLE({window}) GROUP BY window_start, window_end;")
    text = done.stdout.decode()
    assert done.code == 0 and "  = 3 rows taken, " in text, text
    assert " rows/s, 0 late records and 1 late for some windows; " in text, text


@pytest.mark.parametrize("processes", [1, 2])
def test_explain_analyze_counts_rows_by_operator(script, processes):
    script.data("events.csv", EVENTS)
    query = """SELECT window_start, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '10' SECOND))
    GROUP BY window_start, window_end"""
    # Windows by themselves: those of a small file share a slice, and fire together.
    done = script.run("SET 'windows.pack' = '1 s';" + TABLE + f"EXPLAIN ANALYZE {query};", "--processes", processes)
    text = done.stdout.decode()
    # Two windows of ten records each.
    assert done.code == 0 and re.search(r"read events: .*\n  = 20 records, [\d,]+ records/s, [\d.]+ k?B, 0\.\d{3} s\n", text), text
    times = r"; 0\.\d{3} s in its state, 0\.\d{3} s firing\n"
    assert re.search(r"soft breaker .*\n  = 20 rows taken, [\d,]+ rows/s, 0 late records" + times, text), text
    assert re.search(r"result\n  = 2 rows in 2 windows\n", text), text
    # Which process fires, and tells, is a matter of time.
    latency = "(  = from a window's end to its last row: .*\n)" + ("" if processes == 1 else "?")
    parts = r"  = of the workers' time: \d\.\d{3} s reading, \d\.\d{3} s updating state, .* firing, .* writing\n"
    assert re.search(r"in all\n  = 20 records, .* records/s\n" + parts + latency + "  = state: ", text), text
    assert re.search(r"  = state: .* keys and values\n  = \d+ epochs?, ", text), text


def test_explain_analyze_runs_inserts_and_shows_no_rows(script):
    script.data("events.csv", EVENTS)
    kept = "CREATE TABLE kept (k STRING) WITH ('connector' = 'file', 'path' = 'kept', 'format' = 'csv');"
    done = script.run(TABLE + kept + "EXPLAIN ANALYZE INSERT INTO kept SELECT k FROM events WHERE v < 3;")
    assert "result\n  = 3 rows" in done.stdout.decode(), done.stdout
    assert len(list((script.folder / "kept").glob("part-*"))) >= 1
    assert b"19000057" not in script.run(TABLE + "EXPLAIN ANALYZE SELECT MAX(v) * 1000003 AS v FROM events;").stdout


def test_explain_analyze_counts_the_rows_of_each_stage_and_result(script):
    script.data("events.csv", EVENTS)
    sums = ("CREATE VIEW sums AS SELECT window_time AS at, k, SUM(v) AS v FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), "
            "INTERVAL '5' SECOND)) GROUP BY window_start, window_end, window_time, k;")
    query = "FROM TABLE(TUMBLE(TABLE sums, DESCRIPTOR(at), INTERVAL '10' SECOND)) GROUP BY window_start, window_end"
    done = script.run(TABLE + sums + f"EXPLAIN ANALYZE SELECT MAX(v) AS v {query};")
    # 20 records make two sums in each of four windows, which make two rows.
    taken = re.findall(r"\n  = (\d+ rows? taken|\d+ rows? in \d+ windows?)", done.stdout.decode())
    assert taken == ["20 rows taken", "8 rows taken", "2 rows in 2 windows"], done.stdout
    tables = "".join(f"CREATE TABLE {name} (v BIGINT) WITH ('connector' = 'blackhole');" for name in "ab")
    done = script.run(TABLE + tables + "EXPLAIN ANALYZE EXECUTE STATEMENT SET BEGIN INSERT INTO a SELECT v FROM events "
                      "WHERE v < 3; INSERT INTO b SELECT COUNT(*) FROM events; END;")
    results = re.findall(r"\nresult INSERT INTO (\w): .*\n  = (\d+ rows?)", done.stdout.decode())
    assert results == [("a", "3 rows"), ("b", "1 row")], done.stdout


PASTED = b"\x1b[200~%b\x1b[201~"


@pytest.mark.parametrize("form", [PASTED, b"%b"])
def test_a_byte_that_is_no_text_leaves_out_what_is_pasted(shell, form):
    """Not the statements behind it, either, and none of them in another program."""
    terminal = shell()
    terminal.send_bytes(form % (b"SELECT 'caf\xe9' AS x;\rSELECT 40 + 1 AS behind;\r" + b"SELECT 1;\r" * 2000))
    terminal.expect("error: expected SQL in UTF-8")
    terminal.expect("iconv -f ISO-8859-1 -t UTF-8")
    terminal.expect(PROMPT)
    terminal.settle()
    assert "41" not in terminal.seen
    assert "42" in terminal.answer("SELECT 40 + 2 AS d;")
    terminal.send("\\q\r")
    terminal.leave()


def test_ctrl_c_clears_a_long_line(shell):
    terminal = shell()
    terminal.send_bytes(PASTED % (b"SELECT '" + b"a" * 5000))
    terminal.settle()
    terminal.send("\x03")
    terminal.expect(PROMPT)
    assert "42" in terminal.answer("SELECT 40 + 2 AS d;")
    terminal.send("\\q\r")
    terminal.leave()


def test_words_of_other_shells_are_known(shell):
    terminal = shell()
    assert "Statements end with a semicolon" in terminal.answer("help")
    terminal.send("exit\r")
    terminal.leave()

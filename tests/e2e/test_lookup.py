"""Lookup joins: the side table is read anew when it has changed, a broken version does not count, and what it takes
counts against the budget."""

import os
import re
import subprocess
import threading
import time

import harness
import pytest

PATIENCE_SECONDS = 60
TABLES = """
CREATE TABLE keys (k STRING, proc AS PROCTIME())
WITH ('connector' = 'file', 'path' = 'keys.csv', 'format' = 'csv', 'csv.header' = 'false', 'follow' = 'true');
CREATE TABLE side (k STRING, v INT) WITH ('connector' = 'file', 'path' = 'side.csv', 'format' = 'csv');
"""
JOIN = """
SELECT keys.k, v FROM keys LEFT JOIN side FOR SYSTEM_TIME AS OF keys.proc AS s ON keys.k = s.k;
"""


class Running:
    """A job that looks up what is appended to its input."""

    def __init__(self, folder, *words: str):
        self.folder = folder
        (folder / "keys.csv").write_text("")
        (folder / "query.sql").write_text(TABLES + JOIN)
        command = [str(harness.program()), "run", str(folder / "query.sql"), "--format", "csv", *words]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        stdin=subprocess.DEVNULL)
        self.said: list[str] = []
        self.listener = threading.Thread(target=self.listen)
        self.listener.start()

    def listen(self) -> None:
        for line in self.process.stderr:
            self.said.append(line.decode())

    def ask(self, key: str) -> str:
        with open(self.folder / "keys.csv", "a") as keys:
            keys.write(f"{key}\n")
        line = self.process.stdout.readline().decode().strip()
        if line == "k,v":
            line = self.process.stdout.readline().decode().strip()
        return line

    def ask_until(self, key: str, answered) -> str:
        """Asks again and again: whether a file has changed is looked at between batches."""
        end = time.monotonic() + PATIENCE_SECONDS
        while not answered(answer := self.ask(key)):
            assert time.monotonic() < end, (answer, self.said)
            time.sleep(0.05)
        return answer

    def replace(self, text: str) -> None:
        (self.folder / "new.csv").write_text(text)
        os.replace(self.folder / "new.csv", self.folder / "side.csv")

    def end(self) -> str:
        self.process.terminate()
        self.process.wait(PATIENCE_SECONDS)
        self.listener.join(PATIENCE_SECONDS)
        return "".join(self.said)


@pytest.fixture
def running(tmp_path):
    started = []

    def begin(side: str, *words: str) -> Running:
        (tmp_path / "side.csv").write_text(side)
        started.append(Running(tmp_path, *words))
        return started[-1]

    yield begin
    for job in started:
        job.end()


@pytest.mark.parametrize("words", [["--workers", "1"], ["--workers", "2"], ["--workers", "1", "--processes", "2"]])
def test_a_file_that_has_changed_is_read_anew_and_a_broken_one_does_not_count(words, running):
    job = running("k,v\na,1\nb,2\n", *words, "--set", "lookup.reload=50 ms")
    assert [job.ask(key) for key in "abc"] == ["a,1", "b,2", "c,"]
    job.replace("k,v\na,10\nc,30\n")
    job.ask_until("a", lambda answer: answer == "a,10")
    assert [job.ask(key) for key in "abc"] == ["a,10", "b,", "c,30"]
    # What cannot be read does not count, and that is said once.
    job.replace("k,v\na,not a number\n")
    job.ask_until("a", lambda _: any("cannot be read" in line for line in job.said))
    assert [job.ask(key) for key in "abc"] == ["a,10", "b,", "c,30"]
    # Written in place.
    (job.folder / "side.csv").write_text("k,v\na,100\n")
    job.ask_until("a", lambda answer: answer == "a,100")
    # Nor does one that is gone.
    (job.folder / "side.csv").unlink()
    job.ask_until("a", lambda _: sum("cannot be read" in line for line in job.said) == 2)
    assert job.ask("a") == "a,100"
    said = job.end()
    assert len(re.findall("lookup table 'side' has changed: 2 rows from now on", said)) == 1, said
    assert "what was read before stays: " in said and "side.csv:2" in said, said


def test_the_first_record_after_a_pause_meets_what_was_written_meanwhile(running):
    job = running("k,v\na,1\n", "--workers", "2", "--set", "lookup.reload=200 ms")
    assert job.ask("a") == "a,1"
    for value in range(2, 5):
        job.replace(f"k,v\na,{value}\n")
        time.sleep(1)
        assert job.ask("a") == f"a,{value}"


def test_a_job_that_never_looks_again_has_what_it_has_read(running):
    job = running("k,v\na,1\n", "--workers", "1", "--set", "lookup.reload=0")
    assert job.ask("a") == "a,1"
    job.replace("k,v\na,2\n")
    for _ in range(30):
        assert job.ask("a") == "a,1"
        time.sleep(0.05)


def test_a_file_that_has_no_room_ends_the_query_and_names_the_setting(tmp_path):
    (tmp_path / "keys.csv").write_text("a\n")
    (tmp_path / "side.csv").write_text("k,v\n" + "".join(f"key number {i},{i}\n" for i in range(400_000)))
    script = tmp_path / "query.sql"
    script.write_text(TABLES.replace(", 'follow' = 'true'", "") + JOIN)
    result = harness.run("run", script, settings={"workers": 1, "memory": "16MB"})
    assert result.code == 1, result.stderr
    for text in ("lookup table 'side'", "half of the budget, 8388608 bytes", "--set memory='...'"):
        assert text in result.stderr
    result = harness.run("run", script, settings={"workers": 1, "memory": "256MB"})
    assert result.code == 0, result.stderr
    # It is counted.
    assert result.stats["memory_bytes_peak"] > 400_000 * len("key number 1")


@pytest.mark.parametrize("processes", [1, 2])
def test_one_record_may_match_very_many_rows(processes, tmp_path):
    (tmp_path / "keys.csv").write_text("a\nb\na\n")
    rows = 50_000
    (tmp_path / "side.csv").write_text("k,v\n" + "".join(f"a,{i}\n" for i in range(rows)))
    script = tmp_path / "query.sql"
    script.write_text(TABLES.replace(", 'follow' = 'true'", "") + JOIN)
    result = harness.run("run", script, "--format", "csv", settings={"workers": 2, "processes": processes})
    assert result.code == 0, result.stderr
    matches = [f"a,{i}" for i in range(rows)]
    assert result.stdout.decode().splitlines() == ["k,v", *matches, "b,", *matches]


def test_an_error_in_a_key_names_the_record(tmp_path):
    (tmp_path / "keys.csv").write_text("1\n2\nthree\n")
    (tmp_path / "side.csv").write_text("k,v\n1,1\n")
    script = tmp_path / "query.sql"
    join = JOIN.replace("keys.k = s.k", "CAST(keys.k AS INT) = s.v")
    script.write_text(TABLES.replace(", 'follow' = 'true'", "") + join)
    result = harness.run("run", script, settings={"workers": 1})
    assert result.code == 1
    assert "cannot cast 'three' to INT, for the record at " in result.stderr
    assert "keys.csv:3" in result.stderr
    # So does one in the side table.
    join = JOIN.replace("keys.k = s.k", "keys.k = CAST(CAST(s.k AS DATE) AS STRING)")
    script.write_text(TABLES.replace(", 'follow' = 'true'", "") + join)
    result = harness.run("run", script, settings={"workers": 1})
    assert result.code == 1
    assert "cannot cast '1' to DATE, for the record at row 1 of lookup table 'side'" in result.stderr


def test_malformed_rows_of_the_side_table_are_told_of(tmp_path):
    (tmp_path / "keys.csv").write_text("a\nb\n")
    (tmp_path / "side.csv").write_text("k,v\na,1\nb,many\nb,2\nb,more\n")
    script = tmp_path / "query.sql"
    skip = "'path' = 'side.csv', 'on_error' = 'skip'"
    script.write_text(TABLES.replace(", 'follow' = 'true'", "").replace("'path' = 'side.csv'", skip) + JOIN)
    result = harness.run("run", script, "--format", "csv", settings={"workers": 1})
    assert result.code == 0, result.stderr
    assert result.stdout == b"k,v\na,1\nb,2\n"
    assert "lookup table 'side': 2 malformed records left out, the first: " in result.stderr
    assert "side.csv:3" in result.stderr

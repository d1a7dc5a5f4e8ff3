"""The strictest test of promise P1, through a named pipe: a window's rows do not appear before the record that
carries the watermark past its end has been written, and then appear without any more input."""

import os

import pytest
from conftest import WINDOW, events
from listened import Listened


class Piped(Listened):
    """A running query over events.csv, which is a pipe that the test writes to."""

    def __init__(self, script, sql: str, *words: str):
        path = script.folder / "events.csv"
        os.mkfifo(path)
        super().__init__(script.write(sql), *words)
        # Opening waits for the program to open the other end.
        self.pipe = open(path, "w", encoding="utf-8")

    def write(self, text: str) -> None:
        self.pipe.write(text)
        self.pipe.flush()

    def record(self, time_: str, key: int) -> None:
        self.write(f"2024-01-01 00:00:{time_},{key},1\n")

    def end(self) -> str:
        """Closes the pipe, waits for the end, and returns what stderr says."""
        self.pipe.close()
        return self.ended()


@pytest.fixture
def piped(script):
    started = []

    def begin(sql: str, *words: str) -> Piped:
        started.append(Piped(script, sql, *words))
        return started[-1]

    yield begin
    for one in started:
        one.kill()


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_window_fires_at_the_record_that_passes_its_end_and_not_before(piped, workers):
    job = piped(events() + WINDOW, "--workers", workers)
    job.write("ts,k,v\n")
    job.record("00", 1)
    job.record("09.999", 1)
    job.nothing()
    assert job.process.poll() is None
    # A line that is not complete yet is no record.
    job.write("2024-01-01 00:00:10,2,")
    job.nothing()
    # Exactly at the end of [0, 10): it belongs to the next window, and this one is complete.
    job.write("1\n")
    assert job.next() == "window_start,k,n"
    assert job.next() == "2024-01-01 00:00:00.000,1,2"
    # Late for the first window, in time for the second.
    job.record("09.999", 7)
    job.record("19.999", 2)
    job.nothing()
    # Two windows at once: [20, 30) is empty and has no row.
    job.record("35", 3)
    assert job.next() == "2024-01-01 00:00:10.000,2,2"
    job.nothing()
    stderr = job.end()
    assert job.next() == "2024-01-01 00:00:30.000,3,1"
    assert "1 late record" in stderr, stderr
    assert job.lines.empty()


@pytest.mark.parametrize("workers", ["1", "2"])
def test_the_delay_of_the_watermark_and_allowed_lateness_are_waited_for(piped, workers):
    job = piped(events(delay=" - INTERVAL '3' SECOND") + WINDOW, "--workers", workers,
                "--set", "allowed_lateness=2 s")
    job.write("ts,k,v\n")
    job.record("01", 1)
    # The watermark is at 9.999, 10 and 11.999: the window has ended, but still takes late records.
    for time_ in ("12.999", "13", "14.999"):
        job.record(time_, 2)
        job.record("00", 1)
    job.nothing()
    job.record("15", 2)
    assert job.next() == "window_start,k,n"
    assert job.next() == "2024-01-01 00:00:00.000,1,4"
    job.record("00", 1)
    job.nothing()
    stderr = job.end()
    assert job.next() == "2024-01-01 00:00:10.000,2,4"
    assert "1 late record" in stderr, stderr

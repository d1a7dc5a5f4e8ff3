"""The table as it looks on a terminal."""

import fcntl
import os
import pty
import struct
import subprocess
import termios

import harness
import pytest
from conftest import events

# Over three windows numbers grow and texts do.
LINES = "".join(f"2024-01-01 12:00:{second:02}.500,{'page' * (1 + second // 10)},{10 ** (second // 4)}\n"
                for second in range(30))
QUERY = """SELECT window_start, window_end, k, SUM(v) AS total
FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY window_start, window_end, k;
"""


def on_terminal(script, sql: str, columns: int, *words: str) -> list[str]:
    """The lines that a terminal of so many columns gets."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    with subprocess.Popen([harness.program(), "run", script.write(sql), "--workers", "1", *words], stdout=theirs,
                          stderr=subprocess.PIPE, stdin=subprocess.DEVNULL) as process:
        os.close(theirs)
        out = b""
        while True:
            try:
                part = os.read(ours, 1 << 16)
            except OSError:  # as a terminal ends
                break
            if not part:
                break
            out += part
        os.close(ours)
        stderr = process.stderr.read().decode()
    assert process.returncode == 0, stderr
    return out.decode().replace("\r\n", "\n").splitlines()


def test_bars_stand_below_each_other_where_there_is_room(script):
    """40 windows, of which each sums up more than the one before."""
    script.data("events.csv", "ts,k,v\n" + "".join(
        f"2024-01-01 12:{window // 6:02}:{window % 6}0,a,{7 ** (window // 2)}\n" for window in range(40)))
    query = """SELECT window_start, COUNT(*) AS n, SUM(v) AS total
FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY window_start, window_end;
"""
    # A batch of a row: the first one does not know what comes.
    lines = on_terminal(script, events("k STRING, v BIGINT") + query, 100, "--set", "batch.rows=1")
    assert len(lines) == 3 + 40 + 1, lines
    assert f" {7 ** 19} │" in lines[-2], lines
    bars = {tuple(at for at, c in enumerate(line) if c in "┌┬┐│├┼┤└┴┘") for line in lines}
    assert len(bars) == 1 and all(len(line) <= 100 for line in lines), lines


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_a_header_is_drawn_once_and_times_are_whole(script, columns):
    script.data("events.csv", "ts,k,v\n" + LINES)
    # Window by window: those of a small file fire together otherwise.
    lines = on_terminal(script, events("k STRING, v BIGINT") + QUERY, columns, "--set", "windows.pack=1 s")
    assert len(lines) == 3 + 3 + 1, lines
    assert sum("window_start" in line for line in lines) == 1 and lines[0].startswith("┌") and lines[-1].startswith("└")
    zeros = "" if columns == 60 else ".000"
    for number, line in enumerate(lines[3:6]):
        assert f" 2024-01-01 12:00:{number}0{zeros} │ 2024-01-01 12:00:{number + 1}0{zeros} │ pag" in line, lines
    # By hand: 4·(1 + 10) + 2·100; 2·100 + 4·(1000 + 10000); 4·(10^5 + 10^6) + 2·10^7.
    for line, total in zip(lines[3:6], ["244", "44200", "24400000"]):
        assert f" {total} │" in line, lines
    # Only the line with the longest number may be longer, where there is no room for it.
    assert all(len(line) <= columns for line in lines if "24400000" not in line or columns > 60), lines

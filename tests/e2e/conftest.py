"""What the end-to-end tests share. They run the program as its users do."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import harness  # noqa: E402


def cannot_run(why: str) -> None:
    """Skips a test that this machine cannot run; in CI it fails."""
    if os.environ.get("CI"):
        pytest.fail(why)
    pytest.skip(why)


class Script:
    """Writes a script and its data into a folder of its own and runs them."""

    def __init__(self, folder: Path):
        self.folder = folder

    def data(self, name: str, text: str | bytes) -> None:
        (self.folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())

    def write(self, sql: str) -> Path:
        path = self.folder / "query.sql"
        path.write_text(sql, encoding="utf-8")
        return path

    def run(self, sql: str, *words: object, **settings: object) -> harness.Run:
        """Runs `sql` from a file; settings are written with _ for the point."""
        named = {key.replace("_", "."): value for key, value in settings.items()}
        result = harness.run("run", self.write(sql), "--format", "csv", *words, settings=named)
        assert harness.sound(result) == [], result.stderr
        return result


@pytest.fixture
def script(tmp_path: Path) -> Script:
    return Script(tmp_path)


@pytest.fixture
def job(script: Script):
    """Starts jobs on several processes, and ends them whatever happens to the test."""
    from jobs import Job

    started = []

    def begin(sql: str, processes: int, fabric: str, *words: object, running: bool = True) -> Job:
        command = [str(harness.program()), "run", str(script.write(sql)), "--format", "csv", "--processes",
                   str(processes), "--fabric", fabric, "--workers", "1", *map(str, words)]
        started.append(Job(command, script.folder, processes, running))
        return started[-1]

    yield begin
    for one in started:
        if one.main.poll() is None:
            one.main.kill()
        one.main.communicate()


@pytest.fixture
def place():
    """A folder in which the sockets of this test's jobs stand, and no others."""
    with tempfile.TemporaryDirectory(prefix="ms-") as folder:
        yield os.environ | {"XDG_RUNTIME_DIR": folder, "TMPDIR": folder, "TERM": "xterm"}


@pytest.fixture
def start(script, place):
    """Starts `millstream run`, and ends it whatever happens to the test."""
    started = []

    def begin(sql: str, *words: object, **options) -> subprocess.Popen:
        command = [str(harness.program()), "run", str(script.write(sql)), "--format", "csv", "--workers", "1",
                   *map(str, words)]
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL, "env": place,
                   "text": True} | options
        started.append(subprocess.Popen(command, **options))
        return started[-1]

    yield begin
    for one in started:
        if one.poll() is None:
            one.kill()
        one.wait()
        for stream in (one.stdout, one.stderr):
            if stream:
                stream.close()


@pytest.fixture
def before_libc(tmp_path_factory, monkeypatch):
    """Puts functions written in C before those of the C library, in all programs started from now on."""
    def put(source: str) -> None:
        compiler = shutil.which("cc") or shutil.which("gcc") or cannot_run("there is no C compiler")
        folder = tmp_path_factory.mktemp("before_libc")
        (folder / "before.c").write_text("#define _GNU_SOURCE\n#include <dlfcn.h>\n" + source)
        subprocess.run([compiler, "-shared", "-fPIC", "-o", folder / "before.so", folder / "before.c", "-ldl"], check=True)
        monkeypatch.setenv("LD_PRELOAD", str(folder / "before.so"))

    return put


def check_place(result: harness.Run, text: str, underlined: str) -> None:
    """The line and column are those of the text, and the carets stand under it."""
    place = re.search(r"query\.sql:(\d+):(\d+)", result.stderr)
    assert place, result.stderr
    line, column = int(place[1]), int(place[2])
    assert text.lstrip("\ufeff").splitlines()[line - 1][column - 1 :].startswith(underlined), result.stderr
    shown = result.stderr.splitlines()
    carets = next(i for i, text in enumerate(shown) if re.fullmatch(r" +\| +\^+", text))
    run = re.search(r"\^+", shown[carets])
    assert shown[carets - 1][run.start() : run.end()] == underlined, result.stderr


def events(columns: str = "k BIGINT, v BIGINT", path: str = "events.csv", delay: str = "") -> str:
    """CREATE TABLE for events.csv with an event time."""
    return (f"CREATE TABLE events (ts TIMESTAMP(3), {columns}, WATERMARK FOR ts AS ts{delay})\n"
            f"WITH ('connector' = 'file', 'path' = '{path}', 'format' = 'csv');\n")


def generated(rows: int | None = None, per_second: int | None = None, more: str = "", step: str = "") -> str:
    """CREATE TABLE for a generated table; without `step` event time follows the clock."""
    options = ["'connector' = 'datagen'", "'fields.k.min' = '0'", "'fields.k.max' = '9'",
               "'fields.ts.kind' = 'sequence'"]
    if rows is not None:
        options.append(f"'number-of-rows' = '{rows}'")
    if per_second is not None:
        options.append(f"'rows-per-second' = '{per_second}'")
    if step:
        options.append(f"'fields.ts.step' = '{step}', 'fields.ts.start' = '2024-01-01 00:00:00'")
    return ("CREATE TABLE events (k BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '0.2' SECOND)\n"
            f"WITH ({', '.join(options)}{more});\n")


WINDOW = """SELECT window_start, k, COUNT(*) AS n
FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY window_start, window_end, k;
"""
# Its result.
COLUMNS = "window_start TIMESTAMP(3), k BIGINT, n BIGINT"


def into(options: str = "'format' = 'csv'", path: str = "out", columns: str = COLUMNS) -> str:
    """CREATE TABLE for files to write."""
    return f"CREATE TABLE results ({columns}) WITH ('connector' = 'file', 'path' = '{path}', {options});\n"

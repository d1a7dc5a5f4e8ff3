"""What all Python tests share: finding the program, running it, and reading its output."""

import json
import os
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# The variable that caps the level of vector instructions.
LEVEL = "MILLSTREAM_CPU"
TIMEOUT_SECONDS = 300

# Counters of every run, added up: what the closing assertions of a suite look at.
Stats = dict[str, int]


def program() -> Path:
    """The binary under test: MILLSTREAM_BIN, or the newest of the CI and the release build."""
    named = os.environ.get("MILLSTREAM_BIN")
    if named:
        return Path(named).resolve()
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    built = [p for p in (target / profile / "millstream" for profile in ("ci", "release")) if p.exists()]
    if not built:
        raise SystemExit(
            f"there is no millstream program under {target}: build it with "
            "`cargo build --profile ci --workspace`, or name one in MILLSTREAM_BIN"
        )
    return max(built, key=lambda p: p.stat().st_mtime)


def laboratory() -> Path:
    """The program that measures: MILLSTREAM_LAB_BIN, or `millstream-lab` beside the binary under test."""
    named = os.environ.get("MILLSTREAM_LAB_BIN")
    path = Path(named).resolve() if named else program().with_name("millstream-lab")
    if not path.exists():
        raise SystemExit(f"there is no {path}: build it with `cargo build --profile ci --workspace`, or name one in "
                         "MILLSTREAM_LAB_BIN")
    return path


@dataclass
class Run:
    """One run of the program and everything it left behind."""

    command: list[str]
    code: int
    stdout: bytes
    stderr: str
    stats: Stats = field(default_factory=dict)
    settings: dict[str, object] = field(default_factory=dict)

    def shell(self) -> str:
        """The command as one would type it."""
        import shlex

        return " ".join(shlex.quote(word) for word in self.command)


def set_options(settings: dict[str, object]) -> list[str]:
    """`--set key=value` for every setting; `workers`, `processes` and `fabric` are options of their own."""
    words: list[str] = []
    for key, value in settings.items():
        option = key in ("workers", "processes", "fabric")
        words += [f"--{key}", str(value)] if option else ["--set", f"{key}={value}"]
    return words


def run(*words: object, settings: dict[str, object] | None = None, cwd: Path | None = None,
        stats: bool = True, timeout: float = TIMEOUT_SECONDS, binary: Path | None = None) -> Run:
    """Runs `millstream words… --set …`, or another binary, to its end."""
    command = [str(binary or program()), *map(str, words), *set_options(settings or {})]
    with tempfile.TemporaryDirectory(prefix="millstream-test-") as folder:
        path = Path(folder) / "stats.json"
        extra = ["--stats-json", str(path)] if stats else []
        try:
            done = subprocess.run(command + extra, capture_output=True, cwd=cwd, timeout=timeout,
                                  stdin=subprocess.DEVNULL)
        except subprocess.TimeoutExpired as late:
            return Run(command, -1, late.stdout or b"", f"no end after {timeout} s", {}, settings or {})
        counters = json.loads(path.read_text()) if path.exists() else {}
    stderr = done.stderr.decode("utf-8", "replace")
    return Run(command, done.returncode, done.stdout, stderr, counters, settings or {})


def bench(*words: object, settings: dict[str, object] | None = None) -> Run:
    """Runs `millstream-lab bench words…` to its end."""
    return run("bench", *words, settings=settings, stats=False, binary=laboratory())


def run_all(jobs: list, work) -> list:
    """Applies `work` to every job, as many at a time as there are processors; keeps the order."""
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 2) as pool:
        return list(pool.map(work, jobs))


def add(total: Stats, one: Stats) -> None:
    """Adds the counters of one run to a total."""
    for key, value in one.items():
        if isinstance(value, (int, float)):
            total[key] = total.get(key, 0) + value


def parse_csv(text: str) -> list[list[str | None]]:
    """RFC 4180 records; an empty unquoted field is None, an empty quoted one is ''."""
    rows: list[list[str | None]] = []
    row: list[str | None] = []
    at, end = 0, len(text)
    while at < end:
        if text[at] == '"':
            value, at = _quoted(text, at + 1)
        else:
            stop = at
            while stop < end and text[stop] not in ",\n\r":
                stop += 1
            value, at = text[at:stop] or None, stop
        row.append(value)
        if at < end and text[at] == ",":
            at += 1
            if at == end or text[at] in "\r\n":
                row.append(None)
        if at >= end or text[at] in "\r\n":
            at += 2 if text[at : at + 2] == "\r\n" else 1
            rows.append(row)
            row = []
    return rows


def _quoted(text: str, at: int) -> tuple[str, int]:
    parts = []
    while True:
        stop = text.index('"', at)
        parts.append(text[at:stop])
        if text[stop + 1 : stop + 2] != '"':
            return "".join(parts), stop + 1
        parts.append('"')
        at = stop + 2


def sound(result: Run | subprocess.CompletedProcess) -> list[str]:
    """What is wrong with a run whatever it was for: traces of a crash on stderr, or state that is left."""
    stats = getattr(result, "stats", {})
    words = ("panicked", "RUST_BACKTRACE", "stack backtrace", "internal error", "overflowed its stack")
    left = [name for name in ("left_rows", "left_bytes", "left_windows", "left_credit") if stats.get(name)]
    return ([f"stderr says {word!r}" for word in words if word in result.stderr]
            + [f"counter {name} is {stats[name]} at the end, expected 0" for name in left])

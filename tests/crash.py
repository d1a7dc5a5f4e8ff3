#!/usr/bin/env python3
"""Crashes: one process of a job with checkpoints is killed with `kill -9` at a random moment, and the job is started again,
with other numbers of processes and workers, until it ends. Its output must be that of a run without a crash, row for row,
and while it runs no reader of the output may see a row twice. A third of the jobs get one of their tables over HTTP, with
a journal.

    tests/crash.py --count 1000        a thousand crashes
    tests/crash.py --seed 17           the jobs of one seed; their files stay in target/crash/17
"""

import argparse
import collections
import datetime
import http.client
import os
import random
import re
import shutil
import signal
import subprocess
import socket
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

import pyarrow
import pyarrow.parquet

import harness

KEPT = harness.ROOT / "target" / "crash"
TIME = "ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND"


def out(name: str, columns: str, form: str = "csv") -> str:
    header = ", 'csv.header' = 'false'" if form == "csv" else ""
    return f"CREATE TABLE {name} ({columns}) WITH ('connector' = 'file', 'path' = '{name}', 'format' = '{form}'{header});\n"


def window(function: str) -> str:
    return f"FROM TABLE({function}) GROUP BY window_start, window_end"


TUMBLE = "TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '5' SECOND)"
HOP = "HOP(TABLE a, DESCRIPTOR(ts), INTERVAL '2' SECOND, INTERVAL '10' SECOND)"
SESSION = "SESSION(TABLE a PARTITION BY k, DESCRIPTOR(ts), INTERVAL '2' SECOND)"

# Name, outputs, statements.
QUERIES = {
    "stateless": (out("o", "k BIGINT, v BIGINT, t VARCHAR"), "INSERT INTO o SELECT k, v, t FROM a WHERE v % 3 = 0;"),
    "tumble": (out("o", "s TIMESTAMP(3), k BIGINT, n BIGINT, v BIGINT, t VARCHAR"),
               f"INSERT INTO o SELECT window_start, k, COUNT(*), SUM(v), MAX(t) {window(TUMBLE)}, k;"),
    "hop": (out("o", "s TIMESTAMP(3), k BIGINT, n BIGINT, d BIGINT"),
            f"INSERT INTO o SELECT window_start, k, COUNT(*), COUNT(DISTINCT v) {window(HOP)}, k;"),
    "session": (out("o", "s TIMESTAMP(3), e TIMESTAMP(3), k BIGINT, n BIGINT"),
                f"INSERT INTO o SELECT window_start, window_end, k, COUNT(*) {window(SESSION)}, k;"),
    "join": (out("o", "k BIGINT, v BIGINT, w BIGINT"),
             "INSERT INTO o SELECT a.k, a.v, b.v FROM a JOIN b ON a.k = b.k AND a.v % 50 = 0 AND b.v % 50 = 1 "
             "AND b.ts BETWEEN a.ts - INTERVAL '2' SECOND AND a.ts + INTERVAL '2' SECOND;"),
    "cascade": (out("o", "s TIMESTAMP(3), n BIGINT, top BIGINT"),
                "CREATE VIEW per_key AS SELECT window_start AS ws, window_end AS we, window_time AS wt, k, COUNT(*) AS n "
                f"FROM TABLE({TUMBLE}) GROUP BY window_start, window_end, window_time, k;\n"
                "INSERT INTO o SELECT window_start, SUM(n), MAX(n) FROM TABLE(TUMBLE(TABLE per_key, DESCRIPTOR(wt), "
                "INTERVAL '20' SECOND)) GROUP BY window_start, window_end;"),
    "set": (out("o", "k BIGINT, v BIGINT") + out("p", "s TIMESTAMP(3), n BIGINT", "ndjson")
            + out("q", "s TIMESTAMP(3), k BIGINT, v BIGINT"),
            "BEGIN STATEMENT SET;\nINSERT INTO o SELECT k, v FROM a WHERE v % 7 = 0;\n"
            f"INSERT INTO p SELECT window_start, COUNT(*) {window(TUMBLE)};\n"
            f"INSERT INTO q SELECT window_start, k, MIN(v) {window(HOP)}, k;\nEND;"),
    "whole": (out("o", "k BIGINT, n BIGINT, v BIGINT"), "INSERT INTO o SELECT k, COUNT(*), SUM(v) FROM a GROUP BY k;"),
}


# Those that give rows as time passes. The last records of a followed directory come so late, and are in none of them.
FOLLOWED = ("stateless", "tumble", "hop", "session", "cascade", "set")
FAR = " 05:"


def line(form: str, at: int, rng: random.Random, keys: int, number: int) -> str:
    at += rng.randrange(-900, 900)
    stamp = f"2024-01-01 {at // 3_600_000:02}:{at // 60_000 % 60:02}:{at // 1000 % 60:02}.{at % 1000:03}"
    key, text = rng.randrange(keys), f"t{rng.randrange(1000)}"
    if form == "csv":
        return f"{stamp},{key},{number},{text}\n"
    return f'{{"ts": "{stamp}", "k": {key}, "v": {number}, "t": "{text}"}}\n'


def parquet(path: Path, lines: list[str], rng: random.Random) -> None:
    """A file of these lines of CSV, of many row groups or of one."""
    rows = [text.rstrip().split(",") for text in lines]
    columns = [[datetime.datetime.fromisoformat(row[0]) for row in rows], [int(row[1]) for row in rows],
               [int(row[2]) for row in rows], [row[3] for row in rows]]
    types = [pyarrow.timestamp("ms"), pyarrow.int64(), pyarrow.int64(), pyarrow.string()]
    arrays = [pyarrow.array(column, type) for column, type in zip(columns, types)]
    pyarrow.parquet.write_table(pyarrow.table(arrays, ["ts", "k", "v", "t"]), path,
                                row_group_size=rng.choice([1000, 20_000, 1 << 20]))


def table(folder: Path, name: str, rng: random.Random, records: int, forms: tuple = ("csv", "ndjson", "parquet")) -> str:
    """Files of a table, and its declaration."""
    form, files = rng.choice(forms), rng.choice([1, 2, 5])
    keys = rng.choice([3, 100, 20_000])
    place = folder / "in" / name
    place.mkdir(parents=True)
    for number in range(files):
        text = "csv" if form == "parquet" else form
        lines = [line(text, 1000 + at * 120_000 // records, rng, keys, at) for at in range(number, records, files)]
        path = place / f"{number}.{form}"
        if form == "parquet":
            parquet(path, lines, rng)
        else:
            path.write_text(("ts,k,v,t\n" if form == "csv" else "") + "".join(lines))
    return (f"CREATE TABLE {name} (k BIGINT, v BIGINT, t VARCHAR, {TIME}) WITH ('connector' = 'file', "
            f"'path' = 'in/{name}/*.{form}', 'format' = '{form}');\n")


def visible(folder: Path, outputs: list[str]) -> collections.Counter:
    """All rows that a reader of the output sees. A file may get its name meanwhile, but none goes."""
    rows: collections.Counter = collections.Counter()
    for name in outputs:
        for path in (folder / name).glob("part-*"):
            rows.update(f"{name}: {row}" for row in path.read_text().splitlines())
    return rows


def command(script: Path, *words: object) -> list[str]:
    return [str(harness.program()), "run", str(script), "--quiet", *map(str, words)]


def children(process: int) -> list[int]:
    """The processes that a process has started, as far as they live."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            if stat.read_text().rsplit(")", 1)[1].split()[1] == str(process):
                found.append(int(stat.parent.name))
        except OSError:
            pass
    return found


def kill(job: subprocess.Popen, rng: random.Random) -> bool:
    """Kills a process of a job, if the job has not ended well before."""
    try:
        os.kill(rng.choice([job.pid, *children(job.pid)]), signal.SIGKILL)
    except ProcessLookupError:
        pass
    try:
        _, said = job.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        job.kill()
        raise SystemExit(f"the job goes on without a process\n{job.communicate()[1].decode()}") from None
    if job.returncode == 1 and b"killed by signal 9" not in said:
        raise SystemExit(f"the job does not say that a process was killed\n{said.decode()}")
    return job.returncode != 0


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Producer(threading.Thread):
    """Sends all records of table `a` as bodies, each until it is accepted."""

    def __init__(self, folder: Path, rng: random.Random):
        super().__init__(daemon=True)
        self.port = free_port()
        self.paths, self.rng, self.said = sorted((folder / "in" / "a").iterdir()), rng, ""

    def table(self) -> str:
        form = self.paths[0].suffix[1:]
        return (f"CREATE TABLE a (k BIGINT, v BIGINT, t VARCHAR, {TIME}) WITH ('connector' = 'http', "
                f"'listen' = '{self.port}', 'format' = '{form}', 'journal' = 'journal');\n")

    def bodies(self):
        # Files are read beside each other, so that no record is late.
        files = [path.read_text().splitlines(keepends=True) for path in self.paths]
        header = files[0][0] if self.paths[0].suffix == ".csv" else ""
        lines = [line for row in zip(*(file[bool(header):] for file in files)) for line in row]
        lines += [line for file in files for line in file[bool(header) + len(lines) // len(files):]]
        while lines:
            count = self.rng.choice([1, 100, 5000])
            yield header + "".join(lines[:count])
            del lines[:count]

    def run(self) -> None:
        for number, body in enumerate(self.bodies()):
            fields = {"Millstream-Producer": "crash.py", "Millstream-Sequence": str(number)}
            while True:
                connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
                try:
                    connection.request("POST", "/", body, fields)
                    answer = connection.getresponse()
                    self.said, status = answer.read().decode(), answer.status
                    if status == 202:
                        break
                    if status not in (429, 503):
                        return
                except (OSError, http.client.HTTPException):
                    pass  # nobody listens, or the answer is lost
                finally:
                    connection.close()
                time.sleep(0.002)
        self.said = ""


def read(port: int, table: str) -> int:
    """How many records of a table a job has read, as its metrics say."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            metrics = answer.read().decode()
    except OSError:
        return 0
    found = re.findall(rf'^millstream_split_records_total{{.*table="{table}".*}} (\d+)', metrics, re.MULTILINE)
    return sum(map(int, found))


def drain(job: subprocess.Popen, environment: dict, port: int, files: dict[str, int]) -> None:
    """Lets a job end that would go on for ever, once so many records of its tables of files have been read."""
    until = time.monotonic() + 120
    while job.poll() is None and time.monotonic() < until and any(read(port, name) < of for name, of in files.items()):
        time.sleep(0.05)
    while job.poll() is None and time.monotonic() < until:
        subprocess.run([str(harness.program()), "stop", "--drain"], env=environment, capture_output=True)
        time.sleep(0.05)


def case(seed: int, folder: Path, records: int, most: int) -> int:
    """Runs one job with crashes, and compares. Returns how many crashes there were."""
    rng = random.Random(seed)
    name = list(QUERIES)[seed % len(QUERIES)]
    declared, statements = QUERIES[name]
    outputs = [row.split()[2] for row in declared.splitlines()]
    over_http = seed % 3 == 2
    tables = table(folder, "a", rng, records, *[("csv", "ndjson")] * over_http)
    tables += table(folder, "b", rng, records) if name == "join" else ""
    script = folder / "job.sql"
    if over_http:
        # Batches are others over HTTP, so no record may be late.
        tables = tables.replace("INTERVAL '1' SECOND", "INTERVAL '2' SECOND")
    script.write_text(tables + declared + statements)
    began = time.monotonic()
    subprocess.run(command(script), check=True, capture_output=True, cwd=folder)
    took = time.monotonic() - began
    expected = visible(folder, outputs)
    for output in outputs:
        shutil.rmtree(folder / output)
    environment, producer = os.environ | {"XDG_RUNTIME_DIR": str(folder / "run")}, None
    (folder / "run").mkdir(mode=0o700)
    if over_http:
        name += " over HTTP"
        producer = Producer(folder, rng)
        tables = producer.table() + tables[tables.index(";\n") + 2:]
        script.write_text(tables.replace("INTERVAL '1' SECOND", "INTERVAL '2' SECOND") + declared + statements)
        producer.start()
    crashes, wanted = 0, rng.randrange(1, 7)
    while True:
        words = ["--checkpoint", folder / "state", "--every", f"{rng.choice([10, 20, 50])}ms",
                 "--workers", rng.choice([1, 2, 3, 5]), "--processes", rng.randrange(most) + 1]
        if words[-1] > 1:
            words += ["--fabric", rng.choice(["shm", "tcp"])]
        metrics = free_port()
        words += ["--metrics", f"127.0.0.1:{metrics}"] * over_http
        job = subprocess.Popen(command(script, *words), cwd=folder, env=environment, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE)
        try:
            if crashes >= wanted and producer:
                producer.join(120)
                if producer.said or producer.is_alive():
                    job.kill()
                    raise SystemExit(f"seed {seed} ({name}): not accepted: {producer.said}\n{job.communicate()[1].decode()}")
                drain(job, environment, metrics, {"b": records} if name.startswith("join") else {})
            if crashes < wanted:
                job.wait(rng.random() * took * 1.5)
            else:
                job.wait(120)
        except subprocess.TimeoutExpired:
            if crashes >= wanted:
                job.kill()
                raise SystemExit(f"seed {seed} ({name}): the job does not end\n{job.communicate()[1].decode()}") from None
            if not kill(job, rng):
                break
            crashes += 1
            more = visible(folder, outputs) - expected
            if more:
                raise SystemExit(f"seed {seed} ({name}): after crash {crashes} rows that are wrong, or there too often: "
                                 f"{list(more.items())[:3]}, {sum(more.values())} in all") from None
            continue
        _, said = job.communicate()
        if job.returncode != 0:
            raise SystemExit(f"seed {seed} ({name}): code {job.returncode} after {crashes} crashes\n{said.decode()}")
        break
    rows = visible(folder, outputs)
    if rows != expected:
        lost, more = expected - rows, rows - expected
        raise SystemExit(f"seed {seed} ({name}): after {crashes} crashes {sum(lost.values())} rows are missing "
                         f"{list(lost.items())[:3]}, and {sum(more.values())} too many {list(more.items())[:3]}")
    # A process that is killed when the job has ended leaves its lock file, which the next job takes over.
    left = [path for output in outputs for path in (folder / output).glob(".*") if path.suffix != ".lock"]
    if left:
        raise SystemExit(f"seed {seed} ({name}): left in the output: {left[:3]}")
    return crashes


def appends(form: str, rng: random.Random, records: int) -> list[tuple[str, str]]:
    """What is appended to the files of a directory, one after the other: names and texts. A text of `None`: the file is
    rotated."""
    steps, name, keys, number, fresh = [], "0", rng.choice([3, 100, 5000]), 0, True
    while number < records:
        chosen = rng.randrange(6)
        if chosen == 0 and not fresh:
            name, fresh = str(int(name) + 1), True
        elif chosen == 1 and not fresh:
            steps.append((name, None))
            fresh = True
        count = min(rng.choice([1, 100, records // 20]), records - number)
        lines = [line(form, 1000 + at * 120_000 // records, rng, keys, at) for at in range(number, number + count)]
        steps.append((name, ("ts,k,v,t\n" if fresh and form == "csv" else "") + "".join(lines)))
        number, fresh = number + count, False
    steps.append((name, line(form, 5 * 3_600_000 + 1_800_000, rng, keys, 1)))
    return steps


def append(place: Path, form: str, step: tuple[str, str | None]) -> None:
    name, text = step
    path = place / f"{name}.{form}"
    if text is None:
        left = sum(1 for _ in place.glob(f"{name}.{form}.*"))
        path.rename(place / f"{name}.{form}.{left + 1}")
        return
    with path.open("a") as file:
        # A reader may see a part of a line.
        half = len(text) // 2
        file.write(text[:half])
        file.flush()
        file.write(text[half:])


def followed(seed: int, folder: Path, records: int) -> int:
    """The same of a directory that is followed: files grow, are rotated, and others come, also while no job runs."""
    rng = random.Random(f"followed {seed}")
    name, form = rng.choice(FOLLOWED), rng.choice(["csv", "ndjson"])
    declared, statements = QUERIES[name]
    outputs = [row.split()[2] for row in declared.splitlines()]
    columns = "k BIGINT, v BIGINT, t VARCHAR, " + TIME.replace("'1'", "'2'")
    read = "CREATE TABLE a ({}) WITH ('connector' = 'file', 'format' = '{}', 'path' = '{}'{});\n"
    place, whole, script = folder / "in", folder / "whole", folder / "job.sql"
    place.mkdir()
    whole.mkdir()
    steps = appends(form, rng, records)
    for step in steps:
        append(whole, form, step)
    script.write_text(read.format(columns, form, "whole/*", "") + declared + statements)
    subprocess.run(command(script), check=True, capture_output=True, cwd=folder)
    expected = collections.Counter({row: count for row, count in visible(folder, outputs).items() if FAR not in row})
    for output in outputs:
        shutil.rmtree(folder / output)
    script.write_text(read.format(columns, form, "in/*", ", 'follow' = 'true'") + declared + statements)
    crashes, wanted, job, said = 0, rng.randrange(1, 7), None, b""
    kills = sorted(rng.sample(range(len(steps)), min(wanted, len(steps))))

    def start() -> subprocess.Popen:
        words = ["--checkpoint", folder / "state", "--every", f"{rng.choice([10, 20, 50])}ms",
                 "--workers", rng.choice([1, 2, 3, 5])]
        return subprocess.Popen(command(script, *words), cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def failed(what: str) -> SystemExit:
        job.kill()
        return SystemExit(f"followed seed {seed} ({name}) after {crashes} crashes: {what}\n{job.communicate()[1].decode()}")

    for at, step in enumerate(steps):
        if at > 0 and step[0] != steps[at - 1][0] or step[1] is None:
            # A job looks for growth ten times in a second, and afterwards goes by the times of files.
            time.sleep(0.15)
        append(place, form, step)
        if at == 0 or job is None and rng.randrange(3) == 0:
            job = start()
        if job is not None and at in kills:
            time.sleep(rng.random() * 0.3)
            job.send_signal(signal.SIGKILL)
            job.communicate()
            crashes, job = crashes + 1, None
            if more := visible(folder, outputs) - expected:
                raise SystemExit(f"followed seed {seed} ({name}): after crash {crashes} {sum(more.values())} rows are wrong: "
                                 f"{list(more.items())[:3]}")
    job = job or start()
    until = time.monotonic() + 60
    while visible(folder, outputs) != expected:
        if job.poll() is not None or time.monotonic() > until:
            lost, more = expected - visible(folder, outputs), visible(folder, outputs) - expected
            raise failed(f"{sum(lost.values())} rows are missing {list(lost.items())[:3]}, and {sum(more.values())} too "
                         f"many {list(more.items())[:3]}")
        time.sleep(0.05)
    job.send_signal(signal.SIGINT)
    said = job.communicate(timeout=60)[1]
    if visible(folder, outputs) != expected:
        raise failed(f"other rows when it is stopped\n{said.decode()}")
    return crashes


def any_case(seed: int, folder: Path, records: int, most: int) -> int:
    return followed(seed, folder, records // 10) if seed % 6 == 5 else case(seed, folder, records, most)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=40, help="crashes at least")
    parser.add_argument("--seed", type=int, help="the jobs of this seed only, whose files stay")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--records", type=int, default=400_000, help="records of a table")
    parser.add_argument("--processes", type=int, default=4, help="processes of a job at the most")
    words = parser.parse_args()
    if words.seed is not None:
        folder = KEPT / str(words.seed)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        print(any_case(words.seed, folder, words.records, words.processes), f"crashes; files in {folder}")
        return
    crashes, seed, began = 0, words.first, time.monotonic()
    while crashes < words.count:
        with tempfile.TemporaryDirectory(prefix="millstream-crash-") as folder:
            crashes += any_case(seed, Path(folder), words.records, words.processes)
        seed += 1
        print(f"\r{seed - words.first} jobs, {crashes} crashes", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    print(f"{seed - words.first} jobs, {crashes} crashes, {time.monotonic() - began:.0f} s: every output as without a crash")


if __name__ == "__main__":
    main()

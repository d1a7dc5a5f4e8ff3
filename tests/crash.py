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
import http.client
import os
import random
import shutil
import signal
import subprocess
import socket
import sys
import tempfile
import threading
import time
from pathlib import Path

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


def line(form: str, at: int, rng: random.Random, keys: int, number: int) -> str:
    at += rng.randrange(-900, 900)
    stamp = f"2024-01-01 {at // 3_600_000:02}:{at // 60_000 % 60:02}:{at // 1000 % 60:02}.{at % 1000:03}"
    key, text = rng.randrange(keys), f"t{rng.randrange(1000)}"
    if form == "csv":
        return f"{stamp},{key},{number},{text}\n"
    return f'{{"ts": "{stamp}", "k": {key}, "v": {number}, "t": "{text}"}}\n'


def table(folder: Path, name: str, rng: random.Random, records: int) -> str:
    """Files of a table, and its declaration."""
    form, files = rng.choice(["csv", "ndjson"]), rng.choice([1, 2, 5])
    keys = rng.choice([3, 100, 20_000])
    place = folder / "in" / name
    place.mkdir(parents=True)
    for number in range(files):
        lines = (line(form, 1000 + at * 120_000 // records, rng, keys, at) for at in range(number, records, files))
        (place / f"{number}.{form}").write_text(("ts,k,v,t\n" if form == "csv" else "") + "".join(lines))
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


class Producer(threading.Thread):
    """Sends all records of table `a` as bodies, each until it is accepted."""

    def __init__(self, folder: Path, rng: random.Random):
        super().__init__(daemon=True)
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            self.port = one.getsockname()[1]
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


def drain(job: subprocess.Popen, environment: dict) -> None:
    """Lets a job end that would go on for ever."""
    until = time.monotonic() + 120
    while job.poll() is None and time.monotonic() < until:
        subprocess.run([str(harness.program()), "stop", "--drain"], env=environment, capture_output=True)
        time.sleep(0.05)


def case(seed: int, folder: Path, records: int, most: int) -> int:
    """Runs one job with crashes, and compares. Returns how many crashes there were."""
    rng = random.Random(seed)
    name = list(QUERIES)[seed % len(QUERIES)]
    declared, statements = QUERIES[name]
    outputs = [row.split()[2] for row in declared.splitlines()]
    tables = table(folder, "a", rng, records) + (table(folder, "b", rng, records) if name == "join" else "")
    script = folder / "job.sql"
    over_http = seed % 3 == 2
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
        job = subprocess.Popen(command(script, *words), cwd=folder, env=environment, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE)
        try:
            if crashes >= wanted and producer:
                producer.join(120)
                if producer.said or producer.is_alive():
                    job.kill()
                    raise SystemExit(f"seed {seed} ({name}): not accepted: {producer.said}\n{job.communicate()[1].decode()}")
                drain(job, environment)
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
    left = [path for output in outputs for path in (folder / output).glob(".*")]
    if left:
        raise SystemExit(f"seed {seed} ({name}): left in the output: {left[:3]}")
    return crashes


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
        print(case(words.seed, folder, words.records, words.processes), f"crashes; files in {folder}")
        return
    crashes, seed, began = 0, words.first, time.monotonic()
    while crashes < words.count:
        with tempfile.TemporaryDirectory(prefix="millstream-crash-") as folder:
            crashes += case(seed, Path(folder), words.records, words.processes)
        seed += 1
        print(f"\r{seed - words.first} jobs, {crashes} crashes", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    print(f"{seed - words.first} jobs, {crashes} crashes, {time.monotonic() - began:.0f} s: every output as without a crash")


if __name__ == "__main__":
    main()

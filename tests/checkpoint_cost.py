#!/usr/bin/env python3
"""What checkpoints cost: pairs of runs of a job, without and with checkpoints, in turn.

    cargo build --release -p millstream-cli
    tests/checkpoint_cost.py [JOB …] [--every 10s] [--pairs 3] [--seconds 60] [--workers 2] [--processes 1]

The jobs read generated records: `keys` counts by ten million keys, `means` has means by 3,125 keys in short windows,
`join` joins two tables within windows, `changing` counts by 100,000 keys, all of which change between two checkpoints.
For each job: the quotient of the times without and with checkpoints, the pause of a worker at the 99th percentile, the
parts of the last stop, and the time from `kill -9` until the resumed job has read on. Answers go to a black hole.
"""

import argparse
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

PROGRAM = Path(__file__).resolve().parent.parent / "target" / "release" / "millstream"
TABLE = """CREATE TABLE {name} (k BIGINT, v BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('connector' = 'datagen',
  'number-of-rows' = '{rows}', 'seed' = '{seed}', 'splits' = '2', 'fields.k.min' = '1', 'fields.k.max' = '{keys}',
  'fields.v.min' = '0', 'fields.v.max' = '1000', 'fields.ts.kind' = 'sequence', 'fields.ts.start' = '2024-01-01 00:00:00',
  'fields.ts.step' = '10 us');
"""
INTO = "CREATE TABLE o ({columns}) WITH ('connector' = 'blackhole');\nINSERT INTO o {query};\n"
WINDOW = "TABLE(TUMBLE(TABLE {name}, DESCRIPTOR(ts), INTERVAL {size}))"


def tumbled(name: str, size: str) -> str:
    return WINDOW.format(name=name, size=size)


JOBS = {
    "keys": (10_000_000, 1, "k BIGINT, n BIGINT",
             f"SELECT k, COUNT(*) FROM {tumbled('a', chr(39) + '10' + chr(39) + ' MINUTE')} GROUP BY window_start, window_end, k"),
    "means": (3_125, 1, "k BIGINT, m DOUBLE",
              f"SELECT k, AVG(CAST(v AS DOUBLE)) FROM {tumbled('a', chr(39) + '2' + chr(39) + ' SECOND')} GROUP BY window_start, window_end, k"),
    "changing": (100_000, 1, "k BIGINT, n BIGINT",
                 f"SELECT k, COUNT(*) FROM {tumbled('a', chr(39) + '10' + chr(39) + ' MINUTE')} GROUP BY window_start, window_end, k"),
    "join": (2_000_000, 2, "k BIGINT, v BIGINT, w BIGINT",
             "SELECT x.k, x.v, y.v FROM {} x JOIN {} y ON x.k = y.k AND x.window_start = y.window_start AND x.window_end = y.window_end"
             .format(tumbled("a", "'10' SECOND"), tumbled("b", "'10' SECOND"))),
}


def script(job: str, rows: int) -> str:
    keys, tables, columns, query = JOBS[job]
    names = "ab"[:tables]
    declared = "".join(TABLE.format(name=name, rows=rows, seed=seed, keys=keys) for seed, name in enumerate(names))
    return declared + INTO.format(columns=columns, query=query)


class Job:
    def __init__(self, text: str, given: argparse.Namespace):
        self.folder = Path(tempfile.mkdtemp(prefix="millstream-cost-"))
        (self.folder / "job.sql").write_text(text)
        self.words = [PROGRAM, "run", self.folder / "job.sql", "--workers", str(given.workers)]
        self.words += ["--processes", str(given.processes)]
        self.saved = ["--checkpoint", self.folder / "state", "--every", given.every]

    def seconds(self, *words: object) -> float:
        begin = time.monotonic()
        subprocess.run([*self.words, "--quiet", *words], check=True, capture_output=True)
        return time.monotonic() - begin

    def watched(self) -> tuple[float, dict[str, float]]:
        """With checkpoints: the seconds, and the last metrics."""
        shutil.rmtree(self.folder / "state", ignore_errors=True)
        begin, last = time.monotonic(), {}
        running, port = self.start()
        while running.poll() is None:
            last |= {name: value for name, value in metrics(port).items() if value}
            time.sleep(0.5)
        assert running.returncode == 0
        return time.monotonic() - begin, last

    def start(self) -> tuple[subprocess.Popen, int]:
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            port = one.getsockname()[1]
        words = [*self.words, "--quiet", *self.saved, "--metrics", f"127.0.0.1:{port}"]
        return subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL), port

    def resumed(self, seconds: float) -> float:
        """Seconds from a kill until the job that goes on has read a record."""
        shutil.rmtree(self.folder / "state", ignore_errors=True)
        running, _ = self.start()
        time.sleep(seconds)
        running.kill()
        running.wait()
        begin = time.monotonic()
        running, port = self.start()
        first = None
        while True:
            read = metrics(port).get("millstream_records_total")
            if read is not None and first is not None and read > first:
                break
            first = first if first is not None else read
            time.sleep(0.01)
        took = time.monotonic() - begin
        running.send_signal(signal.SIGKILL)
        running.wait()
        return took


def metrics(port: int) -> dict[str, float]:
    try:
        text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=1).read().decode()
    except OSError:
        return {}
    return {name: float(value) for name, value in re.findall(r"^(\S+) (\S+)$", text, re.M)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("jobs", nargs="*", default=list(JOBS), metavar="JOB")
    parser.add_argument("--every", default="10s")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--workers", type=int, default=2, help="of each process")
    parser.add_argument("--processes", type=int, default=1)
    given = parser.parse_args()
    for name in given.jobs:
        tried = 20_000_000
        took = Job(script(name, tried), given).seconds()
        rows = int(tried * given.seconds / took)
        job = Job(script(name, rows), given)
        quotients, seen = [], {}
        for _ in range(given.pairs):
            alone = job.seconds()
            saved, seen = job.watched()
            quotients.append(alone / saved)
            print(f"{name}: {rows:,} records, {alone:.1f} s without, {saved:.1f} s with checkpoints every {given.every}", flush=True)
        pause = seen.get('millstream_checkpoint_pause_seconds{quantile="0.99"}', 0)
        parts = {part: seen.get(f'millstream_checkpoint_stop_seconds{{part="{part}"}}', 0) for part in ("drain", "save", "complete")}
        size = seen.get("millstream_checkpoint_bytes", 0)
        print(f"{name}: without / with {statistics.median(quotients):.2f}, pause (p99) {1000 * pause:.1f} ms, last stop "
              + ", ".join(f"{part} {1000 * took:.1f} ms" for part, took in parts.items())
              + f"; {size / 1e6:.0f} MB of state, {seen.get('millstream_checkpoints_total', 0):.0f} checkpoints", flush=True)
        print(f"{name}: from kill -9 to the next record {job.resumed(min(25, alone / 2)):.2f} s", flush=True)
        shutil.rmtree(job.folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Crashes over Kafka: jobs from topics to a topic, or to files, are killed with `kill -9` at random moments and started again
with other numbers of workers and processes; now and then the broker is killed, too. Messages are JSON, or Avro with and
without a registry of schemas. Input comes meanwhile, with records of aborted transactions between. What a reader of committed rows sees must be the answer that this file computes: every row once,
and in each partition in order.

    tests/kafka_crash.py --count 100 --brokers 20     so many kills of jobs, and of the broker, at least
    tests/kafka_crash.py --seed 17                    the job of one seed; its files stay in target/kafka-crash/17
"""

import argparse
import collections
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

import broker as kafka
import crash
import harness
import kafka_forms as forms
from registry import Registry

KEPT = harness.ROOT / "target" / "kafka-crash"
INPUT = "k BIGINT, v BIGINT, ts TIMESTAMP(3)"
COLUMNS = f"{INPUT}, WATERMARK FOR ts AS ts - INTERVAL '2' SECOND"
SECONDS = 120  # of event time, in a whole job
FAR = 5 * 3_600_000  # the last record of each partition: it completes all windows, and is in none that fires
WINDOW, WIDE = 5_000, 20_000
SLICE = 1_000  # half of the interval of the join, as docs/sql.md says: the order of its rows

Rows = list[tuple]


def tumble(table: str) -> str:
    return f"TABLE(TUMBLE(TABLE {table}, DESCRIPTOR(ts), INTERVAL '5' SECOND))"


# --- queries: statement, columns of the output, answer in the order of the rows -------------------

def stateless(a: Rows, _: Rows) -> Rows:
    return [(k, v) for k, v, _ in a if v % 3 == 0]


def per_window(a: Rows) -> dict[tuple, list]:
    found: dict[tuple, list] = {}
    for k, v, ts in a:
        counted = found.setdefault((ts // WINDOW * WINDOW, k), [0, 0])
        counted[0] += 1
        counted[1] += v
    return found


def windows(a: Rows, _: Rows) -> Rows:
    return sorted((s, k, n, total) for (s, k), (n, total) in per_window(a).items())


def cascade(a: Rows, _: Rows) -> Rows:
    found: dict[int, list] = {}
    for (s, _), (n, _) in per_window(a).items():
        counted = found.setdefault(s // WIDE * WIDE, [0, 0])
        counted[0] += n
        counted[1] = max(counted[1], n)
    return sorted((s, n, most) for s, (n, most) in found.items())


def join(a: Rows, b: Rows) -> Rows:
    right: dict[tuple, list] = collections.defaultdict(list)
    for k, v, ts in b:
        right[ts // WINDOW * WINDOW, k].append(v)
    return sorted((ts // WINDOW * WINDOW, k, v, w) for k, v, ts in a for w in right[ts // WINDOW * WINDOW, k])


def interval(a: Rows, b: Rows) -> Rows:
    right: dict[tuple, list] = collections.defaultdict(list)
    for k, w, ts in b:
        right[k, ts // 1000].append((w, ts))
    near = ((s, k, v, w) for k, v, s in a for at in (-1, 0, 1) for w, ts in right[k, s // 1000 + at] if abs(ts - s) <= 1000)
    return sorted(near)


QUERIES = {
    "stateless": ("SELECT k, v FROM a WHERE v % 3 = 0", "k BIGINT, v BIGINT", stateless),
    "windows": (f"SELECT window_start, k, COUNT(*), SUM(v) FROM {tumble('a')} GROUP BY window_start, window_end, k",
                "s TIMESTAMP(3), k BIGINT, n BIGINT, v BIGINT", windows),
    "cascade": ("SELECT window_start, SUM(n), MAX(n) FROM TABLE(TUMBLE(TABLE per_key, DESCRIPTOR(wt), INTERVAL '20' "
                "SECOND)) GROUP BY window_start, window_end", "s TIMESTAMP(3), k BIGINT, most BIGINT", cascade),
    "join": (f"SELECT l.window_start, l.k, l.v, r.v FROM (SELECT * FROM {tumble('a')}) l JOIN (SELECT * FROM {tumble('b')}) r "
             "ON l.k = r.k AND l.window_start = r.window_start AND l.window_end = r.window_end",
             "s TIMESTAMP(3), k BIGINT, v BIGINT, w BIGINT", join),
    "interval": ("SELECT a.ts, a.k, a.v, b.v FROM a JOIN b ON a.k = b.k AND b.ts BETWEEN a.ts - INTERVAL '1' SECOND AND a.ts + "
                 "INTERVAL '1' SECOND", "s TIMESTAMP(3), k BIGINT, v BIGINT, w BIGINT", interval),
}
JOINS = ("join", "interval")
VIEW = ("CREATE VIEW per_key AS SELECT window_start AS ws, window_end AS we, window_time AS wt, k, COUNT(*) AS n "
        f"FROM {tumble('a')} GROUP BY window_start, window_end, window_time, k;\n")


# --- input ----------------------------------------------------------------------------------------

class Input:
    """A topic that grows in steps. What is committed comes into `rows`, in the order of the only partition."""

    def __init__(self, broker: kafka.Broker, topic: str, form: forms.Form, partitions: int, rng: random.Random, keys: int):
        self.broker, self.topic, self.partitions, self.rng, self.keys = broker, topic, partitions, rng, keys
        self.form = form
        self.rows: Rows = []
        self.number, self.begun = 0, 0
        broker.topic(topic, partitions)
        self.packing = rng.choice(["none", "gzip", "snappy", "lz4", "zstd"])
        self.plain = broker.producer(compression_type=self.packing)
        self.open = None  # a transaction that goes on over steps; it is aborted

    def producer(self):
        self.begun += 1
        one = self.broker.producer(transactional_id=f"{self.topic}-{self.begun}", compression_type=self.packing)
        one.init_transactions(60)
        one.begin_transaction()
        return one

    def send(self, producer, count: int, total: int, counts: bool) -> None:
        for _ in range(count):
            at = max(0, 1000 + self.number * SECONDS * 1000 // total + self.rng.randrange(-900, 900))
            row = (self.rng.randrange(self.keys), self.number, at)
            # Records of aborted transactions would show in every sum.
            message = self.form.message(row[0], row[1] if counts else 10**12 + row[1], at, self.rng)
            producer.produce(self.topic, message, partition=self.rng.randrange(self.partitions))
            producer.poll(0)
            if counts:
                self.rows.append(row)
                self.number += 1
        assert producer.flush(60) == 0

    def step(self, count: int, total: int) -> None:
        """Some records: in a transaction that commits, in none, beside one that is aborted, around one that stays open."""
        kind = self.rng.randrange(5)
        if kind == 0 and self.open is None:
            self.open = self.producer()
            self.send(self.open, self.rng.randrange(1, 20), total, counts=False)
        if kind in (1, 2):
            beside, one = self.producer(), self.producer()
            self.send(beside, self.rng.randrange(1, 50), total, counts=False)
            self.send(one, count, total, counts=True)
            self.send(beside, self.rng.randrange(1, 50), total, counts=False)
            for end in self.rng.sample([beside.abort_transaction, one.commit_transaction], 2):
                end(60)
        else:
            self.send(self.plain, count, total, counts=True)
            if kind == 3:
                self.close()

    def close(self) -> None:
        if self.open is not None:
            self.open.abort_transaction(60)
            self.open = None

    def ends(self) -> list[tuple]:
        """By partition the end for readers of committed records, and of all: an open transaction is between."""
        readers = [Consumer(self.broker.settings | {"group.id": "ends", "isolation.level": f"read_{level}"})
                   for level in ("committed", "uncommitted")]
        return [tuple(reader.get_watermark_offsets(TopicPartition(self.topic, number), 10)[1] for reader in readers)
                for number in range(self.partitions)]

    def finish(self) -> None:
        self.close()
        for partition in range(self.partitions):
            self.plain.produce(self.topic, self.form.message(0, 1, FAR, self.rng), partition=partition)
        assert self.plain.flush(60) == 0


# --- one job --------------------------------------------------------------------------------------

class Case:
    def __init__(self, seed: int, broker: kafka.Broker, registry: Registry, folder: Path, records: int):
        self.seed, self.broker, self.folder = seed, broker, folder
        self.rng = rng = random.Random(seed)
        self.name = list(QUERIES)[seed % len(QUERIES)]
        self.query, self.columns, self.answer = QUERIES[self.name]
        self.to_files = seed % 3 == 2
        partitions = rng.choice([1, 4])
        # Rows without windows, of several partitions, have no order: a spool keeps them until their checkpoint.
        self.ordered = not self.to_files and (self.name != "stateless" or partitions == 1)
        keys = rng.choice([3, 100, 2_000]) if self.name not in JOINS else 500

        def form(topic: str, columns: str) -> forms.Form:
            return forms.Form(rng.choice(forms.NAMES), registry, topic, columns)

        topics = [f"{name}-{seed}-{time.time_ns()}" for name in "abo"]
        self.a = Input(broker, topics[0], form(topics[0], INPUT), partitions, rng, keys)
        self.b = Input(broker, topics[1], form(topics[1], INPUT), rng.choice([1, 4]), rng, keys)
        self.inputs = [self.a, self.b] if self.name in JOINS else [self.a]
        self.records, self.sink, self.sinks = records, topics[2], rng.choice([1, 3])
        self.form = form(self.sink, self.columns)
        self.crashes, self.broker_crashes, self.job, self.started = 0, 0, None, 0.0
        if not self.to_files:
            broker.topic(self.sink, self.sinks)
        tables = "".join(self.read(one, name) for one, name in zip(self.inputs, "ab"))
        (folder / "job.sql").write_text(tables + (VIEW if self.name == "cascade" else "") + self.written() +
                                        f"INSERT INTO o {self.query};\n")

    def read(self, of: Input, name: str) -> str:
        return (f"CREATE TABLE {name} ({COLUMNS}) WITH ('connector' = 'kafka', 'topic' = '{of.topic}', {of.form.options()}, "
                f"'properties.bootstrap.servers' = '{self.broker.servers}', 'scan.startup.mode' = 'earliest-offset');\n")

    def written(self) -> str:
        if self.to_files:
            return (f"CREATE TABLE o ({self.columns}) WITH ('connector' = 'file', 'path' = '{self.folder}/o', "
                    "'format' = 'json');\n")
        keyed = f", {self.form.options('key.')}, 'key.fields' = 'k'" if self.rng.randrange(2) and self.name != "cascade" else ""
        packing = self.rng.choice(["none", "lz4", "zstd"])
        partitioner = self.rng.choice(["default", "round-robin"]) if not keyed else "default"
        return (f"CREATE TABLE o ({self.columns}) WITH ('connector' = 'kafka', 'topic' = '{self.sink}', {self.form.options()}, "
                f"'properties.bootstrap.servers' = '{self.broker.servers}', 'sink.delivery-guarantee' = 'exactly-once', "
                f"'sink.transactional-id-prefix' = '{self.sink}', 'properties.compression.type' = '{packing}', "
                f"'sink.partitioner' = '{partitioner}'{keyed});\n")

    def start(self) -> None:
        words = ["--checkpoint", self.folder / "state", "--every", f"{self.rng.choice([20, 50, 200])}ms",
                 "--workers", self.rng.choice([1, 2, 3]), "--processes", self.rng.choice([1, 1, 1, 2])]
        self.started = time.monotonic()
        self.job = subprocess.Popen(crash.command(self.folder / "job.sql", *words), cwd=self.folder,
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def failed(self, what: str) -> SystemExit:
        said = b""
        for one in self.inputs:
            what += f"; {one.topic} ends at {one.ends()}"
        if self.job is not None:
            for process in [self.job.pid, *crash.children(self.job.pid)]:
                subprocess.run(["kill", "-9", str(process)], capture_output=True)
            said = b"" if self.job.stderr.closed else self.job.communicate()[1]
        return SystemExit(f"seed {self.seed} ({self.kind()}) after {self.crashes} kills, "
                          f"{self.broker_crashes} of the broker: {what}\n{said.decode()}")

    def kind(self) -> str:
        read = " and ".join(one.form.name for one in self.inputs)
        return f"{self.name}, {read} to {'files' if self.to_files else self.form.name}"

    def lives(self) -> None:
        if self.job is not None and self.job.poll() is not None:
            raise self.failed(f"the job ended with code {self.job.returncode}")

    def kill(self) -> None:
        self.lives()
        if self.rng.randrange(8) == 0:
            self.job.send_signal(signal.SIGINT)
            _, said = self.job.communicate(timeout=120)
            if self.job.returncode not in (0, 130, -signal.SIGINT):
                raise self.failed(f"stopped, it ends with code {self.job.returncode}: {said.decode()}")
        else:
            crash.kill(self.job, self.rng)
            self.crashes += 1
        self.job = None

    def kill_broker(self) -> None:
        # A broker that dies between the end of a transaction and the marks of that end in the partitions may leave the
        # transaction open for ever, and nobody reads on there.
        for one in self.inputs:
            one.close()
            while any(committed < every for committed, every in one.ends()):
                time.sleep(0.05)
        is_starting = self.job is not None and time.monotonic() - self.started < 3
        self.broker.end()
        time.sleep(self.rng.random() * 2)
        self.broker.start()
        self.broker_crashes += 1
        if is_starting and self.job.poll() == 1:
            # A start without a broker fails soon. Whoever runs waits for the broker.
            said = self.job.communicate()[1]
            if b"whether the broker runs" not in said:
                raise self.failed(f"a start without a broker ends otherwise: {said.decode()}")
            self.start()

    def visible(self) -> list[Rows]:
        """Rows by partition, or all rows of files."""
        if self.to_files:
            paths = sorted((self.folder / "o").glob("part-*"))
            return [[forms.row(line) for path in paths for line in path.read_text().splitlines()]]
        return [[self.form.row(message.value()) for message in of] for of in self.broker.read(self.sink, self.sinks)]

    def places(self, expected: Rows) -> dict[tuple, int]:
        """By row, its place in the order of rows. The rows of a slice of an interval have no order that docs/sql.md tells."""
        if self.name == "interval":
            return {row: row[0] // SLICE for row in expected}
        return {row: number for number, row in enumerate(expected)}

    def wrong(self, found: list[Rows], expected: Rows) -> str:
        """What is wrong with visible rows, which need not be all."""
        numbers = self.places(expected)
        for of, rows in enumerate(found):
            strange = [row for row in rows if row not in numbers]
            if strange:
                return f"partition {of} has {len(strange)} rows that are wrong: {strange[:3]}"
            order = [numbers[row] for row in rows]
            if self.ordered and any(one > other for one, other in zip(order, order[1:])):
                return f"the rows of partition {of} are not in order"
        twice = [row for row, count in collections.Counter(row for rows in found for row in rows).items() if count > 1]
        return f"{len(twice)} rows are there twice: {twice[:3]}" if twice else ""

    def run(self, broker_kills: int) -> None:
        rng, steps = self.rng, self.rng.randrange(5, 12)
        moments = set(rng.sample(range(1, steps), min(broker_kills, steps - 1)))
        self.start()
        for step in range(steps):
            for one in self.inputs:
                one.step(max(1, self.records // steps), self.records)
            if self.job is None:
                self.start()
            time.sleep(rng.choice([0.02, 0.5, 1.5]) * rng.random())
            if step in moments:
                if rng.randrange(2):
                    self.kill()
                self.kill_broker()
                if self.job is None:
                    self.start()
                    time.sleep(rng.random())
            self.kill()
            if rng.randrange(3) == 0:
                # The answer of all input so far has more rows than may be visible.
                so_far = self.answer(self.a.rows, self.b.rows)
                last = max([0, *(row[2] for one in self.inputs for row in one.rows)]) - 3_000
                done = [row for row in so_far if self.name == "stateless" or row[0] <= last]
                found = [[row for row in rows if self.name == "stateless" or row[0] + WIDE <= last]
                         for rows in self.visible()]
                if what := self.wrong(found, done):
                    raise self.failed(what)
        for one in self.inputs:
            one.finish()
        self.start()
        self.ends()

    def ends(self) -> None:
        """All rows come, and no others."""
        expected = self.answer(self.a.rows, self.b.rows)
        if self.name == "stateless":
            # The last records count there.
            expected += [] if 1 % 3 else [(0, 1)] * self.a.partitions
        if len(set(expected)) != len(expected):
            raise SystemExit(f"seed {self.seed}: the answer has a row twice, so nothing would show")
        until = time.monotonic() + 90
        while sum(map(len, found := self.visible())) < len(expected):
            self.lives()
            if time.monotonic() > until:
                there = {row for rows in found for row in rows}
                missing = [row for row in expected if row not in there]
                raise self.failed(self.wrong(found, expected) or f"{len(missing)} of {len(expected)} rows are missing: "
                                  f"{missing[:3]}")
            time.sleep(0.1)
        time.sleep(0.3)
        self.job.send_signal(signal.SIGINT)
        self.job.communicate(timeout=120)
        found = self.visible()
        if what := self.wrong(found, expected):
            raise self.failed(what)
        if sum(map(len, found)) != len(expected):
            raise self.failed("other rows when it is stopped")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100, help="kills of jobs at least")
    parser.add_argument("--brokers", type=int, default=20, help="kills of the broker at least")
    parser.add_argument("--seed", type=int, help="the job of this seed only, whose files stay")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--records", type=int, default=20_000, help="records of a table")
    words = parser.parse_args()
    if why := kafka.missing():
        raise SystemExit(f"error: {why}")
    jobs, kills, broker_kills, began = 0, 0, 0, time.monotonic()
    kinds, registry = collections.Counter(), Registry()
    with tempfile.TemporaryDirectory(prefix="millstream-kafka-crash-") as place:
        broker = kafka.Broker(Path(place))
        broker.start()
        try:
            while kills < words.count or broker_kills < words.brokers:
                seed = words.first + jobs if words.seed is None else words.seed
                folder = Path(place) / str(seed) if words.seed is None else KEPT / str(seed)
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir(parents=True)
                case = Case(seed, broker, registry, folder, words.records)
                case.run(min(2, words.brokers - broker_kills))
                kinds[case.kind()] += 1
                jobs, kills, broker_kills = jobs + 1, kills + case.crashes, broker_kills + case.broker_crashes
                print(f"\r{jobs} jobs, {kills} kills, {broker_kills} of the broker", end="", file=sys.stderr, flush=True)
                if words.seed is not None:
                    break
        finally:
            broker.end()
            registry.stop()
    print(file=sys.stderr)
    print("\n".join(f"{count} of {kind}" for kind, count in sorted(kinds.items())))
    print(f"{jobs} jobs, {kills} kills of jobs and {broker_kills} of the broker, {time.monotonic() - began:.0f} s: every row "
          "once, and in order")


if __name__ == "__main__":
    main()

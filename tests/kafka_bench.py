#!/usr/bin/env python3
"""Measures the connector `kafka` with a broker on this machine (`.ci/setup kafka python`).

    tests/kafka_bench.py rates PROGRAM [--records 5000000] [--turns 15]
        Counts JSON of 100 bytes by key and minute: lines of a file, and the same as a topic of one partition, with one
        worker and with two, by turns. The client's ceiling is the number of the topic's values, which are fetched and
        unpacked, but not decoded. Prints records a second, how many processors the job and the broker kept busy, and ratios
        of the same turn: where both are busy, a second worker has no processor of its own. So there is a query that costs
        more (a regular expression and a hash of each record), beside which the broker is small.
    tests/kafka_bench.py latency PROGRAM [--seconds 60] [--every 10s]
        10,000 records a second, counted by 100 keys in windows of a second, written exactly once; then the same by Flink. The
        latency of a row is the time from its window's end, by the clock that the records have, until a reader with
        `read_committed` has the row. Needs `mvn` and a Java compiler, and fetches Flink into target/flink.
"""

import argparse
import datetime
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "e2e"))

import broker as brokers
from confluent_kafka import Consumer, TopicPartition

HERE = Path(__file__).parent
FLINK = Path(os.environ.get("CARGO_TARGET_DIR", HERE.parent / "target")) / "flink"
COLUMNS = "k INT, ts TIMESTAMP(3), v BIGINT, text STRING, WATERMARK FOR ts AS ts"
COUNTED = """SELECT window_start, window_end, k, COUNT(*) AS n
FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' {unit})) GROUP BY window_start, window_end, k"""
COSTLY = """SELECT window_start, window_end, k, COUNT(*) AS n, MAX(SHA256(text)) AS digest
FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) WHERE REGEXP(text, '^x+[xyz]*x$')
GROUP BY window_start, window_end, k"""
RATE, START_SECONDS = 10_000, 30
TICKS = os.sysconf("SC_CLK_TCK")


def value(number: int, micros: int) -> str:
    """100 bytes of JSON."""
    at = datetime.datetime.fromtimestamp(micros / 1e6, datetime.UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    text = f'{{"k":{number * 7919 % 100},"ts":"{at}","v":{1_000_000 + number},"text":"'
    return text + "x" * (98 - len(text)) + '"}'


def options(of: dict[str, str]) -> str:
    return ", ".join(f"'{name}' = '{text}'" for name, text in of.items())


# --- rates ---------------------------------------------------------------------------------------------------------

def processor_seconds(broker: brokers.Broker) -> tuple[float, float]:
    """Of the jobs that have ended, and of the broker."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    fields = Path(f"/proc/{broker.process.pid}/stat").read_text().rpartition(") ")[2].split()
    return ended.ru_utime + ended.ru_stime, (int(fields[11]) + int(fields[12])) / TICKS


def rates(words: argparse.Namespace, broker: brokers.Broker, folder: Path) -> None:
    lines = folder / "t.ndjson"
    with lines.open("w") as out:
        for number in range(words.records):
            out.write(value(number, 1_700_000_000_000_000 + number * 500) + "\n")
    inputs = {"file": {"connector": "file", "path": str(lines), "format": "ndjson"}}
    for packing in ("none", "lz4"):
        topic = broker.topic(f"t-{packing}")
        broker.fill(topic, (line.rstrip("\n") for line in lines.open()), linger_ms=50, compression_type=packing)
        inputs[f"topic, {packing}"] = {
            "connector": "kafka", "topic": topic, "properties.bootstrap.servers": broker.servers, "format": "json",
            "scan.startup.mode": "earliest-offset", "scan.bounded.mode": "latest-offset"}
    cases = {(name, workers): (COLUMNS, of, COUNTED.format(unit="MINUTE")) for name, of in inputs.items() for workers in (1, 2)}
    for name, of in list(inputs.items())[1:]:
        cases[f"ceiling, {name.removeprefix('topic, ')}", 1] = "v BYTES", of | {"format": "raw"}, "SELECT COUNT(*) FROM t"
    cases |= {("costly, lz4", workers): (COLUMNS, inputs["topic, lz4"], COSTLY) for workers in (1, 2)}
    took: dict[tuple, list[float]] = {case: [] for case in cases}
    busy: dict[tuple, list[tuple[float, float]]] = {case: [] for case in cases}
    answers: dict[str, set[bytes]] = {}
    for turn in range(-1, words.turns):
        for (name, workers), (columns, of, query) in cases.items():
            script = folder / "job.sql"
            script.write_text(f"CREATE TABLE t ({columns}) WITH ({options(of)});\n{query};\n")
            before, began = processor_seconds(broker), time.monotonic()
            done = subprocess.run([words.program, "run", script, "--workers", str(workers), "--format", "csv", "--quiet"],
                                  capture_output=True, check=True)
            seconds = time.monotonic() - began
            if turn >= 0:
                took[name, workers].append(seconds)
                after = processor_seconds(broker)
                busy[name, workers].append(tuple((end - start) / seconds for start, end in zip(before, after, strict=True)))
            answers.setdefault(query, set()).add(done.stdout)
    assert all(len(of) == 1 for of in answers.values()), "the rows differ"
    for (name, workers), seconds in took.items():
        middle, (job, other) = statistics.median(seconds), map(statistics.median, zip(*busy[name, workers], strict=True))
        print(f"{name}, {workers} workers: {words.records / middle / 1e6:.2f} million records/s "
              f"({min(seconds):.2f} to {max(seconds):.2f} s); busy processors: job {job:.2f}, broker {other:.2f}")

    def ratio(what: str, first: tuple, second: tuple) -> None:
        of = [one / other for one, other in zip(took[first], took[second], strict=True)]
        print(f"{what}: {statistics.median(of):.2f} ({min(of):.2f} to {max(of):.2f})")

    for name in list(inputs)[1:]:
        ratio(f"rate of the {name}, to the file's, one worker", ("file", 1), (name, 1))
        ratio(f"rate of the {name}, to the client's ceiling", (name.replace("topic", "ceiling"), 1), (name, 1))
        ratio(f"rate of the {name}, two workers to one", (name, 1), (name, 2))
    ratio("rate of the costly query, two workers to one", ("costly, lz4", 1), ("costly, lz4", 2))
    ratio("rate of the file, two workers to one", ("file", 1), ("file", 2))


# --- latency -------------------------------------------------------------------------------------------------------

class Clicks(threading.Thread):
    """Writes records in their own time until it is stopped."""

    def __init__(self, broker: brokers.Broker, topic: str):
        super().__init__(daemon=True)
        self.producer, self.topic, self.stopped = broker.producer(linger_ms=1), topic, False

    def run(self) -> None:
        began, number = time.time(), 0
        while not self.stopped:
            while number < (time.time() - began) * RATE:
                self.producer.produce(self.topic, value(number, int(time.time() * 1e6)))
                number += 1
            self.producer.poll(0)
            time.sleep(0.001)


def latencies(broker: brokers.Broker, topic: str, seconds: float) -> list[float]:
    """In milliseconds, of all rows that a reader sees in so many seconds, once the job has run for a while."""
    consumer = Consumer({"bootstrap.servers": broker.servers, "group.id": "latency", "isolation.level": "read_committed",
                         "fetch.wait.max.ms": 10})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found, from_then = [], time.time() + START_SECONDS
    while time.time() < from_then + seconds:
        for message in consumer.consume(1000, 0.01):
            assert not message.error(), message.error()
            if time.time() < from_then:
                continue
            ended = datetime.datetime.fromisoformat(json.loads(message.value())["window_end"].replace("Z", ""))
            found.append(1000 * (time.time() - ended.replace(tzinfo=datetime.UTC).timestamp()))
    consumer.close()
    return found


def flink() -> list[str]:
    """The command that runs a script of SQL in Flink."""
    if not (FLINK / "RunSql.class").exists():
        shutil.rmtree(FLINK, ignore_errors=True)
        FLINK.mkdir(parents=True)
        subprocess.run(["mvn", "-B", "-q", "-f", HERE / "kafka/flink/pom.xml", "dependency:copy-dependencies",
                        "-DincludeScope=runtime", f"-DoutputDirectory={FLINK.resolve()}"], check=True)
        subprocess.run(["javac", "-d", FLINK, "-cp", f"{FLINK}/*", HERE / "kafka/flink/RunSql.java"], check=True)
    opened = [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in ("java.lang", "java.util", "java.time")]
    return ["java", "-Xmx1g", *opened, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", f"{FLINK}:{FLINK}/*", "RunSql"]


def latency(words: argparse.Namespace, broker: brokers.Broker, folder: Path) -> None:
    commands = {"millstream": lambda script: [words.program, "run", script, "--quiet", "--checkpoint", folder / "state",
                                              "--every", words.every],
                "flink": lambda script: [*flink(), script, f"execution.checkpointing.interval={words.every}",
                                         "parallelism.default=1", "execution.checkpointing.dir=" + (folder / "flink").as_uri()]}
    middles = {}
    for name, command in commands.items():
        read, written = broker.topic(f"clicks-{name}"), broker.topic(f"counts-{name}")
        common = {"connector": "kafka", "properties.bootstrap.servers": broker.servers, "format": "json"}
        source = common | {"topic": read, "scan.startup.mode": "latest-offset"}
        sink = common | {"topic": written, "sink.delivery-guarantee": "exactly-once",
                         "sink.transactional-id-prefix": name, "properties.transaction.timeout.ms": "600000"}
        script = folder / f"{name}.sql"
        script.write_text(
            f"CREATE TABLE t ({COLUMNS}) WITH ({options(source)});\n"
            f"CREATE TABLE o (window_start TIMESTAMP(3), window_end TIMESTAMP(3), k INT, n BIGINT) WITH ({options(sink)});\n"
            f"INSERT INTO o {COUNTED.format(unit='SECOND')};\n")
        clicks = Clicks(broker, read)
        clicks.start()
        job = subprocess.Popen([str(word) for word in command(script)], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
        found = latencies(broker, written, words.seconds)
        clicks.stopped = True
        running = job.poll() is None
        job.kill()
        said = job.communicate()[1].decode()
        assert running and found, said[-3000:]
        cut = statistics.quantiles(found, n=100)
        middles[name] = (cut[49], cut[98])
        print(f"{name}: {len(found)} rows, median {cut[49]:.1f} ms, 99th percentile {cut[98]:.1f} ms")
    ours, theirs = middles["millstream"], middles["flink"]
    print(f"to Flink's: median 1/{theirs[0] / ours[0]:.0f}, 99th percentile 1/{theirs[1] / ours[1]:.0f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["rates", "latency"])
    parser.add_argument("program", type=Path)
    parser.add_argument("--records", type=int, default=5_000_000)
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--every", default="10s", help="interval of checkpoints, of both")
    words = parser.parse_args()
    words.program = words.program.resolve()
    with tempfile.TemporaryDirectory() as name:
        broker = brokers.Broker(Path(name))
        broker.start()
        try:
            {"rates": rates, "latency": latency}[words.what](words, broker, Path(name))
        finally:
            broker.end()


if __name__ == "__main__":
    main()

"""A broker, a producer at a steady rate, a job from topic to topic; the job is killed twice, and the counts add up.

`make demo-kafka` fetches what is missing, builds the program and runs this. The broker listens on this machine alone,
and leaves nothing behind.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "tests"))
import broker as kafka  # noqa: E402

PROGRAM = sys.argv[1] if len(sys.argv) > 1 else HERE.parent.parent / "target" / "release" / "millstream"
SECONDS, PER_SECOND = 16, 2_000
PAGES = ("/home", "/cart", "/search")


def produce(broker: kafka.Broker, sent: Counter) -> None:
    producer, began = broker.producer(), time.time()
    for n in range(SECONDS * PER_SECOND):
        page = PAGES[n % 7 % 3]
        producer.produce("clicks", json.dumps({"page": page}), partition=n % 2)
        sent[page] += 1
        if n % 100 == 0:
            producer.poll(0)
            time.sleep(max(0.0, began + n / PER_SECOND - time.time()))
    producer.flush(30)
    # Later records close the windows of the earlier ones.
    time.sleep(3)
    for partition in range(2):
        producer.produce("clicks", json.dumps({"page": "/end"}), partition=partition)
    producer.flush(30)


def main() -> None:
    if why := kafka.missing():
        sys.exit(why)
    with tempfile.TemporaryDirectory() as folder:
        broker = kafka.Broker(Path(folder))
        print("==> Starting a broker")
        broker.start()
        try:
            demo(broker, Path(folder))
        finally:
            broker.end()


def demo(broker: kafka.Broker, folder: Path) -> None:
    broker.topic("clicks", 2)
    broker.topic("counts")
    command = [str(PROGRAM), "run", str(HERE / "job.sql"), "--checkpoint", str(folder / "state"), "--every", "2s"]
    environment = os.environ | {"KAFKA": broker.servers}
    print("==>", " ".join(command))
    sent: Counter = Counter()
    producing = threading.Thread(target=produce, args=(broker, sent))
    producing.start()
    for pause in (6, 5):
        job = subprocess.Popen(command, env=environment)
        time.sleep(pause)
        print("==> kill -9, and the same command again", flush=True)
        job.kill()
        job.wait()
    job = subprocess.Popen(command, env=environment)
    producing.join()
    until, counted = time.monotonic() + 60, Counter()
    while counted != sent and time.monotonic() < until:
        time.sleep(0.5)
        rows = [json.loads(value) for value in broker.values("counts")[0]]
        counted = Counter()
        for row in rows:
            counted[row["page"]] += row["n"]
    job.kill()
    job.wait()
    windows = {(row["window_start"], row["page"]) for row in rows}
    print(f"sent:    {dict(sorted(sent.items()))}")
    print(f"counted: {dict(sorted(counted.items()))}, {len(rows)} rows")
    if counted != sent or len(windows) != len(rows):
        sys.exit("error: the counts do not add up")
    print("Each click counts once, and each row is there once.")


if __name__ == "__main__":
    main()

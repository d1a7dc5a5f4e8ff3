"""A broker of Kafka for tests: one process, on this machine alone. `.ci/setup kafka` fetches it."""

import os
import shutil
import signal
import socket
import struct
import subprocess
import time
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

import harness

# MILLSTREAM_KAFKA: the jars of another version.
JARS = Path(os.environ.get("MILLSTREAM_KAFKA", Path(os.environ.get("CARGO_TARGET_DIR", harness.ROOT / "target")) / "kafka"))
START_SECONDS = 90

PROPERTIES = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller},SASL_PLAINTEXT://127.0.0.1:{secured}{listeners}
advertised.listeners=PLAINTEXT://127.0.0.1:{advertised},SASL_PLAINTEXT://127.0.0.1:{secured}{listeners}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT{protocols}
inter.broker.listener.name=PLAINTEXT
log.dirs={data}
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
log.retention.hours=-1
{more}
"""
# With a second listener, which asks for a password.
PASSWORDS = """sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512
listener.name.sasl_plaintext.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule \
required username="admin" password="admin-secret" user_me="my-secret";
listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule \
required;
listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule \
required;
"""


def missing() -> str:
    """Why there is no broker here; empty if there is one."""
    if not shutil.which("java"):
        return "there is no java: .ci/setup kafka"
    if not any(JARS.glob("kafka_2.13-*.jar")):
        return f"there is no broker in {JARS}: .ci/setup kafka"
    return ""


def free_port() -> int:
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """So many ports, no two of them the same: one that is free again may be given again."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class Broker:
    def __init__(self, folder: Path, more: str = "", advertised: int = 0, listeners: dict[str, str] = {}):
        """`advertised`: the port that it tells its clients, if that is another one. `listeners`: more of them, each with
        its protocol."""
        self.folder = folder
        self.port, self.controller, self.secured, *ports = free_ports(3 + len(listeners))
        self.ports = dict(zip(listeners, ports))
        self.process: subprocess.Popen | None = None
        self.client: AdminClient | None = None
        data, self.properties = folder / "log", folder / "server.properties"
        self.properties.write_text(PROPERTIES.format(
            port=self.port, advertised=advertised or self.port, controller=self.controller, data=data, more=PASSWORDS + more,
            secured=self.secured, protocols="".join(f",{name}:{protocol}" for name, protocol in listeners.items()),
            listeners="".join(f",{name}://localhost:{port}" for name, port in self.ports.items())))
        scram = [f"SCRAM-SHA-{bits}=[name=me,password=my-secret]" for bits in (256, 512)]
        self.java("kafka.tools.StorageTool", "format", "-t", "AAAAAAAAQACAAAAAAAAAAA", "-c", self.properties,
                  *(word for one in scram for word in ("--add-scram", one)))

    @property
    def settings(self) -> dict:
        """Of clients. What they log of a broker that a test kills is no news."""
        return {"bootstrap.servers": self.servers, "log_level": 2}

    @property
    def servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    def command(self, name: str, *words: object) -> list[str]:
        return ["java", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
                "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", f"{JARS}/*", name, *map(str, words)]

    def java(self, name: str, *words: object) -> None:
        done = subprocess.run(self.command(name, *words), capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr

    def start(self) -> None:
        out = (self.folder / "broker.out").open("ab")
        self.process = subprocess.Popen(self.command("kafka.Kafka", self.properties), stdout=out, stderr=out,
                                        stdin=subprocess.DEVNULL, start_new_session=True)
        out.close()
        until = time.monotonic() + START_SECONDS
        while not self.answers():
            said = (self.folder / "broker.out").read_text(errors="replace")[-2000:]
            assert self.process.poll() is None and time.monotonic() < until, said
            time.sleep(0.1)

    def answers(self) -> bool:
        """Whether it answers the first question of every client."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), 2) as peer:
                peer.sendall(struct.pack(">ihhih", 10, 18, 0, 7, -1))
                head = peer.recv(10)
                return len(head) == 10 and struct.unpack(">iih", head)[1:] == (7, 0)
        except OSError:
            return False

    def end(self, how: int = signal.SIGKILL) -> None:
        if self.process and self.process.poll() is None:
            self.process.send_signal(how)
            self.process.wait(60)

    # --- what tests do with it -----------------------------------------------------------------

    def admin(self) -> AdminClient:
        # It must outlive what it is asked for.
        if self.client is None:
            self.client = AdminClient(self.settings)
        return self.client

    def topic(self, name: str, partitions: int = 1, **config: str) -> str:
        settings = {key.replace("_", "."): value for key, value in config.items()}
        new = NewTopic(name, partitions, 1, config=settings)
        self.admin().create_topics([new])[name].result(30)
        # The broker learns of it from its controller.
        while self.admin().list_topics(name, 10).topics[name].error is not None:
            time.sleep(0.02)
        return name

    def grow(self, name: str, partitions: int) -> None:
        self.admin().create_partitions([NewPartitions(name, partitions)])[name].result(30)

    def delete(self, name: str) -> None:
        self.admin().delete_topics([name])[name].result(30)

    def producer(self, **config: object) -> Producer:
        settings = {key.replace("_", "."): value for key, value in config.items()}
        return Producer(self.settings | {"linger.ms": 5} | settings)

    def fill(self, topic: str, values, partition: int = 0, key=None, **config: object) -> None:
        producer = self.producer(**config)
        for value in values:
            while True:
                try:
                    producer.produce(topic, value, key=key, partition=partition)
                    break
                except BufferError:
                    producer.poll(0.1)
        assert producer.flush(60) == 0

    def read(self, topic: str, partitions: int = 1, seconds: float = 30) -> list[list]:
        """All committed messages, by partition."""
        # An answer that waits has always more where transactions never pause, and no end is told.
        consumer = Consumer(self.settings | {"group.id": "reader", "enable.auto.commit": False, "auto.offset.reset": "earliest",
                                             "isolation.level": "read_committed", "enable.partition.eof": True,
                                             "fetch.wait.max.ms": 10})
        consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        found, ended, until = [[] for _ in range(partitions)], set(), time.monotonic() + seconds
        while len(ended) < partitions:
            assert time.monotonic() < until, f"only {ended} ended"
            message = consumer.poll(1)
            if message is None:
                continue
            if not message.error():
                found[message.partition()].append(message)
            elif message.error().code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
        consumer.close()
        return found

    def values(self, topic: str, partitions: int = 1) -> list[list[str]]:
        return [[message.value().decode() for message in of] for of in self.read(topic, partitions)]

    def commit(self, group: str, topic: str, offset: int, partition: int = 0) -> None:
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": group})
        consumer.commit(offsets=[TopicPartition(topic, partition, offset)], asynchronous=False)
        consumer.close()

    def committed(self, group: str, topic: str, partition: int = 0) -> int:
        consumer = Consumer(self.settings | {"group.id": group})
        found = consumer.committed([TopicPartition(topic, partition)], 30)[0].offset
        consumer.close()
        return found

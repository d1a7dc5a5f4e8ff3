"""Encrypted connections to a broker of Kafka, with certificates that the test makes."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

import broker as kafka
import harness
from conftest import cannot_run

LISTENERS = {"TLS": "SSL", "USERS": "SASL_SSL", "KNOWN": "SSL"}
PROPERTIES = """
ssl.keystore.type=PEM
ssl.keystore.location={folder}/server.pem
ssl.truststore.type=PEM
ssl.truststore.location={folder}/ca.pem
listener.name.known.ssl.client.auth=required
listener.name.users.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required user_me="my-secret";
listener.name.users.scram-sha-256.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.users.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
"""


def openssl(folder: Path, *words: str) -> None:
    done = subprocess.run(["openssl", *words], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def authority(folder: Path, name: str) -> None:
    openssl(folder, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{name}.key", "-out", f"{name}.pem",
            "-subj", f"/CN={name}", "-days", "2")


def certificate(folder: Path, authority: str, name: str, host: str) -> None:
    """A certificate and its key, in one file."""
    (folder / "names").write_text(f"subjectAltName=DNS:{host}\n")
    openssl(folder, "req", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj",
            f"/CN={name}")
    openssl(folder, "x509", "-req", "-in", f"{name}.csr", "-CA", f"{authority}.pem", "-CAkey", f"{authority}.key",
            "-CAcreateserial", "-out", f"{name}.crt", "-days", "2", "-extfile", "names")
    (folder / f"{name}.pem").write_text((folder / f"{name}.key").read_text() + (folder / f"{name}.crt").read_text())


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    if why := kafka.missing() or ("" if shutil.which("openssl") else "there is no openssl: .ci/setup kafka"):
        cannot_run(why)
    folder = tmp_path_factory.mktemp("certificates")
    authority(folder, "ca")
    authority(folder, "other")
    certificate(folder, "ca", "server", "localhost")
    certificate(folder, "ca", "client", "client")
    certificate(folder, "other", "stranger", "stranger")
    broker = kafka.Broker(tmp_path_factory.mktemp("broker"), PROPERTIES.format(folder=folder), listeners=LISTENERS)
    broker.certificates = folder
    broker.start()
    broker.topic("t")
    broker.fill("t", [json.dumps({"v": n}) for n in range(100)])
    yield broker
    broker.end()


def table(broker, listener: str, more: dict[str, str], host: str = "localhost") -> str:
    usual = {"connector": "kafka", "topic": "t", "format": "json", "scan.startup.mode": "earliest-offset",
             "scan.bounded.mode": "latest-offset", "properties.bootstrap.servers": f"{host}:{broker.ports[listener]}",
             "properties.security.protocol": LISTENERS[listener],
             "properties.ssl.truststore.location": f"{broker.certificates}/ca.pem"}
    listed = ", ".join(f"'{key}' = '{value}'" for key, value in (usual | more).items() if value)
    return f"CREATE TABLE t (v INT) WITH ({listed});\nSELECT SUM(v) AS v FROM t;\n"


def user(mechanism: str, password: str) -> dict[str, str]:
    return {"properties.sasl.mechanism": mechanism, "properties.sasl.jaas.config":
            f"org.apache.kafka.common.security.scram.ScramLoginModule required username=\"me\" password=\"{password}\";"}


def own(broker, name: str) -> dict[str, str]:
    return {"properties.ssl.keystore.location": f"{broker.certificates}/{name}.pem", "properties.ssl.keystore.type": "PEM"}


def test_encrypted(broker, script):
    assert script.run(table(broker, "TLS", {})).stdout == b"v\n4950\n"
    text = (broker.certificates / "ca.pem").read_text()
    inline = {"properties.ssl.truststore.location": "", "properties.ssl.truststore.certificates": text}
    assert script.run(table(broker, "TLS", inline)).stdout == b"v\n4950\n"


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_encrypted_with_a_password(broker, script, mechanism):
    assert script.run(table(broker, "USERS", user(mechanism, "my-secret"))).stdout == b"v\n4950\n"
    result = harness.run("run", script.write(table(broker, "USERS", user(mechanism, "wrong-secret"))))
    assert result.code == 1 and "user 'me' is refused" in result.stderr, result.stderr
    assert "wrong-secret" not in result.stderr


def test_a_certificate_of_ours(broker, script):
    assert script.run(table(broker, "KNOWN", own(broker, "client"))).stdout == b"v\n4950\n"
    parts = {"properties.ssl.keystore.certificate.chain": (broker.certificates / "client.crt").read_text(),
             "properties.ssl.keystore.key": (broker.certificates / "client.key").read_text()}
    assert script.run(table(broker, "KNOWN", parts)).stdout == b"v\n4950\n"


def test_rows_are_written_encrypted(broker, script, tmp_path):
    broker.topic("written")
    more = {"topic": "written", "scan.bounded.mode": "", "scan.startup.mode": "", "sink.delivery-guarantee": "exactly-once",
            "sink.transactional-id-prefix": "written"}
    text = table(broker, "TLS", more).replace("SELECT SUM(v) AS v FROM t", "INSERT INTO t VALUES (1), (2)")
    result = harness.run("run", script.write(text), "--checkpoint", tmp_path / "state")
    assert result.code == 0, result.stderr
    assert sorted(broker.values("written")[0]) == ['{"v":1}', '{"v":2}']


def mistakes(broker) -> dict[str, tuple]:
    return {
        "authority": ("TLS", {"properties.ssl.truststore.location": f"{broker.certificates}/other.pem"}, "localhost",
                      ["UnknownIssuer", "truststore.location"]),
        "authority of the system": ("TLS", {"properties.ssl.truststore.location": ""}, "localhost",
                                    ["UnknownIssuer", "truststore.location"]),
        "host": ("TLS", {}, "127.0.0.1", ["127.0.0.1", "not valid for name", "bootstrap.servers"]),
        "no certificate": ("KNOWN", {}, "localhost", ["ertificate", "keystore.location"]),
        "certificate of a stranger": ("KNOWN", own(broker, "stranger"), "localhost", ["ertificate", "keystore.location"]),
        "no encryption": ("TLS", {"properties.security.protocol": "PLAINTEXT"}, "localhost", ["security.protocol"]),
        "no such file": ("TLS", {"properties.ssl.truststore.location": "/no/such.pem"}, "localhost", ["/no/such.pem"]),
        "no certificate in the file": ("TLS", {"properties.ssl.truststore.location": f"{broker.certificates}/ca.key"},
                                       "localhost", ["no certificate"]),
        "a store of Java's": ("TLS", {"properties.ssl.truststore.location": "store.jks"}, "localhost", ["keytool"]),
        "a key with a password": ("KNOWN", own(broker, "client") | {"properties.ssl.key.password": "x"}, "localhost",
                                  ["openssl"]),
    }


@pytest.mark.parametrize("number", range(10))
def test_mistakes_are_named(broker, script, number):
    name, (listener, more, host, said) = list(mistakes(broker).items())[number]
    result = harness.run("run", script.write(table(broker, listener, more, host)))
    assert result.code != 0, name
    for one in said:
        assert one in result.stderr, f"{name}: {result.stderr}"


def test_encryption_where_there_is_none(broker, script):
    text = table(broker, "TLS", {}).replace(f"localhost:{broker.ports['TLS']}", broker.servers)
    result = harness.run("run", script.write(text))
    assert result.code != 0 and "security.protocol" in result.stderr, result.stderr

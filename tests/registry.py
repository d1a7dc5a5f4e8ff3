"""Registries of schemas for tests: a double of Confluent's, for the requests that matter, and Apicurio's."""

import base64
import json
import os
import subprocess
import sys
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import harness
from broker import free_port


class Registry:
    """Schemas by number and subject. Switches: `password` that is asked for, `fault` (a status), `delay` (seconds)."""

    def __init__(self, password: str = "", token: str = ""):
        self.schemas: list[str] = []
        self.subjects: dict[str, list[int]] = {}
        self.requests: list[str] = []
        self.password, self.token = password, token
        self.fault, self.delay = 0, 0.0
        # The first number is one of two bytes.
        self.first = 300
        self.port = 0
        self.server: ThreadingHTTPServer | None = None
        self.start()

    def start(self) -> None:
        registry = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length) or b"{}")
                registry.requests.append(f"{self.command} {self.path}")
                time.sleep(registry.delay)
                status, answer = registry.respond(self.command, self.path, self.headers.get("Authorization"), body)
                data = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = answer

            def log_message(self, *_: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            def handle_error(self, *about: object) -> None:
                # A client that is killed is no news.
                if not isinstance(sys.exc_info()[1], ConnectionError):
                    super().handle_error(*about)

        # Again at the same port, once it has one.
        self.server = Server(("127.0.0.1", self.port), Handler)
        self.port = self.server.server_port
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        if self.server:
            self.server.shutdown()
            self.server.server_close()
            self.server = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def respond(self, method: str, path: str, authorization: str | None, body: dict) -> tuple[int, object]:
        expected = f"Bearer {self.token}" if self.token else ""
        if self.password:
            expected = "Basic " + base64.b64encode(self.password.encode()).decode()
        if expected and authorization != expected:
            return 401, {"error_code": 401, "message": "Unauthorized"}
        if self.fault:
            return self.fault, {"error_code": self.fault, "message": "switched"}
        match method, path.strip("/").split("/"):
            case "GET", ["schemas", "types"]:
                return 200, ["JSON", "AVRO"]
            case "GET", ["schemas", "ids", number]:
                at = int(number) - self.first
                if 0 <= at < len(self.schemas):
                    return 200, {"schema": self.schemas[at]}
                return 404, {"error_code": 40403, "message": f"Schema {number} not found"}
            case "GET", ["subjects"]:
                return 200, list(self.subjects)
            case "GET", ["subjects", subject, "versions"]:
                return 200, list(range(1, len(self.subjects.get(subject, [])) + 1))
            case "GET", ["config"]:
                return 200, {"compatibilityLevel": "NONE"}
            case "POST", ["subjects", subject, "versions"]:
                return 200, {"id": self.register(subject, body["schema"])}
            case "POST", ["subjects", subject]:
                of = [number for number in self.subjects.get(subject, [])
                      if same(self.schemas[number - self.first], body["schema"])]
                if of:
                    return 200, {"id": of[0], "subject": subject, "version": 1, "schema": body["schema"]}
                return 404, {"error_code": 40403, "message": "Schema not found"}
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def schema(self, number: int) -> str:
        return self.schemas[number - self.first]

    def register(self, subject: str, schema: str) -> int:
        known = [at for at, text in enumerate(self.schemas) if same(text, schema)]
        if not known:
            self.schemas.append(schema)
        number = self.first + (known[0] if known else len(self.schemas) - 1)
        numbers = self.subjects.setdefault(subject, [])
        if number not in numbers:
            numbers.append(number)
        return number


def same(one: str, other: str) -> bool:
    return json.loads(one) == json.loads(other)


APICURIO = Path(os.environ.get("CARGO_TARGET_DIR", harness.ROOT / "target")) / "apicurio"


class Apicurio:
    """A registry that is not ours, with its schemas in memory. `.ci/setup apicurio` fetches it."""

    def __init__(self, folder: Path):
        self.port = free_port()
        jar, = APICURIO.glob("apicurio-registry-app-*-runner.jar")
        words = ["java", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dquarkus.http.host=127.0.0.1",
                 f"-Dquarkus.http.port={self.port}", "-jar", str(jar)]
        self.log = folder / "apicurio.out"
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(words, cwd=APICURIO, stdout=out, stderr=out, stdin=subprocess.DEVNULL,
                                            start_new_session=True)
        until = time.monotonic() + 120
        while not self.answers():
            assert self.process.poll() is None and time.monotonic() < until, self.log.read_text()[-2000:]
            time.sleep(0.2)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/apis/ccompat/v7"

    def answers(self) -> bool:
        try:
            return isinstance(self.get("subjects"), list)
        except OSError:
            return False

    def get(self, path: str) -> object:
        with urllib.request.urlopen(f"{self.url}/{path}", timeout=10) as answer:
            return json.load(answer)

    def schema(self, number: int) -> str:
        return self.get(f"schemas/ids/{number}")["schema"]

    def end(self) -> None:
        self.process.kill()
        self.process.wait(60)

"""A service that speaks S3's protocol (moto), behind a proxy that loses answers, refuses and delays."""

import contextlib
import http.client
import socket
import subprocess
import sys
import threading
import time
import urllib.request
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from jobs import PATIENCE_SECONDS

NAME = "rack"
# Nobody else may delete. The service does not look at the signature.
OWNER = {"Authorization": "AWS4-HMAC-SHA256 Credential=key/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"}


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Bucket:
    """A bucket. `fault` is asked for each request (method, path with query): None, or what goes wrong: a status, "lost"
    (the request is carried out and its answer lost) or "late" (the answer comes after a second)."""

    def __init__(self):
        self.port = free_port()
        self.server = subprocess.Popen([sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)],
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.fault: Callable[[str, str], object] = lambda method, path: None
        self.faults = 0
        self.proxy = ThreadingHTTPServer(("127.0.0.1", 0), self.handler())
        threading.Thread(target=self.proxy.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.proxy.server_address[1]}"
        self.environment = {"AWS_ENDPOINT_URL": self.url, "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret",
                            "AWS_REGION": "us-east-1"}
        until = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                self.request("PUT", f"/{NAME}")
                return
            except OSError:
                assert time.monotonic() < until and self.server.poll() is None, "moto does not start"
                time.sleep(0.1)

    def handler(self):
        bucket = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one(self):
                length = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(length)
                fault = bucket.fault(self.command, self.path)
                bucket.faults += fault is not None
                if isinstance(fault, int):
                    self.send_response(fault)
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                to = http.client.HTTPConnection("127.0.0.1", bucket.port, timeout=PATIENCE_SECONDS)
                to.request(self.command, self.path, body, dict(self.headers))
                answer = to.getresponse()
                content = answer.read()
                to.close()
                if fault == "lost":
                    self.close_connection = True
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                if fault == "late":
                    time.sleep(1)
                self.send_response(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() not in ("transfer-encoding", "connection", "content-length", "server", "date"):
                        self.send_header(name, value)
                length = answer.getheader("Content-Length") if self.command == "HEAD" else str(len(content))
                self.send_header("Content-Length", length or "0")
                self.end_headers()
                self.wfile.write(content)

            def handle(self):
                # A program that is killed does not wait for its answer.
                with contextlib.suppress(ConnectionError):
                    super().handle()

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_one

            def log_message(self, *words):
                pass

        return Handler

    def request(self, method: str, path: str) -> bytes:
        """Past the proxy."""
        asked = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", method=method, headers=OWNER)
        with urllib.request.urlopen(asked, timeout=PATIENCE_SECONDS) as answer:
            return answer.read()

    def keys(self, prefix: str) -> list[str]:
        listed = ElementTree.fromstring(self.request("GET", f"/{NAME}?list-type=2&max-keys=1000&prefix={prefix}"))
        return [key.text for key in listed.iter() if key.tag.endswith("}Key")]

    def uploads(self) -> int:
        """Uploads that are neither complete nor given up."""
        listed = ElementTree.fromstring(self.request("GET", f"/{NAME}?uploads"))
        return sum(part.tag.endswith("}Upload") for part in listed.iter())

    def read(self, key: str) -> bytes:
        return self.request("GET", f"/{NAME}/{key}")

    def close(self) -> None:
        self.proxy.shutdown()
        self.server.kill()
        self.server.wait()

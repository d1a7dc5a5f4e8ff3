"""A proxy between clients and a broker that makes faults: it holds, drops and changes requests and responses of some kinds.

Clients come through it if the broker tells them the proxy's address. Only what has the client id of our jobs is meddled with,
so that librdkafka can be used beside.
"""

import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

PRODUCE, FETCH, METADATA, OFFSET_COMMIT, FIND_COORDINATOR, API_VERSIONS = 0, 1, 3, 8, 10, 18
INIT_PRODUCER_ID, ADD_PARTITIONS, END_TXN, TXN_OFFSET_COMMIT = 22, 24, 26, 28
# The versions of responses that a changed error code is made for: their layout has variable lengths.
NOT_LEADER, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, MESSAGE_TOO_LARGE, TRANSACTION_ABORTABLE = 6, 74, 75, 10, 120
CLIENT = b"millstream"


@dataclass
class Rule:
    """What happens to requests of a kind, as often as `left` says."""
    api: int
    left: int
    # What becomes of a request's frame, before it reaches the broker, and of the response's. `None`: the connection ends.
    request: Callable[[bytes], bytes | None] = lambda frame: frame
    response: Callable[[bytes], bytes | None] = lambda frame: frame


def frame_of(peer: socket.socket) -> bytes | None:
    def read(count: int) -> bytes | None:
        found = b""
        while len(found) < count:
            more = peer.recv(count - len(found))
            if not more:
                return None
            found += more
        return found

    length = read(4)
    return length and read(struct.unpack(">i", length)[0])


class Proxy:
    def __init__(self, port: int, target: int):
        self.port, self.target, self.rules, self.lock = port, target, [], threading.Lock()
        # Kinds of requests that passed, in order.
        self.seen: list[int] = []
        self.listener = socket.create_server(("127.0.0.1", port))
        threading.Thread(target=self.accept, daemon=True).start()

    def on(self, api: int, count: int = 1, **what: Callable) -> Rule:
        rule = Rule(api, count, **what)
        with self.lock:
            self.rules.append(rule)
        return rule

    def clear(self) -> None:
        with self.lock:
            self.rules.clear()
            self.seen.clear()

    def count(self, api: int) -> int:
        with self.lock:
            return self.seen.count(api)

    def rule(self, frame: bytes) -> Rule | None:
        """The rule of a request, if there is one left."""
        api, _, _, length = struct.unpack(">hhih", frame[:10])
        if frame[10:10 + max(length, 0)] != CLIENT:
            return None
        with self.lock:
            self.seen.append(api)
            for rule in self.rules:
                if rule.api == api and rule.left > 0:
                    rule.left -= 1
                    return rule
        return None

    def accept(self) -> None:
        while True:
            try:
                client = self.listener.accept()[0]
            except OSError:
                return
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client: socket.socket) -> None:
        """One request after the other: a client of ours sends no second one before the response; librdkafka does, and
        waits."""
        try:
            with client, socket.create_connection(("127.0.0.1", self.target), 10) as broker:
                broker.settimeout(120)
                while (request := frame_of(client)) is not None:
                    rule = self.rule(request)
                    if rule:
                        request = rule.request(request)
                        if request is None:
                            return
                    broker.sendall(struct.pack(">i", len(request)) + request)
                    response = frame_of(broker)
                    if response is None:
                        return
                    whole = struct.pack(">i", len(response)) + response
                    if rule:
                        changed = rule.response(response)
                        if changed is None:
                            # In the middle of the response.
                            client.sendall(whole[:len(whole) // 2])
                            return
                        whole = struct.pack(">i", len(changed)) + changed
                    client.sendall(whole)
        except OSError:
            pass

    def end(self) -> None:
        self.listener.close()


def cut(_: bytes) -> None:
    """The connection ends: before the broker has the request, or in the middle of the response."""
    return None


def late(seconds: float) -> Callable[[bytes], bytes]:
    def wait(frame: bytes) -> bytes:
        time.sleep(seconds)
        return frame
    return wait


def with_code(offset: int, code: int) -> Callable[[bytes], bytes]:
    """The response with this error code at this offset."""
    def change(frame: bytes) -> bytes:
        return frame[:offset] + struct.pack(">h", code) + frame[offset + 2:]
    return change


# Offsets of the first error code. Responses begin with four bytes of correlation and one of tags; four more are the time of
# throttling.

def end_txn(code: int) -> Callable[[bytes], bytes]:
    return with_code(9, code)


def produced(topic: str, code: int) -> Callable[[bytes], bytes]:
    """Of one topic and one partition: counts, the name, the partition's number."""
    return with_code(5 + 1 + 1 + len(topic) + 1 + 4, code)


def fetched(code: int) -> Callable[[bytes], bytes]:
    """Of one topic, by its identity: error and session, counts, identity, number. Without records, as an error is."""
    def change(frame: bytes) -> bytes:
        at = 9 + 2 + 4 + 1 + 16 + 1 + 4
        return with_code(at, code)(frame) if len(frame) > at + 2 else frame
    return change

"""A running job that tests ask over its local socket: the fixtures `start` and `place` belong to it."""

import json
import subprocess

import harness
from conftest import generated
from jobs import PATIENCE_SECONDS, wait_until

WINDOWS = """SELECT window_start, k, COUNT(*) AS n
FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '1' SECOND))
GROUP BY window_start, window_end, k;
"""
# Windows of an hour, of which none is complete soon.
LONG_WINDOWS = WINDOWS.replace("'1' SECOND", "'1' HOUR")
LIVE = generated(per_second=20_000, more=", 'splits' = '2'")


def ask(place, *words: object) -> subprocess.CompletedProcess:
    """Runs `millstream words…` beside the job."""
    return subprocess.run([harness.program(), *map(str, words)], env=place, capture_output=True, text=True,
                          timeout=PATIENCE_SECONDS)


def report(place) -> dict | None:
    """What the one job tells, if it is there."""
    answer = ask(place, "why", "--json")
    return json.loads(answer.stdout) if answer.returncode == 0 else None


def wait_for_phase(place, phase: str) -> dict:
    found = {}

    def in_phase() -> bool:
        found.update(report(place) or {})
        return found.get("phase") == phase

    wait_until(f"phase {phase}", in_phase)
    return found

"""`millstream bench shuffle`: every design moves the right tuples, in as many messages and requests as it should."""

import json
import subprocess
import sys

import harness
import pytest
from conftest import cannot_run

# Queue pairs of a node's sending half, for two nodes of two threads each (the paper's table 1).
QUEUE_PAIRS = {"MEMQ": 4, "SEMQ": 2, "MESQ": 2, "SESQ": 1}
DESIGNS = ["MEMQ/SR", "SEMQ/SR", "MESQ/SR", "SESQ/SR", "MEMQ/RD", "SEMQ/RD", "MEMQ/WR", "SEMQ/WR",
           "MEMQ/WR:messages", "SEMQ/WR:messages", "MEMQ/WR:buffers", "SEMQ/WR:buffers"]


def shuffle(*words: object):
    return harness.run("bench", "shuffle", *words, stats=False)


@pytest.mark.parametrize("design", DESIGNS)
def test_every_design_moves_all_tuples(design):
    broadcast = design.startswith("SE")
    result = shuffle("--design", design, "--pattern", "broadcast" if broadcast else "repartition", "--threads", 2,
                     "--message-bytes", 1600, "--tuples", 5000, "--buffers", "fixed:3" if broadcast else "adaptive",
                     "--compute-us", 0.5, "--json")
    assert result.code == 0, result.stderr
    found = json.loads(result.stdout)
    assert (found["bench"], found["design"], found["processes"], found["ok"]) == ("shuffle", design, 2, True)
    assert {"command", "date", "machine"} <= set(found) and found["mrec_per_s"] > 0
    sender, receiver = found["sender"], found["receiver"]
    # Two processes of 5000 tuples of 16 bytes, each to one process or to both.
    assert sender["bytes"] == receiver["bytes"] == 2 * 5000 * 16 * (2 if broadcast else 1)
    assert sender["messages"] == receiver["messages"] >= sender["bytes"] / 1600
    assert sender["queue_pairs"] == receiver["queue_pairs"] == 2 * QUEUE_PAIRS[design[:4]]
    requests = {"SR": "datagrams" if "SQ" in design else "sends", "RD": "writes", "WR": "writes"}[design[5:7]]
    assert sender[requests] >= sender["messages"]
    assert (receiver["reads"] > 0) == (design[5:7] == "RD")
    assert (sender["immediates"] >= sender["messages"]) == design.endswith("/WR")


def test_the_text_says_what_was_measured():
    result = shuffle("--design", "SEMQ/SR", "--tuples", 1000, "--processes", 3)
    assert result.code == 0, result.stderr
    text = result.stdout.decode()
    for part in ("shuffle SEMQ/SR, repartition, 3 processes of 1 thread", "million tuples/s", "answer right",
                 # Three processes, each with a queue pair for each of three.
                 "9 queue pairs"):
        assert part in text, text


@pytest.mark.parametrize("words, says", [
    ([], "the workload 'shuffle' needs a --design\n  help: use one of MEMQ/SR, SEMQ/SR, MESQ/SR"),
    (["--design", "SEMQ/WS"], "there is no design 'SEMQ/WS'\n  help: did you mean 'SEMQ/"),
    (["--design", "fastest"], "use one of MEMQ/SR"),
    (["--design", "SEMQ/SR", "--pattern", "brodcast"], "broadcast"),
    (["--design", "SEMQ/SR", "--buffers", "many"], "--buffers 'many' is no number of buffers\n  help: use fixed:K"),
    (["--design", "SEMQ/SR", "--buffers", "fixed:1"],
     "--credit-every cannot be 2: a sender that has 1 buffer waits for ever"),
    (["--design", "SEMQ/SR", "--buffers", "fixed:600000", "--message-bytes", "16"],
     "--buffers cannot be 600000: an endpoint has at most 1048576 buffers, so of 2 peers each has at most 524288"),
    (["--design", "SEMQ/SR", "--buffers", "adaptive:4:2"], "--buffers cannot be 4"),
    # Three entries of a queue for each, and 40.
    (["--design", "SEMQ/WR", "--buffers", "fixed:6000", "--message-bytes", "16"],
     "--buffers cannot be 6000: so many buffers for each peer need 18040 entries of a queue, and this fabric has at most 16384"),
    (["--design", "SEMQ/SR", "--credit-every", "0"], "--credit-every cannot be 0: credit is for a message or more"),
    (["--design", "SEMQ/SR", "--credit-every", "-1"], "invalid value '-1'"),
    (["--design", "SEMQ/SR", "--message-bytes", "100"], "--message-bytes cannot be 100: a tuple has 16 bytes"),
    (["--design", "MESQ/SR", "--message-bytes", str(1 << 20)],
     "--message-bytes cannot be 1048576: a datagram, beside its header of 16, has 1 to 4080 bytes on this fabric"),
    (["--design", "SEMQ/SR", "--message-bytes", str(1 << 62)], "a message has 1 to "),
    (["--design", "SEMQ/RD", "--message-bytes", str(1 << 24), "--buffers", "fixed:5000"], "use fewer --buffers"),
    (["--design", "SEMQ/SR", "--compute-us", "NaN"], "--compute-us: 0 to a million microseconds are possible, not NaN"),
    (["--design", "SEMQ/SR", "--processes", "65"], "65 is not in 1..=64"),
    (["--design", "SEMQ/SR", "--threads", "0"], "0 is not in 1..=256"),
    (["--design", "SEMQ/SR", "--tuples", "0"], "0 is not in"),
    (["--design", "SEMQ/SR", "--records", "5"], "--records does not go with the workload 'shuffle'"),
    (["--design", "SEMQ/SR", "--workers", "2"], "it has --threads"),
    (["--design", "SEMQ/SR", "--set", "memory=1GB"], "--set does not go with the workload 'shuffle'"),
    (["--design", "SEMQ/SR", "--fabric", "tcp"], "its processes share memory"),
    (["--design", "SEMQ/SR", "--mib", "5"], "--mib does not go with the workload 'shuffle'"),
])
def test_impossible_shuffles_are_refused(words, says):
    result = shuffle(*words)
    assert (result.code, result.stdout) == (2, b""), result.stderr
    assert says in result.stderr, result.stderr


def test_other_workloads_refuse_the_options_of_shuffles():
    for workload in ("ysb", "channel", "latency", "ingest", "nexmark-q0"):
        result = harness.run("bench", workload, "--tuples", 5, stats=False)
        assert result.code == 2, result.stderr
        assert f"--tuples does not go with the workload '{workload}'" in result.stderr, result.stderr
        assert "it belongs to the workload `shuffle`" in result.stderr


def test_sockets_move_the_same_tuples():
    script = harness.ROOT / "tests" / "shuffle_baselines.py"
    done = subprocess.run([sys.executable, str(script), "2", "--tuples", "1000", "--against", "unix,tcp", "--designs", "SEMQ/WR",
                           "--compute-us", "1", "--depths", "2"], capture_output=True, text=True,
                          timeout=harness.TIMEOUT_SECONDS)
    if "No such file or directory: 'cc'" in done.stderr:
        cannot_run("there is no C compiler: `.ci/setup cc` installs one")
    assert done.returncode == 0, done.stderr
    for part in ("SEMQ/WR to it: ", "best against unix: SEMQ/WR, ", "best against tcp: SEMQ/WR, ", "lowest of all: "):
        assert part in done.stdout, done.stdout

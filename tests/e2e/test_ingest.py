"""`millstream-lab bench ingest`: records come from other processes, and the job's answer counts each of them once."""

import json

import harness
import pytest


def measured(*words: object) -> dict:
    result = harness.bench("ingest", "--records", 30_000, "--pairs", 1, *words, "--json")
    assert result.code == 0, result.stderr
    said = json.loads(result.stdout)
    assert said["ok"] and said["bench"] == "ingest" and said["pairs"] == 1, said
    for cell in said["cells"]:
        assert cell["records"] == 30_000 and cell["ratio"] > 0, cell
        assert cell["batch_rows"] * 16 < cell["segment"] < cell["batch_rows"] * 16 + 1024, cell
    return said


@pytest.mark.parametrize("transport, limit", [("shm", "channel"), ("tcp", "socket")])
@pytest.mark.parametrize("query", ["pass", "ro"])
def test_every_record_of_two_producers_is_counted(transport, limit, query):
    said = measured("--transport", transport, "--producers", 2, "--segment", 16384, "--query", query, "--keys", 500)
    assert said["limit"] == limit and said["producers"] == 2 and said["query"] == query, said
    [cell] = said["cells"]
    latency = cell["latency"]
    assert latency["query"] == "pass" and len(cell["relations"]) == (query == "pass") + (transport == "shm"), cell
    assert latency["batches"] >= 100 and 0 < latency["p50_us"] <= latency["p99_us"] <= latency["max_us"], latency


def test_lengths_of_segments_are_measured_in_turn():
    said = measured("--workers", 1, "--load", 0)
    assert [cell["segment"] for cell in said["cells"]] == [4096 << power for power in range(9)]
    assert all(cell["latency"] is None for cell in said["cells"])


@pytest.mark.parametrize("exchange", ["late-merge", "repartition"])
def test_skewed_keys_are_exchanged_or_merged(exchange):
    said = measured("--segment", 65536, "--query", "ro", "--workers", 2, "--exchange", exchange, "--zipf", 1,
                    "--keys", 1000, "--load", 0)
    assert (said["zipf"], said["exchange"]) == (1, exchange)


@pytest.mark.parametrize("words, message", [
    (["ingest", "--format", "csv"], "it belongs to the workload `files`"),
    (["ingest", "--credits", 4], "it belongs to the workload `channel`"),
    (["ingest", "--processes", 2], "does not go with --processes 2"),
    (["ingest", "--load", 3], "--load has to be 0 to 2"),
    (["ro", "--records", 1000, "--producers", 2], "it belongs to the workload `ingest`"),
    (["channel", "--segment", 4096], "it belongs to the workload `ingest`"),
])
def test_what_makes_no_sense_is_refused(words, message):
    result = harness.bench(*words)
    assert result.code == 2 and message in result.stderr, result.stderr


def test_a_producer_is_started_by_the_benchmark_alone():
    result = harness.run("produce", "{}", stats=False, binary=harness.laboratory())
    assert result.code == 2 and "started by `millstream-lab bench ingest`" in result.stderr, result.stderr

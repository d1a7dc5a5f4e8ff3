"""`millstream fabric` and `millstream-lab bench channel`: what they print, and that the moved data are checked."""

import json

import harness
import pytest


def millstream(*words: object):
    return harness.run(*words, stats=False)


def test_fabrics_are_listed_with_their_limits():
    result = millstream("fabric")
    assert result.code == 0, result.stderr
    lines = result.stdout.decode().splitlines()
    for start in ("shm: available (", "tcp: available (", "sim: available (", "verbs: "):
        assert any(line.startswith(start) for line in lines), (start, lines)
    assert sum("longest message" in line for line in lines) >= 3


@pytest.mark.parametrize("fabric", ["shm", "tcp"])
@pytest.mark.parametrize("notification", ["footer", "immediate"])
def test_a_channel_beside_its_limit(fabric, notification):
    result = harness.bench("channel", "--fabric", fabric, "--slot-bytes", 16384, "--credits", 4,
                           "--pairs", 1, "--mib", 4, "--notification", notification, "--json")
    assert result.code == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["ok"] is True and found["fabric"] == fabric
    (cell,) = found["cells"]
    assert (cell["slot_bytes"], cell["credits"]) == (16384, 4)
    # 4 MiB in slots of 16 KiB less a footer of 16 bytes.
    assert cell["messages"] == (4 << 20) // (16384 - 16)
    for rate in ("bytes_per_s", "limit_bytes_per_s", "ratio", "one_way_us"):
        assert cell[rate] > 0, rate
    assert (found["small_message"] is not None) == (fabric == "shm")


def test_impossible_channels_are_refused():
    for words in (["--slot-bytes", 100], ["--slot-bytes", 0], ["--credits", 0], ["--credits", 5000],
                  ["--pairs", 0], ["--mib", 0], ["--fabric", "carrier-pigeon"]):
        result = harness.bench("channel", *words)
        assert result.code == 2 and words[0] in result.stderr, (words, result.stderr)


def test_a_machine_without_rdma_says_why():
    listed = millstream("fabric").stdout.decode()
    if "verbs: available" in listed:
        pytest.skip("this machine has RDMA")
    result = harness.bench("channel", "--fabric", "verbs")
    assert result.code == 1
    assert result.stderr.startswith("error: RDMA: not available: "), result.stderr

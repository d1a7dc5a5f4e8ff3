"""`millstream-lab bench` gives right answers, also at sizes for which no answer was published."""

import json
import math
import operator
import os
from bisect import bisect_right
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from functools import reduce
from itertools import accumulate

import harness
import pytest

MASK = (1 << 64) - 1
WORKLOADS = {  # id, span_ms, window_ms
    "ysb": (1, 2_400_000, 600_000), "ysb_small": (2, 2_400_000, 600_000), "nb7": (3, 600_000, 60_000),
    "cm": (4, 200_000, 2_000), "ro": (6, None, None), "ysb_str": (7, 2_400_000, 600_000),
}
PUBLISHED = {  # rows, checksum and mix of a million records, from the definition of the workloads
    "ysb": (332_267, 56602926400305, 7495328373907997577),
    "ysb_small": (39_992, 618086281407, 2033733458551572602),
    "ysb_str": (226_013, 3810121864355, 7477958758820274999),
    "nb7": (639_662, 19013990486623, 13837092150924484743),
    "cm": (688_025, 1291313603060, 12718093375894706453),
    "ro": (994_969, 1543088191309139, 16790229291068761780),
}


def bench(workload: str, records: int, *words: object, **settings: object) -> dict:
    result = harness.bench(workload, "--records", records, "--json", *words, settings=settings)
    assert result.code == 0, result.stderr
    return json.loads(result.stdout)


def finalise(x: int) -> int:
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ x >> 27) * 0x94D049BB133111EB & MASK
    return x ^ x >> 31


KEYS = {"ysb": 10_000_000, "ysb_small": 10_000, "ysb_str": 100_000, "cm": 12_500, "ro": 100_000_000}


def inverse_power(rank: int, z: float) -> float:
    """rank^-z by the additions, multiplications and divisions that docs/measuring.md lists."""
    k = rank.bit_length() - 1
    m = rank / (1 << k)
    if m > 1.4:
        m, k = m / 2, k + 1
    s, logarithm, power = (m - 1) / (m + 1), 0.0, 0.0
    for j in reversed(range(12)):
        logarithm = logarithm * (s * s) + 1 / (2 * j + 1)
    x = -z * (k * math.log(2) + 2 * s * logarithm)
    q = int(x / math.log(2) - 0.5)
    for j in reversed(range(15)):
        power = power * (x - q * math.log(2)) + 1 / math.factorial(j)
    return math.ldexp(power, q)


def zipf_sums(z: float, keys: int) -> list[int]:
    powers = [inverse_power(rank, z) for rank in range(1, keys + 1)]
    # One after the other: sum() would compensate for rounding.
    total = reduce(operator.add, powers, 0.0)
    scale = max(s for s in range(63) if math.ldexp(total, s) <= 2**62)
    return list(accumulate(int(math.ldexp(power, scale)) for power in powers))


def answer(workload: str, records: int, keys: int | None = None, zipf: float | None = None) -> tuple[int, int, int]:
    """Rows, checksum and mix, straight from the definition; `keys` in place of the workload's own."""
    number, span, window_ms = WORKLOADS[workload]
    state = 0x9E3779B97F4A7C15 * number & MASK

    def draw() -> int:
        nonlocal state
        state ^= state >> 12
        state = (state ^ state << 25) & MASK
        state ^= state >> 27
        return state * 0x2545F4914F6CDD1D & MASK

    def below(n: int) -> int:
        return (draw() >> 32) * n >> 32

    modulus = keys or KEYS.get(workload)
    sums = zipf_sums(zipf, modulus or 1 << 20) if zipf is not None else []

    def skewed() -> int:
        rank = bisect_right(sums, draw() * sums[-1] >> 64)
        return (rank * 2654435761 + 2654435769) % len(sums)

    groups: dict[tuple[int, int], int] = defaultdict(int)
    for i in range(records):
        ts = i * span // records if span else 0
        if workload == "ro":
            groups[0, skewed() if sums else below(modulus)] += 1
        elif workload == "nb7":
            if sums:
                key = skewed()
            else:
                u = draw() >> 32
                u2 = u * u >> 32
                u5 = (u2 * u2 >> 32) * u >> 32
                key = ((u5 >> 12) * 0x9E3779B1 & 0xFFFFF) % (modulus or 1 << 20)
            at = ts // window_ms * window_ms, key
            groups[at] = max(groups[at], draw() >> 40)
        elif workload == "cm":
            key = skewed() if sums else below(modulus)
            draw()
            groups[ts // window_ms * window_ms, key] += 1
        else:
            key = skewed() if sums else below(modulus)
            event = below(3)
            if workload == "ysb_str" and below(100) == 0:
                ts = max(ts - below(5_000), 0)
            if event == 0:
                groups[ts // window_ms * window_ms, key] += 1
    checksum = mix = 0
    for (window, key), value in groups.items():
        checksum += key * 31 + window * 17 + value
        mix += finalise((key + finalise((window + finalise(value)) & MASK)) & MASK)
    return len(groups), checksum & MASK, mix & MASK


@pytest.mark.parametrize("workload", WORKLOADS)
def test_the_answer_at_an_odd_size_is_that_of_the_definition(workload):
    records = 100_003
    expected = answer(workload, records)
    for settings in ({"workers": 1}, {"workers": 3, "epoch.bytes": "256KB"},
                     {"workers": 2, "epoch.bytes": "64KB", "fragment.mode": "pass-through"}):
        found = bench(workload, records, **settings)
        assert (found["result_rows"], found["checksum"], found["mix"]) == expected
        assert found["ok"] is True and found["records"] == records


@pytest.mark.parametrize("workload", WORKLOADS)
def test_the_answer_with_one_key_more_and_three_records_more(workload):
    records, keys = 1_000_003, KEYS.get(workload, 99_999) + 1
    found = bench(workload, records, "--keys", keys, workers=2)
    assert (found["result_rows"], found["checksum"], found["mix"]) == answer(workload, records, keys)
    assert found["ok"] is True and found["records"] == records


@pytest.mark.parametrize("workload", WORKLOADS)
@pytest.mark.parametrize("zipf", ["0", "0.2", "1", "2.0"])
def test_the_answer_with_skewed_keys_is_that_of_the_definition(workload, zipf):
    records, keys = 50_021, None if workload in ("ysb_small", "cm") else 30_011
    words = ["--zipf", zipf, *(["--keys", keys] if keys else [])]
    expected = answer(workload, records, keys, float(zipf))
    for more in (["--workers", 1], ["--workers", 3], ["--engine", "handwritten", "--workers", 1]):
        found = bench(workload, records, *words, *more)
        assert (found["result_rows"], found["checksum"], found["mix"]) == expected
        assert found["ok"] is True and found["zipf"] == float(zipf)


@pytest.mark.parametrize("workload", ["ysb_small", "nb7", "cm", "ysb_str"])
def test_processes_draw_the_same_skewed_keys(workload):
    records, keys = 50_021, 30_011
    expected = answer(workload, records, keys, 1.2)
    found = bench(workload, records, "--keys", keys, "--zipf", "1.2", "--processes", 2, "--workers", 2)
    assert (found["result_rows"], found["checksum"], found["mix"]) == expected
    assert found["ok"] is True and (found["zipf"], found["processes"]) == (1.2, 2)


def test_a_line_tells_where_it_comes_from():
    found = bench("cm", 1000, workers=1)
    assert found["zipf"] is None
    assert found["command"] == "millstream-lab bench cm --records 1000 --json --workers 1"
    written = datetime.strptime(found["date"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    assert timedelta(0) <= datetime.now(UTC) - written < timedelta(minutes=5)
    machine = found["machine"]
    assert machine["kernel"] == os.uname().release and machine["processor"]
    assert machine["instructions"] in ("portable", "avx2", "avx512")
    assert machine["cores"] == len(os.sched_getaffinity(0))
    assert machine["memory_bytes"] == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("engine", ["millstream", "handwritten"])
def test_a_line_tells_the_level_of_instructions(monkeypatch, engine):
    monkeypatch.setenv("MILLSTREAM_CPU", "portable")
    found = bench("cm", 1000, "--engine", engine)
    assert found["ok"] is True and found["machine"]["instructions"] == "portable"
    monkeypatch.setenv("MILLSTREAM_CPU", "sse")
    refused = harness.bench("cm", "--records", 1000, "--engine", engine)
    assert refused.code == 2 and "MILLSTREAM_CPU is 'sse'" in refused.stderr


@pytest.mark.parametrize("words, shown", [
    (["--workers", 2], "millstream   2 workers  "),
    (["--workers", 2, "--exchange", "repartition"], "millstream   2 workers, repartition  "),
    (["--processes", 2, "--workers", 1], "millstream   2 processes of 1 worker, late-merge over shm  "),
    (["--processes", 2, "--workers", 1, "--fabric", "tcp", "--exchange", "interleaved"],
     "millstream   2 processes of 1 worker, interleaved over tcp  "),
    (["--workers", 2, "--engine", "handwritten"], "handwritten  2 workers  "),
])
def test_the_text_line_tells_layout_exchange_and_fabric(words, shown):
    result = harness.bench("cm", "--records", 1000, *words)
    assert result.code == 0, result.stderr
    line = result.stdout.decode()
    assert line.startswith(f"cm         {shown}") and line.endswith("answer right\n"), line


@pytest.mark.parametrize("workload", WORKLOADS)
def test_the_published_answers(workload):
    for words in ((), ("--engine", "handwritten")):
        found = bench(workload, 1_000_000, *words, workers=1)
        assert (found["result_rows"], found["checksum"], found["mix"]) == PUBLISHED[workload]
        assert found["ok"] is True
        for name in ("seconds", "mrec_per_s", "gb_per_s", "peak_rss_bytes"):
            assert found[name] > 0


@pytest.mark.parametrize("workload", WORKLOADS)
def test_loops_on_several_threads_are_checked_each_by_itself(workload):
    found = bench(workload, 100_003, "--engine", "handwritten", workers=2)
    assert found["ok"] is True
    # They merge nothing: their rows are more than the answer's.
    assert found["result_rows"] > answer(workload, 100_003)[0]


def test_the_counters_show_that_state_was_merged_late():
    found = bench("ysb_small", 1_000_000, workers=2, **{"epoch.bytes": "256KB"})
    for name in ("epochs", "rows_shipped", "merges"):
        assert found[name] > 0, found
    # Whether a fragment changes its mode depends on which worker takes which batch.
    assert "mode_switches" in found
    assert found["ok"] is True


@pytest.mark.parametrize("processes", [1, 2])
def test_settings_of_the_planner_count(processes):
    """200 s of `cm` in windows of 10 ms: 20,000 windows of five records, or 20 slices of a thousand of them."""
    def segments(pack: str) -> int:
        words = ["--window", "tumble:10ms"] + (["--processes", processes] if processes > 1 else [])
        found = bench("cm", 100_000, *words, workers=2 // processes, **{"windows.pack": pack})
        assert found["ok"] is True
        return found["segments_shipped"]

    assert 0 < segments("10 s") < 200 < segments("0")


def test_generating_only_runs_no_query():
    result = harness.bench("ysb", "--records", 100_000, "--generate-only", "--json", settings={"workers": 1})
    assert result.code == 0, result.stderr
    found = json.loads(result.stdout)
    assert (found["workload"], found["workers"], found["records"]) == ("ysb", 1, 100_000)
    # At least 8 bytes for each of a record's columns: the key and the time.
    assert found["seconds"] > 0 and found["input_bytes"] >= 16 * 100_000
    assert "result_rows" not in found and "ok" not in found


@pytest.mark.parametrize("words, says", [
    (["latency", "--records", "5"], "--records does not go with the workload 'latency'"),
    (["latency", "--generate-only"], "--generate-only does not go with"),
    (["latency", "--engine", "handwritten"], "--engine handwritten does not go with"),
    (["ysb", "--rate", "5"], "--rate does not go with the workload 'ysb'"),
    (["ysb", "--seconds", "5"], "other workloads have --records"),
    (["latency", "--rate", "0"], "0 is not in 1..=1000000000"),
    (["latency", "--seconds", "0"], "0 is not in 1..=1000000"),
    (["latency", "--rate", str(2**63), "--seconds", str(2**63)], "is not in 1..=1000000000"),
    (["latency", "--mib", "1"], "--mib does not go with the workload 'latency'"),
    (["ysb", "--credits", "4"], "--credits does not go with the workload 'ysb'\n  help: it belongs to the workload `channel`"),
    (["channel", "--exchange", "interleaved"], "--exchange does not go with the workload 'channel'"),
    (["channel", "--zipf", "1"], "--zipf does not go with the workload 'channel'"),
    (["channel", "--records", "5"], "--records does not go with the workload 'channel'"),
    (["channel", "--set", "memory=1GB"], "--set does not go with the workload 'channel'"),
    (["channel", "--workers", "2"], "--workers does not go with the workload 'channel'"),
    (["channel", "--rate", "5"], "--rate does not go with the workload 'channel'"),
    (["cm", "--engine", "handwritten", "--exchange", "late-merge"], "--exchange does not go with --engine handwritten"),
    (["cm", "--engine", "handwritten", "--set", "exchange=interleaved"], "--exchange does not go with --engine handwritten"),
    (["ysb", "--processes", "2", "--engine", "handwritten"], "--engine handwritten does not go with"),
    (["ysb", "--processes", "2", "--generate-only"], "--generate-only does not go with --processes 2"),
    (["latency", "--processes", "2"], "the workload 'latency' does not go with --processes 2"),
    (["channel", "--processes", "2"], "the workload 'channel' does not go with --processes 2"),
    (["ysb", "--processes", "2", "--exchange", "both"], "invalid value 'both'"),
    (["cm", "--generate-only", "--exchange", "interleaved"], "--exchange does not go with --generate-only"),
    (["cm", "--workers", "3", "--exchange", "repartition"], "use --workers 4, or --exchange interleaved"),
    (["cm", "--workers", "1", "--exchange", "repartition"], "use --workers 2, or --exchange interleaved"),
    (["cm", "--processes", "3", "--workers", "1", "--exchange", "repartition"], "use --processes 4, or --exchange"),
    (["latency", "--zipf", "1"], "--zipf does not go with the workload 'latency'"),
    (["ysb", "--zipf", "3.1"], "expected 0 to 3 with at most three decimals"),
    (["ysb", "--zipf", "-0.5"], "expected 0 to 3 with at most three decimals"),
    (["ysb", "--zipf", "NaN"], "expected 0 to 3 with at most three decimals"),
    (["ysb", "--zipf", "1", "--keys", "4294967295"], "use at most 134217728 --keys"),
    (["ysb", "--keys", "0"], "0 is not in 1..=4294967295"),
    (["cm", "--keys", str(2**64 - 1)], "is not in 1..=4294967295"),
    (["ysb", "--records", "-5"], "invalid value '-5'"),
    (["ysb", "--workers", "-1"], "setting 'workers': '-1' does not fit"),
    (["ysb", "--exchange", "interleaved", "--set", "simulate=3"], "use --set exchange=late-merge"),
])
def test_arguments_that_make_no_sense_are_refused(words, says):
    result = harness.bench(*words)
    assert (result.code, result.stdout) == (2, b""), result.stderr
    assert says in result.stderr, result.stderr


@pytest.mark.parametrize("window", ["hop:60s:1s", "cumulate:20s:5s", "session:1s", "tumble:500ms"])
@pytest.mark.parametrize("workload", ["cm", "ysb_small", "ysb_str"])
def test_other_windows_have_right_answers_too(workload, window):
    alike = set()
    for words in (["--workers", 1], ["--workers", 2], ["--engine", "handwritten", "--workers", 1],
                  ["--workers", 1, "--processes", 2]):
        if "handwritten" in words and workload == "ysb_str" and window.startswith("session"):
            continue
        run = bench(workload, 40_000, "--keys", 50, "--window", window, *words)
        assert run["ok"] and run["result_rows"] > 0
        alike.add((run["result_rows"], run["mix"]))
    assert len(alike) == 1


@pytest.mark.parametrize("words, message", [
    (["cm", "--window", "hop"], "hop:SIZE:SLIDE"),
    (["cm", "--window", "hop:10s:3s"], "no multiple of the slide, 3000 ms"),
    (["cm", "--window", "session:0s"], "'0s' is no length of a window"),
    (["ro", "--window", "tumble:1s"], "--window does not go with the workload 'ro'"),
    (["latency", "--window", "tumble:1s"], "--window does not go with the workload 'latency'"),
    (["channel", "--window", "tumble:1s"], "--window does not go with the workload 'channel'"),
    (["ysb_str", "--window", "session:1s", "--engine", "handwritten"], "takes records in order"),
])
def test_windows_that_do_not_go_are_refused(words, message):
    result = harness.bench(*words)
    assert result.code == 2 and message in result.stderr, result.stderr


NEXMARK = ["q0", "q1", "q2", "q3", "q4", "q5", "q7", "q8", "q9", "q10", "q11", "q12", "q13", "q14", "q15", "q16", "q17",
           "q18", "q19", "q20", "q21", "q22"]


@pytest.mark.parametrize("query", NEXMARK)
def test_a_query_of_nexmark_is_right_for_any_number_of_workers(query):
    one = bench(f"nexmark-{query}", 120_000)  # 12 seconds of events: more than one window
    three = bench(f"nexmark-{query}", 120_000, workers=3)
    for line in (one, three):
        assert line["ok"] is True and line["records"] == 120_000 and line["result_rows"] > 0
        assert line["workload"] == f"nexmark-{query}" and line["generate_seconds"] > 0
    if query == "q18":  # of bids in one millisecond the first counts, and which that is depends on the splits
        assert one["result_rows"] == three["result_rows"]
    elif query != "q12":
        assert (one["result_rows"], one["mix"]) == (three["result_rows"], three["mix"])


def test_a_query_of_nexmark_that_is_not_there_is_refused():
    for words, says in [(("nexmark-q6",), "use one of nexmark-q0, nexmark-q1"),
                        (("nexmark-q0", "--keys", 3), "--keys does not go with the workload 'nexmark-q0'"),
                        (("nexmark-q0", "--exchange", "repartition"), "its queries have several stages"),
                        (("nexmark-q0", "--processes", 2), "it runs in one process")]:
        result = harness.bench(*words)
        assert result.code == 2 and says in result.stderr, result.stderr

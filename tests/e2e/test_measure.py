"""`tests/measure.py`, with few records: what it runs, what it writes, and that tests/report.py accepts it."""

import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import harness
import pytest
from conftest import cannot_run

SCRIPT = harness.ROOT / "tests" / "measure.py"


def measure(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess:
    environment = {"PATH": "/usr/bin:/bin", "MILLSTREAM_BIN": str(harness.program())} | environment
    return subprocess.run([sys.executable, str(SCRIPT), str(folder), *words], capture_output=True, text=True,
                          env=environment, timeout=harness.TIMEOUT_SECONDS)


def lines(folder: Path, part: str) -> list[dict]:
    return [json.loads(text) for text in (folder / f"{part}.jsonl").read_text().splitlines()]


def test_two_sets_of_a_small_grid(tmp_path):
    done = measure(tmp_path, "--quick", "--parts", "scale,skew", "--workloads", "ysb,cm", "--layouts", "1x1,1x2",
                   "--exchanges", "late-merge", "--skews", "0,1.5")
    assert done.returncode == 0, done.stderr
    found = lines(tmp_path, "scale")
    assert Counter((one["workload"], one["workers"], one["engine"]) for one in found) == {
        (workload, workers, engine): 2 for workload in ("ysb", "cm")
        for workers, engine in ((1, "millstream"), (1, "handwritten"), (2, "millstream"))}
    # What is compared runs one after the other, the other way round in the second set.
    engines = [one["engine"] for one in found if (one["workload"], one["workers"]) == ("ysb", 1)]
    assert engines == ["millstream", "handwritten", "handwritten", "millstream"]
    assert Counter(one["zipf"] for one in lines(tmp_path, "skew")) == {0.0: 2, 1.5: 2}
    assert all(one["ok"] is True and one["records"] == 20_000 for one in found + lines(tmp_path, "skew"))
    page = (tmp_path / "report.md").read_text()
    for name in ("Throughput by processes and workers", "Skewed keys", "One worker against a hand-written loop"):
        assert f"### {name}\n" in page


def test_processes_by_fabric_and_skew(tmp_path):
    done = measure(tmp_path, "--quick", "--parts", "scale,skew", "--workloads", "cm", "--layouts", "2x1,2x2",
                   "--exchanges", "late-merge", "--skews", "0,2")
    assert done.returncode == 0, done.stderr
    assert Counter((one["processes"], one["workers"], one["fabric"]) for one in lines(tmp_path, "scale")) == {
        (2, workers, fabric): 2 for workers in (1, 2) for fabric in ("shm", "tcp")}
    assert Counter((one["processes"], one["zipf"]) for one in lines(tmp_path, "skew")) == {(2, 0.0): 2, (2, 2.0): 2}
    page = (tmp_path / "report.md").read_text()
    for plot in ("cm, 20,000 records", "ysb, 20,000 records, 2 × 1"):
        assert page.count(f"![{plot}]") == 1, plot


def test_instructions_are_counted_by_role(tmp_path):
    if shutil.which("valgrind") is None:
        cannot_run("valgrind is not installed")
    done = measure(tmp_path, "--quick", "--parts", "counts", "--workloads", "ysb", "--count-layouts", "1x2",
                   "--exchanges", "late-merge,repartition")
    assert done.returncode == 0, done.stderr
    found = lines(tmp_path, "counts")
    assert {one["role"] for one in found} == {"late-merge", "repartition-sender", "repartition-receiver"}
    for one in found:
        assert one["ok"] is True and "mrec_per_s" not in one
        # A few per record at least, and a run of so few pays for opening its windows.
        assert 1 < one["instructions_per_record"] < 5_000
        assert one["ll_misses_per_record"] <= one["d1_misses_per_record"] <= one["instructions_per_record"]
    page = (tmp_path / "report.md").read_text()
    for role in ("late merge", "repartition, sender", "repartition, receiver"):
        assert f"| {role} |" in page


def test_a_run_that_fails_is_told_and_the_others_go_on(tmp_path):
    program = tmp_path / "program"
    program.write_text(f"""#!/bin/sh
case "$*" in *cm*) echo broken >&2; exit 3;; esac
exec {harness.laboratory()} "$@"
""")
    program.chmod(0o755)
    done = measure(tmp_path / "out", "--quick", "--parts", "scale", "--workloads", "cm,ysb", "--layouts", "1x2",
                   "--exchanges", "late-merge", MILLSTREAM_LAB_BIN=str(program))
    assert done.returncode == 1
    assert "cm --workers 2 --exchange late-merge: exit code 3\nbroken" in done.stderr and "2 runs failed" in done.stderr
    assert [one["workload"] for one in lines(tmp_path / "out", "scale")] == ["ysb", "ysb"]
    assert (tmp_path / "out" / "report.md").exists()


@pytest.mark.parametrize("words, says", [
    (["--parts", "scale,dance"], "there is no dance"),
    (["--layouts", "2"], "expected PROCESSESxWORKERS"),
    (["--layouts", "0x1"], "expected PROCESSESxWORKERS"),
])
def test_arguments_that_make_no_sense_are_refused(tmp_path, words, says):
    done = measure(tmp_path / "out", *words)
    assert done.returncode == 2 and says in done.stderr
    assert not (tmp_path / "out").exists()


def pairs(*words: object) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, str(SCRIPT.with_name("pairs.py")), *map(str, words)], capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, timeout=600)


def test_runs_are_compared_by_turns():
    commands = [f"{harness.laboratory()} bench cm --records 1000 --workers {workers}" for workers in (1, 2)]
    done = pairs(3, *commands)
    assert done.returncode == 0, done.stderr
    number, spread = r"[\d.]+", r"[\d.]+ to [\d.]+"
    first, second = map(re.escape, commands)
    rates = rf"\n  {number} million records/s \({spread}\)\n"
    ratios = rf"  the first to this one: {number} \(quartiles {number} and {number}, {spread}\)\n"
    assert re.fullmatch(first + rates + second + rates + ratios, done.stdout), done.stdout


def test_a_run_that_fails_ends_the_comparison():
    done = pairs(1, f"{harness.laboratory()} bench cm --records 1000", f"{harness.laboratory()} bench dance")
    assert done.returncode == 1 and "bench dance: exit code" in done.stderr and not done.stdout
    assert pairs(0, "true").returncode == 2

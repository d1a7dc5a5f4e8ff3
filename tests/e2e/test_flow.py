"""`millstream-lab bench flow`: every figure is measured in its short form, with the answer checked, and tests/report.py takes it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import harness
import pytest

FIGURES = ["memory", "shuffle-bandwidth", "shuffle-latency", "shuffle-scale", "replicate-bandwidth", "replicate-latency", "combine",
           "point-to-point", "collective", "straggler", "join", "consensus"]
PROJECTED = {"memory", "shuffle-bandwidth", "shuffle-scale", "replicate-bandwidth", "replicate-latency", "combine", "consensus"}


def flow(*words: object):
    return harness.bench("flow", *words)


@pytest.fixture(scope="module")
def lines() -> dict[str, dict]:
    found = {}
    for figure in FIGURES:
        result = flow(figure, "--short", "--json")
        assert result.code == 0, result.stderr
        found[figure] = json.loads(result.stdout)
    return found


@pytest.mark.parametrize("figure", FIGURES)
def test_every_figure_is_measured(lines, figure):
    found = lines[figure]
    assert (found["bench"], found["figure"], found["short"], found["ok"]) == ("flow", figure, True, True)
    assert {"command", "date", "machine"} <= set(found)
    # The machine is shared with other tests, so real runs may differ from what was projected.
    assert found["points"] or figure in PROJECTED
    if figure in PROJECTED:
        assert found["prices"] and found["checks"]
        withheld = [check for check in found["checks"] if abs(check["miss"]) > 0.15]
        assert found["points"] or withheld
        assert all(point["of_link"] < 9 for point in found["points"] if "of_link" in point)
    for relation in found["relations"]:
        assert relation["text"] and relation["met"] in (True, False)
        # Only a projection may be withheld.
        assert figure in PROJECTED or relation["found"] is not None


def test_memory_is_what_the_thesis_says(lines):
    points = [(point["nodes"], point["threads"], point["mib"]) for point in lines["memory"]["points"]]
    assert points == [(2, 4, 16.0), (8, 4, 64.1), (8, 14, 785.5)]


def test_joins_of_a_figure_find_the_same_pairs(lines):
    radix, few, replicated = lines["join"]["points"]
    assert (few["pairs"], few["sum"]) == (replicated["pairs"], replicated["sum"]) and radix["pairs"] > 0


def test_the_text_says_which_relations_are_met():
    result = flow("join", "--tuples", 2000, "--turns", 1, "--processes", 4)
    assert result.code == 0, result.stderr
    text = result.stdout.decode()
    for part in ("flow join: answers right", 'join "radix"', "processes 4", "met: time of the replicating join"):
        assert part.lower() in text.lower(), text


def test_the_report_has_the_figures(lines, tmp_path):
    # As if they were long; a short one is left out.
    long = [line | {"short": False} for line in lines.values()]
    short = lines["join"] | {"relations": [{"text": "too short", "found": 1, "met": True}]}
    (tmp_path / "flows.jsonl").write_text("".join(json.dumps(line) + "\n" for line in [*long, short]))
    script = harness.ROOT / "tests" / "report.py"
    done = subprocess.run([sys.executable, str(script), str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "report.md").read_text()
    assert "### Flows" in page and "Flows: join" in page and "MiB of a node, exactly 785.5" in page
    assert "lines of `--short`: 1" in page and "too short" not in page


@pytest.mark.parametrize("words, says", [
    ([], "the workload 'flow' needs a figure\n  help: use one of shuffle-bandwidth, "),
    (["memory", "--tuples", 5], "--tuples does not go with this figure"),
    (["join", "--processes", 3], "--processes 3 does not go with this figure"),
    (["point-to-point", "--processes", 3], "help: use an even number"),
    (["collective", "--tuple-bytes", 24], "no figure has tuples of 24 bytes"),
    (["collective", "--threads", 2], "each process has one thread"),
    (["memory", "--design", "SEMQ/WR"], "--design does not go with the workload 'flow'"),
    (["memory", "--records", 5], "--records does not go with the workload 'flow'"),
])
def test_impossible_figures_are_refused(words, says):
    result = flow(*words)
    assert (result.code, result.stdout) == (2, b""), result.stderr
    assert says in result.stderr, result.stderr


def test_other_workloads_refuse_the_options_of_flows():
    for words in (["shuffle", "--design", "SEMQ/WR"], ["ysb"]):
        result = harness.bench(*words, "--short")
        assert result.code == 2 and "it belongs to the workload `flow`" in result.stderr, result.stderr


def test_mpi_moves_the_same_tuples(tmp_path: Path):
    import shuffle_baselines
    if not shuffle_baselines.has_mpi():
        # CI has none.
        pytest.skip("there is no Open MPI: `.ci/setup mpi` installs it")
    script = harness.ROOT / "tests" / "flow_baselines.py"
    lines = tmp_path / "flows.jsonl"
    done = subprocess.run([sys.executable, str(script), "1", "--short", "--figures", "straggler,join,shuffle", "--lines", str(lines)],
                          capture_output=True, text=True, timeout=harness.TIMEOUT_SECONDS, env=os.environ)
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in lines.read_text().splitlines()]
    assert [line["figure"] for line in found] == ["straggler, compared", "join, compared", "shuffle, compared"]
    assert all(line["relations"] and line["points"] for line in found)

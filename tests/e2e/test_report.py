"""`tests/report.py`: plots show the medians of lines, tables their ratios; lines that make no sense are named."""

import json
import random
import statistics
import subprocess
import sys
from pathlib import Path

import harness
import pytest

SCRIPT = harness.ROOT / "tests" / "report.py"
MACHINE = {"processor": "Some CPU @ 2 GHz", "cores": 2, "memory_bytes": 8 << 30, "kernel": "6.1"}
ORIGIN = {"ok": True, "command": "millstream-lab bench", "date": "2024-05-01T12:00:00Z", "machine": MACHINE}


def line(**changes: object) -> dict:
    return {"engine": "millstream", "workload": "ysb", "records": 1000, "processes": 2, "workers": 1, "fabric": "shm",
            "exchange": "late-merge", "zipf": None, "mrec_per_s": 10.0} | ORIGIN | changes


def shuffled(**changes: object) -> dict:
    return {"bench": "shuffle", "design": "SEMQ/WR", "pattern": "repartition", "processes": 2, "threads": 1,
            "message_bytes": 65536, "buffers": "fixed:2", "credit_every": 2, "compute_us": 0.0, "straggler_us": None,
            "own": "send", "tuples": 1000, "bytes_per_s": 2e9, "setup_seconds": 0.01} | ORIGIN | changes


def query(**changes: object) -> dict:
    return {"bench": "tpch", "design": "SEMQ/WR", "query": 3, "scale": 0.1, "processes": 2, "tables": "memory",
            "compression": "none", "seconds": 0.5, "flight_seconds": 1.0} | ORIGIN | changes


def write(folder: Path, lines: list, name: str = "lines.jsonl") -> None:
    text = "".join(f"{one if isinstance(one, str) else json.dumps(one)}\n" for one in lines)
    (folder / name).write_text(text, encoding="utf-8")


def report(folder: Path) -> subprocess.CompletedProcess:
    done = subprocess.run([sys.executable, str(SCRIPT), str(folder)], capture_output=True, text=True)
    assert "Traceback" not in done.stderr and done.stdout == "", done.stderr
    return done


def page(folder: Path) -> str:
    text = (folder / "report.md").read_text()
    plots = sorted(path.name for path in (folder / "plots").iterdir())
    assert all(text.count(f"](plots/{name})") == 1 for name in plots) and text.count("](plots/") == len(plots)
    assert all((folder / "plots" / name).read_bytes().startswith(b"\x89PNG") for name in plots)
    return text


def test_marks_are_medians_with_whiskers(tmp_path):
    import report as script

    dice = random.Random(7)
    rates = {(group, series): [dice.uniform(1, 300) for _ in range(5)] for group in ("1 × 1", "2 × 1") for series in "ab"}
    drawn = script.Page(tmp_path)
    drawn.bars("bars", "unit", "across", rates)
    drawn.curves("curves", "unit", "across", {(float(group[0]), series): some for (group, series), some in rates.items()})
    bars, curves = (figure.axes[0] for _, figure in drawn.plots)
    medians = [statistics.median(rates[group, series]) for series in "ab" for group in ("1 × 1", "2 × 1")]
    assert [bar.get_height() for bar in bars.patches] == pytest.approx(medians)
    assert [y for one in curves.containers for y in one.lines[0].get_ydata()] == pytest.approx(medians)
    whiskers = [end for bar in bars.containers if hasattr(bar, "lines") for at in bar.lines[2][0].get_segments() for end in at[:, 1]]
    assert whiskers == pytest.approx([end for series in "ab" for group in ("1 × 1", "2 × 1")
                                      for end in (min(rates[group, series]), max(rates[group, series]))])


def test_there_is_a_plot_for_each_figure(tmp_path):
    lines = [line(exchange=exchange, mrec_per_s=rate, date=f"2024-05-01T12:00:0{number}Z")
             for exchange, all_of_it in (("late-merge", (30, 20)), ("repartition", (10, 10)))
             for number, rate in enumerate(all_of_it)]
    lines += [line(processes=1, engine=engine, mrec_per_s=rate) for engine, rate in (("handwritten", 8), ("millstream", 4))]
    lines += [line(zipf=zipf, mrec_per_s=zipf) for zipf in (0.5, 1.5)]
    counted = {name: value for name, value in line(role="late-merge").items() if name != "mrec_per_s"}
    lines += [counted | {"instructions_per_record": 7.5, "d1_misses_per_record": 1, "ll_misses_per_record": 0}]
    lines += [{"records": 9, "fire_latency_us_p50": 5, "fire_latency_us_p99": 6, "fire_latency_us_max": 7}]
    lines += [shuffled(message_bytes=size) for size in (4096, 65536)]
    lines += [shuffled(credit_every=4), shuffled(buffers="adaptive"), shuffled(straggler_us=5.0), query(), query(query=4)]
    write(tmp_path, lines[:5])
    write(tmp_path, lines[5:], "more.json")
    assert report(tmp_path).returncode == 0
    text = page(tmp_path)
    for name in ("Throughput by processes and workers", "Skewed keys", "One worker against a hand-written loop",
                 "Instructions and cache misses", "Latency", "Shuffle", "TPC-H", "Lines"):
        assert f"### {name}\n" in text, name
    for name in ("ysb, 1,000 records]", "ysb, 1,000 records, 2 × 1]", "One worker]", "Latency of windows]", "SEMQ/WR: repartition",
                 "Set-up", "scale 0.1, 2 processes, tables in memory, compression none]"):
        assert f"![{name}" in text, name
    # 30 to 10 and 20 to 10.
    assert "| ysb, 1,000 records | 2 × 1, shm | 2.5 (2 to 3), 2 |" in text
    assert "| ysb, 1,000 records | 8 | 4 | 0.5, 1 |" in text and "| 7.5 | 1 | 0 |" in text
    assert "## Some CPU @ 2 GHz, 2 cores, 8.6 GB of memory, kernel 6.1" in text


def test_lines_of_the_program_itself_are_read(tmp_path):
    for words in (["ysb", "--workers", 1], ["ysb", "--workers", 1, "--engine", "handwritten"], ["ysb", "--workers", 2],
                  ["latency", "--rate", 1000, "--seconds", 1],
                  ["shuffle", "--design", "SEMQ/WR", "--tuples", 5000]):
        size = ["--records", 20_000] if words[0] == "ysb" else []
        run = harness.bench(*words, *size, "--json")
        assert run.code == 0, run.stderr
        with open(tmp_path / "lines.jsonl", "ab") as file:
            file.write(run.stdout)
    assert report(tmp_path).returncode == 0
    text = page(tmp_path)
    assert "![One worker]" in text and "![Latency of windows]" in text and "### Shuffle" in text
    assert "millstream-lab bench ysb --workers 2 --records 20000 --json" in text.replace("\\", "")


def test_a_wrong_answer_is_named_and_its_rate_is_nowhere(tmp_path):
    write(tmp_path, [line(), line(mrec_per_s=4711.0, ok=False, workload="nb7")])
    done = report(tmp_path)
    assert done.returncode == 1 and "lines.jsonl:2: refused, since the answer was wrong: nb7" in done.stderr
    text = page(tmp_path)
    assert "lines.jsonl:2: refused" in text and "4711" not in text and text.count("![") == 1


@pytest.mark.parametrize("bad, says", [
    ("rubbish", "not JSON"),
    ("[1, 2]", "expected a JSON object"),
    ("{}", "field 'command': no such field"),
    ("[" * 100_000, "not JSON"),
    (line(mrec_per_s=1e300), "field 'mrec_per_s': expected a number from 0"),
    (line(mrec_per_s=-1), "field 'mrec_per_s'"),
    (line(records="many"), "field 'records': expected a whole number"),
    (line(engine="steam"), "field 'engine': expected millstream or handwritten"),
    (line(workers="two"), "field 'workers'"),
    (line(ok=1), "field 'ok'"),
    (shuffled(design="SOME"), "field 'design'"),
])
def test_a_line_that_makes_no_sense_is_an_error_with_its_place(tmp_path, bad, says):
    write(tmp_path, [line(), "", bad, line()])
    done = report(tmp_path)
    assert done.returncode == 1 and f"lines.jsonl:3: {says}" in done.stderr, done.stderr
    assert len(done.stderr) < 1000 and not (tmp_path / "report.md").exists()


def test_files_without_sense_are_refused(tmp_path):
    for folder in (tmp_path, tmp_path / "nowhere"):
        assert "no *.jsonl or *.json file" in report(folder).stderr
    (tmp_path / "lines.jsonl").write_bytes(b'{"a": "\xff\xfe"}\n')
    assert "lines.jsonl:1: not UTF-8" in report(tmp_path).stderr
    write(tmp_path, ["rubbish"] * 100)
    done = report(tmp_path)
    assert done.returncode == 1 and done.stderr.count("not JSON") == 20 and "and 80 more" in done.stderr


def test_markup_in_texts_stays_text(tmp_path):
    evil = "</title><script>alert(1)</script><!-- & | ` ![x](y) $\\frac$ \x1b[2J"
    write(tmp_path, [line(workload=evil, command=evil, machine=MACHINE | {"processor": evil})])
    assert report(tmp_path).returncode == 0
    text = page(tmp_path)
    assert "<script>" not in text and "\x1b" not in text and "](y)" not in text.replace("\\]", "")

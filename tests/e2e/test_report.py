"""`millstream report`: the page is parsed as XML, and its contents are compared with the lines."""

import json
import random
import re
import statistics
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import harness
import pytest

SVG = "{http://www.w3.org/2000/svg}"
MACHINE = {"processor": "Some CPU @ 2 GHz", "cores": 2, "memory_bytes": 8 << 30, "kernel": "6.1"}


def line(**changes: object) -> dict:
    return {"engine": "millstream", "workload": "ysb", "records": 1000, "processes": 2, "workers": 1, "fabric": "shm",
            "exchange": "late-merge", "zipf": None, "mrec_per_s": 10.0, "ok": True, "command": "millstream bench ysb",
            "date": "2024-05-01T12:00:00Z", "machine": MACHINE} | changes


def write(folder: Path, lines: list, name: str = "lines.jsonl") -> None:
    text = "".join(f"{one if isinstance(one, str) else json.dumps(one)}\n" for one in lines)
    (folder / name).write_text(text, encoding="utf-8")


def report(folder: Path) -> harness.Run:
    result = harness.run("report", folder, stats=False, binary=harness.laboratory())
    assert harness.sound(result) == [] and result.stdout == b"", result.stderr
    return result


def page(folder: Path) -> ElementTree.Element:
    return ElementTree.parse(folder / "report.html").getroot()


def number(text: str) -> float:
    return float(re.match(r"[-+0-9.]+", text).group())


def plots(root: ElementTree.Element) -> dict[str, dict[str, tuple[float, float]]]:
    """For every plot and every mark in it: the number in the mark's title, and the one that its place on the axis says."""
    found = {}
    for svg in root.iter(f"{SVG}svg"):
        name = next(t.text for t in svg.iter(f"{SVG}text") if t.get("class") == "name")
        ticks = [(float(t.get("y")) - 4, float(t.text)) for t in svg.iter(f"{SVG}text") if t.get("class") == "tick"]
        (low_y, low), (high_y, high) = max(ticks), min(ticks)
        marks = found.setdefault(name, {})
        for mark in [*svg.iter(f"{SVG}rect"), *svg.iter(f"{SVG}circle")]:
            title = mark.find(f"{SVG}title")
            if title is not None:
                y = float(mark.get("y") or mark.get("cy"))
                what, _, text = title.text.rpartition(": ")
                marks[what] = number(text), low + (low_y - y) / (low_y - high_y) * (high - low)
                if mark.get("height"):
                    assert float(mark.get("y")) + float(mark.get("height")) == pytest.approx(low_y, abs=0.02)
    return found


def test_every_mark_shows_the_median_of_its_lines(tmp_path):
    dice = random.Random(7)
    lines, rates = [], {}
    for workload in ("ysb", "ysb_small", "nb7", "cm"):
        for processes, workers in ((1, 1), (1, 2), (2, 1), (4, 1)):
            for fabric in ("shm", "tcp") if processes > 1 else (None,):
                for exchange in ("late-merge", "repartition", "interleaved") if processes > 1 else ("late-merge",):
                    of = {"workload": workload, "processes": processes, "workers": workers, "fabric": fabric,
                          "exchange": exchange}
                    name = exchange.replace("-", " ").replace("interleaved", "interleaved repartition")
                    mark = f"{processes} × {workers}, {name}, {fabric or 'one process'}"
                    rates[f"{workload}, 1,000 records", mark] = some = [dice.uniform(1, 300) for _ in range(5)]
                    lines += [line(**of, mrec_per_s=rate) for rate in some]
    for zipf in (0.0, 0.2, 1.0, 2.0):
        for exchange in ("late-merge", "repartition"):
            mark = f"exponent z = {zipf:g}, {exchange.replace('-', ' ')}, shm"
            rates["ysb, 1,000 records, 2 × 1", mark] = some = [dice.uniform(1, 300) for _ in range(4)]
            lines += [line(zipf=zipf, exchange=exchange, mrec_per_s=rate) for rate in some]
    dice.shuffle(lines)
    write(tmp_path, lines[:100])
    write(tmp_path, lines[100:], "more.json")
    result = report(tmp_path)
    assert result.code == 0, result.stderr
    found = plots(page(tmp_path))
    assert sum(map(len, found.values())) == len(rates)
    for (plot, mark), some in rates.items():
        written, drawn = found[plot][mark]
        median = statistics.median(some)
        assert written == pytest.approx(median, rel=0.006), (plot, mark)
        assert drawn == pytest.approx(median, abs=0.5), (plot, mark)


def test_lines_of_the_program_itself_are_read(tmp_path):
    for words in (["ysb", "--workers", 1], ["ysb", "--workers", 1, "--engine", "handwritten"],
                  ["ysb", "--workers", 2], ["ysb", "--workers", 2, "--zipf", "1.5"]):
        for _ in range(2):
            run = harness.bench(*words, "--records", 20_000, "--json")
            assert run.code == 0, run.stderr
            with open(tmp_path / "lines.jsonl", "ab") as file:
                file.write(run.stdout)
    result = report(tmp_path)
    assert result.code == 0, result.stderr
    lines = [json.loads(text) for text in (tmp_path / "lines.jsonl").read_text().splitlines()]
    text = (tmp_path / "report.html").read_text()
    for one in lines:
        assert one["command"] in text and one["date"][:10] in text and one["machine"]["kernel"] in text
    found = plots(page(tmp_path))
    assert set(found["One worker"]) == {"ysb, handwritten", "ysb, millstream, one worker"}
    assert set(found["ysb, 20,000 records, 1 × 2"]) == {"exponent z = 1.5, late merge, one process"}
    written, drawn = found["ysb, 20,000 records"]["1 × 2, late merge, one process"]
    median = statistics.median(one["mrec_per_s"] for one in lines[4:6])
    assert written == pytest.approx(median, rel=0.006) and drawn == pytest.approx(median, rel=0.02)


def test_the_page_needs_nothing_but_itself(tmp_path):
    write(tmp_path, [line(), line(zipf=1.0)])
    assert report(tmp_path).code == 0
    for element in page(tmp_path).iter():
        assert element.tag.rpartition("}")[2] not in ("script", "link", "img", "iframe", "object", "image", "use")
        assert not {"src", "href"} & set(element.attrib)
    assert "url(" not in (tmp_path / "report.html").read_text()


def test_a_wrong_answer_is_named_and_its_rate_is_nowhere(tmp_path):
    write(tmp_path, [line(mrec_per_s=10.0), line(mrec_per_s=4711.0, ok=False, workload="nb7")])
    result = report(tmp_path)
    assert result.code == 1
    assert "lines.jsonl:2: refused, since the answer was wrong: nb7, 1,000 records" in result.stderr
    text = (tmp_path / "report.html").read_text()
    assert "lines.jsonl:2: refused" in text and "4711" not in text
    assert plots(page(tmp_path)).keys() == {"ysb, 1,000 records"}


@pytest.mark.parametrize("bad, says", [
    ("rubbish", "not JSON"),
    ("[1, 2]", "expected a JSON object"),
    ("{}", "no such field"),
    ("\x00\x01", "not JSON"),
    ("[" * 10_000, "not JSON"),
    ('{"mrec_per_s": 1e999}', "not JSON"),
    (line(mrec_per_s=1e300), "field 'mrec_per_s': expected a number from 0 to"),
    (line(mrec_per_s=-1), "field 'mrec_per_s'"),
    (line(mrec_per_s=None), "field 'mrec_per_s'"),
    (line(workers=2**64), "field 'workers'"),
    (line(processes=0), "field 'processes'"),
    (line(fabric="carrier pigeon"), "field 'fabric': expected shm or tcp or verbs or sim"),
    (line(fabric="sim"), "'projection' has to be true"),
    (line(projection=True), "'projection' has to be true"),
    (line(ok=1), "field 'ok'"),
    (line(date="today"), "field 'date'"),
    (line(machine={"processor": "x"}), "field 'machine.cores'"),
])
def test_a_line_that_makes_no_sense_is_an_error_with_its_place(tmp_path, bad, says):
    write(tmp_path, [line(), "", bad, line()])
    result = report(tmp_path)
    assert result.code == 1
    (place, message), = re.findall(r"(lines\.jsonl:\d+): (.*)", result.stderr)
    assert place == "lines.jsonl:3" and says in message
    assert len(result.stderr) < 1000 and not (tmp_path / "report.html").exists()


def test_bytes_that_are_no_text_are_an_error(tmp_path):
    (tmp_path / "lines.jsonl").write_bytes(b'{"a": "\xff\xfe"}\n')
    result = report(tmp_path)
    assert result.code == 1 and "lines.jsonl:1: not UTF-8" in result.stderr


def test_markup_in_texts_stays_text(tmp_path):
    evil = "</title></text></svg><script>alert(1)</script><!-- & \" ' \x1b[2J \u202e ]]>"
    machine = MACHINE | {"processor": evil, "kernel": evil}
    write(tmp_path, [line(workload=evil, command=evil, machine=machine)])
    assert report(tmp_path).code == 0
    root = page(tmp_path)
    texts = "".join(root.itertext())
    assert texts.count("<script>alert(1)</script>") >= 4
    assert not [e for e in root.iter() if e.tag.rpartition("}")[2] == "script"]
    assert "\x1b" not in texts and "\u202e" not in texts


def test_a_hundred_wrong_lines_are_not_all_named(tmp_path):
    write(tmp_path, ["rubbish"] * 100)
    result = report(tmp_path)
    assert result.code == 1 and result.stderr.count("not JSON") == 20 and "and 80 more" in result.stderr


def test_a_folder_without_lines_is_refused(tmp_path):
    for folder, says in ((tmp_path, "no *.jsonl or *.json file"), (tmp_path / "nowhere", "No such file")):
        result = report(folder)
        assert result.code == 2 and says in result.stderr, result.stderr
    write(tmp_path, ["", " "])
    assert report(tmp_path).code == 1


def test_the_page_is_written_whole_or_not_at_all(tmp_path):
    write(tmp_path, [line()])
    (tmp_path / "report.html").mkdir()
    result = report(tmp_path)
    assert result.code == 1 and "report.html" in result.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == ["lines.jsonl", "report.html"]


@pytest.mark.parametrize("measured, shown", [((95, 100, 105), True), ((100, 100, 85), False), ((100, 100, None), False)])
def test_a_projection_is_labelled_and_needs_a_model_that_was_right(tmp_path, measured, shown):
    lines = [line(processes=16, workers=10, fabric="sim", projection=True, mrec_per_s=777.0)]
    for processes, rate in zip((1, 2, 4), measured, strict=True):
        lines.append(line(processes=processes, fabric="sim", projection=True, predicts="shm", mrec_per_s=100.0))
        lines += [line(processes=processes, mrec_per_s=rate)] if rate else []
    write(tmp_path, lines)
    assert report(tmp_path).code == 0
    found = plots(page(tmp_path))
    labelled = {name: marks for name, marks in found.items() if name.startswith("Projection: ysb")}
    assert ("nodes = 16, late merge, sim" in str(labelled)) == shown
    text = (tmp_path / "report.html").read_text()
    assert ("777" in text) == shown and "Nothing in this section was measured on a cluster" in text
    assert not any("sim" in mark for name in found.keys() - labelled.keys() for mark in found[name])

#!/usr/bin/env python3
"""Draws what was measured: DIR/report.md with plots in DIR/plots, from the JSON lines in DIR/*.jsonl and DIR/*.json.

    tests/report.py DIR

Lines come from `millstream-lab bench --json`, from tests/measure.py, tests/shuffle_baselines.py and tests/flow_figures.py,
and from the benchmark in crates/datafusion-shuffle. Lines of the same data and setup are runs of the same thing: marks are their
medians, whiskers go from the least to the greatest. A line that cannot be read is an error with its place, and nothing
is written. A line whose answer was wrong is in no plot; the report and stderr name it, and the exit code is 1.

Needs matplotlib: `.ci/setup measure` puts it into .venv.
"""

import html
import json
import math
import re
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path

import report_flows

try:
    import matplotlib
except ImportError:
    sys.exit("error: matplotlib is missing\n  help: run `.ci/setup measure`, then this with .venv/bin/python")
matplotlib.use("Agg")
import matplotlib.pyplot as pyplot  # noqa: E402

Line = dict
Runs = dict[tuple, list[float]]

NAMED_MAX = 20
NUMBER_MAX = 1e12
WORKLOADS = ["ysb", "ysb_small", "ysb_str", "nb7", "cm"]
EXCHANGES = {"late-merge": "late merge", "repartition": "repartition", "interleaved": "interleaved repartition"}
ROLES = {"late-merge": "late merge", "repartition-sender": "repartition, sender",
         "repartition-receiver": "repartition, receiver", "handwritten": "handwritten"}
DESIGNS = ["MEMQ/SR", "SEMQ/SR", "MESQ/SR", "SESQ/SR", "MEMQ/RD", "SEMQ/RD", "MEMQ/WR", "SEMQ/WR", "MEMQ/WR:messages",
           "SEMQ/WR:messages", "MEMQ/WR:buffers", "SEMQ/WR:buffers"]
PLAIN = {"buffers": "fixed:2", "credit_every": 2, "compute_us": 0, "straggler_us": None, "own": "send"}

TEXT, NUMBER, WHOLE, LIST = "a text", "a number from 0", "a whole number from 0", "a list"
# What lines of each kind must have; a list has all values that there are.
ORIGIN = {"command": TEXT, "date": TEXT, "ok": [True, False]}
JOB = ORIGIN | {"workload": TEXT, "records": WHOLE, "engine": ["millstream", "handwritten"], "processes": WHOLE,
                "workers": WHOLE}
FIELDS = {
    "job": JOB | {"mrec_per_s": NUMBER},
    "counts": JOB | {"role": list(ROLES), "instructions_per_record": NUMBER, "d1_misses_per_record": NUMBER,
                     "ll_misses_per_record": NUMBER},
    "latency": {"fire_latency_us_p50": WHOLE, "fire_latency_us_p99": WHOLE, "fire_latency_us_max": WHOLE, "records": WHOLE},
    "shuffle": ORIGIN | {"design": DESIGNS, "pattern": ["repartition", "broadcast"], "processes": WHOLE, "threads": WHOLE,
                         "message_bytes": WHOLE, "buffers": TEXT, "credit_every": WHOLE, "compute_us": NUMBER,
                         "own": ["send", "keep"], "tuples": WHOLE, "bytes_per_s": NUMBER, "setup_seconds": NUMBER},
    "tpch": ORIGIN | {"design": DESIGNS, "query": WHOLE, "scale": NUMBER, "processes": WHOLE, "tables": ["memory", "files"],
                      "compression": TEXT, "seconds": NUMBER, "flight_seconds": NUMBER},
    "flow": ORIGIN | {"figure": TEXT, "points": LIST, "relations": LIST},
}


# --- lines ----------------------------------------------------------------------------------------

def kind(line: Line) -> str:
    if line.get("bench") in ("shuffle", "tpch", "flow"):
        return line["bench"]
    if "workload" not in line and "fire_latency_us_p50" in line:
        return "latency"
    return "counts" if "role" in line else "job"


def fits(value: object, form: str | list) -> bool:
    if isinstance(form, list):
        return any(value is one or (isinstance(one, str) and value == one) for one in form)
    if form in (TEXT, LIST):
        return isinstance(value, str if form == TEXT else list)
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= NUMBER_MAX
    return is_number and (form == NUMBER or isinstance(value, int))


def parsed(text: bytes) -> Line:
    """The line; a ValueError says what is wrong with it."""
    try:
        line = json.loads(text.decode("utf-8"))
    except UnicodeDecodeError:
        raise ValueError("not UTF-8") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from None
    if not isinstance(line, dict):
        raise ValueError("expected a JSON object")
    for name, form in FIELDS[kind(line)].items():
        if name not in line:
            raise ValueError(f"field '{name}': no such field")
        if not fits(line[name], form):
            expected = form if isinstance(form, str) else " or ".join(map(str, form))
            raise ValueError(f"field '{name}': expected {expected}, found {line[name]!r:.100}")
    if kind(line) == "flow" and (wrong := report_flows.fault(line)):
        raise ValueError(wrong)
    if not isinstance(line.get("machine", {}), dict):
        raise ValueError("field 'machine': expected an object")
    return line


def read(folder: Path) -> list[tuple[str, Line]]:
    """All lines of a folder with their places."""
    files = sorted(path for path in folder.iterdir() if path.suffix in (".jsonl", ".json")) if folder.is_dir() else []
    if not files:
        sys.exit(f"error: {folder}: no *.jsonl or *.json file\n  help: write lines with `millstream-lab bench WORKLOAD "
                 f"--json >> {folder}/lines.jsonl`")
    lines, wrong = [], []
    for path in files:
        for number, text in enumerate(path.read_bytes().split(b"\n"), 1):
            if text.strip():
                try:
                    lines.append((f"{path.name}:{number}", parsed(text)))
                except ValueError as error:
                    wrong.append(f"{path}:{number}: {error}")
    if wrong:
        more = [f"  and {len(wrong) - NAMED_MAX} more"] if len(wrong) > NAMED_MAX else []
        sys.exit("error: " + "\n".join(wrong[:NAMED_MAX] + more))
    if not lines:
        sys.exit(f"error: {folder}: the files have no lines")
    return lines


def data(line: Line) -> tuple[str, int, float]:
    """What was read: rates are compared where this is the same. An exponent of -1 is the workload's own keys."""
    name = line["workload"] + (f", {line['window']}" if line.get("window") else "")
    zipf = line.get("zipf")
    return name, line["records"], -1.0 if zipf is None else float(zipf)


def data_text(of: tuple[str, int, float]) -> str:
    name, records, zipf = of
    return f"{name}, {records:,} records" + (f", z = {zipf:g}" if zipf >= 0 else "")


def by_paper(of: tuple[str, int, float]) -> tuple:
    """The order of workloads in the paper, the rest behind them."""
    return WORKLOADS.index(of[0]) if of[0] in WORKLOADS else len(WORKLOADS), of


def layout(line: Line) -> tuple[int, int]:
    return line["processes"], line["workers"]


def way(line: Line) -> str:
    """Exchange and fabric."""
    fabric = line.get("fabric") if layout(line)[0] > 1 else None
    return f"{EXCHANGES.get(line.get('exchange'), 'late merge')}, {fabric or 'one process'}"


def setup_text(line: Line) -> str:
    processes, workers = layout(line)
    name = "handwritten" if line["engine"] == "handwritten" else way(line)
    return f"{name}, {processes} × {workers}"


# --- numbers --------------------------------------------------------------------------------------

def short(number: float) -> str:
    """Three digits that count."""
    return f"{number:.3g}" if abs(number) < 1000 else f"{number:,.0f}"


def spread(numbers: list[float], pairs: bool = False) -> str:
    if not numbers:
        return ""
    text = short(statistics.median(numbers))
    if len(numbers) > 1:
        text += f" ({short(min(numbers))} to {short(max(numbers))})"
    return text + (f", {len(numbers)}" if pairs else "")


def paired(ours: list[float], theirs: list[float]) -> list[float]:
    """Ratios of the first to the first, the second to the second, and so on."""
    return [a / b for a, b in zip(ours, theirs, strict=False) if b > 0]


def runs(lines: Iterable[Line], key: Callable[[Line], tuple], value: Callable[[Line], float]) -> Runs:
    """Numbers by what they are of, in the order in which they were measured."""
    found: Runs = defaultdict(list)
    for line in sorted(lines, key=lambda line: line.get("date", "")):
        found[key(line)].append(value(line))
    return found


# --- the page -------------------------------------------------------------------------------------

class Page:
    """Markdown, and the plots that it shows."""

    def __init__(self, folder: Path):
        self.folder, self.text, self.plots = folder, [], []

    def say(self, text: str) -> None:
        self.text.append(text + "\n")

    def table(self, head: list[str], rows: list[list[str]]) -> None:
        self.say("\n".join("| " + " | ".join(map(plain, row)) + " |" for row in [head, ["---"] * len(head), *rows]))

    def plot(self, name: str, unit: str, across: str, draw: Callable[[pyplot.Axes], None]) -> None:
        figure, axes = pyplot.subplots(figsize=(9, 4.5), layout="constrained")
        draw(axes)
        # A dollar sign would begin a formula.
        axes.set_title(name.replace("$", r"\$"), wrap=True)
        axes.set(xlabel=across, ylabel=unit, ylim=(0, None))
        axes.legend(fontsize="small", ncols=2)
        axes.spines[["top", "right"]].set_visible(False)
        file = f"{len(self.plots) + 1:02}-{re.sub(r'[^a-z0-9]+', '-', name.lower()).strip('-')[:60]}.png"
        self.plots.append((file, figure))
        self.say(f"![{plain(name)}](plots/{file})")

    def bars(self, name: str, unit: str, across: str, cells: Runs) -> None:
        """`cells`: numbers by group and series; both in the order in which they come."""
        groups = list(dict.fromkeys(group for group, _ in cells))
        series = list(dict.fromkeys(one for _, one in cells))

        def draw(axes: pyplot.Axes) -> None:
            width = 0.8 / len(series)
            for at, one in enumerate(series):
                places = [(number, cells[group, one]) for number, group in enumerate(groups) if (group, one) in cells]
                marks([place + (at - (len(series) - 1) / 2) * width for place, _ in places],
                      [numbers for _, numbers in places],
                      lambda x, y, whiskers, one=one: axes.bar(x, y, width, yerr=whiskers, label=one, capsize=2))
            axes.set_xticks(range(len(groups)), groups)

        self.plot(name, unit, across, draw)

    def curves(self, name: str, unit: str, across: str, cells: Runs, log: bool = False) -> None:
        """`cells`: numbers by place and series."""
        def draw(axes: pyplot.Axes) -> None:
            for one in dict.fromkeys(series for _, series in cells):
                places = sorted(place for place, series in cells if series == one)
                marks(places, [cells[place, one] for place in places],
                      lambda x, y, whiskers, one=one: axes.errorbar(x, y, whiskers, label=one, marker="o", capsize=2))
            if log:
                axes.set_xscale("log", base=2)

        self.plot(name, unit, across, draw)

    def write(self) -> Path:
        """Writes the plots, then the page."""
        (self.folder / "plots").mkdir(exist_ok=True)
        for file, figure in self.plots:
            figure.savefig(self.folder / "plots" / file, dpi=100)
            pyplot.close(figure)
        path = self.folder / "report.md"
        path.write_text("\n".join(self.text), encoding="utf-8")
        return path


def marks(places: list[float], numbers: list[list[float]], draw: Callable) -> None:
    """Medians with whiskers to the least and the greatest."""
    medians = [statistics.median(some) for some in numbers]
    draw(places, medians, [[median - min(some) for median, some in zip(medians, numbers, strict=True)],
                           [max(some) - median for median, some in zip(medians, numbers, strict=True)]])


def plain(text: str) -> str:
    """A text that is no markup."""
    printable = "".join(letter if letter.isprintable() else "?" for letter in str(text))
    return re.sub(r"([|\\`*_\[\]])", r"\\\1", html.escape(printable, quote=False))


# --- jobs -----------------------------------------------------------------------------------------

RATE = "million records/s"


def throughput(page: Page, lines: list[Line]) -> None:
    """The paper's figure 9."""
    lines = [line for line in lines if line["engine"] == "millstream" and line.get("zipf") is None]
    if lines:
        page.say("### Throughput by processes and workers")
    for of in sorted({data(line) for line in lines}, key=by_paper):
        own = sorted((line for line in lines if data(line) == of), key=lambda line: (layout(line), way(line)))
        cells = runs(own, lambda line: ("{} × {}".format(*layout(line)), way(line)), lambda line: line["mrec_per_s"])
        order = {("{} × {}".format(*layout(line)), way(line)): None for line in own}
        page.bars(data_text(of), RATE, "processes × workers of each", {key: cells[key] for key in order})
    ratios(page, lines)


def skew(page: Page, lines: list[Line]) -> None:
    """The paper's figure 10d."""
    lines = [line for line in lines if line["engine"] == "millstream" and line.get("zipf") is not None]
    if lines:
        page.say("### Skewed keys\n\nKeys have a Zipf distribution with exponent z; 0 is uniform.")
    for of in sorted({(data(line)[:2], layout(line)) for line in lines}):
        own = [line for line in lines if (data(line)[:2], layout(line)) == of]
        name = f"{data_text((*of[0], -1.0))}, {of[1][0]} × {of[1][1]}"
        page.curves(name, RATE, "exponent z", runs(own, lambda line: (line["zipf"], way(line)), lambda line: line["mrec_per_s"]))
    ratios(page, lines)


def ratios(page: Page, lines: list[Line]) -> None:
    """Late merge on several processes divided by the rest, run by run."""
    rates = runs(lines, lambda line: (data(line), layout(line), way(line)), lambda line: line["mrec_per_s"])
    rows = []
    for of, (processes, workers), how in sorted(rates):
        exchange, _, fabric = how.rpartition(", ")
        if exchange != "late merge" or processes < 2:
            continue
        others = [(of, (processes, workers), f"repartition, {fabric}"),
                  (of, (processes, workers), f"interleaved repartition, {fabric}"),
                  (of, (1, processes * workers), "late merge, one process")]
        cells = [spread(paired(rates[of, (processes, workers), how], rates.get(other, [])), pairs=True) for other in others]
        if any(cells):
            rows.append([data_text(of), f"{processes} × {workers}, {fabric}", *cells])
    if rows:
        page.say("Ratios of late merge to the rest: runs are paired in the order in which they ran; the median of the "
                 "pairs, the least and the greatest, and the number of pairs.")
        page.table(["data", "processes × workers", "to repartition", "to interleaved",
                    "to one process with as many workers"], rows)


def one_worker(page: Page, lines: list[Line]) -> None:
    """The paper's figure 11: one worker beside the loop that does nothing else."""
    alone = [line for line in lines if layout(line) == (1, 1)]
    rates = runs(alone, lambda line: (data(line), line["engine"]), lambda line: line["mrec_per_s"])
    both = [of for of in sorted({of for of, _ in rates}, key=by_paper)
            if (of, "handwritten") in rates and (of, "millstream") in rates]
    if not both:
        return
    page.say("### One worker against a hand-written loop")
    names = {of: of[0] + (f", z = {of[2]:g}" if of[2] >= 0 else "") for of in both}
    page.bars("One worker", RATE, "workload",
              {(names[of], engine): rates[of, engine] for of in both for engine in ("handwritten", "millstream")})
    page.table(["data", "handwritten", "millstream", "ratio, pairs"],
               [[data_text(of), spread(rates[of, "handwritten"]), spread(rates[of, "millstream"]),
                 spread(paired(rates[of, "millstream"], rates[of, "handwritten"]), pairs=True)] for of in both])


def counts(page: Page, lines: list[Line]) -> None:
    """The paper's table 1."""
    if not lines:
        return
    page.say("### Instructions and cache misses\n\nPer record of the input, without generating it, counted by callgrind, "
             "which knows no AVX-512; misses are those of its simulated caches.")
    columns = ["instructions_per_record", "d1_misses_per_record", "ll_misses_per_record"]
    found = [runs(lines, lambda line: (data(line), ROLES[line["role"]], setup_text(line)), lambda line, name=name: line[name])
             for name in columns]
    page.table(["data", "role", "setup", "instructions", "first-level misses", "last-level misses"],
               [[data_text(key[0]), *key[1:], *(spread(column[key]) for column in found)] for key in sorted(found[0])])


def latency(page: Page, lines: list[Line]) -> None:
    if not lines:
        return
    page.say("### Latency\n\nFrom the watermark that completes a window to the window's last row in a pipe.")
    page.bars("Latency of windows", "µs", "records of the run",
              {(f"{records:,}", name): numbers for name in ("p50", "p99", "max") for (records,), numbers in
               runs(lines, lambda line: (line["records"],), lambda line, name=name: line[f"fire_latency_us_{name}"]).items()})


# --- shuffle and TPC-H ----------------------------------------------------------------------------

def apart_from(line: Line, shown: str) -> str:
    """What shuffles have in common that are compared: all but what the plot shows."""
    parts = [line["pattern"], f"{line['processes']} × {line['threads']}"]
    # Datagrams are shorter: plots by design leave each design its usual length.
    if shown not in ("message_bytes", "straggler_us"):
        parts.append(f"{line['message_bytes']:,} B")
    if shown != "buffers":
        parts += [line["buffers"], f"{short(line['compute_us'])} µs"]
    if shown != "credit_every":
        parts.append(f"f = {line['credit_every']}")
    if line.get("straggler_us") is not None and shown != "straggler_us":
        parts.append(f"a straggler of {short(line['straggler_us'])} µs")
    if line["own"] == "keep":
        parts.append("own tuples kept")
    return ", ".join([*parts, f"{line['tuples']:,} tuples"])


def sets(lines: list[Line], shown: str) -> list[tuple[str, list[Line]]]:
    found: dict[str, list[Line]] = defaultdict(list)
    for line in sorted(lines, key=lambda line: DESIGNS.index(line["design"])):
        found[apart_from(line, shown)].append(line)
    return sorted(found.items())


def differ(lines: list[Line], what: Callable[[Line], object]) -> bool:
    return len({what(line) for line in lines}) > 1


def ordered(lines: list[Line], order: Callable[[Line], tuple], key: Callable[[Line], tuple],
            value: Callable[[Line], float]) -> Runs:
    """As `runs`, with keys in an order."""
    cells = runs(lines, key, value)
    return {of: cells[of] for of in dict.fromkeys(map(key, sorted(lines, key=order)))}


def gb_per_s(line: Line) -> float:
    return line["bytes_per_s"] / 1e9


def place(line: Line) -> int:
    return DESIGNS.index(line["design"])


def shuffles(page: Page, lines: list[Line]) -> None:
    if not lines:
        return
    page.say("### Shuffle\n\nGB/s that a process received, on average. Names have the pattern, processes × threads, and "
             "what else the runs have in common: buffers, microseconds that a receiver computes for each 32 KiB, messages "
             "after which credit is written back (f), and tuples that each process sent.")

    def by(shown: str, across: str, keep: Callable[[list[Line]], bool]) -> None:
        for name, own in sets(lines, shown):
            if keep(own):
                cells = ordered(own, place, lambda line: (line[shown], line["design"]), gb_per_s)
                page.curves(name, "GB/s", across, cells, log=True)

    by("message_bytes", "bytes of a message", lambda own: any(
        all(line.get(field) == value for field, value in PLAIN.items()) for line in own) or any(
        differ([line for line in own if line["design"] == design], lambda line: line["message_bytes"]) for design in DESIGNS))
    by("credit_every", "messages after which credit is written back", lambda own: differ(own, lambda line: line["credit_every"]))
    buffers(page, lines)
    for name, own in sets(lines, "straggler_us"):
        if any(line.get("straggler_us") is not None for line in own):
            page.bars(name, "GB/s", "design", ordered(
                own, lambda line: (line.get("straggler_us") or 0, place(line)),
                lambda line: (line["design"], "all alike" if line.get("straggler_us") is None
                              else f"one of {short(line['straggler_us'])} µs"), gb_per_s))
    page.bars("Set-up: from opening endpoints until they are connected", "ms", "processes × threads", ordered(
        lines, lambda line: (line["processes"], line["threads"], place(line)),
        lambda line: (f"{line['processes']} × {line['threads']}", line["design"]), lambda line: line["setup_seconds"] * 1e3))


def buffers(page: Page, lines: list[Line]) -> None:
    """Adaptive buffers against fixed depths, by compute cost: a plot for each design."""
    def depth(line: Line) -> float:
        number = line["buffers"].partition(":")[2].split(":")[0]
        return -1 if line["buffers"].startswith("adaptive") else int(number) if number.isdigit() else math.inf

    for name, all_of_set in sets(lines, "buffers"):
        for design in DESIGNS:
            own = [line for line in all_of_set if line["design"] == design]
            if differ(own, lambda line: line["buffers"].startswith("adaptive")):
                page.bars(f"{design}: {name}", "GB/s", "microseconds that a receiver computes for each 32 KiB", ordered(
                    own, lambda line: (line["compute_us"], depth(line)),
                    lambda line: (short(line["compute_us"]), line["buffers"]), gb_per_s))


def tpch(page: Page, lines: list[Line]) -> None:
    if not lines:
        return
    page.say("### TPC-H\n\nQueries by DataFusion on several processes, which exchange batches over Flight or over the shuffle "
             "over shared memory, by turns.")
    named: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        named[f"scale {line['scale']:g}, {line['processes']} processes, tables in {line['tables']}, compression "
              f"{line['compression']}"].append(line)
    for name, own in named.items():
        cells = ordered(own, lambda line: (line["query"], place(line)), lambda line: (str(line["query"]), line["design"]),
                        lambda line: line["seconds"])
        flight = ordered(own, lambda line: (line["query"],), lambda line: (str(line["query"]), "Flight"),
                         lambda line: line["flight_seconds"])
        page.bars(name, "s", "query", {**flight, **cells})
        page.bars(name, "times as fast as Flight", "query", ordered(
            own, lambda line: (line["query"], place(line)), lambda line: (str(line["query"]), line["design"]),
            lambda line: line["flight_seconds"] / max(line["seconds"], 1e-6)))


# --- all ------------------------------------------------------------------------------------------

def sources(page: Page, lines: list[Line]) -> None:
    """Commands and dates."""
    dates: dict[str, list[str]] = defaultdict(list)
    for line in lines:
        dates[line.get("command", "millstream-lab bench latency")].append(line.get("date", ""))
    page.say("### Lines")
    page.table(["command", "lines", "date (UTC)"], [
        [command, str(len(all_of_it)), " to ".join(dict.fromkeys([min(all_of_it), max(all_of_it)]))]
        for command, all_of_it in sorted(dates.items())])


def machine_text(line: Line) -> str:
    machine = line.get("machine", {})
    memory = machine.get("memory_bytes")
    size = f", {memory / 1e9:.1f} GB of memory" if isinstance(memory, int) else ""
    return f"{machine.get('processor', 'no machine named')}, {machine.get('cores', '?')} cores{size}, " \
           f"kernel {machine.get('kernel', '?')}"


def write(folder: Path) -> int:
    """Writes the report; 1 if a line is refused."""
    lines = read(folder)
    refused = [f"{place}: refused, since the answer was wrong: {line.get('workload', line.get('design', line.get('figure')))}"
               for place, line in lines if not line.get("ok", True)]
    page = Page(folder)
    page.say("# Millstream: measurements\n\nEvery number comes from runs whose answer was checked. Marks are medians, whiskers "
             "go from the least to the greatest.")
    for text in refused:
        page.say(f"**{plain(text)}**")
    right = [line for _, line in lines if line.get("ok", True)]
    for machine in sorted(set(map(machine_text, right))):
        page.say(f"## {plain(machine)}")
        own = [line for line in right if machine_text(line) == machine]
        of = {name: [line for line in own if kind(line) == name] for name in FIELDS}
        for draw in (throughput, skew, one_worker):
            draw(page, of["job"])
        counts(page, of["counts"])
        latency(page, of["latency"])
        shuffles(page, of["shuffle"])
        tpch(page, of["tpch"])
        report_flows.draw(page, of["flow"], spread)
        sources(page, own)
    path = page.write()
    print(f"{len(lines)} lines, {path}", file=sys.stderr)
    for text in refused:
        print(f"error: {text}", file=sys.stderr)
    return 1 if refused else 0


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    sys.exit(write(Path(sys.argv[1])))

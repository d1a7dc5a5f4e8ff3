"""The figures of flows on the page of tests/report.py: relations as a table, points as curves or bars."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from report import Line, Page

# By figure: the field across, the fields of a series, the field of the value, its unit, and what the unit is of it.
SHAPES = {
    "shuffle-bandwidth": ("tuple_bytes", ["threads"], "bytes_per_s", "GB/s", 1e-9),
    "shuffle-latency": ("targets", ["processes"], "round_trip_ns", "ns", 1),
    "shuffle-scale": ("nodes", ["threads"], "bytes_per_s", "GB/s", 1e-9),
    "replicate-bandwidth": ("tuple_bytes", ["movement", "threads"], "bytes_per_s", "GB/s", 1e-9),
    "replicate-latency": ("targets", ["movement"], "round_trip_ns", "ns", 1),
    "combine": ("tuple_bytes", ["threads"], "bytes_per_s", "GB/s", 1e-9),
    "memory": ("nodes", ["threads"], "mib", "MiB", 1),
    "point-to-point": ("tuple_bytes", ["processes", "threads"], "bytes_per_s", "GB/s", 1e-9),
    "collective": ("tuple_bytes", ["processes"], "bytes_per_s", "GB/s", 1e-9),
    "straggler": ("tuple_bytes", ["straggler_us"], "seconds", "s", 1),
    "join": ("inner_rows", ["join"], "seconds", "s", 1),
    "consensus": ("requests_per_s", ["store"], "mean_us", "µs", 1),
    "point-to-point, compared": ("tuple_bytes", ["way", "processes", "threads"], "median", "million tuples/s", 1),
    "collective, compared": ("tuple_bytes", ["way", "processes"], "median", "million tuples/s", 1),
    "straggler, compared": ("tuple_bytes", ["way"], "median", "s", 1),
    "join, compared": ("processes", ["way"], "median", "s", 1),
    "shuffle, compared": ("tuple_bytes", ["way"], "median", "million tuples/s", 1),
}
FEW = 2


def fault(line: Line) -> str | None:
    """What is wrong with the lists of a line, if anything is."""
    if line["figure"] not in SHAPES:
        return f"field 'figure': there is no figure {line['figure']!r:.100}"
    for name in ("points", "relations"):
        if not (isinstance(line[name], list) and all(isinstance(one, dict) for one in line[name])):
            return f"field '{name}': expected a list of objects"
    across, _, value, _, _ = SHAPES[line["figure"]]
    for point in line["points"]:
        for field in (across, value):
            if not isinstance(point.get(field), int | float) or isinstance(point.get(field), bool):
                return f"field 'points': expected a number '{field}' in each"
    for relation in line["relations"]:
        if not isinstance(relation.get("text"), str) or not isinstance(relation.get("met"), bool):
            return "field 'relations': expected 'text' and 'met' in each"
    return None


def draw(page: Page, lines: list[Line], spread: Callable[[list[float]], str]) -> None:
    # Lines of `--short` have too little data to say anything.
    short, lines = [line for line in lines if line.get("short")], [line for line in lines if not line.get("short")]
    if short:
        page.say(f"Left out are figures of flows that were only tried out, lines of `--short`: {len(short)}.")
    if not lines:
        return
    page.say("### Flows\n\nFigures of Thostrup's thesis (2023, chapter 7). A figure comes from runs between processes, or from a "
             "simulated network whose threads have virtual clocks; a projection that misses runs of 1 or 2 processes by more than "
             "15 % is withheld. Figures that are *compared* have MPI and the shuffle operator beside the flows.")
    found: dict[tuple[str, str], list[dict]] = {}
    for line in lines:
        for relation in line["relations"]:
            found.setdefault((line["figure"], relation["text"]), []).append(relation)
    if found:
        page.table(["figure", "relation", "found", "met"], [
            [figure, text, spread([one["found"] for one in some if isinstance(one.get("found"), int | float)]) or "withheld",
             "yes" if all(one["met"] for one in some) else "**no**"] for (figure, text), some in found.items()])
    for figure in dict.fromkeys(line["figure"] for line in lines):
        across, series, value, unit, scale = SHAPES[figure]
        cells: dict[tuple, list[float]] = {}
        for point in (point for line in lines if line["figure"] == figure for point in line["points"]):
            name = ", ".join(f"{field} {point.get(field)}" for field in series)
            cells.setdefault((point[across], name), []).append(point[value] * scale)
        if not cells:
            continue
        if len({place for place, _ in cells}) > FEW:
            page.curves(f"Flows: {figure}", unit, across.replace("_", " "), cells, log=across == "tuple_bytes")
        else:
            page.bars(f"Flows: {figure}", unit, across.replace("_", " "), {(str(place), name): some for (place, name), some in cells.items()})

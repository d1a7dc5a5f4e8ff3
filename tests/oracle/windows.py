"""The windows of a case: as our SQL writes them, as DuckDB computes them, and a model of one record after the other.

All times are whole microseconds since 1970. A slide, step, size, gap or offset is a number of whole milliseconds.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass


def interval(us: int) -> str:
    """An exact interval literal."""
    if us % 1_000_000 == 0:
        return f"INTERVAL '{us // 1_000_000}' SECOND"
    return f"INTERVAL '{us // 1_000_000}.{us % 1_000_000 // 1000:03}' SECOND"


@dataclass(frozen=True)
class Windows:
    """`kind` is tumble, hop, cumulate or session.

    `unit_us` is the size, the slide, the step or the gap; a size has `count` slides or steps.
    """

    kind: str
    unit_us: int
    offset_us: int = 0
    count: int = 1

    @property
    def size_us(self) -> int:
        """How long after a record the last of its windows ends, at the most."""
        return self.unit_us * self.count

    @property
    def is_session(self) -> bool:
        return self.kind == "session"

    def call(self, source: str, time: str, partition: Sequence[str] = ()) -> str:
        """The table function, in our SQL."""
        lengths = [interval(self.unit_us)] + ([interval(self.size_us)] if self.kind in ("hop", "cumulate") else [])
        shift = [interval(self.offset_us)] if self.offset_us else []
        by = f" PARTITION BY {', '.join(partition)}" if partition else ""
        arguments = ", ".join([f"TABLE {source}{by}", f"DESCRIPTOR({time})", *lengths, *shift])
        return f"TABLE({self.kind.upper()}({arguments}))"

    def open_for(self, us: int, watermark: int | None, lateness_us: int) -> list[tuple[int, int]]:
        """The windows that a record counts for: all that it lies in and for which it is not late. Not of sessions."""
        pane = (us - self.offset_us) // self.unit_us * self.unit_us + self.offset_us
        if self.kind == "cumulate":
            start = (us - self.offset_us) // self.size_us * self.size_us + self.offset_us
            bounds = [(start, start + n * self.unit_us) for n in range(1, self.count + 1)]
            bounds = [each for each in bounds if us < each[1]]
        else:
            bounds = [(pane - n * self.unit_us, pane - n * self.unit_us + self.size_us) for n in range(self.count)]
        return [(start, end) for start, end in bounds if watermark is None or end + lateness_us > watermark]

    def duck(self, source: str, time_us: str, partition: Sequence[str] = ()) -> str:
        """The rows of `source` in each of their windows, in DuckDB's SQL: `start_` and `end_` in microseconds."""
        unit, size = self.unit_us, self.size_us
        if self.is_session:
            by = f"PARTITION BY {', '.join(partition)} " if partition else ""
            # Its bounds are shown to the millisecond.
            millis = lambda us: f"{us} - ({us} % 1000 + 1000) % 1000"  # noqa: E731
            first, end = f"min({time_us}) OVER same", f"(max({time_us}) OVER same + {unit})"
            return (f"SELECT *, {millis(first)} AS start_, {millis(end)} AS end_ FROM "
                    f"(SELECT *, count(*) FILTER (WHERE gap_ > {unit}) OVER ({by}ORDER BY {time_us}) AS n_ "
                    f"FROM (SELECT *, {time_us} - lag({time_us}) OVER ({by}ORDER BY {time_us}) AS gap_ FROM ({source}))) "
                    f"WINDOW same AS ({by.rstrip() + ', ' if by else 'PARTITION BY '}n_)")
        if self.kind == "cumulate":
            start = self.duck_start(time_us, size)
            return (f"SELECT *, {start} AS start_, {start} + i_ * {unit} AS end_ FROM ({source}), "
                    f"range(1, {self.count + 1}) AS r (i_) WHERE {start} + i_ * {unit} > {time_us}")
        start = self.duck_start(time_us, unit)
        return (f"SELECT *, {start} - i_ * {unit} AS start_, {start} - i_ * {unit} + {size} AS end_ "
                f"FROM ({source}), range({self.count}) AS r (i_)")

    def duck_start(self, time_us: str, each_us: int) -> str:
        """When what is so long and has a time in it begins."""
        since = f"({time_us} - {self.offset_us})"
        return f"({time_us} - ({since} % {each_us} + {each_us}) % {each_us})"


def draw(rng: random.Random, tumble: Windows, step_us: int, few: bool) -> Windows:
    """Windows of any kind for records that are about `step_us` apart. With `few`, a record is in few of them."""
    kind = rng.choices(["tumble", "hop", "cumulate", "session"], [3, 3, 2, 3])[0]
    match kind:
        case "tumble":
            return tumble
        case "session":
            gap_us = int(step_us * rng.choice([0.5, 2, 10, 50])) // 1000 * 1000
            return Windows("session", max(gap_us, rng.choice([1_000, 7_000, 1_000_000])))
        case _:
            count = rng.choice([1, 2, 3] if few else [1, 2, 3, 4, 12, 30])
            return Windows(kind, tumble.unit_us, tumble.offset_us, count)

"""One test case from a seed, and the same query over more data."""

import dataclasses
import random

import collected
import ranking
import sets
import windows

from case import Aggregate, Burst, Case
from expressions import BOOL, INT, Column, Expressions, same, template
from queries import composed, ends, partition, query, uppers
from records import EPOCH_2024, columns, data, step_us
from windows import Windows


def make(seed: int) -> Case:
    rng = random.Random(f"millstream {seed}")
    size_us = rng.choice([1_000_000, 2_500_000, 10_000_000, 60_000_000])
    delay_us = rng.choice([0, 1_000_000, 3_000_000, 3_000_000])
    case = Case(
        seed=seed,
        kind=rng.choices(["window", "whole", "stateless"], [80, 10, 10])[0],
        columns=[], rows=[],
        ts_digits=rng.choice([0, 3, 3, 6, 6]),
        delay_us=delay_us,
        lateness_us=rng.choice([0, 0, 0, 2_000_000]),
        windows=Windows("tumble", size_us, rng.choice([0, 0, size_us // 4 // 1000 * 1000])),
    )
    case.columns = columns(rng, case.ts_digits)
    count = rng.choices([0, 1, 2, 40, 400, 2_000, 6_000], [2, 2, 2, 10, 30, 30, 15])[0]
    step = step_us(case.windows, count)
    if case.kind == "window":
        # Chance of its own: the rest of a case does not depend on it.
        case.windows = windows.draw(random.Random(f"windows {seed}"), case.windows, step, few=has_many_rows(seed))
    case.rows = list(data(rng, case, count, step))
    query(rng, case)
    if case.kind != "stateless":
        # Chance of its own: the rest of a case does not depend on it.
        case.uppers = uppers(random.Random(f"stages {seed}"), case)
        graph = random.Random(f"graph {seed}")
        if graph.random() < 0.3:
            case.second_delay_us = graph.choice([0, delay_us, 2 * delay_us + 1_000_000])
        case.side = graph.random() < 0.3
        # Chance of its own, too.
        more = random.Random(f"composed {seed}")
        draw = Expressions(more, case.columns)
        # What a set of statements and a DISTINCT both drop, they may count together.
        drawn = range(more.choice([0, 1, 2]))
        case.aggregates += [composed(more, draw, may_be_distinct=not case.side) for _ in drawn]
    if case.has_sessions():
        partition(random.Random(f"sessions {seed}"), case)
    if case.kind == "stateless":
        decimal = Expressions(random.Random(f"decimals {seed}"), case.columns).arithmetic()
        case.outputs += [decimal] if decimal else []
    else:
        # Chance of its own, each.
        sets.draw(random.Random(f"sets {seed}"), case)
        ranking.draw(random.Random(f"ranking {seed}"), case)
        further(random.Random(f"collected {seed}"), case)
        ends(random.Random(f"ends {seed}"), case)
        case.splits = random.Random(f"splits {seed}").choice([1, 1, 2, 3])
    return case


def further(rng: random.Random, case: Case) -> None:
    """Aggregates of exact arithmetic, and those of `collected`."""
    if case.uppers or (case.ranking and case.ranking.of_records):
        return
    draw = Expressions(rng, case.columns)
    if rng.random() < 0.15 and (decimal := draw.arithmetic()):
        case.aggregates.append(Aggregate(rng.choice(["sum", "avg", "min", "max", "count"]), decimal, None))
    if rng.random() < 0.2:
        case.aggregates.append(Aggregate(rng.choice(["min", "max", "count"]), rng.choice(case.columns).expr(), None))
    if rng.random() < 0.4:
        return
    # Values that rows can be put in order by, if these are.
    plain = case.ranking or case.ordering
    for _ in range(rng.choice([1, 1, 2])):
        functions = [f for f in collected.ORDERED if f != "array_agg" or not plain]
        case.aggregates.append(collected.draw(rng, draw, functions))
    if rng.random() < 0.5 and not plain:
        case.aggregates.append(collected.draw(rng, draw, collected.ESTIMATES))


def has_many_rows(seed: int) -> bool:
    """Whether HAVING of the enlarged case lets all groups of the burst pass."""
    return seed % 16 == 7


def enlarged(case: Case) -> Case:
    """The same query over data in which everything happens that a case is there to withstand.

    First a window with a record, then one that is so far ahead that it fires; then a burst of unique
    keys, for which fragments stop to aggregate, and of repeating ones; then records that are late.
    In between and after that, the case's own records. A further key, `u_`, is NULL except in what is
    added here. WHERE lets all that is added pass, and HAVING one in 64 groups of the burst, but for
    every 16th seed all of them.
    """
    rng = random.Random(f"enlarged {case.seed}")
    own = case.rows or list(data(rng, case, 40, step_us(case.windows, 40)))
    u = Column("u_", INT, "BIGINT", "BIGINT")
    large = dataclasses.replace(case, columns=[*case.columns, u], rows=[[*row, None] for row in own])
    half, unit = len(own) // 2, 10 ** max(0, 6 - case.ts_digits)
    times = [row[0] for row in own[:half] if row[0] is not None] or [EPOCH_2024]
    first, behind, size_us = max(times), case.delay_us + case.lateness_us, case.windows.size_us
    ahead = (first + 3 * size_us + behind) // unit * unit + unit
    model = [rng.choice(own) for _ in range(7)]
    added = lambda ts, key: [[ts, *rng.choice(model)[1:], key]]  # noqa: E731
    late = [row for n in (1, 2, 3)
            for row in added((ahead - n * size_us - behind) // unit * unit, -n)]
    large.rows[half:half] = added(first, -4) + added(ahead, -5) + late
    large.burst = Burst(half + 2, ahead, model)
    ours = [template("({0}) OR u_ IS NOT NULL", BOOL, f) if f else None
            for f in (case.where, case.view_where)]
    large.where, large.view_where = ours
    large.window_where = None
    large.keys = [*case.keys, u.expr()]
    large.shown = [*case.shown, len(case.keys)]
    if case.has_sessions() and len(case.partition) == len(case.keys):
        # Otherwise, all records of the burst that have these keys are of one session.
        large.partition = [*case.partition, u.expr()]
    if case.sets:
        large.sets = case.sets.enlarged(rng, len(case.keys))
    if case.ordering:
        large.ordering = dataclasses.replace(case.ordering, limit=None, offset=0)
    sample = same("COALESCE(u_, 0) % 64 = 0", BOOL)
    if case.ranking and case.ranking.of_records:
        large.outputs = [*case.outputs, u.expr()]
        large.ranking = dataclasses.replace(case.ranking, after=sample)
    elif not has_many_rows(case.seed):
        large.having = template("({0}) AND {1}", BOOL, case.having, sample) if case.having else sample
    return large

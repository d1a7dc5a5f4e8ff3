"""The records of a case: columns, disorder, NULLs, values at the edges."""

import datetime as dt
import math
import random
from decimal import Decimal

from case import EPOCH, Case
from expressions import BOOL, BYTES, DATE, DOUBLE, FLOAT, INT, STRING, STRINGS, Column, Type
from windows import Windows

EPOCH_2024 = 1_704_067_200_000_000
STARTS = ["2024-01-01 00:00:00", "1969-12-31 23:58:00", "1901-05-05 12:34:56", "2024-02-29 23:50:00"]


def columns(rng: random.Random, ts_digits: int) -> list[Column]:
    digits = rng.choice([0, 3, 6])
    scale = rng.choice([2, 2, 5])
    optional = [
        Column("tiny", INT, "TINYINT", "BIGINT"),
        Column("small", INT, "SMALLINT", "BIGINT"),
        Column("Mixed", INT, "INT", "BIGINT"),
        Column("d", DOUBLE, "DOUBLE", "DOUBLE"),
        Column("f", FLOAT, "FLOAT", "FLOAT"),
        Column("m", Type("decimal", scale), f"DECIMAL(14, {scale})", f"DECIMAL(14, {scale})"),
        Column("flag", BOOL, "BOOLEAN", "BOOLEAN"),
        Column("day_", DATE, "DATE", "DATE"),
        Column("at_", Type("timestamp", digits), f"TIMESTAMP({digits})", "TIMESTAMP"),
        Column("s", STRING, "STRING", "VARCHAR"),
        Column("raw_", BYTES, "BYTES", "BLOB"),
    ]
    chosen = [c for c in optional if rng.random() < 0.6]
    # The event time comes first in `Case.rows`; its place in the file is drawn when it is written.
    ts = Column("ts", Type("timestamp", ts_digits), f"TIMESTAMP({ts_digits})", "TIMESTAMP")
    return [ts, Column("b", INT, "BIGINT", "BIGINT"), *chosen]


def times(rng: random.Random, case: Case, step: int, late_rate: float, edge_rate: float):
    """Event times in microseconds without end: bounded disorder, some beyond it, some at edges."""
    windows = case.windows
    start = dt.datetime.fromisoformat(rng.choice(STARTS))
    now = top = (start - EPOCH) // dt.timedelta(microseconds=1)
    unit = 10 ** max(0, 6 - case.ts_digits)
    behind = case.delay_us + case.lateness_us
    while True:
        now += rng.choice([0, step, step, 2 * step])
        if windows.is_session and rng.random() < 0.02:
            now += rng.choice([windows.unit_us, 5 * windows.unit_us])
        ts = now - rng.randint(0, case.delay_us)
        if rng.random() < late_rate:
            ts -= rng.randint(0, 2 * windows.size_us + 2 * case.delay_us)
        if rng.random() < 0.05:  # exactly at a window's edge, or just before it
            ts = (ts - windows.offset_us) // windows.unit_us * windows.unit_us + windows.offset_us
            ts -= rng.choice([0, unit])
        elif rng.random() < edge_rate:
            # Brings the watermark exactly to the end of a window, or just short of it; then comes the
            # last record that could belong to that window.
            edge = -((windows.offset_us + behind - top) // windows.unit_us) * windows.unit_us + windows.offset_us
            ts = edge + behind - rng.choice([0, unit])
            now = max(now, ts)
            top = max(top, ts // unit * unit)
            yield ts // unit * unit
            ts = edge - unit
        ts = ts // unit * unit
        top = max(top, ts)
        yield ts


def step_us(windows: Windows, count: int) -> int:
    """How far apart so many records are."""
    return 12 * windows.unit_us // max(count, 12)


def data(rng: random.Random, case: Case, count: int, step: int):
    """Rows as Python values."""
    null_rate = rng.choice([0, 0.02, 0.2])
    few = rng.choice([2, 5, 40, 5_000])
    kinds = [(c, rng.choice([few, 3, 1_000])) for c in case.columns[1:]]
    special_rate = rng.choice([0, 0, 0.02])
    edge_rate = rng.choice([0, 0.02, 0.02])
    stream = times(rng, case, step, rng.choice([0, 0.01, 0.1]), edge_rate)
    for _, ts in zip(range(count), stream):
        row = [None if null_rate and rng.random() < null_rate / 4 else ts]
        for column, spread in kinds:
            if rng.random() < null_rate:
                row.append(None)
            elif column.type.kind in ("double", "float") and rng.random() < special_rate:
                row.append(rng.choice([math.nan, math.inf, -math.inf]))
            else:
                row.append(value(rng, column, spread))
        yield row


def value(rng: random.Random, column: Column, spread: int):
    n = rng.randrange(spread)
    match column.type.kind:
        case "int":
            return {"tiny": n % 255 - 127,  # ABS(-128) would overflow
                     "small": n - 2}.get(column.name, n - spread // 3)
        case "double":
            # Decimal fractions, magnitudes that make naive sums depend on their order, signed zero.
            return rng.choice([n / 10, n / 1000, -n / 7, n * 1e12 + 0.1, -n * 1e12, -0.0, 0.1, 1e-9])
        case "float":
            return rng.choice([n / 8, -n / 4, 0.5, 0.1])
        case "decimal":
            return Decimal(n - spread // 3).scaleb(-column.type.scale)
        case "bool":
            return rng.random() < 0.5
        case "date":
            return dt.date(2024, 2, 20) + dt.timedelta(days=n % 60 - 30)
        case "timestamp":
            us = n * 777_000_001 % 7_200_000_000
            unit = 10 ** (6 - column.type.scale)
            return dt.datetime(2024, 1, 1) + dt.timedelta(microseconds=us // unit * unit)
        case "string":
            return rng.choice(STRINGS) if spread < 100 else f"user-{n:05}"
        case _:
            return bytes([n % 256, n // 256 % 256]) if n % 5 else b"\x00"


def timestamp_text(us: int, digits: int) -> str:
    seconds, fraction = divmod(us, 1_000_000)
    text = (EPOCH + dt.timedelta(seconds=seconds)).isoformat(" ")
    return text + ("." + f"{fraction:06}000"[:digits] if digits else "")

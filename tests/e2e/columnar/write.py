"""Writes the files of this folder with pyarrow, an implementation of both formats other than the one that reads them.

Row n of ROWS has the number n, the text "text n" (NULL where n divides by 5), one of three names, n quarters and the
n-th day of 2024 as its time. `test_columnar.py` works the same rows out.
"""

from datetime import datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

ROWS = 40
HERE = Path(__file__).resolve().parent


def rows(first: int, last: int) -> pa.Table:
    numbers = range(first, last)
    texts = [f"text {n}" if n % 5 else None for n in numbers]
    times = [datetime(2024, 1, 1, tzinfo=timezone.utc) + timedelta(days=n) for n in numbers]
    return pa.table({
        "n": pa.array(numbers, pa.uint32()),
        "text": pa.array(texts, pa.large_string()),
        "view": pa.array(texts, pa.string_view()),
        "name": pa.array([f"name {n % 3}" for n in numbers]).dictionary_encode(),
        "price": pa.array([Decimal(n) / 4 for n in numbers], pa.decimal256(9, 2)),
        "ts": pa.array([time.replace(tzinfo=None) for time in times], pa.timestamp("s")),
        "at": pa.array(times, pa.timestamp("ns", "Europe/Berlin")),
        "day": pa.array([time.date() for time in times], pa.date64()),
        "unread": pa.array([[n] for n in numbers], pa.list_(pa.int8())),
    })


def main() -> None:
    table = rows(0, ROWS)
    for name, writer, packing in [("file", pa.ipc.new_file, "zstd"), ("plain", pa.ipc.new_file, None),
                                  ("stream", pa.ipc.new_stream, "lz4")]:
        options = pa.ipc.IpcWriteOptions(compression=packing, emit_dictionary_deltas=name == "stream")
        with writer(HERE / f"{name}.arrow", table.schema, options=options) as out:
            # Of a stream, each batch brings its own dictionary.
            parts = [rows(0, 2), rows(2, ROWS)] if name == "stream" else [table]
            for part in parts:
                out.write_table(part, max_chunksize=25)
    flat = table.drop_columns(["unread"])
    pq.write_table(flat, HERE / "pages.parquet", write_page_index=True, row_group_size=25, data_page_size=64)
    pq.write_table(flat, HERE / "instants.parquet", use_deprecated_int96_timestamps=True, use_dictionary=False,
                   compression="none")


if __name__ == "__main__":
    main()

"""The data of a case in other formats than CSV: NDJSON, Parquet, Arrow IPC, and CSV that is packed.

A query gives the same bytes whatever the format is. So a file stays one file: which records are late is decided for
each file by itself. Python writes NDJSON; DuckDB writes Parquet, from the CSV files; pyarrow writes Arrow IPC.
"""

import bz2
import gzip
import json
import random
from pathlib import Path

import duckdb
import pyarrow
import pyarrow.parquet
import script
from case import Case
from expressions import Column
from script import field_text

# How often each is drawn.
FORMATS = {"csv": 3, "ndjson": 3, "gzip": 1, "zstd": 1, "bzip2": 0.5, "parquet": 3, "arrow": 3}
# What is decoded by row groups, record batches, or 64 Ki rows: batches need not be small.
COLUMNAR = ("parquet", "arrow")


def draw(rng: random.Random, small_batches: bool) -> str:
    """A format for a run."""
    drawn = rng.choices(list(FORMATS), list(FORMATS.values()))[0]
    return "ndjson" if drawn in COLUMNAR and small_batches else drawn


def write(case: Case, folder: Path, form: str) -> Path:
    """Writes the case's data in a format, and a script that reads it, if they are not there; returns the script.

    The CSV files are there, and their script.
    """
    path = folder / f"query-{form}.sql"
    if form == "csv":
        return folder / "query.sql"
    if not path.exists():
        rng = random.Random(f"{form} {case.seed}")
        for stem in case.files():
            WRITERS[form](case, folder, stem, rng)
        path.write_text(script.sql(case, lambda *a: table(*a, form)), encoding="utf-8")
    return path


def table(case: Case, name: str, stem: str, delay_us: int, form: str) -> str:
    """The statement that declares one of the files."""
    suffix, option = {"ndjson": ("ndjson", "ndjson"), "parquet": ("parquet", "parquet"),
                      "arrow": ("arrow", "arrow"), "gzip": ("csv.gz", "csv"), "bzip2": ("csv.bz2", "csv"),
                      "zstd": ("csv.zst", "csv")}[form]
    text = script.table(case, name, f"{stem}.{suffix}", delay_us, option)
    for column in case.columns if form in COLUMNAR else ():
        if is_seconds(column):
            text = text.replace(f"    {column.name} {column.declared},\n",
                                f"    {column.name}_us TIMESTAMP(6),\n"
                                f"    {column.name} AS CAST({column.name}_us AS {column.declared}),\n")
    return text


# NDJSON ------------------------------------------------------------------------------------------


def write_ndjson(case: Case, folder: Path, stem: str, rng: random.Random) -> None:
    """Members in an order of their own. A NULL is `null`, or left out."""
    order = list(case.columns)
    rng.shuffle(order)
    absent, ascii_only = rng.random() < 0.5, rng.random() < 0.5
    at = {column.name: i for i, column in enumerate(case.columns)}

    def line(row: list) -> str:
        members = [(c.name, json_text(row[at[c.name]], c, ascii_only)) for c in order]
        return "{%s}\n" % ", ".join(f'"{n}": {v}' for n, v in members if v != "null" or not absent)

    with open(folder / f"{stem}.ndjson", "w", encoding="utf-8", newline="") as file:
        file.writelines(text for number, text in script.lines(case, line) if case.files()[number] == stem)


def json_text(value: object, column: Column, ascii_only: bool) -> str:
    """A JSON value. What is neither a number nor a boolean is a string, written as in CSV."""
    if value is None:
        return "null"
    if column.type.kind == "string":
        return json.dumps(value, ensure_ascii=ascii_only)
    text = field_text(value, column)
    is_plain = column.type.kind in ("int", "double", "float", "decimal", "bool") and text.lstrip("-")[0] not in "NI"
    return text if is_plain else f'"{text}"'


# Parquet -----------------------------------------------------------------------------------------


def is_seconds(column: Column) -> bool:
    """Whether DuckDB cannot say the type in Parquet: it writes whole seconds as microseconds."""
    return column.type.kind == "timestamp" and column.type.scale == 0


def write_parquet(case: Case, folder: Path, stem: str, rng: random.Random) -> None:
    """All columns with their own types, in row groups of a random size."""
    outputs = [parquet_column(c) for c in case.columns]
    rng.shuffle(outputs)
    codec, rows = rng.choice(["snappy", "zstd", "gzip", "uncompressed"]), rng.choice([2048, 4096, 122_880])
    version = rng.choice(["V1", "V2"])
    db = duckdb.connect()
    # With one thread the order of the records stays what it is.
    db.execute("SET threads = 1")
    db.execute(
        f"COPY (SELECT {', '.join(outputs)} FROM read_csv('{folder}/{stem}.csv', header = true, all_varchar = true, "
        "auto_detect = false, "
        f"columns = {csv_columns(folder / f'{stem}.csv')}, delim = ',', quote = '\"', escape = '\"', nullstr = '', "
        f"allow_quoted_nulls = false)) TO '{folder}/{stem}.parquet' "
        f"(FORMAT parquet, ROW_GROUP_SIZE {rows}, COMPRESSION {codec}, PARQUET_VERSION {version})")


def csv_columns(path: Path) -> dict[str, str]:
    """The columns of a file that begins with a header."""
    with open(path, encoding="utf-8") as file:
        return dict.fromkeys(file.readline().rstrip("\n").split(","), "VARCHAR")


def parquet_column(column: Column) -> str:
    name, kind = f'"{column.name}"', column.type.kind
    if kind == "bytes":
        return f"from_base64({name}) AS {name}"
    if is_seconds(column):
        return f'{name}::TIMESTAMP AS "{column.name}_us"'
    units = {3: "TIMESTAMP_MS", 6: "TIMESTAMP", 9: "TIMESTAMP_NS"}
    type_ = units[column.type.scale] if kind == "timestamp" else column.declared.replace("BYTES", "BLOB")
    return f"{name}::{type_} AS {name}"


def write_arrow(case: Case, folder: Path, stem: str, rng: random.Random) -> None:
    """What Parquet has, as a file or a stream, in record batches of a random size."""
    write_parquet(case, folder, stem, rng)
    rows = pyarrow.parquet.read_table(folder / f"{stem}.parquet")
    opened = rng.choice([pyarrow.ipc.new_file, pyarrow.ipc.new_stream])
    options = pyarrow.ipc.IpcWriteOptions(compression=rng.choice([None, "lz4", "zstd"]))
    with opened(folder / f"{stem}.arrow", rows.schema, options=options) as file:
        file.write_table(rows, max_chunksize=rng.choice([100, 5_000, 1 << 20]))


# Packed CSV --------------------------------------------------------------------------------------


def write_zstd(case: Case, folder: Path, stem: str, rng: random.Random) -> None:
    """One frame or two."""
    text = (folder / f"{stem}.csv").read_bytes()
    cut = rng.choice([0, rng.randrange(len(text))])
    parts = [part for part in (text[:cut], text[cut:]) if part]
    packed = [pyarrow.compress(part, codec="zstd", asbytes=True) for part in parts]
    (folder / f"{stem}.csv.zst").write_bytes(b"".join(packed))


def write_gzip(case: Case, folder: Path, stem: str, rng: random.Random) -> None:
    """Several members, cut anywhere."""
    text = (folder / f"{stem}.csv").read_bytes()
    cuts = sorted(rng.randrange(len(text)) for _ in range(rng.choice([0, 1, 3])))
    with open(folder / f"{stem}.csv.gz", "wb") as file:
        for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
            file.write(gzip.compress(text[start:end], rng.choice([1, 6])))


def write_bzip2(case: Case, folder: Path, stem: str, rng: random.Random) -> None:
    text = (folder / f"{stem}.csv").read_bytes()
    (folder / f"{stem}.csv.bz2").write_bytes(bz2.compress(text, rng.choice([1, 9])))


WRITERS = {"ndjson": write_ndjson, "parquet": write_parquet, "arrow": write_arrow,
           "gzip": write_gzip, "bzip2": write_bzip2, "zstd": write_zstd}

"""A case written down: its records as CSV, and its query in Millstream's dialect."""

import base64
import datetime as dt
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

from case import EPOCH, Case, declared, output_columns, ranked_columns, window_columns
from expressions import Column
from records import timestamp_text
from windows import interval


# Stands for a burst's key in the text of its records: a number that occurs nowhere else.
MARK = 808080808080808080


def field_text(value, column: Column) -> str:
    """A CSV field; NULL is empty, the empty string is quoted."""
    if value is None:
        return ""
    match column.type.kind:
        case "timestamp":
            if isinstance(value, dt.datetime):
                value = (value - EPOCH) // dt.timedelta(microseconds=1)
            return timestamp_text(value, column.type.scale)
        case "bool":
            return "true" if value else "false"
        case "bytes":
            return base64.b64encode(value).decode()
        case "string" if value == "" or any(c in value for c in ',"\n\r'):
            return '"' + value.replace('"', '""') + '"'
        case "double" | "float":
            return repr(value).replace("nan", "NaN").replace("inf", "Infinity")
        case _:
            return str(value)


def lines(case: Case, line: Callable[[list], str]) -> Iterator[tuple[int, str]]:
    """All records as `line` writes a row, and the number of the file that each is in."""
    for i, row in enumerate(case.rows):
        if case.burst and i == case.burst.at:
            forms = [line([case.burst.ts, *t[1:], MARK]) for t in case.burst.templates]
            for n, key in enumerate(case.burst.keys()):
                yield 0, forms[n % len(forms)].replace(str(MARK), str(key), 1)
        yield case.file_of(i), line(row)


def write(case: Case, folder: Path) -> Path:
    """Writes the case's files as CSV, and query.sql; returns the latter's path."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = random.Random(case.seed)
    order = list(range(len(case.columns)))
    rng.shuffle(order)
    with ExitStack() as stack:
        opened = lambda stem: open(folder / f"{stem}.csv", "w", encoding="utf-8", newline="")  # noqa: E731
        files = [stack.enter_context(opened(stem)) for stem in case.files()]
        for each in files:
            each.write(",".join(case.columns[i].name for i in order) + "\n")
        line = lambda row: ",".join(field_text(row[i], case.columns[i]) for i in order) + "\n"  # noqa: E731
        for file, text in lines(case, line):
            files[file].write(text)
    path = folder / "query.sql"
    path.write_text(sql(case), encoding="utf-8")
    return path


def csv_table(case: Case, name: str, stem: str, delay_us: int) -> str:
    return table(case, name, f"{stem}.csv", delay_us, "csv")


def table(case: Case, name: str, path: str, delay_us: int, form: str) -> str:
    declared = "".join(f"    {c.name} {c.declared},\n" for c in case.columns)
    delay = f" - {interval(delay_us)}" if delay_us else ""
    return (f"CREATE TABLE {name} (\n{declared}    WATERMARK FOR ts AS ts{delay}\n) WITH ("
            f"'connector' = 'file', 'path' = '{path}', 'format' = '{form}');\n\n")


def sql(case: Case, declare: Callable[[Case, str, str, int], str] = csv_table) -> str:
    """The whole script in Millstream's dialect. `declare` writes the statement for a table: its name, the name of its
    files without a suffix, the delay of its watermark."""
    data = "data" if case.splits == 1 else "data-*"
    if case.second_delay_us is None:
        text = declare(case, "events", data, case.delay_us)
    else:
        text = declare(case, "events1", data, case.delay_us)
        text += declare(case, "events2", "second", case.second_delay_us)
        text += "CREATE VIEW events AS SELECT * FROM events1 UNION ALL SELECT * FROM events2;\n\n"
    if case.lateness_us:
        text += f"SET 'allowed_lateness' = '{case.lateness_us} us';\n\n"
    source = "events"
    computed = [f"{key.ours} AS {case.keys[i].ours}" for i, key in enumerate(case.partition)
                if key.ours != case.keys[i].ours]
    if case.view_where or computed:
        source = "some_events"
        kept = f" WHERE {case.view_where.ours}" if case.view_where else ""
        text += f"CREATE VIEW some_events AS SELECT {', '.join(['*', *computed])} FROM events{kept};\n\n"
    conditions = [f.ours for f in (case.where, case.window_where) if f]
    where = f"\nWHERE ({') AND ('.join(conditions)})" if conditions else ""
    if case.kind == "stateless":
        names = ", ".join(f"{e.ours} AS c{i}" for i, e in enumerate(case.outputs))
        limit = f"\nLIMIT {case.limit} OFFSET {case.offset}" if case.limit is not None else ""
        return text + f"SELECT {names}\nFROM {source}{where}{limit};\n"
    outputs = [f"{case.keys[i].ours} AS k{i}" for i in case.shown]
    outputs += [f"{a.ours()} AS a{i}" for i, a in enumerate(case.aggregates)]
    names = [k.ours for k in case.keys]
    groups, partition = case.sets.groups(names) if case.sets else names, []
    if case.kind == "window":
        # What the rows above call it.
        outputs[:0] = WINDOW if case.uppers else window_columns(case)
        groups = ["window_start", "window_end", *groups]
        partition = [key.ours for key in case.keys[:len(case.partition)]]
        source = case.windows.call(source, "ts", partition)
    side = f"SELECT {'window_start, ' if case.kind == 'window' else ''}COUNT(*)\nFROM {source}{where}"
    if case.kind == "window":
        side += f"\nGROUP BY {', '.join(['window_start', 'window_end', *partition])}"
    if case.uppers and case.kind == "window":
        groups.append("window_time")
    query = f"SELECT {', '.join(outputs)}\nFROM {source}{where}"
    if case.ranking and case.ranking.of_records:
        query, groups = case.ranking.records(case, source, where), []
    if groups:
        query += f"\nGROUP BY {', '.join(groups)}"
    if case.having and not (case.ranking and case.ranking.of_records):
        query += f"\nHAVING {case.having.ours}"
    for level in range(len(case.uppers)):
        text += f"CREATE VIEW level{level} AS\n{query};\n\n"
        query = upper_sql(case, level)
    if case.ranking and not case.ranking.of_records:
        query = case.ranking.ours(query, list(ranked_columns(case)))
    if case.ordering:
        query += case.ordering.ours()
    if not case.side:
        return f"{text}{query};\n"
    shown = "".join(f", {name} {declared(type_)}" for name, type_ in output_columns(case).items())
    counted = f"{'window_start TIMESTAMP(3), ' if case.kind == 'window' else ''}n BIGINT"
    return (f"{text}CREATE TABLE shown ({shown[2:]}) WITH ('connector' = 'print');\n"
            f"CREATE TABLE side ({counted}) WITH ('connector' = 'file', 'path' = 'side', 'format' = 'csv', "
            f"'csv.header' = 'false');\n\nEXECUTE STATEMENT SET BEGIN\nINSERT INTO shown {query};\n"
            f"INSERT INTO side {side};\nEND;\n")


WINDOW = ["window_start AS ws_", "window_end AS we_", "window_time AS wt_"]


def upper_sql(case: Case, level: int) -> str:
    """One of the aggregations above the first, which keeps its window if there is another one above it."""
    upper, is_last = case.uppers[level], level + 1 == len(case.uppers)
    source, window = f"level{level}", []
    if upper.kind == "window":
        source = upper.windows.call(source, "wt_", upper.keys if upper.windows.is_session else [])
        window = ["window_start", "window_end", "window_time"]
    elif upper.kind == "again":
        window = ["ws_", "we_", "wt_"]
    named = [f"{name} AS {of}" for name, of in zip(window, ["ws_", "we_", "wt_"], strict=False)]
    if is_last:
        place = {"window_start": 0, "window_end": 1}
        named = [f"{window[place[name]]} AS {name}" for name in window_columns(case)]
    results = [f"{call} AS {name}" for call, name in zip(upper.calls(), upper.results(level), strict=True)]
    shown = named + upper.keys + results
    text = f"SELECT {', '.join(shown)}\nFROM {source}"
    if upper.where:
        text += f"\nWHERE {upper.where}"
    groups = (window[:2] if is_last else window) + upper.keys
    return text + (f"\nGROUP BY {', '.join(groups)}" if groups else "")

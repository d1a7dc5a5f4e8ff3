"""`millstream test`: what passes, and what a failure says."""

import os
import re
import socket
from pathlib import Path

import harness
import pytest

QUERY = """CREATE TABLE clicks (ts TIMESTAMP(3), page STRING, WATERMARK FOR ts AS ts)
WITH ('connector' = 'http', 'listen' = '127.0.0.1:1', 'format' = 'ndjson');

SELECT window_start, window_end, page, COUNT(*) AS n
FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY window_start, window_end, page;
"""
CLICKS = """ts,page
2024-01-01 00:00:01,a
2024-01-01 00:00:02,b
2024-01-01 00:00:09,a
2024-01-01 00:00:11,a
"""
FIRST = "2024-01-01 00:00:00.000,2024-01-01 00:00:10.000"
SECOND = "2024-01-01 00:00:10.000,2024-01-01 00:00:20.000"
# By hand.
ROWS = [f"{FIRST},a,2", f"{FIRST},b,1", f"{SECOND},a,1"]
HEADER = "window_start,window_end,page,n"


def expect(*rows: str, header: str = HEADER) -> str:
    return "\n".join([header, *rows]) + "\n"


def case(folder: Path, **files: str) -> Path:
    """A directory with a case: the one above, with other files if any are given (`None`: not at all)."""
    texts = {"query.sql": QUERY, "clicks.csv": CLICKS, "expected.csv": expect(*ROWS)}
    texts |= {name.replace("__", "."): text for name, text in files.items()}
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        if text is not None:
            (folder / name).write_text(text)
    return folder


def judge(*words: object, code: int = 0) -> str:
    """What `millstream test` prints."""
    done = harness.run("test", *words, stats=False)
    assert harness.sound(done) == []
    assert done.code == code, f"{done.stdout.decode()}\n{done.stderr}"
    assert code == 2 or done.stderr == "", done.stderr
    return done.stdout.decode() if code < 2 else done.stderr


def test_a_case_runs_in_many_ways(tmp_path):
    folder = case(tmp_path / "per_page")
    assert judge(folder) == f"ok    {folder} (17 runs)\n1 passed, 0 failed\n"
    # The plain one, six others, three drawn by chance.
    assert "(10 runs)" in judge(folder, "--seeds", 3, "--processes", 1)
    assert "(1 run)" in judge(folder, "--quick")
    assert judge(folder / "query.sql", "--quick").startswith("ok")


def test_rows_may_be_expected_in_any_order(tmp_path):
    judge(case(tmp_path, expected__csv=expect(*reversed(ROWS))), "--quick")
    judge(case(tmp_path, expected__csv=expect(*ROWS).replace("\n", "\r\n")), "--quick")


def test_order_counts_where_the_query_has_one(tmp_path):
    query = QUERY.replace("page;", "page ORDER BY window_start, page DESC;")
    judge(case(tmp_path, query__sql=query, expected__csv=expect(ROWS[1], ROWS[0], ROWS[2])))
    told = judge(case(tmp_path, query__sql=query, expected__csv=expect(*ROWS)), code=1)
    assert "another order, from row 1 on (expected.csv:2)" in told
    assert f"- {ROWS[0]}" in told and f"+ {ROWS[1]}" in told


@pytest.mark.parametrize("rows, told", [
    # A wrong row.
    ([f"{FIRST},a,3", *ROWS[1:]],
     [f"- {FIRST},a,3  (expected.csv:2)", f"+ {FIRST},a,2  (row 1)", "n: 3 expected, 2 came", "1 row did not come"]),
    # A row too few: one came that is not expected.
    (ROWS[:2], [f"+ {SECOND},a,1  (row 3)", "window 2024-01-01 00:00:10.000 to 2024-01-01 00:00:20.000"]),
    # A row too many.
    ([*ROWS, f"{SECOND},b,1"], [f"- {SECOND},b,1  (expected.csv:5)", "1 row did not come (-), 0 rows not expected"]),
    # A row twice.
    ([*ROWS, ROWS[0]], [f"- {ROWS[0]}  (expected.csv:5)"]),
])
def test_a_difference_names_window_and_row(tmp_path, rows, told):
    text = judge(case(tmp_path, expected__csv=expect(*rows)), code=1)
    assert text.startswith(f"FAIL  {tmp_path}\n") and text.endswith("0 passed, 1 failed\n")
    for part in told:
        assert part in text, text


def test_other_columns_are_told(tmp_path):
    text = judge(case(tmp_path, expected__csv="page,n\na,2\n"), code=1)
    assert f"the columns differ, expected.csv:1\n        - page,n\n        + {HEADER}" in text


def test_rows_without_a_window_have_a_place(tmp_path):
    query = "CREATE TABLE clicks (page STRING) WITH ('connector' = 'stdin', 'format' = 'csv');\n" \
            "SELECT page, COUNT(*) AS n FROM clicks GROUP BY page;\n"
    text = judge(case(tmp_path, query__sql=query, expected__csv="page,n\na,3\nb,2\n"), code=1)
    assert "window " not in text
    assert "- b,2  (expected.csv:3)\n        + b,1  (row 2)\n            n: 2 expected, 1 came" in text


def test_what_is_wrong_with_a_query_or_its_input_is_told(tmp_path):
    text = judge(case(tmp_path / "a", query__sql=QUERY.replace("page,", "pag,", 1)), code=1)
    assert "a/query.sql:" in text and "page" in text
    text = judge(case(tmp_path / "b", clicks__csv=CLICKS + "nonsense,a\n"), code=1)
    assert re.search(r"clicks\.csv:6", text) and "nonsense" in text
    folder = case(tmp_path / "c", clicks__csv=None)
    (folder / "cliks.csv").write_text(CLICKS)
    text = judge(folder, "--timeout", 5, code=1)
    assert "table 'clicks' has no clicks.csv" in text and "c/query.sql:1:14" in text and "no end after" not in text
    assert "there is a file for 'cliks', and no such table" in text
    assert "expected whole seconds, 1 or more" in judge(folder, "--timeout", 0, code=2)


@pytest.mark.parametrize("options", [
    "'connector' = 'http', 'listen' = '127.0.0.1:{port}', 'format' = 'csv'",
    "'connector' = 'socket', 'listen' = '127.0.0.1:{port}', 'format' = 'csv'",
    "'connector' = 'stdin', 'format' = 'csv'",
    "'connector' = 'datagen', 'rows-per-second' = '1'"])
def test_what_does_not_end_is_not_opened(tmp_path, options):
    """A port that is in use: whoever listens to it would say so."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        options = options.format(port=taken.getsockname()[1])
        query = f"CREATE TABLE clicks (page STRING) WITH ({options});\nSELECT page FROM clicks;\n"
        text = judge(case(tmp_path, query__sql=query, clicks__csv=None), "--timeout", 20, code=1)
    assert "table 'clicks' has no clicks.csv" in text and "clicks.ndjson beside query.sql" in text


def test_what_ends_needs_no_file(tmp_path):
    query = "CREATE TABLE clicks (n BIGINT) WITH ('connector' = 'datagen', 'number-of-rows' = '3');\n" \
            "SELECT COUNT(*) AS n FROM clicks;\n"
    folder = case(tmp_path, query__sql=query, clicks__csv=None, expected__csv="n\n3\n")
    assert judge(folder, "--quick").startswith("ok")


def test_a_file_for_no_table_is_refused(tmp_path):
    text = judge(case(tmp_path, clicsk__csv=CLICKS), code=1)
    assert "clicsk.csv: " in text and "declares no table 'clicsk'" in text and "did you mean 'clicks'?" in text


def test_missing_files_are_told(tmp_path):
    folder = case(tmp_path / "cases" / "one", expected__csv=None)
    text = judge(folder, code=1)
    assert f"there is no {folder}/expected.csv" in text and "--update" in text
    assert "there is no test in" in judge(case(tmp_path / "two", query__sql=None), code=2)
    assert "cannot read" in judge(tmp_path / "nowhere", code=2)
    case(folder, out__expected__csv="a\n1\n", expected__csv=expect(*ROWS))
    assert "out.expected.csv: the query inserts nothing into 'out'" in judge(folder, code=1)


def test_input_that_does_not_end_is_given_up(tmp_path):
    query = QUERY.replace("'http', 'listen' = '127.0.0.1:1', 'format' = 'ndjson'", "'datagen', 'rows-per-second' = '10',"
                          " 'number-of-rows' = '1000000'")
    text = judge(case(tmp_path, query__sql=query, clicks__csv=None), "--timeout", 1, code=1)
    assert "no end after 1 s" in text and "help:" in text


def test_update_writes_what_came(tmp_path):
    folder = case(tmp_path, expected__csv=None)
    assert judge(folder, "--update").startswith(f"wrote {folder}/expected.csv\nok")
    assert sorted((folder / "expected.csv").read_text().split()) == sorted(expect(*ROWS).split())
    assert judge(folder).startswith("ok")
    # What is right stays as somebody wrote it.
    (folder / "expected.csv").write_text(expect(*reversed(ROWS)))
    assert "wrote" not in judge(folder, "--update")
    assert (folder / "expected.csv").read_text() == expect(*reversed(ROWS))


def test_rows_of_a_limit_are_told_and_not_kept(tmp_path):
    """Which rows come first depends on who reads which file."""
    folder = tmp_path / "some"
    (folder / "data").mkdir(parents=True)
    for number in range(3):
        (folder / "data" / f"{number}.csv").write_text("k\n" + "".join(f"{number}{n}\n" for n in range(9)))
    (folder / "query.sql").write_text("CREATE TABLE t (k BIGINT) WITH ('connector' = 'file', 'path' = 'data/*.csv', "
                                      "'format' = 'csv');\nSELECT k FROM t LIMIT 3;\n")
    text = judge(folder, "--update", code=1)
    assert "LIMIT without ORDER BY shows the rows that come first" in text and "report it" not in text
    assert "wrote" not in text and not (folder / "expected.csv").exists()
    # One way of running agrees with itself.
    assert "wrote" in judge(folder, "--update", "--quick")


@pytest.mark.parametrize("line, meant", [
    ("-- counter: records=1", "-- counters: records=1"),
    ("-- Counters: records=1", "-- counters: records=1"),
    ("--counters: records=1", "-- counters: records=1"),
])
def test_a_misspelt_comment_is_told(tmp_path, line, meant):
    text = judge(case(tmp_path, query__sql=f"{line}\n{QUERY}"), "--quick", code=1)
    assert f"'{line}' says nothing of the test" in text and f"did you mean '{meant}'" in text


def test_outputs_beside_a_query_are_refused(tmp_path):
    text = judge(case(tmp_path, query__sql=f"-- outputs: out\n{QUERY}"), "--quick", code=1)
    assert "-- outputs: says nothing of a query.sql" in text and "name.expected.csv" in text


def test_links_to_directories_above_lead_nowhere(tmp_path):
    case(tmp_path / "deep" / "one")
    (tmp_path / "deep" / "up").symlink_to(tmp_path)
    (tmp_path / "deep" / "here").symlink_to(".")
    (tmp_path / "again").symlink_to("deep")
    lines = judge(tmp_path, "--quick").splitlines()
    assert lines == [f"ok    {tmp_path}/again/one (1 run)", f"ok    {tmp_path}/deep/one (1 run)", "2 passed, 0 failed"]


@pytest.mark.parametrize("name", ["expected.csv", "clicks.csv", "query.sql"])
def test_a_pipe_is_no_file_of_a_test(tmp_path, name):
    folder = case(tmp_path, **{name.replace(".", "__"): None})
    os.mkfifo(folder / name)
    assert f"{folder}/{name} is no file" in judge(folder / "query.sql", "--timeout", 5, code=1)


def test_a_byte_order_mark_is_no_difference(tmp_path):
    marked = dict(expected__csv="\ufeff" + expect(*ROWS), query__sql="\ufeff-- counters: records=4\n" + QUERY)
    judge(case(tmp_path, **marked), "--quick")
    wrong = marked["query__sql"].replace("=4", "=5")
    assert "counter records is 4, expected 5" in judge(case(tmp_path, **marked | {"query__sql": wrong}), "--quick", code=1)


def test_a_query_without_tables_has_no_inputs(tmp_path):
    text = judge(case(tmp_path, query__sql="SELECT 1 AS a;\n", expected__csv="a\n1\n"), "--quick", code=1)
    assert "declares no table 'clicks'\n          help: the query declares no table" in text


def test_what_is_inserted_is_expected_by_table(tmp_path):
    query = QUERY.replace("SELECT", """CREATE TABLE out (window_start TIMESTAMP(3), window_end TIMESTAMP(3), page STRING,
    n BIGINT) WITH ('connector' = 'file', 'path' = 'written', 'format' = 'csv');
INSERT INTO out SELECT""", 1)
    folder = case(tmp_path, query__sql=query, expected__csv=None, out__expected__csv=expect(*ROWS))
    assert judge(folder) == f"ok    {folder} (17 runs)\n1 passed, 0 failed\n"
    assert not (folder / "written").exists()
    (folder / "out.expected.csv").unlink()
    (folder / "out.expected.ndjson").write_text(
        '{"window_start":"2024-01-01 00:00:10.000","window_end":"2024-01-01 00:00:20.000","page":"a","n":1}\n')
    text = judge(folder, code=1)
    assert 'out.expected.ndjson: 0 rows did not come (-), 2 rows not expected (+)' in text
    assert "window 2024-01-01 00:00:00.000 to 2024-01-01 00:00:10.000" in text
    (folder / "out.expected.ndjson").unlink()
    assert f"there is no {folder}/out.expected.csv" in judge(folder, code=1)


def test_several_cases_are_told_in_order(tmp_path):
    for name in ("b", "a", "c"):
        case(tmp_path / "deep" / name, expected__csv=expect(*ROWS[name == "c":]))
    lines = judge(tmp_path, "--quick", code=1).splitlines()
    assert lines[0].startswith("ok") and lines[0].endswith("deep/a (1 run)")
    assert lines[1].endswith("deep/b (1 run)") and lines[2] == f"FAIL  {tmp_path}/deep/c"
    assert lines[-1] == "2 passed, 1 failed"


def test_a_directory_that_cannot_run_fails_beside_others(tmp_path):
    both = '{"ts":"2024-01-01 00:00:01","page":"a"}\n'
    for name, more in (("a", {}), ("b", {"clicks__ndjson": both}), ("c", {})):
        case(tmp_path / name, **more)
    lines = judge(tmp_path, "--quick", code=1).splitlines()
    assert [line.split()[0] for line in lines] == ["ok", "FAIL", f"{tmp_path}/b:", "ok", "2"], lines
    assert lines[2].endswith("table 'clicks' is both clicks.csv and clicks.ndjson: remove one")
    assert lines[-1] == "2 passed, 1 failed"


def test_a_setting_holds_in_all_runs(tmp_path):
    query = "-- counters: records=4 late_records=0\n" + QUERY
    judge(case(tmp_path, query__sql=query), "--set", "workers=1")
    wrong = query.replace("records=4", "records=5")
    assert "counter records is 4, expected 5" in judge(case(tmp_path, query__sql=wrong), code=1)
    assert "there is no such setting" in judge(case(tmp_path), "--set", "worker=1", code=2)


def test_the_tests_of_the_project_run(tmp_path):
    """All SQL files; `tests/run_sql.py` runs them in more ways."""
    folder = harness.ROOT / "tests" / "sql"
    files = len(list(folder.glob("*.sql")))
    assert judge(folder, "--quick").endswith(f"{files} passed, 0 failed\n") and files > 100
    # One that writes directories, in all ways.
    assert "(17 runs)" in judge(folder / "statement_set.sql")


def test_the_examples_pass():
    folder = harness.ROOT / "examples" / "tests"
    cases = len(list(folder.glob("*/query.sql")))
    assert judge(folder).endswith(f"{cases} passed, 0 failed\n") and cases >= 3

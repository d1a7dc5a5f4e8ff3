"""All statements of a script are planned before its first query runs."""

import harness
import pytest
from conftest import check_place, events

ROWS = "ts,k,v\n2024-01-01 00:00:01,1,10\n"
INTO = ("CREATE TABLE out (k BIGINT) WITH ('connector' = 'file', 'path' = 'out', 'format' = 'csv');\n"
        "INSERT INTO out SELECT k FROM events;\n")
NOWHERE = "CREATE TABLE nowhere (k BIGINT) WITH ('connector' = 'blackhole');"
LAYOUTS = [{"workers": 1}, {"workers": 1, "processes": 2}]

# What stands behind two good queries, the text that is underlined, and what the message has to say.
WRONG = {
    "a column": ("SELECT kk FROM events;", "kk", "did you mean 'k'?"),
    "a table that is dropped": ("DROP TABLE events; SELECT k FROM events;", "events", "there is no table 'events'"),
    "a view": ("CREATE VIEW w AS SELECT nothing FROM events;", "nothing", "there is no column 'nothing'"),
    "a setting": ("SET 'epoch.bytes' = 'many'; SELECT k FROM events;", "'many'", "epoch.bytes"),
    "too many workers": ("SET 'workers' = '300'; SELECT k FROM events;", "'300'", "workers"),
    "an option": ("CREATE TABLE t (a BIGINT) WITH ('connector' = 'fle');", "'fle'", "did you mean 'file'?"),
    "a file": ("CREATE TABLE t (a BIGINT) WITH ('connector' = 'file', 'format' = 'csv', 'path' = 'evnts.csv');"
               "SELECT a FROM t;", "'evnts.csv'", "did you mean"),
    "a file beside those that are written": (
        "CREATE TABLE t (a BIGINT) WITH ('connector' = 'file', 'format' = 'csv', 'path' = 'out2/part-0-0');"
        "SELECT a FROM t;", "'out2/part-0-0'", "there is no file"),
    "a sink": ("INSERT INTO out SELECT v, k FROM events;", "out", "takes 1 column"),
    "a query behind one that never ends": (
        "CREATE TABLE e (k BIGINT) WITH ('connector' = 'datagen');" + NOWHERE + "INSERT INTO nowhere SELECT k FROM e;"
        "SELECT k + 1 FROM events;", "SELECT k + 1 FROM events", "reads a table that never ends"),
    "an INSERT behind one that never ends": (
        "CREATE TABLE e (k BIGINT) WITH ('connector' = 'datagen');" + NOWHERE + "INSERT INTO nowhere SELECT k FROM e;"
        "INSERT INTO nowhere SELECT k + 1 FROM events;", "INSERT INTO nowhere SELECT k + 1 FROM events",
        "EXECUTE STATEMENT SET BEGIN"),
    "an INSERT OVERWRITE that never ends": (
        "CREATE TABLE e (k BIGINT) WITH ('connector' = 'datagen'); INSERT OVERWRITE out SELECT k FROM e;", "out",
        "this one never ends"),
    "an INSERT OVERWRITE of what is no file": (
        NOWHERE + "INSERT OVERWRITE nowhere SELECT k FROM events;", "nowhere", "can be overwritten"),
    "another table over a directory that is written": (
        "CREATE TABLE again (k BIGINT) WITH ('connector' = 'filesystem', 'path' = 'no/../out/', 'format' = 'ndjson');"
        "INSERT INTO again SELECT v FROM events;", "again", "writes to the directory of 'again' already, for 'out'"),
    "an EXPLAIN": ("EXPLAIN SELECT kk FROM events;", "kk", "did you mean 'k'?"),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_behind_good_queries_is_found_before_they_run(script, name, layout):
    wrong, underlined, words = WRONG[name]
    if name == "too many workers":
        layout = {key: value for key, value in layout.items() if key != "workers"}
    script.data("events.csv", ROWS)
    text = events() + "SELECT k FROM events;\n" + INTO + wrong + "\n"
    result = script.run(text, **layout)
    assert (result.code, result.stdout) == (2, b""), result.stderr
    assert words in result.stderr, result.stderr
    assert "rows/s" not in result.stderr and not (script.folder / "out").exists()
    check_place(result, text, underlined)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_settings_and_tables_hold_from_where_they_stand(script, layout):
    """Planning ahead leaves nothing behind: the first query does not see what stands below it."""
    script.data("events.csv", ROWS)
    result = script.run(events() + "CREATE VIEW w AS SELECT k FROM events;\nSELECT * FROM w;\n"
                        "DROP VIEW w; CREATE VIEW w AS SELECT v FROM events; SET 'batch.rows' = '1';\n"
                        "SELECT * FROM w;\n", **layout)
    assert (result.code, result.stdout) == (0, b"k\n1\nv\n10\n"), result.stderr


@pytest.mark.parametrize("path", ["out/part-0-0", "./out/part-0-0", "file://out/part-0-0"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_later_query_may_read_what_an_earlier_one_writes(script, layout, path):
    script.data("events.csv", ROWS)
    again = f"CREATE TABLE again (k BIGINT) WITH ('connector' = 'file', 'path' = '{path}', 'format' = 'csv');\n"
    result = script.run(events() + again + INTO.replace("SELECT k FROM events", "SELECT k FROM events LIMIT 5")
                        + "SELECT SUM(k) AS s FROM again;\n", **layout)
    assert (result.code, result.stdout) == (0, b"s\n1\n"), result.stderr


def test_a_file_that_a_wrong_query_should_have_written_is_missed_when_its_turn_comes(script):
    """It may be written, so planning lets it pass; it is not written, since the part is called otherwise."""
    script.data("events.csv", ROWS)
    again = "CREATE TABLE again (k BIGINT) WITH ('connector' = 'file', 'path' = 'out/prt-0-0', 'format' = 'csv');\n"
    result = script.run(events() + again + INTO + "SELECT k FROM again;\n", workers=1)
    assert (result.code, result.stdout) == (2, b""), result.stderr
    assert (script.folder / "out" / "part-0-0").read_text() == "k\n1\n"
    assert "did you mean" in result.stderr and "part-0-0" in result.stderr, result.stderr


def test_check_finds_a_second_table_over_a_directory(script):
    script.data("events.csv", ROWS)
    text = events() + INTO + INTO.replace("out", "again").replace("'again'", "'out'") + "SELECT k FROM events;\n"
    result = harness.run("check", script.write(text), stats=False)
    assert result.code == 2 and "insert into out here, too" in result.stderr, result.stderr
    check_place(result, text, "again")
    assert result.stderr.count("error: ") == 1, result.stderr

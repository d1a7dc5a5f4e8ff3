"""Edited queries, and checkpoints of other jobs: what goes on, and what is refused."""

import signal
import time

import pytest

import harness
from test_restart import COUNT, QUERY, SOURCE, expected, lines, restarted  # noqa: F401


def test_an_edited_query_goes_on_where_state_fits(restarted):
    restarted.add(0, 1050)
    job = restarted.start()
    restarted.waits_for(30)
    restarted.stops(job, signal.SIGINT)
    script = restarted.folder / "job.sql"

    def against(sql: str) -> harness.Run:
        script.write_text(sql)
        return harness.run("check", script, "--against", restarted.state, stats=False)

    same = against(QUERY.replace("GROUP BY", "WHERE k >= 0 GROUP BY"))
    assert same.code == 0 and "kept" in same.stdout.decode() and "never ends" not in same.stderr, same.stderr
    wider = SOURCE + COUNT.format(size=20)
    changed = against(wider)
    assert changed.code == 1 and "changed" in changed.stdout.decode() and "20000 ms" in changed.stdout.decode()
    stage = changed.stdout.decode().split(":")[0]
    job = restarted.start(wider)
    _, said = job.communicate(timeout=60)
    assert job.returncode == 1 and f"--allow-new {stage}" in said.decode(), said
    restarted.add(1050, 1450)
    job = restarted.start(wider, "--allow-new", stage)
    restarted.waits_for(33)
    restarted.stops(job, signal.SIGINT)
    # The open window has lost its first 50 records.
    assert sum(int(row.split(",")[2]) for row in restarted.rows()) == 1000 + 350, restarted.rows()


def test_a_stage_that_reads_a_table_of_other_stages_is_changed(restarted):
    def query(of_second: str) -> str:
        both = "".join(SOURCE.replace("TABLE a", f"TABLE {a}").replace("TABLE o", f"TABLE {o}")
                       .replace("a.csv", f"{a}.csv").replace("'o'", f"'{o}'") for a, o in ("ao", "bp"))
        view = "CREATE VIEW c AS SELECT k, ts FROM a UNION ALL SELECT k, ts FROM b;\n"
        second = COUNT.format(size=10).replace("TABLE a", f"TABLE {of_second}").replace("INTO o", "INTO p")
        return f"{both}{view}EXECUTE STATEMENT SET BEGIN\n{COUNT.format(size=10)}\n{second}\nEND;"

    (restarted.folder / "b.csv").write_text("k,v,ts\n" + lines(0, 3000))
    restarted.add(0, 1050)
    job = restarted.start(query("b"))
    restarted.waits_for(30)
    restarted.stops(job, signal.SIGINT)
    # Records of `a` that come next may be of windows in which `b` has fired.
    job = restarted.start(query("c"))
    _, said = job.communicate(timeout=60)
    assert job.returncode == 1 and b"reads table 'a' now" in said and b"--allow-new p.window" in said, said
    restarted.add(1050, 2050)
    job = restarted.start(query("c"), "--allow-new", "p.window")
    restarted.waits_for(60)
    restarted.stops(job, signal.SIGINT)
    assert restarted.rows() == expected(2050, 20)


@pytest.mark.parametrize("before, now, told", [
    ("LIMIT 90000", "LIMIT 80000", "it has LIMIT 80000 now, and LIMIT 90000 in the checkpoint"),
    ("", "LIMIT 80000", "it has LIMIT 80000 now, and no LIMIT in the checkpoint"),
    ("LIMIT 80000", "", "it has no LIMIT now, and LIMIT 80000 in the checkpoint"),
    ("ORDER BY v, k, s LIMIT 30", "ORDER BY v DESC, k, s LIMIT 30", "it has ORDER BY n DESC"),
])
def test_another_order_or_limit_does_not_go_on(restarted, before, now, told):
    select = "INSERT INTO o SELECT ts AS s, k, v AS n FROM a {};"
    source = SOURCE.replace("'connector' = 'file', 'path' = 'a.csv', 'format' = 'csv', 'follow' = 'true'",
                            "'connector' = 'datagen', 'number-of-rows' = '100000', 'rows-per-second' = '1000'")
    job = restarted.start(source + select.format(before))
    until = time.monotonic() + 30
    while not (restarted.state / "manifest-0000000001.json").exists():
        assert time.monotonic() < until
        time.sleep(0.01)
    job.kill()
    job.communicate()
    edited = source + select.format(now)
    job = restarted.start(edited)
    _, said = job.communicate(timeout=60)
    assert job.returncode == 1 and told in said.decode() and "--allow-new o" in said.decode(), said
    checked = harness.run("check", restarted.folder / "job.sql", "--against", restarted.state, stats=False)
    assert checked.code == 1 and f"o: changed: {told}" in checked.stdout.decode(), checked
    job = restarted.start(edited, "--allow-new", "o")
    time.sleep(0.5)
    assert "output o begins anew" in restarted.stops(job, signal.SIGTERM)


def test_another_jobs_checkpoints_are_refused(restarted):
    restarted.add(0, 1050)
    job = restarted.start()
    restarted.waits_for(30)
    restarted.stops(job, signal.SIGINT)
    other = QUERY.replace("TABLE a", "TABLE b")
    job = restarted.start(other)
    _, said = job.communicate(timeout=60)
    assert job.returncode == 1 and "is of another job, which reads a" in said.decode(), said

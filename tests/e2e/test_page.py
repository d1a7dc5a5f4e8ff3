"""The page of `--ui` in a real browser."""

import os
import re

import browser
import pytest
from conftest import cannot_run, events, generated
from test_live import address_of
from watched import LIVE, LONG_WINDOWS, WINDOWS


@pytest.fixture
def page(tmp_path):
    if browser.program() is None:
        cannot_run("there is no Chromium: `.ci/setup browser` installs it")
    with browser.Browser(tmp_path / "browser") as one:
        yield one
        # What the page's script complains of, or what its policy has kept out. Browsers look for an icon, and the page
        # for a job that is gone.
        fine = ("favicon.ico", "ERR_CONNECTION_REFUSED")
        assert [c for c in one.complaints if not any(word in str(c) for word in fine)] == []


def test_a_browser_shows_a_job_that_waits(start, page):
    job = start(LIVE + LONG_WINDOWS, "--ui", "127.0.0.1:0")
    page.open(address_of(job, "--ui"))
    # A rate takes two looks.
    numbers = page.wait_for("numbers", lambda text: re.search(r"\d+k? records/s", text))
    assert re.search(r"\d+k? records 0 rows written", numbers) and "1 windows open" in numbers
    assert re.match(r"window \[.*\) of stage 1 waits for events \(datagen, split [01]\): its watermark is", page.text("why"))
    # A window that is not due is nothing wrong.
    assert page.count("#why section") >= 1 and page.count("#why .wrong") == 0
    # A point of a line takes two samples.
    rates = r"records/s at most [1-9]\d*k? 1 min ago now rows/s at most 0 1 min ago now"
    page.wait_for("rates", lambda text: re.fullmatch(rates, text))
    assert re.fullmatch(r"M[\d.]+ [\d.]+( L[\d.]+ [\d.]+)*", page.attribute("#rates path", "d"))
    # An edge from the source to the stage with its rate, and what is at its ends.
    plan = page.text("plan")
    assert plan.startswith("events: datagen (unbounded"), plan
    assert re.search(r"\d+k?/s", plan) and "1. aggregate by (k)" in plan and "output" in plan, plan
    splits = page.text("splits")
    assert "events datagen, split 0" in splits and "events datagen, split 1" in splits
    assert re.search(r"0\.0 \w+ \d+ %", page.text("workers"))
    assert page.text("statement").startswith("SELECT window_start, k, COUNT(*) AS n")
    assert page.text("lost") == ""
    job.kill()
    assert page.wait_for("lost", bool) == "the job does not answer: it has ended"


def test_the_age_of_the_last_checkpoint_is_shown(start, script, page):
    saving = ("--checkpoint", script.folder / "state", "--every", "100ms")
    job = start(LIVE + LONG_WINDOWS, "--ui", "127.0.0.1:0", *saving)
    page.open(address_of(job, "--ui"))
    assert page.wait_for("numbers", lambda text: re.search(r"\d+ m?s ago checkpoint \d+, [\d.]+ k?B", text))


def test_before_a_query_runs_the_page_says_what_it_waits_for_and_shows_no_empty_boxes(start, script, page):
    os.mkfifo(script.folder / "events.csv")
    job = start(events("k BIGINT") + "SELECT k FROM events;", "--ui", "127.0.0.1:0")
    page.open(address_of(job, "--ui"))
    assert "events.csv (table events)" in page.wait_for("why", lambda text: "waiting for a writer of the pipe" in text)
    assert page.titles() == ["Statement"]
    with open(script.folder / "events.csv", "w") as writer:
        writer.write("ts,k\n2024-01-01 12:00:00,1\n")
        writer.flush()
        page.wait_for("splits", bool)
        assert page.titles() == ["Rates of the last minutes", "Plan: rows per second", "Splits", "Stages", "Workers", "Statement"]


def test_of_many_splits_those_with_the_earliest_watermarks_are_shown(start, page):
    job = start(generated(per_second=20_000, more=", 'splits' = '250'") + LONG_WINDOWS, "--ui", "127.0.0.1:0")
    page.open(address_of(job, "--ui"))
    splits = page.wait_for("splits", lambda text: text.count("datagen, split") == 200)
    assert page.text("more_splits") == "and 50 more, which have ended, are idle or have later watermarks"
    watermarks = re.findall(r"datagen, split \d+ (\S+ [\d:.]+|–)", splits)
    known = [at for at in watermarks if at != "–"]
    assert len(watermarks) == 200 and watermarks == ["–"] * (200 - len(known)) + sorted(known)


def test_names_of_any_characters_are_texts(start, page):
    table = generated(per_second=20_000).replace("(k BIGINT", "(`<b>k</b>` BIGINT").replace("fields.k.", "fields.<b>k</b>.")
    query = WINDOWS.replace("window_start, k, COUNT", "window_start, `<b>k</b>` AS k, COUNT").replace("end, k;", "end, `<b>k</b>`;")
    job = start(table + query, "--ui", "127.0.0.1:0")
    page.open(address_of(job, "--ui"))
    assert "(<b>k</b>)" in page.wait_for("stages", bool)
    # Windows of a second have rows soon.
    assert page.wait_for("plan", lambda text: re.search(r"[1-9]\d* rows", text))


def test_an_orange_box_is_only_where_something_is_wrong(start, script, page):
    os.mkfifo(script.folder / "events.csv")
    job = start("SET 'watermark.max_ahead' = 'none';\n" + events("k BIGINT") + WINDOWS, "--ui", "127.0.0.1:0")
    page.open(address_of(job, "--ui"))
    with open(script.folder / "events.csv", "w") as writer:
        writer.write("ts,k\n2099-01-01 00:00:00,1\n2024-01-01 00:00:00,1\n")
        writer.flush()
        page.wait_for("why", lambda text: "ahead of the clock" in text)
        # One that came too late for the record of the future, and the window of that, which is not due.
        assert (page.count("#why section"), page.count("#why .wrong")) == (2, 1)

//! Tests of what is said of windows that are not written as they should be: the place, and help
//! that leads to a query that runs.

use millstream_sql::Outcome;

use crate::common::*;

const MINUTE: &str = "INTERVAL '1' MINUTE";

/// The query `text`, in which « and » stand around what is to be underlined, is refused with these
/// words.
#[track_caller]
fn underlined(text: &str, parts: &[&str]) {
    let (before, rest) = text.split_once('«').expect("a mark");
    let (part, after) = rest.split_once('»').expect("an end");
    let query = format!("{before}{part}{after}");
    let column = before.rsplit('\n').next().expect("a line").chars().count() + 1;
    let line = before.matches('\n').count() + 1;
    let place = format!("--> query.sql:{line}:{column}\n");
    let carets = format!(" {}\n", "^".repeat(part.chars().count()));
    refused(&query, &[parts, &[&place, &carets]].concat());
}

#[track_caller]
fn runs(text: &str) {
    let outcome = execute(&mut session(), text);
    assert!(matches!(outcome, Ok(Outcome::Query(_))), "{text}: {outcome:?}");
}

#[test]
fn a_window_over_columns_of_a_window_says_which_need_another_name() {
    let view = |names: [&str; 3]| {
        let [start, end, time] = names;
        format!(
            "(SELECT window_start{start}, window_end{end}, window_time{time}, COUNT(*) AS n
              FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), {MINUTE}))
              GROUP BY window_start, window_end, window_time)"
        )
    };
    let hop = |view: &str, time: &str| {
        format!(
            "SELECT window_start, window_end, SUM(n) AS n
             FROM TABLE(HOP({view}, DESCRIPTOR({time}), {MINUTE}, INTERVAL '2' MINUTE))
             GROUP BY window_start, window_end"
        )
    };
    let renamed = view([" AS inner_start", " AS inner_end", " AS inner_time"]);
    runs(&hop(&renamed, "inner_time"));
    for names in [
        ["", "", ""],
        ["", " AS inner_end", " AS inner_time"],
        [" AS inner_start", " AS inner_end", ""],
    ] {
        let name = if names[0].is_empty() { "window_start" } else { "window_time" };
        refused(
            &hop(&view(names), "window_time"),
            &[
                &format!("HOP adds a column '{name}', and what it takes has one already"),
                &format!("{name} AS inner_{name}"),
                "DESCRIPTOR",
            ],
        );
    }
    let both = format!(
        "SELECT COUNT(*) FROM TABLE(HOP(TABLE s, DESCRIPTOR(ts), {MINUTE}, INTERVAL '2' MINUTE))
         GROUP BY window_start, window_end"
    );
    refused(
        &format!(
            "WITH s AS (SELECT ts FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), {MINUTE}))) {both}"
        ),
        &["have a window already", "window_time AS inner_time", "DESCRIPTOR(inner_time)"],
    );
}

#[test]
fn a_bound_is_of_the_same_window_however_that_is_written() {
    let start = |start: &str| {
        format!(
            "SELECT {start}, COUNT(*) AS n FROM bids AS a GROUP BY TUMBLE(ts, {MINUTE}) HAVING \
             {start} > TIMESTAMP '2024-01-01 00:00:00'"
        )
    };
    runs(&start("TUMBLE_START(a.ts, INTERVAL '1' MINUTE)"));
    runs(&start("TUMBLE_START(ts, INTERVAL '60' SECOND)"));
    runs(
        "SELECT HOP_END(ts, INTERVAL '60' MINUTE, INTERVAL '24' HOUR) AS e, COUNT(*) AS n
          FROM bids GROUP BY HOP(bids.ts, INTERVAL '1' HOUR, INTERVAL '1' DAY)",
    );
    for other in [
        "TUMBLE_START(ts, INTERVAL '2' MINUTE)",
        "TUMBLE_START(a.dateTime, INTERVAL '1' MINUTE)",
        "TUMBLE_START(ts)",
        "SESSION_START(ts, INTERVAL '1' MINUTE)",
    ] {
        refused(&start(other), &["is of another window", "write TUMBLE_START(ts, INTERVAL '1'"]);
    }
}

#[test]
fn a_bound_cannot_stand_in_where_nor_its_window_in_grouping_sets() {
    let grouped = format!("GROUP BY TUMBLE(ts, {MINUTE})");
    underlined(
        &format!(
            "SELECT COUNT(*) AS n FROM bids\nWHERE price > 1 AND «TUMBLE_START»(ts, {MINUTE}) > ts\n\
             {grouped}"
        ),
        &["TUMBLE_START cannot stand in WHERE", "HAVING"],
    );
    underlined(
        &format!(
            "SELECT TUMBLE_START(ts, {MINUTE}), auction, COUNT(*) AS n FROM bids GROUP BY\n\
             GROUPING SETS ((«TUMBLE(ts, {MINUTE})), (TUMBLE(ts, {MINUTE}), auction»))"
        ),
        &["do not go with GROUP BY TUMBLE", "put the window into FROM"],
    );
}

#[test]
fn help_of_group_windows_is_true() {
    refused(
        "SELECT COUNT(*) FROM bids GROUP BY SESSION(ts)",
        &["a time column and a gap", "help: write SESSION(ts, INTERVAL '1' MINUTE)"],
    );
    let session = error("SELECT COUNT(*) FROM bids GROUP BY SESSION(ts)");
    assert!(!session.contains("offset"), "{session}");
    refused("SELECT COUNT(*) FROM bids GROUP BY TUMBLE(ts)", &["an offset goes with a window in"]);
    refused(
        "SELECT COUNT(*) FROM bids GROUP BY CUMULATE(ts, INTERVAL '1' MINUTE, INTERVAL '1' HOUR)",
        &["CUMULATE stands in FROM alone", "TABLE(CUMULATE(TABLE events, DESCRIPTOR(ts), "],
    );
    let other = format!("SELECT COUNT(*) FROM bids GROUP BY TUMBLE(dateTime, {MINUTE})");
    refused(&other, &["not the event time", "write DESCRIPTOR(ts) in FROM, ts in GROUP BY"]);
    for bound in ["CUMULATE_START", "CUMULATE_END", "TUMBLE_PROCTIME", "HOP_PROCTIME"] {
        let query = format!("SELECT {bound}(ts, {MINUTE}) FROM bids GROUP BY TUMBLE(ts, {MINUTE})");
        refused(&query, &[&format!("{bound} does not exist"), "window_time"]);
        assert!(!error(&query).contains("did you mean"), "{}", error(&query));
    }
}

#[test]
fn percentiles_of_other_engines_have_one_here() {
    for call in [
        "PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY f64)",
        "PERCENTILE_DISC(0.5) WITHIN GROUP (ORDER BY f64)",
        "percentile_cont(f64, 0.5)",
    ] {
        refused(
            &format!("SELECT {call} FROM typed"),
            &["does not exist here", "write APPROX_PERCENTILE(x, 0.5)"],
        );
    }
    refused(
        "SELECT MAX(s) WITHIN GROUP (ORDER BY s) FROM typed",
        &["WITHIN GROUP", "leave it out"],
    );
}

#[test]
fn a_watermark_is_not_known_above_hop() {
    underlined(
        &format!(
            "SELECT window_start, «CURRENT_WATERMARK(ts)» AS w\n\
             FROM TABLE(HOP(TABLE bids, DESCRIPTOR(ts), {MINUTE}, INTERVAL '2' MINUTE))"
        ),
        &["UNION ALL, HOP, CUMULATE and SESSION"],
    );
}

#[test]
fn the_place_is_a_call_and_not_the_whole_query() {
    let ranked = |partition: &str, more: &str, condition: &str| {
        format!(
            "SELECT * FROM (SELECT price,\n «ROW_NUMBER»() OVER (PARTITION BY {partition} ORDER BY \
             price) AS r{more}\nFROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), {MINUTE}))){condition}"
        )
    };
    let window = "window_start, window_end";
    underlined(&ranked("auction", "", " WHERE r <= 3"), &["ranks the rows of one window"]);
    for order in ["price", "auction"] {
        underlined(
            &format!(
                "SELECT * FROM (SELECT RANK() OVER (PARTITION BY {window} ORDER BY price) AS q,\n\
                 «RANK()» OVER (PARTITION BY {window} ORDER BY {order} DESC) AS r\n\
                 FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), {MINUTE}))) WHERE q < 3 AND r < 3"
            ),
            &["a SELECT with several rankings does not run"],
        );
    }
    underlined(
        "SELECT s, GROUPING(s) AS g, «GROUPING(i32)» AS h, COUNT(*) AS n\nFROM typed GROUP BY ROLLUP (s)",
        &["takes keys of the GROUP BY, and i32 is none"],
    );
    refused(
        &format!(
            "SELECT COUNT(*) AS n,\nMAX(TUMBLE_START(ts, {MINUTE})) AS m\n\
             FROM bids GROUP BY TUMBLE(ts, {MINUTE})"
        ),
        &["TUMBLE_START stands beside aggregates", "--> query.sql:2:5\n"],
    );
    underlined(
        "SELECT price, «PROCTIME()» AS p\nFROM bids",
        &["PROCTIME() stands in CREATE TABLE"],
    );
    underlined(
        &format!(
            "SELECT auction,\n «ARRAY_AGG(window_start)» AS a\n\
             FROM TABLE(HOP(TABLE bids, DESCRIPTOR(ts), {MINUTE}, INTERVAL '2' MINUTE))\n\
             GROUP BY window_start, window_end, auction"
        ),
        &["window_start cannot be computed of each row that HOP takes"],
    );
}

#[test]
fn unfinished_calls_say_how_they_are_written() {
    underlined(
        "SELECT COUNT(*) FILTER («price» > 1) AS n FROM bids",
        &["expected WHERE after FILTER (, found price", "FILTER (WHERE x > 1)"],
    );
    underlined(
        "SELECT s, COUNT(*) AS n FROM typed GROUP BY ROLLUP «s»",
        &["expected (, found s", "write ROLLUP (s)"],
    );
    refused(
        "SELECT s, COUNT(*) AS n FROM typed GROUP BY ROLLUP((s, i32))",
        &["ROLLUP takes single keys, not keys in brackets", "GROUPING SETS ((a, b), ())"],
    );
    underlined(
        &format!(
            "SELECT COUNT(*) FROM TABLE(SESSION(TABLE bids PARTITION BY «ABS»(auction), \
             DESCRIPTOR(ts), {MINUTE})) GROUP BY window_start, window_end"
        ),
        &["PARTITION BY takes columns of the table", "in a view or a subquery"],
    );
}

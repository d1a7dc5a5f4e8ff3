//! Tests of plans with windows: HOP, CUMULATE, SESSION, what is grouped by them, and windows over
//! the results of windows.

use millstream_contract::expr::Expr;
use millstream_contract::plan::{
    Aggregate, AggregateFunction, Cumulate, Hop, Operator, Plan, Session, Tumble, Window,
};
use millstream_sql::Outcome;

use crate::common::*;

const SECOND: i64 = 1_000_000;

fn stage(plan: &Plan, number: usize) -> &Aggregate {
    match &plan.stages[number].operator {
        Operator::Aggregate(aggregate) => aggregate,
        other => panic!("no aggregate: {other:?}"),
    }
}

fn only(plan: &Plan) -> &Aggregate {
    assert_eq!((plan.sources.len(), plan.stages.len()), (1, 1));
    stage(plan, 0)
}

fn text(expr: &Expr, schema: &arrow::datatypes::Schema) -> String {
    match expr {
        Expr::Column(i) => schema.field(*i).name().clone(),
        Expr::Computed(e) => e.to_string(),
    }
}

/// The condition on what fires, and the columns of the result.
fn second(body: &Aggregate) -> (String, Vec<String>) {
    let having = body.having.iter().map(|e| text(e, &body.fired)).collect();
    (having, body.project.iter().map(|e| text(e, &body.fired)).collect())
}

fn keys(body: &Aggregate) -> Vec<&str> {
    body.keys.iter().map(|key| key.name.as_str()).collect()
}

/// The condition on what the first stage takes.
fn filter(plan: &Plan) -> String {
    let input = &plan.stages[0].inputs[0];
    let schema = plan.schema_of(input.from).unwrap();
    input.filter.iter().map(|e| text(e, schema)).collect()
}

fn counted(function: &str) -> Plan {
    graph(&format!(
        "SELECT window_start, window_end, auction, COUNT(*) AS n FROM TABLE({function})
         GROUP BY window_start, window_end, auction"
    ))
}

const TS: &str = "TABLE bids, DESCRIPTOR(ts)";

#[test]
fn hopping_windows() {
    let plan = counted(&format!("HOP({TS}, INTERVAL '2' SECOND, INTERVAL '10' SECOND)"));
    let hop = Hop { slide_us: 2 * SECOND, size_us: 10 * SECOND, offset_us: 0 };
    let body = only(&plan);
    assert_eq!(body.window, Some(Window::Hop(hop)));
    assert_eq!(keys(body), ["auction"]);
    let columns = ["window_start", "window_end", "auction", "COUNT(*)"].map(String::from);
    assert_eq!(second(body), (String::new(), columns.to_vec()));
    // In any order by name; an offset of less than nothing, or of more than a slide.
    for offset in ["INTERVAL '-1' SECOND", "INTERVAL '7' SECOND", "INTERVAL '1' SECOND"] {
        let plan = counted(&format!(
            "HOP(OFFSET => {offset}, size => INTERVAL '10' SECOND, SLIDE => INTERVAL '2' SECOND,
                 TIMECOL => DESCRIPTOR(ts), DATA => TABLE bids)"
        ));
        assert_eq!(only(&plan).window, Some(Window::Hop(Hop { offset_us: SECOND, ..hop })));
    }
}

#[test]
fn cumulating_windows() {
    let day = "CUMULATE(TABLE bids, DESCRIPTOR(ts), INTERVAL '1' HOUR, INTERVAL '1' DAY)";
    let (step_us, size_us) = (3600 * SECOND, 86_400 * SECOND);
    let cumulate = Cumulate { step_us, size_us, offset_us: 0 };
    assert_eq!(only(&counted(day)).window, Some(Window::Cumulate(cumulate)));
    let plan = counted(&format!(
        "CUMULATE({TS}, INTERVAL '1' HOUR, INTERVAL '1' DAY, INTERVAL '-90' MINUTE)"
    ));
    let offset_us = size_us - 5400 * SECOND;
    assert_eq!(only(&plan).window, Some(Window::Cumulate(Cumulate { offset_us, ..cumulate })));
    // The end of a window says which it is, the start does not.
    let by = |columns: &str| format!("SELECT COUNT(*) FROM TABLE({day}) GROUP BY {columns}");
    assert!(only(&graph(&by("window_end"))).keys.is_empty());
    assert!(only(&graph(&by("window_time"))).keys.is_empty());
    refused(&by("window_start, auction"), &["CUMULATE", "GROUP BY window_start, window_end", "^^"]);
    let hop = "HOP(TABLE bids, DESCRIPTOR(ts), INTERVAL '1' HOUR, INTERVAL '1' DAY)";
    assert!(only(&graph(&by("window_start").replace(day, hop))).keys.is_empty());
}

fn with_gap(gap_s: i64, partition: usize) -> Option<Window> {
    Some(Window::Session(Session::new(gap_s * SECOND, partition)))
}

#[test]
fn sessions() {
    let plan = counted(&format!("SESSION({TS}, INTERVAL '10' SECOND)"));
    assert_eq!(only(&plan).window, with_gap(10, 0));
    assert_eq!(keys(only(&plan)), ["auction"]);
    for by in ["auction", "(auction)"] {
        let by = format!("TABLE bids PARTITION BY {by}");
        for arguments in [
            format!("{by}, DESCRIPTOR(ts), INTERVAL '10' SECOND"),
            format!("GAP => INTERVAL '10' SECOND, DATA => {by}, TIMECOL => DESCRIPTOR(ts)"),
        ] {
            let plan = counted(&format!("SESSION({arguments})"));
            assert_eq!(only(&plan).window, with_gap(10, 1));
        }
    }
}

#[test]
fn what_tells_sessions_apart_comes_first_among_the_keys() {
    for by in ["price, auction", "(price, auction)", "price, auction, price"] {
        let plan = graph(&format!(
            "SELECT dateTime, auction, window_end, price, COUNT(*) AS n
             FROM TABLE(SESSION(TABLE bids PARTITION BY {by}, DESCRIPTOR(ts), INTERVAL '1' MINUTE))
             GROUP BY dateTime, auction, window_start, price, window_end"
        ));
        let body = only(&plan);
        assert_eq!(body.window, with_gap(60, 2));
        assert_eq!(keys(body), ["price", "auction", "dateTime"]);
        let columns = ["dateTime", "auction", "window_end", "price", "COUNT(*)"];
        assert_eq!(second(body), (String::new(), columns.map(String::from).to_vec()));
    }
    // What a view computes is a key like others.
    let plan = graph(
        "CREATE VIEW v AS SELECT ts, MOD(auction, 10) AS k, price FROM bids WHERE price > 1;
         SELECT k, price, window_time, SUM(price)
         FROM TABLE(SESSION(TABLE v PARTITION BY k, DESCRIPTOR(ts), INTERVAL '1' MINUTE))
         GROUP BY price, window_time, k",
    );
    assert_eq!(
        (only(&plan).window, keys(only(&plan))),
        (with_gap(60, 1), vec!["auction % 10", "price"])
    );
    assert_eq!(filter(&plan), "price > 1");
}

const BY_AUCTION: &str =
    "TABLE(SESSION(TABLE bids PARTITION BY auction, DESCRIPTOR(ts), INTERVAL '1' MINUTE))";

#[test]
fn a_condition_above_sessions_leaves_their_bounds() {
    let plan = graph(&format!(
        "SELECT window_start, price / 10 AS tens, auction, SUM(100 / price) AS s, MAX(price) AS m,
                COUNT(*) AS n, COUNT(*) FILTER (WHERE price > 7) AS f
         FROM {BY_AUCTION} WHERE price > 5
         GROUP BY window_start, window_end, price / 10, auction HAVING COUNT(*) > 1"
    ));
    let body = only(&plan);
    // All records make sessions longer.
    assert_eq!(filter(&plan), "");
    assert_eq!(body.window, with_gap(60, 1));
    assert_eq!(
        keys(body),
        ["auction", "(price > 5) IS TRUE", "CASE WHEN (price > 5) IS TRUE THEN price / 10 END"]
    );
    let shown = |e: Option<&Expr>| e.map(|e| text(e, &plan.sources[0].schema));
    let calls: Vec<_> = body
        .aggregates
        .iter()
        .map(|call| {
            (
                call.function,
                shown(call.arguments.first().map(|a| &a.expr)),
                shown(call.filter.as_ref()),
            )
        })
        .collect();
    use AggregateFunction::{Count, Max, Sum};
    assert_eq!(
        calls,
        [
            (Sum, Some("CASE WHEN (price > 5) IS TRUE THEN 100 / price END".to_string()), None),
            (Max, Some("price".to_string()), None),
            (Count, None, None),
            (Count, None, Some("((price > 5) IS TRUE) AND price > 7".to_string())),
        ]
    );
    let (having, columns) = second(body);
    assert_eq!(having, "$passes AND COUNT(*) > 1");
    assert_eq!(columns[..3], ["window_start", "price / 10", "auction"]);
}

#[test]
fn conditions_below_sessions_on_their_keys_and_on_their_bounds() {
    let plan = graph(
        "SELECT window_start, auction, COUNT(*)
         FROM TABLE(SESSION((SELECT * FROM bids WHERE price > 5), DESCRIPTOR(ts),
                            INTERVAL '1' HOUR))
         GROUP BY window_start, auction",
    );
    assert_eq!((filter(&plan).as_str(), keys(only(&plan))), ("price > 5", vec!["auction"]));
    // All records of a session have its keys, so it does not matter where they are asked for.
    let plan = graph(&format!(
        "SELECT window_start, auction, COUNT(*) FROM {BY_AUCTION}
         WHERE auction < 7 AND window_end > TIMESTAMP '2024-01-01 00:00:00'
         GROUP BY window_start, auction"
    ));
    assert_eq!((filter(&plan).as_str(), keys(only(&plan))), ("auction < 7", vec!["auction"]));
    assert_eq!(second(only(&plan)).0, "window_end > TIMESTAMP '2024-01-01 00:00:00'");
    // Windows that overlap, too, are asked for when they fire; records where they come, and whether
    // one of their windows passes.
    let plan = graph(
        "SELECT window_start, COUNT(*)
         FROM TABLE(HOP(TABLE bids, DESCRIPTOR(ts), INTERVAL '1' MINUTE, INTERVAL '1' HOUR))
         WHERE price > 5 AND window_start >= TIMESTAMP '2024-01-01 00:00:00'
         GROUP BY window_start, window_end",
    );
    assert_eq!(filter(&plan), "price > 5 AND IN_SOME_WINDOW(ts)");
    assert_eq!(second(only(&plan)).0, "window_start >= TIMESTAMP '2024-01-01 00:00:00'");
}

/// Counts of windows, with all three columns of theirs.
fn counts(function: &str) -> String {
    format!(
        "CREATE VIEW counts AS SELECT window_start AS s, window_end AS e, window_time AS t, auction,
                COUNT(*) AS n
         FROM TABLE({function}) GROUP BY window_start, window_end, window_time, auction;"
    )
}

#[test]
fn results_of_windows_are_grouped_by_the_same_windows_again() {
    let tumble = |size_us, offset_us| Some(Window::Tumble(Tumble { size_us, offset_us }));
    for (function, window) in [
        (
            "HOP(TABLE bids, DESCRIPTOR(ts), INTERVAL '2' SECOND, INTERVAL '10' SECOND, INTERVAL \
             '1' SECOND)",
            tumble(2 * SECOND, SECOND),
        ),
        (
            "CUMULATE(TABLE bids, DESCRIPTOR(ts), INTERVAL '2' SECOND, INTERVAL '10' SECOND, \
             INTERVAL '5' SECOND)",
            tumble(2 * SECOND, SECOND),
        ),
        (
            "SESSION(TABLE bids PARTITION BY auction, DESCRIPTOR(ts), INTERVAL '7' SECOND)",
            tumble(7 * SECOND, 0),
        ),
    ] {
        let plan = graph(&format!(
            "{} SELECT SUM(n) AS n, e, s, t FROM counts GROUP BY s, e, t",
            counts(function)
        ));
        assert_eq!(plan.stages.len(), 2);
        let body = stage(&plan, 1);
        assert_eq!(body.window, window, "{function}");
        assert_eq!(keys(body), ["s", "e", "t"]);
        let columns = ["SUM(n)", "e", "s", "t"].map(String::from).to_vec();
        assert_eq!(second(body), (String::new(), columns));
        // The window's own columns stay what they are, also at a third level.
        let plan = graph(&format!(
            "{} CREATE VIEW more AS SELECT t, e, s, auction, MAX(n) AS m FROM counts
                    GROUP BY s, e, t, auction;
             SELECT MIN(m), e FROM more GROUP BY s, e",
            counts(function)
        ));
        let windows: Vec<_> = (1..3).map(|number| stage(&plan, number).window).collect();
        assert_eq!(windows, [window, window], "{function}");
        assert_eq!(keys(stage(&plan, 2)), ["s", "e"]);
    }
}

/// The windows of all stages that group.
fn windows(text: &str) -> Vec<Option<Window>> {
    let plan = graph(text);
    (0..plan.stages.len()).map(|number| stage(&plan, number).window).collect()
}

#[test]
fn windows_are_assigned_to_the_results_of_windows() {
    let (hop, cumulate, sessions) = (
        "HOP(TABLE bids, DESCRIPTOR(ts), INTERVAL '2' SECOND, INTERVAL '10' SECOND)",
        "CUMULATE(TABLE bids, DESCRIPTOR(ts), INTERVAL '2' SECOND, INTERVAL '10' SECOND)",
        "SESSION(TABLE bids PARTITION BY auction, DESCRIPTOR(ts), INTERVAL '7' SECOND)",
    );
    for inner in [hop, cumulate, sessions] {
        for outer in [hop, cumulate, sessions] {
            let over = outer.replace("TABLE bids", "TABLE counts").replace("(ts)", "(t)");
            let windows = windows(&format!(
                "{} SELECT auction, SUM(n), window_start FROM TABLE({over})
                 GROUP BY auction, window_start, window_end",
                counts(inner)
            ));
            let own = only(&counted(outer)).window;
            assert_eq!(windows, [only(&counted(inner)).window, own]);
        }
        refused(
            &format!(
                "{} SELECT auction, SUM(n) FROM TABLE(TUMBLE(TABLE counts, DESCRIPTOR(e), INTERVAL
                 '1' MINUTE)) GROUP BY auction, window_start, window_end",
                counts(inner)
            ),
            &["'e' is not the event time of a window's result"],
        );
    }
}

#[test]
fn sessions_grouped_again_fire_in_slices_of_the_windows_above() {
    let sessions =
        counts("SESSION(TABLE bids PARTITION BY auction, DESCRIPTOR(ts), INTERVAL '6' SECOND)");
    let again = "CREATE VIEW again AS SELECT s, e, t, SUM(n) AS n FROM counts GROUP BY s, e, t;
                 CREATE VIEW third AS SELECT e, t, MAX(n) AS n FROM again GROUP BY e, t;";
    for (window, slice_s) in [
        ("TUMBLE(TABLE third, DESCRIPTOR(t), INTERVAL '10' SECOND)", 2.0),
        ("TUMBLE(TABLE third, DESCRIPTOR(t), INTERVAL '10' SECOND, INTERVAL '1' SECOND)", 1.0),
        ("HOP(TABLE third, DESCRIPTOR(t), INTERVAL '12' SECOND, INTERVAL '1' MINUTE)", 6.0),
        ("SESSION(TABLE third, DESCRIPTOR(t), INTERVAL '12' SECOND)", 0.001),
    ] {
        let windows = windows(&format!(
            "{sessions} {again} SELECT window_start, SUM(n) FROM TABLE({window})
             GROUP BY window_start, window_end"
        ));
        let size_us = (slice_s * SECOND as f64) as i64;
        let slice = Some(Window::Tumble(Tumble { size_us, offset_us: 0 }));
        assert_eq!(windows[1..3], [slice, slice], "{window}");
    }
}

#[test]
fn windows_without_a_grouping_are_rows() {
    let hop = "HOP(TABLE bids, DESCRIPTOR(ts), INTERVAL '2' SECOND, INTERVAL '10' SECOND)";
    let plan = graph(&format!(
        "SELECT auction, window_end - ts AS left_over, window_start FROM TABLE({hop})
         WHERE price > 5 AND window_start > TIMESTAMP '2024-01-01 00:00:00'"
    ));
    assert_eq!((plan.sources.len(), plan.stages.len()), (1, 2));
    assert_eq!(filter(&plan), "(ts IS NOT NULL) AND price > 5");
    let Operator::Unnest(_) = &plan.stages[0].operator else { panic!("{plan:?}") };
    let plan = graph(
        "SELECT window_end, auction, price + 1 AS more
         FROM TABLE(SESSION(TABLE bids PARTITION BY auction, DESCRIPTOR(ts), INTERVAL '2' SECOND))
         WHERE price > 5 AND auction > 3",
    );
    assert_eq!((plan.sources.len(), plan.stages.len()), (1, 1));
    // The one is asked of whole sessions, the other of records when they are given.
    assert_eq!(filter(&plan), "auction > 3");
    let Operator::Aggregate(records) = &plan.stages[0].operator else { panic!("{plan:?}") };
    assert_eq!(records.having.as_ref().map(|e| format!("{e:?}").contains("price")), Some(true));
    assert_eq!((records.keys.len(), records.aggregates.len()), (1, 1));
    refused(
        "SELECT * FROM TABLE(HOP(TABLE bids, DESCRIPTOR(ts), INTERVAL '1' SECOND, INTERVAL '1' DAY))",
        &["86400 windows", "at most 1000"],
    );
}

#[test]
fn group_windows_of_older_versions() {
    for (window, from) in [
        (
            "TUMBLE(ts, INTERVAL '10' SECOND)",
            "TUMBLE(TABLE b, DESCRIPTOR(ts), INTERVAL '10' SECOND)",
        ),
        (
            "HOP(ts, INTERVAL '2' SECOND, INTERVAL '10' SECOND)",
            "HOP(TABLE b, DESCRIPTOR(ts), INTERVAL '2' SECOND, INTERVAL '10' SECOND)",
        ),
        (
            "SESSION(ts, INTERVAL '5' SECOND + INTERVAL '5' SECOND)",
            "SESSION(TABLE b PARTITION BY auction, DESCRIPTOR(ts), INTERVAL '10' SECOND)",
        ),
    ] {
        let (name, args) = window.split_once('(').unwrap();
        let view = "CREATE VIEW b AS SELECT * FROM bids WHERE price > 5;";
        let old = graph(&format!(
            "SELECT {name}_START({args}, auction, {name}_end({args}, COUNT(*) AS n,
                    {name}_ROWTIME({args} AS t
             FROM bids AS b WHERE b.price > 5 GROUP BY {window}, b.auction
             HAVING {name}_START({args} > TIMESTAMP '2024-01-01 00:00:00'"
        ));
        let new = graph(&format!(
            "{view} SELECT window_start, auction, window_end, COUNT(*) AS n, window_time AS t
             FROM TABLE({from})
             GROUP BY window_start, window_end, window_time, auction
             HAVING window_start > TIMESTAMP '2024-01-01 00:00:00'"
        ));
        assert_eq!(only(&old).window, only(&new).window);
        assert_eq!(keys(only(&old)), keys(only(&new)));
        assert_eq!(second(only(&old)), second(only(&new)));
        assert_eq!(filter(&old), "price > 5");
        let names: Vec<_> =
            old.stages[0].output.fields().iter().map(|field| field.name().clone()).collect();
        assert_eq!(names[1..], ["auction", &format!("{name}_end({args}"), "n", "t"]);
        // A window over the result, whose time may have any name.
        let nested = graph(&format!(
            "SELECT TUMBLE_START(t, INTERVAL '1' MINUTE), SUM(n) FROM (
                 SELECT {name}_ROWTIME({args} AS t, COUNT(*) AS n FROM bids GROUP BY {window})
             GROUP BY TUMBLE(t, INTERVAL '1' MINUTE)"
        ));
        let minute = Window::Tumble(Tumble { size_us: 60 * SECOND, offset_us: 0 });
        assert_eq!(stage(&nested, 1).window, Some(minute));
    }
}

#[test]
fn group_windows_are_refused_with_a_reason() {
    let second = "INTERVAL '1' SECOND";
    let count =
        |select: &str, by: &str| format!("SELECT {select}, COUNT(*) FROM bids GROUP BY {by}");
    refused(
        &count("TUMBLE_START(ts, INTERVAL '2' SECOND)", &format!("TUMBLE(ts, {second})")),
        &[
            "TUMBLE_START(ts, INTERVAL '2' SECOND)",
            "write TUMBLE_START(ts, INTERVAL '1' SECOND)",
            "^",
        ],
    );
    refused(
        &count(&format!("HOP_END(ts, {second}, {second})"), &format!("TUMBLE(ts, {second})")),
        &["HOP_END", "write TUMBLE_END(ts, INTERVAL '1' SECOND)"],
    );
    refused(
        &count(&format!("TUMBLE_START(ts, {second})"), "auction"),
        &["TUMBLE_START goes with GROUP BY TUMBLE"],
    );
    refused(
        &count(&format!("MAX(TUMBLE_END(ts, {second}))"), &format!("TUMBLE(ts, {second})")),
        &["TUMBLE_END stands beside aggregates"],
    );
    refused(&count("1", "TUMBLE(ts)"), &["a time column and a size"]);
    refused(&count("1", &format!("HOP(ts, {second})")), &["a time column and a slide and a size"]);
    refused(&count("1", &format!("TUMBLE(dateTime, {second})")), &["DESCRIPTOR(ts)"]);
    refused(
        &count("1", &format!("TUMBLE(ts, {second}), HOP(ts, {second}, {second})")),
        &["second"],
    );
    refused(&count("1", &format!("CUMULATE(ts, {second}, {second})")), &["stands in FROM"]);
    refused(&count("1", "TUMBLE(ts, INTERVAL '1' MONTH)"), &["months", "^"]);
    refused(&format!("SELECT TUMBLE(ts, {second}) FROM bids"), &["stands in FROM"]);
    refused(
        "CREATE TABLE x (a TIMESTAMP(3), b AS TUMBLE_START(a, INTERVAL '1' SECOND)) WITH
         ('connector' = 'fake')",
        &["goes with GROUP BY TUMBLE"],
    );
}

#[test]
fn window_functions_are_refused_with_a_reason() {
    refused("SELECT ABS(TABLE bids PARTITION BY auction) FROM bids", &["PARTITION BY stands"]);
    let of = |call: &str| format!("SELECT COUNT(*) FROM TABLE({call}) GROUP BY window_end");
    let second = "INTERVAL '1' SECOND";
    for (call, parts) in [
        (format!("HOP({TS}, {second})"), vec!["HOP takes a table, a time column, a slide, a size"]),
        (format!("SESSION({TS}, {second}, {second})"), vec!["SESSION takes", "and a gap"]),
        (format!("CUMULATE({TS}, {second})"), vec!["CUMULATE takes", "a step, a size"]),
        (format!("CUMULATES({TS}, {second}, {second})"), vec!["no table function", "CUMULATE?"]),
        (
            format!("HOP({TS}, {second}, STEP => {second})"),
            vec!["HOP has no argument 'STEP'", "DATA, TIMECOL, SLIDE, SIZE, OFFSET"],
        ),
        (
            format!("HOP({TS}, INTERVAL '3' SECOND, INTERVAL '10' SECOND)"),
            vec!["size of 10 s is not a multiple of its slide of 3 s", "a size of 9 s"],
        ),
        (
            format!("HOP({TS}, INTERVAL '10' SECOND, INTERVAL '5' SECOND)"),
            vec!["size of 5 s is not a multiple of its slide of 10 s", "slide first"],
        ),
        (
            format!("HOP({TS}, INTERVAL '0.001' SECOND, INTERVAL '90' MINUTE)"),
            vec!["5400000 times its slide of 1 ms: too much", "take a slide of"],
        ),
        (
            format!("CUMULATE({TS}, {second}, INTERVAL '30000' DAY)"),
            vec!["2592000000 times its step of 1 s", "take a step of"],
        ),
        (
            format!("CUMULATE({TS}, INTERVAL '7' SECOND, INTERVAL '5' SECOND)"),
            vec!["size of 5 s is not a multiple of its step of 7 s", "a size of 7 s"],
        ),
        (
            format!("SESSION(TABLE bids PARTITION BY acution, DESCRIPTOR(ts), {second})"),
            vec!["no column 'acution'", "'auction'?"],
        ),
        (
            format!("TUMBLE(TABLE bids PARTITION BY auction, DESCRIPTOR(ts), {second})"),
            vec!["TUMBLE has no PARTITION BY", "GROUP BY window_start, window_end, auction"],
        ),
        (
            format!("SESSION((SELECT * FROM bids) PARTITION BY auction, DESCRIPTOR(ts), {second})"),
            vec!["PARTITION BY stands after the name", "WITH"],
        ),
        (
            format!("SESSION(TABLE bids PARTITION BY auction, DESCRIPTOR(ts), {second})"),
            vec!["sessions are those of one auction", "add auction to GROUP BY"],
        ),
        (
            format!("SESSION(TABLE bids PARTITION BY (auction + 1), DESCRIPTOR(ts), {second})"),
            vec!["PARTITION BY takes columns"],
        ),
    ] {
        refused(&of(&call), &parts);
    }
}

#[test]
fn lengths_of_windows_are_refused_with_a_reason() {
    let second = "INTERVAL '1' SECOND";
    for (call, parts) in [
        (format!("SESSION({TS}, INTERVAL '0' SECOND)"), vec!["a session's gap must be positive"]),
        (format!("SESSION({TS}, INTERVAL '1' MONTH)"), vec!["a session's gap", "months"]),
        (format!("HOP({TS}, INTERVAL '0.0005' SECOND, {second})"), vec!["slide of 500 us"]),
        (format!("HOP({TS}, 5, {second})"), vec!["a window's slide must be an interval"]),
    ] {
        refused(&format!("SELECT COUNT(*) FROM TABLE({call}) GROUP BY window_end"), &parts);
    }
}

#[test]
fn what_a_row_does_not_tell_is_refused() {
    let second = "INTERVAL '1' SECOND";
    // What is known of a row only once its window is complete, or in each of several windows.
    for window in
        [format!("HOP({TS}, {second}, INTERVAL '2' SECOND)"), format!("SESSION({TS}, {second})")]
    {
        refused(
            &format!(
                "SELECT COUNT(*) FROM TABLE({window}) WHERE ts > window_start GROUP BY window_end"
            ),
            &["cannot be computed of each row", "^"],
        );
        refused(
            &format!("SELECT MAX(window_end - ts) FROM TABLE({window}) GROUP BY window_end"),
            &["cannot be computed of each row", "^"],
        );
    }
    refused(
        "SELECT COUNT(*) FROM TABLE(SESSION(TABLE bids, DESCRIPTOR(ts), INTERVAL '1' SECOND))",
        &["does not group by it", "without SESSION"],
    );
}

#[test]
fn explain_shows_windows() {
    for (function, parts) in [
        (
            "HOP(TABLE bids, DESCRIPTOR(ts), INTERVAL '2' SECOND, INTERVAL '10' SECOND, INTERVAL '1' SECOND)",
            [
                "Hop: time=ts slide=2 s size=10 s offset=1 s",
                "  window of 10 s every 2 s, offset 1 s\n",
            ],
        ),
        (
            "CUMULATE(TABLE bids, DESCRIPTOR(ts), INTERVAL '1' HOUR, INTERVAL '1' DAY)",
            ["Cumulate: time=ts step=1 h size=1 d", "  window of up to 1 d by 1 h\n"],
        ),
        (
            "SESSION(TABLE bids PARTITION BY auction, DESCRIPTOR(ts), INTERVAL '10' SECOND)",
            [
                "Session: time=ts partition by auction gap=10 s",
                "  session with gaps of 10 s for each auction\n",
            ],
        ),
    ] {
        let text = format!(
            "EXPLAIN SELECT window_start, auction, COUNT(*) FROM TABLE({function})
             GROUP BY window_start, window_end, auction"
        );
        let Ok(Outcome::Explain(planned)) = execute(&mut session(), &text) else {
            panic!("no plan")
        };
        for part in parts {
            assert!(planned.explain.contains(part), "{part:?} is not in:\n{}", planned.explain);
        }
    }
}

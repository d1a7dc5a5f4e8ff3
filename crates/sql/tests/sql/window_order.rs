//! Tests of ORDER BY and LIMIT over the rows of windows.

use crate::common::*;

const TS: &str = "TABLE bids, DESCRIPTOR(ts)";

/// A query over windows, with an order.
fn ordered(function: &str, select: &str, order: &str) -> String {
    format!(
        "SELECT {select}, auction, COUNT(*) AS n FROM TABLE({function})
         GROUP BY window_start, window_end, auction ORDER BY {order}"
    )
}

#[test]
fn rows_of_windows_are_ordered_window_by_window() {
    let second = "INTERVAL '1' SECOND";
    let (tumble, hop, cumulate, session) = (
        format!("TUMBLE({TS}, {second})"),
        format!("HOP({TS}, {second}, INTERVAL '2' SECOND)"),
        format!("CUMULATE({TS}, {second}, INTERVAL '2' SECOND)"),
        format!("SESSION(TABLE bids PARTITION BY auction, DESCRIPTOR(ts), {second})"),
    );
    for (function, order) in [
        (&tumble, "window_start, n DESC LIMIT 3"),
        (&tumble, "w, auction"),
        (&hop, "window_start"),
        (&hop, "window_end, MAX(price)"),
        (&cumulate, "window_end, window_start"),
        (&session, "window_end ASC NULLS FIRST, auction"),
    ] {
        let plan = graph(&ordered(function, "window_end AS w", order));
        let sort = plan.outputs[0].sort.as_ref().expect("an order");
        assert!(sort.each_window && sort.visible == 3, "{sort:?}");
    }
    for (function, order, parts) in [
        (&tumble, "n", ["must begin with window_start or window_end", "ROW_NUMBER"]),
        (&tumble, "auction, window_end", ["must begin with window_start", "^"]),
        (&hop, "window_end DESC", ["the latest cannot come first", "without DESC"]),
        (&cumulate, "window_start, n", ["must begin with window_end", "ORDER BY window_end, …"]),
        (&session, "window_start", ["must begin with window_end", "^"]),
    ] {
        refused(&ordered(function, "window_end", order), &parts);
    }
    let counts = format!("SELECT window_end, COUNT(*) FROM TABLE({tumble}) GROUP BY window_end");
    // LIMIT alone takes the first rows of the first windows, or of the first slices of time.
    let pairs =
        "SELECT a.price FROM bids AS a JOIN bids AS b ON a.ts = b.ts AND a.auction = b.price";
    let union = format!("{counts} UNION ALL {counts}");
    for rows in [&counts, &union, pairs] {
        let plan = graph(&format!("{rows} LIMIT 3"));
        let sort = plan.outputs[0].sort.as_ref().expect("a limit");
        assert!(sort.each_window && sort.keys.is_empty() && sort.limit == Some(3), "{sort:?}");
    }
    refused(&format!("{pairs} ORDER BY a.price LIMIT 3"), &["'bids' never ends, so an ORDER BY"]);
    refused(
        &format!("{counts} UNION ALL {counts} ORDER BY window_end"),
        &["from several groupings", "in the order of their windows"],
    );
    // Not of windows, but of what ends.
    refused("SELECT ts FROM bids ORDER BY ts", &["'bids' never ends"]);
}

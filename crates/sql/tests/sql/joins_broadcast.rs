//! Tests of joins one side of which goes to all workers.

use crate::common::*;
use crate::joins::{TABLES, join, query};
use millstream_sql::Outcome;

/// A side that has one row in each window, unless it matters which of its rows have partners.
#[test]
fn a_row_of_each_window_is_broadcast() {
    let most = |by: &str| {
        format!(
            "(SELECT window_start, window_end, MAX(price) AS most FROM s
              GROUP BY window_start, window_end{by}) AS m"
        )
    };
    let on = "ON o.window_start = m.window_start AND o.window_end = m.window_end";
    let broadcast = |text: &str| join(&query(text)).1.broadcast;
    for (kind, right, left) in [
        ("JOIN", Some(1), Some(0)),
        ("LEFT JOIN", Some(1), None),
        ("RIGHT JOIN", None, Some(0)),
        ("FULL JOIN", None, None),
    ] {
        let of = |left: &str, right: &str| {
            broadcast(&format!("SELECT id, most FROM {left} {kind} {right} {on} AND id = most"))
        };
        assert_eq!((of("o", &most("")), of(&most(""), "o")), (right, left), "{kind}");
        // Of each group.
        assert_eq!((of("o", &most(", item")), of(&most(", via"), "o")), (None, None), "{kind}");
    }
    // Without keys, and of two such sides one.
    let plain = format!("SELECT id FROM o JOIN {} {on} AND price < most", most(""));
    assert_eq!(broadcast(&plain), Some(1));
    let both = format!(
        "SELECT least FROM (SELECT window_start, window_end, MIN(price) AS least FROM o
         GROUP BY window_start, window_end) AS o JOIN {} {on}",
        most("")
    );
    assert_eq!(broadcast(&both), Some(1));
    for (exists, expected) in [("EXISTS", Some(1)), ("NOT EXISTS", Some(1))] {
        let text = format!(
            "SELECT id FROM o WHERE {exists} (SELECT 1 FROM {}
             WHERE o.window_start = m.window_start AND o.window_end = m.window_end
                 AND price < most)",
            most("")
        );
        assert_eq!(broadcast(&text), expected, "{exists}");
    }
}

/// Windows that overlap, as in query 5 of NEXMark: results of windows are grouped again by the
/// bounds of these, whatever they are called, and so there is one row for each.
#[test]
fn a_row_of_each_window_that_overlaps_is_broadcast() {
    let cumulate =
        "CUMULATE(TABLE orders, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND)";
    for windows in ["oh", &format!("TABLE({cumulate})")] {
        let counts = format!(
            "SELECT item, COUNT(*) AS num, window_start AS s, window_end AS e FROM {windows}
             GROUP BY item, window_start, window_end"
        );
        let broadcast = |by: &str| {
            let text = format!(
                "SELECT a.item FROM ({counts}) AS a
                 JOIN (
                     SELECT MAX(num) AS most, c.s AS f, c.e AS t FROM ({counts}) AS c GROUP BY {by}
                 ) AS m
                 ON a.s = m.f AND a.e = m.t AND a.num >= m.most"
            );
            join(&query(&text)).1.broadcast
        };
        assert_eq!(broadcast("c.s, c.e"), Some(1), "{windows}");
        assert_eq!(broadcast("c.e, c.s"), Some(1), "{windows}");
        assert_eq!(broadcast("c.s, c.e, c.item"), None, "{windows}");
    }
    // Several sessions end within one slice.
    let sessions = "SELECT a.n FROM ses AS a JOIN (
             SELECT window_start, window_end, MAX(n) AS most FROM ses
             GROUP BY window_start, window_end
         ) AS m ON a.window_start = m.window_start AND a.window_end = m.window_end AND n = most";
    assert_eq!(join(&query(sessions)).1.broadcast, None);
}

/// Rows of windows and records within an interval, as in query 7 of NEXMark, if windows are so long
/// that few of them meet a slice, which is half of the interval.
#[test]
fn a_row_of_each_window_is_broadcast_within_an_interval() {
    let broadcast = |kind: &str, windows: &str, within_seconds: u32| {
        let text = format!(
            "SELECT id FROM orders {kind} (
                 SELECT MAX(price) AS most, window_end AS t
                 FROM TABLE({windows}) GROUP BY window_start, window_end
             ) AS m
             ON orders.price = m.most
                 AND orders.ts BETWEEN m.t - INTERVAL '{within_seconds}' SECOND AND m.t"
        );
        join(&query(&text)).1.broadcast
    };
    let orders = "TABLE orders, DESCRIPTOR(ts)";
    let tumble = format!("TUMBLE({orders}, INTERVAL '10' SECOND)");
    assert_eq!(broadcast("JOIN", &tumble, 10), Some(1));
    assert_eq!(broadcast("JOIN", &tumble, 20), Some(1));
    assert_eq!(broadcast("JOIN", &tumble, 21), None);
    for windows in [
        format!("HOP({orders}, INTERVAL '10' SECOND, INTERVAL '30' SECOND)"),
        format!("CUMULATE({orders}, INTERVAL '10' SECOND, INTERVAL '30' SECOND)"),
    ] {
        assert_eq!(broadcast("JOIN", &windows, 20), Some(1), "{windows}");
        assert_eq!(broadcast("JOIN", &windows, 21), None, "{windows}");
    }
    assert_eq!(broadcast("LEFT JOIN", &tumble, 10), Some(1));
    assert_eq!(broadcast("RIGHT JOIN", &tumble, 10), None);
}

#[test]
fn explain_shows_a_broadcast() {
    let text = format!(
        "{TABLES} EXPLAIN SELECT m.window_end, id FROM (
             SELECT window_start, window_end, MAX(price) AS most FROM o
             GROUP BY window_start, window_end) AS m
         RIGHT JOIN o ON o.window_end = m.window_end AND price = most"
    );
    let explained = match execute(&mut session(), &text) {
        Ok(Outcome::Explain(planned)) => planned.explain,
        other => panic!("{other:?}"),
    };
    for line in [
        "soft breaker (keeps rows of both sides, which meet where the larger side's row is)",
        "  broadcast: the left side's row of a window goes to all workers; rows of the right side stay \
         where they are",
        "  keys most = price DOUBLE",
    ] {
        assert!(explained.lines().any(|shown| shown == line), "{line} is not in {explained}");
    }
}

//! Tests of joins that are refused, of what EXPLAIN says of joins, and of queries of NEXMark.

use crate::common::*;
use crate::joins::{TABLES, asked, given, query, sides, strings};
use millstream_sql::Outcome;

/// Its message and help.
fn told(text: &str) -> (String, String) {
    let error = match execute(&mut session(), &format!("{TABLES} {text}")) {
        Ok(outcome) => panic!("was not refused: {text}\n{outcome:?}"),
        Err(error) => error,
    };
    assert!(error.span.is_some(), "{text}: {error}");
    assert!(!error.message.contains("internal"), "{text}: {error}");
    (error.message, error.help.unwrap_or_default())
}

// tidy: long function: one case per reason
#[test]
fn joins_that_would_keep_rows_for_ever_are_refused() {
    let kept = "its rows would have to be kept for ever, as a partner may come at any time";
    let windows = "assign the same windows to both sides, and join within them:\n";
    for (text, message, help) in [
        (
            "SELECT * FROM orders JOIN ships ON id = order_id",
            format!(
                "the JOIN of orders and ships has no windows, and table 'orders' never ends: {kept}"
            ),
            windows,
        ),
        (
            "SELECT o.id FROM o LEFT JOIN ships ON o.id = order_id",
            format!(
                "the LEFT JOIN of o and ships has windows on its left side only, and table \
                 'orders' never ends: {kept}"
            ),
            windows,
        ),
        (
            "SELECT o.id FROM o JOIN s ON o.id = s.order_id",
            format!(
                "the JOIN of o and s does not say that both rows are of the same window, and \
                 table 'orders' never ends: {kept}"
            ),
            "join within windows: L.window_start = R.window_start",
        ),
        (
            "SELECT id FROM orders WHERE id IN (SELECT order_id FROM ships)",
            format!("IN has no windows, and table 'orders' never ends: {kept}"),
            windows,
        ),
        (
            "SELECT id FROM orders WHERE NOT EXISTS (SELECT 1 FROM ships WHERE order_id = id)",
            format!("NOT EXISTS has no windows, and table 'orders' never ends: {kept}"),
            windows,
        ),
        (
            "SET 'join.within' = '1 hour';
             SELECT id FROM orders JOIN (SELECT order_id FROM ships) AS s ON id = order_id",
            format!(
                "the JOIN of orders and s is not bounded by the setting 'join.within', as its right \
                 side has no event time, and table 'orders' never ends: {kept}"
            ),
            "select the column too that the table's watermark is for",
        ),
        (
            "SET 'join.within' = '1 hour'; SELECT id FROM (SELECT id FROM orders) AS o
             JOIN (SELECT order_id FROM ships) AS s ON id = order_id",
            format!(
                "the JOIN of o and s is not bounded by the setting 'join.within', as both sides \
                 have no event time, and table 'orders' never ends: {kept}"
            ),
            "select the column too that the table's watermark is for",
        ),
        (
            "SELECT id FROM orders JOIN ships ON id = order_id AND at >= ts",
            format!(
                "the JOIN of orders and ships says only one way how far apart the times of two \
                 rows may be, and table 'orders' never ends: {kept}"
            ),
            "say both ways: a.ts BETWEEN b.ts - INTERVAL",
        ),
        (
            "SELECT id FROM orders JOIN ships ON id = order_id
                 AND at BETWEEN ts AND ts + INTERVAL '1' MONTH",
            format!(
                "the JOIN of orders and ships says by months how far apart the times of two rows \
                 may be, which are not of one length, and table 'orders' never ends: {kept}"
            ),
            "say it by days or shorter units: INTERVAL '30' DAY",
        ),
        (
            "SELECT id FROM orders JOIN ships ON id = order_id
                 AND at BETWEEN ts + INTERVAL '2' MINUTE AND ts + INTERVAL '1' MINUTE",
            "the JOIN of orders and ships never has a pair, as the least distance of two times is \
             greater than the greatest"
                .into(),
            "the lesser bound comes first: a.ts BETWEEN b.ts - INTERVAL",
        ),
        (
            "SELECT o.id, names.name FROM o JOIN names ON o.id = names.id",
            "the JOIN of o and names keeps the rows of both sides until both end, and table 'orders' \
             never ends"
                .into(),
            "look up what a table holds when a record is taken in: FROM t JOIN side FOR SYSTEM_TIME",
        ),
        (
            "SELECT id FROM names WHERE EXISTS (SELECT 1 FROM orders WHERE orders.id = names.id)",
            "EXISTS keeps the rows of both sides until both end, and table 'orders' never ends"
                .into(),
            "a row of the side that ends can be left out only when the other one has ended, too:",
        ),
    ] {
        let (said, helped) = told(text);
        assert_eq!(said, message, "{text}");
        assert!(helped.starts_with(help), "{text}: {helped}");
    }
}

#[test]
fn windows_that_differ_are_refused() {
    let of = |on: &str| told(&format!("SELECT 1 FROM {on}"));
    let (message, help) = of("o JOIN sh ON o.id = order_id AND o.window_start = sh.window_start");
    assert_eq!(
        message,
        "the windows of the JOIN of o and sh differ: TUMBLE of 10 s on the left, HOP of 10 s every \
         5 s on the right"
    );
    assert!(help.starts_with("rows meet within the same windows: give both sides one window"));
    let (message, _) = of("TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '10' SECOND,
                               INTERVAL '2' SECOND)) AS x JOIN s ON x.window_end = s.window_end");
    assert!(message.contains("TUMBLE of 10 s, offset 2 s on the left, TUMBLE of 10 s on the"));
    let (message, help) = of("ses JOIN shes ON ses.window_start = shes.window_start");
    assert_eq!(message, "windows of SESSION that begin together end at several times");
    assert!(help.starts_with("add the end: L.window_start = R.window_start AND L.window_end ="));
    let cumulate = |table: &str, time: &str| {
        format!(
            "TABLE(CUMULATE(TABLE {table}, DESCRIPTOR({time}), INTERVAL '5' SECOND,
                 INTERVAL '10' SECOND))"
        )
    };
    let both = format!("{} AS x JOIN {} AS y", cumulate("orders", "ts"), cumulate("ships", "at"));
    let (message, _) = of(&format!("{both} ON x.window_start = y.window_start"));
    assert_eq!(message, "windows of CUMULATE that begin together end at several times");
    query(&format!("SELECT x.id FROM {both} ON x.window_end = y.window_end"));
    let (message, _) = of("TABLE(SESSION(TABLE orders, DESCRIPTOR(ts), INTERVAL '6' SECOND)) AS x
                           JOIN shes ON x.window_end = shes.window_end");
    assert!(message.contains("SESSION with gaps of 6 s on the left, SESSION"), "{message}");
}

#[test]
fn forms_of_joins_that_do_not_run_are_refused() {
    for (text, message, help) in [
        ("o JOIN s", "a join needs a condition", "write JOIN … ON …; or CROSS JOIN"),
        (
            "o RIGHT SEMI JOIN s ON o.id = s.order_id",
            "this kind of SEMI JOIN does not run here",
            "write LEFT SEMI JOIN, or WHERE EXISTS (…)",
        ),
        (
            "o RIGHT ANTI JOIN s ON o.id = s.order_id",
            "this kind of ANTI JOIN does not run here",
            "write LEFT ANTI JOIN, or WHERE NOT EXISTS (…)",
        ),
        (
            "orders, LATERAL (SELECT * FROM ships WHERE order_id = id) AS x",
            "LATERAL does not run here",
            "what stands in FROM cannot refer to what stands before it",
        ),
        (
            "o JOIN (SELECT * FROM s LIMIT 3) AS l ON o.window_start = l.window_start",
            "a join after a LIMIT does not run here",
            "put the LIMIT at the end of the whole query",
        ),
        (
            "past FULL JOIN names USING (id)",
            "USING or NATURAL with RIGHT JOIN and FULL JOIN does not run here",
            "write ON L.id = R.id, and COALESCE(L.id, R.id) for the column of both",
        ),
        (
            "(SELECT tags FROM names UNION ALL SELECT ARRAY_AGG(name) FROM names GROUP BY id) AS x
             CROSS JOIN UNNEST(tags) AS u (t)",
            "UNNEST for a UNION ALL of records of tables and of results of a GROUP BY or a join does \
             not run",
            "write it into each query of the UNION ALL",
        ),
        (
            "past JOIN names ON past.id",
            "a condition must be BOOLEAN, and id is BIGINT",
            "compare it with something",
        ),
        (
            "oh FULL JOIN (SELECT * FROM sh WHERE window_start > TIMESTAMP '2024-01-01 00:00:00')
             AS y ON oh.window_end = y.window_end",
            "the FULL JOIN of oh and y does not run with a condition on the windows of one side",
            "ask for the windows above the join",
        ),
        (
            "(SELECT *, window_end - ts AS age FROM oh) AS x JOIN sh ON x.window_end = sh.window_end
             AND age > INTERVAL '1' SECOND",
            "window_end - ts cannot be computed of each row that HOP takes: a row is in several \
             windows",
            "select the window's columns as they are, and compute with them above the join",
        ),
    ] {
        let (said, helped) = told(&format!("SELECT 1 FROM {text}"));
        assert_eq!(said, message, "{text}");
        assert!(helped.starts_with(help), "{text}: {helped}");
    }
    let (message, _) = told("SELECT * FROM past JOIN names USING (id)");
    assert_eq!(message, "* over a join with USING or NATURAL does not run here");
}

#[test]
fn subqueries_elsewhere_are_refused() {
    for (text, message) in [
        ("EXISTS (SELECT 1 FROM past) OR id = 3", "EXISTS within an expression does not run here"),
        (
            "CASE WHEN id IN (SELECT id FROM past) THEN TRUE END",
            "IN with a subquery within an expression does not run here",
        ),
        ("price > (SELECT MAX(price) FROM s)", "a subquery as a value does not run here"),
        (
            "EXISTS (SELECT 1 FROM (SELECT * FROM s WHERE s.order_id = o.id) AS q)",
            "id is of the query around this one, which may be named in the outermost WHERE of a \
             subquery alone",
        ),
        (
            "EXISTS (SELECT 1 FROM s WHERE NOT EXISTS (SELECT 1 FROM past AS p WHERE p.id = o.id))",
            "NOT EXISTS names o.id, which is of a query farther out than the one around it",
        ),
        (
            "EXISTS (SELECT 1 FROM past WHERE EXISTS (SELECT 1 FROM past WHERE past.id = o.id))",
            "a subquery that names queries farther out has a column of the same name as one of \
             these: past.at",
        ),
        (
            "id NOT IN (SELECT order_id FROM s WHERE s.window_end = o.window_end)",
            "NOT IN keeps no row at all once there is a NULL, and order_id can be NULL: each row \
             would have to be compared with all others",
        ),
        (
            "item NOT IN (SELECT item FROM s WHERE s.window_end = o.window_end)",
            "NOT IN keeps no row at all once there is a NULL, and item can be NULL: each row \
             would have to be compared with all others",
        ),
    ] {
        assert_eq!(told(&format!("SELECT id FROM o WHERE {text}")).0, message, "{text}");
    }
    let (_, help) = told("SELECT id FROM o WHERE id NOT IN (SELECT order_id FROM s)");
    assert_eq!(
        help,
        "leave NULLs out: order_id IS NOT NULL in the WHERE of the subquery; or, where a NULL is \
         to be like no other value, write\n\
         NOT EXISTS (SELECT 1 FROM … WHERE order_id = id AND …)"
    );
    let (_, help) = told("SELECT id FROM o WHERE item NOT IN (SELECT item FROM s)");
    let same =
        "NOT EXISTS (SELECT 1 FROM … AS i WHERE i.item = o.item AND …), with FROM … AS o around it";
    assert_eq!(help.lines().last(), Some(same));
    for text in [
        "SELECT EXISTS (SELECT 1 FROM past) FROM past",
        "SELECT 1 FROM past JOIN names ON EXISTS (SELECT 1 FROM past)",
    ] {
        assert_eq!(told(text).0, "EXISTS within an expression does not run here", "{text}");
    }
}

#[test]
fn explain_shows_a_join() {
    let text = format!(
        "{TABLES} EXPLAIN SELECT o.id, n, via FROM o LEFT JOIN sn ON o.id = sn.order_id
             AND o.window_end = sn.window_end AND o.item > n
         JOIN s ON s.window_end = o.window_end WHERE o.note = 'x'"
    );
    let explained = match execute(&mut session(), &text) {
        Ok(Outcome::Explain(planned)) => planned.explain,
        other => panic!("{other:?}"),
    };
    let from = explained.find("stage 2: ").unwrap();
    assert_eq!(
        &explained[from..],
        "stage 2: result.join (taken by stage 3)
first pipeline (for each batch of records)
  left side
  records of source 1: orders
  filter note = 'x'
  project id, item
  right side
  rows of stage 1: order_id, n
  event time: the time of their window
  window of 10 s
soft breaker (keeps rows of both sides, which meet at the key's leader)
  join: pairs, and rows of the left side without a partner
  keys id = CAST(order_id AS BIGINT) BIGINT
  condition CAST(item AS BIGINT) > n
second pipeline (when the watermark passes a window's end)
  project id, n
stage 3: result.join.2 (taken by a result)
first pipeline (for each batch of records)
  left side
  rows of stage 2: id, n
  event time: the time of their window
  right side
  records of source 2: ships
  project via
  window of 10 s
soft breaker (keeps rows of both sides, which meet at the key's leader)
  join: pairs
  keys none
second pipeline (when the watermark passes a window's end)
  project id, n, via
result: rows of stage 3
  id BIGINT, n BIGINT, via STRING"
    );
}

#[test]
fn queries_of_nexmark_are_joins_within_windows() {
    let tables = "
        CREATE TABLE bid (auction BIGINT, price BIGINT, dateTime TIMESTAMP(3),
            WATERMARK FOR dateTime AS dateTime - INTERVAL '4' SECOND)
            WITH ('connector' = 'endless');
        CREATE TABLE person (id BIGINT, name STRING, dateTime TIMESTAMP(3),
            WATERMARK FOR dateTime AS dateTime) WITH ('connector' = 'endless');
        CREATE TABLE auction (seller BIGINT, dateTime TIMESTAMP(3),
            WATERMARK FOR dateTime AS dateTime) WITH ('connector' = 'endless');";
    // Query 5.
    let counts = "SELECT auction, count(*) AS num, window_start AS starttime, window_end AS endtime
        FROM TABLE(HOP(TABLE bid, DESCRIPTOR(dateTime), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
        GROUP BY auction, window_start, window_end";
    let plan = query(&format!(
        "{tables} SELECT AuctionBids.auction, AuctionBids.num FROM ({counts}) AS AuctionBids
         JOIN (SELECT max(CountBids.num) AS maxn, CountBids.starttime, CountBids.endtime
               FROM ({counts}) AS CountBids GROUP BY CountBids.starttime, CountBids.endtime
         ) AS MaxBids
         ON AuctionBids.starttime = MaxBids.starttime AND AuctionBids.endtime = MaxBids.endtime
             AND AuctionBids.num >= MaxBids.maxn"
    ));
    // The bids are counted once.
    assert_eq!((plan.sources.len(), plan.stages.len()), (1, 3));
    assert_eq!(sides(&plan), [strings(&["auction, COUNT(*)"]), strings(&["maxn"])]);
    assert_eq!(asked(&plan), (vec![], "num >= maxn".into(), String::new()));
    // Query 8.
    let of = |columns: &str, table: &str| {
        format!(
            "SELECT {columns}, window_start AS starttime, window_end AS endtime
             FROM TABLE(TUMBLE(TABLE {table}, DESCRIPTOR(dateTime), INTERVAL '10' SECOND))
             GROUP BY {columns}, window_start, window_end"
        )
    };
    let plan = query(&format!(
        "{tables} SELECT P.id, P.name, P.starttime FROM ({}) AS P JOIN ({}) AS A
         ON P.id = A.seller AND P.starttime = A.starttime AND P.endtime = A.endtime",
        of("id, name", "person"),
        of("seller", "auction")
    ));
    assert_eq!((plan.sources.len(), plan.stages.len()), (2, 3));
    assert_eq!(asked(&plan), (strings(&["id = seller"]), String::new(), String::new()));
    assert_eq!(given(&plan), ["id", "name", "window_start"]);
}

#[test]
fn windows_over_an_interval_join_need_the_time_of_its_anchor() {
    let join = "CREATE VIEW j AS SELECT ts, at FROM orders LEFT JOIN ships
                ON id = order_id AND at BETWEEN ts AND ts + INTERVAL '1' HOUR;";
    let windows = |time: &str| {
        format!(
            "{join} SELECT window_start, COUNT(*) FROM TABLE(TUMBLE(TABLE j, DESCRIPTOR({time}),
             INTERVAL '1' HOUR)) GROUP BY window_start, window_end"
        )
    };
    query(&windows("ts"));
    let (message, help) = told(&windows("at"));
    assert_eq!(message, "'at' is not the event time of what this interval join gives");
    let (full, _) = told(&windows("ts").replace("LEFT JOIN", "FULL JOIN"));
    assert_eq!(
        full,
        "the rows of an interval FULL JOIN have no event time, as a row of either side may be missing"
    );
    assert_eq!(
        help,
        "that is 'ts', of the left side: select it as it is, and name it in DESCRIPTOR(…)"
    );
}

/// Windows divide local time, and joins by time go by instants: a plan has one kind of time.
#[test]
fn joins_by_instants_do_not_go_with_windows_of_a_time_zone() {
    let tables = "SET 'time_zone' = 'Europe/Zurich';
        CREATE TABLE a (ts TIMESTAMP_LTZ(3), k INT, WATERMARK FOR ts AS ts)
        WITH ('connector' = 'file', 'format' = 'csv', 'path' = 'a.csv');
        CREATE VIEW j AS SELECT y.ts AS ts FROM a AS x
        JOIN a AS y ON x.k = y.k AND y.ts BETWEEN x.ts AND x.ts + INTERVAL '1' MINUTE;";
    let (message, help) = told(&format!(
        "{tables} SELECT window_start, COUNT(*) FROM TABLE(TUMBLE(TABLE j, DESCRIPTOR(ts), \
         INTERVAL '1' HOUR)) GROUP BY window_start, window_end"
    ));
    assert_eq!(
        message,
        "windows divide the local time of Europe/Zurich, and a join by TIMESTAMP_LTZ goes by \
         instants: they do not go together in one query"
    );
    assert_eq!(help, "SET 'time_zone' = 'UTC'");
}

/// The help names the tables of the join, and what comes of it its event time as the query does.
#[test]
fn help_names_what_is_there() {
    let (_, help) = told("SELECT id FROM orders AS o JOIN ships AS s ON id = order_id");
    for part in [
        "TABLE orders, DESCRIPTOR(ts)",
        "TABLE ships, DESCRIPTOR(at)",
        "in ON:\nL.ts BETWEEN R.at - ",
    ] {
        assert!(help.contains(part), "{help}");
    }
    let (message, help) = told(
        "CREATE VIEW j AS SELECT o.at, o.id FROM past AS o JOIN past AS p
             ON o.id = p.id AND o.at BETWEEN p.at - INTERVAL '5' SECOND AND p.at;
         SELECT COUNT(*) FROM TABLE(TUMBLE(TABLE j, DESCRIPTOR(at), INTERVAL '1' DAY))
         GROUP BY window_start, window_end",
    );
    assert_eq!(message, "'at' is not the event time of what this interval join gives");
    assert!(help.starts_with("that is 'at', of the right side: "), "{help}");
}

#[test]
fn what_is_no_condition_of_a_join_is_told() {
    for (text, message, help) in [
        (
            "SELECT 1 FROM past JOIN names ON past.id = names.id AND COUNT(*) > 1",
            "an aggregate cannot stand in a condition of a join, which sees single rows",
            "aggregate one side in a subquery first",
        ),
        (
            "SELECT 1 FROM past WHERE (id, name) IN (SELECT id, name FROM names)",
            "IN of several values at once does not run here",
            "compare each of them: EXISTS (SELECT 1 FROM … AS i WHERE i.a = o.a AND i.b = o.b)",
        ),
        (
            "SELECT COUNT(*) FROM o LEFT JOIN ships ON id = order_id
                 AND at BETWEEN ts - INTERVAL '1' MINUTE AND ts GROUP BY window_start, window_end",
            "table 'orders' never ends, and what a join by times gives has no windows, so a GROUP \
             BY over that would never give a result",
            "join first, and assign windows to what that gives, by its event time:",
        ),
    ] {
        let (said, helped) = told(text);
        assert_eq!(said, message, "{text}");
        assert!(helped.starts_with(help), "{text}: {helped}");
    }
}

/// A side without an event time is named where `join.within` is advised.
#[test]
fn advice_names_the_side_without_an_event_time() {
    let text = "SELECT id FROM (SELECT id FROM orders) AS o JOIN ships ON id = order_id";
    let (_, help) = told(text);
    let expected = "SET 'join.within' = '1 hour'\n(its left side has no event time yet: select";
    assert!(help.contains(expected), "{help}");
    let (_, help) = told("SELECT id FROM orders JOIN ships ON id = order_id");
    assert!(help.ends_with("SET 'join.within' = '1 hour'"), "{help}");
}

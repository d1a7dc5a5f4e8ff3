//! Tests of the reasons why rows may be others when they are computed again.

use crate::common::*;
use millstream_sql::Outcome;

const TABLES: &str = "
    CREATE TABLE t (n BIGINT, ts TIMESTAMP(3), at AS PROCTIME(), WATERMARK FOR ts AS ts)
        WITH ('connector' = 'endless');
    CREATE TABLE side (id BIGINT) WITH ('connector' = 'fake');
    CREATE TABLE o (n BIGINT) WITH ('connector' = 'nowhere');
";

/// Why the rows of an `INSERT INTO o` vary.
fn why(statements: &str) -> Option<String> {
    let mut planner = empty_session();
    let outcome = execute(&mut planner, &format!("{TABLES} {statements}"));
    match outcome.unwrap_or_else(|e| panic!("{}", e.render())) {
        Outcome::Insert(planned, _) => planner.promise(&planned, 0, "o").1,
        other => panic!("no insert: {other:?}"),
    }
}

const WINDOWS: &str = "INSERT INTO o SELECT COUNT(*) FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts),
    INTERVAL '1' MINUTE)) GROUP BY window_start, window_end;";

#[test]
fn a_clock_that_decides_on_windows_lets_rows_vary() {
    assert_eq!(why(WINDOWS), None);
    assert_eq!(why(&format!("SET 'watermark.max_ahead' = 'none'; {WINDOWS}")), None);
    let why = why(&format!("SET 'watermark.max_ahead' = '1 s'; {WINDOWS}")).unwrap();
    assert!(why.contains("watermark.max_ahead"), "{why}");
}

#[test]
fn a_table_that_is_read_anew_lets_rows_vary() {
    let query = "INSERT INTO o SELECT t.n FROM t
        JOIN side FOR SYSTEM_TIME AS OF t.at ON t.n = side.id;";
    assert!(why(query).unwrap().contains("lookup.reload"));
    assert_eq!(why(&format!("SET 'lookup.reload' = '0'; {query}")), None);
}

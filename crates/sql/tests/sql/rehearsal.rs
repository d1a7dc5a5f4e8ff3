//! Tests of planning a script before it runs: what was worked out then is used when it runs, unless
//! something else has happened in between.

use crate::common::*;
use millstream_sql::{Outcome, Planner, Statement, parse_script};

const TABLE: &str = "CREATE TABLE t (a BIGINT) WITH ('connector' = 'fake');";
const OTHER: &str =
    "DROP TABLE t; CREATE TABLE t (b STRING, a STRING) WITH ('connector' = 'fake');";

fn statements(text: &str) -> Vec<Statement> {
    parse_script(text, "test.sql").unwrap_or_else(|e| panic!("{}", e.render()))
}

/// The types of what the last of some statements gives.
fn run(planner: &mut Planner, statements: &[Statement]) -> Vec<String> {
    let mut types = Vec::new();
    for statement in statements {
        match planner.execute(statement) {
            Ok(Outcome::Query(planned)) => {
                let fields = planned.plan.stages[0].output.fields().clone();
                types = fields.iter().map(|field| field.data_type().to_string()).collect();
            }
            Ok(_) => {}
            Err(e) => panic!("{}", e.render()),
        }
    }
    types
}

#[test]
fn what_was_rehearsed_is_not_used_over_other_tables() {
    let script = statements(&format!("{TABLE} CREATE VIEW v AS SELECT a FROM t; SELECT * FROM v;"));
    let other = statements(OTHER);
    let mut planner = empty_session();
    assert_eq!(run(&mut planner.rehearsal(), &script), ["Int64"]);
    assert_eq!(run(&mut planner.clone(), &script), ["Int64"]);
    // Again: it has been used.
    assert_eq!(run(&mut planner.clone(), &script), ["Int64"]);
    // Another table in between, before the view or behind it.
    for at in [1, 2] {
        let mut planner = planner.clone();
        assert_eq!(run(&mut planner.rehearsal(), &script), ["Int64"]);
        run(&mut planner, &script[..at]);
        run(&mut planner, &other);
        let expected = if at == 1 { "Utf8" } else { "Int64" };
        assert_eq!(run(&mut planner, &script[at..]), [expected]);
    }
    // The same query twice, over other tables.
    run(&mut planner, &script[..1]);
    let query = statements("SELECT a FROM t;");
    assert_eq!(run(&mut planner.rehearsal(), &query), ["Int64"]);
    run(&mut planner, &other);
    assert_eq!(run(&mut planner, &query), ["Utf8"]);
}

//! Tests of UNNEST: what stages it becomes, and what is refused.

use millstream_contract::plan::{Element, Node, Operator, Plan, Unnest};

use crate::common::*;

const TABLE: &str = "CREATE TABLE n (
    id INT,
    ts TIMESTAMP(3),
    l ARRAY<INT>,
    o ARRAY<ROW<name STRING, qty INT, price DOUBLE>>,
    m MAP<STRING, INT NOT NULL>,
    WATERMARK FOR ts AS ts
) WITH ('connector' = 'fake');";

fn planned(text: &str) -> Plan {
    graph(&format!("{TABLE}{text}"))
}

/// The UNNESTs of a plan, with the names and NULLs of what they give.
fn unnests(plan: &Plan) -> Vec<(&Unnest, Vec<String>)> {
    let mut found = Vec::new();
    for stage in &plan.stages {
        let Operator::Unnest(unnest) = &stage.operator else { continue };
        let null = |nullable| if nullable { "" } else { " NOT NULL" };
        let fields = stage.output.fields().iter();
        let names = fields.map(|f| format!("{}{}", f.name(), null(f.is_nullable())));
        found.push((unnest, names.collect()));
    }
    found
}

#[test]
fn only_what_is_needed_is_read_kept_and_shown() {
    let plan = planned(
        "SELECT id, SUM(q) FROM n CROSS JOIN UNNEST(o) AS u (s, q, p) WHERE p > 1 GROUP BY id",
    );
    plan.check().unwrap();
    let [(unnest, columns)] = &unnests(&plan)[..] else { panic!("{plan:?}") };
    assert_eq!(unnest.elements, [Element::Field(1), Element::Field(2)]);
    assert_eq!(columns, &["id", "q", "p"]);
    assert!(!unnest.outer);
    let read: Vec<&str> =
        plan.sources[0].schema.fields().iter().map(|field| field.name().as_str()).collect();
    assert_eq!(read, ["id", "o"]);
    assert_eq!(plan.stages.len(), 2);
    let plan = planned("SELECT COUNT(*) FROM n LEFT JOIN UNNEST(l) WITH ORDINALITY AS u ON TRUE");
    let [(unnest, columns)] = &unnests(&plan)[..] else { panic!("{plan:?}") };
    assert_eq!((unnest.elements.len(), columns.len(), unnest.outer), (0, 0, true));
}

#[test]
fn an_unnest_that_several_take_is_one_stage() {
    let plan = planned(
        "CREATE VIEW v AS SELECT id, ts, x FROM n CROSS JOIN UNNEST(l) AS u (x) WHERE id > 0;
         SELECT id, x FROM v UNION ALL SELECT x, id FROM v WHERE x > 3",
    );
    assert_eq!(unnests(&plan).len(), 1, "{plan:?}");
    let last = plan.stages.last().unwrap();
    assert!(last.inputs.iter().all(|input| input.from == Node::Stage(0)));
}

#[test]
fn windows_need_the_time_of_records_alone() {
    let plan = planned(
        "SELECT window_start, x, COUNT(*)
         FROM TABLE(TUMBLE(TABLE n, DESCRIPTOR(ts), INTERVAL '10' SECOND))
         CROSS JOIN UNNEST(l) AS u (x)
         GROUP BY window_start, window_end, x",
    );
    plan.check().unwrap();
    let [(_, columns)] = &unnests(&plan)[..] else { panic!("{plan:?}") };
    assert_eq!(columns, &["x"]);
    assert!(plan.sources[0].event_time.is_some());
    let Operator::Aggregate(aggregate) = &plan.stages[1].operator else { panic!("{plan:?}") };
    assert!(aggregate.window.is_some());
}

#[track_caller]
fn refused_of_n(text: &str, parts: &[&str]) {
    refused(&format!("{TABLE}{text}"), parts);
}

#[test]
fn what_cannot_be_unnested_is_refused() {
    refused_of_n(
        "SELECT x FROM n CROSS JOIN UNNEST(id) AS x",
        &["UNNEST of INT", "it takes an ARRAY or a MAP", "^^"],
    );
    refused_of_n(
        "SELECT a FROM n CROSS JOIN UNNEST(l, o) AS u (a, b)",
        &["UNNEST takes one array, not 2", "one UNNEST after the other"],
    );
    refused_of_n(
        "SELECT a FROM n CROSS JOIN UNNEST(l) AS u (a, b)",
        &["UNNEST of ARRAY<INT> gives 1 column, not 2"],
    );
    refused_of_n("SELECT a FROM n, UNNEST(m) AS u (a, a)", &["second column 'a'"]);
    refused_of_n("SELECT 1 FROM n, UNNEST(zzz) AS u (a)", &["'zzz'"]);
    refused_of_n("SELECT b FROM n, UNNEST(l) AS u (a)", &["'b'"]);
    refused_of_n("SELECT a FROM UNNEST(l) AS u (a)", &["UNNEST without a table before it"]);
    refused_of_n("SELECT UNNEST(l) FROM n", &["UNNEST stands in FROM"]);
}

#[test]
fn joins_that_are_none_are_refused() {
    let join = |join: &str| format!("SELECT x FROM n {join}");
    for (text, part) in [
        ("JOIN UNNEST(l) AS u (x) ON x = 1", "a condition of a join with UNNEST"),
        ("LEFT JOIN UNNEST(l) AS u (x) ON id = x", "write ON TRUE, and the condition in WHERE"),
        ("LEFT JOIN UNNEST(l) AS u (x)", "write LEFT JOIN UNNEST(…) ON TRUE"),
        ("RIGHT JOIN UNNEST(l) AS u (x) ON TRUE", "this kind of join with UNNEST"),
        ("FULL JOIN UNNEST(l) AS u (x) ON TRUE", "this kind of join with UNNEST"),
    ] {
        refused_of_n(&join(text), &[part]);
    }
}

#[test]
fn what_comes_after_limits_and_of_unions_with_groups_is_refused() {
    refused_of_n(
        "SELECT x FROM (SELECT l FROM n UNION ALL SELECT ARRAY_AGG(id) FROM n GROUP BY id) AS g
         CROSS JOIN UNNEST(l) AS x",
        &["UNNEST for a UNION ALL of records of tables and of results", "into each query"],
    );
    refused_of_n(
        "SELECT x FROM (SELECT l FROM n LIMIT 3) AS g CROSS JOIN UNNEST(l) AS x",
        &["UNNEST after a LIMIT"],
    );
    refused_of_n(
        "CREATE VIEW v AS SELECT id, t FROM n CROSS JOIN UNNEST(ARRAY[ts]) AS t;
         SELECT COUNT(*) FROM TABLE(TUMBLE(TABLE v, DESCRIPTOR(t), INTERVAL '1' SECOND))
         GROUP BY window_start, window_end",
        &["'t' is not the event time of the records", "^"],
    );
}

#[test]
fn a_plan_is_explained() {
    let text = format!("{TABLE}SELECT id, x FROM n LEFT JOIN UNNEST(l) AS x ON TRUE WHERE id > 1");
    let Ok(millstream_sql::Outcome::Query(planned)) = execute(&mut session(), &text) else {
        panic!("not planned");
    };
    let explain = planned.explain;
    assert!(explain.contains("a row for each element: x, NULL where there is none"), "{explain}");
    assert!(explain.contains("Unnest: x or NULL"), "{explain}");
}

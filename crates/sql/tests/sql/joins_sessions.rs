//! Tests of joins of the records of sessions: their plans.

use millstream_contract::plan::{Operator, PairSide, Plan};

use crate::joins::query;

#[test]
fn records_of_sessions_meet_in_the_rows_of_their_session() {
    let session = |key: &str| {
        format!(
            "TABLE(SESSION(TABLE orders PARTITION BY {key}, DESCRIPTOR(ts), INTERVAL '5' SECOND))"
        )
    };
    let join = |sides: &str, more: &str| {
        let item = session("item");
        query(&format!(
            "SELECT a.id, b.id FROM {item} AS a {sides} {item} AS b
             ON a.item = b.item AND a.window_start = b.window_start
             AND a.window_end = b.window_end {more}"
        ))
    };
    let pairs = |plan: &Plan| match &plan.stages[0].operator {
        Operator::Aggregate(aggregate) => aggregate.pairs.as_ref().map(|of| of.sides.clone()),
        other => panic!("{other:?}"),
    };
    let plan = join("JOIN", "AND a.id < 5 AND b.id > 6 AND a.id + 1 <> b.id");
    assert_eq!((plan.sources.len(), plan.stages.len()), (1, 1));
    let [left, right] = pairs(&plan).expect("pairs");
    let shown = |side: &PairSide| format!("{:?}", side.filter);
    assert!(shown(&left).contains("id < 5") || shown(&left).contains("Lt"), "{left:?}");
    assert_ne!(shown(&left), shown(&right));
    // Of other kinds, and with other keys, a join takes what the grouping gives.
    for (sides, more) in [("LEFT JOIN", ""), ("LEFT SEMI JOIN", ""), ("JOIN", "AND a.id = b.id")] {
        let plan = match sides {
            "LEFT SEMI JOIN" => query(&format!(
                "SELECT id FROM {} AS a WHERE EXISTS (SELECT 1 FROM {} AS b
                 WHERE a.item = b.item AND a.window_end = b.window_end AND b.id > 3)",
                session("item"),
                session("item")
            )),
            _ => join(sides, more),
        };
        assert_eq!((plan.sources.len(), plan.stages.len()), (1, 2), "{sides} {more}");
        assert!(pairs(&plan).is_none(), "{sides} {more}");
    }
    // Sessions of other keys are others.
    let plan = query(&format!(
        "SELECT a.id FROM {} AS a JOIN {} AS b ON a.item = b.item AND a.window_end = b.window_end",
        session("item"),
        session("id")
    ));
    assert_eq!((plan.sources.len(), plan.stages.len()), (1, 3));
}

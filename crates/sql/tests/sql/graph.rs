//! Tests of queries over several tables and with several outputs: which sources, stages and inputs
//! their plans have.

use crate::common::*;
use arrow::datatypes::DataType;
use millstream_contract::expr::Expr;
use millstream_contract::plan::{Node, Operator, Plan, Stage, Tumble};
use millstream_sql::Outcome;

const SECOND: &str = "
    CREATE TABLE asks (
        at TIMESTAMP(6), item BIGINT, cost INT, WATERMARK FOR at AS at - INTERVAL '1' SECOND
    ) WITH ('connector' = 'endless');
    CREATE TABLE counted (t TIMESTAMP(3), item BIGINT, n BIGINT) WITH ('connector' = 'nowhere');
    CREATE TABLE summed (item BIGINT, total BIGINT) WITH ('connector' = 'nowhere');
    CREATE TABLE kept (item BIGINT, price BIGINT) WITH ('connector' = 'nowhere');
    CREATE TABLE kept_too (item BIGINT, price BIGINT) WITH ('connector' = 'nowhere');";

const COUNTS: &str = "
    CREATE VIEW counts AS
    SELECT window_start AS s, window_end AS e, window_time AS t, auction, COUNT(*) AS n,
           SUM(price) AS total, MAX(price) AS most
    FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND))
    GROUP BY window_start, window_end, window_time, auction;";

fn query(text: &str) -> Plan {
    let plan = graph(&format!("{SECOND} {text}"));
    plan.check().unwrap_or_else(|e| panic!("{e}: {plan:?}"));
    plan
}

fn inserted(text: &str) -> (Plan, Vec<String>, String) {
    match execute(&mut session(), &format!("{SECOND} {text}")) {
        Ok(Outcome::Insert(planned, sinks)) => {
            assert_eq!(planned.plan.outputs.len(), sinks.len());
            planned.plan.check().unwrap_or_else(|e| panic!("{e}: {:?}", planned.plan));
            (planned.plan, planned.targets, planned.explain)
        }
        Ok(other) => panic!("no insert: {other:?}"),
        Err(e) => panic!("{}", e.render()),
    }
}

fn set(inserts: &str) -> Plan {
    set_over("", inserts)
}

/// A set behind a view.
fn set_over(view: &str, inserts: &str) -> Plan {
    inserted(&format!("{view} EXECUTE STATEMENT SET BEGIN {inserts} END")).0
}

fn text(expr: &Expr, plan: &Plan, node: Node) -> String {
    match expr {
        Expr::Column(i) => plan.schema_of(node).unwrap().field(*i).name().clone(),
        Expr::Computed(e) => e.to_string(),
    }
}

/// Of each input: from where, its condition, and the columns that it makes.
fn inputs(plan: &Plan, stage: usize) -> Vec<(Node, String, Option<Vec<String>>)> {
    let inputs = plan.stages[stage].inputs.iter();
    let shown = |e: &Expr, node| text(e, plan, node);
    inputs
        .map(|input| {
            let filter = input.filter.as_ref().map_or(String::new(), |f| shown(f, input.from));
            let columns = input
                .project
                .as_ref()
                .map(|p| p.columns.iter().map(|e| shown(e, input.from)).collect());
            (input.from, filter, columns)
        })
        .collect()
}

fn some(columns: &[&str]) -> Option<Vec<String>> {
    Some(columns.iter().map(|c| c.to_string()).collect())
}

fn is_stateless(stage: &Stage) -> bool {
    matches!(stage.operator, Operator::Stateless { .. })
}

#[test]
fn a_union_is_a_stage_with_an_input_for_each_query() {
    let plan = query(
        "SELECT item + 1 AS next, cost FROM (
             SELECT item, cost FROM asks WHERE cost > 1
             UNION ALL SELECT auction, price FROM bids
             UNION ALL SELECT auction, 7 FROM bids
         ) WHERE cost < 9",
    );
    assert_eq!((plan.sources.len(), plan.stages.len()), (2, 1));
    let (asks, bids) = (Node::Source(0), Node::Source(1));
    assert_eq!(
        inputs(&plan, 0),
        [
            (asks, "cost > 1 AND cost < 9".into(), some(&["item + 1", "CAST(cost AS BIGINT)"])),
            (bids, "price < 9".into(), some(&["auction + 1", "price"])),
            (bids, String::new(), some(&["auction + 1", "7"])),
        ]
    );
    let output = fields(&plan.stages[0].output);
    let bigint = DataType::Int64;
    assert_eq!(output, [("next", &bigint, true), ("cost", &bigint, true)]);
    // Read once, with the columns that somebody needs; nobody asks for the time.
    assert!(plan.sources.iter().all(|source| source.event_time.is_none()));
    assert_eq!(plan.sources[1].projection, [1, 2]);
}

#[test]
fn a_window_over_a_union_is_one_stage() {
    let both = "SELECT at, item FROM asks UNION ALL SELECT ts, auction FROM bids WHERE price > 3";
    let plan = query(&format!(
        "SELECT window_end, item, COUNT(*) AS n
         FROM TABLE(TUMBLE((SELECT * FROM ({both})), DESCRIPTOR(at), INTERVAL '1' MINUTE))
         WHERE item <> 4 GROUP BY window_start, window_end, item"
    ));
    assert_eq!((plan.sources.len(), plan.stages.len()), (2, 1));
    assert!(plan.sources.iter().all(|source| source.event_time.is_some()));
    // The time is not among the columns: records have it.
    assert_eq!(
        inputs(&plan, 0),
        [
            (Node::Source(0), "item <> 4".into(), some(&["item"])),
            (Node::Source(1), "price > 3 AND auction <> 4".into(), some(&["auction"])),
        ]
    );
    let view = format!("CREATE VIEW both AS {both};");
    let same = query(&format!(
        "{view} SELECT window_end, item, COUNT(*) AS n
         FROM TABLE(TUMBLE(TABLE both, DESCRIPTOR(at), INTERVAL '1' MINUTE))
         WHERE item <> 4 GROUP BY window_start, window_end, item"
    ));
    assert_eq!(inputs(&same, 0), inputs(&plan, 0));
}

#[test]
fn results_of_windows_and_records_share_a_longer_window() {
    let plan = query(&format!(
        "{COUNTS} SELECT window_start, SUM(n) AS n FROM TABLE(TUMBLE(
             (SELECT t, n FROM counts WHERE most > 2 UNION ALL SELECT at, 1 FROM asks),
             DESCRIPTOR(t), INTERVAL '1' MINUTE))
         GROUP BY window_start, window_end"
    ));
    assert_eq!((plan.sources.len(), plan.stages.len()), (2, 2));
    assert_eq!(
        inputs(&plan, 1),
        [
            (Node::Stage(0), String::new(), some(&["n"])),
            (Node::Source(1), String::new(), some(&["1"])),
        ]
    );
    let Operator::Aggregate(counts) = &plan.stages[0].operator else { panic!("{plan:?}") };
    assert!(counts.having.is_some());
    assert_eq!(counts.aggregates.len(), 2);
}

#[test]
fn rows_of_the_same_windows_keep_them_in_a_union() {
    let plan = query(&format!(
        "{COUNTS} CREATE VIEW asked AS
         SELECT window_start AS s, window_end AS e, item, COUNT(*) AS n
         FROM TABLE(TUMBLE(TABLE asks, DESCRIPTOR(at), INTERVAL '10' SECOND))
         GROUP BY window_start, window_end, item;
         SELECT e, SUM(n) AS n
         FROM (SELECT s, e, n FROM counts UNION ALL SELECT s, e, n FROM asked) GROUP BY s, e"
    ));
    assert_eq!((plan.sources.len(), plan.stages.len()), (2, 3));
    let Operator::Aggregate(sum) = &plan.stages[2].operator else { panic!("{plan:?}") };
    let window = Tumble { size_us: 10_000_000, offset_us: 0 };
    assert_eq!(sum.window, Some(window.into()));
    assert!(sum.keys.is_empty());
}

#[test]
fn a_statement_set_reads_each_table_once() {
    let (plan, targets, explain) = inserted(
        "EXECUTE STATEMENT SET BEGIN
             INSERT INTO kept SELECT auction, price FROM bids WHERE price > 5;
             INSERT INTO counted
                 SELECT window_time, auction, COUNT(*)
                 FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '1' MINUTE))
                 GROUP BY window_start, window_end, window_time, auction;
         END",
    );
    assert_eq!(targets, ["kept", "counted"]);
    assert_eq!((plan.sources.len(), plan.stages.len()), (1, 2));
    assert_eq!(plan.sources[0].projection, [0, 1, 2]);
    assert!(plan.sources[0].event_time.is_some());
    // The aggregation comes first; outputs are in the order of the statements.
    let stages: Vec<usize> = plan.outputs.iter().map(|output| output.stage).collect();
    assert_eq!(stages, [1, 0]);
    assert!(is_stateless(&plan.stages[1]));
    for part in [
        "logical plan of INSERT INTO kept\n",
        "source 1 (taken by stage 1, stage 2)\n  read bids: fake (3 of 4 columns)\n",
        "stage 1: counted.window (taken by a result)\n",
        "  records of source 1: bids\n  filter price > 5\n  project auction AS item, price\n",
        "result INSERT INTO counted: rows of stage 1\n  t TIMESTAMP(3), item BIGINT, n BIGINT",
    ] {
        assert!(explain.contains(part), "{part:?} is not in:\n{explain}");
    }
    let old = inserted(
        "BEGIN STATEMENT SET;
         INSERT INTO kept SELECT auction, price FROM bids WHERE price > 5;
         INSERT INTO counted
             SELECT window_time, auction, COUNT(*)
             FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '1' MINUTE))
             GROUP BY window_start, window_end, window_time, auction;
         END;",
    );
    assert_eq!(old.2, explain);
}

#[test]
fn a_view_that_several_read_is_one_stage() {
    let plan = set_over(
        COUNTS,
        "INSERT INTO counted SELECT t, auction, n FROM counts WHERE n > 5;
         INSERT INTO summed SELECT auction, total FROM counts WHERE total < 100;
         INSERT INTO kept
             SELECT MAX(auction), SUM(total)
             FROM TABLE(TUMBLE(TABLE counts, DESCRIPTOR(t), INTERVAL '1' MINUTE))
             GROUP BY window_start, window_end;",
    );
    // The counts, the minutes over them, and two selections of the counts.
    assert_eq!((plan.sources.len(), plan.stages.len()), (1, 4));
    let Operator::Aggregate(counts) = &plan.stages[0].operator else { panic!("{plan:?}") };
    // MAX(price) is nobody's.
    let calls: Vec<&str> = counts.aggregates.iter().map(|call| call.name.as_str()).collect();
    assert_eq!(calls, ["COUNT(*)", "SUM(price)"]);
    assert!(counts.having.is_none());
    let given: Vec<&str> =
        plan.stages[0].output.fields().iter().map(|f| f.name().as_str()).collect();
    assert_eq!(given, ["window_time", "auction", "COUNT(*)", "SUM(price)"]);
    let node = Node::Stage(0);
    assert_eq!(inputs(&plan, 1), [(node, String::new(), some(&["auction", "SUM(price)"]))]);
    let above = some(&["window_time", "auction", "COUNT(*)"]);
    assert_eq!(inputs(&plan, 2), [(node, "COUNT(*) > 5".into(), above)]);
    let below = some(&["auction", "SUM(price)"]);
    assert_eq!(inputs(&plan, 3), [(node, "SUM(price) < 100".into(), below)]);
    let stages: Vec<usize> = plan.outputs.iter().map(|output| output.stage).collect();
    assert_eq!(stages, [2, 3, 1]);
}

#[test]
fn equal_queries_are_one_stage() {
    // The same result twice.
    let plan = set("INSERT INTO kept SELECT auction, price * 2 FROM bids WHERE price + 1 > 5;
         INSERT INTO kept_too SELECT auction, price * 2 FROM bids WHERE price + 1 > 5;");
    assert_eq!((plan.sources.len(), plan.stages.len(), plan.outputs.len()), (1, 1, 2));
    let grouped = "SELECT auction, SUM(price * 2) FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts),
        INTERVAL '1' MINUTE)) GROUP BY window_start, window_end, auction";
    let plan = set(&format!("INSERT INTO kept {grouped}; INSERT INTO kept_too {grouped};"));
    assert_eq!((plan.stages.len(), plan.outputs.len()), (1, 2));
    // Groupings that differ in their aggregates alone have all of them.
    let other = grouped.replace("SUM(price * 2)", "MIN(price) + SUM(price * 2)");
    let plan = set(&format!("INSERT INTO kept {grouped}; INSERT INTO kept_too {other};"));
    assert_eq!((plan.stages.len(), plan.outputs.len()), (3, 2));
    let Operator::Aggregate(both) = &plan.stages[0].operator else { panic!("{plan:?}") };
    let calls: Vec<&str> = both.aggregates.iter().map(|call| call.name.as_str()).collect();
    assert_eq!(calls, ["SUM(price * 2)", "MIN(price)"]);
    // Those of other windows have not.
    let other = grouped.replace("MINUTE", "HOUR");
    let plan = set(&format!("INSERT INTO kept {grouped}; INSERT INTO kept_too {other};"));
    assert_eq!((plan.sources.len(), plan.stages.len()), (1, 2));
}

#[test]
fn conditions_that_all_have_stay_with_the_grouping() {
    let having = COUNTS.replace("auction;", "auction HAVING COUNT(*) > 2;");
    let plan = set_over(
        &having,
        "INSERT INTO counted SELECT t, auction, n FROM counts WHERE most > 1;
         INSERT INTO summed SELECT auction, total FROM counts;",
    );
    let Operator::Aggregate(counts) = &plan.stages[0].operator else { panic!("{plan:?}") };
    let having = counts.having.as_ref().map(|e| match e {
        Expr::Column(_) => String::new(),
        Expr::Computed(e) => e.to_string(),
    });
    assert_eq!(having.as_deref(), Some("COUNT(*) > 2"));
    assert_eq!(inputs(&plan, 1)[0].1, "MAX(price) > 1");
    assert_eq!(inputs(&plan, 2)[0].1, "");
}

#[test]
fn a_query_may_read_a_view_twice() {
    let plan = query(&format!(
        "{COUNTS} SELECT auction, n FROM counts WHERE n > 5
         UNION ALL SELECT auction, total FROM counts"
    ));
    assert_eq!((plan.sources.len(), plan.stages.len()), (1, 2));
    let node = Node::Stage(0);
    assert_eq!(
        inputs(&plan, 1),
        [
            (node, "COUNT(*) > 5".into(), some(&["auction", "COUNT(*)"])),
            (node, String::new(), some(&["auction", "SUM(price)"])),
        ]
    );
}

#[test]
fn union_without_all_leaves_out_repeated_rows() {
    let plan = query("SELECT i32 FROM typed UNION SELECT i64 FROM typed ORDER BY 1 LIMIT 3");
    assert_eq!((plan.sources.len(), plan.stages.len()), (1, 1));
    let Operator::Aggregate(distinct) = &plan.stages[0].operator else { panic!("{plan:?}") };
    assert_eq!((distinct.keys.len(), distinct.aggregates.len()), (1, 0));
    assert_eq!(plan.stages[0].inputs.len(), 2);
    assert_eq!(plan.outputs[0].sort.as_ref().unwrap().limit, Some(3));
}

#[test]
fn a_union_that_ends_is_ordered_and_limited() {
    let plan = query("SELECT i32 AS n FROM typed UNION ALL SELECT i8 FROM typed ORDER BY n DESC");
    assert_eq!(plan.outputs[0].sort.as_ref().unwrap().visible, 1);
    let plan = query("SELECT price FROM bids UNION ALL SELECT cost FROM asks LIMIT 4 OFFSET 2");
    let limited = Operator::Stateless { limit: Some(4), offset: 2 };
    assert_eq!(format!("{:?}", plan.stages[0].operator), format!("{limited:?}"));
}

#[test]
fn types_become_common_ones() {
    let of = |one: &str, other: &str| {
        let text = format!("SELECT {one} AS c FROM typed UNION ALL SELECT {other} FROM typed");
        query(&text).stages[0].output.field(0).data_type().clone()
    };
    use DataType::*;
    assert_eq!(of("i8", "i32"), Int32);
    assert_eq!(of("i64", "i16"), Int64);
    assert_eq!(of("i32", "f64"), Float64);
    assert_eq!(of("f32", "f64"), Float64);
    assert_eq!(of("d", "CAST(1 AS DECIMAL(12, 4))"), Decimal128(12, 4));
    assert_eq!(of("d", "i8"), Decimal128(10, 2));
    assert_eq!(of("NULL", "s"), Utf8);
    assert_eq!(of("b", "NULL"), Boolean);
    assert_eq!(of("t0", "t6"), DataType::Timestamp(arrow::datatypes::TimeUnit::Microsecond, None));
}

const CHEAP: &str = "
    CREATE TABLE offers (
        ts TIMESTAMP(3), auction BIGINT, price BIGINT, url STRING, WATERMARK FOR ts AS ts
    ) WITH ('connector' = 'endless');
    CREATE VIEW cheap AS
    SELECT ts, auction AS item, price, CHAR_LENGTH(url) AS len, 10 / auction AS share
    FROM offers WHERE price < 100 AND MOD(price, 2) = 0;";

/// What stages without state that others take have: the condition and the columns.
fn shared(plan: &Plan) -> Vec<(Node, String, Option<Vec<String>>)> {
    let taken = |stage: &usize| {
        let node = Node::Stage(*stage);
        plan.stages.iter().any(|other| other.inputs.iter().any(|input| input.from == node))
    };
    let passes = (0..plan.stages.len()).filter(|s| is_stateless(&plan.stages[*s]) && taken(s));
    passes.map(|stage| inputs(plan, stage).remove(0)).collect()
}

#[test]
fn a_view_without_state_that_several_read_is_one_stage() {
    let plan = set_over(
        CHEAP,
        "INSERT INTO kept SELECT item, price FROM cheap WHERE len > 3;
         INSERT INTO kept_too SELECT item, price FROM cheap WHERE len > 5;
         INSERT INTO summed
             SELECT item, SUM(len)
             FROM TABLE(TUMBLE(TABLE cheap, DESCRIPTOR(ts), INTERVAL '1' MINUTE))
             GROUP BY window_start, window_end, item;",
    );
    assert_eq!((plan.sources.len(), plan.stages.len()), (1, 4));
    let columns = some(&["auction", "price", "CHARACTER_LENGTH(url)"]);
    let filter = "price < 100 AND price % 2 = 0".to_string();
    assert_eq!(shared(&plan), [(Node::Source(0), filter, columns)]);
    let node = Node::Stage(0);
    assert_eq!(inputs(&plan, 1), [(node, String::new(), None)]);
    let above = |n| format!("CHARACTER_LENGTH(url) > {n}");
    assert_eq!(inputs(&plan, 2), [(node, above(3), some(&["auction", "price"]))]);
    assert_eq!(inputs(&plan, 3), [(node, above(5), some(&["auction", "price"]))]);
    let stages: Vec<usize> = plan.outputs.iter().map(|output| output.stage).collect();
    assert_eq!(stages, [2, 3, 1]);
}

#[test]
fn a_query_that_reads_a_view_without_state_twice_computes_it_once() {
    let plan = query(&format!(
        "{CHEAP} SELECT item FROM cheap WHERE len = 1 UNION ALL SELECT price FROM cheap"
    ));
    assert_eq!((plan.sources.len(), plan.stages.len()), (1, 2));
    assert_eq!(shared(&plan).len(), 1);
    assert_eq!(inputs(&plan, 1)[1], (Node::Stage(0), String::new(), some(&["price"])));
    // Also what is computed alone.
    let plan = query(
        "CREATE VIEW upper AS SELECT item + 1 AS next FROM asks;
         SELECT next FROM upper WHERE next > 3 UNION ALL SELECT next * 2 FROM upper",
    );
    assert_eq!(shared(&plan), [(Node::Source(0), String::new(), some(&["item + 1"]))]);
    assert_eq!(inputs(&plan, 1)[0].1, "(item + 1) > 3");
    assert_eq!(inputs(&plan, 1)[1].2, some(&["(item + 1) * 2"]));
}

#[test]
fn a_view_of_a_view_is_a_stage_over_a_stage() {
    let plan = set_over(
        &format!(
            "{CHEAP} CREATE VIEW long AS SELECT item, price, len * 2 AS twice FROM cheap
                  WHERE len > 9;"
        ),
        "INSERT INTO kept SELECT item, twice FROM long;
         INSERT INTO kept_too SELECT price, twice + 1 FROM long;
         INSERT INTO summed SELECT item, price FROM cheap;",
    );
    assert_eq!(plan.stages.len(), 5);
    assert_eq!(plan.stages[1].inputs[0].from, Node::Stage(0));
    assert_eq!(inputs(&plan, 1)[0].1, "CHARACTER_LENGTH(url) > 9");
    let next = some(&["auction", "price", "CAST(CHARACTER_LENGTH(url) AS BIGINT) * 2"]);
    assert_eq!(shared(&plan)[1].2, next);
    assert_eq!(shared(&plan).len(), 2);
}

#[test]
fn what_may_fail_is_computed_where_it_is_needed() {
    // Nobody divides by an item that is zero.
    let inserts = "INSERT INTO kept SELECT share, price FROM cheap WHERE item <> 0;
         INSERT INTO kept_too SELECT share, price FROM cheap WHERE item > 0;";
    let plan = set_over(CHEAP, inserts);
    assert_eq!(shared(&plan)[0].2, some(&["auction", "price"]));
    assert_eq!(inputs(&plan, 1)[0].2, some(&["10 / auction", "price"]));
    // One does so of all rows.
    let plan = set_over(CHEAP, &inserts.replace("WHERE item > 0", ""));
    assert_eq!(shared(&plan)[0].2, some(&["auction", "price", "10 / auction"]));
    // But only of the first ones, or of those that are not late.
    let plan = set_over(CHEAP, &inserts.replace("WHERE item > 0", "LIMIT 3"));
    assert_eq!(shared(&plan)[0].2, some(&["auction", "price"]));
    let grouped = "GROUP BY window_start, window_end, item";
    let windows = "TABLE(TUMBLE(TABLE cheap, DESCRIPTOR(ts), INTERVAL '1' MINUTE))";
    let windowed = format!("SELECT item, SUM(share) FROM {windows} {grouped}");
    let plan = set_over(
        CHEAP,
        &format!(
            "INSERT INTO kept {windowed}; INSERT INTO kept_too {windowed} HAVING COUNT(*) > 3;
             INSERT INTO summed SELECT item, share FROM cheap WHERE item > 0;"
        ),
    );
    assert_eq!(shared(&plan)[0].2, some(&["auction"]));
}

#[test]
fn equal_queries_with_a_limit_are_one_stage() {
    let plan = set_over(
        "CREATE VIEW few AS SELECT auction, price + 1 AS next FROM bids WHERE price > 3 LIMIT 5;",
        "INSERT INTO kept SELECT auction, next FROM few;
         INSERT INTO kept_too SELECT auction, next FROM few;",
    );
    assert_eq!((plan.stages.len(), plan.outputs.len()), (1, 2));
    // Others have their own limit, and the rest in common.
    let plan = set_over(
        "CREATE VIEW few AS SELECT auction, price + 1 AS next FROM bids WHERE price > 3 LIMIT 5;",
        "INSERT INTO kept SELECT auction, next FROM few;
         INSERT INTO kept_too SELECT next, auction FROM few;",
    );
    assert_eq!((plan.stages.len(), plan.outputs.len()), (3, 2));
    assert_eq!(shared(&plan)[0].1, "price > 3");
}

/// Names of the columns of the first source that may come as dictionaries.
fn dictionaries(text: &str) -> Vec<String> {
    let sql = format!(
        "CREATE TABLE texts (a STRING, b STRING, n BIGINT, at TIMESTAMP(3), kind AS UPPER(b),
             WATERMARK FOR at AS at) WITH ('connector' = 'fake');
         CREATE TABLE kept (a STRING, n BIGINT) WITH ('connector' = 'nowhere'); {text}"
    );
    let plan = match execute(&mut session(), &sql) {
        Ok(Outcome::Query(planned)) => planned.plan,
        other => panic!("no query: {other:?}"),
    };
    let fields = plan.sources[0].schema.fields();
    plan.dictionaries(0).iter().map(|place| fields[*place].name().clone()).collect()
}

/// Only where nothing but keys as they are, and conditions on them alone, look at them.
#[test]
fn texts_may_be_dictionaries_where_they_are_keys() {
    let none: [&str; 0] = [];
    for (query, expected) in [
        ("SELECT a, COUNT(*) AS c FROM texts GROUP BY a", &["a"][..]),
        ("SELECT a, b, SUM(n) AS s FROM texts GROUP BY a, b", &["a", "b"]),
        ("SELECT DISTINCT b FROM texts", &["b"]),
        (
            "SELECT window_start, a, COUNT(*) AS c
             FROM TABLE(TUMBLE(TABLE texts, DESCRIPTOR(at), INTERVAL '1' HOUR)) WHERE b <> 'x'
             GROUP BY window_start, window_end, a",
            &["a", "b"],
        ),
        ("SELECT a, COUNT(*) AS c FROM texts WHERE a = 'x' OR a IS NULL GROUP BY a", &["a"]),
        // Two columns in the condition.
        ("SELECT a, COUNT(*) AS c FROM texts WHERE a = 'x' AND n > 1 GROUP BY a", &none),
        ("SELECT a, b, COUNT(*) AS c FROM texts WHERE b = 'x' AND n > 1 GROUP BY a, b", &["a"]),
        // Computed of, or counted.
        ("SELECT UPPER(a) AS u, b, COUNT(*) AS c FROM texts GROUP BY UPPER(a), b", &["b"]),
        ("SELECT a, MIN(b) AS least FROM texts GROUP BY a", &["a"]),
        ("SELECT a, COUNT(*) FILTER (WHERE b = 'x') AS c FROM texts GROUP BY a", &["a"]),
        ("SELECT kind, b, COUNT(*) AS c FROM texts GROUP BY kind, b", &none),
        // Shown.
        ("SELECT a FROM texts WHERE a = 'x'", &none),
    ] {
        assert_eq!(dictionaries(query), expected, "{query}");
    }
}

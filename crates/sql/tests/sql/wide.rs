//! Tests of queries with many columns, which are planned in parts: they mean what they mean as a
//! whole.

use crate::common::*;
use millstream_contract::plan::{Node, Operator, Plan};

/// A table of so many columns.
fn table(columns: usize) -> String {
    let columns: Vec<String> = (0..columns).map(|i| format!("c{i} BIGINT")).collect();
    format!("CREATE TABLE wide ({}) WITH ('connector' = 'fake');", columns.join(", "))
}

/// The plan over a table of that many columns, and over one of few.
fn both(query: &str) -> [Plan; 2] {
    [300, 3].map(|columns| graph(&format!("{} {query}", table(columns))))
}

#[test]
fn an_order_of_many_columns_is_as_of_few() {
    for query in [
        "SELECT * FROM wide ORDER BY c2 DESC, c0 LIMIT 5 OFFSET 1",
        "SELECT * FROM wide ORDER BY 3 DESC, 1 LIMIT 5 OFFSET 1",
        "WITH v AS (SELECT * FROM wide) SELECT * FROM v ORDER BY c2 DESC NULLS LAST, c0 LIMIT 5 OFFSET 1",
        "SELECT * FROM (SELECT * FROM wide) ORDER BY c2 DESC, c0 LIMIT 5 OFFSET 1",
    ] {
        let [wide, narrow] = both(query);
        assert_eq!((wide.stages.len(), narrow.stages.len()), (1, 1), "{query}");
        let (many, few) = (&wide.outputs[0].sort, &narrow.outputs[0].sort);
        let (many, few) = (many.as_ref().unwrap(), few.as_ref().unwrap());
        assert_eq!((&many.keys, many.limit, many.offset), (&few.keys, few.limit, few.offset));
        assert_eq!((many.visible, few.visible), (300, 3), "{query}");
    }
}

#[test]
fn queries_in_a_query_of_many_columns_are_those_of_few() {
    for query in [
        "SELECT * FROM (SELECT * FROM wide WHERE c1 > 0) WHERE c2 > 1",
        "SELECT * FROM (SELECT * FROM wide WHERE c1 > 0) AS v WHERE v.c2 > 1",
        "WITH v AS (SELECT * FROM wide WHERE c1 > 0) SELECT * FROM v WHERE c2 > 1",
        "WITH u AS (SELECT * FROM wide WHERE c1 > 0), v AS (SELECT * FROM u WHERE c2 > 1) \
         SELECT * FROM v",
        // The name of another WITH, around it.
        "WITH v AS (SELECT * FROM wide WHERE c1 > 0) SELECT * FROM \
         (WITH v AS (SELECT * FROM v WHERE c2 > 1) SELECT * FROM v) AS u",
        "WITH v AS (SELECT * FROM wide WHERE c1 > 0), \
         u AS (WITH v AS (SELECT * FROM v WHERE c2 > 1) SELECT v.* FROM v) SELECT * FROM u",
        // The name of the table, which it stands before.
        "WITH wide AS (SELECT * FROM wide WHERE c1 > 0) SELECT * FROM wide WHERE c2 > 1",
        "SELECT * FROM (SELECT * FROM wide WHERE c1 > 0) AS wide WHERE wide.c2 > 1",
        // Columns are said to be of the table within.
        "SELECT wide.c0, c1, c2 FROM (SELECT * FROM wide WHERE c1 > 0) WHERE c2 > 1",
    ] {
        let [wide, narrow] = both(query);
        for (plan, columns) in [(wide, 300), (narrow, 3)] {
            assert_eq!((plan.sources.len(), plan.stages.len()), (1, 1), "{query}");
            let Operator::Stateless { limit: None, offset: 0 } = plan.stages[0].operator else {
                panic!("{query}: {plan:?}");
            };
            let input = &plan.stages[0].inputs[0];
            assert_eq!(input.from, Node::Source(0));
            let filter = format!("{:?}", input.filter);
            assert!(filter.contains("c1") && filter.contains("c2"), "{query}: {filter}");
            let given = plan.stages[0].output.fields().len();
            assert_eq!(given, if query.contains("wide.c0") { 3 } else { columns }, "{query}");
        }
    }
}

#[test]
fn a_long_list_over_a_view_has_its_columns() {
    let list: Vec<String> = (0..300).map(|i| format!("c{i} + 1 AS d{i}")).collect();
    let list = list.join(", ");
    for query in [
        format!("SELECT {list} FROM (SELECT * FROM wide WHERE c1 > 0)"),
        format!("CREATE VIEW v AS SELECT * FROM wide WHERE c1 > 0; SELECT {list} FROM v"),
        format!("WITH v AS (SELECT {list} FROM wide WHERE c1 > 0) SELECT * FROM v ORDER BY d7"),
    ] {
        let plan = graph(&format!("{} {query}", table(300)));
        assert_eq!((plan.sources.len(), plan.stages.len()), (1, 1));
        let fields = plan.stages[0].output.fields();
        let names: Vec<&str> = fields.iter().map(|field| field.name().as_str()).collect();
        assert_eq!((names.len(), names[0], names[299]), (300, "d0", "d299"));
        assert!(plan.stages[0].inputs[0].filter.is_some());
    }
}

#[test]
fn unions_of_many_columns_are_those_of_few() {
    for (query, stages, limit) in [
        ("SELECT * FROM wide WHERE c1 > 0 UNION ALL SELECT * FROM wide WHERE c2 > 1", 1, None),
        ("SELECT * FROM wide UNION ALL SELECT * FROM wide WHERE c2 > 1 LIMIT 7", 1, Some(7)),
        ("WITH v AS (SELECT * FROM wide) SELECT * FROM v UNION ALL (SELECT * FROM wide)", 1, None),
        (
            "SELECT * FROM (SELECT * FROM wide UNION ALL SELECT * FROM wide) WHERE c1 > 0 LIMIT 3",
            1,
            Some(3),
        ),
        ("SELECT DISTINCT c0, c1 FROM wide", 1, None),
        ("SELECT c0 FROM wide UNION SELECT c1 FROM wide", 1, None),
    ] {
        let [wide, narrow] = both(query);
        for (plan, columns) in [(wide, 300), (narrow, 3)] {
            assert_eq!((plan.sources.len(), plan.outputs.len()), (1, 1), "{query}");
            assert!(plan.stages.len() >= stages, "{query}: {plan:?}");
            let stage = &plan.stages[plan.outputs[0].stage];
            let all = query.starts_with("SELECT *") || query.starts_with("WITH");
            if all {
                assert_eq!((stage.inputs.len(), stage.output.fields().len()), (2, columns));
                let Operator::Stateless { limit: given, .. } = stage.operator else {
                    panic!("{query}: {plan:?}");
                };
                assert_eq!(given, limit, "{query}");
            }
        }
    }
    for query in ["SELECT DISTINCT * FROM wide", "SELECT * FROM wide UNION SELECT * FROM wide"] {
        let message = error(&format!("{} {query}", table(300)));
        assert!(message.contains("groups by 300 values; at most 64"), "{message}");
        let keyword = if query.contains("UNION") { "^^^^^" } else { "^^^^^^^^" };
        assert!(
            message.ends_with(keyword) || message.contains(&format!("{keyword}\n")),
            "{message}"
        );
    }
    let message =
        error(&format!("{} SELECT * FROM wide UNION ALL SELECT c1 FROM wide", table(300)));
    assert!(message.contains("query 2 of the UNION gives 1 column (c1)"), "{message}");
}

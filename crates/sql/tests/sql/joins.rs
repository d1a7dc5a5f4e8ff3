//! Tests of joins: their plans, what is refused, and what EXPLAIN says.

use crate::common::*;
use arrow::datatypes::{DataType, Schema};
use millstream_contract::expr::Expr;
use millstream_contract::plan::{
    Hop, Input, Join, JoinKind, Node, Operator, Plan, Stage, Tumble, Window,
};
use millstream_sql::Outcome;

pub(crate) const TABLES: &str = "
    CREATE TABLE orders (
        ts TIMESTAMP(3), id BIGINT NOT NULL, item INT, price DOUBLE, note STRING,
        WATERMARK FOR ts AS ts - INTERVAL '1' SECOND
    ) WITH ('connector' = 'endless');
    CREATE TABLE ships (
        at TIMESTAMP(6), order_id INT, item INT NOT NULL, price DOUBLE, via STRING,
        WATERMARK FOR at AS at
    ) WITH ('connector' = 'endless');
    CREATE TABLE past (at TIMESTAMP(3), id BIGINT, name STRING, WATERMARK FOR at AS at)
        WITH ('connector' = 'fake');
    CREATE TABLE names (id INT NOT NULL, name STRING, tags ARRAY<STRING>)
        WITH ('connector' = 'fake');
    CREATE TABLE kept (t TIMESTAMP(3), id BIGINT, n BIGINT) WITH ('connector' = 'nowhere');
    CREATE TABLE kept_too (t TIMESTAMP(3), id BIGINT, n BIGINT) WITH ('connector' = 'nowhere');
    CREATE VIEW o AS SELECT *
        FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '10' SECOND));
    CREATE VIEW s AS SELECT *
        FROM TABLE(TUMBLE(TABLE ships, DESCRIPTOR(at), INTERVAL '10' SECOND));
    CREATE VIEW oh AS SELECT * FROM TABLE(
        HOP(TABLE orders, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND));
    CREATE VIEW sh AS SELECT * FROM TABLE(
        HOP(TABLE ships, DESCRIPTOR(at), INTERVAL '5' SECOND, INTERVAL '10' SECOND));
    CREATE VIEW sn AS SELECT window_start, window_end, window_time, order_id, COUNT(*) AS n
        FROM TABLE(TUMBLE(TABLE ships, DESCRIPTOR(at), INTERVAL '10' SECOND))
        GROUP BY window_start, window_end, window_time, order_id;
    CREATE VIEW ses AS SELECT window_start, window_end, window_time, id, COUNT(*) AS n
        FROM TABLE(SESSION(TABLE orders PARTITION BY id, DESCRIPTOR(ts), INTERVAL '5' SECOND))
        GROUP BY window_start, window_end, window_time, id;
    CREATE VIEW shes AS SELECT window_start, window_end, order_id, COUNT(*) AS n
        FROM TABLE(SESSION(TABLE ships PARTITION BY order_id, DESCRIPTOR(at), INTERVAL '5' SECOND))
        GROUP BY window_start, window_end, order_id;";

pub(crate) fn query(text: &str) -> Plan {
    let plan = graph(&format!("{TABLES} {text}"));
    plan.check().unwrap_or_else(|e| panic!("{e}: {plan:?}"));
    plan
}

fn shown(expr: &Expr, schema: &Schema) -> String {
    match expr {
        Expr::Column(i) => schema.field(*i).name().clone(),
        Expr::Computed(computed) => computed.to_string(),
    }
}

/// The last join of a plan.
pub(crate) fn join(plan: &Plan) -> (&Stage, &Join) {
    let mut joins = plan.stages.iter().filter_map(|stage| match &stage.operator {
        Operator::Join(join) => Some((stage, &**join)),
        _ => None,
    });
    joins.next_back().unwrap_or_else(|| panic!("no join: {plan:?}"))
}

/// Of each side of the last join, its inputs: their conditions and the columns that they show.
pub(crate) fn sides(plan: &Plan) -> [Vec<String>; 2] {
    let (stage, join) = join(plan);
    let input = |input: &Input| {
        let schema = plan.schema_of(input.from).unwrap();
        let filter = input.filter.as_ref().map(|f| format!(" where {}", shown(f, schema)));
        let columns = match &input.project {
            Some(project) => project.columns.iter().map(|e| shown(e, schema)).collect::<Vec<_>>(),
            None => schema.fields().iter().map(|field| field.name().clone()).collect(),
        };
        format!("{}{}", columns.join(", "), filter.unwrap_or_default())
    };
    let (left, right) = stage.inputs.split_at(join.left_inputs);
    [left, right].map(|side| side.iter().map(input).collect())
}

/// The keys of the last join, and what else is asked of pairs and of what is given.
pub(crate) fn asked(plan: &Plan) -> (Vec<String>, String, String) {
    let (stage, join) = join(plan);
    let shows = |input: usize| match &stage.inputs[input].project {
        Some(project) => project.schema.clone(),
        None => plan.schema_of(stage.inputs[input].from).unwrap().clone(),
    };
    let (left, right) = (shows(0), shows(join.left_inputs));
    let keys = join.keys.iter().map(|[l, r]| {
        assert_eq!(l.data_type, r.data_type);
        format!("{} = {}", shown(&l.expr, &left), shown(&r.expr, &right))
    });
    let text =
        |e: &Option<Expr>, schema: &Schema| e.as_ref().map_or(String::new(), |e| shown(e, schema));
    (keys.collect(), text(&join.condition, &join.pair), text(&join.having, &join.fired))
}

/// What the last join gives.
pub(crate) fn given(plan: &Plan) -> Vec<String> {
    let (_, join) = join(plan);
    join.project.iter().map(|e| shown(e, &join.fired)).collect()
}

pub(crate) fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| text.to_string()).collect()
}

const TEN_SECONDS: Window = Window::Tumble(Tumble { size_us: 10_000_000, offset_us: 0 });
const HOPS: Window = Window::Hop(Hop { slide_us: 5_000_000, size_us: 10_000_000, offset_us: 0 });

#[test]
fn rows_of_one_window_meet() {
    let plan = query(
        "SELECT o.window_start, o.id, via FROM o
         JOIN s ON o.id = s.order_id AND o.window_start = s.window_start
             AND o.window_end = s.window_end AND o.price > s.price AND o.item = 3 AND via <> ''",
    );
    let (stage, body) = join(&plan);
    assert_eq!((plan.sources.len(), plan.stages.len(), body.left_inputs), (2, 1, 1));
    assert_eq!(
        (body.kind, body.window, body.left_columns),
        (JoinKind::Inner, Some(TEN_SECONDS), 2)
    );
    assert!(plan.sources.iter().all(|source| source.event_time.is_some()));
    // Conditions on one side are asked before, and only the columns are kept that are needed.
    assert_eq!(
        sides(&plan),
        [
            strings(&["id, price where item = 3"]),
            strings(&["order_id, price, via where via <> ''"])
        ]
    );
    let keys = strings(&["id = CAST(order_id AS BIGINT)"]);
    assert_eq!(asked(&plan), (keys, "price_2 < price".into(), String::new()));
    assert_eq!(given(&plan), ["window_start", "id", "via"]);
    assert_eq!(
        fields(&body.pair),
        [
            ("window_start", &MS, false),
            ("window_end", &MS, false),
            ("window_time", &MS, false),
            ("id", &DataType::Int64, false),
            ("price", &DataType::Float64, true),
            ("order_id", &DataType::Int32, true),
            ("price_2", &DataType::Float64, true),
            ("via", &DataType::Utf8, true),
        ]
    );
    let [[left, right]] = &body.keys[..] else { panic!("{body:?}") };
    assert_eq!((&left.data_type, left.nullable), (&DataType::Int64, false));
    assert_eq!((&right.data_type, right.nullable), (&DataType::Int64, true));
    let output = fields(&stage.output);
    assert_eq!(output[1..], [("id", &DataType::Int64, false), ("via", &DataType::Utf8, true)]);
}

#[test]
fn however_it_is_written_it_is_the_same_join() {
    let on = "o.id = s.order_id AND o.window_end = s.window_end AND via = 'x'";
    let first = query(&format!("SELECT o.id, via FROM o JOIN s ON {on}"));
    for text in [
        format!("SELECT o.id, via FROM o, s WHERE {on}"),
        format!("SELECT o.id, via FROM o CROSS JOIN s WHERE {on}"),
        format!("SELECT o.id, via FROM o INNER JOIN s ON TRUE WHERE {on}"),
        "SELECT o.id, via FROM o JOIN s ON s.order_id = o.id AND o.window_time = s.window_time
         WHERE via = 'x'"
            .into(),
        "SELECT o.id, s.via
         FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '10' SECOND)) AS o
         JOIN TABLE(TUMBLE(TABLE ships, DESCRIPTOR(at), INTERVAL '10' SECOND)) AS s
         ON o.id = s.order_id AND s.window_start = o.window_start WHERE s.via = 'x'"
            .into(),
        "SELECT id, via FROM o JOIN (
             SELECT CAST(order_id AS BIGINT) AS id, via, window_start, window_end FROM s
             WHERE via = 'x') AS s
         USING (id, window_start, window_end)"
            .into(),
    ] {
        let plan = query(&text);
        let same = |plan: &Plan| {
            let (_, join) = join(plan);
            (join.kind, join.window, join.keys.len(), given(plan), asked(plan).1, asked(plan).2)
        };
        assert_eq!(same(&plan), same(&first), "{text}");
    }
    assert_eq!(sides(&first), [strings(&["id"]), strings(&["order_id, via where via = 'x'"])]);
}

#[test]
fn conditions_are_asked_where_they_may_be() {
    // Of the kind of a join: conditions on the left side, the right side, pairs, what is given.
    let on = "o.id = s.order_id AND o.window_end = s.window_end AND o.item = 1 AND s.via = 'x'
              AND CAST(o.note AS INT) > 2";
    let above = "o.note <> 'y' AND s.item <> 4";
    let fails = "CAST(note AS INT) > 2";
    for (kind, left, right, pairs, having) in [
        ("JOIN", "item = 1 AND note <> 'y'", "via = 'x' AND item <> 4", fails.to_string(), ""),
        ("LEFT JOIN", "note <> 'y'", "via = 'x'", format!("item = 1 AND {fails}"), "item_2 <> 4"),
        ("RIGHT JOIN", "item = 1", "item <> 4", format!("via = 'x' AND {fails}"), "note <> 'y'"),
        (
            "FULL JOIN",
            "",
            "",
            format!("item = 1 AND via = 'x' AND {fails}"),
            "note <> 'y' AND item_2 <> 4",
        ),
    ] {
        let plan = query(&format!("SELECT o.id, s.via FROM o {kind} s ON {on} WHERE {above}"));
        let [left_input, right_input] = sides(&plan);
        let filter = |input: &str| input.split_once(" where ").map_or("", |(_, f)| f).to_string();
        assert_eq!(
            (filter(&left_input[0]), filter(&right_input[0])),
            (left.to_string(), right.to_string()),
            "{kind}"
        );
        let (_, condition, given) = asked(&plan);
        let plain = |text: String| text.replace(" IS TRUE", "").replace(['(', ')'], "");
        assert_eq!(plain(condition), plain(pairs), "{kind}");
        assert_eq!(given, having, "{kind}");
    }
    for (kind, left, pairs) in [
        ("LEFT SEMI JOIN", "item = 1 AND note <> 'y'", fails.to_string()),
        ("LEFT ANTI JOIN", "note <> 'y'", format!("item = 1 AND {fails}")),
    ] {
        let plan = query(&format!("SELECT o.id FROM o {kind} s ON {on} WHERE o.note <> 'y'"));
        let [left_input, right_input] = sides(&plan);
        assert!(left_input[0].ends_with(&format!(" where {left}")), "{left_input:?}");
        assert_eq!(right_input, ["order_id where via = 'x'"]);
        let (_, condition, having) = asked(&plan);
        let plain = |text: &str| text.replace(" IS TRUE", "").replace(['(', ')'], "");
        assert_eq!((plain(&condition), having), (plain(&pairs), String::new()), "{kind}");
    }
}

#[test]
fn a_division_fails_by_no_constant_but_0_and_minus_1() {
    let on = "o.id = s.order_id AND o.window_end = s.window_end AND";
    let before = |condition: &str| {
        let plan = query(&format!("SELECT o.id, s.via FROM o JOIN s ON {on} {condition}"));
        sides(&plan)[0][0].contains(" where ")
    };
    for condition in ["o.id % 50 = 0", "o.item % 7 = 1", "o.id / 3 > 4", "MOD(o.id, 2) = 0"] {
        assert!(before(condition), "{condition}");
    }
    for condition in ["o.id % 0 = 0", "o.id / -1 > 4", "10 / o.id = 1", "o.id % o.item = 0"] {
        assert!(!before(condition), "{condition}");
    }
}

#[test]
fn a_key_that_may_fail_is_protected_by_what_stands_before_it() {
    let on = "o.window_start = s.window_start AND o.item > 0 AND 100 / o.item = s.item";
    let plan = query(&format!("SELECT o.id FROM o LEFT JOIN s ON {on}"));
    let key = "CASE WHEN item > 0 THEN 100 / CAST(item AS BIGINT) END = CAST(item_2 AS BIGINT)";
    assert_eq!(asked(&plan).0, [key]);
    let plan = query(&format!("SELECT o.id FROM o JOIN s ON {on}"));
    assert_eq!(asked(&plan).0, ["100 / CAST(item AS BIGINT) = CAST(item_2 AS BIGINT)"]);
    assert_eq!(sides(&plan)[0], ["id, item where item > 0"]);
}

#[test]
fn the_window_of_a_row_that_is_not_there_is_null() {
    let text = |kind: &str, columns: &str| {
        format!(
            "SELECT {columns} FROM o {kind} s ON o.id = s.order_id AND o.window_end = s.window_end"
        )
    };
    let both = "o.window_start, s.window_start";
    let null = "CASE WHEN $there THEN window_start END";
    for (kind, left, right) in [
        ("JOIN", "window_start", "window_start"),
        ("LEFT JOIN", "window_start", null),
        ("RIGHT JOIN", null, "window_start"),
        ("FULL JOIN", null, "CASE WHEN $there_2 THEN window_start END"),
    ] {
        let plan = query(&text(kind, both));
        assert_eq!(given(&plan), [left, right], "{kind}");
        let nullable = |column: usize| join(&plan).0.output.field(column).is_nullable();
        assert_eq!((nullable(0), nullable(1)), (left != "window_start", right != "window_start"));
    }
    let plan = query(&text(
        "FULL JOIN",
        "COALESCE(o.window_start, s.window_start), COALESCE(s.window_end, o.window_end) AS e",
    ));
    assert_eq!(given(&plan), ["window_start", "window_end"]);
    assert_eq!(sides(&plan), [strings(&["id"]), strings(&["order_id"])]);
    // And is the window that a grouping has.
    let plan = query(&format!(
        "SELECT e, COUNT(*) FROM ({}) GROUP BY e",
        text("FULL JOIN", "COALESCE(o.window_end, s.window_end) AS e")
    ));
    assert_eq!(plan.stages[1].operator.window(), Some(TEN_SECONDS));
}

#[test]
fn records_and_groups_meet_in_windows_of_any_kind() {
    let plan = query(
        "SELECT oh.id, via FROM oh, sh WHERE oh.id = order_id AND oh.window_start = sh.window_start
         AND oh.window_start > TIMESTAMP '2024-01-01 00:00:00'",
    );
    assert_eq!(join(&plan).1.window, Some(HOPS));
    // In which windows a record is, is known once rows meet.
    let (keys, _, having) = asked(&plan);
    assert_eq!(
        (keys, sides(&plan)[0].clone()),
        (strings(&["id = CAST(order_id AS BIGINT)"]), strings(&["id"]))
    );
    let condition = shown(join(&plan).1.condition.as_ref().unwrap(), &join(&plan).1.pair);
    assert!(condition.starts_with("window_start > ") && having.is_empty(), "{condition} {having}");
    let plan = query(
        "SELECT o.id, n FROM o JOIN sn ON o.id = order_id AND o.window_end = sn.window_end
         AND n > 2",
    );
    let (stage, body) = join(&plan);
    assert_eq!(body.window, Some(TEN_SECONDS));
    assert_eq!(stage.inputs[1].from, Node::Stage(0));
    let Operator::Aggregate(below) = &plan.stages[0].operator else { panic!("{plan:?}") };
    assert_eq!(shown(below.having.as_ref().unwrap(), &below.fired), "COUNT(*) > 2");
    // The windows of a grouping of overlapping windows are told apart by its keys.
    let plan = query(
        "WITH n AS (SELECT window_start AS s, window_end AS e, order_id, COUNT(*) AS n FROM sh
                    GROUP BY window_start, window_end, order_id)
         SELECT n.s, order_id FROM n JOIN (SELECT s, e, MAX(n) AS most FROM n GROUP BY s, e) AS m
         ON n.s = m.s AND n.e = m.e AND n.n >= m.most",
    );
    assert_eq!((plan.sources.len(), plan.stages.len()), (1, 3));
    assert_eq!(join(&plan).1.window, Some(HOPS));
    assert_eq!(asked(&plan).0, [] as [&str; 0]);
    assert_eq!(given(&plan)[0], "window_start");
}

#[test]
fn sessions_meet_where_they_end() {
    let plan = query(
        "SELECT ses.window_start, id, shes.n FROM ses JOIN shes ON id = order_id
         AND ses.window_start = shes.window_start AND ses.window_end = shes.window_end",
    );
    let five = Window::Tumble(Tumble { size_us: 5_000_000, offset_us: 0 });
    assert_eq!(join(&plan).1.window, Some(five));
    assert_eq!(
        asked(&plan).0[1..],
        ["window_start_2 = window_start_3", "window_end_2 = window_end_3"]
    );
    // What fires together fits what they are grouped into.
    let plan = query(
        "SELECT window_start, COUNT(*) FROM TABLE(TUMBLE(
             (SELECT ses.window_time AS t FROM ses JOIN shes ON ses.window_end = shes.window_end),
             DESCRIPTOR(t), INTERVAL '7' SECOND)) GROUP BY window_start, window_end",
    );
    let one = Window::Tumble(Tumble { size_us: 1_000_000, offset_us: 0 });
    assert_eq!(join(&plan).1.window, Some(one));
}

#[test]
fn exists_and_in_give_each_row_once() {
    let kept = |condition: &str| query(&format!("SELECT id FROM o WHERE {condition}"));
    let same = "s.window_end = o.window_end";
    for (condition, kind) in [
        ("EXISTS (SELECT 1 FROM s WHERE {} AND order_id = id)", JoinKind::LeftSemi),
        (
            "EXISTS (SELECT DISTINCT via FROM s WHERE {} AND order_id = id LIMIT 1)",
            JoinKind::LeftSemi,
        ),
        ("id IN (SELECT order_id FROM s WHERE {})", JoinKind::LeftSemi),
        ("NOT EXISTS (SELECT * FROM s WHERE order_id = id AND {})", JoinKind::LeftAnti),
        ("NOT (EXISTS (SELECT * FROM s WHERE order_id = id AND {}))", JoinKind::LeftAnti),
        (
            "id NOT IN (SELECT order_id FROM s WHERE {} AND order_id IS NOT NULL)",
            JoinKind::LeftAnti,
        ),
    ] {
        let plan = kept(&condition.replace("{}", same));
        let (_, body) = join(&plan);
        assert_eq!((body.kind, body.window), (kind, Some(TEN_SECONDS)), "{condition}");
        assert_eq!(asked(&plan).0, ["id = CAST(order_id AS BIGINT)"], "{condition}");
        assert_eq!(body.fired.fields().len(), 4, "{condition}");
    }
    // Two of them are two joins, and conditions beside them are asked before.
    let plan = kept(
        "id IN (SELECT order_id FROM s WHERE s.window_end = o.window_end) AND note = 'x'
         AND NOT EXISTS (SELECT 1 FROM sn WHERE sn.window_end = o.window_end AND n > 1)",
    );
    assert_eq!(plan.stages.len(), 3);
    assert_eq!(join(&plan).1.kind, JoinKind::LeftAnti);
    // One of a HAVING.
    let plan = query(
        "SELECT window_end, item, COUNT(*) AS n FROM o GROUP BY window_start, window_end, item
         HAVING COUNT(*) > 1 AND item IN (SELECT item FROM s WHERE s.window_end = o.window_end)",
    );
    assert_eq!(
        (join(&plan).1.kind, asked(&plan).0),
        (JoinKind::LeftSemi, strings(&["item = item_2"]))
    );
}

#[test]
fn joins_are_rows_of_windows_like_others() {
    let joined = "SELECT o.window_start, o.window_end, o.window_time AS t, o.id, o.item, s.via
                  FROM o JOIN s ON o.id = s.order_id AND o.window_end = s.window_end";
    let windows = |plan: &Plan| -> Vec<Option<Window>> {
        plan.stages.iter().map(|stage| stage.operator.window()).collect()
    };
    let grouped = format!(
        "SELECT window_start, via, COUNT(*) FROM ({joined}) GROUP BY window_start, window_end, via"
    );
    assert_eq!(windows(&query(&grouped)), [Some(TEN_SECONDS); 2]);
    let plan = query(
        "SELECT window_start, COUNT(*) FROM TABLE(TUMBLE(
             (SELECT o.window_time AS t FROM o JOIN s ON o.window_end = s.window_end),
             DESCRIPTOR(t), INTERVAL '1' HOUR)) GROUP BY window_start, window_end",
    );
    let hour = Window::Tumble(Tumble { size_us: 3_600_000_000, offset_us: 0 });
    assert_eq!(windows(&plan), [Some(TEN_SECONDS), Some(hour)]);
    let plan = query(&format!(
        "SELECT id, via FROM (SELECT *, ROW_NUMBER() OVER (
             PARTITION BY window_start, window_end ORDER BY via) AS rn FROM ({joined}))
         WHERE rn < 3"
    ));
    assert_eq!(windows(&plan), [Some(TEN_SECONDS); 2]);
    let plan = query(&format!(
        "SELECT j.id, n FROM ({joined}) AS j JOIN sn ON j.window_end = sn.window_end AND via = 'x'
         AND j.id = sn.order_id"
    ));
    assert_eq!((plan.sources.len(), windows(&plan)), (2, vec![Some(TEN_SECONDS); 3]));
    let plan = query(&format!(
        "SELECT window_end, id FROM ({joined}) UNION ALL SELECT window_end, order_id FROM sn"
    ));
    assert_eq!(plan.stages.len(), 3);
    let plan = query(&format!("{joined} ORDER BY window_end, via DESC LIMIT 7"));
    assert!(plan.outputs[0].sort.as_ref().is_some_and(|sort| sort.each_window));
    // A side that is a union: two inputs.
    let plan = query(
        "SELECT o.id FROM o JOIN (
             SELECT window_end, order_id FROM sn WHERE n > 3
             UNION ALL SELECT window_end, order_id + 1 FROM sn) AS u
         ON o.window_end = u.window_end AND o.id = u.order_id",
    );
    let (stage, body) = join(&plan);
    assert_eq!((stage.inputs.len(), body.left_inputs), (3, 1));
    let id = "CAST(order_id AS BIGINT)";
    let both = [format!("{id} where COUNT(*) > 3"), format!("{id} + 1")];
    assert_eq!(sides(&plan)[1], both);
}

#[test]
fn inner_joins_take_the_conditions_that_are_theirs() {
    let plan = query(
        "SELECT o.id, via, n FROM o, s, sn
         WHERE o.id = s.order_id AND sn.order_id = s.order_id AND o.window_end = s.window_end
             AND o.window_end = sn.window_end AND o.item < s.item AND note = 'x' AND n > 1",
    );
    let [.., first, _, second] = &plan.stages[..] else { panic!("{plan:?}") };
    let (Operator::Join(first), Operator::Join(second)) = (&first.operator, &second.operator)
    else {
        panic!("{plan:?}")
    };
    assert_eq!((first.keys.len(), first.condition.is_some()), (1, true));
    assert_eq!((second.keys.len(), second.condition.is_some()), (1, false));
    assert_eq!((first.window, second.window), (Some(TEN_SECONDS), Some(TEN_SECONDS)));
}

#[test]
fn a_table_that_is_joined_with_itself_is_read_once() {
    let plan = query(
        "SELECT a.id, b.id FROM o AS a JOIN o AS b ON a.window_end = b.window_end
         AND a.item = b.item AND a.id < b.id",
    );
    let (stage, _) = join(&plan);
    assert_eq!((plan.sources.len(), plan.stages.len()), (1, 1));
    let again = |plan: &Plan| join(plan).0.inputs.iter().map(|i| i.again).collect::<Vec<_>>();
    // Late records are counted once.
    assert_eq!(again(&plan), [false, true]);
    assert_eq!(fields(&stage.output)[1].0, "id0");
    let plan =
        query("SELECT a.id FROM o AS a JOIN o AS b ON a.window_end = b.window_end AND b.item = 3");
    assert_eq!(again(&plan), [false, false]);
    let plan =
        query("SELECT a.n FROM sn AS a JOIN sn AS b ON a.window_end = b.window_end AND a.n < b.n");
    assert_eq!((plan.sources.len(), plan.stages.len()), (1, 2));
    // Of `*` over both, columns have names of their own.
    let plan = query("SELECT * FROM ses AS a JOIN ses AS b ON a.window_end = b.window_end");
    let names: Vec<String> = fields(&join(&plan).0.output).iter().map(|f| f.0.into()).collect();
    assert_eq!(
        names[3..],
        ["id", "n", "window_start0", "window_end0", "window_time0", "id0", "n0"]
    );
}

#[test]
fn equal_joins_of_a_statement_set_are_one() {
    let insert = |into: &str, condition: &str| {
        format!(
            "INSERT INTO {into} SELECT o.window_time, o.id, COUNT(*) FROM o JOIN s
             ON o.id = s.order_id AND o.window_end = s.window_end {condition}
             GROUP BY o.window_start, o.window_end, o.window_time, o.id;"
        )
    };
    let text = format!(
        "{TABLES} EXECUTE STATEMENT SET BEGIN {} {} END",
        insert("kept", ""),
        insert("kept_too", "WHERE via IS NULL OR 10 / o.item > 1")
    );
    let plan = match execute(&mut session(), &text) {
        Ok(Outcome::Insert(planned, _)) => planned.plan,
        other => panic!("{other:?}"),
    };
    plan.check().unwrap();
    let joins = plan.stages.iter().filter(|s| matches!(s.operator, Operator::Join(_)));
    assert_eq!((plan.sources.len(), joins.count(), plan.outputs.len()), (2, 2, 2));
    let text = text.replace("WHERE via IS NULL OR 10 / o.item > 1", "");
    let plan = match execute(&mut session(), &text) {
        Ok(Outcome::Insert(planned, _)) => planned.plan,
        other => panic!("{other:?}"),
    };
    let joins = plan.stages.iter().filter(|s| matches!(s.operator, Operator::Join(_)));
    assert_eq!((joins.count(), plan.stages.len()), (1, 2));
}

#[test]
fn without_windows_what_ends_is_joined() {
    let plan = query("SELECT past.name, n.name FROM past LEFT JOIN names AS n ON past.id = n.id");
    let (stage, body) = join(&plan);
    assert_eq!((body.kind, body.window, body.pair.fields().len()), (JoinKind::Left, None, 4));
    assert_eq!(asked(&plan).0, ["id = CAST(id_2 AS BIGINT)"]);
    let text = &DataType::Utf8;
    assert_eq!(fields(&stage.output), [("name", text, true), ("name0", text, true)]);
    assert!(plan.sources.iter().all(|source| source.event_time.is_none()));
    let plan = query("SELECT COUNT(*) FROM past CROSS JOIN names");
    assert_eq!((sides(&plan), plan.stages.len()), ([strings(&[""]), strings(&[""])], 2));
    let plan = query(
        "SELECT name FROM past JOIN (SELECT MAX(id) AS id FROM names) AS m ON past.id = m.id",
    );
    assert_eq!(join(&plan).0.inputs[1].from, Node::Stage(0));
    // Windows that are not said to be the same are like other columns.
    let plan = query(
        "SELECT a.name, b.window_start
         FROM TABLE(TUMBLE(TABLE past, DESCRIPTOR(at), INTERVAL '1' HOUR)) AS a
         JOIN TABLE(HOP(TABLE past, DESCRIPTOR(at), INTERVAL '1' HOUR, INTERVAL '2' HOUR)) AS b
         ON a.window_start < b.window_start",
    );
    assert_eq!(join(&plan).1.window, None);
    // What UNNEST gives is a side, too.
    for text in [
        "SELECT past.name, t FROM names CROSS JOIN UNNEST(tags) AS u (t) JOIN past
         ON past.id = names.id",
        "SELECT past.name, t FROM past JOIN (SELECT id, t FROM names, UNNEST(tags) AS u (t)) AS n
         ON past.id = n.id",
    ] {
        assert_eq!(join(&query(text)).0.inputs.len(), 2);
    }
}

#[test]
fn null_is_like_null_where_it_is_said() {
    let on = |on: &str| {
        query(&format!("SELECT o.id FROM o JOIN s ON o.window_end = s.window_end AND {on}"))
    };
    let plan = on("o.note IS NOT DISTINCT FROM s.via");
    assert!(join(&plan).1.nulls_are_equal);
    assert_eq!(asked(&plan).0, ["note = via"]);
    // Beside a key that is never NULL on one side.
    let plan = on("o.note IS NOT DISTINCT FROM s.via AND o.item = s.item");
    assert_eq!((join(&plan).1.nulls_are_equal, asked(&plan).0.len()), (true, 2));
    let plan = on("o.note IS NOT DISTINCT FROM s.via AND o.price = s.price");
    let (keys, condition, _) = asked(&plan);
    assert!(!join(&plan).1.nulls_are_equal);
    assert_eq!(
        (keys, condition),
        (strings(&["price = price_2"]), "via IS NOT DISTINCT FROM note".into())
    );
}

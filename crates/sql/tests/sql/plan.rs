//! Tests of plans: from SQL to what is read, computed, filtered, grouped and put out.

use crate::common::*;
use arrow::datatypes::{DataType, TimeUnit};
use millstream_contract::expr::Expr;
use millstream_contract::plan::{
    AggregateCall, AggregateFunction, Argument, Derived, Node, Operator, Plan, Stage, Tumble,
    Watermark, Window,
};
use millstream_sql::Outcome;

#[test]
fn the_papers_cluster_monitoring_query() {
    let query = plan(
        "SELECT window_start, job_id, AVG(cpu_request) AS cpu
         FROM TABLE(TUMBLE(TABLE task_events, DESCRIPTOR(ts), INTERVAL '2' SECOND))
         GROUP BY window_start, window_end, job_id",
    );
    // time_s (for ts), job_id, cpu_request; then ts.
    assert_eq!(query.projection, [0, 1, 5]);
    assert_eq!(query.derived.len(), 1);
    let Derived::Computed(expr) = &query.derived[0] else { panic!("no expression") };
    assert!(!expr.is_column());
    let seconds = DataType::Timestamp(TimeUnit::Second, None);
    assert_eq!(
        fields(&query.input),
        [
            ("time_s", &DataType::Int64, true),
            ("job_id", &DataType::Int64, false),
            ("cpu_request", &DataType::Float64, true),
            ("ts", &seconds, true)
        ]
    );
    let event_time = query.event_time.as_ref().unwrap();
    assert_eq!(event_time.column, 3);
    assert!(matches!(event_time.watermark, Watermark::Delay(1_000_000)));
    assert!(query.filter.is_none());
    let body = aggregate(&query);
    assert_eq!(body.window, Some(Tumble { size_us: 2_000_000, offset_us: 0 }.into()));
    let [key] = &body.keys[..] else { panic!("{:?}", body.keys) };
    assert!(matches!(key.expr, Expr::Column(1)));
    assert!(!key.nullable);
    let [avg] = &body.aggregates[..] else { panic!("{:?}", body.aggregates) };
    assert_eq!(avg.function, AggregateFunction::Avg);
    assert!(matches!(avg.arguments[..], [Argument { expr: Expr::Column(2), .. }]));
    assert_eq!(avg.result_type, DataType::Float64);
    assert_eq!(
        fields(&query.output),
        [
            ("window_start", &MS, false),
            ("job_id", &DataType::Int64, false),
            ("cpu", &DataType::Float64, true)
        ]
    );
    let columns: Vec<usize> = body
        .project
        .iter()
        .map(|e| match e {
            Expr::Column(i) => *i,
            Expr::Computed(e) => panic!("{e}"),
        })
        .collect();
    // window_start, window_end, window_time, job_id, AVG.
    assert_eq!(columns, [0, 3, 4]);
}

/// The texts of expressions: a column's name, or the SQL of what is computed.
fn texts<'a>(
    exprs: impl IntoIterator<Item = &'a Expr>,
    schema: &arrow::datatypes::Schema,
) -> Vec<String> {
    let text = |e: &Expr| match e {
        Expr::Column(i) => schema.field(*i).name().clone(),
        Expr::Computed(e) => e.to_string(),
    };
    exprs.into_iter().map(text).collect()
}

fn filter_text(query: &Query) -> String {
    texts(&query.filter, &query.input).join("")
}

#[test]
fn views_subqueries_and_filters_dissolve() {
    let query = plan(
        "CREATE VIEW dear AS SELECT ts, auction AS item, price * 100 AS cents FROM bids
         WHERE price > 5;
         WITH x AS (SELECT * FROM dear WHERE item <> 3)
         SELECT window_end, item, SUM(cents + 1) AS total
         FROM TABLE(TUMBLE(TABLE x, DESCRIPTOR(ts), INTERVAL '1' MINUTE, INTERVAL '70' SECOND))
         WHERE cents < 900
         GROUP BY window_start, window_end, item",
    );
    assert_eq!(query.projection, [0, 1, 2]);
    assert_eq!(filter_text(&query), "price > 5 AND auction <> 3 AND price * 100 < 900");
    let body = aggregate(&query);
    // An offset of more than a window is the same as what is left of it.
    assert_eq!(body.window, Some(Tumble { size_us: 60_000_000, offset_us: 10_000_000 }.into()));
    assert_eq!(body.aggregates[0].name, "SUM((price * 100) + 1)");
    assert_eq!(body.aggregates[0].result_type, DataType::Int64);
    assert_eq!(
        texts(&body.project, &body.fired),
        ["window_end", "auction", "SUM((price * 100) + 1)"]
    );
    let event_time = query.event_time.unwrap();
    assert_eq!((event_time.column, event_time.idle_timeout_us), (0, Some(10_000_000)));
    assert!(matches!(event_time.watermark, Watermark::Delay(0)));
}

#[test]
fn filters_above_the_grouping_are_having() {
    let query = plan(
        "SELECT * FROM (
             SELECT window_start AS w, auction, COUNT(*) AS n
             FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '1' MINUTE))
             GROUP BY window_start, window_end, auction HAVING MAX(price) > 7)
         WHERE n >= 2 AND w > TIMESTAMP '2024-01-01 00:00:00'",
    );
    assert!(query.filter.is_none());
    let body = aggregate(&query);
    assert_eq!(
        texts(&body.having, &body.fired).join(""),
        "MAX(price) > 7 AND COUNT(*) >= 2 AND window_start > TIMESTAMP '2024-01-01 00:00:00'"
    );
    let fired: Vec<String> = body.fired.fields().iter().map(|f| f.name().clone()).collect();
    assert_eq!(
        fired,
        ["window_start", "window_end", "window_time", "auction", "COUNT(*)", "MAX(price)"]
    );
    let named: Vec<&str> = query.output.fields().iter().map(|f| f.name().as_str()).collect();
    assert_eq!(named, ["w", "auction", "n"]);
}

#[test]
fn a_filter_on_the_window_applies_to_records() {
    let query = plan(
        "SELECT window_start, COUNT(*)
         FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '1' MINUTE))
         WHERE window_start >= TIMESTAMP '2024-01-01 00:00:00'
         GROUP BY window_start, window_end",
    );
    assert!(
        filter_text(&query).contains("WINDOW_START_60000_0(ts) >= "),
        "{}",
        filter_text(&query)
    );
    assert!(aggregate(&query).keys.is_empty());
}

#[test]
fn keys_may_be_expressions_of_the_window() {
    let query = plan(
        "SELECT DATE_TRUNC('day', window_start) AS day, window_start, auction % 10 AS k,
                COUNT(*) AS n
         FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '1' HOUR))
         GROUP BY DATE_TRUNC('day', window_start), window_start, auction % 10",
    );
    let body = aggregate(&query);
    assert_eq!(body.keys.len(), 1);
    assert_eq!(body.keys[0].name, "auction % 10");
    assert_eq!(
        texts(&body.project, &body.fired),
        ["DATE_TRUNC('day', window_start)", "window_start", "auction % 10", "COUNT(*)"]
    );
}

#[test]
fn result_types_of_aggregates() {
    let query = plan(
        "SELECT COUNT(*), COUNT(i32), SUM(i8), SUM(u8), SUM(f32), SUM(d), AVG(i64), AVG(f32),
                AVG(d),
                MIN(s), MAX(y), MIN(b), MAX(dt), MIN(tm), MAX(t9), MAX(DISTINCT i16)
         FROM typed",
    );
    use DataType::*;
    let types: Vec<DataType> =
        aggregate(&query).aggregates.iter().map(|a| a.result_type.clone()).collect();
    assert_eq!(
        types,
        [
            Int64,
            Int64,
            Int64,
            UInt64,
            Float64,
            Decimal128(38, 2),
            Float64,
            Float64,
            Decimal128(38, 6),
            Utf8,
            Binary,
            Boolean,
            Date32,
            Time32(TimeUnit::Millisecond),
            Timestamp(TimeUnit::Nanosecond, None),
            Int16
        ]
    );
    // Arguments are taken as they are, without a cast.
    let aggregates = &aggregate(&query).aggregates;
    let is_column = |a: &AggregateCall| matches!(&a.arguments[..], [a] if a.expr.is_column());
    assert!(aggregates[1..].iter().all(is_column));
    assert!(aggregates[0].arguments.is_empty());
    let nullable: Vec<bool> = query.output.fields().iter().map(|f| f.is_nullable()).collect();
    assert_eq!(nullable[..3], [false, false, true]);
}

#[test]
fn filters_of_aggregates_and_expressions_over_them() {
    let query = plan(
        "SELECT user_name, SUM(cpu_request) FILTER (WHERE event_type = 1) / COUNT(*) AS r
         FROM task_events GROUP BY user_name",
    );
    // Without a window no event time is read.
    assert_eq!(query.projection, [3, 4, 5]);
    assert!(query.event_time.is_none() && query.derived.is_empty());
    let body = aggregate(&query);
    assert_eq!(body.window, None);
    let [sum, count] = &body.aggregates[..] else { panic!("{:?}", body.aggregates) };
    assert_eq!(texts(&sum.filter, &query.input), ["event_type = 1"]);
    assert_eq!(sum.name, "SUM(cpu_request) FILTER (WHERE event_type = 1)");
    assert_eq!(count.name, "COUNT(*)");
}

#[test]
fn distinct_is_a_grouping() {
    let query = plan("SELECT DISTINCT s, i32 + 1 AS j FROM typed WHERE b");
    let body = aggregate(&query);
    assert_eq!(
        body.keys.iter().map(|k| k.name.as_str()).collect::<Vec<_>>(),
        ["s", "CAST(i32 AS BIGINT) + 1"]
    );
    assert!(body.aggregates.is_empty());
    assert_eq!(filter_text(&query), "b");
}

#[test]
fn stateless_queries_read_what_they_need() {
    let query = plan("SELECT price AS p, price * 2 FROM bids WHERE auction = 1 LIMIT 5 OFFSET 2");
    assert_eq!(query.projection, [1, 2]);
    assert!(query.event_time.is_none());
    let Operator::Stateless { limit, offset } = &query.body else { panic!("{:?}", query.body) };
    let project = &query.project.as_ref().unwrap().columns;
    assert_eq!(
        (texts(project, &query.input), *limit, *offset),
        (vec!["price".into(), "price * 2".into()], Some(5), 2)
    );
    let query = plan("SELECT COUNT(*) FROM typed");
    assert!(query.projection.is_empty());
}

#[test]
fn other_watermarks_are_expressions() {
    let query = plan(
        "CREATE TABLE w (v BIGINT, ts TIMESTAMP(3),
             WATERMARK FOR ts AS CASE WHEN v > 0 THEN ts - INTERVAL '5' SECOND ELSE ts END
         ) WITH ('connector' = 'fake');
         SELECT window_start, COUNT(*) FROM TABLE(TUMBLE(TABLE w, DESCRIPTOR(ts), INTERVAL '1' DAY))
         GROUP BY window_start, window_end",
    );
    assert_eq!(query.projection, [0, 1]);
    let Watermark::Expr(expr) = &query.event_time.unwrap().watermark else { panic!("a delay") };
    assert!(
        expr.to_string_of(&query.input).starts_with("CASE WHEN v > 0 THEN ts - INTERVAL '5 s'")
    );
}

trait Text {
    fn to_string_of(&self, schema: &arrow::datatypes::Schema) -> String;
}

impl Text for Expr {
    fn to_string_of(&self, schema: &arrow::datatypes::Schema) -> String {
        texts([self], schema).remove(0)
    }
}

#[test]
fn names_keep_their_case_and_types_their_precision() {
    let query = plan("SELECT `dateTime`, \"price\" AS `Price €`, dateTime AS d FROM bids");
    let named: Vec<&str> = query.output.fields().iter().map(|f| f.name().as_str()).collect();
    assert_eq!(named, ["dateTime", "Price €", "d"]);
    let query = plan("SELECT t0, t6, t9, z, tm, u64, f32, CAST(s AS TIMESTAMP) AS c FROM typed");
    use DataType::*;
    let types: Vec<DataType> =
        query.output.fields().iter().map(|f| f.data_type().clone()).collect();
    assert_eq!(
        types,
        [
            Timestamp(TimeUnit::Second, None),
            Timestamp(TimeUnit::Microsecond, None),
            Timestamp(TimeUnit::Nanosecond, None),
            Timestamp(TimeUnit::Millisecond, Some("UTC".into())),
            Time32(TimeUnit::Millisecond),
            UInt64,
            Float32,
            Timestamp(TimeUnit::Microsecond, None)
        ]
    );
    plan(
        "CREATE TABLE l (z TIMESTAMP(3) WITH LOCAL TIME ZONE) WITH ('connector' = 'fake');
         SELECT CAST(z AS TIMESTAMP WITH LOCAL TIME ZONE) FROM l",
    );
}

#[test]
fn computed_columns_are_called_what_they_say() {
    let query = plan("SELECT CAST(i32 AS BIGINT), i32, MOD(i64, 2), typed.s FROM typed");
    let named: Vec<&str> = query.output.fields().iter().map(|f| f.name().as_str()).collect();
    assert_eq!(named, ["CAST(i32 AS BIGINT)", "i32", "MOD(i64, 2)", "s"]);
    let query = plan("SELECT s, typed.s, s, b AS s9 FROM (SELECT * FROM typed) AS typed");
    let named: Vec<&str> = query.output.fields().iter().map(|f| f.name().as_str()).collect();
    assert_eq!(named, ["s", "s0", "s1", "s9"]);
    let query = plan("SELECT COUNT(*), 1 + 1 FROM typed GROUP BY b HAVING COUNT(*) > 1");
    let named: Vec<&str> = query.output.fields().iter().map(|f| f.name().as_str()).collect();
    assert_eq!(named, ["COUNT(*)", "1 + 1"]);
}

#[test]
fn results_go_to_a_sink_in_its_columns() {
    let text = "INSERT INTO sink (n, who) SELECT i32, s FROM typed";
    let Ok(Outcome::Insert(planned, _)) = execute(&mut session(), text) else {
        panic!("no insert")
    };
    let output = &planned.plan.output(0).unwrap().output;
    assert_eq!(fields(output), [("who", &DataType::Utf8, true), ("n", &DataType::Int64, true)]);
}

#[test]
fn explain_shows_plan_and_pipelines() {
    let text = "EXPLAIN SELECT window_start, job_id, AVG(cpu_request) AS cpu
                FROM TABLE(TUMBLE(TABLE task_events, DESCRIPTOR(ts), INTERVAL '2' SECOND))
                WHERE event_type = 0 GROUP BY window_start, window_end, job_id";
    let Ok(Outcome::Explain(planned)) = execute(&mut session(), text) else { panic!("no plan") };
    for part in [
        "Tumble: time=ts size=2 s",
        "read task_events: fake (4 of 6 columns)",
        "compute ts = TO_TIMESTAMP_SECONDS(time_s)",
        "event time ts, watermark ts - 1 s",
        "filter event_type = 0",
        "window of 2 s",
        "keys job_id BIGINT NOT NULL",
        "AVG(cpu_request) DOUBLE",
        "project window_start, job_id, AVG(cpu_request)",
        "window_start TIMESTAMP(3), job_id BIGINT, cpu DOUBLE",
    ] {
        assert!(planned.explain.contains(part), "{part:?} is not in:\n{}", planned.explain);
    }
}

#[test]
fn the_logical_plan_is_shown_as_sql_writes_it() {
    let text = "EXPLAIN SELECT auction, COUNT(*) AS n, SUM(price + 1) AS s,
                MAX(price) FILTER (WHERE price > 3) AS m
                FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '2' SECOND))
                WHERE ts > TIMESTAMP '2024-05-01 12:00:00' + INTERVAL '5' SECOND
                AND CAST(price AS DOUBLE) < 2.5e0 AND auction IN (7, 8)
                GROUP BY window_start, window_end, auction";
    let planned = match execute(&mut session(), text) {
        Ok(Outcome::Explain(planned)) => planned,
        other => panic!("{other:?}"),
    };
    let logical = &planned.explain[..planned.explain.find("first pipeline").unwrap()];
    for part in [
        "CAST('2024-05-01 12:00:00' AS TIMESTAMP(6)) + INTERVAL '5 s'",
        "CAST(bids.price AS DOUBLE) < ",
        "auction IN ([7, 8])",
        // In the aggregate, and above it.
        "count(1)",
        "count(1) AS n",
        "> 3) AS m",
    ] {
        assert!(logical.contains(part), "{part:?} is not in:\n{logical}");
    }
    for part in ["Int64", "Int32", "Float64", "Utf8", "IntervalMonthDayNano", "Timestamp"] {
        assert!(!logical.contains(part), "{part:?} is in:\n{logical}");
    }
}

#[test]
fn planning_twice_gives_the_same() {
    let text = "SELECT auction, NOW() AS t FROM bids WHERE price IN (1, 2, 3, 4, 5)";
    let plan = || {
        let mut planner = session();
        planner.set_start_time_us(1_700_000_000_000_000);
        match execute(&mut planner, text) {
            Ok(Outcome::Query(planned)) => planned.explain,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(plan(), plan());
    assert!(plan().contains("2023-11-14"), "{}", plan());
}

#[test]
fn a_star_is_planned_as_its_columns() {
    let logical = |text: &str| match execute(&mut session(), text) {
        Ok(Outcome::Query(planned)) => planned.logical,
        other => panic!("{other:?}"),
    };
    let window = "TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '2' SECOND))";
    let bids = "ts, auction, price, dateTime";
    for (from, columns) in [
        ("bids", bids.to_string()),
        ("bids WHERE price > 1 LIMIT 3 OFFSET 2", bids.to_string()),
        ("bids b WHERE b.price > 1", bids.to_string()),
        (window, format!("{bids}, window_start, window_end, window_time")),
        ("(SELECT price + 1 AS p, ts FROM bids) x", "p, ts".to_string()),
        ("(SELECT * FROM bids WHERE price > 1) x", bids.to_string()),
    ] {
        assert_eq!(
            logical(&format!("SELECT * FROM {from}")),
            logical(&format!("SELECT {columns} FROM {from}")),
            "{from}"
        );
    }
    let view = "CREATE VIEW v AS SELECT * FROM bids;";
    assert_eq!(
        logical(&format!("{view} SELECT * FROM v")),
        logical(&format!("{view} SELECT {bids} FROM v"))
    );
    let with = "WITH w AS (SELECT * FROM bids)";
    assert_eq!(
        logical(&format!("{with} SELECT * FROM w LIMIT 1")),
        logical(&format!("{with} SELECT {bids} FROM w LIMIT 1"))
    );
}

const COUNTS: &str = "
    CREATE VIEW counts AS
    SELECT window_start AS s, window_end AS e, window_time AS t, auction, COUNT(*) AS n,
           MAX(price) AS most, AVG(price) AS unused
    FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND))
    GROUP BY window_start, window_end, window_time, auction;";

/// Size of its windows in seconds, columns that it gives, and those that it reads.
fn shape(plan: &Plan, stage: usize) -> (Option<i64>, Vec<&str>, Vec<&str>) {
    let Stage { inputs, operator, output, .. } = &plan.stages[stage];
    let Operator::Aggregate(aggregate) = operator else { panic!("{operator:?}") };
    let window = aggregate.window.map(|window| match window {
        Window::Tumble(window) => window.size_us / 1_000_000,
        other => panic!("{other:?}"),
    });
    let given = output.fields().iter().map(|field| field.name().as_str()).collect();
    let read = plan.schema_of(inputs[0].from).unwrap();
    (window, given, read.fields().iter().map(|field| field.name().as_str()).collect())
}

#[test]
fn what_groups_a_grouping_is_a_stage_of_its_own() {
    let plan = graph(&format!(
        "{COUNTS} SELECT window_start, MAX(n) AS busiest
         FROM TABLE(TUMBLE(TABLE counts, DESCRIPTOR(t), INTERVAL '1' MINUTE))
         WHERE most > 5 GROUP BY window_start, window_end"
    ));
    assert_eq!((plan.sources.len(), plan.stages.len()), (1, 2));
    // What nobody asks for is not computed.
    assert_eq!(shape(&plan, 0), (Some(10), vec!["n", "most"], vec!["ts", "auction", "price"]));
    assert_eq!(shape(&plan, 1), (Some(60), vec!["window_start", "busiest"], vec!["n", "most"]));
    let Operator::Aggregate(counts) = &plan.stages[0].operator else { unreachable!() };
    let names: Vec<&str> = counts.aggregates.iter().map(|call| call.name.as_str()).collect();
    assert_eq!(names, ["COUNT(*)", "MAX(price)"]);
    let filter = &plan.stages[1].inputs[0].filter;
    assert_eq!(texts(filter, plan.schema_of(Node::Stage(0)).unwrap()), ["most > 5"]);
}

#[test]
fn rows_of_a_window_keep_it() {
    let plan = graph(&format!("{COUNTS} SELECT e, SUM(n) AS total FROM counts GROUP BY s, e"));
    assert_eq!(shape(&plan, 1), (Some(10), vec!["e", "total"], vec!["n"]));
    let plan = graph(&format!("{COUNTS} SELECT DISTINCT s, n FROM counts"));
    assert_eq!(shape(&plan, 1), (Some(10), vec!["s", "n"], vec!["n"]));
    // Over all there is, they are columns like others.
    let plan = graph(
        "SELECT MAX(e) AS last_end FROM (
             SELECT window_end AS e, job_id
             FROM TABLE(TUMBLE(TABLE task_events, DESCRIPTOR(ts), INTERVAL '10' SECOND))
             GROUP BY window_start, window_end, job_id)",
    );
    assert_eq!(shape(&plan, 1), (None, vec!["last_end"], vec!["e"]));
}

#[test]
fn a_window_that_nothing_groups_by_is_part_of_the_stage_below() {
    let plan = graph(&format!(
        "{COUNTS} SELECT window_end, n
         FROM TABLE(TUMBLE(TABLE counts, DESCRIPTOR(t), INTERVAL '1' MINUTE)) WHERE n > 1"
    ));
    assert_eq!(plan.stages.len(), 1);
    let Operator::Aggregate(counts) = &plan.stages[0].operator else { unreachable!() };
    assert_eq!(
        texts(&counts.having, &counts.fired)
            .iter()
            .filter(|text| text.contains("COUNT(*) > 1"))
            .count(),
        1
    );
}

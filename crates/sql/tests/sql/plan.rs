//! From SQL to the engine's query: what is read, computed, filtered, grouped and put out.

use crate::common::*;
use arrow::datatypes::{DataType, TimeUnit};
use millstream_engine::expr::Expr;
use millstream_engine::plan::{AggregateFunction, Tumble, Watermark};

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
    assert_eq!(query.derived[0].to_owned().is_column(), false);
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
    assert_eq!(body.window, Some(Tumble { size_us: 2_000_000, offset_us: 0 }));
    let [key] = &body.keys[..] else { panic!("{:?}", body.keys) };
    assert!(matches!(key.expr, Expr::Column(1)));
    assert!(!key.nullable);
    let [avg] = &body.aggregates[..] else { panic!("{:?}", body.aggregates) };
    assert_eq!(avg.function, AggregateFunction::Avg);
    assert!(matches!(avg.argument, Some(Expr::Column(2))));
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

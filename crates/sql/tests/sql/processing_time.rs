//! Tests of windows by processing time.

use millstream_contract::plan::Watermark;

use crate::common::*;

/// Processing time that a query adds to the rows of a table, as in query 12 of NEXMark: the table's
/// own watermark does not count then.
#[test]
fn windows_are_by_processing_time_that_a_view_adds() {
    let text = |windows: &str| {
        format!(
            "CREATE VIEW v AS SELECT *, PROCTIME() AS p FROM bids WHERE price > 1;
             SELECT auction, window_start, COUNT(*) AS n FROM TABLE({windows})
             GROUP BY auction, window_start, window_end"
        )
    };
    let plan = graph(&text("TUMBLE(TABLE v, DESCRIPTOR(p), INTERVAL '10' SECOND)"));
    plan.check().unwrap();
    let [source] = &plan.sources[..] else { panic!("{plan:?}") };
    let time = source.event_time.as_ref().unwrap();
    assert!(matches!(time.watermark, Watermark::Clock), "{time:?}");
    assert_eq!(source.schema.field(time.column).name(), "p");
    let plan = graph(&text("TUMBLE(TABLE v, DESCRIPTOR(ts), INTERVAL '10' SECOND)"));
    let [source] = &plan.sources[..] else { panic!("{plan:?}") };
    let time = source.event_time.as_ref().unwrap();
    assert!(!matches!(time.watermark, Watermark::Clock), "{time:?}");
}

//! A coordinator that does not take result rows. A process that has more of them waits, and does
//! not queue them up.

use std::sync::Arc;

use millstream_contract::Settings;
use millstream_contract::sink::RowOrder;
use millstream_contract::table::Sharing;
use millstream_engine::simulation::{Fault, Scenario};

use super::{Same, run, stateless};
use crate::support::script::{Script, Scripted, batches_of};
use crate::support::{Random, Record, oracle, query, records};

/// A split of the second process, and none of the first; its rows take several of the megabytes
/// that may wait to be sent.
fn source(records: &[Record]) -> Vec<Script> {
    let batches = batches_of(records, &mut Random::new(5), 600);
    let batches = batches.into_iter().map(|batch| (0, batch)).collect();
    vec![Script { batches: Vec::new() }, Script { batches }]
}

fn many_records() -> Vec<Record> {
    records(&mut Random::new(7), 1, 60_000, 1 << 30).remove(0)
}

#[test]
fn rows_of_batches_wait_for_a_link_that_is_cut() {
    let _same = Same("rows_of_batches_wait_for_a_link_that_is_cut");
    let data = many_records();
    let query = stateless::select_all(source(&data), Sharing::Whole, 0, None);
    let scenario = Scenario {
        slowness: vec![1; 2],
        faults: vec![(1, Fault::Cut(0, 1))],
        ..Scenario::from_seed(3, 2)
    };
    let settings = Settings { workers: 1, ..Settings::default() };
    let ran = run(&query, &settings, &scenario, RowOrder::Any);
    assert_eq!(ran.ends_with_a_fault(None, &[], "cut"), 2);
    let read = ran.stats().records;
    // A megabyte of rows, of some 50 bytes each.
    assert!((1_000..30_000).contains(&read), "{read} of {} records were read", data.len());
}

#[test]
fn rows_of_a_window_wait_for_a_slow_process() {
    let _same = Same("rows_of_a_window_wait_for_a_slow_process");
    let data = many_records();
    let (mut expected, ..) = oracle(std::slice::from_ref(&data), None, 0, 0);
    expected.sort();
    let query = query(Arc::new(Scripted::new(source(&data), 0)), None, 0);
    let scenario = Scenario { slowness: vec![1_000, 1], ..Scenario::from_seed(3, 2) };
    let settings = Settings { workers: 1, ..Settings::default() };
    let ran = run(&query, &settings, &scenario, RowOrder::Any);
    ran.is_all(&expected, "a slow process");
    let (stats, _) = ran.outcomes[1].as_ref().unwrap();
    assert!(stats.output_stalls > 0 && stats.memory_stalls == 0, "{stats:?}");
}

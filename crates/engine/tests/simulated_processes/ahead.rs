//! A process that reads faster than another passes its rows on to it, which leaves those of windows
//! that it has not reached itself where they are: it holds about a window, not all that the other
//! has read.

use std::sync::Arc;

use millstream_engine::Settings;
use millstream_engine::settings::FragmentMode;
use millstream_engine::simulation::Scenario;
use millstream_engine::sink::RowOrder;

use crate::run;
use crate::support::script::{Script, Scripted, batches_of};
use crate::support::{Random, Record, oracle, query};

const WINDOWS: i64 = 40;
const WINDOW_MS: i64 = 1_000;
/// Records of a window in each of the two splits, every one with a key of its own.
const RECORDS: i64 = 500;

fn split(number: i64) -> Vec<Record> {
    let record = |i| Record {
        ts_ms: Some(i * WINDOW_MS / RECORDS),
        key: Some(i * 2 + number),
        name: "n".into(),
        amount: None,
        price: 1.0,
    };
    (0..WINDOWS * RECORDS).map(record).collect()
}

#[test]
fn a_slow_process_does_not_hold_what_a_fast_one_has_read() {
    let data = [split(0), split(1)];
    let script = |records: &Vec<Record>| {
        let batches = batches_of(records, &mut Random::new(9), 100);
        Script { batches: batches.into_iter().map(|batch| (0, batch)).collect() }
    };
    let source = Scripted::new(data.iter().map(script).collect(), 0);
    let query = query(Arc::new(source), Some(WINDOW_MS), 0);
    let (expected, ..) = oracle(&data, Some(WINDOW_MS), 0, 0);
    let settings =
        Settings { workers: 1, fragment_mode: FragmentMode::PassThrough, ..Settings::default() };
    let mut most = Vec::new();
    for seed in 0..11 {
        // Rings of the usual size: with tiny ones the slow process waits for room in them, and takes
        // whatever there is meanwhile.
        let scenario = Scenario {
            slowness: vec![1, 30],
            channels: Default::default(),
            ..Scenario::from_seed(seed, 2)
        };
        let ran = run(&query, &settings, &scenario, RowOrder::Deterministic);
        ran.is_all(&expected, &format!("seed {seed}"));
        let passed = ran.stats().rows_passed as i64;
        assert!(passed > WINDOWS * RECORDS / 10, "seed {seed}: {passed} rows were passed through");
        // Each leads half of the keys: in a window as many as there are records in a split. A row
        // has 120 bytes with what it refers to.
        let (slow, _) = ran.outcomes[1].as_ref().unwrap();
        most.push(slow.state_live_bytes_at_peak as i64 / (120 * RECORDS));
    }
    // In some jobs it waits for credit itself, and takes what there is meanwhile.
    most.sort();
    assert!(most[most.len() / 2] <= 4, "{most:?} of {WINDOWS} windows at once");
}

//! A process that reads faster than another. It passes its rows on to the slower one, which leaves
//! rows of windows that it has not reached itself in their channel. So the slower process holds
//! about one window, not all that the faster one has read.

use std::sync::Arc;
use std::time::Duration;

use millstream_contract::Settings;
use millstream_contract::settings::{FragmentMode, MaxAhead};
use millstream_contract::sink::RowOrder;
use millstream_engine::Stats;
use millstream_engine::simulation::Scenario;
use millstream_flow::channel::Settings as Channels;

use super::{Same, run};
use crate::support::script::{Script, Scripted, batches_of};
use crate::support::{Random, Record, query};

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

/// Runs the job from some seeds, with a first process that takes so many steps where the second
/// takes one: what `process` came to.
fn run_seeds(
    data: &[Vec<Record>; 2],
    speed: u32,
    channels: Channels,
    process: usize,
) -> Vec<Stats> {
    let script = |records: &Vec<Record>| {
        let batches = batches_of(records, &mut Random::new(9), 100);
        Script { batches: batches.into_iter().map(|batch| (0, batch)).collect() }
    };
    let source = Scripted::new(data.iter().map(script).collect(), 0);
    let query = query(Arc::new(source), Some(WINDOW_MS), 0);
    let settings = Settings {
        workers: 1,
        fragment_mode: FragmentMode::PassThrough,
        max_ahead: MaxAhead::Us(86_400_000_000),
        ..Settings::default()
    };
    // What one process comes to: the oracle knows no records far ahead.
    let alone = Scenario { slowness: vec![1], ..Scenario::from_seed(0, 1) };
    let alone = run(&query, &settings, &alone, RowOrder::Deterministic);
    assert_eq!(alone.stats().late_records, 0);
    let expected = alone.rows;
    let run_seed = |seed| {
        let slowness = vec![1, speed];
        let scenario = Scenario {
            slowness,
            channels,
            latency: Duration::from_micros(1),
            ..Scenario::from_seed(seed, 2)
        };
        let mut ran = run(&query, &settings, &scenario, RowOrder::Deterministic);
        ran.is_all(&expected, &format!("seed {seed}"));
        let passed = ran.stats().rows_passed;
        (ran.outcomes.remove(process).unwrap().0, passed)
    };
    let (stats, passed): (Vec<_>, Vec<_>) = (0..11).map(run_seed).unzip();
    let passed: u64 = passed.iter().sum();
    assert!(passed as i64 > WINDOWS * RECORDS, "{passed} rows were passed through");
    stats
}

/// The one in the middle.
fn median(stats: &[Stats], number: impl Fn(&Stats) -> i64) -> i64 {
    let mut all: Vec<i64> = stats.iter().map(number).collect();
    all.sort();
    all[all.len() / 2]
}

/// How many windows it held. Each leads half of the keys: in a window as many as there are records
/// in a split. A row has 120 bytes with what it refers to.
fn open_at_once(stats: &Stats) -> i64 {
    stats.state_live_bytes_at_peak as i64 / (120 * RECORDS)
}

#[test]
fn a_slow_process_does_not_hold_what_a_fast_one_has_read() {
    let _same = Same("a_slow_process_does_not_hold_what_a_fast_one_has_read");
    // Rings of the usual size: with tiny ones the slow process waits for room in them itself, and
    // takes whatever there is meanwhile.
    let stats = run_seeds(&[split(0), split(1)], 30, Channels::default(), 1);
    let windows = median(&stats, open_at_once);
    assert!(windows <= 4, "{windows} of {WINDOWS} windows at once");
}

/// A process that has met a record far ahead is not ahead: its watermark is waited for, and windows
/// fire as they are complete.
#[test]
fn records_far_ahead_do_not_keep_a_process_from_being_heard() {
    let _same = Same("records_far_ahead_do_not_keep_a_process_from_being_heard");
    let mut data = [split(0), split(1)];
    for (i, record) in data[1].iter_mut().enumerate() {
        if i % 150 == 100 {
            record.ts_ms = record.ts_ms.map(|ts| ts + 4_000_000_000_000);
        }
    }
    let channels = Channels { slots: 8, slot_bytes: 4096, ..Channels::default() };
    let stats = run_seeds(&data, 1, channels, 0);
    let windows = stats.iter().map(open_at_once).max().unwrap();
    assert!(windows <= 4, "{windows} of {WINDOWS} windows at once");
}

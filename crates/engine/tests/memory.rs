//! Tests of the memory budget. What a job holds stays within its budget. Near the budget, splits
//! that are ahead wait and the slowest goes on. Only if that does not help does the job end, and
//! its error says why.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;

use crate::support::{Random, Record, oracle, passing, query, run, table};
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use millstream_contract::plan::Plan;
use millstream_contract::table::*;
use millstream_contract::{Error, Result, Settings};
use millstream_engine::Stats;

const MIB: u64 = 1 << 20;

/// Batches, each not before its time (microseconds from the start).
type Timed = VecDeque<(i64, RecordBatch)>;

#[derive(Debug)]
struct Paced {
    schema: SchemaRef,
    splits: Vec<Timed>,
}

struct PacedSplit {
    start_us: i64,
    batches: Timed,
}

impl Split for PacedSplit {
    /// No test goes on from a position.
    fn position(&self) -> Position {
        Position::default()
    }
    fn name(&self) -> &str {
        "paced"
    }
    fn poll_next(&mut self, now_us: i64, _: &Waker) -> Result<SplitPoll> {
        let Some((at, _)) = self.batches.front() else { return Ok(SplitPoll::Ended) };
        if self.start_us + at > now_us {
            return Ok(SplitPoll::Pending { retry_at_us: Some(self.start_us + at) });
        }
        let batch = self.batches.pop_front().map(|(_, batch)| batch);
        Ok(batch.map_or(SplitPoll::Ended, |batch| SplitPoll::Chunk(Box::new(batch))))
    }
}

impl Table for Paced {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
    fn bounded(&self) -> bool {
        true
    }
    fn open(&self, projection: &[usize], options: &OpenOptions) -> Result<Vec<Box<dyn Split>>> {
        let open = |batches: &Timed| -> Box<dyn Split> {
            let project = |(at, b): &(i64, RecordBatch)| (*at, b.project(projection).unwrap());
            let batches = batches.iter().map(project).collect();
            Box::new(PacedSplit { start_us: options.start_time_us, batches })
        };
        Ok(self.splits.iter().map(open).collect())
    }
    fn describe(&self, _: &[usize]) -> String {
        "paced".into()
    }
}

/// `count` records with a key each, a millisecond apart.
fn unique(count: i64, first_key: i64) -> Vec<Record> {
    let record = |i| Record {
        ts_ms: Some(i),
        key: Some(first_key + i),
        name: "a name of some length, the same for all".into(),
        amount: Some(i),
        price: 0.25,
    };
    (0..count).map(record).collect()
}

/// The records of each split, in batches of at most 200; split `i` has one every `pace_us[i]`.
fn paced(splits: &[Vec<Record>], pace_us: &[i64]) -> Arc<Paced> {
    let memory = table(splits, &mut Random::new(1), 200);
    let timed = memory.splits.iter().zip(pace_us).map(|(batches, pace)| {
        batches.iter().enumerate().map(|(i, b)| (i as i64 * pace, b.clone())).collect()
    });
    Arc::new(Paced { schema: memory.schema.clone(), splits: timed.collect() })
}

fn settings(seed: u64, workers: usize, memory_bytes: u64) -> Settings {
    Settings { workers, memory_bytes, simulate: Some(seed), batch_rows: 200, ..Settings::default() }
}

/// Runs a query that must succeed within its budget.
fn run_within(query: &Plan, settings: &Settings, expected: &[String]) -> Stats {
    let (stats, rows) = run(query, settings);
    let rows = rows.unwrap_or_else(|e| panic!("{settings:?}: {e}\n{stats:?}"));
    assert!(rows == expected, "{settings:?}: not the right rows");
    assert!(stats.memory_bytes_peak <= settings.memory_bytes, "{settings:?}: {stats:?}");
    stats
}

/// Split 1 could be read at once, but the watermark moves with split 0, which is slow. State for
/// all windows of split 1 would be many times the budget.
#[test]
fn splits_that_are_ahead_wait_for_the_slowest() {
    let data = [unique(60_000, 0), unique(60_000, 1_000_000)];
    let (expected, ..) = oracle(&data, Some(1000), 0, 0);
    let source = paced(&data, &[5_000, 0]);
    let query = query(source, Some(1000), 0);
    let (mut stalls, mut unlimited_bytes) = (0, 0);
    for seed in 0..3 {
        let workers = 1 + seed as usize % 3;
        let free = run_within(&query, &settings(seed, workers, 1 << 40), &expected);
        unlimited_bytes = free.memory_bytes_peak.max(unlimited_bytes);
        assert_eq!(free.memory_stalls, 0, "{free:?}");
        let stats = run_within(&query, &settings(seed, workers, 6 * MIB), &expected);
        assert_eq!(stats.late_records, 0);
        stalls += stats.memory_stalls;
    }
    assert!(unlimited_bytes > 8 * MIB, "the budget must bind: {unlimited_bytes} bytes without");
    assert!(stalls > 0, "nobody ever waited");
}

/// One split alone is the slowest: it is never stopped, whatever its windows add up to.
#[test]
fn the_slowest_split_goes_on_at_the_budget() {
    let data = [unique(60_000, 0)];
    let (expected, ..) = oracle(&data, Some(1000), 0, 5000);
    let query = query(paced(&data, &[0]), Some(1000), 0);
    for seed in 0..4 {
        let workers = 1 + seed as usize % 4;
        let settings =
            Settings { allowed_lateness_us: 5_000_000, ..settings(seed, workers, 8 * MIB) };
        run_within(&query, &settings, &expected);
    }
}

/// What cannot be had ends the job, before it is had.
#[test]
fn a_window_beyond_the_budget_is_an_error() {
    let data = [unique(100_000, 0), unique(100_000, 1_000_000)];
    let query = query(paced(&data, &[0, 0]), Some(1_000_000), 0);
    for seed in 0..4 {
        let settings = settings(seed, 1 + seed as usize % 4, 16 * MIB);
        let (stats, result) = run(&query, &settings);
        let error = result.expect_err("200,000 keys in one window of 16 MB");
        let Error::Memory { operator, bytes, count, budget, .. } = &error else {
            panic!("{error}");
        };
        assert_eq!((operator.as_str(), *budget), ("aggregate by (key, name)", 16 * MIB));
        assert!(*bytes > *budget && *count > 5_000 && *count < 200_000, "{error}");
        assert!(stats.memory_bytes_peak <= 16 * MIB, "{stats:?}");
        assert_eq!(stats.rows, 0);
    }
}

/// The rows of a window wait for their order beside the state that they come from.
#[test]
fn rows_that_wait_count() {
    let data = [unique(40_000, 0)];
    let (expected, ..) = oracle(&data, Some(1_000_000), 0, 0);
    let query = query(paced(&data, &[0]), Some(1_000_000), 0);
    let free = run_within(&query, &settings(1, 1, 1 << 40), &expected);
    let waiting = free.memory_bytes_peak - free.state_bytes_peak;
    assert!(waiting > 2 * MIB, "{free:?}");
    // Room for keys and values, but not for all rows as well.
    let tight = settings(1, 1, free.state_live_bytes_rest + waiting / 2);
    let (stats, result) = run(&query, &tight);
    let Err(error @ Error::Memory { .. }) = result else { panic!("{stats:?}") };
    assert!(stats.state_bytes_rest > 0, "it must have begun to fire: {error}");
    assert!(stats.memory_bytes_peak <= tight.memory_bytes + MIB / 2, "{stats:?}");
    assert_eq!(stats.rows, 0);
}

/// Without state: rows are written in the order of batches and splits, so those of a fast split
/// wait for a slow one; but only as many as there is room for.
#[test]
fn rows_of_a_fast_split_do_not_pile_up() {
    let data = [unique(2_000, 0), unique(60_000, 1_000_000)];
    let source = paced(&data, &[50_000, 0]);
    let query = passing(source, None);
    for workers in [1, 3] {
        let (free, all) = run(&query, &settings(1, workers, 1 << 40));
        let all = all.unwrap();
        assert_eq!(all.len(), 62_000);
        assert!(free.memory_bytes_peak > 4 * MIB, "the budget must bind: {free:?}");
        let stats = run_within(&query, &settings(1, workers, 2 * MIB), &all);
        assert!(
            stats.memory_bytes_peak < MIB,
            "a quarter for output, an eighth for input: {stats:?}"
        );
        assert!(stats.memory_stalls > 0, "{stats:?}");
    }
}

/// A busy window that has fired makes nobody expect that the many small ones after it, open all at
/// once, will be as large.
#[test]
fn small_windows_after_a_large_one_stay_small() {
    let mut records = unique(60_000, 0);
    records.iter_mut().for_each(|record| record.ts_ms = Some(-10_000_000));
    records.extend(
        unique(2_000, 0)
            .into_iter()
            .map(|record| Record { ts_ms: record.ts_ms.map(|ms| (ms + 1) * 1_000), ..record }),
    );
    let data = [records];
    let delay_us = 3_000 * 1_000_000;
    let (expected, ..) = oracle(&data, Some(1_000), delay_us, 0);
    for workers in [1, 2] {
        let source = table(&data, &mut Random::new(3), 500);
        let settings = Settings {
            workers,
            simulate: Some(workers as u64),
            memory_bytes: 256 * MIB,
            ..Settings::default()
        };
        let (stats, rows) = run(&query(source, Some(1_000), delay_us), &settings);
        assert_eq!(rows.expect("it fits").len(), expected.len(), "{workers} workers");
        assert_eq!(stats.windows, 2_001);
        let live_bytes = stats.state_live_bytes_at_peak;
        assert!(stats.state_bytes_peak < 64 * MIB, "{} for {live_bytes}", stats.state_bytes_peak);
    }
}

/// Records that are all in windows of their own, thousands to a batch: a batch would open as many
/// windows before anything is counted or can fire.
#[test]
fn a_batch_spread_over_many_windows_keeps_to_the_budget() {
    let spread = |first: i64| -> Vec<Record> {
        let record = |(i, record): (usize, Record)| Record {
            // Some without a time, so that the batch has no bounds.
            ts_ms: (i % 1000 != 777).then_some(i as i64 * 1_000),
            ..record
        };
        unique(6_000, first).into_iter().enumerate().map(record).collect()
    };
    let data = [spread(0), spread(1_000_000)];
    let (expected, late, null_time) = oracle(&data, Some(1_000), 0, 0);
    assert_eq!((late, null_time), (0, 12));
    let source = table(&data, &mut Random::new(5), 6_000);
    assert!(source.splits.iter().flatten().any(|batch| batch.num_rows() > 3_000));
    for seed in 0..3 {
        let workers = 1 + seed as usize % 3;
        let settings = Settings { batch_rows: 6_000, ..settings(seed, workers, 6 * MIB) };
        let stats = run_within(&query(source.clone(), Some(1_000), 0), &settings, &expected);
        assert_eq!((stats.null_time_records, stats.records), (12, 12_000));
        let first = stats.first_null_time.expect("one without a time").place;
        assert_eq!(first, "memory, record 778");
        // With no more than a 32nd of the budget for tables not counted yet.
        let roomy = Settings { memory_bytes: 1 << 40, ..settings };
        let free = run_within(&query(source.clone(), Some(1_000), 0), &roomy, &expected);
        assert!(free.memory_bytes_peak > 9 * MIB, "the budget must bind: {free:?}");
        assert_eq!((free.input_bytes, free.ahead_records), (stats.input_bytes, 0));
    }
}

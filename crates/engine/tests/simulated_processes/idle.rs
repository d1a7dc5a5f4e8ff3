//! Sources that have nothing for a while. With an idle time-out they hold nobody back, in whichever
//! process they are; without one everybody waits. No record is lost in either case.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicI64, AtomicU64};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use millstream_contract::plan::Plan;
use millstream_contract::sink::{RowOrder, Sink, Writers};
use millstream_contract::table::Sharing;
use millstream_contract::{Result, Settings};
use millstream_engine::simulation::{Scenario, simulate};

use super::{Ran, Same, described, happened, run, run_all, seeds};
use crate::support::script::{Script, Scripted, batches_of};
use crate::support::{Random, Record, event_time, oracle, oracle_of_resumed, query};

/// Notes how many rows came while some split had more to come.
#[derive(Debug)]
struct Early {
    handed_out: Arc<Vec<AtomicI64>>,
    rows: AtomicU64,
}

impl Sink for Early {
    fn open(&self, _: &SchemaRef, _: Writers) -> Result<()> {
        Ok(())
    }
    fn order(&self) -> RowOrder {
        RowOrder::Any
    }
    fn write(&self, _: usize, rows: &RecordBatch, _: bool) -> Result<()> {
        if self.handed_out.iter().any(|reached| reached.load(SeqCst) < i64::MAX) {
            self.rows.fetch_add(rows.num_rows() as u64, SeqCst);
        }
        Ok(())
    }
    fn finish(&self) -> Result<()> {
        Ok(())
    }
}

fn record(ts_ms: i64) -> Record {
    Record {
        ts_ms: Some(ts_ms),
        key: Some(ts_ms % 5),
        name: "n".into(),
        amount: Some(1),
        price: 1.0,
    }
}

fn with_timeout(table: Scripted, idle_timeout_us: Option<i64>) -> Plan {
    let mut query = query(Arc::new(table), Some(1000), 0);
    event_time(&mut query).idle_timeout_us = idle_timeout_us;
    query
}

/// Rows that came while some split had more to come, and records that were late, of three processes
/// whose sources are idle after that time.
fn early_and_late(
    scripts: &[Script],
    timeout_us: Option<i64>,
    (seed, workers): (u64, usize),
) -> (u64, u64) {
    let table = Scripted::new(scripts.to_vec(), 0);
    let sink = Arc::new(Early { handed_out: table.handed_out.clone(), rows: AtomicU64::new(0) });
    let sinks: Vec<Vec<Arc<dyn Sink>>> = (0..3).map(|_| vec![sink.clone() as _]).collect();
    let scenario = Scenario { slowness: vec![1; 3], ..Scenario::from_seed(seed, 3) };
    let settings = Settings { workers, ..Settings::default() };
    let query = with_timeout(table, timeout_us);
    let (outcomes, _) = simulate(&query, &settings, &sinks, &scenario).unwrap();
    let outcomes: Vec<_> = outcomes.into_iter().flatten().collect();
    assert!(outcomes.iter().all(|(_, result)| result.is_ok()), "seed {seed}");
    let late = outcomes.iter().map(|(stats, _)| stats.late_records).sum();
    (sink.rows.load(SeqCst), late)
}

/// 500 records of ten seconds, which come one by one over 50 s.
fn steady(random: &mut Random) -> Script {
    let records = (0..500).map(|i| record(i * 20));
    let batch =
        |(i, record): (i64, Record)| (i * 100_000, batches_of(&[record], random, 10).remove(0));
    Script { batches: (0..).zip(records).map(batch).collect() }
}

/// Processes whose sources are idle wait neither for each other nor let others wait: their records
/// that come an hour later are late, and windows fire long before.
#[test]
fn idle_processes_hold_nobody_back() {
    let _same = Same("idle_processes_hold_nobody_back");
    for seed in 0..30 {
        let mut random = Random::new(7);
        let mut one = |ts| batches_of(&[record(ts)], &mut random, 10).remove(0);
        let mut tardy = || Script { batches: vec![(0, one(10)), (3_600_000_000, one(20))] };
        let scripts = [tardy(), tardy(), steady(&mut random)];
        let workers = 1 + seed as usize % 2;
        // Nine of ten windows are complete when the steady source ends.
        for (timeout, late, early) in [(Some(5_000_000), 2, 9..=10), (None, 0, 0..=0)] {
            let found = early_and_late(&scripts, timeout, (seed, workers));
            let right = found.1 == late && early.contains(&found.0);
            assert!(right, "seed {seed}, idle after {timeout:?}: {found:?} early and late");
        }
    }
}

/// So it is after a burst, whose rows wait in a process of several workers to be merged with each
/// other's: that the process is idle again must not wait with them.
#[test]
fn processes_that_are_idle_again_hold_nobody_back() {
    const KEYS: i64 = 200;
    let _same = Same("processes_that_are_idle_again_hold_nobody_back");
    for seed in 0..30 {
        let mut random = Random::new(7);
        let mut tardy = || {
            let of_key = |key| Record { key: Some(key), ..record(4_900) };
            let burst: Vec<Record> = (1..=KEYS).map(of_key).collect();
            let burst = batches_of(&burst, &mut random, 40);
            let mut one = |ts| batches_of(&[record(ts)], &mut random, 10).remove(0);
            let mut batches = vec![(0, one(10)), (3_600_000_000, one(20))];
            batches.splice(1..1, burst.into_iter().map(|batch| (20_000_000, batch)));
            Script { batches }
        };
        let scripts = [tardy(), tardy(), steady(&mut random)];
        let (early, late) = early_and_late(&scripts, Some(5_000_000), (seed, 2));
        let rows = 9 + KEYS as u64;
        assert!(late == 2 && (rows..=rows + 1).contains(&early), "seed {seed}: {early}, {late}");
    }
}

/// Bursts of records whose times are those of the clock, and pauses between them of up to an hour.
fn bursts(random: &mut Random) -> Vec<(i64, Vec<Record>)> {
    let mut at_us = 5_000_000 + random.below(5_000_000) as i64;
    let count = random.below(12);
    let burst = |_| {
        let pauses_us = [1_000, 400_000, 3_000_000, 60_000_000, 3_600_000_000];
        at_us += pauses_us[random.below(5) as usize];
        let size = 1 + random.below(40);
        let ts_ms = |_| at_us / 1000 - random.below(3_000) as i64;
        (at_us, (0..size).map(ts_ms).map(record).collect())
    };
    (0..count).map(burst).collect()
}

fn run_seed(seed: u64) -> (Ran, u64) {
    let mut random = Random::new(seed ^ 0x1d1e_0000);
    let processes = 2 + random.below(3) as usize;
    let splits: Vec<_> = (0..1 + random.below(5)).map(|_| bursts(&mut random)).collect();
    let timeout_us = [None, Some(1_000_000), Some(10_000_000)][random.below(3) as usize];
    let scripts = splits.iter().map(|bursts| {
        let batch = |(at, records): &(i64, Vec<Record>)| {
            (*at, batches_of(records, &mut Random::new(1), 1 << 30).remove(0))
        };
        Script { batches: bursts.iter().map(batch).collect() }
    });
    let sharing =
        [Sharing::Whole, Sharing::ByChunk, Sharing::Coordinator][random.below(3) as usize];
    let table = Scripted::new(scripts.collect(), 0).shared(sharing);
    let settings = Settings {
        workers: 1 + random.below(3) as usize,
        epoch_bytes: [1, 1000, 64 << 20][random.below(3) as usize],
        ..Settings::default()
    };
    let scenario = Scenario::from_seed(seed, processes);
    let what = described(seed, "idle_sources", &settings, &scenario);
    let what = format!("{what}idle after {timeout_us:?} us, {sharing:?}");
    let ran = run(&with_timeout(table, timeout_us), &settings, &scenario, RowOrder::Deterministic);
    let data: Vec<Vec<Record>> = splits
        .iter()
        .map(|bursts| bursts.iter().flat_map(|(_, records)| records.clone()).collect())
        .collect();
    let (expected, late, _) = oracle(&data, Some(1000), 0, 0);
    let stats = ran.stats();
    let Some(timeout_us) = timeout_us else {
        ran.is_all(&expected, &what);
        assert_eq!(stats.late_records, late, "{what}");
        return (ran, 0);
    };
    assert!(ran.well(), "{what}: {:?}", ran.errors());
    // No record is lost, no row comes twice.
    let total: usize = data.iter().map(Vec::len).sum();
    assert_eq!(stats.records, total as u64, "{what}");
    let cells = |row: &String| row.split('|').map(String::from).collect::<Vec<_>>();
    let rows: Vec<Vec<String>> = ran.rows.iter().map(cells).collect();
    let counted: u64 = rows.iter().map(|row| row[3].parse::<u64>().unwrap()).sum();
    assert_eq!(counted + stats.late_records, total as u64, "{what}");
    assert!(rows.is_sorted_by(|a, b| a[..2] < b[..2]), "{what}: out of order, or twice");
    // Late is only who is behind its own split, or comes after a pause in which the others may have
    // gone on.
    let latest_us = data.iter().flatten().filter_map(|r| r.ts_ms).max().unwrap_or(0) * 1000;
    let resumed = |split: usize, record: usize| {
        let (mut before, mut last_us) = (0, 0);
        for (at_us, records) in &splits[split] {
            if record < before + records.len() {
                return if at_us - last_us > timeout_us / 2 { latest_us } else { i64::MIN };
            }
            (before, last_us) = (before + records.len(), *at_us);
        }
        i64::MIN
    };
    let (_, late_max, _) = oracle_of_resumed(&data, Some(1000), 0, 0, resumed);
    let range = late..=late_max;
    assert!(range.contains(&stats.late_records), "{what}: {} of {range:?}", stats.late_records);
    let later = stats.late_records - late;
    (ran, later)
}

#[test]
fn idle_sources_lose_nothing() {
    const REGRESSIONS: &[u64] = &[];
    let seeds = seeds(23, REGRESSIONS);
    let (mut late_since_idle, mut early) = (0, 0);
    for (ran, late) in run_all(&seeds, run_seed) {
        late_since_idle += late;
        early += ran.stats().windows_fired_early;
    }
    let counts = [("late since their source was idle", late_since_idle), ("fired early", early)];
    happened(&seeds, &counts);
}

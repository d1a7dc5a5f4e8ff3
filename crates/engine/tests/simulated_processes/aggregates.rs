//! Aggregations with and without windows, with late merge and with its baseline.

use std::collections::BTreeMap;

use millstream_contract::Settings;
use millstream_contract::settings::{Exchange, FragmentMode};
use millstream_contract::sink::RowOrder;
use millstream_engine::Stats;
use millstream_engine::simulation::{Fault, Scenario};

use super::{counted_by_key, described, faults, happened, run, run_all, seeds};
use crate::support::{Random, drawn_settings, oracle, packed, query, records, table};

/// What a seed's job came to.
#[derive(Default)]
struct Came {
    stats: Stats,
    failed: u64,
    survived: u64,
    mended: u64,
    /// Credit stalls where each process has one worker, so that all leaders but one are elsewhere.
    remote_stalls: u64,
}

impl Came {
    fn add(&mut self, other: &Came) {
        self.stats.add_process(&other.stats);
        self.failed += other.failed;
        self.survived += other.survived;
        self.mended += other.mended;
        self.remote_stalls += other.remote_stalls;
    }
}

/// One seed's job: everything about it follows from the seed.
fn run_seed(seed: u64, with_faults: bool, exchange: Exchange) -> Came {
    let mut random = Random::new(seed ^ 0x5eed_0000);
    let processes = 2 + random.below(3) as usize;
    let splits = 1 + random.below(5) as usize;
    let per_split = [0, 1, 40, 400, 900][random.below(5) as usize];
    let keys = [1, 5, 60, 100_000][random.below(4) as usize];
    let data = records(&mut random, splits, per_split, keys);
    let window = [None, Some(50), Some(1000), Some(100_000)][random.below(4) as usize];
    let delay_us = [0, 1, 100_000, 4_999_999][random.below(4) as usize];
    let lateness = [0, 0, 700][random.below(3) as usize];
    let batch_rows = [1, 20, 300][random.below(3) as usize];
    let source = table(&data, &mut random, batch_rows);
    let drawn = drawn_settings(&mut random, 3, lateness);
    let settings = Settings { exchange, ..drawn };
    let mut scenario = Scenario::from_seed(seed, processes);
    if with_faults {
        scenario.faults = faults(&mut random, processes);
    }
    let test = match (exchange, with_faults) {
        (Exchange::LateMerge, true) => "faults_end",
        (Exchange::LateMerge, false) => "processes_agree",
        _ => "exchanged",
    };
    let what = described(seed, test, &settings, &scenario);
    let (expected, late, null_time) = oracle(&data, window, delay_us, lateness);
    let query = packed(query(source, window, delay_us), seed);
    let ran = run(&query, &settings, &scenario, RowOrder::Deterministic);
    if with_faults && !ran.well() {
        let failed = ran.ends_with_a_fault(None, &expected, &what);
        return Came { failed, ..Came::default() };
    }
    ran.is_all(&expected, &what);
    let stats = ran.stats();
    let counted = (stats.records, stats.late_records, stats.null_time_records);
    assert_eq!(counted, ((splits * per_split) as u64, late, null_time), "{what}");
    let remote_stalls = if settings.workers == 1 { stats.credit_stalls } else { 0 };
    let survived = u64::from(ran.survived());
    let mended = ran.faults.iter().any(|fault| matches!(fault, Fault::Mend(..)));
    Came { stats, failed: 0, survived, mended: mended.into(), remote_stalls }
}

#[test]
fn processes_agree_with_a_sequential_run() {
    const REGRESSIONS: &[u64] = &[];
    let mut came = Came::default();
    let seeds = seeds(57, REGRESSIONS);
    run_all(&seeds, |seed| run_seed(seed, false, Exchange::LateMerge))
        .iter()
        .for_each(|one| came.add(one));
    let sum = came.stats;
    happened(
        &seeds,
        &[
            ("epochs", sum.epochs),
            ("empty epochs", sum.empty_epochs),
            ("rows sent", sum.rows_sent),
            ("messages sent", sum.messages_sent),
            ("rows merged with those of other workers", sum.rows_combined),
            ("rows passed straight into slots", sum.rows_passed),
            ("rows kept and sealed before they were sent", sum.rows_sent - sum.rows_passed),
            ("windows fired while reading", sum.windows_fired_early),
            ("late records", sum.late_records),
            ("credit stalls", sum.credit_stalls),
            ("credit stalls for leaders elsewhere", came.remote_stalls),
        ],
    );
}

#[test]
fn faults_end_the_job_or_change_nothing() {
    const REGRESSIONS: &[u64] = &[];
    let mut came = Came::default();
    let seeds = seeds(57, REGRESSIONS);
    run_all(&seeds, |seed| run_seed(seed, true, Exchange::LateMerge))
        .iter()
        .for_each(|one| came.add(one));
    let counts = [("failed", came.failed), ("survived", came.survived), ("mended", came.mended)];
    happened(&seeds, &counts);
}

#[test]
fn exchanged_records_agree_with_a_sequential_run_or_end_with_a_fault() {
    const REGRESSIONS: &[u64] = &[];
    let mut came = Came::default();
    let seeds = seeds(46, REGRESSIONS);
    let both = |seed: u64| {
        let exchange = [Exchange::Repartition, Exchange::Interleaved][(seed % 2) as usize];
        let mut came = run_seed(seed, false, exchange);
        came.failed += run_seed(seed, true, exchange).failed;
        came
    };
    run_all(&seeds, both).iter().for_each(|one| came.add(one));
    let sum = came.stats;
    happened(
        &seeds,
        &[
            ("rows sent", sum.rows_sent),
            ("windows fired while reading", sum.windows_fired_early),
            ("credit stalls", sum.credit_stalls),
            ("failed", came.failed),
        ],
    );
}

/// Keys of one word have ways of their own: they are sorted by leader eight at a time, found by
/// slots where they lie close together, and looked up once for a block where they come often.
#[test]
fn whole_numbers_agree_with_a_sequential_count() {
    const REGRESSIONS: &[u64] = &[];
    let seeds = seeds(23, REGRESSIONS);
    let mut sum = Stats::default();
    let run_seed = |seed: u64| {
        let mut random = Random::new(seed ^ 0x0f4e_0000);
        let processes = 2 + random.below(2) as usize;
        let splits = 1 + random.below(4) as usize;
        let mut data = records(&mut random, splits, 6_000, 1);
        let (keys, apart) =
            ([50, 5_000, 1 << 20][random.below(3) as usize], random.below(2) * 7_777);
        let skewed = random.below(2) == 1;
        let mut counts = BTreeMap::new();
        for record in data.iter_mut().flatten() {
            let hot = skewed && random.below(4) > 0;
            let key = if hot { 3 } else { random.below(keys) as i64 * (1 + apart as i64) };
            (record.key, record.ts_ms) = (Some(key), Some(0));
            *counts.entry(key).or_insert(0) += 1;
        }
        let mut expected: Vec<String> =
            counts.iter().map(|(key, n)| format!("{key}|{n}")).collect();
        expected.sort();
        let modes = [FragmentMode::Auto, FragmentMode::Aggregate, FragmentMode::PassThrough];
        let settings = Settings {
            workers: 1 + random.below(2) as usize,
            epoch_bytes: [10_000, 64 << 20][random.below(2) as usize],
            fragment_bytes: [10_000, 8 << 20][random.below(2) as usize],
            fragment_mode: modes[random.below(3) as usize],
            ..Settings::default()
        };
        let scenario = Scenario::from_seed(seed, processes);
        let what = described(seed, "whole_numbers", &settings, &scenario);
        let query = counted_by_key(table(&data, &mut random, 1_000));
        let mut ran = run(&query, &settings, &scenario, RowOrder::Any);
        ran.rows.sort();
        ran.is_all(&expected, &what);
        ran.stats()
    };
    run_all(&seeds, run_seed).iter().for_each(|one| sum.add_process(one));
    let kept = sum.rows_sent - sum.rows_passed;
    happened(&seeds, &[("rows passed", sum.rows_passed), ("rows kept first", kept)]);
}

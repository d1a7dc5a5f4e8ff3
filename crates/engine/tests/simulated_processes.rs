//! Whole jobs of several processes, simulated: slow nodes, tiny rings and budgets, delayed, cut and mended links,
//! dead nodes. Either every process ends well and the rows are those of a sequential run, or every process
//! that is left ends with an error. `MILLSTREAM_SEEDS=100000` runs more seeds, `MILLSTREAM_SEED=7` just the one.

mod support;

use std::sync::{Arc, Mutex};

use millstream_engine::plan::Query;
use millstream_engine::settings::{Exchange, FragmentMode};
use millstream_engine::simulation::{Fault, Scenario, simulate};
use millstream_engine::sink::{RowOrder, Sink};
use millstream_engine::{Error, Result, Settings, Stats};
use support::script::{Script, Scripted, batches_of};
use support::*;

/// What a seed's job came to.
#[derive(Default)]
struct Came {
    stats: Stats,
    failed: u64,
    survived: u64,
    mended: u64,
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
    let modes = [FragmentMode::Auto, FragmentMode::Aggregate, FragmentMode::PassThrough];
    let settings = Settings {
        workers: 1 + random.below(3) as usize,
        epoch_bytes: [1, 1000, 64 << 20][random.below(3) as usize],
        fragment_bytes: [1000, 8 << 20][random.below(2) as usize],
        fragment_mode: modes[random.below(3) as usize],
        allowed_lateness_us: lateness * 1000,
        exchange,
        ..Settings::default()
    };
    let mut scenario = Scenario::from_seed(seed, processes);
    if with_faults {
        let step = |random: &mut Random| {
            [10, 300, 3_000, 20_000][random.below(4) as usize] + random.below(100)
        };
        let (a, b) =
            (random.below(processes as u64) as usize, random.below(processes as u64) as usize);
        let at = step(&mut random);
        match random.below(3) {
            0 => scenario.faults.push((at, Fault::Kill(a))),
            _ if a == b => {}
            1 => scenario.faults.push((at, Fault::Cut(a, b))),
            _ => {
                let after = 1 + random.below(2_000);
                scenario.faults.extend([(at, Fault::Cut(a, b)), (at + after, Fault::Mend(a, b))]);
            }
        }
    }
    let what = format!(
        "seed {seed}: {settings:?} {scenario:?}\nrepeat it with:\n    MILLSTREAM_SEED={seed} cargo test --profile ci \
         --workspace --test simulated_processes{}\n",
        match (exchange, with_faults) {
            (Exchange::LateMerge, true) => " faults",
            (Exchange::LateMerge, false) => " agree",
            _ => " exchanged",
        }
    );
    let (expected, late, null_time) = oracle(&data, window, delay_us, lateness);
    let sinks: Vec<_> = (0..processes)
        .map(|_| Arc::new(Collect { order: RowOrder::Deterministic, batches: Mutex::default() }))
        .collect();
    let given: Vec<Arc<dyn Sink>> = sinks.iter().map(|s| s.clone() as Arc<dyn Sink>).collect();
    let outcomes = simulate(&query(source, window, delay_us), &settings, &given, &scenario);
    let outcomes = outcomes.unwrap_or_else(|e| panic!("{what}: {e}"));
    let mut came = Came::default();
    let well = outcomes.iter().all(|o| matches!(o, Some((_, Ok(())))));
    came.mended = u64::from(well && scenario.faults.len() == 2);
    if !with_faults || well {
        let (mut records, mut lates, mut nulls) = (0, 0, 0);
        for (process, outcome) in outcomes.into_iter().enumerate() {
            let (stats, result) =
                outcome.unwrap_or_else(|| panic!("{what}: process {process} is gone"));
            result.unwrap_or_else(|e| panic!("{what}: process {process}: {e}"));
            records += stats.records;
            lates += stats.late_records;
            nulls += stats.null_time_records;
            let sum = &mut came.stats;
            sum.epochs += stats.epochs;
            sum.empty_epochs += stats.empty_epochs;
            sum.rows_sent += stats.rows_sent;
            sum.messages_sent += stats.messages_sent;
            sum.rows_combined += stats.rows_combined;
            sum.windows_fired_early += stats.windows_fired_early;
            sum.late_records += stats.late_records;
            sum.credit_stalls += stats.credit_stalls;
        }
        assert_eq!(
            (records, lates, nulls),
            ((splits * per_split) as u64, late, null_time),
            "{what}"
        );
        let rows: Vec<String> = sinks[0].batches.lock().unwrap().iter().flat_map(lines).collect();
        let differing = rows.iter().zip(&expected).find(|(a, b)| a != b);
        assert!(differing.is_none(), "{what}\n  first difference: {differing:?}");
        assert_eq!(rows.len(), expected.len(), "{what}\n  rows and expected rows");
        came.survived = u64::from(with_faults);
        return came;
    }
    // What did come out before is right.
    for (process, outcome) in outcomes.into_iter().enumerate() {
        match outcome {
            None | Some((_, Ok(()))) => {}
            Some((_, Err(Error::PeerLost { .. } | Error::Process { .. }))) => came.failed += 1,
            Some((_, Err(error))) => panic!("{what}: process {process}: {error}"),
        }
    }
    let rows: Vec<String> = sinks[0].batches.lock().unwrap().iter().flat_map(lines).collect();
    let differing = rows.iter().zip(&expected).find(|(a, b)| a != b);
    assert!(differing.is_none(), "{what}\n  first difference: {differing:?}");
    came
}

/// Rows of the asking process in any order, and the counters of all.
fn simulate_any(
    query: &Query,
    settings: &Settings,
    scenario: &Scenario,
) -> (Vec<String>, Vec<(Stats, Result<()>)>) {
    let sinks: Vec<_> = scenario
        .slowness
        .iter()
        .map(|_| Arc::new(Collect { order: RowOrder::Any, batches: Mutex::default() }))
        .collect();
    let given: Vec<Arc<dyn Sink>> = sinks.iter().map(|s| s.clone() as Arc<dyn Sink>).collect();
    let outcomes = simulate(query, settings, &given, scenario).unwrap();
    let mut rows: Vec<String> = sinks[0].batches.lock().unwrap().iter().flat_map(lines).collect();
    rows.sort();
    (rows, outcomes.into_iter().flatten().collect())
}

/// State of twice one process's budget needs four of them (paper, section 7.1.1).
#[test]
fn state_beyond_one_budget_fits_several() {
    let mut random = Random::new(11);
    let data = records(&mut random, 4, 12_000, 1 << 30);
    let query = query(table(&data, &mut random, 200), None, 0);
    let (mut expected, ..) = oracle(&data, None, 0, 0);
    expected.sort();
    let free = Settings { workers: 1, batch_rows: 200, ..Settings::default() };
    let scenario = |processes| Scenario {
        slowness: vec![1; processes],
        channels: Default::default(),
        ..Scenario::from_seed(3, processes)
    };
    let (rows, outcomes) = simulate_any(&query, &free, &scenario(1));
    assert!(rows == expected && outcomes[0].1.is_ok());
    let memory_bytes = outcomes[0].0.state_bytes_rest / 2;
    let tight = Settings { memory_bytes, ..free };
    let (_, outcomes) = simulate_any(&query, &tight, &scenario(1));
    let error = outcomes[0].1.as_ref().unwrap_err();
    assert!(matches!(error, Error::Memory { .. }), "{error}");
    for workers in [1, 2] {
        let tight = Settings { workers, ..tight.clone() };
        let (rows, outcomes) = simulate_any(&query, &tight, &scenario(4));
        for (stats, result) in &outcomes {
            assert!(result.is_ok(), "{workers} workers: {result:?} {stats:?}");
            assert!(stats.memory_bytes_peak <= memory_bytes, "{workers} workers: {stats:?}");
        }
        assert!(rows == expected, "{workers} workers: not the right rows");
    }
}

/// Processes whose sources are idle wait neither for each other nor let others wait: their records that come an
/// hour later are late.
#[test]
fn idle_processes_hold_nobody_back() {
    let record = |ts_ms: i64| Record {
        ts_ms: Some(ts_ms),
        key: Some(ts_ms % 5),
        name: "n".into(),
        amount: Some(1),
        price: 1.0,
    };
    for seed in 0..30 {
        let mut random = Random::new(7);
        let steady: Vec<Record> = (0..500).map(|i| record(i * 20)).collect();
        let steady = batches_of(&steady, &mut random, 10).into_iter().enumerate();
        let steady = steady.map(|(i, batch)| (i as i64 * 100_000, batch)).collect();
        let mut one = |ts| batches_of(&[record(ts)], &mut random, 10).remove(0);
        let mut tardy = || Script { batches: vec![(0, one(10)), (3_600_000_000, one(20))] };
        let scripts = vec![Script { batches: steady }, tardy(), tardy()];
        let mut query = query(Arc::new(Scripted::new(scripts, 0)), Some(1000), 0);
        let scenario = Scenario { slowness: vec![1; 3], ..Scenario::from_seed(seed, 3) };
        let settings = Settings { workers: 1 + seed as usize % 2, ..Settings::default() };
        for (timeout, late) in [(Some(5_000_000), 2), (None, 0)] {
            query.event_time.as_mut().unwrap().idle_timeout_us = timeout;
            let (_, outcomes) = simulate_any(&query, &settings, &scenario);
            assert!(outcomes.iter().all(|(_, result)| result.is_ok()), "seed {seed}");
            let found: u64 = outcomes.iter().map(|(stats, _)| stats.late_records).sum();
            assert_eq!(found, late, "seed {seed}, idle after {timeout:?}");
        }
    }
}

fn seeds(usual: u64) -> Vec<u64> {
    let number = |name: &str| std::env::var(name).ok().map(|n| n.parse().expect("a number"));
    match number("MILLSTREAM_SEED") {
        Some(seed) => vec![seed],
        None => (0..number("MILLSTREAM_SEEDS").unwrap_or(usual)).collect(),
    }
}

#[test]
fn processes_agree_with_a_sequential_run() {
    let mut sum = Stats::default();
    let seeds = seeds(150);
    for seed in &seeds {
        let stats = run_seed(*seed, false, Exchange::LateMerge).stats;
        sum.epochs += stats.epochs;
        sum.empty_epochs += stats.empty_epochs;
        sum.rows_sent += stats.rows_sent;
        sum.messages_sent += stats.messages_sent;
        sum.rows_combined += stats.rows_combined;
        sum.windows_fired_early += stats.windows_fired_early;
        sum.late_records += stats.late_records;
        sum.credit_stalls += stats.credit_stalls;
    }
    if seeds.len() == 1 {
        return;
    }
    for (what, count) in [
        ("epochs", sum.epochs),
        ("empty epochs", sum.empty_epochs),
        ("rows sent", sum.rows_sent),
        ("messages sent", sum.messages_sent),
        ("rows merged with those of other workers", sum.rows_combined),
        ("windows fired while reading", sum.windows_fired_early),
        ("late records", sum.late_records),
        ("credit stalls", sum.credit_stalls),
    ] {
        assert!(count > 0, "no {what} in {} seeds", seeds.len());
    }
}

#[test]
fn faults_end_the_job_or_change_nothing() {
    let (mut failed, mut survived, mut mended) = (0, 0, 0);
    let seeds = seeds(150);
    for seed in &seeds {
        let came = run_seed(*seed, true, Exchange::LateMerge);
        failed += came.failed;
        survived += came.survived;
        mended += came.mended;
    }
    if seeds.len() > 1 {
        assert!(failed > 0 && survived > 0 && mended > 0, "{failed} {survived} {mended}");
    }
}

#[test]
fn exchanged_records_agree_with_a_sequential_run_or_end_with_a_fault() {
    let (mut sum, mut failed) = (Stats::default(), 0);
    let seeds = seeds(120);
    for seed in &seeds {
        let exchange = [Exchange::Repartition, Exchange::Interleaved][(seed % 2) as usize];
        let stats = run_seed(*seed, false, exchange).stats;
        sum.rows_sent += stats.rows_sent;
        sum.windows_fired_early += stats.windows_fired_early;
        sum.credit_stalls += stats.credit_stalls;
        failed += run_seed(*seed, true, exchange).failed;
    }
    if seeds.len() > 1 {
        assert!(sum.rows_sent > 0 && sum.windows_fired_early > 0, "{sum:?}");
        assert!(sum.credit_stalls > 0 && failed > 0, "{sum:?}, {failed} failed");
    }
}

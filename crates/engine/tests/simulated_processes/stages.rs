//! Aggregations over the rows of aggregations, on several processes.

use std::sync::Arc;

use millstream_contract::sink::RowOrder;
use millstream_contract::table::Table;
use millstream_contract::{Error, Settings};
use millstream_engine::Stats;
use millstream_engine::simulation::Scenario;

use super::{Ran, described, exceeds, faults, happened, named, run, run_all, seeds};
use crate::support::chain::Chain;
use crate::support::script::with_a_silent_split;
use crate::support::{Random, drawn_settings, event_time, packed, records, table};

#[derive(Default)]
struct Came {
    stats: Stats,
    failed: u64,
    survived: u64,
}

/// One seed's job: everything about it follows from the seed.
fn run_seed(seed: u64, with_faults: bool) -> Came {
    let mut random = Random::new(seed ^ 0x57a9_0000);
    let processes = 2 + random.below(3) as usize;
    let splits = 1 + random.below(5) as usize;
    let per_split = [0, 1, 40, 400, 900][random.below(5) as usize];
    let keys = [1, 5, 60, 100_000][random.below(4) as usize];
    let data = records(&mut random, splits, per_split, keys);
    let chain = Chain::any(&mut random);
    let batch_rows = [1, 20, 300][random.below(3) as usize];
    let idle = random.below(3) == 0;
    let plan = chain.plan(match idle {
        true => Arc::new(with_a_silent_split(&data, &mut random)) as Arc<dyn Table>,
        false => table(&data, &mut random, batch_rows),
    });
    let mut plan = packed(plan, seed);
    if idle {
        event_time(&mut plan).idle_timeout_us = Some(60_000_000);
    }
    let settings = drawn_settings(&mut random, 3, chain.lateness_ms);
    let mut scenario = Scenario::from_seed(seed, processes);
    if with_faults {
        scenario.faults = faults(&mut random, processes);
    }
    let test = if with_faults { "faults_end_a_chain" } else { "chains_agree" };
    let what = format!("{chain:?}\n{}", described(seed, test, &settings, &scenario));
    let (expected, late, null_time) = chain.expected(&data);
    let ran = run(&plan, &settings, &scenario, RowOrder::Deterministic);
    if with_faults && !ran.well() {
        let failed = ran.ends_with_a_fault(None, &expected, &what);
        return Came { failed, ..Came::default() };
    }
    ran.is_all(&expected, &what);
    let stats = ran.stats();
    let counted = (stats.records, stats.late_records, stats.null_time_records);
    assert_eq!(counted, ((splits * per_split) as u64, late, null_time), "{what}");
    Came { survived: u64::from(ran.survived()), failed: 0, stats }
}

/// How much of what it takes with plenty each process may use, in eighths; from the last on the job
/// must get through.
const EIGHTHS: [u64; 7] = [1, 2, 4, 6, 8, 12, 24];

#[derive(Default)]
struct Scarce {
    through: u64,
    stalled: u64,
    refused: u64,
}

/// One seed's job with plenty of memory, and again with a part of what it took.
fn run_scarce(seed: u64) -> Scarce {
    let mut random = Random::new(seed ^ 0x5ca4_0000);
    let processes = 1 + random.below(3) as usize;
    let splits = 1 + random.below(4) as usize;
    let per_split = [400, 900, 3_000][random.below(3) as usize];
    let keys = [60, 100_000][random.below(2) as usize];
    let data = records(&mut random, splits, per_split, keys);
    let chain = Chain::any(&mut random);
    let batch_rows = [1, 20, 300][random.below(3) as usize];
    let plan = chain.plan(table(&data, &mut random, batch_rows));
    let drawn = drawn_settings(&mut random, 3, chain.lateness_ms);
    let fragment_bytes = Settings::default().fragment_bytes;
    let free = Settings { batch_rows: batch_rows as usize, fragment_bytes, ..drawn };
    let scenario = Scenario::from_seed(seed, processes);
    let (expected, late, _) = chain.expected(&data);
    let peak = |ran: &Ran| {
        let peaks = ran.outcomes.iter().flatten().map(|(stats, _)| stats.memory_bytes_peak);
        peaks.max().unwrap_or(0)
    };
    let plenty = run(&plan, &free, &scenario, RowOrder::Deterministic);
    plenty.is_all(&expected, &described(seed, "chains_with_scarce", &free, &scenario));
    let eighths = EIGHTHS[random.below(EIGHTHS.len() as u64) as usize];
    let tight = Settings { memory_bytes: (peak(&plenty) * eighths / 8).max(8192), ..free };
    let what = format!("{chain:?}\n{}", described(seed, "chains_with_scarce", &tight, &scenario));
    let ran = run(&plan, &tight, &scenario, RowOrder::Deterministic);
    if !ran.well() {
        let batch = |(_, error): &(usize, &Error)| {
            matches!(error, Error::Memory { batch_rows: Some(_), .. })
        };
        assert!(eighths < 24 || ran.errors().iter().any(batch), "{what}: {:?}", ran.errors());
        let errors = ran.errors();
        let own = |error: &Error| exceeds(error, tight.memory_bytes);
        assert!(errors.iter().any(|(_, error)| own(error)), "{what}: {errors:?}");
        for (process, error) in &errors {
            let told = named(error).is_some_and(|other| other != *process);
            assert!(own(error) || told, "{what}: process {process}: {error}");
        }
        ran.rows_begin(&expected, &what);
        return Scarce { refused: 1, ..Scarce::default() };
    }
    ran.is_all(&expected, &what);
    let stats = ran.stats();
    assert_eq!(stats.late_records, late, "{what}");
    // As in the tests of one stage, whose rows beyond the budget each stage may have.
    let stages = chain.links.len() as u64;
    let may_take = tight.memory_bytes / 32 * 33 + 1024 + stages * 8192;
    assert!(peak(&ran) <= may_take, "{what}: {} of {may_take} bytes", peak(&ran));
    Scarce { through: 1, stalled: u64::from(stats.memory_stalls > 0), refused: 0 }
}

/// A chain gets through with what it needs at the least, or ends with the budget's own error; it
/// never waits for ever.
#[test]
fn chains_with_scarce_memory_get_through_or_are_told_of() {
    const REGRESSIONS: &[u64] = &[];
    let seeds = seeds(38, REGRESSIONS);
    let (mut through, mut stalled, mut refused) = (0, 0, 0);
    for one in run_all(&seeds, run_scarce) {
        through += one.through;
        stalled += one.stalled;
        refused += one.refused;
    }
    happened(
        &seeds,
        &[
            ("jobs that got through", through),
            ("jobs that had to wait for memory", stalled),
            ("jobs refused", refused),
        ],
    );
}

fn sum(all: &[Came]) -> Came {
    let mut sum = Came::default();
    for one in all {
        sum.stats.add_process(&one.stats);
        sum.failed += one.failed;
        sum.survived += one.survived;
    }
    sum
}

#[test]
fn chains_agree_with_a_sequential_run() {
    const REGRESSIONS: &[u64] = &[];
    let seeds = seeds(65, REGRESSIONS);
    let Came { stats, .. } = sum(&run_all(&seeds, |seed| run_seed(seed, false)));
    happened(
        &seeds,
        &[
            ("rows between stages", stats.inner_rows),
            ("rows sent", stats.rows_sent),
            ("rows passed straight into slots", stats.rows_passed),
            ("rows kept and sealed before they were sent", stats.rows_sent - stats.rows_passed),
            ("windows fired while reading", stats.windows_fired_early),
            ("late records", stats.late_records),
            ("credit stalls", stats.credit_stalls),
        ],
    );
}

#[test]
fn faults_end_a_chain_or_change_nothing() {
    const REGRESSIONS: &[u64] = &[];
    let seeds = seeds(38, REGRESSIONS);
    let Came { failed, survived, .. } = sum(&run_all(&seeds, |seed| run_seed(seed, true)));
    happened(&seeds, &[("failed", failed), ("survived", survived)]);
}

//! Queries without state: the rows of all processes come in the order of batches and splits, with
//! and without LIMIT, from splits of any length, at any pace.

use std::sync::Arc;

use millstream_contract::Settings;
use millstream_contract::expr::Expr;
use millstream_contract::plan::{Operator, Plan, Project};
use millstream_contract::sink::RowOrder;
use millstream_contract::table::Sharing;
use millstream_engine::simulation::Scenario;

use super::{Same, described, faults, happened, run, run_all, seeds};
use crate::support::script::{Script, Scripted, batches_of};
use crate::support::{Random, lines, query, records};

#[derive(Default)]
struct Came {
    rows: u64,
    stalls: u64,
    /// Jobs whose LIMIT was reached.
    limited: u64,
    /// Jobs with splits that ended before others and after them.
    uneven: u64,
    failed: u64,
    survived: u64,
}

/// Splits of different length, some of them empty, each at its own pace.
fn scripts(random: &mut Random, batch_rows: u64) -> Vec<Script> {
    let splits = 1 + random.below(6);
    let script = |_| {
        let count = [0, 1, 30, 300, 1_500][random.below(5) as usize];
        let data = records(random, 1, count, 1 << 30).remove(0);
        let pace_us = [0, 0, 100, 20_000][random.below(4) as usize];
        let batches = batches_of(&data, random, batch_rows).into_iter().enumerate();
        Script { batches: batches.map(|(i, batch)| (i as i64 * pace_us, batch)).collect() }
    };
    (0..splits).map(script).collect()
}

/// The rows in the order of batch numbers, then of splits.
pub(crate) fn in_order(scripts: &[Script]) -> Vec<String> {
    let most = scripts.iter().map(|script| script.batches.len()).max().unwrap_or(0);
    let batch = |number: usize| scripts.iter().filter_map(move |s| s.batches.get(number));
    (0..most).flat_map(batch).flat_map(|(_, batch)| lines(batch)).collect()
}

pub(crate) fn select_all(
    scripts: Vec<Script>,
    sharing: Sharing,
    offset: u64,
    limit: Option<u64>,
) -> Plan {
    let table = Scripted::new(scripts, 0).shared(sharing);
    let mut query = query(Arc::new(table), None, 0);
    query.sources[0].event_time = None;
    let schema = query.sources[0].schema.clone();
    let project = (0..schema.fields().len()).map(Expr::Column).collect();
    query.stages[0].operator = Operator::Stateless { limit, offset };
    query.stages[0].output = schema.clone();
    query.stages[0].inputs[0].project = Some(Project { columns: project, schema });
    query
}

fn run_seed(seed: u64, with_faults: bool) -> Came {
    let mut random = Random::new(seed ^ 0x57a7_0000);
    let processes = 2 + random.below(3) as usize;
    let batch_rows = [1, 20, 300][random.below(3) as usize];
    let scripts = scripts(&mut random, batch_rows);
    let sharing =
        [Sharing::Whole, Sharing::ByChunk, Sharing::Coordinator][random.below(3) as usize];
    let all = in_order(&scripts);
    let some = |random: &mut Random| random.below(all.len() as u64 + 10);
    let limit = [None, None, Some(some(&mut random)), Some(3)][random.below(4) as usize];
    let offset = [0, 0, 2, some(&mut random)][random.below(4) as usize];
    // A batch takes so much at the most.
    let batch_bytes = 2_000 + 100 * batch_rows;
    let settings = Settings {
        workers: 1 + random.below(3) as usize,
        // A quarter of it is for rows that wait, an eighth for input.
        memory_bytes: [64 * batch_bytes, 512 * batch_bytes, 1 << 30][random.below(3) as usize],
        ..Settings::default()
    };
    // What LIMIT lets through is in order, whatever the sink wants.
    let any = limit.is_none() && offset == 0 && random.below(3) == 0;
    let order = if any { RowOrder::Any } else { RowOrder::Deterministic };
    let mut scenario = Scenario::from_seed(seed, processes);
    if with_faults {
        scenario.faults = faults(&mut random, processes);
    }
    let test = if with_faults { "stateless_jobs_end" } else { "stateless_jobs_agree" };
    let what = described(seed, test, &settings, &scenario);
    let lengths: Vec<usize> = scripts.iter().map(|script| script.batches.len()).collect();
    let what = format!("{what}LIMIT {limit:?} OFFSET {offset}, batches {lengths:?}, {sharing:?}");
    let wanted = limit.map_or(usize::MAX, |limit| limit as usize);
    let mut expected: Vec<String> =
        all.iter().skip(offset as usize).take(wanted).cloned().collect();
    if any {
        expected.sort();
    }
    let ran = run(&select_all(scripts, sharing, offset, limit), &settings, &scenario, order);
    if with_faults && !ran.well() {
        let failed = ran.ends_with_a_fault(None, &expected, &what);
        return Came { failed, ..Came::default() };
    }
    ran.is_all(&expected, &what);
    let stats = ran.stats();
    let limited = limit.is_some_and(|limit| limit + offset < all.len() as u64);
    if limit.is_none() {
        assert_eq!(stats.records, all.len() as u64, "{what}");
    }
    Came {
        rows: ran.rows.len() as u64,
        stalls: stats.memory_stalls,
        limited: u64::from(limited),
        uneven: u64::from(lengths.iter().min() < lengths.iter().max()),
        failed: 0,
        survived: u64::from(ran.survived()),
    }
}

fn sum_of(seeds: &[u64], with_faults: bool) -> Came {
    let mut sum = Came::default();
    for came in run_all(seeds, |seed| run_seed(seed, with_faults)) {
        sum.rows += came.rows;
        sum.stalls += came.stalls;
        sum.limited += came.limited;
        sum.uneven += came.uneven;
        sum.failed += came.failed;
        sum.survived += came.survived;
    }
    sum
}

#[test]
fn stateless_jobs_agree_with_a_sequential_run() {
    const REGRESSIONS: &[u64] = &[
        26,  // what was to be written next was said to be of a split that is not there
        69,  // one process sent ever more rows of the split whose turn it was, ahead of the answer
        76,  // the coordinator, full, did not look for the end of a split whose turn it was
        183, // messages after the one that says "enough" were never taken in
    ];
    let seeds = seeds(57, REGRESSIONS);
    let sum = sum_of(&seeds, false);
    happened(
        &seeds,
        &[
            ("rows", sum.rows),
            ("input that had to wait", sum.stalls),
            ("LIMIT that was reached", sum.limited),
            ("splits that ended before others", sum.uneven),
        ],
    );
}

#[test]
fn stateless_jobs_end_with_a_fault_or_change_nothing() {
    const REGRESSIONS: &[u64] = &[];
    let seeds = seeds(38, REGRESSIONS);
    let sum = sum_of(&seeds, true);
    happened(&seeds, &[("failed", sum.failed), ("survived", sum.survived)]);
}

/// Rows that wait for a split whose end comes as the last thing that happens: whoever sent them is
/// full and waits to hear that they have been written.
#[test]
fn rows_that_wait_for_a_split_are_written_when_it_ends() {
    let _same = Same("rows_that_wait_for_a_split_are_written_when_it_ends");
    for seed in 0..30 {
        let mut random = Random::new(seed);
        let mut batches = |count| {
            let data = records(&mut random, 1, count, 1 << 30).remove(0);
            batches_of(&data, &mut random, 20)
        };
        let long = Script { batches: batches(2_000).into_iter().map(|b| (0, b)).collect() };
        let (first, second) = (batches(1).remove(0), batches(1).remove(0));
        let tardy = Script { batches: vec![(0, first), (1_000_000, second)] };
        let mut scripts = vec![tardy, long, Script { batches: Vec::new() }];
        // Each process has one of them.
        scripts.rotate_right(seed as usize % 3);
        let expected = in_order(&scripts);
        // Between its last rows and its end the others may send all that they have room for.
        let mut slowness = vec![[1, 30][seed as usize / 3 % 2], 1, 1];
        slowness.rotate_right(seed as usize % 3);
        let scenario = Scenario { slowness, ..Scenario::from_seed(seed, 3) };
        let settings = Settings { workers: 1, memory_bytes: 256_000, ..Settings::default() };
        let query = select_all(scripts, Sharing::Whole, 0, None);
        let ran = run(&query, &settings, &scenario, RowOrder::Deterministic);
        ran.is_all(&expected, &format!("seed {seed}: {scenario:?}"));
    }
}

//! Jobs of several processes: stopped at any moment, whichever process dies, and resumed with other
//! numbers of processes and workers.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use millstream_contract::plan::*;
use millstream_contract::sink::RowOrder;
use millstream_contract::{Error, Result, Settings};
use millstream_engine::simulation::{Fault, Outcome, Scenario};
use millstream_engine::{Resume, Stats, Totals};

use super::conserved::Counting;
use super::control::Control;
use super::kept::Kept;
use super::queries::{Query, has_limit};
use super::{Case, Sums, compare, uninterrupted};
use crate::support::*;

/// What the job came to: `None` if it was stopped, or a process was killed.
pub(super) fn ended(outcomes: Vec<Outcome>) -> Option<Result<Totals>> {
    let outcomes = outcomes.into_iter().collect::<Option<Vec<_>>>()?;
    let mut sum = Stats::default();
    outcomes.iter().for_each(|(stats, _)| sum.add_process(stats));
    let mut errors: Vec<Error> = outcomes.into_iter().filter_map(|of| of.1.err()).collect();
    if errors.is_empty() {
        return Some(Ok(sum.totals()));
    }
    // Another process has said why.
    let follows = |e: &Error| {
        matches!(e, Error::Interrupted | Error::PeerLost { .. } | Error::Process { .. })
    };
    errors.retain(|error| !follows(error));
    errors.into_iter().next().map(Err)
}

/// Runs jobs of any number of processes until one is neither stopped nor killed. The counters of
/// all, and how the last one has ended. `packing`: as the first job packs windows.
pub(super) fn run(case: &Case<'_>, packing: u64, random: &mut Random) -> (Stats, Result<Totals>) {
    let Case { what, kept, lateness_ms, orders, sums, .. } = case;
    let (mut sum, mut stops) = (Stats::default(), random.below(6));
    let result = loop {
        let (next, processes) = (random.below(1 << 30), 1 + random.below(3) as usize);
        let looks_of_cut = random.pick(&[1, 3, 20, 100]);
        let looks_of_stop = if stops > 0 { random.pick(&[5, 50, 0]) } else { 0 };
        let control = Control::new(kept, Random::new(next), [looks_of_cut, looks_of_stop]);
        let mut scenario = Scenario::from_seed(next, processes);
        if stops > 0 && looks_of_stop == 0 {
            let step = random.pick(&[300, 3000]) + random.below(1000);
            scenario.faults = vec![(step, Fault::Kill(random.below(processes as u64) as usize))];
        }
        let from = kept.resume.lock().unwrap().clone();
        let reversed = !from.marks.is_empty() && random.below(2) == 0;
        let goes = random.below(2) == 0;
        let other = random.below(1 << 30);
        let plan = packed(case.plan.clone(), if from.layouts.is_empty() { packing } else { other });
        let plan = control.read(&plan, &from, (reversed, goes));
        let settings = drawn_settings(random, 3, *lateness_ms);
        sums.note_resumed(&from, &plan, goes);
        sums.note_clock(&from, next);
        kept.begin(Random::new(next ^ random.below(1 << 30)));
        let outputs = (&orders[..], random.below(2) == 0);
        let outcomes = control.run_processes(&plan, &settings, outputs, &scenario, &from);
        let outcomes = outcomes.unwrap_or_else(|e| panic!("{what}: {e}"));
        outcomes.iter().flatten().for_each(|(stats, _)| sum.add_process(stats));
        let killed = outcomes[0].is_none();
        if killed && kept.ended() < kept.begun.load(Relaxed) {
            // Nobody is left to give it up.
            kept.given_up.fetch_add(1, Relaxed);
        }
        assert_eq!(kept.ended(), kept.begun.load(Relaxed), "{what}: cuts that nobody hears of");
        match ended(outcomes) {
            Some(result) => break result,
            None => stops = stops.saturating_sub(1),
        }
    };
    sums.add(kept);
    (sum, result)
}

/// One seed's jobs: the same query is run, stopped, and resumed, until it ends.
fn simulate(seed: u64, query: impl Fn(&mut Random) -> Query, sums: &Sums) -> Stats {
    let mut random = Random::new(seed);
    let query = query(&mut random);
    let what = format!("seed {seed}: {}\n{}", query.what, repeat(seed, "restart::processes"));
    let kept = Arc::new(Kept::of(&query, &what));
    let Query { plan, lateness_ms, .. } = query;
    let settings = Settings { simulate: Some(seed), ..drawn_settings(&mut random, 3, lateness_ms) };
    // Rows of sessions come in the order of slices, which a checkpoint keeps.
    let packing = random.below(1 << 30);
    let expected = uninterrupted(&packed(plan.clone(), packing), &settings);
    let any = |_| random.pick(&[RowOrder::Any, RowOrder::Deterministic]);
    let orders: Vec<RowOrder> = plan.outputs.iter().map(any).collect();
    let counts = !has_limit(&plan);
    let case = Case { what, kept, plan, lateness_ms, orders, sums };
    let (sum, result) = run(&case, packing, &mut random);
    let Case { what, kept, orders, .. } = case;
    if counts && result.is_ok() {
        assert!(kept.all_restored.load(Relaxed), "{what}: not restored");
        assert_eq!(kept.unknown(), 0, "{what}: processes that ended before their part was written");
    }
    compare(&kept, (expected, result), counts, &orders, sums, &what);
    sum
}

#[test]
fn simulated_processes_go_on_from_their_last_cut() {
    let sums = Sums::default();
    let (seeds, sum) = run_seeds(250, |seed| simulate(seed, Query::any, &sums));
    let count = |sum: &std::sync::atomic::AtomicU64| sum.load(Relaxed);
    happened(
        seeds,
        &[
            ("cuts", count(&sums.cuts)),
            ("cuts that were given up", count(&sums.given_up)),
            ("cuts that were awaited", count(&sums.awaited)),
            ("cuts before others were written", count(&sums.overtaken)),
            ("slices that were left out", count(&sums.left_out)),
            ("cuts that a later one did not refer to", count(&sums.behind)),
            ("rows of records that waited", count(&sums.waited[0])),
            ("rows of windows that waited", count(&sums.waited[1])),
            ("rows that waited for the end", count(&sums.waited[2])),
            ("parts of a LIMIT", count(&sums.limited)),
            ("splits that were gone", count(&sums.gone)),
            ("clocks that were put back", count(&sums.put_back)),
            ("clocks that were hours later", count(&sums.later)),
            ("rows sent to other processes", sum.rows_sent),
        ],
    );
}

#[test]
fn simulated_cuts_of_processes_conserve_rows() {
    let sums = Sums::default();
    let (seeds, _) = run_seeds(50, |seed| simulate(seed, Counting::query, &sums));
    sums.counted.lock().unwrap().happened(seeds);
}

/// An error waits behind rows that a LIMIT may be content with, perhaps in another process.
#[test]
fn simulated_errors_of_other_processes_are_not_forgotten() {
    for (limit, fails) in [(1, 0), (2, 100)] {
        let sums = Sums::default();
        for seed in 0..100 {
            simulate(seed, |random| Query::that_fails(random, limit), &sums);
        }
        assert_eq!(sums.failed.load(Relaxed), fails);
        assert!(sums.given_up.load(Relaxed) > 20, "{sums:?}");
    }
}

/// A plan of the first rows, and of a side output: all records that are late.
fn with_late_records(table: Arc<Memory>, limit: u64) -> Plan {
    let mut plan = passing(table, Some(limit));
    let first = &plan.stages[0];
    let late = Some(Late { window: Tumble { size_us: 50_000, offset_us: 0 }.into() });
    let project = first.inputs[0].project.clone();
    let inputs = vec![Input { late, project, ..Input::all(Node::Source(0)) }];
    let operator = Operator::Stateless { limit: None, offset: 0 };
    let output = first.output.clone();
    plan.stages.push(Stage { names: vec![], inputs, operator, output });
    plan.outputs.push(Output { side: true, ..Output::of(1) });
    plan
}

/// A LIMIT ends the job in the middle of a cut. What other processes have prepared for the cut in
/// their own files, of a side output, is part of the end: neither lost, nor there twice.
#[test]
fn simulated_limits_in_the_middle_of_a_cut_keep_rows_of_side_outputs() {
    let (mut in_cut, mut late) = (0, 0);
    for seed in 0..200 {
        let mut random = Random::new(seed);
        let data = records(&mut random, 3, 200, 20);
        let (limit, batch_rows) = (100 + random.below(300), random.pick(&[3, 20]));
        let plan = with_late_records(table(&data, &mut random, batch_rows), limit);
        let kept = Arc::new(Kept::new(2));
        let control = Control::new(&kept, Random::new(seed), [random.pick(&[1, 3, 10]), 0]);
        let plan = control.read(&plan, &Resume::default(), (false, false));
        let scenario = Scenario::from_seed(seed, 2 + random.below(2) as usize);
        let settings = drawn_settings(&mut random, 3, 0);
        let outputs = (&[RowOrder::Deterministic, RowOrder::Any][..], true);
        let from = Resume::default();
        let outcomes = control.run_processes(&plan, &settings, outputs, &scenario, &from).unwrap();
        let result = ended(outcomes).expect("nobody stops it");
        result.unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        in_cut += kept.untaken();
        let rows = kept.rows();
        assert_eq!(rows[0].len(), limit as usize, "seed {seed}");
        let mut sorted = rows[1].clone();
        sorted.sort();
        sorted.dedup();
        assert_eq!(sorted.len(), rows[1].len(), "seed {seed}: rows that are there twice");
        late += sorted.len();
    }
    assert!(in_cut > 5 && late > 1000, "{in_cut} processes in a cut, {late} late records");
}

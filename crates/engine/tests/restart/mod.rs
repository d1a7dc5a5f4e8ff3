//! Tests of cuts: a job that is stopped at any moment, and goes on from its last cut, gives the
//! rows of a job that was never stopped, each once, and in the same order if its output has one.
//! Simulated; `MILLSTREAM_SEEDS` and `MILLSTREAM_SEED` as in the tests of equivalence.

mod cases;
mod clock;
mod conserved;
mod control;
#[allow(dead_code, reason = "the operators' tests use all")]
#[path = "../../../operators/tests/support/cuts.rs"]
mod cuts;
mod joining;
mod kept;
mod processes;
mod queries;
mod reading;
mod rows;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;

use self::conserved::{Counted, Counting};
use self::control::Control;
use self::kept::{Kept, Part};
use self::queries::{Query, has_limit};
use self::rows::Rows;
use crate::support::*;
use arrow::array::{ArrayRef, Int64Array, StringArray};
use arrow::record_batch::RecordBatch;
use millstream_contract::plan::{Plan, Session, Window};
use millstream_contract::sink::{RowOrder, Sink};
use millstream_contract::table::SourceMarks;
use millstream_contract::{Error, Result, Settings};
use millstream_engine::{Checkpoints, Job, OutputMark, Resume, Stats, Totals, waiting_schema};
use millstream_operators::env::{Env, Simulated};

/// Sums over all seeds of what must have happened.
#[derive(Debug, Default)]
struct Sums {
    cuts: AtomicU64,
    given_up: AtomicU64,
    waited: [AtomicU64; 3],
    /// Jobs that went on with a part of a LIMIT, with another packing than was planned, and without
    /// splits that had ended.
    limited: AtomicU64,
    packed: AtomicU64,
    gone: AtomicU64,
    failed: AtomicU64,
    /// Jobs that went on with the clock put back, and hours later.
    put_back: AtomicU64,
    later: AtomicU64,
    /// Cuts that were written while workers waited, and that were taken before others were written.
    awaited: AtomicU64,
    overtaken: AtomicU64,
    /// Slices that were left out, and cuts whose durable one was not the last.
    left_out: AtomicU64,
    behind: AtomicU64,
    counted: Mutex<Counted>,
}

impl Sums {
    fn add(&self, kept: &Kept) {
        self.cuts.fetch_add(kept.completed.load(Relaxed), Relaxed);
        self.given_up.fetch_add(kept.given_up.load(Relaxed), Relaxed);
        self.awaited.fetch_add(kept.awaited.load(Relaxed), Relaxed);
        self.overtaken.fetch_add(kept.overtaken.load(Relaxed), Relaxed);
        self.left_out.fetch_add(kept.left_out.load(Relaxed), Relaxed);
        self.behind.fetch_add(kept.behind.load(Relaxed), Relaxed);
        self.counted.lock().unwrap().add(*kept.counted.lock().unwrap());
        for (sum, more) in self.waited.iter().zip(&kept.waited) {
            sum.fetch_add(more.load(Relaxed), Relaxed);
        }
    }

    fn note_resumed(&self, from: &Resume, plan: &Plan, goes: bool) {
        let limits = from.outputs.iter().any(|mark| mark.limit.is_some_and(|limit| limit > 0));
        self.limited.fetch_add(limits.into(), Relaxed);
        let packed = !from.layouts.is_empty() && from.layouts != plan.layouts();
        self.packed.fetch_add(packed.into(), Relaxed);
        let ended = from.marks.values().flat_map(|of| of.splits.values()).any(|mark| mark.ended);
        self.gone.fetch_add((goes && ended).into(), Relaxed);
    }

    /// Notes how the clock has jumped when a job of this seed goes on.
    fn note_clock(&self, from: &Resume, seed: u64) {
        let splits = from.marks.values().flat_map(|of| of.splits.values());
        let Some((first_us, last_us)) = from.started_us.zip(splits.map(|of| of.clock_us).max())
        else {
            return;
        };
        let now_us = Simulated::resumed(seed, first_us).now_us();
        self.put_back.fetch_add((now_us < last_us).into(), Relaxed);
        self.later.fetch_add((now_us > last_us + 3_600_000_000).into(), Relaxed);
    }
}

/// The rows of a whole job, by output, and its counts.
type Whole = (Vec<Vec<String>>, Totals);

/// A job that is not stopped.
fn uninterrupted(plan: &Plan, settings: &Settings) -> Result<Whole> {
    let kept = Arc::new(Kept::new(plan.outputs.len()));
    let orders = vec![RowOrder::Deterministic; plan.outputs.len()];
    let plan = Control::none(&kept).read(plan, &Resume::default(), (false, false));
    let (stats, result) = Job::new(&plan, settings, sinks(&kept, &orders))?.run();
    result.map(|()| (kept.rows(), stats.totals()))
}

fn sinks(kept: &Arc<Kept>, orders: &[RowOrder]) -> Vec<Arc<dyn Sink>> {
    sinks_of(kept, 0, orders, false)
}

/// The sinks of a process. Where rows come in any order, each process may write its own.
fn sinks_of(
    kept: &Arc<Kept>,
    process: usize,
    orders: &[RowOrder],
    local: bool,
) -> Vec<Arc<dyn Sink>> {
    let sink = |(output, order): (usize, &RowOrder)| -> Arc<dyn Sink> {
        let is_local = local && *order == RowOrder::Any;
        Arc::new(Rows { kept: kept.clone(), output, process, order: *order, is_local })
    };
    orders.iter().enumerate().map(sink).collect()
}

/// The store of a job's cuts as a process has it.
fn checkpoints(kept: &Arc<Kept>, process: usize) -> Arc<dyn Checkpoints> {
    Arc::new(Part { kept: kept.clone(), process })
}

/// A query that is run, stopped and resumed, and what its jobs share.
struct Case<'s> {
    what: String,
    kept: Arc<Kept>,
    plan: Plan,
    lateness_ms: i64,
    orders: Vec<RowOrder>,
    sums: &'s Sums,
}

impl Case<'_> {
    /// Runs jobs until one is not stopped. The counters of all, and how the last one has ended.
    fn run(&self, random: &mut Random) -> (Stats, Result<Totals>) {
        let Case { what, kept, lateness_ms, orders, sums, .. } = self;
        let mut sum = Stats::default();
        let mut stops = random.below(6);
        let result = loop {
            let next = random.below(1 << 30);
            let looks_of_cut = random.pick(&[1, 3, 20, 100]);
            let looks_of_stop = if stops > 0 { random.pick(&[5, 50]) } else { 0 };
            let control = Control::new(kept, Random::new(next), [looks_of_cut, looks_of_stop]);
            let from = kept.resume.lock().unwrap().clone();
            // The first job numbers the splits.
            let reversed = !from.marks.is_empty() && random.below(2) == 0;
            let goes = random.below(2) == 0;
            let plan = packed(self.plan.clone(), random.below(1 << 30));
            let plan = control.read(&plan, &from, (reversed, goes));
            let settings = drawn_settings(random, 4, *lateness_ms);
            let settings = Settings { simulate: Some(next), ..settings };
            sums.note_resumed(&from, &plan, goes);
            sums.note_clock(&from, next);
            kept.begin(Random::new(next));
            let sinks = sinks(kept, orders);
            let job = Job::resume(&plan, &settings, sinks, &from, Some(checkpoints(kept, 0)));
            let job = job.unwrap_or_else(|e| panic!("{what}: {e}"));
            let stopper = job.stopper();
            let (stats, result) = control.run(job);
            sum.add_process(&stats);
            assert!(!stopper.cut(u64::MAX), "{what}: a cut of a job that has ended");
            let begun = kept.begun.load(Relaxed);
            assert_eq!(kept.ended(), begun, "{what}: cuts that nobody hears of");
            match result {
                Err(Error::Interrupted) => stops -= 1,
                other => break other.map(|()| stats.totals()),
            }
        };
        sums.add(kept);
        (sum, result)
    }
}

/// One seed's jobs: the same query is run, stopped, and resumed, until it ends.
fn simulate(seed: u64, query: impl Fn(&mut Random) -> Query, sums: &Sums) -> Stats {
    let mut random = Random::new(seed);
    let query = query(&mut random);
    let what = format!("seed {seed}: {}\n{}", query.what, repeat(seed, "restart"));
    let kept = Arc::new(Kept::of(&query, &what));
    let Query { plan, lateness_ms, .. } = query;
    let settings = Settings { simulate: Some(seed), ..drawn_settings(&mut random, 4, lateness_ms) };
    let expected = uninterrupted(&packed(plan.clone(), random.below(1 << 30)), &settings);
    let any = |_| random.pick(&[RowOrder::Any, RowOrder::Deterministic, RowOrder::Deterministic]);
    let orders: Vec<RowOrder> = plan.outputs.iter().map(any).collect();
    let counts = !has_limit(&plan);
    let case = Case { what, kept, plan, lateness_ms, orders, sums };
    let (sum, result) = case.run(&mut random);
    let Case { what, kept, orders, .. } = case;
    // A LIMIT may be content before.
    assert!(!counts || result.is_err() || kept.all_restored.load(Relaxed), "{what}: not restored");
    compare(&kept, (expected, result), counts, &orders, sums, &what);
    sum
}

/// Compares the rows of a job that was stopped, and its end, with those of one that was not. Also
/// compares its counts, if these depend on the input alone: with a LIMIT they do not.
fn compare(
    kept: &Kept,
    (expected, result): (Result<Whole>, Result<Totals>),
    counts: bool,
    orders: &[RowOrder],
    sums: &Sums,
    what: &str,
) {
    let (expected, totals) = match (expected, result) {
        (Ok((expected, of_one)), Ok(totals)) => (expected, (of_one, totals)),
        (Err(expected), Err(error)) => {
            assert_eq!(error.to_string(), expected.to_string(), "{what}");
            sums.failed.fetch_add(1, Relaxed);
            return;
        }
        (expected, result) => panic!("{what}: {result:?} for {:?}", expected.err()),
    };
    for ((mut rows, mut expected), order) in kept.rows().into_iter().zip(expected).zip(orders) {
        if *order == RowOrder::Any {
            rows.sort();
            expected.sort();
        }
        same_rows(&rows, &expected, what);
    }
    let Some((mut of_one, mut of_all)) = Some(totals).filter(|_| counts) else { return };
    (of_one.input_bytes, of_all.input_bytes) = (0, 0);
    assert_eq!(of_all, of_one, "{what}");
}

#[test]
fn simulated_jobs_go_on_from_their_last_cut() {
    let sums = Sums::default();
    let (seeds, sum) = run_seeds(250, |seed| simulate(seed, Query::any, &sums));
    let count = |sum: &AtomicU64| sum.load(Relaxed);
    happened(
        seeds,
        &[
            ("cuts", count(&sums.cuts)),
            ("cuts that were awaited", count(&sums.awaited)),
            ("cuts before others were written", count(&sums.overtaken)),
            ("slices that were left out", count(&sums.left_out)),
            ("cuts that a later one did not refer to", count(&sums.behind)),
            ("rows of records that waited", count(&sums.waited[0])),
            ("rows of windows that waited", count(&sums.waited[1])),
            ("rows that waited for the end", count(&sums.waited[2])),
            ("parts of a LIMIT", count(&sums.limited)),
            ("other packings", count(&sums.packed)),
            ("splits that were gone", count(&sums.gone)),
            ("clocks that were put back", count(&sums.put_back)),
            ("clocks that were hours later", count(&sums.later)),
            ("merges", sum.merges),
        ],
    );
}

#[test]
fn simulated_cuts_conserve_rows() {
    let sums = Sums::default();
    let (seeds, _) = run_seeds(50, |seed| simulate(seed, Counting::query, &sums));
    sums.counted.lock().unwrap().happened(seeds);
}

/// An error waits behind rows that a LIMIT may be content with: no cut forgets the error.
#[test]
fn simulated_errors_behind_a_limit_are_not_forgotten() {
    for (limit, fails) in [(1, 0), (2, 100)] {
        let sums = Sums::default();
        for seed in 0..100 {
            simulate(seed, |random| Query::that_fails(random, limit), &sums);
        }
        assert_eq!(sums.failed.load(Relaxed), fails);
        assert!(sums.given_up.load(Relaxed) > 20, "{sums:?}");
    }
}

/// Whenever a cut is asked for, also while workers end: it is completed, or refused, and the job
/// ends well.
#[test]
fn threads_end_well_while_cuts_are_asked_for() {
    let (mut completed, mut refused) = (0, 0);
    for round in 0..100 {
        let mut random = Random::new(round);
        let data = records(&mut random, 3, 400, 60);
        let memory = table(&data, &mut random, 50);
        let plan = match round % 2 {
            0 => passing(memory, None),
            _ => query(memory, Some(500), 1000),
        };
        let settings = Settings { workers: 1 + round as usize % 4, ..Settings::default() };
        let (expected, _) = uninterrupted(&plan, &settings).unwrap();
        let kept = Arc::new(Kept::new(1));
        let control = Control::none(&kept);
        let plan = control.read(&plan, &Resume::default(), (false, false));
        let sinks = sinks(&kept, &[RowOrder::Deterministic]);
        let job =
            Job::resume(&plan, &settings, sinks, &Resume::default(), Some(checkpoints(&kept, 0)));
        let job = job.unwrap();
        let stopper = job.stopper();
        let drains = round % 5 == 4;
        let result = thread::scope(|scope| {
            let running = scope.spawn(|| job.run().1);
            while !running.is_finished() {
                control.cut(&stopper);
                if drains && kept.completed.load(Relaxed) > 1 {
                    stopper.drain();
                }
                thread::yield_now();
            }
            running.join().unwrap()
        });
        result.unwrap_or_else(|e| panic!("round {round}: {e}"));
        assert_eq!(kept.given_up.load(Relaxed), 0, "round {round}");
        assert_eq!(kept.completed.load(Relaxed), kept.begun.load(Relaxed), "round {round}");
        assert!(drains || kept.rows() == expected, "round {round}");
        completed += kept.completed.load(Relaxed);
        refused += u64::from(!stopper.cut(u64::MAX));
    }
    assert!(completed > 100 && refused == 100, "{completed} cuts, {refused} refused");
}

/// A job that has no place for its cuts takes none.
#[test]
fn a_job_without_checkpoints_takes_no_cut() {
    let plan = passing(table(&[], &mut Random::new(1), 1), None);
    let kept = Arc::new(Kept::new(1));
    let job = Job::new(&plan, &Settings::default(), sinks(&kept, &[RowOrder::Any])).unwrap();
    assert!(!job.stopper().cut(1));
}

/// Numbers and rows that do not fit the query are refused.
#[test]
fn marks_of_another_query_are_refused() {
    let mut random = Random::new(1);
    let data = records(&mut random, 1, 1, 1);
    let memory = table(&data, &mut random, 1);
    let refused = |plan: &Plan, layout: &[(&str, i64)], waiting: Vec<RecordBatch>| {
        let layout = layout.iter().map(|(name, number)| (name.to_string(), *number));
        let marks = SourceMarks { low_us: 0, splits: [].into() };
        let from = Resume {
            marks: [("events".to_string(), marks)].into(),
            layouts: vec![layout.collect()],
            outputs: vec![OutputMark { waiting, ..OutputMark::default() }],
            ..Resume::default()
        };
        let sinks = sinks(&Arc::new(Kept::new(1)), &[RowOrder::Deterministic]);
        let job = Job::resume(plan, &Settings::default(), sinks, &from, None);
        job.expect_err("a mark that does not fit").to_string()
    };
    let tumbling = query(memory.clone(), Some(1000), 0);
    let sessions = windowed(memory.clone(), Window::Session(Session::new(1000, 2)), 0);
    let numbers =
        [(&tumbling, "windows_in_slice", 0), (&tumbling, "slices_of_gap", 4), (&sessions, "x", 1)];
    for (plan, name, number) in numbers {
        let error = refused(plan, &[(name, number)], vec![]);
        assert!(error.contains(&format!("{name} = {number}")), "{error}");
    }
    let passing = passing(memory.clone(), None);
    let record = &memory.splits[0][0];
    let waiting = |source: Option<&str>, numbers: [Option<i64>; 5]| {
        let source: ArrayRef = Arc::new(StringArray::from(vec![source]));
        let number = |number| -> ArrayRef { Arc::new(Int64Array::from(vec![number])) };
        let places = [source].into_iter().chain(numbers.map(number));
        let columns = record.columns().iter().cloned().chain(places).collect();
        RecordBatch::try_new(waiting_schema(&passing.stages[0].output), columns).unwrap()
    };
    let (events, none) = (Some("events"), [None; 5]);
    for (rows, message) in [
        (record.clone(), "saved rows of"),
        (waiting(None, none), "saved rows that belong nowhere"),
        (waiting(events, [Some(7), None, None, None, None]), "saved rows that belong nowhere"),
        (waiting(None, [Some(0), Some(0), None, None, None]), "saved rows that belong nowhere"),
        (waiting(events, [Some(7), Some(0), None, None, None]), "of a split that is not there"),
        (waiting(None, [None, None, Some(0), Some(0), None]), "rows of a window of input 0"),
    ] {
        let error = refused(&passing, &[], vec![rows]);
        assert!(error.contains(message), "{error}");
    }
}

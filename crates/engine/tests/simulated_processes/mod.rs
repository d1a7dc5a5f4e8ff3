//! Whole jobs of several processes, simulated: slow nodes, tiny rings and budgets, links that are
//! delayed, cut and mended, and nodes that die. Either every process ends well and the rows are
//! those of a sequential run, or every surviving process ends with an error that says why.
//!
//! `MILLSTREAM_SEEDS=100000` runs more seeds, `MILLSTREAM_FIRST_SEED=5000` other ones, and
//! `MILLSTREAM_SEED=7` only that one. A test's `REGRESSIONS`, the seeds that once failed with the
//! defect that they found, always run. Tests without [`seeds`] run the same jobs every time. A
//! failing test says how to repeat it.

mod aggregates;
mod ahead;
mod congested;
mod deltas;
mod drained;
mod epochs;
mod graphs;
mod idle;
mod joins;
mod memory;
mod panes;
mod sessions;
mod stages;
mod stateless;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use crate::support::{Collect, Random, Record, aggregate, lines, query, usual_seeds};
use arrow::datatypes::Schema;
use millstream_contract::expr::Expr;
use millstream_contract::plan::Plan;
use millstream_contract::sink::{RowOrder, Sink};
use millstream_contract::table::Table;
use millstream_contract::{Error, Settings};
use millstream_engine::Stats;
use millstream_engine::simulation::{Fault, Outcome, Scenario, simulate};
use millstream_state::{Leaders, hash_word};

/// The seeds of a test: its regressions first.
fn seeds(usual: u64, regressions: &[u64]) -> Vec<u64> {
    let number = |name: &str| std::env::var(name).ok().map(|n| n.parse().expect("a number"));
    match number("MILLSTREAM_SEED") {
        Some(seed) => vec![seed],
        None => {
            let first = number("MILLSTREAM_FIRST_SEED").unwrap_or(0);
            let others = first..first + usual_seeds(usual);
            regressions.iter().copied().chain(others).collect()
        }
    }
}

/// Runs the jobs of all seeds, also after one that fails: which ones do is said at the end.
fn run_all<T>(seeds: &[u64], run: impl Fn(u64) -> T) -> Vec<T> {
    let run = |seed: &u64| catch_unwind(AssertUnwindSafe(|| run(*seed))).map_err(|_| *seed);
    let (came, failed): (Vec<_>, Vec<_>) = seeds.iter().map(run).partition(Result::is_ok);
    let failed: Vec<u64> = failed.into_iter().filter_map(Result::err).collect();
    if let Some(first) = failed.first() {
        // Who failed has said how to run it alone, unless it was the engine that panicked.
        let all = repeat(Some(*first), "");
        panic!("{} of {} seeds fail: {failed:?}\n{all}", failed.len(), seeds.len());
    }
    came.into_iter().filter_map(Result::ok).collect()
}

/// One job, for messages.
fn described(seed: u64, test: &str, settings: &Settings, scenario: &Scenario) -> String {
    format!("seed {seed}: {settings:?} {scenario:?}\n{}", repeat(Some(seed), test))
}

/// The command that runs the tests again whose names contain `test`, with just this seed.
fn repeat(seed: Option<u64>, test: &str) -> String {
    let seed = seed.map(|seed| format!("MILLSTREAM_SEED={seed} ")).unwrap_or_default();
    let command = "cargo test --profile ci --workspace --test jobs";
    format!("repeat it with:\n    {seed}{command} {test}\n")
}

/// Says how to repeat a test whose jobs are the same every time, wherever it fails.
struct Same(&'static str);

impl Drop for Same {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprint!("{}", repeat(None, self.0));
        }
    }
}

/// Something that goes wrong, or nothing.
fn faults(random: &mut Random, processes: usize) -> Vec<(u64, Fault)> {
    let step = [10, 300, 3_000, 20_000][random.below(4) as usize] + random.below(100);
    let mut any = || random.below(processes as u64) as usize;
    let (a, b) = (any(), any());
    match random.below(3) {
        0 => vec![(step, Fault::Kill(a))],
        _ if a == b => Vec::new(),
        1 => vec![(step, Fault::Cut(a, b))],
        _ => {
            let after = 1 + random.below(2_000);
            vec![(step, Fault::Cut(a, b)), (step + after, Fault::Mend(a, b))]
        }
    }
}

/// Counts the records of each key, of which none is NULL: then a key's value is its only word.
fn counted_by_key(source: Arc<dyn Table>) -> Plan {
    let mut query = query(source, None, 0);
    let aggregate = aggregate(&mut query);
    let fired = aggregate.fired.fields();
    let fired = Arc::new(Schema::new(vec![fired[0].clone(), fired[2].clone()]));
    aggregate.keys.truncate(1);
    aggregate.keys[0].nullable = false;
    aggregate.aggregates.truncate(1);
    aggregate.project = vec![Expr::Column(0), Expr::Column(1)];
    aggregate.fired = fired.clone();
    query.stages[0].output = fired;
    query
}

/// Keys that the second of two processes of one worker leads.
fn led_by_the_second(count: usize) -> Vec<i64> {
    let leaders = Leaders::even(2);
    (0..).filter(|key| leaders.of(hash_word(*key as u64)) == 1).take(count).collect()
}

/// A record of a key, for [`counted_by_key`].
fn record_of(key: i64) -> Record {
    Record { ts_ms: Some(key), key: Some(key), name: "n".into(), amount: None, price: 1.0 }
}

/// What a job came to.
struct Ran {
    outcomes: Vec<Outcome>,
    /// What went wrong while it ran.
    faults: Vec<Fault>,
    /// Rows of the coordinator, sorted if they may come in any order.
    rows: Vec<String>,
    order: RowOrder,
}

impl Ran {
    /// Whether all processes ended well.
    fn well(&self) -> bool {
        self.outcomes.iter().all(|outcome| matches!(outcome, Some((_, Ok(())))))
    }

    /// Whether something went wrong, and all processes ended well.
    fn survived(&self) -> bool {
        self.well() && !self.faults.is_empty()
    }

    /// The counters of all processes.
    fn stats(&self) -> Stats {
        let mut sum = Stats::default();
        self.outcomes.iter().flatten().for_each(|(stats, _)| sum.add_process(stats));
        sum
    }

    /// The error of each process that ended with one.
    fn errors(&self) -> Vec<(usize, &Error)> {
        let numbered = self.outcomes.iter().enumerate();
        let error = numbered.map(|(process, outcome)| match outcome {
            Some((_, Err(error))) => Some((process, error)),
            _ => None,
        });
        error.flatten().collect()
    }

    /// What has come out is what was expected, as far as it goes: the first of its rows, or, where
    /// rows come in any order and both are sorted, some of them.
    fn rows_begin(&self, expected: &[String], what: &str) {
        let mut rest = expected.iter();
        let wrong = self.rows.iter().find(|row| match self.order {
            RowOrder::Any => !rest.any(|expected| expected == *row),
            RowOrder::Deterministic => rest.next() != Some(*row),
        });
        assert!(wrong.is_none(), "{what}\n  first wrong row: {wrong:?}");
    }

    /// All processes have ended well, with all that was expected.
    fn is_all(&self, expected: &[String], what: &str) {
        for (process, outcome) in self.outcomes.iter().enumerate() {
            match outcome {
                None => panic!("{what}: process {process} is gone"),
                Some((_, Err(error))) => panic!("{what}: process {process}: {error}"),
                Some((_, Ok(()))) => {}
            }
        }
        self.rows_begin(expected, what);
        assert_eq!(self.rows.len(), expected.len(), "{what}\n  rows and expected rows");
    }

    /// Not all have ended well, since another process is gone or, where a budget is given, has
    /// ended with that. Process 0, if it is left, has all rows or says so; some error names who is
    /// gone; what came out before is right. How many say so.
    fn ends_with_a_fault(&self, budget: Option<u64>, expected: &[String], what: &str) -> u64 {
        self.rows_begin(expected, what);
        let errors = self.errors();
        // If process 0 is the one that was killed, others may have ended well before.
        if let Some((_, Ok(()))) = &self.outcomes[0] {
            let rows = (self.rows.len(), expected.len());
            assert_eq!(rows.0, rows.1, "{what}\n  process 0 ended well: rows and expected rows");
        }
        for (process, error) in &errors {
            let own = budget.is_some_and(|budget| exceeds(error, budget));
            let of_another = named(error).is_some_and(|other| other != *process);
            assert!(own || of_another, "{what}: process {process}: {error}");
        }
        let lost = |process: usize| {
            self.faults.iter().any(|fault| match fault {
                Fault::Kill(killed) => *killed == process,
                Fault::Cut(a, b) => [*a, *b].contains(&process),
                Fault::Mend(..) => false,
            })
        };
        let own = |error: &Error| budget.is_some_and(|budget| exceeds(error, budget));
        let right = |error: &Error| own(error) || named(error).is_some_and(lost);
        let known = errors.is_empty() || errors.iter().any(|(_, error)| right(error));
        assert!(known, "{what}\n  nobody names who is gone ({:?}): {errors:?}", self.faults);
        errors.len() as u64
    }
}

/// Whether a process has ended since it would have taken more than its budget.
fn exceeds(error: &Error, budget: u64) -> bool {
    matches!(error, Error::Memory { budget: of, .. } if *of == budget)
}

/// The other process that is gone or has failed, if a process has ended since it is.
fn named(error: &Error) -> Option<usize> {
    match error {
        Error::PeerLost { process, .. } | Error::Process { process, .. } => Some(*process),
        _ => None,
    }
}

/// Runs one job into sinks that want this order.
fn run(query: &Plan, settings: &Settings, scenario: &Scenario, order: RowOrder) -> Ran {
    run_outputs(query, settings, scenario, order).remove(0)
}

/// As [`run`], for any number of outputs: what the job came to as each of them sees it.
fn run_outputs(
    query: &Plan,
    settings: &Settings,
    scenario: &Scenario,
    order: RowOrder,
) -> Vec<Ran> {
    let collect = || Arc::new(Collect { order, batches: Mutex::default() });
    let sinks = || -> Vec<_> { query.outputs.iter().map(|_| collect()).collect() };
    let sinks: Vec<Vec<_>> = scenario.slowness.iter().map(|_| sinks()).collect();
    let given = |sinks: &Vec<Arc<Collect>>| sinks.iter().map(|sink| sink.clone() as _).collect();
    let given: Vec<Vec<Arc<dyn Sink>>> = sinks.iter().map(given).collect();
    let simulated = simulate(query, settings, &given, scenario);
    let (outcomes, faults) = simulated.unwrap_or_else(|e| panic!("{settings:?} {scenario:?}: {e}"));
    let ran = |sink: &Arc<Collect>| {
        let mut rows: Vec<String> = sink.batches.lock().unwrap().iter().flat_map(lines).collect();
        if order == RowOrder::Any {
            rows.sort();
        }
        Ran { outcomes: outcomes.clone(), faults: faults.clone(), rows, order }
    };
    sinks[0].iter().map(ran).collect()
}

/// What must have happened over all seeds, or the test is not about it; not if there was just one.
fn happened(seeds: &[u64], counts: &[(&str, u64)]) {
    for (what, count) in counts {
        assert!(*count > 0 || seeds.len() == 1, "no {what} in {} seeds", seeds.len());
    }
}

//! Splits that join a running job at a cut, whichever process reads them, while jobs are stopped,
//! processes die, and the job goes on with other numbers of processes and workers.
//!
//! Two things hold. The rows are those of a job that had all splits from the beginning, if no
//! record of a new split is late. And rows that are written at once are the same when they are
//! computed again, up to the last one that was written: new splits join behind it.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::Waker;

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use millstream_contract::plan::Plan;
use millstream_contract::sink::RowOrder;
use millstream_contract::table::{
    AddedSplits, OpenOptions, Position, Split, SplitPoll, SplitSpec, Table,
};
use millstream_contract::{Error, Result, Settings};
use millstream_engine::simulation::{Fault, Scenario};
use millstream_engine::{Job, Resume, Stats};

use super::control::Control;
use super::kept::Kept;
use super::reading::Look;
use super::{checkpoints, processes, sinks};
use crate::support::*;

/// A log whose partitions grow in number, as it is outside of all jobs.
#[derive(Debug)]
pub(crate) struct Log {
    splits: Vec<Vec<RecordBatch>>,
    /// How many there are at the beginning, and now.
    first: usize,
    there: AtomicUsize,
}

impl Log {
    /// One more partition comes.
    pub(crate) fn grow(&self) {
        let _ =
            self.there.fetch_update(Relaxed, Relaxed, |n| (n < self.splits.len()).then_some(n + 1));
    }
}

/// A job's view of the log.
#[derive(Clone)]
struct Partitions {
    log: Arc<Log>,
    schema: SchemaRef,
    look: Arc<dyn Look>,
    only: Option<Vec<String>>,
    /// The partitions that this job reads, or has read to their ends.
    read: Arc<Mutex<BTreeSet<usize>>>,
}

impl fmt::Debug for Partitions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Partitions").field("there", &self.log.there).finish_non_exhaustive()
    }
}

struct PartitionSplit {
    of: Partitions,
    number: usize,
    name: String,
    next: usize,
    projection: Vec<usize>,
}

fn name(number: usize) -> String {
    format!("log-{number}")
}

impl Split for PartitionSplit {
    fn name(&self) -> &str {
        &self.name
    }
    fn position(&self) -> Position {
        Position(vec![self.next as u64])
    }
    fn poll_next(&mut self, now_us: i64, _: &Waker) -> Result<SplitPoll> {
        self.of.look.look();
        let all = {
            let mut read = self.of.read.lock().unwrap();
            read.insert(self.number);
            read.len() == self.of.log.splits.len()
        };
        match self.of.log.splits[self.number].get(self.next) {
            Some(batch) => {
                self.next += 1;
                Ok(SplitPoll::Chunk(Box::new(batch.project(&self.projection).unwrap())))
            }
            // A log does not end; this one does, when there is nothing more to come.
            None if all => Ok(SplitPoll::Ended),
            None => Ok(SplitPoll::Pending { retry_at_us: Some(now_us + 1_000) }),
        }
    }
}

impl Table for Partitions {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
    fn bounded(&self) -> bool {
        false
    }
    fn splits_are_apart(&self) -> bool {
        true
    }
    fn open(&self, projection: &[usize], options: &OpenOptions) -> Result<Vec<Box<dyn Split>>> {
        let there = 0..self.log.there.load(Relaxed);
        let is_wanted =
            |number: &usize| self.only.as_ref().is_none_or(|only| only.contains(&name(*number)));
        let split = |number| -> Box<dyn Split> {
            let name = name(number);
            if options.has_ended(&name) {
                self.read.lock().unwrap().insert(number);
            }
            let next = options.from(&name).0.first().copied().unwrap_or(0) as usize;
            let projection = projection.to_vec();
            Box::new(PartitionSplit { of: self.clone(), number, name, next, projection })
        };
        Ok(there.filter(is_wanted).map(split).collect())
    }
    fn describe(&self, _: &[usize]) -> String {
        "log".into()
    }
    fn with_splits(&self, splits: &[SplitSpec]) -> Option<Arc<dyn Table>> {
        let only = Some(splits.iter().map(|split| split.name.clone()).collect());
        Some(Arc::new(Partitions { only, ..self.clone() }))
    }
    fn added_splits(&self, is_known: &dyn Fn(&str) -> bool) -> Result<AddedSplits> {
        let there = 0..self.log.there.load(Relaxed);
        let spec = |name| SplitSpec { name, length: None, file: None, packed: false };
        Ok(AddedSplits::New(there.map(name).filter(|name| !is_known(name)).map(spec).collect()))
    }
}

/// What must have happened over all seeds.
#[derive(Debug, Default)]
struct Sums {
    joined: AtomicU64,
    stopped: AtomicU64,
    replayed: AtomicU64,
    late: AtomicU64,
}

/// Records of the partitions of a log. `late`: partitions that come later have records that are
/// late then. Otherwise only one comes: a process that reads but another new partition is further.
fn data(random: &mut Random, late: bool) -> (Vec<Vec<Record>>, usize) {
    let more = if late { 1 + random.below(3) as usize } else { 1 };
    let first = 1 + random.below(3) as usize;
    let count = 40 + random.below(200) as usize;
    let mut data = records(random, first + more, count, 20);
    for record in data[first..].iter_mut().flatten().filter(|_| !late) {
        record.ts_ms = record.ts_ms.map(|ts| ts + 20_000);
    }
    (data, first)
}

/// Runs jobs over a growing log, each of one process or of several, until one is not stopped.
fn simulate(seed: u64, sums: &Sums) -> Stats {
    let mut random = Random::new(seed);
    let what = format!("seed {seed}\n{}", repeat(seed, "restart::joining"));
    let late = random.below(2) == 0;
    let (data, first) = data(&mut random, late);
    let memory = table(&data, &mut random, 10);
    let window_ms = Some(random.pick(&[100, 700]));
    let settings = Settings { simulate: Some(seed), ..drawn_settings(&mut random, 3, 0) };
    let whole = query(memory.clone(), window_ms, 50_000);
    let (_, expected) = run(&whole, &settings);
    let log =
        Arc::new(Log { splits: memory.splits.clone(), first, there: AtomicUsize::new(first) });
    let kept = Arc::new(Kept::new(1));
    kept.replays.store(true, Relaxed);
    let case = Case { what, log, schema: memory.schema.clone(), kept, whole };
    let stats = case.run(&mut random, sums);
    let Case { what, kept, .. } = case;
    let mut rows = kept.rows().remove(0);
    sums.late.fetch_add(stats.late_records, Relaxed);
    if !late {
        let mut expected = expected.unwrap();
        rows.sort();
        expected.sort();
        same_rows(&rows, &expected, &what);
    }
    stats
}

struct Case {
    what: String,
    log: Arc<Log>,
    schema: SchemaRef,
    kept: Arc<Kept>,
    whole: Plan,
}

impl Case {
    /// The plan over the log as a job sees it.
    fn plan(&self, look: &Arc<Control>) -> Plan {
        let mut plan = self.whole.clone();
        let (log, schema, look) = (self.log.clone(), self.schema.clone(), look.clone());
        let (only, read) = Default::default();
        plan.sources[0].table = Arc::new(Partitions { log, schema, look, only, read });
        plan
    }

    fn run(&self, random: &mut Random, sums: &Sums) -> Stats {
        let Case { what, kept, log, .. } = self;
        let (mut sum, mut stops) = (Stats::default(), 1 + random.below(6));
        loop {
            let (next, several) = (random.below(1 << 30), random.below(2) == 0);
            let looks = [random.pick(&[3, 10, 40]), random.pick(&[60, 200])];
            let looks = [looks[0], if stops > 0 { looks[1] } else { 0 }];
            let control = Control::growing(kept, Random::new(next), looks, log);
            let from = kept.resume.lock().unwrap().clone();
            let known = from.marks.values().map(|of| of.splits.len()).sum::<usize>();
            sums.joined.fetch_add((known > log.first).into(), Relaxed);
            let plan = self.plan(&control);
            let settings = drawn_settings(random, 3, 0);
            kept.begin(Random::new(next));
            let result = match several {
                false => {
                    let settings = Settings { simulate: Some(next), ..settings };
                    let sinks = sinks(kept, &[RowOrder::Deterministic]);
                    let stored = Some(checkpoints(kept, 0));
                    let job = Job::resume(&plan, &settings, sinks, &from, stored);
                    let (stats, result) =
                        control.run(job.unwrap_or_else(|e| panic!("{what}: {e}")));
                    sum.add_process(&stats);
                    match result {
                        Err(Error::Interrupted) => None,
                        other => Some(other),
                    }
                }
                true => {
                    self.run_processes(&control, &plan, &settings, (next, stops), &from, &mut sum)
                }
            };
            assert_eq!(kept.ended(), kept.begun.load(Relaxed), "{what}: cuts that nobody hears of");
            match result {
                Some(result) => {
                    result.unwrap_or_else(|e| panic!("{what}: {e}"));
                    sums.replayed.fetch_add(kept.replayed.load(Relaxed), Relaxed);
                    return sum;
                }
                None => {
                    sums.stopped.fetch_add(1, Relaxed);
                    stops = stops.saturating_sub(1);
                }
            }
        }
    }

    /// A job of several processes; `None` if it was stopped, or a process was killed.
    fn run_processes(
        &self,
        control: &Control,
        plan: &Plan,
        settings: &Settings,
        (seed, stops): (u64, u64),
        from: &Resume,
        sum: &mut Stats,
    ) -> Option<Result<()>> {
        let Case { what, kept, .. } = self;
        let mut random = Random::new(seed);
        let processes = 2 + random.below(2) as usize;
        let mut scenario = Scenario::from_seed(seed, processes);
        if stops > 0 && random.below(2) == 0 {
            let step = random.pick(&[300, 3000]) + random.below(1000);
            scenario.faults = vec![(step, Fault::Kill(random.below(processes as u64) as usize))];
        }
        let outputs = (&[RowOrder::Deterministic][..], false);
        let outcomes = control.run_processes(plan, settings, outputs, &scenario, from);
        let outcomes = outcomes.unwrap_or_else(|e| panic!("{what}: {e}"));
        outcomes.iter().flatten().for_each(|(stats, _)| sum.add_process(stats));
        if outcomes[0].is_none() && kept.ended() < kept.begun.load(Relaxed) {
            // Nobody is left to give it up.
            kept.given_up.fetch_add(1, Relaxed);
        }
        processes::ended(outcomes).map(|result| result.map(|_| ()))
    }
}

#[test]
fn simulated_splits_join_at_cuts() {
    let sums = Sums::default();
    let (seeds, stats) = run_seeds(250, |seed| simulate(seed, &sums));
    let count = |sum: &AtomicU64| sum.load(Relaxed);
    happened(
        seeds,
        &[
            ("jobs that went on with a split that had joined", count(&sums.joined)),
            ("jobs that were stopped", count(&sums.stopped)),
            ("rows that were computed again", count(&sums.replayed)),
            ("late records", count(&sums.late)),
            ("windows that fired before the end", stats.windows_fired_early),
        ],
    );
}

/// Without checkpoints, splits join at once.
#[test]
fn simulated_splits_join_jobs_without_cuts() {
    for seed in 0..100 {
        let mut random = Random::new(seed);
        let (data, first) = data(&mut random, false);
        let memory = table(&data, &mut random, 10);
        let settings = Settings { simulate: Some(seed), ..drawn_settings(&mut random, 3, 0) };
        let whole = query(memory.clone(), Some(500), 50_000);
        let (_, expected) = run(&whole, &settings);
        let there = AtomicUsize::new(first);
        let log = Arc::new(Log { splits: memory.splits.clone(), first, there });
        let kept = Arc::new(Kept::new(1));
        let (what, schema) = (format!("seed {seed}"), memory.schema.clone());
        let case = Case { what, log: log.clone(), schema, kept: kept.clone(), whole };
        let control = Control::growing(&kept, Random::new(seed), [0, 0], &log);
        let plan = case.plan(&control);
        let job = Job::new(&plan, &settings, sinks(&kept, &[RowOrder::Deterministic])).unwrap();
        control.run(job).1.unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        let (mut rows, mut expected) = (kept.rows().remove(0), expected.unwrap());
        rows.sort();
        expected.sort();
        same_rows(&rows, &expected, &format!("seed {seed}"));
    }
}

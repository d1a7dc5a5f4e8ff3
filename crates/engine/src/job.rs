//! The job: a query with its workers, from start to finish.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use arrow::array::RecordBatch;

use millstream_state::{ChunkPool, Keys, Mode, NoVarKeys, RowLayout, Scratch, Table, hash_words};

use crate::budget::{Budget, Kind};
use crate::env::{Env, Simulated, Threads};
use crate::error::{Error, Result};
use crate::fire::Finisher;
use crate::gather::Gather;
use crate::intake::Intake;
use crate::pipeline::{Grouping, Stateless};
use crate::plan::{Body, Query};
use crate::prepare::{Preparer, Spread};
use crate::settings::{FragmentMode, Settings};
use crate::sink::Sink;
use crate::slices::small_table_bytes;
use crate::stats::Stats;
use crate::table::OpenOptions;
use crate::worker::{self, Message, Step, Worker};

/// A query ready to run.
pub struct Job {
    shared: Arc<Shared>,
    started_us: i64,
}

/// Stops a running job from another thread (or a signal handler's thread).
#[derive(Clone)]
pub struct Stopper(Arc<Shared>);

impl Stopper {
    /// Lets the job end with [`Error::Interrupted`].
    pub fn stop(&self) {
        self.0.stop(Some(Error::Interrupted));
    }
}

impl fmt::Debug for Stopper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Stopper")
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Job({} workers)", self.shared.settings.workers)
    }
}

impl Job {
    /// Prepares `query` to run into `sink`: lays out its state and opens its source.
    pub fn new(query: &Query, settings: &Settings, sink: Arc<dyn Sink>) -> Result<Job> {
        let settings = settings.clone();
        let workers = settings.workers;
        let threads = Threads::new(workers);
        let started_us = threads.now_us();
        let env: Arc<dyn Env> = match settings.simulate {
            Some(seed) => Arc::new(Simulated::new(seed, started_us)),
            None => Arc::new(threads),
        };
        let (aggregation, stateless, limits, window) = match &query.body {
            Body::Aggregate(aggregate) => {
                let grouping = Grouping::new(query, aggregate, settings.allowed_lateness_us)?;
                let window = aggregate.window.map(|w| (w, settings.allowed_lateness_us));
                let finisher = Finisher::new(aggregate, &query.output);
                (Some((grouping, finisher)), None, (0, None), window)
            }
            Body::Stateless { project, limit, offset } => {
                (None, Some(Stateless::new(query, project)), (*offset, *limit), None)
            }
        };
        let options =
            OpenOptions { batch_rows: settings.batch_rows, start_time_us: started_us, workers };
        let splits = query.source.open(&query.projection, &options)?;
        let idle_timeout_us = query.event_time.as_ref().and_then(|t| t.idle_timeout_us);
        let tables_max = aggregation.as_ref().map_or(0, |(grouping, _)| {
            tables_max(settings.memory_bytes, workers, &grouping.layout)
        });
        let spread = window.map(|(window, _)| Spread { window, leaders: workers, tables_max });
        let preparer = Preparer::new(query, settings.max_ahead_us, spread);
        sink.open(&query.output)?;
        // Without a window everything fires at the end of the input.
        let fires_after_us =
            window.map_or(crate::event_time::END, |(w, lateness)| w.size_us + lateness);
        let budget = Arc::new(Budget::new(
            settings.memory_bytes,
            workers,
            describe(query),
            settings.batch_rows,
        ));
        let output = query.output.clone();
        let intake = Intake::new(
            splits,
            preparer,
            env.clone(),
            workers,
            idle_timeout_us,
            window,
            budget.clone(),
        );
        let shared = Shared {
            intake,
            gather: Gather::new(sink, output, workers, fires_after_us, limits, budget.clone()),
            aggregation,
            stateless,
            mailboxes: (0..workers).map(|_| Mailbox::default()).collect(),
            stopping: AtomicBool::new(limits.1 == Some(0)),
            error: Mutex::new(None),
            latencies: Mutex::default(),
            budget,
            tables_max,
            settings,
            env,
        };
        Ok(Job { shared: Arc::new(shared), started_us })
    }

    /// A handle to stop the job with.
    pub fn stopper(&self) -> Stopper {
        Stopper(self.shared.clone())
    }

    /// Runs to the end of the input, an error, or [`Stopper::stop`]. The counters are returned in
    /// any case: they say how far the job got.
    pub fn run(self) -> (Stats, Result<()>) {
        let shared = &self.shared;
        let mut workers: Vec<Worker> =
            (0..shared.settings.workers).map(|id| Worker::new(id, shared.clone())).collect();
        match shared.settings.simulate {
            Some(_) => simulate(shared, &mut workers),
            None => thread::scope(|scope| {
                for (id, worker) in workers.iter_mut().enumerate() {
                    let thread = thread::Builder::new().name(format!("worker-{id}"));
                    let run = || run_guarded(shared, || worker.run());
                    if let Err(error) = thread.spawn_scoped(scope, run) {
                        shared.stop(Some(Error::Io {
                            place: format!("worker {id}"),
                            message: format!("cannot start a thread: {error}"),
                            help: "use fewer workers".into(),
                        }));
                    }
                }
            }),
        }
        let mut result = match shared.take_error() {
            Some(error) => Err(error),
            None => self.finish(),
        };
        if matches!(result, Err(Error::OutputClosed)) {
            result = Ok(());
        }
        (self.stats(&workers), result)
    }

    /// After the last worker: the row of a global aggregate over nothing, and the sink's end.
    fn finish(&self) -> Result<()> {
        let shared = &self.shared;
        if let Some((grouping, finisher)) = &shared.aggregation {
            let global = grouping.window.is_none() && grouping.codec.words() == 0;
            if global && shared.gather.windows() == 0 {
                let rows = empty_group(grouping, finisher)?;
                shared.gather.window_rows(0, crate::pipeline::WHOLE, rows, true)?;
                for worker in 0..shared.settings.workers {
                    shared.gather.advance(worker, crate::event_time::END)?;
                }
            }
        }
        shared.gather.finish(&shared.intake.ended_splits())
    }

    fn stats(&self, workers: &[Worker]) -> Stats {
        let shared = &self.shared;
        let mut stats = Stats::default();
        workers.iter().for_each(|w| stats.add(&w.stats));
        stats.rows = shared.gather.rows();
        let windowed = shared.aggregation.as_ref().is_some_and(|(g, _)| g.window.is_some());
        stats.windows = if windowed { shared.gather.windows() } else { 0 };
        let (peak, rest) = (shared.budget.peak(), shared.budget.rest());
        (stats.state_bytes_peak, stats.state_live_bytes_at_peak) = (peak.bytes, peak.live_bytes);
        (stats.state_bytes_rest, stats.state_live_bytes_rest) = (rest.bytes, rest.live_bytes);
        stats.memory_bytes_peak = shared.budget.most();
        let mut latencies = shared.latencies.lock().unwrap_or_else(PoisonError::into_inner);
        stats.fire_latency_us = std::mem::take(&mut *latencies).into();
        stats.elapsed_us = (shared.env.now_us() - self.started_us).max(0) as u64;
        stats
    }
}

/// How many tables of windows may be opened before state is counted again: those that all workers open then
/// take a 32nd of the budget at the most.
fn tables_max(memory_bytes: u64, workers: usize, layout: &Arc<RowLayout>) -> usize {
    let share = memory_bytes / 32 / workers as u64;
    (share as usize / small_table_bytes(layout, workers)).max(1)
}

/// The operator's name in messages and `explain`.
fn describe(query: &Query) -> String {
    match &query.body {
        Body::Stateless { .. } => "project".into(),
        Body::Aggregate(aggregate) => {
            let keys: Vec<String> = aggregate.keys.iter().map(|k| shortened(&k.name)).collect();
            format!("aggregate by ({})", keys.join(", "))
        }
    }
}

/// A key's text, if it is not too long to be read in a message.
fn shortened(text: &str) -> String {
    const CHARS_MAX: usize = 60;
    match text.char_indices().nth(CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_string(),
    }
}

/// The result row of a group that has met no record.
fn empty_group(grouping: &Grouping, finisher: &Finisher) -> Result<RecordBatch> {
    let mut table = Table::new(grouping.layout.clone());
    let (mut pool, mut scratch) =
        (ChunkPool::new(grouping.layout.row_words(), 0), Scratch::default());
    let keys = Keys { hashes: &[hash_words(&[])], ahead: &[], words: &[], vars: NoVarKeys };
    table.update(&keys, &mut pool, &mut scratch);
    let mut places = Vec::new();
    finisher.finish(grouping, &[], &table.scan(0, &mut places))
}

/// Runs a worker so that neither an error nor a panic leaves the others waiting.
fn run_guarded(shared: &Shared, run: impl FnOnce() -> Result<()>) {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(())) => {}
        Ok(Err(error)) => shared.stop(Some(error)),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            let message = format!("a worker panicked: {}", text.unwrap_or("(no message)"));
            shared.stop(Some(Error::Internal(message)));
        }
    }
}

/// Deterministic simulation: all workers on this thread, a random one a step at a time.
fn simulate(shared: &Shared, workers: &mut [Worker]) {
    let mut waiting: BTreeMap<usize, Option<i64>> = BTreeMap::new();
    let mut running: Vec<usize> = (0..workers.len()).collect();
    while !running.is_empty() {
        let pick = shared.env.choose(running.len() as u64).unwrap_or(0) as usize;
        let id = running[pick];
        let mut step = Ok(Step::Done);
        run_guarded(shared, || {
            step = workers[id].step();
            std::mem::replace(&mut step, Ok(Step::Done)).map(|s| step = Ok(s))
        });
        match step {
            Ok(Step::Done) | Err(_) => {
                running.swap_remove(pick);
                waiting.clear();
            }
            Ok(Step::Busy) => waiting.clear(),
            Ok(Step::Wait { until_us }) => {
                waiting.insert(id, until_us);
                if running.iter().all(|id| waiting.contains_key(id)) {
                    // Everybody waits: let time pass until the first has something to do.
                    let Some(next) = waiting.values().flatten().min() else {
                        let message = "all workers wait for each other".into();
                        shared.stop(Some(Error::Internal(message)));
                        continue;
                    };
                    shared.env.pass_time(*next);
                    waiting.clear();
                }
            }
        }
        shared.env.pass_time(shared.env.now_us() + 1);
    }
}

/// Messages for one worker.
#[derive(Default)]
pub(crate) struct Mailbox(Mutex<VecDeque<Message>>);

impl Mailbox {
    pub(crate) fn take(&self) -> VecDeque<Message> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }
}

/// What all workers of a job share.
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    pub(crate) env: Arc<dyn Env>,
    pub(crate) intake: Intake,
    pub(crate) gather: Gather,
    pub(crate) aggregation: Option<(Grouping, Finisher)>,
    pub(crate) stateless: Option<Stateless>,
    pub(crate) mailboxes: Vec<Mailbox>,
    pub(crate) stopping: AtomicBool,
    pub(crate) budget: Arc<Budget>,
    /// State is counted at the latest when so many tables of windows have been opened.
    pub(crate) tables_max: usize,
    error: Mutex<Option<Error>>,
    latencies: Mutex<VecDeque<u64>>,
}

/// Fire latencies that are kept, the latest: half a megabyte.
const LATENCIES_MAX: usize = 1 << 16;

impl Shared {
    /// Stops all workers; the first error given is what the job ends with.
    pub(crate) fn stop(&self, error: Option<Error>) {
        if let Some(error) = error {
            let mut first = self.error.lock().unwrap_or_else(PoisonError::into_inner);
            first.get_or_insert(error);
        }
        self.stopping.store(true, Relaxed);
        self.wake_all();
    }

    pub(crate) fn wake_all(&self) {
        (0..self.settings.workers).for_each(|worker| self.env.wake(worker));
    }

    fn take_error(&self) -> Option<Error> {
        self.error.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(crate) fn send(&self, to: usize, message: Message) {
        let mailbox = &self.mailboxes[to].0;
        mailbox.lock().unwrap_or_else(PoisonError::into_inner).push_back(message);
        self.env.wake(to);
    }

    pub(crate) fn fragment_mode(&self) -> Option<Mode> {
        match self.settings.fragment_mode {
            FragmentMode::Auto => None,
            FragmentMode::Aggregate => Some(Mode::Aggregate),
            FragmentMode::PassThrough => Some(Mode::PassThrough),
        }
    }

    /// Idle chunks that a worker may keep.
    pub(crate) fn pool_bytes(&self) -> usize {
        let share = self.settings.memory_bytes / 16 / self.settings.workers as u64;
        share.min(64 << 20) as usize
    }

    pub(crate) fn fires_at(&self, start: i64) -> i64 {
        self.aggregation.as_ref().map_or(start, |(grouping, _)| worker::fires_at(grouping, start))
    }

    /// Bytes of keys and values in one fragment after which an epoch ends: all fragments and the
    /// deltas on their way, at most two per pair of workers, take a quarter of the budget.
    pub(crate) fn fragment_bytes(&self) -> u64 {
        let pairs = (self.settings.workers * self.settings.workers) as u64;
        self.settings.fragment_bytes.min(self.settings.memory_bytes / 12 / pairs)
    }

    /// `worker` has fired all windows that fire at or before a watermark; returns how many windows
    /// every worker has fired now.
    pub(crate) fn fired_up_to(&self, worker: usize, watermark: i64) -> Result<u64> {
        let starts = self.gather.advance(worker, watermark)?;
        if !starts.is_empty() && self.budget.tight() {
            // Somebody may wait for that.
            self.wake_all();
        }
        for start in &starts {
            let Some(at) = self.intake.reached_at(self.fires_at(*start)) else { continue };
            let mut latencies = self.latencies.lock().unwrap_or_else(PoisonError::into_inner);
            if latencies.len() >= LATENCIES_MAX {
                latencies.pop_front();
            }
            latencies.push_back((self.env.now_us() - at).max(0) as u64);
        }
        Ok(starts.len() as u64)
    }

    /// Whether everything that the low watermark lets go has been merged, fired and freed: if state is
    /// still at its budget then, waiting does not help.
    pub(crate) fn settled(&self, low: i64) -> bool {
        let fired = self.gather.fired();
        self.budget.held(Kind::Segments) == 0
            && self.intake.passed(fired) >= self.intake.passed(low)
    }
}

//! The job: a query with its workers, from start to finish.

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use arrow::array::RecordBatch;
use millstream_fabric::setup::Token;
use millstream_fabric::shm::ShmDevice;
use millstream_flow::Settings as Channels;

use millstream_state::{
    ChunkPool, Keys, Mode, NoVarKeys, RowLayout, Scratch, Segment, Table, hash_words,
};

use crate::budget::{Budget, Kind};
use crate::cluster::{
    self, Ends, Head, LAST, Mesh, MeshSetup, Net, Place, decode_rows, peer_error,
};
use crate::env::{Env, Simulated, Threads};
use crate::error::{Error, Result};
use crate::exchange::Roles;
use crate::fire::Finisher;
use crate::gather::{Gather, Role};
use crate::intake::Intake;
use crate::pipeline::{Grouping, Stateless};
use crate::plan::{Body, Query};
use crate::prepare::{Preparer, Spread};
use crate::settings::{Exchange, FragmentMode, Settings};
use crate::simulation;
use crate::sink::{RowOrder, Sink, Writers};
use crate::slices::small_table_bytes;
use crate::stats::Stats;
use crate::table::OpenOptions;
use crate::worker::{self, Message, Worker};

/// A query ready to run.
pub struct Job {
    shared: Arc<Shared>,
    started_us: i64,
    /// Per worker, if the job has other processes.
    ends: Vec<Ends>,
}

/// What is left of a job that has ended: its ends of channels, and state.
pub struct Remains(#[expect(dead_code, reason = "it is there to be dropped")] Option<Kept>);

type Kept = (Vec<Worker>, Arc<Shared>);

impl fmt::Debug for Remains {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Remains")
    }
}

/// Stops a running job from another thread (or a signal handler's thread).
#[derive(Clone)]
pub struct Stopper(Arc<Shared>);

impl Stopper {
    /// Lets the job end with [`Error::Interrupted`].
    pub fn stop(&self) {
        self.0.stop(Some(Error::Interrupted));
    }

    /// Lets the job end with this error, unless it has one already: another process has failed.
    pub fn stop_with(&self, error: Error) {
        self.0.stop(Some(error));
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

/// What is passed through is shipped when a fragment has this part of what ends an epoch: it gains
/// nothing by waiting, and is merged while it lies in a cache.
pub(crate) const PASSED_SHARE: u64 = 4;

/// All fragments and the deltas on their way, at most two per worker and leader, take a quarter of
/// the budget.
fn fragment_bytes(settings: &Settings, leaders: usize) -> u64 {
    settings.fragment_bytes.min(settings.memory_bytes / 12 / (settings.workers * leaders) as u64)
}

impl Job {
    /// Prepares `query` to run into `sink`: lays out its state and opens its source.
    pub fn new(query: &Query, settings: &Settings, sink: Arc<dyn Sink>) -> Result<Job> {
        if settings.exchange != Exchange::LateMerge {
            return Job::exchanging(query, settings, sink);
        }
        let threads = Threads::new(settings.workers, Vec::new());
        let started_us = threads.now_us();
        let env: Arc<dyn Env> = match settings.simulate {
            Some(seed) => Arc::new(Simulated::new(seed, started_us)),
            None => Arc::new(threads),
        };
        Job::prepare(query, settings, sink, (env, started_us), None)
    }

    /// A job whose workers exchange records, over channels within this process.
    fn exchanging(query: &Query, settings: &Settings, sink: Arc<dyn Sink>) -> Result<Job> {
        if settings.simulate.is_some() {
            return Err(Error::Io {
                place: "exchange".into(),
                message: "a single process that exchanges records cannot be simulated".into(),
                help: "leave 'simulate' or 'exchange' out".into(),
            });
        }
        let token = Token::random().map_err(|error| Error::Io {
            place: "/dev/urandom".into(),
            message: error.to_string(),
            help: String::new(),
        })?;
        let connected = || -> millstream_flow::Result<Mesh> {
            let device = ShmDevice::open(token)?;
            let (place, channels) = (Place { process: 0, processes: 1 }, Channels::default());
            let (sizes, exchange) = ((settings.workers, settings.memory_bytes), settings.exchange);
            MeshSetup::exchanging(&device, place, sizes, channels, exchange)?.connect(&[])
        };
        let mesh = connected().map_err(|error| peer_error(0, error))?;
        let start_us = Threads::new(0, Vec::new()).now_us();
        Job::distributed(query, settings, sink, mesh, start_us)
    }

    /// Prepares one process's part of a job of several: `mesh` connects it with the others, which
    /// run the same query with the same settings and the same start time (microseconds since the
    /// epoch). Rows come to process 0, unless the sink is local ([`Sink::is_local`]); the other
    /// processes' sinks are not used then.
    pub fn distributed(
        query: &Query,
        settings: &Settings,
        sink: Arc<dyn Sink>,
        mesh: Mesh,
        start_us: i64,
    ) -> Result<Job> {
        let wakers = mesh.wakers();
        let env = Arc::new(Threads::new(settings.workers, wakers));
        Job::prepare(query, settings, sink, (env, start_us), Some(mesh))
    }

    pub(crate) fn prepare(
        query: &Query,
        settings: &Settings,
        sink: Arc<dyn Sink>,
        (env, started_us): (Arc<dyn Env>, i64),
        mesh: Option<Mesh>,
    ) -> Result<Job> {
        let settings = settings.clone();
        let workers = settings.workers;
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
        let exchange = mesh.as_ref().map_or(Exchange::LateMerge, |mesh| mesh.exchange);
        if settings.exchange != exchange {
            let message = format!("{:?} over channels for {exchange:?}", settings.exchange);
            return Err(Error::Internal(message));
        }
        let (net, ends) = match mesh {
            Some(mesh) => {
                let grouping = aggregation.as_ref().map(|(grouping, _)| grouping);
                let fragment_bytes = fragment_bytes(&settings, mesh.place.processes * workers);
                let (net, ends) = Net::new(mesh, grouping, fragment_bytes as usize)?;
                (Some(Arc::new(net)), ends)
            }
            None => (None, Vec::new()),
        };
        let leaders = net.as_ref().map_or(workers, |net| net.leaders());
        let place = net.as_ref().map_or(Place { process: 0, processes: 1 }, |net| net.place);
        // What has no keys is not exchanged.
        let roles = match &aggregation {
            Some(_) => Roles::new(exchange, place.processes, workers),
            None => Roles::default(),
        };
        let reading = roles.reading(place, workers);
        let options = OpenOptions {
            batch_rows: settings.batch_rows,
            start_time_us: started_us,
            workers: leaders,
            process: place.process,
            processes: place.processes,
        };
        let splits = query.source.open(&query.projection, &options)?;
        let idle_timeout_us = query.event_time.as_ref().and_then(|t| t.idle_timeout_us);
        let tables_max = aggregation.as_ref().map_or(0, |(grouping, _)| {
            tables_max(settings.memory_bytes, (workers, leaders), &grouping.layout)
        });
        let spread = window.map(|(window, _)| Spread { window, leaders, tables_max });
        let preparer = Preparer::new(query, settings.max_ahead_us, spread);
        // The row of a group without records is one, whatever the number of processes.
        let global = aggregation
            .as_ref()
            .is_some_and(|(grouping, _)| grouping.window.is_none() && grouping.codec.words() == 0);
        // LIMIT counts the rows of all.
        let one_result = global || limits != (0, None);
        let role = match &net {
            None => Role::Alone,
            Some(_) if sink.is_local() && sink.order() == RowOrder::Any && !one_result => {
                Role::Alone
            }
            Some(net) if net.is_asker() => Role::Asker(net.clone()),
            Some(net) => {
                let ahead_bytes_max = settings.memory_bytes / 4 / net.place.processes as u64;
                Role::Helper { net: net.clone(), ahead_bytes_max }
            }
        };
        let gathered = if matches!(role, Role::Asker(_)) { leaders } else { workers };
        // What comes together anyway is written as if by one.
        let one_writer = one_result || matches!(role, Role::Asker(_));
        if !matches!(role, Role::Helper { .. }) {
            let workers = if one_writer { 1 } else { workers };
            sink.open(&query.output, Writers { process: place.process, workers })?;
        }
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
            (env.clone(), net.clone()),
            (workers, reading),
            idle_timeout_us,
            window,
            budget.clone(),
        );
        let budget_of_rows = budget.clone();
        let shared = Shared {
            intake,
            gather: Gather::new(
                sink,
                output,
                gathered,
                fires_after_us,
                limits,
                budget_of_rows,
                (role, one_writer),
            ),
            net,
            roles,
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
        Ok(Job { shared: Arc::new(shared), started_us, ends })
    }

    /// Names of the splits, in order.
    pub fn splits(&self) -> Vec<String> {
        self.shared.intake.described()
    }

    /// A handle to stop the job with.
    pub fn stopper(&self) -> Stopper {
        Stopper(self.shared.clone())
    }

    /// Runs to the end of the input, an error, or [`Stopper::stop`]. The counters are returned in
    /// any case: they say how far the job got.
    pub fn run(self) -> (Stats, Result<()>) {
        let sink = self.shared.gather.sink();
        let (stats, result, _) = self.run_and_keep();
        (stats, result.and_then(|()| sink.commit()))
    }

    /// As [`Job::run`], for a job of several processes: keep what remains until all of them have
    /// ended, since one that has not would take the end of a channel for a failure. Whoever knows
    /// that all have ended well commits the sinks.
    pub fn run_and_keep(mut self) -> (Stats, Result<()>, Remains) {
        if self.shared.settings.simulate.is_some() {
            let (stats, result) = simulation::alone(self);
            return (stats, result, Remains(None));
        }
        let mut workers = self.workers();
        let shared = &self.shared;
        thread::scope(|scope| {
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
        });
        loop {
            match run_guarded(shared, || self.end_streams(&mut workers)) {
                Some(true) => break,
                None if shared.has_failed() => break,
                _ => thread::sleep(Duration::from_micros(50)),
            }
        }
        let (stats, result) = self.close(&workers);
        (stats, result, Remains(Some((workers, self.shared))))
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    pub(crate) fn env(&self) -> Arc<dyn Env> {
        self.shared.env.clone()
    }

    pub(crate) fn workers(&mut self) -> Vec<Worker> {
        let mut ends = std::mem::take(&mut self.ends).into_iter();
        let worker = |id| Worker::new(id, self.shared.clone(), ends.next());
        (0..self.shared.settings.workers).map(worker).collect()
    }

    /// When all workers are done: takes in what other processes still have for this one and ends
    /// all streams in order, a step at a time. Returns whether that is done.
    pub(crate) fn end_streams(&self, workers: &mut [Worker]) -> Result<bool> {
        let shared = &self.shared;
        let Some(net) = &shared.net else { return Ok(true) };
        if shared.has_failed() {
            // Those who want to know why hear it over their control connections.
            return Ok(true);
        }
        if net.is_asker() && shared.has_enough() {
            // The others stop when they hear of it.
            net.pump()?;
            return Ok((1..net.place.processes).all(|process| net.is_told(process)));
        }
        if shared.stopping.load(Relaxed) {
            return Ok(true);
        }
        net.pump()?;
        net.receive(|process, head, body| shared.take_letter(process, head, &body).map(|_| ()))?;
        let mut ended = net.finish()?;
        for worker in workers {
            ended &= worker.finish_streams()?;
        }
        Ok(ended)
    }

    /// The end of the job: what it came to.
    pub(crate) fn close(&self, workers: &[Worker]) -> (Stats, Result<()>) {
        let mut result = match self.shared.take_error() {
            Some(error) => Err(error),
            None => self.finish(),
        };
        if matches!(result, Err(Error::OutputClosed)) {
            result = Ok(());
        }
        (self.stats(workers), result)
    }

    /// After the last worker: the row of a global aggregate over nothing, and the sink's end.
    fn finish(&self) -> Result<()> {
        let shared = &self.shared;
        if shared.net.as_ref().is_some_and(|net| !net.is_asker()) && shared.has_enough() {
            return Ok(());
        }
        if let Some((grouping, finisher)) = &shared.aggregation {
            let global = grouping.window.is_none() && grouping.codec.words() == 0;
            let asked = shared.net.as_ref().is_none_or(|net| net.is_asker());
            if global && asked && shared.gather.windows() == 0 {
                let rows = empty_group(grouping, finisher)?;
                shared.gather.window_rows(0, crate::pipeline::WHOLE, rows, true)?;
                for worker in 0..shared.leaders() {
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
        if let Some(net) = &shared.net {
            stats.note_shipped(&net.counters());
        }
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

/// How many tables of windows may be opened before state is counted again: those that all workers
/// open then take a 32nd of the budget at the most.
fn tables_max(
    memory_bytes: u64,
    (workers, leaders): (usize, usize),
    layout: &Arc<RowLayout>,
) -> usize {
    let share = memory_bytes / 32 / workers as u64;
    (share as usize / small_table_bytes(layout, leaders)).max(1)
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
        (ChunkPool::new(grouping.layout.row_words(), 0, None), Scratch::default());
    let keys = Keys { hashes: &[hash_words(&[])], ahead: &[], words: &[], vars: NoVarKeys };
    table.update(&keys, &mut pool, &mut scratch);
    let mut places = Vec::new();
    finisher.finish(grouping, &[], &table.scan(0, &mut places))
}

/// Runs a worker so that neither an error nor a panic leaves the others waiting; `None` if there
/// was one.
pub(crate) fn run_guarded<T>(shared: &Shared, run: impl FnOnce() -> Result<T>) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(value)) => return Some(value),
        // The other processes have to be told that no more rows are wanted; one alone just ends.
        Ok(Err(Error::OutputClosed)) if shared.net.is_some() => {
            if let Err(error) = shared.stop_enough() {
                shared.stop(Some(error));
            }
        }
        Ok(Err(error)) => shared.stop(Some(error)),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            let message = format!("a worker panicked: {}", text.unwrap_or("(no message)"));
            shared.stop(Some(Error::Internal(message)));
        }
    }
    None
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
    /// The job's other processes, if it has any.
    pub(crate) net: Option<Arc<Net>>,
    /// Who sends and receives, if records are exchanged.
    pub(crate) roles: Roles,
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

    /// Wakes all workers but `worker`, who would look again in vain before it waits.
    pub(crate) fn wake_others(&self, worker: usize) {
        let others = (0..self.settings.workers).filter(|other| *other != worker);
        others.for_each(|other| self.env.wake(other));
    }

    fn has_failed(&self) -> bool {
        self.error.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Whether the job stops since all rows that are wanted are there.
    pub(crate) fn has_enough(&self) -> bool {
        self.stopping.load(Relaxed) && !self.has_failed()
    }

    /// Stops the job, since there are all rows that are wanted.
    pub(crate) fn stop_enough(&self) -> Result<()> {
        self.stop(None);
        match &self.net {
            Some(net) if net.is_asker() => net.broadcast(Head::new(cluster::Kind::Enough)),
            _ => Ok(()),
        }
    }

    /// Leaders, of all processes.
    pub(crate) fn leaders(&self) -> usize {
        self.net.as_ref().map_or(self.settings.workers, |net| net.leaders())
    }

    /// Number of this process's first leader among all.
    pub(crate) fn first_leader(&self) -> usize {
        self.net.as_ref().map_or(0, |net| net.first())
    }

    /// The worker of this process that is `leader`, if it is one.
    pub(crate) fn local(&self, leader: usize) -> Option<usize> {
        let local = leader.checked_sub(self.first_leader())?;
        (local < self.settings.workers).then_some(local)
    }

    /// Takes in what another process has sent to this one; returns segments that are free again.
    pub(crate) fn take_letter(
        &self,
        process: usize,
        head: Head,
        body: &[u8],
    ) -> Result<Vec<(i64, Segment)>> {
        let broken = |what: String| Error::Internal(format!("process {process} sent {what}"));
        let Some(net) = &self.net else { return Ok(Vec::new()) };
        let leader = || {
            let leader = head.id as usize;
            let its = leader / self.settings.workers == process;
            its.then_some(leader).ok_or_else(|| broken(format!("what leader {leader} has to say")))
        };
        match head.kind {
            cluster::Kind::Credit => {
                leader()?;
                return net.credit(head.id);
            }
            cluster::Kind::Stamp => self.intake.stamp_other(&head)?,
            cluster::Kind::Ended => {
                self.intake.ended_elsewhere(&head)?;
                self.write_waiting()?;
            }
            cluster::Kind::WindowRows if net.is_asker() => {
                self.gather.window_rows(
                    leader()?,
                    head.start,
                    decode_rows(body)?,
                    head.has(LAST),
                )?;
                self.check_gathered()?;
            }
            cluster::Kind::BatchRows if net.is_asker() => {
                let (split, ended) = (self.intake.checked(&head)?, self.intake.ended_splits());
                let rows = decode_rows(body)?;
                let enough = self.gather.stateless_rows(0, split, head.number, rows, &ended)?;
                self.check_gathered()?;
                if enough {
                    self.stop_enough()?;
                }
            }
            cluster::Kind::Fired if net.is_asker() => {
                self.fired_up_to(leader()?, head.watermark)?;
            }
            cluster::Kind::Fired => {
                self.gather.note_fired(head.watermark);
                self.wake_all();
            }
            cluster::Kind::Written => {
                self.gather.note_written(head.number, self.intake.checked(&head)?);
                self.wake_all();
            }
            cluster::Kind::Enough if process == 0 => self.stop(None),
            kind => return Err(broken(format!("a message of kind {kind:?}"))),
        }
        Ok(Vec::new())
    }

    /// Writes rows of a stateless query whose turn it is, which may be since a split has ended.
    pub(crate) fn write_waiting(&self) -> Result<()> {
        match &self.stateless {
            Some(_) => self.gather.awaited_batch(0, &self.intake.ended_splits()).map(|_| ()),
            None => Ok(()),
        }
    }

    /// Rows of other processes that wait for their order have to fit, too.
    fn check_gathered(&self) -> Result<()> {
        if self.budget.held(Kind::Segments) > 0 {
            return Ok(());
        }
        self.budget.check().map(|_| ())
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

    /// Bytes of keys and values in one fragment after which an epoch ends.
    pub(crate) fn fragment_bytes(&self) -> u64 {
        fragment_bytes(&self.settings, self.leaders())
    }

    /// Bytes of keys and values passed through to one leader that are shipped together.
    pub(crate) fn passed_bytes(&self) -> u64 {
        self.fragment_bytes().div_ceil(PASSED_SHARE)
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

    /// Whether everything that the low watermark lets go has been merged, fired and freed: if state
    /// is still at its budget then, waiting does not help.
    pub(crate) fn settled(&self, low: i64) -> bool {
        let fired = self.gather.fired();
        self.budget.held(Kind::Segments) == 0
            && self.intake.passed(fired) >= self.intake.passed(low)
    }
}

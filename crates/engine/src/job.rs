//! A job: a plan and its workers, from start to finish.

mod compile;
mod identity;
mod open;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};

use millstream_fabric::setup::Token;
use millstream_fabric::shm::ShmDevice;
use millstream_flow::channel::Settings as Channels;
use millstream_state::RowLayout;

use crate::checkpoint::{Checkpoints, Resume};
use crate::delivery::Mailboxes;
use crate::error::{Error, Result};
use crate::gather::Gather;
use crate::intake::Intake;
use crate::network::{Ends, Mesh, MeshOptions, MeshSetup, Net, Shipping, peer_error};
use crate::observe::{Cells, Snapshot};
use crate::plan::Plan;
use crate::roles::Place;
use crate::roles::Roles;
use crate::settings::{Exchange, Settings};
use crate::shared::{Cuts, Joins, Shared, StopClock};
use crate::sink::Sink;
use crate::standing::{Pace, Standing};
use crate::stats::{Leftover, Stats};
use crate::table::JobMarks;
use crate::totals::Totals;
use crate::worker::Worker;
use compile::Compiled;
pub use identity::{Fit, StageIdentity, fits, gone, identities};
use millstream_operators::budget::Budget;
use millstream_operators::env::{Env, Threads};
use open::{Opening, Outputs, load_lookups, remarks_of};

/// A plan ready to run.
pub struct Job {
    shared: Arc<Shared>,
    /// Per worker, if the job has other processes.
    ends: Vec<Ends>,
    remarks: Vec<String>,
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

    /// The job is to end: no sink waits longer for a receiver that is away ([`Sink::interrupt`]).
    /// Whether one is away now, so that a last cut would be in vain.
    pub fn interrupt_sinks(&self) -> bool {
        let sinks = self.0.gathers.iter().map(Gather::sink);
        sinks.fold(false, |is_away, sink| sink.interrupt() | is_away)
    }

    /// Lets the job end well: there are all rows that are wanted.
    pub fn enough(&self) {
        if let Err(error) = self.0.end_outputs() {
            self.0.stop(Some(error));
        }
    }

    /// The counters known while the job runs: the number of written rows. Does not wait for the
    /// job, which may itself wait for the caller.
    pub fn counters(&self) -> Stats {
        let rows = self.0.gathers.iter().map(Gather::rows).sum();
        Stats { rows, ..Stats::default() }
    }

    /// Takes a cut, with a number above those before. Workers stop for a moment between two records
    /// and save their state. Then the cut is complete ([`Checkpoints::complete`]), or else it is
    /// given up ([`Checkpoints::given_up`]), at the latest when the job ends. False, and no cut, if
    /// one is being taken, if all input has been read, if the job has no [`Checkpoints`], or in
    /// another process of the job than the first.
    pub fn cut(&self, number: u64) -> bool {
        self.0.begin_cut(number).unwrap_or_else(|error| {
            self.0.stop(Some(error));
            true
        })
    }

    /// Lets a job go on that stands at a cut with new splits ([`CutTaken::joins`]), which has been
    /// written or given up. `is_durable`: new splits are read from now on; else with a later cut.
    ///
    /// [`CutTaken::joins`]: crate::CutTaken::joins
    pub fn go_on(&self, number: u64, is_durable: bool) {
        if let Err(error) = self.0.go_on(number, is_durable) {
            self.0.stop(Some(error));
        }
    }

    /// Looks for new splits of tables that may grow
    /// ([`Table::added_splits`](crate::table::Table::added_splits)), and opens those that this
    /// process is to read, which may wait for sources. Of a job that is not simulated, a thread
    /// does this now and then.
    pub fn look_for_splits(&self) {
        let shared = self.0.clone();
        run_guarded(&shared, || shared.look_for_splits());
    }

    /// The marks of all splits that this process reads, before the first record that no worker has
    /// finished. A job that resumes there ([`Job::resume`]) reads the rest.
    ///
    /// # Errors
    /// A table has two splits of one name.
    pub fn marks(&self) -> Result<JobMarks> {
        self.0.intake.marks()
    }

    /// News for the user on sources and sinks, a line each: the last lines, in this process.
    pub fn notices(&self) -> Vec<String> {
        self.0.intake.notices().last()
    }

    /// Calls `listener` with each such line, as it happens. Another listener is replaced.
    pub fn on_notice(&self, listener: impl Fn(&str) + Send + 'static) {
        self.0.intake.notices().listen(Box::new(listener));
    }

    /// Snapshot of the job in this process; it costs each worker a moment. Waits for workers a few
    /// milliseconds at most; for a worker in a long step, the last report counts.
    pub fn observe(&self) -> Snapshot {
        match self.0.net {
            None => self.0.observe().without_spare_splits(),
            Some(_) => self.0.observe(),
        }
    }

    /// Lets the job read no more, in all its processes, and end well as if its input had ended
    /// there: what is open fires. What sources have accepted counts
    /// ([`Split::drain`](crate::table::Split::drain)).
    pub fn drain(&self) {
        self.0.drain();
    }

    /// How far the job is in this process.
    pub fn standing(&self) -> Standing {
        self.0.standing()
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
    /// Prepares `plan` to run into `sinks`, a sink for each output: lays out the state, and opens
    /// the sources.
    pub fn new(plan: &Plan, settings: &Settings, sinks: Vec<Arc<dyn Sink>>) -> Result<Job> {
        Job::resume(plan, settings, sinks, &Resume::default(), None)
    }

    /// As [`Job::new`], for a job that goes on where an earlier job stood. Chunks and records are
    /// numbered and stamped as in the earlier job. `checkpoints` has the saved state, and takes the
    /// cuts of this job.
    pub fn resume(
        plan: &Plan,
        settings: &Settings,
        sinks: Vec<Arc<dyn Sink>>,
        from: &Resume,
        checkpoints: Option<Arc<dyn Checkpoints>>,
    ) -> Result<Job> {
        if settings.exchange != Exchange::LateMerge {
            return Job::exchanging(plan, settings, sinks);
        }
        let threads = Threads::new(settings.workers, Vec::new());
        let started_us = from.started_us.unwrap_or(threads.now_us());
        let env: Arc<dyn Env> = match settings.simulate {
            Some(seed) => Arc::new(from.simulated(seed, started_us)),
            None => Arc::new(threads),
        };
        let mut plan = plan.clone();
        // Opening reports missing inputs. No input is asked behind a missing input.
        let mut are_there = true;
        let splits = plan.sources.iter().map(|source| {
            let splits = are_there.then(|| source.table.splits().ok()).flatten();
            are_there = splits.is_some();
            splits.unwrap_or_default()
        });
        plan.pack_small_input(&splits.collect::<Vec<_>>(), settings);
        plan.lay_out(&from.layouts)?;
        Job::prepare(&plan, settings, sinks, env, started_us, (from, checkpoints), None)
    }

    /// A job whose workers exchange records, over channels within this process.
    fn exchanging(plan: &Plan, settings: &Settings, sinks: Vec<Arc<dyn Sink>>) -> Result<Job> {
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
        let connected = || -> millstream_flow::channel::Result<Mesh> {
            let device = ShmDevice::open(token)?;
            let place = Place { process: 0, processes: 1 };
            let options = MeshOptions::new(settings, plan.state_stages());
            MeshSetup::new(&device, place, options, Channels::default())?.connect(&[])
        };
        let mesh = connected().map_err(|error| peer_error(0, error))?;
        let start_us = Threads::new(0, Vec::new()).now_us();
        Job::distributed(plan, settings, sinks, mesh, start_us)
    }

    /// Prepares one process's part of a job of several: `mesh` connects it with the others, which
    /// run the same plan with the same settings and the same start time (microseconds since the
    /// epoch). Rows come to process 0, unless a sink is local ([`Sink::is_local`]); the other
    /// processes' sinks are not used then.
    pub fn distributed(
        plan: &Plan,
        settings: &Settings,
        sinks: Vec<Arc<dyn Sink>>,
        mesh: Mesh,
        start_us: i64,
    ) -> Result<Job> {
        Job::distributed_from(plan, settings, sinks, mesh, start_us, (&Resume::default(), None))
    }

    /// As [`Job::distributed`], for a job that goes on where an earlier job stood, with any number
    /// of processes: the same place, and start time, in all processes. The `Checkpoints` of process
    /// 0 complete the cuts.
    pub fn distributed_from(
        plan: &Plan,
        settings: &Settings,
        sinks: Vec<Arc<dyn Sink>>,
        mesh: Mesh,
        start_us: i64,
        from: (&Resume, Option<Arc<dyn Checkpoints>>),
    ) -> Result<Job> {
        let wakers = mesh.wakers();
        let env = Arc::new(Threads::new(settings.workers, wakers));
        let mut plan = plan.clone();
        plan.lay_out(&from.0.layouts)?;
        Job::prepare(&plan, settings, sinks, env, start_us, from, Some(mesh))
    }

    pub(crate) fn prepare(
        plan: &Plan,
        settings: &Settings,
        sinks: Vec<Arc<dyn Sink>>,
        env: Arc<dyn Env>,
        started_us: i64,
        (from, checkpoints): (&Resume, Option<Arc<dyn Checkpoints>>),
        mesh: Option<Mesh>,
    ) -> Result<Job> {
        let began_us = if from.started_us.is_some() { env.now_us() } else { started_us };
        let (workers, settings) = (settings.workers, settings.clone());
        let compiled = Compiled::new(plan, &settings)?;
        let place = mesh.as_ref().map_or(Place { process: 0, processes: 1 }, |mesh| mesh.place);
        let leaders = place.processes * workers;
        let network = mesh.map(|mesh| network(mesh, &compiled, &settings, leaders)).transpose()?;
        let (net, ends) = network.map_or((None, Vec::new()), |(net, ends)| (Some(net), ends));
        // What has no keys is not exchanged.
        let roles = match compiled.operations.is_empty() {
            false => Roles::new(settings.exchange, place.processes, workers),
            true => Roles::default(),
        };
        let reading = roles.reading(place, workers);
        let holders = compiled.holders.clone();
        let budget =
            Arc::new(Budget::new(settings.memory_bytes, workers, holders, settings.batch_rows));
        let starts_us = (started_us, began_us);
        let mut remarks = load_lookups(&compiled, &settings, starts_us, &budget, &from.lookups)?;
        let opening = Opening { plan, compiled: &compiled, settings: &settings, sinks: &sinks };
        let (origins, growing) =
            opening.origins((place, reading), started_us, from, checkpoints.is_some())?;
        remarks.extend(remarks_of(&origins));
        let intake =
            Intake::new(origins, env.clone(), net.clone(), workers, reading, budget.clone());
        let outputs =
            Outputs { plan, compiled: &compiled, settings: &settings, intake: &intake, from };
        let gathers = outputs.open(sinks.clone(), &net, &budget)?;
        remarks.extend(sinks.iter().filter_map(|sink| sink.remark()));
        let (stages, edges) = compiled.into_stages(&settings, leaders);
        let shared = Shared {
            intake,
            gathers,
            net,
            roles,
            stopping: AtomicBool::new(false),
            pace: Pace::new(workers),
            closing: AtomicBool::new(false),
            error: Mutex::new(None),
            latencies: Mutex::default(),
            cells: Cells::new(settings.workers),
            draining: AtomicBool::new(false),
            started_us,
            began_us,
            budget,
            cuts: Cuts::new(stages.len(), workers, place),
            joins: Joins::new(growing),
            stops: StopClock::default(),
            checkpoints,
            resumed: from.frontiers.clone(),
            layouts: plan.layouts(),
            before: if place.process == 0 { from.totals } else { Totals::default() },
            stages,
            edges,
            settings,
            env,
        };
        // Those of a LIMIT of 0 rows.
        shared.close_unwanted();
        Ok(Job { shared: Arc::new(shared), ends, remarks })
    }

    /// Names of the splits, in order.
    pub fn splits(&self) -> Vec<String> {
        self.shared.intake.described()
    }

    /// Remarks for the user on the splits and the sinks, a line each.
    pub fn remarks(&self) -> &[String] {
        &self.remarks
    }

    /// A handle to stop the job with.
    pub fn stopper(&self) -> Stopper {
        Stopper(self.shared.clone())
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(crate) fn env(&self) -> Arc<dyn Env> {
        self.shared.env.clone()
    }

    pub(crate) fn workers(&mut self) -> Vec<Worker> {
        let mut ends = std::mem::take(&mut self.ends).into_iter();
        let mailboxes = Arc::new(Mailboxes::new(self.shared.settings.workers));
        let worker = |id| Worker::new(id, self.shared.clone(), mailboxes.clone(), ends.next());
        (0..self.shared.settings.workers).map(worker).collect()
    }

    /// When all workers are done: takes in what other processes still have for this one and ends
    /// all streams in order, a step at a time. Returns whether that is done.
    pub(crate) fn end_streams(&self, workers: &mut [Worker]) -> Result<bool> {
        let shared = &self.shared;
        let Some(net) = &shared.net else { return Ok(true) };
        if shared.has_failed() {
            // The other processes receive the reason over their control connections.
            return Ok(true);
        }
        if net.is_coordinator() && shared.has_enough() {
            // The others stop once informed.
            net.pump()?;
            return Ok((1..net.place.processes).all(|process| net.is_told(process)));
        }
        if shared.stopping.load(Relaxed) {
            return Ok(true);
        }
        let mut some = net.pump()?;
        some |= net.receive(true, |process, head, body| {
            shared.take_message(process, head, &body).map(|_| ())
        })?;
        // Frees room; other processes hear of the room.
        while shared.write_shares(0)?.is_some() {
            some = true;
        }
        if some {
            shared.pace.has_done(shared.pace.last());
        }
        let mut ended = net.finish()?;
        for worker in workers {
            ended &= worker.finish_streams()?;
        }
        Ok(ended)
    }

    /// The end of the job: what it came to.
    pub(crate) fn close(&self, workers: &[Worker]) -> (Stats, Result<()>) {
        let cut = self.shared.cuts.finish();
        self.shared.checkpoints.iter().for_each(|checkpoints| checkpoints.ended(cut));
        let result = match self.shared.take_error() {
            Some(error) => Err(error),
            None => self.finish(),
        };
        let mut stats = self.stats(workers);
        match result.is_ok() && !self.shared.stopping.load(Relaxed) {
            true => stats.left.bytes += self.shared.budget.held_beside_state(),
            false => stats.left = Leftover::default(),
        }
        if result.is_err() && self.shared.gathers.iter().any(Gather::is_windowed) {
            stats.open_windows = Some(workers.iter().flat_map(Worker::open_windows).collect());
        }
        (stats, result)
    }

    /// After the last worker: the sinks' ends.
    fn finish(&self) -> Result<()> {
        let shared = &self.shared;
        if shared.net.as_ref().is_some_and(|net| !net.is_coordinator()) && shared.has_enough() {
            return Ok(());
        }
        let ended = shared.intake.ended_splits();
        shared.gathers.iter().try_for_each(|gather| gather.finish(&ended))
    }

    fn stats(&self, workers: &[Worker]) -> Stats {
        let shared = &self.shared;
        let mut stats = Stats::default();
        workers.iter().for_each(|worker| stats.add(worker.stats()));
        if let Some(net) = &shared.net {
            stats.note_shipped(&net.counters());
        }
        let counted = shared.counted();
        (stats.rows, stats.windows, stats.outputs) =
            (counted.rows, counted.windows, counted.outputs);
        let (peak, rest) = (shared.budget.peak(), shared.budget.rest());
        (stats.state_bytes_peak, stats.state_live_bytes_at_peak) = (peak.bytes, peak.live_bytes);
        (stats.state_bytes_rest, stats.state_live_bytes_rest) = (rest.bytes, rest.live_bytes);
        stats.memory_bytes_peak = shared.budget.most();
        let mut latencies = shared.latencies.lock().unwrap_or_else(PoisonError::into_inner);
        stats.fire_latency_us = latencies.take();
        stats.elapsed_us = (shared.env.now_us() - shared.began_us).max(0) as u64;
        stats.before = shared.before;
        stats
    }
}

/// The job's network: channels for each of its stages.
fn network(
    mesh: Mesh,
    compiled: &Compiled,
    settings: &Settings,
    leaders: usize,
) -> Result<(Arc<Net>, Vec<Ends>)> {
    let exchange = mesh.options.exchange;
    if settings.exchange != exchange {
        let message = format!("{:?} over channels for {exchange:?}", settings.exchange);
        return Err(Error::Internal(message));
    }
    let stages = compiled.operations.len().max(1);
    let shipping = |number: usize| {
        let program = compiled.program(number);
        let none = || Arc::new(RowLayout::new(0, Vec::new(), &[]));
        let limits = compiled.limits(settings, leaders, number);
        Shipping {
            layout: program.map_or_else(none, |program| program.layout().clone()),
            format: program.and_then(|program| program.format().cloned()),
            fragment_bytes: limits.fragment_bytes as usize,
            passed_bytes: limits.passed_bytes() as usize,
        }
    };
    let (net, ends) = Net::new(mesh, &(0..stages).map(shipping).collect::<Vec<_>>())?;
    Ok((Arc::new(net), ends))
}

/// Runs a worker so that neither an error nor a panic leaves the others waiting; `None` if there
/// was one.
pub(crate) fn run_guarded<T>(shared: &Shared, run: impl FnOnce() -> Result<T>) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(value)) => return Some(value),
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

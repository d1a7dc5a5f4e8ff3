//! The parts of a job that all workers of a process share, and how the job stops.

mod cuts;
mod cutting;
mod joining;
mod joins;
mod latencies;
mod messages;
mod observed;
mod outputs;
mod stops;
mod windows;

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};

use millstream_state::Mode;

use crate::checkpoint::Checkpoints;
use crate::edges::Edges;
use crate::error::{Error, Result};
use crate::gather::Gather;
use crate::intake::Intake;
use crate::network::{self, Head, Net};
use crate::observe::Cells;
use crate::plan::Layout;
use crate::roles::Roles;
use crate::settings::{FragmentMode, Settings};
use crate::stage::Stage;
use crate::standing::{Pace, Standing};
use crate::totals::Totals;
pub(crate) use cuts::Cuts;
pub(crate) use joins::{Growing, Joins};
use latencies::Latencies;
use millstream_operators::budget::{self, Budget};
use millstream_operators::env::Env;
pub(crate) use stops::StopClock;

/// State shared by all workers of a job.
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    pub(crate) env: Arc<dyn Env>,
    pub(crate) intake: Intake,
    /// By output.
    pub(crate) gathers: Vec<Gather>,
    /// Stages with state, in topological order.
    pub(crate) stages: Vec<Arc<Stage>>,
    pub(crate) edges: Edges,
    pub(crate) stopping: AtomicBool,
    /// The job's other processes; `None` if there are none.
    pub(crate) net: Option<Arc<Net>>,
    /// Senders and receivers, if records are exchanged.
    pub(crate) roles: Roles,
    pub(crate) budget: Arc<Budget>,
    pub(crate) pace: Pace,
    /// All workers have ended, and the job is being closed.
    pub(crate) closing: AtomicBool,
    pub(crate) error: Mutex<Option<Error>>,
    pub(crate) latencies: Mutex<Latencies>,
    /// Reports of workers to the observer.
    pub(crate) cells: Cells,
    /// Somebody has asked to read no more.
    pub(crate) draining: AtomicBool,
    /// When the first job was started, and this one, which may go on where that stood.
    pub(crate) started_us: i64,
    pub(crate) began_us: i64,
    /// The store of the job's cuts; `None`: the job takes no cuts.
    pub(crate) checkpoints: Option<Arc<dyn Checkpoints>>,
    pub(crate) cuts: Cuts,
    /// Tables that may grow.
    pub(crate) joins: Joins,
    pub(crate) stops: StopClock,
    /// By stage: the windows that fire up to this watermark fired in the job before.
    pub(crate) resumed: Vec<i64>,
    /// By stage: its packing.
    pub(crate) layouts: Vec<Layout>,
    /// In the first process: counts of the runs before this one.
    pub(crate) before: Totals,
}

pub(crate) use observed::OPEN_MAX;

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

    /// Logs what this process is about to run.
    pub(crate) fn tell_start(&self) {
        let names = self.stages.iter().map(|stage| stage.program.name());
        let stages = names.collect::<Vec<_>>().join("; ");
        let processes = self.net.as_ref().map_or(1, |net| net.place.processes);
        let (workers, memory_bytes) = (self.settings.workers, self.settings.memory_bytes);
        let outputs = self.gathers.len();
        tracing::info!(processes, workers, memory_bytes, stages, outputs, "workers start");
        self.intake.tell_sources();
    }

    /// Wakes all workers but `worker`, who would look again in vain before it waits.
    pub(crate) fn wake_others(&self, worker: usize) {
        let others = (0..self.settings.workers).filter(|other| *other != worker);
        others.for_each(|other| self.env.wake(other));
    }

    /// How far this process is.
    pub(crate) fn standing(&self) -> Standing {
        let (steps, waits) = self.pace.look();
        // A slow store is no reason to end the job: the setting `checkpoint.tolerance` is.
        let saves = self.budget.held(budget::Kind::Saved) > 0;
        let waits = waits && !saves && !self.closing.load(Relaxed);
        Standing { steps, waits_for: if waits { self.intake.waits_for() } else { None } }
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.error.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Whether the job stops since all rows that are wanted are there.
    pub(crate) fn has_enough(&self) -> bool {
        self.stopping.load(Relaxed) && !self.has_failed()
    }

    /// Leaders, of all processes.
    pub(crate) fn leaders(&self) -> usize {
        self.net.as_ref().map_or(self.settings.workers, |net| net.leaders())
    }

    /// Number of this process's first leader among all.
    pub(crate) fn first_leader(&self) -> usize {
        self.net.as_ref().map_or(0, |net| net.first())
    }

    /// The worker of this process that is `leader`; `None` for a leader elsewhere.
    pub(crate) fn local(&self, leader: usize) -> Option<usize> {
        let local = leader.checked_sub(self.first_leader())?;
        (local < self.settings.workers).then_some(local)
    }

    pub(crate) fn take_error(&self) -> Option<Error> {
        self.error.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(crate) fn fragment_mode(&self) -> Option<Mode> {
        match self.settings.fragment_mode {
            FragmentMode::Auto => None,
            FragmentMode::Aggregate => Some(Mode::Aggregate),
            FragmentMode::PassThrough => Some(Mode::PassThrough),
            FragmentMode::Joint => Some(Mode::Joint),
        }
    }

    /// Reads no more, in all processes, and ends as if the input had ended there.
    pub(crate) fn drain(&self) {
        if let Err(error) = self.begin_to_drain(true) {
            self.stop(Some(error));
        }
    }

    /// Begins to drain. `tells`: informs the other processes.
    fn begin_to_drain(&self, tells: bool) -> Result<()> {
        if self.draining.swap(true, Relaxed) {
            return Ok(());
        }
        tracing::info!("the job is being drained: nothing more is read");
        if let Some(net) = self.net.as_ref().filter(|_| tells) {
            net.broadcast(Head::new(network::Kind::Drain))?;
        }
        self.intake.drain()?;
        // What waited for rows of a split that has ended now.
        self.queue_batches();
        self.wake_all();
        Ok(())
    }
}

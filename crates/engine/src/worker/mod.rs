//! A worker: the scheduler of one thread over its coroutines (paper, section 5.3).
//!
//! Each step runs a single coroutine for a bounded time, the first with work: receive and merge
//! deltas of others; send waiting rows, and end the epoch of a stage; write rows in their turn;
//! fire complete windows; take in a batch; merge deferred deltas. The job's [`crate::delivery`]
//! defines sending and receiving. Of several stages the last has its turn first, since its work
//! makes room for earlier stages. A step never waits for another worker, so a whole job also runs
//! on a single thread, a step at a time.

mod admission;
mod cut;
mod firing;
mod input;
mod network;
mod observed;
mod open;
mod passed;
mod push;
mod sleep;
mod update;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::delivery::{self, Delivery, Endpoints, Mailboxes};
use crate::error::Result;
use crate::network::Ends;
use crate::observe::Doing;
use crate::obstacle::Obstacle;
use crate::progress::{Context, StageState};
use crate::rows::Rows;
use crate::shared::Shared;
use crate::stats::{ModeStats, Stats};
use millstream_operators::budget::Held;
use millstream_operators::operator::{Counters, ModeReport, RowTimes};
use millstream_operators::windowing::WindowId;
use sleep::SleepState;

/// Result of a step.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Something was done.
    Busy,
    /// Nothing to do before `until_us`, or before somebody wakes the worker.
    Wait {
        /// The job's clock.
        until_us: Option<i64>,
    },
    /// This worker has nothing left to do.
    Done,
}

/// Rows of a window that has fired.
struct FiredRows {
    rows: Rows,
    window: WindowId,
    times: RowTimes,
    /// Whether they are this leader's last of the window.
    last: bool,
}

/// How long the worker has stood still for the cut that is being taken.
#[derive(Debug, Default)]
struct Standing {
    /// Since when it does now.
    since: Option<i64>,
    /// Microseconds before.
    us: i64,
}

pub(crate) struct Worker {
    context: Context,
    /// Delivery of rows to the leaders of their keys, and from other workers.
    delivery: Box<dyn Delivery>,
    /// Stages with state, by number. Taken out during their work.
    stages: Vec<StageState>,
    /// By source: why it is not read now.
    held: Vec<Option<Obstacle>>,
    /// By stage: why the rows of its window do not go on.
    blocked: Vec<Option<Obstacle>>,
    /// By stage: fired rows that wait until all their readers have room.
    waiting: Vec<Option<(FiredRows, Held)>>,
    /// `None` if the job has no channels.
    sleep: Option<SleepState>,
    /// Activity between two steps, as the observer counts it.
    doing: Doing,
    /// Number of the observer's last answered request.
    answered: u64,
    /// The last cut for which the worker's state has been saved.
    saved: Option<u64>,
    /// Whether state of a stage may be set aside still.
    thaws: bool,
    thaws_held: Option<Held>,
    /// `None`: it has not stood still for a cut, or has gone on.
    standing: Option<Standing>,
    /// Whether the worker has the state of the job before, if there was one.
    restored: bool,
}

impl Worker {
    pub(crate) fn new(
        id: usize,
        shared: Arc<Shared>,
        mailboxes: Arc<Mailboxes>,
        ends: Option<Ends>,
    ) -> Worker {
        let context = Context::new(id, shared);
        let shared = &context.shared;
        let state = |stage| StageState::new(stage, context.leader, shared);
        let stages: Vec<StageState> = shared.stages.iter().map(state).collect();
        let (sleep, endpoints) = match ends {
            Some(Ends { deltas_in, lanes, sleeper }) => {
                (Some(SleepState::new(sleeper)), Endpoints { deltas_in, lanes })
            }
            None => (None, Endpoints::default()),
        };
        Worker {
            delivery: delivery::new(&context, mailboxes, endpoints),
            blocked: vec![None; stages.len()],
            waiting: stages.iter().map(|_| None).collect(),
            stages,
            held: Vec::new(),
            sleep,
            doing: Doing::Step,
            answered: 0,
            saved: None,
            thaws: false,
            thaws_held: None,
            standing: None,
            restored: false,
            context,
        }
    }

    /// Counters so far.
    pub(crate) fn stats(&self) -> &Stats {
        &self.context.stats
    }

    /// Runs on its own thread until there is nothing left to do.
    pub(crate) fn run(&mut self) -> Result<()> {
        loop {
            let (id, shared) = (self.context.id, self.context.shared.clone());
            shared.pace.begin(id);
            self.begin_step();
            let step = self.step().inspect_err(|_| shared.cells.turn_to(id, Doing::Done))?;
            shared.pace.end(id, step == Step::Busy);
            self.end_step(&step);
            match step {
                Step::Busy => self.wait_anew(),
                Step::Wait { until_us } => self.wait(until_us)?,
                Step::Done => return Ok(()),
            }
        }
    }

    /// Resumes one coroutine.
    pub(crate) fn step(&mut self) -> Result<Step> {
        let mut stages = std::mem::take(&mut self.stages);
        let step = match self.context.shared.stopping.load(Relaxed) {
            true => Ok(Step::Done),
            false => self.step_in_turn(&mut stages),
        };
        if matches!(step, Err(_) | Ok(Step::Done)) {
            self.count(&stages);
        }
        if matches!(step, Ok(Step::Done)) && !self.context.shared.stopping.load(Relaxed) {
            stages.iter_mut().for_each(|state| self.context.stats.left.add(&state.leftover()));
        }
        self.stages = stages;
        self.context.has_waited |= matches!(step, Ok(Step::Wait { .. }));
        step
    }

    /// Resumes the next coroutine, in the order of a worker's duties.
    fn step_in_turn(&mut self, stages: &mut [StageState]) -> Result<Step> {
        if !std::mem::replace(&mut self.restored, true) {
            self.restore(stages)?;
        }
        if self.standing.is_some() {
            self.stop_standing();
        }
        let Worker { context, delivery, .. } = self;
        delivery.collect(context);
        self.serve_network(stages)?;
        if self.delivery.receive(&mut self.context, stages)? {
            return Ok(Step::Busy);
        }
        // Before firing, however much there is to fire: the others wait for this worker's
        // watermark.
        if self.delivery.announce(&mut self.context, stages)? {
            return Ok(Step::Busy);
        }
        if self.write_some()? {
            return Ok(Step::Busy);
        }
        let tight = self.context.shared.budget.tight();
        if tight {
            stages.iter_mut().for_each(|state| self.context.give_back(state));
        }
        if self.thaws && self.thaw_some(stages) {
            return Ok(Step::Busy);
        }
        if self.fire_some(stages, tight)? {
            return Ok(Step::Busy);
        }
        let step = match self.step_to_cut(stages)? {
            Some(step) => step,
            None if self.may_end(stages)? => return Ok(self.end(stages)),
            None => self.take_input(stages, tight)?,
        };
        if !matches!(step, Step::Wait { .. }) {
            return Ok(step);
        }
        // What has been left for later is better than nothing.
        let some = self.delivery.receive_put_off(&mut self.context, stages)?
            || self.serve_all_peers(stages)?;
        Ok(if some { Step::Busy } else { step })
    }

    /// Whether nothing is left to be done, and no cut can come.
    fn may_end(&self, stages: &[StageState]) -> Result<bool> {
        let fires = self.blocked.iter().any(Option::is_some);
        let shared = &self.context.shared;
        Ok(!fires
            && self.delivery.is_over(&self.context, stages)
            && shared.may_end(self.context.id)?)
    }

    /// Nothing is left to be done, but for the last credit that is on its way.
    fn end(&mut self, stages: &mut [StageState]) -> Step {
        debug_assert!(stages.iter().all(StageState::is_empty), "state is left");
        for state in &mut *stages {
            state.operator.end();
            self.context.give_back(state);
        }
        match self.delivery.is_empty(&self.context) {
            true => Step::Done,
            false => Step::Busy,
        }
    }

    /// Waits, but not beyond the end of an epoch that has changes, and not with mail outside, or
    /// with rows that nobody writes.
    fn pause(&self, stages: &[StageState], until_us: Option<i64>) -> Step {
        if self.delivery.has_mail(&self.context) || self.context.shared.needs_writer() {
            return Step::Busy;
        }
        let idle_us = self.context.shared.settings.epoch_max_idle_us();
        let changed_at_us = stages.iter().filter_map(|state| state.changed_at_us).min();
        let epoch_end = changed_at_us.map(|at| at.saturating_add(idle_us));
        let waits = self.thaws || self.context.shared.cuts.writes();
        let look_again = if waits { self.await_thaw() } else { None };
        Step::Wait { until_us: [until_us, epoch_end, look_again].into_iter().flatten().min() }
    }

    /// The counters that are not kept up to date: at the end.
    fn count(&mut self, stages: &[StageState]) {
        let mut all = Counters::default();
        stages.iter().for_each(|state| all.add(&state.operator.counters()));
        let Counters { growths, switches, joint_rows } = all;
        let stats = &mut self.context.stats;
        (stats.index_growths, stats.mode_switches) = (growths, switches);
        stats.joint_rows_in = joint_rows;
        let worker = self.context.leader + 1;
        for (of_stage, state) in stats.stages.iter_mut().zip(stages) {
            let report = state.operator.mode();
            let stats_of = |ModeReport { mode, ns, switches, switched_at }| ModeStats {
                worker,
                mode: mode.to_string(),
                ns,
                switches,
                switched_at,
            };
            of_stage.modes = report.map(stats_of).into_iter().collect();
        }
        self.delivery.count(&mut self.context);
    }
}

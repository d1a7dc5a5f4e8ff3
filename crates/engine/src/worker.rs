//! A worker: the scheduler of one thread over its coroutines (paper, section 5.3).
//!
//! Each step runs one coroutine for a bounded time, the first of these that has something to do:
//! receive and merge what others have sealed; end the epoch of a stage; fire complete windows;
//! process a batch; merge what was put off. Of several stages the last has its turn first, since
//! what it does makes room for the others. A step never waits for another worker, so a whole job
//! also runs on one thread, a step at a time.

mod epoch;
mod firing;
mod gates;
mod input;
mod open;
mod pressure;
mod remote;
mod repartition;
mod state;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::cluster::Ends;
use crate::error::Result;
use crate::event_time::END;
use crate::flow::Root;
use crate::job::Shared;
use crate::meter;
use crate::pipeline::Buffers;
use crate::slices::Counters;
use crate::stats::Stats;
use epoch::Delta;
use firing::Fired;
use remote::Remote;
use repartition::Repartition;
use state::State;

pub(crate) use remote::AWAKE;

/// What workers send each other.
pub(crate) enum Message {
    /// What changed in an epoch, with the watermark it covers.
    Delta(Delta),
    /// The leader has merged a delta of a stage, and has no more windows of it to fire than it can
    /// cope with.
    Credit {
        /// The stage's number.
        stage: usize,
        /// Who has merged.
        leader: usize,
    },
}

/// What a step came to.
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

pub(crate) struct Worker {
    /// Its number in this process.
    id: usize,
    /// Its number among all leaders of the job.
    leader: usize,
    shared: Arc<Shared>,
    /// What comes from other processes, if there are any.
    remote: Option<Remote>,
    /// Its roles, if the job exchanges records. Taken out while they are played, as the state is.
    repartition: Option<Box<Repartition>>,
    inbox: VecDeque<Message>,
    /// Those with state, by number. Taken out while they are worked on.
    stages: Vec<State>,
    /// By source: its low watermark, as of the last step.
    lows: Vec<i64>,
    /// By stage: what stands in the way of what it has to fire.
    blocked: Vec<Fired>,
    buffers: Buffers,
    places: Places,
    pub(crate) stats: Stats,
}

/// Where rows stand that are being fired, kept for its memory: each step fills it before reading.
#[derive(Default)]
struct Places(Vec<*const u64>);

// SAFETY: what a step has left here is not read any more.
unsafe impl Send for Places {}

impl Worker {
    pub(crate) fn new(id: usize, shared: Arc<Shared>, mut ends: Option<Ends>) -> Worker {
        let leader = shared.first_leader() + id;
        let stages: Vec<State> =
            shared.stages.iter().map(|stage| State::new(stage, leader, &shared)).collect();
        let lanes = ends.as_mut().map(|ends| std::mem::take(&mut ends.lanes));
        let exchanged = shared.stages.first().filter(|_| shared.roles.exchange());
        let repartition = exchanged.zip(lanes).map(|(stage, lanes)| {
            let workers = shared.settings.workers;
            Box::new(Repartition::new(leader, &shared.roles, workers, &stage.grouping, lanes))
        });
        Worker {
            id,
            leader,
            remote: ends.map(|ends| Remote::new(ends, shared.net.as_deref())),
            shared,
            repartition,
            inbox: VecDeque::new(),
            blocked: vec![Fired::Nothing; stages.len()],
            stages,
            lows: Vec::new(),
            buffers: Buffers::default(),
            places: Places::default(),
            stats: Stats::default(),
        }
    }

    /// Runs on its own thread until there is nothing left to do.
    pub(crate) fn run(&mut self) -> Result<()> {
        loop {
            self.shared.pace.begin(self.id);
            let step = self.step()?;
            self.shared.pace.end(self.id, step == Step::Busy);
            match step {
                Step::Busy => self.wait_anew(),
                Step::Wait { until_us } => self.wait(until_us)?,
                Step::Done => return Ok(()),
            }
        }
    }

    /// Resumes one coroutine.
    pub(crate) fn step(&mut self) -> Result<Step> {
        let _span = meter::span(meter::Kind::Step);
        if self.shared.stopping.load(Relaxed) {
            self.finish_counters();
            return Ok(Step::Done);
        }
        let mut stages = std::mem::take(&mut self.stages);
        let step = match self.repartition.take() {
            None => self.step_merging(&mut stages),
            Some(mut roles) => {
                let step = self.step_repartition(&mut stages, &mut roles);
                self.repartition = Some(roles);
                step
            }
        };
        self.stages = stages;
        if step.is_err() {
            self.finish_counters();
        }
        step
    }

    fn step_merging(&mut self, stages: &mut [State]) -> Result<Step> {
        let step = self.step_in_turn(stages)?;
        if matches!(step, Step::Wait { .. }) {
            for state in stages.iter_mut().rev() {
                // What has been left for later is better than nothing.
                if self.merge_received(state, END)? {
                    return Ok(Step::Busy);
                }
            }
        }
        Ok(step)
    }

    /// Resumes the coroutine whose turn it is.
    fn step_in_turn(&mut self, stages: &mut [State]) -> Result<Step> {
        let shared = self.shared.clone();
        // In simulation, messages take their time.
        let delivers = shared.env.choose(4) != Some(0);
        if delivers {
            self.inbox.extend(shared.mailboxes[self.id].take());
        }
        self.exchange(stages)?;
        if self.merge_one(stages)? {
            return Ok(Step::Busy);
        }
        for state in stages.iter_mut().rev() {
            if self.merge_received(state, takes_up_to(state))? {
                return Ok(Step::Busy);
            }
        }
        for state in stages.iter_mut() {
            self.return_credit(state)?;
        }
        // Before firing, however much there is to fire: the others wait for this worker's
        // watermark.
        if self.end_epochs(stages)? {
            return Ok(Step::Busy);
        }
        let tight = shared.budget.tight();
        if tight {
            stages.iter_mut().for_each(|state| self.give_back(state));
        }
        if self.fire_some(stages, tight)? {
            return Ok(Step::Busy);
        }
        let fires = self.blocked.iter().any(|fired| *fired != Fired::Nothing);
        if !fires && stages.iter().all(State::is_over) && !shared.intake.has_more() {
            debug_assert!(stages.iter().all(State::is_empty), "state is left");
            self.finish_with(stages);
            stages.iter_mut().for_each(|state| self.give_back(state));
            let empty = self.inbox.is_empty() && shared.mailboxes[self.id].is_empty();
            return Ok(if empty { Step::Done } else { Step::Busy });
        }
        self.take_input(stages, tight)
    }

    /// Ends the epoch of the last stage for which it is time; false if there is none.
    fn end_epochs(&mut self, stages: &mut [State]) -> Result<bool> {
        self.shared.intake.finish(self.id, &mut self.lows)?;
        for number in 0..stages.len() {
            let low = |root: &Root| match root {
                Root::Source(source) => self.lows[*source],
                Root::Stage(before) => stages[*before].watermark_of_rows(),
            };
            let low = stages[number].stage.inputs.iter().map(low).min();
            stages[number].low = low.unwrap_or(END);
        }
        for state in stages.iter_mut().rev() {
            if let Some(seal) = self.epoch_is_over(state) {
                self.end_epoch(state, state.low, seal)?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Waits, but not beyond the end of an epoch that has changes, and not with mail outside.
    fn pause(&self, stages: &[State], until_us: Option<i64>) -> Step {
        if !self.shared.mailboxes[self.id].is_empty() {
            return Step::Busy;
        }
        let idle_us = self.shared.settings.epoch_max_idle_us();
        let changed_at_us = stages.iter().filter_map(|state| state.changed_at_us).min();
        let epoch_end = changed_at_us.map(|at| at.saturating_add(idle_us));
        Step::Wait { until_us: [until_us, epoch_end].into_iter().flatten().min() }
    }

    fn finish_with(&mut self, stages: &[State]) {
        let mut all = Counters::default();
        stages.iter().for_each(|state| all.add(&state.slices.counters()));
        let Counters { growths, switches, joint_rows } = all;
        (self.stats.index_growths, self.stats.mode_switches) = (growths, switches);
        self.stats.joint_rows_in = joint_rows;
    }

    fn finish_counters(&mut self) {
        let stages = std::mem::take(&mut self.stages);
        self.finish_with(&stages);
        self.stages = stages;
    }
}

/// Rows that processes ahead of this one pass through are left in their channels, with all that is
/// behind them, while they are of windows that begin later than this: those that its own input has
/// not reached, and all but the one that fires. Taken at once, they would fill a second large table
/// beside the one that is full; left there, they keep who is ahead from getting farther.
fn takes_up_to(state: &State) -> i64 {
    match &state.firing {
        _ if state.stage.windowing().is_whole() => END,
        Some(fire) => fire.start,
        None if state.clock.min() > state.frontier => state.frontier,
        None => state.low.max(state.slices.latest()),
    }
}

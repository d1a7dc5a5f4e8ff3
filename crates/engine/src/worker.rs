//! A worker: one thread's scheduler over its coroutines (paper, section 5.3).
//!
//! Each step runs one coroutine for a bounded time, in this order: receive and merge what others
//! have sealed; end the epoch if it is time; fire complete windows; process a batch; merge what was
//! left for later. A step never waits for another worker, so a whole job also runs on one thread, a
//! step at a time.

mod epoch;
mod open;
mod pressure;
mod remote;
mod repartition;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use millstream_state::{Leaders, Load, VectorClock};

use crate::budget::{Usage, batch_bytes};
use crate::cluster::{DELTAS_IN_FLIGHT_MAX, Ends, Stall};
use crate::error::{Error, Result};
use crate::event_time::{BEGINNING, END};
use crate::fire::{Finisher, Fire};
use crate::gather::StatelessRows;
use crate::intake::{Only, Stamped, Taken};
use crate::job::Shared;
use crate::meter;
use crate::pipeline::{Buffers, Grouping, Stateless};
use crate::skipped::{note_malformed, note_row, place_of};
use crate::slices::{Counters, Slices};
use crate::stats::Stats;
use epoch::{Delta, Seal};
use pressure::STALL_US;
use remote::Remote;
use repartition::Repartition;

pub(crate) use remote::AWAKE;

/// Rows of a window that take so much more than twice what was foreseen, since texts are computed of
/// them, are held against the budget when they are there.
const UNFORESEEN_BYTES: u64 = 64 << 10;

/// What workers send each other.
pub(crate) enum Message {
    /// What changed in an epoch, with the watermark it covers.
    Delta(Delta),
    /// The leader has merged a delta, and has no more windows to fire than it can cope with.
    Credit {
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
    /// Taken out while it is worked on, so in a place of its own.
    state: Option<Box<State>>,
    buffers: Buffers,
    places: Places,
    pub(crate) stats: Stats,
}

/// Where rows stand that are being fired, kept for its memory: each step fills it before reading.
#[derive(Default)]
struct Places(Vec<*const u64>);

// SAFETY: what a step has left here is not read any more.
unsafe impl Send for Places {}

/// What a worker of a stateful job has besides.
struct State {
    slices: Slices,
    clock: VectorClock,
    firing: Option<Fire>,
    epoch: u64,
    epoch_input_bytes: u64,
    /// The watermark of the last epoch's end.
    announced: i64,
    /// The process's low watermark, as of the last step.
    low: i64,
    /// Whether other processes were told then that this one waits for idle sources.
    told_idle: bool,
    /// When the last batch was done, while the epoch has changes.
    changed_at_us: Option<i64>,
    /// Per leader of this process: deltas sent, for which credit has not come back.
    in_flight: Vec<usize>,
    /// Helpers (workers of this process, then processes) whose deltas have been merged and to which
    /// credit is to be returned.
    owed: Vec<Owed>,
    /// Per helper: the epoch that must come next.
    expected: Vec<u64>,
    /// Windows that fire up to this have been fired and told to the gather stage.
    frontier: i64,
    /// The vector clock when state at rest was last noted.
    rested: i64,
    usage: Usage,
    /// Segments and messages merged since `usage` was noted, and bytes of the latter.
    uncounted: usize,
    uncounted_bytes: u64,
}

/// Credit for a delta that has been merged.
struct Owed {
    helper: usize,
    /// It knows that the delta has been merged, in another process, and waits for the rest.
    told: bool,
}

impl Worker {
    pub(crate) fn new(id: usize, shared: Arc<Shared>, mut ends: Option<Ends>) -> Worker {
        let workers = shared.settings.workers;
        let leader = shared.first_leader() + id;
        let helpers = workers + shared.net.as_ref().map_or(0, |net| net.place.processes);
        let exchanges = shared.roles.exchange();
        let state = shared.aggregation.as_ref().map(|(grouping, _)| {
            let senders = shared.roles.senders.len();
            let mut clock = VectorClock::new(if exchanges { senders } else { helpers });
            if let Some(net) = shared.net.as_ref().filter(|_| !exchanges) {
                // Its workers have their own entries.
                clock.advance(workers + net.place.process, END);
            }
            // A receiver meets no keys but its own.
            let (leaders, me) = if exchanges { (1, 0) } else { (shared.leaders(), leader) };
            Box::new(State {
                slices: Slices::new(
                    grouping.layout.clone(),
                    Leaders::even(leaders),
                    me,
                    shared.fragment_mode(),
                    (shared.pool_bytes(), shared.net.as_ref().map(|net| net.heap.clone())),
                    shared.net.as_ref().map_or(0, |net| net.message_bytes),
                ),
                clock,
                firing: None,
                epoch: 0,
                epoch_input_bytes: 0,
                announced: BEGINNING,
                low: BEGINNING,
                told_idle: false,
                changed_at_us: None,
                in_flight: vec![0; workers],
                owed: Vec::new(),
                expected: vec![0; helpers],
                frontier: BEGINNING,
                rested: BEGINNING,
                usage: Usage::default(),
                uncounted: 0,
                uncounted_bytes: 0,
            })
        });
        let lanes = ends.as_mut().map(|ends| std::mem::take(&mut ends.lanes));
        let aggregation = shared.aggregation.as_ref().filter(|_| exchanges);
        let repartition = aggregation.zip(lanes).map(|((grouping, _), lanes)| {
            Box::new(Repartition::new(leader, &shared.roles, workers, grouping, lanes))
        });
        let format = shared.net.as_ref().and_then(|net| net.format.clone());
        Worker {
            id,
            leader,
            shared,
            remote: ends.map(|ends| Remote::new(ends, format)),
            repartition,
            inbox: VecDeque::new(),
            state,
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
        let step = if let Some(mut state) = self.state.take() {
            let step = match self.repartition.take() {
                None => self.step_stateful(&mut state),
                Some(mut roles) => {
                    let step = self.step_repartition(&mut state, &mut roles);
                    self.repartition = Some(roles);
                    step
                }
            };
            self.state = Some(state);
            step
        } else {
            self.step_stateless()
        };
        if step.is_err() {
            self.finish_counters();
        }
        step
    }

    fn step_stateless(&mut self) -> Result<Step> {
        let shared = self.shared.clone();
        self.exchange(None)?;
        if shared.gather.is_congested() {
            return Ok(Step::Wait { until_us: Some(shared.env.now_us() + STALL_US) });
        }
        let mut only = Only::Any;
        if shared.gather.is_full() {
            let ended = shared.intake.ended_splits();
            if let Some((sequence, split)) = shared.gather.awaited_batch(self.id, &ended)? {
                let sent = shared.gather.is_sent((sequence, split));
                if sent || !shared.intake.has_chunk(split, sequence) {
                    if shared.intake.look_for_end(split, sequence)? {
                        return Ok(Step::Busy);
                    }
                    return Ok(Step::Wait { until_us: Some(shared.env.now_us() + STALL_US) });
                }
                only = Only::Split(split);
            }
        }
        match shared.intake.take(self.id, only)? {
            Taken::Batch(batch) => {
                self.count(&batch);
                let Some(stateless) = &shared.stateless else {
                    return Err(Error::Internal("a job without a pipeline".into()));
                };
                let rows = {
                    let mut span = meter::span(meter::Kind::Batch);
                    span.add(batch.prepared.batch.num_rows());
                    stateless.run(&batch.prepared.batch).map(StatelessRows::from)
                };
                let rows = rows.or_else(|error| self.up_to_failing(error, stateless, &batch))?;
                shared.intake.finish(self.id);
                let (ended, gather) = (shared.intake.ended_splits(), &shared.gather);
                if gather.stateless_rows(self.id, (batch.sequence, batch.split), rows, &ended)? {
                    shared.stop_enough()?;
                }
                Ok(Step::Busy)
            }
            Taken::Again => {
                if shared.net.is_some() {
                    // A split may have ended, whose rows others waited for.
                    shared.write_waiting()?;
                }
                Ok(Step::Busy)
            }
            Taken::Wait { until_us } => Ok(Step::Wait { until_us }),
            Taken::Held => {
                self.stats.memory_stalls += 1;
                Ok(Step::Wait { until_us: Some(shared.env.now_us() + STALL_US) })
            }
            Taken::Ended => {
                shared.intake.finish(self.id);
                Ok(Step::Done)
            }
        }
    }

    /// What a batch comes to that cannot be evaluated as a whole. A LIMIT may be reached before the
    /// record with which it fails: then the rows before that one count, and the error only if more
    /// are wanted.
    fn up_to_failing(
        &self,
        error: Error,
        stateless: &Stateless,
        batch: &Stamped,
    ) -> Result<StatelessRows> {
        if !error.is_of_records() {
            return Err(error);
        }
        let (rows, failing) = stateless.up_to_failing(&batch.prepared.batch)?;
        let name = self.shared.intake.name(batch.split);
        let named = |(row, error): (usize, Error)| error.for_record(&place_of(batch, row, name));
        let error = failing.map_or(error, named);
        match self.shared.gather.has_limit() {
            true => Ok(StatelessRows { rows, then: Some(error) }),
            false => Err(error),
        }
    }

    fn step_stateful(&mut self, state: &mut State) -> Result<Step> {
        match self.step_in_turn(state)? {
            // What has been left for later is better than nothing.
            Step::Wait { .. } if self.merge_received(state, END)? => Ok(Step::Busy),
            step => Ok(step),
        }
    }

    /// Resumes the coroutine whose turn it is.
    fn step_in_turn(&mut self, state: &mut State) -> Result<Step> {
        let shared = self.shared.clone();
        let Some((grouping, finisher)) = &shared.aggregation else {
            return Err(Error::Internal("a job without an aggregation".into()));
        };
        // In simulation, messages take their time.
        let delivers = shared.env.choose(4) != Some(0);
        if delivers {
            self.inbox.extend(shared.mailboxes[self.id].take());
        }
        self.exchange(Some(state))?;
        let up_to = self.takes_up_to(state, grouping);
        if self.merge_one(state)? || self.merge_received(state, up_to)? {
            return Ok(Step::Busy);
        }
        self.return_credit(state)?;
        // Before firing, however much there is to fire: the others wait for this worker's
        // watermark.
        let low = shared.intake.finish(self.id);
        state.low = low;
        if let Some(seal) = self.epoch_is_over(state, low) {
            self.end_epoch(state, low, seal)?;
            return Ok(Step::Busy);
        }
        let tight = shared.budget.tight();
        if tight {
            self.give_back(state);
        }
        if let Some(step) = self.fire(state, (grouping, finisher), tight)? {
            return Ok(step);
        }
        if state.announced == END && state.clock.min() == END {
            self.finish_with(state);
            self.give_back(state);
            let empty = self.inbox.is_empty() && shared.mailboxes[self.id].is_empty();
            return Ok(if empty { Step::Done } else { Step::Busy });
        }
        let in_flight = state.in_flight.iter().any(|n| *n >= DELTAS_IN_FLIGHT_MAX);
        let stall = shared.net.as_ref().and_then(|net| net.stall());
        if in_flight || stall == Some(Stall::Leader) {
            self.stats.credit_stalls += 1;
            return Ok(self.pause(state, None));
        }
        if tight && state.slices.has_fragment_rows() {
            // What leaders have merged takes less room than what waits in fragments.
            self.end_epoch(state, low, Seal::Everything)?;
            return Ok(Step::Busy);
        }
        if tight && let Some(net) = &shared.net {
            net.hurry(false)?;
        }
        if tight && (!shared.settled(low) || self.others_can_give(0)) {
            return Ok(self.stall(state));
        }
        if stall == Some(Stall::Slot) {
            self.stats.credit_stalls += 1;
            return Ok(self.pause(state, None));
        }
        match shared.intake.take(self.id, if tight { Only::Lowest } else { Only::Any })? {
            Taken::Batch(batch) => {
                let load = grouping.load(&batch.prepared.batch);
                if !self.has_room(state, load, tight, batch.stamp)? {
                    shared.intake.put_back(self.id, batch);
                    return Ok(self.stall(state));
                }
                self.process(state, grouping, *batch)?;
                Ok(Step::Busy)
            }
            Taken::Again => Ok(Step::Busy),
            Taken::Wait { until_us } => Ok(self.pause(state, until_us)),
            Taken::Held => Ok(self.stall(state)),
            // Whoever finishes the last batch wakes the others.
            Taken::Ended => Ok(self.pause(state, None)),
        }
    }

    /// Rows that processes ahead of this one pass through are left in their channels, with all that
    /// is behind them, while they are of windows that begin later than this: those that its own
    /// input has not reached, and all but the one that fires. Taken at once, they would fill a
    /// second large table beside the one that is full; left there, they keep who is ahead from
    /// getting farther.
    fn takes_up_to(&self, state: &State, grouping: &Grouping) -> i64 {
        match &state.firing {
            _ if grouping.windowing.is_whole() => END,
            Some(fire) => fire.start,
            None if state.clock.min() > state.frontier => state.frontier,
            None => state.low.max(state.slices.latest()),
        }
    }

    /// Goes on with the window that is firing, or starts with one that is complete; `None` if there
    /// is none.
    fn fire(
        &mut self,
        state: &mut State,
        (grouping, finisher): (&Grouping, &Finisher),
        tight: bool,
    ) -> Result<Option<Step>> {
        let shared = self.shared.clone();
        if state.firing.is_some() && !self.may_fire(state, (grouping, finisher), tight)? {
            return Ok(Some(self.stall(state)));
        }
        if let Some(fire) = &mut state.firing {
            let mut span = meter::span(meter::Kind::Fire);
            let foreseen_bytes = 2 * fire.next_bytes(grouping, finisher) + UNFORESEEN_BYTES;
            if let Some((rows, last)) = fire.step(grouping, finisher, &mut self.places.0)? {
                span.add(rows.num_rows());
                let more = shared.gather.holds() && batch_bytes(&rows) as u64 > foreseen_bytes;
                shared.gather.window_rows(self.id, fire.start, rows, last)?;
                if more {
                    shared.check_gathered()?;
                }
            } else if let Some(fire) = state.firing.take() {
                state.frontier = grouping.windowing.fires_at(fire.start);
                let small = self.is_small(&fire);
                state.slices.recycle(fire.into_table());
                if !small || shared.budget.tight() {
                    // Before others may believe that all has been freed.
                    self.note_usage(state);
                }
                self.fired_up_to(state.frontier)?;
            }
            return Ok(Some(Step::Busy));
        }
        if self.fire_complete(state, grouping)? {
            return Ok(Some(Step::Busy));
        }
        Ok(None)
    }

    /// Waits, but not beyond the end of an epoch that has changes, and not with mail outside.
    fn pause(&self, state: &State, until_us: Option<i64>) -> Step {
        if !self.shared.mailboxes[self.id].is_empty() {
            return Step::Busy;
        }
        let idle_us = self.shared.settings.epoch_max_idle_us();
        let epoch_end = state.changed_at_us.map(|at| at.saturating_add(idle_us));
        Step::Wait { until_us: [until_us, epoch_end].into_iter().flatten().min() }
    }

    fn count(&mut self, batch: &Stamped) {
        self.stats.records += batch.prepared.batch.num_rows() as u64;
        self.stats.input_bytes += batch.prepared.input_bytes as u64;
        self.stats.malformed_records += batch.prepared.malformed_records;
        note_malformed(&mut self.stats.first_malformed, batch);
        self.stats.batches_stolen += u64::from(!self.shared.intake.prefers(self.id, batch.split));
        if let Some(times) = &batch.prepared.times {
            self.stats.ahead_records += times.ahead_records;
        }
    }

    /// An error of evaluating a batch, with the place of the record that it is about.
    fn for_record(&self, error: Error, grouping: &Grouping, batch: &Stamped) -> Error {
        if !error.is_of_records() {
            return error;
        }
        let name = self.shared.intake.name(batch.split);
        grouping
            .first_failing(batch)
            .map_or(error, |(row, error)| error.for_record(&place_of(batch, row, name)))
    }

    fn process(&mut self, state: &mut State, grouping: &Grouping, batch: Stamped) -> Result<()> {
        let mut span = meter::span(meter::Kind::Batch);
        span.add(batch.prepared.batch.num_rows());
        self.count(&batch);
        state.slices.begin_batch();
        let net = self.shared.net.as_deref();
        let (dropped, fragment_rows) = grouping
            .run(&batch, &mut state.slices, net, &mut self.buffers)
            .map_err(|error| self.for_record(error, grouping, &batch))?;
        self.stats.late_records += dropped.late;
        self.stats.null_time_records += dropped.null_time;
        self.stats.unusable_time_records += dropped.unusable_time;
        let name = self.shared.intake.name(batch.split);
        note_row(&mut self.stats.first_null_time, &batch, dropped.first_null_time, name);
        note_row(&mut self.stats.first_unusable_time, &batch, dropped.first_unusable_time, name);
        self.stats.fragment_rows_in += fragment_rows;
        state.epoch_input_bytes += batch.prepared.input_bytes as u64;
        state.changed_at_us = Some(self.shared.env.now_us());
        let before = state.usage.live_bytes;
        self.note_usage(state);
        if grouping.computes_texts {
            // How long those of the next batch are is not known before: as these, most likely.
            let text_bytes = state.usage.live_bytes.saturating_sub(before) as usize;
            if state.slices.expect(Load { rows: 0, text_bytes }) {
                self.note_usage(state);
            }
        }
        Ok(())
    }

    /// Starts firing the first window that the vector clock says is complete. One at a time, in
    /// order, so that a window's rows come out before the next one fires.
    fn fire_complete(&mut self, state: &mut State, grouping: &Grouping) -> Result<bool> {
        let complete = state.clock.min();
        if complete <= state.frontier {
            return Ok(false);
        }
        let first = state.slices.complete(&grouping.windowing, complete);
        let Some(start) = first else {
            state.frontier = complete;
            self.note_usage(state);
            self.fired_up_to(complete)?;
            return Ok(true);
        };
        if complete > state.rested {
            // Once for all windows that this lets go: now there is the most of it.
            state.rested = complete;
            self.note_usage(state);
            self.shared.budget.note_rest();
        }
        if let Some(table) = state.slices.remove(start) {
            state.firing = Some(Fire::new(start, table, grouping));
        }
        Ok(true)
    }

    /// Tells the gather stage how far this worker has fired.
    fn fired_up_to(&mut self, watermark: i64) -> Result<()> {
        let windows = self.shared.fired_up_to(self.id, watermark)?;
        if windows > 0 && self.shared.intake.has_more() {
            self.stats.windows_fired_early += windows;
        }
        Ok(())
    }

    fn finish_with(&mut self, state: &State) {
        let Counters { growths, switches, joint_rows } = state.slices.counters();
        (self.stats.index_growths, self.stats.mode_switches) = (growths, switches);
        self.stats.joint_rows_in = joint_rows;
    }

    fn finish_counters(&mut self) {
        if let Some(state) = self.state.take() {
            self.finish_with(&state);
            self.state = Some(state);
        }
    }
}

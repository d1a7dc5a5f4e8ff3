//! Progress: how far each stage has got for a worker, beside what its operator holds.

mod context;
mod memory;

use std::sync::Arc;

use millstream_state::{Leaders, VectorClock, hash_words};

use crate::budget::Usage;
use crate::cluster::{DELTAS_IN_FLIGHT_MAX, Outboxes};
use crate::error::Result;
use crate::event_time::{BEGINNING, END};
use crate::meter;
use crate::operator::Operator;
use crate::operator::aggregate::slices::Room;
use crate::operator::aggregate::{Aggregate, Leadership};
use crate::passed::{Onward, PassedRows};
use crate::shared::Shared;
use crate::stage::Stage;
use crate::windowing::WindowId;

pub(crate) use context::Context;

/// A worker's state of a stage, and how far the stage has got for it.
pub(crate) struct State {
    pub(crate) stage: Arc<Stage>,
    pub(crate) operator: Box<dyn Operator>,
    pub(crate) clock: VectorClock,
    pub(crate) epoch: u64,
    pub(crate) epoch_input_bytes: u64,
    /// The watermark of the last epoch's end.
    pub(crate) announced: i64,
    /// The low watermark of its inputs, as of the last step: of a source the process's, of a stage
    /// that of the rows that this worker fires.
    pub(crate) low: i64,
    /// When the last batch was done, while the epoch has changes.
    pub(crate) changed_at_us: Option<i64>,
    /// Per leader of this process: deltas sent, for which credit has not come back.
    pub(crate) in_flight: Vec<usize>,
    /// Helpers (workers of this process, then processes) whose deltas have been merged and to which
    /// credit is to be returned.
    pub(crate) owed: Vec<Owed>,
    /// Per helper: the epoch that must come next.
    pub(crate) expected: Vec<u64>,
    /// Windows that fire up to this have been fired, and their rows given to the next stage or to
    /// the gather stage.
    pub(crate) frontier: i64,
    /// The vector clock when state at rest was last noted.
    pub(crate) rested: i64,
    pub(crate) usage: Usage,
    /// Segments and messages merged since `usage` was noted, and bytes of the latter.
    pub(crate) uncounted: usize,
    pub(crate) uncounted_bytes: u64,
}

/// Credit for a delta that has been merged.
pub(crate) struct Owed {
    pub(crate) helper: usize,
    /// The helper, in another process, has been told that the delta is merged; the permission to
    /// go on is still owed.
    pub(crate) told: bool,
}

/// The clock of the worker that is `leader` among all, with an entry for each of so many `helpers`;
/// or, where records are exchanged, for each sender.
fn clock(shared: &Shared, leader: usize, helpers: usize) -> VectorClock {
    if shared.roles.exchange() {
        let senders = shared.roles.senders.len();
        let mut clock = VectorClock::new(senders);
        if shared.roles.receiver(leader).is_none() {
            // Nothing comes to it.
            (0..senders).for_each(|sender| clock.advance(sender, END));
        }
        return clock;
    }
    let mut clock = VectorClock::new(helpers);
    if let Some(net) = &shared.net {
        // Its workers have their own entries.
        clock.advance(shared.settings.workers + net.place.process, END);
    }
    clock
}

/// Which keys the worker that is `leader` among all leads.
fn leadership(shared: &Shared, leader: usize) -> Leadership {
    let roles = &shared.roles;
    let leader_of = |leaders| Leaders::even(leaders).of(hash_words(&[]));
    match roles.exchange() {
        // A receiver of exchanged records meets no keys but its own.
        true => Leadership {
            me: 0,
            leaders: 1,
            of_empty_key: roles.receiver(leader) == Some(leader_of(roles.receivers.len())),
        },
        false => Leadership {
            me: leader,
            leaders: shared.leaders(),
            of_empty_key: leader_of(shared.leaders()) == leader,
        },
    }
}

/// What a worker's state of a stage may keep, and must have room for.
fn room(stage: &Stage, shared: &Shared) -> Room {
    let outboxes = shared.net.as_ref().map(|net| net.outboxes(stage.number));
    // Half of what is shipped together, and no more than fits a message.
    let message_bytes = outboxes.map_or(u64::MAX, |outboxes| outboxes.message_bytes as u64);
    let buffer_bytes = (stage.limits.kept_bytes() / 2).min(message_bytes);
    Room {
        pool_bytes: stage.limits.pool_bytes,
        heap: shared.net.as_ref().map(|net| net.heap.clone()),
        message_bytes: outboxes.map_or(0, |outboxes| outboxes.message_bytes),
        passing: Some((stage.program.format.clone(), buffer_bytes as usize)),
    }
}

/// Whether the worker that is `leader` among all takes input.
fn reads(shared: &Shared, leader: usize) -> bool {
    !shared.roles.exchange() || shared.roles.sender(leader).is_some()
}

impl State {
    /// Of the worker that is `leader` among all of the job.
    pub(crate) fn new(stage: &Arc<Stage>, leader: usize, shared: &Shared) -> State {
        let workers = shared.settings.workers;
        let helpers = workers + shared.net.as_ref().map_or(0, |net| net.place.processes);
        let operator = Aggregate::new(
            stage.program.clone(),
            leadership(shared, leader),
            shared.fragment_mode(),
            room(stage, shared),
        );
        State {
            stage: stage.clone(),
            operator: Box::new(operator),
            clock: clock(shared, leader, helpers),
            epoch: 0,
            epoch_input_bytes: 0,
            // Who only receives exchanged records has nothing to announce.
            announced: if reads(shared, leader) { BEGINNING } else { END },
            low: BEGINNING,
            changed_at_us: None,
            in_flight: vec![0; workers],
            owed: Vec::new(),
            expected: vec![0; helpers],
            frontier: BEGINNING,
            rested: BEGINNING,
            usage: Usage::default(),
            uncounted: 0,
            uncounted_bytes: 0,
        }
    }

    /// Takes in rows that a worker of this process, who has announced a watermark, has passed
    /// through.
    pub(crate) fn take_passed(&mut self, rows: PassedRows, announced: i64) -> Result<()> {
        let mut span = meter::span(meter::Kind::Update);
        span.add(rows.rows());
        let State { operator, stage, .. } = self;
        operator.take_passed(rows, &|slice| stage.check_slice(slice, announced))
    }

    /// How many windows have fired when the watermark has got so far; only differences mean
    /// something.
    pub(crate) fn passed(&self, watermark: i64) -> i64 {
        self.stage.windowing().passed(watermark)
    }

    /// The window that fires next, if the vector clock says that it is complete.
    pub(crate) fn complete(&self) -> Option<WindowId> {
        self.operator.complete(self.frontier, self.clock.min())
    }

    /// The watermark of the rows that it fires: none that is still to come has an earlier time.
    pub(crate) fn watermark_of_rows(&self) -> i64 {
        self.stage.windowing().watermark_after(self.frontier)
    }

    /// The way of its deltas to leaders in other processes, if there are any.
    pub(crate) fn outboxes<'s>(&self, shared: &'s Shared) -> Option<&'s Outboxes> {
        shared.net.as_ref().map(|net| net.outboxes(self.stage.number))
    }

    /// The way of rows that are passed through at once.
    pub(crate) fn onward<'s>(&self, shared: &'s Shared) -> Option<&'s dyn Onward> {
        self.outboxes(shared).map(|outboxes| outboxes as &dyn Onward)
    }

    /// Whether nothing of it is left, nor will anything come.
    pub(crate) fn is_over(&self) -> bool {
        self.announced == END && self.clock.min() == END
    }

    /// Whether it holds nothing any more.
    pub(crate) fn is_empty(&self) -> bool {
        self.operator.is_empty() && self.owed.is_empty()
    }

    /// Whether no leader of this process has to merge before it gets more.
    pub(crate) fn has_credit(&self) -> bool {
        self.in_flight.iter().all(|deltas| *deltas < DELTAS_IN_FLIGHT_MAX)
    }
}

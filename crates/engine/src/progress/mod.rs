//! Progress: how far each stage has got for a worker, beside what its operator holds.

mod context;
mod memory;

use std::sync::Arc;

use millstream_state::{Leaders, Load, VectorClock, hash_words};

use crate::network::{DELTAS_IN_FLIGHT_MAX, Outboxes};
use crate::shared::Shared;
use crate::stage::Stage;
use crate::stats::Leftover;
use millstream_operators::budget::Usage;
use millstream_operators::event_time::{BEGINNING, END};
use millstream_operators::operator::{Leadership, MergeTimes, Operator, Room};
use millstream_operators::passed::Onward;
use millstream_operators::windowing::{SliceId, WindowId};

pub(crate) use context::Context;

/// A worker's state of a stage, and how far the stage has got for it.
pub(crate) struct StageState {
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
    /// The latest slice that this worker's input has gone into.
    pub(crate) latest: Option<SliceId>,
    /// When the last batch was done, while the epoch has changes.
    pub(crate) changed_at_us: Option<i64>,
    /// Per leader of this process: deltas sent, for which credit has not come back.
    pub(crate) in_flight: Vec<usize>,
    /// Helpers (workers of this process, then processes) whose deltas have been merged and to which
    /// credit is to be returned.
    pub(crate) owed: Vec<Owed>,
    /// Per helper: the epoch that must come next.
    pub(crate) expected: Vec<u64>,
    /// Per process: the cut before which all its rows have been merged.
    pub(crate) cuts: Vec<u64>,
    /// Windows that fire up to this have been fired, and their rows given to the next stage or to
    /// the gather stage.
    pub(crate) frontier: i64,
    /// The vector clock when state at rest was last noted.
    pub(crate) rested: i64,
    pub(crate) usage: Usage,
    /// Expected load of the next batch: the largest so far, or the known load.
    pub(crate) expected_load: Load,
    /// Load that should always have room: a batch of the largest size, and a message of another
    /// process.
    room: Load,
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
    /// Times of merging the delta, for a helper in another process.
    pub(crate) times: MergeTimes,
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
        // The process's workers have their own entries.
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

/// Bytes of rows that a message of another process may bring, if there are any.
fn message_bytes(stage: &Stage, shared: &Shared) -> Option<usize> {
    shared.net.as_ref().map(|net| net.outboxes(stage.number).message_bytes)
}

/// Memory that a worker's state of a stage may keep.
fn room(stage: &Stage, shared: &Shared) -> Room {
    // Half of what is shipped together, and no more than fits a message.
    let buffer_bytes = stage.limits.kept_bytes() / 2;
    let message_bytes = message_bytes(stage, shared).map_or(u64::MAX, |bytes| bytes as u64);
    Room {
        pool_bytes: stage.limits.pool_bytes,
        heap: shared.net.as_ref().map(|net| net.heap.clone()),
        buffer_bytes: buffer_bytes.min(message_bytes) as usize,
        mode: shared.fragment_mode(),
        keeps_slices: shared.checkpoints.is_some(),
        clock: Some(shared.env.clone()),
    }
}

/// Load that a stage should always have room for: a batch, or a message of another process.
fn largest_load(stage: &Stage, shared: &Shared) -> Load {
    let message_bytes = message_bytes(stage, shared).unwrap_or(0);
    // A row has its key at least.
    let key_bytes = 8 * stage.program.layout().key_words().max(1);
    let message = Load { rows: message_bytes / key_bytes, text_bytes: message_bytes };
    message.max(Load::rows(shared.settings.batch_rows))
}

/// Whether the worker that is `leader` among all takes input.
fn reads(shared: &Shared, leader: usize) -> bool {
    !shared.roles.exchange() || shared.roles.sender(leader).is_some()
}

impl StageState {
    /// Of the worker that is `leader` among all of the job.
    pub(crate) fn new(stage: &Arc<Stage>, leader: usize, shared: &Shared) -> StageState {
        let workers = shared.settings.workers;
        let processes = shared.net.as_ref().map_or(0, |net| net.place.processes);
        let helpers = workers + processes;
        let (leadership, room) = (leadership(shared, leader), room(stage, shared));
        StageState {
            stage: stage.clone(),
            operator: stage.program.clone().start(leadership, room),
            clock: clock(shared, leader, helpers),
            epoch: 0,
            epoch_input_bytes: 0,
            // Who only receives exchanged records has nothing to announce.
            announced: if reads(shared, leader) { BEGINNING } else { END },
            low: BEGINNING,
            latest: None,
            changed_at_us: None,
            in_flight: vec![0; workers],
            owed: Vec::new(),
            expected: vec![0; helpers],
            cuts: vec![0; processes],
            frontier: BEGINNING,
            rested: BEGINNING,
            usage: Usage::default(),
            expected_load: Load::default(),
            room: largest_load(stage, shared),
            uncounted: 0,
            uncounted_bytes: 0,
        }
    }

    /// From now on so much is expected to come at once, or what was expected before, if that is
    /// more. Whether this is: then state has to be counted anew.
    pub(crate) fn expect(&mut self, load: Load) -> bool {
        let before = self.expected_load;
        self.expected_load = before.max(load);
        self.expected_load != before
    }

    /// Counts its memory.
    pub(crate) fn count(&mut self) {
        self.usage = self.operator.usage(self.expected_load, self.room);
        (self.uncounted, self.uncounted_bytes) = (0, 0);
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

    /// The watermark of the fired rows: no row still to come has an earlier time.
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

    /// Whether the stage is at its end: no state is left, and no input will come.
    pub(crate) fn is_over(&self) -> bool {
        self.announced == END && self.clock.min() == END
    }

    /// Whether the state is empty.
    pub(crate) fn is_empty(&self) -> bool {
        let operator = &self.operator;
        operator.open().is_empty() && operator.firing().is_none() && self.owed.is_empty()
    }

    /// State that is left at the end, where none should be.
    pub(crate) fn leftover(&mut self) -> Leftover {
        let usage = self.operator.usage(Load::default(), Load::default());
        let operator = &self.operator;
        let next = operator.complete(BEGINNING, END).is_some();
        Leftover {
            rows: usage.keys,
            bytes: usage.live_bytes,
            windows: operator.open().len() as u64
                + u64::from(operator.firing().is_some())
                + u64::from(next),
            credit: self.owed.len() as u64,
        }
    }

    /// Whether no leader of this process has to merge before it gets more.
    pub(crate) fn has_credit(&self) -> bool {
        self.in_flight.iter().all(|deltas| *deltas < DELTAS_IN_FLIGHT_MAX)
    }
}

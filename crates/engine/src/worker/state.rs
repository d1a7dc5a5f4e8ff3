//! A worker's state of one stage.

use std::sync::Arc;

use millstream_state::{Leaders, VectorClock};

use crate::budget::Usage;
use crate::cluster::DELTAS_IN_FLIGHT_MAX;
use crate::error::Result;
use crate::event_time::{BEGINNING, END};
use crate::exchange::Receiver;
use crate::fire::Fire;
use crate::job::Shared;
use crate::meter;
use crate::slices::{PassedRows, Room, Slices};
use crate::stage::Stage;

/// A worker's state of a stage, and how far the stage has got for it.
pub(super) struct State {
    pub(super) stage: Arc<Stage>,
    pub(super) slices: Slices,
    /// Takes in what workers of this process pass through.
    receiver: Receiver,
    pub(super) clock: VectorClock,
    pub(super) firing: Option<Fire>,
    pub(super) epoch: u64,
    pub(super) epoch_input_bytes: u64,
    /// The watermark of the last epoch's end.
    pub(super) announced: i64,
    /// The low watermark of its inputs, as of the last step: of a source the process's, of a stage
    /// that of the rows that this worker fires.
    pub(super) low: i64,
    /// When the last batch was done, while the epoch has changes.
    pub(super) changed_at_us: Option<i64>,
    /// Per leader of this process: deltas sent, for which credit has not come back.
    pub(super) in_flight: Vec<usize>,
    /// Helpers (workers of this process, then processes) whose deltas have been merged and to which
    /// credit is to be returned.
    pub(super) owed: Vec<Owed>,
    /// Per helper: the epoch that must come next.
    pub(super) expected: Vec<u64>,
    /// Windows that fire up to this have been fired, and their rows given to the next stage or to
    /// the gather stage.
    pub(super) frontier: i64,
    /// The vector clock when state at rest was last noted.
    pub(super) rested: i64,
    pub(super) usage: Usage,
    /// Segments and messages merged since `usage` was noted, and bytes of the latter.
    pub(super) uncounted: usize,
    pub(super) uncounted_bytes: u64,
}

/// Credit for a delta that has been merged.
pub(super) struct Owed {
    pub(super) helper: usize,
    /// It knows that the delta has been merged, in another process, and waits for the rest.
    pub(super) told: bool,
}

impl State {
    /// Of the worker that is `leader` among all of the job.
    pub(super) fn new(stage: &Arc<Stage>, leader: usize, shared: &Shared) -> State {
        let workers = shared.settings.workers;
        let helpers = workers + shared.net.as_ref().map_or(0, |net| net.place.processes);
        let exchanges = shared.roles.exchange();
        let senders = shared.roles.senders.len();
        let mut clock = VectorClock::new(if exchanges { senders } else { helpers });
        if let Some(net) = shared.net.as_ref().filter(|_| !exchanges) {
            // Its workers have their own entries.
            clock.advance(workers + net.place.process, END);
        }
        // A receiver meets no keys but its own.
        let (leaders, me) = if exchanges { (1, 0) } else { (shared.leaders(), leader) };
        let delivery = shared.net.as_ref().map(|net| net.delivery(stage.number));
        // Half of what is shipped together, and no more than fits a message.
        let message_bytes = delivery.map_or(u64::MAX, |delivery| delivery.message_bytes as u64);
        let buffer_bytes = (stage.limits.kept_bytes() / 2).min(message_bytes);
        let room = Room {
            pool_bytes: stage.limits.pool_bytes,
            heap: shared.net.as_ref().map(|net| net.heap.clone()),
            message_bytes: delivery.map_or(0, |delivery| delivery.message_bytes),
            passing: Some((stage.format.clone(), buffer_bytes as usize)),
        };
        let layout = stage.grouping.layout.clone();
        State {
            stage: stage.clone(),
            slices: Slices::new(layout, Leaders::even(leaders), me, shared.fragment_mode(), room),
            receiver: Receiver::new(stage.format.clone()),
            clock,
            firing: None,
            epoch: 0,
            epoch_input_bytes: 0,
            announced: BEGINNING,
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
    pub(super) fn take_passed(&mut self, rows: PassedRows, announced: i64) -> Result<()> {
        let mut span = meter::span(meter::Kind::Update);
        span.add(rows.rows());
        let State { receiver, slices, stage, .. } = self;
        let may_add = |start| stage.check_slice(start, announced);
        receiver.take_rows(rows.words(), &stage.grouping, slices, &may_add)?;
        slices.reuse_passed(rows);
        Ok(())
    }

    /// How many windows have fired when the watermark has got so far; only differences mean
    /// something.
    pub(super) fn passed(&self, watermark: i64) -> i64 {
        self.stage.windowing().passed(watermark)
    }

    /// The window that fires next, if the vector clock says that it is complete.
    pub(super) fn complete(&self) -> Option<i64> {
        self.slices.complete(self.stage.windowing(), self.clock.min())
    }

    /// The watermark of the rows that it fires: none that is still to come has an earlier time.
    pub(super) fn watermark_of_rows(&self) -> i64 {
        self.stage.windowing().watermark_after(self.frontier)
    }

    /// Whether nothing of it is left, nor will anything come.
    pub(super) fn is_over(&self) -> bool {
        self.announced == END && self.clock.min() == END
    }

    /// Whether it holds nothing any more.
    pub(super) fn is_empty(&self) -> bool {
        self.slices.is_empty() && self.firing.is_none() && self.owed.is_empty()
    }

    /// Whether no leader of this process has to merge before it gets more.
    pub(super) fn has_credit(&self) -> bool {
        self.in_flight.iter().all(|deltas| *deltas < DELTAS_IN_FLIGHT_MAX)
    }
}

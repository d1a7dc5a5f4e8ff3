//! Memory pressure: what a worker reports to the budget, what it releases, and when it waits for
//! others to release theirs (see [`crate::budget`]).

use millstream_state::Load;

use super::{State, Step, Worker};
use crate::budget::Kind;
use crate::error::Result;
use crate::fire::Fire;

/// A worker that waits for others to free memory looks again after this time, microseconds.
pub(super) const STALL_US: i64 = 1_000;

impl Worker {
    /// Counts the worker's state and reports it to the budget.
    pub(super) fn note_usage(&self, state: &mut State) {
        state.usage = state.slices.usage(self.shared.settings.batch_rows);
        if let Some(fire) = &state.firing {
            state.usage.bytes += fire.table().bytes() as u64;
            state.usage.live_bytes += fire.table().live_bytes() as u64;
            state.usage.keys += fire.table().rows() as u64;
        }
        (state.uncounted, state.uncounted_bytes) = (0, 0);
        self.shared.budget.note_usage(state.stage.number, self.id, &state.usage);
    }

    /// Whether a stage has room for a batch that brings so much. If there is none, but what others
    /// free may make some, the batch has to wait: unless all is `settled`, so that nothing more can
    /// be merged, fired and freed. (A batch of records that has been taken is put back; it was that
    /// of the low watermark, which may have risen since.)
    pub(super) fn has_room(
        &self,
        state: &mut State,
        load: Load,
        tight: bool,
        settled: impl FnOnce() -> bool,
    ) -> Result<bool> {
        let more = state.slices.expect(load);
        if more {
            self.note_usage(state);
        }
        if !tight && !more {
            return Ok(true);
        }
        match self.shared.budget.check() {
            Ok(true) => return Ok(true),
            Ok(false) => return Ok(!more || !self.others_can_give(0)),
            Err(_) => {}
        }
        // Batches before may have brought more than this one does.
        state.slices.expect_just(load);
        self.note_usage(state);
        match self.shared.budget.check() {
            Err(error) if settled() => Err(error),
            Err(_) => Ok(false),
            Ok(_) => Ok(true),
        }
    }

    /// Gives back what is kept for later windows.
    pub(super) fn give_back(&self, state: &mut State) {
        state.slices.release_spare();
        if state.usage.spare_bytes > 0 {
            self.note_usage(state);
        }
    }

    /// Whether a window is small: firing it takes next to nothing, and then its state is free.
    pub(super) fn is_small(&self, fire: &Fire) -> bool {
        fire.table().live_bytes() as u64 <= self.shared.settings.memory_bytes / 64
    }

    /// Whether the window of a stage that is firing may go on, as far as outputs are concerned: its
    /// next rows, which may have to wait for their order, fit beside its state. Rows that wait for
    /// a leader that is behind must leave room for those.
    pub(super) fn may_fire(
        &self,
        state: &mut State,
        outputs: &[usize],
        tight: bool,
    ) -> Result<bool> {
        let shared = &self.shared;
        let gathers = outputs.iter().map(|output| &shared.gathers[*output]);
        let gathers: Vec<_> = gathers.filter(|gather| !gather.has_ended()).collect();
        if gathers.is_empty() {
            return Ok(true);
        }
        let stage = &state.stage;
        let budget = &self.shared.budget;
        let Some(fire) = state.firing.as_mut().filter(|fire| !fire.is_over()) else {
            return Ok(true);
        };
        let small = self.is_small(fire);
        // Rows of small windows that wait for their order must leave room, too.
        let many_rows = budget.held(Kind::Output) > self.shared.settings.memory_bytes / 16;
        for gather in &gathers {
            let waits = gather.is_full() || tight && (!small || many_rows);
            let behind = || gather.others_behind(stage.number, state.frontier);
            if gather.is_congested() || waits && behind() {
                return Ok(false);
            }
        }
        let held = gathers.iter().filter(|gather| gather.holds()).count() as u64;
        let rows_bytes = match held {
            0 => 0,
            held => held * fire.next_bytes(&stage.grouping, &stage.finisher),
        };
        // Where rows do not wait here, firing takes nothing and frees what there is.
        let free = rows_bytes == 0 && !budget.is_exceeded();
        if small || free || matches!(budget.check_with(rows_bytes), Ok(true)) {
            budget.set_scarce(false);
            return Ok(true);
        }
        fire.trim();
        state.slices.release_spare();
        self.note_usage(state);
        // What has not been merged yet takes less room when it is.
        if budget.held(Kind::Segments) > 0 {
            if let Some(net) = &self.shared.net {
                net.hurry(true)?;
            }
            return Ok(false);
        }
        // They give it only where memory is scarce, which it may not be but for these rows.
        let waits = self.others_can_give(rows_bytes);
        budget.set_scarce(waits);
        if waits {
            return Ok(false);
        }
        budget.check_with(rows_bytes)
    }

    /// Whether the budget is exceeded, with so many bytes more, but will not be once others have
    /// given back what they keep for later: then they are told.
    pub(super) fn others_can_give(&self, more: u64) -> bool {
        let waits = matches!(self.shared.budget.check_with(more), Ok(false));
        if waits {
            self.shared.wake_others(self.id);
        }
        waits
    }

    /// Waits for others to free memory; looks again soon, whoever does it.
    pub(super) fn stall(&mut self, stages: &[State]) -> Step {
        self.stats.memory_stalls += 1;
        let soon = self.shared.env.now_us() + STALL_US;
        self.pause(stages, Some(soon))
    }
}

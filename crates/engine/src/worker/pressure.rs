//! Memory pressure: when a worker releases what it keeps, and when it waits for others to release
//! theirs (see [`millstream_operators::budget`]).

use arrow::array::RecordBatch;

use super::{State, Step, Worker};
use crate::error::Result;
use crate::observe::Doing;
use millstream_operators::budget::{Kind, batch_bytes};

/// A worker that waits for others to free memory looks again after this time, microseconds.
pub(super) const STALL_US: i64 = 1_000;

impl Worker {
    /// Whether the window that a stage fires is small: firing it takes next to nothing, and then
    /// its state is free.
    pub(super) fn is_small(&self, state: &State) -> bool {
        let live_bytes = state.operator.firing().map_or(0, |firing| firing.live_bytes);
        live_bytes <= self.context.shared.settings.memory_bytes / 64
    }

    /// Whether the window of a stage that is firing may go on, as far as outputs are concerned: its
    /// next `rows`, which may have to wait for their order, fit beside its state. Rows that wait
    /// for a leader that is behind must leave room for those.
    pub(super) fn may_fire(
        &self,
        state: &mut State,
        outputs: &[usize],
        rows: &RecordBatch,
        tight: bool,
    ) -> Result<bool> {
        let shared = &self.context.shared;
        let gathers = outputs.iter().map(|output| &shared.gathers[*output]);
        let gathers: Vec<_> = gathers.filter(|gather| !gather.has_ended()).collect();
        if gathers.is_empty() {
            return Ok(true);
        }
        let stage = &state.stage;
        let budget = &self.context.shared.budget;
        let held = gathers.iter().filter(|gather| gather.holds()).count();
        let rows_bytes = (held * batch_bytes(rows)) as u64;
        let small = self.is_small(state) && rows_bytes <= shared.settings.memory_bytes / 64;
        // Rows of small windows that wait for their order must leave room, too.
        let many_rows = budget.held(Kind::Output) > self.context.shared.settings.memory_bytes / 16;
        for gather in &gathers {
            let waits = gather.is_full() || tight && (!small || many_rows);
            let behind = || gather.others_behind(stage.number, state.frontier);
            if gather.is_congested() || waits && behind() {
                return Ok(false);
            }
        }
        // Where rows do not wait here, firing takes nothing and frees what there is.
        let free = rows_bytes == 0 && !budget.is_exceeded();
        if small || free || matches!(budget.check_with(rows_bytes), Ok(true)) {
            budget.set_scarce(false);
            return Ok(true);
        }
        state.operator.give_back();
        self.context.note_usage(state);
        // What has not been merged yet takes less room when it is.
        if budget.held(Kind::Segments) > 0 {
            self.delivery.hurry(&self.context, None, true)?;
            return Ok(false);
        }
        // What is being written will be free.
        if gathers.iter().any(|gather| gather.queued_bytes() > 0) {
            return Ok(false);
        }
        // They give it only where memory is scarce, which it may not be but for these rows.
        let waits = self.context.others_can_give(rows_bytes);
        budget.set_scarce(waits);
        if waits {
            return Ok(false);
        }
        budget.check_with(rows_bytes)
    }

    /// Waits for others to free memory; looks again soon, whoever does it.
    pub(super) fn stall(&mut self, stages: &[State]) -> Step {
        self.context.stats.memory_stalls += 1;
        self.doing = Doing::Memory;
        let soon = self.context.shared.env.now_us() + STALL_US;
        self.pause(stages, Some(soon))
    }
}

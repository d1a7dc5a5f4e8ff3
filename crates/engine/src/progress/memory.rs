//! A worker's reports of its state to the budget, and checks for room (see
//! [`millstream_operators::budget`]).

use millstream_state::Load;

use super::{Context, StageState};
use crate::error::Result;
use millstream_operators::budget::Kind;

/// State is counted whenever so large a part of the budget has been merged.
const COUNTED_SHARE: u64 = 128;

impl Context {
    /// Counts the worker's state and reports it to the budget.
    pub(crate) fn note_usage(&self, state: &mut StageState) {
        state.count();
        self.shared.budget.note_usage(state.stage.number, self.id, &state.usage);
    }

    /// Whether a stage has room for a batch with this load. Without room, the batch has to wait if
    /// other workers may free some, unless all is `settled`, so that nothing more can be merged,
    /// fired and freed. (A taken batch of records is put back; it was the batch of the low
    /// watermark, which may have risen since.)
    pub(crate) fn has_room(
        &self,
        state: &mut StageState,
        load: Load,
        tight: bool,
        settled: &dyn Fn() -> bool,
    ) -> Result<bool> {
        let more = state.expect(load);
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
        state.expected_load = load;
        self.note_usage(state);
        match self.shared.budget.check() {
            Err(error) if settled() => Err(error),
            Err(_) => Ok(false),
            Ok(_) => Ok(true),
        }
    }

    /// Gives back what is kept for later windows, and what firing does not need.
    pub(crate) fn give_back(&self, state: &mut StageState) {
        state.operator.give_back();
        if state.usage.spare_bytes > 0 {
            self.note_usage(state);
        }
    }

    /// A stage has taken in a batch of so many bytes.
    pub(crate) fn note_update(&mut self, state: &mut StageState, bytes: usize) {
        state.epoch_input_bytes += bytes as u64;
        state.changed_at_us = Some(self.shared.env.now_us());
        self.has_waited = false;
        let before = state.usage.live_bytes;
        self.note_usage(state);
        if state.stage.computes_texts {
            // How long those of the next batch are is not known before: as these, most likely.
            let text_bytes = state.usage.live_bytes.saturating_sub(before) as usize;
            if state.expect(Load { rows: 0, text_bytes }) {
                self.note_usage(state);
            }
        }
    }

    /// A message of rows that take so many bytes has been merged. State is counted now and then: a
    /// delta may be long.
    pub(crate) fn note_merge(&mut self, bytes: usize, state: &mut StageState) -> Result<()> {
        self.stats.merges += 1;
        state.uncounted += 1;
        state.uncounted_bytes += bytes as u64;
        if state.uncounted >= state.stage.limits.tables_max
            || state.uncounted_bytes >= self.shared.settings.memory_bytes / COUNTED_SHARE
        {
            self.note_usage(state);
            // What would come next is judged at the delta's end, which may let a window fire.
            if self.shared.budget.is_exceeded() {
                self.check_received(state)?;
            }
        }
        Ok(())
    }

    /// Whether a window of this stage or of a later one fires in this process, or is about to,
    /// which makes room.
    pub(crate) fn fires_here(&self, state: &StageState) -> bool {
        let later = &self.shared.stages[state.stage.number + 1..];
        state.operator.firing().is_some()
            || state.complete().is_some()
            || state.stage.fired() < state.frontier
            || later.iter().any(|stage| stage.is_firing())
    }

    /// Checks received rows: state of other processes for this leader's keys may exceed its
    /// process's budget, even without input of its own. An error if no firing, writing or shipping
    /// makes room.
    pub(crate) fn check_received(&self, state: &StageState) -> Result<()> {
        match self.shared.budget.check() {
            Err(error)
                if self.shared.budget.held(Kind::Segments) == 0
                    && self.shared.queued_bytes() == 0
                    && !self.fires_here(state) =>
            {
                Err(error)
            }
            _ => Ok(()),
        }
    }

    /// Whether the budget is exceeded, with so many bytes more, but will not be once others have
    /// given back what they keep for later: then they are told.
    pub(crate) fn others_can_give(&self, more: u64) -> bool {
        let waits = matches!(self.shared.budget.check_with(more), Ok(false));
        if waits {
            self.shared.wake_others(self.id);
        }
        waits
    }
}

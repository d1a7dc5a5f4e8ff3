//! A worker's part in a cut. The worker seals stage after stage, and fires all complete windows.
//! Then the worker saves the state of all stages and waits for the other workers.

use super::{StageState, Step, Worker};
use crate::delivery::Seal;
use crate::edges::Root;
use crate::error::Result;
use crate::gather::Gather;
use crate::shared::Shared;

impl Worker {
    /// Takes the state that the job before has saved, if there was one.
    pub(super) fn restore(&mut self, stages: &mut [StageState]) -> Result<()> {
        let shared = self.context.shared.clone();
        for (state, frontier) in stages.iter_mut().zip(&shared.resumed) {
            if let Some(checkpoints) = &shared.checkpoints {
                let (leader, stage) = (self.context.leader, state.stage.number);
                checkpoints.restore(leader, stage, state.operator.as_mut())?;
            }
            state.operator.resume(state.stage.windowing(), *frontier)?;
            state.frontier = *frontier;
            self.context.note_usage(state);
            self.fired_up_to(state)?;
        }
        Ok(())
    }

    /// The next thing to do for a cut, when all batches before it are done and nothing is left to
    /// merge, to write or to fire; `None` if the worker is to go on as usual.
    pub(super) fn step_to_cut(&mut self, stages: &mut [StageState]) -> Result<Option<Step>> {
        let shared = self.context.shared.clone();
        let Some(cut) = shared.cuts.current().filter(|_| shared.intake.has_reached_cut()) else {
            return Ok(None);
        };
        if self.saved == Some(cut) {
            // Rows of other processes come before the notice that these have saved their state.
            if shared.cuts.completes(cut, || shared.gathers.iter().all(Gather::stand)) {
                shared.complete_cut(cut)?;
                return Ok(Some(Step::Busy));
            }
            return Ok(Some(self.pause(stages, None)));
        }
        let id = self.context.id;
        for number in 0..stages.len() {
            if shared.cuts.has_fired(number, id) {
                continue;
            }
            if !shared.cuts.has_sealed(number, id) {
                if self.seal_for_cut(&shared, stages, number, cut)? {
                    return Ok(Some(Step::Busy));
                }
            } else if self.has_fired_before_cut(&shared, &stages[number], cut) {
                shared.cuts.note_fired(number, id, stages[number].frontier);
                shared.wake_others(id);
                return Ok(Some(Step::Busy));
            }
        }
        if !shared.cuts.all_fired() {
            return Ok(Some(self.pause(stages, None)));
        }
        self.save(&shared, stages, cut)?;
        Ok(Some(Step::Busy))
    }

    /// Seals a stage whose inputs are complete. False if it has to wait.
    fn seal_for_cut(
        &mut self,
        shared: &Shared,
        stages: &mut [StageState],
        number: usize,
        cut: u64,
    ) -> Result<bool> {
        let id = self.context.id;
        let is_complete = |root: &Root| match root {
            Root::Source(_) => true,
            Root::Stage(before) => shared.cuts.has_fired(*before, id),
        };
        let state = &stages[number];
        if !state.has_credit() || !state.stage.inputs.iter().all(is_complete) {
            return Ok(false);
        }
        self.context.note_lows(stages)?;
        let state = &mut stages[number];
        self.delivery.end_epoch(&mut self.context, state, Seal::BeforeCut(cut))?;
        shared.cuts.note_sealed(number, id, state.epoch);
        shared.wake_others(id);
        Ok(true)
    }

    /// Whether a stage that this worker has sealed has all rows of the other workers, and of the
    /// other processes, and has fired all windows that are complete.
    fn has_fired_before_cut(&self, shared: &Shared, state: &StageState, cut: u64) -> bool {
        let number = state.stage.number;
        let Some(epochs) = shared.cuts.all_sealed(number) else { return false };
        let others = epochs.iter().enumerate().filter(|(worker, _)| *worker != self.context.id);
        let mut merged = others.map(|(worker, epochs)| state.expected[worker] == *epochs);
        let own = shared.net.as_ref().map(|net| net.place.process);
        let mut processes = state.cuts.iter().enumerate().filter(|(other, _)| Some(*other) != own);
        merged.all(|is| is)
            && processes.all(|(_, merged)| *merged == cut)
            && state.frontier == state.clock.min()
            && state.operator.firing().is_none()
            && self.waiting[number].is_none()
    }

    /// Saves the worker's state.
    fn save(&mut self, shared: &Shared, stages: &mut [StageState], number: u64) -> Result<()> {
        if let Some(checkpoints) = &shared.checkpoints {
            for state in stages.iter_mut() {
                let stage = state.stage.number;
                checkpoints.save(number, self.context.leader, stage, state.operator.as_mut())?;
            }
        }
        self.saved = Some(number);
        shared.cuts.note_saved();
        shared.wake_others(self.context.id);
        Ok(())
    }
}

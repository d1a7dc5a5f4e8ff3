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
        if !shared.cuts.has_begun() || !shared.intake.has_reached_cut() {
            return Ok(None);
        }
        let id = self.context.id;
        for number in 0..stages.len() {
            if shared.cuts.has_fired(number, id) {
                continue;
            }
            if !shared.cuts.has_sealed(number, id) {
                if self.seal_for_cut(&shared, stages, number)? {
                    return Ok(Some(Step::Busy));
                }
            } else if self.has_fired_before_cut(&shared, &stages[number]) {
                shared.cuts.note_fired(number, id, stages[number].frontier);
                shared.wake_others(id);
                return Ok(Some(Step::Busy));
            }
        }
        if !shared.cuts.all_fired()
            || self.saved == Some(shared.cuts.number())
            || !shared.gathers.iter().all(Gather::stand)
        {
            return Ok(Some(self.pause(stages, None)));
        }
        self.save(&shared, stages)?;
        Ok(Some(Step::Busy))
    }

    /// Seals a stage whose inputs are complete. False if it has to wait.
    fn seal_for_cut(
        &mut self,
        shared: &Shared,
        stages: &mut [StageState],
        number: usize,
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
        self.delivery.end_epoch(&mut self.context, state, Seal::Everything)?;
        shared.cuts.note_sealed(number, id, state.epoch);
        shared.wake_others(id);
        Ok(true)
    }

    /// Whether a stage that this worker has sealed has all rows of the other workers, and has fired
    /// all windows that are complete.
    fn has_fired_before_cut(&self, shared: &Shared, state: &StageState) -> bool {
        let number = state.stage.number;
        let Some(epochs) = shared.cuts.all_sealed(number) else { return false };
        let others = epochs.iter().enumerate().filter(|(worker, _)| *worker != self.context.id);
        let mut merged = others.map(|(worker, epochs)| state.expected[worker] == *epochs);
        merged.all(|is| is)
            && state.frontier == state.clock.min()
            && state.operator.firing().is_none()
            && self.waiting[number].is_none()
    }

    /// Saves the worker's state. The last worker completes the cut.
    fn save(&mut self, shared: &Shared, stages: &mut [StageState]) -> Result<()> {
        let number = shared.cuts.number();
        if let Some(checkpoints) = &shared.checkpoints {
            for state in stages.iter_mut() {
                let stage = state.stage.number;
                checkpoints.save(number, self.context.leader, stage, state.operator.as_mut())?;
            }
        }
        self.saved = Some(number);
        match shared.cuts.note_saved() {
            true => shared.complete_cut(),
            // While this worker wrote, others could not save.
            false => {
                shared.wake_others(self.context.id);
                Ok(())
            }
        }
    }
}

//! A worker's part in a cut. The worker seals stage after stage, and fires all complete windows.
//! Then the worker sets the state of all stages aside and waits for the other workers. The state is
//! saved when all go on. Until then windows that need what was not copied do not fire.

use super::{StageState, Standing, Step, Worker};
use crate::delivery::Seal;
use crate::edges::Root;
use crate::error::Result;
use crate::gather::Gather;
use crate::shared::Shared;
use millstream_operators::budget::{Held, Kind};
use millstream_operators::operator::saved::{SavePoint, SavedBatch, SetAside, Unchanged};

/// Copying this part of the setting `memory`, over all workers, is no risk; and this many bytes
/// takes a worker some milliseconds.
const COPIED_PART: u64 = 16;
const COPIED_BYTES_MAX: u64 = 4 << 20;

/// A worker that waits for state to be saved looks again after this time.
const LOOK_AGAIN_US: i64 = 1_000;

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
        shared.note_restored()
    }

    /// The next thing to do for a cut, when all batches before it are done and nothing is left to
    /// merge, to write or to fire; `None` if the worker is to go on as usual.
    pub(super) fn step_to_cut(&mut self, stages: &mut [StageState]) -> Result<Option<Step>> {
        let shared = self.context.shared.clone();
        let Some(cut) = shared.cuts.current() else {
            if let Some(Standing { us, .. }) = self.standing.take() {
                shared.stops.note_pause(us.max(0) as u64);
            }
            return Ok(None);
        };
        if !shared.intake.has_reached_cut() {
            return Ok(None);
        }
        if self.saved == Some(cut) {
            // Rows of other processes come before the notice that these have saved their state.
            if shared.cuts.completes(cut, || shared.gathers.iter().all(Gather::stand)) {
                shared.complete_cut(cut)?;
                return Ok(Some(Step::Busy));
            }
            self.stand();
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
        self.stand();
        if !shared.cuts.all_fired() {
            return Ok(Some(self.pause(stages, None)));
        }
        shared.stops.end_part(0, shared.env.now_us());
        self.save(&shared, stages, cut)?;
        Ok(Some(Step::Busy))
    }

    /// The worker stands still until its next step.
    fn stand(&mut self) {
        let since = Some(self.context.shared.env.now_us());
        self.standing.get_or_insert_default().since = since;
    }

    /// Begins a step of a worker that has stood still for a cut.
    pub(super) fn stop_standing(&mut self) {
        if let Some(Standing { since, us }) = &mut self.standing
            && let Some(since) = since.take()
        {
            *us += self.context.shared.env.now_us().saturating_sub(since);
        }
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
            // A table that an edited query reads anew may be behind what the stage has fired.
            && state.frontier >= state.clock.min()
            && state.operator.firing().is_none()
            && !state.operator.awaits_thaw(None)
            && self.waiting[number].is_none()
    }

    /// Sets the worker's state aside, to be saved.
    fn save(&mut self, shared: &Shared, stages: &mut [StageState], number: u64) -> Result<()> {
        if let Some(checkpoints) = &shared.checkpoints {
            let mut left_bytes = copied_bytes_max(shared);
            for state in stages.iter_mut() {
                let aside = state.operator.set_aside(shared.cuts.last(), left_bytes)?;
                left_bytes = left_bytes.saturating_sub(aside.copied_bytes());
                self.thaws |= state.operator.awaits_thaw(None);
                let bytes = size_of::<Counted>() + aside.copied_bytes();
                let held = shared.budget.hold(Kind::Saved, bytes);
                let aside = Box::new(Counted { aside, held });
                checkpoints.save(number, self.context.leader, state.stage.number, aside);
                self.context.note_usage(state);
            }
        }
        self.note_thaws(self.thaws);
        self.saved = Some(number);
        shared.cuts.note_saved(&self.context.stats.of_run());
        shared.wake_others(self.context.id);
        Ok(())
    }

    /// The time of the next look of a worker that waits for state to be saved: it is not woken.
    #[cold]
    pub(super) fn await_thaw(&self) -> Option<i64> {
        let shared = &self.context.shared;
        shared.checkpoints.iter().for_each(|checkpoints| checkpoints.is_awaited());
        Some(shared.env.now_us() + LOOK_AGAIN_US)
    }

    /// Goes on to take back what was set aside and has been saved. Whether there was something to
    /// do.
    pub(super) fn thaw_some(&mut self, stages: &mut [StageState]) -> bool {
        for state in stages.iter_mut() {
            if state.operator.thaw() {
                self.context.note_usage(state);
                return true;
            }
        }
        self.note_thaws(stages.iter().any(|state| state.operator.awaits_thaw(None)));
        false
    }

    /// Notes whether state is set aside. As long as it is, a lack of memory may pass.
    fn note_thaws(&mut self, thaws: bool) {
        self.thaws = thaws;
        let budget = &self.context.shared.budget;
        self.thaws_held = thaws.then(|| budget.hold(Kind::Saved, 1));
    }
}

/// How many bytes each worker may copy while all stand.
fn copied_bytes_max(shared: &Shared) -> usize {
    let part = shared.settings.memory_bytes / COPIED_PART / shared.settings.workers as u64;
    match shared.env.choose(3) {
        // In simulation.
        Some(0) => 0,
        Some(1) => 1_000,
        _ => part.min(COPIED_BYTES_MAX) as usize,
    }
}

/// State set aside; its copies count against the budget.
struct Counted {
    aside: Box<dyn SetAside>,
    held: Held,
}

impl SetAside for Counted {
    fn save(&mut self, at: &mut SavePoint) -> Result<Option<SavedBatch>> {
        self.aside.save(at)
    }

    fn copied_bytes(&self) -> usize {
        self.aside.copied_bytes()
    }

    /// Not with a budget that would be tight.
    fn copy_shared(&mut self) {
        if self.held.is_affordable(self.aside.shared_bytes()) {
            self.aside.copy_shared();
            self.held.resize(size_of::<Counted>() + self.aside.copied_bytes());
        }
    }

    fn unchanged(&self) -> Unchanged {
        self.aside.unchanged()
    }
}

//! Admission: whether a source, a batch or fired rows may go on, and if not, because of which
//! [`Obstacle`]. The observer shows the same answer.
//!
//! Rows go on when all stages and outputs that take them have credit, memory and room.

use arrow::array::RecordBatch;
use millstream_state::Load;

use super::{FiredRows, StageState, Step, Worker};
use crate::delivery::Seal;
use crate::edges::Feeds;
use crate::error::Result;
use crate::gather::{ChunkAt, Gather};
use crate::intake::Admitted;
use crate::obstacle::Obstacle;
use millstream_operators::budget::{Kind, batch_bytes};
use millstream_operators::event_time::END;
use millstream_operators::stamped::Stamped;

/// A worker that waits for others to free memory looks again after this time, microseconds.
const STALL_US: i64 = 1_000;

/// The answer for fired rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Admission {
    /// They go on.
    Free,
    /// Progress towards room was made: the worker asks again in its next step.
    Again,
    /// They wait.
    Waits(Obstacle),
}

/// The answer for all sources.
pub(super) struct Sources {
    /// By source: the splits that may go on.
    pub(super) admitted: Vec<Admitted>,
    /// When the worker looks again if nothing else happens: some stage or output lacks room.
    pub(super) look_again_us: Option<i64>,
}

/// Whether time alone may remove an obstacle: the worker is not woken for it.
fn is_looked_at_again(obstacle: &Option<Obstacle>) -> bool {
    matches!(obstacle, Some(Obstacle::Memory | Obstacle::Output))
}

fn is_credit(obstacle: &Option<Obstacle>) -> bool {
    matches!(obstacle, Some(Obstacle::Credit | Obstacle::Slot))
}

impl Worker {
    /// The sources that may be read, or the step's outcome if none may.
    pub(super) fn admit_sources(
        &mut self,
        stages: &mut [StageState],
        tight: bool,
    ) -> Result<std::result::Result<Sources, Step>> {
        let shared = self.context.shared.clone();
        let sources = &shared.edges.sources;
        let unwanted = |feeds: &Feeds| (!shared.is_wanted(feeds)).then_some(Obstacle::Unwanted);
        self.held.clear();
        self.held.extend(sources.iter().map(unwanted));
        let usual = if tight { Admitted::Lowest } else { Admitted::All };
        let mut admitted = vec![usual; sources.len()];
        if !self.find_room(&mut admitted)? {
            return Ok(Err(Step::Busy));
        }
        self.note_obstacles(stages, &admitted, Obstacle::Credit)?;
        if let Some(step) = self.wait_for_all(stages) {
            return Ok(Err(step));
        }
        if tight {
            if self.lighten(stages)? {
                return Ok(Err(Step::Busy));
            }
            self.note_unsettled(&admitted);
            if self.held.iter().any(is_looked_at_again) && shared.intake.look_at_idle()? {
                return Ok(Err(Step::Busy));
            }
            if let Some(step) = self.wait_for_all(stages) {
                return Ok(Err(step));
            }
        }
        self.note_obstacles(stages, &admitted, Obstacle::Slot)?;
        if let Some(step) = self.wait_for_all(stages) {
            return Ok(Err(step));
        }
        let soon = self.blocked.iter().chain(&self.held).any(is_looked_at_again);
        self.context.stats.credit_stalls += u64::from(self.held.iter().any(is_credit));
        for (admitted, held) in admitted.iter_mut().zip(&self.held) {
            if held.is_some() {
                *admitted = Admitted::Nothing;
            }
        }
        let look_again_us = soon.then(|| shared.env.now_us() + STALL_US);
        Ok(Ok(Sources { admitted, look_again_us }))
    }

    /// Notes the obstacles of sources in stages that they feed, or in later ones; of stages without
    /// credit, for this kind of it. Chunks that outputs await do not wait for others, who may wait
    /// for the outputs.
    fn note_obstacles(
        &mut self,
        stages: &[StageState],
        admitted: &[Admitted],
        credit: Obstacle,
    ) -> Result<()> {
        let shared = self.context.shared.clone();
        for (source, feeds) in shared.edges.sources.iter().enumerate() {
            if self.held[source].is_none() {
                let awaited = matches!(admitted[source], Admitted::Awaited(_));
                let obstacle = self.obstacle_behind(stages, feeds, credit)?;
                self.held[source] = obstacle.filter(|o| *o == Obstacle::NoInput || !awaited);
            }
        }
        Ok(())
    }

    /// The obstacle of a source's rows in the stages behind it.
    fn obstacle_behind(
        &self,
        stages: &[StageState],
        feeds: &Feeds,
        credit: Obstacle,
    ) -> Result<Option<Obstacle>> {
        let blocked = feeds.later.iter().filter_map(|stage| self.blocked[*stage]);
        // More input does no harm to a window that only has to wait.
        let blocked = blocked.filter(|obstacle| *obstacle != Obstacle::Checkpoint).max();
        if blocked.is_some() {
            return Ok(blocked);
        }
        for stage in &feeds.stages {
            match self.delivery.hold(&self.context, &stages[*stage])? {
                Some(held) if held == credit || !is_credit(&Some(held)) => return Ok(Some(held)),
                _ => {}
            }
        }
        Ok(None)
    }

    /// Memory is tight: notes which sources have to wait until complete windows have been fired, or
    /// until other workers have given back memory that they keep.
    fn note_unsettled(&mut self, admitted: &[Admitted]) {
        let shared = &self.context.shared;
        let sources = &shared.edges.sources;
        let others_can_give = self.context.others_can_give(0);
        for ((feeds, admitted), held) in sources.iter().zip(admitted).zip(&mut self.held) {
            if held.is_some() || matches!(admitted, Admitted::Awaited(_)) {
                continue;
            }
            let of_group = sources.iter().zip(&self.context.lows);
            let of_group = of_group.filter(|(other, _)| other.group == feeds.group);
            let low = of_group.map(|(_, low)| *low).min().unwrap_or(END);
            let waits = others_can_give || !shared.settled(feeds.group, low);
            *held = waits.then_some(Obstacle::Memory);
        }
    }

    /// The step's outcome if all sources have to wait.
    fn wait_for_all(&mut self, stages: &[StageState]) -> Option<Step> {
        let unwanted = |held: &Option<Obstacle>| *held == Some(Obstacle::Unwanted);
        if self.held.contains(&None) || self.held.iter().all(unwanted) {
            return None;
        }
        let greatest = self.held.iter().flatten().max().copied()?;
        Some(self.wait_for(stages, greatest))
    }

    /// Waits until an obstacle is gone.
    pub(super) fn wait_for(&mut self, stages: &[StageState], obstacle: Obstacle) -> Step {
        let stats = &mut self.context.stats;
        match obstacle {
            Obstacle::Memory => stats.memory_stalls += 1,
            Obstacle::Output => stats.output_stalls += 1,
            Obstacle::Credit | Obstacle::Slot => stats.credit_stalls += 1,
            Obstacle::NoInput | Obstacle::Unwanted | Obstacle::Checkpoint => {}
        }
        self.doing = obstacle.into();
        let soon = is_looked_at_again(&Some(obstacle));
        let soon = soon.then(|| self.context.shared.env.now_us() + STALL_US);
        self.pause(stages, soon)
    }

    /// Memory is tight: ends the epoch of the last stage that holds rows for others, since merged
    /// rows take less room than rows in fragments. False if no stage does.
    fn lighten(&mut self, stages: &mut [StageState]) -> Result<bool> {
        let mut last_first = stages.iter_mut().rev();
        if let Some(state) = last_first.find(|state| state.operator.holds_for_others()) {
            self.delivery.end_epoch(&mut self.context, state, Seal::Everything)?;
            return Ok(true);
        }
        self.delivery.hurry(&self.context, None, false)?;
        Ok(false)
    }

    /// For outputs without room for more rows of records, admits only awaited rows, also to other
    /// outputs without room: otherwise two outputs would wait for each other. False if progress
    /// towards room was made.
    fn find_room(&mut self, admitted: &mut [Admitted]) -> Result<bool> {
        let shared = &self.context.shared;
        let takes = |gather: &&Gather| gather.takes_batches() && !gather.has_ended();
        let mut awaited = Vec::new();
        // By source: whether there is no room for rows of it.
        let (mut congested, mut full) = (vec![false; admitted.len()], vec![false; admitted.len()]);
        for gather in shared.gathers.iter().filter(takes) {
            let sources = shared.edges.sources.iter().enumerate();
            let sources = sources.filter(|(_, feeds)| feeds.outputs.contains(&gather.output()));
            if gather.is_congested() {
                sources.for_each(|(source, _)| congested[source] = true);
            } else {
                let own = match gather.is_full() {
                    true => self.awaited_by(gather),
                    false => Vec::new(),
                };
                sources.for_each(|(source, _)| full[source] |= !own.is_empty());
                let requested = gather.requested().into_iter().map(|chunk| (chunk, false));
                let own = own.into_iter().map(|chunk| (chunk, true));
                for ((sequence, split), is_own) in own.chain(requested) {
                    let sent = gather.is_sent((sequence, split));
                    if !sent && shared.intake.has_chunk(split, sequence) {
                        awaited.push(split);
                    } else if shared.intake.look_for_end(split, sequence)? {
                        return Ok(false);
                    } else if is_own && !sent {
                        gather.request((sequence, split))?;
                    }
                }
            }
        }
        for (source, held) in self.held.iter_mut().enumerate().filter(|(_, held)| held.is_none()) {
            let of_source = |split: &&usize| shared.intake.source_of(**split) == source;
            let mut splits: Vec<usize> = awaited.iter().filter(of_source).copied().collect();
            if full[source] && splits.is_empty() {
                // The rows that are missing may come behind a cut, which waits for these.
                splits = shared.intake.awaited_by_cut(source);
            }
            if congested[source] || full[source] && splits.is_empty() {
                // Where there is no such split, all have to wait.
                *held = Some(Obstacle::Output);
            } else if !splits.is_empty() {
                admitted[source] = Admitted::Awaited(splits);
            }
        }
        Ok(true)
    }

    /// The chunks that rows of an output wait for, when rows that need not wait have been queued.
    fn awaited_by(&self, gather: &Gather) -> Vec<ChunkAt> {
        gather.queue_batches(&self.context.shared.intake.ended_splits());
        gather.awaited_chunks()
    }

    /// Whether all stages that a batch's source feeds have room for it. If all others wait for its
    /// rows, only leaders that merge can make room.
    pub(super) fn admit_batch(
        &mut self,
        stages: &mut [StageState],
        admitted: &Admitted,
        batch: &Stamped,
        tight: bool,
    ) -> Result<Option<Obstacle>> {
        let shared = self.context.shared.clone();
        let feeds = &shared.edges.sources[shared.intake.source_of(batch.split)];
        let awaited = matches!(admitted, Admitted::Awaited(_));
        let mut lacks_credit = false;
        for stage in feeds.later.iter().filter(|_| awaited) {
            let held = self.delivery.hold(&self.context, &stages[*stage])?;
            lacks_credit |= held == Some(Obstacle::Credit);
        }
        let settled = || match awaited {
            true => lacks_credit || shared.budget.held(Kind::Segments) == 0,
            false => shared.settled(feeds.group, batch.holds),
        };
        for stage in &feeds.stages {
            let load = feeds.takers.load_of(*stage, &batch.prepared.batch);
            let state = &mut stages[*stage];
            if !self.delivery.has_room(&self.context, state, load, tight, &settled)? {
                return Ok(Some(Obstacle::Memory));
            }
        }
        Ok(None)
    }

    /// Whether the next rows of a window may go to all stages and outputs that take them.
    pub(super) fn admit_fired(
        &mut self,
        stages: &mut [StageState],
        number: usize,
        fired: &FiredRows,
        tight: bool,
    ) -> Result<Admission> {
        let shared = self.context.shared.clone();
        let feeds = &shared.edges.stages[number];
        let state = &mut stages[number];
        if let Some(obstacle) =
            self.admit_to_outputs(state, &feeds.outputs, &fired.rows.batch, tight)?
        {
            return Ok(Admission::Waits(obstacle));
        }
        for next in &feeds.stages {
            let load = feeds.takers.load_of(*next, &fired.rows.batch);
            match self.admit_to_stage(&mut stages[*next], load, tight)? {
                Admission::Free => {}
                other => return Ok(other),
            }
        }
        Ok(Admission::Free)
    }

    /// Whether outputs admit the next `rows` of a stage's firing window: the rows, which may have
    /// to wait for their turn, must fit beside its state. Rows that wait for a slow leader must
    /// leave room for the leader's rows.
    fn admit_to_outputs(
        &self,
        state: &mut StageState,
        outputs: &[usize],
        rows: &RecordBatch,
        tight: bool,
    ) -> Result<Option<Obstacle>> {
        let shared = &self.context.shared;
        let gathers = outputs.iter().map(|output| &shared.gathers[*output]);
        let gathers: Vec<_> = gathers.filter(|gather| !gather.has_ended()).collect();
        if gathers.is_empty() {
            return Ok(None);
        }
        let budget = &shared.budget;
        let held = gathers.iter().filter(|gather| gather.holds()).count();
        let rows_bytes = (held * batch_bytes(rows)) as u64;
        let small = self.is_small(state) && rows_bytes <= shared.settings.memory_bytes / 64;
        // Rows of small windows that wait for their order must leave room, too.
        let many_rows = budget.held(Kind::Output) > shared.settings.memory_bytes / 16;
        for gather in &gathers {
            if gather.is_congested() {
                return Ok(Some(Obstacle::Output));
            }
            let waits = gather.is_full() || tight && (!small || many_rows);
            if waits && gather.others_behind(state.stage.number, state.frontier) {
                return Ok(Some(Obstacle::Memory));
            }
        }
        // Where rows do not wait here, firing takes nothing and frees the window's state.
        let free = rows_bytes == 0 && !budget.is_exceeded();
        if small || free || matches!(budget.check_with(rows_bytes), Ok(true)) {
            budget.set_scarce(false);
            return Ok(None);
        }
        state.operator.give_back();
        self.context.note_usage(state);
        // Segments take less room when they have been merged.
        if budget.held(Kind::Segments) > 0 {
            self.delivery.hurry(&self.context, None, true)?;
            return Ok(Some(Obstacle::Memory));
        }
        // Rows that are being written will be free.
        if gathers.iter().any(|gather| gather.queued_bytes() > 0) {
            return Ok(Some(Obstacle::Memory));
        }
        // They give it only where memory is scarce, which it may not be but for these rows.
        let waits = self.context.others_can_give(rows_bytes);
        budget.set_scarce(waits);
        let fits = !waits && budget.check_with(rows_bytes)?;
        Ok((!fits).then_some(Obstacle::Memory))
    }

    /// Whether the next stage can take so many rows of the window that is firing.
    fn admit_to_stage(
        &mut self,
        next: &mut StageState,
        load: Load,
        tight: bool,
    ) -> Result<Admission> {
        let shared = self.context.shared.clone();
        let number = next.stage.number;
        if !shared.is_wanted(&shared.edges.stages[number]) {
            return Ok(Admission::Free);
        }
        if let Some(obstacle) = self.delivery.hold(&self.context, next)? {
            return Ok(Admission::Waits(obstacle));
        }
        if tight {
            if next.operator.holds_for_others() {
                // Merged rows take less room than rows in fragments.
                self.delivery.end_epoch(&mut self.context, next, Seal::Everything)?;
                return Ok(Admission::Again);
            }
            self.delivery.hurry(&self.context, Some(number), false)?;
        }
        let (fired, frontier) = (next.stage.fired(), next.frontier);
        let settled = || {
            shared.budget.held(Kind::Segments) == 0
                && shared.queued_bytes() == 0
                && fired >= frontier
                && !shared.stages[number..].iter().any(|stage| stage.is_firing())
        };
        Ok(match self.delivery.has_room(&self.context, next, load, tight, &settled)? {
            true => Admission::Free,
            false => Admission::Waits(Obstacle::Memory),
        })
    }

    /// Whether the firing window of a stage is small, so that firing takes next to nothing and then
    /// frees the state.
    pub(super) fn is_small(&self, state: &StageState) -> bool {
        let live_bytes = state.operator.firing().map_or(0, |firing| firing.live_bytes);
        live_bytes <= self.context.shared.settings.memory_bytes / 64
    }
}

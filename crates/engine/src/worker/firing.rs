//! Firing: a complete window yields its rows, to all stages and outputs that read them.

use std::collections::BTreeMap;

use arrow::array::RecordBatch;

use super::admission::Admission;
use super::{FiredRows, StageState, Worker};
use crate::edges::{Edge, OutputPath, Takers};
use crate::error::Result;
use crate::obstacle::Obstacle;
use crate::rows::Rows;
use millstream_operators::budget::{Kind, batch_bytes};
use millstream_operators::columns::rows_in;
use millstream_operators::event_time::END;
use millstream_operators::operator::expansion::Piece;
use millstream_operators::operator::stateless::SelectedRows;
use millstream_operators::operator::{RowTimes, Step};
use millstream_operators::windowing::SliceId;

/// The outcome of an attempt to fire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fired {
    /// No window is complete.
    Nothing,
    /// Something was done.
    Some,
    /// Rows wait.
    Waits(Obstacle),
}

impl Worker {
    /// Goes on with a firing window, or starts with a complete window, of the last stage with such
    /// a window, so that fired rows make room for new rows. False if there is no such window, or
    /// none may fire; the obstacle is noted. A stage before a blocked stage may not fire either.
    pub(super) fn fire_some(&mut self, stages: &mut [StageState], tight: bool) -> Result<bool> {
        let shared = self.context.shared.clone();
        for number in (0..stages.len()).rev() {
            let later = shared.edges.stages[number].later.iter();
            let mut blocked = later.filter_map(|stage| self.blocked[*stage]);
            self.blocked[number] = match blocked.next() {
                Some(obstacle) => Some(obstacle),
                None => match self.fire(stages, number, tight)? {
                    Fired::Nothing => None,
                    Fired::Waits(obstacle) => Some(obstacle),
                    Fired::Some => {
                        self.blocked.fill(None);
                        return Ok(true);
                    }
                },
            };
        }
        Ok(false)
    }

    /// Goes on with the firing window of a stage, or starts with a complete window; the rows go to
    /// all their readers.
    fn fire(&mut self, stages: &mut [StageState], number: usize, tight: bool) -> Result<Fired> {
        let shared = self.context.shared.clone();
        if stages[number].operator.firing().is_none() {
            return self.fire_complete(&mut stages[number]);
        }
        let feeds = &shared.edges.stages[number];
        if !shared.is_wanted(feeds) {
            self.waiting[number] = None;
            self.end_of_firing(&mut stages[number])?;
            return Ok(Fired::Some);
        }
        let fired = match self.waiting[number].take() {
            Some((fired, _)) => fired,
            None => match self.read_fired(&mut stages[number])? {
                Some(fired) => fired,
                None => return Ok(Fired::Some),
            },
        };
        let obstacle = match self.admit_fired(stages, number, &fired, tight)? {
            Admission::Free => {
                self.push_fired(stages, &feeds.takers, &fired)?;
                return Ok(Fired::Some);
            }
            Admission::Again => None,
            Admission::Waits(obstacle) => Some(obstacle),
        };
        let held = shared.budget.hold(Kind::Fired, batch_bytes(&fired.rows.batch));
        self.waiting[number] = Some((fired, held));
        Ok(obstacle.map_or(Fired::Some, Fired::Waits))
    }

    /// Goes on with the window that a stage fires; its next rows, if there are some now.
    fn read_fired(&mut self, state: &mut StageState) -> Result<Option<FiredRows>> {
        let Some(firing) = state.operator.firing() else { return Ok(None) };
        let (number, window) = (state.stage.number, firing.window);
        let from = self.context.timed_from();
        let step = state.operator.step()?;
        let us = self.context.timed_since(from);
        if let Some(of_stage) = self.context.stats.stages.get_mut(number) {
            of_stage.fire_us += us;
        }
        let (rows, times, last) = match step {
            Step::Rows { rows, times, last } => (rows, times, last),
            Step::Working => {
                self.context.note_usage(state);
                return Ok(None);
            }
            Step::Over => {
                self.end_of_firing(state)?;
                return Ok(None);
            }
        };
        let time = state.stage.windowing().row_time(window);
        let times = times.map_or(RowTimes::Same(time), RowTimes::Each);
        if let Some(of_stage) = self.context.stats.stages.get_mut(number) {
            of_stage.rows_out += rows.num_rows() as u64;
        }
        let rows = Rows { batch: rows, kind: state.stage.program.fired_kind() };
        Ok(Some(FiredRows { rows, window, times, last }))
    }

    /// Gives fired rows to all their readers.
    fn push_fired(
        &mut self,
        stages: &mut [StageState],
        takers: &Takers,
        fired: &FiredRows,
    ) -> Result<()> {
        let FiredRows { rows, window, times, last } = fired;
        for OutputPath { output, input, .. } in &takers.ways {
            let from = self.context.timed_from();
            let gather = &self.context.shared.gathers[*output];
            let came = gather.window_rows(
                self.context.id,
                (*input, *window),
                (rows.clone(), times),
                *last,
            );
            self.context.stats.write_us += self.context.timed_since(from);
            self.context.shared.ends(*output, came)?;
        }
        for edge in &takers.edges {
            if self.context.shared.is_wanted(&self.context.shared.edges.stages[edge.stage]) {
                let state = &mut stages[edge.stage];
                let rows = rows.finals("a stage of the query")?;
                self.take_fired(state, edge, rows, times)?;
            }
        }
        for pass in &takers.passes {
            let (window, last) = (*window, *last);
            let taken = match times {
                RowTimes::Same(_) => SelectedRows::from(pass.taking.rows(&rows.batch)?),
                RowTimes::Each(_) => pass.taking.take(&rows.batch)?,
            };
            self.context.stats.note_passed(pass.stage, pass.input, taken.rows.num_rows());
            let Some(expansion) = &pass.expansion else {
                let times = times.of(taken.places.as_deref());
                let rows = Rows { batch: taken.rows, ..*rows };
                let fired = FiredRows { rows, window, times, last };
                self.push_fired(stages, &pass.takers, &fired)?;
                continue;
            };
            let mut pieces = expansion.pieces(&taken)?;
            let mut next = pieces.next_piece()?;
            while let Some(Piece { taken: SelectedRows { rows: batch, places }, .. }) = next {
                next = pieces.next_piece()?;
                let last = last && next.is_none();
                let times = times.of(places.as_deref());
                let rows = Rows { batch, ..*rows };
                self.push_fired(stages, &pass.takers, &FiredRows { rows, window, times, last })?;
            }
        }
        Ok(())
    }

    /// Gives rows that have been fired to a stage, slice by slice.
    fn take_fired(
        &mut self,
        state: &mut StageState,
        edge: &Edge,
        rows: &RecordBatch,
        times: &RowTimes,
    ) -> Result<()> {
        let RowTimes::Each(each) = times else {
            return self.take_rows(state, edge, rows, times);
        };
        let windowing = *state.stage.windowing();
        let mut by_slice: BTreeMap<SliceId, Vec<u32>> = BTreeMap::new();
        for (row, time) in each.iter().enumerate() {
            by_slice.entry(windowing.slice_of(*time).slice).or_default().push(row as u32);
        }
        for places in by_slice.into_values() {
            let times = times.of(Some(&places));
            let rows = rows_in(rows, places)?;
            self.take_rows(state, edge, &rows, &times)?;
        }
        Ok(())
    }

    /// All rows of the window have been taken.
    fn end_of_firing(&mut self, state: &mut StageState) -> Result<()> {
        let Some(firing) = state.operator.firing() else { return Ok(()) };
        state.frontier = state.stage.windowing().fires_at(firing.window);
        let small = self.is_small(state);
        state.operator.end_firing();
        state.stage.note_end_of_firing();
        if !small || self.context.shared.budget.tight() {
            // Before others may believe that all has been freed.
            self.context.note_usage(state);
        }
        self.fired_up_to(state)
    }

    /// Starts firing the first window that the vector clock says is complete. One at a time, in
    /// order, so that a window's rows come out before the next one fires.
    fn fire_complete(&mut self, state: &mut StageState) -> Result<Fired> {
        let complete = state.clock.min();
        if complete <= state.frontier {
            return Ok(Fired::Nothing);
        }
        let Some(window) = state.complete() else {
            if complete == END && state.operator.fire_nothing() {
                state.stage.note_firing();
                return Ok(Fired::Some);
            }
            state.frontier = complete;
            self.context.note_usage(state);
            self.fired_up_to(state)?;
            return Ok(Fired::Some);
        };
        if self.thaws && state.operator.awaits_thaw(Some(window)) {
            return Ok(Fired::Waits(Obstacle::Checkpoint));
        }
        if complete > state.rested {
            // Once for all windows that this lets go: now there is the most of it.
            state.rested = complete;
            self.context.note_usage(state);
            self.context.shared.budget.note_rest();
        }
        if state.operator.fire(window) {
            state.stage.note_firing();
        }
        Ok(Fired::Some)
    }

    /// Tells how far this worker has fired a stage.
    pub(super) fn fired_up_to(&mut self, state: &StageState) -> Result<()> {
        let shared = &self.context.shared;
        let stage = &state.stage;
        stage.note_fired(self.context.id, state.frontier);
        let feeds = &shared.edges.stages[stage.number];
        if !feeds.stages.is_empty() && shared.budget.tight() {
            // Wakes workers that may wait for the memory.
            shared.wake_all();
        }
        feeds.outputs.iter().try_for_each(|output| {
            shared.gathers[*output].advance(self.context.id, stage.number, state.frontier)
        })
    }

    /// Writes rows of outputs in their turn; returns whether there were any.
    pub(super) fn write_some(&mut self) -> Result<bool> {
        let shared = &self.context.shared;
        let Some(windows) = shared.write_shares(self.context.id)? else { return Ok(false) };
        if windows > 0 && shared.intake.has_more() {
            self.context.stats.windows_fired_early += windows;
        }
        Ok(true)
    }
}

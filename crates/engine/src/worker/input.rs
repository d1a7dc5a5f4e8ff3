//! The input of a stage: batches of records for the first stage, and for each other one the rows
//! that the stage before it fires.

use arrow::array::RecordBatch;
use millstream_state::Load;

use super::epoch::Seal;
use super::{State, Step, Worker};
use crate::budget::batch_bytes;
use crate::cluster::Stall;
use crate::error::{Error, Result};
use crate::intake::{Only, Stamped, Taken};
use crate::meter;
use crate::pipeline::Grouping;
use crate::skipped::{note_malformed, note_row, place_of};
use crate::windowing::WHOLE;

impl Worker {
    /// Takes a batch of records into the first stage, if all stages have room for what comes of it.
    pub(super) fn take_input(&mut self, stages: &mut [State], tight: bool) -> Result<Step> {
        let shared = self.shared.clone();
        let stall = shared.net.as_ref().and_then(|net| net.delivery(0).stall());
        if !stages[0].has_credit() || stall == Some(Stall::Leader) {
            self.stats.credit_stalls += 1;
            return Ok(self.pause(stages, None));
        }
        if tight {
            let mut last_first = stages.iter_mut().rev();
            if let Some(state) = last_first.find(|state| state.slices.has_fragment_rows()) {
                // What leaders have merged takes less room than what waits in fragments.
                self.end_epoch(state, state.low, Seal::Everything)?;
                return Ok(Step::Busy);
            }
            if let Some(net) = &shared.net {
                net.hurry(false)?;
            }
            if !shared.settled(stages[0].low) || self.others_can_give(0) {
                return Ok(self.stall(stages));
            }
        }
        if stall == Some(Stall::Slot) {
            self.stats.credit_stalls += 1;
            return Ok(self.pause(stages, None));
        }
        match shared.intake.take(self.id, if tight { Only::Lowest } else { Only::Any })? {
            Taken::Batch(batch) => {
                let load = stages[0].stage.grouping.load(&batch.prepared.batch);
                let settled = || shared.settled(batch.stamp);
                if !self.has_room(&mut stages[0], load, tight, settled)? {
                    shared.intake.put_back(self.id, batch);
                    return Ok(self.stall(stages));
                }
                self.process(&mut stages[0], *batch)?;
                Ok(Step::Busy)
            }
            Taken::Again => Ok(Step::Busy),
            Taken::Wait { until_us } => Ok(self.pause(stages, until_us)),
            Taken::Held => Ok(self.stall(stages)),
            // Whoever finishes the last batch wakes the others.
            Taken::Ended => Ok(self.pause(stages, None)),
        }
    }

    pub(super) fn count(&mut self, batch: &Stamped) {
        self.stats.records += batch.prepared.batch.num_rows() as u64;
        self.stats.input_bytes += batch.prepared.input_bytes as u64;
        self.stats.malformed_records += batch.prepared.malformed_records;
        note_malformed(&mut self.stats.first_malformed, batch);
        self.stats.batches_stolen += u64::from(!self.shared.intake.prefers(self.id, batch.split));
        if let Some(times) = &batch.prepared.times {
            self.stats.ahead_records += times.ahead_records;
        }
    }

    /// An error of evaluating a batch, with the place of the record that it is about.
    pub(super) fn for_record(&self, error: Error, grouping: &Grouping, batch: &Stamped) -> Error {
        if !error.is_of_records() {
            return error;
        }
        let name = self.shared.intake.name(batch.split);
        grouping
            .first_failing(batch)
            .map_or(error, |(row, error)| error.for_record(&place_of(batch, row, name)))
    }

    fn process(&mut self, state: &mut State, batch: Stamped) -> Result<()> {
        let mut span = meter::span(meter::Kind::Batch);
        span.add(batch.prepared.batch.num_rows());
        self.count(&batch);
        state.slices.begin_batch();
        let delivery = self.shared.net.as_ref().map(|net| net.delivery(state.stage.number));
        let grouping = &state.stage.grouping;
        let (dropped, fragment_rows) = grouping
            .run(&batch, &mut state.slices, delivery, &mut self.buffers)
            .map_err(|error| self.for_record(error, grouping, &batch))?;
        self.stats.late_records += dropped.late;
        self.stats.null_time_records += dropped.null_time;
        self.stats.unusable_time_records += dropped.unusable_time;
        let name = self.shared.intake.name(batch.split);
        note_row(&mut self.stats.first_null_time, &batch, dropped.first_null_time, name);
        note_row(&mut self.stats.first_unusable_time, &batch, dropped.first_unusable_time, name);
        self.stats.fragment_rows_in += fragment_rows;
        self.note_update(state, batch.prepared.input_bytes);
        Ok(())
    }

    /// Takes in rows that the stage before has fired, which have all the same event time, or none.
    pub(super) fn take_rows(
        &mut self,
        state: &mut State,
        rows: &RecordBatch,
        time: Option<i64>,
    ) -> Result<()> {
        if rows.num_rows() == 0 {
            return Ok(());
        }
        let mut span = meter::span(meter::Kind::Batch);
        span.add(rows.num_rows());
        let windowing = *state.stage.windowing();
        let slice = match time {
            _ if windowing.is_whole() => WHOLE,
            Some(time) => windowing.slice_of(time).start,
            None => return Err(Error::Internal("windows over rows without a time".into())),
        };
        if windowing.closes_at(slice) <= state.announced {
            return Err(Error::Internal(format!("rows for the window {slice} after its end")));
        }
        state.slices.begin_batch();
        let delivery = self.shared.net.as_ref().map(|net| net.delivery(state.stage.number));
        let fragment_rows = state.stage.grouping.run_rows(
            (rows, slice),
            &mut state.slices,
            delivery,
            &mut self.buffers,
        )?;
        self.stats.inner_rows += rows.num_rows() as u64;
        self.stats.fragment_rows_in += fragment_rows;
        self.note_update(state, batch_bytes(rows));
        Ok(())
    }

    /// A stage has taken in a batch of so many bytes.
    fn note_update(&mut self, state: &mut State, bytes: usize) {
        state.epoch_input_bytes += bytes as u64;
        state.changed_at_us = Some(self.shared.env.now_us());
        let before = state.usage.live_bytes;
        self.note_usage(state);
        if state.stage.grouping.computes_texts {
            // How long those of the next batch are is not known before: as these, most likely.
            let text_bytes = state.usage.live_bytes.saturating_sub(before) as usize;
            if state.slices.expect(Load { rows: 0, text_bytes }) {
                self.note_usage(state);
            }
        }
    }
}

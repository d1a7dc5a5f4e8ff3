//! Updates of stages: records, and rows that stages before have fired.

use arrow::array::RecordBatch;

use super::{StageState, Worker};
use crate::edges::Edge;
use crate::error::{Error, Result};
use millstream_operators::budget::batch_bytes;
use millstream_operators::operator::{Batch, Program, Records, RowTimes, Rows, Updated, stateless};

impl Worker {
    /// Updates a stage with records.
    pub(super) fn update(
        &mut self,
        state: &mut StageState,
        edge: &Edge,
        records: &Records<'_>,
    ) -> Result<()> {
        let taken = self.projected(edge, records)?;
        let records = match &taken {
            Some((taken, picked)) => {
                let picked = picked.as_deref().or(records.picked);
                Records { picked, ..Records::taken(taken, records) }
            }
            None => *records,
        };
        let stamped = records.stamped;
        let batch = Batch {
            input: edge.input,
            rows: Rows::Records(records),
            filter: edge.taking.plain_filter(),
            bytes: records.bytes,
        };
        let from = self.context.timed_from();
        let updated = self.delivery.update(&mut self.context, state, &batch);
        self.note_updating(edge.stage, from);
        let Updated { passing, others_rows, .. } = updated
            .map_err(|error| self.of_record(error, &*state.stage.program, &batch, &records))?;
        if !edge.again {
            self.note_dropped(edge.stage, &passing.dropped, stamped);
        }
        self.note_taken(edge, passing.rows);
        self.context.stats.fragment_rows_in += others_rows;
        Ok(())
    }

    /// Takes in rows that a stage before has fired, all of which update one slice.
    pub(super) fn take_rows(
        &mut self,
        state: &mut StageState,
        edge: &Edge,
        rows: &RecordBatch,
        times: &RowTimes,
    ) -> Result<()> {
        if rows.num_rows() == 0 {
            return Ok(());
        }
        let windowing = *state.stage.windowing();
        let Some(slice) = windowing.slice_of_rows(times.at(0)) else {
            return Err(Error::Internal("windows over rows without a time".into()));
        };
        if windowing.closes_at(slice) <= state.announced {
            return Err(Error::Internal(format!("rows for {slice} after its end")));
        }
        let (taken, of_taken);
        let (seen, times) = match (&edge.taking.project, times) {
            (None, _) => (rows, times),
            (Some(_), RowTimes::Same(_)) => {
                taken = edge.taking.rows(rows)?;
                (&taken, times)
            }
            (Some(_), RowTimes::Each(_)) => {
                let stateless::SelectedRows { rows, places } = edge.taking.take(rows)?;
                (taken, of_taken) = (rows, times.of(places.as_deref()));
                (&taken, &of_taken)
            }
        };
        let batch = Batch {
            input: edge.input,
            rows: Rows::Fired { rows: seen, slice, times },
            filter: edge.taking.plain_filter(),
            bytes: batch_bytes(rows),
        };
        let from = self.context.timed_from();
        let updated = self.delivery.update(&mut self.context, state, &batch)?;
        self.note_updating(edge.stage, from);
        self.context.stats.inner_rows += rows.num_rows() as u64;
        self.note_taken(edge, updated.passing.rows);
        self.context.stats.fragment_rows_in += updated.others_rows;
        Ok(())
    }

    /// An error of updating a stage, with the place of the record that it is about.
    fn of_record(
        &self,
        error: Error,
        program: &dyn Program,
        batch: &Batch<'_>,
        records: &Records<'_>,
    ) -> Error {
        if !error.is_of_records() {
            return error;
        }
        let failing = program.first_failing(batch);
        failing.map_or(error, |(row, error)| self.for_record(error, records, row))
    }

    /// Counts records, or rows of another stage, that have passed the conditions of a stage.
    fn note_taken(&mut self, edge: &Edge, rows: u64) {
        if let Some(of_stage) = self.context.stats.stages.get_mut(edge.stage) {
            of_stage.rows_in += rows;
            if let Some(of_input) = of_stage.rows_in_by_input.get_mut(edge.input) {
                *of_input += rows;
            }
        }
    }

    /// Counts the time since `from`, in which a stage was updated.
    fn note_updating(&mut self, stage: usize, from: Option<i64>) {
        let us = self.context.timed_since(from);
        if let Some(of_stage) = self.context.stats.stages.get_mut(stage) {
            of_stage.update_us += us;
        }
    }
}

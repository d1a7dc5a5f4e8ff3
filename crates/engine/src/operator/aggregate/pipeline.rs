//! The first pipeline, from a stamped batch to its soft breaker, the update of state: filter, drop
//! late records, assign windows, group, and aggregate into the worker's state (paper, section 5.2).

use std::ops::Range;

use arrow::array::RecordBatch;

use super::assign::BySlice;
use super::grouping::{Buffers, Grouping, Selected, select_rows, within};
use super::slices::Slices;
use crate::error::{Error, Result};
use crate::expr::Expr;
use crate::operator::{Dropped, Records};
use crate::passed::Onward;
use crate::windowing::SliceId;

/// What a batch goes through, and where it comes to: into slices, or onward to leaders in other
/// processes.
pub(super) struct Pipeline<'a> {
    pub(super) grouping: &'a Grouping,
    pub(super) slices: &'a mut Slices,
    pub(super) onward: Option<&'a dyn Onward>,
}

impl Pipeline<'_> {
    /// Runs those records that pass a filter through; returns what was dropped and how many rows
    /// were not the worker's own.
    pub(super) fn run(
        &mut self,
        (records, filter): (&Records<'_>, Option<&Expr>),
        buffers: &mut Buffers,
    ) -> Result<(Dropped, u64)> {
        let grouping = self.grouping;
        let mut by_slice = std::mem::take(&mut buffers.by_slice);
        let dropped = grouping.assign((records, filter), buffers, &mut by_slice)?;
        let rows = records.rows;
        let fragment_rows = match self.update(rows, &mut by_slice) {
            Err(Error::TooMuchText { .. }) if rows.num_rows() > 1 => {
                // Nothing has been changed yet. Positions may have been, which are found again.
                grouping.assign((records, filter), buffers, &mut by_slice)?;
                self.update_in_parts(rows, &by_slice, 0..rows.num_rows())
            }
            updated => updated,
        }?;
        if let ([(_, rows)], 0) = (&mut by_slice[..], buffers.rows.capacity()) {
            buffers.rows = std::mem::take(rows);
        }
        buffers.by_slice = by_slice;
        Ok((dropped, fragment_rows))
    }

    /// As [`Pipeline::run`], for rows that all belong to one slice and of which none is late.
    pub(super) fn run_rows(
        &mut self,
        (rows, filter, slice): (&RecordBatch, Option<&Expr>, SliceId),
        buffers: &mut Buffers,
    ) -> Result<u64> {
        let select = |buffers: &mut Buffers| {
            select_rows(rows, filter, buffers)?;
            Ok::<BySlice, Error>(vec![(slice, std::mem::take(&mut buffers.rows))])
        };
        let mut by_slice = select(buffers)?;
        let fragment_rows = match self.update(rows, &mut by_slice) {
            Err(Error::TooMuchText { .. }) if rows.num_rows() > 1 => {
                // As above.
                let by_slice = select(buffers)?;
                self.update_in_parts(rows, &by_slice, 0..rows.num_rows())
            }
            updated => updated,
        }?;
        if let Some((_, rows)) = by_slice.pop() {
            buffers.rows = rows;
        }
        Ok(fragment_rows)
    }

    /// Updates slices with the rows of a batch that count; returns how many were not the worker's
    /// own.
    fn update(&mut self, records: &RecordBatch, by_slice: &mut BySlice) -> Result<u64> {
        let Pipeline { grouping, slices, onward } = self;
        let mut fragment_rows = 0;
        let Some((keys, arguments)) = grouping.evaluate(records, by_slice)? else { return Ok(0) };
        for (slice, rows) in by_slice.iter().filter(|(_, rows)| !rows.is_empty()) {
            let selected = Selected { keys: &keys, arguments: &arguments, rows };
            fragment_rows += slices.update(*slice, grouping, &selected, *onward)?;
        }
        Ok(fragment_rows)
    }

    /// As [`Pipeline::update`], for the rows of a range, half of them at a time where texts that
    /// are computed of them are too much.
    #[cold]
    fn update_in_parts(
        &mut self,
        records: &RecordBatch,
        by_slice: &BySlice,
        range: Range<usize>,
    ) -> Result<u64> {
        match self.update(records, &mut within(by_slice, &range)) {
            Err(Error::TooMuchText { .. }) if range.len() > 1 => {
                let middle = range.start + range.len() / 2;
                let first = self.update_in_parts(records, by_slice, range.start..middle)?;
                Ok(first + self.update_in_parts(records, by_slice, middle..range.end)?)
            }
            updated => updated,
        }
    }
}

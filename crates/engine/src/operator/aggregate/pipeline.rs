//! The first pipeline, from a stamped batch to its soft breaker, the update of state: filter, drop
//! late records, assign windows, group, and aggregate into the worker's state (paper, section 5.2).

use std::ops::Range;

use arrow::array::RecordBatch;

use super::grouping::{Buffers, Grouping, Selected, within};
use super::slices::Slices;
use crate::error::{Error, Result};
use crate::operator::{Batch, BySlice, Updated};
use crate::passed::Onward;

/// What a batch goes through, and where it comes to: into slices, or onward to leaders in other
/// processes.
pub(super) struct Pipeline<'a> {
    pub(super) grouping: &'a Grouping,
    pub(super) slices: &'a mut Slices,
    pub(super) onward: Option<&'a dyn Onward>,
}

impl Pipeline<'_> {
    /// Runs those rows of a batch through that count.
    pub(super) fn run(&mut self, batch: &Batch<'_>, buffers: &mut Buffers) -> Result<Updated> {
        let grouping = self.grouping;
        let mut by_slice = std::mem::take(&mut buffers.by_slice);
        let dropped = grouping.assign(batch, buffers, &mut by_slice)?;
        let rows = &*grouping.columns(batch)?;
        let updated = match self.update(rows, &mut by_slice) {
            Err(Error::TooMuchText { .. }) if rows.num_rows() > 1 => {
                // Nothing has been changed yet. Positions may have been, which are found again.
                grouping.assign(batch, buffers, &mut by_slice)?;
                self.update_in_parts(rows, &by_slice, 0..rows.num_rows())
            }
            updated => updated,
        }?;
        if let ([(_, rows)], 0) = (&mut by_slice[..], buffers.rows.capacity()) {
            buffers.rows = std::mem::take(rows);
        }
        buffers.by_slice = by_slice;
        Ok(Updated { dropped, ..updated })
    }

    /// Updates slices with the rows of a batch that count.
    fn update(&mut self, rows: &RecordBatch, by_slice: &mut BySlice) -> Result<Updated> {
        let Pipeline { grouping, slices, onward } = self;
        let mut updated = Updated::default();
        let Some((keys, arguments)) = grouping.evaluate(rows, by_slice)? else {
            return Ok(updated);
        };
        for (start, rows) in by_slice.iter().filter(|(_, rows)| !rows.is_empty()) {
            let selected = Selected { keys: &keys, arguments: &arguments, rows };
            updated.others_rows += slices.update(*start, grouping, &selected, *onward)?;
            updated.latest = updated.latest.max(Some(*start));
        }
        Ok(updated)
    }

    /// As [`Pipeline::update`], for the rows of a range, half of them at a time where texts that
    /// are computed of them are too much.
    #[cold]
    fn update_in_parts(
        &mut self,
        rows: &RecordBatch,
        by_slice: &BySlice,
        range: Range<usize>,
    ) -> Result<Updated> {
        match self.update(rows, &mut within(by_slice, &range)) {
            Err(Error::TooMuchText { .. }) if range.len() > 1 => {
                let middle = range.start + range.len() / 2;
                let mut updated = self.update_in_parts(rows, by_slice, range.start..middle)?;
                updated.add(&self.update_in_parts(rows, by_slice, middle..range.end)?);
                Ok(updated)
            }
            updated => updated,
        }
    }
}

//! The first pipeline, from a stamped batch to its soft breaker, the update of state: filter, drop
//! late records, assign windows, group, and aggregate into the worker's state (paper, section 5.2).

use arrow::array::RecordBatch;

use super::grouping::{Grouping, Selected};
use super::slices::Slices;
use crate::error::Result;
use crate::operator::counted::{Buffers, in_parts};
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
        let passing = grouping.assign(batch, buffers, &mut by_slice)?;
        let rows = &*grouping.columns(batch)?;
        let again = |by_slice: &mut BySlice| {
            grouping.assign(batch, &mut Buffers::default(), by_slice).map(|_| ())
        };
        let update = &mut |by_slice: &mut BySlice| self.update(rows, by_slice);
        let updated = in_parts(rows.num_rows(), &mut by_slice, again, update)?;
        if let ([(_, rows)], 0) = (&mut by_slice[..], buffers.rows.capacity()) {
            buffers.rows = std::mem::take(rows);
        }
        buffers.by_slice = by_slice;
        Ok(Updated { passing, ..updated })
    }

    /// Updates slices with the rows of a batch that count.
    fn update(&mut self, rows: &RecordBatch, by_slice: &mut BySlice) -> Result<Updated> {
        let Pipeline { grouping, slices, onward } = self;
        let mut updated = Updated::default();
        let Some((keys, arguments)) = grouping.evaluate(rows, by_slice)? else {
            return Ok(updated);
        };
        let count = by_slice.iter().map(|(_, rows)| rows.len()).sum();
        let began = slices.modes.begin_batch(count);
        for (start, rows) in by_slice.iter().filter(|(_, rows)| !rows.is_empty()) {
            let selected = Selected { keys: &keys, arguments: &arguments, rows };
            updated.others_rows += slices.update(*start, grouping, &selected, *onward)?;
            updated.latest = updated.latest.max(Some(*start));
        }
        slices.modes.end_batch(count, began);
        Ok(updated)
    }
}

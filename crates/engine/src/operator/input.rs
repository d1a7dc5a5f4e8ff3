//! What operators take in, and what they leave out.

use arrow::array::RecordBatch;

use crate::operator::stateless::Taken;
use crate::stamped::Stamped;

/// Records of a batch, as a stage sees them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Records<'a> {
    /// The batch, with the records' times.
    pub(crate) stamped: &'a Stamped,
    pub(crate) rows: &'a RecordBatch,
    /// Where they stand in the batch, ascending; `None`: they are all of it.
    pub(crate) places: Option<&'a [u32]>,
}

impl<'a> Records<'a> {
    /// What has been taken of a batch.
    pub(crate) fn taken(taken: &'a Taken, stamped: &'a Stamped) -> Records<'a> {
        Records { stamped, rows: &taken.rows, places: taken.places.as_deref() }
    }

    /// The record that a row is of, by its position in the batch.
    pub(crate) fn place(&self, row: usize) -> usize {
        self.places.map_or(row, |places| places[row] as usize)
    }

    /// The rows of some records: positions in the batch, ascending, become positions of rows.
    pub(super) fn rows_of(&self, records: &mut [u32]) {
        let Some(places) = self.places else { return };
        let mut at = 0;
        for record in records {
            at += places[at..].partition_point(|place| *place < *record);
            *record = at as u32;
        }
    }
}

/// Records of a batch that did not make it into a slice.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Dropped {
    pub(crate) late: u64,
    pub(crate) null_time: u64,
    pub(crate) unusable_time: u64,
    /// The first rows of the last two kinds.
    pub(crate) first_null_time: Option<usize>,
    pub(crate) first_unusable_time: Option<usize>,
}

impl Dropped {
    #[cold]
    pub(super) fn without_time(&mut self, row: usize, null: bool) {
        let (count, first) = match null {
            true => (&mut self.null_time, &mut self.first_null_time),
            false => (&mut self.unusable_time, &mut self.first_unusable_time),
        };
        *count += 1;
        first.get_or_insert(row);
    }
}

//! Stamped batches: batches of records with their place in their split, and the split's watermark.

use arrow::array::RecordBatch;

use crate::error::Result;
use crate::prepare::{Prepared, as_column};

/// Where a batch stands in the order of a source's rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BatchPlace {
    /// Number of its chunk within the split.
    pub(crate) sequence: u64,
    pub(crate) split: usize,
    /// Which part of the chunk it is, if that has been cut.
    pub(crate) part: u64,
}

/// A batch with its place in its split.
#[derive(Debug)]
pub(crate) struct Stamped {
    pub(crate) split: usize,
    /// Number of its chunk within the split.
    pub(crate) sequence: u64,
    /// Which part of its chunk it is, and whether it is the last.
    pub(crate) part: u64,
    pub(crate) last: bool,
    /// Number of its first row among those of its chunk, which may have been cut.
    pub(crate) first_row: usize,
    /// Number of its first record within the split.
    pub(crate) first_record: u64,
    /// The split's watermark before the batch's first record.
    pub(crate) stamp: i64,
    /// What the low watermark may be while it has not been taken in: its stamp, or, where the split
    /// has had no record, what follows from the first ones.
    pub(crate) holds: i64,
    /// The split's watermark after its last record.
    pub(crate) after: i64,
    pub(crate) prepared: Prepared,
}

impl Stamped {
    pub(crate) fn place(&self) -> BatchPlace {
        BatchPlace { sequence: self.sequence, split: self.split, part: self.part }
    }

    /// Fills in the column of watermarks, which is known only now.
    pub(crate) fn fill_in_watermarks(&mut self, column: usize) -> Result<()> {
        let Some(times) = &self.prepared.times else { return Ok(()) };
        let batch = &self.prepared.batch;
        let (schema, mut columns) = (batch.schema(), batch.columns().to_vec());
        let watermarks = times.watermarks_before(self.stamp);
        columns[column] = as_column(watermarks, schema.field(column).data_type());
        self.prepared.batch = RecordBatch::try_new(schema, columns)?;
        Ok(())
    }
}

//! Stamped batches: batches of records with their place in their split, and the split's watermark.

use arrow::array::RecordBatch;

use crate::error::Result;
use crate::prepare::{Prepared, as_column};

/// Where a batch stands in the order of a source's rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct BatchPlace {
    /// Number of its chunk within the split.
    pub sequence: u64,
    /// The split's number.
    pub split: usize,
    /// Number of the part, if the chunk has been cut.
    pub part: u64,
}

/// A batch with its position in the split.
#[derive(Debug)]
pub struct Stamped {
    /// The split's number.
    pub split: usize,
    /// The split's number in the order of records of its source: the same in a restarted job.
    pub number: u32,
    /// Number of its chunk within the split.
    pub sequence: u64,
    /// Number of the part within the chunk.
    pub part: u64,
    /// Whether the split ends with the batch.
    pub last: bool,
    /// Number of the batch's first row within its chunk, which may have been cut.
    pub first_row: usize,
    /// Number of its first record within the split.
    pub first_record: u64,
    /// The split's watermark before the batch's first record.
    pub stamp: i64,
    /// Bound of the low watermark until the batch is taken in: its stamp, or, in a split without an
    /// earlier record, the bound from the first records.
    pub holds: i64,
    /// The split's watermark after its last record.
    pub after: i64,
    /// The prepared batch.
    pub prepared: Prepared,
}

impl Stamped {
    /// The batch's place in its split.
    pub fn place(&self) -> BatchPlace {
        BatchPlace { sequence: self.sequence, split: self.split, part: self.part }
    }

    /// Fills in the column of watermarks, which is known only now.
    pub fn fill_in_watermarks(&mut self, column: usize) -> Result<()> {
        let Some(times) = &self.prepared.times else { return Ok(()) };
        let batch = &self.prepared.batch;
        let (schema, mut columns) = (batch.schema(), batch.columns().to_vec());
        let watermarks = times.watermarks_before(self.stamp);
        columns[column] = as_column(watermarks, schema.field(column).data_type());
        self.prepared.batch = RecordBatch::try_new(schema, columns)?;
        Ok(())
    }
}

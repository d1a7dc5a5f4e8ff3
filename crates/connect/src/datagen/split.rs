//! Split of a generated table: due rows and their values.

use std::sync::Arc;
use std::task::Waker;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;
use millstream_contract::table::{Chunk, Extent, OpenOptions, Position, Split, SplitPoll};
use millstream_contract::{Error, Result};

use super::column::GeneratedColumn;

/// A paced split hands out what is due at most this often, unless a whole batch is due.
const PACE_US: i64 = 1_000;

/// Plan common to all splits.
#[derive(Debug)]
pub(super) struct DatagenPlan {
    /// Of the projected columns.
    pub(super) schema: SchemaRef,
    pub(super) columns: Vec<GeneratedColumn>,
    pub(super) splits: u64,
    pub(super) start_time_us: i64,
    /// Over all splits.
    pub(super) rows_per_second: Option<u64>,
}

impl DatagenPlan {
    /// About what a row takes.
    pub(super) fn row_bytes(&self) -> usize {
        self.columns.iter().map(GeneratedColumn::width_bytes).sum::<usize>().max(1)
    }

    /// Rows of the table (all splits) that are due at `now_us`: row `i` is due `i / rate` seconds
    /// after the start.
    fn rows_due(&self, now_us: i64, rate: u64) -> u64 {
        let elapsed_us = i128::from(now_us) - i128::from(self.start_time_us);
        if elapsed_us < 0 {
            return 0;
        }
        u64::try_from(elapsed_us * i128::from(rate) / 1_000_000 + 1).unwrap_or(u64::MAX)
    }

    /// Time at which row `row` of the table is due: the first microsecond at which
    /// [`DatagenPlan::rows_due`] counts the row.
    fn due_us(&self, row: u64, rate: u64) -> i64 {
        let after_us = (u128::from(row) * 1_000_000).div_ceil(u128::from(rate));
        self.start_time_us.saturating_add(i64::try_from(after_us).unwrap_or(i64::MAX))
    }
}

/// Every `splits`-th row.
pub(super) struct DatagenSplit {
    plan: Arc<DatagenPlan>,
    name: String,
    split: u64,
    /// Rows of this split, if it ends.
    rows: Option<u64>,
    batch_rows: usize,
    /// Rows handed out.
    next: u64,
    /// A paced split waits until then, so that batches do not get too small.
    not_before_us: i64,
}

impl DatagenSplit {
    pub(super) fn new(
        plan: Arc<DatagenPlan>,
        split: u64,
        rows: Option<u64>,
        batch_rows: usize,
        options: &OpenOptions,
    ) -> DatagenSplit {
        let name = format!("datagen, split {split}");
        let next = options.from(&name).0.first().map_or(0, |next| *next);
        DatagenSplit { plan, name, split, rows, batch_rows, next, not_before_us: i64::MIN }
    }
}

impl Split for DatagenSplit {
    fn name(&self) -> &str {
        &self.name
    }

    fn position(&self) -> Position {
        Position(vec![self.next])
    }

    fn progress(&self) -> Option<Extent> {
        Some(Extent { done: self.next, of: self.rows?, bytes: false })
    }

    fn poll_next(&mut self, now_us: i64, _waker: &Waker) -> Result<SplitPoll> {
        let left = self.rows.map_or(u64::MAX, |rows| rows.saturating_sub(self.next));
        if left == 0 {
            return Ok(SplitPoll::Ended);
        }
        let batch = self.batch_rows as u64;
        let mut rows = left.min(batch);
        if let Some(rate) = self.plan.rows_per_second {
            let due_in_table = self.plan.rows_due(now_us, rate);
            let due = due_in_table.saturating_sub(self.split).div_ceil(self.plan.splits);
            let due = due.saturating_sub(self.next);
            rows = rows.min(due);
            if rows == 0 || (rows < batch && now_us < self.not_before_us) {
                let row = self.next.saturating_mul(self.plan.splits).saturating_add(self.split);
                let retry_at_us = self.plan.due_us(row, rate).max(self.not_before_us);
                return Ok(SplitPoll::Pending { retry_at_us: Some(retry_at_us) });
            }
            if rows == due {
                self.not_before_us = now_us.saturating_add(PACE_US);
            }
        }
        let (plan, first) = (self.plan.clone(), self.next);
        self.next += rows;
        let rows = rows as usize; // at most `batch_rows`
        Ok(SplitPoll::Chunk(Box::new(DatagenChunk { plan, split: self.split, first, rows })))
    }
}

/// Rows to be made.
struct DatagenChunk {
    plan: Arc<DatagenPlan>,
    split: u64,
    /// Number of the first row within its split.
    first: u64,
    rows: usize,
}

/// The numbers of a chunk's rows within the table.
#[derive(Debug, Clone, Copy)]
pub(super) struct RowNumbers {
    pub(super) first: u64,
    pub(super) step: u64,
    pub(super) count: usize,
}

impl RowNumbers {
    pub(super) fn numbers(self) -> impl Iterator<Item = u64> {
        (0..self.count as u64).map(move |at| self.first.wrapping_add(at.wrapping_mul(self.step)))
    }
}

impl Chunk for DatagenChunk {
    fn bytes(&self) -> usize {
        self.rows * self.plan.row_bytes()
    }

    fn decode(self: Box<Self>) -> Result<RecordBatch> {
        let plan = &self.plan;
        let first = self.first.wrapping_mul(plan.splits).wrapping_add(self.split);
        let rows = RowNumbers { first, step: plan.splits, count: self.rows };
        let arrays = plan
            .columns
            .iter()
            .map(|column| column.array(rows, plan.start_time_us, plan.rows_per_second))
            .collect::<Result<Vec<ArrayRef>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        RecordBatch::try_new_with_options(plan.schema.clone(), arrays, &options)
            .map_err(|error| Error::Internal(format!("a datagen batch: {error}")))
    }
}

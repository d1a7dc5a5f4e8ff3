//! Selection of a batch's rows, and computation of columns: WHERE or HAVING, then SELECT. A pure
//! function of a batch without state, so a step on the way of rows, and no operator.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, UInt64Array};
use arrow::buffer::BooleanBuffer;
use arrow::compute::filter_record_batch;
use millstream_state::Load;

use crate::columns::inputs::true_mask;
use crate::columns::keys::text_bytes;
use crate::columns::select::positions;
use crate::columns::with_column;
use crate::error::{Error, Result};
use crate::expr::{Expr, ROW_NUMBERS};
use crate::failing::rows_before_failing;
use crate::plan::Project;
use crate::reads::Reads;
use crate::texts;

/// A filter, and a projection of the rows that pass it.
#[derive(Debug)]
pub struct Taking {
    /// The condition that rows must meet.
    pub filter: Option<Expr>,
    /// Computed columns; `None`: the batch's own columns.
    pub project: Option<Project>,
    /// Columns and fields that computed columns read; `None`: unknown, or none are computed.
    reads: Option<Reads>,
}

/// Some of the rows that come out.
pub struct Piece {
    /// Columns of the batch.
    pub taken: SelectedRows,
    /// Where the first row's record stands, if the piece before had rows of it, too.
    pub continued: Option<u32>,
}

/// Rows that have been taken.
#[derive(Debug)]
pub struct SelectedRows {
    /// The rows.
    pub rows: RecordBatch,
    /// Where they stand in the batch, ascending; `None`: all of it has been taken.
    pub places: Option<Vec<u32>>,
}

impl From<RecordBatch> for SelectedRows {
    fn from(rows: RecordBatch) -> SelectedRows {
        SelectedRows { rows, places: None }
    }
}

/// Upper bound of a batch's load for tables, before any computation: its rows, and the texts and
/// lists of the kept columns.
pub fn load(batch: &RecordBatch, texts: &[usize]) -> Load {
    let bytes = |column: &ArrayRef| match column.data_type().is_nested() {
        true => column.to_data().get_slice_memory_size().unwrap_or(0),
        false => text_bytes(column),
    };
    let texts = texts.iter().map(|column| bytes(batch.column(*column)));
    Load { rows: batch.num_rows(), text_bytes: texts.sum() }
}

impl Taking {
    /// A filter and a projection.
    pub fn new(filter: Option<Expr>, project: Option<Project>) -> Taking {
        let computed = |project: &&Project| !project.columns.iter().all(Expr::is_there);
        let reads = project.as_ref().filter(computed);
        let reads = reads.and_then(|project| Expr::reads(&project.columns));
        Taking { filter, project, reads }
    }

    /// The filter, if rows are seen as they are, so that those left out need not be taken out.
    pub fn plain_filter(&self) -> Option<&Expr> {
        self.filter.as_ref().filter(|_| self.project.is_none())
    }

    /// The batch's column that is the last column here, unless the latter is computed.
    pub(crate) fn last_column(&self) -> Option<usize> {
        match self.project.as_ref()?.columns.last()? {
            Expr::Column(column) => Some(*column),
            _ => None,
        }
    }

    /// The selected rows of a batch.
    pub fn rows(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        texts::begin();
        match &self.filter {
            None => self.project(batch),
            Some(filter) => {
                let batch = self.numbered(batch)?;
                let mask = true_mask(filter, &batch)?;
                self.passing(&batch, mask)
            }
        }
    }

    /// The batch with numbers of rows, if the filter wants them.
    fn numbered<'b>(&self, batch: &'b RecordBatch) -> Result<Cow<'b, RecordBatch>> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let place = match &self.filter {
            Some(Expr::Computed(filter)) => filter.row_numbers(),
            _ => None,
        };
        if place != Some(batch.num_columns()) {
            return Ok(Cow::Borrowed(batch));
        }
        let rows = batch.num_rows() as u64;
        let first = NEXT.fetch_add(rows, Ordering::Relaxed);
        let numbers = UInt64Array::from_iter_values(first..first + rows);
        Ok(Cow::Owned(with_column(batch, ROW_NUMBERS, Arc::new(numbers))?))
    }

    /// Filters rows by `mask`, and computes their columns.
    fn passing(&self, batch: &RecordBatch, mask: BooleanBuffer) -> Result<RecordBatch> {
        let all_there = |project: &Project| project.columns.iter().all(Expr::is_there);
        match &self.project {
            // Columns and fields that no computed column reads need not be filtered.
            Some(_) if let Some(reads) = &self.reads => {
                self.project(&filter_record_batch(&reads.of(batch)?, &mask.into())?)
            }
            // Columns that are left out, and fields of rows, need not be filtered.
            Some(project) if all_there(project) && !project.columns.is_empty() => {
                Ok(filter_record_batch(&self.project(batch)?, &mask.into())?)
            }
            _ => self.project(&filter_record_batch(batch, &mask.into())?),
        }
    }

    /// As [`Taking::rows`], with where they stand.
    pub fn take(&self, batch: &RecordBatch) -> Result<SelectedRows> {
        texts::begin();
        let Some(filter) = &self.filter else {
            return Ok(SelectedRows { rows: self.project(batch)?, places: None });
        };
        let batch = self.numbered(batch)?;
        let mask = true_mask(filter, &batch)?;
        let places = positions(&mask);
        let rows = self.passing(&batch, mask)?;
        Ok(SelectedRows { rows, places: Some(places) })
    }

    /// Whether all that it gives is there already ([`Expr::is_there`]).
    pub fn takes_in_place(&self) -> bool {
        self.project.as_ref().is_none_or(|project| project.columns.iter().all(Expr::is_there))
    }

    /// As [`Taking::take`], but rows that have not been taken are left among the others, if it
    /// [takes in place](Taking::takes_in_place).
    pub(crate) fn take_in_place(&self, batch: &RecordBatch) -> Result<SelectedRows> {
        texts::begin();
        let mask = self.filter.as_ref().map(|filter| true_mask(filter, batch)).transpose()?;
        Ok(SelectedRows { rows: self.project(batch)?, places: mask.as_ref().map(positions) })
    }

    /// As [`Taking::take`], or, if it [takes in place](Taking::takes_in_place) and most rows pass,
    /// all rows and the positions of those that pass.
    pub fn pick(&self, batch: &RecordBatch) -> Result<(SelectedRows, Option<Vec<u32>>)> {
        let Some(filter) = self.filter.as_ref().filter(|_| self.takes_in_place()) else {
            return Ok((self.take(batch)?, None));
        };
        texts::begin();
        let mask = true_mask(filter, batch)?;
        let passing = positions(&mask);
        if 2 * passing.len() < batch.num_rows() {
            let rows = self.passing(batch, mask)?;
            return Ok((SelectedRows { rows, places: Some(passing) }, None));
        }
        Ok((self.project(batch)?.into(), Some(passing)))
    }

    fn project(&self, rows: &RecordBatch) -> Result<RecordBatch> {
        let Some(Project { columns, schema }) = &self.project else { return Ok(rows.clone()) };
        if rows.num_rows() == 0 {
            // Constants may fail, too, and nobody asks for them.
            return Ok(RecordBatch::new_empty(schema.clone()));
        }
        let columns = columns.iter().map(|p| p.evaluate(rows)).collect::<Result<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
        Ok(RecordBatch::try_new_with_options(schema.clone(), columns, &options)?)
    }

    /// For a batch that fails: the selected rows before the failing row; and the number and error
    /// of the failing row, if it fails alone.
    #[cold]
    pub fn up_to_failing(
        &self,
        batch: &RecordBatch,
    ) -> Result<(SelectedRows, Option<(usize, Error)>)> {
        let take = |rows: Range<usize>| self.take(&batch.slice(rows.start, rows.len()));
        let row = rows_before_failing(batch.num_rows(), |rows| take(rows).map(|_| ()));
        let failing = take(row..(row + 1).min(batch.num_rows())).err();
        Ok((take(0..row)?, failing.map(|error| (row, error))))
    }
}

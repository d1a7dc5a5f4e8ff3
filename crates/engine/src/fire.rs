//! Firing: the second pipeline, from a complete window's state to result rows.
//!
//! A coroutine: each step turns one chunk of state into one batch of rows, so that firing a large
//! window does not keep the worker from merging and from its other batches.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, TimestampMillisecondArray};
use arrow::datatypes::SchemaRef;

use millstream_state::{CHUNK_ROWS, RowsRef, Table};

use crate::error::Result;
use crate::expr::Expr;
use crate::pipeline::{Grouping, filter_and_project};
use crate::plan::Aggregate;

/// HAVING and the output columns.
#[derive(Debug)]
pub(crate) struct Finisher {
    fired: SchemaRef,
    having: Option<Expr>,
    project: Vec<Expr>,
    output: SchemaRef,
}

/// A window that is firing.
pub(crate) struct Fire {
    pub(crate) start: i64,
    table: Table,
    block: usize,
    /// What the rows of one step take at the most, about, if they have to wait to be written.
    pub(crate) rows_bytes: u64,
    /// `window_start`, `window_end` and `window_time` for a full block; blocks take slices.
    bounds: Vec<ArrayRef>,
}

impl Finisher {
    pub(crate) fn new(aggregate: &Aggregate, output: &SchemaRef) -> Finisher {
        Finisher {
            fired: aggregate.fired.clone(),
            having: aggregate.having.clone(),
            project: aggregate.project.clone(),
            output: output.clone(),
        }
    }

    /// What the result rows of one block of state take, about, if HAVING lets all of them through:
    /// what their types say, and where there are texts no less than their state does.
    fn rows_bytes(&self, table: &Table) -> u64 {
        let widths = self.output.fields().iter().map(|field| field.data_type().primitive_width());
        let (mut row_bytes, mut fixed) = (0, true);
        for width in widths {
            row_bytes += width.unwrap_or(size_of::<i32>());
            fixed &= width.is_some();
        }
        let rows = table.rows().max(1);
        if !fixed {
            row_bytes = row_bytes.max(table.live_bytes().div_ceil(rows));
        }
        (row_bytes * rows.min(CHUNK_ROWS)) as u64
    }

    /// Result rows for some rows of state.
    pub(crate) fn finish(
        &self,
        grouping: &Grouping,
        bounds: &[ArrayRef],
        rows: &RowsRef<'_>,
    ) -> Result<RecordBatch> {
        let mut columns: Vec<ArrayRef> = bounds.iter().map(|b| b.slice(0, rows.len())).collect();
        columns.extend(grouping.codec.decode(rows)?);
        columns.extend(grouping.aggregates.finish(rows)?);
        let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
        let batch = RecordBatch::try_new_with_options(self.fired.clone(), columns, &options)?;
        filter_and_project(&batch, self.having.as_ref(), &self.project, &self.output)
    }
}

impl Fire {
    /// Fires the window that starts at `start`; `held` if its rows have to wait to be written.
    pub(crate) fn new(
        start: i64,
        table: Table,
        (grouping, finisher): (&Grouping, &Finisher),
        held: bool,
    ) -> Fire {
        let rows = table.rows().min(CHUNK_ROWS);
        let bounds = match grouping.window {
            None => vec![],
            Some(window) => {
                let (start, end) =
                    (start.div_euclid(1000), (start + window.size_us).div_euclid(1000));
                let column = |ms: i64| -> ArrayRef {
                    Arc::new(TimestampMillisecondArray::from_value(ms, rows))
                };
                vec![column(start), column(end), column(end - 1)]
            }
        };
        let rows_bytes = if held { finisher.rows_bytes(&table) } else { 0 };
        Fire { start, table, block: 0, rows_bytes, bounds }
    }

    /// The next rows; the flag says whether they are the last.
    pub(crate) fn step(
        &mut self,
        grouping: &Grouping,
        finisher: &Finisher,
        places: &mut Vec<*const u64>,
    ) -> Result<Option<(RecordBatch, bool)>> {
        if self.block >= self.table.scan_blocks() {
            return Ok(None);
        }
        let rows = self.table.scan(self.block, places);
        self.block += 1;
        let last = self.block >= self.table.scan_blocks();
        Ok(Some((finisher.finish(grouping, &self.bounds, &rows)?, last)))
    }

    /// The window's state.
    pub(crate) fn table(&self) -> &Table {
        &self.table
    }

    /// Gives memory back that reading the state does not need.
    pub(crate) fn trim(&mut self) {
        self.table.trim();
    }

    /// Gives the state back when it has been read.
    pub(crate) fn into_table(self) -> Table {
        self.table
    }
}

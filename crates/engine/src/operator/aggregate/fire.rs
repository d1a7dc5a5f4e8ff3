//! Firing: the second pipeline, from a complete window's state to result rows.
//!
//! Firing is a coroutine. Each step turns one chunk of state into one batch of rows, so a large
//! window does not keep the worker from merging or from processing input.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, RecordBatch, RecordBatchOptions, TimestampMillisecondArray, UInt32Array,
};
use arrow::compute::take_arrays;
use arrow::datatypes::{DataType, SchemaRef};

use millstream_state::{
    CHUNK_ROWS, ChunkPool, Keys, Load, NoVarKeys, RowsRef, Scratch, Table, hash_words,
};

use crate::error::{Error, Result};
use crate::operator::aggregate::grouping::Grouping;
use crate::operator::stateless::Taking;
use crate::plan::{Aggregate, Project};
use crate::windowing::WindowId;

/// HAVING and the output columns.
#[derive(Debug)]
pub(crate) struct Finisher {
    fired: SchemaRef,
    taking: Taking,
    output: SchemaRef,
}

/// A window that is firing.
pub(crate) struct Fire {
    pub(crate) window: WindowId,
    table: Table,
    block: usize,
    /// Rows of the last block that have not been turned into result rows yet.
    left: Option<RecordBatch>,
    /// `window_start`, `window_end` and `window_time` for a full block; blocks take slices.
    bounds: Vec<ArrayRef>,
}

impl Finisher {
    pub(crate) fn new(aggregate: &Aggregate, output: &SchemaRef) -> Finisher {
        let project = Project { columns: aggregate.project.clone(), schema: output.clone() };
        Finisher {
            fired: aggregate.fired.clone(),
            taking: Taking { filter: aggregate.having.clone(), project: Some(project) },
            output: output.clone(),
        }
    }

    /// What the result rows of some rows of state take, about, if HAVING lets all of them through:
    /// what their types say, and as many bytes of texts as the state has.
    fn rows_bytes(&self, grouping: &Grouping, table: &Table, rows: usize) -> u64 {
        let types = || self.output.fields().iter().map(|field| field.data_type());
        let width = |data_type: &DataType| match data_type {
            DataType::Boolean => Some(1),
            data_type => data_type.primitive_width(),
        };
        let row_bytes: usize = types().map(|t| width(t).unwrap_or(size_of::<i32>())).sum();
        let mut bytes = rows * row_bytes;
        if types().any(|data_type| width(data_type).is_none()) {
            let texts = table.live_bytes() - table.rows() * grouping.layout.row_bytes();
            bytes += texts / table.rows().max(1) * rows;
        }
        bytes as u64
    }

    /// As many result rows, from the first on, as the texts computed of them allow, and the rows
    /// that are left.
    fn project_some(&self, fired: RecordBatch) -> Result<(RecordBatch, Option<RecordBatch>)> {
        let mut rows = fired.num_rows();
        loop {
            match self.taking.rows(&fired.slice(0, rows)) {
                Err(Error::TooMuchText { .. }) if rows > 1 => rows /= 2,
                projected => {
                    let left = fired.num_rows() - rows;
                    return Ok((projected?, (left > 0).then(|| fired.slice(rows, left))));
                }
            }
        }
    }

    /// Some rows of state as the columns of a window that has fired.
    fn decode(
        &self,
        grouping: &Grouping,
        bounds: &[ArrayRef],
        rows: &RowsRef<'_>,
    ) -> Result<RecordBatch> {
        let mut columns: Vec<ArrayRef> = bounds.iter().map(|b| b.slice(0, rows.len())).collect();
        columns.extend(grouping.codec.decode(rows)?);
        let mut count = rows.len();
        match grouping.aggregates.best(rows)? {
            None => columns.extend(grouping.aggregates.finish(rows)?),
            // Each row of state becomes several.
            Some((groups, best)) => {
                count = groups.len();
                columns = take_arrays(&columns, &UInt32Array::from(groups), None)?;
                columns.extend(best);
            }
        }
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        Ok(RecordBatch::try_new_with_options(self.fired.clone(), columns, &options)?)
    }
}

/// State of the group of no columns that has met no record.
pub(crate) fn empty_table(grouping: &Grouping) -> Table {
    let mut table = Table::new(grouping.layout.clone());
    let (mut pool, mut scratch) =
        (ChunkPool::new(grouping.layout.row_words(), 0, None), Scratch::default());
    let keys = Keys { hashes: &[hash_words(&[])], ahead: &[], words: &[], vars: NoVarKeys };
    table.update(&keys, &mut pool, &mut scratch);
    table
}

impl Fire {
    pub(crate) fn new(window: WindowId, table: Table, grouping: &Grouping) -> Fire {
        let rows = table.rows().min(CHUNK_ROWS);
        let column = |us: i64| -> ArrayRef {
            Arc::new(TimestampMillisecondArray::from_value(us.div_euclid(1000), rows))
        };
        let bounds = match grouping.windowing.columns_of(window) {
            Some(columns) => columns.map(column).to_vec(),
            None => vec![],
        };
        Fire { window, table, block: 0, left: None, bounds }
    }

    /// The next rows; the flag says whether they are the last.
    pub(crate) fn step(
        &mut self,
        grouping: &Grouping,
        finisher: &Finisher,
    ) -> Result<Option<(RecordBatch, bool)>> {
        if self.is_over() {
            return Ok(None);
        }
        let fired = match self.left.take() {
            Some(left) => left,
            None => {
                let rows = self.table.scan(self.block);
                self.block += 1;
                finisher.decode(grouping, &self.bounds, &rows)?
            }
        };
        let (rows, left) = finisher.project_some(fired)?;
        self.left = left;
        Ok(Some((rows, self.is_over())))
    }

    /// Whether all of its state has been read.
    pub(crate) fn is_over(&self) -> bool {
        self.left.is_none() && self.block >= self.table.scan_blocks()
    }

    /// How many rows of state come next, and what result rows of them take, about.
    pub(crate) fn next_load(&self, grouping: &Grouping, finisher: &Finisher) -> Load {
        let rows = self.table.scan_rows(self.block);
        let text_bytes = finisher.rows_bytes(grouping, &self.table, rows) as usize;
        Load { rows: self.left.as_ref().map_or(rows, RecordBatch::num_rows), text_bytes }
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

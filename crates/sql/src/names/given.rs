//! Rows written in the query itself: the rows of VALUES, and the one row without columns that a
//! query without FROM reads.

use std::{collections::VecDeque, task::Waker};

use arrow::array::RecordBatchOptions;
use datafusion_expr::Values;
use millstream_contract::error::Result as TableResult;
use millstream_contract::table::{OpenOptions, Position, Split, SplitPoll, Table};

use crate::expr::constants::constant;
use crate::names::catalog::{LeftOut, Origin, TableColumn, TableEntry};
use crate::syntax::prelude::*;

/// A table of rows that are there.
#[derive(Debug)]
struct Given {
    rows: RecordBatch,
    described: &'static str,
}

/// The entry of a table of one row, which no name stands for.
pub(crate) fn one_row() -> Result<Arc<TableEntry>> {
    entry(vec![], Arc::new(Schema::empty()), 1, "one row, without a table")
}

/// The entry of a table of the rows of VALUES.
pub(crate) fn given_rows(values: &Values) -> Result<Arc<TableEntry>> {
    let schema = values.schema.as_arrow();
    let mut columns = Vec::new();
    for (i, field) in schema.fields().iter().enumerate() {
        let cells = values.values.iter().map(|row| constant(&row[i]));
        let cells = ScalarValue::iter_to_array(cells.collect::<Result<Vec<_>>>()?)?;
        columns.push(cast(&cells, field.data_type()).map_err(DataFusionError::from)?);
    }
    entry(columns, Arc::new(schema.clone()), values.values.len(), "the rows of VALUES")
}

fn entry(
    columns: Vec<ArrayRef>,
    schema: SchemaRef,
    rows: usize,
    described: &'static str,
) -> Result<Arc<TableEntry>> {
    let fields = schema.fields().iter().map(|field| TableColumn {
        name: field.name().clone(),
        data_type: field.data_type().clone(),
        nullable: field.is_nullable(),
        computed: None,
        metadata: None,
    });
    let fields = fields.collect();
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    let rows = RecordBatch::try_new_with_options(schema, columns, &options);
    let rows = rows.map_err(DataFusionError::from)?;
    let left_out = LeftOut::default();
    let origin = Origin::Table(Arc::new(Given { rows, described }));
    let name = described.to_string();
    let (event_time, primary_key) = (None, vec![]);
    let entry = TableEntry { name, columns: fields, event_time, primary_key, left_out, origin };
    Ok(Arc::new(entry))
}

impl Table for Given {
    fn schema(&self) -> SchemaRef {
        self.rows.schema()
    }

    fn bounded(&self) -> bool {
        true
    }

    fn open(&self, columns: &[usize], options: &OpenOptions) -> TableResult<Vec<Box<dyn Split>>> {
        let (rows, most) = (self.rows.project(columns)?, options.batch_rows.max(1));
        let batch = |start| rows.slice(start, most.min(rows.num_rows() - start));
        let read = options.from(SPLIT_NAME).0.first().map_or(0, |read| *read);
        let first = rows.num_rows().min(read as usize);
        let batches = (first..rows.num_rows()).step_by(most).map(batch).collect();
        Ok(vec![Box::new(GivenSplit { batches, read })])
    }

    fn describe(&self, _: &[usize]) -> String {
        self.described.into()
    }
}

/// The name of the only split.
const SPLIT_NAME: &str = "the query";

struct GivenSplit {
    batches: VecDeque<RecordBatch>,
    /// Rows handed out.
    read: u64,
}

impl Split for GivenSplit {
    fn name(&self) -> &str {
        SPLIT_NAME
    }

    fn position(&self) -> Position {
        Position(vec![self.read])
    }

    fn poll_next(&mut self, _: i64, _: &Waker) -> TableResult<SplitPoll> {
        match self.batches.pop_front() {
            Some(batch) => {
                self.read += batch.num_rows() as u64;
                Ok(SplitPoll::Chunk(Box::new(batch)))
            }
            None => Ok(SplitPoll::Ended),
        }
    }
}

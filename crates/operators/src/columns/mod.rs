//! Columns: how those of a batch become the keys and the values of rows of state, and back.

pub mod aggregates;
mod decimal;
pub mod elements;
pub mod inputs;
pub mod keys;
mod lists;
mod moments;
pub mod order;
mod payload;
pub(crate) mod plain;
pub mod records;
pub mod select;
pub mod stored;
pub mod value;

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::{Field, Schema};

use crate::error::Result;

/// The rows in these places, also of a batch without columns.
pub fn rows_in(batch: &RecordBatch, places: Vec<u32>) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(places.len()));
    let places = UInt32Array::from(places);
    let columns = batch.columns().iter().map(|column| take(column, &places, None));
    let columns = columns.collect::<std::result::Result<_, _>>()?;
    Ok(RecordBatch::try_new_with_options(batch.schema(), columns, &options)?)
}

/// A batch with one more column, the last, which has no NULLs.
pub fn with_column(batch: &RecordBatch, name: &str, column: ArrayRef) -> Result<RecordBatch> {
    let field = Arc::new(Field::new(name, column.data_type().clone(), false));
    let fields = batch.schema_ref().fields().iter().cloned().chain([field]);
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let columns = batch.columns().iter().cloned().chain([column]).collect();
    Ok(RecordBatch::try_new_with_options(schema, columns, &options)?)
}

/// The first columns of a batch, if it has more.
pub fn first_columns(batch: &RecordBatch, count: usize) -> Result<Cow<'_, RecordBatch>> {
    match batch.num_columns() > count {
        true => Ok(Cow::Owned(batch.project(&(0..count).collect::<Vec<_>>())?)),
        false => Ok(Cow::Borrowed(batch)),
    }
}

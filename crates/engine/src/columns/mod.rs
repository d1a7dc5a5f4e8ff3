//! Columns: how those of a batch become the keys and the values of rows of state, and back.

pub(crate) mod aggregates;
mod decimal;
pub(crate) mod elements;
pub(crate) mod inputs;
pub(crate) mod keys;
mod lists;
mod moments;
mod payload;
pub(crate) mod select;
pub(crate) mod value;

use arrow::array::{RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::compute::take;

use crate::error::Result;

/// The rows in these places, also of a batch without columns.
pub(crate) fn rows_in(batch: &RecordBatch, places: Vec<u32>) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(places.len()));
    let places = UInt32Array::from(places);
    let columns = batch.columns().iter().map(|column| take(column, &places, None));
    let columns = columns.collect::<std::result::Result<_, _>>()?;
    Ok(RecordBatch::try_new_with_options(batch.schema(), columns, &options)?)
}

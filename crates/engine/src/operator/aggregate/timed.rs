//! The event times of a batch's rows as a column of it, for what is aggregated of them: with
//! sessions, when the first and the last record came.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, Field, Schema};

use crate::columns::aggregates::TIMES;
use crate::error::Result;
use crate::operator::{Batch, Rows};

/// A batch's columns, with the times of its rows if they are wanted. A row without a time has 0
/// there; it does not count.
pub(super) fn with_times<'b>(batch: &'b Batch<'_>, wanted: bool) -> Result<Cow<'b, RecordBatch>> {
    let rows = batch.columns();
    if !wanted {
        return Ok(Cow::Borrowed(rows));
    }
    let time = |row: usize| match &batch.rows {
        Rows::Records(records) => {
            let times = records.stamped.prepared.times.as_ref()?;
            times.times.us(records.place(row))
        }
        Rows::Fired { times, .. } => times.at(row),
    };
    let times: Vec<i64> = (0..rows.num_rows()).map(|row| time(row).unwrap_or(0)).collect();
    let mut fields = rows.schema_ref().fields().to_vec();
    fields.push(Arc::new(Field::new(TIMES, DataType::Int64, false)));
    let mut columns = rows.columns().to_vec();
    columns.push(Arc::new(Int64Array::from(times)) as ArrayRef);
    let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
    let schema = Arc::new(Schema::new(fields));
    Ok(Cow::Owned(RecordBatch::try_new_with_options(schema, columns, &options)?))
}

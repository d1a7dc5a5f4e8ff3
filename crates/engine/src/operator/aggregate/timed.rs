//! What is known of the event times of a batch's rows as a column of it: with sessions, for what is
//! aggregated of them, the times themselves; where slices pack windows, when a row's window begins,
//! which is a key.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, Field, Schema};

use crate::columns::aggregates::TIMES;
use crate::error::Result;
use crate::operator::{Batch, Rows};
use crate::windowing::{Bounds, Windowing};

/// What is wanted to be known of times.
#[derive(Debug, Clone, Copy)]
pub(super) enum Timed {
    Nothing,
    Time,
    /// When the window of a row begins, of windows in slices ([`Windowing::windows_in_slices`]).
    WindowStart,
}

/// A batch's columns, with what is wanted of the times of its rows. A row without a time has 0
/// there; it does not count.
pub(super) fn with_times<'b>(
    batch: &'b Batch<'_>,
    windowing: &Windowing,
    wanted: Timed,
) -> Result<Cow<'b, RecordBatch>> {
    let rows = batch.columns();
    if matches!(wanted, Timed::Nothing) {
        return Ok(Cow::Borrowed(rows));
    }
    let time = |row: usize| match &batch.rows {
        Rows::Records(records) => {
            let times = records.stamped.prepared.times.as_ref()?;
            times.times.us(records.place(row))
        }
        Rows::Fired { times, .. } => times.at(row),
    };
    let mut times: Vec<i64> = (0..rows.num_rows()).map(|row| time(row).unwrap_or(0)).collect();
    if matches!(wanted, Timed::WindowStart) {
        // Neighbours mostly share theirs.
        let mut window = Bounds::NOTHING;
        for time in &mut times {
            if !window.contains(*time) {
                window = windowing.slice_of(*time);
            }
            *time = window.start;
        }
    }
    let mut fields = rows.schema_ref().fields().to_vec();
    fields.push(Arc::new(Field::new(TIMES, DataType::Int64, false)));
    let mut columns = rows.columns().to_vec();
    columns.push(Arc::new(Int64Array::from(times)) as ArrayRef);
    let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
    let schema = Arc::new(Schema::new(fields));
    Ok(Cow::Owned(RecordBatch::try_new_with_options(schema, columns, &options)?))
}

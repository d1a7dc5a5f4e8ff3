//! Facts about the event times of a batch's rows, as a column of the batch: with sessions, the
//! times themselves, for aggregates of them; where slices pack windows, the begin of a row's
//! window, which is a key.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::{Int64Array, RecordBatch};
use arrow::buffer::ScalarBuffer;

use crate::columns::aggregates::TIMES;
use crate::columns::with_column;
use crate::error::Result;
use crate::operator::{Batch, Rows};
use crate::windowing::{Bounds, Windowing};

/// Kinds of facts about times.
#[derive(Debug, Clone, Copy)]
pub(super) enum Timed {
    Nothing,
    Time,
    /// When the window of a row begins, where slices pack windows ([`Windowing::packs`]).
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
    let mut times = times_of(batch);
    if matches!(wanted, Timed::WindowStart) {
        // Neighbours mostly share theirs.
        let mut window = Bounds::NOTHING;
        let starts = times.iter().map(|time| {
            if !window.contains(*time) {
                window = windowing.slice_of(*time);
            }
            window.start
        });
        times = starts.collect();
    }
    Ok(Cow::Owned(with_column(rows, TIMES, Arc::new(Int64Array::new(times, None)))?))
}

/// The times of a batch's rows.
fn times_of(batch: &Batch<'_>) -> ScalarBuffer<i64> {
    let rows = 0..batch.columns().num_rows();
    match &batch.rows {
        Rows::Fired { times, .. } => rows.map(|row| times.at(row).unwrap_or(0)).collect(),
        Rows::Records(records) => {
            let Some(times) = &records.stamped.prepared.times else {
                return rows.map(|_| 0).collect();
            };
            if records.places.is_none() && times.bounds.is_some() {
                return times.times.all_us();
            }
            let time = |row| times.times.us(records.place(row));
            rows.map(|row| time(row).unwrap_or(0)).collect()
        }
    }
}

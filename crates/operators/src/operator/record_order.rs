//! Order of all records: by event time, then by input, split and position in the split; then by
//! element, if an UNNEST or a lookup has made several rows of a record. Fired rows have no place in
//! a split: their order is by window time, then by values.
//!
//! Where an operator needs the order, it is the last column of a batch, as comparable bytes.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::{BinaryArray, BinaryBuilder, Int64Array, RecordBatch};
use arrow::buffer::{Buffer, OffsetBuffer};

use crate::columns::order::{HEADS, ORDER, Ordering, values_in_order};
use crate::columns::with_column;
use crate::error::Result;
use crate::operator::{Batch, Records, RowTimes, Rows};

/// Columns of a batch's records, with the order of these as far as it is wanted.
pub(super) fn with_order<'b>(
    rows: Cow<'b, RecordBatch>,
    batch: &Batch<'_>,
    ordering: Ordering,
) -> Result<Cow<'b, RecordBatch>> {
    let (name, order) = match (&batch.rows, ordering) {
        (_, Ordering::Nothing) => return Ok(rows),
        (Rows::Records(records), _) => (ORDER, of_records(batch.input, records)),
        (Rows::Fired { rows, times, .. }, Ordering::Whole) => {
            let values = values_in_order(rows.columns(), None)?;
            (ORDER, of_fired(batch.input, rows.num_rows(), times, values.as_ref()))
        }
        (Rows::Fired { rows, times, .. }, Ordering::Heads) => {
            (HEADS, of_fired(batch.input, rows.num_rows(), times, None))
        }
    };
    Ok(Cow::Owned(with_column(&rows, name, Arc::new(order))?))
}

/// Times as comparable bytes; no time comes first. The order of a record begins with its time.
pub(super) fn time_bytes(time: Option<i64>) -> [u8; 8] {
    (time.map_or(0, |time| time as u64 ^ 1 << 63)).to_be_bytes()
}

/// The event times of the rows of a batch; 0 for none.
pub(super) fn times_of(batch: &Batch<'_>) -> Int64Array {
    let rows = 0..batch.columns().num_rows();
    match &batch.rows {
        Rows::Records(records) => {
            let times = records.stamped.prepared.times.as_ref().map(|times| &times.times);
            rows.map(|row| times.and_then(|times| times.us(records.place(row))).unwrap_or(0))
                .collect::<Vec<i64>>()
                .into()
        }
        Rows::Fired { times, .. } => {
            rows.map(|row| times.at(row).unwrap_or(0)).collect::<Vec<_>>().into()
        }
    }
}

/// Of a record.
const ORDER_BYTES: usize = 26;

fn of_records(input: usize, records: &Records<'_>) -> BinaryArray {
    let (stamped, rows) = (records.stamped, records.rows.num_rows());
    let times = stamped.prepared.times.as_ref().map(|times| &times.times);
    let mut order = Vec::with_capacity(rows);
    let (mut before, mut element) = (records.continued, records.elements);
    for row in 0..rows {
        let place = records.place(row);
        element = if before == Some(place as u32) { element + 1 } else { 0 };
        before = Some(place as u32);
        let mut bytes = [0; ORDER_BYTES];
        bytes[..8].copy_from_slice(&time_bytes(times.and_then(|times| times.us(place))));
        bytes[8..10].copy_from_slice(&(input as u16).to_be_bytes());
        bytes[10..14].copy_from_slice(&stamped.number.to_be_bytes());
        let position = stamped.first_record + place as u64;
        bytes[14..22].copy_from_slice(&position.to_be_bytes());
        bytes[22..].copy_from_slice(&element.to_be_bytes());
        order.push(bytes);
    }
    let order = Buffer::from(order.into_flattened());
    BinaryArray::new(OffsetBuffer::from_repeated_length(ORDER_BYTES, rows), order, None)
}

fn of_fired(
    input: usize,
    rows: usize,
    times: &RowTimes,
    values: Option<&arrow::row::Rows>,
) -> BinaryArray {
    let (mut order, mut head) = (BinaryBuilder::new(), Vec::new());
    for row in 0..rows {
        head.clear();
        head.extend_from_slice(&time_bytes(times.at(row)));
        head.extend_from_slice(&(input as u16).to_be_bytes());
        if let Some(values) = values {
            head.extend_from_slice(values.row(row).data());
        }
        order.append_value(&head);
    }
    order.finish()
}

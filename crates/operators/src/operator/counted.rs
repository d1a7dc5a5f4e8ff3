//! Which rows of a batch count, and for which slices: those that pass the filter and are not late.

use std::ops::Range;

use arrow::array::RecordBatch;

use crate::columns::inputs::true_mask;
use crate::columns::rows_in;
use crate::columns::select::select;
use crate::error::{Error, Result};
use crate::expr::Expr;
use crate::operator::assign::{assign, event_times, single_slice};
use crate::operator::{Batch, BySlice, Dropped, Passing, Records, Rows, Updated, rows_of};
use crate::texts;
use crate::windowing::{SliceId, Windowing};

/// Buffers that are used again from batch to batch.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    pub(super) rows: Vec<u32>,
    /// Where the records of these rows stand.
    records: Vec<u32>,
    pub(super) by_slice: BySlice,
}

/// Finds the rows of a batch that pass its filter and count, slice by slice; returns how many pass
/// the filter, and what was dropped of these.
pub(super) fn assign_rows(
    windowing: &Windowing,
    batch: &Batch<'_>,
    buffers: &mut Buffers,
    by_slice: &mut BySlice,
) -> Result<Passing> {
    match batch.rows {
        Rows::Records(Records { picked: Some(picked), .. }) => buffers.rows = picked.to_vec(),
        _ => select_rows(batch.columns(), batch.filter, buffers)?,
    }
    let rows = buffers.rows.len() as u64;
    let passing = |dropped: Dropped| Passing { rows, dropped };
    let mut all_in = |slice| {
        by_slice.clear();
        by_slice.push((slice, std::mem::take(&mut buffers.rows)));
        Ok(passing(Dropped::default()))
    };
    let records = match &batch.rows {
        Rows::Fired { slice, .. } => return all_in(*slice),
        Rows::Records(records) => records,
    };
    let stamped = records.stamped;
    if let Some(slice) = single_slice(windowing, stamped) {
        return all_in(slice);
    }
    let times = event_times(stamped)?;
    let Some(places) = records.places else {
        return Ok(passing(assign(windowing, times, stamped.stamp, &buffers.rows, by_slice)));
    };
    // A record is late, or not, with all of its rows.
    buffers.records.clear();
    buffers.records.extend(buffers.rows.iter().map(|row| places[*row as usize]));
    buffers.records.dedup();
    let dropped = assign(windowing, times, stamped.stamp, &buffers.records, by_slice);
    for (_, rows) in by_slice {
        *rows = rows_of(rows, &buffers.rows, places);
    }
    Ok(passing(dropped))
}

/// Gives rows of a batch that count to `update`: all at once, or half of them at a time where texts
/// that are computed of them are too much. Then `assign_again` finds them once more, since `update`
/// may have changed their positions.
pub(super) fn in_parts(
    rows: usize,
    by_slice: &mut BySlice,
    assign_again: impl FnOnce(&mut BySlice) -> Result<()>,
    update: &mut dyn FnMut(&mut BySlice) -> Result<Updated>,
) -> Result<Updated> {
    match update(by_slice) {
        Err(Error::TooMuchText { .. }) if rows > 1 => {
            // Nothing has been changed yet.
            assign_again(by_slice)?;
            halved(by_slice, 0..rows, update)
        }
        updated => updated,
    }
}

#[cold]
fn halved(
    by_slice: &BySlice,
    range: Range<usize>,
    update: &mut dyn FnMut(&mut BySlice) -> Result<Updated>,
) -> Result<Updated> {
    match update(&mut within(by_slice, &range)) {
        Err(Error::TooMuchText { .. }) if range.len() > 1 => {
            let middle = range.start + range.len() / 2;
            let mut updated = halved(by_slice, range.start..middle, update)?;
            updated.add(&halved(by_slice, middle..range.end, update)?);
            Ok(updated)
        }
        updated => updated,
    }
}

/// Finds the rows of a batch that pass a filter.
fn select_rows(rows: &RecordBatch, filter: Option<&Expr>, buffers: &mut Buffers) -> Result<()> {
    texts::begin();
    let mask = match filter {
        Some(filter) => Some(true_mask(filter, rows)?),
        None => None,
    };
    select(mask.as_ref(), rows.num_rows(), &mut buffers.rows);
    Ok(())
}

/// The rows within a range, of the given rows.
pub(super) fn within(by_slice: &BySlice, range: &Range<usize>) -> BySlice {
    let within = |row: &u32| range.contains(&(*row as usize));
    let of_range = |rows: &[u32]| rows.iter().copied().filter(within).collect();
    by_slice.iter().map(|(slice, rows)| (*slice, of_range(rows))).collect()
}

/// Takes out the rows that count, slice by slice; positions become positions in the result.
pub(super) fn take_out(
    records: &RecordBatch,
    by_slice: &mut [(SliceId, Vec<u32>)],
    counted: usize,
) -> Result<RecordBatch> {
    let mut taken = Vec::with_capacity(counted);
    for (_, rows) in by_slice {
        for row in rows {
            let position = taken.len() as u32;
            taken.push(std::mem::replace(row, position));
        }
    }
    rows_in(records, taken)
}

//! Rows of state become result rows; sessions a portion at a time, so that neither many of them nor
//! a long one are decoded at once.
//!
//! Where pairs of the rows of a session are what fires, and it has more rows than a portion, all
//! rows of a side are kept that has no more than a portion of them, and the rows of the other side
//! are read portion by portion and paired with them. If both sides have more, this is done with
//! some rows of the right side at a time, and the left side is read again for each of these.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, RecordBatch, RecordBatchOptions, TimestampMillisecondArray, UInt32Array,
};
use arrow::compute::{concat_batches, take_arrays};
use millstream_state::RowsRef;

use super::grouping::Grouping;
use crate::columns::records::{PORTION_BYTES, PORTION_ROWS, Portion, Reading, RecordsOfGroups};
use crate::error::Result;
use crate::operator::finish::{Finisher, ResultRows};
use crate::operator::paired::{Paired, Pairing};

/// Rows of state that are being read.
pub(super) struct Over {
    groups: usize,
    /// If each has its own.
    bounds: Option<BoundsOfRows>,
    reading: Reading,
    large: Option<Large>,
}

/// A session of more rows than a portion, of which pairs are made.
struct Large {
    /// Rows of each side, as long as it is not known which are to be kept; `None`: there are more
    /// than a portion.
    both: Option<[Option<Vec<RecordBatch>>; 2]>,
    /// The number of the side of which rows are kept.
    kept_side: usize,
    /// How far rows have been read to be kept, and to be paired with those that are.
    kept_reading: Reading,
    paired_reading: Reading,
    /// Rows that are being collected to be kept, and how many.
    collected: Vec<RecordBatch>,
    rows: usize,
    /// Those with which the other side is being paired.
    kept: Option<RecordBatch>,
}

impl Over {
    /// So many groups, with the starts, ends and times of each, if it has its own; whether they are
    /// sessions, which may be long.
    pub(super) fn new(
        groups: usize,
        bounds: Option<[Vec<i64>; 3]>,
        are_sessions: bool,
        finisher: &Finisher,
    ) -> Over {
        let portion = match finisher.pairing() {
            _ if !are_sessions => Portion::All,
            Some(_) => Portion::Groups,
            None => Portion::Rows,
        };
        let bounds = bounds.map(BoundsOfRows::new);
        Over { groups, bounds, reading: Reading::by(portion), large: None }
    }

    /// Whether all of them have been read.
    pub(super) fn is_read(&self) -> bool {
        self.large.is_none() && self.reading.group() >= self.groups
    }

    /// Reads the next portion of `rows`, which are theirs, into `result`; returns how many rows
    /// were looked at, about.
    pub(super) fn read(
        &mut self,
        grouping: &Grouping,
        finisher: &Finisher,
        rows: &RowsRef<'_>,
        result: &mut ResultRows,
    ) -> Result<usize> {
        let aggregates = &grouping.aggregates;
        let group = self.reading.group();
        let is_large = |(rows, bytes)| rows > PORTION_ROWS || bytes > PORTION_BYTES;
        match finisher.pairing() {
            Some(pairing) if aggregates.records_of(rows, group).is_some_and(is_large) => {
                let large = self.large.get_or_insert_with(Large::new);
                let bounds = self.bounds.as_ref();
                let columns = bounds.iter().flat_map(|bounds| &bounds.columns);
                let columns: Vec<_> = columns.map(|column| column.slice(group, 1)).collect();
                let rows = rows.slice(group..group + 1);
                let mut records = |reading: &mut Reading| -> Result<RecordBatch> {
                    Ok(decode(finisher, grouping, &columns, &rows, reading)?.0)
                };
                let time = bounds.and_then(|bounds| bounds.times.get(group).copied());
                result.give_pairs(large.read(&mut records, pairing, time)?);
                if large.is_over() {
                    self.large = None;
                    self.reading.skip_group();
                }
                Ok(PORTION_ROWS)
            }
            _ => {
                if let Some(bounds) = &self.bounds {
                    result.times = Some(bounds.times.clone());
                    result.bounds = bounds.columns.clone();
                }
                let (left, of) =
                    decode(finisher, grouping, &result.bounds, rows, &mut self.reading)?;
                result.give_groups(finisher, left, of)?;
                if aggregates.gives_several() {
                    return Ok(PORTION_ROWS);
                }
                self.reading.skip_to(self.groups);
                Ok(rows.len())
            }
        }
    }
}

impl Large {
    fn new() -> Large {
        let from_the_first = Reading::by(Portion::Rows);
        Large {
            both: Some([Some(vec![]), Some(vec![])]),
            kept_side: 1,
            kept_reading: from_the_first,
            paired_reading: from_the_first,
            collected: Vec::new(),
            rows: 0,
            kept: None,
        }
    }

    /// Goes on by a portion, which `records` reads. The pairs that it has, if any.
    fn read(
        &mut self,
        records: &mut dyn FnMut(&mut Reading) -> Result<RecordBatch>,
        pairing: &Pairing,
        time: Option<i64>,
    ) -> Result<Option<Paired>> {
        if let Some(both) = self.both.take() {
            let next = records(&mut self.kept_reading)?;
            self.choose(both, &next, pairing)?;
            return Ok(None);
        }
        if let Some(kept) = self.kept.take() {
            let other = pairing.rows_of(1 - self.kept_side, &records(&mut self.paired_reading)?)?;
            self.kept = (!is_read(&self.paired_reading)).then(|| kept.clone());
            let sides = if self.kept_side == 0 { [kept, other] } else { [other, kept] };
            return Ok(Pairing::all_pairs(sides, time));
        }
        let rows = pairing.rows_of(self.kept_side, &records(&mut self.kept_reading)?)?;
        self.rows += rows.num_rows();
        self.collected.push(rows);
        if self.rows >= PORTION_ROWS || is_read(&self.kept_reading) {
            let collected = std::mem::take(&mut self.collected);
            self.keep(&collected)?;
            self.rows = 0;
        }
        Ok(None)
    }

    /// Collects the next rows of both sides. When all have been read, those of a side are kept of
    /// which there are no more than a portion; when it is known that there is none, one begins anew
    /// with the right side.
    fn choose(
        &mut self,
        mut both: [Option<Vec<RecordBatch>>; 2],
        records: &RecordBatch,
        pairing: &Pairing,
    ) -> Result<()> {
        for (side, collected) in both.iter_mut().enumerate() {
            if let Some(rows) = collected {
                rows.push(pairing.rows_of(side, records)?);
                if rows.iter().map(RecordBatch::num_rows).sum::<usize>() > PORTION_ROWS {
                    *collected = None;
                }
            }
        }
        match &both {
            [None, None] => self.kept_reading = Reading::by(Portion::Rows),
            _ if !is_read(&self.kept_reading) => self.both = Some(both),
            [_, Some(right)] => self.keep(right)?,
            [Some(left), None] => {
                self.kept_side = 0;
                self.keep(left)?;
            }
        }
        Ok(())
    }

    /// Keeps rows, with which the other side is paired from now on.
    fn keep(&mut self, rows: &[RecordBatch]) -> Result<()> {
        self.paired_reading = Reading::by(Portion::Rows);
        let Some(first) = rows.first() else { return Ok(()) };
        let all = concat_batches(&first.schema(), rows)?;
        self.kept = (all.num_rows() > 0).then_some(all);
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.both.is_none() && self.kept.is_none() && is_read(&self.kept_reading)
    }
}

/// Whether the one group has been read.
fn is_read(reading: &Reading) -> bool {
    reading.group() > 0
}

/// Some rows of state as the columns of a window that has fired. Where a row of state becomes
/// several: those that are read next, and which row of state each is of.
fn decode(
    finisher: &Finisher,
    grouping: &Grouping,
    bounds: &[ArrayRef],
    rows: &RowsRef<'_>,
    reading: &mut Reading,
) -> Result<(RecordBatch, Option<Vec<u32>>)> {
    let records = grouping.aggregates.best(rows, reading)?;
    let some = records.as_ref().map_or(0..rows.len(), RecordsOfGroups::range);
    let mut columns: Vec<ArrayRef> =
        bounds.iter().map(|b| b.slice(some.start, some.len())).collect();
    columns.extend(grouping.codec.decode(&rows.slice(some.clone()), grouping.own_keys())?);
    let (mut count, mut of) = (some.len(), None);
    match records {
        None => columns.extend(grouping.aggregates.finish(rows)?),
        Some(RecordsOfGroups { groups, columns: values }) => {
            count = groups.len();
            let places = groups.iter().map(|group| *group - some.start as u32);
            columns = take_arrays(&columns, &UInt32Array::from_iter_values(places), None)?;
            columns.extend(values);
            of = Some(groups);
        }
    }
    let options = RecordBatchOptions::new().with_row_count(Some(count));
    let fired = RecordBatch::try_new_with_options(finisher.fired.clone(), columns, &options)?;
    Ok((fired, of))
}

/// The bounds of the windows of rows of state, where each has its own.
struct BoundsOfRows {
    /// `window_start`, `window_end` and `window_time`.
    columns: Vec<ArrayRef>,
    /// Event times.
    times: Vec<i64>,
}

impl BoundsOfRows {
    /// Of starts, ends and times in microseconds.
    fn new(bounds: [Vec<i64>; 3]) -> BoundsOfRows {
        let column = |us: &Vec<i64>| -> ArrayRef {
            // Mostly the same ones follow each other.
            let (mut last_us, mut last_ms) = (0, 0);
            let ms = us.iter().map(|us| {
                if *us != last_us {
                    (last_us, last_ms) = (*us, us.div_euclid(1000));
                }
                last_ms
            });
            Arc::new(TimestampMillisecondArray::from_iter_values(ms))
        };
        let columns = bounds.iter().map(column).collect();
        let [_, _, times] = bounds;
        BoundsOfRows { columns, times }
    }
}

//! Sessions that are over become result rows a portion at a time, so that neither many of them nor
//! a long one are decoded at once.
//!
//! Where pairs of the rows of a session are what fires, and it has more rows than a portion, some
//! rows of the right side are kept, and the rows of the left side are read portion by portion and
//! paired with them; then it is the turn of the next rows of the right side.

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use millstream_state::RowsRef;

use super::fire::{BoundsOfRows, Finisher, ResultRows};
use super::grouping::Grouping;
use super::paired::{Paired, Pairing};
use crate::columns::records::{PORTION_BYTES, PORTION_ROWS, Portion, Reading};
use crate::error::Result;

/// Sessions that are over.
pub(super) struct Over {
    bounds: BoundsOfRows,
    reading: Reading,
    large: Option<Large>,
}

/// A session of more rows than a portion, of which pairs are made.
struct Large {
    /// How far its rows have been read for the right side, and for the left one.
    right: Reading,
    left: Reading,
    /// Rows of the right side that are being collected, and how many.
    collected: Vec<RecordBatch>,
    rows: usize,
    /// Those with which the left side is being paired.
    kept: Option<RecordBatch>,
}

impl Over {
    /// With the starts, ends and times of each.
    pub(super) fn new(bounds: [Vec<i64>; 3], finisher: &Finisher) -> Over {
        let portion = match finisher.pairing() {
            Some(_) => Portion::Groups,
            None => Portion::Rows,
        };
        Over { bounds: BoundsOfRows::new(bounds), reading: Reading::by(portion), large: None }
    }

    /// Whether all of them have been read.
    pub(super) fn is_read(&self) -> bool {
        self.large.is_none() && self.reading.group() >= self.bounds.times.len()
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
                let columns = self.bounds.columns.iter().map(|column| column.slice(group, 1));
                let columns: Vec<_> = columns.collect();
                let rows = rows.slice(group..group + 1);
                let mut records = |reading: &mut Reading| -> Result<RecordBatch> {
                    Ok(finisher.decode(grouping, &columns, &rows, reading)?.0)
                };
                let time = self.bounds.times.get(group).copied();
                result.give_pairs(large.read(&mut records, pairing, time)?);
                if large.is_over() {
                    self.large = None;
                    self.reading.skip_group();
                }
                Ok(PORTION_ROWS)
            }
            _ if aggregates.gives_several() => {
                result.read_bounded(grouping, finisher, rows, &self.bounds, &mut self.reading)?;
                Ok(PORTION_ROWS)
            }
            _ => {
                let reading = &mut Reading::default();
                result.read_bounded(grouping, finisher, rows, &self.bounds, reading)?;
                while !self.is_read() {
                    self.reading.skip_group();
                }
                Ok(rows.len())
            }
        }
    }
}

impl Large {
    fn new() -> Large {
        let from_the_first = Reading::by(Portion::Rows);
        let (right, left) = (from_the_first, from_the_first);
        Large { right, left, collected: Vec::new(), rows: 0, kept: None }
    }

    /// Goes on by a portion, which `records` reads. The pairs that it has, if any.
    fn read(
        &mut self,
        records: &mut dyn FnMut(&mut Reading) -> Result<RecordBatch>,
        pairing: &Pairing,
        time: Option<i64>,
    ) -> Result<Option<Paired>> {
        if let Some(right) = self.kept.take() {
            let left = pairing.rows_of(0, &records(&mut self.left)?)?;
            self.kept = (!is_read(&self.left)).then(|| right.clone());
            return Ok(Pairing::all_pairs([left, right], time));
        }
        let right = pairing.rows_of(1, &records(&mut self.right)?)?;
        self.rows += right.num_rows();
        let schema = right.schema();
        self.collected.push(right);
        if self.rows >= PORTION_ROWS || is_read(&self.right) {
            self.left = Reading::by(Portion::Rows);
            let all = concat_batches(&schema, &self.collected)?;
            self.kept = (self.rows > 0).then_some(all);
            self.collected.clear();
            self.rows = 0;
        }
        Ok(None)
    }

    fn is_over(&self) -> bool {
        self.kept.is_none() && is_read(&self.right)
    }
}

/// Whether the one group has been read.
fn is_read(reading: &Reading) -> bool {
    reading.group() > 0
}

//! Input of operators, and dropped records.

use arrow::array::{ArrayRef, RecordBatch};

use crate::columns::inputs::Input;
use crate::expr::Expr;
use crate::operator::stateless::SelectedRows;
use crate::prepare::Prepared;
use crate::stamped::Stamped;
use crate::windowing::SliceId;

/// Input of a stage in one call.
#[derive(Debug, Clone, Copy)]
pub struct Batch<'a> {
    /// Which of the stage's inputs it is of, by its number in the plan.
    pub input: usize,
    /// The rows.
    pub rows: Rows<'a>,
    /// Condition on the rows to be used.
    pub filter: Option<&'a Expr>,
    /// Bytes of input, from which the rows come.
    pub bytes: usize,
}

/// Rows, and when they happened.
#[derive(Debug, Clone, Copy)]
pub enum Rows<'a> {
    /// Each has a time of its own, and may be late.
    Records(Records<'a>),
    /// Rows fired by an earlier stage: all belong to one slice, and none is late.
    Fired {
        /// The rows.
        rows: &'a RecordBatch,
        /// The slice of all rows.
        slice: SliceId,
        /// The event times.
        times: &'a RowTimes,
    },
}

/// The event times of rows that have been fired.
#[derive(Debug, Clone)]
pub enum RowTimes {
    /// The same time, if any, for all rows.
    Same(Option<i64>),
    /// A time for each row.
    Each(Vec<i64>),
}

impl RowTimes {
    /// The time of a row.
    pub fn at(&self, row: usize) -> Option<i64> {
        match self {
            RowTimes::Same(time) => *time,
            RowTimes::Each(times) => Some(times[row]),
        }
    }

    /// The times of the rows at some places; `None`: of all rows.
    pub fn of(&self, places: Option<&[u32]>) -> RowTimes {
        match (self, places) {
            (RowTimes::Each(times), Some(places)) => {
                RowTimes::Each(places.iter().map(|place| times[*place as usize]).collect())
            }
            (times, _) => times.clone(),
        }
    }
}

impl<'a> Batch<'a> {
    /// The columns that the operator sees.
    pub(crate) fn columns(&self) -> &'a RecordBatch {
        match self.rows {
            Rows::Records(records) => records.rows,
            Rows::Fired { rows, .. } => rows,
        }
    }
}

/// Records of a batch, as a stage sees them.
#[derive(Debug, Clone, Copy)]
pub struct Records<'a> {
    /// The batch, with the records' times.
    pub stamped: &'a Stamped,
    /// The rows.
    pub rows: &'a RecordBatch,
    /// Places of the records in the batch, ascending; `None`: all its records, in order. A record
    /// whose elements have become rows stands there for each of them.
    pub places: Option<&'a [u32]>,
    /// Positions of passing rows, ascending, in a batch with other rows; `None`: all rows count.
    pub picked: Option<&'a [u32]>,
    /// Bytes of input, from which the records come.
    pub bytes: usize,
    /// The first record, if some of its elements have been given before.
    pub continued: Option<u32>,
    /// Number, from 0, of the last of these elements.
    pub elements: u32,
}

impl<'a> Records<'a> {
    /// All records of a batch.
    pub fn all(stamped: &'a Stamped) -> Records<'a> {
        let Prepared { batch: rows, input_bytes: bytes, .. } = &stamped.prepared;
        let (places, picked, continued) = (None, None, None);
        Records { stamped, rows, places, picked, bytes: *bytes, continued, elements: 0 }
    }

    /// The rows of `taken`, at their places in the batch of `of`.
    pub fn taken(taken: &'a SelectedRows, of: &Records<'a>) -> Records<'a> {
        Records { rows: &taken.rows, places: taken.places.as_deref(), ..*of }
    }

    /// The record that a row is of, by its position in the batch.
    pub fn place(&self, row: usize) -> usize {
        self.places.map_or(row, |places| places[row] as usize)
    }
}

/// The rows of some records, which stand at `records` in a batch, ascending: of the rows that
/// count, `rows`, ascending, each of which is of the record at its place in `places`.
pub fn rows_of(records: &[u32], rows: &[u32], places: &[u32]) -> Vec<u32> {
    let mut rest = rows;
    let mut found = Vec::with_capacity(records.len());
    for record in records {
        let place = |row: &u32| places[*row as usize];
        rest = &rest[rest.iter().take_while(|row| place(row) < *record).count()..];
        let own = rest.iter().take_while(|row| place(row) == *record).count();
        found.extend_from_slice(&rest[..own]);
        rest = &rest[own..];
    }
    found
}

/// Per slice: the positions of its rows in a batch, ascending.
pub type BySlice = Vec<(SliceId, Vec<u32>)>;

/// Rows of a batch as keys and arguments.
#[derive(Debug)]
pub struct Keyed {
    /// The side of a join that they are of; 0 where there is one.
    pub side: usize,
    /// Columns of keys.
    pub keys: Vec<ArrayRef>,
    /// Arguments of the aggregates.
    pub arguments: Vec<Input>,
    /// Rows that count, by their positions in `keys` and `arguments`.
    pub by_slice: BySlice,
}

/// Results of updating with a batch.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Updated {
    /// Rows that passed the filter.
    pub passing: Passing,
    /// How many rows were of other leaders: kept for them, or passed through.
    pub others_rows: u64,
    /// The latest slice that rows went into, if any did.
    pub latest: Option<SliceId>,
}

impl Updated {
    /// Adds the results of another part of the batch, without drops.
    pub(super) fn add(&mut self, other: &Updated) {
        self.others_rows += other.others_rows;
        self.latest = self.latest.max(other.latest);
    }
}

/// Rows of a batch that pass the filter.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Passing {
    /// The rows.
    pub rows: u64,
    /// Of their records.
    pub dropped: Dropped,
}

/// Records of a batch that did not make it into a slice, or not into all of theirs.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Dropped {
    /// Late records.
    pub late: u64,
    /// Late for some of their windows.
    pub partly_late: u64,
    /// Records whose event time is NULL.
    pub null_time: u64,
    /// Records whose event time is out of range.
    pub unusable_time: u64,
    /// The first rows of the last two kinds.
    pub first_null_time: Option<usize>,
    /// The first of these rows.
    pub first_unusable_time: Option<usize>,
}

impl Dropped {
    #[cold]
    pub(super) fn without_time(&mut self, row: usize, null: bool) {
        let (count, first) = match null {
            true => (&mut self.null_time, &mut self.first_null_time),
            false => (&mut self.unusable_time, &mut self.first_unusable_time),
        };
        *count += 1;
        first.get_or_insert(row);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand: record 3 has three rows, of which the filter has left two; record 4 has none left.
    #[test]
    fn records_have_the_rows_that_stand_at_their_place() {
        let places = [1, 3, 3, 3, 4, 7];
        for (records, expected) in [
            (vec![1, 3, 7], vec![0, 1, 3, 5]),
            (vec![3], vec![1, 3]),
            (vec![7], vec![5]),
            (vec![], vec![]),
        ] {
            assert_eq!(rows_of(&records, &[0, 1, 3, 5], &places), expected);
        }
    }
}

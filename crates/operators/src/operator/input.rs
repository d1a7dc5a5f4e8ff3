//! What operators take in, and what they leave out.

use arrow::array::{ArrayRef, RecordBatch};

use crate::columns::inputs::Input;
use crate::expr::Expr;
use crate::operator::stateless::Taken;
use crate::prepare::Prepared;
use crate::stamped::Stamped;
use crate::windowing::SliceId;

/// What a stage takes in at once.
#[derive(Debug, Clone, Copy)]
pub struct Batch<'a> {
    /// Which of the stage's inputs it is of, by its number in the plan.
    pub input: usize,
    /// The rows.
    pub rows: Rows<'a>,
    /// Only rows that pass it count.
    pub filter: Option<&'a Expr>,
    /// Bytes of input that it stands for.
    pub bytes: usize,
}

/// Rows, and when they happened.
#[derive(Debug, Clone, Copy)]
pub enum Rows<'a> {
    /// Each has a time of its own, and may be late.
    Records(Records<'a>),
    /// A stage before has fired them: all of them belong to one slice, and none is late.
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
    /// All have this one, if they have one.
    Same(Option<i64>),
    /// A time for each row.
    Each(Vec<i64>),
}

impl RowTimes {
    /// That of a row.
    pub fn at(&self, row: usize) -> Option<i64> {
        match self {
            RowTimes::Same(time) => *time,
            RowTimes::Each(times) => Some(times[row]),
        }
    }

    /// Those of the rows at some places; `None`: of all.
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
    /// Where they stand in the batch, ascending; `None`: they are all of it. A record whose
    /// elements have become rows stands there for each of them.
    pub places: Option<&'a [u32]>,
    /// Bytes of input that they stand for.
    pub bytes: usize,
    /// The record of which elements have been given before, if it is the first.
    pub continued: Option<u32>,
    /// The number, from 0, of the last of these elements.
    pub elements: u32,
}

impl<'a> Records<'a> {
    /// All records of a batch.
    pub fn all(stamped: &'a Stamped) -> Records<'a> {
        let Prepared { batch: rows, input_bytes: bytes, .. } = &stamped.prepared;
        let (places, continued) = (None, None);
        Records { stamped, rows, places, bytes: *bytes, continued, elements: 0 }
    }

    /// What has been taken of records; where they stand is where it does in their batch.
    pub fn taken(taken: &'a Taken, of: &Records<'a>) -> Records<'a> {
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
    /// Those that count, by their positions in both.
    pub by_slice: BySlice,
}

/// What came of a batch.
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
    /// Adds what came of another part of the batch, of which nothing was dropped.
    pub(super) fn add(&mut self, other: &Updated) {
        self.others_rows += other.others_rows;
        self.latest = self.latest.max(other.latest);
    }
}

/// Of a batch: the rows that pass its filter.
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

//! What operators take in, and what they leave out.

use arrow::array::{ArrayRef, RecordBatch};

use crate::columns::inputs::Input;
use crate::expr::Expr;
use crate::operator::stateless::Taken;
use crate::stamped::Stamped;
use crate::windowing::SliceId;

/// What a stage takes in at once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Batch<'a> {
    /// Which of the stage's inputs it is of, by its number in the plan.
    #[allow(dead_code, reason = "to an aggregate all inputs are alike; to a join they are not")]
    pub(crate) input: usize,
    pub(crate) rows: Rows<'a>,
    /// Only rows that pass it count.
    pub(crate) filter: Option<&'a Expr>,
    /// Bytes of input that it stands for.
    pub(crate) bytes: usize,
}

/// Rows, and when they happened.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Rows<'a> {
    /// Each has a time of its own, and may be late.
    Records(Records<'a>),
    /// A stage before has fired them: all of them belong to one slice, and none is late.
    Fired { rows: &'a RecordBatch, slice: SliceId },
}

impl Batch<'_> {
    /// The columns that the operator sees.
    pub(crate) fn columns(&self) -> &RecordBatch {
        match &self.rows {
            Rows::Records(records) => records.rows,
            Rows::Fired { rows, .. } => rows,
        }
    }
}

/// Records of a batch, as a stage sees them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Records<'a> {
    /// The batch, with the records' times.
    pub(crate) stamped: &'a Stamped,
    pub(crate) rows: &'a RecordBatch,
    /// Where they stand in the batch, ascending; `None`: they are all of it.
    pub(crate) places: Option<&'a [u32]>,
}

impl<'a> Records<'a> {
    /// What has been taken of a batch.
    pub(crate) fn taken(taken: &'a Taken, stamped: &'a Stamped) -> Records<'a> {
        Records { stamped, rows: &taken.rows, places: taken.places.as_deref() }
    }

    /// The record that a row is of, by its position in the batch.
    pub(crate) fn place(&self, row: usize) -> usize {
        self.places.map_or(row, |places| places[row] as usize)
    }

    /// The rows of some records: positions in the batch, ascending, become positions of rows.
    pub(super) fn rows_of(&self, records: &mut [u32]) {
        let Some(places) = self.places else { return };
        let mut at = 0;
        for record in records {
            at += places[at..].partition_point(|place| *place < *record);
            *record = at as u32;
        }
    }
}

/// Per slice: the positions of its rows in a batch, ascending.
pub(crate) type BySlice = Vec<(SliceId, Vec<u32>)>;

/// Rows of a batch as keys and arguments.
#[derive(Debug)]
pub(crate) struct Keyed {
    pub(crate) keys: Vec<ArrayRef>,
    pub(crate) arguments: Vec<Input>,
    /// Those that count, by their positions in both.
    pub(crate) by_slice: BySlice,
}

/// What came of a batch.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Updated {
    pub(crate) dropped: Dropped,
    /// How many rows were of other leaders: kept for them, or passed through.
    pub(crate) others_rows: u64,
    /// The latest slice that rows went into, if any did.
    pub(crate) latest: Option<SliceId>,
}

impl Updated {
    /// Adds what came of another part of the batch, of which nothing was dropped.
    pub(super) fn add(&mut self, other: &Updated) {
        self.others_rows += other.others_rows;
        self.latest = self.latest.max(other.latest);
    }
}

/// Records of a batch that did not make it into a slice.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Dropped {
    pub(crate) late: u64,
    pub(crate) null_time: u64,
    pub(crate) unusable_time: u64,
    /// The first rows of the last two kinds.
    pub(crate) first_null_time: Option<usize>,
    pub(crate) first_unusable_time: Option<usize>,
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

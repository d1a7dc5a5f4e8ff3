//! Operators: what a stage does with rows.
//!
//! An operator that keeps state implements [`Operator`]; `aggregate` is the example to read. Each
//! worker has one of its own for every such stage, which no other worker looks into: what others
//! are to have is sealed and handed out, and what they have sealed is merged. An operator
//! knows slices and rows. It does not know who has sent a watermark ([`crate::progress`]), nor the
//! network ([`crate::delivery`]). What needs no state is a pass on the way (`stateless`).

pub(crate) mod aggregate;
mod input;
pub(crate) mod stateless;

use arrow::array::RecordBatch;
use millstream_state::{Arena, Load, Segment};

use crate::budget::Usage;
use crate::error::Result;
use crate::expr::Expr;
use crate::passed::{Onward, Parcel, PassedRows};
use crate::windowing::{SliceId, WindowId};
use aggregate::Receiver;

pub(crate) use input::{Dropped, Records};

/// What of a slice is sealed for other leaders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SealSlice {
    /// Everything: its epoch ends.
    EndEpoch,
    /// What has been passed through, and what has been sealed before. The epoch goes on.
    PassedThrough,
    /// Nothing, and nothing of later ones.
    Nothing,
}

/// What has been done so far.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Counters {
    /// Times that indexes grew, and that fragments changed their mode.
    pub(crate) growths: u64,
    pub(crate) switches: u64,
    /// Rows that went into joint tables.
    pub(crate) joint_rows: u64,
}

impl Counters {
    /// Adds those of another stage.
    pub(crate) fn add(&mut self, other: &Counters) {
        self.growths += other.growths;
        self.switches += other.switches;
        self.joint_rows += other.joint_rows;
    }
}

/// Refuses rows for a slice that there is not, or that may not be added to any more.
pub(crate) type MayAdd<'a> = &'a dyn Fn(SliceId) -> Result<()>;

/// An operator that keeps state, in one worker. It is called once for a batch, a segment or a
/// message, and never for a record.
pub(crate) trait Operator: Send {
    // Input.

    /// Takes in those records of a batch that pass a filter, into the slices that they belong to;
    /// rows of other leaders are kept for them, or go `onward` at once. Returns what was dropped,
    /// and how many rows were of other leaders.
    fn update(
        &mut self,
        input: (&Records<'_>, Option<&Expr>),
        onward: Option<&dyn Onward>,
    ) -> Result<(Dropped, u64)>;

    /// The same for rows that a stage before has fired: all of them belong to the slice that is
    /// given, and none is late. Returns how many were of other leaders.
    fn update_rows(
        &mut self,
        input: (&RecordBatch, Option<&Expr>, SliceId),
        onward: Option<&dyn Onward>,
    ) -> Result<u64>;

    /// The latest slice that input has gone into.
    fn latest(&self) -> Option<SliceId>;

    // Deltas.

    /// Seals what is kept for other leaders; `how` tells for each slice. One parcel for each
    /// leader of the job. Tables that are empty afterwards are freed at once if memory is `scarce`.
    fn seal(&mut self, how: &dyn Fn(SliceId) -> SealSlice, scarce: bool) -> Vec<Parcel>;

    /// Whether anything is kept for other leaders.
    fn holds_for_others(&self) -> bool;

    /// Merges what a worker of this process has sealed; true if it was adopted where it stands.
    fn merge(&mut self, slice: SliceId, segment: Segment) -> bool;

    /// Merges `count` rows that another process has sealed, from where they arrived. Nothing of
    /// them has been checked.
    fn merge_rows(
        &mut self,
        slice: SliceId,
        count: u64,
        words: &[u64],
        arena: &Arena,
    ) -> Result<()>;

    /// Takes in rows that a worker of this process has passed through as keys and arguments.
    fn take_passed(&mut self, rows: PassedRows, may_add: MayAdd<'_>) -> Result<()>;

    /// The same for rows of another process, from where they arrived; returns how many.
    fn merge_passed(
        &mut self,
        from: &mut Receiver,
        words: &[u64],
        may_add: MayAdd<'_>,
    ) -> Result<usize>;

    /// The same for exchanged records, of which a slot may hold parts; returns how many, and the
    /// last watermark behind them.
    fn merge_exchanged(
        &mut self,
        from: &mut Receiver,
        words: &[u64],
        may_add: MayAdd<'_>,
    ) -> Result<(usize, Option<i64>)>;

    /// Takes the memory of a segment back that its leader, in another process, has merged.
    fn reuse(&mut self, segment: Segment);

    // Firing, one window at a time.

    /// The window that fires next, when all that fire up to `frontier` have fired; if it does when
    /// the vector clock has got so far.
    fn complete(&self, frontier: i64, clock: i64) -> Option<WindowId>;

    /// Begins to fire a complete window; false if there is nothing of it.
    fn fire(&mut self, window: WindowId) -> bool;

    /// The input had no rows. If the query gives a row even then (a count of 0), begins to fire it.
    fn fire_nothing(&mut self) -> bool;

    /// The window that fires.
    fn firing(&self) -> Option<WindowId>;

    /// Its next rows, and whether they are the last; `None`: all have been given.
    fn step(&mut self) -> Result<Option<(RecordBatch, bool)>>;

    /// How many rows of state come next, and the bytes that result rows of them take, about; `None`
    /// if no window fires or all of its rows have been given.
    fn next_load(&self) -> Option<Load>;

    /// Bytes of keys and values of the window that fires.
    fn firing_bytes(&self) -> u64;

    /// All rows of the window have been taken: what it held is free.
    fn end_firing(&mut self);

    // Memory.

    /// All that it holds, and how much it may grow by what is expected and by a batch of so many
    /// rows.
    fn usage(&mut self, batch_rows: usize) -> Usage;

    /// The next batch begins: what this one may open is counted from here.
    fn begin_batch(&mut self);

    /// Raises the expected load to `load`. True if that was an increase.
    fn expect(&mut self, load: Load) -> bool;

    /// Just so much is expected from now on.
    fn expect_just(&mut self, load: Load);

    /// Gives back what is kept for later windows.
    fn give_back(&mut self);

    /// Gives back that, and what firing does not need.
    fn trim(&mut self);

    // Reports.

    /// The slices that hold rows, and the window that fires.
    fn open(&self) -> (Vec<SliceId>, Option<WindowId>);

    /// Whether it holds nothing any more.
    fn is_empty(&self) -> bool;

    fn counters(&self) -> Counters;

    // Simulation.

    /// Whether chance may choose how rows are kept.
    fn has_choice(&self) -> bool;

    /// Keeps them in another way, as chance has it.
    fn choose(&mut self, choice: u64);
}

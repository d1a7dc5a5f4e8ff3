//! Operators: what a stage does with rows. This file is the contract;
//! [`aggregate`](super::aggregate) is the example to read, and `tally` a small one that only tests
//! use.
//!
//! An operator has two parts. Its [`Program`] is what all workers of a process share: the body of a
//! stage of the plan in executable form. Its [`Operator`] is what one worker keeps, and no other
//! worker looks into it: what others are to have is sealed and handed out, and what they have
//! sealed is merged. An operator knows slices, windows and rows. It does not know who has announced
//! a watermark (`engine::progress`), nor the network (`engine::delivery`, but for `Onward`), nor
//! who takes what it fires (`engine::edges`). All methods are called once for a batch, a segment, a
//! message or a step, and never for a record.
//!
//! **To add one**, make a folder here that implements both traits, and name it where a job
//! compiles its plan.
//!
//! **The life of a slice.** Workers `update` it with rows of any key. From time to time each seals
//! what it has for other leaders; these `merge` it. Rows need not be kept until then: where keys
//! rarely repeat, an operator may pass them through as keys and arguments (`Onward`, `take_in`).
//! When the clock says that a window is `complete`, its leader begins to `fire` it; every `step`
//! then yields some of its rows, until `end_firing` frees what it held.
//!
//! **What an operator may rely on.** A slice that it is to update or merge into has not been
//! fired; before a window fires, all that others had for it has been merged. **What is relied on.**
//! A key's leader follows from its hash alone ([`Leadership`]). In which order deltas are merged,
//! and how rows are spread over workers and epochs, makes no difference to what is fired.
//!
//! **Passing through.** What an operator passes through it either keeps, and hands out when it is
//! sealed, or gives to the `Onward` that comes with the batch. The latter is the one place where an
//! operator, called by delivery, calls back into it: rows are written straight from the batch's
//! columns into a channel's open slot, without a copy in between. An operator that passes nothing
//! through ignores it.
//!
//! Passes on the way (`stateless`, `unnest`, `lookup`) are no operators: they keep nothing of what
//! goes through them, so there is nothing to seal, merge or fire, and a worker applies them to a
//! batch where it pushes it on.

use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::DataType;
use millstream_state::{Arena, Heap, Load, Mode, RowLayout, Segment};

use crate::budget::Usage;
use crate::error::{Contents, Error, Result};
use crate::passed::{Format, Onward, Parcel, PassedRows, ReadRows};
use crate::rows::RowsKind;
use crate::windowing::{SliceId, WindowId, Windowing};

use super::input::{Batch, Keyed, Passing, Updated};

/// What an operator does, in executable form: the same for all workers of a process.
pub trait Program: fmt::Debug + Send + Sync {
    /// As messages call it.
    fn name(&self) -> String;

    /// What its state consists of, for messages.
    fn contents(&self) -> Contents {
        Contents::Keys
    }

    /// How it divides event time.
    fn windowing(&self) -> Windowing;

    /// What rows of state consist of, as they are sealed and merged.
    fn layout(&self) -> &Arc<RowLayout>;

    /// A worker's part, which holds nothing yet.
    fn start(self: Arc<Self>, leadership: Leadership, room: Room) -> Box<dyn Operator>;

    /// About how many bytes a slice takes that has one key, where there are so many leaders.
    fn small_slice_bytes(&self, leaders: usize) -> usize;

    /// Adds what `EXPLAIN` says of the state. `type_name` names types as their user does.
    fn explain(&self, text: &mut String, type_name: &dyn Fn(&DataType) -> String);

    // What follows has a default, which is right for an operator that has nothing of the kind.

    /// How rows are passed through as keys and arguments; `None`: they never are.
    fn format(&self) -> Option<&Arc<Format>> {
        None
    }

    /// The records of a batch that count, as keys and arguments, for the exchanged baseline; and
    /// how many pass its filter, and what is dropped. `None`: none counts. Only asked of an
    /// operator that has a [`format`](Program::format).
    fn keyed(&self, _: &Batch<'_>) -> Result<(Passing, Option<Keyed>)> {
        Err(Error::Internal(format!("records for '{}', which cannot be exchanged", self.name())))
    }

    /// The kind of rows that it fires.
    fn fired_kind(&self) -> RowsKind {
        RowsKind::Final
    }

    /// Which columns of an input, by its number, have texts that the state keeps as they are.
    fn kept_texts(&self, _input: usize) -> &[usize] {
        &[]
    }

    /// Whether the state keeps other texts, which are computed.
    fn computes_texts(&self) -> bool {
        false
    }

    /// Whether it has a row even if there is no input ([`Operator::fire_nothing`]).
    fn has_empty_group(&self) -> bool {
        false
    }

    /// The first row of a batch with which `update` fails, by its number, and the error; `None` if
    /// it fails with no row alone.
    fn first_failing(&self, _: &Batch<'_>) -> Option<(usize, Error)> {
        None
    }
}

/// Which keys a worker leads: those whose hash
/// [`Leaders::even(leaders)`](millstream_state::Leaders) gives to it.
#[derive(Debug, Clone, Copy)]
pub struct Leadership {
    /// Its number among the leaders whose keys it meets, and how many these are.
    pub me: usize,
    /// The number of leaders.
    pub leaders: usize,
    /// Whether it leads the key of no columns.
    pub of_empty_key: bool,
}

/// What an operator may keep in one worker, and how.
#[derive(Debug, Default)]
pub struct Room {
    /// Bytes of idle memory.
    pub pool_bytes: usize,
    /// Where state stands, if the job has other processes.
    pub heap: Option<Arc<Heap>>,
    /// Bytes of a buffer of rows that are passed through.
    pub buffer_bytes: usize,
    /// Whether rows for others are aggregated or passed through; `None`: the operator decides.
    pub mode: Option<Mode>,
}

/// What of a slice is sealed for other leaders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SealSlice {
    /// Everything: its epoch ends.
    EndEpoch,
    /// What has been passed through, and what has been sealed before. Aggregated rows stay, and the
    /// epoch goes on.
    PassedThrough,
    /// Nothing, and nothing of later ones.
    Nothing,
}

/// Rows of state that another worker has sealed.
#[derive(Debug)]
pub enum Delta<'a> {
    /// Of this process.
    Segment(&'a Segment),
    /// Of another process, where they arrived, with what they refer to. Nothing of them has been
    /// checked.
    Words {
        /// Words of rows.
        words: &'a [u64],
        /// Bytes that rows refer to.
        arena: &'a Arena,
    },
}

/// A window that fires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Firing {
    /// The window.
    pub window: WindowId,
    /// Bytes of its keys and values.
    pub live_bytes: u64,
}

/// What came of a step of firing.
#[derive(Debug)]
pub enum Step {
    /// The window's next rows.
    Rows {
        /// Result rows.
        rows: RecordBatch,
        /// The event time of each; `None`: that of the window, if it has one.
        times: Option<Vec<i64>>,
        /// Whether they are the last.
        last: bool,
    },
    /// What has to be done before there are more rows has got on.
    Working,
    /// All rows have been given.
    Over,
}

/// What has been done so far, as far as reports tell of it.
#[derive(Debug, Default, Clone, Copy)]
pub struct Counters {
    /// Times that indexes grew, and that fragments changed their mode.
    pub growths: u64,
    /// Fragments that changed their mode.
    pub switches: u64,
    /// Rows that went into joint tables.
    pub joint_rows: u64,
}

impl Counters {
    /// Adds those of another stage.
    pub fn add(&mut self, other: &Counters) {
        self.growths += other.growths;
        self.switches += other.switches;
        self.joint_rows += other.joint_rows;
    }
}

/// What one worker keeps for a stage.
pub trait Operator: Send {
    // Input.

    /// Takes in those rows of a batch that count, into the slices that they belong to; rows of
    /// other leaders are kept for them, or go `onward` at once.
    fn update(&mut self, batch: &Batch<'_>, onward: Option<&dyn Onward>) -> Result<Updated>;

    // Deltas.

    /// Seals what is kept for other leaders; `how` tells for each slice, in ascending order. One
    /// parcel for each leader of the job, in order. Tables that are empty afterwards are freed at
    /// once if memory is `scarce`.
    fn seal(&mut self, how: &dyn Fn(SliceId) -> SealSlice, scarce: bool) -> Vec<Parcel>;

    /// Whether anything is kept for other leaders.
    fn holds_for_others(&self) -> bool;

    /// Merges rows of state into a slice. Those of another process may be anything: whatever is
    /// wrong with them is an error.
    fn merge(&mut self, slice: SliceId, delta: Delta<'_>) -> Result<()>;

    // Firing, one window at a time.

    /// The first window that fires after `frontier`, if it fires at or before `clock`.
    fn complete(&self, frontier: i64, clock: i64) -> Option<WindowId>;

    /// Begins to fire a complete window; false if there is nothing of it. It is not complete any
    /// more, then.
    fn fire(&mut self, window: WindowId) -> bool;

    /// The window that fires, if one does: from `fire` to `end_firing`.
    fn firing(&self) -> Option<Firing>;

    /// Goes on with it, for a bounded time.
    fn step(&mut self) -> Result<Step>;

    /// All rows of the window have been taken, or nobody wants them any more: what it held is free.
    fn end_firing(&mut self);

    // Memory.

    /// All that it holds; how much it may grow by the `next` input, and by that for which there
    /// should be `room`. Counted after each batch, so it looks into what has changed alone where
    /// many slices may be open. What is kept for a leader and grows large ends the epoch
    /// ([`Usage::largest_fragment_bytes`]).
    fn usage(&mut self, next: Load, room: Load) -> Usage;

    // Reports.

    /// The slices that hold rows. What it holds besides is of the window that fires.
    fn open(&self) -> Vec<SliceId>;

    // What follows has a default, which is right for an operator that has nothing of the kind.

    /// Takes in rows of this leader's keys that were passed through to it as keys and arguments,
    /// where they stand. Their form has been checked, and that their slice may be added to.
    fn take_in(&mut self, _: &ReadRows<'_>) -> Result<()> {
        Err(Error::Internal("rows passed through to an operator that takes none".into()))
    }

    /// Takes in a buffer of such rows from a worker of this process, if it can keep it as it is.
    /// Otherwise it gives it back, and the rows in it are given to [`Operator::take_in`].
    fn adopt(&mut self, rows: PassedRows) -> Option<PassedRows> {
        Some(rows)
    }

    /// Takes the memory of a segment back that its leader, in another process, has merged.
    fn reuse(&mut self, _: Segment) {}

    /// The same for a buffer of rows that have been taken in.
    fn reuse_passed(&mut self, _: PassedRows) {}

    /// The input had no rows. If the query gives a row even then (a count of 0), begins to fire it.
    fn fire_nothing(&mut self) -> bool {
        false
    }

    /// What was opened so far is not expected to be opened again by what comes next. (`update`
    /// begins with this; a delta ends with it.)
    fn begin_batch(&mut self) {}

    /// Memory is scarce: gives back what is kept for later windows, and what firing does not need.
    fn give_back(&mut self) {}

    /// The last window has fired: forgets what later ones would have needed.
    fn end(&mut self) {}

    /// Counters for reports.
    fn counters(&self) -> Counters {
        Counters::default()
    }

    /// In simulation, before it is sealed: keeps rows in another way, if there is more than one. A
    /// `draw` is a number below a bound, or `None` outside of simulation.
    fn choose(&mut self, _draw: &dyn Fn(u64) -> Option<u64>) {}
}

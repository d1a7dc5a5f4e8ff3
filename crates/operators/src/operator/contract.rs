//! Operators: what a stage does with rows. This file is the contract;
//! [`aggregate`](super::aggregate) is the example to read, and `tally` a small one that only tests
//! use.
//!
//! An operator has two parts. Its [`Program`] is shared by all workers of a process: the body of a
//! stage of the plan in executable form. Its [`Operator`] belongs to a single worker, and no other
//! worker looks into it: rows for other workers are sealed and handed out, and rows sealed by other
//! workers are merged. An operator knows slices, windows and rows. It knows neither the sources of
//! watermarks (`engine::progress`), nor the network (`engine::delivery`, but for `Onward`), nor the
//! readers of fired rows (`engine::edges`). All methods are called once for a batch, a segment, a
//! message or a step, and never for a record.
//!
//! **To add one**, make a folder here that implements both traits, and name it where a job
//! compiles its plan.
//!
//! **The life of a slice.** Workers `update` it with rows of any key. From time to time each worker
//! seals its rows for other leaders; these `merge` them. Rows need not be kept until then: where
//! keys rarely repeat, an operator may pass them through as keys and arguments (`Onward`,
//! `take_in`). When the clock says that a window is `complete`, its leader begins to `fire` it;
//! every `step` then yields some of its rows, until `end_firing` frees the window's state.
//!
//! **Guarantees to an operator.** A slice that it is to update or merge into has not been fired;
//! before a window fires, all rows of other workers for it have been merged. **Guarantees of an
//! operator.** A key's leader follows from its hash alone ([`Leadership`]). The order of merging
//! deltas, and the spread of rows over workers and epochs, makes no difference to fired rows.
//!
//! **Checkpoints.** Between windows, after rows for other leaders have been sealed, leaders
//! `set_aside` their rows, of which another thread makes batches ([`saved`](super::saved) has their
//! form). Large tables are not copied: an operator goes on with new ones, and when the rows have
//! been saved it merges both (`thaw`). Until then windows with such rows do not fire. A slice that
//! has not changed since a durable checkpoint is left out, as that has its rows. New operators, of
//! any number of leaders, each `restore` what is theirs of all that was saved, and then are told to
//! `resume`.
//!
//! **Passed rows.** An operator either keeps passed rows, and hands them out when it is sealed, or
//! gives them to the `Onward` that comes with the batch. The latter is the only call of an operator
//! back into delivery, its caller: rows are written straight from the batch's columns into a
//! channel's open slot, without a copy in between. Operators without passed rows ignore `Onward`.
//!
//! Passes on the way (`stateless`, `unnest`, `lookup`) are no operators: they keep no rows, so
//! there is nothing to seal, merge or fire, and a worker applies them to a batch where it pushes
//! the batch on.

use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::DataType;
use millstream_state::{Arena, Heap, Load, Mode, RowLayout, Segment};

use crate::budget::Usage;
use crate::env::Env;
use crate::error::{Contents, Error, Result};
use crate::passed::{Format, Onward, Parcel, PassedRows, ReadRows};
use crate::rows::RowsKind;
use crate::windowing::{SliceId, WindowId, Windowing};

use super::identity::{Identity, TypeName};
use super::input::{Batch, Keyed, Passing, Updated};
use super::saved::{Cut, SavedPart, SetAside};

/// An operator in executable form: the same for all workers of a process.
pub trait Program: fmt::Debug + Send + Sync {
    /// As messages call it.
    fn name(&self) -> String;

    /// Content of its state, for messages.
    fn contents(&self) -> Contents {
        Contents::Keys
    }

    /// How it divides event time.
    fn windowing(&self) -> Windowing;

    /// Layout of rows of state, as they are sealed and merged.
    fn layout(&self) -> &Arc<RowLayout>;

    /// A worker's part, empty at first.
    fn start(self: Arc<Self>, leadership: Leadership, room: Room) -> Box<dyn Operator>;

    /// About how many bytes a slice takes that has one key, where there are so many leaders.
    fn small_slice_bytes(&self, leaders: usize) -> usize;

    /// Adds what `EXPLAIN` says of the state. `type_name` names types as their user does.
    fn explain(&self, text: &mut String, type_name: &dyn Fn(&DataType) -> String);

    /// The parts of its saved state, and their columns. There is one part at least.
    fn saved_parts(&self) -> Vec<SavedPart>;

    /// The meaning of its state: whether saved state fits an edited query.
    fn identity(&self, type_name: TypeName<'_>) -> Identity;

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

    /// How its slices are told as windows to people; `None`: they are not.
    fn shown_windowing(&self) -> Option<Windowing> {
        Some(self.windowing())
    }

    /// The kind of the fired rows.
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

/// Keys that a worker leads: the keys whose hash
/// [`Leaders::even(leaders)`](millstream_state::Leaders) gives to the worker.
#[derive(Debug, Clone, Copy)]
pub struct Leadership {
    /// Its number among the leaders whose keys it meets, and how many these are.
    pub me: usize,
    /// The number of leaders.
    pub leaders: usize,
    /// Whether it leads the key of no columns.
    pub of_empty_key: bool,
}

/// Memory of an operator in one worker.
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
    /// Whether slices stay as they fired until no window needs them: checkpoints save them.
    pub keeps_slices: bool,
    /// The clock that measures the costs of modes; `None`: costs are assumed.
    pub clock: Option<Arc<dyn Env>>,
}

/// Sums of what leaders have merged, and of the time that merging took them.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct MergeTimes {
    /// Merged rows of state.
    pub rows: u64,
    /// Nanoseconds of merging them.
    pub ns: u64,
    /// Passed rows that were taken in.
    pub passed_rows: u64,
    /// Nanoseconds of taking them in.
    pub passed_ns: u64,
}

impl MergeTimes {
    /// The sums since `before`.
    pub fn since(&self, before: &MergeTimes) -> MergeTimes {
        MergeTimes {
            rows: self.rows.wrapping_sub(before.rows),
            ns: self.ns.wrapping_sub(before.ns),
            passed_rows: self.passed_rows.wrapping_sub(before.passed_rows),
            passed_ns: self.passed_ns.wrapping_sub(before.passed_ns),
        }
    }
}

/// A worker's mode for a stage, and its measured costs.
#[derive(Debug, Clone, Copy)]
pub struct ModeReport {
    /// The present mode.
    pub mode: Mode,
    /// Nanoseconds of a record in a joint table, aggregated, and passed through; of a merged row of
    /// state, and of a passed row that is taken in.
    pub ns: [Option<f64>; 5],
    /// Number of changes of the mode.
    pub switches: u64,
    /// Number of records before the last change.
    pub switched_at: u64,
}

/// Rows of a slice to be sealed for other leaders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SealSlice {
    /// Everything: its epoch is the last. The worker's input brings no more rows of the slice.
    Close,
    /// Everything: its epoch ends.
    EndEpoch,
    /// Passed rows, and rows sealed before. Aggregated rows stay, and the epoch goes on.
    PassedThrough,
    /// No rows of this slice or of later slices.
    Nothing,
}

impl SealSlice {
    /// Whether everything is sealed.
    pub(crate) fn ends_epoch(self) -> bool {
        matches!(self, SealSlice::Close | SealSlice::EndEpoch)
    }
}

/// Sealed rows of state from another worker.
#[derive(Debug)]
pub enum Delta<'a> {
    /// Of this process.
    Segment(&'a Segment),
    /// Rows of another process, in place, with their arena. Not checked yet.
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

/// Result of a step of firing.
#[derive(Debug)]
pub enum Step {
    /// The window's next rows.
    Rows {
        /// Result rows.
        rows: RecordBatch,
        /// Each row's event time; `None`: the window's event time, if any.
        times: Option<Vec<i64>>,
        /// True if these rows are the last.
        last: bool,
    },
    /// Progress without rows: more steps are needed before the next rows.
    Working,
    /// All rows have been given.
    Over,
}

/// Counts for reports, since the start.
#[derive(Debug, Default, Clone, Copy)]
pub struct Counters {
    /// Number of times that indexes grew.
    pub growths: u64,
    /// Number of changes of the mode of rows for other leaders.
    pub switches: u64,
    /// Rows that went into joint tables.
    pub joint_rows: u64,
}

impl Counters {
    /// Adds the counts of another stage.
    pub fn add(&mut self, other: &Counters) {
        self.growths += other.growths;
        self.switches += other.switches;
        self.joint_rows += other.joint_rows;
    }
}

/// A worker's state of a stage.
pub trait Operator: Send {
    // Input.

    /// Takes a batch's rows that count into their slices; rows of other leaders are kept for them,
    /// or go `onward` at once.
    fn update(&mut self, batch: &Batch<'_>, onward: Option<&dyn Onward>) -> Result<Updated>;

    // Deltas.

    /// Seals the rows kept for other leaders; `how` decides for each slice, in ascending order.
    /// Returns a parcel for each leader of the job, in order. Tables that are empty afterwards are
    /// freed at once if memory is `scarce`.
    fn seal(&mut self, how: &dyn Fn(SliceId) -> SealSlice, scarce: bool) -> Vec<Parcel>;

    /// True if rows are kept for other leaders.
    fn holds_for_others(&self) -> bool;

    /// Merges rows of state into a slice. Rows of another process may be damaged: any fault is an
    /// error.
    fn merge(&mut self, slice: SliceId, delta: Delta<'_>) -> Result<()>;

    // Firing, one window at a time.

    /// The first window that fires after `frontier`, if it fires at or before `clock`.
    fn complete(&self, frontier: i64, clock: i64) -> Option<WindowId>;

    /// Begins to fire a complete window, which is not complete afterwards; false if the window has
    /// no rows.
    fn fire(&mut self, window: WindowId) -> bool;

    /// The firing window, if any: from `fire` to `end_firing`.
    fn firing(&self) -> Option<Firing>;

    /// Goes on with it, for a bounded time.
    fn step(&mut self) -> Result<Step>;

    /// Ends firing, after the last row or before: the window's state is freed.
    fn end_firing(&mut self);

    // Memory.

    /// All that it holds; how much it may grow by the `next` input, and by that for which there
    /// should be `room`. Counted after each batch, so it looks into what has changed alone where
    /// many slices may be open. What is kept for a leader and grows large ends the epoch
    /// ([`Usage::largest_fragment_bytes`]).
    fn usage(&mut self, next: Load, room: Load) -> Usage;

    // Reports.

    /// The slices that hold rows, except for the firing window's.
    fn open(&self) -> Vec<SliceId>;

    // Checkpoints.

    /// Sets its rows aside for a checkpoint, but for slices that the durable cut has as they are.
    /// It may copy so many bytes; of what is more it gives its own memory away for a while. No
    /// window may be firing, no rows may be kept for other leaders, and no rows may be set aside
    /// still ([`Operator::awaits_thaw`]).
    fn set_aside(&mut self, cut: Cut, copied_bytes_max: usize) -> Result<Box<dyn SetAside>>;

    /// Takes in the rows of its own keys of a whole batch that some leader has saved: those of the
    /// `counting` slices, in ascending order; `None`: of all slices. Every leader is given the same
    /// batches. Errors name the operator and the part: damaged rows, or rows of another operator.
    /// After an error the operator can only be dropped.
    fn restore(&mut self, part: usize, rows: &RecordBatch, counting: Option<&[i64]>) -> Result<()>;

    /// Goes on from a checkpoint, all of which has been restored, after all windows that fire up to
    /// `frontier`. Slices that no later window needs have what later slices build on, such as open
    /// sessions: they fire again, in order, and there are no rows.
    fn resume(&mut self, windowing: &Windowing, frontier: i64) -> Result<()> {
        let is_past = |slice: &SliceId| windowing.next_window(*slice, frontier).is_none();
        for slice in self.open().into_iter().filter(is_past) {
            let window = windowing.last_window_of(slice);
            // Open sessions are of the last slice that fired before the checkpoint.
            let next = windowing.window_after(window, slice);
            if next.is_some_and(|next| windowing.fires_at(next) <= frontier) {
                return Err(too_old(slice));
            }
            if self.fire(window) {
                while let Step::Working | Step::Rows { last: false, .. } = self.step()? {}
                self.end_firing();
            }
        }
        Ok(())
    }

    // What follows has a default, which is right for an operator that has nothing of the kind.

    /// Whether each row that is saved belongs to the leader of its key, so that a leader needs no
    /// batch of other partitions.
    fn saves_by_key(&self) -> bool {
        true
    }

    /// Whether restoring reads a column that was saved.
    fn restores(&self, column: &str) -> bool {
        column.starts_with('$')
    }

    /// Takes back, for a bounded time, what was set aside and has been saved. Whether there was
    /// something to do.
    fn thaw(&mut self) -> bool {
        false
    }

    /// Whether rows are set aside that a window needs, or, without a window, any rows.
    fn awaits_thaw(&self, _: Option<WindowId>) -> bool {
        false
    }

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

    /// Begins a batch: slices opened so far are not expected to be opened again. (`update` begins
    /// with this call; a delta ends with it.)
    fn begin_batch(&mut self) {}

    /// Memory is scarce: gives back what is kept for later windows, and what firing does not need.
    fn give_back(&mut self) {}

    /// Ends the stage after its last window: state for later windows is dropped.
    fn end(&mut self) {}

    /// Leaders report all merging so far, before rows are sealed.
    fn note_merged(&mut self, _: &MergeTimes) {}

    /// The mode of rows for other leaders, where there is a choice.
    fn mode(&self) -> Option<ModeReport> {
        None
    }

    /// Counters for reports.
    fn counters(&self) -> Counters {
        Counters::default()
    }

    /// In simulation, before it is sealed: keeps rows in another way, if there is more than one. A
    /// `draw` is a number below a bound, or `None` outside of simulation.
    fn choose(&mut self, _draw: &dyn Fn(u64) -> Option<u64>) {}
}

fn too_old(slice: SliceId) -> Error {
    Error::Io {
        place: "saved state".into(),
        message: format!("open sessions of slice {slice}, after which others have fired"),
        help: "it is damaged: go on from another checkpoint".into(),
    }
}

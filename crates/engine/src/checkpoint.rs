//! The contract of a job with the store of its cuts.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::plan::Layout;
use crate::sink::Prepared;
use crate::table::{JobMarks, SideFiles};
use crate::totals::Totals;
use millstream_operators::env::Simulated;
use millstream_operators::operator::Operator;
use millstream_operators::operator::saved::SetAside;
use millstream_operators::windowing::Windowing;

/// Takes a process's part of a cut when it is durable, or the error that ends the job.
pub type PartWritten = Box<dyn FnOnce(Result<Vec<u8>>) + Send>;

/// Takes the cuts of a job, and makes them durable. A failure ends the job; a store that fails for
/// a while is the implementation's affair.
pub trait Checkpoints: Send + Sync + Debug {
    /// Gives a new operator the state that an earlier job has saved: that of `stage`, of the keys
    /// that `leader` leads among all. Called once for each worker and stage of a job that resumes.
    fn restore(&self, leader: usize, stage: usize, operator: &mut dyn Operator) -> Result<()>;
    /// All leaders, of all processes, have the state that an earlier job has saved, and go on.
    /// Called once, in the first process. Returns news for the user.
    fn restored(&self) -> Option<String> {
        None
    }
    /// The number of the last cut that is durable, if later ones may refer to its state: they leave
    /// out slices that have not changed since ([`SetAside::unchanged`]). 0: they have everything.
    /// Called in the first process when a cut begins; the cut has the number in all processes.
    fn durable(&self) -> u64 {
        0
    }
    /// Is given the state of `stage`, of the worker that is `leader` among all, at cut number
    /// `cut`, to be saved after [`Checkpoints::complete`] or [`Checkpoints::part`]. Called once for
    /// each worker and stage, while all workers stand. Windows may wait until it is saved or
    /// dropped. Each process of a job has [`Checkpoints`] of its own, over a store that all of them
    /// see.
    fn save(&self, cut: u64, leader: usize, stage: usize, state: Box<dyn SetAside>);
    /// In a process that is not the first, when it has been given all its state of a cut, and its
    /// sinks have prepared rows, by output: saves the state and seals the rows, while the job goes
    /// on. Then it calls `written` with what the first process has to know
    /// ([`Checkpoints::part_written`]): names of durable files. The process does not end before.
    fn part(&self, _cut: u64, _prepared: Vec<Prepared>, written: PartWritten) -> Result<()> {
        written(Ok(Vec::new()));
        Ok(())
    }
    /// In the first process: another `process` has written its part of a cut. The part may come
    /// before the cut is completed, or after it is given up.
    fn part_written(&self, _cut: u64, _process: usize, _part: &[u8]) -> Result<()> {
        Ok(())
    }
    /// All workers have set their state aside at a cut, and all rows before the cut have been
    /// written. Called in the first process, which waits for the parts of the other processes on
    /// another thread. True: the job goes on. False: all workers stand until the job is stopped, or
    /// told to go on ([`Stopper::go_on`](crate::Stopper::go_on)). False for a cut with new splits
    /// ([`CutTaken::joins`]), whose records may not be read before the cut is durable.
    fn complete(&self, cut: CutTaken) -> Result<bool>;
    /// A worker has nothing to do but to wait for state that is to be saved. Nothing need be done
    /// if another thread saves the state.
    fn is_awaited(&self) {}
    /// A cut of so many other processes will not be completed, as an error waits behind the first
    /// rows of a LIMIT, and would be forgotten. Called in the first process. What is saved for the
    /// cut does not count. But rows that other processes have prepared for the cut are part of the
    /// next one, or of the end.
    fn given_up(&self, _cut: u64, _others: usize) {}
    /// The job has ended, and no part comes any more. A cut that has begun
    /// ([`Stopper::cut`](crate::Stopper::cut)) will not be completed. Rows of a part that the first
    /// process does not have belong to the end of the job.
    fn ended(&self, _cut: Option<u64>) {}
    /// The checkpoints so far, for reports.
    fn status(&self) -> Option<CheckpointStatus> {
        None
    }
}

/// Where a job goes on.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Resume {
    /// When the first job was started, microseconds since the epoch; `None`: this is the first.
    pub started_us: Option<i64>,
    /// Where the earlier job stood in its input. Splits are found by the names of tables and
    /// splits, wherever a split stands now in the list of its table. A split without a mark begins
    /// with its first record and with its source's low watermark.
    pub marks: JobMarks,
    /// By stage with state: the windows that fire up to this watermark (microseconds) have fired.
    /// Empty for a job that begins.
    pub frontiers: Vec<i64>,
    /// By stage with state: the packing that goes in place of the plan's own. Empty, or with an
    /// empty layout for a stage: as planned.
    pub layouts: Vec<Layout>,
    /// By output: the remaining rows. Empty for a job that begins.
    pub outputs: Vec<OutputMark>,
    /// The files of side tables, by the names of tables, as the earlier job has read them.
    pub lookups: BTreeMap<String, SideFiles>,
    /// Counts of the job so far.
    pub totals: Totals,
}

impl Resume {
    /// The surroundings of a simulated run. Where an earlier one stood, the clock may have jumped
    /// since then.
    pub(crate) fn simulated(&self, seed: u64, started_us: i64) -> Simulated {
        match self.marks.is_empty() {
            true => Simulated::new(seed, started_us),
            false => Simulated::resumed(seed, started_us),
        }
    }
}

/// A cut that all workers have reached.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CutTaken {
    /// Its number.
    pub number: u64,
    /// Whether splits have joined the job, which are read once the cut is durable.
    pub joins: bool,
    /// When the first job was started, microseconds since the epoch.
    pub started_us: i64,
    /// Where the job stands in its input.
    pub marks: JobMarks,
    /// By stage with state: the windows that fire up to this watermark (microseconds) have fired.
    pub frontiers: Vec<i64>,
    /// By stage with state: how slices are told as windows to people, if they are.
    pub windowings: Vec<Option<Windowing>>,
    /// By stage with state: its packing.
    pub layouts: Vec<Layout>,
    /// By output: the remaining rows.
    pub outputs: Vec<OutputMark>,
    /// By output: the rows since the cut before, of this process.
    pub prepared: Vec<Prepared>,
    /// How many other processes have a part of the cut.
    pub others: usize,
    /// The files of side tables, by the names of tables, as this process has read them.
    pub lookups: BTreeMap<String, SideFiles>,
    /// Counts of the job since its first start.
    pub totals: Totals,
}

/// The error of two splits of a table that have one name.
pub(crate) fn same_name(table: &str, split: &str) -> Error {
    Error::Data {
        place: format!("table '{table}'"),
        message: format!("two splits have the name '{split}'"),
        help: "give each split a name of its own".into(),
    }
}

/// Adds the marks of another process. A source's low watermark is the least of all, as splits may
/// move between processes.
///
/// # Errors
/// A table has two splits of one name.
pub fn add_marks(marks: &mut JobMarks, others: JobMarks) -> Result<()> {
    for (table, of) in others {
        let Some(own) = marks.get_mut(&table) else {
            return Err(Error::Internal(format!("marks of table '{table}', which is not there")));
        };
        own.low_us = own.low_us.min(of.low_us);
        for (name, mark) in of.splits {
            if own.splits.insert(name.clone(), mark).is_some() {
                return Err(same_name(&table, &name));
            }
        }
    }
    Ok(())
}

/// Adds the prepared rows of other processes: by process and output.
pub fn add_prepared(all: &mut [Prepared], others: Vec<Vec<Prepared>>) {
    for of_process in others {
        for (all, of_output) in all.iter_mut().zip(of_process) {
            all.sealed.extend(of_output.sealed);
        }
    }
}

/// Place of another process than the first at a cut, when the workers of the process stand.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct CutPart {
    /// Of splits that only this process reads.
    pub(crate) marks: JobMarks,
    pub(crate) frontiers: Vec<i64>,
    pub(crate) totals: Totals,
    /// Whether new splits are among the marks.
    pub(crate) joins: bool,
}

/// The remaining rows of an output at a cut.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OutputMark {
    /// OFFSET: so many rows are still to be passed over.
    pub offset: u64,
    /// LIMIT: so many rows may still come; `None`: any number.
    pub limit: Option<u64>,
    /// Rows from before the cut that wait for their turn, with the columns of [`waiting_schema`].
    /// Batches may be joined and divided, if their rows stay in order.
    pub waiting: Vec<RecordBatch>,
}

/// The columns of an output's rows while they wait for their turn: those of the output's stage
/// ([`Stage::output`](crate::plan::Stage::output)), then columns that say where a row belongs.
///
/// | column | type | content |
/// |---|---|---|
/// | `$source` | `Utf8` | of a row of a record: the table, as in [`JobMarks`] |
/// | `$split` | `Int64` | of a row of a record: the split's number among those of the table |
/// | `$chunk` | `Int64` | of a row of a record: the number of its chunk |
/// | `$input` | `Int64` | of a row of a window: the number of the output's input |
/// | `$window` | `Int64` | of a row of a window: the name of the window, or of its pack |
/// | `$time` | `Int64` | of a row of a pack: tells the windows of the pack apart |
///
/// Where a column does not apply it is NULL. Of rows that all wait for the end, none applies.
pub fn waiting_schema(output: &Schema) -> SchemaRef {
    let place = |name: &str| Arc::new(Field::new(name, DataType::Int64, true));
    let source = Arc::new(Field::new("$source", DataType::Utf8, true));
    let places = ["$split", "$chunk", "$input", "$window", "$time"].map(place);
    let fields = output.fields().iter().cloned().chain([source]).chain(places);
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// The checkpoints of a job, since its program has started.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointStatus {
    /// How many were written.
    pub written: u64,
    /// How many could not be written.
    pub failed: u64,
    /// The number of the last one, and when it was written, microseconds since 1970.
    pub last: Option<(u64, i64)>,
    /// Bytes of its state.
    pub bytes: u64,
    /// Its time from the request until it was durable.
    pub duration_us: u64,
    /// For how long the checkpoint has been in the making that is being made now.
    pub taking_us: Option<u64>,
    /// Its present step.
    #[serde(default)]
    pub awaits: Option<Awaited>,
    /// Why the last one could not be written, if it could not.
    pub error: Option<String>,
}

/// A step for which a checkpoint waits while it is made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Awaited {
    /// Workers of these processes end what they have begun; without processes, rows are on their
    /// way to outputs.
    Stop(Vec<usize>),
    /// These processes write their state.
    Write(Vec<usize>),
    /// The last file is written, and rows become visible.
    Publish,
}

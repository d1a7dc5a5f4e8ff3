//! The manifest of a checkpoint: all that a job needs to go on, but for its state, which is in
//! files that the manifest names.
//!
//! Times are in microseconds since 1970; `i64::MIN` is before all times, `i64::MAX` after. A name
//! of the same kind stands once in its list.

mod format;

use std::collections::BTreeMap;

use millstream_contract::plan::OpenWindows;
use millstream_contract::sink::Prepared;
use millstream_contract::table::{JobMarks, SideFiles};
use serde::{Deserialize, Serialize};

use crate::names;

pub use format::FORMAT;

/// A checkpoint's manifest.
///
/// A field that the program does not know is refused ([`Error::Foreign`](crate::Error::Foreign)):
/// each field has a meaning for the rows that follow, so none may be passed over. A field that is
/// added has a default, so that manifests without it can still be read. A change of an old field's
/// meaning is another [`FORMAT`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Version of the format, [`FORMAT`].
    pub format: u32,
    /// Version of the program that wrote it, for messages.
    pub program: String,
    /// Number of the checkpoint, above those of all before it.
    pub checkpoint: u64,
    /// A random text of the run that wrote it: tells coordinators apart.
    pub attempt: String,
    /// Text by which the job is known, for example its script.
    pub job: String,
    /// When the cut was made.
    pub time_us: i64,
    /// Number of the job's first checkpoint. Earlier checkpoints belong to an abandoned job.
    #[serde(default)]
    pub first: u64,
    /// When the job was started for the first time: `NOW()`, and generators, count from here.
    pub started_us: i64,
    /// Whether the job has ended, so that there is nothing to go on with.
    #[serde(default)]
    pub ended: bool,
    /// Where the job stands in the tables that it reads.
    pub sources: JobMarks,
    /// Stages that keep state, in the order of the plan.
    pub stages: Vec<Stage>,
    /// Outputs, in the order of the plan.
    pub outputs: Vec<Output>,
    /// The files of side tables of lookups, by the names of tables, as the job has read them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub lookups: BTreeMap<String, SideFiles>,
    /// Counters of the job up to the cut, as the engine writes them.
    #[serde(default)]
    pub counters: serde_json::Value,
}

/// A stage with state at the cut.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stage {
    /// Its names in the plan. A stage of an edited query is the same if one of them is.
    pub names: Vec<String>,
    /// The identity of the state, in the engine's form. Equal identities mean that state fits.
    pub identity: serde_json::Value,
    /// Names of the tables whose records it takes, as in [`Manifest::sources`].
    #[serde(default)]
    pub tables: Vec<String>,
    /// Numbers that a later run takes over, although its own plan may have others: how many windows
    /// share a slice, for example.
    #[serde(default)]
    pub layout: BTreeMap<String, i64>,
    /// The watermark up to which the stage has fired, at all leaders.
    pub frontier_us: i64,
    /// The open windows, for people. `None`: no window is open, or the program did not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub windows: Option<OpenWindows>,
    /// Files with its state.
    pub files: Vec<StateFile>,
}

/// An output at the cut.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Output {
    /// Name of the sink.
    pub name: String,
    /// The columns of the rows, their order, and how many there may be, in words.
    #[serde(default)]
    pub identity: Vec<String>,
    /// Rows that are sealed and to be made visible now that the manifest is durable.
    #[serde(default)]
    pub prepared: Vec<Prepared>,
    /// Rows that may still come; `None`: any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// Rows that are passed over first.
    #[serde(default)]
    pub offset: u64,
    /// Rows of earlier windows and batches that wait for their turn.
    #[serde(default)]
    pub waiting: Vec<StateFile>,
}

/// A file with state, which several manifests may name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StateFile {
    /// Its name beside the manifest, `state/…`. It begins with the number of the checkpoint for
    /// which it was written.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// XXH3 (64 bits) of its bytes, as 16 hexadecimal digits.
    pub xxh3: String,
    /// The number of their part within the state of the stage, if it has several.
    #[serde(default)]
    pub part: usize,
    /// Number of rows that count.
    pub rows: u64,
    /// Partitions of the keys: the first, and the number behind the last.
    pub partitions: (u32, u32),
    /// The slices whose rows count, in ascending order; `None`: all rows do. Rows of other slices
    /// are in a later file, or nobody needs them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slices: Option<Vec<i64>>,
}

impl Manifest {
    /// All files that it names, of stages and of outputs.
    pub fn files(&self) -> impl Iterator<Item = &StateFile> {
        let of_stages = self.stages.iter().flat_map(|stage| &stage.files);
        of_stages.chain(self.outputs.iter().flat_map(|output| &output.waiting))
    }

    /// Bytes of all named files.
    pub fn bytes(&self) -> u64 {
        sum(self.files())
    }

    /// Bytes of the files that were written for this checkpoint, and not for an earlier one.
    pub fn new_bytes(&self) -> u64 {
        let is_new = |file: &&StateFile| file.checkpoint() == Some(self.checkpoint);
        sum(self.files().filter(is_new))
    }
}

/// A damaged manifest may have any lengths.
fn sum<'a>(files: impl Iterator<Item = &'a StateFile>) -> u64 {
    files.fold(0, |sum, file| sum.saturating_add(file.bytes))
}

impl StateFile {
    /// The checkpoint for which the file was written.
    pub fn checkpoint(&self) -> Option<u64> {
        names::state_of(&self.name)
    }
}

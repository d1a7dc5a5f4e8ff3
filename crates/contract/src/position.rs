//! Positions of splits, from which reading can go on.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Debug};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// A place between two records of a split, from which reading can go on: in another process, after
/// a restart. What the numbers mean is the split's affair, for example an offset in bytes and the
/// number of its line. Without numbers it is the beginning.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position(pub Vec<u64>);

/// Positions of a table's splits, by name.
pub type Positions = BTreeMap<String, Position>;

/// A place between two chunks of a split, and what a job knows of the split there: with it a
/// restarted job numbers and stamps the chunks that follow as the first job would have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SplitMark {
    /// Where reading goes on.
    pub position: Position,
    /// Chunks before it.
    pub chunks: u64,
    /// Records before it.
    pub records: u64,
    /// The split's watermark, microseconds.
    pub watermark_us: i64,
    /// The greatest time of the clock that was seen, microseconds: the clock does not go back.
    pub clock_us: i64,
    /// The split's number in the order of records of its source, which decides among records of one
    /// event time. It belongs to the name, wherever the split stands in a list of files.
    pub number: u32,
    /// The split has no more chunks.
    pub ended: bool,
}

/// The marks of a source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceMarks {
    /// The source's low watermark, microseconds. A split that comes later begins with it, or its
    /// records would meet windows that have fired.
    pub low_us: i64,
    /// By the names of splits.
    pub splits: BTreeMap<String, SplitMark>,
}

/// The marks of all sources of a job, by the names of tables. Of several tables of one name the
/// later have numbers, in the order of the plan: `t`, `t.2`.
pub type JobMarks = BTreeMap<String, SourceMarks>;

/// A file of a side table, as a job has read the file. A file with another length or another time
/// counts as changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SideFile {
    /// Its length in bytes.
    pub bytes: u64,
    /// When it was last written: seconds since the epoch, and nanoseconds.
    pub modified: (i64, i64),
}

/// The files of a side table, by the names of splits.
pub type SideFiles = BTreeMap<String, SideFile>;

impl SourceMarks {
    /// The positions of the splits.
    pub fn positions(&self) -> Positions {
        let position = |(name, mark): (&String, &SplitMark)| (name.clone(), mark.position.clone());
        self.splits.iter().map(position).collect()
    }

    /// The splits without more records.
    pub fn ended(&self) -> BTreeSet<String> {
        let ended = self.splits.iter().filter(|(_, mark)| mark.ended);
        ended.map(|(name, _)| name.clone()).collect()
    }
}

/// Function from a split's own name to the name under which others know the split.
#[derive(Clone, Default)]
pub struct ShownName(Option<Arc<dyn Fn(String) -> String + Send + Sync>>);

impl ShownName {
    /// Names that a function changes.
    pub fn by(change: impl Fn(String) -> String + Send + Sync + 'static) -> ShownName {
        ShownName(Some(Arc::new(change)))
    }

    /// The shown name of a split.
    pub fn of(&self, name: &str) -> String {
        self.0.as_ref().map_or_else(|| name.to_string(), |change| change(name.to_string()))
    }
}

impl Debug for ShownName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "ShownName(changed)" } else { "ShownName(same)" })
    }
}

impl Position {
    /// Before the first record.
    pub fn is_beginning(&self) -> bool {
        self.0.is_empty()
    }
}

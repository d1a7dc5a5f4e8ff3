//! Positions of splits, from which reading can go on.

use std::collections::BTreeMap;
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

/// Positions of the splits of a job, by the names of tables. Of several tables of one name the
/// later have numbers, in the order of the plan: `t`, `t.2`.
pub type JobPositions = BTreeMap<String, Positions>;

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

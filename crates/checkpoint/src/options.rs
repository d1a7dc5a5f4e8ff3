//! The user's options for the checkpoints of a job.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Where a job begins.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Start {
    /// At the latest checkpoint, or anew if there is none.
    #[default]
    Latest,
    /// Anew. Earlier checkpoints stay, and are never deleted by this job.
    Fresh,
    /// At the checkpoint of this number.
    At(u64),
}

/// The user's options for the checkpoints of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The directory of the checkpoints; it is made if need be.
    pub path: PathBuf,
    /// Time between two cuts.
    pub every: Duration,
    /// How many checkpoints stay.
    pub keep: usize,
    /// The job ends if no checkpoint can be written for so long.
    pub tolerance: Duration,
    /// Where the job begins.
    pub start: Start,
    /// Names of stages that may start empty although the checkpoint has other state under their
    /// names.
    pub allow_new: Vec<String>,
}

//! Obstacles: why a worker, a source or a stage does not go on.

use serde::{Deserialize, Serialize};

/// A reason to wait. Of several the greatest is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Obstacle {
    /// No output wants the rows.
    Unwanted,
    /// The worker takes no input, or no more.
    NoInput,
    /// No slot of a channel is free for rows that are passed through.
    Slot,
    /// Leaders have to merge earlier rows first.
    Credit,
    /// A checkpoint has still to save rows that a window needs.
    Checkpoint,
    /// An output has no room: earlier rows have to be written first.
    Output,
    /// Memory is scarce.
    Memory,
}

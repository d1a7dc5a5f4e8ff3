//! The engine: jobs of fused pipelines over late-merged state (the paper's stateful executor).
//!
//! A [`plan::Plan`] says what a job runs. A table's splits yield batches, which are stamped in
//! split order and which *any* worker may take ([`table`]). A worker runs them through the first
//! pipeline into its own partial state. At the end of an epoch it sends sealed deltas to the keys'
//! leaders. A leader merges them. When its vector clock says that a window is complete, it fires
//! the window through the second pipeline into a [`sink`].
//!
//! Promises: no record is exchanged between workers, except where keys rarely repeat and records
//! are passed through, and except in the baseline ([`exchange`]). P1: no window fires before every
//! record that belongs to it has been merged. P2: a window's rows are the same, to the last bit,
//! whatever the number of workers, the epochs and the order in which batches are taken. An error
//! names its place and stops all workers. The engine knows no SQL text, opens no files, and keeps
//! nothing on disk.

// `tests/support` is compiled into unit tests, too, and names this crate as from outside.
#[cfg(test)]
extern crate self as millstream_engine;

mod checkpoint;
#[cfg(test)]
mod damaged;
mod delivery;
mod edges;
pub mod exchange;
mod explain;
mod gather;
mod intake;
mod job;
pub mod network;
pub mod observe;
mod obstacle;
mod order;
mod progress;
mod registry;
mod roles;
mod run;
mod shared;
pub mod simulation;
mod stage;
mod standing;
pub mod stats;
#[cfg(test)]
#[path = "../tests/support/mod.rs"]
mod support;
mod totals;
mod worker;

use millstream_contract::{error, expr, plan, pruning, rows, settings, sink, table};

pub use checkpoint::{
    Checkpoints, CutTaken, OutputMark, PartWritten, Resume, add_marks, add_prepared, waiting_schema,
};
pub use explain::state_layout;
pub use intake::table_names;
pub use job::{Fit, Job, StageIdentity, Stopper, fits, gone, identities};
pub use millstream_operators::skipped::Skipped;
pub use millstream_state::on_refused_memory;
pub use run::{Remains, STACK_BYTES};
pub use standing::{STUCK_AFTER, Standing};
pub use stats::{Leftover, ModeStats, SourceStats, StageStats, Stats};
pub use totals::Totals;

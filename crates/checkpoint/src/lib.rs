//! Checkpoints of a job in a store: a job that died goes on from the last of them.
//!
//! [`open`] finds the checkpoint from which a job goes on, makes visible what that checkpoint has
//! prepared, and gives a [`Saver`]. The saver is the engine's [`millstream_engine::Checkpoints`]:
//! it copies the state of each worker at a cut, writes it while the job goes on, publishes the
//! manifest, and then makes the rows of the interval visible. A [`Timer`] asks for cuts.
//!
//! **Promise.** Rows of an output that can be committed are visible exactly once after any crash.
//! Rows become visible after their manifest is durable. A job that goes on from a manifest commits
//! the manifest's rows once more, and a second commit changes nothing.
//!
//! **A store that fails** for a while does not end the job. Rows of an interval without a manifest
//! wait for the next one. After [`Options::tolerance`] the job ends.

mod failing;
mod file;
mod held;
mod look;
mod opening;
mod options;
mod saver;
mod timer;
mod writer;

pub use look::{CheckpointDirectory, Verdict};
pub use millstream_store::Manifest;
pub use opening::{JobToSave, Opened, Opening, open, open_in, started_us};
pub use options::{Options, Start};
pub use saver::Saver;
pub use timer::Timer;

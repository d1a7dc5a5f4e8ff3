//! Checkpoints of a job in a store: a job that died goes on from the last of them.
//!
//! [`open`] finds the checkpoint from which a job goes on, makes visible what that checkpoint has
//! prepared, and gives a [`Saver`]. The saver is the engine's [`millstream_engine::Checkpoints`]:
//! it takes what each worker sets aside at a cut, writes it while the job goes on, publishes the
//! manifest, and then makes the rows of the interval visible. A [`Timer`] asks for cuts.
//!
//! **Promise.** Rows of an output that can be committed are visible exactly once after any crash.
//! Rows become visible after their manifest is durable. A job that goes on from a manifest commits
//! the manifest's rows once more, and a second commit changes nothing.
//!
//! **Unchanged slices** are not written again. A manifest names files of earlier checkpoints, and
//! the slices in them that count.
//!
//! **Several processes.** Each has a saver of its own over the same directory. The first process
//! alone opens the store, and tells the others the [`Place`] at which they [`join`]. The others
//! write files of state, too, and the manifest of the first names all files.
//!
//! **A store that fails** for a while does not end the job. Rows of an interval without a manifest
//! wait for the next one. After [`Options::tolerance`] the job ends.

mod failing;
mod file;
mod job;
mod look;
mod opening;
mod options;
mod outputs;
mod saver;
mod timer;
mod writer;
mod written;

pub use job::JobToSave;
pub use look::{CheckpointDirectory, Verdict};
pub use millstream_store::Manifest;
pub use opening::{Opened, Opening, Place, join, open, open_in, started_us};
pub use options::{Options, Start};
pub use saver::{Others, Saver};
pub use timer::Timer;

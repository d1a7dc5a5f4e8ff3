//! The store of checkpoints: objects that outlast a crash, and manifests.
//!
//! A [`Store`] keeps named objects; [`LocalStore`] keeps them in a directory. [`Checkpoints`] are
//! manifests in a store, and files with state that the manifests name. A [`Manifest`] says all that
//! a job needs to go on: positions of splits, watermarks, state files of stages, prepared output.
//!
//! Promises: a call that returned `Ok` is undone by no crash; nobody sees a part of an object; a
//! damaged manifest is refused; of two coordinators one publishes a checkpoint, and the other gets
//! an error; a file is deleted when no manifest names it. Not covered: contents of state files, the
//! moments of checkpoints, threads. Every call waits for the disk.
//!
//! A [`journal`] keeps the bytes of an input that cannot be read again.
//!
//! ```
//! use std::sync::Arc;
//! use millstream_store::disk::{CrashDisk, Survival};
//! use millstream_store::{Checkpoints, FORMAT, LocalStore, Manifest};
//!
//! # fn main() -> millstream_store::Result<()> {
//! let disk = CrashDisk::default(); // In place of a directory: LocalStore::new("state").
//! let store = Arc::new(LocalStore::on(Arc::new(disk.clone()), "/state"));
//! let checkpoints = Checkpoints::new(store, "1")?;
//! let manifest = Manifest {
//!     format: FORMAT,
//!     program: env!("CARGO_PKG_VERSION").into(),
//!     checkpoint: checkpoints.next()?,
//!     attempt: "5f3a".into(),
//!     job: "INSERT INTO counts SELECT …".into(),
//!     time_us: 1_700_000_010_000_000,
//!     first: 1,
//!     started_us: 1_700_000_000_000_000,
//!     ended: false,
//!     sources: Default::default(),
//!     stages: vec![],
//!     outputs: vec![],
//!     lookups: Default::default(),
//!     counters: Default::default(),
//! };
//! checkpoints.publish(&manifest)?;
//!
//! disk.restart(Survival::Synced); // The power fails: what was not synced is gone.
//! assert_eq!(checkpoints.latest()?, Some(manifest));
//! # Ok(())
//! # }
//! ```

mod checkpoints;
mod contract;
pub mod disk;
mod error;
pub mod journal;
mod local;
mod manifest;
mod names;
mod s3;

pub use checkpoints::{Checkpoints, Defect, Listed, Removed, StateWriter, Verified};
pub use contract::{Object, ObjectWriter, Put, Store};
pub use error::{Error, Result};
pub use local::LocalStore;
pub use manifest::{FORMAT, Manifest, Output, Stage, StateFile};
pub use s3::S3Store;

//! Files of the last checkpoints of this run, and the slices in them: a later checkpoint refers to
//! slices that have not changed.
//!
//! The store keeps the files that the last durable manifest names. So a cut refers to the files of
//! that manifest alone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use millstream_contract::{Error, Result};
use millstream_operators::operator::saved::Unchanged;
use millstream_store::StateFile;
use serde::{Deserialize, Serialize};

/// A file with the state of a stage in a worker, as a checkpoint names it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct WrittenFile {
    pub(crate) stage: usize,
    pub(crate) leader: usize,
    pub(crate) file: StateFile,
    /// The slices that count, and how many rows each has.
    pub(crate) rows: BTreeMap<i64, u64>,
}

/// The files of each cut that a later one may refer to.
#[derive(Debug, Default)]
pub(crate) struct Written {
    /// The last cut with a durable manifest, if files of it may be referred to; or 0.
    durable: AtomicU64,
    cuts: Mutex<BTreeMap<u64, Vec<WrittenFile>>>,
}

impl Written {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Vec<WrittenFile>>> {
        self.cuts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The manifest of a cut is durable. 0: the files of none may be referred to.
    pub(crate) fn set_durable(&self, cut: u64) {
        self.durable.store(cut, Relaxed);
    }

    pub(crate) fn durable(&self) -> u64 {
        self.durable.load(Relaxed)
    }

    /// The files of a stage and worker that have its unchanged slices.
    ///
    /// # Errors
    /// A slice is in no file.
    pub(crate) fn unchanged(
        &self,
        (stage, leader): (usize, usize),
        unchanged: &Unchanged,
    ) -> Result<Vec<WrittenFile>> {
        let slices = unchanged.slices.iter().map(|(part, slice)| (*part, slice.word() as i64));
        let mut wanted: BTreeSet<(usize, i64)> = slices.collect();
        let (cuts, mut files) = (self.lock(), Vec::new());
        let known = cuts.get(&unchanged.durable).into_iter().flatten();
        for of in known.filter(|of| (of.stage, of.leader) == (stage, leader)) {
            let mut of = of.clone();
            of.rows.retain(|slice, _| wanted.remove(&(of.file.part, *slice)));
            if !of.rows.is_empty() {
                of.file.slices = Some(of.rows.keys().copied().collect());
                of.file.rows = of.rows.values().sum();
                files.push(of);
            }
        }
        match wanted.first() {
            None => Ok(files),
            Some((part, slice)) => Err(Error::Internal(format!(
                "checkpoint {} has no slice {slice} of part {part} of stage {stage}",
                unchanged.durable
            ))),
        }
    }

    /// The files of a cut have been written. Cuts before the durable one are forgotten.
    pub(crate) fn note(&self, cut: u64, files: Vec<WrittenFile>, durable: u64) {
        let mut cuts = self.lock();
        cuts.retain(|known, _| *known >= durable);
        cuts.insert(cut, files);
    }
}

//! Deleting checkpoints, and files that no manifest needs.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use super::Checkpoints;
use crate::error::{Error, Result};
use crate::names;

/// Deleted checkpoints and files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Removed {
    /// Numbers of checkpoints.
    pub checkpoints: Vec<u64>,
    /// Names of files with state, beside the manifests.
    pub files: Vec<String>,
    /// Bytes of these files.
    pub bytes: u64,
}

/// Files named by the remaining manifests.
#[derive(Default)]
struct Needed {
    files: BTreeSet<String>,
    /// The highest number of a remaining manifest that cannot be read. The manifest may name any
    /// file of a number up to its own.
    unread: Option<u64>,
}

impl Needed {
    fn needs(&self, file: &str, written_for: u64) -> bool {
        self.files.contains(file) || self.unread.is_some_and(|unread| written_for <= unread)
    }
}

impl Checkpoints {
    /// Deletes checkpoints of a job but for the latest `keep` (at least one) that can be read, and
    /// then the files that no manifest needs. Later checkpoints, and files for them, stay: another
    /// coordinator may be writing these files. So do earlier checkpoints: those of a job that was
    /// given up for this one ([`Manifest::first`](crate::Manifest::first)).
    ///
    /// The last of `checkpoints` is a checkpoint that this coordinator has published or adopted
    /// last, so that it is durable before anything else goes.
    pub fn trim(&self, checkpoints: RangeInclusive<u64>, keep: usize) -> Result<Removed> {
        let published = *checkpoints.end();
        let (mut kept, mut goes) = (0, Vec::new());
        let mut needed = Needed::default();
        for listed in self.list()?.into_iter().rev() {
            let is_own = checkpoints.contains(&listed.checkpoint);
            if is_own && kept >= keep.max(1) {
                goes.push(listed.checkpoint);
            } else if self.keep(listed.checkpoint, &mut needed)? && is_own {
                kept += 1;
            }
        }
        let mut removed = Removed::default();
        // The oldest first: those that are left after an error are the latest.
        for checkpoint in goes.into_iter().rev() {
            self.store.delete(&self.manifest_name(checkpoint))?;
            removed.checkpoints.push(checkpoint);
        }
        let unneeded = |file: &str| {
            names::state_of(file)
                .is_some_and(|number| number <= published && !needed.needs(file, number))
        };
        self.remove_files(&mut removed, unneeded)?;
        Ok(removed)
    }

    /// Removes what runs that were killed have left unfinished. Runs that live are not disturbed.
    /// Returns how many pieces they were.
    pub fn sweep(&self) -> Result<u64> {
        self.store.sweep()
    }

    /// Deletes a checkpoint, damaged or not, and the files that it names and no other manifest
    /// needs. Files of a manifest that cannot be read stay, until the next [`Checkpoints::trim`].
    ///
    /// No job may run meanwhile that was started from the checkpoint and has published no other:
    /// a second job could publish the same number.
    pub fn delete(&self, checkpoint: u64) -> Result<Removed> {
        let own = match self.read(checkpoint) {
            Ok(manifest) => manifest.files().map(|file| file.name.clone()).collect(),
            Err(Error::Damaged { .. } | Error::Foreign { .. }) => BTreeSet::new(),
            Err(error) => return Err(error),
        };
        let mut needed = Needed::default();
        for listed in self.list()? {
            if listed.checkpoint != checkpoint {
                self.keep(listed.checkpoint, &mut needed)?;
            }
        }
        self.store.delete(&self.manifest_name(checkpoint))?;
        let mut removed = Removed { checkpoints: vec![checkpoint], ..Removed::default() };
        let unneeded = |file: &str| {
            own.contains(file)
                && names::state_of(file).is_some_and(|number| !needed.needs(file, number))
        };
        self.remove_files(&mut removed, unneeded)?;
        Ok(removed)
    }

    /// Notes the files of a manifest that stays. Whether it can be read.
    fn keep(&self, checkpoint: u64, needed: &mut Needed) -> Result<bool> {
        match self.read(checkpoint) {
            Ok(manifest) => {
                needed.files.extend(manifest.files().map(|file| file.name.clone()));
                Ok(true)
            }
            Err(error) if error.may_pass() => Err(error),
            // Also if it is gone: others trim, and have newer manifests than these.
            Err(_) => {
                needed.unread = needed.unread.max(Some(checkpoint));
                Ok(false)
            }
        }
    }

    fn remove_files(&self, removed: &mut Removed, goes: impl Fn(&str) -> bool) -> Result<()> {
        for (file, bytes) in self.file_lengths()? {
            if goes(&file) {
                self.store.delete(&format!("{}{file}", self.prefix))?;
                removed.bytes += bytes;
                removed.files.push(file);
            }
        }
        Ok(())
    }
}

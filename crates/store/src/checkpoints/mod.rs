//! Checkpoints of a job in a store: manifests, and files with state.

mod files;
mod trim;

use std::collections::HashSet;
use std::sync::Arc;

use crate::contract::{Object, Put, Store};
use crate::error::{Error, Result};
use crate::manifest::{FORMAT, Manifest};
use crate::names;

pub use files::{Defect, StateWriter, Verified};
pub use trim::Removed;

/// The checkpoints of one job.
///
/// A checkpoint is there once its manifest is durable, and not before ([`Checkpoints::publish`]).
/// A manifest names new files, files of the manifest that was published or adopted before, and
/// files of failed checkpoints between the two.
#[derive(Debug, Clone)]
pub struct Checkpoints {
    store: Arc<dyn Store>,
    /// Empty, or with a slash at its end.
    prefix: String,
}

/// A manifest in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Number of the checkpoint.
    pub checkpoint: u64,
    /// Length of the manifest.
    pub bytes: u64,
}

impl Checkpoints {
    /// Checkpoints whose objects have names that begin with `prefix` and a slash; an empty prefix
    /// stands for the whole store.
    pub fn new(store: Arc<dyn Store>, prefix: &str) -> Result<Checkpoints> {
        if prefix.is_empty() {
            return Ok(Checkpoints { store, prefix: String::new() });
        }
        names::check(prefix)?;
        Ok(Checkpoints { store, prefix: format!("{prefix}/") })
    }

    /// All checkpoints, the oldest first, whole or not.
    pub fn list(&self) -> Result<Vec<Listed>> {
        let objects = self.store.list(&format!("{}{}", self.prefix, names::MANIFEST))?;
        let mut listed: Vec<Listed> = (objects.into_iter())
            .filter_map(|Object { name, bytes }| {
                let checkpoint = names::manifest_of(name.strip_prefix(&self.prefix)?)?;
                Some(Listed { checkpoint, bytes })
            })
            .collect();
        listed.sort_by_key(|listed| listed.checkpoint);
        Ok(listed)
    }

    /// Number for the next checkpoint: above those of all that are there, whole or not.
    pub fn next(&self) -> Result<u64> {
        Ok(self.list()?.last().map_or(1, |listed| listed.checkpoint + 1))
    }

    /// The manifest of the latest checkpoint; `None` if there is none. To look at, not to go on
    /// from: see [`Checkpoints::adopt`].
    ///
    /// # Errors
    ///
    /// If the latest checkpoint is damaged, with the number of the latest one before it that is
    /// whole. It is for the user to decide whether to go back so far.
    pub fn latest(&self) -> Result<Option<Manifest>> {
        loop {
            let Some(listed) = self.list()?.pop() else { return Ok(None) };
            match self.load(listed.checkpoint) {
                // Deleted meanwhile.
                Err(Error::Missing { .. }) => {}
                loaded => return loaded.map(Some),
            }
        }
    }

    /// The manifest of a checkpoint. Whether its files are there is the affair of
    /// [`Checkpoints::verify`].
    ///
    /// # Errors
    ///
    /// As [`Checkpoints::latest`].
    pub fn load(&self, checkpoint: u64) -> Result<Manifest> {
        self.read(checkpoint).map_err(|error| self.offer(error, checkpoint))
    }

    /// The manifest of a checkpoint from which a job is to go on. The manifest is made durable
    /// first: the program that published the checkpoint may have been killed too early for that.
    /// Prepared rows may be committed only then.
    pub fn adopt(&self, checkpoint: u64) -> Result<Manifest> {
        let manifest = self.load(checkpoint)?;
        self.store.settle(&self.manifest_name(checkpoint))?;
        Ok(manifest)
    }

    /// Makes a checkpoint durable. All its files must be. The checkpoint counts from this moment:
    /// prepared rows may be committed, and older checkpoints trimmed, only then.
    ///
    /// # Errors
    ///
    /// [`Error::Rival`]: another coordinator has published this checkpoint or a later one. The job
    /// must end and commit nothing. Where [`Error::may_pass`], the checkpoint may be there or not.
    /// Then the same manifest may be published again, or another one with a higher number, which
    /// has the prepared rows of both.
    pub fn publish(&self, manifest: &Manifest) -> Result<()> {
        self.publish_behind(manifest, manifest.checkpoint.saturating_sub(1))
    }

    /// As [`Checkpoints::publish`]. `last`: number of the checkpoint that the job has adopted or
    /// published last. A checkpoint of another coordinator between the two is a rival's, too.
    pub fn publish_behind(&self, manifest: &Manifest, last: u64) -> Result<()> {
        let name = self.manifest_name(manifest.checkpoint);
        let object = self.store.place(&name);
        check(manifest).map_err(|message| Error::Internal { object: object.clone(), message })?;
        let bytes = manifest.to_bytes();
        if self.store.put_if_absent(&name, &bytes)? == Put::Exists {
            match self.store.get(&name, None) {
                // Published by an earlier call that failed later, so perhaps not durable.
                Ok(found) if found == bytes => self.store.put(&name, &bytes)?,
                Ok(found) => return Err(rival(object, &found)),
                Err(Error::Missing { .. }) => return Err(rival(object, &[])),
                Err(error) => return Err(error),
            }
        }
        // Another coordinator may have published this number and trimmed it since. A later manifest
        // of it is there then: the latest one is never trimmed.
        let others = self.list()?.into_iter().rev().map(|listed| listed.checkpoint);
        for other in others.filter(|other| *other > last && *other != manifest.checkpoint) {
            let of_other = self.manifest_name(other);
            let found = match self.store.get(&of_other, None) {
                // Trimmed meanwhile.
                Err(Error::Missing { .. }) if other < manifest.checkpoint => continue,
                Err(error) if other < manifest.checkpoint => return Err(error),
                found => found.unwrap_or_default(),
            };
            let is_own = Manifest::from_bytes(&of_other, &found)
                .is_ok_and(|found| found.attempt == manifest.attempt);
            if other > manifest.checkpoint || !is_own {
                self.store.delete(&name)?;
                return Err(rival(self.store.place(&of_other), &found));
            }
        }
        Ok(())
    }

    /// The manifest of a checkpoint, by itself.
    fn read(&self, checkpoint: u64) -> Result<Manifest> {
        self.parse(checkpoint, &self.store.get(&self.manifest_name(checkpoint), None)?)
    }

    fn parse(&self, checkpoint: u64, bytes: &[u8]) -> Result<Manifest> {
        let object = self.store.place(&self.manifest_name(checkpoint));
        let manifest = Manifest::from_bytes(&object, bytes)?;
        let mut fault = check(&manifest).err();
        if manifest.checkpoint != checkpoint {
            fault = Some(format!("it is the manifest of checkpoint {}", manifest.checkpoint));
        }
        match fault {
            Some(message) => Err(Error::Damaged { object, message, before: None }),
            None => Ok(manifest),
        }
    }

    /// The error, with the checkpoint to go back to if this one is damaged.
    fn offer(&self, error: Error, checkpoint: u64) -> Error {
        match error {
            Error::Damaged { object, message, .. } => {
                Error::Damaged { object, message, before: self.whole_before(checkpoint) }
            }
            error => error,
        }
    }

    /// The latest checkpoint before this one whose manifest can be read, and whose files are there
    /// with their lengths.
    fn whole_before(&self, checkpoint: u64) -> Option<u64> {
        let files = self.file_lengths().ok()?;
        let before = self.list().ok()?.into_iter().rev().map(|listed| listed.checkpoint);
        before.filter(|number| *number < checkpoint).find(|number| {
            self.read(*number).is_ok_and(|manifest| {
                manifest.files().all(|file| files.get(&file.name) == Some(&file.bytes))
            })
        })
    }

    fn manifest_name(&self, checkpoint: u64) -> String {
        format!("{}{}", self.prefix, names::manifest(checkpoint))
    }
}

/// Refuses a manifest with a fault that would make the checkpoint useless.
fn check(manifest: &Manifest) -> std::result::Result<(), String> {
    if !(1..=FORMAT).contains(&manifest.format) {
        return Err(format!("its format is {}, not 1 to {FORMAT}", manifest.format));
    }
    if manifest.checkpoint >= names::CHECKPOINT_END {
        return Err("its number has too many digits".into());
    }
    let name = twice(manifest.stages.iter().flat_map(|stage| &stage.names))
        .or_else(|| twice(manifest.outputs.iter().map(|output| &output.name)));
    if let Some(name) = name {
        return Err(format!("'{name}' stands for two things"));
    }
    for file in manifest.files() {
        match file.checkpoint() {
            Some(number) if number <= manifest.checkpoint => {}
            _ => return Err(format!("'{}' is no name of a file of this checkpoint", file.name)),
        }
    }
    Ok(())
}

/// A name that comes twice.
fn twice<'a>(mut names: impl Iterator<Item = &'a String>) -> Option<String> {
    let mut seen = HashSet::new();
    names.find(|name| !seen.insert(*name)).cloned()
}

/// The error for a coordinator that has lost to the one that wrote these bytes.
fn rival(object: String, found: &[u8]) -> Error {
    let by = Manifest::from_bytes(&object, found).map_or_else(
        |_| "its manifest cannot be read".into(),
        |manifest| format!("checkpoint {}, run {}", manifest.checkpoint, manifest.attempt),
    );
    Error::Rival { object, by }
}

//! Files with state: writing them with a checksum, reading, verifying.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::ops::Range;

use xxhash_rust::xxh3::Xxh3Default;

use super::Checkpoints;
use crate::contract::ObjectWriter;
use crate::error::{Error, Result};
use crate::manifest::{Manifest, StateFile};
use crate::names;

/// Bytes that are read at a time.
const PIECE_BYTES: u64 = 1 << 20;

/// A checkpoint that has been verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    /// Its manifest.
    pub manifest: Manifest,
    /// Files that are not as the manifest says; none: the checkpoint is whole.
    pub defects: Vec<Defect>,
}

/// A file that is not as the manifest says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Defect {
    /// Its name beside the manifest.
    pub file: String,
    /// The difference.
    pub message: String,
}

impl Checkpoints {
    /// Begins a file with state for a checkpoint. The label tells the files of a checkpoint apart,
    /// the attempt those of coordinators ([`Manifest::attempt`]).
    pub fn write_file(&self, checkpoint: u64, label: &str, attempt: &str) -> Result<StateWriter> {
        let name = names::state(checkpoint, label, attempt)?;
        let object = self.store.create(&format!("{}{name}", self.prefix))?;
        Ok(StateWriter { name, object, bytes: 0, hash: Xxh3Default::new() })
    }

    /// Bytes of a file that a manifest names, or those of a range. The checksum is not checked.
    pub fn read_file(&self, file: &StateFile, range: Option<Range<u64>>) -> Result<Vec<u8>> {
        self.store.get(&format!("{}{}", self.prefix, file.name), range)
    }

    /// Reads all files of a checkpoint and compares them with its manifest, a megabyte at a time.
    ///
    /// # Errors
    ///
    /// If the manifest cannot be read, or the store does not answer.
    pub fn verify(&self, checkpoint: u64) -> Result<Verified> {
        let manifest = self.load(checkpoint)?;
        let lengths = self.file_lengths()?;
        let mut defects = Vec::new();
        for file in manifest.files() {
            let message = match lengths.get(&file.name) {
                None => "it is not there".to_string(),
                Some(bytes) if *bytes != file.bytes => {
                    format!("it has {bytes} bytes, and had {}", file.bytes)
                }
                Some(_) => match self.checksum(file)? {
                    Some(xxh3) if xxh3 == file.xxh3 => continue,
                    Some(xxh3) => format!("its checksum is {xxh3}, and was {}", file.xxh3),
                    None => "it was deleted or cut off while it was read".to_string(),
                },
            };
            defects.push(Defect { file: file.name.clone(), message });
        }
        Ok(Verified { manifest, defects })
    }

    /// The checksum of a file as it is now; `None` if it is gone or shorter.
    fn checksum(&self, file: &StateFile) -> Result<Option<String>> {
        let mut hash = Xxh3Default::new();
        let mut from = 0;
        while from < file.bytes {
            let to = file.bytes.min(from + PIECE_BYTES);
            match self.read_file(file, Some(from..to)) {
                Err(Error::Missing { .. } | Error::Damaged { .. }) => return Ok(None),
                bytes => hash.update(&bytes?),
            }
            from = to;
        }
        Ok(Some(hex(&hash)))
    }

    /// The first file of a manifest that is not there any more, among files of earlier checkpoints.
    /// Asked before the manifest is published, as a user may have deleted a checkpoint.
    pub fn missing(&self, manifest: &Manifest) -> Result<Option<String>> {
        let is_older = |file: &&StateFile| file.checkpoint() != Some(manifest.checkpoint);
        let mut older = manifest.files().filter(is_older).peekable();
        let there = if older.peek().is_some() { self.file_lengths()? } else { BTreeMap::new() };
        Ok(older.find(|file| !there.contains_key(&file.name)).map(|file| file.name.clone()))
    }

    /// Lengths of the files with state, by name beside the manifests.
    pub(super) fn file_lengths(&self) -> Result<BTreeMap<String, u64>> {
        let objects = self.store.list(&format!("{}{}", self.prefix, names::STATE))?;
        Ok((objects.into_iter())
            .filter_map(|object| {
                Some((object.name.strip_prefix(&self.prefix)?.to_string(), object.bytes))
            })
            .collect())
    }
}

/// A file with state that is being written. Dropped before [`StateWriter::finish`], it was never
/// there.
pub struct StateWriter {
    name: String,
    object: Box<dyn ObjectWriter>,
    bytes: u64,
    hash: Xxh3Default,
}

impl StateWriter {
    /// Appends bytes.
    pub fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.object.write(bytes)?;
        self.hash.update(bytes);
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Makes the file durable, and returns the manifest's entry for it.
    pub fn finish(self, part: usize, rows: u64, partitions: Range<u32>) -> Result<StateFile> {
        self.object.finish()?;
        let (bytes, xxh3) = (self.bytes, hex(&self.hash));
        let partitions = (partitions.start, partitions.end);
        Ok(StateFile { name: self.name, bytes, xxh3, part, rows, partitions, slices: None })
    }
}

impl fmt::Debug for StateWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (object, bytes) = (&self.object, &self.bytes);
        f.debug_struct("StateWriter")
            .field("object", object)
            .field("bytes", bytes)
            .finish_non_exhaustive()
    }
}

/// For writers of formats. An error is an [`Error`] inside.
impl io::Write for StateWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.append(bytes).map(|()| bytes.len()).map_err(io::Error::other)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn hex(hash: &Xxh3Default) -> String {
    format!("{:016x}", hash.digest())
}

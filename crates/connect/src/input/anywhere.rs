//! Bytes that can be read anywhere, by several workers at once: what a footer describes.

use std::sync::Arc;

use bytes::Bytes;
use millstream_contract::{Error, Result};

use super::{Input, Name, Regular};

/// The bytes of a file, up to its extent.
#[derive(Debug, Clone)]
pub(crate) struct Anywhere {
    from: From,
    length: u64,
    name: Name,
}

#[derive(Debug, Clone)]
enum From {
    Memory(Bytes),
    File(Arc<Regular>),
}

impl Anywhere {
    /// For tests and fuzzing.
    pub(crate) fn memory(bytes: impl Into<Bytes>, name: Name) -> Anywhere {
        let bytes = bytes.into();
        Anywhere { length: bytes.len() as u64, from: From::Memory(bytes), name }
    }

    /// The bytes of an input. `format` is for messages, for example `Parquet`.
    ///
    /// # Errors
    ///
    /// If it can be read from front to back only.
    pub(crate) fn new(input: Input, name: Name, format: &str) -> Result<Anywhere> {
        let refused = |what: &str, help: &str| Error::Io {
            place: name.to_string(),
            message: format!("{format} is read from where its end says, which {what} hides"),
            help: help.into(),
        };
        match input {
            Input::Memory(bytes) => Ok(Anywhere::memory(bytes.into_inner().to_vec(), name)),
            Input::File(file) => {
                let length = file.extent();
                Ok(Anywhere { from: From::File(Arc::new(file)), length, name })
            }
            Input::Packed { .. } => Err(refused(
                "packing",
                "unpack it first (gunzip, zstd -d, bunzip2): its parts are compressed already",
            )),
            Input::Pipe(_) => Err(refused("a pipe", "write it to a file, and read that")),
        }
    }

    /// How many there are.
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// For messages.
    pub(crate) fn name(&self) -> &Name {
        &self.name
    }

    /// These bytes, of which none may lie behind the end.
    pub(crate) fn read(&self, offset: u64, length: usize) -> Result<Bytes> {
        let end = offset.checked_add(length as u64).filter(|end| *end <= self.length);
        let Some(end) = end else {
            return Err(Error::Data {
                place: self.name.to_string(),
                message: format!(
                    "expected {length} bytes at offset {offset}, but it ends at {}",
                    self.length
                ),
                help: "it is damaged or was cut off: get it again from where it came from".into(),
            });
        };
        match &self.from {
            // Of bytes in memory all offsets are addresses.
            From::Memory(bytes) => Ok(bytes.slice(offset as usize..end as usize)),
            From::File(file) => {
                let mut bytes = vec![0; length];
                file.read_exact_at(offset, &mut bytes)?;
                Ok(bytes.into())
            }
        }
    }

    /// The same into `bytes`, of which as many are read as it has.
    pub(crate) fn read_into(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        match &self.from {
            From::File(file) if offset.saturating_add(bytes.len() as u64) <= self.length => {
                file.read_exact_at(offset, bytes)
            }
            _ => {
                bytes.copy_from_slice(&self.read(offset, bytes.len())?);
                Ok(())
            }
        }
    }

    /// As many of these bytes as there are before the end.
    pub(crate) fn read_at_most(&self, offset: u64, length: usize) -> Result<Bytes> {
        let left = self.length.saturating_sub(offset);
        self.read(offset.min(self.length), left.min(length as u64) as usize)
    }
}

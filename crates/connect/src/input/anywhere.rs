//! Bytes that can be read anywhere, by several workers at once: what a footer describes.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use millstream_contract::{Error, Result};

use super::{Input, Name, Regular};

/// The bytes of a file, up to its extent.
#[derive(Debug, Clone)]
pub(crate) struct Anywhere {
    from: ByteSource,
    length: u64,
    name: Name,
}

#[derive(Debug, Clone)]
enum ByteSource {
    Memory(Bytes),
    File(Arc<Regular>, Arc<Spare>),
}

/// Buffers that were read into and are no longer looked at. The next reads go into them: a new
/// buffer would be zeroed first, and its pages come from the system one by one.
#[derive(Debug, Default)]
struct Spare(Mutex<Vec<Vec<u8>>>);

/// So many buffers are kept at most.
const SPARE_BUFFERS: usize = 4;

/// Longer ones are not kept.
const SPARE_BYTES_MAX: usize = 8 << 20;

impl Spare {
    /// A buffer with at least so many bytes, whatever they are.
    fn take(&self, length: usize) -> Vec<u8> {
        let kept = self.0.lock().ok().and_then(|mut kept| kept.pop());
        let mut buffer = kept.unwrap_or_default();
        if buffer.len() < length {
            // The system gives zeros, page by page as they are written to.
            buffer = vec![0; length];
        }
        buffer
    }

    fn give(&self, buffer: Vec<u8>) {
        if buffer.len() <= SPARE_BYTES_MAX
            && let Ok(mut kept) = self.0.lock()
            && kept.len() < SPARE_BUFFERS
        {
            kept.push(buffer);
        }
    }
}

/// A buffer that returns to the spare buffers when its last reader drops it.
struct Lent {
    buffer: Vec<u8>,
    length: usize,
    home: Arc<Spare>,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        self.buffer.get(..self.length).unwrap_or_default()
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.home.give(std::mem::take(&mut self.buffer));
    }
}

impl Anywhere {
    /// For tests and fuzzing.
    pub(crate) fn memory(bytes: impl Into<Bytes>, name: Name) -> Anywhere {
        let bytes = bytes.into();
        Anywhere { length: bytes.len() as u64, from: ByteSource::Memory(bytes), name }
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
                let from = ByteSource::File(Arc::new(file), Arc::default());
                Ok(Anywhere { from, length, name })
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
            ByteSource::Memory(bytes) => Ok(bytes.slice(offset as usize..end as usize)),
            ByteSource::File(file, spare) => {
                let mut buffer = spare.take(length);
                file.read_exact_at(offset, buffer.get_mut(..length).unwrap_or_default())?;
                let home = spare.clone();
                Ok(Bytes::from_owner(Lent { buffer, length, home }))
            }
        }
    }

    /// The same, but what lies outside these spans is not read: it may be anything. Spans are
    /// counted from the offset.
    pub(crate) fn read_spans(
        &self,
        offset: u64,
        length: usize,
        spans: &[Range<u64>],
    ) -> Result<Bytes> {
        let ByteSource::File(file, spare) = &self.from else { return self.read(offset, length) };
        if offset.saturating_add(length as u64) > self.length {
            return self.read(offset, length);
        }
        let (mut buffer, home) = (spare.take(length), spare.clone());
        for span in spans {
            if let Some(part) = buffer.get_mut(span.start as usize..span.end as usize) {
                file.read_exact_at(offset + span.start, part)?;
            }
        }
        Ok(Bytes::from_owner(Lent { buffer, length, home }))
    }

    /// As many of these bytes as there are before the end.
    pub(crate) fn read_at_most(&self, offset: u64, length: usize) -> Result<Bytes> {
        let left = self.length.saturating_sub(offset);
        self.read(offset.min(self.length), left.min(length as u64) as usize)
    }
}

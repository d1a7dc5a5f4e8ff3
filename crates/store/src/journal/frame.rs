//! Frames: what a journal writes and syncs at once. A frame is whole, or does not count.
//!
//! A segment is a file of frames. Each begins with the segment's salt, by which a frame is found
//! behind damaged bytes, and a checksum of all that follows. The first frame has the segment's
//! head, the others have entries.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Bytes of a frame before its payload: salt, checksum, first entry, offset, length.
pub(super) const HEAD_BYTES: u64 = 40;

/// A frame without its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) salt: u64,
    /// The number of the first entry.
    pub(super) first: u64,
    /// Bytes of all entries before.
    pub(super) offset: u64,
    /// Bytes of the payload.
    pub(super) length: u64,
    checksum: u64,
}

fn number(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

impl Frame {
    /// The bytes of a frame.
    pub(super) fn encode(salt: u64, first: u64, offset: u64, payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; 16];
        for number in [first, offset, payload.len() as u64] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(payload);
        let checksum = xxh3_64_with_seed(&bytes[16..], salt);
        bytes[..8].copy_from_slice(&salt.to_le_bytes());
        bytes[8..16].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// The head at the front of these bytes.
    pub(super) fn head(bytes: &[u8]) -> Option<Frame> {
        let (salt, checksum) = (number(bytes, 0)?, number(bytes, 8)?);
        let (first, offset) = (number(bytes, 16)?, number(bytes, 24)?);
        Some(Frame { salt, first, offset, length: number(bytes, 32)?, checksum })
    }

    /// Whether these are the bytes of the whole frame.
    pub(super) fn is_whole(&self, bytes: &[u8]) -> bool {
        let whole = bytes.get(16..).filter(|_| bytes.len() as u64 == HEAD_BYTES + self.length);
        whole.is_some_and(|bytes| xxh3_64_with_seed(bytes, self.salt) == self.checksum)
    }

    /// The frame at the front of these bytes, and its payload, if it is whole.
    pub(super) fn parse(bytes: &[u8]) -> Option<(Frame, &[u8])> {
        let frame = Frame::head(bytes)?;
        let end = usize::try_from(HEAD_BYTES.checked_add(frame.length)?).ok()?;
        let bytes = bytes.get(..end)?;
        frame.is_whole(bytes).then_some((frame, &bytes[HEAD_BYTES as usize..]))
    }
}

/// Sender of an entry, who may send it again, and a number that grows with each of the sender's
/// entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sequence<'a> {
    /// The sender's name.
    pub producer: &'a str,
    /// The number.
    pub number: u64,
}

/// An entry of a journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Entries before it.
    pub number: u64,
    /// Bytes of all entries before it.
    pub offset: u64,
    /// Its bytes; `None`: the input has ended, and no entry follows.
    pub bytes: Option<Vec<u8>>,
}

/// An entry in a payload.
pub(super) struct Written<'a> {
    pub(super) sequence: Option<Sequence<'a>>,
    pub(super) bytes: Option<&'a [u8]>,
}

impl<'a> Written<'a> {
    /// An upper bound of the entry's bytes in a segment.
    pub(super) fn room(&self) -> u64 {
        let named = self.sequence.map_or(0, |sequence| sequence.producer.len() as u64);
        HEAD_BYTES + 18 + named + self.bytes.map_or(0, |bytes| bytes.len() as u64)
    }

    /// Appends the entry to a payload.
    pub(super) fn put(&self, payload: &mut Vec<u8>) {
        let Sequence { producer, number } =
            self.sequence.unwrap_or(Sequence { producer: "", number: 0 });
        payload.push(u8::from(self.bytes.is_none()));
        // Checked: such names are refused.
        payload.push(producer.len() as u8);
        payload.extend(producer.as_bytes());
        payload.extend(number.to_le_bytes());
        let bytes = self.bytes.unwrap_or_default();
        payload.extend((bytes.len() as u64).to_le_bytes());
        payload.extend(bytes);
    }

    /// Takes the next entry from a payload. `None`: the bytes are no entry.
    pub(super) fn take(payload: &mut &'a [u8]) -> Option<Written<'a>> {
        let (ends, name_length) = (*payload.first()?, usize::from(*payload.get(1)?));
        let producer = std::str::from_utf8(payload.get(2..2 + name_length)?).ok()?;
        let number_of = number(payload, 2 + name_length)?;
        let length = usize::try_from(number(payload, 10 + name_length)?).ok()?;
        let rest = &payload[18 + name_length..];
        let bytes = rest.get(..length)?;
        *payload = &rest[length..];
        Some(Written {
            sequence: (name_length > 0).then_some(Sequence { producer, number: number_of }),
            bytes: (ends == 0).then_some(bytes),
        })
    }
}

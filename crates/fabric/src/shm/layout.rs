//! The layout of the memory that processes share besides regions: files with one owner each, which
//! the owner's peers map, too.
//!
//! Every field is an aligned atomic word. What a peer has written is checked where it is read.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Error, Result};
use crate::words::{LINE_BYTES, Words, map_words, new_words};
use crate::work::{Destination, Receive};

/// Which of a device's regions exist: a word per region, holding its key while it lives. A peer
/// that has a region mapped looks here before every use.
#[derive(Debug)]
pub(super) struct RegionTable(Words);

impl RegionTable {
    /// Most regions of a device at a time. The file is sparse.
    pub(super) const ENTRIES: usize = 1 << 16;
    const BYTES: usize = Self::ENTRIES * 8;

    pub(super) fn new() -> Result<(OwnedFd, RegionTable)> {
        let (file, words) = new_words(Self::BYTES)?;
        Ok((file, RegionTable(words)))
    }

    pub(super) fn map(file: &OwnedFd) -> Result<RegionTable> {
        Ok(RegionTable(map_words(file, Self::BYTES)?))
    }

    fn word(&self, key: u32) -> &AtomicU64 {
        self.0.at(key as usize % Self::ENTRIES * 8)
    }

    pub(super) fn set(&self, key: u32) {
        self.word(key).store(key.into(), Ordering::Release);
    }

    /// Whether no region has this key's place.
    pub(super) fn is_free(&self, key: u32) -> bool {
        self.word(key).load(Ordering::Acquire) == 0
    }

    pub(super) fn clear(&self, key: u32) {
        self.word(key).store(0, Ordering::Release);
    }

    #[inline]
    pub(super) fn lives(&self, key: u32) -> bool {
        self.word(key).load(Ordering::Acquire) == u64::from(key)
    }
}

/// A posted receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SharedReceive {
    pub(super) key: u32,
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

impl SharedReceive {
    /// A receive as peers see it. Its buffer has to belong to device `device`, and to have been
    /// allocated there: peers map nothing else.
    pub(super) fn new(receive: &Receive<'_>, device: u32) -> Result<SharedReceive> {
        let Some(buffer) = &receive.buffer else {
            return Ok(SharedReceive { key: 0, offset: 0, bytes: 0 });
        };
        buffer.check(device)?;
        check_own(buffer)?;
        let Destination { region, offset, bytes } = *buffer;
        Ok(SharedReceive { key: region.local_key(), offset: offset as u64, bytes: bytes as u64 })
    }
}

/// Checks that memory for peers' bytes was allocated here: other memory has no file.
pub(super) fn check_own(destination: &Destination<'_>) -> Result<()> {
    if destination.region.remote().key == 0 {
        return Err(Error::Unsupported {
            what: "receiving or reading into memory that the fabric did not allocate",
        });
    }
    Ok(())
}

/// A peer's result for a receive that it took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Taken {
    pub(super) kind: u8,
    pub(super) bytes: u32,
    pub(super) immediate: Option<u32>,
}

/// A queue pair's control block: the state, and a ring of receives. The owner posts receive number
/// `n` in entry `n % capacity`; the only peer takes in order, and writes the result into the entry.
#[derive(Debug)]
pub(super) struct Control {
    words: Words,
    capacity: u64,
}

impl Control {
    const STATE: usize = 0;
    const CONNECTED_TO: usize = 8;
    const PEER_FAILED: usize = LINE_BYTES;
    const POSTED: usize = 2 * LINE_BYTES;
    const TAKEN: usize = 3 * LINE_BYTES;
    const RING: usize = 4 * LINE_BYTES;

    /// Length of a block with so many receives, which is a power of two.
    pub(super) fn bytes(capacity: u64) -> usize {
        Self::RING + capacity as usize * LINE_BYTES
    }

    pub(super) fn new(capacity: u64) -> Result<(OwnedFd, Control)> {
        let (file, words) = new_words(Self::bytes(capacity))?;
        Ok((file, Control { words, capacity }))
    }

    pub(super) fn map(file: &OwnedFd, capacity: u64) -> Result<Control> {
        Ok(Control { words: map_words(file, Self::bytes(capacity))?, capacity })
    }

    /// The owner is connected to the queue pair with this identity.
    pub(super) fn connect(&self, to: u64) {
        self.words.at(Self::CONNECTED_TO).store(to, Ordering::Relaxed);
        self.words.at(Self::STATE).store(1, Ordering::Release);
    }

    /// The owner has failed.
    pub(super) fn fail(&self) {
        self.words.at(Self::STATE).store(2, Ordering::Release);
    }

    /// Whether the owner is connected to `identity`; `None` if it has failed.
    #[inline]
    pub(super) fn connected_to(&self, identity: u64) -> Option<bool> {
        match self.words.at(Self::STATE).load(Ordering::Acquire) {
            0 => Some(false),
            1 => Some(self.words.at(Self::CONNECTED_TO).load(Ordering::Relaxed) == identity),
            _ => None,
        }
    }

    /// The peer tells the owner that it has failed.
    pub(super) fn tell_failed(&self) {
        self.words.at(Self::PEER_FAILED).store(1, Ordering::Release);
    }

    /// Whether the peer told so.
    #[inline]
    pub(super) fn told_failed(&self) -> bool {
        self.words.at(Self::PEER_FAILED).load(Ordering::Acquire) != 0
    }

    /// Receives that the peer has taken since the beginning.
    #[inline]
    pub(super) fn taken(&self) -> u64 {
        self.words.at(Self::TAKEN).load(Ordering::Acquire)
    }

    fn entry(&self, number: u64) -> usize {
        Self::RING + (number & (self.capacity - 1)) as usize * LINE_BYTES
    }

    /// The owner posts receive `number`.
    pub(super) fn post(&self, number: u64, receive: SharedReceive) {
        let entry = self.entry(number);
        self.words.at(entry).store(receive.key.into(), Ordering::Relaxed);
        self.words.at(entry + 8).store(receive.offset, Ordering::Relaxed);
        self.words.at(entry + 16).store(receive.bytes, Ordering::Relaxed);
        self.words.at(Self::POSTED).store(number + 1, Ordering::Release);
    }

    /// The peer's view of receive `number`, if it is posted.
    #[inline]
    pub(super) fn posted(&self, number: u64) -> Option<SharedReceive> {
        if self.words.at(Self::POSTED).load(Ordering::Acquire) <= number {
            return None;
        }
        let entry = self.entry(number);
        Some(SharedReceive {
            key: self.words.at(entry).load(Ordering::Relaxed) as u32,
            offset: self.words.at(entry + 8).load(Ordering::Relaxed),
            bytes: self.words.at(entry + 16).load(Ordering::Relaxed),
        })
    }

    /// The peer has taken a receive, the `number`th in all; its bytes are placed.
    pub(super) fn take(&self, number: u64, taken: Taken) {
        let entry = self.entry(number);
        let flags = u64::from(taken.kind) | u64::from(taken.immediate.is_some()) << 8;
        let values = u64::from(taken.bytes) | u64::from(taken.immediate.unwrap_or(0)) << 32;
        self.words.at(entry + 24).store(flags, Ordering::Relaxed);
        self.words.at(entry + 32).store(values, Ordering::Relaxed);
        self.words.at(Self::TAKEN).store(number + 1, Ordering::Release);
    }

    /// The peer's result for the `number`th receive that it has taken. The caller checks it.
    pub(super) fn result(&self, number: u64) -> Taken {
        let entry = self.entry(number);
        let flags = self.words.at(entry + 24).load(Ordering::Relaxed);
        let values = self.words.at(entry + 32).load(Ordering::Relaxed);
        Taken {
            kind: flags as u8,
            bytes: values as u32,
            immediate: (flags >> 8 & 1 == 1).then_some((values >> 32) as u32),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receives_go_round_the_ring() {
        let (file, owner) = Control::new(4).unwrap();
        let peer = Control::map(&file, 4).unwrap();
        for number in 0..10 {
            assert_eq!(peer.posted(number), None);
            let receive = SharedReceive { key: number as u32, offset: number * 8, bytes: 5 };
            owner.post(number, receive);
            assert_eq!(peer.posted(number), Some(receive));
            assert_eq!(owner.taken(), number);
            let taken = Taken { kind: 1, bytes: 4, immediate: Some(u32::MAX - number as u32) };
            peer.take(number, taken);
            assert_eq!((owner.taken(), owner.result(number)), (number + 1, taken));
        }
    }
}

//! The block of words of a side, open to its peer.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use millstream_fabric::{Region, RemoteRegion};

use crate::link::handover::Words;

/// Length of a cache line. Words that different sides write are a line apart.
pub const LINE: usize = 64;
/// The peer's absolute count: of released slots, of credit.
pub const PEER_COUNT: usize = 0;
/// The peer's flag.
pub(super) const PEER_FLAG: usize = LINE;
/// How much this side has announced.
pub(super) const OWN_COUNT: usize = 2 * LINE;
/// Where the peer's announcement is read to.
const ANSWER: usize = 3 * LINE;
/// Length of these words; a user's own follow.
pub const BLOCK_BYTES: usize = 4 * LINE;

/// The two sides do not fit together.
#[derive(Debug, Clone, Copy)]
pub struct Misfit {
    /// Name of the property.
    pub what: &'static str,
    /// This side's value.
    pub ours: u64,
    /// The peer's value.
    pub theirs: u64,
}

/// Checks that a peer's region has so many bytes or more, and begins at a cache line: words in it
/// are read and written whole.
pub fn check_region(region: &RemoteRegion, bytes: usize) -> Result<(), Misfit> {
    let (ours, theirs) = (bytes as u64, region.bytes);
    match region.address % LINE as u64 {
        0 if theirs >= ours => Ok(()),
        0 => Err(Misfit { what: "bytes of a region", ours, theirs }),
        over => Err(Misfit { what: "bytes beyond a cache line", ours: 0, theirs: over }),
    }
}

/// A block, in a region that may hold others.
pub struct Block {
    region: Region,
    at: usize,
}

impl Block {
    /// The block that begins at this byte.
    pub fn new(region: Region, at: usize) -> Block {
        Block { region, at }
    }

    /// The word at this byte of the block.
    #[inline]
    pub fn word(&self, at: usize) -> &AtomicU64 {
        self.region.word(self.at + at)
    }

    /// The count that the peer writes here.
    #[inline]
    pub fn peer_count(&self) -> u64 {
        self.word(PEER_COUNT).load(Ordering::Acquire)
    }

    /// The peer's announcement, as it was when it was read last.
    pub(super) fn answer(&self) -> u64 {
        self.word(ANSWER).load(Ordering::Acquire)
    }

    /// Where the peer's announcement is read to: the region, and the word in it.
    pub(super) fn answer_place(&self) -> (Region, usize) {
        (self.region.clone(), self.at + ANSWER)
    }
}

impl Words for Block {
    #[inline]
    fn announce(&self, count: u64) {
        self.word(OWN_COUNT).store(count, Ordering::Relaxed);
    }

    #[inline]
    fn fence(&self) {
        fence(Ordering::SeqCst);
    }

    #[inline]
    fn peer_flag(&self) -> u64 {
        self.word(PEER_FLAG).load(Ordering::Relaxed)
    }
}

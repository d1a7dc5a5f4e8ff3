//! Words that never move: an array that grows by segments, each twice as large as the one before.
//!
//! Readers need no lock while the array grows. All words are atomics that are read and written
//! relaxed, so a wrong order of accesses is a wrong value, never undefined behaviour. The schemes
//! provide the order.

use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;

/// Items of the first segment.
const FIRST: usize = 32;
const SEGMENTS: usize = 27;

/// Items of a fixed number of words, by number.
#[derive(Debug)]
pub(crate) struct Segments {
    item_words: usize,
    segments: [OnceLock<Box<[AtomicU64]>>; SEGMENTS],
}

/// The segment of an item, and its number there.
#[inline]
fn locate(item: usize) -> (usize, usize) {
    let biased = item + FIRST;
    let segment = (biased.ilog2() - FIRST.ilog2()) as usize;
    (segment, biased - (FIRST << segment))
}

impl Segments {
    /// An empty array of items of `item_words` words.
    pub(crate) fn new(item_words: usize) -> Segments {
        Segments { item_words, segments: std::array::from_fn(|_| OnceLock::new()) }
    }

    /// Items that there can be.
    pub(crate) const fn items_max() -> usize {
        (FIRST << SEGMENTS) - FIRST
    }

    /// The words of an item, which are zero at first. The item's segment is allocated if need be.
    #[inline]
    pub(crate) fn item(&self, item: usize) -> &[AtomicU64] {
        let (segment, at) = locate(item);
        let all_words = (FIRST << segment) * self.item_words;
        let words = self.segments[segment].get_or_init(|| zeros(all_words));
        &words[at * self.item_words..(at + 1) * self.item_words]
    }

    /// Bytes of all segments.
    pub(crate) fn bytes(&self) -> usize {
        self.segments.iter().filter_map(OnceLock::get).map(|words| words.len() * 8).sum()
    }
}

/// So many words of zero.
pub(crate) fn zeros(words: usize) -> Box<[AtomicU64]> {
    (0..words).map(|_| AtomicU64::new(0)).collect()
}

//! The back-flow of a pair: a line of words at the source, which the target writes (thesis, section
//! 7.5.4).
//!
//! | word | meaning |
//! |---|---|
//! | 0 | segments of this source that the target has consumed |
//! | 1 | segments of this source that the target has, without a gap |
//! | 2 | grows with each request |
//! | 3..8 | the numbers that the request names, plus 1; 0: none |
//!
//! A line may land word by word. The counts only grow. A request that is torn names segments that
//! need not be sent again, or misses some, and is repeated after the time-out.

use std::sync::atomic::Ordering;

use millstream_fabric::Region;

/// Most numbers of a request.
pub(crate) const MISSING: usize = 5;
const CONSUMED: usize = 0;
const RECEIVED: usize = 8;
const REQUEST: usize = 16;
const FIRST: usize = 24;

/// A line of words: the source's, or the target's from which it is written.
#[derive(Clone)]
pub(crate) struct Line {
    pub(crate) region: Region,
    pub(crate) at: usize,
}

impl Line {
    fn load(&self, word: usize) -> u64 {
        self.region.word(self.at + word).load(Ordering::Acquire)
    }

    fn store(&self, word: usize, value: u64) {
        self.region.word(self.at + word).store(value, Ordering::Release);
    }

    pub(crate) fn consumed(&self) -> u64 {
        self.load(CONSUMED)
    }

    pub(crate) fn received(&self) -> u64 {
        self.load(RECEIVED)
    }

    pub(crate) fn request(&self) -> u64 {
        self.load(REQUEST)
    }

    /// The numbers of the request.
    pub(crate) fn missing(&self) -> [Option<u64>; MISSING] {
        std::array::from_fn(|i| self.load(FIRST + 8 * i).checked_sub(1))
    }

    pub(crate) fn set_counts(&self, consumed: u64, received: u64) {
        self.store(CONSUMED, consumed);
        self.store(RECEIVED, received);
    }

    /// Sets a request for the first of these numbers.
    pub(crate) fn set_request(&self, request: u64, mut missing: impl Iterator<Item = u64>) {
        for i in 0..MISSING {
            self.store(FIRST + 8 * i, missing.next().map_or(0, |number| number + 1));
        }
        self.store(REQUEST, request);
    }
}

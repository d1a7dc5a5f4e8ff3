//! Counts of finished pieces, after which all workers go on (paper, section 4.2, "countdown
//! latch"). Nobody waits in here: a worker asks, and does something else.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use super::sync::AtomicU32;

/// Pieces that workers take, each once, and their completion.
#[derive(Debug)]
pub(crate) struct Latch {
    taken: AtomicU32,
    finished: AtomicU32,
}

impl Latch {
    pub(crate) fn new() -> Latch {
        Latch { taken: AtomicU32::new(0), finished: AtomicU32::new(0) }
    }

    /// Takes `pieces` pieces of `all`, or what is left; returns the first and the last plus one.
    pub(crate) fn take(&self, pieces: u32, all: u32) -> Option<(u32, u32)> {
        if self.taken.load(Relaxed) >= all {
            return None;
        }
        let first = self.taken.fetch_add(pieces, Relaxed);
        (first < all).then(|| (first, all.min(first + pieces)))
    }

    /// Pieces that were taken, or more.
    pub(crate) fn taken(&self) -> u32 {
        self.taken.load(Relaxed)
    }

    /// So many pieces are finished.
    pub(crate) fn finish(&self, pieces: u32) {
        self.finished.fetch_add(pieces, AcqRel);
    }

    /// Whether `all` pieces are finished; then their results are visible.
    pub(crate) fn is_down(&self, all: u32) -> bool {
        self.finished.load(Acquire) >= all
    }

    /// Starts again, with no piece taken.
    pub(crate) fn reset(&mut self) {
        *self = Latch::new();
    }
}

//! State of a cut in memory: workers go on as soon as it is copied, and it is written afterwards.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use millstream_operators::operator::saved::SavedBatch;

/// The state of a stage in a worker.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) stage: usize,
    pub(crate) leader: usize,
    pub(crate) batches: Vec<SavedBatch>,
}

/// Memory for state that waits to be written.
#[derive(Debug)]
pub(crate) struct Room {
    bytes_max: usize,
    used: AtomicUsize,
}

impl Room {
    pub(crate) fn new(bytes_max: usize) -> Room {
        Room { bytes_max, used: AtomicUsize::new(0) }
    }

    /// Takes room for a batch, if there is some left.
    pub(crate) fn take(&self, batch: &SavedBatch) -> bool {
        let bytes = batch.rows.get_array_memory_size();
        self.used.fetch_add(bytes, Relaxed) + bytes <= self.bytes_max
    }

    /// All that was held has been written, or dropped.
    pub(crate) fn clear(&self) {
        self.used.store(0, Relaxed);
    }
}

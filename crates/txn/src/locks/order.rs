//! Requests in order: queues of records whose members know their position (paper, section 3,
//! "lock ahead"; the layout is ours).
//!
//! Requests are inserted in the order of tickets and granted first come, first served, where reads
//! that follow each other share. So a record's queue needs no list. Two counters say how many
//! requests were inserted and how many were released. A request notes the first counter when it is
//! inserted, and is granted when the second has reached it. Both count reads above and writes
//! below, in 32 bits each.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::store::RecordWords;

const ONE_READ: u64 = 1 << 32;
const ONE_WRITE: u64 = 1;

/// Which requests of a record a read waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reads {
    /// Reads wait for writes, and writes for reads.
    Block,
    /// Reads wait for writes; no write waits for a read.
    Pass,
}

/// The turn to insert requests, by ticket.
#[derive(Debug, Default)]
pub(crate) struct Turn(AtomicU64);

impl Turn {
    #[inline]
    pub(crate) fn is(&self, order: u64) -> bool {
        self.0.load(Acquire) == order
    }

    #[inline]
    pub(crate) fn pass(&self, order: u64) {
        self.0.store(order + 1, Release);
    }
}

/// Inserts a request; returns its position. Only in turn.
#[inline]
pub(crate) fn insert(record: RecordWords<'_>, writes: bool, reads: Reads) -> u64 {
    let inserted = record.header(0);
    let position = inserted.load(Relaxed);
    let next = match (writes, reads) {
        (true, _) => position & !u64::from(u32::MAX) | u64::from((position as u32).wrapping_add(1)),
        (false, Reads::Block) => position.wrapping_add(ONE_READ),
        (false, Reads::Pass) => return position,
    };
    inserted.store(next, Relaxed);
    position
}

/// Whether a request at `position` is granted.
#[inline]
pub(crate) fn is_granted(
    record: RecordWords<'_>,
    position: u64,
    writes: bool,
    reads: Reads,
) -> bool {
    let released = record.header(1).load(Acquire);
    match (writes, reads) {
        (true, Reads::Block) => released == position,
        (true, Reads::Pass) => released as u32 == position as u32,
        // Later writes may be over as well, if they do not wait for reads.
        (false, _) => (released as u32).wrapping_sub(position as u32) as i32 >= 0,
    }
}

/// Releases a request.
#[inline]
pub(crate) fn release(record: RecordWords<'_>, writes: bool, reads: Reads) {
    let released = record.header(1);
    match (writes, reads) {
        // Only the writer that is granted changes the lower half: a carry would reach the upper
        // half, so it is taken back.
        (true, _) => {
            let before = released.fetch_add(ONE_WRITE, Release);
            if before as u32 == u32::MAX {
                released.fetch_sub(ONE_READ, Release);
            }
        }
        (false, Reads::Block) => {
            released.fetch_add(ONE_READ, Release);
        }
        (false, Reads::Pass) => {}
    }
}

//! Deltas of an outbox: pending, being sent, and on their way.

use millstream_state::Segment;

use millstream_operators::budget::Held;
use millstream_operators::passed::{Parcel, PassedRows};
use millstream_operators::windowing::SliceId;

/// Sealed rows of workers for the next delta.
#[derive(Default)]
pub(super) struct Pending {
    pub(super) parcel: Parcel,
    pub(super) bytes: usize,
    pub(super) held: Vec<Held>,
    /// Memory is scarce: the rows do not wait for rows of other workers.
    pub(super) hurries: bool,
    /// Sent even if the leader lets the delta wait.
    pub(super) anyway: bool,
}

/// A delta that is being written into slots.
pub(super) struct OutgoingDelta {
    pub(super) watermark: i64,
    /// All rows before this cut have been shipped with it.
    pub(super) cut: u64,
    /// Some rows are passed through: earlier rows, or kept rows.
    pub(super) passed: bool,
    /// Rows kept as keys and arguments; the next is the last.
    pub(super) kept: Vec<PassedRows>,
    pub(super) segments: Vec<(SliceId, Segment)>,
    pub(super) held: Vec<Held>,
    /// Segments sent, words of the next one's arena, and runs of its rows.
    pub(super) done: usize,
    pub(super) arena_words: usize,
    pub(super) runs: usize,
    /// Words of the open slot that packed segments have taken.
    pub(super) packed_words: usize,
    /// Of rows that are longer than a slot, the words that have been sent.
    pub(super) part_words: usize,
}

impl OutgoingDelta {
    pub(super) fn has_rows(&self) -> bool {
        self.passed || !self.segments.is_empty()
    }
}

/// A delta that its leader has not merged yet.
pub(super) struct Sent {
    pub(super) segments: Vec<(SliceId, Segment)>,
    pub(super) _held: Vec<Held>,
}

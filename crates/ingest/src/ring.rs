//! A ring as a slot sees it.

/// Result of a look into a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Looked {
    /// A segment came.
    Some,
    /// The ring is empty.
    Nothing,
    /// The producer has ended, and workers decode its last batches.
    Ending,
    /// The producer has ended or was lost.
    Gone,
}

/// A ring, and the producer at its other end.
pub(crate) trait Ring: Send {
    /// Hands the next segment to the slot.
    fn look(&mut self) -> Looked;
    /// Takes no more segments, and tells the producer why.
    fn refuse(&mut self, why: &str);
}

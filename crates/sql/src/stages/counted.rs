//! Where records are counted that are dropped: once, however many stages take them.

/// Which parts of a grouping or a join count the records that it drops, as they are late or have no
/// time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counted {
    All,
    /// The first parts, as many as the number; for the remaining parts another stage counts.
    First(usize),
    /// Another stage takes the same records and counts them.
    Nowhere,
}

impl Counted {
    /// Whether the part of this number counts them.
    pub(crate) fn counts(self, part: usize) -> bool {
        match self {
            Counted::All => true,
            Counted::First(parts) => part < parts,
            Counted::Nowhere => false,
        }
    }
}

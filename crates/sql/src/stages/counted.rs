//! Where records are counted that are dropped: once, however many stages take them.

/// Which parts of a grouping or a join count the records that it drops, as they are late or have no
/// time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counted {
    All,
    /// So many of the first; the others take records that are counted elsewhere.
    First(usize),
    /// Another one takes the same records.
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

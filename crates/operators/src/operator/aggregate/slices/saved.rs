//! Rows of slices for checkpoints, and back.

use std::ops::Bound;

use millstream_state::{Arena, Malformed, Table};

use super::Slices;
use crate::windowing::SliceId;

/// The slices from the first one on, or all.
pub(in super::super) fn starting(first: Option<SliceId>) -> (Bound<SliceId>, Bound<SliceId>) {
    (first.map_or(Bound::Unbounded, Bound::Included), Bound::Unbounded)
}

impl Slices {
    /// The tables of own keys, from a slice on, in order.
    pub(crate) fn tables_from(
        &self,
        first: Option<SliceId>,
    ) -> impl Iterator<Item = (SliceId, &Table)> {
        self.slices.range(starting(first)).map(|(id, slice)| (*id, &slice.primary))
    }

    /// Merges rows that were saved, as far as this worker leads their keys.
    pub(crate) fn restore(
        &mut self,
        id: SliceId,
        words: &[u64],
        arena: &Arena,
    ) -> std::result::Result<(), Malformed> {
        let own = self.layout.pick(words, &self.leaders, self.me, &mut self.scratch)?;
        if own.is_empty() { Ok(()) } else { self.merge_words(id, &own, arena) }
    }
}

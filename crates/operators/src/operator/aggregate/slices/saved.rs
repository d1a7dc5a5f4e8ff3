//! Rows of slices for checkpoints, and back.

use std::sync::Arc;

use millstream_state::{Arena, Malformed, Table};

use super::Slices;
use super::slice::Aside;
use crate::operator::aside::AsideTables;
use crate::windowing::SliceId;

/// Chunks of rows that are merged in a step.
const STEP_CHUNKS: usize = 1;

impl Slices {
    /// Sets the rows of own keys aside, but for slices that are left out: copies of them, as long
    /// as these have no more than so many bytes; then the tables.
    pub(crate) fn set_aside(&mut self, copied_bytes_max: usize, to: &mut AsideTables) {
        for (id, slice) in &mut self.slices {
            if slice.primary.rows() == 0 || to.leave_out(*id, &mut slice.since) {
                continue;
            }
            if to.copied_bytes() + slice.primary.copy_bytes() <= copied_bytes_max {
                to.copy(*id, slice.primary.copy());
                continue;
            }
            self.counted.change_table(*id, slice);
            let young = Table::new(self.layout.clone());
            let old = Arc::new(std::mem::replace(&mut slice.primary, young));
            slice.aside = Aside::Saving(old.clone());
            to.share(*id, old);
            self.aside.push_back(*id);
        }
    }

    /// Takes back what has been saved of the first slice that has older rows set aside, or goes on
    /// merging what has come since. Whether there was something to do.
    pub(crate) fn thaw(&mut self) -> bool {
        let Slices { slices, leaders, pool, scratch, spare, .. } = self;
        let Some(id) = self.aside.front().copied() else { return false };
        // A window does not take a slice that is here.
        let Some(slice) = slices.get_mut(&id) else {
            self.aside.pop_front();
            return true;
        };
        let merged = match std::mem::take(&mut slice.aside) {
            Aside::None => None,
            Aside::Saving(old) => match Arc::try_unwrap(old) {
                Err(old) => {
                    slice.aside = Aside::Saving(old);
                    return false;
                }
                Ok(old) => {
                    self.counted.change(id, slice);
                    let (young, since) = slice.take_back(old, leaders, pool, scratch);
                    spare.keep_table(young);
                    Some((since, 0))
                }
            },
            Aside::Merging(since, merged) => Some((since, merged)),
        };
        if let Some((since, merged)) = merged {
            self.counted.change_table(id, slice);
            if slice.primary.merge_from(&since, merged, STEP_CHUNKS, pool, scratch) {
                slice.aside = Aside::Merging(since, merged + STEP_CHUNKS);
                return true;
            }
            since.recycle(pool);
        }
        self.aside.pop_front();
        true
    }

    /// Whether rows up to a slice, or any rows, are set aside.
    pub(crate) fn awaits_thaw(&self, last: Option<SliceId>) -> bool {
        self.aside.iter().any(|slice| last.is_none_or(|last| *slice <= last))
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

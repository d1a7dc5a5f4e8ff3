//! An index with slots instead of buckets ([`crate::table::direct`]): changing to slots where keys
//! are dense, and back where they are not.

use super::{Entrants, Index, capacity};
use crate::memory::hash::hash_word;
use crate::memory::log::BLOCK_ROWS;
use crate::memory::log::RowId;
use crate::memory::pages::Lines;
use crate::table::direct::{Bounds, LINE_SLOTS, Span};
use crate::table::logs::Logs;

impl Index {
    /// A span of these keys and those that are there, whose slots take no more memory than so many
    /// buckets.
    pub(super) fn span_of(&self, words: &[u64], buckets: usize, logs: Logs<'_>) -> Option<Span> {
        let slots_max = buckets * LINE_SLOTS;
        let mut bounds = Bounds::of(words).filter(|_| !self.sparse)?;
        let mut entries = self.entries(logs);
        while bounds.width() < slots_max as u64 {
            let Some((key, _)) = entries.next() else {
                let span = bounds.span(bounds.slots(slots_max)?, None);
                // Unlike buckets, slots do not grow where they stand: both are there for a moment.
                let bytes = Lines::empty().growth_bytes(span.lines());
                return (bytes <= self.lines.growth_bytes(buckets)).then_some(span);
            };
            bounds = bounds.and(Bounds::one(key));
        }
        None
    }

    /// Has slots for these keys, too, or buckets if that takes less memory.
    #[cold]
    pub(super) fn widen(&mut self, old: Span, words: &[u64], logs: Logs<'_>) {
        let (Some(block), base) = (Bounds::of(words), logs.base()) else { return };
        if self.len == 0 && block.slots(old.slots()).is_some() {
            // All slots are free, and get new keys from now on.
            self.span = Some(block.span(old.slots(), None));
            return;
        }
        let buckets = self.buckets_for(words.len());
        let slots_max = buckets.max(self.lines.count()) * LINE_SLOTS;
        let held = old.entries(&self.lines, base).map(|(key, _)| Bounds::one(key));
        let held = held.reduce(Bounds::and);
        let all = held.map_or(block, |held| held.and(block));
        // As many as before if that leaves a good part of them free, otherwise at least twice as
        // many, lest it be done again for every few keys.
        let moves = self.len == 0 || all.width() < old.slots() as u64 / 4 * 3;
        let least = if moves { old.slots() } else { 2 * old.slots() };
        let slots = all.slots(slots_max).map(|slots| slots.max(least));
        let span = slots.filter(|slots| *slots <= slots_max).map(|slots| all.span(slots, held));
        let lines = match span {
            Some(span) => span.filled(old.entries(&self.lines, base)),
            None => {
                let mut lines = Lines::empty();
                lines.grow(buckets);
                lines
            }
        };
        let old_lines = std::mem::replace(&mut self.lines, lines);
        self.growths += u64::from(self.bytes() > old_lines.bytes());
        self.span = span;
        if span.is_none() {
            self.sparse = self.len > 0;
            self.grow_at = capacity(buckets);
            for (key, row) in old.entries(&old_lines, base) {
                self.put_back(hash_word(key) >> 32 << 32 | u64::from(row));
            }
        }
    }

    /// So many keys are absent from now on, in an index with slots: the rest is found as before.
    pub(crate) fn forget(&mut self, count: usize) {
        debug_assert!(self.is_direct());
        self.len -= count;
    }

    /// As [`Index::enter`], where keys have slots.
    pub(crate) fn enter_slots<E: Entrants>(&mut self, words: &[u64], base: RowId, mut keys: E) {
        let span = self.span.expect("an index with slots");
        assert!(words.len() <= BLOCK_ROWS, "a block of keys");
        debug_assert!(span.covers(words), "room was reserved");
        let start = self.lines.start_mut().cast::<RowId>();
        for (i, word) in words.iter().enumerate() {
            // SAFETY: a slot's number is one of the span's, whose lines these are.
            let slot = unsafe { &mut *start.add(span.slot(*word)) };
            if *slot >= base {
                let met = keys.meets(i, *slot);
                debug_assert!(met, "a slot is one key's");
            } else {
                *slot = keys.enters(i);
            }
        }
        self.len += keys.done();
    }
}

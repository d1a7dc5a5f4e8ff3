//! Direct addressing: where keys are whole numbers close together, an index has a slot for each number of a
//! span, which holds the row's number; nothing is hashed and nothing compared (in databases: *perfect hash
//! aggregation*).
//!
//! An index changes to it when it has to grow and the slots take no more memory than buckets would, and
//! back when a key comes that lies too far off. A slot of a row number below the log's base is *absent*, as
//! with buckets.

use crate::log::RowId;
use crate::memory::{Line, Lines};

/// Slots in a cache line.
pub(crate) const LINE_SLOTS: usize = size_of::<Line>() / size_of::<RowId>();

/// The keys that slots stand for: so many from `low` on. Keys are taken for signed numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    low: i64,
    /// A power of two, whole lines.
    slots: usize,
}

/// The smallest and the greatest of some keys.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    low: i64,
    high: i64,
}

impl Bounds {
    /// `None` if there are no keys.
    pub(crate) fn of(words: &[u64]) -> Option<Bounds> {
        let first = *words.first()? as i64;
        let start = Bounds { low: first, high: first };
        Some(words.iter().fold(start, |all, word| all.with(*word)))
    }

    /// These, and a key more.
    pub(crate) fn with(self, word: u64) -> Bounds {
        Bounds { low: self.low.min(word as i64), high: self.high.max(word as i64) }
    }

    /// How far apart they are.
    pub(crate) fn width(self) -> u64 {
        self.high.wrapping_sub(self.low) as u64
    }

    /// A span of all keys between them, of `slots_max` slots at the most.
    pub(crate) fn span(self, slots_max: usize) -> Option<Span> {
        if self.width() >= slots_max as u64 {
            return None;
        }
        let slots = (self.width() as usize + 1).next_power_of_two().max(LINE_SLOTS);
        // Rather from a multiple on: what comes later is most likely beside what is there.
        let aligned = self.low & !(slots as i64 - 1);
        let low =
            if self.high.wrapping_sub(aligned) as u64 >= slots as u64 { self.low } else { aligned };
        (slots <= slots_max).then_some(Span { low, slots })
    }
}

impl Span {
    /// Whether it has slots for all these keys.
    #[inline]
    pub(crate) fn covers(&self, words: &[u64]) -> bool {
        let low = self.low as u64;
        let offsets = words.iter().fold(0, |all, word| all | word.wrapping_sub(low));
        // The number of slots is a power of two.
        offsets < self.slots as u64
    }

    pub(crate) fn lines(&self) -> usize {
        self.slots / LINE_SLOTS
    }

    /// The number of a key's slot; of a key that the span does not cover, any.
    #[inline(always)]
    pub(crate) fn slot(&self, word: u64) -> usize {
        word.wrapping_sub(self.low as u64) as usize & (self.slots - 1)
    }

    /// The keys and rows that stand in the slots and are present.
    pub(crate) fn entries(self, lines: &Lines, base: RowId) -> impl Iterator<Item = (u64, RowId)> {
        assert!(lines.count() >= self.lines(), "a slot for every key");
        let start = lines.start().cast::<RowId>();
        // SAFETY: there are so many slots.
        let rows = (0..self.slots).map(move |slot| (slot, unsafe { *start.add(slot) }));
        let present = rows.filter(move |(_, row)| *row >= base);
        present.map(move |(slot, row)| ((self.low as u64).wrapping_add(slot as u64), row))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every key between the bounds has a slot of its own, wherever they lie, and none beyond is covered.
    #[test]
    fn a_span_has_a_slot_for_each_key() {
        let ends = [(0, 99), (3, 9_990), (-5, 10), (1 << 40, (1 << 40) + 77), (100, 8_292), (7, 7)];
        let extremes = [(i64::MIN, i64::MIN + 40), (i64::MAX - 20, i64::MAX)];
        for (low, high) in ends.into_iter().chain(extremes) {
            let keys: Vec<u64> = (low..=high).map(|key| key as u64).collect();
            let bounds = Bounds::of(&[keys[keys.len() - 1], keys[0]]).expect("two keys");
            let span = bounds.span(1 << 14).expect("room");
            assert!(span.covers(&keys), "{low}..={high}: {span:?}");
            assert!(
                span.slots < 2 * keys.len().max(LINE_SLOTS)
                    && span.slots.is_multiple_of(LINE_SLOTS)
            );
            let slots: std::collections::HashSet<usize> =
                keys.iter().map(|key| span.slot(*key)).collect();
            assert_eq!(slots.len(), keys.len());
            let end = span.low.wrapping_add(span.slots as i64);
            assert!(span.covers(&[span.low as u64, end.wrapping_sub(1) as u64]));
            assert!(!span.covers(&[span.low.wrapping_sub(1) as u64]));
            assert!(!span.covers(&[end as u64]));
        }
    }

    #[test]
    fn keys_too_far_apart_have_no_span() {
        for (keys, slots_max) in
            [([0, 1024], 1024), ([0, 1000], 512), ([1 << 63, (1 << 63) - 1], 1 << 20)]
        {
            assert_eq!(Bounds::of(&keys).expect("two keys").span(slots_max), None);
        }
        assert!(Bounds::of(&[0, 1023]).expect("two keys").span(1024).is_some());
        assert!(Bounds::of(&[]).is_none());
    }
}

//! Direct addressing: where keys are integers in a dense range, an index has one slot for each
//! number of the range, which holds the row's number. Nothing is hashed or compared. (Databases
//! call this *perfect hash aggregation*.)
//!
//! An index changes to slots when it has to grow and slots take no more memory than buckets would.
//! It changes back when a key is too far outside of the range. As with buckets, a slot whose row
//! number is below the log's base is *absent*.

use crate::memory::log::RowId;
use crate::memory::pages::{Line, Lines};

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
        words.iter().map(|word| Bounds::one(*word)).reduce(Bounds::and)
    }

    pub(crate) fn one(word: u64) -> Bounds {
        Bounds { low: word as i64, high: word as i64 }
    }

    /// How far apart they are.
    pub(crate) fn width(self) -> u64 {
        self.high.wrapping_sub(self.low) as u64
    }

    /// All of these and those.
    pub(crate) fn and(self, other: Bounds) -> Bounds {
        Bounds { low: self.low.min(other.low), high: self.high.max(other.high) }
    }

    /// How many slots it takes for all keys between them, if that is no more than `slots_max`.
    pub(crate) fn slots(self, slots_max: usize) -> Option<usize> {
        if self.width() >= slots_max as u64 {
            return None;
        }
        let slots = (self.width() as usize + 1).next_power_of_two().max(LINE_SLOTS);
        (slots <= slots_max).then_some(slots)
    }

    /// A span of so many slots, a power of two and enough for all keys between them. Most of the
    /// room that is left lies on the side on which `held`, some of these keys, have been exceeded:
    /// more will come there.
    pub(crate) fn span(self, slots: usize, held: Option<Bounds>) -> Span {
        debug_assert!(slots.is_power_of_two() && self.width() < slots as u64);
        let spare = slots as i64 - 1 - self.width() as i64;
        let exceeded = held.map(|held| (self.low < held.low, self.high > held.high));
        let low = match exceeded {
            Some((true, false)) => self.low.wrapping_sub(spare - spare / 4),
            Some((false, true)) => self.low.wrapping_sub(spare / 4),
            Some((true, true)) => self.low.wrapping_sub(spare / 2),
            _ => {
                // Rather from a multiple on: what comes later is most likely beside what is there.
                let aligned = self.low & !(slots as i64 - 1);
                let covers = (self.high.wrapping_sub(aligned) as u64) < slots as u64;
                if covers { aligned } else { self.low }
            }
        };
        Span { low, slots }
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

    pub(crate) fn slots(&self) -> usize {
        self.slots
    }

    pub(crate) fn lines(&self) -> usize {
        self.slots / LINE_SLOTS
    }

    /// Slots for keys that the span covers, with their rows.
    pub(crate) fn filled(&self, entries: impl Iterator<Item = (u64, RowId)>) -> Lines {
        let mut lines = Lines::empty();
        lines.grow(self.lines());
        let start = lines.start_mut().cast::<RowId>();
        // SAFETY: a slot's number is one of the span's, whose lines these are.
        entries.for_each(|(key, row)| unsafe { *start.add(self.slot(key)) = row });
        lines
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

    /// Every key between the bounds has a slot of its own, wherever they lie, and none beyond is
    /// covered.
    #[test]
    fn a_span_has_a_slot_for_each_key() {
        let ends = [(0, 99), (3, 9_990), (-5, 10), (1 << 40, (1 << 40) + 77), (100, 8_292), (7, 7)];
        let extremes = [(i64::MIN, i64::MIN + 40), (i64::MAX - 20, i64::MAX)];
        for (low, high) in ends.into_iter().chain(extremes) {
            let keys: Vec<u64> = (low..=high).map(|key| key as u64).collect();
            let bounds = Bounds::of(&[keys[keys.len() - 1], keys[0]]).expect("two keys");
            let span = bounds.span(bounds.slots(1 << 14).expect("room"), None);
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
        let cases = [([0, 1024], 1024), ([0, 1000], 512), ([1 << 63, (1 << 63) - 1], 1 << 20)];
        for (keys, slots_max) in cases {
            assert_eq!(Bounds::of(&keys).expect("two keys").slots(slots_max), None);
        }
        assert_eq!(Bounds::of(&[0, 1023]).expect("two keys").slots(1024), Some(1024));
        assert!(Bounds::of(&[]).is_none());
    }

    /// Where keys have come that lie below or above, there is room for more.
    #[test]
    fn room_lies_where_more_will_come() {
        let bounds = |low: i64, high: i64| Bounds { low, high };
        for (low, high) in [(0, 99), (-5, 10), (i64::MIN, i64::MIN + 50), (i64::MAX - 50, i64::MAX)]
        {
            let held = bounds(low, high);
            for (below, above) in [(0, 20), (20, 0), (20, 20)] {
                let Some((low, high)) = low.checked_sub(below).zip(high.checked_add(above)) else {
                    continue;
                };
                let all = held.and(bounds(low, high));
                let span = all.span(256, Some(held));
                let keys: Vec<u64> = (low..=high).map(|key| key as u64).collect();
                assert!(span.covers(&keys));
                let more = |by: i64| (1..=30).map(move |i| (by * i) as u64);
                let further: Vec<u64> = more(-1).map(|d| (low as u64).wrapping_add(d)).collect();
                assert!(below == 0 || span.covers(&further), "{all:?} {span:?}");
                let further: Vec<u64> = more(1).map(|d| (high as u64).wrapping_add(d)).collect();
                assert!(above == 0 || span.covers(&further), "{all:?} {span:?}");
            }
        }
    }
}

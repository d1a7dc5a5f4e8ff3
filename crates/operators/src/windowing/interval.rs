//! Interval joins: the slices that a row of the other side may have partners in.

use std::ops::Range;

use millstream_state::hash_words;

use super::{SliceId, Windowing, WindowingKind};
use crate::event_time::USABLE;

impl Windowing {
    /// The first start, and the last, of the slices of an interval join whose rows may meet a row
    /// of the side that is not the anchor, with a time between these.
    pub(crate) fn starts_meeting(&self, earliest: i64, latest: i64) -> (i64, i64) {
        let (before_us, after_us) = match self.kind {
            WindowingKind::Interval(interval) => (interval.before_us, interval.after_us),
            _ => (0, 0),
        };
        let first = self.slice_of(earliest.saturating_sub(after_us).clamp(-USABLE, USABLE)).start;
        let last = latest.saturating_add(before_us).clamp(-USABLE, USABLE);
        let size_us = self.slices.as_ref().map_or(1, |slices| slices.size_us).max(1);
        (first, if first <= last { last - last.saturating_sub(first) % size_us } else { last })
    }

    /// The leader of a slice, of so many, where slices have leaders, and not keys. Of slices that
    /// follow each other, each leader has one, in an order that changes, since the busiest slices
    /// may follow each other at even distances.
    pub(crate) fn leader_of(&self, slice: SliceId, leaders: usize) -> usize {
        let size_us = self.slices.as_ref().map_or(1, |slices| slices.size_us);
        let (number, leaders) = (slice.0.div_euclid(size_us), leaders as i64);
        let turn = hash_words(&[number.div_euclid(leaders) as u64]) as i64;
        number.wrapping_add(turn).rem_euclid(leaders) as usize
    }

    /// Times of rows that meet slices from the first to the last of these starts.
    pub(crate) fn times_meeting(&self, (first, last): (i64, i64)) -> Range<i64> {
        let (before_us, after_us) = match self.kind {
            WindowingKind::Interval(interval) => (interval.before_us, interval.after_us),
            _ => (0, 0),
        };
        if first > last {
            return 0..0;
        }
        let size_us = self.slices.as_ref().map_or(1, |slices| slices.size_us);
        let [from_first, from_last] =
            [first.saturating_add(after_us), last.saturating_sub(before_us)];
        let end = from_first.min(from_last).saturating_add(size_us);
        from_first.max(from_last)..end
    }

    /// The slices with these starts.
    pub(crate) fn slices_from(&self, (first, last): (i64, i64)) -> impl Iterator<Item = SliceId> {
        let size_us = self.slices.as_ref().map_or(1, |slices| slices.size_us);
        let starts = (first..=last).step_by(usize::try_from(size_us).unwrap_or(usize::MAX));
        starts.map(|start| if self.is_whole() { SliceId::WHOLE } else { SliceId(start) })
    }
}

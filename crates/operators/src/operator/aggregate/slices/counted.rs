//! The memory of all slices, of which there may be many: only slices that have changed are looked
//! into, and neither a batch nor a window that fires costs something for each open slice.

use std::collections::BTreeMap;

use millstream_state::Load;

use super::slice::Slice;
use crate::budget::Usage;
use crate::passed::Passing;
use crate::windowing::SliceId;

/// Of so few slices maxima are found each time, of more only now and then: meanwhile, they may be
/// those of slices that are gone.
const FEW: usize = 64;

/// Slices that have not changed since they were counted, all together, and those that have.
#[derive(Default)]
pub(super) struct Counted {
    /// Sums of what adds up, and maxima of the rest.
    all: Usage,
    /// How many of them hold rows for other leaders.
    holding: usize,
    changed: Vec<SliceId>,
    /// Changes since maxima were found.
    changes: usize,
    /// True after a change of a slice with the maximum of bytes for other leaders: the end of an
    /// epoch depends on these maxima.
    is_stale: bool,
    /// The next input, and the one for which there should be room.
    loads: [Load; 2],
}

impl Counted {
    /// A slice has been opened.
    pub(super) fn open(&mut self, id: SliceId) {
        self.changed.push(id);
    }

    /// A slice changes.
    pub(super) fn change(&mut self, id: SliceId, slice: &mut Slice) {
        let Some((own, holds)) = slice.counted.take() else { return };
        self.all.bytes -= own.bytes;
        self.all.live_bytes -= own.live_bytes;
        self.all.keys -= own.keys;
        self.holding -= usize::from(holds);
        let all = &self.all;
        let is_most = |own: u64, most: u64| own > 0 && own >= most;
        self.is_stale |= is_most(own.largest_fragment_bytes, all.largest_fragment_bytes)
            || is_most(own.largest_passed_bytes, all.largest_passed_bytes)
            || is_most(own.largest_kept_bytes, all.largest_kept_bytes);
        self.changes += 1;
        self.changed.push(id);
    }

    /// Whether a slice holds rows for other leaders.
    pub(super) fn holds_for_others(&self, slices: &BTreeMap<SliceId, Slice>) -> bool {
        let holds = |id: &SliceId| slices.get(id).is_some_and(Slice::has_rows_of_others);
        self.holding > 0 || self.changed.iter().any(holds)
    }

    /// Counts all slices: their growth by the `next` input, and by that for which there should be
    /// `room`.
    pub(super) fn count(
        &mut self,
        slices: &mut BTreeMap<SliceId, Slice>,
        [next, room]: [Load; 2],
        passing: Option<&Passing>,
    ) -> Usage {
        if self.loads != [next, room] {
            self.loads = [next, room];
            slices.iter_mut().for_each(|(id, slice)| self.change(*id, slice));
        }
        for id in std::mem::take(&mut self.changed) {
            let Some(slice) = slices.get_mut(&id).filter(|slice| slice.counted.is_none()) else {
                continue;
            };
            let (own, holds) = (slice.usage(next, room, passing), slice.has_rows_of_others());
            slice.counted = Some((own, holds));
            self.all.bytes += own.bytes;
            self.all.live_bytes += own.live_bytes;
            self.all.keys += own.keys;
            self.holding += usize::from(holds);
            self.all.take_maxima(&own);
        }
        if slices.len() <= FEW || self.is_stale || self.changes > slices.len() / 4 {
            (self.changes, self.is_stale) = (0, false);
            let Usage { bytes, live_bytes, keys, .. } = self.all;
            self.all = Usage { bytes, live_bytes, keys, ..Usage::default() };
            let counted = slices.values().filter_map(|slice| slice.counted.as_ref());
            counted.for_each(|(own, _)| self.all.take_maxima(own));
        }
        self.all
    }
}

impl Usage {
    /// Takes what is greater in `other`, of what does not add up.
    pub(super) fn take_maxima(&mut self, other: &Usage) {
        if other.growth_bytes > self.growth_bytes {
            self.growth_bytes = other.growth_bytes;
            self.batch_growth_bytes = other.batch_growth_bytes;
        }
        self.room_bytes = self.room_bytes.max(other.room_bytes);
        self.largest_fragment_bytes = self.largest_fragment_bytes.max(other.largest_fragment_bytes);
        self.largest_passed_bytes = self.largest_passed_bytes.max(other.largest_passed_bytes);
        self.largest_kept_bytes = self.largest_kept_bytes.max(other.largest_kept_bytes);
    }
}

//! The memory of all slices, of which there may be many: only changed slices are counted again, and
//! neither a batch nor a window that fires costs something for each open slice.

use std::collections::BTreeMap;

use millstream_state::Load;

use super::slice::Slice;
use crate::budget::Usage;
use crate::passed::PassedBuffers;
use crate::windowing::SliceId;

/// Slices that have not changed since they were counted, all together, and those that have.
#[derive(Default)]
pub(super) struct Counted {
    /// Sums of bytes and keys.
    sums: Usage,
    /// For each number of a usage that does not add up: how many slices have which value.
    values: [BTreeMap<[u64; 2], usize>; 5],
    /// How many of them hold rows for other leaders.
    holding: usize,
    changed: Vec<SliceId>,
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
        let before = slice.take_counted(false);
        self.subtract(id, before);
    }

    /// Only the table of a slice changes.
    pub(super) fn change_table(&mut self, id: SliceId, slice: &mut Slice) {
        let before = slice.take_counted(true);
        self.subtract(id, before);
    }

    fn subtract(&mut self, id: SliceId, before: Option<(Usage, bool)>) {
        let Some((own, holds)) = before else { return };
        self.sums.bytes -= own.bytes;
        self.sums.live_bytes -= own.live_bytes;
        self.sums.keys -= own.keys;
        self.holding -= usize::from(holds);
        for (values, own) in self.values.iter_mut().zip(own.maxima()) {
            if let Some(slices) = values.get_mut(&own) {
                *slices -= 1;
                if *slices == 0 {
                    values.remove(&own);
                }
            }
        }
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
        passing: Option<&PassedBuffers>,
    ) -> Usage {
        if self.loads != [next, room] {
            self.loads = [next, room];
            slices.iter_mut().for_each(|(id, slice)| self.change(*id, slice));
        }
        for id in std::mem::take(&mut self.changed) {
            let Some(slice) = slices.get_mut(&id).filter(|slice| slice.counted.is_none()) else {
                continue;
            };
            let (own, holds) = slice.count(next, room, passing);
            self.sums.bytes += own.bytes;
            self.sums.live_bytes += own.live_bytes;
            self.sums.keys += own.keys;
            self.holding += usize::from(holds);
            for (values, own) in self.values.iter_mut().zip(own.maxima()) {
                *values.entry(own).or_default() += 1;
            }
        }
        let greatest = |number: usize| self.values[number].keys().next_back().copied();
        let [growth, room, fragment, passed, kept] =
            [0, 1, 2, 3, 4].map(|number| greatest(number).unwrap_or_default());
        Usage {
            growth_bytes: growth[0],
            batch_growth_bytes: growth[1],
            room_bytes: room[0],
            largest_fragment_bytes: fragment[0],
            largest_passed_bytes: passed[0],
            largest_kept_bytes: kept[0],
            ..self.sums
        }
    }
}

impl Usage {
    /// Numbers of which the greatest counts, the first with the part for more than one key.
    fn maxima(&self) -> [[u64; 2]; 5] {
        let Usage { largest_fragment_bytes, largest_passed_bytes, largest_kept_bytes, .. } = *self;
        [
            [self.growth_bytes, self.batch_growth_bytes],
            [self.room_bytes, 0],
            [largest_fragment_bytes, 0],
            [largest_passed_bytes, 0],
            [largest_kept_bytes, 0],
        ]
    }
}

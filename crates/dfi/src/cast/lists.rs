//! The lists of a target (thesis, figure 7.6): segments move by their slots' numbers, and nothing
//! is copied.

use std::collections::VecDeque;

/// No slot.
const NONE: u32 = u32::MAX;

/// An arrived segment and its slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Arrival {
    pub(crate) slot: u32,
    pub(crate) source: u16,
    pub(crate) fill: u16,
    /// Number within the source's stream.
    pub(crate) number: u64,
    /// Number in the order of the list: the flow's, or the source's.
    pub(crate) place: u64,
}

/// The *receive list*: in the order of arrival.
pub(crate) type ReceiveList = VecDeque<Arrival>;

/// The *next list*: what has arrived too early, in the order of the numbers.
pub(crate) struct NextList {
    arrivals: Box<[Arrival]>,
    /// Number of the segment that is to be consumed next.
    pub(crate) next: u64,
}

impl NextList {
    /// A list for so many numbers.
    pub(crate) fn new(numbers: usize) -> NextList {
        let none = Arrival { slot: NONE, source: 0, fill: 0, number: 0, place: 0 };
        NextList { arrivals: vec![none; numbers].into(), next: 0 }
    }

    fn index(&self, place: u64) -> usize {
        (place % self.arrivals.len() as u64) as usize
    }

    /// Whether there is room for a segment of this number.
    pub(crate) fn has_room_for(&self, place: u64) -> bool {
        let ahead = place.wrapping_sub(self.next);
        ahead < self.arrivals.len() as u64 && self.arrivals[self.index(place)].slot == NONE
    }

    /// Moves a segment here, for which there is room.
    pub(crate) fn put(&mut self, arrival: Arrival) {
        let index = self.index(arrival.place);
        self.arrivals[index] = arrival;
    }

    /// Takes the next segment, if it is here.
    pub(crate) fn take(&mut self) -> Option<Arrival> {
        let index = self.index(self.next);
        let arrival = self.arrivals[index];
        if arrival.slot == NONE {
            return None;
        }
        self.arrivals[index].slot = NONE;
        self.next += 1;
        Some(arrival)
    }

    /// Takes all segments, in any order.
    pub(crate) fn clear(&mut self) -> impl Iterator<Item = u32> + '_ {
        let taken = self.arrivals.iter_mut().map(|one| std::mem::replace(&mut one.slot, NONE));
        taken.filter(|slot| *slot != NONE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_leave_in_the_order_of_their_numbers() {
        let mut list = NextList::new(4);
        let arrival =
            |place| Arrival { slot: 10 + place as u32, source: 0, fill: 8, number: place, place };
        for place in [2, 0, 3] {
            assert!(list.has_room_for(place));
            list.put(arrival(place));
        }
        assert!(!list.has_room_for(2), "drawn twice");
        assert!(!list.has_room_for(4), "too far ahead");
        assert_eq!(list.take(), Some(arrival(0)));
        assert_eq!(list.take(), None);
        assert!(!list.has_room_for(0), "before the next");
        list.put(arrival(1));
        assert_eq!([list.take(), list.take()], [Some(arrival(1)), Some(arrival(2))]);
        assert_eq!(list.clear().collect::<Vec<_>>(), [13]);
        assert_eq!(list.take(), None);
    }
}

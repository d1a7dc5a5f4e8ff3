//! The next list of a target (thesis, figure 7.6): segments move by their place in memory, and
//! nothing is copied.

/// Early segments, in the order of their numbers.
pub(crate) struct NextList<T> {
    arrivals: Box<[Option<T>]>,
    waiting: usize,
    /// Number of the segment that is to be consumed next.
    pub(crate) next: u64,
}

impl<T: Copy> NextList<T> {
    /// A list for so many numbers.
    pub(crate) fn new(numbers: usize) -> NextList<T> {
        NextList { arrivals: vec![None; numbers].into(), waiting: 0, next: 0 }
    }

    fn index(&self, number: u64) -> usize {
        (number % self.arrivals.len() as u64) as usize
    }

    /// Whether there is room for a segment of this number.
    pub(crate) fn has_room_for(&self, number: u64) -> bool {
        let ahead = number.wrapping_sub(self.next);
        ahead < self.arrivals.len() as u64 && self.arrivals[self.index(number)].is_none()
    }

    /// Moves a segment here, for which there is room.
    pub(crate) fn put(&mut self, number: u64, arrival: T) {
        let index = self.index(number);
        self.arrivals[index] = Some(arrival);
        self.waiting += 1;
    }

    /// Takes the next segment, if it is here.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<T> {
        let index = self.index(self.next);
        let arrival = self.arrivals[index].take()?;
        self.waiting -= 1;
        self.next += 1;
        Some(arrival)
    }

    /// Any early segment.
    pub(crate) fn any(&self) -> Option<T> {
        if self.waiting == 0 { None } else { self.arrivals.iter().copied().flatten().next() }
    }

    /// Takes all segments, in any order.
    pub(crate) fn clear(&mut self) -> impl Iterator<Item = T> + '_ {
        self.waiting = 0;
        self.arrivals.iter_mut().filter_map(Option::take)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_leave_in_the_order_of_their_numbers() {
        let mut list = NextList::new(4);
        for number in [2, 0, 3] {
            assert!(list.has_room_for(number));
            list.put(number, 10 + number);
        }
        assert!(!list.has_room_for(2), "drawn twice");
        assert!(!list.has_room_for(4), "too far ahead");
        assert_eq!((list.take(), list.take()), (Some(10), None));
        assert!(!list.has_room_for(0), "before the next");
        list.put(1, 11);
        assert_eq!([list.take(), list.take()], [Some(11), Some(12)]);
        assert_eq!(list.any(), Some(13));
        assert_eq!(list.clear().collect::<Vec<_>>(), [13]);
        assert_eq!((list.take(), list.any()), (None, None));
    }
}

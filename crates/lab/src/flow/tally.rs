//! Counts and sums of sent and received tuples, which have to agree.

use serde::{Deserialize, Serialize};

use crate::tuple::weight;

/// Count and sum of tuples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Tally {
    /// How many.
    pub count: u64,
    /// Sum of a weight of each.
    pub sum: u64,
}

impl Tally {
    /// Adds a tuple.
    #[inline(always)]
    pub(super) fn add(&mut self, key: u64, number: u64) {
        self.count += 1;
        self.sum = self.sum.wrapping_add(weight(key, number));
    }

    /// Adds the tuples of a batch.
    #[inline(never)]
    pub(super) fn add_all<const W: usize>(&mut self, bytes: &[u8]) {
        let tuples = bytes.chunks_exact(8 * W);
        self.count += tuples.len() as u64;
        self.sum = tuples.fold(self.sum, |sum, tuple| {
            let word = |at: usize| {
                tuple[8 * at..].first_chunk().map_or(0, |word| u64::from_ne_bytes(*word))
            };
            sum.wrapping_add(weight(word(0), word(1)))
        });
    }

    /// Both together.
    pub(super) fn plus(self, other: Tally) -> Tally {
        Tally { count: self.count + other.count, sum: self.sum.wrapping_add(other.sum) }
    }

    /// So many copies.
    pub(super) fn times(self, copies: u64) -> Tally {
        Tally { count: self.count * copies, sum: self.sum.wrapping_mul(copies) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_add_up_to_their_tuples() {
        let (mut all, mut one) = (Tally::default(), Tally::default());
        let tuples = [[1_u64, 2, 0, 0], [3, 4, 0, 0]];
        let bytes: Vec<u8> = tuples.iter().flatten().flat_map(|word| word.to_ne_bytes()).collect();
        all.add_all::<4>(&bytes);
        one.add(1, 2);
        one.add(3, 4);
        assert_eq!((all, all.count), (one, 2));
        assert_eq!(all.times(2), one.plus(all));
    }
}

//! Marks of the changed members of a set: a walk over marks instead of members.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};

/// Marked members of a set, a bit for each.
pub(super) struct Marks(Vec<AtomicU64>);

impl Marks {
    /// None of so many members is marked.
    pub(super) fn new(members: usize) -> Marks {
        Marks((0..members.div_ceil(64)).map(|_| AtomicU64::new(0)).collect())
    }

    /// Marks a member.
    pub(super) fn mark(&self, member: usize) {
        let (word, bit) = (&self.0[member / 64], 1 << (member % 64));
        word.fetch_or(bit, AcqRel);
    }

    /// Takes the marks of all members that have one now, in ascending order.
    pub(super) fn take(&self) -> impl Iterator<Item = usize> + '_ {
        let marked = self.0.iter().enumerate().filter(|(_, word)| word.load(Relaxed) != 0);
        marked
            .flat_map(|(number, word)| Bits(word.swap(0, AcqRel)).map(move |bit| 64 * number + bit))
    }
}

/// Numbers of the set bits of a word, ascending.
struct Bits(u64);

impl Iterator for Bits {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let bit = self.0.trailing_zeros();
        self.0 &= self.0.wrapping_sub(1);
        (bit < 64).then_some(bit as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mark_is_taken_once() {
        for members in [1, 63, 64, 65, 640] {
            let marks = Marks::new(members);
            let some: Vec<usize> = (0..members).filter(|m| m % 7 == 0 || m % 64 == 63).collect();
            for _ in 0..2 {
                some.iter().rev().for_each(|member| marks.mark(*member));
                marks.mark(some[0]);
                assert_eq!(marks.take().collect::<Vec<_>>(), some);
                assert_eq!(marks.take().next(), None);
            }
        }
    }

    /// Marks set while others are taken stay for the next time.
    #[test]
    fn marks_may_be_set_again_while_they_are_taken() {
        let marks = Marks::new(130);
        [3, 64, 129].into_iter().for_each(|member| marks.mark(member));
        let taken: Vec<usize> = marks.take().inspect(|member| marks.mark(member % 64)).collect();
        assert_eq!(taken, [3, 64, 129]);
        assert_eq!(marks.take().collect::<Vec<_>>(), [0, 1, 3]);
    }
}

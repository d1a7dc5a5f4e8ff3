//! Which messages of a stream of datagrams have come, by their numbers.

use std::collections::VecDeque;

/// Numbers from `first` on; those before have all come.
pub struct Window {
    first: u64,
    seen: VecDeque<bool>,
    /// A number so far ahead of a gap means that the gap is a loss: no network delays a message for
    /// as long as eight times all others that can be under way.
    most: usize,
}

/// Meaning of a number.
#[derive(Debug, PartialEq, Eq)]
pub enum Seen {
    /// First appearance of the number.
    New,
    /// A repetition.
    Before,
    /// The message of this number has not come and never will.
    Gap(u64),
}

impl Window {
    /// For so many messages under way.
    pub fn new(under_way: u32) -> Window {
        let most = (8 * under_way as usize).max(64);
        Window { first: 0, seen: VecDeque::with_capacity(most), most }
    }

    /// The first number that has not come.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// The numbers before `end` that have not come, in order.
    pub fn missing(&self, end: u64) -> impl Iterator<Item = u64> + '_ {
        let has_come = |number: &u64| self.seen.get((number - self.first) as usize) == Some(&true);
        (self.first..end).filter(move |number| !has_come(number))
    }

    /// Waits no longer for numbers before `first`: they count as come.
    pub fn give_up(&mut self, first: u64) {
        while self.first < first {
            if self.seen.pop_front().is_none() {
                self.first = first;
                return;
            }
            self.first += 1;
        }
        self.skip();
    }

    /// Moves beyond what has come.
    fn skip(&mut self) {
        while self.seen.front() == Some(&true) {
            self.seen.pop_front();
            self.first += 1;
        }
    }

    /// The same, with all before this number come.
    #[cfg(test)]
    pub(super) fn from(self, first: u64) -> Window {
        Window { first, ..self }
    }

    /// A message of this number (its low 32 bits) has come.
    pub fn see(&mut self, number: u32) -> Seen {
        // The distance from the first missing one, as a signed number.
        let ahead = number.wrapping_sub(self.first as u32) as i32;
        let Ok(ahead) = usize::try_from(ahead) else { return Seen::Before };
        if ahead >= self.most {
            return Seen::Gap(self.first);
        }
        if self.seen.len() <= ahead {
            self.seen.resize(ahead + 1, false);
        }
        if std::mem::replace(&mut self.seen[ahead], true) {
            return Seen::Before;
        }
        self.skip();
        Seen::New
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_new_once_in_any_order() {
        let mut window = Window::new(4);
        for number in [1, 0, 3, 5, 2] {
            assert_eq!(window.see(number), Seen::New, "{number}");
            assert_eq!(window.see(number), Seen::Before, "{number}");
        }
        assert_eq!(window.first, 4);
        assert_eq!(window.see(4), Seen::New);
        assert_eq!(window.first, 6);
    }

    #[test]
    fn a_gap_is_a_loss_when_too_much_has_come_behind_it() {
        let mut window = Window::new(1);
        assert_eq!(window.see(0), Seen::New);
        for number in 2..65 {
            assert_eq!(window.see(number), Seen::New, "{number}");
        }
        assert_eq!(window.see(65), Seen::Gap(1));
    }

    #[test]
    fn missing_numbers_are_listed_and_given_up() {
        let mut window = Window::new(4);
        for number in [0, 2, 5] {
            assert_eq!(window.see(number), Seen::New, "{number}");
        }
        assert_eq!(window.missing(7).collect::<Vec<_>>(), [1, 3, 4, 6]);
        window.give_up(2);
        assert_eq!(window.first(), 3, "2 has come");
        window.give_up(5);
        assert_eq!(window.first(), 6, "5 has come");
        assert_eq!(window.see(3), Seen::Before);
        window.give_up(90);
        assert_eq!((window.first(), window.missing(90).count()), (90, 0));
        assert_eq!(window.see(90), Seen::New);
    }

    #[test]
    fn numbers_wrap() {
        let mut window = Window::new(4).from(u64::from(u32::MAX));
        assert_eq!(window.see(u32::MAX), Seen::New);
        assert_eq!(window.see(0), Seen::New);
        assert_eq!(window.see(u32::MAX), Seen::Before);
        assert_eq!(window.first, u64::from(u32::MAX) + 2);
    }
}

//! The answers that NOPaxos' leader remembers, because a client may send a request again.

use std::collections::HashMap;

/// A client sends no request that is so many numbers beyond its first request without an answer.
/// So the leader remembers as many answers for each client, and no more.
pub(crate) const WINDOW: u64 = 64;

/// A request's number, and the answer's value.
type Numbered = (u64, u64);

/// The last answers to each client.
#[derive(Default)]
pub(crate) struct Answers(HashMap<u64, Box<[Option<Numbered>; WINDOW as usize]>>);

/// The leader's memory of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known {
    /// A new request.
    Nothing,
    /// An executed request, and its answer.
    Answer(u64),
    /// A request of an earlier window, whose answer the client has.
    Past,
}

impl Answers {
    pub(crate) fn find(&self, client: u64, number: u64) -> Known {
        let slots = self.0.get(&client);
        match slots.and_then(|slots| slots[(number % WINDOW) as usize]) {
            Some((found, value)) if found == number => Known::Answer(value),
            Some((found, _)) if found > number => Known::Past,
            _ => Known::Nothing,
        }
    }

    pub(crate) fn put(&mut self, client: u64, number: u64, value: u64) {
        let slots = self.0.entry(client).or_insert_with(|| Box::new([None; WINDOW as usize]));
        slots[(number % WINDOW) as usize] = Some((number, value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answers_of_a_window_are_remembered() {
        let mut answers = Answers::default();
        for number in 0..1000 {
            assert_eq!(answers.find(7, number), Known::Nothing);
            answers.put(7, number, 3 * number);
            for before in number.saturating_sub(WINDOW - 1)..=number {
                assert_eq!(answers.find(7, before), Known::Answer(3 * before));
            }
            if let Some(past) = number.checked_sub(WINDOW) {
                assert_eq!(answers.find(7, past), Known::Past);
            }
        }
        assert_eq!(answers.find(8, 999), Known::Nothing, "another client");
    }
}

//! The slots of the other processes of a job, as this process has been told of them.
//!
//! Each process tells the others of its producers, in a word that replaces the word before. Sums
//! over all words decide when the table begins and ends. A word may be late, so another process may
//! see the begin or the end later, but never before the words that make it up were told.

use std::collections::BTreeMap;

use millstream_contract::{Error, Result};
use serde::{Deserialize, Serialize};

/// The latest word of a process on its slots.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Word {
    /// Where producers find the slots; 0 until the process listens.
    pub(crate) port: u16,
    pub(crate) slots: u64,
    /// Number of joined producers, without the lost ones.
    pub(crate) joined: u64,
    /// Number of streams that have ended well.
    pub(crate) ended: u64,
    /// Number of producers that were given a slot and have joined since, or gone.
    pub(crate) arrived: u64,
}

impl Word {
    pub(crate) fn encode(&self) -> Vec<u8> {
        // Numbers alone, which JSON has.
        serde_json::to_vec(self).unwrap_or_default()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Word> {
        let wrong = |error| Error::Internal(format!("no word of producers: {error}"));
        serde_json::from_slice(bytes).map_err(wrong)
    }

    fn present(&self) -> u64 {
        self.joined.saturating_sub(self.ended)
    }
}

/// The other processes, by number.
#[derive(Debug, Default)]
pub(crate) struct Elsewhere(BTreeMap<usize, OtherSlots>);

#[derive(Debug, Default)]
struct OtherSlots {
    word: Word,
    /// Producers that were sent there. Some may never arrive: the process then counts as having
    /// more producers than it has, and others are preferred.
    sent: u64,
}

impl OtherSlots {
    /// Number of present producers, and of those that were sent there.
    fn producers(&self) -> u64 {
        self.word.present().saturating_add(self.sent.saturating_sub(self.word.arrived))
    }
}

impl Elsewhere {
    pub(crate) fn hear(&mut self, process: usize, word: Word) {
        self.0.entry(process).or_default().word = word;
    }

    /// How many producers of all processes have joined, without the lost ones, and how many have
    /// ended.
    pub(crate) fn with(&self, here: &Word) -> (u64, u64) {
        let words = self.0.values().map(|other| &other.word);
        words.fold((here.joined, here.ended), |(joined, ended), word| {
            (joined.saturating_add(word.joined), ended.saturating_add(word.ended))
        })
    }

    /// Sends a producer to the process with the fewest producers, if that is not this process,
    /// which has `here`; `None`: which has no free slot. Returns the port.
    pub(crate) fn send(&mut self, here: Option<u64>) -> Option<u16> {
        let has_room = |word: &Word| word.port > 0 && word.present() < word.slots;
        let others = self.0.values_mut().filter(|other| has_room(&other.word));
        let fewest = others.min_by_key(|other| other.producers())?;
        if here.is_some_and(|here| here <= fewest.producers()) {
            return None;
        }
        fewest.sent += 1;
        Some(fewest.word.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_with_the_fewest_producers_takes_the_next() {
        let mut elsewhere = Elsewhere::default();
        assert_eq!(elsewhere.send(None), None, "nobody has told a port");
        let word = Word { port: 71, slots: 2, ..Word::default() };
        elsewhere.hear(1, word);
        elsewhere.hear(2, Word { port: 72, ..word });
        assert_eq!(elsewhere.send(Some(0)), None);
        // Producers count from the moment when they are sent.
        assert_eq!([1, 1, 1].map(|here| elsewhere.send(Some(here))), [Some(71), Some(72), None]);
        elsewhere.hear(1, Word { joined: 3, ended: 2, arrived: 3, ..word });
        assert_eq!(elsewhere.send(Some(1)), None, "process 1 has one producer");
        assert_eq!(elsewhere.send(None), Some(71));
        elsewhere.hear(1, Word { joined: 4, ended: 2, arrived: 4, ..word });
        assert_eq!(elsewhere.send(None), Some(72), "process 1 is full");
        elsewhere.hear(2, Word { port: 72, joined: 2, arrived: 2, ..word });
        assert_eq!(elsewhere.send(None), None);
        assert_eq!(elsewhere.with(&Word { joined: 1, ended: 1, ..word }), (7, 3));
    }

    #[test]
    fn a_word_comes_back_and_rubbish_is_refused() {
        let word = Word { port: u16::MAX, slots: 1, joined: u64::MAX, ended: 3, arrived: 4 };
        let bytes = word.encode();
        assert_eq!(Word::decode(&bytes).unwrap(), word);
        for length in 0..bytes.len() {
            assert!(Word::decode(&bytes[..length]).is_err(), "{length} bytes");
        }
        assert!(Word::decode(&[0xff; 40]).is_err());
        let mut elsewhere = Elsewhere::default();
        elsewhere.hear(1, Word { ended: u64::MAX, ..word });
        elsewhere.hear(2, word);
        assert_eq!(elsewhere.with(&word), (u64::MAX, u64::MAX), "they do not overflow");
    }
}

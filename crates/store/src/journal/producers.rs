//! The last sequence numbers of producers.

use std::collections::BTreeMap;

use super::frame::Sequence;

/// Number of producers whose last sequence numbers are kept: the most recent senders.
pub const PRODUCERS_MAX: usize = 1024;

/// The last sequence number of each producer, and a number that tells which has sent last.
#[derive(Debug, Clone, Default)]
pub(super) struct Producers {
    last: BTreeMap<String, (u64, u64)>,
    noted: u64,
}

impl Producers {
    /// From [`Producers::list`].
    pub(super) fn of(list: &[(String, u64)]) -> Producers {
        let mut producers = Producers::default();
        for (producer, number) in list {
            producers.note(Sequence { producer, number: *number });
        }
        producers
    }

    /// Whether an entry with this number, or a greater one, is there.
    pub(super) fn has(&self, sequence: Sequence<'_>) -> bool {
        self.last.get(sequence.producer).is_some_and(|(last, _)| *last >= sequence.number)
    }

    /// Notes a durable entry. Of too many producers the one is forgotten that was silent longest.
    pub(super) fn note(&mut self, sequence: Sequence<'_>) {
        self.noted += 1;
        self.last.insert(sequence.producer.to_string(), (sequence.number, self.noted));
        if self.last.len() > PRODUCERS_MAX {
            let oldest = self.last.iter().min_by_key(|(_, (_, noted))| *noted);
            if let Some(oldest) = oldest.map(|(producer, _)| producer.clone()) {
                self.last.remove(&oldest);
            }
        }
    }

    /// All producers, the least recent sender first.
    pub(super) fn list(&self) -> Vec<(String, u64)> {
        let mut all: Vec<_> = self.last.iter().collect();
        all.sort_by_key(|(_, (_, noted))| *noted);
        all.into_iter().map(|(producer, (number, _))| (producer.clone(), *number)).collect()
    }
}

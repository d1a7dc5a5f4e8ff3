//! Numbers of events in their order.

use std::sync::Arc;

use crate::scheme::Scheme;
use crate::store::hash_of;
use crate::template::{Application, SharedParts};

/// Partitions that a ticket names without allocating memory.
const INLINE: usize = 12;
const NUMBER_BITS: u32 = 52;

/// Turns of a transaction in its partitions: the partition above, the number below.
#[derive(Debug, Clone)]
enum Turns {
    Inline(u8, [u64; INLINE]),
    Many(Vec<u64>),
}

/// An event's number in the order of events and, for PAT, in the order of each of its partitions.
#[derive(Debug, Clone)]
pub struct Ticket {
    order: u64,
    turns: Turns,
}

impl Ticket {
    /// Number in the order of events.
    pub fn order(&self) -> u64 {
        self.order
    }

    pub(crate) fn of(order: u64) -> Ticket {
        Ticket { order, turns: Turns::Inline(0, [0; INLINE]) }
    }

    fn words(&self) -> &[u64] {
        match &self.turns {
            Turns::Inline(count, words) => &words[..usize::from(*count)],
            Turns::Many(words) => words,
        }
    }

    /// Pairs of partition and turn.
    pub(crate) fn turns(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        let number = |word: u64| word & ((1 << NUMBER_BITS) - 1);
        self.words().iter().map(move |word| ((word >> NUMBER_BITS) as usize, number(*word)))
    }

    fn add_turn(&mut self, partition: usize, number: u64) {
        let word = (partition as u64) << NUMBER_BITS | number;
        match &mut self.turns {
            Turns::Inline(count, words) if usize::from(*count) < INLINE => {
                words[usize::from(*count)] = word;
                *count += 1;
            }
            Turns::Inline(_, words) => {
                let mut many = words.to_vec();
                many.push(word);
                self.turns = Turns::Many(many);
            }
            Turns::Many(words) => words.push(word),
        }
    }
}

/// Numbers events: one parser calls it, in the order of events (paper, section 6.1).
///
/// Every ticket must be taken by one worker, and a worker takes its tickets in ascending order:
/// schemes with locks wait for missing numbers.
pub struct Numbering<A: Application> {
    shared: SharedParts<A>,
    scheme: Scheme,
    next: u64,
    /// Next turn of each partition.
    turns: Vec<u64>,
    key: Vec<u64>,
}

impl<A: Application> Numbering<A> {
    pub(crate) fn new(shared: &SharedParts<A>, scheme: Scheme) -> Numbering<A> {
        let partitions = if let Scheme::Pat { partitions } = scheme { partitions } else { 0 };
        let (turns, key) = (vec![0; partitions], Vec::new());
        Numbering { shared: Arc::clone(shared), scheme, next: 0, turns, key }
    }

    /// The ticket of the next event.
    pub fn ticket(&mut self, event: &A::Event) -> Ticket {
        let mut ticket = Ticket::of(self.next);
        self.next += 1;
        let Scheme::Pat { partitions } = self.scheme else { return ticket };
        let number = self.shared.application.program(event);
        let Some(program) = self.shared.programs.get(number) else { return ticket };
        let Numbering { turns, key, .. } = self;
        program.each_instance(event, |_, statement, element| {
            let Some((_, by)) = &statement.access else { return };
            key.resize(by.words, 0);
            (by.compute)(event, element, key);
            let partition = partition_of(hash_of(key), partitions);
            if ticket.turns().all(|(other, _)| other != partition) {
                ticket.add_turn(partition, turns[partition]);
                turns[partition] += 1;
            }
        });
        ticket
    }
}

/// PAT's partition of a key: by simple hashing (section 6.4).
pub fn pat_partition(key: &[u64], partitions: usize) -> usize {
    partition_of(hash_of(key), partitions)
}

fn partition_of(hash: u64, partitions: usize) -> usize {
    ((u128::from(hash) * partitions as u128) >> 64) as usize
}

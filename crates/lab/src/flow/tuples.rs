//! Tuples of the flows' figures: a key without order, a number, and zeros up to the tuple's length.

use std::ops::Range;

use millstream_dfi::{Result, Schema, Source};
use millstream_fabric::Fabric;
use millstream_flow::shuffle::Groups;

use super::failure::{FlowFailure, FlowResult};
use super::tally::Tally;
use crate::tuple::tuple;

/// The lengths of tuples that are measured.
pub(super) const TUPLE_BYTES: [usize; 8] = [16, 32, 64, 128, 256, 512, 1024, 4096];

/// An expression for the words of a tuple, which are known when the program is compiled.
macro_rules! with_words {
    (@ $bytes:expr, $words:ident, $call:expr, $($length:literal)*) => {
        match $bytes {
            $($length => {
                const $words: usize = $length / 8;
                $call
            })*
            other => Err($crate::flow::tuples::other_length(other)),
        }
    };
    ($bytes:expr, $words:ident => $call:expr) => {
        with_words!(@ $bytes, $words, $call, 16 32 64 128 256 512 1024 4096)
    };
}
pub(super) use with_words;

/// Refuses tuples of a length without measurements.
pub(super) fn check(tuple_bytes: usize) -> FlowResult<()> {
    match TUPLE_BYTES.contains(&tuple_bytes) {
        true => Ok(()),
        false => Err(other_length(tuple_bytes)),
    }
}

/// Failure for a length without measurements.
pub(super) fn other_length(tuple_bytes: usize) -> FlowFailure {
    FlowFailure::Option(format!(
        "no figure has tuples of {tuple_bytes} bytes; use one of {TUPLE_BYTES:?}"
    ))
}

/// The schema of tuples of so many bytes, a multiple of 8 and at least 16.
pub(super) fn schema(tuple_bytes: usize) -> Schema {
    let start = Schema::new().u64("key").u64("number");
    (2..tuple_bytes / 8).fold(start, |schema, word| schema.u64(&format!("zero{word}")))
}

/// Tuples of up to so many words are made in registers. Longer tuples keep their zeros in memory.
const FRESH_WORDS: usize = 8;

/// Receivers of a source's tuples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Receivers {
    /// The target of the key's hash.
    ByHash,
    /// One target for all tuples.
    One(usize),
    /// Every target.
    All,
}

/// Makes tuples and pushes them.
pub(super) struct Maker<const W: usize> {
    groups: Groups,
    receivers: Receivers,
    stream: Stream<W>,
}

struct Stream<const W: usize> {
    tuple: [u64; W],
    numbers: Range<u64>,
    sent: Tally,
}

impl<const W: usize> Maker<W> {
    /// Makes the tuples of these numbers for so many targets.
    pub(super) fn new(numbers: Range<u64>, targets: usize, receivers: Receivers) -> Maker<W> {
        let stream = Stream { tuple: [0; W], numbers, sent: Tally::default() };
        Maker { groups: Groups::repartition(targets), receivers, stream }
    }

    /// Whether all are pushed.
    pub(super) fn is_done(&self) -> bool {
        self.stream.numbers.is_empty()
    }

    /// The pushed tuples.
    pub(super) fn sent(&self) -> Tally {
        self.stream.sent
    }

    /// Pushes at most so many tuples, without waiting. Returns how many.
    pub(super) fn push<F: Fabric>(&mut self, source: &mut Source<F>, most: u64) -> Result<u64> {
        let Maker { groups, receivers, stream } = self;
        match *receivers {
            Receivers::ByHash => {
                stream.make(most, |key, tuple| source.try_push_to(groups.of_hash(key), tuple))
            }
            Receivers::One(target) => {
                stream.make(most, |_, tuple| source.try_push_to(target, tuple))
            }
            Receivers::All => stream.make(most, |_, tuple| source.try_push(tuple)),
        }
    }
}

impl<const W: usize> Stream<W> {
    #[inline(always)]
    fn make(
        &mut self,
        most: u64,
        mut push: impl FnMut(u64, &[u64; W]) -> Result<bool>,
    ) -> Result<u64> {
        let start = self.numbers.start;
        let end = self.numbers.end.min(start.saturating_add(most));
        let (mut sent, mut next) = (self.sent, start);
        while next < end {
            let (key, number) = tuple(next);
            let pushed = if W <= FRESH_WORDS {
                let mut tuple = [0; W];
                (tuple[0], tuple[1]) = (key, number);
                push(key, &tuple)?
            } else {
                (self.tuple[0], self.tuple[1]) = (key, number);
                push(key, &self.tuple)?
            };
            if !pushed {
                break;
            }
            sent.add(key, number);
            next += 1;
        }
        (self.sent, self.numbers.start) = (sent, next);
        Ok(next - start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::failure::FlowResult;

    #[test]
    fn schemas_have_the_tuples_length() {
        for bytes in TUPLE_BYTES {
            assert_eq!(schema(bytes).tuple_bytes(), bytes);
            let words: FlowResult<usize> = with_words!(bytes, WORDS => Ok(WORDS));
            assert_eq!(words.unwrap(), bytes / 8);
        }
        let odd: FlowResult<usize> = with_words!(24, WORDS => Ok(WORDS));
        assert!(odd.is_err());
    }
}

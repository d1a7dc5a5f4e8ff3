//! Whose turn it is among the splits whose records come to an output.
//!
//! Splits that share a turn alternate, chunk by chunk. Bounded sources with no further reader in
//! the job come one after the other, so that the ends of their chunks make no difference. If a
//! source may keep the others waiting, all are written as they come.

use crate::intake::SplitName;

/// The splits of an output, by turn.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    /// Of each turn: its splits, ascending.
    splits: Vec<Vec<usize>>,
    /// Whether a turn comes when the one before is over.
    in_order: bool,
}

/// The chunks of all splits that are before the place where a job goes on.
pub(crate) struct Begun<'a> {
    pub(crate) names: &'a [SplitName],
    pub(crate) chunks: &'a [u64],
    /// For splits that have ended, as [`super::Gather::queue_batches`] has it.
    pub(crate) ended: &'a [Option<u64>],
}

/// A chunk, by its number and its split's number.
pub(crate) type ChunkAt = (u64, usize);

/// Position of the next rows of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Next {
    pub(super) sequence: u64,
    /// Number of the split within the turn.
    pub(super) at: usize,
    /// Which part of the chunk.
    pub(super) part: u64,
    /// Nothing comes any more.
    pub(super) is_over: bool,
}

impl Turns {
    /// All splits have one turn.
    pub(crate) fn together(mut splits: Vec<usize>) -> Turns {
        splits.sort_unstable();
        splits.dedup();
        let splits = if splits.is_empty() { vec![] } else { vec![splits] };
        Turns { splits, in_order: true }
    }

    /// Each source has a turn of its own.
    pub(crate) fn apart(splits: Vec<Vec<usize>>, in_order: bool) -> Turns {
        Turns { splits: splits.into_iter().filter(|turn| !turn.is_empty()).collect(), in_order }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.splits.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.splits.len()
    }

    pub(super) fn in_order(&self) -> bool {
        self.in_order
    }

    pub(super) fn splits(&self, turn: usize) -> &[usize] {
        &self.splits[turn]
    }

    /// The turn of a split, if it has one.
    pub(super) fn of(&self, split: usize) -> Option<usize> {
        self.splits.iter().position(|turn| turn.binary_search(&split).is_ok())
    }

    /// The first chunk of a turn.
    pub(super) fn first(&self, turn: usize) -> ChunkAt {
        (0, self.splits[turn][0])
    }

    /// The chunk that comes next of a turn.
    pub(super) fn chunk(&self, turn: usize, next: &Next) -> ChunkAt {
        let splits = &self.splits[turn];
        match splits.get(next.at) {
            Some(split) => (next.sequence, *split),
            None => (next.sequence + 1, splits[0]),
        }
    }
}

//! The order of records' rows: within a turn ([`Turns`]) by the number of the chunk within its
//! split, then by split, then by the part of the chunk.

use std::collections::BTreeMap;

use arrow::array::RecordBatch;

use super::queue::QueuedItem;
use super::turns::{Begun, ChunkAt, Next, Turns};
use crate::error::Error;
use crate::order::Run;
use millstream_operators::stamped::BatchPlace;

/// Rows that wait for earlier rows.
pub(super) struct Batches {
    /// With whether they are the last of their chunk.
    waiting: BTreeMap<BatchPlace, (Run, bool)>,
    /// Errors behind the rows of a batch, if more rows are wanted.
    failed: BTreeMap<BatchPlace, Error>,
    /// By turn: the next batch.
    next: Vec<Next>,
    /// By split: chunks of an earlier job, of which rows wait here or none do. Empty for a job that
    /// begins.
    begun: Vec<u64>,
}

impl Batches {
    pub(super) fn new(turns: &Turns) -> Batches {
        let next = vec![Next::default(); turns.len()];
        Batches { waiting: BTreeMap::new(), failed: BTreeMap::new(), next, begun: Vec::new() }
    }

    /// The chunk whose rows come next of a turn.
    pub(super) fn next_chunk(&self, turns: &Turns, turn: usize) -> ChunkAt {
        turns.chunk(turn, &self.next[turn])
    }

    /// The chunks that rows wait for, one of a turn at the most.
    pub(super) fn awaited(&self, turns: &Turns) -> Vec<ChunkAt> {
        if turns.in_order() {
            return if self.is_empty() { Vec::new() } else { self.next_chunks(turns) };
        }
        let waits = |turn: &usize| self.waiting.keys().any(|at| turns.of(at.split) == Some(*turn));
        (0..turns.len()).filter(waits).map(|turn| self.next_chunk(turns, turn)).collect()
    }

    /// The chunks that come next, of each turn that has begun and is not over.
    pub(super) fn next_chunks(&self, turns: &Turns) -> Vec<ChunkAt> {
        let open = (0..turns.len()).filter(|turn| !self.next[*turn].is_over);
        let begun = if turns.in_order() { 1 } else { turns.len() };
        open.take(begun).map(|turn| self.next_chunk(turns, turn)).collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.waiting.clear();
        self.failed.clear();
    }

    /// Keeps the rows of a batch; `last` if they are the last of their chunk.
    pub(super) fn insert(&mut self, place: BatchPlace, run: Run, last: bool) {
        self.waiting.insert(place, (run, last));
    }

    /// Keeps the error behind the rows of a batch.
    pub(super) fn note_failed(&mut self, place: BatchPlace, error: Error) {
        self.failed.insert(place, error);
    }

    /// Whether an error waits.
    pub(super) fn fail_later(&self) -> bool {
        !self.failed.is_empty()
    }

    /// The rows that wait, and the places of their batches.
    pub(super) fn waiting(&self) -> impl Iterator<Item = (&BatchPlace, &RecordBatch)> {
        let waiting = self.waiting.iter().map(|(place, (run, _))| (place, &run.rows));
        waiting.filter(|(_, rows)| rows.num_rows() > 0)
    }

    /// Keeps rows of a chunk of an earlier job, the next after those that are kept.
    pub(super) fn insert_saved(&mut self, sequence: u64, split: usize, run: Run) {
        let place = |part| BatchPlace { sequence, split, part };
        let parts = self.waiting.range(place(0)..=place(u64::MAX)).count();
        self.waiting.insert(place(parts as u64), (run, false));
    }

    /// Goes on behind the chunks of an earlier job, whose rows are kept as far as they wait. Next
    /// comes the first chunk that waits or has not come.
    pub(super) fn resume(&mut self, turns: &Turns, begun: &Begun<'_>) {
        for (turn, next) in self.next.iter_mut().enumerate() {
            let splits = turns.splits(turn);
            let at = |split: usize| splits.binary_search(&split).ok();
            let waiting = self.waiting.keys().filter_map(|p| Some((p.sequence, at(p.split)?)));
            let goes_on =
                splits.iter().enumerate().filter(|(_, split)| begun.ended[**split].is_none());
            let coming = goes_on.map(|(at, split)| (begun.chunks[*split], at));
            *next = match waiting.chain(coming).min() {
                Some((sequence, at)) => Next { sequence, at, ..Next::default() },
                None => Next { is_over: true, ..Next::default() },
            };
        }
        self.begun = begun.chunks.to_vec();
    }

    /// Passes to `queue` all items whose turn it is; `notices`, also the chunk that comes next.
    pub(super) fn drain(
        &mut self,
        turns: &Turns,
        ended: &[Option<u64>],
        notices: bool,
        queue: &mut dyn FnMut(QueuedItem),
    ) {
        if self.is_empty() {
            // Also after the last batch, when there is nothing more to go on to.
            return;
        }
        let before = self.next.clone();
        for turn in 0..turns.len() {
            self.drain_turn(turn, turns, ended, queue);
            if turns.in_order() && !self.next[turn].is_over {
                break;
            }
        }
        for (turn, before) in before.iter().enumerate().filter(|_| notices) {
            let next = self.next[turn];
            if (next.sequence, next.at) != (before.sequence, before.at) {
                queue(QueuedItem::Next(turns.chunk(turn, &next)));
            }
            if turns.in_order() && next.is_over && !before.is_over && turn + 1 < turns.len() {
                queue(QueuedItem::Next(turns.first(turn + 1)));
            }
        }
    }

    /// Passes to `queue` the items of a turn up to the first missing batch.
    fn drain_turn(
        &mut self,
        turn: usize,
        turns: &Turns,
        ended: &[Option<u64>],
        queue: &mut dyn FnMut(QueuedItem),
    ) {
        let splits = turns.splits(turn);
        let next = &mut self.next[turn];
        while !next.is_over {
            let sequence = next.sequence;
            let Some(split) = splits.get(next.at).copied() else {
                (next.sequence, next.at, next.part) = (sequence + 1, 0, 0);
                next.is_over =
                    splits.iter().all(|split| ended[*split].is_some_and(|n| sequence + 1 >= n));
                continue;
            };
            if ended[split].is_some_and(|n| sequence >= n) {
                (next.at, next.part) = (next.at + 1, 0);
                continue;
            }
            let place = BatchPlace { sequence, split, part: next.part };
            let Some((run, last)) = self.waiting.remove(&place) else {
                if self.begun.get(split).is_none_or(|begun| sequence >= *begun) {
                    return;
                }
                (next.at, next.part) = (next.at + 1, 0);
                continue;
            };
            (next.at, next.part) = match last {
                true => (next.at + 1, 0),
                false => (next.at, next.part + 1),
            };
            if run.rows.num_rows() > 0 {
                queue(QueuedItem::Rows(run));
            }
            if let Some(error) = self.failed.remove(&place) {
                queue(QueuedItem::Failed(error));
            }
        }
    }
}

//! Rows of records in the order of their batches: within a turn ([`Turns`](super::Turns)) by the
//! number of the chunk within its split, then by split, then by the part of the chunk.

use std::collections::BTreeMap;

use arrow::array::RecordBatch;

use super::ahead::{Role, Turn};
use super::turns::{ChunkAt, Next, Turns};
use super::writer::Thing;
use super::{Gather, State};
use crate::error::{Error, Result};
use crate::network::{self, Head, LAST, encode_rows};
use crate::order::Run;
use millstream_operators::stamped::BatchPlace;

/// What a batch of records comes to.
pub(crate) struct BatchRows {
    pub(crate) rows: RecordBatch,
    /// Why there are no more of them, if there should be: a LIMIT may have been reached before.
    pub(crate) then: Option<Error>,
    /// Whether it is the last part of its chunk.
    pub(crate) last: bool,
}

/// Rows that wait for earlier ones.
pub(super) struct Batches {
    /// Whether they are the last of their chunk, too.
    waiting: BTreeMap<BatchPlace, (Run, bool)>,
    /// What comes behind the rows of a batch, if more are wanted.
    failed: BTreeMap<BatchPlace, Error>,
    /// By turn: what comes next.
    next: Vec<Next>,
}

impl Batches {
    pub(super) fn new(turns: &Turns) -> Batches {
        let next = vec![Next::default(); turns.len()];
        Batches { waiting: BTreeMap::new(), failed: BTreeMap::new(), next }
    }

    /// The chunk whose rows come next of a turn.
    pub(super) fn next_chunk(&self, turns: &Turns, turn: usize) -> ChunkAt {
        turns.chunk(turn, &self.next[turn])
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.waiting.clear();
        self.failed.clear();
    }
}

impl Gather {
    /// Whether rows of records come here.
    pub(crate) fn takes_batches(&self) -> bool {
        !self.outlet.turns.is_empty()
    }

    pub(super) fn head(&self, place: BatchPlace, kind: network::Kind) -> Head {
        Head {
            output: self.outlet.output as u16,
            id: place.split as u32,
            number: place.sequence,
            count: place.part,
            ..Head::new(kind)
        }
    }

    /// Rows of a batch of records; `ended` tells how many batches the splits that have ended had.
    /// Those whose turn it is now are queued.
    pub(crate) fn batch_rows(
        &self,
        worker: usize,
        place: BatchPlace,
        BatchRows { rows, then, last }: BatchRows,
        ended: &[Option<u64>],
    ) -> Result<()> {
        if self.has_ended() {
            return Ok(());
        }
        if self.sorts() {
            let rows = self.sorted(rows)?;
            return match &self.outlet.role {
                Role::Helper { net, .. } => {
                    net.post(0, self.head(place, network::Kind::BatchRows), encode_rows(&rows)?)
                }
                _ => self.hold_to_sort(self.held(rows)),
            };
        }
        if let Role::Helper { net, .. } = &self.outlet.role {
            if rows.num_rows() == 0 && !self.ordered {
                return Ok(());
            }
            if let Some(error) = then {
                let head = self.head(place, network::Kind::BatchError);
                net.post(0, head, error.to_message())?;
            }
            let flags = if last { LAST } else { 0 };
            let head = Head { flags, ..self.head(place, network::Kind::BatchRows) };
            return self.send(net, head, &rows, Turn::Batch(place, last));
        }
        if !self.ordered {
            return match rows.num_rows() {
                0 => Ok(()),
                _ => self.write(worker, &rows, true),
            };
        }
        let run = self.held(rows);
        let mut state = self.lock();
        if self.has_ended() {
            return Ok(());
        }
        state.batches.failed.extend(then.map(|error| (place, error)));
        state.batches.waiting.insert(place, (run, last));
        self.queue_waiting(&mut state, ended);
        Ok(())
    }

    /// Another process says why there are no more rows of a batch than it sends next.
    pub(crate) fn note_failed(&self, place: BatchPlace, error: Error) {
        self.lock().batches.failed.insert(place, error);
    }

    /// Queues the rows whose turn it is, which may be since a split has ended.
    pub(crate) fn queue_batches(&self, ended: &[Option<u64>]) {
        if !matches!(self.outlet.role, Role::Helper { .. }) && !self.has_ended() {
            self.queue_waiting(&mut self.lock(), ended);
        }
    }

    /// The chunks that rows wait for, one of a turn at the most.
    pub(crate) fn awaited_chunks(&self) -> Vec<ChunkAt> {
        let (state, turns) = (self.lock(), &self.outlet.turns);
        let Batches { waiting, next, .. } = &state.batches;
        let chunk = |turn: usize| self.next_chunk(&state, turn);
        if matches!(self.outlet.role, Role::Helper { .. }) {
            state.ahead.awaited(turns)
        } else if turns.in_order() {
            let current = next.iter().position(|next| !next.is_over);
            current.filter(|_| !waiting.is_empty()).map(chunk).into_iter().collect()
        } else {
            let waits = |turn: &usize| waiting.keys().any(|at| turns.of(at.split) == Some(*turn));
            (0..turns.len()).filter(waits).map(chunk).collect()
        }
    }

    fn queue_waiting(&self, state: &mut State, ended: &[Option<u64>]) {
        if state.batches.is_empty() {
            // Also after the last batch, when there is nothing more to go on to.
            return;
        }
        let before = state.batches.next.clone();
        let turns = &self.outlet.turns;
        for turn in 0..turns.len() {
            self.queue_turn(turn, state, ended);
            if turns.in_order() && !state.batches.next[turn].is_over {
                break;
            }
        }
        if !matches!(self.outlet.role, Role::Coordinator(_)) {
            return;
        }
        for (turn, before) in before.iter().enumerate() {
            let next = state.batches.next[turn];
            if (next.sequence, next.at) != (before.sequence, before.at) {
                self.push(state, Thing::Next(turns.chunk(turn, &next)));
            }
            if turns.in_order() && next.is_over && !before.is_over && turn + 1 < turns.len() {
                self.push(state, Thing::Next(turns.first(turn + 1)));
            }
        }
    }

    /// Queues what there is of a turn up to the first that is missing.
    fn queue_turn(&self, turn: usize, state: &mut State, ended: &[Option<u64>]) {
        let splits = self.outlet.turns.splits(turn);
        let State { batches, queue, .. } = state;
        let next = &mut batches.next[turn];
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
            let Some((run, last)) = batches.waiting.remove(&place) else { return };
            (next.at, next.part) = match last {
                true => (next.at + 1, 0),
                false => (next.at, next.part + 1),
            };
            if run.rows.num_rows() > 0 {
                queue.push(Thing::Rows(run), &self.waiting);
            }
            if let Some(error) = batches.failed.remove(&place) {
                queue.push(Thing::Failed(error), &self.waiting);
            }
        }
    }
}

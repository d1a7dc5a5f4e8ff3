//! Rows of records in the order of their batches: by the number of the chunk within its split, then
//! by split, then by the part of the chunk.

use std::collections::BTreeMap;

use arrow::array::RecordBatch;

use super::ahead::{Role, Turn};
use super::{Gather, State};
use crate::cluster::{self, Head, LAST, encode_rows};
use crate::error::{Error, Result};
use crate::intake::BatchPlace;
use crate::order::Run;

/// What a batch of records comes to.
pub(crate) struct BatchRows {
    pub(crate) rows: RecordBatch,
    /// Why there are no more of them, if there should be: a LIMIT may have been reached before.
    pub(crate) then: Option<Error>,
    /// Whether it is the last part of its chunk.
    pub(crate) last: bool,
}

/// Rows that wait for earlier ones.
#[derive(Default)]
pub(super) struct Batches {
    /// Whether they are the last of their chunk, too.
    waiting: BTreeMap<BatchPlace, (Run, bool)>,
    /// What comes behind the rows of a batch, if more are wanted.
    failed: BTreeMap<BatchPlace, Error>,
    /// What comes next: the number of a chunk, of a split among those of the output, of a part.
    next: (u64, usize, u64),
}

impl Batches {
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
        !self.outlet.splits.is_empty()
    }

    /// Keeps rows until all are there.
    fn hold_to_sort(&self, place: BatchPlace, rows: RecordBatch) -> Result<()> {
        let rows = self.sorted(rows)?;
        if let Role::Helper { net, .. } = &self.outlet.role {
            return net.post(0, self.head(place, cluster::Kind::BatchRows), encode_rows(&rows)?);
        }
        let run = self.held(rows);
        self.add_run(&mut self.lock().sorted, run)
    }

    fn head(&self, place: BatchPlace, kind: cluster::Kind) -> Head {
        Head {
            output: self.outlet.output as u16,
            id: place.split as u32,
            number: place.sequence,
            count: place.part,
            ..Head::new(kind)
        }
    }

    /// Rows of a batch of records; `ended` tells how many batches the splits that have ended had.
    /// True when LIMIT is reached and the output is done.
    pub(crate) fn batch_rows(
        &self,
        worker: usize,
        place: BatchPlace,
        BatchRows { rows, then, last }: BatchRows,
        ended: &[Option<u64>],
    ) -> Result<bool> {
        if self.has_ended() {
            return Ok(false);
        }
        if self.sorts() {
            self.hold_to_sort(place, rows)?;
            return Ok(false);
        }
        if let Role::Helper { net, .. } = &self.outlet.role {
            if rows.num_rows() > 0 || self.ordered {
                if let Some(error) = then {
                    let head = self.head(place, cluster::Kind::BatchError);
                    net.post(0, head, error.to_letter())?;
                }
                let flags = if last { LAST } else { 0 };
                let head = Head { flags, ..self.head(place, cluster::Kind::BatchRows) };
                self.send(net, head, &rows, Turn::Batch(place, last))?;
            }
            return Ok(false);
        }
        if !self.ordered {
            if rows.num_rows() > 0 {
                self.write(worker, &rows, true)?;
            }
            return Ok(false);
        }
        let run = self.held(rows);
        let mut state = self.lock();
        if self.has_ended() {
            return Ok(false);
        }
        state.batches.failed.extend(then.map(|error| (place, error)));
        state.batches.waiting.insert(place, (run, last));
        self.write_waiting(&mut state, worker, ended)
    }

    /// Another process says why there are no more rows of a batch than it sends next.
    pub(crate) fn note_failed(&self, place: BatchPlace, error: Error) {
        self.lock().batches.failed.insert(place, error);
    }

    /// Writes the rows whose turn it is; returns whether these were all that are wanted.
    pub(crate) fn write_batches(&self, worker: usize, ended: &[Option<u64>]) -> Result<bool> {
        if matches!(self.outlet.role, Role::Helper { .. }) || self.has_ended() {
            return Ok(false);
        }
        self.write_waiting(&mut self.lock(), worker, ended)
    }

    /// The chunk that rows wait for, if any do: its number and its split.
    pub(crate) fn awaited_chunk(&self) -> Option<(u64, usize)> {
        let state = self.lock();
        if matches!(self.outlet.role, Role::Helper { .. }) {
            return state.ahead.awaited();
        }
        let (sequence, at, _) = state.batches.next;
        let split = self.outlet.splits.get(at).copied();
        let next = split.map_or_else(|| (sequence + 1, self.outlet.splits[0]), |s| (sequence, s));
        (!state.batches.is_empty()).then_some(next)
    }

    pub(super) fn write_waiting(
        &self,
        state: &mut State,
        worker: usize,
        ended: &[Option<u64>],
    ) -> Result<bool> {
        if state.batches.is_empty() {
            // Also after the last batch, when there is nothing more to go on to.
            return Ok(false);
        }
        let before = state.batches.next;
        let enough = self.write_next(state, worker, ended)?;
        let (sequence, at, _) = state.batches.next;
        if let Role::Asker(net) = &self.outlet.role
            && (sequence, at) != (before.0, before.1)
        {
            let (number, split) = match self.outlet.splits.get(at) {
                Some(split) => (sequence, *split),
                None => (sequence + 1, self.outlet.splits[0]),
            };
            let place = BatchPlace { sequence: number, split, part: 0 };
            net.broadcast(self.head(place, cluster::Kind::Written))?;
        }
        Ok(enough)
    }

    fn write_next(&self, state: &mut State, worker: usize, ended: &[Option<u64>]) -> Result<bool> {
        let splits = &self.outlet.splits;
        let State { batches, part, .. } = state;
        while !part.is_over() {
            let (sequence, at, number) = batches.next;
            let Some(split) = splits.get(at).copied() else {
                batches.next = (sequence + 1, 0, 0);
                if splits.iter().all(|split| ended[*split].is_some_and(|n| sequence + 1 >= n)) {
                    return Ok(false);
                }
                continue;
            };
            if ended[split].is_some_and(|n| sequence >= n) {
                batches.next = (sequence, at + 1, 0);
                continue;
            }
            let place = BatchPlace { sequence, split, part: number };
            let Some((run, last)) = batches.waiting.remove(&place) else { return Ok(false) };
            batches.next = match last {
                true => (sequence, at + 1, 0),
                false => (sequence, at, number + 1),
            };
            if run.rows.num_rows() > 0 {
                self.emit(part, worker, &run.rows, true)?;
            }
            if let Some(error) = batches.failed.remove(&place)
                && !part.is_over()
            {
                return Err(error);
            }
        }
        batches.clear();
        Ok(true)
    }
}

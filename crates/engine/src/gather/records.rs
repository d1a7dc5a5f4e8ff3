//! Rows of records on their way through a gather: put back into the order of their batches, then
//! queued.

use super::ahead::Turn;
use super::output::Role;
use super::{Gather, GatherState};
use crate::error::{Error, Result};
use crate::network::{Head, Kind, LAST, encode_rows};
use crate::rows::{Rows, RowsKind};
use millstream_operators::stamped::BatchPlace;

/// Rows of a batch of records, for an output.
pub(crate) struct BatchRows {
    pub(crate) rows: Rows,
    /// Why there are no more of them, if there should be: a LIMIT may have been reached before.
    pub(crate) then: Option<Error>,
    /// Whether it is the last part of its chunk.
    pub(crate) last: bool,
}

impl Gather {
    /// Whether rows of records come here.
    pub(crate) fn takes_batches(&self) -> bool {
        !self.output.turns.is_empty()
    }

    /// Takes rows of a batch of records; `ended` has the number of batches of each ended split.
    /// Queues rows in their turn.
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
        if rows.kind == RowsKind::Changes {
            return self.write_changes(worker, &rows.batch, true);
        }
        let rows = rows.batch;
        if self.sorts() {
            let rows = self.sorted(rows)?;
            return match &self.output.role {
                Role::Helper { net, .. } => {
                    net.post(0, self.output.head(place, Kind::BatchRows), encode_rows(&rows)?)
                }
                _ => self.hold_to_sort(self.held(rows)),
            };
        }
        if let Role::Helper { net, .. } = &self.output.role {
            if rows.num_rows() == 0 && !self.ordered {
                return Ok(());
            }
            if let Some(error) = then {
                net.post(0, self.output.head(place, Kind::BatchError), error.to_message())?;
            }
            let flags = if last { LAST } else { 0 };
            let head = Head { flags, ..self.output.head(place, Kind::BatchRows) };
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
        if let Some(error) = then {
            state.batches.note_failed(place, error);
        }
        state.batches.insert(place, run, last);
        self.queue_waiting(&mut state, ended);
        Ok(())
    }

    /// Takes the error of another process behind the rows of a batch, which it sends next.
    pub(crate) fn note_failed(&self, place: BatchPlace, error: Error) {
        self.lock().batches.note_failed(place, error);
    }

    /// Queues the rows whose turn it is, perhaps because a split has ended.
    pub(crate) fn queue_batches(&self, ended: &[Option<u64>]) {
        if !matches!(self.output.role, Role::Helper { .. }) && !self.has_ended() {
            self.queue_waiting(&mut self.lock(), ended);
        }
    }

    fn queue_waiting(&self, state: &mut GatherState, ended: &[Option<u64>]) {
        if state.stands {
            return;
        }
        let GatherState { batches, queue, .. } = state;
        let notices = matches!(self.output.role, Role::Coordinator(_));
        let mut push = |item| queue.push(item, &self.waiting);
        batches.drain(&self.output.turns, ended, notices, &mut push);
    }
}

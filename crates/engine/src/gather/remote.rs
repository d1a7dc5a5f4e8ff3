//! Gathering between processes: rows sent to the coordinator, its notices, and requests for chunks.

use std::sync::atomic::Ordering::Relaxed;

use arrow::array::RecordBatch;

use super::ahead::Turn;
use super::output::Role;
use super::turns::ChunkAt;
use super::{Gather, GatherState};
use crate::error::{Error, Result};
use crate::network::{Head, Kind, Net, encode_rows};
use millstream_operators::budget::batch_bytes;
use millstream_operators::stamped::BatchPlace;

impl Gather {
    /// Sends rows to the coordinator.
    pub(super) fn send(&self, net: &Net, head: Head, rows: &RecordBatch, turn: Turn) -> Result<()> {
        if self.ordered {
            let bytes = batch_bytes(rows) as u64;
            let mut state = self.lock();
            if self.has_ended() {
                return Ok(());
            }
            net.ahead_bytes().fetch_add(bytes, Relaxed);
            state.ahead.push(turn, bytes);
        }
        net.post(0, head, encode_rows(rows)?)
    }

    /// The coordinator's notice: all leaders have fired a stage up to `watermark`.
    pub(crate) fn note_fired(&self, stage: usize, watermark: i64) -> Result<()> {
        let unknown = || Error::Internal(format!("what has been fired of stage {stage}"));
        let place = self.output.place_of(stage).ok_or_else(unknown)?;
        let mut state = self.lock();
        let ahead = &mut state.ahead;
        ahead.fired[place] = watermark.max(ahead.fired[place]);
        let all = self.output.fired_of_all(|place| ahead.fired[place]);
        let fires = |turn: &Turn| matches!(turn, Turn::Fires(at) if *at <= all);
        ahead.remove(&self.output.role, fires);
        Ok(())
    }

    /// The coordinator's notice: the rows of chunk `next` come next.
    pub(crate) fn note_written(&self, next: ChunkAt) -> Result<()> {
        let (turn, turns) = (self.turn_of(next)?, &self.output.turns);
        let mut state = self.lock();
        state.ahead.note_next(turn, next);
        let before = |sent: &Turn| match sent {
            Turn::Batch(place, _) => {
                turns.of(place.split) == Some(turn) && (place.sequence, place.split) < next
            }
            Turn::Fires(_) => false,
        };
        state.ahead.remove(&self.output.role, before);
        Ok(())
    }

    /// Whether rows of this chunk, all of them, have been sent and not been written yet, as far as
    /// is known.
    pub(crate) fn is_sent(&self, chunk: ChunkAt) -> bool {
        self.lock().ahead.is_sent(chunk)
    }

    /// The turn of a chunk.
    fn turn_of(&self, (_, split): ChunkAt) -> Result<usize> {
        let unknown = || Error::Internal(format!("a chunk of split {split}, which has no turn"));
        self.output.turns.of(split).ok_or_else(unknown)
    }

    /// Another process requests a chunk.
    pub(crate) fn note_request(&self, chunk: ChunkAt) -> Result<()> {
        let turn = self.turn_of(chunk)?;
        self.lock().requested.by_others[turn] = Some(chunk);
        Ok(())
    }

    /// Requests a chunk of the other processes, once.
    pub(crate) fn request(&self, chunk: ChunkAt) -> Result<()> {
        let turn = self.turn_of(chunk)?;
        let (Role::Helper { net, .. } | Role::Coordinator(net)) = &self.output.role else {
            return Ok(());
        };
        if self.lock().requested.by_us[turn].replace(chunk) == Some(chunk) {
            return Ok(());
        }
        let (sequence, split) = chunk;
        let place = BatchPlace { sequence, split, part: 0 };
        net.broadcast(self.output.head(place, Kind::Awaited))
    }

    /// Chunks requested by other processes, as far as they come next.
    pub(crate) fn requested(&self) -> Vec<ChunkAt> {
        if matches!(self.output.role, Role::Alone { .. }) {
            return Vec::new();
        }
        let state = &*self.lock();
        let chunks = state.requested.by_others.iter().enumerate();
        let next = chunks.filter(|(turn, chunk)| **chunk == Some(self.next_chunk(state, *turn)));
        next.filter_map(|(_, chunk)| *chunk).collect()
    }

    /// The chunk that comes next of a turn, as far as is known here.
    fn next_chunk(&self, state: &GatherState, turn: usize) -> ChunkAt {
        match &self.output.role {
            Role::Helper { .. } => state.ahead.next(turn),
            _ => state.batches.next_chunk(&self.output.turns, turn),
        }
    }

    /// The chunks that rows wait for, one of a turn at the most.
    pub(crate) fn awaited_chunks(&self) -> Vec<ChunkAt> {
        let (state, turns) = (self.lock(), &self.output.turns);
        match &self.output.role {
            Role::Helper { .. } => state.ahead.awaited(turns),
            _ => state.batches.awaited(turns),
        }
    }
}

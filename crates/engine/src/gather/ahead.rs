//! Rows on their way to the coordinator, which gathers them: who is ahead of the others with
//! them waits.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use arrow::array::RecordBatch;

use super::Gather;
use super::turns::{ChunkAt, Turns};
use crate::error::{Error, Result};
use crate::network::{Head, Net, encode_rows};
use millstream_operators::budget::batch_bytes;
use millstream_operators::event_time::BEGINNING;
use millstream_operators::stamped::BatchPlace;

/// Where rows go when a job has several processes.
pub(crate) enum Role {
    /// There is one process, or each has a sink of its own.
    Alone {
        /// It is not the coordinator.
        elsewhere: bool,
    },
    /// Rows of all processes come here.
    Coordinator(Arc<Net>),
    /// Rows go to the coordinator.
    Helper {
        net: Arc<Net>,
        /// Bytes that may be sent ahead of their turn.
        ahead_bytes_max: u64,
    },
}

/// When sent rows are written.
#[derive(Debug, Clone, Copy)]
pub(super) enum Turn {
    /// When all leaders have fired up to this.
    Fires(i64),
    /// In the order of batches; whether it is the last part of its chunk.
    Batch(BatchPlace, bool),
}

/// Rows sent to the coordinator that have, as far as is known, not been written yet.
pub(super) struct Ahead {
    /// With their bytes.
    sent: VecDeque<(Turn, u64)>,
    /// Per stage: up to where all leaders have fired, as the coordinator tells.
    pub(super) fired: Vec<i64>,
    /// By turn: the chunk whose rows come next, as the coordinator tells.
    next: Vec<ChunkAt>,
    /// The turn that it is, where they come in order.
    turn: usize,
}

impl Ahead {
    pub(super) fn new(stages: usize, turns: &Turns) -> Ahead {
        let next = (0..turns.len()).map(|turn| turns.first(turn)).collect();
        Ahead { sent: VecDeque::new(), fired: vec![BEGINNING; stages], next, turn: 0 }
    }

    /// The chunk whose rows come next of a turn.
    pub(super) fn next(&self, turn: usize) -> ChunkAt {
        self.next[turn]
    }

    /// The chunks that sent rows wait for, one of a turn at the most.
    pub(super) fn awaited(&self, turns: &Turns) -> Vec<ChunkAt> {
        let sent = |(turn, _): &(Turn, u64)| match turn {
            Turn::Batch(place, _) => turns.of(place.split),
            Turn::Fires(_) => None,
        };
        let of: BTreeSet<usize> = self.sent.iter().filter_map(sent).collect();
        match turns.in_order() {
            true if of.is_empty() => vec![],
            true => vec![self.next[self.turn]],
            false => of.into_iter().map(|turn| self.next[turn]).collect(),
        }
    }

    /// Whether all rows of a chunk have been sent and not been written yet. Its parts may have been
    /// sent in any order, the last one first.
    pub(super) fn is_sent(&self, chunk: ChunkAt) -> bool {
        let part = |(turn, _): &(Turn, u64)| match turn {
            Turn::Batch(place, last) if (place.sequence, place.split) == chunk => {
                Some((place.part, *last))
            }
            _ => None,
        };
        let parts = || self.sent.iter().filter_map(part);
        let last = parts().find(|(_, last)| *last);
        last.is_some_and(|(last, _)| parts().count() as u64 == last + 1)
    }
}

impl Role {
    /// Whether rows are written here, in another process than the asking one.
    pub(super) fn is_alone_elsewhere(&self) -> bool {
        matches!(self, Role::Alone { elsewhere: true })
    }

    /// The coordinator has written rows that were sent.
    pub(super) fn written(&self, ahead: &mut Ahead, is_written: impl Fn(&Turn) -> bool) {
        let Role::Helper { net, .. } = self else { return };
        let mut bytes = 0;
        ahead.sent.retain(|(turn, of)| {
            let written = is_written(turn);
            bytes += if written { *of } else { 0 };
            !written
        });
        net.ahead_bytes().fetch_sub(bytes, Relaxed);
    }
}

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
            state.ahead.sent.push_back((turn, bytes));
        }
        net.post(0, head, encode_rows(rows)?)
    }

    /// The coordinator tells that all leaders have fired a stage up to `watermark`.
    pub(crate) fn note_fired(&self, stage: usize, watermark: i64) -> Result<()> {
        let unknown = || Error::Internal(format!("what has been fired of stage {stage}"));
        let place = self.place_of(stage).ok_or_else(unknown)?;
        let mut state = self.lock();
        let ahead = &mut state.ahead;
        ahead.fired[place] = watermark.max(ahead.fired[place]);
        let all = self.fired_of_all(|place| ahead.fired[place]);
        let fires = |turn: &Turn| matches!(turn, Turn::Fires(at) if *at <= all);
        self.outlet.role.written(ahead, fires);
        Ok(())
    }

    /// The coordinator tells which chunk's rows come next.
    pub(crate) fn note_written(&self, next: ChunkAt) -> Result<()> {
        let turns = &self.outlet.turns;
        let unknown = || Error::Internal(format!("what has been written of split {}", next.1));
        let turn = turns.of(next.1).ok_or_else(unknown)?;
        let mut state = self.lock();
        let ahead = &mut state.ahead;
        (ahead.next[turn], ahead.turn) = (next, turn.max(ahead.turn));
        let before = |sent: &Turn| match sent {
            Turn::Batch(place, _) => {
                turns.of(place.split) == Some(turn) && (place.sequence, place.split) < next
            }
            Turn::Fires(_) => false,
        };
        self.outlet.role.written(ahead, before);
        Ok(())
    }

    /// Whether rows of this chunk, all of them, have been sent and not been written yet, as far as
    /// is known.
    pub(crate) fn is_sent(&self, chunk: ChunkAt) -> bool {
        self.lock().ahead.is_sent(chunk)
    }
}

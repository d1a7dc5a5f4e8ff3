//! Accounts between the coordinator and the other processes: sent rows that have not been written
//! yet, and requested chunks.

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::Ordering::Relaxed;

use super::output::Role;
use super::turns::{ChunkAt, Turns};
use millstream_operators::event_time::BEGINNING;
use millstream_operators::stamped::BatchPlace;

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
    /// Per stage: the watermark up to which all leaders have fired, by the coordinator's notices.
    pub(super) fired: Vec<i64>,
    /// By turn: the chunk whose rows come next, by the coordinator's notices.
    next: Vec<ChunkAt>,
    /// The current turn, where turns come in order.
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

    /// The coordinator's notice: a chunk's rows come next of a turn.
    pub(super) fn note_next(&mut self, turn: usize, next: ChunkAt) {
        (self.next[turn], self.turn) = (next, turn.max(self.turn));
    }

    /// Rows of so many bytes have been sent.
    pub(super) fn push(&mut self, turn: Turn, bytes: u64) {
        self.sent.push_back((turn, bytes));
    }

    /// Sent rows have been written, or are no longer wanted.
    pub(super) fn remove(&mut self, role: &Role, is_written: impl Fn(&Turn) -> bool) {
        let Role::Helper { net, .. } = role else { return };
        let mut bytes = 0;
        self.sent.retain(|(turn, of)| {
            let written = is_written(turn);
            bytes += if written { *of } else { 0 };
            !written
        });
        net.ahead_bytes().fetch_sub(bytes, Relaxed);
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

/// Requested chunks of an output, by turn: the last request each. A process without room for more
/// rows of records requests the chunk that other processes have yet to take in. The process with
/// this chunk may take it in even while it waits itself: it may wait for the process with the
/// request.
#[derive(Debug)]
pub(super) struct Requested {
    /// Requests of other processes.
    pub(super) by_others: Vec<Option<ChunkAt>>,
    /// Requests of this process.
    pub(super) by_us: Vec<Option<ChunkAt>>,
}

impl Requested {
    pub(super) fn new(turns: &Turns) -> Requested {
        let none = || vec![None; turns.len()];
        Requested { by_others: none(), by_us: none() }
    }
}

//! Chunks that processes ask for: where one has no room for more rows of records until rows have
//! been written that another has yet to take in, it tells the others. Who has the chunk may take it
//! in whatever it waits for itself: that may be the one who asks.

use super::ahead::Role;
use super::turns::{ChunkAt, Turns};
use super::{Gather, State};
use crate::error::{Error, Result};
use crate::network;
use millstream_operators::stamped::BatchPlace;

/// The chunks of an output that have been asked for, by turn: the last one each.
#[derive(Debug)]
pub(super) struct Asked {
    by_others: Vec<Option<ChunkAt>>,
    by_us: Vec<Option<ChunkAt>>,
}

impl Asked {
    pub(super) fn new(turns: &Turns) -> Asked {
        let none = || vec![None; turns.len()];
        Asked { by_others: none(), by_us: none() }
    }
}

impl Gather {
    /// The turn of a chunk.
    fn turn_of(&self, (_, split): ChunkAt) -> Result<usize> {
        let unknown = || Error::Internal(format!("a chunk of split {split}, which has no turn"));
        self.outlet.turns.of(split).ok_or_else(unknown)
    }

    /// Another process asks for a chunk.
    pub(crate) fn note_asked(&self, chunk: ChunkAt) -> Result<()> {
        let turn = self.turn_of(chunk)?;
        self.lock().asked.by_others[turn] = Some(chunk);
        Ok(())
    }

    /// Asks the other processes for a chunk, once.
    pub(crate) fn ask_for(&self, chunk: ChunkAt) -> Result<()> {
        let turn = self.turn_of(chunk)?;
        let (Role::Helper { net, .. } | Role::Coordinator(net)) = &self.outlet.role else {
            return Ok(());
        };
        if self.lock().asked.by_us[turn].replace(chunk) == Some(chunk) {
            return Ok(());
        }
        let (sequence, split) = chunk;
        let place = BatchPlace { sequence, split, part: 0 };
        net.broadcast(self.head(place, network::Kind::Awaited))
    }

    /// Those that come next, as far as is known here, of the chunks that others ask for.
    pub(crate) fn asked(&self) -> Vec<ChunkAt> {
        if matches!(self.outlet.role, Role::Alone { .. }) {
            return Vec::new();
        }
        let state = &*self.lock();
        let asked = state.asked.by_others.iter().enumerate();
        let next = asked.filter(|(turn, asked)| **asked == Some(self.next_chunk(state, *turn)));
        next.filter_map(|(_, asked)| *asked).collect()
    }

    /// The chunk that comes next of a turn, as far as is known here.
    pub(super) fn next_chunk(&self, state: &State, turn: usize) -> ChunkAt {
        match &self.outlet.role {
            Role::Helper { .. } => state.ahead.next(turn),
            _ => state.batches.next_chunk(&self.outlet.turns, turn),
        }
    }
}

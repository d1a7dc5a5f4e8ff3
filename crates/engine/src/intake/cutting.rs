//! Cutting: workers come to a stand between the batches before a cut and those behind it.
//!
//! Of a split that all processes read, the chunks before the cut are as many as any of them has
//! taken. Each process tells the coordinator its number and takes no further chunk. The coordinator
//! tells the greatest, and the others read on until there.

use super::cut::Cut;
use super::{Intake, IntakeState};
use crate::error::{Error, Result};

/// Numbers as the body of a message.
fn body_of(chunks: &[u64]) -> Vec<u8> {
    chunks.iter().flat_map(|count| count.to_le_bytes()).collect()
}

impl IntakeState {
    /// Whether all batches before the cut are done.
    fn has_reached(&self, chunks: &[u64]) -> bool {
        let is_done =
            |split: usize| self.splits[split].closed || self.chunks_done(split) >= chunks[split];
        (0..chunks.len()).all(is_done)
    }
}

impl Intake {
    /// Begins a cut behind the chunks that have been taken, a part of each at least; so many other
    /// processes will say how many they have taken. Reading and preparing go on. Returns these
    /// chunks, as the body of a message. `joins`: new splits may be part of the cut.
    pub(crate) fn begin_cut(&self, awaited: usize, joins: bool) -> Vec<u8> {
        let mut state = self.lock();
        state.cut_has_joins = joins;
        let chunks: Vec<u64> = state.splits.iter().map(|split| split.taken).collect();
        let body = body_of(&chunks);
        state.cut = Cut::Begun { chunks, awaited };
        self.note_cut(&mut state);
        drop(state);
        self.wake_all();
        body
    }

    /// Another process tells how many chunks of each split are before the cut. If it was the last
    /// to do so, returns the numbers that count.
    pub(crate) fn note_cut_at(&self, body: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut state = self.lock();
        let unknown = || Error::Internal(format!("where a cut is, in {} bytes", body.len()));
        let Cut::Begun { chunks, awaited } = &mut state.cut else { return Err(unknown()) };
        let (theirs, rest) = body.as_chunks::<8>();
        if theirs.len() != chunks.len() || !rest.is_empty() || *awaited == 0 {
            return Err(unknown());
        }
        for ((own, theirs), split) in chunks.iter_mut().zip(theirs).zip(&self.splits) {
            if split.by_chunk {
                *own = (*own).max(u64::from_le_bytes(*theirs));
            }
        }
        *awaited -= 1;
        let all = (*awaited == 0).then(|| body_of(chunks));
        drop(state);
        self.wake_all();
        Ok(all)
    }

    /// Notes the low watermarks at the cut, when all batches before it are done. Whether they are
    /// new.
    pub(super) fn note_cut(&self, state: &mut IntakeState) -> bool {
        let Cut::Begun { chunks, awaited: 0 } = &state.cut else { return false };
        if !state.has_reached(chunks) {
            return false;
        }
        let (chunks, sources) = (chunks.clone(), 0..self.sources.len());
        let lows = sources.map(|source| self.low_of(state, source)).collect();
        state.cut = Cut::Reached { chunks, lows };
        true
    }

    /// Whether all batches before the cut are done, those of other processes included.
    pub(crate) fn has_reached_cut(&self) -> bool {
        let mut state = self.lock();
        let new = self.note_cut(&mut state);
        let reached = matches!(state.cut, Cut::Reached { .. });
        drop(state);
        if new {
            // The last chunk was another process's.
            self.wake_all();
        }
        reached
    }

    /// Splits of a source whose records the cut waits for.
    pub(crate) fn awaited_by_cut(&self, source: usize) -> Vec<usize> {
        let state = self.lock();
        let awaited = |split: &usize| state.cut.awaits(*split, state.splits[*split].next());
        self.splits_of(source).filter(awaited).collect()
    }

    /// The job goes on beyond the cut. `joins`: new splits are part of it, and it is durable.
    pub(crate) fn end_cut(&self, joins: bool) {
        let mut state = self.lock();
        state.cut = Cut::None;
        self.end_joins(&mut state, joins);
        drop(state);
        self.wake_all();
    }
}

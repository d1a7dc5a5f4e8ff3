//! Cutting: workers come to a stand between the batches before a cut and those behind it.

use super::cut::Cut;
use super::{Intake, IntakeState};

impl IntakeState {
    /// Whether all batches before the cut are done.
    fn has_reached(&self, chunks: &[u64]) -> bool {
        (0..chunks.len()).all(|split| self.chunks_done(split) >= chunks[split])
    }
}

impl Intake {
    /// Begins a cut behind the chunks that have been taken, a part of each at least. Reading and
    /// preparing go on.
    pub(crate) fn begin_cut(&self) {
        let mut state = self.lock();
        let chunks = state.splits.iter().map(|split| split.taken).collect();
        state.cut = Cut::Begun(chunks);
        self.note_cut(&mut state);
        drop(state);
        self.wake_all();
    }

    /// Notes the low watermarks at the cut, when all batches before it are done. Whether they are
    /// new.
    pub(super) fn note_cut(&self, state: &mut IntakeState) -> bool {
        let Cut::Begun(chunks) = &state.cut else { return false };
        if !state.has_reached(chunks) {
            return false;
        }
        let (chunks, sources) = (chunks.clone(), 0..self.sources.len());
        let lows = sources.map(|source| self.low_of(state, source)).collect();
        state.cut = Cut::Reached { chunks, lows };
        true
    }

    /// Whether all batches before the cut are done.
    pub(crate) fn has_reached_cut(&self) -> bool {
        matches!(self.lock().cut, Cut::Reached { .. })
    }

    /// The job goes on beyond the cut.
    pub(crate) fn end_cut(&self) {
        self.lock().cut = Cut::None;
        self.wake_all();
    }
}

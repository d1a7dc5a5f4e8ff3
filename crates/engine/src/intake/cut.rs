//! A cut: a number of chunks for each split. No batch beyond the cut is taken before the job goes
//! on.

/// How far a cut is.
#[derive(Debug, Default)]
pub(super) enum Cut {
    #[default]
    None,
    /// By split: so many chunks are before the cut, and not all of their batches are done.
    Begun {
        chunks: Vec<u64>,
        /// Processes that have yet to say how many chunks they have taken of splits that all read.
        awaited: usize,
    },
    /// All batches before the cut are done. By source: its low watermark there, which counts until
    /// the job goes on.
    Reached { chunks: Vec<u64>, lows: Vec<i64> },
}

impl Cut {
    /// By split: the chunks before the cut; `None` without a cut.
    fn chunks(&self) -> Option<&[u64]> {
        match self {
            Cut::None => None,
            Cut::Begun { chunks, .. } | Cut::Reached { chunks, .. } => Some(chunks),
        }
    }

    /// So many chunks of a split may be taken.
    pub(super) fn limit(&self, split: usize) -> u64 {
        self.chunks().map_or(u64::MAX, |chunks| chunks[split])
    }

    /// Whether the cut waits for `sequence`, a chunk of a split.
    pub(super) fn awaits(&self, split: usize, sequence: u64) -> bool {
        matches!(self, Cut::Begun { chunks, .. } if sequence < chunks[split])
    }

    /// Once the cut has been reached: the chunks of a split before it.
    pub(super) fn reached(&self, split: usize) -> Option<u64> {
        match self {
            Cut::Reached { chunks, .. } => Some(chunks[split]),
            Cut::None | Cut::Begun { .. } => None,
        }
    }
}

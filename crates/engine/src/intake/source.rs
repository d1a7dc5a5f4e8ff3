//! A source as intake sees it: what it makes of chunks, and how far its splits have got together.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::table::{Senders, SourceMarks, Split};
use millstream_operators::event_time::END;
use millstream_operators::prepare::Preparer;
use millstream_operators::windowing::Windowing;

/// Number of watermarks kept with the times at which they were reached, the latest.
pub(super) const REACHED_MAX: usize = 4096;

/// A source that has been opened.
pub(crate) struct Origin {
    /// The table's name, and how `EXPLAIN` describes the table.
    pub(crate) name: String,
    pub(crate) about: String,
    /// Whether the source ends by itself, and whether its records come as they happen.
    pub(crate) bounded: bool,
    pub(crate) live: bool,
    pub(crate) splits: Vec<Box<dyn Split>>,
    /// How many splits may join while the job runs.
    pub(crate) spare: usize,
    /// Where an earlier job stood, at whose positions the splits have been opened.
    pub(crate) from: Option<SourceMarks>,
    pub(crate) preparer: Preparer,
    /// `i64::MAX`: only splits without a sender are idle.
    pub(crate) idle_timeout_us: Option<i64>,
    /// Of the stages that take its records, to see when a window may fire.
    pub(crate) windowings: Vec<Windowing>,
    /// Sources of a group feed, in the end, a common stage.
    pub(crate) group: usize,
}

/// Constant properties of a source, as in [`Origin`].
pub(super) struct SourceIn {
    pub(super) name: String,
    pub(super) about: String,
    pub(super) bounded: bool,
    pub(super) live: bool,
    /// The senders here, if other processes have senders, too.
    pub(super) senders: Option<Arc<dyn Senders>>,
    pub(super) preparer: Preparer,
    pub(super) idle_timeout_us: Option<i64>,
    pub(super) windowings: Vec<Windowing>,
    pub(super) group: usize,
}

#[derive(Debug)]
pub(super) struct SourceState {
    /// The highest low watermark so far, and what it was when workers were woken for it.
    pub(super) low: i64,
    pub(super) woken: i64,
    /// Last announcement to the other processes: a low watermark, and whether this process is idle.
    pub(super) told: (i64, bool),
    /// The same of each of them.
    pub(super) others: Vec<(i64, bool)>,
    /// When the stamped watermark reached a value: `(watermark, clock)`, the latest ones.
    pub(super) reached: VecDeque<(i64, i64)>,
    /// The source has no readers any more.
    pub(super) closed: bool,
    /// Its end has been logged.
    pub(super) logged: bool,
}

impl SourceIn {
    /// Whether something fires between two watermarks.
    pub(super) fn passes(&self, from: i64, to: i64) -> bool {
        to > from
            && (to == END
                || self
                    .windowings
                    .iter()
                    .any(|windowing| windowing.passed(to) > windowing.passed(from)))
    }

    /// Allowed distance between splits before they open windows that others have not reached;
    /// `None`: any distance.
    pub(super) fn reach_us(&self) -> Option<i64> {
        self.windowings.iter().filter_map(Windowing::reach_us).max()
    }
}

impl SourceState {
    /// Of a job of so many processes; `low` is where its source stood before.
    pub(super) fn new(processes: usize, low: i64) -> SourceState {
        SourceState {
            low,
            woken: low,
            told: (low, false),
            others: vec![(low, false); processes],
            reached: VecDeque::new(),
            closed: false,
            logged: false,
        }
    }
}

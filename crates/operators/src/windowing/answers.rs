//! Answers of windowing about slices, records and rows.

use super::SliceId;
use crate::event_time::BEGINNING;

/// A slice, with times of records that update it, the end excluded: all its times, or, if the slice
/// packs windows or panes, the times of one window or pane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// The slice.
    pub slice: SliceId,
    pub(crate) start: i64,
    pub(crate) end: i64,
}

impl Bounds {
    /// Around no time.
    pub(crate) const NOTHING: Bounds = Bounds { slice: SliceId(0), start: 0, end: BEGINNING };

    #[inline(always)]
    pub(crate) fn contains(&self, time: i64) -> bool {
        (self.start..self.end).contains(&time)
    }
}

/// First sort key of rows that fire under one name
/// ([`order_within`](super::Windowing::order_within)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OrderWithin {
    /// Rows of so long a time are not told apart by it.
    pub(super) size_us: i64,
    pub(super) before_end_us: i64,
}

impl OrderWithin {
    /// Of a row with this event time.
    pub fn of(&self, time: i64) -> i64 {
        time.saturating_add(self.before_end_us).div_euclid(self.size_us)
    }
}

/// Fate of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// The record updates the slice of its time.
    InTime,
    /// The record is late for some windows, and updates this slice, which serves the rest.
    Partly(SliceId),
    /// The record is late for all its windows.
    Late,
}

/// Content of slices; rows of packed slices have their begin among their keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packing {
    /// A slice is a window, or a pane.
    Nothing,
    /// Window by window.
    Windows,
    /// Panes, or parts of sessions.
    Parts,
}

/// Combination of slices into windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Combining {
    /// A window is a slice.
    OneSlice,
    /// Of panes, each of which is a slice, or several of which a slice packs.
    Panes {
        /// How many a window has at the most.
        count: i64,
        /// Whether windows hop; else they cumulate.
        hop: bool,
    },
    /// Rows of a key that are a gap apart at the most are joined.
    Sessions {
        /// The gap, microseconds.
        gap_us: i64,
    },
}

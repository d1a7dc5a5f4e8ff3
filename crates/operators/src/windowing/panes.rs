//! Windows of several panes: numbers instead of times.
//!
//! Panes follow each other and are numbered. Where windows hop, window `w` has the `count` panes
//! from `w` on. Where they cumulate, a new one begins every `count` panes, and window `w` has the
//! panes from that begin to `w`. So every window ends with a pane of its own, and windows end in
//! the order of their numbers.
//!
//! A slice is a pane together with the first window for which its records are in time. Its name is
//! made of both, so that slices are in the order in which they close; slices that close together
//! are in the order of their panes.

use std::ops::RangeInclusive;

use super::{SliceId, WindowId};

/// How windows consist of panes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Panes {
    /// How many a window has at the most, at least 2.
    pub(super) count: i64,
    /// Whether windows hop; else they cumulate.
    pub(super) hop: bool,
}

impl Panes {
    fn slice(self, window: i64, pane: i64) -> SliceId {
        // How far the pane stands before the window's last one, counted backwards.
        let rank = pane - (self.end_of(WindowId(window)) - self.count);
        SliceId(window.saturating_mul(self.count).saturating_add(rank))
    }

    /// The slice of a pane that serves all its windows.
    #[inline]
    pub(super) fn slice_of(self, pane: i64) -> SliceId {
        let first = if self.hop { pane - self.count + 1 } else { pane };
        self.slice(first, pane)
    }

    /// The slice of a pane that serves those of its windows from `window` on; `None`: there are
    /// none.
    pub(super) fn slice_from(self, pane: i64, window: i64) -> Option<SliceId> {
        (window <= self.last_window_of(pane).0).then(|| self.slice(window, pane))
    }

    /// The first window that a slice serves.
    #[inline]
    pub(super) fn first_window_of(self, slice: SliceId) -> WindowId {
        WindowId(slice.0.div_euclid(self.count))
    }

    /// The pane of a slice; `None`: there is no such slice.
    pub(super) fn pane_of(self, slice: SliceId) -> Option<i64> {
        let window = self.first_window_of(slice);
        let pane = self.end_of(window) - self.count + slice.0.rem_euclid(self.count);
        (pane >= self.first_pane_of(window)).then_some(pane)
    }

    /// The last window that has a pane.
    pub(super) fn last_window_of(self, pane: i64) -> WindowId {
        match self.hop {
            true => WindowId(pane),
            false => WindowId(pane - pane.rem_euclid(self.count) + self.count - 1),
        }
    }

    /// The first window that ends after the pane of this number begins.
    pub(super) fn window_ending_with(self, pane: i64) -> i64 {
        if self.hop { pane - self.count + 1 } else { pane }
    }

    /// The first pane of a window.
    pub(super) fn first_pane_of(self, window: WindowId) -> i64 {
        match self.hop {
            true => window.0,
            false => window.0 - window.0.rem_euclid(self.count),
        }
    }

    /// The pane after a window's last.
    pub(super) fn end_of(self, window: WindowId) -> i64 {
        if self.hop { window.0 + self.count } else { window.0 + 1 }
    }

    /// The names of the slices of which a window is the first that they serve.
    pub(super) fn slices_of(self, window: WindowId) -> RangeInclusive<SliceId> {
        let first = window.0.saturating_mul(self.count);
        SliceId(first)..=SliceId(first.saturating_add(self.count - 1))
    }
}

//! Packs of panes, where windows overlap: a slice has one pane or, where panes are short, as many
//! as fire together. Then each row names its own pane.
//!
//! Panes follow each other and are numbered, and so are windows: by the number of their last pane.
//! Where windows hop, a window has so many panes; where they cumulate, a new one begins every so
//! many panes, and a window has the panes from that begin on.
//!
//! Packs follow each other and are numbered. Under the number of a pack fire all windows whose last
//! pane is in the pack. A slice is a pack, or a pane of a record that is late for some of its
//! windows, together with the first window for which the record is in time. The name of a slice is
//! made of the first number under which any of its windows fires, so that slices are in the order
//! in which they close; the pack comes before the panes.

use std::ops::RangeInclusive;

use super::{
    Bounds, SliceId, WindowId, Windowing, WindowingKind, index_of, start_of, start_of_index,
};
use crate::event_time::USABLE;
use crate::plan::Tumble;

/// How windows consist of panes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Panes {
    /// How many a window has at the most, at least 2.
    pub(super) count: i64,
    /// Whether windows hop; else they cumulate.
    pub(super) hop: bool,
}

impl Panes {
    /// The first pane of a window.
    fn first_of(self, window: i64) -> i64 {
        if self.hop { window - self.count + 1 } else { window - window.rem_euclid(self.count) }
    }

    /// The last window that has a pane.
    fn last_window_of(self, pane: i64) -> i64 {
        let before = if self.hop { 0 } else { pane.rem_euclid(self.count) };
        pane - before + self.count - 1
    }
}

/// How windows consist of panes, and slices of those.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Packs {
    pub(super) panes: Panes,
    /// How panes follow each other.
    pub(super) pane: Tumble,
    /// How many a pack has.
    pub(super) count: i64,
}

/// Content of a slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Content {
    /// All records of a pack that are late for no window.
    Pack(i64),
    /// Records of a pane that are late for all windows before `window`.
    Pane { pane: i64, window: i64 },
}

impl Packs {
    /// Names of slices that may have the same window as their first.
    fn names(self) -> i64 {
        self.count.saturating_mul(self.panes.count).saturating_add(1)
    }

    fn pack_of(self, pane: i64) -> i64 {
        pane.div_euclid(self.count)
    }

    fn name(self, content: Content) -> SliceId {
        let (number, rank) = match content {
            Content::Pack(pack) => (pack, 0),
            Content::Pane { pane, window } => {
                let before = pane - (window - self.panes.count + 1);
                let rank = window.rem_euclid(self.count) * self.panes.count + before;
                (self.pack_of(window), rank + 1)
            }
        };
        SliceId(number.saturating_mul(self.names()).saturating_add(rank))
    }

    /// Content of the slice of this name; `None` if there is no such slice.
    fn content(self, slice: SliceId) -> Option<Content> {
        let number = slice.0.div_euclid(self.names());
        let rank = slice.0.rem_euclid(self.names()) - 1;
        if rank < 0 {
            return Some(Content::Pack(number));
        }
        let window = number.checked_mul(self.count)? + rank / self.panes.count;
        let pane = window - self.panes.count + 1 + rank % self.panes.count;
        let is_of_window = pane >= self.panes.first_of(window);
        is_of_window.then_some(Content::Pane { pane, window })
    }

    /// The slice of a time, and the bounds of its pane.
    pub(super) fn slice_of(self, time: i64) -> Bounds {
        let start = start_of(&self.pane, time);
        let slice = self.name(Content::Pack(self.pack_of(self.pane_from(start))));
        Bounds { slice, start, end: start.saturating_add(self.pane.size_us) }
    }

    /// The pane that begins at `start`.
    pub(super) fn pane_from(self, start: i64) -> i64 {
        index_of(&self.pane, start)
    }

    /// The slice of a pane's records that are late for the windows before `window`; `None`: it has
    /// no other.
    pub(super) fn slice_from(self, pane: i64, window: i64) -> Option<SliceId> {
        let is_left = window <= self.panes.last_window_of(pane);
        is_left.then(|| self.name(Content::Pane { pane, window }))
    }

    /// From when on the records of a slice are; `None`: there is no such slice.
    pub(super) fn begin_of(self, slice: SliceId) -> Option<i64> {
        let pane = match self.content(slice)? {
            Content::Pack(pack) => pack.checked_mul(self.count)?,
            Content::Pane { pane, .. } => pane,
        };
        pane.checked_mul(self.pane.size_us)?.checked_add(self.pane.offset_us)
    }

    /// The numbers under which a slice's windows fire.
    pub(super) fn numbers_of(self, slice: SliceId) -> [i64; 2] {
        let number = slice.0.div_euclid(self.names());
        let last = match self.content(slice) {
            Some(Content::Pack(pack)) => (pack + 1).saturating_mul(self.count) - 1,
            Some(Content::Pane { pane, .. }) => pane,
            None => return [number, number - 1],
        };
        [number, self.pack_of(self.panes.last_window_of(last))]
    }

    /// The names of the slices whose first windows fire under this number.
    pub(super) fn slices_of(self, number: WindowId) -> RangeInclusive<SliceId> {
        let first = number.0.saturating_mul(self.names());
        SliceId(first)..=SliceId(first.saturating_add(self.names() - 1))
    }

    /// The first and the last window that a slice's records of the pane from `start` count for.
    pub(super) fn ends_of(self, slice: SliceId, start: i64) -> [i64; 2] {
        let pane = self.pane_from(start);
        let first = match self.content(slice) {
            Some(Content::Pane { window, .. }) => window.max(pane),
            _ => pane,
        };
        [first, self.panes.last_window_of(pane)]
    }

    /// The last of the windows that fire under a number.
    pub(super) fn last_end_of(self, number: WindowId) -> i64 {
        (number.0 + 1).saturating_mul(self.count) - 1
    }

    /// Start and end of a window.
    pub(super) fn bounds_of(self, window: i64) -> [i64; 2] {
        let panes = [self.panes.first_of(window), window.saturating_add(1)];
        panes.map(|pane| start_of_index(&self.pane, pane))
    }
}

impl Windowing {
    /// The number of the pane of a slice's rows, that from `start` where slices pack panes, and of
    /// the pane with which the first window ends that they count for, of the windows from `from`
    /// on; an earlier pane: there is no such window.
    pub(crate) fn panes_from(&self, slice: SliceId, start: i64, from: i64) -> [i64; 2] {
        match &self.kind {
            WindowingKind::Packs(packs) => {
                let start = if packs.count > 1 { start } else { self.begin_of(slice) };
                let (pane, [first, last]) = (packs.pane_from(start), packs.ends_of(slice, start));
                [pane, if from <= last { first.max(from) } else { pane - 1 }]
            }
            _ => [0, 0],
        }
    }

    /// Whether a slice may have rows of the window, the pane or the part of sessions that begins at
    /// `start`, where slices pack such. Open sessions, which a checkpoint has as rows of a slice,
    /// are of a part at 0.
    pub(crate) fn has_part(&self, slice: SliceId, start: i64) -> bool {
        let Some(slices) = &self.slices else { return false };
        if start.unsigned_abs() > USABLE.unsigned_abs() + slices.size_us.unsigned_abs() {
            return false;
        }
        let part = self.slice_of(start);
        let is_there = part.slice == slice || self.begin_of(slice) == start;
        let is_open = start == 0 && matches!(self.kind, WindowingKind::Sessions(_));
        is_open || part.start == start && is_there
    }

    /// Of sessions: whether a slice may have a row with records from the first to the last of these
    /// times. An open session may have begun long before the slice.
    pub(crate) fn has_session(&self, slice: SliceId, [first, last]: [i64; 2]) -> bool {
        let size_us = self.slices.as_ref().map_or(0, |slices| slices.size_us);
        -USABLE <= first && first <= last && last < slice.0.saturating_add(size_us)
    }

    /// How far the first of the windows reaches that fire under this name: the number of its last
    /// pane.
    pub(crate) fn first_end_in(&self, window: WindowId) -> i64 {
        match &self.kind {
            WindowingKind::Packs(packs) => window.0.saturating_mul(packs.count),
            _ => window.0,
        }
    }

    /// How far a window reaches: the number of its last pane, or of the last pane of the windows
    /// that fire under this name; of sessions, when the slice with which they are over ends.
    pub(crate) fn last_end_in(&self, window: WindowId) -> i64 {
        match &self.kind {
            WindowingKind::Packs(packs) => packs.last_end_of(window),
            WindowingKind::Sessions(_) => self.fires_at(window).saturating_sub(self.lateness_us),
            _ => window.0,
        }
    }
}

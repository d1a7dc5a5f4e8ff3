//! Windowing: the only module that knows how event time is divided into windows, and when what is
//! complete.
//!
//! State is kept by *slice*, results are given by *window*. A record updates one slice; a window
//! consists of one or several slices. All other modules ask this module: which slice a record
//! updates, whether it is late, which windows a slice serves, from when on a slice is complete, and
//! the next window with its firing time. For other modules a [`SliceId`] and a [`WindowId`] are
//! names, to be compared, kept and sent, but without arithmetic. So two slices of the same times,
//! or two windows that begin together, may have names of their own.
//!
//! - Tumbling windows, and the single window of an undivided input: a slice is a window.
//! - Short tumbling windows that are *packed*: a slice is several windows in sequence, which fire
//!   together. A *window* is the name under which they fire; each row names its own window.
//! - Windows that hop or cumulate: a slice is a pane, as wide as windows are apart, or packs some
//!   ([`packs`]). A record that is late for some of its windows goes to a slice of its own, named
//!   by the first window for which the record is in time.
//! - Sessions: a slice is a gap wide at the most, so that all records of a key in it belong to one
//!   session; or it packs many such parts, and each row names its part. A *window* is the name
//!   under which sessions fire that ended in about the same time; each row has its session's begin
//!   and end.
//!
//! - Interval joins: a slice is as many rows of the anchor side as its time has, and fires as a
//!   window when all is there that these rows may meet. Rows of the other side update several
//!   slices ([`Windowing::starts_meeting`]).
//!
//! All times are in microseconds. The arithmetic does not overflow for usable times
//! ([`USABLE`](crate::event_time::USABLE)).

mod answers;
mod interval;
mod names;
mod packs;
mod results;
#[cfg(test)]
mod tests;

use std::ops::RangeInclusive;

use crate::event_time::{BEGINNING, END, USABLE};
use crate::plan::{Interval, Session, Tumble, Window};
pub use answers::{Bounds, Combining, Fate, OrderWithin, Packing};
pub use names::{SliceId, WindowId};
use packs::{Packs, Panes};

/// How long before its window's end a result's event time (`window_time`) is.
pub(crate) const ROW_TIME_BEFORE_END_US: i64 = 1000;

/// The windows of an operator, and how long they wait for late records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Windowing {
    /// How slices follow each other. `None`: there is one window for the whole input, which fires
    /// at its end.
    slices: Option<Tumble>,
    kind: WindowingKind,
    lateness_us: i64,
}

/// Kind of windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WindowingKind {
    /// Each is a slice, and is named by the time at which it begins.
    Slices,
    /// The windows that a slice packs.
    Packed(Tumble),
    /// Panes, of which a slice packs one or several.
    Packs(Packs),
    /// Sessions; a name, the begin of a slice, stands for all sessions that are over when the slice
    /// is complete.
    Sessions(Session),
    /// Each window is a slice, named by its begin on the anchor side.
    Interval(Interval),
}

impl Windowing {
    /// Windows that wait for late records; `None`: one for the whole input.
    pub fn new(window: Option<Window>, lateness_us: i64) -> Windowing {
        let (slices, kind) = match window {
            None => (None, WindowingKind::Slices),
            Some(Window::Tumble(tumble)) => (Some(tumble), WindowingKind::Slices),
            Some(Window::Hop(hop)) => {
                let slices = Tumble { size_us: hop.slide_us, offset_us: hop.offset_us };
                (Some(slices), WindowingKind::panes(slices, hop.size_us, true))
            }
            Some(Window::Cumulate(window)) => {
                let slices = Tumble { size_us: window.step_us, offset_us: window.offset_us };
                (Some(slices), WindowingKind::panes(slices, window.size_us, false))
            }
            Some(Window::Session(session)) => {
                let size_us = part_us(&session);
                (Some(Tumble { size_us, offset_us: 0 }), WindowingKind::Sessions(session))
            }
            Some(window @ Window::Interval(interval)) => {
                (Some(window.slices()), WindowingKind::Interval(interval))
            }
        };
        Windowing { slices, kind, lateness_us }
    }

    /// The same windows, `count` of them in a slice, or of their panes, or, where no groups share
    /// sessions, of the parts of these.
    pub(crate) fn packed(self, count: i64) -> Windowing {
        let Some(pane) = self.slices.filter(|_| count > 1) else { return self };
        let kind = match self.kind {
            WindowingKind::Slices => WindowingKind::Packed(pane),
            WindowingKind::Packs(packs) => WindowingKind::Packs(Packs { count, ..packs }),
            WindowingKind::Sessions(session) => WindowingKind::Sessions(session),
            _ => return self,
        };
        let slices = Some(Tumble { size_us: pane.size_us.saturating_mul(count), ..pane });
        Windowing { slices, kind, ..self }
    }

    /// Content of slices.
    pub(crate) fn packing(&self) -> Packing {
        match self.kind {
            WindowingKind::Packed(_) => Packing::Windows,
            WindowingKind::Packs(packs) if packs.count > 1 => Packing::Parts,
            WindowingKind::Sessions(session)
                if self.slices.is_some_and(|s| s.size_us > part_us(&session)) =>
            {
                Packing::Parts
            }
            _ => Packing::Nothing,
        }
    }

    /// How rows that fire under one name are put in order before their own columns are looked at:
    /// by this, of the event time of each. `None`: there is no need for that.
    pub fn order_within(&self) -> Option<OrderWithin> {
        match self.kind {
            WindowingKind::Packed(_) | WindowingKind::Packs(Packs { count: 2.., .. }) => {
                Some(OrderWithin { size_us: 1, before_end_us: 0 })
            }
            // As if they had fired in shorter slices, so that their order does not tell how long
            // slices are.
            WindowingKind::Sessions(session) => {
                let size_us = (session.gap_us / Session::SLICES_OF_GAP).max(1);
                let within = OrderWithin { size_us, before_end_us: ROW_TIME_BEFORE_END_US };
                self.slices.filter(|slices| slices.size_us > size_us).map(|_| within)
            }
            _ => None,
        }
    }

    /// How long a window waits for late records once it has ended.
    pub fn lateness_us(&self) -> i64 {
        self.lateness_us
    }

    /// How far the watermark must be beyond the end of a slice, so that nothing more is added.
    #[inline(always)]
    fn wait_us(&self) -> i64 {
        match &self.kind {
            WindowingKind::Interval(interval) => {
                self.lateness_us.saturating_add(interval.delay_us())
            }
            _ => self.lateness_us,
        }
    }

    /// Whether there is one window for the whole input.
    pub fn is_whole(&self) -> bool {
        self.slices.is_none()
    }

    /// Whether it has windows that a query speaks of: not the whole input, nor the slices of an
    /// interval join, which follow from how it is executed.
    pub fn has_windows(&self) -> bool {
        self.slices.is_some() && !matches!(self.kind, WindowingKind::Interval(_))
    }

    /// How windows are made of slices.
    pub(crate) fn combining(&self) -> Combining {
        match self.kind {
            WindowingKind::Slices | WindowingKind::Packed(_) | WindowingKind::Interval(_) => {
                Combining::OneSlice
            }
            WindowingKind::Packs(Packs { panes: Panes { count, hop }, .. }) => {
                Combining::Panes { count, hop }
            }
            WindowingKind::Sessions(session) => Combining::Sessions { gap_us: session.gap_us },
        }
    }

    /// Greatest distance between records of one window: a worker that reads so far ahead opens
    /// windows that other workers have not reached. `None`: a single window for the whole input.
    pub fn reach_us(&self) -> Option<i64> {
        let slices = self.slices.as_ref()?;
        Some(match self.kind {
            WindowingKind::Slices | WindowingKind::Packed(_) => slices.size_us,
            WindowingKind::Packs(Packs { panes, pane, count }) => {
                let pack_us = if count > 1 { slices.size_us } else { 0 };
                pane.size_us.saturating_mul(panes.count).saturating_add(pack_us)
            }
            WindowingKind::Sessions(session) => session.gap_us.max(slices.size_us),
            WindowingKind::Interval(interval) => {
                let length_us = interval.before_us.saturating_add(interval.after_us);
                slices.size_us.saturating_add(length_us)
            }
        })
    }

    /// Distance beyond other workers' progress within which new slices are merged all the same:
    /// half of a window without one of its slices.
    pub fn ahead_us(&self) -> i64 {
        let slice_us = self.slices.as_ref().map_or(0, |slices| slices.size_us);
        if let WindowingKind::Interval(interval) = &self.kind {
            // Who is no farther may be given slices so far ahead.
            return slice_us.saturating_add(interval.before_us.max(0));
        }
        (self.reach_us().unwrap_or(0) - slice_us).max(0) / 2
    }

    /// The slice that a record of this time updates, if it is not late for any window.
    #[inline(always)]
    pub fn slice_of(&self, time: i64) -> Bounds {
        match &self.slices {
            Some(slices) => {
                let start = start_of(slices, time);
                let end = start.saturating_add(slices.size_us);
                let slice = match &self.kind {
                    WindowingKind::Packs(packs) => return packs.slice_of(time),
                    WindowingKind::Sessions(session) => {
                        let slice = SliceId(start);
                        let part = Tumble { size_us: part_us(session), offset_us: 0 };
                        let start = start_of(&part, time);
                        return Bounds { slice, start, end: start + part.size_us };
                    }
                    WindowingKind::Packed(windows) => {
                        let slice = SliceId(start);
                        let start = start_of(windows, time);
                        return Bounds { slice, start, end: start + windows.size_us };
                    }
                    _ => SliceId(start),
                };
                Bounds { slice, start, end }
            }
            None => Bounds { slice: SliceId::WHOLE, start: BEGINNING, end: END },
        }
    }

    /// The slice that rows of this event time update; `None` for rows without an event time, if
    /// windows need it.
    pub fn slice_of_rows(&self, time: Option<i64>) -> Option<SliceId> {
        match time {
            _ if self.is_whole() => Some(SliceId::WHOLE),
            time => time.map(|time| self.slice_of(time).slice),
        }
    }

    /// The slice that all records between two times update, if it is one.
    #[inline(always)]
    pub(crate) fn common_slice(&self, min: i64, max: i64) -> Option<Bounds> {
        Some(self.slice_of(min)).filter(|slice| max < slice.end)
    }

    /// Whether no record of a slice, of this time or later, is late for any window when its split's
    /// watermark is here.
    #[inline(always)]
    pub(crate) fn all_in_time(&self, slice: &Bounds, time: i64, watermark: i64) -> bool {
        match self.kind {
            WindowingKind::Sessions(_) | WindowingKind::Interval(_) => {
                time.saturating_add(self.lateness_us) >= watermark
            }
            // The first window of a pane ends with it.
            WindowingKind::Packed(_) | WindowingKind::Packs(_) => {
                slice.end.saturating_add(self.lateness_us) > watermark
            }
            _ => self.closes_at(slice.slice) > watermark,
        }
    }

    /// Fate of a record of this time, in the slice of its time; `watermark` is the split's
    /// watermark before the record.
    #[inline]
    pub fn fate(&self, slice: &Bounds, time: i64, watermark: i64) -> Fate {
        if self.all_in_time(slice, time, watermark) {
            return Fate::InTime;
        }
        let ended = watermark.saturating_sub(self.lateness_us).max(-USABLE);
        let WindowingKind::Packs(packs) = &self.kind else { return Fate::Late };
        // Windows end where a pane does: the first that ends later than this is still open.
        let window = index_of(&packs.pane, start_of(&packs.pane, ended));
        let left = packs.slice_from(packs.pane_from(slice.start), window);
        left.map_or(Fate::Late, Fate::Partly)
    }

    /// End of the last window of a late record. `None`: lateness follows from the record's own
    /// time.
    pub(crate) fn last_end_of(&self, slice: &Bounds) -> Option<i64> {
        match &self.kind {
            WindowingKind::Packs(packs) => {
                let [_, last] = packs.ends_of(slice.slice, slice.start);
                Some(packs.bounds_of(last)[1])
            }
            WindowingKind::Sessions(_) | WindowingKind::Interval(_) => None,
            _ => Some(slice.end),
        }
    }

    /// The most slices that records between two times may update.
    pub(crate) fn slices_between(&self, min: i64, max: i64) -> i64 {
        let Some(slices) = &self.slices else { return 1 };
        let (first, last) = (start_of(slices, min), start_of(slices, max));
        last.saturating_sub(first) / slices.size_us + 1
    }

    /// Whether there is a slice of this name, for usable times.
    pub fn has_slice(&self, slice: SliceId) -> bool {
        let Some(slices) = &self.slices else { return slice == SliceId::WHOLE };
        let start = match &self.kind {
            WindowingKind::Packs(packs) => packs.begin_of(slice),
            _ => Some(slice.0),
        };
        let every_us = match &self.kind {
            WindowingKind::Packs(packs) => packs.pane.size_us,
            _ => slices.size_us,
        };
        start.is_some_and(|start| {
            start.unsigned_abs() <= USABLE.unsigned_abs() + slices.size_us.unsigned_abs()
                && start
                    .checked_sub(slices.offset_us)
                    .is_some_and(|start| start.rem_euclid(every_us) == 0)
        })
    }

    /// The watermark from which on nothing is added to a slice: later records for it are late, and
    /// its state may be shipped.
    #[inline(always)]
    pub fn closes_at(&self, slice: SliceId) -> i64 {
        match &self.kind {
            WindowingKind::Packs(packs) => self.fires_at(WindowId(packs.numbers_of(slice)[0])),
            _ => self.ends_for_good(slice.0),
        }
    }

    /// When the slice that begins at `start` has ended, and late records are not waited for any
    /// longer.
    #[inline(always)]
    fn ends_for_good(&self, start: i64) -> i64 {
        match &self.slices {
            Some(slices) => start.saturating_add(slices.size_us).saturating_add(self.wait_us()),
            None => END,
        }
    }

    /// From when on the records are that update a slice.
    pub fn begin_of(&self, slice: SliceId) -> i64 {
        match (&self.kind, &self.slices) {
            (_, None) => BEGINNING,
            (WindowingKind::Packs(packs), _) => packs.begin_of(slice).unwrap_or(END),
            _ => slice.0,
        }
    }

    /// From when on the records are of the last slice of a window.
    pub fn begin_of_last_slice(&self, window: WindowId) -> i64 {
        match (&self.kind, &self.slices) {
            (_, None) => BEGINNING,
            (WindowingKind::Packs(_), Some(slices)) => start_of_index(slices, window.0),
            _ => window.0,
        }
    }

    /// The windows that a slice serves, in the order in which they fire.
    pub fn windows_of(&self, slice: SliceId) -> impl Iterator<Item = WindowId> {
        let first = match &self.kind {
            WindowingKind::Packs(packs) => packs.numbers_of(slice)[0],
            _ => slice.0,
        };
        (first..=self.last_window_of(slice).0).map(WindowId)
    }

    /// The last window that a slice serves.
    pub(crate) fn last_window_of(&self, slice: SliceId) -> WindowId {
        WindowId(match &self.kind {
            WindowingKind::Packs(packs) => packs.numbers_of(slice)[1],
            _ => slice.0,
        })
    }

    /// The window that fires next of those that a slice serves, when all windows that fire up to
    /// `frontier` have fired.
    pub(crate) fn next_window(&self, slice: SliceId, frontier: i64) -> Option<WindowId> {
        self.windows_of(slice).find(|window| self.fires_at(*window) > frontier)
    }

    /// The next window after a fired window, if it needs the slices of the fired window, up to
    /// slice `newest`; else `None`.
    pub(crate) fn window_after(&self, window: WindowId, newest: SliceId) -> Option<WindowId> {
        let next = WindowId(match (&self.kind, &self.slices) {
            (WindowingKind::Sessions(_), Some(slices)) => window.0.saturating_add(slices.size_us),
            _ => window.0 + 1,
        });
        match &self.kind {
            WindowingKind::Slices | WindowingKind::Packed(_) | WindowingKind::Interval(_) => None,
            WindowingKind::Packs(_) => (next <= self.last_window_of(newest)).then_some(next),
            WindowingKind::Sessions(_) => Some(next),
        }
    }

    /// The range of names of slices that no window before `window` needs; some names may have no
    /// slice.
    pub(crate) fn slices_of(&self, window: WindowId) -> RangeInclusive<SliceId> {
        match &self.kind {
            WindowingKind::Packs(packs) => packs.slices_of(window),
            _ => SliceId(window.0)..=SliceId(window.0),
        }
    }

    /// The watermark at which a window fires.
    #[inline(always)]
    pub fn fires_at(&self, window: WindowId) -> i64 {
        match (&self.kind, &self.slices) {
            (WindowingKind::Packs(_), Some(slices)) => {
                let end = start_of_index(slices, window.0.saturating_add(1));
                end.saturating_add(self.lateness_us)
            }
            _ => self.ends_for_good(window.0),
        }
    }

    /// How many windows have fired when the watermark has got so far; only differences mean
    /// something.
    pub fn passed(&self, watermark: i64) -> i64 {
        match (&self.slices, watermark) {
            (_, BEGINNING | END) => watermark,
            (None, _) => BEGINNING,
            (Some(slices), watermark) => {
                let end = watermark.saturating_sub(self.wait_us()).max(-USABLE);
                (end - slices.offset_us).div_euclid(slices.size_us)
            }
        }
    }

    /// The first watermark beyond this one at which a window may fire; `None`: only the end is one.
    pub fn next_after(&self, watermark: i64) -> Option<i64> {
        let slices = self.slices.as_ref().filter(|_| watermark < END)?;
        let passed = watermark.saturating_sub(self.wait_us()).max(-USABLE);
        Some(start_of(slices, passed) + slices.size_us + self.wait_us())
    }
}

impl WindowingKind {
    /// Windows of this size, of panes that follow each other.
    fn panes(pane: Tumble, size_us: i64, hop: bool) -> WindowingKind {
        match size_us / pane.size_us {
            1 => WindowingKind::Slices,
            count => WindowingKind::Packs(Packs { panes: Panes { count, hop }, pane, count: 1 }),
        }
    }
}

/// How long a key's records are joined without looking at the time between them.
fn part_us(session: &Session) -> i64 {
    (session.gap_us / session.slices_of_gap.max(1)).max(1)
}

/// The event time of results of a window with this end.
pub fn time_before(end: i64) -> i64 {
    end.saturating_sub(ROW_TIME_BEFORE_END_US)
}

#[inline(always)]
fn start_of(slices: &Tumble, time: i64) -> i64 {
    time - (time - slices.offset_us).rem_euclid(slices.size_us)
}

/// The number of the slice that begins at `start`.
fn index_of(slices: &Tumble, start: i64) -> i64 {
    (start - slices.offset_us).div_euclid(slices.size_us)
}

/// When the slice of this number begins.
fn start_of_index(slices: &Tumble, index: i64) -> i64 {
    index.saturating_mul(slices.size_us).saturating_add(slices.offset_us)
}

//! Windowing: the only module that knows how event time is divided into windows, and when what is
//! complete.
//!
//! State is kept by *slice*, results are given by *window*. A record updates one slice; a window
//! consists of one or several slices. All other modules ask this one: which slice a record updates,
//! which windows a slice serves, from when on nothing is added to a slice, which window fires next
//! and when, and when a slice may be dropped. To them a [`SliceId`] and a [`WindowId`] are names:
//! they compare, keep and send them, and do not compute with them. So two slices of the same times,
//! or two windows that begin together, may have names of their own.
//!
//! Windows are tumbling, or there is a single window for the whole input. In both cases a slice is
//! a window, and is named by the time at which it begins.
//!
//! All times are in microseconds. The arithmetic does not overflow for usable times
//! ([`USABLE`](crate::event_time::USABLE)).

use std::fmt::{self, Display, Formatter};
use std::iter::once;
use std::ops::RangeInclusive;

use crate::event_time::{BEGINNING, END, USABLE};
use crate::plan::{Tumble, Window};

/// How long before its window's end a result's event time (`window_time`) is.
const ROW_TIME_BEFORE_END_US: i64 = 1000;

/// The name of a slice among those of a [`Windowing`]. A slice that closes earlier has a lesser
/// name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SliceId(i64);

/// The name of a window among those of a [`Windowing`]. A window that fires earlier has a lesser
/// name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct WindowId(i64);

macro_rules! words {
    ($id:ident) => {
        impl $id {
            /// The only one if there is one for the whole input.
            pub(crate) const WHOLE: $id = $id(0);

            /// As a word of a message. Any word may come back: ask whether there is such a one.
            pub(crate) fn word(self) -> u64 {
                self.0 as u64
            }

            /// Of a word of a message.
            pub(crate) fn from_word(word: u64) -> $id {
                $id(word as i64)
            }
        }

        impl Display for $id {
            fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

words!(SliceId);
words!(WindowId);

/// The windows of an operator, and how long they wait for late records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Windowing {
    /// `None`: one window for the whole input, which fires at its end.
    tumble: Option<Tumble>,
    lateness_us: i64,
}

/// A slice, and the times of the records that update it, the end excluded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) slice: SliceId,
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

impl Windowing {
    /// Tumbling windows, or one for the whole input, that wait for late records.
    pub(crate) fn new(window: Option<Window>, lateness_us: i64) -> Windowing {
        let tumble = match window {
            Some(Window::Tumble(tumble)) => Some(tumble),
            _ => None,
        };
        Windowing { tumble, lateness_us }
    }

    /// How long a window waits for late records once it has ended.
    pub(crate) fn lateness_us(&self) -> i64 {
        self.lateness_us
    }

    /// Whether there is one window for the whole input.
    pub(crate) fn is_whole(&self) -> bool {
        self.tumble.is_none()
    }

    /// How far apart the records of one window may be: who reads so far ahead of another opens
    /// windows that the other has not reached. `None`: there is one for the whole input.
    pub(crate) fn reach_us(&self) -> Option<i64> {
        self.tumble.as_ref().map(|tumble| tumble.size_us)
    }

    /// The slice that a record of this time updates.
    #[inline(always)]
    pub(crate) fn slice_of(&self, time: i64) -> Bounds {
        match &self.tumble {
            Some(tumble) => {
                let start = start_of(tumble, time);
                let end = start.saturating_add(tumble.size_us);
                Bounds { slice: SliceId(start), start, end }
            }
            None => Bounds { slice: SliceId::WHOLE, start: BEGINNING, end: END },
        }
    }

    /// The slice that rows of this event time update; `None`: they have none, and need it.
    pub(crate) fn slice_of_rows(&self, time: Option<i64>) -> Option<SliceId> {
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

    /// The most slices that records between two times may update.
    pub(crate) fn slices_between(&self, min: i64, max: i64) -> i64 {
        let Some(tumble) = &self.tumble else { return 1 };
        let (first, last) = (start_of(tumble, min), start_of(tumble, max));
        last.saturating_sub(first) / tumble.size_us + 1
    }

    /// Whether there is a slice of this name, for usable times.
    pub(crate) fn has_slice(&self, slice: SliceId) -> bool {
        let SliceId(start) = slice;
        let Some(tumble) = &self.tumble else { return slice == SliceId::WHOLE };
        start.unsigned_abs() <= USABLE.unsigned_abs() + tumble.size_us.unsigned_abs()
            && start
                .checked_sub(tumble.offset_us)
                .is_some_and(|start| start.rem_euclid(tumble.size_us) == 0)
    }

    /// The watermark from which on nothing is added to a slice: later records for it are late, and
    /// its state may be shipped.
    #[inline(always)]
    pub(crate) fn closes_at(&self, slice: SliceId) -> i64 {
        self.ends_for_good(slice.0)
    }

    /// When what begins at `start` has ended, and late records are not waited for any longer.
    #[inline(always)]
    fn ends_for_good(&self, start: i64) -> i64 {
        match &self.tumble {
            Some(tumble) => start.saturating_add(tumble.size_us).saturating_add(self.lateness_us),
            None => END,
        }
    }

    /// From when on the records are that update a slice.
    pub(crate) fn begin_of(&self, slice: SliceId) -> i64 {
        if self.is_whole() { BEGINNING } else { slice.0 }
    }

    /// From when on the records are that count for a window.
    pub(crate) fn begin_of_window(&self, window: WindowId) -> i64 {
        if self.is_whole() { BEGINNING } else { window.0 }
    }

    /// The windows that a slice serves, in the order in which they fire.
    pub(crate) fn windows_of(&self, slice: SliceId) -> impl Iterator<Item = WindowId> {
        once(WindowId(slice.0))
    }

    /// The window that fires next of those that a slice serves, when all windows that fire up to
    /// `frontier` have fired.
    pub(crate) fn next_window(&self, slice: SliceId, frontier: i64) -> Option<WindowId> {
        self.windows_of(slice).find(|window| self.fires_at(*window) > frontier)
    }

    /// The names among which a window's slices are; not each of them need be one.
    pub(crate) fn slices_of(&self, window: WindowId) -> RangeInclusive<SliceId> {
        SliceId(window.0)..=SliceId(window.0)
    }

    /// The watermark at which a window fires.
    #[inline(always)]
    pub(crate) fn fires_at(&self, window: WindowId) -> i64 {
        self.ends_for_good(window.0)
    }

    /// A slice may be dropped when all windows that fire up to this have fired: none is left that
    /// it serves.
    pub(crate) fn drops_at(&self, slice: SliceId) -> i64 {
        let fires_at = self.windows_of(slice).map(|window| self.fires_at(window));
        fires_at.last().unwrap_or(BEGINNING)
    }

    /// How many windows have fired when the watermark has got so far; only differences mean
    /// something.
    pub(crate) fn passed(&self, watermark: i64) -> i64 {
        match (&self.tumble, watermark) {
            (_, BEGINNING | END) => watermark,
            (None, _) => BEGINNING,
            (Some(tumble), watermark) => {
                let end = watermark.saturating_sub(self.lateness_us).max(-USABLE);
                (end - tumble.offset_us).div_euclid(tumble.size_us)
            }
        }
    }

    /// What the columns `window_start`, `window_end` and `window_time` of a window's results are;
    /// `None` for the window of the whole input.
    pub(crate) fn columns_of(&self, window: WindowId) -> Option<[i64; 3]> {
        let WindowId(start) = window;
        let end = start.saturating_add(self.tumble.as_ref()?.size_us);
        Some([start, end, time_before(end)])
    }

    /// The event time of a window's results, their `window_time`; `None` for the window of the
    /// whole input, whose have none.
    pub(crate) fn row_time(&self, window: WindowId) -> Option<i64> {
        self.columns_of(window).map(|[.., time]| time)
    }

    /// The watermark of the results of all windows, when those that fire up to `frontier` have
    /// fired: the time of the first window that has not.
    pub(crate) fn watermark_after(&self, frontier: i64) -> i64 {
        match (&self.tumble, frontier) {
            (_, BEGINNING | END) => frontier,
            (None, _) => BEGINNING,
            (Some(tumble), frontier) => {
                let fired = frontier.saturating_sub(self.lateness_us).max(-USABLE);
                time_before(start_of(tumble, fired).saturating_add(tumble.size_us))
            }
        }
    }

    /// The least frontier after which the results' watermark is at or beyond `watermark`.
    pub(crate) fn frontier_for(&self, watermark: i64) -> i64 {
        match (&self.tumble, watermark) {
            (_, BEGINNING | END) => watermark,
            (None, _) => END,
            (Some(tumble), watermark) => {
                // The first window whose results may come after that is the one of this time.
                let before = watermark.max(-USABLE).saturating_add(ROW_TIME_BEFORE_END_US - 1);
                start_of(tumble, before).saturating_add(self.lateness_us)
            }
        }
    }
}

/// The event time of results of a window with this end.
fn time_before(end: i64) -> i64 {
    end.saturating_sub(ROW_TIME_BEFORE_END_US)
}

#[inline(always)]
fn start_of(tumble: &Tumble, time: i64) -> i64 {
    time - (time - tumble.offset_us).rem_euclid(tumble.size_us)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tumbling(size_us: i64, offset_us: i64, lateness_us: i64) -> Windowing {
        Windowing::new(Some(Tumble { size_us, offset_us }.into()), lateness_us)
    }

    #[test]
    fn slices_are_half_open_also_before_the_epoch() {
        let windowing = tumbling(10_000, 0, 0);
        for (time, start) in
            [(0, 0), (9_999, 0), (10_000, 10_000), (-1, -10_000), (-10_000, -10_000)]
        {
            let slice = windowing.slice_of(time);
            let (id, end) = (SliceId(start), start + 10_000);
            assert_eq!(slice, Bounds { slice: id, start, end }, "{time}");
            assert!(slice.contains(time) && !slice.contains(slice.end));
        }
        let shifted = tumbling(10_000, 3_000, 0);
        assert_eq!(shifted.slice_of(2_999).start, -7_000);
        assert_eq!(shifted.slice_of(3_000).start, 3_000);
        assert!(shifted.has_slice(SliceId(3_000)) && !shifted.has_slice(SliceId(0)));
        assert_eq!(windowing.slices_between(9_999, 10_000), 2);
        let first = Bounds { slice: SliceId(0), start: 0, end: 10_000 };
        assert_eq!(windowing.common_slice(0, 9_999), Some(first));
        assert_eq!(windowing.common_slice(0, 10_000), None);
    }

    #[test]
    fn a_window_fires_when_the_watermark_reaches_its_end_and_the_lateness_after_it() {
        for lateness_us in [0, 500] {
            let windowing = tumbling(10_000, 0, lateness_us);
            let first = WindowId(0);
            let fires_at = windowing.fires_at(first);
            assert_eq!(fires_at, 10_000 + lateness_us);
            let passed = windowing.passed(fires_at - 1);
            assert_eq!(windowing.passed(lateness_us), passed);
            assert_eq!(windowing.passed(fires_at), passed + 1);
            let slice = windowing.slice_of(9_999).slice;
            assert_eq!(windowing.windows_of(slice).collect::<Vec<_>>(), [first]);
            assert_eq!(windowing.slices_of(first), slice..=slice);
            assert_eq!(windowing.next_window(slice, fires_at - 1), Some(first));
            assert_eq!(windowing.next_window(slice, fires_at), None);
            assert_eq!(
                (windowing.closes_at(slice), windowing.drops_at(slice)),
                (fires_at, fires_at)
            );
        }
    }

    /// Minutes over ten seconds: a minute is complete with its last part, not one later; parts that
    /// wait for late records delay it, and nothing else does.
    #[test]
    fn results_are_complete_with_the_last_window_that_has_fired() {
        const S: i64 = 1_000_000;
        for lateness in [0, 5 * S] {
            let (parts, minutes) = (tumbling(10 * S, 0, lateness), tumbling(60 * S, 0, 0));
            assert_eq!(parts.row_time(WindowId(50 * S)), Some(60 * S - 1000));
            let watermark = |frontier| parts.watermark_after(frontier);
            assert_eq!(watermark(59 * S + lateness), 60 * S - 1000);
            assert_eq!(watermark(60 * S + lateness), 70 * S - 1000);
            assert_eq!(watermark(60 * S + lateness - 1), 60 * S - 1000);
            let fires_at = minutes.fires_at(WindowId(0));
            assert!(watermark(60 * S + lateness - 1) < fires_at);
            assert!(watermark(60 * S + lateness) >= fires_at);
            assert_eq!(parts.frontier_for(fires_at), 60 * S + lateness);
            // A window that ends between two of the parts' ends waits for the one before.
            assert_eq!(parts.frontier_for(65 * S), 60 * S + lateness);
            for at in [-1, 0, 1, 999, 1000, 1001, 59_999_000, 59_999_001, 60_000_000] {
                let frontier = parts.frontier_for(at);
                assert!(watermark(frontier) >= at && watermark(frontier - 1) < at, "{at}");
            }
        }
        let whole = Windowing::new(None, 0);
        assert_eq!((whole.watermark_after(7), whole.watermark_after(END)), (BEGINNING, END));
        assert_eq!((whole.frontier_for(7), whole.row_time(WindowId::WHOLE)), (END, None));
    }

    #[test]
    fn the_whole_input_is_one_slice_that_fires_at_its_end() {
        let windowing = Windowing::new(None, 0);
        let (slice, window) = (SliceId::WHOLE, WindowId::WHOLE);
        assert!(windowing.is_whole() && windowing.has_slice(slice));
        assert!(!windowing.has_slice(SliceId(1)));
        assert_eq!(windowing.slice_of(-5).slice, slice);
        assert_eq!(
            (windowing.slice_of_rows(None), windowing.begin_of(slice)),
            (Some(slice), BEGINNING)
        );
        assert_eq!((windowing.fires_at(window), windowing.columns_of(window)), (END, None));
        assert_eq!(windowing.passed(7), windowing.passed(BEGINNING));
        assert!(windowing.passed(END) > windowing.passed(7));
    }
}

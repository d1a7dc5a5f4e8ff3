//! The results of windows: their bounds, their event time, and the watermark of all results.

use super::packs::Packs;
use super::{
    Packing, ROW_TIME_BEFORE_END_US, SliceId, WindowId, Windowing, WindowingKind, start_of,
    time_before,
};
use crate::event_time::{BEGINNING, END, USABLE};
use crate::plan::OpenWindows;

impl Windowing {
    /// Values of the columns `window_start`, `window_end` and `window_time` for a window; `None`
    /// for the window of the whole input, and for sessions and packed windows, whose rows have
    /// values of their own.
    pub fn columns_of(&self, window: WindowId) -> Option<[i64; 3]> {
        let slices = self.slices.as_ref()?;
        let (start, end) = match &self.kind {
            WindowingKind::Slices | WindowingKind::Interval(_) => {
                (window.0, window.0.saturating_add(slices.size_us))
            }
            WindowingKind::Packs(packs) if packs.count == 1 => packs.bounds_of(window.0).into(),
            WindowingKind::Packed(_) | WindowingKind::Packs(_) | WindowingKind::Sessions(_) => {
                return None;
            }
        };
        Some([start, end, time_before(end)])
    }

    /// Open windows with rows in these slices, which come in order. All windows that fire up to
    /// `frontier` have fired. `None`: no window is open, or a row alone has the bounds of its
    /// window, as a session's row has.
    pub fn open(
        &self,
        slices: impl IntoIterator<Item = SliceId>,
        frontier: i64,
    ) -> Option<OpenWindows> {
        if !self.has_windows() || matches!(self.kind, WindowingKind::Sessions(_)) {
            return None;
        }
        // Windows before `next` are counted or have fired.
        let (mut count, mut next, mut ends) = (0, i64::MIN, None::<[i64; 2]>);
        // A message may name slices of any kind.
        for slice in slices.into_iter().filter(|slice| self.has_slice(*slice)) {
            let Some(WindowId(first)) = self.windows_of(slice).next() else { continue };
            let WindowId(last) = self.last_window_of(slice);
            next = next.max(first);
            while next <= last && self.fires_at(WindowId(next)) <= frontier {
                next += 1;
            }
            if next <= last {
                count += (last - next + 1) as u64;
                ends = Some([ends.map_or(next, |[first, _]| first), last]);
                next = last + 1;
            }
        }
        let [first_us, last_us] = ends?.map(|window| self.span_of(WindowId(window)));
        let count = (self.packing() == Packing::Nothing).then_some(count);
        Some(OpenWindows { count, first_us, last_us })
    }

    /// Start and end of a window; of several that fire under one name, of all together.
    fn span_of(&self, window: WindowId) -> [i64; 2] {
        match (self.columns_of(window), &self.kind) {
            (Some([start, end, _]), _) => [start, end],
            (None, WindowingKind::Packs(packs)) => {
                let [first, last] = [self.first_end_in(window), self.last_end_in(window)];
                [packs.bounds_of(first)[0], packs.bounds_of(last)[1]]
            }
            (None, _) => [window.0, self.ends_for_good(window.0) - self.wait_us()],
        }
    }

    /// Values of these columns for packed windows, given by their begins, or, if there are panes,
    /// by the numbers of their last panes.
    pub(crate) fn columns_from(&self, which: Vec<i64>) -> [Vec<i64>; 3] {
        let (starts, ends): (Vec<i64>, Vec<i64>) = match &self.kind {
            WindowingKind::Packs(packs) => {
                // Rows of a window follow each other.
                let bounds = which.chunk_by(|a, b| a == b).flat_map(|of_window| {
                    let [start, end] = packs.bounds_of(of_window[0]);
                    std::iter::repeat_n((start, end), of_window.len())
                });
                bounds.unzip()
            }
            WindowingKind::Packed(windows) => {
                let ends = which.iter().map(|start| start.saturating_add(windows.size_us));
                let ends = ends.collect();
                (which, ends)
            }
            _ => (which.clone(), which),
        };
        let times = ends.iter().map(|end| time_before(*end)).collect();
        [starts, ends, times]
    }

    /// The event time of a window's results, their `window_time`; `None` for the window of the
    /// whole input, whose have none, and for sessions and packed windows.
    pub fn row_time(&self, window: WindowId) -> Option<i64> {
        self.columns_of(window).map(|[.., time]| time)
    }

    /// The watermark of the results of all windows, when those that fire up to `frontier` have
    /// fired: the time of the first that may still come.
    pub fn watermark_after(&self, frontier: i64) -> i64 {
        match (&self.slices, frontier) {
            (_, BEGINNING | END) => frontier,
            (None, _) => BEGINNING,
            (Some(slices), frontier) => {
                let fired = frontier.saturating_sub(self.wait_us()).max(-USABLE);
                let start = start_of(slices, fired);
                time_before(match self.kind {
                    // Rows of the next slice have times of their own in it.
                    WindowingKind::Interval(_) => return start,
                    // The next window ends with the next slice.
                    WindowingKind::Slices => start.saturating_add(slices.size_us),
                    // The next window is the first of the next slice, or ends with its first pane.
                    WindowingKind::Packed(first)
                    | WindowingKind::Packs(Packs { pane: first, .. }) => {
                        start.saturating_add(first.size_us)
                    }
                    // Sessions are left whose last record is a gap before the end of the last slice
                    // or later.
                    WindowingKind::Sessions(_) => start,
                })
            }
        }
    }

    /// The least frontier after which the results' watermark is at or beyond `watermark`.
    pub fn frontier_for(&self, watermark: i64) -> i64 {
        match (&self.slices, watermark) {
            (_, BEGINNING | END) => watermark,
            (None, _) => END,
            (Some(slices), watermark) => {
                // The first window whose results may come after that is the one of this time.
                let before = watermark.max(-USABLE).saturating_add(ROW_TIME_BEFORE_END_US - 1);
                let start = start_of(slices, before);
                let fired = match self.kind {
                    WindowingKind::Slices => start,
                    WindowingKind::Interval(_) => {
                        start_of(slices, watermark.max(-USABLE).saturating_add(slices.size_us - 1))
                    }
                    WindowingKind::Packed(first)
                    | WindowingKind::Packs(Packs { pane: first, .. }) => {
                        let behind = slices.size_us - first.size_us;
                        start_of(slices, before.saturating_add(behind))
                    }
                    WindowingKind::Sessions(_) => start.saturating_add(slices.size_us),
                };
                fired.saturating_add(self.wait_us())
            }
        }
    }
}

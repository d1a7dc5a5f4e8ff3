//! Windows that overlap: those of HOP and CUMULATE, to several of which a time belongs.

use std::ops::Range;

use millstream_contract::plan::Window;

use super::window::start_on;

/// Windows that overlap, in milliseconds: they end on a grid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Overlapping {
    pub(crate) size: i64,
    /// Distance between two consecutive ends.
    pub(crate) part: i64,
    pub(crate) offset: i64,
    pub(crate) cumulate: bool,
}

impl Overlapping {
    /// `None` if windows of this kind do not overlap.
    pub(crate) fn of(window: Window) -> Option<Overlapping> {
        let (part_us, size_us, offset_us, cumulate) = match window {
            Window::Hop(hop) => (hop.slide_us, hop.size_us, hop.offset_us, false),
            Window::Cumulate(of) => (of.step_us, of.size_us, of.offset_us, true),
            Window::Tumble(_) | Window::Session(_) | Window::Interval(_) => return None,
        };
        let (part, size, offset) = (part_us / 1000, size_us / 1000, offset_us / 1000);
        Some(Overlapping { size, part, offset, cumulate })
    }

    /// The ends of the windows to which a time belongs: the first, and the last with a part more.
    /// `None` if one begins or ends beyond all times.
    pub(crate) fn ends(&self, ms: i64) -> Option<Range<i64>> {
        let first = start_on(ms, self.part, self.offset)?.checked_add(self.part)?;
        let last = match self.cumulate {
            true => start_on(ms, self.size, self.offset)?.checked_add(self.size)?,
            false => start_on(ms, self.part, self.offset)?.checked_add(self.size)?,
        };
        first.checked_sub(self.size)?;
        Some(first..last.checked_add(self.part)?)
    }

    /// The ends of the windows whose ends lie there.
    pub(crate) fn each(&self, ends: Range<i64>) -> impl Iterator<Item = i64> {
        let all = std::iter::successors(Some(ends.start), |end| end.checked_add(self.part));
        all.take_while(move |end| *end < ends.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOP: Overlapping = Overlapping { size: 30, part: 10, offset: 3, cumulate: false };
    const CUMULATE: Overlapping = Overlapping { size: 30, part: 10, offset: 3, cumulate: true };

    fn ends(windows: Overlapping, ms: i64) -> Vec<i64> {
        windows.ends(ms).into_iter().flat_map(|ends| windows.each(ends)).collect()
    }

    #[test]
    fn a_time_is_in_the_windows_that_end_after_it() {
        // [-17, 13), [-7, 23), [3, 33)
        assert_eq!(ends(HOP, 3), [13, 23, 33]);
        assert_eq!(ends(HOP, 12), [13, 23, 33]);
        assert_eq!(ends(HOP, 2), [3, 13, 23]);
        assert_eq!(ends(HOP, -28), [-27, -17, -7]);
        // [3, 13), [3, 23), [3, 33)
        assert_eq!(ends(CUMULATE, 3), [13, 23, 33]);
        assert_eq!(ends(CUMULATE, 22), [23, 33]);
        assert_eq!(ends(CUMULATE, 2), [3]);
        assert_eq!(HOP.ends(i64::MAX), None);
        assert_eq!(CUMULATE.ends(i64::MIN), None);
    }
}

//! How event time is divided into windows.

use serde::{Deserialize, Serialize};

/// How event time is divided into windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Window {
    /// Consecutive windows of a single size.
    Tumble(Tumble),
    /// Windows of a single size that overlap.
    Hop(Hop),
    /// Windows that grow by a step up to their size, and then begin anew.
    Cumulate(Cumulate),
    /// Each key has its own, as long as its records follow each other within a gap.
    Session(Session),
    /// No windows of rows: rows of a join's sides meet that are so far apart.
    Interval(Interval),
}

impl Window {
    /// Windows that do not overlap, such that the rows of each of these windows are in one of them.
    /// (The time of such rows is the last millisecond of their window.)
    pub fn slices(&self) -> Tumble {
        let (size_us, offset_us) = match self {
            Window::Tumble(tumble) => return *tumble,
            Window::Hop(hop) => (hop.slide_us, hop.offset_us),
            Window::Cumulate(cumulate) => (cumulate.step_us, cumulate.offset_us),
            Window::Session(session) => (session.gap_us, 0),
            Window::Interval(interval) => (interval.slice_us(), 0),
        };
        Tumble { size_us, offset_us: offset_us.rem_euclid(size_us) }
    }

    /// Whether what fires by these windows has the columns `window_start`, `window_end` and
    /// `window_time`.
    pub fn has_columns(&self) -> bool {
        !matches!(self, Window::Interval(_))
    }
}

impl From<Tumble> for Window {
    fn from(tumble: Tumble) -> Window {
        Window::Tumble(tumble)
    }
}

/// `HOP(TABLE t, DESCRIPTOR(ts), slide, size [, offset])`: windows `[k·slide + offset, k·slide +
/// offset + size)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Hop {
    /// Microseconds, a positive multiple of 1000.
    pub slide_us: i64,
    /// Microseconds, a multiple of `slide_us`.
    pub size_us: i64,
    /// Microseconds, a multiple of 1000 with `0 <= offset < slide`.
    pub offset_us: i64,
}

/// `CUMULATE(TABLE t, DESCRIPTOR(ts), step, size [, offset])`: windows `[k·size + offset, k·size +
/// offset + n·step)`, for `n` from 1 to `size / step`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Cumulate {
    /// Microseconds, a positive multiple of 1000.
    pub step_us: i64,
    /// Microseconds, a multiple of `step_us`.
    pub size_us: i64,
    /// Microseconds, a multiple of 1000 with `0 <= offset < size`.
    pub offset_us: i64,
}

/// `SESSION(TABLE t PARTITION BY k, DESCRIPTOR(ts), gap)`: a session has the records of a key whose
/// distances are at most `gap`. A session ends `gap` after its last record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Session {
    /// Microseconds, a positive multiple of 1000.
    pub gap_us: i64,
    /// Number of the aggregation's keys, from the first on, that tell sessions apart. Groups that
    /// differ only in later keys share their session.
    pub partition: usize,
    /// Number of slices of state that divide a gap. Sessions fire with the end of a slice, so at
    /// most a slice's length later than possible; more slices make more rows of state. A number
    /// that divides [`SLICES_OF_GAP`](Session::SLICES_OF_GAP) changes neither rows nor their order
    /// ([`Plan::pack_windows`]).
    pub slices_of_gap: i64,
}

impl Session {
    /// Slices of a gap where somebody may wait for sessions.
    pub const SLICES_OF_GAP: i64 = 4;

    /// Sessions with this gap, which so many of the aggregation's keys tell apart.
    pub fn new(gap_us: i64, partition: usize) -> Session {
        Session { gap_us, partition, slices_of_gap: Session::SLICES_OF_GAP }
    }
}

/// `TUMBLE(TABLE t, DESCRIPTOR(ts), size [, offset])`: windows `[k·size + offset, (k+1)·size +
/// offset)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tumble {
    /// Microseconds, a positive multiple of 1000.
    pub size_us: i64,
    /// Microseconds, a multiple of 1000 with `0 <= offset < size`.
    pub offset_us: i64,
}

/// An interval join: a row of the `anchor` side with the time `t` meets rows of the other side with
/// times from `t - before` to `t + after`, both included.
///
/// Rows of the anchor side are divided by their time into slices, and each row of the other side
/// is in all slices where it may have a partner. So each pair is in one slice, and so is all that a
/// row of the anchor side may meet. A slice is complete when the watermark has passed its end, and
/// `after` besides. A record is late when its own time is behind the watermark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Interval {
    /// The number of the side: 0 is the left one.
    pub anchor: usize,
    /// Microseconds, perhaps negative; `before + after` is not.
    pub before_us: i64,
    /// The same.
    pub after_us: i64,
}

impl Interval {
    /// The most that `before` and `after` may be, either way: about ten years.
    pub const MAX_US: i64 = 3660 * 86_400_000_000;

    /// Of a temporal join: rows of both sides are in the slice of their own time, and what a slice
    /// leaves for later ones is kept by the join.
    pub const AS_OF: Interval = Interval { anchor: 0, before_us: 0, after_us: 0 };

    /// The shortest slices: results come so much later than they could at the most, or half of the
    /// interval.
    const LEAST_SLICE_US: i64 = 100_000;

    /// Slices of this length at the most have leaders of their own.
    const SHORT_SLICE_US: i64 = 1_000_000;

    /// How much time a slice has: a multiple of a millisecond. The shorter, the sooner results
    /// come, and the more slices a row of the other side is in: three, if it is half of the
    /// interval.
    pub fn slice_us(&self) -> i64 {
        let half = self.before_us.saturating_add(self.after_us) / 2;
        (half.clamp(Interval::LEAST_SLICE_US, Interval::MAX_US) + 999) / 1000 * 1000
    }

    /// Whether slices have leaders, and not keys: each leader then has all rows of some slices. A
    /// slice of few rows costs more than the rows. Longer slices may be too few for even shares.
    pub fn has_leaders_of_slices(&self) -> bool {
        self.slice_us() <= Interval::SHORT_SLICE_US
    }

    /// Name of the anchor side.
    pub fn side(&self) -> &'static str {
        if self.anchor == 0 { "left" } else { "right" }
    }

    /// How far the watermark must be beyond a slice, so that all is there that its rows may meet.
    pub fn delay_us(&self) -> i64 {
        self.after_us.max(0)
    }
}

/// Windows that have rows and have not fired, for people. Bounds are the window's start and end,
/// microseconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpenWindows {
    /// How many they are; `None`: that is not known, as several windows share a slice.
    pub count: Option<u64>,
    /// The bounds of the first.
    pub first_us: [i64; 2],
    /// The bounds of the last.
    pub last_us: [i64; 2],
}

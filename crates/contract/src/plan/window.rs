//! How event time is divided into windows.

/// How event time is divided into windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Window {
    /// Of one size, one after the other.
    Tumble(Tumble),
    /// Of one size, which overlap.
    Hop(Hop),
    /// That grow by a step until they have their size, and then begin anew.
    Cumulate(Cumulate),
    /// Each key has its own, as long as its records follow each other within a gap.
    Session(Session),
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
        };
        Tumble { size_us, offset_us: offset_us.rem_euclid(size_us) }
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

/// `SESSION(TABLE t PARTITION BY k, DESCRIPTOR(ts), gap)`: a session has the records of a key that
/// follow each other with distances of at most `gap`. It ends `gap` after its last record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Session {
    /// Microseconds, a positive multiple of 1000.
    pub gap_us: i64,
    /// How many of the aggregation's keys, from the first on, tell sessions apart. Groups that
    /// differ in the other keys share their session.
    pub partition: usize,
    /// How many slices of state a gap has, which divide it. Sessions fire with the end of a slice,
    /// so that they come so much of a gap later than they could at the most; the more slices there
    /// are, the more rows of state. It changes neither rows nor their order
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

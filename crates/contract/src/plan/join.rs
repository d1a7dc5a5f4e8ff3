//! Joins: rows of two sides, next to each other where they belong together.

use arrow::datatypes::SchemaRef;

#[cfg(doc)]
use super::Interval;
use super::{Key, Window};
use crate::expr::Expr;

/// Rows of two sides that belong to the same window and have the same keys, next to each other.
///
/// The inputs of the stage have the columns of their side: the first
/// [`left_inputs`](Join::left_inputs) of the left side, the rest of the right side. Rows of a side
/// come either from a table with a time, and then belong to the windows of `window`; or from fired
/// windows, and then the row's time, `window_time`, determines the window: the window that contains
/// the time or, of windows that overlap, the window that ends a millisecond later.
///
/// Pairs of rows form a batch with the columns `window_start`, `window_end`, `window_time` (each
/// `Timestamp(Millisecond)`, only where `window` is set and [has them](Window::has_columns)), then
/// the left side's columns, then the right side's columns. `condition` is over this batch. `having`
/// and `project` are over [`fired`](Join::fired).
#[derive(Debug, Clone)]
pub struct Join {
    /// Which rows are given.
    pub kind: JoinKind,
    /// The windows that rows meet in; `None`: there is one, for the whole input, which must end.
    /// They are never sessions: rows of sessions that have fired meet in windows that tumble, of
    /// which each holds the ends of several, and the bounds of sessions are among the keys.
    /// [`Window::Interval`]: rows meet that are so far apart; `condition` says exactly which.
    /// Rows of the side that is not its anchor are not given without a partner.
    pub window: Option<Window>,
    /// How many of the stage's inputs, from the first on, are of the left side: one at least, and
    /// one at least is left for the right side.
    pub left_inputs: usize,
    /// How many columns the left side has.
    pub left_columns: usize,
    /// Pairs of equal values, over the columns of the left side and of the right side, of equal
    /// types. Without keys, all rows of a window are pairs.
    pub keys: Vec<[Key; 2]>,
    /// True for a temporal join, where a row of the left side meets at most one row of the right
    /// side: the last row with its keys that is no later. Among rows of equal time, the last by
    /// split and position. `window` is [`Interval::AS_OF`], and only rows of the left side are
    /// given without a partner, if any.
    pub as_of: bool,
    /// Whether NULL equals NULL (`IS NOT DISTINCT FROM`, `INTERSECT`); otherwise a row with NULL
    /// for a key has no partner.
    pub nulls_are_equal: bool,
    /// The number of a side whose rows go to all leaders, since they are few: at most a row for
    /// each window, or, in an [interval](Interval) join, a few rows for each slice
    /// ([`JoinKind::may_broadcast`]). Rows of the other side then stay with their worker, whatever
    /// the key. `None`: rows of both sides go to the leaders of their keys, as always over an
    /// exchange.
    pub broadcast: Option<usize>,
    /// Further conditions on a pair.
    pub condition: Option<Expr>,
    /// The columns of a pair.
    pub pair: SchemaRef,
    /// The columns of what is given: those of a pair, which are NULL for a partner that is not
    /// there; of [`JoinKind::LeftSemi`] and [`JoinKind::LeftAnti`] without the right side's.
    pub fired: SchemaRef,
    /// The column of `fired` that is the event time of what an interval join gives: that of the
    /// anchor side. `None`: rows have the time of their slice's last millisecond.
    pub time: Option<usize>,
    /// A condition on what is given, over `fired`.
    pub having: Option<Expr>,
    /// Output columns, over `fired`.
    pub project: Vec<Expr>,
}

/// Which rows a join gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum JoinKind {
    /// Pairs.
    Inner,
    /// Pairs, and rows of the left side without a partner, with NULLs in its place.
    Left,
    /// Pairs, and rows of the right side without a partner.
    Right,
    /// Pairs, and rows of both sides without a partner.
    Full,
    /// Rows of the left side that have a partner, each once.
    LeftSemi,
    /// Rows of the left side that have no partner.
    LeftAnti,
}

impl JoinKind {
    /// Whether rows of the left side are given that have no partner.
    pub fn keeps_left(self) -> bool {
        matches!(self, JoinKind::Left | JoinKind::Full | JoinKind::LeftAnti)
    }

    /// The same of the right side.
    pub fn keeps_right(self) -> bool {
        matches!(self, JoinKind::Right | JoinKind::Full)
    }

    /// Whether each leader may have all rows of a side, and some of the other side's: which of the
    /// side's rows have no partner at all, or have one, nobody knows then.
    pub fn may_broadcast(self, side: usize) -> bool {
        match side {
            0 => matches!(self, JoinKind::Inner | JoinKind::Right),
            _ => !self.keeps_right(),
        }
    }

    /// Whether pairs are given, and not rows of the left side alone.
    pub fn gives_pairs(self) -> bool {
        !matches!(self, JoinKind::LeftSemi | JoinKind::LeftAnti)
    }
}

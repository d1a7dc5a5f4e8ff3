//! A join as a stage has it: what must be true of two rows, and what is given for them.

use millstream_contract::plan::{Interval, JoinKind};

use crate::names::alike::{alike, all_alike};
use crate::names::catalog::add_columns;
use crate::syntax::prelude::*;

/// A join. The rows of its sides have columns with names, no two of which are the same.
#[derive(Debug, Clone)]
pub(crate) struct Joined {
    pub(crate) kind: JoinKind,
    /// Pairs of equal values, each over the columns of its side.
    pub(crate) keys: Vec<[Expr; 2]>,
    pub(crate) nulls_are_equal: bool,
    /// Further conditions on a pair, over the fired columns, in the order of evaluation.
    pub(crate) condition: Vec<Expr>,
    /// Conditions on what fires.
    pub(crate) having: Vec<Expr>,
    /// The columns of what fires that hold those of the window, if there are such.
    pub(crate) bounds: [Option<Expr>; 3],
    /// How far apart rows are that meet, if there is no window.
    pub(crate) interval: Option<Interval>,
    /// Whether a row of the left side meets the last row of the right side that is no later.
    pub(crate) as_of: bool,
    /// The column of the fired rows that is their event time then.
    pub(crate) time: Option<Expr>,
    /// Name of this column in the query.
    pub(crate) time_name: Option<String>,
    /// Why there is neither; `None`: rows meet in windows, or within an interval.
    pub(crate) unwindowed: Option<Unwindowed>,
}

/// Facts for messages about a join without a window whose input never ends.
#[derive(Debug, Clone)]
pub(crate) struct Unwindowed {
    /// The join's name in messages.
    pub(crate) name: String,
    /// Whether each side has windows.
    pub(crate) windows: [bool; 2],
    /// Whether the setting `join.within` is there, and whether each side lacks an event time.
    pub(crate) within: bool,
    pub(crate) timeless: [bool; 2],
    /// The table that each side is, and what its event time is called.
    pub(crate) tables: [Option<(String, String)>; 2],
    /// Whether the join only selects rows of its left side.
    pub(crate) keeps: bool,
    /// If it compares times of both sides: why that is no interval join, and what helps.
    pub(crate) by_time: Option<(&'static str, &'static str)>,
    pub(crate) place: Option<Place>,
}

impl Joined {
    /// Whether rows meet in windows; the joined rows belong to the same windows.
    pub(crate) fn is_windowed(&self) -> bool {
        self.unwindowed.is_none() && self.interval.is_none()
    }

    /// Whether another one makes the same of the same rows.
    pub(crate) fn is_like(&self, other: &Joined) -> bool {
        (self.kind, self.nulls_are_equal, self.interval, self.unwindowed.is_some(), self.as_of)
            == (
                other.kind,
                other.nulls_are_equal,
                other.interval,
                other.unwindowed.is_some(),
                other.as_of,
            )
            && self.keys.len() == other.keys.len()
            && self.keys.iter().zip(&other.keys).all(|(a, b)| all_alike(a, b))
            && all_alike(&self.condition, &other.condition)
            && self.bounds.iter().zip(&other.bounds).all(|(a, b)| alike(a.as_ref(), b.as_ref()))
    }

    /// The columns that it needs of a side, among others, if these are needed of what fires.
    pub(crate) fn used_of(&self, side: usize, fired: &BTreeSet<String>) -> BTreeSet<String> {
        let mut used = fired.clone();
        let keys = self.keys.iter().map(|key| &key[side]);
        keys.chain(&self.condition).chain(&self.time).for_each(|expr| add_columns(expr, &mut used));
        used
    }
}

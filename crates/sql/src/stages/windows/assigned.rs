//! The windows of a stage's rows: windows assigned by a window function, or the window of the stage
//! below.

use millstream_contract::plan::{self, Tumble};

use crate::expr::scalars::{WindowBound, window_bound};
use crate::expr::window_node::WINDOW_COLUMNS;
use crate::names::catalog::input_column;
use crate::syntax::prelude::*;

/// The windows that each row of a stage's input belongs to.
#[derive(Debug, Clone)]
pub(crate) struct Windows {
    /// Of sessions, how many keys tell them apart is known once the stage groups.
    pub(crate) kind: plan::Window,
    pub(crate) of_row: OfRow,
}

/// Source of a row's windows.
#[derive(Debug, Clone)]
pub(crate) enum OfRow {
    /// A window function assigns them.
    Assigned(Assigned),
    /// The row is a row of a fired window.
    Inherited(Inherited),
}

/// Windows that a window function assigns.
#[derive(Debug, Clone)]
pub(crate) struct Assigned {
    /// Time by which rows are assigned.
    pub(crate) time: Expr,
    /// Partition keys of sessions.
    pub(crate) partition: Vec<Expr>,
    /// Of sessions, the columns that the window function takes, and what they are called.
    pub(crate) records: Vec<(Expr, FieldRef)>,
    /// How many of the stage's conditions are below the window function.
    pub(crate) below: usize,
    /// Of `DESCRIPTOR(…)`, for messages.
    pub(crate) place: Option<Span>,
}

/// The window that a row comes from.
#[derive(Debug, Clone)]
pub(crate) struct Inherited {
    /// The columns that hold [`WINDOW_COLUMNS`], if there are such.
    pub(crate) columns: [Option<String>; 3],
    /// Windows that do not overlap: all rows of a window are in a single slice, determined by their
    /// `window_time`. Rows are grouped by slice, so the rows of all windows with an end in the
    /// slice fire together.
    pub(crate) slice: Tumble,
}

impl Windows {
    pub(crate) fn assigned(kind: plan::Window, assigned: Assigned) -> Windows {
        Windows { kind, of_row: OfRow::Assigned(assigned) }
    }

    /// Windows of rows of a fired window; `columns` are the names of the columns that hold
    /// [`WINDOW_COLUMNS`].
    pub(crate) fn inherited(kind: plan::Window, columns: [Option<String>; 3]) -> Windows {
        let slice = kind.slices();
        Windows { kind, of_row: OfRow::Inherited(Inherited { columns, slice }) }
    }

    /// The windows assigned by a window function; `None` if rows come from a window.
    pub(crate) fn assignment(&self) -> Option<&Assigned> {
        match &self.of_row {
            OfRow::Assigned(assigned) => Some(assigned),
            OfRow::Inherited(_) => None,
        }
    }

    /// The windows of a grouping of these rows.
    pub(crate) fn grouped(&self) -> plan::Window {
        match &self.of_row {
            OfRow::Assigned(_) => self.kind,
            OfRow::Inherited(inherited) => plan::Window::Tumble(inherited.slice),
        }
    }

    /// Whether a grouping of these rows has the bounds of their windows from the windows that it
    /// fires. Otherwise they are keys.
    pub(crate) fn fire_themselves(&self) -> bool {
        self.assignment().is_some() || matches!(self.kind, plan::Window::Tumble(_))
    }

    /// Whether rows that fire together, as they are of one window, have the same keys.
    pub(crate) fn tell_all(&self, keys: &[Expr]) -> bool {
        let is_bound = |key: &Expr| match &self.of_row {
            OfRow::Assigned(_) => false,
            OfRow::Inherited(inherited) => {
                inherited.columns.iter().flatten().any(|column| *key == input_column(column))
            }
        };
        // Several sessions may end within a slice, but only a single window of another kind.
        !matches!(self.kind, plan::Window::Session(_)) && keys.iter().all(is_bound)
    }

    /// One of [`WINDOW_COLUMNS`] over the stage's input, if a row tells.
    pub(crate) fn column(&self, name: &str) -> Option<Expr> {
        let position = WINDOW_COLUMNS.iter().position(|column| *column == name)?;
        match (&self.of_row, self.kind) {
            (OfRow::Inherited(inherited), _) => {
                inherited.columns[position].as_deref().map(input_column)
            }
            (OfRow::Assigned(assigned), plan::Window::Tumble(tumble)) => {
                Some(window_bound(WindowBound::ALL[position], tumble, assigned.time.clone()))
            }
            (OfRow::Assigned(_), _) => None,
        }
    }

    /// Whether the windows of two groupings are the same, so that a UNION ALL of their rows has
    /// these windows.
    pub(crate) fn are_those_of(&self, other: &Windows) -> bool {
        match (&self.kind, &other.kind) {
            (plan::Window::Session(own), plan::Window::Session(other)) => {
                own.gap_us == other.gap_us
            }
            (own, other) => own == other,
        }
    }
}

/// The largest windows such that each is within one window of `a` and one of `b`.
pub(crate) fn common_slice(a: Tumble, b: Tumble) -> Tumble {
    let size_us = [b.size_us, a.offset_us - b.offset_us].into_iter().fold(a.size_us, gcd);
    Tumble { size_us, offset_us: a.offset_us.rem_euclid(size_us) }
}

/// The greatest common divisor, of `a` alone if `b` is 0.
fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a.abs() } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_common_slice_is_within_both() {
        let tumble = |size_us: i64, offset_us: i64| Tumble { size_us, offset_us };
        for (a, b, common) in [
            (tumble(7000, 0), tumble(10_000, 0), tumble(1000, 0)),
            (tumble(6000, 0), tumble(10_000, 0), tumble(2000, 0)),
            (tumble(6000, 0), tumble(10_000, 3000), tumble(1000, 0)),
            (tumble(6000, 2000), tumble(12_000, 8000), tumble(6000, 2000)),
            (tumble(4000, 0), tumble(4000, 0), tumble(4000, 0)),
        ] {
            assert_eq!((common_slice(a, b), common_slice(b, a).size_us), (common, common.size_us));
            for bound in [a, b] {
                // Each of its bounds is one of the slices'.
                assert_eq!((bound.offset_us - common.offset_us) % common.size_us, 0);
                assert_eq!(bound.size_us % common.size_us, 0);
            }
        }
    }
}

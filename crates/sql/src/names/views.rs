//! Views of an operator's fired rows: conditions and columns; and pairs of rows of such views.

use crate::expr::located::without_marks;
use crate::names::alike::{alike, all_alike, hash_all, hash_of};
use crate::names::catalog::add_columns;
use crate::syntax::prelude::*;

/// A view of an operator's result, as its readers see it.
#[derive(Debug, Clone)]
pub(crate) struct View {
    /// Conditions on the columns of fired rows.
    pub(crate) having: Vec<Expr>,
    pub(crate) columns: Vec<Column>,
    /// Hash; equal for views that are alike.
    pub(crate) fingerprint: u64,
}

/// A column of a view.
#[derive(Debug, Clone)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) expr: Expr,
    /// Whether somebody takes it.
    pub(crate) needed: bool,
}

/// The fired pairs of a group, if the group fires pairs of its rows.
#[derive(Debug, Clone)]
pub(crate) struct Pairs {
    /// The rows of a group as seen by each side. A pair has the columns of both.
    pub(crate) sides: [View; 2],
}

impl View {
    pub(crate) fn new(having: Vec<Expr>, columns: Vec<Column>) -> View {
        let fingerprint = hash_of(|state| {
            hash_all(&having, state);
            for Column { name, expr, .. } in &columns {
                (name, without_marks(expr)).hash(state);
            }
        });
        View { having, columns, fingerprint }
    }

    pub(crate) fn is_like(&self, other: &View) -> bool {
        let alike =
            |a: &Column, b: &Column| a.name == b.name && alike(Some(&a.expr), Some(&b.expr));
        all_alike(&self.having, &other.having)
            && self.columns.len() == other.columns.len()
            && self.columns.iter().zip(&other.columns).all(|(a, b)| alike(a, b))
    }

    /// Columns that have a reader.
    pub(crate) fn needed(&self) -> impl Iterator<Item = &Column> {
        self.columns.iter().filter(|column| column.needed)
    }
}

impl Pairs {
    /// Leaves out the columns that nobody needs of pairs. Returns what is needed of the rows of
    /// groups.
    pub(crate) fn keep(&mut self, needed: &BTreeSet<String>) -> BTreeSet<String> {
        let mut used = BTreeSet::new();
        for side in &mut self.sides {
            side.having.iter().for_each(|expr| add_columns(expr, &mut used));
            for column in &mut side.columns {
                column.needed = needed.contains(&column.name);
            }
            side.needed().for_each(|column| add_columns(&column.expr, &mut used));
        }
        used
    }
}

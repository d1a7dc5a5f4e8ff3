//! Lookup joins: rows next to those of a side table, which is read wholly before them.

use arrow::datatypes::SchemaRef;

use super::{Key, Project, Source};
use crate::expr::Expr;

/// Rows next to the rows of a side table that have the same keys.
///
/// Each process reads the side table before its first batch, and again when it has changed
/// ([`Table::splits`](crate::table::Table::splits)). The rows of one input row stand one after the
/// other, in the order of the side table.
///
/// A pair is a row as the inputs of the stage show it, then the [`columns`](Lookup::columns) of a
/// row of the side table.
#[derive(Debug, Clone)]
pub struct Lookup {
    /// The side table's name, for messages.
    pub name: String,
    /// The side table. It ends, and has no event time.
    pub side: Source,
    /// Which of its rows count, over the columns of `side`.
    pub filter: Option<Expr>,
    /// The kept columns of a row of the side table, over the columns of `side`.
    pub columns: Project,
    /// Whether a row that nothing matches is given, next to NULLs.
    pub outer: bool,
    /// Pairs of equal values, over the inputs' columns and over `columns`, of equal types. Without
    /// keys, all rows of the side table match.
    pub keys: Vec<[Key; 2]>,
    /// Whether NULL equals NULL (`IS NOT DISTINCT FROM`).
    pub nulls_are_equal: bool,
    /// Further conditions on a pair.
    pub condition: Option<Expr>,
    /// The columns of a pair.
    pub pair: SchemaRef,
    /// The columns of a pair that are given, in order.
    pub output: Vec<usize>,
}

impl Lookup {
    /// How many columns of a pair are the inputs'.
    pub fn input_columns(&self) -> usize {
        self.pair.fields().len().saturating_sub(self.columns.columns.len())
    }

    /// Whether its columns are there, and are those of the stage's output.
    pub(super) fn is_sound(&self, output: &SchemaRef) -> bool {
        self.output.len() == output.fields().len()
            && self.output.iter().all(|column| *column < self.pair.fields().len())
            && self.columns.columns.len() <= self.pair.fields().len()
    }
}

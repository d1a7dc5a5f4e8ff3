//! Joins of the records of sessions with themselves.

use arrow::datatypes::SchemaRef;

use super::Project;
use crate::expr::Expr;

/// Fired pairs of a group whose aggregate keeps all its rows ([`super::Ranking::All`]): each row of
/// the left side next to each of the right side.
#[derive(Debug, Clone)]
pub struct Pairs {
    /// Schema of the rows of groups: the columns of the window, the keys, and those of a row.
    pub records: SchemaRef,
    /// Which of them are on the left side, and which on the right.
    pub sides: [PairSide; 2],
}

/// A side of pairs.
#[derive(Debug, Clone)]
pub struct PairSide {
    /// Condition of the side's rows; over [`Pairs::records`], as its columns are.
    pub filter: Option<Expr>,
    /// The columns of a pair that are of this side.
    pub project: Project,
}

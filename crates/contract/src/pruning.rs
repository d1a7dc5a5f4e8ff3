//! Rows that a query leaves out, as a hint to a source, which need not read all of them.
//!
//! The hint changes no result. A row that the query leaves out is there nevertheless, and has its
//! place and its event time, which moves the watermark of its split: the lateness of records and
//! the firing of windows must not depend on the rows that a file's statistics allow to leave out.
//! Only the unused columns of such a row need not be read.

use std::fmt;

use arrow::array::ArrayRef;

/// How to compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    /// `=`
    Equal,
    /// `<>`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
}

/// `column op constant`. Where the column is NULL it does not hold.
#[derive(Debug, Clone)]
pub struct Condition {
    /// Index into the columns that are read.
    pub column: usize,
    /// How to compare.
    pub comparison: Comparison,
    /// One value of the column's type, which is not NULL.
    pub constant: ArrayRef,
}

/// A disjunction of comparisons.
#[derive(Debug, Clone)]
pub struct AnyOf(pub Vec<Condition>);

impl AnyOf {
    /// The columns that are compared.
    pub fn compared(&self) -> impl Iterator<Item = usize> {
        self.0.iter().map(|condition| condition.column)
    }
}

impl fmt::Display for AnyOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "one of {} comparisons", self.0.len())
    }
}

/// Which rows of a source count.
///
/// In a row for which a condition does not hold, the query looks only at the columns of `always`,
/// and at columns declared NOT NULL. Other columns may be NULL there instead of their values. The
/// default asks for all columns of all rows.
#[derive(Debug, Clone, Default)]
pub struct Pruning {
    /// The query leaves a row out unless all of them hold.
    pub conditions: Vec<AnyOf>,
    /// Columns of those that are read, for event time and watermark.
    pub always: Vec<usize>,
}

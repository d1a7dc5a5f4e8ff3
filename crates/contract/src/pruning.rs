//! Rows that a query leaves out, told to a source beforehand: it need not read all of them.
//!
//! It is a hint, and changes no result. A row that the query leaves out is there nevertheless, and
//! has its place and its event time, which moves the watermark of its split: who is late and when
//! windows fire must not depend on what a file's statistics allow to leave out. Only the columns
//! at which nobody looks in such a row need not be read.

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
/// In a row on which one of the conditions does not hold, only the columns of `always` are looked
/// at, and those that are declared NOT NULL. The others may be NULL there instead of what they are.
/// The default asks for all of all rows.
#[derive(Debug, Clone, Default)]
pub struct Pruning {
    /// The query leaves a row out unless all of them hold.
    pub conditions: Vec<AnyOf>,
    /// Columns of those that are read, for event time and watermark.
    pub always: Vec<usize>,
}

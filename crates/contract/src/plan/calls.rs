//! What aggregate calls are fed with, and families of functions.

use arrow::datatypes::DataType;

use super::AggregateCall;
use crate::expr::Expr;

impl AggregateCall {
    /// The first argument's type (`Null` for `COUNT(*)`).
    pub fn argument_type(&self) -> &DataType {
        self.arguments.first().map_or(&DataType::Null, |argument| &argument.data_type)
    }
}

/// What an aggregate call is fed with.
#[derive(Debug, Clone)]
pub struct Argument {
    /// Over the input's columns.
    pub expr: Expr,
    /// Its type.
    pub data_type: DataType,
    /// Whether it can be NULL.
    pub nullable: bool,
}

/// What becomes of the bits of integers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Bits {
    /// Those that all have.
    And,
    /// Those that some have.
    Or,
    /// Those that an odd number of them have.
    Xor,
}

/// What follows from a count, from sums and from sums of products. With `n` records, `Sxy` is the
/// sum of `(x - avg(x)) * (y - avg(y))`. NULL without records, and where it says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Moment {
    /// `Sxx / n`, of `x`.
    VarPop,
    /// `Sxx / (n - 1)`, of `x`; NULL for one record.
    VarSamp,
    /// The square root of `VarPop`.
    StddevPop,
    /// The square root of `VarSamp`.
    StddevSamp,
    /// `Sxx`, of `x`.
    SumOfSquares,
    /// `Sxy / n`, of `y` and `x`; and so on.
    CovarPop,
    /// `Sxy / (n - 1)`; NULL for one record.
    CovarSamp,
    /// `Sxy`.
    SumOfProducts,
    /// `Sxy / sqrt(Sxx * Syy)`; NULL if either is zero.
    Corr,
    /// `Sxy / Sxx`; NULL if that is zero.
    Slope,
    /// `avg(y) - Slope * avg(x)`.
    Intercept,
    /// `Sxy² / (Sxx * Syy)`; NULL if `Sxx` is zero, 1 if only `Syy` is.
    R2,
}

impl Moment {
    /// Whether it is of two arguments, `y` and `x`.
    pub fn takes_two(self) -> bool {
        use Moment::*;
        !matches!(self, VarPop | VarSamp | StddevPop | StddevSamp | SumOfSquares)
    }
}

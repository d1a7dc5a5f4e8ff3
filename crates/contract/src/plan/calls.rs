//! Arguments of aggregate calls, and families of functions.

use arrow::datatypes::DataType;

use super::{AggregateCall, Best, Share};
use crate::expr::Expr;

impl AggregateCall {
    /// The first argument's type (`Null` for `COUNT(*)`).
    pub fn argument_type(&self) -> &DataType {
        self.arguments.first().map_or(&DataType::Null, |argument| &argument.data_type)
    }
}

/// Argument of an aggregate call.
#[derive(Debug, Clone)]
pub struct Argument {
    /// Over the input's columns.
    pub expr: Expr,
    /// Its type.
    pub data_type: DataType,
    /// Whether it can be NULL.
    pub nullable: bool,
}

/// The aggregate functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AggregateFunction {
    /// `COUNT(*)` and `COUNT(x)`; `BIGINT`.
    Count,
    /// Of integers (result `BIGINT`, or `BIGINT UNSIGNED` of unsigned), decimals and floats.
    Sum,
    /// Of anything ordered: numbers, booleans, dates, times, timestamps, strings, binary.
    Min,
    /// As `Min`.
    Max,
    /// Of integers and floats (`DOUBLE`), and decimals.
    Avg,
    /// Of the bits of integers; the argument's type.
    Bits(Bits),
    /// Of doubles; `DOUBLE`.
    Moment(Moment),

    // Of any size, or by the order of records: event time, input, split, position in the split.
    // Several arguments are the fields of one, a row.
    /// The first argument; with `nulls` also if that is NULL.
    First {
        /// RESPECT NULLS.
        nulls: bool,
    },
    /// As `First`, the last.
    Last {
        /// RESPECT NULLS.
        nulls: bool,
    },
    /// Of rows `(y, x)`: `x` of the first record with the least `y`. Where `y` is NULL, a record
    /// does not count.
    MinBy,
    /// As `MinBy`, with the greatest.
    MaxBy,
    /// A list of all arguments in order; with `nulls`, NULLs included; if `distinct`, each value
    /// only once, at its first place.
    ArrayAgg {
        /// RESPECT NULLS.
        nulls: bool,
        /// DISTINCT.
        distinct: bool,
    },
    /// Strings in order with commas between them; `separated`: of rows `(x, separator)`; if they
    /// are `distinct`, each once, where it came first.
    ListAgg {
        /// Whether the argument is a row.
        separated: bool,
        /// DISTINCT.
        distinct: bool,
    },
    /// About how many different values of anything there are; `BIGINT`.
    ApproxCountDistinct,
    /// About the value of numbers that a part of all lie at or below; `DOUBLE`.
    ApproxPercentile(Share),
    /// The so many most frequent values of anything, with about how often each came: a list of rows
    /// `(value, count)`.
    ApproxTopK(u32),
    /// The first rows in an order. The argument is a row: first the sort keys, then columns. The
    /// results are rows of these columns and the rank. A call of this function is the only call of
    /// its aggregation.
    Best(Best),
}

/// Operations on the bits of integers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Bits {
    /// Bits set in all integers.
    And,
    /// Bits set in some integer.
    Or,
    /// Bits set in an odd number of integers.
    Xor,
}

/// Functions of a count, of sums and of sums of products. With `n` records, `Sxy` is the sum of
/// `(x - avg(x)) * (y - avg(y))`. NULL without records, and where noted.
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

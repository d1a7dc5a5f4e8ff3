//! Variances, covariances and regressions: the sums that they are made of, and what these are fed
//! with ([`millstream_state::moments`]).

use std::fmt;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, RecordBatch};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, Float64Type};

use millstream_state::moments::{Moments, Sums, product};
use millstream_state::{Exact, RowsRef, float_sum};

use crate::error::{Error, Result};
use crate::expr::{Evaluate, Expr};
use crate::plan::{AggregateCall, Argument, Moment};

/// Input of each sum of a moment; for products, both parts.
#[derive(Debug, Clone)]
pub(super) struct Feeds<T> {
    /// Of `x`, which is the last argument.
    pub(super) x: T,
    pub(super) y: Option<T>,
    pub(super) xy: Option<[T; 2]>,
    pub(super) xx: Option<[T; 2]>,
    pub(super) yy: Option<[T; 2]>,
}

impl Feeds<Argument> {
    /// Of the arguments of a call.
    pub(super) fn new(moment: Moment, call: &AggregateCall) -> Result<Feeds<Argument>> {
        let double = |argument: &&Argument| argument.data_type == DataType::Float64;
        if !call.arguments.iter().all(|argument| double(&argument)) {
            return Err(Error::Internal(format!("{} of other than doubles", call.name)));
        }
        match (moment.takes_two(), &call.arguments[..]) {
            (false, [x]) => {
                let xx = Some(products(x, x));
                Ok(Feeds { x: x.clone(), y: None, xy: None, xx, yy: None })
            }
            (true, [y, x]) => {
                use Moment::*;
                let slope = matches!(moment, Corr | Slope | Intercept | R2);
                let both = matches!(moment, Corr | R2);
                Ok(Feeds {
                    x: x.clone(),
                    y: Some(y.clone()),
                    xy: Some(products(x, y)),
                    xx: slope.then(|| products(x, x)),
                    yy: both.then(|| products(y, y)),
                })
            }
            (_, arguments) => {
                let number = arguments.len();
                Err(Error::Internal(format!("{} of {number} arguments", call.name)))
            }
        }
    }
}

impl<T> Feeds<T> {
    /// The same of what is made of each.
    pub(super) fn map<U>(self, mut of: impl FnMut(T) -> U) -> Feeds<U> {
        Feeds {
            x: of(self.x),
            y: self.y.map(&mut of),
            xy: self.xy.map(|parts| parts.map(&mut of)),
            xx: self.xx.map(|parts| parts.map(&mut of)),
            yy: self.yy.map(|parts| parts.map(&mut of)),
        }
    }

    /// All of them.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        let products = [&self.xy, &self.xx, &self.yy].into_iter().flatten().flatten();
        std::iter::once(&self.x).chain(&self.y).chain(products)
    }
}

impl Feeds<usize> {
    /// A moment of some rows of state; these are the first words of the sums.
    pub(super) fn finish(
        &self,
        moment: Moment,
        count_word: usize,
        rows: &RowsRef<'_>,
    ) -> Float64Array {
        let of_row = |row| match rows.word(row, count_word) {
            0 => None,
            count => self.of_row(moment, count, rows, row),
        };
        (0..rows.len()).map(of_row).collect()
    }

    fn of_row(&self, moment: Moment, count: u64, rows: &RowsRef<'_>, row: usize) -> Option<f64> {
        let of_sample = matches!(moment, Moment::VarSamp | Moment::StddevSamp | Moment::CovarSamp);
        if of_sample && count == 1 {
            return None;
        }
        // A value that is not finite makes all results NaN.
        let Some(sums) = self.sums(rows, row) else { return Some(f64::NAN) };
        let moments = Moments::new(count, sums);
        match moment {
            Moment::VarPop => Some(moments.var_pop()),
            Moment::VarSamp => moments.var_samp(),
            Moment::StddevPop => Some(moments.var_pop().sqrt()),
            Moment::StddevSamp => moments.var_samp().map(f64::sqrt),
            Moment::SumOfSquares => Some(moments.sum_of_squares()),
            Moment::CovarPop => Some(moments.covar_pop()),
            Moment::CovarSamp => moments.covar_samp(),
            Moment::SumOfProducts => Some(moments.sum_of_products()),
            Moment::Corr => moments.corr(),
            Moment::Slope => moments.slope(),
            Moment::Intercept => moments.intercept(),
            Moment::R2 => moments.r2(),
        }
    }

    fn sums(&self, rows: &RowsRef<'_>, row: usize) -> Option<Sums> {
        let sum = |word: usize| {
            let words = [0, 1, 2].map(|at| rows.word(row, word + at));
            float_sum::exact(words, rows.arena())
        };
        let both = |parts: &Option<[usize; 2]>| match parts {
            Some([upper, lower]) => Some(&sum(*upper)? + &sum(*lower)?),
            None => Some(Exact::default()),
        };
        Some(Sums {
            x: sum(self.x)?,
            y: self.y.map_or(Some(Exact::default()), sum)?,
            xy: both(&self.xy)?,
            xx: both(&self.xx)?,
            yy: both(&self.yy)?,
        })
    }
}

/// Both parts of a product.
fn products(x: &Argument, y: &Argument) -> [Argument; 2] {
    [false, true].map(|lower| {
        let [x_expr, y_expr] = [x, y].map(|argument| argument.expr.clone());
        let part = ProductPart { x: x_expr, y: y_expr, lower };
        Argument {
            expr: Expr::Computed(Arc::new(part)),
            data_type: DataType::Float64,
            nullable: x.nullable || y.nullable,
        }
    })
}

/// A part of the exact product of two columns of doubles.
#[derive(Debug)]
struct ProductPart {
    x: Expr,
    y: Expr,
    lower: bool,
}

impl fmt::Display for ProductPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = if self.lower { "lower" } else { "upper" };
        let factor = |expr: &Expr| match expr {
            Expr::Column(column) => format!("#{column}"),
            Expr::Computed(computed) => computed.to_string(),
        };
        write!(f, "the {part} part of ({}) * ({})", factor(&self.x), factor(&self.y))
    }
}

impl Evaluate for ProductPart {
    fn evaluate(&self, batch: &RecordBatch) -> Result<ArrayRef> {
        let (x, y) = (self.x.evaluate(batch)?, self.y.evaluate(batch)?);
        let doubles = |array: &ArrayRef| array.as_primitive_opt::<Float64Type>().cloned();
        let (Some(x), Some(y)) = (doubles(&x), doubles(&y)) else {
            return Err(Error::Internal(format!("{self} of other than doubles")));
        };
        let nulls = NullBuffer::union(x.nulls(), y.nulls());
        let factors = x.values().iter().zip(y.values());
        let values: Vec<f64> = match self.lower {
            false => factors.map(|(x, y)| x * y).collect(),
            true => factors.map(|(x, y)| product(*x, *y)[1]).collect(),
        };
        Ok(Arc::new(Float64Array::new(values.into(), nulls)))
    }

    fn data_type(&self) -> &DataType {
        &DataType::Float64
    }

    fn columns(&self) -> Option<Vec<usize>> {
        Some([self.x.columns()?, self.y.columns()?].concat())
    }
}

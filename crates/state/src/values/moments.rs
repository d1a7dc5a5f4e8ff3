//! Variances, covariances and regressions: finished of a count and of exact sums.
//!
//! A product of doubles has up to 106 bits. It is fed as two doubles, the rounded product and what
//! rounding left out ([`product`]), to two sums that stand beside each other: their terms are of
//! different sizes, and one sum of both would need more bits than the narrow form of a sum has.
//!
//! With `n` records, `n² * variance` is `n * sum(x * x) - sum(x)²`, which is computed exactly
//! ([`Exact`]) and rounded when it is divided. So equal numbers have a variance of exactly zero,
//! and no variance is negative.

use crate::values::exact::Exact;

/// The product of two doubles as two doubles, whose sum it is.
///
/// The second is zero if the first is not finite. It is rounded where it is below the least double
/// (if the product is below about 1e-291): then it is off by half of that, 2.5e-324, at the most.
#[inline]
pub fn product(x: f64, y: f64) -> [f64; 2] {
    let upper = x * y;
    match upper.is_finite() {
        true => [upper, x.mul_add(y, -upper)],
        false => [upper, 0.0],
    }
}

/// Exact moments of a group's one or two variables.
#[derive(Debug)]
pub struct Moments {
    count: Exact,
    y: Exact,
    x: Exact,
    /// `count² *` the covariance.
    xy: Exact,
    /// As `xy`, of `x` with itself; zero where nobody asks.
    xx: Exact,
    yy: Exact,
}

/// The sums that moments are made of.
#[derive(Debug, Default)]
pub struct Sums {
    /// Of `x`.
    pub x: Exact,
    /// Of `y`; zero where there is one variable.
    pub y: Exact,
    /// Of products; zero where nobody asks.
    pub xy: Exact,
    /// Of squares; zero where nobody asks.
    pub xx: Exact,
    /// Of squares; zero where nobody asks.
    pub yy: Exact,
}

impl Moments {
    /// Of so many records, at least one.
    pub fn new(records: u64, sums: Sums) -> Moments {
        let count = Exact::from(records);
        let of = |products: &Exact, one: &Exact, two: &Exact| &(&count * products) - &(one * two);
        let Sums { x, y, xy, xx, yy } = sums;
        // Only the rounding of the least doubles could make a sum of squares too small.
        let square = |value: Exact| if value.is_negative() { Exact::default() } else { value };
        Moments {
            xy: of(&xy, &x, &y),
            xx: square(of(&xx, &x, &x)),
            yy: square(of(&yy, &y, &y)),
            count,
            x,
            y,
        }
    }

    /// The sum of products of deviations.
    pub fn sum_of_products(&self) -> f64 {
        self.xy.over(&self.count)
    }

    /// The covariance of all.
    pub fn covar_pop(&self) -> f64 {
        self.xy.over(&(&self.count * &self.count))
    }

    /// The covariance of a sample; `None` of one record.
    pub fn covar_samp(&self) -> Option<f64> {
        let others = &self.count - &Exact::from(1);
        (!others.is_zero()).then(|| self.xy.over(&(&self.count * &others)))
    }

    /// The sum of squares of deviations of `x`.
    pub fn sum_of_squares(&self) -> f64 {
        self.xx.over(&self.count)
    }

    /// The variance of all `x`.
    pub fn var_pop(&self) -> f64 {
        self.xx.over(&(&self.count * &self.count))
    }

    /// The variance of a sample; `None` of one record.
    pub fn var_samp(&self) -> Option<f64> {
        let others = &self.count - &Exact::from(1);
        (!others.is_zero()).then(|| self.xx.over(&(&self.count * &others)))
    }

    /// The correlation; `None` if either variable is constant.
    pub fn corr(&self) -> Option<f64> {
        let square = &self.xx * &self.yy;
        (!square.is_zero()).then(|| self.xy.over_root(&square).clamp(-1.0, 1.0))
    }

    /// The slope of the line through the records; `None` if `x` is constant.
    pub fn slope(&self) -> Option<f64> {
        (!self.xx.is_zero()).then(|| self.xy.over(&self.xx))
    }

    /// Where that line is at zero; `None` if `x` is constant.
    pub fn intercept(&self) -> Option<f64> {
        let upper = || &(&self.y * &self.xx) - &(&self.x * &self.xy);
        (!self.xx.is_zero()).then(|| upper().over(&(&self.count * &self.xx)))
    }

    /// How much of the variance of `y` that line accounts for; `None` if `x` is constant.
    pub fn r2(&self) -> Option<f64> {
        if self.xx.is_zero() {
            return None;
        }
        if self.yy.is_zero() {
            return Some(1.0);
        }
        Some((&self.xy * &self.xy).over(&(&self.xx * &self.yy)).min(1.0))
    }
}

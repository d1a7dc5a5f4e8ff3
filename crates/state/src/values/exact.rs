//! Exact arithmetic with the sums of doubles, to finish what is computed of several sums.
//!
//! A difference of large products, as a variance is, loses its digits if the products are rounded.
//! Here nothing is rounded before the quotient of two exact numbers is read ([`Exact::over`]). The
//! result depends on the numbers alone, not on the form in which a sum happens to stand.

use std::cmp::Ordering;
use std::ops::{Add, Mul, Neg, Sub};

use crate::memory::numbers::times_power_of_two;

/// A whole number times a power of two, of any size.
#[derive(Debug, Clone, Default)]
pub struct Exact {
    negative: bool,
    /// Lowest word first; the last is not zero. No word: zero.
    magnitude: Vec<u64>,
    /// Exponent of bit 0.
    exponent: i32,
}

/// A double in `[1, 2)`, or zero, times a power of two beyond what doubles hold.
#[derive(Debug, Clone, Copy)]
struct Rounded {
    value: f64,
    exponent: i32,
}

impl Exact {
    /// `magnitude * 2^exponent`, lowest word first.
    pub(crate) fn new(negative: bool, mut magnitude: Vec<u64>, exponent: i32) -> Exact {
        while magnitude.last() == Some(&0) {
            magnitude.pop();
        }
        Exact { negative, magnitude, exponent }
    }

    /// `value * 2^exponent`.
    pub(crate) fn of_integer(value: i128, exponent: i32) -> Exact {
        let magnitude = value.unsigned_abs();
        Exact::new(value < 0, vec![magnitude as u64, (magnitude >> 64) as u64], exponent)
    }

    /// Whether it is zero.
    pub fn is_zero(&self) -> bool {
        self.magnitude.is_empty()
    }

    /// Whether it is less than zero.
    pub fn is_negative(&self) -> bool {
        self.negative && !self.is_zero()
    }

    /// The quotient as a double. Both are rounded before they are divided, so it is at most two
    /// units in the last place off. A divisor of zero gives NaN.
    pub fn over(&self, divisor: &Exact) -> f64 {
        let (upper, lower) = (self.rounded(), divisor.rounded());
        if lower.value == 0.0 {
            return f64::NAN;
        }
        scaled(upper.value / lower.value, upper.exponent - lower.exponent)
    }

    /// As [`Exact::over`], over the square root of a divisor that is not negative.
    pub fn over_root(&self, square: &Exact) -> f64 {
        let (upper, mut lower) = (self.rounded(), square.rounded());
        if lower.value <= 0.0 {
            return f64::NAN;
        }
        if lower.exponent & 1 != 0 {
            (lower.value, lower.exponent) = (lower.value * 2.0, lower.exponent - 1);
        }
        scaled(upper.value / lower.value.sqrt(), upper.exponent - lower.exponent / 2)
    }

    /// To 53 bits, half to even.
    fn rounded(&self) -> Rounded {
        let Some(top) = self.magnitude.len().checked_sub(1) else {
            return Rounded { value: 0.0, exponent: 0 };
        };
        let shift = self.magnitude[top].leading_zeros();
        let word = |below: usize| top.checked_sub(below).map_or(0, |at| self.magnitude[at]);
        let window = u128::from(word(0)) << 64 | u128::from(word(1));
        let window = window << shift;
        // 64 bits to a double's 53: one bit stands for all lower bits.
        let rest = window as u64 != 0 || self.magnitude.iter().rev().skip(2).any(|w| *w != 0);
        let value = ((window >> 64) as u64 | u64::from(rest)) as f64 * 2f64.powi(-63);
        let exponent = self.exponent + 64 * top as i32 + 63 - shift as i32;
        Rounded { value: if self.negative { -value } else { value }, exponent }
    }

    /// With bit 0 weighing `2^exponent`, which is no more than now.
    fn at(&self, exponent: i32) -> Vec<u64> {
        let left = (self.exponent - exponent) as usize;
        let (words, bits) = (left / 64, left % 64);
        let mut shifted = vec![0; words];
        let mut carry = 0;
        for word in &self.magnitude {
            shifted.push(word << bits | carry);
            carry = if bits == 0 { 0 } else { word >> (64 - bits) };
        }
        shifted.push(carry);
        shifted
    }
}

/// `value * 2^exponent`, for a value near one: infinite, or zero, where that is beyond doubles.
fn scaled(value: f64, exponent: i32) -> f64 {
    times_power_of_two(value, exponent.clamp(-1200, 1200))
}

impl From<u64> for Exact {
    fn from(value: u64) -> Exact {
        Exact::new(false, vec![value], 0)
    }
}

impl Neg for Exact {
    type Output = Exact;

    fn neg(self) -> Exact {
        Exact { negative: !self.negative, ..self }
    }
}

impl Add<&Exact> for &Exact {
    type Output = Exact;

    fn add(self, other: &Exact) -> Exact {
        if self.is_zero() {
            return other.clone();
        }
        if other.is_zero() {
            return self.clone();
        }
        let exponent = self.exponent.min(other.exponent);
        let (mut one, mut two) = (self.at(exponent), other.at(exponent));
        let words = one.len().max(two.len()) + 1;
        one.resize(words, 0);
        two.resize(words, 0);
        if self.negative == other.negative {
            add_words(&mut one, &two);
            return Exact::new(self.negative, one, exponent);
        }
        match one.iter().rev().cmp(two.iter().rev()) {
            Ordering::Less => {
                subtract_words(&mut two, &one);
                Exact::new(other.negative, two, exponent)
            }
            _ => {
                subtract_words(&mut one, &two);
                Exact::new(self.negative, one, exponent)
            }
        }
    }
}

impl Sub<&Exact> for &Exact {
    type Output = Exact;

    fn sub(self, other: &Exact) -> Exact {
        self + &-other.clone()
    }
}

impl Mul<&Exact> for &Exact {
    type Output = Exact;

    fn mul(self, other: &Exact) -> Exact {
        let mut product = vec![0u64; self.magnitude.len() + other.magnitude.len()];
        for (at, one) in self.magnitude.iter().enumerate() {
            let mut carry = 0u128;
            for (slot, two) in product[at..].iter_mut().zip(&other.magnitude) {
                let total = u128::from(*one) * u128::from(*two) + u128::from(*slot) + carry;
                *slot = total as u64;
                carry = total >> 64;
            }
            product[at + other.magnitude.len()] = carry as u64;
        }
        Exact::new(self.negative != other.negative, product, self.exponent + other.exponent)
    }
}

fn add_words(words: &mut [u64], other: &[u64]) {
    let mut carry = false;
    for (slot, part) in words.iter_mut().zip(other) {
        let (partial, one) = slot.overflowing_add(*part);
        let (total, two) = partial.overflowing_add(u64::from(carry));
        (*slot, carry) = (total, one || two);
    }
}

/// Of a number that is no less.
fn subtract_words(words: &mut [u64], other: &[u64]) {
    let mut borrow = false;
    for (slot, part) in words.iter_mut().zip(other) {
        let (partial, one) = slot.overflowing_sub(*part);
        let (total, two) = partial.overflowing_sub(u64::from(borrow));
        (*slot, borrow) = (total, one || two);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers of any size and sign, of which every fourth is small.
    fn numbers() -> impl Iterator<Item = i128> {
        let mut state = 0x9E37_79B9_7F4A_7C15u64;
        let mut next = move || {
            state ^= state >> 12;
            state ^= state << 25;
            state ^= state >> 27;
            state.wrapping_mul(0x2545_F491_4F6C_DD1D)
        };
        std::iter::repeat_with(move || {
            let value = i128::from(next()) << 64 | i128::from(next());
            value >> (next() % 128)
        })
    }

    /// Against integers, with zeros shifted in below.
    #[test]
    fn arithmetic_is_that_of_integers() {
        let numbers: Vec<i128> = numbers().take(6000).collect();
        for (case, three) in numbers.chunks_exact(3).enumerate() {
            let (a, b) = (three[0] >> 65, three[1] >> 65);
            let (zeros, at) = (three[2] as u32 % 60, case as i32 % 400 - 200);
            let one = Exact::of_integer(a << zeros, at - zeros as i32);
            let two = Exact::of_integer(b, at);
            let is = |exact: Exact, value: i128, at: i32| {
                let difference = &exact - &Exact::of_integer(value, at);
                assert!(difference.is_zero(), "{exact:?} is not {value} * 2^{at}");
            };
            is(&one + &two, a + b, at);
            is(&one - &two, a - b, at);
            is(&one * &two, a * b, 2 * at);
        }
    }

    /// Bits below the 53rd decide as they should, wherever the words begin.
    #[test]
    fn a_quotient_by_one_is_rounded_to_even() {
        for (case, value) in numbers().take(5000).enumerate() {
            let at = case as i32 % 600 - 300;
            let (exact, expected) = (Exact::of_integer(value, at), value as f64 * 2f64.powi(at));
            assert_eq!(exact.over(&Exact::from(1)), expected, "{value} * 2^{at}");
            let higher = Exact::new(value < 0, [&[0; 3][..], &exact.magnitude].concat(), at - 192);
            assert_eq!(higher.over(&Exact::from(1)), expected, "{value} * 2^{at}");
        }
        // Halfway, and a speck above that is words away.
        let half = &Exact::from(1) + &Exact::of_integer(1, -53);
        assert_eq!(half.over(&Exact::from(1)), 1.0);
        let above = &half + &Exact::of_integer(1, -500);
        assert_eq!(above.over(&Exact::from(1)), 1.0 + f64::EPSILON);
    }

    #[test]
    fn quotients_reach_beyond_doubles_and_back() {
        let huge = Exact::of_integer(3, 4000);
        assert_eq!(huge.over(&Exact::of_integer(2, 4000)), 1.5);
        assert_eq!(huge.over(&Exact::from(1)), f64::INFINITY);
        assert_eq!(Exact::of_integer(-3, -4000).over(&Exact::from(1)), 0.0);
        assert_eq!(Exact::of_integer(-6, 1000).over_root(&Exact::of_integer(18, 2001)), -1.0);
        assert_eq!(Exact::from(1).over(&Exact::of_integer(1, 1074)), 5e-324);
        assert!(huge.over(&Exact::default()).is_nan());
    }
}

//! Rounding of exact sums to doubles, once, to nearest even.

use super::wide::LOWEST;
use crate::memory::numbers::times_power_of_two;

/// With greater ones, a quotient of two numbers of 53 bits is no subnormal.
const EXPONENT_MIN: i32 = f64::MIN_EXP + 64;

/// The mean of `count` (at least one) integers with this sum, rounded once.
pub fn mean_of_integers(sum: i128, count: u64) -> f64 {
    quotient(sum < 0, sum.unsigned_abs(), 0, count)
}

/// `magnitude * 2^exponent / count`, rounded once.
#[inline]
pub(super) fn quotient(negative: bool, magnitude: u128, exponent: i32, count: u64) -> f64 {
    if magnitude == 0 {
        return 0.0;
    }
    // What both are exactly as doubles has a quotient that is rounded once.
    let (leading, trailing) = (magnitude.leading_zeros(), magnitude.trailing_zeros());
    if leading + trailing >= u128::BITS - f64::MANTISSA_DIGITS
        && count >> f64::MANTISSA_DIGITS == 0
        && exponent > EXPONENT_MIN
    {
        let quotient = (magnitude >> trailing) as u64 as f64 / count as f64;
        let mean = times_power_of_two(quotient, exponent + trailing as i32);
        return if negative { -mean } else { mean };
    }
    // Both with their highest bit set, and the dividend half of that: the quotient has 62 to 64
    // bits, which is enough to round by, and takes one division by 64 bits.
    let (shift, count_shift) = (leading, count.leading_zeros());
    let dividend = magnitude << shift;
    let divisor = u128::from(count << count_shift);
    let quotient = ((dividend >> 1) / divisor) as u64;
    let inexact = u128::from(quotient) * divisor != dividend >> 1 || dividend & 1 != 0;
    let quotient = quotient | u64::from(inexact);
    let exponent = exponent + 1 - shift as i32 + count_shift as i32;
    let highest_bit = 63 - quotient.leading_zeros() as i32 + exponent;
    let mean = if highest_bit < f64::MIN_EXP - 1 {
        subnormal(quotient, exponent)
    } else {
        times_power_of_two(quotient as f64, exponent)
    };
    if negative { -mean } else { mean }
}

/// `value * 2^exponent`, less than the least normal number: it has fewer than 53 bits, so it is
/// rounded where its last bit stands.
#[cold]
fn subnormal(value: u64, exponent: i32) -> f64 {
    let dropped = LOWEST - exponent;
    if dropped <= 0 {
        return f64::from_bits(value << -dropped);
    }
    // All of 64 bits and the place of a half above them are dropped at the most.
    let dropped = dropped.min(65);
    let (kept, half) = (u128::from(value) >> dropped, 1u128 << (dropped - 1));
    let rest = u128::from(value) & (2 * half - 1);
    let up = rest > half || rest == half && kept & 1 == 1;
    // Whole units of the least number are the bits of a double, also where they reach the normal
    // ones.
    f64::from_bits(kept as u64 + u64::from(up))
}

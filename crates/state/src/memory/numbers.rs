//! Conversion of numbers to words of a row and back.

/// An `f64` as an `i64` that compares as SQL compares floats: -0.0 equals 0.0, all NaNs are one and
/// greater than everything else.
#[inline(always)]
pub fn float_to_ordered(value: f64) -> i64 {
    let canonical = if value.is_nan() { f64::NAN.abs() } else { value + 0.0 };
    let bits = canonical.to_bits() as i64;
    bits ^ ((bits >> 63) as u64 >> 1) as i64
}

/// The inverse of [`float_to_ordered`].
#[inline(always)]
pub fn float_from_ordered(ordered: i64) -> f64 {
    f64::from_bits((ordered ^ ((ordered >> 63) as u64 >> 1) as i64) as u64)
}

/// Reads an `i128` from two words of a row.
#[inline(always)]
pub fn read_i128(low: u64, high: u64) -> i128 {
    (i128::from(high as i64) << 64) | i128::from(low)
}

/// `value * 2^exponent`, exact where the result is a normal number (or `value` is short enough).
#[inline]
pub(crate) fn times_power_of_two(value: f64, exponent: i32) -> f64 {
    let power = |e: i32| f64::from_bits(((e + 1023) as u64) << 52);
    if exponent < -1000 {
        value * power(exponent + 900) * power(-900)
    } else if exponent > 1000 {
        value * power(1000) * power(exponent - 1000)
    } else {
        value * power(exponent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_keep_their_order_as_integers() {
        let ascending = [f64::NEG_INFINITY, -1.5, -1e-300, 0.0, 5e-324, 2.0, f64::INFINITY];
        for pair in ascending.windows(2) {
            assert!(float_to_ordered(pair[0]) < float_to_ordered(pair[1]), "{pair:?}");
        }
        assert_eq!(float_to_ordered(-0.0), float_to_ordered(0.0));
        assert!(float_to_ordered(-f64::NAN) > float_to_ordered(f64::INFINITY));
        for value in ascending {
            assert_eq!(float_from_ordered(float_to_ordered(value)), value);
        }
    }
}

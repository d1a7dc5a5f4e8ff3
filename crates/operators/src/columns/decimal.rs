//! Decimal sums that do not fit into 128 bits, and their averages.

use arrow::array::Decimal256Array;
use arrow::datatypes::{DataType, i256};

/// Digits of the widest decimal.
const PRECISION_MAX: u8 = 76;

/// 192 bits in two's complement, low word first.
pub(crate) fn wide(words: [u64; 3]) -> i256 {
    let low = u128::from(words[0]) | u128::from(words[1]) << 64;
    i256::from_parts(low, i128::from(words[2] as i64))
}

/// `sum * 10^digits / count`, rounded half away from zero. With at most 16 more digits and a count
/// of 64 bits nothing overflows.
pub(crate) fn average(sum: i256, digits: u32, count: u64) -> i256 {
    let scaled = sum.wrapping_mul(i256::from_i128(10i128.pow(digits)));
    let count = i256::from_i128(i128::from(count));
    let (quotient, rest) = (scaled / count, scaled % count);
    if rest.wrapping_abs().wrapping_mul(i256::from_i128(2)) < count {
        return quotient;
    }
    quotient + if rest.is_negative() { i256::MINUS_ONE } else { i256::ONE }
}

/// With the point where `scale` puts it.
pub(crate) fn text(value: i256, scale: i8) -> String {
    let array = Decimal256Array::from(vec![value]);
    array.with_data_type(DataType::Decimal256(PRECISION_MAX, scale)).value_as_string(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(value: i256) -> [u64; 3] {
        let (low, high) = value.to_parts();
        [low as u64, (low >> 64) as u64, high as u64]
    }

    #[test]
    fn averages_are_exact_and_round_half_away_from_zero() {
        for (sum, digits, count, expected) in [
            ("7", 0, 2, "4"),
            ("-7", 0, 2, "-4"),
            ("7", 1, 2, "35"),
            ("-10", 4, 3, "-33333"),
            ("20", 4, 3, "66667"),
            // 2^130: its sum needs more than 128 bits.
            (
                "1361129467683753853853498429727072845824",
                0,
                1 << 20,
                "1298074214633706907132624082305024",
            ),
            (
                "-1361129467683753853853498429727072845824",
                0,
                1 << 20,
                "-1298074214633706907132624082305024",
            ),
        ] {
            let sum = i256::from_string(sum).unwrap();
            assert_eq!(wide(words(sum)), sum);
            assert_eq!(average(sum, digits, count).to_string(), expected);
        }
    }

    #[test]
    fn texts_have_their_point() {
        assert_eq!(text(i256::from_i128(-12345), 2), "-123.45");
        assert_eq!(text(i256::from_i128(5), 0), "5");
    }
}

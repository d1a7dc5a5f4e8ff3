//! Parsing and formatting numbers. Most of a CSV file is numbers, so this is a tight loop.

use arrow::datatypes::i256;

/// Powers of ten that a `f64` holds exactly.
pub(crate) const POW10_F64: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
    1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
];

/// Powers of ten that a `f32` holds exactly.
pub(crate) const POW10_F32: [f32; 11] = [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10];

/// Fault of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    Malformed,
    /// A number or time, too large or too small.
    OutOfRange,
    /// More digits than the type has; the value has to be held as it stands.
    MoreDigits,
    Null,
    NotUtf8,
}

/// Splits an optional sign off: `(negative, digits)`.
#[inline]
fn sign(text: &[u8]) -> (bool, &[u8]) {
    match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    }
}

/// Decimal digits only, at least one.
#[inline]
fn magnitude(digits: &[u8]) -> Result<u64, Why> {
    if digits.is_empty() {
        return Err(Why::Malformed);
    }
    // 19 digits always fit 64 bits; more may still, when they start with zeros.
    if digits.len() > 19 {
        return magnitude_checked(digits);
    }
    let mut value = 0u64;
    for byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return Err(Why::Malformed);
        }
        value = value * 10 + u64::from(digit);
    }
    Ok(value)
}

#[cold]
fn magnitude_checked(digits: &[u8]) -> Result<u64, Why> {
    if !digits.iter().all(u8::is_ascii_digit) {
        return Err(Why::Malformed);
    }
    digits.iter().try_fold(0u64, |value, byte| {
        value
            .checked_mul(10)
            .and_then(|v| v.checked_add(u64::from(byte - b'0')))
            .ok_or(Why::OutOfRange)
    })
}

/// A signed integer: an optional sign and decimal digits.
#[inline]
pub(crate) fn parse_i64(text: &[u8]) -> Result<i64, Why> {
    let (negative, digits) = sign(text);
    let value = magnitude(digits)?;
    if negative {
        if value <= 1 << 63 { Ok((value as i64).wrapping_neg()) } else { Err(Why::OutOfRange) }
    } else {
        i64::try_from(value).map_err(|_| Why::OutOfRange)
    }
}

/// An unsigned integer; `-0` is zero.
#[inline]
pub(crate) fn parse_u64(text: &[u8]) -> Result<u64, Why> {
    let (negative, digits) = sign(text);
    let value = magnitude(digits)?;
    if negative && value != 0 { Err(Why::OutOfRange) } else { Ok(value) }
}

/// The decimal text of a float as `mantissa · 10^exponent`, if it is short enough to be converted
/// by one exact multiplication or division (Clinger's fast path).
#[inline]
fn short_decimal(text: &[u8]) -> Option<(bool, u64, i32)> {
    let (negative, digits) = sign(text);
    // 16 bytes hold at most 16 digits: no overflow.
    if digits.len() > 16 {
        return None;
    }
    let (mut mantissa, mut point, mut seen) = (0u64, None, 0u32);
    for (index, byte) in digits.iter().enumerate() {
        let digit = byte.wrapping_sub(b'0');
        if digit <= 9 {
            mantissa = mantissa * 10 + u64::from(digit);
            seen += 1;
        } else if *byte == b'.' && point.is_none() {
            point = Some(index);
        } else {
            return None;
        }
    }
    if seen == 0 {
        return None;
    }
    let fraction = point.map_or(0, |p| digits.len() - p - 1);
    Some((negative, mantissa, -(fraction as i32)))
}

/// A double, correctly rounded. Takes exponents, `NaN`, `inf` and `Infinity` in any case.
#[inline]
pub(crate) fn parse_f64(text: &[u8]) -> Option<f64> {
    if let Some((negative, mantissa, exponent)) = short_decimal(text)
        && mantissa < 1 << 53
    {
        let value = mantissa as f64 / POW10_F64[(-exponent) as usize];
        return Some(if negative { -value } else { value });
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// As [`parse_f64`], rounded once to single precision.
#[inline]
pub(crate) fn parse_f32(text: &[u8]) -> Option<f32> {
    if let Some((negative, mantissa, exponent)) = short_decimal(text)
        && mantissa < 1 << 24
        && exponent >= -10
    {
        let value = mantissa as f32 / POW10_F32[(-exponent) as usize];
        return Some(if negative { -value } else { value });
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// A decimal of `precision` digits, `scale` of them after the point, as its unscaled value. More
/// digits after the point are rounded half away from zero; if `exact`, they are an error unless
/// they are zeros. Takes an exponent.
pub(crate) fn parse_decimal(
    text: &[u8],
    precision: u8,
    scale: i8,
    exact: bool,
) -> Result<i128, Why> {
    let (negative, rest) = sign(text);
    let exponent_at = rest.iter().position(|b| matches!(b, b'e' | b'E'));
    let (number, exponent) = match exponent_at {
        None => (rest, 0),
        Some(at) => (&rest[..at], parse_i64(&rest[at + 1..]).map(|e| e.clamp(-10_000, 10_000))?),
    };
    let point = number.iter().position(|b| *b == b'.');
    let (whole, fraction) = match point {
        None => (number, &number[number.len()..]),
        Some(at) => (&number[..at], &number[at + 1..]),
    };
    if whole.is_empty() && fraction.is_empty() {
        return Err(Why::Malformed);
    }
    // Digits up to this index (over whole and fraction together) stay; the next one rounds.
    let keep = whole.len() as i64 + exponent + i64::from(scale);
    let mut value: i128 = 0;
    let (mut round_up, mut lost) = (false, false);
    for (index, byte) in whole.iter().chain(fraction).enumerate() {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return Err(Why::Malformed);
        }
        if (index as i64) < keep {
            value = push_digit(value, digit)?;
        } else {
            lost |= digit != 0;
            round_up |= index as i64 == keep && digit >= 5;
        }
    }
    let digits = (whole.len() + fraction.len()) as i64;
    for _ in digits..keep {
        if value == 0 {
            break;
        }
        value = push_digit(value, 0)?;
    }
    let limit = 10i128.pow(u32::from(precision.min(38)));
    // At the limit already, there is nothing that rounding could save (and no room to add).
    if value >= limit || value + i128::from(round_up) >= limit {
        return Err(Why::OutOfRange);
    }
    if exact && lost {
        return Err(Why::MoreDigits);
    }
    value += i128::from(round_up);
    Ok(if negative { -value } else { value })
}

#[inline]
fn push_digit(value: i128, digit: u8) -> Result<i128, Why> {
    value.checked_mul(10).and_then(|v| v.checked_add(i128::from(digit))).ok_or(Why::OutOfRange)
}

/// Appends an unsigned integer.
#[inline]
pub(crate) fn write_u64(value: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// Appends a signed integer.
#[inline]
pub(crate) fn write_i64(value: i64, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// Appends `value` with at least `width` digits (zeros in front).
#[inline]
pub(crate) fn write_padded(value: u64, width: usize, out: &mut Vec<u8>) {
    let start = out.len();
    write_u64(value, out);
    let digits = out.len() - start;
    if digits < width {
        out.resize(start + width, b'0');
        out.copy_within(start..start + digits, start + width - digits);
        out[start..start + width - digits].fill(b'0');
    }
}

/// Appends the shortest text that reads back as the same float: `0.1`, `1.0`, `1e300`, `NaN`,
/// `Infinity`.
#[inline]
pub(crate) fn write_float<F: ryu::Float + Into<f64>>(value: F, out: &mut Vec<u8>) {
    let mut buffer = ryu::Buffer::new();
    out.extend_from_slice(match value.into() {
        wide if wide.is_finite() => buffer.format_finite(value).as_bytes(),
        f64::INFINITY => b"Infinity",
        f64::NEG_INFINITY => b"-Infinity",
        _ => b"NaN",
    });
}

/// Appends an unscaled decimal with exactly `scale` digits after the point (zeros appended instead
/// for a negative scale).
pub(crate) fn write_decimal128(value: i128, scale: i8, out: &mut Vec<u8>) {
    match u64::try_from(value.unsigned_abs()) {
        Ok(small) if (0..=19).contains(&scale) => {
            if value < 0 {
                out.push(b'-');
            }
            let start = out.len();
            write_padded(small, scale as usize + 1, out);
            insert_point(out, start, scale as usize);
        }
        _ => write_decimal_digits(&value.to_string(), scale, out),
    }
}

/// As [`write_decimal128`] for 256 bits.
pub(crate) fn write_decimal256(value: i256, scale: i8, out: &mut Vec<u8>) {
    write_decimal_digits(&value.to_string(), scale, out);
}

fn write_decimal_digits(text: &str, scale: i8, out: &mut Vec<u8>) {
    let (negative, digits) = sign(text.as_bytes());
    if negative {
        out.push(b'-');
    }
    let start = out.len();
    let width = usize::try_from(scale).unwrap_or(0) + 1;
    out.resize(start + width.saturating_sub(digits.len()), b'0');
    out.extend_from_slice(digits);
    if scale < 0 && digits != b"0" {
        out.resize(out.len() + usize::from(scale.unsigned_abs()), b'0');
    }
    insert_point(out, start, width - 1);
}

fn insert_point(out: &mut Vec<u8>, start: usize, fraction: usize) {
    if fraction > 0 {
        let at = (out.len() - fraction).max(start);
        out.insert(at, b'.');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn integers_at_their_limits() {
        assert_eq!(parse_i64(b"9223372036854775807"), Ok(i64::MAX));
        assert_eq!(parse_i64(b"-9223372036854775808"), Ok(i64::MIN));
        assert_eq!(parse_i64(b"9223372036854775808"), Err(Why::OutOfRange));
        assert_eq!(parse_i64(b"-9223372036854775809"), Err(Why::OutOfRange));
        assert_eq!(parse_u64(b"18446744073709551615"), Ok(u64::MAX));
        assert_eq!(parse_u64(b"18446744073709551616"), Err(Why::OutOfRange));
        assert_eq!(parse_u64(b"-1"), Err(Why::OutOfRange));
        assert_eq!(parse_i64(b"0000000000000000000000000042"), Ok(42));
        for wrong in [&b""[..], b"-", b"+", b"1x", b"1.0", b"--1", b"\xff", b" 1"] {
            assert_eq!(parse_i64(wrong), Err(Why::Malformed), "{wrong:?}");
        }
    }

    #[test]
    fn floats_agree_with_the_standard_library() {
        for case in [
            "0",
            "-0.0",
            "0.063",
            "0.1",
            "1e300",
            "123456789012345678",
            "9007199254740993",
            ".5",
            "5.",
            "1e-320",
            "0.30000000000000004",
            "1234567.8901234",
            "16777217",
            "3.4028236e38",
        ] {
            let wide: f64 = case.parse().unwrap();
            assert_eq!(parse_f64(case.as_bytes()).unwrap().to_bits(), wide.to_bits(), "{case}");
            let narrow: f32 = case.parse().unwrap();
            assert_eq!(parse_f32(case.as_bytes()).unwrap().to_bits(), narrow.to_bits(), "{case}");
        }
        assert!(parse_f64(b"NaN").unwrap().is_nan());
        assert_eq!(parse_f64(b"-Infinity"), Some(f64::NEG_INFINITY));
        assert_eq!(parse_f64(b"inf"), Some(f64::INFINITY));
        for wrong in [&b""[..], b".", b"-", b"1..2", b"1,5", b"abc"] {
            assert_eq!(parse_f64(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn decimals_round_half_away_from_zero() {
        assert_eq!(parse_decimal(b"1.005", 10, 2, false), Ok(101));
        assert_eq!(parse_decimal(b"-1.005", 10, 2, false), Ok(-101));
        assert_eq!(parse_decimal(b"1.0049999", 10, 2, false), Ok(100));
        assert_eq!(parse_decimal(b"9.995", 3, 2, false), Err(Why::OutOfRange));
        assert_eq!(parse_decimal(b"9.99", 3, 2, false), Ok(999));
        assert_eq!(parse_decimal(b"1.5e2", 10, 1, false), Ok(1500));
        assert_eq!(parse_decimal(b"15e-2", 10, 1, false), Ok(2));
        assert_eq!(parse_decimal(b"5e-3", 10, 1, false), Ok(0));
        assert_eq!(parse_decimal(b".5", 10, 0, false), Ok(1));
        assert_eq!(parse_decimal(b"7", 10, 3, false), Ok(7000));
        let widest = "9".repeat(38);
        assert_eq!(parse_decimal(widest.as_bytes(), 38, 0, false), Ok(10i128.pow(38) - 1));
        assert_eq!(parse_decimal(b"1e99999999999", 38, 0, false), Err(Why::OutOfRange));
        for wrong in [&b""[..], b".", b"-", b"1e", b"1.2.3", b"x"] {
            assert_eq!(parse_decimal(wrong, 10, 2, false), Err(Why::Malformed), "{wrong:?}");
        }
    }

    #[test]
    fn numbers_as_text() {
        for (value, expected) in [(0, "0"), (7, "7"), (42, "42"), (100, "100"), (-1, "-1")] {
            assert_eq!(text(|out| write_i64(value, out)), expected);
        }
        assert_eq!(text(|out| write_i64(i64::MIN, out)), "-9223372036854775808");
        assert_eq!(text(|out| write_u64(u64::MAX, out)), "18446744073709551615");
        assert_eq!(text(|out| write_padded(7, 3, out)), "007");
        assert_eq!(text(|out| write_padded(1234, 3, out)), "1234");
        assert_eq!(text(|out| write_float(1.0, out)), "1.0");
        assert_eq!(text(|out| write_float(0.1, out)), "0.1");
        assert_eq!(text(|out| write_float(1e300, out)), "1e300");
        assert_eq!(text(|out| write_float(f64::NAN, out)), "NaN");
        assert_eq!(text(|out| write_float(f32::NEG_INFINITY, out)), "-Infinity");
        assert_eq!(text(|out| write_float(0.1f32, out)), "0.1");
        assert_eq!(text(|out| write_decimal128(-5, 2, out)), "-0.05");
        assert_eq!(text(|out| write_decimal128(12345, 2, out)), "123.45");
        assert_eq!(text(|out| write_decimal128(12, 0, out)), "12");
        assert_eq!(text(|out| write_decimal128(12, -2, out)), "1200");
        assert_eq!(text(|out| write_decimal128(0, -2, out)), "0");
        assert_eq!(
            text(|out| write_decimal128(10i128.pow(38) - 1, 38, out)),
            format!("0.{}", "9".repeat(38))
        );
        assert_eq!(text(|out| write_decimal256(i256::from_i128(-123), 4, out)), "-0.0123");
    }
}

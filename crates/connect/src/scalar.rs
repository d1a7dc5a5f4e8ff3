//! Common to text formats: why a text is no value of a type, times in units, and bytes.

use arrow::datatypes::TimeUnit;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use millstream_contract::calendar::per_second;

use crate::datetime::{Instant, parse_local, parse_time, parse_timestamp};
pub(crate) use crate::number::Why;
use crate::number::parse_decimal;

/// Standard base64, with or without padding.
pub(crate) const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Reads timestamps in `unit`s, with offsets from UTC if `zoned`; `exact`: refuses values of more
/// digits.
pub(crate) fn stamp(
    unit: TimeUnit,
    zoned: bool,
    exact: bool,
) -> impl Fn(&[u8]) -> Result<i64, Why> + Clone {
    let parse = if zoned { parse_timestamp } else { parse_local };
    move |text| in_unit(parse(text), unit, exact)
}

/// Reads times of day in `unit`s; `exact`: refuses values of more digits.
pub(crate) fn time(unit: TimeUnit, exact: bool) -> impl Fn(&[u8]) -> Result<i64, Why> + Clone {
    move |text| in_unit(parse_time(text), unit, exact)
}

#[inline]
fn in_unit(read: Option<Instant>, unit: TimeUnit, exact: bool) -> Result<i64, Why> {
    let at = read.ok_or(Why::Malformed)?;
    let value = at.in_unit(unit).ok_or(Why::OutOfRange)?;
    if exact && i64::from(at.nanos) % (1_000_000_000 / per_second(unit)) != 0 {
        return Err(Why::MoreDigits);
    }
    Ok(value)
}

/// As [`time`]; a day has fewer than 2^31 milliseconds.
pub(crate) fn time32(unit: TimeUnit, exact: bool) -> impl Fn(&[u8]) -> Result<i32, Why> + Clone {
    move |text| time(unit, exact)(text).map(|value| value as i32)
}

/// Whether a text is written as inference takes numbers: those with zeros in front, or with a plus
/// sign, are names.
#[inline]
pub(crate) fn is_plain_number(text: &[u8]) -> bool {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    !matches!(digits, [b'0', b'0'..=b'9', ..] | [b'+', ..])
}

/// A DOUBLE, unless `text` has a whole number before its point that no DOUBLE holds.
#[inline]
pub(crate) fn not_rounded(text: &[u8], value: f64) -> Result<f64, Why> {
    // All numbers of fewer digits are held.
    if text.len() > 15 && is_rounded(text) { Err(Why::MoreDigits) } else { Ok(value) }
}

#[cold]
fn is_rounded(text: &[u8]) -> bool {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let whole = digits.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let number =
        std::str::from_utf8(&digits[..whole]).ok().and_then(|text| text.parse::<i128>().ok());
    let has_exponent = digits[whole..].iter().any(|byte| !byte.is_ascii_digit() && *byte != b'.');
    !has_exponent && whole > 0 && number.is_none_or(|number| number as f64 as i128 != number)
}

/// Reads a DECIMAL; `exact`: refuses values of more digits.
pub(crate) fn decimal(
    precision: u8,
    scale: i8,
    exact: bool,
) -> impl Fn(&[u8]) -> Result<i128, Why> + Clone {
    move |text| parse_decimal(text, precision, scale, exact)
}

//! From the text of a JSON value to a value of a type: numbers, and what stands in quotes.

use super::scan::{self, Number, byte};
use crate::number::{POW10_F32, POW10_F64, parse_f32, parse_f64, parse_i64, parse_u64};
use crate::scalar::{self, Why};

/// A value, and the offset behind it.
pub(super) type Valued<V> = Result<(V, usize), Why>;

/// A number without a fraction and without an exponent.
#[inline]
fn whole(data: &[u8], at: usize) -> Result<Number, Why> {
    scan::number(data, at).filter(|number| number.whole).ok_or(Why::Malformed)
}

/// A whole number with a sign.
#[inline]
pub(super) fn signed<N: TryFrom<i64>>(data: &[u8], at: usize) -> Valued<N> {
    let number = whole(data, at)?;
    let value = match number.digits.and_then(|digits| i64::try_from(digits).ok()) {
        Some(value) if number.negative => -value,
        Some(value) => value,
        // The least `i64`, or a number out of range.
        None => parse_i64(&data[at..number.end])?,
    };
    Ok((N::try_from(value).map_err(|_| Why::OutOfRange)?, number.end))
}

/// A whole number, not below zero.
#[inline]
pub(super) fn unsigned<N: TryFrom<u64>>(data: &[u8], at: usize) -> Valued<N> {
    let number = whole(data, at)?;
    let value = match number.digits {
        Some(value) if !number.negative => value,
        _ => parse_u64(&data[at..number.end])?,
    };
    Ok((N::try_from(value).map_err(|_| Why::OutOfRange)?, number.end))
}

/// A DOUBLE, correctly rounded.
#[inline]
pub(super) fn double(data: &[u8], at: usize) -> Valued<f64> {
    let Some(number) = scan::number(data, at) else { return beyond_numbers(data, at) };
    let power = POW10_F64.get(number.fraction as usize).filter(|_| !number.exponent);
    // Both are exact, and so one division rounds once (Clinger's fast path).
    if let (Some(digits @ ..0x20_0000_0000_0000), Some(power)) = (number.digits, power) {
        let value = digits as f64 / power;
        return Ok((if number.negative { -value } else { value }, number.end));
    }
    let value = parse_f64(&data[at..number.end]).ok_or(Why::Malformed)?;
    if value.is_finite() { Ok((value, number.end)) } else { Err(Why::OutOfRange) }
}

/// A DOUBLE, but no whole number that it does not hold.
#[inline]
pub(super) fn exact_double(data: &[u8], at: usize) -> Valued<f64> {
    let (value, end) = double(data, at)?;
    Ok((scalar::not_rounded(&data[at..end], value)?, end))
}

/// A FLOAT, rounded once.
#[inline]
pub(super) fn float(data: &[u8], at: usize) -> Valued<f32> {
    let Some(number) = scan::number(data, at) else {
        return beyond_numbers(data, at).map(|(value, end)| (value as f32, end));
    };
    let power = POW10_F32.get(number.fraction as usize).filter(|_| !number.exponent);
    if let (Some(digits @ ..0x100_0000), Some(power)) = (number.digits, power) {
        let value = digits as f32 / power;
        return Ok((if number.negative { -value } else { value }, number.end));
    }
    let value = parse_f32(&data[at..number.end]).ok_or(Why::Malformed)?;
    if value.is_finite() { Ok((value, number.end)) } else { Err(Why::OutOfRange) }
}

/// Numbers in quotes that JSON itself does not have, as the sink writes them.
#[cold]
fn beyond_numbers(data: &[u8], at: usize) -> Valued<f64> {
    quoted(|text: &[u8]| match text {
        b"NaN" => Ok(f64::NAN),
        b"Infinity" => Ok(f64::INFINITY),
        b"-Infinity" => Ok(f64::NEG_INFINITY),
        _ => Err(Why::Malformed),
    })(data, at)
}

/// A DECIMAL: a number, or a number in quotes; `exact`: refuses values of more digits.
pub(super) fn decimal(
    precision: u8,
    scale: i8,
    exact: bool,
) -> impl Fn(&[u8], usize) -> Valued<i128> + Clone + Send + Sync + 'static {
    let parse = scalar::decimal(precision, scale, exact);
    let in_quotes = quoted(parse.clone());
    let limit = 10u64.checked_pow(u32::from(precision)).unwrap_or(u64::MAX);
    move |data, at| {
        if byte(data, at) == b'"' {
            return in_quotes(data, at);
        }
        let number = scan::number(data, at).ok_or(Why::Malformed)?;
        // As it is, with zeros behind.
        let zeros = u32::try_from(scale).ok().and_then(|scale| scale.checked_sub(number.fraction));
        let short = match (number.digits, zeros) {
            (Some(digits), Some(zeros)) if !number.exponent => {
                10u64.checked_pow(zeros).and_then(|power| digits.checked_mul(power))
            }
            _ => None,
        };
        let value = match short.filter(|value| *value < limit) {
            Some(value) if number.negative => -i128::from(value),
            Some(value) => i128::from(value),
            None => parse(&data[at..number.end])?,
        };
        Ok((value, number.end))
    }
}

/// A string that holds a value.
pub(super) fn quoted<V>(
    parse: impl Fn(&[u8]) -> Result<V, Why> + Clone + Send + Sync + 'static,
) -> impl Fn(&[u8], usize) -> Valued<V> + Clone + Send + Sync + 'static {
    move |data, at| {
        let start = (byte(data, at) == b'"').then_some(at + 1).ok_or(Why::Malformed)?;
        let (quoted, end) = scan::string(data, start).ok_or(Why::Malformed)?;
        let value = match quoted.escapes {
            false => parse(quoted.text)?,
            true => parse(&quoted.unescaped().ok_or(Why::Malformed)?)?,
        };
        Ok((value, end))
    }
}

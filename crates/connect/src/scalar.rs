//! What text formats have in common: why a text is no value of a type, times in units, and bytes.

use arrow::datatypes::TimeUnit;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use crate::datetime::{parse_time, parse_timestamp};
use crate::number::NumberError;

/// Standard base64, with or without padding.
pub(crate) const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// What is wrong with a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    Malformed,
    OutOfRange,
    Null,
    NotUtf8,
}

impl From<NumberError> for Why {
    fn from(error: NumberError) -> Why {
        match error {
            NumberError::Malformed => Why::Malformed,
            NumberError::OutOfRange => Why::OutOfRange,
        }
    }
}

/// Reads timestamps in `unit`s.
pub(crate) fn stamp(unit: TimeUnit) -> impl Fn(&[u8]) -> Result<i64, Why> + Clone {
    move |text| parse_timestamp(text).ok_or(Why::Malformed)?.in_unit(unit).ok_or(Why::OutOfRange)
}

/// Reads times of day in `unit`s.
pub(crate) fn time(unit: TimeUnit) -> impl Fn(&[u8]) -> Result<i64, Why> + Clone {
    move |text| parse_time(text).ok_or(Why::Malformed)?.in_unit(unit).ok_or(Why::OutOfRange)
}

/// As [`time`]; a day has fewer than 2^31 milliseconds.
pub(crate) fn time32(unit: TimeUnit) -> impl Fn(&[u8]) -> Result<i32, Why> + Clone {
    move |text| time(unit)(text).map(|value| value as i32)
}

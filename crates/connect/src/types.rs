//! Arrow types in messages: SQL names, ranges, advice.

use arrow::datatypes::DataType;
pub(crate) use millstream_contract::nested::sql_name;

use crate::datetime::parse_timestamp;

/// The whole numbers that a type of integers holds: `(min, max)`.
pub(crate) fn integer_range(data_type: &DataType) -> Option<(i128, i128)> {
    Some(match data_type {
        DataType::Int8 => (i8::MIN.into(), i8::MAX.into()),
        DataType::Int16 => (i16::MIN.into(), i16::MAX.into()),
        DataType::Int32 => (i32::MIN.into(), i32::MAX.into()),
        DataType::Int64 => (i64::MIN.into(), i64::MAX.into()),
        DataType::UInt8 => (0, u8::MAX.into()),
        DataType::UInt16 => (0, u16::MAX.into()),
        DataType::UInt32 => (0, u32::MAX.into()),
        DataType::UInt64 => (0, u64::MAX.into()),
        _ => return None,
    })
}

/// Advice about a text that is no time of a column's type.
pub(crate) fn time_help(data_type: &DataType, text: &[u8]) -> Option<&'static str> {
    let DataType::Timestamp(_, zone) = data_type else { return None };
    let number = text.strip_prefix(b"-").unwrap_or(text);
    if number.iter().all(|b| b.is_ascii_digit() || *b == b'.') {
        return Some(epoch_help(number.split(|b| *b == b'.').next()?.len()));
    }
    let text = text.strip_prefix(b"\"").and_then(|t| t.strip_suffix(b"\"")).unwrap_or(text);
    match text {
        zoned if zone.is_none() && parse_timestamp(zoned).is_some() => {
            Some("a TIMESTAMP has no offset from UTC: declare the column TIMESTAMP_LTZ")
        }
        [date @ .., b'0'..=b'9', b'0'..=b'9', b':', _, _] if date.len() == 11 => Some(
            "a timestamp has seconds, too: declare the column STRING and compute the time from it, \
             for example TO_TIMESTAMP(x, 'yyyy-MM-dd HH:mm')",
        ),
        _ => None,
    }
}

/// Advice about a number of `digits` digits in a column of times.
fn epoch_help(digits: usize) -> &'static str {
    // Seconds have ten digits from 2001 to 2286.
    match digits {
        0..=11 => "declare the column BIGINT and compute the time from it: to_timestamp_seconds(x)",
        12..=14 => {
            "these look like milliseconds: declare the column BIGINT and compute the time from \
             it: to_timestamp_millis(x)"
        }
        15..=17 => {
            "these look like microseconds: declare the column BIGINT and compute the time from \
             it: to_timestamp_micros(x)"
        }
        _ => {
            "these look like nanoseconds: declare the column BIGINT and compute the time from \
             it, an event time with six digits: CAST(to_timestamp_nanos(x) AS TIMESTAMP(6))"
        }
    }
}

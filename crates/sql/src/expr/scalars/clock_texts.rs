//! Texts as dates, times of day and timestamps, of the forms that files have, without blanks. A
//! TIMESTAMP is the time of a clock; a text with an offset from UTC is an instant. A DATE is the
//! day as it is written.

use arrow::compute::{CastOptions, cast_with_options};
use arrow::error::ArrowError;

use crate::expr::wording::HAS_OFFSET;
use crate::syntax::prelude::*;

/// Whether texts are read as values of this type here.
pub(super) fn is_time(to: &DataType) -> bool {
    use DataType::{Date32, Time32, Time64, Timestamp};
    matches!(to, Timestamp(..) | Date32 | Time32(_) | Time64(_))
}

/// Texts as dates, times of day or timestamps; if it `tries`, NULL for texts of other forms.
pub(super) fn texts_as_times(texts: &ArrayRef, to: &DataType, tries: bool) -> DfResult<ArrayRef> {
    let texts = cast(texts, &DataType::Utf8)?;
    let read = |text: &str| -> Result<String, &str> {
        if matches!(to, DataType::Time32(_) | DataType::Time64(_)) {
            let time = time(text, 5).filter(|(_, rest)| rest.is_empty());
            return time.map(|(time, _)| time.to_string()).ok_or("it is no time");
        }
        let Clock { date, time, offset } = clock(text).ok_or("it is no time")?;
        Ok(match to {
            DataType::Date32 => date.to_string(),
            DataType::Timestamp(_, None) if !offset.is_empty() => return Err(HAS_OFFSET),
            _ if time.is_empty() => date.to_string(),
            _ => format!("{date} {time}{offset}"),
        })
    };
    let read = |text: Option<&str>| match text.map_or(Ok(None), |text| read(text).map(Some)) {
        Err(_) if tries => Ok(None),
        Err(why) => {
            let text = text.unwrap_or_default();
            let error = match to {
                DataType::Timestamp(..) => format!("Error parsing timestamp from '{text}': {why}"),
                _ => format!("Cannot cast string '{text}' to value of {to} type"),
            };
            Err(ArrowError::ParseError(error))
        }
        Ok(read) => Ok(read),
    };
    let read = texts.as_string::<i32>().iter().map(read);
    let read: ArrayRef = Arc::new(read.collect::<Result<StringArray, _>>()?);
    let options = CastOptions { safe: tries, ..Default::default() };
    Ok(cast_with_options(&read, to, &options)?)
}

/// Whether the text of a time has an offset from UTC.
pub(super) fn has_offset(text: &str) -> bool {
    clock(text).is_some_and(|clock| !clock.offset.is_empty())
}

/// The parts of a text.
struct Clock<'a> {
    date: &'a str,
    /// Empty of a date alone.
    time: &'a str,
    offset: &'a str,
}

/// `2024-01-31`, perhaps with `12:30:00.5` behind a blank or a `T`, and an offset behind that, with
/// or without a blank.
fn clock(text: &str) -> Option<Clock<'_>> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let year = unsigned.bytes().take_while(u8::is_ascii_digit).count();
    let years = if unsigned.len() < text.len() { 4..=12 } else { 4..=4 };
    let day = unsigned.as_bytes().get(year..year + 6)?;
    let [b'-', m, n, b'-', d, e] = day else { return None };
    if !years.contains(&year) || ![m, n, d, e].iter().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let (date, rest) = text.split_at(text.len() - unsigned.len() + year + 6);
    if rest.is_empty() {
        return Some(Clock { date, time: "", offset: "" });
    }
    let (time, rest) = time(rest.strip_prefix([' ', 'T', 't'])?, 8)?;
    let offset = rest.strip_prefix(' ').unwrap_or(rest);
    (is_offset(offset) && (offset.len() == rest.len() || !offset.is_empty())).then_some(Clock {
        date,
        time,
        offset,
    })
}

/// `12:30`, `12:30:00` or `12:30:00.5`, of so many bytes at least, and the text behind.
fn time(text: &str, least: usize) -> Option<(&str, &str)> {
    let (clock, rest) = match text.as_bytes() {
        [_, _, b':', _, _, b':', ..] => text.split_at_checked(8)?,
        _ => text.split_at_checked(5)?,
    };
    let valid = match clock.as_bytes() {
        [a @ b'0'..=b'2', b @ b'0'..=b'9', b':', b'0'..=b'5', b'0'..=b'9', seconds @ ..] => {
            let seconds = matches!(seconds, [] | [b':', b'0'..=b'5', b'0'..=b'9']);
            seconds && (*a, *b) < (b'2', b'4')
        }
        _ => false,
    };
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let fraction = match rest.strip_prefix('.') {
        Some(fraction) if clock.len() == 8 && digits(fraction) > 0 => 1 + digits(fraction),
        _ => 0,
    };
    let (time, rest) = text.split_at(clock.len() + fraction);
    (valid && clock.len() >= least).then_some((time, rest))
}

/// Whether a text is `Z`, `±HH`, `±HHMM` or `±HH:MM` of 18 hours at most, or empty.
fn is_offset(text: &str) -> bool {
    let digits = match text.as_bytes() {
        [] | [b'Z' | b'z'] => return true,
        [b'+' | b'-', a, b] => [*a, *b, b'0', b'0'],
        [b'+' | b'-', a, b, c, d] | [b'+' | b'-', a, b, b':', c, d] => [*a, *b, *c, *d],
        _ => return false,
    };
    digits.iter().all(u8::is_ascii_digit) && digits[2] < b'6' && digits <= *b"1800"
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::TimeUnit;

    use super::*;

    /// As the reader of CSV files takes them.
    #[test]
    fn forms_are_those_of_files() {
        let time = DataType::Time32(TimeUnit::Millisecond);
        let clock = DataType::Timestamp(TimeUnit::Millisecond, None);
        let instant = DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into()));
        let reads = |text: &str, to: &DataType| {
            let texts: ArrayRef = Arc::new(StringArray::from(vec![text]));
            texts_as_times(&texts, to, false).is_ok()
        };
        for (text, to, taken) in [
            ("12:00", &time, true),
            ("12:00:59.1234567891", &time, true),
            (" 12:00:59", &time, false),
            ("12:00:60", &time, false),
            ("24:00:00", &time, false),
            ("1:00:00", &time, false),
            ("120000", &time, false),
            ("12:00:00 PM", &time, false),
            ("12:00.5", &time, false),
            (" 2024-01-01", &DataType::Date32, false),
            ("+12024-01-01", &DataType::Date32, true),
            ("2024-01-01 12:00:00", &DataType::Date32, true),
            ("2024-1-1", &DataType::Date32, false),
            ("20240101", &DataType::Date32, false),
            ("2024-01-01T", &DataType::Date32, false),
            ("2024-02-30", &DataType::Date32, false),
            ("2024-01-01T12:00:00.5", &clock, true),
            ("2024-01-01", &clock, true),
            ("2024-01-01 12:00:00,5", &clock, false),
            ("2024-01-01 12:00", &clock, false),
            ("2024-01-01 12:00:00Z", &clock, false),
            ("2024-01-01 12:00:00 +0200", &instant, true),
            ("2024-01-01 12:00:00-18", &instant, true),
            ("2024-01-01 12:00:00+18:01", &instant, false),
            ("2024-01-01 12:00:00+19:00", &instant, false),
            ("é024-01-01", &clock, false),
        ] {
            assert_eq!(reads(text, to), taken, "{text}");
        }
    }
}

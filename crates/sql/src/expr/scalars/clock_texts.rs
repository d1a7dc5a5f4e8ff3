//! Texts as dates and timestamps. A TIMESTAMP is the time of a clock; a text with an offset from
//! UTC is an instant, which only clocks of that zone show so. A DATE is the day as it is written.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, StringArray};
use arrow::compute::{CastOptions, cast, cast_with_options};
use arrow::datatypes::DataType;
use arrow::error::ArrowError;
use datafusion_common::Result as DfResult;

use crate::expr::wording::HAS_OFFSET;

/// Whether texts are read as values of this type here.
pub(super) fn is_time(to: &DataType) -> bool {
    matches!(to, DataType::Timestamp(..) | DataType::Date32)
}

/// Texts as dates or timestamps; if it `tries`, NULL for texts of other forms.
pub(super) fn texts_as_times(texts: &ArrayRef, to: &DataType, tries: bool) -> DfResult<ArrayRef> {
    let texts = cast(texts, &DataType::Utf8)?;
    let read = |text| match (clock(text), to) {
        (Some((_, offset)), DataType::Timestamp(_, Some(_))) => Ok(Some(offset)),
        (Some((time, offset)), DataType::Timestamp(..)) if time.len() < offset.len() => {
            Err(HAS_OFFSET)
        }
        (Some((time, _)), _) => Ok(Some(time)),
        (None, _) => Err("it is no time"),
    };
    let read = |text: Option<_>| match text.map_or(Ok(None), read) {
        Err(_) if tries => Ok(None),
        Err(why) => {
            let text = text.unwrap_or_default();
            let error = match to {
                DataType::Date32 => format!("Cannot cast string '{text}' to value of Date32 type"),
                _ => format!("Error parsing timestamp from '{text}': {why}"),
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

/// A text without an offset from UTC, and with it. `None` where the time of day is not of the form
/// `12:30:00`.
fn clock(text: &str) -> Option<(&str, &str)> {
    let Some((_, [b' ' | b'T' | b't', time @ ..])) = text.as_bytes().split_at_checked(10) else {
        return Some((text, text));
    };
    let [_, _, b':', _, _, b':', b'0'..=b'5', _, fraction @ ..] = time else { return None };
    let digits = fraction.iter().take_while(|b| b.is_ascii_digit() || **b == b'.').count();
    Some((&text[..19 + digits], text))
}

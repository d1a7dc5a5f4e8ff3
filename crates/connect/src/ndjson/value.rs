//! From the text of a JSON value to the value of a column.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, ArrowPrimitiveType, BinaryArray, BooleanArray, PrimitiveArray, StringBuilder,
};
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, Time32MillisecondType, Time32SecondType, Time64MicrosecondType,
    Time64NanosecondType, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use base64::Engine as _;
use millstream_contract::Error;

use crate::csv::{BASE64, Why, signed, stamp, time, time32, unsigned};
use crate::datetime::parse_date;
use crate::number::{parse_decimal, parse_f32, parse_f64, parse_i64, parse_u64};

/// The value of one member in each record; `None` where it is missing.
pub(super) type Values<'a> = [Option<&'a str>];

/// Whether a type can be read from NDJSON: what CSV can hold.
pub(super) fn supported(data_type: &DataType) -> bool {
    crate::csv::CsvFormat::supported(data_type)
}

/// Which values a STRING takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Strings {
    /// JSON strings.
    Quoted,
    /// And all others, as they are written.
    Any,
}

/// Decodes a column. Rows that do not fit are given to `fault`, which says whether to go on.
pub(super) fn column(
    values: &Values<'_>,
    data_type: &DataType,
    nullable: bool,
    strings: Strings,
    fault: &mut dyn FnMut(usize, Why) -> bool,
) -> Result<Option<ArrayRef>, Error> {
    use DataType as D;
    use TimeUnit as U;
    let mut column = Column { values, data_type, nullable, fault };
    Ok(match data_type {
        D::Boolean => column.booleans(),
        D::Int8 => column.numbers::<Int8Type>(signed),
        D::Int16 => column.numbers::<Int16Type>(signed),
        D::Int32 => column.numbers::<Int32Type>(signed),
        D::Int64 => column.numbers::<Int64Type>(|text| Ok(parse_i64(text)?)),
        D::UInt8 => column.numbers::<UInt8Type>(unsigned),
        D::UInt16 => column.numbers::<UInt16Type>(unsigned),
        D::UInt32 => column.numbers::<UInt32Type>(unsigned),
        D::UInt64 => column.numbers::<UInt64Type>(|text| Ok(parse_u64(text)?)),
        D::Float32 => column.numbers::<Float32Type>(|text| parse_f32(text).ok_or(Why::Malformed)),
        D::Float64 => column.numbers::<Float64Type>(|text| parse_f64(text).ok_or(Why::Malformed)),
        D::Decimal128(precision, scale) => column.decimals(*precision, *scale),
        D::Date32 => column.texts::<Date32Type>(|text| parse_date(text).ok_or(Why::Malformed)),
        D::Time32(U::Second) => column.texts::<Time32SecondType>(time32(U::Second)),
        D::Time32(U::Millisecond) => column.texts::<Time32MillisecondType>(time32(U::Millisecond)),
        D::Time64(U::Microsecond) => column.texts::<Time64MicrosecondType>(time(U::Microsecond)),
        D::Time64(U::Nanosecond) => column.texts::<Time64NanosecondType>(time(U::Nanosecond)),
        D::Timestamp(U::Second, _) => column.texts::<TimestampSecondType>(stamp(U::Second)),
        D::Timestamp(U::Millisecond, _) => {
            column.texts::<TimestampMillisecondType>(stamp(U::Millisecond))
        }
        D::Timestamp(U::Microsecond, _) => {
            column.texts::<TimestampMicrosecondType>(stamp(U::Microsecond))
        }
        D::Timestamp(U::Nanosecond, _) => {
            column.texts::<TimestampNanosecondType>(stamp(U::Nanosecond))
        }
        D::Utf8 => column.strings(strings),
        D::Binary => column.bytes(),
        other => return Err(Error::Internal(format!("NDJSON column of type {other}"))),
    })
}

struct Column<'a, 'v> {
    values: &'a Values<'v>,
    data_type: &'a DataType,
    nullable: bool,
    fault: &'a mut dyn FnMut(usize, Why) -> bool,
}

impl<'v> Column<'_, 'v> {
    /// Each row's value as `parse` reads it. `None`: some row does not fit, and all ends there.
    fn each<V>(
        &mut self,
        parse: impl Fn(&'v str) -> Result<V, Why>,
        mut push: impl FnMut(Option<V>),
    ) -> Option<()> {
        for (row, text) in self.values.iter().enumerate() {
            let parsed = match text.filter(|text| *text != "null") {
                Some(text) => parse(text).map(Some),
                None if self.nullable => Ok(None),
                None => Err(Why::Null),
            };
            match parsed {
                Ok(value) => push(value),
                Err(why) if (self.fault)(row, why) => push(None),
                Err(_) => return None,
            }
        }
        Some(())
    }

    fn primitive<T: ArrowPrimitiveType>(
        &mut self,
        parse: impl Fn(&'v str) -> Result<T::Native, Why>,
    ) -> Option<ArrayRef> {
        let mut values: Vec<Option<T::Native>> = Vec::with_capacity(self.values.len());
        self.each(parse, |value| values.push(value))?;
        let array = PrimitiveArray::<T>::from_iter(values);
        Some(Arc::new(array.with_data_type(self.data_type.clone())))
    }

    /// JSON numbers.
    fn numbers<T: ArrowPrimitiveType>(
        &mut self,
        parse: impl Fn(&[u8]) -> Result<T::Native, Why>,
    ) -> Option<ArrayRef> {
        self.primitive::<T>(|text| match is_number(text) {
            true => parse(text.as_bytes()),
            false => Err(Why::Malformed),
        })
    }

    /// JSON strings that hold a value.
    fn texts<T: ArrowPrimitiveType>(
        &mut self,
        parse: impl Fn(&[u8]) -> Result<T::Native, Why>,
    ) -> Option<ArrayRef> {
        self.primitive::<T>(|text| parse(string(text)?.as_bytes()))
    }

    fn decimals(&mut self, precision: u8, scale: i8) -> Option<ArrayRef> {
        self.primitive::<Decimal128Type>(|text| {
            let text = if is_number(text) { Cow::Borrowed(text) } else { string(text)? };
            Ok(parse_decimal(text.as_bytes(), precision, scale)?)
        })
    }

    fn booleans(&mut self) -> Option<ArrayRef> {
        let mut values = Vec::with_capacity(self.values.len());
        let parse = |text| match text {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(Why::Malformed),
        };
        self.each(parse, |value| values.push(value))?;
        Some(Arc::new(BooleanArray::from(values)))
    }

    fn strings(&mut self, which: Strings) -> Option<ArrayRef> {
        let rows = self.values.len();
        let mut strings = StringBuilder::with_capacity(rows, rows * 8);
        let parse = |text| match string(text) {
            Err(_) if which == Strings::Any && !text.starts_with('"') => Ok(Cow::Borrowed(text)),
            parsed => parsed,
        };
        self.each(parse, |value| strings.append_option(value))?;
        Some(Arc::new(strings.finish()))
    }

    fn bytes(&mut self) -> Option<ArrayRef> {
        let mut values: Vec<Option<Vec<u8>>> = Vec::with_capacity(self.values.len());
        let parse = |text| {
            let text = string(text)?;
            BASE64.decode(text.trim().as_bytes()).map_err(|_| Why::Malformed)
        };
        self.each(parse, |value| values.push(value))?;
        Some(Arc::new(BinaryArray::from_iter(values)))
    }
}

/// Whether the text of a JSON value is a number's.
fn is_number(text: &str) -> bool {
    text.starts_with(|first: char| first == '-' || first.is_ascii_digit())
}

/// What a JSON string says, if that is what the value is.
fn string(text: &str) -> Result<Cow<'_, str>, Why> {
    let inner = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
    match inner {
        Some(inner) if memchr::memchr(b'\\', inner.as_bytes()).is_none() => {
            Ok(Cow::Borrowed(inner))
        }
        Some(_) => serde_json::from_str::<String>(text).map(Cow::Owned).map_err(|_| Why::Malformed),
        None => Err(Why::Malformed),
    }
}

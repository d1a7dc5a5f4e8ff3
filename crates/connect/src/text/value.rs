//! Formatting one value, the same way in every format.
//!
//! Timestamps are `2012-02-22 16:46:28.967`, with all digits of their unit, and with a `Z` if the
//! type has a time zone (they are shown in UTC). Floats are the shortest text that reads back as
//! the same number. Binary values are base64, as the CSV source reads them. Intervals are `1 year 2
//! months` and `-3 days -12:00:01.5`. Rows, arrays and maps are JSON ([`Nested`]).

use std::io::Write as _;

use arrow::array::{Array, ArrayAccessor, ArrayRef, AsArray};
use arrow::buffer::{NullBuffer, ScalarBuffer};
use arrow::datatypes::{
    ArrowNativeType, DataType, IntervalDayTime, IntervalMonthDayNano, IntervalUnit, i256,
};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use millstream_contract::calendar::tick_ns;
use millstream_contract::interval::{write_duration, write_interval};
use millstream_contract::{Error, Result};

use super::nested::Nested;
use crate::datetime::{write_date, write_time, write_timestamp};
use crate::number::{write_decimal128, write_decimal256, write_float, write_i64, write_u64};

/// Milliseconds in a day.
const DAY_MS: i64 = 86_400_000;

/// Class of a column's texts: decides about quoting and alignment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// Digits, sign, point: a JSON number as it is.
    Number,
    /// A number, or `NaN`, `Infinity`, `-Infinity`.
    Float,
    /// `true`, `false`.
    Boolean,
    /// Text without need of escapes or CSV quotes: dates and times.
    Plain,
    /// Anything.
    Text,
}

/// The class of a type.
pub(crate) fn class(data_type: &DataType) -> Class {
    use DataType as D;
    match data_type {
        D::Boolean => Class::Boolean,
        D::Float32 | D::Float64 => Class::Float,
        D::Decimal128(_, _) | D::Decimal256(_, _) => Class::Number,
        integer if integer.is_integer() => Class::Number,
        D::Date32 | D::Date64 | D::Time32(_) | D::Time64(_) | D::Timestamp(_, _) => Class::Plain,
        D::Duration(_) | D::Interval(_) => Class::Plain,
        _ => Class::Text,
    }
}

/// A column whose values can be written.
pub(crate) struct Cells<'a> {
    nulls: Option<NullBuffer>,
    values: CellValues<'a>,
    pub(crate) class: Class,
}

/// A column's values, by how they are written.
enum CellValues<'a> {
    Flat(Write<'a>),
    Nested(Nested<'a>),
}

/// Appends the text of a row's value.
type Write<'a> = Box<dyn Fn(usize, &mut Vec<u8>) + 'a>;

impl<'a> Cells<'a> {
    /// Takes a column of any type.
    pub(crate) fn new(array: &'a ArrayRef, options: &'a FormatOptions<'a>) -> Result<Cells<'a>> {
        let values = match Nested::new(array, options)? {
            Some(nested) => CellValues::Nested(nested),
            None => CellValues::Flat(flat(array, options)?),
        };
        Ok(Cells { nulls: array.logical_nulls(), values, class: class(array.data_type()) })
    }

    /// Whether the value is NULL.
    #[inline]
    pub(crate) fn is_null(&self, row: usize) -> bool {
        self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row))
    }

    /// The column's nested values, which are written as JSON.
    #[inline]
    pub(super) fn nested(&self) -> Option<&Nested<'a>> {
        match &self.values {
            CellValues::Nested(nested) => Some(nested),
            CellValues::Flat(_) => None,
        }
    }

    /// Appends the value's text; NULL must be asked for before.
    #[inline]
    pub(crate) fn write(&self, row: usize, out: &mut Vec<u8>) {
        match &self.values {
            CellValues::Flat(write) => write(row, out),
            CellValues::Nested(nested) => nested.write(row, out),
        }
    }
}

fn flat<'a>(array: &'a ArrayRef, options: &'a FormatOptions<'a>) -> Result<Write<'a>> {
    use DataType as D;
    let text = |bytes: &[u8], out: &mut Vec<u8>| out.extend_from_slice(bytes);
    Ok(match array.data_type() {
        D::Boolean => any(array.as_boolean(), |value, out| {
            out.extend_from_slice(if value { b"true" } else { b"false" });
        }),
        D::Int8 => each(array, |value: i8, out| write_i64(value.into(), out)),
        D::Int16 => each(array, |value: i16, out| write_i64(value.into(), out)),
        D::Int32 => each(array, |value: i32, out| write_i64(value.into(), out)),
        D::Int64 => each(array, write_i64),
        D::UInt8 => each(array, |value: u8, out| write_u64(value.into(), out)),
        D::UInt16 => each(array, |value: u16, out| write_u64(value.into(), out)),
        D::UInt32 => each(array, |value: u32, out| write_u64(value.into(), out)),
        D::UInt64 => each(array, write_u64),
        D::Float32 => each(array, write_float::<f32>),
        D::Float64 => each(array, write_float::<f64>),
        D::Decimal128(_, scale) => each(array, |value, out| write_decimal128(value, *scale, out)),
        D::Decimal256(_, scale) => {
            each(array, |value: i256, out| write_decimal256(value, *scale, out))
        }
        D::Utf8 => any(array.as_string::<i32>(), move |value, out| text(value.as_bytes(), out)),
        D::LargeUtf8 => {
            any(array.as_string::<i64>(), move |value, out| text(value.as_bytes(), out))
        }
        D::Utf8View => any(array.as_string_view(), move |value, out| text(value.as_bytes(), out)),
        D::Binary => any(array.as_binary::<i32>(), write_base64),
        D::LargeBinary => any(array.as_binary::<i64>(), write_base64),
        D::BinaryView => any(array.as_binary_view(), write_base64),
        D::FixedSizeBinary(_) => any(array.as_fixed_size_binary(), write_base64),
        D::Date32 => each(array, |days: i32, out| write_date(days.into(), out)),
        D::Date64 => each(array, |ms: i64, out| write_date(ms.div_euclid(DAY_MS), out)),
        D::Time32(unit) => each(array, |value: i32, out| write_time(value.into(), *unit, out)),
        D::Time64(unit) => each(array, |value, out| write_time(value, *unit, out)),
        D::Timestamp(unit, zone) => {
            each(array, |value, out| write_timestamp(value, *unit, zone.is_some(), out))
        }
        D::Duration(unit) => each(array, |value: i64, out| {
            write_duration(i128::from(value) * tick_ns(*unit), out);
        }),
        D::Interval(IntervalUnit::YearMonth) => {
            each(array, |months: i32, out| write_interval(months.into(), 0, 0, out))
        }
        D::Interval(IntervalUnit::DayTime) => each(array, |value: IntervalDayTime, out| {
            write_interval(0, value.days.into(), i128::from(value.milliseconds) * 1_000_000, out);
        }),
        D::Interval(IntervalUnit::MonthDayNano) => {
            each(array, |IntervalMonthDayNano { months, days, nanoseconds }, out| {
                write_interval(months.into(), days.into(), nanoseconds.into(), out);
            })
        }
        // Values of all other types, as Arrow shows them. Writing into memory cannot fail; a value
        // that Arrow cannot show shows as nothing.
        _ => {
            let formatter = ArrayFormatter::try_new(array, options)
                .map_err(|error| Error::Internal(error.to_string()))?;
            Box::new(move |row, out| _ = write!(out, "{}", formatter.value(row)))
        }
    })
}

/// Values of fixed width.
fn each<'a, N: ArrowNativeType>(
    array: &ArrayRef,
    write: impl Fn(N, &mut Vec<u8>) + 'a,
) -> Write<'a> {
    let data = array.to_data();
    let values: ScalarBuffer<N> =
        ScalarBuffer::new(data.buffers()[0].clone(), data.offset(), data.len());
    Box::new(move |row, out| write(values[row], out))
}

/// Values of any length, and truth values.
fn any<'a, A: ArrayAccessor + 'a>(
    array: A,
    write: impl Fn(A::Item, &mut Vec<u8>) + 'a,
) -> Write<'a> {
    Box::new(move |row, out| write(array.value(row), out))
}

fn write_base64(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(BASE64.encode(bytes).as_bytes());
}

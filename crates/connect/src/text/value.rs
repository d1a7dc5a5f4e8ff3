//! Formatting one value, the same way in every format.
//!
//! Timestamps are `2012-02-22 16:46:28.967`, with all digits of their unit, and with a `Z` if the
//! type has a time zone (they are shown in UTC). Floats are the shortest text that reads back as
//! the same number. Binary values are base64, as the CSV source reads them. Intervals are `1 year 2
//! months` and `-3 days -12:00:01.5`. Rows, arrays and maps are JSON ([`Nested`]).

use std::io::Write;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BinaryViewArray, BooleanArray, FixedSizeBinaryArray,
    LargeBinaryArray, LargeStringArray, StringArray, StringViewArray,
};
use arrow::datatypes::{
    DataType, Date32Type, Date64Type, Decimal128Type, Decimal256Type, DurationMicrosecondType,
    DurationMillisecondType, DurationNanosecondType, DurationSecondType, Float32Type, Float64Type,
    Int8Type, Int16Type, Int32Type, Int64Type, IntervalDayTime, IntervalDayTimeType,
    IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit, IntervalYearMonthType,
    Time32MillisecondType, Time32SecondType, Time64MicrosecondType, Time64NanosecondType, TimeUnit,
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type, i256,
};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use millstream_contract::interval::{write_duration, write_interval};
use millstream_contract::{Error, Result};

use super::nested::Nested;
use crate::datetime::{write_date, write_time, write_timestamp};
use crate::number::{
    write_decimal128, write_decimal256, write_f32, write_f64, write_i64, write_u64,
};

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
    array: &'a ArrayRef,
    values: CellValues<'a>,
    has_nulls: bool,
    pub(crate) class: Class,
}

/// A column's values, by how they are written.
enum CellValues<'a> {
    Null,
    Boolean(&'a BooleanArray),
    I8(&'a [i8]),
    I16(&'a [i16]),
    I32(&'a [i32]),
    I64(&'a [i64]),
    U8(&'a [u8]),
    U16(&'a [u16]),
    U32(&'a [u32]),
    U64(&'a [u64]),
    F32(&'a [f32]),
    F64(&'a [f64]),
    Decimal128(&'a [i128], i8),
    Decimal256(&'a [i256], i8),
    Text(&'a StringArray),
    LargeText(&'a LargeStringArray),
    TextView(&'a StringViewArray),
    Binary(&'a BinaryArray),
    LargeBinary(&'a LargeBinaryArray),
    BinaryView(&'a BinaryViewArray),
    FixedBinary(&'a FixedSizeBinaryArray),
    Date(&'a [i32]),
    DateMs(&'a [i64]),
    Time32(&'a [i32], TimeUnit),
    Time64(&'a [i64], TimeUnit),
    Timestamp(&'a [i64], TimeUnit, bool),
    Duration(&'a [i64], TimeUnit),
    Months(&'a [i32]),
    DaysAndMs(&'a [IntervalDayTime]),
    MonthsDaysAndNs(&'a [IntervalMonthDayNano]),
    Nested(Nested<'a>),
    /// Values of all other types, as Arrow shows them.
    Other(ArrayFormatter<'a>),
}

impl<'a> Cells<'a> {
    /// Takes a column of any type.
    // tidy: long function: one arm per type
    pub(crate) fn new(array: &'a ArrayRef, options: &'a FormatOptions<'a>) -> Result<Cells<'a>> {
        use CellValues as V;
        use DataType as D;
        use TimeUnit as U;
        let values = match array.data_type() {
            D::Null => V::Null,
            D::Boolean => V::Boolean(array.as_boolean()),
            D::Int8 => V::I8(array.as_primitive::<Int8Type>().values()),
            D::Int16 => V::I16(array.as_primitive::<Int16Type>().values()),
            D::Int32 => V::I32(array.as_primitive::<Int32Type>().values()),
            D::Int64 => V::I64(array.as_primitive::<Int64Type>().values()),
            D::UInt8 => V::U8(array.as_primitive::<UInt8Type>().values()),
            D::UInt16 => V::U16(array.as_primitive::<UInt16Type>().values()),
            D::UInt32 => V::U32(array.as_primitive::<UInt32Type>().values()),
            D::UInt64 => V::U64(array.as_primitive::<UInt64Type>().values()),
            D::Float32 => V::F32(array.as_primitive::<Float32Type>().values()),
            D::Float64 => V::F64(array.as_primitive::<Float64Type>().values()),
            D::Decimal128(_, scale) => {
                V::Decimal128(array.as_primitive::<Decimal128Type>().values(), *scale)
            }
            D::Decimal256(_, scale) => {
                V::Decimal256(array.as_primitive::<Decimal256Type>().values(), *scale)
            }
            D::Utf8 => V::Text(array.as_string()),
            D::LargeUtf8 => V::LargeText(array.as_string()),
            D::Utf8View => V::TextView(array.as_string_view()),
            D::Binary => V::Binary(array.as_binary()),
            D::LargeBinary => V::LargeBinary(array.as_binary()),
            D::BinaryView => V::BinaryView(array.as_binary_view()),
            D::FixedSizeBinary(_) => V::FixedBinary(array.as_fixed_size_binary()),
            D::Date32 => V::Date(array.as_primitive::<Date32Type>().values()),
            D::Date64 => V::DateMs(array.as_primitive::<Date64Type>().values()),
            D::Time32(unit @ U::Second) => {
                V::Time32(array.as_primitive::<Time32SecondType>().values(), *unit)
            }
            D::Time32(unit @ U::Millisecond) => {
                V::Time32(array.as_primitive::<Time32MillisecondType>().values(), *unit)
            }
            D::Time64(unit @ U::Microsecond) => {
                V::Time64(array.as_primitive::<Time64MicrosecondType>().values(), *unit)
            }
            D::Time64(unit @ U::Nanosecond) => {
                V::Time64(array.as_primitive::<Time64NanosecondType>().values(), *unit)
            }
            D::Timestamp(unit, zone) => {
                let values: &[i64] = match unit {
                    U::Second => array.as_primitive::<TimestampSecondType>().values(),
                    U::Millisecond => array.as_primitive::<TimestampMillisecondType>().values(),
                    U::Microsecond => array.as_primitive::<TimestampMicrosecondType>().values(),
                    U::Nanosecond => array.as_primitive::<TimestampNanosecondType>().values(),
                };
                V::Timestamp(values, *unit, zone.is_some())
            }
            D::Duration(unit) => {
                let values: &[i64] = match unit {
                    U::Second => array.as_primitive::<DurationSecondType>().values(),
                    U::Millisecond => array.as_primitive::<DurationMillisecondType>().values(),
                    U::Microsecond => array.as_primitive::<DurationMicrosecondType>().values(),
                    U::Nanosecond => array.as_primitive::<DurationNanosecondType>().values(),
                };
                V::Duration(values, *unit)
            }
            D::Interval(IntervalUnit::YearMonth) => {
                V::Months(array.as_primitive::<IntervalYearMonthType>().values())
            }
            D::Interval(IntervalUnit::DayTime) => {
                V::DaysAndMs(array.as_primitive::<IntervalDayTimeType>().values())
            }
            D::Interval(IntervalUnit::MonthDayNano) => {
                V::MonthsDaysAndNs(array.as_primitive::<IntervalMonthDayNanoType>().values())
            }
            _ => match Nested::new(array, options)? {
                Some(nested) => V::Nested(nested),
                None => V::Other(
                    ArrayFormatter::try_new(array, options)
                        .map_err(|error| Error::Internal(error.to_string()))?,
                ),
            },
        };
        let has_nulls = array.logical_null_count() > 0;
        Ok(Cells { array, values, has_nulls, class: class(array.data_type()) })
    }

    /// Whether the value is NULL.
    #[inline]
    pub(crate) fn is_null(&self, row: usize) -> bool {
        self.has_nulls
            && match &self.values {
                CellValues::Null => true,
                CellValues::Other(_) => {
                    self.array.logical_nulls().is_some_and(|nulls| nulls.is_null(row))
                }
                _ => self.array.is_null(row),
            }
    }

    /// The column's nested values, which are written as JSON.
    #[inline]
    pub(super) fn nested(&self) -> Option<&Nested<'a>> {
        match &self.values {
            CellValues::Nested(nested) => Some(nested),
            _ => None,
        }
    }

    /// Appends the value's text; NULL must be asked for before.
    #[inline]
    pub(crate) fn write(&self, row: usize, out: &mut Vec<u8>) {
        match &self.values {
            CellValues::Null => {}
            CellValues::Boolean(values) => {
                out.extend_from_slice(if values.value(row) { b"true" } else { b"false" });
            }
            CellValues::I8(values) => write_i64(values[row].into(), out),
            CellValues::I16(values) => write_i64(values[row].into(), out),
            CellValues::I32(values) => write_i64(values[row].into(), out),
            CellValues::I64(values) => write_i64(values[row], out),
            CellValues::U8(values) => write_u64(values[row].into(), out),
            CellValues::U16(values) => write_u64(values[row].into(), out),
            CellValues::U32(values) => write_u64(values[row].into(), out),
            CellValues::U64(values) => write_u64(values[row], out),
            CellValues::F32(values) => write_f32(values[row], out),
            CellValues::F64(values) => write_f64(values[row], out),
            CellValues::Decimal128(values, scale) => write_decimal128(values[row], *scale, out),
            CellValues::Decimal256(values, scale) => write_decimal256(values[row], *scale, out),
            CellValues::Text(values) => out.extend_from_slice(values.value(row).as_bytes()),
            CellValues::LargeText(values) => out.extend_from_slice(values.value(row).as_bytes()),
            CellValues::TextView(values) => out.extend_from_slice(values.value(row).as_bytes()),
            CellValues::Binary(values) => write_base64(values.value(row), out),
            CellValues::LargeBinary(values) => write_base64(values.value(row), out),
            CellValues::BinaryView(values) => write_base64(values.value(row), out),
            CellValues::FixedBinary(values) => write_base64(values.value(row), out),
            CellValues::Date(values) => write_date(values[row].into(), out),
            CellValues::DateMs(values) => write_date(values[row].div_euclid(DAY_MS), out),
            CellValues::Time32(values, unit) => write_time(values[row].into(), *unit, out),
            CellValues::Time64(values, unit) => write_time(values[row], *unit, out),
            CellValues::Timestamp(values, unit, zoned) => {
                write_timestamp(values[row], *unit, *zoned, out);
            }
            CellValues::Duration(values, unit) => {
                let nanos = 1_000_000_000 / millstream_contract::calendar::per_second(*unit);
                write_duration(i128::from(values[row]) * i128::from(nanos), out);
            }
            CellValues::Months(values) => write_interval(values[row].into(), 0, 0, out),
            CellValues::DaysAndMs(values) => {
                let value = values[row];
                write_interval(
                    0,
                    value.days.into(),
                    i128::from(value.milliseconds) * 1_000_000,
                    out,
                );
            }
            CellValues::MonthsDaysAndNs(values) => {
                let value = values[row];
                write_interval(
                    value.months.into(),
                    value.days.into(),
                    value.nanoseconds.into(),
                    out,
                );
            }
            CellValues::Nested(nested) => nested.write(row, out),
            // Writing into memory cannot fail; a value that Arrow cannot show shows as nothing.
            CellValues::Other(formatter) => _ = write!(out, "{}", formatter.value(row)),
        }
    }
}

fn write_base64(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(BASE64.encode(bytes).as_bytes());
}

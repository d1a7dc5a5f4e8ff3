//! Types that come from elsewhere, conformed once to those that keys and values know.
//!
//! Arrow has several layouts for one and the same type: dictionaries, views, large offsets,
//! decimals of many widths. Each has one here ([`conformed`]), and nothing is lost on the way
//! ([`conform`]). A type that SQL cannot name has none.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType, Date64Type, Field, FieldRef, TimeUnit};
use arrow::error::ArrowError;
use arrow::util::display::FormatOptions;

/// Milliseconds of a day.
const DAY_MS: i64 = 86_400_000;

/// The time zone in which instants are kept.
const UTC: &str = "UTC";

/// A value out of range is an error, not NULL.
const STRICT: CastOptions<'static> =
    CastOptions { safe: false, format_options: FormatOptions::new() };

/// The type in which values of this one are kept; `None` if SQL has none for them.
pub(crate) fn conformed(data_type: &DataType) -> Option<DataType> {
    use DataType::*;
    Some(match data_type {
        Boolean | Int8 | Int16 | Int32 | Int64 | UInt8 | UInt16 | UInt32 | UInt64 | Float32
        | Float64 | Date32 | Time32(_) | Time64(_) => data_type.clone(),
        Utf8 | LargeUtf8 | Utf8View => Utf8,
        Binary | LargeBinary | BinaryView | FixedSizeBinary(_) => Binary,
        Date64 => Date32,
        Timestamp(unit, None) => Timestamp(*unit, None),
        Timestamp(unit, Some(_)) => Timestamp(*unit, Some(UTC.into())),
        Decimal32(precision, scale)
        | Decimal64(precision, scale)
        | Decimal128(precision, scale)
        | Decimal256(precision, scale) => {
            let named = (0..=*precision as i16).contains(&i16::from(*scale));
            if !named || !(1..=DECIMAL128_MAX_PRECISION).contains(precision) {
                return None;
            }
            Decimal128(*precision, *scale)
        }
        Dictionary(_, values) => conformed(values)?,
        RunEndEncoded(_, values) => conformed(values.data_type())?,
        List(item)
        | LargeList(item)
        | ListView(item)
        | LargeListView(item)
        | FixedSizeList(item, _) => {
            let name = Field::LIST_FIELD_DEFAULT_NAME;
            List(Arc::new(Field::new(name, conformed(item.data_type())?, item.is_nullable())))
        }
        Struct(fields) => {
            Struct(fields.iter().map(conformed_field).collect::<Option<Vec<FieldRef>>>()?.into())
        }
        Map(entries, _) => Map(conformed_field(entries)?, false),
        _ => return None,
    })
}

fn conformed_field(field: &FieldRef) -> Option<FieldRef> {
    Some(Arc::new(Field::new(field.name(), conformed(field.data_type())?, field.is_nullable())))
}

/// Whether each value of one type is one of the other, too, or an error says that it is out of its
/// range, as the last seconds of a calendar counted in nanoseconds. Both are conformed.
pub(crate) fn widens(from: &DataType, to: &DataType) -> bool {
    use DataType::*;
    let bits = |data_type: &DataType| data_type.primitive_width().unwrap_or(0) * 8;
    let finer = |from: &TimeUnit, to: &TimeUnit| from <= to;
    match (from, to) {
        _ if from.is_signed_integer() && to.is_signed_integer() => bits(from) <= bits(to),
        _ if from.is_unsigned_integer() && to.is_unsigned_integer() => bits(from) <= bits(to),
        _ if from.is_unsigned_integer() && to.is_signed_integer() => bits(from) < bits(to),
        // Of 24 and 53 bits.
        _ if from.is_integer() && *to == Float32 => bits(from) <= 16,
        _ if from.is_integer() && *to == Float64 => bits(from) <= 32,
        (Float32, Float64) => true,
        (Decimal128(precision, scale), Decimal128(wider, finer)) => {
            let before = |precision: &u8, scale: &i8| i16::from(*precision) - i16::from(*scale);
            scale <= finer && before(precision, scale) <= before(wider, finer)
        }
        // Without a zone it is UTC, as everywhere.
        (Timestamp(from, _), Timestamp(to, _)) => finer(from, to),
        (Time32(from) | Time64(from), Time32(to) | Time64(to)) => finer(from, to),
        _ => from == to,
    }
}

/// The same values in another type: the conformed one, or one that is wider.
///
/// # Errors
///
/// If a value is out of its range.
pub(crate) fn conform(array: &ArrayRef, to: &DataType) -> Result<ArrayRef, ArrowError> {
    if array.data_type() == to {
        return Ok(array.clone());
    }
    if let Some(dates) = array.as_primitive_opt::<Date64Type>()
        && dates.iter().flatten().any(|ms| ms % DAY_MS != 0)
    {
        let message = "a date in milliseconds that is no whole number of days".to_string();
        return Err(ArrowError::InvalidArgumentError(message));
    }
    if let DataType::Timestamp(unit, Some(zone)) = array.data_type()
        && zone.as_ref() != UTC
    {
        // The instants are the same in all zones, and only the name changes.
        let instants =
            cast_with_options(array, &DataType::Timestamp(*unit, Some(UTC.into())), &STRICT)?;
        return conform(&instants, to);
    }
    cast_with_options(array, to, &STRICT)
}

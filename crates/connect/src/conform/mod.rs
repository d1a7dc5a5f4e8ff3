//! Types that come from elsewhere, conformed once to those that keys and values know.
//!
//! Arrow has several layouts for the same type: dictionaries, views, large offsets, decimals of
//! many widths, different field names inside lists and maps. Each type has one layout here
//! ([`conformed`]), and nothing is lost on the way ([`conform`]), within rows, arrays and maps as
//! without. A type without an SQL name has no layout here.

mod layout;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray, MapArray, OffsetSizeTrait, StructArray};
use arrow::buffer::OffsetBuffer;
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DataType, Date64Type, Field, FieldRef, Fields, TimeUnit,
};
use arrow::error::ArrowError;
use arrow::util::display::FormatOptions;
use millstream_contract::decoding::take;

use crate::types::sql_name;

/// Milliseconds of a day.
const DAY_MS: i64 = 86_400_000;

/// The time zone in which instants are kept.
const UTC: &str = "UTC";

/// Field name of an array's elements.
const ITEM: &str = Field::LIST_FIELD_DEFAULT_NAME;

/// Field name of a map's entries; below, the names of their keys and values.
const ENTRIES: &str = "entries";
const KEY: &str = "key";
const VALUE: &str = "value";

/// Message for a date in milliseconds that is no whole number of days.
pub(crate) const PART_OF_DAY: &str = "a date in milliseconds that is no whole number of days";

/// A value out of range is an error, not NULL.
const STRICT: CastOptions<'static> =
    CastOptions { safe: false, format_options: FormatOptions::new() };

/// Type in which values of `data_type` are kept; `None` if SQL has no such type.
pub(crate) fn conformed(data_type: &DataType) -> Option<DataType> {
    use DataType::*;
    Some(match data_type {
        Boolean | Int8 | Int16 | Int32 | Int64 | UInt8 | UInt16 | UInt32 | UInt64 | Float32
        | Float64 | Date32 | Time32(_) | Time64(_) => data_type.clone(),
        Float16 => Float32,
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
        | FixedSizeList(item, _) => List(conformed_field(item, ITEM, item.is_nullable())?),
        Struct(fields) if fields.is_empty() => return None,
        Struct(fields) => {
            let field =
                |field: &FieldRef| conformed_field(field, field.name(), field.is_nullable());
            Struct(fields.iter().map(field).collect::<Option<Fields>>()?)
        }
        Map(entries, _) => {
            let (key, value) = key_and_value(entries)?;
            let key = conformed_field(key, KEY, false)?;
            let entry = [key, conformed_field(value, VALUE, value.is_nullable())?];
            Map(Arc::new(Field::new(ENTRIES, Struct(Fields::from_iter(entry)), false)), false)
        }
        _ => return None,
    })
}

fn conformed_field(field: &Field, name: &str, nullable: bool) -> Option<FieldRef> {
    Some(Arc::new(Field::new(name, conformed(field.data_type())?, nullable)))
}

fn key_and_value(entries: &Field) -> Option<(&FieldRef, &FieldRef)> {
    match entries.data_type() {
        DataType::Struct(fields) => match &fields[..] {
            [key, value] => Some((key, value)),
            _ => None,
        },
        _ => None,
    }
}

/// Where the field of this name stands: as it is written, or else whatever the case.
///
/// # Errors
///
/// The number of such fields, if not exactly 1.
pub(crate) fn index_of(name: &str, fields: &Fields) -> Result<usize, usize> {
    let all = |same: &dyn Fn(&str) -> bool| -> Vec<usize> {
        fields.iter().enumerate().filter(|(_, f)| same(f.name())).map(|(at, _)| at).collect()
    };
    let mut found = all(&|other| other == name);
    if found.is_empty() {
        let lower = name.to_lowercase();
        found = all(&|other| other.to_lowercase() == lower);
    }
    match found[..] {
        [index] => Ok(index),
        _ => Err(found.len()),
    }
}

/// Whether each value of one type is one of the other, too, or an error says that it is out of its
/// range, as the last seconds of a calendar counted in nanoseconds. Both are conformed.
pub(crate) fn widens(from: &DataType, to: &DataType) -> bool {
    takes(from, to, &|from, to| from <= to)
}

/// As [`widens`]; also where times have fewer digits than in the file: that all of theirs are zeros
/// is seen when values come.
pub(crate) fn may_hold(from: &DataType, to: &DataType) -> bool {
    takes(from, to, &|_, _| true)
}

/// The one of two types that takes the values of both.
pub(crate) fn wider(one: &DataType, other: &DataType) -> Option<DataType> {
    match (widens(one, other), widens(other, one)) {
        (true, _) => Some(other.clone()),
        (false, true) => Some(one.clone()),
        (false, false) => None,
    }
}

/// As [`widens`], where `units` says which units of time take which.
fn takes(from: &DataType, to: &DataType, units: &dyn Fn(&TimeUnit, &TimeUnit) -> bool) -> bool {
    use DataType::*;
    let bits = |data_type: &DataType| data_type.primitive_width().unwrap_or(0) * 8;
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
        (Timestamp(from, _), Timestamp(to, _)) => units(from, to),
        (Time32(from) | Time64(from), Time32(to) | Time64(to)) => units(from, to),
        // Whether NULL may be within is seen when values come.
        (List(from), List(to)) => takes(from.data_type(), to.data_type(), units),
        (Struct(from), Struct(to)) => to.iter().all(|field| {
            let found = index_of(field.name(), from).ok().and_then(|index| from.get(index));
            found.is_some_and(|found| takes(found.data_type(), field.data_type(), units))
        }),
        (Map(from, _), Map(to, _)) => match (key_and_value(from), key_and_value(to)) {
            (Some(from), Some(to)) => {
                takes(from.0.data_type(), to.0.data_type(), units)
                    && takes(from.1.data_type(), to.1.data_type(), units)
            }
            _ => false,
        },
        _ => from == to,
    }
}

/// The same values in another type: the conformed type, or a wider type.
///
/// # Errors
///
/// If a value is out of its range, or NULL where none may be.
pub(crate) fn conform(array: &ArrayRef, to: &DataType) -> Result<ArrayRef, ArrowError> {
    if array.data_type() == to {
        return Ok(array.clone());
    }
    let bytes = layout::repeated_bytes(array);
    take(bytes).map_err(|too_much| ArrowError::ComputeError(too_much.to_string()))?;
    match (array.data_type(), to) {
        (DataType::Dictionary(_, values), _) => {
            let values = values.as_ref().clone();
            conform(&cast_with_options(array, &values, &STRICT)?, to)
        }
        (DataType::RunEndEncoded(_, values), _) => {
            let values = values.data_type().clone();
            conform(&cast_with_options(array, &values, &STRICT)?, to)
        }
        (_, DataType::List(item)) => conform_list(array, item),
        (_, DataType::Struct(fields)) => conform_struct(array, fields),
        (_, DataType::Map(entries, ordered)) => conform_map(array, entries, *ordered),
        _ => conform_plain(array, to),
    }
}

fn conform_plain(array: &ArrayRef, to: &DataType) -> Result<ArrayRef, ArrowError> {
    if let Some(dates) = array.as_primitive_opt::<Date64Type>()
        && dates.iter().flatten().any(|ms| ms % DAY_MS != 0)
    {
        let message = PART_OF_DAY.to_string();
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
    let made = cast_with_options(array, to, &STRICT)?;
    // A finer unit is cut off, and must be zeros.
    if loses_digits(array.data_type(), to)
        && &cast_with_options(&made, array.data_type(), &STRICT)? != array
    {
        let message = format!("a time with more digits than {} has", sql_name(to));
        return Err(ArrowError::InvalidArgumentError(message));
    }
    Ok(made)
}

/// Whether times of one type have digits for which the other has no place.
fn loses_digits(from: &DataType, to: &DataType) -> bool {
    use DataType::*;
    match (from, to) {
        (Timestamp(from, _), Timestamp(to, _)) => from > to,
        (Time32(from) | Time64(from), Time32(to) | Time64(to)) => from > to,
        _ => false,
    }
}

fn conform_list(array: &ArrayRef, item: &FieldRef) -> Result<ArrayRef, ArrowError> {
    let Some(lists) = array.as_list_opt::<i32>() else {
        let from = match array.data_type() {
            DataType::LargeList(from)
            | DataType::ListView(from)
            | DataType::LargeListView(from)
            | DataType::FixedSizeList(from, _) => from.clone(),
            other => return Err(unlike(other, "an array")),
        };
        let lists = cast_with_options(array, &DataType::List(from), &STRICT)?;
        return conform_list(&lists, item);
    };
    let (offsets, start, length) = rebased(lists.offsets());
    let values = conform(&lists.values().slice(start, length), item.data_type())?;
    let lists = ListArray::try_new(item.clone(), offsets, values, lists.nulls().cloned());
    let lists = lists.map_err(null_within)?;
    Ok(Arc::new(lists))
}

/// Offsets that begin with 0, and the range of their values: a slice covers only some of the
/// values.
fn rebased<O: OffsetSizeTrait>(offsets: &OffsetBuffer<O>) -> (OffsetBuffer<O>, usize, usize) {
    let (start, end) = (offsets[0], offsets[offsets.len() - 1]);
    let length = (end - start).as_usize();
    match start.as_usize() {
        0 => (offsets.clone(), 0, length),
        _ => {
            let lengths = offsets.windows(2).map(|pair| (pair[1] - pair[0]).as_usize());
            (OffsetBuffer::from_lengths(lengths), start.as_usize(), length)
        }
    }
}

fn conform_struct(array: &ArrayRef, fields: &Fields) -> Result<ArrayRef, ArrowError> {
    let Some(rows) = array.as_struct_opt() else {
        return Err(unlike(array.data_type(), "a row"));
    };
    let column = |field: &FieldRef| {
        let Ok(index) = index_of(field.name(), rows.fields()) else {
            let message = format!("a row without the field '{}'", field.name());
            return Err(ArrowError::SchemaError(message));
        };
        conform(rows.column(index), field.data_type())
    };
    let columns = fields.iter().map(column).collect::<Result<Vec<_>, _>>()?;
    let rows = StructArray::try_new(fields.clone(), columns, rows.nulls().cloned());
    Ok(Arc::new(rows.map_err(null_within)?))
}

fn conform_map(
    array: &ArrayRef,
    entries: &FieldRef,
    ordered: bool,
) -> Result<ArrayRef, ArrowError> {
    let (Some(maps), Some((key, value))) = (array.as_map_opt(), key_and_value(entries)) else {
        return Err(unlike(array.data_type(), "a map"));
    };
    let (offsets, start, length) = rebased(maps.offsets());
    let keys = conform(&maps.keys().slice(start, length), key.data_type())?;
    let values = conform(&maps.values().slice(start, length), value.data_type())?;
    let fields = Fields::from_iter([key.clone(), value.clone()]);
    let both = StructArray::try_new(fields, vec![keys, values], None).map_err(null_within)?;
    let nulls = maps.nulls().cloned();
    Ok(Arc::new(MapArray::try_new(entries.clone(), offsets, both, nulls, ordered)?))
}

/// All that can be wrong with arrays whose types and lengths are right.
fn null_within(_: ArrowError) -> ArrowError {
    ArrowError::InvalidArgumentError("NULL within, where the type has NOT NULL".into())
}

fn unlike(found: &DataType, expected: &str) -> ArrowError {
    ArrowError::SchemaError(format!("expected {expected}, found {found}"))
}

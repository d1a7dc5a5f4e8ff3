//! Maps: `MAP[key, value, …]`, and the value of a key.
//!
//! A key is never NULL. Of entries with the same key, the last counts: `MAP[…]` keeps that one
//! alone, and a look-up finds it where a map that was read has several.

use std::ops::Range;

use arrow::array::{MapArray, StructArray, UInt32Array, UInt64Array, new_null_array};
use arrow::compute::{interleave, take};
use arrow::row::{Row, RowConverter, SortField};
use arrow::{buffer::OffsetBuffer, compute::kernels::cmp::eq};
use millstream_contract::floats::one_form;

use super::doubles::common_type;
use super::nested::{TypeResult, plain};
use crate::syntax::prelude::*;
use crate::syntax::type_grammar::map_type;

const HELP: &str = "write for example MAP['a', 1, 'b', 2]";

/// Key and value of a map's entries.
pub(super) fn key_and_value(entries: &Field) -> Option<(&FieldRef, &FieldRef)> {
    match entries.data_type() {
        DataType::Struct(fields) => match &fields[..] {
            [key, value] => Some((key, value)),
            _ => None,
        },
        _ => None,
    }
}

/// The types that keys and values, which take turns, are brought to.
pub(super) fn entry_types(types: &[DataType]) -> Vec<DataType> {
    let every_second = |first| types.iter().skip(first).step_by(2).cloned().collect::<Vec<_>>();
    let common = |first| common_type(&every_second(first)).map(plain);
    match (common(0), common(1)) {
        (Some(key), Some(value)) => {
            (0..types.len()).map(|at| [&key, &value][at % 2].clone()).collect()
        }
        _ => types.to_vec(),
    }
}

/// The type of `MAP[…]` of these.
pub(super) fn map_of(fields: &[FieldRef]) -> TypeResult {
    let (Some(key), Some(value)) = (fields.first(), fields.get(1)) else {
        let found = if fields.is_empty() { "MAP[]" } else { "a MAP of one value" };
        return Err(
            SqlError::types(format!("{found}: a MAP is made of keys and values")).help(HELP)
        );
    };
    if fields.len() % 2 == 1 {
        let message = format!("a MAP of {} values: the last key has no value", fields.len());
        return Err(SqlError::types(message).help(HELP));
    }
    for (first, what) in [(key, "keys"), (value, "values")] {
        let start = usize::from(what == "values");
        let mut others = fields.iter().skip(start).step_by(2);
        if let Some(other) = others.find(|f| f.data_type() != first.data_type()) {
            let (a, b) = (sql_type_name(first.data_type()), sql_type_name(other.data_type()));
            let message = format!("{a} and {b} cannot be {what} of one MAP");
            return Err(SqlError::types(message).help("cast them to one type"));
        }
    }
    if is_nested(key.data_type()) || *key.data_type() == DataType::Null {
        let message = format!("the keys of a MAP cannot be {}", sql_type_name(key.data_type()));
        return Err(SqlError::types(message).help(HELP));
    }
    Ok((map_type(key.data_type().clone(), value.data_type().clone(), true), false))
}

/// Maps of keys and values, which take turns.
pub(super) fn map(parts: &[ArrayRef], data_type: &DataType, rows: usize) -> DfResult<ArrayRef> {
    let DataType::Map(entries, _) = data_type else {
        return internal_err!("a map of type {data_type}");
    };
    let Some((key, _)) = key_and_value(entries) else {
        return internal_err!("a map without keys");
    };
    let every_second =
        |first| parts.iter().skip(first).step_by(2).cloned().collect::<Vec<ArrayRef>>();
    let (keys, values) = (every_second(0), every_second(1));
    if keys.iter().any(|keys| keys.logical_null_count() > 0) {
        return exec_err!("a key of a MAP is NULL");
    }
    let converter = RowConverter::new(vec![SortField::new(key.data_type().clone())])?;
    let comparable = |keys: &ArrayRef| converter.convert_columns(&[one_form(keys)]);
    let comparable = keys.iter().map(comparable).collect::<Result<Vec<_>, _>>()?;
    // Where each entry's key comes from, and where its value.
    let (mut keys_of, mut values_of) = (Vec::new(), Vec::new());
    let mut lengths = Vec::with_capacity(rows);
    let mut known: HashMap<Row<'_>, usize> = HashMap::new();
    for row in 0..rows {
        known.clear();
        let start = keys_of.len();
        for (at, keys) in comparable.iter().enumerate() {
            match known.get(&keys.row(row)) {
                Some(entry) => values_of[*entry] = (at, row),
                None => {
                    known.insert(keys.row(row), keys_of.len());
                    keys_of.push((at, row));
                    values_of.push((at, row));
                }
            }
        }
        lengths.push(keys_of.len() - start);
    }
    let gathered = |arrays: &[ArrayRef], of: &[(usize, usize)]| {
        let arrays: Vec<&dyn Array> = arrays.iter().map(AsRef::as_ref).collect();
        interleave(&arrays, of)
    };
    let columns = vec![gathered(&keys, &keys_of)?, gathered(&values, &values_of)?];
    let DataType::Struct(fields) = entries.data_type() else {
        return internal_err!("a map without entries");
    };
    let of_entries = StructArray::try_new(fields.clone(), columns, None)?;
    let offsets = OffsetBuffer::from_lengths(lengths);
    Ok(Arc::new(MapArray::try_new(entries.clone(), offsets, of_entries, None, false)?))
}

/// The values of keys; of several entries with the same key, the last counts.
pub(super) fn value_of_key(map: &MapArray, key: &ArrayRef) -> DfResult<ArrayRef> {
    let rows = map.len();
    let offsets = map.value_offsets();
    let entries = |row: usize| -> Range<usize> {
        if map.is_null(row) { 0..0 } else { offsets[row] as usize..offsets[row + 1] as usize }
    };
    let (first, last) = (offsets[0] as usize, offsets[rows] as usize);
    if *key.data_type() == DataType::Null || first == last {
        return Ok(new_null_array(map.values().data_type(), rows));
    }
    // The key that each entry's own is compared with.
    let mut wanted = vec![0u32; last - first];
    for row in 0..rows {
        let entries = entries(row);
        wanted[entries.start.max(first) - first..entries.end.max(first) - first].fill(row as u32);
    }
    let wanted = take(key, &UInt32Array::from(wanted), None)?;
    let keys = map.keys().slice(first, last - first);
    let same = eq(&one_form(&keys), &one_form(&wanted))?;
    let found = |row: usize| {
        let is_it = |at: &usize| same.is_valid(*at - first) && same.value(*at - first);
        entries(row).rev().find(is_it).map(|at| at as u64)
    };
    let places: UInt64Array = (0..rows).map(found).collect();
    Ok(take(map.values(), &places, None)?)
}

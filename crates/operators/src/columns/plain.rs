//! Columns of files with state: which types Parquet has, and forms of values of other types.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StringArray};
use arrow::datatypes::DataType;
use arrow::util::display::{ArrayFormatter, FormatOptions};

use super::payload::decode;
use super::stored::encoded;
use crate::error::Result;

/// Whether files have values of this type.
pub(crate) fn is_plain(data_type: &DataType) -> bool {
    use DataType::*;
    match data_type {
        Null | Interval(_) | Union(..) | RunEndEncoded(..) | Dictionary(..) => false,
        Utf8View | BinaryView | ListView(_) | LargeListView(_) => false,
        List(field) | LargeList(field) | FixedSizeList(field, _) | Map(field, _) => {
            is_plain(field.data_type())
        }
        Struct(fields) => !fields.is_empty() && fields.iter().all(|f| is_plain(f.data_type())),
        _ => true,
    }
}

/// The type of a column that shows values of this type to people.
pub(crate) fn shown_type(data_type: &DataType) -> DataType {
    if is_plain(data_type) { data_type.clone() } else { DataType::Utf8 }
}

/// A column for people. Files lack some types: their values become texts.
pub(crate) fn shown(column: ArrayRef) -> Result<ArrayRef> {
    if is_plain(column.data_type()) {
        return Ok(column);
    }
    let options = FormatOptions::default();
    let texts = ArrayFormatter::try_new(&column, &options)?;
    let nulls = column.logical_nulls();
    let text = |row: usize| {
        let is_null = nulls.as_ref().is_some_and(|nulls| nulls.is_null(row));
        (!is_null).then(|| texts.value(row).to_string())
    };
    Ok(Arc::new((0..column.len()).map(text).collect::<StringArray>()))
}

/// The type of a column that keeps all of such values.
pub(crate) fn kept_type(data_type: &DataType) -> DataType {
    if is_plain(data_type) { data_type.clone() } else { DataType::Binary }
}

/// A column that keeps all: values of types that files lack as bytes, NULL too.
pub(crate) fn kept(column: ArrayRef) -> Result<ArrayRef> {
    if is_plain(column.data_type()) {
        return Ok(column);
    }
    Ok(Arc::new(encoded(&column)?))
}

/// Back to values of this type. The bytes may be damaged.
pub(crate) fn unkept(column: &ArrayRef, data_type: &DataType) -> Result<ArrayRef> {
    match column.as_binary_opt::<i32>() {
        Some(bytes) if !is_plain(data_type) => {
            let mut rows: Vec<&[u8]> = (0..bytes.len()).map(|row| bytes.value(row)).collect();
            decode(data_type, &mut rows)
        }
        _ => Ok(column.clone()),
    }
}

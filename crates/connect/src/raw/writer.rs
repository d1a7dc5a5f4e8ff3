//! Values as messages: the other side of [`super::message`].

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{
    DataType, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
};
use millstream_contract::{Error, Result};

/// A message for each value; `None`: NULL.
pub(crate) fn write_raw(column: &ArrayRef, little_endian: bool) -> Result<Vec<Option<Vec<u8>>>> {
    use DataType as D;
    let ordered = |mut bytes: Vec<u8>| {
        if little_endian {
            bytes.reverse();
        }
        bytes
    };
    macro_rules! numbers {
        ($type:ty) => {{
            let values = column.as_primitive::<$type>().iter();
            values.map(|value| value.map(|value| ordered(value.to_be_bytes().to_vec()))).collect()
        }};
    }
    Ok(match column.data_type() {
        D::Utf8 => column.as_string::<i32>().iter().map(|text| text.map(bytes_of)).collect(),
        D::Binary => column.as_binary::<i32>().iter().map(|b| b.map(<[u8]>::to_vec)).collect(),
        D::Boolean => column.as_boolean().iter().map(|b| b.map(|b| vec![u8::from(b)])).collect(),
        D::Int8 => numbers!(Int8Type),
        D::Int16 => numbers!(Int16Type),
        D::Int32 => numbers!(Int32Type),
        D::Int64 => numbers!(Int64Type),
        D::Float32 => numbers!(Float32Type),
        D::Float64 => numbers!(Float64Type),
        other => return Err(Error::Internal(format!("raw column of type {other}"))),
    })
}

fn bytes_of(text: &str) -> Vec<u8> {
    text.as_bytes().to_vec()
}

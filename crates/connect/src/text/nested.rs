//! Nested values as JSON: a ROW and a MAP are objects, an ARRAY is an array.
//!
//! A MAP's keys are strings, whatever their type, since JSON has only string keys. A repeated entry
//! is written repeatedly. The NDJSON source can read this form.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::DataType;
use arrow::util::display::FormatOptions;
use millstream_contract::Result;

use super::json::{key, write_text, write_value};
use super::value::{Cells, Class};

/// A column of such values.
pub(super) enum Nested<'a> {
    /// The fields, each with its key in front.
    Row(Vec<(Vec<u8>, Cells<'a>)>),
    Array(Ranges<'a>, Box<Cells<'a>>),
    Map(Ranges<'a>, Box<(Cells<'a>, Cells<'a>)>),
}

/// Where the elements of each row stand.
pub(super) enum Ranges<'a> {
    Short(&'a [i32]),
    Long(&'a [i64]),
    Fixed(usize),
}

impl Ranges<'_> {
    fn of(&self, row: usize) -> std::ops::Range<usize> {
        match self {
            Ranges::Short(offsets) => offsets[row] as usize..offsets[row + 1] as usize,
            Ranges::Long(offsets) => offsets[row] as usize..offsets[row + 1] as usize,
            Ranges::Fixed(length) => row * length..(row + 1) * length,
        }
    }
}

impl<'a> Nested<'a> {
    /// `None`: the values are of another type.
    pub(super) fn new(
        array: &'a ArrayRef,
        options: &'a FormatOptions<'a>,
    ) -> Result<Option<Nested<'a>>> {
        let elements = |values| Cells::new(values, options).map(Box::new);
        Ok(Some(match array.data_type() {
            DataType::Struct(fields) => {
                let columns = fields.iter().zip(array.as_struct().columns());
                let field = |(field, column): (&_, _)| {
                    let field: &arrow::datatypes::FieldRef = field;
                    Ok((key(field.name()), Cells::new(column, options)?))
                };
                Nested::Row(columns.map(field).collect::<Result<_>>()?)
            }
            DataType::List(_) => {
                let list = array.as_list::<i32>();
                Nested::Array(Ranges::Short(list.value_offsets()), elements(list.values())?)
            }
            DataType::LargeList(_) => {
                let list = array.as_list::<i64>();
                Nested::Array(Ranges::Long(list.value_offsets()), elements(list.values())?)
            }
            DataType::FixedSizeList(_, length) => {
                let list = array.as_fixed_size_list();
                Nested::Array(Ranges::Fixed(*length as usize), elements(list.values())?)
            }
            DataType::Map(..) => {
                let map = array.as_map();
                let entries =
                    (Cells::new(map.keys(), options)?, Cells::new(map.values(), options)?);
                Nested::Map(Ranges::Short(map.value_offsets()), Box::new(entries))
            }
            _ => return Ok(None),
        }))
    }

    /// Appends a value that is not NULL.
    pub(super) fn write(&self, row: usize, out: &mut Vec<u8>) {
        let mut text = Vec::new();
        match self {
            Nested::Row(fields) => {
                out.push(b'{');
                for (at, (key, column)) in fields.iter().enumerate() {
                    separate(at, out);
                    out.extend_from_slice(key);
                    write_value(column, row, &mut text, out);
                }
                out.push(b'}');
            }
            Nested::Array(ranges, elements) => {
                out.push(b'[');
                for (at, element) in ranges.of(row).enumerate() {
                    separate(at, out);
                    write_value(elements, element, &mut text, out);
                }
                out.push(b']');
            }
            Nested::Map(ranges, entries) => {
                let (keys, values) = &**entries;
                out.push(b'{');
                for (at, entry) in ranges.of(row).enumerate() {
                    separate(at, out);
                    write_key(keys, entry, &mut text, out);
                    write_value(values, entry, &mut text, out);
                }
                out.push(b'}');
            }
        }
    }
}

fn separate(at: usize, out: &mut Vec<u8>) {
    if at > 0 {
        out.push(b',');
    }
}

/// A map's key, which is never NULL, as a string.
fn write_key(keys: &Cells<'_>, entry: usize, text: &mut Vec<u8>, out: &mut Vec<u8>) {
    match keys.class {
        Class::Text => write_text(keys, entry, text, out),
        _ => {
            out.push(b'"');
            keys.write(entry, out);
            out.push(b'"');
        }
    }
    out.push(b':');
}

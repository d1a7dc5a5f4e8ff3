//! Values of any type as bytes, and back: what elements of lists carry.
//!
//! A value begins with a byte: 0 for NULL. Then follow numbers, times and booleans as they stand in
//! memory; strings as their length (four bytes) and their bytes; an array or a map as the number of
//! its elements (four bytes), and each element after its length in bytes; a row as its fields, also
//! where the row is NULL. Bytes from another process are checked when they are read.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayData, ArrayRef, AsArray, BinaryArray, BooleanArray, ListArray, MapArray, NullArray,
    NullBufferBuilder, StringArray, StructArray, make_array, new_null_array,
};
use arrow::buffer::{Buffer, MutableBuffer, NullBuffer, OffsetBuffer};
use arrow::datatypes::DataType;

use crate::columns::keys::VarColumn;
use crate::error::{Error, Result};

/// Room for texts before their lengths are known.
const ROOM_BYTES_MAX: usize = 1 << 20;

/// Bytes of a length or a number of elements.
const LENGTH_BYTES: usize = 4;

/// Consecutive byte strings.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Packed<'a> {
    /// Where each starts; and where the last one ends.
    pub(crate) offsets: &'a [usize],
    pub(crate) bytes: &'a [u8],
}

impl<'a> Packed<'a> {
    #[inline]
    pub(crate) fn bytes(&self, row: usize) -> &'a [u8] {
        &self.bytes[self.offsets[row]..self.offsets[row + 1]]
    }
}

/// A column's values, ready to be written one by one.
pub(super) struct Encoder<'a> {
    nulls: Option<NullBuffer>,
    values: Encoded<'a>,
}

enum Encoded<'a> {
    Null,
    Boolean(&'a BooleanArray),
    /// Of a width that most have: a copy of a width that is known needs no call.
    Eight(Buffer),
    Four(Buffer),
    Fixed {
        bytes: Buffer,
        width: usize,
    },
    Text(VarColumn<'a>),
    List {
        offsets: &'a [i32],
        elements: Box<Encoder<'a>>,
    },
    Row(Vec<Encoder<'a>>),
}

fn other(data_type: &DataType) -> Error {
    Error::Internal(format!("a list of values of type {data_type}"))
}

fn damaged() -> Error {
    Error::Internal("a damaged element of a list".into())
}

impl<'a> Encoder<'a> {
    pub(super) fn new(column: &'a ArrayRef) -> Result<Encoder<'a>> {
        let fields = |row: &'a StructArray| -> Result<Vec<Encoder<'a>>> {
            row.columns().iter().map(Encoder::new).collect()
        };
        let values = match column.data_type() {
            DataType::Null => Encoded::Null,
            DataType::Boolean => Encoded::Boolean(column.as_boolean()),
            DataType::Utf8 | DataType::Binary => {
                Encoded::Text(VarColumn::new(column).ok_or_else(|| other(column.data_type()))?)
            }
            DataType::List(_) => {
                let list = column.as_list::<i32>();
                let elements = Box::new(Encoder::new(list.values())?);
                Encoded::List { offsets: list.value_offsets(), elements }
            }
            DataType::Map(..) => {
                let map = column.as_map();
                let entries = Encoder { nulls: None, values: Encoded::Row(fields(map.entries())?) };
                Encoded::List { offsets: map.value_offsets(), elements: Box::new(entries) }
            }
            DataType::Struct(_) => Encoded::Row(fields(column.as_struct())?),
            data_type => {
                let width = data_type.primitive_width().ok_or_else(|| other(data_type))?;
                let data = column.to_data();
                let bytes = data.buffers()[0].slice(data.offset() * width);
                match width {
                    8 => Encoded::Eight(bytes),
                    4 => Encoded::Four(bytes),
                    _ => Encoded::Fixed { bytes, width },
                }
            }
        };
        Ok(Encoder { nulls: column.nulls().cloned(), values })
    }

    /// Writes the value of a row.
    #[inline]
    pub(super) fn put(&self, row: usize, out: &mut Vec<u8>) {
        // The most frequent ones, without a call.
        let valid = self.nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
        match &self.values {
            Encoded::Eight(bytes) if valid => put_fixed::<8>(bytes, row, out),
            Encoded::Four(bytes) if valid => put_fixed::<4>(bytes, row, out),
            Encoded::Text(column) if valid => put_text(column.value_of(row), out),
            _ => self.put_any(row, out),
        }
    }

    fn put_any(&self, row: usize, out: &mut Vec<u8>) {
        let valid = self.nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
        match &self.values {
            Encoded::Row(fields) => {
                out.push(u8::from(valid));
                fields.iter().for_each(|field| match valid {
                    true => field.put(row, out),
                    false => field.put_null(out),
                });
            }
            Encoded::Null => out.push(0),
            _ if !valid => out.push(0),
            Encoded::Boolean(values) => out.extend_from_slice(&[1, u8::from(values.value(row))]),
            Encoded::Eight(bytes) => put_fixed::<8>(bytes, row, out),
            Encoded::Four(bytes) => put_fixed::<4>(bytes, row, out),
            Encoded::Fixed { bytes, width } => {
                out.push(1);
                out.extend_from_slice(&bytes[row * width..][..*width]);
            }
            Encoded::Text(column) => put_text(column.bytes(row), out),
            Encoded::List { offsets, elements } => {
                out.push(1);
                let elements_of = offsets[row] as usize..offsets[row + 1] as usize;
                out.extend_from_slice(&(elements_of.len() as u32).to_le_bytes());
                for element in elements_of {
                    let start = out.len();
                    out.extend_from_slice(&[0; LENGTH_BYTES]);
                    elements.put(element, out);
                    let length = (out.len() - start - LENGTH_BYTES) as u32;
                    out[start..start + LENGTH_BYTES].copy_from_slice(&length.to_le_bytes());
                }
            }
        }
    }

    fn put_null(&self, out: &mut Vec<u8>) {
        out.push(0);
        if let Encoded::Row(fields) = &self.values {
            fields.iter().for_each(|field| field.put_null(out));
        }
    }
}

/// Writes the value at a row of those that take `N` bytes each.
#[inline]
fn put_fixed<const N: usize>(values: &[u8], row: usize, out: &mut Vec<u8>) {
    let value = &values.as_chunks::<N>().0[row];
    out.push(1);
    out.extend_from_slice(value);
}

#[inline]
fn put_text(text: &[u8], out: &mut Vec<u8>) {
    out.push(1);
    out.extend_from_slice(&(text.len() as u32).to_le_bytes());
    out.extend_from_slice(text);
}

/// NULL of a type.
pub(super) fn null_of(data_type: &DataType) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    Encoder::new(&new_null_array(data_type, 1))?.put(0, &mut bytes);
    Ok(bytes)
}

fn take<'a>(from: &mut &'a [u8], count: usize) -> Result<&'a [u8]> {
    let (taken, rest) = from.split_at_checked(count).ok_or_else(damaged)?;
    *from = rest;
    Ok(taken)
}

fn take_length(from: &mut &[u8]) -> Result<usize> {
    let length = take(from, LENGTH_BYTES)?.first_chunk().ok_or_else(damaged)?;
    Ok(u32::from_le_bytes(*length) as usize)
}

/// Reads a value of each of some rows, and leaves them at what follows it.
pub(super) fn decode(data_type: &DataType, rows: &mut [&[u8]]) -> Result<ArrayRef> {
    match (data_type, data_type.primitive_width()) {
        (DataType::Utf8 | DataType::Binary, _) => return decode_texts(data_type, rows),
        (_, Some(8)) => return decode_words::<8>(data_type, rows),
        (_, Some(4)) => return decode_words::<4>(data_type, rows),
        _ => {}
    }
    let count = rows.len();
    let mut valid = Vec::with_capacity(count);
    for row in rows.iter_mut() {
        valid.push(take(row, 1)? == [1]);
    }
    let nulls = valid.contains(&false).then(|| NullBuffer::from(valid.clone()));
    let present = rows.iter_mut().zip(&valid);
    Ok(match data_type {
        DataType::Null => Arc::new(NullArray::new(count)),
        DataType::Boolean => {
            let value = |(row, valid): (&mut &[u8], &bool)| match valid {
                true => Ok(Some(take(row, 1)? == [1])),
                false => Ok(None),
            };
            Arc::new(present.map(value).collect::<Result<BooleanArray>>()?)
        }
        DataType::List(field) => {
            let (offsets, mut elements) = take_elements(present)?;
            let values = decode(field.data_type(), &mut elements)?;
            Arc::new(ListArray::try_new(field.clone(), offsets, values, nulls)?)
        }
        DataType::Map(field, sorted) => {
            let (offsets, mut elements) = take_elements(present)?;
            let entries = decode(field.data_type(), &mut elements)?;
            let entries = entries.as_struct().clone();
            Arc::new(MapArray::try_new(field.clone(), offsets, entries, nulls, *sorted)?)
        }
        DataType::Struct(fields) => {
            let columns = fields.iter().map(|field| decode(field.data_type(), rows));
            let columns = columns.collect::<Result<Vec<_>>>()?;
            Arc::new(StructArray::try_new_with_length(fields.clone(), columns, nulls, count)?)
        }
        data_type => {
            let width = data_type.primitive_width().ok_or_else(|| other(data_type))?;
            let mut bytes = MutableBuffer::with_capacity(width * count);
            for (row, valid) in present {
                match valid {
                    true => bytes.extend_from_slice(take(row, width)?),
                    false => bytes.extend_zeros(width),
                }
            }
            let data = ArrayData::builder(data_type.clone()).len(valid.len()).nulls(nulls);
            make_array(data.add_buffer(bytes.into()).build()?)
        }
    })
}

/// Reads values of a type of so many bytes.
fn decode_words<const WIDTH: usize>(data_type: &DataType, rows: &mut [&[u8]]) -> Result<ArrayRef> {
    let mut nulls = Nulls::new(rows.len());
    let mut bytes = MutableBuffer::from_len_zeroed(WIDTH * rows.len());
    let (places, _) = bytes.as_slice_mut().as_chunks_mut::<WIDTH>();
    for (row, place) in rows.iter_mut().zip(places) {
        let (valid, rest) = row.split_first().ok_or_else(damaged)?;
        *row = rest;
        nulls.append(*valid == 1);
        if *valid == 1 {
            let (value, rest) = row.split_first_chunk::<WIDTH>().ok_or_else(damaged)?;
            (*place, *row) = (*value, rest);
        }
    }
    let data = ArrayData::builder(data_type.clone()).len(rows.len()).nulls(nulls.finish());
    Ok(make_array(data.add_buffer(bytes.into()).build()?))
}

/// Validity of rows. Most rows are valid: consecutive valid rows are only counted.
struct Nulls {
    made: NullBufferBuilder,
    valid: usize,
}

impl Nulls {
    fn new(rows: usize) -> Nulls {
        Nulls { made: NullBufferBuilder::new(rows), valid: 0 }
    }

    #[inline]
    fn append(&mut self, valid: bool) {
        if valid {
            self.valid += 1;
            return;
        }
        self.made.append_n_non_nulls(std::mem::take(&mut self.valid));
        self.made.append_null();
    }

    fn finish(mut self) -> Option<NullBuffer> {
        self.made.append_n_non_nulls(self.valid);
        self.made.finish()
    }
}

fn decode_texts(data_type: &DataType, rows: &mut [&[u8]]) -> Result<ArrayRef> {
    let (mut bytes, mut ends) = (Vec::new(), Vec::with_capacity(rows.len() + 1));
    let (count, mut nulls) = (rows.len(), Nulls::new(rows.len()));
    ends.push(0);
    for (at, row) in rows.iter_mut().enumerate() {
        let valid = take(row, 1)? == [1];
        nulls.append(valid);
        if valid {
            let length = take_length(row)?;
            bytes.extend_from_slice(take(row, length)?);
        }
        if at == 0 {
            // Others are about as long, unless this one is very long.
            bytes.reserve((count * bytes.len()).min(ROOM_BYTES_MAX));
        }
        ends.push(offset(bytes.len())?);
    }
    text_column(data_type, bytes, ends, nulls)
}

/// The elements of lists, one list after the other.
fn take_elements<'a: 'r, 'r>(
    lists: impl Iterator<Item = (&'r mut &'a [u8], &'r bool)>,
) -> Result<(OffsetBuffer<i32>, Vec<&'a [u8]>)> {
    let (mut elements, mut offsets) = (Vec::new(), vec![0]);
    for (list, valid) in lists {
        let count = if *valid { take_length(list)? } else { 0 };
        for _ in 0..count {
            let length = take_length(list)?;
            elements.push(take(list, length)?);
        }
        offsets.push(offset(elements.len())?);
    }
    Ok((OffsetBuffer::new(offsets.into()), elements))
}

/// So many elements or bytes as Arrow counts them.
pub(super) fn offset(count: usize) -> Result<i32> {
    i32::try_from(count).map_err(|_| Error::TooMuchText {
        expression: "a list".into(),
        message: "the groups of a window that are given together have more than 2 GiB".into(),
        frame: String::new(),
        help: "collect less, for example with FILTER (WHERE …), or use smaller windows".into(),
    })
}

/// A column of texts, or of bytes.
pub(super) fn text_array(data_type: &DataType, texts: &[Option<&[u8]>]) -> Result<ArrayRef> {
    let total = texts.iter().flatten().map(|text| text.len()).sum();
    offset(total)?;
    let (mut bytes, mut ends) = (Vec::with_capacity(total), Vec::with_capacity(texts.len() + 1));
    let mut nulls = Nulls::new(texts.len());
    ends.push(0);
    for text in texts {
        nulls.append(text.is_some());
        bytes.extend_from_slice(text.unwrap_or_default());
        // It fits: all of them do.
        ends.push(bytes.len() as i32);
    }
    text_column(data_type, bytes, ends, nulls)
}

fn text_column(
    data_type: &DataType,
    bytes: Vec<u8>,
    ends: Vec<i32>,
    nulls: Nulls,
) -> Result<ArrayRef> {
    let (ends, nulls) = (OffsetBuffer::new(ends.into()), nulls.finish());
    if *data_type == DataType::Binary {
        return Ok(Arc::new(BinaryArray::try_new(ends, bytes.into(), nulls)?));
    }
    // Looks at all bytes at once.
    let texts = StringArray::try_new(ends, bytes.into(), nulls).map_err(|_| damaged())?;
    Ok(Arc::new(texts))
}

#[cfg(test)]
mod tests {
    use arrow::array::{Decimal128Array, Float64Array, Int32Array, TimestampMillisecondArray};
    use arrow::array::{Int64Builder, ListBuilder, MapBuilder, StringBuilder};
    use arrow::datatypes::Field;

    use super::*;

    fn columns() -> Vec<ArrayRef> {
        let mut lists = ListBuilder::new(StringBuilder::new());
        lists.append_value([Some("a"), None, Some("")]);
        lists.append_null();
        lists.append_value(Vec::<Option<&str>>::new());
        let mut maps = MapBuilder::new(None, StringBuilder::new(), Int64Builder::new());
        maps.keys().append_value("k");
        maps.values().append_null();
        maps.append(true).unwrap();
        maps.append(true).unwrap();
        maps.append(false).unwrap();
        let lists = Arc::new(lists.finish()) as ArrayRef;
        let number = Arc::new(Int32Array::from(vec![Some(7), None, Some(-1)])) as ArrayRef;
        let fields = vec![
            Arc::new(Field::new("list", lists.data_type().clone(), true)),
            Arc::new(Field::new("number", DataType::Int32, true)),
        ];
        let nulls = Some(NullBuffer::from(vec![true, true, false]));
        let rows = StructArray::new(fields.into(), vec![lists.clone(), number.clone()], nulls);
        let decimals = Decimal128Array::from(vec![Some(1), None, Some(i128::MIN / 7)]);
        vec![
            Arc::new(rows),
            lists,
            Arc::new(maps.finish()),
            number,
            Arc::new(decimals.with_precision_and_scale(38, 2).unwrap()),
            Arc::new(BooleanArray::from(vec![Some(true), None, Some(false)])),
            Arc::new(StringArray::from(vec![Some("Größe"), None, Some("")])),
            Arc::new(BinaryArray::from(vec![Some(&[0xff_u8, 0][..]), None, Some(&[])])),
            Arc::new(Float64Array::from(vec![1.5, f64::NAN, -0.0])),
            Arc::new(TimestampMillisecondArray::from(vec![1, 2, 3]).with_timezone("UTC")),
            Arc::new(NullArray::new(3)),
        ]
    }

    /// Values come back as they were, also out of slices, whatever stands before and behind them.
    #[test]
    fn values_come_back() {
        for column in columns() {
            for slice in [column.clone(), column.slice(1, 2), column.slice(2, 1)] {
                let encoder = Encoder::new(&slice).unwrap();
                let encode = |row| {
                    let mut bytes = Vec::new();
                    encoder.put(row, &mut bytes);
                    bytes.extend_from_slice(b"rest");
                    bytes
                };
                let rows: Vec<Vec<u8>> = (0..slice.len()).map(encode).collect();
                let mut rows: Vec<&[u8]> = rows.iter().map(Vec::as_slice).collect();
                let back = decode(slice.data_type(), &mut rows).unwrap();
                // What stands beneath a NULL does not count.
                assert_eq!(back.as_ref(), slice.as_ref());
                assert!(rows.iter().all(|rest| rest == b"rest"));
            }
            let null = null_of(column.data_type()).unwrap();
            let back = decode(column.data_type(), &mut [&null]).unwrap();
            assert_eq!(back.logical_null_count(), 1, "{}", column.data_type());
        }
    }

    /// Damaged bytes give an error, or values.
    #[test]
    fn damaged_bytes_do_no_harm() {
        let (mut state, mut refused) = (7_u64, 0);
        let mut below = |bound: usize| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as usize % bound
        };
        for round in 0..20_000 {
            let all = columns();
            let column = &all[round % all.len()];
            let encoder = Encoder::new(column).unwrap();
            let mut bytes = Vec::new();
            encoder.put(below(3), &mut bytes);
            for _ in 0..1 + below(3) {
                match below(3) {
                    0 => bytes.truncate(below(bytes.len() + 1)),
                    _ if bytes.is_empty() => {}
                    _ => {
                        let at = below(bytes.len());
                        bytes[at] = below(256) as u8;
                    }
                }
            }
            refused += usize::from(decode(column.data_type(), &mut [&bytes]).is_err());
        }
        assert!(refused > 2_000, "{refused}");
    }
}

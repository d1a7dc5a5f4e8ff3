//! Columns that state keeps unchanged: forms of their values, and columns made from kept values.
//!
//! Values come back bit for bit: NaN, -0.0 and other values of several forms. (Keys do not:
//! [`keys`](super::keys).)

use std::sync::Arc;

use arrow::array::{
    Array, ArrayData, ArrayRef, AsArray, BinaryArray, BooleanArray, Decimal128Array,
    GenericBinaryArray, GenericStringArray, NullBufferBuilder, OffsetSizeTrait, make_array,
};
use arrow::buffer::{Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{DataType, Decimal128Type};
use millstream_state::{VarKeys, read_i128};

use super::inputs::{Feed, Input, Values, View};
use super::keys::{VarColumn, primitive_from_words};
use super::payload::{Encoder, decode};
use crate::error::{Error, Result};

/// How a value is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Stored {
    /// As a word: up to 64 bits.
    Word,
    /// As two words.
    Wide,
    /// As its bytes.
    Text,
    /// As bytes that say everything, NULL too ([`Encoder`]).
    Encoded,
}

impl Stored {
    /// Values of a type.
    pub(crate) fn of(data_type: &DataType) -> Stored {
        use DataType::*;
        match data_type {
            Utf8 | LargeUtf8 | Binary | LargeBinary => Stored::Text,
            Boolean => Stored::Word,
            Decimal128(..) => Stored::Wide,
            Interval(_) | Float16 => Stored::Encoded,
            t if t.primitive_width().is_some_and(|width| width <= 8) => Stored::Word,
            _ => Stored::Encoded,
        }
    }

    /// True if a bit beside the value marks NULL.
    pub(crate) fn has_bit(self) -> bool {
        self != Stored::Encoded
    }
}

/// Input of a kept value from a column of a batch.
pub(crate) fn input(stored: Stored, column: &ArrayRef) -> Result<Input> {
    let nulls = column.logical_nulls().filter(|nulls| stored.has_bit() && nulls.null_count() > 0);
    let values = match stored {
        Stored::Word => Values::Signed(words(column)?),
        Stored::Wide => Values::Wide(column.as_primitive::<Decimal128Type>().values().clone()),
        Stored::Text => Values::Bytes(column.clone()),
        Stored::Encoded => Values::Bytes(Arc::new(encoded(column)?)),
    };
    Ok(Input::of(values, nulls.map(|nulls| nulls.inner().clone())))
}

/// The values of a column as bytes that say everything, NULL too.
pub(crate) fn encoded(column: &ArrayRef) -> Result<BinaryArray> {
    let encoder = Encoder::new(column)?;
    let mut bytes = Vec::new();
    let encode = |row| {
        bytes.clear();
        encoder.put(row, &mut bytes);
        Some(bytes.clone())
    };
    Ok((0..column.len()).map(encode).collect())
}

/// The words of a column of at most 64 bits.
fn words(column: &ArrayRef) -> Result<ScalarBuffer<i64>> {
    if let Some(values) = column.as_boolean_opt() {
        return Ok((0..values.len()).map(|row| i64::from(values.value(row))).collect());
    }
    let data = column.to_data();
    Ok(match column.data_type().primitive_width() {
        Some(8) => ScalarBuffer::new(data.buffers()[0].clone(), data.offset(), data.len()),
        Some(4) => data.buffer::<i32>(0)[..data.len()].iter().map(|v| (*v).into()).collect(),
        Some(2) => data.buffer::<i16>(0)[..data.len()].iter().map(|v| (*v).into()).collect(),
        Some(1) => data.buffer::<i8>(0)[..data.len()].iter().map(|v| (*v).into()).collect(),
        _ => return Err(Error::Internal(format!("a word of type {}", column.data_type()))),
    })
}

/// A column that is made of kept values.
#[derive(Debug)]
pub(crate) struct Gathered {
    data_type: DataType,
    stored: Stored,
    words: Vec<u64>,
    wide: Vec<i128>,
    bytes: Vec<u8>,
    /// Where each byte string starts, and where the last one ends.
    offsets: Vec<i64>,
    valid: NullBufferBuilder,
}

fn damaged(what: &str) -> Error {
    Error::Internal(format!("a damaged row: {what}"))
}

impl Gathered {
    /// Of this type, without a value.
    pub(crate) fn new(data_type: DataType) -> Gathered {
        let (words, wide, bytes) = Default::default();
        let (stored, valid) = (Stored::of(&data_type), NullBufferBuilder::new(0));
        Gathered { data_type, stored, words, wide, bytes, offsets: vec![0], valid }
    }

    /// Makes room for so many values.
    pub(crate) fn reserve(&mut self, rows: usize) {
        match self.stored {
            Stored::Word => self.words.reserve_exact(rows),
            Stored::Wide => self.wide.reserve_exact(rows),
            Stored::Text | Stored::Encoded => self.offsets.reserve_exact(rows),
        }
    }

    /// Appends values that have been received.
    pub(crate) fn append<F: Feed>(&mut self, feed: &F, rows: usize) -> Result<()> {
        match (self.stored, feed.view()) {
            (Stored::Word, View::Signed(values)) => {
                self.words.extend(values[..rows].iter().map(|value| *value as u64));
            }
            (Stored::Wide, View::Pairs(pairs)) => {
                self.wide.extend(pairs[..rows].iter().map(|[low, high]| read_i128(*low, *high)));
            }
            (Stored::Text | Stored::Encoded, View::Packed(packed)) => {
                let (first, last) = (packed.offsets[0], packed.offsets[rows]);
                let before = self.bytes.len();
                self.bytes.extend_from_slice(&packed.bytes[first..last]);
                let ends = packed.offsets[1..=rows].iter();
                self.offsets.extend(ends.map(|end| (before + end - first) as i64));
            }
            _ => return Err(damaged("a value of another form")),
        }
        match feed.takes_all() {
            true => self.valid.append_n_non_nulls(rows),
            false => (0..rows as u32).for_each(|row| self.valid.append(feed.takes(row))),
        }
        Ok(())
    }

    /// Appends some of the values that have been received.
    pub(crate) fn append_picked<F: Feed>(&mut self, feed: &F, picks: &[u32]) -> Result<()> {
        let rows = picks.iter().map(|row| *row as usize);
        match (self.stored, feed.view()) {
            (Stored::Word, View::Signed(values)) => {
                self.words.extend(rows.map(|row| values[row] as u64));
            }
            (Stored::Wide, View::Pairs(pairs)) => {
                self.wide.extend(rows.map(|row| read_i128(pairs[row][0], pairs[row][1])));
            }
            (Stored::Wide, View::Wide(values)) => self.wide.extend(rows.map(|row| values[row])),
            (Stored::Text | Stored::Encoded, View::Packed(packed)) => {
                for row in rows {
                    self.bytes.extend_from_slice(packed.bytes(row));
                    self.offsets.push(self.bytes.len() as i64);
                }
            }
            (Stored::Text | Stored::Encoded, View::Column(column)) => {
                let texts = VarColumn::new(column).ok_or_else(|| damaged("a text of no bytes"))?;
                for row in rows {
                    self.bytes.extend_from_slice(texts.bytes(row));
                    self.offsets.push(self.bytes.len() as i64);
                }
            }
            _ => return Err(damaged("a value of another form")),
        }
        match feed.takes_all() {
            true => self.valid.append_n_non_nulls(picks.len()),
            false => picks.iter().for_each(|row| self.valid.append(feed.takes(*row))),
        }
        Ok(())
    }

    /// Appends values that are keys: `word` is where they stand among a row's `width` words, `bit`
    /// the one that is set in the first word where they are NULL.
    pub(crate) fn append_keys(
        &mut self,
        keys: &[u64],
        width: usize,
        word: usize,
        bit: Option<u32>,
    ) {
        let rows = || keys.chunks_exact(width);
        match self.stored {
            Stored::Word if width == 1 => self.words.extend_from_slice(keys),
            Stored::Word => self.words.extend(rows().map(|row| row[word])),
            Stored::Wide => self.wide.extend(rows().map(|row| read_i128(row[word], row[word + 1]))),
            Stored::Text | Stored::Encoded => debug_assert!(false, "texts have bytes"),
        }
        self.append_key_nulls(keys, width, bit);
    }

    /// The same of texts, which are the `var`-th of what has variable length.
    pub(crate) fn append_texts(
        &mut self,
        keys: &[u64],
        width: usize,
        bit: Option<u32>,
        vars: &impl VarKeys,
        var: usize,
    ) {
        for row in 0..keys.len() / width {
            self.bytes.extend_from_slice(vars.bytes(row, var));
            self.offsets.push(self.bytes.len() as i64);
        }
        self.append_key_nulls(keys, width, bit);
    }

    fn append_key_nulls(&mut self, keys: &[u64], width: usize, bit: Option<u32>) {
        match bit {
            None => self.valid.append_n_non_nulls(keys.len() / width),
            Some(bit) => {
                keys.chunks_exact(width).for_each(|row| self.valid.append(row[0] >> bit & 1 == 0));
            }
        }
    }

    /// Bytes that it takes.
    pub(crate) fn size(&self) -> usize {
        8 * (self.words.capacity() + self.offsets.capacity())
            + 16 * self.wide.capacity()
            + self.bytes.capacity()
            + self.valid.allocated_size()
    }

    /// The column. A text that has more bytes than its type can say is of the large type.
    pub(crate) fn finish(mut self) -> Result<ArrayRef> {
        let nulls = self.valid.finish();
        Ok(match self.stored {
            Stored::Word if self.data_type == DataType::Boolean => {
                let values = self.words.iter().map(|word| *word != 0).collect();
                Arc::new(BooleanArray::new(values, nulls))
            }
            Stored::Word if self.data_type.primitive_width() == Some(8) => {
                let buffer = Buffer::from_vec(self.words);
                let data = ArrayData::builder(self.data_type).len(buffer.len() / 8).nulls(nulls);
                make_array(data.add_buffer(buffer).build()?)
            }
            Stored::Word => primitive_from_words(&self.data_type, self.words.into_iter(), nulls)?,
            Stored::Wide => {
                let array = Decimal128Array::new(self.wide.into(), nulls);
                Arc::new(array.with_data_type(self.data_type))
            }
            Stored::Encoded => {
                let bytes = |ends: &[i64]| &self.bytes[ends[0] as usize..ends[1] as usize];
                let mut rows: Vec<&[u8]> = self.offsets.windows(2).map(bytes).collect();
                decode(&self.data_type, &mut rows)?
            }
            Stored::Text => {
                use DataType::{Binary, LargeBinary, LargeUtf8, Utf8};
                let Gathered { data_type, offsets, bytes, .. } = self;
                match (data_type, i32::try_from(bytes.len())) {
                    (Utf8, Ok(_)) => strings(narrow(offsets), bytes, nulls)?,
                    (Utf8 | LargeUtf8, _) => strings(offsets, bytes, nulls)?,
                    (Binary, Ok(_)) => binaries(narrow(offsets), bytes, nulls)?,
                    (Binary | LargeBinary, _) => binaries(offsets, bytes, nulls)?,
                    (other, _) => return Err(Error::Internal(format!("a text of type {other}"))),
                }
            }
        })
    }
}

/// Offsets of at most as many bytes as 32 bits can say.
fn narrow(offsets: Vec<i64>) -> Vec<i32> {
    offsets.into_iter().map(|offset| offset as i32).collect()
}

fn strings<O: OffsetSizeTrait>(
    offsets: Vec<O>,
    bytes: Vec<u8>,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef> {
    let offsets = OffsetBuffer::new(offsets.into());
    let array = GenericStringArray::<O>::try_new(offsets, bytes.into(), nulls);
    Ok(Arc::new(array.map_err(|_| damaged("a text that is no text"))?))
}

fn binaries<O: OffsetSizeTrait>(
    offsets: Vec<O>,
    bytes: Vec<u8>,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef> {
    let offsets = OffsetBuffer::new(offsets.into());
    Ok(Arc::new(GenericBinaryArray::<O>::try_new(offsets, bytes.into(), nulls)?))
}

//! Group keys: from Arrow columns to a row's key words, and back.
//!
//! Layout: one word of NULL bits if any key can be NULL; then, per key, one word for any type of up
//! to 64 bits, two words for decimals, and two words for strings and binary values (a hash of the
//! content; length and location). NULL, NaN and -0.0 are normalised here, before hashing and
//! comparing.

mod texts;

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryBuilder, BooleanArray, Decimal128Array, Int64Array,
    LargeBinaryBuilder, LargeStringBuilder, NullArray, PrimitiveArray, StringBuilder,
};
use arrow::buffer::NullBuffer;
use arrow::datatypes::*;

use millstream_contract::floats::{one_double, one_float};
use millstream_state::{Prefix, RowsRef, hash_each_word, hash_words, read_i128};

use crate::error::{Error, Result};
use crate::plan::Key;

use self::texts::encode_texts;
pub(crate) use self::texts::{ColumnVars, VarColumn, text_bytes};

/// How many words a key of this type takes; `None` if it cannot be a key.
fn words_of(data_type: &DataType) -> Option<usize> {
    match data_type {
        DataType::Null => Some(0),
        DataType::Decimal128(..) | DataType::Utf8 | DataType::LargeUtf8 => Some(2),
        DataType::Binary | DataType::LargeBinary => Some(2),
        DataType::Boolean => Some(1),
        t if is_word(t) && t.primitive_width().is_some_and(|w| w <= 8) => Some(1),
        _ => None,
    }
}

/// Whether a type's values fit a word and have an order that SQL knows.
fn is_word(data_type: &DataType) -> bool {
    use DataType::*;
    data_type.is_integer()
        || matches!(data_type, Float32 | Float64 | Date32 | Date64 | Time32(_) | Time64(_))
        || matches!(data_type, Timestamp(..) | Duration(_))
}

/// Whether a type's values differ in length.
pub(crate) fn is_variable(data_type: &DataType) -> bool {
    use DataType::*;
    matches!(data_type, Utf8 | LargeUtf8 | Binary | LargeBinary)
}

/// Encodes and decodes the keys of one operator.
#[derive(Debug, Clone)]
pub struct KeyCodec {
    types: Vec<DataType>,
    /// First word of each key.
    word: Vec<usize>,
    null_word: bool,
    words: usize,
    prefix: Option<Prefix>,
}

impl KeyCodec {
    /// The codec of these keys.
    pub fn new(keys: &[Key]) -> Result<KeyCodec> {
        let null_word = keys.iter().any(|k| k.nullable);
        if keys.len() > 64 {
            return Err(Error::Internal(format!("{} GROUP BY keys; at most 64", keys.len())));
        }
        let mut next = usize::from(null_word);
        let mut word = Vec::new();
        for key in keys {
            word.push(next);
            next += words_of(&key.data_type).ok_or_else(|| Error::Evaluation {
                expression: key.name.clone(),
                message: format!("values of type {} cannot be grouped by", key.data_type),
                frame: String::new(),
                help: "cast it to a string or a number".into(),
            })?;
        }
        let types = keys.iter().map(|k| k.data_type.clone()).collect();
        Ok(KeyCodec { types, word, null_word, words: next, prefix: None })
    }

    /// The same keys, of which the first so many say who leads them.
    pub(crate) fn led_by(self, keys: usize) -> KeyCodec {
        let words = self.word.get(keys).copied().unwrap_or(self.words);
        let nulls = self.null_word.then_some((1u64 << keys.min(63)) - 1);
        KeyCodec { prefix: (keys < self.types.len()).then_some(Prefix { words, nulls }), ..self }
    }

    /// The part of a key that decides about its leader; `None`: the whole key.
    pub(crate) fn prefix(&self) -> Option<Prefix> {
        self.prefix
    }

    /// The word of a key, or its first.
    pub(crate) fn word_of(&self, key: usize) -> usize {
        self.word[key]
    }

    /// The number of a key among those of variable length; `None`: it is none.
    pub(crate) fn var_of(&self, key: usize) -> Option<usize> {
        let before = self.types[..key].iter().filter(|t| is_variable(t)).count();
        is_variable(&self.types[key]).then_some(before)
    }

    /// The bit of the first word that is set where a key is NULL.
    pub(crate) fn null_bit(&self, key: usize) -> Option<u32> {
        self.null_word.then_some(key as u32)
    }

    /// Words of a key.
    pub fn words(&self) -> usize {
        self.words
    }

    /// The words that refer to the arena.
    pub(crate) fn var_words(&self) -> Vec<usize> {
        let var = self.types.iter().zip(&self.word).filter(|(t, _)| is_variable(t));
        var.map(|(_, w)| w + 1).collect()
    }

    /// Encodes the keys of `rows` (ascending positions in the columns), with their hashes or
    /// without. What does not stand in the columns like that goes to `block`.
    pub(crate) fn encode<'a>(
        &self,
        columns: &'a [ArrayRef],
        rows: &[u32],
        hashed: bool,
        block: &'a mut KeyBlock,
    ) -> EncodedKeys<'a> {
        let KeyBlock { words, hashes } = block;
        let words = match self.words_in_place(columns, rows) {
            Some(words) => words,
            None => {
                words.resize(rows.len() * self.words, 0);
                self.encode_words(columns, rows, words);
                words
            }
        };
        if hashed {
            self.hash(words, rows.len(), hashes);
        } else {
            hashes.clear();
        }
        EncodedKeys { words, hashes }
    }

    /// The column whose values are the keys' words as they are, if there is just that.
    pub fn plain_words<'a>(&self, columns: &'a [ArrayRef]) -> Option<&'a [u64]> {
        match (&self.types[..], self.null_word) {
            ([DataType::Int64], false) => {
                let values = columns.first()?.as_primitive::<Int64Type>().values();
                Some(values.inner().typed_data())
            }
            _ => None,
        }
    }

    /// The encoded keys of `rows` (ascending positions in the columns), if they stand just so in
    /// the columns.
    pub fn words_in_place<'a>(&self, columns: &'a [ArrayRef], rows: &[u32]) -> Option<&'a [u64]> {
        self.plain_words(columns)?.get(range_of(rows)?)
    }

    /// Encodes the keys of `rows` (ascending positions in the columns) into as many times the words
    /// of a key.
    pub fn encode_words(&self, columns: &[ArrayRef], rows: &[u32], words: &mut [u64]) {
        let width = self.words;
        debug_assert_eq!(words.len(), rows.len() * width);
        if let ([DataType::Int64], false) = (&self.types[..], self.null_word) {
            // The hot case, spelled out.
            let values = columns[0].as_primitive::<Int64Type>().values();
            assert!(all_below(rows, values.len()));
            // SAFETY: all positions are those of values.
            let value = |row: u32| unsafe { *values.get_unchecked(row as usize) } as u64;
            // Four at a time: there is little to do for each.
            let (fours, rest) = rows.as_chunks::<4>();
            let (word_fours, word_rest) = words.as_chunks_mut::<4>();
            for (rows, words) in fours.iter().zip(word_fours) {
                *words = rows.map(value);
            }
            for (row, word) in rest.iter().zip(word_rest) {
                *word = value(*row);
            }
            return;
        }
        words.fill(0);
        for (key, column) in columns.iter().enumerate() {
            let word = self.word[key];
            encode_column(column, rows, &mut words[word.min(width * rows.len())..], width);
            if let Some(nulls) = column.logical_nulls().filter(|n| n.null_count() > 0) {
                self.clear_nulls(key, &nulls, rows, words);
            }
        }
    }

    /// The hashes of as many encoded keys.
    pub fn hash(&self, words: &[u64], rows: usize, hashes: &mut Vec<u64>) {
        debug_assert_eq!(words.len(), rows * self.words);
        match self.words {
            0 => {
                hashes.clear();
                hashes.resize(rows, hash_words(&[]));
            }
            1 => {
                hashes.resize(rows, 0);
                hash_each_word(words, hashes);
            }
            width => {
                hashes.clear();
                hashes.extend(words.chunks_exact(width).map(hash_words));
            }
        }
        if let Some(prefix) = &self.prefix {
            prefix.lead(words, self.words, hashes);
        }
    }

    /// A NULL key is zero words and its NULL bit.
    fn clear_nulls(&self, key: usize, nulls: &NullBuffer, rows: &[u32], words: &mut [u64]) {
        let valid = |row: &u32| nulls.is_valid(*row as usize);
        if !self.null_word {
            debug_assert!(rows.iter().all(valid), "a NULL in a key that was planned as NOT NULL");
            return;
        }
        let range = self.word[key]..self.word[key] + words_of(&self.types[key]).unwrap_or(0);
        for (row, words) in rows.iter().zip(words.chunks_exact_mut(self.words)) {
            if !valid(row) {
                words[range.clone()].fill(0);
                words[0] |= 1 << key;
            }
        }
    }

    /// Some of the key columns of some rows of state.
    pub fn decode(&self, rows: &RowsRef<'_>, keys: Range<usize>) -> Result<Vec<ArrayRef>> {
        keys.map(|key| self.decode_column(key, rows)).collect()
    }

    fn decode_column(&self, key: usize, rows: &RowsRef<'_>) -> Result<ArrayRef> {
        let word = self.word[key];
        let nulls = self
            .null_word
            .then(|| NullBuffer::from_iter(rows.words(0).map(|bits| bits >> key & 1 == 0)));
        let nulls = nulls.filter(|n| n.null_count() > 0);
        let data_type = &self.types[key];
        let valid = |row: usize| nulls.as_ref().is_none_or(|n| n.is_valid(row));
        let bytes = |row: usize| valid(row).then(|| rows.bytes(rows.word(row, word + 1)));
        let text = |row: usize| bytes(row).map(|b| std::str::from_utf8(b).unwrap_or("\u{FFFD}"));
        Ok(match data_type {
            DataType::Null => Arc::new(NullArray::new(rows.len())),
            DataType::Boolean => {
                let values = rows.words(word).map(|w| w != 0).collect();
                Arc::new(BooleanArray::new(values, nulls))
            }
            DataType::Decimal128(precision, scale) => {
                let values = rows.words(word).zip(rows.words(word + 1));
                let values = values.map(|(low, high)| read_i128(low, high)).collect();
                let array = Decimal128Array::new(values, nulls);
                Arc::new(array.with_data_type(DataType::Decimal128(*precision, *scale)))
            }
            DataType::Utf8 => {
                let mut builder = StringBuilder::new();
                (0..rows.len()).for_each(|row| builder.append_option(text(row)));
                Arc::new(builder.finish())
            }
            DataType::LargeUtf8 => {
                let mut builder = LargeStringBuilder::new();
                (0..rows.len()).for_each(|row| builder.append_option(text(row)));
                Arc::new(builder.finish())
            }
            DataType::Binary => {
                let mut builder = BinaryBuilder::new();
                (0..rows.len()).for_each(|row| builder.append_option(bytes(row)));
                Arc::new(builder.finish())
            }
            DataType::LargeBinary => {
                let mut builder = LargeBinaryBuilder::new();
                (0..rows.len()).for_each(|row| builder.append_option(bytes(row)));
                Arc::new(builder.finish())
            }
            DataType::Int64 => {
                Arc::new(Int64Array::new(rows.collect(word, |w| w as i64).into(), nulls))
            }
            _ => primitive_from_words(data_type, rows.words(word), nulls)?,
        })
    }
}

/// Encoded keys; the buffers are used again and again.
#[derive(Debug, Default, Clone)]
pub struct KeyBlock {
    /// The keys' words, row by row.
    pub words: Vec<u64>,
    /// The keys' hashes.
    pub hashes: Vec<u64>,
}

/// Encoded keys, row after row, with one hash per row, or with none.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EncodedKeys<'a> {
    pub(crate) words: &'a [u64],
    pub(crate) hashes: &'a [u64],
}

/// The positions as a range, if they follow each other. Each must be greater than the one before.
pub(crate) fn range_of(rows: &[u32]) -> Option<Range<usize>> {
    debug_assert!(rows.is_sorted_by(|a, b| a < b));
    let (first, last) = (*rows.first()? as usize, *rows.last()? as usize);
    (last - first + 1 == rows.len()).then_some(first..last + 1)
}

/// Writes a column's words for `rows` into `out`, whose rows are `width` words apart.
fn encode_column(column: &ArrayRef, rows: &[u32], out: &mut [u64], width: usize) {
    let mut put = |i: usize, word: u64| out[i * width] = word;
    match column.data_type() {
        DataType::Null => {}
        DataType::Boolean => {
            let values = column.as_boolean();
            rows.iter().enumerate().for_each(|(i, r)| put(i, values.value(*r as usize).into()));
        }
        DataType::Float64 => {
            let values = column.as_primitive::<Float64Type>().values();
            let word = |r: &u32| one_double(values[*r as usize]).to_bits();
            rows.iter().enumerate().for_each(|(i, r)| put(i, word(r)));
        }
        DataType::Float32 => {
            let values = column.as_primitive::<Float32Type>().values();
            let word = |r: &u32| one_float(values[*r as usize]).to_bits().into();
            rows.iter().enumerate().for_each(|(i, r)| put(i, word(r)));
        }
        DataType::Decimal128(..) => {
            let values = column.as_primitive::<Decimal128Type>().values();
            for (i, r) in rows.iter().enumerate() {
                let value = values[*r as usize];
                out[i * width] = value as u64;
                out[i * width + 1] = (value >> 64) as u64;
            }
        }
        t => match VarColumn::new(column) {
            Some(column) => encode_texts(&column, rows, out, width),
            None => encode_integers(column, t, rows, put),
        },
    }
}

/// A native value of up to 64 bits as a word of state, and back.
pub(crate) trait Word: Copy {
    fn to_word(self) -> u64;
    fn from_word(word: u64) -> Self;
}

macro_rules! word_as_integer {
    ($($t:ty),*) => {$(
        impl Word for $t {
            #[inline(always)]
            fn to_word(self) -> u64 {
                self as i64 as u64
            }
            #[inline(always)]
            fn from_word(word: u64) -> Self {
                word as $t
            }
        }
    )*};
}
word_as_integer!(i8, i16, i32, i64, u8, u16, u32, u64);

impl Word for f64 {
    fn to_word(self) -> u64 {
        self.to_bits()
    }
    fn from_word(word: u64) -> Self {
        f64::from_bits(word)
    }
}
impl Word for f32 {
    fn to_word(self) -> u64 {
        self.to_bits().into()
    }
    fn from_word(word: u64) -> Self {
        f32::from_bits(word as u32)
    }
}

/// Puts the words of integers, and of dates and times, which are integers inside.
fn encode_integers(
    column: &ArrayRef,
    data_type: &DataType,
    rows: &[u32],
    mut put: impl FnMut(usize, u64),
) {
    let data = column.to_data();
    macro_rules! width {
        ($t:ty) => {{
            let values = data.buffer::<$t>(0);
            rows.iter().enumerate().for_each(|(i, r)| put(i, values[*r as usize].to_word()));
        }};
    }
    match (data_type.primitive_width(), data_type.is_unsigned_integer()) {
        (Some(1), false) => width!(i8),
        (Some(2), false) => width!(i16),
        (Some(4), false) => width!(i32),
        (Some(8), false) => width!(i64),
        (Some(1), true) => width!(u8),
        (Some(2), true) => width!(u16),
        (Some(4), true) => width!(u32),
        (Some(8), true) => width!(u64),
        _ => debug_assert!(false, "a key of type {data_type}"),
    }
}

/// An array of a type of at most 64 bits from one word per row.
pub(crate) fn primitive_from_words(
    data_type: &DataType,
    words: impl Iterator<Item = u64>,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef> {
    fn build<T: ArrowPrimitiveType>(
        data_type: &DataType,
        words: impl Iterator<Item = u64>,
        nulls: Option<NullBuffer>,
    ) -> ArrayRef
    where
        T::Native: Word,
    {
        let values = words.map(T::Native::from_word).collect();
        Arc::new(PrimitiveArray::<T>::new(values, nulls).with_data_type(data_type.clone()))
    }
    use DataType::*;
    let build = match data_type {
        Int8 => build::<Int8Type>,
        Int16 => build::<Int16Type>,
        Int32 => build::<Int32Type>,
        Int64 => build::<Int64Type>,
        UInt8 => build::<UInt8Type>,
        UInt16 => build::<UInt16Type>,
        UInt32 => build::<UInt32Type>,
        UInt64 => build::<UInt64Type>,
        Float32 => build::<Float32Type>,
        Float64 => build::<Float64Type>,
        Date32 => build::<Date32Type>,
        Date64 => build::<Date64Type>,
        Time32(TimeUnit::Second) => build::<Time32SecondType>,
        Time32(TimeUnit::Millisecond) => build::<Time32MillisecondType>,
        Time64(TimeUnit::Microsecond) => build::<Time64MicrosecondType>,
        Time64(TimeUnit::Nanosecond) => build::<Time64NanosecondType>,
        Timestamp(TimeUnit::Second, _) => build::<TimestampSecondType>,
        Timestamp(TimeUnit::Millisecond, _) => build::<TimestampMillisecondType>,
        Timestamp(TimeUnit::Microsecond, _) => build::<TimestampMicrosecondType>,
        Timestamp(TimeUnit::Nanosecond, _) => build::<TimestampNanosecondType>,
        Duration(TimeUnit::Second) => build::<DurationSecondType>,
        Duration(TimeUnit::Millisecond) => build::<DurationMillisecondType>,
        Duration(TimeUnit::Microsecond) => build::<DurationMicrosecondType>,
        Duration(TimeUnit::Nanosecond) => build::<DurationNanosecondType>,
        other => return Err(Error::Internal(format!("a key of type {other}"))),
    };
    Ok(build(data_type, words, nulls))
}

/// Whether all positions are less than `len`.
fn all_below(rows: &[u32], len: usize) -> bool {
    // The bits of all are no less than the greatest, and cheaper to find.
    let bits = rows.iter().fold(0, |bits, row| bits | row);
    (bits as usize) < len || rows.iter().all(|row| (*row as usize) < len)
}

#[cfg(test)]
mod tests;

//! Texts and bytes as keys: columns of values of variable length, also as dictionaries.

use arrow::array::{Array, ArrayRef, AsArray, GenericByteArray};
use arrow::buffer::NullBuffer;
use arrow::datatypes::*;

use millstream_state::{VarKeys, hash_bytes};

/// A string or binary column, its type looked at once.
#[derive(Debug)]
pub struct VarColumn<'a> {
    offsets: Offsets<'a>,
    values: &'a [u8],
    nulls: Option<&'a NullBuffer>,
    /// Of a dictionary: which value is each row's.
    keys: Option<&'a [i32]>,
}

#[derive(Debug)]
enum Offsets<'a> {
    Short(&'a [i32]),
    Long(&'a [i64]),
}

impl<'a> VarColumn<'a> {
    /// `None` if the column's values are of fixed length.
    pub(crate) fn new(column: &'a ArrayRef) -> Option<VarColumn<'a>> {
        fn short<T: ByteArrayType<Offset = i32>>(
            array: &GenericByteArray<T>,
        ) -> (Offsets<'_>, &[u8]) {
            (Offsets::Short(array.value_offsets()), array.value_data())
        }
        fn long<T: ByteArrayType<Offset = i64>>(
            array: &GenericByteArray<T>,
        ) -> (Offsets<'_>, &[u8]) {
            (Offsets::Long(array.value_offsets()), array.value_data())
        }
        let (offsets, values) = match column.data_type() {
            DataType::Utf8 => short(column.as_string::<i32>()),
            DataType::Binary => short(column.as_binary::<i32>()),
            DataType::LargeUtf8 => long(column.as_string::<i64>()),
            DataType::LargeBinary => long(column.as_binary::<i64>()),
            DataType::Dictionary(..) => {
                let column = column.as_dictionary_opt::<Int32Type>()?;
                let (keys, values) = (column.keys(), VarColumn::new(column.values())?);
                return Some(VarColumn {
                    nulls: keys.nulls(),
                    keys: Some(keys.values()),
                    ..values
                });
            }
            _ => return None,
        };
        Some(VarColumn { offsets, values, nulls: column.nulls(), keys: None })
    }

    /// The columns that have values of variable length.
    pub(crate) fn of(columns: &'a [ArrayRef]) -> Vec<VarColumn<'a>> {
        columns.iter().filter_map(VarColumn::new).collect()
    }

    /// The bytes of a row; none for NULL.
    #[inline]
    pub(crate) fn bytes(&self, row: usize) -> &'a [u8] {
        if self.nulls.is_some_and(|nulls| nulls.is_null(row)) {
            return &[];
        }
        self.value_of(row)
    }

    /// The bytes of a row that is not NULL.
    #[inline]
    pub(crate) fn value_of(&self, row: usize) -> &'a [u8] {
        self.value(self.keys.map_or(row, |keys| keys[row] as usize))
    }

    /// Copies the bytes of some rows, one row behind the other, and returns how many there are.
    /// Consecutive rows are copied together.
    pub(crate) fn copy(&self, rows: impl Iterator<Item = usize>, out: &mut [u8]) -> usize {
        let valid = |row: &usize| self.nulls.is_none_or(|nulls| nulls.is_valid(*row));
        let (mut rows, mut end) = (rows.filter(valid).peekable(), 0);
        while let Some(first) = rows.next() {
            let mut last = first;
            while self.keys.is_none() && rows.next_if_eq(&(last + 1)).is_some() {
                last += 1;
            }
            let place = self.keys.map_or(first, |keys| keys[first] as usize);
            let bytes = self.values(place, place + last - first);
            out[end..end + bytes.len()].copy_from_slice(bytes);
            end += bytes.len();
        }
        end
    }

    /// The bytes that stand at `place`, which are a row's, or the value of a dictionary.
    #[inline]
    fn value(&self, place: usize) -> &'a [u8] {
        self.values(place, place)
    }

    /// The bytes that stand at the places from `first` to `last`.
    #[inline]
    fn values(&self, first: usize, last: usize) -> &'a [u8] {
        // Arrow's arrays check their offsets when they are made: none is negative.
        let (start, end) = match self.offsets {
            Offsets::Short(offsets) => (offsets[first] as usize, offsets[last + 1] as usize),
            Offsets::Long(offsets) => (offsets[first] as usize, offsets[last + 1] as usize),
        };
        &self.values[start..end]
    }

    /// Of a dictionary: which value is each row's, and how many values there are.
    fn dictionary(&self) -> Option<(&'a [i32], usize)> {
        let places = match self.offsets {
            Offsets::Short(offsets) => offsets.len(),
            Offsets::Long(offsets) => offsets.len(),
        };
        Some((self.keys?, places.saturating_sub(1)))
    }
}

/// Bytes of all values of a column together, if they are of variable length; otherwise 0.
pub(crate) fn text_bytes(column: &ArrayRef) -> usize {
    VarColumn::new(column).map_or(0, |column| {
        if let Some((keys, _)) = column.dictionary() {
            return (0..keys.len()).map(|row| column.bytes(row).len()).sum();
        }
        let ends =
            |first: Option<i64>, last: Option<i64>| last.zip(first).map_or(0, |(l, f)| l - f);
        let bytes = match column.offsets {
            Offsets::Short(o) => {
                ends(o.first().map(|f| (*f).into()), o.last().map(|l| (*l).into()))
            }
            Offsets::Long(o) => ends(o.first().copied(), o.last().copied()),
        };
        bytes as usize
    })
}

/// The contents of variable-length key columns, for a block of rows.
pub(crate) struct ColumnVars<'a> {
    pub(crate) columns: &'a [VarColumn<'a>],
    pub(crate) rows: &'a [u32],
}

impl VarKeys for ColumnVars<'_> {
    #[inline]
    fn bytes(&self, row: usize, var: usize) -> &[u8] {
        self.columns.get(var).map_or(&[], |column| column.bytes(self.rows[row] as usize))
    }
}

/// Writes two words for each text: the hash, and the length.
pub(super) fn encode_texts(column: &VarColumn<'_>, rows: &[u32], out: &mut [u64], width: usize) {
    let words = |bytes: &[u8]| (hash_bytes(bytes), (bytes.len() as u64) << 32);
    match column.dictionary() {
        // Each value once.
        Some((keys, values)) if values <= rows.len() => {
            let of_values: Vec<_> = (0..values).map(|place| words(column.value(place))).collect();
            for (row, out) in rows.iter().zip(out.chunks_mut(width)) {
                // A NULL's index may lie outside; its words are cleared later.
                let value = of_values.get(keys[*row as usize] as usize);
                (out[0], out[1]) = value.copied().unwrap_or_default();
            }
        }
        _ => {
            for (row, out) in rows.iter().zip(out.chunks_mut(width)) {
                (out[0], out[1]) = words(column.bytes(*row as usize));
            }
        }
    }
}

//! Rows of results, reduced to their number and a sum that does not depend on their order.

use arrow_array::cast::AsArray;
use arrow_array::types::{Decimal128Type, Int64Type, TimestampMillisecondType};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::{DataType, TimeUnit};

use crate::error::{Error, Result};

/// A value of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value<'a> {
    /// NULL.
    Null,
    /// A whole number, a time in milliseconds, or the digits of a decimal.
    Number(i64),
    /// A text.
    Text(&'a str),
}

/// Summary of rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RowSummary {
    /// How many there are.
    pub rows: u64,
    /// The sum of their hashes.
    pub mix: u64,
}

impl RowSummary {
    /// Adds a row.
    pub fn add(&mut self, row: &[Value<'_>]) {
        let hash = row.iter().fold(NO_VALUES, |hash, value| with_value(hash, *value));
        self.rows += 1;
        self.mix = self.mix.wrapping_add(hash);
    }

    /// Adds other rows.
    pub fn merge(&mut self, other: &RowSummary) {
        self.rows += other.rows;
        self.mix = self.mix.wrapping_add(other.mix);
    }

    /// Adds the rows of a batch.
    ///
    /// # Errors
    ///
    /// If a column is of a type that no query of NEXMark has.
    pub fn add_batch(&mut self, batch: &RecordBatch) -> Result<()> {
        let mut hashes = vec![NO_VALUES; batch.num_rows()];
        for (column, field) in batch.columns().iter().zip(batch.schema_ref().fields()) {
            add_column(column, &mut hashes).ok_or_else(|| Error::Column {
                column: field.name().clone(),
                expected: "a type that NEXMark has".into(),
                found: field.data_type().to_string(),
            })?;
        }
        self.rows += batch.num_rows() as u64;
        self.mix = hashes.into_iter().fold(self.mix, u64::wrapping_add);
        Ok(())
    }
}

/// The hash of a row without values.
const NO_VALUES: u64 = 0x6e65_786d_6172_6b21;

/// The hash of a row with one more value.
#[inline]
fn with_value(hash: u64, value: Value<'_>) -> u64 {
    mix(hash
        ^ match value {
            Value::Null => 0x4e55_4c4c,
            Value::Number(number) => mix(number as u64 ^ 0x4e55_4d42),
            Value::Text(text) => of_bytes(text.as_bytes()),
        })
}

/// Adds the values of a column to the hashes of its rows.
fn add_column(column: &ArrayRef, hashes: &mut [u64]) -> Option<()> {
    let nulls = column.nulls();
    let mut add = |value: &dyn Fn(usize) -> Option<i64>| {
        for (row, hash) in hashes.iter_mut().enumerate() {
            *hash = match nulls.is_some_and(|nulls| nulls.is_null(row)) {
                true => with_value(*hash, Value::Null),
                false => with_value(*hash, Value::Number(value(row)?)),
            };
        }
        Some(())
    };
    match column.data_type() {
        DataType::Int64 => {
            let values = column.as_primitive::<Int64Type>().values();
            add(&|row| values.get(row).copied())
        }
        DataType::Timestamp(TimeUnit::Millisecond, None) => {
            let values = column.as_primitive::<TimestampMillisecondType>().values();
            add(&|row| values.get(row).copied())
        }
        DataType::Decimal128(..) => {
            let values = column.as_primitive::<Decimal128Type>().values();
            add(&|row| i64::try_from(*values.get(row)?).ok())
        }
        DataType::Utf8 => {
            for (text, hash) in column.as_string::<i32>().iter().zip(hashes) {
                *hash = with_value(*hash, text.map_or(Value::Null, Value::Text));
            }
            Some(())
        }
        _ => None,
    }
}

fn of_bytes(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let begun = mix(bytes.len() as u64 ^ 0x5445_5854);
    let hash = words.iter().fold(begun, |hash, word| mix(hash ^ u64::from_le_bytes(*word)));
    if rest.is_empty() {
        return hash;
    }
    let mut word = [0; 8];
    word[..rest.len()].copy_from_slice(rest);
    mix(hash ^ u64::from_le_bytes(word))
}

/// The finaliser of splitmix64.
fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_added_in_any_order_and_none_is_like_another() {
        use Value::{Null, Number, Text};
        let rows: [&[Value<'_>]; 7] = [
            &[Number(1), Number(2)],
            &[Number(2), Number(1)],
            &[Null, Number(1)],
            &[Number(1), Null],
            &[Text(""), Number(1)],
            &[Text("a"), Text("b")],
            &[Text("ab"), Text("")],
        ];
        let of = |rows: &[&[Value<'_>]]| {
            let mut sum = RowSummary::default();
            rows.iter().for_each(|row| sum.add(row));
            sum
        };
        let mut single: Vec<u64> = rows.iter().map(|row| of(&[row]).mix).collect();
        single.sort_unstable();
        single.dedup();
        assert_eq!(single.len(), rows.len());
        let (mut front, back) = (of(&rows[..3]), of(&rows[3..]));
        front.merge(&back);
        let mut turned = rows;
        turned.reverse();
        assert_eq!((front, front.rows), (of(&turned), 7));
    }
}

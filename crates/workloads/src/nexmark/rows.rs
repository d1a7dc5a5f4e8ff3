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
        let hash = row.iter().fold(0x6e65_786d_6172_6b21, |hash, value| {
            mix(hash
                ^ match value {
                    Value::Null => 0x4e55_4c4c,
                    Value::Number(number) => mix(*number as u64 ^ 0x4e55_4d42),
                    Value::Text(text) => of_bytes(text.as_bytes()),
                })
        });
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
        let mut row = Vec::with_capacity(batch.num_columns());
        for number in 0..batch.num_rows() {
            row.clear();
            for (column, field) in batch.columns().iter().zip(batch.schema_ref().fields()) {
                row.push(value(column, number).ok_or_else(|| Error::Column {
                    column: field.name().clone(),
                    expected: "a type that NEXMark has".into(),
                    found: field.data_type().to_string(),
                })?);
            }
            self.add(&row);
        }
        Ok(())
    }
}

fn value(column: &ArrayRef, row: usize) -> Option<Value<'_>> {
    if column.is_null(row) {
        return Some(Value::Null);
    }
    Some(match column.data_type() {
        DataType::Int64 => Value::Number(column.as_primitive::<Int64Type>().value(row)),
        DataType::Timestamp(TimeUnit::Millisecond, None) => {
            Value::Number(column.as_primitive::<TimestampMillisecondType>().value(row))
        }
        DataType::Decimal128(..) => {
            let digits = column.as_primitive::<Decimal128Type>().value(row);
            Value::Number(i64::try_from(digits).ok()?)
        }
        DataType::Utf8 => Value::Text(column.as_string::<i32>().value(row)),
        _ => return None,
    })
}

fn of_bytes(bytes: &[u8]) -> u64 {
    let words = bytes.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    });
    words.fold(mix(bytes.len() as u64 ^ 0x5445_5854), |hash, word| mix(hash ^ word))
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

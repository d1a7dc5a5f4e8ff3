//! A fuzz target: a CSV file of any content gives rows or an error, never a panic, and the same
//! result however it is cut into chunks.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use millstream_contract::Result;

use super::CsvFormat;
use super::dialect::{Dialect, Header};
use crate::records::{Outcome, read_whole};

/// Reads `data` as a CSV file, the first two bytes choosing the options.
///
/// # Panics
///
/// If the rows depend on how the file is cut into chunks, which would be a bug.
#[doc(hidden)]
pub fn fuzz_csv(data: &[u8]) {
    let (choice, content) = data.split_at_checked(2).unwrap_or((&[0, 0], data));
    let dialect = Dialect {
        delimiter: if choice[0] & 1 == 0 { b',' } else { b'\t' },
        quote: (choice[0] & 2 == 0).then_some(b'"'),
        header: [Header::Auto, Header::Present, Header::Absent][usize::from(choice[0] >> 2) % 3],
        null_literal: (choice[0] & 16 != 0).then(|| "NULL".to_string()),
        comments: choice[0] & 32 != 0,
        skip_errors: choice[0] & 64 != 0,
        keep_malformed: choice[0] & 64 != 0,
        quoted_bytes_max: if choice[0] & 128 != 0 { 12 } else { 1 << 20 },
        exact: choice[1] & 64 != 0,
    };
    let schema = Arc::new(Schema::new(fuzz_fields()));
    let columns = schema.fields().len();
    let projection: Vec<usize> =
        (0..columns).filter(|c| choice[1] & 128 != 0 || (choice[1] >> (c % 7)) & 1 == 0).collect();
    let whole = read_memory(content, &schema, &dialect, &projection, usize::MAX);
    for chunk_bytes in [1, 1 + usize::from(choice[1])] {
        let cut = read_memory(content, &schema, &dialect, &projection, chunk_bytes);
        match (&whole, &cut) {
            (Ok(a), Ok(b)) => assert_eq!(a, b, "rows depend on the chunks"),
            (Err(a), Err(b)) => assert_eq!(a.to_string(), b.to_string()),
            (a, b) => panic!("failure depends on the chunks: {:?} {:?}", a.is_ok(), b.is_ok()),
        }
    }
}

fn fuzz_fields() -> Vec<Field> {
    let types = [
        DataType::Int64,
        DataType::Utf8,
        DataType::Float64,
        DataType::Boolean,
        DataType::Timestamp(TimeUnit::Nanosecond, None),
        DataType::Decimal128(20, 3),
        DataType::Binary,
        DataType::Date32,
        DataType::Time32(TimeUnit::Millisecond),
        DataType::UInt8,
    ];
    let name = |at: usize| char::from(b'a' + at as u8).to_string();
    types.into_iter().enumerate().map(|(at, t)| Field::new(name(at), t, at != 9)).collect()
}

/// A file in memory, read in chunks of about `chunk_bytes`.
pub(super) fn read_memory(
    content: &[u8],
    schema: &SchemaRef,
    dialect: &Dialect,
    projection: &[usize],
    chunk_bytes: usize,
) -> Result<Outcome> {
    let format = Arc::new(CsvFormat { dialect: Arc::new(dialect.clone()) });
    read_whole(format, "memory.csv", content, schema, projection, chunk_bytes)
}

//! A fuzz target: an NDJSON file of any content gives rows or an error, never a panic, the same
//! however it is cut into chunks, and the same as where every line is read with care.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, TimeUnit};

use super::NdjsonFormat;
use crate::options::OnError;
use crate::records::read_whole;

/// Reads `data` as an NDJSON file, the first two bytes choosing the options.
///
/// # Panics
///
/// If the rows depend on how the file is cut into chunks, or on how a line is read. Either would be
/// a bug.
#[doc(hidden)]
pub fn fuzz_ndjson(data: &[u8]) {
    let (choice, content) = data.split_at_checked(2).unwrap_or((&[0, 0], data));
    let on_error = if choice[0] & 1 != 0 { OnError::Keep } else { OnError::Fail };
    let schema = Arc::new(Schema::new(fuzz_fields()));
    let columns = schema.fields().len();
    let projection: Vec<usize> =
        (0..columns).filter(|c| choice[1] & 128 == 0 || (choice[1] >> (c % 7)) & 1 == 0).collect();
    let read = |careful, chunk_bytes| {
        let format = Arc::new(NdjsonFormat { on_error, careful, ..NdjsonFormat::default() });
        read_whole(format, "memory.ndjson", content, &schema, &projection, chunk_bytes)
    };
    let whole = read(false, usize::MAX);
    for (careful, chunk_bytes) in
        [(true, usize::MAX), (false, 1), (false, 1 + usize::from(choice[1]))]
    {
        let other = read(careful, chunk_bytes);
        let how = if careful { "care" } else { "chunks" };
        match (&whole, &other) {
            (Ok(a), Ok(b)) => assert_eq!(a, b, "rows depend on {how}"),
            (Err(a), Err(b)) => assert_eq!(a.to_string(), b.to_string()),
            (a, b) => {
                panic!("failure depends on {how}: {:?} {:?}", a.as_ref().err(), b.as_ref().err())
            }
        }
    }
}

fn fuzz_fields() -> Vec<Field> {
    let field = |name: &str, of: DataType, nullable| Field::new(name, of, nullable);
    let item = |of: DataType| Arc::new(field("item", of, true));
    let row = DataType::Struct(
        vec![
            field("a", DataType::Int64, false),
            field("B", DataType::Utf8, true),
            field("c", DataType::List(item(DataType::Boolean)), true),
        ]
        .into(),
    );
    let entry = |value: DataType| {
        let entry = vec![field("key", DataType::Utf8, false), field("value", value, true)];
        Arc::new(field("entries", DataType::Struct(entry.into()), false))
    };
    vec![
        field("a", DataType::Int64, true),
        field("b", DataType::Utf8, true),
        field("c", DataType::Float64, true),
        field("d", DataType::Boolean, true),
        field("e", DataType::Timestamp(TimeUnit::Nanosecond, None), true),
        field("f", DataType::Decimal128(20, 3), true),
        field("g", DataType::Binary, true),
        field("h", DataType::UInt8, true),
        field("I", DataType::Float32, true),
        field("j", row.clone(), true),
        field("k", DataType::List(item(row.clone())), true),
        field("l", DataType::Map(entry(DataType::List(item(DataType::Int32))), false), true),
        field("m", row, true),
        field("n", DataType::Date32, true),
    ]
}

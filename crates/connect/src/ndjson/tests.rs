//! Tests of NDJSON: values, errors with their places, and that cutting into chunks makes no
//! difference.

use std::sync::Arc;
use std::task::Waker;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::compute::concat_batches;
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Field, Float64Type, Int64Type, Schema, TimeUnit,
    TimestampMillisecondType,
};
use millstream_contract::table::{Position, Sharing, Split, SplitPoll};
use proptest::prelude::*;

use super::*;
use crate::input::Input;
use crate::records::{Reading, RecordSplit};

fn schema(fields: &[(&str, DataType, bool)]) -> SchemaRef {
    let field = |(name, data_type, nullable): &(&str, DataType, bool)| {
        Field::new(*name, data_type.clone(), *nullable)
    };
    Arc::new(Schema::new(fields.iter().map(field).collect::<Vec<_>>()))
}

/// Rows, how many records were left out, and what is said of the first.
type Outcome = (RecordBatch, u64, Option<String>);

fn read_in(
    text: &[u8],
    schema: &SchemaRef,
    skip_errors: bool,
    chunk_bytes: usize,
) -> Result<Outcome> {
    let projection: Vec<usize> = (0..schema.fields().len()).collect();
    let reading = Reading {
        path: "x.ndjson".into(),
        schema,
        projection: &projection,
        batch_rows: 1 << 20,
        from: Position::default(),
        length: Some(text.len() as u64),
        sharing: Sharing::ByChunk,
        one_of_many: false,
        chunk_bytes: Some(chunk_bytes),
    };
    let format = Arc::new(NdjsonFormat { skip_errors, ..NdjsonFormat::default() });
    let mut split = RecordSplit::open(format, Input::memory(text), &reading)?;
    let (mut batches, mut left_out, mut first) = (Vec::new(), 0, None);
    while let SplitPoll::Chunk(chunk) = split.poll_next(0, Waker::noop())? {
        let decoded = chunk.decode_reporting()?;
        left_out += decoded.left_out;
        first = first.or(decoded.first_left_out);
        batches.push(decoded.batch);
    }
    Ok((concat_batches(schema, &batches).unwrap(), left_out, first))
}

/// The same however the text is cut.
fn read(text: &str, schema: &SchemaRef, skip_errors: bool) -> Result<Outcome> {
    let whole = read_in(text.as_bytes(), schema, skip_errors, 1 << 20);
    for chunk_bytes in [1, 17] {
        let cut = read_in(text.as_bytes(), schema, skip_errors, chunk_bytes);
        match (&whole, &cut) {
            (Ok(a), Ok(b)) => assert_eq!(a, b),
            (Err(a), Err(b)) => assert_eq!(a.to_string(), b.to_string()),
            _ => panic!("{whole:?} {cut:?}"),
        }
    }
    whole
}

#[test]
fn every_type_is_read() {
    let schema = schema(&[
        ("b", DataType::Boolean, true),
        ("i", DataType::Int64, true),
        ("d", DataType::Float64, true),
        ("m", DataType::Decimal128(10, 2), true),
        ("s", DataType::Utf8, true),
        ("x", DataType::Binary, true),
        ("day", DataType::Date32, true),
        ("ts", DataType::Timestamp(TimeUnit::Millisecond, None), true),
    ]);
    let text = "{\"b\":true,\"i\":-7,\"d\":1e3,\"m\":1.005,\"s\":\"a\\n\\u00e9\\ud83d\\ude00\",\
                \"x\":\"aGk=\",\"day\":\"1970-01-02\",\"ts\":\"1970-01-01T00:00:01.5Z\"}\r\n\
                \n  {\"other\":{\"b\":[1,{}]}, \"m\":\"2.5\", \"i\" : null}\n{}";
    let (rows, left_out, _) = read(text, &schema, false).unwrap();
    assert_eq!((rows.num_rows(), left_out), (3, 0));
    assert!(rows.column(0).as_boolean().value(0));
    assert_eq!(rows.column(1).as_primitive::<Int64Type>().value(0), -7);
    assert_eq!(rows.column(2).as_primitive::<Float64Type>().value(0), 1000.0);
    assert_eq!(rows.column(3).as_primitive::<Decimal128Type>().value(0), 101);
    assert_eq!(rows.column(3).as_primitive::<Decimal128Type>().value(1), 250);
    assert_eq!(rows.column(4).as_string::<i32>().value(0), "a\n\u{e9}\u{1f600}");
    assert_eq!(rows.column(5).as_binary::<i32>().value(0), b"hi");
    assert_eq!(rows.column(6).as_primitive::<Date32Type>().value(0), 1);
    assert_eq!(rows.column(7).as_primitive::<TimestampMillisecondType>().value(0), 1500);
    assert_eq!(rows.column(1).null_count(), 2);
    assert_eq!(rows.column(4).null_count(), 2);
}

#[test]
fn what_does_not_fit_is_an_error_with_its_place() {
    let schema = schema(&[
        ("a", DataType::Int64, true),
        ("s", DataType::Utf8, false),
        ("t", DataType::Timestamp(TimeUnit::Millisecond, None), true),
    ]);
    for (line, expected) in [
        ("{\"s\":\"\",\"a\":1.7}", ":2:13: expected BIGINT for column 'a', found 1.7"),
        ("{\"s\":\"\",\"a\":1.0}", ":2:13: expected BIGINT"),
        ("{\"s\":\"\",\"a\":\"1\"}", ":2:13: expected BIGINT for column 'a', found \"1\""),
        ("{\"s\":\"\",\"a\":true}", ":2:13: expected BIGINT"),
        ("{\"s\":\"\",\"a\":9223372036854775808}", "which does not fit"),
        ("{\"a\":1}", ":2:1: column 's' is NOT NULL, found NULL"),
        ("{\"s\":null}", ":2:1: column 's' is NOT NULL"),
        ("{\"s\":1}", ":2:6: expected STRING for column 's', found 1"),
        ("{\"s\":\"\\ud800\"}", "column 's'"),
        ("{\"s\":\"\",\"t\":1714564800000}", "to_timestamp_millis"),
        ("{\"s\":\"\",\"a\":1,\"a\":2}", "the member 'a' is given twice"),
        ("{\"s\":\"\"", ":2:1: the object that starts here does not end on its line"),
        ("{", "'jq -c .' writes them so"),
        ("[{\"s\":\"\"}]", ":2:1: expected an object, found an array"),
        ("7", ":2:1: expected an object, found '7'"),
        ("{\"s\":\"\"} x", "trailing characters"),
        ("{\"s\":\"\",\"z\":01}", "invalid number"),
        ("{s:1}", "key must be a string"),
    ] {
        let text = format!("{{\"s\":\"x\"}}\n{line}\n{{\"s\":\"y\"}}\n");
        let error = read(&text, &schema, false).unwrap_err().to_string();
        assert!(error.starts_with("x.ndjson:2:") && error.contains(expected), "{line}: {error}");
        let (rows, left_out, first) = read(&text, &schema, true).unwrap();
        assert_eq!((rows.num_rows(), left_out), (2, 1), "{line}");
        assert!(first.unwrap().starts_with("x.ndjson:2:"), "{line}");
    }
    // The first of two faults, whichever kind they are of.
    let text = "{\"s\":\"\",\"a\":\"x\"}\n{\n";
    let error = read(text, &schema, false).unwrap_err().to_string();
    assert!(error.starts_with("x.ndjson:1:"), "{error}");
}

#[test]
fn pretty_printed_objects_are_refused_alike_at_any_chunk_size() {
    let schema = schema(&[("a", DataType::Int64, true)]);
    let text = "{\n  \"a\": 1\n}\n".repeat(100);
    for chunk_bytes in 1..60 {
        let error = read_in(text.as_bytes(), &schema, false, chunk_bytes).unwrap_err().to_string();
        let expected = "x.ndjson:1:1: the object that starts here does not end on its line";
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn hostile_nesting_and_broken_text_are_errors() {
    let schema = schema(&[("a", DataType::Int64, true)]);
    let deep = format!("{{\"x\":{}", "[".repeat(100_000));
    assert!(read_in(deep.as_bytes(), &schema, false, 1 << 20).is_err());
    let error = read_in(b"{\"x\":\"\xff\"}\n", &schema, false, 64).unwrap_err().to_string();
    assert!(error.starts_with("x.ndjson:1:") && error.contains("not valid UTF-8"), "{error}");
}

proptest! {
    /// What an independent writer of JSON has written is read as it was, in any order of members.
    #[test]
    fn what_is_written_is_read_back(
        rows in proptest::collection::vec(
            (any::<Option<i64>>(), any::<Option<String>>(), any::<bool>()),
            0..40,
        ),
        chunk_bytes in 1..200usize,
    ) {
        let schema = schema(&[("n", DataType::Int64, true), ("\u{e9} \"k\"", DataType::Utf8, true)]);
        let mut text = String::new();
        for (n, s, flipped) in &rows {
            let n = format!("\"n\": {}", serde_json::to_string(n).unwrap());
            let s = format!("\"\u{e9} \\\"k\\\"\":{}", serde_json::to_string(s).unwrap());
            let (a, b) = if *flipped { (s, n) } else { (n, s) };
            text += &format!("{{{a} ,\t{b}, \"more\":[null,{{\"n\":1}}]}}\n");
        }
        let (batch, left_out, _) =
            read_in(text.as_bytes(), &schema, false, chunk_bytes).unwrap();
        prop_assert_eq!((batch.num_rows(), left_out), (rows.len(), 0));
        for (row, (n, s, _)) in rows.iter().enumerate() {
            let numbers = batch.column(0).as_primitive::<Int64Type>();
            prop_assert_eq!(numbers.is_valid(row).then(|| numbers.value(row)), *n);
            let strings = batch.column(1).as_string::<i32>();
            prop_assert_eq!(strings.is_valid(row).then(|| strings.value(row)), s.as_deref());
        }
    }

    /// Any bytes give rows or an error, the same however they are cut.
    #[test]
    fn hostile_input_gives_rows_or_errors(
        pieces in proptest::collection::vec(
            proptest::sample::select(&[
                "{", "}", "[", "]", "\"a\"", ":", ",", "1", "-", "1.7", "null", "true", "\n",
                "\r\n", " ", "\\u00", "\"", "\u{e9}",
            ][..]),
            0..60,
        ),
        skip_errors in any::<bool>(),
    ) {
        let schema = schema(&[("a", DataType::Int64, true)]);
        let _ = read(&pieces.concat(), &schema, skip_errors);
    }
}

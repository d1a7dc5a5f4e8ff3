//! Tests of NDJSON: values, errors with their places, and that cutting into chunks makes no
//! difference.

use std::sync::Arc;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Field, Float32Type, Float64Type, Int64Type, Schema,
    TimeUnit, TimestampMillisecondType,
};
use proptest::prelude::*;

use super::*;
use crate::records::read_whole;

mod nested;
mod random;
mod speed;

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
    let on_error = if skip_errors { OnError::Keep } else { OnError::Fail };
    let format = Arc::new(NdjsonFormat { on_error, ..NdjsonFormat::default() });
    let outcome = read_whole(format, "x.ndjson", text, schema, &projection, chunk_bytes)?;
    let first = outcome.first_left_out.map(|first| first.to_string());
    Ok((outcome.rows, outcome.left_out, first))
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
                \"x\":\"aGk=\",\"day\":\"1970-01-02\",\"ts\":\"1970-01-01T00:00:01.5\"}\r\n\
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
fn digits_that_would_be_lost_are_an_error_where_they_count() {
    let schema = schema(&[
        ("m", DataType::Decimal128(38, 0), true),
        ("t", DataType::Time32(TimeUnit::Millisecond), true),
        ("a", DataType::new_list(DataType::Timestamp(TimeUnit::Millisecond, None), true), true),
    ]);
    let read = |line: &str, exact| {
        let taken = Accepted { exact, ..Accepted::default() };
        let format = Arc::new(NdjsonFormat { taken, ..NdjsonFormat::default() });
        let outcome = read_whole(format, "x", line.as_bytes(), &schema, &[0, 1, 2], 1 << 20);
        outcome.map(|outcome| outcome.rows.num_rows()).map_err(|error| error.to_string())
    };
    for (line, expected) in [
        (r#"{"m":99999999999999999999.0,"t":"12:00:00.1230","a":["2024-05-01"]}"#, None),
        (r#"{"m":99999999999999999999.5}"#, Some("'m', found 99999999999999999999.5, which has")),
        (r#"{"m":0.4}"#, Some("x:1:6: expected DECIMAL(38, 0) for column 'm'")),
        (r#"{"m":"1.5"}"#, Some("'m', found \"1.5\", which has more digits")),
        (r#"{"t":"12:00:00.1239"}"#, Some("'t', found \"12:00:00.1239\", which has more digits")),
        (r#"{"a":["2024-05-01","2024-05-01 12:00:00.9999"]}"#, Some("column 'a[2]', found")),
    ] {
        assert_eq!(read(line, false), Ok(1), "{line}");
        match (read(line, true), expected) {
            (Ok(rows), None) => assert_eq!(rows, 1),
            (Err(error), Some(expected)) => assert!(error.contains(expected), "{error}"),
            (outcome, _) => panic!("{line}: {outcome:?}"),
        }
    }
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
        ("{\"s\":null}", ":2:6: column 's' is NOT NULL"),
        ("{\"s\":1}", ":2:6: expected STRING for column 's', found 1"),
        ("{\"s\":\"\\ud800\"}", "column 's'"),
        ("{\"s\":\"\",\"t\":1714564800000}", "to_timestamp_millis"),
        ("{\"s\":\"\",\"t\":1714564800}", "to_timestamp_seconds"),
        ("{\"s\":\"\",\"t\":1714564800.5}", "to_timestamp_seconds"),
        ("{\"s\":\"\",\"A at line \":1,\"a at line \":2,\"a\":1,\"a\":1}", "'a' is given twice"),
        ("{\"s\":\"\",\"A\":1,\"A\":2}", "the member 'A' is given twice"),
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
fn a_member_is_the_column_that_differs_only_in_case() {
    let schema = schema(&[("userid", DataType::Int64, true), ("Name", DataType::Utf8, true)]);
    let text = "{\"userId\":1,\"NAME\":\"a\"}\n{\"userId\":\"x\",\"userid\":2,\"USERID\":3}\n\
                {\"userid\":4,\"USERID\":5,\"USERID\":6,\"nom\":7}\n";
    let (rows, _, _) = read(text, &schema, false).unwrap();
    assert_eq!(rows.column(0).as_primitive::<Int64Type>().values(), &[1, 2, 4]);
    assert_eq!(
        rows.column(1).as_string::<i32>().iter().collect::<Vec<_>>(),
        [Some("a"), None, None]
    );
    let error = read("{\"userId\":1,\"USERID\":2}", &schema, false).unwrap_err().to_string();
    assert!(error.contains("'userId' and 'USERID' differ only in case"), "{error}");
}

#[test]
fn doubles_beyond_numbers_are_the_strings_that_the_sink_writes() {
    let schema = schema(&[("d", DataType::Float64, true), ("f", DataType::Float32, true)]);
    let text = "{\"d\":\"NaN\",\"f\":\"Infinity\"}\n{\"d\":\"-Infinity\",\"f\":3.4e38}\n";
    let (rows, _, _) = read(text, &schema, false).unwrap();
    let doubles = rows.column(0).as_primitive::<Float64Type>();
    assert!(doubles.value(0).is_nan());
    assert_eq!(doubles.value(1), f64::NEG_INFINITY);
    assert_eq!(rows.column(1).as_primitive::<Float32Type>().value(0), f32::INFINITY);
    for (text, expected) in [
        ("{\"d\":1e999}", "found 1e999, which does not fit"),
        ("{\"d\":-1e999}", "found -1e999, which does not fit"),
        ("{\"f\":1e39}", "found 1e39, which does not fit"),
        ("{\"d\":\"inf\"}", "expected DOUBLE for column 'd', found \"inf\""),
        ("{\"d\":\"1\"}", "expected DOUBLE for column 'd', found \"1\""),
        ("{\"d\":\"nan\"}", "expected DOUBLE"),
        ("{\"d\":NaN}", "expected value"),
    ] {
        let error = read(text, &schema, false).unwrap_err().to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn an_array_around_all_records_is_refused_and_other_lines_are_left_out() {
    let schema = schema(&[("a", DataType::Int64, true)]);
    for array in ["[\n{\"a\":1},\n{\"a\":2}\n]\n", "[{\"a\":1},\n{\"a\":2}]\n", "[ {\"a\":1}]"] {
        for skip_errors in [false, true] {
            let error = read(array, &schema, skip_errors).unwrap_err().to_string();
            assert!(
                error.starts_with("x.ndjson:1:1: expected an object, found an array"),
                "{error}"
            );
        }
    }
    let (rows, left_out, first) =
        read("[INFO] go\n{\"a\":1},\n[\n{\"a\":2}\n]\n", &schema, true).unwrap();
    assert_eq!((rows.num_rows(), left_out), (1, 4));
    assert_eq!(first.unwrap(), "x.ndjson:1:1: expected an object, found an array");
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
    // Also where it is balanced, and no column.
    let nested = |depth: usize| {
        format!("{{\"x\":{}\"[\\\"[\"{}}}", "[".repeat(depth - 1), "]".repeat(depth - 1))
    };
    assert!(read_in(nested(128).as_bytes(), &schema, false, 64).is_ok());
    for depth in [129, 100_000] {
        let error = read_in(nested(depth).as_bytes(), &schema, false, 64).unwrap_err().to_string();
        assert!(error.contains(":1:133: objects and arrays are nested more than 128"), "{error}");
        let help = format!(
            "help: {} levels are read: write what is deeper as a text",
            super::members::DEPTH_MAX
        );
        assert!(error.contains(&help) && error.contains("'on_error' = 'skip'"), "{error}");
    }
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

/// Each record has the columns in another order, and lacks some.
#[test]
fn ten_thousand_columns_come_in_any_order() {
    let count = 10_000;
    let names: Vec<String> = (0..count).map(|n| format!("column{n}")).collect();
    let fields: Vec<_> = names.iter().map(|name| (&**name, DataType::Int64, true)).collect();
    let schema = schema(&fields);
    let mut text = String::new();
    for record in 0..20 {
        let member = |n: usize| {
            // Steps that have no factor in common with the number of columns.
            let column = n * [1, 9_999, 3, 7_919][record % 4] % count;
            (!column.is_multiple_of(record + 2)).then(|| format!("\"column{column}\":{column}"))
        };
        let members: Vec<String> = (0..count).filter_map(member).collect();
        text += &format!("{{{}}}\n", members.join(","));
    }
    let (rows, _, _) = read_in(text.as_bytes(), &schema, false, 1 << 20).unwrap();
    for (at, column) in rows.columns().iter().enumerate() {
        let column = column.as_primitive::<Int64Type>();
        for record in 0..20 {
            let expected = (!at.is_multiple_of(record + 2)).then_some(at as i64);
            assert_eq!(column.is_valid(record).then(|| column.value(record)), expected);
        }
    }
}

//! Tests of messages: what is a record, what a fault says, and that messages do not influence each
//! other.

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Field, Int32Type, Int64Type, Schema, SchemaRef};
use millstream_contract::table::{Failing, TableOptions};
use proptest::prelude::*;

use super::*;
use crate::options::OnError;

/// Number of the first message, and the distance from one to the next.
const FIRST: u64 = 1000;
const STEP: u64 = 10;

fn schema(columns: &[(&str, DataType)]) -> SchemaRef {
    let field = |(name, of): &(&str, DataType)| Field::new(*name, of.clone(), true);
    Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>()))
}

fn format(options: &[(&str, &str)], schema: &SchemaRef) -> Result<MessageFormat> {
    let table = TableOptions::new("t", schema.clone(), options.iter().copied());
    MessageFormat::from_options(&table, schema, None)
}

fn decoder(options: &[(&str, &str)], schema: &SchemaRef) -> MessageDecoder {
    let all: Vec<usize> = (0..schema.fields().len()).collect();
    format(options, schema).unwrap().decoder(&"topic 'x'".into(), schema, &all).unwrap()
}

fn messages<'a>(texts: impl IntoIterator<Item = &'a [u8]>) -> Messages {
    let mut messages = Messages::default();
    for (index, text) in texts.into_iter().enumerate() {
        messages.push(FIRST + STEP * index as u64, text);
    }
    messages
}

fn decode(decoder: &MessageDecoder, texts: &[&str]) -> Result<DecodedMessages> {
    decoder.decode(messages(texts.iter().map(|text| text.as_bytes())))
}

/// The rows of one or two columns, as text.
fn rows(batch: &RecordBatch) -> Vec<String> {
    let shown = |row| {
        let columns = batch
            .columns()
            .iter()
            .map(|column| arrow::util::display::array_value_to_string(column, row).unwrap());
        columns.collect::<Vec<_>>().join("|")
    };
    (0..batch.num_rows()).map(shown).collect()
}

fn number_and_text() -> SchemaRef {
    schema(&[("k", DataType::Int64), ("s", DataType::Utf8)])
}

const KEEP: (&str, &str) = ("on_error", "table:bad");
const SKIP: (&str, &str) = ("on_error", "skip");

/// Of each message, a fault that is reported for it alone; empty if it is well-formed.
fn faults(options: &[(&str, &str)], schema: &SchemaRef, texts: &[&str]) -> Vec<String> {
    let decoder = decoder(options, schema);
    let fault = |text: &&str| match decode(&decoder, &[text]) {
        Ok(_) => String::new(),
        Err(error) => {
            error.to_string().split("\n  help").next().unwrap().replace("topic 'x', ", "")
        }
    };
    texts.iter().map(fault).collect()
}

#[test]
fn json_is_one_object_over_any_lines() {
    let decoder = decoder(&[("format", "json")], &number_and_text());
    let texts = ["{\"k\":1}", "{\r\n\"k\": 2,\n\n \"s\": \"a\\nb\"\r\n}\n", " {}\n"];
    let DecodedMessages { decoded, message_of_row } = decode(&decoder, &texts).unwrap();
    assert_eq!(rows(&decoded.batch), ["1|", "2|a\nb", "|"]);
    assert_eq!(message_of_row, [0, 1, 2]);
    let places = decoded.places.unwrap();
    assert_eq!(places.place(1), "topic 'x', offset 1010");
    assert_eq!((places.offset(2), places.offset(3)), (Some(1020), None));
}

#[test]
fn json_that_is_no_object_is_malformed() {
    let found = faults(
        &[("format", "json")],
        &number_and_text(),
        &[
            "",
            " \n\t",
            "[{\"k\":1}]",
            "{\"k\":1}{\"k\":2}",
            "{\"k\":1}\n{\"k\":2}",
            "{\"s\":\"a\nb\"}",
            "{\"k\":1",
            "{\n \"s\": \"\u{e9}\", \"k\": \"a\"}",
            "17",
        ],
    );
    let expected = [
        "offset 1000: column 1: the message is empty",
        "offset 1000: column 1: the message is empty",
        "offset 1000: column 1: expected an object, found an array",
        "offset 1000: column 8: trailing characters",
        "offset 1000: line 2, column 1: trailing characters",
        "offset 1000: column 7: control character (\\u0000-\\u001F) found while parsing a string",
        "offset 1000: column 1: the object that starts here does not end in its message",
        "offset 1000: line 2, column 17: expected BIGINT for column 'k', found \"a\"",
        "offset 1000: column 1: expected an object, found '17'",
    ];
    assert_eq!(found, expected);
}

#[test]
fn malformed_messages_are_left_out_or_kept_as_they_were() {
    let texts = ["{\"k\":1}", "{\n\"k\":\n\"x\"\n}\r\n", "{\"k\":3}", "", "{\n}", "{\"k\":5"];
    let of = |on_error| decoder(&[("format", "json"), on_error], &number_and_text());
    let skipped = decode(&of(SKIP), &texts).unwrap();
    assert_eq!(skipped.message_of_row, [0, 2, 4]);
    let Decoded { left_out, first_left_out, failing, malformed, .. } = skipped.decoded;
    assert!(matches!(failing, Failing::LeftOut) && malformed.is_none());
    let first = first_left_out.unwrap();
    assert_eq!((left_out, first.before), (3, 1));
    assert!(first.to_string().starts_with("topic 'x', offset 1010: line 3, column 1: expected"));

    let kept = decode(&of(KEEP), &texts).unwrap().decoded;
    let bad = kept.malformed.unwrap();
    let raw: Vec<&[u8]> = bad.column(0).as_binary::<i32>().iter().flatten().collect();
    assert_eq!(raw, [texts[1], texts[3], texts[5]].map(str::as_bytes));
    let places: Vec<&str> = bad.column(1).as_string::<i32>().iter().flatten().collect();
    assert_eq!(places[1], "topic 'x', offset 1030: column 1");
    let Failing::Kept(raw) = kept.failing else { panic!("records are not kept") };
    let bytes = raw.bytes_of(&[0, 2]).unwrap();
    assert_eq!(bytes, [texts[0], texts[4]].map(str::as_bytes));
    assert_eq!(raw.malformed_before(), [1, 2, 3]);
}

#[test]
fn a_missing_member_may_be_a_fault() {
    let missing = ("json.fail-on-missing-field", "true");
    let found = faults(
        &[("format", "json"), missing],
        &number_and_text(),
        &["{\"k\":1}", "{\"s\":null,\"k\":1}"],
    );
    assert_eq!(found, ["offset 1000: column 1: the member 's' is missing", ""]);
    let both = [("format", "json"), missing, ("json.ignore-parse-errors", "true")];
    let error = format(&both, &number_and_text()).unwrap_err().to_string();
    assert!(error.contains("does not go with 'json.ignore-parse-errors'"), "{error}");
}

#[test]
fn csv_is_one_record() {
    let decoder = decoder(&[("format", "csv")], &number_and_text());
    let texts = ["1,a", "2,\"b\nc\"\r\n", "3,\"x\"\"\"\n", ",\n"];
    let DecodedMessages { decoded, message_of_row } = decode(&decoder, &texts).unwrap();
    assert_eq!(rows(&decoded.batch), ["1|a", "2|b\nc", "3|x\"", "|"]);
    assert_eq!(message_of_row, [0, 1, 2, 3]);
    assert_eq!(decoded.places.unwrap().place(2), "topic 'x', offset 1020");
}

#[test]
fn csv_that_is_no_record_is_malformed() {
    let texts =
        ["", "\n", "1,a\n2,b", "1", "1,\"a", "1,\"a\nb\"c", "x,a", "1,\"\n\n\",\n\"", "1,a\n\n"];
    let found = faults(&[("format", "csv")], &number_and_text(), &texts);
    let expected = [
        "offset 1000: column 1: the message is empty",
        "offset 1000: column 1: the message is empty",
        "offset 1000: line 2, column 1: expected one record, found 2",
        "offset 1000: column 1: expected 2 fields, one for each column, found 1",
        "offset 1000: column 3: the quote that opens here is never closed",
        "offset 1000: column 3: the quote that opens here is closed on line 2, where text follows",
        "offset 1000: column 1: expected BIGINT for column 'k', found 'x'",
        "offset 1000: column 1: expected 2 fields, one for each column, found 3 in a record of 3 \
         lines",
        "",
    ];
    assert_eq!(found, expected);
}

#[test]
fn an_open_quote_of_csv_takes_no_other_message() {
    for (options, bad) in [(KEEP, 3), (SKIP, 0)] {
        let decoder = decoder(&[("format", "csv"), options], &number_and_text());
        let texts = ["1,\"a", "2,b", "3,c\"", "4,\"d", "5,\",\"", "x,e", "6,f\n7,g", "8,\"h\ni\""];
        let DecodedMessages { decoded, message_of_row } = decode(&decoder, &texts).unwrap();
        assert_eq!(rows(&decoded.batch), ["2|b", "3|c\"", "5|,", "8|h\ni"]);
        assert_eq!((message_of_row, decoded.left_out), (vec![1, 2, 4, 7], 4));
        let first = decoded.first_left_out.unwrap();
        assert_eq!((first.before, &*first.place), (0, "topic 'x', offset 1000: column 3"));
        let kept = decoded.malformed.map_or(vec![], |bad| {
            bad.column(0).as_binary::<i32>().iter().flatten().map(<[u8]>::to_vec).collect()
        });
        let expected =
            [texts[0], texts[3], texts[5], texts[6]].map(|text| text.as_bytes().to_vec());
        assert_eq!(kept, if bad > 0 { expected.to_vec() } else { vec![] });
    }
    // Without the option, the first fault counts, whichever it is.
    let fault = |texts: &[&str]| {
        let decoder = decoder(&[("format", "csv")], &number_and_text());
        decode(&decoder, texts).unwrap_err().to_string()
    };
    assert!(fault(&["1,a", "x,b", "3,\"c"]).starts_with("topic 'x', offset 1010: column 1: exp"));
    assert!(fault(&["1,a", "2,\"b", "x,c"]).starts_with("topic 'x', offset 1010: column 3: the"));
}

#[test]
fn the_first_fault_of_csv_is_the_first_message() {
    let decoder = decoder(&[("format", "csv"), SKIP], &number_and_text());
    let first = |texts: &[&str]| {
        let first = decode(&decoder, texts).unwrap().decoded.first_left_out.unwrap();
        (first.place, first.before)
    };
    let place = |text: &str| format!("topic 'x', offset {text}");
    assert_eq!(first(&["1,a", "x,b", "2,b", "3,\"c"]), (place("1010: column 1"), 1));
    assert_eq!(first(&["1,a", "2,\"b", "2,b", "x,c"]), (place("1010: column 3"), 1));
    assert_eq!(first(&["x,a", "2,\"b"]), (place("1000: column 1"), 0));
    assert_eq!(first(&["2,\"b", "x,a"]), (place("1000: column 3"), 0));
}

#[test]
fn an_empty_message_of_a_single_field_is_null() {
    let schema = schema(&[("s", DataType::Utf8)]);
    let texts = ["", "a", "\n", "b\n", "\r\n"];
    let found = decode(&decoder(&[("format", "csv")], &schema), &texts).unwrap();
    assert_eq!(rows(&found.decoded.batch), ["", "a", "", "b", ""]);
    assert_eq!(found.decoded.batch.column(0).null_count(), 3);
    let found = faults(&[("format", "csv")], &schema, &["\n\n", "a\n\n"]);
    assert!(found.iter().all(|fault| fault.ends_with("expected one record, found 2")), "{found:?}");
}

#[test]
fn a_comment_of_csv_is_no_record() {
    let options = [("format", "csv"), ("csv.allow-comments", "true")];
    let texts = ["# \"", "1,a", "#\n2,b", "# x\n#"];
    let found = decode(&decoder(&options, &number_and_text()), &texts).unwrap();
    assert_eq!(rows(&found.decoded.batch), ["1|a", "2|b"]);
    assert_eq!((found.message_of_row, found.decoded.left_out), (vec![1, 2], 0));
    // Behind the line end of a comment there is no record of a single field.
    let single = schema(&[("s", DataType::Utf8)]);
    let found = decode(&decoder(&options, &single), &["#\n", "#\n\n"]).unwrap();
    assert_eq!((found.decoded.batch.num_rows(), found.decoded.left_out), (0, 0));
}

#[test]
fn a_raw_message_is_a_value() {
    let raw = |of: DataType, options: &[(&str, &str)], bytes: &[&[u8]]| {
        let schema = schema(&[("v", of)]);
        let decoder = decoder(&[&[("format", "raw")], options].concat(), &schema);
        decoder.decode(messages(bytes.iter().copied()))
    };
    let text = raw(DataType::Utf8, &[], &[b"a\nb\r\n", b"", b"\xc3\xa9"]).unwrap();
    assert_eq!(rows(&text.decoded.batch), ["a\nb\r\n", "", "\u{e9}"]);
    assert_eq!(text.decoded.batch.column(0).null_count(), 0);
    let bytes = raw(DataType::Binary, &[], &[b"\n", b"\xff\n\xfe"]).unwrap().decoded.batch;
    let bytes: Vec<&[u8]> = bytes.column(0).as_binary::<i32>().iter().flatten().collect();
    assert_eq!(bytes, [&b"\n"[..], b"\xff\n\xfe"]);
    let little = [("raw.endianness", "little-endian")];
    for (of, options, bytes, expected) in [
        (DataType::Int8, &[][..], &b"\xff"[..], "-1"),
        (DataType::Int16, &[], b"\x01\x02", "258"),
        (DataType::Int16, &little, b"\x01\x02", "513"),
        (DataType::Int32, &[], b"\xff\xff\xff\xfe", "-2"),
        (DataType::Int64, &little, b"\x0a\0\0\0\0\0\0\0", "10"),
        (DataType::Float32, &[], b"\x3f\xc0\0\0", "1.5"),
        (DataType::Float64, &little, b"\0\0\0\0\0\0\xf8\x3f", "1.5"),
        (DataType::Boolean, &[], b"\0", "false"),
        (DataType::Boolean, &[], b"\x02", "true"),
    ] {
        let found = raw(of.clone(), options, &[bytes]).unwrap();
        assert_eq!(rows(&found.decoded.batch), [expected], "{of} {bytes:?}");
    }
}

#[test]
fn a_raw_message_may_be_malformed() {
    let of = |data_type: DataType, texts: &[&[u8]]| {
        let schema = schema(&[("v", data_type)]);
        let fail = decoder(&[("format", "raw")], &schema).decode(messages(texts.iter().copied()));
        let keep = decoder(&[("format", "raw"), KEEP], &schema);
        let keep = keep.decode(messages(texts.iter().copied())).unwrap();
        let bad = keep.decoded.malformed.unwrap();
        let raw: Vec<Vec<u8>> =
            bad.column(0).as_binary::<i32>().iter().flatten().map(<[u8]>::to_vec).collect();
        (fail.unwrap_err().to_string(), raw, keep.message_of_row, keep.decoded.batch)
    };
    // The halves of a character in two messages are no character.
    let (error, raw, rows, _) = of(DataType::Utf8, &[b"a", b"\n\xc3", b"\xa9", b""]);
    assert!(
        error.contains("offset 1010: line 2, column 1: the message is not valid UTF-8"),
        "{error}"
    );
    assert_eq!((raw, rows), (vec![b"\n\xc3".to_vec(), b"\xa9".to_vec()], vec![0, 3]));
    let (error, raw, rows, batch) = of(DataType::Int32, &[b"abc", b"\0\0\0\x07", b"\0\0\0\0\0"]);
    assert!(error.contains("offset 1000: column 1: expected 4 bytes for INT, found 3"), "{error}");
    assert_eq!((raw.len(), rows), (2, vec![1]));
    assert_eq!(batch.column(0).as_primitive::<Int32Type>().values(), &[7]);
}

#[test]
fn columns_may_be_left_out_and_there_may_be_no_message() {
    for name in ["json", "csv"] {
        let schema = number_and_text();
        let format = format(&[("format", name)], &schema).unwrap();
        let decode = |projection: &[usize], texts: &[&str]| {
            let decoder = format.decoder(&"x".into(), &schema, projection).unwrap();
            decode(&decoder, texts).unwrap().decoded.batch
        };
        let text = if name == "json" { "{\"k\":1,\"s\":\"a\"}" } else { "1,a" };
        assert_eq!(rows(&decode(&[1, 0], &[text])), ["a|1"]);
        assert_eq!(decode(&[], &[text, text]).num_rows(), 2);
        assert_eq!(decode(&[0], &[]).num_rows(), 0);
        assert_eq!(decode(&[0], &[text]).column(0).as_primitive::<Int64Type>().value(0), 1);
    }
    let schema = schema(&[("v", DataType::Utf8)]);
    let format = format(&[("format", "raw")], &schema).unwrap();
    let decoder = format.decoder(&"x".into(), &schema, &[]).unwrap();
    assert_eq!(decode(&decoder, &["a", "b"]).unwrap().decoded.batch.num_rows(), 2);
}

#[test]
fn options_are_those_of_the_format() {
    let schema = number_and_text();
    let one = self::schema(&[("v", DataType::Date32)]);
    let name = |name: &str| format(&[("format", name)], &schema).unwrap().name();
    assert_eq!(["json", "jsonl", "ndjson", "csv"].map(name), ["json", "json", "json", "csv"]);
    let own = [
        ("format", "json"),
        ("json.map-null-key.mode", "DROP"),
        ("json.timestamp-format.standard", "ISO-8601"),
        ("json.ignore-parse-errors", "true"),
    ];
    assert_eq!(format(&own, &schema).unwrap().on_error(), OnError::Skip);
    for (options, schema, parts) in [
        (&[][..], &schema, &["messages need a format"][..]),
        (&[("format", "orc")], &schema, &["'orc' does not run here", "are json, csv, raw, avro"]),
        (&[("format", "avro-confluent")], &schema, &["needs a registry of schemas"]),
        (&[("format", "jsn")], &schema, &["there is no format 'jsn'", "did you mean 'json'?"]),
        (&[("format", "csv"), ("csv.header", "true")], &schema, &["a message has no header"]),
        (&[("format", "csv"), ("json.any-as-string", "true")], &schema, &["no such option"]),
        (
            &[("format", "raw")],
            &schema,
            &["a message of format 'raw' is one column, the table has 2"],
        ),
        (
            &[("format", "raw")],
            &one,
            &["raw cannot hold column 'v' of type DATE", "FLOAT or DOUBLE"],
        ),
        (&[("format", "raw"), ("raw.charset", "latin1")], &schema, &["expected 'UTF-8'"]),
        (&[("format", "json"), ("json.timestamp-format.standard", "x")], &schema, &["'ISO-8601'"]),
    ] {
        let error = format(options, schema).unwrap_err().to_string();
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    }
    assert!(format(&[("format", "csv"), ("csv.header", "false")], &schema).is_ok());
}

/// The outcome of messages: rows, malformed messages with their faults, and indices of messages.
type Outcome = (Vec<String>, Vec<(Vec<u8>, String)>, Vec<u32>);

fn outcome(found: DecodedMessages) -> Outcome {
    let DecodedMessages { decoded, message_of_row } = found;
    let bad = decoded.malformed.map_or(vec![], |bad| {
        let text = |at: usize, row| bad.column(at).as_string::<i32>().value(row).to_string();
        let raw = |row| bad.column(0).as_binary::<i32>().value(row).to_vec();
        let fault = |row| (raw(row), format!("{}: {}", text(1, row), text(2, row)));
        (0..bad.num_rows()).map(fault).collect()
    });
    assert_eq!(bad.len() as u64, decoded.left_out);
    let first = decoded.first_left_out.map(|first| first.to_string());
    assert_eq!(first.as_ref(), bad.first().map(|(_, fault)| fault));
    let places = decoded.places.unwrap();
    for (row, index) in message_of_row.iter().enumerate() {
        assert_eq!(places.offset(row), Some(FIRST + STEP * u64::from(*index)));
    }
    if let Failing::Kept(raw) = decoded.failing {
        let all: Vec<usize> = (0..decoded.batch.num_rows()).collect();
        assert_eq!(raw.bytes_of(&all).unwrap().len(), all.len());
    }
    (rows(&decoded.batch), bad, message_of_row)
}

/// Texts of bytes and words that mean something in some format.
fn text() -> impl Strategy<Value = Vec<u8>> {
    let parts: [&[u8]; 20] = [
        b"1",
        b"2,a",
        b"x",
        b",",
        b"\"",
        b"\n",
        b"\r",
        b"\r\n",
        b" ",
        b"#",
        b"\xc3",
        b"\xa9",
        b"{\"k\":7}",
        b"{\n\"s\":\"a\"}",
        b"{",
        b"}",
        b"[",
        b"\\",
        b"1,\"a\nb\"",
        b"\0\0\0",
    ];
    prop::collection::vec(prop::sample::select(parts.to_vec()), 0..5).prop_map(|text| text.concat())
}

proptest! {
    #[test]
    fn messages_do_not_influence_each_other(
        texts in prop::collection::vec(text(), 0..8),
        kind in 0usize..6,
    ) {
        let (name, schema) = match kind {
            0 => ("json", number_and_text()),
            1 => ("csv", number_and_text()),
            2 => ("csv", schema(&[("s", DataType::Utf8)])),
            3 => ("raw", schema(&[("s", DataType::Utf8)])),
            4 => ("raw", schema(&[("s", DataType::Binary)])),
            _ => ("raw", schema(&[("s", DataType::Int32)])),
        };
        let comments = [("format", name), KEEP, ("csv.allow-comments", "true")];
        let options = &comments[..if name == "csv" { 3 } else { 2 }];
        let decoder = decoder(options, &schema);
        let together = decoder.decode(messages(texts.iter().map(|text| &text[..]))).unwrap();
        let mut expected: Outcome = Default::default();
        for (index, text) in texts.iter().enumerate() {
            let mut one = Messages::with_capacity(text.len(), 1);
            one.push(FIRST + STEP * index as u64, text);
            prop_assert_eq!((one.len(), one.bytes()), (1, text.len()));
            let DecodedMessages { decoded, .. } = decoder.decode(one).unwrap();
            let rows = rows(&decoded.batch);
            expected.2.extend(rows.iter().map(|_| index as u32));
            expected.0.extend(rows);
            prop_assert!(expected.2.iter().filter(|of| **of == index as u32).count() <= 1);
            if let Some(first) = decoded.first_left_out {
                prop_assert!(decoded.batch.num_rows() == 0 && decoded.left_out == 1);
                expected.1.push((text.clone(), first.to_string()));
            }
        }
        let first = expected.1.first().map(|(_, fault)| fault.clone());
        prop_assert_eq!(outcome(together), expected);
        // Where the first fault ends the job, that fault is the same.
        let fail: Vec<_> = options.iter().copied().filter(|option| *option != KEEP).collect();
        let fail = self::decoder(&fail, &schema);
        let failed = fail.decode(messages(texts.iter().map(|text| &text[..]))).err();
        let place = |text: &str| text.split(": ").take(2).collect::<Vec<_>>().join(": ");
        let failed = failed.map(|error| place(&error.to_string()));
        prop_assert_eq!(failed, first.map(|first| place(&first)));
    }
}

//! Tests of Avro: schemas compared, values by hand, and bytes of any kind.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{DataType, Field, Fields, Schema, SchemaRef, TimeUnit};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use millstream_contract::table::TableOptions;
use millstream_contract::{Error, Result};
use proptest::prelude::*;

use super::*;
use crate::messages::{DecodedMessages, MessageDecoder, MessageFormat, MessageWriter, Messages};

/// A registry with some schemas; 500 stands for a registry that is away.
#[derive(Debug, Default)]
struct Schemas {
    known: HashMap<u32, String>,
    asked: Mutex<Vec<u32>>,
    registered: Mutex<Vec<String>>,
}

impl SchemaRegistry for Schemas {
    fn check(&self) -> Result<()> {
        Ok(())
    }

    fn schema(&self, number: u32) -> Result<Option<Arc<str>>> {
        self.asked.lock().unwrap().push(number);
        if number == 500 {
            return Err(Error::Internal("away".into()));
        }
        Ok(self.known.get(&number).map(|text| text.as_str().into()))
    }

    fn register(&self, schema: &str) -> Result<u32> {
        self.registered.lock().unwrap().push(schema.to_string());
        Ok(77)
    }

    fn place(&self) -> &str {
        "http://registry"
    }

    fn news(&self) -> Option<String> {
        None
    }
}

fn registry(schemas: &[(u32, &str)]) -> Arc<Schemas> {
    let known = schemas.iter().map(|(number, text)| (*number, text.to_string())).collect();
    Arc::new(Schemas { known, ..Schemas::default() })
}

fn table(options: &[(&str, &str)], schema: &SchemaRef) -> TableOptions {
    TableOptions::new("t", schema.clone(), options.iter().copied())
}

fn schema(columns: &[(&str, DataType)]) -> SchemaRef {
    let field = |(name, of): &(&str, DataType)| Field::new(*name, of.clone(), true);
    Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>()))
}

fn decoder(
    options: &[(&str, &str)],
    columns: &SchemaRef,
    registry: Option<Arc<Schemas>>,
) -> MessageDecoder {
    let registry = registry.map(|registry| registry as Arc<dyn SchemaRegistry>);
    let format = MessageFormat::from_options(&table(options, columns), columns, registry).unwrap();
    let all: Vec<usize> = (0..columns.fields().len()).collect();
    format.decoder(&"topic 'x', partition 0".into(), columns, &all).unwrap()
}

const CONFLUENT: (&str, &str) = ("format", "avro-confluent");
const SKIP: (&str, &str) = ("on_error", "skip");

fn messages<'m>(texts: impl IntoIterator<Item = &'m [u8]>) -> Messages {
    let mut messages = Messages::with_capacity(0, 0);
    for (at, text) in texts.into_iter().enumerate() {
        messages.push(100 + at as u64, text);
    }
    messages
}

fn rows(batch: &RecordBatch) -> Vec<String> {
    let options = FormatOptions::default().with_null("NULL");
    let columns: Vec<ArrayFormatter<'_>> = batch
        .columns()
        .iter()
        .map(|column| ArrayFormatter::try_new(column, &options).unwrap())
        .collect();
    let row = |row| columns.iter().map(|c| c.value(row).to_string()).collect::<Vec<_>>().join("|");
    (0..batch.num_rows()).map(row).collect()
}

/// Avro's encoding of a whole number: zigzag, seven bits a byte, the lowest first.
fn long(value: i64) -> Vec<u8> {
    let mut rest = ((value << 1) ^ (value >> 63)) as u64;
    let mut bytes = Vec::new();
    while rest >= 0x80 {
        bytes.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    bytes.push(rest as u8);
    bytes
}

fn text(value: &str) -> Vec<u8> {
    [long(value.len() as i64), value.as_bytes().to_vec()].concat()
}

fn message(id: u32, parts: &[&[u8]]) -> Vec<u8> {
    [&[0][..], &id.to_be_bytes(), &parts.concat()].concat()
}

fn record(fields: &str) -> String {
    format!(r#"{{"type": "record", "name": "R", "namespace": "a.b", "fields": [{fields}]}}"#)
}

#[test]
fn a_batch_has_messages_of_many_schemas() {
    let first = record(r#"{"name": "n", "type": "int"}, {"name": "s", "type": "string"}"#);
    // In another order, wider, with null, with fields that no column needs.
    let second = record(
        r#"{"name": "extra", "type": {"type": "map", "values": ["null", "int", "string"]}},
           {"name": "s", "type": ["string", "null"]},
           {"name": "tags", "type": {"type": "array", "items": {"type": "enum", "name": "E",
               "symbols": ["A", "B"]}}},
           {"name": "n", "type": ["null", "long"]}"#,
    );
    let third = record(r#"{"name": "N", "type": "long"}"#);
    let registry = registry(&[(1, &first), (2, &second), (3, &third)]);
    let columns = schema(&[("s", DataType::Utf8), ("n", DataType::Int64)]);
    let decoder = decoder(&[CONFLUENT], &columns, Some(registry.clone()));
    let extra = [long(1), text("k"), long(2), text("v"), long(0)].concat();
    let tags = [long(2), long(0), long(1), long(0)].concat();
    let all = [
        message(1, &[&long(-7), &text("a")]),
        message(2, &[&extra, &long(0), &text("é"), &tags, &long(1), &long(1 << 40)]),
        message(1, &[&long(8), &text("")]),
        message(3, &[&long(3)]),
        message(2, &[&long(0), &long(1), &long(0), &long(0)]),
    ];
    let found = decoder.decode(messages(all.iter().map(Vec::as_slice))).unwrap();
    let expected = ["a|-7", "é|1099511627776", "|8", "NULL|3", "NULL|NULL"];
    assert_eq!(rows(&found.decoded.batch), expected);
    assert_eq!(found.message_of_row, [0, 1, 2, 3, 4]);
    decoder.decode(messages(all.iter().map(Vec::as_slice))).unwrap();
    assert_eq!(*registry.asked.lock().unwrap(), [1, 2, 3], "each is asked for once");
}

/// A writer's schema with most types of Avro.
fn every_type() -> String {
    record(
        r#"{"name": "b", "type": "boolean"}, {"name": "tiny", "type": "int"},
        {"name": "f", "type": "float"},
        {"name": "d", "type": {"type": "fixed", "name": "D", "size": 3, "logicalType": "decimal",
            "precision": 6, "scale": 2}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "ms", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "us", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
        {"name": "plain", "type": "long"},
        {"name": "raw", "type": {"type": "fixed", "name": "F", "size": 2}},
        {"name": "kind", "type": {"type": "enum", "name": "K", "symbols": ["X", "Y"]}},
        {"name": "uuid", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "row", "type": ["null", {"type": "record", "name": "I", "fields": [
            {"name": "x", "type": "long"}, {"name": "y", "type": "bytes"}]}]},
        {"name": "list", "type": {"type": "array", "items": ["null", "int"]}},
        {"name": "map", "type": {"type": "map", "values": "int"}}"#,
    )
}

#[test]
fn values_of_every_type() {
    let list = |of| DataType::List(Arc::new(Field::new("item", of, true)));
    let inner = Fields::from(vec![
        Field::new("y", DataType::Utf8, true),
        Field::new("x", DataType::Float64, true),
        Field::new("missing", list(DataType::Int32), true),
    ]);
    let entry = Fields::from(vec![
        Field::new("key", DataType::Utf8, false),
        Field::new("value", DataType::Int64, true),
    ]);
    let entries = Arc::new(Field::new("entries", DataType::Struct(entry), false));
    let columns = schema(&[
        ("b", DataType::Boolean),
        ("tiny", DataType::Int8),
        ("f", DataType::Float64),
        ("d", DataType::Decimal128(12, 3)),
        ("day", DataType::Date32),
        ("ms", DataType::Timestamp(TimeUnit::Microsecond, None)),
        ("us", DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into()))),
        ("plain", DataType::Timestamp(TimeUnit::Millisecond, None)),
        ("raw", DataType::Binary),
        ("kind", DataType::Utf8),
        ("uuid", DataType::Utf8),
        ("row", DataType::Struct(inner)),
        ("list", list(DataType::Int64)),
        ("map", DataType::Map(entries, false)),
    ]);
    let decoder = decoder(&[CONFLUENT], &columns, Some(registry(&[(9, &every_type())])));
    let parts: [&[u8]; 14] = [
        &[1],
        &long(-128),
        &0.5f32.to_le_bytes(),
        &[0xff, 0xfe, 0x0c],
        &long(19_000),
        &long(1_700_000_000_123),
        &long(1_700_000_000_456_000),
        &long(-1),
        b"\xff\n",
        &long(1),
        &text("f81d4fae-7dec-11d0-a765-00a0c91e6bf6"),
        &[long(1), long(5), text("é")].concat(),
        // A block with its size in bytes, and a second block.
        &[long(-1), long(2), long(1), long(6), long(1), long(0), long(0)].concat(),
        &[long(1), text("k"), long(-3), long(0)].concat(),
    ];
    let found = decoder.decode(messages([message(9, &parts).as_slice()])).unwrap().decoded;
    assert_eq!(
        rows(&found.batch),
        ["true|-128|0.5|-5.000|2022-01-08|2023-11-14T22:13:20.123|2023-11-14T22:13:20.456Z|\
          1969-12-31T23:59:59.999|ff0a|Y|f81d4fae-7dec-11d0-a765-00a0c91e6bf6|\
          {y: é, x: 5.0, missing: NULL}|[6, NULL]|{k: -3}"]
    );
    assert_eq!(found.batch.schema(), columns);
}

#[test]
fn a_given_schema_has_aliases_and_defaults() {
    let writer = record(r#"{"name": "old", "type": "int"}"#);
    let given = record(
        r#"{"name": "fresh", "type": ["null", "long"], "aliases": ["old"], "default": null},
        {"name": "s", "type": "string", "default": "none"},
        {"name": "n", "type": ["int", "null"], "default": 5},
        {"name": "a", "type": {"type": "array", "items": "int"}, "default": [1, 2]}"#,
    );
    let columns = schema(&[
        ("n", DataType::Int32),
        ("fresh", DataType::Int64),
        ("s", DataType::Utf8),
        ("a", DataType::List(Arc::new(Field::new("item", DataType::Int32, true)))),
    ]);
    let options = [CONFLUENT, ("avro-confluent.schema", given.as_str())];
    let decoder = decoder(&options, &columns, Some(registry(&[(1, &writer)])));
    let found = decoder.decode(messages([message(1, &[&long(3)]).as_slice()])).unwrap();
    assert_eq!(rows(&found.decoded.batch), ["5|3|none|[1, 2]"]);
}

#[test]
fn a_root_may_be_null() {
    let writer = format!(r#"["null", {}]"#, record(r#"{"name": "n", "type": "int"}"#));
    let columns = schema(&[("n", DataType::Int32), ("m", DataType::Int32)]);
    let decoder = decoder(&[CONFLUENT, SKIP], &columns, Some(registry(&[(1, &writer)])));
    let all = [message(1, &[&long(1), &long(4)]), message(1, &[&long(0)])];
    let found = decoder.decode(messages(all.iter().map(Vec::as_slice))).unwrap().decoded;
    assert_eq!((rows(&found.batch), found.left_out), (vec!["4|NULL".to_string()], 1));
    assert!(found.first_left_out.unwrap().message.contains("expected a record, found null"));
}

#[test]
fn malformed_messages_are_named() {
    let writer = record(r#"{"name": "n", "type": "int"}, {"name": "s", "type": "string"}"#);
    let other = record(r#"{"name": "n", "type": "double"}, {"name": "s", "type": "string"}"#);
    let strange = record(r#"{"name": "x", "type": "int"}"#);
    let columns = Arc::new(Schema::new(vec![
        Field::new("n", DataType::Int16, true),
        Field::new("s", DataType::Utf8, true),
    ]));
    let schemas = [(1, writer.as_str()), (2, &other), (3, &strange), (4, "{")];
    let good = message(1, &[&long(1), &text("a")]);
    for (bad, parts) in [
        (vec![], &["expected the byte 0", "found no byte"][..]),
        (b"{\"n\": 1}".to_vec(), &["expected the byte 0", "found the byte 123", "'avro', 'json'"]),
        (vec![0, 0, 0, 1], &["found 4 bytes"]),
        (message(7, &[]), &["schema 7 of the message is unknown to the registry http://registry"]),
        (message(1, &[]), &["does not fit its schema", "cut off"]),
        (message(1, &[&long(1)]), &["does not fit its schema"]),
        (message(1, &[&long(1), &long(5), b"abc"]), &["does not fit its schema"]),
        (message(1, &[&long(1), &long(-5)]), &["does not fit its schema"]),
        (message(1, &[&long(1), &text("a"), b"\0"]), &["bytes behind its end"]),
        (message(1, &[&long(1), &text("a"), &good]), &["bytes behind its end"]),
        (message(1, &[&long(1), &long(2), b"\xc3\xc3"]), &["does not fit its schema"]),
        (message(1, &[&long(40_000), &text("a")]), &["column 'n': ", "40000"]),
        (
            message(2, &[&[0; 8], &text("a")]),
            &["schema 2 of", "the field 'n' is double", "SMALLINT"],
        ),
        (message(3, &[&long(1)]), &["schema 3 of", "it has none of the table's columns"]),
        (message(4, &[&long(1)]), &["schema 4 of", "it is no JSON"]),
    ] {
        let all = [&good[..], &bad, &good, &good];
        let fail = decoder(&[CONFLUENT], &columns, Some(registry(&schemas)));
        let error = fail.decode(messages(all)).unwrap_err().to_string();
        assert!(error.contains("topic 'x', partition 0, offset 101: "), "{error}");
        assert!(parts.iter().all(|part| error.contains(part)), "{parts:?}: {error}");
        let skip = decoder(&[CONFLUENT, SKIP], &columns, Some(registry(&schemas)));
        let found = skip.decode(messages(all)).unwrap();
        assert_eq!(
            (rows(&found.decoded.batch), found.decoded.left_out),
            (vec!["1|a".into(); 3], 1)
        );
        assert_eq!(found.message_of_row, [0, 2, 3]);
        let keep = [CONFLUENT, ("on_error", "table:bad")];
        let kept =
            decoder(&keep, &columns, Some(registry(&schemas))).decode(messages(all)).unwrap();
        let malformed = kept.decoded.malformed.unwrap();
        assert_eq!(malformed.column(0).as_binary::<i32>().value(0), &bad[..]);
    }
    let away = decoder(&[CONFLUENT, SKIP], &columns, Some(registry(&schemas)));
    let error = away.decode(messages([message(500, &[]).as_slice()])).unwrap_err();
    assert!(error.to_string().contains("away"), "{error}");
}

#[test]
fn the_schema_of_a_table_is_flinks() {
    let inner = Fields::from(vec![Field::new("x", DataType::Int16, false)]);
    let columns: SchemaRef = Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("ts", DataType::Timestamp(TimeUnit::Millisecond, None), true),
        Field::new("price", DataType::Decimal128(10, 2), true),
        Field::new("row", DataType::Struct(inner), true),
    ]));
    // Written down from AvroSchemaConverter of Flink.
    let expected = |timestamp: &str| -> serde_json::Value {
        serde_json::from_str(&format!(
            r#"{{"type": "record", "name": "record", "namespace": "org.apache.flink.avro.generated",
            "fields": [{{"name": "id", "type": "long"}},
            {{"name": "ts", "type": ["null", {{"type": "long", "logicalType": "{timestamp}"}}],
              "default": null}},
            {{"name": "price", "type": ["null", {{"type": "bytes", "logicalType": "decimal",
              "precision": 10, "scale": 2}}], "default": null}},
            {{"name": "row", "type": ["null", {{"type": "record", "name": "record_row",
              "fields": [{{"name": "x", "type": "int"}}]}}], "default": null}}]}}"#
        ))
        .unwrap()
    };
    let derived = |legacy| derive::derived(columns.fields(), legacy).unwrap();
    assert_eq!(derived(true), expected("timestamp-millis"));
    assert_eq!(derived(false), expected("local-timestamp-millis"));
    let wrong = schema(&[("a-b", DataType::Int32)]);
    assert!(derive::derived(wrong.fields(), true).unwrap_err().contains("no field 'a-b'"));
}

fn writer(
    options: &[(&str, &str)],
    columns: &SchemaRef,
    registry: Option<Arc<Schemas>>,
) -> Result<MessageWriter> {
    let registry = registry.map(|registry| registry as Arc<dyn SchemaRegistry>);
    MessageWriter::from_options(&table(options, columns), columns, registry)
}

#[test]
fn rows_are_written() {
    let columns = schema(&[
        ("tiny", DataType::Int8),
        ("s", DataType::Utf8),
        ("ts", DataType::Timestamp(TimeUnit::Millisecond, None)),
        ("d", DataType::Decimal128(5, 2)),
    ]);
    let plain = decoder(&[("format", "avro")], &columns, None);
    let one = [long(1), long(-7), long(1), text("x"), long(1), long(1_000), long(1), long(2)];
    let one = [one.concat(), vec![0xcf, 0xc7]].concat();
    let none = long(0).repeat(4);
    let rows = plain.decode(messages([&one[..], &none])).unwrap().decoded.batch;
    assert_eq!(self::rows(&rows), ["-7|x|1970-01-01T00:00:01|-123.45", "NULL|NULL|NULL|NULL"]);
    let write = writer(&[("format", "avro")], &columns, None).unwrap();
    write.open().unwrap();
    let written: Vec<Vec<u8>> = write.messages(&rows).unwrap().into_iter().flatten().collect();
    assert_eq!(written, [one.clone(), none.clone()]);
    let registry = registry(&[]);
    let write = writer(&[CONFLUENT], &columns, Some(registry.clone())).unwrap();
    assert!(write.messages(&rows).is_err(), "it is not open");
    write.open().unwrap();
    let written: Vec<Vec<u8>> = write.messages(&rows).unwrap().into_iter().flatten().collect();
    assert_eq!(written, [message(77, &[&one]), message(77, &[&none])]);
    let registered = registry.registered.lock().unwrap();
    assert!(registered[0].contains("org.apache.flink.avro.generated"), "{registered:?}");
}

#[test]
fn a_given_schema_is_written() {
    let columns = schema(&[("n", DataType::Int32), ("s", DataType::Utf8)]);
    let given =
        record(r#"{"name": "s", "type": "string"}, {"name": "n", "type": ["long", "null"]}"#);
    let rows = RecordBatch::try_new(
        columns.clone(),
        vec![
            Arc::new(arrow::array::Int32Array::from(vec![Some(1), None])),
            Arc::new(arrow::array::StringArray::from(vec![Some("a"), Some("b")])),
        ],
    )
    .unwrap();
    let options = [CONFLUENT, ("avro-confluent.schema", given.as_str())];
    let write = writer(&options, &columns, Some(registry(&[]))).unwrap();
    write.open().unwrap();
    let written: Vec<Vec<u8>> = write.messages(&rows).unwrap().into_iter().flatten().collect();
    let expected =
        [message(77, &[&text("a"), &long(0), &long(1)]), message(77, &[&text("b"), &long(1)])];
    assert_eq!(written, expected);
    for (fields, part) in [
        (r#"{"name": "n", "type": "int"}"#, "no field for column 's'"),
        (r#"{"name": "s", "type": "int"}, {"name": "n", "type": "int"}"#, "does not take values"),
        (r#"{"name": "s", "type": "string"}, {"name": "x", "type": "int"}"#, "no column 'x'"),
    ] {
        let given = record(fields);
        let options = [CONFLUENT, ("avro-confluent.schema", given.as_str())];
        let error = writer(&options, &columns, Some(registry(&[]))).unwrap_err().to_string();
        assert!(error.contains(part) && error.contains("avro-confluent.schema"), "{error}");
    }
}

/// A writer's schema, with what can be wrong in bytes: lengths, tags, blocks, texts.
fn odd() -> String {
    record(
        r#"{"name": "n", "type": ["null", "int"]},
        {"name": "s", "type": "string"},
        {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A", "B"]}},
        {"name": "d", "type": {"type": "bytes", "logicalType": "decimal", "precision": 6,
            "scale": 2}},
        {"name": "skipped", "type": {"type": "map", "values": ["int", "string", "null"]}},
        {"name": "l", "type": {"type": "array", "items": ["null", "string"]}}"#,
    )
}

/// Bytes of messages: good ones, cut off or with a byte changed, and any bytes.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let good = (any::<i32>(), "[aé]{0,3}", 0i64..2, 0usize..3).prop_map(|(n, s, e, l)| {
        let list = match l {
            0 => long(0),
            l => [long(l as i64), [long(1), text("x")].concat().repeat(l), long(0)].concat(),
        };
        let parts = [long(1), long(n.into()), text(&s), long(e), long(1), vec![7], long(0), list];
        message(1, &[&parts.concat()])
    });
    let good = good.boxed();
    let any_bytes = prop::collection::vec(any::<u8>(), 0..30);
    prop_oneof![
        good.clone(),
        (good.clone(), any::<prop::sample::Index>())
            .prop_map(|(text, at)| text[..at.index(text.len())].to_vec()),
        (good, any::<prop::sample::Index>(), any::<u8>()).prop_map(|(mut text, at, byte)| {
            let at = at.index(text.len());
            text[at] = byte;
            text
        }),
        any_bytes.clone(),
        any_bytes.prop_map(|rest| message(1, &[&rest])),
    ]
}

proptest! {
    #[test]
    fn bytes_of_any_kind_are_rows_or_faults(all in prop::collection::vec(bytes(), 0..12)) {
        let columns = schema(&[
            ("l", DataType::List(Arc::new(Field::new("item", DataType::Utf8, true)))),
            ("d", DataType::Decimal128(6, 2)),
            ("e", DataType::Utf8),
            ("s", DataType::Utf8),
            ("n", DataType::Int16),
        ]);
        let decoder = decoder(&[CONFLUENT, SKIP], &columns, Some(registry(&[(1, &odd())])));
        let outcome = |found: DecodedMessages| {
            (rows(&found.decoded.batch), found.message_of_row, found.decoded.left_out)
        };
        let together = decoder.decode(messages(all.iter().map(Vec::as_slice))).unwrap();
        let (mut expected, mut indices, mut left_out) = (Vec::new(), Vec::new(), 0);
        for (at, one) in all.iter().enumerate() {
            let (rows, _, left) = outcome(decoder.decode(messages([&one[..]])).unwrap());
            prop_assert_eq!(rows.len() as u64 + left, 1);
            indices.extend(rows.iter().map(|_| at as u32));
            expected.extend(rows);
            left_out += left;
        }
        prop_assert_eq!(outcome(together), (expected, indices, left_out));
    }
}

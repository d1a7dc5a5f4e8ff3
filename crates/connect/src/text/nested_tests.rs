//! Tests of writing values that are made of others, against output that was written by hand.

use std::sync::Arc;

use arrow::array::builder::{
    FixedSizeListBuilder, Int32Builder, LargeListBuilder, ListBuilder, MapBuilder, StringBuilder,
};
use arrow::array::{
    Array, ArrayRef, BinaryArray, Float64Array, Int32Array, ListArray, RecordBatch, StringArray,
    StructArray, TimestampMillisecondArray,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{DataType, Field, Fields};

use super::Format;
use super::tests::{columns, shown};

/// Three rows; the second is all NULL, and beneath its NULLs there are values.
fn every_kind() -> RecordBatch {
    let nulls = || Some(NullBuffer::from(vec![true, false, true]));
    let fields: Vec<(&str, ArrayRef)> = vec![
        ("a", Arc::new(Int32Array::from(vec![Some(1), Some(2), None]))),
        ("b \"c\"", Arc::new(StringArray::from(vec!["x,\"y\"\n", "q", "\u{e9}"]))),
        ("f", Arc::new(Float64Array::from(vec![0.1, 2.0, f64::NAN]))),
        ("t", Arc::new(TimestampMillisecondArray::from(vec![0, 1, -1]))),
        ("y", Arc::new(BinaryArray::from(vec![&b"hi"[..], b"", b"\x00"]))),
    ];
    let named =
        |(name, column): &(&str, ArrayRef)| Field::new(*name, column.data_type().clone(), true);
    let row_fields: Fields = fields.iter().map(named).collect();
    let row = StructArray::new(row_fields, fields.into_iter().map(|(_, c)| c).collect(), nulls());
    let item = Field::new("item", row.data_type().clone(), true);
    let rows = ListArray::new(
        Arc::new(item),
        OffsetBuffer::from_lengths([0, 1, 2]),
        Arc::new(row.clone()),
        nulls(),
    );
    let mut lists = ListBuilder::new(ListBuilder::new(Int32Builder::new()));
    lists.values().append_value([Some(1), None]);
    lists.values().append_null();
    lists.append(true);
    lists.append(false);
    lists.values().append_value([]);
    lists.append(true);
    let mut maps = MapBuilder::new(None, StringBuilder::new(), Int32Builder::new());
    for (key, value) in [("k\"", Some(1)), ("", None), ("k\"", Some(3))] {
        maps.keys().append_value(key);
        maps.values().append_option(value);
    }
    maps.append(true).unwrap();
    maps.append(false).unwrap();
    maps.append(true).unwrap();
    let mut numbered = MapBuilder::new(None, Int32Builder::new(), StringBuilder::new());
    numbered.keys().append_value(-7);
    numbered.values().append_value("seven");
    (0..3).for_each(|row| numbered.append(row != 1).unwrap());
    columns(vec![
        ("r", Arc::new(row)),
        ("rs", Arc::new(rows)),
        ("ls", Arc::new(lists.finish())),
        ("m", Arc::new(maps.finish())),
        ("n", Arc::new(numbered.finish())),
    ])
}

#[test]
fn json_of_rows_arrays_and_maps() {
    let expected = concat!(
        r#"{"r":{"a":1,"b \"c\"":"x,\"y\"\n","f":0.1,"t":"1970-01-01 00:00:00.000","y":"aGk="},"#,
        r#""rs":[],"ls":[[1,null],null],"m":{"k\"":1,"":null,"k\"":3},"n":{"-7":"seven"}}"#,
        "\n",
        r#"{"r":null,"rs":null,"ls":null,"m":null,"n":null}"#,
        "\n",
        r#"{"r":{"a":null,"b \"c\"":"é","f":"NaN","t":"1969-12-31 23:59:59.999","y":"AA=="},"#,
        r#""rs":[null,{"a":null,"b \"c\"":"é","f":"NaN","t":"1969-12-31 23:59:59.999","#,
        r#""y":"AA=="}],"ls":[[]],"m":{},"n":{}}"#,
        "\n",
    );
    let batch = every_kind();
    assert_eq!(shown(Format::Ndjson, None, std::slice::from_ref(&batch)), expected);
    // Wherever a batch begins.
    let lines: Vec<&str> = expected.split_inclusive('\n').collect();
    assert_eq!(shown(Format::Ndjson, None, &[batch.slice(2, 1)]), lines[2]);
    assert_eq!(shown(Format::Ndjson, None, &[batch.slice(0, 1), batch.slice(1, 2)]), expected);
}

#[test]
fn csv_and_tables_show_them_as_json() {
    let batch = every_kind().project(&[2, 3, 4]).unwrap();
    let expected = concat!(
        "ls,m,n\n",
        r#""[[1,null],null]","{""k\"""":1,"""":null,""k\"""":3}","{""-7"":""seven""}""#,
        "\n,,\n",
        "[[]],{},{}\n",
    );
    assert_eq!(shown(Format::Csv, None, std::slice::from_ref(&batch)), expected);
    let table = shown(Format::Table, None, &[batch.project(&[2]).unwrap()]);
    assert!(table.contains("│ {\"-7\":\"seven\"} │\n│ NULL "), "{table}");
    // What could move the cursor is harmless within them, too.
    let text = StringArray::from(vec!["\u{1b}[31m\u{202e}"]);
    let field = Field::new("s", DataType::Utf8, true);
    let row = StructArray::new(vec![field].into(), vec![Arc::new(text)], None);
    let table = shown(Format::Table, None, &[columns(vec![("r", Arc::new(row))])]);
    assert!(table.contains(r#"{"s":"\u001b[31m\u{202e}"}"#), "{table}");
}

#[test]
fn lists_of_every_layout() {
    let mut large = LargeListBuilder::new(Int32Builder::new());
    let mut fixed = FixedSizeListBuilder::new(Int32Builder::new(), 2);
    for row in 0..3 {
        large.append_value((0..row).map(Some));
        fixed.values().append_slice(&[row, -row]);
        fixed.append(row != 1);
    }
    let batch = columns(vec![("l", Arc::new(large.finish())), ("f", Arc::new(fixed.finish()))]);
    let expected =
        ["{\"l\":[],\"f\":[0,0]}\n", "{\"l\":[0],\"f\":null}\n", "{\"l\":[0,1],\"f\":[2,-2]}\n"];
    assert_eq!(shown(Format::Ndjson, None, std::slice::from_ref(&batch)), expected.concat());
    assert_eq!(shown(Format::Ndjson, None, &[batch.slice(1, 2)]), expected[1..].concat());
}

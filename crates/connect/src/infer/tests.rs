//! Inference from whole files, and what their reader makes of what is inferred.

use std::path::PathBuf;

use arrow::datatypes::{Field, TimeUnit};
use millstream_contract::declaration::DeclaredTime;
use proptest::prelude::*;

use super::*;
use crate::csv::{CsvFormat, Dialect, Header};
use crate::records::RecordFormat;
use crate::source::FileTable;
use millstream_contract::table::{OpenOptions, SplitPoll, Table};

/// An empty folder of this name.
pub(crate) fn folder(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("millstream-infer-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

fn of_text(name: &str, text: &str) -> Result<Declaration> {
    let sample = Sample {
        name: name.into(),
        head: text.as_bytes().to_vec(),
        whole: true,
        later: Vec::new(),
    };
    let format = FormatKind::of_name(name).unwrap_or_else(|| FormatKind::of_bytes(text.as_bytes()));
    let samples = if text.is_empty() { vec![] } else { vec![sample] };
    declared(name, format, columns(name, format, &samples, &[])?, true)
}

fn shown(declaration: &Declaration) -> String {
    let columns = declaration.columns.iter().map(|c| format!("{} {}", c.name, c.sql_type));
    columns.collect::<Vec<_>>().join(", ")
}

fn option<'a>(declaration: &'a Declaration, key: &str) -> Option<&'a str> {
    declaration.options.iter().find(|(known, _)| known == key).map(|(_, value)| value.as_str())
}

#[test]
fn csv_of_every_dialect() {
    for (text, columns, options) in [
        ("a,b\n1,x\n", "a BIGINT, b STRING", vec![("csv.header", "true")]),
        ("a;b\n1,5;x\n2,5;y\n", "a STRING, b STRING", vec![("csv.field-delimiter", ";")]),
        ("a\tb\n1\t2.5\n", "a BIGINT, b DOUBLE", vec![("csv.field-delimiter", "\\t")]),
        ("a|b\r\n1|true\r\n", "a BIGINT, b BOOLEAN", vec![("csv.field-delimiter", "|")]),
        ("1,x\n2,y\n", "c1 BIGINT, c2 STRING", vec![("csv.header", "false")]),
        ("x,y\nz,w\n", "x STRING, y STRING", vec![("csv.header", "true")]),
        ("x,y\nx,w\n", "c1 STRING, c2 STRING", vec![("csv.header", "false")]),
        ("name\nann\nbob\n", "name STRING", vec![("csv.header", "true")]),
        ("\"a\",\"b\"\n\"1\",\"x, y\"\n", "a BIGINT, b STRING", vec![("csv.header", "true")]),
        ("a,b\n1,NULL\n2,3\n", "a BIGINT, b BIGINT", vec![("csv.null-literal", "NULL")]),
        ("a,b\n1,NA\nx,y\n", "a STRING, b STRING", vec![]),
        ("a,b\n1,\"\n2,x\n", "a BIGINT, b STRING", vec![("csv.disable-quote-character", "true")]),
        ("a,a,\n1,2,3\n", "a BIGINT, a_2 BIGINT, column_3 BIGINT", vec![("csv.header", "skip")]),
        ("a,A\n1,2\n", "a BIGINT, A BIGINT", vec![("csv.header", "true")]),
        ("ts,page,millis\n", "ts STRING, page STRING, millis STRING", vec![("csv.header", "true")]),
        ("1,2\n", "c1 BIGINT, c2 BIGINT", vec![("csv.header", "false")]),
        ("n\n007\n", "n STRING", vec![("csv.header", "true")]),
        ("a,b\n1,\n2,\n", "a BIGINT, b STRING", vec![("csv.header", "true")]),
    ] {
        let found = of_text("x.csv", text).unwrap();
        assert_eq!(shown(&found), columns, "{text:?}");
        for (key, value) in options {
            assert_eq!(option(&found, key), Some(value), "{text:?}");
        }
        assert!(option(&found, "csv.null-literal").is_none() || text.contains("NULL"), "{text:?}");
    }
}

#[test]
fn the_user_is_told_what_is_open_to_doubt() {
    for (text, remark) in [
        ("x,y\nz,w\n", "taken for a header"),
        ("a,a\n1,2\n", "field 2 is called a_2"),
        ("a,b\n", "no records"),
        ("a,b\n1,2\n3\n4,5\n6,7\n", "line 3 does not have the 2 fields"),
        ("a,b\n1,NULL\n2,3\n", "the text NULL"),
    ] {
        let remarks = of_text("x.csv", text).unwrap().remarks.join("; ");
        assert!(remarks.contains(remark), "{text:?}: {remarks}");
    }
    assert!(of_text("x.csv", "a,b\n1,2\n").unwrap().remarks.is_empty());
    let note = &of_text("x.csv", "a,b\n1,\n").unwrap().columns[1].note;
    assert_eq!(note.as_deref(), Some("no value"));
}

#[test]
fn what_is_no_table_is_refused() {
    for (name, text, message) in [
        ("x.csv", "", "empty"),
        ("x.csv", "\u{0}\u{1}\u{2}", "no text"),
        ("x.ndjson", "[1]", "expected an object, found an array"),
        ("x.ndjson", "{}\n", "which columns"),
    ] {
        let error = of_text(name, text).unwrap_err().to_string();
        assert!(error.contains(message) && error.contains("help"), "{text:?}: {error}");
    }
    let sample =
        Sample { name: "x.csv".into(), head: b"\xff\xfea\0".to_vec(), whole: true, later: vec![] };
    let error = columns("x.csv", FormatKind::Csv, &[sample], &[]).unwrap_err().to_string();
    assert!(error.contains("UTF-16") && error.contains("iconv"), "{error}");
}

#[test]
fn the_format_is_that_of_the_name_or_of_the_content() {
    for (name, expected) in [
        ("a.csv", Some(FormatKind::Csv)),
        ("a.csv.gz", Some(FormatKind::Csv)),
        ("dir.parquet/a.JSONL.zst", Some(FormatKind::Ndjson)),
        ("a.tsv.bz2", Some(FormatKind::Tabs)),
        ("a.parquet", Some(FormatKind::Parquet)),
        ("a.log", None),
        ("a.gz", None),
        ("a", None),
    ] {
        assert_eq!(FormatKind::of_name(name), expected, "{name}");
    }
    assert_eq!(FormatKind::of_bytes(b" {\"a\":1}"), FormatKind::Ndjson);
    assert_eq!(FormatKind::of_bytes(b"PAR1\x15"), FormatKind::Parquet);
    assert_eq!(FormatKind::of_bytes(b"a,b"), FormatKind::Csv);
}

#[test]
fn the_files_of_a_pattern_are_one_table() {
    let dir = folder("pattern");
    for (name, text) in [
        ("a.csv", "ts,v\n2024-05-01 00:00:00,1\n2024-05-01 00:01:00,2\n"),
        ("b.csv", ""),
        // In another order, with another type.
        ("c.csv", "v,ts\n2.5,2024-05-01 00:00:30\n3,2024-05-01 00:00:10\n"),
    ] {
        std::fs::write(dir.join(name), text).unwrap();
    }
    let found = declaration("*.csv", &dir).unwrap();
    assert_eq!(shown(&found), "ts TIMESTAMP(3), v DOUBLE");
    assert_eq!(option(&found, "path"), Some("*.csv"));
    // Files are splits of their own: that the second begins before the first ends is no disorder.
    let DeclaredTime { column, delay_us, .. } = found.event_time.unwrap();
    assert_eq!((column.as_str(), delay_us), ("ts", 60_000_000));
    let error = declaration("*.tsv", &dir).unwrap_err().to_string();
    assert!(error.contains("no file matches"), "{error}");
    let error = declaration("a.csw", &dir).unwrap_err().to_string();
    assert!(error.contains("did you mean") && error.contains("a.csv"), "{error}");
}

/// A worker that gets no rows writes a file with nothing in it.
#[test]
fn files_with_nothing_in_them_declare_nothing() {
    let dir = folder("nothing");
    for (name, text) in [("a", ""), ("b", ""), ("c", "{\"n\": 1}\n"), ("d", "\n"), ("e", "")] {
        std::fs::write(dir.join(name), text).unwrap();
    }
    let found = declaration("?", &dir).unwrap();
    assert_eq!((shown(&found).as_str(), option(&found, "format")), ("n BIGINT", Some("ndjson")));
    let error = declaration("[ab]", &dir).unwrap_err().to_string();
    assert!(error.contains("it is empty"), "{error}");
}

#[test]
fn a_parquet_file_has_its_types_and_the_disorder_of_its_times() {
    use arrow::array::{ArrayRef, Int32Array, ListArray, RecordBatch, TimestampMillisecondArray};
    use arrow::datatypes::Int32Type;
    let dir = folder("parquet");
    let times = TimestampMillisecondArray::from(vec![1_000, 9_000, 6_000, 12_000]);
    let list = ListArray::from_iter_primitive::<Int32Type, _, _>(vec![Some(vec![Some(1)]); 4]);
    let columns: [(&str, ArrayRef); 3] = [
        ("n", Arc::new(Int32Array::from(vec![1, 2, 3, 4]))),
        ("at", Arc::new(times)),
        ("list", Arc::new(list)),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    for name in ["a.parquet", "b"] {
        let file = std::fs::File::create(dir.join(name)).unwrap();
        let mut writer =
            ::parquet::arrow::ArrowWriter::try_new(file, batch.schema(), None).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        let found = declaration(name, &dir).unwrap();
        let DeclaredTime { column, delay_us, reason, .. } = found.event_time.clone().unwrap();
        assert_eq!((column.as_str(), delay_us), ("at", 5_000_000), "{reason}");
        // Nested columns are read or left out, but never forgotten.
        let listed = found.columns.iter().any(|column| column.name == "list");
        assert!(listed || found.remarks.iter().any(|remark| remark.contains("list")), "{found:?}");
        assert!(shown(&found).starts_with("n INT, at TIMESTAMP(3)"), "{found:?}");
    }
    std::fs::write(dir.join("bad.parquet"), "PAR1 and no more").unwrap();
    let error = declaration("bad.parquet", &dir).unwrap_err().to_string();
    assert!(error.contains("bad.parquet"), "{error}");
}

#[test]
fn json_of_several_kinds_is_a_string_that_takes_all() {
    let found = of_text("x.ndjson", "{\"v\":1,\"w\":\"a\"}\n{\"v\":\"x\",\"w\":null}\n").unwrap();
    assert_eq!(shown(&found), "v STRING, w STRING");
    assert_eq!(option(&found, "json.any-as-string"), Some("true"));
    let found = of_text("x.ndjson", "{\"v\":\"7\",\"w\":null}\n").unwrap();
    assert_eq!(
        (shown(&found).as_str(), option(&found, "json.any-as-string")),
        ("v STRING, w STRING", None)
    );
    assert_eq!(found.columns[1].note.as_deref(), Some("no value"));
}

/// Arrays and objects are values, too.
#[test]
fn a_column_has_no_value_if_it_is_always_null() {
    let text = "{\"a\":[1],\"o\":{\"x\":1}}\n{\"a\":null,\"n\":null}\n";
    let found = of_text("x.ndjson", text).unwrap();
    let notes: Vec<_> = found.columns.iter().map(|c| (&*c.name, c.note.as_deref())).collect();
    assert_eq!(notes, [("a", None), ("o", None), ("n", Some("no value"))]);
}

#[test]
fn a_string_takes_any_json_value_as_it_is_written() {
    use arrow::array::{Array, AsArray};
    let dir = folder("any");
    let text = r#"{"v": 1.50}
{"v":"a\u000a"}
{"v":{"a": [1]}}
{"v":null}
{"v":true}
"#;
    std::fs::write(dir.join("x.ndjson"), text).unwrap();
    let found = declaration("x.ndjson", &dir).unwrap();
    let schema = Arc::new(Schema::new(vec![Field::new("v", DataType::Utf8, true)]));
    let options = found.options.into_iter().filter(|(key, _)| key != "connector");
    let table = TableOptions::new("t", schema, options);
    let table = TableOptions { base_dir: dir, exact: true, ..table };
    let table = FileTable::from_options(&table).unwrap();
    let mut splits = table.open(&[0], &OpenOptions::alone(1000, 0, 1)).unwrap();
    let SplitPoll::Chunk(chunk) = splits[0].poll_next(0, std::task::Waker::noop()).unwrap() else {
        panic!("no records")
    };
    let batch = chunk.decode().unwrap();
    let texts = batch.column(0).as_string::<i32>();
    let texts: Vec<_> = (0..5).map(|row| texts.is_valid(row).then(|| texts.value(row))).collect();
    assert_eq!(texts, [Some("1.50"), Some("a\n"), Some("{\"a\": [1]}"), None, Some("true")]);
}

#[test]
fn ten_thousand_columns_are_found() {
    let names: Vec<String> = (0..10_000).map(|n| format!("column number {n}")).collect();
    let values: Vec<String> = (0..10_000).map(|n| n.to_string()).collect();
    let text = format!("{}\n{}\n", names.join(","), values.join(","));
    let found = of_text("x.csv", &text).unwrap();
    assert_eq!(found.columns.len(), 10_000);
    assert!(found.columns.iter().all(|column| column.sql_type == "BIGINT"));
    assert!(found.to_sql("t").contains("`column number 9999` BIGINT"));
}

/// Whether all of a file can be read with these columns, and how many records it has.
fn read(bytes: &[u8], dialect: Dialect, schema: Schema) -> Result<usize> {
    let format = Arc::new(CsvFormat::of(&Arc::new(dialect)));
    assert_eq!(RecordFormat::name(&*format), "CSV");
    let columns: Vec<usize> = (0..schema.fields().len()).collect();
    let table = FileTable::in_memory("x.csv", bytes, Arc::new(schema), format);
    let mut records = 0;
    for mut split in table.open(&columns, &OpenOptions::alone(1000, 0, 1))? {
        loop {
            match split.poll_next(0, std::task::Waker::noop())? {
                SplitPoll::Chunk(chunk) => records += chunk.decode()?.num_rows(),
                SplitPoll::Pending { .. } => {}
                SplitPoll::Ended => break,
            }
        }
    }
    Ok(records)
}

/// A value of a column of kind `kind`, of which there are ten.
fn value(kind: u8, seed: u32) -> String {
    let n = i64::from(seed);
    match kind {
        0 => (n % 2 == 0).to_string(),
        1 => (n - 1_000_000).to_string(),
        2 => format!("{}", n as f64 / 8.0),
        3 => format!("{:04}-{:02}-{:02}", 1900 + n % 300, 1 + n % 12, 1 + n % 28),
        4 => format!("2024-05-01 {:02}:{:02}:{:02}", n % 24, n % 60, n / 7 % 60),
        5 => format!("2024-05-01T10:00:{:02}.{:09}Z", n % 60, n % 1_000_000_000),
        6 => format!("{:02}:{:02}", n % 24, n % 60),
        7 => format!("{n:012}"),
        8 => format!("text, with \"quotes\" {n}\nand lines"),
        _ => format!("{n}{}", "9".repeat(20)),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// What is written with some schema is inferred to one that reads all of it.
    #[test]
    fn what_is_inferred_reads_the_data(
        kinds in prop::collection::vec(0u8..10, 2..8),
        seeds in prop::collection::vec(prop::collection::vec(any::<u32>(), 8), 2..40),
        header in any::<bool>(),
        delimiter in prop::sample::select(vec![',', ';', '\t', '|']),
        nulls in 0u32..5,
    ) {
        let mut text = String::new();
        let line = |fields: Vec<String>| fields.join(&delimiter.to_string()) + "\n";
        if header {
            text += &line((0..kinds.len()).map(|n| format!("col{n}")).collect());
        }
        for seeds in &seeds {
            let field = |(kind, seed): (&u8, &u32)| match nulls > 0 && seed % 7 < nulls {
                true => String::new(),
                false => format!("\"{}\"", value(*kind, *seed).replace('"', "\"\"")),
            };
            text += &line(kinds.iter().zip(seeds).map(field).collect());
        }
        let sample = || Sample {
            name: "x.csv".into(),
            head: text.clone().into_bytes(),
            whole: true,
            later: vec![],
        };
        let found = columns("x.csv", FormatKind::Csv, &[sample()], &[]).unwrap();
        let option = |key: &str| found.options.iter().find(|(k, _)| k == key).map(|(_, v)| v);
        let fields = found.columns.iter().map(|c| Field::new(&c.name, c.data_type.clone(), true));
        let schema = Schema::new(fields.collect::<Vec<_>>());
        let dialect = Dialect {
            delimiter: option("csv.field-delimiter").map_or(b',', |d| match d.as_str() {
                "\\t" => b'\t',
                other => other.as_bytes()[0],
            }),
            header: option("csv.header").and_then(|h| Header::parse(h)).unwrap(),
            ..Dialect::default()
        };
        prop_assert_eq!(found.columns.len(), kinds.len(), "{}", text);
        let records = read(text.as_bytes(), dialect, schema);
        prop_assert!(records.is_ok(), "{:?}\n{}\n{:?}", records, text, found.columns);
        // A first line of text over columns without a value may be either.
        let said = header || !matches!(option("csv.header").map(String::as_str), Some("true"));
        if said {
            let header_read = option("csv.header").is_some_and(|h| h != "false");
            let all = seeds.len() + usize::from(header) - usize::from(header_read);
            prop_assert_eq!(records.unwrap(), all);
        }
    }

    #[test]
    fn data_of_any_kind_does_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        fuzz_infer(&bytes);
    }

    #[test]
    fn text_of_any_kind_does_no_harm(choice in any::<u8>(), text in "[a-c0-9,;\"\n\r{}:.\\[\\]\\\\ -]{0,200}") {
        let mut bytes = vec![choice];
        bytes.extend_from_slice(text.as_bytes());
        fuzz_infer(&bytes);
    }
}

#[test]
fn the_example_trace_has_its_time() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/data");
    let found = declaration("google-cluster-task-events-2011.csv", &data).unwrap();
    let computed = &found.computed[0];
    assert_eq!(
        (computed.name.as_str(), computed.form.as_str(), computed.column.as_str()),
        ("ts", "to_timestamp_seconds({})", "time_s")
    );
    assert_eq!(found.columns[8].sql_type, "DOUBLE");
    let unit = DataType::Timestamp(TimeUnit::Second, None);
    assert_eq!(declared_type(&unit), "TIMESTAMP(0)");
}

//! Tests of metadata columns through the crate's public interface: reading may begin at any
//! position, and what is beside a record stays the same.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::task::Waker;

use arrow::array::{AsArray, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Int64Type, Schema};
use arrow::ipc::writer::FileWriter;
use millstream_connect::Registry;
use millstream_contract::sink::{ONLY_INTERVAL, Writers};
use millstream_contract::table::{
    Connectors, OpenOptions, Position, Split, SplitPoll, Table, TableOptions,
};

use crate::support::Directory;

const RECORDS: i64 = 2000;

fn options(base: &Path, path: &str, format: &str) -> TableOptions {
    let given = [("connector", "file"), ("path", path), ("format", format)];
    let text = |(key, value): (&str, &str)| (key.to_string(), value.to_string());
    let number = if format == "raw" { DataType::Utf8 } else { DataType::Int64 };
    let fields = vec![
        Field::new("name", DataType::Utf8, false),
        Field::new("n", number, true),
        Field::new("at", DataType::Int64, false),
    ];
    let metadata = [("name", "path"), ("at", "offset")];
    let (metadata, base_dir) = (metadata.map(text).into(), base.to_path_buf());
    let table = TableOptions::new("t", Arc::new(Schema::new(fields)), given);
    TableOptions { metadata, base_dir, ..table }
}

/// Writes a file of this format; offset and number of each record.
fn written(directory: &Path, format: &str) -> (String, Vec<(i64, i64)>) {
    let (mut text, mut records) = (String::new(), Vec::new());
    for n in 0..RECORDS {
        records.push((text.len() as i64, n));
        let end = if n % 3 == 0 { "\r\n" } else { "\n" };
        let _ = match format {
            "ndjson" => write!(text, "{{\"n\": {n}}}{end}"),
            _ => write!(text, "{n}{end}"),
        };
    }
    if ["csv", "ndjson", "raw"].contains(&format) {
        std::fs::write(directory.join("x"), text).unwrap();
        return ("x".into(), records);
    }
    let column = Arc::new(Int64Array::from_iter_values(0..RECORDS)) as _;
    let rows = RecordBatch::try_from_iter([("n", column)]).unwrap();
    let numbered: Vec<(i64, i64)> = (0..RECORDS).map(|n| (n, n)).collect();
    let parts = (0..rows.num_rows()).step_by(300);
    let parts: Vec<RecordBatch> =
        parts.map(|from| rows.slice(from, 300.min(rows.num_rows() - from))).collect();
    if format == "arrow" {
        let file = File::create(directory.join("x")).unwrap();
        let mut writer = FileWriter::try_new(file, &rows.schema()).unwrap();
        parts.iter().for_each(|part| writer.write(part).unwrap());
        writer.finish().unwrap();
        return ("x".into(), numbered);
    }
    let mut options = options(directory, "out", format);
    (options.schema, options.metadata) = (rows.schema(), BTreeMap::new());
    let sink = Registry::new().sink(&options).unwrap();
    sink.open(&rows.schema(), Writers { process: 0, workers: 1, memory_bytes: 1 << 30 }).unwrap();
    parts.iter().for_each(|part| sink.write(0, part, true).unwrap());
    sink.finish().unwrap();
    sink.commit(&sink.prepare(ONLY_INTERVAL).unwrap()).unwrap();
    ("out/part-0-0".into(), numbered)
}

fn open(table: &dyn Table, batch_rows: usize, from: Position) -> Box<dyn Split> {
    let mut options = OpenOptions::alone(batch_rows, 0, 1);
    let name = table.open(&[0], &options).unwrap()[0].name().to_string();
    options.from.insert(name, from);
    // In another order than they are declared in.
    table.open(&[2, 1, 0], &options).unwrap().remove(0)
}

/// Offsets and numbers of the next chunk.
fn next(split: &mut dyn Split, path: &str) -> Option<Vec<(i64, i64)>> {
    let chunk = match split.poll_next(0, Waker::noop()).unwrap() {
        SplitPoll::Chunk(chunk) => chunk,
        SplitPoll::Pending { .. } => panic!("a file that is complete is there"),
        SplitPoll::Ended => return None,
    };
    let batch = chunk.decode().unwrap();
    let at = batch.column(0).as_primitive::<Int64Type>();
    let number = |row| match batch.column(1).as_string_opt::<i32>() {
        Some(texts) => texts.value(row).parse().unwrap(),
        None => batch.column(1).as_primitive::<Int64Type>().value(row),
    };
    let names = batch.column(2).as_string::<i32>();
    assert!(names.iter().all(|name| name == Some(path)), "{names:?}");
    Some((0..batch.num_rows()).map(|row| (at.value(row), number(row))).collect())
}

#[test]
fn from_any_position_the_offsets_are_those_of_the_whole() {
    for format in ["csv", "ndjson", "raw", "parquet", "arrow"] {
        let directory = Directory::new(&format!("metadata-{format}"));
        let (file, expected) = written(&directory.0, format);
        let path = directory.0.join(&file).display().to_string();
        let table = Registry::new().table(&options(&directory.0, &file, format)).unwrap();
        for batch_rows in [150, 100_000] {
            let mut split = open(&*table, batch_rows, Position::default());
            let (mut read, mut chunks) = (Vec::new(), 0);
            while let Some(records) = next(&mut *split, &path) {
                read.extend(records);
                chunks += 1;
                let mut rest = open(&*table, batch_rows, split.position());
                let mut whole = read.clone();
                whole.extend(std::iter::from_fn(|| next(&mut *rest, &path)).flatten());
                assert!(whole == expected, "{format}, from {:?}", split.position());
            }
            assert!(read == expected && (chunks > 1 || format == "parquet"), "{format}: {chunks}");
        }
    }
}

#[test]
fn connectors_say_what_they_have() {
    let registry = Registry::new();
    let keys = |connector: &str| -> Vec<&str> {
        let mut table = options(Path::new("."), "x", "csv");
        table.options.insert("connector".into(), connector.into());
        registry.metadata(&table).into_iter().map(|(key, _)| key).collect()
    };
    assert_eq!(keys("file"), ["path", "offset", "file.modified"]);
    assert_eq!(keys("filesystem"), keys("file"));
    assert_eq!((keys("stdin"), keys("socket")), (vec!["offset"], vec!["offset"]));
    for connector in ["http", "datagen", "memory", "print", "no such"] {
        assert!(keys(connector).is_empty(), "{connector}");
    }
    // What a program puts in place of ours has what it says: nothing.
    registry.register_source("file", |_| panic!("is not made"));
    assert!(keys("file").is_empty());
}

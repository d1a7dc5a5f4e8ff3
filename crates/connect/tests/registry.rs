//! Tests of connectors by name, as `CREATE TABLE` uses them, on files and through the crate's
//! public interface.

use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::task::Waker;

use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array,
    Int8Array, Int64Array, RecordBatch, StringArray, Time64MicrosecondArray,
    TimestampNanosecondArray, UInt64Array,
};
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, Field, Float64Type, Schema, SchemaRef};
use millstream_connect::{BlackholeSink, Format, MemoryTable, Registry, TextOptions, TextSink};
use millstream_contract::sink::{Sink, Writers};
use millstream_contract::table::{Connectors, OpenOptions, SplitPoll, Table, TableOptions};

use crate::support::Directory;

fn options(name: &str, schema: SchemaRef, pairs: &[(&str, &str)]) -> TableOptions {
    let base_dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    TableOptions { base_dir, ..TableOptions::new(name, schema, pairs.iter().copied()) }
}

fn read(table: &dyn Table, projection: &[usize]) -> RecordBatch {
    let options = OpenOptions::alone(1000, 0, 2);
    let mut batches = Vec::new();
    for mut split in table.open(projection, &options).unwrap() {
        while let SplitPoll::Chunk(chunk) = split.poll_next(0, Waker::noop()).unwrap() {
            batches.push(chunk.decode().unwrap());
        }
    }
    let schema = Arc::new(table.schema().project(projection).unwrap());
    concat_batches(&schema, &batches).unwrap()
}

fn one_column() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, true)]))
}

#[test]
fn the_example_trace_is_read() {
    let schema = Arc::new(Schema::new(vec![
        Field::new("time_s", DataType::Int64, true),
        Field::new("cpu_request", DataType::Float64, true),
    ]));
    let file = [
        ("connector", "file"),
        ("format", "csv"),
        ("path", "data/google-cluster-task-events-2011.csv"),
    ];
    let table = Registry::new().table(&options("task_events", schema, &file)).unwrap();
    let batch = read(&*table, &[1]);
    assert_eq!(batch.num_rows(), 16_385);
    let cpu = batch.column(0).as_any().downcast_ref::<Float64Array>().unwrap();
    assert_eq!(cpu.value(0), 0.063);
    // The largest request and the last one, as awk finds them in the file.
    assert_eq!(arrow::compute::max(cpu), Some(0.406));
    assert_eq!(
        arrow::array::AsArray::as_primitive::<Float64Type>(batch.column(0)).value(16_384),
        0.016
    );
}

/// Bytes that outlive the sink.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn what_the_csv_sink_writes_the_csv_source_reads_back() {
    let decimals = Decimal128Array::from(vec![Some(-12_345), Some(0), None, Some(99_999)]);
    let texts = vec![Some("a \"quoted\", text\r\nof two lines"), Some(""), None, Some("\u{4e16}")];
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("a", Arc::new(Int64Array::from(vec![Some(i64::MIN), Some(i64::MAX), None, Some(0)]))),
        ("b", Arc::new(StringArray::from(texts))),
        ("c", Arc::new(Float64Array::from(vec![Some(0.1 + 0.2), Some(1e-300), None, Some(-0.0)]))),
        ("d", Arc::new(BooleanArray::from(vec![Some(true), None, Some(false), None]))),
        ("e", Arc::new(decimals.with_precision_and_scale(10, 3).unwrap())),
        ("f", Arc::new(BinaryArray::from(vec![Some(&[0u8, 255, 10][..]), Some(b""), None, None]))),
        ("g", Arc::new(Date32Array::from(vec![Some(-719_162), Some(0), None, Some(2_932_896)]))),
        ("h", Arc::new(Time64MicrosecondArray::from(vec![Some(86_399_999_999), None, None, None]))),
        (
            "i",
            Arc::new(
                TimestampNanosecondArray::from(vec![Some(i64::MIN), Some(-1), None, Some(1)])
                    .with_timezone("UTC"),
            ),
        ),
        ("j", Arc::new(UInt64Array::from(vec![Some(u64::MAX), None, None, None]))),
        ("k", Arc::new(Int8Array::from(vec![Some(-128), Some(127), None, None]))),
        (
            "l",
            Arc::new(Float32Array::from(vec![
                Some(f32::MIN_POSITIVE),
                Some(f32::INFINITY),
                None,
                None,
            ])),
        ),
    ];
    let nullable = columns.into_iter().map(|(name, column)| (name, column, true));
    let batch = RecordBatch::try_from_iter_with_nullable(nullable).unwrap();
    let out = Shared::default();
    let sink = TextSink::new(Format::Csv, Box::new(out.clone()), TextOptions::default());
    sink.open(&batch.schema(), Writers::alone()).unwrap();
    sink.write(0, &batch, true).unwrap();
    sink.finish().unwrap();

    let directory = Directory::new("round-trip");
    std::fs::write(directory.0.join("rows.csv"), &*out.0.lock().unwrap()).unwrap();
    let file = [("connector", "filesystem"), ("format", "csv"), ("path", "rows.csv")];
    let mut options = options("rows", batch.schema(), &file);
    options.base_dir = directory.0.clone();
    let table = Registry::new().table(&options).unwrap();
    let all: Vec<usize> = (0..batch.num_columns()).collect();
    assert_eq!(read(&*table, &all), batch);
}

#[test]
fn wrong_connectors_are_explained() {
    let registry = Registry::new();
    let schema = one_column();
    let table = |pairs: &[(&str, &str)]| {
        registry.table(&options("t", schema.clone(), pairs)).unwrap_err().to_string()
    };
    let sink = |pairs: &[(&str, &str)]| {
        registry.sink(&options("t", schema.clone(), pairs)).unwrap_err().to_string()
    };
    for (found, expected) in [
        (table(&[]), "table 't', option 'connector': a table needs a connector"),
        (table(&[]), "datagen, file, http, memory, socket"),
        (table(&[("connector", "datagne")]), "did you mean 'datagen'?"),
        (table(&[("connector", "jdbc")]), "the connector 'jdbc' does not run here"),
        (table(&[("connector", "blackhole")]), "no way to read from 'blackhole'"),
        (table(&[("connector", "zzzzz")]), "there is no connector 'zzzzz'"),
        (table(&[("connector", "memory")]), "there is no table 't' in memory"),
        (
            table(&[
                ("connector", "file"),
                ("format", "csv"),
                ("path", "data/goggle-cluster-task-events-2011.csv"),
            ]),
            "did you mean",
        ),
        (sink(&[("connector", "datagen")]), "no way to write to 'datagen' yet"),
        (sink(&[("connector", "prnt")]), "did you mean 'print'?"),
        (sink(&[("connector", "print"), ("format", "tabel")]), "did you mean 'table'?"),
        (sink(&[("connector", "blackhole"), ("x", "y")]), "has no such option"),
    ] {
        assert!(found.contains(expected), "{found}");
    }
    assert!(registry.sink(&options("t", schema.clone(), &[("connector", "print")])).is_ok());
    assert!(registry.sink(&options("t", schema.clone(), &[("connector", "blackhole")])).is_ok());
}

#[test]
fn connectors_and_tables_can_be_added() {
    let registry = Registry::new();
    let batch = RecordBatch::try_new(
        one_column(),
        vec![Arc::new(Int64Array::from(vec![1, 2, 3])) as ArrayRef],
    )
    .unwrap();
    let memory = Arc::new(MemoryTable::new(one_column(), vec![vec![batch.clone()]]).unwrap());
    registry.register_table("numbers", memory.clone());
    assert!(registry.registered_table("numbers").is_some());
    for pairs in [&[("connector", "memory")][..], &[("connector", "memory"), ("table", "numbers")]]
    {
        let name = if pairs.len() == 1 { "numbers" } else { "other" };
        let table = registry.table(&options(name, one_column(), pairs)).unwrap();
        assert_eq!(read(&*table, &[0]), batch);
    }
    let other = Arc::new(Schema::new(vec![Field::new("n", DataType::Utf8, true)]));
    let error = registry.table(&options("numbers", other, &[("connector", "memory")])).unwrap_err();
    assert!(
        error.to_string().contains("expected the columns (n BIGINT), found (n STRING)"),
        "{error}"
    );

    registry.register_source("generator", move |_| Ok(memory.clone()));
    registry.register_sink("void", |_| Ok(Arc::new(BlackholeSink::new())));
    assert!(registry.table(&options("g", one_column(), &[("connector", "generator")])).is_ok());
    assert!(registry.sink(&options("g", one_column(), &[("connector", "void")])).is_ok());
    let error =
        registry.table(&options("g", one_column(), &[("connector", "genrator")])).unwrap_err();
    assert!(error.to_string().contains("did you mean 'generator'?"), "{error}");
}

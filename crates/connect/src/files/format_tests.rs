//! Tests that what is written as Parquet or Arrow reads back the same, all types, with every
//! option.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, AsArray, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Float32Array,
    Float64Array, Int8Array, Int16Array, Int32Array, Int64Array, RecordBatch, StringArray,
    Time32MillisecondArray, Time32SecondArray, Time64MicrosecondArray, Time64NanosecondArray,
    TimestampMicrosecondArray, TimestampMillisecondArray, TimestampNanosecondArray,
    TimestampSecondArray, UInt8Array, UInt16Array, UInt32Array, UInt64Array,
};
use arrow::compute::{cast, concat_batches};
use arrow::datatypes::{DataType, Int64Type, TimeUnit};
use arrow::ipc::reader::FileReader;
use millstream_contract::sink::{ONLY_INTERVAL, Sink, Writers};
use millstream_contract::table::TableOptions;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use super::FileSink;
use super::tests::Folder;

/// A column of each type that a table can declare, NULL in each.
fn all_types() -> RecordBatch {
    let decimals = |all: Vec<Option<i128>>, p, s| -> ArrayRef {
        Arc::new(Decimal128Array::from(all).with_precision_and_scale(p, s).unwrap())
    };
    let moments = vec![Some(0), None, Some(-1_500), Some(1_700_000_000_123)];
    let zoned = TimestampMillisecondArray::from(moments.clone()).with_timezone("UTC");
    let bytes: Vec<Option<&[u8]>> = vec![Some(b""), None, Some(b"\0\xff"), Some(b"x")];
    let floats = vec![Some(f64::NAN), None, Some(-0.0), Some(f64::INFINITY)];
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("bool", Arc::new(BooleanArray::from(vec![Some(true), None, Some(false), None]))),
        ("i8", Arc::new(Int8Array::from(vec![Some(i8::MIN), None, Some(i8::MAX), Some(0)]))),
        ("i16", Arc::new(Int16Array::from(vec![Some(i16::MIN), None, Some(i16::MAX), Some(0)]))),
        ("i32", Arc::new(Int32Array::from(vec![Some(i32::MIN), None, Some(i32::MAX), Some(0)]))),
        ("i64", Arc::new(Int64Array::from(vec![Some(i64::MIN), None, Some(i64::MAX), Some(0)]))),
        ("u8", Arc::new(UInt8Array::from(vec![Some(u8::MAX), None, Some(1), Some(0)]))),
        ("u16", Arc::new(UInt16Array::from(vec![Some(u16::MAX), None, Some(1), Some(0)]))),
        ("u32", Arc::new(UInt32Array::from(vec![Some(u32::MAX), None, Some(1), Some(0)]))),
        ("u64", Arc::new(UInt64Array::from(vec![Some(u64::MAX), None, Some(1), Some(0)]))),
        ("f32", Arc::new(Float32Array::from(vec![Some(f32::MAX), None, Some(-0.5), Some(0.1)]))),
        ("f64", Arc::new(Float64Array::from(floats))),
        ("d9", decimals(vec![Some(-999_999_999), None, Some(1), Some(0)], 9, 2)),
        ("d18", decimals(vec![Some(10_i128.pow(18) - 1), None, Some(-1), Some(0)], 18, 0)),
        ("d38", decimals(vec![Some(1 - 10_i128.pow(38)), None, Some(7), Some(0)], 38, 10)),
        ("text", Arc::new(StringArray::from(vec![Some(""), None, Some("é\0\n"), Some("x")]))),
        ("bytes", Arc::new(BinaryArray::from(bytes))),
        ("date", Arc::new(Date32Array::from(vec![Some(-1), None, Some(2_932_896), Some(0)]))),
        ("t0", Arc::new(Time32SecondArray::from(vec![Some(86_399), None, Some(0), Some(1)]))),
        ("t3", Arc::new(Time32MillisecondArray::from(vec![Some(86_399_999), None, Some(0), None]))),
        (
            "t6",
            Arc::new(Time64MicrosecondArray::from(vec![Some(86_399_999_999), None, None, None])),
        ),
        ("t9", Arc::new(Time64NanosecondArray::from(vec![Some(1), None, Some(0), None]))),
        ("ts0", Arc::new(TimestampSecondArray::from(moments.clone()))),
        ("ts3", Arc::new(TimestampMillisecondArray::from(moments.clone()))),
        ("ts6", Arc::new(TimestampMicrosecondArray::from(moments.clone()))),
        ("ts9", Arc::new(TimestampNanosecondArray::from(moments))),
        ("ltz", Arc::new(zoned)),
    ];
    let columns = columns.into_iter().map(|(name, column)| (name, column, true));
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

fn write(folder: &Folder, options: &[(&str, &str)], batches: &[RecordBatch]) {
    write_within(Writers::alone(), folder, options, batches);
}

fn write_within(
    writers: Writers,
    folder: &Folder,
    options: &[(&str, &str)],
    batches: &[RecordBatch],
) {
    let path = folder.0.display().to_string();
    let given = [("connector", "file"), ("path", &path)].into_iter().chain(options.iter().copied());
    let table = TableOptions::new("t", batches[0].schema(), given);
    let sink = FileSink::from_options(&table).unwrap();
    sink.open(&batches[0].schema(), writers).unwrap();
    for batch in batches {
        sink.write(0, batch, true).unwrap();
    }
    sink.finish().unwrap();
    sink.commit(&sink.prepare(ONLY_INTERVAL).unwrap()).unwrap();
}

fn read_parquet(path: &Path) -> (RecordBatch, usize) {
    let builder = ParquetRecordBatchReaderBuilder::try_new(File::open(path).unwrap()).unwrap();
    let groups = builder.metadata().num_row_groups();
    let schema = builder.schema().clone();
    let batches: Vec<_> = builder.build().unwrap().map(|batch| batch.unwrap()).collect();
    (concat_batches(&schema, &batches).unwrap(), groups)
}

fn read_arrow(path: &Path) -> (RecordBatch, usize) {
    let reader = FileReader::try_new(File::open(path).unwrap(), None).unwrap();
    let schema = reader.schema();
    let batches: Vec<_> = reader.map(|batch| batch.unwrap()).collect();
    (concat_batches(&schema, &batches).unwrap(), batches.len())
}

#[test]
fn every_type_comes_back_from_parquet() {
    let rows = all_types();
    for compression in ["snappy", "zstd", "gzip", "lz4", "none", "NONE"] {
        let folder = Folder::new(&format!("parquet-{compression}"));
        let options = [("format", "parquet"), ("parquet.compression", compression)];
        // Batches that are cut out of others.
        write(&folder, &options, &[rows.slice(0, 1), rows.slice(1, 3), rows.slice(0, 0)]);
        let (read, _) = read_parquet(&folder.0.join("part-0-0"));
        assert_eq!(read.num_columns(), rows.num_columns());
        for (field, (written, read)) in
            rows.schema().fields().iter().zip(rows.columns().iter().zip(read.columns()))
        {
            let expected = match field.data_type() {
                DataType::Timestamp(TimeUnit::Second, _) => {
                    &cast(written, &DataType::Timestamp(TimeUnit::Millisecond, None)).unwrap()
                }
                DataType::Time32(TimeUnit::Second) => {
                    &cast(written, &DataType::Time32(TimeUnit::Millisecond)).unwrap()
                }
                _ => written,
            };
            assert_eq!(expected.to_data(), read.to_data(), "{}", field.name());
        }
    }
}

#[test]
fn every_type_comes_back_from_arrow() {
    let rows = all_types();
    for compression in ["none", "lz4", "zstd"] {
        let folder = Folder::new(&format!("arrow-{compression}"));
        let options = [("format", "arrow"), ("arrow.compression", compression)];
        write(&folder, &options, &[rows.slice(0, 1), rows.slice(1, 3), rows.slice(0, 0)]);
        let (read, batches) = read_arrow(&folder.0.join("part-0-0"));
        assert_eq!(read.schema(), rows.schema());
        // NaN is not itself.
        assert_eq!(format!("{:?}", rows.columns()), format!("{:?}", read.columns()));
        assert_eq!(batches, 1, "small batches are put together");
    }
}

#[test]
fn a_result_without_rows_has_its_columns() {
    let rows = all_types();
    for format in ["parquet", "arrow"] {
        let folder = Folder::new(&format!("empty-{format}"));
        write(&folder, &[("format", format)], &[rows.slice(0, 0)]);
        let path = folder.0.join("part-0-0");
        let (read, _) = if format == "arrow" { read_arrow(&path) } else { read_parquet(&path) };
        assert_eq!((read.num_rows(), read.num_columns()), (0, rows.num_columns()));
    }
}

#[test]
fn many_small_batches_make_few_row_groups() {
    let batch = |start: i64| {
        let random = (start..start + 100).map(|n| n.wrapping_mul(0x9E37_79B9_7F4A_7C15_u64 as i64));
        RecordBatch::try_from_iter([(
            "n",
            Arc::new(Int64Array::from_iter_values(random)) as ArrayRef,
        )])
        .unwrap()
    };
    let batches: Vec<_> = (0..1000).map(|number| batch(number * 100)).collect();
    // 800 KB of numbers that do not get smaller.
    for (size, expected) in [("256 KB", 2..=6), ("16 MB", 1..=1)] {
        let folder = Folder::new("groups");
        let options = [("format", "parquet"), ("parquet.block.size", size)];
        write(&folder, &options, &batches);
        let (read, groups) = read_parquet(&folder.0.join("part-0-0"));
        assert!(expected.contains(&groups), "{size}: {groups} row groups");
        let sum = |all: &RecordBatch| -> i64 {
            let column = all.column(0).as_primitive::<Int64Type>();
            column.values().iter().fold(0, |sum: i64, n| sum.wrapping_add(*n))
        };
        let expected = batches.iter().map(sum).fold(0, i64::wrapping_add);
        assert_eq!((read.num_rows(), sum(&read)), (100_000, expected));
    }
}

/// Rows wait for a row group of 32 MB in an eighth of the memory at most.
#[test]
fn rows_that_wait_take_a_part_of_the_jobs_memory() {
    let batch = |start: i64| {
        let random =
            (start..start + 1000).map(|n| n.wrapping_mul(0x9E37_79B9_7F4A_7C15_u64 as i64));
        let column = Arc::new(Int64Array::from_iter_values(random)) as ArrayRef;
        RecordBatch::try_from_iter([("n", column)]).unwrap()
    };
    // 8 MB of numbers that do not get smaller. What waits counts with its dictionary, so that a row
    // group has less than its part.
    let batches: Vec<_> = (0..1000).map(|number| batch(number * 1000)).collect();
    for (memory_bytes, expected) in [(16 << 20, 4..=32), (u64::MAX, 1..=1)] {
        let folder = Folder::new("memory");
        let writers = Writers { memory_bytes, ..Writers::alone() };
        write_within(writers, &folder, &[("format", "parquet")], &batches);
        let (read, groups) = read_parquet(&folder.0.join("part-0-0"));
        assert!(expected.contains(&groups), "{memory_bytes}: {groups} row groups");
        assert_eq!(read.num_rows(), 1_000_000);
    }
}

#[test]
fn a_time_that_parquet_cannot_hold_is_an_error_and_not_null() {
    let folder = Folder::new("overflow");
    let column: ArrayRef = Arc::new(TimestampSecondArray::from(vec![i64::MAX / 10]));
    let rows = RecordBatch::try_from_iter([("ts", column)]).unwrap();
    let options = [("format", "parquet"), ("path", folder.0.to_str().unwrap())];
    let table = TableOptions::new("t", rows.schema(), options);
    let sink = FileSink::from_options(&table).unwrap();
    sink.open(&rows.schema(), Writers::alone()).unwrap();
    let error = sink.write(0, &rows, true).unwrap_err().to_string();
    assert!(error.contains("part-0-0.inprogress") && error.contains("column 'ts'"), "{error}");
}

//! Tests that the file source reads back unchanged what the file sink writes: all types, NULL,
//! empty strings and values that need quotes, with every option that both have.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::task::Waker;

use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, Decimal128Array, Float32Array, Float64Array,
    PrimitiveArray, RecordBatch, StringArray,
};
use arrow::compute::{cast, concat_batches};
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Date32Type, Field, Int8Type, Int16Type, Int32Type, Schema,
    SchemaRef, Time32MillisecondType, Time32SecondType, Time64MicrosecondType,
    Time64NanosecondType, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use millstream_contract::sink::{ONLY_INTERVAL, Sink, Writers};
use millstream_contract::table::{OpenOptions, SplitPoll, Table, TableOptions};

use crate::files::FileSink;
use crate::random::Random;
use crate::source::FileTable;

type Options = Vec<(&'static str, String)>;

fn table_options(schema: &SchemaRef, path: &Path, more: &Options) -> TableOptions {
    let mut options: Options = vec![
        ("connector", "file".into()),
        ("format", "csv".into()),
        ("path", path.display().to_string()),
    ];
    options.extend(more.iter().cloned());
    TableOptions::new("t", schema.clone(), options)
}

/// Writes batches into a directory and reads its file.
fn through_a_file(batches: &[RecordBatch], directory: &Path, options: &Options) -> RecordBatch {
    let schema = batches[0].schema();
    _ = fs::remove_dir_all(directory);
    let sink = FileSink::from_options(&table_options(&schema, directory, options)).unwrap();
    sink.open(&schema, Writers::alone()).unwrap();
    for batch in batches {
        sink.write(0, batch, true).unwrap();
    }
    sink.finish().unwrap();
    sink.commit(&sink.prepare(ONLY_INTERVAL).unwrap()).unwrap();
    let file = directory.join("part-0-0");
    let table = FileTable::from_options(&table_options(&schema, &file, options)).unwrap();
    let all: Vec<usize> = (0..schema.fields().len()).collect();
    let mut split = table.open(&all, &OpenOptions::alone(7, 0, 1)).unwrap().remove(0);
    let mut read = Vec::new();
    while let SplitPoll::Chunk(chunk) = split.poll_next(0, Waker::noop()).unwrap() {
        read.push(chunk.decode().unwrap());
    }
    concat_batches(&schema, &read).unwrap()
}

/// Some of `all`'s values, or NULL.
fn some<T: Clone>(all: &[T], rows: usize, random: &mut Random) -> Vec<Option<T>> {
    let one = |random: &mut Random| all[random.below(all.len() as u64) as usize].clone();
    (0..rows).map(|_| (random.below(4) > 0).then(|| one(random))).collect()
}

/// Whole numbers of any size, in `min..=max`.
fn numbers<T>(min: i128, max: i128, rows: usize, random: &mut Random) -> ArrayRef
where
    T: ArrowPrimitiveType,
    T::Native: TryFrom<i128>,
{
    let mut all = vec![min, max, 0, -1, 1];
    all.extend((0..8).map(|_| {
        let bits = i128::from(random.next()) << 64 | i128::from(random.next());
        (bits >> random.below(127)).clamp(min, max)
    }));
    all.retain(|n| (min..=max).contains(n));
    let native = |n: Option<i128>| n.and_then(|n| T::Native::try_from(n).ok());
    let values = some(&all, rows, random).into_iter().map(native);
    Arc::new(PrimitiveArray::<T>::from_iter(values))
}

fn texts(null: &str, rows: usize, random: &mut Random) -> Vec<Option<String>> {
    let pieces = [
        "a", "b", ",", ";", "\t", "\"", "'", "\n", "\r\n", "\r", " ", "#", "\u{e9}", "\u{4e16}",
        "\u{feff}", "\0", "\\", "NULL", "1", "PAR1", null,
    ];
    let mut text = || -> String {
        let length = random.below(5);
        (0..length).map(|_| pieces[random.below(pieces.len() as u64) as usize]).collect()
    };
    let all: Vec<String> = (0..20).map(|_| text()).chain([String::new(), null.into()]).collect();
    some(&all, rows, random)
}

/// A random column; the types are all that a table of a CSV file may have.
fn column(null: &str, rows: usize, random: &mut Random) -> ArrayRef {
    const DAY: i128 = 86_400;
    let (i64_min, i64_max) = (i128::from(i64::MIN), i128::from(i64::MAX));
    match random.below(25) {
        0 => Arc::new(BooleanArray::from(some(&[true, false], rows, random))),
        1 => numbers::<Int8Type>(-128, 127, rows, random),
        2 => numbers::<Int16Type>(-32_768, 32_767, rows, random),
        3 => numbers::<Int32Type>(i32::MIN.into(), i32::MAX.into(), rows, random),
        4 => numbers::<arrow::datatypes::Int64Type>(i64_min, i64_max, rows, random),
        5 => numbers::<UInt8Type>(0, 255, rows, random),
        6 => numbers::<UInt16Type>(0, 65_535, rows, random),
        7 => numbers::<UInt32Type>(0, u32::MAX.into(), rows, random),
        8 => numbers::<UInt64Type>(0, u64::MAX.into(), rows, random),
        9 => {
            let bits = numbers::<UInt32Type>(0, u32::MAX.into(), 8, random);
            let bits = bits.as_any().downcast_ref::<PrimitiveArray<UInt32Type>>().unwrap();
            let mut all: Vec<f32> = bits.iter().flatten().map(f32::from_bits).collect();
            all.retain(|value| !value.is_nan());
            all.extend([0.0, -0.0, 0.1, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX]);
            Arc::new(Float32Array::from(some(&all, rows, random)))
        }
        10 => {
            let mut all: Vec<f64> = (0..8).map(|_| f64::from_bits(random.next())).collect();
            all.retain(|value| !value.is_nan());
            all.extend([0.0, -0.0, 1e300, 5e-324, f64::NAN, f64::INFINITY, f64::NEG_INFINITY]);
            Arc::new(Float64Array::from(some(&all, rows, random)))
        }
        11 | 12 => {
            let (precision, scale) =
                [(38, 0), (38, 38), (9, 2), (20, 19)][random.below(4) as usize];
            let most = 10i128.pow(u32::from(precision)) - 1;
            let array = numbers::<arrow::datatypes::Decimal128Type>(-most, most, rows, random);
            let array = array.as_any().downcast_ref::<Decimal128Array>().unwrap().clone();
            Arc::new(array.with_precision_and_scale(precision, scale).unwrap())
        }
        13 => {
            let all = [&b""[..], b"\0", b"hi", b"\xff\xfe,\"\n", b"NULL"];
            Arc::new(BinaryArray::from(some(&all, rows, random)))
        }
        14 => numbers::<Date32Type>(i32::MIN.into(), i32::MAX.into(), rows, random),
        15 => numbers::<Time32SecondType>(0, DAY - 1, rows, random),
        16 => numbers::<Time32MillisecondType>(0, DAY * 1_000 - 1, rows, random),
        17 => numbers::<Time64MicrosecondType>(0, DAY * 1_000_000 - 1, rows, random),
        18 => numbers::<Time64NanosecondType>(0, DAY * 1_000_000_000 - 1, rows, random),
        // But for the first and the last day.
        19 => numbers::<TimestampSecondType>(i64_min + 2 * DAY, i64_max - 2 * DAY, rows, random),
        20 => numbers::<TimestampMillisecondType>(i64_min, i64_max, rows, random),
        21 => {
            let array = numbers::<TimestampMicrosecondType>(i64_min, i64_max, rows, random);
            let zone = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
            cast(&array, &zone).unwrap()
        }
        22 => numbers::<TimestampNanosecondType>(i64_min, i64_max, rows, random),
        _ => Arc::new(StringArray::from(texts(null, rows, random))),
    }
}

fn options(random: &mut Random) -> (Options, String) {
    let mut options = Options::new();
    let mut choose = |key, values: &[&str]| {
        let value = values[random.below(values.len() as u64) as usize];
        if !value.is_empty() {
            options.push((key, value.to_string()));
        }
        value.to_string()
    };
    choose("csv.header", &["true", "false"]);
    choose("csv.field-delimiter", &["", ";", "\\t", "|", " ", "-", "."]);
    choose("csv.quote-character", &["", "'"]);
    let null = choose("csv.null-literal", &["", "", "NULL", "\\N", "0", "a"]);
    (options, null)
}

#[test]
fn what_is_written_is_read_back_the_same() {
    let name = format!("millstream-round-trip-{}", std::process::id());
    let directory = std::env::temp_dir().join(name);
    let mut one_null = 0;
    for seed in 0..250 {
        let mut random = Random::new(seed);
        let (options, null) = options(&mut random);
        let columns = 1 + random.below(3) as usize;
        let names = ["k", "a,b", "q\"'", "two words", "#", " blank ", "line\nend"];
        let first = random.below(names.len() as u64) as usize;
        let batches: Vec<RecordBatch> = {
            let lengths: Vec<usize> = (0..2).map(|_| random.below(30) as usize).collect();
            let rows: usize = lengths.iter().sum();
            let arrays: Vec<ArrayRef> =
                (0..columns).map(|_| column(&null, rows, &mut random)).collect();
            let field = |at: usize| {
                Field::new(names[(first + at) % names.len()], arrays[at].data_type().clone(), true)
            };
            let schema = Arc::new(Schema::new((0..columns).map(field).collect::<Vec<_>>()));
            let whole = RecordBatch::try_new(schema, arrays).unwrap();
            vec![whole.slice(0, lengths[0]), whole.slice(lengths[0], lengths[1])]
        };
        let expected = concat_batches(&batches[0].schema(), &batches).unwrap();
        if columns == 1 && null.is_empty() && expected.column(0).null_count() > 0 {
            one_null += 1;
        }
        let read = through_a_file(&batches, &directory, &options);
        assert_eq!(read, expected, "seed {seed}, {options:?}");
    }
    assert!(one_null > 10, "columns of NULLs alone on their lines: {one_null}");
    // The header is found without an option; with comments allowed, the header would be a comment.
    let array = Arc::new(StringArray::from(vec!["#1", "", "a"])) as ArrayRef;
    let batch = RecordBatch::try_from_iter_with_nullable([("#", array, true)]).unwrap();
    assert_eq!(through_a_file(std::slice::from_ref(&batch), &directory, &vec![]), batch);
    let file = directory.join("part-0-0");
    assert_eq!(fs::read_to_string(&file).unwrap(), "\"#\"\n\"#1\"\n\"\"\na\n");
    let comments: Options = vec![("csv.allow-comments", "true".into())];
    let table = FileTable::from_options(&table_options(&batch.schema(), &file, &comments)).unwrap();
    let mut split = table.open(&[0], &OpenOptions::alone(100, 0, 1)).unwrap().remove(0);
    let SplitPoll::Chunk(chunk) = split.poll_next(0, Waker::noop()).unwrap() else {
        panic!("no chunk")
    };
    assert_eq!(chunk.decode().unwrap(), batch);
    fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn options_that_could_not_be_read_back_are_refused() {
    let schema = Arc::new(Schema::new(vec![Field::new("a", DataType::Int64, true)]));
    for (key, value, expected) in [
        ("csv.quote-character", ",", "the same character is the field delimiter"),
        ("csv.quote-character", "-", "numbers and times have '-' in them"),
        ("csv.null-literal", "N,A", "it must do without quotes"),
        ("csv.null-literal", "N\nA", "it must do without quotes"),
        ("csv.field-delimiter", "ab", "expected one ASCII character"),
    ] {
        let options = table_options(&schema, Path::new("/x"), &vec![(key, value.into())]);
        let error = FileSink::from_options(&options).unwrap_err().to_string();
        assert!(error.contains(expected), "{key} {value}: {error}");
    }
}

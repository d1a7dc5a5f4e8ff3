//! Tests of Parquet: values, chunks and positions, types, and damaged files.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use arrow::array::{
    Array, ArrayRef, AsArray, Float64Array, Int32Array, Int32Builder, Int64Array, ListBuilder,
    MapBuilder, StringArray, StringBuilder, StructArray, TimestampMicrosecondArray,
    TimestampMillisecondArray,
};
use arrow::datatypes::{Field, Int64Type, Schema, SchemaRef, TimeUnit};
use millstream_contract::compare::Comparison;
use millstream_contract::pruning::{AnyOf, Condition, Pruning};
use millstream_contract::table::{OpenOptions, Table, TableOptions};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;

use std::sync::Arc;
use std::task::Waker;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::datatypes::DataType;
use millstream_contract::Result;
use millstream_contract::table::{Position, SplitPoll};

use crate::columns::text_dictionary;
use crate::source::FileTable;

mod instants;
mod pages;

/// A file of its own, which goes away with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(bytes: &[u8]) -> Scratch {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("millstream-parquet-{}-{number}.parquet", std::process::id());
        let scratch = Scratch(std::env::temp_dir().join(name));
        fs::write(&scratch.0, bytes).unwrap();
        scratch
    }

    fn table(&self, schema: &SchemaRef) -> FileTable {
        let path = self.0.display().to_string();
        let options = [("connector", "file"), ("format", "parquet"), ("path", &path)];
        FileTable::from_options(&TableOptions::new("t", schema.clone(), options)).unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn rows(count: i32) -> RecordBatch {
    let numbers = (0..count).map(|n| (n % 7 != 3).then_some(n));
    let texts = (0..count).map(|n| (n % 5 != 0).then(|| format!("text {}", n % 100)));
    let times = (0..count).map(|n| Some(i64::from(n) * 1000));
    let columns: [(&str, ArrayRef, bool); 4] = [
        ("n", Arc::new(Int32Array::from_iter(numbers)), true),
        ("S", Arc::new(StringArray::from_iter(texts)), true),
        ("ts", Arc::new(TimestampMillisecondArray::from_iter(times)), true),
        ("x", Arc::new(Float64Array::from_iter_values((0..count).map(f64::from))), true),
    ];
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

fn written(batch: &RecordBatch, group_rows: usize, packing: Compression) -> Vec<u8> {
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(group_rows))
        .set_data_page_row_count_limit(500)
        .set_compression(packing)
        .build();
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties)).unwrap();
    writer.write(batch).unwrap();
    writer.into_inner().unwrap()
}

fn read(
    table: &FileTable,
    projection: &[usize],
    options: &OpenOptions,
) -> Result<Vec<RecordBatch>> {
    let mut split = table.open(projection, options)?.remove(0);
    let mut batches = Vec::new();
    while let SplitPoll::Chunk(chunk) = split.poll_next(0, Waker::noop())? {
        batches.push(chunk.decode()?);
    }
    Ok(batches)
}

fn field(name: &str, data_type: DataType) -> Field {
    Field::new(name, data_type, true)
}

#[test]
fn what_was_written_is_read_in_the_tables_order_and_types() {
    let batch = rows(10_000);
    let timestamp = DataType::Timestamp(TimeUnit::Microsecond, None);
    let table_schema = Arc::new(Schema::new(vec![
        field("x", DataType::Float64),
        field("s", DataType::Utf8),
        field("ts", timestamp.clone()),
        field("n", DataType::Int64),
    ]));
    let packings = [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::LZ4_RAW,
        Compression::ZSTD(Default::default()),
    ];
    for packing in packings {
        let file = Scratch::new(&written(&batch, 3000, packing));
        let found = read(&file.table(&table_schema), &[3, 1, 2], &OpenOptions::alone(100, 0, 1));
        let found = found.unwrap();
        assert_eq!(found.len(), 4, "a chunk for each row group");
        let found = concat_batches(&found[0].schema(), &found).unwrap();
        let cast = |column: &ArrayRef, to| arrow::compute::cast(column, to).unwrap();
        assert_eq!(found.column(0), &cast(batch.column(0), &DataType::Int64));
        assert_eq!(found.column(1), batch.column(1));
        assert_eq!(found.column(2), &cast(batch.column(2), &timestamp));
        // Without columns the rows are counted.
        let counted = read(&file.table(&table_schema), &[], &OpenOptions::alone(100, 0, 1));
        let counted: usize = counted.unwrap().iter().map(RecordBatch::num_rows).sum();
        assert_eq!(counted, 10_000);
    }
}

#[test]
fn large_row_groups_are_cut_and_any_position_plus_the_rest_is_the_whole() {
    let batch = rows(300_000);
    let file = Scratch::new(&written(&batch, 200_000, Compression::SNAPPY));
    let schema = Arc::new(Schema::new(vec![field("n", DataType::Int32)]));
    let table = file.table(&schema);
    let options = OpenOptions::alone(100, 0, 1);
    let mut split = table.open(&[0], &options).unwrap().remove(0);
    let (mut rows, mut places) = (0, vec![(0, Position::default())]);
    while let SplitPoll::Chunk(chunk) = split.poll_next(0, Waker::noop()).unwrap() {
        rows += chunk.decode().unwrap().num_rows();
        places.push((rows, split.position()));
    }
    // Of 200,000 rows two chunks, of 100,000 one.
    assert_eq!((rows, places.len()), (300_000, 4));
    for (before, position) in places {
        let options =
            OpenOptions { from: [(split.name().into(), position)].into(), ..options.clone() };
        let rest = read(&table, &[0], &options).unwrap();
        let rest = concat_batches(&schema, &rest).unwrap();
        assert_eq!(rest.column(0), &batch.column(0).slice(before, 300_000 - before));
    }
}

/// A column stays a dictionary if that is asked for, and if it is one in all of the file.
#[test]
fn texts_in_dictionaries_stay_there_where_they_may() {
    let batch = rows(10_000);
    // Too many texts for a dictionary: the last pages hold them as they are.
    let all: StringArray = (0..10_000).map(|n| Some(format!("text number {n}"))).collect();
    let fields = batch.schema_ref().fields().iter().cloned();
    let fields = fields.chain([Arc::new(field("all", DataType::Utf8))]).collect::<Vec<_>>();
    let columns = batch.columns().iter().cloned().chain([Arc::new(all) as ArrayRef]).collect();
    let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap();
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(3000))
        .set_dictionary_page_size_limit(20_000)
        .set_write_batch_size(100)
        .build();
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    let file = Scratch::new(&writer.into_inner().unwrap());
    let schema = batch.schema();
    let table = file.table(&schema);
    let options = OpenOptions { dictionaries: vec![0, 2], ..OpenOptions::alone(100, 0, 1) };
    let plain = read(&table, &[1, 0, 4], &OpenOptions::alone(100, 0, 1)).unwrap();
    let kept = read(&table, &[1, 0, 4], &options).unwrap();
    assert_eq!(kept.len(), plain.len());
    for (kept, plain) in kept.iter().zip(&plain) {
        assert_eq!(*kept.column(0).data_type(), text_dictionary());
        let unpacked = arrow::compute::cast(kept.column(0), &DataType::Utf8).unwrap();
        assert_eq!(&unpacked, plain.column(0));
        assert_eq!(kept.columns()[1..], plain.columns()[1..]);
        assert_eq!(*kept.schema().field(2).data_type(), DataType::Utf8);
    }
}

#[test]
fn columns_that_do_not_fit_are_explained() {
    let file = Scratch::new(&written(&rows(10), 10, Compression::SNAPPY));
    for (name, data_type, expected) in [
        ("nn", DataType::Int32, "there is no column 'nn'\n  help: did you mean"),
        (
            "n",
            DataType::Int16,
            "column 'n' is declared as SMALLINT, but comes as INT, which is wider\n  help: \
             write n INT",
        ),
        ("S", DataType::Int64, "comes as STRING"),
        ("ts", DataType::Int64, "write ts TIMESTAMP(3) in CREATE TABLE"),
    ] {
        let schema = Arc::new(Schema::new(vec![field(name, data_type)]));
        let error = read(&file.table(&schema), &[0], &OpenOptions::alone(100, 0, 1));
        let error = error.unwrap_err().to_string();
        assert!(error.contains(expected), "{name}: {error}");
    }
    let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int32, false)]));
    let error = read(&file.table(&schema), &[0], &OpenOptions::alone(100, 0, 1)).unwrap_err();
    assert!(
        error.to_string().contains(".parquet, row 4: column 'n' is NOT NULL, found NULL"),
        "{error}"
    );
}

#[test]
fn every_truncation_is_an_error_and_damage_never_panics() {
    let whole = written(&rows(400), 150, Compression::SNAPPY);
    let schema = Arc::new(Schema::new(vec![
        field("n", DataType::Int32),
        field("s", DataType::Utf8),
        field("x", DataType::Float64),
    ]));
    let options = OpenOptions::alone(100, 0, 1);
    for end in 0..whole.len() {
        let file = Scratch::new(&whole[..end]);
        let error = read(&file.table(&schema), &[0, 1, 2], &options).unwrap_err().to_string();
        assert!(error.contains(".parquet: expected a Parquet file"), "{end}: {error}");
    }
    let mut seed = 1u64;
    for _ in 0..1500 {
        let mut damaged = whole.clone();
        for _ in 0..3 {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let at = (seed >> 33) as usize % damaged.len();
            damaged[at] = (seed >> 24) as u8;
        }
        let file = Scratch::new(&damaged);
        let _ = read(&file.table(&schema), &[0, 1, 2], &options);
    }
}

/// The rows that count are those of a read of everything, whatever is left out.
#[test]
fn statistics_leave_out_what_no_condition_takes_and_nothing_else() {
    let batch = rows(200_000);
    let schema = Arc::new(Schema::new(vec![
        field("n", DataType::Int64),
        field("s", DataType::Utf8),
        field("ts", DataType::Timestamp(TimeUnit::Microsecond, None)),
        Field::new("x", DataType::Float64, false),
    ]));
    let long = |value: i64| Arc::new(Int64Array::from(vec![value])) as ArrayRef;
    let time = |value: i64| Arc::new(TimestampMicrosecondArray::from(vec![value])) as ArrayRef;
    let text = |value: &str| Arc::new(StringArray::from(vec![value])) as ArrayRef;
    use Comparison::*;
    // Row groups of 20,000 rows are a chunk each, those of 200,000 two, of pages of 1,024 rows.
    for (group_rows, chunks) in [(20_000, 10), (200_000, 2)] {
        let file = Scratch::new(&written(&batch, group_rows, Compression::SNAPPY));
        let table = file.table(&schema);
        let whole = read(&table, &[0, 1, 2, 3], &OpenOptions::alone(100, 0, 1)).unwrap();
        assert_eq!(whole.len(), chunks);
        let half = if group_rows == 200_000 { 1 } else { 5 };
        let none = Vec::new;
        let first = Condition { column: 0, comparison: Less, constant: long(2) };
        for (mut any, column, comparison, constant, left_out) in [
            (none(), 0, Less, long(0), chunks),
            (none(), 0, Less, long(2), chunks - 1),
            (none(), 0, LessOrEqual, long(90_000), chunks - half),
            (none(), 0, Greater, long(199_999), chunks),
            (none(), 0, GreaterOrEqual, long(199_999), chunks - 1),
            (none(), 0, Equal, long(60_001), chunks - 1),
            (none(), 0, NotEqual, long(60_001), 0),
            (none(), 2, Less, time(1_000_000), chunks - 1),
            (none(), 1, Equal, text("text 7"), 0),
            (none(), 1, Equal, text("zzz"), chunks),
            (none(), 1, Less, text("a"), chunks),
            // One of the two.
            (vec![first.clone()], 0, GreaterOrEqual, long(199_999), chunks - 2),
            (vec![first.clone()], 1, Equal, text("text 7"), 0),
        ] {
            any.push(Condition { column, comparison, constant });
            let pruning = Pruning { conditions: vec![AnyOf(any)], always: vec![2] };
            let what = format!("{group_rows} rows: {:?}", pruning.conditions[0]);
            let options = OpenOptions { pruning, ..OpenOptions::alone(100, 0, 1) };
            let found = read(&table, &[0, 1, 2, 3], &options).unwrap();
            assert_eq!(found.len(), chunks, "{what}");
            let mut skipped = 0;
            for (found, whole) in found.iter().zip(&whole) {
                // What is looked at in every row is as it is.
                assert_eq!((found.column(2), found.column(3)), (whole.column(2), whole.column(3)));
                if found.column(0).null_count() < found.num_rows() {
                    assert_eq!(found, whole, "{what}");
                    continue;
                }
                skipped += 1;
                assert_eq!(found.column(1).null_count(), found.num_rows());
            }
            assert_eq!(skipped, left_out, "{what}");
        }
    }
}

/// Rows, arrays and maps come out as SQL declares them, in chunks of a row group as in one.
#[test]
fn nested_columns_are_conformed() {
    let count = 150_000;
    let mut lists = ListBuilder::new(Int32Builder::new());
    let mut maps = MapBuilder::new(None, StringBuilder::new(), Int32Builder::new());
    for n in 0..count {
        lists.append_option((n % 7 != 0).then(|| (0..n % 4).map(|i| (i != 2).then_some(n + i))));
        maps.keys().append_value(format!("key {}", n % 3));
        maps.values().append_value(n);
        maps.append(n % 5 != 0).unwrap();
    }
    let inner: ArrayRef =
        Arc::new(StringArray::from_iter_values((0..count).map(|n| n.to_string())));
    let fields = [(Arc::new(field("a", DataType::Utf8)), inner)];
    let columns: [(&str, ArrayRef, bool); 3] = [
        ("l", Arc::new(lists.finish()), true),
        ("r", Arc::new(StructArray::from(fields.to_vec())), true),
        ("m", Arc::new(maps.finish()), true),
    ];
    let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
    let entry = vec![Field::new("key", DataType::Utf8, false), field("value", DataType::Int64)];
    let entries = Arc::new(Field::new("entries", DataType::Struct(entry.into()), false));
    let schema = Arc::new(Schema::new(vec![
        field("l", DataType::new_list(DataType::Int64, true)),
        field("r", DataType::Struct(vec![field("A", DataType::Utf8)].into())),
        field("m", DataType::Map(entries, false)),
    ]));
    let file = Scratch::new(&written(&batch, 200_000, Compression::SNAPPY));
    let found = read(&file.table(&schema), &[0, 1, 2], &OpenOptions::alone(100, 0, 1)).unwrap();
    assert!(found.len() > 1, "one chunk");
    let found = concat_batches(&schema, &found).unwrap();
    let (lists, maps) = (found.column(0).as_list::<i32>(), found.column(2).as_map());
    let rows = found.column(1).as_struct().column(0).as_string::<i32>();
    for n in 0..count {
        let row = n as usize;
        let list = lists.is_valid(row).then(|| {
            lists.value(row).as_primitive::<Int64Type>().iter().collect::<Vec<Option<i64>>>()
        });
        let expected = (n % 7 != 0)
            .then(|| (0..n % 4).map(|i| (i != 2).then_some(i64::from(n + i))).collect::<Vec<_>>());
        assert_eq!(list, expected, "row {n}");
        assert_eq!(rows.value(row), n.to_string());
        assert_eq!(maps.is_valid(row), n % 5 != 0);
        if maps.is_valid(row) {
            let entry = maps.value(row);
            assert_eq!(entry.column(0).as_string::<i32>().value(0), format!("key {}", n % 3));
            assert_eq!(entry.column(1).as_primitive::<Int64Type>().value(0), i64::from(n));
        }
    }
}

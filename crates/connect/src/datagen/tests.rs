//! Tests that generated records do not depend on who generates them, and keep to their rate.

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{
    DataType, Decimal128Type, Field, Float64Type, Int8Type, Int64Type, TimeUnit,
    TimestampMillisecondType,
};
use millstream_contract::table::SplitPoll;

use super::*;

fn table_options(columns: &[(&str, DataType)], options: &[(&str, &str)]) -> TableOptions {
    let fields: Vec<Field> =
        columns.iter().map(|(name, t)| Field::new(*name, t.clone(), *name != "key")).collect();
    TableOptions::new("t", Arc::new(Schema::new(fields)), options.iter().copied())
}

fn table(columns: &[(&str, DataType)], options: &[(&str, &str)]) -> DatagenTable {
    DatagenTable::from_options(&table_options(columns, options)).unwrap()
}

fn open(table: &DatagenTable, projection: &[usize], batch_rows: usize) -> Vec<Box<dyn Split>> {
    let options = OpenOptions::alone(batch_rows, 5_000_000, 2);
    table.open(projection, &options).unwrap()
}

/// Everything there is at `now_us`, and what the split says then.
fn drain(split: &mut dyn Split, now_us: i64) -> (Vec<RecordBatch>, SplitPoll) {
    let mut batches = Vec::new();
    loop {
        match split.poll_next(now_us, std::task::Waker::noop()).unwrap() {
            SplitPoll::Chunk(chunk) => {
                assert!(chunk.bytes() > 0);
                batches.push(chunk.decode().unwrap());
            }
            other => return (batches, other),
        }
    }
}

fn rows(batches: &[RecordBatch]) -> usize {
    batches.iter().map(RecordBatch::num_rows).sum()
}

fn every_type() -> Vec<(&'static str, DataType)> {
    vec![
        ("key", DataType::Int64),
        ("b", DataType::Boolean),
        ("f", DataType::Float64),
        ("g", DataType::Float32),
        ("s", DataType::Utf8),
        ("x", DataType::Binary),
        ("m", DataType::Decimal128(38, 5)),
        ("d", DataType::Date32),
        ("t", DataType::Time64(TimeUnit::Nanosecond)),
        ("ts", DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into()))),
        ("u", DataType::UInt64),
    ]
}

#[test]
fn values_depend_on_nothing_but_seed_column_and_row() {
    let options = [("number-of-rows", "1000"), ("fields.s.null-rate", "0.25"), ("seed", "9")];
    let whole = table(&every_type(), &options);
    let all: Vec<usize> = (0..every_type().len()).collect();
    let (batches, _) = drain(&mut *open(&whole, &all, 1000).remove(0), 0);
    let [whole_batch] = batches.as_slice() else { panic!("one batch") };
    assert_eq!(whole_batch.num_rows(), 1000);
    let nulls = whole_batch.column(4).null_count();
    assert!((200..300).contains(&nulls), "{nulls} NULLs of 1000 at a rate of 0.25");

    let mut split_options = options.to_vec();
    split_options.push(("splits", "3"));
    let split = table(&every_type(), &split_options);
    for (number, mut part) in open(&split, &[4, 0], 7).into_iter().enumerate() {
        let mut row = number;
        for batch in drain(&mut *part, 0).0 {
            assert!(batch.num_rows() <= 7);
            for at in 0..batch.num_rows() {
                assert_eq!(&batch.column(0).slice(at, 1), &whole_batch.column(4).slice(row, 1));
                assert_eq!(&batch.column(1).slice(at, 1), &whole_batch.column(0).slice(row, 1));
                row += 3;
            }
        }
        assert_eq!(row, [1002, 1000, 1001][number]);
    }
    let other = table(&every_type(), &[("number-of-rows", "1000")]);
    let (batches, _) = drain(&mut *open(&other, &all, 1000).remove(0), 0);
    assert_ne!(batches[0].column(0), whole_batch.column(0));
    // With no columns a batch still counts its rows.
    assert_eq!(rows(&drain(&mut *open(&other, &[], 64).remove(0), 0).0), 1000);
}

#[test]
fn random_values_keep_to_their_bounds() {
    let columns = [("i", DataType::Int64), ("f", DataType::Float64), ("s", DataType::Utf8)];
    let options = [
        ("number-of-rows", "2000"),
        ("fields.i.min", "-3"),
        ("fields.i.max", "3"),
        ("fields.f.min", "10"),
        ("fields.f.max", "11.5"),
        ("fields.s.length", "12"),
    ];
    let (batches, _) = drain(&mut *open(&table(&columns, &options), &[0, 1, 2], 4096).remove(0), 0);
    let column = batches[0].column(0).as_primitive::<Int64Type>();
    let found: std::collections::BTreeSet<i64> = column.values().iter().copied().collect();
    assert_eq!(found.into_iter().collect::<Vec<_>>(), [-3, -2, -1, 0, 1, 2, 3]);
    let floats = batches[0].column(1).as_primitive::<Float64Type>();
    assert!(floats.values().iter().all(|f| (10.0..11.5).contains(f)));
    let strings = batches[0].column(2).as_string::<i32>();
    assert!(strings.iter().flatten().all(|s| s.len() == 12));
}

#[test]
fn sequences_count_and_end_the_table() {
    let columns = [("key", DataType::Int64), ("i", DataType::Int8)];
    let options = [
        ("fields.key.kind", "sequence"),
        ("fields.key.start", "5"),
        ("fields.key.end", "8"),
        ("fields.i.kind", "sequence"),
    ];
    let counted = table(&columns, &options);
    assert!(counted.bounded());
    let (batches, last) = drain(&mut *open(&counted, &[0, 1], 100).remove(0), 0);
    assert!(matches!(last, SplitPoll::Ended));
    assert_eq!(batches[0].column(0).as_primitive::<Int64Type>().values().to_vec(), [5, 6, 7, 8]);
    assert_eq!(batches[0].column(1).as_primitive::<Int8Type>().values().to_vec(), [0, 1, 2, 3]);
    assert!(!table(&columns[..1], &[("fields.key.kind", "sequence")]).bounded());
    // A decimal counts in ones, not in its last digit.
    let decimal = [("m", DataType::Decimal128(4, 2))];
    let options = [("fields.m.kind", "sequence"), ("fields.m.start", "97.50")];
    let (batches, _) = drain(&mut *open(&table(&decimal, &options), &[0], 100).remove(0), 0);
    let values = batches[0].column(0).as_primitive::<Decimal128Type>().values().to_vec();
    assert_eq!(values, [9750, 9850, 9950]);
    // A small type is used up by itself.
    let small = table(&columns[1..], &[("fields.i.kind", "sequence")]);
    assert_eq!(rows(&drain(&mut *open(&small, &[0], 100).remove(0), 0).0), 128);
}

#[test]
fn event_time_advances_by_its_step_or_with_the_clock() {
    let columns = [("ts", DataType::Timestamp(TimeUnit::Millisecond, None))];
    let times = |options: &[(&str, &str)], now_us| {
        let (batches, _) =
            drain(&mut *open(&table(&columns, options), &[0], 100).remove(0), now_us);
        batches[0].column(0).as_primitive::<TimestampMillisecondType>().values().to_vec()
    };
    let rows = ("number-of-rows", "4");
    assert_eq!(times(&[rows], 0), [5_000, 5_001, 5_002, 5_003]);
    assert_eq!(
        times(&[rows, ("fields.ts.start", "1970-01-01"), ("fields.ts.step", "500 us")], 0),
        [0, 0, 1, 1]
    );
    assert_eq!(times(&[rows, ("rows-per-second", "10")], 60_000_000), [5_000, 5_100, 5_200, 5_300]);
}

#[test]
fn a_paced_split_gives_what_is_due_in_small_batches() {
    let options = [("rows-per-second", "100000"), ("splits", "2"), ("number-of-rows", "2000")];
    let paced = table(&[("key", DataType::Int64)], &options);
    let mut split = open(&paced, &[0], 1 << 14).remove(0);
    let (none, poll) = drain(&mut *split, 4_000_000);
    assert!(none.is_empty());
    let SplitPoll::Pending { retry_at_us: Some(at) } = poll else { panic!("it is too early") };
    assert_eq!(at, 5_000_000);
    // At the start the first row is due; after that, every millisecond's worth in one batch.
    let mut now = at;
    let (mut count, mut polls) = (0, 0);
    loop {
        let (batches, poll) = drain(&mut *split, now);
        assert!(batches.len() <= 1);
        count += rows(&batches);
        // 50 rows per millisecond for each of the two splits.
        let elapsed = now - 5_000_000;
        assert!(count as i64 <= elapsed / 20 + 1, "{count} rows after {elapsed} us");
        match poll {
            SplitPoll::Pending { retry_at_us: Some(at) } => {
                assert!(at >= now + 1_000 && at <= now + 1_020, "{at} {now}");
                now = at;
            }
            _ => break,
        }
        polls += 1;
    }
    assert_eq!(count, 1_000);
    assert!((20..=22).contains(&polls), "{polls}");
    // A backlog comes in full batches at once.
    let mut late = open(&paced, &[0], 300).remove(1);
    let (batches, poll) = drain(&mut *late, 60_000_000);
    assert_eq!(batches.iter().map(RecordBatch::num_rows).collect::<Vec<_>>(), [300, 300, 300, 100]);
    assert!(matches!(poll, SplitPoll::Ended));
}

#[test]
fn wrong_options_are_explained() {
    let columns = [
        ("key", DataType::Int64),
        ("b", DataType::Boolean),
        ("t", DataType::Timestamp(TimeUnit::Second, None)),
    ];
    for (key, value, expected) in [
        ("rows-per-secnd", "10", "did you mean 'rows-per-second'?"),
        ("fields.kye.min", "10", "did you mean 'fields.key.min'?"),
        ("rows-per-second", "fast", "a whole number from 1 to"),
        ("fields.key.kind", "sequential", "'random' or 'sequence'"),
        ("fields.key.min", "1.5", "expected BIGINT, found '1.5'"),
        ("fields.key.null-rate", "0.5", "column 'key' is NOT NULL"),
        ("fields.b.kind", "sequence", "there is no sequence of BOOLEAN"),
        ("fields.t.kind", "random", "needs 'min' and 'max'"),
        ("fields.t.step", "10", "a duration such as"),
        ("fields.b.null-rate", "2", "a number from 0 to 1"),
    ] {
        let options = table_options(&columns, &[(key, value)]);
        let found = DatagenTable::from_options(&options).unwrap_err().to_string();
        assert!(found.contains(expected), "{key}: {found}");
    }
    let options = [("fields.key.min", "5"), ("fields.key.max", "4")];
    let error = DatagenTable::from_options(&table_options(&columns, &options)).unwrap_err();
    assert!(error.to_string().contains("less than"), "{error}");
}

//! Tables of batches that a program has, in any of Arrow's layouts: their columns come out in the
//! one that queries know.

use std::sync::Arc;
use std::task::Waker;

use arrow::array::{
    ArrayRef, AsArray, BinaryArray, BinaryViewArray, Date64Array, Decimal32Array, Decimal64Array,
    Decimal128Array, DictionaryArray, DurationSecondArray, LargeStringArray, RecordBatch,
    StringArray, StringViewArray, TimestampSecondArray,
};
use arrow::datatypes::{DataType, Int8Type, Int32Type, TimeUnit};
use millstream_connect::{MemoryTable, channel};
use millstream_contract::table::{OpenOptions, SplitPoll, Table};

/// The first batch of all columns of a table.
fn first_rows(table: &dyn Table) -> RecordBatch {
    let all: Vec<usize> = (0..table.schema().fields().len()).collect();
    let mut split = table.open(&all, &OpenOptions::alone(10, 0, 1)).unwrap().remove(0);
    let SplitPoll::Chunk(chunk) = split.poll_next(0, Waker::noop()).unwrap() else { panic!() };
    chunk.decode().unwrap()
}

/// One column in several layouts comes out in one, which a table of plain columns has, too.
#[test]
fn other_layouts_are_conformed_when_the_table_is_made() {
    let texts = [Some("a"), None, Some("a"), Some("more than twelve bytes")];
    let numbers = [Some(125), None, Some(-5), Some(0)];
    let bytes: [Option<&[u8]>; 4] = [Some(&[0xff, 0]), None, Some(&[]), Some(b"bytes")];
    let dictionary: DictionaryArray<Int8Type> = texts.into_iter().collect();
    let decimals = numbers.map(|n| n.map(i64::from));
    let short = Decimal32Array::from_iter(numbers).with_data_type(DataType::Decimal32(5, 0));
    let long = Decimal64Array::from_iter(decimals).with_data_type(DataType::Decimal64(9, 0));
    let other: Vec<(&str, ArrayRef)> = vec![
        ("view", Arc::new(StringViewArray::from_iter(texts))),
        ("large", Arc::new(LargeStringArray::from_iter(texts))),
        ("dictionary", Arc::new(dictionary)),
        ("bytes", Arc::new(BinaryViewArray::from_iter(bytes))),
        ("short", Arc::new(short)),
        ("long", Arc::new(long)),
        ("seconds", Arc::new(TimestampSecondArray::from(vec![1; 4]).with_timezone("+02:00"))),
    ];
    let text: ArrayRef = Arc::new(StringArray::from_iter(texts));
    let wide = |precision| -> ArrayRef {
        let wide = Decimal128Array::from_iter(numbers.map(|n| n.map(i128::from)));
        Arc::new(wide.with_data_type(DataType::Decimal128(precision, 0)))
    };
    let expected: Vec<ArrayRef> = vec![
        text.clone(),
        text.clone(),
        text,
        Arc::new(BinaryArray::from_iter(bytes)),
        wide(5),
        wide(9),
        Arc::new(TimestampSecondArray::from(vec![1; 4]).with_timezone("UTC")),
    ];
    let batch = RecordBatch::try_from_iter_with_nullable(
        other.into_iter().map(|(name, column)| (name, column, true)),
    )
    .unwrap();
    let table = MemoryTable::new(batch.schema(), vec![vec![batch.slice(1, 3)]]).unwrap();
    let rows = first_rows(&table);
    assert_eq!(rows.schema(), table.schema());
    for (at, expected) in expected.iter().enumerate() {
        assert_eq!(rows.column(at), &expected.slice(1, 3), "{}", rows.schema().field(at));
    }
}

#[test]
fn what_does_not_fit_is_an_error_and_what_has_no_name_stays() {
    let odd = Arc::new(Date64Array::from(vec![0, 1])) as ArrayRef;
    let odd = RecordBatch::try_from_iter([("day", odd)]).unwrap();
    let error = MemoryTable::new(odd.schema(), vec![vec![odd.slice(0, 1)], vec![odd]]);
    let error = error.unwrap_err().to_string();
    assert!(error.starts_with("memory, split 1, batch 0: column 'day': "), "{error}");
    let span = Arc::new(DurationSecondArray::from(vec![1])) as ArrayRef;
    let span = RecordBatch::try_from_iter([("span", span)]).unwrap();
    let table = MemoryTable::new(span.schema(), vec![vec![span]]).unwrap();
    assert_eq!(*table.schema().field(0).data_type(), DataType::Duration(TimeUnit::Second));
}

#[test]
fn a_dictionary_is_sent_as_the_strings_of_the_table() {
    let texts: DictionaryArray<Int32Type> = ["x", "y", "x"].into_iter().collect();
    let column = Arc::new(texts) as ArrayRef;
    let sent = RecordBatch::try_from_iter([("t", column)]).unwrap();
    let (writer, table) = channel(sent.schema(), 1);
    writer.send(sent).unwrap();
    let rows = first_rows(&table);
    assert_eq!(rows.schema(), table.schema());
    let texts: Vec<_> = rows.column(0).as_string::<i32>().iter().flatten().collect();
    assert_eq!(texts, ["x", "y", "x"]);
}

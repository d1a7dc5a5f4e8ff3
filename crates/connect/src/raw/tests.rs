//! Tests of raw lines.

use std::task::Waker;

use arrow::array::AsArray;
use arrow::datatypes::{Field, Schema};
use millstream_contract::table::{Position, Sharing, Split, SplitPoll};
use proptest::prelude::*;

use super::*;
use crate::input::Input;
use crate::records::{Reading, RecordSplit, read_whole};

fn read(text: &[u8], data_type: DataType) -> Result<Vec<Vec<u8>>> {
    let schema = Arc::new(Schema::new(vec![Field::new("line", data_type.clone(), true)]));
    let reading = Reading {
        path: "x.log".into(),
        schema: &schema,
        projection: &[0],
        batch_rows: 2,
        from: Position::default(),
        length: Some(text.len() as u64),
        sharing: Sharing::ByChunk,
        one_of_many: false,
        pruning: &Default::default(),
        dictionaries: &[],
        offsets: false,
        chunk_bytes: None,
    };
    let mut split =
        RecordSplit::open(Arc::new(RawFormat::default()), Input::memory(text), &reading)?;
    let mut lines = Vec::new();
    while let SplitPoll::Chunk(chunk) = split.poll_next(0, Waker::noop())? {
        let batch = chunk.decode()?;
        let column = batch.column(0);
        lines.extend((0..batch.num_rows()).map(|row| match data_type {
            DataType::Binary => column.as_binary::<i32>().value(row).to_vec(),
            _ => column.as_string::<i32>().value(row).as_bytes().to_vec(),
        }));
    }
    Ok(lines)
}

#[test]
fn each_line_is_a_record() {
    let expected: [&[u8]; 4] = [b"a,\"b", b"", b"c\rd", b"e"];
    for data_type in [DataType::Utf8, DataType::Binary] {
        assert_eq!(read(b"a,\"b\r\n\nc\rd\ne", data_type).unwrap(), expected);
    }
}

#[test]
fn text_must_be_utf8_and_bytes_need_not() {
    let error = read(b"a\nb\xff\n", DataType::Utf8).unwrap_err().to_string();
    assert!(error.starts_with("x.log:2:2: the line is not valid UTF-8"), "{error}");
    assert_eq!(read(b"\xff\n", DataType::Binary).unwrap(), [[0xff]]);
}

#[test]
fn a_line_is_one_column() {
    let column = |name: &str| Field::new(name, DataType::Utf8, true);
    assert_eq!(RawFormat::misfit(&Schema::new(vec![column("a")]), Unit::Line), None);
    let two = Schema::new(vec![column("a"), column("b")]);
    let two = RawFormat::misfit(&two, Unit::Line).unwrap();
    assert!(two.0.contains("one column, the table has 2"), "{two:?}");
}

/// What of a text is read in chunks of so many bytes, how many lines are left out, and the first.
fn left_out(text: &[u8], data_type: DataType, chunk_bytes: usize) -> (Vec<String>, u64, String) {
    let schema = Arc::new(Schema::new(vec![Field::new("line", data_type.clone(), true)]));
    let format = Arc::new(RawFormat { on_error: OnError::Keep, ..RawFormat::default() });
    let outcome = read_whole(format, "x.log", text, &schema, &[0], chunk_bytes).unwrap();
    let column = outcome.rows.column(0);
    let lines = (0..outcome.rows.num_rows()).map(|row| match data_type {
        DataType::Binary => String::from_utf8_lossy(column.as_binary::<i32>().value(row)).into(),
        _ => column.as_string::<i32>().value(row).to_string(),
    });
    let first = outcome.first_left_out.map_or(String::new(), |first| first.to_string());
    (lines.collect(), outcome.left_out, first)
}

#[test]
fn lines_that_are_no_text_can_be_left_out() {
    let text = b"a\nb\xff\r\n\xc3\n\xa4\n\xc3\xa4";
    let (lines, count, first) = left_out(text, DataType::Utf8, usize::MAX);
    assert_eq!((lines, count), (vec!["a".to_string(), "\u{e4}".to_string()], 3));
    assert_eq!(first, "x.log:2:2: the line is not valid UTF-8");
    // Bytes are what they are.
    let (lines, count, _) = left_out(text, DataType::Binary, usize::MAX);
    assert_eq!((lines.len(), count), (5, 0));
}

proptest! {
    #[test]
    fn what_is_left_out_does_not_depend_on_the_chunks(
        text in prop::collection::vec(prop::sample::select(b"ab\n\n\r\xc3\xa4\xff".to_vec()), 0..60),
        chunk_bytes in 1usize..20,
    ) {
        let whole = left_out(&text, DataType::Utf8, usize::MAX);
        prop_assert_eq!(&whole, &left_out(&text, DataType::Utf8, chunk_bytes));
        let lines: Vec<&[u8]> = text.split_inclusive(|byte| *byte == b'\n').collect();
        let wrong = lines.iter().filter(|line| std::str::from_utf8(line).is_err()).count();
        prop_assert_eq!((whole.0.len(), whole.1), (lines.len() - wrong, wrong as u64));
    }
}

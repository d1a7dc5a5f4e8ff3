//! Tests of raw lines.

use std::task::Waker;

use arrow::array::AsArray;
use arrow::datatypes::{Field, Schema};
use millstream_contract::table::{Position, Sharing, Split, SplitPoll};

use super::*;
use crate::input::Input;
use crate::records::{Reading, RecordSplit};

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
        offsets: false,
        chunk_bytes: None,
    };
    let mut split = RecordSplit::open(Arc::new(RawFormat), Input::memory(text), &reading)?;
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
    assert_eq!(RawFormat::misfit(&Schema::new(vec![column("a")])), None);
    let two = RawFormat::misfit(&Schema::new(vec![column("a"), column("b")])).unwrap();
    assert!(two.0.contains("one column, the table has 2"), "{two:?}");
}

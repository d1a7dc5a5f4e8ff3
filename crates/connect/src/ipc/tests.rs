//! Tests of Arrow IPC: values, both forms, positions, dictionaries, pipes, and damaged bytes.

use std::io::{self, Read};
use std::sync::Arc;
use std::task::Waker;

use arrow::array::{
    Array, ArrayRef, AsArray, DictionaryArray, Float64Array, Int32Array, ListBuilder, RecordBatch,
    StringArray, StringBuilder, StringViewArray, TimestampNanosecondArray,
};
use arrow::compute::concat_batches;
use arrow::datatypes::{
    DataType, Field, Float64Type, Int8Type, Int32Type, Int64Type, Schema, SchemaRef, TimeUnit,
    TimestampNanosecondType, UInt32Type,
};
use arrow::ipc::CompressionType;
use arrow::ipc::writer::{DictionaryHandling, FileWriter, IpcWriteOptions, StreamWriter};
use millstream_contract::Result;
use millstream_contract::table::{OpenOptions, Position, Sharing, Split, SplitPoll, Table};

use super::{IpcFormat, IpcSplit};
use crate::columns::text_dictionary;
use crate::input::{Input, Pipe};
use crate::records::Reading;
use crate::source::FileTable;

fn field(name: &str, data_type: DataType) -> Field {
    Field::new(name, data_type, true)
}

/// Rows of columns whose layouts all differ from how they are kept.
fn rows(first: i32, count: i32) -> RecordBatch {
    let texts: Vec<Option<String>> = (first..first + count)
        .map(|n| (n % 5 != 0).then(|| format!("text {} of some length", n % 100)))
        .collect();
    let mut lists = ListBuilder::new(StringBuilder::new()).with_field(field("l", DataType::Utf8));
    for n in first..first + count {
        lists.append_value((0..n % 3).map(|i| Some(i.to_string())));
    }
    let dictionary: DictionaryArray<UInt32Type> = texts.iter().map(Option::as_deref).collect();
    let columns: [(&str, ArrayRef, bool); 6] = [
        ("n", Arc::new(Int32Array::from_iter_values(first..first + count)), true),
        ("view", Arc::new(StringViewArray::from_iter(texts.iter())), true),
        (
            "x",
            Arc::new((first..first + count).map(|n| Some(f64::from(n))).collect::<Float64Array>()),
            true,
        ),
        ("dictionary", Arc::new(dictionary), true),
        (
            "ts",
            Arc::new(TimestampNanosecondArray::from_iter_values(
                (first..first + count).map(|n| i64::from(n) * 1_000_000),
            )),
            true,
        ),
        ("list", Arc::new(lists.finish()), true),
    ];
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

/// As a table declares them.
fn declared() -> SchemaRef {
    Arc::new(Schema::new(vec![
        field("n", DataType::Int64),
        field("view", DataType::Utf8),
        field("x", DataType::Float64),
        field("Dictionary", DataType::Utf8),
        field("ts", DataType::Timestamp(TimeUnit::Nanosecond, None)),
        field("list", DataType::new_list(DataType::Utf8, true)),
    ]))
}

const ALL: [usize; 6] = [0, 1, 2, 3, 4, 5];

#[derive(Debug, Clone, Copy, PartialEq)]
enum Form {
    File,
    Stream,
}

fn written(batches: &[RecordBatch], form: Form, packing: Option<CompressionType>) -> Vec<u8> {
    let options = IpcWriteOptions::default().try_with_compression(packing).unwrap();
    let schema = batches[0].schema();
    match form {
        Form::File => {
            let mut writer =
                FileWriter::try_new_with_options(Vec::new(), &schema, options).unwrap();
            // A file has one dictionary for each column.
            writer.write(&concat_batches(&schema, batches).unwrap()).unwrap();
            writer.finish().unwrap();
            writer.into_inner().unwrap()
        }
        Form::Stream => {
            let mut writer =
                StreamWriter::try_new_with_options(Vec::new(), &schema, options).unwrap();
            batches.iter().for_each(|batch| writer.write(batch).unwrap());
            writer.into_inner().unwrap()
        }
    }
}

fn table(bytes: &[u8]) -> FileTable {
    FileTable::in_memory("t.arrow", bytes, declared(), Arc::new(IpcFormat))
}

fn drain(split: &mut dyn Split) -> Result<Vec<RecordBatch>> {
    let mut batches = Vec::new();
    loop {
        match split.poll_next(0, Waker::noop())? {
            SplitPoll::Chunk(chunk) => batches.push(chunk.decode()?),
            SplitPoll::Pending { .. } => std::thread::yield_now(),
            SplitPoll::Ended => return Ok(batches),
        }
    }
}

fn read(bytes: &[u8], projection: &[usize]) -> Result<Vec<RecordBatch>> {
    let mut split = table(bytes).open(projection, &OpenOptions::alone(100, 0, 1))?.remove(0);
    drain(&mut *split)
}

/// The rows that [`rows`] makes, each as a text, worked out here once more.
fn expected(first: i32, count: i32) -> Vec<String> {
    let row = |n: i32| {
        let text = (n % 5 != 0).then(|| format!("text {} of some length", n % 100));
        let list: Vec<String> = (0..n % 3).map(|i| i.to_string()).collect();
        let nanoseconds = i64::from(n) * 1_000_000;
        format!("{n} {text:?} {n}.0 {text:?} {nanoseconds} {list:?}")
    };
    (first..first + count).map(row).collect()
}

fn shown(batches: &[RecordBatch]) -> Vec<String> {
    let row = |batch: &RecordBatch, row: usize| {
        let text = |column: usize| {
            let texts = batch.column(column).as_string::<i32>();
            texts.is_valid(row).then(|| texts.value(row).to_string())
        };
        let list = batch.column(5).as_list::<i32>().value(row);
        let list: Vec<&str> = list.as_string::<i32>().iter().flatten().collect();
        let n = batch.column(0).as_primitive::<Int64Type>().value(row);
        let x = batch.column(2).as_primitive::<Float64Type>().value(row);
        let ts = batch.column(4).as_primitive::<TimestampNanosecondType>().value(row);
        format!("{n} {:?} {x:?} {:?} {ts} {list:?}", text(1), text(3))
    };
    batches.iter().flat_map(|batch| (0..batch.num_rows()).map(move |n| row(batch, n))).collect()
}

#[test]
fn files_and_streams_are_read_packed_or_not() {
    let batches = [rows(0, 1000), rows(1000, 1), rows(1001, 500)];
    let packings = [None, Some(CompressionType::LZ4_FRAME), Some(CompressionType::ZSTD)];
    for (form, packing) in
        [Form::File, Form::Stream].into_iter().flat_map(|f| packings.map(|p| (f, p)))
    {
        let bytes = written(&batches, form, packing);
        let found = read(&bytes, &ALL).unwrap();
        assert_eq!(shown(&found), expected(0, 1501), "{form:?} {packing:?}");
        // Only some columns, in another order.
        let few = read(&bytes, &[3, 0]).unwrap();
        assert_eq!(few[0].column(0), found[0].column(3));
        assert_eq!(few[0].column(1), found[0].column(0));
        // Without columns the rows are counted.
        let counted = read(&bytes, &[]).unwrap();
        assert_eq!(counted.iter().map(RecordBatch::num_rows).sum::<usize>(), 1501);
    }
}

#[test]
fn any_position_plus_the_rest_is_the_whole() {
    let batches: Vec<RecordBatch> = [(0, 150_000), (150_000, 10), (150_010, 70_000)]
        .map(|(first, count)| rows(first, count).project(&[0]).unwrap())
        .into();
    let schema = batches[0].schema();
    let mut files = vec![written(&batches, Form::Stream, None)];
    let mut writer = FileWriter::try_new(Vec::new(), &schema).unwrap();
    batches.iter().for_each(|batch| writer.write(batch).unwrap());
    files.push(writer.into_inner().unwrap());
    for bytes in files {
        let options = OpenOptions::alone(100, 0, 1);
        let mut split = table(&bytes).open(&[0], &options).unwrap().remove(0);
        let (mut count, mut places) = (0, vec![(0, Position::default())]);
        while let SplitPoll::Chunk(chunk) = split.poll_next(0, Waker::noop()).unwrap() {
            count += chunk.decode().unwrap().num_rows();
            places.push((count, split.position()));
        }
        // Of 150,000 rows three chunks, of 10 one, of 70,000 two.
        assert_eq!((count, places.len()), (220_010, 7));
        for (before, position) in places {
            let options =
                OpenOptions { from: [(split.name().into(), position)].into(), ..options.clone() };
            let mut split = table(&bytes).open(&[0], &options).unwrap().remove(0);
            let rest = drain(&mut *split).unwrap();
            let numbers = rest
                .iter()
                .flat_map(|batch| batch.column(0).as_primitive::<Int64Type>().values().to_vec());
            assert!(numbers.eq(before as i64..220_010), "from row {before}");
        }
    }
}

/// In a stream, a dictionary may be put in place of another, or go on.
#[test]
fn dictionaries_of_a_stream_are_replaced_or_extended() {
    let batch = |texts: &[&str], keys: &[i8]| {
        let values = Arc::new(StringArray::from(texts.to_vec()));
        let keys = keys.iter().copied().collect();
        let column = DictionaryArray::<Int8Type>::new(keys, values);
        RecordBatch::try_from_iter([("Dictionary", Arc::new(column) as ArrayRef)]).unwrap()
    };
    let batches = [
        batch(&["a", "b"], &[0, 1, 1]),
        batch(&["a", "b", "c"], &[2, 0]),
        batch(&["z", "y"], &[0, 1]),
    ];
    for (handling, messages) in [(DictionaryHandling::Delta, 3), (DictionaryHandling::Resend, 3)] {
        let options = IpcWriteOptions::default().with_dictionary_handling(handling);
        let schema = batches[0].schema();
        let mut writer = StreamWriter::try_new_with_options(Vec::new(), &schema, options).unwrap();
        batches.iter().for_each(|batch| writer.write(batch).unwrap());
        let found = read(&writer.into_inner().unwrap(), &[3]).unwrap();
        assert_eq!(found.len(), messages);
        let texts: Vec<&str> =
            found.iter().flat_map(|b| b.column(0).as_string::<i32>().iter().flatten()).collect();
        assert_eq!(texts, ["a", "b", "b", "c", "a", "z", "y"]);
    }
}

/// Whatever numbers a dictionary is looked up with and however its texts are laid out.
#[test]
fn texts_in_dictionaries_stay_there_where_they_may() {
    let keys = || [Some(0), None, Some(1), Some(1), Some(0)].into_iter();
    let texts = StringArray::from(vec!["a", "b"]);
    let large = arrow::compute::cast(&texts, &DataType::LargeUtf8).unwrap();
    let with_null: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), None]));
    let narrow = DictionaryArray::<Int8Type>::new(keys().collect(), Arc::new(texts.clone()));
    let wide = DictionaryArray::<Int32Type>::new(keys().map(|k| k.map(i32::from)).collect(), large);
    let odd = DictionaryArray::<Int8Type>::new(keys().collect(), with_null);
    let few = narrow.slice(0, 2);
    for (column, is_kept) in [
        (Arc::new(narrow) as ArrayRef, true),
        (Arc::new(wide), true),
        // A value is NULL; there are as many values as rows.
        (Arc::new(odd), false),
        (Arc::new(few), false),
        (Arc::new(texts), false),
    ] {
        let batch =
            RecordBatch::try_from_iter_with_nullable([("Dictionary", column.clone(), true)]);
        let bytes = written(&[batch.unwrap()], Form::File, None);
        let options = OpenOptions { dictionaries: vec![0], ..OpenOptions::alone(100, 0, 1) };
        let mut split = table(&bytes).open(&[3], &options).unwrap().remove(0);
        let found = drain(&mut *split).unwrap().remove(0);
        let expected = if is_kept { text_dictionary() } else { DataType::Utf8 };
        assert_eq!(*found.column(0).data_type(), expected);
        let unpacked = |column: &ArrayRef| arrow::compute::cast(column, &DataType::Utf8).unwrap();
        assert_eq!(&unpacked(found.column(0)), &unpacked(&column));
    }
}

/// Gives a few bytes at a time.
struct Trickle(io::Cursor<Vec<u8>>, usize);

impl Read for Trickle {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let few = out.len().min(self.1);
        self.0.read(&mut out[..few])
    }
}

fn through_a_pipe(bytes: &[u8], at_once: usize) -> Result<Vec<RecordBatch>> {
    let input = Input::Pipe(Pipe::new(Box::new(Trickle(io::Cursor::new(bytes.to_vec()), at_once))));
    let schema = declared();
    let reading = Reading {
        path: "pipe".into(),
        schema: &schema,
        projection: &ALL,
        batch_rows: 100,
        from: Position::default(),
        length: None,
        sharing: Sharing::Coordinator,
        one_of_many: false,
        pruning: &Default::default(),
        dictionaries: &[],
        offsets: false,
        chunk_bytes: None,
    };
    drain(&mut IpcSplit::open(input, &reading)?)
}

#[test]
fn a_pipe_is_read_as_it_is_written() {
    let batches = [rows(0, 300), rows(300, 20)];
    let stream = written(&batches, Form::Stream, Some(CompressionType::ZSTD));
    for at_once in [1 << 20, 777, 7] {
        assert_eq!(shown(&through_a_pipe(&stream, at_once).unwrap()), expected(0, 320));
    }
    // A file holds a stream, too.
    let file = written(&batches, Form::File, None);
    assert_eq!(shown(&through_a_pipe(&file, 1000).unwrap()), expected(0, 320));
    for end in [0, 3, 8, 200, stream.len() / 2] {
        let error = through_a_pipe(&stream[..end], 1000).unwrap_err().to_string();
        assert!(error.contains("pipe"), "{end}: {error}");
    }
}

#[test]
fn every_truncation_is_an_error_with_its_place() {
    let batches = [rows(0, 60), rows(60, 40)];
    for form in [Form::File, Form::Stream] {
        for packing in [None, Some(CompressionType::LZ4_FRAME)] {
            let bytes = written(&batches, form, packing);
            for end in 0..bytes.len() {
                // The mark at the end of a stream is eight bytes, of which four say it all.
                if form == Form::Stream && end > bytes.len() - 4 {
                    continue;
                }
                let error = read(&bytes[..end], &ALL).err();
                let error = error.unwrap_or_else(|| panic!("{form:?}: {end} are enough"));
                assert!(error.to_string().contains("t.arrow"), "{form:?} {end}: {error}");
            }
        }
    }
}

#[test]
fn damage_is_an_error_or_other_values_and_never_a_panic() {
    let batches = [rows(0, 60), rows(60, 40)];
    let mut seed = 1u64;
    let mut next = || {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) as usize
    };
    let packings = [None, Some(CompressionType::LZ4_FRAME), Some(CompressionType::ZSTD)];
    for form in [Form::File, Form::Stream] {
        for packing in packings {
            let bytes = written(&batches, form, packing);
            let mut failed = 0;
            for round in 0..600 {
                let mut damaged = bytes.clone();
                for _ in 0..1 + round % 3 {
                    let at = next() % damaged.len();
                    damaged[at] = match next() % 3 {
                        0 => 0xff,
                        1 => damaged[at] ^ (1 << (next() % 8)),
                        _ => next() as u8,
                    };
                }
                failed += usize::from(read(&damaged, &ALL).is_err());
            }
            assert!(failed > 50, "{form:?} {packing:?}: {failed} of 600 are found");
        }
    }
}

#[test]
fn what_is_no_arrow_is_said_to_be_none() {
    for bytes in [&b""[..], b"a,b\n1,2\n", b"PAR1\x15\0\x15\0", b"{\"a\": 1}\n{\"a\": 2}\n"] {
        let error = read(bytes, &[0]).unwrap_err().to_string();
        assert!(error.contains("t.arrow: expected Arrow IPC, a file or a stream"), "{error}");
    }
    let other =
        RecordBatch::try_from_iter([("n", Arc::new(StringArray::from(vec!["a"])) as ArrayRef)]);
    let error = read(&written(&[other.unwrap()], Form::Stream, None), &[0]).unwrap_err();
    let expected = "column 'n' is declared as BIGINT, but comes as STRING";
    assert!(error.to_string().contains(expected), "{error}");
}

#[test]
fn the_schema_of_a_file_is_as_a_table_declares_it() {
    let bytes = written(&[rows(0, 3)], Form::Stream, None);
    let (schema, unknown) = super::schema_of(Input::memory(&bytes), "t".into()).unwrap();
    let types: Vec<DataType> = declared().fields().iter().map(|f| f.data_type().clone()).collect();
    let found: Vec<DataType> = schema.fields().iter().map(|f| f.data_type().clone()).collect();
    assert_eq!(found[0], DataType::Int32);
    assert_eq!((&found[1..], unknown.len()), (&types[1..], 0));
}

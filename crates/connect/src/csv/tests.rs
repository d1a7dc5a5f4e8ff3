//! Tests of whole files: values, positions of errors, and that cutting into chunks makes no
//! difference.

use std::path::Path;
use std::task::Waker;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Field, Float32Type, Float64Type, Int64Type, Schema,
    Time32MillisecondType, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType, UInt8Type,
};
use millstream_contract::table::{OpenOptions, Split, SplitPoll, Table, TableOptions};

use super::dialect::Header;
use super::fuzz::read_memory;
use super::*;
use crate::source::FileTable;

mod exact;
mod growing;
mod header;
mod random;

fn schema(fields: &[(&str, DataType, bool)]) -> SchemaRef {
    let field = |(name, data_type, nullable): &(&str, DataType, bool)| {
        Field::new(*name, data_type.clone(), *nullable)
    };
    Arc::new(Schema::new(fields.iter().map(field).collect::<Vec<_>>()))
}

fn read(text: &str, schema: &SchemaRef, dialect: &Dialect) -> Result<RecordBatch> {
    let all: Vec<usize> = (0..schema.fields().len()).collect();
    let whole = read_memory(text.as_bytes(), schema, dialect, &all, 1 << 20);
    let cut = read_memory(text.as_bytes(), schema, dialect, &all, 1);
    match (&whole, &cut) {
        (Ok(a), Ok(b)) => assert_eq!(a, b),
        (Err(a), Err(b)) => assert_eq!(a.to_string(), b.to_string()),
        _ => panic!("{whole:?} {cut:?}"),
    }
    whole.map(|outcome| outcome.rows)
}

fn in_memory(
    name: &str,
    text: impl AsRef<[u8]>,
    schema: SchemaRef,
    dialect: &Dialect,
) -> FileTable {
    let format = Arc::new(CsvFormat { dialect: Arc::new(dialect.clone()) });
    FileTable::in_memory(name, text.as_ref(), schema, format)
}

fn error(text: &str, schema: &SchemaRef, dialect: &Dialect) -> String {
    read(text, schema, dialect).unwrap_err().to_string()
}

#[test]
fn every_type_is_read() {
    let schema = schema(&[
        ("b", DataType::Boolean, true),
        ("u", DataType::UInt8, true),
        ("i", DataType::Int64, true),
        ("f", DataType::Float32, true),
        ("d", DataType::Float64, true),
        ("m", DataType::Decimal128(10, 2), true),
        ("s", DataType::Utf8, true),
        ("x", DataType::Binary, true),
        ("day", DataType::Date32, true),
        ("t", DataType::Time32(TimeUnit::Millisecond), true),
        ("ts", DataType::Timestamp(TimeUnit::Millisecond, None), true),
        ("tz", DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())), true),
    ]);
    let text = "true,255, -7 ,0.1,1e300,1.005,\"a \"\"b\"\"\",aGk=,1970-01-02,00:00:01.5,\
                2012-02-22T16:46:28.9670320,1970-01-01 01:00:00+01:00\n\
                ,,,,,,,,,,,\r\n\
                F,0,0,nan,-inf,-0.005,\"\",\"\",2000-02-29,23:59,\
                1969-12-31 23:59:59.9999,2000-01-01";
    let batch = read(text, &schema, &Dialect::default()).unwrap();
    assert_eq!(batch.num_rows(), 3);
    assert_eq!(batch.schema(), schema);
    assert!(batch.columns().iter().all(|c| c.is_null(1) && !c.is_null(0)));
    let column = |name: &str| batch.column_by_name(name).unwrap();
    assert!(column("b").as_boolean().value(0) && !column("b").as_boolean().value(2));
    assert_eq!(column("u").as_primitive::<UInt8Type>().value(0), 255);
    assert_eq!(column("i").as_primitive::<Int64Type>().value(0), -7);
    assert_eq!(column("f").as_primitive::<Float32Type>().value(0), 0.1);
    assert!(column("f").as_primitive::<Float32Type>().value(2).is_nan());
    assert_eq!(column("d").as_primitive::<Float64Type>().value(0), 1e300);
    assert_eq!(column("d").as_primitive::<Float64Type>().value(2), f64::NEG_INFINITY);
    assert_eq!(column("m").as_primitive::<Decimal128Type>().value(0), 101);
    assert_eq!(column("m").as_primitive::<Decimal128Type>().value(2), -1);
    assert_eq!(column("s").as_string::<i32>().value(0), "a \"b\"");
    assert_eq!(column("s").as_string::<i32>().value(2), "");
    assert!(!column("s").is_null(2));
    assert_eq!(column("x").as_binary::<i32>().value(0), b"hi");
    assert_eq!(column("x").as_binary::<i32>().value(2), b"");
    assert_eq!(column("day").as_primitive::<Date32Type>().value(0), 1);
    assert_eq!(column("day").as_primitive::<Date32Type>().value(2), 11_016);
    assert_eq!(column("t").as_primitive::<Time32MillisecondType>().value(0), 1_500);
    let ts = column("ts").as_primitive::<TimestampMillisecondType>();
    assert_eq!((ts.value(0), ts.value(2)), (1_329_929_188_967, -1));
    let tz = column("tz").as_primitive::<TimestampMicrosecondType>();
    assert_eq!((tz.value(0), tz.value(2)), (0, 946_684_800_000_000));
}

#[test]
fn a_number_that_is_too_large_is_no_infinity() {
    let schema = schema(&[("d", DataType::Float64, true), ("f", DataType::Float32, true)]);
    let words = "inf,Infinity\n-Infinity,-inf\n+infinity,1e38\n1e308,1e-999\n";
    let batch = read(words, &schema, &Dialect::default()).unwrap();
    let doubles = batch.column(0).as_primitive::<Float64Type>();
    let infinity = f64::INFINITY;
    assert_eq!(doubles.values().to_vec(), [infinity, -infinity, infinity, 1e308]);
    assert_eq!(batch.column(1).as_primitive::<Float32Type>().value(3), 0.0);
    for (text, expected) in [
        ("1,1\n1e999,1", "memory.csv:2:1: expected DOUBLE for column 'd', found '1e999'"),
        ("-1e309,1", "memory.csv:1:1: expected DOUBLE for column 'd', found '-1e309'"),
        ("1,1\n1,1e39", "memory.csv:2:3: expected FLOAT for column 'f', found '1e39'"),
        ("9e400 ,1", "memory.csv:1:1: expected DOUBLE for column 'd', found '9e400 '"),
    ] {
        let found = error(text, &schema, &Dialect::default());
        assert!(found.contains(expected) && found.contains("does not fit"), "{text}: {found}");
    }
    let skip = Dialect { skip_errors: true, ..Dialect::default() };
    assert_eq!(read("1e999,1\n2,2", &schema, &skip).unwrap().num_rows(), 1);
}

#[test]
fn null_is_what_the_literal_says() {
    let schema = schema(&[("s", DataType::Utf8, true), ("n", DataType::Int64, true)]);
    let dialect = Dialect { null_literal: Some("NULL".into()), ..Dialect::default() };
    let batch = read("NULL,NULL\n\"NULL\",\"\"\n,\n", &schema, &dialect).unwrap();
    let strings = batch.column(0).as_string::<i32>();
    assert_eq!(strings.iter().collect::<Vec<_>>(), [None, Some("NULL"), Some("")]);
    assert_eq!(batch.column(1).null_count(), 3);
}

#[test]
fn columns_are_found_by_name_or_by_position() {
    let schema = schema(&[("b", DataType::Int64, true), ("a", DataType::Int64, true)]);
    let rows = |text: &str, header| {
        let dialect = Dialect { header, ..Dialect::default() };
        let batch = read(text, &schema, &dialect).unwrap();
        let values = |c: usize| batch.column(c).as_primitive::<Int64Type>().values().to_vec();
        (values(0), values(1))
    };
    for header in [Header::Auto, Header::Present] {
        assert_eq!(rows("\u{feff}A,\"x\",b\r\n1,2,3\r\n", header), (vec![3], vec![1]));
        assert_eq!(rows("\n\nb,a", header), (vec![], vec![]));
        assert_eq!(rows("", header), (vec![], vec![]));
    }
    assert_eq!(rows("1,2\n3,4", Header::Auto), (vec![1, 3], vec![2, 4]));
    assert_eq!(rows("1,2\n3,4", Header::Absent), (vec![1, 3], vec![2, 4]));
}

#[test]
fn a_header_that_does_not_fit_is_explained() {
    let schema = schema(&[("time_s", DataType::Int64, true), ("job_id", DataType::Int64, true)]);
    let present = Dialect { header: Header::Present, ..Dialect::default() };
    let text = error("time_s,jobid\n1,2\n", &schema, &Dialect::default());
    assert!(text.starts_with("memory.csv:1:1: the header has no column 'job_id'"), "{text}");
    assert!(text.contains("did you mean 'jobid'?"), "{text}");
    assert!(text.contains("'csv.header' = 'false'"), "{text}");
    let text = error("x,y\n1,2\n", &schema, &present);
    assert!(text.contains("its columns are x, y"), "{text}");
    let text = error("\u{e9},job_id,time_s,job_id\n", &schema, &present);
    assert!(text.starts_with("memory.csv:1:17: the header has column 'job_id' twice"), "{text}");
}

#[test]
fn a_blank_line_is_null_where_there_is_one_column() {
    let text = schema(&[("a", DataType::Utf8, true)]);
    let values = |written: &str, header| {
        let dialect = Dialect { header, ..Dialect::default() };
        let rows = read(written, &text, &dialect).unwrap();
        let values = rows.column(0).as_string::<i32>().iter();
        values.map(|value| value.map(str::to_string)).collect::<Vec<_>>()
    };
    let (null, empty, one) = (None, Some(String::new()), Some("1".to_string()));
    let all = [null.clone(), empty, null, one.clone()];
    assert_eq!(values("\n\"\"\n\r\n1", Header::Absent), all);
    assert_eq!(values("\n\"\"\n\r\n1", Header::Auto), all);
    assert_eq!(values("\n\na\n\n1\n", Header::Auto), [None, one.clone()]);
    assert_eq!(values("\n\na\n\n1\n", Header::Present), [None, one.clone()]);
    let two = schema(&[("a", DataType::Int64, true), ("b", DataType::Int64, true)]);
    assert_eq!(read("\n1,2\n\n", &two, &Dialect::default()).unwrap().num_rows(), 1);
    // A column of a file that has more is not meant.
    assert_eq!(values("a,b\n\n1,2\n", Header::Auto), [one]);
    let found = error("1\n\n", &schema(&[("a", DataType::Int64, false)]), &Dialect::default());
    assert!(found.starts_with("memory.csv:2:1: column 'a' is NOT NULL"), "{found}");
}

/// Worked out by hand: what a quote that is not closed takes along, and what is said of it.
#[test]
fn a_quote_that_is_never_closed_takes_no_other_records_along() {
    let schema = schema(&[("a", DataType::Int64, true), ("b", DataType::Utf8, true)]);
    let many: String = (10..2_000).map(|n| format!("{n},x\n")).collect();
    let rows = |text: &str| {
        let dialect = Dialect { skip_errors: true, keep_malformed: true, ..Dialect::default() };
        let outcomes: Vec<_> = [1, 7, 100, 1 << 20]
            .map(|bytes| read_memory(text.as_bytes(), &schema, &dialect, &[0, 1], bytes).unwrap())
            .into();
        assert!(outcomes.windows(2).all(|pair| pair[0] == pair[1]), "{text}");
        let one = &outcomes[0];
        (
            one.rows.num_rows(),
            one.left_out,
            one.first_left_out.as_ref().map_or(String::new(), ToString::to_string),
        )
    };
    let never = |place: &str| {
        format!(
            "memory.csv:{place}: the quote that opens here is never closed, or not within 1 MiB"
        )
    };
    // To the end of the file.
    assert_eq!(rows(&format!("1,x\n2,\"y\n{many}")), (1_991, 1, never("2:3")));
    // To the opening quote of another field, or the closing one of a field that lacks the other.
    assert_eq!(rows(&format!("1,x\n2,\"y\n{many}3,\"z\"\n")), (1_992, 1, never("2:3")));
    assert_eq!(rows(&format!("1,x\n2,\"y\n{many}3,z\" \n")), (1_992, 1, never("2:3")));
    // One in every line; one in the last.
    assert_eq!(rows("1,\"x\n2,\"y\n3,z\n4,\"w"), (1, 3, never("1:3")));
    // Fields of several lines are what they were.
    assert_eq!(rows("1,\"x\ny\"\n2,\"\"\"\n3,\"\"\"\n4,z\n"), (3, 0, String::new()));
    // A record of several lines whose quotes are in order is one record, wrong as it may be.
    let (kept, left_out, first) = rows("1,x\n2,\"y\n\n\",z\n3,w\n");
    assert_eq!((kept, left_out), (2, 1));
    assert!(first.starts_with("memory.csv:2:1: expected 2 fields"), "{first}");
    assert!(first.ends_with("found 3 in a record of 3 lines"), "{first}");
    // More than a field may have.
    let long = format!("1,\"{}\n", "x".repeat(1 << 20));
    let too_long = "memory.csv:1:3: the field in quotes that starts here is longer than 1 MiB";
    assert_eq!(rows(&format!("{long}2,y\n\"\n")), (1, 2, too_long.to_string()));
    // It may well be closed; one byte less would do.
    let closed = |bytes| format!("1,\"{}\"\n2,y\n", "x".repeat(bytes));
    assert_eq!(rows(&closed(1 << 20)), (1, 1, too_long.to_string()));
    assert_eq!(rows(&closed((1 << 20) - 1)), (2, 0, String::new()));
    // Where lines are short, it is not known which of both it is.
    let lines = format!("1,\"{}\"\n2,y\n", "x\n".repeat(1 << 19));
    assert_eq!(rows(&lines).2, never("1:3"));
    // Where nothing is left out, the error names the quote.
    let plain = Dialect::default();
    let found = error(&format!("1,x\n2,\"y\n{many}3,\"z\"\n"), &schema, &plain);
    assert!(
        found
            .starts_with("memory.csv:2:3: the quote that opens here is closed on line 1993, where"),
        "{found}"
    );
    assert!(found.contains("'csv.disable-quote-character'"), "{found}");
}

#[test]
fn errors_name_line_and_column() {
    let schema = schema(&[
        ("name", DataType::Utf8, false),
        ("n", DataType::Int8, true),
        ("ts", DataType::Timestamp(TimeUnit::Millisecond, None), true),
    ]);
    let plain = Dialect::default();
    for (text, expected) in [
        (
            "a,1,\n\u{e9}\u{e9},abc,\n",
            "memory.csv:2:4: expected TINYINT for column 'n', found 'abc'",
        ),
        (
            "\"a\nb\",1,\nc,2,\n\"x\ny\",300,\n",
            "memory.csv:5:4: expected TINYINT (-128 to 127) for column 'n', found '300'",
        ),
        ("a,1,\n,1,\n", "memory.csv:2:1: column 'name' is NOT NULL, found an empty field"),
        ("a,1,12\n", "memory.csv:1:5: expected TIMESTAMP(3) for column 'ts', found '12'"),
        ("a,1,\nb,2\n", "memory.csv:2:1: expected 3 fields, one for each column, found 2"),
        ("a,1,\nb,2,,\n", "memory.csv:2:1: expected 3 fields, one for each column, found 4"),
        ("a,1,\n\"b\"c,2,\n", "memory.csv:2:4: expected a delimiter or a line end"),
        ("a,1,\nb,2,\"\n\n", "memory.csv:2:5: the quote that opens here is never closed"),
        (
            "a;1;\n",
            "memory.csv:1:1: the first line is neither a header with the table's columns nor a \
             record: expected 3 fields, one for each column, found 1",
        ),
        // The first one in the file counts, whatever column it is in.
        ("a,1,x\nb,z,\n", "memory.csv:1:5: expected TIMESTAMP(3)"),
        ("a,1,\nb,z,x\nc\n", "memory.csv:2:3: expected TINYINT"),
        (
            "a,1,\na,\u{1b}[31m,\n",
            "memory.csv:2:3: expected TINYINT for column 'n', found '\\u{1b}[31m'",
        ),
    ] {
        let found = error(text, &schema, &plain);
        assert!(found.starts_with(expected), "{text:?}: {found}");
    }
    assert!(error("a,1,12\n", &schema, &plain).contains("to_timestamp_seconds"));
    assert!(error("a;1;\n", &schema, &plain).contains("separated by ';'"));
    let long = error(&format!("a,{},\n", "9x".repeat(100)), &schema, &plain);
    assert!(long.contains(&format!("'{}…'", "9x".repeat(20))), "{long}");
}

#[test]
fn text_that_is_not_utf8_is_reported_in_its_place() {
    let schema = schema(&[("a", DataType::Utf8, true), ("b", DataType::Utf8, true)]);
    let bytes = b"x,y\n1,caf\xe9\n2,z\n";
    let read = |dialect: &Dialect, projection: &[usize]| {
        read_memory(bytes, &schema, dialect, projection, 1 << 20).map(|outcome| outcome.rows)
    };
    let text = read(&Dialect::default(), &[0, 1]).unwrap_err().to_string();
    assert!(text.starts_with("memory.csv:2:3: column 'b' is not valid UTF-8"), "{text}");
    // A column that nobody reads may hold anything.
    assert_eq!(read(&Dialect::default(), &[0]).unwrap().num_rows(), 3);
    let skip = Dialect { skip_errors: true, keep_malformed: true, ..Dialect::default() };
    let batch = read(&skip, &[1]).unwrap();
    assert_eq!(
        batch.column(0).as_string::<i32>().iter().collect::<Vec<_>>(),
        [Some("y"), Some("z")]
    );
}

#[test]
fn malformed_records_can_be_left_out() {
    let schema = schema(&[("a", DataType::Int64, false), ("b", DataType::Boolean, true)]);
    let dialect = Dialect { skip_errors: true, keep_malformed: true, ..Dialect::default() };
    let text = "1,t\n2\n,f\nx,t\n3,maybe\ny,maybe\n\"4\"5,t\n6,\n7,\"t";
    let batch = read(text, &schema, &dialect).unwrap();
    assert_eq!(batch.column(0).as_primitive::<Int64Type>().values().to_vec(), [1, 6]);
}

#[test]
fn the_first_record_left_out_and_the_lines_of_the_others_are_known() {
    let fields = [("a", DataType::Int64, false), ("b", DataType::Boolean, true)];
    let dialect = Dialect { skip_errors: true, keep_malformed: true, ..Dialect::default() };
    for (text, left_out, first, lines) in [
        ("1,t\n2,f\n", 0, None, vec![1, 2]),
        ("1,t\n\n2,x\n\"3\n\",t\n4,f\n", 1, Some(":3:3: expected BOOLEAN"), vec![1, 4, 6]),
        // The leftmost of a record's faults, the first of several records, shape or value.
        ("1,t\nx,y\n3\n4,f\n", 2, Some(":2:1: expected BIGINT"), vec![1, 4]),
        ("1,t\n3\nx,y\n,f\n", 3, Some(":2:1: expected 2 fields"), vec![1]),
        ("1,t\n2,x\ny,t\n", 2, Some(":2:3: expected BOOLEAN"), vec![1]),
    ] {
        let table = in_memory("x.csv", text, schema(&fields), &dialect);
        let options = OpenOptions::alone(100, 0, 1);
        let mut split = table.open(&[0, 1], &options).unwrap().remove(0);
        let SplitPoll::Chunk(chunk) = split.poll_next(0, Waker::noop()).unwrap() else {
            panic!("{text}: no chunk")
        };
        let decoded = chunk.decode_reporting().unwrap();
        assert_eq!(decoded.left_out, left_out, "{text}");
        let said = decoded.first_left_out;
        assert_eq!(said.is_some(), first.is_some(), "{text}: {said:?}");
        assert!(
            said.is_none_or(|said| said
                .to_string()
                .starts_with(&format!("x.csv{}", first.unwrap()))),
            "{text}"
        );
        let places = decoded.places.unwrap();
        let found: Vec<String> =
            (0..decoded.batch.num_rows()).map(|row| places.place(row)).collect();
        let expected: Vec<String> = lines.iter().map(|line| format!("x.csv:{line}")).collect();
        assert_eq!(found, expected, "{text}");
    }
}

#[test]
fn batches_have_at_most_as_many_rows_as_asked() {
    let schema = schema(&[("a", DataType::Utf8, true)]);
    let long = format!("{}\n", "x".repeat(100)).repeat(50);
    let text = format!("{long}{}", "y\n".repeat(500));
    let table = in_memory("memory.csv", &text, schema, &Dialect::default());
    for batch_rows in [1, 7, 64] {
        let options = OpenOptions::alone(batch_rows, 0, 2);
        let mut split = table.open(&[0], &options).unwrap().remove(0);
        let (mut rows, mut chunks) = (0, 0);
        while let SplitPoll::Chunk(chunk) = split.poll_next(0, Waker::noop()).unwrap() {
            let batch = chunk.decode().unwrap();
            assert!(batch.num_rows() <= batch_rows);
            rows += batch.num_rows();
            chunks += 1;
        }
        assert_eq!(rows, 550);
        assert!(chunks <= 550 / batch_rows + 60, "{chunks} chunks of up to {batch_rows} rows");
    }
}

#[test]
fn a_small_file_is_several_chunks() {
    let text = "123456789,abcdefgh\n".repeat(10_000);
    let schema = schema(&[("a", DataType::Int64, true), ("b", DataType::Utf8, true)]);
    let table = in_memory("memory.csv", &text, schema, &Dialect::default());
    let options = OpenOptions::alone(16_384, 0, 2);
    let mut split = table.open(&[], &options).unwrap().remove(0);
    let (mut rows, mut chunks) = (0, 0);
    while let SplitPoll::Chunk(chunk) = split.poll_next(0, Waker::noop()).unwrap() {
        assert!(chunk.bytes() > 0);
        rows += chunk.decode().unwrap().num_rows();
        chunks += 1;
    }
    assert_eq!(rows, 10_000);
    assert!(chunks >= 16, "{chunks}");
}

fn options(path: &str, more: &[(&str, &str)]) -> TableOptions {
    let usual = [("connector", "file"), ("format", "csv"), ("path", path)];
    let options = usual.into_iter().chain(more.iter().copied());
    let base_dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let schema = schema(&[("a", DataType::Int64, true)]);
    TableOptions { base_dir, ..TableOptions::new("t", schema, options) }
}

#[test]
fn wrong_options_are_explained() {
    let error = |path: &str, more: &[(&str, &str)]| {
        FileTable::from_options(&options(path, more)).unwrap_err().to_string()
    };
    for (path, more, expected) in [
        ("csv/moode.rs", &[][..], "did you mean"),
        ("cvs/mod.rs", &[], "did you mean"),
        ("no/such/place.txt", &[], "there is no directory"),
        ("", &[], "option 'path': a file needs a path"),
        ("lib.rs", &[("format", "orc")], "the format 'orc' does not run here"),
        ("lib.rs", &[("format", "cvs")], "did you mean 'csv'?"),
        ("lib.rs", &[("csv.feild-delimiter", ";")], "did you mean 'csv.field-delimiter'?"),
        ("lib.rs", &[("csv.field-delimiter", ";;")], "expected one ASCII character"),
        ("lib.rs", &[("csv.field-delimiter", "\"")], "the same character"),
        ("lib.rs", &[("csv.header", "maybe")], "'auto', 'true', 'false' or 'skip'"),
        ("lib.rs", &[("csv.allow-comments", "yes")], "'true' or 'false'"),
    ] {
        let found = error(path, more);
        assert!(found.contains(expected), "{path} {more:?}: {found}");
    }
    let mut missing = options("lib.rs", &[]);
    missing.options.remove("format");
    let found = FileTable::from_options(&missing).unwrap_err().to_string();
    assert!(found.contains("write 'format' = 'csv'"), "{found}");
    let table = FileTable::from_options(&options("lib.rs", &[])).unwrap();
    assert!(table.describe(&[0]).ends_with("lib.rs (csv, 1 of 1 column)"));
    assert!(table.bounded());
}

/// Worked out by hand: malformed records come with their bytes, their place and the reason.
#[test]
fn malformed_records_are_kept_as_they_stand() {
    let text = b"a,b\n1,x\nq,y\r\n2,\"x\ny\"\n\n3\n4,\"z\nw\"q\n5,\xff\n6,v";
    let fields = [("a", DataType::Int64, true), ("b", DataType::Utf8, true)];
    let dialect = Dialect { skip_errors: true, keep_malformed: true, ..Dialect::default() };
    let schema = schema(&fields);
    let expected: [(&[u8], &str, &str); 5] = [
        (b"q,y", "x.csv:3:1", "expected BIGINT for column 'a', found 'q'"),
        (b"3", "x.csv:7:1", "expected 2 fields, as in the header, found 1"),
        (b"4,\"z", "x.csv:8:3", "the quote that opens here is never closed, or not within 1 MiB"),
        (b"w\"q", "x.csv:9:1", "expected 2 fields, as in the header, found 1"),
        (b"5,\xff", "x.csv:10:3", "column 'b' is not valid UTF-8, found '\u{fffd}'"),
    ];
    let table = in_memory("x.csv", text, schema, &dialect);
    let mut split = table.open(&[0, 1], &OpenOptions::alone(100, 0, 1)).unwrap().remove(0);
    let (mut found, mut rows) = (Vec::new(), 0);
    while let SplitPoll::Chunk(chunk) = split.poll_next(0, Waker::noop()).unwrap() {
        let decoded = chunk.decode_reporting().unwrap();
        rows += decoded.batch.num_rows();
        let Some(malformed) = decoded.malformed else { continue };
        let (raw, text) = (malformed.column(0).as_binary::<i32>(), |column: usize| {
            malformed.column(column).as_string::<i32>()
        });
        found.extend((0..malformed.num_rows()).map(|row| {
            let (place, reason) = (text(1).value(row), text(2).value(row));
            (raw.value(row).to_vec(), place.to_string(), reason.to_string())
        }));
    }
    let expected = expected.map(|(raw, place, reason)| (raw.to_vec(), place.into(), reason.into()));
    assert_eq!((found, rows), (expected.to_vec(), 3));
}

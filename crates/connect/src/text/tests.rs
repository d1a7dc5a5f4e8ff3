//! Tests of formatting against expected output that was written by hand.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, DictionaryArray,
    Float64Array, Int32Array, Int64Array, NullArray, RecordBatch, StringArray,
    Time64MicrosecondArray, TimestampMillisecondArray, TimestampSecondArray, UInt64Array,
};
use arrow::datatypes::{Int32Type, Schema};

use super::*;

const ALONE: Writers = Writers::alone();

/// Output that a test can look at.
#[derive(Clone, Default)]
struct Screen(Arc<Mutex<Vec<u8>>>);

impl Write for Screen {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Screen {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

pub(super) fn shown(format: Format, width: Option<u16>, batches: &[RecordBatch]) -> String {
    let screen = Screen::default();
    let sink = TextSink::new(
        format,
        Box::new(screen.clone()),
        TextOptions { width, ..TextOptions::default() },
    );
    sink.open(&batches[0].schema(), ALONE).unwrap();
    for batch in batches {
        sink.write(0, batch, true).unwrap();
    }
    sink.finish().unwrap();
    screen.text()
}

pub(super) fn columns(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(n, c)| (n, c, true)))
        .unwrap()
}

fn every_type() -> RecordBatch {
    let decimals = Decimal128Array::from(vec![Some(-5), Some(1234), None]);
    columns(vec![
        ("b", Arc::new(BooleanArray::from(vec![Some(true), Some(false), None]))),
        ("i", Arc::new(Int64Array::from(vec![Some(i64::MIN), Some(7), None]))),
        ("u", Arc::new(UInt64Array::from(vec![Some(u64::MAX), Some(0), None]))),
        ("f", Arc::new(Float64Array::from(vec![Some(0.1), Some(f64::NAN), None]))),
        ("g", Arc::new(Float64Array::from(vec![Some(1e300), Some(f64::NEG_INFINITY), Some(1.0)]))),
        ("m", Arc::new(decimals.with_precision_and_scale(9, 2).unwrap())),
        ("s", Arc::new(StringArray::from(vec![Some("a,\"b\"\n"), Some(""), None]))),
        ("x", Arc::new(BinaryArray::from(vec![Some(&b"hi"[..]), Some(b""), None]))),
        ("d", Arc::new(Date32Array::from(vec![Some(0), Some(-1), None]))),
        ("t", Arc::new(Time64MicrosecondArray::from(vec![Some(1), Some(0), None]))),
        (
            "ms",
            Arc::new(TimestampMillisecondArray::from(vec![
                Some(1_329_929_188_967),
                Some(-1),
                None,
            ])),
        ),
        (
            "z",
            Arc::new(TimestampSecondArray::from(vec![Some(0), Some(1), None]).with_timezone("UTC")),
        ),
        ("n", Arc::new(NullArray::new(3))),
    ])
}

#[test]
fn csv_of_every_type() {
    let expected = "b,i,u,f,g,m,s,x,d,t,ms,z,n\n\
        true,-9223372036854775808,18446744073709551615,0.1,1e300,-0.05,\"a,\"\"b\"\"\n\",aGk=,\
        1970-01-01,00:00:00.000001,2012-02-22 16:46:28.967,1970-01-01 00:00:00Z,\n\
        false,7,0,NaN,-Infinity,12.34,\"\",\"\",1969-12-31,00:00:00.000000,\
        1969-12-31 23:59:59.999,1970-01-01 00:00:01Z,\n\
        ,,,,1.0,,,,,,,,\n";
    assert_eq!(shown(Format::Csv, None, &[every_type()]), expected);
    let quoted = columns(vec![("a,b", Arc::new(Int32Array::from(vec![1])))]);
    assert_eq!(shown(Format::Csv, None, &[quoted.slice(0, 0)]), "\"a,b\"\n");
}

#[test]
fn json_of_every_type() {
    let expected = concat!(
        r#"{"b":true,"i":-9223372036854775808,"u":18446744073709551615,"f":0.1,"g":1e300,"#,
        r#""m":-0.05,"s":"a,\"b\"\n","x":"aGk=","d":"1970-01-01","t":"00:00:00.000001","#,
        r#""ms":"2012-02-22 16:46:28.967","z":"1970-01-01 00:00:00Z","n":null}"#,
        "\n",
        r#"{"b":false,"i":7,"u":0,"f":"NaN","g":"-Infinity","m":12.34,"s":"","x":"","#,
        r#""d":"1969-12-31","t":"00:00:00.000000","ms":"1969-12-31 23:59:59.999","#,
        r#""z":"1970-01-01 00:00:01Z","n":null}"#,
        "\n",
        r#"{"b":null,"i":null,"u":null,"f":null,"g":1.0,"m":null,"s":null,"x":null,"d":null,"#,
        r#""t":null,"ms":null,"z":null,"n":null}"#,
        "\n",
    );
    assert_eq!(shown(Format::Ndjson, None, &[every_type()]), expected);
    let strange =
        columns(vec![("a\"b", Arc::new(StringArray::from(vec!["\u{1}\t\\\u{1f}\u{7f}\u{e9}\r"])))]);
    let expected = "{\"a\\\"b\":\"\\u0001\\t\\\\\\u001f\u{7f}\u{e9}\\r\"}\n";
    assert_eq!(shown(Format::Ndjson, None, std::slice::from_ref(&strange)), expected);
    assert_eq!(shown(Format::Ndjson, None, &[strange.slice(0, 0)]), "");
}

fn people(names: Vec<&str>, counts: Vec<Option<i64>>) -> RecordBatch {
    columns(vec![
        ("name", Arc::new(StringArray::from(names))),
        ("count", Arc::new(Int64Array::from(counts))),
    ])
}

#[test]
fn a_table_grows_with_its_rows() {
    let first = people(vec!["Ada", "\u{4e16}\u{754c}"], vec![Some(1), None]);
    let second = people(vec!["Bartholomew", "x\u{1b}[31m\n"], vec![Some(12_345_678), Some(-1)]);
    let third = people(vec!["Bob"], vec![Some(3)]);
    // A wider value widens its line; what comes after it gives what it has to spare.
    let expected = "\
┌──────────┬──────────┐
│ name     │    count │
├──────────┼──────────┤
│ Ada      │        1 │
│ 世界     │     NULL │
│ Bartholomew │ 12345678 │
│ x\\u{1b}[31m\\n │  -1 │
│ Bob      │        3 │
└──────────┴──────────┘
";
    assert_eq!(shown(Format::Table, None, &[first.clone(), second, third]), expected);
    let expected = "\
┌──────────┬──────────┐
│ name     │    count │
├──────────┼──────────┤
└──────────┴──────────┘
";
    assert_eq!(shown(Format::Table, None, &[first.slice(0, 0)]), expected);
}

#[test]
fn a_table_fits_its_terminal() {
    let batch = people(vec!["a name that is long", "世界世界世界"], vec![Some(1), Some(1_234_567)]);
    let expected = "\
┌──────────┬─────────┐
│ name     │   count │
├──────────┼─────────┤
│ a name … │       1 │
│ 世界世…  │ 1234567 │
└──────────┴─────────┘
";
    let shown_narrow = shown(Format::Table, Some(22), std::slice::from_ref(&batch));
    assert_eq!(shown_narrow, expected);
    let wide = shown(Format::Table, Some(200), std::slice::from_ref(&batch));
    assert!(wide.contains("a name that is long │"), "{wide}");
    // A later value finds no more room than the terminal has; a number is whole all the same.
    let later = people(vec!["yet another long name"], vec![Some(123_456_789_012)]);
    for width in [22, 30, 40] {
        let table = shown(Format::Table, Some(width), &[batch.clone(), later.clone()]);
        use unicode_width::UnicodeWidthStr as _;
        let limit = usize::from(width.max(25));
        assert!(table.lines().all(|line| line.width() <= limit), "{table}");
        assert!(table.contains(" 123456789012 │\n"), "{table}");
        assert_eq!(table.matches("count").count(), 1, "{table}");
    }
}

/// By hand: 20 digits where there is room, else what is left, shared.
#[test]
fn numbers_get_the_room_of_their_type_where_there_is_some() {
    let two = |a: i64, b: i64| {
        let column = |value: i64| Arc::new(Int64Array::from(vec![value])) as ArrayRef;
        columns(vec![("a", column(a)), ("b", column(b))])
    };
    let batches = [two(1, 2), two(i64::MIN, 771_562_800), two(-1, i64::MAX)];
    let widths = |limit| {
        let table = shown(Format::Table, limit, &batches);
        table.lines().map(|line| line.chars().count()).collect::<Vec<_>>()
    };
    // A line takes seven columns beside its values.
    assert_eq!(widths(Some(100)), vec![47; 7]);
    assert_eq!(widths(Some(47)), vec![47; 7]);
    // 19 and 18: the one more that the first takes is what the second has to spare.
    assert_eq!(widths(Some(44))[3..6], [44, 44, 45]);
    // 16 and 15: a line is longer only where the last number is.
    assert_eq!(widths(Some(38))[3..6], [38, 38, 42]);
    // Elsewhere than on a terminal nothing is known of room: 8 and 8.
    assert_eq!(widths(None)[..4], [23; 4]);
}

/// A query over windows, as it mostly is, at three widths: worked out by hand.
#[test]
fn times_are_never_cut() {
    let times =
        |values: [i64; 2]| Arc::new(TimestampMillisecondArray::from(values.to_vec())) as ArrayRef;
    let batch = |start: i64, key: &str, n: i64| {
        columns(vec![
            ("window_start", times([start, start])),
            ("window_end", times([start + 10_000, start + 10_000])),
            ("page", Arc::new(StringArray::from(vec!["/home", key]))),
            ("n", Arc::new(Int64Array::from(vec![1, n]))),
        ])
    };
    let batches = [batch(0, "/cart", 20), batch(10_500, "/a/longer/one", 123_456_789)];
    let at_80 = "\
┌─────────────────────────┬─────────────────────────┬──────────┬────────────┐
│ window_start            │ window_end              │ page     │          n │
├─────────────────────────┼─────────────────────────┼──────────┼────────────┤
│ 1970-01-01 00:00:00.000 │ 1970-01-01 00:00:10.000 │ /home    │          1 │
│ 1970-01-01 00:00:00.000 │ 1970-01-01 00:00:10.000 │ /cart    │         20 │
│ 1970-01-01 00:00:10.500 │ 1970-01-01 00:00:20.500 │ /home    │          1 │
│ 1970-01-01 00:00:10.500 │ 1970-01-01 00:00:20.500 │ /a/longer/… │ 123456789 │
└─────────────────────────┴─────────────────────────┴──────────┴────────────┘
";
    assert_eq!(shown(Format::Table, Some(80), &batches), at_80);
    let at_60 = shown(Format::Table, Some(60), &batches);
    let lines: Vec<&str> = at_60.lines().collect();
    assert_eq!(lines.len(), 8, "{at_60}");
    assert!(lines[3].starts_with("│ 1970-01-01 00:00:00 │ 1970-01-01 00:00:10 │ /home"), "{at_60}");
    assert!(lines[6].contains(" 1970-01-01 00:00:20.500 │ "), "{at_60}");
    assert!(lines[6].ends_with(" 123456789 │"), "{at_60}");
    assert!(lines[..5].iter().all(|line| line.chars().count() <= 60), "{at_60}");
    // Where there is no room lines are longer.
    let at_40 = shown(Format::Table, Some(40), &batches);
    assert!(at_40.contains("│ 1970-01-01 00:00:00 │ 1970-01-01 00:00:10 │ /home"), "{at_40}");
}

#[test]
fn what_arrow_alone_can_show_is_shown() {
    let dictionary: DictionaryArray<Int32Type> =
        [Some("a,b"), None, Some("c")].into_iter().collect();
    let batch = columns(vec![("k", Arc::new(dictionary)), ("n", Arc::new(NullArray::new(3)))]);
    assert_eq!(shown(Format::Csv, None, &[batch]), "k,n\n\"a,b\",\n,\nc,\n");
}

#[test]
fn rows_wait_for_a_flush_but_not_for_long() {
    let screen = Screen::default();
    let sink = TextSink::new(Format::Csv, Box::new(screen.clone()), TextOptions::default());
    let batch = people(vec!["Ada"], vec![Some(1)]);
    sink.open(&batch.schema(), ALONE).unwrap();
    sink.write(0, &batch, false).unwrap();
    assert_eq!(screen.text(), "");
    sink.write(0, &batch, true).unwrap();
    assert_eq!(screen.text(), "name,count\nAda,1\nAda,1\n");
    sink.write(0, &batch, false).unwrap();
    drop(sink); // as when the job fails
    assert_eq!(screen.text(), "name,count\nAda,1\nAda,1\nAda,1\n");

    let many = people(vec!["Ada"; 20_000], vec![Some(1); 20_000]);
    let (screen, schema) = (Screen::default(), many.schema());
    let sink = TextSink::new(Format::Csv, Box::new(screen.clone()), TextOptions::default());
    sink.open(&schema, ALONE).unwrap();
    sink.write(0, &many, false).unwrap();
    assert!(screen.text().len() > 120_000 - BUFFER_BYTES);
}

#[test]
fn a_closed_output_ends_quietly() {
    struct Closed(io::ErrorKind);
    impl Write for Closed {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let batch = people(vec!["Ada"], vec![Some(1)]);
    let sink = |kind| {
        let sink = TextSink::new(Format::Csv, Box::new(Closed(kind)), TextOptions::default());
        sink.open(&batch.schema(), ALONE).unwrap();
        sink
    };
    let closed = sink(io::ErrorKind::BrokenPipe);
    assert!(matches!(closed.write(0, &batch, true), Err(Error::OutputClosed)));
    assert!(matches!(closed.write(0, &batch, true), Err(Error::OutputClosed)));
    assert_eq!(closed.prepare(1).unwrap().interval, 1, "a job with a closed output has not failed");
    let full = sink(io::ErrorKind::StorageFull);
    let error = full.write(0, &batch, true).unwrap_err();
    assert!(error.to_string().starts_with("the output: "), "{error}");
}

#[test]
fn formats_have_names() {
    assert_eq!("CSV".parse(), Ok(Format::Csv));
    assert_eq!("tabel".parse::<Format>(), Err("did you mean 'table'?".to_string()));
    assert_eq!("x".parse::<Format>(), Err("the formats are table, csv, ndjson".to_string()));
    // A sink without columns writes no more than it must.
    let empty = RecordBatch::new_empty(Arc::new(Schema::empty()));
    assert_eq!(shown(Format::Ndjson, None, &[empty]), "");
}

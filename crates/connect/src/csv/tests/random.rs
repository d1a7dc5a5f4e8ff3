//! Files drawn at random.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::random::Random;

const PIECES: [&str; 12] =
    ["a", "b", ",", "\"", "\n", "\r\n", " ", "\u{e9}", "\u{4e16}", "#", "'", "1"];

/// Sometimes NULL, sometimes what needs quotes, seldom long.
fn field() -> impl Strategy<Value = Option<String>> {
    let text = |pieces| vec(select(&PIECES[..]), pieces).prop_map(|pieces| pieces.concat());
    option::weighted(0.8, prop_oneof![19 => text(0..6), 1 => text(0..90)])
}

/// A line of a file.
#[derive(Debug, Clone)]
struct Line {
    /// Its fields; none for a remark.
    fields: Vec<Option<String>>,
    /// Whether quotes stand where none are needed.
    quoted: bool,
    end: &'static str,
}

impl Line {
    fn some(columns: usize) -> impl Strategy<Value = Line> {
        let fields = prop_oneof![9 => vec(field(), columns), 1 => Just(vec![])];
        let line = |(fields, quoted, end)| Line { fields, quoted, end };
        (fields, any::<bool>(), select(&["\n", "\r\n"][..])).prop_map(line)
    }

    /// As any CSV writer would put it.
    fn text(&self) -> String {
        if self.fields.is_empty() {
            return format!("# \",{}", self.end);
        }
        let fields: Vec<String> = self.fields.iter().map(|field| self.written(field)).collect();
        fields.join(",") + self.end
    }

    fn written(&self, field: &Option<String>) -> String {
        let Some(text) = field else { return String::new() };
        let needed =
            text.is_empty() || text.starts_with('#') || text.contains([',', '"', '\n', '\r']);
        match needed || self.quoted {
            true => format!("\"{}\"", text.replace('"', "\"\"")),
            false => text.clone(),
        }
    }
}

fn lines() -> impl Strategy<Value = (usize, Vec<Line>)> {
    (1..5usize).prop_flat_map(|columns| (Just(columns), vec(Line::some(columns), 0..60)))
}

/// A value of each row, or NULL.
fn rows_of(batch: &RecordBatch) -> Vec<Vec<Option<String>>> {
    let value = |row: usize, column: usize| {
        let column = batch.column(column).as_string::<i32>();
        column.is_valid(row).then(|| column.value(row).to_string())
    };
    let columns = batch.num_columns();
    (0..batch.num_rows()).map(|row| (0..columns).map(|c| value(row, c)).collect()).collect()
}

proptest! {
    #[test]
    fn any_chunks_give_the_same_rows_and_those_are_right(
        (columns, lines) in lines(),
        has_end in any::<bool>(),
        some_bytes in 1..200usize,
    ) {
        let fields: Vec<Field> =
            (0..columns).map(|c| Field::new(format!("c{c}"), DataType::Utf8, true)).collect();
        let schema: SchemaRef = Arc::new(Schema::new(fields));
        let mut text: String = lines.iter().map(Line::text).collect();
        let expected: Vec<Vec<Option<String>>> =
            lines.iter().map(|line| line.fields.clone()).filter(|row| !row.is_empty()).collect();
        // One NULL alone on its line is a blank line, which needs its end.
        let null_at_end = lines.last().is_some_and(|line| line.fields == [None]);
        if !has_end && !null_at_end {
            text.truncate(text.len() - lines.last().map_or(0, |line| line.end.len()));
        }
        let dialect = Dialect { comments: true, header: Header::Absent, ..Dialect::default() };
        let all: Vec<usize> = (0..columns).collect();
        for chunk_bytes in [1, 2, 3, 7, some_bytes, 1 << 20] {
            let read = read_memory(text.as_bytes(), &schema, &dialect, &all, chunk_bytes);
            let batch = read.unwrap_or_else(|error| panic!("{error}\n{text:?}")).rows;
            prop_assert_eq!(rows_of(&batch), expected.clone(), "chunks of {}", chunk_bytes);
        }
    }
}

#[test]
fn hostile_input_gives_rows_or_errors() {
    let corpus: &[&[u8]] = &[
        b"",
        b"\x00\x00",
        b"\x00\x80a,b,c,d,e,f,g,h,i,j\n1,x,1.5,t,2000-01-01,1.1,aGk=,2000-01-01,00:00,1\n",
        b"\x04\x80j,i,h,g,f,e,d,c,b,a\n1,00:00:01.5,2000-01-01,,,,,,\"\"\"\n\",-9\n\r\n,,,,,,,,,\n",
        b"\x78\x80#c\n1,\"x\",inf,0,9999-12-31T23:59:59.999999999Z,-1e5,,,23:59:59,255\nNULL,\n",
        b"\x48\x80,,,,,,,,,1\n\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",1\n\xff,\xff\n\"",
        b"\x02\x80\"a\"\"\n,\"\n\r\n\xef\xbb\xbf",
    ];
    let pieces: &[&[u8]] = &[
        b",",
        b"\n",
        b"\r\n",
        b"\"",
        b"\"\"",
        b"#",
        b"\t",
        b"1",
        b"-",
        b".",
        b"e",
        b"NULL",
        b"\xff",
        b"2000-01-01",
        b"99999999999999999999999999999999999999999",
        b"T12:34:56.789",
        b"+02:00",
        b"a,b,c,d,e,f,g,h,i,j\n",
        b"1,x,1.5,t,2000-01-01,1.1,aGk=,2000-01-01,00:00,1\n",
    ];
    for case in corpus {
        fuzz_csv(case);
    }
    let mut random = Random::new(7);
    for _ in 0..4_000 {
        let mut data = corpus[random.below(corpus.len() as u64) as usize].to_vec();
        for _ in 0..random.below(8) {
            let at = random.below(data.len() as u64 + 1) as usize;
            match random.below(3) {
                0 if at < data.len() => data[at] = random.next() as u8,
                1 if at < data.len() => {
                    data.remove(at);
                }
                _ => {
                    let piece = pieces[random.below(pieces.len() as u64) as usize];
                    data.splice(at..at, piece.iter().copied());
                }
            }
        }
        fuzz_csv(&data);
    }
}

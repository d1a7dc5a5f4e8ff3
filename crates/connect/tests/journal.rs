//! Inputs with a journal: what has come is read again from any position, in the chunks in which it
//! was read first, and counts once.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::task::Waker;
use std::thread;
use std::time::{Duration, Instant};

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{DataType, Field, Int64Type, Schema};
use millstream_connect::Registry;
use millstream_contract::Result;
use millstream_contract::table::{
    Connectors, OpenOptions, Position, Positions, Split, SplitPoll, Table, TableOptions,
};

use crate::support::Directory;

const PATIENCE: Duration = Duration::from_secs(30);

fn table(base: &Path, given: &[(&str, &str)]) -> Arc<dyn Table> {
    let journal = [("journal", "kept")];
    let options = given.iter().chain(&journal).copied();
    let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, true)]));
    let table = TableOptions::new("t", schema, options);
    Registry::new().table(&TableOptions { base_dir: base.to_path_buf(), ..table }).unwrap()
}

/// Opens a table at a position, for batches of seven rows.
fn open(table: &Arc<dyn Table>, from: Option<(String, Position)>) -> Result<Box<dyn Split>> {
    let from: Positions = from.into_iter().collect();
    let options = OpenOptions { checkpoints: true, from, ..OpenOptions::alone(7, 0, 1) };
    let table = table.begin(&options).unwrap_or(table.clone());
    Ok(table.open(&[0], &options)?.remove(0))
}

fn address(split: &dyn Split) -> String {
    let remark = split.remark().expect("it says where it waits");
    let word = remark.split(' ').find(|word| word.contains("127.0.0.1")).expect("an address");
    word.trim_start_matches("http://").trim_end_matches('/').to_string()
}

fn numbers(batch: &RecordBatch) -> Vec<i64> {
    batch.column(0).as_primitive::<Int64Type>().iter().flatten().collect()
}

/// Chunks and the positions behind them, until there are so many rows; all that are there for `0`.
fn read(split: &mut dyn Split, rows: usize) -> Vec<(Vec<i64>, Position)> {
    let (mut found, begin) = (Vec::<(Vec<i64>, Position)>::new(), Instant::now());
    loop {
        match split.poll_next(0, Waker::noop()).unwrap() {
            SplitPoll::Chunk(chunk) => {
                found.push((numbers(&chunk.decode().unwrap()), split.position()));
            }
            SplitPoll::Ended => return found,
            SplitPoll::Pending { .. } => {
                let count: usize = found.iter().map(|(numbers, _)| numbers.len()).sum();
                if count >= rows {
                    return found;
                }
                thread::sleep(Duration::from_millis(1));
                assert!(begin.elapsed() < PATIENCE, "{count} of {rows} rows");
            }
        }
    }
}

fn rows(chunks: &[(Vec<i64>, Position)]) -> Vec<i64> {
    chunks.iter().flat_map(|(numbers, _)| numbers.clone()).collect()
}

fn lines(format: &str, range: std::ops::Range<i64>) -> String {
    let line =
        |n: i64| if format == "csv" { format!("{n}\n") } else { format!("{{\"n\": {n}}}\n") };
    range.map(line).collect()
}

/// Sends a body, and gives the status of the answer.
fn post(address: &str, body: &str, fields: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let length = body.len();
    let head = format!("POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{fields}");
    let request = format!("{head}Content-Length: {length}\r\n\r\n{body}");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let status = answer.split(' ').nth(1).expect("a status").parse().unwrap();
    (status, answer)
}

/// Each position of a run leads to the rest of its chunks.
fn check_positions(table: &Arc<dyn Table>, name: &str, chunks: &[(Vec<i64>, Position)]) {
    let again = read(&mut *open(table, None).unwrap(), 0);
    assert_eq!(again, chunks, "from the beginning");
    for (done, (_, position)) in chunks.iter().enumerate() {
        let from = Some((name.to_string(), position.clone()));
        let mut split = open(table, from).unwrap();
        assert_eq!(split.position(), *position);
        assert_eq!(read(&mut *split, 0), chunks[done + 1..], "behind chunk {done}");
    }
}

#[test]
fn lines_of_a_connection_are_read_again_in_the_same_chunks() {
    for (format, header) in [("csv", "n\n"), ("csv", "\u{feff}n\n"), ("csv", ""), ("ndjson", "")] {
        let directory = Directory::new("journal-socket");
        let given = [("connector", "socket"), ("listen", "0"), ("format", format)];
        let table = table(&directory.0, &given);
        let mut split = open(&table, None).unwrap();
        let mut sender = TcpStream::connect(address(&*split)).unwrap();
        let text = header.to_string() + &lines(format, 0..200);
        let (mut chunks, mut sent) = (Vec::new(), 0);
        // Pieces end anywhere; what is whole is there at once.
        for piece in text.as_bytes().chunks(97) {
            sender.write_all(piece).unwrap();
            sent += piece.len();
            let whole = text[..sent].rfind('\n').map_or("", |end| &text[header.len()..end]);
            chunks.extend(read(&mut *split, whole.lines().count() - rows(&chunks).len()));
        }
        assert_eq!(rows(&chunks), (0..200).collect::<Vec<_>>(), "{format} {header}");
        let name = split.name().to_string();
        drop(split);
        check_positions(&table, &name, &chunks);
        // Another sender, who begins with the header once more, after half of the chunks.
        let (_, position) = &chunks[chunks.len() / 2];
        let mut split = open(&table, Some((name.clone(), position.clone()))).unwrap();
        let mut sender = TcpStream::connect(address(&*split)).unwrap();
        sender.write_all((header.to_string() + &lines(format, 200..210)).as_bytes()).unwrap();
        drop(sender);
        let rest = read(&mut *split, 1000);
        assert_eq!(rows(&rest).last(), Some(&209), "{format} {header}");
        chunks.truncate(chunks.len() / 2 + 1);
        chunks.extend(rest);
        assert_eq!(rows(&chunks), (0..210).collect::<Vec<_>>());
        drop(split);
        // The input has ended, so no sender is waited for.
        check_positions(&table, &name, &chunks);
        let mut split = open(&table, Some((name, chunks.last().unwrap().1.clone()))).unwrap();
        assert!(matches!(split.poll_next(0, Waker::noop()).unwrap(), SplitPoll::Ended));
    }
}

#[test]
fn bodies_are_read_again_and_one_that_is_sent_again_counts_once() {
    for format in ["csv", "ndjson"] {
        let directory = Directory::new("journal-http");
        let given = [("connector", "http"), ("listen", "0"), ("format", format)];
        let table = table(&directory.0, &given);
        let mut split = open(&table, None).unwrap();
        let address_of = address(&*split);
        let body = |n: i64| {
            let header = if format == "csv" && n % 2 == 0 { "n\n" } else { "" };
            header.to_string() + &lines(format, n * 20..n * 20 + 20)
        };
        let fields = |n| format!("Millstream-Producer: a\r\nMillstream-Sequence: {n}\r\n");
        for n in 0..10 {
            for times in 0..2 {
                let (status, answer) = post(&address_of, &body(n), &fields(n));
                assert_eq!(status, 202, "{answer}");
                let expected = ["20 records accepted", "the body was accepted before"][times];
                assert!(answer.ends_with(&format!("{expected}\n")), "{answer}");
            }
        }
        assert_eq!(post(&address_of, "x\n", "").0, 400);
        let chunks = read(&mut *split, 200);
        assert_eq!(rows(&chunks), (0..200).collect::<Vec<_>>());
        assert!(chunks.len() == 30, "three of each body");
        let name = split.name().to_string();
        drop(split);
        check_positions(&table, &name, &chunks);
        let mut split = open(&table, Some((name, chunks[16].1.clone()))).unwrap();
        let address_of = address(&*split);
        // One that was accepted by the run before, and the next with a gap.
        for n in [9, 5, 20] {
            assert_eq!(post(&address_of, &body(n), &fields(n)).0, 202);
        }
        split.drain();
        let rest = read(&mut *split, 10_000);
        let all: Vec<i64> = rows(&chunks[..17]).into_iter().chain(rows(&rest)).collect();
        assert_eq!(all, (0..200).chain(400..420).collect::<Vec<_>>());
    }
}

#[test]
fn a_pipe_goes_on_and_a_journal_forgets_what_is_not_asked_for() {
    let directory = Directory::new("journal-pipe");
    let path = directory.0.join("pipe");
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    let given = [("connector", "file"), ("path", "pipe"), ("format", "csv")];
    let table = table(&directory.0, &given);
    let kept = || {
        let entries = directory.0.join("kept").read_dir().unwrap();
        entries.map(|entry| entry.unwrap().metadata().unwrap().len()).sum::<u64>()
    };
    let (mut from, mut all) = (None, Vec::new());
    for run in 0..8 {
        let mut split = open(&table, from).unwrap();
        let mut writer = File::options().write(true).open(&path).unwrap();
        let numbers = run * 10_000..run * 10_000 + 10_000;
        writer.write_all(("n\n".to_string() + &lines("csv", numbers)).as_bytes()).unwrap();
        let chunks = read(&mut *split, 10_000);
        all.extend(rows(&chunks));
        let name = split.name().to_string();
        let positions = Positions::from([(name.clone(), chunks.last().unwrap().1.clone())]);
        table.committed(&positions, &BTreeSet::new()).unwrap();
        from = positions.into_iter().next();
        drop(split);
        // The thread ends: it has the pipe open.
        while writer.write_all(b"\n").is_ok() {
            thread::sleep(Duration::from_millis(1));
        }
    }
    assert_eq!(all, (0..80_000).collect::<Vec<_>>());
    assert!(kept() < 250_000, "of 450 KB: the first and the last segment");
    // Of another run's position the journal has nothing any more.
    let (name, position) = from.unwrap();
    let before = Position(vec![100_000, 1, position.0[2]]);
    let error = open(&table, Some((name.clone(), before))).err().expect("an error").to_string();
    assert!(error.contains("it begins at byte") && error.contains("at byte 100000"), "{error}");
    // All has been read, for ever.
    let positions = Positions::from([(name.clone(), position)]);
    table.committed(&positions, &BTreeSet::from([name.clone()])).unwrap();
    assert!(kept() < 1000);
    for numbers in [vec![], vec![0, u64::MAX, 0], vec![u64::MAX, 1, 1], vec![1]] {
        if let Ok(mut split) = open(&table, Some((name.clone(), Position(numbers)))) {
            let mut writer = File::options().write(true).open(&path).unwrap();
            writer.write_all(b"n\n1\n").unwrap();
            assert_eq!(rows(&read(&mut *split, 1)), [1]);
            break;
        }
    }
}

#[test]
fn a_journal_is_for_what_comes_once_and_for_jobs_with_checkpoints() {
    let directory = Directory::new("journal-refused");
    std::fs::write(directory.0.join("x.csv"), "n\n1\n").unwrap();
    let file = table(&directory.0, &[("connector", "file"), ("path", "x.csv"), ("format", "csv")]);
    let error = open(&file, None).err().expect("an error").to_string();
    assert!(error.contains("files can be read again"), "{error}");
    let given = [("connector", "http"), ("listen", "0"), ("format", "csv")];
    let table_of = table(&directory.0, &given);
    table_of.check_resumable().unwrap();
    assert!(table_of.describe(&[0]).ends_with("(CSV, 1 of 1 column, journal kept)"));
    let error = table_of.open(&[0], &OpenOptions::alone(7, 0, 1)).err().expect("an error");
    assert!(error.to_string().contains("--checkpoint DIR"), "{error}");
    let split = open(&table_of, None).unwrap();
    let other = table(&directory.0, &[("connector", "http"), ("listen", "1"), ("format", "csv")]);
    let error = open(&other, None).err().expect("an error").to_string();
    assert!(error.contains("has this journal open"), "{error}");
    assert_eq!(post(&address(&*split), "1\n", "").0, 202);
    drop(split);
    let error = open(&other, None).err().expect("an error").to_string();
    assert!(error.contains("it is the journal of 'table t, http 127.0.0.1:0'"), "{error}");
    let refused = |given: &[(&str, &str)]| {
        let given = given.iter().copied().chain([("format", "csv")]);
        let options = TableOptions::new("t", table_of.schema(), given);
        let options = TableOptions { base_dir: directory.0.clone(), ..options };
        Registry::new().table(&options).unwrap_err().to_string()
    };
    let error = refused(&[("connector", "http"), ("journal_bytes", "1 GB")]);
    assert!(error.contains("there is no journal"), "{error}");
    let error = refused(&[("connector", "http"), ("journal", "kept"), ("journal_bytes", "1 MB")]);
    assert!(error.contains("64 MiB or more"), "{error}");
}

//! Tables that a job reads on in another run of the program: each split from its position, with the
//! chunks of a job that was not interrupted.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::task::Waker;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use arrow::ipc::writer::FileWriter;
use millstream_connect::{MemoryTable, Registry, channel};
use millstream_contract::Result;
use millstream_contract::sink::{ONLY_INTERVAL, Writers};
use millstream_contract::table::{
    Connectors, OpenOptions, Position, Positions, Split, SplitPoll, Table, TableOptions,
};

use crate::support::Directory;

/// Rows whose texts have very different lengths, so that the mean length of lines changes from
/// chunk to chunk.
fn rows(count: i64) -> RecordBatch {
    let length = |n: i64| [3, 200, 1, 40][n as usize / 400 % 4] + (n * n) as usize % 17;
    let text = |n: i64| "x".repeat(length(n));
    let texts = StringArray::from_iter_values((0..count).map(text));
    let numbers = Arc::new(Int64Array::from_iter_values(0..count)) as ArrayRef;
    RecordBatch::try_from_iter([("n", numbers), ("t", Arc::new(texts) as _)]).unwrap()
}

fn options(base: &Path, format: &str, path: &str) -> TableOptions {
    let given = [("connector", "file"), ("format", format), ("path", path)];
    let time = DataType::Timestamp(TimeUnit::Millisecond, None);
    let mut fields: Vec<Field> =
        rows(0).schema().fields().iter().map(|f| f.as_ref().clone()).collect();
    if format == "raw" {
        fields.remove(0);
    }
    fields.push(Field::new("written", time, true));
    TableOptions {
        name: "t".into(),
        schema: Arc::new(Schema::new(fields)),
        options: given.map(|(key, value)| (key.to_string(), value.to_string())).into(),
        metadata: [("written".to_string(), "file.modified".to_string())].into(),
        partitioned_by: vec![],
        primary_key: Vec::new(),
        exact: false,
        base_dir: base.to_path_buf(),
    }
}

/// A table as another run of the program makes it.
fn table(base: &Path, format: &str, path: &str) -> Arc<dyn Table> {
    Registry::new().table(&options(base, format, path)).unwrap()
}

fn text(format: &str, rows: &RecordBatch) -> Vec<u8> {
    let mut text = Vec::new();
    let (numbers, texts) = (rows.column(0), rows.column(1));
    if format == "csv" {
        text.extend(b"n,t\n");
    }
    for row in 0..rows.num_rows() {
        let shown =
            |column: &ArrayRef| arrow::util::display::array_value_to_string(column, row).unwrap();
        let (n, t) = (shown(numbers), shown(texts));
        text.extend(match format {
            "csv" => format!("{n},{t}\n").into_bytes(),
            "ndjson" => format!("{{\"n\":{n},\"t\":\"{t}\"}}\n").into_bytes(),
            _ => format!("{n} {t}\n").into_bytes(),
        });
    }
    text
}

fn write(path: &Path, format: &str, rows: &RecordBatch) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    match format {
        "arrow" => {
            let mut writer = FileWriter::try_new(File::create(path).unwrap(), &rows.schema());
            let writer = writer.as_mut().unwrap();
            for from in (0..rows.num_rows()).step_by(1500) {
                writer.write(&rows.slice(from, 1500.min(rows.num_rows() - from))).unwrap();
            }
            writer.finish().unwrap();
        }
        "parquet" => {
            let out = path.with_extension("out");
            let mut options = options(Path::new("/"), "parquet", out.to_str().unwrap());
            (options.schema, options.metadata) = (rows.schema(), BTreeMap::new());
            options.options.insert("parquet.block.size".into(), "64 KB".into());
            let sink = Registry::new().sink(&options).unwrap();
            sink.open(&rows.schema(), Writers::alone()).unwrap();
            for from in (0..rows.num_rows()).step_by(100) {
                let part = rows.slice(from, 100.min(rows.num_rows() - from));
                sink.write(0, &part, false).unwrap();
            }
            sink.finish().unwrap();
            sink.commit(&sink.prepare(ONLY_INTERVAL).unwrap()).unwrap();
            fs::rename(out.join("part-0-0"), path).unwrap();
            fs::remove_dir_all(out).unwrap();
        }
        _ => {
            let text = text(format, rows);
            match path.extension().unwrap().to_str().unwrap() {
                "gz" => {
                    let file = File::create(path).unwrap();
                    let mut packer = flate2::write::GzEncoder::new(file, Default::default());
                    packer.write_all(&text).unwrap();
                    packer.finish().unwrap();
                }
                "zst" => fs::write(path, zstd::encode_all(&text[..], 1).unwrap()).unwrap(),
                _ => fs::write(path, text).unwrap(),
            }
        }
    }
}

fn append(path: &Path, text: &[u8]) {
    let mut file = File::options().append(true).open(path).unwrap();
    file.write_all(text).unwrap();
}

fn opened(table: &dyn Table, options: &OpenOptions) -> Result<Vec<Box<dyn Split>>> {
    let all: Vec<usize> = (0..table.schema().fields().len()).collect();
    table.open(&all, options)
}

fn next(split: &mut dyn Split) -> Option<RecordBatch> {
    match split.poll_next(0, Waker::noop()).unwrap() {
        SplitPoll::Chunk(chunk) => Some(chunk.decode().unwrap()),
        SplitPoll::Pending { .. } => panic!("a file that is complete is there"),
        SplitPoll::Ended => None,
    }
}

fn rest(split: &mut dyn Split) -> Vec<RecordBatch> {
    std::iter::from_fn(|| next(split)).collect()
}

/// As a checkpoint keeps it.
fn kept(position: &Position) -> Position {
    serde_json::from_str(&serde_json::to_string(position).unwrap()).unwrap()
}

fn at(options: &OpenOptions, split: &str, position: &Position) -> OpenOptions {
    OpenOptions { from: [(split.to_string(), kept(position))].into(), ..options.clone() }
}

/// The chunks of a table's first split, and the position before each and behind the last.
fn chunks(table: &dyn Table, options: &OpenOptions) -> (String, Vec<RecordBatch>, Vec<Position>) {
    let mut split = opened(table, options).unwrap().remove(0);
    let (mut all, mut places) = (Vec::new(), vec![split.position()]);
    while let Some(batch) = next(&mut *split) {
        all.push(batch);
        places.push(split.position());
    }
    (split.name().to_string(), all, places)
}

const FILES: [(&str, &str, &str); 10] = [
    ("csv", "x.csv", "x.csv"),
    ("ndjson", "x.json", "x.json"),
    ("raw", "x.log", "x.log"),
    ("csv", "x.csv.gz", "x.csv.gz"),
    ("ndjson", "x.zst", "x.zst"),
    ("parquet", "x.parquet", "x.parquet"),
    ("arrow", "x.arrow", "x.arrow"),
    ("csv", "in/x.csv", "in"),
    ("parquet", "in/x.parquet", "in"),
    ("ndjson", "in/x.gz", "i*/*.gz"),
];

#[test]
fn from_each_position_come_the_chunks_of_the_whole() {
    for (number, (format, file, path)) in FILES.into_iter().enumerate() {
        let directory = Directory::new(&format!("resuming-{number}"));
        write(&directory.0.join(file), format, &rows(2400));
        if path != file {
            // One of many.
            let other = file.replace('x', "y");
            write(&directory.0.join(other), format, &rows(10));
        }
        for batch_rows in [61, 1000, 100_000] {
            let options = OpenOptions::alone(batch_rows, 0, 1);
            let (name, whole, places) = chunks(&*table(&directory.0, format, path), &options);
            assert_eq!(name, file, "relative to the directory of the SQL file");
            assert!(whole.len() > 3 || !["csv", "ndjson", "raw"].contains(&format), "{path}");
            for (done, place) in places.iter().enumerate() {
                let options = at(&options, &name, place);
                let mut split =
                    opened(&*table(&directory.0, format, path), &options).unwrap().remove(0);
                assert_eq!(split.position(), *place, "where it is opened");
                let found = rest(&mut *split);
                let sizes =
                    |all: &[RecordBatch]| all.iter().map(RecordBatch::num_rows).collect::<Vec<_>>();
                assert_eq!(sizes(&found), sizes(&whole[done..]), "{path}, {batch_rows}: {done}");
                assert!(found == whole[done..], "{path}, {batch_rows}: {done}");
                assert_eq!(split.position(), *places.last().unwrap());
            }
        }
    }
}

/// Bytes that are appended to a file between two runs change nothing, whether the file is moved, or
/// copied with another time, and the user is told.
#[test]
fn a_file_that_has_grown_or_was_copied_is_read_as_the_first_job_would_have() {
    let (first, second) = (Directory::new("resuming-first"), Directory::new("resuming-second"));
    for (path, other) in [("x.csv", None), ("in", Some("in/y.csv"))] {
        let file = if other.is_some() { "in/x.csv" } else { "x.csv" };
        write(&first.0.join(file), "csv", &rows(2400));
        other.into_iter().for_each(|other| write(&first.0.join(other), "csv", &rows(10)));
        let options = OpenOptions::alone(100, 0, 1);
        let (name, whole, places) = chunks(&*table(&first.0, "csv", path), &options);
        for (done, place) in places.iter().enumerate().skip(1).step_by(9) {
            fs::create_dir_all(second.0.join("in")).unwrap();
            fs::copy(first.0.join(file), second.0.join(file)).unwrap();
            append(&second.0.join(file), &b"7,appended\n".repeat(500_000));
            let mut splits =
                opened(&*table(&second.0, "csv", path), &at(&options, &name, place)).unwrap();
            let split = &mut *splits[0];
            let remark = split.remark().unwrap().to_string();
            assert!(remark.contains("x.csv: it has grown from"), "{remark}");
            assert!(rest(split) == whole[done..], "{path}: from chunk {done}");
            // Had it been read to its end, the same.
            let mut options = at(&options, &name, place);
            options.ended.insert(name.clone());
            let mut splits = opened(&*table(&second.0, "csv", path), &options).unwrap();
            assert!(splits[0].remark().is_some() && next(&mut *splits[0]).is_none());
        }
    }
}

#[test]
fn a_file_that_is_gone_or_another_is_an_error_unless_it_was_read_to_its_end() {
    let directory = Directory::new("resuming-gone");
    let options = OpenOptions::alone(100, 0, 1);
    for (path, file) in [("in", "in/b.csv"), ("in/*.csv", "in/b.csv"), ("b.csv", "b.csv")] {
        let full = directory.0.join(file);
        for name in ["in/a.csv", "in/b.csv", "b.csv"] {
            write(&directory.0.join(name), "csv", &rows(1000));
        }
        let opened = |options: &OpenOptions| opened(&*table(&directory.0, "csv", path), options);
        let mut splits = opened(&options).unwrap();
        splits.iter_mut().for_each(|split| drop(next(&mut **split)));
        let positions = splits.iter().map(|s| (s.name().to_string(), kept(&s.position())));
        let options = OpenOptions { from: positions.collect(), ..options.clone() };
        let ended = OpenOptions { ended: [file.to_string()].into(), ..options.clone() };
        let whole = fs::read(&full).unwrap();
        let other = [&b"N,t\n"[..], &whole[4..]].concat();
        let cases = [
            (Some(&whole[..whole.len() - 1]), "bytes, and had"),
            (Some(&other[..]), "it has other first bytes"),
            (None, "the job has not read this file to its end"),
        ];
        for (content, expected) in cases {
            match content {
                Some(content) => fs::write(&full, content).unwrap(),
                // A table of one file that is not there cannot be planned.
                None if path == file => continue,
                None => fs::remove_file(&full).unwrap(),
            }
            let read = |options: &OpenOptions| -> Result<()> {
                for split in &mut opened(options)? {
                    while let SplitPoll::Chunk(_) = split.poll_next(0, Waker::noop())? {}
                }
                Ok(())
            };
            let error = read(&options).unwrap_err().to_string();
            assert!(error.contains(file) && error.contains(expected), "{path}: {error}");
            assert!(error.contains("help: put"), "{error}");
            read(&ended).unwrap();
            // It is still known, so that it is not read when it comes back.
            let names = opened(&ended).unwrap();
            assert!(names.iter().any(|split| split.name() == file), "{path}");
        }
    }
}

#[test]
fn new_files_are_read_from_their_beginning() {
    let directory = Directory::new("resuming-new");
    write(&directory.0.join("in/b.csv"), "csv", &rows(1000));
    let options = OpenOptions::alone(100, 0, 1);
    let (name, whole, places) = chunks(&*table(&directory.0, "csv", "in"), &options);
    write(&directory.0.join("in/a.csv"), "csv", &rows(300));
    let options = at(&options, &name, &places[3]);
    let mut splits = opened(&*table(&directory.0, "csv", "in"), &options).unwrap();
    let mut read = splits.iter_mut().map(|split| (split.name().to_string(), rest(&mut **split)));
    let (first, new) = read.next().unwrap();
    assert_eq!((&*first, new.iter().map(RecordBatch::num_rows).sum()), ("in/a.csv", 300));
    assert!(read.next().unwrap() == ("in/b.csv".to_string(), whole[3..].to_vec()));
}

/// Names are as the path is given, wherever the program was started.
#[test]
fn names_of_splits_do_not_depend_on_the_working_directory() {
    let directory = Directory::new("resuming-names");
    write(&directory.0.join("in/x.csv"), "csv", &rows(10));
    let names = |base: &Path, path: &str| -> Vec<String> {
        let table = table(base, "csv", path);
        let told = table.with_splits(&table.splits().unwrap()).unwrap();
        let options = OpenOptions::alone(100, 0, 1);
        let names = |table: &dyn Table| -> Vec<String> {
            opened(table, &options).unwrap().iter().map(|s| s.name().to_string()).collect()
        };
        assert_eq!(names(&*table), names(&*told));
        names(&*told)
    };
    let above = directory.0.join("in/..");
    for path in ["in/x.csv", "in", "i*/x.csv", "./in/./x.csv", "file://in/x.csv"] {
        assert_eq!(names(&directory.0, path), ["in/x.csv"], "{path}");
        assert_eq!(names(&above, path), ["in/x.csv"], "{path}");
    }
    let absolute = directory.0.join("in/x.csv").display().to_string();
    assert_eq!(names(&directory.0, &absolute), [absolute]);
    assert_eq!(names(&directory.0.join("in"), "../in/x.csv"), ["../in/x.csv"]);
}

/// Records that come only once are refused where a job must be resumable, with the way out.
#[test]
fn what_comes_once_cannot_be_resumed() {
    let directory = Directory::new("resuming-once");
    let made = Command::new("mkfifo").arg(directory.0.join("pipe")).status().unwrap();
    assert!(made.success());
    write(&directory.0.join("x.csv"), "csv", &rows(10));
    let made = |given: &[(&str, &str)]| {
        let mut options = options(&directory.0, "csv", "x.csv");
        (options.schema, options.metadata) = (rows(0).schema(), BTreeMap::new());
        options.options = given.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        Registry::new().table(&options).unwrap()
    };
    let csv = ("format", "csv");
    let file = ("connector", "file");
    for (given, place) in [
        (&[("connector", "socket"), csv, ("listen", "0")][..], "127.0.0.1:0"),
        (&[("connector", "http"), csv, ("listen", "0")], "http 127.0.0.1:0"),
        (&[("connector", "stdin"), csv], ""),
        (&[file, csv, ("path", "pipe")], "pipe"),
        (&[file, csv, ("path", "/proc/self/status")], "/proc/self/status"),
    ] {
        let error = made(given).check_resumable().unwrap_err().to_string();
        assert!(error.contains(place) && error.contains("its records come only once"), "{error}");
        assert!(error.contains("without checkpoints"), "{error}");
    }
    let (_writer, channel) = channel(rows(0).schema(), 1);
    assert!(channel.check_resumable().is_err());
    for given in [
        &[file, csv, ("path", "x.csv")][..],
        &[file, csv, ("path", "."), ("follow", "true")],
        &[("connector", "datagen")],
    ] {
        made(given).check_resumable().unwrap();
    }
    let batch = rows(3);
    MemoryTable::new(batch.schema(), vec![vec![batch]]).unwrap().check_resumable().unwrap();
}

/// Generated records depend on the start time of the first job, whenever a later one goes on.
#[test]
fn generated_records_go_on_with_the_first_start_time() {
    let start_us = 1_700_000_000_000_000;
    for rate in [None, Some(("rows-per-second", "1000"))] {
        let made = || {
            let mut options = options(Path::new("/"), "csv", "");
            let time = DataType::Timestamp(TimeUnit::Millisecond, None);
            let fields = vec![
                Field::new("r", DataType::Int64, true),
                Field::new("at", time, true),
                Field::new("s", DataType::Utf8, true),
            ];
            (options.schema, options.metadata) = (Arc::new(Schema::new(fields)), BTreeMap::new());
            let given = [("connector", "datagen"), ("number-of-rows", "1000"), ("splits", "2")];
            let given = given.into_iter().chain(rate);
            options.options = given.map(|(k, v)| (k.to_string(), v.to_string())).collect();
            Registry::new().table(&options).unwrap()
        };
        // All are due.
        let now_us = start_us + 3_600_000_000;
        let read = |split: &mut dyn Split| {
            let mut all = Vec::new();
            while let SplitPoll::Chunk(chunk) = split.poll_next(now_us, Waker::noop()).unwrap() {
                all.push((chunk.decode().unwrap(), split.position()));
            }
            all
        };
        let options = OpenOptions::alone(100, start_us, 1);
        let mut split = opened(&*made(), &options).unwrap().remove(1);
        let whole = read(&mut *split);
        assert_eq!(whole.len(), 5);
        for (done, (_, position)) in whole.iter().enumerate() {
            let options = at(&options, split.name(), position);
            let mut again = opened(&*made(), &options).unwrap().remove(1);
            assert_eq!(again.position(), *position);
            assert!(read(&mut *again) == whole[done + 1..], "from chunk {done}");
        }
    }
}

/// Positions of a manifest that something has damaged.
#[test]
fn positions_of_any_numbers_do_no_harm() {
    let directory = Directory::new("resuming-damaged");
    for (format, file) in [("csv", "x.csv"), ("parquet", "x.parquet"), ("arrow", "x.arrow")] {
        write(&directory.0.join(file), format, &rows(100));
        let table = table(&directory.0, format, file);
        let (name, _, places) = chunks(&*table, &OpenOptions::alone(10, 0, 1));
        let good = &places.last().unwrap().0;
        for at in 0..good.len() {
            for number in [0, 1, u64::MAX, 1 << 62] {
                let mut numbers = good.clone();
                numbers[at] = number;
                for numbers in [numbers.clone(), numbers[..at].to_vec()] {
                    let from = Positions::from([(name.clone(), Position(numbers))]);
                    let options = OpenOptions { from, ..OpenOptions::alone(10, 0, 1) };
                    let Ok(mut splits) = opened(&*table, &options) else { continue };
                    for _ in 0..100 {
                        if !matches!(splits[0].poll_next(0, Waker::noop()), Ok(SplitPoll::Chunk(_)))
                        {
                            break;
                        }
                    }
                }
            }
        }
    }
}

//! Sinks of jobs that end many intervals: rows of an interval are visible after its commit, and not
//! before where a sink can hold them back.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::task::Waker;

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{Int64Type, SchemaRef};
use millstream_connect::{BlackholeSink, CollectSink, Format, Registry, TextOptions, TextSink};
use millstream_contract::sink::{Manner, Prepared, RowOrder, Sink, Writers};
use millstream_contract::table::{Connectors, OpenOptions, SplitPoll, TableOptions};

use crate::support::Directory;

const TWO: Writers = Writers { workers: 2, ..Writers::alone() };

/// Numbers, each in the partition of its last digit.
fn batch(values: &[i64]) -> RecordBatch {
    let numbers = Arc::new(Int64Array::from(values.to_vec())) as ArrayRef;
    let digits = StringArray::from_iter_values(values.iter().map(|value| (value % 10).to_string()));
    RecordBatch::try_from_iter([("n", numbers), ("digit", Arc::new(digits) as ArrayRef)]).unwrap()
}

fn schema() -> SchemaRef {
    batch(&[]).schema()
}

/// A table of files, whose path is a secret.
struct Files {
    directory: Directory,
    options: TableOptions,
}

/// Ends an interval of a sink, and seals it.
fn ended(sink: &dyn Sink, interval: u64) -> millstream_contract::Result<Prepared> {
    let mut prepared = sink.prepare(interval)?;
    sink.seal(&mut prepared)?;
    Ok(prepared)
}

impl Files {
    fn new(name: &str, partitioned_by: &[&str], given: &[(&str, &str)]) -> Files {
        let directory = Directory::new(name);
        fs::write(directory.0.join("where"), "results").unwrap();
        let path = [("connector", "file"), ("path", "deep/${file:where}")];
        let text = |(key, value): &(&str, &str)| (key.to_string(), value.to_string());
        let options = TableOptions {
            name: "results".into(),
            schema: schema(),
            options: path.iter().chain(given).map(text).collect::<BTreeMap<_, _>>(),
            metadata: BTreeMap::new(),
            partitioned_by: partitioned_by.iter().map(|name| name.to_string()).collect(),
            primary_key: Vec::new(),
            exact: false,
            base_dir: directory.0.clone(),
        };
        Files { directory, options }
    }

    /// A sink as a job makes it when it starts: what was prepared before is committed first.
    fn sink(&self, before: Option<&Prepared>) -> Arc<dyn Sink> {
        let sink = Registry::new().sink(&self.options).unwrap();
        assert!(sink.expect(Manner { intervals: true, endless: true, ..Manner::default() }));
        if let Some(before) = before {
            sink.commit(before).unwrap();
        }
        sink.open(&schema(), TWO).unwrap();
        sink
    }

    /// The rows that a reader sees, in order.
    fn visible(&self) -> Vec<i64> {
        let mut options = self.options.clone();
        options.options.retain(|key, _| !key.starts_with("sink."));
        // There may be no file yet.
        let Ok(table) = Registry::new().table(&options) else { return Vec::new() };
        let mut numbers = Vec::new();
        for mut split in table.open(&[0], &OpenOptions::alone(100, 0, 1)).unwrap() {
            while let SplitPoll::Chunk(chunk) = split.poll_next(0, Waker::noop()).unwrap() {
                let rows = chunk.decode().unwrap();
                numbers.extend(rows.column(0).as_primitive::<Int64Type>().values());
            }
        }
        numbers.sort_unstable();
        numbers
    }

    /// Names of all files, but for locks.
    fn names(&self) -> Vec<String> {
        fn below(path: &Path, names: &mut Vec<String>) {
            for entry in fs::read_dir(path).unwrap().map(Result::unwrap) {
                match entry.file_type().unwrap().is_dir() {
                    true => below(&entry.path(), names),
                    false => names.push(entry.file_name().into_string().unwrap()),
                }
            }
        }
        let mut names = Vec::new();
        below(&self.directory.0.join("deep"), &mut names);
        names.retain(|name| !name.ends_with(".lock"));
        names.sort();
        names
    }
}

fn all_files(test: &str) -> Vec<Files> {
    let new = |name: &str, partitioned_by: &[&str], given: &[(&str, &str)]| {
        Files::new(&format!("{test}-{name}"), partitioned_by, given)
    };
    let rows = ("sink.rolling-policy.rows", "2");
    let window = ("sink.rolling-policy.window", "true");
    vec![
        new("csv", &[], &[("format", "csv")]),
        new("ndjson", &[], &[("format", "ndjson")]),
        new("parquet", &[], &[("format", "parquet")]),
        new("arrow", &[], &[("format", "arrow")]),
        new("rolled", &[], &[("format", "csv"), rows]),
        new("windows", &[], &[("format", "parquet"), window]),
        new("partitions", &["digit"], &[("format", "ndjson")]),
        new("both", &["digit"], &[("format", "csv"), rows]),
    ]
}

#[test]
fn files_show_the_rows_of_an_interval_after_its_commit() {
    for files in all_files("commit") {
        let what = files.directory.0.display().to_string();
        let sink = files.sink(None);
        sink.write(0, &batch(&[1, 2, 3, 4, 5]), true).unwrap();
        sink.write(1, &batch(&[6]), false).unwrap();
        assert!(files.visible().is_empty(), "{what}");
        let first = ended(&*sink, 1).unwrap();
        assert_eq!((first.interval, files.visible()), (1, vec![]), "{what}");
        // The next interval begins before the first is committed.
        sink.write(1, &batch(&[7, 8, 9]), true).unwrap();
        sink.commit(&first).unwrap();
        assert_eq!(files.visible(), [1, 2, 3, 4, 5, 6], "{what}");
        let second = ended(&*sink, 2).unwrap();
        sink.commit(&first).unwrap();
        assert_eq!(files.visible(), [1, 2, 3, 4, 5, 6], "{what}");
        for prepared in [&second, &first, &second] {
            sink.commit(prepared).unwrap();
        }
        assert_eq!(files.visible(), [1, 2, 3, 4, 5, 6, 7, 8, 9], "{what}");
        // An interval without rows, and the end of the job.
        assert_eq!(ended(&*sink, 3).unwrap(), Prepared { interval: 3, sealed: vec![] }, "{what}");
        sink.write(0, &batch(&[10]), true).unwrap();
        sink.finish().unwrap();
        sink.commit(&ended(&*sink, 4).unwrap()).unwrap();
        sink.mark().unwrap();
        assert_eq!(files.visible(), (1..=10).collect::<Vec<i64>>(), "{what}");
        let names = files.names();
        assert!(names.iter().all(|name| name.starts_with("part-0-")), "{what}: {names:?}");
        // Nothing is left to be committed: what was repeated has changed nothing.
        sink.commit(&first).unwrap();
        assert_eq!(files.names(), names, "{what}");
    }
}

#[test]
fn after_a_crash_what_was_prepared_is_committed_and_the_rest_is_never_seen() {
    for files in all_files("crash") {
        let what = files.directory.0.display().to_string();
        let sink = files.sink(None);
        sink.write(0, &batch(&[1, 2, 3]), true).unwrap();
        let first = ended(&*sink, 1).unwrap();
        sink.commit(&first).unwrap();
        sink.write(1, &batch(&[4, 5]), true).unwrap();
        let second = ended(&*sink, 2).unwrap();
        sink.write(0, &batch(&[66]), true).unwrap();
        let abandoned = ended(&*sink, 3).unwrap();
        assert!(!abandoned.sealed.is_empty());
        sink.write(0, &batch(&[77]), true).unwrap();
        drop(sink);
        assert_eq!(files.visible(), [1, 2, 3], "{what}");

        // As a checkpoint keeps it.
        let kept = serde_json::to_string(&second).unwrap();
        let again = files.sink(Some(&serde_json::from_str(&kept).unwrap()));
        assert_eq!(files.visible(), [1, 2, 3, 4, 5], "{what}");
        again.write(0, &batch(&[6]), true).unwrap();
        again.commit(&ended(&*again, 4).unwrap()).unwrap();
        again.commit(&second).unwrap();
        assert_eq!(files.visible(), [1, 2, 3, 4, 5, 6], "{what}");
        again.finish().unwrap();
        again.commit(&ended(&*again, 5).unwrap()).unwrap();
        again.mark().unwrap();
        assert_eq!(files.visible(), [1, 2, 3, 4, 5, 6], "{what}");
        let names = files.names();
        assert!(names.iter().all(|name| name.starts_with("part-")), "{what}: {names:?}");
    }
}

/// What has been written, for a look from outside.
#[derive(Clone, Default)]
struct Shown(Arc<Mutex<Vec<u8>>>);

impl Write for Shown {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Text cannot be taken back: it is shown when an interval is prepared at the latest, and a commit
/// has nothing to do.
#[test]
fn text_shows_the_rows_of_an_interval_when_it_is_prepared() {
    for format in [Format::Table, Format::Csv, Format::Ndjson] {
        let shown = Shown::default();
        let options = TextOptions::default();
        let sink = TextSink::new(format, Box::new(shown.clone()), options);
        let text = || String::from_utf8(shown.0.lock().unwrap().clone()).unwrap();
        sink.open(&schema(), Writers::alone()).unwrap();
        sink.write(0, &batch(&[4711]), false).unwrap();
        let first = sink.prepare(1).unwrap();
        assert_eq!(first, Prepared { interval: 1, sealed: vec![] });
        sink.write(0, &batch(&[4812]), false).unwrap();
        assert!(text().contains("4711") && !text().contains("4812"), "{}", text());
        let second = sink.prepare(2).unwrap();
        let both = text();
        assert!(both.contains("4812"), "{both}");
        for prepared in [&first, &second, &first] {
            sink.commit(prepared).unwrap();
        }
        assert_eq!(text(), both);
    }
}

#[test]
fn sinks_in_memory_show_rows_at_once() {
    let (kept, hole) = (CollectSink::new(RowOrder::Any), BlackholeSink::new());
    for sink in [&kept as &dyn Sink, &hole] {
        sink.open(&schema(), Writers::alone()).unwrap();
        for interval in 1..=2 {
            sink.write(0, &batch(&[interval as i64]), true).unwrap();
            let prepared = sink.prepare(interval).unwrap();
            assert_eq!(prepared, Prepared { interval, sealed: vec![] });
            sink.commit(&prepared).unwrap();
            sink.commit(&prepared).unwrap();
        }
    }
    assert_eq!((kept.take(), hole.rows()), (vec![batch(&[1]), batch(&[2])], 2));
}

//! Tests of rolled and partitioned files, and of what a crash leaves.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
use millstream_contract::Result;
use millstream_contract::sink::{Manner, ONLY_INTERVAL, Prepared, Sink, Writers};
use millstream_contract::table::{Connectors, TableOptions};

use super::FileSink;
use super::synced::{self, Synced};
use crate::Registry;

const ONE: Writers = Writers::alone();

/// A directory of its own, removed at the end.
pub(super) struct Folder(pub(super) PathBuf);

impl Folder {
    pub(super) fn new(name: &str) -> Folder {
        let name = format!("millstream-files-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        _ = fs::remove_dir_all(&path);
        Folder(path)
    }

    /// Names and content of all files below, but for locks.
    fn files(&self) -> BTreeMap<String, String> {
        let mut all = BTreeMap::new();
        let mut below = vec![self.0.clone()];
        while let Some(path) = below.pop() {
            for entry in fs::read_dir(&path).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    below.push(path);
                } else if path.extension().is_none_or(|extension| extension != "lock") {
                    let name = path.strip_prefix(&self.0).unwrap().display().to_string();
                    all.insert(name, fs::read_to_string(&path).unwrap());
                }
            }
        }
        all
    }

    fn visible(&self) -> Vec<String> {
        let all = self.files().into_keys();
        all.filter(|name| !name.contains(".inprogress")).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.0);
    }
}

fn rows(pairs: &[(i64, &str)]) -> RecordBatch {
    let numbers = Int64Array::from_iter_values(pairs.iter().map(|pair| pair.0));
    let texts = StringArray::from_iter_values(pairs.iter().map(|pair| pair.1));
    let fields = [("n", DataType::Int64), ("s", DataType::Utf8)];
    let fields = fields.map(|(name, data_type)| Field::new(name, data_type, true));
    let schema = Arc::new(Schema::new(fields.to_vec()));
    RecordBatch::try_new(schema, vec![Arc::new(numbers), Arc::new(texts)]).unwrap()
}

fn table(path: &Path, by: &[&str], more: &[(&str, &str)]) -> TableOptions {
    let path = path.display().to_string();
    let given = [("connector", "file"), ("format", "csv"), ("path", &path)];
    let given: BTreeMap<&str, &str> = given.into_iter().chain(more.iter().copied()).collect();
    let partitioned_by = by.iter().map(|name| name.to_string()).collect();
    TableOptions { partitioned_by, ..TableOptions::new("t", rows(&[]).schema(), given) }
}

fn sink(folder: &Folder, by: &[&str], more: &[(&str, &str)]) -> FileSink {
    FileSink::from_options(&table(&folder.0, by, more)).unwrap()
}

fn opened(folder: &Folder, by: &[&str], more: &[(&str, &str)]) -> FileSink {
    let sink = sink(folder, by, more);
    sink.open(&rows(&[]).schema(), ONE).unwrap();
    sink
}

fn end(sink: &FileSink) -> Result<Prepared> {
    sink.finish()?;
    let prepared = sink.prepare(ONLY_INTERVAL)?;
    sink.commit(&prepared)?;
    Ok(prepared)
}

fn texts(files: &[(&str, &str)]) -> BTreeMap<String, String> {
    files.iter().map(|(name, text)| (name.to_string(), text.to_string())).collect()
}

#[test]
fn a_file_of_so_many_rows_is_visible_at_once() {
    let folder = Folder::new("rows");
    let sink = opened(&folder, &[], &[("sink.rolling-policy.rows", "2")]);
    assert!(folder.files().is_empty(), "a file begins with a row");
    sink.write(0, &rows(&[(1, "a"), (2, "b"), (3, "c")]), true).unwrap();
    let begun = [("part-0-0-0", "n,s\n1,a\n2,b\n"), (".part-0-0-1.inprogress", "n,s\n3,c\n")];
    assert_eq!(folder.files(), texts(&begun));
    let prepared = end(&sink).unwrap();
    assert_eq!(prepared.sealed.len(), 1, "what was rolled is not committed twice");
    let whole = [("part-0-0-0", "n,s\n1,a\n2,b\n"), ("part-0-0-1", "n,s\n3,c\n")];
    assert_eq!(folder.files(), texts(&whole));
    drop(sink);
    let left: Vec<_> = fs::read_dir(&folder.0).unwrap().collect();
    assert_eq!(left.len(), 2, "nothing else stays: {left:?}");
}

#[test]
fn a_file_of_such_a_length_is_rolled_in_every_format() {
    for format in ["csv", "ndjson", "parquet", "arrow"] {
        let folder = Folder::new(&format!("size-{format}"));
        let more = [("format", format), ("sink.rolling-policy.file-size", "20 KB")];
        let sink = opened(&folder, &[], &more);
        for start in 0..10 {
            let text = |n: i64| format!("{:x}", (n + start).wrapping_mul(0x1E37_79B9_7F4A_7C15));
            let many: Vec<(i64, String)> = (0..1000).map(|n| (n * 77_777, text(n * 31))).collect();
            let many: Vec<(i64, &str)> = many.iter().map(|(n, s)| (*n, s.as_str())).collect();
            sink.write(0, &rows(&many), false).unwrap();
        }
        end(&sink).unwrap();
        let sizes: Vec<u64> = fs::read_dir(&folder.0)
            .unwrap()
            .map(|entry| entry.unwrap())
            .filter(|entry| entry.file_name().as_encoded_bytes().starts_with(b"part-"))
            .map(|entry| entry.metadata().unwrap().len())
            .collect();
        assert!(sizes.len() >= 3, "{format}: {sizes:?}");
        // A slice of rows beyond it, and what stands at the end of a file.
        assert!(sizes.iter().all(|size| *size < 120_000), "{format}: {sizes:?}");
    }
}

#[test]
fn a_file_is_rolled_by_the_clock_also_if_no_more_rows_come() {
    let folder = Folder::new("clock");
    let sink = opened(&folder, &[], &[("sink.rolling-policy.rollover-interval", "100 ms")]);
    sink.write(0, &rows(&[(1, "a")]), false).unwrap();
    let begun = Instant::now();
    while folder.visible().is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", folder.files());
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(folder.files(), texts(&[("part-0-0-0", "n,s\n1,a\n")]));
    sink.write(0, &rows(&[(2, "b")]), false).unwrap();
    end(&sink).unwrap();
    assert_eq!(folder.files()["part-0-0-1"], "n,s\n2,b\n");
}

#[test]
fn what_goes_wrong_by_the_clock_is_said_to_the_next_who_writes() {
    let folder = Folder::new("clock-fails");
    let sink = opened(&folder, &[], &[("sink.rolling-policy.rollover-interval", "100 ms")]);
    sink.write(0, &rows(&[(1, "a")]), false).unwrap();
    fs::write(folder.0.join("part-0-0-0"), "theirs").unwrap();
    let begun = Instant::now();
    let error = loop {
        std::thread::sleep(Duration::from_millis(5));
        if let Err(error) = sink.write(0, &rows(&[]), false) {
            break error.to_string();
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", folder.files());
    };
    assert!(error.contains("part-0-0-0: somebody else has made it"), "{error}");
}

#[test]
fn a_window_is_a_file() {
    let folder = Folder::new("window");
    let sink = opened(&folder, &[], &[("sink.rolling-policy.window", "true")]);
    sink.write(0, &rows(&[(1, "a")]), false).unwrap();
    sink.write(0, &rows(&[(2, "b")]), true).unwrap();
    assert_eq!(folder.visible(), ["part-0-0-0"]);
    // A window of which this worker has no rows, and one whose rows came before.
    sink.write(0, &rows(&[]), true).unwrap();
    sink.write(0, &rows(&[(3, "c")]), false).unwrap();
    assert_eq!(folder.visible(), ["part-0-0-0"]);
    sink.write(0, &rows(&[]), true).unwrap();
    let whole = [("part-0-0-0", "n,s\n1,a\n2,b\n"), ("part-0-0-1", "n,s\n3,c\n")];
    assert_eq!(folder.files(), texts(&whole));
}

#[test]
fn partitions_are_directories_and_visible_at_the_end() {
    let folder = Folder::new("partitions");
    let sink = opened(&folder, &["s"], &[]);
    sink.write(0, &rows(&[(1, "a"), (2, "b"), (3, "a")]), true).unwrap();
    assert!(folder.visible().is_empty());
    end(&sink).unwrap();
    let whole = [("s=a/part-0-0-0", "n\n1\n3\n"), ("s=b/part-0-0-1", "n\n2\n")];
    assert_eq!(folder.files(), texts(&whole));
}

#[test]
fn of_many_partitions_few_files_are_open() {
    let folder = Folder::new("many");
    for rolling in [&[][..], &[("sink.rolling-policy.rows", "1000000")]] {
        let sink = opened(&folder, &["n"], rolling);
        // Each partition comes twice, when its file is the one that was not used for longest.
        let partitions = super::directory::OPEN_FILES as i64 + 10;
        let all: Vec<(i64, &str)> = (0..2 * partitions).map(|n| (n % partitions, "x")).collect();
        for some in all.chunks(100) {
            sink.write(0, &rows(some), true).unwrap();
            let open = folder.0.to_str().unwrap();
            let mine = fs::read_dir("/proc/self/fd").unwrap().filter_map(|fd| {
                fs::read_link(fd.unwrap().path()).ok().filter(|path| path.starts_with(open))
            });
            assert!(mine.count() <= super::directory::OPEN_FILES + 1);
        }
        assert_eq!(folder.visible().is_empty(), rolling.is_empty());
        end(&sink).unwrap();
        let files = folder.files();
        assert_eq!(files.len(), all.len(), "each came back after its file was sealed");
        assert!(files.keys().all(|name| !name.contains(".inprogress")));
        assert!(files.values().all(|text| text == "s\nx\n"));
        drop(sink);
        fs::remove_dir_all(&folder.0).unwrap();
    }
}

#[test]
fn what_was_prepared_is_committed_by_a_sink_that_was_made_again() {
    for by in [&[][..], &["s"]] {
        let folder = Folder::new("prepared");
        let first = opened(&folder, by, &[]);
        first.write(0, &rows(&[(1, "a")]), true).unwrap();
        let prepared = first.prepare(ONLY_INTERVAL).unwrap();
        // Of the next interval; a crash loses it.
        first.write(0, &rows(&[(2, "a")]), true).unwrap();
        assert!(folder.visible().is_empty());
        drop(first);
        let again = sink(&folder, by, &[]);
        again.commit(&prepared).unwrap();
        let seen = folder.visible();
        assert_eq!(seen.len(), 1);
        again.commit(&prepared).unwrap();
        sink(&folder, by, &[]).commit(&prepared).unwrap();
        assert_eq!(folder.visible(), seen);
        assert!(folder.files()[&seen[0]].contains('1') && folder.files().len() == 2);
        fs::remove_file(folder.0.join(&seen[0])).unwrap();
        let again = sink(&folder, by, &[]);
        again.commit(&prepared).unwrap();
        let remark = again.remark().unwrap();
        assert!(remark.contains("somebody has moved or deleted 1 file"), "{remark}");
    }
}

#[test]
fn intervals_follow_each_other() {
    let folder = Folder::new("intervals");
    let sink = opened(&folder, &[], &[]);
    for n in 1..=3 {
        sink.write(0, &rows(&[(n, "a")]), true).unwrap();
        sink.commit(&sink.prepare(n as u64).unwrap()).unwrap();
    }
    let empty = Prepared { interval: 4, sealed: vec![] };
    assert_eq!(sink.prepare(4).unwrap(), empty, "an interval without rows");
    let whole =
        [("part-0-0", "n,s\n1,a\n"), ("part-0-0-1", "n,s\n2,a\n"), ("part-0-0-2", "n,s\n3,a\n")];
    assert_eq!(folder.files(), texts(&whole));
}

#[test]
fn what_a_job_left_is_removed_and_said_and_two_jobs_do_not_mix() {
    let folder = Folder::new("left");
    let failed = opened(&folder, &["s"], &[]);
    failed.write(0, &rows(&[(1, "a"), (2, "b")]), true).unwrap();
    for (by, more) in [(&["s"][..], &[][..]), (&[], &[])] {
        let second = sink(&folder, by, more).open(&rows(&[]).schema(), ONE).unwrap_err();
        assert!(second.to_string().contains("another job is writing it"), "{second}");
    }
    drop(failed);
    assert_eq!(folder.files().len(), 2);
    let next = opened(&folder, &["s"], &[]);
    let remark = next.remark().unwrap();
    assert!(remark.contains("2 unfinished files of a job that did not end well"), "{remark}");
    assert!(remark.ends_with("s=a/.part-0-0-0.inprogress, s=b/.part-0-0-1.inprogress"), "{remark}");
    assert_eq!(folder.files().len(), 2);
    end(&next).unwrap();
    next.mark().unwrap();
    assert!(folder.files().is_empty());
    assert!(opened(&Folder::new("fresh"), &[], &[]).remark().is_none());
}

#[test]
fn partitions_that_cannot_be_are_explained() {
    let folder = Folder::new("wrong");
    for (by, more, expected) in [
        (&["x"][..], &[][..], "there is no column 'x'"),
        (&["s", "s"], &[], "column 's' is named twice"),
        (&["n", "s"], &[], "no column is left for the files"),
        (&["n"], &[("connector", "print")], "the connector 'print' has no partitions"),
        (&["n"], &[("connector", "blackhole")], "the connector 'blackhole' has no partitions"),
    ] {
        let mut table = table(&folder.0, by, more);
        if !more.is_empty() {
            table.options.retain(|key, _| key == "connector");
        }
        let registry = Registry::new();
        for error in [registry.check(&table).unwrap_err(), registry.sink(&table).unwrap_err()] {
            assert!(error.to_string().contains(expected), "{error}");
        }
    }
    let mut generated = table(&folder.0, &["s"], &[]);
    generated.options.insert("connector".into(), "datagen".into());
    let read = Registry::new().table(&generated).unwrap_err().to_string();
    assert!(read.contains("the connector 'datagen' has no partitions"), "{read}");
    let long = "x".repeat(300);
    let sink = opened(&folder, &["s"], &[]);
    let error = sink.write(0, &rows(&[(1, &long)]), true).unwrap_err().to_string();
    assert!(error.contains("longer than a file's name may be"), "{error}");
}

/// When `seal` returns, a checkpoint may name the files: their bytes and their names are on the
/// disk. When `commit` returns, so are their final names.
#[test]
fn what_is_prepared_and_what_is_committed_is_synced() {
    for by in [&["s"][..], &[]] {
        let folder = Folder::new(&format!("synced-{}", by.len()));
        let sink = sink(&Folder(folder.0.join("deep")), by, &[("sink.rolling-policy.rows", "2")]);
        assert!(sink.expect(Manner { intervals: true, ..Manner::default() }));
        synced::take();
        sink.open(&rows(&[]).schema(), ONE).unwrap();
        let has = |all: &[Synced], path: &Path, name: &str| {
            let mut of_path = all.iter().filter(|synced| synced.path == path);
            of_path.any(|synced| synced.names.iter().any(|found| found == name))
        };
        let parent = folder.0.parent().unwrap();
        let own = folder.0.file_name().unwrap().to_str().unwrap();
        let made = synced::take();
        assert!(has(&made, &folder.0, "deep") && has(&made, parent, own), "{made:?}");
        sink.write(0, &rows(&[(1, "a"), (2, "b"), (3, "a"), (4, "a")]), true).unwrap();
        let mut all = synced::take();
        let mut prepared = sink.prepare(1).unwrap();
        assert_eq!(synced::take(), [], "while workers stand");
        sink.seal(&mut prepared).unwrap();
        all.extend(synced::take());
        let path = |name: &String| folder.0.join("deep").join(name);
        let split = |name: &String| {
            let path = path(name);
            (path.parent().unwrap().to_path_buf(), path.file_name().unwrap().display().to_string())
        };
        assert!(prepared.sealed.len() > 1);
        for sealed in &prepared.sealed {
            let (directory, name) = split(&sealed.from);
            let bytes = fs::metadata(path(&sealed.from)).unwrap().len();
            let of_file = |synced: &&Synced| synced.path == path(&sealed.from);
            assert_eq!(
                all.iter().rfind(of_file).map(|synced| synced.bytes),
                Some(bytes),
                "{all:?}"
            );
            assert!(has(&all, &directory, &name), "{name}: {all:?}");
            let partition = directory.file_name().unwrap().to_str().unwrap();
            assert!(has(&all, directory.parent().unwrap(), partition), "{partition}: {all:?}");
        }
        sink.commit(&prepared).unwrap();
        let all = synced::take();
        for sealed in &prepared.sealed {
            let (directory, name) = split(&sealed.to);
            assert!(has(&all, &directory, &name), "{name}: {all:?}");
        }
    }
}

//! Tests of files as sinks, through the crate's public interface.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use arrow::array::{Int64Array, RecordBatch};
use millstream_connect::{FileSink, Registry};
use millstream_contract::sink::{ONLY_INTERVAL, RowOrder, Sink, Writers};
use millstream_contract::table::{Connectors, TableOptions};

use crate::support::Directory;

fn options(base: &Path, more: Given<'_>) -> TableOptions {
    let given = [&[("connector", "file"), ("path", "deep/results")], more].concat();
    let text = |(key, value): &(&str, &str)| (key.to_string(), value.to_string());
    TableOptions {
        name: "results".into(),
        schema: batch(&[]).schema(),
        options: given.iter().map(text).collect::<BTreeMap<_, _>>(),
        metadata: Default::default(),
        partitioned_by: Vec::new(),
        primary_key: Vec::new(),
        exact: false,
        base_dir: base.to_path_buf(),
    }
}

fn sink(base: &Path, more: Given<'_>) -> Arc<dyn Sink> {
    Registry::new().sink(&options(base, more)).unwrap()
}

fn batch(values: &[i64]) -> RecordBatch {
    let column = Arc::new(Int64Array::from(values.to_vec())) as _;
    RecordBatch::try_from_iter([("n", column)]).unwrap()
}

/// Names and content of the files, by name.
fn files(directory: &Directory) -> Vec<(String, String)> {
    let read = fs::read_dir(directory.0.join("deep/results")).unwrap();
    let mut all: Vec<_> = read
        .map(|entry| entry.unwrap())
        .map(|entry| {
            let name = entry.file_name().into_string().unwrap();
            (name, fs::read_to_string(entry.path()).unwrap())
        })
        .collect();
    all.sort();
    all
}

fn owned(files: &[(&str, &str)]) -> Vec<(String, String)> {
    files.iter().map(|(name, text)| (name.to_string(), text.to_string())).collect()
}

/// Ends the job's last interval.
fn commit(sink: &dyn Sink) -> millstream_contract::Result<()> {
    sink.commit(&sink.prepare(ONLY_INTERVAL)?)
}

type Given<'a> = &'a [(&'a str, &'a str)];

const CSV: Given<'_> = &[("format", "csv")];
const TWO: Writers = Writers { process: 3, workers: 2, ..Writers::alone() };

#[test]
fn each_worker_writes_a_file_that_has_its_name_when_it_is_whole() {
    let directory = Directory::new("parts");
    let sink = sink(&directory.0, CSV);
    assert!(sink.is_local() && sink.order() == RowOrder::Any);
    assert!(!directory.0.join("deep").exists(), "planning writes nothing");
    sink.open(&batch(&[]).schema(), TWO).unwrap();
    sink.write(1, &batch(&[1, 2]), true).unwrap();
    sink.write(0, &batch(&[3]), false).unwrap();
    sink.write(1, &batch(&[4]), false).unwrap();
    // A window's last rows are on their way at once.
    let begun = [(".part-3-0.inprogress", ""), (".part-3-1.inprogress", "n\n1\n2\n")];
    assert_eq!(files(&directory), owned(&begun));
    sink.finish().unwrap();
    let done = [(".part-3-0.inprogress", "n\n3\n"), (".part-3-1.inprogress", "n\n1\n2\n4\n")];
    assert_eq!(files(&directory), owned(&done));
    commit(&*sink).unwrap();
    let whole = [("part-3-0", "n\n3\n"), ("part-3-1", "n\n1\n2\n4\n")];
    assert_eq!(files(&directory), owned(&whole));
}

#[test]
fn a_name_that_somebody_else_has_taken_meanwhile_is_theirs() {
    let directory = Directory::new("taken");
    let sink = sink(&directory.0, CSV);
    sink.open(&batch(&[]).schema(), TWO).unwrap();
    sink.write(1, &batch(&[1]), false).unwrap();
    sink.finish().unwrap();
    fs::write(directory.0.join("deep/results/part-3-1"), "theirs").unwrap();
    let error = commit(&*sink).unwrap_err().to_string();
    assert!(error.contains("part-3-1: somebody else has made it"), "{error}");
    assert!(error.contains(".part-3-1.inprogress"), "{error}");
    let left = [(".part-3-1.inprogress", "n\n1\n"), ("part-3-0", "n\n"), ("part-3-1", "theirs")];
    assert_eq!(files(&directory), owned(&left));
}

#[test]
fn formats_and_headers() {
    let cases: [(Given<'_>, &str, &str); 4] = [
        (&[("format", "csv"), ("csv.header", "auto")], "n\n7\n", "n\n"),
        (&[("format", "csv"), ("csv.header", "FALSE")], "7\n", ""),
        (&[("format", "ndjson")], "{\"n\":7}\n", ""),
        (&[("format", "jsonl"), ("connector", "filesystem")], "{\"n\":7}\n", ""),
    ];
    for (given, with_row, without) in cases {
        let directory = Directory::new("formats");
        let sink = sink(&directory.0, given);
        sink.open(&batch(&[]).schema(), Writers { workers: 2, ..Writers::alone() }).unwrap();
        sink.write(0, &batch(&[7]), true).unwrap();
        sink.finish().unwrap();
        commit(&*sink).unwrap();
        assert_eq!(files(&directory), owned(&[("part-0-0", with_row), ("part-0-1", without)]));
    }
}

#[test]
fn a_job_adds_to_what_is_there() {
    let directory = Directory::new("again");
    let failing = sink(&directory.0, CSV);
    failing.open(&batch(&[]).schema(), TWO).unwrap();
    failing.write(0, &batch(&[1, 2, 3]), true).unwrap();
    drop(failing);
    assert_eq!(files(&directory)[0], (".part-3-0.inprogress".into(), "n\n1\n2\n3\n".into()));

    let next = sink(&directory.0, CSV);
    next.open(&batch(&[]).schema(), TWO).unwrap();
    next.write(0, &batch(&[4]), true).unwrap();
    next.finish().unwrap();
    commit(&*next).unwrap();
    let left = (".part-3-0.inprogress", "n\n1\n2\n3\n");
    let whole = [("part-3-0-1", "n\n4\n"), ("part-3-1-1", "n\n")];
    let both = [&[left, (".part-3-1.inprogress", "")], &whole[..]].concat();
    assert_eq!(files(&directory), owned(&both));

    // The first process tells of what is left, and removes it when all have ended well.
    let other = sink(&directory.0, CSV);
    other.open(&batch(&[]).schema(), Writers::alone()).unwrap();
    let remark = other.remark().unwrap();
    assert!(remark.contains("2 files of former jobs stay") && remark.contains(left.0), "{remark}");
    other.finish().unwrap();
    commit(&*other).unwrap();
    other.mark().unwrap();
    assert_eq!(files(&directory), owned(&[&[("part-0-0", "n\n")], &whole[..]].concat()));
}

#[test]
fn two_jobs_do_not_write_the_same_file() {
    let directory = Directory::new("locked");
    let first = sink(&directory.0, CSV);
    first.open(&batch(&[]).schema(), TWO).unwrap();
    first.write(0, &batch(&[1]), true).unwrap();
    let second = sink(&directory.0, CSV);
    let error = second.open(&batch(&[]).schema(), TWO).unwrap_err().to_string();
    assert!(error.contains(".part-3-0.inprogress: another job is writing it"), "{error}");
    assert_eq!(files(&directory)[0].1, "n\n1\n", "nothing is lost of the first one's");
}

/// Nothing that exists is written to, whatever it is called, and nothing is waited for.
#[test]
fn what_is_no_plain_file_is_refused() {
    let directory = Directory::new("links");
    let results = directory.0.join("deep/results");
    fs::create_dir_all(&results).unwrap();
    let (victim, part) = (directory.0.join("victim"), results.join(".part-3-1.inprogress"));
    let open = || sink(&directory.0, CSV).open(&batch(&[]).schema(), TWO);
    let refused = || {
        let error = open().unwrap_err().to_string();
        assert!(error.contains(".part-3-1.inprogress: it is not a plain file"), "{error}");
        assert!(error.contains("remove it, or write to another path"), "{error}");
        assert!(part.symlink_metadata().is_ok(), "it stays");
    };
    fs::write(&victim, "mine\n").unwrap();
    symlink(&victim, &part).unwrap();
    refused();
    fs::remove_file(&part).unwrap();
    symlink(directory.0.join("nowhere"), &part).unwrap();
    refused();
    assert!(!directory.0.join("nowhere").exists(), "nothing is created behind a link");
    fs::remove_file(&part).unwrap();
    fs::create_dir(&part).unwrap();
    refused();
    fs::remove_dir(&part).unwrap();
    let status = Command::new("mkfifo").arg(&part).status().unwrap();
    assert!(status.success());
    refused();
    fs::remove_file(&part).unwrap();
    open().unwrap();
    assert_eq!(fs::read_to_string(&victim).unwrap(), "mine\n");
}

#[test]
fn wrong_options_and_places_are_explained() {
    let directory = Directory::new("wrong");
    let wrong = |more: Given<'_>| {
        FileSink::from_options(&options(&directory.0, more)).unwrap_err().to_string()
    };
    for (given, expected) in [
        (&[][..], "a file needs a format"),
        (&[("format", "orc")], "the formats of files to write are csv, ndjson, parquet and arrow"),
        (&[("format", "parquet"), ("parquet.compression", "zip")], "expected 'snappy', 'zstd'"),
        (&[("format", "parquet"), ("parquet.block.size", "1 KB")], "from '64 KB' to '1 GB'"),
        (&[("format", "arrow"), ("arrow.compression", "gzip")], "'lz4', 'zstd' or 'none'"),
        (&[("format", "csv"), ("parquet.compression", "zstd")], "has no such option"),
        (&[("format", "csv"), ("sink.rolling-policy.rows", "0")], "a whole number from 1"),
        (&[("format", "csv"), ("sink.rolling-policy.file-size", "0")], "a size such as '128 MB'"),
        (
            &[("format", "csv"), ("sink.rolling-policy.rollover-interval", "0")],
            "it has to be longer than nothing",
        ),
        (&[("format", "csv"), ("sink.rolling-policy.row", "5")], "did you mean"),
        (
            &[("format", "csv"), ("sink.partition-commit.policy.kind", "success-file")],
            "'sink.partition-commit.policy.kind': the table has no partitions",
        ),
        (
            &[("format", "csv"), ("sink.partition-commit.policy.kind", "metastore")],
            "there is no policy 'metastore'",
        ),
        (
            &[("format", "csv"), ("sink.partition-commit.success-file.name", "_DONE")],
            "no file marks a partition",
        ),
        (
            &[("format", "csv"), ("sink.partition-commit.success-file.name", "../_DONE")],
            "'../_DONE' is no name for it",
        ),
        (&[("format", "csv"), ("sink.partition-commit.triger", "x")], "has no such option"),
        (&[("format", "csv"), ("path", " ")], "files need a path to a directory"),
        (
            &[("format", "csv"), ("csv.header", "maybe")],
            "expected 'auto', 'true', 'false' or 'skip'",
        ),
        (&[("format", "csv"), ("csv.heade", "true")], "did you mean 'csv.header'?"),
        (
            &[("format", "csv"), ("csv.allow-comments", "true")],
            "a file that is written has no such option",
        ),
        (
            &[("format", "ndjson"), ("csv.header", "true")],
            "a file that is written has no such option",
        ),
    ] {
        let error = wrong(given);
        assert!(error.contains(expected), "{error}");
    }
    fs::write(directory.0.join("plain.csv"), "n\n1\n").unwrap();
    for (path, expected) in
        [("plain.csv", "it is not a directory"), ("plain.csv/below", "Not a directory")]
    {
        let sink = sink(&directory.0, &[("format", "csv"), ("path", path)]);
        let error = sink.open(&batch(&[]).schema(), TWO).unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains("plain.csv"), "{error}");
    }
    assert_eq!(fs::read_to_string(directory.0.join("plain.csv")).unwrap(), "n\n1\n");
}

/// Who declares a file to write must not be told that it can only be read, and the other way round.
#[test]
fn declarations_are_checked_for_both_directions() {
    let directory = Directory::new("checked");
    let check = |more: Given<'_>| Registry::new().check(&options(&directory.0, more));
    check(CSV).unwrap();
    check(&[("format", "ndjson")]).unwrap();
    check(&[("format", "csv"), ("csv.field-delimiter", ";")]).unwrap();
    assert!(check(&[("format", "ndjson"), ("csv.header", "true")]).is_err());
}

//! Directories of files that jobs with checkpoints write, with a crash between any two steps: each
//! row is seen once.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::SchemaRef;
use millstream_connect::Registry;
use millstream_contract::sink::{Manner, Prepared, Sink, Writers};
use millstream_contract::table::{Connectors, TableOptions};

use crate::support::Directory;

/// Numbers, each in the partition of its last digit.
fn batch(values: &[i64]) -> RecordBatch {
    let numbers = Arc::new(Int64Array::from(values.to_vec())) as ArrayRef;
    let digits = StringArray::from_iter_values(values.iter().map(|value| (value % 10).to_string()));
    RecordBatch::try_from_iter([("n", numbers), ("digit", Arc::new(digits) as ArrayRef)]).unwrap()
}

fn schema() -> SchemaRef {
    batch(&[]).schema()
}

/// A directory of files, with rows in partitions or without, rolled or not.
struct Results {
    directory: Directory,
    options: TableOptions,
    overwrites: bool,
}

/// Ends an interval of a sink, and seals it.
fn ended(sink: &dyn Sink, interval: u64) -> millstream_contract::Result<Prepared> {
    let mut prepared = sink.prepare(interval)?;
    sink.seal(&mut prepared)?;
    Ok(prepared)
}

impl Results {
    fn new(name: &str, partitioned: bool, given: &[(&str, &str)], overwrites: bool) -> Results {
        let directory = Directory::new(&format!("resumed-{name}"));
        let fixed = [("connector", "file"), ("path", "deep/results"), ("format", "csv")];
        let text = |(key, value): &(&str, &str)| (key.to_string(), value.to_string());
        let options = TableOptions {
            name: "results".into(),
            schema: schema(),
            options: fixed.iter().chain(given).map(text).collect(),
            metadata: BTreeMap::new(),
            partitioned_by: if partitioned { vec!["digit".into()] } else { vec![] },
            primary_key: Vec::new(),
            exact: false,
            base_dir: directory.0.clone(),
        };
        Results { directory, options, overwrites }
    }

    fn made(&self, resumes: bool) -> Arc<dyn Sink> {
        let sink = Registry::new().sink(&self.options).unwrap();
        let overwrites = self.overwrites;
        let manner =
            Manner { overwrites, endless: !overwrites, intervals: true, resumes, varies: None };
        assert!(sink.expect(manner));
        sink
    }

    fn open(&self, sink: &dyn Sink) -> millstream_contract::Result<()> {
        sink.open(&schema(), Writers { workers: 2, ..Writers::alone() })
    }

    /// The sink of the first job.
    fn first(&self) -> Arc<dyn Sink> {
        let sink = self.made(false);
        self.open(&*sink).unwrap();
        sink
    }

    /// The sink of a job that goes on from a checkpoint.
    fn resumed(&self, checkpoint: &str) -> Arc<dyn Sink> {
        let sink = self.made(true);
        sink.commit(&serde_json::from_str(checkpoint).unwrap()).unwrap();
        self.open(&*sink).unwrap();
        sink
    }

    /// Names of all files.
    fn names(&self) -> Vec<String> {
        fn below(path: &Path, names: &mut Vec<String>) {
            for entry in fs::read_dir(path).unwrap().map(Result::unwrap) {
                match entry.file_type().unwrap().is_dir() {
                    true => below(&entry.path(), names),
                    false => names.push(entry.path().display().to_string()),
                }
            }
        }
        let mut names = Vec::new();
        below(&self.directory.0.join("deep"), &mut names);
        names.sort();
        names
    }

    /// What a reader of the directory sees, in order.
    fn visible(&self) -> Vec<i64> {
        let is_visible = |name: &&String| name.rsplit('/').next().unwrap().starts_with("part-");
        let mut rows = Vec::new();
        for name in self.names().iter().filter(is_visible) {
            let text = fs::read_to_string(name).unwrap();
            let number = |line: &str| line.split(',').next().unwrap().parse::<i64>().unwrap();
            rows.extend(text.lines().skip(1).map(number));
        }
        rows.sort_unstable();
        rows
    }

    fn unfinished(&self) -> usize {
        self.names().iter().filter(|name| name.contains(".inprogress")).count()
    }

    /// As `kill -9` leaves it: with the file that was locked.
    fn kill(&self, sink: Arc<dyn Sink>) {
        drop(sink);
        fs::write(self.directory.0.join("deep/results/.part-0.lock"), "").unwrap();
    }
}

/// As a checkpoint keeps it.
fn kept(prepared: &Prepared) -> String {
    serde_json::to_string(prepared).unwrap()
}

fn all(name: &str, overwrites: bool) -> Vec<Results> {
    let rows = ("sink.rolling-policy.rows", "2");
    let clock = ("sink.rolling-policy.rollover-interval", "1 h");
    let marks = ("sink.partition-commit.policy.kind", "success-file");
    let new = |kind: &str, partitioned, given: &[(&str, &str)]| {
        Results::new(&format!("{name}-{kind}"), partitioned, given, overwrites)
    };
    vec![
        new("plain", false, &[]),
        new("rolled", false, &[rows, clock]),
        new("partitions", true, &[marks]),
        new("both", true, &[rows, marks]),
    ]
}

/// Moments of a crash within the second interval.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Moment {
    BeforePrepare,
    /// After `prepare`, and no checkpoint was written.
    Prepared,
    /// The checkpoint was written.
    Durable,
    /// So many files have their names; of the next one both names are there.
    Renamed(usize),
    Committed,
}

use Moment::{BeforePrepare, Committed, Durable, Renamed};

const MOMENTS: [Moment; 7] =
    [BeforePrepare, Moment::Prepared, Durable, Renamed(0), Renamed(1), Renamed(2), Committed];

#[test]
fn each_row_is_seen_once_whenever_the_job_is_killed() {
    for moment in MOMENTS {
        for results in all("crash", false) {
            let what = format!("{moment:?}, {}", results.directory.0.display());
            let sink = results.first();
            sink.write(0, &batch(&[1, 2, 3]), true).unwrap();
            sink.write(1, &batch(&[4, 15]), true).unwrap();
            let first = ended(&*sink, 1).unwrap();
            sink.commit(&first).unwrap();
            sink.write(0, &batch(&[6, 7, 8]), true).unwrap();
            sink.write(1, &batch(&[9, 10, 11, 12]), true).unwrap();
            let mut checkpoint = kept(&first);
            if moment != BeforePrepare {
                let second = ended(&*sink, 2).unwrap();
                assert!(second.sealed.len() > 1, "{what}");
                if moment != Moment::Prepared {
                    checkpoint = kept(&second);
                }
                if moment == Committed {
                    sink.commit(&second).unwrap();
                }
                if let Renamed(done) = moment {
                    let path = |name: &String| results.directory.0.join("deep/results").join(name);
                    for (number, sealed) in second.sealed.iter().enumerate().take(done + 1) {
                        fs::hard_link(path(&sealed.from), path(&sealed.to)).unwrap();
                        if number < done {
                            fs::remove_file(path(&sealed.from)).unwrap();
                        }
                    }
                }
                // A younger interval had begun.
                sink.write(0, &batch(&[99]), true).unwrap();
            }
            results.kill(sink);
            let is_whole = ![BeforePrepare, Moment::Prepared].contains(&moment);
            let before: Vec<i64> = match is_whole {
                true => vec![1, 2, 3, 4, 6, 7, 8, 9, 10, 11, 12, 15],
                false => vec![1, 2, 3, 4, 15],
            };
            // It crashes twice at once, and then goes on.
            results.kill(results.resumed(&checkpoint));
            let again = results.resumed(&checkpoint);
            assert_eq!(results.visible(), before, "{what}");
            assert_eq!(results.unfinished(), 0, "what no checkpoint names is gone: {what}");
            assert_eq!(again.remark(), None, "{what}");
            let more: &[i64] = if is_whole { &[13] } else { &[6, 7, 8, 9, 10, 11, 12, 13] };
            again.write(1, &batch(more), true).unwrap();
            again.finish().unwrap();
            let last = ended(&*again, 3).unwrap();
            assert_eq!(results.visible(), before, "{what}");
            again.commit(&last).unwrap();
            again.mark().unwrap();
            let expected = vec![1, 2, 3, 4, 6, 7, 8, 9, 10, 11, 12, 13, 15];
            assert_eq!(results.visible(), expected, "{what}");
            drop(again);
            // Killed after its last checkpoint: there is nothing left to do, and it may be done.
            let ended = results.made(true);
            ended.commit(&last).unwrap();
            ended.mark().unwrap();
            assert_eq!(results.visible(), expected, "{what}");
            let names = results.names();
            let is_left = |name: &&String| name.contains("/.");
            assert_eq!(names.iter().find(is_left), None, "{what}");
            let marks = names.iter().filter(|name| name.ends_with("/_SUCCESS")).count();
            let marked = results.options.options.contains_key("sink.partition-commit.policy.kind");
            assert_eq!(marks, if marked { 10 } else { 0 }, "{what}");
        }
    }
}

/// Rows that replace what is there appear at the job's end, however often it has been killed, and
/// the former ones go then.
#[test]
fn what_is_overwritten_stays_until_the_end() {
    for moment in MOMENTS {
        for results in all("overwrite", true) {
            let what = format!("{moment:?}, {}", results.directory.0.display());
            let former = Results { overwrites: false, ..results };
            let sink = former.first();
            sink.write(0, &batch(&[1001, 1002, 1003]), true).unwrap();
            sink.finish().unwrap();
            sink.commit(&ended(&*sink, 1).unwrap()).unwrap();
            drop(sink);
            let results = Results { overwrites: true, ..former };

            let sink = results.first();
            sink.write(0, &batch(&[1, 2]), true).unwrap();
            let first = ended(&*sink, 1).unwrap();
            sink.commit(&first).unwrap();
            sink.write(1, &batch(&[3, 11]), true).unwrap();
            let second = ended(&*sink, 2).unwrap();
            sink.commit(&second).unwrap();
            assert!(second.sealed.len() > first.sealed.len(), "all parts so far: {what}");
            sink.write(0, &batch(&[99]), true).unwrap();
            results.kill(sink);
            assert_eq!(results.visible(), [1001, 1002, 1003], "{what}");

            let sink = results.resumed(&kept(&second));
            assert_eq!(results.unfinished(), second.sealed.len(), "{what}");
            sink.write(0, &batch(&[12]), true).unwrap();
            sink.finish().unwrap();
            let last = ended(&*sink, 3).unwrap();
            assert_eq!(results.visible(), [1001, 1002, 1003], "{what}");
            let checkpoint = kept(&last);
            match moment {
                // These lead back to the second interval.
                BeforePrepare | Moment::Prepared => {
                    results.kill(sink);
                    let sink = results.resumed(&kept(&second));
                    assert_eq!(results.visible(), [1001, 1002, 1003], "{what}");
                    sink.write(1, &batch(&[12]), true).unwrap();
                    sink.finish().unwrap();
                    sink.commit(&ended(&*sink, 3).unwrap()).unwrap();
                    sink.mark().unwrap();
                }
                Durable | Renamed(_) | Committed => {
                    let path = |name: &String| results.directory.0.join("deep/results").join(name);
                    let renamed = match moment {
                        Renamed(number) => number,
                        Committed => last.sealed.len(),
                        _ => 0,
                    };
                    for sealed in last.sealed.iter().take(renamed) {
                        fs::rename(path(&sealed.from), path(&sealed.to)).unwrap();
                    }
                    results.kill(sink);
                    let ended = results.made(true);
                    ended.commit(&serde_json::from_str(&checkpoint).unwrap()).unwrap();
                    ended.mark().unwrap();
                }
            }
            // Of partitions, those without new rows keep theirs.
            assert_eq!(results.visible(), [1, 2, 3, 11, 12], "{what}");
            assert_eq!(results.unfinished(), 0, "{what}");
        }
    }
}

/// A reader moves complete files away into one directory, whatever run has written them.
#[test]
fn names_of_earlier_runs_do_not_come_again() {
    for results in all("moved", false) {
        let (mut seen, mut checkpoint) = (std::collections::BTreeSet::new(), None);
        for run in 0..3 {
            let sink = results.made(run > 0);
            if let Some(checkpoint) = &checkpoint {
                sink.commit(checkpoint).unwrap();
            }
            sink.follow(2 * run);
            results.open(&*sink).unwrap();
            for interval in [2 * run + 1, 2 * run + 2] {
                sink.write(0, &batch(&[1, 2, 3, 4]), true).unwrap();
                let prepared = ended(&*sink, interval).unwrap();
                sink.commit(&prepared).unwrap();
                checkpoint = Some(prepared);
                for name in results.names() {
                    let last = name.rsplit('/').next().unwrap();
                    if last.starts_with("part-") {
                        fs::remove_file(&name).unwrap();
                        assert!(seen.insert(name.clone()), "{name} comes again");
                    }
                }
            }
        }
        assert!(seen.len() >= 6, "{seen:?}");
    }
}

/// A job that was taken for dead and still runs keeps the directory.
#[test]
fn a_second_job_ends_with_an_error_while_the_first_runs() {
    for results in all("zombie", false) {
        let what = results.directory.0.display().to_string();
        let zombie = results.first();
        zombie.write(0, &batch(&[1, 2, 3]), true).unwrap();
        let first = ended(&*zombie, 1).unwrap();
        let before = results.names();
        let second = results.made(true);
        for error in [second.commit(&first).unwrap_err(), results.open(&*second).unwrap_err()] {
            let error = error.to_string();
            assert!(error.contains("another job is writing it"), "{what}: {error}");
        }
        assert_eq!(results.names(), before, "nothing was touched: {what}");
        zombie.commit(&first).unwrap();
        zombie.write(0, &batch(&[4]), true).unwrap();
        let last = ended(&*zombie, 2).unwrap();
        zombie.commit(&last).unwrap();
        drop(zombie);
        drop(results.resumed(&kept(&last)));
        assert_eq!(results.visible(), [1, 2, 3, 4], "{what}");
    }
}

/// A job may be resumed with fewer processes. What the others have left goes, unless they run.
#[test]
fn files_of_processes_that_run_stay() {
    let results = Results::new("processes", false, &[], false);
    let process = |process| Writers { process, ..Writers::alone() };
    let open = |number| {
        let sink = results.made(true);
        sink.open(&schema(), process(number)).unwrap();
        sink
    };
    let (dead, alive, sealed) = (open(1), open(2), open(3));
    for sink in [&dead, &alive, &sealed] {
        sink.write(0, &batch(&[1]), true).unwrap();
    }
    // No file of it is open, and it may be going to commit this one.
    let prepared = ended(&*sealed, 1).unwrap();
    drop(dead);
    assert_eq!(results.unfinished(), 3);
    let first = open(0);
    let left = |sink: &str| results.names().iter().any(|name| name.contains(sink));
    assert!(!left(".part-1-") && left(".part-2-") && left(".part-3-"), "{:?}", results.names());
    first.commit(&prepared).unwrap();
    first.commit(&ended(&*alive, 1).unwrap()).unwrap();
    assert_eq!(results.visible(), [1, 1]);
}

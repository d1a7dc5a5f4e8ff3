//! Positions of a running job: of all splits, by the names of tables and splits. Reading goes on
//! there after a restart, in whatever order the splits come.

use std::collections::BTreeSet;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, OnceLock};
use std::task::Waker;
use std::thread;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{Int64Type, SchemaRef};
use millstream::program::{Job, Plan, SessionControl, Stopper, parse_script};
use millstream::{
    OpenOptions, Position, Result, RowOrder, Session, Settings, Sink, SplitPoll, Writers,
};
use millstream_contract::table::{JobMarks, SourceMarks, SplitMark};

const RECORDS: i64 = 2_000;
/// Files and what they have, and the pipe.
const SPLITS: [(&str, Range<i64>); 5] = [
    ("many/a.csv", 0..RECORDS),
    ("many/b.csv", RECORDS..2 * RECORDS),
    ("many/c.csv", 2 * RECORDS..3 * RECORDS),
    ("secret/d.ndjson", 3 * RECORDS..4 * RECORDS),
    ("pipe", 4 * RECORDS..5 * RECORDS),
];

/// The tables of the query, each with the number of its splits.
const TABLES: [(&str, usize); 6] = [
    ("again", 1),
    ("hidden", 1),
    ("many", 3),
    ("piped", 1),
    ("the rows of VALUES", 1),
    ("the rows of VALUES.2", 1),
];

struct Scratch(PathBuf);

impl Scratch {
    /// The files, and the pipe, which has no writer yet.
    fn new(name: &str) -> Scratch {
        let name = format!("millstream-positions-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(path.join("many")).unwrap();
        fs::create_dir_all(path.join("secret")).unwrap();
        for (name, numbers) in &SPLITS[..4] {
            fs::write(path.join(name), lines(name, numbers)).unwrap();
        }
        fs::write(path.join("where"), "secret").unwrap();
        let made = Command::new("mkfifo").arg(path.join("pipe")).status().unwrap();
        assert!(made.success());
        Scratch(path)
    }

    /// Writes the records of the pipe.
    fn write_pipe(&self) -> thread::JoinHandle<()> {
        let (path, text) = (self.0.join("pipe"), lines("pipe", &SPLITS[4].1));
        thread::spawn(move || fs::write(path, text).unwrap())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.0);
    }
}

fn lines(name: &str, numbers: &Range<i64>) -> String {
    let line =
        |n| if name.ends_with("json") { format!("{{\"n\":{n}}}\n") } else { format!("{n}\n") };
    numbers.clone().map(line).collect()
}

/// A plan over all splits, as a program makes it when it starts. `again` reads one of the files a
/// second time, and each `VALUES` is a table of the same name.
fn planned(base: &Path) -> Plan {
    let file = |table: &str, format: &str, path: &str| {
        format!(
            "CREATE TABLE {table} (n BIGINT) WITH ('connector' = 'file', 'format' = '{format}', \
             'path' = '{path}');"
        )
    };
    let mut session = Session::new(base);
    let script = [
        file("many", "csv", "many"),
        file("again", "csv", "many/a.csv"),
        file("hidden", "ndjson", "${file:where}/d.ndjson"),
        file("piped", "csv", "pipe"),
    ];
    for statement in parse_script(&script.concat(), "positions.sql").unwrap() {
        session.execute(&statement).unwrap();
    }
    session
        .plan(
            "SELECT n FROM many UNION ALL SELECT n FROM hidden UNION ALL SELECT n FROM piped
             UNION ALL SELECT -1 - n FROM again WHERE n < 500
             UNION ALL SELECT n FROM (VALUES (-5000), (-5001)) AS v (n)
             UNION ALL SELECT n FROM (VALUES (-6000), (-6001)) AS v (n)",
        )
        .unwrap()
}

/// Takes rows, and looks at the job's positions before each batch.
#[derive(Debug, Default)]
struct LookingSink {
    stopper: OnceLock<Stopper>,
    rows: Mutex<BTreeSet<i64>>,
    looks: Mutex<Vec<(JobMarks, BTreeSet<i64>)>>,
}

impl Sink for LookingSink {
    fn open(&self, _: &SchemaRef, _: Writers) -> Result<()> {
        Ok(())
    }
    fn order(&self) -> RowOrder {
        RowOrder::Any
    }
    fn write(&self, _: usize, rows: &RecordBatch, _: bool) -> Result<()> {
        let positions = self.stopper.get().unwrap().marks()?;
        let mut all = self.rows.lock().unwrap();
        self.looks.lock().unwrap().push((positions, all.clone()));
        all.extend(rows.column(0).as_primitive::<Int64Type>().values());
        Ok(())
    }
    fn finish(&self) -> Result<()> {
        Ok(())
    }
}

fn settings(seed: u64) -> Settings {
    Settings { workers: 3, batch_rows: 50, simulate: Some(seed), ..Settings::default() }
}

/// The positions while a job runs, each with the rows written before.
fn looks(plan: &Plan, settings: &Settings) -> Vec<(JobMarks, BTreeSet<i64>)> {
    let sink = Arc::new(LookingSink::default());
    let job = Job::new(plan, settings, vec![sink.clone()]).unwrap();
    sink.stopper.set(job.stopper()).unwrap();
    job.run().1.unwrap();
    assert_eq!(sink.rows.lock().unwrap().len() as i64, 5 * RECORDS + 500 + 4);
    std::mem::take(&mut sink.looks.lock().unwrap())
}

/// The numbers of a split of a table from a position on.
fn rest(plan: &Plan, table: &str, split: &str, from: &JobMarks) -> Vec<i64> {
    let source = plan.sources.iter().find(|source| source.name == table).unwrap();
    let from = from[table].positions();
    let options = OpenOptions { from, ..OpenOptions::alone(50, 0, 1) };
    let mut splits = source.table.open(&source.projection, &options).unwrap();
    let mut split = splits.drain(..).find(|opened| opened.name() == split).unwrap();
    assert_eq!(split.position(), position_of(&options, split.name()), "where it is opened");
    let mut numbers = Vec::new();
    while let SplitPoll::Chunk(chunk) = split.poll_next(0, Waker::noop()).unwrap() {
        numbers.extend(chunk.decode().unwrap().column(0).as_primitive::<Int64Type>().values());
    }
    numbers
}

fn position_of(options: &OpenOptions, split: &str) -> Position {
    options.from.get(split).cloned().unwrap_or_default()
}

/// By table and split: how much of each has been read, `-1` for a negative copy.
fn done(plan: &Plan, (positions, written): &(JobMarks, BTreeSet<i64>)) -> [i64; 5] {
    let mut all = [0; 5];
    for (at, (path, numbers)) in SPLITS.iter().enumerate() {
        let (table, path) = match *path {
            "pipe" => {
                // Nobody can read it again. A position is an offset and the number of a line.
                let position = &positions["piped"].splits["pipe"].position.0;
                let line = position.get(1).map_or(0, |line| *line as i64 - 1);
                let before = lines("pipe", &(numbers.start..numbers.start + line));
                assert_eq!(position.first().map_or(0, |offset| *offset as usize), before.len());
                all[at] = line;
                continue;
            }
            // The name has no secret.
            "secret/d.ndjson" => ("hidden", "${file:where}/d.ndjson"),
            path => ("many", path),
        };
        let rest = rest(plan, table, path, positions);
        all[at] = RECORDS - rest.len() as i64;
        assert!(rest.into_iter().eq(numbers.start + all[at]..numbers.end), "{path}");
    }
    for (done, (path, numbers)) in all.iter().zip(&SPLITS) {
        let finished = numbers.start..numbers.start + done;
        assert!(finished.into_iter().all(|n| written.contains(&n)), "{path}: rows are missing");
    }
    all
}

#[test]
fn a_job_has_the_positions_of_all_splits() {
    let mut half_read = 0;
    for seed in 0..4 {
        let scratch = Scratch::new(&format!("all-{seed}"));
        let plan = planned(&scratch.0);
        let writer = scratch.write_pipe();
        let looks = looks(&plan, &settings(seed));
        writer.join().unwrap();
        // Another start of the program.
        let restarted = planned(&scratch.0);
        for look in looks.iter().step_by(7) {
            let splits = look.0.iter().map(|(table, splits)| (table.as_str(), splits.splits.len()));
            assert_eq!(splits.collect::<Vec<_>>(), TABLES);
            let done = done(&restarted, look);
            let again = rest(&restarted, "again", "many/a.csv", &look.0);
            let others = done.iter().all(|done| (1..RECORDS).contains(done));
            half_read += usize::from(others && again.len() as i64 != RECORDS - done[0]);
        }
    }
    assert!(half_read > 0, "all splits are half read at some moment");
}

/// A split that is opened at a position and not read yet has this position, so that a second
/// restart does not begin anew.
#[test]
fn a_split_has_its_position_from_the_first_moment() {
    let scratch = Scratch::new("first");
    let plan = planned(&scratch.0);
    let path = "many/b.csv".to_string();
    let source = plan.sources.iter().find(|source| source.name == "many").unwrap();
    let mut splits = source.table.open(&[0], &OpenOptions::alone(50, 0, 1)).unwrap();
    let mut split = splits.drain(..).find(|opened| opened.name() == path).unwrap();
    let SplitPoll::Chunk(chunk) = split.poll_next(0, Waker::noop()).unwrap() else { panic!() };
    let records = chunk.decode().unwrap().num_rows() as u64;
    let mark = SplitMark {
        position: split.position(),
        chunks: 1,
        records,
        watermark_us: 0,
        clock_us: 0,
        number: 0,
        ended: false,
    };
    let many = SourceMarks { low_us: 0, splits: [(path.clone(), mark)].into() };
    let from = [("many".to_string(), many)].into();
    let first = Some(RECORDS + records as i64);
    assert_eq!(rest(&plan, "many", &path, &from).first().copied(), first);
}

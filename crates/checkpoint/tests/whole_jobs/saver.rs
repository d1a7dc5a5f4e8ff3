//! The saver alone, and what it does for a job that ends at a bad moment.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use std::{env, fs, process};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use millstream_checkpoint::{
    CheckpointDirectory, JobToSave, Opened, Opening, Options, Saver, Start, join, open,
};
use millstream_contract::plan::Plan;
use millstream_contract::sink::{Prepared, RowOrder, Sealed, Sink, Writers};
use millstream_contract::table::JobMarks;
use millstream_contract::{Result, Settings};
use millstream_engine::observe::Awaited;
use millstream_engine::{Checkpoints, CutTaken, Job, OutputMark, Resume, Stopper};
use millstream_operators::operator::Operator;
use millstream_operators::operator::saved::{SavePoint, SavedBatch, SetAside};

use crate::program::prepared;
use crate::reading::{Look, read};
use crate::support::*;

/// A sink that always has rows to prepare.
#[derive(Debug)]
struct Prepares;

impl Sink for Prepares {
    fn open(&self, _: &SchemaRef, _: Writers) -> Result<()> {
        Ok(())
    }
    fn order(&self) -> RowOrder {
        RowOrder::Any
    }
    fn write(&self, _: usize, _: &RecordBatch, _: bool) -> Result<()> {
        Ok(())
    }
    fn prepare(&self, interval: u64) -> Result<Prepared> {
        let name = format!("interval {interval}");
        Ok(Prepared { interval, sealed: vec![Sealed { from: name.clone(), to: name }] })
    }
    fn finish(&self) -> Result<()> {
        Ok(())
    }
}

/// An empty directory.
fn directory(name: &str) -> PathBuf {
    let path = env::temp_dir().join(format!("millstream-{name}-{}", process::id()));
    let _ = fs::remove_dir_all(&path);
    path
}

/// The checkpoints of a job in a directory: of the first process, or of another one.
fn saver(path: &Path, plan: &Plan, is_first: bool) -> Arc<Saver> {
    let options = Options {
        path: path.to_path_buf(),
        every: Duration::from_secs(10),
        keep: 1,
        tolerance: Duration::from_secs(3600),
        start: Start::Latest,
        allow_new: Vec::new(),
    };
    let sinks: [Arc<dyn Sink>; 1] = [Arc::new(Prepares)];
    let job = JobToSave {
        plan,
        settings: &Settings { workers: 1, ..Settings::default() },
        text: "a job".into(),
        targets: &[],
        sinks: &sinks,
        type_name: &|of| of.to_string(),
        processes: 2,
        started_us: 0,
    };
    if !is_first {
        return join(&options, &job, (None, 1, "a run".into())).unwrap().saver;
    }
    let Opening::Runs(opened) = open(&options, &job, |_| {}).unwrap() else {
        panic!("it has ended")
    };
    let Opened { saver, .. } = *opened;
    saver
}

/// The prepared rows of the last checkpoint in a directory, in order.
fn prepared_in(path: &Path) -> Vec<String> {
    let manifest = CheckpointDirectory::new(path).unwrap().get(None).unwrap();
    let prepared = manifest.outputs.iter().flat_map(|output| &output.prepared);
    let mut names: Vec<_> =
        prepared.flat_map(|prepared| &prepared.sealed).map(|sealed| sealed.to.clone()).collect();
    names.sort();
    names
}

/// Another process's part of a cut, as the first process hears of it.
fn part_of(other: &Saver, cut: u64) -> Vec<u8> {
    let (writes, written) = channel();
    let written_to = Box::new(move |part| writes.send(part).unwrap());
    other.part(cut, vec![Prepares.prepare(cut).unwrap()], written_to).unwrap();
    let part: Result<Vec<u8>> = written.recv().unwrap();
    part.unwrap()
}

/// The first process's part of a cut with another process.
fn taken(number: u64) -> CutTaken {
    let (outputs, prepared) =
        (vec![OutputMark::default()], vec![Prepares.prepare(number).unwrap()]);
    CutTaken { number, outputs, prepared, others: 1, ..CutTaken::default() }
}

/// A plan without state.
fn stateless() -> Plan {
    prepared(passing(table(&[], &mut Random::new(1), 1), None))
}

/// A LIMIT may end a job after a process has prepared its rows for a cut, and before the first
/// process has them. The end has them once.
#[test]
fn the_part_of_a_cut_that_nobody_has_taken_belongs_to_the_end() {
    let plan = stateless();
    for comes in [true, false] {
        let path = directory("part");
        let (first, other) = (saver(&path, &plan, true), saver(&path, &plan, false));
        let part = part_of(&other, 7);
        if comes {
            first.part_written(7, 1, &part).unwrap();
            first.given_up(7, 1);
        }
        first.ended(None);
        let end = other.part_of_end(JobMarks::new()).unwrap();
        first.end(JobMarks::new(), vec![end]).unwrap();
        let last = format!("interval {}", u64::MAX);
        assert_eq!(prepared_in(&path), ["interval 1", last.as_str(), "interval 7"], "{comes}");
    }
}

/// State that waits until it may be saved.
struct Waits(Receiver<()>);

impl SetAside for Waits {
    fn save(&mut self, _: &mut SavePoint) -> Result<Option<SavedBatch>> {
        self.0.recv().unwrap();
        Ok(None)
    }
    fn copied_bytes(&self) -> usize {
        0
    }
}

/// A process whose part is still being written at the end waits for it, and reports it.
#[test]
fn a_part_that_is_being_written_at_the_end_is_reported() {
    let (path, plan) = (directory("late-part"), stateless());
    let (first, other) = (saver(&path, &plan, true), saver(&path, &plan, false));
    let (lets, waits) = channel();
    other.save(7, 1, 0, Box::new(Waits(waits)));
    other.part(7, vec![Prepares.prepare(7).unwrap()], Box::new(|_| ())).unwrap();
    let end = thread::scope(|scope| {
        let end = scope.spawn(|| other.part_of_end(JobMarks::new()).unwrap());
        thread::sleep(Duration::from_millis(50));
        lets.send(()).unwrap();
        end.join().unwrap()
    });
    first.ended(None);
    first.end(JobMarks::new(), vec![end]).unwrap();
    let last = format!("interval {}", u64::MAX);
    assert_eq!(prepared_in(&path), ["interval 1", last.as_str(), "interval 7"]);
}

/// Rows that other processes have prepared for a cut that is given up are kept. No cut begins
/// before they have come.
#[test]
fn a_cut_that_is_given_up_waits_for_rows() {
    let (path, plan) = (directory("given-up"), stateless());
    let (first, other) = (saver(&path, &plan, true), saver(&path, &plan, false));
    let part = part_of(&other, 7);
    first.given_up(7, 1);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| first.wait());
        thread::sleep(Duration::from_millis(50));
        let waits = !waiting.is_finished();
        first.part_written(7, 1, &part).unwrap();
        waiting.join().unwrap();
        assert!(waits, "the next cut may begin");
    });
    first.ended(None);
    first.end(JobMarks::new(), Vec::new()).unwrap();
    assert_eq!(prepared_in(&path), ["interval 1", "interval 7"]);
}

/// The part of an earlier cut does not count for a later one.
#[test]
fn a_cut_waits_for_its_own_parts() {
    let (path, plan) = (directory("own-part"), stateless());
    let (first, other) = (saver(&path, &plan, true), saver(&path, &plan, false));
    first.complete(taken(1)).unwrap();
    first.part_written(1, 1, &part_of(&other, 1)).unwrap();
    first.wait();
    assert_eq!(first.status().unwrap().written, 1);
    first.complete(taken(2)).unwrap();
    let late = part_of(&other, 2);
    // Its own state is written soon.
    let (awaits, since) = (Some(Awaited::Write(vec![1])), Instant::now());
    while first.status().unwrap().awaits != awaits {
        assert!(since.elapsed() < Duration::from_secs(60), "{:?}", first.status());
        thread::sleep(Duration::from_millis(1));
    }
    first.ended(None);
    first.wait();
    let status = first.status().unwrap();
    assert_eq!((status.written, status.awaits), (1, None), "the part has not come");
    drop(late);
    assert_eq!(prepared_in(&path), ["interval 1", "interval 1"], "of both processes");
}

/// A process that cannot write its state makes a checkpoint fail. Its rows are part of the next
/// one.
#[test]
fn a_part_without_state_does_not_count_but_for_its_rows() {
    let (path, plan) = (directory("failed-part"), stateless());
    let (first, other) = (saver(&path, &plan, true), saver(&path, &plan, false));
    let mut failed: serde_json::Value = serde_json::from_slice(&part_of(&other, 1)).unwrap();
    failed["files"] = serde_json::json!({ "Err": "state/a: no space is left" });
    first.complete(taken(1)).unwrap();
    first.part_written(1, 1, failed.to_string().as_bytes()).unwrap();
    first.wait();
    let status = first.status().unwrap();
    assert_eq!((status.written, status.failed), (0, 1));
    assert!(status.error.unwrap().contains("no space is left"));
    first.complete(taken(2)).unwrap();
    first.part_written(2, 1, &part_of(&other, 2)).unwrap();
    first.wait();
    let status = first.status().unwrap();
    assert_eq!((status.written, status.failed, status.error), (1, 1, None));
    assert_eq!(prepared_in(&path), ["interval 1", "interval 1", "interval 2", "interval 2"]);
}

/// A part that does not come holds the writing thread until the job has ended. The cut does not
/// count, and its rows belong to the end.
#[test]
fn a_part_that_never_comes_holds_nobody() {
    let (path, plan) = (directory("lost-part"), stateless());
    let first = saver(&path, &plan, true);
    assert!(first.complete(taken(7)).unwrap(), "the job goes on meanwhile");
    first.ended(None);
    first.end(JobMarks::new(), Vec::new()).unwrap();
    let directory = CheckpointDirectory::new(&path).unwrap();
    let manifest = directory.get(None).unwrap();
    assert!(manifest.ended);
    let prepared = &manifest.outputs[0].prepared;
    let sealed: Vec<_> = prepared.iter().flat_map(|of| &of.sealed).map(|of| &of.to).collect();
    assert_eq!(sealed, ["interval 7", "interval 1"], "of the cut, and of the end");
}

/// State that cannot be saved.
struct Panics;

impl SetAside for Panics {
    fn save(&mut self, _: &mut SavePoint) -> Result<Option<SavedBatch>> {
        panic!("the panic of a test")
    }
    fn copied_bytes(&self) -> usize {
        0
    }
}

/// A saver that is given such state.
#[derive(Debug)]
struct Panicking(Arc<Saver>);

impl Checkpoints for Panicking {
    fn restore(&self, _: usize, _: usize, _: &mut dyn Operator) -> Result<()> {
        Ok(())
    }
    fn save(&self, cut: u64, leader: usize, stage: usize, _: Box<dyn SetAside>) {
        self.0.save(cut, leader, stage, Box::new(Panics));
    }
    fn complete(&self, cut: CutTaken) -> Result<bool> {
        self.0.complete(cut)
    }
    fn ended(&self, cut: Option<u64>) {
        self.0.ended(cut);
    }
}

/// Takes one cut; the job reads on when the cut has been written, or not much later.
#[derive(Debug)]
struct Once {
    saver: Arc<Saver>,
    stopper: Mutex<Option<Stopper>>,
    looks: AtomicU64,
}

impl Look for Once {
    fn look(&self) {
        match self.looks.fetch_add(1, Relaxed) {
            5 => {
                let stopper = self.stopper.lock().unwrap();
                assert!(self.saver.cut(stopper.as_ref().expect("the job runs")));
            }
            100 => {
                let since = Instant::now();
                let is_taking = || self.saver.status().unwrap().taking_us.is_some();
                while is_taking() && since.elapsed() < Duration::from_secs(5) {
                    thread::sleep(Duration::from_millis(1));
                }
            }
            _ => {}
        }
    }
}

#[test]
fn a_panic_in_the_writing_thread_ends_the_job() {
    let path = directory("panic");
    let data = records(&mut Random::new(1), 1, 2000, 20);
    let plan = prepared(query(table(&data, &mut Random::new(1), 5), None, 0));
    let saver = saver(&path, &plan, true);
    let looks = AtomicU64::new(0);
    let look = Arc::new(Once { saver: saver.clone(), stopper: Mutex::default(), looks });
    let plan = read(plan, &(look.clone() as Arc<dyn Look>), &Resume::default(), (false, false));
    let settings = Settings { workers: 1, simulate: Some(1), ..Settings::default() };
    let checkpoints: Arc<dyn Checkpoints> = Arc::new(Panicking(saver.clone()));
    let from = Resume::default();
    let job = Job::resume(&plan, &settings, vec![Arc::new(Prepares)], &from, Some(checkpoints));
    let job = job.unwrap();
    *look.stopper.lock().unwrap() = Some(job.stopper());
    let (_, result) = job.run();
    *look.stopper.lock().unwrap() = None;
    let error = result.expect_err("a panic").to_string();
    assert!(error.contains("writing a checkpoint panicked"), "{error}");
    let (tells, told) = channel();
    thread::spawn(move || {
        saver.wait();
        tells.send(()).unwrap();
    });
    told.recv_timeout(Duration::from_secs(60)).expect("whoever waits for the saver waits for ever");
    let _ = fs::remove_dir_all(&path);
}

//! The saver alone, and what it does for a job that ends at a bad moment.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::channel;
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

/// A LIMIT may end a job after a process has prepared its rows for a cut, and before the first
/// process has them. The end has them once.
#[test]
fn the_part_of_a_cut_that_nobody_has_taken_belongs_to_the_end() {
    let plan = prepared(passing(table(&[], &mut Random::new(1), 1), None));
    for comes in [true, false] {
        let path = directory("part");
        let (first, other) = (saver(&path, &plan, true), saver(&path, &plan, false));
        let (writes, written) = channel();
        let written_to = Box::new(move |part| writes.send(part).unwrap());
        other.part(7, vec![Prepares.prepare(7).unwrap()], written_to).unwrap();
        let part: Result<Vec<u8>> = written.recv().unwrap();
        if comes {
            first.part_written(7, 1, &part.unwrap()).unwrap();
            first.given_up(7, 1);
        }
        first.ended(None);
        let end = other.part_of_end(JobMarks::new()).unwrap();
        first.end(JobMarks::new(), vec![end]).unwrap();
        let manifest = CheckpointDirectory::new(&path).unwrap().get(None).unwrap();
        let prepared = manifest.outputs.iter().flat_map(|output| &output.prepared);
        let sealed = prepared.flat_map(|prepared| &prepared.sealed);
        let mut names: Vec<_> = sealed.map(|sealed| sealed.to.as_str()).collect();
        names.sort();
        let last = format!("interval {}", u64::MAX);
        assert_eq!(names, ["interval 1", last.as_str(), "interval 7"], "{comes}");
    }
}

/// A part that does not come holds the writing thread until the job has ended. The cut does not
/// count, and its rows belong to the end.
#[test]
fn a_part_that_never_comes_holds_nobody() {
    let path = directory("lost-part");
    let plan = prepared(passing(table(&[], &mut Random::new(1), 1), None));
    let first = saver(&path, &plan, true);
    let outputs = vec![OutputMark::default()];
    let prepared = vec![Prepares.prepare(7).unwrap()];
    let cut = CutTaken { number: 7, outputs, prepared, others: 1, ..CutTaken::default() };
    assert!(first.complete(cut).unwrap(), "the job goes on meanwhile");
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

//! A checkpoint has what has changed, and refers to earlier files for the rest.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use std::{env, fs, process};

use millstream_checkpoint::{
    CheckpointDirectory, JobToSave, Manifest, Opened, Opening, Options, Saver, Start, open,
};
use millstream_contract::Settings;
use millstream_contract::plan::{Hop, Layout, Operator as Planned, Plan, Window};
use millstream_contract::sink::{Prepared, RowOrder, Sink};
use millstream_engine::{Checkpoints as _, CutTaken, OutputMark};
use millstream_operators::event_time::{BEGINNING, END};
use millstream_operators::operator::aggregate::AggregateProgram;
use millstream_operators::operator::saved::Cut;
use millstream_operators::operator::{
    Batch, Leadership, Operator, Program, Room, RowTimes, Rows, Step,
};

use crate::program::prepared;
use crate::support::*;

const KEYS: u64 = 10;

/// A worker with its checkpoints in a directory.
struct Job {
    path: PathBuf,
    plan: Plan,
    program: Arc<dyn Program>,
    worker: Box<dyn Operator>,
    saver: Arc<Saver>,
    cuts: u64,
}

impl Job {
    /// Goes on from the latest checkpoint, if there is one.
    fn open(path: PathBuf, plan: Plan) -> Job {
        let options = Options {
            path: path.clone(),
            every: Duration::from_secs(10),
            keep: 1,
            tolerance: Duration::from_secs(3600),
            start: Start::Latest,
            allow_new: Vec::new(),
        };
        let collect = Collect { order: RowOrder::Any, batches: Mutex::default() };
        let sinks: [Arc<dyn Sink>; 1] = [Arc::new(collect)];
        let job = JobToSave {
            plan: &plan,
            settings: &Settings { workers: 1, ..Settings::default() },
            text: "a job".into(),
            targets: &[],
            sinks: &sinks,
            type_name: &|of| of.to_string(),
            processes: 1,
            started_us: 0,
        };
        let opening = open(&options, &job, |_| {}).unwrap();
        let Opening::Runs(opened) = opening else { panic!("it has ended") };
        let Opened { saver, place, .. } = *opened;
        let Planned::Aggregate(aggregate) = &plan.stages[0].operator else { panic!("another") };
        let program = AggregateProgram::new(aggregate, 0, &plan.stages[0].output).unwrap();
        let program: Arc<dyn Program> = Arc::new(program);
        let room = Room { keeps_slices: true, pool_bytes: 1 << 16, ..Room::default() };
        let leadership = Leadership { me: 0, leaders: 1, of_empty_key: true };
        let mut worker = program.clone().start(leadership, room);
        saver.restore(0, 0, &mut *worker).unwrap();
        worker.resume(&program.windowing(), BEGINNING).unwrap();
        Job { path, plan, program, worker, saver, cuts: place.0.unwrap_or(0) }
    }

    /// A record of each key comes at this time.
    fn take(&mut self, ts_ms: i64) {
        let record = |key: u64| Record {
            ts_ms: Some(ts_ms),
            key: Some(key as i64),
            name: format!("name-{key}"),
            amount: Some(ts_ms + key as i64),
            price: 0.5,
        };
        let records = (0..KEYS).map(record).collect();
        let slice = self.program.windowing().slice_of(ts_ms * 1000).slice;
        for rows in &table(&[records], &mut Random::new(1), 4).splits[0] {
            let times = RowTimes::Same(Some(ts_ms * 1000));
            let rows = Rows::Fired { rows, slice, times: &times };
            self.worker.update(&Batch { input: 0, rows, filter: None, bytes: 0 }, None).unwrap();
        }
    }

    /// Takes a cut, and waits until it is written or has failed. Other processes say `others`.
    fn cut(&mut self, others: &[&str]) {
        self.cuts += 1;
        let cut = Cut { number: self.cuts, durable: self.saver.durable() };
        let aside = self.worker.set_aside(cut, usize::MAX).unwrap();
        let ended = || {
            let status = self.saver.status().unwrap();
            status.written + status.failed
        };
        let before = ended();
        self.saver.save(self.cuts, 0, 0, aside);
        let taken = CutTaken {
            number: self.cuts,
            frontiers: vec![BEGINNING],
            windowings: vec![Some(self.program.windowing())],
            layouts: vec![Layout::new()],
            outputs: vec![OutputMark::default()],
            prepared: vec![Prepared::default()],
            others: others.len(),
            ..CutTaken::default()
        };
        for (process, part) in (1..).zip(others) {
            self.saver.part_written(self.cuts, process, part.as_bytes()).unwrap();
        }
        assert!(self.saver.complete(taken).unwrap());
        let since = Instant::now();
        while ended() == before {
            assert!(since.elapsed() < Duration::from_secs(60), "it is not written");
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn directory(&self) -> CheckpointDirectory {
        CheckpointDirectory::new(&self.path).unwrap()
    }

    fn manifest(&self) -> Manifest {
        self.directory().get(None).unwrap()
    }

    /// By file of the latest checkpoint: the checkpoint for which it was written, its rows, and the
    /// slices that count.
    fn files(&self) -> Vec<(u64, u64, Option<Vec<i64>>)> {
        let manifest = self.manifest();
        let files = manifest.files();
        files.map(|file| (file.checkpoint().unwrap(), file.rows, file.slices.clone())).collect()
    }

    /// The names of times' slices.
    fn slices(&self, times_ms: &[i64]) -> Option<Vec<i64>> {
        let windowing = self.program.windowing();
        let name = |ms: &i64| windowing.slice_of(ms * 1000).slice.word() as i64;
        Some(times_ms.iter().map(name).collect())
    }

    /// The rows of all windows.
    fn fire(&mut self) -> Vec<String> {
        let (mut rows, mut frontier) = (Vec::new(), BEGINNING);
        while let Some(window) = self.worker.complete(frontier, END) {
            frontier = self.program.windowing().fires_at(window);
            if !self.worker.fire(window) {
                continue;
            }
            loop {
                match self.worker.step().unwrap() {
                    Step::Rows { rows: more, last, .. } => {
                        rows.extend(lines(&more));
                        if last {
                            break;
                        }
                    }
                    Step::Working => {}
                    Step::Over => break,
                }
            }
            self.worker.end_firing();
        }
        rows.sort();
        rows
    }

    /// How many rows readers see of the state.
    fn shown(&self) -> usize {
        let (mut count, manifest) = (0, self.manifest());
        let take = |rows: &arrow::array::RecordBatch| {
            count += rows.num_rows();
            Ok(())
        };
        self.directory().rows(&manifest, "stage 0", take).unwrap();
        count
    }
}

/// The number of files with state.
fn files_in(path: &Path) -> usize {
    fs::read_dir(path.join("state")).unwrap().count()
}

/// Windows that hop, and an empty directory.
fn begin(name: &str) -> Job {
    let path = env::temp_dir().join(format!("millstream-{name}-{}", process::id()));
    let _ = fs::remove_dir_all(&path);
    let hop = Hop { slide_us: 500_000, size_us: 2_000_000, offset_us: 0 };
    let plan = windowed(table(&[], &mut Random::new(1), 1), Window::Hop(hop), 0);
    Job::open(path, prepared(plan))
}

#[test]
fn a_checkpoint_has_slices_that_have_changed_and_refers_to_the_others() {
    let mut job = begin("unchanged");
    let [a, b, c] = [100, 600, 1100];
    [a, b, c].into_iter().for_each(|time| job.take(time));
    job.cut(&[]);
    assert_eq!(job.files(), [(1, 3 * KEYS, None)]);
    job.take(c);
    job.cut(&[]);
    assert_eq!(job.files(), [(1, 2 * KEYS, job.slices(&[a, b])), (2, KEYS, None)]);
    // Windows of two seconds, from those that end at 0.5 s to those that begin at 1 s.
    let open = job.manifest().stages[0].windows.clone().unwrap();
    let bounds = (open.first_us, open.last_us);
    assert_eq!((open.count, bounds), (Some(6), ([-1_500_000, 500_000], [1_000_000, 3_000_000])));
    assert!(job.manifest().new_bytes() < job.manifest().bytes());
    job.cut(&[]);
    let third = [(1, 2 * KEYS, job.slices(&[a, b])), (2, KEYS, job.slices(&[c]))];
    assert_eq!(job.files(), third);
    // What a checkpoint has that could not be written, the next one has.
    job.take(a);
    job.cut(&[r#"{"files":{"Err":"another process: does not answer"},"prepared":[]}"#]);
    assert_eq!((job.saver.status().unwrap().failed, job.files()), (1, third.to_vec()));
    job.cut(&[]);
    let fifth = [(1, KEYS, job.slices(&[b])), (2, KEYS, job.slices(&[c])), (5, KEYS, None)];
    assert_eq!((job.files(), job.shown()), (fifth.to_vec(), 3 * KEYS as usize));
    assert_eq!(job.directory().verify(5).unwrap(), [""; 0]);
    // A file goes with its last slice.
    job.take(b);
    job.cut(&[]);
    let sixth = [(2, KEYS, job.slices(&[c])), (5, KEYS, job.slices(&[a])), (6, KEYS, None)];
    assert_eq!(job.files(), sixth);

    let (path, plan, expected) = (job.path.clone(), job.plan.clone(), job.fire());
    // The writing thread has ended.
    drop(job);
    assert_eq!(files_in(&path), 3, "files that no manifest needs");
    // Another run has the same state. It refers to no file of this one.
    let mut next = Job::open(path.clone(), plan);
    next.cut(&[]);
    assert_eq!(next.files(), [(7, 3 * KEYS, None)]);
    assert_eq!((expected.len() as u64 / KEYS, next.fire()), (6, expected));
    drop(next);
    assert_eq!(files_in(&path), 1, "files that no manifest needs");
    fs::remove_dir_all(&path).unwrap();
}

/// Files to which the next checkpoint would refer.
#[test]
fn after_its_files_were_deleted_a_job_saves_everything_again() {
    let mut job = begin("deleted");
    job.take(100);
    job.cut(&[]);
    job.directory().delete(1).unwrap();
    job.cut(&[]);
    let status = job.saver.status().unwrap();
    let error = status.error.unwrap_or_default();
    assert!(error.contains("it was deleted while the job runs"), "{error}");
    assert_eq!((status.written, status.failed), (1, 1));
    job.cut(&[]);
    assert_eq!(job.files(), [(3, KEYS, None)]);
    fs::remove_dir_all(&job.path).unwrap();
}

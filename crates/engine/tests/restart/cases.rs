//! Single cases of cuts: each has its own test, since chance seldom brings them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use millstream_contract::plan::Output;
use millstream_contract::sink::{Prepared, RowOrder, Sink, Writers};
use millstream_contract::{Error, Result, Settings};
use millstream_engine::{Checkpoints, CutTaken, Job, Resume, Stopper};
use millstream_operators::operator::Operator;
use millstream_operators::operator::saved::SetAside;

use super::control::Control;
use super::kept::Kept;
use super::reading::{Look, read};
use super::rows::Rows;
use super::{checkpoints, sinks};
use crate::support::*;

/// An edited query reads a table anew: it begins behind the windows that have fired. Records of
/// these windows are late, and cuts do not wait until the table has got as far.
#[test]
fn a_new_table_begins_behind_the_windows_that_have_fired() {
    let (mut cuts, mut lates) = (0, 0);
    for seed in 0..40 {
        let mut random = Random::new(seed);
        let data = records(&mut random, 2, 600, 20);
        let plan = query(table(&data, &mut random, 20), Some(500), 0);
        let fired_us = random.pick(&[0, 1_000_000, 1_700_000]);
        let (expected, late, _) = oracle_of_resumed(&data, Some(500), 0, 0, |_, _| fired_us);
        let kept = Arc::new(Kept::new(1));
        let control = Control::new(&kept, Random::new(seed), [3, 0]);
        let from = Resume { frontiers: vec![fired_us], ..Resume::default() };
        let plan = control.read(&plan, &from, (false, false));
        let settings = Settings { simulate: Some(seed), workers: 2, ..Settings::default() };
        let sinks = sinks(&kept, &[RowOrder::Deterministic]);
        let job = Job::resume(&plan, &settings, sinks, &from, Some(checkpoints(&kept, 0)));
        let (stats, result) = control.run(job.unwrap());
        result.unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        assert_eq!((&kept.rows()[0], stats.late_records), (&expected, late), "seed {seed}");
        cuts += kept.completed.load(Relaxed);
        lates += late;
    }
    assert!(cuts > 100 && lates > 1000, "{cuts} cuts, {lates} late records");
}

/// The sink of an output whose reader goes with the first rows.
#[derive(Debug)]
struct Closing {
    rows: Rows,
    writes: Arc<AtomicU64>,
}

impl Sink for Closing {
    fn open(&self, schema: &SchemaRef, writers: Writers) -> Result<()> {
        self.rows.open(schema, writers)
    }
    fn order(&self) -> RowOrder {
        self.rows.order()
    }
    fn write(&self, _: usize, _: &RecordBatch, _: bool) -> Result<()> {
        self.writes.fetch_add(1, Relaxed);
        Err(Error::OutputClosed)
    }
    fn prepare(&self, interval: u64) -> Result<Prepared> {
        self.rows.prepare(interval)
    }
    fn finish(&self) -> Result<()> {
        self.rows.finish()
    }
}

/// An output whose reader has gone wants no rows in the next job either.
#[test]
fn an_output_without_a_reader_stays_without_rows() {
    let mut cases = 0;
    for seed in 0..30 {
        let mut random = Random::new(seed);
        let data = records(&mut random, 2, 300, 20);
        let mut plan = passing(table(&data, &mut random, 10), None);
        plan.outputs.push(Output::of(0));
        let kept = Arc::new(Kept::new(2));
        let writes = Arc::new(AtomicU64::new(0));
        let run = |from: &Resume, control: &Arc<Control>| {
            let plan = control.read(&plan, from, (false, false));
            let settings = Settings { simulate: Some(seed), workers: 2, ..Settings::default() };
            let mut sinks = sinks(&kept, &[RowOrder::Deterministic; 2]);
            let (kept, order) = (kept.clone(), RowOrder::Deterministic);
            let rows = Rows { kept: kept.clone(), output: 0, process: 0, order, is_local: false };
            sinks[0] = Arc::new(Closing { rows, writes: writes.clone() });
            let job = Job::resume(&plan, &settings, sinks, from, Some(checkpoints(&kept, 0)));
            control.run(job.unwrap()).1.unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        };
        run(&Resume::default(), &Control::new(&kept, Random::new(seed), [5, 0]));
        assert_eq!(writes.swap(0, Relaxed), 1, "the reader goes once");
        let from = kept.resume.lock().unwrap().clone();
        let has_rows = from.totals.rows > 0;
        kept.begin(Random::new(seed));
        run(&from, &Control::none(&kept));
        if has_rows {
            cases += 1;
            let limits: Vec<_> = from.outputs.iter().map(|mark| mark.limit).collect();
            assert_eq!((writes.load(Relaxed), &limits[..]), (0, &[Some(0), None][..]));
        }
    }
    assert!(cases > 10, "{cases} cases");
}

/// A store that saves nothing until it is told to.
#[derive(Debug, Default)]
struct SlowStore {
    aside: Mutex<Held>,
    is_taken: AtomicBool,
}

/// State that has been set aside.
#[derive(Default)]
struct Held(Vec<Box<dyn SetAside>>);

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} tables", self.0.len())
    }
}

impl Checkpoints for SlowStore {
    fn restore(&self, _: usize, _: usize, _: &mut dyn Operator) -> Result<()> {
        Ok(())
    }
    fn save(&self, _: u64, _: usize, _: usize, state: Box<dyn SetAside>) {
        self.aside.lock().unwrap().0.push(state);
    }
    fn complete(&self, _: CutTaken) -> Result<bool> {
        self.is_taken.store(true, Relaxed);
        Ok(true)
    }
}

/// Takes one cut, at a look.
#[derive(Debug)]
struct Once {
    stopper: Mutex<Option<Stopper>>,
    looks: AtomicU64,
}

impl Look for Once {
    fn look(&self) {
        if self.looks.fetch_add(1, Relaxed) == 300 {
            let stopper = self.stopper.lock().unwrap();
            assert!(stopper.as_ref().is_some_and(|stopper| stopper.cut(1)));
        }
    }
}

/// Windows wait for a store that is slow. This is no query that is stuck: the setting
/// `checkpoint.tolerance` says how long it may take.
#[test]
fn a_query_that_waits_for_a_slow_store_is_not_stuck() {
    let mut random = Random::new(1);
    let data = records(&mut random, 2, 20_000, 1_000_000);
    let plan = query(table(&data, &mut random, 200), None, 0);
    let (expected, ..) = oracle(&data, None, 0, 0);
    let look = Arc::new(Once { stopper: Mutex::default(), looks: AtomicU64::new(0) });
    let plan = read(plan, &(look.clone() as Arc<dyn Look>), &Resume::default(), (false, false));
    // Less may be copied than there is, so tables are set aside.
    let settings = Settings { workers: 2, memory_bytes: 16 << 20, ..Settings::default() };
    let (store, kept) = (Arc::new(SlowStore::default()), Arc::new(Kept::new(1)));
    let sinks = sinks(&kept, &[RowOrder::Deterministic]);
    let job = Job::resume(&plan, &settings, sinks, &Resume::default(), Some(store.clone()));
    let job = job.unwrap();
    let stopper = job.stopper();
    *look.stopper.lock().unwrap() = Some(stopper.clone());
    let begun = Instant::now();
    let result = thread::scope(|scope| {
        let running = scope.spawn(|| job.run().1);
        while !store.is_taken.load(Relaxed) {
            assert!(!running.is_finished() && begun.elapsed() < Duration::from_secs(60));
            thread::sleep(Duration::from_millis(1));
        }
        // Long enough that all that can be done without the store is done.
        for _ in 0..100 {
            let standing = stopper.standing();
            assert_eq!(standing.waits_for, None, "{standing:?}");
            thread::sleep(Duration::from_millis(10));
        }
        assert!(!running.is_finished(), "the case that this is about");
        store.aside.lock().unwrap().0.clear();
        running.join().unwrap()
    });
    *look.stopper.lock().unwrap() = None;
    result.unwrap();
    same_rows(&kept.rows()[0], &expected, "the rows of the job");
}

/// A store behind whose first cut the job is to stop.
#[derive(Debug, Default)]
struct LastCut {
    is_taken: AtomicBool,
}

impl Checkpoints for LastCut {
    fn restore(&self, _: usize, _: usize, _: &mut dyn Operator) -> Result<()> {
        Ok(())
    }
    fn save(&self, _: u64, _: usize, _: usize, _: Box<dyn SetAside>) {}
    fn complete(&self, _: CutTaken) -> Result<bool> {
        self.is_taken.store(true, Relaxed);
        Ok(false)
    }
}

/// At the last cut all workers stand until the job is stopped. No row behind it is computed.
#[test]
fn nobody_goes_on_behind_the_last_cut() {
    let mut random = Random::new(1);
    let data = records(&mut random, 2, 20_000, 20);
    let look = Arc::new(Once { stopper: Mutex::default(), looks: AtomicU64::new(0) });
    let plan = passing(table(&data, &mut random, 200), None);
    let plan = read(plan, &(look.clone() as Arc<dyn Look>), &Resume::default(), (false, false));
    let settings = Settings { workers: 2, ..Settings::default() };
    let (store, kept) = (Arc::new(LastCut::default()), Arc::new(Kept::new(1)));
    let sinks = sinks(&kept, &[RowOrder::Deterministic]);
    let job = Job::resume(&plan, &settings, sinks, &Resume::default(), Some(store.clone()));
    let job = job.unwrap();
    let stopper = job.stopper();
    *look.stopper.lock().unwrap() = Some(stopper.clone());
    let begun = Instant::now();
    let (rows, stood, result) = thread::scope(|scope| {
        let running = scope.spawn(|| job.run().1);
        while !store.is_taken.load(Relaxed) {
            assert!(!running.is_finished() && begun.elapsed() < Duration::from_secs(60));
            thread::sleep(Duration::from_millis(1));
        }
        let before = stopper.counters().rows;
        thread::sleep(Duration::from_millis(100));
        let (rows, stood) = ([before, stopper.counters().rows], !running.is_finished());
        stopper.stop();
        (rows, stood, running.join().unwrap())
    });
    *look.stopper.lock().unwrap() = None;
    assert!(rows[0] > 0 && rows[0] == rows[1] && stood, "{rows:?}, {stood}");
    assert!(matches!(result, Err(Error::Interrupted)), "{result:?}");
}

/// Near its limit of memory, a job with checkpoints needs little more than one without. Whoever
/// lacks memory while tables are set aside waits until they are taken back.
#[test]
fn a_job_near_its_limit_of_memory_goes_on_between_cuts() {
    let (mut stalls, mut cuts) = (0, 0);
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let data = records(&mut random, 2, 3000, 1000);
        let plan = query(table(&data, &mut random, 40), None, 0);
        let free = Settings {
            workers: 1 + random.below(3) as usize,
            memory_bytes: 1 << 40,
            batch_rows: 40,
            simulate: Some(seed),
            ..Settings::default()
        };
        let (expected, _) = super::uninterrupted(&plan, &free).unwrap();
        let (stats, _) = run(&plan, &free);
        // What is needed, and a little.
        let memory_bytes = stats.memory_bytes_peak * 5 / 4;
        let settings = Settings { memory_bytes, ..free };
        let kept = Arc::new(Kept::new(1));
        let control = Control::new(&kept, Random::new(seed), [5, 0]);
        let plan = control.read(&plan, &Resume::default(), (false, false));
        kept.begin(Random::new(seed));
        let (sinks, from) = (sinks(&kept, &[RowOrder::Deterministic]), Resume::default());
        let job = Job::resume(&plan, &settings, sinks, &from, Some(checkpoints(&kept, 0)));
        let (stats, result) = control.run(job.unwrap());
        result.unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        same_rows(&kept.rows()[0], &expected[0], &format!("seed {seed}"));
        stalls += stats.memory_stalls;
        cuts += kept.completed.load(Relaxed);
    }
    assert!(cuts > 100 && stalls > 0, "{cuts} cuts, {stalls} stalls");
}

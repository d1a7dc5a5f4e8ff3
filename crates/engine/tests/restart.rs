//! Tests of cuts: a job that is stopped at any moment, and goes on from its last cut, gives the
//! rows of a job that was never stopped, each once. Simulated; `MILLSTREAM_SEEDS` and
//! `MILLSTREAM_SEED` as in the tests of equivalence.

mod support;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::Waker;

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use millstream_contract::plan::{Cumulate, Hop, Plan, Window};
use millstream_contract::sink::{Prepared, RowOrder, Sink, Writers};
use millstream_contract::table::{OpenOptions, Position, Split, SplitPoll, Table};
use millstream_contract::{Result, Settings};
use millstream_engine::{Checkpoints, CutTaken, Job, Resume, Stats, Stopper};
use millstream_operators::operator::Operator;
use millstream_operators::operator::saved::{SavePoint, SavedBatch};
use support::*;

/// What a job has left behind: state and places of its last cut, and rows that are visible.
#[derive(Debug, Default)]
struct Kept {
    /// By stage.
    saving: Mutex<Vec<(usize, SavedBatch)>>,
    state: Mutex<Vec<(usize, SavedBatch)>>,
    resume: Mutex<Resume>,
    visible: Mutex<Vec<String>>,
    /// Rows since the last cut.
    pending: Mutex<Vec<String>>,
    cuts: AtomicU64,
}

impl Checkpoints for Kept {
    fn restore(&self, _: usize, stage: usize, operator: &mut dyn Operator) -> Result<()> {
        let state = self.state.lock().unwrap();
        let mut of_stage = state.iter().filter(|(of, _)| *of == stage);
        of_stage.try_for_each(|(_, batch)| operator.restore(batch.part, &batch.rows))
    }

    fn save(&self, _: u64, _: usize, stage: usize, operator: &mut dyn Operator) -> Result<()> {
        let mut at = SavePoint::new(100, 10_000);
        while let Some(batch) = operator.save(&mut at)? {
            self.saving.lock().unwrap().push((stage, batch));
        }
        Ok(())
    }

    fn complete(&self, cut: CutTaken) -> Result<()> {
        *self.state.lock().unwrap() = std::mem::take(&mut self.saving.lock().unwrap());
        *self.resume.lock().unwrap() = Resume {
            started_us: Some(cut.started_us),
            marks: cut.marks,
            frontiers: cut.frontiers,
            layouts: cut.layouts,
            outputs: cut.outputs,
        };
        self.visible.lock().unwrap().append(&mut self.pending.lock().unwrap());
        assert_eq!(self.cuts.fetch_add(1, Relaxed) + 1, cut.number);
        Ok(())
    }
}

#[derive(Debug)]
struct Rows(Arc<Kept>);

impl Sink for Rows {
    fn open(&self, _: &SchemaRef, _: Writers) -> Result<()> {
        Ok(())
    }
    fn order(&self) -> RowOrder {
        RowOrder::Any
    }
    fn write(&self, _: usize, rows: &RecordBatch, _: bool) -> Result<()> {
        self.0.pending.lock().unwrap().extend(lines(rows));
        Ok(())
    }
    fn prepare(&self, interval: u64) -> Result<Prepared> {
        Ok(Prepared { interval, sealed: Vec::new() })
    }
    fn finish(&self) -> Result<()> {
        Ok(())
    }
}

/// A table that takes a cut or stops the job while it is read.
#[derive(Debug)]
struct Reading {
    memory: Arc<Memory>,
    /// In what order the splits come.
    reversed: bool,
    control: Arc<Control>,
}

#[derive(Debug)]
struct Control {
    stopper: OnceLock<Stopper>,
    kept: Arc<Kept>,
    random: Mutex<Random>,
    /// One chunk in so many takes a cut, and stops the job; 0: none does.
    chunks_of_cut: u64,
    chunks_of_stop: u64,
}

impl Control {
    fn chunk(&self) {
        let mut random = self.random.lock().unwrap();
        let stopper = self.stopper.get().expect("a job that runs");
        if random.below(self.chunks_of_cut) == 0 {
            stopper.cut(self.kept.cuts.load(Relaxed) + 1);
        }
        if self.chunks_of_stop > 0 && random.below(self.chunks_of_stop) == 0 {
            stopper.stop();
        }
    }
}

struct ReadingSplit {
    name: String,
    batches: Vec<RecordBatch>,
    next: u64,
    control: Arc<Control>,
}

impl Split for ReadingSplit {
    fn position(&self) -> Position {
        Position(vec![self.next])
    }
    fn name(&self) -> &str {
        &self.name
    }
    fn poll_next(&mut self, _: i64, _: &Waker) -> Result<SplitPoll> {
        self.control.chunk();
        let Some(batch) = self.batches.get(self.next as usize) else { return Ok(SplitPoll::Ended) };
        self.next += 1;
        Ok(SplitPoll::Chunk(Box::new(batch.clone())))
    }
}

impl Table for Reading {
    fn schema(&self) -> SchemaRef {
        self.memory.schema.clone()
    }
    fn bounded(&self) -> bool {
        true
    }
    fn open(&self, projection: &[usize], options: &OpenOptions) -> Result<Vec<Box<dyn Split>>> {
        let split = |(number, batches): (usize, &Vec<RecordBatch>)| -> Box<dyn Split> {
            let name = format!("split {number}");
            let next = options.from(&name).0.first().copied().unwrap_or(0);
            let batches = batches.iter().map(|b| b.project(projection).unwrap()).collect();
            Box::new(ReadingSplit { name, batches, next, control: self.control.clone() })
        };
        let mut splits: Vec<_> = self.memory.splits.iter().enumerate().map(split).collect();
        if self.reversed {
            splits.reverse();
        }
        Ok(splits)
    }
    fn describe(&self, _: &[usize]) -> String {
        "cuts".into()
    }
}

/// One seed's jobs: the same query is run, stopped, and resumed, until it ends.
fn simulate(seed: u64) -> Stats {
    let mut random = Random::new(seed);
    let splits = 1 + random.below(4) as usize;
    let per_split = random.pick(&[1, 40, 400, 900]);
    let keys = random.pick(&[1, 5, 60, 100_000]);
    let data = records(&mut random, splits, per_split, keys);
    let delay_us = random.pick(&[0, 1, 100_000, 4_999_999]);
    let batch_rows = random.pick(&[1, 20, 300]);
    let memory = table(&data, &mut random, batch_rows);
    let lateness = random.pick(&[0, 0, 700]);
    let shape = random.below(4);
    let plan = |source: Arc<dyn Table>| -> Plan {
        let hop = Hop { slide_us: 500_000, size_us: 2_000_000, offset_us: 3000 };
        let cumulate = Cumulate { step_us: 300_000, size_us: 1_500_000, offset_us: 0 };
        match shape {
            0 => passing(source, None),
            1 => packed(
                query(source, [None, Some(50), Some(1000)][seed as usize % 3], delay_us),
                seed,
            ),
            2 => windowed(source, Window::Hop(hop), delay_us),
            _ => windowed(source, Window::Cumulate(cumulate), delay_us),
        }
    };
    let what = format!("seed {seed}, shape {shape}\n{}", repeat(seed, "restart"));
    let settings = Settings { simulate: Some(seed), ..drawn_settings(&mut random, 4, lateness) };
    let (_, expected) = run(&plan(memory.clone()), &settings);
    let mut expected = expected.unwrap_or_else(|e| panic!("{what}: {e}"));

    let kept = Arc::new(Kept::default());
    let mut sum = Stats::default();
    let mut stops = random.below(6);
    loop {
        let next = random.below(1 << 30);
        let control = Arc::new(Control {
            stopper: OnceLock::new(),
            kept: kept.clone(),
            random: Mutex::new(Random::new(next)),
            chunks_of_cut: random.pick(&[1, 3, 20, 100]),
            chunks_of_stop: if stops > 0 { random.pick(&[5, 50]) } else { 0 },
        });
        let reversed = random.below(2) == 0;
        let source = Reading { memory: memory.clone(), reversed, control: control.clone() };
        let settings = drawn_settings(&mut random, 4, lateness);
        let settings = Settings { simulate: Some(next), ..settings };
        let from = kept.resume.lock().unwrap().clone();
        kept.pending.lock().unwrap().clear();
        let sink = Arc::new(Rows(kept.clone()));
        let plan = plan(Arc::new(source));
        let job = Job::resume(&plan, &settings, vec![sink], &from, Some(kept.clone()));
        let job = job.unwrap_or_else(|e| panic!("{what}: {e}"));
        control.stopper.set(job.stopper()).unwrap();
        let (stats, result) = job.run();
        sum.add_process(&stats);
        match result {
            Ok(()) => break,
            Err(millstream_contract::Error::Interrupted) => stops -= 1,
            Err(error) => panic!("{what}: {error}"),
        }
    }
    let mut rows = kept.visible.lock().unwrap().clone();
    rows.append(&mut kept.pending.lock().unwrap());
    rows.sort();
    expected.sort();
    same_rows(&rows, &expected, &what);
    // Not the sum of all jobs, but how many cuts there were.
    Stats { batches_stolen: kept.cuts.load(Relaxed), ..sum }
}

#[test]
fn simulated_jobs_go_on_from_their_last_cut() {
    let (seeds, sum) = run_seeds(600, simulate);
    happened(seeds, &[("cuts", sum.batches_stolen), ("merges", sum.merges)]);
}

//! What a job leaves behind, for the job that goes on from there.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use millstream_contract::Result;
use millstream_contract::sink::{Prepared, RowOrder, Sink, Writers};
use millstream_engine::{Checkpoints, CutTaken, OutputMark, Resume};
use millstream_operators::operator::Operator;
use millstream_operators::operator::saved::{SavePoint, SavedBatch, SetAside};

use crate::support::{Random, lines};

/// State and places of the last cut that has been written, and rows that are visible.
#[derive(Default)]
pub(crate) struct Kept {
    /// By stage: state of the cut that is being taken.
    saving: Mutex<Vec<Aside>>,
    /// Cuts that have been taken, and not been written.
    writing: Mutex<Vec<Writing>>,
    state: Mutex<Vec<(usize, SavedBatch)>>,
    pub(crate) resume: Mutex<Resume>,
    /// By output.
    visible: Mutex<Vec<Vec<String>>>,
    /// By output: rows since the last cut.
    pending: Mutex<Vec<Vec<String>>>,
    /// Decides when cuts are written; `None`: at once.
    random: Mutex<Option<Random>>,
    /// The last cut that was asked for and begun.
    pub(crate) begun: AtomicU64,
    pub(crate) completed: AtomicU64,
    pub(crate) given_up: AtomicU64,
    /// Cuts that workers have waited for, and those that were taken while others were written.
    pub(crate) awaited: AtomicU64,
    pub(crate) overtaken: AtomicU64,
    /// Rows that waited at cuts, of records, of windows and for the end.
    pub(crate) waited: [AtomicU64; 3],
}

/// State of a stage.
type Aside = (usize, Box<dyn SetAside>);

/// A cut that is to be written.
struct Writing {
    state: Vec<Aside>,
    resume: Resume,
    rows: Vec<Vec<String>>,
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kept").field("resume", &self.resume).finish_non_exhaustive()
    }
}

impl Kept {
    pub(crate) fn new(outputs: usize) -> Kept {
        let none = || Mutex::new(vec![Vec::new(); outputs]);
        Kept { visible: none(), pending: none(), ..Kept::default() }
    }

    /// The next job begins: what the last one has not written is gone.
    pub(crate) fn begin(&self, random: Random) {
        self.saving.lock().unwrap().clear();
        self.writing.lock().unwrap().clear();
        self.pending.lock().unwrap().iter_mut().for_each(Vec::clear);
        *self.random.lock().unwrap() = Some(random);
    }

    /// Whether something happens that does so once in `times`.
    fn one_in(&self, times: u64) -> bool {
        self.random.lock().unwrap().as_mut().is_none_or(|random| random.below(times) == 0)
    }

    /// Writes the cuts that have been taken.
    fn write(&self) {
        for Writing { state, resume, rows } in std::mem::take(&mut *self.writing.lock().unwrap()) {
            let mut saved = Vec::new();
            for (stage, mut aside) in state {
                let mut at = SavePoint::new(100, 10_000);
                while let Some(batch) = aside.save(&mut at).unwrap() {
                    saved.push((stage, batch));
                }
            }
            *self.state.lock().unwrap() = saved;
            *self.resume.lock().unwrap() = resume;
            let mut visible = self.visible.lock().unwrap();
            visible.iter_mut().zip(rows).for_each(|(all, rows)| all.extend(rows));
        }
    }

    /// Cuts that have been completed or given up.
    pub(crate) fn ended(&self) -> u64 {
        self.completed.load(Relaxed) + self.given_up.load(Relaxed)
    }

    /// All rows, when the job has ended well.
    pub(crate) fn rows(&self) -> Vec<Vec<String>> {
        self.write();
        let (mut all, pending) = (self.visible.lock().unwrap(), self.pending.lock().unwrap());
        all.iter_mut().zip(pending.iter()).for_each(|(all, rows)| all.extend(rows.iter().cloned()));
        all.clone()
    }

    fn note_waiting(&self, OutputMark { waiting, .. }: &OutputMark) {
        for rows in waiting {
            // Of the last six columns the first is the source, and the fourth the input.
            let first = rows.num_columns() - 6;
            let has = |column: usize| rows.column(first + column).null_count() == 0;
            let kind = if has(0) { 0 } else { 2 - usize::from(has(3)) };
            self.waited[kind].fetch_add(rows.num_rows() as u64, Relaxed);
        }
    }
}

/// Rows of one place in their order, joined and divided elsewhere.
fn divided_anew(waiting: Vec<RecordBatch>) -> Vec<RecordBatch> {
    let Some(schema) = waiting.first().map(RecordBatch::schema) else { return waiting };
    let all = arrow::compute::concat_batches(&schema, &waiting).unwrap();
    let starts = (0..all.num_rows()).step_by(100);
    starts.map(|at| all.slice(at, 100.min(all.num_rows() - at))).collect()
}

impl Checkpoints for Kept {
    fn restore(&self, _: usize, stage: usize, operator: &mut dyn Operator) -> Result<()> {
        let state = self.state.lock().unwrap();
        let mut of_stage = state.iter().filter(|(of, _)| *of == stage);
        of_stage.try_for_each(|(_, batch)| operator.restore(batch.part, &batch.rows))
    }

    fn save(&self, cut: u64, _: usize, stage: usize, state: Box<dyn SetAside>) {
        assert_eq!(cut, self.begun.load(Relaxed));
        self.saving.lock().unwrap().push((stage, state));
    }

    fn is_awaited(&self) {
        if !self.writing.lock().unwrap().is_empty() && self.one_in(10) {
            self.awaited.fetch_add(1, Relaxed);
            self.write();
        }
    }

    fn complete(&self, cut: CutTaken) -> Result<()> {
        assert_eq!(cut.number, self.begun.load(Relaxed));
        let started_us = self.resume.lock().unwrap().started_us;
        assert_eq!(cut.started_us, started_us.unwrap_or(cut.started_us));
        self.completed.fetch_add(1, Relaxed);
        cut.outputs.iter().for_each(|mark| self.note_waiting(mark));
        let marks = cut.outputs.into_iter();
        let outputs = marks.map(|mark| OutputMark { waiting: divided_anew(mark.waiting), ..mark });
        let resume = Resume {
            started_us: Some(cut.started_us),
            marks: cut.marks,
            frontiers: cut.frontiers,
            layouts: cut.layouts,
            outputs: outputs.collect(),
        };
        let state = std::mem::take(&mut *self.saving.lock().unwrap());
        let rows = self.pending.lock().unwrap().iter_mut().map(std::mem::take).collect();
        let mut writing = self.writing.lock().unwrap();
        self.overtaken.fetch_add((!writing.is_empty()).into(), Relaxed);
        writing.push(Writing { state, resume, rows });
        drop(writing);
        if self.one_in(3) {
            self.write();
        }
        Ok(())
    }

    fn given_up(&self, cut: u64) {
        assert_eq!(cut, self.begun.load(Relaxed));
        self.given_up.fetch_add(1, Relaxed);
        self.saving.lock().unwrap().clear();
    }
}

/// The sink of an output.
#[derive(Debug)]
pub(crate) struct Rows {
    pub(crate) kept: Arc<Kept>,
    pub(crate) output: usize,
    pub(crate) order: RowOrder,
}

impl Sink for Rows {
    fn open(&self, _: &SchemaRef, _: Writers) -> Result<()> {
        Ok(())
    }
    fn order(&self) -> RowOrder {
        self.order
    }
    fn write(&self, _: usize, rows: &RecordBatch, _: bool) -> Result<()> {
        self.kept.pending.lock().unwrap()[self.output].extend(lines(rows));
        Ok(())
    }
    fn prepare(&self, interval: u64) -> Result<Prepared> {
        Ok(Prepared { interval, sealed: Vec::new() })
    }
    fn finish(&self) -> Result<()> {
        Ok(())
    }
}

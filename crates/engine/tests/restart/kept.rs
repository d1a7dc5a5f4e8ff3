//! What a job leaves behind, for the job that goes on from there.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use millstream_contract::Result;
use millstream_contract::sink::{Prepared, RowOrder, Sink, Writers};
use millstream_engine::{Checkpoints, CutTaken, OutputMark, Resume};
use millstream_operators::operator::Operator;
use millstream_operators::operator::saved::{SavePoint, SavedBatch};

use crate::support::lines;

/// State and places of the last cut, and rows that are visible.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// By stage.
    saving: Mutex<Vec<(usize, SavedBatch)>>,
    state: Mutex<Vec<(usize, SavedBatch)>>,
    pub(crate) resume: Mutex<Resume>,
    /// By output.
    visible: Mutex<Vec<Vec<String>>>,
    /// By output: rows since the last cut.
    pending: Mutex<Vec<Vec<String>>>,
    /// The last cut that was asked for and begun.
    pub(crate) begun: AtomicU64,
    pub(crate) completed: AtomicU64,
    pub(crate) given_up: AtomicU64,
    /// Rows that waited at cuts, of records, of windows and for the end.
    pub(crate) waited: [AtomicU64; 3],
}

impl Kept {
    pub(crate) fn new(outputs: usize) -> Kept {
        let none = || Mutex::new(vec![Vec::new(); outputs]);
        Kept { visible: none(), pending: none(), ..Kept::default() }
    }

    /// The next job begins: what the last one has not made visible is gone.
    pub(crate) fn begin(&self) {
        self.saving.lock().unwrap().clear();
        self.pending.lock().unwrap().iter_mut().for_each(Vec::clear);
    }

    /// Cuts that have been completed or given up.
    pub(crate) fn ended(&self) -> u64 {
        self.completed.load(Relaxed) + self.given_up.load(Relaxed)
    }

    /// All rows, when the job has ended well.
    pub(crate) fn rows(&self) -> Vec<Vec<String>> {
        self.publish();
        self.visible.lock().unwrap().clone()
    }

    fn publish(&self) {
        let (mut visible, mut pending) =
            (self.visible.lock().unwrap(), self.pending.lock().unwrap());
        visible.iter_mut().zip(pending.iter_mut()).for_each(|(all, rows)| all.append(rows));
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

    fn save(&self, cut: u64, _: usize, stage: usize, operator: &mut dyn Operator) -> Result<()> {
        assert_eq!(cut, self.begun.load(Relaxed));
        let mut at = SavePoint::new(100, 10_000);
        while let Some(batch) = operator.save(&mut at)? {
            self.saving.lock().unwrap().push((stage, batch));
        }
        Ok(())
    }

    fn complete(&self, cut: CutTaken) -> Result<()> {
        assert_eq!(cut.number, self.begun.load(Relaxed));
        let started_us = self.resume.lock().unwrap().started_us;
        assert_eq!(cut.started_us, started_us.unwrap_or(cut.started_us));
        self.completed.fetch_add(1, Relaxed);
        cut.outputs.iter().for_each(|mark| self.note_waiting(mark));
        let marks = cut.outputs.into_iter();
        let outputs = marks.map(|mark| OutputMark { waiting: divided_anew(mark.waiting), ..mark });
        *self.state.lock().unwrap() = std::mem::take(&mut self.saving.lock().unwrap());
        *self.resume.lock().unwrap() = Resume {
            started_us: Some(cut.started_us),
            marks: cut.marks,
            frontiers: cut.frontiers,
            layouts: cut.layouts,
            outputs: outputs.collect(),
        };
        self.publish();
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

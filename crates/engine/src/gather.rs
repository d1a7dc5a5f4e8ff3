//! Gather: result rows from all workers into the order that the sink wants.
//!
//! For [`RowOrder::Deterministic`] a window's rows are held until every leader has fired it, sorted
//! by their columns, and written in order of event time; rows of a stateless query are put back into
//! the order of their batches. For [`RowOrder::Any`] rows pass straight through.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow::array::RecordBatch;
use arrow::compute::take_record_batch;
use arrow::compute::{SortColumn, SortOptions, concat_batches, lexsort_to_indices};
use arrow::datatypes::SchemaRef;

use crate::error::Result;
use crate::event_time::BEGINNING;
use crate::sink::{RowOrder, Sink};

/// Rows written to a sink at once.
const WRITE_ROWS: usize = 8192;

/// Collects result rows.
pub(crate) struct Gather {
    sink: Arc<dyn Sink>,
    schema: SchemaRef,
    ordered: bool,
    /// How long after its end a window fires (size and lateness), from its start.
    fires_after_us: i64,
    state: Mutex<State>,
    rows: AtomicU64,
    held_bytes: AtomicU64,
}

struct State {
    /// Windows with rows that some leader may still add to.
    windows: BTreeMap<i64, Vec<RecordBatch>>,
    /// Per worker: every window that fires at or before this has been fired there.
    frontiers: Vec<i64>,
    windows_fired: u64,
    /// Stateless rows that wait for earlier ones: by (batch number, split).
    waiting: BTreeMap<(u64, usize), RecordBatch>,
    next: (u64, usize),
    skip: u64,
    left: Option<u64>,
}

impl Gather {
    pub(crate) fn new(
        sink: Arc<dyn Sink>,
        schema: SchemaRef,
        workers: usize,
        fires_after_us: i64,
        offset: u64,
        limit: Option<u64>,
    ) -> Gather {
        // Which rows a LIMIT lets through must not depend on who is first.
        let ordered = sink.order() == RowOrder::Deterministic || limit.is_some() || offset > 0;
        Gather {
            sink,
            schema,
            ordered,
            fires_after_us,
            state: Mutex::new(State {
                windows: BTreeMap::new(),
                frontiers: vec![BEGINNING; workers],
                windows_fired: 0,
                waiting: BTreeMap::new(),
                next: (0, 0),
                skip: offset,
                left: limit,
            }),
            rows: AtomicU64::new(0),
            held_bytes: AtomicU64::new(0),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Result rows written so far.
    pub(crate) fn rows(&self) -> u64 {
        self.rows.load(Ordering::Relaxed)
    }

    /// Windows fired so far that had at least one group.
    pub(crate) fn windows(&self) -> u64 {
        let state = self.lock();
        state.windows_fired + state.windows.len() as u64
    }

    /// Bytes of rows that wait for their order.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.held_bytes.load(Ordering::Relaxed)
    }

    fn write(&self, worker: usize, rows: &RecordBatch, flush: bool) -> Result<()> {
        self.rows.fetch_add(rows.num_rows() as u64, Ordering::Relaxed);
        self.sink.write(worker, rows, flush)
    }

    /// Up to which watermark every worker has fired what is complete.
    pub(crate) fn fired(&self) -> i64 {
        self.lock().frontiers.iter().copied().min().unwrap_or(BEGINNING)
    }

    /// Rows of the window that starts at `start`; `last` on the leader's last batch of it.
    pub(crate) fn window_rows(
        &self,
        worker: usize,
        start: i64,
        rows: RecordBatch,
        last: bool,
    ) -> Result<()> {
        let mut state = self.lock();
        let window = state.windows.entry(start).or_default();
        if self.ordered {
            self.held_bytes.fetch_add(rows.get_array_memory_size() as u64, Ordering::Relaxed);
            window.push(rows);
            return Ok(());
        }
        drop(state);
        if rows.num_rows() > 0 || last { self.write(worker, &rows, last) } else { Ok(()) }
    }

    /// `worker` has fired everything that a watermark completes. Windows that every worker has fired
    /// are written out; returns their starts.
    pub(crate) fn advance(&self, worker: usize, watermark: i64) -> Result<Vec<i64>> {
        let mut state = self.lock();
        state.frontiers[worker] = state.frontiers[worker].max(watermark);
        let fired = state.frontiers.iter().copied().min().unwrap_or(BEGINNING);
        let mut starts = Vec::new();
        while let Some(entry) = state.windows.first_entry() {
            let start = *entry.key();
            if start.saturating_add(self.fires_after_us) > fired {
                break;
            }
            let batches = entry.remove();
            state.windows_fired += 1;
            starts.push(start);
            if self.ordered {
                // Under the lock: windows must come out in order, one at a time.
                self.write_sorted(worker, batches)?;
            }
        }
        Ok(starts)
    }

    fn write_sorted(&self, worker: usize, batches: Vec<RecordBatch>) -> Result<()> {
        let bytes: usize = batches.iter().map(RecordBatch::get_array_memory_size).sum();
        let sorted = sort_rows(&self.schema, batches)?;
        self.held_bytes.fetch_sub(bytes as u64, Ordering::Relaxed);
        let rows = sorted.num_rows();
        for start in (0..rows).step_by(WRITE_ROWS) {
            let len = WRITE_ROWS.min(rows - start);
            self.write(worker, &sorted.slice(start, len), start + len == rows)?;
        }
        Ok(())
    }

    /// Rows of a stateless query, from batch `sequence` of `split`; `ended` tells how many batches
    /// the splits that have ended had. True when LIMIT is reached and the job is done.
    pub(crate) fn stateless_rows(
        &self,
        worker: usize,
        split: usize,
        sequence: u64,
        rows: RecordBatch,
        ended: &[Option<u64>],
    ) -> Result<bool> {
        if !self.ordered {
            if rows.num_rows() > 0 {
                self.write(worker, &rows, true)?;
            }
            return Ok(false);
        }
        let mut state = self.lock();
        state.waiting.insert((sequence, split), rows);
        self.write_waiting(&mut state, worker, ended)
    }

    /// All batches are in: writes what still waits.
    pub(crate) fn finish(&self, ended: &[Option<u64>]) -> Result<()> {
        let mut state = self.lock();
        self.write_waiting(&mut state, 0, ended)?;
        debug_assert!(state.waiting.is_empty(), "batches are missing");
        self.sink.finish()
    }

    fn write_waiting(
        &self,
        state: &mut State,
        worker: usize,
        ended: &[Option<u64>],
    ) -> Result<bool> {
        while state.left != Some(0) {
            let (sequence, split) = state.next;
            if split >= ended.len() {
                state.next = (sequence + 1, 0);
                if ended.iter().all(|e| e.is_some_and(|n| sequence + 1 >= n)) {
                    return Ok(false);
                }
                continue;
            }
            if ended[split].is_some_and(|n| sequence >= n) {
                state.next.1 += 1;
                continue;
            }
            let Some(rows) = state.waiting.remove(&(sequence, split)) else { return Ok(false) };
            state.next.1 += 1;
            let skipped = state.skip.min(rows.num_rows() as u64);
            state.skip -= skipped;
            let mut len = rows.num_rows() as u64 - skipped;
            if let Some(left) = &mut state.left {
                len = len.min(*left);
                *left -= len;
            }
            if len > 0 {
                self.write(worker, &rows.slice(skipped as usize, len as usize), true)?;
            }
        }
        state.waiting.clear();
        Ok(true)
    }
}

/// Sorts rows by their columns from left to right, NULLs last. What cannot be compared (there is no
/// such type in a result today) is left in place.
fn sort_rows(schema: &SchemaRef, batches: Vec<RecordBatch>) -> Result<RecordBatch> {
    let rows = concat_batches(schema, &batches)?;
    if rows.num_columns() == 0 || rows.num_rows() < 2 {
        return Ok(rows);
    }
    let options = Some(SortOptions { descending: false, nulls_first: false });
    let columns = rows.columns().iter();
    let columns: Vec<SortColumn> =
        columns.map(|c| SortColumn { values: c.clone(), options }).collect();
    Ok(take_record_batch(&rows, &lexsort_to_indices(&columns, None)?)?)
}

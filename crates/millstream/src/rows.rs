//! The rows of a `SELECT` on their way from a job to the program that asked for them.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use millstream_contract::Error;
use millstream_contract::sink::{RowOrder, Sink, Writers};

use crate::failure::Failure;

/// Batches that wait for their reader at the most; then the job waits.
const WAITING_MAX: usize = 8;

/// The result of a `SELECT`, batch by batch, while the job runs. The order of rows does not depend
/// on the number of workers.
///
/// A slow reader slows the job. Dropping the stream ends the job, quietly, as a `LIMIT` would. The
/// stream also reports a failed job: its last item is the error, so a result without an error at
/// its end is whole.
pub struct Rows {
    queue: Arc<Queue>,
    schema: SchemaRef,
}

impl Rows {
    pub(crate) fn new(queue: Arc<Queue>, schema: SchemaRef) -> Rows {
        Rows { queue, schema }
    }

    /// The columns.
    pub fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}

impl Iterator for Rows {
    type Item = Result<RecordBatch, Failure>;

    /// Waits for the next batch, or for the job's end.
    fn next(&mut self) -> Option<Result<RecordBatch, Failure>> {
        let mut state = self.queue.lock();
        loop {
            if let Some(batch) = state.batches.pop_front() {
                self.queue.room.notify_all();
                return Some(Ok(batch));
            }
            if let Some(end) = &mut state.end {
                return end.take().map(Err);
            }
            state = self.queue.filled.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Rows {
    fn drop(&mut self) {
        self.queue.abandon();
    }
}

impl fmt::Debug for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rows").field("schema", &self.schema).finish_non_exhaustive()
    }
}

/// State shared by job and reader; the job's sink.
#[derive(Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    /// There is room, or the reader has gone.
    room: Condvar,
    /// There is a batch, or there will be none.
    filled: Condvar,
}

#[derive(Default)]
struct State {
    batches: VecDeque<RecordBatch>,
    /// The reader is gone.
    abandoned: bool,
    /// The job was told to stop.
    stopped: bool,
    /// The job has ended: why early, until that has been read.
    end: Option<Option<Failure>>,
    /// Is called when the reader goes.
    on_abandon: Option<Box<dyn FnOnce() + Send>>,
}

impl Queue {
    /// A panic elsewhere cannot leave the state half changed, so a poisoned lock is as good.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `stop` when the reader goes, at once if it has gone.
    pub(crate) fn on_abandon(&self, stop: impl FnOnce() + Send + 'static) {
        let mut state = self.lock();
        if !state.abandoned {
            state.on_abandon = Some(Box::new(stop));
            return;
        }
        drop(state);
        stop();
    }

    /// Whether the reader has gone.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.lock().abandoned
    }

    fn abandon(&self) {
        let mut state = self.lock();
        state.abandoned = true;
        state.batches.clear();
        let stop = state.on_abandon.take();
        drop(state);
        self.room.notify_all();
        if let Some(stop) = stop {
            stop();
        }
    }

    /// Lets a job that waits for its reader end.
    pub(crate) fn stop(&self) {
        self.lock().stopped = true;
        self.room.notify_all();
    }

    /// The job has ended.
    pub(crate) fn end(&self, failure: Option<Failure>) {
        let mut state = self.lock();
        state.on_abandon = None;
        state.end = Some(failure);
        self.filled.notify_all();
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Queue")
    }
}

/// The job's end of a queue.
#[derive(Debug)]
pub(crate) struct RowsSink(pub(crate) Arc<Queue>);

impl Sink for RowsSink {
    fn open(&self, _: &SchemaRef, _: Writers) -> millstream_contract::Result<()> {
        Ok(())
    }

    fn order(&self) -> RowOrder {
        RowOrder::Deterministic
    }

    fn write(&self, _: usize, rows: &RecordBatch, _: bool) -> millstream_contract::Result<()> {
        if rows.num_rows() == 0 {
            return Ok(());
        }
        let queue = &self.0;
        let mut state = queue.lock();
        while state.batches.len() >= WAITING_MAX && !state.abandoned && !state.stopped {
            state = queue.room.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.abandoned {
            return Err(Error::OutputClosed);
        }
        if state.stopped {
            return Err(Error::Interrupted);
        }
        state.batches.push_back(rows.clone());
        queue.filled.notify_all();
        Ok(())
    }

    fn finish(&self) -> millstream_contract::Result<()> {
        Ok(())
    }
}

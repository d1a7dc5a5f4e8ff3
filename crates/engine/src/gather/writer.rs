//! The writer of an output whose rows come in order: one worker at a time takes what has its turn
//! from the queue and writes it, without the lock, so that however slow the sink is, the others go
//! on.
//!
//! A worker that adds to the queue does not write then and there. The first worker with a free step
//! takes the [`Pen`] and writes its share; if items remain, the next step of any worker continues.
//! No worker sleeps while items wait for a writer ([`Gather::needs_writer`]). Waiting rows count
//! against the budget, and if there are many, no worker takes in or fires rows for this output
//! ([`Gather::is_congested`]).

use std::mem;
use std::sync::atomic::Ordering;

use arrow::array::RecordBatch;

use super::limit::Limit;
use super::output::Role;
use super::packs::OutputWindow;
use super::queue::{Pen, QueuedItem};
use super::{Gather, GatherState};
use crate::error::{Error, Result};
use crate::network::{Head, Kind};
use crate::order::{Merge, Run};
use crate::rows::changes_refused;
use millstream_operators::columns::first_columns;
use millstream_operators::stamped::BatchPlace;

/// Of so many items in the queue, or so many bytes of rows, a worker's share in one step.
const SHARE_ITEMS: usize = 64;
const SHARE_BYTES: u64 = 1 << 20;

/// Result of writing a share.
#[derive(Debug, Default)]
pub(crate) struct Written {
    /// Windows of which every leader's rows have been written.
    pub(crate) windows: Vec<OutputWindow>,
    /// These were all rows that are wanted.
    pub(crate) enough: bool,
    bytes: u64,
    items: usize,
}

impl Written {
    /// Whether it is a fair share.
    fn is_share(&self) -> bool {
        self.enough || self.items >= SHARE_ITEMS || self.bytes >= SHARE_BYTES
    }
}

impl Gather {
    pub(super) fn push(&self, state: &mut GatherState, item: QueuedItem) {
        state.queue.push(item, &self.waiting);
    }

    /// Whether something waits to be written, and nobody writes.
    pub(crate) fn needs_writer(&self) -> bool {
        self.waiting.needs_writer()
    }

    /// Writes a fair share of what has its turn, as `worker`, unless another worker is at it.
    pub(crate) fn write_share(&self, worker: usize) -> Result<Written> {
        let mut written = Written::default();
        let Some(mut limit) = self.lock().queue.take_pen(&self.waiting) else { return Ok(written) };
        while let Some(item) = self.next_item(limit, &written) {
            let bytes = item.bytes();
            let came = self.write_item(worker, item, &mut limit, &mut written);
            self.waiting.note_written(bytes);
            if let Err(error) = came {
                self.lock().queue.put_pen(Pen::Lost, &self.waiting);
                return Err(error);
            }
            (written.bytes, written.items) = (written.bytes + bytes, written.items + 1);
            written.enough = limit.is_over();
        }
        Ok(written)
    }

    /// The next item. Puts the pen back when no item is left, or the share is done.
    fn next_item(&self, limit: Limit, written: &Written) -> Option<QueuedItem> {
        let mut state = self.lock();
        let queue = &mut state.queue;
        if written.enough || self.has_ended() {
            queue.clear(&self.waiting);
        }
        let item = if written.is_share() { None } else { queue.next() };
        if item.is_none() {
            queue.put_pen(Pen::Free(limit), &self.waiting);
        }
        item
    }

    fn write_item(
        &self,
        worker: usize,
        item: QueuedItem,
        limit: &mut Limit,
        written: &mut Written,
    ) -> Result<()> {
        match item {
            QueuedItem::OutputWindow(window, runs) => {
                if self.ordered && !self.sorts() {
                    self.write_merged(limit, worker, runs)?;
                }
                written.windows.push(window);
            }
            QueuedItem::Sorted(runs) => self.write_merged(limit, worker, runs)?,
            QueuedItem::Rows(run) => self.emit(limit, worker, &run.rows, true)?,
            QueuedItem::Failed(_) if limit.is_over() => {}
            QueuedItem::Failed(error) => return Err(error),
            QueuedItem::FiredRuns { place, watermark } => {
                self.lock().written[place] = watermark;
                if let Role::Coordinator(net) = &self.output.role {
                    let output = self.output.output as u16;
                    let count = self.output.stages[place].0 as u64;
                    let head = Head::new(Kind::Fired);
                    net.broadcast(Head { output, count, watermark, ..head })?;
                }
            }
            QueuedItem::Next((sequence, split)) => {
                if let Role::Coordinator(net) = &self.output.role {
                    let place = BatchPlace { sequence, split, part: 0 };
                    net.broadcast(self.output.head(place, Kind::Written))?;
                }
            }
        }
        Ok(())
    }

    /// Writes runs in order, as far as they are wanted.
    fn write_merged(&self, limit: &mut Limit, worker: usize, runs: Vec<Run>) -> Result<()> {
        if let [run] = &runs[..]
            && run.is_one_block()
        {
            return self.emit(limit, worker, &run.rows, true);
        }
        let mut merge = Merge::new(self.order()?, runs, self.budget.ahead_bytes())?;
        while !limit.is_over()
            && !self.has_ended()
            && let Some((rows, last)) = merge.next()?
        {
            self.emit(limit, worker, &rows, last)?;
        }
        Ok(())
    }

    /// Writes what of rows in their order is wanted.
    fn emit(
        &self,
        limit: &mut Limit,
        worker: usize,
        rows: &RecordBatch,
        flush: bool,
    ) -> Result<()> {
        if limit.is_all() {
            return self.write(worker, rows, flush);
        }
        let (skipped, len) = limit.take(rows.num_rows());
        if len == 0 {
            return Ok(());
        }
        self.write(worker, &rows.slice(skipped, len), flush || limit.is_over())
    }

    /// Gives rows to the sink.
    pub(super) fn write(&self, worker: usize, rows: &RecordBatch, flush: bool) -> Result<()> {
        self.rows.fetch_add(rows.num_rows() as u64, Ordering::Relaxed);
        let rows = first_columns(rows, self.output.visible())?;
        let worker = if self.output.one_writer { 0 } else { worker };
        self.sink.write(worker, &rows, flush)
    }

    /// Gives changes of earlier rows to the sink as they come; an output whose rows have an order
    /// takes none.
    pub(super) fn write_changes(
        &self,
        worker: usize,
        rows: &RecordBatch,
        flush: bool,
    ) -> Result<()> {
        if self.ordered || matches!(self.output.role, Role::Helper { .. }) {
            return Err(changes_refused(&format!("result {}", self.output.output + 1)));
        }
        self.rows.fetch_add(rows.num_rows() as u64, Ordering::Relaxed);
        let rows = first_columns(rows, self.output.visible())?;
        let worker = if self.output.one_writer { 0 } else { worker };
        self.sink.write_changes(worker, &rows, flush)
    }

    /// All rows are in, and all workers have ended: writes what still waits.
    pub(crate) fn finish(&self, ended: &[Option<u64>]) -> Result<()> {
        if matches!(self.output.role, Role::Helper { .. }) {
            return Ok(());
        }
        if !self.has_ended() {
            match self.write_rest(ended) {
                // Nobody takes any more.
                Err(Error::OutputClosed) if !self.output.role.is_alone_elsewhere() => {}
                written => written?,
            }
        }
        match self.sink.finish() {
            Err(Error::OutputClosed) if !self.output.role.is_alone_elsewhere() => Ok(()),
            finished => finished,
        }
    }

    fn write_rest(&self, ended: &[Option<u64>]) -> Result<()> {
        self.queue_batches(ended);
        {
            let mut state = self.lock();
            debug_assert!(state.batches.is_empty(), "batches are missing");
            let sorted = mem::take(&mut state.sorted);
            if !sorted.is_empty() {
                self.push(&mut state, QueuedItem::Sorted(sorted));
            }
            self.queue_windows(&mut state);
        }
        while self.needs_writer() {
            if self.write_share(0)?.enough {
                break;
            }
        }
        Ok(())
    }
}

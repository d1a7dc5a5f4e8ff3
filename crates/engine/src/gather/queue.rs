//! The queue of an output: rows whose turn it is, and the pen, held by a single worker at a time.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::limit::Limit;
use super::packs::OutputWindow;
use super::turns::ChunkAt;
use crate::error::Error;
use crate::order::Run;

/// An entry of the queue: rows to be written, or a notice for when all before it has been written.
pub(super) enum QueuedItem {
    /// The rows of a window, in sorted runs; empty for a window written already.
    OutputWindow(OutputWindow, Vec<Run>),
    /// A result with an order of its own, in sorted runs.
    Sorted(Vec<Run>),
    /// Rows as they are.
    Rows(Run),
    /// Why there are no more rows of a batch, if more are wanted.
    Failed(Error),
    /// All leaders have fired a stage, by its place, up to a watermark.
    FiredRuns { place: usize, watermark: i64 },
    /// This chunk's rows come next of its turn.
    Next(ChunkAt),
}

impl QueuedItem {
    /// Bytes of rows.
    pub(super) fn bytes(&self) -> u64 {
        let runs = match self {
            QueuedItem::OutputWindow(_, runs) | QueuedItem::Sorted(runs) => &runs[..],
            QueuedItem::Rows(run) => std::slice::from_ref(run),
            QueuedItem::Failed(_) | QueuedItem::FiredRuns { .. } | QueuedItem::Next(_) => &[],
        };
        runs.iter().map(|run| run.held.bytes() as u64).sum()
    }
}

/// The right to write, which one worker has at a time. (A panic of that worker ends the job.)
pub(super) enum Pen {
    /// No worker writes; the rows still to come.
    Free(Limit),
    /// A worker writes.
    Taken,
    /// Writing has failed: no worker writes any more.
    Lost,
}

/// Items whose turn it is, in order, and the pen.
pub(super) struct Queue {
    items: VecDeque<QueuedItem>,
    pen: Pen,
}

/// Contents of a queue, for a look without its lock.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// Bytes of queued rows, and of rows being written.
    bytes: AtomicU64,
    /// There is an item, and no worker writes.
    needs_writer: AtomicBool,
}

impl Waiting {
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Rows of so many bytes have been written.
    pub(super) fn note_written(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Whether there are items, and no worker writes.
    pub(super) fn needs_writer(&self) -> bool {
        self.needs_writer.load(Ordering::Acquire)
    }
}

impl Queue {
    pub(super) fn new(part: Limit) -> Queue {
        Queue { items: VecDeque::new(), pen: Pen::Free(part) }
    }

    fn note(&self, waiting: &Waiting) {
        let needs = !self.items.is_empty() && matches!(self.pen, Pen::Free(_));
        waiting.needs_writer.store(needs, Ordering::Release);
    }

    /// Adds an item behind all others.
    pub(super) fn push(&mut self, item: QueuedItem, waiting: &Waiting) {
        if matches!(self.pen, Pen::Lost) {
            return;
        }
        waiting.bytes.fetch_add(item.bytes(), Ordering::Relaxed);
        self.items.push_back(item);
        self.note(waiting);
    }

    /// Drops all items.
    pub(super) fn clear(&mut self, waiting: &Waiting) {
        let bytes = self.items.drain(..).map(|item| item.bytes()).sum();
        waiting.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.note(waiting);
    }

    /// Whether no item waits, and nobody writes.
    pub(super) fn is_still(&self) -> bool {
        self.items.is_empty() && !matches!(self.pen, Pen::Taken)
    }

    /// The rows still to come; `None` if they are not known now.
    pub(super) fn limit(&self) -> Option<Limit> {
        match self.pen {
            Pen::Free(limit) => Some(limit),
            Pen::Taken | Pen::Lost => None,
        }
    }

    /// Gives the pen to a worker, unless another has it.
    pub(super) fn take_pen(&mut self, waiting: &Waiting) -> Option<Limit> {
        let Pen::Free(part) = self.pen else { return None };
        self.pen = Pen::Taken;
        self.note(waiting);
        Some(part)
    }

    /// The next item.
    pub(super) fn next(&mut self) -> Option<QueuedItem> {
        self.items.pop_front()
    }

    /// The writer writes no more for now, or never again.
    pub(super) fn put_pen(&mut self, pen: Pen, waiting: &Waiting) {
        self.pen = pen;
        if matches!(self.pen, Pen::Lost) {
            self.clear(waiting);
        }
        self.note(waiting);
    }
}

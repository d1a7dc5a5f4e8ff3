//! The writer of an output whose rows come in order: one worker at a time takes what has its turn
//! from the queue and writes it, without the lock, so that however slow the sink is, the others go
//! on.
//!
//! Whoever adds to the queue does not write then and there. A step of whichever worker comes first
//! takes the [`Pen`] and writes its share; if something is left, so does the next step, of this
//! worker or of another. No worker sleeps while something waits for a writer
//! ([`Gather::needs_writer`]). What waits counts against the budget, and where it is much, no
//! worker takes in or fires what would come here ([`Gather::is_congested`]).

use std::collections::VecDeque;
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arrow::array::RecordBatch;

use super::ahead::Role;
use super::part::Part;
use super::turns::ChunkAt;
use super::windows::Window;
use super::{Gather, State};
use crate::error::{Error, Result};
use crate::network::{self, Head};
use crate::order::{Merge, Run};
use millstream_operators::columns::first_columns;
use millstream_operators::stamped::BatchPlace;

/// Of so many things in the queue, or so many bytes of rows, a worker's share in one step.
const SHARE_THINGS: usize = 64;
const SHARE_BYTES: u64 = 1 << 20;

/// What has its turn: to be written, or told when all before it has been written.
pub(super) enum Thing {
    /// The rows of a window, in sorted runs; none where they have been written already.
    Window(Window, Vec<Run>),
    /// A result with an order of its own, in sorted runs.
    Sorted(Vec<Run>),
    /// Rows as they are.
    Rows(Run),
    /// Why there are no more rows of a batch, if more are wanted.
    Failed(Error),
    /// All leaders have fired a stage, by its place, up to a watermark.
    Fired { place: usize, watermark: i64 },
    /// This chunk's rows come next of its turn.
    Next(ChunkAt),
}

impl Thing {
    /// Bytes of rows.
    fn bytes(&self) -> u64 {
        let runs = match self {
            Thing::Window(_, runs) | Thing::Sorted(runs) => &runs[..],
            Thing::Rows(run) => std::slice::from_ref(run),
            Thing::Failed(_) | Thing::Fired { .. } | Thing::Next(_) => &[],
        };
        runs.iter().map(|run| run.held.bytes() as u64).sum()
    }
}

/// The right to write: who has it is the only one. (Who panics with it ends the job.)
enum Pen {
    /// Nobody writes; what of the rows is still to come.
    Free(Part),
    Taken,
    /// Writing has failed, and nobody writes any more.
    Lost,
}

/// What has its turn, in order.
pub(super) struct Queue {
    things: VecDeque<Thing>,
    pen: Pen,
}

/// What there is in a queue, for those who do not want to lock.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// Of rows, with those that are being written.
    bytes: AtomicU64,
    /// There is something, and nobody writes.
    needs_writer: AtomicBool,
}

impl Waiting {
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

impl Queue {
    pub(super) fn new(part: Part) -> Queue {
        Queue { things: VecDeque::new(), pen: Pen::Free(part) }
    }

    fn note(&self, waiting: &Waiting) {
        let needs = !self.things.is_empty() && matches!(self.pen, Pen::Free(_));
        waiting.needs_writer.store(needs, Ordering::Release);
    }

    /// Adds what comes behind all that there is.
    pub(super) fn push(&mut self, thing: Thing, waiting: &Waiting) {
        if matches!(self.pen, Pen::Lost) {
            return;
        }
        waiting.bytes.fetch_add(thing.bytes(), Ordering::Relaxed);
        self.things.push_back(thing);
        self.note(waiting);
    }

    /// Drops what there is.
    pub(super) fn clear(&mut self, waiting: &Waiting) {
        let bytes = self.things.drain(..).map(|thing| thing.bytes()).sum();
        waiting.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.note(waiting);
    }

    /// Gives the pen to who wants to write, if nobody has it.
    fn take_pen(&mut self, waiting: &Waiting) -> Option<Part> {
        let Pen::Free(part) = self.pen else { return None };
        self.pen = Pen::Taken;
        self.note(waiting);
        Some(part)
    }

    /// The writer writes no more for now, or never again.
    fn put_pen(&mut self, pen: Pen, waiting: &Waiting) {
        self.pen = pen;
        if matches!(self.pen, Pen::Lost) {
            self.clear(waiting);
        }
        self.note(waiting);
    }
}

/// What a worker has written.
#[derive(Debug, Default)]
pub(crate) struct Written {
    /// Windows of which every leader's rows have been written.
    pub(crate) windows: Vec<Window>,
    /// These were all rows that are wanted.
    pub(crate) enough: bool,
    bytes: u64,
    things: usize,
}

impl Written {
    /// Whether it is a fair share.
    fn is_share(&self) -> bool {
        self.enough || self.things >= SHARE_THINGS || self.bytes >= SHARE_BYTES
    }
}

impl Gather {
    pub(super) fn push(&self, state: &mut State, thing: Thing) {
        state.queue.push(thing, &self.waiting);
    }

    /// Whether something waits to be written, and nobody writes.
    pub(crate) fn needs_writer(&self) -> bool {
        self.waiting.needs_writer.load(Ordering::Acquire)
    }

    /// Writes a fair share of what has its turn, as `worker`, unless another worker is at it.
    pub(crate) fn write_share(&self, worker: usize) -> Result<Written> {
        let mut written = Written::default();
        let Some(mut part) = self.lock().queue.take_pen(&self.waiting) else { return Ok(written) };
        while let Some(thing) = self.next_thing(part, &written) {
            let bytes = thing.bytes();
            let came = self.write_thing(worker, thing, &mut part, &mut written);
            self.waiting.bytes.fetch_sub(bytes, Ordering::Relaxed);
            if let Err(error) = came {
                self.lock().queue.put_pen(Pen::Lost, &self.waiting);
                return Err(error);
            }
            (written.bytes, written.things) = (written.bytes + bytes, written.things + 1);
            written.enough = part.is_over();
        }
        Ok(written)
    }

    /// What comes next. With nothing left, or a share done, the pen is put back.
    fn next_thing(&self, part: Part, written: &Written) -> Option<Thing> {
        let mut state = self.lock();
        let queue = &mut state.queue;
        if written.enough || self.has_ended() {
            queue.clear(&self.waiting);
        }
        let thing = if written.is_share() { None } else { queue.things.pop_front() };
        if thing.is_none() {
            queue.put_pen(Pen::Free(part), &self.waiting);
        }
        thing
    }

    fn write_thing(
        &self,
        worker: usize,
        thing: Thing,
        part: &mut Part,
        written: &mut Written,
    ) -> Result<()> {
        match thing {
            Thing::Window(window, runs) => {
                if self.ordered && !self.sorts() {
                    self.write_merged(part, worker, runs)?;
                }
                written.windows.push(window);
            }
            Thing::Sorted(runs) => self.write_merged(part, worker, runs)?,
            Thing::Rows(run) => self.emit(part, worker, &run.rows, true)?,
            Thing::Failed(_) if part.is_over() => {}
            Thing::Failed(error) => return Err(error),
            Thing::Fired { place, watermark } => {
                self.lock().written[place] = watermark;
                if let Role::Coordinator(net) = &self.outlet.role {
                    let output = self.outlet.output as u16;
                    let count = self.outlet.stages[place].0 as u64;
                    let head = Head::new(network::Kind::Fired);
                    net.broadcast(Head { output, count, watermark, ..head })?;
                }
            }
            Thing::Next((sequence, split)) => {
                if let Role::Coordinator(net) = &self.outlet.role {
                    let place = BatchPlace { sequence, split, part: 0 };
                    net.broadcast(self.head(place, network::Kind::Written))?;
                }
            }
        }
        Ok(())
    }

    /// Writes runs in order, as far as they are wanted.
    fn write_merged(&self, part: &mut Part, worker: usize, runs: Vec<Run>) -> Result<()> {
        if let [run] = &runs[..]
            && run.is_one_block()
        {
            return self.emit(part, worker, &run.rows, true);
        }
        let mut merge = Merge::new(self.order()?, runs, self.budget.ahead_bytes())?;
        while !part.is_over()
            && !self.has_ended()
            && let Some((rows, last)) = merge.next()?
        {
            self.emit(part, worker, &rows, last)?;
        }
        Ok(())
    }

    /// Writes what of rows in their order is wanted.
    fn emit(&self, part: &mut Part, worker: usize, rows: &RecordBatch, flush: bool) -> Result<()> {
        if part.is_all() {
            return self.write(worker, rows, flush);
        }
        let (skipped, len) = part.take(rows.num_rows());
        if len == 0 {
            return Ok(());
        }
        self.write(worker, &rows.slice(skipped, len), flush || part.is_over())
    }

    /// Gives rows to the sink.
    pub(super) fn write(&self, worker: usize, rows: &RecordBatch, flush: bool) -> Result<()> {
        self.rows.fetch_add(rows.num_rows() as u64, Ordering::Relaxed);
        let rows = first_columns(rows, self.outlet.visible())?;
        let worker = if self.outlet.one_writer { 0 } else { worker };
        self.sink.write(worker, &rows, flush)
    }

    /// All rows are in, and all workers have ended: writes what still waits.
    pub(crate) fn finish(&self, ended: &[Option<u64>]) -> Result<()> {
        if matches!(self.outlet.role, Role::Helper { .. }) {
            return Ok(());
        }
        if !self.has_ended() {
            match self.write_rest(ended) {
                // Nobody takes any more.
                Err(Error::OutputClosed) if !self.outlet.role.is_alone_elsewhere() => {}
                written => written?,
            }
        }
        match self.sink.finish() {
            Err(Error::OutputClosed) if !self.outlet.role.is_alone_elsewhere() => Ok(()),
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
                self.push(&mut state, Thing::Sorted(sorted));
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

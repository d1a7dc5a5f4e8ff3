//! Gather: the rows of an output from all workers into the order that its sink wants.
//!
//! For [`RowOrder::Deterministic`] a window's rows are held, in sorted runs, until every leader has
//! fired it, and written in order of event time, then of the output's inputs ([`windows`]); rows of
//! records are put back into the order of their batches ([`records`], [`batches`]). Windows that
//! fire only at the end of the input come last. A result with an order of its own ([`sort`]), but
//! not within windows, is held, whatever it comes from, and written at the end of the input. For
//! [`RowOrder::Any`] rows pass straight through. Where windows fire together, their rows carry
//! their event times until they are written ([`packs`]).
//!
//! For `Deterministic`, rows whose turn it is wait in a [`queue`]; one worker at a time takes from
//! it and writes ([`writer`]), and the others go on meanwhile. LIMIT and OFFSET count there
//! ([`limit`]). Rows that are held or queued count against the job's budget. With several processes
//! the coordinator gathers, and the others send ([`remote`], [`ahead`]).

mod ahead;
mod batches;
mod limit;
mod output;
mod packs;
mod queue;
mod records;
mod remote;
mod saved;
mod sort;
#[cfg(test)]
mod tests;
mod turns;
mod windows;
mod writer;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::order::{Order, Run};
use crate::sink::{RowOrder, Sink};
use ahead::{Ahead, Requested};
use batches::Batches;
use millstream_operators::budget::Budget;
use millstream_operators::event_time::{BEGINNING, END};
use packs::FiredRuns;
use queue::{Queue, Waiting};

pub(crate) use output::{GatheredOutput, Role};
pub(crate) use packs::OutputWindow;
pub(crate) use records::BatchRows;
pub(crate) use turns::{Begun, ChunkAt, Turns};

/// Collects the rows of an output.
pub(crate) struct Gather {
    output: GatheredOutput,
    sink: Arc<dyn Sink>,
    ordered: bool,
    /// Of rows within a window, when the first is there.
    order: OnceLock<Order>,
    /// Held for bookkeeping only: never while rows are sorted, merged or written.
    state: Mutex<GatherState>,
    /// Contents of the queue, readable without the lock.
    waiting: Waiting,
    rows: AtomicU64,
    budget: Arc<Budget>,
    /// All rows that are wanted have been written, or nobody takes any more.
    ended: AtomicBool,
}

struct GatherState {
    /// Windows with rows that some leader may still add to.
    windows: BTreeMap<OutputWindow, FiredRuns>,
    /// Rows that are written in an order of their own, at the end.
    sorted: Vec<Run>,
    /// Per stage, per leader: every window that fires at or before this has been fired there.
    frontiers: Vec<Vec<i64>>,
    windows_fired: u64,
    batches: Batches,
    /// Items in their turn.
    queue: Queue,
    /// Per stage: all leaders have fired so far, as the queue has been told.
    queued: Vec<i64>,
    /// The same, when all that comes before has been written.
    written: Vec<i64>,
    /// Rows sent to the coordinator that have, as far as is known, not been written yet.
    ahead: Ahead,
    /// Chunks that processes have no room without.
    requested: Requested,
    /// All workers stand at a cut: nothing is queued.
    stands: bool,
}

impl Gather {
    pub(crate) fn new(output: GatheredOutput, sink: Arc<dyn Sink>, budget: Arc<Budget>) -> Gather {
        let limit = output.limits();
        // Which rows a LIMIT lets through must not depend on who is first.
        let ordered = sink.order() == RowOrder::Deterministic || !limit.is_all();
        let stages = output.stages.len();
        Gather {
            ordered: ordered || output.sort.is_some(),
            order: OnceLock::new(),
            state: Mutex::new(GatherState {
                windows: BTreeMap::new(),
                sorted: Vec::new(),
                frontiers: vec![vec![BEGINNING; output.leaders]; stages],
                windows_fired: 0,
                batches: Batches::new(&output.turns),
                queue: Queue::new(limit),
                queued: vec![BEGINNING; stages],
                written: vec![BEGINNING; stages],
                ahead: Ahead::new(stages, &output.turns),
                requested: Requested::new(&output.turns),
                stands: false,
            }),
            waiting: Waiting::default(),
            rows: AtomicU64::new(0),
            budget,
            ended: AtomicBool::new(limit.is_over()),
            sink,
            output,
        }
    }

    /// Whether rows beyond some number are not wanted, so that they need not be looked at.
    pub(crate) fn has_limit(&self) -> bool {
        self.output.sort.is_none() && self.output.limit.is_some()
    }

    /// Whether the result has an order of its own, for which all of its rows must be there.
    pub(crate) fn sorts(&self) -> bool {
        self.output.sorts()
    }

    /// The number of its output.
    pub(crate) fn output(&self) -> usize {
        self.output.output
    }

    /// Where the rows go.
    pub(crate) fn sink(&self) -> &Arc<dyn Sink> {
        &self.sink
    }

    /// Whether the output alone causes no reading.
    pub(crate) fn is_side(&self) -> bool {
        self.output.side
    }

    /// Whether no more rows are taken.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Takes no more rows; true the first time.
    pub(crate) fn end(&self) -> bool {
        let first = !self.ended.swap(true, Ordering::AcqRel);
        let mut state = self.lock();
        let windows = std::mem::take(&mut state.windows);
        state.windows_fired += windows
            .into_iter()
            .map(|(window, fired)| self.output.count(&window, fired.windows))
            .sum::<u64>();
        state.sorted.clear();
        state.batches.clear();
        let GatherState { ahead, queue, .. } = &mut *state;
        queue.clear(&self.waiting);
        ahead.remove(&self.output.role, |_| true);
        first
    }

    /// Whether rows of windows wait in this process until their turn comes.
    pub(crate) fn holds(&self) -> bool {
        self.ordered && !matches!(self.output.role, Role::Helper { .. })
    }

    /// Whether no further rows may wait for earlier ones.
    pub(crate) fn is_full(&self) -> bool {
        match &self.output.role {
            Role::Helper { net, ahead_bytes_max } => {
                net.ahead_bytes().load(Ordering::Relaxed) >= *ahead_bytes_max
            }
            _ => self.budget.output_full(),
        }
    }

    /// Whether rows have to wait until others have been taken: by the coordinator, or by the sink.
    pub(crate) fn is_congested(&self) -> bool {
        match &self.output.role {
            Role::Helper { net, .. } => net.is_congested(),
            _ => self.waiting.bytes() >= self.budget.queue_bytes_max(),
        }
    }

    /// Bytes of rows whose turn it is, and which are being written or about to be.
    pub(crate) fn queued_bytes(&self) -> u64 {
        self.waiting.bytes()
    }

    /// Whether some leader, anywhere, has not fired a stage up to `frontier`, or its rows have not
    /// been written.
    pub(crate) fn others_behind(&self, stage: usize, frontier: i64) -> bool {
        let Some(place) = self.output.place_of(stage) else { return false };
        match &self.output.role {
            Role::Helper { .. } => self.lock().ahead.fired[place] < frontier,
            _ => self.fired(stage) < frontier,
        }
    }

    fn lock(&self) -> MutexGuard<'_, GatherState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Result rows written so far.
    pub(crate) fn rows(&self) -> u64 {
        self.rows.load(Ordering::Relaxed)
    }

    /// Windows fired so far that had at least one group; 0 if there are no windows.
    pub(crate) fn windows(&self) -> u64 {
        if !self.is_windowed() {
            return 0;
        }
        let state = self.lock();
        let fired = state.windows.iter();
        let open = fired.map(|(window, fired)| self.output.count(window, fired.windows.clone()));
        state.windows_fired + open.sum::<u64>()
    }

    /// Whether rows of windows come here.
    pub(crate) fn is_windowed(&self) -> bool {
        self.output.stages.iter().any(|(_, windowing)| windowing.has_windows())
    }

    /// Up to which watermark every leader has fired what is complete of a stage, and its rows have
    /// been written.
    pub(crate) fn fired(&self, stage: usize) -> i64 {
        let place = self.output.place_of(stage);
        place.map_or(END, |place| self.lock().written[place])
    }
}

//! Gather: the rows of an output from all workers into the order that its sink wants.
//!
//! For [`RowOrder::Deterministic`] a window's rows are held, in sorted runs, until every leader has
//! fired it, and written in order of event time, then of the output's inputs; rows of records are
//! put back into the order of their batches ([`batches`]). What is fired only at the end of the
//! input comes last. For [`RowOrder::Any`] rows pass straight through. Rows that are held count
//! against the job's budget. A result with an order of its own ([`Sort`]) is held, whatever it
//! comes from, and written at the end of the input.

mod ahead;
mod asked;
mod batches;
mod part;
mod turns;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::datatypes::SchemaRef;

use crate::budget::{Budget, Kind, batch_bytes};
use crate::cluster::{self, Head, LAST};
use crate::error::{Error, Result};
use crate::event_time::{BEGINNING, END};
use crate::flow::Root;
use crate::order::{Merge, Order, Run};
use crate::plan::Sort;
use crate::sink::{RowOrder, Sink};
use crate::windowing::{WindowId, Windowing};
use ahead::{Ahead, Turn};
use asked::Asked;
use batches::Batches;
use part::Part;

pub(crate) use ahead::Role;
pub(crate) use batches::BatchRows;
pub(crate) use turns::{ChunkAt, Turns};

/// What a gather has to know of its output.
pub(crate) struct Outlet {
    /// Its number.
    pub(crate) output: usize,
    pub(crate) schema: SchemaRef,
    /// By input: where its rows come from.
    pub(crate) inputs: Vec<Root>,
    /// Of the stages with state among them, each once, by number: how they divide event time.
    pub(crate) stages: Vec<(usize, Windowing)>,
    /// Of the sources among them.
    pub(crate) turns: Turns,
    pub(crate) offset: u64,
    pub(crate) limit: Option<u64>,
    pub(crate) sort: Option<Sort>,
    /// Leaders whose rows come here.
    pub(crate) leaders: usize,
    pub(crate) role: Role,
    /// Whoever brings rows, the sink takes them as if from worker 0.
    pub(crate) one_writer: bool,
}

/// Collects the rows of an output.
pub(crate) struct Gather {
    outlet: Outlet,
    sink: Arc<dyn Sink>,
    ordered: bool,
    /// Of rows within a window, when the first is there.
    order: OnceLock<Order>,
    state: Mutex<State>,
    rows: AtomicU64,
    budget: Arc<Budget>,
    /// All rows that are wanted have been written, or nobody takes any more.
    ended: AtomicBool,
}

/// A window of an output, in the order in which they are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Window {
    pub(crate) fires_at: i64,
    /// The number of the output's input.
    pub(crate) input: usize,
    id: WindowId,
}

struct State {
    /// Windows with rows that some leader may still add to.
    windows: BTreeMap<Window, Vec<Run>>,
    /// Rows that are written in an order of their own, at the end.
    sorted: Vec<Run>,
    /// Per stage, per leader: every window that fires at or before this has been fired there.
    frontiers: Vec<Vec<i64>>,
    windows_fired: u64,
    batches: Batches,
    part: Part,
    /// Rows sent to the coordinator that have, as far as is known, not been written yet.
    ahead: Ahead,
    /// Chunks that processes have no room without.
    asked: Asked,
    /// Per stage: the frontier of all that other processes were told.
    told: Vec<i64>,
}

/// Rows that are kept at least, beside those of a LIMIT, before they are cut.
const CUT_ROWS: usize = 1 << 16;
/// Bytes of rows that are cut at most: texts of a column must fit into one array.
const CUT_BYTES: usize = 1 << 30;

/// The first rows of a result that can count, OFFSET included.
fn most(sort: &Sort) -> usize {
    sort.limit.map_or(usize::MAX, |limit| limit.saturating_add(sort.offset) as usize)
}

impl Gather {
    pub(crate) fn new(outlet: Outlet, sink: Arc<dyn Sink>, budget: Arc<Budget>) -> Gather {
        let part = match &outlet.sort {
            Some(sort) => Part::new(sort.offset, sort.limit),
            None => Part::new(outlet.offset, outlet.limit),
        };
        // Which rows a LIMIT lets through must not depend on who is first.
        let ordered = sink.order() == RowOrder::Deterministic || !part.is_all();
        let stages = outlet.stages.len();
        Gather {
            ordered: ordered || outlet.sort.is_some(),
            order: OnceLock::new(),
            state: Mutex::new(State {
                windows: BTreeMap::new(),
                sorted: Vec::new(),
                frontiers: vec![vec![BEGINNING; outlet.leaders]; stages],
                windows_fired: 0,
                batches: Batches::new(&outlet.turns),
                part,
                ahead: Ahead::new(stages, &outlet.turns),
                asked: Asked::new(&outlet.turns),
                told: vec![BEGINNING; stages],
            }),
            rows: AtomicU64::new(0),
            budget,
            ended: AtomicBool::new(part.is_over()),
            sink,
            outlet,
        }
    }

    /// Whether rows beyond some number are not wanted, so that they need not be looked at.
    pub(crate) fn has_limit(&self) -> bool {
        self.outlet.sort.is_none() && self.outlet.limit.is_some()
    }

    /// Whether the result has an order of its own.
    pub(crate) fn sorts(&self) -> bool {
        self.outlet.sort.is_some()
    }

    /// The number of its output.
    pub(crate) fn output(&self) -> usize {
        self.outlet.output
    }

    /// Where the rows go.
    pub(crate) fn sink(&self) -> &Arc<dyn Sink> {
        &self.sink
    }

    /// Whether no more rows are taken.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Takes no more rows; returns whether it did before.
    pub(crate) fn end(&self) -> bool {
        let first = !self.ended.swap(true, Ordering::AcqRel);
        let mut state = self.lock();
        state.windows_fired += state.windows.len() as u64;
        state.windows.clear();
        state.sorted.clear();
        state.batches.clear();
        let State { ahead, .. } = &mut *state;
        self.outlet.role.written(ahead, |_| true);
        first
    }

    /// Whether rows of windows wait in this process until their turn comes.
    pub(crate) fn holds(&self) -> bool {
        self.ordered && !matches!(self.outlet.role, Role::Helper { .. })
    }

    /// Whether no further rows may wait for earlier ones.
    pub(crate) fn is_full(&self) -> bool {
        match &self.outlet.role {
            Role::Helper { net, ahead_bytes_max } => {
                net.ahead_bytes().load(Ordering::Relaxed) >= *ahead_bytes_max
            }
            _ => self.budget.output_full(),
        }
    }

    /// Whether rows have to wait until the coordinator has taken others.
    pub(crate) fn is_congested(&self) -> bool {
        matches!(&self.outlet.role, Role::Helper { net, .. } if net.is_congested())
    }

    /// The place of a stage among those that it takes rows of.
    fn place_of(&self, stage: usize) -> Option<usize> {
        self.outlet.stages.iter().position(|(of, _)| *of == stage)
    }

    /// Whether some leader, anywhere, has not fired a stage up to `frontier`.
    pub(crate) fn others_behind(&self, stage: usize, frontier: i64) -> bool {
        let Some(place) = self.place_of(stage) else { return false };
        match &self.outlet.role {
            Role::Helper { .. } => self.lock().ahead.fired[place] < frontier,
            _ => self.fired(stage) < frontier,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
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
        state.windows_fired + state.windows.len() as u64
    }

    /// Whether rows of windows come here.
    pub(crate) fn is_windowed(&self) -> bool {
        self.outlet.stages.iter().any(|(_, windowing)| !windowing.is_whole())
    }

    fn write(&self, worker: usize, rows: &RecordBatch, flush: bool) -> Result<()> {
        self.rows.fetch_add(rows.num_rows() as u64, Ordering::Relaxed);
        let worker = if self.outlet.one_writer { 0 } else { worker };
        self.sink.write(worker, rows, flush)
    }

    /// Writes what of rows in their order is wanted; returns whether that was the last of it.
    fn emit(
        &self,
        part: &mut Part,
        worker: usize,
        rows: &RecordBatch,
        flush: bool,
    ) -> Result<bool> {
        if part.is_all() && self.outlet.sort.is_none() {
            self.write(worker, rows, flush)?;
            return Ok(false);
        }
        let (skipped, len) = part.take(rows.num_rows());
        let over = part.is_over();
        if len > 0 {
            let mut rows = rows.slice(skipped, len);
            if let Some(sort) = &self.outlet.sort {
                rows = rows.project(&(0..sort.visible).collect::<Vec<_>>())?;
            }
            self.write(worker, &rows, flush || over)?;
        }
        Ok(over)
    }

    fn order(&self) -> Result<&Order> {
        if let Some(order) = self.order.get() {
            return Ok(order);
        }
        let keys = self.outlet.sort.as_ref().map_or(&[][..], |sort| &sort.keys);
        let order = Order::new(&self.outlet.schema, keys)?;
        Ok(self.order.get_or_init(|| order))
    }

    fn held(&self, rows: RecordBatch) -> Run {
        let held = self.budget.hold(Kind::Output, batch_bytes(&rows));
        Run { rows, held }
    }

    /// Up to which watermark every leader has fired what is complete of a stage.
    pub(crate) fn fired(&self, stage: usize) -> i64 {
        let place = self.place_of(stage);
        place.map_or(END, |place| fired(&self.lock().frontiers[place]))
    }

    /// Up to which watermark every leader has fired what is complete of all stages. What fires at
    /// the end is not waited for before.
    fn fired_of_all(&self, of: impl Fn(usize) -> i64) -> i64 {
        let stages = self.outlet.stages.iter().enumerate();
        let fired = stages.map(|(place, (_, windowing))| match of(place) {
            fired if windowing.is_whole() && fired < END => END - 1,
            fired => fired,
        });
        fired.min().unwrap_or(BEGINNING)
    }

    /// A window of an input.
    fn window(&self, input: usize, id: WindowId) -> Result<Window> {
        let stage = match self.outlet.inputs.get(input) {
            Some(Root::Stage(stage)) => self.place_of(*stage),
            _ => None,
        };
        let unknown = || Error::Internal(format!("rows of a window of input {input}"));
        let (_, windowing) = self.outlet.stages[stage.ok_or_else(unknown)?];
        Ok(Window { fires_at: windowing.fires_at(id), input, id })
    }

    /// Rows of an input, of a window; `last` on the leader's last batch of
    /// it.
    pub(crate) fn window_rows(
        &self,
        worker: usize,
        (input, window): (usize, WindowId),
        rows: RecordBatch,
        last: bool,
    ) -> Result<()> {
        let window = self.window(input, window)?;
        if self.has_ended() {
            return Ok(());
        }
        if let Role::Helper { net, .. } = &self.outlet.role {
            if rows.num_rows() == 0 && !last {
                return Ok(());
            }
            let rows = if self.ordered { self.sorted(rows)? } else { rows };
            let head = Head {
                flags: if last { LAST } else { 0 },
                id: (net.first() + worker) as u32,
                output: self.outlet.output as u16,
                count: input as u64,
                rows_of: window.id.word(),
                ..Head::new(cluster::Kind::WindowRows)
            };
            return self.send(net, head, &rows, Turn::Fires(window.fires_at));
        }
        if !self.ordered {
            self.lock().windows.entry(window).or_default();
            return match rows.num_rows() > 0 || last {
                true => self.write(worker, &rows, last),
                false => Ok(()),
            };
        }
        let run = self.held(self.sorted(rows)?);
        let mut state = self.lock();
        if self.has_ended() {
            return Ok(());
        }
        let State { windows, sorted, .. } = &mut *state;
        let runs = windows.entry(window).or_default();
        self.add_run(if self.outlet.sort.is_some() { sorted } else { runs }, run)
    }

    /// `worker` has fired everything of a stage that a watermark completes. Windows that every
    /// leader has fired, of all stages, are written out, and returned; and whether these were all
    /// rows that are wanted.
    pub(crate) fn advance(
        &self,
        worker: usize,
        stage: usize,
        watermark: i64,
    ) -> Result<(Vec<Window>, bool)> {
        let Some(place) = self.place_of(stage) else { return Ok((Vec::new(), false)) };
        let mut state = self.lock();
        let state = &mut *state;
        let unknown = || Error::Internal(format!("what leader {worker} has fired"));
        let frontier = state.frontiers[place].get_mut(worker).ok_or_else(unknown)?;
        *frontier = watermark.max(*frontier);
        let output = self.outlet.output as u16;
        if let Role::Helper { net, .. } = &self.outlet.role {
            let (id, count) = ((net.first() + worker) as u32, stage as u64);
            let head = Head { id, output, count, watermark, ..Head::new(cluster::Kind::Fired) };
            net.post(0, head, Vec::new())?;
            return Ok((Vec::new(), false));
        }
        let written = self.write_fired(state, worker)?;
        let fired = fired(&state.frontiers[place]);
        if let Role::Coordinator(net) = &self.outlet.role
            && fired > state.told[place]
        {
            state.told[place] = fired;
            let (count, watermark) = (stage as u64, fired);
            net.broadcast(Head { output, count, watermark, ..Head::new(cluster::Kind::Fired) })?;
        }
        Ok(written)
    }

    /// Writes the windows whose turn it is.
    fn write_fired(&self, state: &mut State, worker: usize) -> Result<(Vec<Window>, bool)> {
        let frontiers = &state.frontiers;
        let all = self.fired_of_all(|place| fired(&frontiers[place]));
        let (mut windows, mut enough) = (Vec::new(), false);
        // What is fired at the end comes behind all records.
        while let Some(entry) = state.windows.first_entry().filter(|_| !self.takes_batches()) {
            let window = *entry.key();
            if window.fires_at > all || self.has_ended() {
                break;
            }
            let runs = entry.remove();
            state.windows_fired += 1;
            windows.push(window);
            if self.ordered && self.outlet.sort.is_none() {
                // Under the lock: windows must come out in order, one at a time. Who has rows for a
                // later one waits meanwhile, so a slow sink slows the job and rows do not pile up.
                enough = self.write_merged(&mut state.part, worker, runs)?;
                if enough {
                    break;
                }
            }
        }
        Ok((windows, enough))
    }

    /// Writes runs in order; returns whether that was the last that is wanted.
    fn write_merged(&self, part: &mut Part, worker: usize, runs: Vec<Run>) -> Result<bool> {
        if let [run] = &runs[..]
            && run.is_one_block()
        {
            return self.emit(part, worker, &run.rows, true);
        }
        let mut merge = Merge::new(self.order()?, runs, self.budget.ahead_bytes())?;
        while let Some((rows, last)) = merge.next()? {
            if self.emit(part, worker, &rows, last)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The rows of a batch in order, as many of them as the result may need.
    fn sorted(&self, rows: RecordBatch) -> Result<RecordBatch> {
        self.order()?.sorted(rows, self.outlet.sort.as_ref().map_or(usize::MAX, most))
    }

    /// Keeps a run. Of a result with a LIMIT, those that came before are cut when rows pile up.
    fn add_run(&self, runs: &mut Vec<Run>, run: Run) -> Result<()> {
        if run.rows.num_rows() == 0 {
            return Ok(());
        }
        runs.push(run);
        let most = self.outlet.sort.as_ref().map_or(usize::MAX, most);
        let rows: usize = runs.iter().map(|run| run.rows.num_rows()).sum();
        let bytes: usize = runs.iter().map(|run| run.held.bytes()).sum();
        if most > CUT_ROWS || rows < 2 * most + CUT_ROWS || bytes > CUT_BYTES {
            return Ok(());
        }
        let all = concat_batches(&runs[0].rows.schema(), runs.iter().map(|run| &run.rows))?;
        *runs = vec![self.held(self.order()?.sorted(all, most)?)];
        Ok(())
    }

    /// All rows are in: writes what still waits.
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
        let mut state = self.lock();
        let state = &mut *state;
        if self.write_waiting(state, 0, ended)? {
            return Ok(());
        }
        debug_assert!(state.batches.is_empty(), "batches are missing");
        let sorted = std::mem::take(&mut state.sorted);
        if !sorted.is_empty() && self.write_merged(&mut state.part, 0, sorted)? {
            return Ok(());
        }
        while let Some((_, runs)) = state.windows.pop_first() {
            state.windows_fired += 1;
            let writes = self.ordered && self.outlet.sort.is_none();
            if writes && self.write_merged(&mut state.part, 0, runs)? {
                return Ok(());
            }
        }
        Ok(())
    }
}

/// Up to which watermark all leaders have fired.
fn fired(frontiers: &[i64]) -> i64 {
    frontiers.iter().copied().min().unwrap_or(BEGINNING)
}

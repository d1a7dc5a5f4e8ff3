//! Gather: puts the result rows of all workers into the order that the sink wants.
//!
//! For [`RowOrder::Deterministic`], a window's rows are held, in sorted runs, until every leader
//! has fired the window, and are written in order of event time. The rows of a stateless query are
//! put back into the order of their batches. For [`RowOrder::Any`], rows pass straight through. A
//! result with an order of its own ([`Sort`]) is held like a window, whatever it comes from, and
//! written at the end of the input. Rows that are held count against the job's budget.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::datatypes::SchemaRef;

use crate::budget::{Budget, Kind, batch_bytes};
use crate::cluster::{self, Head, LAST, Net, encode_rows};
use crate::error::{Error, Result};
use crate::event_time::BEGINNING;
use crate::order::{Merge, Order, Run};
use crate::plan::Sort;
use crate::sink::{RowOrder, Sink};
use crate::windowing::{WHOLE, Windowing};

/// Collects result rows.
pub(crate) struct Gather {
    sink: Arc<dyn Sink>,
    schema: SchemaRef,
    ordered: bool,
    sort: Option<Sort>,
    /// Of rows within a window, when the first is there.
    order: OnceLock<Order>,
    windowing: Windowing,
    state: Mutex<State>,
    rows: AtomicU64,
    budget: Arc<Budget>,
    role: Role,
    /// Whoever brings rows, the sink takes them as if from worker 0.
    one_writer: bool,
}

/// Where rows go when a job has several processes.
pub(crate) enum Role {
    /// There is one process, or each has a sink of its own.
    Alone,
    /// Rows of all processes come here.
    Asker(Arc<Net>),
    /// Rows go to the asking process.
    Helper {
        net: Arc<Net>,
        /// Bytes that may be sent ahead of their turn.
        ahead_bytes_max: u64,
    },
}

struct State {
    /// Windows with rows that some leader may still add to.
    windows: BTreeMap<i64, Vec<Run>>,
    /// Per worker: every window that fires at or before this has been fired there.
    frontiers: Vec<i64>,
    windows_fired: u64,
    /// Stateless rows that wait for earlier ones: by (batch number, split).
    waiting: BTreeMap<(u64, usize), Run>,
    /// What comes behind the rows of a batch, if more are wanted.
    failed: BTreeMap<(u64, usize), Error>,
    next: (u64, usize),
    /// Batches of a stateless query whose rows wait to be sorted.
    sorted_batches: u64,
    skip: u64,
    left: Option<u64>,
    /// Rows sent to the asking process that have, as far as is known, not been written yet.
    ahead: VecDeque<Ahead>,
    /// The frontier of all that other processes were told.
    told: i64,
}

/// Rows that are kept at least, beside those of a LIMIT, before they are cut.
const CUT_ROWS: usize = 1 << 16;
/// Bytes of rows that are cut at most: texts of a column must fit into one array.
const CUT_BYTES: usize = 1 << 30;

/// The first rows of a result that can count, OFFSET included.
fn most(sort: &Sort) -> usize {
    sort.limit.map_or(usize::MAX, |limit| limit.saturating_add(sort.offset) as usize)
}

/// What of a sorted result is still to come.
struct Part {
    skip: u64,
    left: u64,
}

impl Part {
    fn of(sort: &Sort) -> Part {
        Part { skip: sort.offset, left: sort.limit.unwrap_or(u64::MAX) }
    }
}

/// What a batch of a stateless query comes to.
pub(crate) struct StatelessRows {
    pub(crate) rows: RecordBatch,
    /// Why there are no more of them, if there should be: a LIMIT may have been reached before.
    pub(crate) then: Option<Error>,
}

impl From<RecordBatch> for StatelessRows {
    fn from(rows: RecordBatch) -> StatelessRows {
        StatelessRows { rows, then: None }
    }
}

/// Rows that have been sent.
struct Ahead {
    /// When all leaders have fired up to this, they have been written.
    fires_at: i64,
    /// Of a stateless query: batch number and split.
    batch: (u64, usize),
    bytes: u64,
}

impl Gather {
    pub(crate) fn new(
        sink: Arc<dyn Sink>,
        schema: SchemaRef,
        workers: usize,
        windowing: Windowing,
        (offset, limit, sort): (u64, Option<u64>, Option<Sort>),
        budget: Arc<Budget>,
        (role, one_writer): (Role, bool),
    ) -> Gather {
        // Which rows a LIMIT lets through must not depend on who is first.
        let ordered = sink.order() == RowOrder::Deterministic || limit.is_some() || offset > 0;
        let ordered = ordered || sort.is_some();
        Gather {
            sink,
            schema,
            ordered,
            sort,
            order: OnceLock::new(),
            windowing,
            state: Mutex::new(State {
                windows: BTreeMap::new(),
                frontiers: vec![BEGINNING; workers],
                windows_fired: 0,
                waiting: BTreeMap::new(),
                failed: BTreeMap::new(),
                next: (0, 0),
                sorted_batches: 0,
                skip: offset,
                left: limit,
                ahead: VecDeque::new(),
                told: BEGINNING,
            }),
            rows: AtomicU64::new(0),
            budget,
            role,
            one_writer,
        }
    }

    /// Whether the job may end before all rows have been looked at.
    pub(crate) fn has_limit(&self) -> bool {
        self.lock().left.is_some()
    }

    /// Whether the result has an order of its own.
    pub(crate) fn sorts(&self) -> bool {
        self.sort.is_some()
    }

    /// Where the rows go.
    pub(crate) fn sink(&self) -> Arc<dyn Sink> {
        self.sink.clone()
    }

    /// Whether rows of windows wait in this process until their turn comes.
    pub(crate) fn holds(&self) -> bool {
        self.ordered && !matches!(self.role, Role::Helper { .. })
    }

    /// Whether no further rows may wait for earlier ones.
    pub(crate) fn is_full(&self) -> bool {
        match &self.role {
            Role::Helper { net, ahead_bytes_max } => {
                net.ahead_bytes().load(Ordering::Relaxed) >= *ahead_bytes_max
            }
            _ => self.budget.output_full(),
        }
    }

    /// Whether rows have to wait until the asking process has taken others.
    pub(crate) fn is_congested(&self) -> bool {
        matches!(&self.role, Role::Helper { net, .. } if net.is_congested())
    }

    /// Whether some leader, anywhere, has not fired up to `frontier`.
    pub(crate) fn others_behind(&self, frontier: i64) -> bool {
        match &self.role {
            Role::Helper { net, .. } => net.fired() < frontier,
            _ => self.fired() < frontier,
        }
    }

    /// Sends rows to the asking process.
    fn send(&self, net: &Net, head: Head, rows: &RecordBatch, ahead: Ahead) -> Result<()> {
        if self.ordered {
            let bytes = batch_bytes(rows) as u64;
            net.ahead_bytes().fetch_add(bytes, Ordering::Relaxed);
            self.lock().ahead.push_back(Ahead { bytes, ..ahead });
        }
        net.post(0, head, encode_rows(rows)?)
    }

    /// The asking process has written rows that were sent.
    fn written(&self, net: &Net, is_written: impl Fn(&Ahead) -> bool) {
        let mut bytes = 0;
        self.lock().ahead.retain(|ahead| {
            let written = is_written(ahead);
            bytes += if written { ahead.bytes } else { 0 };
            !written
        });
        net.ahead_bytes().fetch_sub(bytes, Ordering::Relaxed);
    }

    /// The asking process tells that all leaders have fired up to `watermark`.
    pub(crate) fn note_fired(&self, watermark: i64) {
        if let Role::Helper { net, .. } = &self.role {
            net.note_fired(watermark);
            self.written(net, |ahead| ahead.fires_at <= watermark);
        }
    }

    /// The asking process tells which batch of a stateless query comes next.
    pub(crate) fn note_written(&self, sequence: u64, split: usize) {
        if let Role::Helper { net, .. } = &self.role {
            self.lock().next = (sequence, split);
            self.written(net, |ahead| ahead.batch < (sequence, split));
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

    fn write(&self, worker: usize, rows: &RecordBatch, flush: bool) -> Result<()> {
        self.rows.fetch_add(rows.num_rows() as u64, Ordering::Relaxed);
        let worker = if self.one_writer { 0 } else { worker };
        self.sink.write(worker, rows, flush)
    }

    fn order(&self) -> Result<&Order> {
        if let Some(order) = self.order.get() {
            return Ok(order);
        }
        let keys = self.sort.as_ref().map_or(&[][..], |sort| &sort.keys);
        let order = Order::new(&self.schema, keys)?;
        Ok(self.order.get_or_init(|| order))
    }

    fn held(&self, rows: RecordBatch) -> Run {
        let held = self.budget.hold(Kind::Output, batch_bytes(&rows));
        Run { rows, held }
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
        if let Role::Helper { net, .. } = &self.role {
            if rows.num_rows() == 0 && !last {
                return Ok(());
            }
            let rows = if self.ordered { self.sorted(rows)? } else { rows };
            let head = Head {
                flags: if last { LAST } else { 0 },
                id: (net.first() + worker) as u32,
                start,
                ..Head::new(cluster::Kind::WindowRows)
            };
            let ahead = Ahead { fires_at: self.windowing.fires_at(start), batch: (0, 0), bytes: 0 };
            return self.send(net, head, &rows, ahead);
        }
        if self.ordered {
            let run = self.held(self.sorted(rows)?);
            let mut state = self.lock();
            return self.add_run(state.windows.entry(start).or_default(), run);
        }
        self.lock().windows.entry(start).or_default();
        if rows.num_rows() > 0 || last { self.write(worker, &rows, last) } else { Ok(()) }
    }

    /// `worker` has fired everything that a watermark completes. Windows that every worker has
    /// fired are written out; returns their starts.
    pub(crate) fn advance(&self, worker: usize, watermark: i64) -> Result<Vec<i64>> {
        let mut state = self.lock();
        state.frontiers[worker] = state.frontiers[worker].max(watermark);
        if let Role::Helper { net, .. } = &self.role {
            let id = (net.first() + worker) as u32;
            net.post(0, Head { id, watermark, ..Head::new(cluster::Kind::Fired) }, Vec::new())?;
            return Ok(Vec::new());
        }
        let fired = state.frontiers.iter().copied().min().unwrap_or(BEGINNING);
        let mut starts = Vec::new();
        while let Some(entry) = state.windows.first_entry() {
            let start = *entry.key();
            if self.windowing.fires_at(start) > fired {
                break;
            }
            let runs = entry.remove();
            state.windows_fired += 1;
            starts.push(start);
            if self.ordered {
                // Under the lock: windows must come out in order, one at a time. Who has rows for a
                // later one waits meanwhile, so a slow sink slows the job and rows do not pile up.
                self.write_merged(worker, runs)?;
            }
        }
        if let Role::Asker(net) = &self.role
            && fired > state.told
        {
            state.told = fired;
            net.broadcast(Head { watermark: fired, ..Head::new(cluster::Kind::Fired) })?;
        }
        Ok(starts)
    }

    fn write_merged(&self, worker: usize, runs: Vec<Run>) -> Result<()> {
        if let [run] = &runs[..]
            && run.is_one_block()
        {
            return match &self.sort {
                Some(sort) => {
                    self.write_sorted(sort, &mut Part::of(sort), &run.rows, true).map(|_| ())
                }
                None => self.write(worker, &run.rows, true),
            };
        }
        let mut part = self.sort.as_ref().map(|sort| (sort, Part::of(sort)));
        let mut merge = Merge::new(self.order()?, runs, self.budget.ahead_bytes())?;
        while let Some((rows, last)) = merge.next()? {
            let Some((sort, part)) = &mut part else {
                self.write(worker, &rows, last)?;
                continue;
            };
            if self.write_sorted(sort, part, &rows, last)? {
                break;
            }
        }
        Ok(())
    }

    /// The rows of a batch in order, as many of them as the result may need.
    fn sorted(&self, rows: RecordBatch) -> Result<RecordBatch> {
        self.order()?.sorted(rows, self.sort.as_ref().map_or(usize::MAX, most))
    }

    /// Keeps a run. Of a result with a LIMIT, those that came before are cut when rows pile up.
    fn add_run(&self, runs: &mut Vec<Run>, run: Run) -> Result<()> {
        if run.rows.num_rows() == 0 {
            return Ok(());
        }
        runs.push(run);
        let most = self.sort.as_ref().map_or(usize::MAX, most);
        let rows: usize = runs.iter().map(|run| run.rows.num_rows()).sum();
        let bytes: usize = runs.iter().map(|run| run.held.bytes()).sum();
        if most > CUT_ROWS || rows < 2 * most + CUT_ROWS || bytes > CUT_BYTES {
            return Ok(());
        }
        let all = concat_batches(&runs[0].rows.schema(), runs.iter().map(|run| &run.rows))?;
        *runs = vec![self.held(self.order()?.sorted(all, most)?)];
        Ok(())
    }

    /// Writes the visible part of rows in order; returns whether that is all.
    fn write_sorted(
        &self,
        sort: &Sort,
        part: &mut Part,
        rows: &RecordBatch,
        last: bool,
    ) -> Result<bool> {
        let there = rows.num_rows() as u64;
        let skipped = part.skip.min(there);
        let len = (there - skipped).min(part.left);
        (part.skip, part.left) = (part.skip - skipped, part.left - len);
        let over = last || part.left == 0;
        if len > 0 {
            let visible: Vec<usize> = (0..sort.visible).collect();
            let rows = rows.slice(skipped as usize, len as usize).project(&visible)?;
            self.write(0, &rows, over)?;
        }
        Ok(over)
    }

    /// Keeps rows of a stateless query until all are there.
    fn hold_to_sort(&self, batch: (u64, usize), rows: RecordBatch) -> Result<()> {
        let rows = self.sorted(rows)?;
        if let Role::Helper { net, .. } = &self.role {
            let (number, id) = (batch.0, batch.1 as u32);
            let head = Head { id, number, ..Head::new(cluster::Kind::BatchRows) };
            return net.post(0, head, encode_rows(&rows)?);
        }
        let run = self.held(rows);
        let mut state = self.lock();
        state.sorted_batches += 1;
        self.add_run(state.windows.entry(WHOLE).or_default(), run)
    }

    /// Writes the result of a stateless query with an order, if all of its input has come.
    fn write_held(&self, state: &mut State, ended: &[Option<u64>]) -> Result<()> {
        let batches = ended.iter().try_fold(0, |sum, batches| Some(sum + (*batches)?));
        match state.windows.remove(&WHOLE) {
            Some(runs) if batches == Some(state.sorted_batches) => self.write_merged(0, runs),
            _ => Ok(()),
        }
    }

    /// Rows of a stateless query, from batch `sequence` of `split`; `ended` tells how many batches
    /// the splits that have ended had. True when LIMIT is reached and the job is done.
    pub(crate) fn stateless_rows(
        &self,
        worker: usize,
        (sequence, split): (u64, usize),
        StatelessRows { rows, then }: StatelessRows,
        ended: &[Option<u64>],
    ) -> Result<bool> {
        if self.sort.is_some() {
            self.hold_to_sort((sequence, split), rows)?;
            return Ok(false);
        }
        if let Role::Helper { net, .. } = &self.role {
            if rows.num_rows() > 0 || self.ordered {
                let (id, number) = (split as u32, sequence);
                if let Some(error) = then {
                    let head = Head { id, number, ..Head::new(cluster::Kind::BatchError) };
                    net.post(0, head, error.to_letter())?;
                }
                let head = Head { id, number, ..Head::new(cluster::Kind::BatchRows) };
                let ahead = Ahead { fires_at: BEGINNING, batch: (sequence, split), bytes: 0 };
                self.send(net, head, &rows, ahead)?;
            }
            return Ok(false);
        }
        if !self.ordered {
            if rows.num_rows() > 0 {
                self.write(worker, &rows, true)?;
            }
            return Ok(false);
        }
        let run = self.held(rows);
        let mut state = self.lock();
        state.failed.extend(then.map(|error| ((sequence, split), error)));
        state.waiting.insert((sequence, split), run);
        self.write_waiting(&mut state, worker, ended)
    }

    /// Another process says why there are no more rows of a batch than it sends next.
    pub(crate) fn note_failed(&self, batch: (u64, usize), error: Error) {
        self.lock().failed.insert(batch, error);
    }

    /// Writes the stateless rows whose turn it is, and returns the batch that the others wait for,
    /// if any rows wait: its number and its split.
    pub(crate) fn awaited_batch(
        &self,
        worker: usize,
        ended: &[Option<u64>],
    ) -> Result<Option<(u64, usize)>> {
        let mut state = self.lock();
        if matches!(self.role, Role::Helper { .. }) {
            return Ok((!state.ahead.is_empty()).then_some(state.next));
        }
        self.write_waiting(&mut state, worker, ended)?;
        Ok((!state.waiting.is_empty()).then_some(state.next))
    }

    /// Whether rows of this batch have been sent and not been written yet, as far as is known.
    pub(crate) fn is_sent(&self, batch: (u64, usize)) -> bool {
        self.lock().ahead.iter().any(|ahead| ahead.batch == batch)
    }

    /// All batches are in: writes what still waits.
    pub(crate) fn finish(&self, ended: &[Option<u64>]) -> Result<()> {
        let mut state = self.lock();
        if matches!(self.role, Role::Helper { .. }) {
            return Ok(());
        }
        self.write_waiting(&mut state, 0, ended)?;
        self.write_held(&mut state, ended)?;
        debug_assert!(state.waiting.is_empty(), "batches are missing");
        self.sink.finish()
    }

    fn write_waiting(
        &self,
        state: &mut State,
        worker: usize,
        ended: &[Option<u64>],
    ) -> Result<bool> {
        if state.waiting.is_empty() && state.left != Some(0) {
            // Also after the last batch, when there is nothing more to go on to.
            return Ok(false);
        }
        let before = state.next;
        let enough = self.write_next(state, worker, ended)?;
        if let Role::Asker(net) = &self.role
            && state.next != before
        {
            let (number, split) = match state.next {
                (number, split) if split < ended.len() => (number, split),
                (number, _) => (number + 1, 0),
            };
            let id = split as u32;
            net.broadcast(Head { id, number, ..Head::new(cluster::Kind::Written) })?;
        }
        Ok(enough)
    }

    fn write_next(&self, state: &mut State, worker: usize, ended: &[Option<u64>]) -> Result<bool> {
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
            let Some(run) = state.waiting.remove(&(sequence, split)) else { return Ok(false) };
            state.next.1 += 1;
            let rows = run.rows.num_rows() as u64;
            let skipped = state.skip.min(rows);
            state.skip -= skipped;
            let mut len = rows - skipped;
            if let Some(left) = &mut state.left {
                len = len.min(*left);
                *left -= len;
            }
            if len > 0 {
                self.write(worker, &run.rows.slice(skipped as usize, len as usize), true)?;
            }
            if let Some(error) = state.failed.remove(&(sequence, split))
                && state.left != Some(0)
            {
                return Err(error);
            }
        }
        state.waiting.clear();
        Ok(true)
    }
}

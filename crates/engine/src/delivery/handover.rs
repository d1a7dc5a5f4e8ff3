//! Hand-over: deltas for leaders in the same process change hands through mailboxes, as they are.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use millstream_state::Segment;

use crate::error::{Error, Result};
use crate::progress::{Context, Owed, StageState};
use crate::stage::Stage;
use millstream_operators::budget::{Held, Kind};
use millstream_operators::operator::{Delta as Merged, MergeTimes};
use millstream_operators::passed::{Parcel, PassedRows, Reader};
use millstream_operators::windowing::SliceId;

/// Passed rows that are taken in in a step, at least, if there are so many.
const STEP_ROWS: u64 = 512;

/// Messages between the workers of a process.
enum WorkerMessage {
    /// Changes of an epoch, with the watermark that they cover.
    Delta(Delta),
    /// The leader has merged a delta of a stage, and has no more windows of it to fire than it can
    /// cope with.
    Credit {
        /// The stage's number.
        stage: usize,
        /// The leader that has merged.
        leader: usize,
    },
}

/// The changes of one epoch of a stage for one leader.
struct Delta {
    stage: usize,
    from: usize,
    /// Deltas of a helper are merged in order, each once.
    epoch: u64,
    watermark: i64,
    segments: VecDeque<(SliceId, Segment)>,
    passed: VecDeque<PassedRows>,
    /// The delta's part of the job's budget; `None` for a delta without segments, which needs no
    /// credit.
    held: Option<Held>,
}

impl Delta {
    /// Slices with rows in the delta.
    fn slices(&self) -> impl Iterator<Item = SliceId> {
        let passed = self.passed.iter().map(|rows| rows.slice);
        self.segments.iter().map(|(slice, _)| *slice).chain(passed)
    }
}

/// Messages for each worker of a process.
pub(crate) struct Mailboxes(Vec<Mutex<VecDeque<WorkerMessage>>>);

impl Mailboxes {
    /// For so many workers.
    pub(crate) fn new(workers: usize) -> Mailboxes {
        Mailboxes((0..workers).map(|_| Mutex::default()).collect())
    }

    fn of(&self, worker: usize) -> MutexGuard<'_, VecDeque<WorkerMessage>> {
        self.0[worker].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A worker's part in the hand-over.
pub(super) struct HandOver {
    mailboxes: Arc<Mailboxes>,
    inbox: VecDeque<WorkerMessage>,
    /// Readers of passed rows, by stage; `None` for stages without passed rows.
    readers: Vec<Option<Reader>>,
}

impl HandOver {
    pub(super) fn new(mailboxes: Arc<Mailboxes>, stages: &[Arc<Stage>]) -> HandOver {
        let reader = |stage: &Arc<Stage>| stage.program.format().cloned().map(Reader::new);
        let readers = stages.iter().map(reader).collect();
        HandOver { mailboxes, inbox: VecDeque::new(), readers }
    }

    /// Collects what has come.
    pub(super) fn collect(&mut self, context: &Context) {
        self.inbox.extend(std::mem::take(&mut *self.mailboxes.of(context.id)));
    }

    /// Whether something has come since.
    pub(super) fn has_mail(&self, context: &Context) -> bool {
        !self.mailboxes.of(context.id).is_empty()
    }

    /// Whether nothing is left of what has been collected.
    pub(super) fn is_empty(&self) -> bool {
        self.inbox.is_empty()
    }

    /// Tells of all that has come, and is not merged, its stage and its slice.
    pub(super) fn look(&self, context: &Context, see: &mut dyn FnMut(usize, SliceId)) {
        let mut note = |message: &WorkerMessage| {
            if let WorkerMessage::Delta(delta) = message {
                delta.slices().for_each(|slice| see(delta.stage, slice));
            }
        };
        self.inbox.iter().for_each(&mut note);
        self.mailboxes.of(context.id).iter().for_each(note);
    }

    fn send(&self, context: &Context, to: usize, message: WorkerMessage) {
        self.mailboxes.of(to).push_back(message);
        context.shared.env.wake(to);
    }

    /// Hands what has been sealed of a stage to the worker `to`, with the low watermark that this
    /// brings it up to.
    pub(super) fn ship(
        &self,
        context: &Context,
        state: &mut StageState,
        to: usize,
        parcel: Parcel,
        held: Option<Held>,
    ) {
        state.in_flight[to] += usize::from(held.is_some());
        let (from, epoch, stage) = (context.id, state.epoch, state.stage.number);
        let watermark = state.low;
        let (segments, passed) = (parcel.segments.into(), parcel.passed.into());
        let delta = Delta { stage, from, epoch, watermark, segments, passed, held };
        self.send(context, to, WorkerMessage::Delta(delta));
    }

    /// Lets another delta come from a worker.
    pub(super) fn return_credit(&self, context: &Context, to: usize, stage: usize) {
        self.send(context, to, WorkerMessage::Credit { stage, leader: context.id });
    }

    /// Merges one received segment; true if there was anything to do.
    pub(super) fn receive(
        &mut self,
        context: &mut Context,
        stages: &mut [StageState],
    ) -> Result<bool> {
        let Some(message) = self.inbox.front_mut() else { return Ok(false) };
        let delta = match message {
            WorkerMessage::Credit { stage, leader } => {
                stages[*stage].in_flight[*leader] -= 1;
                self.inbox.pop_front();
                return Ok(true);
            }
            WorkerMessage::Delta(delta) => delta,
        };
        let state = &mut stages[delta.stage];
        if delta.epoch != state.expected[delta.from] {
            let (from, expected) = (delta.from, state.expected[delta.from]);
            let message = format!("epoch {} of worker {from}, not {expected}", delta.epoch);
            return Err(Error::Internal(message));
        }
        if let Some((slice, segment)) = delta.segments.pop_front() {
            merge(context, state, slice, segment)?;
            return Ok(true);
        }
        if !delta.passed.is_empty() {
            let (began, mut passed_rows) = (context.shared.env.now_ns(), 0);
            // Of many short slices, the rows of several.
            while passed_rows < STEP_ROWS
                && let Some(rows) = delta.passed.pop_front()
            {
                let bytes = rows.bytes();
                passed_rows += rows.rows() as u64;
                take_in(&mut self.readers[delta.stage], state, delta.from, rows)?;
                context.note_merge(bytes, state)?;
            }
            let passed_ns = context.shared.env.now_ns().saturating_sub(began);
            let times = MergeTimes { passed_rows, passed_ns, ..MergeTimes::default() };
            state.stage.merging.add(&times);
            return Ok(true);
        }
        state.expected[delta.from] += 1;
        state.clock.advance(delta.from, delta.watermark);
        let changed = delta.held.take().is_some();
        if changed {
            let times = MergeTimes::default();
            state.owed.push(Owed { helper: delta.from, told: false, times });
        }
        self.inbox.pop_front();
        if changed {
            context.note_usage(state);
            // The next delta may open as many windows as this one, not as all since the last batch.
            state.operator.begin_batch();
        }
        Ok(true)
    }
}

/// Merges a segment of a slice.
fn merge(
    context: &mut Context,
    state: &mut StageState,
    slice: SliceId,
    segment: Segment,
) -> Result<()> {
    if state.stage.windowing().closes_at(slice) <= state.frontier {
        return Err(Error::Internal(format!("state for {slice}, whose windows have fired")));
    }
    let (rows, began) = (segment.rows() as u64, context.shared.env.now_ns());
    state.operator.merge(slice, Merged::Segment(&segment))?;
    let ns = context.shared.env.now_ns().saturating_sub(began);
    state.stage.merging.add(&MergeTimes { rows, ns, ..MergeTimes::default() });
    state.operator.reuse(segment);
    context.stats.merges += 1;
    state.uncounted += 1;
    if state.uncounted >= state.stage.limits.tables_max {
        context.note_usage(state);
    }
    Ok(())
}

/// Takes in rows that the worker `from` has passed through.
fn take_in(
    reader: &mut Option<Reader>,
    state: &mut StageState,
    from: usize,
    rows: PassedRows,
) -> Result<()> {
    let Some(reader) = reader else {
        return Err(Error::Internal("rows passed through to a stage that takes none".into()));
    };
    let (announced, StageState { operator, stage, .. }) = (state.clock.of(from), state);
    stage.check_slice(rows.slice, announced)?;
    let Some(rows) = operator.adopt(rows) else { return Ok(()) };
    reader.read_rows(rows.words(), &mut |read| {
        stage.check_slice(read.slice(), announced)?;
        operator.take_in(read)
    })?;
    operator.reuse_passed(rows);
    Ok(())
}

/// A parcel's part of the budget while on its way; `None` for an empty parcel.
pub(super) fn held(context: &Context, parcel: &Parcel) -> Option<Held> {
    let credited = !parcel.is_empty();
    credited.then(|| context.shared.budget.hold(Kind::Segments, parcel.bytes()))
}

//! TStream: transactions are noted, decomposed at a punctuation, and executed as chains of
//! operations (paper, section 4).
//!
//! A worker's way through a batch: note events; arrive at the punctuation; plan shards; set roles
//! of transactions; execute chains; sweep shards and emit. Between these, all workers must have
//! finished. A worker without work returns from its step.

mod batch;
mod classify;
mod decision;
pub(crate) mod execute;
mod latch;
#[cfg(test)]
mod loom_tests;
mod notes;
mod plan;
mod pool;
mod sync;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::error::{Error, Result};
use crate::planted::{Fault, planted};
use crate::store::SHARDS;
use crate::template::{Application, Progress, Shared, SharedParts};
use batch::{Assembly, Batch};
use execute::{Counts, Executor, Walk};
use notes::{Notes, OPS_MAX, global};
use plan::Merge;

const ALL_SHARDS: u32 = SHARDS as u32;
/// Chains that a worker takes at a time, unless they are long.
const CHAINS: u32 = 8;

/// Where the workers' batches meet.
pub(crate) type Meeting<A> = Arc<Assembly<<A as Application>::Event>>;

pub(crate) fn meeting<A: Application>(shared: &Shared<A>) -> Meeting<A> {
    Arc::new(Assembly::new(shared.workers, shared.settings.solo_below))
}

/// A worker of this scheme.
pub(crate) struct TStreamWorker<A: Application> {
    me: usize,
    shared: SharedParts<A>,
    meeting: Meeting<A>,
    notes: Notes<A::Event>,
    phase: Phase,
    batch: Option<Arc<Batch<A::Event>>>,
    /// Number of the last batch.
    last: u32,
    merge: Merge,
    executor: Executor,
    /// The chain that a step has left unfinished.
    current: Option<u32>,
    /// Claimed chains, not yet started: the shard, the first, the last plus one.
    claimed: (usize, u32, u32),
    /// Shards, from its own on, whose chains have all been taken.
    exhausted: usize,
    finished: u32,
    emitted: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Events are noted; there is no punctuation.
    Noting,
    Planning,
    Classifying,
    Executing,
    Ending,
}

impl<A: Application> TStreamWorker<A> {
    pub(crate) fn new(me: usize, shared: SharedParts<A>, meeting: Meeting<A>) -> Self {
        let row_words_max = shared.store.row_words_max();
        TStreamWorker {
            me,
            shared,
            meeting,
            notes: Notes::new(),
            phase: Phase::Noting,
            batch: None,
            last: 0,
            merge: Merge::default(),
            executor: Executor::new(me, row_words_max),
            current: None,
            claimed: (0, 0, 0),
            exhausted: 0,
            finished: 0,
            emitted: 0,
        }
    }

    pub(crate) fn take(&mut self, order: u64, mut event: A::Event) -> Result<()> {
        if self.notes.is_full() {
            return Err(Error::BatchFull { max: OPS_MAX / 2 });
        }
        let number = self.shared.application.program(&event);
        self.shared.application.pre_process(&mut event);
        self.notes.note(order, number, &self.shared.programs[number], event);
        Ok(())
    }

    pub(crate) fn punctuate(&mut self) {
        let notes = std::mem::replace(&mut self.notes, Notes::hollow());
        self.notes = self.meeting.arrive(self.me, notes);
        self.phase = Phase::Planning;
    }

    pub(crate) fn counts(&self) -> Counts {
        self.executor.counts
    }

    pub(crate) fn step(&mut self, emit: &mut dyn FnMut(A::Output)) -> Progress {
        if self.phase == Phase::Noting {
            return Progress::Idle;
        }
        if self.batch.is_none() {
            self.batch = self.meeting.fetch(self.last);
        }
        let Some(batch) = self.batch.take() else { return Progress::Idle };
        self.last = batch.number;
        let is_bystander = batch.solo.is_some_and(|solo| solo != self.me);
        let progress = match self.phase {
            Phase::Noting | Phase::Planning if !is_bystander => self.plan(&batch),
            Phase::Classifying if !is_bystander => self.classify(&batch),
            Phase::Executing if !is_bystander => self.execute(&batch),
            Phase::Ending => {
                let progress = self.end(&batch, emit);
                if progress == Progress::Done {
                    (self.phase, self.emitted) = (Phase::Noting, 0);
                    self.meeting.leave(batch);
                    return progress;
                }
                progress
            }
            _ => self.watch(&batch),
        };
        self.batch = Some(batch);
        progress
    }

    /// Plans a shard.
    fn plan(&mut self, batch: &Batch<A::Event>) -> Progress {
        let Some((shard, _)) = batch.planning.take(1, ALL_SHARDS) else {
            if batch.planning.is_down(ALL_SHARDS) {
                self.phase = Phase::Classifying;
                return Progress::Worked;
            }
            return Progress::Idle;
        };
        let shard = shard as usize;
        let mut plan = batch.spare_plan(shard);
        let (shared, tail_block) = (&self.shared, self.shared.settings.tail_block);
        let which = (shard, batch.number);
        plan.build(which, &batch.notes, &shared.store, tail_block, &mut self.merge);
        batch.set_plan(shard, plan);
        batch.planning.finish(1);
        Progress::Worked
    }

    /// Sets the roles of some transactions, its own first.
    fn classify(&mut self, batch: &Batch<A::Event>) -> Progress {
        let piece = self.shared.settings.piece as u32;
        let workers = batch.notes.len();
        for worker in (self.me..workers).chain(0..self.me) {
            let all = batch.notes[worker].txns.len() as u32;
            if let Some((first, end)) = batch.classifying[worker].take(piece, all) {
                let Shared { store, programs, .. } = &*self.shared;
                let txns = (worker, first as usize..end as usize);
                classify::classify(store, programs, batch, txns, &mut self.executor);
                batch.classifying[worker].finish(end - first);
                return Progress::Worked;
            }
        }
        let counts = batch.notes.iter().map(|notes| notes.txns.len() as u32);
        if batch.classifying.iter().zip(counts).all(|(latch, all)| latch.is_down(all)) {
            self.phase = Phase::Executing;
            (self.claimed, self.exhausted) = ((0, 0, 0), 0);
            return Progress::Worked;
        }
        Progress::Idle
    }

    /// Executes some groups of chains.
    fn execute(&mut self, batch: &Batch<A::Event>) -> Progress {
        let mut budget = self.shared.settings.piece;
        while budget > 0 {
            let Some(chain) = self.current.take().or_else(|| self.next_chain(batch)) else {
                break;
            };
            let Shared { store, programs, .. } = &*self.shared;
            match self.executor.walk(store, programs, batch, chain, &mut budget) {
                Walk::Finished => self.finished += 1,
                Walk::Left => {}
                Walk::Paused => self.current = Some(chain),
            }
        }
        if budget == 0 {
            return Progress::Worked;
        }
        if self.finished > 0 {
            batch.executing.finish(std::mem::take(&mut self.finished));
        }
        let worked = budget < self.shared.settings.piece;
        let chains = batch.chains.load(Relaxed);
        if batch.executing.is_down(chains) || planted(Fault::EarlyPunctuation) {
            self.phase = Phase::Ending;
            return Progress::Worked;
        }
        if worked { Progress::Worked } else { Progress::Idle }
    }

    /// A chain to walk: woken here, else claimed, else fresh, else woken by another worker.
    fn next_chain(&mut self, batch: &Batch<A::Event>) -> Option<u32> {
        let pop = |stack: usize| {
            if batch.pool[stack].is_empty() {
                return None;
            }
            batch.pool[stack].pop(|chain| &batch.chain(chain).link)
        };
        if let Some(chain) = pop(self.me) {
            return Some(chain);
        }
        if let Some(chain) = self.fresh_chain(batch) {
            return Some(chain);
        }
        let workers = batch.pool.len();
        let stolen = (1..workers).find_map(|other| pop((self.me + other) % workers));
        self.executor.counts.stolen += u64::from(stolen.is_some());
        stolen
    }

    fn fresh_chain(&mut self, batch: &Batch<A::Event>) -> Option<u32> {
        loop {
            let (shard, first, end) = self.claimed;
            if first < end {
                self.claimed.1 += 1;
                return Some(global(shard, batch.plan(shard).starts[first as usize]));
            }
            if self.exhausted == SHARDS {
                return None;
            }
            let workers = batch.pool.len();
            let first = (self.me * SHARDS).div_ceil(workers);
            let shard = (first + self.exhausted) % SHARDS;
            let is_foreign = shard * workers / SHARDS != self.me;
            if is_foreign && !self.shared.settings.dynamic && batch.solo.is_none() {
                self.exhausted = SHARDS;
                return None;
            }
            let plan = batch.plan(shard);
            let (starting, all) = (&batch.starting[shard], plan.starts.len() as u32);
            let chains = if starting.taken() < plan.long { 1 } else { CHAINS };
            match starting.take(chains, all) {
                Some((first, end)) => self.claimed = (shard, first, end),
                None => self.exhausted += 1,
            }
        }
    }

    /// While another worker executes a small batch.
    fn watch(&mut self, batch: &Batch<A::Event>) -> Progress {
        if batch.sweeping.is_down(ALL_SHARDS) {
            self.phase = Phase::Ending;
            return Progress::Worked;
        }
        Progress::Idle
    }

    /// Sweeps a shard, or emits some of its own events.
    fn end(&mut self, batch: &Batch<A::Event>, emit: &mut dyn FnMut(A::Output)) -> Progress {
        let any_absent = batch.any_absent.load(Relaxed);
        let piece = if any_absent { 1 } else { ALL_SHARDS };
        if let Some((first, end)) = batch.sweeping.take(piece, ALL_SHARDS) {
            for shard in (first..end).filter(|_| any_absent && !planted(Fault::NoSweep)) {
                let chains = &batch.plan(shard as usize).chains;
                for chain in chains.iter().filter(|chain| chain.maybe_absent) {
                    self.shared.store.remove_if_absent(chain.record);
                }
            }
            batch.sweeping.finish(end - first);
            return Progress::Worked;
        }
        let notes = &batch.notes[self.me];
        let end = notes.txns.len().min(self.emitted + self.shared.settings.piece);
        for number in self.emitted..end {
            let txn = &notes.txns[number];
            let result = (txn.verdict(), txn.order, txn.order);
            let (event, ops) = (&notes.events[number], notes.ops_of(txn));
            emit(self.shared.post_process(event, &notes.unrolled, ops, result));
        }
        let worked = end > self.emitted;
        self.emitted = end;
        match worked {
            true => Progress::Worked,
            false if batch.sweeping.is_down(ALL_SHARDS) => Progress::Done,
            false => Progress::Idle,
        }
    }
}

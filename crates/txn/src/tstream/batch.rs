//! A batch: the noted transactions of all workers between two punctuations, and its chains.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock};

use super::latch::Latch;
use super::notes::Notes;
use super::plan::{Chain, Group, Plan};
use super::pool::Stack;
use super::sync::AtomicU32;
use crate::program::view::NO_GROUP;
use crate::store::SHARDS;

use std::sync::atomic::Ordering::Relaxed;

/// A batch, as all workers see it.
#[derive(Debug)]
pub(crate) struct Batch<E> {
    pub(crate) number: u32,
    /// Of each worker.
    pub(crate) notes: Vec<Notes<E>>,
    /// Of each shard, once it is planned.
    plans: Box<[OnceLock<Plan>]>,
    spare_plans: Box<[Mutex<Plan>]>,
    /// The only worker that plans and executes, if the batch is small.
    pub(crate) solo: Option<usize>,
    /// Whether an operation may meet no row.
    pub(crate) any_absent: AtomicBool,
    pub(crate) planning: Latch,
    /// Of each worker's transactions.
    pub(crate) classifying: Box<[Latch]>,
    /// Chains of all shards.
    pub(crate) chains: AtomicU32,
    /// Of each shard: chains that were started.
    pub(crate) starting: Box<[Latch]>,
    /// Chains that are finished.
    pub(crate) executing: Latch,
    pub(crate) pool: Box<[Stack]>,
    pub(crate) sweeping: Latch,
}

impl<E> Batch<E> {
    fn new(workers: usize) -> Batch<E> {
        Batch {
            number: 0,
            notes: Vec::new(),
            plans: (0..SHARDS).map(|_| OnceLock::new()).collect(),
            spare_plans: (0..SHARDS).map(|_| Mutex::default()).collect(),
            solo: None,
            any_absent: AtomicBool::new(false),
            planning: Latch::new(),
            classifying: (0..workers).map(|_| Latch::new()).collect(),
            chains: AtomicU32::new(0),
            starting: (0..SHARDS).map(|_| Latch::new()).collect(),
            executing: Latch::new(),
            pool: (0..workers).map(|_| Stack::new()).collect(),
            sweeping: Latch::new(),
        }
    }

    /// Forgets everything, and keeps its memory.
    fn reset(&mut self) {
        for (plan, spare) in self.plans.iter_mut().zip(self.spare_plans.iter_mut()) {
            if let Some(plan) = plan.take() {
                *spare.get_mut().expect("no panic while a plan is taken") = plan;
            }
        }
        let latches = self.classifying.iter_mut().chain(self.starting.iter_mut());
        latches.for_each(Latch::reset);
        self.planning.reset();
        self.executing.reset();
        self.sweeping.reset();
        self.chains = AtomicU32::new(0);
        *self.any_absent.get_mut() = false;
        self.notes.iter_mut().for_each(Notes::clear);
    }

    /// Memory for a shard's plan.
    pub(crate) fn spare_plan(&self, shard: usize) -> Plan {
        let mut spare = self.spare_plans[shard].lock().expect("no panic while a plan is taken");
        let mut plan = std::mem::take(&mut *spare);
        plan.clear();
        plan
    }

    /// A shard is planned.
    pub(crate) fn set_plan(&self, shard: usize, plan: Plan) {
        self.chains.fetch_add(plan.chains.len() as u32, Relaxed);
        if plan.chains.iter().any(|chain| chain.maybe_absent) {
            self.any_absent.store(true, Relaxed);
        }
        assert!(self.plans[shard].set(plan).is_ok(), "a shard is planned once");
    }

    #[inline]
    pub(crate) fn plan(&self, shard: usize) -> &Plan {
        self.plans[shard].get().expect("all shards are planned")
    }

    #[inline]
    pub(crate) fn group(&self, group: u32) -> &Group {
        let (shard, number) = super::notes::local(group);
        &self.plan(shard).groups[number as usize]
    }

    #[inline]
    pub(crate) fn chain(&self, chain: u32) -> &Chain {
        let (shard, number) = super::notes::local(chain);
        &self.plan(shard).chains[number as usize]
    }

    /// The group of an operation of worker `worker`, unless it is a REQUIRE.
    #[inline]
    pub(crate) fn group_of(&self, worker: usize, op: usize) -> Option<(u32, &Group)> {
        let group = self.notes[worker].unrolled.ops[op].group.load(Relaxed);
        (group != NO_GROUP).then(|| (group, self.group(group)))
    }
}

/// Where batches are put together from the notes of all workers.
#[derive(Debug)]
pub(crate) struct Assembly<E> {
    state: Mutex<AssemblyState<E>>,
    workers: usize,
    solo_below: usize,
}

#[derive(Debug)]
struct AssemblyState<E> {
    arrived: Vec<Option<Notes<E>>>,
    /// The batch that was put together last, and how many workers still have to fetch it.
    current: Option<(Arc<Batch<E>>, usize)>,
    spare: Vec<Batch<E>>,
    spare_notes: Vec<Notes<E>>,
    batches: u32,
}

impl<E> Assembly<E> {
    pub(crate) fn new(workers: usize, solo_below: usize) -> Assembly<E> {
        let state = AssemblyState {
            arrived: (0..workers).map(|_| None).collect(),
            current: None,
            spare: Vec::new(),
            spare_notes: Vec::new(),
            batches: 0,
        };
        Assembly { state: Mutex::new(state), workers, solo_below }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, AssemblyState<E>> {
        self.state.lock().expect("no panic under the lock of the assembly")
    }

    /// A worker has met the punctuation; returns empty notes. The last worker's notes complete the
    /// batch.
    pub(crate) fn arrive(&self, worker: usize, notes: Notes<E>) -> Notes<E> {
        let mut state = self.state();
        debug_assert!(state.arrived[worker].is_none(), "one punctuation at a time");
        state.arrived[worker] = Some(notes);
        if state.arrived.iter().all(Option::is_some) {
            let mut batch = state.spare.pop().unwrap_or_else(|| Batch::new(self.workers));
            batch.notes.extend(state.arrived.iter_mut().filter_map(Option::take));
            state.batches = state.batches.wrapping_add(1).max(1);
            batch.number = state.batches;
            let ops: usize = batch.notes.iter().map(|notes| notes.unrolled.ops.len()).sum();
            batch.solo = (ops < self.solo_below).then_some(worker);
            state.current = Some((Arc::new(batch), self.workers));
        }
        state.spare_notes.pop().unwrap_or_else(Notes::new)
    }

    /// The batch that all workers have arrived for; once for each worker. `last` is the number of
    /// the worker's last batch, 0 for none: slower workers may not have fetched that one yet.
    pub(crate) fn fetch(&self, last: u32) -> Option<Arc<Batch<E>>> {
        let mut state = self.state();
        let (batch, takers) = state.current.as_mut().filter(|(batch, _)| batch.number != last)?;
        let batch = batch.clone();
        *takers -= 1;
        if *takers == 0 {
            state.current = None;
        }
        Some(batch)
    }

    /// A worker is done with a batch. The last worker's call frees it for the next.
    pub(crate) fn leave(&self, batch: Arc<Batch<E>>) {
        if let Some(mut batch) = Arc::into_inner(batch) {
            batch.reset();
            let mut state = self.state();
            state.spare_notes.append(&mut batch.notes);
            state.spare.push(batch);
        }
    }
}

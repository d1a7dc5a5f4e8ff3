//! Execution of chains (paper, section 4.3, "evaluate operation chains").
//!
//! A chain is walked by one worker at a time, on the record itself: what a chain has passed is
//! committed. Reads copy what they see into placeholders and go on, so that later writes of the key
//! need not wait for whoever uses the value: these copies are the versions that the paper keeps
//! until the batch ends. Writes of a transaction that is not decided block the chain. A decision
//! runs on private copies, so an abort has nothing to remove.

use std::sync::atomic::Ordering::{AcqRel, Relaxed};

use super::batch::Batch;
use super::notes::{global, local};
use super::plan::{Chain, Group, NONE, Role};
use crate::planted::{Fault, planted};
use crate::program::Program;
use crate::program::run::Images;
use crate::store::Store;

/// A cursor that says: the writes are over, pieces of the tail are left.
const TAIL: u32 = NONE - 1;

/// The end of a walk along a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Walk {
    /// The chain is executed.
    Finished,
    /// The chain waits for a decision, or workers share its tail.
    Left,
    /// The piece is over; the chain is still the caller's.
    Paused,
}

/// A worker's memory while it executes.
#[derive(Debug)]
pub(crate) struct Executor {
    me: usize,
    images: Images,
    pub(crate) counts: Counts,
}

/// Counts for reports and tests.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// Chains that had to wait for a decision.
    pub parked: u64,
    /// Decisions of transactions.
    pub decided: u64,
    /// Decisions to abort.
    pub aborted: u64,
    /// Woken chains and shared tails that a worker took from another worker's stack.
    pub stolen: u64,
    /// Pieces of shared tails of reads.
    pub tail_pieces: u64,
    /// Transactions that were started again (NOCC).
    pub retries: u64,
}

impl Counts {
    /// Adds the counts of another worker.
    pub fn add(&mut self, other: &Counts) {
        self.parked += other.parked;
        self.decided += other.decided;
        self.aborted += other.aborted;
        self.stolen += other.stolen;
        self.tail_pieces += other.tail_pieces;
        self.retries += other.retries;
    }
}

impl Executor {
    pub(crate) fn new(me: usize, row_words_max: usize) -> Executor {
        Executor { me, images: Images::new(row_words_max), counts: Counts::default() }
    }

    /// Walks along a chain, for `budget` groups at most.
    pub(crate) fn walk<E>(
        &mut self,
        store: &Store,
        programs: &[Program<E>],
        batch: &Batch<E>,
        number: u32,
        budget: &mut usize,
    ) -> Walk {
        let (shard, _) = local(number);
        let chain = batch.chain(number);
        let groups = &batch.plan(shard).groups;
        let mut at = chain.cursor.load(Relaxed);
        loop {
            if at == TAIL || (at == chain.reads && at != NONE) {
                *budget = budget.saturating_sub(1);
                return self.share_tail(store, programs, batch, number);
            }
            if at == NONE {
                return Walk::Finished;
            }
            if *budget == 0 {
                chain.cursor.store(at, Relaxed);
                return Walk::Paused;
            }
            *budget -= 1;
            let group = &groups[at as usize];
            if group.role() != Role::Free
                && !self.may_pass(store, programs, batch, (chain, at, group))
            {
                self.counts.parked += 1;
                return Walk::Left;
            } else if group.role() == Role::Free {
                self.run_alone(store, programs, batch, chain, group);
            }
            at = group.next;
        }
    }

    /// Executes a group that is part of a decision, or follows it. Says no if the chain was parked:
    /// then any worker may walk the chain.
    fn may_pass<E>(
        &mut self,
        store: &Store,
        programs: &[Program<E>],
        batch: &Batch<E>,
        (chain, at, group): (&Chain, u32, &Group),
    ) -> bool {
        let (worker, op) = local(group.op);
        let (number, txn) = batch.notes[worker].txn_of(op);
        match group.role() {
            Role::Free => {}
            Role::Follower => {
                if !group.gate.is_open() && !planted(Fault::SkipWait) {
                    chain.cursor.store(at, Relaxed);
                    if group.gate.park() {
                        return false;
                    }
                }
                if txn.verdict().is_ok() {
                    self.run_alone(store, programs, batch, chain, group);
                }
            }
            Role::Source => {
                self.capture(store, batch, chain, group);
                if txn.missing.arrive() {
                    self.decide(store, programs, batch, (worker, number), None);
                }
            }
            Role::Member if group.gate.is_open() => {}
            Role::Member => {
                chain.cursor.store(at, Relaxed);
                group.gate.park_ahead();
                if !txn.missing.arrive() {
                    return false;
                }
                self.decide(store, programs, batch, (worker, number), Some(group));
            }
        }
        true
    }

    /// Runs the operations of a group that cannot fail.
    fn run_alone<E>(
        &mut self,
        store: &Store,
        programs: &[Program<E>],
        batch: &Batch<E>,
        chain: &Chain,
        group: &Group,
    ) {
        let (worker, first) = local(group.op);
        let notes = &batch.notes[worker];
        let (number, txn) = notes.txn_of(first);
        let program = &programs[usize::from(txn.program)];
        let record = store.words(chain.record);
        let row_words = record.row().len();
        self.images.reset(1);
        self.images.load(0, row_words, |row| record.load(row));
        let (event, unrolled) = (&notes.events[number as usize], &notes.unrolled);
        let own = unrolled.ops[first as usize].group.load(Relaxed);
        let ops = unrolled.ops[first as usize..txn.end_op as usize].iter();
        for op in ops.filter(|op| op.group.load(Relaxed) == own).take(group.ops as usize) {
            let result = program.run(store, event, unrolled, op, &mut self.images, 0);
            debug_assert_eq!(result, Ok(()), "this operation cannot fail");
        }
        if let Some((exists, row)) = self.images.changed(0, row_words) {
            record.store(exists, row);
        }
    }

    /// Copies what a group reads into its first placeholder.
    fn capture<E>(&mut self, store: &Store, batch: &Batch<E>, chain: &Chain, group: &Group) {
        let (worker, first) = local(group.op);
        let unrolled = &batch.notes[worker].unrolled;
        let record = store.words(chain.record);
        let row_words = record.row().len();
        self.images.reset(1);
        let slot = unrolled.ops[first as usize].slot;
        self.images.load(0, row_words, |row| {
            let exists = record.load(row);
            unrolled.slots.fill(slot, exists, row);
            exists
        });
    }

    /// Decides a transaction whose inputs are all there: runs the operations of its inputs, and
    /// opens all gates but that of `own`, the caller's group.
    pub(crate) fn decide<E>(
        &mut self,
        store: &Store,
        programs: &[Program<E>],
        batch: &Batch<E>,
        (worker, number): (usize, u32),
        own: Option<&Group>,
    ) {
        let notes = &batch.notes[worker];
        let txn = &notes.txns[number as usize];
        let ops = notes.ops_of(txn);
        let program = &programs[usize::from(txn.program)];
        self.images.reset(ops.len());
        let mut verdict = Ok(());
        for op in ops.clone() {
            let image = self.take_in(store, batch, worker, op, txn.first_op);
            if let Some(image) = image {
                let (event, unrolled) = (&notes.events[number as usize], &notes.unrolled);
                let op = &unrolled.ops[op];
                verdict = program.run(store, event, unrolled, op, &mut self.images, image);
                if verdict.is_err() {
                    break;
                }
            }
        }
        self.counts.decided += 1;
        self.counts.aborted += u64::from(verdict.is_err());
        txn.decide(verdict);
        for op in ops {
            let Some((group_number, group)) = batch.group_of(worker, op) else { continue };
            if group.op != global(worker, op as u32) {
                continue;
            }
            let (shard, _) = local(group_number);
            let chain = global(shard, group.chain);
            let is_written = verdict.is_ok() || planted(Fault::AbortLeavesVersion);
            if group.role() == Role::Member && is_written {
                let record = store.words(batch.chain(chain).record);
                let image = op - txn.first_op as usize;
                if let Some((exists, row)) = self.images.changed(image, record.row().len()) {
                    record.store(exists, row);
                }
            }
            let waits = matches!(group.role(), Role::Member | Role::Follower);
            let is_own = own.is_some_and(|own| std::ptr::eq(own, group));
            if waits && group.gate.open() && !is_own && !planted(Fault::LostWaking) {
                batch.pool[self.me].push(chain, &batch.chain(chain).link);
            }
        }
    }

    /// The image on which the decision runs an operation, loaded if this is the first of its group;
    /// `None` if the operation follows the decision. For a REQUIRE any image will do.
    fn take_in<E>(
        &mut self,
        store: &Store,
        batch: &Batch<E>,
        worker: usize,
        op: usize,
        first_op: u32,
    ) -> Option<usize> {
        let Some((number, group)) = batch.group_of(worker, op) else { return Some(0) };
        if matches!(group.role(), Role::Free | Role::Follower) {
            return None;
        }
        let (_, first) = local(group.op);
        let image = (first - first_op) as usize;
        if !self.images.is_loaded(image) {
            let (shard, _) = local(number);
            let record = store.words(batch.chain(global(shard, group.chain)).record);
            let unrolled = &batch.notes[worker].unrolled;
            let slot = unrolled.ops[first as usize].slot;
            self.images.load(image, record.row().len(), |row| match group.role() {
                Role::Source if !planted(Fault::LateRead) => unrolled.slots.load(slot, row),
                _ => record.load(row),
            });
        }
        Some(image)
    }

    /// Reads a piece of a tail of reads. Other workers find the chain in the pool, and read other
    /// pieces.
    fn share_tail<E>(
        &mut self,
        store: &Store,
        programs: &[Program<E>],
        batch: &Batch<E>,
        number: u32,
    ) -> Walk {
        let (shard, _) = local(number);
        let (plan, chain) = (batch.plan(shard), batch.chain(number));
        chain.cursor.store(TAIL, Relaxed);
        let block = chain.next_block.fetch_add(1, Relaxed);
        if block + 1 < chain.blocks {
            batch.pool[self.me].push(number, &chain.link);
        }
        let place = (chain.first_block + block) as usize;
        let mut at = plan.blocks[place];
        let end = match block + 1 < chain.blocks {
            true => plan.blocks[place + 1],
            false => NONE,
        };
        while at != end {
            let group = &plan.groups[at as usize];
            if group.role() == Role::Free {
                self.run_alone(store, programs, batch, chain, group);
            } else {
                let passed = self.may_pass(store, programs, batch, (chain, at, group));
                debug_assert!(passed, "reads do not wait");
            }
            at = group.next;
        }
        self.counts.tail_pieces += 1;
        match chain.unread_blocks.fetch_sub(1, AcqRel) {
            1 => Walk::Finished,
            _ => Walk::Left,
        }
    }
}

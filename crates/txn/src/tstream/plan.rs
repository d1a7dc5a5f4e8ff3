//! Chains of operations of one shard (paper, section 4.3, "construct operation chains").
//!
//! One worker plans a shard and nobody else touches it, so chains need no concurrent skip list:
//! the workers' notes of the shard are merged by order, and each operation is appended to the chain
//! of its key. Operations of one transaction on one key make a group.

use std::sync::atomic::Ordering::Relaxed;

use super::decision::Gate;
use super::notes::{DELETES, Entry, Notes, WRITES, global};
use super::sync::{AtomicU8, AtomicU32};
use crate::store::{Record, Store, hash_of};

/// The number of no group or block.
pub(crate) const NONE: u32 = u32::MAX;
/// Chains of at least so many groups begin before others: a long chain at the end would leave
/// other workers without work.
const LONG: u32 = 64;

/// The part that a group has in its transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Role {
    /// Runs at once, without a decision.
    Free = 0,
    /// Waits for the decision, then runs by itself.
    Follower = 1,
    /// Reads of it are inputs of the decision.
    Source = 2,
    /// The decision runs its writes.
    Member = 3,
}

/// All operations of a transaction on one key.
#[derive(Debug)]
pub(crate) struct Group {
    /// The first operation, with its worker.
    pub(crate) op: u32,
    pub(crate) ops: u32,
    /// The next group of the chain.
    pub(crate) next: u32,
    pub(crate) chain: u32,
    pub(crate) writes: bool,
    role: AtomicU8,
    pub(crate) gate: Gate,
}

impl Group {
    #[inline]
    pub(crate) fn role(&self) -> Role {
        match self.role.load(Relaxed) {
            0 => Role::Free,
            1 => Role::Follower,
            2 => Role::Source,
            _ => Role::Member,
        }
    }

    pub(crate) fn set_role(&self, role: Role) {
        self.role.store(role as u8, Relaxed);
    }
}

/// All groups of one key, in order.
#[derive(Debug)]
pub(crate) struct Chain {
    pub(crate) record: Record,
    tail: u32,
    groups: u32,
    /// The first group after the last write.
    pub(crate) reads: u32,
    reads_count: u32,
    /// Whether an operation may meet no row.
    pub(crate) maybe_absent: bool,
    /// The group that is next, while the chain is parked.
    pub(crate) cursor: AtomicU32,
    /// The next chain in a stack of the pool.
    pub(crate) link: AtomicU32,
    /// First groups of the pieces of a shared tail of reads: where they begin, how many there are.
    pub(crate) first_block: u32,
    pub(crate) blocks: u32,
    pub(crate) next_block: AtomicU32,
    pub(crate) unread_blocks: AtomicU32,
}

/// The chains of a shard.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) groups: Vec<Group>,
    pub(crate) chains: Vec<Chain>,
    /// Chains in the order of starting.
    pub(crate) starts: Vec<u32>,
    /// So many of them are long.
    pub(crate) long: u32,
    pub(crate) blocks: Vec<u32>,
}

/// Memory of a worker that plans.
#[derive(Debug, Default)]
pub(crate) struct Merge {
    sorted: Vec<Vec<Entry>>,
    next: Vec<usize>,
    key: Vec<u64>,
}

impl Plan {
    /// Forgets the chains, and keeps its memory.
    pub(crate) fn clear(&mut self) {
        self.groups.clear();
        self.chains.clear();
        self.starts.clear();
        self.blocks.clear();
        self.long = 0;
    }

    /// Builds the chains of a shard. `batch` is a number that differs from batch to batch.
    pub(crate) fn build<E>(
        &mut self,
        (shard, batch): (usize, u32),
        notes: &[Notes<E>],
        store: &Store,
        tail_block: usize,
        merge: &mut Merge,
    ) {
        let Merge { sorted, next, key } = merge;
        sorted.resize_with(notes.len(), Vec::new);
        for (notes, sorted) in notes.iter().zip(sorted.iter_mut()) {
            sorted.clear();
            if !notes.is_ascending {
                sorted.extend_from_slice(&notes.entries[shard]);
                sorted.sort_unstable_by_key(|entry| (entry.order, entry.op));
            }
        }
        let sorted = &*sorted;
        let run = |worker: usize| match notes[worker].is_ascending {
            true => notes[worker].entries[shard].as_slice(),
            false => sorted[worker].as_slice(),
        };
        next.clear();
        next.resize(notes.len(), 0);
        let order_of = |worker: usize, at: usize| run(worker).get(at).map(|entry| entry.order);
        while let Some((order, worker)) = (0..notes.len())
            .filter_map(|worker| Some((order_of(worker, next[worker])?, worker)))
            .min()
        {
            let limit = (0..notes.len())
                .filter(|other| *other != worker)
                .filter_map(|other| order_of(other, next[other]))
                .min();
            let entries = &run(worker)[next[worker]..];
            let until = match limit {
                Some(limit) => entries.iter().take_while(|e| e.order < limit).count().max(1),
                None => entries.len(),
            };
            debug_assert!(limit.is_none_or(|limit| order < limit), "orders are unique");
            for entry in &entries[..until] {
                self.append((shard, batch), worker, &notes[worker], entry, store, key);
            }
            next[worker] += until;
        }
        self.finish(tail_block);
    }

    fn append<E>(
        &mut self,
        (shard, batch): (usize, u32),
        worker: usize,
        notes: &Notes<E>,
        entry: &Entry,
        store: &Store,
        key: &mut Vec<u64>,
    ) {
        key.clear();
        match entry.key_words {
            1 => key.push(entry.key),
            words => {
                let first = entry.key as usize;
                key.extend_from_slice(&notes.keys[first..first + usize::from(words)]);
            }
        }
        let (record, _) = store.find_or_add(entry.table, hash_of(key), key);
        let number = self.chain_of(record, batch, store);
        let chain = &mut self.chains[number];
        chain.maybe_absent |= entry.flags & DELETES != 0;
        let writes = entry.flags & WRITES != 0;
        let txn = notes.unrolled.ops[entry.op as usize].txn;
        // Operations of a transaction on a key follow each other in the chain.
        let newest = self.groups.get(chain.tail as usize).filter(|group| {
            let (group_worker, op) = super::notes::local(group.op);
            group_worker == worker && notes.txn_of(op).0 == txn
        });
        if newest.is_none() {
            let group = self.groups.len() as u32;
            match self.groups.get_mut(chain.tail as usize) {
                Some(before) => before.next = group,
                None => chain.cursor = AtomicU32::new(group),
            }
            chain.tail = group;
            chain.groups += 1;
            chain.reads_count += 1;
            if chain.reads == NONE {
                chain.reads = group;
            }
            self.groups.push(Group {
                op: global(worker, entry.op),
                ops: 0,
                next: NONE,
                chain: number as u32,
                writes: false,
                role: AtomicU8::new(Role::Free as u8),
                gate: Gate::new(),
            });
        }
        let group = &mut self.groups[chain.tail as usize];
        group.ops += 1;
        group.writes |= writes;
        if writes {
            (chain.reads, chain.reads_count) = (NONE, 0);
        }
        notes.set_group(entry.op, global(shard, chain.tail));
    }

    /// The chain of a record, which has its number if the batch has met the record before.
    fn chain_of(&mut self, record: Record, batch: u32, store: &Store) -> usize {
        let words = store.words(record);
        let header = words.header(0).load(Relaxed);
        if (header >> 32) as u32 == batch {
            return header as u32 as usize;
        }
        let number = self.chains.len();
        words.header(0).store(u64::from(batch) << 32 | number as u64, Relaxed);
        self.chains.push(Chain {
            record,
            tail: NONE,
            groups: 0,
            reads: NONE,
            reads_count: 0,
            maybe_absent: !words.exists(),
            cursor: AtomicU32::new(NONE),
            link: AtomicU32::new(0),
            first_block: 0,
            blocks: 0,
            next_block: AtomicU32::new(0),
            unread_blocks: AtomicU32::new(0),
        });
        number
    }

    /// Orders the chains, and cuts long tails of reads.
    fn finish(&mut self, tail_block: usize) {
        let numbers = 0..self.chains.len() as u32;
        let is_long = |number: &u32| self.chains[*number as usize].groups >= LONG;
        self.starts.extend(numbers.clone().filter(is_long));
        self.long = self.starts.len() as u32;
        self.starts.extend(numbers.filter(|number| !is_long(number)));
        for chain in &mut self.chains {
            if tail_block == 0 || (chain.reads_count as usize) < 2 * tail_block {
                chain.reads = NONE;
                continue;
            }
            chain.first_block = self.blocks.len() as u32;
            let (mut group, mut at) = (chain.reads, 0);
            while group != NONE {
                if at % tail_block == 0 {
                    self.blocks.push(group);
                }
                (group, at) = (self.groups[group as usize].next, at + 1);
            }
            chain.blocks = self.blocks.len() as u32 - chain.first_block;
            chain.unread_blocks = AtomicU32::new(chain.blocks);
        }
    }
}

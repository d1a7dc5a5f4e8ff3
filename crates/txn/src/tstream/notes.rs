//! Noted transactions of one worker between two punctuations (paper, section 4.2, "stream
//! processing phase").

use super::decision::Missing;
use crate::outcome::{Verdict, decode, encode};
use crate::planted::{Fault, planted};
use crate::program::Program;
use crate::program::unrolled::Unrolled;
use crate::store::{SHARDS, hash_of, shard_of};

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Bits of the number of an operation within its worker, a group or a chain within its shard.
const NUMBER_BITS: u32 = 26;
/// Most operations of a worker in a batch.
pub(crate) const OPS_MAX: usize = (1 << NUMBER_BITS) - 1;

/// A number within a worker or a shard, with the worker's or shard's own.
#[inline]
pub(crate) fn global(of: usize, number: u32) -> u32 {
    (of as u32) << NUMBER_BITS | number
}

/// The opposite of [`global`].
#[inline]
pub(crate) fn local(global: u32) -> (usize, u32) {
    ((global >> NUMBER_BITS) as usize, global & ((1 << NUMBER_BITS) - 1))
}

/// A noted transaction.
#[derive(Debug)]
pub(crate) struct Txn {
    pub(crate) order: u64,
    pub(crate) first_op: u32,
    pub(crate) end_op: u32,
    pub(crate) program: u16,
    pub(crate) missing: Missing,
    verdict: AtomicU64,
}

impl Txn {
    /// The verdict. A transaction without a decision is committed.
    pub(crate) fn verdict(&self) -> Verdict {
        decode(self.verdict.load(Acquire)).unwrap_or(Ok(()))
    }

    pub(crate) fn decide(&self, verdict: Verdict) {
        self.verdict.store(encode(Some(verdict)), Release);
    }
}

/// An access to a key, for the worker that plans the key's shard.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) order: u64,
    /// The key, or where it begins among `keys` if it has several words.
    pub(crate) key: u64,
    pub(crate) op: u32,
    pub(crate) table: u16,
    pub(crate) key_words: u8,
    pub(crate) flags: u8,
}

/// Flags of an entry: the operation writes, it deletes.
pub(crate) const WRITES: u8 = 1;
pub(crate) const DELETES: u8 = 2;

#[derive(Debug)]
pub(crate) struct Notes<E> {
    pub(crate) txns: Vec<Txn>,
    pub(crate) events: Vec<E>,
    pub(crate) unrolled: Unrolled,
    /// Entries of each shard.
    pub(crate) entries: Box<[Vec<Entry>]>,
    pub(crate) keys: Vec<u64>,
    /// Whether transactions were noted in ascending order.
    pub(crate) is_ascending: bool,
}

impl<E> Notes<E> {
    pub(crate) fn new() -> Notes<E> {
        Notes { entries: (0..SHARDS).map(|_| Vec::new()).collect(), ..Notes::hollow() }
    }

    /// Notes without lists for shards, which cost no allocation and can note nothing.
    pub(crate) fn hollow() -> Notes<E> {
        Notes {
            txns: Vec::new(),
            events: Vec::new(),
            unrolled: Unrolled::default(),
            entries: Box::default(),
            keys: Vec::new(),
            is_ascending: true,
        }
    }

    /// Forgets everything, and keeps its memory.
    pub(crate) fn clear(&mut self) {
        self.txns.clear();
        self.events.clear();
        self.unrolled.clear();
        self.entries.iter_mut().for_each(Vec::clear);
        self.keys.clear();
        self.is_ascending = true;
    }

    /// Whether it can take no more operations.
    pub(crate) fn is_full(&self) -> bool {
        self.unrolled.ops.len() > OPS_MAX / 2 || self.unrolled.slots.len() > u32::MAX as usize / 2
    }

    /// Notes an event's transaction.
    pub(crate) fn note(&mut self, order: u64, number: usize, program: &Program<E>, event: E) {
        let txn = self.txns.len() as u32;
        let first_op = self.unrolled.ops.len() as u32;
        let (entries, keys) = (&mut self.entries, &mut self.keys);
        self.unrolled.add(program, &event, txn, |op, statement, table, words| {
            let key = match words {
                [word] => *word,
                _ => {
                    keys.extend_from_slice(words);
                    (keys.len() - words.len()) as u64
                }
            };
            let flags = match (statement.is_write(), statement.is_delete()) {
                (_, true) => WRITES | DELETES,
                (writes, false) => u8::from(writes) * WRITES,
            };
            let key_words = table.key_words as u8;
            let entry = Entry { order, key, op, table: table.number, key_words, flags };
            entries[shard_of(hash_of(words))].push(entry);
        });
        let is_later = self.txns.last().is_none_or(|before| before.order < order);
        self.is_ascending &= is_later || planted(Fault::OrderOfArrival);
        let verdict = AtomicU64::new(encode(None));
        let (end_op, program) = (self.unrolled.ops.len() as u32, number as u16);
        self.txns.push(Txn { order, first_op, end_op, program, missing: Missing::new(), verdict });
        self.events.push(event);
    }

    /// The operations of a transaction.
    #[inline]
    pub(crate) fn ops_of(&self, txn: &Txn) -> std::ops::Range<usize> {
        txn.first_op as usize..txn.end_op as usize
    }

    /// The transaction that an operation belongs to.
    #[inline]
    pub(crate) fn txn_of(&self, op: u32) -> (u32, &Txn) {
        let txn = self.unrolled.ops[op as usize].txn;
        (txn, &self.txns[txn as usize])
    }

    /// Sets the group of an operation.
    pub(crate) fn set_group(&self, op: u32, group: u32) {
        self.unrolled.ops[op as usize].group.store(group, Relaxed);
    }
}

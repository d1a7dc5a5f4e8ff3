//! One transaction's operations and records, for schemes that execute at once.

use std::sync::atomic::Ordering::Relaxed;

use crate::outcome::Verdict;
use crate::program::Program;
use crate::program::run::Images;
use crate::program::unrolled::Unrolled;
use crate::store::{Record, Store, hash_of};

/// All operations of the transaction on one record.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LockAccess {
    pub(crate) record: Record,
    pub(crate) writes: bool,
    /// Position of the request in the record's queue.
    pub(crate) ticket: u64,
}

/// A transaction that is being executed.
#[derive(Debug)]
pub(crate) struct Footprint {
    pub(crate) unrolled: Unrolled,
    pub(crate) accesses: Vec<LockAccess>,
    pub(crate) images: Images,
    /// Records that this worker has made, or may have left without a row.
    pub(crate) doubtful: Vec<Record>,
    seen: Seen,
}

impl Footprint {
    pub(crate) fn new(row_words_max: usize) -> Footprint {
        Footprint {
            unrolled: Unrolled::default(),
            accesses: Vec::new(),
            images: Images::new(row_words_max),
            doubtful: Vec::new(),
            seen: Seen::default(),
        }
    }

    /// Finds the records of an event.
    pub(crate) fn prepare<E>(&mut self, store: &Store, program: &Program<E>, event: &E) {
        let Footprint { unrolled, accesses, seen, doubtful, .. } = self;
        unrolled.clear();
        accesses.clear();
        seen.clear();
        let mut groups = Groups { store, accesses, seen, doubtful, of_op: Vec::new() };
        std::mem::swap(&mut groups.of_op, &mut groups.seen.of_op);
        unrolled.add(program, event, 0, |op, statement, table, key| {
            groups.add(op, table.number, key, statement.is_write(), statement.is_delete());
        });
        let Groups { of_op, seen, .. } = groups;
        for (op, access) in &of_op {
            unrolled.ops[*op as usize].group.store(*access, Relaxed);
        }
        seen.of_op = of_op;
    }

    /// Runs all operations in order. `load` gives a record's row when it is first met.
    pub(crate) fn run<E>(
        &mut self,
        store: &Store,
        program: &Program<E>,
        event: &E,
        load: impl Fn(&LockAccess, &mut [u64]) -> bool,
    ) -> Verdict {
        let Footprint { unrolled, accesses, images, .. } = self;
        images.reset(accesses.len().max(1));
        for op in &unrolled.ops {
            let group = op.group.load(Relaxed) as usize;
            let image = if let Some(access) = accesses.get(group) {
                if !images.is_loaded(group) {
                    let row_words = store.words(access.record).row().len();
                    images.load(group, row_words, |row| load(access, row));
                }
                group
            } else {
                0
            };
            program.run(store, event, unrolled, op, images, image)?;
        }
        Ok(())
    }

    /// Calls `write` with each changed row: the access, whether the row exists, the row.
    pub(crate) fn each_change(
        &self,
        store: &Store,
        mut write: impl FnMut(&LockAccess, bool, &[u64]),
    ) {
        for (number, access) in self.accesses.iter().enumerate().filter(|(_, a)| a.writes) {
            let row_words = store.words(access.record).row().len();
            if let Some((exists, row)) = self.images.changed(number, row_words) {
                write(access, exists, row);
            }
        }
    }
}

struct Groups<'a> {
    store: &'a Store,
    accesses: &'a mut Vec<LockAccess>,
    seen: &'a mut Seen,
    doubtful: &'a mut Vec<Record>,
    of_op: Vec<(u32, u32)>,
}

impl Groups<'_> {
    fn add(&mut self, op: u32, table: u16, key: &[u64], writes: bool, deletes: bool) {
        let hash = hash_of(key);
        let (record, made) = self.store.find_or_add(table, hash, key);
        if made || deletes {
            self.doubtful.push(record);
        }
        let access = match self.seen.find(self.accesses, record, hash) {
            Some(access) => access,
            None => {
                self.accesses.push(LockAccess { record, writes: false, ticket: 0 });
                let access = self.accesses.len() as u32 - 1;
                self.seen.add(access, hash);
                access
            }
        };
        self.accesses[access as usize].writes |= writes;
        self.of_op.push((op, access));
    }
}

/// Up to so many accesses a linear search finds the record; beyond, a table by hash does.
const SEARCHED: usize = 16;

/// Records that the transaction has met.
#[derive(Debug, Default)]
struct Seen {
    /// Pairs of hash and access, sorted into a table with open addresses; used beyond
    /// [`SEARCHED`].
    table: Vec<u32>,
    hashes: Vec<u64>,
    of_op: Vec<(u32, u32)>,
}

const EMPTY: u32 = u32::MAX;

impl Seen {
    fn clear(&mut self) {
        self.table.clear();
        self.hashes.clear();
        self.of_op.clear();
    }

    fn find(&self, accesses: &[LockAccess], record: Record, hash: u64) -> Option<u32> {
        if accesses.len() <= SEARCHED {
            let same = accesses.iter().position(|access| access.record == record);
            return same.map(|access| access as u32);
        }
        let mask = self.table.len() - 1;
        let mut at = hash as usize & mask;
        while self.table[at] != EMPTY {
            if accesses[self.table[at] as usize].record == record {
                return Some(self.table[at]);
            }
            at = (at + 1) & mask;
        }
        None
    }

    fn add(&mut self, access: u32, hash: u64) {
        self.hashes.push(hash);
        if self.hashes.len() <= SEARCHED {
            return;
        }
        if self.table.len() < self.hashes.len() * 2 {
            let slots = (self.hashes.len() * 4).next_power_of_two();
            self.table.clear();
            self.table.resize(slots, EMPTY);
            for access in 0..self.hashes.len() as u32 {
                self.put(access);
            }
            return;
        }
        self.put(access);
    }

    fn put(&mut self, access: u32) {
        let mask = self.table.len() - 1;
        let mut at = self.hashes[access as usize] as usize & mask;
        while self.table[at] != EMPTY {
            at = (at + 1) & mask;
        }
        self.table[at] = access;
    }
}

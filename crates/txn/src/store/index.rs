//! The index of a shard: from a key's hash to the number of its record.
//!
//! Look-ups take no lock. A slot is 0 or a record's number plus one, with 32 bits of the hash above
//! it. When the slots get scarce, a table twice as large is published as the next generation. A
//! look-up in an old generation may miss a record that was added since, so whoever misses looks
//! again under the lock of the shard before it adds the record.

use std::sync::OnceLock;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};

use super::segments::zeros;

const FIRST_SLOTS: usize = 16;
const GENERATIONS: usize = 30;

#[derive(Debug)]
pub(crate) struct Index {
    generations: [OnceLock<Box<[AtomicU64]>>; GENERATIONS],
    current: AtomicU32,
}

#[inline]
fn first_slot(hash: u64, slots: usize) -> usize {
    (hash >> 8) as usize & (slots - 1)
}

#[inline]
fn entry(hash: u64, record: u32) -> u64 {
    hash & !u64::from(u32::MAX) | (u64::from(record) + 1)
}

#[inline]
fn record_of(entry: u64) -> u32 {
    entry as u32 - 1
}

impl Index {
    pub(crate) fn new() -> Index {
        Index { generations: std::array::from_fn(|_| OnceLock::new()), current: AtomicU32::new(0) }
    }

    #[inline]
    fn slots(&self) -> &[AtomicU64] {
        let current = self.current.load(Acquire) as usize;
        self.generations[current].get_or_init(|| zeros(FIRST_SLOTS << current))
    }

    /// The record of this hash for which `is_it` says yes.
    #[inline]
    pub(crate) fn find(&self, hash: u64, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        let slots = self.slots();
        let mut at = first_slot(hash, slots.len());
        loop {
            let word = slots[at].load(Acquire);
            if word == 0 {
                return None;
            }
            if (word ^ hash) >> 32 == 0 && is_it(record_of(word)) {
                return Some(record_of(word));
            }
            at = (at + 1) & (slots.len() - 1);
        }
    }

    /// Adds a new record; `records` is the number of records afterwards. Only under the lock of the
    /// shard. `hash_of` gives the hash of a record.
    pub(crate) fn add(&self, hash: u64, record: u32, records: usize, hash_of: impl Fn(u32) -> u64) {
        let slots = self.slots();
        if records * 2 <= slots.len() {
            return put(slots, hash, record);
        }
        let next = self.current.load(Relaxed) + 1;
        let larger = zeros(slots.len() * 2);
        for word in slots.iter().map(|slot| slot.load(Relaxed)).filter(|word| *word != 0) {
            put(&larger, hash_of(record_of(word)), record_of(word));
        }
        put(&larger, hash, record);
        self.generations[next as usize].set(larger).expect("a generation is made once");
        self.current.store(next, Release);
    }

    /// Removes a record. Only while the caller alone uses the shard.
    pub(crate) fn remove(&self, hash: u64, record: u32, hash_of: impl Fn(u32) -> u64) {
        let slots = self.slots();
        let mask = slots.len() - 1;
        let mut hole = first_slot(hash, slots.len());
        while slots[hole].load(Relaxed) != entry(hash, record) {
            assert_ne!(slots[hole].load(Relaxed), 0, "a removed record is in the index");
            hole = (hole + 1) & mask;
        }
        // Later entries of the run move up, unless they would then stand before their first slot.
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let word = slots[at].load(Relaxed);
            if word == 0 {
                break;
            }
            let home = first_slot(hash_of(record_of(word)), slots.len());
            if at.wrapping_sub(home) & mask >= at.wrapping_sub(hole) & mask {
                slots[hole].store(word, Relaxed);
                hole = at;
            }
        }
        slots[hole].store(0, Release);
    }

    /// Bytes of all generations.
    pub(crate) fn bytes(&self) -> usize {
        self.generations.iter().filter_map(OnceLock::get).map(|slots| slots.len() * 8).sum()
    }
}

fn put(slots: &[AtomicU64], hash: u64, record: u32) {
    let mut at = first_slot(hash, slots.len());
    while slots[at].load(Relaxed) != 0 {
        at = (at + 1) & (slots.len() - 1);
    }
    slots[at].store(entry(hash, record), Release);
}

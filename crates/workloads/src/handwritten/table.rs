//! An open-addressing table that grows in place.
//!
//! A slot's position is the high bits of a multiplicative hash, with linear probing. So slots are
//! nearly in the order of their hashes, whatever the size. Growing by a factor is one sequential
//! pass from the last slot to the first, in which each entry moves to about the same multiple of
//! its position.

use super::kinds::Kind;
use super::memory::Reserved;
use super::vectors;
use crate::error::Result;

/// Slots of an empty table.
const SLOTS_MIN: usize = 1024;

/// Keys hashed at a time. A block's slots are prefetched while the block before is updated.
const BLOCK: usize = 128;

/// How full a table gets before it grows: this many of 16 slots.
const FULL_SIXTEENTHS: usize = 9;

/// Slots that move, or are handed out, at a time: a power of two, at most [`SLOTS_MIN`].
const GROUP: usize = 1024;

/// A hash table from keys to values of one kind.
#[derive(Debug)]
pub(super) struct Table<K: Kind> {
    memory: Reserved<K::Slot>,
    /// Slots in use, a power of two.
    slots: usize,
    /// Keys held.
    live: usize,
}

/// The slots where the search for a block's keys begins.
type Homes<S> = [*mut S; BLOCK];

impl<K: Kind> Table<K> {
    /// An empty table that will never hold more than `keys_max` keys.
    pub(super) fn new(keys_max: usize, huge_pages: bool) -> Result<Table<K>> {
        let mut slots = SLOTS_MIN;
        while full(slots) < keys_max.saturating_add(BLOCK) {
            slots = slots.saturating_mul(K::GROWTH);
        }
        Ok(Table { memory: Reserved::new(slots, huge_pages)?, slots: SLOTS_MIN, live: 0 })
    }

    /// Updates the value of each key with its input.
    pub(super) fn update(&mut self, keys: &[K::Key], inputs: &[K::Input]) {
        vectors::with_avx2(
            #[inline(always)]
            || self.update_blocks(keys, inputs),
        );
    }

    #[inline(always)]
    fn update_blocks(&mut self, keys: &[K::Key], inputs: &[K::Input]) {
        let mut homes = [self.memory.base(); BLOCK];
        let mut next_homes = homes;
        let mut blocks = keys.chunks(BLOCK).zip(inputs.chunks(BLOCK)).peekable();
        if let Some((first, _)) = blocks.peek() {
            self.find_homes(first, &mut homes);
            homes.iter().for_each(|home| prefetch(*home));
        }
        while let Some((keys, inputs)) = blocks.next() {
            if self.live + BLOCK > full(self.slots) {
                self.grow();
                self.find_homes(keys, &mut homes);
            }
            if let Some((next, _)) = blocks.peek() {
                self.find_homes(next, &mut next_homes);
            }
            self.update_block(keys, inputs, &homes, &next_homes);
            std::mem::swap(&mut homes, &mut next_homes);
        }
    }

    /// The homes of at most [`BLOCK`] keys.
    #[inline(always)]
    fn find_homes(&mut self, keys: &[K::Key], homes: &mut Homes<K::Slot>) {
        let shift = shift(self.slots);
        let base = self.memory.base();
        for (home, key) in homes.iter_mut().zip(keys) {
            *home = base.wrapping_add((K::hash(*key) >> shift) as usize);
        }
    }

    /// Updates at most [`BLOCK`] keys, for all of which there is room.
    #[inline(always)]
    fn update_block(
        &mut self,
        keys: &[K::Key],
        inputs: &[K::Input],
        homes: &Homes<K::Slot>,
        next_homes: &Homes<K::Slot>,
    ) {
        let base = self.memory.base();
        let last = base.wrapping_add(self.slots - 1);
        let count = keys.len().min(inputs.len()).min(BLOCK);
        let mut live = self.live;
        for i in 0..count {
            // SAFETY: `i` is below the length of all four. `at` points to a slot in use: a home is
            // numbered by a shifted hash, which has as many bits as number the slots, and the step
            // after the last slot goes to the first.
            unsafe {
                prefetch(*next_homes.get_unchecked(i));
                let (key, input) = (*keys.get_unchecked(i), *inputs.get_unchecked(i));
                let mut at = *homes.get_unchecked(i);
                while !K::is_empty(&*at) && !K::same(&*at, key) {
                    at = if at == last { base } else { at.add(1) };
                }
                if K::is_empty(&*at) {
                    *at = K::first(key, input);
                    live += 1;
                } else {
                    K::update(&mut *at, input);
                }
            }
        }
        self.live = live;
    }

    /// Makes the table larger, in place: from the last group of slots to the first, the slots of
    /// each group move to places after it. What has none there waits until the pass is over: the
    /// first group, slots far from their home, and slots that would land beyond the table's end.
    #[cold]
    #[inline(never)]
    fn grow(&mut self) {
        let before = self.slots;
        self.slots = (before * K::GROWTH).min(self.memory.slots());
        let mut waiting = Vec::new();
        vectors::with_avx2(
            #[inline(always)]
            || self.move_groups(before, &mut waiting),
        );
        let shift = shift(self.slots);
        let slots = self.memory.first(self.slots);
        for slot in waiting {
            let mut to = (K::hash(K::key(&slot)) >> shift) as usize;
            while !K::is_empty(&slots[to]) {
                to = (to + 1) % slots.len();
            }
            slots[to] = slot;
        }
    }

    #[inline(always)]
    fn move_groups(&mut self, before: usize, waiting: &mut Vec<K::Slot>) {
        let shift = shift(self.slots);
        let slots = self.memory.first(self.slots);
        for group in (GROUP..before).step_by(GROUP).rev() {
            let (old, free) = slots[group..].split_at_mut(GROUP);
            // Where the table would begin, so that a place is found without subtracting.
            let base = free.as_mut_ptr().wrapping_sub(group + GROUP);
            let (parts, _) = old.as_chunks_mut::<64>();
            for part in parts {
                let mut taken = K::taken(part);
                while taken != 0 {
                    let slot = &part[taken.trailing_zeros() as usize % 64];
                    taken &= taken - 1;
                    let home = (K::hash(K::key(slot)) >> shift) as usize;
                    let place = base.wrapping_add(home);
                    // SAFETY: `home` is below the number of slots, since a shifted hash has as many
                    // bits as number the slots. So a place not before the free slots is among them.
                    unsafe {
                        if place >= free.as_mut_ptr() && K::is_empty(&*place) {
                            *place = *slot;
                            continue;
                        }
                    }
                    move_aside::<K>(slot, home.wrapping_sub(group + GROUP), free, waiting);
                }
            }
            clear::<K>(old);
        }
        let first = &mut slots[..GROUP];
        waiting.extend(first.iter().filter(|slot| !K::is_empty(slot)));
        clear::<K>(first);
    }

    /// Adds another table's values; the other table stays unchanged.
    pub(super) fn merge(&mut self, other: &mut Table<K>) {
        if other.live == 0 {
            return;
        }
        // Slots come in the order of their hashes: a smaller table would have them all in one run.
        while self.slots < other.slots {
            self.grow();
        }
        for part in other.memory.first(other.slots).chunks(BLOCK) {
            if self.live + BLOCK > full(self.slots) {
                self.grow();
            }
            let (shift, slots) = (shift(self.slots), self.slots);
            let own = self.memory.first(slots);
            for slot in part.iter().filter(|slot| !K::is_empty(slot)) {
                let key = K::key(slot);
                let mut at = (K::hash(key) >> shift) as usize;
                while !K::is_empty(&own[at]) && !K::same(&own[at], key) {
                    at = (at + 1) % slots;
                }
                if K::is_empty(&own[at]) {
                    own[at] = *slot;
                    self.live += 1;
                } else {
                    K::combine(&mut own[at], slot);
                }
            }
        }
    }

    /// Whether it holds no key.
    pub(super) fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// Empties it.
    pub(super) fn clear(&mut self) {
        self.drain(clear::<K>);
    }

    /// The same table, emptied.
    pub(super) fn emptied(mut self) -> Table<K> {
        self.clear();
        self
    }

    /// Hands the slots, also empty ones, to `take` in groups, which empties them. Leaves the table
    /// small.
    #[inline(always)]
    pub(super) fn drain(&mut self, take: impl FnMut(&mut [K::Slot])) {
        if self.live > 0 {
            self.memory.first(self.slots).chunks_mut(GROUP).for_each(take);
        }
        (self.slots, self.live) = (SLOTS_MIN, 0);
    }
}

/// Moves a slot whose place `after` is taken, or is none, to the next free one, or lets it wait.
#[inline(never)]
fn move_aside<K: Kind>(
    slot: &K::Slot,
    after: usize,
    free: &mut [K::Slot],
    waiting: &mut Vec<K::Slot>,
) {
    match free.iter_mut().skip(after).find(|place| K::is_empty(place)) {
        Some(place) => *place = *slot,
        None => waiting.push(*slot),
    }
}

/// Empties slots, in parts: of a long `fill` the standard library would make a `rep stosb`, which
/// is no faster and which valgrind counts as an instruction per byte.
#[inline(always)]
pub(super) fn clear<K: Kind>(slots: &mut [K::Slot]) {
    for part in slots.chunks_mut(32) {
        part.fill(K::EMPTY);
    }
}

/// Keys that a table of so many slots may hold.
#[inline(always)]
fn full(slots: usize) -> usize {
    slots / 16 * FULL_SIXTEENTHS
}

/// The shift that leaves the high bits of a hash, as many as number `slots`.
#[inline(always)]
fn shift(slots: usize) -> u32 {
    u32::BITS - slots.trailing_zeros()
}

/// Asks for a cache line that is about to be written.
#[inline(always)]
fn prefetch<T>(slot: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch is allowed at every address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(slot.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = slot;
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::super::kinds::{self, Pair};
    use super::*;

    type Count = kinds::Count<2>;

    /// A number whose hash is `hash`: the inverse of the hash's factor, by Newton's iteration.
    fn key_of(hash: u32) -> i64 {
        let factor = Count::hash(1);
        let inverse =
            (0..5).fold(factor, |x, _| x.wrapping_mul(2u32.wrapping_sub(factor.wrapping_mul(x))));
        i64::from(hash.wrapping_mul(inverse))
    }

    /// Counts keys with tables of every growth.
    fn check(keys: &[i64], keys_max: usize) {
        check_growth::<2>(keys, keys_max);
        check_growth::<4>(keys, keys_max);
        check_growth::<8>(keys, keys_max);
    }

    /// Counts keys with a table, draining it, and with a hash map.
    fn check_growth<const GROWTH: usize>(keys: &[i64], keys_max: usize) {
        let mut table = Table::<kinds::Count<GROWTH>>::new(keys_max, false).expect("little memory");
        // A second round: a drained table is as good as a new one.
        for _ in 0..2 {
            let mut expected: HashMap<i64, u64> = HashMap::new();
            for part in keys.chunks(1000) {
                table.update(part, &vec![(); part.len()]);
                part.iter().for_each(|key| *expected.entry(*key).or_default() += 1);
            }
            assert_eq!(table.live, expected.len());
            assert!(table.slots == SLOTS_MIN || table.live + BLOCK > full(SLOTS_MIN));
            let mut found = HashMap::new();
            table.drain(|slots| {
                for slot in slots.iter_mut().filter(|slot| !Count::is_empty(slot)) {
                    assert!(found.insert(slot.key, slot.value).is_none(), "{} twice", slot.key);
                    *slot = Pair { key: 0, value: 0 };
                }
            });
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn keys_that_collide_wrap_around_and_grow_are_counted() {
        assert_eq!(Count::hash(key_of(0xFFFF_FFF0)), 0xFFFF_FFF0);
        for hash in [0u32, 1 << 31, u32::MAX - 5000, 0xFF00_0000] {
            // Neighbours in hash: one long run of slots, at the start, inside or round the end.
            let keys: Vec<i64> = (0..6000).map(|i| key_of(hash.wrapping_add(i))).collect();
            check(&keys, keys.len());
            let twice: Vec<i64> = keys.iter().rev().chain(&keys).copied().collect();
            check(&twice, keys.len());
        }
    }

    #[test]
    fn dense_negative_and_wide_keys_are_counted() {
        check(&(-5000..5000).collect::<Vec<i64>>(), 10_000);
        check(&(0..10_000).map(|i| i << 32).collect::<Vec<i64>>(), 10_000);
        check(&(0..100_000).map(|i| i % 700).collect::<Vec<i64>>(), 100_000);
        check(&[i64::MIN, i64::MAX, 0, -1, 0], 5);
        check(&[], 0);
    }
}

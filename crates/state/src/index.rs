//! Hash index of a table: from a key's hash to its row's number.
//!
//! Open addressing with linear probing over 8-byte entries: the upper half of the key's hash above,
//! the row number below. An entry whose row number is below the log's base is *absent*, which is how
//! sealing a log empties its index in constant time. The slot follows from the high bits of the hash,
//! so growing is one pass over the old slots that writes the new ones almost in order.

use std::mem;

use crate::log::RowId;

/// Slots at the start: 8 KiB.
const FIRST_SLOTS: usize = 1024;
/// Up to this many slots (512 KiB) the index doubles when it is half full, which costs little memory
/// and finds most keys at first sight. Above, it grows by a half when more than 3 of 4 slots are
/// taken (a miss then probes 8, about a cache line), so that it is never less than half full: 16
/// bytes per key at the most.
const SMALL_SLOTS: usize = 1 << 16;

/// An index up to this size, with its rows, is taken to fit the second-level cache.
pub(crate) const NEAR_INDEX_BYTES: usize = 1 << 20;

/// How many keys an index of this many slots takes.
fn capacity(slots: usize) -> usize {
    if slots <= SMALL_SLOTS { slots / 2 } else { slots / 4 * 3 }
}

#[derive(Debug)]
pub(crate) struct Index {
    slots: Vec<u64>,
    /// Entries of the present generation.
    len: usize,
    grow_at: usize,
    /// Keys to make room for at once when the first come.
    expected: usize,
    pub(crate) growths: u64,
}

impl Index {
    pub(crate) fn new(expected: usize) -> Index {
        Index { slots: Vec::new(), len: 0, grow_at: 0, expected, growths: 0 }
    }

    /// Number of keys.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn bytes(&self) -> usize {
        self.slots.len() * 8
    }

    /// Makes room for `count` more keys; `base` tells which entries are present.
    pub(crate) fn reserve(&mut self, count: usize, base: RowId) {
        if self.len + count <= self.grow_at {
            return;
        }
        let needed = (self.len + count).max(self.expected);
        let mut slots = self.slots.len().max(FIRST_SLOTS / 2);
        while capacity(slots) < needed {
            slots = if slots < SMALL_SLOTS { slots * 2 } else { slots + slots / 2 };
        }
        if !self.slots.is_empty() {
            self.growths += 1;
        }
        let old = mem::replace(&mut self.slots, zeroed_slots(slots));
        self.grow_at = capacity(slots);
        self.refill(&old, base);
    }

    /// Enters the entries of a smaller index that are present.
    fn refill(&mut self, old: &[u64], base: RowId) {
        let (count, first) = (self.slots.len() as u64, self.slots.as_mut_ptr());
        let last = first.wrapping_add(self.slots.len());
        for &entry in old {
            if (entry as u32) < base {
                continue;
            }
            let mut slot = first.wrapping_add(((entry >> 32).wrapping_mul(count) >> 32) as usize);
            // SAFETY: `slot` is one of the slots: a fraction of their count, or wrapped around; and
            // there is an empty one, since the index is larger than the old one was full.
            unsafe {
                while *slot != 0 {
                    slot = slot.add(1);
                    if slot == last {
                        slot = first;
                    }
                }
                *slot = entry;
            }
        }
    }

    /// Empties the index in constant time: every entry is below the log's new base.
    pub(crate) fn new_generation(&mut self) {
        self.len = 0;
    }

    /// Forgets everything, also the memory: for the rare case that row numbers start over.
    pub(crate) fn reset(&mut self) {
        *self = Index { growths: self.growths, ..Index::new(0) };
    }

    /// The first slot in which an entry with this upper half of its hash may stand.
    #[inline(always)]
    pub(crate) fn home(&self, hash_high: u64) -> usize {
        ((hash_high * self.slots.len() as u64) >> 32) as usize
    }

    /// The slot to look at after `slot`.
    #[inline(always)]
    pub(crate) fn after(&self, slot: usize) -> usize {
        let next = slot + 1;
        if next == self.slots.len() { 0 } else { next }
    }

    /// The entry in `slot`.
    ///
    /// # Safety
    /// `slot` must come from `home` or `after`.
    #[inline(always)]
    pub(crate) unsafe fn get(&self, slot: usize) -> u64 {
        debug_assert!(slot < self.slots.len());
        // SAFETY: `home` and `after` only return slots that exist.
        unsafe { *self.slots.get_unchecked(slot) }
    }

    /// Fills an absent `slot`.
    ///
    /// # Safety
    /// `slot` must come from `home` or `after`, and room for the key must have been reserved.
    #[inline(always)]
    pub(crate) unsafe fn set(&mut self, slot: usize, hash_high: u64, row: RowId) {
        debug_assert!(slot < self.slots.len() && self.len < self.grow_at);
        // SAFETY: as in `get`.
        unsafe { *self.slots.get_unchecked_mut(slot) = hash_high << 32 | u64::from(row) };
        self.len += 1;
    }

    /// The slots, for a loop that keeps them in registers.
    #[inline(always)]
    pub(crate) fn slots(&mut self) -> &mut [u64] {
        &mut self.slots
    }

    /// Counts keys whose entries were written through `slots`.
    #[inline(always)]
    pub(crate) fn add_len(&mut self, new: usize) {
        self.len += new;
        debug_assert!(self.len <= self.grow_at);
    }

    /// Asks for the cache lines in which these hashes are looked for. Where the index is larger than
    /// a second-level cache, also for the next line if the search may well run into it.
    pub(crate) fn prefetch(&self, hashes: &[u64]) {
        let place = |hash: u64| self.slots.as_ptr().wrapping_add(self.home(hash >> 32));
        if self.bytes() > NEAR_INDEX_BYTES {
            for &hash in hashes {
                prefetch(place(hash));
                prefetch(place(hash).wrapping_add(4));
            }
        } else {
            hashes.iter().for_each(|hash| prefetch(place(*hash)));
        }
    }
}

/// Asks for the cache line at `place`.
#[inline(always)]
pub(crate) fn prefetch(place: *const u64) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch has no effect on memory, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(place.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}

/// Zeroed memory, on huge pages if it is large: a probe then costs one miss and not two.
fn zeroed_slots(count: usize) -> Vec<u64> {
    let slots = vec![0u64; count];
    #[cfg(target_os = "linux")]
    if count * 8 >= 4 << 20 {
        let page = 2 << 20;
        let start = (slots.as_ptr() as usize).next_multiple_of(page);
        let end = slots.as_ptr() as usize + count * 8;
        // SAFETY: the range lies within the vector; the advice changes no contents. That it fails
        // where huge pages are not to be had is all right.
        unsafe { libc::madvise(start as *mut libc::c_void, end - start, libc::MADV_HUGEPAGE) };
    }
    slots
}

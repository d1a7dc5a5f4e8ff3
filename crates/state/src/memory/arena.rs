//! The arena of a log: variable-length data, that is keys and values whose size a row cannot fix.
//!
//! Rows refer to the arena by offset, so a log and its arena move together without being rewritten.

use std::sync::Arc;

use crate::memory::heap::Heap;
use crate::memory::rooms::Rooms;
use crate::memory::words::Words;

/// A growing run of 8-byte words addressed by offset.
///
/// Offsets count words, so a 32-bit reference reaches 32 GiB.
#[derive(Debug, Default)]
pub struct Arena {
    words: Words,
    /// Where it grows, if not in the allocator's memory.
    heap: Option<Arc<Heap>>,
    /// Words that values have left behind when they moved.
    dead_words: usize,
    /// Rooms that blobs have left.
    rooms: Rooms,
    /// Words of the largest blob, or piece of a chain, that it has had.
    largest_words: usize,
    /// Texts of keys, by their hashes, of which each may be that of many keys.
    texts: Option<Box<[u64; TEXTS]>>,
}

/// Texts of keys that are remembered.
const TEXTS: usize = 16;

/// A piece of a chain has no more room, in words, than twice that of the one before it, or than
/// this, unless so much is put into it at once.
pub(crate) const ROOM_WORDS_MAX: usize = 2 << 10;

/// Allocated memory up to this size is never freed by clearing.
const KEPT_BYTES: usize = 1 << 10;

/// A reference as rows hold it: the length in bytes above, the offset in words below.
#[inline]
pub(crate) fn pack(len_bytes: usize, offset_words: u32) -> u64 {
    ((len_bytes as u64) << 32) | u64::from(offset_words)
}

/// The length in bytes of a packed reference.
#[inline]
pub(crate) fn packed_len(reference: u64) -> usize {
    (reference >> 32) as usize
}

impl Arena {
    /// From now on it grows in this heap.
    pub(crate) fn use_heap(&mut self, heap: Option<&Arc<Heap>>) {
        if heap.is_some() && self.heap.is_none() {
            self.heap = heap.cloned();
        }
    }

    /// Hands out all values, and goes on empty.
    pub(crate) fn seal(&mut self) -> Arena {
        let next = Arena { heap: self.heap.clone(), ..Arena::default() };
        std::mem::replace(self, next)
    }

    /// Copies `bytes` in and returns the packed reference.
    ///
    /// # Panics
    /// If one value has 4 GiB or the arena 32 GiB; the memory budget ends a job long before.
    pub fn push_bytes(&mut self, bytes: &[u8]) -> u64 {
        assert!(bytes.len() < u32::MAX as usize, "a value of 4 GiB");
        let offset = self.alloc_words(bytes.len().div_ceil(8));
        self.write_bytes(offset, bytes);
        pack(bytes.len(), offset)
    }

    /// As [`Arena::push_bytes`], for the text of a key, which is never changed: keys with the same
    /// text may share its place.
    #[inline]
    pub(crate) fn push_text(&mut self, text: &[u8], hash: u64) -> u64 {
        let place = hash as usize % TEXTS;
        let known = self.texts.as_ref().map(|texts| texts[place]);
        if let Some(known) = known.filter(|known| self.bytes(*known) == text) {
            return known;
        }
        let pushed = self.push_bytes(text);
        self.texts.get_or_insert_with(|| Box::new([0; TEXTS]))[place] = pushed;
        pushed
    }

    /// Makes room for `count` zeroed words and returns their offset.
    ///
    /// # Panics
    /// If the arena would exceed 32 GiB.
    pub fn alloc_words(&mut self, count: usize) -> u32 {
        let offset = self.words.len();
        assert!(offset + count <= u32::MAX as usize, "an arena of 32 GiB");
        if self.words.capacity() - offset < count {
            // By a half, not by doubling: idle room is memory that keys could use.
            let capacity = offset + count.max(offset / 2).max(64);
            self.words.reserve(capacity, self.heap.as_ref());
        }
        self.words.extend_zeroed(count);
        offset as u32
    }

    fn write_bytes(&mut self, offset: u32, bytes: &[u8]) {
        let room = &mut self.words[offset as usize..offset as usize + bytes.len().div_ceil(8)];
        // SAFETY: `room` is at least `bytes.len()` bytes of initialised, exclusively borrowed
        // memory.
        let room =
            unsafe { std::slice::from_raw_parts_mut(room.as_mut_ptr().cast::<u8>(), bytes.len()) };
        room.copy_from_slice(bytes);
    }

    /// The bytes behind a packed reference.
    #[inline]
    pub fn bytes(&self, reference: u64) -> &[u8] {
        let (len, offset) = (packed_len(reference), reference as u32 as usize);
        let words = &self.words[offset..offset + len.div_ceil(8)];
        // SAFETY: `words` covers `len` bytes and u64 memory is readable as bytes.
        unsafe { std::slice::from_raw_parts(words.as_ptr().cast::<u8>(), len) }
    }

    /// Where the bytes behind a packed reference begin, to ask for their cache line.
    #[inline]
    pub(crate) fn place(&self, reference: u64) -> *const u64 {
        self.words.as_ptr().wrapping_add(reference as u32 as usize)
    }

    /// Overwrites the value behind `reference` if the new one fits in its place; otherwise appends.
    pub fn replace_bytes(&mut self, reference: u64, bytes: &[u8]) -> u64 {
        if bytes.len().div_ceil(8) <= packed_len(reference).div_ceil(8) {
            let offset = reference as u32;
            self.write_bytes(offset, bytes);
            pack(bytes.len(), offset)
        } else {
            self.leave(packed_len(reference).div_ceil(8));
            self.push_bytes(bytes)
        }
    }

    /// Notes that a value of so many words has moved elsewhere.
    pub(crate) fn leave(&mut self, words: usize) {
        self.dead_words += words;
    }

    /// Leaves a blob's room to others.
    pub(crate) fn leave_room(&mut self, offset: u32, words: usize) {
        self.leave(words);
        self.rooms.put(&mut self.words, offset, words);
    }

    /// A room of at least so many words that a blob has left, and how many words there are. They
    /// have any content.
    pub(crate) fn take_room(&mut self, words: usize) -> Option<(u32, usize)> {
        let (offset, words) = self.rooms.take(&self.words, words)?;
        self.dead_words -= words.min(self.dead_words);
        Some((offset, words))
    }

    /// Notes a blob, or a piece of a chain, of so many words.
    pub(crate) fn note_blob(&mut self, words: usize) {
        self.largest_words = self.largest_words.max(words);
    }

    /// Whether so much of it has been left behind that it is worth moving the rest.
    pub(crate) fn is_wasteful(&self) -> bool {
        const DEAD_WORDS_MIN: usize = 512;
        self.dead_words > DEAD_WORDS_MIN && 2 * self.dead_words > self.words.len()
    }

    /// Bytes by which blobs may grow beyond the new inputs' own bytes: blobs that move take twice
    /// the room; and compaction takes some for a moment.
    pub(crate) fn moving_bytes(&self, inputs: usize) -> usize {
        let used = self.words.len();
        let moving = used.min(self.largest_words.saturating_mul(inputs));
        8 * (2 * moving + used / 2)
    }

    /// Bytes of the room that so many chains may have at most in their next pieces; and what
    /// compaction takes for a moment, if there is anything to leave behind.
    pub(crate) fn chaining_bytes(&self, chains: usize) -> usize {
        let used = self.words.len();
        let room = (2 * self.largest_words).min(ROOM_WORDS_MAX);
        let left = if self.dead_words > 0 { used / 2 } else { 0 };
        8 * (2 * used).min(chains.saturating_mul(room)) + 8 * left
    }

    /// Whether nothing stands behind an offset.
    pub(crate) fn ends_at(&self, offset: usize) -> bool {
        self.words.len() == offset
    }

    /// Copies words to where others stand.
    pub(crate) fn copy_within(&mut self, from: std::ops::Range<usize>, to: usize) {
        self.words.copy_within(from, to);
    }

    /// The bytes behind a packed reference, to be changed.
    pub(crate) fn bytes_mut(&mut self, reference: u64) -> &mut [u8] {
        let (len, offset) = (packed_len(reference), reference as u32 as usize);
        let words = &mut self.words[offset..offset + len.div_ceil(8)];
        // SAFETY: `words` covers `len` bytes of initialised, exclusively borrowed memory.
        unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast::<u8>(), len) }
    }

    /// `count` words at `offset`.
    pub fn words(&self, offset: u32, count: usize) -> &[u64] {
        &self.words[offset as usize..offset as usize + count]
    }

    /// `count` words at `offset`, to be changed.
    pub fn words_mut(&mut self, offset: u32, count: usize) -> &mut [u64] {
        &mut self.words[offset as usize..offset as usize + count]
    }

    /// Mutable words from an offset on; empty if the offset lies outside.
    #[inline(always)]
    pub(crate) fn rest_mut(&mut self, offset: u64) -> &mut [u64] {
        self.words.get_mut(offset as usize..).unwrap_or_default()
    }

    /// An arena of these words, as those of another.
    pub fn from_words(words: Vec<u64>) -> Arena {
        Arena { words: words.into(), ..Arena::default() }
    }

    /// All words in use.
    pub fn all_words(&self) -> &[u64] {
        &self.words
    }

    /// Whether what a packed reference means lies inside.
    pub(crate) fn holds(&self, reference: u64) -> bool {
        let offset = reference as u32 as usize;
        offset + packed_len(reference).div_ceil(8) <= self.words.len()
    }

    /// Bytes in use.
    pub fn used_bytes(&self) -> usize {
        self.words.len() * 8
    }

    /// Bytes by which it grows at the most if `bytes` more are put into it.
    pub(crate) fn growth_bytes(&self, bytes: usize) -> usize {
        let (end, allocated) = (self.used_bytes() + bytes, self.allocated_bytes());
        let new = end + end / 2 + 512;
        match &self.heap {
            _ if end <= allocated => 0,
            None => new.saturating_sub(allocated),
            Some(_) => self.words.growth_in_heap(new),
        }
    }

    /// Gives back what is allocated and not in use.
    pub(crate) fn trim(&mut self) {
        self.words.shrink();
    }

    /// Forgets all values. Allocated memory stays if there are at most `kept_bytes_max` bytes, or
    /// little; in a heap, which other tables need, only if there is little.
    pub(crate) fn clear_and_keep(&mut self, kept_bytes_max: usize) {
        (self.dead_words, self.largest_words, self.rooms) = (0, 0, Rooms::default());
        self.texts = None;
        let kept_bytes_max = if self.heap.is_some() { 0 } else { kept_bytes_max };
        if self.allocated_bytes() <= kept_bytes_max.max(KEPT_BYTES) {
            self.words.clear();
        } else {
            self.words = Words::default();
        }
    }

    /// Bytes allocated.
    pub fn allocated_bytes(&self) -> usize {
        self.words.capacity() * 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_keys_share_their_place() {
        let mut arena = Arena::default();
        let first = arena.push_text(b"2026-11-28", 7);
        assert_eq!(arena.push_text(b"2026-11-28", 7), first);
        let other = arena.push_text(b"2026-11-29", 7);
        assert_eq!(
            (arena.bytes(first), arena.bytes(other)),
            (&b"2026-11-28"[..], &b"2026-11-29"[..])
        );
        let used = arena.used_bytes();
        assert_eq!(arena.push_text(b"2026-11-29", 7), other);
        assert_eq!(arena.used_bytes(), used);
        drop(arena.seal());
        let again = arena.push_text(b"2026-11-29", 7);
        assert_eq!(arena.bytes(again), b"2026-11-29");
        arena.clear_and_keep(1 << 20);
        let again = arena.push_text(b"2026-11-29", 7);
        assert_eq!((arena.bytes(again), arena.used_bytes()), (&b"2026-11-29"[..], 16));
    }

    #[test]
    fn values_come_back_and_can_be_replaced() {
        let mut arena = Arena::default();
        let a = arena.push_bytes(b"user-00000012345");
        let empty = arena.push_bytes(b"");
        let b = arena.push_bytes("Übergröße".as_bytes());
        assert_eq!(arena.bytes(a), b"user-00000012345");
        assert_eq!(arena.bytes(empty), b"");
        let shorter = arena.replace_bytes(a, b"user-9");
        assert_eq!(arena.bytes(shorter), b"user-9");
        let longer = arena.replace_bytes(b, &[7; 100]);
        assert_eq!(arena.bytes(longer), &[7; 100]);
    }
}

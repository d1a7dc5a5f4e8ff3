//! Segments: sealed rows for a leader.

use crate::memory::arena::Arena;
use crate::memory::hash::{hash_each_word, hash_words};
use crate::memory::log::{Chunk, ChunkPool};
use crate::memory::scratch::Scratch;
use crate::table::layout::RowLayout;

/// Sealed rows for a leader: immutable, position-independent, without an index.
#[derive(Debug)]
pub struct Segment {
    pub(crate) chunks: Vec<Chunk>,
    pub(crate) arena: Arena,
    pub(crate) rows: usize,
}

impl Segment {
    /// Rows in it.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Bytes allocated.
    pub fn bytes(&self) -> usize {
        self.chunks.iter().map(Chunk::bytes).sum::<usize>() + self.arena.allocated_bytes()
    }

    /// The hash of its first row's key.
    pub(crate) fn first_hash(&self, layout: &RowLayout, scratch: &mut Scratch) -> u64 {
        Sources::new(&self.chunks[0], 0, layout).gather_keys(1, layout, scratch);
        scratch.hashes[0]
    }

    /// Gives the memory of a merged segment to the pool.
    pub fn recycle(self, pool: &mut ChunkPool) {
        self.chunks.into_iter().for_each(|chunk| pool.give(chunk));
    }
}

/// Consecutive rows of a chunk.
#[derive(Clone, Copy)]
pub(crate) struct Sources {
    first: *const u64,
    row_words: usize,
}

impl Sources {
    pub(crate) fn new(chunk: &Chunk, start: usize, layout: &RowLayout) -> Sources {
        let row_words = layout.row_words();
        Sources { first: chunk.first().wrapping_add(start * row_words), row_words }
    }

    /// The rows in `words`.
    pub(crate) fn of(words: &[u64], row_words: usize) -> Sources {
        Sources { first: words.as_ptr(), row_words }
    }

    /// The rows from `start` on.
    pub(crate) fn from(&self, start: usize) -> Sources {
        Sources { first: self.place(start), ..*self }
    }

    #[inline(always)]
    pub(crate) fn place(&self, row: usize) -> *const u64 {
        self.first.wrapping_add(row * self.row_words)
    }

    /// Reads the first word of each of the first `count` rows: keys that have one.
    pub(crate) fn gather_words(&self, count: usize, words: &mut Vec<u64>) {
        words.resize(count, 0);
        for (k, word) in words.iter_mut().enumerate() {
            // SAFETY: the chunk's rows are written and have at least one word.
            *word = unsafe { *self.place(k) };
        }
    }

    /// Reads the keys of the first `count` rows into the scratch buffers, and hashes them.
    pub(crate) fn gather_keys(&self, count: usize, layout: &RowLayout, scratch: &mut Scratch) {
        let Scratch { hashes, words, .. } = scratch;
        let width = layout.key_words();
        words.resize(count * width, 0);
        hashes.resize(count, 0);
        if layout.has_word_keys() {
            self.gather_words(count, words);
            hash_each_word(words, hashes);
            return;
        }
        for (k, hash) in hashes.iter_mut().enumerate() {
            let key = &mut words[k * width..(k + 1) * width];
            // SAFETY: the chunk's rows are written and have at least `width` words.
            key.copy_from_slice(unsafe { std::slice::from_raw_parts(self.place(k), width) });
            for &var in layout.var_words() {
                key[var] &= !0xFFFF_FFFF; // the offset is no part of the key
            }
            *hash = hash_words(key);
        }
        if let Some(prefix) = layout.prefix() {
            prefix.lead(words, width, hashes);
        }
    }
}

//! Placeholders: values that accesses leave for later statements and for post_process (paper,
//! section 4.2, figure 5).

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::store::{load_words, store_words};

/// Placeholders of many transactions. A placeholder is a word with its width and whether the row
/// exists, and then the row.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    words: Vec<AtomicU64>,
}

/// The number of no placeholder.
pub(crate) const NO_SLOT: u32 = u32::MAX;

impl Slots {
    pub(crate) fn clear(&mut self) {
        self.words.clear();
    }

    /// Words of all placeholders.
    pub(crate) fn len(&self) -> usize {
        self.words.len()
    }

    /// An empty placeholder for a row of so many words.
    pub(crate) fn reserve(&mut self, row_words: usize) -> u32 {
        let slot = self.words.len();
        self.words.push(AtomicU64::new((row_words as u64) << 1));
        self.words.resize_with(slot + 1 + row_words, || AtomicU64::new(0));
        slot as u32
    }

    #[inline]
    pub(crate) fn fill(&self, slot: u32, exists: bool, row: &[u64]) {
        let words = &self.words[slot as usize..slot as usize + 1 + row.len()];
        words[0].store((row.len() as u64) << 1 | u64::from(exists), Relaxed);
        store_words(&words[1..], row);
    }

    /// Copies a placeholder's row out; returns whether the row exists.
    #[inline]
    pub(crate) fn load(&self, slot: u32, row: &mut [u64]) -> bool {
        let words = &self.words[slot as usize..slot as usize + 1 + row.len()];
        load_words(&words[1..], row);
        words[0].load(Relaxed) & 1 != 0
    }

    #[inline]
    pub(crate) fn value(&self, slot: u32) -> Value<'_> {
        let head = self.words[slot as usize].load(Relaxed);
        let first = slot as usize + 1;
        Value { exists: head & 1 != 0, words: &self.words[first..first + (head >> 1) as usize] }
    }
}

/// The row that an access has read or written.
#[derive(Debug, Clone, Copy)]
pub struct Value<'a> {
    exists: bool,
    words: &'a [AtomicU64],
}

impl Value<'_> {
    /// Whether there is a row. Only [`find`](crate::Program::find) may meet none.
    pub fn exists(&self) -> bool {
        self.exists
    }

    /// A word of the row.
    ///
    /// # Panics
    /// If the row has no such word.
    #[inline]
    pub fn word(&self, column: usize) -> u64 {
        self.words[column].load(Relaxed)
    }

    /// A word of the row as a signed number.
    ///
    /// # Panics
    /// If the row has no such word.
    #[inline]
    pub fn int(&self, column: usize) -> i64 {
        self.word(column) as i64
    }

    /// All words of the row.
    pub fn words(&self) -> impl Iterator<Item = u64> + '_ {
        self.words.iter().map(|word| word.load(Relaxed))
    }
}

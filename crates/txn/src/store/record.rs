//! A record in memory: headers, key, row.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Words before the key.
///
/// Word 0 says whether the row exists; LWM keeps the newest version there, too. Words 1 and 2
/// belong to the scheme: chains of tstream, queues of LAL and LWM, locks of NOCC.
pub(crate) const HEADER_WORDS: usize = 3;

/// Address of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) table: u16,
    pub(crate) shard: u16,
    pub(crate) number: u32,
}

/// The words of a record.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RecordWords<'a> {
    pub(crate) words: &'a [AtomicU64],
    pub(crate) key_words: usize,
}

impl<'a> RecordWords<'a> {
    /// Word 0: the lowest bit says whether the row exists.
    #[inline]
    pub(crate) fn existence(self) -> &'a AtomicU64 {
        &self.words[0]
    }

    /// A header of the scheme, 0 or 1.
    #[inline]
    pub(crate) fn header(self, number: usize) -> &'a AtomicU64 {
        &self.words[1 + number]
    }

    #[inline]
    pub(crate) fn exists(self) -> bool {
        self.existence().load(Relaxed) & 1 != 0
    }

    #[inline]
    pub(crate) fn key(self) -> &'a [AtomicU64] {
        &self.words[HEADER_WORDS..HEADER_WORDS + self.key_words]
    }

    #[inline]
    pub(crate) fn row(self) -> &'a [AtomicU64] {
        &self.words[HEADER_WORDS + self.key_words..]
    }

    /// Copies the row out; returns whether it exists.
    #[inline]
    pub(crate) fn load(self, row: &mut [u64]) -> bool {
        load_words(self.row(), row);
        self.exists()
    }

    /// Replaces the row.
    #[inline]
    pub(crate) fn store(self, exists: bool, row: &[u64]) {
        store_words(self.row(), row);
        self.existence().store(u64::from(exists), Relaxed);
    }
}

#[inline]
pub(crate) fn load_words(from: &[AtomicU64], to: &mut [u64]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = from.load(Relaxed);
    }
}

#[inline]
pub(crate) fn store_words(to: &[AtomicU64], from: &[u64]) {
    for (to, from) in to.iter().zip(from) {
        to.store(*from, Relaxed);
    }
}

//! Prefix of a key: the part that decides about the key's leader.

use crate::memory::hash::{hash_word, hash_words};
use crate::table::partition::PARTITIONS;

/// The first part of keys, if the leader follows from it alone: keys with the same prefix have the
/// same leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefix {
    /// How many words of a key belong to it; the first are those.
    pub words: usize,
    /// Which bits of the first word belong to it, if that word says which parts of the key are
    /// NULL.
    pub nulls: Option<u64>,
}

impl Prefix {
    /// Gives the hashes of some keys, `width` words each, the partitions of their prefixes.
    ///
    /// Like the hash itself, this is part of the state's contract: the partition is that of the
    /// hash of the prefix's words, without that of NULL bits, XOR the hash of its NULL bits.
    pub fn lead(&self, words: &[u64], width: usize, hashes: &mut [u64]) {
        let low = PARTITIONS as u64 - 1;
        for (key, hash) in words.chunks_exact(width).zip(hashes) {
            let prefix = match self.nulls {
                Some(nulls) => hash_words(&key[1..self.words]) ^ hash_word(key[0] & nulls),
                None => hash_words(&key[..self.words]),
            };
            *hash = *hash & !low | prefix & low;
        }
    }

    /// Makes the words of a key's prefix, of which the references `vars` lead into an arena, a key
    /// of its own.
    pub(crate) fn make_key(&self, key: &mut [u64], vars: &[usize]) {
        if let Some(nulls) = self.nulls {
            key[0] &= nulls;
        }
        vars.iter().for_each(|var| key[*var] &= !0xFFFF_FFFF);
    }
}

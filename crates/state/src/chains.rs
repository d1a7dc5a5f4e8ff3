//! Rows that are found by their keys, several of which may have the same one: an index over rows
//! that stand elsewhere, which a join is matched with (paper, section 5.2).
//!
//! Rows are numbered in the order in which they are added. Those whose hashes end alike are a
//! chain, newest first. Looking a block of keys up takes two passes, so that the cache misses of
//! all of them are on their way at once: first where their chains begin, then what stands there.

/// No row: the end of a chain.
const NONE: u32 = u32::MAX;

/// Rows by their keys. A key is as many words as [`Chains::new`] was told; what else has to be
/// equal, the caller compares.
#[derive(Debug)]
pub struct Chains {
    /// By the last bits of the hash: the newest row of the chain.
    heads: Vec<u32>,
    /// By row: the one before it.
    next: Vec<u32>,
    /// By row: the words of its key.
    keys: Vec<u64>,
    width: usize,
}

/// How far the rows of a chain have been given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link(u32);

impl Chains {
    /// Of about so many rows, whose keys have so many words.
    ///
    /// # Panics
    /// If there are 2^32 - 1 rows or more.
    pub fn new(rows: usize, width: usize) -> Chains {
        assert!(rows < NONE as usize, "too many rows in one window: use more workers");
        let heads = vec![NONE; rows.next_power_of_two()];
        let (next, keys) = (Vec::with_capacity(rows), Vec::with_capacity(rows * width));
        Chains { heads, next, keys, width }
    }

    /// Adds rows with these keys, row after row, and their hashes. A row that does not `count` has
    /// its number, and is never found.
    ///
    /// # Panics
    /// If there are other numbers of words and hashes, or 2^32 - 1 rows.
    pub fn add(&mut self, words: &[u64], hashes: &[u64], counts: impl Fn(&[u64]) -> bool) {
        assert_eq!(words.len(), hashes.len() * self.width);
        assert!(self.next.len() + hashes.len() < NONE as usize, "too many rows in one window");
        self.keys.extend_from_slice(words);
        let mask = self.heads.len() - 1;
        for (row, hash) in hashes.iter().enumerate() {
            let number = self.next.len() as u32;
            if counts(&words[row * self.width..(row + 1) * self.width]) {
                let head = &mut self.heads[*hash as usize & mask];
                self.next.push(*head);
                *head = number;
            } else {
                self.next.push(NONE);
            }
        }
    }

    /// Where the rows may stand that have keys with these hashes, into `links`.
    #[inline]
    pub fn find(&self, hashes: &[u64], links: &mut Vec<Link>) {
        let mask = self.heads.len() - 1;
        links.clear();
        links.extend(hashes.iter().map(|hash| Link(self.heads[*hash as usize & mask])));
    }

    /// The next row from `link` on that has this key, if there is one. `link` goes on behind it.
    #[inline]
    pub fn next(&self, link: &mut Link, key: &[u64]) -> Option<u32> {
        while link.0 != NONE {
            let row = link.0;
            link.0 = self.next[row as usize];
            let first = row as usize * self.width;
            if self.keys[first..first + self.width] == *key {
                return Some(row);
            }
        }
        None
    }

    /// As [`Chains::next`], of keys of one word.
    #[inline]
    pub fn next_word(&self, link: &mut Link, key: u64) -> Option<u32> {
        while link.0 != NONE {
            let row = link.0;
            link.0 = self.next[row as usize];
            if self.keys[row as usize] == key {
                return Some(row);
            }
        }
        None
    }

    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.next.len()
    }

    /// Bytes allocated.
    pub fn bytes(&self) -> usize {
        4 * (self.heads.capacity() + self.next.capacity()) + 8 * self.keys.capacity()
    }

    /// Bytes that one of so many rows takes.
    pub fn bytes_of(rows: usize, width: usize) -> usize {
        4 * (rows.next_power_of_two() + rows) + 8 * rows * width
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::hash::hash_words;

    /// Whatever keys there are, exactly the rows with the same key are found, however badly hashes
    /// tell them apart.
    #[test]
    fn all_rows_with_a_key_are_found() {
        for (width, keep) in [(1, u64::MAX), (1, 3), (2, u64::MAX), (2, 0)] {
            let key = |i: u64| -> Vec<u64> { (0..width as u64).map(|w| i % 37 + w).collect() };
            let hash = |key: &[u64]| hash_words(key) & keep;
            let mut chains = Chains::new(100, width);
            let mut expected: HashMap<Vec<u64>, Vec<u32>> = HashMap::new();
            for first in (0..1000).step_by(100) {
                let keys: Vec<Vec<u64>> = (first..first + 100).map(|i| key(i * i)).collect();
                let hashes: Vec<u64> = keys.iter().map(|key| hash(key)).collect();
                chains.add(&keys.concat(), &hashes, |key| key[0] != 7);
                for (row, key) in (first as u32..).zip(keys) {
                    if key[0] != 7 {
                        expected.entry(key).or_default().push(row);
                    }
                }
            }
            assert_eq!(chains.rows(), 1000);
            let mut links = Vec::new();
            for i in 0..40 {
                let key: Vec<u64> = (0..width as u64).map(|w| i + w).collect();
                chains.find(&[hash(&key)], &mut links);
                let (mut link, mut other) = (links[0], links[0]);
                let mut found: Vec<u32> =
                    std::iter::from_fn(|| chains.next(&mut link, &key)).collect();
                if width == 1 {
                    let found_words: Vec<u32> =
                        std::iter::from_fn(|| chains.next_word(&mut other, key[0])).collect();
                    assert_eq!(found_words, found);
                }
                found.sort_unstable();
                assert_eq!(found, expected.remove(&key).unwrap_or_default());
            }
            assert!(expected.is_empty(), "{expected:?}");
        }
    }

    #[test]
    fn of_nothing_nothing_is_found() {
        let chains = Chains::new(0, 1);
        let mut links = Vec::new();
        chains.find(&[1, 2], &mut links);
        assert!(links.iter_mut().all(|link| chains.next_word(link, 1).is_none()));
        assert!(chains.bytes() <= 64);
    }
}

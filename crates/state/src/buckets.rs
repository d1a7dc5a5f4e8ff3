//! Rows that are found by their keys, several of which may have the same one: an index over rows
//! that stand elsewhere, which a join is matched with (paper, section 5.2).
//!
//! It is built once, when all rows are there. The rows whose hashes end alike stand one behind the
//! other, so a lookup misses the cache twice: where a bucket begins, and what stands there. A block
//! of keys is looked up in two passes, so that the misses of all of them are on their way at once.

use crate::index::prefetch;

/// Rows ahead of which entries are asked for.
const AHEAD: usize = 12;

/// Entries that [`Buckets::each`] looks at whether a bucket has so many or not.
const AT_ONCE: usize = 2;

/// Rows by their keys. What else has to be equal but a row's tag, the caller compares.
#[derive(Debug)]
pub struct Buckets {
    /// Where each bucket begins among the entries, and where the last one ends.
    starts: Vec<u32>,
    /// Behind the last one there are [`AT_ONCE`] that are no bucket's.
    entries: Vec<Entry>,
}

/// A row.
#[derive(Debug, Clone, Copy)]
struct Entry {
    /// Its key, if that is a word, or the hash of it.
    tag: u64,
    row: u32,
}

/// The entries among which a key's rows are that have not been looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Range {
    next: u32,
    end: u32,
}

impl Buckets {
    /// Of rows with these hashes, numbered from 0 on, and with these tags: words that are equal for
    /// rows whose keys are, and different for most others. A row that does not `count` is never
    /// found.
    ///
    /// # Panics
    /// If there are other numbers of hashes and tags, or 2^32 - 1 rows or more.
    pub fn new(hashes: &[u64], tags: &[u64], counts: impl Fn(usize) -> bool) -> Buckets {
        assert_eq!(hashes.len(), tags.len());
        assert!(hashes.len() < u32::MAX as usize, "too many rows in one window: use more workers");
        let buckets = hashes.len().next_power_of_two();
        let mask = buckets - 1;
        let mut starts = vec![0u32; buckets + 1];
        for (row, hash) in hashes.iter().enumerate() {
            starts[*hash as usize & mask] += u32::from(counts(row));
        }
        // From how many each has to where each ends; as they are filled, to where each begins.
        let mut sum = 0;
        for start in &mut starts {
            sum += *start;
            *start = sum;
        }
        let mut entries = vec![Entry { tag: 0, row: 0 }; sum as usize + AT_ONCE];
        // The last ones first, so that rows of one key stand in their order.
        for (row, (hash, tag)) in hashes.iter().zip(tags).enumerate().rev() {
            if counts(row) {
                let start = &mut starts[*hash as usize & mask];
                *start -= 1;
                entries[*start as usize] = Entry { tag: *tag, row: row as u32 };
            }
        }
        Buckets { starts, entries }
    }

    /// Where the rows may stand that have keys with these hashes, into `ranges`.
    pub fn find(&self, hashes: &[u64], ranges: &mut Vec<Range>) {
        let mask = self.starts.len() - 2;
        ranges.clear();
        ranges.extend(hashes.iter().map(|hash| {
            let bucket = *hash as usize & mask;
            Range { next: self.starts[bucket], end: self.starts[bucket + 1] }
        }));
    }

    /// Asks for the entries of a row that is looked up soon: [`Buckets::next`] is at `row` now.
    #[inline(always)]
    pub fn look_ahead(&self, ranges: &[Range], row: usize) {
        if let Some(range) = ranges.get(row + AHEAD)
            && let Some(entry) = self.entries.get(range.next as usize)
        {
            prefetch(&raw const entry.tag);
        }
    }

    /// The next row of a range that has this tag, if there is one; those of a range come in the
    /// order of their numbers. The range goes on behind it.
    #[inline(always)]
    pub fn next(&self, range: &mut Range, tag: u64) -> Option<u32> {
        while range.next < range.end {
            let entry = &self.entries[range.next as usize];
            range.next += 1;
            if entry.tag == tag {
                return Some(entry.row);
            }
        }
        None
    }

    /// How many entries a range has that have not been looked at.
    #[inline(always)]
    pub fn left(&self, range: Range) -> usize {
        (range.end - range.next) as usize
    }

    /// Hands over the rows of a range that have not been looked at, each with whether it has this
    /// tag, in the order of their numbers; and perhaps some more that have not. How many there are
    /// in a bucket, and which of them have the tag, nobody can guess, least of all a processor: so
    /// the first ones are looked at in any case, and the caller had better not branch.
    #[inline(always)]
    pub fn each(&self, range: Range, tag: u64, mut take: impl FnMut(u32, bool)) {
        let (next, end) = (range.next as usize, range.end as usize);
        let Some(first) = self.entries[next..].first_chunk::<AT_ONCE>() else { return };
        for (at, entry) in first.iter().enumerate() {
            take(entry.row, (next + at < end) & (entry.tag == tag));
        }
        if next + AT_ONCE < end {
            for entry in &self.entries[next + AT_ONCE..end] {
                take(entry.row, entry.tag == tag);
            }
        }
    }

    /// Bytes allocated.
    pub fn bytes(&self) -> usize {
        4 * self.starts.capacity() + size_of::<Entry>() * self.entries.capacity()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::hash::hash_word;

    /// Whatever keys there are, exactly the rows with the same key are found, however badly hashes
    /// tell them apart.
    #[test]
    fn all_rows_with_a_key_are_found() {
        for (rows, keep) in [(1000u64, u64::MAX), (1000, 3), (1000, 0), (1024, 7), (1, 1), (0, 1)] {
            let keys: Vec<u64> = (0..rows).map(|i| i * i % 37).collect();
            let hash = |key: &u64| hash_word(*key) & keep;
            let hashes: Vec<u64> = keys.iter().map(hash).collect();
            let buckets = Buckets::new(&hashes, &keys, |row| keys[row] != 7);
            let mut expected: HashMap<u64, Vec<u32>> = HashMap::new();
            for (row, key) in (0..).zip(&keys) {
                if *key != 7 {
                    expected.entry(*key).or_default().push(row);
                }
            }
            let asked: Vec<u64> = (0..40).collect();
            let mut ranges = Vec::new();
            buckets.find(&asked.iter().map(hash).collect::<Vec<_>>(), &mut ranges);
            for (at, key) in asked.iter().enumerate() {
                buckets.look_ahead(&ranges, at);
                let mut each = Vec::new();
                buckets.each(ranges[at], *key, |row, is_one| each.extend(is_one.then_some(row)));
                assert!(each.len() <= buckets.left(ranges[at]));
                let next = || buckets.next(&mut ranges[at], *key);
                let found: Vec<u32> = std::iter::from_fn(next).collect();
                assert_eq!(found, each);
                assert_eq!(found, expected.remove(key).unwrap_or_default());
                assert_eq!(buckets.left(ranges[at]), 0);
            }
            assert!(expected.is_empty(), "{expected:?}");
        }
    }
}

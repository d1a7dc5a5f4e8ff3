//! Rows by key, several rows per key: an index over rows stored elsewhere, for matching a join
//! (paper, section 5.2).
//!
//! The index is built once, when all rows are there. Rows whose hashes end alike stand one behind
//! the other, so a lookup misses the cache twice: at the bucket's beginning, and at its content. A
//! block of keys is looked up in two passes, so that all their misses are on their way at once.
//! Where keys are numbers close to each other, a bucket has the rows of one key, and nothing is
//! hashed or compared. Such an index takes at most about as much memory.

use crate::memory::prefetch::prefetch;

/// Rows ahead of which entries are asked for.
const AHEAD: usize = 12;

/// Entries that [`Buckets::each`] looks at whether a bucket has so many or not.
const AT_ONCE: usize = 2;

/// Keys are close to each other if there are at most so many numbers for each row.
const NUMBERS_OF_ROW: usize = 4;

/// Rows by their keys. What else has to be equal but a row's tag, the caller compares.
#[derive(Debug)]
pub struct Buckets {
    /// Where each bucket begins among the entries, and where the last one ends.
    starts: Vec<u32>,
    entries: Entries,
}

/// Content of the buckets. Behind the last bucket, [`AT_ONCE`] more entries belong to no bucket.
#[derive(Debug)]
enum Entries {
    /// Rows whose hashes end alike.
    Hashed(Vec<Entry>),
    /// Rows of one key: a bucket for each number from the first key on; and an empty one.
    Direct { first: u64, rows: Vec<u32> },
}

/// A row.
#[derive(Debug, Clone, Copy)]
struct Entry {
    /// The key, if it is a word; else its hash.
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
        let buckets = hashes.len().next_power_of_two();
        let mask = buckets - 1;
        let none = Entry { tag: 0, row: 0 };
        let bucket = |row: usize| hashes[row] as usize & mask;
        let entry = |row: usize| Entry { tag: tags[row], row: row as u32 };
        let (starts, entries) = filled(hashes.len(), buckets, counts, bucket, entry, none);
        Buckets { starts, entries: Entries::Hashed(entries) }
    }

    /// As [`Buckets::new`], where tags are all that there is of keys.
    pub fn of_words(hashes: &[u64], words: &[u64], counts: impl Fn(usize) -> bool) -> Buckets {
        let counted = || words.iter().enumerate().filter(|(row, _)| counts(*row)).map(|(_, w)| *w);
        let (first, last) = counted().fold((u64::MAX, 0), |(a, b), w| (a.min(w), b.max(w)));
        let numbers = last.wrapping_sub(first);
        if first > last || numbers >= (NUMBERS_OF_ROW * words.len()) as u64 {
            return Buckets::new(hashes, words, counts);
        }
        let buckets = numbers as usize + 2;
        let bucket = |row: usize| (words[row] - first) as usize;
        let (starts, rows) = filled(words.len(), buckets, counts, bucket, |row| row as u32, 0);
        Buckets { starts, entries: Entries::Direct { first, rows } }
    }

    /// Where the rows may stand that have keys with these hashes, and these tags, into `ranges`.
    pub fn find(&self, hashes: &[u64], tags: &[u64], ranges: &mut Vec<Range>) {
        let range =
            |bucket: usize| Range { next: self.starts[bucket], end: self.starts[bucket + 1] };
        ranges.clear();
        let last = self.starts.len() - 2;
        match &self.entries {
            Entries::Hashed(_) => ranges.extend(hashes.iter().map(|h| range(*h as usize & last))),
            Entries::Direct { first, .. } => ranges.extend(tags.iter().map(|tag| {
                // The last bucket is empty.
                range(tag.wrapping_sub(*first).min(last as u64) as usize)
            })),
        }
    }

    /// Asks for the entries of a row that is looked up soon: [`Buckets::next`] is at `row` now.
    #[inline(always)]
    pub fn look_ahead(&self, ranges: &[Range], row: usize) {
        let Some(range) = ranges.get(row + AHEAD) else { return };
        let at = range.next as usize;
        match &self.entries {
            Entries::Hashed(entries) => prefetch(entries.as_ptr().wrapping_add(at).cast::<u64>()),
            Entries::Direct { rows, .. } => prefetch(rows.as_ptr().wrapping_add(at).cast::<u64>()),
        }
    }

    /// The next row of a range that has this tag, if there is one; those of a range come in the
    /// order of their numbers. The range goes on behind it.
    #[inline(always)]
    pub fn next(&self, range: &mut Range, tag: u64) -> Option<u32> {
        while range.next < range.end {
            let at = range.next as usize;
            range.next += 1;
            match &self.entries {
                Entries::Hashed(entries) if entries[at].tag != tag => {}
                Entries::Hashed(entries) => return Some(entries[at].row),
                Entries::Direct { rows, .. } => return Some(rows[at]),
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
        match &self.entries {
            Entries::Hashed(entries) => {
                each(entries, range, |entry, counts| take(entry.row, counts & (entry.tag == tag)));
            }
            Entries::Direct { rows, .. } => each(rows, range, |row, counts| take(*row, counts)),
        }
    }

    /// Bytes allocated.
    pub fn bytes(&self) -> usize {
        4 * self.starts.capacity()
            + match &self.entries {
                Entries::Hashed(entries) => size_of::<Entry>() * entries.capacity(),
                Entries::Direct { rows, .. } => 4 * rows.capacity(),
            }
    }
}

/// Where each bucket begins, and the last one ends; and the entries of those of so many rows that
/// `counts`, each in its bucket, with [`AT_ONCE`] times `none` behind them.
fn filled<T: Copy>(
    rows: usize,
    buckets: usize,
    counts: impl Fn(usize) -> bool,
    bucket: impl Fn(usize) -> usize,
    entry: impl Fn(usize) -> T,
    none: T,
) -> (Vec<u32>, Vec<T>) {
    assert!(rows < u32::MAX as usize, "too many rows in one window: use more workers");
    let mut starts = vec![0u32; buckets + 1];
    for row in (0..rows).filter(|row| counts(*row)) {
        starts[bucket(row)] += 1;
    }
    // From how many each has to where each ends; as they are filled, to where each begins.
    let mut sum = 0;
    for start in &mut starts {
        sum += *start;
        *start = sum;
    }
    let mut entries = vec![none; sum as usize + AT_ONCE];
    // Backwards, so that rows of the same key stand in their order.
    for row in (0..rows).rev().filter(|row| counts(*row)) {
        let start = &mut starts[bucket(row)];
        *start -= 1;
        entries[*start as usize] = entry(row);
    }
    (starts, entries)
}

/// Hands over the entries of a range, each with `true`; or, if they are fewer than [`AT_ONCE`],
/// some that follow them, with `false`.
#[inline(always)]
fn each<T>(entries: &[T], range: Range, mut take: impl FnMut(&T, bool)) {
    let (next, end) = (range.next as usize, range.end as usize);
    let Some(first) = entries[next..].first_chunk::<AT_ONCE>() else { return };
    for (at, entry) in first.iter().enumerate() {
        take(entry, next + at < end);
    }
    if next + AT_ONCE < end {
        entries[next + AT_ONCE..end].iter().for_each(|entry| take(entry, true));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::memory::hash::hash_word;

    /// For any keys and hashes, however poor, exactly the rows with the same key are found.
    #[test]
    fn all_rows_with_a_key_are_found() {
        for (rows, keep) in [(1000u64, u64::MAX), (1000, 3), (1000, 0), (1024, 7), (1, 1), (0, 1)] {
            let keys: Vec<u64> = (0..rows).map(|i| i * i % 37).collect();
            let hash = |key: &u64| hash_word(*key) & keep;
            let hashes: Vec<u64> = keys.iter().map(hash).collect();
            let counts = |row: usize| keys[row] != 7;
            for direct in [false, true] {
                let buckets = match direct {
                    false => Buckets::new(&hashes, &keys, counts),
                    true => Buckets::of_words(&hashes, &keys, counts),
                };
                assert_eq!(direct && rows > 0, matches!(buckets.entries, Entries::Direct { .. }));
                let mut expected: HashMap<u64, Vec<u32>> = HashMap::new();
                for (row, key) in (0..).zip(&keys) {
                    if *key != 7 {
                        expected.entry(*key).or_default().push(row);
                    }
                }
                let asked: Vec<u64> = (0..40).chain([1 << 40, u64::MAX]).collect();
                let mut ranges = Vec::new();
                buckets.find(&asked.iter().map(hash).collect::<Vec<_>>(), &asked, &mut ranges);
                for (at, key) in asked.iter().enumerate() {
                    buckets.look_ahead(&ranges, at);
                    let mut each = Vec::new();
                    buckets
                        .each(ranges[at], *key, |row, is_one| each.extend(is_one.then_some(row)));
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
        // Keys around the least and the greatest number are far from each other, as words.
        let far: Vec<u64> = (0..100).map(|i| (i % 3 - 1_i64) as u64).collect();
        let hashes: Vec<u64> = far.iter().map(|key| hash_word(*key)).collect();
        let buckets = Buckets::of_words(&hashes, &far, |_| true);
        assert!(matches!(buckets.entries, Entries::Hashed(_)));
    }
}

//! The index of a table: from a key's hash, or from the key itself, to the number of its row.
//!
//! The index consists of buckets of eight 8-byte entries, one cache line each. An entry has the
//! upper half of the key's hash in its upper half and the row number in its lower half. A key's
//! entry is in the key's home bucket or, if that is full, in the next bucket with room. All entries
//! of a bucket are compared at once ([`Lanes`]). An entry whose row number is below the log's base
//! is *absent*: so sealing a log empties its index in constant time. The home bucket follows from
//! the high bits of the hash. So an index grows in place, in one pass from its last bucket to its
//! first, in which every entry moves to its old position or to a later one.
//!
//! Where keys are integers in a dense range, the index has slots instead of buckets:
//! [`crate::table::direct`].

mod slots;

use std::mem::MaybeUninit;

#[cfg(target_arch = "x86_64")]
use millstream_cpu::{Level, level};

use crate::memory::lanes::{Lanes, Plain};
use crate::memory::log::BLOCK_ROWS;
use crate::memory::log::RowId;
use crate::memory::pages::{Line, Lines};
use crate::memory::prefetch::prefetch;
use crate::table::direct::Span;
use crate::table::filling::{BUCKET, Filling, MARGIN};
use crate::table::logs::Logs;

/// Buckets at the start: a quarter of a KiB, for windows of a few keys. A block of new keys goes
/// beyond at once.
const FIRST_BUCKETS: usize = 4;
/// Up to this many buckets (512 KiB) the index doubles when it is more than 5/8 full, which costs
/// little memory and finds most keys in their home. Above, it grows by two thirds when 27 of 32 are
/// taken, so that it is always half full: 16 bytes per key at the most.
const SMALL_BUCKETS: usize = 1 << 13;

/// An index up to this size, with its rows, is taken to fit the second-level cache.
const NEAR_INDEX_BYTES: usize = 1 << 20;

/// This part of the expected keys must have come before there is room for all.
const EXPECTED_SHARE: usize = 4;

/// How many keys an index of this many buckets takes.
fn capacity(buckets: usize) -> usize {
    if buckets <= SMALL_BUCKETS { buckets * 5 } else { buckets * 27 / 4 }
}

fn next_size(buckets: usize) -> usize {
    if buckets < SMALL_BUCKETS { buckets * 2 } else { buckets + buckets / 3 * 2 }
}

#[derive(Debug)]
pub(crate) struct Index {
    lines: Lines,
    /// Entries of the present generation.
    len: usize,
    grow_at: usize,
    /// Keys to make room for at once, as soon as a quarter of them has come: what is expected need
    /// not.
    expected: usize,
    pub(crate) growths: u64,
    /// The keys that slots stand for, if it has slots.
    span: Option<Span>,
    /// A key has come that lies too far off: it keeps to buckets.
    sparse: bool,
}

/// Questions of [`Index::enter`] about the keys of a block. Passed by value, so that a loop can
/// keep it in registers.
pub(crate) trait Entrants {
    /// Whether the index may lie so far away that lines are to be asked for ahead.
    const FAR: bool;

    /// Whether row `id` is that of the `i`-th key.
    fn meets(&mut self, i: usize, id: RowId) -> bool;

    /// The `i`-th key is new: its row's number.
    fn enters(&mut self, i: usize) -> RowId;

    /// All keys have been met or entered: how many entered.
    fn done(self) -> usize;
}

impl Index {
    pub(crate) fn new(expected: usize) -> Index {
        let lines = Lines::empty();
        Index { lines, len: 0, grow_at: 0, expected, growths: 0, span: None, sparse: false }
    }

    /// Expects so many keys from now on.
    pub(crate) fn expect(&mut self, keys: usize) {
        self.expected = keys;
    }

    /// Number of keys.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn bytes(&self) -> usize {
        self.lines.bytes()
    }

    /// Whether it is taken to lie in a near cache.
    pub(crate) fn is_near(&self) -> bool {
        // Rows take as much as ever, slots a quarter of what buckets do.
        let bytes = if self.is_direct() { 4 * self.bytes() } else { self.bytes() };
        bytes <= NEAR_INDEX_BYTES
    }

    /// Whether keys have slots: it asks for no hashes.
    pub(crate) fn is_direct(&self) -> bool {
        self.span.is_some()
    }

    /// Makes room for `count` more keys of rows of `logs`; `words` are these keys, if they have one
    /// word each.
    pub(crate) fn reserve(&mut self, count: usize, words: Option<&[u64]>, logs: Logs<'_>) {
        match (self.span, words) {
            (Some(span), Some(words)) => {
                if !span.covers(words) {
                    self.widen(span, words, logs);
                }
            }
            _ if self.len + count <= self.grow_at => {}
            _ => self.grow(count, words, logs),
        }
    }

    #[cold]
    fn grow(&mut self, count: usize, words: Option<&[u64]>, logs: Logs<'_>) {
        let old = self.lines.count();
        let buckets = self.buckets_for(count);
        assert!(buckets < 1 << 31, "an index of fewer than 2^31 buckets");
        self.growths += u64::from(old > 0);
        if let Some(span) = words.and_then(|words| self.span_of(words, buckets, logs)) {
            self.lines = span.filled(self.entries(logs));
            self.span = Some(span);
            return;
        }
        self.grow_at = capacity(buckets);
        self.lines.grow(buckets);
        if self.len > 0 {
            self.spread(old, logs.base());
        }
    }

    /// The keys and rows that stand in buckets and are present.
    fn entries(&self, logs: Logs<'_>) -> impl Iterator<Item = (u64, RowId)> {
        debug_assert!(self.span.is_none());
        let lines = if self.len > 0 { self.lines.count() } else { 0 };
        // SAFETY: there are so many buckets.
        let entries = (0..lines).flat_map(|line| unsafe { *self.lines.start().add(line) });
        let base = logs.base();
        let rows = entries.map(|entry| entry as RowId).filter(move |row| *row >= base);
        // SAFETY: the index names written rows of these logs, whose first word is the key.
        rows.map(move |row| (unsafe { *logs.row(row) }, row))
    }

    /// How many buckets it takes to make room for `count` more keys.
    fn buckets_for(&self, count: usize) -> usize {
        let mut needed = self.len + count;
        if needed >= self.expected / EXPECTED_SHARE {
            needed = needed.max(self.expected);
        }
        let present = if self.is_direct() { 0 } else { self.lines.count() };
        let mut buckets = present.max(FIRST_BUCKETS);
        while capacity(buckets) < needed {
            buckets = next_size(buckets);
        }
        buckets
    }

    /// Bytes that making room for `count` more keys allocates at the most, beside what there is.
    pub(crate) fn growth_bytes(&self, count: usize) -> usize {
        if self.is_direct() {
            // They may turn out to lie far apart, or beside the span: as many slots again, then.
            let lines = self.buckets_for(count).max(self.lines.count());
            return Lines::empty().growth_bytes(lines);
        }
        if self.len + count <= self.grow_at {
            return 0;
        }
        self.lines.growth_bytes(self.buckets_for(count))
    }

    /// Moves the entries of the first `old` buckets to their new homes, last bucket first: a home's
    /// number grows with the number of buckets, so every bucket has been read when it is written.
    /// Buckets are filled on the side and written once, whole: what bounds this is memory traffic.
    fn spread(&mut self, old: usize, base: RowId) {
        let count = self.lines.count();
        let mut filling = Filling::new(self.lines.start_mut(), count);
        // Entries without a place in this pass: they stood far from home, or in the first buckets
        // although their home is among the last.
        let mut left = Vec::new();
        // How far apart homes come to stand, a fraction with 32 bits below the point, rounded up.
        let apart = ((count as u64) << 32) / old as u64 + 1;
        for b in (0..old).rev() {
            let homes_end = (((b as u64 + 1) * apart) >> 32) as usize + 1;
            filling.write_from(homes_end + MARGIN);
            // SAFETY: `b` is one of the buckets.
            for entry in unsafe { *self.lines.start().add(b) } {
                let present = entry as u32 >= base;
                if present && !filling.put(entry, home_of(entry >> 32, count)) {
                    left.push(entry);
                }
            }
        }
        filling.write_from(0);
        drop(filling);
        for entry in left {
            self.put_back(entry);
        }
    }

    /// Enters an entry into an index without absent entries but for zeroes.
    fn put_back(&mut self, entry: u64) {
        let count = self.lines.count();
        let mut bucket = home_of(entry >> 32, count);
        loop {
            // SAFETY: `bucket` is one of the buckets.
            let slots = unsafe { &mut *self.lines.start_mut().add(bucket) };
            if let Some(free) = slots.iter_mut().find(|slot| **slot == 0) {
                *free = entry;
                return;
            }
            bucket = if bucket + 1 == count { 0 } else { bucket + 1 };
        }
    }

    /// Empties the index in constant time: every entry is below the log's new base.
    pub(crate) fn new_generation(&mut self) {
        self.len = 0;
    }

    /// Rows below `base` are absent for good, whatever is present from now on; `count` are not
    /// below it. A key may stand behind a bucket that was full and is not any more: then it is put
    /// there.
    pub(crate) fn keep_from(&mut self, base: RowId, count: usize) {
        self.len = count;
        let direct = self.is_direct();
        // SAFETY: lines are entries, or two slots for each.
        let all = unsafe { self.lines.parts_mut::<u64>() };
        if count == 0 {
            all.fill(0);
        } else if direct {
            // SAFETY: lines are slots.
            let slots = unsafe { self.lines.parts_mut::<RowId>() };
            slots.iter_mut().for_each(|row| *row = if *row < base { 0 } else { *row });
        } else {
            let (mut away, buckets) = (Vec::new(), all.len() / BUCKET);
            debug_assert_eq!(all.iter().filter(|entry| **entry as RowId >= base).count(), count);
            for (i, entry) in all.iter_mut().enumerate() {
                let present = *entry as RowId >= base;
                let at_home = home_of(*entry >> 32, buckets) == i / BUCKET;
                if present && !at_home {
                    away.push(*entry);
                }
                *entry = if present && at_home { *entry } else { 0 };
            }
            away.into_iter().for_each(|entry| self.put_back(entry));
        }
    }

    /// Has the memory of another index, whose rows are absent here; the other has none.
    pub(crate) fn take(&mut self, other: &mut Index) {
        let (expected, growths) = (self.expected, self.growths);
        *self = std::mem::replace(other, Index::new(0));
        (self.expected, self.growths) = (expected, self.growths + growths);
        self.new_generation();
    }

    /// Forgets everything, also the memory: for the rare case that row numbers start over.
    pub(crate) fn reset(&mut self) {
        *self = Index { growths: self.growths, ..Index::new(0) };
    }

    /// Finds or enters a block of keys, for which room has been reserved; `base` tells which
    /// entries are present. Meanwhile it asks for the cache lines of the keys that come next,
    /// `ahead`.
    pub(crate) fn enter<E: Entrants>(
        &mut self,
        hashes: &[u64],
        ahead: &[u64],
        base: RowId,
        keys: E,
    ) {
        assert!(self.span.is_none(), "an index with buckets");
        assert!(self.len + hashes.len() <= self.grow_at, "room was reserved");
        assert!(hashes.len() <= BLOCK_ROWS, "a block of keys");
        #[cfg(target_arch = "x86_64")]
        {
            use crate::memory::lanes::{Avx2, Avx512};
            #[target_feature(enable = "avx512f,avx512vl,bmi1,bmi2,lzcnt,popcnt")]
            fn with_avx512<E: Entrants>(
                index: &mut Index,
                (hashes, ahead): (&[u64], &[u64]),
                base: RowId,
                keys: E,
            ) {
                // SAFETY: the processor has the features.
                unsafe { index.enter_with::<Avx512, E>(hashes, ahead, base, keys) }
            }
            #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
            fn with_avx2<E: Entrants>(
                index: &mut Index,
                (hashes, ahead): (&[u64], &[u64]),
                base: RowId,
                keys: E,
            ) {
                // SAFETY: the processor has the features.
                unsafe { index.enter_with::<Avx2, E>(hashes, ahead, base, keys) }
            }
            match level() {
                // SAFETY: the processor has the level.
                Level::Avx512 => return unsafe { with_avx512(self, (hashes, ahead), base, keys) },
                // SAFETY: as above.
                Level::Avx2 => return unsafe { with_avx2(self, (hashes, ahead), base, keys) },
                Level::Portable => {}
            }
        }
        // SAFETY: this is for any processor.
        unsafe { self.enter_with::<Plain, E>(hashes, ahead, base, keys) }
    }

    /// # Safety
    /// The processor must be one that `L` is for.
    #[inline(always)]
    unsafe fn enter_with<L: Lanes, E: Entrants>(
        &mut self,
        hashes: &[u64],
        ahead: &[u64],
        base: RowId,
        mut keys: E,
    ) {
        let buckets = self.lines.count();
        let start = self.lines.start_mut();
        let end = start.wrapping_add(buckets);
        let count = hashes.len().min(BLOCK_ROWS);
        let ahead = &ahead[..ahead.len().min(count)];
        // Where the keys' homes stand, and those of the keys ahead (if there are fewer, the first
        // bucket).
        let (mut homes, mut next_homes) = (UNKNOWN, UNKNOWN);
        offsets(&hashes[..count], buckets, &mut homes);
        if E::FAR {
            offsets(ahead, buckets, &mut next_homes);
            next_homes[ahead.len()..count].fill(MaybeUninit::new(0));
        }
        let (mut full, mut full_count) = ([0u16; BLOCK_ROWS], 0);
        // In most cases a key's home settles it. Where the home is full the next bucket is asked
        // for, and looked at when it has come.
        for i in 0..count {
            if E::FAR {
                // SAFETY: the first `count` have been written.
                prefetch(start.wrapping_byte_add(unsafe { next_homes[i].assume_init() }).cast());
            }
            // SAFETY: as above.
            let home = start.wrapping_byte_add(unsafe { homes[i].assume_init() });
            // SAFETY: `home` is one of the buckets, a fraction of their count; the caller vouches
            // for the processor.
            match unsafe { settle::<L>(home, &hashes[i], base, i, &mut keys) } {
                Settled::Done => {}
                Settled::Full => {
                    prefetch(home.wrapping_add(1).cast());
                    // SAFETY: no more than there are keys, of which a block has at most as many.
                    unsafe { *full.get_unchecked_mut(full_count) = i as u16 };
                    full_count += 1;
                }
            }
        }
        for i in full[..full_count].iter().map(|i| usize::from(*i)) {
            // SAFETY: as above.
            let mut bucket = start.wrapping_byte_add(unsafe { homes[i].assume_init() });
            loop {
                bucket = bucket.wrapping_add(1);
                if bucket == end {
                    bucket = start;
                }
                // SAFETY: as above, or wrapped around.
                match unsafe { settle::<L>(bucket, &hashes[i], base, i, &mut keys) } {
                    Settled::Done => break,
                    Settled::Full => {}
                }
            }
        }
        self.len += keys.done();
    }

    /// Asks for the cache lines in which these hashes are looked for.
    pub(crate) fn prefetch(&self, hashes: &[u64]) {
        if self.is_direct() {
            return;
        }
        let (start, buckets) = (self.lines.start(), self.lines.count());
        for hash in hashes {
            prefetch(start.wrapping_add(home_of(hash >> 32, buckets)).cast());
        }
    }
}

/// Result of looking for a key in a bucket.
enum Settled {
    /// Its row was known, or it was new and has an entry here now.
    Done,
    /// Neither, and all entries are taken.
    Full,
}

/// Looks for the `i`-th key in a bucket, or enters it.
///
/// # Safety
/// `bucket` must be one of an index, and the processor one that `L` is for.
#[inline(always)]
unsafe fn settle<L: Lanes>(
    bucket: *mut Line,
    hash: &u64,
    base: RowId,
    i: usize,
    keys: &mut impl Entrants,
) -> Settled {
    // SAFETY: as the caller promises.
    let mut like = unsafe { L::like(bucket, hash) };
    while like != 0 {
        // SAFETY: as the caller promises; a marked entry is one of eight.
        let row = unsafe { *slot(bucket, like) } as u32;
        if row >= base && keys.meets(i, row) {
            return Settled::Done;
        }
        like &= like - 1;
    }
    // SAFETY: as above.
    let absent = unsafe { L::absent(bucket, base) };
    if absent == 0 {
        return Settled::Full;
    }
    let row = keys.enters(i);
    // In two halves, which are at hand as such.
    // SAFETY: as above.
    unsafe { slot(bucket, absent).cast::<[u32; 2]>().write(halves((hash >> 32) as u32, row)) };
    Settled::Done
}

/// The halves of an entry in the order in which they stand in memory.
#[inline(always)]
fn halves(hash_high: u32, row: RowId) -> [u32; 2] {
    if cfg!(target_endian = "little") { [row, hash_high] } else { [hash_high, row] }
}

/// The first of the marked entries.
#[inline(always)]
fn slot(bucket: *mut Line, marks: u32) -> *mut u64 {
    bucket.cast::<u64>().wrapping_add(marks.trailing_zeros() as usize)
}

/// The bucket in which the search for a hash begins.
#[inline(always)]
fn home_of(hash_high: u64, buckets: usize) -> usize {
    ((hash_high * u64::from(buckets as u32)) >> 32) as usize
}

/// Where the homes of these hashes stand, in bytes from the first bucket.
#[inline(always)]
fn offsets(hashes: &[u64], buckets: usize, offsets: &mut Offsets) {
    for (hash, offset) in hashes.iter().zip(offsets) {
        offset.write(home_of(hash >> 32, buckets) * size_of::<Line>());
    }
}

type Offsets = [MaybeUninit<usize>; BLOCK_ROWS];
const UNKNOWN: Offsets = [MaybeUninit::uninit(); BLOCK_ROWS];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::log::{Log, OWN_ROWS};

    /// Keys are their hashes' upper halves; rows are numbered as they come.
    struct Numbered<'a> {
        highs: &'a [u32],
        rows: &'a mut Vec<u32>,
        first: RowId,
        found: &'a mut [RowId],
        entered: usize,
    }

    impl Entrants for Numbered<'_> {
        const FAR: bool = true;

        fn meets(&mut self, i: usize, id: RowId) -> bool {
            let same = self.rows[(id - self.first) as usize] == self.highs[i];
            if same {
                self.found[i] = id;
            }
            same
        }
        fn enters(&mut self, i: usize) -> RowId {
            self.rows.push(self.highs[i]);
            self.found[i] = self.first + self.rows.len() as u32 - 1;
            self.entered += 1;
            self.found[i]
        }
        fn done(self) -> usize {
            self.entered
        }
    }

    /// Finds or enters a block of keys for which room has been reserved.
    fn find(index: &mut Index, highs: &[u32], rows: &mut Vec<u32>, first: RowId) -> Vec<RowId> {
        let hashes: Vec<u64> = highs.iter().map(|high| u64::from(*high) << 32).collect();
        index.prefetch(&hashes);
        let mut found = vec![0; highs.len()];
        let keys = Numbered { highs, rows, first, found: &mut found, entered: 0 };
        index.enter(&hashes, &[], first, keys);
        found
    }

    /// For any hashes and growth, an index finds each key once entered, and no other.
    #[test]
    fn every_key_is_found_again_over_growth_and_generations() {
        let spread = |i: u64| (i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as u32;
        let shapes: [fn(u64) -> u64; 4] =
            [|i| i, |i| i % 1000, |i| i & 0xFF, |i| u64::MAX - (i % 3000)];
        for (shape, key_of) in shapes.iter().enumerate() {
            let mut index = Index::new(0);
            let mut first = OWN_ROWS;
            for generation in 0..3 {
                let log = Log::new(1);
                let mut rows = Vec::new();
                let mut expected = std::collections::HashMap::new();
                for block in 0..400u64 {
                    let numbers = (0..256).map(|i| key_of(block * 256 + i));
                    // In the third shape all hashes stand near the start, in the fourth near the
                    // end.
                    let highs: Vec<u32> = match shape {
                        0 | 1 => numbers.map(spread).collect(),
                        _ => numbers.map(|n| n as u32).collect(),
                    };
                    let growths = index.growths;
                    index.reserve(highs.len(), None, Logs { own: &log, others: None });
                    if index.growths > growths {
                        // All that was there is found before anything new can fill a gap.
                        let known: Vec<u32> = expected.keys().copied().collect();
                        for known in known.chunks(BLOCK_ROWS) {
                            let found = find(&mut index, known, &mut rows, first);
                            assert!(known.iter().zip(found).all(|(high, id)| expected[high] == id));
                        }
                        assert_eq!(index.len(), expected.len());
                    }
                    let found = find(&mut index, &highs, &mut rows, first);
                    for (high, id) in highs.iter().zip(found) {
                        assert_eq!(*expected.entry(*high).or_insert(id), id);
                    }
                    assert_eq!(index.len(), expected.len());
                }
                assert!(shape > 0 || index.growths > 8);
                index.new_generation();
                first += rows.len() as u32 + generation * 1000;
            }
        }
    }

    /// A table that is told how many keys will come does not grow on the way there.
    #[test]
    fn what_is_expected_is_made_room_for_when_a_quarter_has_come() {
        for expected in [0, 321, 5000, 41_000, 100_000] {
            let (mut index, log) = (Index::new(expected), Log::new(1));
            index.reserve(1, None, Logs { own: &log, others: None });
            assert!(index.bytes() <= 4096, "{} bytes for one key", index.bytes());
            let share = expected / EXPECTED_SHARE + 1;
            let foretold = index.growth_bytes(share);
            let grows = share > index.grow_at;
            let before = index.bytes();
            index.reserve(share, None, Logs { own: &log, others: None });
            assert!(!grows || index.grow_at >= expected);
            assert!(index.bytes() <= before + foretold);
        }
    }
}

//! A table: shards of records, each with its index.

use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;

use millstream_state::{PARTITIONS, hash_word, hash_words, partition_of};

use super::index::Index;
use super::record::{HEADER_WORDS, RecordWords};
use super::segments::Segments;
use super::spec::TableSpec;

/// Shards of a table. A shard has whole partitions of the key space.
pub(crate) const SHARDS: usize = 64;
const PARTITIONS_PER_SHARD: usize = PARTITIONS / SHARDS;

/// Word 0 of a record without a row, and of a record that is not in the index either.
const ABSENT: u64 = 0;
const REMOVED: u64 = 2;

/// The shard of a key.
#[inline]
pub(crate) fn shard_of(hash: u64) -> usize {
    partition_of(hash) / PARTITIONS_PER_SHARD
}

/// The hash of a key.
#[inline]
pub(crate) fn hash_of(key: &[u64]) -> u64 {
    match key {
        [word] => hash_word(*word),
        words => hash_words(words),
    }
}

#[derive(Debug)]
struct Shard {
    index: Index,
    records: Segments,
    room: Mutex<ShardRoom>,
}

#[derive(Debug, Default)]
struct ShardRoom {
    /// Records that have ever been.
    made: u32,
    /// Records of them that are not in the index.
    free: Vec<u32>,
}

#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) spec: TableSpec,
    shards: Box<[Shard]>,
}

impl Table {
    pub(crate) fn new(spec: TableSpec) -> Table {
        let shard = || Shard {
            index: Index::new(),
            records: Segments::new(HEADER_WORDS + spec.key_words + spec.row_words),
            room: Mutex::default(),
        };
        Table { shards: (0..SHARDS).map(|_| shard()).collect(), spec }
    }

    #[inline]
    pub(crate) fn words(&self, shard: usize, number: u32) -> RecordWords<'_> {
        let words = self.shards[shard].records.item(number as usize);
        RecordWords { words, key_words: self.spec.key_words }
    }

    fn has_key(&self, shard: usize, number: u32, key: &[u64]) -> bool {
        let words = self.words(shard, number).key();
        words.iter().zip(key).all(|(word, key)| word.load(Relaxed) == *key)
    }

    fn hash_of_record(&self, shard: usize, number: u32) -> u64 {
        match self.words(shard, number).key() {
            [word] => hash_word(word.load(Relaxed)),
            words => hash_words(&words.iter().map(|word| word.load(Relaxed)).collect::<Vec<_>>()),
        }
    }

    /// The record of a key.
    #[inline]
    pub(crate) fn find(&self, hash: u64, key: &[u64]) -> Option<u32> {
        let shard = shard_of(hash);
        self.shards[shard].index.find(hash, |number| self.has_key(shard, number, key))
    }

    /// The record of a key, and whether it was made now, without a row.
    #[inline]
    pub(crate) fn find_or_add(&self, hash: u64, key: &[u64]) -> (u32, bool) {
        match self.find(hash, key) {
            Some(number) => (number, false),
            None => self.add(hash, key),
        }
    }

    #[cold]
    fn add(&self, hash: u64, key: &[u64]) -> (u32, bool) {
        let at = shard_of(hash);
        let shard = &self.shards[at];
        let mut room = shard.room.lock().expect("no panic under the lock of a shard");
        if let Some(number) = self.find(hash, key) {
            return (number, false);
        }
        let number = room.free.pop().unwrap_or_else(|| {
            assert!((room.made as usize) < Segments::items_max(), "a shard of 4 billion records");
            room.made += 1;
            room.made - 1
        });
        let words = self.words(at, number);
        words.words.iter().for_each(|word| word.store(0, Relaxed));
        words.key().iter().zip(key).for_each(|(word, key)| word.store(*key, Relaxed));
        let records = room.made as usize - room.free.len();
        shard.index.add(hash, number, records, |other| self.hash_of_record(at, other));
        (number, true)
    }

    /// Removes a record without a row. Only while the caller alone uses the shard.
    pub(crate) fn remove_if_absent(&self, shard: usize, number: u32) {
        if self.words(shard, number).existence().load(Relaxed) != ABSENT {
            return;
        }
        self.words(shard, number).existence().store(REMOVED, Relaxed);
        let mut room = self.shards[shard].room.lock().expect("no panic under the lock of a shard");
        let hash = self.hash_of_record(shard, number);
        self.shards[shard].index.remove(hash, number, |other| self.hash_of_record(shard, other));
        room.free.push(number);
    }

    /// Records in the index, with and without rows.
    pub(crate) fn records(&self) -> usize {
        let rooms = self.shards.iter().map(|shard| shard.room.lock().expect("no panic"));
        rooms.map(|room| room.made as usize - room.free.len()).sum()
    }

    /// All rows, in no order: key and row.
    pub(crate) fn each_row(&self, mut visit: impl FnMut(&[u64], &[u64])) {
        let (mut key, mut row) = (vec![0; self.spec.key_words], vec![0; self.spec.row_words]);
        for (at, shard) in self.shards.iter().enumerate() {
            let made = shard.room.lock().expect("no panic under the lock of a shard").made;
            for number in 0..made {
                let words = self.words(at, number);
                if words.load(&mut row) {
                    super::record::load_words(words.key(), &mut key);
                    visit(&key, &row);
                }
            }
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.shards.iter().map(|shard| shard.index.bytes() + shard.records.bytes()).sum()
    }
}

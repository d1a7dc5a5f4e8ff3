//! Values of keys in single panes: an entry for each pane of a key, for keys with several panes.
//! several.

use crate::memory::arena::Arena;
use crate::table::compact::move_values;
use crate::table::layout::{RowLayout, ValueSlot};

/// Entries of a chunk.
const CHUNK_ENTRIES: usize = 1 << 12;

/// The number of an entry; there is none of number 0.
pub(super) type EntryId = u32;

/// Entries: the words of a row without its key, then a word of two links and a word for the pane.
#[derive(Debug)]
pub(super) struct History {
    key_words: usize,
    /// Words of values, with their seen bits.
    tail: usize,
    chunks: Vec<Box<[u64]>>,
    /// Of each chunk, the newest pane of its entries.
    newest: Vec<u32>,
    /// Chunks, from the first on, that have been forgotten.
    gone: usize,
    len: u32,
    pub(super) arena: Arena,
}

/// Whether a pane is older than another. They are less than 2^31 panes apart.
pub(super) fn older(pane: u32, than: u32) -> bool {
    (pane.wrapping_sub(than) as i32) < 0
}

impl History {
    pub(super) fn new(layout: &RowLayout) -> History {
        let tail = layout.row_words() - layout.key_words();
        let (chunks, newest, gone, len, arena) = Default::default();
        History { key_words: layout.key_words(), tail, chunks, newest, gone, len, arena }
    }

    fn words(&self) -> usize {
        self.tail + 2
    }

    /// A new entry for a pane, whose values are to be written.
    pub(super) fn push(&mut self, pane: u32, link: EntryId, front: EntryId) -> EntryId {
        let index = self.len as usize;
        if index / CHUNK_ENTRIES == self.chunks.len() {
            self.chunks.push(vec![0; CHUNK_ENTRIES * self.words()].into());
        }
        match self.newest.get_mut(index / CHUNK_ENTRIES) {
            Some(newest) if older(*newest, pane) => *newest = pane,
            Some(_) => {}
            None => self.newest.push(pane),
        }
        self.len += 1;
        let id = self.len;
        let tail = self.tail;
        let words = self.entry_mut(id);
        words[tail] = u64::from(link) << 32 | u64::from(front);
        words[tail + 1] = u64::from(pane);
        id
    }

    fn entry(&self, id: EntryId) -> &[u64] {
        let index = id as usize - 1;
        let start = index % CHUNK_ENTRIES * self.words();
        &self.chunks[index / CHUNK_ENTRIES][start..start + self.words()]
    }

    fn entry_mut(&mut self, id: EntryId) -> &mut [u64] {
        let (index, words) = (id as usize - 1, self.words());
        let start = index % CHUNK_ENTRIES * words;
        &mut self.chunks[index / CHUNK_ENTRIES][start..start + words]
    }

    /// Sets the values of an entry to those of a row, which refer to another arena.
    pub(super) fn write(
        &mut self,
        id: EntryId,
        values: &[u64],
        referring: &[ValueSlot],
        from: &Arena,
    ) {
        let (tail, key_words, words) = (self.tail, self.key_words, self.words());
        let index = id as usize - 1;
        let start = index % CHUNK_ENTRIES * words;
        let own = &mut self.chunks[index / CHUNK_ENTRIES][start..start + tail];
        own.copy_from_slice(values);
        move_values(own, key_words, referring, from, &mut self.arena);
    }

    /// Where the row would begin whose values these are, if it had a key.
    pub(super) fn place(&self, id: EntryId) -> *const u64 {
        self.entry(id).as_ptr().wrapping_sub(self.key_words)
    }

    /// The same, to be changed.
    pub(super) fn place_mut(&mut self, id: EntryId) -> *mut u64 {
        let key_words = self.key_words;
        self.entry_mut(id).as_mut_ptr().wrapping_sub(key_words)
    }

    /// The entry of the key's next older pane or, in front, of the next newer one.
    pub(super) fn link(&self, id: EntryId) -> EntryId {
        (self.entry(id)[self.tail] >> 32) as EntryId
    }

    pub(super) fn set_link(&mut self, id: EntryId, link: EntryId) {
        let tail = self.tail;
        let word = &mut self.entry_mut(id)[tail];
        *word = u64::from(link) << 32 | *word & u64::from(u32::MAX);
    }

    /// The first entry that the key has in front, kept by its newest one in the back.
    pub(super) fn front(&self, id: EntryId) -> EntryId {
        self.entry(id)[self.tail] as EntryId
    }

    pub(super) fn set_front(&mut self, id: EntryId, front: EntryId) {
        let tail = self.tail;
        let word = &mut self.entry_mut(id)[tail];
        *word = *word >> 32 << 32 | u64::from(front);
    }

    pub(super) fn pane(&self, id: EntryId) -> u32 {
        self.entry(id)[self.tail + 1] as u32
    }

    /// Forgets full chunks of entries that are all of panes before `first`.
    pub(super) fn forget_before(&mut self, first: u32) {
        let full = self.len as usize / CHUNK_ENTRIES;
        while self.gone < full && older(self.newest[self.gone], first) {
            self.chunks[self.gone] = Box::default();
            self.gone += 1;
        }
    }

    /// Forgets all entries, and keeps the memory of some.
    pub(super) fn clear(&mut self) {
        self.chunks.truncate((self.len as usize).div_ceil(CHUNK_ENTRIES));
        self.chunks.drain(..self.gone);
        self.newest.clear();
        (self.len, self.gone) = (0, 0);
        self.arena = Arena::default();
    }

    /// Gives back what no entry needs.
    pub(super) fn trim(&mut self) {
        self.chunks.truncate((self.len as usize).div_ceil(CHUNK_ENTRIES));
    }

    pub(super) fn bytes(&self) -> usize {
        (self.chunks.len() - self.gone) * CHUNK_ENTRIES * self.words() * 8
            + self.arena.allocated_bytes()
    }

    /// Number of entries.
    pub(super) fn len(&self) -> usize {
        self.len as usize
    }

    /// Bytes of entries.
    pub(super) fn live_bytes(&self) -> usize {
        let entries = self.len() - self.gone * CHUNK_ENTRIES;
        entries * self.words() * 8 + self.arena.used_bytes()
    }

    /// Bytes that so many more entries take.
    pub(super) fn growth_bytes(&self, entries: usize) -> usize {
        let chunks = (self.len as usize + entries).div_ceil(CHUNK_ENTRIES);
        chunks.saturating_sub(self.chunks.len()) * CHUNK_ENTRIES * self.words() * 8
            + self.arena.growth_bytes(match self.len {
                0 => 0,
                len => self.arena.used_bytes() / len as usize * entries,
            })
    }
}

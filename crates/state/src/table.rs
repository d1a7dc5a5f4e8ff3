//! A table of state: an index over a log (paper, section 7.2.1), with rows as [`RowLayout`] says.
//!
//! All access is by block: hash a few hundred keys, ask for their index lines, find or append all
//! rows, then update one value column after the other through the rows' places. That hides memory
//! latency and leaves no dispatch per record.

use std::sync::Arc;

use crate::arena::Arena;
use crate::find;
use crate::index::Index;
use crate::key::{Keys, VarKeys};
use crate::layout::RowLayout;
use crate::log::{CHUNK_ROWS, ChunkPool, Log};
use crate::rows::RowsRef;
use crate::segment::Segment;
use crate::value::Block;

/// Rows per block: their hashes, keys and places fit the first-level cache beside the lines asked for.
pub const BLOCK_ROWS: usize = 256;

/// Rows of one partition set and window slice, private to one thread.
#[derive(Debug)]
pub struct Table {
    pub(crate) layout: Arc<RowLayout>,
    pub(crate) index: Index,
    pub(crate) log: Log,
    pub(crate) arena: Arena,
    /// Rows in the log that are part of the state, whether indexed or appended without look-up.
    pub(crate) live_rows: usize,
    /// Rows that came in segments, and how many of them had new keys.
    merged: usize,
    merged_new: usize,
    /// The most keys that the index has held since the table was cleared, but for those it holds now.
    keys_max: usize,
}

/// Buffers that block operations use again and again.
#[derive(Debug, Default)]
pub struct Scratch {
    pub(crate) places: Vec<*mut u64>,
    pub(crate) hashes: Vec<u64>,
    pub(crate) words: Vec<u64>,
}

// SAFETY: the raw pointers in a scratch are only used within one call on the thread that owns it.
unsafe impl Send for Scratch {}

impl Table {
    /// An empty table; it allocates nothing until it is used.
    pub fn new(layout: Arc<RowLayout>) -> Table {
        let log = Log::new(layout.row_words());
        Table {
            layout,
            index: Index::new(0),
            log,
            arena: Arena::default(),
            live_rows: 0,
            merged: 0,
            merged_new: 0,
            keys_max: 0,
        }
    }

    /// Expects so many keys from now on: when it has an eighth of them, its index makes room for all.
    pub fn expect(&mut self, keys: usize) {
        self.index.expect(keys);
    }

    /// Whether it finds keys without their hashes, so that there need not be any.
    pub fn is_direct(&self) -> bool {
        self.index.is_direct()
    }

    /// Asks for the cache lines in which a block of keys will be looked for, if that goes by their hashes.
    pub fn prefetch(&self, hashes: &[u64]) {
        self.index.prefetch(hashes);
    }

    /// Finds the rows of a block of keys, appending those that are new, and returns their places for
    /// updating. `new_rows` of the block tells how many were new.
    ///
    /// # Panics
    /// If the block has more than [`BLOCK_ROWS`] keys.
    pub fn update<'t, V: VarKeys>(
        &'t mut self,
        keys: &Keys<'_, V>,
        pool: &mut ChunkPool,
        scratch: &'t mut Scratch,
    ) -> Block<'t> {
        let before = self.keys();
        self.find_or_append(keys, pool, &mut scratch.places);
        let new_rows = self.keys() - before;
        self.live_rows += new_rows;
        Block::new(&self.layout, &mut self.arena, &scratch.places, new_rows)
    }

    /// Appends a row for every key of the block without looking any of them up (*pass-through*): all
    /// merging is left to the leader.
    pub fn append<'t, V: VarKeys>(
        &'t mut self,
        keys: &Keys<'_, V>,
        pool: &mut ChunkPool,
        scratch: &'t mut Scratch,
    ) -> Block<'t> {
        let Table { layout, log, arena, .. } = self;
        arena.use_heap(pool.heap());
        find::append(keys, layout, log, arena, pool, &mut scratch.places);
        let rows = keys.rows(&self.layout);
        self.live_rows += rows;
        Block::new(&self.layout, &mut self.arena, &scratch.places, rows)
    }

    pub(crate) fn find_or_append<V: VarKeys>(
        &mut self,
        keys: &Keys<'_, V>,
        pool: &mut ChunkPool,
        places: &mut Vec<*mut u64>,
    ) {
        let Table { layout, index, log, arena, .. } = self;
        arena.use_heap(pool.heap());
        find::find_or_append(keys, layout, index, log, arena, pool, places);
    }

    /// Closes what has been written since the last seal into a segment and starts again from empty
    /// (paper, section 7.2.2, steps 2 and 5). Constant time, apart from the list of chunks.
    pub fn seal(&mut self) -> Segment {
        let rows = std::mem::take(&mut self.live_rows);
        let segment = Segment { chunks: self.log.seal(), arena: self.arena.seal(), rows };
        self.empty_index();
        segment
    }

    /// All rows have left the log.
    fn empty_index(&mut self) {
        self.keys_max = self.keys_max.max(self.keys());
        self.index.new_generation();
        if self.log.ids_left() < 1 << 30 {
            self.log = Log::new(self.layout.row_words());
            self.index.reset();
        }
    }

    /// Empties the table for another window, keeping the index's memory, and that of few rows: windows are much
    /// alike, so the next one need not grow step by step. An index far too large for what was in it goes.
    pub fn clear(&mut self, pool: &mut ChunkPool) {
        self.log.clear(pool);
        self.arena.clear();
        self.empty_index();
        (self.live_rows, self.merged, self.merged_new) = (0, 0, 0);
        let keys = std::mem::take(&mut self.keys_max);
        if self.index.bytes() > 64 * keys + (64 << 10) {
            self.log = Log::new(self.layout.row_words());
            self.index.reset();
        }
    }

    /// Keys in the index.
    pub(crate) fn keys(&self) -> usize {
        self.index.len()
    }

    pub(crate) fn note_merged(&mut self, rows: usize, new: usize) {
        self.live_rows += new;
        self.merged += rows;
        self.merged_new += new;
    }

    /// Whether at most one in eight of the rows merged so far had a known key, as far as one can tell.
    pub(crate) fn merges_mostly_new(&self) -> bool {
        self.merged >= CHUNK_ROWS && self.merged_new * 8 >= self.merged * 7
    }

    /// Keys held (with duplicates, if rows were appended without look-up).
    pub fn rows(&self) -> usize {
        self.live_rows
    }

    /// Bytes allocated.
    pub fn bytes(&self) -> usize {
        self.index.bytes() + self.log.bytes() + self.arena.allocated_bytes()
    }

    /// Bytes that taking in `rows` more keys may allocate at once, beside [`Table::bytes`]: room for
    /// rows, and what the index and the arena grow by, if keys are as long as before.
    pub fn growth_bytes(&self, rows: usize) -> usize {
        let arena_bytes = self.arena.used_bytes() / self.live_rows.max(1) * rows;
        self.log.growth_bytes(rows)
            + self.index.growth_bytes(rows)
            + self.arena.growth_bytes(arena_bytes)
    }

    /// Gives back what reading the rows does not need: the index, and room to grow. Only
    /// [`Table::clear`] makes the table fit for updates again.
    pub fn trim(&mut self) {
        self.index.reset();
        self.arena.trim();
    }

    /// Whether the index is small enough for a near cache.
    pub fn is_near(&self) -> bool {
        self.index.is_near()
    }

    /// Bytes of the index alone.
    pub fn index_bytes(&self) -> usize {
        self.index.bytes()
    }

    /// Bytes of live keys and values.
    pub fn live_bytes(&self) -> usize {
        self.live_rows * self.layout.row_bytes() + self.arena.used_bytes()
    }

    /// Times the index has grown.
    pub fn growths(&self) -> u64 {
        self.index.growths
    }

    /// Number of scan blocks; see [`Table::scan`].
    pub fn scan_blocks(&self) -> usize {
        if self.live_rows == 0 { 0 } else { self.log.chunks().len() }
    }

    /// All rows of one scan block (up to [`CHUNK_ROWS`](crate::CHUNK_ROWS)), in log order. A scan goes
    /// over blocks `0..scan_blocks()`; the table must not change in between.
    pub fn scan<'t>(&'t self, block: usize, buffer: &'t mut Vec<*const u64>) -> RowsRef<'t> {
        RowsRef::of_chunk(&self.log.chunks()[block], &self.arena, &self.layout, buffer)
    }
}

//! A table of state: an index over a log (paper, section 7.2.1), with rows as [`RowLayout`] says.
//!
//! A *joint* table has a second log, for the rows that it holds for other leaders. One index covers
//! both logs, so a key is found without asking who leads it; this is asked once, when the key is
//! new. The second log is sealed like a fragment.
//!
//! All access is by block: hash a few hundred keys, prefetch their cache lines of the index, find
//! or append all rows, then update one value column after the other through the rows' addresses.
//! This hides the latency of memory and leaves no dispatch per record.

use std::sync::Arc;

use crate::memory::arena::Arena;
use crate::memory::log::{Chunk, ChunkPool, Log};
use crate::memory::scratch::Scratch;
use crate::table::compact::compact;
use crate::table::find;
use crate::table::index::Index;
use crate::table::key::{Keys, VarKeys};
use crate::table::layout::RowLayout;
use crate::table::logs::LogsMut;
use crate::table::partition::Own;
use crate::table::rows::RowsRef;
use crate::table::segment::Segment;
use crate::table::value::Block;

/// A joint table whose other rows have fewer numbers left is not joint any more, once they are
/// sealed.
pub(crate) const OTHER_IDS_MIN: u32 = 1 << 27;

/// Rows are numbered from the start again once fewer numbers are left.
const IDS_MIN: u32 = 1 << 30;

/// Compaction is due when the arena's waste is the share of one row for so many of the table's own.
const WASTED_MAX: usize = 4;

/// Rows of one partition set and window slice, private to one thread.
#[derive(Debug)]
pub struct Table {
    pub(crate) layout: Arc<RowLayout>,
    pub(crate) index: Index,
    pub(crate) log: Log,
    /// Rows of other leaders, in a joint table. Boxed, since thousands of small tables have none.
    pub(crate) others: Option<Box<Log>>,
    /// Sealed rows of other leaders whose values are still in the arena.
    pub(crate) wasted_rows: usize,
    pub(crate) arena: Arena,
    /// Rows in the log that are part of the state, whether indexed or appended without look-up.
    pub(crate) live_rows: usize,
    /// The most keys that the index has held since the table was cleared, but for those it holds
    /// now.
    pub(crate) keys_max: usize,
}

/// Maximum load of tables at once.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// Rows, each of which may have a new key.
    pub rows: usize,
    /// Bytes of the texts among the keys and values, all together: texts differ in length, so that
    /// neither the longest nor the mean tells the bytes of some of them.
    pub text_bytes: usize,
}

impl Load {
    /// Rows without texts.
    pub fn rows(rows: usize) -> Load {
        Load { rows, text_bytes: 0 }
    }

    /// The greater one, of rows and of texts.
    pub fn max(self, other: Load) -> Load {
        let rows = self.rows.max(other.rows);
        Load { rows, text_bytes: self.text_bytes.max(other.text_bytes) }
    }
}

impl Table {
    /// An empty table; the first use allocates.
    pub fn new(layout: Arc<RowLayout>) -> Table {
        let log = Log::new(layout.row_words());
        Table {
            layout,
            index: Index::new(0),
            log,
            others: None,
            wasted_rows: 0,
            arena: Arena::default(),
            live_rows: 0,
            keys_max: 0,
        }
    }

    /// Expects so many keys from now on: when it has a quarter of them, its index makes room for
    /// all.
    pub fn expect(&mut self, keys: usize) {
        self.index.expect(keys);
    }

    /// True if the table finds keys without their hashes, so that no hashes are needed.
    pub fn is_direct(&self) -> bool {
        self.index.is_direct()
    }

    /// Asks for the cache lines in which a block of keys will be looked for, if that goes by their
    /// hashes.
    pub fn prefetch(&self, hashes: &[u64]) {
        self.index.prefetch(hashes);
    }

    /// Finds the rows of a block of keys, appending those that are new, and returns their places
    /// for updating. `new_rows` of the block tells how many were new.
    ///
    /// # Panics
    /// If the block has more than [`BLOCK_ROWS`](crate::BLOCK_ROWS) keys.
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

    /// As [`Table::update`], for keys of any leader: rows of those that are not `own` stand apart,
    /// and leave with [`Table::seal_others`].
    ///
    /// # Panics
    /// If the block has more than [`BLOCK_ROWS`](crate::BLOCK_ROWS) keys.
    pub fn update_joint<'t, V: VarKeys>(
        &'t mut self,
        keys: &Keys<'_, V>,
        own: Own<'_>,
        pool: &mut ChunkPool,
        scratch: &'t mut Scratch,
    ) -> Block<'t> {
        if self.others.is_none() {
            self.join();
        }
        let (before, others_before) = (self.keys(), self.other_rows());
        self.find_or_append_for(Some(own), keys, pool, &mut scratch.places);
        let new_rows = self.keys() - before;
        self.live_rows += new_rows - (self.other_rows() - others_before);
        Block::new(&self.layout, &mut self.arena, &scratch.places, new_rows)
    }

    #[cold]
    fn join(&mut self) {
        // What has been absent so far had a number below the first log's rows.
        self.index.keep_from(self.log.base(), self.keys());
        self.others = Some(Box::new(Log::of_others(self.layout.row_words())));
    }

    /// Rows held for other leaders.
    pub fn other_rows(&self) -> usize {
        self.others.as_ref().map_or(0, |others| others.len())
    }

    /// Bytes of the rows of other leaders; their values in the arena count with the table's own.
    pub fn other_row_bytes(&self) -> usize {
        self.other_rows() * self.layout.row_bytes()
    }

    /// Bytes of these, with about what they refer to.
    pub fn other_bytes(&self) -> usize {
        self.other_rows() * (self.layout.row_bytes() + self.arena_bytes_of_row())
    }

    /// Bytes needed for sealing the rows of other leaders; 0 where no copies are needed.
    pub fn parting_bytes(&self, leaders: usize) -> usize {
        if self.other_rows() == 0 || leaders == 2 && !self.refers() {
            return 0;
        }
        // Copies of the rows, with some spare room; and the values of the table's own rows, in a
        // growing arena.
        2 * self.other_bytes() + self.live_rows * self.arena_bytes_of_row() * 5 / 2
    }

    /// Average bytes of a row's values in the arena.
    pub fn arena_bytes_of_row(&self) -> usize {
        match self.live_rows + self.other_rows() {
            // What holds nothing does not tell how long keys are.
            0 => 0,
            held => self.arena.used_bytes() / (held + self.wasted_rows),
        }
    }

    /// Whether rows may refer to something in the arena.
    pub(crate) fn refers(&self) -> bool {
        self.layout.uses_arena() && self.arena.used_bytes() > 0
    }

    /// Leaves behind what the arena holds in vain, if it is worth copying what the table's own rows
    /// refer to.
    pub(crate) fn tidy(&mut self) {
        if self.wasted_rows * WASTED_MAX >= self.live_rows {
            self.compact();
        }
    }

    /// Leaves behind what the arena holds in vain.
    #[cold]
    fn compact(&mut self) {
        let logs = std::iter::once(&mut self.log).chain(self.others.as_deref_mut());
        compact(logs, &mut self.arena, &self.layout);
        self.wasted_rows = 0;
    }

    /// The same, if values that have moved have left much behind.
    pub(crate) fn compact_if_wasteful(&mut self) {
        if self.arena.is_wasteful() {
            self.compact();
        }
    }

    /// Appends a row for every key of the block without looking any of them up (*pass-through*):
    /// all merging is left to the leader.
    pub fn append<'t, V: VarKeys>(
        &'t mut self,
        keys: &Keys<'_, V>,
        pool: &mut ChunkPool,
        scratch: &'t mut Scratch,
    ) -> Block<'t> {
        self.compact_if_wasteful();
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
        self.find_or_append_for(None, keys, pool, places);
    }

    /// Without `own`, new keys are the table's own.
    fn find_or_append_for<V: VarKeys>(
        &mut self,
        own: Option<Own<'_>>,
        keys: &Keys<'_, V>,
        pool: &mut ChunkPool,
        places: &mut Vec<*mut u64>,
    ) {
        self.compact_if_wasteful();
        let Table { layout, index, log, others, arena, .. } = self;
        arena.use_heap(pool.heap());
        let logs = LogsMut { own: log, others: others.as_deref_mut(), own_keys: own };
        find::find_or_append(keys, layout, index, logs, arena, pool, places);
    }

    /// Closes what has been written since the last seal into a segment and starts again from empty
    /// (paper, section 7.2.2, steps 2 and 5). Constant time, apart from the list of chunks.
    ///
    /// # Panics
    /// If it holds rows of other leaders, which are to be sealed before.
    pub fn seal(&mut self) -> Segment {
        let rows = std::mem::take(&mut self.live_rows);
        let segment = Segment { chunks: self.log.seal(), arena: self.arena.seal(), rows };
        self.wasted_rows = 0;
        self.empty_index();
        segment
    }

    /// All rows have left the log.
    fn empty_index(&mut self) {
        self.keys_max = self.keys_max.max(self.keys());
        assert_eq!(self.other_rows(), 0, "rows of other leaders were sealed");
        self.others = None;
        self.index.new_generation();
        if self.log.ids_left() < IDS_MIN {
            self.log = Log::new(self.layout.row_words());
            self.index.reset();
        }
    }

    /// Empties the table for another window, keeping the index's memory, and that of few rows:
    /// windows are much alike, so the next one need not grow step by step. An index far too large
    /// for what was in it goes.
    pub fn clear(&mut self, pool: &mut ChunkPool) {
        self.clear_and_keep(pool, 0);
    }

    /// The same, keeping its arena, too, if that has no more than so many bytes.
    pub fn clear_and_keep(&mut self, pool: &mut ChunkPool, arena_bytes_max: usize) {
        self.log.clear(pool);
        self.arena.clear_and_keep(arena_bytes_max);
        if let Some(others) = &mut self.others {
            others.give_room(pool);
        }
        self.empty_index();
        self.live_rows = 0;
        self.wasted_rows = 0;
        let keys = std::mem::take(&mut self.keys_max);
        if self.index_is_too_large(keys) {
            self.log = Log::new(self.layout.row_words());
            self.index.reset();
        }
    }

    /// Whether the index is far too large for so many keys.
    fn index_is_too_large(&self, keys: usize) -> bool {
        self.index.bytes() > 64 * keys + (64 << 10)
    }

    /// Keys in the index.
    pub(crate) fn keys(&self) -> usize {
        self.index.len()
    }

    /// The greatest number of keys since the table was cleared.
    pub fn keys_max(&self) -> usize {
        self.keys_max.max(self.keys())
    }

    /// Keys held (with duplicates, if rows were appended without look-up).
    pub fn rows(&self) -> usize {
        self.live_rows
    }

    /// Bytes allocated.
    pub fn bytes(&self) -> usize {
        let others = self.others.as_ref().map_or(0, |others| size_of::<Log>() + others.bytes());
        self.index.bytes() + self.log.bytes() + others + self.arena.allocated_bytes()
    }

    /// Bytes that taking in so much more may allocate at once, beside [`Table::bytes`]: room for
    /// rows, and what the index and the arena grow by.
    pub fn growth_bytes(&self, Load { rows, text_bytes }: Load) -> usize {
        // Two logs share these rows; as with fragments, an empty log does not count.
        let others = self.others.as_ref().filter(|others| others.len() > 0);
        let other_bytes = others.map_or(0, |others| others.growth_bytes(rows));
        let only_others = others.is_some() && self.live_rows == 0;
        let own_bytes = if only_others { 0 } else { self.log.growth_bytes(rows) };
        own_bytes.max(other_bytes)
            + self.index.growth_bytes(rows)
            + self.arena.growth_bytes(match self.layout.texts() {
                _ if self.layout.has_blobs() || self.layout.has_chains() => {
                    let inputs = text_bytes + rows * self.layout.bytes_per_input();
                    let blobs = self.layout.has_blobs().then(|| self.arena.moving_bytes(rows));
                    // Pieces behind a new one are twice as large as those before, which are full.
                    let chains = self
                        .layout
                        .has_chains()
                        .then(|| 2 * inputs + self.arena.chaining_bytes(rows.min(self.rows())));
                    inputs + blobs.unwrap_or(0) + chains.unwrap_or(0)
                }
                texts if texts > 0 => text_bytes + 8 * rows * texts,
                // Sums that have become wide, about as many as there are now.
                _ => self.arena_bytes_of_row() * rows,
            })
    }

    /// Gives back what reading the rows does not need: the index, and room to grow. Only
    /// [`Table::clear`] makes the table fit for updates again.
    pub fn trim(&mut self) {
        self.index.reset();
        self.arena.trim();
    }

    /// Goes on in the index of `complete`, which is only read from now on, if that is much larger
    /// than its own, and not for what `complete` holds: then it need not grow to that size, and
    /// there is one large index, not two. Returns whether it does.
    pub fn take_index(
        &mut self,
        complete: &mut Table,
        pool: &mut ChunkPool,
        scratch: &mut Scratch,
    ) -> bool {
        let fits = complete.index_bytes() > 2 * self.index_bytes()
            && !complete.index_is_too_large(complete.keys_max());
        let hashed = !self.is_direct() && !complete.is_direct();
        let joint = self.other_rows() + complete.other_rows() > 0;
        let few_ids = self.log.ids_left().min(complete.log.ids_left()) < IDS_MIN;
        if !fits || !hashed || joint || few_ids {
            return false;
        }
        let rows = self.seal();
        // Whatever stands in the other's index lies below this table's rows: it is absent.
        self.log.number_above(&complete.log);
        self.index.take(&mut complete.index);
        self.merge(&rows, pool, scratch);
        rows.recycle(pool);
        true
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

    /// How many rows a scan block has; beyond the last block none.
    pub fn scan_rows(&self, block: usize) -> usize {
        self.log.chunks().get(block).map_or(0, Chunk::rows)
    }

    /// All rows of one scan block (up to [`CHUNK_ROWS`](crate::CHUNK_ROWS)), in log order. A scan
    /// goes over blocks `0..scan_blocks()`; the table must not change in between.
    pub fn scan(&self, block: usize) -> RowsRef<'_> {
        RowsRef::of_chunk(&self.log.chunks()[block], &self.arena, &self.layout)
    }
}

//! The log of a table (paper, section 7.2.1): dense rows, in the order in which their keys first
//! came.
//!
//! A log is a list of chunks of equal capacity. Row numbers only grow, also across seals. So a
//! number below the log's first row means that the row is no longer there; that is how an index is
//! emptied without being touched. A row never moves once written, except while the log has a single
//! chunk that is still growing to its full size.

use std::ops::Range;
use std::ptr;
use std::slice;
use std::sync::Arc;

use crate::memory::heap::{Heap, RUN_BYTES_MIN, Run, run_bytes};
use crate::memory::pages::{HUGE_PAGE_BYTES, advise_huge};

/// Rows per block: their hashes, keys and places fit the first-level cache beside the lines asked
/// for.
pub const BLOCK_ROWS: usize = 256;

/// Rows in a full chunk.
pub const CHUNK_ROWS: usize = 1 << CHUNK_BITS;
const CHUNK_BITS: u32 = 12;
const CHUNK_MASK: u32 = CHUNK_ROWS as u32 - 1;
/// Rows in the first chunk of a small log.
const FIRST_ROWS: usize = 4;

/// Bytes of a chunk besides its rows: its entries in the log's lists, its slab, and the allocator's
/// share. For a chunk of a few rows, the total is little more.
const OVERHEAD_BYTES: usize = size_of::<Chunk>() + size_of::<Arc<Slab>>() + 96;

/// A log of this many chunks takes further ones from slabs.
const SLAB_CHUNKS: usize = 4;

/// Number of a row in its log, for the log's whole life. 0 is never a row.
pub(crate) type RowId = u32;

/// A table's own rows are numbered from here on. What it holds for other leaders has the numbers
/// below, so that one index names both and what is not in the first log is in the second.
pub(crate) const OWN_ROWS: RowId = 1 << 28;

/// Memory for rows: word-aligned, of which `rows` are written.
#[derive(Debug)]
pub(crate) struct Chunk {
    memory: Memory,
    rows: u32,
}

/// A run of words, alone or a part of a slab, that is freed when its last part is dropped.
#[derive(Debug)]
struct Memory {
    start: *mut u64,
    words: usize,
    _slab: Arc<Slab>,
}

// SAFETY: only this memory uses its words; the slab just keeps them allocated.
unsafe impl Send for Memory {}
// SAFETY: as above; rows are only written through `&mut` of their log.
unsafe impl Sync for Memory {}

/// Large enough for the system to back it with a huge page: rows are met at random, and with small
/// pages each costs an address translation besides its cache line.
const SLAB_BYTES: usize = HUGE_PAGE_BYTES;

/// Memory of a slab. A vector's length stays 0, since rows are written through pointers and words
/// need no destructor.
#[derive(Debug)]
enum Slab {
    Allocated(#[expect(dead_code, reason = "only held, to be freed")] Vec<u64>),
    Run(#[expect(dead_code, reason = "only held, to be given back")] Run),
}

// SAFETY: nobody touches the vector but to free it, nor the run's memory through the run.
unsafe impl Sync for Slab {}

impl Memory {
    /// `words` words or some more, by themselves: from the heap, if there is one and they are not
    /// few.
    fn alone(words: usize, heap: Option<&Arc<Heap>>) -> Memory {
        if let Some(run) = heap.and_then(|heap| heap.take(words * 8)) {
            let (start, words) = (run.start(), run.words());
            return Memory { start, words, _slab: Arc::new(Slab::Run(run)) };
        }
        let mut all: Vec<u64> = Vec::with_capacity(words);
        Memory { start: all.as_mut_ptr(), words, _slab: Arc::new(Slab::Allocated(all)) }
    }

    /// `count` memories of `words` words each that share a huge page. The last comes first, since a
    /// pool hands out its last.
    fn slab(
        words: usize,
        count: usize,
        heap: Option<&Arc<Heap>>,
    ) -> impl Iterator<Item = Memory> + use<> {
        debug_assert!(words * count * 8 <= SLAB_BYTES);
        let (start, slab) = match heap.and_then(|heap| heap.take(SLAB_BYTES)) {
            Some(run) => (run.start(), Slab::Run(run)),
            None => {
                let slack = SLAB_BYTES / 8;
                let mut all: Vec<u64> = Vec::with_capacity(2 * slack);
                // From a huge page's boundary on; what lies before and behind is never touched. The
                // advice is for the whole page, or the system could not give one.
                let start = all.as_mut_ptr();
                let start = start.wrapping_add(start.align_offset(SLAB_BYTES).min(slack));
                advise_huge(start.cast(), SLAB_BYTES);
                (start, Slab::Allocated(all))
            }
        };
        let slab = Arc::new(slab);
        (0..count).rev().map(move |i| Memory {
            start: start.wrapping_add(i * words),
            words,
            _slab: slab.clone(),
        })
    }

    fn capacity(&self) -> usize {
        self.words
    }

    fn as_ptr(&self) -> *mut u64 {
        self.start
    }
}

impl Chunk {
    pub(crate) fn rows(&self) -> usize {
        self.rows as usize
    }

    pub(crate) fn row(&self, row: usize, row_words: usize) -> *const u64 {
        debug_assert!(row < self.rows as usize);
        self.memory.as_ptr().wrapping_add(row * row_words)
    }

    pub(crate) fn first(&self) -> *const u64 {
        self.memory.as_ptr()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.memory.capacity() * 8 + OVERHEAD_BYTES
    }
}

/// Full-size chunks waiting to be used again, so that steady work touches no fresh memory.
#[derive(Debug)]
pub struct ChunkPool {
    free: Vec<Memory>,
    row_words: usize,
    limit: usize,
    /// Memory is scarce: it comes chunk by chunk.
    scarce: bool,
    /// Where memory comes from before the allocator is asked.
    heap: Option<Arc<Heap>>,
}

impl ChunkPool {
    /// A pool for rows of `row_words` words that keeps at most `limit_bytes`. With a heap the
    /// tables that use this pool have their rows there, and what rows refer to, but for what is
    /// small or finds no place.
    pub fn new(row_words: usize, limit_bytes: usize, heap: Option<Arc<Heap>>) -> ChunkPool {
        let limit = limit_bytes / (CHUNK_ROWS * row_words * 8).max(1);
        ChunkPool { free: Vec::new(), row_words, limit, scarce: false, heap }
    }

    pub(crate) fn heap(&self) -> Option<&Arc<Heap>> {
        self.heap.as_ref()
    }

    /// Whether a log is large enough already for its next chunks to come in slabs: `slabs`.
    fn take(&mut self, slabs: bool) -> Memory {
        if let Some(memory) = self.free.pop() {
            return memory;
        }
        let words = CHUNK_ROWS * self.row_words;
        let count = SLAB_BYTES / (words * 8);
        if slabs && !self.scarce && count > 1 {
            self.free.extend(Memory::slab(words, count, self.heap.as_ref()));
        }
        self.free.pop().unwrap_or_else(|| Memory::alone(words, self.heap.as_ref()))
    }

    pub(crate) fn give(&mut self, chunk: Chunk) {
        let full = chunk.memory.capacity() >= CHUNK_ROWS * self.row_words;
        if full && self.free.len() < self.limit {
            self.free.push(chunk.memory);
        }
    }

    /// Gives all of it back to the system, since memory is scarce: until [`ChunkPool::relax`] it
    /// takes no more at once than is needed.
    pub fn release(&mut self) {
        self.free = Vec::new();
        self.scarce = true;
        if let Some(heap) = &self.heap {
            heap.give_back();
        }
    }

    /// Memory is not scarce any more.
    pub fn relax(&mut self) {
        self.scarce = false;
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.free.len() * CHUNK_ROWS * self.row_words * 8
    }
}

/// The rows of one table.
#[derive(Debug)]
pub(crate) struct Log {
    chunks: Vec<Chunk>,
    /// Where each chunk begins, side by side for looking rows up.
    starts: Vec<*mut u64>,
    /// Number of the first chunk; row `r` stands in chunk `(r >> CHUNK_BITS) - first_chunk`.
    first_chunk: u32,
    next: RowId,
    /// Numbers stay below.
    end: RowId,
    row_words: usize,
}

/// Where the rows of a block go; a loop keeps it in registers.
pub(crate) struct Cursor<'a> {
    log: &'a Log,
    /// The place of chunk number 0, as if there were one: `starts` less `first_chunk`.
    starts: *const *mut u64,
    /// Number of the next row.
    next: RowId,
    place: *mut u64,
}

impl Cursor<'_> {
    /// Takes the next row number and its place, uninitialised.
    ///
    /// # Safety
    /// Room must have been reserved for this row, and the caller must write all its words, and
    /// `commit` when the block is done, before anybody reads it.
    #[inline(always)]
    pub(crate) unsafe fn append(&mut self, row_words: usize) -> (RowId, *mut u64) {
        if self.next & CHUNK_MASK == 0 {
            self.place = self.log.place_of_next(self.next);
        }
        let (id, place) = (self.next, self.place);
        self.next += 1;
        self.place = place.wrapping_add(row_words);
        (id, place)
    }

    /// The number of the row after the last one appended, for `commit`.
    pub(crate) fn end(&self) -> RowId {
        self.next
    }

    /// The place of a row of this log or of `other`, whose rows have other numbers.
    ///
    /// # Safety
    /// `id` must be a row of one of them: at or above its base and below the cursor.
    #[inline(always)]
    pub(crate) unsafe fn row_of_either(
        &self,
        other: &Cursor<'_>,
        id: RowId,
        words: usize,
    ) -> *mut u64 {
        debug_assert!(
            (self.log.base()..self.next).contains(&id)
                || (other.log.base()..other.next).contains(&id)
        );
        let starts = if id >= OWN_ROWS { self.starts } else { other.starts };
        // SAFETY: as for `row`.
        let start = unsafe { *starts.wrapping_add((id >> CHUNK_BITS) as usize) };
        start.wrapping_add((id & CHUNK_MASK) as usize * words)
    }

    /// The place of a row.
    ///
    /// # Safety
    /// `id` must be a row of this log: at or above its base and below the cursor.
    #[inline(always)]
    pub(crate) unsafe fn row(&self, id: RowId, row_words: usize) -> *mut u64 {
        debug_assert!((self.log.base()..self.next).contains(&id));
        // SAFETY: every number between base and cursor has its chunk.
        let start = unsafe { *self.starts.wrapping_add((id >> CHUNK_BITS) as usize) };
        start.wrapping_add((id & CHUNK_MASK) as usize * row_words)
    }
}

// SAFETY: `starts` point into the log's own chunks.
unsafe impl Send for Log {}
// SAFETY: as above; rows are only written through `&mut`.
unsafe impl Sync for Log {}

impl Log {
    /// An empty log for a table's own rows. Their numbers stay below 2^31, for comparing them as
    /// signed.
    pub(crate) fn new(row_words: usize) -> Log {
        Log::numbered(OWN_ROWS..i32::MAX as u32, row_words)
    }

    /// A log of a table's rows for other leaders. Row numbers begin with the second chunk's, so
    /// that 0 is free.
    pub(crate) fn of_others(row_words: usize) -> Log {
        Log::numbered(CHUNK_ROWS as u32..OWN_ROWS, row_words)
    }

    fn numbered(ids: Range<RowId>, row_words: usize) -> Log {
        Log {
            chunks: Vec::new(),
            starts: Vec::new(),
            first_chunk: ids.start >> CHUNK_BITS,
            next: ids.start,
            end: ids.end,
            row_words,
        }
    }

    /// The lowest number a row of this log can have now.
    #[inline(always)]
    pub(crate) fn base(&self) -> RowId {
        self.first_chunk << CHUNK_BITS
    }

    /// Rows written.
    pub(crate) fn len(&self) -> usize {
        (self.next - self.base()) as usize
    }

    /// How many more row numbers there are. The owner starts over when they run out.
    pub(crate) fn ids_left(&self) -> u32 {
        self.end - self.next
    }

    /// Makes room for `rows` more rows, so that appending them neither allocates nor moves any.
    ///
    /// If the log would have more rows than there are numbers: some 2^30, or 2^27 in a log for
    /// other leaders.
    pub(crate) fn reserve(&mut self, rows: usize, pool: &mut ChunkPool) {
        self.check_ids(rows);
        if self.has_room(rows) {
            return;
        }
        let end = self.len() + rows;
        if self.partial() {
            self.grow_first(end, pool);
        }
        while self.chunks.len() * CHUNK_ROWS < end {
            // A log may stay small, but what lies in the pool is there already.
            let small = self.chunks.is_empty() && end <= CHUNK_ROWS / 2 && pool.free.is_empty();
            let memory = if small {
                let rows = end.max(FIRST_ROWS).next_power_of_two();
                Memory::alone(rows * self.row_words, pool.heap())
            } else {
                pool.take(self.chunks.len() >= SLAB_CHUNKS)
            };
            self.push(Chunk { memory, rows: 0 });
        }
    }

    /// Whether it need not grow for `rows` more rows.
    pub(crate) fn has_room(&self, rows: usize) -> bool {
        let end = self.len() + rows;
        match self.partial() {
            true => end * self.row_words <= self.chunks[0].memory.capacity(),
            false => end <= self.chunks.len() * CHUNK_ROWS,
        }
    }

    fn check_ids(&self, rows: usize) {
        let left = self.ids_left() as usize;
        assert!(rows + 2 * CHUNK_ROWS < left, "too many keys in one table: use more workers");
    }

    /// Bytes that making room for `rows` more rows takes.
    pub(crate) fn growth_bytes(&self, rows: usize) -> usize {
        let end = self.len() + rows;
        let row_bytes = self.row_words * 8;
        if end <= CHUNK_ROWS / 2 && self.chunks.len() < 2 {
            let room = self.chunks.first().map_or(0, Chunk::bytes);
            let needed = end.max(FIRST_ROWS).next_power_of_two() * row_bytes + OVERHEAD_BYTES;
            // In a heap it would be whole pages.
            let taken = if needed < RUN_BYTES_MIN { needed } else { run_bytes(needed) };
            return if needed > room { taken } else { 0 };
        }
        let chunks = end.div_ceil(CHUNK_ROWS).saturating_sub(self.chunks.len());
        let chunks = chunks.max(usize::from(self.partial()));
        let bytes = chunks * CHUNK_ROWS * row_bytes;
        // Whole slabs, unless the pool has something left.
        let slabs = self.chunks.len() >= SLAB_CHUNKS;
        let bytes = if slabs { bytes.next_multiple_of(SLAB_BYTES) } else { bytes };
        bytes + chunks * OVERHEAD_BYTES
    }

    /// Whether the only chunk has not its full size yet.
    fn partial(&self) -> bool {
        let full = CHUNK_ROWS * self.row_words;
        self.chunks.len() == 1 && self.chunks[0].memory.capacity() < full
    }

    fn push(&mut self, chunk: Chunk) {
        if self.chunks.is_empty() {
            // Most logs that are small stay so.
            self.chunks.reserve_exact(1);
            self.starts.reserve_exact(1);
        }
        self.starts.push(chunk.memory.as_ptr());
        self.chunks.push(chunk);
    }

    /// A cursor for the rows that were reserved.
    pub(crate) fn cursor(&self) -> Cursor<'_> {
        let starts = self.starts.as_ptr().wrapping_sub(self.first_chunk as usize);
        Cursor { log: self, starts, next: self.next, place: self.place_of_next(self.next) }
    }

    /// Where row `next` will stand, if room for it has been reserved. It is `extern` because such
    /// functions do not unwind, so that a loop that calls it can keep a cursor in registers.
    #[cold]
    #[inline(never)]
    extern "C" fn place_of_next(&self, next: RowId) -> *mut u64 {
        let index = ((next >> CHUNK_BITS) - self.first_chunk) as usize;
        let row = (next & CHUNK_MASK) as usize;
        let start = self.starts.get(index).copied().unwrap_or(ptr::null_mut());
        start.wrapping_add(row * self.row_words)
    }

    fn grow_first(&mut self, end: usize, pool: &mut ChunkPool) {
        let chunk = &mut self.chunks[0];
        let rows = end.next_power_of_two().min(CHUNK_ROWS);
        let memory = if rows == CHUNK_ROWS {
            pool.take(false)
        } else {
            Memory::alone(rows * self.row_words, pool.heap())
        };
        // SAFETY: the old memory holds `chunk.rows` written rows, the new one has room for more,
        // and they are different allocations.
        unsafe {
            ptr::copy_nonoverlapping(
                chunk.memory.as_ptr(),
                memory.as_ptr(),
                chunk.rows as usize * self.row_words,
            );
        }
        self.starts[0] = memory.as_ptr();
        chunk.memory = memory;
    }

    /// Counts the rows up to `end` as written.
    pub(crate) fn commit(&mut self, end: RowId) {
        while self.next < end {
            let number = self.next >> CHUNK_BITS;
            let chunk_end = ((self.next | CHUNK_MASK) + 1).min(end);
            self.chunks[(number - self.first_chunk) as usize].rows =
                chunk_end - (number << CHUNK_BITS);
            self.next = chunk_end;
        }
    }

    /// The place of a row.
    pub(crate) fn row(&self, id: RowId) -> *mut u64 {
        let index = ((id >> CHUNK_BITS) - self.first_chunk) as usize;
        self.starts[index].wrapping_add((id & CHUNK_MASK) as usize * self.row_words)
    }

    /// Forgets all rows and goes on, empty, with higher row numbers. Chunks go to the pool; that of
    /// a small log stays.
    pub(crate) fn clear(&mut self, pool: &mut ChunkPool) {
        if !self.partial() {
            self.seal().into_iter().for_each(|chunk| pool.give(chunk));
            return;
        }
        let chunk = &mut self.chunks[0];
        chunk.rows = 0;
        self.first_chunk += 1;
        self.next = self.base();
    }

    /// Gives the room of a log without rows to the pool.
    pub(crate) fn give_room(&mut self, pool: &mut ChunkPool) {
        debug_assert_eq!(self.len(), 0);
        self.starts.clear();
        self.chunks.drain(..).for_each(|chunk| pool.give(chunk));
    }

    /// Hands out all rows and goes on, empty, with higher row numbers.
    pub(crate) fn seal(&mut self) -> Vec<Chunk> {
        let chunks = std::mem::take(&mut self.chunks);
        self.starts.clear();
        let skipped = (self.next - self.base()).div_ceil(CHUNK_ROWS as u32).max(1);
        self.first_chunk += skipped;
        self.next = self.base();
        chunks.into_iter().filter(|c| c.rows > 0).collect()
    }

    /// Numbers the rows of this log, which has none, above all of the other's.
    pub(crate) fn number_above(&mut self, other: &Log) {
        debug_assert!(self.chunks.is_empty());
        self.first_chunk = self.first_chunk.max(other.next.div_ceil(CHUNK_ROWS as u32));
        self.next = self.base();
    }

    /// All rows, to be changed.
    pub(crate) fn rows_mut(&mut self) -> impl Iterator<Item = &mut [u64]> {
        let row_words = self.row_words;
        self.chunks.iter_mut().flat_map(move |chunk| {
            let (first, count) = (chunk.memory.as_ptr(), chunk.rows());
            // SAFETY: so many rows are written, one after the other, and the log that owns them is
            // borrowed.
            let rows = unsafe { slice::from_raw_parts_mut(first, count * row_words) };
            rows.chunks_exact_mut(row_words)
        })
    }

    pub(crate) fn chunks(&self) -> &[Chunk] {
        &self.chunks
    }

    pub(crate) fn bytes(&self) -> usize {
        self.chunks.iter().map(Chunk::bytes).sum()
    }
}

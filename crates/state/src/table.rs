//! A table of state: an index over a log (paper, section 7.2.1), with rows as [`RowLayout`] says.
//!
//! All access is by block: hash a few hundred keys, ask for their index lines, find or append all
//! rows, then update one value column after the other through the rows' places. That hides memory
//! latency and leaves no dispatch per record.

use std::sync::Arc;

use crate::arena::{Arena, packed_len};
use crate::hash::{hash_each_word, hash_words};
use crate::index::{Index, NEAR_INDEX_BYTES, prefetch};
use crate::layout::RowLayout;
use crate::log::{CHUNK_ROWS, Chunk, ChunkPool, Log};
use crate::value::Block;

/// Rows per block: their hashes, keys and places fit the first-level cache beside the lines asked for.
pub const BLOCK_ROWS: usize = 512;

/// The variable-length parts of a block's keys.
pub trait VarKeys {
    /// The bytes of the `var`-th variable-length key column for row `row` of the block.
    fn bytes(&self, row: usize, var: usize) -> &[u8];
}

/// For keys of fixed width.
#[derive(Debug, Clone, Copy)]
pub struct NoVarKeys;

impl VarKeys for NoVarKeys {
    fn bytes(&self, _row: usize, _var: usize) -> &[u8] {
        &[]
    }
}

/// A block of keys, row after row, with their hashes.
///
/// A variable-length key column has two words: the hash of its content, and its length in the upper
/// half of the second, whose lower half is 0; `hash_words` over the row's words is the key's hash.
#[derive(Debug, Clone, Copy)]
pub struct Keys<'a, V> {
    /// One hash per row.
    pub hashes: &'a [u64],
    /// `key_words` words per row.
    pub words: &'a [u64],
    /// Contents of the variable-length columns.
    pub vars: V,
}

/// Rows of one partition set and window slice, private to one thread.
#[derive(Debug)]
pub struct Table {
    layout: Arc<RowLayout>,
    index: Index,
    log: Log,
    arena: Arena,
    /// Rows in the log that are part of the state, whether indexed or appended without look-up.
    live_rows: usize,
    /// Rows that came in segments, and how many of them had new keys.
    merged: usize,
    merged_new: usize,
}

/// Sealed rows on their way to their leader: immutable, position-independent, without an index.
#[derive(Debug)]
pub struct Segment {
    chunks: Vec<Chunk>,
    arena: Arena,
    rows: usize,
}

impl Segment {
    /// Rows in it.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Bytes it occupies.
    pub fn bytes(&self, row_bytes: usize) -> usize {
        self.chunks.len() * CHUNK_ROWS * row_bytes + self.arena.allocated_bytes()
    }
}

/// Buffers that block operations use again and again.
#[derive(Debug, Default)]
pub struct Scratch {
    places: Vec<*mut u64>,
    hashes: Vec<u64>,
    words: Vec<u64>,
}

impl Table {
    /// An empty table; it allocates nothing until it is used.
    pub fn new(layout: Arc<RowLayout>) -> Table {
        Table::expecting(layout, 0)
    }

    /// An empty table that is likely to hold `keys` keys: its index will not grow on the way there.
    pub fn expecting(layout: Arc<RowLayout>, keys: usize) -> Table {
        let log = Log::new(layout.row_words());
        Table {
            layout,
            index: Index::new(keys),
            log,
            arena: Arena::default(),
            live_rows: 0,
            merged: 0,
            merged_new: 0,
        }
    }

    /// Finds the rows of a block of keys, appending those that are new, and returns their places for
    /// updating. `new_rows` of the block tells how many were new.
    pub fn update<'t, V: VarKeys>(
        &'t mut self,
        keys: &Keys<'_, V>,
        pool: &mut ChunkPool,
        scratch: &'t mut Scratch,
    ) -> Block<'t> {
        let before = self.index.len();
        self.find_or_append(keys, pool, &mut scratch.places);
        let new_rows = self.index.len() - before;
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
        let rows = keys.hashes.len();
        self.log.reserve(rows, pool);
        scratch.places.clear();
        scratch.places.reserve(rows);
        let end = match (self.one_word_keys(), self.layout.template()) {
            (true, [a]) => self.append_words([*a], keys.words, &mut scratch.places),
            (true, [a, b]) => self.append_words([*a, *b], keys.words, &mut scratch.places),
            (true, [a, b, c]) => self.append_words([*a, *b, *c], keys.words, &mut scratch.places),
            (true, [a, b, c, d]) => {
                self.append_words([*a, *b, *c, *d], keys.words, &mut scratch.places)
            }
            _ => self.append_rows(keys, &mut scratch.places),
        };
        self.log.commit(end);
        self.live_rows += rows;
        Block::new(&self.layout, &mut self.arena, &scratch.places, rows)
    }

    fn append_words<const N: usize>(
        &mut self,
        template: [u64; N],
        words: &[u64],
        places: &mut Vec<*mut u64>,
    ) -> u32 {
        let mut cursor = self.log.cursor();
        places.extend(words.iter().map(|&word| {
            // SAFETY: room was reserved; the whole row, `1 + N` words, is written.
            unsafe {
                let place = cursor.append(1 + N).1;
                place.write(word);
                place.add(1).cast::<[u64; N]>().write(template);
                place
            }
        }));
        cursor.end()
    }

    fn append_rows<V: VarKeys>(&mut self, keys: &Keys<'_, V>, places: &mut Vec<*mut u64>) -> u32 {
        let width = self.layout.row_words();
        let mut cursor = self.log.cursor();
        for row in 0..keys.hashes.len() {
            // SAFETY: room was reserved, and the whole row is written.
            let place = unsafe { cursor.append(width).1 };
            write_row(place, keys, row, &self.layout, &mut self.arena);
            places.push(place);
        }
        cursor.end()
    }

    fn one_word_keys(&self) -> bool {
        self.layout.key_words() == 1 && self.layout.var_words().is_empty()
    }

    fn find_or_append<V: VarKeys>(
        &mut self,
        keys: &Keys<'_, V>,
        pool: &mut ChunkPool,
        places: &mut Vec<*mut u64>,
    ) {
        let rows = keys.hashes.len();
        debug_assert_eq!(keys.words.len(), rows * self.layout.key_words());
        self.log.reserve(rows, pool);
        self.index.reserve(rows, self.log.base());
        places.clear();
        places.reserve(rows);
        self.index.prefetch(keys.hashes);
        let (hashes, words) = (keys.hashes, keys.words);
        let end = match (self.one_word_keys(), self.layout.template()) {
            (true, [a]) => self.probe([*a], hashes, words, places),
            (true, [a, b]) => self.probe([*a, *b], hashes, words, places),
            (true, [a, b, c]) => self.probe([*a, *b, *c], hashes, words, places),
            (true, [a, b, c, d]) => self.probe([*a, *b, *c, *d], hashes, words, places),
            _ => self.probe_rows(keys, places),
        };
        self.log.commit(end);
    }

    fn probe<const N: usize>(
        &mut self,
        template: [u64; N],
        hashes: &[u64],
        words: &[u64],
        places: &mut Vec<*mut u64>,
    ) -> u32 {
        if self.index.bytes() > NEAR_INDEX_BYTES {
            self.probe_words::<N, true>(template, hashes, words, places)
        } else {
            self.probe_words::<N, false>(template, hashes, words, places)
        }
    }

    /// The loop over a block whose keys are one word each and whose values are `N` words: what most
    /// records run through. Returns the cursor's end.
    ///
    /// With `DEFER`, keys are compared in a second pass, when the lines of their rows have arrived:
    /// for tables that no near cache holds.
    fn probe_words<const N: usize, const DEFER: bool>(
        &mut self,
        template: [u64; N],
        hashes: &[u64],
        words: &[u64],
        places: &mut Vec<*mut u64>,
    ) -> u32 {
        assert!(hashes.len() == words.len() && places.capacity() >= hashes.len());
        let base = self.log.base();
        let slots = self.index.slots();
        let count = slots.len() as u64;
        // Entries as pairs of 32-bit halves: row number, upper half of the hash.
        let first = slots.as_mut_ptr().cast::<[u32; 2]>();
        let last = first.wrapping_add(slots.len());
        let (row_number, hash_half) = if cfg!(target_endian = "little") { (0, 1) } else { (1, 0) };
        let mut cursor = self.log.cursor();
        let (start, out) = (cursor.end(), places.as_mut_ptr());
        for i in 0..hashes.len() {
            // SAFETY: all three are as long as `hashes`, which was checked above.
            let (hash, word, out) =
                unsafe { (*hashes.get_unchecked(i), *words.get_unchecked(i), out.add(i)) };
            let high = (hash >> 32) as u32;
            let mut slot = first.wrapping_add((u64::from(high).wrapping_mul(count) >> 32) as usize);
            let place = loop {
                // SAFETY: `slot` is one of the slots: a fraction of their count, or wrapped around.
                let entry = unsafe { &mut *slot };
                if entry[row_number] < base {
                    // SAFETY: the caller reserved room and commits.
                    let (id, place) = unsafe { cursor.append(1 + N) };
                    // SAFETY: a fresh row of `1 + N` words.
                    unsafe {
                        place.write(word);
                        place.add(1).cast::<[u64; N]>().write(template);
                    }
                    entry[row_number] = id;
                    entry[hash_half] = high;
                    break place;
                }
                if !DEFER && entry[hash_half] == high {
                    // SAFETY: an entry that is not absent names a row of this log, whose first word
                    // is the key.
                    unsafe {
                        let place = cursor.row(entry[row_number], 1 + N);
                        if *place == word {
                            break place;
                        }
                    }
                } else if entry[hash_half] == high {
                    // Most likely the key's row. Its key is compared below, when the cache line
                    // that is asked for here has arrived.
                    // SAFETY: an entry that is not absent names a row of this log.
                    let place = unsafe { cursor.row(entry[row_number], 1 + N) };
                    prefetch(place);
                    if N > 2 {
                        prefetch(place.wrapping_add(N));
                    }
                    break place;
                }
                slot = slot.wrapping_add(1);
                if slot == last {
                    slot = first;
                }
            };
            // SAFETY: as above.
            unsafe { out.write(place) };
        }
        let end = cursor.end();
        // SAFETY: as many have been written.
        unsafe { places.set_len(hashes.len()) };
        self.index.add_len((end - start) as usize);
        self.log.commit(end);
        if !DEFER {
            return end;
        }
        for (i, &word) in words.iter().enumerate() {
            // SAFETY: all places are written rows, whose first word is the key.
            if unsafe { *places[i] } != word {
                places[i] = self.probe_past_collision(hashes[i], word);
            }
        }
        self.log.next()
    }

    /// Two keys share the upper half of their hashes: goes on until the key itself is found, or
    /// appends its row.
    #[cold]
    #[inline(never)]
    fn probe_past_collision(&mut self, hash: u64, word: u64) -> *mut u64 {
        let high = hash >> 32;
        let mut slot = self.index.home(high);
        loop {
            // SAFETY: `slot` comes from `home` and `after`.
            let entry = unsafe { self.index.get(slot) };
            if (entry as u32) < self.log.base() {
                let mut cursor = self.log.cursor();
                // SAFETY: the block's room was reserved for a row per key, of which this key has
                // none yet, and the whole row is written.
                let (id, place) = unsafe { cursor.append(self.layout.row_words()) };
                let end = cursor.end();
                // SAFETY: as above.
                unsafe {
                    place.write(word);
                    let template = self.layout.template();
                    std::ptr::copy_nonoverlapping(template.as_ptr(), place.add(1), template.len());
                    self.index.set(slot, high, id);
                }
                self.log.commit(end);
                return place;
            }
            if entry >> 32 == high {
                let place = self.log.row(entry as u32);
                // SAFETY: a row of this log, whose first word is the key.
                if unsafe { *place } == word {
                    return place;
                }
            }
            slot = self.index.after(slot);
        }
    }

    /// The loop over a block with keys of any shape. Returns the cursor's end.
    fn probe_rows<V: VarKeys>(&mut self, keys: &Keys<'_, V>, places: &mut Vec<*mut u64>) -> u32 {
        let (base, width) = (self.log.base(), self.layout.row_words());
        let Table { layout, index, log, arena, .. } = self;
        let mut cursor = log.cursor();
        for (row, &hash) in keys.hashes.iter().enumerate() {
            let high = hash >> 32;
            let mut slot = index.home(high);
            let place = loop {
                // SAFETY: `slot` comes from `home` and `after`.
                let entry = unsafe { index.get(slot) };
                if (entry as u32) < base {
                    // SAFETY: the caller reserved room in log and index, and commits.
                    let (id, place) = unsafe { cursor.append(width) };
                    write_row(place, keys, row, layout, arena);
                    // SAFETY: as above.
                    unsafe { index.set(slot, high, id) };
                    break place;
                }
                if entry >> 32 == high {
                    // SAFETY: an entry that is not absent names a row of this log.
                    let place = unsafe { cursor.row(entry as u32, width) };
                    if same_key(place, keys, row, layout, arena) {
                        break place;
                    }
                }
                slot = index.after(slot);
            };
            places.push(place);
        }
        cursor.end()
    }

    /// Closes what has been written since the last seal into a segment and starts again from empty
    /// (paper, section 7.2.2, steps 2 and 5). Constant time, apart from the list of chunks.
    pub fn seal(&mut self) -> Segment {
        let rows = std::mem::take(&mut self.live_rows);
        let segment =
            Segment { chunks: self.log.seal(), arena: std::mem::take(&mut self.arena), rows };
        self.start_generation();
        segment
    }

    fn start_generation(&mut self) {
        self.index.new_generation();
        if self.log.ids_left() < 1 << 28 {
            self.log = Log::new(self.layout.row_words());
            self.index.reset();
        }
    }

    /// Empties the table for another window, keeping the index's memory: windows are much alike, so
    /// the next one need not grow step by step. An index far too large for what was in it goes.
    pub fn clear(&mut self, pool: &mut ChunkPool) {
        let keys = self.index.len();
        self.seal().recycle(pool);
        (self.merged, self.merged_new) = (0, 0);
        if self.index.bytes() > 64 * keys + (64 << 10) {
            self.log = Log::new(self.layout.row_words());
            self.index.reset();
        }
    }

    /// Merges a segment row by row (paper, section 7.2.2, step 4); returns how many keys were new.
    pub fn merge(
        &mut self,
        segment: &Segment,
        pool: &mut ChunkPool,
        scratch: &mut Scratch,
    ) -> usize {
        let before = self.index.len();
        for chunk in &segment.chunks {
            for start in (0..chunk.rows()).step_by(BLOCK_ROWS) {
                let end = (start + BLOCK_ROWS).min(chunk.rows());
                self.gather_keys(chunk, start..end, scratch);
                let Scratch { places, hashes, words } = scratch;
                let layout = self.layout.clone();
                let rows = Sources::new(chunk, start, &layout);
                let vars = SegmentVars { rows, segment, layout: &layout };
                self.find_or_append(&Keys { hashes, words, vars }, pool, places);
                let mut block = Block::new(&layout, &mut self.arena, places, 0);
                // SAFETY: the sources are rows of `segment`, which has this layout and which nobody
                // changes; they do not overlap this table's rows.
                unsafe { block.merge_rows(|k| rows.place(k), &segment.arena) };
            }
        }
        self.note_merged(segment.rows, self.index.len() - before)
    }

    fn note_merged(&mut self, rows: usize, new: usize) -> usize {
        self.live_rows += new;
        self.merged += rows;
        self.merged_new += new;
        new
    }

    /// Whether adopting a segment is worth more than merging it: it must be large, its keys fixed in
    /// width, and most of what was merged before must have been new (rows that are not become holes).
    pub fn adopts(&self, segment: &Segment) -> bool {
        let mostly_new = self.merged_new * 8 >= self.merged * 7;
        !self.layout.uses_arena() && segment.rows >= 4 * CHUNK_ROWS && mostly_new
    }

    /// Takes the segment's memory over and indexes its rows where they stand; only rows whose key is
    /// already known are merged, and left behind as holes (paper, section 7.2.1: one index over
    /// several logs). Refused, giving the segment back, when rows refer to an arena.
    pub fn adopt(&mut self, segment: Segment, scratch: &mut Scratch) -> Result<usize, Segment> {
        if self.layout.uses_arena() {
            return Err(segment);
        }
        let before = self.index.len();
        for chunk in segment.chunks {
            let (rows, first) = (chunk.rows(), self.log.adopt(chunk));
            for start in (0..rows).step_by(BLOCK_ROWS) {
                self.index_adopted(first, start..(start + BLOCK_ROWS).min(rows), scratch);
            }
        }
        Ok(self.note_merged(segment.rows, self.index.len() - before))
    }

    fn index_adopted(&mut self, first: u32, rows: std::ops::Range<usize>, scratch: &mut Scratch) {
        self.index.reserve(rows.len(), self.log.base());
        let start = rows.start;
        let (chunk, _) = self.log.chunk(first);
        let sources = Sources::new(chunk, start, &self.layout);
        self.gather_keys(chunk, rows, scratch);
        self.index.prefetch(&scratch.hashes);
        scratch.places.clear();
        let first_id = first + start as u32;
        let holes = match self.layout.key_words() {
            1 => self.index_rows(first_id, scratch, |place, words, i| {
                // SAFETY: `place` is a row of this log, whose first word is the key.
                unsafe { *place == words[i] }
            }),
            width => self.index_rows(first_id, scratch, |place, words, i| {
                // SAFETY: `place` is a row of this log, which has at least its key's words.
                unsafe { std::slice::from_raw_parts(place, width) == &words[i * width..][..width] }
            }),
        };
        let mut block = Block::new(&self.layout, &mut self.arena, &scratch.places, 0);
        // SAFETY: sources and places are rows of this layout, and different rows: a source is not
        // indexed. Without an arena in use its contents do not matter.
        unsafe { block.merge_rows(|k| sources.place(holes[k]), &Arena::default()) };
        for hole in holes {
            self.log.chunk_mut(first).0.kill(start + hole);
        }
    }

    /// Enters rows that stand in the log from `first_id` on into the index. Those whose key is known
    /// already are returned, by position, with the known row's place in `scratch.places`.
    #[inline(always)]
    fn index_rows(
        &mut self,
        first_id: u32,
        scratch: &mut Scratch,
        same: impl Fn(*const u64, &[u64], usize) -> bool,
    ) -> Vec<usize> {
        let Scratch { places, hashes, words } = scratch;
        let base = self.log.base();
        let mut holes = Vec::new();
        for (i, hash) in hashes.iter().enumerate() {
            let high = hash >> 32;
            let mut slot = self.index.home(high);
            loop {
                // SAFETY: `slot` comes from `home` and `after`.
                let entry = unsafe { self.index.get(slot) };
                if (entry as u32) < base {
                    // SAFETY: room was reserved by the caller.
                    unsafe { self.index.set(slot, high, first_id + i as u32) };
                    break;
                }
                if entry >> 32 == high {
                    let place = self.log.row(entry as u32);
                    if same(place, words, i) {
                        holes.push(i);
                        places.push(place);
                        break;
                    }
                }
                slot = self.index.after(slot);
            }
        }
        holes
    }

    /// Reads the keys of some rows of a chunk into the scratch buffers, and hashes them.
    fn gather_keys(&self, chunk: &Chunk, rows: std::ops::Range<usize>, scratch: &mut Scratch) {
        let Scratch { hashes, words, .. } = scratch;
        let (width, count) = (self.layout.key_words(), rows.len());
        let sources = Sources::new(chunk, rows.start, &self.layout);
        words.resize(count * width, 0);
        hashes.resize(count, 0);
        if self.one_word_keys() {
            for (k, word) in words.iter_mut().enumerate() {
                // SAFETY: the chunk's rows are written and have at least one word.
                *word = unsafe { *sources.place(k) };
            }
            hash_each_word(words, hashes);
            return;
        }
        for (k, hash) in hashes.iter_mut().enumerate() {
            let key = &mut words[k * width..(k + 1) * width];
            // SAFETY: the chunk's rows are written and have at least `width` words.
            key.copy_from_slice(unsafe { std::slice::from_raw_parts(sources.place(k), width) });
            for &var in self.layout.var_words() {
                key[var] &= !0xFFFF_FFFF; // the offset is no part of the key
            }
            *hash = hash_words(key);
        }
    }

    /// Keys held (with duplicates, if rows were appended without look-up).
    pub fn rows(&self) -> usize {
        self.live_rows
    }

    /// Bytes allocated.
    pub fn bytes(&self) -> usize {
        self.index.bytes() + self.log.bytes() + self.arena.allocated_bytes()
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
        self.log.chunks().len()
    }

    /// All rows of one scan block (up to [`CHUNK_ROWS`]), in log order. A scan goes over blocks
    /// `0..scan_blocks()`; the table must not change in between.
    pub fn scan<'t>(&'t self, block: usize, buffer: &'t mut Vec<*const u64>) -> RowsRef<'t> {
        let chunk = &self.log.chunks()[block];
        let row_words = self.layout.row_words();
        let rows = if chunk.has_dead() {
            buffer.clear();
            let live = (0..chunk.rows()).filter(|row| !chunk.is_dead(*row));
            buffer.extend(live.map(|row| chunk.row(row, row_words)));
            Rows::Listed(buffer)
        } else {
            Rows::Dense { first: chunk.first(), count: chunk.rows(), row_words }
        };
        RowsRef { rows, arena: &self.arena, layout: &self.layout }
    }
}

/// Writes a new row, copying variable-length keys into the arena.
fn write_row<V: VarKeys>(
    place: *mut u64,
    keys: &Keys<'_, V>,
    row: usize,
    layout: &RowLayout,
    arena: &mut Arena,
) {
    let width = layout.key_words();
    let key = &keys.words[row * width..(row + 1) * width];
    // SAFETY: only called with the place of a fresh row: key words followed by the template's words.
    let words = unsafe {
        std::ptr::copy_nonoverlapping(key.as_ptr(), place, width);
        let template = layout.template();
        std::ptr::copy_nonoverlapping(template.as_ptr(), place.add(width), template.len());
        std::slice::from_raw_parts_mut(place, width)
    };
    for (var, &word) in layout.var_words().iter().enumerate() {
        let bytes = keys.vars.bytes(row, var);
        if !bytes.is_empty() {
            words[word] = arena.push_bytes(bytes);
        }
    }
}

/// Whether the row at `place` has the key of row `row` of the block.
fn same_key<V: VarKeys>(
    place: *const u64,
    keys: &Keys<'_, V>,
    row: usize,
    layout: &RowLayout,
    arena: &Arena,
) -> bool {
    let width = layout.key_words();
    let key = &keys.words[row * width..(row + 1) * width];
    // SAFETY: only called with a written row of the table, which nobody changes meanwhile.
    let stored = unsafe { std::slice::from_raw_parts(place, width) };
    let vars = layout.var_words();
    if vars.is_empty() {
        return stored == key;
    }
    stored.iter().zip(key).enumerate().all(|(i, (s, k))| {
        if vars.contains(&i) { packed_len(*s) == packed_len(*k) } else { s == k }
    }) && vars.iter().enumerate().all(|(var, &word)| {
        packed_len(stored[word]) == 0 || arena.bytes(stored[word]) == keys.vars.bytes(row, var)
    })
}

impl Segment {
    /// Gives the memory of a merged segment to the pool.
    pub fn recycle(self, pool: &mut ChunkPool) {
        self.chunks.into_iter().for_each(|chunk| pool.give(chunk));
    }
}

/// Rows of a chunk that follow each other.
#[derive(Clone, Copy)]
struct Sources {
    first: *const u64,
    row_words: usize,
}

impl Sources {
    fn new(chunk: &Chunk, start: usize, layout: &RowLayout) -> Sources {
        let row_words = layout.row_words();
        Sources { first: chunk.first().wrapping_add(start * row_words), row_words }
    }

    #[inline(always)]
    fn place(&self, row: usize) -> *const u64 {
        self.first.wrapping_add(row * self.row_words)
    }
}

struct SegmentVars<'a> {
    rows: Sources,
    segment: &'a Segment,
    layout: &'a RowLayout,
}

impl VarKeys for SegmentVars<'_> {
    fn bytes(&self, row: usize, var: usize) -> &[u8] {
        // SAFETY: the rows are written rows of the segment, and var words lie within them.
        let reference = unsafe { *self.rows.place(row).add(self.layout.var_words()[var]) };
        if packed_len(reference) == 0 { &[] } else { self.segment.arena.bytes(reference) }
    }
}

/// Rows of a table, to read.
#[derive(Debug)]
pub struct RowsRef<'t> {
    rows: Rows<'t>,
    arena: &'t Arena,
    layout: &'t RowLayout,
}

#[derive(Debug)]
enum Rows<'t> {
    /// One after the other.
    Dense { first: *const u64, count: usize, row_words: usize },
    /// Some of a chunk's.
    Listed(&'t [*const u64]),
}

impl<'t> RowsRef<'t> {
    /// Number of rows.
    pub fn len(&self) -> usize {
        match self.rows {
            Rows::Dense { count, .. } => count,
            Rows::Listed(rows) => rows.len(),
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// `value` of word `word` of every row, in order.
    #[inline]
    pub fn collect<T>(&self, word: usize, value: impl Fn(u64) -> T) -> Vec<T> {
        assert!(word < self.layout.row_words());
        // SAFETY: rows are written and have `row_words` words; the table is borrowed.
        let read = |place: *const u64| value(unsafe { *place.add(word) });
        match self.rows {
            Rows::Dense { first, count, row_words } => {
                (0..count).map(|row| read(first.wrapping_add(row * row_words))).collect()
            }
            Rows::Listed(rows) => rows.iter().map(|place| read(*place)).collect(),
        }
    }

    /// Word `word` of every row, in order.
    pub fn words(&self, word: usize) -> impl Iterator<Item = u64> + '_ {
        (0..self.len()).map(move |row| self.word(row, word))
    }

    /// Word `word` of row `row`.
    #[inline]
    pub fn word(&self, row: usize, word: usize) -> u64 {
        assert!(word < self.layout.row_words() && row < self.len());
        let place = match self.rows {
            Rows::Dense { first, row_words, .. } => first.wrapping_add(row * row_words),
            Rows::Listed(rows) => rows[row],
        };
        // SAFETY: rows are written and have `row_words` words; the table is borrowed.
        unsafe { *place.add(word) }
    }

    /// The bytes of a variable-length key's packed reference.
    pub fn bytes(&self, reference: u64) -> &'t [u8] {
        if packed_len(reference) == 0 { &[] } else { self.arena.bytes(reference) }
    }

    /// The arena that the rows refer to.
    pub fn arena(&self) -> &'t Arena {
        self.arena
    }

    /// The rows' layout.
    pub fn layout(&self) -> &'t RowLayout {
        self.layout
    }
}

// SAFETY: the raw pointers in a scratch are only used within one call on the thread that owns it.
unsafe impl Send for Scratch {}

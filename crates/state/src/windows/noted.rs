//! A table whose rows have a note, a word besides their values. Dead rows are left behind when
//! there are many, and with them unreferenced bytes.

use std::sync::Arc;
use std::vec::IntoIter;

use crate::memory::arena::{Arena, packed_len};
use crate::memory::hash::hash_words;
use crate::memory::log::{BLOCK_ROWS, Chunk, ChunkPool};
use crate::memory::scratch::Scratch;
use crate::table::compact::{move_values, referring};
use crate::table::key::{Keys, VarKeys};
use crate::table::keyed::Table;
use crate::table::layout::{RowLayout, ValueSlot};
use crate::table::merge::SegmentVars;
use crate::table::segment::{Segment, Sources};

/// Fewer do no harm.
const DEAD_MIN: usize = 512;
/// Nor does so much of an arena.
const ARENA_BYTES_MIN: usize = 64 << 10;
/// So much of an arena that is not needed any more is kept for the next time.
const KEPT_BYTES_MAX: usize = 4 << 20;

/// The table, and memory for its operations.
#[derive(Debug)]
pub(crate) struct Noted {
    /// Of the rows without their notes.
    pub(crate) layout: Arc<RowLayout>,
    pub(crate) table: Table,
    /// The word of a row that is its note. It is 0 in a new row.
    pub(crate) note: usize,
    /// The values that may refer to an arena.
    pub(crate) referring: Vec<ValueSlot>,
    pub(crate) pool: ChunkPool,
    pub(crate) scratch: Scratch,
    /// How many rows are not live.
    pub(crate) dead: usize,
    /// They are left behind when one of so many rows is not live.
    dead_share: usize,
    /// Bytes in the arena when rows were last left behind.
    rebuilt_bytes: usize,
    /// The arena that was left behind then, for the next time.
    spare: Arena,
}

/// Rows that are yet to be looked at.
#[derive(Debug)]
pub(crate) struct Rebuild {
    chunks: IntoIter<Chunk>,
    arena: Arena,
}

impl Rebuild {
    pub(crate) fn bytes(&self) -> usize {
        self.chunks.as_slice().iter().map(Chunk::bytes).sum::<usize>()
            + self.arena.allocated_bytes()
    }
}

impl Noted {
    /// Keeps at most `pool_bytes` of idle memory, and leaves dead rows behind once they are a part
    /// in `dead_share` of all rows.
    pub(crate) fn new(layout: Arc<RowLayout>, pool_bytes: usize, dead_share: usize) -> Noted {
        Noted {
            table: Table::new(Arc::new(layout.with_note())),
            note: layout.row_words(),
            referring: referring(&layout),
            pool: ChunkPool::new(layout.row_words() + 1, pool_bytes, None),
            layout,
            scratch: Scratch::default(),
            dead: 0,
            dead_share,
            rebuilt_bytes: 0,
            spare: Arena::default(),
        }
    }

    /// Bytes of idle memory.
    pub(crate) fn idle_bytes(&self) -> usize {
        self.pool.bytes() + self.spare.allocated_bytes()
    }

    /// Gives idle memory back.
    pub(crate) fn release(&mut self) {
        self.pool.release();
        self.spare = Arena::default();
    }

    /// The rows of one scan block: the first, their number, and the words of each.
    pub(crate) fn block(&self, block: usize) -> (*mut u64, usize, usize) {
        let chunk = &self.table.log.chunks()[block];
        (chunk.first().cast_mut(), chunk.rows(), self.note + 1)
    }

    /// Finds the rows of keys, of which new ones are made: those of `count` rows without notes.
    pub(crate) fn find(&mut self, rows: Sources, count: usize, arena: &Arena) -> Vec<*mut u64> {
        if self.table.is_direct() {
            // Keys that have slots are looked up by themselves.
            rows.gather_words(count, &mut self.scratch.words);
            self.scratch.hashes.clear();
        } else {
            rows.gather_keys(count, &self.layout, &mut self.scratch);
        }
        let mut places = std::mem::take(&mut self.scratch.places);
        let vars = SegmentVars { rows, arena, layout: &self.layout };
        let (hashes, words) = (&self.scratch.hashes[..], &self.scratch.words[..]);
        let keys = Keys { hashes, ahead: &[], words, vars };
        enter(&mut self.table, &keys, &mut self.pool, &mut places);
        places
    }

    /// Forgets all rows.
    pub(crate) fn clear(&mut self) {
        self.table.clear(&mut self.pool);
        (self.dead, self.rebuilt_bytes) = (0, 0);
    }

    /// Whether there is much that is not needed any more.
    pub(crate) fn is_worth_rebuilding(&self) -> bool {
        let used = self.table.arena.used_bytes();
        self.has_many_dead() || used > 2 * self.rebuilt_bytes + ARENA_BYTES_MIN
    }

    /// Whether many rows are not needed any more.
    pub(crate) fn has_many_dead(&self) -> bool {
        self.dead > DEAD_MIN && self.dead * self.dead_share > self.table.rows()
    }

    pub(crate) fn start_rebuild(&mut self) -> Rebuild {
        let keys = self.table.rows() - self.dead.min(self.table.rows());
        let Segment { chunks, arena, .. } = self.table.seal();
        if self.table.index_bytes() > 64 * keys + ARENA_BYTES_MIN {
            self.table = Table::new(self.table.layout.clone());
        }
        self.table.arena = std::mem::take(&mut self.spare);
        Rebuild { chunks: chunks.into_iter(), arena }
    }

    /// Goes on with a chunk of rows, of which those are kept whose notes are `live`; `None`: that
    /// was the last.
    pub(crate) fn rebuild_some(
        &mut self,
        mut rebuild: Rebuild,
        live: impl Fn(u64) -> bool,
    ) -> Option<Rebuild> {
        let Some(chunk) = rebuild.chunks.next() else {
            self.dead = 0;
            self.rebuilt_bytes = self.table.arena.used_bytes();
            rebuild.arena.clear_and_keep(KEPT_BYTES_MAX);
            self.spare = rebuild.arena;
            return None;
        };
        let row_words = self.note + 1;
        let rows = (0..chunk.rows()).map(|row| chunk.row(row, row_words));
        // SAFETY: rows of the table, which does not change meanwhile.
        let is_live = |row: &*const u64| live(unsafe { *row.wrapping_add(self.note) });
        let kept: Vec<*const u64> = rows.filter(is_live).collect();
        kept.chunks(BLOCK_ROWS).for_each(|rows| self.keep(rows, &rebuild.arena));
        self.pool.give(chunk);
        Some(rebuild)
    }

    /// Enters rows, which refer to `arena`, as they are.
    fn keep(&mut self, rows: &[*const u64], arena: &Arena) {
        let layout = self.table.layout.clone();
        let width = layout.key_words();
        let (mut words, mut hashes) = (Vec::new(), Vec::with_capacity(rows.len()));
        for row in rows {
            let start = words.len();
            // SAFETY: a row of this layout.
            words.extend_from_slice(unsafe { std::slice::from_raw_parts(*row, width) });
            let key = &mut words[start..];
            layout.var_words().iter().for_each(|var| key[*var] &= !0xFFFF_FFFF);
            hashes.push(hash_words(key));
        }
        if let Some(prefix) = layout.prefix() {
            prefix.lead(&words, width, &mut hashes);
        }
        let vars = PlacedVars { rows, arena, layout: &layout };
        let keys = Keys { hashes: &hashes, ahead: &[], words: &words, vars };
        let mut places = std::mem::take(&mut self.scratch.places);
        enter(&mut self.table, &keys, &mut self.pool, &mut places);
        let values = width..layout.row_words();
        for (row, place) in rows.iter().zip(&places) {
            // SAFETY: rows of this layout; `from` was just made, and `to` is a row of the table.
            let (from, to) = unsafe {
                let from = std::slice::from_raw_parts(row.wrapping_add(width), values.len());
                let to = std::slice::from_raw_parts_mut(place.wrapping_add(width), values.len());
                (from, to)
            };
            to.copy_from_slice(from);
            move_values(to, width, &self.referring, arena, &mut self.table.arena);
        }
        self.scratch.places = places;
    }
}

/// Finds the rows of keys, or makes them.
pub(crate) fn enter<V: VarKeys>(
    table: &mut Table,
    keys: &Keys<'_, V>,
    pool: &mut ChunkPool,
    places: &mut Vec<*mut u64>,
) {
    let before = table.keys();
    table.find_or_append(keys, pool, places);
    table.live_rows += table.keys() - before;
}

/// The variable-length keys of rows at these places.
pub(crate) struct PlacedVars<'a> {
    pub(crate) rows: &'a [*const u64],
    pub(crate) arena: &'a Arena,
    pub(crate) layout: &'a RowLayout,
}

impl VarKeys for PlacedVars<'_> {
    fn bytes(&self, row: usize, var: usize) -> &[u8] {
        // SAFETY: written rows of this layout.
        let reference = unsafe { *self.rows[row].wrapping_add(self.layout.var_words()[var]) };
        if packed_len(reference) == 0 { &[] } else { self.arena.bytes(reference) }
    }
}

/// Copies of rows, with their texts and lists.
#[derive(Debug, Default)]
pub(crate) struct RowCopies {
    pub(crate) words: Vec<u64>,
    pub(crate) arena: Arena,
}

impl RowCopies {
    pub(crate) fn clear(&mut self) {
        self.words.clear();
        self.arena.clear_and_keep(KEPT_BYTES_MAX);
    }

    /// Adds a copy of the values of a row without its key, which begins with its `first` word.
    pub(crate) fn push(
        &mut self,
        values: &[u64],
        first: usize,
        referring: &[ValueSlot],
        from: &Arena,
    ) {
        let start = self.words.len();
        self.words.extend_from_slice(values);
        move_values(&mut self.words[start..], first, referring, from, &mut self.arena);
    }

    pub(crate) fn bytes(&self) -> usize {
        self.words.capacity() * 8 + self.arena.allocated_bytes()
    }
}

/// The values of a row, behind its key.
///
/// # Safety
/// `place` must be a written row of this layout, or the place where the row would begin if it had a
/// key; no thread may change the row meanwhile.
pub(crate) unsafe fn values_at<'a>(place: *const u64, layout: &RowLayout) -> &'a [u64] {
    let words = layout.key_words()..layout.row_words();
    // SAFETY: as the caller promises.
    unsafe { std::slice::from_raw_parts(place.wrapping_add(words.start), words.len()) }
}

/// Makes the values of a row empty.
///
/// # Safety
/// It must be a row of this layout, which the caller has to itself.
pub(crate) unsafe fn reset(row: *mut u64, layout: &RowLayout) {
    let template = layout.template();
    // SAFETY: as the caller promises.
    unsafe {
        let values = row.wrapping_add(layout.key_words());
        std::ptr::copy_nonoverlapping(template.as_ptr(), values, template.len());
    }
}

//! Leaving rows behind whose keys are not live any more, and with them what nothing refers to.

use std::mem::replace;
use std::vec::IntoIter;

use super::{Note, Sliding, older};
use crate::arena::Arena;
use crate::compact::move_values;
use crate::hash::hash_words;
use crate::key::{Keys, VarKeys};
use crate::layout::RowLayout;
use crate::log::{BLOCK_ROWS, Chunk};
use crate::segment::Segment;
use crate::table::Table;

/// Rows are left behind when one of so many is not live.
const DEAD_SHARE: usize = 4;
/// Fewer do no harm.
const DEAD_MIN: usize = 512;
/// Nor does so much of an arena.
const ARENA_BYTES_MIN: usize = 64 << 10;
/// After so many panes all rows are looked at, or panes could not be compared.
const PANES_MAX: u32 = 1 << 30;

/// Rows that are yet to be looked at.
#[derive(Debug)]
pub(super) struct Rebuild {
    chunks: IntoIter<Chunk>,
    arena: Arena,
}

impl Rebuild {
    pub(super) fn bytes(&self) -> usize {
        self.chunks.as_slice().iter().map(Chunk::bytes).sum::<usize>()
            + self.arena.allocated_bytes()
    }
}

impl Sliding {
    pub(super) fn is_worth_rebuilding(&self) -> bool {
        let many = self.dead > DEAD_MIN && self.dead * DEAD_SHARE > self.live.rows();
        let used = self.live.arena.used_bytes();
        many || self.since_rebuild > PANES_MAX || used > 2 * self.rebuilt_bytes + ARENA_BYTES_MIN
    }

    pub(super) fn start_rebuild(&mut self) -> Rebuild {
        let keys = self.live.rows() - self.dead.min(self.live.rows());
        let Segment { chunks, arena, .. } = self.live.seal();
        if self.live.index_bytes() > 64 * keys + ARENA_BYTES_MIN {
            self.live = Table::new(self.live.layout.clone());
        }
        Rebuild { chunks: chunks.into_iter(), arena }
    }

    /// Goes on with a chunk of rows; `None`: that was the last.
    pub(super) fn rebuild_some(&mut self, mut rebuild: Rebuild) -> Option<Rebuild> {
        let Some(chunk) = rebuild.chunks.next() else {
            (self.dead, self.since_rebuild) = (0, 0);
            self.rebuilt_bytes = self.live.arena.used_bytes();
            return None;
        };
        let row_words = self.note + 1;
        let rows = (0..chunk.rows()).map(|row| chunk.row(row, row_words));
        // SAFETY: rows of the live table, which nobody changes.
        let word = |row: &*const u64| unsafe { *row.wrapping_add(self.note) };
        let is_live = |row: &*const u64| {
            Note::of(word(row)).is_some_and(|note| !older(note.last, self.first))
        };
        let live: Vec<*const u64> = rows.filter(is_live).collect();
        live.chunks(BLOCK_ROWS).for_each(|rows| self.keep(rows, &rebuild.arena));
        self.pool.give(chunk);
        Some(rebuild)
    }

    /// Enters rows, which refer to `arena`, as they are.
    fn keep(&mut self, rows: &[*const u64], arena: &Arena) {
        let layout = self.live.layout.clone();
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
        let vars = PlacedVars { rows, arena, layout: &layout };
        let keys = Keys { hashes: &hashes, ahead: &[], words: &words, vars };
        let before = self.live.keys();
        let mut places = replace(&mut self.scratch.places, Vec::new());
        self.live.find_or_append(&keys, &mut self.pool, &mut places);
        self.live.live_rows += self.live.keys() - before;
        let values = width..layout.row_words();
        for (row, place) in rows.iter().zip(&places) {
            // SAFETY: rows of this layout; the one was just made, the other is none of the table's.
            let (from, to) = unsafe {
                let from = std::slice::from_raw_parts(row.wrapping_add(width), values.len());
                let to = std::slice::from_raw_parts_mut(place.wrapping_add(width), values.len());
                (from, to)
            };
            to.copy_from_slice(from);
            move_values(to, width, &self.referring, arena, &mut self.live.arena);
        }
        self.scratch.places = places;
    }
}

/// The variable-length keys of rows at these places.
struct PlacedVars<'a> {
    rows: &'a [*const u64],
    arena: &'a Arena,
    layout: &'a RowLayout,
}

impl VarKeys for PlacedVars<'_> {
    fn bytes(&self, row: usize, var: usize) -> &[u8] {
        // SAFETY: written rows of this layout.
        let reference = unsafe { *self.rows[row].wrapping_add(self.layout.var_words()[var]) };
        if crate::arena::packed_len(reference) == 0 { &[] } else { self.arena.bytes(reference) }
    }
}

//! How a leader takes sealed rows in: row by row.

use std::ops::Range;

use crate::memory::arena::{Arena, packed_len};
use crate::memory::log::{BLOCK_ROWS, Chunk, ChunkPool};
use crate::memory::prefetch::prefetch;
use crate::memory::scratch::Scratch;
use crate::table::key::{Keys, VarKeys};
use crate::table::keyed::Table;
use crate::table::layout::RowLayout;
use crate::table::segment::{Segment, Sources};
use crate::table::value::Block;

impl Table {
    /// Merges a segment row by row (paper, section 7.2.2, step 4); returns how many keys were new.
    pub fn merge(
        &mut self,
        segment: &Segment,
        pool: &mut ChunkPool,
        scratch: &mut Scratch,
    ) -> usize {
        let before = self.keys();
        self.merge_from(segment, 0, usize::MAX, pool, scratch);
        self.keys() - before
    }

    /// Merges rows of a segment from the chunk `first` on, so many chunks at the most; whether more
    /// are left.
    pub fn merge_from(
        &mut self,
        segment: &Segment,
        first: usize,
        chunks_max: usize,
        pool: &mut ChunkPool,
        scratch: &mut Scratch,
    ) -> bool {
        for chunk in segment.chunks.iter().skip(first).take(chunks_max) {
            self.merge_chunk(chunk, &segment.arena, pool, scratch);
        }
        segment.chunks.len() > first.saturating_add(chunks_max)
    }

    fn merge_chunk(
        &mut self,
        chunk: &Chunk,
        arena: &Arena,
        pool: &mut ChunkPool,
        scratch: &mut Scratch,
    ) {
        let before = self.keys();
        let sources = Sources::new(chunk, 0, &self.layout);
        self.merge_run(sources, chunk.rows(), arena, pool, scratch);
        self.live_rows += self.keys() - before;
    }

    /// Merges `count` consecutive rows.
    pub(crate) fn merge_run(
        &mut self,
        sources: Sources,
        count: usize,
        arena: &Arena,
        pool: &mut ChunkPool,
        scratch: &mut Scratch,
    ) {
        let layout = self.layout.clone();
        let width = layout.key_words();
        if self.is_direct() {
            // Keys that have slots are looked up by themselves.
            sources.gather_words(count, &mut scratch.words);
            scratch.hashes.clear();
        } else {
            sources.gather_keys(count, &layout, scratch);
        }
        let Scratch { places, hashes, words } = scratch;
        self.prefetch(&hashes[..hashes.len().min(BLOCK_ROWS)]);
        for block in blocks(count) {
            let rows = sources.from(block.start);
            let vars = SegmentVars { rows, arena, layout: &layout };
            let words = &words[block.start * width..block.end * width];
            let (hashes, ahead) = with_ahead(hashes, &block);
            self.find_or_append(&Keys { hashes, ahead, words, vars }, pool, places);
            // Finding has asked for the first line of each row: a row may stand in two.
            let last = layout.row_words() - 1;
            places.iter().for_each(|place| prefetch(place.wrapping_add(last)));
            let mut block = Block::new(&layout, &mut self.arena, places, 0);
            // SAFETY: the sources are rows of a segment, which has this layout and which nobody
            // changes; they do not overlap this table's rows.
            unsafe { block.merge_rows(|k| rows.place(k), arena) };
        }
    }

    /// Appends rows with these keys, without look-up.
    pub(crate) fn append_rows(
        &mut self,
        (hashes, words): (&[u64], &[u64]),
        rows: Sources,
        arena: &Arena,
        pool: &mut ChunkPool,
        scratch: &mut Scratch,
    ) {
        let layout = self.layout.clone();
        let vars = SegmentVars { rows, arena, layout: &layout };
        let mut block = self.append(&Keys { hashes, ahead: &[], words, vars }, pool, scratch);
        // SAFETY: as in `merge_run`.
        unsafe { block.merge_rows(|k| rows.place(k), arena) };
    }
}

/// Blocks of so many rows.
fn blocks(rows: usize) -> impl Iterator<Item = Range<usize>> {
    (0..rows).step_by(BLOCK_ROWS).map(move |start| start..(start + BLOCK_ROWS).min(rows))
}

/// Hashes of a block of rows, and of the next block; empty if there are no hashes.
fn with_ahead<'h>(hashes: &'h [u64], block: &Range<usize>) -> (&'h [u64], &'h [u64]) {
    if hashes.is_empty() {
        return (&[], &[]);
    }
    let next_end = (block.end + BLOCK_ROWS).min(hashes.len());
    (&hashes[block.clone()], &hashes[block.end..next_end])
}

/// The variable-length keys of rows that follow each other.
pub(crate) struct SegmentVars<'a> {
    pub(crate) rows: Sources,
    pub(crate) arena: &'a Arena,
    pub(crate) layout: &'a RowLayout,
}

impl VarKeys for SegmentVars<'_> {
    fn bytes(&self, row: usize, var: usize) -> &[u8] {
        // SAFETY: the rows are written rows of the segment, and var words lie within them.
        let reference = unsafe { *self.rows.place(row).add(self.layout.var_words()[var]) };
        if packed_len(reference) == 0 { &[] } else { self.arena.bytes(reference) }
    }
}

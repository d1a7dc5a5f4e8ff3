//! Rows of all leaders that stand in one table, parted by leader.
//!
//! Where keys repeat often it costs more to find every record's leader before looking its key up than to find
//! the leader of every distinct key when the table is sealed.

use crate::arena::Arena;
use crate::fragment::Fragment;
use crate::layout::RowLayout;
use crate::log::{CHUNK_ROWS, ChunkPool};
use crate::partition::Leaders;
use crate::segment::{Segment, Sources};
use crate::table::{Scratch, Table};

/// Copies of sealed rows, those of one leader after the other. Its buffers are used again.
#[derive(Debug, Default)]
pub struct Split {
    words: Vec<Vec<u64>>,
    row_words: usize,
}

impl Split {
    /// Parts the rows of a segment by leader. What they refer to stays in the segment's arena.
    pub fn part(
        &mut self,
        segment: &Segment,
        layout: &RowLayout,
        leaders: &Leaders,
        scratch: &mut Scratch,
    ) {
        let row_words = layout.row_words();
        self.row_words = row_words;
        self.words.resize_with(leaders.count(), Vec::new);
        self.words.iter_mut().for_each(Vec::clear);
        for run in segment.runs(layout, CHUNK_ROWS) {
            let rows = run.len() / row_words;
            Sources::of(run, row_words).gather_keys(rows, layout, scratch);
            for (row, hash) in run.chunks_exact(row_words).zip(&scratch.hashes) {
                self.words[leaders.of(*hash)].extend_from_slice(row);
            }
        }
    }

    /// Rows of one leader.
    pub fn rows(&self, leader: usize) -> usize {
        self.words.get(leader).map_or(0, |words| words.len() / self.row_words)
    }

    /// Bytes allocated.
    pub fn bytes(&self) -> usize {
        self.words.iter().map(|words| words.capacity() * 8).sum()
    }

    /// Gives its buffers back.
    pub fn release(&mut self) {
        self.words = Vec::new();
    }
}

impl Table {
    /// Merges the rows of one leader, which refer to `arena`.
    pub fn merge_part(
        &mut self,
        (split, leader): (&Split, usize),
        arena: &Arena,
        pool: &mut ChunkPool,
        scratch: &mut Scratch,
    ) {
        let before = self.keys();
        let words = split.words.get(leader).map_or(&[][..], Vec::as_slice);
        for run in words.chunks((CHUNK_ROWS * split.row_words).max(1)) {
            let (sources, rows) = (Sources::of(run, split.row_words), run.len() / split.row_words);
            self.merge_run(sources, rows, arena, pool, scratch);
        }
        self.live_rows += self.keys() - before;
    }
}

impl Fragment {
    /// Merges the rows of one leader, which refer to `arena`. That says nothing about how often keys repeat.
    pub fn merge_part(
        &mut self,
        part: (&Split, usize),
        arena: &Arena,
        pool: &mut ChunkPool,
        scratch: &mut Scratch,
    ) {
        self.table_mut().merge_part(part, arena, pool, scratch);
    }
}

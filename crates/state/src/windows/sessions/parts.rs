//! Slices that pack parts: their rows are joined part by part, in the order of time. A key has one
//! row in each part.

use crate::memory::log::{BLOCK_ROWS, CHUNK_ROWS};
use crate::table::keyed::Table;
use crate::table::segment::Sources;

/// The rows of a slice.
#[derive(Debug)]
pub(super) struct Parts {
    /// The word of a row that says of which part it is.
    word: usize,
    rows: Vec<Row>,
    /// Copies of some of them, without this word.
    words: Vec<u64>,
}

#[derive(Debug, Clone, Copy)]
struct Row {
    part: i64,
    block: u32,
    row: u32,
}

impl Parts {
    pub(super) fn new(word: usize) -> Parts {
        Parts { word, rows: Vec::new(), words: Vec::new() }
    }

    pub(super) fn clear(&mut self) {
        self.rows.clear();
    }

    /// Takes note of a block of rows; returns how many there are.
    pub(super) fn note(&mut self, table: &Table, block: usize) -> usize {
        let rows = table.scan(block);
        let parts = rows.words(self.word).enumerate();
        self.rows.extend(parts.map(|(row, part)| Row {
            part: part as i64,
            block: block as u32,
            row: row as u32,
        }));
        if block + 1 == table.scan_blocks() && !self.rows.is_sorted_by_key(|row| row.part) {
            self.rows.sort_by_key(|row| row.part);
        }
        rows.len()
    }

    /// Blocks of the rows that have been noted.
    pub(super) fn blocks(&self) -> usize {
        self.rows.len().div_ceil(CHUNK_ROWS)
    }

    /// Gives the rows of such a block to `join`, so many at a time, of one part; returns how many
    /// there are.
    pub(super) fn join(
        &mut self,
        table: &Table,
        block: usize,
        join: &mut dyn FnMut(Sources, usize),
    ) -> usize {
        let start = (block * CHUNK_ROWS).min(self.rows.len());
        let rows = &self.rows[start..(start + CHUNK_ROWS).min(self.rows.len())];
        let row_words = table.layout.row_words();
        for part in rows.chunk_by(|a, b| a.part == b.part) {
            for some in part.chunks(BLOCK_ROWS) {
                self.words.clear();
                for row in some {
                    let chunk = &table.log.chunks()[row.block as usize];
                    let place = chunk.row(row.row as usize, row_words);
                    // SAFETY: a written row of a table that nobody changes.
                    let words = unsafe { std::slice::from_raw_parts(place, row_words) };
                    self.words.extend_from_slice(&words[..self.word]);
                    self.words.extend_from_slice(&words[self.word + 1..]);
                }
                join(Sources::of(&self.words, row_words - 1), some.len());
            }
        }
        rows.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.rows.capacity() * size_of::<Row>() + self.words.capacity() * 8
    }
}

//! Access to the rows of a table, for reading.

use crate::arena::{Arena, packed_len};
use crate::layout::RowLayout;
use crate::log::Chunk;

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
    /// All rows of a chunk that are part of the state; `buffer` lists them if some are not.
    pub(crate) fn of_chunk(
        chunk: &'t Chunk,
        arena: &'t Arena,
        layout: &'t RowLayout,
        buffer: &'t mut Vec<*const u64>,
    ) -> RowsRef<'t> {
        let row_words = layout.row_words();
        let rows = if chunk.has_dead() {
            buffer.clear();
            let live = (0..chunk.rows()).filter(|row| !chunk.is_dead(*row));
            buffer.extend(live.map(|row| chunk.row(row, row_words)));
            Rows::Listed(buffer)
        } else {
            Rows::Dense { first: chunk.first(), count: chunk.rows(), row_words }
        };
        RowsRef { rows, arena, layout }
    }

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
                // Four at a time: there is little to do for each.
                let mut fours = Vec::with_capacity(count.div_ceil(4));
                let mut place = first;
                fours.extend((0..count / 4).map(|_| {
                    let four = [0, 1, 2, 3].map(|i| read(place.wrapping_add(i * row_words)));
                    place = place.wrapping_add(4 * row_words);
                    four
                }));
                let mut values = fours.into_flattened();
                let rest = values.len()..count;
                values.extend(rest.map(|row| read(first.wrapping_add(row * row_words))));
                values
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

//! Access to the rows of a table, for reading.

use crate::memory::arena::{Arena, packed_len};
use crate::memory::log::Chunk;
use crate::table::layout::RowLayout;

/// Rows of a table, to read: one after the other.
#[derive(Debug)]
pub struct RowsRef<'t> {
    first: *const u64,
    count: usize,
    arena: &'t Arena,
    layout: &'t RowLayout,
}

impl<'t> RowsRef<'t> {
    /// All rows of a chunk.
    pub(crate) fn of_chunk(
        chunk: &'t Chunk,
        arena: &'t Arena,
        layout: &'t RowLayout,
    ) -> RowsRef<'t> {
        RowsRef { first: chunk.first(), count: chunk.rows(), arena, layout }
    }

    /// The whole rows in `words`, which refer to `arena`.
    pub fn of_words(words: &'t [u64], arena: &'t Arena, layout: &'t RowLayout) -> RowsRef<'t> {
        let count = words.len() / layout.row_words();
        RowsRef { first: words.as_ptr(), count, arena, layout }
    }

    /// The words of all rows, one row after the other.
    pub fn as_words(&self) -> &'t [u64] {
        // SAFETY: rows are written and stand one after the other; the table is borrowed.
        unsafe { std::slice::from_raw_parts(self.first, self.count * self.layout.row_words()) }
    }

    /// Some of the rows.
    ///
    /// # Panics
    /// If there are not so many.
    pub fn slice(&self, rows: std::ops::Range<usize>) -> RowsRef<'t> {
        assert!(rows.start <= rows.end && rows.end <= self.count);
        let first = self.first.wrapping_add(rows.start * self.layout.row_words());
        RowsRef { first, count: rows.len(), ..*self }
    }

    /// Number of rows.
    #[inline]
    pub fn len(&self) -> usize {
        self.count
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
        let (first, row_words) = (self.first, self.layout.row_words());
        // Four at a time: there is little to do for each.
        let mut fours = Vec::with_capacity(self.count.div_ceil(4));
        let mut place = first;
        fours.extend((0..self.count / 4).map(|_| {
            let four = [0, 1, 2, 3].map(|i| read(place.wrapping_add(i * row_words)));
            place = place.wrapping_add(4 * row_words);
            four
        }));
        let mut values = fours.into_flattened();
        let rest = values.len()..self.count;
        values.extend(rest.map(|row| read(first.wrapping_add(row * row_words))));
        values
    }

    /// Word `word` of every row, in order.
    pub fn words(&self, word: usize) -> impl Iterator<Item = u64> + '_ {
        (0..self.len()).map(move |row| self.word(row, word))
    }

    /// Where the rows stand, in order.
    pub(crate) fn places(&self) -> impl Iterator<Item = *const u64> {
        let (first, row_words) = (self.first, self.layout.row_words());
        (0..self.count).map(move |row| first.wrapping_add(row * row_words))
    }

    /// Word `word` of row `row`.
    #[inline]
    pub fn word(&self, row: usize, word: usize) -> u64 {
        assert!(word < self.layout.row_words() && row < self.len());
        let place = self.first.wrapping_add(row * self.layout.row_words());
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

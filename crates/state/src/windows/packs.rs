//! Rows of tables in which many panes are packed, in the order in which their first windows end.

use std::cmp::Reverse;

use crate::table::keyed::Table;

/// The tables, and which of their rows come next.
#[derive(Debug)]
pub(crate) struct Packs {
    /// The word of a row that says of which pane it is.
    word: usize,
    pub(crate) tables: Vec<Table>,
    /// The next table and block to be noted.
    cursor: (usize, usize),
    runs: Vec<Run>,
    /// The first run of which rows have not been taken.
    next: usize,
    /// The numbers of all rows, added up.
    numbers: usize,
}

/// Rows of a block that follow each other, all of a pane.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Run {
    /// The pane with which their first window ends.
    pub(crate) first: i64,
    /// What else was said of them.
    pub(crate) number: u32,
    pub(crate) table: u32,
    block: u32,
    row: u16,
    rows: u16,
}

const _: () = assert!(crate::CHUNK_ROWS <= u16::MAX as usize);

impl Run {
    /// How many there are.
    pub(crate) fn rows(&self) -> usize {
        usize::from(self.rows)
    }
}

impl Packs {
    pub(crate) fn new(word: usize) -> Packs {
        let (tables, cursor, runs) = Default::default();
        Packs { word, tables, cursor, runs, next: 0, numbers: 0 }
    }

    /// Begins with the rows of these tables, and gives back those of before.
    pub(crate) fn begin(&mut self, tables: Vec<Table>) -> Vec<Table> {
        self.runs.clear();
        (self.cursor, self.next, self.numbers) = Default::default();
        std::mem::replace(&mut self.tables, tables)
    }

    /// Takes note of the next block of rows: `of` gives the pane with which a row's first window
    /// ends, and a number, for the number of a table and the word of the row; `None`: the row
    /// counts for no window. Returns how many rows there were; `None`: there is no block left.
    ///
    /// Rows come in the order of panes then, of the same pane those first whose number is greater.
    pub(crate) fn note(&mut self, of: impl Fn(usize, u64) -> Option<(i64, u32)>) -> Option<usize> {
        let (number, block) = self.cursor;
        let table = self.tables.get(number)?;
        if block >= table.scan_blocks() {
            self.cursor = (number + 1, 0);
            let order = |run: &Run| (run.first, Reverse(run.number));
            if number + 1 == self.tables.len() && !self.runs.is_sorted_by_key(order) {
                self.runs.sort_by_key(order);
            }
            return Some(0);
        }
        self.cursor.1 += 1;
        let (rows, at) = (table.scan(block), (number as u32, block as u32));
        let mut words = rows.words(self.word).zip(0..).peekable();
        while let Some((word, row)) = words.next() {
            let mut rows = 1;
            while words.next_if(|(next, _)| *next == word).is_some() {
                rows += 1;
            }
            if let Some((first, number)) = of(number, word) {
                let (table, block) = at;
                self.numbers += usize::from(rows) * number as usize;
                self.runs.push(Run { first, number, table, block, row, rows });
            }
        }
        Some(rows.len())
    }

    /// Whether all blocks have been noted.
    pub(crate) fn is_noted(&self) -> bool {
        self.cursor.0 >= self.tables.len()
    }

    /// The numbers of all rows, added up.
    pub(crate) fn numbers(&self) -> usize {
        self.numbers
    }

    /// The next rows.
    pub(crate) fn next(&self) -> Option<Run> {
        self.runs.get(self.next).copied()
    }

    /// So many of them have been taken.
    pub(crate) fn go_on(&mut self, rows: usize) {
        if let Some(run) = self.runs.get_mut(self.next) {
            run.row += rows as u16;
            run.rows -= rows as u16;
            self.next += usize::from(run.rows == 0);
        }
    }

    /// The words of the first `rows` rows of a run.
    pub(crate) fn words(&self, run: &Run, rows: usize) -> &[u64] {
        let table = &self.tables[run.table as usize];
        let row_words = table.layout.row_words();
        let place = table.log.chunks()[run.block as usize].row(usize::from(run.row), row_words);
        assert!(rows <= run.rows());
        // SAFETY: written rows of a table, which is borrowed.
        unsafe { std::slice::from_raw_parts(place, rows * row_words) }
    }

    /// Gives back memory that is not needed now.
    pub(crate) fn release(&mut self) {
        if self.is_noted() && self.next().is_none() {
            (self.runs, self.next) = (Vec::new(), 0);
        }
    }

    /// Bytes that taking note of the rows may take, if that has not begun.
    pub(crate) fn growth_bytes(&self) -> usize {
        let rows: usize = self.tables.iter().map(Table::rows).sum();
        match self.is_noted() {
            true => 0,
            false => rows.saturating_sub(self.runs.capacity()) * size_of::<Run>(),
        }
    }

    /// Bytes of what has been noted.
    pub(crate) fn noted_bytes(&self) -> usize {
        self.runs.capacity() * size_of::<Run>()
    }
}

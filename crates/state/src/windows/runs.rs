//! Rows of slices, in the order in which the first of their windows end. A slice has rows of one
//! pane, or packs several: then a word of each row says of which pane the row is.

use std::cmp::Reverse;

use crate::memory::arena::Arena;
use crate::table::keyed::Table;
use crate::table::segment::Sources;

/// The slices, and which of their rows come next.
#[derive(Debug)]
pub(crate) struct PaneRuns {
    /// The word of a row with its pane; `None`: each slice has one pane.
    word: Option<usize>,
    /// Slices with rows that have not been taken, and how many; `None`: it has been read.
    slices: Vec<Option<(Table, usize)>>,
    /// The next slice and block to be noted.
    cursor: (usize, usize),
    runs: Vec<PaneRun>,
    /// The first run of which rows have not been taken.
    next: usize,
    /// Copies of rows without the word of their pane.
    words: Vec<u64>,
}

/// Rows of a block that follow each other, all of a pane.
#[derive(Debug, Clone, Copy)]
struct PaneRun {
    /// The pane with which their first window ends, and how many panes their own is before it.
    first: i64,
    before: u32,
    slice: u32,
    block: u32,
    row: u16,
    rows: u16,
}

const _: () = assert!(crate::CHUNK_ROWS <= u16::MAX as usize);

/// Rows of one pane, which refer to an arena, without the word of the pane.
pub(crate) struct PaneRows<'a> {
    pub(crate) pane: i64,
    pub(crate) rows: Sources,
    pub(crate) count: usize,
    pub(crate) arena: &'a Arena,
}

impl PaneRuns {
    pub(crate) fn new(word: Option<usize>) -> PaneRuns {
        let (slices, cursor, runs, next, words) = Default::default();
        PaneRuns { word, slices, cursor, runs, next, words }
    }

    /// Begins with the rows of these slices, after all earlier slices have been taken back.
    pub(crate) fn begin(&mut self, slices: Vec<Table>) {
        debug_assert!(self.slices.iter().all(Option::is_none), "slices that were not given back");
        self.slices.clear();
        self.slices.extend(slices.into_iter().map(|table| Some((table, 0))));
        self.runs.clear();
        (self.cursor, self.next) = Default::default();
    }

    /// Whether all blocks have been noted.
    pub(crate) fn are_noted(&self) -> bool {
        self.cursor.0 >= self.slices.len()
    }

    /// The block that is noted next.
    pub(crate) fn next_block(&self) -> Option<(&Table, usize)> {
        let (table, _) = self.slices.get(self.cursor.0)?.as_ref()?;
        (self.cursor.1 < table.scan_blocks()).then_some((table, self.cursor.1))
    }

    /// Takes note of the next block of rows: `of` gives the pane of a row, and the pane with which
    /// its first window ends, for the number of a slice and the word of the row. Returns how many
    /// rows were looked at.
    ///
    /// Rows come in the order of their first windows then, those of the same first window in the
    /// order of their panes.
    pub(crate) fn note(&mut self, of: impl Fn(usize, u64) -> [i64; 2]) -> usize {
        let (number, block) = self.cursor;
        let Some(Some((table, left))) = self.slices.get_mut(number) else { return 0 };
        if block >= table.scan_blocks() {
            self.cursor = (number + 1, 0);
            let order = |run: &PaneRun| (run.first, Reverse(run.before));
            if self.are_noted() && !self.runs.is_sorted_by_key(order) {
                self.runs.sort_by_key(order);
            }
            return 0;
        }
        self.cursor.1 += 1;
        let rows = table.scan(block);
        let runs = &mut self.runs;
        let mut add = |word: u64, row: usize, count: usize| {
            let [pane, first] = of(number, word);
            // A row that is late for all of its windows is of none.
            let Ok(before) = u32::try_from(first - pane) else { return };
            *left += count;
            let (slice, block) = (number as u32, block as u32);
            runs.push(PaneRun { first, before, slice, block, row: row as u16, rows: count as u16 });
        };
        let Some(word) = self.word else {
            add(0, 0, rows.len());
            return 0;
        };
        let mut words = rows.words(word).enumerate().peekable();
        while let Some((row, word)) = words.next() {
            let mut count = 1;
            while words.next_if(|(_, next)| *next == word).is_some() {
                count += 1;
            }
            add(word, row, count);
        }
        rows.len()
    }

    /// The pane with which the first window of the next rows ends.
    pub(crate) fn next_first(&self) -> Option<i64> {
        self.runs.get(self.next).map(|run| run.first)
    }

    /// Takes the next rows of one pane and slice, `rows_max` at the most.
    pub(crate) fn take(&mut self, rows_max: usize) -> Option<PaneRows<'_>> {
        let PaneRuns { word, slices, runs, next, words, .. } = self;
        let PaneRun { first, before, slice, .. } = *runs.get(*next)?;
        let (table, left) = slices.get_mut(slice as usize)?.as_mut()?;
        let row_words = table.layout.row_words();
        let is_alike = |run: &PaneRun| (run.first, run.before, run.slice) == (first, before, slice);
        let (mut count, mut sources) = (0, None);
        words.clear();
        while let Some(run) = runs.get_mut(*next).filter(|run| is_alike(run)) {
            let some = usize::from(run.rows).min(rows_max - count);
            let chunk = &table.log.chunks()[run.block as usize];
            let rows = Sources::new(chunk, run.row.into(), &table.layout);
            if let Some(word) = *word {
                for row in 0..some {
                    // SAFETY: a written row of a table that nobody changes.
                    let row = unsafe { std::slice::from_raw_parts(rows.place(row), row_words) };
                    words.extend_from_slice(&row[..word]);
                    words.extend_from_slice(&row[word + 1..]);
                }
            }
            sources.get_or_insert(rows);
            (run.row, run.rows) = (run.row + some as u16, run.rows - some as u16);
            *next += usize::from(run.rows == 0);
            count += some;
            if word.is_none() || count == rows_max {
                break;
            }
        }
        *left -= count;
        let rows = match word {
            None => sources?,
            Some(_) => Sources::of(words, row_words - 1),
        };
        Some(PaneRows { pane: first - i64::from(before), rows, count, arena: &table.arena })
    }

    /// The slices of which all rows have been taken, each with its number.
    pub(crate) fn read_slices(&mut self) -> Vec<(usize, Table)> {
        if !self.are_noted() {
            return vec![];
        }
        let slices = self.slices.iter_mut().enumerate();
        let read =
            slices.filter_map(|(n, slice)| Some((n, slice.take_if(|(_, left)| *left == 0)?)));
        read.map(|(number, (table, _))| (number, table)).collect()
    }

    /// Forgets all rows; the slices that are left.
    pub(crate) fn end(&mut self) -> Vec<(usize, Table)> {
        self.runs.clear();
        (self.cursor, self.next) = Default::default();
        let left = self.slices.drain(..).enumerate();
        left.filter_map(|(number, slice)| Some((number, slice?.0))).collect()
    }

    /// The word of a row with its pane.
    pub(crate) fn word(&self) -> Option<usize> {
        self.word
    }

    fn tables(&self) -> impl Iterator<Item = &Table> {
        self.slices.iter().flatten().map(|(table, _)| table)
    }

    /// Rows of slices that have not been read.
    pub(crate) fn rows(&self) -> usize {
        self.tables().map(Table::rows).sum()
    }

    /// Bytes allocated.
    pub(crate) fn bytes(&self) -> usize {
        let noted = self.runs.capacity() * size_of::<PaneRun>() + self.words.capacity() * 8;
        self.tables().map(Table::bytes).sum::<usize>() + noted
    }

    /// Bytes of keys and values.
    pub(crate) fn live_bytes(&self) -> usize {
        self.tables().map(Table::live_bytes).sum()
    }

    /// Bytes that taking note of the rows may take, if that has not been done.
    pub(crate) fn growth_bytes(&self) -> usize {
        match self.word {
            Some(_) if !self.are_noted() => {
                self.rows().saturating_sub(self.runs.capacity()) * size_of::<PaneRun>()
            }
            _ => 0,
        }
    }

    /// Gives back memory that is not needed now.
    pub(crate) fn release(&mut self) {
        self.words = Vec::new();
        if self.are_noted() && self.next == self.runs.len() {
            (self.runs, self.next) = (Vec::new(), 0);
        }
    }
}

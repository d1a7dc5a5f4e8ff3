//! Rows that count for several windows: each is merged into a row for each of these.
//!
//! A word of a row's key says of which pane it is; in the rows that are made of it, this word is
//! the number of the pane with which the window ends. The windows of a row end with panes that
//! follow each other. Windows are read in groups, in the order in which they end: so no more rows
//! are made at a time than a group of windows has, and those after it that have a pane in common
//! with it.
//!
//! A row of many windows is merged as often: two stacks ([`crate::windows::sliding`]) merge it
//! three times. But they do something for every pane, even if it has a single row; here a pane
//! costs nothing by itself.

use std::sync::Arc;

use crate::memory::log::ChunkPool;
use crate::memory::scratch::Scratch;
use crate::table::keyed::{Load, Table};
use crate::table::layout::RowLayout;
use crate::table::rows::RowsRef;
use crate::table::segment::Sources;
use crate::windows::packs::{Packs, Run};

/// Words that are gathered before they are merged.
const GATHERED_WORDS: usize = 1 << 12;

/// The rows of panes, and of the windows that they count for. See the module.
///
/// [`begin`](Spread::begin) with tables, [`note`](Spread::note) all of their blocks; then, for each
/// group of windows, [`spread`](Spread::spread) until nothing is left to do for it, read what is
/// [`ready`](Spread::ready), and [`go_on`](Spread::go_on).
#[derive(Debug)]
pub struct Spread {
    layout: Arc<RowLayout>,
    /// The word of a row that says of which pane or window it is.
    word: usize,
    /// Of each row, how many windows it counts for.
    rows: Packs,
    ready: Gathered,
    later: Gathered,
    pool: ChunkPool,
    scratch: Scratch,
}

/// Rows of windows.
#[derive(Debug)]
struct Gathered {
    table: Table,
    /// Those that have not been merged, which refer to one table.
    words: Vec<u64>,
}

impl Spread {
    /// Of rows of this layout; `word` is a word of the key. It keeps at most so many bytes of idle
    /// memory.
    pub fn new(layout: Arc<RowLayout>, word: usize, pool_bytes: usize) -> Spread {
        assert!(word < layout.key_words(), "a word of the key");
        // Nobody asks who leads rows of windows.
        let layout = Arc::new(RowLayout::clone(&layout).led_by(None));
        let gathered = || Gathered { table: Table::new(layout.clone()), words: Vec::new() };
        Spread {
            word,
            rows: Packs::new(word),
            ready: gathered(),
            later: gathered(),
            pool: ChunkPool::new(layout.row_words(), pool_bytes, None),
            scratch: Scratch::default(),
            layout,
        }
    }

    /// Begins with the rows of these tables, and gives back those of before.
    pub fn begin(&mut self, tables: Vec<Table>) -> Vec<Table> {
        self.rows.begin(tables)
    }

    /// Takes note of the next block of rows: `ends` gives the first and the last pane with which
    /// windows end, for the number of a table and the word of a row. Returns how many rows there
    /// were; `None`: there is no block left.
    pub fn note(&mut self, ends: impl Fn(usize, u64) -> [i64; 2]) -> Option<usize> {
        self.rows.note(|table, word| {
            let [first, last] = ends(table, word);
            let count = u32::try_from(last - first + 1).ok().filter(|count| *count > 0)?;
            Some((first, count))
        })
    }

    /// Whether all blocks have been noted.
    pub fn is_noted(&self) -> bool {
        self.rows.is_noted()
    }

    /// How many rows of windows are made of all that have been noted, before they are merged.
    pub fn made(&self) -> usize {
        self.rows.numbers()
    }

    /// The pane with which the first window ends that has not been made; `None`: all have been.
    pub fn next_end(&self) -> Option<i64> {
        self.rows.next().map(|row| row.first)
    }

    /// Makes rows of windows, of the rows whose first window ends with the pane `until` or before,
    /// until there have been about `rows_max`. Returns how many; 0: there are none left, and all
    /// windows that end so early are ready.
    pub fn spread(&mut self, until: i64, rows_max: usize) -> usize {
        let mut made = 0;
        let mut table = None;
        while let Some(run) = self.rows.next() {
            if run.first > until || made >= rows_max {
                break;
            }
            if table != Some(run.table) || self.is_full() {
                self.merge(table);
                table = Some(run.table);
            }
            self.gather(run, until);
            self.rows.go_on(1);
            made += run.number as usize;
        }
        self.merge(table);
        made
    }

    fn is_full(&self) -> bool {
        [&self.ready, &self.later].iter().any(|gathered| gathered.words.len() >= GATHERED_WORDS)
    }

    /// Gathers the first row of a run.
    fn gather(&mut self, run: Run, until: i64) {
        let Spread { rows, ready, later, word, .. } = self;
        let words = rows.words(&run, 1);
        for end in run.first..run.first + i64::from(run.number) {
            let to = if end <= until { &mut *ready } else { &mut *later };
            let start = to.words.len();
            to.words.extend_from_slice(words);
            to.words[start + *word] = end as u64;
        }
    }

    /// Merges what has been gathered, which refers to a table.
    fn merge(&mut self, table: Option<u32>) {
        let Some(from) = table.and_then(|table| self.rows.tables.get(table as usize)) else {
            return;
        };
        let row_words = self.layout.row_words();
        for Gathered { table, words } in [&mut self.ready, &mut self.later] {
            let count = words.len() / row_words;
            if count > 0 {
                let before = table.keys();
                let rows = Sources::of(words, row_words);
                table.merge_run(rows, count, &from.arena, &mut self.pool, &mut self.scratch);
                table.live_rows += table.keys() - before;
                words.clear();
            }
        }
    }

    /// Blocks of rows that are ready.
    pub fn ready_blocks(&self) -> usize {
        self.ready.table.scan_blocks()
    }

    /// A block of them.
    pub fn ready(&self, block: usize) -> RowsRef<'_> {
        self.ready.table.scan(block)
    }

    /// Those have been read. What has been made beyond them belongs to the next windows.
    pub fn go_on(&mut self) {
        self.ready.table.clear(&mut self.pool);
        std::mem::swap(&mut self.ready, &mut self.later);
    }

    /// Whether nothing is kept for windows that have not been read.
    pub fn is_empty(&self) -> bool {
        self.ready.table.rows() == 0 && self.later.table.rows() == 0
    }

    /// Gives back memory that is not needed now.
    pub fn release(&mut self) {
        self.rows.release();
        self.pool.release();
    }

    fn all(&self) -> impl Iterator<Item = &Table> {
        self.rows.tables.iter().chain([&self.ready.table, &self.later.table])
    }

    /// Rows that are kept.
    pub fn rows(&self) -> usize {
        self.all().map(Table::rows).sum()
    }

    /// Bytes allocated.
    pub fn bytes(&self) -> usize {
        let words = self.ready.words.capacity() + self.later.words.capacity();
        self.all().map(Table::bytes).sum::<usize>()
            + self.pool.bytes()
            + words * 8
            + self.rows.noted_bytes()
    }

    /// Bytes of keys and values.
    pub fn live_bytes(&self) -> usize {
        self.all().map(Table::live_bytes).sum()
    }

    /// Bytes that making so many more rows may allocate.
    pub fn growth_bytes(&self, load: Load) -> usize {
        let tables = [&self.ready, &self.later].map(|gathered| gathered.table.growth_bytes(load));
        tables.iter().sum::<usize>() + self.rows.growth_bytes()
    }
}

#[cfg(test)]
mod tests;

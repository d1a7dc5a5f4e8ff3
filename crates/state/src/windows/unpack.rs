//! Windows of panes that come packed: a table has the rows of many panes, and the last word of a
//! row's key says of which it is. Windows are made one after the other, as if each pane had come in
//! a table of its own: those that hop by two stacks ([`crate::windows::sliding`]), those that
//! cumulate by adding up. Their rows are put together, as many as fit in a block: in place of the
//! pane, a row has the pane with which its window ends. So a pane of few rows costs little by
//! itself.

use std::sync::Arc;

use crate::memory::log::{CHUNK_ROWS, ChunkPool};
use crate::memory::scratch::Scratch;
use crate::table::compact::{move_key, move_values, referring};
use crate::table::keyed::{Load, Table};
use crate::table::layout::RowLayout;
use crate::table::rows::RowsRef;
use crate::table::segment::Sources;
use crate::windows::noted::Aside;
use crate::windows::packs::{Packs, Run};
use crate::windows::sliding::{Sliding, To};

/// What beginning and ending a window cost, in rows that are looked at.
const WINDOW_ROWS: usize = 16;

/// No more rows are put together if they refer to more bytes.
const READY_BYTES_MAX: usize = 1 << 20;

/// How windows consist of panes, which are numbered: how many they have at the most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overlap {
    /// Each window has so many panes.
    Hop(i64),
    /// Each has the panes since the last whose number is divisible by this.
    Cumulate(i64),
}

/// Rows of panes, and of the windows that they count for. See the module.
///
/// [`begin`](Unpack::begin) with tables, [`note`](Unpack::note) all of their blocks; then
/// [`go_on`](Unpack::go_on), and read what is [`ready`](Unpack::ready), until all windows
/// [are made](Unpack::are_made).
#[derive(Debug)]
pub struct Unpack {
    /// Of rows as they come, and as they are read.
    layout: Arc<RowLayout>,
    /// Of each row, how many panes the first of its windows ends after its own.
    rows: Packs,
    windows: Windows,
    at: At,
    /// The pane with which the last window ends that has been made.
    made: Option<i64>,
    /// Rows of one pane, without the word of the pane.
    words: Vec<u64>,
    ready: Aside,
}

/// What windows have in common.
#[derive(Debug)]
enum Windows {
    Hop { panes: Box<Sliding>, count: i64 },
    Cumulate { table: Box<Table>, pool: ChunkPool, scratch: Scratch, count: i64 },
}

/// How far windows have been made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Between,
    /// The window that ends with this pane takes rows in.
    Taking(i64),
    /// It is read: the next block.
    Reading(i64, usize),
}

impl Unpack {
    /// Of rows of this layout. It keeps at most so many bytes of idle memory.
    pub fn new(layout: Arc<RowLayout>, overlap: Overlap, pool_bytes: usize) -> Unpack {
        let word = layout.key_words() - 1;
        let of_pane = Arc::new(layout.without_last_key_word());
        let windows = match overlap {
            Overlap::Hop(count) => {
                Windows::Hop { panes: Box::new(Sliding::new(of_pane, pool_bytes)), count }
            }
            Overlap::Cumulate(count) => Windows::Cumulate {
                pool: ChunkPool::new(of_pane.row_words(), pool_bytes, None),
                table: Box::new(Table::new(of_pane)),
                scratch: Scratch::default(),
                count,
            },
        };
        Unpack {
            layout,
            rows: Packs::new(word),
            windows,
            at: At::Between,
            made: None,
            words: Vec::new(),
            ready: Aside::default(),
        }
    }

    /// Begins with the rows of these tables, and gives back those of before.
    pub fn begin(&mut self, tables: Vec<Table>) -> Vec<Table> {
        self.ready.clear();
        self.rows.begin(tables)
    }

    /// Takes note of the next block of rows: `panes` gives the pane of a row, and the one with
    /// which the first window ends that it counts for, for the number of a table and the word of
    /// the row. Returns how many rows there were; `None`: there is no block left.
    pub fn note(&mut self, panes: impl Fn(usize, u64) -> [i64; 2]) -> Option<usize> {
        self.rows.note(|table, word| {
            let [pane, first] = panes(table, word);
            Some((first, u32::try_from(first - pane).ok()?))
        })
    }

    /// Forgets what windows have in common, and the windows that have not been made.
    pub fn forget(&mut self) {
        self.windows.clear();
        self.at = At::Between;
    }

    /// The pane with which the next window ends.
    fn next_end(&self) -> Option<i64> {
        let next = self.rows.next().map(|run| run.first);
        let goes_on = self.made.filter(|_| !self.windows.are_empty()).map(|made| made + 1);
        [goes_on, next].into_iter().flatten().min()
    }

    /// Goes on with the windows that end with the pane `last` or before, until about `rows_max`
    /// rows have been looked at; returns how many there were. It stops where no more rows should be
    /// ready at a time ([`Unpack::is_full`]).
    pub fn go_on(&mut self, last: i64, rows_max: usize) -> usize {
        let mut rows = 0;
        while rows < rows_max && !self.is_full() {
            rows += match self.at {
                At::Between => match self.next_end().filter(|end| *end <= last) {
                    None => break,
                    Some(end) => {
                        self.windows.begin(end);
                        self.at = At::Taking(end);
                        WINDOW_ROWS
                    }
                },
                At::Taking(end) => match self.windows.prepare() {
                    0 => self.take(end, rows_max - rows),
                    rows => rows,
                },
                At::Reading(end, block) => self.read(end, block),
            };
        }
        rows
    }

    /// Takes rows of one pane into the window that ends with `end`; returns how many.
    fn take(&mut self, end: i64, rows_max: usize) -> usize {
        let Unpack { rows, windows, words, layout, .. } = self;
        let Some(first) = rows.next().filter(|run| run.first == end) else {
            self.at = At::Reading(end, 0);
            return 0;
        };
        let (pane_word, row_words) = (layout.key_words() - 1, layout.row_words());
        words.clear();
        let mut count = 0;
        let is_alike =
            |run: &Run| run.first == end && (run.number, run.table) == (first.number, first.table);
        while let Some(run) = rows.next().filter(|run| count < rows_max && is_alike(run)) {
            let some = run.rows().min(rows_max - count);
            for row in rows.words(&run, some).chunks_exact(row_words) {
                words.extend_from_slice(&row[..pane_word]);
                words.extend_from_slice(&row[pane_word + 1..]);
            }
            rows.go_on(some);
            count += some;
        }
        let table = &rows.tables[first.table as usize];
        windows.take(end - i64::from(first.number), words, count, table);
        count
    }

    /// Reads a block of the window that ends with `end`.
    fn read(&mut self, end: i64, block: usize) -> usize {
        let Unpack { windows, ready, layout, .. } = self;
        if block < windows.read_blocks() {
            self.at = At::Reading(end, block + 1);
            let to = To { moves: layout.uses_arena(), mark: Some(end as u64) };
            return windows.read(block, ready, to);
        }
        windows.end(end);
        self.made = Some(end);
        self.at = At::Between;
        0
    }

    /// Whether the next rows would be more than a block's, together with those that are ready.
    pub fn is_full(&self) -> bool {
        let At::Reading(_, block) = self.at else { return false };
        let ready = self.ready.words.len() / self.layout.row_words();
        let is_much = self.ready.arena.used_bytes() > READY_BYTES_MAX;
        ready > 0 && (is_much || ready + self.windows.read_rows(block) > CHUNK_ROWS)
    }

    /// Whether all windows that end with the pane `last` or before have been made.
    pub fn are_made(&self, last: i64) -> bool {
        self.rows.is_noted()
            && self.at == At::Between
            && self.next_end().is_none_or(|end| end > last)
    }

    /// Rows of windows that have been made, one window after the other.
    pub fn ready(&self) -> RowsRef<'_> {
        RowsRef::of_words(&self.ready.words, &self.ready.arena, &self.layout)
    }

    /// Those have been read.
    pub fn clear_ready(&mut self) {
        self.ready.clear();
    }

    /// Whether nothing is kept for windows that have not been made.
    pub fn is_empty(&self) -> bool {
        self.windows.are_empty()
    }

    /// Gives back memory that is not needed now.
    pub fn release(&mut self) {
        self.rows.release();
        self.words = Vec::new();
        if self.ready().is_empty() {
            self.ready = Aside::default();
        }
        match &mut self.windows {
            Windows::Hop { panes, .. } => panes.release(),
            Windows::Cumulate { pool, .. } => pool.release(),
        }
    }

    /// Rows that are kept.
    pub fn rows(&self) -> usize {
        self.rows.tables.iter().map(Table::rows).sum::<usize>() + self.windows.rows()
    }

    /// Bytes allocated.
    pub fn bytes(&self) -> usize {
        let windows = match &self.windows {
            Windows::Hop { panes, .. } => panes.bytes(),
            Windows::Cumulate { table, pool, .. } => table.bytes() + pool.bytes(),
        };
        let tables = self.rows.tables.iter().map(Table::bytes).sum::<usize>();
        tables + self.rows.noted_bytes() + windows + self.words.capacity() * 8 + self.ready.bytes()
    }

    /// Bytes of keys and values.
    pub fn live_bytes(&self) -> usize {
        let windows = match &self.windows {
            Windows::Hop { panes, .. } => panes.live_bytes(),
            Windows::Cumulate { table, .. } => table.live_bytes(),
        };
        self.rows.tables.iter().map(Table::live_bytes).sum::<usize>() + windows
    }

    /// Bytes that taking in so many rows of the tables, and reading a block of windows, may
    /// allocate.
    pub fn growth_bytes(&self, rows_max: usize) -> usize {
        let rows = self.rows.tables.iter().map(Table::rows).sum::<usize>();
        let load = Load::rows(rows.min(rows_max));
        let (windows, count) = match &self.windows {
            Windows::Hop { panes, count } => (panes.growth_bytes(load), *count),
            Windows::Cumulate { table, count, .. } => (table.growth_bytes(load), *count),
        };
        // A row counts for so many windows at the most.
        let ready_rows = self.rows().saturating_mul(count as usize).min(CHUNK_ROWS);
        let ready = ready_rows * self.layout.row_bytes();
        windows + self.rows.growth_bytes() + ready.saturating_sub(8 * self.ready.words.capacity())
    }
}

impl Windows {
    /// Begins with the window that ends with a pane.
    fn begin(&mut self, end: i64) {
        if let Windows::Hop { panes, count } = self {
            panes.begin(end - *count + 1, end);
        }
    }

    /// Does a part of what is to be done before rows are taken in; how many rows were looked at. 0:
    /// there is nothing left to do.
    fn prepare(&mut self) -> usize {
        match self {
            Windows::Hop { panes, .. } => match panes.prepare() {
                true => panes.rows().clamp(1, CHUNK_ROWS),
                false => 0,
            },
            Windows::Cumulate { .. } => 0,
        }
    }

    /// Takes in `count` rows of a pane, which refer to a table.
    fn take(&mut self, pane: i64, words: &[u64], count: usize, from: &Table) {
        let rows = Sources::of(words, words.len() / count.max(1));
        match self {
            Windows::Hop { panes, .. } => panes.absorb_run(pane, rows, count, &from.arena),
            Windows::Cumulate { table, pool, scratch, .. } => {
                let before = table.keys();
                table.merge_run(rows, count, &from.arena, pool, scratch);
                table.live_rows += table.keys() - before;
            }
        }
    }

    fn read_blocks(&self) -> usize {
        match self {
            Windows::Hop { panes, .. } => panes.read_blocks(),
            Windows::Cumulate { table, .. } => table.scan_blocks(),
        }
    }

    fn read_rows(&self, block: usize) -> usize {
        match self {
            Windows::Hop { panes, .. } => panes.read_rows(block),
            Windows::Cumulate { table, .. } => table.scan_rows(block),
        }
    }

    /// Adds the rows of a block to `output`; returns how many were looked at.
    fn read(&mut self, block: usize, output: &mut Aside, to: To) -> usize {
        let rows = self.read_rows(block);
        match self {
            Windows::Hop { panes, .. } => panes.read_to(block, output, to),
            Windows::Cumulate { table, .. } => copy(table, block, output, to),
        }
        rows
    }

    /// The window that ends with a pane has been read.
    fn end(&mut self, end: i64) {
        match self {
            Windows::Hop { panes, .. } => panes.end(true),
            Windows::Cumulate { count, .. } if (end + 1).rem_euclid(*count) == 0 => self.clear(),
            Windows::Cumulate { .. } => {}
        }
    }

    fn clear(&mut self) {
        match self {
            Windows::Hop { panes, .. } => panes.end(false),
            Windows::Cumulate { table, pool, .. } => table.clear(pool),
        }
    }

    fn are_empty(&self) -> bool {
        match self {
            Windows::Hop { panes, .. } => panes.is_empty(),
            Windows::Cumulate { table, .. } => table.rows() == 0,
        }
    }

    fn rows(&self) -> usize {
        match self {
            Windows::Hop { panes, .. } => panes.rows(),
            Windows::Cumulate { table, .. } => table.rows(),
        }
    }
}

/// Copies a block of rows.
fn copy(table: &Table, block: usize, output: &mut Aside, To { moves, mark }: To) {
    let layout = &*table.layout;
    let referring = if moves { referring(layout) } else { Vec::new() };
    let (row_words, key_words) = (layout.row_words(), layout.key_words());
    let chunk = &table.log.chunks()[block];
    output.words.reserve(chunk.rows() * (row_words + 1));
    for row in 0..chunk.rows() {
        let start = output.words.len();
        // SAFETY: a written row of a table, which is borrowed.
        let words = unsafe { std::slice::from_raw_parts(chunk.row(row, row_words), row_words) };
        output.words.extend_from_slice(&words[..key_words]);
        output.words.extend(mark);
        let values = output.words.len() - key_words;
        output.words.extend_from_slice(&words[key_words..]);
        if moves {
            let Aside { words, arena } = output;
            move_key(&mut words[start..], layout, &table.arena, arena);
            move_values(&mut words[values..], 0, &referring, &table.arena, arena);
        }
    }
}

#[cfg(test)]
mod tests;

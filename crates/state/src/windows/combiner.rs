//! The contract of what makes windows of slices.

use std::fmt::Debug;
use std::sync::Arc;

use crate::deltas::saved::TableCopy;
use crate::table::keyed::Table;
use crate::table::layout::RowLayout;
use crate::table::rows::RowsRef;

/// The pane of a row, and the pane with which its first window ends, for the number of its slice
/// and, where slices pack panes, the word of the row.
pub type PaneOf<'a> = &'a dyn Fn(usize, u64) -> [i64; 2];

/// Rows of complete slices, for all windows that need these slices.
///
/// [`begin`](Combiner::begin) with slices; [`go_on`](Combiner::go_on), and read the rows that are
/// [`ready`](Combiner::ready) whenever they [are many](Combiner::is_full), until all windows
/// [are made](Combiner::are_made); then [`end`](Combiner::end).
pub trait Combiner: Debug + Send {
    /// Begins with windows that are the first to need these slices.
    fn begin(&mut self, slices: Vec<Table>);

    /// Goes on with the windows up to `last`, until about `rows_max` rows have been looked at or
    /// rows are to be read; returns how many there were.
    fn go_on(&mut self, last: i64, rows_max: usize, pane_of: PaneOf<'_>) -> usize;

    /// Whether the rows that are ready are to be read before it goes on.
    fn is_full(&self) -> bool;

    /// Whether all windows up to `last` have been made.
    fn are_made(&self, last: i64) -> bool;

    /// Rows of windows.
    fn ready(&self) -> RowsRef<'_>;

    /// These have been read.
    fn clear_ready(&mut self);

    /// The slices that have been read, each with its number.
    fn read_slices(&mut self) -> Vec<(usize, Table)>;

    /// The windows up to `last` have been read, or nobody wants them; whether later ones need the
    /// rows. The slices that have not been given back.
    fn end(&mut self, last: i64, needed: bool) -> Vec<(usize, Table)>;

    /// A copy of rows for later windows that no slice has any more, in the form of rows of a slice,
    /// whose layout this is.
    fn copy_open(&self, _: &Arc<RowLayout>) -> Option<TableCopy> {
        None
    }

    /// Whether nothing is kept for later windows.
    fn is_empty(&self) -> bool;

    /// Gives back memory that is not needed now.
    fn release(&mut self);

    /// Rows that are kept.
    fn rows(&self) -> usize;

    /// Bytes allocated.
    fn bytes(&self) -> usize;

    /// Bytes of keys and values.
    fn live_bytes(&self) -> usize;

    /// Bytes that looking at so many rows may allocate.
    fn growth_bytes(&self, rows_max: usize) -> usize;
}

/// Windows of one slice, each read as it stands.
#[derive(Debug)]
pub struct Single {
    table: Table,
    /// The next block, and whether the one before it is ready.
    block: usize,
    is_ready: bool,
}

impl Single {
    /// Of rows of this layout.
    pub fn new(layout: Arc<RowLayout>) -> Single {
        Single { table: Table::new(layout), block: 0, is_ready: false }
    }
}

impl Combiner for Single {
    fn begin(&mut self, slices: Vec<Table>) {
        debug_assert!(slices.len() <= 1, "a window of several slices");
        self.block = 0;
        slices.into_iter().for_each(|table| self.table = table);
    }

    fn go_on(&mut self, last: i64, _: usize, _: PaneOf<'_>) -> usize {
        if self.is_ready || self.are_made(last) {
            return 0;
        }
        (self.block, self.is_ready) = (self.block + 1, true);
        self.table.scan_rows(self.block - 1)
    }

    fn is_full(&self) -> bool {
        self.is_ready
    }

    fn are_made(&self, _: i64) -> bool {
        self.block >= self.table.scan_blocks()
    }

    fn ready(&self) -> RowsRef<'_> {
        match self.is_ready {
            true => self.table.scan(self.block - 1),
            false => RowsRef::of_words(&[], &self.table.arena, &self.table.layout),
        }
    }

    fn clear_ready(&mut self) {
        self.is_ready = false;
    }

    fn read_slices(&mut self) -> Vec<(usize, Table)> {
        vec![]
    }

    fn end(&mut self, _: i64, _: bool) -> Vec<(usize, Table)> {
        self.is_ready = false;
        let next = Table::new(self.table.layout.clone());
        vec![(0, std::mem::replace(&mut self.table, next))]
    }

    fn is_empty(&self) -> bool {
        true
    }

    fn release(&mut self) {
        self.table.trim();
    }

    fn rows(&self) -> usize {
        self.table.rows()
    }

    fn bytes(&self) -> usize {
        self.table.bytes()
    }

    fn live_bytes(&self) -> usize {
        self.table.live_bytes()
    }

    fn growth_bytes(&self, _: usize) -> usize {
        0
    }
}

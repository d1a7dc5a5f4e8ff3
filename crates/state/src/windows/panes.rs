//! Windows of several panes, made one after the other in [`Stacks`].
//!
//! A slice has the rows of one pane, or packs many: then the last word of a row's key says of which
//! pane the row is, and rows of many windows are put together, as many as fit in a block. In place
//! of the pane, such a row has the pane with which its window ends. So a pane of few rows costs
//! little by itself.

use std::sync::Arc;

use crate::memory::log::CHUNK_ROWS;
use crate::table::keyed::{Load, Table};
use crate::table::layout::RowLayout;
use crate::table::rows::RowsRef;
use crate::windows::combiner::{Combiner, PaneOf};
use crate::windows::noted::RowCopies;
use crate::windows::runs::PaneRuns;
use crate::windows::stacks::{Stacks, To};

/// Beginning and ending a window cost as much as looking at so many rows.
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

/// Rows of panes, and of the windows that they count for. See the module. Windows are named by the
/// pane with which they end.
#[derive(Debug)]
pub struct Panes {
    /// Of rows as they come, and as they are read.
    layout: Arc<RowLayout>,
    packed: bool,
    overlap: Overlap,
    runs: PaneRuns,
    stacks: Stacks,
    at: At,
    /// The last window that has been made.
    made: Option<i64>,
    ready: RowCopies,
    /// The number of a ready block that is used as it stands.
    standing: Option<usize>,
}

/// How far windows have been made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Between,
    /// This window takes rows in.
    Taking(i64),
    /// The window is read: the next block.
    Reading(i64, usize),
}

impl Panes {
    /// Of rows of this layout; whether the last word of their keys says of which pane they are. At
    /// most so many bytes of idle memory are kept.
    pub fn new(layout: Arc<RowLayout>, overlap: Overlap, packed: bool, pool_bytes: usize) -> Panes {
        let of_pane = match packed {
            true => Arc::new(layout.without_last_key_word()),
            false => layout.clone(),
        };
        let hops = matches!(overlap, Overlap::Hop(_));
        Panes {
            runs: PaneRuns::new(packed.then(|| layout.key_words() - 1)),
            layout,
            packed,
            overlap,
            stacks: Stacks::new(of_pane, hops, pool_bytes),
            at: At::Between,
            made: None,
            ready: RowCopies::default(),
            standing: None,
        }
    }

    /// The first pane of a window.
    fn first_pane(&self, end: i64) -> i64 {
        match self.overlap {
            Overlap::Hop(count) => end - count + 1,
            Overlap::Cumulate(count) => end - end.rem_euclid(count),
        }
    }

    /// The next window.
    fn next_end(&self) -> Option<i64> {
        let goes_on = self.made.filter(|_| !self.stacks.is_empty()).map(|made| made + 1);
        [goes_on, self.runs.next_first()].into_iter().flatten().min()
    }

    /// Begins the next window up to `last`.
    fn begin_window(&mut self, last: i64) -> Option<usize> {
        let end = self.next_end().filter(|end| *end <= last)?;
        self.stacks.begin(self.first_pane(end), end);
        self.at = At::Taking(end);
        Some(WINDOW_ROWS)
    }

    /// Takes rows into the window `end`; returns how many were looked at.
    fn take(&mut self, end: i64, rows_max: usize) -> usize {
        if self.stacks.prepare() {
            return self.stacks.rows().clamp(1, CHUNK_ROWS);
        }
        if self.runs.next_first() == Some(end)
            && let Some(taken) = self.runs.take(rows_max)
        {
            self.stacks.absorb(taken.pane, taken.rows, taken.count, taken.arena);
            return taken.count;
        }
        self.at = At::Reading(end, 0);
        0
    }

    /// Reads a block of the window `end`.
    fn read(&mut self, end: i64, block: usize) -> usize {
        if block >= self.stacks.read_blocks() {
            self.end_window(end);
            return 0;
        }
        self.at = At::Reading(end, block + 1);
        if !self.packed && self.stacks.scan(block).is_some() {
            self.standing = Some(block);
        } else {
            let to = To { moves: self.moves(), mark: self.packed.then_some(end as u64) };
            self.stacks.read(block, &mut self.ready, to);
        }
        self.stacks.read_rows(block)
    }

    /// Whether the bytes are copied that rows refer to: rows of several windows, and of changed
    /// values, do not refer to the stacks.
    fn moves(&self) -> bool {
        self.stacks.values_refer() || self.packed && self.layout.uses_arena()
    }

    fn end_window(&mut self, end: i64) {
        let needed = match self.overlap {
            Overlap::Hop(_) => true,
            Overlap::Cumulate(count) => (end + 1).rem_euclid(count) != 0,
        };
        self.stacks.end(needed);
        self.made = Some(end);
        self.at = At::Between;
    }
}

impl Combiner for Panes {
    fn begin(&mut self, slices: Vec<Table>) {
        self.ready.clear();
        self.runs.begin(slices);
    }

    fn go_on(&mut self, last: i64, rows_max: usize, pane_of: PaneOf<'_>) -> usize {
        let mut rows = 0;
        while !self.runs.are_noted() && rows < rows_max {
            rows += self.runs.note(pane_of);
        }
        while rows < rows_max && !self.is_full() {
            rows += match self.at {
                At::Between => match self.begin_window(last) {
                    None => break,
                    Some(rows) => rows,
                },
                At::Taking(end) => self.take(end, rows_max - rows),
                At::Reading(end, block) => self.read(end, block),
            };
        }
        rows
    }

    fn is_full(&self) -> bool {
        let At::Reading(_, block) = self.at else { return false };
        let ready = self.ready.words.len() / self.layout.row_words();
        let is_much = self.ready.arena.used_bytes() > READY_BYTES_MAX;
        let is_more = ready + self.stacks.read_rows(block) > CHUNK_ROWS;
        self.standing.is_some() || ready > 0 && (!self.packed || is_much || is_more)
    }

    fn are_made(&self, last: i64) -> bool {
        self.runs.are_noted()
            && match self.at {
                At::Between => self.next_end().is_none_or(|end| end > last),
                At::Taking(_) => false,
                At::Reading(end, block) => end >= last && block >= self.stacks.read_blocks(),
            }
    }

    fn ready(&self) -> RowsRef<'_> {
        if let Some(rows) = self.standing.and_then(|block| self.stacks.scan(block)) {
            return rows;
        }
        let arena = if self.moves() { &self.ready.arena } else { self.stacks.arena() };
        RowsRef::of_words(&self.ready.words, arena, &self.layout)
    }

    fn clear_ready(&mut self) {
        self.ready.clear();
        self.standing = None;
    }

    fn read_slices(&mut self) -> Vec<(usize, Table)> {
        self.runs.read_slices()
    }

    fn end(&mut self, last: i64, needed: bool) -> Vec<(usize, Table)> {
        if let At::Reading(end, _) = self.at
            && self.are_made(last)
        {
            self.end_window(end);
        }
        if !needed || !self.are_made(last) || self.at != At::Between {
            self.stacks.end(false);
            self.at = At::Between;
        }
        self.clear_ready();
        self.runs.end()
    }

    fn is_empty(&self) -> bool {
        self.stacks.is_empty()
    }

    fn release(&mut self) {
        self.runs.release();
        self.stacks.release();
        if self.ready.words.is_empty() {
            self.ready = RowCopies::default();
        }
    }

    fn rows(&self) -> usize {
        self.runs.rows() + self.stacks.rows()
    }

    fn bytes(&self) -> usize {
        self.runs.bytes() + self.stacks.bytes() + self.ready.bytes()
    }

    fn live_bytes(&self) -> usize {
        self.runs.live_bytes() + self.stacks.live_bytes()
    }

    fn growth_bytes(&self, rows_max: usize) -> usize {
        let stacks = self.stacks.growth_bytes(Load::rows(self.runs.rows().min(rows_max)));
        // A row counts for so many windows at the most.
        let windows = match self.overlap {
            Overlap::Hop(count) | Overlap::Cumulate(count) if self.packed => count as usize,
            Overlap::Hop(_) => 1,
            Overlap::Cumulate(_) => 0,
        };
        let ready = self.rows().saturating_mul(windows).min(CHUNK_ROWS) * self.layout.row_bytes();
        stacks + self.runs.growth_bytes() + ready.saturating_sub(8 * self.ready.words.capacity())
    }
}

#[cfg(test)]
mod tests;

//! Sessions: rows of a key are joined as long as they are no more than a gap apart.
//!
//! Rows come slice by slice, in the order of time. A slice is at most a gap wide, so a key has one
//! row in it, which says when its first and its last record came. For every key there is one open
//! session at most: a row that is further away from it begins another one, and the session before
//! is over.
//!
//! Keys may share sessions. Then these are the sessions of the first part of a key, its
//! [`Prefix`](crate::Prefix): each row makes the session of all keys of the prefix longer. Rows of
//! these keys stay apart. When their session is over, each is given, with its bounds ([`spans`]).
//!
//! Where gaps are short, a slice packs many such parts, and each row has the word of its part
//! ([`PaneRuns`]).

mod spans;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use crate::deltas::saved::TableCopy;
use crate::memory::arena::Arena;
use crate::memory::log::{BLOCK_ROWS, CHUNK_ROWS};
use crate::table::compact::{move_key, move_values};
use crate::table::keyed::{Load, Table};
use crate::table::layout::{RowLayout, ValueSlot};
use crate::table::rows::RowsRef;
use crate::table::segment::Sources;
use crate::table::value::Block;
use crate::values::chain::chain_words;
use crate::values::kind::ValueKind;
use crate::windows::combiner::{Combiner, PaneOf};
use crate::windows::noted::{Noted, Rebuild, RowCopies, reset};
use crate::windows::runs::PaneRuns;
use spans::{DEAD_SHARE, Spans};

/// No more rows are given together when they refer to so many bytes.
const GIVEN_BYTES_MAX: usize = 4 << 20;

/// Values of a row's note: the session is open, or has been given.
const OPEN: u64 = 1;
const OVER: u64 = 2;

/// The open sessions of keys. See the module.
#[derive(Debug)]
pub struct Sessions {
    open: Noted,
    /// Where keys share sessions, when these begin and end.
    spans: Option<Spans>,
    /// Rows of a slice.
    slice: PaneRuns,
    /// The pass that is being done ([`Sessions::passes`]), and its next block.
    pass: usize,
    block: usize,
    /// The words of a row that say when its first and its last record came.
    first: usize,
    last: usize,
    gap: i64,
    /// Rows of sessions that are over.
    output: RowCopies,
    /// Whether these refer to what their sessions have, and not to copies of that. Then nothing but
    /// chains refers to an arena, and nothing moves there until the rows have been given.
    in_place: bool,
    /// Words that are left behind when they have been given.
    left_words: usize,
    rebuild: Option<Rebuild>,
}

/// Passes over rows, for each slice: block by block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pass {
    /// Leaves rows behind.
    Rebuild,
    /// Takes note of the parts of the slice's rows, and of their times.
    Note,
    /// Joins the slice's rows with the open sessions.
    Join,
    /// Gives the open rows whose sessions are over when the slice is complete.
    Close,
    /// Takes note of the sessions that are open from now on.
    Settle,
}

impl Sessions {
    /// Of rows of this layout, of which the value `first` is the least time and `last` the
    /// greatest. If keys of the layout have a [`Prefix`](crate::Prefix), those that share it share
    /// sessions. Where slices pack parts, each a gap wide at the most, `part` is the word of their
    /// rows with the part: the last of their keys, which rows of sessions do not have. It keeps at
    /// most so many bytes of idle memory.
    pub fn new(
        layout: Arc<RowLayout>,
        [first, last]: [ValueSlot; 2],
        part: Option<usize>,
        gap: i64,
        pool_bytes: usize,
    ) -> Sessions {
        let spans = layout.prefix().map(|prefix| Spans::new(&layout, prefix, gap, pool_bytes));
        let open = Noted::new(layout, pool_bytes, DEAD_SHARE);
        let is_chain = |slot: &ValueSlot| slot.kind == ValueKind::Chain;
        Sessions {
            in_place: !open.referring.is_empty() && open.referring.iter().all(is_chain),
            open,
            spans,
            slice: PaneRuns::new(part),
            pass: 0,
            block: 0,
            first: first.word,
            last: last.word,
            gap,
            output: RowCopies::default(),
            left_words: 0,
            rebuild: None,
        }
    }

    /// Forgets rows that are not needed any more, or begins to.
    fn leave_behind(&mut self) {
        if self.is_empty() {
            self.open.clear();
            self.spans.iter_mut().for_each(Spans::clear);
            return;
        }
        let worth_rebuilding = match self.in_place {
            false => self.open.is_worth_rebuilding(),
            // What is left behind has been counted.
            true => self.open.has_many_dead() || self.open.table.arena.is_wasteful(),
        };
        if worth_rebuilding {
            self.rebuild = Some(self.open.start_rebuild());
        }
        self.spans.iter_mut().for_each(Spans::begin);
    }

    /// The passes that have not been done, the first of which is being done. There may be no slice,
    /// or an empty one, where only time has passed.
    fn passes(&self) -> &'static [Pass] {
        let passes: &[Pass] = match self.spans {
            None => &[Pass::Rebuild, Pass::Note, Pass::Join, Pass::Close],
            Some(_) => &[Pass::Rebuild, Pass::Note, Pass::Close, Pass::Settle, Pass::Join],
        };
        passes.get(self.pass..).unwrap_or_default()
    }

    /// Whether a pass that is being done, from a block on, is over.
    fn is_over(&self, pass: Pass, block: usize) -> bool {
        match pass {
            Pass::Rebuild => {
                self.rebuild.is_none() && self.spans.as_ref().is_none_or(|s| !s.is_rebuilding())
            }
            Pass::Note => self.slice.are_noted(),
            Pass::Join => self.slice.are_noted() && self.slice.next_first().is_none(),
            Pass::Close => block >= self.open.table.scan_blocks(),
            Pass::Settle => self.spans.as_ref().is_none_or(|spans| block >= spans.blocks()),
        }
    }

    /// Does a pass over a block of rows, for a slice that ends at `end`; returns how many rows
    /// there were.
    fn take(&mut self, pass: Pass, end: i64) -> usize {
        let block = self.block;
        self.block += 1;
        match pass {
            Pass::Rebuild => {
                if let Some(rebuild) = self.rebuild.take() {
                    self.rebuild = self.open.rebuild_some(rebuild, |note| note == OPEN);
                } else if let Some(spans) = &mut self.spans {
                    spans.rebuild_some();
                }
                self.open.table.rows().min(CHUNK_ROWS)
            }
            Pass::Note => self.note(),
            Pass::Join => self.join(),
            Pass::Close => {
                match self.spans.is_some() {
                    false => self.close(block, end),
                    true => self.close_shared(block, end),
                }
                // There may be more of them in the block if these are very large.
                self.block -= usize::from(self.gives_much());
                self.open.table.scan_rows(block)
            }
            Pass::Settle => self.spans.as_mut().map_or(0, |spans| {
                spans.settle(block, end);
                spans.block_rows(block)
            }),
        }
    }

    fn note(&mut self) -> usize {
        let Sessions { open, spans, slice, first, last, .. } = self;
        let mut noted = 0;
        if let (Some(spans), Some((table, block))) = (spans, slice.next_block()) {
            let rows = table.scan(block);
            let places: Vec<*const u64> = rows.places().collect();
            // SAFETY: rows of a table that does not change meanwhile.
            let time = |row: *const u64, word: usize| unsafe { *row.wrapping_add(word) } as i64;
            for rows in places.chunks(BLOCK_ROWS) {
                let times = rows.iter().map(|row| [time(*row, *first), time(*row, *last)]);
                spans.note(rows, times, &table.arena);
            }
            debug_assert_eq!(rows.layout(), &*open.layout);
            noted = rows.len();
        }
        // Rows come in the order of their parts.
        noted + self.slice.note(|_, part| [part as i64; 2])
    }

    fn join(&mut self) -> usize {
        let (mut slice, mut rows) = (std::mem::replace(&mut self.slice, PaneRuns::new(None)), 0);
        while rows < CHUNK_ROWS
            && let Some(taken) = slice.take(BLOCK_ROWS)
        {
            self.join_rows(taken.rows, taken.count, taken.arena);
            rows += taken.count;
        }
        self.slice = slice;
        rows
    }

    /// Joins a block of rows, which are of keys of their own and refer to an arena.
    fn join_rows(&mut self, rows: Sources, count: usize, arena: &Arena) {
        let places = self.open.find(rows, count, arena);
        match self.spans.is_some() {
            false => {
                for (k, place) in places.iter().enumerate() {
                    self.make_room(*place, rows.place(k));
                }
            }
            // What is over has been given: all that is open goes on.
            true => places.iter().for_each(|place| self.open_row(*place)),
        }
        let Noted { layout, table: open, .. } = &mut self.open;
        let mut joined = Block::new(layout, &mut open.arena, &places, 0);
        // SAFETY: rows that do not change meanwhile, and do not belong to the table of sessions.
        unsafe { joined.merge_rows(|k| rows.place(k), arena) };
        self.open.scratch.places = places;
    }

    /// Sees to it that the row of a key can be joined with what came.
    fn make_room(&mut self, row: *mut u64, came: *const u64) {
        // SAFETY: both are written rows; the one is of the table of sessions, which this has to
        // itself.
        let time = |row: *const u64, word: usize| unsafe { *row.wrapping_add(word) } as i64;
        let note = row.wrapping_add(self.open.note);
        // SAFETY: as above.
        let known = unsafe { *note };
        if known == OPEN {
            let apart = |late: i64, early: i64| late.saturating_sub(early) > self.gap;
            let (first, last) = (time(row, self.first), time(row, self.last));
            if !apart(time(came, self.first), last) && !apart(first, time(came, self.last)) {
                return;
            }
            self.give(row, None);
        }
        self.open.dead -= usize::from(known == OVER);
        // SAFETY: as above.
        unsafe {
            if known != 0 {
                reset(row, &self.open.layout);
            }
            *note = OPEN;
        }
    }

    /// Sees to it that the row of a key is open.
    fn open_row(&mut self, row: *mut u64) {
        let note = row.wrapping_add(self.open.note);
        // SAFETY: a written row of the table of sessions, which this has to itself.
        unsafe {
            if *note == OVER {
                self.open.dead -= 1;
                reset(row, &self.open.layout);
            }
            *note = OPEN;
        }
    }

    /// Adds the row of a session to those that are given next, with bounds that are not its own, if
    /// need be.
    fn give(&mut self, row: *const u64, bounds: Option<[i64; 2]>) {
        let Noted { layout, table, referring, .. } = &self.open;
        let (start, words) = (self.output.words.len(), layout.row_words());
        // SAFETY: a written row of the table of sessions, which has one word more.
        let row = unsafe { std::slice::from_raw_parts(row, words) };
        self.output.words.extend_from_slice(row);
        let row = &mut self.output.words[start..];
        if self.in_place {
            let chains = referring.iter().map(|slot| chain_words(row[slot.word], &table.arena));
            self.left_words += chains.sum::<usize>();
        } else {
            move_key(row, layout, &table.arena, &mut self.output.arena);
            move_values(row, 0, referring, &table.arena, &mut self.output.arena);
        }
        if let Some([first, last]) = bounds {
            (row[self.first], row[self.last]) = (first as u64, last as u64);
        }
    }

    /// The sessions of a block of rows that end before a time are over, and given next.
    fn close(&mut self, block: usize, before: i64) {
        for row in self.open_until(block, before) {
            if self.gives_much() {
                return;
            }
            self.give(row, None);
            self.end_row(row);
        }
    }

    /// As [`Sessions::close`], of shared sessions.
    fn close_shared(&mut self, block: usize, before: i64) {
        // A session is at least as long as the part of a single key.
        let rows: Vec<*mut u64> = self.open_until(block, before).collect();
        for rows in rows.chunks(BLOCK_ROWS) {
            if self.gives_much() {
                return;
            }
            let Some(spans) = &mut self.spans else { return };
            let places: Vec<*const u64> = rows.iter().map(|row| row.cast_const()).collect();
            let over = spans.over(&places, &self.open.table.arena, before);
            for (row, bounds) in rows.iter().zip(over) {
                if bounds.is_some() {
                    self.give(*row, bounds);
                    self.end_row(*row);
                }
            }
        }
    }

    /// The open rows of a block whose last record came so long before a time that no other of that
    /// time is of their sessions.
    fn open_until(&self, block: usize, before: i64) -> impl Iterator<Item = *mut u64> + use<> {
        let (first, rows, row_words) = self.open.block(block);
        let (note, last, gap) = (self.open.note, self.last, self.gap);
        (0..rows).map(move |row| first.wrapping_add(row * row_words)).filter(move |row| {
            // SAFETY: a written row of the table of sessions, which this has to itself.
            let (note, last) = unsafe { (*row.wrapping_add(note), *row.wrapping_add(last) as i64) };
            note == OPEN && last.saturating_add(gap) < before
        })
    }

    /// The row has been given.
    fn end_row(&mut self, row: *mut u64) {
        // SAFETY: a written row of the table of sessions, which this has to itself.
        unsafe {
            if self.in_place {
                // What it refers to is not to be kept.
                reset(row, &self.open.layout);
            }
            *row.wrapping_add(self.open.note) = OVER;
        }
        self.open.dead += 1;
    }

    /// Whether sessions that are over and have not been given refer to so much that no more of them
    /// are copied now.
    fn gives_much(&self) -> bool {
        self.output.arena.used_bytes() > GIVEN_BYTES_MAX
    }
}

/// The windows of a slice are the sessions that are over when it has ended, at a time.
impl Combiner for Sessions {
    fn begin(&mut self, slices: Vec<Table>) {
        debug_assert!(slices.len() <= 1, "sessions that are over with a slice need no other");
        self.slice.begin(slices);
        (self.pass, self.block) = (0, 0);
        self.leave_behind();
    }

    fn go_on(&mut self, end: i64, rows_max: usize, _: PaneOf<'_>) -> usize {
        let mut rows = 0;
        // One block at a time: the sessions that it ends are given before the next.
        while rows < rows_max && !self.is_full() {
            let Some(pass) = self.passes().first().copied() else { break };
            match self.is_over(pass, self.block) {
                true => (self.pass, self.block) = (self.pass + 1, 0),
                false => rows += self.take(pass, end),
            }
        }
        rows
    }

    fn is_full(&self) -> bool {
        !self.output.words.is_empty()
    }

    fn are_made(&self, _: i64) -> bool {
        let mut block = self.block;
        self.passes().iter().all(|pass| self.is_over(*pass, std::mem::take(&mut block)))
    }

    fn ready(&self) -> RowsRef<'_> {
        let arena = if self.in_place { &self.open.table.arena } else { &self.output.arena };
        RowsRef::of_words(&self.output.words, arena, &self.open.layout)
    }

    fn clear_ready(&mut self) {
        self.output.clear();
        self.open.table.arena.leave(std::mem::take(&mut self.left_words));
    }

    fn read_slices(&mut self) -> Vec<(usize, Table)> {
        self.slice.read_slices()
    }

    fn end(&mut self, _: i64, _: bool) -> Vec<(usize, Table)> {
        self.clear_ready();
        if self.is_empty() {
            self.leave_behind();
        }
        self.slice.end()
    }

    /// The rows of open sessions, all of the first part: a slice of them by itself makes these
    /// sessions, and the spans of those that are shared.
    fn copy_open(&self, layout_of_slice: &Arc<RowLayout>) -> Option<TableCopy> {
        let Noted { layout, table, note, .. } = &self.open;
        let (key_words, mut words) = (layout.key_words(), Vec::new());
        for block in 0..table.scan_blocks() {
            let rows = table.scan(block).as_words().chunks_exact(note + 1);
            for row in rows.filter(|row| row[*note] == OPEN) {
                words.extend_from_slice(&row[..key_words]);
                words.extend(self.slice.word().map(|_| 0));
                words.extend_from_slice(&row[key_words..*note]);
            }
        }
        Some(TableCopy::of(words, &table.arena, layout_of_slice))
    }

    fn is_empty(&self) -> bool {
        self.open.table.rows() == self.open.dead && self.rebuild.is_none()
    }

    fn release(&mut self) {
        self.slice.release();
        self.open.release();
        if self.output.words.is_empty() {
            self.output = RowCopies::default();
        }
        self.spans.iter_mut().for_each(Spans::release);
    }

    fn rows(&self) -> usize {
        self.slice.rows() + self.open.table.rows()
    }

    fn bytes(&self) -> usize {
        self.slice.bytes()
            + self.open.table.bytes()
            + self.open.idle_bytes()
            + self.output.bytes()
            + self.rebuild.as_ref().map_or(0, Rebuild::bytes)
            + self.spans.as_ref().map_or(0, Spans::bytes)
    }

    fn live_bytes(&self) -> usize {
        let spans = self.spans.as_ref().map_or(0, Spans::live_bytes);
        self.slice.live_bytes() + self.open.table.live_bytes() + spans
    }

    fn growth_bytes(&self, rows_max: usize) -> usize {
        let load = Load::rows(self.rows().min(rows_max));
        let spans = self.spans.as_ref().map_or(0, |spans| spans.growth_bytes(load));
        self.slice.growth_bytes() + self.open.table.growth_bytes(load) + spans
    }
}

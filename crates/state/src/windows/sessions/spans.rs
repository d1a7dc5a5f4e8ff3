//! Sessions that rows of several keys share: when those of each prefix of keys begin and end.
//!
//! In a slice, all rows of a prefix are in the same session, and only together do they determine
//! the session: a single row may be too far from the open session, and lie near a row that is not.
//! So first all rows of the slice are noted. Then the sessions that go on, are over, or begin are
//! known.

use std::sync::Arc;

use crate::memory::arena::Arena;
use crate::memory::hash::hash_words;
use crate::table::key::Keys;
use crate::table::keyed::Load;
use crate::table::layout::RowLayout;
use crate::table::prefix::Prefix;
use crate::values::kind::ValueKind;
use crate::windows::noted::{Noted, PlacedVars, Rebuild, enter};

/// Rows are left behind when one of so many has no open session any more.
pub(super) const DEAD_SHARE: usize = 4;

/// Values of a span's note: the session is open, or has ended; and besides, the session has rows in
/// the slice just noted.
const OPEN: u64 = 1;
const OVER: u64 = 2;
const CAME: u64 = 4;

/// The open session of each prefix.
#[derive(Debug)]
pub(super) struct Spans {
    spans: Noted,
    prefix: Prefix,
    gap: i64,
    rebuild: Option<Rebuild>,
}

/// A span's words behind its key.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct SessionSpan {
    /// When the first and the last record of the open session came.
    first: i64,
    last: i64,
    /// The same of the records in the slice that has just been noted.
    came_first: i64,
    came_last: i64,
    note: u64,
}

impl SessionSpan {
    /// Whether the session goes on when a slice has been noted that ends at `end`.
    fn goes_on(&self, gap: i64, end: i64) -> bool {
        let next = if self.note & CAME != 0 { self.came_first } else { end };
        next.saturating_sub(self.last) <= gap
    }
}

impl Spans {
    /// Of rows of this layout, whose sessions are those of the prefixes of their keys.
    pub(super) fn new(rows: &RowLayout, prefix: Prefix, gap: i64, pool_bytes: usize) -> Spans {
        let vars = rows.var_words().iter().copied().filter(|word| *word < prefix.words);
        let times = [ValueKind::Min64, ValueKind::Max64, ValueKind::Min64, ValueKind::Max64];
        let layout = RowLayout::new(prefix.words, vars.collect(), &times.map(|kind| (kind, false)));
        let spans = Noted::new(Arc::new(layout), pool_bytes, DEAD_SHARE);
        Spans { spans, prefix, gap, rebuild: None }
    }

    pub(super) fn clear(&mut self) {
        self.spans.clear();
    }

    pub(super) fn begin(&mut self) {
        if self.spans.is_worth_rebuilding() {
            self.rebuild = Some(self.spans.start_rebuild());
        }
    }

    pub(super) fn is_rebuilding(&self) -> bool {
        self.rebuild.is_some()
    }

    pub(super) fn rebuild_some(&mut self) {
        let Some(rebuild) = self.rebuild.take() else { return };
        self.rebuild = self.spans.rebuild_some(rebuild, |note| note & OPEN != 0);
    }

    /// Finds the spans of some rows, no more than a block of them, which refer to `arena`. New ones
    /// are made.
    fn find(&mut self, rows: &[*const u64], arena: &Arena) -> Vec<*mut SessionSpan> {
        let Noted { layout, scratch, table, pool, .. } = &mut self.spans;
        let width = layout.key_words();
        scratch.words.clear();
        scratch.hashes.clear();
        for row in rows {
            let start = scratch.words.len();
            // SAFETY: the caller's rows are written ones, whose keys begin with such a prefix.
            let key = unsafe { std::slice::from_raw_parts(*row, width) };
            scratch.words.extend_from_slice(key);
            self.prefix.make_key(&mut scratch.words[start..], layout.var_words());
            scratch.hashes.push(hash_words(&scratch.words[start..]));
        }
        let vars = PlacedVars { rows, arena, layout };
        let keys = Keys { hashes: &scratch.hashes, ahead: &[], words: &scratch.words, vars };
        enter(table, &keys, pool, &mut scratch.places);
        scratch.places.iter().map(|place| place.wrapping_add(width).cast()).collect()
    }

    /// Takes note of rows of a slice: when the first and the last record of each came.
    pub(super) fn note(
        &mut self,
        rows: &[*const u64],
        times: impl Iterator<Item = [i64; 2]>,
        arena: &Arena,
    ) {
        for (span, [first, last]) in self.find(rows, arena).into_iter().zip(times) {
            // SAFETY: a row of the table of spans, which this has to itself.
            let span = unsafe { &mut *span };
            span.note |= CAME;
            span.came_first = span.came_first.min(first);
            span.came_last = span.came_last.max(last);
        }
    }

    /// Of open sessions to which rows belong: when the first and the last record came, if they are
    /// over when a slice has been noted that ends at `end`.
    pub(super) fn over(
        &mut self,
        rows: &[*const u64],
        arena: &Arena,
        end: i64,
    ) -> impl Iterator<Item = Option<[i64; 2]>> + use<> {
        let gap = self.gap;
        self.find(rows, arena).into_iter().map(move |span| {
            // SAFETY: as in `note`.
            let span = unsafe { *span };
            debug_assert!(span.note & OPEN != 0, "an open session has a span");
            (!span.goes_on(gap, end)).then_some([span.first, span.last])
        })
    }

    pub(super) fn blocks(&self) -> usize {
        self.spans.table.scan_blocks()
    }

    pub(super) fn block_rows(&self, block: usize) -> usize {
        self.spans.table.scan_rows(block)
    }

    /// Of the spans of a block: sessions go on, end or begin, as the slice says that has been noted
    /// and that ends at `end`.
    pub(super) fn settle(&mut self, block: usize, end: i64) {
        let (first, rows, row_words) = self.spans.block(block);
        let key_words = self.spans.layout.key_words();
        for row in 0..rows {
            let span = first.wrapping_add(row * row_words + key_words).cast::<SessionSpan>();
            // SAFETY: as in `note`.
            let span = unsafe { &mut *span };
            let (came, was_over) = (span.note & CAME != 0, span.note & OVER != 0);
            let goes_on = span.note & OPEN != 0 && span.goes_on(self.gap, end);
            if came {
                span.first = if goes_on { span.first } else { span.came_first };
                span.last = span.came_last;
            }
            span.note = if came || goes_on { OPEN } else { OVER };
            (span.came_first, span.came_last) = (i64::MAX, i64::MIN);
            self.spans.dead += usize::from(span.note == OVER);
            self.spans.dead -= usize::from(was_over);
        }
    }

    pub(super) fn release(&mut self) {
        self.spans.release();
    }

    pub(super) fn bytes(&self) -> usize {
        let rebuild = self.rebuild.as_ref().map_or(0, Rebuild::bytes);
        self.spans.table.bytes() + self.spans.idle_bytes() + rebuild
    }

    pub(super) fn live_bytes(&self) -> usize {
        self.spans.table.live_bytes()
    }

    pub(super) fn growth_bytes(&self, load: Load) -> usize {
        self.spans.table.growth_bytes(load)
    }
}

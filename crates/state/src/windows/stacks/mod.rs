//! State of windows of several panes: what windows have in common is merged once.
//!
//! The rows of a pane are given to [`Stacks`] when the pane is complete; they are *live* as long as
//! a window that contains the pane has not been read. Every key has one row. Where windows
//! cumulate, all panes add up in the rows. Where windows hop, panes are combined as in the queue of
//! two stacks of *General Incremental Sliding-Window Aggregation* (VLDB 2015), section 4.1: the
//! last panes, the *back*, add up in one value, the panes before, the *front*, have suffixes: an
//! entry of the front has the values of the key in its pane and all later ones of the front. So a
//! window's value is one merge of the two, however many panes the window has. When no pane of the
//! front is left, the back becomes the front ([`flip`]). Each key of each pane is merged three
//! times at the most: into the back, when suffixes are built, and when it is read.
//!
//! A key that came in one pane only has no entry beside its row; so keys that are unique take
//! little more than their row. Rows of keys that are not live any more are left behind when there
//! are many of them ([`crate::windows::noted`]).
//!
//! Panes are numbered by the caller, and only compared with those near them.

mod absorb;
mod flip;
mod history;
mod read;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use crate::memory::arena::Arena;
use crate::memory::log::CHUNK_ROWS;
use crate::table::keyed::Load;
use crate::table::layout::RowLayout;
use crate::windows::noted::{Noted, Rebuild, RowCopies};
use history::{EntryId, History, older};
pub(crate) use read::To;

/// The rows of all panes that a window may still be read of. See the module.
///
/// For each window: [`begin`](Stacks::begin), [`prepare`](Stacks::prepare) until it is done,
/// [`absorb`](Stacks::absorb) for the panes that are complete now, [`read`](Stacks::read) block by
/// block, [`end`](Stacks::end).
#[derive(Debug)]
pub(crate) struct Stacks {
    /// A row for each key: the sum of its panes in the back, or the values of its only pane; and a
    /// [`Note`].
    live: Noted,
    /// Entries of single panes, where windows hop.
    front: History,
    back: History,
    hops: bool,
    /// The oldest pane of the window that is read.
    first: u32,
    /// The oldest pane of the back.
    mid: u32,
    aside: RowCopies,
    rebuild: Option<Rebuild>,
    /// The back becomes the front: the next block of rows, and the pane with which the back begins.
    flip: Option<(usize, u32)>,
    /// Panes since rows were last left behind.
    since_rebuild: u32,
}

/// The panes of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Note {
    /// The newest pane of the key.
    last: u32,
    entries: Entries,
}

/// The entries of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Entries {
    /// The key came in a single pane; its row has the values.
    None,
    /// In front, this is the oldest. If it came once in the back, its row has these values.
    Front(EntryId),
    /// In the back, this is the newest, which knows of those in front. Its row has the sum of the
    /// back.
    Back(EntryId),
}

/// Rows are left behind when one of so many is of no window any more: of unique keys, they would be
/// most of the memory beyond the panes.
const DEAD_SHARE: usize = 8;

/// After so many panes all rows are looked at, or panes could not be compared.
const PANES_MAX: u32 = 1 << 30;

const PRESENT: u32 = 1 << 31;
const IN_BACK: u32 = 1 << 30;

impl Note {
    /// `None`: the row is new.
    fn of(word: u64) -> Option<Note> {
        let (last, low) = ((word >> 32) as u32, word as u32);
        let id = low & !(PRESENT | IN_BACK);
        let entries = match (id, low & IN_BACK) {
            (0, _) => Entries::None,
            (id, 0) => Entries::Front(id),
            (id, _) => Entries::Back(id),
        };
        (low & PRESENT != 0).then_some(Note { last, entries })
    }

    fn word(self) -> u64 {
        let low = match self.entries {
            Entries::None => 0,
            Entries::Front(id) => id,
            Entries::Back(id) => id | IN_BACK,
        };
        u64::from(self.last) << 32 | u64::from(low | PRESENT)
    }
}

impl Stacks {
    /// Of panes whose rows have this layout; whether windows hop, or else cumulate. At most so many
    /// bytes of idle memory are kept.
    pub(crate) fn new(layout: Arc<RowLayout>, hops: bool, pool_bytes: usize) -> Stacks {
        Stacks {
            front: History::new(&layout),
            back: History::new(&layout),
            hops,
            live: Noted::new(layout, pool_bytes, DEAD_SHARE),
            first: 0,
            mid: 0,
            aside: RowCopies::default(),
            rebuild: None,
            flip: None,
            since_rebuild: 0,
        }
    }

    /// Whether no row is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.live.table.rows() == 0 && self.rebuild.is_none()
    }

    /// Begins with the window of the panes from `first` to `newest`. Windows come in ascending
    /// order, and rows of pane `newest` have not been given yet.
    pub(crate) fn begin(&mut self, first: i64, newest: i64) {
        while self.prepare() {}
        let (first, newest) = (first as u32, newest as u32);
        self.since_rebuild = self.since_rebuild.saturating_add(first.wrapping_sub(self.first));
        self.first = first;
        if self.live.table.rows() == 0 {
            self.mid = first;
            return;
        }
        if self.since_rebuild > PANES_MAX || self.live.is_worth_rebuilding() {
            self.rebuild = Some(self.live.start_rebuild());
        }
        self.flip = (self.hops && !older(first, self.mid)).then_some((0, newest));
    }

    /// Does a bounded part of the work before rows are taken in; false: there is nothing left to
    /// do.
    pub(crate) fn prepare(&mut self) -> bool {
        let first = self.first;
        if let Some(rebuild) = self.rebuild.take() {
            let live = |note| Note::of(note).is_some_and(|note| !older(note.last, first));
            self.rebuild = self.live.rebuild_some(rebuild, live);
            if self.rebuild.is_none() {
                self.since_rebuild = 0;
            }
            return true;
        }
        let Some((block, mid)) = self.flip.take() else { return false };
        self.flip = self.flip_some(block, mid);
        true
    }

    /// Ends the read window; `needed` if later windows need its panes.
    pub(crate) fn end(&mut self, needed: bool) {
        self.front.forget_before(self.first);
        if !needed || self.live.dead == self.live.table.rows() {
            (self.rebuild, self.flip) = (None, None);
            self.live.clear();
            self.front.clear();
            self.back.clear();
            self.since_rebuild = 0;
        }
    }

    /// Gives back memory that is not needed now.
    pub(crate) fn release(&mut self) {
        self.live.release();
        self.front.trim();
        self.back.trim();
        self.aside = RowCopies::default();
    }

    /// Whether values refer to an arena.
    pub(crate) fn values_refer(&self) -> bool {
        !self.live.referring.is_empty()
    }

    /// The arena that keys refer to.
    pub(crate) fn arena(&self) -> &Arena {
        &self.live.table.arena
    }

    /// Rows, also of keys that are not live any more.
    pub(crate) fn rows(&self) -> usize {
        self.live.table.rows()
    }

    /// Bytes allocated.
    pub(crate) fn bytes(&self) -> usize {
        self.live.table.bytes()
            + self.live.idle_bytes()
            + self.front.bytes()
            + self.back.bytes()
            + self.aside.bytes()
            + self.rebuild.as_ref().map_or(0, Rebuild::bytes)
    }

    /// Bytes of keys and values.
    pub(crate) fn live_bytes(&self) -> usize {
        self.live.table.live_bytes() + self.front.live_bytes() + self.back.live_bytes()
    }

    /// Bytes that taking in so much more may allocate.
    pub(crate) fn growth_bytes(&self, load: Load) -> usize {
        let table = self.live.table.growth_bytes(load);
        if !self.hops {
            return table;
        }
        // Suffixes stand beside the entries that they are made of.
        let suffixes = self.back.len().min(CHUNK_ROWS);
        table + self.front.growth_bytes(load.rows) + self.back.growth_bytes(load.rows + suffixes)
    }
}

//! State of windows that overlap: what their panes have in common is merged once.
//!
//! A window consists of panes, as wide as the distance from one window's begin to the next one's.
//! The rows of a pane are given to [`Sliding`] when the pane is complete; they are *live* as long
//! as a window that contains the pane has not been read. Every key has one row. Panes are combined
//! as in the queue of two stacks of *General Incremental Sliding-Window Aggregation* (VLDB 2015),
//! section 4.1: those that came last, the *back*, add up in one value, those before, the *front*,
//! have suffixes: an entry of the front has what the key had in its pane and all later ones of the
//! front. So a window's value is one merge of the two, however many panes the window has. When no
//! pane of the front is left, the back becomes the front ([`flip`]). Each key of each pane is
//! merged three times at the most: into the back, when suffixes are built, and when it is read.
//!
//! Where most keys come in most panes, there are no entries but a value for each row and each pane
//! ([`dense`]), which take less memory and are combined without looking anything up.
//!
//! A key that came in one pane only has no entry beside its row; so keys that are unique take
//! little more than their row. Rows of keys that are not live any more are left behind when there
//! are many of them ([`crate::windows::noted`]).
//!
//! Panes are numbered by the caller, and only compared with those near them.

mod absorb;
mod dense;
mod flip;
mod history;
mod read;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;

use crate::memory::log::CHUNK_ROWS;
use crate::table::keyed::Load;
use crate::table::layout::RowLayout;
use crate::windows::noted::{Aside, Noted, Rebuild};
use dense::{Dense, Repeats};
use history::{EntryId, History};
pub(crate) use read::To;

/// The rows of all panes that a window may still be read of. See the module.
///
/// For each window: [`begin`](Sliding::begin), [`prepare`](Sliding::prepare) until it is done,
/// [`absorb`](Sliding::absorb) for what has become complete, [`read`](Sliding::read) block by
/// block, [`end`](Sliding::end).
#[derive(Debug)]
pub struct Sliding {
    /// A row for each key: what has added up in the back, or what the key had in its only pane; and
    /// a [`Note`].
    live: Noted,
    front: History,
    back: History,
    /// In place of entries, if most keys come in most panes. Then the low half of a note is the
    /// row's number, and rows have what came in the back and nothing else.
    dense: Option<Dense>,
    repeats: Repeats,
    /// Rows that came since the last window began, and those of them whose keys had come in an
    /// earlier pane.
    taken: usize,
    again: usize,
    /// The oldest pane of the window that is read.
    first: u32,
    /// The oldest pane of the back.
    mid: u32,
    aside: Aside,
    output: Aside,
    work: VecDeque<Work>,
    /// Panes since rows were last left behind.
    since_rebuild: u32,
}

/// What is to be done before a window takes rows in.
#[derive(Debug)]
enum Work {
    /// Rows are left behind.
    Rebuild(Rebuild),
    /// Rows that are numbered have others before them than they had.
    Number,
    /// The numbers that they had, and how many panes are yet to follow.
    Renumber(Vec<u32>, usize),
    /// The next block of rows whose entries become values for each pane.
    ToDense(usize),
    /// The other way round.
    ToEntries(usize),
    /// The back becomes the front: the next block of rows, and the pane with which the back begins.
    Flip(usize, u32),
}

/// What is known of a key besides its values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Note {
    /// The newest pane in which it came.
    last: u32,
    entries: Entries,
}

/// The entries of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Entries {
    /// It came in one pane only; its row has the values.
    None,
    /// In front, this is the oldest. If it came once in the back, its row has these values.
    Front(EntryId),
    /// In the back, this is the newest, which knows of those in front. Its row has what it had in
    /// the back altogether.
    Back(EntryId),
}

/// Rows are left behind when one of so many is of no window any more: of unique keys, they would be
/// most of what is held beyond the panes.
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

/// Whether a pane is older than another. They are less than 2^31 panes apart.
fn older(pane: u32, than: u32) -> bool {
    (pane.wrapping_sub(than) as i32) < 0
}

impl Sliding {
    /// Of panes whose rows have this layout. It keeps at most so many bytes of idle memory.
    pub fn new(layout: Arc<RowLayout>, pool_bytes: usize) -> Sliding {
        Sliding {
            front: History::new(&layout),
            back: History::new(&layout),
            dense: None,
            repeats: Repeats::default(),
            taken: 0,
            again: 0,
            live: Noted::new(layout, pool_bytes, DEAD_SHARE),
            first: 0,
            mid: 0,
            aside: Aside::default(),
            output: Aside::default(),
            work: VecDeque::new(),
            since_rebuild: 0,
        }
    }

    /// Whether no row is left.
    pub fn is_empty(&self) -> bool {
        self.live.table.rows() == 0 && self.work.is_empty()
    }

    /// Begins with the window of the panes from `first` to `newest`. Windows come in ascending
    /// order, and rows of pane `newest` have not been given yet.
    pub fn begin(&mut self, first: i64, newest: i64) {
        while self.prepare() {}
        let (first, newest) = (first as u32, newest as u32);
        self.since_rebuild = self.since_rebuild.saturating_add(first.wrapping_sub(self.first));
        self.first = first;
        if self.live.table.rows() == 0 {
            self.mid = first;
            return;
        }
        if let Some(dense) = &mut self.dense {
            dense.forget_before(first);
        }
        if self.since_rebuild > PANES_MAX || self.live.is_worth_rebuilding() {
            self.work.push_back(Work::Rebuild(self.live.start_rebuild()));
            self.work.extend(self.dense.is_some().then_some(Work::Number));
        }
        let (taken, again) = (std::mem::take(&mut self.taken), std::mem::take(&mut self.again));
        if taken > 0 {
            self.repeats.note(again, self.live.table.rows().saturating_sub(self.live.dead));
        }
        match &self.dense {
            None if self.repeats.are_many() && Dense::is_for(&self.live.layout) => {
                self.work.push_back(Work::ToDense(0));
            }
            Some(_) if self.repeats.are_few() => self.work.push_back(Work::ToEntries(0)),
            _ => {}
        }
        if !older(first, self.mid) {
            self.work.push_back(Work::Flip(0, newest));
        }
    }

    /// Does a bounded part of what is to be done before rows are taken in; false: there is nothing
    /// left to do.
    pub fn prepare(&mut self) -> bool {
        let left = match self.work.pop_front() {
            None => return false,
            Some(Work::Rebuild(rebuild)) => self.rebuild_some(rebuild).map(Work::Rebuild),
            Some(Work::Number) => self.number_anew(),
            Some(Work::Renumber(before, left)) => self.renumber(before, left),
            Some(Work::ToDense(block)) => self.make_dense(block),
            Some(Work::ToEntries(block)) => self.make_entries(block),
            Some(Work::Flip(block, mid)) if self.dense.is_some() => self.flip_dense(block, mid),
            Some(Work::Flip(block, mid)) => self.flip_some(block, mid),
        };
        if let Some(left) = left {
            self.work.push_front(left);
        }
        true
    }

    fn rebuild_some(&mut self, rebuild: Rebuild) -> Option<Rebuild> {
        let first = self.first;
        let live = |note| Note::of(note).is_some_and(|note| !older(note.last, first));
        let left = self.live.rebuild_some(rebuild, live);
        if left.is_none() {
            self.since_rebuild = 0;
        }
        left
    }

    /// The window has been read. Whether there are later ones that need what is kept.
    pub fn end(&mut self, needed: bool) {
        self.output = Aside::default();
        if !needed || self.live.dead == self.live.table.rows() {
            self.clear();
        }
    }

    /// Forgets all rows.
    fn clear(&mut self) {
        self.work.clear();
        (self.dense, self.repeats, self.taken, self.again) = Default::default();
        self.live.clear();
        self.front.clear();
        self.back.clear();
        self.since_rebuild = 0;
    }

    /// Gives back memory that is not needed now.
    pub fn release(&mut self) {
        self.live.release();
        self.front.trim();
        self.back.trim();
        self.dense.iter_mut().for_each(Dense::trim);
        self.aside = Aside::default();
    }

    /// Rows, also of keys that are not live any more.
    pub fn rows(&self) -> usize {
        self.live.table.rows()
    }

    /// Bytes allocated.
    pub fn bytes(&self) -> usize {
        let of_work = |work: &Work| match work {
            Work::Rebuild(rebuild) => rebuild.bytes(),
            Work::Renumber(before, _) => before.capacity() * size_of::<u32>(),
            _ => 0,
        };
        self.live.table.bytes()
            + self.live.idle_bytes()
            + self.front.bytes()
            + self.back.bytes()
            + self.aside.bytes()
            + self.output.bytes()
            + self.dense.as_ref().map_or(0, Dense::bytes)
            + self.work.iter().map(of_work).sum::<usize>()
    }

    /// Bytes of keys and values.
    pub fn live_bytes(&self) -> usize {
        let dense = self.dense.as_ref().map_or(0, Dense::live_bytes);
        self.live.table.live_bytes() + self.front.live_bytes() + self.back.live_bytes() + dense
    }

    /// Bytes that taking in so much more may allocate.
    pub fn growth_bytes(&self, load: Load) -> usize {
        // Both are there for a while. At least every other row has a value in a pane.
        let of_work = |work: &Work| match (work, &self.dense) {
            (Work::ToDense(_), _) => {
                2 * (self.front.live_bytes() + self.back.live_bytes())
                    + self.live.table.live_bytes()
            }
            (Work::ToEntries(_), Some(dense)) => 2 * dense.live_bytes(),
            _ => 0,
        };
        // Suffixes stand beside what they are made of.
        let suffixes = self.back.len().min(CHUNK_ROWS);
        self.work.iter().map(of_work).sum::<usize>()
            + self.live.table.growth_bytes(load)
            + match &self.dense {
                Some(dense) => dense.growth_bytes(load.rows, self.live.table.rows()),
                None => {
                    self.front.growth_bytes(load.rows)
                        + self.back.growth_bytes(load.rows + suffixes)
                }
            }
    }
}

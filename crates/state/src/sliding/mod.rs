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
//! A key that came in one pane only has no entry beside its row; so keys that are unique take
//! little more than their row. Rows of keys that are not live any more are left behind when there
//! are many of them ([`rebuild`]).
//!
//! Panes are numbered by the caller, and only compared with those near them.

mod absorb;
mod flip;
mod history;
mod read;
mod rebuild;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use crate::arena::Arena;
use crate::compact::{move_values, referring};
use crate::layout::{RowLayout, ValueSlot};
use crate::log::ChunkPool;
use crate::scratch::Scratch;
use crate::table::{Load, Table};
use history::{EntryId, History};
use rebuild::Rebuild;

/// The rows of all panes that a window may still be read of. See the module.
///
/// For each window: [`begin`](Sliding::begin), [`prepare`](Sliding::prepare) until it is done,
/// [`absorb`](Sliding::absorb) for what has become complete, [`read`](Sliding::read) block by
/// block, [`end`](Sliding::end).
#[derive(Debug)]
pub struct Sliding {
    /// Of the rows that come in and that are read.
    layout: Arc<RowLayout>,
    /// A row for each key: what has added up in the back, or what the key had in its only pane; and
    /// a [`Note`].
    live: Table,
    /// The word of a row that is its note.
    note: usize,
    referring: Vec<ValueSlot>,
    front: History,
    back: History,
    /// The oldest pane of the window that is read.
    first: u32,
    /// The oldest pane of the back.
    mid: u32,
    pool: ChunkPool,
    scratch: Scratch,
    aside: Aside,
    output: Aside,
    work: Work,
    /// Rows that the last window found not to be live any more.
    dead: usize,
    /// Panes since rows were last left behind.
    since_rebuild: u32,
    /// Bytes in the arena of live rows after that.
    rebuilt_bytes: usize,
}

/// What is to be done before a window takes rows in.
#[derive(Debug)]
enum Work {
    Nothing,
    /// Rows are left behind; then, perhaps, the back becomes the front, which ends before a pane.
    Rebuild(Rebuild, Option<u32>),
    /// The next block of rows, and the pane with which the back begins.
    Flip(usize, u32),
}

/// Copies of rows, and what they refer to.
#[derive(Debug, Default)]
struct Aside {
    words: Vec<u64>,
    arena: Arena,
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
        let live = Table::new(Arc::new(layout.with_note()));
        Sliding {
            note: layout.row_words(),
            referring: referring(&layout),
            front: History::new(&layout),
            back: History::new(&layout),
            pool: ChunkPool::new(layout.row_words() + 1, pool_bytes, None),
            live,
            layout,
            first: 0,
            mid: 0,
            scratch: Scratch::default(),
            aside: Aside::default(),
            output: Aside::default(),
            work: Work::Nothing,
            dead: 0,
            since_rebuild: 0,
            rebuilt_bytes: 0,
        }
    }

    /// Whether no row is left.
    pub fn is_empty(&self) -> bool {
        self.live.rows() == 0 && matches!(self.work, Work::Nothing)
    }

    /// Begins with the window of the panes from `first` to `newest`. Windows come in ascending
    /// order, and rows of pane `newest` have not been given yet.
    pub fn begin(&mut self, first: i64, newest: i64) {
        let (first, newest) = (first as u32, newest as u32);
        self.since_rebuild = self.since_rebuild.saturating_add(first.wrapping_sub(self.first));
        self.first = first;
        if self.live.rows() == 0 {
            self.mid = first;
            return;
        }
        let flip = (!older(first, self.mid)).then_some(newest);
        self.work = match (self.is_worth_rebuilding(), flip) {
            (true, flip) => Work::Rebuild(self.start_rebuild(), flip),
            (false, Some(mid)) => Work::Flip(0, mid),
            (false, None) => Work::Nothing,
        };
    }

    /// Does a bounded part of what is to be done before rows are taken in; false: there is nothing
    /// left to do.
    pub fn prepare(&mut self) -> bool {
        self.work = match std::mem::replace(&mut self.work, Work::Nothing) {
            Work::Nothing => return false,
            Work::Rebuild(rebuild, flip) => match (self.rebuild_some(rebuild), flip) {
                (Some(rebuild), flip) => Work::Rebuild(rebuild, flip),
                (None, Some(mid)) => Work::Flip(0, mid),
                (None, None) => Work::Nothing,
            },
            Work::Flip(block, mid) => self.flip_some(block, mid),
        };
        true
    }

    /// The window has been read. Whether there are later ones that need what is kept.
    pub fn end(&mut self, needed: bool) {
        self.output = Aside::default();
        if !needed || self.dead == self.live.rows() {
            self.clear();
        }
    }

    /// Forgets all rows.
    fn clear(&mut self) {
        self.work = Work::Nothing;
        self.live.clear(&mut self.pool);
        self.front.clear();
        self.back.clear();
        (self.dead, self.since_rebuild, self.rebuilt_bytes) = (0, 0, 0);
    }

    /// Gives back memory that is not needed now.
    pub fn release(&mut self) {
        self.pool.release();
        self.front.trim();
        self.back.trim();
        self.aside = Aside::default();
    }

    /// Rows, also of keys that are not live any more.
    pub fn rows(&self) -> usize {
        self.live.rows()
    }

    /// Bytes allocated.
    pub fn bytes(&self) -> usize {
        let aside = |aside: &Aside| aside.words.capacity() * 8 + aside.arena.allocated_bytes();
        let rebuilding = match &self.work {
            Work::Rebuild(rebuild, _) => rebuild.bytes(),
            _ => 0,
        };
        self.live.bytes()
            + self.front.bytes()
            + self.back.bytes()
            + self.pool.bytes()
            + aside(&self.aside)
            + aside(&self.output)
            + rebuilding
    }

    /// Bytes of keys and values.
    pub fn live_bytes(&self) -> usize {
        self.live.live_bytes() + self.front.live_bytes() + self.back.live_bytes()
    }

    /// Bytes that taking in so much more may allocate.
    pub fn growth_bytes(&self, load: Load) -> usize {
        self.live.growth_bytes(load)
            + self.front.growth_bytes(load.rows)
            + self.back.growth_bytes(load.rows)
    }

    /// Bytes of what a row refers to, about.
    pub fn text_bytes_of_row(&self) -> usize {
        self.live.arena_bytes_of_row()
    }
}

impl Aside {
    fn clear(&mut self) {
        self.words.clear();
        self.arena.clear();
    }

    /// Adds a copy of the values of a row without its key, which begins with its `first` word.
    fn push(&mut self, values: &[u64], first: usize, referring: &[ValueSlot], from: &Arena) {
        let start = self.words.len();
        self.words.extend_from_slice(values);
        move_values(&mut self.words[start..], first, referring, from, &mut self.arena);
    }
}

/// The values of a row, behind its key.
///
/// # Safety
/// `place` must be a written row of this layout, or where it would begin if it had a key; and
/// nobody may change it meanwhile.
unsafe fn values_at<'a>(place: *const u64, layout: &RowLayout) -> &'a [u64] {
    let words = layout.key_words()..layout.row_words();
    // SAFETY: as the caller promises.
    unsafe { std::slice::from_raw_parts(place.wrapping_add(words.start), words.len()) }
}

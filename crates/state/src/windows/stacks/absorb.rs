//! Taking in the rows of a pane that is complete.

use super::history::{EntryId, History, older};
use super::{Entries, Note, Stacks};
use crate::memory::arena::Arena;
use crate::memory::log::BLOCK_ROWS;
use crate::table::layout::RowLayout;
use crate::table::segment::Sources;
use crate::table::value::Block;
use crate::windows::noted::{reset, values_at};

/// Treatment of a row that is taken in.
enum Treatment {
    /// Adds to the row of its key, and perhaps to an entry of the back.
    Add(Option<EntryId>),
    /// The row's pane is before the key's newest pane, or in front.
    Between,
}

impl Stacks {
    /// Takes in `count` rows of a pane of the window that has begun. Its newest pane comes last.
    pub(crate) fn absorb(&mut self, pane: i64, rows: Sources, count: usize, arena: &Arena) {
        for start in (0..count).step_by(BLOCK_ROWS) {
            let count = (count - start).min(BLOCK_ROWS);
            self.absorb_rows(pane as u32, rows.from(start), count, arena);
        }
    }

    fn absorb_rows(&mut self, pane: u32, rows: Sources, count: usize, arena: &Arena) {
        let layout = self.live.layout.clone();
        let mut places = self.live.find(rows, count, arena);
        // Rows of the pane that are merged into their keys' rows, and into entries.
        let (mut added, mut entered) = ([0_u16; BLOCK_ROWS], Vec::new());
        let mut adds = 0;
        for k in 0..count {
            match self.note_pane(pane, places[k], rows.place(k), arena) {
                Treatment::Between => self.put_between(pane, places[k], rows.place(k), arena),
                Treatment::Add(entry) => {
                    (places[adds], added[adds]) = (places[k], k as u16);
                    adds += 1;
                    entered.extend(entry.map(|entry| (k, entry)));
                }
            }
        }
        let mut block = Block::new(&layout, &mut self.live.table.arena, &places[..adds], 0);
        // SAFETY: rows of a table that does not change meanwhile; they are not rows of the live
        // table.
        unsafe { block.merge_rows(|i| rows.place(added[i].into()), arena) };
        if !entered.is_empty() {
            let back = &mut self.back;
            let some: Vec<_> = entered.iter().map(|(_, entry)| back.place_mut(*entry)).collect();
            let mut block = Block::new(&layout, &mut back.arena, &some, 0);
            // SAFETY: as above; entries have all that is merged.
            unsafe { block.merge_rows(|i| rows.place(entered[i].0), arena) };
        }
        self.live.scratch.places = places;
    }

    /// Notes that the key of `row` came in a pane, with the values at `came`.
    fn note_pane(
        &mut self,
        pane: u32,
        row: *mut u64,
        came: *const u64,
        arena: &Arena,
    ) -> Treatment {
        let at = row.wrapping_add(self.live.note);
        // SAFETY: a written row of the live table, which this has to itself.
        let word = unsafe { *at };
        let (note, taken) = match Note::of(word) {
            None => (Note { last: pane, entries: Entries::None }, Treatment::Add(None)),
            Some(note) if older(note.last, self.first) => {
                // What was there is of no window any more.
                // SAFETY: as above.
                unsafe { reset(row, &self.live.layout) };
                (Note { last: pane, entries: Entries::None }, Treatment::Add(None))
            }
            Some(_) if !self.hops => {
                (Note { last: pane, entries: Entries::None }, Treatment::Add(None))
            }
            Some(note) if note.last == pane => {
                let only_in_front =
                    matches!(note.entries, Entries::Front(_)) && older(note.last, self.mid);
                match note.entries {
                    _ if only_in_front => (note, Treatment::Between),
                    Entries::Back(newest) => (note, Treatment::Add(Some(newest))),
                    _ => (note, Treatment::Add(None)),
                }
            }
            Some(note) if older(note.last, pane) && !older(pane, self.mid) => {
                let entries = self.own_entries(note, row);
                let Entries::Back(newest) = entries else {
                    let note = Note { last: pane, entries };
                    // SAFETY: as above.
                    unsafe { *at = note.word() };
                    return Treatment::Add(None);
                };
                let entry = self.back.push(pane, newest, self.back.front(newest));
                // SAFETY: a written row.
                let values = unsafe { values_at(came, &self.live.layout) };
                self.back.write(entry, values, &self.live.referring, arena);
                (Note { last: pane, entries: Entries::Back(entry) }, Treatment::Add(None))
            }
            Some(note) => (note, Treatment::Between),
        };
        // SAFETY: as above.
        unsafe { *at = note.word() };
        taken
    }

    /// The entries of a key, with an entry for the values of its row alone. Values in front are not
    /// in the row then.
    fn own_entries(&mut self, note: Note, row: *mut u64) -> Entries {
        let in_back = !older(note.last, self.mid);
        // SAFETY: a written row of the live table, which this has to itself.
        let values = unsafe { values_at(row, &self.live.layout) };
        let front = match note.entries {
            Entries::Back(_) => return note.entries,
            Entries::Front(front) => front,
            Entries::None => 0,
        };
        if in_back {
            let entry = self.back.push(note.last, 0, front);
            self.back.write(entry, values, &self.live.referring, &self.live.table.arena);
            return Entries::Back(entry);
        }
        if front != 0 {
            return note.entries;
        }
        let entry = self.front.push(note.last, 0, 0);
        self.front.write(entry, values, &self.live.referring, &self.live.table.arena);
        // SAFETY: as above.
        unsafe { reset(row, &self.live.layout) };
        Entries::Front(entry)
    }

    /// Adds the values at `came` to what a key had in a pane before its newest, or in one in front:
    /// those of records that were late for earlier windows.
    #[cold]
    fn put_between(&mut self, pane: u32, row: *mut u64, came: *const u64, arena: &Arena) {
        let at = row.wrapping_add(self.live.note);
        // SAFETY: a written row of the live table, which this has to itself.
        let Some(note) = Note::of(unsafe { *at }) else { return };
        let entries = self.own_entries(note, row);
        let entries = match (older(pane, self.mid), entries) {
            (false, Entries::Back(newest)) => {
                self.put_into_back(pane, newest, came, arena);
                let layout = self.live.layout.clone();
                // SAFETY: as in `absorb_rows`.
                unsafe {
                    Block::new(&layout, &mut self.live.table.arena, &[row], 0)
                        .merge_rows(|_| came, arena);
                }
                entries
            }
            (true, Entries::Back(newest)) => {
                let front = self.put_into_front(pane, self.back.front(newest), came, arena);
                self.back.set_front(newest, front);
                entries
            }
            (_, Entries::Front(front)) => {
                Entries::Front(self.put_into_front(pane, front, came, arena))
            }
            (_, Entries::None) => entries,
        };
        let last = if older(note.last, pane) { pane } else { note.last };
        // SAFETY: as above.
        unsafe { *at = Note { last, entries }.word() };
    }

    /// Adds values to the entry of a pane of the back, which may have to be made.
    fn put_into_back(&mut self, pane: u32, newest: EntryId, came: *const u64, arena: &Arena) {
        let (mut newer, mut entry) = (0, newest);
        while entry != 0 && older(pane, self.back.pane(entry)) {
            (newer, entry) = (entry, self.back.link(entry));
        }
        if entry != 0 && self.back.pane(entry) == pane {
            return merge_into(&mut self.back, entry, &self.live.layout, came, arena);
        }
        let made = self.back.push(pane, entry, 0);
        // SAFETY: a written row.
        let values = unsafe { values_at(came, &self.live.layout) };
        self.back.write(made, values, &self.live.referring, arena);
        debug_assert_ne!(newer, 0, "a pane that is not the key's newest");
        self.back.set_link(newer, made);
    }

    /// Adds values to all suffixes in front that contain a pane, and makes one that begins with it;
    /// returns the oldest entry.
    fn put_into_front(
        &mut self,
        pane: u32,
        oldest: EntryId,
        came: *const u64,
        arena: &Arena,
    ) -> EntryId {
        let (mut before, mut entry) = (0, oldest);
        while entry != 0 && !older(pane, self.front.pane(entry)) {
            merge_into(&mut self.front, entry, &self.live.layout, came, arena);
            (before, entry) = (entry, self.front.link(entry));
        }
        if before != 0 && self.front.pane(before) == pane {
            return oldest;
        }
        let made = self.front.push(pane, entry, 0);
        // SAFETY: a written row.
        let values = unsafe { values_at(came, &self.live.layout) };
        self.front.write(made, values, &self.live.referring, arena);
        if entry != 0 {
            self.aside.clear();
            // SAFETY: the values of an entry.
            let later = unsafe { values_at(self.front.place(entry), &self.live.layout) };
            let key_words = self.live.layout.key_words();
            self.aside.push(later, key_words, &self.live.referring, &self.front.arena);
            let later = self.aside.words.as_ptr().wrapping_sub(key_words);
            merge_into(&mut self.front, made, &self.live.layout, later, &self.aside.arena);
        }
        if before == 0 {
            return made;
        }
        self.front.set_link(before, made);
        oldest
    }
}

/// Merges the values at `came` into an entry.
fn merge_into(
    history: &mut History,
    entry: EntryId,
    layout: &RowLayout,
    came: *const u64,
    arena: &Arena,
) {
    let places = [history.place_mut(entry)];
    let mut block = Block::new(layout, &mut history.arena, &places, 0);
    // SAFETY: written values of this layout that refer to `arena`, and are none of the entry's.
    unsafe { block.merge_rows(|_| came, arena) };
}

//! Entries become panes that have a value for each row, and the other way round.

use super::panes::note_word;
use super::*;
use crate::windows::noted::{Noted, values_at};
use crate::windows::sliding::Entries;
use crate::windows::sliding::history::EntryId;

/// Counts of panes since which keys repeat are worth less with each.
const KEPT: (u64, u64) = (7, 8);

/// How many keys come again, of how many there are.
#[derive(Debug, Default)]
pub(in crate::windows::sliding) struct Repeats {
    again: u64,
    keys: u64,
}

impl Repeats {
    /// Notes that so many keys came in a pane that had come in another, of so many that are live.
    pub(in crate::windows::sliding) fn note(&mut self, again: usize, keys: usize) {
        let kept = |sum: u64| sum * KEPT.0 / KEPT.1;
        self.again = kept(self.again) + again as u64;
        self.keys = kept(self.keys) + keys as u64;
    }

    /// Half of them, and more: a value for each takes less than entries.
    pub(in crate::windows::sliding) fn are_many(&self) -> bool {
        self.keys > 0 && 2 * self.again >= self.keys
    }

    pub(in crate::windows::sliding) fn are_few(&self) -> bool {
        3 * self.again < self.keys
    }
}

impl Sliding {
    /// Goes on with a block of rows, whose entries become values for each pane.
    pub(in crate::windows::sliding) fn make_dense(&mut self, block: usize) -> Option<Work> {
        if block == self.live.table.scan_blocks() {
            self.front.clear();
            self.back.clear();
            return None;
        }
        let mut dense = match self.dense.take() {
            Some(dense) => dense,
            None => Dense::new(&self.live.layout, &self.live.referring),
        };
        let (first, rows, row_words) = self.live.block(block);
        for row in 0..rows {
            let number = block * CHUNK_ROWS + row;
            self.row_to_dense(first.wrapping_add(row * row_words), number, &mut dense);
        }
        let in_front = |pane: &Pane| older(pane.number, self.mid);
        for at in (0..dense.panes.partition_point(in_front)).rev() {
            for part in BLOCK_PARTS * block..BLOCK_PARTS * (block + 1) {
                dense.complete_if_there(at, part, self.mid);
            }
        }
        self.dense = Some(dense);
        Some(Work::ToDense(block + 1))
    }

    fn row_to_dense(&mut self, row: *mut u64, number: usize, dense: &mut Dense) {
        let (layout, table_rows) = (self.live.layout.clone(), self.live.table.rows());
        let key_words = layout.key_words();
        let at = row.wrapping_add(self.live.note);
        // SAFETY: a written row of the live table, which this has to itself.
        let Some(note) = Note::of(unsafe { *at }) else { return };
        // SAFETY: as above.
        unsafe { *at = note_word(note.last, number as u32) };
        let in_back = !older(note.last, self.mid);
        let mut front = match note.entries {
            Entries::Back(newest) => self.back.front(newest),
            Entries::Front(oldest) => oldest,
            Entries::None => 0,
        };
        // What the row has is of its only pane, or of its only one in the back.
        let only = !matches!(note.entries, Entries::Back(_)) && (in_back || front == 0);
        if only && !older(note.last, self.first) {
            // SAFETY: as above.
            let values = unsafe { values_at(row, &layout) };
            let pane = dense.ensure(note.last);
            dense.put(pane, number, values, &self.live.table.arena, key_words, table_rows);
        }
        if !in_back || older(note.last, self.first) {
            // SAFETY: as above.
            unsafe { reset(row, &layout) };
        }
        if let Entries::Back(newest) = note.entries {
            let mut entry = newest;
            while entry != 0 {
                // SAFETY: the values of an entry.
                let values = unsafe { values_at(self.back.place(entry), &layout) };
                let pane = dense.ensure(self.back.pane(entry));
                dense.put(pane, number, values, &self.back.arena, key_words, table_rows);
                entry = self.back.link(entry);
            }
        }
        while front != 0 {
            if !older(self.front.pane(front), self.first) {
                // SAFETY: the values of an entry.
                let values = unsafe { values_at(self.front.place(front), &layout) };
                let pane = dense.ensure(self.front.pane(front));
                dense.put(pane, number, values, &self.front.arena, key_words, table_rows);
            }
            front = self.front.link(front);
        }
    }

    /// Goes on with a block of rows, whose values for each pane become entries.
    pub(in crate::windows::sliding) fn make_entries(&mut self, block: usize) -> Option<Work> {
        if block == self.live.table.scan_blocks() {
            self.dense = None;
            return None;
        }
        let dense = self.dense.take()?;
        let (first, rows, row_words) = self.live.block(block);
        for row in 0..rows {
            let number = block * CHUNK_ROWS + row;
            self.row_to_entries(first.wrapping_add(row * row_words), number, &dense);
        }
        self.dense = Some(dense);
        Some(Work::ToEntries(block + 1))
    }

    fn row_to_entries(&mut self, row: *mut u64, number: usize, dense: &Dense) {
        let (part, place) = place_of(number);
        let came = |pane: &&Pane| {
            let part = pane.parts.get(part).and_then(Option::as_ref);
            part.is_some_and(|part| place < part.rows && part.has(place))
        };
        let tail = dense.tail();
        let values_of = |pane: &Pane| -> Vec<u64> {
            let part = pane.parts[part].as_ref().expect("a part in which the row came");
            part.values(place, tail).to_vec()
        };
        let at = row.wrapping_add(self.live.note);
        // SAFETY: a written row of the live table, which this has to itself.
        let last = (unsafe { *at } >> 32) as u32;
        let mid = dense.panes.partition_point(|pane| older(pane.number, self.mid));
        let front: Vec<&Pane> = dense.panes.range(..mid).filter(came).collect();
        let back: Vec<&Pane> = dense.panes.range(mid..).filter(came).collect();
        let entries = match (&front[..], &back[..]) {
            ([pane], []) => {
                let Noted { table, referring, .. } = &mut self.live;
                // SAFETY: the values of a row of the live table.
                let to = unsafe {
                    std::slice::from_raw_parts_mut(row.wrapping_add(dense.key_words), tail)
                };
                to.copy_from_slice(&values_of(pane));
                move_values(to, dense.key_words, referring, &pane.arena, &mut table.arena);
                Entries::None
            }
            (front, back) => {
                let mut oldest: EntryId = 0;
                for pane in front.iter().rev() {
                    oldest = self.front.push(pane.number, oldest, 0);
                    let values = values_of(pane);
                    self.front.write(oldest, &values, &self.live.referring, &pane.arena);
                }
                let mut newest: EntryId = 0;
                for pane in back.iter().filter(|_| back.len() > 1) {
                    newest = self.back.push(pane.number, newest, oldest);
                    let values = values_of(pane);
                    self.back.write(newest, &values, &self.live.referring, &pane.arena);
                }
                match (newest, oldest) {
                    (0, 0) => Entries::None,
                    (0, oldest) => Entries::Front(oldest),
                    (newest, _) => Entries::Back(newest),
                }
            }
        };
        // SAFETY: as above.
        unsafe { *at = Note { last, entries }.word() };
    }
}

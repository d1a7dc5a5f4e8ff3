//! Panes that have a value for each row: taking rows in, building suffixes, reading.

use super::*;
use crate::table::compact::move_key;
use crate::windows::noted::{Aside, Noted};
use crate::windows::sliding::To;

/// A number of a row in a note.
const NUMBER: u32 = PRESENT - 1;

/// The note of a row: the newest pane in which its key came, and the row's number.
pub(super) fn note_word(last: u32, number: u32) -> u64 {
    u64::from(last) << 32 | u64::from(number | PRESENT)
}

fn number_of(word: u64) -> u32 {
    word as u32 & NUMBER
}

fn last_of(word: u64) -> u32 {
    (word >> 32) as u32
}

impl Sliding {
    /// As [`Sliding::absorb`], of some rows.
    pub(in crate::windows::sliding) fn absorb_dense(
        &mut self,
        pane: u32,
        rows: Sources,
        count: usize,
        arena: &Arena,
    ) {
        let layout = self.live.layout.clone();
        let places = self.live.find(rows, count, arena);
        let mut numbers = [0; BLOCK_ROWS];
        for (number, place) in numbers.iter_mut().zip(&places) {
            *number = self.note_number(pane, *place);
        }
        let numbers = &numbers[..count];
        if older(pane, self.mid) {
            self.put_into_suffixes(pane, numbers, rows, arena);
        } else if let Some(dense) = &mut self.dense {
            let table = &mut self.live.table;
            dense.take(pane, numbers, rows, arena, &layout, table.rows());
            let mut block = Block::new(&layout, &mut table.arena, &places, 0);
            // SAFETY: rows of a table that nobody changes; they are none of the live ones.
            unsafe { block.merge_rows(|k| rows.place(k), arena) };
        }
        self.live.scratch.places = places;
    }

    /// Notes that the key of `row` came in a pane; returns the row's number.
    #[inline(always)]
    fn note_number(&mut self, pane: u32, row: *mut u64) -> u32 {
        // SAFETY: a written row of the live table, which this has to itself.
        let note = unsafe { &mut *row.wrapping_add(self.live.note) };
        let is_new = *note as u32 & PRESENT == 0;
        let number = if is_new { self.live.number_of(row) } else { number_of(*note) };
        let last = last_of(*note);
        let dead = !is_new && older(last, self.first);
        let newest = if is_new || dead || older(last, pane) { pane } else { last };
        self.again += usize::from(!is_new && !dead && older(last, pane));
        *note = note_word(newest, number);
        if dead {
            // What was there is of no window any more.
            // SAFETY: as above.
            unsafe { reset(row, &self.live.layout) };
        }
        number
    }

    /// Adds the values of rows to all suffixes that contain a pane in front: those of records that
    /// were late for earlier windows.
    #[cold]
    fn put_into_suffixes(&mut self, pane: u32, numbers: &[u32], rows: Sources, from: &Arena) {
        let (layout, table_rows) = (self.live.layout.clone(), self.live.table.rows());
        let mid = self.mid;
        let Some(dense) = &mut self.dense else { return };
        let last = dense.ensure(pane);
        for (k, number) in numbers.iter().enumerate() {
            let (part, row) = place_of(*number as usize);
            dense.ensure_suffix(last, part, row, table_rows, mid);
            let value = (*number, rows.place(k));
            let has = |pane: &Pane| matches!(pane.parts.get(part), Some(Some(_)));
            for at in (0..=last).filter(|at| has(&dense.panes[*at])).collect::<Vec<_>>() {
                dense.part(at, part, row, table_rows);
                dense.add(at, std::iter::once(value), from, &layout);
            }
            if !dense.part(last, part, row, table_rows).note(row) {
                dense.panes[last].came += 1;
                dense.count(last);
            }
        }
    }

    /// Goes on with a block of rows: the back becomes the front. `mid` is the pane with which the
    /// back begins then.
    pub(in crate::windows::sliding) fn flip_dense(
        &mut self,
        block: usize,
        mid: u32,
    ) -> Option<Work> {
        if block == self.live.table.scan_blocks() {
            self.mid = mid;
            return None;
        }
        let (first, rows, row_words) = self.live.block(block);
        let Sliding { live, dense, .. } = self;
        let Noted { layout, scratch, .. } = live;
        if let Some(dense) = dense {
            for part in BLOCK_PARTS * block..BLOCK_PARTS * (block + 1) {
                dense.build(part, layout, &mut scratch.places);
            }
        }
        for row in 0..rows {
            // SAFETY: a row of the live table, which this has to itself.
            unsafe { reset(first.wrapping_add(row * row_words), layout) };
        }
        Some(Work::Flip(block + 1, mid))
    }

    /// As [`Sliding::read_to`].
    pub(in crate::windows::sliding) fn read_dense(
        &mut self,
        block: usize,
        output: &mut Aside,
        to: To,
    ) {
        let (first, rows, noted_words) = self.live.block(block);
        output.words.reserve(rows * (noted_words - 1 + to.mark_words()));
        for start in (0..rows).step_by(PART_ROWS) {
            let count = (rows - start).min(PART_ROWS);
            let place = first.wrapping_add(start * noted_words);
            let part = BLOCK_PARTS * block + start / PART_ROWS;
            match to.mark {
                None => self.read_part::<0>(part, (place, count), output, to.moves, 0),
                Some(mark) => self.read_part::<1>(part, (place, count), output, to.moves, mark),
            }
        }
    }

    /// Adds the rows of keys that came in the window to the output: those of one part, of `count`
    /// rows from the `first` on. Each has `MARKS` words behind its key that are the mark.
    fn read_part<const MARKS: usize>(
        &mut self,
        part: usize,
        (first, count): (*mut u64, usize),
        output: &mut Aside,
        refers: bool,
        mark: u64,
    ) {
        let (oldest, mid) = (self.first, self.mid);
        let Sliding { live, dense, .. } = self;
        let Noted { layout, scratch, referring, table, note, dead, .. } = live;
        let (row_words, key_words) = (*note, layout.key_words());
        let tail = row_words - key_words;
        let suffix = dense.as_ref().and_then(|dense| dense.suffix(part, oldest, mid));
        // Where an arena is empty, nothing refers to it.
        let moves = |arena: &Arena| refers && arena.used_bytes() > 0;
        let row_moves = moves(&table.arena);
        let suffix_moves = suffix.is_some_and(|(_, arena)| moves(arena));
        scratch.places.clear();
        // Which rows of the part have something in front and in the back.
        let (mut both, mut both_count) = ([0u16; PART_ROWS], 0);
        for row in 0..count {
            let place = first.wrapping_add(row * (row_words + 1));
            // SAFETY: a written row of the live table.
            let last = last_of(unsafe { *place.wrapping_add(row_words) });
            if older(last, oldest) {
                *dead += 1;
                continue;
            }
            let in_front = suffix.filter(|(suffix, _)| row < suffix.rows);
            let in_back = !older(last, mid) || in_front.is_none();
            let start = output.words.len();
            debug_assert!(output.words.capacity() >= start + row_words + MARKS);
            let to = output.words.as_mut_ptr().wrapping_add(start);
            let (from, from_suffix) = match in_front {
                Some((suffix, _)) if !in_back => (suffix.place(row, tail, key_words), true),
                _ => (place.cast_const(), false),
            };
            let values = to.wrapping_add(MARKS);
            // SAFETY: a written row and values of this layout; there is room for a row.
            unsafe {
                put_row::<MARKS>(place, from, to, [key_words, tail], mark);
                output.words.set_len(start + row_words + MARKS);
            }
            if row_moves {
                move_key(&mut output.words[start..], layout, &table.arena, &mut output.arena);
            }
            if if from_suffix { suffix_moves } else { row_moves } {
                let arena = suffix.filter(|_| from_suffix).map_or(&table.arena, |(_, a)| a);
                let values = &mut output.words[start + MARKS..];
                move_values(values, 0, referring, arena, &mut output.arena);
            }
            if in_back && in_front.is_some() {
                scratch.places.push(values);
                both[both_count] = row as u16;
                both_count += 1;
            }
        }
        if let Some((suffix, arena)) = suffix {
            let mut merged = Block::new(layout, &mut output.arena, &scratch.places, 0);
            let place = |i: usize| suffix.place(usize::from(both[i]), tail, key_words);
            // SAFETY: values of suffixes, none of which is in the output.
            unsafe { merged.merge_rows(place, arena) };
        }
    }

    /// Rows have been left behind: the others have new numbers. Goes on with a pane, of which so
    /// many are left.
    pub(in crate::windows::sliding) fn renumber(
        &mut self,
        before: Vec<u32>,
        left: usize,
    ) -> Option<Work> {
        let (table_rows, mid) = (self.live.table.rows(), self.mid);
        let at = left.checked_sub(1)?;
        self.dense.as_mut()?.renumber(at, &before, table_rows, mid);
        Some(Work::Renumber(before, at))
    }

    /// Rows have been left behind: numbers those that are there anew.
    pub(in crate::windows::sliding) fn number_anew(&mut self) -> Option<Work> {
        let mut before = Vec::with_capacity(self.live.table.rows());
        for block in 0..self.live.table.scan_blocks() {
            let (first, rows, row_words) = self.live.block(block);
            for row in 0..rows {
                let at = first.wrapping_add(row * row_words + self.live.note);
                // SAFETY: a written row of the live table, which this has to itself.
                let note = unsafe { &mut *at };
                let number = before.len() as u32;
                before.push(number_of(*note));
                *note = note_word(last_of(*note), number);
            }
        }
        let panes = self.dense.as_ref()?.panes.len();
        Some(Work::Renumber(before, panes))
    }
}

/// Puts the key of a row, the mark, and the values of a row together.
///
/// # Safety
/// Both must be places of written rows, as far as their keys and values are meant, and there must
/// be room at `to`.
#[inline(always)]
unsafe fn put_row<const MARKS: usize>(
    key: *const u64,
    values: *const u64,
    to: *mut u64,
    [key_words, tail]: [usize; 2],
    mark: u64,
) {
    // SAFETY: as the caller promises.
    unsafe {
        if MARKS == 0 && key == values {
            return copy_words(key, to, key_words + tail);
        }
        copy_words(key, to, key_words);
        (0..MARKS).for_each(|i| *to.wrapping_add(key_words + i) = mark);
        let behind = to.wrapping_add(key_words + MARKS);
        copy_words(values.wrapping_add(key_words), behind, tail);
    }
}

impl Dense {
    /// Makes a part of a pane in front, if it is not there: what the next newer one has, since
    /// nothing came in it.
    fn ensure_suffix(&mut self, at: usize, part: usize, row: usize, table_rows: usize, mid: u32) {
        if matches!(self.panes[at].parts.get(part), Some(Some(_))) {
            self.part(at, part, row, table_rows);
            return;
        }
        self.part(at, part, row, table_rows);
        self.complete(at, part, mid);
    }

    /// Gives the rows of a part in front that did not come in its pane what the next newer pane
    /// has.
    pub(super) fn complete(&mut self, at: usize, part: usize, mid: u32) {
        let newer = self.panes.iter().enumerate().skip(at + 1);
        let mut newer = newer.take_while(|(_, pane)| older(pane.number, mid));
        let has = |pane: &Pane| matches!(pane.parts.get(part), Some(Some(_)));
        if let Some((newer, _)) = newer.find(|(_, pane)| has(pane)) {
            self.copy_missing(at, newer, part);
        }
    }

    /// Gives the rows of a part that did not come in its pane the values of a newer one.
    pub(super) fn copy_missing(&mut self, at: usize, newer: usize, part: usize) {
        let (key_words, tail) = (self.key_words, self.tail());
        let (older, newer) = two(&mut self.panes, at, newer);
        let (Some(to), Some(from)) = (&mut older.parts[part], &newer.parts[part]) else { return };
        older.values_bytes += to.grow(from.rows, &self.template);
        for row in (0..from.rows).filter(|row| !to.has(*row)).collect::<Vec<_>>() {
            let words = &mut to.words[row * tail..(row + 1) * tail];
            words.copy_from_slice(from.values(row, tail));
            move_values(words, key_words, &self.referring, &newer.arena, &mut older.arena);
        }
        self.count(at);
    }

    /// Puts the values of a pane in the order of new numbers; `before` are the old ones. Newer
    /// panes have them already.
    fn renumber(&mut self, at: usize, before: &[u32], table_rows: usize, mid: u32) {
        let (key_words, tail) = (self.key_words, self.tail());
        let number = self.panes[at].number;
        let old = std::mem::replace(&mut self.panes[at], Pane::new(number));
        self.uncount(old.counted);
        for (now, before) in before.iter().enumerate() {
            let (part, row) = place_of(*before as usize);
            let part = old.parts.get(part).and_then(Option::as_ref);
            let Some(values) = part.filter(|part| row < part.rows && part.has(row)) else {
                continue;
            };
            let values = values.values(row, tail);
            self.put(at, now, values, &old.arena, key_words, table_rows);
        }
        if older(number, mid) {
            (0..self.panes[at].parts.len()).for_each(|part| self.complete_if_there(at, part, mid));
        }
    }

    /// The same, if there is such a part.
    pub(super) fn complete_if_there(&mut self, at: usize, part: usize, mid: u32) {
        if matches!(self.panes[at].parts.get(part), Some(Some(_))) {
            self.complete(at, part, mid);
        }
    }

    /// Sets the values of a row in a pane, in which it came.
    pub(super) fn put(
        &mut self,
        at: usize,
        row: usize,
        values: &[u64],
        from: &Arena,
        key_words: usize,
        table_rows: usize,
    ) {
        let (part, row) = place_of(row);
        let tail = values.len();
        let to = self.part(at, part, row, table_rows);
        let is_new = !to.note(row);
        let words = &mut to.words[row * tail..(row + 1) * tail];
        words.copy_from_slice(values);
        let Dense { panes, referring, .. } = self;
        let Pane { parts, arena, came, .. } = &mut panes[at];
        if let Some(Some(to)) = parts.get_mut(part) {
            let words = &mut to.words[row * tail..(row + 1) * tail];
            move_values(words, key_words, referring, from, arena);
        }
        *came += usize::from(is_new);
        self.count(at);
    }
}

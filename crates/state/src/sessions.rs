//! Sessions: rows of a key are joined as long as they are no more than a gap apart.
//!
//! Rows come slice by slice, in the order of time. A slice is at most a gap wide, so a key has one
//! row in it, which says when its first and its last record came. For every key there is one open
//! session at most: a row that is further away from it begins another one, and the session before
//! is over.

use std::sync::Arc;

use crate::compact::{move_key, move_values};
use crate::layout::{RowLayout, ValueSlot};
use crate::log::BLOCK_ROWS;
use crate::noted::{Aside, Noted, Rebuild, reset};
use crate::rows::RowsRef;
use crate::segment::Sources;
use crate::table::{Load, Table};
use crate::value::Block;

/// What the note of a row says: its session is open, or has been given.
const OPEN: u64 = 1;
const OVER: u64 = 2;

/// The open sessions of keys. See the module.
#[derive(Debug)]
pub struct Sessions {
    open: Noted,
    /// The words of a row that say when its first and its last record came.
    first: usize,
    last: usize,
    gap: i64,
    /// Rows of sessions that are over.
    output: Aside,
    rebuild: Option<Rebuild>,
}

impl Sessions {
    /// Of rows of this layout, of which the value `first` is the least time and `last` the
    /// greatest. It keeps at most so many bytes of idle memory.
    pub fn new(
        layout: Arc<RowLayout>,
        first: ValueSlot,
        last: ValueSlot,
        gap: i64,
        pool_bytes: usize,
    ) -> Sessions {
        Sessions {
            open: Noted::new(layout, pool_bytes),
            first: first.word,
            last: last.word,
            gap,
            output: Aside::default(),
            rebuild: None,
        }
    }

    /// Whether no session is open.
    pub fn is_empty(&self) -> bool {
        self.open.table.rows() == self.open.dead && self.rebuild.is_none()
    }

    /// Begins with what comes next.
    pub fn begin(&mut self) {
        if self.is_empty() {
            self.open.clear();
        } else if self.open.is_worth_rebuilding() {
            self.rebuild = Some(self.open.start_rebuild());
        }
    }

    /// Does a bounded part of what is to be done before rows are taken in; false: there is nothing
    /// left to do.
    pub fn prepare(&mut self) -> bool {
        let Some(rebuild) = self.rebuild.take() else { return false };
        self.rebuild = self.open.rebuild_some(rebuild, |note| note == OPEN);
        true
    }

    /// Takes in the rows of one scan block of a table of a slice. The sessions that are over
    /// because of that are given next.
    pub fn absorb(&mut self, table: &Table, block: usize) {
        let chunk = &table.log.chunks()[block];
        let sources = Sources::new(chunk, 0, &self.open.layout);
        for start in (0..chunk.rows()).step_by(BLOCK_ROWS) {
            let count = (chunk.rows() - start).min(BLOCK_ROWS);
            let rows = sources.from(start);
            let places = self.open.find(rows, count, &table.arena);
            for (k, place) in places.iter().enumerate() {
                self.make_room(*place, rows.place(k));
            }
            let Noted { layout, table: open, .. } = &mut self.open;
            let mut joined = Block::new(layout, &mut open.arena, &places, 0);
            // SAFETY: rows of a table that nobody changes, and that is not the one of sessions.
            unsafe { joined.merge_rows(|k| rows.place(k), &table.arena) };
            self.open.scratch.places = places;
        }
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
            self.give(row);
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

    /// Adds a session to those that are given next.
    fn give(&mut self, row: *const u64) {
        let Noted { layout, table, referring, .. } = &self.open;
        let (start, words) = (self.output.words.len(), layout.row_words());
        // SAFETY: a written row of the table of sessions, which has one word more.
        let row = unsafe { std::slice::from_raw_parts(row, words) };
        self.output.words.extend_from_slice(row);
        let row = &mut self.output.words[start..];
        move_key(row, layout, &table.arena, &mut self.output.arena);
        move_values(row, 0, referring, &table.arena, &mut self.output.arena);
    }

    /// How many blocks of rows there are, for [`close`](Sessions::close).
    pub fn blocks(&self) -> usize {
        self.open.table.scan_blocks()
    }

    /// How many rows a block has.
    pub fn block_rows(&self, block: usize) -> usize {
        self.open.table.scan_rows(block)
    }

    /// The sessions of a block of rows that end before a time are over, and given next.
    pub fn close(&mut self, block: usize, before: i64) {
        let (first, rows, row_words) = self.open.block(block);
        for row in 0..rows {
            let row = first.wrapping_add(row * row_words);
            // SAFETY: a written row of the table of sessions, which this has to itself.
            let (note, last) =
                unsafe { (row.wrapping_add(self.open.note), *row.wrapping_add(self.last) as i64) };
            // SAFETY: as above.
            unsafe {
                if *note == OPEN && last.saturating_add(self.gap) < before {
                    self.give(row);
                    *note = OVER;
                    self.open.dead += 1;
                }
            }
        }
    }

    /// The sessions that are over and have not been given yet.
    pub fn over(&self) -> RowsRef<'_> {
        RowsRef::of_words(&self.output.words, &self.output.arena, &self.open.layout)
    }

    /// Those sessions have been given.
    pub fn given(&mut self) {
        self.output.clear();
    }

    /// Gives back memory that is not needed now.
    pub fn release(&mut self) {
        self.open.pool.release();
    }

    /// Open sessions, and rows that are left of others.
    pub fn rows(&self) -> usize {
        self.open.table.rows()
    }

    /// Bytes allocated.
    pub fn bytes(&self) -> usize {
        self.open.table.bytes()
            + self.open.pool.bytes()
            + self.output.bytes()
            + self.rebuild.as_ref().map_or(0, Rebuild::bytes)
    }

    /// Bytes of keys and values.
    pub fn live_bytes(&self) -> usize {
        self.open.table.live_bytes()
    }

    /// Bytes that taking in so much more may allocate.
    pub fn growth_bytes(&self, load: Load) -> usize {
        self.open.table.growth_bytes(load)
    }

    /// Bytes of what a row refers to, about.
    pub fn text_bytes_of_row(&self) -> usize {
        self.open.table.arena_bytes_of_row()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::key::{Keys, NoVarKeys};
    use crate::kind::ValueKind;
    use crate::log::ChunkPool;
    use crate::scratch::Scratch;

    /// Key, first and last time, and how many records.
    type Session = (u64, i64, i64, u64);

    /// The sessions that slices of this width give of records, which are in the order of time.
    fn sessions(records: &[(u64, i64)], gap: i64, width: i64) -> Vec<Session> {
        let kinds = [ValueKind::Count, ValueKind::Min64, ValueKind::Max64];
        let layout = Arc::new(RowLayout::new(1, vec![], &kinds.map(|kind| (kind, false))));
        let slots = layout.values().to_vec();
        let mut sessions = Sessions::new(layout.clone(), slots[1], slots[2], gap, 1 << 16);
        let (mut pool, mut scratch) = (ChunkPool::new(4, 0, None), Scratch::default());
        let mut found = Vec::new();
        let mut give = |sessions: &mut Sessions| {
            let over = sessions.over();
            for row in 0..over.len() {
                let at = |slot: usize| over.word(row, slots[slot].word);
                found.push((over.word(row, 0), at(1) as i64, at(2) as i64, at(0)));
            }
            sessions.given();
        };
        let mut slice = records[0].1.div_euclid(width);
        let mut rest = records;
        while !rest.is_empty() || !sessions.is_empty() {
            let end = (slice + 1) * width;
            let (now, later) = rest.split_at(rest.partition_point(|(_, time)| *time < end));
            rest = later;
            let mut table = Table::new(layout.clone());
            for (key, time) in now {
                let words = [*key];
                let keys = Keys { hashes: &[], ahead: &[], words: &words, vars: NoVarKeys };
                let mut block = table.update(&keys, &mut pool, &mut scratch);
                block.count(slots[0], None);
                block.extreme64(slots[1], None, |_| *time);
                block.extreme64(slots[2], None, |_| *time);
            }
            sessions.begin();
            while sessions.prepare() {}
            for block in 0..table.scan_blocks() {
                sessions.absorb(&table, block);
                give(&mut sessions);
            }
            for block in 0..sessions.blocks() {
                sessions.close(block, end);
                give(&mut sessions);
            }
            slice += 1;
        }
        found.sort_unstable();
        found
    }

    /// Whether slices are a gap, a third or a sixteenth of it wide, sessions are what records say:
    /// those a gap apart belong together, those one more do not.
    #[test]
    fn the_width_of_slices_makes_no_difference() {
        const GAP: i64 = 48;
        let mut state = 3u64;
        let mut below = |bound: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % bound
        };
        let mut many = 0;
        for keys in [1, 3, 40, 5_000] {
            for _ in 0..20 {
                let mut records = Vec::new();
                let mut time = below(1000) as i64 - 500;
                for _ in 0..2_000 {
                    time +=
                        [0, 1, GAP - 1, GAP, GAP + 1, 3][below(6) as usize] / keys.min(6) as i64;
                    records.push((below(keys), time));
                }
                let mut model: Vec<Session> = Vec::new();
                let mut open: BTreeMap<u64, Session> = BTreeMap::new();
                for (key, time) in &records {
                    match open.get_mut(key).filter(|session| *time - session.2 <= GAP) {
                        Some(session) => (session.2, session.3) = (*time, session.3 + 1),
                        None => model.extend(open.insert(*key, (*key, *time, *time, 1))),
                    }
                }
                model.extend(open.into_values());
                model.sort_unstable();
                for width in [GAP, GAP / 3, GAP / 16, 1] {
                    assert_eq!(sessions(&records, GAP, width), model, "{keys} keys, {width}");
                }
                many += usize::from(model.len() > 100);
            }
        }
        assert!(many > 20, "{many}");
    }
}

//! Reading a window: the rows of its keys.

use super::history::{EntryId, older};
use super::{Entries, Note, Stacks};
use crate::table::compact::{move_key, move_values};
use crate::table::rows::RowsRef;
use crate::table::value::Block;
use crate::windows::noted::{Noted, RowCopies, values_at};

/// Where the values of a key are.
#[derive(Debug, Clone, Copy)]
struct Parts {
    /// Whether its row has some.
    own: bool,
    /// The entry with the values in front; 0: no values.
    front: EntryId,
}

/// How rows are read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct To {
    /// Whether the bytes that they refer to are copied, too.
    pub(crate) moves: bool,
    /// A word behind each row's key.
    pub(crate) mark: Option<u64>,
}

impl Stacks {
    /// How many blocks of rows there are to read.
    pub(crate) fn read_blocks(&self) -> usize {
        self.live.table.scan_blocks()
    }

    /// How many rows a block has at the most.
    pub(crate) fn read_rows(&self, block: usize) -> usize {
        self.live.table.scan_rows(block)
    }

    /// The rows of a block as they stand, where windows cumulate.
    pub(crate) fn scan(&self, block: usize) -> Option<RowsRef<'_>> {
        (!self.hops).then(|| self.live.table.scan(block))
    }

    /// Adds the rows of a block of keys that came in the window to `output`, each with the values
    /// of all its panes. Blocks are read one after the other, up to the last.
    pub(crate) fn read(&mut self, block: usize, output: &mut RowCopies, to: To) {
        if block == 0 {
            self.live.dead = 0;
        }
        let mark_words = usize::from(to.mark.is_some());
        let (first, rows, noted_words) = self.live.block(block);
        output.words.reserve(rows * (noted_words - 1 + mark_words));
        // The rows to which the values in front are to be added.
        let mut fronts: Vec<(usize, EntryId)> = Vec::new();
        for row in 0..rows {
            let place = first.wrapping_add(row * noted_words);
            let Some(parts) = self.parts_of(place) else {
                self.live.dead += 1;
                continue;
            };
            let start = output.words.len() + mark_words;
            if parts.own && parts.front != 0 {
                fronts.push((start, parts.front));
            }
            self.copy(place, parts, output, to);
        }
        let Stacks { front, live, .. } = self;
        let Noted { layout, scratch, .. } = live;
        let start = output.words.as_mut_ptr();
        scratch.places.clear();
        scratch.places.extend(fronts.iter().map(|(at, _)| start.wrapping_add(*at)));
        let mut merged = Block::new(layout, &mut output.arena, &scratch.places, 0);
        // SAFETY: values of entries, none of which is in the output; a row's values stand as far
        // behind its place as if there were no mark.
        unsafe { merged.merge_rows(|i| front.place(fronts[i].1), &front.arena) };
    }

    /// Where the values are of the key of `row`; `None`: it did not come in the window.
    #[inline]
    fn parts_of(&mut self, row: *mut u64) -> Option<Parts> {
        // SAFETY: a written row of the live table, which this has to itself.
        let word = unsafe { &mut *row.wrapping_add(self.live.note) };
        let note = Note::of(*word).filter(|note| !older(note.last, self.first))?;
        let in_back = !older(note.last, self.mid);
        Some(match note.entries {
            Entries::None => Parts { own: true, front: 0 },
            Entries::Front(oldest) => {
                let front = self.in_window(oldest);
                let entries = if front == 0 { Entries::None } else { Entries::Front(front) };
                *word = Note { entries, ..note }.word();
                Parts { own: in_back, front }
            }
            Entries::Back(newest) => {
                let oldest = self.back.front(newest);
                let front = self.in_window(oldest);
                if front != oldest {
                    self.back.set_front(newest, front);
                }
                Parts { own: true, front }
            }
        })
    }

    /// The first entry of a pane of the window, from one in front on; 0: there is none.
    #[inline]
    fn in_window(&self, mut entry: EntryId) -> EntryId {
        while entry != 0 && older(self.front.pane(entry), self.first) {
            entry = self.front.link(entry);
        }
        entry
    }

    /// Adds a row to the output, with the values of its key's row or, if that has none, of its
    /// entry in front.
    #[inline]
    fn copy(&self, row: *const u64, parts: Parts, output: &mut RowCopies, to: To) {
        let Stacks { front, live, .. } = self;
        let Noted { layout, referring, table, .. } = live;
        let (start, key_words) = (output.words.len(), layout.key_words());
        let (values, from) = match parts.own {
            true => (row, &table.arena),
            false => (front.place(parts.front), &front.arena),
        };
        // SAFETY: a written row of the live table, and the values of a row or of an entry.
        unsafe {
            output.words.extend_from_slice(std::slice::from_raw_parts(row, key_words));
            output.words.extend(to.mark);
            output.words.extend_from_slice(values_at(values, layout));
        }
        if to.moves {
            let RowCopies { words, arena } = output;
            move_key(&mut words[start..], layout, &table.arena, arena);
            let values = start + usize::from(to.mark.is_some());
            move_values(&mut words[values..], 0, referring, from, arena);
        }
    }
}

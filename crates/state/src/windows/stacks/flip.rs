//! The back becomes the front: suffixes are built, from the newest pane to the oldest.

use super::history::{EntryId, older};
use super::{Entries, Note, Stacks};
use crate::table::layout::RowLayout;
use crate::table::value::Block;
use crate::windows::noted::{Noted, reset, values_at};

/// A key whose suffixes are being built.
struct Chain {
    /// Its row.
    row: *mut u64,
    last: u32,
    /// The entry that comes next, and the one before, which is of a newer pane.
    entry: EntryId,
    newer: EntryId,
}

/// Keys that are looked at together.
const TOGETHER: usize = 256;

impl Stacks {
    /// Goes on with a block of rows. `mid` is the pane with which the back begins then.
    pub(super) fn flip_some(&mut self, block: usize, mid: u32) -> Option<(usize, u32)> {
        if block == self.live.table.scan_blocks() {
            std::mem::swap(&mut self.front, &mut self.back);
            self.back.clear();
            self.mid = mid;
            return None;
        }
        let (first, rows, row_words) = self.live.block(block);
        let mut chains = Vec::with_capacity(TOGETHER);
        for row in 0..rows {
            let place = first.wrapping_add(row * row_words);
            if let Some(chain) = self.chain_of(place) {
                chains.push(chain);
            }
            if chains.len() == TOGETHER || row + 1 == rows {
                self.build(&mut chains);
            }
        }
        Some((block + 1, mid))
    }

    /// The chain of a row's entries in the back, if it has some.
    fn chain_of(&self, row: *mut u64) -> Option<Chain> {
        // SAFETY: a written row of the live table, which this has to itself.
        let word = unsafe { &mut *row.wrapping_add(self.live.note) };
        let note = Note::of(*word)?;
        match note.entries {
            Entries::Back(entry) => Some(Chain { row, last: note.last, entry, newer: 0 }),
            Entries::None => None,
            Entries::Front(_) => {
                // No pane of the front is left. What came once since then stays in the row.
                *word = Note { entries: Entries::None, ..note }.word();
                debug_assert!(!older(note.last, self.mid) || older(note.last, self.first));
                None
            }
        }
    }

    /// Builds the suffixes of some keys, one entry of each at a time.
    fn build(&mut self, chains: &mut Vec<Chain>) {
        let Stacks { live, back, aside, .. } = self;
        let Noted { layout, scratch, referring, note, .. } = live;
        let layout = &**layout;
        while !chains.is_empty() {
            aside.clear();
            scratch.places.clear();
            for chain in chains.iter().filter(|chain| chain.newer != 0) {
                // SAFETY: the values of an entry.
                let newer = unsafe { values_at(back.place(chain.newer), layout) };
                aside.push(newer, layout.key_words(), referring, &back.arena);
                scratch.places.push(back.place_mut(chain.entry));
            }
            let (sources, tail) = (aside.words.as_ptr(), tail_of(layout));
            let sources = sources.wrapping_sub(layout.key_words());
            let mut block = Block::new(layout, &mut back.arena, &scratch.places, 0);
            // SAFETY: copies of written values, of which only the words behind the key are read.
            unsafe { block.merge_rows(|k| sources.wrapping_add(k * tail), &aside.arena) };
            chains.retain_mut(|chain| {
                let older = back.link(chain.entry);
                back.set_link(chain.entry, chain.newer);
                back.set_front(chain.entry, 0);
                if older != 0 {
                    (chain.newer, chain.entry) = (chain.entry, older);
                    return true;
                }
                let done = Note { last: chain.last, entries: Entries::Front(chain.entry) };
                // SAFETY: a row of the live table.
                unsafe {
                    reset(chain.row, layout);
                    *chain.row.wrapping_add(*note) = done.word();
                }
                false
            });
        }
    }
}

/// Words of a row's values.
fn tail_of(layout: &RowLayout) -> usize {
    layout.row_words() - layout.key_words()
}

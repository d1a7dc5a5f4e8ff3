//! How a leader takes sealed rows in: by merging row by row or by adopting the rows where they are.

use std::ops::Range;

use crate::arena::{Arena, packed_len};
use crate::index::{Entrants, prefetch};
use crate::key::{Keys, VarKeys};
use crate::layout::RowLayout;
use crate::log::{BLOCK_ROWS, Chunk, ChunkPool, RowId};
use crate::logs::Logs;
use crate::scratch::Scratch;
use crate::segment::{ADOPT_ROWS_MIN, Segment, Sources};
use crate::table::Table;
use crate::value::Block;

impl Table {
    /// Takes a segment in, in the way that costs least, and gives what memory it can to the pool;
    /// true if some of it was adopted. That is worth it where nearly all keys are new, which the
    /// first chunk of a window is merged to find out: rows with known keys become holes.
    pub fn take_in(
        &mut self,
        segment: Segment,
        pool: &mut ChunkPool,
        scratch: &mut Scratch,
    ) -> bool {
        let adoptable = segment.rows >= ADOPT_ROWS_MIN && self.can_adopt(&segment);
        let Segment { chunks, arena, .. } = segment;
        let mut adopted = false;
        for chunk in chunks {
            if adoptable && self.merges_mostly_new() {
                self.adopt_chunk(chunk, scratch);
                adopted = true;
            } else {
                self.merge_chunk(&chunk, &arena, pool, scratch);
                pool.give(chunk);
            }
        }
        adopted
    }

    /// Merges a segment row by row (paper, section 7.2.2, step 4); returns how many keys were new.
    pub fn merge(
        &mut self,
        segment: &Segment,
        pool: &mut ChunkPool,
        scratch: &mut Scratch,
    ) -> usize {
        let before = self.keys();
        for chunk in &segment.chunks {
            self.merge_chunk(chunk, &segment.arena, pool, scratch);
        }
        self.keys() - before
    }

    fn merge_chunk(
        &mut self,
        chunk: &Chunk,
        arena: &Arena,
        pool: &mut ChunkPool,
        scratch: &mut Scratch,
    ) {
        let (before, mut rows_in) = (self.keys(), 0);
        for run in chunk.live_runs() {
            rows_in += run.len();
            let sources = Sources::new(chunk, run.start, &self.layout);
            self.merge_run(sources, run.len(), arena, pool, scratch);
        }
        self.note_merged(rows_in, self.keys() - before);
    }

    /// Merges `count` rows that follow each other.
    pub(crate) fn merge_run(
        &mut self,
        sources: Sources,
        count: usize,
        arena: &Arena,
        pool: &mut ChunkPool,
        scratch: &mut Scratch,
    ) {
        let layout = self.layout.clone();
        let width = layout.key_words();
        if self.is_direct() {
            // Keys that have slots are looked up by themselves.
            sources.gather_words(count, &mut scratch.words);
            scratch.hashes.clear();
        } else {
            sources.gather_keys(count, &layout, scratch);
        }
        let Scratch { places, hashes, words } = scratch;
        self.prefetch(&hashes[..hashes.len().min(BLOCK_ROWS)]);
        for block in blocks(count) {
            let rows = sources.from(block.start);
            let vars = SegmentVars { rows, arena, layout: &layout };
            let words = &words[block.start * width..block.end * width];
            let (hashes, ahead) = with_ahead(hashes, &block);
            self.find_or_append(&Keys { hashes, ahead, words, vars }, pool, places);
            // Finding has asked for the first line of each row: a row may stand in two.
            let last = layout.row_words() - 1;
            places.iter().for_each(|place| prefetch(place.wrapping_add(last)));
            let mut block = Block::new(&layout, &mut self.arena, places, 0);
            // SAFETY: the sources are rows of a segment, which has this layout and which nobody
            // changes; they do not overlap this table's rows.
            unsafe { block.merge_rows(|k| rows.place(k), arena) };
        }
    }

    /// Appends rows, whose keys are these, without looking any of them up.
    pub(crate) fn append_rows(
        &mut self,
        (hashes, words): (&[u64], &[u64]),
        rows: Sources,
        arena: &Arena,
        pool: &mut ChunkPool,
        scratch: &mut Scratch,
    ) {
        let layout = self.layout.clone();
        let vars = SegmentVars { rows, arena, layout: &layout };
        let mut block = self.append(&Keys { hashes, ahead: &[], words, vars }, pool, scratch);
        // SAFETY: as in `merge_run`.
        unsafe { block.merge_rows(|k| rows.place(k), arena) };
    }

    /// Whether a segment's rows may be indexed where they stand: none refers to an arena or is a
    /// hole.
    pub(crate) fn can_adopt(&self, segment: &Segment) -> bool {
        !self.layout.uses_arena() && !segment.chunks.iter().any(Chunk::has_dead)
    }

    /// Takes the segment's memory over and indexes its rows where they stand; only rows whose key
    /// is already known are merged, and left behind as holes (paper, section 7.2.1: one index over
    /// several logs). Refused, giving the segment back, when rows refer to an arena or have holes.
    pub fn adopt(&mut self, segment: Segment, scratch: &mut Scratch) -> Result<usize, Segment> {
        if !self.can_adopt(&segment) {
            return Err(segment);
        }
        let before = self.keys();
        for chunk in segment.chunks {
            self.adopt_chunk(chunk, scratch);
        }
        Ok(self.keys() - before)
    }

    pub(crate) fn adopt_chunk(&mut self, chunk: Chunk, scratch: &mut Scratch) {
        let (before, rows, first) = (self.keys(), chunk.rows(), self.log.adopt(chunk));
        let sources = Sources::new(self.log.chunk(first).0, 0, &self.layout);
        sources.gather_keys(rows, &self.layout, scratch);
        let Scratch { places, hashes, words } = scratch;
        self.index.prefetch(&hashes[..rows.min(BLOCK_ROWS)]);
        for block in blocks(rows) {
            let keys =
                (with_ahead(hashes, &block), &words[block.start * self.layout.key_words()..]);
            self.index_adopted(first, block, keys, sources, places);
        }
        self.note_merged(rows, self.keys() - before);
    }

    /// Enters a block of rows of the chunk that begins at row `first`, and whose `sources` begin
    /// there, into the index.
    fn index_adopted(
        &mut self,
        first: RowId,
        block: Range<usize>,
        ((hashes, ahead), words): ((&[u64], &[u64]), &[u64]),
        sources: Sources,
        places: &mut Vec<*mut u64>,
    ) {
        let Table { layout, index, log, others, arena, .. } = self;
        let logs = Logs { own: log, others: others.as_deref() };
        let base = logs.base();
        let one_word = layout.has_word_keys().then(|| &words[..block.len()]);
        index.reserve(block.len(), one_word, logs);
        places.clear();
        let first_id = first + block.start as u32;
        let rows_in = Adopted { words, layout, logs, first_id };
        let mut holes = Vec::new();
        let count = block.len();
        let adopting = Adopting { rows: rows_in, count, places, known: &mut holes };
        match one_word.filter(|_| index.is_direct()) {
            Some(words) => index.enter_slots(words, base, adopting),
            None => index.enter(hashes, ahead, base, adopting),
        }
        // Those whose hash was like another's but whose key is not get their own entry after all.
        let mut at = 0;
        while at < holes.len() {
            let i = holes[at];
            if rows_in.has_key(i, places[at]) {
                at += 1;
                continue;
            }
            let mut known = None;
            let one = AdoptingOne { rows: rows_in, i, known: &mut known };
            index.enter(&hashes[i..=i], &[], base, one);
            match known {
                Some(place) => places[at] = place,
                None => {
                    holes.remove(at);
                    places.remove(at);
                }
            }
        }
        let rows = sources.from(block.start);
        let mut values = Block::new(layout, arena, places, 0);
        // SAFETY: sources and places are rows of this layout, and different rows: a source is not
        // indexed. Without an arena in use its contents do not matter.
        unsafe { values.merge_rows(|k| rows.place(holes[k]), &Arena::default()) };
        for hole in holes {
            log.chunk_mut(first).0.kill(block.start + hole);
        }
    }
}

/// Blocks of so many rows.
fn blocks(rows: usize) -> impl Iterator<Item = Range<usize>> {
    (0..rows).step_by(BLOCK_ROWS).map(move |start| start..(start + BLOCK_ROWS).min(rows))
}

/// The hashes of a block of rows, and those of the next; none, if there are none.
fn with_ahead<'h>(hashes: &'h [u64], block: &Range<usize>) -> (&'h [u64], &'h [u64]) {
    if hashes.is_empty() {
        return (&[], &[]);
    }
    let next_end = (block.end + BLOCK_ROWS).min(hashes.len());
    (&hashes[block.clone()], &hashes[block.end..next_end])
}

/// Rows that stand in the log from `first_id` on, with their keys' words.
#[derive(Clone, Copy)]
struct Adopted<'a> {
    words: &'a [u64],
    layout: &'a RowLayout,
    logs: Logs<'a>,
    first_id: RowId,
}

impl Adopted<'_> {
    /// Whether the row at `place` has the key of the `i`-th of these rows.
    fn has_key(&self, i: usize, place: *const u64) -> bool {
        let width = self.layout.key_words();
        // SAFETY: `place` is a row of one of the logs, which has at least its key's words.
        let stored = unsafe { std::slice::from_raw_parts(place, width) };
        stored == &self.words[i * width..][..width]
    }
}

/// Enters them. Those whose hash is like that of a row that is known already are listed with that
/// row's place; the keys are compared when its line has arrived.
struct Adopting<'a> {
    rows: Adopted<'a>,
    count: usize,
    places: &'a mut Vec<*mut u64>,
    known: &'a mut Vec<usize>,
}

impl Entrants for Adopting<'_> {
    const FAR: bool = true;

    #[inline(always)]
    fn meets(&mut self, i: usize, id: RowId) -> bool {
        let place = self.rows.logs.row(id);
        prefetch(place);
        self.places.push(place);
        self.known.push(i);
        true
    }

    #[inline(always)]
    fn enters(&mut self, i: usize) -> RowId {
        self.rows.first_id + i as u32
    }

    fn done(self) -> usize {
        self.count - self.known.len()
    }
}

/// Enters one of them, its key compared at once.
struct AdoptingOne<'a> {
    rows: Adopted<'a>,
    i: usize,
    /// The place of the row that has its key already.
    known: &'a mut Option<*mut u64>,
}

impl Entrants for AdoptingOne<'_> {
    const FAR: bool = false;

    fn meets(&mut self, _: usize, id: RowId) -> bool {
        let place = self.rows.logs.row(id);
        let met = self.rows.has_key(self.i, place);
        *self.known = met.then_some(place);
        met
    }

    fn enters(&mut self, _: usize) -> RowId {
        self.rows.first_id + self.i as u32
    }

    fn done(self) -> usize {
        usize::from(self.known.is_none())
    }
}

struct SegmentVars<'a> {
    rows: Sources,
    arena: &'a Arena,
    layout: &'a RowLayout,
}

impl VarKeys for SegmentVars<'_> {
    fn bytes(&self, row: usize, var: usize) -> &[u8] {
        // SAFETY: the rows are written rows of the segment, and var words lie within them.
        let reference = unsafe { *self.rows.place(row).add(self.layout.var_words()[var]) };
        if packed_len(reference) == 0 { &[] } else { self.arena.bytes(reference) }
    }
}

//! Separating the rows that a joint table holds for several leaders, by leader, when they are
//! sealed.

use std::sync::Arc;

use crate::memory::arena::Arena;
use crate::memory::log::{BLOCK_ROWS, CHUNK_ROWS, ChunkPool, Cursor, Log};
use crate::memory::scratch::Scratch;
use crate::table::keyed::{OTHER_IDS_MIN, Table};
use crate::table::layout::RowLayout;
use crate::table::partition::Leaders;
use crate::table::segment::{Segment, Sources};

impl Table {
    /// Closes what is held for other leaders into segments, if there is anything. Where there is
    /// one other leader and no row refers to an arena they are handed out as they stand; otherwise
    /// they are copied, parted by leader. What they referred to here goes at once, or when it has
    /// become more.
    pub fn seal_others(
        &mut self,
        leaders: &Leaders,
        pool: &mut ChunkPool,
        scratch: &mut Scratch,
    ) -> Vec<(usize, Segment)> {
        let rows = self.other_rows();
        let Some(others) = self.others.as_mut().filter(|_| rows > 0) else { return Vec::new() };
        let sealed = Segment { chunks: others.seal(), arena: Arena::default(), rows };
        let ids_left = others.ids_left();
        self.keys_max = self.keys_max.max(self.keys());
        let own = self.keys() - rows;
        if self.index.is_direct() {
            self.index.forget(rows);
        } else {
            self.index.keep_from(self.log.base(), own);
        }
        let refers = self.refers();
        if ids_left < OTHER_IDS_MIN {
            // Numbers start over when it is joint the next time.
            self.others = None;
        }
        if leaders.count() == 2 && !refers {
            let hash = sealed.first_hash(&self.layout, scratch);
            return vec![(leaders.of(hash), sealed)];
        }
        let parts = match refers {
            true => part(&sealed, &self.arena, &self.layout, leaders, pool, scratch),
            false => part_plain(&sealed, &self.layout, leaders, pool, scratch),
        };
        sealed.recycle(pool);
        if refers {
            self.wasted_rows += rows;
            self.tidy();
        }
        parts
    }
}

/// A leader's share of a block of rows.
#[derive(Default)]
struct Part {
    rows: Vec<u64>,
    hashes: Vec<u64>,
    words: Vec<u64>,
}

/// Copies the rows of a segment, which refer to `arena`, into one for each leader.
fn part(
    segment: &Segment,
    arena: &Arena,
    layout: &Arc<RowLayout>,
    leaders: &Leaders,
    pool: &mut ChunkPool,
    scratch: &mut Scratch,
) -> Vec<(usize, Segment)> {
    let (row_words, key_words) = (layout.row_words(), layout.key_words());
    let parts = (0..leaders.count()).map(|_| (Part::default(), Table::new(layout.clone())));
    let mut parts: Vec<_> = parts.collect();
    for run in segment.runs(layout, BLOCK_ROWS) {
        Sources::of(run, row_words).gather_keys(run.len() / row_words, layout, scratch);
        for (i, (row, hash)) in run.chunks_exact(row_words).zip(&scratch.hashes).enumerate() {
            let (part, _) = &mut parts[leaders.of(*hash)];
            part.rows.extend_from_slice(row);
            part.hashes.push(*hash);
            part.words.extend_from_slice(&scratch.words[i * key_words..][..key_words]);
        }
        for (Part { rows, hashes, words }, table) in &mut parts {
            let sources = Sources::of(rows, row_words);
            table.append_rows((hashes, words), sources, arena, pool, scratch);
            [rows, hashes, words].into_iter().for_each(Vec::clear);
        }
    }
    let parts = parts.iter_mut().enumerate().filter(|(_, (_, table))| table.rows() > 0);
    parts.map(|(leader, (_, table))| (leader, table.seal())).collect()
}

/// As [`part`], where no row refers to an arena: rows are copied as they stand.
fn part_plain(
    segment: &Segment,
    layout: &RowLayout,
    leaders: &Leaders,
    pool: &mut ChunkPool,
    scratch: &mut Scratch,
) -> Vec<(usize, Segment)> {
    let row_words = layout.row_words();
    let mut logs: Vec<Log> = (0..leaders.count()).map(|_| Log::new(row_words)).collect();
    let mut counts = vec![0; leaders.count()];
    for run in segment.runs(layout, CHUNK_ROWS) {
        Sources::of(run, row_words).gather_keys(run.len() / row_words, layout, scratch);
        scratch.hashes.iter().for_each(|hash| counts[leaders.of(*hash)] += 1);
        for (log, count) in logs.iter_mut().zip(&mut counts) {
            log.reserve(std::mem::take(count), pool);
        }
        let mut cursors: Vec<Cursor<'_>> = logs.iter().map(Log::cursor).collect();
        let hashes = &scratch.hashes;
        match row_words {
            2 => copy_rows::<2>(run, hashes, leaders, &mut cursors),
            3 => copy_rows::<3>(run, hashes, leaders, &mut cursors),
            4 => copy_rows::<4>(run, hashes, leaders, &mut cursors),
            5 => copy_rows::<5>(run, hashes, leaders, &mut cursors),
            6 => copy_rows::<6>(run, hashes, leaders, &mut cursors),
            _ => {
                for (row, hash) in run.chunks_exact(row_words).zip(hashes) {
                    // SAFETY: room has been reserved for as many rows as each leader gets, and
                    // each is written whole.
                    unsafe {
                        let (_, place) = cursors[leaders.of(*hash)].append(row_words);
                        place.copy_from_nonoverlapping(row.as_ptr(), row_words);
                    }
                }
            }
        }
        let ends: Vec<_> = cursors.iter().map(Cursor::end).collect();
        logs.iter_mut().zip(ends).for_each(|(log, end)| log.commit(end));
    }
    let full = logs.iter_mut().enumerate().filter(|(_, log)| log.len() > 0);
    let sealed = |log: &mut Log| {
        let rows = log.len();
        Segment { chunks: log.seal(), arena: Arena::default(), rows }
    };
    full.map(|(leader, log)| (leader, sealed(log))).collect()
}

/// Copies rows of `N` words to where their leaders' cursors are, for which there must be room.
fn copy_rows<const N: usize>(
    run: &[u64],
    hashes: &[u64],
    leaders: &Leaders,
    cursors: &mut [Cursor<'_>],
) {
    for (row, hash) in run.as_chunks::<N>().0.iter().zip(hashes) {
        // SAFETY: as in `part_plain`.
        unsafe {
            let (_, place) = cursors[leaders.of(*hash)].append(N);
            place.cast::<[u64; N]>().write(*row);
        }
    }
}

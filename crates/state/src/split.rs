//! Separating the rows that a joint table holds for several leaders, by leader, when they are
//! sealed.

use std::sync::Arc;

use crate::arena::Arena;
use crate::layout::RowLayout;
use crate::log::BLOCK_ROWS;
use crate::log::ChunkPool;
use crate::partition::Leaders;
use crate::segment::{Segment, Sources};
use crate::table::{Scratch, Table};

/// What one leader gets of a block of rows.
#[derive(Default)]
struct Part {
    rows: Vec<u64>,
    hashes: Vec<u64>,
    words: Vec<u64>,
}

/// Copies the rows of a segment, which refer to `arena`, into one for each leader.
pub(crate) fn part(
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

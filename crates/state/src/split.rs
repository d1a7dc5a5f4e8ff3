//! Rows that a joint table holds for several leaders, parted when they are sealed.

use crate::arena::Arena;
use crate::layout::RowLayout;
use crate::log::{CHUNK_ROWS, ChunkPool};
use crate::partition::Leaders;
use crate::segment::{Segment, Sources};
use crate::table::{Scratch, Table};

/// Copies the rows of a segment, which refer to `arena`, into one for each leader.
pub(crate) fn part(
    segment: &Segment,
    arena: &Arena,
    layout: &std::sync::Arc<RowLayout>,
    leaders: &Leaders,
    pool: &mut ChunkPool,
    scratch: &mut Scratch,
) -> Vec<(usize, Segment)> {
    let row_words = layout.row_words();
    let mut parts: Vec<_> = (0..leaders.count()).map(|_| Table::new(layout.clone())).collect();
    let mut words: Vec<Vec<u64>> = vec![Vec::new(); leaders.count()];
    for run in segment.runs(layout, CHUNK_ROWS) {
        let rows = run.len() / row_words;
        Sources::of(run, row_words).gather_keys(rows, layout, scratch);
        for (row, hash) in run.chunks_exact(row_words).zip(&scratch.hashes) {
            words[leaders.of(*hash)].extend_from_slice(row);
        }
        for (part, words) in parts.iter_mut().zip(&mut words) {
            let rows = words.len() / row_words;
            part.append_run(Sources::of(words, row_words), rows, arena, pool, scratch);
            words.clear();
        }
    }
    let parts = parts.iter_mut().enumerate().filter(|(_, part)| part.rows() > 0);
    parts.map(|(leader, part)| (leader, part.seal())).collect()
}

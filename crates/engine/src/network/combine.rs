//! Combining: the workers of a process merge what they hold for the same leader in another process
//! before it is shipped. So one delta per process and leader crosses the network.
//!
//! This saves bytes where the workers have met the same keys, and costs a look-up for each row. So
//! it is done as long as it is seen to save a quarter of the rows. Otherwise it is tried again from
//! time to time.

use std::sync::Arc;

use millstream_state::{ChunkPool, Heap, RowLayout, Scratch, Segment, Table};

use millstream_operators::windowing::SliceId;

/// Merging pays if no more than this part of the rows is left.
const LEFT_MAX: f64 = 0.75;
/// Deltas left alone after a failed try.
const UNTRIED: u32 = 15;
/// Idle chunks kept for the next delta.
const POOL_BYTES: usize = 4 << 20;

pub(crate) struct Combiner {
    table: Table,
    pool: ChunkPool,
    scratch: Scratch,
    /// Deltas that are left alone before the next try.
    untried: u32,
    /// Rows of which copies were merged away.
    pub(crate) saved_rows: u64,
}

impl Combiner {
    /// One of so many that share the heap's memory.
    pub(crate) fn new(layout: Arc<RowLayout>, heap: Arc<Heap>, of: usize) -> Combiner {
        let pool_bytes = POOL_BYTES.min(heap.bytes() / 64 / of.max(1));
        Combiner {
            pool: ChunkPool::new(layout.row_words(), pool_bytes, Some(heap)),
            table: Table::new(layout),
            scratch: Scratch::default(),
            untried: 0,
            saved_rows: 0,
        }
    }

    /// Whether waiting for the rows of other workers pays.
    pub(crate) fn pays(&self) -> bool {
        self.untried == 0
    }

    /// The segments of a delta, those of one slice merged if that pays.
    pub(crate) fn combine(
        &mut self,
        mut segments: Vec<(SliceId, Segment)>,
    ) -> Vec<(SliceId, Segment)> {
        segments.sort_by_key(|(slice, _)| *slice);
        if self.untried > 0 {
            self.untried -= 1;
            return segments;
        }
        let several = segments.windows(2).any(|pair| pair[0].0 == pair[1].0);
        if !several {
            return segments;
        }
        let (mut before, mut after) = (0, 0);
        let mut combined: Vec<(SliceId, Segment)> = Vec::with_capacity(segments.len());
        let mut rest = segments.into_iter().peekable();
        while let Some((slice, first)) = rest.next() {
            if rest.peek().is_none_or(|(next, _)| *next != slice) {
                combined.push((slice, first));
                continue;
            }
            before += self.merge(first);
            while let Some((_, segment)) = rest.next_if(|(next, _)| *next == slice) {
                before += self.merge(segment);
            }
            let all = self.table.seal();
            after += all.rows();
            combined.push((slice, all));
            self.table.clear(&mut self.pool);
        }
        self.saved_rows += (before - after) as u64;
        if after as f64 > LEFT_MAX * before as f64 {
            self.untried = UNTRIED;
        }
        combined
    }

    /// Merges a segment; returns how many rows it had.
    fn merge(&mut self, segment: Segment) -> usize {
        self.table.merge(&segment, &mut self.pool, &mut self.scratch);
        let rows = segment.rows();
        segment.recycle(&mut self.pool);
        rows
    }
}

#[cfg(test)]
pub(super) mod tests {
    use millstream_state::{Idle, Keys, NoVarKeys, ValueKind, hash_words};

    use super::*;

    /// A row for each of these keys.
    pub(crate) fn segment(layout: &Arc<RowLayout>, keys: impl IntoIterator<Item = u64>) -> Segment {
        let (mut pool, mut scratch) =
            (ChunkPool::new(layout.row_words(), 0, None), Scratch::default());
        let mut table = Table::new(layout.clone());
        for words in keys.into_iter().collect::<Vec<_>>().chunks(256) {
            let hashes: Vec<u64> = words.iter().map(|w| hash_words(&[*w])).collect();
            let keys = Keys { hashes: &hashes, ahead: &[], words, vars: NoVarKeys };
            table.update(&keys, &mut pool, &mut scratch).count(layout.values()[0], None);
        }
        table.seal()
    }

    fn rows(segments: &[(SliceId, Segment)]) -> Vec<(u64, usize)> {
        segments.iter().map(|(slice, segment)| (slice.word(), segment.rows())).collect()
    }

    /// Half of the second worker's keys are the first's, between others: what is left stands close
    /// together.
    #[test]
    fn what_is_merged_has_no_holes() {
        const ROWS: usize = 30_000;
        let layout = Arc::new(RowLayout::new(1, vec![], &[(ValueKind::Count, false)]));
        let heap = Heap::map(64 << 20, Idle::GivenBack).unwrap();
        let mut combiner = Combiner::new(layout.clone(), heap, 1);
        let of = |step: usize| {
            let keys = (0..ROWS as u64 * step as u64).step_by(step);
            (SliceId::from_word(7), segment(&layout, keys))
        };
        let merged = combiner.combine(vec![of(2), of(1)]);
        let [(_, all)] = &merged[..] else { panic!("{} segments", merged.len()) };
        assert_eq!(all.rows(), ROWS + ROWS / 2);
        // A run for each chunk.
        assert_eq!(all.runs(&layout, 4096).count(), all.rows().div_ceil(4096));
    }

    #[test]
    fn copies_of_a_key_become_one_as_long_as_that_pays() {
        let layout = Arc::new(RowLayout::new(1, vec![], &[(ValueKind::Count, false)]));
        let mut combiner =
            Combiner::new(layout.clone(), Heap::map(4 << 20, Idle::GivenBack).unwrap(), 1);
        let all = |second: std::ops::Range<u64>| {
            vec![
                (SliceId::from_word(20), segment(&layout, 0..10)),
                (SliceId::from_word(10), segment(&layout, 0..1000)),
                (SliceId::from_word(10), segment(&layout, second)),
            ]
        };
        assert_eq!(rows(&combiner.combine(all(500..1500))), [(10, 1500), (20, 10)]);
        assert_eq!(combiner.saved_rows, 500);
        assert!(combiner.pays());
        // A merge keeps the sum of counts.
        let merged = combiner.combine(all(0..1000));
        let counts = merged[0].1.runs(&layout, 4096).flat_map(|run| run.chunks(2)).map(|r| r[1]);
        assert_eq!(counts.sum::<u64>(), 2000);
        // Keys of a single worker.
        assert_eq!(rows(&combiner.combine(all(1000..2000))), [(10, 2000), (20, 10)]);
        assert!(!combiner.pays());
        // Deltas are counted, whether or not several workers have rows of a slice.
        for number in 0..UNTRIED {
            let of_one = vec![(SliceId::from_word(10), segment(&layout, 0..10))];
            let several = number % 2 == 0;
            let left = rows(&combiner.combine(if several { all(0..1000) } else { of_one }));
            let right = [(10, 1000), (10, 1000), (20, 10)];
            assert_eq!(left, if several { right.to_vec() } else { vec![(10, 10)] });
        }
        assert_eq!(rows(&combiner.combine(all(0..1000))), [(10, 1000), (20, 10)]);
    }
}

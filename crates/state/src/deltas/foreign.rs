//! Rows of state on their way between processes: taken out of a sealed segment as they are, and
//! merged into the leader's table from the memory in which they arrived (paper, section 7.2.2,
//! steps 3 and 4).

use crate::memory::arena::{Arena, packed_len};
use crate::memory::log::ChunkPool;
use crate::memory::scratch::Scratch;
use crate::table::keyed::Table;
use crate::table::layout::RowLayout;
use crate::table::rows::RowsRef;
use crate::table::segment::{Segment, Sources};
use crate::values::float_sum;
use crate::values::kind::{NO_BYTES, ValueKind};
use crate::{values::blobs, values::chain};

/// Error for bytes from another process that are not rows of this layout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Malformed {
    /// The fault.
    pub what: &'static str,
}

impl Segment {
    /// Its rows as they stand, in runs of at most `rows_max` rows, in words.
    pub fn runs<'s>(
        &'s self,
        layout: &'s RowLayout,
        rows_max: usize,
    ) -> impl Iterator<Item = &'s [u64]> + 's {
        let words = rows_max.max(1) * layout.row_words().max(1);
        let rows = |chunk| RowsRef::of_chunk(chunk, &self.arena, layout).as_words();
        self.chunks.iter().flat_map(move |chunk| rows(chunk).chunks(words))
    }

    /// Arena that the rows refer to.
    pub fn arena(&self) -> &Arena {
        &self.arena
    }
}

impl RowLayout {
    /// Hash of the first row's key; `None` if there is no whole row. Does not follow references
    /// into the arena.
    pub fn first_hash(&self, words: &[u64], scratch: &mut Scratch) -> Option<u64> {
        (words.len() >= self.row_words()).then(|| {
            Sources::of(words, self.row_words()).gather_keys(1, self, scratch);
            scratch.hashes[0]
        })
    }

    /// Checks that `words`, which a peer may have filled with anything, are whole rows of this
    /// layout with references into `arena` only: then merging is safe.
    fn check(&self, words: &[u64], arena: &Arena) -> Result<(), Malformed> {
        if !words.len().is_multiple_of(self.row_words()) {
            return Err(Malformed { what: "a part of a row" });
        }
        if !self.uses_arena() {
            return Ok(());
        }
        let inside = |reference: u64| arena.holds(reference);
        for row in words.chunks_exact(self.row_words()) {
            let keys = self.var_words().iter().map(|word| row[*word]);
            if !keys.clone().all(|reference| packed_len(reference) == 0 || inside(reference)) {
                return Err(Malformed { what: "a key that is not there" });
            }
            for slot in self.values() {
                let fits = match slot.kind {
                    ValueKind::SumFloat => float_sum::is_sum(
                        [row[slot.word], row[slot.word + 1], row[slot.word + 2]],
                        arena,
                    ),
                    ValueKind::MinBytes | ValueKind::MaxBytes => {
                        row[slot.word] == NO_BYTES || inside(row[slot.word])
                    }
                    ValueKind::Chain => chain::is_chain(row[slot.word], arena),
                    kind if kind.is_blob() => blobs::is_blob(kind, row[slot.word], arena),
                    _ => true,
                };
                if !fits {
                    return Err(Malformed { what: "a value that is not there" });
                }
            }
        }
        Ok(())
    }
}

impl Table {
    /// Merges rows of another process's segment from the place of their arrival; `arena` is the
    /// target of their references. The rows are checked first, so that malformed rows change
    /// nothing.
    pub fn merge_words(
        &mut self,
        words: &[u64],
        arena: &Arena,
        pool: &mut ChunkPool,
        scratch: &mut Scratch,
    ) -> Result<(), Malformed> {
        self.layout.check(words, arena)?;
        let row_words = self.layout.row_words();
        let before = self.keys();
        self.merge_run(
            Sources::of(words, row_words),
            words.len() / row_words,
            arena,
            pool,
            scratch,
        );
        self.live_rows += self.keys() - before;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::memory::hash::hash_words;
    use crate::table::key::{Keys, NoVarKeys, VarKeys};

    struct Names<'a>(&'a [Vec<u8>]);

    impl VarKeys for Names<'_> {
        fn bytes(&self, row: usize, _: usize) -> &[u8] {
            &self.0[row]
        }
    }

    /// Some names with sums that go wide, and least names.
    fn named(names: &[Vec<u8>]) -> (Arc<RowLayout>, Table) {
        let values = [(ValueKind::SumFloat, false), (ValueKind::MinBytes, true)];
        let layout = Arc::new(RowLayout::new(2, vec![1], &values));
        let (mut pool, mut scratch) =
            (ChunkPool::new(layout.row_words(), 0, None), Scratch::default());
        let mut table = Table::new(layout.clone());
        for (i, name) in names.iter().enumerate() {
            let words = [crate::memory::hash::hash_bytes(name), (name.len() as u64) << 32];
            let vars = Names(std::slice::from_ref(name));
            let keys = Keys { hashes: &[hash_words(&words)], ahead: &[], words: &words, vars };
            let mut block = table.update(&keys, &mut pool, &mut scratch);
            let number = if i % 3 == 0 { 1e300 } else { 1e-300 };
            block.sum_float(layout.values()[0], None, None, &[number]);
            if i % 2 == 0 {
                block.extreme_bytes(layout.values()[1], None, |_| name);
            }
        }
        (layout, table)
    }

    fn rows(table: &Table) -> Vec<(Vec<u8>, f64, Option<Vec<u8>>)> {
        let mut all = Vec::new();
        for block in 0..table.scan_blocks() {
            let rows = table.scan(block);
            for row in 0..rows.len() {
                let sum = [0, 1, 2].map(|i| rows.word(row, rows.layout().values()[0].word + i));
                let least = rows.word(row, rows.layout().values()[1].word);
                all.push((
                    rows.bytes(rows.word(row, 1)).to_vec(),
                    float_sum::finish(sum, rows.arena()),
                    crate::table::value::read_bytes(least, rows.arena()).map(<[u8]>::to_vec),
                ));
            }
        }
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    }

    #[test]
    fn rows_in_pieces_are_merged_like_the_segment() {
        let names: Vec<Vec<u8>> =
            (0..10_000).map(|i| format!("name-{}", i % 4_321).into_bytes()).collect();
        let (layout, mut helper) = named(&names);
        let (_, mut leader) = named(&names[..100]);
        let (_, mut other) = named(&names[..100]);
        let (mut pool, mut scratch) =
            (ChunkPool::new(layout.row_words(), 0, None), Scratch::default());
        let segment = helper.seal();
        other.merge(&segment, &mut pool, &mut scratch);
        let copy = Arena::from_words(segment.arena().all_words().to_vec());
        let mut count = 0;
        for run in segment.runs(&layout, 100) {
            let words = run.to_vec();
            leader.merge_words(&words, &copy, &mut pool, &mut scratch).unwrap();
            count += words.len() / layout.row_words();
        }
        assert_eq!(count, segment.rows());
        assert_eq!(rows(&leader), rows(&other));
        assert_eq!(rows(&leader).len(), 4_321);
    }

    /// Damaged rows are refused or merged; nothing is read outside of the arena.
    #[test]
    fn damaged_rows_do_no_harm() {
        let names: Vec<Vec<u8>> = (0..50).map(|i| format!("n{i}").into_bytes()).collect();
        let (layout, mut helper) = named(&names);
        let segment = helper.seal();
        let words = segment.runs(&layout, 50).next().unwrap().to_vec();
        let arena = Arena::from_words(segment.arena().all_words().to_vec());
        let (mut pool, mut scratch) =
            (ChunkPool::new(layout.row_words(), 0, None), Scratch::default());
        let (mut refused, mut state) = (0, 7_u64);
        for _ in 0..20_000 {
            let mut damaged = words.clone();
            for _ in 0..2 {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let at = (state >> 33) as usize % damaged.len();
                damaged[at] ^= 1 << (state >> 20 & 63);
            }
            let mut leader = Table::new(layout.clone());
            let merged = leader.merge_words(&damaged, &arena, &mut pool, &mut scratch);
            refused += u32::from(merged.is_err());
            let again = leader.merge_words(&words, &arena, &mut pool, &mut scratch);
            assert!(again.is_ok(), "what is not damaged is still merged");
            rows(&leader);
        }
        assert!(refused > 1_000, "{refused} of 20,000 refused");
        let part = Table::new(layout).merge_words(&words[1..], &arena, &mut pool, &mut scratch);
        assert_eq!(part, Err(Malformed { what: "a part of a row" }));
    }

    #[test]
    fn keys_of_one_word_need_no_arena() {
        let layout = Arc::new(RowLayout::new(1, vec![], &[(ValueKind::Count, false)]));
        let (mut pool, mut scratch) = (ChunkPool::new(2, 0, None), Scratch::default());
        let mut table = Table::new(layout.clone());
        for words in (0..1000_u64).collect::<Vec<_>>().chunks(250) {
            let hashes: Vec<u64> = words.iter().map(|w| hash_words(&[*w])).collect();
            let keys = Keys { hashes: &hashes, ahead: &[], words, vars: NoVarKeys };
            table.update(&keys, &mut pool, &mut scratch).count(layout.values()[0], None);
        }
        let segment = table.seal();
        let mut leader = Table::new(layout.clone());
        for _ in 0..2 {
            for run in segment.runs(&layout, 300) {
                leader.merge_words(run, &Arena::default(), &mut pool, &mut scratch).unwrap();
            }
        }
        let rows = leader.scan(0);
        assert_eq!((rows.len(), rows.words(1).sum::<u64>()), (1000, 2000));
    }
}

//! Joint tables: where keys repeat often, a worker keeps all rows that it has of a window in one
//! table, whoever leads their keys. Rows of other leaders are beside its own, with one index over
//! both ([`millstream_state::Table::update_joint`]).
//!
//! Without a joint table, every record's leader must be found before its key is looked up in one of
//! several tables. That takes a tenth to a third of all the work. Where keys rarely repeat, it is
//! better to pass rows through, which fragments do. This module decides between the two after each
//! epoch, from what the epoch has shown, as fragments decide on their mode
//! ([`millstream_state::Mode`]). The first epoch uses joint tables.

use millstream_state::{Costs, Fragment, Table};

/// Decisions are taken on at least this many rows.
const DECIDE_ROWS: usize = 4096;
/// Tables become joint where at most one row in so many is distinct, and stay so up to twice that,
/// or as long as rows are not better passed through.
const REPEATS: usize = 4;
/// A table of more keys does not lie in a near cache: finding it costs more than finding the
/// leader.
const KEYS_MAX: usize = 1 << 16;
/// Nor does one whose rows refer to more, as to long texts. Besides, sealing others' rows copies
/// what either refer to.
const ARENA_BYTES_MAX: usize = 4 << 20;

/// Whether a worker's tables are joint.
#[derive(Debug)]
pub(crate) struct Joining {
    on: bool,
    may_change: bool,
    leaders: usize,
    /// Rows of epochs since the last decision, and the number of distinct rows: small epochs alone
    /// do not decide.
    seen: usize,
    distinct: usize,
    /// Rows that the last decision was taken on. The end of a window may come after a few more, of
    /// which many are distinct, and says little.
    decided_on: usize,
}

impl Joining {
    /// With a single leader there is nobody to hold rows for.
    pub(crate) fn new(allowed: bool, leaders: usize) -> Joining {
        let may_change = allowed && leaders > 1;
        Joining { on: may_change, may_change, leaders, seen: 0, distinct: 0, decided_on: 0 }
    }

    /// Whether tables that are small enough are joint.
    pub(crate) fn is_on(&self) -> bool {
        self.on
    }

    /// Whether a table is to be joint for the next `rows` rows.
    pub(crate) fn joins(&self, table: &Table, rows: usize) -> bool {
        self.on && rows <= KEYS_MAX && are_few(table.keys_max(), table)
    }

    /// Takes note that a joint table has taken rows in. False if it has become too large: then it
    /// is better sealed before it has grown farther.
    pub(crate) fn note(&mut self, table: &Table) -> bool {
        let small = are_few(table.keys_max(), table);
        if !small {
            self.turn(false);
        }
        small
    }

    /// Decides at the end of an epoch in which a joint table has `seen` so many rows; its rows for
    /// other leaders are about to be sealed. True if rows are better passed through.
    pub(crate) fn decide(&mut self, table: &Table, seen: usize, costs: &Costs) -> bool {
        self.seen += seen;
        self.distinct += self.distinct_of(table);
        if self.seen < DECIDE_ROWS.max(self.decided_on / 2) {
            return false;
        }
        self.decided_on = self.seen;
        let passes = self.on && costs.pass(self.seen, self.distinct);
        self.turn(self.on && !passes && self.distinct * REPEATS / 2 <= self.seen);
        passes
    }

    /// Estimated number of distinct rows of an epoch: the table's own rows may be older, but its
    /// rows for other leaders are of the epoch.
    pub(crate) fn distinct_of(&self, table: &Table) -> usize {
        table.other_rows() * self.leaders / (self.leaders - 1).max(1)
    }

    fn turn(&mut self, on: bool) {
        self.on = on;
        (self.seen, self.distinct) = (0, 0);
    }

    /// Looks at what an epoch has brought to a slice whose table is not joint: the fragments that
    /// are about to be sealed, beside that table.
    pub(crate) fn consider<'f>(
        &mut self,
        fragments: impl Iterator<Item = &'f Fragment>,
        table: &Table,
    ) {
        if self.on || !self.may_change {
            return;
        }
        let looked_up = fragments.map(Fragment::looked_up);
        let Some((seen, distinct)) =
            looked_up.reduce(|a, b| a.zip(b).map(|((s, d), (t, e))| (s + t, d + e))).flatten()
        else {
            return;
        };
        let few = are_few(2 * (table.rows() + distinct), table);
        self.turn(seen >= DECIDE_ROWS && distinct * REPEATS <= seen && few);
    }

    /// Whether tables may be joint.
    pub(crate) fn may_change(&self) -> bool {
        self.may_change
    }

    /// Tables are joint from now on, or not, if they may be.
    pub(crate) fn force(&mut self, on: bool) {
        self.turn(on && self.may_change);
    }
}

/// Whether so many keys, with rows like those of a table, are few enough for a joint one.
fn are_few(keys: usize, table: &Table) -> bool {
    keys <= KEYS_MAX && keys * table.arena_bytes_of_row() <= ARENA_BYTES_MAX
}

#[cfg(test)]
mod tests {
    use std::mem::take;
    use std::sync::Arc;

    use millstream_state::{
        BLOCK_ROWS, ChunkPool, Keys, Leaders, Mode, NoVarKeys, RowLayout, Scratch, ValueKind,
        hash_word,
    };

    use super::*;

    struct Worker {
        leaders: Leaders,
        layout: Arc<RowLayout>,
        table: Table,
        seen: usize,
        joining: Joining,
        /// Rows are better passed through, as an epoch has shown.
        passes: bool,
        pool: ChunkPool,
        scratch: Scratch,
    }

    impl Worker {
        fn new() -> Worker {
            let layout = Arc::new(RowLayout::new(1, vec![], &[(ValueKind::Count, false)]));
            Worker {
                leaders: Leaders::even(3),
                table: Table::new(layout.clone()),
                seen: 0,
                joining: Joining::new(true, 3),
                passes: false,
                pool: ChunkPool::new(layout.row_words(), 1 << 20, None),
                scratch: Scratch::default(),
                layout,
            }
        }

        /// Takes keys into the joint table; false if it is not to be joint any more.
        fn take(&mut self, keys: impl Iterator<Item = u64>) -> bool {
            for words in keys.collect::<Vec<_>>().chunks(BLOCK_ROWS) {
                if !self.joining.joins(&self.table, words.len()) {
                    return false;
                }
                let (hashes, own) = (hashes_of(words), self.leaders.own(0));
                let keys = Keys { hashes: &hashes, ahead: &[], words, vars: NoVarKeys };
                self.table.update_joint(&keys, own, &mut self.pool, &mut self.scratch);
                self.seen += words.len();
                assert_eq!(self.joining.note(&self.table), self.table.keys_max() <= KEYS_MAX);
            }
            true
        }

        fn end_epoch(&mut self) {
            let costs = Costs::new(&self.layout, 2);
            self.passes |= self.joining.decide(&self.table, take(&mut self.seen), &costs);
            self.table.seal_others(&self.leaders, &mut self.pool, &mut self.scratch);
        }

        fn end_window(&mut self) {
            self.end_epoch();
            self.table.clear(&mut self.pool);
        }
    }

    fn hashes_of(words: &[u64]) -> Vec<u64> {
        words.iter().map(|word| hash_word(*word)).collect()
    }

    #[test]
    fn keys_that_repeat_stay_joint() {
        let mut worker = Worker::new();
        for _ in 0..3 {
            assert!(worker.take((0..20_000).map(|i| i % 1_500)));
            worker.end_window();
        }
        assert!(worker.take(0..1) && !worker.passes, "and go on");
    }

    #[test]
    fn keys_that_hardly_repeat_are_not_joint_from_the_next_epoch_on() {
        let mut worker = Worker::new();
        assert!(worker.take((0..20_000).map(|i| i / 4 * 3 + i % 4)));
        worker.end_epoch();
        assert!(!worker.take(0..1) && worker.passes);
    }

    /// For any kind of rows in an epoch, the table must fit a near cache.
    #[test]
    fn many_keys_are_not_joint() {
        let mut worker = Worker::new();
        assert!(!worker.take((0..10).flat_map(|_| 0..2 * KEYS_MAX as u64)));
        assert!(worker.table.keys_max() <= KEYS_MAX + BLOCK_ROWS);
    }

    /// A large table does not become joint, nor does it keep another from that.
    #[test]
    fn a_large_table_spoils_nothing() {
        let mut worker = Worker::new();
        assert!(!worker.take((0..10).flat_map(|_| 0..2 * KEYS_MAX as u64)));
        worker.joining.force(true);
        assert!(!worker.take(0..1));
        worker.table = Table::new(worker.layout.clone());
        assert!(worker.take(0..1));
    }

    /// Epochs of few rows, all of them distinct: each alone does not decide, but all together do.
    #[test]
    fn small_epochs_are_judged_together() {
        let mut worker = Worker::new();
        let mut epochs = 0;
        while worker.take(0..500) {
            worker.end_window();
            epochs += 1;
            assert!(epochs < 100);
        }
        assert_eq!(epochs, DECIDE_ROWS.div_ceil(500));
    }

    /// The end of a window comes after few rows, of which more are distinct.
    #[test]
    fn a_short_epoch_does_not_change_what_a_long_one_decided() {
        let mut worker = Worker::new();
        for _ in 0..5 {
            assert!(worker.take((0..400_000).map(|i| i % 5_000)));
            worker.end_epoch();
            assert!(worker.take(0..5_000));
            worker.end_window();
        }
        assert!(worker.take(0..1));
    }

    #[test]
    fn fragments_that_aggregate_well_become_joint() {
        let cases =
            [(100, 100, true), (100, KEYS_MAX, false), (5_000, 100, true), (20_000, 100, false)];
        for (keys, own, becomes) in cases {
            let Worker { layout, mut table, mut joining, mut pool, mut scratch, .. } =
                Worker::new();
            joining.force(false);
            for words in (0..own as u64).collect::<Vec<_>>().chunks(BLOCK_ROWS) {
                let hashes = hashes_of(words);
                let keys = Keys { hashes: &hashes, ahead: &[], words, vars: NoVarKeys };
                table.update(&keys, &mut pool, &mut scratch);
            }
            let mut fragment = Fragment::new(layout, Some(Mode::Aggregate));
            for first in (0..40_000).step_by(BLOCK_ROWS) {
                let words: Vec<u64> = (0..BLOCK_ROWS as u64).map(|i| (first + i) % keys).collect();
                let hashes = hashes_of(&words);
                let keys = Keys { hashes: &hashes, ahead: &[], words: &words, vars: NoVarKeys };
                fragment.update(&keys, &mut pool, &mut scratch);
            }
            joining.consider([&fragment].into_iter(), &table);
            table.clear(&mut pool);
            assert_eq!(joining.joins(&table, 1), becomes, "{keys} keys");
        }
    }

    /// Few keys whose rows refer to more than a near cache holds; shorter texts are no reason.
    #[test]
    fn long_texts_are_not_joint() {
        for (text_bytes, joint) in [(100, true), (10_000, false)] {
            let layout = RowLayout::new(1, vec![], &[(ValueKind::MinBytes, false)]);
            let layout = Arc::new(layout);
            let mut table = Table::new(layout.clone());
            let Worker { leaders, mut joining, mut scratch, .. } = Worker::new();
            let mut pool = ChunkPool::new(layout.row_words(), 0, None);
            let text = vec![b'a'; text_bytes];
            for words in (0..1_000).collect::<Vec<u64>>().chunks(BLOCK_ROWS) {
                let (hashes, own) = (hashes_of(words), leaders.own(0));
                let keys = Keys { hashes: &hashes, ahead: &[], words, vars: NoVarKeys };
                let mut block = table.update_joint(&keys, own, &mut pool, &mut scratch);
                block.extreme_bytes(layout.values()[0], None, |_| &text);
            }
            assert_eq!((joining.joins(&table, 1), joining.note(&table)), (joint, joint));
            table.seal_others(&leaders, &mut pool, &mut scratch);
            joining.force(true);
            assert_eq!(joining.joins(&table, 1), joint, "nor when others' rows have gone");
        }
    }

    /// One that passes rows through does not know how often keys repeat.
    #[test]
    fn fragments_that_pass_through_do_not_become_joint() {
        let Worker { layout, table, mut joining, mut pool, mut scratch, .. } = Worker::new();
        joining.force(false);
        let mut fragment = Fragment::new(layout, Some(Mode::PassThrough));
        let hashes = [hash_word(7); BLOCK_ROWS];
        for _ in 0..100 {
            let keys =
                Keys { hashes: &hashes, ahead: &[], words: &[7; BLOCK_ROWS], vars: NoVarKeys };
            fragment.update(&keys, &mut pool, &mut scratch);
        }
        joining.consider([&fragment].into_iter(), &table);
        assert!(!joining.joins(&table, 1));
    }
}

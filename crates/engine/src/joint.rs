//! Joint tables: where keys repeat often, what a worker has of a window stands in one table, whoever leads it,
//! and is parted by leader when the epoch ends.
//!
//! Otherwise every record's leader must be found before its key is looked up, which for a few keys costs a
//! tenth to a third of all there is to do. Parting costs about a look-up for each distinct key of an epoch, the worker's
//! own among them. So it pays where few of an epoch's rows are distinct; where many are, a joint table would hold
//! everything twice. Which it is follows from the last epoch, like a fragment's mode ([`millstream_state::Mode`]); the
//! first is joint.

use millstream_state::{ChunkPool, Fragment, Leaders, RowLayout, Scratch, Segment, Split, Table};

/// Decisions are taken on at least this many rows.
const DECIDE_ROWS: usize = 4096;
/// Joint where at most one row in so many is distinct, for each word that a row of state has, and for twice as
/// many where it refers to an arena: that is what parting costs, and more. What is joint stays so up to twice that.
const REPEATS_PER_WORD: usize = 16;
const ARENA_WORDS: usize = 2;
/// A joint table of more keys is parted at once.
const KEYS_MAX: usize = 1 << 16;
/// Windows that have a joint table at a time: one of few rows is not worth a table more.
const TABLES_MAX: usize = 4;

/// A joint table of one slice.
#[derive(Debug)]
pub(crate) struct Joint {
    pub(crate) table: Table,
    /// Rows since the epoch began.
    seen: usize,
}

impl Joint {
    /// Takes note of rows that the table has taken in; true if it holds too many keys.
    pub(crate) fn note(&mut self, rows: usize) -> bool {
        self.seen += rows;
        self.table.rows() > KEYS_MAX
    }
}

/// Whether tables are joint, and what those of one worker share.
#[derive(Debug)]
pub(crate) struct Joining {
    on: bool,
    may_change: bool,
    open: usize,
    spare: Vec<Table>,
    /// Tables that are not kept.
    retired: Vec<Table>,
    split: Split,
    /// Keys that the last one held.
    last_keys: usize,
    /// Joint where at most one row in so many is distinct.
    repeats: usize,
    /// Rows and distinct rows of epochs since the last decision: small ones tell nothing by themselves.
    seen: usize,
    distinct: usize,
    /// Rows that the last decision was taken on. The end of a window may come after a few more, of which many
    /// are distinct, and says little.
    decided_on: usize,
}

impl Joining {
    /// With a single leader nothing is parted.
    pub(crate) fn new(allowed: bool, layout: &RowLayout) -> Joining {
        let arena = if layout.uses_arena() { ARENA_WORDS } else { 1 };
        Joining {
            repeats: REPEATS_PER_WORD * layout.row_words() * arena,
            on: allowed,
            may_change: allowed,
            open: 0,
            spare: Vec::new(),
            retired: Vec::new(),
            split: Split::default(),
            last_keys: 0,
            seen: 0,
            distinct: 0,
            decided_on: 0,
        }
    }

    /// The joint table of a slice, if it is to have one for so many rows: `new` makes it.
    pub(crate) fn table<'s>(
        &mut self,
        joint: &'s mut Option<Box<Joint>>,
        rows: usize,
        new: impl FnOnce() -> Table,
    ) -> Option<&'s mut Joint> {
        if !self.on || rows > KEYS_MAX {
            return None;
        }
        if joint.is_none() && self.open < TABLES_MAX {
            let mut table = self.spare.pop().unwrap_or_else(new);
            table.expect(self.last_keys);
            self.open += 1;
            *joint = Some(Box::new(Joint { table, seen: 0 }));
        }
        joint.as_deref_mut()
    }

    /// Seals a slice's joint table and parts its rows. At the end of an epoch it decides whether to go on like
    /// that.
    pub(crate) fn part(
        &mut self,
        joint: &mut Joint,
        epoch_ends: bool,
        (layout, leaders): (&RowLayout, &Leaders),
        scratch: &mut Scratch,
    ) -> (Segment, &Split) {
        self.last_keys = joint.table.rows();
        self.seen += joint.seen;
        self.distinct += self.last_keys;
        if !epoch_ends {
            self.turn(false);
        } else if self.seen >= DECIDE_ROWS.max(self.decided_on / 2) {
            self.decided_on = self.seen;
            self.turn(self.distinct * self.repeats / 2 <= self.seen);
        }
        let segment = joint.table.seal();
        self.split.part(&segment, layout, leaders, scratch);
        (segment, &self.split)
    }

    fn turn(&mut self, on: bool) {
        self.on = on;
        (self.seen, self.distinct) = (0, 0);
    }

    /// Looks at what an epoch has brought to a slice without a joint table: the fragments that are about to be sealed,
    /// beside `own` keys.
    pub(crate) fn consider<'f>(
        &mut self,
        fragments: impl Iterator<Item = &'f Fragment>,
        own: usize,
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
        let few = own + distinct <= KEYS_MAX / 2;
        self.turn(seen >= DECIDE_ROWS && distinct * self.repeats <= seen && few);
    }

    /// Whether tables may be joint.
    pub(crate) fn may_change(&self) -> bool {
        self.may_change
    }

    /// Tables are joint from now on, or not, if they may be.
    pub(crate) fn force(&mut self, on: bool) {
        self.turn(on && self.may_change);
    }

    /// Takes a joint table that has been parted. It is kept for the next one, unless there is to be none.
    pub(crate) fn recycle(&mut self, joint: Joint, pool: &mut ChunkPool, scarce: bool) {
        let Joint { mut table, .. } = joint;
        self.open -= 1;
        table.clear(pool);
        self.spare.push(table);
        if scarce || !self.on {
            self.release();
        }
    }

    /// Bytes that are kept for later.
    pub(crate) fn spare_bytes(&self) -> usize {
        self.spare.iter().map(Table::bytes).sum::<usize>() + self.split.bytes()
    }

    /// Tables that are kept for later.
    pub(crate) fn spare(&self) -> impl Iterator<Item = &Table> {
        self.spare.iter()
    }

    /// Tables that are not kept.
    pub(crate) fn retired(&mut self) -> impl Iterator<Item = Table> {
        self.retired.drain(..)
    }

    /// Gives back what is kept for later, and is not joint any more, since that takes more memory.
    pub(crate) fn release(&mut self) {
        self.turn(false);
        self.split.release();
        self.retired.append(&mut self.spare);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use millstream_state::{BLOCK_ROWS, Keys, Mode, NoVarKeys, ValueKind, hash_word};

    use super::*;

    const LEADERS: usize = 3;

    struct Worker {
        layout: Arc<RowLayout>,
        leaders: Leaders,
        joining: Joining,
        joint: Option<Box<Joint>>,
        pool: ChunkPool,
        scratch: Scratch,
    }

    impl Worker {
        fn new() -> Worker {
            let layout = Arc::new(RowLayout::new(1, vec![], &[(ValueKind::Count, false)]));
            Worker {
                joining: Joining::new(true, &layout),
                leaders: Leaders::even(LEADERS),
                joint: None,
                pool: ChunkPool::new(layout.row_words(), 1 << 20, None),
                scratch: Scratch::default(),
                layout,
            }
        }

        /// Counts keys in the joint table; false if there is none any more.
        fn count(&mut self, keys: impl Iterator<Item = u64>) -> bool {
            let layout = self.layout.clone();
            for words in keys.collect::<Vec<_>>().chunks(BLOCK_ROWS) {
                let new = || Table::new(layout.clone());
                let Some(joint) = self.joining.table(&mut self.joint, words.len(), new) else {
                    return false;
                };
                update(&mut joint.table, words, &mut self.pool, &mut self.scratch);
                if joint.note(words.len()) {
                    self.part(false);
                }
            }
            true
        }

        /// Rows per leader.
        fn part(&mut self, epoch_ends: bool) -> Vec<usize> {
            let shared = (&*self.layout, &self.leaders);
            let mut joint = self.joint.take().expect("a joint table");
            let (_, split) = self.joining.part(&mut joint, epoch_ends, shared, &mut self.scratch);
            let rows = (0..LEADERS).map(|leader| split.rows(leader)).collect();
            self.joining.recycle(*joint, &mut self.pool, false);
            rows
        }
    }

    fn update(table: &mut Table, words: &[u64], pool: &mut ChunkPool, scratch: &mut Scratch) {
        let count = millstream_state::RowLayout::new(1, vec![], &[(ValueKind::Count, false)]);
        let hashes: Vec<u64> = words.iter().map(|word| hash_word(*word)).collect();
        let keys = Keys { hashes: &hashes, ahead: &[], words, vars: NoVarKeys };
        table.update(&keys, pool, scratch).count(count.values()[0], None);
    }

    #[test]
    fn few_keys_stay_joint_and_are_parted_by_leader() {
        let mut worker = Worker::new();
        for _ in 0..3 {
            assert!(worker.count((0..20_000).map(|i| i % 100)));
            let mut expected = vec![0; LEADERS];
            (0..100).for_each(|key| expected[worker.leaders.of(hash_word(key))] += 1);
            assert_eq!(worker.part(true), expected);
        }
        assert!(worker.count(0..1), "and go on");
    }

    #[test]
    fn keys_that_hardly_repeat_are_not_joint_from_the_next_epoch_on() {
        let mut worker = Worker::new();
        assert!(worker.count((0..20_000).map(|i| i / 2)));
        assert_eq!(worker.part(true).iter().sum::<usize>(), 10_000);
        assert!(!worker.count(0..1));
    }

    /// Whatever an epoch's rows are like: no table is held twice that is large.
    #[test]
    fn many_keys_are_parted_at_once() {
        let mut worker = Worker::new();
        assert!(!worker.count(0..2 * KEYS_MAX as u64));
        assert!(worker.joint.is_none());
        assert_eq!(worker.joining.spare_bytes(), 0, "and nothing is kept");
    }

    /// Epochs of few rows, all of them distinct: each says nothing, together they do.
    #[test]
    fn small_epochs_are_judged_together() {
        let mut worker = Worker::new();
        let mut epochs = 0;
        while worker.count(0..500) {
            worker.part(true);
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
            assert!(worker.count((0..400_000).map(|i| i % 5_000)));
            worker.part(true);
            assert!(worker.count(0..5_000));
            worker.part(true);
        }
        assert!(worker.count(0..1));
    }

    /// As many tables as there may be, and they come back when they are parted.
    #[test]
    fn few_windows_have_a_joint_table_at_a_time() {
        let Worker { layout, leaders, mut joining, mut pool, mut scratch, .. } = Worker::new();
        let new = || Table::new(layout.clone());
        let mut slices: Vec<Option<Box<Joint>>> = (0..TABLES_MAX + 1).map(|_| None).collect();
        for _ in 0..2 {
            for slice in &mut slices {
                if let Some(joint) = joining.table(slice, 100, new) {
                    update(&mut joint.table, &[7; 100], &mut pool, &mut scratch);
                    joint.note(100);
                }
            }
            assert!(slices[TABLES_MAX].is_none());
            for mut joint in slices.iter_mut().filter_map(Option::take) {
                joining.part(&mut joint, true, (&layout, &leaders), &mut scratch);
                joining.recycle(*joint, &mut pool, false);
            }
            assert_eq!(joining.spare().count(), TABLES_MAX);
        }
        joining.release();
        assert_eq!((joining.spare_bytes(), joining.retired().count()), (0, TABLES_MAX));
    }

    #[test]
    fn fragments_that_aggregate_well_become_joint() {
        for (keys, own, becomes) in [(100, 100, true), (100, KEYS_MAX, false), (5_000, 100, false)]
        {
            let Worker { layout, mut joining, mut pool, mut scratch, .. } = Worker::new();
            joining.force(false);
            let mut fragment = Fragment::new(layout.clone(), Some(Mode::Aggregate));
            for first in (0..40_000).step_by(BLOCK_ROWS) {
                let words: Vec<u64> = (0..BLOCK_ROWS as u64).map(|i| (first + i) % keys).collect();
                let hashes: Vec<u64> = words.iter().map(|word| hash_word(*word)).collect();
                let keys = Keys { hashes: &hashes, ahead: &[], words: &words, vars: NoVarKeys };
                fragment.update(&keys, &mut pool, &mut scratch);
            }
            joining.consider([&fragment].into_iter(), own);
            assert_eq!(joining.table(&mut None, 1, || Table::new(layout)).is_some(), becomes);
        }
    }

    /// One that passes rows through does not know how often keys repeat.
    #[test]
    fn fragments_that_pass_through_do_not_become_joint() {
        let Worker { layout, mut joining, mut pool, mut scratch, .. } = Worker::new();
        joining.force(false);
        let mut fragment = Fragment::new(layout.clone(), Some(Mode::PassThrough));
        let hashes = [hash_word(7); BLOCK_ROWS];
        for _ in 0..100 {
            let keys =
                Keys { hashes: &hashes, ahead: &[], words: &[7; BLOCK_ROWS], vars: NoVarKeys };
            fragment.update(&keys, &mut pool, &mut scratch);
        }
        joining.consider([&fragment].into_iter(), 1);
        assert!(joining.table(&mut None, 1, || Table::new(layout)).is_none());
    }
}

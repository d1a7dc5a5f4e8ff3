//! Tests of decisions on modes, with costs as assumed and as a clock of the test measures them.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use millstream_state::{
    BLOCK_ROWS, ChunkPool, Keys, Leaders, NoVarKeys, Scratch, ValueKind, hash_word,
};

use super::*;

/// A clock that the test sets.
#[derive(Debug, Default)]
struct Clock(AtomicU64);

impl Env for Clock {
    fn now_us(&self) -> i64 {
        0
    }
    fn now_ns(&self) -> u64 {
        self.0.load(Relaxed)
    }
    fn wait(&self, _: usize, _: Option<i64>) {}
    fn wake(&self, _: usize) {}
    fn choose(&self, _: u64) -> Option<u64> {
        None
    }
    fn pass_time(&self, _: i64) {}
}

fn layout() -> Arc<RowLayout> {
    Arc::new(RowLayout::new(1, vec![], &[(ValueKind::Count, false)]))
}

const LEADERS: usize = 3;

/// Nanoseconds that a processor takes: of a record in each mode, for merging, for taking in.
#[derive(Clone, Copy)]
struct Processor {
    joint: u64,
    aggregate: u64,
    pass: u64,
    merge: u64,
    take: u64,
}

/// A worker that looks keys up in sets, as tables do.
struct Worker {
    modes: Modes,
    clock: Option<(Arc<Clock>, Processor)>,
    epoch: std::collections::HashSet<u64>,
    times: MergeTimes,
    /// Records by mode.
    records: [u64; 3],
}

impl Worker {
    fn new(processor: Option<Processor>) -> Worker {
        let clock = processor.map(|processor| (Arc::new(Clock::default()), processor));
        let env = clock.clone().map(|(clock, _)| clock as Arc<dyn Env>);
        let modes = Modes::new(&layout(), 2, LEADERS, None, env);
        let (epoch, times, records) = Default::default();
        Worker { modes, clock, epoch, times, records }
    }

    /// Takes a batch of keys in, as rows of other leaders.
    fn batch(&mut self, keys: &[u64]) {
        let began = self.modes.begin_batch(keys.len());
        let (mode, rows) = (self.modes.mode(), keys.len() as u64);
        self.records[mode as usize] += rows;
        if mode == Mode::PassThrough {
            let hashes: Vec<u64> = keys.iter().map(|key| hash_word(*key)).collect();
            self.modes.note_passed(0, &hashes);
        } else {
            let new = keys.iter().filter(|key| self.epoch.insert(**key)).count();
            self.modes.note_looked_up(keys.len(), new);
        }
        if let Some((clock, processor)) = &self.clock {
            let Processor { joint, aggregate, pass, take, .. } = *processor;
            let ns = match mode {
                Mode::Joint => joint,
                Mode::Aggregate => aggregate,
                Mode::PassThrough => {
                    self.times.passed_rows += rows;
                    self.times.passed_ns += rows * take;
                    pass
                }
            };
            clock.0.fetch_add(rows * ns, Relaxed);
        }
        self.modes.end_batch(keys.len(), began);
    }

    fn end_epoch(&mut self) {
        if let Some((_, processor)) = &self.clock {
            self.times.rows += self.epoch.len() as u64;
            self.times.ns += self.epoch.len() as u64 * processor.merge;
        }
        self.modes.note_merged(&self.times);
        self.modes.end_epoch(self.epoch.len(), true);
        self.epoch.clear();
    }

    /// An epoch of so many records of so many keys.
    fn epoch(&mut self, records: u64, keys: u64) -> Mode {
        let words: Vec<u64> = (0..records).map(|i| i % keys).collect();
        words.chunks(1 << 10).for_each(|keys| self.batch(keys));
        self.end_epoch();
        self.modes.mode()
    }
}

#[test]
fn keys_that_repeat_stay_joint_and_others_are_passed_through() {
    let mut worker = Worker::new(None);
    for _ in 0..3 {
        assert_eq!(worker.epoch(40_000, 1_500), Mode::Joint);
    }
    assert_eq!(worker.epoch(20_000, 18_000), Mode::PassThrough);
    // The sample holds for a while.
    assert_eq!(worker.epoch(20_000, 7), Mode::PassThrough);
    let back = (0..20).find(|_| worker.epoch(20_000, 7) != Mode::PassThrough);
    assert!(back.is_some_and(|epochs| epochs < 8), "{back:?}");
}

/// In one epoch that does not end, keys change, and the sample tells.
#[test]
fn keys_that_change_within_a_long_epoch_are_noticed() {
    let mut worker = Worker::new(None);
    assert_eq!(worker.epoch(40_000, 40_000), Mode::PassThrough);
    for part in 0..50 {
        let words: Vec<u64> = (0..20_000).map(|i| part * 20_000 + i).collect();
        worker.batch(&words);
    }
    assert_eq!(worker.modes.mode(), Mode::PassThrough);
    let few: Vec<u64> = (0..1_000).collect();
    (0..6_000).for_each(|_| worker.batch(&few));
    assert_ne!(worker.modes.mode(), Mode::PassThrough);
}

/// Epochs of few rows: each alone does not decide, but all together do.
#[test]
fn small_epochs_are_judged_together() {
    let mut worker = Worker::new(None);
    let epochs = (1..).find(|_| worker.epoch(500, 500) == Mode::PassThrough);
    assert_eq!(epochs, Some(DECIDE_ROWS.div_ceil(500)));
}

/// The same keys on processors of different costs: the cheapest mode there, whatever is assumed.
#[test]
fn measured_costs_decide() {
    let usual = Processor { joint: 8, aggregate: 9, pass: 5, merge: 30, take: 5 };
    let cases = [
        // Merging is dear, or passing rows through is; or taking them in is for their leader.
        (Processor { merge: 200, ..usual }, 16, Mode::PassThrough),
        (Processor { pass: 40, joint: 5, ..usual }, 3, Mode::Joint),
        (Processor { take: 60, joint: 5, ..usual }, 3, Mode::Joint),
        (Processor { joint: 50, pass: 40, ..usual }, 3, Mode::Aggregate),
        (Processor { merge: 1, joint: 5, ..usual }, 3, Mode::Joint),
    ];
    for (case, (processor, repeats, expected)) in cases.into_iter().enumerate() {
        let mut worker = Worker::new(Some(processor));
        // Epochs of all lengths, so that a trial epoch fits.
        for epoch in 0..400 {
            let records = if epoch % 40 == 0 { 5_000 } else { 50_000 };
            worker.epoch(records, records / repeats);
        }
        assert_eq!(worker.modes.mode(), expected, "case {case}");
        let chosen = worker.records[expected as usize] as f64;
        let all = worker.records.iter().sum::<u64>() as f64;
        assert!(chosen > 0.9 * all, "case {case}: {:?}", worker.records);
    }
}

/// Another mode is tried on a fiftieth of the input at the most.
#[test]
fn trials_stay_small() {
    let processor = Processor { joint: 8, aggregate: 9, pass: 7, merge: 9, take: 6 };
    let mut worker = Worker::new(Some(processor));
    (0..300).for_each(|_| _ = worker.epoch(50_000, 500));
    let [joint, aggregate, passed] = worker.records;
    assert!(passed > 0 && (passed + aggregate) * TRIAL_SHARE <= joint + passed, "{passed}");
    assert_eq!(worker.modes.switches(), 0);
}

/// Epochs are longer in another mode: of rows that are passed through, less fits into memory.
#[test]
fn trials_of_long_epochs_stay_small() {
    let processor = Processor { joint: 8, aggregate: 9, pass: 5, merge: 100, take: 5 };
    let mut worker = Worker::new(Some(processor));
    let (mut trials, mut begun) = (0, [0; 3]);
    for epoch in 0..400 {
        let is_trial = worker.modes.mode() != Mode::PassThrough;
        let records = if is_trial { 1_000_000 } else { 50_000 };
        worker.epoch(records, records / 16);
        if epoch == 40 {
            (trials, begun) = (0, worker.records);
        }
        trials += u32::from(is_trial);
    }
    let [joint, aggregate, passed] = [0, 1, 2].map(|mode| worker.records[mode] - begun[mode]);
    assert!(trials > 0 && passed > 0, "{trials} trials, {passed} passed");
    // A batch beyond the share, for each trial.
    let most = passed / TRIAL_SHARE + u64::from(trials) * 1024 + begun[2] / TRIAL_SHARE;
    assert!(joint + aggregate <= most, "{} of {most}", joint + aggregate);
}

#[test]
fn a_fixed_mode_is_kept() {
    for fixed in [Mode::Joint, Mode::Aggregate, Mode::PassThrough] {
        let modes = Modes::new(&layout(), 2, LEADERS, Some(fixed), None);
        let mut worker = Worker { modes, ..Worker::new(None) };
        for keys in [7, 10_000] {
            assert_eq!(worker.epoch(20_000, keys), fixed);
        }
        assert_eq!(worker.modes.switches(), 0);
    }
}

/// For any kind of rows in an epoch, a joint table must fit a near cache.
#[test]
fn a_table_that_is_too_large_is_not_joint_any_more() {
    let (layout, leaders) = (layout(), Leaders::even(LEADERS));
    for (repeats, expected) in [(1, Mode::PassThrough), (40, Mode::Aggregate)] {
        let mut modes = Modes::new(&layout, 2, LEADERS, None, None);
        let mut pool = ChunkPool::new(layout.row_words(), 1 << 20, None);
        let (mut table, mut scratch) = (Table::new(layout.clone()), Scratch::default());
        let mut seen = 0;
        let words: Vec<u64> = (0..2 * JOINT_KEYS_MAX as u64).collect();
        for words in words.chunks(BLOCK_ROWS) {
            if !modes.may_join(&table, words.len()) {
                break;
            }
            let hashes: Vec<u64> = words.iter().map(|word| hash_word(*word)).collect();
            let keys = Keys { hashes: &hashes, ahead: &[], words, vars: NoVarKeys };
            table.update_joint(&keys, leaders.own(0), &mut pool, &mut scratch);
            seen += repeats * words.len();
            modes.note_joint(&table, seen, table.keys_max());
        }
        assert!(table.keys_max() <= JOINT_KEYS_MAX + BLOCK_ROWS);
        assert_eq!((modes.mode(), modes.switches()), (expected, 1));
    }
}

/// Few keys whose rows refer to more than a near cache holds; shorter texts are no reason.
#[test]
fn long_texts_are_not_joint() {
    for (text_bytes, joint) in [(100, true), (2 * SIMULATED_NEAR_CACHE / 500, false)] {
        let layout = RowLayout::new(1, vec![], &[(ValueKind::MinBytes, false)]);
        let layout = Arc::new(layout);
        let modes = Modes::new(&layout, 2, LEADERS, None, None);
        let leaders = Leaders::even(LEADERS);
        let mut table = Table::new(layout.clone());
        let mut pool = ChunkPool::new(layout.row_words(), 0, None);
        let (text, mut scratch) = (vec![b'a'; text_bytes], Scratch::default());
        for words in (0..1_000).collect::<Vec<u64>>().chunks(BLOCK_ROWS) {
            let hashes: Vec<u64> = words.iter().map(|word| hash_word(*word)).collect();
            let keys = Keys { hashes: &hashes, ahead: &[], words, vars: NoVarKeys };
            let mut block = table.update_joint(&keys, leaders.own(0), &mut pool, &mut scratch);
            block.extreme_bytes(layout.values()[0], None, |_| &text);
        }
        assert_eq!(modes.may_join(&table, 1), joint);
        table.seal_others(&leaders, &mut pool, &mut scratch);
        assert_eq!(modes.may_join(&table, 1), joint, "nor when others' rows have gone");
    }
}

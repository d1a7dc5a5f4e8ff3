//! Fragments: a worker's state for the keys of one other leader. A fragment aggregates records or
//! passes them through.
//!
//! With few keys, aggregating shrinks a fragment to almost nothing. With mostly distinct keys, it
//! shrinks nothing, and the look-ups are wasted. Then rows are appended as they come, and the
//! leader does all the merging. A fragment chooses by the share of distinct rows in an epoch. An
//! aggregating fragment knows this share. A fragment that passes rows through estimates the share
//! from the keys whose hashes fall into a small part of the range of hashes.
//!
//! The break-even follows from the costs, except for updating a row, which costs the same in either
//! mode. Passing through takes writing and reading keys and arguments, for every row. Aggregating
//! takes, for every distinct row, the cost of moving a row of state to the leader: writing,
//! reading, look-up and merging. Let `P` be the former, `M` the latter and `d` the share of
//! distinct rows: the costs are equal where `d = P / M`. The number of workers counts through `d`:
//! the more workers share a key's records, the fewer records each worker has.

use std::sync::Arc;

use crate::memory::hash::hash_each_word;
use crate::memory::log::{BLOCK_ROWS, CHUNK_ROWS, ChunkPool};
use crate::memory::scratch::Scratch;
use crate::table::key::{Keys, VarKeys};
use crate::table::keyed::Table;
use crate::table::layout::RowLayout;
use crate::table::segment::Segment;
use crate::table::value::Block;

/// Rows that are passed through are sent by themselves when there are so many at least.
const PASSED_ROWS_MIN: usize = 4 * CHUNK_ROWS;

/// Decisions are taken on at least this many rows.
const DECIDE_ROWS: usize = 4096;

/// A share of distinct rows so many times that at which both modes cost the same is clear.
const CLEARLY: f64 = 2.0;

/// A sample that is full, or that has led to a verdict, is good for so many times the rows that it
/// took.
const UNSAMPLED: usize = 4;

// What it costs to pass a row through, and so much for each of its words; to merge one of state,
// in a near cache and far away, and so much for each of its words: about nanoseconds. They are
// chosen so that the break-even is where it was measured, with 2 and 4 workers on two cores and
// 400 to 36,000 keys. Merging is dear: rows come at the end of a window, all at once, from the
// cache of another core. A worker that aggregates has as many rows as there are keys, its leader
// only its share of them, which adds to the price where they do not lie in a near cache.
const PASS: f64 = 1.5;
const PASS_WORD: f64 = 1.0;
const MERGE_NEAR: f64 = 9.0;
const MERGE_FAR: f64 = 27.0;
const MERGE_WORD: f64 = 4.0;
/// Both take so many times as long where there are texts.
const TEXTS: f64 = 2.0;
/// Up to this cost rows are cheap to pass through: four words.
const CHEAP: f64 = PASS + 4.0 * PASS_WORD;
/// So many keys of a worker, with their index, are taken to fit a near cache.
const NEAR_KEYS: usize = 1 << 12;

/// How a fragment takes updates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Keys are looked up and updated in place.
    Aggregate,
    /// Rows are appended without look-up.
    PassThrough,
}

/// Costs of passing rows through, and of merging rows of state.
#[derive(Debug, Clone, Copy)]
pub struct Costs {
    pass: f64,
    /// But for looking it up.
    merge: f64,
    /// Among whom the keys are divided.
    leaders: usize,
}

impl Costs {
    /// For rows of this layout, which are passed through with so many words.
    pub fn new(layout: &RowLayout, passed_words: usize) -> Costs {
        let texts = if layout.texts() > 0 { TEXTS } else { 1.0 };
        Costs {
            pass: texts * (PASS + PASS_WORD * passed_words as f64),
            merge: texts * MERGE_WORD * layout.row_words() as f64,
            leaders: 1,
        }
    }

    /// For a fragment that has the keys of one of so many leaders.
    pub fn among(self, leaders: usize) -> Costs {
        Costs { leaders, ..self }
    }

    /// The share of distinct rows at which both modes cost the same, for so many distinct keys that
    /// a worker has.
    fn break_even(&self, keys: usize) -> f64 {
        let look_up = if keys <= NEAR_KEYS { MERGE_NEAR } else { MERGE_FAR };
        self.pass / (self.merge + look_up)
    }

    /// Whether rows are better passed through, to judge by `distinct` of `seen` rows of an epoch.
    pub fn pass(&self, seen: usize, distinct: usize) -> bool {
        let break_even = self.break_even(distinct);
        distinct as f64 > (break_even + margin(break_even)) * seen as f64
    }

    /// Whether rows are better passed through, to judge by `distinct` of `seen` rows in a table
    /// that has become too large for a near cache before its epoch has ended: the share is far
    /// above what it would have to be, and it costs little to be wrong.
    pub fn should_pass(&self, seen: usize, distinct: usize) -> bool {
        let enough = seen >= DECIDE_ROWS && self.pass <= CHEAP;
        enough && distinct as f64 > CLEARLY * self.break_even(usize::MAX) * seen as f64
    }
}

/// So near the line both cost about the same, and it is not worth changing.
fn margin(break_even: f64) -> f64 {
    0.2 * break_even.min(1.0 - break_even).max(0.0)
}

/// A worker's partial state for one leader's keys in one window slice.
#[derive(Debug)]
pub struct Fragment {
    table: Table,
    mode: Mode,
    fixed: bool,
    costs: Costs,
    /// No decision has been taken yet, so that a first impression has to do.
    fresh: bool,
    /// The mode has changed within this epoch.
    changed: bool,
    /// Rows since the last decision, and how many of them were distinct within their epochs.
    seen: usize,
    distinct: usize,
    /// Decisions at the ends of epochs, in this window.
    verdicts: u32,
    sample: Sample,
    /// Rows that come before the next ones are sampled.
    unsampled: usize,
    switches: u64,
}

impl Fragment {
    /// An empty fragment that decides by itself, or keeps to `mode` if one is given. What is
    /// passed through is rows of state.
    pub fn new(layout: Arc<RowLayout>, mode: Option<Mode>) -> Fragment {
        let costs = Costs::new(&layout, layout.row_words());
        Fragment::with_costs(layout, costs, mode)
    }

    /// As [`Fragment::new`], where passing rows through costs something else.
    pub fn with_costs(layout: Arc<RowLayout>, costs: Costs, mode: Option<Mode>) -> Fragment {
        Fragment {
            costs,
            table: Table::new(layout),
            mode: mode.unwrap_or(Mode::Aggregate),
            fixed: mode.is_some(),
            fresh: true,
            changed: false,
            seen: 0,
            distinct: 0,
            verdicts: 0,
            sample: Sample::default(),
            unsampled: 0,
            switches: 0,
        }
    }

    /// Begins in `mode`, unless the mode is fixed: other fragments have found this mode to be
    /// right.
    pub fn begin_in(&mut self, mode: Mode) {
        if !self.fixed {
            (self.mode, self.fresh) = (mode, false);
        }
    }

    /// Begins the next batch of input, for which the mode may change.
    pub fn begin_batch(&mut self) {
        if self.fixed || self.seen < DECIDE_ROWS {
            return;
        }
        let (seen, distinct) = (self.seen, self.distinct);
        match self.mode {
            // The share of distinct rows only falls as an epoch goes on, unless the keys change:
            // before one has ended, only a large share counts, and only if it costs little to be
            // wrong.
            Mode::Aggregate
                if self.fresh && self.costs.pass <= CHEAP && distinct * 4 > seen * 3 =>
            {
                self.switch(Mode::PassThrough);
            }
            // What has been passed through will not be found: in the middle of an epoch, only a
            // small one.
            Mode::PassThrough if 2.0 * self.share() < self.break_even() => {
                self.switch(Mode::Aggregate);
            }
            _ => {}
        }
    }

    /// Decides at the end of an epoch, or of several small ones.
    fn decide(&mut self) {
        let (seen, share, break_even) = (self.seen, self.share(), self.break_even());
        let margin = margin(break_even);
        match self.mode {
            // After a change of mode this was half an epoch, which says little.
            Mode::Aggregate if share > break_even + margin && !self.changed => {
                self.switch(Mode::PassThrough);
            }
            Mode::PassThrough if share < break_even - margin => self.switch(Mode::Aggregate),
            _ => {}
        }
        self.forget();
        if self.mode == Mode::PassThrough {
            self.unsampled = UNSAMPLED * seen;
        }
        self.fresh = false;
        self.verdicts += 1;
    }

    /// The share of distinct rows.
    fn share(&self) -> f64 {
        self.distinct as f64 / self.seen.max(1) as f64
    }

    /// The share of distinct rows at which both modes cost the same, for as many keys as were seen.
    fn break_even(&self) -> f64 {
        self.costs.break_even(self.distinct * self.costs.leaders)
    }

    fn switch(&mut self, mode: Mode) {
        (self.mode, self.changed) = (mode, true);
        // A first impression has turned out to be wrong.
        self.fresh &= mode == Mode::PassThrough;
        self.switches += 1;
        self.forget();
    }

    fn forget(&mut self) {
        (self.seen, self.distinct, self.unsampled) = (0, 0, 0);
        self.sample.clear();
    }

    /// Asks for the cache lines in which a block of keys will be looked for, if it will be.
    pub fn prefetch(&self, hashes: &[u64]) {
        if self.mode == Mode::Aggregate {
            self.table.prefetch(hashes);
        }
    }

    /// True if the fragment looks keys up without hashes.
    pub fn is_direct(&self) -> bool {
        self.mode == Mode::Aggregate && self.table.is_direct()
    }

    /// Takes in a block of keys and returns their rows for updating. There may be no hashes where
    /// keys have one word each: they are hashed if need be ([`Fragment::is_direct`]).
    pub fn update<'t, V: VarKeys>(
        &'t mut self,
        keys: &Keys<'_, V>,
        pool: &mut ChunkPool,
        scratch: &'t mut Scratch,
    ) -> Block<'t> {
        let rows = keys.rows(&self.table.layout);
        if self.mode == Mode::PassThrough {
            if !self.fixed {
                if keys.hashes.is_empty() {
                    let mut hashes = [0; BLOCK_ROWS];
                    hash_each_word(keys.words, &mut hashes[..rows]);
                    self.estimate(&hashes[..rows]);
                } else {
                    self.estimate(keys.hashes);
                }
            }
            return self.table.append(keys, pool, scratch);
        }
        let block = self.table.update(keys, pool, scratch);
        self.seen += rows;
        self.distinct += block.new_rows();
        block
    }

    /// Takes note of keys whose rows are passed through, but need not be kept here.
    pub fn note_passed(&mut self, hashes: &[u64]) {
        debug_assert_eq!(self.mode, Mode::PassThrough);
        if !self.fixed {
            self.estimate(hashes);
        }
    }

    /// Counts rows that are passed through, and the distinct rows among them. Once the sample is
    /// full, counts only now and then, for keys may change within a long epoch.
    fn estimate(&mut self, hashes: &[u64]) {
        if self.unsampled > 0 {
            self.unsampled = self.unsampled.saturating_sub(hashes.len());
            if self.unsampled == 0 {
                self.forget();
            }
            return;
        }
        self.seen += hashes.len();
        self.distinct += self.sample.estimate(hashes);
        if self.sample.is_full() {
            self.unsampled = UNSAMPLED * self.seen;
        }
    }

    /// Ends an epoch: seals what has changed since the last time, if anything has; the fragment
    /// starts again from empty.
    pub fn seal(&mut self) -> Option<Segment> {
        if !self.fixed && self.seen >= DECIDE_ROWS {
            self.decide();
        } else if self.changed && self.mode == Mode::Aggregate {
            // What little came after the change is no epoch to judge by, nor a part of the next
            // one.
            self.forget();
        }
        self.changed = false;
        self.sample.clear();
        self.flush()
    }

    /// Seals what there is, if there is anything, without an end of the epoch: what is passed
    /// through may go in parts.
    pub fn flush(&mut self) -> Option<Segment> {
        (self.rows() > 0).then(|| self.table.seal())
    }

    /// Bytes of rows that have been passed through, if they are enough to be sent by themselves.
    pub fn passed_bytes(&self) -> usize {
        let passed = self.mode == Mode::PassThrough && self.rows() >= PASSED_ROWS_MIN;
        if passed { self.table.live_bytes() } else { 0 }
    }

    /// Rows since the last seal.
    pub fn rows(&self) -> usize {
        self.table.rows()
    }

    /// Bytes allocated.
    pub fn bytes(&self) -> usize {
        self.table.bytes() + self.sample.bits.len() * 8
    }

    /// The present mode.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// How often the end of an epoch has decided on the mode, in this window.
    pub fn verdicts(&self) -> u32 {
        self.verdicts
    }

    /// Whether this window has shown what mode is right, or an earlier verdict is still good.
    pub fn knows(&self) -> bool {
        self.verdicts > 0 || self.unsampled > 0
    }

    /// Times the mode has changed.
    pub fn switches(&self) -> u64 {
        self.switches
    }

    /// Rows looked up since the last decision, and how many of them were distinct; `None` where it
    /// passes rows through.
    pub fn looked_up(&self) -> Option<(usize, usize)> {
        (self.mode == Mode::Aggregate).then_some((self.seen, self.distinct))
    }

    /// The table, for counters and recycling.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// Empties the fragment for another window. The mode stays, until the new window shows better.
    pub fn clear(&mut self, pool: &mut ChunkPool) {
        self.table.clear(pool);
        (self.changed, self.verdicts) = (false, 0);
        let unsampled = self.unsampled;
        self.forget();
        self.unsampled = unsampled;
    }
}

/// Sample of the keys whose hashes fall into one of [`SAMPLED`] parts of their range: a bit for
/// each key, rarely shared by several keys.
#[derive(Debug, Default)]
struct Sample {
    bits: Vec<u64>,
    set: usize,
}

/// One key in this many is sampled.
const SAMPLED: u64 = 32;
const SAMPLE_BITS: usize = 1 << 16;

impl Sample {
    /// Whether more keys would share bits too often.
    fn is_full(&self) -> bool {
        self.set >= SAMPLE_BITS / 4
    }

    /// About how many of these are the first with their key. It looks at bits that neither
    /// partitions nor the index go by.
    fn estimate(&mut self, hashes: &[u64]) -> usize {
        self.bits.resize(SAMPLE_BITS / 64, 0);
        let before = self.set;
        for hash in hashes.iter().map(|hash| hash >> 8).filter(|hash| hash % SAMPLED == 0) {
            let bit = (hash / SAMPLED) as usize % SAMPLE_BITS;
            let word = &mut self.bits[bit / 64];
            self.set += usize::from(*word >> (bit % 64) & 1 == 0);
            *word |= 1 << (bit % 64);
        }
        (self.set - before) * SAMPLED as usize
    }

    fn clear(&mut self) {
        if self.set > 0 {
            self.bits.fill(0);
            self.set = 0;
        }
    }
}

//! Fragments: state held for another worker's partitions, aggregating or passing through.
//!
//! With few keys, aggregating shrinks a fragment to almost nothing. With mostly unique keys it
//! shrinks nothing, and the look-up is wasted: then rows are appended as they come and the leader
//! does all the merging. A fragment finds out which by looking at how many of an epoch's rows are
//! distinct: while it aggregates, it knows; while it passes rows through, it estimates it from those keys
//! whose hashes fall into a sixteenth of their range.

use std::sync::Arc;

use crate::key::{Keys, VarKeys};
use crate::layout::RowLayout;
use crate::log::ChunkPool;
use crate::segment::Segment;
use crate::table::{Scratch, Table};
use crate::value::Block;

/// Decisions are taken on at least this many rows.
const DECIDE_ROWS: usize = 4096;

/// How a fragment takes updates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Keys are looked up and updated in place.
    Aggregate,
    /// Rows are appended without look-up.
    PassThrough,
}

/// A worker's partial state for one leader's keys in one window slice.
#[derive(Debug)]
pub struct Fragment {
    table: Table,
    mode: Mode,
    fixed: bool,
    /// No decision has been taken yet, so that a first impression has to do.
    fresh: bool,
    /// The mode has changed within this epoch.
    changed: bool,
    /// Rows since the last decision, and how many of them were distinct within their epochs.
    seen: usize,
    distinct: usize,
    sample: Sample,
    switches: u64,
}

impl Fragment {
    /// An empty fragment that decides by itself, or keeps to `mode` if one is given.
    pub fn new(layout: Arc<RowLayout>, mode: Option<Mode>) -> Fragment {
        Fragment {
            table: Table::new(layout),
            mode: mode.unwrap_or(Mode::Aggregate),
            fixed: mode.is_some(),
            fresh: true,
            changed: false,
            seen: 0,
            distinct: 0,
            sample: Sample::default(),
            switches: 0,
        }
    }

    /// Begins the next batch of input, for which the mode may change.
    pub fn begin_batch(&mut self) {
        if self.fixed || self.seen < DECIDE_ROWS {
            return;
        }
        let (seen, distinct) = (self.seen, self.distinct);
        match self.mode {
            // The share of distinct rows only falls as an epoch goes on, unless the keys change: before one
            // has ended, only a large share counts.
            Mode::Aggregate if self.fresh && distinct * 4 > seen * 3 => {
                self.switch(Mode::PassThrough);
            }
            // What has been passed through will not be found: in the middle of an epoch, only a small one.
            Mode::PassThrough if distinct * 4 < seen => self.switch(Mode::Aggregate),
            _ => {}
        }
    }

    /// Decides at the end of an epoch, or of several small ones. A look-up costs as much as appending and
    /// merging two rows, or thereabouts.
    fn decide(&mut self) {
        let (seen, distinct) = (self.seen, self.distinct);
        match self.mode {
            // After a change of mode this was half an epoch, which says little.
            Mode::Aggregate if distinct * 16 > seen * 9 && !self.changed => {
                self.switch(Mode::PassThrough);
            }
            Mode::PassThrough if distinct * 16 < seen * 7 => self.switch(Mode::Aggregate),
            _ => {}
        }
        self.forget();
        self.fresh = false;
    }

    fn switch(&mut self, mode: Mode) {
        (self.mode, self.changed) = (mode, true);
        self.switches += 1;
        self.forget();
    }

    fn forget(&mut self) {
        (self.seen, self.distinct) = (0, 0);
        self.sample.clear();
    }

    /// Asks for the cache lines in which a block of keys will be looked for, if it will be.
    pub fn prefetch(&self, hashes: &[u64]) {
        if self.mode == Mode::Aggregate {
            self.table.prefetch(hashes);
        }
    }

    /// Takes in a block of keys and returns their rows for updating.
    pub fn update<'t, V: VarKeys>(
        &'t mut self,
        keys: &Keys<'_, V>,
        pool: &mut ChunkPool,
        scratch: &'t mut Scratch,
    ) -> Block<'t> {
        if self.mode == Mode::PassThrough {
            if !self.fixed && !self.sample.is_full() {
                self.seen += keys.hashes.len();
                self.distinct += self.sample.estimate(keys.hashes);
            }
            return self.table.append(keys, pool, scratch);
        }
        let block = self.table.update(keys, pool, scratch);
        self.seen += keys.hashes.len();
        self.distinct += block.new_rows();
        block
    }

    /// Seals what has changed since the last time; the fragment starts again from empty.
    pub fn seal(&mut self) -> Segment {
        if !self.fixed && self.seen >= DECIDE_ROWS {
            self.decide();
        } else if self.changed && self.mode == Mode::Aggregate {
            // What little came after the change is no epoch to judge by, nor a part of the next one.
            self.forget();
        }
        self.changed = false;
        self.sample.clear();
        self.table.seal()
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

    /// Times the mode has changed.
    pub fn switches(&self) -> u64 {
        self.switches
    }

    /// The table, for counters and recycling.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// Empties it for another window. It keeps its mode, until the new window shows better.
    pub fn clear(&mut self, pool: &mut ChunkPool) {
        self.table.clear(pool);
        self.changed = false;
        self.forget();
    }
}

/// Which keys there have been of those whose hashes fall into one of [`SAMPLED`] parts of their range: a
/// bit for each, which few share.
#[derive(Debug, Default)]
struct Sample {
    bits: Vec<u64>,
    set: usize,
}

/// One key in this many is sampled.
const SAMPLED: u64 = 16;
const SAMPLE_BITS: usize = 1 << 15;

impl Sample {
    /// Whether more keys would share bits too often.
    fn is_full(&self) -> bool {
        self.set >= SAMPLE_BITS / 4
    }

    /// About how many of these are the first with their key. It looks at bits that neither partitions nor
    /// the index go by.
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

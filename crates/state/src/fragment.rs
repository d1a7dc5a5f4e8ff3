//! Fragments: state held for another worker's partitions, aggregating or passing through.
//!
//! With few keys, aggregating shrinks a fragment to almost nothing. With mostly unique keys it
//! shrinks nothing, and the look-up is wasted: then rows are appended as they come and the leader
//! does all the merging. A fragment finds out which by looking.

use std::sync::Arc;

use crate::key::{Keys, VarKeys};
use crate::layout::RowLayout;
use crate::log::ChunkPool;
use crate::segment::Segment;
use crate::table::{Scratch, Table};
use crate::value::Block;

/// One batch in this many goes through the index while the fragment passes rows through.
const SAMPLE_EVERY: u32 = 16;
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
    batches: u32,
    /// Rows looked up since the last decision, and how many of them met a known key.
    looked_up: usize,
    repeated: usize,
    switches: u64,
}

impl Fragment {
    /// An empty fragment that decides by itself, or keeps to `mode` if one is given.
    pub fn new(layout: Arc<RowLayout>, mode: Option<Mode>) -> Fragment {
        Fragment {
            table: Table::new(layout),
            mode: mode.unwrap_or(Mode::Aggregate),
            fixed: mode.is_some(),
            batches: 0,
            looked_up: 0,
            repeated: 0,
            switches: 0,
        }
    }

    /// Begins the next batch of input: in pass-through mode, every 16th is a sample.
    pub fn begin_batch(&mut self) {
        self.batches = self.batches.wrapping_add(1);
        self.decide();
    }

    fn decide(&mut self) {
        if self.fixed || self.looked_up < DECIDE_ROWS {
            return;
        }
        let next = match self.mode {
            // Fewer than one row in four met its key: the look-ups cost more than they save.
            Mode::Aggregate if self.repeated * 4 < self.looked_up => Mode::PassThrough,
            // A sample finds only keys of earlier samples, so a small share is a strong sign.
            Mode::PassThrough if self.repeated * 8 > self.looked_up => Mode::Aggregate,
            mode => mode,
        };
        self.switches += u64::from(next != self.mode);
        (self.mode, self.looked_up, self.repeated) = (next, 0, 0);
    }

    /// Whether this batch's keys are looked up: in pass-through mode, only a sample is.
    fn looks_up(&self) -> bool {
        let sample = !self.fixed && self.batches.is_multiple_of(SAMPLE_EVERY);
        self.mode == Mode::Aggregate || sample
    }

    /// Asks for the cache lines in which a block of keys will be looked for, if it will be.
    pub fn prefetch(&self, hashes: &[u64]) {
        if self.looks_up() {
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
        if !self.looks_up() {
            return self.table.append(keys, pool, scratch);
        }
        let block = self.table.update(keys, pool, scratch);
        self.looked_up += keys.hashes.len();
        self.repeated += keys.hashes.len() - block.new_rows();
        block
    }

    /// Seals what has changed since the last time; the fragment starts again from empty.
    pub fn seal(&mut self) -> Segment {
        self.table.seal()
    }

    /// Rows since the last seal.
    pub fn rows(&self) -> usize {
        self.table.rows()
    }

    /// Bytes allocated.
    pub fn bytes(&self) -> usize {
        self.table.bytes()
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
        (self.looked_up, self.repeated) = (0, 0);
    }
}

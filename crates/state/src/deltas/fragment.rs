//! Fragments: a worker's state for the keys of one other leader. A fragment aggregates records or
//! passes them through.
//!
//! With few keys, aggregating shrinks a fragment to almost nothing. With mostly distinct keys, it
//! shrinks nothing, and the look-ups are wasted. Then rows are appended as they come, and the
//! leader does all the merging. The operator chooses the [`Mode`], once for all its fragments.

use std::fmt;
use std::sync::Arc;

use crate::memory::log::{CHUNK_ROWS, ChunkPool};
use crate::memory::scratch::Scratch;
use crate::table::key::{Keys, VarKeys};
use crate::table::keyed::Table;
use crate::table::layout::RowLayout;
use crate::table::segment::Segment;
use crate::table::value::Block;

/// Rows that are passed through are sent by themselves when there are so many at least.
const PASSED_ROWS_MIN: usize = 4 * CHUNK_ROWS;

/// Treatment of rows of other leaders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Keys are looked up in a joint table, beside the worker's own keys
    /// ([`Table::update_joint`]).
    Joint,
    /// Keys are looked up in their leader's fragment and updated in place.
    Aggregate,
    /// Rows are appended without look-up.
    PassThrough,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mode::Joint => "joint",
            Mode::Aggregate => "aggregate",
            Mode::PassThrough => "pass-through",
        })
    }
}

/// A worker's partial state for one leader's keys in one window slice.
#[derive(Debug)]
pub struct Fragment {
    table: Table,
    passes: bool,
}

impl Fragment {
    /// An empty fragment, which aggregates.
    pub fn new(layout: Arc<RowLayout>) -> Fragment {
        Fragment { table: Table::new(layout), passes: false }
    }

    /// Passes the next rows through, or aggregates them.
    pub fn pass(&mut self, passes: bool) {
        self.passes = passes;
    }

    /// Asks for the cache lines in which a block of keys will be looked for, if it will be.
    pub fn prefetch(&self, hashes: &[u64]) {
        if !self.passes {
            self.table.prefetch(hashes);
        }
    }

    /// True if the fragment looks keys up without hashes.
    pub fn is_direct(&self) -> bool {
        !self.passes && self.table.is_direct()
    }

    /// Takes in a block of keys and returns their rows for updating. Hashes may be absent where
    /// the fragment [looks keys up without hashes](Fragment::is_direct).
    pub fn update<'t, V: VarKeys>(
        &'t mut self,
        keys: &Keys<'_, V>,
        pool: &mut ChunkPool,
        scratch: &'t mut Scratch,
    ) -> Block<'t> {
        match self.passes {
            true => self.table.append(keys, pool, scratch),
            false => self.table.update(keys, pool, scratch),
        }
    }

    /// Seals the present rows, if there are any; the fragment starts again from empty.
    pub fn seal(&mut self) -> Option<Segment> {
        (self.rows() > 0).then(|| self.table.seal())
    }

    /// Bytes of rows that have been passed through, if they are enough to be sent by themselves.
    pub fn passed_bytes(&self) -> usize {
        let passed = self.passes && self.rows() >= PASSED_ROWS_MIN;
        if passed { self.table.live_bytes() } else { 0 }
    }

    /// Rows since the last seal.
    pub fn rows(&self) -> usize {
        self.table.rows()
    }

    /// Bytes allocated.
    pub fn bytes(&self) -> usize {
        self.table.bytes()
    }

    /// The table, for counters and recycling.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// Empties the fragment for another window.
    pub fn clear(&mut self, pool: &mut ChunkPool) {
        self.table.clear(pool);
    }
}

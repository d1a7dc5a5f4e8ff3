//! Windows that cumulate: each has what the one before had, if they began together, and its last
//! pane.

use millstream_state::{CHUNK_ROWS, ChunkPool, Scratch, Table};

use super::combine::{Combine, STEP_ROWS, Waiting};
use super::fire::{Finisher, ResultRows};
use super::grouping::Grouping;
use super::slices::Slices;
use crate::budget::Usage;
use crate::error::Result;
use crate::operator::{Firing, Step};
use crate::windowing::{SliceId, WindowId};

/// What has cumulated.
pub(super) struct Cumulating {
    table: Table,
    pool: ChunkPool,
    scratch: Scratch,
    /// The latest slice that is kept, and the window after the last that has fired, if that needs
    /// what is kept.
    newest: Option<SliceId>,
    next: Option<WindowId>,
    fire: Option<Fire>,
}

/// A window that fires.
struct Fire {
    window: WindowId,
    waiting: Waiting,
    /// The next block of rows to be read.
    block: usize,
    rows: ResultRows,
}

impl Cumulating {
    pub(super) fn new(grouping: &Grouping, pool_bytes: usize) -> Cumulating {
        Cumulating {
            table: Table::new(grouping.layout.clone()),
            pool: ChunkPool::new(grouping.layout.row_words(), pool_bytes, None),
            scratch: Scratch::default(),
            newest: None,
            next: None,
            fire: None,
        }
    }
}

impl Combine for Cumulating {
    fn next_window(&self) -> Option<WindowId> {
        self.next
    }

    fn begin(&mut self, window: WindowId, slices: Vec<(SliceId, Table)>, grouping: &Grouping) {
        self.newest = slices.last().map(|(slice, _)| *slice).or(self.newest);
        self.next = self.newest.and_then(|newest| grouping.windowing.window_after(window, newest));
        let rows = ResultRows::of(window, CHUNK_ROWS, grouping);
        self.fire = Some(Fire { window, waiting: Waiting::new(slices), block: 0, rows });
    }

    fn firing(&self) -> Option<Firing> {
        let fire = self.fire.as_ref()?;
        Some(Firing {
            window: fire.window,
            live_bytes: self.table.live_bytes() as u64 + fire.waiting.live_bytes(),
        })
    }

    fn step(
        &mut self,
        grouping: &Grouping,
        finisher: &Finisher,
        slices: &mut Slices,
    ) -> Result<Step> {
        let Cumulating { table, pool, scratch, fire: Some(fire), .. } = self else {
            return Ok(Step::Over);
        };
        let spent = fire.waiting.take(STEP_ROWS, slices, |_, of_slice, block| {
            table.merge_block(of_slice, block, pool, scratch);
        });
        if !fire.waiting.is_empty() || spent >= STEP_ROWS {
            return Ok(Step::Working);
        }
        if fire.is_over(table) {
            return Ok(Step::Over);
        }
        if !fire.rows.are_left() {
            let rows = table.scan(fire.block);
            fire.block += 1;
            fire.rows.decode(grouping, finisher, &rows)?;
        }
        let rows = fire.rows.project(finisher)?;
        Ok(Step::Rows { rows, times: None, last: fire.is_over(table) })
    }

    fn end(&mut self, slices: &mut Slices) {
        if let Some(mut fire) = self.fire.take() {
            fire.waiting.drop_all(slices);
        }
        if self.next.is_none() {
            self.table.clear(&mut self.pool);
            self.newest = None;
        }
    }

    fn newest(&self) -> Option<SliceId> {
        self.newest
    }

    fn add_usage(&self, usage: &mut Usage) {
        usage.bytes += (self.table.bytes() + self.pool.bytes()) as u64;
        usage.live_bytes += self.table.live_bytes() as u64;
        usage.keys += self.table.rows() as u64;
        if let Some(fire) = &self.fire {
            fire.waiting.add_usage(usage);
            let growth_bytes = self.table.growth_bytes(fire.waiting.load()) as u64;
            usage.growth_bytes = usage.growth_bytes.max(growth_bytes);
        }
    }

    fn give_back(&mut self) {
        self.pool.release();
    }
}

impl Fire {
    fn is_over(&self, table: &Table) -> bool {
        self.waiting.is_empty() && !self.rows.are_left() && self.block >= table.scan_blocks()
    }
}

//! Windows of several slices: what they have in common is combined once, and kept.

use millstream_state::{Load, Overlap, Table};

use super::cumulate::Cumulating;
use super::fire::Finisher;
use super::grouping::Grouping;
use super::hop::Hopping;
use super::session::Sessioning;
use super::slices::Slices;
use super::spreading::Spreading;
use super::unpacking::Unpacking;
use crate::budget::Usage;
use crate::error::Result;
use crate::operator::{Firing, Step};
use crate::windowing::{Combining, SliceId, WindowId};

/// Rows of state that are looked at in one step.
pub(super) const STEP_ROWS: usize = 1 << 12;

/// What one worker keeps of slices that are complete, for all windows that need them, and the
/// window that fires.
pub(super) trait Combine: Send {
    /// The window that fires next, if nothing but what is kept is looked at.
    fn next_window(&self) -> Option<WindowId>;

    /// Begins to fire a window, which is the first to need these slices; the latest of them come
    /// last. Windows come in order.
    fn begin(&mut self, window: WindowId, slices: Vec<(SliceId, Table)>, grouping: &Grouping);

    /// The window that fires.
    fn firing(&self) -> Option<Firing>;

    /// Goes on with it. Tables that have been read go back to `slices`.
    fn step(
        &mut self,
        grouping: &Grouping,
        finisher: &Finisher,
        slices: &mut Slices,
    ) -> Result<Step>;

    /// It has fired, or nobody wants its rows.
    fn end(&mut self, slices: &mut Slices);

    /// The latest slice that is kept.
    fn newest(&self) -> Option<SliceId>;

    /// Adds what is kept.
    fn add_usage(&self, usage: &mut Usage);

    /// Memory is scarce: gives back what is not needed.
    fn give_back(&mut self);
}

/// `None`: a window is one slice.
pub(super) fn of(grouping: &Grouping, pool_bytes: usize) -> Option<Box<dyn Combine>> {
    Some(match grouping.windowing.combining() {
        Combining::OneSlice => return None,
        Combining::Sessions { gap_us } => Box::new(Sessioning::new(grouping, gap_us, pool_bytes)),
        Combining::Hop => Box::new(Hopping::new(grouping, pool_bytes)),
        Combining::Cumulate => Box::new(Cumulating::new(grouping, pool_bytes)),
        Combining::FewPanes => Box::new(Spreading::new(grouping, pool_bytes)),
        Combining::ManyPanes { count, hop } => {
            let overlap = if hop { Overlap::Hop(count) } else { Overlap::Cumulate(count) };
            Box::new(Unpacking::new(grouping, overlap, pool_bytes))
        }
    })
}

/// Slices that have been taken out and wait to be combined.
#[derive(Default)]
pub(super) struct Waiting {
    slices: std::collections::VecDeque<(SliceId, Table)>,
    /// The next block of the first.
    block: usize,
}

impl Waiting {
    pub(super) fn new(slices: Vec<(SliceId, Table)>) -> Waiting {
        Waiting { slices: slices.into(), block: 0 }
    }

    /// Gives blocks of rows to `take` until there are none left or there have been so many rows;
    /// returns how many there were. What has been read goes back to `slices`.
    pub(super) fn take(
        &mut self,
        rows_max: usize,
        slices: &mut Slices,
        mut take: impl FnMut(SliceId, &Table, usize),
    ) -> usize {
        let mut rows = 0;
        while let Some((slice, table)) = self.slices.front().filter(|_| rows < rows_max) {
            if self.block < table.scan_blocks() {
                rows += table.scan_rows(self.block);
                take(*slice, table, self.block);
                self.block += 1;
            }
            if self.block >= table.scan_blocks()
                && let Some((_, table)) = self.slices.pop_front()
            {
                self.block = 0;
                slices.recycle(table);
            }
        }
        rows
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slices.is_empty()
    }

    /// What a step may take of it.
    pub(super) fn load(&self) -> Load {
        let rows: usize = self.slices.iter().map(|(_, table)| table.rows()).sum();
        Load::rows(rows.min(STEP_ROWS))
    }

    /// Rows, and bytes of keys and values.
    pub(super) fn add_usage(&self, usage: &mut Usage) {
        for (_, table) in &self.slices {
            usage.bytes += table.bytes() as u64;
            usage.live_bytes += table.live_bytes() as u64;
            usage.keys += table.rows() as u64;
        }
    }

    pub(super) fn live_bytes(&self) -> u64 {
        self.slices.iter().map(|(_, table)| table.live_bytes() as u64).sum()
    }

    /// Nobody wants what is left.
    pub(super) fn drop_all(&mut self, slices: &mut Slices) {
        self.slices.drain(..).for_each(|(_, table)| slices.recycle(table));
        self.block = 0;
    }
}

//! Windows that hop: their panes are combined by two stacks ([`Sliding`]).

use millstream_state::{CHUNK_ROWS, Sliding, Table};

use super::combine::{Combine, STEP_ROWS, Waiting};
use super::fire::{Finisher, ResultRows};
use super::grouping::Grouping;
use super::slices::Slices;
use crate::budget::Usage;
use crate::error::Result;
use crate::operator::{Firing, Step};
use crate::windowing::{SliceId, WindowId};

/// What is kept of panes that are complete.
pub(super) struct Hopping {
    panes: Sliding,
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

impl Hopping {
    pub(super) fn new(grouping: &Grouping, pool_bytes: usize) -> Hopping {
        let panes = Sliding::new(grouping.layout.clone(), pool_bytes);
        Hopping { panes, newest: None, next: None, fire: None }
    }
}

impl Combine for Hopping {
    fn next_window(&self) -> Option<WindowId> {
        self.next
    }

    fn begin(&mut self, window: WindowId, slices: Vec<(SliceId, Table)>, grouping: &Grouping) {
        let windowing = &grouping.windowing;
        let panes = windowing.panes_of(window);
        self.panes.begin(*panes.start(), *panes.end());
        let latest = |a: &SliceId, b: &SliceId| windowing.pane_of(*a).cmp(&windowing.pane_of(*b));
        let all = slices.iter().map(|(slice, _)| *slice).chain(self.newest);
        self.newest = all.max_by(latest);
        self.next = self.newest.and_then(|newest| windowing.window_after(window, newest));
        let rows = ResultRows::of(window, CHUNK_ROWS, grouping);
        self.fire = Some(Fire { window, waiting: Waiting::new(slices), block: 0, rows });
    }

    fn firing(&self) -> Option<Firing> {
        let fire = self.fire.as_ref()?;
        Some(Firing {
            window: fire.window,
            live_bytes: self.panes.live_bytes() as u64 + fire.waiting.live_bytes(),
        })
    }

    fn step(
        &mut self,
        grouping: &Grouping,
        finisher: &Finisher,
        slices: &mut Slices,
    ) -> Result<Step> {
        let Hopping { panes, fire: Some(fire), .. } = self else { return Ok(Step::Over) };
        let mut spent = 0;
        while spent < STEP_ROWS && panes.prepare() {
            spent += panes.rows().min(STEP_ROWS);
        }
        if spent < STEP_ROWS {
            spent += fire.waiting.take(STEP_ROWS - spent, slices, |slice, table, block| {
                panes.absorb(grouping.windowing.pane_of(slice), table, block);
            });
        }
        if !fire.waiting.is_empty() || spent >= STEP_ROWS {
            return Ok(Step::Working);
        }
        if fire.is_over(panes) {
            return Ok(Step::Over);
        }
        if !fire.rows.are_left() {
            let rows = panes.read(fire.block);
            fire.block += 1;
            fire.rows.decode(grouping, finisher, &rows)?;
        }
        let rows = fire.rows.project(finisher)?;
        Ok(Step::Rows { rows, times: None, last: fire.is_over(panes) })
    }

    fn end(&mut self, slices: &mut Slices) {
        let Some(mut fire) = self.fire.take() else { return };
        fire.waiting.drop_all(slices);
        self.panes.end(self.next.is_some());
        if self.panes.is_empty() {
            (self.newest, self.next) = (None, None);
        }
    }

    fn newest(&self) -> Option<SliceId> {
        self.newest
    }

    fn add_usage(&self, usage: &mut Usage) {
        usage.bytes += self.panes.bytes() as u64;
        usage.live_bytes += self.panes.live_bytes() as u64;
        usage.keys += self.panes.rows() as u64;
        if let Some(fire) = &self.fire {
            fire.waiting.add_usage(usage);
            let growth_bytes = self.panes.growth_bytes(fire.waiting.load()) as u64;
            usage.growth_bytes = usage.growth_bytes.max(growth_bytes);
        }
    }

    fn give_back(&mut self) {
        self.panes.release();
    }
}

impl Fire {
    fn is_over(&self, panes: &Sliding) -> bool {
        self.waiting.is_empty() && !self.rows.are_left() && self.block >= panes.read_blocks()
    }
}

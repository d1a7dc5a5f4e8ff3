//! Windows of many panes, of which a slice packs some: they are made pane by pane ([`Unpack`]), and
//! those that end with the panes of a slice fire together.

use millstream_state::{Overlap, Table, Unpack};

use super::combine::{Combine, STEP_ROWS};
use super::fire::{Finisher, ResultRows};
use super::grouping::Grouping;
use super::slices::Slices;
use super::spreading::reach;
use crate::budget::Usage;
use crate::error::Result;
use crate::operator::{Firing, Step};
use crate::windowing::{SliceId, WindowId};

/// What is kept of slices that are complete.
pub(super) struct Unpacking {
    rows: Unpack,
    /// The word of a row that says which window it is of.
    word: usize,
    /// The slice that is kept and reaches farthest, and what fires after the last, if that needs
    /// what is kept.
    newest: Option<SliceId>,
    next: Option<WindowId>,
    fire: Option<Fire>,
}

/// Windows that fire together.
struct Fire {
    window: WindowId,
    /// Which slices they are the first of.
    slices: Vec<SliceId>,
    /// The pane with which the last of them ends.
    last: i64,
    rows: ResultRows,
}

impl Unpacking {
    pub(super) fn new(grouping: &Grouping, overlap: Overlap, pool_bytes: usize) -> Unpacking {
        Unpacking {
            rows: Unpack::new(grouping.layout.clone(), overlap, pool_bytes),
            word: grouping.window_word.unwrap_or_default(),
            newest: None,
            next: None,
            fire: None,
        }
    }
}

impl Combine for Unpacking {
    fn next_window(&self) -> Option<WindowId> {
        self.next
    }

    fn begin(&mut self, window: WindowId, slices: Vec<(SliceId, Table)>, grouping: &Grouping) {
        let windowing = &grouping.windowing;
        let (slices, tables): (Vec<_>, Vec<_>) = slices.into_iter().unzip();
        self.newest =
            slices.iter().copied().chain(self.newest).max_by_key(|slice| reach(windowing, *slice));
        self.next = self.newest.and_then(|newest| windowing.window_after(window, newest));
        let left = self.rows.begin(tables);
        debug_assert!(left.is_empty(), "tables of windows that have fired");
        let (last, rows) = (windowing.last_end_in(window), ResultRows::of(window, 0, grouping));
        self.fire = Some(Fire { window, slices, last, rows });
    }

    fn firing(&self) -> Option<Firing> {
        let fire = self.fire.as_ref()?;
        Some(Firing { window: fire.window, live_bytes: self.rows.live_bytes() as u64 })
    }

    fn step(&mut self, grouping: &Grouping, finisher: &Finisher, _: &mut Slices) -> Result<Step> {
        let Unpacking { rows, word, fire: Some(fire), .. } = self else {
            return Ok(Step::Over);
        };
        if !fire.rows.are_left() {
            if !fire.go_on(rows, grouping) {
                return Ok(Step::Working);
            }
            let block = rows.ready();
            if block.is_empty() {
                return Ok(Step::Over);
            }
            let ends = block.collect(*word, |word| word as i64);
            let bounds = grouping.windowing.columns_from(ends);
            fire.rows.decode_bounded(grouping, finisher, &block, bounds)?;
            rows.clear_ready();
        }
        let (given, times) = fire.rows.project_bounded(finisher)?;
        Ok(Step::Rows { rows: given, times: Some(times), last: fire.is_over(rows) })
    }

    fn end(&mut self, slices: &mut Slices) {
        let Some(fire) = self.fire.take() else { return };
        // Nobody wants its rows, or no later window needs what is kept.
        if !fire.is_over(&self.rows) || self.next.is_none() {
            self.rows.forget();
        }
        self.rows.begin(vec![]).into_iter().for_each(|table| slices.recycle(table));
        if self.rows.is_empty() {
            (self.newest, self.next) = (None, None);
        }
    }

    fn newest(&self) -> Option<SliceId> {
        self.newest
    }

    fn add_usage(&self, usage: &mut Usage) {
        usage.bytes += self.rows.bytes() as u64;
        usage.live_bytes += self.rows.live_bytes() as u64;
        usage.keys += self.rows.rows() as u64;
        if self.fire.is_some() {
            let growth_bytes = self.rows.growth_bytes(STEP_ROWS) as u64;
            usage.growth_bytes = usage.growth_bytes.max(growth_bytes);
        }
    }

    fn give_back(&mut self) {
        self.rows.release();
    }
}

impl Fire {
    /// Does a part of what makes windows; whether rows are ready, or all have been made.
    fn go_on(&self, rows: &mut Unpack, grouping: &Grouping) -> bool {
        let windowing = &grouping.windowing;
        let panes = |table: usize, start: u64| match self.slices.get(table) {
            Some(slice) => windowing.panes_from(*slice, start as i64),
            None => [0, 0],
        };
        let mut spent = 0;
        while spent < STEP_ROWS {
            spent += match rows.note(panes) {
                Some(noted) => noted,
                None if rows.is_full() || rows.are_made(self.last) => return true,
                None => rows.go_on(self.last, STEP_ROWS - spent),
            };
        }
        false
    }

    fn is_over(&self, rows: &Unpack) -> bool {
        !self.rows.are_left() && rows.ready().is_empty() && rows.are_made(self.last)
    }
}

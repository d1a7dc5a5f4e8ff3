//! Windows of several panes, of which a slice packs many: each row is merged into the rows of the
//! windows that it counts for ([`Spread`]), and what ends with the panes of a slice fires together.

use millstream_state::{Load, Spread, Table};

use super::combine::{Combine, STEP_ROWS};
use super::fire::{Finisher, ResultRows};
use super::grouping::Grouping;
use super::slices::Slices;
use crate::budget::Usage;
use crate::error::Result;
use crate::operator::{Firing, Step};
use crate::windowing::{SliceId, WindowId, Windowing};

/// Windows are made all at once if these are no more rows than lie in a near cache.
const TOGETHER_ROWS: usize = 1 << 14;

/// What is kept of slices that are complete.
pub(super) struct Spreading {
    rows: Spread,
    /// Windows that a row counts for, at the most.
    windows_of_row: i64,
    /// The word of a row that says which window it is of.
    word: usize,
    /// The latest slice that is kept, and what fires after the last, if that needs what is kept.
    newest: Option<SliceId>,
    next: Option<WindowId>,
    fire: Option<Fire>,
}

/// Windows that fire together.
struct Fire {
    window: WindowId,
    /// Which slices they are the first of.
    slices: Vec<SliceId>,
    /// The pane with which the last of those ends that are made now, and of all.
    until: Option<i64>,
    last: i64,
    /// Whether all that are made now are ready, and the next block of them.
    ready: bool,
    block: usize,
    rows: ResultRows,
}

impl Spreading {
    pub(super) fn new(grouping: &Grouping, pool_bytes: usize) -> Spreading {
        let word = grouping.window_word.unwrap_or_default();
        Spreading {
            rows: Spread::new(grouping.layout.clone(), word, pool_bytes),
            windows_of_row: grouping.windowing.windows_of_row() as i64,
            word,
            newest: None,
            next: None,
            fire: None,
        }
    }
}

/// How far a slice reaches: the last name under which windows fire that it serves.
pub(super) fn reach(windowing: &Windowing, slice: SliceId) -> Option<WindowId> {
    windowing.windows_of(slice).last()
}

impl Combine for Spreading {
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
        self.fire = Some(Fire {
            window,
            slices,
            until: None,
            last: windowing.last_end_in(window),
            ready: false,
            block: 0,
            rows: ResultRows::of(window, 0, grouping),
        });
    }

    fn firing(&self) -> Option<Firing> {
        let fire = self.fire.as_ref()?;
        Some(Firing { window: fire.window, live_bytes: self.rows.live_bytes() as u64 })
    }

    fn step(&mut self, grouping: &Grouping, finisher: &Finisher, _: &mut Slices) -> Result<Step> {
        let Spreading { rows, windows_of_row, word, fire: Some(fire), .. } = self else {
            return Ok(Step::Over);
        };
        let mut spent = 0;
        while !fire.rows.are_left() {
            if fire.is_over(rows) {
                return Ok(Step::Over);
            }
            if spent >= STEP_ROWS {
                return Ok(Step::Working);
            }
            if fire.ready && fire.block < rows.ready_blocks() {
                let block = rows.ready(fire.block);
                fire.block += 1;
                let ends = block.collect(*word, |word| word as i64);
                let bounds = grouping.windowing.columns_from(ends);
                fire.rows.decode_bounded(grouping, finisher, &block, bounds)?;
                break;
            }
            spent += fire.prepare(rows, *windows_of_row, &grouping.windowing, STEP_ROWS - spent);
        }
        let (given, times) = fire.rows.project_bounded(finisher)?;
        Ok(Step::Rows { rows: given, times: Some(times), last: fire.is_over(rows) })
    }

    fn end(&mut self, slices: &mut Slices) {
        if self.fire.take().is_none() {
            return;
        }
        self.rows.go_on();
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
            let made = self.rows.rows().saturating_mul(self.windows_of_row as usize);
            let load = Load::rows(made.min(STEP_ROWS + self.windows_of_row as usize));
            let growth_bytes = self.rows.growth_bytes(load) as u64;
            usage.growth_bytes = usage.growth_bytes.max(growth_bytes);
        }
    }

    fn give_back(&mut self) {
        self.rows.release();
    }
}

impl Fire {
    fn is_over(&self, rows: &Spread) -> bool {
        let is_last = self.ready && self.until == Some(self.last);
        is_last && !self.rows.are_left() && self.block >= rows.ready_blocks()
    }

    /// Does a part of what makes windows ready; returns how many rows were looked at.
    fn prepare(
        &mut self,
        rows: &mut Spread,
        width: i64,
        windowing: &Windowing,
        rows_max: usize,
    ) -> usize {
        let slices = &self.slices;
        let ends = |table: usize, start: u64| match slices.get(table) {
            Some(slice) => windowing.ends_of(*slice, start as i64),
            None => [0, -1],
        };
        if let Some(noted) = rows.note(ends) {
            return noted;
        }
        let until = match self.until {
            Some(until) if !self.ready => until,
            until => {
                if until.is_some() {
                    rows.go_on();
                }
                (self.ready, self.block) = (false, 0);
                *self.until.insert(self.next_until(until, rows, width))
            }
        };
        let made = rows.spread(until, rows_max);
        self.ready = made == 0;
        made
    }

    /// The pane with which the last of the windows ends that are made next. What has been made for
    /// windows after `before` already is among them.
    fn next_until(&self, before: Option<i64>, rows: &Spread, width: i64) -> i64 {
        if before.is_none() && rows.made() <= TOGETHER_ROWS {
            return self.last;
        }
        let Some(next) = rows.next_end() else { return self.last };
        let after = before.map_or(next, |before| next.max(before + 1));
        // Carried over from the slice before, too, are windows of less than a width.
        match after.saturating_add(2 * width) > self.last {
            true => self.last,
            false => after + width - 1,
        }
    }
}

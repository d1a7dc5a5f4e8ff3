//! Firing windows: what windows of several slices have in common is combined once, and kept; the
//! rows of a window become result rows block by block.
//!
//! Firing is a coroutine. Each step turns one block of state into one batch of rows, so a large
//! window does not keep the worker from merging or from processing input.

use std::collections::BTreeMap;
use std::sync::Arc;

use millstream_state::{CHUNK_ROWS, Combiner, Overlap, Panes, RowsRef, Sessions, Single, Table};

use super::grouping::Grouping;
use super::over::Over;
use super::slices::Slices;
use crate::budget::Usage;
use crate::error::Result;
use crate::operator::aside::AsideTables;
use crate::operator::finish::{Finisher, ResultRows};
use crate::operator::saved::Since;
use crate::operator::{Firing, Room, Step};
use crate::windowing::{Combining, SliceId, WindowId, Windowing, time_before};

/// Rows of state that are looked at in one step.
const STEP_ROWS: usize = 1 << 12;

/// The rows that one worker keeps of slices that are complete, for all windows that need them, and
/// the window that fires.
pub(super) struct Combined {
    rows: Box<dyn Combiner>,
    combining: Combining,
    bounds: BoundsSource,
    /// The slice of these rows that reaches farthest, and the last window that has fired; `None`:
    /// no rows are kept.
    newest: Option<SliceId>,
    last: Option<WindowId>,
    fire: Option<FiringGroups>,
    /// Slices that later windows need, as they were when they fired; `None`: they are not saved.
    slices: Option<KeptSlices>,
}

/// Fired slices, with the cut that has their rows.
type KeptSlices = BTreeMap<SliceId, (Since, Arc<Table>)>;

/// Where the bounds of the windows of rows stand.
#[derive(Clone, Copy)]
enum BoundsSource {
    /// All rows are of the window that fires.
    OfWindow,
    /// In a word of each row ([`Windowing::columns_from`]).
    InWord(usize),
    /// In two words of each row, when the first and the last record of its session came.
    InTimes { words: [usize; 2], gap_us: i64 },
}

/// A window that fires, or windows that fire together.
struct FiringGroups {
    window: WindowId,
    /// The slices that it is the first to need, and how far the first and the last of the windows
    /// reach.
    slices: Vec<(SliceId, Since)>,
    from: i64,
    until: i64,
    /// Rows that are ready, as far as they have not been read.
    over: Option<Over>,
    rows: ResultRows,
}

impl Combined {
    pub(super) fn new(grouping: &Grouping, room: &Room) -> Combined {
        let pool_bytes = room.pool_bytes;
        let (layout, word) = (grouping.layout.clone(), grouping.window_word);
        let combining = grouping.windowing.combining();
        let mut bounds = word.map_or(BoundsSource::OfWindow, BoundsSource::InWord);
        let rows: Box<dyn Combiner> = match combining {
            Combining::OneSlice => Box::new(Single::new(layout)),
            Combining::Panes { count, hop } => {
                let overlap = if hop { Overlap::Hop(count) } else { Overlap::Cumulate(count) };
                Box::new(Panes::new(layout, overlap, word.is_some(), pool_bytes))
            }
            Combining::Sessions { gap_us } => {
                let layout = match word {
                    None => layout,
                    Some(_) => Arc::new(layout.without_last_key_word()),
                };
                // There are such values where windows are sessions.
                let times = grouping.session_times.unwrap_or_default().map(|n| layout.values()[n]);
                bounds = BoundsSource::InTimes { words: times.map(|slot| slot.word), gap_us };
                Box::new(Sessions::new(layout, times, word, gap_us, pool_bytes))
            }
        };
        let keeps = room.keeps_slices && matches!(combining, Combining::Panes { .. });
        let slices = keeps.then(BTreeMap::new);
        Combined { rows, combining, bounds, newest: None, last: None, fire: None, slices }
    }

    /// The window that fires next, if nothing but the rows that are kept is looked at.
    pub(super) fn next_window(&self, windowing: &Windowing) -> Option<WindowId> {
        windowing.window_after(self.last?, self.newest?)
    }

    /// Begins to fire a window, which is the first to need these slices; the latest of them come
    /// last. Windows come in order. False if there is nothing of it.
    pub(super) fn begin(
        &mut self,
        window: WindowId,
        slices: Vec<((SliceId, Since), Table)>,
        grouping: &Grouping,
    ) -> bool {
        if self.combining == Combining::OneSlice && slices.is_empty() {
            return false;
        }
        let windowing = &grouping.windowing;
        let (slices, tables): (Vec<_>, Vec<_>) = slices.into_iter().unzip();
        let reach = |slice: &SliceId| windowing.last_window_of(*slice);
        let names = slices.iter().map(|(slice, _)| *slice);
        self.newest = self.newest.into_iter().chain(names).max_by_key(reach);
        self.last = Some(window);
        self.rows.begin(tables);
        let (from, until) = (windowing.first_end_in(window), windowing.last_end_in(window));
        let columns = windowing.columns_of(window);
        let rows = ResultRows::bounded(columns, self.rows.rows().min(CHUNK_ROWS));
        self.fire = Some(FiringGroups { window, slices, from, until, over: None, rows });
        true
    }

    /// The window that fires.
    pub(super) fn firing(&self) -> Option<Firing> {
        let fire = self.fire.as_ref()?;
        Some(Firing { window: fire.window, live_bytes: self.rows.live_bytes() as u64 })
    }

    /// Goes on with it. Tables that have been read go back to `slices`.
    pub(super) fn step(
        &mut self,
        grouping: &Grouping,
        finisher: &Finisher,
        slices: &mut Slices,
    ) -> Result<Step> {
        let Combined { rows, bounds, fire: Some(fire), slices: kept, .. } = self else {
            return Ok(Step::Over);
        };
        let mut spent = 0;
        while !fire.rows.are_left() {
            if let Some(over) = &mut fire.over {
                spent += over.read(grouping, finisher, &rows.ready(), &mut fire.rows)?;
                if over.is_read() {
                    fire.over = None;
                    rows.clear_ready();
                }
            } else if !rows.is_full() && !rows.are_made(fire.until) {
                if spent >= STEP_ROWS {
                    return Ok(Step::Working);
                }
                spent += fire.go_on(&mut **rows, STEP_ROWS - spent, &grouping.windowing);
                fire.put_back(rows.read_slices(), kept, slices);
            } else if rows.ready().is_empty() {
                return Ok(Step::Over);
            } else {
                let (ready, are_sessions) =
                    (rows.ready(), matches!(bounds, BoundsSource::InTimes { .. }));
                let bounds = bounds.of(&ready, &grouping.windowing);
                fire.over = Some(Over::new(ready.len(), bounds, are_sessions, finisher));
            }
        }
        let (result, times) = fire.rows.project(finisher)?;
        Ok(Step::Rows { rows: result, times, last: fire.is_over(&**rows) })
    }

    /// It has fired, or nobody wants its rows.
    pub(super) fn end(&mut self, windowing: &Windowing, slices: &mut Slices) {
        let Some(fire) = self.fire.take() else { return };
        let left = self.rows.end(fire.until, self.next_window(windowing).is_some());
        fire.put_back(left, &mut self.slices, slices);
        if self.rows.is_empty() {
            (self.newest, self.last) = (None, None);
        }
        let is_over =
            |slice: &SliceId| self.last.is_none_or(|w| windowing.last_window_of(*slice) <= w);
        if let Some(kept) = &mut self.slices {
            let over = kept.extract_if(.., |slice, _| is_over(slice));
            // A table that a checkpoint has still to save is dropped there.
            let tables = over.filter_map(|(_, (_, table))| Arc::into_inner(table));
            tables.for_each(|table| slices.recycle(table));
        }
    }

    /// Sets aside open sessions, as rows of the last slice that has fired, and slices that have
    /// fired and that later windows need, but for those that an earlier cut has.
    pub(super) fn set_aside(&mut self, grouping: &Grouping, to: &mut AsideTables) {
        if let (Some(last), Combining::Sessions { .. }) = (self.last, self.combining)
            && let Some(open) = self.rows.copy_open(&grouping.layout)
        {
            to.copy(*grouping.windowing.slices_of(last).end(), open);
        }
        for (slice, (since, table)) in self.slices.iter_mut().flatten() {
            if table.rows() > 0 && !to.leave_out(*slice, since) {
                to.share(*slice, table.clone());
            }
        }
    }

    /// The latest slice that is kept.
    pub(super) fn newest(&self) -> Option<SliceId> {
        self.newest.filter(|_| matches!(self.combining, Combining::Panes { .. }))
    }

    /// Adds the rows that are kept.
    pub(super) fn add_usage(&self, usage: &mut Usage) {
        let kept = || self.slices.iter().flat_map(BTreeMap::values);
        let sum = |part: fn(&Table) -> usize| kept().map(|(_, table)| part(table)).sum::<usize>();
        usage.bytes += (self.rows.bytes() + sum(Table::bytes)) as u64;
        usage.live_bytes += (self.rows.live_bytes() + sum(Table::live_bytes)) as u64;
        usage.keys += self.rows.rows() as u64;
        if self.fire.is_some() {
            let growth_bytes = self.rows.growth_bytes(STEP_ROWS) as u64;
            usage.growth_bytes = usage.growth_bytes.max(growth_bytes);
        }
    }

    /// Memory is scarce: gives back memory that is not needed.
    pub(super) fn give_back(&mut self) {
        self.rows.release();
    }
}

impl BoundsSource {
    /// Starts, ends and event times of the windows of rows; `None`: those of the window that fires.
    fn of(self, rows: &RowsRef<'_>, windowing: &Windowing) -> Option<[Vec<i64>; 3]> {
        let us = |word: u64| word as i64;
        match self {
            BoundsSource::OfWindow => None,
            BoundsSource::InWord(word) => Some(windowing.columns_from(rows.collect(word, us))),
            BoundsSource::InTimes { words: [first, last], gap_us } => {
                let ends: Vec<i64> = rows.collect(last, |word| us(word).saturating_add(gap_us));
                let times = ends.iter().map(|end| time_before(*end)).collect();
                Some([rows.collect(first, us), ends, times])
            }
        }
    }
}

impl FiringGroups {
    fn go_on(&self, rows: &mut dyn Combiner, rows_max: usize, windowing: &Windowing) -> usize {
        let pane_of = |slice: usize, start: u64| match self.slices.get(slice) {
            Some((slice, _)) => windowing.panes_from(*slice, start as i64, self.from),
            None => [0, -1],
        };
        rows.go_on(self.until, rows_max, &pane_of)
    }

    /// Slices that have been read are kept, or their memory goes back.
    fn put_back(
        &self,
        read: Vec<(usize, Table)>,
        kept: &mut Option<KeptSlices>,
        slices: &mut Slices,
    ) {
        for (number, table) in read {
            match (kept.as_mut(), self.slices.get(number)) {
                (Some(kept), Some((slice, since))) => {
                    kept.insert(*slice, (*since, Arc::new(table)));
                }
                _ => slices.recycle(table),
            }
        }
    }

    fn is_over(&self, rows: &dyn Combiner) -> bool {
        let is_read = !self.rows.are_left() && self.over.is_none() && rows.ready().is_empty();
        is_read && rows.are_made(self.until)
    }
}

//! The program of a join: its sides, and in which windows the rows of a batch belong.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{FieldRef, Schema, SchemaRef};
use millstream_state::RowLayout;

use super::explain;
use super::sides::JoinSide;
use crate::columns::order::Ordering;
use crate::columns::with_column;
use crate::error::Result;
use crate::expr::Expr;
use crate::operator::assign::event_times;
use crate::operator::counted::{Buffers, assign_rows};
use crate::operator::finish::Finisher;
use crate::operator::record_order::{times_of, with_order};
use crate::operator::{Batch, BySlice, Passing, Rows};
use crate::plan::{self, Cumulate, JoinKind, Window};
use crate::windowing::{SliceId, WindowId, Windowing};

/// Where rows meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meeting {
    /// At the leaders of their keys.
    Keys,
    /// At the leaders of their slices ([`plan::Interval::has_leaders_of_slices`]).
    Slices(Windowing),
    /// Where the other side's rows are: all leaders have the rows of this one.
    Broadcast(usize),
}

/// A join in executable form.
#[derive(Debug)]
pub struct JoinProgram {
    pub(super) name: String,
    pub(super) kind: JoinKind,
    pub(super) window: Option<Window>,
    /// In which a slice is a window.
    pub(super) windowing: Windowing,
    /// How records are assigned to windows.
    pub(super) assigning: Windowing,
    pub(super) left_inputs: usize,
    pub(super) sides: [JoinSide; 2],
    pub(super) condition: Option<Expr>,
    pub(super) nulls_are_equal: bool,
    pub(super) meeting: Meeting,
    /// Whether it is a temporal join.
    pub(super) as_of: bool,
    /// The columns of a pair, and those of what is given.
    pub(super) pair: SchemaRef,
    pub(super) fired: SchemaRef,
    pub(super) finisher: Finisher,
    /// The columns that the condition looks at, if it says; and the columns of a pair, with NULL
    /// for other columns.
    pub(super) looked_at: Option<Vec<usize>>,
    pub(super) compared: SchemaRef,
    /// The column of `fired` that is the event time of each row.
    pub(super) time: Option<usize>,
    /// Of the keys alone, for estimates: nothing is kept as rows of state.
    pub(super) layout: Arc<RowLayout>,
}

impl JoinProgram {
    /// Of a join whose result rows have this schema.
    pub fn new(join: &plan::Join, lateness_us: i64, output: &SchemaRef) -> Result<JoinProgram> {
        let sides = JoinSide::both(join)?;
        let slices = join.window.map(|window| match window {
            Window::Interval(_) => window,
            window => Window::Tumble(window.slices()),
        });
        let windowing = Windowing::new(slices, lateness_us);
        let meeting = match (join.broadcast, join.window) {
            (Some(side), _) => Meeting::Broadcast(side),
            (None, Some(Window::Interval(interval)))
                if !join.as_of && interval.has_leaders_of_slices() =>
            {
                Meeting::Slices(windowing)
            }
            _ => Meeting::Keys,
        };
        let layout = RowLayout::new(sides[0].codec.words().max(1), vec![], &[]);
        let nullable = |field: &FieldRef| field.as_ref().clone().with_nullable(true);
        let compared = Schema::new(join.pair.fields().iter().map(nullable).collect::<Vec<_>>());
        Ok(JoinProgram {
            name: explain::name_of(join),
            kind: join.kind,
            window: join.window,
            windowing,
            meeting,
            assigning: Windowing::new(join.window, lateness_us),
            left_inputs: join.left_inputs,
            condition: join.condition.clone(),
            nulls_are_equal: join.nulls_are_equal,
            as_of: join.as_of,
            pair: join.pair.clone(),
            compared: Arc::new(compared),
            looked_at: join.condition.as_ref().and_then(Expr::columns),
            fired: join.fired.clone(),
            time: join.time,
            finisher: Finisher::of(&join.fired, &join.having, &join.project, output),
            layout: Arc::new(layout),
            sides,
        })
    }

    /// The number of the side that an input is of.
    pub(super) fn side_of(&self, input: usize) -> usize {
        usize::from(input >= self.left_inputs)
    }

    /// The columns of a batch, with what a temporal join keeps of each row besides.
    pub(super) fn columns<'b>(&self, batch: &Batch<'b>) -> Result<Cow<'b, RecordBatch>> {
        let columns = Cow::Borrowed(batch.columns());
        match (self.as_of, self.side_of(batch.input)) {
            (false, _) => Ok(columns),
            (true, 0) => {
                let times = Arc::new(times_of(batch));
                Ok(Cow::Owned(with_column(&columns, "$time", times)?))
            }
            (true, _) => with_order(columns, batch, Ordering::Whole),
        }
    }

    /// Finds the rows of a batch that pass its filter and count, window by window; see
    /// [`assign_rows`].
    pub(super) fn assign(
        &self,
        batch: &Batch<'_>,
        buffers: &mut Buffers,
        by_slice: &mut BySlice,
    ) -> Result<Passing> {
        let passing = assign_rows(&self.assigning, batch, buffers, by_slice)?;
        match self.window {
            Some(Window::Hop(_) | Window::Cumulate(_)) => {
                if matches!(batch.rows, Rows::Records(_)) {
                    self.spread(by_slice);
                }
            }
            // Versions are in the slice of their own time.
            Some(Window::Interval(_)) if self.as_of => {}
            Some(Window::Interval(interval)) if interval.anchor != self.side_of(batch.input) => {
                self.spread_over(batch, by_slice)?;
            }
            _ => {}
        }
        Ok(passing)
    }

    /// From the slices of their own times to those that have partners of the rows, in an interval
    /// join.
    pub(super) fn spread_over(&self, batch: &Batch<'_>, by_slice: &mut BySlice) -> Result<()> {
        let mut slices = BTreeMap::<SliceId, Vec<u32>>::new();
        let time_of: &dyn Fn(u32) -> Option<i64> = match &batch.rows {
            Rows::Records(records) => {
                let times = event_times(records.stamped)?;
                &move |row| times.times.us(records.place(row as usize))
            }
            Rows::Fired { times, .. } => &|row| times.at(row as usize),
        };
        for (slice, rows) in by_slice.drain(..) {
            // Of a row without a time it is known which slice it lies in.
            let begin = self.windowing.begin_of(slice);
            let all = (begin, self.windowing.slice_of(begin).end - 1);
            let starts_of = |time: Option<i64>| {
                let (earliest, latest) = time.map_or(all, |time| (time, time));
                self.windowing.starts_meeting(earliest, latest)
            };
            let mut rest = &rows[..];
            while let Some(row) = rest.first() {
                // Most rows meet the same slices as the row before.
                let starts = starts_of(time_of(*row));
                let times = self.windowing.times_meeting(starts);
                let is_alike = |row: &u32| match time_of(*row) {
                    Some(time) if times.contains(&time) => true,
                    time => starts_of(time) == starts,
                };
                let alike = rest.iter().position(|row| !is_alike(row)).unwrap_or(rest.len());
                for slice in self.windowing.slices_from(starts) {
                    slices.entry(slice).or_default().extend_from_slice(&rest[..alike]);
                }
                rest = &rest[alike..];
            }
        }
        for (slice, mut rows) in slices {
            rows.sort_unstable();
            by_slice.push((slice, rows));
        }
        Ok(())
    }

    /// From the slices of windows that overlap to these windows.
    pub(super) fn spread(&self, by_slice: &mut BySlice) {
        let mut windows = BTreeMap::<SliceId, Vec<u32>>::new();
        for (slice, rows) in by_slice.drain(..).filter(|(_, rows)| !rows.is_empty()) {
            for window in self.assigning.windows_of(slice) {
                let begin = self.assigning.begin_of_last_slice(window);
                let place = windows.entry(self.windowing.slice_of(begin).slice).or_default();
                place.extend_from_slice(&rows);
            }
        }
        for (slice, mut rows) in windows {
            // Those of several slices, each of which is in order.
            rows.sort_unstable();
            by_slice.push((slice, rows));
        }
    }

    /// `window_start`, `window_end` and `window_time` of a window, in microseconds, if its rows
    /// have them.
    pub(super) fn bounds_of(&self, window: WindowId) -> Option<[i64; 3]> {
        let [start, end, time] = self.windowing.columns_of(window)?;
        let start = match self.window? {
            Window::Tumble(_) => start,
            Window::Hop(hop) => end.saturating_sub(hop.size_us),
            Window::Cumulate(Cumulate { size_us, offset_us, .. }) => {
                (time - offset_us).div_euclid(size_us) * size_us + offset_us
            }
            Window::Session(_) | Window::Interval(_) => return None,
        };
        Some([start, end, time])
    }
}

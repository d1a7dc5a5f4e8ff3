//! The join: rows of two sides that belong to the same window and have the same keys (paper,
//! sections 5.2 and 8).
//!
//! Rows are appended to bags as they come ([`bags`]), in the form of passed rows
//! ([`crate::passed`]): rows for other leaders are sent to them, and nothing is looked up. A leader
//! adopts the buffers of its process's workers unchanged. When a window is complete, [`fire`]
//! matches its sides. `sides` has the form of each side's rows.
//!
//! A slice is a window here. A record of several overlapping windows is appended to each slice,
//! since each window has results with the record. In an interval join, a row of the side that is
//! not the anchor is appended to several slices, wherever it may have a partner; a partner is in a
//! single slice.
//!
//! Where one side has few rows ([`plan::Join::broadcast`]), these go to all leaders, and rows of
//! the other side stay with their reader: each is in one bag, next to all its possible partners.
//!
//! In a temporal join ([`as_of`]), rows of both sides are in the slice of their own time. The last
//! version of each key stays beside the bags for later slices ([`versions`]).

mod as_of;
mod bags;
mod explain;
mod fire;
mod gathered;
mod pairs;
mod sides;
mod versions;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, SchemaRef};
use millstream_state::{Load, RowLayout};

use super::{
    Batch, BySlice, Delta, Firing, Keyed, Leadership, Operator, Passing, Room, Rows, SealSlice,
    Step, Updated,
};
use crate::budget::Usage;
use crate::columns::inputs::true_mask;
use crate::columns::with_column;
use crate::error::{Contents, Error, Result};
use crate::expr::Expr;
use crate::failing::first_failing;
use crate::operator::aggregate::fire::Finisher;
use crate::operator::assign::event_times;
use crate::operator::counted::{Buffers, assign_rows, in_parts, within};
use crate::operator::record_order::{times_of, with_order};
use crate::passed::{Format, Onward, Parcel, PassedRows, ReadRows};
use crate::plan::{self, Cumulate, JoinKind, Window};
use crate::windowing::{SliceId, WindowId, Windowing};
use bags::Bags;
use fire::Fire;
use sides::Side;
use versions::Versions;

/// A join in executable form.
#[derive(Debug)]
pub struct Program {
    name: String,
    kind: JoinKind,
    window: Option<Window>,
    /// In which a slice is a window.
    windowing: Windowing,
    /// How records are assigned to windows.
    assigning: Windowing,
    left_inputs: usize,
    sides: [Side; 2],
    condition: Option<Expr>,
    nulls_are_equal: bool,
    /// The side whose rows go to all leaders.
    broadcast: Option<usize>,
    /// Whether it is a temporal join.
    as_of: bool,
    /// The columns of a pair, and those of what is given.
    pair: SchemaRef,
    fired: SchemaRef,
    finisher: Finisher,
    /// The column of `fired` that is the event time of each row.
    time: Option<usize>,
    /// Of the keys alone, for estimates: nothing is kept as rows of state.
    layout: Arc<RowLayout>,
}

impl Program {
    /// Of a join whose result rows have this schema.
    pub fn new(join: &plan::Join, lateness_us: i64, output: &SchemaRef) -> Result<Program> {
        let sides = Side::both(join)?;
        let slices = join.window.map(|window| match window {
            Window::Interval(_) => window,
            window => Window::Tumble(window.slices()),
        });
        let layout = RowLayout::new(sides[0].codec.words().max(1), vec![], &[]);
        Ok(Program {
            name: explain::name_of(join),
            kind: join.kind,
            window: join.window,
            windowing: Windowing::new(slices, lateness_us),
            assigning: Windowing::new(join.window, lateness_us),
            left_inputs: join.left_inputs,
            condition: join.condition.clone(),
            nulls_are_equal: join.nulls_are_equal,
            broadcast: join.broadcast,
            as_of: join.as_of,
            pair: join.pair.clone(),
            fired: join.fired.clone(),
            time: join.time,
            finisher: Finisher::of(&join.fired, &join.having, &join.project, output),
            layout: Arc::new(layout),
            sides,
        })
    }

    /// The number of the side that an input is of.
    fn side_of(&self, input: usize) -> usize {
        usize::from(input >= self.left_inputs)
    }

    /// The columns of a batch, with what a temporal join keeps of each row besides.
    fn columns<'b>(&self, batch: &Batch<'b>) -> Result<Cow<'b, RecordBatch>> {
        let columns = Cow::Borrowed(batch.columns());
        match (self.as_of, self.side_of(batch.input)) {
            (false, _) => Ok(columns),
            (true, 0) => {
                let times = Arc::new(times_of(batch));
                Ok(Cow::Owned(with_column(&columns, "$time", times)?))
            }
            (true, _) => with_order(columns, batch, true),
        }
    }

    /// Finds the rows of a batch that pass its filter and count, window by window; see
    /// [`assign_rows`].
    fn assign(
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
    fn spread_over(&self, batch: &Batch<'_>, by_slice: &mut BySlice) -> Result<()> {
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
            for row in rows {
                let (earliest, latest) = time_of(row).map_or(all, |time| (time, time));
                for slice in self.windowing.slices_meeting(earliest, latest) {
                    slices.entry(slice).or_default().push(row);
                }
            }
        }
        for (slice, mut rows) in slices {
            rows.sort_unstable();
            by_slice.push((slice, rows));
        }
        Ok(())
    }

    /// From the slices of windows that overlap to these windows.
    fn spread(&self, by_slice: &mut BySlice) {
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
    fn bounds_of(&self, window: WindowId) -> Option<[i64; 3]> {
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

impl super::Program for Program {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn contents(&self) -> Contents {
        match self.window {
            _ if self.as_of => Contents::Versions,
            None => Contents::RowsOfInput,
            Some(Window::Interval(_)) => Contents::RowsWithinInterval,
            Some(_) => Contents::RowsOfWindows,
        }
    }

    fn windowing(&self) -> Windowing {
        self.windowing
    }

    fn layout(&self) -> &Arc<RowLayout> {
        &self.layout
    }

    fn start(self: Arc<Self>, leadership: Leadership, room: Room) -> Box<dyn Operator> {
        let bags = Bags::new(&self.sides, self.broadcast, &leadership, &room);
        Box::new(Join {
            bags,
            leadership,
            versions: Versions::default(),
            firing: None,
            buffers: Buffers::default(),
            program: self,
        })
    }

    fn small_slice_bytes(&self, leaders: usize) -> usize {
        bags::small_slice_bytes(leaders)
    }

    fn explain(&self, text: &mut String, type_name: &dyn Fn(&DataType) -> String) {
        self.sides.iter().for_each(|side| explain::add_side(text, side, type_name));
    }

    fn format(&self) -> Option<&Arc<Format>> {
        Some(&self.sides[0].format)
    }

    fn keyed(&self, batch: &Batch<'_>) -> Result<(Passing, Option<Keyed>)> {
        let (mut buffers, mut by_slice) = Default::default();
        let passing = self.assign(batch, &mut buffers, &mut by_slice)?;
        let side = self.side_of(batch.input);
        let evaluated = self.sides[side].evaluate(&*self.columns(batch)?, &mut by_slice)?;
        let keyed = |(keys, arguments)| Keyed { side, keys, arguments, by_slice };
        Ok((passing, evaluated.map(keyed)))
    }

    fn kept_texts(&self, input: usize) -> &[usize] {
        &self.sides[self.side_of(input)].texts
    }

    fn computes_texts(&self) -> bool {
        self.sides.iter().any(|side| side.computes_texts)
    }

    fn first_failing(&self, batch: &Batch<'_>) -> Option<(usize, Error)> {
        let rows = batch.columns();
        if let Some(filter) = batch.filter
            && let failing @ Some(_) = first_failing(rows.num_rows(), |range| {
                let rows = rows.slice(range.start, range.len());
                true_mask(filter, &rows).map(|_| ())
            })
        {
            return failing;
        }
        let mut by_slice = BySlice::new();
        self.assign(batch, &mut Buffers::default(), &mut by_slice).ok()?;
        let side = &self.sides[self.side_of(batch.input)];
        let rows = &*self.columns(batch).ok()?;
        first_failing(rows.num_rows(), |range| {
            side.evaluate(rows, &mut within(&by_slice, &range)).map(|_| ())
        })
    }
}

/// A worker's state of a join.
struct Join {
    program: Arc<Program>,
    leadership: Leadership,
    bags: Bags,
    /// Versions of a temporal join, left by fired slices for later ones.
    versions: Versions,
    firing: Option<Fire>,
    buffers: Buffers,
}

impl Operator for Join {
    fn update(&mut self, batch: &Batch<'_>, onward: Option<&dyn Onward>) -> Result<Updated> {
        let Join { program, bags, buffers, .. } = self;
        bags.begin_batch();
        let number = program.side_of(batch.input);
        let side = &program.sides[number];
        let mut by_slice = std::mem::take(&mut buffers.by_slice);
        let passing = program.assign(batch, buffers, &mut by_slice)?;
        let again = |by_slice: &mut BySlice| {
            program.assign(batch, &mut Buffers::default(), by_slice).map(|_| ())
        };
        let columns = program.columns(batch)?;
        let update = &mut |by_slice: &mut BySlice| {
            let mut updated = Updated::default();
            let evaluated = side.evaluate(&columns, by_slice)?;
            let Some((keys, arguments)) = evaluated else { return Ok(updated) };
            for (slice, rows) in by_slice.iter().filter(|(_, rows)| !rows.is_empty()) {
                let others = bags.add(*slice, (number, side), (&keys, &arguments), rows, onward)?;
                updated.others_rows += others;
                updated.latest = updated.latest.max(Some(*slice));
            }
            Ok(updated)
        };
        let updated = in_parts(batch.columns().num_rows(), &mut by_slice, again, update)?;
        buffers.by_slice = by_slice;
        Ok(Updated { passing, ..updated })
    }

    fn seal(&mut self, how: &dyn Fn(SliceId) -> SealSlice, _: bool) -> Vec<Parcel> {
        self.bags.seal(how)
    }

    fn holds_for_others(&self) -> bool {
        self.bags.hold_for_others()
    }

    fn merge(&mut self, _: SliceId, _: Delta<'_>) -> Result<()> {
        Err(Error::Internal("rows of state for a join, which has none".into()))
    }

    fn complete(&self, frontier: i64, clock: i64) -> Option<WindowId> {
        let windowing = &self.program.windowing;
        let mut slices = self.bags.slices();
        let window = slices.find_map(|slice| windowing.next_window(slice, frontier));
        window.filter(|window| windowing.fires_at(*window) <= clock)
    }

    fn fire(&mut self, window: WindowId) -> bool {
        let slice = *self.program.windowing.slices_of(window).start();
        let Some(own) = self.bags.remove(slice) else { return false };
        self.firing = Fire::new(&self.program, window, own);
        self.firing.is_some()
    }

    fn firing(&self) -> Option<Firing> {
        self.firing.as_ref().map(Fire::firing)
    }

    fn step(&mut self) -> Result<Step> {
        match &mut self.firing {
            Some(fire) => fire.step(&self.program, &mut self.bags, &mut self.versions),
            None => Ok(Step::Over),
        }
    }

    fn end_firing(&mut self) {
        if let Some(fire) = self.firing.take() {
            fire.rest().for_each(|rows| self.bags.reuse(rows));
        }
    }

    fn usage(&mut self, next: Load, room: Load) -> Usage {
        let mut usage = self.bags.usage(next, room);
        let versions = self.versions.bytes() as u64;
        (usage.bytes, usage.live_bytes) = (usage.bytes + versions, usage.live_bytes + versions);
        usage.keys += self.versions.rows() as u64;
        if let Some(fire) = &self.firing {
            usage.bytes += fire.bytes() as u64;
            usage.live_bytes += fire.bytes() as u64;
        }
        usage
    }

    fn open(&self) -> Vec<SliceId> {
        self.bags.open().collect()
    }

    fn take_in(&mut self, rows: &ReadRows<'_>) -> Result<()> {
        let Join { program, bags, leadership, .. } = self;
        let side = program.sides.get(rows.side());
        let side = side.ok_or_else(|| Error::Internal("rows of no side of a join".into()))?;
        if program.broadcast.is_none() && !side.are_led(rows, leadership) {
            return Err(Error::Internal("rows of another leader's keys".into()));
        }
        bags.take_in(rows);
        Ok(())
    }

    fn adopt(&mut self, rows: PassedRows) -> Option<PassedRows> {
        self.bags.adopt(rows);
        None
    }

    fn reuse_passed(&mut self, rows: PassedRows) {
        self.bags.reuse(rows);
    }

    fn begin_batch(&mut self) {
        self.bags.begin_batch();
    }

    fn give_back(&mut self) {
        self.bags.give_back();
    }

    fn end(&mut self) {
        self.versions = Versions::default();
    }
}

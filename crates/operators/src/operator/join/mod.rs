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
//! Where slices are short, each has a leader, and keys have none: then each leader has all rows of
//! some slices in place of a few rows of each ([`plan::Interval::has_leaders_of_slices`]).
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
mod program;
mod saving;
mod sides;
mod slice;
mod versions;

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::DataType;
use millstream_state::{Load, RowLayout};

use super::{
    Batch, BySlice, Delta, Firing, Keyed, Leadership, Operator, Passing, Room, SealSlice, Step,
    Updated,
};
use crate::budget::Usage;
use crate::columns::inputs::true_mask;
use crate::error::{Contents, Error, Result};
use crate::failing::first_failing;
use crate::operator::counted::{Buffers, in_parts, within};
use crate::operator::identity::{Identity, TypeName};
use crate::operator::saved::{Cut, SavedPart, SetAside};
use crate::passed::{Format, Onward, Parcel, PassedRows, ReadRows};
use crate::plan::Window;
use crate::windowing::{SliceId, WindowId, Windowing};
use bags::Bags;
use fire::FiringJoin;
pub use program::JoinProgram;
use program::Meeting;
use sides::Evaluated;
use versions::Versions;

impl super::Program for JoinProgram {
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
        let bags = Bags::new(&self.sides, self.meeting, &leadership, &room);
        Box::new(Join {
            bags,
            leadership,
            versions: Versions::default(),
            last: None,
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

    fn saved_parts(&self) -> Vec<SavedPart> {
        vec![self.saved_part(0), self.saved_part(1)]
    }

    fn identity(&self, type_name: TypeName<'_>) -> Identity {
        self.state_identity(type_name)
    }

    fn format(&self) -> Option<&Arc<Format>> {
        Some(&self.sides[0].format)
    }

    /// A slice of windows that overlap has the rows of one, but not its start.
    fn shown_windowing(&self) -> Option<Windowing> {
        matches!(self.window, Some(Window::Tumble(_))).then_some(self.windowing)
    }

    fn keyed(&self, batch: &Batch<'_>) -> Result<(Passing, Option<Keyed>)> {
        let (mut buffers, mut by_slice) = Default::default();
        let passing = self.assign(batch, &mut buffers, &mut by_slice)?;
        let side = self.side_of(batch.input);
        let evaluated = self.sides[side].evaluate(&*self.columns(batch)?, &mut by_slice)?;
        let keyed = |Evaluated { keys, arguments, .. }| Keyed { side, keys, arguments, by_slice };
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
    program: Arc<JoinProgram>,
    leadership: Leadership,
    bags: Bags,
    /// Versions of a temporal join, left by fired slices for later ones.
    versions: Versions,
    /// The last slice that has fired.
    last: Option<SliceId>,
    firing: Option<FiringJoin>,
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
            let Some(evaluated) = evaluated else { return Ok(updated) };
            for (slice, rows) in by_slice.iter().filter(|(_, rows)| !rows.is_empty()) {
                let others = bags.add(*slice, (number, side), &evaluated, rows, onward)?;
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
        self.last = Some(slice);
        let Some(own) = self.bags.remove(slice) else { return false };
        self.firing = FiringJoin::new(&self.program, window, own);
        self.firing.is_some()
    }

    fn firing(&self) -> Option<Firing> {
        self.firing.as_ref().map(FiringJoin::firing)
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

    fn set_aside(&mut self, cut: Cut, copied_bytes_max: usize) -> Result<Box<dyn SetAside>> {
        self.set_rows_aside(cut, copied_bytes_max)
    }

    fn saves_by_key(&self) -> bool {
        self.program.meeting == Meeting::Keys
    }

    fn restores(&self, _: &str) -> bool {
        true
    }

    fn thaw(&mut self) -> bool {
        self.bags.thaw()
    }

    fn awaits_thaw(&self, window: Option<WindowId>) -> bool {
        let windowing = &self.program.windowing;
        self.bags.await_thaw(window.map(|window| *windowing.slices_of(window).start()))
    }

    fn restore(&mut self, part: usize, rows: &RecordBatch, counting: Option<&[i64]>) -> Result<()> {
        self.restore_rows(part, rows, counting)
    }

    fn take_in(&mut self, rows: &ReadRows<'_>) -> Result<()> {
        let Join { program, bags, leadership, .. } = self;
        let side = program.sides.get(rows.side());
        let side = side.ok_or_else(|| Error::Internal("rows of no side of a join".into()))?;
        let are_led = match program.meeting {
            Meeting::Keys => side.are_led(rows, leadership),
            Meeting::Slices(windowing) => {
                windowing.leader_of(rows.slice(), leadership.leaders) == leadership.me
            }
            Meeting::Broadcast(_) => true,
        };
        if !are_led {
            return Err(Error::Internal("rows of another leader".into()));
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

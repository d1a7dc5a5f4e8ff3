//! The aggregate: rows of the same key and window become one row of state.
//!
//! A batch goes through the first pipeline (`pipeline`): `grouping` finds which records count
//! (`assign`) and what their keys and arguments are, and [`Slices`] updates tables with them. Rows
//! of other leaders are found by `routed`, unless the table is joint (`modes`). A complete window
//! fires in steps (`combine`): windows of several slices share what they have in common. Rows of
//! state become result rows (`over`), those of long sessions a portion at a time.

mod combine;
mod explain;
pub mod grouping;
mod modes;
mod over;
mod pipeline;
mod saving;
pub mod slices;
mod timed;

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, SchemaRef};
use millstream_state::{Leaders, Load, RowLayout, Segment};

use super::{
    Batch, Counters, Delta, Firing, Keyed, Leadership, MergeTimes, ModeReport, Operator, Passing,
    Room, SealSlice, Step, Updated,
};
use crate::budget::Usage;
use crate::columns::inputs::made;
use crate::error::{Contents, Error, Result};
use crate::operator::counted::Buffers;
use crate::operator::finish::Finisher;
use crate::operator::identity::{Identity, TypeName};
use crate::operator::saved::{Cut, SavedPart, SetAside, Since};
use crate::passed::{Format, Onward, Parcel, PassedRows, ReadRows};
use crate::plan::{self, Window};
use crate::windowing::{SliceId, WindowId, Windowing};
use combine::Combined;
use grouping::Grouping;
use pipeline::Pipeline;
use slices::Slices;

/// Executable form of an aggregate.
#[derive(Debug)]
pub struct AggregateProgram {
    grouping: Grouping,
    finisher: Finisher,
    format: Arc<Format>,
    window: Option<Window>,
}

impl AggregateProgram {
    /// Of an aggregate whose result rows have this schema.
    pub fn new(
        aggregate: &plan::Aggregate,
        lateness_us: i64,
        output: &SchemaRef,
    ) -> Result<AggregateProgram> {
        let grouping = Grouping::new(aggregate, lateness_us)?;
        let format = Arc::new(Format::new(&grouping.codec, &grouping.aggregates));
        let (finisher, window) = (Finisher::new(aggregate, output), aggregate.window);
        Ok(AggregateProgram { finisher, grouping, format, window })
    }
}

impl super::Program for AggregateProgram {
    fn name(&self) -> String {
        explain::name_of(&self.grouping, &self.finisher)
    }

    fn contents(&self) -> Contents {
        match self.grouping.aggregates.keeps_records() {
            true => Contents::RecordsOfKeys,
            false => Contents::Keys,
        }
    }

    fn windowing(&self) -> Windowing {
        self.grouping.windowing
    }

    fn layout(&self) -> &Arc<RowLayout> {
        &self.grouping.layout
    }

    fn start(self: Arc<Self>, leadership: Leadership, room: Room) -> Box<dyn Operator> {
        Box::new(Aggregate::new(self, leadership, room))
    }

    fn small_slice_bytes(&self, leaders: usize) -> usize {
        slices::small_table_bytes(&self.grouping.layout, leaders)
    }

    fn explain(&self, text: &mut String, type_name: &dyn Fn(&DataType) -> String) {
        explain::add_layout(text, &self.grouping, type_name);
    }

    fn saved_parts(&self) -> Vec<SavedPart> {
        vec![self.saved_part()]
    }

    fn identity(&self, type_name: TypeName<'_>) -> Identity {
        self.state_identity(type_name)
    }

    fn format(&self) -> Option<&Arc<Format>> {
        Some(&self.format)
    }

    fn keyed(&self, batch: &Batch<'_>) -> Result<(Passing, Option<Keyed>)> {
        let (mut buffers, mut by_slice) = Default::default();
        let passing = self.grouping.assign(batch, &mut buffers, &mut by_slice)?;
        let rows = self.grouping.columns(batch)?;
        let evaluated = self.grouping.evaluate(&rows, &mut by_slice)?;
        let Some((keys, arguments)) = evaluated else { return Ok((passing, None)) };
        let arguments = made(&arguments, None)?.unwrap_or(arguments);
        Ok((passing, Some(Keyed { side: 0, keys, arguments, by_slice })))
    }

    /// All inputs show it the same columns.
    fn kept_texts(&self, _: usize) -> &[usize] {
        &self.grouping.texts
    }

    fn computes_texts(&self) -> bool {
        self.grouping.computes_texts
    }

    fn has_empty_group(&self) -> bool {
        self.grouping.has_empty_group
    }

    fn first_failing(&self, batch: &Batch<'_>) -> Option<(usize, Error)> {
        self.grouping.first_failing(batch)
    }
}

/// A worker's state of an aggregate.
struct Aggregate {
    program: Arc<AggregateProgram>,
    slices: Slices,
    leads_empty_key: bool,
    /// State common to windows of several slices, and the firing window.
    combined: Combined,
    buffers: Buffers,
}

impl Aggregate {
    fn new(program: Arc<AggregateProgram>, leadership: Leadership, room: Room) -> Aggregate {
        let Leadership { me, leaders, of_empty_key } = leadership;
        let (layout, format) = (program.grouping.layout.clone(), program.format.clone());
        let combined = Combined::new(&program.grouping, &room);
        Aggregate {
            combined,
            slices: Slices::new(layout, Leaders::even(leaders), me, Some(format), room),
            leads_empty_key: of_empty_key,
            buffers: Buffers::default(),
            program,
        }
    }
}

impl Operator for Aggregate {
    fn update(&mut self, batch: &Batch<'_>, onward: Option<&dyn Onward>) -> Result<Updated> {
        let Aggregate { program, slices, buffers, .. } = self;
        slices.begin_batch();
        Pipeline { grouping: &program.grouping, slices, onward }.run(batch, buffers)
    }

    fn seal(&mut self, how: &dyn Fn(SliceId) -> SealSlice, scarce: bool) -> Vec<Parcel> {
        self.slices.seal(how, scarce)
    }

    fn holds_for_others(&self) -> bool {
        self.slices.has_fragment_rows()
    }

    fn merge(&mut self, slice: SliceId, delta: Delta<'_>) -> Result<()> {
        match delta {
            Delta::Segment(segment) => self.slices.merge(slice, segment),
            Delta::Words { words, arena } => {
                let merged = self.slices.merge_words(slice, words, arena);
                merged.map_err(|malformed| Error::Internal(malformed.what.into()))?;
            }
        }
        Ok(())
    }

    fn complete(&self, frontier: i64, clock: i64) -> Option<WindowId> {
        let windowing = &self.program.grouping.windowing;
        let window = self.slices.next_window(windowing, frontier);
        let next = self.combined.next_window(windowing);
        let window = [window, next].into_iter().flatten().min()?;
        (windowing.fires_at(window) <= clock).then_some(window)
    }

    fn fire(&mut self, window: WindowId) -> bool {
        let grouping = &self.program.grouping;
        let slices = self.slices.remove_all(*grouping.windowing.slices_of(window).end());
        self.combined.begin(window, slices, grouping)
    }

    fn firing(&self) -> Option<Firing> {
        self.combined.firing()
    }

    fn step(&mut self) -> Result<Step> {
        let AggregateProgram { grouping, finisher, .. } = &*self.program;
        self.combined.step(grouping, finisher, &mut self.slices)
    }

    fn end_firing(&mut self) {
        self.combined.end(&self.program.grouping.windowing, &mut self.slices);
    }

    fn usage(&mut self, next: Load, room: Load) -> Usage {
        let mut usage = self.slices.usage(next, room);
        self.combined.add_usage(&mut usage);
        usage
    }

    fn open(&self) -> Vec<SliceId> {
        self.slices.open().chain(self.combined.newest()).collect()
    }

    fn set_aside(&mut self, cut: Cut, copied_bytes_max: usize) -> Result<Box<dyn SetAside>> {
        self.set_rows_aside(cut, copied_bytes_max)
    }

    fn thaw(&mut self) -> bool {
        self.slices.thaw()
    }

    fn awaits_thaw(&self, window: Option<WindowId>) -> bool {
        let windowing = &self.program.grouping.windowing;
        self.slices.awaits_thaw(window.map(|window| *windowing.slices_of(window).end()))
    }

    fn restore(&mut self, part: usize, rows: &RecordBatch, counting: Option<&[i64]>) -> Result<()> {
        self.restore_rows(part, rows, counting)
    }

    fn take_in(&mut self, rows: &ReadRows<'_>) -> Result<()> {
        self.slices.update_own(&self.program.grouping, rows)
    }

    fn reuse(&mut self, segment: Segment) {
        self.slices.reuse(segment);
    }

    fn reuse_passed(&mut self, rows: PassedRows) {
        self.slices.reuse_passed(rows);
    }

    /// A group of no rows is a row, too.
    fn fire_nothing(&mut self) -> bool {
        let grouping = &self.program.grouping;
        let is_row = grouping.has_empty_group && self.leads_empty_key;
        let group = || vec![((SliceId::WHOLE, Since::CHANGED), grouping.empty_table())];
        is_row && self.combined.begin(WindowId::WHOLE, group(), grouping)
    }

    fn begin_batch(&mut self) {
        self.slices.begin_batch();
    }

    fn give_back(&mut self) {
        self.combined.give_back();
        self.slices.release_spare();
    }

    fn note_merged(&mut self, times: &MergeTimes) {
        self.slices.modes.note_merged(times);
    }

    fn mode(&self) -> Option<ModeReport> {
        self.slices.modes.report()
    }

    fn counters(&self) -> Counters {
        self.slices.counters()
    }

    fn choose(&mut self, draw: &dyn Fn(u64) -> Option<u64>) {
        if self.slices.modes.may_change()
            && let Some(choice) = draw(16)
        {
            self.slices.choose(choice);
        }
    }
}

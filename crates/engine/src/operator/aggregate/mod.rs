//! The aggregate: rows of the same key and window become one row of state.
//!
//! A batch goes through the first pipeline (`pipeline`): `grouping` finds which records count
//! (`assign`) and what their keys and arguments are, and [`Slices`] updates tables with them. Rows
//! of other leaders are found by `routed`, unless the table is joint (`joint`). Rows that come as
//! keys and arguments are taken in by a [`Receiver`]. A complete window fires in steps (`fire`).

pub(crate) mod assign;
mod fire;
pub(crate) mod grouping;
mod joint;
mod pipeline;
mod receiver;
mod routed;
pub(crate) mod slices;

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use millstream_state::{Arena, Leaders, Load, Mode, Segment};

use super::{Counters, Dropped, MayAdd, Operator, Records, SealSlice};
use crate::budget::Usage;
use crate::error::{Error, Result};
use crate::expr::Expr;
use crate::passed::{Format, Onward, Parcel, PassedRows};
use crate::plan;
use crate::windowing::{SliceId, WindowId};
use fire::{Finisher, Fire, empty_table};
use grouping::{Buffers, Grouping};
use pipeline::Pipeline;
use slices::{Room, Slices};

pub(crate) use receiver::Receiver;

/// What an aggregate does, in executable form; the same for all workers.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) grouping: Grouping,
    finisher: Finisher,
    /// How rows are passed through.
    pub(crate) format: Arc<Format>,
}

impl Program {
    /// Of an aggregate whose result rows have this schema.
    pub(crate) fn new(
        aggregate: &plan::Aggregate,
        lateness_us: i64,
        output: &SchemaRef,
    ) -> Result<Program> {
        let grouping = Grouping::new(aggregate, lateness_us)?;
        let format = Arc::new(Format::new(&grouping.codec, &grouping.aggregates));
        Ok(Program { finisher: Finisher::new(aggregate, output), grouping, format })
    }
}

/// Which keys a worker leads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Leadership {
    /// Its number, among so many leaders whose keys it meets.
    pub(crate) me: usize,
    pub(crate) leaders: usize,
    /// Whether it leads the key of no columns.
    pub(crate) of_empty_key: bool,
}

/// A worker's state of an aggregate.
pub(crate) struct Aggregate {
    program: Arc<Program>,
    slices: Slices,
    /// Takes in what workers of this process pass through.
    receiver: Receiver,
    leads_empty_key: bool,
    firing: Option<Fire>,
    buffers: Buffers,
    places: Places,
}

/// Where rows stand that are being fired, kept for its memory: each step fills it before reading.
#[derive(Default)]
struct Places(Vec<*const u64>);

// SAFETY: what a step has left here is not read any more.
unsafe impl Send for Places {}

impl Aggregate {
    /// An empty one. `mode`: that of all fragments, if they do not choose it.
    pub(crate) fn new(
        program: Arc<Program>,
        leadership: Leadership,
        mode: Option<Mode>,
        room: Room,
    ) -> Aggregate {
        let Leadership { me, leaders, of_empty_key } = leadership;
        let layout = program.grouping.layout.clone();
        Aggregate {
            slices: Slices::new(layout, Leaders::even(leaders), me, mode, room),
            receiver: Receiver::new(program.format.clone()),
            leads_empty_key: of_empty_key,
            firing: None,
            buffers: Buffers::default(),
            places: Places::default(),
            program,
        }
    }

    fn begin(&mut self, fire: Fire) -> bool {
        self.firing = Some(fire);
        true
    }
}

impl Operator for Aggregate {
    fn update(
        &mut self,
        input: (&Records<'_>, Option<&Expr>),
        onward: Option<&dyn Onward>,
    ) -> Result<(Dropped, u64)> {
        let Aggregate { program, slices, buffers, .. } = self;
        slices.begin_batch();
        Pipeline { grouping: &program.grouping, slices, onward }.run(input, buffers)
    }

    fn update_rows(
        &mut self,
        input: (&RecordBatch, Option<&Expr>, SliceId),
        onward: Option<&dyn Onward>,
    ) -> Result<u64> {
        let Aggregate { program, slices, buffers, .. } = self;
        slices.begin_batch();
        Pipeline { grouping: &program.grouping, slices, onward }.run_rows(input, buffers)
    }

    fn latest(&self) -> Option<SliceId> {
        self.slices.latest()
    }

    fn seal(&mut self, how: &dyn Fn(SliceId) -> SealSlice, scarce: bool) -> Vec<Parcel> {
        self.slices.seal(how, scarce)
    }

    fn holds_for_others(&self) -> bool {
        self.slices.has_fragment_rows()
    }

    fn merge(&mut self, slice: SliceId, segment: Segment) -> bool {
        self.slices.merge(slice, segment)
    }

    fn merge_rows(
        &mut self,
        slice: SliceId,
        count: u64,
        words: &[u64],
        arena: &Arena,
    ) -> Result<()> {
        let row_words = self.program.grouping.layout.row_words() as u64;
        if count.checked_mul(row_words) != Some(words.len() as u64) {
            return Err(Error::Internal(format!("{count} rows in {} words", words.len())));
        }
        let merged = self.slices.merge_words(slice, words, arena);
        merged.map_err(|malformed| Error::Internal(malformed.what.into()))
    }

    fn take_passed(&mut self, rows: PassedRows, may_add: MayAdd<'_>) -> Result<()> {
        let Aggregate { program, slices, receiver, .. } = self;
        receiver.take_rows(rows.words(), &program.grouping, slices, may_add)?;
        slices.reuse_passed(rows);
        Ok(())
    }

    fn merge_passed(
        &mut self,
        from: &mut Receiver,
        words: &[u64],
        may_add: MayAdd<'_>,
    ) -> Result<usize> {
        let before = from.rows();
        from.take_rows(words, &self.program.grouping, &mut self.slices, may_add)?;
        Ok((from.rows() - before) as usize)
    }

    fn merge_exchanged(
        &mut self,
        from: &mut Receiver,
        words: &[u64],
        may_add: MayAdd<'_>,
    ) -> Result<(usize, Option<i64>)> {
        let before = from.rows();
        let marked = from.take(words, &self.program.grouping, &mut self.slices, may_add);
        let rows = (from.rows() - before) as usize;
        // The next slot may bring as much.
        self.slices.expect(Load { rows, text_bytes: size_of_val(words) });
        Ok((rows, marked?))
    }

    fn reuse(&mut self, segment: Segment) {
        self.slices.reuse(segment);
    }

    fn complete(&self, frontier: i64, clock: i64) -> Option<WindowId> {
        self.slices.complete(&self.program.grouping.windowing, frontier, clock)
    }

    fn fire(&mut self, window: WindowId) -> bool {
        let slices = self.program.grouping.windowing.slices_of(window);
        match self.slices.remove(slices) {
            Some(table) => self.begin(Fire::new(window, table, &self.program.grouping)),
            None => false,
        }
    }

    /// A group of no rows is a row, too.
    fn fire_nothing(&mut self) -> bool {
        let grouping = &self.program.grouping;
        let is_row = grouping.has_empty_group && self.leads_empty_key;
        is_row && self.begin(Fire::new(WindowId::WHOLE, empty_table(grouping), grouping))
    }

    fn firing(&self) -> Option<WindowId> {
        self.firing.as_ref().map(|fire| fire.window)
    }

    fn step(&mut self) -> Result<Option<(RecordBatch, bool)>> {
        let Program { grouping, finisher, .. } = &*self.program;
        match &mut self.firing {
            Some(fire) => fire.step(grouping, finisher, &mut self.places.0),
            None => Ok(None),
        }
    }

    fn next_load(&self) -> Option<Load> {
        let Program { grouping, finisher, .. } = &*self.program;
        let fire = self.firing.as_ref().filter(|fire| !fire.is_over())?;
        let text_bytes = fire.next_bytes(grouping, finisher) as usize;
        Some(Load { rows: fire.next_rows(), text_bytes })
    }

    fn firing_bytes(&self) -> u64 {
        self.firing.as_ref().map_or(0, |fire| fire.table().live_bytes() as u64)
    }

    fn end_firing(&mut self) {
        if let Some(fire) = self.firing.take() {
            self.slices.recycle(fire.into_table());
        }
    }

    fn usage(&mut self, batch_rows: usize) -> Usage {
        let mut usage = self.slices.usage(batch_rows);
        if let Some(fire) = &self.firing {
            usage.bytes += fire.table().bytes() as u64;
            usage.live_bytes += fire.table().live_bytes() as u64;
            usage.keys += fire.table().rows() as u64;
        }
        usage
    }

    fn begin_batch(&mut self) {
        self.slices.begin_batch();
    }

    fn expect(&mut self, load: Load) -> bool {
        self.slices.expect(load)
    }

    fn expect_just(&mut self, load: Load) {
        self.slices.expect_just(load);
    }

    fn give_back(&mut self) {
        self.slices.release_spare();
    }

    fn trim(&mut self) {
        if let Some(fire) = &mut self.firing {
            fire.trim();
        }
        self.slices.release_spare();
    }

    fn open(&self) -> (Vec<SliceId>, Option<WindowId>) {
        (self.slices.open().collect(), self.firing())
    }

    fn is_empty(&self) -> bool {
        self.slices.is_empty() && self.firing.is_none()
    }

    fn counters(&self) -> Counters {
        self.slices.counters()
    }

    fn has_choice(&self) -> bool {
        self.slices.may_join()
    }

    fn choose(&mut self, choice: u64) {
        self.slices.join(choice);
    }
}

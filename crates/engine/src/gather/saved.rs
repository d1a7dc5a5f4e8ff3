//! An output at a cut: rows that wait for their turn as plain batches ([`OutputMark`]), and back.
//!
//! At a cut all records before it have come here, and all complete windows have fired. What need
//! not wait has been written. So of each split, the chunks before the cut are all here or written,
//! and whose turn it is follows from their numbers.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::array::{
    Array, ArrayRef, AsArray, Int64Array, RecordBatch, RecordBatchOptions, StringArray,
    new_null_array,
};
use arrow::compute::partition;
use arrow::datatypes::{DataType, Int64Type, Schema};

use super::limit::Limit;
use super::output::Role;
use super::queue::{Queue, QueuedItem};
use super::turns::Begun;
use super::{Gather, GatherState};
use crate::checkpoint::{OutputMark, waiting_schema};
use crate::error::{Error, Result};
use crate::intake::SplitName;
use millstream_operators::windowing::WindowId;

/// Columns that say together where a row belongs.
const PLACES: usize = 5;

impl Gather {
    /// Whether all rows that have their turn are written, and no worker writes. If so, nothing more
    /// has its turn before [`Gather::go_on`].
    pub(crate) fn stand(&self) -> bool {
        let mut state = self.lock();
        state.stands = state.queue.is_still();
        state.stands
    }

    /// The job goes on behind a cut.
    pub(crate) fn go_on(&self) {
        self.lock().stands = false;
    }

    /// Whether an error waits behind rows that wait. It cannot be saved.
    pub(crate) fn fails_later(&self) -> bool {
        self.lock().batches.fail_later()
    }

    /// The remaining rows of the output; `names` are the names of the splits.
    pub(crate) fn mark(&self, names: &[SplitName]) -> Result<OutputMark> {
        let state = self.lock();
        let limit = match self.has_ended() {
            // Also of an output whose reader has gone.
            true => Limit::new(0, Some(0)),
            false => state.queue.limit().unwrap_or_else(|| self.output.limits()),
        };
        let mut waiting = Vec::new();
        for (place, rows) in state.batches.waiting() {
            let (source, number) = &names[place.split];
            let numbers = [Some(i64::from(*number)), Some(place.sequence as i64), None, None];
            waiting.push(self.placed(rows, Some(source), numbers)?);
        }
        for (window, fired) in &state.windows {
            let numbers = [None, None, Some(window.input as i64), Some(window.id.word() as i64)];
            for run in &fired.runs {
                waiting.push(self.placed(&run.rows, None, numbers)?);
            }
        }
        for run in &state.sorted {
            waiting.push(self.placed(&run.rows, None, [None; 4])?);
        }
        Ok(OutputMark { offset: limit.skip, limit: limit.left, waiting })
    }

    /// Rows with the columns that say where they belong.
    fn placed(
        &self,
        rows: &RecordBatch,
        source: Option<&str>,
        numbers: [Option<i64>; 4],
    ) -> Result<RecordBatch> {
        let (count, own) = (rows.num_rows(), self.output.schema.fields().len());
        let mut columns: Vec<ArrayRef> = rows.columns()[..own].to_vec();
        columns.push(Arc::new(StringArray::from(vec![source; count])));
        for number in numbers {
            columns.push(Arc::new(Int64Array::from(vec![number; count])));
        }
        let time = rows.columns().get(own).cloned();
        columns.push(time.unwrap_or_else(|| new_null_array(&DataType::Int64, count)));
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        let schema = waiting_schema(&self.output.schema);
        Ok(RecordBatch::try_new_with_options(schema, columns, &options)?)
    }

    /// Goes on where the output of an earlier job stood.
    pub(crate) fn resume(&self, mark: Option<&OutputMark>, begun: &Begun<'_>) -> Result<()> {
        if let Some(mark) = mark {
            let limit = Limit { skip: mark.offset, left: mark.limit };
            self.lock().queue = Queue::new(limit);
            self.ended.store(limit.is_over(), Ordering::Release);
            // All rows that wait are the coordinator's.
            let waits = !matches!(self.output.role, Role::Helper { .. });
            mark.waiting.iter().filter(|_| waits).try_for_each(|rows| self.restore(rows, begun))?;
        }
        let turns = &self.output.turns;
        let state = &mut *self.lock();
        state.batches.resume(turns, begun);
        if matches!(self.output.role, Role::Coordinator(_)) {
            // The others begin to count anew.
            let next = state.batches.next_chunks(turns).into_iter().map(QueuedItem::Next);
            next.for_each(|item| state.queue.push(item, &self.waiting));
        }
        Ok(())
    }

    /// Takes rows that waited for their turn at a cut.
    fn restore(&self, waiting: &RecordBatch, begun: &Begun<'_>) -> Result<()> {
        let (own, schema) = (self.output.schema.fields().len(), waiting.schema());
        let expected = waiting_schema(&self.output.schema);
        let types = |of: &Schema| -> Vec<DataType> {
            of.fields().iter().map(|field| field.data_type().clone()).collect()
        };
        if types(&schema) != types(&expected) {
            let message = format!("saved rows of {schema:?} for {expected:?}");
            return Err(self.refused(&message));
        }
        let places = &waiting.columns()[own..own + PLACES];
        let columns: Vec<usize> = (0..own).collect();
        for range in partition(places)?.ranges() {
            let number = |at: usize| {
                let column = places[at].as_primitive::<Int64Type>();
                column.is_valid(range.start).then(|| column.value(range.start))
            };
            let part = waiting.slice(range.start, range.len());
            let rows = part.project(&columns)?;
            let sources = places[0].as_string::<i32>();
            match [number(1), number(2), number(3), number(4)] {
                [Some(split), Some(chunk), None, None] if sources.is_valid(range.start) => {
                    let source = sources.value(range.start);
                    let is_split =
                        |(of, number): &SplitName| of == source && i64::from(*number) == split;
                    let split = begun.names.iter().position(is_split);
                    let split = split.filter(|split| self.output.turns.of(*split).is_some());
                    let unknown = || self.refused("saved rows of a split that is not there");
                    let run = self.held(rows);
                    let GatherState { batches, .. } = &mut *self.lock();
                    batches.insert_saved(chunk as u64, split.ok_or_else(unknown)?, run);
                }
                [None, None, Some(input), Some(window)] if !self.sorts() => {
                    let rows = self.output.on_way_again(rows, part.column(own + PLACES))?;
                    let window = self.window(input as usize, WindowId::from_word(window as u64))?;
                    let windows = self.output.windows_of(&rows);
                    let run = self.held(self.sorted(rows)?);
                    let fired = &mut self.lock().windows;
                    let fired = fired.entry(window).or_default();
                    fired.windows.add(windows);
                    fired.runs.push(run);
                }
                [None, None, None, None] if self.sorts() => {
                    self.hold_to_sort(self.held(self.sorted(rows)?))?;
                }
                _ => return Err(self.refused("saved rows that belong nowhere")),
            }
        }
        Ok(())
    }

    fn refused(&self, message: &str) -> Error {
        Error::Internal(format!("result {}: {message}", self.output.output + 1))
    }
}

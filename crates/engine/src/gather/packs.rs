//! Fired windows of an output, and the column that tells apart the windows of a pack.
//!
//! Windows of a pack fire together under a common name, since they share a slice of state; likewise
//! sessions that fire a whole gap at a time. On their way to the writer, their rows have an
//! additional last column, which follows from the event time. This column comes first in the order
//! of rows, so that windows are written one after the other, and identifies windows when they are
//! counted.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};

use super::output::GatheredOutput;
use crate::error::Result;
use crate::order::Run;
use crate::plan::SortKey;
use millstream_operators::columns::with_column;
use millstream_operators::operator::RowTimes;
use millstream_operators::windowing::{OrderWithin, WindowId, Windowing};

/// Name of the additional column.
const TIME: &str = "$time";

/// After so many more times they are looked through for duplicates.
const DISTINCT_MIN: usize = 1 << 10;

/// A window of an output, in the order in which they are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct OutputWindow {
    pub(crate) fires_at: i64,
    /// The number of the output's input.
    pub(crate) input: usize,
    pub(super) id: WindowId,
}

/// Fired rows under the name of one window.
#[derive(Debug, Default)]
pub(super) struct FiredRuns {
    pub(super) runs: Vec<Run>,
    pub(super) windows: Windows,
}

/// The windows that have rows.
#[derive(Debug, Default, Clone)]
pub(super) struct Windows {
    /// For a pack: values of the additional column, with duplicates.
    times: Vec<i64>,
    /// How many there were when duplicates were looked for last.
    distinct: usize,
}

impl Windows {
    /// Number of windows: 1 without a pack.
    pub(super) fn count(mut self) -> u64 {
        self.times.sort_unstable();
        self.times.dedup();
        self.times.len().max(1) as u64
    }

    pub(super) fn add(&mut self, others: Windows) {
        self.times.extend(others.times);
        // Leaders have rows of the same windows, and each has them in no order.
        if self.times.len() > 2 * self.distinct + DISTINCT_MIN {
            self.times.sort_unstable();
            self.times.dedup();
            self.distinct = self.times.len();
        }
    }
}

impl GatheredOutput {
    /// Order of the windows that fire together, in a pack.
    fn order_within(&self) -> Option<OrderWithin> {
        self.stages.iter().find_map(|(_, windowing)| windowing.order_within())
    }

    /// How many windows have fired under the name of one.
    pub(super) fn count(&self, window: &OutputWindow, fired: Windows) -> u64 {
        match self.windowing_of(window.input).is_some_and(Windowing::has_windows) {
            true => fired.count(),
            false => 0,
        }
    }

    /// Schema of rows of windows on their way to the writer.
    fn way_schema(&self) -> SchemaRef {
        let fields = self.schema.fields().iter().cloned();
        let time = Arc::new(Field::new(TIME, DataType::Int64, false));
        Arc::new(Schema::new(fields.chain([time]).collect::<Vec<_>>()))
    }

    /// How many columns of the rows leave the job.
    pub(super) fn visible(&self) -> usize {
        self.sort.as_ref().map_or(self.schema.fields().len(), |sort| sort.visible)
    }

    /// Schema and sort keys of the output's rows.
    pub(super) fn ordered_by(&self) -> (SchemaRef, Vec<SortKey>) {
        match &self.sort {
            Some(sort) => (self.schema.clone(), sort.keys.clone()),
            None if self.order_within().is_some() => {
                let column = self.schema.fields().len();
                let time = SortKey { column, descending: false, nulls_first: false };
                (self.way_schema(), vec![time])
            }
            None => (self.schema.clone(), Vec::new()),
        }
    }

    /// Rows of a window with the additional column, which rows from another process may have
    /// already.
    pub(super) fn on_way(&self, rows: RecordBatch, times: &RowTimes) -> Result<RecordBatch> {
        let Some(within) = self.order_within() else { return Ok(rows) };
        if rows.num_columns() > self.schema.fields().len() {
            return Ok(rows);
        }
        let time = |row| times.at(row).map_or(i64::MAX, |time| within.of(time));
        let each = (0..rows.num_rows()).map(time);
        with_column(&rows, TIME, Arc::new(Int64Array::from_iter_values(each)))
    }

    /// Rows of a window, with the values that the additional column had.
    pub(super) fn on_way_again(&self, rows: RecordBatch, times: &ArrayRef) -> Result<RecordBatch> {
        match self.order_within() {
            Some(_) => with_column(&rows, TIME, times.clone()),
            None => Ok(rows),
        }
    }

    /// The windows of rows on their way.
    pub(super) fn windows_of(&self, rows: &RecordBatch) -> Windows {
        let times = rows.columns().get(self.schema.fields().len());
        let times = times.and_then(|times| times.as_primitive_opt::<Int64Type>());
        let mut times = times.map_or(Vec::new(), |times| times.values().to_vec());
        times.dedup();
        Windows { times, distinct: 0 }
    }
}

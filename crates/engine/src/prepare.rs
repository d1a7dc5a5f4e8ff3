//! Preparing a chunk: decode it, compute the table's derived columns, find its event times.
//!
//! A pure function of the chunk, run by any worker, several at a time; what depends on the order of
//! chunks is left to stamping ([`crate::intake`]).

use std::ops::Range;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;

use crate::budget::{Held, batch_bytes};
use crate::error::Result;
use crate::event_time::{BEGINNING, END, Running, Times};
use crate::expr::Expr;
use crate::plan::{EventTime, Query, Watermark};
use crate::table::{Chunk, Decoded, Places};

/// A decoded batch that has no place in its split yet.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) batch: RecordBatch,
    pub(crate) times: Option<BatchTimes>,
    /// Input bytes it stands for.
    pub(crate) input_bytes: usize,
    /// Its part of the job's budget.
    pub(crate) held: Option<Held>,
    /// Malformed records that were left out.
    pub(crate) malformed_records: u64,
    /// Where the first of them stands and what is wrong with it.
    pub(crate) first_malformed: Option<String>,
    /// Where the records stand, if some of them have no usable time.
    pub(crate) places: Option<Box<dyn Places>>,
}

/// The event times of a batch.
#[derive(Debug)]
pub(crate) struct BatchTimes {
    pub(crate) times: Times,
    /// Least and greatest time, if every record has a usable one.
    pub(crate) bounds: Option<(i64, i64)>,
    watermark: RecordWatermark,
    /// Watermarks above this are not believed.
    limit: i64,
    /// The greatest watermark of the batch's records that is believed.
    pub(crate) greatest: i64,
    /// Records whose watermark is not believed.
    pub(crate) ahead_records: u64,
}

#[derive(Debug)]
enum RecordWatermark {
    Delay(i64),
    Values(Times),
}

impl Prepared {
    /// Bytes it takes in memory.
    pub(crate) fn bytes(&self) -> usize {
        batch_bytes(&self.batch) + self.places.as_ref().map_or(0, |places| places.bytes())
    }
}

impl BatchTimes {
    /// A running maximum that starts at `watermark`.
    pub(crate) fn running(&self, watermark: i64) -> Running {
        Running { watermark, limit: self.limit }
    }

    /// The watermark that a record carries, if any.
    #[inline(always)]
    pub(crate) fn watermark(&self, row: usize) -> Option<i64> {
        match &self.watermark {
            RecordWatermark::Delay(delay) => self.times.us(row).map(|t| t.saturating_sub(*delay)),
            RecordWatermark::Values(values) => values.us(row),
        }
    }

    /// Least and greatest time of some rows, if all rows of the batch have a usable one.
    pub(crate) fn bounds_of(&self, rows: Range<usize>) -> Option<(i64, i64)> {
        self.bounds.map(|_| self.times.bounds_of(rows))
    }

    /// The watermark that a record of this time carries, if times alone decide and it is believed.
    pub(crate) fn watermark_at(&self, time: i64) -> Option<i64> {
        match &self.watermark {
            RecordWatermark::Delay(delay) => {
                Some(time.saturating_sub(*delay)).filter(|w| *w <= self.limit)
            }
            RecordWatermark::Values(_) => None,
        }
    }
}

/// What preparing needs to know of a query.
#[derive(Debug)]
pub(crate) struct Preparer {
    derived: Vec<Expr>,
    schema: SchemaRef,
    /// Columns that come from the source.
    physical: usize,
    event_time: Option<EventTime>,
    max_ahead_us: Option<i64>,
}

impl Preparer {
    pub(crate) fn new(query: &Query, max_ahead_us: Option<i64>) -> Preparer {
        Preparer {
            derived: query.derived.clone(),
            schema: query.input.clone(),
            physical: query.projection.len(),
            event_time: query.event_time.clone(),
            max_ahead_us,
        }
    }

    /// Decodes and completes a chunk.
    pub(crate) fn prepare(&self, chunk: Box<dyn Chunk>, now_us: i64) -> Result<Prepared> {
        let input_bytes = chunk.bytes();
        let Decoded { batch, left_out, first_left_out, places } = chunk.decode_reporting()?;
        let batch = self.derive(batch)?;
        let limit = self.max_ahead_us.map_or(END - 1, |ahead| now_us.saturating_add(ahead));
        let times = match &self.event_time {
            Some(event_time) => Some(batch_times(event_time, &batch, limit)?),
            None => None,
        };
        let unusable = times.as_ref().is_some_and(|t| t.bounds.is_none() && t.times.len() > 0);
        Ok(Prepared {
            batch,
            times,
            input_bytes,
            held: None,
            malformed_records: left_out,
            first_malformed: first_left_out,
            places: places.filter(|_| unusable),
        })
    }

    fn derive(&self, batch: RecordBatch) -> Result<RecordBatch> {
        let rows = batch.num_rows();
        let mut columns = batch.columns().to_vec();
        debug_assert_eq!(columns.len(), self.physical);
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        for (i, expr) in self.derived.iter().enumerate() {
            let fields = &self.schema.fields()[..self.physical + i];
            let schema = std::sync::Arc::new(arrow::datatypes::Schema::new(fields.to_vec()));
            let so_far = RecordBatch::try_new_with_options(schema, columns.clone(), &options)?;
            columns.push(expr.evaluate(&so_far)?);
        }
        Ok(RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)?)
    }
}

pub(crate) fn batch_times(
    event_time: &EventTime,
    batch: &RecordBatch,
    limit: i64,
) -> Result<BatchTimes> {
    let times = Times::new(batch.column(event_time.column))?;
    let bounds = times.bounds();
    let watermark = match &event_time.watermark {
        Watermark::Delay(delay) => RecordWatermark::Delay(*delay),
        Watermark::Expr(expr) => RecordWatermark::Values(Times::new(&expr.evaluate(batch)?)?),
    };
    let rows = times.len();
    let mut result =
        BatchTimes { times, bounds, watermark, limit, greatest: BEGINNING, ahead_records: 0 };
    match (&result.watermark, bounds) {
        (RecordWatermark::Delay(delay), Some((_, max))) if max.saturating_sub(*delay) <= limit => {
            result.greatest = max.saturating_sub(*delay);
        }
        _ => {
            let mut running = result.running(BEGINNING);
            let mut ahead_records = 0;
            for watermark in (0..rows).filter_map(|row| result.watermark(row)) {
                ahead_records += u64::from(!running.advance(watermark));
            }
            (result.greatest, result.ahead_records) = (running.watermark, ahead_records);
        }
    }
    Ok(result)
}

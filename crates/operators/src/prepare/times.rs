//! The event times of a batch, and the watermarks that its records carry.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, TimeUnit, TimestampMillisecondType};

use crate::error::Result;
use crate::event_time::{BEGINNING, END, Running, Times, USABLE};
use crate::plan::{EventTime, Watermark};
use crate::table::NOT_APPENDED;
use crate::zone::Clock;

/// Limits that depend on the time of reading a chunk.
#[derive(Debug, Clone, Copy)]
pub struct Limits<'d> {
    /// When that was.
    pub now_us: i64,
    /// Watermarks above this are not believed.
    pub watermark_us: i64,
    /// By row, when a log took in the record, and how far ahead of that a watermark is believed, in
    /// place of `watermark_us`.
    pub log: Option<(&'d [i64], i64)>,
}

impl Limits<'_> {
    /// The clock plays no part, and watermarks up to this are believed.
    pub fn up_to(watermark_us: i64) -> Limits<'static> {
        Limits { now_us: 0, watermark_us, log: None }
    }
}

/// The event times of a batch.
#[derive(Debug)]
pub struct BatchTimes {
    pub(crate) times: Times,
    /// Least and greatest time, if every record has a usable one.
    pub(crate) bounds: Option<(i64, i64)>,
    watermark: RecordWatermark,
    /// Watermarks above this are not believed.
    limit: i64,
    /// The greatest watermark of the batch's records that is believed.
    pub greatest: i64,
    /// Records whose watermark is not believed, and the first of them.
    pub ahead_records: u64,
    /// The first record ahead of the clock.
    pub first_ahead: Option<usize>,
}

#[derive(Debug)]
enum RecordWatermark {
    Delay(i64),
    Values(Times),
}

impl RecordWatermark {
    /// The watermark of a record, if any.
    #[inline(always)]
    fn of(&self, times: &Times, row: usize) -> Option<i64> {
        match self {
            RecordWatermark::Delay(delay) => times.us(row).map(|t| t.saturating_sub(*delay)),
            RecordWatermark::Values(values) => values.us(row),
        }
    }
}

impl BatchTimes {
    fn new(times: Times, watermark: RecordWatermark, limit: i64) -> BatchTimes {
        let (rows, bounds) = (times.len(), times.bounds());
        let mut result = BatchTimes {
            times,
            bounds,
            watermark,
            limit,
            greatest: BEGINNING,
            ahead_records: 0,
            first_ahead: None,
        };
        match (&result.watermark, bounds) {
            (RecordWatermark::Delay(delay), Some((_, max)))
                if max.saturating_sub(*delay) <= limit =>
            {
                result.greatest = max.saturating_sub(*delay);
            }
            _ => {
                let mut running = result.running(BEGINNING);
                for row in 0..rows {
                    let Some(watermark) = result.watermark(row) else { continue };
                    if !running.advance(watermark) {
                        result.ahead_records += 1;
                        result.first_ahead.get_or_insert(row);
                    }
                }
                result.greatest = running.watermark;
            }
        }
        result
    }

    /// The times of some of the rows.
    pub(super) fn slice(&self, rows: Range<usize>) -> BatchTimes {
        let watermark = match &self.watermark {
            RecordWatermark::Delay(delay) => RecordWatermark::Delay(*delay),
            RecordWatermark::Values(values) => RecordWatermark::Values(values.slice(rows.clone())),
        };
        BatchTimes::new(self.times.slice(rows), watermark, self.limit)
    }

    /// The first watermark of these records in a split without an earlier watermark, or the least
    /// time up to the watermark's record, if less: no record in time comes before. `BEGINNING` if
    /// no watermark is believed.
    pub fn first(&self) -> i64 {
        let mut least = END;
        for row in 0..self.times.len() {
            least = least.min(self.times.us(row).unwrap_or(END));
            let watermark = self.watermark(row).filter(|watermark| *watermark <= self.limit);
            if let Some(watermark) = watermark {
                return least.min(watermark);
            }
        }
        BEGINNING
    }

    /// A running maximum that starts at `watermark`.
    pub(crate) fn running(&self, watermark: i64) -> Running {
        Running { watermark, limit: self.limit }
    }

    /// The watermark of a record, if any.
    #[inline(always)]
    pub(crate) fn watermark(&self, row: usize) -> Option<i64> {
        self.watermark.of(&self.times, row)
    }

    /// The watermark just before each record, if it is `stamp` before the first; NULL where
    /// there has been none.
    pub(crate) fn watermarks_before(&self, stamp: i64) -> TimestampMicrosecondArray {
        let mut running = self.running(stamp);
        let before = (0..self.times.len()).map(|row| {
            let before = running.watermark;
            if let Some(watermark) = self.watermark(row) {
                running.advance(watermark);
            }
            (before != BEGINNING).then_some(before)
        });
        before.collect()
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

/// Times as a column of this type, which is of milliseconds or microseconds.
pub fn as_column(times: TimestampMicrosecondArray, data_type: &DataType) -> ArrayRef {
    match data_type {
        DataType::Timestamp(TimeUnit::Millisecond, zone) => {
            let times = times.unary::<_, TimestampMillisecondType>(|us| us.div_euclid(1_000));
            Arc::new(times.with_timezone_opt(zone.clone()))
        }
        DataType::Timestamp(_, zone) => Arc::new(times.with_timezone_opt(zone.clone())),
        _ => Arc::new(times),
    }
}

/// Watermarks of which those of the rows `ahead` are not believed, and their limit.
fn disbelieved(watermark: &RecordWatermark, times: &Times, ahead: &[bool]) -> (Times, i64) {
    let values = ahead.iter().enumerate().map(|(row, ahead)| {
        let watermark = watermark.of(times, row);
        watermark.map(|us| if *ahead { USABLE } else { us.min(USABLE - 1) })
    });
    (Times::of_us(values), USABLE - 1)
}

/// By row, whether a watermark is so far ahead of the log's clock that it is not believed; `None`
/// if all are believed. Of records that the log has no time of, the clock decides.
fn ahead_of_log(
    watermark: &RecordWatermark,
    times: &Times,
    (appended_us, ahead_us): (&[i64], i64),
    limit: i64,
) -> Option<Vec<bool>> {
    let limit_of = |appended_us: i64| match appended_us {
        NOT_APPENDED => limit,
        appended_us => appended_us.saturating_add(ahead_us),
    };
    let rows = appended_us.iter().enumerate();
    let is_ahead = |(row, appended_us): (usize, &i64)| {
        watermark.of(times, row).is_some_and(|watermark| watermark > limit_of(*appended_us))
    };
    let ahead: Vec<bool> = rows.map(is_ahead).collect();
    ahead.contains(&true).then_some(ahead)
}

/// Times of a batch, and its watermarks, of which none above a limit is believed. A record may be
/// late by `lateness_us`, which [`local_watermark`] needs to know.
pub fn batch_times(
    event_time: &EventTime,
    batch: &RecordBatch,
    limits: &Limits<'_>,
    lateness_us: i64,
) -> Result<BatchTimes> {
    let times = Times::new(batch.column(event_time.column))?;
    let watermark = match &event_time.watermark {
        Watermark::Delay(delay) => RecordWatermark::Delay(*delay),
        Watermark::Clock => RecordWatermark::Delay(0),
        Watermark::Expr(expr) => RecordWatermark::Values(Times::new(&expr.evaluate(batch)?)?),
    };
    let limit = limits.watermark_us;
    let ahead = limits.log.map(|log| ahead_of_log(&watermark, &times, log, limit));
    // The log has decided.
    let limit = if ahead.is_some() { END - 1 } else { limit };
    let believed = |times: Times, watermark: RecordWatermark, limit: i64| match &ahead {
        Some(Some(ahead)) => {
            let (values, limit) = disbelieved(&watermark, &times, ahead);
            BatchTimes::new(times, RecordWatermark::Values(values), limit)
        }
        _ => BatchTimes::new(times, watermark, limit),
    };
    let Some(zone) = &event_time.zone else {
        return Ok(believed(times, watermark, limit));
    };
    // From here on, all times are local ones.
    let mut clock = zone.clock();
    let mut local = |us: i64| local_watermark(&mut clock, us, lateness_us);
    let watermark = RecordWatermark::Values(match watermark {
        RecordWatermark::Delay(delay) => times.map(|us| local(us.saturating_sub(delay))),
        RecordWatermark::Values(values) => values.map(local),
    });
    let limit =
        if limit < USABLE { local_watermark(&mut clock, limit, lateness_us) } else { limit };
    Ok(believed(times.map(|us| clock.local(us)), watermark, limit))
}

/// A watermark in local time, such that what lies `lateness_us` before it is the least local time
/// of all instants from so long before it on. So a window is complete that long after its end, as
/// clocks in UTC measure it, also where the local clock is changed meanwhile.
pub(crate) fn local_watermark(clock: &mut Clock<'_>, us: i64, lateness_us: i64) -> i64 {
    clock.least_from(us.saturating_sub(lateness_us)).saturating_add(lateness_us)
}

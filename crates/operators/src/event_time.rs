//! Event time: reading it from a column, and watermarks as running maxima.
//!
//! All arithmetic is in microseconds since 1970 (years ±292,000). Finer input is rounded down,
//! which changes neither windows nor lateness, since both have bounds in whole microseconds.

use std::ops::Range;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::buffer::{NullBuffer, ScalarBuffer};
use arrow::datatypes::*;
#[cfg(target_arch = "x86_64")]
use millstream_cpu::{Level, level};

use crate::error::{Error, Result};

/// Before every record.
pub const BEGINNING: i64 = i64::MIN;
/// After the last record.
pub const END: i64 = i64::MAX;

/// A timestamp column in its own unit.
#[derive(Debug, Clone)]
pub(crate) struct Times {
    values: ScalarBuffer<i64>,
    nulls: Option<NullBuffer>,
    unit: TimeUnit,
}

impl Times {
    pub(crate) fn new(column: &ArrayRef) -> Result<Times> {
        let DataType::Timestamp(unit, _) = column.data_type() else {
            let message = format!("event time of type {}", column.data_type());
            return Err(Error::Internal(message));
        };
        let values = match unit {
            TimeUnit::Second => column.as_primitive::<TimestampSecondType>().values(),
            TimeUnit::Millisecond => column.as_primitive::<TimestampMillisecondType>().values(),
            TimeUnit::Microsecond => column.as_primitive::<TimestampMicrosecondType>().values(),
            TimeUnit::Nanosecond => column.as_primitive::<TimestampNanosecondType>().values(),
        };
        let nulls = column.nulls().filter(|n| n.null_count() > 0).cloned();
        Ok(Times { values: values.clone(), nulls, unit: *unit })
    }

    /// A value of this column's unit in microseconds.
    #[inline(always)]
    fn to_us(&self, value: i64) -> i64 {
        match self.unit {
            TimeUnit::Second => value.saturating_mul(1_000_000),
            TimeUnit::Millisecond => value.saturating_mul(1_000),
            TimeUnit::Microsecond => value,
            TimeUnit::Nanosecond => value.div_euclid(1_000),
        }
    }

    /// Times in microseconds; `None` for a row without a time.
    pub(crate) fn of_us(times: impl Iterator<Item = Option<i64>>) -> Times {
        let values = times.map(|time| time.unwrap_or(i64::MAX)).collect();
        Times { values, nulls: None, unit: TimeUnit::Microsecond }
    }

    /// Whether a row has no time at all.
    #[inline(always)]
    pub(crate) fn is_null(&self, row: usize) -> bool {
        self.nulls.as_ref().is_some_and(|n| n.is_null(row))
    }

    /// The time of a row in microseconds, if it has a usable one.
    #[inline(always)]
    pub(crate) fn us(&self, row: usize) -> Option<i64> {
        if self.is_null(row) {
            return None;
        }
        let us = self.to_us(self.values[row]);
        // Where converting saturated, or windows would, there is no telling where it belongs.
        (-USABLE..=USABLE).contains(&us).then_some(us)
    }

    /// Other times in the place of these, in microseconds. What is not usable stays so.
    pub(crate) fn map(&self, mut other: impl FnMut(i64) -> i64) -> Times {
        let time = |row| self.us(row).map_or(i64::MAX, &mut other);
        Times {
            values: (0..self.len()).map(time).collect(),
            nulls: self.nulls.clone(),
            unit: TimeUnit::Microsecond,
        }
    }

    /// The times of some of the rows.
    pub(crate) fn slice(&self, rows: Range<usize>) -> Times {
        let nulls = self.nulls.as_ref().map(|nulls| nulls.slice(rows.start, rows.len()));
        Times {
            values: self.values.slice(rows.start, rows.len()),
            nulls: nulls.filter(|nulls| nulls.null_count() > 0),
            unit: self.unit,
        }
    }

    /// The times of all rows in microseconds, where every row has a usable one.
    pub(crate) fn all_us(&self) -> ScalarBuffer<i64> {
        // What is usable does not overflow.
        let times = |us: i64| self.values.iter().map(|value| value.wrapping_mul(us)).collect();
        match self.unit {
            TimeUnit::Second => times(1_000_000),
            TimeUnit::Millisecond => times(1_000),
            TimeUnit::Microsecond => self.values.clone(),
            TimeUnit::Nanosecond => self.values.iter().map(|v| v.div_euclid(1_000)).collect(),
        }
    }

    /// Whether no row of these, all of which have a time, is earlier than the one before it.
    pub(crate) fn are_in_order(&self, rows: Range<usize>) -> bool {
        let values = &self.values[rows];
        let pairs = values.iter().zip(values.iter().skip(1));
        // Without a branch for each.
        pairs.fold(true, |all, (before, value)| all & (before <= value))
    }

    /// Number of rows.
    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }

    /// Least and greatest time if every row has a usable one; `None` if not, or without rows.
    pub(crate) fn bounds(&self) -> Option<(i64, i64)> {
        if self.nulls.is_some() || self.values.is_empty() {
            return None;
        }
        let (min, max) = self.bounds_of(0..self.len());
        (min >= -USABLE && max <= USABLE).then_some((min, max))
    }

    /// Least and greatest time of some rows, all of which have one.
    pub(crate) fn bounds_of(&self, rows: Range<usize>) -> (i64, i64) {
        let (min, max) = min_max(&self.values[rows]);
        (self.to_us(min), self.to_us(max))
    }
}

/// Times beyond this (146,000 years from 1970) leave no room for window arithmetic.
pub(crate) const USABLE: i64 = i64::MAX / 2;

/// Least and greatest of at least one value.
fn min_max(values: &[i64]) -> (i64, i64) {
    #[inline(always)]
    fn scan(values: &[i64]) -> (i64, i64) {
        let (mut min, mut max) = (i64::MAX, i64::MIN);
        for &value in values {
            min = min.min(value);
            max = max.max(value);
        }
        (min, max)
    }
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx2")]
        fn scan_avx2(values: &[i64]) -> (i64, i64) {
            scan(values)
        }
        #[target_feature(enable = "avx512f,avx512vl")]
        fn scan_avx512(values: &[i64]) -> (i64, i64) {
            scan(values)
        }
        match level() {
            // SAFETY: the processor has the level.
            Level::Avx512 => return unsafe { scan_avx512(values) },
            // SAFETY: as above.
            Level::Avx2 => return unsafe { scan_avx2(values) },
            Level::Portable => {}
        }
    }
    scan(values)
}

/// The running maximum that a split's watermark is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Running {
    /// The watermark now.
    pub(crate) watermark: i64,
    /// Watermarks above this are not believed.
    pub(crate) limit: i64,
}

impl Running {
    /// Takes in a record's watermark; false if it lies too far ahead to be believed.
    #[inline(always)]
    pub(crate) fn advance(&mut self, watermark: i64) -> bool {
        let believed = watermark <= self.limit;
        if believed && watermark > self.watermark {
            self.watermark = watermark;
        }
        believed
    }
}

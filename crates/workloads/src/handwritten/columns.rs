//! Reading each workload's records from a batch.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Float64Type, Int32Type, Int64Type, TimestampMillisecondType,
};
use arrow_array::{Array, RecordBatch, StringArray};

use super::PIECE;
use super::kinds::{Count, CountAndMean, Kind, Max, Text, TextCount};
use super::vectors;
use crate::error::{Error, Result};

/// Keys and inputs of records, in order.
type Updates<'a, K> = (&'a [<K as Kind>::Key], &'a [<K as Kind>::Input]);

/// A batch's columns and the query's filter.
pub(super) trait Source: Sized {
    /// Kind of the query's value per key.
    type Kind: Kind;
    /// Room for records that pass the filter.
    type Scratch: Default;
    /// Finds the columns.
    fn new(batch: &RecordBatch) -> Result<Self>;
    /// Event times, milliseconds.
    fn ts(&self) -> &[i64];
    /// Keys and inputs of those records `from..to` (at most [`PIECE`]) that pass the filter.
    fn select<'a>(
        &'a self,
        from: usize,
        to: usize,
        scratch: &'a mut Self::Scratch,
    ) -> Updates<'a, Self::Kind>;
}

/// As many inputs of no size as a piece has records.
const NOTHING: [(); PIECE] = [(); PIECE];

/// Keys that passed a filter.
pub(super) struct Selected<T>(Box<[T; PIECE + vectors::SLACK]>);

impl<T: Default + Copy> Default for Selected<T> {
    fn default() -> Self {
        Selected(Box::new([T::default(); PIECE + vectors::SLACK]))
    }
}

/// Counting numbers that pass `event_type = 0`, in a table that grows by a factor of `GROWTH`.
pub(super) struct Filtered<const GROWTH: usize> {
    ts: Numbers<TimestampMillisecondType>,
    keys: Numbers<Int64Type>,
    event_types: Numbers<Int32Type>,
}

impl<const GROWTH: usize> Source for Filtered<GROWTH> {
    type Kind = Count<GROWTH>;
    type Scratch = Selected<i64>;

    fn new(batch: &RecordBatch) -> Result<Self> {
        Ok(Filtered {
            ts: numbers::<TimestampMillisecondType>(batch, "ts")?,
            keys: numbers::<Int64Type>(batch, "key")?,
            event_types: numbers::<Int32Type>(batch, "event_type")?,
        })
    }

    fn ts(&self) -> &[i64] {
        &self.ts
    }

    #[inline]
    fn select<'a>(
        &'a self,
        from: usize,
        to: usize,
        scratch: &'a mut Selected<i64>,
    ) -> (&'a [i64], &'a [()]) {
        let (keys, types) = (&self.keys[from..to], &self.event_types[from..to]);
        let passed = vectors::where_zero(keys, types, &mut scratch.0[..]);
        (&scratch.0[..passed], &NOTHING[..passed])
    }
}

/// Counting strings of 16 bytes that pass `event_type = 0`.
pub(super) struct FilteredText {
    ts: Numbers<TimestampMillisecondType>,
    keys: StringArray,
    event_types: Numbers<Int32Type>,
}

impl Source for FilteredText {
    type Kind = TextCount;
    type Scratch = Selected<Text>;

    fn new(batch: &RecordBatch) -> Result<Self> {
        let wrong = || column_error(batch, "key", "VARCHAR");
        let keys = batch.column_by_name("key").ok_or_else(wrong)?;
        let keys = keys.as_string_opt::<i32>().ok_or_else(wrong)?;
        // Every key has 16 bytes: then row numbers say where they stand.
        let offsets = keys.value_offsets();
        let even = offsets.windows(2).fold(true, |even, two| even & (two[1] - two[0] == 16));
        if !even {
            let row = offsets.windows(2).position(|two| two[1] - two[0] != 16).unwrap_or(0);
            let message = format!("expected 16 bytes, found '{}'", keys.value(row));
            return Err(Error::Value { column: "key".to_string(), row, message });
        }
        Ok(FilteredText {
            ts: numbers::<TimestampMillisecondType>(batch, "ts")?,
            keys: keys.clone(),
            event_types: numbers::<Int32Type>(batch, "event_type")?,
        })
    }

    fn ts(&self) -> &[i64] {
        &self.ts
    }

    #[inline]
    fn select<'a>(
        &'a self,
        from: usize,
        to: usize,
        scratch: &'a mut Selected<Text>,
    ) -> (&'a [Text], &'a [()]) {
        let start = self.keys.value_offsets()[from] as usize;
        let (keys, _) = self.keys.value_data()[start..].as_chunks::<16>();
        let mut passed = 0;
        for (key, event_type) in keys.iter().zip(&self.event_types[from..to]) {
            let (halves, _) = key.as_chunks::<8>();
            scratch.0[passed] = [u64::from_ne_bytes(halves[0]), u64::from_ne_bytes(halves[1])];
            passed += usize::from(*event_type == 0);
        }
        (&scratch.0[..passed], &NOTHING[..passed])
    }
}

/// The highest price by number.
pub(super) struct Priced {
    ts: Numbers<TimestampMillisecondType>,
    keys: Numbers<Int64Type>,
    prices: Numbers<Int64Type>,
}

impl Source for Priced {
    type Kind = Max;
    type Scratch = ();

    fn new(batch: &RecordBatch) -> Result<Self> {
        Ok(Priced {
            ts: numbers::<TimestampMillisecondType>(batch, "ts")?,
            keys: numbers::<Int64Type>(batch, "key")?,
            prices: numbers::<Int64Type>(batch, "price")?,
        })
    }

    fn ts(&self) -> &[i64] {
        &self.ts
    }

    #[inline]
    fn select<'a>(&'a self, from: usize, to: usize, _: &'a mut ()) -> (&'a [i64], &'a [i64]) {
        (&self.keys[from..to], &self.prices[from..to])
    }
}

/// Count and mean by number.
pub(super) struct Mean {
    ts: Numbers<TimestampMillisecondType>,
    keys: Numbers<Int64Type>,
    cpus: Numbers<Float64Type>,
}

impl Source for Mean {
    type Kind = CountAndMean;
    type Scratch = ();

    fn new(batch: &RecordBatch) -> Result<Self> {
        Ok(Mean {
            ts: numbers::<TimestampMillisecondType>(batch, "ts")?,
            keys: numbers::<Int64Type>(batch, "key")?,
            cpus: numbers::<Float64Type>(batch, "cpu")?,
        })
    }

    fn ts(&self) -> &[i64] {
        &self.ts
    }

    #[inline]
    fn select<'a>(&'a self, from: usize, to: usize, _: &'a mut ()) -> (&'a [i64], &'a [f64]) {
        (&self.keys[from..to], &self.cpus[from..to])
    }
}

/// Counting numbers, without filter.
pub(super) struct Plain {
    ts: Numbers<TimestampMillisecondType>,
    keys: Numbers<Int64Type>,
}

impl Source for Plain {
    type Kind = Count<8>;
    type Scratch = ();

    fn new(batch: &RecordBatch) -> Result<Self> {
        Ok(Plain {
            ts: numbers::<TimestampMillisecondType>(batch, "ts")?,
            keys: numbers::<Int64Type>(batch, "key")?,
        })
    }

    fn ts(&self) -> &[i64] {
        &self.ts
    }

    #[inline]
    fn select<'a>(&'a self, from: usize, to: usize, _: &'a mut ()) -> (&'a [i64], &'a [()]) {
        (&self.keys[from..to], &NOTHING[..to - from])
    }
}

/// A column's values, shared with its batch.
pub(super) type Numbers<T> = arrow_buffer::ScalarBuffer<<T as ArrowPrimitiveType>::Native>;

/// The values of the column called `name`, which must have type `T` and no NULLs.
pub(super) fn numbers<T: ArrowPrimitiveType>(
    batch: &RecordBatch,
    name: &str,
) -> Result<Numbers<T>> {
    let column = batch.column_by_name(name).and_then(|column| column.as_primitive_opt::<T>());
    let column = column.filter(|column| column.null_count() == 0);
    let expected = || column_error(batch, name, &format!("{} without NULLs", T::DATA_TYPE));
    Ok(column.ok_or_else(expected)?.values().clone())
}

/// The column called `name`, which must be of texts.
pub(super) fn texts<'b>(batch: &'b RecordBatch, name: &str) -> Result<&'b StringArray> {
    let column = batch.column_by_name(name).and_then(|column| column.as_string_opt::<i32>());
    column.ok_or_else(|| column_error(batch, name, "VARCHAR"))
}

fn column_error(batch: &RecordBatch, name: &str, expected: &str) -> Error {
    let found = batch.column_by_name(name).map(|column| column.data_type().to_string());
    Error::Column {
        column: name.to_string(),
        expected: expected.to_string(),
        found: found.unwrap_or_else(|| "no such column".to_string()),
    }
}

/// Whether all timestamps are in `start..=last`.
pub(super) fn all_within(ts: &[i64], start: i64, last: i64) -> bool {
    // Outside of the range, one of the differences is negative. Both cannot wrap around.
    vectors::with_avx2(
        #[inline(always)]
        || {
            let before = start.wrapping_sub(1);
            let (above, below) = ts.iter().fold((0, -1), |(above, below), t| {
                (above | last.wrapping_sub(*t), below & before.wrapping_sub(*t))
            });
            above >= 0 && below < 0
        },
    )
}

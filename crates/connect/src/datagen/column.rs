//! The values of one generated column.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, ArrowPrimitiveType, BinaryBuilder, BooleanArray, PrimitiveArray, StringBuilder,
};
use arrow::buffer::{BooleanBuffer, NullBuffer, ScalarBuffer};
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Field, Float32Type, Float64Type, Int8Type, Int16Type,
    Int32Type, Int64Type, Time32MillisecondType, Time32SecondType, Time64MicrosecondType,
    Time64NanosecondType, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use millstream_contract::calendar::per_second;
use millstream_contract::{Error, Result};

use super::split::RowNumbers;
use crate::datetime::{SECONDS_PER_DAY, parse_date, parse_time, parse_timestamp};
use crate::number::parse_decimal;
use crate::options::Options;
use crate::random::{Random, mix};
use crate::types::{integer_range, sql_name};

/// Longest random string, bytes: a batch of them has to fit a string column (2 GiB).
const LENGTH_MAX: u64 = 16 << 10;

/// How a column's values come about. Whole numbers stand for everything that Arrow stores as one:
/// unscaled decimals, days, units of time.
#[derive(Debug, Clone)]
enum ValueRule {
    Whole { min: i128, max: i128 },
    Count { start: i128, end: i128, step: i128 },
    Float { min: f64, max: f64 },
    FloatCount { start: f64 },
    Boolean,
    Hex { length: usize },
    Bytes { length: usize },
    TextCount { start: i128 },
    Time { start: Option<i128>, step_ns: Option<i128> },
}

/// A column to make up.
#[derive(Debug, Clone)]
pub(super) struct GeneratedColumn {
    data_type: DataType,
    values: ValueRule,
    /// Random values depend on it and the row number.
    seed: u64,
    /// Of 2^64 values, how many are NULL.
    nulls: u128,
}

impl GeneratedColumn {
    /// Reads the `fields.<name>.*` options.
    pub(super) fn from_options(
        options: &Options<'_>,
        field: &Field,
        seed: u64,
        index: usize,
    ) -> Result<GeneratedColumn> {
        let key = |option: &str| format!("fields.{}.{option}", field.name());
        let timestamp = matches!(field.data_type(), DataType::Timestamp(_, _));
        let kind = options.parsed(&key("kind"), "'random' or 'sequence'", |text| {
            ["random", "sequence"].into_iter().find(|kind| text.eq_ignore_ascii_case(kind))
        })?;
        let sequence = kind.map_or(timestamp, |kind| kind == "sequence");
        let null_rate = options.parsed(&key("null-rate"), "a number from 0 to 1", |text| {
            text.trim().parse().ok().filter(|rate| (0.0..=1.0).contains(rate))
        })?;
        let null_rate: f64 = null_rate.unwrap_or(0.0);
        if null_rate > 0.0 && !field.is_nullable() {
            let message = format!("column '{}' is NOT NULL", field.name());
            return Err(options.error(&key("null-rate"), message, ""));
        }
        let values = if sequence {
            sequence_values(options, field, &key)?
        } else {
            random_values(options, field, &key)?
        };
        Ok(GeneratedColumn {
            data_type: field.data_type().clone(),
            values,
            seed: mix(seed ^ mix(index as u64 + 1)),
            nulls: (null_rate * 2f64.powi(64)) as u128,
        })
    }

    /// Rows after which a sequence is used up. A sequence that outlasts any run counts as endless.
    pub(super) fn rows_max(&self) -> Option<u64> {
        match self.values {
            ValueRule::Count { start, end, step } => {
                u64::try_from((end - start) / step + 1).ok().filter(|rows| *rows < 1 << 62)
            }
            _ => None,
        }
    }

    /// Bytes per value, about.
    pub(super) fn width_bytes(&self) -> usize {
        match self.values {
            ValueRule::Hex { length } | ValueRule::Bytes { length } => length,
            ValueRule::TextCount { .. } => 8,
            _ => self.data_type.primitive_width().unwrap_or(1),
        }
    }

    /// The column for some rows.
    pub(super) fn array(
        &self,
        rows: RowNumbers,
        start_time_us: i64,
        rows_per_second: Option<u64>,
    ) -> Result<ArrayRef> {
        use DataType as D;
        let clock = RowClock { start_time_us, rows_per_second };
        Ok(match &self.data_type {
            D::Boolean => self.booleans(rows),
            D::Utf8 => self.strings(rows),
            D::Binary => self.bytes(rows),
            D::Float32 => self.floats::<Float32Type>(rows, |value| value as f32),
            D::Float64 => self.floats::<Float64Type>(rows, |value| value),
            D::Int8 => self.whole::<Int8Type>(rows, clock, |v| v as i8),
            D::Int16 => self.whole::<Int16Type>(rows, clock, |v| v as i16),
            D::Int32 => self.whole::<Int32Type>(rows, clock, |v| v as i32),
            D::Int64 => self.whole::<Int64Type>(rows, clock, |v| v as i64),
            D::UInt8 => self.whole::<UInt8Type>(rows, clock, |v| v as u8),
            D::UInt16 => self.whole::<UInt16Type>(rows, clock, |v| v as u16),
            D::UInt32 => self.whole::<UInt32Type>(rows, clock, |v| v as u32),
            D::UInt64 => self.whole::<UInt64Type>(rows, clock, |v| v as u64),
            D::Decimal128(_, _) => self.whole::<Decimal128Type>(rows, clock, |v| v),
            D::Date32 => self.whole::<Date32Type>(rows, clock, |v| v as i32),
            D::Time32(TimeUnit::Second) => {
                self.whole::<Time32SecondType>(rows, clock, |v| v as i32)
            }
            D::Time32(_) => self.whole::<Time32MillisecondType>(rows, clock, |v| v as i32),
            D::Time64(TimeUnit::Microsecond) => {
                self.whole::<Time64MicrosecondType>(rows, clock, |v| v as i64)
            }
            D::Time64(_) => self.whole::<Time64NanosecondType>(rows, clock, |v| v as i64),
            D::Timestamp(unit, _) => match unit {
                TimeUnit::Second => self.whole::<TimestampSecondType>(rows, clock, |v| v as i64),
                TimeUnit::Millisecond => {
                    self.whole::<TimestampMillisecondType>(rows, clock, |v| v as i64)
                }
                TimeUnit::Microsecond => {
                    self.whole::<TimestampMicrosecondType>(rows, clock, |v| v as i64)
                }
                TimeUnit::Nanosecond => {
                    self.whole::<TimestampNanosecondType>(rows, clock, |v| v as i64)
                }
            },
            other => return Err(Error::Internal(format!("datagen column of type {other}"))),
        })
    }

    /// The random word of a row.
    #[inline]
    fn word(&self, row: u64) -> u64 {
        mix(self.seed.wrapping_add(row.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }

    fn is_null(&self, row: u64) -> bool {
        u128::from(mix(self.word(row) ^ 0x6e75_6c6c)) < self.nulls
    }

    fn validity(&self, rows: RowNumbers) -> Option<NullBuffer> {
        (self.nulls > 0)
            .then(|| rows.numbers().map(|row| !self.is_null(row)).collect::<BooleanBuffer>())
            .map(NullBuffer::new)
    }

    fn whole<T: ArrowPrimitiveType>(
        &self,
        rows: RowNumbers,
        clock: RowClock,
        narrow: impl Fn(i128) -> T::Native,
    ) -> ArrayRef {
        let values: Vec<T::Native> = match self.values {
            ValueRule::Whole { min, max } => {
                // The span of a wide decimal needs all 128 bits.
                let span = max.wrapping_sub(min) as u128 + 1;
                let value = |row| min.wrapping_add(self.below(row, span) as i128);
                rows.numbers().map(|row| narrow(value(row))).collect()
            }
            ValueRule::Count { start, step, .. } => {
                rows.numbers().map(|row| narrow(start + i128::from(row) * step)).collect()
            }
            ValueRule::Time { start, step_ns } => {
                let ns_per_unit = match &self.data_type {
                    DataType::Timestamp(unit, _) => 1_000_000_000 / per_second(*unit),
                    _ => 1,
                };
                let value = |row| {
                    let ns = clock.time_ns(row, start, step_ns);
                    let value = ns.div_euclid(i128::from(ns_per_unit));
                    narrow(value.clamp(i64::MIN.into(), i64::MAX.into()))
                };
                rows.numbers().map(value).collect()
            }
            _ => vec![T::Native::default(); rows.count],
        };
        let array = PrimitiveArray::<T>::new(ScalarBuffer::from(values), self.validity(rows));
        Arc::new(array.with_data_type(self.data_type.clone()))
    }

    /// A random number below `span`.
    #[inline]
    fn below(&self, row: u64, span: u128) -> u128 {
        let word = u128::from(self.word(row));
        if span <= 1 << 64 {
            return (word * span) >> 64;
        }
        let wide = (word << 64) | u128::from(mix(self.word(row) ^ 0x7769_6465));
        wide % span
    }

    fn floats<T: ArrowPrimitiveType>(
        &self,
        rows: RowNumbers,
        narrow: impl Fn(f64) -> T::Native,
    ) -> ArrayRef {
        let value = |row: u64| match self.values {
            ValueRule::Float { min, max } => {
                let unit = (self.word(row) >> 11) as f64 / (1u64 << 53) as f64;
                min + unit * (max - min)
            }
            ValueRule::FloatCount { start } => start + row as f64,
            _ => 0.0,
        };
        let values: Vec<T::Native> = rows.numbers().map(|row| narrow(value(row))).collect();
        Arc::new(PrimitiveArray::<T>::new(ScalarBuffer::from(values), self.validity(rows)))
    }

    fn booleans(&self, rows: RowNumbers) -> ArrayRef {
        let values: BooleanBuffer = rows.numbers().map(|row| self.word(row) >> 63 == 1).collect();
        Arc::new(BooleanArray::new(values, self.validity(rows)))
    }

    fn strings(&self, rows: RowNumbers) -> ArrayRef {
        let mut builder = StringBuilder::with_capacity(rows.count, rows.count * 16);
        let mut text = String::new();
        for row in rows.numbers() {
            text.clear();
            match self.values {
                ValueRule::Hex { length } => self.fill(row, length, |word| {
                    let digit = (word >> 60) as u32;
                    text.push(char::from_digit(digit, 16).unwrap_or('0'));
                }),
                ValueRule::TextCount { start } => text = (start + i128::from(row)).to_string(),
                _ => {}
            }
            builder.append_option((!self.is_null(row)).then_some(&text));
        }
        Arc::new(builder.finish())
    }

    fn bytes(&self, rows: RowNumbers) -> ArrayRef {
        let mut builder = BinaryBuilder::with_capacity(rows.count, rows.count * 16);
        let mut bytes = Vec::new();
        for row in rows.numbers() {
            bytes.clear();
            if let ValueRule::Bytes { length } = self.values {
                self.fill(row, length, |word| bytes.push((word >> 56) as u8));
            }
            builder.append_option((!self.is_null(row)).then_some(&bytes));
        }
        Arc::new(builder.finish())
    }

    /// Calls `put` with `length` random words.
    fn fill(&self, row: u64, length: usize, mut put: impl FnMut(u64)) {
        let mut random = Random::new(self.word(row));
        for _ in 0..length {
            put(random.next());
        }
    }
}

/// When rows happen.
#[derive(Clone, Copy)]
struct RowClock {
    start_time_us: i64,
    rows_per_second: Option<u64>,
}

impl RowClock {
    /// Event time of a row, nanoseconds since the epoch.
    fn time_ns(&self, row: u64, start: Option<i128>, step_ns: Option<i128>) -> i128 {
        let start = start.unwrap_or(i128::from(self.start_time_us) * 1_000);
        let row = i128::from(row);
        start
            + match (step_ns, self.rows_per_second) {
                (Some(step), _) => row * step,
                (None, Some(rate)) => row * 1_000_000_000 / i128::from(rate),
                (None, None) => row * 1_000_000,
            }
    }
}

fn sequence_values(
    options: &Options<'_>,
    field: &Field,
    key: &dyn Fn(&str) -> String,
) -> Result<ValueRule> {
    let (start, end) = (key("start"), key("end"));
    let data_type = field.data_type();
    Ok(match data_type {
        DataType::Timestamp(_, _) => {
            let start = options.parsed(&start, "a timestamp", |text| {
                let instant = parse_timestamp(text.trim().as_bytes())?;
                Some(i128::from(instant.seconds) * 1_000_000_000 + i128::from(instant.nanos))
            })?;
            let step_ns = options.duration_us(&key("step"))?.map(|us| i128::from(us) * 1_000);
            ValueRule::Time { start, step_ns }
        }
        DataType::Float32 | DataType::Float64 => {
            let start = options.parsed(&start, "a number", |text| text.trim().parse().ok())?;
            ValueRule::FloatCount { start: start.unwrap_or(0.0) }
        }
        DataType::Utf8 => {
            let start = options.parsed(&start, "a whole number", |t| t.trim().parse::<i64>().ok());
            ValueRule::TextCount { start: i128::from(start?.unwrap_or(0)) }
        }
        DataType::Time32(_) | DataType::Time64(_) => return Err(no_sequence(options, field, key)),
        _ => {
            let Some((least, most)) = whole_range(data_type) else {
                return Err(no_sequence(options, field, key));
            };
            let form = sql_name(data_type);
            let read = |text: &str| whole(data_type, text);
            let first = options.parsed(&start, &form, read)?.unwrap_or(least.max(0));
            let last = options.parsed(&end, &form, read)?.unwrap_or(most);
            if last < first {
                let message = "the end is before the start".to_string();
                return Err(options.error(&end, message, ""));
            }
            let step = match data_type {
                DataType::Decimal128(_, scale) => 10i128.pow(u32::try_from(*scale).unwrap_or(0)),
                _ => 1,
            };
            ValueRule::Count { start: first, end: last, step }
        }
    })
}

fn no_sequence(options: &Options<'_>, field: &Field, key: &dyn Fn(&str) -> String) -> Error {
    let message = format!("there is no sequence of {}", sql_name(field.data_type()));
    options.error(&key("kind"), message, "write 'random'")
}

fn random_values(
    options: &Options<'_>,
    field: &Field,
    key: &dyn Fn(&str) -> String,
) -> Result<ValueRule> {
    let (min, max) = (key("min"), key("max"));
    let data_type = field.data_type();
    let length = || -> Result<usize> {
        // At most LENGTH_MAX, so it fits.
        Ok(options.integer(&key("length"), 0, LENGTH_MAX)?.unwrap_or(100) as usize)
    };
    Ok(match data_type {
        DataType::Boolean => ValueRule::Boolean,
        DataType::Utf8 => ValueRule::Hex { length: length()? },
        DataType::Binary => ValueRule::Bytes { length: length()? },
        DataType::Float32 | DataType::Float64 => {
            let read = |text: &str| text.trim().parse().ok().filter(|v: &f64| v.is_finite());
            let least = options.parsed(&min, "a number", read)?.unwrap_or(0.0);
            let most = options.parsed(&max, "a number", read)?.unwrap_or(least + 1.0);
            if least > most {
                return Err(options.error(&max, format!("it is less than {min}"), ""));
            }
            ValueRule::Float { min: least, max: most }
        }
        _ => {
            let Some(range) = whole_range(data_type) else {
                let message =
                    format!("column '{}' is of type {}", field.name(), sql_name(data_type));
                return Err(options.error("connector", message, "datagen cannot make those up"));
            };
            let form = sql_name(data_type);
            let read = |text: &str| whole(data_type, text);
            let least = options.parsed(&min, &form, read)?;
            let most = options.parsed(&max, &form, read)?;
            if matches!(data_type, DataType::Timestamp(_, _)) {
                for (key, bound) in [(&min, least), (&max, most)] {
                    if bound.is_none() {
                        let message = "a random timestamp needs 'min' and 'max'".to_string();
                        return Err(options.error(key, message, "or use 'kind' = 'sequence'"));
                    }
                }
            }
            let (least, most) = (least.unwrap_or(range.0), most.unwrap_or(range.1));
            if least > most {
                return Err(options.error(&max, format!("it is less than {min}"), ""));
            }
            ValueRule::Whole { min: least, max: most }
        }
    })
}

/// Default range of a type that Arrow stores as a whole number. Dates: this century so far and the
/// next decades, rather than five million years.
fn whole_range(data_type: &DataType) -> Option<(i128, i128)> {
    let day = |unit: &TimeUnit| i128::from(SECONDS_PER_DAY * per_second(*unit));
    match data_type {
        DataType::Decimal128(precision, _) => {
            let limit = 10i128.pow(u32::from(*precision).min(38)) - 1;
            Some((-limit, limit))
        }
        DataType::Date32 => {
            let day = |text: &[u8]| parse_date(text).map(i128::from);
            Some((day(b"2000-01-01")?, day(b"2049-12-31")?))
        }
        DataType::Time32(TimeUnit::Second | TimeUnit::Millisecond)
        | DataType::Time64(TimeUnit::Microsecond | TimeUnit::Nanosecond) => match data_type {
            DataType::Time32(unit) | DataType::Time64(unit) => Some((0, day(unit) - 1)),
            _ => None,
        },
        DataType::Timestamp(_, _) => Some((i64::MIN.into(), i64::MAX.into())),
        _ => integer_range(data_type),
    }
}

/// An option's text as the whole number that Arrow stores.
fn whole(data_type: &DataType, text: &str) -> Option<i128> {
    let text = text.trim();
    match data_type {
        DataType::Decimal128(precision, scale) => {
            parse_decimal(text.as_bytes(), *precision, *scale, false).ok()
        }
        DataType::Date32 => parse_date(text.as_bytes()).map(i128::from),
        DataType::Time32(unit) | DataType::Time64(unit) => {
            parse_time(text.as_bytes())?.in_unit(*unit).map(i128::from)
        }
        DataType::Timestamp(unit, _) => {
            parse_timestamp(text.as_bytes())?.in_unit(*unit).map(i128::from)
        }
        _ => {
            let (least, most) = integer_range(data_type)?;
            text.parse().ok().filter(|value| (least..=most).contains(value))
        }
    }
}

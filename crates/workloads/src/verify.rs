//! The verifier: it reduces an answer to a row count and to sums that do not depend on the order of
//! rows.
//!
//! The verifier runs inside the timed and instruction-counted region of every engine, so it has to
//! be cheap. With AVX2 it takes about eight instructions per row while values are small (counts
//! usually are), since the two inner hashes then come from a table that is filled once per window.

mod mix;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Float64Type, Int64Type, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType,
};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::{DataType, TimeUnit};

use crate::error::{Error, Result};
use crate::rows::{RowData, string_key};
use crate::spec::{Spec, Workload};
use mix::{Memo, Sums, m};

/// An answer in four numbers. All integer sums are modulo 2^64 and `m` is splitmix64's finaliser.
#[derive(Debug, Clone, Copy, Default)]
pub struct Answer {
    /// Number of result rows.
    pub result_rows: u64,
    /// `Σ (key*31 + window*17 + value)`: weak, but every engine prints it.
    pub checksum: u64,
    /// `Σ m(key + m(window + m(value)))`: decides, since it sees a count that moved to another key
    /// or window. Where the start of a window does not say where it ends (windows that cumulate,
    /// and sessions), `m(window + m(end))` stands for `window`.
    pub mix: u64,
    /// `Σ avg`, for `cm` only.
    pub avg_sum: Option<f64>,
}

/// Integers agree exactly; the averages' sum agrees as far as it is published, to three decimals,
/// since it depends on the order of rows beyond.
impl PartialEq for Answer {
    fn eq(&self, other: &Answer) -> bool {
        let integers = |a: &Answer| (a.result_rows, a.checksum, a.mix);
        let averages = match (self.avg_sum, other.avg_sum) {
            (None, None) => true,
            (Some(a), Some(b)) => (a - b).abs() < 0.001,
            _ => false,
        };
        integers(self) == integers(other) && averages
    }
}

/// When a window begins and ends, ms; twice 0 where there are no windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// The time of its first possible record.
    pub start: i64,
    /// The time after that of its last possible record.
    pub end: i64,
}

/// Takes result rows and yields their [`Answer`]. Each worker has its own; they are merged at the
/// end.
#[derive(Debug, Clone)]
pub struct Verifier {
    windowed: bool,
    ends: bool,
    averages: bool,
    /// Expected `data` of rows, by key.
    data: Option<RowData>,
    sums: Sums,
    avg_sum: f64,
    memo: Memo,
}

impl Verifier {
    /// A verifier of `spec`'s result rows that has seen none.
    pub fn new(spec: &Spec) -> Verifier {
        Verifier {
            windowed: spec.windowed(),
            ends: spec.windowed() && spec.windows.has_ends(),
            averages: spec.workload == Workload::Cm,
            data: RowData::of(spec.workload),
            sums: Sums::default(),
            avg_sum: 0.0,
            memo: Memo::new(),
        }
    }

    /// The answer so far.
    pub fn answer(&self) -> Answer {
        Answer {
            result_rows: self.sums.rows,
            checksum: self.sums.checksum,
            mix: self.sums.mix,
            avg_sum: self.averages.then_some(self.avg_sum),
        }
    }

    /// The sum of several workers' verifiers.
    pub fn sum<'a>(spec: &Spec, workers: impl IntoIterator<Item = &'a Verifier>) -> Verifier {
        let mut all = Verifier::new(spec);
        workers.into_iter().for_each(|worker| all.merge(worker));
        all
    }

    /// Adds the rows of another worker's verifier.
    pub fn merge(&mut self, other: &Verifier) {
        self.sums.add(other.sums);
        self.avg_sum += other.avg_sum;
    }

    /// Adds what a verifier elsewhere has seen, from its answer.
    pub fn add_answer(&mut self, answer: &Answer) {
        let Answer { result_rows: rows, checksum, mix, avg_sum } = *answer;
        self.sums.add(Sums { rows, checksum, mix });
        self.avg_sum += avg_sum.unwrap_or(0.0);
    }

    /// Adds rows of a window. Its end counts only where its start does not say where it is.
    ///
    /// # Panics
    ///
    /// If `keys` and `values` differ in length.
    #[inline]
    pub fn add_rows(&mut self, window: Bounds, keys: &[i64], values: &[i64]) {
        assert_eq!(keys.len(), values.len(), "a value for each key");
        let start = window.start as u64;
        let name = match self.ends {
            true => m(start.wrapping_add(m(window.end as u64))),
            false => start,
        };
        self.sums.add(self.memo.sums(start, name, keys, values));
    }

    /// Adds averages; which rows they belong to does not matter, since only their sum is checked.
    #[inline]
    pub fn add_averages(&mut self, averages: &[f64]) {
        // Four sums: one would wait for its own last addition at every step.
        let mut sums = [0.0; 4];
        let (fours, rest) = averages.as_chunks::<4>();
        for four in fours {
            for lane in 0..4 {
                sums[lane] += four[lane];
            }
        }
        self.avg_sum += sums.iter().chain(rest).sum::<f64>();
    }

    /// Adds the rows of `batch`, whose columns are found by name: `window_start` (a timestamp of
    /// any unit; not for `ro`), `window_end` (the same; for windows that cumulate and sessions),
    /// `key` (BIGINT, or strings `user-…`), `value` (BIGINT), for `cm` also `avg` (DOUBLE), and for
    /// `nb8_rows` and `nb11` also `data` and `seller` (strings), the rest of both rows, which is
    /// checked.
    /// Other columns are ignored. On an error nothing of the batch has been added.
    pub fn add_batch(&mut self, batch: &RecordBatch) -> Result<()> {
        let values = column(batch, "value")?;
        let values = values
            .as_primitive_opt::<Int64Type>()
            .ok_or_else(|| type_error(batch, "value", "BIGINT"))?;
        let averages = if self.averages {
            let column = column(batch, "avg")?;
            let column = column.as_primitive_opt::<Float64Type>();
            Some(column.ok_or_else(|| type_error(batch, "avg", "DOUBLE"))?)
        } else {
            None
        };
        let windows = if self.windowed { Some(Windows::of(batch, "window_start")?) } else { None };
        let ends = if self.ends { Some(Windows::of(batch, "window_end")?) } else { None };
        let key = column(batch, "key")?;
        let parsed;
        let keys: &[i64] = match key.as_primitive_opt::<Int64Type>() {
            Some(numbers) => numbers.values(),
            None => {
                parsed = parse_keys(batch, key)?;
                &parsed
            }
        };
        if let Some(data) = self.data {
            check_data(batch, keys, data)?;
        }
        if let Some(windows) = windows {
            windows.check()?;
            ends.as_ref().map_or(Ok(()), Windows::check)?;
            let mut at = 0;
            while at < keys.len() {
                let (start, mut to) = windows.run(at);
                let mut end = start;
                if let Some(ends) = &ends {
                    let (of_run, same) = ends.run(at);
                    (end, to) = (of_run, to.min(same));
                }
                let window = Bounds { start, end };
                self.add_rows(window, &keys[at..to], &values.values()[at..to]);
                at = to;
            }
        } else {
            self.add_rows(Bounds { start: 0, end: 0 }, keys, values.values());
        }
        if let Some(averages) = averages {
            self.add_averages(averages.values());
        }
        Ok(())
    }
}

/// Checks that each row has the data of its key, of both sides.
fn check_data(batch: &RecordBatch, keys: &[i64], of: RowData) -> Result<()> {
    let texts = |name: &str| {
        let texts = column(batch, name)?.as_string_opt::<i32>();
        texts.ok_or_else(|| type_error(batch, name, "VARCHAR"))
    };
    let (data, seller) = (texts("data")?, texts("seller")?);
    for (row, key) in keys.iter().enumerate() {
        let text = string_key(*key as u64);
        for (name, texts, is_seller) in [("data", data, false), ("seller", seller, true)] {
            let found = texts.value(row);
            if !of.is(found.as_bytes(), &text, is_seller) {
                let message = format!("expected that of the key {key}, found '{found}'");
                return Err(value_error(name, row, message));
            }
        }
    }
    Ok(())
}

/// The column called `name`, without NULLs.
fn column<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a ArrayRef> {
    let Some(column) = batch.column_by_name(name) else {
        return Err(Error::Column {
            column: name.to_string(),
            expected: "a column of the result".to_string(),
            found: "no such column".to_string(),
        });
    };
    match column.nulls().filter(|nulls| nulls.null_count() > 0) {
        Some(nulls) => {
            let row = (0..column.len()).find(|row| nulls.is_null(*row)).unwrap_or(0);
            Err(value_error(name, row, "expected a value, found NULL".to_string()))
        }
        None => Ok(column),
    }
}

fn value_error(column: &str, row: usize, message: String) -> Error {
    Error::Value { column: column.to_string(), row, message }
}

fn type_error(batch: &RecordBatch, name: &str, expected: &str) -> Error {
    let found = batch.column_by_name(name).map(|c| c.data_type().to_string());
    Error::Column {
        column: name.to_string(),
        expected: expected.to_string(),
        found: found.unwrap_or_default(),
    }
}

/// A column of window bounds: raw timestamps, and their conversion to milliseconds.
struct Windows<'a> {
    name: &'static str,
    raw: &'a [i64],
    /// Milliseconds per unit, and units per millisecond: one of the two is 1.
    multiply: i64,
    divide: i64,
}

impl<'a> Windows<'a> {
    fn of(batch: &'a RecordBatch, name: &'static str) -> Result<Windows<'a>> {
        let column = column(batch, name)?;
        let DataType::Timestamp(unit, _) = column.data_type() else {
            return Err(type_error(batch, name, "TIMESTAMP"));
        };
        let (raw, multiply, divide): (&[i64], _, _) = match unit {
            TimeUnit::Second => (column.as_primitive::<TimestampSecondType>().values(), 1000, 1),
            TimeUnit::Millisecond => {
                (column.as_primitive::<TimestampMillisecondType>().values(), 1, 1)
            }
            TimeUnit::Microsecond => {
                (column.as_primitive::<TimestampMicrosecondType>().values(), 1, 1000)
            }
            TimeUnit::Nanosecond => {
                (column.as_primitive::<TimestampNanosecondType>().values(), 1, 1_000_000)
            }
        };
        Ok(Windows { name, raw, multiply, divide })
    }

    /// Windows begin and end at whole milliseconds: a fraction would be lost, so it is refused.
    /// Looks at the first row of each run only.
    fn check(&self) -> Result<()> {
        let mut at = 0;
        while self.divide > 1 && at < self.raw.len() {
            if self.raw[at] % self.divide != 0 {
                let message = format!(
                    "expected a whole number of milliseconds, found {} with {} to the millisecond",
                    self.raw[at], self.divide
                );
                return Err(value_error(self.name, at, message));
            }
            at = self.run(at).1;
        }
        Ok(())
    }

    /// The window in milliseconds at row `at`, and the row before which it ends.
    fn run(&self, at: usize) -> (i64, usize) {
        let first = self.raw[at];
        // Whole blocks first: comparing them needs no branch per row.
        let (blocks, _) = self.raw[at..].as_chunks::<32>();
        let differs = |block: &[i64; 32]| block.iter().fold(0, |all, w| all | (w ^ first)) != 0;
        let same = blocks.iter().position(differs).unwrap_or(blocks.len()) * 32;
        let rest = self.raw[at + same..].iter().position(|w| *w != first);
        let end = rest.map_or(self.raw.len(), |more| at + same + more);
        (first.wrapping_mul(self.multiply) / self.divide, end)
    }
}

/// The numbers in keys `user-…`.
fn parse_keys(batch: &RecordBatch, keys: &ArrayRef) -> Result<Vec<i64>> {
    let parse = |row: usize, text: &str| {
        parse_key(text.as_bytes()).ok_or_else(|| {
            value_error("key", row, format!("expected 'user-' and up to 18 digits, found '{text}'"))
        })
    };
    let rows = 0..keys.len();
    if let Some(texts) = keys.as_string_opt::<i32>() {
        rows.map(|row| parse(row, texts.value(row))).collect()
    } else if let Some(texts) = keys.as_string_opt::<i64>() {
        rows.map(|row| parse(row, texts.value(row))).collect()
    } else if let Some(texts) = keys.as_string_view_opt() {
        rows.map(|row| parse(row, texts.value(row))).collect()
    } else {
        Err(type_error(batch, "key", "BIGINT or VARCHAR"))
    }
}

/// `user-00000000042` is 42.
pub(crate) fn parse_key(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"user-")?;
    if digits.is_empty() || digits.len() > 18 {
        return None;
    }
    digits.iter().try_fold(0, |number: i64, digit| {
        digit.is_ascii_digit().then(|| number * 10 + i64::from(digit - b'0'))
    })
}

#[cfg(test)]
mod tests;

//! The generator: one sequential stream of random draws, distributed over splits as Arrow record
//! batches.
//!
//! Record `i` goes to split `i % splits`, so the splits advance through event time together and the
//! same key appears in all of them. A split's batches hold its records in order of `i`.

use std::iter::repeat_n;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::TimestampMillisecondArray;
use arrow_array::builder::StringBuilder;
use arrow_array::{ArrayRef, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray};
use arrow_buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};

pub use crate::rows::STRING_KEY_BYTES;
use crate::rows::{RowData, SELLER_EVERY, string_key};
use crate::spec::{Spec, Workload};
use crate::zipf;

/// Of `nb11`, a bid is for one of the last sellers: of the last one in so many of all records.
const BIDS_LATELY: u64 = 1000;

/// Rows in a batch at most, whatever is asked for, so that string offsets fit 32 bits.
const BATCH_ROWS_MAX: usize = 1 << 26;

/// The columns of a workload's table, none of them nullable.
pub fn schema(workload: Workload) -> SchemaRef {
    let key = match workload {
        Workload::YsbStr => DataType::Utf8,
        _ => DataType::Int64,
    };
    let mut fields = vec![
        Field::new("ts", DataType::Timestamp(TimeUnit::Millisecond, None), false),
        Field::new("key", key, false),
    ];
    match workload {
        Workload::Ysb | Workload::YsbSmall | Workload::YsbStr => {
            fields.push(Field::new("event_type", DataType::Int32, false));
        }
        Workload::Nb7 => fields.push(Field::new("price", DataType::Int64, false)),
        Workload::Cm => fields.push(Field::new("cpu", DataType::Float64, false)),
        Workload::Ro => {}
        Workload::Nb8 | Workload::Nb8Rows | Workload::Nb8Count | Workload::Nb11 => {
            fields.push(Field::new("event_type", DataType::Int32, false));
            fields.push(Field::new("id", DataType::Int64, false));
        }
    }
    if RowData::of(workload).is_some() {
        fields.push(Field::new("data", DataType::Utf8, false));
    }
    Arc::new(Schema::new(fields))
}

/// All records of `spec`, dealt to `splits` splits, in batches of `batch_rows` rows (the last of a
/// split may be shorter). Zero splits or rows count as one.
pub fn generate(spec: &Spec, splits: usize, batch_rows: usize) -> Vec<Vec<RecordBatch>> {
    generate_some(spec, splits, 0..splits.max(1), batch_rows)
}

/// As [`generate`], but keeps only the splits `some`, which are fewer; costs the draws of all.
pub fn generate_some(
    spec: &Spec,
    splits: usize,
    some: Range<usize>,
    batch_rows: usize,
) -> Vec<Vec<RecordBatch>> {
    let splits = splits.max(1);
    let mut stream = Stream::new(spec);
    let rows = some.clone().map(|split| rows_of(spec, split, splits));
    let mut dealt = Dealt::new(spec, batch_rows, rows);
    'all: loop {
        for split in 0..splits {
            let Some(record) = stream.next() else { break 'all };
            if some.contains(&split) {
                dealt.push(split - some.start, record);
            }
        }
    }
    dealt.finish()
}

/// As [`generate`], but a record goes to the split `key % splits`: records of a key are in one
/// split.
pub fn generate_by_key(spec: &Spec, splits: usize, batch_rows: usize) -> Vec<Vec<RecordBatch>> {
    let splits = splits.max(1);
    // No split has more rows than there are; a split's last batch has room to spare.
    let mut dealt = Dealt::new(spec, batch_rows, repeat_n(spec.records, splits));
    for record in Stream::new(spec) {
        dealt.push((record.key % splits as u64) as usize, record);
    }
    dealt.finish()
}

/// Splits whose batches are being made.
struct Dealt {
    columns: Vec<Columns>,
    batches: Vec<Vec<RecordBatch>>,
}

impl Dealt {
    /// Splits of so many rows each, at the most.
    fn new(spec: &Spec, batch_rows: usize, rows: impl Iterator<Item = u64>) -> Dealt {
        let columns = rows.map(|rows| Columns::new(spec.workload, batch_rows, rows));
        let columns: Vec<Columns> = columns.collect();
        Dealt { batches: vec![Vec::new(); columns.len()], columns }
    }

    #[inline(always)]
    fn push(&mut self, split: usize, record: Record) {
        let columns = &mut self.columns[split];
        columns.push(record);
        if columns.is_full() {
            self.batches[split].push(columns.take());
        }
    }

    fn finish(mut self) -> Vec<Vec<RecordBatch>> {
        for (columns, batches) in self.columns.iter_mut().zip(&mut self.batches) {
            if columns.rows() > 0 {
                batches.push(columns.take());
            }
        }
        self.batches
    }
}

/// Records of one split: those with `i % splits == split`.
fn rows_of(spec: &Spec, split: usize, splits: usize) -> u64 {
    (spec.records + (splits - 1 - split) as u64) / splits as u64
}

/// The batches of one split, made when they are asked for. Costs the draws of the whole stream,
/// since each draw follows from the one before.
#[derive(Debug)]
pub struct BatchIter {
    stream: Stream,
    columns: Columns,
    split: usize,
    splits: usize,
    /// Which split the next record belongs to.
    turn: usize,
}

impl BatchIter {
    /// Split `split` of `splits`, in batches of `batch_rows` rows.
    pub fn new(spec: &Spec, split: usize, splits: usize, batch_rows: usize) -> BatchIter {
        let splits = splits.max(1);
        let split = split % splits;
        let columns = Columns::new(spec.workload, batch_rows, rows_of(spec, split, splits));
        BatchIter { stream: Stream::new(spec), columns, split, splits, turn: 0 }
    }
}

impl Iterator for BatchIter {
    type Item = RecordBatch;

    fn next(&mut self) -> Option<RecordBatch> {
        for record in self.stream.by_ref() {
            let mine = self.turn == self.split;
            self.turn = if self.turn + 1 == self.splits { 0 } else { self.turn + 1 };
            if mine {
                self.columns.push(record);
                if self.columns.is_full() {
                    return Some(self.columns.take());
                }
            }
        }
        (self.columns.rows() > 0).then(|| self.columns.take())
    }
}

/// A record, whatever the workload.
#[derive(Debug, Clone, Copy)]
struct Record {
    ts: u64,
    key: u64,
    /// The third column: event type, price, `cpu` in units of 2^-20, or of joins the record's
    /// number.
    extra: u64,
}

/// The sequential stream of records.
#[derive(Debug)]
struct Stream {
    workload: Workload,
    keys: Option<u64>,
    zipf: Option<zipf::Keys>,
    event_modulus: u64,
    /// The keys of the last sellers (`nb11`).
    sellers: Vec<u64>,
    /// State of xorshift64*.
    random: u64,
    /// Records not yet drawn.
    left: u64,
    /// The next record's `i * span_ms / n` as quotient and remainder, advanced without division.
    ts: u64,
    ts_rest: u64,
    records: u64,
    /// `span_ms / n` as quotient and remainder.
    step: u64,
    step_rest: u64,
}

impl Stream {
    fn new(spec: &Spec) -> Stream {
        let records = spec.records.max(1);
        // The timestamps of `ro` are the record numbers.
        let span = if spec.workload == Workload::Ro { records } else { spec.span_ms };
        Stream {
            workload: spec.workload,
            keys: spec.keys.or(spec.workload.keys()),
            zipf: spec.zipf.map(|zipf| zipf::Keys::new(zipf, spec.key_range())),
            event_modulus: spec.event_modulus,
            sellers: match spec.workload {
                Workload::Nb11 => vec![0; lately(records)],
                _ => vec![],
            },
            random: 0x9E3779B97F4A7C15u64.wrapping_mul(spec.seed),
            left: spec.records,
            ts: 0,
            ts_rest: 0,
            records,
            step: span / records,
            step_rest: span % records,
        }
    }

    #[inline(always)]
    fn draw(&mut self) -> u64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        self.random.wrapping_mul(0x2545F4914F6CDD1D)
    }

    /// The key of a record of `nb11`: a seller's is drawn, a bid's is the key of a recent seller.
    #[inline]
    fn of_seller(&mut self, number: u64, r: u64, drawn: u64) -> u64 {
        let (seller, kept) = (number / SELLER_EVERY, self.sellers.len() as u64);
        if number.is_multiple_of(SELLER_EVERY) {
            self.sellers[(seller % kept) as usize] = drawn;
            return drawn;
        }
        let before = below(r, kept.min(seller + 1));
        self.sellers[((seller - before) % kept) as usize]
    }
}

impl Iterator for Stream {
    type Item = Record;

    #[inline(always)]
    fn next(&mut self) -> Option<Record> {
        let number = self.records.wrapping_sub(self.left);
        self.left = self.left.checked_sub(1)?;
        let mut ts = self.ts;
        self.ts += self.step;
        self.ts_rest += self.step_rest;
        if self.ts_rest >= self.records {
            self.ts_rest -= self.records;
            self.ts += 1;
        }
        let r = self.draw();
        let drawn = match (&self.zipf, self.workload, self.keys) {
            (Some(zipf), ..) => zipf.key(r),
            (None, Workload::Nb7, keys) => keys.map_or(long_tail(r), |n| long_tail(r) % n.max(1)),
            (None, _, keys) => below(r, keys.unwrap_or(1)),
        };
        let key = match self.workload {
            Workload::Nb11 => self.of_seller(number, r, drawn),
            _ => drawn,
        };
        let extra = match self.workload {
            Workload::Ysb | Workload::YsbSmall => below(self.draw(), self.event_modulus),
            Workload::YsbStr => {
                let event_type = below(self.draw(), self.event_modulus);
                if below(self.draw(), 100) == 0 {
                    ts = ts.saturating_sub(below(self.draw(), 5_000));
                }
                event_type
            }
            Workload::Nb7 => self.draw() >> 40,
            Workload::Cm => self.draw() >> 44,
            Workload::Ro => 0,
            Workload::Nb8 | Workload::Nb8Rows | Workload::Nb8Count | Workload::Nb11 => number,
        };
        Some(Record { ts, key, extra })
    }
}

/// Of so many records of `nb11`, how many of the last sellers a bid may be for.
fn lately(records: u64) -> usize {
    (records / (SELLER_EVERY * BIDS_LATELY)).max(1) as usize
}

/// A number below `n` from the upper half of `r`.
#[inline(always)]
fn below(r: u64, n: u64) -> u64 {
    (r >> 32).wrapping_mul(n) >> 32
}

/// The fifth power of a uniform number in [0, 1), its 20 bits scattered.
#[inline(always)]
fn long_tail(r: u64) -> u64 {
    let u = r >> 32;
    let u2 = (u * u) >> 32;
    let u4 = (u2 * u2) >> 32;
    let u5 = (u4 * u) >> 32;
    ((u5 >> 12) * 0x9E37_79B1) & 0xF_FFFF
}

/// The columns of a batch under construction.
#[derive(Debug)]
struct Columns {
    schema: SchemaRef,
    batch_rows: usize,
    /// Rows of the split that are in no batch yet, for exact allocations.
    left: u64,
    ts: Vec<i64>,
    key: Key,
    extra: Extra,
}

#[derive(Debug)]
enum Key {
    Number(Vec<i64>),
    Text(Vec<u8>),
}

#[derive(Debug)]
enum Extra {
    None,
    EventType(Vec<i32>),
    Price(Vec<i64>),
    Cpu(Vec<f64>),
    /// Event types, and numbers of records.
    Numbered(Vec<i32>, Vec<i64>),
    /// The same, with the rest of their rows.
    Whole(Vec<i32>, Vec<i64>, StringBuilder, RowData),
}

/// The columns of whole rows, but for time and key.
fn whole_rows(workload: Workload) -> Extra {
    match RowData::of(workload) {
        Some(data) => Extra::Whole(Vec::new(), Vec::new(), StringBuilder::new(), data),
        None => Extra::None,
    }
}

impl Columns {
    fn new(workload: Workload, batch_rows: usize, left: u64) -> Columns {
        let mut columns = Columns {
            schema: schema(workload),
            batch_rows: batch_rows.clamp(1, BATCH_ROWS_MAX),
            left,
            ts: Vec::new(),
            key: match workload {
                Workload::YsbStr => Key::Text(Vec::new()),
                _ => Key::Number(Vec::new()),
            },
            extra: match workload {
                Workload::Ysb | Workload::YsbSmall | Workload::YsbStr => {
                    Extra::EventType(Vec::new())
                }
                Workload::Nb7 => Extra::Price(Vec::new()),
                Workload::Cm => Extra::Cpu(Vec::new()),
                Workload::Ro => Extra::None,
                Workload::Nb8 | Workload::Nb8Count => Extra::Numbered(Vec::new(), Vec::new()),
                Workload::Nb8Rows | Workload::Nb11 => whole_rows(workload),
            },
        };
        columns.reserve();
        columns
    }

    /// Room for the next batch, no more.
    fn reserve(&mut self) {
        let rows = self.left.min(self.batch_rows as u64) as usize;
        self.ts.reserve_exact(rows);
        match &mut self.key {
            Key::Number(key) => key.reserve_exact(rows),
            Key::Text(bytes) => bytes.reserve_exact(rows * STRING_KEY_BYTES),
        }
        match &mut self.extra {
            Extra::None => {}
            Extra::EventType(column) => column.reserve_exact(rows),
            Extra::Price(column) => column.reserve_exact(rows),
            Extra::Cpu(column) => column.reserve_exact(rows),
            Extra::Numbered(types, numbers) => {
                types.reserve_exact(rows);
                numbers.reserve_exact(rows);
            }
            Extra::Whole(types, numbers, data, of) => {
                types.reserve_exact(rows);
                numbers.reserve_exact(rows);
                let bytes = (rows * of.bytes(false)).max(rows * of.bytes(true));
                *data = StringBuilder::with_capacity(rows, bytes);
            }
        }
    }

    fn rows(&self) -> usize {
        self.ts.len()
    }

    fn is_full(&self) -> bool {
        self.ts.len() >= self.batch_rows
    }

    #[inline(always)]
    fn push(&mut self, record: Record) {
        self.ts.push(record.ts as i64);
        match &mut self.key {
            Key::Number(column) => column.push(record.key as i64),
            Key::Text(bytes) => bytes.extend_from_slice(&string_key(record.key)),
        }
        match &mut self.extra {
            Extra::None => {}
            Extra::EventType(column) => column.push(record.extra as i32),
            Extra::Price(column) => column.push(record.extra as i64),
            Extra::Cpu(column) => column.push(record.extra as f64 / f64::from(1 << 20)),
            Extra::Numbered(types, numbers) => {
                types.push(i32::from(!record.extra.is_multiple_of(SELLER_EVERY)));
                numbers.push(record.extra as i64);
            }
            Extra::Whole(types, numbers, data, of) => {
                let seller = record.extra.is_multiple_of(SELLER_EVERY);
                types.push(i32::from(!seller));
                numbers.push(record.extra as i64);
                of.write(&string_key(record.key), seller, |text| data.append_value(text));
            }
        }
    }

    /// The batch, leaving the columns empty.
    fn take(&mut self) -> RecordBatch {
        let rows = self.rows();
        let key: ArrayRef = match &mut self.key {
            Key::Number(column) => Arc::new(Int64Array::from(std::mem::take(column))),
            Key::Text(bytes) => {
                let offsets: Vec<i32> =
                    (0..=rows).map(|row| (row * STRING_KEY_BYTES) as i32).collect();
                let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
                let bytes = Buffer::from_vec(std::mem::take(bytes));
                Arc::new(StringArray::new(offsets, bytes, None))
            }
        };
        let ts = TimestampMillisecondArray::from(std::mem::take(&mut self.ts));
        let mut columns: Vec<ArrayRef> = vec![Arc::new(ts), key];
        match &mut self.extra {
            Extra::None => {}
            Extra::EventType(column) => {
                columns.push(Arc::new(Int32Array::from(std::mem::take(column))));
            }
            Extra::Price(column) => {
                columns.push(Arc::new(Int64Array::from(std::mem::take(column))));
            }
            Extra::Cpu(column) => {
                columns.push(Arc::new(Float64Array::from(std::mem::take(column))));
            }
            Extra::Numbered(types, numbers) => {
                columns.push(Arc::new(Int32Array::from(std::mem::take(types))));
                columns.push(Arc::new(Int64Array::from(std::mem::take(numbers))));
            }
            Extra::Whole(types, numbers, data, _) => {
                columns.push(Arc::new(Int32Array::from(std::mem::take(types))));
                columns.push(Arc::new(Int64Array::from(std::mem::take(numbers))));
                columns.push(Arc::new(data.finish()));
            }
        }
        self.left = self.left.saturating_sub(rows as u64);
        self.reserve();
        RecordBatch::try_new(Arc::clone(&self.schema), columns)
            .expect("the columns follow the schema, with the same number of rows each")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_are_the_rounded_down_fraction_of_the_span() {
        for (records, span_ms) in [(1000, 7), (7, 1000), (1_003, 2_400_000), (1, 5)] {
            let spec = Spec { records, span_ms, ..Spec::new(Workload::Cm) };
            for (i, record) in Stream::new(&spec).enumerate() {
                assert_eq!(record.ts, i as u64 * span_ms / records);
            }
        }
    }

    #[test]
    fn some_splits_are_those_of_all() {
        for (splits, some) in [(1, 0..1), (6, 0..2), (6, 2..4), (6, 5..6), (6, 0..0)] {
            let spec = Spec { records: 1_003, ..Spec::new(Workload::Nb7) };
            let all = generate(&spec, splits, 100);
            assert_eq!(generate_some(&spec, splits, some.clone(), 100), all[some]);
        }
    }

    #[test]
    fn string_keys_have_sixteen_bytes() {
        assert_eq!(&string_key(0), b"user-00000000000");
        assert_eq!(&string_key(99_999), b"user-00000099999");
    }
}

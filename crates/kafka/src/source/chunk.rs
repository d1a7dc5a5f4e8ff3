//! Decoding batches of a partition into rows, on any worker.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::SchemaRef;
use millstream_connect::messages::{DecodedMessages, MessageDecoder, Messages};
use millstream_contract::decoding::{self, TOO_MUCH_HELP};
use millstream_contract::table::{Chunk, Decoded, LeftOut, NOT_APPENDED, Places};
use millstream_contract::{Error, Result};

use super::fetch::Fetched;
use crate::client::batch::{Flaw, check, each, records};
use crate::client::cluster::Partition;
use crate::columns::{BesideValues, Origin};

/// Treatment of messages without a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tombstones {
    /// They are left out, and counted.
    Skip,
    /// Rows whose columns of the value are NULL.
    Null,
}

/// Bytes that are kept of each record beside its message: offset, time, epoch, whether there are
/// value and key, and twice the row, each in a list that may have twice the room.
const RECORD_BYTES: usize = 2 * (8 + 8 + 1 + 4 + 1 + 1 + 8 + 8);

/// And of each header beside its bytes.
const HEADER_BYTES: usize = 2 * (size_of::<String>() + size_of::<Option<Vec<u8>>>());

/// How the messages of a partition become rows.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) partition: Partition,
    /// For messages: `topic 'clicks', partition 3`.
    pub(super) source: Arc<str>,
    /// The columns that are read.
    pub(super) schema: SchemaRef,
    /// By column: numbers are those in the decoded value or key.
    pub(super) origins: Vec<Origin>,
    pub(super) value: MessageDecoder,
    pub(super) key: Option<MessageDecoder>,
    pub(super) tombstones: Tombstones,
    pub(super) with_headers: bool,
}

/// Batches of a partition, as they were fetched.
pub(super) struct KafkaChunk {
    pub(super) plan: Arc<Plan>,
    pub(super) batches: Vec<Fetched>,
    /// Of the batches only these offsets.
    pub(super) from: i64,
    pub(super) until: i64,
}

impl Chunk for KafkaChunk {
    fn bytes(&self) -> usize {
        self.batches.iter().map(|batch| batch.bytes.len()).sum()
    }

    fn decode(self: Box<Self>) -> Result<RecordBatch> {
        Ok(self.decode_reporting()?.batch)
    }

    fn decode_reporting(self: Box<Self>) -> Result<Decoded> {
        let mut taken = Taken::new(&self.plan, self.bytes());
        for batch in self.batches.iter().filter(|batch| batch.counts) {
            let failed = |flaw: Flaw| Error::Data {
                place: format!("{}, offset {}", self.plan.source, batch.head.base_offset),
                help: match flaw.contains("once decoded") {
                    true => TOO_MUCH_HELP.into(),
                    false => String::new(),
                },
                message: flaw,
            };
            check(&batch.head, &batch.bytes).map_err(failed)?;
            let data = records(&batch.head, &batch.bytes).map_err(failed)?;
            // A record has a byte at least, whatever the head says.
            let count = (batch.head.records.max(0) as usize).min(data.len());
            let room = decoding::take((count * RECORD_BYTES) as u64);
            room.map_err(|too_much| failed(too_much.to_string()))?;
            let appended = batch.head.is_log_append_time();
            let epoch = batch.head.leader_epoch;
            each(&batch.head, &data, |record| {
                let is_read = (self.from..self.until).contains(&record.offset);
                if is_read { taken.record(&record, appended, epoch) } else { Ok(()) }
            })
            .map_err(failed)?;
        }
        taken.decoded()
    }
}

/// The messages of a chunk.
struct Taken<'a> {
    plan: &'a Plan,
    beside: BesideValues,
    values: Messages,
    keys: Messages,
    /// By message: whether it has a value, and a key.
    has_value: Vec<bool>,
    has_key: Vec<bool>,
}

impl<'a> Taken<'a> {
    fn new(plan: &'a Plan, bytes: usize) -> Taken<'a> {
        Taken {
            plan,
            beside: BesideValues::default(),
            values: Messages::with_capacity(bytes, 1024),
            keys: Messages::with_capacity(0, 0),
            has_value: Vec::new(),
            has_key: Vec::new(),
        }
    }

    fn record(
        &mut self,
        record: &crate::client::batch::Record<'_>,
        appended: bool,
        epoch: i32,
    ) -> std::result::Result<(), Flaw> {
        let number = record.offset.max(0) as u64;
        self.beside.offsets.push(record.offset);
        self.beside.timestamps.push(record.timestamp);
        self.beside.appended.push(appended);
        self.beside.epochs.push(epoch);
        if self.plan.with_headers {
            let headers = &mut self.beside.headers;
            let before = headers.names.len();
            record.headers.each(|name, value| {
                headers.names.push(String::from_utf8_lossy(name).into_owned());
                headers.values.push(value.map(<[u8]>::to_vec));
            })?;
            let more = headers.names.len() - before;
            decoding::take((more * HEADER_BYTES) as u64).map_err(|much| much.to_string())?;
            headers.ends.push(headers.names.len());
        }
        self.has_value.push(record.value.is_some());
        if let Some(value) = record.value {
            self.values.push(number, value);
        }
        if self.plan.key.is_some() {
            self.has_key.push(record.key.is_some());
            if let Some(key) = record.key {
                self.keys.push(number, key);
            }
        }
        Ok(())
    }

    fn decoded(self) -> Result<Decoded> {
        let Taken { plan, beside, values, keys, has_value, has_key } = self;
        let tombstones = has_value.iter().filter(|has| !**has).count();
        let value = plan.value.decode(values)?;
        let key = plan.key.as_ref().map(|decoder| decoder.decode(keys)).transpose()?;
        let value_rows = rows_of(&value, &has_value);
        let key_rows = key.as_ref().map(|key| rows_of(key, &has_key));
        let keeps = |message: &u32| {
            let at = *message as usize;
            let has_key = key_rows.as_ref().is_none_or(|rows| rows[at].is_kept());
            has_key
                && match value_rows[at] {
                    Row::At(_) => true,
                    Row::Null => plan.tombstones == Tombstones::Null,
                    Row::Malformed => false,
                }
        };
        let rows: Vec<u32> = (0..has_value.len() as u32).filter(keeps).collect();
        let source = (plan.partition.topic.as_str(), plan.partition.number);
        let is_whole = rows.len() == value.decoded.batch.num_rows() && key.is_none();
        let column =
            |(origin, field): (&Origin, &Arc<arrow::datatypes::Field>)| -> Result<ArrayRef> {
                let picked = |batch: &RecordBatch, column: usize, of: &[Row]| {
                    let indices = rows.iter().map(|row| of[*row as usize].index());
                    let indices: UInt32Array = indices.collect();
                    let found = take(batch.column(column), &indices, None)?;
                    if found.null_count() > 0 && !field.is_nullable() {
                        return Err(plan.null_key(&beside, &rows, &*found, field.name()));
                    }
                    Ok(found)
                };
                match origin {
                    Origin::Value(column) if is_whole => {
                        Ok(value.decoded.batch.column(*column).clone())
                    }
                    Origin::Value(column) => picked(&value.decoded.batch, *column, &value_rows),
                    Origin::Key(column) => match (&key, &key_rows) {
                        (Some(key), Some(of)) => picked(&key.decoded.batch, *column, of),
                        _ => Err(Error::Internal("a key was not decoded".into())),
                    },
                    Origin::Beside(which) => beside.column(*which, field, source, &rows),
                }
            };
        let columns = plan.origins.iter().zip(plan.schema.fields()).map(column);
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
        let batch = RecordBatch::try_new_with_options(plan.schema.clone(), columns, &options)?;
        let offsets: Box<[i64]> = rows.iter().map(|row| beside.offsets[*row as usize]).collect();
        let appended_us = appended_us(&beside, &rows);
        let first_tombstone = has_value.iter().position(|has| !has).map(|at| LeftOut {
            place: format!("{}, offset {}", plan.source, beside.offsets[at]),
            message: "a message without a value (a tombstone)".into(),
            before: rows.partition_point(|row| (*row as usize) < at),
        });
        let mut decoded = value.decoded;
        decoded.batch = batch;
        decoded.places =
            Some(Box::new(Offsets { source: plan.source.clone(), offsets, appended_us }));
        if plan.tombstones == Tombstones::Skip && tombstones > 0 {
            decoded.left_out += tombstones as u64;
            let first = [decoded.first_left_out.take(), first_tombstone];
            decoded.first_left_out = first.into_iter().flatten().min_by_key(|left| left.before);
        }
        if let Some(key) = key {
            decoded.left_out += key.decoded.left_out;
            let first = [decoded.first_left_out.take(), key.decoded.first_left_out];
            decoded.first_left_out = first.into_iter().flatten().min_by_key(|left| left.before);
        }
        Ok(decoded)
    }
}

impl Plan {
    /// A column of the key that is NOT NULL, and a message without a key.
    fn null_key(
        &self,
        beside: &BesideValues,
        rows: &[u32],
        found: &dyn Array,
        column: &str,
    ) -> Error {
        let row = (0..found.len()).find(|row| found.is_null(*row)).unwrap_or(0);
        let offset = rows.get(row).and_then(|row| beside.offsets.get(*row as usize));
        Error::Data {
            place: format!("{}, offset {}", self.source, offset.copied().unwrap_or_default()),
            message: format!("column '{column}' is NOT NULL, and the message has no key or value"),
            help: "declare the column without NOT NULL".into(),
        }
    }
}

/// When the log has taken in each row's message; `None` if producers have given all times.
fn appended_us(beside: &BesideValues, rows: &[u32]) -> Option<Box<[i64]>> {
    let time_of = |row: &u32| match beside.appended[*row as usize] {
        true => beside.timestamps[*row as usize].saturating_mul(1_000),
        false => NOT_APPENDED,
    };
    beside.appended.contains(&true).then(|| rows.iter().map(time_of).collect())
}

/// The row of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Row {
    At(u32),
    /// The message has no value, or no key.
    Null,
    Malformed,
}

impl Row {
    fn is_kept(self) -> bool {
        self != Row::Malformed
    }

    fn index(self) -> Option<u32> {
        match self {
            Row::At(row) => Some(row),
            _ => None,
        }
    }
}

/// By message, its row in the decoded batch. `has`: whether the message was decoded at all.
fn rows_of(decoded: &DecodedMessages, has: &[bool]) -> Vec<Row> {
    let mut rows = decoded.message_of_row.iter().enumerate().peekable();
    let mut pushed = 0;
    let row = |has: &bool| {
        if !has {
            return Row::Null;
        }
        let found = rows.next_if(|(_, message)| **message == pushed);
        pushed += 1;
        found.map_or(Row::Malformed, |(row, _)| Row::At(row as u32))
    };
    has.iter().map(row).collect()
}

/// Where rows stand: by row, an offset, and when the log took the record in.
#[derive(Debug)]
struct Offsets {
    source: Arc<str>,
    offsets: Box<[i64]>,
    appended_us: Option<Box<[i64]>>,
}

impl Places for Offsets {
    fn place(&self, row: usize) -> String {
        match self.offsets.get(row) {
            Some(offset) => format!("{}, offset {offset}", self.source),
            None => self.source.to_string(),
        }
    }

    fn offset(&self, row: usize) -> Option<u64> {
        u64::try_from(*self.offsets.get(row)?).ok()
    }

    fn appended_us(&self) -> Option<&[i64]> {
        self.appended_us.as_deref()
    }

    fn bytes(&self) -> usize {
        let appended_bytes = self.appended_us.as_ref().map_or(0, |times| size_of_val(&**times));
        size_of::<Offsets>() + size_of_val(&*self.offsets) + appended_bytes
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::DataType;

    use super::*;
    use crate::client::batch::Head;
    use crate::client::encode::{NewRecord, Writer, batch};
    use crate::source::table::KafkaTable;
    use crate::tests::table;

    /// A chunk of as many messages without a value.
    fn tombstones(count: usize) -> Box<KafkaChunk> {
        let table = table(&[("v", DataType::Binary)], &[("format", "raw")]);
        let partition = Partition { topic: "t".into(), number: 0 };
        let plan = KafkaTable::declared(&table).unwrap().plan(&partition, &[]).unwrap();
        let writer = Writer { id: -1, epoch: -1, transactional: false };
        let bytes = batch(writer, 0, &vec![&NewRecord::default(); count], None).unwrap();
        let head = Head::read(&bytes).unwrap().unwrap();
        let batches = vec![Fetched { head, bytes, counts: true }];
        Box::new(KafkaChunk { plan: Arc::new(plan), batches, from: 0, until: i64::MAX })
    }

    #[test]
    fn what_is_kept_of_records_counts() {
        let decode = |max: u64| decoding::within(max, || tombstones(10_000).decode_reporting());
        assert_eq!(decode(1 << 30).unwrap().left_out, 10_000);
        let error = decode(100_000).unwrap_err().to_string();
        assert!(error.contains("once decoded") && error.contains("offset 0"), "{error}");
    }
}

//! Rows as records of Kafka: key, value, time and headers.

use std::time::{SystemTime, UNIX_EPOCH};

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, TimeUnit, TimestampMillisecondType};
use millstream_connect::messages::MessageWriter;
use millstream_contract::{Error, Result};

use crate::client::encode::NewRecord;

/// How rows become records.
#[derive(Debug)]
pub(super) struct RowWriter {
    pub(super) value: MessageWriter,
    /// The columns of the value, as numbers of the table's.
    pub(super) value_columns: Vec<usize>,
    pub(super) key: Option<(MessageWriter, Vec<usize>)>,
    /// Whether no column of a key may be NULL.
    pub(super) needs_key: bool,
    /// The columns of time and headers.
    pub(super) timestamp: Option<usize>,
    pub(super) headers: Option<usize>,
}

impl RowWriter {
    /// Registers schemas, where the formats have them.
    pub(super) fn open(&self) -> Result<()> {
        self.value.open()?;
        self.key.as_ref().map_or(Ok(()), |(key, _)| key.open())
    }

    /// The records of rows.
    pub(super) fn records(&self, rows: &RecordBatch) -> Result<Vec<NewRecord>> {
        if self.needs_key {
            self.refuse_nulls(rows)?;
        }
        let values = self.value.messages(&rows.project(&self.value_columns)?)?;
        let mut keys = match &self.key {
            None => None,
            Some((writer, columns)) => Some(writer.messages(&rows.project(columns)?)?.into_iter()),
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = i64::try_from(now.as_millis()).unwrap_or(i64::MAX);
        let times = self.timestamp.map(|column| {
            let millis = DataType::Timestamp(TimeUnit::Millisecond, None);
            cast(rows.column(column), &millis)
        });
        let times = times.transpose()?;
        let times = times.as_ref().map(|times| times.as_primitive::<TimestampMillisecondType>());
        let mut records = Vec::with_capacity(rows.num_rows());
        for (row, value) in values.into_iter().enumerate() {
            let timestamp = times.filter(|times| times.is_valid(row)).map_or(now, |t| t.value(row));
            let key = keys.as_mut().and_then(Iterator::next).flatten();
            let headers = match self.headers {
                Some(column) => headers(rows.column(column), row)?,
                None => Vec::new(),
            };
            records.push(NewRecord { timestamp, key, value, headers });
        }
        Ok(records)
    }

    /// Refuses rows without a key.
    fn refuse_nulls(&self, rows: &RecordBatch) -> Result<()> {
        let columns = self.key.iter().flat_map(|(_, columns)| columns);
        match columns.copied().find(|column| rows.column(*column).null_count() > 0) {
            None => Ok(()),
            Some(column) => {
                let name = rows.schema_ref().field(column).name();
                Err(Error::Data {
                    place: format!("column '{name}'"),
                    message: "a row has NULL in the PRIMARY KEY".into(),
                    help: format!("leave such rows out: WHERE {name} IS NOT NULL"),
                })
            }
        }
    }
}

/// The headers of a row: a map of names and values.
fn headers(column: &ArrayRef, row: usize) -> Result<Vec<(String, Option<Vec<u8>>)>> {
    let wrong = || Error::Internal("headers are no map of STRING to BYTES".into());
    let map = column.as_map_opt().ok_or_else(wrong)?;
    if map.is_null(row) {
        return Ok(Vec::new());
    }
    let entries = map.value(row);
    let names = entries.column(0).as_string_opt::<i32>().ok_or_else(wrong)?;
    let values = entries.column(1).as_binary_opt::<i32>().ok_or_else(wrong)?;
    let header = |at: usize| {
        let value = values.is_valid(at).then(|| values.value(at).to_vec());
        (names.value(at).to_string(), value)
    };
    Ok((0..entries.len()).map(header).collect())
}

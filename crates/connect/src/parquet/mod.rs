//! Parquet files: `'format' = 'parquet'`.
//!
//! A column is found by its name: exactly so, else whatever the case. Only the columns that a query
//! uses are read. Types must be those of the file, or hold all values of them (INT of a BIGINT
//! column, for example); what does not fit is an error that names the type to declare. Timestamps
//! that the file gives in UTC may be declared with or without a zone.
//!
//! A chunk is a row group, or a part of one of [`CHUNK_ROWS`] rows: whole pages before it are
//! skipped without being unpacked. A chunk's bytes are read by the worker that decodes it. Damaged
//! files are errors; the reader that is used here may panic on them, which is caught for each
//! chunk.

mod bytes;
mod columns;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Waker;

use ::parquet::arrow::ProjectionMask;
use ::parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder,
};
use ::parquet::errors::ParquetError;
use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, Schema};
use arrow::error::ArrowError;
use millstream_contract::table::{Chunk, Position, Sharing, Split, SplitPoll};
use millstream_contract::{Error, Result};

use self::bytes::FileBytes;
use self::columns::Columns;
use crate::input::{Input, Name};
use crate::records::Reading;

#[cfg(test)]
mod tests;

/// Rows of a chunk at most, unless batches are larger.
const CHUNK_ROWS: usize = 128 << 10;

/// Whether a column of this type can be read.
pub(crate) fn supported(data_type: &DataType) -> bool {
    crate::csv::CsvFormat::supported(data_type)
}

/// The columns of a file as a table would declare them, and those of which SQL has no type.
pub(crate) fn schema_of(input: Input, path: Name) -> Result<(Schema, Vec<(String, DataType)>)> {
    let (_, metadata) = loaded(input, &path)?;
    let (mut known, mut unknown) = (Vec::new(), Vec::new());
    for field in metadata.schema().fields() {
        match supported(field.data_type()) {
            true => known.push(field.clone()),
            false => unknown.push((field.name().clone(), field.data_type().clone())),
        }
    }
    Ok((Schema::new(known), unknown))
}

/// A file, and what it says of itself.
fn loaded(input: Input, path: &Name) -> Result<(FileBytes, ArrowReaderMetadata)> {
    let Input::File(regular) = input else {
        return Err(Error::Io {
            place: path.to_string(),
            message: "Parquet is read from a regular file that is not packed".into(),
            help: "write it to a file, or unpack it".into(),
        });
    };
    let file = FileBytes::new(regular.try_clone()?, regular.length());
    // What Arrow has noted beside the types of Parquet would bring types that nobody asked for.
    let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
    let metadata = guarded(path, || ArrowReaderMetadata::load(&file, options))?;
    Ok((file, metadata))
}

/// What is the same for all chunks of a file.
struct Plan {
    path: Name,
    file: FileBytes,
    metadata: ArrowReaderMetadata,
    columns: Columns,
}

/// A Parquet file being read.
pub(crate) struct ParquetSplit {
    plan: Arc<Plan>,
    sharing: Sharing,
    length: Option<u64>,
    chunk_rows: usize,
    /// The row group whose turn it is, and its first row that has not been handed out.
    group: usize,
    row: usize,
}

/// Opens a file, and reads what it says of itself.
pub(crate) fn open(input: Input, reading: &Reading<'_>) -> Result<ParquetSplit> {
    let path = reading.path.clone();
    let (file, metadata) = loaded(input, &path)?;
    let columns = Columns::find(&path, metadata.schema(), reading.schema, reading.projection)?;
    let (group, row) = match reading.from.0[..] {
        [group, row] => (group as usize, row as usize),
        _ => (0, 0),
    };
    Ok(ParquetSplit {
        plan: Arc::new(Plan { path, file, metadata, columns }),
        sharing: reading.sharing,
        length: reading.length,
        chunk_rows: reading.batch_rows.max(CHUNK_ROWS),
        group,
        row,
    })
}

/// What the library gives.
type Outcome<T> = ::parquet::errors::Result<T>;

/// What comes of reading; a panic of the library is an error about the file.
fn guarded<T>(path: &str, read: impl FnOnce() -> Outcome<T>) -> Result<T> {
    let said = match catch_unwind(AssertUnwindSafe(read)) {
        Ok(Ok(read)) => return Ok(read),
        Ok(Err(error)) => error.to_string(),
        Err(_) => "its data makes no sense".to_string(),
    };
    Err(Error::Data {
        place: path.to_string(),
        message: format!("it cannot be read as Parquet: {said}"),
        help: "the file may be damaged, cut off, or in another format".into(),
    })
}

impl Split for ParquetSplit {
    fn name(&self) -> &str {
        &self.plan.path
    }

    fn extent(&self) -> Option<u64> {
        self.length.filter(|_| self.sharing == Sharing::ByChunk)
    }

    fn sharing(&self) -> Sharing {
        self.sharing
    }

    /// A row group, and rows of it that come before.
    fn position(&self) -> Position {
        Position(vec![self.group as u64, self.row as u64])
    }

    fn poll_next(&mut self, _now_us: i64, _waker: &Waker) -> Result<SplitPoll> {
        let groups = self.plan.metadata.metadata().row_groups();
        loop {
            let Some(group) = groups.get(self.group) else { return Ok(SplitPoll::Ended) };
            let rows = usize::try_from(group.num_rows()).unwrap_or(0);
            let rows = rows.saturating_sub(self.row).min(self.chunk_rows);
            if rows == 0 {
                (self.group, self.row) = (self.group + 1, 0);
                continue;
            }
            let (plan, group, first) = (self.plan.clone(), self.group, self.row);
            self.row += rows;
            return Ok(SplitPoll::Chunk(Box::new(ParquetChunk { plan, group, first, rows })));
        }
    }
}

/// Rows of a row group.
struct ParquetChunk {
    plan: Arc<Plan>,
    group: usize,
    first: usize,
    rows: usize,
}

impl ParquetChunk {
    fn read(&self) -> Outcome<RecordBatch> {
        let Plan { file, metadata, columns, .. } = &*self.plan;
        let mask = ProjectionMask::roots(metadata.parquet_schema(), columns.roots());
        let reader =
            ParquetRecordBatchReaderBuilder::new_with_metadata(file.clone(), metadata.clone())
                .with_row_groups(vec![self.group])
                .with_projection(mask)
                .with_offset(self.first)
                .with_limit(self.rows)
                .with_batch_size(self.rows)
                .build()?;
        let schema = arrow::array::RecordBatchReader::schema(&reader);
        let batches = reader.collect::<std::result::Result<Vec<_>, ArrowError>>()?;
        let rows = batches.iter().map(RecordBatch::num_rows).sum::<usize>();
        if rows != self.rows {
            let message = format!("row group {} has {rows} rows, not {}", self.group, self.rows);
            return Err(ParquetError::General(message));
        }
        if schema.fields().is_empty() {
            let options = RecordBatchOptions::new().with_row_count(Some(rows));
            return Ok(RecordBatch::try_new_with_options(schema, vec![], &options)?);
        }
        Ok(concat_batches(&schema, &batches)?)
    }
}

impl Chunk for ParquetChunk {
    fn bytes(&self) -> usize {
        self.rows.saturating_mul(self.plan.columns.row_bytes())
    }

    fn decode(self: Box<Self>) -> Result<RecordBatch> {
        let batch = guarded(&self.plan.path, || self.read())?;
        let place = format!("{}, row group {}", self.plan.path, self.group);
        self.plan.columns.conform(&place, &batch)
    }
}

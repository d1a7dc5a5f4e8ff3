//! Files with state: Parquet, a row group for each saved batch. A batch is restored whole, so its
//! row group is, too.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::{self, Write};
use std::mem;
use std::ops::Range;

use arrow::array::{AsArray, BooleanArray, RecordBatch};
use arrow::compute::filter_record_batch;
use arrow::datatypes::Int64Type;
use bytes::Bytes;
use millstream_contract::{Error, Result};
use millstream_operators::operator::saved::{SLICE, SavePoint, SavedBatch, SetAside};
use millstream_store::{Checkpoints, StateFile, StateWriter};
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ParquetRecordBatchReaderBuilder};
use parquet::arrow::{ArrowWriter, ProjectionMask};
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use xxhash_rust::xxh3::xxh3_64;

use crate::failing::{SaveError, Saved, io as io_error};
use crate::written::WrittenFile;

/// The state of a stage in a worker, that is to be written.
pub(crate) struct StageTarget<'a> {
    pub(crate) store: &'a Checkpoints,
    pub(crate) checkpoint: u64,
    pub(crate) attempt: &'a str,
    pub(crate) stage: usize,
    pub(crate) leader: usize,
    /// Partitions of the keys that the worker leads.
    pub(crate) partitions: Range<u32>,
}

/// A file of a part of the state.
struct Writing {
    part: usize,
    writer: ArrowWriter<Unfinished>,
    rows: u64,
    /// Rows of each slice.
    slices: BTreeMap<i64, u64>,
}

/// An object that is being written. `ArrowWriter::into_inner` would hide the store's errors.
struct Unfinished(Option<StateWriter>);

impl Unfinished {
    fn object(&mut self) -> io::Result<&mut StateWriter> {
        self.0.as_mut().ok_or_else(|| io::Error::other("the object is finished"))
    }
}

impl Write for Unfinished {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.object()?.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.object()?.flush()
    }
}

impl StageTarget<'_> {
    /// Writes the state of an operator, and returns the files: one for each part.
    pub(crate) fn save(&self, state: &mut dyn SetAside) -> Saved<Vec<WrittenFile>> {
        let mut files: Vec<Writing> = Vec::new();
        let mut at = SavePoint::default();
        while let Some(SavedBatch { part, rows }) = state.save(&mut at)? {
            let known = files.iter().position(|file| file.part == part);
            let number = match known {
                Some(number) => number,
                None => {
                    let label = format!("stage{}-part{part}-worker{}", self.stage, self.leader);
                    let object = begin(self.store, self.checkpoint, &label, self.attempt)?;
                    files.push(Writing::new(part, object, &rows)?);
                    files.len() - 1
                }
            };
            files[number].write(&rows)?;
        }
        let (stage, leader) = (self.stage, self.leader);
        let finish = |mut file: Writing| -> Saved<WrittenFile> {
            let rows = mem::take(&mut file.slices);
            let file = file.finish(self.partitions.clone())?;
            Ok(WrittenFile { stage, leader, file, rows })
        };
        files.into_iter().map(finish).collect()
    }
}

/// Writes rows that wait at an output; `None` if there are none.
pub(crate) fn save_waiting(
    store: &Checkpoints,
    (checkpoint, attempt): (u64, &str),
    output: usize,
    waiting: &[RecordBatch],
) -> Saved<Option<StateFile>> {
    let Some(first) = waiting.first() else { return Ok(None) };
    let object = begin(store, checkpoint, &format!("output{output}"), attempt)?;
    let mut file = Writing::new(0, object, first)?;
    waiting.iter().try_for_each(|rows| file.write(rows))?;
    file.finish(0..0).map(Some)
}

/// Begins a Parquet file.
fn begin(store: &Checkpoints, checkpoint: u64, label: &str, attempt: &str) -> Saved<StateWriter> {
    Ok(store.write_file(checkpoint, label, &format!("{attempt}.parquet"))?)
}

impl Writing {
    fn new(part: usize, object: StateWriter, rows: &RecordBatch) -> Saved<Writing> {
        let properties = WriterProperties::builder()
            .set_compression(Compression::LZ4_RAW)
            .set_dictionary_enabled(false)
            .set_statistics_enabled(EnabledStatistics::None)
            // Batches of any length are one row group each.
            .set_max_row_group_row_count(None)
            .set_created_by(concat!("millstream ", env!("CARGO_PKG_VERSION")).into())
            .build();
        let writer =
            ArrowWriter::try_new(Unfinished(Some(object)), rows.schema(), Some(properties));
        Ok(Writing { part, writer: writer.map_err(failed)?, rows: 0, slices: BTreeMap::new() })
    }

    fn write(&mut self, rows: &RecordBatch) -> Saved<()> {
        self.writer.write(rows).map_err(failed)?;
        self.writer.flush().map_err(failed)?;
        self.rows += rows.num_rows() as u64;
        for run in slices(rows).unwrap_or_default().chunk_by(|a, b| a == b) {
            *self.slices.entry(run[0]).or_default() += run.len() as u64;
        }
        Ok(())
    }

    fn finish(self, partitions: Range<u32>) -> Saved<StateFile> {
        let Writing { part, mut writer, rows, .. } = self;
        writer.finish().map_err(failed)?;
        let object = writer.inner_mut().0.take();
        let object = object.ok_or_else(|| Error::Internal("a file that has no object".into()))?;
        Ok(object.finish(part, rows, partitions)?)
    }
}

/// An error of the store comes through the writer.
fn failed(error: ParquetError) -> SaveError {
    match error {
        ParquetError::External(inner) => {
            let found = inner.downcast_ref::<std::io::Error>().and_then(|error| error.get_ref());
            match found.and_then(|error| error.downcast_ref::<millstream_store::Error>()) {
                Some(error) => SaveError::Store(error.clone()),
                None => SaveError::Job(Error::Internal(format!("a checkpoint: {inner}"))),
            }
        }
        other => SaveError::Job(Error::Internal(format!("a checkpoint: {other}"))),
    }
}

/// The slice of each row.
fn slices(rows: &RecordBatch) -> Option<&[i64]> {
    Some(rows.column_by_name(SLICE)?.as_primitive_opt::<Int64Type>()?.values())
}

/// The rows of a file's batch that count.
pub(crate) fn counting(file: &StateFile, rows: &RecordBatch) -> Result<RecordBatch> {
    let (Some(counting), Some(slices)) = (&file.slices, slices(rows)) else {
        return Ok(rows.clone());
    };
    let counts = slices.iter().map(|slice| Some(counting.binary_search(slice).is_ok()));
    let counts = counts.collect::<BooleanArray>();
    filter_record_batch(rows, &counts).map_err(|error| Error::Internal(error.to_string()))
}

/// Reads a file, whose checksum must be right: the wanted columns of each batch, as it was saved.
/// Not all rows of a batch may count.
pub(crate) fn read<'f>(
    store: &Checkpoints,
    file: &'f StateFile,
    is_wanted: &dyn Fn(&str) -> bool,
) -> Result<impl Iterator<Item = Result<RecordBatch>> + use<'f>> {
    let bytes = store.read_file(file, None).map_err(|error| io_error(&error))?;
    let found = format!("{:016x}", xxh3_64(&bytes));
    if found != file.xxh3 || bytes.len() as u64 != file.bytes {
        return Err(damaged(file, &format!("its checksum is {found}, and was {}", file.xxh3)));
    }
    let bytes = Bytes::from(bytes);
    let metadata = ArrowReaderMetadata::load(&bytes, Default::default());
    let metadata = metadata.map_err(|error| damaged(file, &error))?;
    let fields = metadata.schema().fields().iter().enumerate();
    let roots = fields.filter(|(_, field)| is_wanted(field.name())).map(|(column, _)| column);
    let columns = ProjectionMask::roots(metadata.parquet_schema(), roots);
    Ok((0..metadata.metadata().num_row_groups()).map(move |group| {
        let rows = metadata.metadata().row_group(group).num_rows();
        let reader =
            ParquetRecordBatchReaderBuilder::new_with_metadata(bytes.clone(), metadata.clone());
        let mut reader = reader
            .with_projection(columns.clone())
            .with_row_groups(vec![group])
            .with_batch_size(usize::try_from(rows).unwrap_or(0).max(1))
            .build()
            .map_err(|error| damaged(file, &error))?;
        let rows = reader.next().transpose().map_err(|error| damaged(file, &error))?;
        rows.ok_or_else(|| damaged(file, &"a batch without rows"))
    }))
}

fn damaged(file: &StateFile, message: &dyn Display) -> Error {
    Error::Io {
        place: format!("the checkpoint's file {}", file.name),
        message: format!("damaged: {message}"),
        help: "`millstream checkpoint verify` says which checkpoint is whole; go on from that one \
               with --restore"
            .into(),
    }
}

//! A Parquet file as a split: chunks are ranges of rows within row groups.
//!
//! A row group may have a million rows. It is cut into equal ranges of at most [`ROWS_MAX`] rows
//! and about [`CHUNK_BYTES`] bytes once decoded, so that several workers decode one row group, and
//! memory stays bounded. Where it is cut depends on the file and on the columns that are read, and
//! on nothing else. A position is the number of the next row in the file.

use std::ops::Range;
use std::sync::Arc;
use std::task::Waker;

use arrow::array::{RecordBatch, RecordBatchOptions, RecordBatchReader, new_null_array};
use arrow::datatypes::{DataType, FieldRef, Fields, SchemaRef};
use millstream_contract::Result;
use millstream_contract::table::{Chunk, Decoded, Extent, Position, Sharing, Split, SplitPoll};
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, RowSelection, RowSelector};
use parquet::arrow::{FieldLevels, ProjectionMask, parquet_to_arrow_field_levels};
use parquet::basic::Type as Physical;
use parquet::errors::ParquetError;
use parquet::file::metadata::ColumnChunkMetaData;

use super::file::ParquetFile;
use super::pages::{Group, Kept};
use super::prune::Pruner;
use super::thrift;
use crate::columns::{Columns, Span, damaged, text_dictionary};
use crate::guard::guarded;
use crate::input::{Anywhere, Input, Name};
use crate::records::Reading;

/// Rows of a chunk at most. Each chunk reads the dictionaries of its columns, so it should not have
/// few. A row group of DuckDB's, of 122,880 rows, is one chunk: its columns are a page each, and
/// a worker with a part of the rows would wait for another worker to unpack each page.
const ROWS_MAX: u64 = 128 << 10;

/// Bytes that a chunk should have once it is decoded.
const CHUNK_BYTES: u64 = 4 << 20;

/// Rows of the first chunk of a file that is one of many: it is read to see at which time the file
/// begins, and waits for its turn.
const FIRST_ROWS: u64 = 1 << 10;

/// Bytes in which the header of a dictionary page is looked for.
const HEADER_BYTES: usize = 128;

/// A Parquet file being read.
pub(crate) struct ParquetSplit {
    path: Name,
    what: Arc<ParquetPlan>,
    /// The next row, and where the first chunk ends at the latest.
    row: u64,
    first_rows: u64,
    /// How the row group of the last chunk is cut.
    cut: Option<(usize, GroupCut)>,
    length: Option<u64>,
    sharing: Sharing,
}

/// A file, and its columns to be read.
struct ParquetPlan {
    file: ParquetFile,
    bytes: Arc<Anywhere>,
    /// Of rows that count.
    all: ColumnSet,
    /// Of rows that the query leaves out.
    few: Few,
    pruner: Pruner,
}

/// Columns that are read together.
struct ColumnSet {
    columns: Columns,
    levels: FieldLevels,
    /// Their leaf columns.
    leaves: Vec<usize>,
}

/// Columns that are read of every row.
struct Few {
    part: ColumnSet,
    /// By projected column, its index within `part`.
    slots: Vec<Option<usize>>,
}

/// How a row group is cut.
#[derive(Debug, Clone)]
struct GroupCut {
    /// Rows of each chunk, but for the last.
    rows: u64,
    /// Of a row, decoded.
    row_bytes: u64,
    /// Rows that the query leaves out, in ascending ranges.
    left_out: Vec<Range<u64>>,
    kept: Arc<Kept>,
}

impl GroupCut {
    /// Whether the query leaves all of these rows out.
    fn leaves_out(&self, rows: &Range<u64>) -> bool {
        let range = self.left_out.partition_point(|range| range.end < rows.end);
        self.left_out.get(range).is_some_and(|range| range.start <= rows.start)
    }
}

impl ParquetSplit {
    /// Opens a file at a position: the number of a row.
    pub(crate) fn open(input: Input, reading: &Reading<'_>) -> Result<ParquetSplit> {
        let bytes = Anywhere::new(input, reading.path.clone(), "Parquet")?;
        let pruning = reading.pruning;
        let dictionaries = reading.dictionaries;
        let (statistics, encodings) = (!pruning.conditions.is_empty(), !dictionaries.is_empty());
        let file = ParquetFile::open(bytes, statistics, encodings)?;
        let path = reading.path.clone();
        let all = ColumnSet::new(&file, &path, reading.schema, reading.projection, dictionaries)?;
        let few = Few::new(&file, &path, reading)?;
        let pruner = Pruner::new(pruning, &all.columns, &file);
        let (row, first_rows) = match reading.from.0[..] {
            [row] => (row, u64::MAX),
            _ if reading.one_of_many => (0, FIRST_ROWS),
            _ => (0, u64::MAX),
        };
        let bytes = Arc::new(file.bytes.clone());
        Ok(ParquetSplit {
            path,
            what: Arc::new(ParquetPlan { file, bytes, all, few, pruner }),
            row,
            first_rows,
            cut: None,
            length: reading.length,
            sharing: reading.sharing,
        })
    }

    /// How to cut this row group.
    fn cut(&mut self, group: usize, rows: u64) -> Result<GroupCut> {
        match &self.cut {
            Some((known, cut)) if *known == group => Ok(cut.clone()),
            _ => {
                let row_bytes = self.what.row_bytes(group, rows)?;
                let by_bytes = rows.saturating_mul(row_bytes).div_ceil(CHUNK_BYTES);
                let chunks = by_bytes.max(rows.div_ceil(ROWS_MAX)).clamp(1, rows.max(1));
                let rows = rows.div_ceil(chunks).max(1);
                let left_out = self.what.pruner.left_out(&self.what.file, group);
                let cut = GroupCut { rows, row_bytes, left_out, kept: Arc::default() };
                self.cut = Some((group, cut.clone()));
                Ok(cut)
            }
        }
    }
}

impl ColumnSet {
    fn new(
        file: &ParquetFile,
        path: &Name,
        schema: &SchemaRef,
        projection: &[usize],
        dictionaries: &[usize],
    ) -> Result<ColumnSet> {
        let columns = Columns::find(path, schema, projection, &file.fields)?;
        let columns = columns.with_dictionaries(dictionaries);
        let leaves = file.leaves(columns.read());
        file.check_columns(&leaves)?;
        let descriptor = file.metadata.file_metadata().schema_descr();
        let fields = fields_with(file, &columns, dictionaries);
        let levels = guarded(|| {
            let mask = ProjectionMask::roots(descriptor, columns.read().iter().copied());
            parquet_to_arrow_field_levels(descriptor, mask, fields.as_ref())
        });
        let levels = levels.map_err(|message| damaged(path, message))?;
        Ok(ColumnSet { columns, levels, leaves })
    }
}

/// The columns of a file, of which some are to be read as dictionaries: those at these places of
/// the projection that are stored so. `None` if all are as Arrow takes them by itself.
fn fields_with(file: &ParquetFile, columns: &Columns, dictionaries: &[usize]) -> Option<Fields> {
    let mut fields = file.fields.to_vec();
    let mut any = file.instants;
    for place in dictionaries {
        let Some((root, _)) = columns.source_of(*place) else { continue };
        if let (Some(field), [leaf]) = (fields.get_mut(root), &file.leaves(&[root])[..])
            && *field.data_type() == DataType::Utf8
            && file.is_dictionary(*leaf)
        {
            *field = Arc::new(field.as_ref().clone().with_data_type(text_dictionary()));
            any = true;
        }
    }
    any.then(|| fields.into())
}

impl Few {
    fn new(file: &ParquetFile, path: &Name, reading: &Reading<'_>) -> Result<Few> {
        let (schema, mut projection, mut slots) = (reading.schema, Vec::new(), Vec::new());
        for (place, column) in reading.projection.iter().enumerate() {
            let nullable = schema.fields().get(*column).is_some_and(|field| field.is_nullable());
            let needed = !nullable || reading.pruning.always.contains(&place);
            slots.push(needed.then_some(projection.len()));
            projection.extend(needed.then_some(*column));
        }
        Ok(Few { part: ColumnSet::new(file, path, schema, &projection, &[])?, slots })
    }

    /// The batch of all columns, with NULL in place of those that were not read.
    fn batch(&self, few: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
        let rows = few.num_rows();
        let column = |(field, slot): (&FieldRef, &Option<usize>)| match slot {
            Some(slot) => few.column(*slot).clone(),
            None => new_null_array(field.data_type(), rows),
        };
        let columns = schema.fields().iter().zip(&self.slots).map(column).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        Ok(RecordBatch::try_new_with_options(schema.clone(), columns, &options)?)
    }
}

impl ParquetPlan {
    /// About how many bytes a row of a row group takes once it is decoded.
    fn row_bytes(&self, group: usize, rows: u64) -> Result<u64> {
        let columns = self.file.metadata.row_group(group);
        let mut bytes = 0u64;
        for leaf in &self.all.leaves {
            let column = columns.column(*leaf);
            let values = column.num_values().max(0) as u64;
            let each = self.value_bytes(column)?;
            bytes = bytes.saturating_add(values.saturating_mul(each).div_ceil(rows.max(1)));
        }
        Ok(bytes.max(1))
    }

    /// About how many bytes a value takes once it is decoded. Of texts in a dictionary, the mean of
    /// that is taken.
    fn value_bytes(&self, column: &ColumnChunkMetaData) -> Result<u64> {
        let values = column.num_values().max(1) as u64;
        let encoded = (column.uncompressed_size().max(0) as u64).div_ceil(values);
        Ok(match column.column_type() {
            Physical::BOOLEAN => 1,
            Physical::INT32 | Physical::FLOAT => 4,
            Physical::INT64 | Physical::DOUBLE => 8,
            // Decimals and instants.
            Physical::INT96 | Physical::FIXED_LEN_BYTE_ARRAY => {
                let length = column.column_descr().type_length();
                u64::try_from(length).unwrap_or(0).max(16)
            }
            Physical::BYTE_ARRAY => {
                let known = column.unencoded_byte_array_data_bytes();
                let known = known.and_then(|bytes| u64::try_from(bytes).ok());
                let mean = match (known, column.dictionary_page_offset()) {
                    (Some(bytes), _) => bytes.div_ceil(values),
                    (None, Some(at)) => {
                        let page = self.bytes.read_at_most(at.max(0) as u64, HEADER_BYTES)?;
                        let dictionary = thrift::dictionary(&page);
                        dictionary.map_or(0, |found| found.bytes.div_ceil(found.values.max(1)))
                    }
                    (None, None) => 0,
                };
                4 + mean.max(encoded)
            }
        })
    }
}

impl Split for ParquetSplit {
    fn name(&self) -> &str {
        &self.path
    }

    fn extent(&self) -> Option<u64> {
        self.length.filter(|_| self.sharing == Sharing::ByChunk)
    }

    fn sharing(&self) -> Sharing {
        self.sharing
    }

    fn position(&self) -> Position {
        Position(vec![self.row])
    }

    fn progress(&self) -> Option<Extent> {
        // In bytes of the file, as of files of other formats: as if all rows were as long.
        let (rows, of) = (self.what.file.rows(), self.length?);
        let done = u128::from(of) * u128::from(self.row) / u128::from(rows.max(1));
        Some(Extent { done: u64::try_from(done).map_or(of, |done| done.min(of)), of, bytes: true })
    }

    fn poll_next(&mut self, _now_us: i64, _waker: &Waker) -> Result<SplitPoll> {
        let Some((group, before, end)) = self.what.file.group_of(self.row) else {
            return Ok(SplitPoll::Ended);
        };
        let cut = self.cut(group, end - before)?;
        let from = self.row - before;
        // In a row group, chunks end where they do whatever the position was.
        let to = (from / cut.rows + 1).saturating_mul(cut.rows).min(end - before);
        let to = to.min(from.saturating_add(self.first_rows));
        self.first_rows = u64::MAX;
        self.row = before + to;
        let bytes = (to - from).saturating_mul(cut.row_bytes);
        let rows = from..to;
        let counts = !cut.leaves_out(&rows);
        let what = self.what.clone();
        Ok(SplitPoll::Chunk(Box::new(ParquetChunk {
            what,
            group,
            first: before + rows.start,
            rows,
            counts,
            bytes: usize::try_from(bytes).unwrap_or(usize::MAX / 4),
            kept: cut.kept,
        })))
    }
}

/// Some rows of a row group.
struct ParquetChunk {
    what: Arc<ParquetPlan>,
    group: usize,
    /// The number of its first row in the file.
    first: u64,
    /// Its rows in the row group.
    rows: Range<u64>,
    /// True if the query may need any of the rows.
    counts: bool,
    /// Approximate bytes of the decoded rows.
    bytes: usize,
    kept: Arc<Kept>,
}

impl ParquetChunk {
    /// Columns as the file has them.
    fn read(&self, part: &ColumnSet) -> std::result::Result<RecordBatch, String> {
        let ParquetPlan { file, bytes, .. } = &*self.what;
        let (skipped, rows) =
            (self.rows.start as usize, (self.rows.end - self.rows.start) as usize);
        let group = Group {
            bytes: bytes.clone(),
            metadata: file.metadata.clone(),
            number: self.group,
            rows: self.rows.clone(),
            kept: self.kept.clone(),
        };
        let whole = rows == file.metadata.row_group(self.group).num_rows() as usize;
        let selection = (!whole).then(|| {
            RowSelection::from(vec![RowSelector::skip(skipped), RowSelector::select(rows)])
        });
        let levels = &part.levels;
        guarded(|| {
            let mut reader =
                ParquetRecordBatchReader::try_new_with_row_groups(levels, &group, rows, selection)?;
            match reader.next().transpose()? {
                Some(batch) => Ok::<_, ParquetError>(batch),
                None => Ok(RecordBatch::new_empty(reader.schema())),
            }
        })
    }

    /// Columns as the table has them.
    fn batch(&self, part: &ColumnSet, places: &Span) -> Result<RecordBatch> {
        let rows = (self.rows.end - self.rows.start) as usize;
        if part.leaves.is_empty() {
            return part.columns.batch(&[], rows, places);
        }
        let place = || self.what.file.place(self.group, None);
        let batch = self.read(part).map_err(|message| damaged(&place(), message))?;
        if batch.num_rows() != rows {
            let message = format!("expected {rows} rows, found {}", batch.num_rows());
            return Err(damaged(&place(), message));
        }
        part.columns.batch(batch.columns(), rows, places)
    }
}

impl Chunk for ParquetChunk {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn decode(self: Box<Self>) -> Result<RecordBatch> {
        Ok(self.decode_reporting()?.batch)
    }

    fn decode_reporting(self: Box<Self>) -> Result<Decoded> {
        let ParquetPlan { all, few, .. } = &*self.what;
        let places = Span { prefix: all.columns.path().clone(), first: self.first, before: 0 };
        let batch = match self.counts {
            true => self.batch(all, &places)?,
            false => few.batch(&self.batch(&few.part, &places)?, all.columns.schema())?,
        };
        let places = Some(Box::new(places) as _);
        Ok(Decoded::whole(batch, places))
    }
}

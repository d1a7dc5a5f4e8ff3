//! Columns whose values do not stand in the records: `METADATA` columns, and those of
//! `PARTITIONED BY`, whose values stand in the names of directories ([`crate::files`]).
//!
//! | key | type | |
//! |---|---|---|
//! | `path` | STRING | the file, as messages name it; of a followed file, as it was found |
//! | `offset` | BIGINT | text: the record's first byte in the unpacked data; else its row number |
//! | `file.modified` | TIMESTAMP or TIMESTAMP_LTZ | when the file was last written, in UTC |
//!
//! A format knows nothing of such columns: it reads the other columns, and their values are put in
//! between when a chunk has been decoded. A query without such columns costs nothing more.
//!
//! Both numbers of `offset` count from 0.

use std::sync::Arc;
use std::task::Waker;

use arrow::array::{
    Array, ArrayRef, AsArray, Int64Array, RecordBatch, RecordBatchOptions, StringArray,
    UInt32Array, new_null_array,
};
use arrow::compute::{cast, take};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use millstream_contract::calendar::tick_ns;
use millstream_contract::expr::Evaluate;
use millstream_contract::pruning::{AnyOf, Condition, Pruning};
use millstream_contract::table::{
    Chunk, Decoded, Extent, Places, Position, Sharing, Split, SplitPoll, TableOptions,
};
use millstream_contract::{Error, Result};

use crate::files::value_of;
use crate::input::Name;

/// The keys of metadata columns.
pub(crate) const PATH: &str = "path";
const OFFSET: &str = "offset";
const MODIFIED: &str = "file.modified";

/// Columns beside the records of files, and their types.
pub(crate) fn of_files() -> Vec<(&'static str, DataType)> {
    let time = DataType::Timestamp(TimeUnit::Millisecond, None);
    vec![(PATH, DataType::Utf8), (OFFSET, DataType::Int64), (MODIFIED, time)]
}

/// Columns beside the records of streams (sources without files), and their types.
pub(crate) fn of_streams() -> Vec<(&'static str, DataType)> {
    vec![(OFFSET, DataType::Int64)]
}

/// The columns of a table, and which of them stand in the records.
#[derive(Debug, Clone)]
pub(crate) struct Beside {
    /// All.
    pub(crate) schema: SchemaRef,
    /// Columns in the records.
    pub(crate) data: SchemaRef,
    /// By column of `schema`.
    columns: Arc<[Origin]>,
    partitioned_by: Arc<[String]>,
}

/// Where the values of a column come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// The records: the column's number among those.
    Data(usize),
    Path,
    Offset,
    Modified,
    Partition,
}

/// A file, for the values beside its records.
#[derive(Debug, Clone)]
pub(crate) struct FileFacts {
    pub(crate) path: Name,
    /// When it was last written, seconds since the epoch, and nanoseconds; `None` if it is no
    /// regular file.
    pub(crate) modified: Option<(i64, i64)>,
}

impl Beside {
    /// Of a table that is declared so.
    pub(crate) fn new(table: &TableOptions) -> Result<Beside> {
        let (mut columns, mut data) = (Vec::new(), Vec::new());
        for field in table.schema.fields() {
            columns.push(match table.metadata.get(field.name()).map(String::as_str) {
                Some(PATH) => Origin::Path,
                Some(OFFSET) => Origin::Offset,
                Some(MODIFIED) => Origin::Modified,
                Some(other) => {
                    return Err(Error::Internal(format!("metadata '{other}' was not refused")));
                }
                None if table.partitioned_by.contains(field.name()) => Origin::Partition,
                None => {
                    data.push(field.clone());
                    Origin::Data(data.len() - 1)
                }
            });
        }
        let data = match data.len() == columns.len() {
            true => table.schema.clone(),
            false => Arc::new(Schema::new(data)),
        };
        let partitioned_by = table.partitioned_by.as_slice().into();
        Ok(Beside { schema: table.schema.clone(), data, columns: columns.into(), partitioned_by })
    }

    /// For tests: a table of which all columns stand in the records.
    #[cfg(test)]
    pub(crate) fn none(schema: SchemaRef) -> Beside {
        let columns = (0..schema.fields().len()).map(Origin::Data).collect();
        Beside { data: schema.clone(), schema, columns, partitioned_by: [].into() }
    }

    /// The reading plan for a projection of the table's columns.
    pub(crate) fn read(&self, projection: &[usize]) -> Result<SidePlan> {
        let columns: Vec<Origin> =
            projection.iter().filter_map(|column| self.columns.get(*column).copied()).collect();
        let data = columns.iter().filter_map(|column| match column {
            Origin::Data(number) => Some(*number),
            _ => None,
        });
        Ok(SidePlan {
            data: data.collect(),
            schema: Arc::new(self.schema.project(projection)?),
            columns: columns.into(),
            partitioned_by: self.partitioned_by.clone(),
        })
    }
}

/// Columns that are read.
#[derive(Debug, Clone)]
pub(crate) struct SidePlan {
    /// Columns in the records: numbers in [`Beside::data`].
    pub(crate) data: Arc<[usize]>,
    schema: SchemaRef,
    columns: Arc<[Origin]>,
    partitioned_by: Arc<[String]>,
}

impl SidePlan {
    /// Whether all stand in the records.
    fn is_plain(&self) -> bool {
        self.data.len() == self.columns.len()
    }

    /// Whether the offsets of records are wanted.
    pub(crate) fn offsets(&self) -> bool {
        self.columns.contains(&Origin::Offset)
    }

    /// The part of `pruning` that is about columns in the records.
    pub(crate) fn pruning(&self, pruning: &Pruning) -> Pruning {
        if self.is_plain() {
            return pruning.clone();
        }
        let number = |place: usize| {
            let is_data = |column: &&Origin| matches!(column, Origin::Data(_));
            self.columns.get(place).filter(is_data)?;
            Some(self.columns.get(..place)?.iter().filter(is_data).count())
        };
        let condition = |condition: &Condition| {
            Some(Condition { column: number(condition.column)?, ..condition.clone() })
        };
        let any = |any: &AnyOf| any.0.iter().map(condition).collect::<Option<_>>().map(AnyOf);
        Pruning {
            conditions: pruning.conditions.iter().filter_map(any).collect(),
            always: pruning.always.iter().filter_map(|place| number(*place)).collect(),
        }
    }

    /// Whether rows of a file may count, of which all `conditions` hold on each row that does, as
    /// far as the values beside its records say.
    pub(crate) fn may_count(
        &self,
        conditions: &[Arc<dyn Evaluate>],
        file: impl FnOnce() -> FileFacts,
    ) -> bool {
        let is_once = |at: &usize| {
            !matches!(self.columns.get(*at), None | Some(Origin::Data(_) | Origin::Offset))
        };
        let mut asked = conditions.iter().filter(|condition| {
            condition.columns().is_some_and(|of| !of.is_empty() && of.iter().all(is_once))
        });
        let Some(first) = asked.next() else { return true };
        // What is wrong with a path is said when the file is read.
        let Ok(Some(row)) = self.values(file).map(|values| values.and_then(|v| v.row().ok()))
        else {
            return true;
        };
        std::iter::once(first).chain(asked).all(|condition| match condition.evaluate(&row) {
            Ok(held) => held.as_boolean_opt().is_none_or(|held| held.is_valid(0) && held.value(0)),
            Err(_) => true,
        })
    }

    /// Columns among `places` that may come as dictionaries; empty if values are put beside the
    /// records.
    pub(crate) fn dictionaries<'a>(&self, places: &'a [usize]) -> &'a [usize] {
        if self.is_plain() { places } else { &[] }
    }

    /// The values that are the same for all records of a file; `None` if none are wanted.
    ///
    /// # Errors
    ///
    /// If the file has no value for a column that is NOT NULL, or its path none of the column's
    /// type.
    pub(crate) fn values(
        &self,
        file: impl FnOnce() -> FileFacts,
    ) -> Result<Option<Arc<SideValues>>> {
        if self.is_plain() {
            return Ok(None);
        }
        let file = file();
        let value = |(column, field): (&Origin, &Arc<Field>)| match column {
            Origin::Data(_) | Origin::Offset => Ok(None),
            Origin::Path => Ok(Some(Arc::new(StringArray::from(vec![&*file.path])) as ArrayRef)),
            Origin::Modified => modified(&file, field).map(Some),
            Origin::Partition => value_of(&file.path, field, &self.partitioned_by).map(Some),
        };
        let once = self.columns.iter().zip(self.schema.fields()).map(value);
        let once = once.collect::<Result<Vec<_>>>()?;
        Ok(Some(Arc::new(SideValues { read: self.clone(), once })))
    }
}

/// When a file was last written, as a column of one row.
fn modified(file: &FileFacts, field: &Field) -> Result<ArrayRef> {
    let DataType::Timestamp(unit, _) = field.data_type() else {
        return Err(Error::Internal(format!("'{}' is no timestamp", field.name())));
    };
    // Digits that the type has not are cut off towards the past, as in CSV.
    let ticks = |(seconds, nanos): (i64, i64)| {
        let nanos = i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
        i64::try_from(nanos.div_euclid(tick_ns(*unit))).ok()
    };
    let ticks = file.modified.and_then(ticks);
    if ticks.is_none() && !field.is_nullable() {
        return Err(Error::Data {
            place: file.path.to_string(),
            message: format!(
                "column '{}' is NOT NULL, and nothing says when this was last written",
                field.name()
            ),
            help: "declare the column without NOT NULL, or read a regular file".into(),
        });
    }
    Ok(cast(&Int64Array::from(vec![ticks]), field.data_type())?)
}

/// Values beside the records of one file.
#[derive(Debug)]
pub(crate) struct SideValues {
    read: SidePlan,
    /// By column that is read, one value, if it is the same for all records.
    once: Vec<Option<ArrayRef>>,
}

impl SideValues {
    /// A split of the file's records, with what is beside them.
    pub(crate) fn split(values: Option<Arc<SideValues>>, inner: Box<dyn Split>) -> Box<dyn Split> {
        match values {
            None => inner,
            Some(values) => Box::new(BesideSplit { inner, values }),
        }
    }

    /// As [`SideValues::split`], of a chunk.
    pub(crate) fn chunk(values: Option<&Arc<SideValues>>, inner: Box<dyn Chunk>) -> Box<dyn Chunk> {
        match values {
            None => inner,
            Some(values) => Box::new(BesideChunk { inner, values: values.clone() }),
        }
    }

    /// One row: values common to all records, and NULL in the other columns.
    fn row(&self) -> Result<RecordBatch> {
        let fields = self.read.schema.fields();
        let nullable = |field: &Arc<Field>| field.as_ref().clone().with_nullable(true);
        let schema = Schema::new(fields.iter().map(nullable).collect::<Vec<_>>());
        let value = |(once, field): (&Option<ArrayRef>, &Arc<Field>)| {
            once.clone().unwrap_or_else(|| new_null_array(field.data_type(), 1))
        };
        let columns = self.once.iter().zip(fields).map(value).collect();
        Ok(RecordBatch::try_new(Arc::new(schema), columns)?)
    }

    /// All columns that are read, where `data` are those of the records.
    fn put_beside(&self, data: &RecordBatch, places: Option<&dyn Places>) -> Result<RecordBatch> {
        let rows = data.num_rows();
        // A batch is far below 4 billion rows.
        let zeros = UInt32Array::from(vec![0; rows]);
        let mut data = data.columns().iter();
        let column = |(column, once): (&Origin, &Option<ArrayRef>)| match (column, once) {
            (Origin::Offset, _) => offsets(rows, places),
            (_, Some(once)) => Ok(take(once, &zeros, None)?),
            (_, None) => {
                data.next().cloned().ok_or_else(|| Error::Internal("a column is missing".into()))
            }
        };
        let columns = self.read.columns.iter().zip(&self.once).map(column);
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        Ok(RecordBatch::try_new_with_options(self.read.schema.clone(), columns, &options)?)
    }
}

/// The offsets of a batch's records.
fn offsets(rows: usize, places: Option<&dyn Places>) -> Result<ArrayRef> {
    let offset = |row| i64::try_from(places?.offset(row)?).ok();
    let offsets = (0..rows).map(offset).collect::<Option<Vec<i64>>>();
    let offsets = offsets.ok_or_else(|| Error::Internal("records without offsets".into()))?;
    Ok(Arc::new(Int64Array::from(offsets)))
}

struct BesideSplit {
    inner: Box<dyn Split>,
    values: Arc<SideValues>,
}

impl Split for BesideSplit {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn extent(&self) -> Option<u64> {
        self.inner.extent()
    }

    fn sharing(&self) -> Sharing {
        self.inner.sharing()
    }

    fn remark(&self) -> Option<&str> {
        self.inner.remark()
    }

    fn notice(&mut self) -> Option<String> {
        self.inner.notice()
    }

    fn position(&self) -> Position {
        self.inner.position()
    }

    fn progress(&self) -> Option<Extent> {
        self.inner.progress()
    }

    fn caught_up(&self) -> bool {
        self.inner.caught_up()
    }

    fn drain(&mut self) -> bool {
        self.inner.drain()
    }

    fn poll_next(&mut self, now_us: i64, waker: &Waker) -> Result<SplitPoll> {
        Ok(match self.inner.poll_next(now_us, waker)? {
            SplitPoll::Chunk(chunk) => {
                SplitPoll::Chunk(SideValues::chunk(Some(&self.values), chunk))
            }
            other => other,
        })
    }
}

struct BesideChunk {
    inner: Box<dyn Chunk>,
    values: Arc<SideValues>,
}

impl Chunk for BesideChunk {
    fn bytes(&self) -> usize {
        self.inner.bytes()
    }

    fn decode(self: Box<Self>) -> Result<RecordBatch> {
        Ok(self.decode_reporting()?.batch)
    }

    fn decode_reporting(self: Box<Self>) -> Result<Decoded> {
        let decoded = self.inner.decode_reporting()?;
        let batch = self.values.put_beside(&decoded.batch, decoded.places.as_deref())?;
        Ok(Decoded { batch, ..decoded })
    }
}

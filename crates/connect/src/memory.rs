//! A bounded table of Arrow batches that are already in memory.

use std::sync::Arc;
use std::task::Waker;

use arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use millstream_contract::table::{Extent, OpenOptions, Position, Split, SplitPoll, Table};
use millstream_contract::wording::counted;
use millstream_contract::{Error, Result};

use crate::conform::{conform, conformed};

/// Record batches as a table. Reading it copies nothing: batches are sliced.
///
/// Columns in another of Arrow's layouts (views, dictionaries, large offsets, decimals of 32 and 64
/// bits) are converted when the table is made, as those of files are. The table's schema has the
/// types that come of it.
///
/// ```
/// use std::sync::Arc;
/// use arrow::array::{Int64Array, RecordBatch};
/// use millstream_connect::MemoryTable;
///
/// let column = Arc::new(Int64Array::from(vec![1, 2, 3])) as _;
/// let batch = RecordBatch::try_from_iter([("id", column)]).unwrap();
/// let table = MemoryTable::new(batch.schema(), vec![vec![batch]]).unwrap();
/// ```
#[derive(Debug)]
pub struct MemoryTable {
    schema: SchemaRef,
    splits: Arc<Vec<Vec<RecordBatch>>>,
}

impl MemoryTable {
    /// A table of `splits`, each a sequence of batches.
    ///
    /// # Errors
    ///
    /// [`Error::Data`] if a batch does not have the columns of `schema`, or if a value does not fit
    /// the type in which it is kept, such as a `Date64` that is no whole day.
    pub fn new(schema: SchemaRef, splits: Vec<Vec<RecordBatch>>) -> Result<MemoryTable> {
        let kept = conformed_schema(&schema);
        let batches = |(split, batches): (usize, Vec<RecordBatch>)| {
            let batch = |(number, batch): (usize, RecordBatch)| {
                let place = || format!("memory, split {split}, batch {number}");
                conform_batch(&schema, &kept, batch, place)
            };
            batches.into_iter().enumerate().map(batch).collect()
        };
        let splits = splits.into_iter().enumerate().map(batches).collect::<Result<_>>()?;
        Ok(MemoryTable { schema: kept, splits: Arc::new(splits) })
    }
}

/// The schema with the types in which values are kept. A type that SQL cannot name stays: a query
/// that needs the column is refused.
pub(crate) fn conformed_schema(schema: &SchemaRef) -> SchemaRef {
    let kept = |data_type: &DataType| conformed(data_type).unwrap_or_else(|| data_type.clone());
    if schema.fields().iter().all(|field| kept(field.data_type()) == *field.data_type()) {
        return schema.clone();
    }
    let field = |field: &Arc<Field>| {
        let data_type = kept(field.data_type());
        field.as_ref().clone().with_data_type(data_type)
    };
    let fields: Vec<Field> = schema.fields().iter().map(field).collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

/// A batch of `schema` with the types of `kept`, the conformed one.
pub(crate) fn conform_batch(
    schema: &Schema,
    kept: &SchemaRef,
    batch: RecordBatch,
    place: impl Fn() -> String,
) -> Result<RecordBatch> {
    check_columns(schema, &batch, &place)?;
    let types = || kept.fields().iter().map(|field| field.data_type());
    if types().zip(batch.columns()).all(|(kept, column)| kept == column.data_type()) {
        return Ok(batch);
    }
    let error = |name: &str, message: String| Error::Data {
        place: place(),
        message: format!("column '{name}': {message}"),
        help: "give the column a type of SQL that holds all its values".into(),
    };
    let column = |(field, column): (&Arc<Field>, &ArrayRef)| {
        conform(column, field.data_type()).map_err(|e| error(field.name(), e.to_string()))
    };
    let columns = kept.fields().iter().zip(batch.columns()).map(column);
    let columns = columns.collect::<Result<Vec<_>>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(kept.clone(), columns, &options)
        .map_err(|e| Error::Internal(format!("{}: {e}", place())))
}

/// Whether a batch fits a table: the same names and types in the same order, and no NULL where none
/// may be.
fn check_columns(schema: &Schema, batch: &RecordBatch, place: impl Fn() -> String) -> Result<()> {
    let error = |message: String| {
        let help = "give each batch the table's schema".to_string();
        Err(Error::Data { place: place(), message, help })
    };
    let found = batch.schema_ref().fields();
    if found.len() != schema.fields().len() {
        let expected = counted(schema.fields().len() as u64, "column");
        return error(format!("expected {expected}, found {}", found.len()));
    }
    for ((expected, found), column) in schema.fields().iter().zip(found).zip(batch.columns()) {
        if expected.name() != found.name() || expected.data_type() != found.data_type() {
            return error(format!(
                "expected column '{}' of type {}, found '{}' of type {}",
                expected.name(),
                expected.data_type(),
                found.name(),
                found.data_type()
            ));
        }
        if !expected.is_nullable() && column.logical_null_count() > 0 {
            return error(format!("column '{}' is NOT NULL, found NULL", expected.name()));
        }
    }
    Ok(())
}

impl Table for MemoryTable {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn bounded(&self) -> bool {
        true
    }

    fn open(&self, projection: &[usize], options: &OpenOptions) -> Result<Vec<Box<dyn Split>>> {
        let open = |split: usize| -> Result<Box<dyn Split>> {
            let name = format!("memory, split {split}");
            let from = options.from(&name).0;
            let (batch, row) = (from.first().map_or(0, |b| *b), from.get(1).map_or(0, |r| *r));
            let mut opened = MemorySplit {
                name,
                splits: self.splits.clone(),
                split,
                batch: batch as usize,
                rest: Slicer::new(projection, options.batch_rows),
            };
            opened.skip(row as usize)?;
            Ok(Box::new(opened))
        };
        (0..self.splits.len()).map(open).collect()
    }

    fn describe(&self, projection: &[usize]) -> String {
        let rows: usize = self.splits.iter().flatten().map(RecordBatch::num_rows).sum();
        let (read, all) = (projection.len(), self.schema.fields().len());
        let splits = counted(self.splits.len() as u64, "split");
        let (rows, all) = (counted(rows as u64, "row"), counted(all as u64, "column"));
        format!("memory ({rows}, {splits}, {read} of {all})")
    }
}

struct MemorySplit {
    name: String,
    splits: Arc<Vec<Vec<RecordBatch>>>,
    split: usize,
    /// The batch to take next.
    batch: usize,
    rest: Slicer,
}

impl MemorySplit {
    /// Leaves out the first rows of the batch whose turn it is.
    fn skip(&mut self, rows: usize) -> Result<()> {
        let batch = self.splits[self.split].get(self.batch).filter(|_| rows > 0);
        if let Some(batch) = batch {
            let rows = rows.min(batch.num_rows());
            self.rest.put(&batch.slice(rows, batch.num_rows() - rows))?;
            self.batch += 1;
        }
        Ok(())
    }
}

impl Split for MemorySplit {
    fn name(&self) -> &str {
        &self.name
    }

    /// The number of a batch, and rows of it that have been handed out.
    fn position(&self) -> Position {
        let left = self.rest.rows();
        let position = match left {
            0 => [self.batch as u64, 0],
            _ => {
                let batch = self.batch - 1;
                let rows = self.splits[self.split].get(batch).map_or(0, RecordBatch::num_rows);
                [batch as u64, (rows - left) as u64]
            }
        };
        Position(position.to_vec())
    }

    fn progress(&self) -> Option<Extent> {
        let of = self.splits[self.split].len() as u64;
        Some(Extent { done: (self.batch as u64).min(of), of, bytes: false })
    }

    fn poll_next(&mut self, _now_us: i64, _waker: &Waker) -> Result<SplitPoll> {
        loop {
            if let Some(slice) = self.rest.next() {
                return Ok(SplitPoll::Chunk(Box::new(slice)));
            }
            let Some(batch) = self.splits[self.split].get(self.batch) else {
                return Ok(SplitPoll::Ended);
            };
            self.batch += 1;
            self.rest.put(batch)?;
        }
    }
}

/// Cuts batches into slices of at most so many rows, with the projected columns only.
pub(crate) struct Slicer {
    projection: Vec<usize>,
    batch_rows: usize,
    rest: Option<RecordBatch>,
}

impl Slicer {
    pub(crate) fn new(projection: &[usize], batch_rows: usize) -> Slicer {
        Slicer { projection: projection.to_vec(), batch_rows: batch_rows.max(1), rest: None }
    }

    /// Takes a batch, after the last one is used up.
    pub(crate) fn put(&mut self, batch: &RecordBatch) -> Result<()> {
        if batch.num_rows() > 0 {
            let projected = batch.project(&self.projection);
            self.rest = Some(projected.map_err(|error| Error::Internal(error.to_string()))?);
        }
        Ok(())
    }

    /// Rows that are left.
    pub(crate) fn rows(&self) -> usize {
        self.rest.as_ref().map_or(0, RecordBatch::num_rows)
    }

    /// The next slice, or `None` if there are no rows left.
    pub(crate) fn next(&mut self) -> Option<RecordBatch> {
        let batch = self.rest.take()?;
        if batch.num_rows() <= self.batch_rows {
            return Some(batch);
        }
        let rest = batch.num_rows() - self.batch_rows;
        self.rest = Some(batch.slice(self.batch_rows, rest));
        Some(batch.slice(0, self.batch_rows))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{AsArray, Int64Array, StringArray};
    use arrow::datatypes::Int64Type;

    use super::*;

    fn batch(values: std::ops::Range<i64>) -> RecordBatch {
        let texts: StringArray = values.clone().map(|v| Some(v.to_string())).collect();
        let columns = [
            ("n", Arc::new(Int64Array::from_iter_values(values)) as ArrayRef),
            ("s", Arc::new(texts) as ArrayRef),
        ];
        RecordBatch::try_from_iter(columns).unwrap()
    }

    fn read(table: &MemoryTable, projection: &[usize], batch_rows: usize) -> Vec<Vec<RecordBatch>> {
        let options = OpenOptions::alone(batch_rows, 0, 1);
        let splits = table.open(projection, &options).unwrap();
        let drain = |mut split: Box<dyn Split>| {
            let mut batches = Vec::new();
            while let SplitPoll::Chunk(chunk) = split.poll_next(0, Waker::noop()).unwrap() {
                batches.push(chunk.decode().unwrap());
            }
            batches
        };
        splits.into_iter().map(drain).collect()
    }

    #[test]
    fn batches_are_sliced_and_projected_without_copying() {
        let first = batch(0..10);
        let schema = first.schema();
        let table = MemoryTable::new(
            Arc::new(schema.as_ref().clone()),
            vec![vec![first.clone(), batch(10..10), batch(10..13)], vec![batch(20..21)], vec![]],
        )
        .unwrap();
        let splits = read(&table, &[0], 4);
        let sizes: Vec<Vec<usize>> =
            splits.iter().map(|s| s.iter().map(RecordBatch::num_rows).collect()).collect();
        assert_eq!(sizes, [vec![4, 4, 2, 3], vec![1], vec![]]);
        let values: Vec<i64> = splits[0]
            .iter()
            .flat_map(|b| b.column(0).as_primitive::<Int64Type>().values().to_vec())
            .collect();
        assert_eq!(values, (0..13).collect::<Vec<_>>());
        let source = first.column(0).as_primitive::<Int64Type>().values().as_ptr();
        let slice = splits[0][1].column(0).as_primitive::<Int64Type>().values().as_ptr();
        assert_eq!(slice, source.wrapping_add(4));
        // Reading again starts again; without columns a row count remains.
        assert_eq!(read(&table, &[], 100)[0][0].num_rows(), 10);
        assert_eq!(read(&table, &[1, 0], 100)[1][0].schema().field(0).name(), "s");
    }

    #[test]
    fn a_batch_of_another_schema_is_refused() {
        let schema = Arc::new(Schema::new(vec![
            Field::new("n", DataType::Int64, false),
            Field::new("t", DataType::Utf8, true),
        ]));
        let error = MemoryTable::new(schema.clone(), vec![vec![batch(0..1)]]).unwrap_err();
        assert!(
            error.to_string().contains("expected column 't' of type Utf8, found 's'"),
            "{error}"
        );
        let nulls = RecordBatch::try_from_iter([
            ("n", Arc::new(Int64Array::from(vec![None, Some(1)])) as ArrayRef),
            ("t", Arc::new(StringArray::from(vec!["", ""])) as ArrayRef),
        ]);
        let error = MemoryTable::new(schema, vec![vec![], vec![nulls.unwrap()]]).unwrap_err();
        assert_eq!(
            error.to_string().lines().next().unwrap(),
            "memory, split 1, batch 0: column 'n' is NOT NULL, found NULL"
        );
    }
}

//! Files that carry a schema: Parquet and Arrow.
//!
//! [`schema`] alone reads schemas. A schema does not say how far out of order records are, so the
//! columns that may be the event time are read from the beginning of the first and the last file.
//! The schemas of all files are read, unless there are very many.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::task::Waker;

use arrow::array::{ArrayRef, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef, TimeUnit};
use millstream_contract::table::{OpenOptions, SplitPoll, Table, TableOptions};
use millstream_contract::{Error, Result};

use super::sample::{ends, headed, read_once};
use super::value::{TextShape, ValueStats};
use super::{FormatKind, Inferred, InferredColumn, RECORDS_MAX, left_out};
use crate::source::{FileTable, OneFile};
use crate::types::sql_name;
use crate::{conform, ipc, parquet};

/// Columns that are looked into, at most.
const TIMES_MAX: usize = 16;

/// The columns of the schema that the first file carries, as far as the last one has them, with
/// the types that take both; and whether all of the data has been seen.
pub(super) fn columns(format: FormatKind, files: &[OneFile]) -> Result<(Inferred, bool)> {
    // An empty file may come first.
    let Some(first) = ends(files).next() else { return Ok((Inferred::default(), true)) };
    let (mut schema, unknown) = schema_of(format, first)?;
    let mut apart = Apart::default();
    for other in ends(files).filter(|file| file.name != first.name) {
        schema = apart.common(&schema, first, &schema_of(format, other)?.0, other);
    }
    for other in headed(files).into_iter().filter(|file| file.name != first.name) {
        // The reader will say why one cannot be read.
        if let Ok((found, _)) = schema_of(format, other) {
            apart.note_new(&schema, &found, other);
        }
    }
    let is_time =
        |field: &Arc<Field>| matches!(field.data_type(), DataType::Timestamp(..) | DataType::Int64);
    let times = (0..).zip(schema.fields()).filter(|(_, field)| is_time(field));
    let times: Vec<usize> = times.map(|(at, _)| at).take(TIMES_MAX).collect();
    let mut found = vec![ValueStats::default(); schema.fields().len()];
    let mut whole = files.len() <= 2;
    for file in ends(files).filter(|_| !times.is_empty()) {
        found.iter_mut().for_each(ValueStats::gap);
        whole &= look(format, file, &schema, &times, &mut found)?;
    }
    let column = |(field, values): (&Arc<Field>, ValueStats)| {
        InferredColumn::new(field.name().clone(), field.data_type().clone(), values)
    };
    let no_type = |(name, data_type): (String, DataType)| {
        format!("the column {name} is left out: SQL has no type for {data_type}")
    };
    let columns = schema.fields().iter().zip(found).map(column).collect();
    let remarks = unknown.into_iter().map(no_type).chain(apart.told(&first.name)).collect();
    Ok((Inferred { columns, remarks, ..Inferred::default() }, whole))
}

/// The columns that not all files have, or not with types that go together.
#[derive(Default)]
struct Apart {
    /// In lower case.
    names: HashSet<String>,
    remarks: Vec<String>,
    /// Columns missing in the first file, each with the name of a file.
    new: Vec<String>,
}

impl Apart {
    /// The columns that two files have in common, with types that take the values of both.
    fn common(
        &mut self,
        schema: &SchemaRef,
        first: &OneFile,
        other_schema: &SchemaRef,
        other: &OneFile,
    ) -> SchemaRef {
        let (mut fields, mut missing) = (Vec::new(), Vec::new());
        for field in schema.fields() {
            let found = conform::index_of(field.name(), other_schema.fields());
            // Two of the same name are for the reader to refuse.
            let Ok(at) = found else {
                match found {
                    Err(0) => missing.push(field.name().clone()),
                    _ => fields.push(field.clone()),
                }
                continue;
            };
            let theirs = other_schema.field(at).data_type();
            match conform::wider(field.data_type(), theirs) {
                Some(wider) => fields.push(Arc::new(field.as_ref().clone().with_data_type(wider))),
                None => {
                    self.names.insert(field.name().to_lowercase());
                    self.remarks.push(format!(
                        "the column {} is left out: it is {} in {}, and {} in {}",
                        field.name(),
                        sql_name(field.data_type()),
                        first.name,
                        sql_name(theirs),
                        other.name
                    ));
                }
            }
        }
        self.names.extend(missing.iter().map(|name| name.to_lowercase()));
        self.remarks.extend(left_out(&other.name, &missing));
        Arc::new(Schema::new(fields))
    }

    /// Notes the columns of a file that the others do not have, or not all.
    fn note_new(&mut self, schema: &SchemaRef, other_schema: &SchemaRef, other: &OneFile) {
        for field in other_schema.fields() {
            let is_new = conform::index_of(field.name(), schema.fields()).is_err_and(|n| n == 0);
            if is_new && self.names.insert(field.name().to_lowercase()) {
                self.new.push(format!("{} ({})", field.name(), other.name));
            }
        }
    }

    /// Remarks for the user about the files' differences.
    fn told(self, first: &str) -> impl Iterator<Item = String> {
        self.remarks.into_iter().chain(left_out(first, &self.new))
    }
}

/// The schema of a file as a table would declare it, and the columns for which SQL has no type.
fn schema_of(format: FormatKind, file: &OneFile) -> Result<(SchemaRef, Vec<(String, DataType)>)> {
    let path = PathBuf::from(&*file.name);
    if !path.metadata().map_err(|e| crate::input::io_error(&path, &e))?.is_file() {
        return Err(read_once(&file.name));
    }
    let (schema, unknown): (Schema, _) = match format {
        FormatKind::Parquet => parquet::schema_of(file.input()?, file.name.clone())?,
        FormatKind::Arrow => ipc::schema_of(file.input()?, file.name.clone())?,
        _ => {
            return Err(Error::Data {
                place: file.name.to_string(),
                message: format!("files of the format {} cannot be read yet", format.name()),
                help: "convert it to Parquet".into(),
            });
        }
    };
    Ok((Arc::new(schema), unknown))
}

/// Reads the columns `times` at the beginning of a file; true if the file has no more rows.
fn look(
    format: FormatKind,
    file: &OneFile,
    schema: &SchemaRef,
    times: &[usize],
    found: &mut [ValueStats],
) -> Result<bool> {
    let options = [("path", &*file.name), ("format", format.name())];
    let table = TableOptions::new(&file.name, schema.clone(), options);
    let table = FileTable::from_options(&TableOptions { base_dir: PathBuf::new(), ..table })?;
    let mut splits = table.open(times, &OpenOptions::alone(RECORDS_MAX, 0, 1))?;
    let Some(split) = splits.first_mut() else { return Ok(true) };
    match split.poll_next(0, Waker::noop())? {
        SplitPoll::Chunk(chunk) => add(&chunk.decode()?, times, found)?,
        SplitPoll::Ended => return Ok(true),
        SplitPoll::Pending { .. } => return Ok(false),
    }
    Ok(matches!(split.poll_next(0, Waker::noop())?, SplitPoll::Ended))
}

/// Notes the times of some records.
pub(super) fn add(batch: &RecordBatch, times: &[usize], found: &mut [ValueStats]) -> Result<()> {
    let cast = |array: &ArrayRef, data_type: &DataType| {
        cast(array, data_type).map_err(|error| Error::Internal(error.to_string()))
    };
    for (array, column) in batch.columns().iter().zip(times) {
        let Some(values) = found.get_mut(*column) else { continue };
        let is_number = *array.data_type() == DataType::Int64;
        let array = match is_number {
            true => array.clone(),
            false => {
                let us = cast(array, &DataType::Timestamp(TimeUnit::Microsecond, None))?;
                cast(&us, &DataType::Int64)?
            }
        };
        for value in array.as_primitive::<Int64Type>() {
            match value {
                None => values.add_null(),
                Some(number) if is_number => values.add(TextShape::Integer(number)),
                Some(us) => values.add_time(us),
            }
        }
    }
    Ok(())
}

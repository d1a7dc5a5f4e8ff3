//! The columns of a table in a file or a stream that has a schema of its own: Parquet, Arrow IPC.
//!
//! A column is found by its name: as declared, or else whatever the case. Its type in the file must
//! be the declared type, or a type whose values all fit the declared type.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Fields, Schema, SchemaRef};
use arrow::error::ArrowError;
use millstream_contract::decoding::{TOO_MUCH_HELP, exceeded};
use millstream_contract::settings::closest;
use millstream_contract::table::Places;
use millstream_contract::wording::counted;
use millstream_contract::{Error, Result};

use crate::conform::{self, PART_OF_DAY, conform, conformed, may_hold, widens};
use crate::input::Name;
use crate::types::sql_name;

/// Names that a message shows.
const SHOWN_MAX: usize = 12;

/// Columns to be read, with their conversions.
#[derive(Debug)]
pub(crate) struct Columns {
    path: Name,
    /// The projected columns of the table.
    schema: SchemaRef,
    /// By projected column, where it stands among `read`.
    slots: Vec<usize>,
    /// The columns of the file that are needed, ascending.
    read: Vec<usize>,
    /// The projected columns that may be dictionaries.
    dictionaries: Vec<usize>,
}

impl Columns {
    /// Finds the projected columns of `schema` among those of a file.
    pub(crate) fn find(
        path: &Name,
        schema: &SchemaRef,
        projection: &[usize],
        file: &Fields,
    ) -> Result<Columns> {
        let schema = Arc::new(schema.project(projection)?);
        let found: Vec<usize> = schema
            .fields()
            .iter()
            .map(|declared| {
                let index = index_of(path, declared.name(), file)?;
                check_type(path, declared, &file[index])?;
                Ok(index)
            })
            .collect::<Result<_>>()?;
        let mut read = found.clone();
        read.sort_unstable();
        read.dedup();
        let slots = found.iter().map(|index| read.partition_point(|read| read < index)).collect();
        Ok(Columns { path: path.clone(), schema, slots, read, dictionaries: Vec::new() })
    }

    /// The same; these projected columns, which are texts, may be dictionaries.
    pub(crate) fn with_dictionaries(self, dictionaries: &[usize]) -> Columns {
        Columns { dictionaries: dictionaries.to_vec(), ..self }
    }

    /// The columns of the file that are needed, ascending.
    pub(crate) fn read(&self) -> &[usize] {
        &self.read
    }

    /// Where a projected column stands in the file, and its type in the table.
    pub(crate) fn source_of(&self, projected: usize) -> Option<(usize, &DataType)> {
        let file = *self.read.get(*self.slots.get(projected)?)?;
        Some((file, self.schema.fields().get(projected)?.data_type()))
    }

    /// The projected columns.
    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The batch of what was read: an array for each of [`Columns::read`]. `place` is where they
    /// stand in the file, and `first_row` the number of their first row there, from 0.
    pub(crate) fn batch(&self, arrays: &[ArrayRef], rows: usize, at: &Span) -> Result<RecordBatch> {
        let fields = self.schema.fields();
        let columns = fields.iter().zip(&self.slots).enumerate().map(|(place, (field, slot))| {
            let Some(array) = arrays.get(*slot).filter(|array| array.len() == rows) else {
                let expected = counted(rows as u64, "value");
                let message = format!("expected {expected} of column '{}'", field.name());
                return Err(damaged(&at.prefix, message));
            };
            let kept = self.dictionaries.contains(&place).then(|| dictionary(array)).flatten();
            let conformed = kept.map_or_else(|| conform(array, field.data_type()), Ok);
            let column = conformed.map_err(|error| Error::Data {
                place: at.prefix.to_string(),
                message: format!("column '{}': {}", field.name(), said(&error)),
                help: match (said(&error) == PART_OF_DAY, exceeded()) {
                    (true, _) => "write the file again with the column as a timestamp".into(),
                    (false, Some(_)) => TOO_MUCH_HELP.into(),
                    (false, None) => {
                        "declare the column with the type that it has in the file".into()
                    }
                },
            })?;
            match column.logical_nulls().filter(|_| !field.is_nullable()) {
                Some(nulls) if nulls.null_count() > 0 => {
                    let row = (0..rows).find(|row| nulls.is_null(*row)).unwrap_or(0);
                    Err(Error::Data {
                        place: at.place(row),
                        message: format!("column '{}' is NOT NULL, found NULL", field.name()),
                        help: "declare the column without NOT NULL".into(),
                    })
                }
                _ => Ok(column),
            }
        });
        let columns: Vec<ArrayRef> = columns.collect::<Result<_>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(self.schema_of(&columns), columns, &options)
            .map_err(|error| damaged(&at.prefix, error.to_string()))
    }

    /// The schema of these columns, of which some may be dictionaries.
    fn schema_of(&self, columns: &[ArrayRef]) -> SchemaRef {
        let mut fields = self.schema.fields().to_vec();
        for place in &self.dictionaries {
            if let (Some(field), Some(column)) = (fields.get_mut(*place), columns.get(*place)) {
                let data_type = column.data_type().clone();
                *field = Arc::new(field.as_ref().clone().with_data_type(data_type));
            }
        }
        if self.dictionaries.is_empty() {
            self.schema.clone()
        } else {
            Arc::new(Schema::new(fields))
        }
    }

    /// For messages.
    pub(crate) fn path(&self) -> &Name {
        &self.path
    }
}

/// Text of an error without its kind.
fn said(error: &ArrowError) -> String {
    match error {
        ArrowError::InvalidArgumentError(text)
        | ArrowError::SchemaError(text)
        | ArrowError::CastError(text)
        | ArrowError::ComputeError(text) => text.clone(),
        other => other.to_string(),
    }
}

/// How texts are kept that come as dictionaries.
pub(crate) fn text_dictionary() -> DataType {
    DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8))
}

/// The dictionary of texts that a column is, if it is worth keeping: with fewer values than rows,
/// none of which is NULL.
fn dictionary(array: &ArrayRef) -> Option<ArrayRef> {
    let values = array.as_any_dictionary_opt()?.values();
    let is_text = conformed(values.data_type()) == Some(DataType::Utf8);
    if !is_text || values.len() >= array.len() || values.null_count() > 0 {
        return None;
    }
    cast(array, &text_dictionary()).ok()
}

/// A file that is not as its format has it, or of which too much would have to be decoded at once.
pub(crate) fn damaged(place: &str, message: impl Into<String>) -> Error {
    let (message, help) = match exceeded() {
        Some(too_much) => (too_much.to_string(), TOO_MUCH_HELP),
        None => {
            let help = "it is damaged or was cut off: get it again from where it came from";
            (message.into(), help)
        }
    };
    Error::Data { place: place.to_string(), message, help: help.into() }
}

fn index_of(path: &Name, name: &str, file: &Fields) -> Result<usize> {
    let place = || path.to_string();
    match conform::index_of(name, file) {
        Ok(index) => Ok(index),
        Err(0) => {
            let names = file.iter().map(|field| field.name().as_str());
            let meant = closest(name, names)
                .map_or(String::new(), |meant| format!("did you mean '{meant}'? "));
            Err(Error::Data {
                place: place(),
                message: format!("there is no column '{name}'"),
                help: format!("{meant}its columns are {}", listed(file)),
            })
        }
        Err(count) => Err(Error::Data {
            place: place(),
            message: format!("there are {count} columns '{name}'"),
            help: "a column is found by its name: write each with a name of its own".into(),
        }),
    }
}

/// Some names of columns.
fn listed(fields: &Fields) -> String {
    let shown: Vec<&str> =
        fields.iter().take(SHOWN_MAX).map(|field| field.name().as_str()).collect();
    let more = fields.len() - shown.len();
    match (shown.is_empty(), more) {
        (true, _) => "none".to_string(),
        (false, 0) => shown.join(", "),
        (false, more) => format!("{} and {more} more", shown.join(", ")),
    }
}

fn check_type(path: &Name, declared: &Field, file: &Field) -> Result<()> {
    let (name, place) = (declared.name(), path.to_string());
    let Some(has) = conformed(file.data_type()) else {
        return Err(Error::Data {
            place,
            message: format!(
                "column '{name}' comes as {}, for which SQL has no type",
                file.data_type()
            ),
            help: "leave the column out of CREATE TABLE, or write it as another type".into(),
        });
    };
    if may_hold(&has, declared.data_type()) {
        return Ok(());
    }
    // What is inferred may be declared so, too.
    let wider = if widens(declared.data_type(), &has) { ", which is wider" } else { "" };
    let has = sql_name(&has);
    let wants = sql_name(declared.data_type());
    Err(Error::Data {
        place,
        message: format!("column '{name}' is declared as {wants}, but comes as {has}{wider}"),
        help: format!("write {name} {has} in CREATE TABLE, and CAST it where it is used"),
    })
}

/// The schema of a file's columns as tables know it; columns of other types are left out, and
/// named.
pub(crate) fn schema_of(fields: &Fields) -> (Schema, Vec<(String, DataType)>) {
    let (mut known, mut unknown) = (Vec::new(), Vec::new());
    for field in fields {
        match conformed(field.data_type()) {
            Some(data_type) => known.push(Field::new(field.name(), data_type, field.is_nullable())),
            None => unknown.push((field.name().clone(), field.data_type().clone())),
        }
    }
    (Schema::new(known), unknown)
}

/// Where the rows of a batch stand: consecutive ones of a file, or of a part of it.
#[derive(Debug, Clone)]
pub(crate) struct Span {
    /// For example `events.parquet`, or `events.arrow, batch 3`.
    pub(crate) prefix: Arc<str>,
    /// The number there of the first, from 0.
    pub(crate) first: u64,
    /// How many rows of the file come before those that are numbered so.
    pub(crate) before: u64,
}

impl Places for Span {
    fn place(&self, row: usize) -> String {
        format!("{}, row {}", self.prefix, self.first.saturating_add(row as u64).saturating_add(1))
    }

    fn offset(&self, row: usize) -> Option<u64> {
        Some(self.before.saturating_add(self.first).saturating_add(row as u64))
    }

    fn bytes(&self) -> usize {
        size_of::<Span>()
    }
}

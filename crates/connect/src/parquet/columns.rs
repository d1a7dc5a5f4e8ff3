//! The columns of a table among those of a file, and from their types to those of the table.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Schema, SchemaRef, TimeUnit};
use millstream_contract::settings::closest;
use millstream_contract::{Error, Result};

use crate::types::sql_name;

/// The projected columns.
#[derive(Debug)]
pub(super) struct Columns {
    /// Of the table.
    schema: SchemaRef,
    /// By column, which one of the file.
    roots: Vec<usize>,
}

/// Bytes that a text is taken for.
const TEXT_BYTES: usize = 32;

impl Columns {
    /// Finds the columns of `projection` in a file.
    pub(super) fn find(
        path: &str,
        file: &Schema,
        table: &SchemaRef,
        projection: &[usize],
    ) -> Result<Columns> {
        let schema = table.project(projection).map_err(|e| Error::Internal(e.to_string()))?;
        let mut roots = Vec::with_capacity(projection.len());
        for field in schema.fields() {
            let name = field.name();
            let same = file.fields().iter().position(|found| found.name() == name);
            let found = same.or_else(|| {
                let lower = name.to_lowercase();
                file.fields().iter().position(|found| found.name().to_lowercase() == lower)
            });
            let Some(found) = found else {
                return Err(missing(path, name, file));
            };
            let found_type = file.field(found).data_type();
            if !holds(field.data_type(), found_type) {
                return Err(Error::Data {
                    place: path.to_string(),
                    message: format!(
                        "column '{name}' is declared {}, and the file has {}",
                        sql_name(field.data_type()),
                        sql_name(found_type)
                    ),
                    help: format!("declare it {}", sql_name(found_type)),
                });
            }
            roots.push(found);
        }
        Ok(Columns { schema: Arc::new(schema), roots })
    }

    /// Columns of the file.
    pub(super) fn roots(&self) -> Vec<usize> {
        self.roots.clone()
    }

    /// About what a row takes once it is decoded.
    pub(super) fn row_bytes(&self) -> usize {
        let bytes = |data_type: &DataType| data_type.primitive_width().unwrap_or(TEXT_BYTES);
        self.schema.fields().iter().map(|field| bytes(field.data_type())).sum::<usize>().max(1)
    }

    /// What has been read, in the order and the types of the table.
    pub(super) fn conform(&self, place: &str, batch: &RecordBatch) -> Result<RecordBatch> {
        // What is read has each column of the file once, in the file's order.
        let mut read = self.roots.clone();
        read.sort_unstable();
        read.dedup();
        let wrong = |message: String| Error::Data {
            place: place.to_string(),
            message,
            help: String::new(),
        };
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(self.roots.len());
        let options = CastOptions { safe: false, ..CastOptions::default() };
        for (field, root) in self.schema.fields().iter().zip(&self.roots) {
            let at = read.binary_search(root).unwrap_or(0);
            let Some(column) = batch.columns().get(at) else {
                return Err(Error::Internal("a column that was not read".into()));
            };
            let cast = cast_with_options(column, field.data_type(), &options);
            let column =
                cast.map_err(|error| wrong(format!("column '{}': {error}", field.name())))?;
            if !field.is_nullable() && column.null_count() > 0 {
                return Err(wrong(format!("column '{}' is NOT NULL, found NULL", field.name())));
            }
            columns.push(column);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)
            .map_err(|error| Error::Internal(error.to_string()))
    }
}

fn missing(path: &str, name: &str, file: &Schema) -> Error {
    let names = || file.fields().iter().map(|field| field.name().as_str());
    let help = match closest(name, names()) {
        Some(similar) => format!("did you mean '{similar}'?"),
        None => {
            let shown: Vec<&str> = names().take(20).collect();
            format!("its columns are {}", shown.join(", "))
        }
    };
    Error::Data {
        place: path.to_string(),
        message: format!("the file has no column '{name}'"),
        help,
    }
}

/// Whether a column of the first type holds every value of the second.
fn holds(declared: &DataType, found: &DataType) -> bool {
    use DataType as D;
    let bits = |data_type: &DataType| match data_type {
        D::Int8 => Some((8, true)),
        D::Int16 => Some((16, true)),
        D::Int32 => Some((32, true)),
        D::Int64 => Some((64, true)),
        D::UInt8 => Some((8, false)),
        D::UInt16 => Some((16, false)),
        D::UInt32 => Some((32, false)),
        D::UInt64 => Some((64, false)),
        _ => None,
    };
    if let (Some((wide, signed)), Some((narrow, of_signed))) = (bits(declared), bits(found)) {
        return match (signed, of_signed) {
            (true, false) => wide > narrow,
            (false, true) => false,
            _ => wide >= narrow,
        };
    }
    let digits = |unit: &TimeUnit| match unit {
        TimeUnit::Second => 0,
        TimeUnit::Millisecond => 3,
        TimeUnit::Microsecond => 6,
        TimeUnit::Nanosecond => 9,
    };
    match (declared, found) {
        (D::Utf8, D::Utf8 | D::LargeUtf8 | D::Utf8View) => true,
        (D::Binary, D::Binary | D::LargeBinary | D::BinaryView | D::FixedSizeBinary(_)) => true,
        (D::Float64, D::Float32) => true,
        (D::Timestamp(unit, _), D::Timestamp(of, _)) => digits(unit) >= digits(of),
        (D::Decimal128(precision, scale), D::Decimal128(of, of_scale)) => {
            scale == of_scale && precision >= of
        }
        (declared, found) => declared == found,
    }
}

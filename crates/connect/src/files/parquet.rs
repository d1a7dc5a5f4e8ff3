//! Parquet files. Rows wait until there are enough for a row group, encoded already.
//!
//! Parquet has no seconds: such times are written in milliseconds.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, SchemaRef, TimeUnit};
use millstream_contract::{Error, Result};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;

use super::encode::Encoder;
use super::output::Output;

/// The options of the format.
#[derive(Debug, Clone, Copy)]
pub(super) struct ParquetOptions {
    pub(super) compression: Compression,
    /// Of a row group, encoded.
    pub(super) group_bytes: u64,
}

pub(super) struct ParquetEncoder {
    writer: ArrowWriter<Output>,
    schema: SchemaRef,
    group_bytes: u64,
    output: Output,
}

impl ParquetEncoder {
    pub(super) fn new(
        options: &ParquetOptions,
        schema: &SchemaRef,
        output: Output,
    ) -> Result<ParquetEncoder> {
        let properties = WriterProperties::builder()
            .set_compression(options.compression)
            .set_created_by(concat!("millstream ", env!("CARGO_PKG_VERSION")).into())
            .build();
        let fields: Vec<FieldRef> = schema.fields().iter().map(conformed).collect();
        let schema = Arc::new(Schema::new(fields));
        let writer = ArrowWriter::try_new(output.clone(), schema.clone(), Some(properties))
            .map_err(|error| output.error(error))?;
        Ok(ParquetEncoder { writer, schema, group_bytes: options.group_bytes, output })
    }

    fn conform(&self, rows: &RecordBatch) -> Result<RecordBatch> {
        if rows.schema_ref().fields() == self.schema.fields() {
            return Ok(rows.clone());
        }
        // A value that does not fit is an error, not NULL.
        let options = CastOptions { safe: false, ..CastOptions::default() };
        let fields = self.schema.fields().iter().zip(rows.columns());
        let columns = fields.map(|(field, column)| {
            match column.data_type() == field.data_type() {
                true => Ok(column.clone()),
                false => cast_with_options(column, field.data_type(), &options),
            }
            .map_err(|error| self.output.error(format!("column '{}': {error}", field.name())))
        });
        RecordBatch::try_new(self.schema.clone(), columns.collect::<Result<_>>()?)
            .map_err(|error| Error::Internal(error.to_string()))
    }
}

impl Encoder for ParquetEncoder {
    fn write(&mut self, rows: &RecordBatch) -> Result<()> {
        let rows = self.conform(rows)?;
        self.writer.write(&rows).map_err(|error| self.output.error(error))?;
        match self.writer.in_progress_size() as u64 >= self.group_bytes {
            true => self.relieve(),
            false => Ok(()),
        }
    }

    fn bytes(&self) -> u64 {
        (self.writer.bytes_written() + self.writer.in_progress_size()) as u64
    }

    fn held(&self) -> usize {
        self.writer.memory_size()
    }

    fn relieve(&mut self) -> Result<()> {
        self.writer.flush().map_err(|error| self.output.error(error))
    }

    fn finish(&mut self) -> Result<()> {
        self.writer.finish().map(drop).map_err(|error| self.output.error(error))
    }
}

/// The column as Parquet has it, also within other columns.
fn conformed(field: &FieldRef) -> FieldRef {
    let data_type = match field.data_type() {
        DataType::Timestamp(TimeUnit::Second, zone) => {
            DataType::Timestamp(TimeUnit::Millisecond, zone.clone())
        }
        DataType::Time32(TimeUnit::Second) => DataType::Time32(TimeUnit::Millisecond),
        DataType::List(inner) => DataType::List(conformed(inner)),
        DataType::Map(inner, sorted) => DataType::Map(conformed(inner), *sorted),
        DataType::Struct(fields) => {
            DataType::Struct(fields.iter().map(conformed).collect::<Fields>())
        }
        _ => return field.clone(),
    };
    Arc::new(Field::new(field.name(), data_type, field.is_nullable()))
}

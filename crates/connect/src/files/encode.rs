//! The formats of files that are written, behind one interface.

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use millstream_contract::Result;
use millstream_contract::sink::{Sink, Writers};

use super::ipc::{ArrowEncoder, ArrowOptions};
use super::output::Output;
use super::parquet::{ParquetEncoder, ParquetOptions};
use crate::text::{Format, TextOptions, TextSink};

/// How rows become the bytes of a file.
#[derive(Debug, Clone)]
pub(super) enum Encoding {
    Text(Format, TextOptions),
    Parquet(ParquetOptions),
    Arrow(ArrowOptions),
}

/// Writes rows to one file.
pub(super) trait Encoder: Send {
    fn write(&mut self, rows: &RecordBatch) -> Result<()>;
    /// Writes what can be read before the file is complete, if the format has such a thing.
    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
    /// About how long the file would be if it ended here.
    fn bytes(&self) -> u64;
    /// Bytes of memory that rows take which have not been written.
    fn held(&self) -> usize {
        0
    }
    /// Writes rows that are held, so that less memory is used.
    fn relieve(&mut self) -> Result<()> {
        Ok(())
    }
    /// Writes the rest, and what stands at the end of a file.
    fn finish(&mut self) -> Result<()>;
}

impl Encoding {
    /// Begins a file with these columns.
    pub(super) fn open(&self, schema: &SchemaRef, output: Output) -> Result<Box<dyn Encoder>> {
        Ok(match self {
            Encoding::Text(format, options) => {
                let (place, out) = (output.place().to_string(), Box::new(output.clone()));
                let rows = TextSink::named(place, *format, out, options.clone());
                rows.open(schema, Writers::alone())?;
                Box::new(TextEncoder { rows, output })
            }
            Encoding::Parquet(options) => Box::new(ParquetEncoder::new(options, schema, output)?),
            Encoding::Arrow(options) => Box::new(ArrowEncoder::new(options, schema, output)?),
        })
    }
}

/// CSV and NDJSON.
struct TextEncoder {
    rows: TextSink,
    output: Output,
}

impl Encoder for TextEncoder {
    fn write(&mut self, rows: &RecordBatch) -> Result<()> {
        self.rows.write(0, rows, false)
    }

    fn flush(&mut self) -> Result<()> {
        self.rows.flush()
    }

    fn bytes(&self) -> u64 {
        self.output.bytes() + self.rows.buffered() as u64
    }

    fn finish(&mut self) -> Result<()> {
        self.rows.finish()
    }
}

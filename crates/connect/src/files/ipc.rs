//! Arrow IPC files ("Feather"). Rows wait until there are enough for a record batch.

use std::io::BufWriter;
use std::mem;

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::compute::concat_batches;
use arrow::datatypes::SchemaRef;
use arrow::ipc::CompressionType;
use arrow::ipc::writer::{FileWriter, IpcWriteOptions};
use millstream_contract::{Error, Result};

use super::encode::Encoder;
use super::output::Output;

/// So many rows make a batch, or so many bytes.
const BATCH_ROWS: usize = 64 << 10;
const BATCH_BYTES: usize = 4 << 20;

/// The options of the format.
#[derive(Debug, Clone, Copy)]
pub(super) struct ArrowOptions {
    pub(super) compression: Option<CompressionType>,
}

pub(super) struct ArrowEncoder {
    writer: FileWriter<BufWriter<Output>>,
    schema: SchemaRef,
    waiting: Vec<RecordBatch>,
    rows: usize,
    bytes: usize,
    output: Output,
}

impl ArrowEncoder {
    pub(super) fn new(
        options: &ArrowOptions,
        schema: &SchemaRef,
        output: Output,
    ) -> Result<ArrowEncoder> {
        let out = BufWriter::new(output.clone());
        let writer = IpcWriteOptions::default()
            .try_with_compression(options.compression)
            .and_then(|options| FileWriter::try_new_with_options(out, schema, options))
            .map_err(|error| output.error(error))?;
        let (schema, waiting) = (schema.clone(), Vec::new());
        Ok(ArrowEncoder { writer, schema, waiting, rows: 0, bytes: 0, output })
    }
}

impl Encoder for ArrowEncoder {
    fn write(&mut self, rows: &RecordBatch) -> Result<()> {
        self.rows += rows.num_rows();
        let bytes = |column: &ArrayRef| column.to_data().get_slice_memory_size().unwrap_or(0);
        self.bytes += rows.columns().iter().map(bytes).sum::<usize>();
        let rows = RecordBatch::try_new(self.schema.clone(), rows.columns().to_vec());
        self.waiting.push(rows.map_err(|error| Error::Internal(error.to_string()))?);
        match self.rows >= BATCH_ROWS || self.bytes >= BATCH_BYTES {
            true => self.relieve(),
            false => Ok(()),
        }
    }

    fn bytes(&self) -> u64 {
        self.output.bytes() + self.bytes as u64
    }

    fn held(&self) -> usize {
        self.bytes
    }

    fn relieve(&mut self) -> Result<()> {
        let waiting = mem::take(&mut self.waiting);
        (self.rows, self.bytes) = (0, 0);
        if waiting.is_empty() {
            return Ok(());
        }
        concat_batches(&self.schema, &waiting)
            .and_then(|rows| self.writer.write(&rows))
            .map_err(|error| self.output.error(error))
    }

    fn finish(&mut self) -> Result<()> {
        self.relieve()?;
        self.writer.finish().map_err(|error| self.output.error(error))
    }
}

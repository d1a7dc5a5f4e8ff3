//! Raw lines: `'format' = 'raw'`, each line is one record of a single column.
//!
//! The column is a STRING or BYTES, and has the line without its end (`\n`, or `\r\n`). An empty
//! line is a record, too. Lines may have up to 64 MiB.

use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryArray, RecordBatch, RecordBatchOptions, StringArray};
use arrow::datatypes::{DataType, SchemaRef};
use memchr::memchr;
use millstream_contract::table::Decoded;
use millstream_contract::{Error, Result};

use crate::input::Name;
use crate::records::{
    Block, Cut, Decode, Endless, Lines, RECORD_BYTES_MAX, Reader, RecordFormat, Started, cut_lines,
    place,
};

#[cfg(test)]
mod tests;

/// Lines as they are.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RawFormat;

impl RawFormat {
    /// Whether a column of this type can be read.
    pub(crate) fn supported(data_type: &DataType) -> bool {
        matches!(data_type, DataType::Utf8 | DataType::Binary)
    }
}

impl RecordFormat for RawFormat {
    fn name(&self) -> &'static str {
        "lines"
    }

    fn cut(&self, buffer: &[u8], last: bool, records_max: usize) -> Cut {
        cut_lines(buffer, last, records_max)
    }

    fn endless(&self, _buffer: &[u8], _what: Endless) -> (usize, String, &'static str) {
        let message = format!("the line is longer than {} MiB", RECORD_BYTES_MAX >> 20);
        (0, message, "this may be no file of lines")
    }

    fn start(
        &self,
        reader: &mut Reader,
        schema: &SchemaRef,
        projection: &[usize],
    ) -> Result<Started> {
        if schema.fields().len() != 1 {
            return Err(Error::Data {
                place: reader.path().to_string(),
                message: format!(
                    "a raw line is one column, and the table has {}",
                    schema.fields().len()
                ),
                help: "declare one column, of type STRING or BYTES".into(),
            });
        }
        let schema = schema.project(projection).map_err(|e| Error::Internal(e.to_string()))?;
        let plan = Plan { path: reader.path().clone(), schema: Arc::new(schema) };
        Ok(Started { decode: Arc::new(plan), remark: None })
    }
}

/// What is the same for all blocks of a split.
#[derive(Debug)]
struct Plan {
    path: Name,
    /// Of the projected columns: one or none.
    schema: SchemaRef,
}

/// The lines of a block without their ends, each with its offset.
fn lines(data: &[u8]) -> Vec<(u32, &[u8])> {
    let mut lines = Vec::new();
    let mut start = 0;
    while start < data.len() {
        let end = memchr(b'\n', &data[start..]).map_or(data.len(), |at| start + at);
        let line = &data[start..end];
        // A block is far below 4 GiB.
        lines.push((start as u32, line.strip_suffix(b"\r").unwrap_or(line)));
        start = end + 1;
    }
    lines
}

impl Decode for Plan {
    fn decode(&self, block: Block) -> Result<Decoded> {
        let lines = lines(&block.data);
        let column = |data_type: &DataType| -> Result<ArrayRef> {
            if *data_type == DataType::Binary {
                return Ok(Arc::new(BinaryArray::from_iter_values(lines.iter().map(|l| l.1))));
            }
            let text = |(start, line): &(u32, &'_ [u8])| match std::str::from_utf8(line) {
                Ok(text) => Ok(text.to_string()),
                Err(error) => {
                    let at = *start as usize + error.valid_up_to();
                    Err(Error::Data {
                        place: place(&self.path, &block.data, block.line, at),
                        message: "the line is not valid UTF-8".into(),
                        help: "declare the column BYTES, or convert the file with iconv".into(),
                    })
                }
            };
            let texts: Vec<String> = lines.iter().map(text).collect::<Result<_>>()?;
            Ok(Arc::new(StringArray::from(texts)))
        };
        let fields = self.schema.fields().iter();
        let columns = fields.map(|field| column(field.data_type())).collect::<Result<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(lines.len()));
        let batch = RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)
            .map_err(|error| Error::Internal(error.to_string()))?;
        let starts: Vec<u32> = lines.iter().map(|(start, _)| *start).collect();
        let places = Box::new(Lines::new(&self.path, &block, &starts));
        Ok(Decoded::whole(batch, Some(places)))
    }
}

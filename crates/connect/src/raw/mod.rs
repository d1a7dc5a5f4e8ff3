//! Raw lines: `'format' = 'raw'`, each line is one record of a single column.
//!
//! The column is a STRING or BYTES, and has the line without its end (`\n`, or `\r\n`). An empty
//! line is a record, too. Lines may have up to 64 MiB.

use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryBuilder, RecordBatch, RecordBatchOptions, StringBuilder};
use arrow::datatypes::{DataType, FieldRef, Schema, SchemaRef};
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

    /// What is wrong with these columns, if anything: a line is one.
    pub(crate) fn misfit(schema: &Schema) -> Option<(String, &'static str)> {
        let columns = schema.fields().len();
        (columns != 1).then(|| {
            let message = format!("a line of format 'raw' is one column, the table has {columns}");
            (message, "declare one column, of type STRING or BYTES")
        })
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

    fn is_blank(&self, _head: &[u8]) -> bool {
        false
    }

    fn start(
        &self,
        reader: &mut Reader,
        schema: &SchemaRef,
        projection: &[usize],
    ) -> Result<Started> {
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

/// Gives each line of `data` without its end, with its offset.
fn each_line(data: &[u8], mut line: impl FnMut(usize, &[u8])) {
    let mut start = 0;
    while start < data.len() {
        let end = memchr(b'\n', &data[start..]).map_or(data.len(), |at| start + at);
        let text = &data[start..end];
        line(start, text.strip_suffix(b"\r").unwrap_or(text));
        start = end + 1;
    }
}

impl Plan {
    /// The lines as a column.
    fn column(&self, block: &Block, data_type: &DataType) -> Result<ArrayRef> {
        let lines = block.lines + 1;
        if *data_type == DataType::Binary {
            let mut bytes = BinaryBuilder::with_capacity(lines, block.data.len());
            each_line(&block.data, |_, line| bytes.append_value(line));
            return Ok(Arc::new(bytes.finish()));
        }
        let text = std::str::from_utf8(&block.data).map_err(|error| Error::Data {
            place: place(&self.path, &block.data, block.line, error.valid_up_to()),
            message: "the line is not valid UTF-8".into(),
            help: "declare the column BYTES, or convert the file with iconv".into(),
        })?;
        let mut strings = StringBuilder::with_capacity(lines, text.len());
        each_line(&block.data, |start, line| {
            strings.append_value(&text[start..start + line.len()]);
        });
        Ok(Arc::new(strings.finish()))
    }
}

impl Decode for Plan {
    fn decode(&self, block: &Block) -> Result<Decoded> {
        let mut starts = Vec::with_capacity(block.lines + 1);
        // A block is far below 4 GiB.
        each_line(&block.data, |start, _| starts.push(start as u32));
        let column = |field: &FieldRef| self.column(block, field.data_type());
        let columns = self.schema.fields().iter().map(column).collect::<Result<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(starts.len()));
        let batch = RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)
            .map_err(|error| Error::Internal(error.to_string()))?;
        let places = Box::new(Lines::new(&self.path, block, &starts));
        Ok(Decoded::whole(batch, Some(places)))
    }
}

//! Raw lines: `'format' = 'raw'`, each line is one record of a single column.
//!
//! | option | default | |
//! |---|---|---|
//! | `on_error` | `fail` | `skip` leaves malformed records out; `table:NAME` inserts them there |
//!
//! The column is a STRING or BYTES, and has the line without its end (`\n`, or `\r\n`). An empty
//! line is a record, too. Lines may have up to 64 MiB. A line is malformed if it is no UTF-8 and
//! the column is a STRING; as BYTES no line is.
//!
//! A message is one record as a whole, and may also be a value of fixed width: see [`message`].

use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryBuilder, RecordBatch, RecordBatchOptions, StringBuilder};
use arrow::datatypes::{DataType, Schema, SchemaRef};
use memchr::memchr;
use millstream_contract::inferred::ON_ERROR_HELP;
use millstream_contract::table::{Decoded, LeftOut};
use millstream_contract::{Error, Result};

use self::message::RawMessages;
pub(crate) use self::message::{RAW_MESSAGE_TYPES, is_message_type};
pub(crate) use self::writer::write_raw;

use crate::input::Name;
use crate::options::{OnError, Options};
use crate::records::{
    Block, Cut, Decode, Endless, RECORD_BYTES_MAX, Reader, RecordFormat, Started, Unit, cut_lines,
};

mod message;
#[cfg(test)]
mod tests;
mod writer;

/// Lines as they are.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RawFormat {
    /// Treatment of malformed records.
    on_error: OnError,
    /// Of messages: whether the lowest byte of a number comes first.
    little_endian: bool,
}

impl RawFormat {
    /// From the options of a table.
    pub(crate) fn from_options(options: &Options<'_>) -> Result<RawFormat> {
        Ok(RawFormat { on_error: options.on_error(None)?, little_endian: false })
    }

    /// Format of messages, from the options of a table.
    pub(crate) fn of_messages(options: &Options<'_>) -> Result<RawFormat> {
        options.parsed("raw.charset", "'UTF-8'", |charset| {
            charset.eq_ignore_ascii_case("utf-8").then_some(())
        })?;
        let order = "'big-endian' or 'little-endian'";
        let little_endian = options.parsed("raw.endianness", order, |order| match order {
            "big-endian" => Some(false),
            "little-endian" => Some(true),
            _ => None,
        })?;
        let little_endian = little_endian.unwrap_or(false);
        Ok(RawFormat { little_endian, ..RawFormat::from_options(options)? })
    }

    /// Whether a column of this type can be read.
    pub(crate) fn supported(data_type: &DataType) -> bool {
        matches!(data_type, DataType::Utf8 | DataType::Binary)
    }

    /// Error if the table does not have exactly one column, for the line or message.
    pub(crate) fn misfit(schema: &Schema, unit: Unit) -> Option<(String, &'static str)> {
        let columns = schema.fields().len();
        (columns != 1).then(|| {
            let what = match unit {
                Unit::Line => "line",
                Unit::Message => "message",
            };
            let message =
                format!("a {what} of format 'raw' is one column, the table has {columns}");
            (message, "declare one column, of type STRING or BYTES")
        })
    }
}

impl RecordFormat for RawFormat {
    fn name(&self) -> &'static str {
        "lines"
    }

    fn on_error(&self) -> OnError {
        self.on_error
    }

    fn cut(&self, buffer: &[u8], last: bool, records_max: usize) -> Cut {
        cut_lines(buffer, last, records_max)
    }

    fn endless(&self, _buffer: &[u8], _what: Endless) -> (usize, String, String) {
        let message = format!("the line is longer than {} MiB", RECORD_BYTES_MAX >> 20);
        (0, message, format!("this may be no file of lines; {ON_ERROR_HELP} such a line out"))
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
        let path = reader.path().clone();
        let plan = RawPlan { path, schema: Arc::new(schema), on_error: self.on_error };
        Ok(Started { decode: Arc::new(plan), remark: None })
    }

    fn messages(
        &self,
        source: &Name,
        schema: &SchemaRef,
        projection: &[usize],
    ) -> Result<Arc<dyn Decode>> {
        let schema = schema.project(projection).map_err(|e| Error::Internal(e.to_string()))?;
        Ok(Arc::new(RawMessages::new(source, schema, self.on_error, self.little_endian)))
    }
}

/// Plan common to all blocks of a split.
#[derive(Debug)]
struct RawPlan {
    path: Name,
    /// Of the projected columns: one or none.
    schema: SchemaRef,
    on_error: OnError,
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

/// Number of lines left out, and the first of them.
#[derive(Default)]
struct SkippedLines {
    lines: u64,
    first: Option<LeftOut>,
}

impl RawPlan {
    /// The lines as they are.
    fn bytes(&self, block: &Block, starts: &mut Vec<u32>) -> ArrayRef {
        let mut bytes = BinaryBuilder::with_capacity(block.lines + 1, block.data.len());
        each_line(&block.data, |start, line| {
            starts.push(start as u32);
            bytes.append_value(line);
        });
        Arc::new(bytes.finish())
    }

    /// The lines as text.
    fn texts(&self, block: &Block, starts: &mut Vec<u32>) -> Result<(ArrayRef, SkippedLines)> {
        let data = &block.data;
        let (mut strings, mut wrong) =
            (StringBuilder::with_capacity(block.lines + 1, data.len()), SkippedLines::default());
        let error = match simdutf8::compat::from_utf8(data) {
            Ok(text) => {
                each_line(data, |start, line| {
                    starts.push(start as u32);
                    strings.append_value(&text[start..start + line.len()]);
                });
                return Ok((Arc::new(strings.finish()), wrong));
            }
            Err(error) => error,
        };
        let message = "the line is not valid UTF-8";
        let place = |at| block.place(&self.path, at);
        if self.on_error == OnError::Fail {
            return Err(Error::Data {
                place: place(error.valid_up_to()),
                message: message.into(),
                help: "declare the column BYTES, or convert the file with iconv; 'on_error' = \
                       'skip' leaves such lines out, and 'table:NAME' keeps them"
                    .into(),
            });
        }
        each_line(data, |start, line| match simdutf8::compat::from_utf8(line) {
            Ok(text) => {
                starts.push(start as u32);
                strings.append_value(text);
            }
            Err(error) => {
                wrong.lines += 1;
                wrong.first.get_or_insert_with(|| LeftOut {
                    place: place(start + error.valid_up_to()),
                    message: message.into(),
                    before: starts.len(),
                });
            }
        });
        Ok((Arc::new(strings.finish()), wrong))
    }
}

impl Decode for RawPlan {
    fn decode(&self, block: &Block) -> Result<Decoded> {
        // A block is far below 4 GiB.
        let mut starts = Vec::with_capacity(block.lines + 1);
        let (columns, wrong) = match self.schema.fields().first().map(|field| field.data_type()) {
            None => {
                each_line(&block.data, |start, _| starts.push(start as u32));
                (Vec::new(), SkippedLines::default())
            }
            Some(DataType::Binary) => {
                (vec![self.bytes(block, &mut starts)], SkippedLines::default())
            }
            Some(_) => {
                let (texts, wrong) = self.texts(block, &mut starts)?;
                (vec![texts], wrong)
            }
        };
        let options = RecordBatchOptions::new().with_row_count(Some(starts.len()));
        let batch = RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)
            .map_err(|error| Error::Internal(error.to_string()))?;
        let places = block.places(&self.path, &starts);
        let SkippedLines { lines: left_out, first: first_left_out } = wrong;
        Ok(Decoded { left_out, first_left_out, ..Decoded::whole(batch, Some(places)) })
    }
}

//! Result rows as text: a table for people, CSV or JSON for programs.

mod csv;
mod json;
mod ndjson;
mod nested;
#[cfg(test)]
mod nested_tests;
mod table;
#[cfg(test)]
mod tests;
mod value;

use std::fmt;
use std::io::{self, Write};
use std::str::FromStr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::util::display::FormatOptions;
use millstream_contract::settings::closest;
use millstream_contract::sink::{Prepared, RowOrder, Sink, Writers};
use millstream_contract::{Error, Result};

pub(crate) use self::csv::{PLAIN, Style as CsvStyle};
pub(crate) use self::ndjson::{keys as json_keys, write_rows as write_json};
use self::table::TableWriter;
pub(crate) use self::value::Cells;

/// Bytes that may wait for more rows before they are written.
const BUFFER_BYTES: usize = 64 << 10;

/// Rows that are formatted before the buffer is looked at.
const SLICE_ROWS: usize = 1_024;

/// How rows look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// A table with borders, for people.
    Table,
    /// RFC 4180 with a header line.
    Csv,
    /// One JSON object per line.
    Ndjson,
}

impl Format {
    /// The formats' names, as parsed by [`FromStr`].
    pub const NAMES: [&str; 3] = ["table", "csv", "ndjson"];
}

impl FromStr for Format {
    type Err = String;

    /// The error says what is expected.
    fn from_str(text: &str) -> std::result::Result<Format, String> {
        let lower = text.to_ascii_lowercase();
        match lower.as_str() {
            "table" => Ok(Format::Table),
            "csv" => Ok(Format::Csv),
            "ndjson" | "jsonl" | "json" => Ok(Format::Ndjson),
            _ => Err(match closest(&lower, Format::NAMES.into_iter()) {
                Some(name) => format!("did you mean '{name}'?"),
                None => format!("the formats are {}", Format::NAMES.join(", ")),
            }),
        }
    }
}

/// Properties of a [`TextSink`]'s output.
#[derive(Debug, Clone, Default)]
pub struct TextOptions {
    /// Columns of the terminal: a table is made to fit. `None` (no terminal): nothing is cut off.
    pub width: Option<u16>,
    /// A table has a line for each value.
    pub expanded: bool,
    /// CSV without its header line.
    pub without_header: bool,
    /// CSV: the character between fields; `None`: a comma.
    pub delimiter: Option<u8>,
    /// CSV: the character around fields; `None`: a double quote.
    pub quote: Option<u8>,
    /// CSV: what NULL is; `None`: an empty field.
    pub null_literal: Option<String>,
}

/// Writes rows as text, in an order that does not depend on the number of workers.
///
/// ```
/// use std::sync::Arc;
/// use arrow::array::{Int64Array, RecordBatch};
/// use millstream_connect::{Format, TextOptions, TextSink};
/// use millstream_contract::sink::{Sink, Writers};
///
/// let column = Arc::new(Int64Array::from(vec![1, 2])) as _;
/// let batch = RecordBatch::try_from_iter([("id", column)]).unwrap();
/// let sink = TextSink::new(Format::Csv, Box::new(std::io::stdout()), TextOptions::default());
/// sink.open(&batch.schema(), Writers::alone()).unwrap();
/// sink.write(0, &batch, true).unwrap();
/// sink.finish().unwrap();
/// ```
pub struct TextSink {
    format: Format,
    options: TextOptions,
    inner: Mutex<SinkState>,
}

/// Name of the output in messages.
const OUTPUT: &str = "the output";

struct SinkState {
    /// For messages.
    place: String,
    out: Box<dyn Write + Send>,
    /// Formatted, not yet written.
    buffer: Vec<u8>,
    rows: FormatState,
    schema: Option<SchemaRef>,
    /// Whether the header has been formatted.
    started: bool,
    /// The output is gone; nothing more is written.
    closed: bool,
}

/// State of a format between batches.
enum FormatState {
    Table(TableWriter),
    Csv(csv::Style),
    Ndjson(Vec<Vec<u8>>),
}

impl TextSink {
    /// A sink that writes to `out`, which need not be buffered.
    pub fn new(format: Format, out: Box<dyn Write + Send>, options: TextOptions) -> TextSink {
        TextSink::named(OUTPUT.into(), format, out, options)
    }

    /// As [`TextSink::new`]; messages say `place` of the output.
    pub(crate) fn named(
        place: String,
        format: Format,
        out: Box<dyn Write + Send>,
        options: TextOptions,
    ) -> TextSink {
        let inner = SinkState {
            place,
            out,
            buffer: Vec::new(),
            rows: FormatState::Csv(csv::Style::new(&options)),
            schema: None,
            started: false,
            closed: false,
        };
        TextSink { format, options, inner: Mutex::new(inner) }
    }

    /// Writes what is in the buffer.
    pub(crate) fn flush(&self) -> Result<()> {
        self.lock().flush()
    }

    /// Bytes in the buffer.
    pub(crate) fn buffered(&self) -> usize {
        self.lock().buffer.len()
    }

    /// A panic elsewhere leaves at worst half a row in the buffer.
    fn lock(&self) -> MutexGuard<'_, SinkState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sink for TextSink {
    fn open(&self, schema: &SchemaRef, _writers: Writers) -> Result<()> {
        let mut inner = self.lock();
        let names = schema.fields().iter().map(|field| field.name().as_str());
        inner.rows = match self.format {
            Format::Table => FormatState::Table(TableWriter::new(schema, &self.options)),
            Format::Csv => FormatState::Csv(csv::Style::new(&self.options)),
            Format::Ndjson => FormatState::Ndjson(ndjson::keys(names)),
        };
        inner.schema = Some(schema.clone());
        inner.started = self.options.without_header;
        Ok(())
    }

    fn order(&self) -> RowOrder {
        RowOrder::Deterministic
    }

    fn write(&self, _worker: usize, rows: &RecordBatch, flush: bool) -> Result<()> {
        let mut inner = self.lock();
        for start in (0..rows.num_rows()).step_by(SLICE_ROWS) {
            let count = SLICE_ROWS.min(rows.num_rows() - start);
            inner.format(&rows.slice(start, count))?;
            if inner.buffer.len() >= BUFFER_BYTES {
                inner.write_buffer()?;
            }
        }
        if flush { inner.flush() } else { Ok(()) }
    }

    fn finish(&self) -> Result<()> {
        let mut inner = self.lock();
        inner.header();
        let SinkState { rows, buffer, .. } = &mut *inner;
        if let FormatState::Table(table) = rows {
            table.finish(buffer);
        }
        inner.flush()
    }

    /// Shows the rows of the interval, which cannot be taken back. A closed output has ended the
    /// job early, which is no failure.
    fn prepare(&self, interval: u64) -> Result<Prepared> {
        match self.lock().flush() {
            Ok(()) | Err(Error::OutputClosed) => {}
            Err(error) => return Err(error),
        }
        Ok(Prepared { interval, ..Prepared::default() })
    }
}

impl SinkState {
    /// Formats the header line, once.
    fn header(&mut self) {
        if let (FormatState::Csv(style), Some(schema), false) =
            (&self.rows, &self.schema, self.started)
        {
            let names = schema.fields().iter().map(|field| field.name().as_str());
            style.write_header(names, &mut self.buffer);
        }
        self.started = true;
    }

    fn format(&mut self, batch: &RecordBatch) -> Result<()> {
        self.header();
        let options = FormatOptions::default();
        let columns = batch
            .columns()
            .iter()
            .map(|column| Cells::new(column, &options))
            .collect::<Result<Vec<_>>>()?;
        let rows = batch.num_rows();
        match &mut self.rows {
            FormatState::Table(table) => table.write_rows(&columns, rows, &mut self.buffer),
            FormatState::Csv(style) => style.write_rows(&columns, 0..rows, &mut self.buffer),
            FormatState::Ndjson(keys) => {
                ndjson::write_rows(keys, &columns, 0..rows, &mut self.buffer)
            }
        }
        Ok(())
    }

    fn write_buffer(&mut self) -> Result<()> {
        if self.closed {
            return Err(Error::OutputClosed);
        }
        let result = self.out.write_all(&self.buffer);
        // Also after an error: the same bytes must not be written again.
        self.buffer.clear();
        self.check(result)
    }

    fn flush(&mut self) -> Result<()> {
        self.write_buffer()?;
        let result = self.out.flush();
        self.check(result)
    }

    fn check(&mut self, result: io::Result<()>) -> Result<()> {
        result.map_err(|error| {
            self.closed = true;
            match error.kind() {
                io::ErrorKind::BrokenPipe => Error::OutputClosed,
                _ => write_error(&self.place, &error),
            }
        })
    }
}

/// The system's error about an output, with advice.
pub(crate) fn write_error(place: &str, error: &io::Error) -> Error {
    let help = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "make room there, or write to another path, and start the job again"
        }
        io::ErrorKind::FileTooLarge => {
            "raise the limit of file sizes (ulimit -f), or let the job write less"
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "choose a path that this user may write to"
        }
        _ => "",
    };
    Error::Io { place: place.into(), message: error.to_string(), help: help.into() }
}

/// A job that fails does not finish its sink; the rows it gave until then are still written.
impl Drop for TextSink {
    fn drop(&mut self) {
        let inner = self.inner.get_mut().unwrap_or_else(PoisonError::into_inner);
        if !inner.closed && !inner.buffer.is_empty() {
            // Nobody is left to be told of an error.
            _ = inner.flush();
        }
    }
}

impl fmt::Debug for TextSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TextSink")
            .field("format", &self.format)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

//! CSV: `'format' = 'csv'`.
//!
//! | option | default | |
//! |---|---|---|
//! | `csv.field-delimiter` | `,` | one ASCII character; `\t` is the tabulator |
//! | `csv.quote-character` | `"` | one ASCII character |
//! | `csv.disable-quote-character` | `false` | quotes are ordinary characters |
//! | `csv.header` | `auto` | `true`: the first record names columns; `skip`: it is left out |
//! | `csv.null-literal` | | an unquoted field with this text is NULL |
//! | `csv.ignore-parse-errors` | `false` | as `'on_error' = 'skip'`: see below |
//! | `on_error` | `fail` | `skip` leaves malformed records out; `table:NAME` inserts them there |
//! | `csv.allow-comments` | `false` | lines that start with `#` are no records |
//!
//! With `auto`, the first record is the header if all declared columns are among its fields,
//! whatever their case. It is a record if it contains a value that cannot be a column's name. What
//! is neither is refused ([`header`] has the whole rule).
//!
//! With a header, columns are found by name, whatever the case, and other fields are ignored.
//! Without a header, or where it is left out, they are found by position. Each record must have as
//! many fields as the header, or as there are columns. Blank lines are skipped, unless records have
//! a single field; then they are NULL.
//!
//! **NULL**: An empty unquoted field is NULL. A quoted empty field is the empty string in a STRING
//! or BYTES column, and NULL in others. With `csv.null-literal`, an unquoted empty field is the
//! empty string in a STRING or BYTES column, too, and still NULL in others.
//!
//! **Types**: BOOLEAN is `true`, `false`, `t`, `f`, `1` or `0`. DECIMAL rounds digits beyond its
//! scale half away from zero. BYTES is base64, as in Flink. Timestamps are ISO 8601, with `T` or a
//! blank between date and time. An offset is converted to UTC; without one, the time is in UTC.
//! Digits beyond the type's precision are cut off, that is, rounded towards the past. Blanks around
//! a value are ignored, except in strings; blanks inside a timestamp are not.
//!
//! **Malformed records** end the job, or are left out with `on_error`. With that option, a quote
//! that is never closed costs only its own line. It counts as never closed if the field goes on for
//! more than 1 MiB, to the end of the file, or to a quote on a later line after which text follows.
//! Then the line in which the quote opens is skipped, and the next line is read as a record.
//!
//! A value is checked only where its column is read: an unused column may hold anything.

mod chunk;
mod cut;
mod decode;
mod dialect;
mod fuzz;
mod header;
mod index;
mod message;

use std::sync::Arc;

use arrow::array::{ArrayRef, StringArray};
use arrow::datatypes::{DataType, SchemaRef};
use memchr::memchr;
use millstream_contract::Result;
use millstream_contract::inferred::{NEVER_LEFT_OUT, ON_ERROR_HELP};

use self::chunk::{CLOSE_HELP, CsvPlan};
use self::decode::{CsvColumn, Decoder};
use self::header::CsvLayout;
use crate::input::Name;
use crate::options::{OnError, Options};
use crate::records::{Cut, Decode, Endless, RECORD_BYTES_MAX, Reader, RecordFormat, Started};

pub(crate) use self::dialect::{Dialect, Header};
pub use self::fuzz::fuzz_csv;
pub(crate) use self::header::{LONE_CR, LONE_CR_HELP, name as header_name};
pub(crate) use self::index::{Index, index};

/// CSV in one dialect.
#[derive(Debug, Clone, Default)]
pub(crate) struct CsvFormat {
    dialect: Arc<Dialect>,
}

impl CsvFormat {
    /// Format that leaves malformed records out.
    #[cfg(test)]
    pub(crate) fn skipping() -> CsvFormat {
        CsvFormat { dialect: Arc::new(Dialect { skip_errors: true, ..Dialect::default() }) }
    }

    /// From the `csv.*` options.
    pub(crate) fn from_options(options: &Options<'_>) -> Result<CsvFormat> {
        Ok(CsvFormat { dialect: Arc::new(Dialect::from_options(options)?) })
    }

    /// In this dialect.
    pub(crate) fn of(dialect: &Arc<Dialect>) -> CsvFormat {
        CsvFormat { dialect: dialect.clone() }
    }

    /// Whether a column of this type can be read.
    pub(crate) fn supported(data_type: &DataType) -> bool {
        decode::supported(data_type)
    }
}

/// A single value as a column of one row; `None` if `text` is no value of this type. A STRING is
/// taken unchanged, without quotes or NULL literals.
pub(crate) fn value(text: &[u8], data_type: &DataType) -> Result<Option<ArrayRef>> {
    if *data_type == DataType::Utf8 {
        let text = std::str::from_utf8(text).ok();
        return Ok(text.map(|text| Arc::new(StringArray::from(vec![text])) as ArrayRef));
    }
    let dialect = Dialect { quote: None, comments: false, ..Dialect::default() };
    let (found, wrong) = index(text, &dialect, Some(1), false);
    if wrong.is_some() || found.rows() != 1 {
        return Ok(None);
    }
    let (name, data_type) = (String::new(), data_type.clone());
    let column = CsvColumn { name, data_type, nullable: false, field: 0 };
    Ok(Decoder::new(text, &found, &dialect).column(&column)?.ok())
}

impl RecordFormat for CsvFormat {
    fn name(&self) -> &'static str {
        "CSV"
    }

    fn on_error(&self) -> OnError {
        match (self.dialect.skip_errors, self.dialect.keep_malformed) {
            (false, _) => OnError::Fail,
            (true, false) => OnError::Skip,
            (true, true) => OnError::Keep,
        }
    }

    fn cut(&self, buffer: &[u8], last: bool, records_max: usize) -> Cut {
        cut::cut(buffer, last, records_max, &self.dialect)
    }

    fn endless(&self, buffer: &[u8], what: Endless) -> (usize, String, String) {
        let what = match what {
            Endless::Open(at) => {
                let message = "the quote that opens here is never closed";
                return (at, message.into(), CLOSE_HELP.into());
            }
            Endless::TooLong => self.cut(buffer, true, 1),
        };
        let (at, what, help) = match what {
            // An open quote makes the record so long.
            Cut::Unterminated(at) => {
                (at, "quote that opens here is not closed within", CLOSE_HELP.to_string())
            }
            _ => {
                let help = match memchr(b'\n', buffer) {
                    None => format!("this may be no CSV file; {ON_ERROR_HELP} such a line out"),
                    Some(_) => format!("this may be no CSV file; {NEVER_LEFT_OUT}"),
                };
                (0, "record that starts here is longer than", help)
            }
        };
        (at, format!("the {what} {} MiB", RECORD_BYTES_MAX >> 20), help)
    }

    fn is_blank(&self, head: &[u8]) -> bool {
        let (found, wrong) = index(head, &self.dialect, None, false);
        wrong.is_none() && found.rows() == 0
    }

    fn start(
        &self,
        reader: &mut Reader,
        schema: &SchemaRef,
        projection: &[usize],
    ) -> Result<Started> {
        let path = reader.path().clone();
        let layout = header::read(reader, &self.dialect, schema, &path)?;
        let remark = layout.unsure.as_ref().map(|place| {
            format!(
                "{place}: read as a record; if it is a header, say so with 'csv.header' = 'true' \
                 (or 'false')"
            )
        });
        let plan = CsvPlan::new(&path, &self.dialect, schema, layout, projection)?;
        Ok(Started { decode: Arc::new(plan), remark })
    }

    fn messages(
        &self,
        source: &Name,
        schema: &SchemaRef,
        projection: &[usize],
    ) -> Result<Arc<dyn Decode>> {
        let layout = CsvLayout::by_position(schema);
        Ok(Arc::new(CsvPlan::new(source, &self.dialect, schema, layout, projection)?))
    }
}

#[cfg(test)]
mod tests;

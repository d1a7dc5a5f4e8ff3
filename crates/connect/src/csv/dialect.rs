//! The dialect of a CSV file: the `csv.*` options.

use millstream_contract::Result;

use crate::options::{OnError, Options};

/// Whether the first record names the columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Header {
    /// The first record is a header if its fields are the declared columns: see [`super::header`].
    Auto,
    Present,
    Absent,
    /// The first record is a header without meaning: columns are found by position.
    Skipped,
}

impl Header {
    /// The option `csv.header`.
    pub(crate) fn from_options(options: &Options<'_>) -> Result<Option<Header>> {
        options.parsed_or("csv.header", HEADER_FORM, HEADER_HELP, Header::parse)
    }

    /// Parses the option `csv.header`.
    pub(crate) fn parse(text: &str) -> Option<Header> {
        match text.to_ascii_lowercase().as_str() {
            "auto" => Some(Header::Auto),
            "true" => Some(Header::Present),
            "false" => Some(Header::Absent),
            "skip" => Some(Header::Skipped),
            _ => None,
        }
    }
}

/// Delimiter, quotes and what counts as NULL.
#[derive(Debug, Clone)]
pub(crate) struct Dialect {
    pub(crate) delimiter: u8,
    /// `None`: quotes are ordinary characters.
    pub(crate) quote: Option<u8>,
    pub(crate) header: Header,
    /// An unquoted field with this text is NULL. `None`: an empty one.
    pub(crate) null_literal: Option<String>,
    /// Lines that start with `#` are no records.
    pub(crate) comments: bool,
    /// Leave malformed records out instead of failing.
    pub(crate) skip_errors: bool,
    /// Keep the text of records left out.
    pub(crate) keep_malformed: bool,
    /// Maximum length of a quoted field: the field ends there, closed or not.
    pub(crate) quoted_bytes_max: usize,
    /// Values have to be held as they stand.
    pub(crate) exact: bool,
}

const HEADER_FORM: &str = "'auto', 'true', 'false' or 'skip'";
const HEADER_HELP: &str = "'true': the first line names the columns; 'false': it is a record; \
                           'skip': it is left out; 'auto': its fields show which";

/// No more than a chunk, so that rows of a pipe need not wait long for a quote that never comes.
const QUOTED_BYTES_MAX: usize = 1 << 20;

impl Default for Dialect {
    fn default() -> Self {
        Dialect {
            delimiter: b',',
            quote: Some(b'"'),
            header: Header::Auto,
            null_literal: None,
            comments: false,
            skip_errors: false,
            keep_malformed: false,
            quoted_bytes_max: QUOTED_BYTES_MAX,
            exact: false,
        }
    }
}

impl Dialect {
    /// Reads the `csv.*` options.
    pub(crate) fn from_options(options: &Options<'_>) -> Result<Dialect> {
        let header = Header::from_options(options)?;
        let on_error = options.on_error(Some("csv.ignore-parse-errors"))?;
        let quote = options.ascii_char("csv.quote-character")?.unwrap_or(b'"');
        let dialect = Dialect {
            delimiter: options.ascii_char("csv.field-delimiter")?.unwrap_or(b','),
            quote: (!options.flag("csv.disable-quote-character")?).then_some(quote),
            header: header.unwrap_or(Header::Auto),
            null_literal: options.text("csv.null-literal").map(str::to_string),
            comments: options.flag("csv.allow-comments")?,
            skip_errors: on_error != OnError::Fail,
            keep_malformed: on_error == OnError::Keep,
            quoted_bytes_max: QUOTED_BYTES_MAX,
            exact: options.exact(),
        };
        let clash = |option: &str, what: &str| {
            let message = format!("the same character is {what}");
            Err(options.error(option, message, "choose another character"))
        };
        if dialect.quote == Some(dialect.delimiter) {
            return clash("csv.quote-character", "the field delimiter");
        }
        if dialect.comments && dialect.delimiter == b'#' {
            return clash("csv.field-delimiter", "the start of a comment");
        }
        if dialect.comments && dialect.quote == Some(b'#') {
            return clash("csv.quote-character", "the start of a comment");
        }
        Ok(dialect)
    }
}

//! Formatting rows as CSV, by RFC 4180 with `\n` line ends. NULL is an empty field or the null
//! literal; the empty string is `""`. The CSV source reads back what is written here, with the same
//! options.
//!
//! A row that consists of a single NULL is an empty line, as in PostgreSQL. The source reads such a
//! line as NULL, too.

use std::ops::Range;

use super::TextOptions;
use super::value::{Cells, Class};

/// Characters around and between fields.
#[derive(Debug)]
pub(crate) struct Style {
    delimiter: u8,
    quote: u8,
    /// Text of NULL.
    null: Vec<u8>,
    /// Whether numbers and times may need quotes.
    check_all: bool,
}

impl Style {
    pub(crate) fn new(options: &TextOptions) -> Style {
        let (delimiter, quote) = (options.delimiter.unwrap_or(b','), options.quote.unwrap_or(b'"'));
        let null = options.null_literal.clone().unwrap_or_default().into_bytes();
        let check_all = !null.is_empty() || PLAIN.contains(&delimiter);
        Style { delimiter, quote, null, check_all }
    }

    /// Appends the header line.
    pub(super) fn write_header<'a>(&self, names: impl Iterator<Item = &'a str>, out: &mut Vec<u8>) {
        for (at, name) in names.enumerate() {
            if at > 0 {
                out.push(self.delimiter);
            }
            let start = out.len();
            out.extend_from_slice(name.as_bytes());
            self.quote_if_needed(start, at == 0, out);
        }
        out.push(b'\n');
    }

    /// Appends rows of a batch.
    pub(crate) fn write_rows(&self, columns: &[Cells<'_>], rows: Range<usize>, out: &mut Vec<u8>) {
        for row in rows {
            for (at, column) in columns.iter().enumerate() {
                if at > 0 {
                    out.push(self.delimiter);
                }
                if column.is_null(row) {
                    out.extend_from_slice(&self.null);
                    continue;
                }
                let start = out.len();
                column.write(row, out);
                if column.class == Class::Text || self.check_all {
                    self.quote_if_needed(start, at == 0, out);
                }
            }
            out.push(b'\n');
        }
    }

    /// Puts what was appended since `start` between quotes, if it could be misread without: as
    /// NULL, or at the start of a line as a comment or a byte order mark.
    #[inline]
    fn quote_if_needed(&self, start: usize, first: bool, out: &mut Vec<u8>) {
        let text = &out[start..];
        let special = |byte: u8| {
            byte == self.delimiter || byte == self.quote || byte == b'\n' || byte == b'\r'
        };
        if text.is_empty()
            || text.iter().any(|byte| special(*byte))
            || text == self.null
            || first && (text[0] == b'#' || text.starts_with("\u{feff}".as_bytes()))
        {
            self.put_in_quotes(start, out);
        }
    }

    fn put_in_quotes(&self, start: usize, out: &mut Vec<u8>) {
        let text = out.split_off(start);
        out.push(self.quote);
        for part in text.split_inclusive(|byte| *byte == self.quote) {
            out.extend_from_slice(part);
            if part.last() == Some(&self.quote) {
                out.push(self.quote);
            }
        }
        out.push(self.quote);
    }
}

/// Characters of numbers and times beside letters and digits.
pub(crate) const PLAIN: &[u8] = b" +-.:";

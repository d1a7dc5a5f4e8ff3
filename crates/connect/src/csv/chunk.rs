//! Decoding a chunk into a record batch, and the error messages when it cannot be decoded.

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{DataType, SchemaRef};
use arrow::error::ArrowError;
use millstream_contract::inferred::MORE_DIGITS;
use millstream_contract::table::{Decoded, LeftOut};
use millstream_contract::{Error, Result};

use super::decode::{CsvColumn, Decoder, FieldFault};
use super::dialect::Dialect;
use super::header::CsvLayout;
use super::index::{Index, Misshapen, ShapeFault, index};
use crate::number::parse_f64;
use crate::records::{Block, Decode, Unit, line, shown};
use crate::scalar::Why;
use crate::types::{integer_range, sql_name, time_help};

/// Plan common to all chunks of a split.
#[derive(Debug)]
pub(crate) struct CsvPlan {
    path: Arc<str>,
    pub(super) dialect: Arc<Dialect>,
    /// Fields per record.
    pub(super) fields: usize,
    /// Whether the fields were named by a header.
    named: bool,
    columns: Vec<CsvColumn>,
    /// Of the projected columns.
    schema: SchemaRef,
}

impl CsvPlan {
    pub(crate) fn new(
        path: &Arc<str>,
        dialect: &Arc<Dialect>,
        schema: &SchemaRef,
        layout: CsvLayout,
        projection: &[usize],
    ) -> Result<CsvPlan> {
        let projected =
            schema.project(projection).map_err(|error| Error::Internal(error.to_string()))?;
        let column = |index: &usize| {
            let field = schema.field(*index);
            CsvColumn {
                name: field.name().clone(),
                data_type: field.data_type().clone(),
                nullable: field.is_nullable(),
                field: layout.columns[*index],
            }
        };
        Ok(CsvPlan {
            path: path.clone(),
            dialect: dialect.clone(),
            fields: layout.fields,
            named: layout.named,
            columns: projection.iter().map(column).collect(),
            schema: Arc::new(projected),
        })
    }

    /// The records of a block.
    pub(crate) fn decode(&self, block: &Block) -> Result<Decoded> {
        if let Some(messages) = &block.messages {
            return self.decode_messages(block, messages);
        }
        let skip = self.dialect.skip_errors;
        let (index, wrong) = index(&block.data, &self.dialect, Some(self.fields), skip);
        Ok(self.decode_indexed(block, index, wrong)?.0)
    }

    /// The records of an index, and the offset of the first malformed one that is left out.
    pub(super) fn decode_indexed(
        &self,
        block: &Block,
        index: Index,
        wrong: Option<Misshapen>,
    ) -> Result<(Decoded, Option<usize>)> {
        let skip = self.dialect.skip_errors;
        let mut decoder = Decoder::new(&block.data, &index, &self.dialect);
        let mut arrays: Vec<ArrayRef> = Vec::with_capacity(self.columns.len());
        let mut first: Option<(usize, &CsvColumn, Why)> = None;
        for column in &self.columns {
            let fault = match decoder.column(column)? {
                Ok(array) => {
                    arrays.push(array);
                    decoder.first_skipped.take()
                }
                Err(fault) => Some(fault),
            };
            if let Some(FieldFault { row, why }) = fault {
                let at = index.field(row, column.field).0;
                if first.is_none_or(|(other, _, _)| at < other) {
                    first = Some((at, column, why));
                }
            }
        }
        let first_error = match (first, wrong) {
            (Some((at, column, why)), _) if wrong.is_none_or(|wrong| at < wrong.at) => {
                Some((at, self.field_error(block, &index, at, column, why)))
            }
            (_, Some(wrong)) => Some((wrong.at, self.shape_error(block, wrong))),
            _ => None,
        };
        let first_left_out = match first_error {
            Some((at, Error::Data { place, message, .. })) if skip => Some((at, place, message)),
            Some((_, error)) => return Err(error),
            None => None,
        };
        let (rows, misshapen) = (index.rows(), index.misshapen());
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let mut batch = RecordBatch::try_new_with_options(self.schema.clone(), arrays, &options)
            .map_err(internal)?;
        let skipped = decoder.skipped;
        let mut starts = index.into_starts();
        if !skipped.is_empty() {
            let mut keep = vec![true; rows];
            for row in skipped {
                keep[row] = false;
            }
            let mut kept = keep.iter();
            starts.retain(|_| *kept.next().unwrap_or(&true));
            batch = filter_record_batch(&batch, &BooleanArray::from(keep)).map_err(internal)?;
        }
        let left_out = (rows - batch.num_rows() + misshapen) as u64;
        let first_at = first_left_out.as_ref().map(|(at, _, _)| *at);
        let first_left_out = first_left_out.map(|(at, place, message)| {
            let before = starts.partition_point(|start| (*start as usize) < at);
            LeftOut { place, message, before }
        });
        let places = block.places(&self.path, &starts);
        let decoded = Decoded { left_out, first_left_out, ..Decoded::whole(batch, Some(places)) };
        Ok((decoded, first_at))
    }

    pub(super) fn error(&self, block: &Block, at: usize, message: String, help: String) -> Error {
        Error::Data { place: block.place(&self.path, at), message, help }
    }

    #[cold]
    pub(super) fn shape_error(&self, block: &Block, wrong: Misshapen) -> Error {
        let mib = self.dialect.quoted_bytes_max >> 20;
        let (message, help) = match wrong.what {
            ShapeFault::Fields { found, lines } => {
                let whose = if self.named { "as in the header" } else { "one for each column" };
                let s = if self.fields == 1 { "" } else { "s" };
                let mut message =
                    format!("expected {} field{s}, {whose}, found {found}", self.fields);
                let mut help = self.shape_help(block, wrong.at, found);
                if lines > 1 {
                    message += &format!(" in a record of {lines} lines");
                    help.insert_str(0, "a quote in it may never be closed; ");
                }
                (message, help)
            }
            ShapeFault::TextAfterQuote => (
                "expected a delimiter or a line end after the closing quote".into(),
                "a quote within quotes is written twice".to_string(),
            ),
            ShapeFault::TextAfterLines(lines) => {
                let close = line(&block.data, block.line, wrong.at) + lines as u64;
                (
                    format!(
                        "the quote that opens here is closed on line {close}, where text follows"
                    ),
                    format!("{CLOSE_HELP}; a quote within quotes is written twice"),
                )
            }
            ShapeFault::Unterminated => {
                let mut message = String::from("the quote that opens here is never closed");
                if self.dialect.skip_errors && block.unit() == Unit::Line {
                    message += &format!(", or not within {mib} MiB");
                }
                (message, CLOSE_HELP.into())
            }
            ShapeFault::TooLong => (
                format!("the field in quotes that starts here is longer than {mib} MiB"),
                CLOSE_HELP.into(),
            ),
        };
        self.error(block, wrong.at, message, help)
    }

    fn shape_help(&self, block: &Block, at: usize, found: usize) -> String {
        let line = block.data[at..].split(|byte| *byte == b'\n').next().unwrap_or_default();
        let other = b",;\t|".iter().copied().find(|byte| {
            *byte != self.dialect.delimiter
                && line.iter().filter(|b| *b == byte).count() + 1 == self.fields
        });
        match other {
            Some(byte) if found == 1 && self.fields > 1 => format!(
                "the fields seem to be separated by '{}'; set 'csv.field-delimiter' to it",
                char::from(byte).escape_debug()
            ),
            _ => SKIP_HELP.to_string(),
        }
    }

    #[cold]
    fn field_error(
        &self,
        block: &Block,
        index: &Index,
        at: usize,
        column: &CsvColumn,
        why: Why,
    ) -> Error {
        let end = (0..index.rows())
            .map(|row| index.field(row, column.field))
            .find(|(start, _)| *start == at)
            .map_or(at, |(_, end)| end);
        let text = &block.data[at..end];
        let wanted = sql_name(&column.data_type);
        let name = &column.name;
        let message = match why {
            Why::Null => format!("column '{name}' is NOT NULL, found an empty field"),
            Why::NotUtf8 => format!("column '{name}' is not valid UTF-8, found '{}'", shown(text)),
            Why::Malformed => {
                format!("expected {wanted} for column '{name}', found '{}'", shown(text))
            }
            Why::OutOfRange => {
                let range = integer_range(&column.data_type)
                    .map_or(String::new(), |(min, max)| format!(" ({min} to {max})"));
                let found = shown(text);
                format!(
                    "expected {wanted}{range} for column '{name}', found '{found}', \
                     which does not fit"
                )
            }
            Why::MoreDigits => {
                let found = shown(text);
                format!("expected {wanted} for column '{name}', found '{found}'{MORE_DIGITS}")
            }
        };
        let first_line = block.unit() == Unit::Line
            && block.line == 1
            && block.data[..at].iter().all(|b| *b != b'\n');
        let help = match (why, &column.data_type) {
            (Why::NotUtf8, _) if block.unit() == Unit::Message => SKIP_HELP,
            (Why::NotUtf8, _) => "convert the file, for example with iconv -f ISO-8859-1 -t UTF-8",
            (Why::Malformed, of) if let Some(help) = time_help(of, text) => help,
            (Why::Malformed, of) if integer_range(of).is_some() && parse_f64(text).is_some() => {
                "declare the column DOUBLE or DECIMAL"
            }
            (Why::Malformed, _) if first_line && !self.named => {
                "if this line is a header, set 'csv.header' = 'true'"
            }
            (Why::Malformed, DataType::Boolean) => "write true, false, t, f, 1 or 0",
            (Why::Malformed, DataType::Binary) => "write bytes in base64",
            _ => SKIP_HELP,
        };
        self.error(block, at, message, help.to_string())
    }
}

/// Advice about a quote that stays open.
pub(super) const CLOSE_HELP: &str = "close it, or set 'csv.disable-quote-character' = 'true' if \
                                     quotes are ordinary characters in this file";
pub(super) const SKIP_HELP: &str =
    "'on_error' = 'skip' leaves such records out, and 'table:NAME' keeps them";

fn internal(error: ArrowError) -> Error {
    Error::Internal(format!("a CSV batch does not fit its schema: {error}"))
}

impl Decode for CsvPlan {
    fn decode(&self, block: &Block) -> Result<Decoded> {
        CsvPlan::decode(self, block)
    }
}

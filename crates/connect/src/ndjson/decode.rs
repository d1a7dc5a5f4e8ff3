//! Decoding a block: each record goes into the columns in one pass over its bytes.
//!
//! A line is first read as one that has no faults ([`Object::read`]). If it has one, or may have,
//! the columns are cut back to where the line began, and it is read again with care, which tells
//! what is wrong with it, or which of its members are meant ([`Object::read_carefully`]).

use std::sync::{Arc, PoisonError};

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use memchr::memchr;
use millstream_contract::decoding::{
    self, TOO_MUCH_HELP, begin_record, exceeded, forget_record, value_bytes,
};
use millstream_contract::table::{Decoded, LeftOut};
use millstream_contract::{Error, Result};

use super::NdjsonFormat;
use super::column::Text;
use super::fault::{SKIP_HELP, Wrong};
use super::names::Names;
use super::object::Object;
use super::scan::{blanks, byte};
use crate::input::Name;
use crate::options::OnError;
use crate::records::{Block, Decode, Unit};

/// Members that are no columns, of which the user is told at most.
const TOLD_MAX: usize = 8;

/// Plan common to all blocks of a split.
#[derive(Debug)]
pub(super) struct Plan {
    path: Name,
    /// Of the projected columns.
    schema: SchemaRef,
    /// An empty record, and what its columns take at least.
    record: Object,
    record_bytes: u64,
    format: NdjsonFormat,
}

impl Plan {
    pub(super) fn new(
        path: &Name,
        schema: &SchemaRef,
        projection: &[usize],
        format: NdjsonFormat,
    ) -> Result<Plan> {
        // A query that names columns leaves the other members out on purpose.
        let all = projection.len() == schema.fields().len();
        let names = Names::new(schema.fields(), projection).noting(format.taken.exact && all);
        let schema = schema.project(projection).map_err(|e| Error::Internal(e.to_string()))?;
        let record = Object::new(schema.fields(), names, format.taken).ok_or_else(|| {
            Error::Internal(format!("columns that NDJSON does not have: {schema}"))
        })?;
        let record_bytes = schema.fields().iter().map(|field| value_bytes(field.data_type())).sum();
        let schema = Arc::new(schema);
        Ok(Plan { path: path.clone(), schema, record, record_bytes, format })
    }

    fn place(&self, block: &Block, at: usize) -> String {
        block.place(&self.path, at)
    }

    /// Notices about members left out of a table that the user has not declared, once for each
    /// member.
    fn notices(&self, block: &Block, columns: &Object) -> Vec<String> {
        let mut strange = Vec::new();
        columns.strange("", &mut strange);
        if strange.is_empty() {
            return Vec::new();
        }
        let mut told = self.format.told.lock().unwrap_or_else(PoisonError::into_inner);
        strange.retain(|(_, name)| told.len() < TOLD_MAX && told.insert(name.clone()));
        let last = if told.len() == TOLD_MAX { ", as further ones may be" } else { "" };
        let line = |(at, name): (usize, String)| {
            let (place, name) = (self.place(block, at), name.escape_debug());
            format!(
                "{place}: the member '{name}', which the sample does not have, is left out{last}"
            )
        };
        strange.into_iter().map(line).collect()
    }
}

/// The records of a block.
struct Records<'a> {
    data: &'a [u8],
    unit: Unit,
    columns: Object,
    /// By record, offset of its line.
    starts: Vec<u32>,
    /// Up to here all is UTF-8.
    valid: usize,
}

impl Records<'_> {
    /// Reads a line that may well have no faults. Returns the offset of the next one.
    fn read(&mut self, start: usize) -> Option<usize> {
        begin_record();
        let text = Text { data: self.data, careful: false };
        let end = self.columns.read(text, blanks(self.data, start), 0).ok()?;
        let end = blanks(self.data, end);
        let next = match byte(self.data, end) {
            b'\n' => end + 1,
            _ if end == self.data.len() => end,
            _ => return None,
        };
        (next <= self.valid).then_some(next)
    }

    /// Reads a line that may have faults. Returns the offset of the next one, and whether it was a
    /// record.
    #[cold]
    fn read_carefully(&mut self, start: usize) -> (usize, std::result::Result<bool, Wrong>) {
        self.columns.truncate(self.starts.len());
        forget_record();
        let rest = &self.data[start..];
        let line = &rest[..memchr(b'\n', rest).unwrap_or(rest.len())];
        let end = start + line.len() + 1;
        if line.trim_ascii().is_empty() {
            let blank = match self.unit {
                Unit::Line => Ok(false),
                Unit::Message => Err(Wrong::new(start, "the message is empty", SKIP_HELP)),
            };
            return (end, blank);
        }
        let read = self.columns.read_carefully(self.data, line, start, self.unit);
        if read.is_err() {
            self.columns.truncate(self.starts.len());
            forget_record();
        }
        if end > self.valid {
            self.valid = valid_from(self.data, end);
        }
        (end, read.map(|()| true).map_err(|fault| fault.wrong(self.data)))
    }
}

/// True if there is no room for a record because of the records before it.
fn is_full() -> bool {
    exceeded().is_some_and(|too_much| !too_much.of_one_record)
}

/// Up to where the bytes from `start` on are UTF-8.
fn valid_from(data: &[u8], start: usize) -> usize {
    let rest = data.get(start..).unwrap_or_default();
    match simdutf8::compat::from_utf8(rest) {
        Ok(_) => data.len(),
        Err(error) => start + error.valid_up_to(),
    }
}

impl Decode for Plan {
    fn decode(&self, block: &Block) -> Result<Decoded> {
        let lines = block.lines + 1;
        let promised = self.record_bytes.saturating_mul(lines as u64);
        decoding::take(promised).map_err(|too_much| Error::Data {
            place: self.place(block, 0),
            message: match block.unit() {
                Unit::Line => format!("{lines} lines: {too_much}"),
                Unit::Message => format!("{} messages: {too_much}", block.lines),
            },
            help: TOO_MUCH_HELP.into(),
        })?;
        let mut records = Records {
            data: &block.data,
            unit: block.unit(),
            columns: self.record.fresh(lines),
            starts: Vec::with_capacity(lines),
            valid: valid_from(&block.data, 0),
        };
        let (mut at, mut left_out, mut first_left_out) = (0, 0, None);
        while at < block.data.len() {
            let start = at;
            let quick = if self.format.careful { None } else { records.read(start) };
            let is_record = match quick {
                Some(next) => {
                    at = next;
                    true
                }
                None => {
                    let (next, read) = records.read_carefully(start);
                    at = next;
                    match read {
                        Ok(is_record) => is_record,
                        Err(wrong) if self.format.on_error != OnError::Fail && !is_full() => {
                            left_out += 1;
                            first_left_out.get_or_insert_with(|| {
                                let place = self.place(block, wrong.at);
                                let before = records.starts.len();
                                LeftOut { place, message: wrong.message, before }
                            });
                            false
                        }
                        Err(wrong) => {
                            let place = self.place(block, wrong.at);
                            let Wrong { message, help, .. } = wrong;
                            return Err(Error::Data { place, message, help });
                        }
                    }
                }
            };
            if is_record {
                // A block is far below 4 GiB.
                records.starts.push(start as u32);
            }
        }
        let Records { columns, starts, .. } = records;
        let notices = self.notices(block, &columns);
        let internal = |error: ArrowError| {
            Error::Internal(format!("an NDJSON batch does not fit its schema: {error}"))
        };
        let options = RecordBatchOptions::new().with_row_count(Some(starts.len()));
        let columns = columns.finish().map_err(internal)?;
        let batch = RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)
            .map_err(internal)?;
        let places = block.places(&self.path, &starts);
        Ok(Decoded { left_out, first_left_out, notices, ..Decoded::whole(batch, Some(places)) })
    }
}

//! Formats of consecutive records in bytes: CSV, NDJSON, lines.
//!
//! A [`Reader`] goes through the bytes and hands out [`Block`]s of whole records, cheaply and in
//! order. The format finds the end of a record ([`RecordFormat::cut`]). Decoding a block
//! ([`Decode`]) is a pure function, and runs on any worker.
//!
//! To add a format, implement these two traits in a folder of its own, and name it in
//! [`crate::source`].

mod arriving;
mod fuzz;
mod long;
mod malformed;
mod message;
mod place;
mod reader;
mod split;

use std::fmt::Debug;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use memchr::{memchr_iter, memrchr};
use millstream_contract::Result;
use millstream_contract::table::{Decoded, LeftOut};

use crate::input::Name;
use crate::options::OnError;

pub(crate) use self::arriving::{Arriving, Wanted};
pub(crate) use self::fuzz::{Outcome, read_whole};
pub(crate) use self::malformed::decode_as;
pub(crate) use self::message::MessageBounds;
pub(crate) use self::place::{line, place, shown};
pub(crate) use self::reader::{RECORD_BYTES_MAX, Reader};
pub(crate) use self::split::{Reading, RecordChunk, RecordSplit, is_virtual};

/// Whole records, as they stand in the file, or messages, each of which is a record.
#[derive(Debug, Clone)]
pub(crate) struct Block {
    pub(crate) data: Vec<u8>,
    /// Physical line on which the block starts, from 1.
    pub(crate) line: u64,
    /// Lines it holds.
    pub(crate) lines: usize,
    /// Offset in the file.
    pub(crate) offset: u64,
    /// Whether the offsets of its records are wanted ([`Lines`]).
    pub(crate) offsets: bool,
    /// Set if the block holds the beginning of a line that is too long for a record, and is left
    /// out.
    pub(crate) too_long: Option<LeftOut>,
    /// Bounds of messages; `None`: the records are from a file.
    pub(crate) messages: Option<Arc<MessageBounds>>,
}

/// Container of a record, for messages about its faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    Line,
    Message,
}

/// Where the records at the front of a buffer end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut {
    /// This many bytes are whole records.
    At(usize),
    /// Not one record is complete yet.
    More,
    /// The input ends inside the quotes opened at this offset, in the buffer's first record. Not
    /// where malformed records are left out.
    Unterminated(usize),
}

/// [`RecordFormat::cut`] where each line is a record.
pub(crate) fn cut_lines(buffer: &[u8], last: bool, records_max: usize) -> Cut {
    let unfinished = buffer.last() != Some(&b'\n');
    let lines = memchr_iter(b'\n', buffer).count();
    if lines + usize::from(last && unfinished) > records_max {
        let end = memchr_iter(b'\n', buffer).nth(records_max.saturating_sub(1));
        return end.map_or(Cut::More, |at| Cut::At(at + 1));
    }
    if last {
        return Cut::At(buffer.len());
    }
    memrchr(b'\n', buffer).map_or(Cut::More, |at| Cut::At(at + 1))
}

/// How records of a format stand in bytes. One for each table.
pub(crate) trait RecordFormat: Send + Sync + Debug {
    /// For messages, for example `CSV`.
    fn name(&self) -> &'static str;

    /// Treatment of malformed records.
    fn on_error(&self) -> OnError {
        OnError::Fail
    }

    /// Finds the end of as many whole records as the (non-empty) buffer holds, at most
    /// `records_max`, which is at least 1. The buffer starts with a record; if `last`, it ends with
    /// the input. However the same bytes are given, the records are the same.
    fn cut(&self, buffer: &[u8], last: bool, records_max: usize) -> Cut;

    /// Fault of the buffer's first record, which is longer than [`RECORD_BYTES_MAX`] or does not
    /// end with the input: offset, message, help.
    fn endless(&self, buffer: &[u8], what: Endless) -> (usize, String, String);

    /// Splits a request's body into records, in place, if the format has a form for several
    /// records: an array of objects. Bodies in a different form stay as they are.
    ///
    /// # Errors
    ///
    /// The fault of the array, as text.
    fn unwrap_array(&self, _body: &mut [u8]) -> std::result::Result<(), String> {
        Ok(())
    }

    /// True if these whole records, the first of an input, are blank: the header may still follow.
    fn is_blank(&self, head: &[u8]) -> bool {
        head.trim_ascii().is_empty()
    }

    /// Takes what stands before the first record, for example a header, and says how blocks are
    /// decoded into the columns of `projection`.
    fn start(
        &self,
        reader: &mut Reader,
        schema: &SchemaRef,
        projection: &[usize],
    ) -> Result<Started>;

    /// Decoder of blocks of messages into the columns of `projection`. `source` is their source,
    /// for messages about faults.
    fn messages(
        &self,
        source: &Name,
        schema: &SchemaRef,
        projection: &[usize],
    ) -> Result<Arc<dyn Decode>>;
}

/// Why a record has no end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Endless {
    /// The input ends in what opens at this offset.
    Open(usize),
    /// A record of more than [`RECORD_BYTES_MAX`] bytes.
    TooLong,
}

/// Results of reading the head of a file.
pub(crate) struct Started {
    pub(crate) decode: Arc<dyn Decode>,
    /// A doubtful decision, in one line for the user.
    pub(crate) remark: Option<String>,
}

/// Decodes blocks of one split.
pub(crate) trait Decode: Send + Sync + Debug {
    /// The records of a block, in their order. Pure, may run on any worker.
    fn decode(&self, block: &Block) -> Result<Decoded>;
}

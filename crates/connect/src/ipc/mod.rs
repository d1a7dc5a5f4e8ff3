//! Arrow IPC: `'format' = 'arrow'`, both as a file and as a stream.
//!
//! A file ends with a footer that says where its record batches lie ([`source`]). A stream is read
//! from front to back, from a file or from a pipe. Both consist of messages ([`message`]): a
//! schema, dictionaries, record batches, whose buffers may be compressed with lz4 or zstd. A chunk
//! is a record batch, or some rows of a large one ([`split`]).
//!
//! Columns are found by name, and have the declared type, or one whose values all fit it
//! ([`crate::columns`]). Dictionaries are unpacked when a chunk is decoded.

mod fuzz;
mod message;
mod source;
mod split;
mod stream;
#[cfg(test)]
mod tests;

use arrow::datatypes::{DataType, Schema};
use millstream_contract::Result;

pub use self::fuzz::fuzz_arrow;
pub(crate) use self::split::IpcSplit;
pub use self::stream::{ArrowBatch, ArrowMessage, ArrowMessages};

use self::source::Source;
use crate::columns;
use crate::conform::conformed;
use crate::input::{Input, Name};

/// The format.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IpcFormat;

impl IpcFormat {
    pub(crate) fn supported(data_type: &DataType) -> bool {
        conformed(data_type).as_ref() == Some(data_type)
    }
}

/// Whether bytes begin as a file does, or a stream since version 0.15.
pub(crate) fn is_start(bytes: &[u8]) -> bool {
    bytes.starts_with(source::MAGIC) || bytes.starts_with(&source::CONTINUATION.to_le_bytes())
}

/// The columns of a file as a table would declare them, and those of which SQL has no type.
pub(crate) fn schema_of(input: Input, path: Name) -> Result<(Schema, Vec<(String, DataType)>)> {
    let file = Source::open(input, path)?.schema()?;
    Ok(columns::schema_of(&file.fields))
}

//! Parquet: `'format' = 'parquet'`.
//!
//! The end of a file says where its columns lie ([`file`]), so only those that are used are read.
//! Rows are read in ranges of a row group ([`split`]), by several workers at once, each of which
//! reads and unpacks the pages it needs ([`pages`]), and begins at the first of them ([`starts`]).
//!
//! Columns are found by name, and have the declared type, or one whose values all fit it
//! ([`crate::columns`]). Dictionaries are unpacked when a chunk is decoded.
//!
//! The library that decodes pages is written for files that are well made. What it would take on
//! trust is checked before ([`thrift`], [`file`]); where it panics nevertheless, that is caught and
//! becomes an error with its place.

mod file;
mod fuzz;
mod instants;
mod pages;
mod prune;
mod split;
mod starts;
#[cfg(test)]
mod tests;
mod thrift;

use arrow::datatypes::{DataType, Schema};
use millstream_contract::Result;

pub use self::fuzz::fuzz_parquet;
pub(crate) use self::split::ParquetSplit;

use self::file::ParquetFile;
use crate::columns;
use crate::conform::conformed;
use crate::input::{Anywhere, Input, Name};

/// The format.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ParquetFormat;

impl ParquetFormat {
    pub(crate) fn supported(data_type: &DataType) -> bool {
        conformed(data_type).as_ref() == Some(data_type)
    }
}

/// Whether a file begins as one of Parquet does.
pub(crate) fn is_start(bytes: &[u8]) -> bool {
    bytes.starts_with(file::MAGIC)
}

/// The columns of a file as a table would declare them, and those of which SQL has no type.
pub(crate) fn schema_of(input: Input, path: Name) -> Result<(Schema, Vec<(String, DataType)>)> {
    let file = ParquetFile::open(Anywhere::new(input, path, "Parquet")?, false, false)?;
    Ok(columns::schema_of(&file.fields))
}

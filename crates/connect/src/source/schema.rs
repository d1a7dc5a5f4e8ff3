//! The columns of a file that has a schema of its own.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use arrow::datatypes::{DataType, Schema};
use millstream_contract::Result;

use super::OneFile;
use crate::input::{Input, Name, io_error};
use crate::{ipc, parquet};

/// What a Parquet or Arrow IPC file says of its columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileSchema {
    /// As the option `format` names it.
    pub format: &'static str,
    /// The columns that a table can have, with the types that it would declare.
    pub schema: Schema,
    /// Columns of types for which SQL has none.
    pub unknown: Vec<(String, DataType)>,
}

/// The columns of a file that is Parquet or Arrow IPC by its first bytes; `None` of any other.
///
/// # Errors
///
/// If the file cannot be read, or is damaged where its schema stands.
pub fn file_schema(path: &Path) -> Result<Option<FileSchema>> {
    let mut start = Vec::new();
    let read = File::open(path).and_then(|file| file.take(8).read_to_end(&mut start));
    read.map_err(|error| io_error(path, &error))?;
    let file = OneFile::at(path.to_path_buf());
    let (format, read): (_, fn(Input, Name) -> _) = match &start[..] {
        start if parquet::is_start(start) => ("parquet", parquet::schema_of),
        start if ipc::is_start(start) => ("arrow", ipc::schema_of),
        _ => return Ok(None),
    };
    let (schema, unknown) = read(file.input()?.0, file.name.clone())?;
    Ok(Some(FileSchema { format, schema, unknown }))
}

//! The errors in batches that are given to a loop or a verifier.

use std::fmt;

/// Why a batch cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// A column is missing or has another type than the workload's.
    Column {
        /// The column's name.
        column: String,
        /// The type it should have.
        expected: String,
        /// The type it has, or `no such column`.
        found: String,
    },
    /// A value that no answer of a workload can hold.
    Value {
        /// The column's name.
        column: String,
        /// The row within its batch, from 0.
        row: usize,
        /// The expectation and the actual value.
        message: String,
    },
    /// A batch could not be put together.
    Batch(String),
    /// No memory for a table.
    Memory {
        /// Bytes that were asked for.
        bytes: usize,
    },
}

/// The result of reading batches.
pub type Result<T> = std::result::Result<T, Error>;

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Column { column, expected, found } => write!(
                f,
                "column '{column}': expected {expected}, found {found}\n  help: name and type \
                 the query's columns as the workload's SQL text does"
            ),
            Error::Value { column, row, message } => {
                write!(f, "column '{column}', row {row}: {message}")
            }
            Error::Batch(message) => write!(f, "cannot build a batch: {message}"),
            Error::Memory { bytes } => {
                write!(f, "cannot reserve {bytes} bytes\n  help: use fewer records")
            }
        }
    }
}

impl std::error::Error for Error {}

impl From<arrow_schema::ArrowError> for Error {
    fn from(error: arrow_schema::ArrowError) -> Error {
        Error::Batch(error.to_string())
    }
}

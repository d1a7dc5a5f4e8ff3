//! Errors of declarations and of batches. An aborted transaction is a result, not an error.

use thiserror::Error;

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// A declaration that cannot be, or a batch that is too large.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Error {
    /// A key of another width.
    #[error("table '{table}' has keys of {expected} words, not of {given}")]
    KeyWords {
        /// Name of the table.
        table: String,
        /// Words of its keys.
        expected: usize,
        /// Words of the key.
        given: usize,
    },
    /// A row of another width.
    #[error("table '{table}' has rows of {expected} words, not of {given}")]
    RowWords {
        /// Name of the table.
        table: String,
        /// Words of its rows.
        expected: usize,
        /// Words of the row.
        given: usize,
    },
    /// More tables than a record's address can name.
    #[error("{given} tables; there can be {max}")]
    Tables {
        /// Number of tables.
        given: usize,
        /// The most.
        max: usize,
    },
    /// A table that is not of this store.
    #[error("table number {number}, but the store has {tables}")]
    NoTable {
        /// Number of the table.
        number: usize,
        /// Tables of the store.
        tables: usize,
    },
    /// A statement uses a later access, or an access of another loop.
    #[error(
        "program '{program}': statement {statement} uses access {used}, which is not before it \
         or is in a loop that the statement is not in"
    )]
    Use {
        /// Name of the program.
        program: String,
        /// The statement that uses.
        statement: usize,
        /// The used access.
        used: usize,
    },
    /// A loop within a loop.
    #[error("program '{program}': a loop within a loop; loop over pairs of elements instead")]
    NestedLoop {
        /// Name of the program.
        program: String,
    },
    /// More statements than an operation can name.
    #[error("program '{program}' has {given} statements; there can be {max}")]
    Statements {
        /// Name of the program.
        program: String,
        /// Number of statements.
        given: usize,
        /// The most.
        max: usize,
    },
    /// A number of workers or partitions that is out of range.
    #[error("{given} {what}; there can be 1 to {max}")]
    Count {
        /// The counted things.
        what: &'static str,
        /// The number.
        given: usize,
        /// The most.
        max: usize,
    },
    /// A program that the manager does not have.
    #[error("an event for program {number}, but there are {programs}")]
    NoProgram {
        /// Number of the program.
        number: usize,
        /// Number of programs.
        programs: usize,
    },
    /// A worker has noted as many operations as their numbers can tell apart.
    #[error("more than {max} operations of one worker between two punctuations; punctuate earlier")]
    BatchFull {
        /// The most.
        max: usize,
    },
}

//! The errors of a running job, in words that its user can act on.

use std::fmt;

use crate::wording::counted;

/// An error that ends a job (or refuses to start it).
///
/// Every variant says: the expectation, the actual value, the place, and the remedy.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// A record that cannot be read. `place` is `file:line:column` or the split and offset.
    #[error("{place}: {message}{}", Help(help))]
    Data {
        /// Where the record stands, for example `events.csv:17:3`.
        place: String,
        /// Expectation and actual value.
        message: String,
        /// Advice, or empty.
        help: String,
    },
    /// An expression failed on a value (a cast, a division by zero).
    #[error("cannot evaluate {expression}: {message}{}{}", Frame(frame), Help(help))]
    Evaluation {
        /// The expression as SQL text.
        expression: String,
        /// Message of the evaluation.
        message: String,
        /// The line of SQL with the expression underlined, as the SQL crate draws it, or empty.
        frame: String,
        /// Advice, or empty.
        help: String,
    },
    /// Expressions would make more text of a batch than one may have; fewer rows at a time would
    /// do.
    #[error("cannot evaluate {expression}: {message}{}{}", Frame(frame), Help(help))]
    TooMuchText {
        /// The expression with which it became too much, as SQL text.
        expression: String,
        /// How much it is.
        message: String,
        /// The line of SQL with the expression underlined, as the SQL crate draws it, or empty.
        frame: String,
        /// Advice.
        help: String,
    },
    /// An aggregate's final value does not fit its result type.
    #[error(
        "{aggregate} overflows: the value {value} does not fit {result_type}{}\n  help: {}",
        Frame(frame),
        wider(result_type)
    )]
    Overflow {
        /// The aggregate as SQL text.
        aggregate: String,
        /// The value, exact.
        value: String,
        /// The SQL type it should have had.
        result_type: String,
        /// The line of SQL with the aggregate underlined, as the SQL crate draws it, or empty.
        frame: String,
    },
    /// State exceeds the memory budget although nothing more can be freed.
    #[error(
        "{operator} needs more memory than it may use: its state and the next growth of it, with input \
         and output that wait, take {bytes} bytes for {} and the budget is {budget} bytes\n  \
         help: raise it with --set memory='...', {}{}",
        contents.counted(*count),
        SmallerBatch(*batch_rows),
        contents.help(*count)
    )]
    Memory {
        /// The operator, for messages.
        operator: String,
        /// All that counted when the job stopped, and what its tables would have taken next.
        bytes: u64,
        /// Contents of the operator's state.
        contents: Contents,
        /// How many keys or rows these are, over all open windows.
        count: u64,
        /// The budget in bytes.
        budget: u64,
        /// The setting `batch.rows`, if it would have fitted but for what waits in batches and the
        /// room that a whole batch of new keys takes.
        batch_rows: Option<usize>,
    },
    /// The operating system refused a read or a write.
    #[error("{place}: {message}{}", Help(help))]
    Io {
        /// The file or stream.
        place: String,
        /// Message of the system.
        message: String,
        /// Advice, or empty.
        help: String,
    },
    /// A table's options do not fit its connector.
    #[error("table '{table}', option '{option}': {message}{}", Help(help))]
    Option {
        /// The table.
        table: String,
        /// The option's key.
        option: String,
        /// Description of the mistake.
        message: String,
        /// Advice, or empty.
        help: String,
    },
    /// Another process of the job is gone, or its end of a channel has failed. The lost process
    /// itself, or the program that started it, knows the reason.
    #[error("process {process} is gone: {message}")]
    PeerLost {
        /// Its number.
        process: usize,
        /// Message of the channel.
        message: String,
    },
    /// A channel to another process does not work.
    #[error("the channel to process {process}: {message}")]
    Peer {
        /// Its number.
        process: usize,
        /// Message of the channel.
        message: String,
    },
    /// Another process of the job has failed.
    #[error("process {process}: {message}")]
    Process {
        /// Its number.
        process: usize,
        /// Message of the process or of its end.
        message: String,
    },
    /// The reader of our output has gone away (`| head`): not a failure, the job just ends.
    #[error("the output was closed")]
    OutputClosed,
    /// The job was asked to stop (Ctrl-C).
    #[error("interrupted")]
    Interrupted,
    /// A broken promise inside Millstream itself.
    #[error("internal error (please report it): {0}")]
    Internal(String),
}

impl Error {
    /// Refusal of an input that comes only once, where a job has to be resumable.
    pub fn not_resumable(place: &str) -> Error {
        Error::Io {
            place: place.to_string(),
            message: "its records come only once, so a job with checkpoints cannot read it: \
                      resumed after a crash, the job would miss records"
                .into(),
            help: "write the records to a file and read that, with 'follow' = 'true' if it grows; \
                   or keep them with 'journal' = 'DIR'; or run the job without checkpoints"
                .into(),
        }
    }

    /// Whether the error is about the contents of some records.
    pub fn is_of_records(&self) -> bool {
        matches!(self, Error::Evaluation { .. } | Error::TooMuchText { .. })
    }

    /// Message to another process about an error about records.
    pub fn to_message(&self) -> Vec<u8> {
        match self {
            Error::Evaluation { expression, message, frame, help }
            | Error::TooMuchText { expression, message, frame, help } => {
                [expression, message, frame, help].map(|part| part.replace('\0', "")).join("\0")
            }
            other => format!("\0{other}\0\0"),
        }
        .into_bytes()
    }

    /// The error in a message of [`Error::to_message`]; `None` for another message.
    pub fn of_message(message: &[u8]) -> Option<Error> {
        let mut parts = std::str::from_utf8(message).ok()?.split('\0').map(str::to_string);
        Some(Error::Evaluation {
            expression: parts.next()?,
            message: parts.next()?,
            frame: parts.next()?,
            help: parts.next()?,
        })
    }

    /// The same, of an evaluation, with the place of the record with which it failed.
    pub fn for_record(mut self, place: &str) -> Error {
        if let Error::Evaluation { message, .. } | Error::TooMuchText { message, .. } = &mut self {
            message.push_str(&format!(", for the record at {place}"));
        }
        self
    }
}

/// Advice for a result that does not fit its type.
fn wider(result_type: &str) -> &'static str {
    if result_type.starts_with("DECIMAL") {
        "if about 15 digits are enough, cast the argument: CAST(x AS DOUBLE)"
    } else {
        "cast the argument to a wider type, for example CAST(x AS DECIMAL(38, 0))"
    }
}

/// Renders as a `help:` line, or as nothing.
struct Help<'a>(&'a str);

impl fmt::Display for Help<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, "\n  help: {}", self.0) }
    }
}

/// Contents of an operator's state, as far as messages need them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contents {
    /// A row of state for each key.
    Keys,
    /// All records of each key's session.
    RecordsOfKeys,
    /// Rows of both sides of a join, until their window is over.
    RowsOfWindows,
    /// Rows of both sides of a join, until the time is over within which they may have partners.
    RowsWithinInterval,
    /// Rows of both sides of a join, until the end of the input.
    RowsOfInput,
    /// Rows of a temporal join, and the last version of each key.
    Versions,
    /// No state: rows of the result that wait until they can be written.
    Output,
}

impl Contents {
    /// So many of them.
    fn counted(self, count: u64) -> String {
        match self {
            Contents::Keys => counted(count, "key"),
            Contents::RecordsOfKeys => format!("the records of {}", counted(count, "key")),
            Contents::Output => "the rows of the result".into(),
            _ => counted(count, "row"),
        }
    }

    /// Advice for fewer rows of state.
    fn help(self, count: u64) -> &'static str {
        match self {
            Contents::Keys if count <= 1 => "or use a shorter window",
            Contents::Keys => "use a shorter window, or group by fewer keys",
            Contents::RecordsOfKeys => "use a shorter gap, or take fewer columns of the records",
            Contents::RowsOfWindows => {
                "use a shorter window, or take fewer columns or rows of its tables"
            }
            Contents::RowsWithinInterval => {
                "use a shorter interval (of the times that it compares, or join.within), or take \
                 fewer columns or rows of its tables"
            }
            Contents::RowsOfInput => {
                "say how far apart the times of two rows may be, for example with \
                 SET 'join.within' = '1 hour', or take fewer columns or rows of its tables"
            }
            Contents::Output => "give ORDER BY a LIMIT, or take fewer columns or rows",
            Contents::Versions => "or take fewer columns or versions of its tables",
        }
    }
}

/// Renders as advice on `batch.rows`, or as nothing.
struct SmallerBatch(Option<usize>);

impl fmt::Display for SmallerBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(rows) => write!(f, "use smaller batches with --set batch.rows=... (now {rows}), "),
            None => Ok(()),
        }
    }
}

/// Renders as lines of their own, or as nothing.
struct Frame<'a>(&'a str);

impl fmt::Display for Frame<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, "\n{}", self.0) }
    }
}

/// The result of anything a job does.
pub type Result<T> = std::result::Result<T, Error>;

impl From<arrow::error::ArrowError> for Error {
    fn from(error: arrow::error::ArrowError) -> Error {
        Error::Internal(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_one_key_there_are_no_fewer() {
        let text = |count: u64| {
            let (operator, contents) = ("aggregate".to_string(), Contents::Keys);
            Error::Memory { operator, bytes: 2, contents, count, budget: 1, batch_rows: None }
                .to_string()
        };
        assert!(text(2).ends_with("use a shorter window, or group by fewer keys"), "{}", text(2));
        assert!(text(1).ends_with("or use a shorter window"), "{}", text(1));
    }
}

//! The errors of an exchange.

use datafusion::arrow::error::ArrowError;
use datafusion::error::DataFusionError;

/// Result of an exchange's calls.
pub type Result<T> = std::result::Result<T, Error>;

/// Why data cannot be exchanged. In a query's error it is the source of
/// [`DataFusionError::External`].
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// A setting is impossible.
    #[error("exchange setting: {what}, not {value}")]
    Setting {
        /// The setting, and its allowed values.
        what: &'static str,
        /// The value given.
        value: u64,
    },
    /// The link to a worker could not be made.
    #[error("no link to worker {worker}: {reason}")]
    Connect {
        /// The worker's address.
        worker: String,
        /// Why.
        reason: String,
    },
    /// The link to a worker is broken: its process has ended, or cannot be reached.
    #[error("worker {worker} is lost: {reason}; run the query again when it is back")]
    Lost {
        /// The worker's address.
        worker: String,
        /// Sign of the loss.
        reason: String,
    },
    /// A worker's part of the query failed.
    #[error("worker {worker}: {reason}")]
    Worker {
        /// The worker's address.
        worker: String,
        /// Its error.
        reason: String,
    },
    /// A peer wrote something that the protocol does not allow.
    #[error("worker {worker} broke the exchange's protocol: {what}")]
    Protocol {
        /// The worker's address.
        worker: String,
        /// Description of the violation.
        what: String,
    },
    /// An endpoint failed.
    #[error(transparent)]
    Shuffle(#[from] millstream_flow::shuffle::Error),
    /// The flow of a broadcast failed.
    #[error("broadcast: {0}")]
    Flow(#[from] millstream_dfi::Error),
    /// A batch cannot be laid out, or what has arrived is no batch.
    #[error("a batch cannot be exchanged: {0}")]
    Batch(String),
}

impl From<ArrowError> for Error {
    fn from(error: ArrowError) -> Error {
        Error::Batch(error.to_string())
    }
}

impl From<Error> for DataFusionError {
    fn from(error: Error) -> DataFusionError {
        DataFusionError::External(Box::new(error))
    }
}

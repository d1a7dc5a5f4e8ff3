//! Why a figure of flows was not measured.

use millstream::program::cluster::ProcessFailure;

use super::tally::Tally;

/// Why nothing was measured.
#[derive(Debug, thiserror::Error)]
pub enum FlowFailure {
    /// An option is impossible.
    #[error("{0}")]
    Option(String),
    /// A flow failed.
    #[error(transparent)]
    Flow(#[from] millstream_dfi::Error),
    /// The fabric failed.
    #[error(transparent)]
    Fabric(#[from] millstream_fabric::Error),
    /// The system failed.
    #[error(transparent)]
    System(#[from] std::io::Error),
    /// A process has failed.
    #[error("{0}")]
    Process(ProcessFailure),
    /// The run was stopped from outside.
    #[error("the run was stopped")]
    Stopped,
    /// Nothing has moved for a while.
    #[error("nothing has moved for {0} s")]
    Stuck(u64),
    /// The received tuples differ from the sent tuples.
    #[error("the answer is wrong: expected {expected:?}, found {found:?}")]
    Answer {
        /// Count and sum of the expected tuples.
        expected: Tally,
        /// Count and sum of the received tuples.
        found: Tally,
    },
}

/// Result of a measurement of flows.
pub(crate) type FlowResult<T> = std::result::Result<T, FlowFailure>;

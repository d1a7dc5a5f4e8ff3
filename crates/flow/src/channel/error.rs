//! The errors of channels.

use millstream_fabric::{Error as FabricError, Rejected, Status};

use crate::link::Misfit;

/// Result of a channel's calls.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a channel cannot go on. Every error but [`Error::TimedOut`] is final: drop the channel.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The fabric refused a call.
    #[error("{0}")]
    Fabric(#[source] FabricError),
    /// The peer is gone, or its side of the channel has failed or been dropped early.
    #[error("the channel's other side is gone or has failed ({status:?})")]
    PeerLost {
        /// Status of the failed work request.
        status: Status,
    },
    /// The two sides do not fit together.
    #[error(
        "both sides of a channel need the same {what}: this side has {ours}, the peer {theirs}"
    )]
    Mismatch {
        /// Of what.
        what: &'static str,
        /// This side's value.
        ours: u64,
        /// The peer's value.
        theirs: u64,
    },
    /// A setting is impossible.
    #[error("channel setting: {what}, not {value}")]
    Setting {
        /// The setting, and its allowed values.
        what: &'static str,
        /// The value given.
        value: u64,
    },
    /// The peer wrote something that the protocol does not allow.
    #[error("the peer broke the channel's protocol: {what} ({found:#x})")]
    Protocol {
        /// Description of the violation.
        what: &'static str,
        /// The value found.
        found: u64,
    },
    /// More payload than a slot has room for.
    #[error("{bytes} bytes do not fit into a slot's payload of {max} bytes")]
    TooLong {
        /// Bytes given.
        bytes: usize,
        /// Bytes of a slot's payload.
        max: usize,
    },
    /// The time given was over before the peer did its part.
    #[error("timed out waiting for {what}")]
    TimedOut {
        /// The awaited event.
        what: &'static str,
    },
}

impl From<FabricError> for Error {
    fn from(error: FabricError) -> Error {
        match error {
            // The pair noticed before we did.
            FabricError::Failed => Error::PeerLost { status: Status::Flushed },
            other => Error::Fabric(other),
        }
    }
}

impl From<Misfit> for Error {
    fn from(Misfit { what, ours, theirs }: Misfit) -> Error {
        Error::Mismatch { what, ours, theirs }
    }
}

impl From<Rejected> for Error {
    fn from(rejected: Rejected) -> Error {
        rejected.reason.into()
    }
}

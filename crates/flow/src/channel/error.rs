//! The errors of channels.

use std::{error, fmt};

use millstream_fabric::{Error as FabricError, Rejected, Status};

use crate::link::Misfit;

/// Result of a channel's calls.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a channel cannot go on. Every error but [`Error::TimedOut`] is final: drop the channel.
#[derive(Debug)]
pub enum Error {
    /// The fabric refused a call.
    Fabric(FabricError),
    /// The peer is gone, or its side of the channel has failed or been dropped early.
    PeerLost {
        /// Status of the failed work request.
        status: Status,
    },
    /// The two sides do not fit together.
    Mismatch {
        /// Of what.
        what: &'static str,
        /// This side's value.
        ours: u64,
        /// The peer's value.
        theirs: u64,
    },
    /// A setting is impossible.
    Setting {
        /// The setting, and its allowed values.
        what: &'static str,
        /// The value given.
        value: u64,
    },
    /// The peer wrote something that the protocol does not allow.
    Protocol {
        /// Description of the violation.
        what: &'static str,
        /// The value found.
        found: u64,
    },
    /// More payload than a slot has room for.
    TooLong {
        /// Bytes given.
        bytes: usize,
        /// Bytes of a slot's payload.
        max: usize,
    },
    /// The time given was over before the peer did its part.
    TimedOut {
        /// The awaited event.
        what: &'static str,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Fabric(error) => error.fmt(f),
            Error::PeerLost { status } => {
                write!(f, "the channel's other side is gone or has failed ({status:?})")
            }
            Error::Mismatch { what, ours, theirs } => write!(
                f,
                "both sides of a channel need the same {what}: this side has {ours}, the peer {theirs}"
            ),
            Error::Setting { what, value } => write!(f, "channel setting: {what}, not {value}"),
            Error::Protocol { what, found } => {
                write!(f, "the peer broke the channel's protocol: {what} ({found:#x})")
            }
            Error::TooLong { bytes, max } => {
                write!(f, "{bytes} bytes do not fit into a slot's payload of {max} bytes")
            }
            Error::TimedOut { what } => write!(f, "timed out waiting for {what}"),
        }
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Error::Fabric(error) => Some(error),
            _ => None,
        }
    }
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

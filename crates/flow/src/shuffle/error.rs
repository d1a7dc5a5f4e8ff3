//! The errors of endpoints.

use std::sync::Arc;
use std::time::Duration;
use std::{error, fmt};

use millstream_fabric::{Error as FabricError, Rejected, Status};

use crate::link::Misfit;

/// Result of an endpoint's calls.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an endpoint cannot do what was asked. An error for which [`Error::is_final`] is true ends
/// the endpoint: every later call gives the same error, and its peers learn of it.
#[derive(Debug, Clone)]
pub enum Error {
    /// The fabric refused a call.
    Fabric(Arc<FabricError>),
    /// A peer is gone, or its endpoint has failed or been dropped early.
    PeerLost {
        /// Id of the peer's endpoint.
        peer: u32,
        /// Status of the failed work request.
        status: Status,
    },
    /// Of datagrams: a peer from which something was due has not been heard of for too long.
    Silent {
        /// Id of the peer's endpoint.
        peer: u32,
        /// For how long.
        time: Duration,
    },
    /// Of datagrams: messages are missing at the end of a stream. The stream has to be repeated.
    Lost {
        /// Id of the sending endpoint.
        source: u32,
        /// Messages that the source sent to this endpoint.
        sent: u64,
        /// Messages that arrived.
        received: u64,
    },
    /// Of datagrams: a message was lost in the middle of a stream; only sequence numbers tell.
    Missing {
        /// Id of the sending endpoint.
        source: u32,
        /// Sequence number of the message, from 0.
        number: u64,
    },
    /// Of datagrams: more messages arrived than were sent. The stream has to be repeated.
    Repeated {
        /// Id of the sending endpoint.
        source: u32,
        /// Messages that the source sent to this endpoint.
        sent: u64,
        /// Messages that arrived.
        received: u64,
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
        /// Which.
        name: &'static str,
        /// The value given, if it is a number.
        value: Option<u64>,
        /// The reason, and the allowed values.
        why: String,
    },
    /// There is no design of this name.
    NoSuchDesign {
        /// The name given.
        name: String,
        /// The names that there are.
        names: Vec<&'static str>,
    },
    /// There is no depth of this name.
    NoSuchDepth {
        /// The text given.
        text: String,
    },
    /// A peer wrote something that the protocol does not allow.
    Protocol {
        /// Id of the peer's endpoint.
        peer: u32,
        /// Description of the violation.
        what: &'static str,
        /// The value found.
        found: u64,
    },
    /// More payload than a buffer has room for.
    TooLong {
        /// Bytes given.
        bytes: usize,
        /// Bytes of a buffer's payload.
        max: usize,
    },
    /// A destination that does not exist, or is named twice in one call.
    Destination {
        /// Its number.
        number: usize,
        /// Destinations of the endpoint.
        count: usize,
    },
    /// The stream to this destination has ended: nothing follows `Depleted`.
    Ended {
        /// The destination's number.
        number: usize,
    },
    /// The time given was over before the peers did their part.
    TimedOut {
        /// The awaited event.
        what: &'static str,
    },
}

impl Error {
    /// Whether the endpoint has ended with this error. Other errors concern a single call.
    pub fn is_final(&self) -> bool {
        !matches!(
            self,
            Error::TimedOut { .. }
                | Error::TooLong { .. }
                | Error::Destination { .. }
                | Error::Ended { .. }
        )
    }

    /// Id of the peer's endpoint that the error is about, if it is about one.
    pub fn endpoint(&self) -> Option<u32> {
        match self {
            Error::PeerLost { peer, .. }
            | Error::Silent { peer, .. }
            | Error::Protocol { peer, .. } => Some(*peer),
            Error::Lost { source, .. }
            | Error::Missing { source, .. }
            | Error::Repeated { source, .. } => Some(*source),
            _ => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Fabric(error) => error.fmt(f),
            Error::PeerLost { peer, status } => {
                write!(f, "endpoint {peer} is gone or has failed ({status:?})")
            }
            Error::Silent { peer, time } => write!(
                f,
                "nothing was heard of endpoint {peer} for {} ms, though something was due",
                time.as_millis()
            ),
            Error::Lost { source, sent, received } => write!(
                f,
                "endpoint {source} sent {sent} datagrams and {received} arrived: the network lost \
                 some; repeat the shuffle, or use a design over reliable connections"
            ),
            Error::Missing { source, number } => write!(
                f,
                "datagram {number} of endpoint {source} was lost; repeat the shuffle, or use a \
                 design over reliable connections"
            ),
            Error::Repeated { source, sent, received } => write!(
                f,
                "endpoint {source} sent {sent} datagrams and {received} arrived: the network \
                 repeated some; repeat the shuffle with sequence numbers"
            ),
            Error::Mismatch { what, ours, theirs } => write!(
                f,
                "both sides of a shuffle need the same {what}: this side has {ours}, the peer {theirs}"
            ),
            Error::Setting { name, value: Some(value), why } => {
                write!(f, "the shuffle's {name} cannot be {value}: {why}")
            }
            Error::Setting { name, value: None, why } => write!(f, "the shuffle's {name}: {why}"),
            Error::NoSuchDesign { name, names } => {
                write!(f, "no design {name:?}; there are {}", names.join(", "))
            }
            Error::NoSuchDepth { text } => write!(
                f,
                "no depth {text:?}; there are fixed:K, bdp:BYTES_PER_S:LATENCY_NS, adaptive and \
                 adaptive:LEAST:MOST"
            ),
            Error::Protocol { peer, what, found } => {
                write!(f, "endpoint {peer} broke the shuffle's protocol: {what} ({found:#x})")
            }
            Error::TooLong { bytes, max } => {
                write!(f, "{bytes} bytes do not fit into a buffer of {max} bytes")
            }
            Error::Destination { number, count } => write!(
                f,
                "destination {number}: an endpoint of {count} destinations takes each of 0 to {} once",
                count.saturating_sub(1)
            ),
            Error::Ended { number } => {
                write!(f, "the stream to destination {number} has ended; nothing follows its end")
            }
            Error::TimedOut { what } => write!(f, "timed out waiting for {what}"),
        }
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Error::Fabric(error) => Some(&**error),
            _ => None,
        }
    }
}

impl From<FabricError> for Error {
    fn from(error: FabricError) -> Error {
        Error::Fabric(Arc::new(error))
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

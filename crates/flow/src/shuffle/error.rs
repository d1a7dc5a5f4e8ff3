//! The errors of endpoints.

use std::sync::Arc;
use std::time::Duration;

use millstream_fabric::{Error as FabricError, Rejected, Status};

use crate::link::Misfit;

/// Result of an endpoint's calls.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an endpoint cannot do what was asked. An error for which [`Error::is_final`] is true ends
/// the endpoint: every later call gives the same error, and its peers learn of it.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The fabric refused a call.
    #[error("{0}")]
    Fabric(#[source] Arc<FabricError>),
    /// A peer is gone, or its endpoint has failed or been dropped early.
    #[error("endpoint {peer} is gone or has failed ({status:?})")]
    PeerLost {
        /// Id of the peer's endpoint.
        peer: u32,
        /// Status of the failed work request.
        status: Status,
    },
    /// Of datagrams: a peer from which something was due has not been heard of for too long.
    #[error(
        "nothing was heard of endpoint {peer} for {} ms, though something was due",
        time.as_millis()
    )]
    Silent {
        /// Id of the peer's endpoint.
        peer: u32,
        /// For how long.
        time: Duration,
    },
    /// Of datagrams: messages are missing at the end of a stream. The stream has to be repeated.
    #[error(
        "endpoint {sender} sent {sent} datagrams and {received} arrived: the network lost some; \
         repeat the shuffle, or use a design over reliable connections"
    )]
    Lost {
        /// Id of the sending endpoint.
        sender: u32,
        /// Messages that the source sent to this endpoint.
        sent: u64,
        /// Messages that arrived.
        received: u64,
    },
    /// Of datagrams: a message was lost in the middle of a stream; only sequence numbers tell.
    #[error(
        "datagram {number} of endpoint {sender} was lost; repeat the shuffle, or use a design over \
         reliable connections"
    )]
    Missing {
        /// Id of the sending endpoint.
        sender: u32,
        /// Sequence number of the message, from 0.
        number: u64,
    },
    /// Of datagrams: more messages arrived than were sent. The stream has to be repeated.
    #[error(
        "endpoint {sender} sent {sent} datagrams and {received} arrived: the network repeated some; \
         repeat the shuffle with sequence numbers"
    )]
    Repeated {
        /// Id of the sending endpoint.
        sender: u32,
        /// Messages that the source sent to this endpoint.
        sent: u64,
        /// Messages that arrived.
        received: u64,
    },
    /// The two sides do not fit together.
    #[error(
        "both sides of a shuffle need the same {what}: this side has {ours}, the peer {theirs}"
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
    #[error("the shuffle's {name}{}: {why}", cannot_be(*value))]
    Setting {
        /// Which.
        name: &'static str,
        /// The value given, if it is a number.
        value: Option<u64>,
        /// The reason, and the allowed values.
        why: String,
    },
    /// There is no design of this name.
    #[error("no design {name:?}; there are {}", names.join(", "))]
    NoSuchDesign {
        /// The name given.
        name: String,
        /// The names that there are.
        names: Vec<&'static str>,
    },
    /// There is no depth of this name.
    #[error(
        "no depth {text:?}; there are fixed:K, bdp:BYTES_PER_S:LATENCY_NS, adaptive and \
         adaptive:LEAST:MOST"
    )]
    NoSuchDepth {
        /// The text given.
        text: String,
    },
    /// A peer wrote something that the protocol does not allow.
    #[error("endpoint {peer} broke the shuffle's protocol: {what} ({found:#x})")]
    Protocol {
        /// Id of the peer's endpoint.
        peer: u32,
        /// Description of the violation.
        what: &'static str,
        /// The value found.
        found: u64,
    },
    /// More payload than a buffer has room for.
    #[error("{bytes} bytes do not fit into a buffer of {max} bytes")]
    TooLong {
        /// Bytes given.
        bytes: usize,
        /// Bytes of a buffer's payload.
        max: usize,
    },
    /// A destination that does not exist, or is named twice in one call.
    #[error(
        "destination {number}: an endpoint of {count} destinations takes each of 0 to {} once",
        count.saturating_sub(1)
    )]
    Destination {
        /// Its number.
        number: usize,
        /// Destinations of the endpoint.
        count: usize,
    },
    /// The stream to this destination has ended: nothing follows `Depleted`.
    #[error("the stream to destination {number} has ended; nothing follows its end")]
    Ended {
        /// The destination's number.
        number: usize,
    },
    /// The time given was over before the peers did their part.
    #[error("timed out waiting for {what}")]
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
            Error::Lost { sender, .. }
            | Error::Missing { sender, .. }
            | Error::Repeated { sender, .. } => Some(*sender),
            _ => None,
        }
    }
}

fn cannot_be(value: Option<u64>) -> String {
    value.map_or(String::new(), |value| format!(" cannot be {value}"))
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

//! The errors of flows.

use std::sync::Arc;
use std::time::Duration;

use millstream_fabric::setup::SetupError;
use millstream_fabric::{Error as FabricError, Rejected, Status};
use millstream_flow::link::Misfit;

use crate::thread::{Peer, Role, Thread};

/// Result of a flow's calls.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a flow cannot do what was asked. After [`Error::Fabric`], [`Error::PeerLost`] and
/// [`Error::Protocol`] an endpoint has failed: each later call gives the same error, and its peers
/// get an error, too.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The fabric refused a call.
    #[error("{0}")]
    Fabric(#[source] Arc<FabricError>),
    /// A peer is gone, or its endpoint has failed or was dropped before its end.
    #[error("{peer} is gone or has failed ({status:?})")]
    PeerLost {
        /// The peer.
        peer: Peer,
        /// Status of the work request that failed.
        status: Status,
    },
    /// A peer wrote something that the protocol does not allow.
    #[error("{peer} broke the flow's protocol: {what} ({found:#x})")]
    Protocol {
        /// The peer.
        peer: Peer,
        /// Description of the violation.
        what: &'static str,
        /// The value found.
        found: u64,
    },
    /// The two ends of a pair do not fit together.
    #[error("both ends of a flow need the same {what}: this end has {ours}, the peer {theirs}")]
    Mismatch {
        /// Of what.
        what: &'static str,
        /// This end's value.
        ours: u64,
        /// The peer's value.
        theirs: u64,
    },
    /// The declaration is impossible.
    #[error("flow {flow:?} cannot be declared: {why}")]
    Declaration {
        /// Name of the flow.
        flow: String,
        /// The fault, and what is allowed.
        why: String,
    },
    /// The schema has no attribute of this name and type.
    #[error("no attribute {name:?} of type {wanted}; the schema is {schema}")]
    NoAttribute {
        /// Name given.
        name: String,
        /// Type asked for.
        wanted: String,
        /// The schema.
        schema: String,
    },
    /// A flow of this name is published already.
    #[error("a flow named {flow:?} is published already; choose another name")]
    NameTaken {
        /// The name.
        flow: String,
    },
    /// No flow of this name was published in time.
    #[error("no flow named {flow:?} was published within {} ms", patience.as_millis())]
    NoFlow {
        /// The name.
        flow: String,
        /// How long the caller waited.
        patience: Duration,
    },
    /// Some threads of the flow have not joined in time.
    #[error(
        "flow {flow:?}: {missing} threads have not joined within {} ms, the first is {first}",
        patience.as_millis()
    )]
    NotJoined {
        /// Name of the flow.
        flow: String,
        /// How many are missing.
        missing: u32,
        /// One of them.
        first: Peer,
        /// How long the caller waited.
        patience: Duration,
    },
    /// The declaration does not name this thread, or the thread has joined already.
    #[error("flow {flow:?} expects no {role} on node {}, thread {}", thread.node, thread.id)]
    Unexpected {
        /// Name of the flow.
        flow: String,
        /// The end that the thread wanted to be.
        role: Role,
        /// The thread.
        thread: Thread,
    },
    /// The registry cannot be reached, or its answer is not understood.
    #[error("the registry: {why}")]
    Registry {
        /// The fault.
        why: String,
    },
    /// The fabric does not place bytes in order, so footers prove nothing.
    #[error(
        "this fabric does not place bytes in address order, so footers prove nothing; declare the \
         flow with Detection::Checksum"
    )]
    Unordered,
    /// The fabric has no multicast ([`millstream_fabric::Limits::multicast`]).
    #[error("this fabric has no multicast; declare the flow without Flow::multicast")]
    NoMulticast,
    /// The segment of this number did not arrive in time, and will not be returned. The target has
    /// not failed: the next call goes on.
    #[error("segment {number} of an ordered flow did not arrive in time")]
    Gap {
        /// The segment's number, from 0, in the order of the whole flow.
        number: u64,
    },
    /// A tuple has another length than the schema says.
    #[error("a tuple of {found} bytes, the schema has {expected}")]
    TupleLength {
        /// Bytes of a tuple, by the schema.
        expected: usize,
        /// Bytes given.
        found: usize,
    },
    /// There is no target of this number.
    #[error("no target {target}: the flow has {targets}")]
    NoTarget {
        /// The number, from 0.
        target: usize,
        /// How many there are.
        targets: usize,
    },
    /// The call does not fit the flow's route.
    #[error("{what}")]
    Route {
        /// The fault, and the right call.
        what: &'static str,
    },
    /// The source is closed.
    #[error("the source is closed")]
    Closed,
}

impl Error {
    /// Whether the endpoint has failed for good.
    pub fn is_final(&self) -> bool {
        matches!(self, Error::Fabric(_) | Error::PeerLost { .. } | Error::Protocol { .. })
    }
}

impl From<FabricError> for Error {
    fn from(error: FabricError) -> Error {
        Error::Fabric(Arc::new(error))
    }
}

impl From<SetupError> for Error {
    fn from(error: SetupError) -> Error {
        Error::Registry { why: error.to_string() }
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

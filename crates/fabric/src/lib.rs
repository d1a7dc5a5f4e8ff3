//! The fabric: how bytes get from one process's memory into another's (paper, section 6).
//!
//! The contract is shaped like RDMA verbs: memory is registered, queue pairs are connected after an
//! exchange out of band, work is posted and its completion polled. A one-sided operation needs
//! nothing from the target's threads. A program is generic over the [`Fabric`] trait and its
//! companions, so hot paths have no virtual calls, and it chooses a provider once, at start.
//!
//! Datagrams may go to one peer or to a multicast [`Group`], whose members each get a copy for one
//! send. `sim`, `verbs` and `tcp` have groups, `shm` has none ([`Limits::multicast`]).
//!
//! Promises, for every provider: a reliable connection does its work in order and exactly once, or
//! it fails with a reason and everything outstanding completes as flushed; only [`Events::wait`]
//! waits; nothing is allocated per message; everything from a peer is checked before use, and no
//! peer can make this process read or write outside of the regions that this process opened. Not
//! promised: there is no flow control and no framing, a failed connection is not retried (these are
//! tasks of `flow`), and nothing on the wire is secret.

mod contract;
mod datagram;
mod endpoint;
mod error;
mod event_file;
mod group;
mod kept;
mod keys;
mod mapping;
mod memory;
mod place;
mod queue;
pub mod setup;
pub mod shm;
pub mod sim;
mod soft;
pub mod survey;
pub mod tcp;
pub mod verbs;
mod words;
mod work;

pub use contract::{CompletionQueue, Datagram, Events, Fabric, QueuePair, State};
pub use endpoint::{ENDPOINT_DETAIL_BYTES, Endpoint, Provider};
pub use error::{Error, Result};
pub use group::Group;
pub use memory::{Access, Region, RemoteAddress, RemoteRegion};
pub use work::{
    Completion, DATAGRAM_HEADER_BYTES, Destination, Kind, Limits, Operation, Outgoing, QueueSizes,
    Receive, Rejected, Source, Status, Timing, WorkRequest,
};

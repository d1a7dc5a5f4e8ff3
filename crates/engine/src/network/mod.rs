//! One job on several processes (paper, sections 4, 5 and 7).
//!
//! Every process plans the same query and runs its own workers over its part of the splits. Records
//! are not exchanged, except where keys rarely repeat and records are passed through. All workers
//! of all processes are leaders. What a worker holds for a leader of its own process is handed over
//! in memory. What it holds for a leader in another process goes into that leader's outbox, and
//! from there over a channel into the memory of the leader's process, where the leader's worker
//! finds it when it resumes its network coroutine. Result rows come to the coordinator, process 0,
//! unless each process writes its own ([`Sink::is_local`]).
//!
//! [`Sink::is_local`]: crate::sink::Sink::is_local
//!
//! Promises: the same rows as in a job of a single process (P2), whatever the number of processes;
//! every delta is merged once and in order; a lost peer is an error with the peer's number, and
//! ends all waiting. The module starts no processes and opens no control connections, and a lost
//! process is not replaced.

mod combine;
mod lanes;
mod marks;
mod mesh;
mod messages;
mod net;
mod outbox;
mod outboxes;
mod port;
mod postbox;
mod rows;
mod sleepers;
mod wire;

pub use crate::roles::{Place, reader};
pub(crate) use lanes::{Lane, Lanes};
pub(crate) use mesh::Ends;
pub use mesh::{Mesh, MeshOptions, MeshSetup};
pub(crate) use messages::{credit, merge_times};
pub(crate) use net::{Freed, Net};
pub(crate) use outbox::{DELTAS_IN_FLIGHT_MAX, Sealed, Shipped, Shipping};
pub(crate) use outboxes::Outboxes;
pub use outboxes::check_rows;
pub(crate) use port::{Inlet, Polled, Sleeper, peer_error, sent_by};
pub(crate) use rows::{decode_rows, encode_rows};
pub(crate) use wire::{
    CREDITED, GO_ON, Head, IDLE, JOINS, Kind, LAST, MERGED, packed, words, words_mut,
};
#[cfg(test)]
pub(crate) use wire::{HEAD_BYTES, MORE};

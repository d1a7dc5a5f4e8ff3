//! The control plane of a job on several processes. It starts them, makes sure that all run the
//! same job, and stops all when one fails.
//!
//! Process 0, which the user started, is the *coordinator*; the remaining processes are *peers*.
//! The coordinator listens on a [`Transport`]: the loopback interface, or a network. A [`Launcher`]
//! starts the peers as child processes, each of which gets the address, the peer's number and the
//! job's token over standard input. Or the peers are *ranks*, which something else starts on any
//! host ([`take_rank`]). A process that connects presents the token in a preamble. Then both
//! sides exchange messages: JSON with a length prefix, since messages are few. Records and state
//! never go over these connections, but over a fabric, whose addresses are exchanged here.
//!
//! A closed connection is noticed at once, silence after two seconds. The first failure stops all
//! processes. The job reports the most informative reason: the death of a process, rather than
//! another process's lost connection. No process outlives the coordinator, because its
//! peers notice the end of their connection, and child processes that of their standard input. When
//! a call of [`Cluster`] has returned an error, no process is left; ranks end by themselves.

mod children;
mod coordinator;
mod failure;
mod fitting;
pub mod frame;
mod guard;
mod host;
mod inbox;
mod launch;
mod launcher;
mod limits;
mod link;
mod listener;
mod member;
pub mod message;
mod node;
mod observing;
mod part;
mod parts;
mod peers;
pub mod preamble;
mod saving;
mod transport;
mod watch;

pub use children::{Program, STOPPED};
pub use coordinator::{Cluster, Interrupt};
pub use failure::{Cause, Fault, FaultKind, ProcessFailure};
pub use fitting::{PROCESSES_MAX, WORKERS_MAX, check_settings};
pub use guard::Guard;
pub use host::{Exit, NoPart, take_part, take_rank};
pub use launch::{Early, Elsewhere, Launch, now_us, shared_settings, stats_of};
pub use launcher::{Invitation, Launched, Launcher};
pub use limits::raise_open_files;
pub use link::{HEARTBEAT, SILENCE_MAX};
pub use listener::Log;
pub use member::{Checkpoints, Member, Stops};
pub use message::Setup;
pub use millstream_engine::network::{Place, reader};
pub use node::{Abandon, Node};
pub use part::{FabricName, QueryPart, Reach, fault};
pub use parts::Parts;
pub use transport::{Acceptor, Loopback, Network, Stream, Transport};

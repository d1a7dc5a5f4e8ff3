//! The control plane of a job on several processes: starting them, making sure that they mean the
//! same job, and stopping all when one fails.
//!
//! Process 0 is the one that the user started, the *asking process*. It listens on the loopback
//! interface, starts the others and hands each the address, its number and the job's token over its
//! standard input. A process that connects presents the token in a preamble; then both sides
//! exchange messages: length-prefixed JSON, since there are few of them. Records and state never
//! come this way: they go over a fabric, whose addresses are exchanged here.
//!
//! A closed connection is noticed at once, silence after two seconds. The first failure stops
//! everybody; the reason that is told is the one that tells most: that a process was killed, rather
//! than that another one lost its connection to it. No process outlives the asking one, which the
//! end of its standard input and of its connection tell it, and none is left when a call of
//! [`Cluster`] has returned with an error.

mod asker;
mod board;
mod children;
mod crew;
mod failure;
pub mod frame;
mod launch;
mod limits;
mod link;
mod lobby;
mod member;
pub mod message;
mod node;
mod part;
mod parts;
pub mod preamble;
mod watch;

pub use asker::{Cluster, Interrupt};
pub use children::{Invitation, Program, STOPPED};
pub use failure::{Cause, Failure, Fault, FaultKind};
pub use launch::{Early, Launch, now_us, shared_settings, stats_of};
pub use limits::raise_open_files;
pub use link::{HEARTBEAT, SILENCE_MAX};
pub use lobby::Log;
pub use member::{Member, Stops};
pub use message::Setup;
pub use millstream_engine::cluster::{Place, reader};
pub use node::{Abandon, Node};
pub use part::{FabricName, PROCESSES_MAX, QueryPart, WORKERS_MAX, check_settings, fault};
pub use parts::Parts;

//! The control plane of a job on several processes. It starts them, makes sure that all run the
//! same job, and stops all when one fails.
//!
//! Process 0, which the user started, is the *coordinator*; the others are its *peers*. The
//! coordinator listens on the loopback interface, starts its peers, and hands each the address, its
//! number and the job's token over its standard input. A process that connects presents the token
//! in a preamble. Then both sides exchange messages: JSON with its length in front, since there are
//! few of them. Records and state never go over these connections. They go over a fabric, whose
//! addresses are exchanged here.
//!
//! A closed connection is noticed at once, silence after two seconds. The first failure stops all
//! processes. The reason that is reported is the one that explains most: that a process was killed,
//! rather than that another one lost its connection to it. No process outlives the coordinator,
//! because its peers notice the end of their standard input and of their connection. When a call of
//! [`Cluster`] has returned an error, no process is left.

mod children;
mod coordinator;
mod failure;
pub mod frame;
mod guard;
mod host;
mod inbox;
mod launch;
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
mod watch;

pub use children::{Invitation, Program, STOPPED};
pub use coordinator::{Cluster, Interrupt};
pub use failure::{Cause, Failure, Fault, FaultKind};
pub use guard::Guard;
pub use host::{NoPart, take_part};
pub use launch::{Early, Launch, now_us, shared_settings, stats_of};
pub use limits::raise_open_files;
pub use link::{HEARTBEAT, SILENCE_MAX};
pub use listener::Log;
pub use member::{Member, Stops};
pub use message::Setup;
pub use millstream_engine::network::{Place, reader};
pub use node::{Abandon, Node};
pub use part::{FabricName, PROCESSES_MAX, QueryPart, WORKERS_MAX, check_settings, fault};
pub use parts::Parts;

//! The threads of a flow, and how messages name them.

use std::fmt;

use millstream_fabric::Status;

/// A thread that is a source or a target: DFI's endpoints are threads (thesis, section 7.3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Thread {
    /// Number of the node, or process; the program assigns it.
    pub node: u32,
    /// Number of the thread within its node.
    pub id: u32,
}

impl Thread {
    /// Thread `id` of node `node`.
    pub const fn new(node: u32, id: u32) -> Thread {
        Thread { node, id }
    }
}

/// The two ends of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// Pushes tuples.
    Source = 1,
    /// Consumes tuples.
    Target = 2,
}

impl Role {
    /// The opposite end.
    pub fn other(self) -> Role {
        match self {
            Role::Source => Role::Target,
            Role::Target => Role::Source,
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Role::Source => "source",
            Role::Target => "target",
        })
    }
}

/// A source or a target of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Peer {
    /// At which end.
    pub role: Role,
    /// Index in the declaration's list of that end, from 0.
    pub index: u32,
    /// The thread.
    pub thread: Thread,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Thread { node, id } = self.thread;
        write!(f, "{} {} (node {node}, thread {id})", self.role, self.index)
    }
}

/// Looks before a waiting thread lets others run.
const SPINS: u32 = 64;

/// Calls `ready` until it says yes. With `polls`, polling does the network card's work. Other
/// threads go first: with fewer cores than threads the peer's may be among them.
#[cold]
pub(crate) fn wait<E>(polls: bool, mut ready: impl FnMut() -> Result<bool, E>) -> Result<(), E> {
    let mut looks = 0_u32;
    while !ready()? {
        looks += 1;
        if looks > SPINS || polls {
            std::thread::yield_now();
        } else {
            std::hint::spin_loop();
        }
    }
    Ok(())
}

/// A peer that was lost and dropped from a flow ([`OnLoss::Drop`](crate::OnLoss)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loss {
    /// The lost peer.
    pub peer: Peer,
    /// Status of the work request that failed.
    pub status: Status,
}

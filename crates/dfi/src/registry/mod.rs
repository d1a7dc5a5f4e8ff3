//! The registry: declarations, addresses and keys, until all threads have joined (thesis, section
//! 7.3.3). It is never on the data path.

mod local;
mod message;
mod service;

use std::time::Duration;

use millstream_fabric::setup::Hello;

use crate::declaration::Declaration;
use crate::error::{Error, Result};
use crate::thread::{Peer, Role, Thread};

pub use local::LocalRegistry;
pub use message::fuzz;
pub use service::{RegistryClient, RegistryService};

/// A source or a target, by its index in the declaration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct End {
    /// At which end.
    pub role: Role,
    /// Index in the list of that end, from 0.
    pub index: u32,
}

impl End {
    /// The end that a thread is.
    ///
    /// # Errors
    /// The declaration does not name the thread ([`Error::Unexpected`]).
    pub(crate) fn find(declaration: &Declaration, role: Role, thread: Thread) -> Result<End> {
        let mut threads = declaration.threads(role).iter();
        match threads.position(|one| *one == thread) {
            Some(index) => Ok(End { role, index: index as u32 }),
            None => Err(Error::Unexpected { flow: declaration.name.clone(), role, thread }),
        }
    }
}

impl End {
    /// The lost end that an error names; `own` if the error names no end.
    pub(crate) fn of_error(error: &Error, own: End) -> End {
        match error {
            Error::PeerLost { peer, .. } => End { role: peer.role, index: peer.index },
            _ => own,
        }
    }
}

/// Where the threads of a flow find each other. All calls are for set-up.
pub trait Registry {
    /// Publishes a flow.
    ///
    /// # Errors
    /// The name is taken ([`Error::NameTaken`]), or the registry cannot be reached.
    fn publish(&self, declaration: &Declaration) -> Result<()>;

    /// The declaration of a flow; waits for it to be published, for at most `patience`.
    ///
    /// # Errors
    /// [`Error::NoFlow`].
    fn look_up(&self, flow: &str, patience: Duration) -> Result<Declaration>;

    /// Leaves the addresses and keys of an end: a set-up message for each thread of the other end,
    /// by index.
    ///
    /// # Errors
    /// No such flow or end, the end has joined already, or there are too few messages or too many.
    fn join(&self, flow: &str, end: End, hellos: Vec<Hello>) -> Result<()>;

    /// The set-up messages of all threads of the other end for `end`, by index. This is a barrier:
    /// waits until all threads of both ends have joined, for at most `patience`.
    ///
    /// # Errors
    /// [`Error::NotJoined`].
    fn peers(&self, flow: &str, end: End, patience: Duration) -> Result<Vec<Hello>>;

    /// Forgets a flow, so that its name is free. Threads that have connected go on.
    ///
    /// # Errors
    /// No such flow.
    fn withdraw(&self, flow: &str) -> Result<()>;
}

/// The numbers in the set-up message of `end` for thread `other` of the other end.
pub(crate) fn parameters(declaration: &Declaration, end: End, other: usize) -> Vec<u64> {
    vec![end.role as u64, end.index.into(), other as u64, declaration.fingerprint()]
}

/// The set-up messages of all threads of the other end for `end`, once all have joined.
pub(crate) fn hellos(
    registry: &impl Registry,
    declaration: &Declaration,
    end: End,
    patience: Duration,
) -> Result<Vec<Hello>> {
    let hellos = registry.peers(&declaration.name, end, patience)?;
    let other = end.role.other();
    let (ours, theirs) = (declaration.threads(other).len() as u64, hellos.len() as u64);
    let what = match other {
        Role::Source => "count of sources",
        Role::Target => "count of targets",
    };
    if ours == theirs { Ok(hellos) } else { Err(Error::Mismatch { what, ours, theirs }) }
}

/// Checks the set-up message of a peer for this end, whose index is `own`. The message has so many
/// regions.
pub(crate) fn check_hello(
    declaration: &Declaration,
    hello: &Hello,
    (peer, own): (Peer, u32),
    regions: usize,
) -> Result<()> {
    let end = End { role: peer.role, index: peer.index };
    let expected = parameters(declaration, end, own as usize);
    let names = ["role", "index", "index of the other end", "declaration"];
    for (at, what) in names.into_iter().enumerate() {
        let theirs = hello.parameters.get(at).copied().unwrap_or(0);
        if expected[at] != theirs {
            return Err(Error::Mismatch { what, ours: expected[at], theirs });
        }
    }
    let (ours, theirs) = (regions as u64, hello.regions.len() as u64);
    if ours != theirs {
        return Err(Error::Mismatch { what: "count of regions", ours, theirs });
    }
    Ok(())
}

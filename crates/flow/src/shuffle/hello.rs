//! Set-up messages: an endpoint's description of itself, and the check of a peer's.

use millstream_fabric::RemoteRegion;
use millstream_fabric::setup::Hello;

use crate::link::check_region;
use crate::shuffle::design::Transport;
use crate::shuffle::error::{Error, Result};
use crate::shuffle::settings::{Role, Settings};

/// A peer's description of itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer {
    pub(crate) id: u32,
    pub(crate) control: RemoteRegion,
    pub(crate) buffers: RemoteRegion,
    /// Buffers that it has granted, or has at most.
    pub(crate) granted: u64,
    /// Posted receives.
    pub(crate) receives: u64,
}

/// The numbers of a set-up message, behind the role.
pub(crate) fn parameters(
    role: Role,
    id: u32,
    settings: &Settings,
    granted: u64,
    receives: u64,
) -> Vec<u64> {
    vec![
        role as u64,
        id.into(),
        settings.design.code(),
        settings.message_bytes as u64,
        settings.per_peer().1.into(),
        granted,
        receives,
    ]
}

/// Checks a peer's description; `regions` is the count of regions to be open.
fn peer_of(hello: &Hello, theirs: Role, settings: &Settings, regions: usize) -> Result<Peer> {
    let number = |at: usize| hello.parameters.get(at).copied().unwrap_or(0);
    for (what, ours, theirs) in [
        ("half of a shuffle (1 sends, 2 receives)", theirs as u64, number(0)),
        ("design", settings.design.code(), number(2)),
        ("bytes of a message", settings.message_bytes as u64, number(3)),
        ("buffers for a peer", settings.per_peer().1.into(), number(4)),
        ("count of regions", regions as u64, hello.regions.len() as u64),
    ] {
        if ours != theirs {
            return Err(Error::Mismatch { what, ours, theirs });
        }
    }
    let id = u32::try_from(number(1)).map_err(|_| Error::Mismatch {
        what: "width of an endpoint's id (32 bits)",
        ours: 32,
        theirs: 64,
    })?;
    let region = |at: usize| hello.regions.get(at).copied().unwrap_or_default();
    let control = region(0);
    if regions > 0 {
        check_region(&control, settings.block_bytes())?;
    }
    Ok(Peer { id, control, buffers: region(1), granted: number(5), receives: number(6) })
}

/// Checks the set-up messages of so many peers of the other half.
pub(crate) fn peers_of(
    hellos: &[Hello],
    theirs: Role,
    settings: &Settings,
    count: usize,
) -> Result<Vec<Peer>> {
    if hellos.len() != count {
        let (what, theirs) = ("count of peers", hellos.len() as u64);
        return Err(Error::Mismatch { what, ours: count as u64, theirs });
    }
    let regions = match (settings.design.transport, theirs) {
        (Transport::Datagrams, _) => 0,
        (Transport::Read, Role::Sender) | (Transport::Write(_), Role::Receiver) => 2,
        _ => 1,
    };
    let peer = |hello: &Hello| peer_of(hello, theirs, settings, regions);
    let peers: Vec<Peer> = hellos.iter().map(peer).collect::<Result<_>>()?;
    for (number, peer) in peers.iter().enumerate() {
        if peers[..number].iter().any(|before| before.id == peer.id) {
            let (what, ours) = ("peers, each with an id of its own", number as u64);
            return Err(Error::Mismatch { what, ours, theirs: peer.id.into() });
        }
    }
    Ok(peers)
}

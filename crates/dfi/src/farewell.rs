//! The last word of an endpoint to its peers: the end was seen, or the flow has failed.
//!
//! An endpoint that fails names the lost peer in a word of each other peer's memory. Otherwise each
//! hop of the news would cost a peer's silence.

use std::time::Duration;

use millstream_fabric::{Fabric, Result, Status};
use millstream_flow::link::{CONTROL, Link, PEER_COUNT};

use crate::declaration::Declaration;
use crate::registry::End;
use crate::thread::{Peer, Role};

/// A target has seen the end of a pair.
pub(crate) const CONFIRMED: u64 = 1;

const FAILED: u64 = 1 << 63;
const ROLE_SHIFT: u32 = 32;

/// The immediate value of a write that wakes its peer.
pub(crate) const WAKE: u32 = 1;

/// A failing endpoint waits so long for its last words to leave.
const PATIENCE: Duration = Duration::from_millis(2);

/// Posts the last word of an endpoint that fails since `lost` is lost. Where that is impossible the
/// connection ends. A target may sleep and is woken; a source never sleeps and has no receives.
pub(crate) fn post<F: Fabric>(link: &mut Link<F>, to: Role, lost: End) {
    let word = FAILED | (lost.role as u64) << ROLE_SHIFT | u64::from(lost.index);
    let value = word.to_ne_bytes();
    let tell = |link: &mut Link<F>| -> Result<()> {
        let wake = (to == Role::Target).then_some(WAKE);
        let write = link.word(PEER_COUNT, &value, wake)?;
        link.post(&mut [write], Some(CONTROL))
    };
    if !link.room(1) || tell(link).is_err() {
        link.fail();
    }
}

/// Waits for last words to leave, if that does not take long. `look` takes completions, and says
/// whether some are still here.
pub(crate) fn wait<F: Fabric>(fabric: &F, mut look: impl FnMut() -> crate::Result<bool>) {
    let start = fabric.now();
    while matches!(look(), Ok(true)) && fabric.now().saturating_sub(start) < PATIENCE {}
}

/// Whether a link's last word is still here.
pub(crate) fn is_leaving<F: Fabric>(link: &Link<F>) -> bool {
    link.failure().is_none() && !link.is_quiet()
}

/// The lost peer that a last word names; the peer that wrote the word, if the flow has no such end.
fn lost_by_word(word: u64, teller: Peer, declaration: &Declaration) -> Option<Peer> {
    if word & FAILED == 0 {
        return None;
    }
    let role = match word >> ROLE_SHIFT & 3 {
        1 => Role::Source,
        _ => Role::Target,
    };
    let index = word as u32 as usize;
    let known = index < declaration.threads(role).len();
    Some(if known { declaration.peer(role, index) } else { teller })
}

/// The peer that is lost, and how, if this link's connection has failed or its peer has said so.
pub(crate) fn loss<F: Fabric>(
    link: &Link<F>,
    teller: Peer,
    declaration: &Declaration,
) -> Option<(Peer, Status)> {
    match lost_by_word(link.block.peer_count(), teller, declaration) {
        Some(peer) => Some((peer, Status::PeerLost)),
        None => link.failure().map(|status| (teller, status)),
    }
}

//! The other end of a connection: the peer's memory, as it is mapped here, and its receives.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use super::layout::{Control, SharedReceive, Taken};
use super::link::{Link, PeerRegion};
use crate::error::Result;
use crate::keys::Need;
use crate::memory::RemoteAddress;
use crate::place::place;
use crate::words::Bell;
use crate::work::{Destination, Operation, Source, Status};

/// Peer regions that a connection remembers; a channel uses two or three.
const REMEMBERED_MAX: usize = 64;

/// A peer's queue pair.
pub(super) struct Peer {
    pub(super) link: Arc<Link>,
    pub(super) control: Control,
    pub(super) bell: Option<Bell>,
    /// Whether the peer is known to be connected to us.
    ready: bool,
    /// Number of the peer's receives that we have taken.
    taken: u64,
    regions: Vec<PeerRegion>,
    last_region: usize,
}

/// Result of an attempt.
pub(super) enum Attempt {
    Done,
    /// The peer is not connected to us yet.
    NotConnected,
    /// The peer has posted no receive.
    NotReady,
    Failed(Status),
}

impl Peer {
    /// Asks for everything that is needed of pair `number` at the other end of the link.
    pub(super) fn new(link: Arc<Link>, number: u32) -> Result<Peer> {
        let (control, bell) = link.pair(number)?;
        Ok(Peer {
            link,
            control,
            bell,
            ready: false,
            taken: 0,
            regions: Vec::new(),
            last_region: 0,
        })
    }

    /// Does one operation on the peer's memory, for the pair of this identity.
    #[inline]
    pub(super) fn attempt(&mut self, identity: u64, operation: &Operation<'_>) -> Attempt {
        match self.control.connected_to(identity) {
            Some(true) => self.ready = true,
            Some(false) if !self.ready => return Attempt::NotConnected,
            Some(false) | None => return Attempt::Failed(Status::PeerLost),
        }
        let mut claimed = None;
        if operation.takes_receive() {
            // Before a receive is taken for it.
            if let Operation::Write { source, to, .. } = operation
                && self.resolve(*to, source.bytes() as u64, Need::Write).is_none()
            {
                return Attempt::Failed(Status::RemoteAccess);
            }
            claimed = self.control.posted(self.taken);
            if claimed.is_none() {
                return Attempt::NotReady;
            }
        }
        let status = match operation {
            Operation::Write { source, to, .. } => {
                let bytes = source.bytes();
                match self.resolve(*to, bytes as u64, Need::Write) {
                    Some(start) => {
                        // SAFETY: the source was checked; the target is mapped and has the room.
                        unsafe { place(start, start_of(source), bytes) }
                        Status::Success
                    }
                    None => Status::RemoteAccess,
                }
            }
            Operation::Send { source, .. } => self.send_into(source, claimed),
            Operation::Read { into, from } => {
                // A processor may read before its own earlier writes are seen; a card does not.
                fence(Ordering::SeqCst);
                match self.resolve(*from, into.bytes as u64, Need::Read) {
                    Some(start) => {
                        let to = into.region.as_ptr().wrapping_add(into.offset);
                        // SAFETY: the destination was checked; the peer's range is mapped.
                        unsafe { place(to, start, into.bytes) }
                        Status::Success
                    }
                    None => Status::RemoteAccess,
                }
            }
            Operation::FetchAdd { into, at, add } => {
                self.atomic(into, *at, |word| word.fetch_add(*add, Ordering::SeqCst))
            }
            Operation::CompareSwap { into, at, expected, new } => self.atomic(into, *at, |word| {
                let order = Ordering::SeqCst;
                word.compare_exchange(*expected, *new, order, order).unwrap_or_else(|old| old)
            }),
        };
        if claimed.is_some() {
            self.take(operation, status);
        }
        match status {
            Status::Success => Attempt::Done,
            status => Attempt::Failed(status),
        }
    }

    /// Where a peer's memory is here.
    #[inline]
    pub(super) fn resolve(&mut self, at: RemoteAddress, bytes: u64, need: Need) -> Option<*mut u8> {
        self.region(at.key)?.resolve(at.address, bytes, need)
    }

    /// Maps a peer's region, if there is one, before it is used.
    pub(super) fn map(&mut self, key: u32) {
        let _ = self.region(key);
    }

    /// A peer's region, if it lives. Asks the peer's service the first time.
    #[inline]
    fn region(&mut self, key: u32) -> Option<&PeerRegion> {
        // Most often the region is the same as last time.
        if self.regions.get(self.last_region).is_none_or(|region| region.key != key) {
            self.last_region = self.find_region(key)?;
        }
        let region = self.regions.get(self.last_region)?;
        if self.link.lives(key) { Some(region) } else { None }
    }

    /// Where a peer's region is in the list. Asks the peer's service the first time.
    #[cold]
    fn find_region(&mut self, key: u32) -> Option<usize> {
        if let Some(index) = self.regions.iter().position(|region| region.key == key) {
            return Some(index);
        }
        self.regions.retain(|region| self.link.lives(region.key));
        // Whatever goes wrong here, the region can not be reached.
        let region = self.link.region(key).ok()??;
        if self.regions.len() == REMEMBERED_MAX {
            self.regions.remove(0);
        }
        self.regions.push(region);
        Some(self.regions.len() - 1)
    }

    /// Changes an aligned word of the peer's and returns the old value to `into`.
    fn atomic(
        &mut self,
        into: &Destination<'_>,
        at: RemoteAddress,
        change: impl Fn(&AtomicU64) -> u64,
    ) -> Status {
        let Some(start) = self.resolve(at, 8, Need::Atomic) else { return Status::RemoteAccess };
        // SAFETY: resolved for an atomic: 8 bytes, mapped; the mapping begins at a page as the
        // peer's does.
        let old = change(unsafe { AtomicU64::from_ptr(start.cast()) }).to_ne_bytes();
        let to = into.region.as_ptr().wrapping_add(into.offset);
        // SAFETY: the destination was checked and has 8 bytes.
        unsafe { place(to, old.as_ptr(), 8) }
        Status::Success
    }

    /// Copies a send's bytes into the receive claimed for it.
    fn send_into(&mut self, source: &Source<'_>, claimed: Option<SharedReceive>) -> Status {
        let Some(receive) = claimed else { return Status::InvalidRequest };
        let bytes = source.bytes();
        if bytes as u64 > receive.bytes {
            return Status::InvalidRequest;
        }
        if bytes == 0 {
            return Status::Success;
        }
        let region = self.region(receive.key);
        let room = region.and_then(|region| region.inside(receive.offset, receive.bytes));
        let Some(start) = room else { return Status::RemoteOperation };
        // SAFETY: the source was checked; the receive's range is mapped and has the room.
        unsafe { place(start, start_of(source), bytes) }
        Status::Success
    }

    /// Tells the peer what became of the receive claimed for a request.
    fn take(&mut self, operation: &Operation<'_>, status: Status) {
        let (kind, bytes, immediate) = match operation {
            Operation::Send { source, immediate } => (0, source.bytes(), *immediate),
            Operation::Write { source, immediate, .. } => (1, source.bytes(), *immediate),
            _ => return,
        };
        let kind = if status == Status::Success { kind } else { u8::MAX };
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.control.take(self.taken, Taken { kind, bytes, immediate });
        self.taken += 1;
        if let Some(bell) = &self.bell {
            bell.event();
        }
    }
}

/// First byte of a source that was checked.
#[inline]
pub(super) fn start_of(source: &Source<'_>) -> *const u8 {
    match source {
        Source::Region { region, offset, .. } => region.as_ptr().wrapping_add(*offset),
        Source::Inline(slice) => slice.as_ptr(),
    }
}

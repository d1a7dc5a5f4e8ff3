//! A connection to another device's service. Over it a device asks for the other's queue pairs and
//! regions, and notices when the other ends.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

use super::layout::{Control, RegionTable};
use super::pair::ShmConnection;
use super::service::{
    ANSWER_BYTES, ASK_PAIR, ASK_REGION, PATIENCE, address, check_greeting, check_user, receive,
    send, unix_socket,
};
use crate::error::{Error, Result, last_os_error};
use crate::keys::Need;
use crate::mapping::Mapping;
use crate::memory::Access;
use crate::queue::lock;
use crate::setup::{HEAD_BYTES, SetupError, Token, head};
use crate::words::Bell;

/// The system leaves out descriptors for which this process has no room.
const DESCRIPTOR_MISSING: SetupError =
    SetupError::Field { what: "a descriptor is missing; may this process open more (ulimit -n)?" };

/// A peer's region, mapped here.
pub(super) struct PeerRegion {
    pub(super) key: u32,
    mapping: Mapping,
    /// First byte, in the peer's address space.
    address: u64,
    bytes: u64,
    access: Access,
}

impl PeerRegion {
    /// Where `bytes` bytes at the peer's `address` are here, if they are inside and it is allowed.
    #[inline]
    pub(super) fn resolve(&self, address: u64, bytes: u64, need: Need) -> Option<*mut u8> {
        let allowed = match need {
            Need::Read => self.access.remote_read,
            Need::Write => self.access.remote_write,
            Need::Atomic => self.access.remote_atomic && address.is_multiple_of(8),
        };
        if !allowed {
            return None;
        }
        self.inside(address.checked_sub(self.address)?, bytes)
    }

    /// Where `bytes` bytes at this offset are here, whatever is allowed: the peer posted a receive.
    #[inline]
    pub(super) fn inside(&self, offset: u64, bytes: u64) -> Option<*mut u8> {
        if offset.checked_add(bytes)? > self.bytes {
            return None;
        }
        Some(self.mapping.start().as_ptr().wrapping_add(offset as usize))
    }
}

/// A connection to another device's service.
pub(super) struct Link {
    /// The peer's address.
    pub(super) name: Vec<u8>,
    socket: OwnedFd,
    asking: Mutex<()>,
    table: RegionTable,
    lost: AtomicBool,
    pairs: Mutex<Vec<Weak<ShmConnection>>>,
}

impl Link {
    /// Connects and exchanges greetings.
    pub(super) fn connect(name: &[u8], token: &Token) -> Result<Link> {
        let socket = unix_socket(libc::SOCK_SEQPACKET)?;
        set_patience(&socket)?;
        let (address, length) = address(name);
        // SAFETY: the address is alive and has this length.
        let result =
            unsafe { libc::connect(socket.as_raw_fd(), (&raw const address).cast(), length) };
        if result < 0 {
            return Err(last_os_error("connecting to a process of this host"));
        }
        check_user(&socket)?;
        send(&socket, &head(token), &[])?;
        let mut answer = [0; HEAD_BYTES];
        let mut files = Vec::new();
        let length = receive(&socket, &mut answer, &mut files)?;
        if length == 0 {
            // A service that does not know our token closes without a word.
            return Err(SetupError::Token.into());
        }
        check_greeting(&answer[..length], token)?;
        let table = files.first().ok_or(DESCRIPTOR_MISSING)?;
        let table = RegionTable::map(check_length(table, RegionTable::ENTRIES as u64 * 8)?)?;
        Ok(Link {
            name: name.to_vec(),
            socket,
            asking: Mutex::new(()),
            table,
            lost: AtomicBool::new(false),
            pairs: Mutex::default(),
        })
    }

    pub(super) fn raw(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// Whether the peer's process is gone.
    pub(super) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// The pair wants to know when the peer's process is gone.
    pub(super) fn watch(&self, pair: &Arc<ShmConnection>) {
        let mut pairs = lock(&self.pairs);
        pairs.retain(|pair| pair.strong_count() > 0);
        pairs.push(Arc::downgrade(pair));
        drop(pairs);
        if self.is_lost() {
            pair.peer_is_gone();
        }
    }

    /// The peer's process is gone: tells all who watch.
    pub(super) fn lose(&self) {
        self.lost.store(true, Ordering::Release);
        let pairs = std::mem::take(&mut *lock(&self.pairs));
        for pair in pairs.iter().filter_map(Weak::upgrade) {
            pair.peer_is_gone();
        }
    }

    /// Whether the peer still has the region.
    #[inline]
    pub(super) fn lives(&self, key: u32) -> bool {
        self.table.lives(key)
    }

    /// A peer's queue pair: the control block, and the owner's bell.
    pub(super) fn pair(&self, number: u32) -> Result<(Control, Option<Bell>)> {
        let ([found, capacity, rings], files) = self.ask(ASK_PAIR, number)?;
        if found != 1 {
            return Err(Error::BadEndpoint { reason: "there is no such queue pair" });
        }
        if !capacity.is_power_of_two() || capacity > 1 << 20 {
            return Err(SetupError::Field { what: "an impossible receive queue" }.into());
        }
        let mut files = files.iter();
        let mut next =
            |bytes: usize| check_length(files.next().ok_or(DESCRIPTOR_MISSING)?, bytes as u64);
        let control = Control::map(next(Control::bytes(capacity))?, capacity)?;
        let bell = match rings & 1 {
            0 => None,
            _ => Some(Bell::map(next(Bell::BYTES)?)?),
        };
        Ok((control, bell))
    }

    /// Maps a peer's region; `None` if there is no such region.
    pub(super) fn region(&self, key: u32) -> Result<Option<PeerRegion>> {
        let ([found, address, bytes], files) = self.ask(ASK_REGION, key)?;
        if found & 0xff != 1 {
            return Ok(None);
        }
        let file = files.first().ok_or(DESCRIPTOR_MISSING)?;
        let length = usize::try_from(bytes).map_err(|_| Error::Limit {
            what: "bytes of a peer's region",
            asked: bytes,
            max: usize::MAX as u64,
        })?;
        let mapping = Mapping::shared(check_length(file, bytes)?, length)?;
        let access = Access {
            remote_read: found >> 8 & 1 == 1,
            remote_write: found >> 9 & 1 == 1,
            remote_atomic: found >> 10 & 1 == 1,
        };
        Ok(Some(PeerRegion { key, mapping, address, bytes, access }))
    }

    /// A question without an answer ends the connection: a late one would answer the next.
    fn ask(&self, kind: u32, number: u32) -> Result<([u64; 3], Vec<OwnedFd>)> {
        let answer = self.try_ask(kind, number);
        if answer.is_err() {
            self.lose();
        }
        answer
    }

    fn try_ask(&self, kind: u32, number: u32) -> Result<([u64; 3], Vec<OwnedFd>)> {
        let _one_at_a_time = lock(&self.asking);
        let question = [kind.to_le_bytes(), number.to_le_bytes()].concat();
        send(&self.socket, &question, &[])?;
        let mut answer = [0; ANSWER_BYTES];
        let mut files = Vec::new();
        let length = receive(&self.socket, &mut answer, &mut files)?;
        if length != ANSWER_BYTES {
            return Err(SetupError::Field { what: "an answer of another length" }.into());
        }
        let word = |at| u64::from_le_bytes(std::array::from_fn(|i| answer[at + i]));
        Ok(([word(0), word(8), word(16)], files))
    }
}

/// Checks that the file is as long as the peer says and cannot be cut: a mapping beyond its end
/// would kill this process.
fn check_length(file: &OwnedFd, bytes: u64) -> Result<&OwnedFd> {
    // SAFETY: zeros are a valid buffer, and it has the length that the call expects.
    let (result, status, seals) = unsafe {
        let mut status: libc::stat = std::mem::zeroed();
        let result = libc::fstat(file.as_raw_fd(), &raw mut status);
        (result, status, libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS))
    };
    if result < 0 || seals < 0 {
        return Err(last_os_error("looking at a peer's memory file"));
    }
    if seals & libc::F_SEAL_SHRINK == 0 || (status.st_size as u64) < bytes {
        return Err(SetupError::Field { what: "a memory file that is too short" }.into());
    }
    Ok(file)
}

fn set_patience(socket: &OwnedFd) -> Result<()> {
    let time = libc::timeval { tv_sec: PATIENCE.as_secs() as libc::time_t, tv_usec: 0 };
    for option in [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO] {
        // SAFETY: the option's value is alive and has this length.
        let result = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                option,
                (&raw const time).cast(),
                size_of::<libc::timeval>() as libc::socklen_t,
            )
        };
        if result < 0 {
            return Err(last_os_error("setsockopt"));
        }
    }
    Ok(())
}

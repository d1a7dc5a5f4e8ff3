//! The provider `shm`: processes of one host, over shared memory.
//!
//! Regions are memory files without names. A process that writes to a region maps it. A write is a
//! copy into the peer's memory, done by the thread that posts it; the last 8 bytes become visible
//! last. Data takes no system call. A sleeping peer is woken with one (a futex). Set-up goes over a
//! Unix socket with an abstract name, between processes of the same user that hold the same token.
//! Nothing has a name in the file system, so nothing is left behind when a process dies, and its
//! peers notice at once.
//!
//! A process that holds the token has whole regions mapped. The side that posts checks keys, ranges
//! and access rights. The side that reads a control block checks what the peer has left in it.
//! Datagrams go through the kernel.

mod layout;
mod link;
mod pair;
mod peer;
mod service;

use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use self::layout::RegionTable;
use self::link::Link;
use self::pair::ShmConnection;
pub use self::service::fuzz;
use self::service::{Directory, RegionEntry, address, bind, unix_socket};
use crate::contract::Fabric;
use crate::datagram::SocketAddress;
use crate::endpoint::{ENDPOINT_DETAIL_BYTES, Endpoint, Provider};
use crate::error::{Error, Result, last_os_error};
use crate::group::Group;
use crate::mapping::{Mapping, memory_file};
use crate::memory::{Access, Region, Registration, device_number};
use crate::queue::{lock, random_id};
use crate::setup::Token;
use crate::soft::{SoftDatagram, SoftDevice, SoftEvents, SoftPair, SoftQueue};
use crate::work::{Limits, QueueSizes, Timing};

/// A process's part in shared memory.
#[derive(Clone)]
pub struct ShmDevice(Arc<Device>);

struct Device {
    number: u32,
    limits: Limits,
    /// Random, in the names of sockets and the identities of queue pairs.
    id: u64,
    last_pair: AtomicU32,
    last_region: AtomicU32,
    table: RegionTable,
    directory: Arc<Directory>,
    service: Mutex<Option<JoinHandle<()>>>,
}

impl Drop for Device {
    fn drop(&mut self) {
        if let Some(thread) = lock(&self.service).take() {
            service::stop(&self.directory, thread);
        }
    }
}

impl Device {
    fn token(&self) -> &Token {
        &self.directory.token
    }

    /// Identity of a queue pair on this host.
    fn identity(&self, number: u32) -> u64 {
        self.id ^ u64::from(number).rotate_left(32)
    }

    /// The connection to the device of this id.
    fn link(&self, id: u64) -> Result<Arc<Link>> {
        let name = service_name(id);
        let known = |links: &[Arc<Link>]| {
            links.iter().find(|link| link.name == name && !link.is_lost()).cloned()
        };
        if let Some(link) = known(&lock(&self.directory.links)) {
            return Ok(link);
        }
        // Without the lock, which the service needs: the answer may come from this process.
        let link = Arc::new(Link::connect(&name, self.token())?);
        lock(&self.directory.links).push(link.clone());
        self.directory.wake();
        Ok(link)
    }
}

fn service_name(id: u64) -> Vec<u8> {
    format!("millstream-{id:016x}").into_bytes()
}

fn datagram_name(id: u64, number: u32) -> Vec<u8> {
    format!("millstream-{id:016x}-{number}").into_bytes()
}

impl ShmDevice {
    /// Opens shared memory for a process of the job with this token.
    pub fn open(token: Token) -> Result<ShmDevice> {
        let id = random_id()?;
        let listener = unix_socket(libc::SOCK_SEQPACKET | libc::SOCK_NONBLOCK)?;
        bind(&listener, &service_name(id))?;
        // SAFETY: a plain call on an open socket.
        if unsafe { libc::listen(listener.as_raw_fd(), 128) } < 0 {
            return Err(last_os_error("listen"));
        }
        let (table_file, table) = RegionTable::new()?;
        let directory = Arc::new(Directory::new(token, table_file)?);
        let thread = service::start(&directory, listener)?;
        Ok(ShmDevice(Arc::new(Device {
            number: device_number(),
            limits: Limits::SOFTWARE,
            id,
            last_pair: AtomicU32::new(0),
            last_region: AtomicU32::new(0),
            table,
            directory,
            service: Mutex::new(Some(thread)),
        })))
    }
}

/// Device id and queue pair number of a peer's endpoint.
fn parse(peer: &Endpoint) -> Result<(u64, u32)> {
    let detail = peer.detail_for(Provider::Shm)?;
    let id = u64::from_le_bytes(std::array::from_fn(|i| detail[i]));
    Ok((id, u32::from_le_bytes(std::array::from_fn(|i| detail[8 + i]))))
}

/// A region's memory and its entry in the directory.
struct Owner {
    device: Arc<Device>,
    key: u32,
    _mapping: Mapping,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.device.table.clear(self.key);
        lock(&self.device.directory.entries).regions.remove(&self.key);
    }
}

impl Fabric for ShmDevice {
    type Events = ShmEvents;
    type CompletionQueue = ShmQueue;
    type QueuePair = ShmPair;
    type Datagram = ShmDatagram;

    fn provider(&self) -> Provider {
        Provider::Shm
    }

    fn limits(&self) -> &Limits {
        &self.0.limits
    }

    fn allocate(&self, bytes: usize, access: Access) -> Result<Region> {
        let file = memory_file(bytes)?;
        let mapping = match access {
            // A sender's copy of a ring, which it does not need where it reaches the ring itself.
            Access::LOCAL => Mapping::shared_for_later(&file, bytes)?,
            _ => Mapping::shared(&file, bytes)?,
        };
        let start = mapping.start();
        let mut entries = lock(&self.0.directory.entries);
        if entries.regions.len() >= RegionTable::ENTRIES - 1 {
            return Err(Error::Limit {
                what: "regions",
                asked: entries.regions.len() as u64 + 1,
                max: RegionTable::ENTRIES as u64 - 1,
            });
        }
        // A free place in the table; there is one, and 0 is no key.
        let key = loop {
            let key = self.0.last_region.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
            if key != 0 && self.0.table.is_free(key) {
                break key;
            }
        };
        let address = start.as_ptr() as u64;
        entries.regions.insert(key, RegionEntry { file, address, bytes: bytes as u64, access });
        self.0.table.set(key);
        drop(entries);
        let registration = Registration {
            start,
            bytes,
            access,
            device: self.0.number,
            local_key: key,
            remote_key: key,
            owner: Box::new(Owner { device: self.0.clone(), key, _mapping: mapping }),
        };
        // SAFETY: the owner keeps the mapping.
        Ok(unsafe { Region::new(registration) })
    }

    unsafe fn register(&self, start: NonNull<u8>, bytes: usize, access: Access) -> Result<Region> {
        if access.remote() {
            return Err(Error::Unsupported { what: "opening memory to peers that is not its own" });
        }
        let registration = Registration {
            start,
            bytes,
            access,
            device: self.0.number,
            local_key: 0,
            remote_key: 0,
            owner: Box::new(()),
        };
        // SAFETY: the caller keeps the memory.
        Ok(unsafe { Region::new(registration) })
    }

    fn events(&self) -> Result<ShmEvents> {
        SoftEvents::new(self)
    }

    fn completion_queue(&self, entries: u32, events: Option<&ShmEvents>) -> Result<ShmQueue> {
        SoftQueue::new(self, entries, events)
    }

    fn queue_pair(
        &self,
        send: &ShmQueue,
        receive: &ShmQueue,
        sizes: QueueSizes,
        timing: Timing,
    ) -> Result<ShmPair> {
        SoftPair::new(self, [send, receive], sizes, |number, queues| {
            let (pair, entry) = ShmConnection::new(number, &self.0, queues, sizes, timing)?;
            lock(&self.0.directory.entries).pairs.insert(number, entry);
            Ok(Arc::new(pair))
        })
    }

    fn datagram(
        &self,
        send: &ShmQueue,
        receive: &ShmQueue,
        sizes: QueueSizes,
    ) -> Result<ShmDatagram> {
        SoftDatagram::new(self, [send, receive], sizes, |number| {
            let socket = unix_socket(libc::SOCK_DGRAM | libc::SOCK_NONBLOCK)?;
            bind(&socket, &datagram_name(self.0.id, number))?;
            Ok((socket, self.pair_endpoint(number)))
        })
    }
}

/// Where a thread sleeps.
pub type ShmEvents = SoftEvents<ShmDevice>;
/// A completion queue.
pub type ShmQueue = SoftQueue<ShmDevice>;
/// A reliable connection.
pub type ShmPair = SoftPair<ShmDevice>;
/// A datagram queue pair.
pub type ShmDatagram = SoftDatagram<ShmDevice>;

impl SoftDevice for ShmDevice {
    type Pair = ShmConnection;

    fn identity(&self) -> (u32, &Token) {
        (self.0.number, self.0.token())
    }

    fn is(&self, other: &ShmDevice) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    fn next_number(&self) -> u32 {
        self.0.last_pair.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
    }

    fn pair_endpoint(&self, number: u32) -> Endpoint {
        let mut detail = [0; ENDPOINT_DETAIL_BYTES];
        detail[..8].copy_from_slice(&self.0.id.to_le_bytes());
        detail[8..12].copy_from_slice(&number.to_le_bytes());
        Endpoint { provider: Provider::Shm, detail }
    }

    fn connect(&self, pair: &Arc<ShmConnection>, peer: &Endpoint) -> Result<()> {
        let (id, number) = parse(peer)?;
        let link = self.0.link(id)?;
        let identity = id ^ u64::from(number).rotate_left(32);
        pair.connect(link, identity, number)
    }

    fn forget(&self, number: u32) {
        lock(&self.0.directory.entries).pairs.remove(&number);
    }

    fn datagram_socket(&self, peer: &Endpoint) -> Result<SocketAddress> {
        let (id, number) = parse(peer)?;
        let (address, length) = address(&datagram_name(id, number));
        // SAFETY: a structure of the system's, of two fields without padding.
        Ok(unsafe { SocketAddress::new(&address, length) })
    }

    fn join(&self, _group: Group) -> Result<OwnedFd> {
        Err(NO_GROUPS)
    }

    fn group_address(&self, _group: Group) -> Result<SocketAddress> {
        Err(NO_GROUPS)
    }
}

const NO_GROUPS: Error = Error::Unsupported {
    what: "multicast groups over shm, whose Unix sockets have none; send to each receiver, or use \
           the fabric tcp or verbs",
};

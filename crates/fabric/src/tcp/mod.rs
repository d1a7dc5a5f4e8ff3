//! The provider `tcp`: any machines, without RDMA.
//!
//! A thread plays the network card. It receives bytes straight into the memory that a request
//! names, and holds the last 8 bytes back until all others are there; the target's workers need not
//! make progress. While a worker polls, it does the card's work itself, and the thread steps back.
//!
//! Each side of a queue pair opens a connection of its own for its requests. A closed connection is
//! an error at once. A silent peer is noticed within twice [`Timing::silence`], since each side
//! asks the other every quarter of that time. The target checks keys, ranges and access rights.
//! Nothing on the wire is secret. Datagrams go over UDP and carry the token.
//!
//! Multicast groups are IP multicast, on the network of the device's address, which has to be of
//! IPv4. Routers do not pass the datagrams on. A group's address follows from the job's token.

mod card;
mod epoll;
mod frame;
mod incoming;
mod multicast;
mod pair;
mod reader;
mod request;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub use self::frame::fuzz;

use self::card::{Card, OwnConnection};
use self::frame::Greeting;
use self::pair::TcpConnection;
use crate::contract::Fabric;
use crate::datagram::SocketAddress;
use crate::endpoint::{ENDPOINT_DETAIL_BYTES, Endpoint, Provider};
use crate::error::{Error, Result};
use crate::event_file::EventFile;
use crate::group::Group;
use crate::keys::KeyTable;
use crate::mapping::Mapping;
use crate::memory::{Access, Region, device_number};
use crate::queue::{Member, lock, random_id};
use crate::setup::{HEAD_BYTES, SetupError, Token, check_head};
use crate::soft::{SoftDatagram, SoftDevice, SoftEvents, SoftPair, SoftQueue};
use crate::work::{Limits, QueueSizes, Timing};

/// A set-up call may take so long.
const PATIENCE: Duration = Duration::from_secs(2);
/// A peer that has closed its connection may still have said why on ours.
const CLOSING: Duration = Duration::from_millis(20);

/// A process's part in a fabric over TCP.
#[derive(Clone)]
pub struct TcpDevice(Arc<Handle>);

/// Ends the thread with the last user's handle.
struct Handle {
    device: Arc<Device>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.device.stop.store(true, Ordering::Release);
        self.device.wake();
        if let Some(thread) = lock(&self.thread).take() {
            drop(thread.join());
        }
        // Connections hold their pairs, and pairs the device: the cycle would keep the device
        // alive.
        lock(&self.device.card).close();
        lock(&self.device.fresh).clear();
    }
}

struct Device {
    number: u32,
    limits: Limits,
    token: Token,
    /// Random, in the endpoints of queue pairs.
    id: u64,
    address: SocketAddr,
    keys: Arc<KeyTable>,
    last_pair: AtomicU32,
    pairs: Mutex<HashMap<u32, Weak<TcpConnection>>>,
    card: Mutex<Card>,
    /// Connections that the card has not seen yet.
    fresh: Mutex<Vec<OwnConnection>>,
    stop: AtomicBool,
    /// Since the card last asked for it, something has come up that sockets are to be watched for.
    changed: AtomicBool,
    wake: EventFile,
    start: Instant,
    /// When a worker last did the card's work, in microseconds since `start`; 0 for long ago.
    driven: AtomicU64,
}

impl Device {
    /// Lets the thread look again.
    fn wake(&self) {
        self.changed.store(true, Ordering::Release);
        self.wake.signal();
    }

    fn hear(&self) {
        self.wake.hear();
    }

    /// Whether a worker does the card's work now.
    fn is_driven(&self, within: Duration) -> bool {
        let driven = self.driven.load(Ordering::Relaxed);
        let now = self.start.elapsed().as_micros() as u64;
        driven != 0 && now.saturating_sub(driven) < within.as_micros() as u64
    }

    /// Whether a caller may be joined to the pair that it calls.
    fn may_call(&self, greeting: &Greeting) -> bool {
        let pair = lock(&self.pairs).get(&greeting.to).and_then(Weak::upgrade);
        pair.is_some_and(|pair| pair.may_call((greeting.device, greeting.from)))
    }

    /// A worker does the card's work.
    fn drive(self: &Arc<Self>) {
        if let Ok(mut card) = self.card.try_lock() {
            card.turn(self);
            let now = self.start.elapsed().as_micros() as u64;
            self.driven.store(now.max(1), Ordering::Relaxed);
        }
    }

    /// No worker does the card's work any more.
    fn hand_back(&self) {
        if self.driven.swap(0, Ordering::Relaxed) != 0 {
            self.wake();
        }
    }

    /// Opens a connection to a peer's pair.
    fn open(&self, from: u32, peer: &Peer) -> Result<TcpStream> {
        let io = |call| move |source| Error::Os { call, source };
        let stream = TcpStream::connect_timeout(&peer.address, PATIENCE)
            .map_err(io("connecting to a peer"))?;
        stream.set_nodelay(true).map_err(io("setsockopt(TCP_NODELAY)"))?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(io("setsockopt(SO_RCVTIMEO)"))?;
        stream.set_write_timeout(Some(PATIENCE)).map_err(io("setsockopt(SO_SNDTIMEO)"))?;
        let greeting = Greeting { device: self.id, from, to: peer.number };
        let mut answer = [0; HEAD_BYTES];
        (&stream).write_all(&greeting.encode(&self.token)).map_err(SetupError::from)?;
        (&stream).read_exact(&mut answer).map_err(SetupError::from)?;
        check_head(&answer, &self.token)?;
        stream.set_nonblocking(true).map_err(io("fcntl(O_NONBLOCK)"))?;
        Ok(stream)
    }
}

/// Content of an endpoint.
struct Peer {
    device: u64,
    number: u32,
    address: SocketAddr,
}

fn encode(device: u64, number: u32, address: SocketAddr) -> Endpoint {
    let mut detail = [0; ENDPOINT_DETAIL_BYTES];
    detail[..8].copy_from_slice(&device.to_le_bytes());
    detail[8..12].copy_from_slice(&number.to_le_bytes());
    detail[12..14].copy_from_slice(&address.port().to_le_bytes());
    match address.ip() {
        IpAddr::V4(ip) => {
            detail[14] = 4;
            detail[15..19].copy_from_slice(&ip.octets());
        }
        IpAddr::V6(ip) => {
            detail[14] = 6;
            detail[15..31].copy_from_slice(&ip.octets());
        }
    }
    Endpoint { provider: Provider::Tcp, detail }
}

fn parse(endpoint: &Endpoint) -> Result<Peer> {
    let detail = endpoint.detail_for(Provider::Tcp)?;
    let ip = match detail[14] {
        4 => IpAddr::V4(Ipv4Addr::from(std::array::from_fn::<u8, 4, _>(|i| detail[15 + i]))),
        6 => IpAddr::V6(Ipv6Addr::from(std::array::from_fn::<u8, 16, _>(|i| detail[15 + i]))),
        _ => return Err(Error::BadEndpoint { reason: "it has no IP address" }),
    };
    if ip.to_canonical().is_unspecified() {
        return Err(Error::BadEndpoint { reason: "its IP address is unspecified" });
    }
    let port = u16::from_le_bytes(std::array::from_fn(|i| detail[12 + i]));
    Ok(Peer {
        device: u64::from_le_bytes(std::array::from_fn(|i| detail[i])),
        number: u32::from_le_bytes(std::array::from_fn(|i| detail[8 + i])),
        address: SocketAddr::new(ip, port),
    })
}

/// Why nobody can listen at such an address.
fn unspecified(address: SocketAddr) -> String {
    let ip = address.ip();
    format!("peers cannot reach the unspecified address {ip}; give one of this machine's addresses")
}

impl TcpDevice {
    /// Listens at `address`, which peers have to be able to reach as written (port 0: any free
    /// port), for processes of the job with this token. The unspecified address (`0.0.0.0`, `::`)
    /// is refused: for a peer, it names the peer's own machine.
    pub fn open(token: Token, address: SocketAddr) -> Result<TcpDevice> {
        if address.ip().to_canonical().is_unspecified() {
            return Err(Error::Unavailable { what: "tcp", reason: unspecified(address) });
        }
        let io = |call| move |source| Error::Os { call, source };
        let listener = TcpListener::bind(address).map_err(io("listening for peers"))?;
        listener.set_nonblocking(true).map_err(io("fcntl(O_NONBLOCK)"))?;
        let address = listener.local_addr().map_err(io("getsockname"))?;
        let limits = Limits {
            progress_by_polling: true,
            multicast: multicast::interface(address).is_ok(),
            ..Limits::SOFTWARE
        };
        let device = Arc::new(Device {
            number: device_number(),
            limits,
            token,
            id: random_id()?,
            address,
            keys: Arc::default(),
            last_pair: AtomicU32::new(0),
            pairs: Mutex::default(),
            card: Mutex::new(Card::new(listener)?),
            fresh: Mutex::default(),
            stop: AtomicBool::new(false),
            changed: AtomicBool::new(true),
            wake: EventFile::new()?,
            start: Instant::now(),
            driven: AtomicU64::new(0),
        });
        let for_thread = device.clone();
        let thread = std::thread::Builder::new()
            .name("millstream-tcp".into())
            .spawn(move || card::run(&for_thread))
            .map_err(io("starting a thread"))?;
        Ok(TcpDevice(Arc::new(Handle { device, thread: Mutex::new(Some(thread)) })))
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.0.device.address
    }

    fn device(&self) -> &Arc<Device> {
        &self.0.device
    }
}

impl Fabric for TcpDevice {
    type Events = TcpEvents;
    type CompletionQueue = TcpQueue;
    type QueuePair = TcpPair;
    type Datagram = TcpDatagram;

    fn provider(&self) -> Provider {
        Provider::Tcp
    }

    fn limits(&self) -> &Limits {
        &self.device().limits
    }

    fn allocate(&self, bytes: usize, access: Access) -> Result<Region> {
        let memory = Arc::new(Mapping::anonymous(bytes)?);
        Ok(self.device().keys.add(self.device().number, memory, bytes, access))
    }

    unsafe fn register(&self, start: NonNull<u8>, bytes: usize, access: Access) -> Result<Region> {
        if access.remote() {
            return Err(Error::Unsupported { what: "opening memory to peers that is not its own" });
        }
        Ok(self.device().keys.add_foreign(self.device().number, start, bytes))
    }

    fn events(&self) -> Result<TcpEvents> {
        SoftEvents::new(self)
    }

    fn completion_queue(&self, entries: u32, events: Option<&TcpEvents>) -> Result<TcpQueue> {
        SoftQueue::new(self, entries, events)
    }

    fn queue_pair(
        &self,
        send: &TcpQueue,
        receive: &TcpQueue,
        sizes: QueueSizes,
        timing: Timing,
    ) -> Result<TcpPair> {
        SoftPair::new(self, [send, receive], sizes, |number, queues| {
            let pair = Arc::new(TcpConnection::new(number, self.device(), queues, sizes, timing));
            lock(&self.device().pairs).insert(number, Arc::downgrade(&pair));
            Ok(pair)
        })
    }

    fn datagram(
        &self,
        send: &TcpQueue,
        receive: &TcpQueue,
        sizes: QueueSizes,
    ) -> Result<TcpDatagram> {
        SoftDatagram::new(self, [send, receive], sizes, |number| {
            let io = |call| move |source| Error::Os { call, source };
            let socket = UdpSocket::bind((self.device().address.ip(), 0)).map_err(io("bind"))?;
            socket.set_nonblocking(true).map_err(io("fcntl(O_NONBLOCK)"))?;
            let address = socket.local_addr().map_err(io("getsockname"))?;
            if let IpAddr::V4(interface) = self.device().address.ip() {
                multicast::send_from(&socket, interface)?;
            }
            Ok((OwnedFd::from(socket), encode(self.device().id, number, address)))
        })
    }
}

/// Where a thread sleeps.
pub type TcpEvents = SoftEvents<TcpDevice>;
/// A completion queue.
pub type TcpQueue = SoftQueue<TcpDevice>;
/// A reliable connection.
pub type TcpPair = SoftPair<TcpDevice>;
/// A datagram queue pair.
pub type TcpDatagram = SoftDatagram<TcpDevice>;

impl SoftDevice for TcpDevice {
    type Pair = TcpConnection;

    fn identity(&self) -> (u32, &Token) {
        (self.device().number, &self.device().token)
    }

    fn is(&self, other: &TcpDevice) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    fn next_number(&self) -> u32 {
        self.device().last_pair.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
    }

    fn pair_endpoint(&self, number: u32) -> Endpoint {
        encode(self.device().id, number, self.address())
    }

    fn connect(&self, pair: &Arc<TcpConnection>, peer: &Endpoint) -> Result<()> {
        let peer = parse(peer)?;
        pair.check_fresh()?;
        let device = self.device();
        let stream = Arc::new(device.open(pair.number(), &peer)?);
        pair.connected((peer.device, peer.number), stream.clone());
        lock(&device.fresh).push(OwnConnection::new(stream, pair.clone()));
        device.wake();
        Ok(())
    }

    fn forget(&self, number: u32) {
        lock(&self.device().pairs).remove(&number);
    }

    fn datagram_socket(&self, peer: &Endpoint) -> Result<SocketAddress> {
        let (address, length) = internet(&parse(peer)?.address);
        // SAFETY: a structure of the system's, of fields without padding.
        Ok(unsafe { SocketAddress::new(&address, length) })
    }

    fn join(&self, group: Group) -> Result<OwnedFd> {
        let device = self.device();
        let (at, interface) = (self.group_address(group)?, multicast::interface(device.address)?);
        multicast::join(&at, *group.address(&device.token).ip(), interface)
    }

    fn group_address(&self, group: Group) -> Result<SocketAddress> {
        let device = self.device();
        multicast::interface(device.address)?;
        let (address, length) = internet(&SocketAddr::V4(group.address(&device.token)));
        // SAFETY: a structure of the system's, of fields without padding.
        Ok(unsafe { SocketAddress::new(&address, length) })
    }

    fn drive(&self) {
        self.device().drive();
    }

    fn rest(&self) {
        self.device().hand_back();
    }
}

/// An address as the system wants it.
fn internet(address: &SocketAddr) -> (libc::sockaddr_in6, libc::socklen_t) {
    // SAFETY: zeros are a valid address.
    let mut six: libc::sockaddr_in6 = unsafe { std::mem::zeroed() };
    match address {
        SocketAddr::V6(address) => {
            six.sin6_family = libc::AF_INET6 as libc::sa_family_t;
            six.sin6_port = address.port().to_be();
            six.sin6_addr.s6_addr = address.ip().octets();
            six.sin6_scope_id = address.scope_id();
            (six, size_of::<libc::sockaddr_in6>() as libc::socklen_t)
        }
        SocketAddr::V4(address) => {
            let four = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: address.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from(*address.ip()).to_be() },
                sin_zero: [0; 8],
            };
            // SAFETY: the smaller address lies at the start of the larger; both are plain bytes.
            unsafe { (&raw mut six).cast::<libc::sockaddr_in>().write(four) };
            (six, size_of::<libc::sockaddr_in>() as libc::socklen_t)
        }
    }
}

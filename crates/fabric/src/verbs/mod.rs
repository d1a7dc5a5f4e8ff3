//! The provider `verbs`: RDMA devices (InfiniBand, RoCE and Soft-RoCE), through libibverbs.
//!
//! ```no_run
//! use millstream_fabric::verbs::{Options, Verbs};
//! # use millstream_fabric::{Error, Fabric};
//!
//! let fabric = Verbs::open(&Options::default())?;
//! println!("{fabric}: {:?}", fabric.limits());
//! # Ok::<(), Error>(())
//! ```
//!
//! Differences between devices, where the contract leaves the choice:
//!
//! - The driver manages the room in a queue. Soft-RoCE frees the entries of unsignalled work by
//!   itself.
//! - The address handles that a datagram queue pair has resolved live as long as the queue pair.
//! - Multicast groups need RoCE v2, a GID of an IPv4 address and [`Options::token`]. Datagram queue
//!   pairs of different devices have the same key only if all devices have the job's token.
//! - The overflow of a completion queue is noticed when the queue is found empty many times, or by
//!   waiting.
//! - The failure of a connection is noticed when the completion that reports it is polled.

mod address;
mod datagram;
mod failures;
mod multicast;
mod pair;
mod queue;
mod request;

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::Ipv6Addr;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use millstream_verbs as ibv;

pub use self::address::fuzz;
pub use self::datagram::{VerbsAddress, VerbsDatagram};
use self::failures::{Failures, Part};
use self::multicast::Multicast;
pub use self::pair::VerbsQueuePair;
pub use self::queue::{VerbsCompletionQueue, VerbsEvents};
use crate::contract::Fabric;
use crate::endpoint::Provider;
use crate::error::{Error, Result};
use crate::group::datagram_key;
use crate::mapping::Mapping;
use crate::memory::{Access, Region, Registration, device_number};
use crate::setup::Token;
use crate::work::{Limits, QueueSizes, Timing};

/// Choice of a device. By default: the first device with an active port, its first such port, and
/// on Ethernet a GID of RoCE version 2, preferably of an IPv4 address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// Name of the device, such as `mlx5_0`.
    pub device: Option<String>,
    /// The port; they count from 1.
    pub port: Option<u8>,
    /// Place in the port's GID table.
    pub gid_index: Option<u8>,
    /// Service level: a class of traffic.
    pub service_level: u8,
    /// Whether writes land in address order, if you know better than the driver, which may not say.
    pub ordered_placement: Option<bool>,
    /// The job's token. Addresses and keys of multicast groups follow from the token, so there are
    /// no groups without.
    pub token: Option<Token>,
}

/// An open RDMA device.
#[derive(Clone)]
pub struct Verbs(Arc<Device>);

struct Device {
    /// See [`device_number`].
    number: u32,
    context: Arc<ibv::Context>,
    domain: Arc<ibv::ProtectionDomain>,
    port_number: u8,
    port: ibv::Port,
    gid: Option<ibv::GidEntry>,
    service_level: u8,
    /// Reads and atomics that a queue pair accepts, and starts, at a time.
    reads: (u8, u8),
    limits: Limits,
    /// Key of datagrams to this device.
    key: u32,
    /// Multicast, or the reason why there is none.
    multicast: std::result::Result<Multicast, &'static str>,
    failures: Failures,
}

impl Verbs {
    /// The device's name.
    pub fn name(&self) -> &str {
        &self.0.context.name().name
    }

    /// The port in use.
    pub fn port(&self) -> u8 {
        self.0.port_number
    }

    /// Place of its address in the port's GID table; InfiniBand may do without.
    pub fn gid_index(&self) -> Option<u8> {
        self.0.gid_index()
    }

    /// Opens a device.
    pub fn open(options: &Options) -> Result<Verbs> {
        let names = match &options.device {
            Some(name) => vec![name.clone()],
            None => devices()?,
        };
        let mut reason = None;
        for name in names {
            match Verbs::open_device(&name, options) {
                Ok(device) => return Ok(device),
                Err(error) => reason.get_or_insert(error),
            };
        }
        Err(reason.unwrap_or(unavailable("there is no device".into())))
    }

    fn open_device(name: &str, options: &Options) -> Result<Verbs> {
        let context = ibv::Context::open(name).map_err(|why| unavailable(why.reason()))?;
        let device_limits = context.limits().map_err(os)?;
        let (port_number, port) = choose_port(&context, name, device_limits.ports, options.port)?;
        let gid = choose_gid(&context, name, port_number, &port, options.gid_index)?;
        let domain = ibv::ProtectionDomain::new(&context).map_err(os)?;
        let probe = probe(&domain)?;
        let multicast = Multicast::new(options.token, &port, gid.as_ref(), &device_limits);
        let limits = Limits {
            queue_entries: device_limits.requests_per_queue,
            completion_entries: device_limits.completions_per_queue,
            message_bytes: port.message_bytes_max as usize,
            datagram_bytes: port.mtu.bytes(),
            inline_bytes: probe.inline_bytes,
            ordered_placement: options.ordered_placement.unwrap_or(probe.ordered_placement),
            registers_remote: true,
            progress_by_polling: false,
            multicast: multicast.is_ok(),
        };
        let accepted = device_limits.reads_accepted_per_queue_pair.min(READS_MAX);
        let started = device_limits.reads_started_per_queue_pair.min(READS_MAX);
        Ok(Verbs(Arc::new(Device {
            number: device_number(),
            context,
            domain,
            port_number,
            port,
            gid,
            service_level: options.service_level,
            reads: (accepted, started),
            limits,
            // Keys with the highest bit are for the system.
            key: options.token.as_ref().map_or(random() & 0x7fff_ffff, datagram_key),
            multicast,
            failures: Failures::default(),
        })))
    }
}

/// Names of the devices that are present, at least one; else the reason.
pub fn devices() -> Result<Vec<String>> {
    let devices = ibv::devices().map_err(|why| unavailable(why.reason()))?;
    Ok(devices.into_iter().map(|device| device.name).collect())
}

/// Reads and atomics under way at one queue pair, at most: what small devices have.
const READS_MAX: u8 = 16;

fn unavailable(reason: String) -> Error {
    Error::Unavailable { what: "RDMA", reason }
}

/// A call of the library that failed.
fn os(error: ibv::Error) -> Error {
    let source = std::io::Error::from_raw_os_error(error.errno);
    Error::Os { call: error.call, source }
}

/// Some number, different each time.
fn random() -> u32 {
    RandomState::new().build_hasher().finish() as u32
}

/// The port asked for, or the first active one.
fn choose_port(
    context: &ibv::Context,
    name: &str,
    ports: u8,
    asked: Option<u8>,
) -> Result<(u8, ibv::Port)> {
    let candidates = match asked {
        Some(port) if port == 0 || port > ports => {
            return Err(unavailable(format!("{name} has no port {port}; there are 1 to {ports}")));
        }
        Some(port) => port..=port,
        None => 1..=ports,
    };
    for number in candidates {
        let port = context.port(number).map_err(os)?;
        if port.is_active() {
            return Ok((number, port));
        }
    }
    Err(unavailable(match asked {
        Some(port) => format!("port {port} of {name} is not active; is its link up?"),
        None => format!("no port of {name} is active; is its link up?"),
    }))
}

/// The GID asked for, or on Ethernet the best one. InfiniBand does without.
fn choose_gid(
    context: &ibv::Context,
    name: &str,
    port_number: u8,
    port: &ibv::Port,
    asked: Option<u8>,
) -> Result<Option<ibv::GidEntry>> {
    if !port.ethernet && asked.is_none() {
        return Ok(None);
    }
    let gids = context.gids().map_err(os)?;
    let gids = gids.into_iter().filter(|entry| entry.port == port_number);
    let found = match asked {
        Some(index) => gids.into_iter().find(|entry| entry.index == index),
        None => gids.into_iter().min_by_key(gid_rank),
    };
    let missing = || {
        let what = asked.map_or("no GID".into(), |index| format!("no GID at index {index}"));
        unavailable(format!(
            "port {port_number} of {name} has {what}; has its network interface an address?"
        ))
    };
    found.map(Some).ok_or_else(missing)
}

/// Routable before not; with an IPv4 address before others; else in the table's order.
fn gid_rank(entry: &ibv::GidEntry) -> (bool, bool, u8) {
    let ipv4 = Ipv6Addr::from(entry.gid).to_ipv4_mapped().is_some();
    (entry.kind != ibv::GidKind::RoceV2, !ipv4, entry.index)
}

/// Capabilities that only a queue pair reports.
struct Probe {
    inline_bytes: usize,
    ordered_placement: bool,
}

fn probe(domain: &Arc<ibv::ProtectionDomain>) -> Result<Probe> {
    let queue = ibv::CompletionQueue::new(domain.context(), 16, None, 0).map_err(os)?;
    let sizes = QueueSizes { send: 8, receive: 8 };
    let mut refused = None;
    // Enough for a footer and a credit; some devices take less, and none need more.
    for inline_bytes in [128, 64, 32, 0] {
        let kind = ibv::Transport::Reliable;
        match pair::create(domain, kind, &queue, &queue, sizes, inline_bytes) {
            Ok(pair) => {
                let ordered_placement = pair.places_writes_in_order();
                return Ok(Probe { inline_bytes: inline_bytes as usize, ordered_placement });
            }
            Err(error) => refused = Some(error),
        }
    }
    Err(refused.map_or(unavailable("no queue pair can be made".into()), os))
}

impl Device {
    fn gid_index(&self) -> Option<u8> {
        self.gid.map(|entry| entry.index)
    }

    /// Takes the events that have come, and marks what has failed.
    fn take_events(&self) -> Result<()> {
        while let Some(event) = self.context.next_event(Duration::ZERO).map_err(os)? {
            match (event.source, event.number) {
                (ibv::EventSource::CompletionQueue(tag), _) => self.failures.mark(Part::Queue(tag)),
                (
                    ibv::EventSource::QueuePair(number),
                    ibv::AsyncEvent::QUEUE_PAIR_FATAL
                    | ibv::AsyncEvent::QUEUE_PAIR_REQUEST_ERROR
                    | ibv::AsyncEvent::QUEUE_PAIR_ACCESS_ERROR,
                ) => self.failures.mark(Part::Pair(number)),
                _ => {}
            }
        }
        Ok(())
    }

    fn region(
        &self,
        start: NonNull<u8>,
        bytes: usize,
        access: Access,
    ) -> Result<ibv::MemoryRegion> {
        let mut allowed = ibv::Access::LOCAL_WRITE;
        for (is_allowed, right) in [
            (access.remote_read, ibv::Access::REMOTE_READ),
            (access.remote_write, ibv::Access::REMOTE_WRITE),
            (access.remote_atomic, ibv::Access::REMOTE_ATOMIC),
        ] {
            if is_allowed {
                allowed = allowed | right;
            }
        }
        // SAFETY: both callers keep the memory, or have the promise that it is kept, until the
        // region is gone.
        unsafe { ibv::MemoryRegion::register(&self.domain, start, bytes, allowed) }.map_err(os)
    }

    fn registered(
        &self,
        region: ibv::MemoryRegion,
        bytes: usize,
        access: Access,
        memory: Option<Mapping>,
    ) -> Region {
        let registration = Registration {
            start: region.address(),
            bytes,
            access,
            device: self.number,
            local_key: region.local_key(),
            remote_key: region.remote_key(),
            // Dropped in this order.
            owner: Box::new((region, memory)),
        };
        // SAFETY: the owner keeps the mapping; foreign memory is kept by the caller of `register`.
        unsafe { Region::new(registration) }
    }
}

impl Fabric for Verbs {
    type Events = VerbsEvents;
    type CompletionQueue = VerbsCompletionQueue;
    type QueuePair = VerbsQueuePair;
    type Datagram = VerbsDatagram;

    fn provider(&self) -> Provider {
        Provider::Verbs
    }

    fn limits(&self) -> &Limits {
        &self.0.limits
    }

    fn allocate(&self, bytes: usize, access: Access) -> Result<Region> {
        let memory = Mapping::anonymous(bytes)?;
        // A device registers at least one byte.
        let region = self.0.region(memory.start(), bytes.max(1), access)?;
        Ok(self.0.registered(region, bytes, access, Some(memory)))
    }

    unsafe fn register(&self, start: NonNull<u8>, bytes: usize, access: Access) -> Result<Region> {
        let region = self.0.region(start, bytes, access)?;
        Ok(self.0.registered(region, bytes, access, None))
    }

    fn events(&self) -> Result<VerbsEvents> {
        VerbsEvents::new(&self.0)
    }

    fn completion_queue(
        &self,
        entries: u32,
        events: Option<&VerbsEvents>,
    ) -> Result<VerbsCompletionQueue> {
        VerbsCompletionQueue::new(&self.0, entries, events)
    }

    fn queue_pair(
        &self,
        send: &VerbsCompletionQueue,
        receive: &VerbsCompletionQueue,
        sizes: QueueSizes,
        timing: Timing,
    ) -> Result<VerbsQueuePair> {
        VerbsQueuePair::new(&self.0, send, receive, sizes, timing)
    }

    fn datagram(
        &self,
        send: &VerbsCompletionQueue,
        receive: &VerbsCompletionQueue,
        sizes: QueueSizes,
    ) -> Result<VerbsDatagram> {
        VerbsDatagram::new(&self.0, send, receive, sizes)
    }
}

/// Device, port, network and address, for people.
impl fmt::Display for Verbs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let device = &*self.0;
        write!(f, "{} port {}", device.context.name().name, device.port_number)?;
        match device.gid {
            None => write!(f, ", InfiniBand, local identifier {}", device.port.lid)?,
            Some(entry) => {
                let kind = match entry.kind {
                    ibv::GidKind::InfiniBand => "InfiniBand",
                    ibv::GidKind::RoceV1 => "RoCE v1",
                    ibv::GidKind::RoceV2 => "RoCE v2",
                };
                let gid = Ipv6Addr::from(entry.gid);
                write!(f, ", {kind}, GID {gid} (index {})", entry.index)?;
            }
        }
        write!(f, ", packets of {} bytes", device.port.mtu.bytes())
    }
}

impl fmt::Debug for Verbs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Verbs({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routable_ipv4_addresses_are_preferred() {
        let gid = |address: &str| address.parse::<Ipv6Addr>().unwrap().octets();
        let entry =
            |index, kind, address| ibv::GidEntry { gid: gid(address), index, port: 1, kind };
        let (one, two) = (ibv::GidKind::RoceV1, ibv::GidKind::RoceV2);
        let mut table = [
            entry(0, one, "fe80::1"),
            entry(1, two, "fe80::1"),
            entry(2, one, "::ffff:10.0.0.1"),
            entry(3, two, "::ffff:10.0.0.1"),
            entry(4, two, "::ffff:10.0.0.2"),
        ];
        table.sort_by_key(gid_rank);
        assert_eq!(table.map(|entry| entry.index), [3, 4, 1, 2, 0]);
    }
}

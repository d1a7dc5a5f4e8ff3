//! Unreliable datagrams over an RDMA device.

use std::collections::HashMap;
use std::fmt;
use std::net::UdpSocket;
use std::sync::Arc;

use millstream_verbs as ibv;
use millstream_verbs::SendRequest;

use super::address::{Address, AddressKind};
use super::multicast::{self, Multicast};
use super::pair::{create_on, post_good};
use super::request::{BATCH, Parts, check_receive, post_receives};
use super::{Device, VerbsCompletionQueue, os, random};
use crate::contract::Datagram;
use crate::endpoint::Endpoint;
use crate::error::{Error, Result};
use crate::group::Group;
use crate::work::{Outgoing, QueueSizes, Receive, Rejected};

/// A datagram queue pair.
pub struct VerbsDatagram {
    device: Arc<Device>,
    address: Address,
    // Dropped before the handles, which its work refers to.
    pair: ibv::QueuePair,
    /// Handles by peer's port. A handle has to outlive its datagrams.
    handles: HashMap<ibv::Path, Arc<ibv::AddressHandle>>,
    /// Groups that were joined, with the sockets of the host's memberships.
    groups: HashMap<Group, UdpSocket>,
}

/// A peer's or a group's address handle, and what its datagrams need.
pub struct VerbsAddress {
    device: u32,
    handle: Arc<ibv::AddressHandle>,
    number: u32,
    key: u32,
}

impl fmt::Debug for VerbsAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VerbsAddress").field("number", &self.number).finish_non_exhaustive()
    }
}

impl VerbsDatagram {
    pub(super) fn new(
        device: &Arc<Device>,
        send: &VerbsCompletionQueue,
        receive: &VerbsCompletionQueue,
        sizes: QueueSizes,
    ) -> Result<VerbsDatagram> {
        let pair = create_on(device, ibv::Transport::Datagram, send, receive, sizes)?;
        pair.initialize_datagram(device.port_number, device.key).map_err(os)?;
        pair.start_datagram(random() & 0x00ff_ffff).map_err(os)?;
        let address = Address {
            kind: AddressKind::Datagram,
            gid: device.gid.map(|entry| entry.gid),
            lid: device.port.lid,
            number: pair.number(),
            first_packet: 0,
            mtu: device.port.mtu,
            reads: 0,
            receive_timer: 0,
            key: device.key,
        };
        Ok(VerbsDatagram {
            device: device.clone(),
            address,
            pair,
            handles: HashMap::new(),
            groups: HashMap::new(),
        })
    }

    fn multicast(&self) -> Result<&Multicast> {
        self.device.multicast.as_ref().map_err(|what| Error::Unsupported { what })
    }

    /// The handle for a path, made when it is first asked for.
    fn handle(&mut self, path: ibv::Path) -> Result<Arc<ibv::AddressHandle>> {
        if let Some(handle) = self.handles.get(&path) {
            return Ok(handle.clone());
        }
        let handle = Arc::new(ibv::AddressHandle::new(&self.device.domain, &path).map_err(os)?);
        self.handles.insert(path, handle.clone());
        Ok(handle)
    }

    /// Lengths, regions, and that the address was resolved by this device.
    fn check(&self, request: &Outgoing<'_, VerbsAddress>) -> Result<()> {
        if request.to.device != self.device.number {
            return Err(Error::ForeignObject { what: "address" });
        }
        request.check(self.device.number, &self.device.limits)
    }

    fn post_checked(
        &self,
        requests: &[Outgoing<'_, VerbsAddress>],
    ) -> std::result::Result<(), Rejected> {
        for (number, batch) in requests.chunks(BATCH).enumerate() {
            let parts: [Parts<'_>; BATCH] = std::array::from_fn(|i| {
                batch.get(i).map_or(Parts::default(), |request| Parts::of_source(&request.source))
            });
            let mut list: [SendRequest<'_>; BATCH] = std::array::from_fn(|i| match batch.get(i) {
                Some(request) => {
                    let VerbsAddress { handle, number, key, .. } = request.to;
                    let send = parts[i].send(request.id, request.immediate);
                    let send = send.to(handle, *number, *key);
                    if request.signalled { send.signaled() } else { send }
                }
                None => SendRequest::send(0, &[]),
            });
            self.pair.post_send(&mut list[..batch.len()]).map_err(|error| {
                rejected(ibv::PostError { posted: number * BATCH + error.posted, ..error })
            })?;
        }
        Ok(())
    }
}

fn rejected(error: ibv::PostError) -> Rejected {
    let reason = if error.error.is_queue_full() { Error::QueueFull } else { os(error.error) };
    Rejected { posted: error.posted, reason }
}

impl Datagram for VerbsDatagram {
    type Address = VerbsAddress;

    fn number(&self) -> u32 {
        self.pair.number()
    }

    fn endpoint(&self) -> Endpoint {
        self.address.endpoint()
    }

    fn resolve(&mut self, peer: &Endpoint) -> Result<VerbsAddress> {
        let device = &*self.device;
        let peer = Address::of(peer, AddressKind::Datagram)?;
        let path = peer.path(device.port_number, device.gid_index(), device.service_level)?;
        let (device, handle) = (device.number, self.handle(path)?);
        Ok(VerbsAddress { device, handle, number: peer.number, key: peer.key })
    }

    fn join(&mut self, group: Group) -> Result<()> {
        let multicast = self.multicast()?;
        if self.groups.contains_key(&group) {
            return Ok(());
        }
        let host = multicast.join_host(group)?;
        self.pair.attach(&multicast.gid(group), multicast::LID).map_err(os)?;
        self.groups.insert(group, host);
        Ok(())
    }

    fn resolve_group(&mut self, group: Group) -> Result<VerbsAddress> {
        let device = &self.device;
        let path = ibv::Path {
            port: device.port_number,
            gid_index: device.gid_index().unwrap_or(0),
            gid: Some(self.multicast()?.gid(group)),
            lid: multicast::LID,
            service_level: device.service_level,
        };
        let (device, key) = (device.number, device.key);
        let handle = self.handle(path)?;
        Ok(VerbsAddress { device, handle, number: multicast::QUEUE_PAIR, key })
    }

    fn post(
        &mut self,
        requests: &[Outgoing<'_, VerbsAddress>],
    ) -> std::result::Result<(), Rejected> {
        post_good(requests, |request| self.check(request), |good| self.post_checked(good))
    }

    fn post_receive(&mut self, receives: &[Receive<'_>]) -> std::result::Result<(), Rejected> {
        post_good(receives, check_receive(self.device.number), |good| {
            post_receives(|list| self.pair.post_receive(list), good).map_err(rejected)
        })
    }
}

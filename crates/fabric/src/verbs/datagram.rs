//! Unreliable datagrams over an RDMA device.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use millstream_verbs as ibv;
use millstream_verbs::SendRequest;

use super::address::{Address, AddressKind};
use super::pair::{create_on, post_good};
use super::request::{BATCH, Parts, check_receive, post_receives};
use super::{Device, VerbsCompletionQueue, os, random};
use crate::contract::Datagram;
use crate::endpoint::Endpoint;
use crate::error::{Error, Result};
use crate::work::{Outgoing, QueueSizes, Receive, Rejected};

/// A datagram queue pair.
pub struct VerbsDatagram {
    device: Arc<Device>,
    address: Address,
    // Dropped before the handles, which its work refers to.
    pair: ibv::QueuePair,
    /// Handles by peer's port. A handle has to outlive its datagrams.
    handles: HashMap<ibv::Path, Arc<ibv::AddressHandle>>,
}

/// A peer's address handle, and what its datagrams need.
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
        Ok(VerbsDatagram { device: device.clone(), address, handles: HashMap::new(), pair })
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
        let handle = match self.handles.get(&path) {
            Some(handle) => handle.clone(),
            None => {
                let handle = ibv::AddressHandle::new(&device.domain, &path).map_err(os)?;
                self.handles.entry(path).or_insert(Arc::new(handle)).clone()
            }
        };
        Ok(VerbsAddress { device: device.number, handle, number: peer.number, key: peer.key })
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

//! Reliable connections over an RDMA device.

use std::array::from_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use millstream_verbs as ibv;
use millstream_verbs::SendRequest;

use super::address::{Address, AddressKind, RETRIES, answer_timeout, receive_retries};
use super::request::{BATCH, Parts, check_receive, post_receives};
use super::{Device, Part, VerbsCompletionQueue, os, random};
use crate::contract::{QueuePair, State};
use crate::endpoint::Endpoint;
use crate::error::{Error, Result};
use crate::queue::check_limit;
use crate::work::{QueueSizes, Receive, Rejected, Timing, WorkRequest};

/// A reliable connection.
pub struct VerbsQueuePair {
    device: Arc<Device>,
    pair: ibv::QueuePair,
    address: Address,
    timeout: u8,
    receive_retries: u8,
    connected: bool,
    failed: Arc<AtomicBool>,
    overflowed: [Arc<AtomicBool>; 2],
}

pub(super) fn create(
    domain: &Arc<ibv::ProtectionDomain>,
    transport: ibv::Transport,
    send: &Arc<ibv::CompletionQueue>,
    receive: &Arc<ibv::CompletionQueue>,
    sizes: QueueSizes,
    inline_bytes: u32,
) -> std::result::Result<ibv::QueuePair, ibv::Error> {
    let capacity = ibv::Capacity {
        sends: sizes.send.max(1),
        receives: sizes.receive.max(1),
        send_pieces: 1,
        receive_pieces: 1,
        inline_bytes,
    };
    let options = ibv::QueuePairOptions {
        transport,
        send_queue: send,
        receive_queue: receive,
        capacity,
        all_signaled: false,
    };
    ibv::QueuePair::new(domain, &options)
}

/// A queue pair of either kind, once its queues and sizes are found to fit the device.
pub(super) fn create_on(
    device: &Arc<Device>,
    transport: ibv::Transport,
    send: &VerbsCompletionQueue,
    receive: &VerbsCompletionQueue,
    sizes: QueueSizes,
) -> Result<ibv::QueuePair> {
    if !Arc::ptr_eq(&send.device, device) || !Arc::ptr_eq(&receive.device, device) {
        return Err(Error::ForeignObject { what: "completion queue" });
    }
    check_limit("queue entries", sizes.send.max(sizes.receive), device.limits.queue_entries)?;
    let inline_bytes = device.limits.inline_bytes as u32;
    create(&device.domain, transport, &send.queue, &receive.queue, sizes, inline_bytes).map_err(os)
}

impl VerbsQueuePair {
    pub(super) fn new(
        device: &Arc<Device>,
        send: &VerbsCompletionQueue,
        receive: &VerbsCompletionQueue,
        sizes: QueueSizes,
        timing: Timing,
    ) -> Result<VerbsQueuePair> {
        let (receive_retries, receive_timer) = receive_retries(timing.receiver_not_ready)?;
        let pair = create_on(device, ibv::Transport::Reliable, send, receive, sizes)?;
        // Regions say what is allowed; receives can be posted from now on.
        pair.initialize_reliable(device.port_number, ibv::Access::ALL).map_err(os)?;
        let address = Address {
            kind: AddressKind::Reliable,
            gid: device.gid.map(|entry| entry.gid),
            lid: device.port.lid,
            number: pair.number(),
            first_packet: random() & 0x00ff_ffff,
            mtu: device.port.mtu,
            reads: device.reads.0,
            receive_timer,
            key: 0,
        };
        Ok(VerbsQueuePair {
            device: device.clone(),
            pair,
            address,
            timeout: answer_timeout(timing.silence),
            receive_retries,
            connected: false,
            failed: device.failures.add(Part::Pair(address.number)),
            overflowed: [send.overflowed.clone(), receive.overflowed.clone()],
        })
    }

    fn is_failed(&self) -> bool {
        let flags = [&self.failed, &self.overflowed[0], &self.overflowed[1]];
        flags.iter().any(|flag| flag.load(Ordering::Relaxed))
    }

    /// Posts up to `N` requests, all checked, with one doorbell.
    fn post_batch<const N: usize>(
        &self,
        requests: &[WorkRequest<'_>],
    ) -> std::result::Result<(), Rejected> {
        let parts: [Parts<'_>; N] = from_fn(|i| match requests.get(i) {
            Some(request) => Parts::of(&request.operation),
            None => Parts::default(),
        });
        let mut list: [SendRequest<'_>; N] = from_fn(|i| match requests.get(i) {
            Some(request) => parts[i].request(request),
            None => SendRequest::send(0, &[]),
        });
        let count = requests.len();
        self.pair.post_send(&mut list[..count]).map_err(|error| self.rejected(error))
    }

    /// Posts requests that were checked. Short lists, which are most, cost no more than they need.
    fn post_checked(&self, requests: &[WorkRequest<'_>]) -> std::result::Result<(), Rejected> {
        match requests.len() {
            1 => self.post_batch::<1>(requests),
            2 => self.post_batch::<2>(requests),
            _ => {
                for (number, batch) in requests.chunks(BATCH).enumerate() {
                    self.post_batch::<BATCH>(batch)
                        .map_err(|rejected| after(number * BATCH, rejected))?;
                }
                Ok(())
            }
        }
    }

    fn rejected(&self, error: ibv::PostError) -> Rejected {
        let reason = match error.error {
            error if error.is_queue_full() => Error::QueueFull,
            _ if self.is_failed() => Error::Failed,
            error => os(error),
        };
        Rejected { posted: error.posted, reason }
    }
}

/// The same, with so many posted before.
fn after(posted: usize, rejected: Rejected) -> Rejected {
    Rejected { posted: posted + rejected.posted, ..rejected }
}

/// Nothing was posted.
fn refused(reason: Error) -> Rejected {
    Rejected { posted: 0, reason }
}

/// Checks all requests; posts the requests before the first bad one.
pub(super) fn post_good<T>(
    all: &[T],
    check: impl Fn(&T) -> Result<()>,
    post: impl FnOnce(&[T]) -> std::result::Result<(), Rejected>,
) -> std::result::Result<(), Rejected> {
    let bad = all.iter().enumerate().find_map(|(i, one)| check(one).err().map(|why| (i, why)));
    match bad {
        None => post(all),
        Some((0, reason)) => Err(refused(reason)),
        Some((posted, reason)) => {
            post(&all[..posted])?;
            Err(Rejected { posted, reason })
        }
    }
}

impl QueuePair for VerbsQueuePair {
    fn number(&self) -> u32 {
        self.pair.number()
    }

    fn endpoint(&self) -> Endpoint {
        self.address.endpoint()
    }

    fn connect(&mut self, peer: &Endpoint) -> Result<()> {
        if self.connected {
            return Err(Error::AlreadyConnected);
        }
        let device = &*self.device;
        let peer = Address::of(peer, AddressKind::Reliable)?;
        let path = peer.path(device.port_number, device.gid_index(), device.service_level)?;
        let connection = ibv::Peer {
            path,
            queue_pair: peer.number,
            first_packet: peer.first_packet,
            mtu: peer.mtu.min(device.port.mtu),
            reads_accepted: device.reads.0,
            // The peer waits between its tries as long as this side tells it to: as it wants.
            receiver_not_ready_timer: peer.receive_timer,
        };
        let retries = ibv::Retries {
            first_packet: self.address.first_packet,
            reads_started: device.reads.1.min(peer.reads),
            timeout: self.timeout,
            count: RETRIES,
            receiver_not_ready: self.receive_retries,
        };
        self.pair.connect(&connection).map_err(os)?;
        self.pair.start_reliable(&retries).map_err(os)?;
        self.connected = true;
        Ok(())
    }

    #[inline]
    fn post(&mut self, requests: &[WorkRequest<'_>]) -> std::result::Result<(), Rejected> {
        if !self.connected {
            return Err(refused(Error::NotConnected));
        }
        if self.is_failed() {
            return Err(refused(Error::Failed));
        }
        let check = |request: &WorkRequest<'_>| {
            request.operation.check(self.device.number, &self.device.limits)
        };
        post_good(requests, check, |good| self.post_checked(good))
    }

    fn post_receive(&mut self, receives: &[Receive<'_>]) -> std::result::Result<(), Rejected> {
        if self.is_failed() {
            return Err(refused(Error::Failed));
        }
        post_good(receives, check_receive(self.device.number), |good| {
            post_receives(|list| self.pair.post_receive(list), good)
                .map_err(|error| self.rejected(error))
        })
    }

    fn state(&self) -> State {
        match (self.is_failed(), self.connected) {
            (true, _) => State::Failed,
            (false, true) => State::Connected,
            (false, false) => State::Fresh,
        }
    }

    fn fail(&mut self) {
        self.failed.store(true, Ordering::Relaxed);
        // It can only have failed already.
        let _ = self.pair.fail();
    }
}

//! The handles that the providers `shm` and `tcp` share, which play the network card in software.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use crate::contract::{CompletionQueue, Datagram, Events, Fabric, QueuePair, State};
use crate::datagram::{SharedDatagram, SocketAddress};
use crate::endpoint::Endpoint;
use crate::error::{Error, Result};
use crate::group::Group;
use crate::kept::post_all;
use crate::memory::{Region, RemoteRegion};
use crate::queue::{Datagrams, Member, Queue, Sleep, check_limit};
use crate::setup::Token;
use crate::work::{Completion, Outgoing, QueueSizes, Receive, Rejected, WorkRequest};

/// Provider-specific part of a device in software.
pub trait SoftDevice: Fabric {
    /// Connection, as completion queues see it.
    type Pair: Connection;

    /// Number of the device in this process, and the job's token.
    fn identity(&self) -> (u32, &Token);
    /// Whether it is the same device.
    fn is(&self, other: &Self) -> bool;
    /// A number for a new queue pair.
    fn next_number(&self) -> u32;
    /// Where peers find queue pair `number`.
    fn pair_endpoint(&self, number: u32) -> Endpoint;
    /// Connects a pair to a peer's.
    fn connect(&self, pair: &Arc<Self::Pair>, peer: &Endpoint) -> Result<()>;
    /// Forgets queue pair `number`, which is gone.
    fn forget(&self, number: u32);
    /// The socket of a peer's datagram queue pair.
    fn datagram_socket(&self, peer: &Endpoint) -> Result<SocketAddress>;
    /// A new socket that receives the datagrams to a group and nothing else.
    fn join(&self, group: Group) -> Result<OwnedFd>;
    /// The address of a group.
    fn group_address(&self, group: Group) -> Result<SocketAddress>;
    /// A worker polls: it may do the card's work.
    fn drive(&self) {}
    /// A worker goes to sleep.
    fn rest(&self) {}
}

/// A connection, known to its owner and its completion queues.
pub trait Connection: Member {
    /// As in [`QueuePair::window`].
    fn window(&self, peer: &RemoteRegion) -> Result<Option<Region>>;
    /// As in [`QueuePair::post`].
    fn post(&self, requests: &[WorkRequest<'_>]) -> std::result::Result<(), Rejected>;
    /// As in [`QueuePair::post_receive`].
    fn post_receives(&self, receives: &[Receive<'_>]) -> std::result::Result<(), Rejected>;
    /// As in [`QueuePair::state`].
    fn state(&self) -> State;
}

/// Where a thread sleeps.
pub struct SoftEvents<D> {
    device: D,
    sleep: Arc<Sleep>,
    seen: u32,
}

impl<D: SoftDevice> SoftEvents<D> {
    pub(crate) fn new(device: &D) -> Result<SoftEvents<D>> {
        Ok(SoftEvents { device: device.clone(), sleep: Arc::new(Sleep::new()?), seen: 0 })
    }
}

impl<D: SoftDevice> Events for SoftEvents<D> {
    fn wait(&mut self, timeout: Duration) -> Result<bool> {
        self.device.rest();
        let (seen, something) = self.sleep.wait(self.seen, timeout);
        self.seen = seen;
        Ok(something)
    }

    fn waker(&self) -> Waker {
        self.sleep.clone().into()
    }
}

/// A completion queue.
pub struct SoftQueue<D: SoftDevice> {
    device: D,
    queue: Arc<Queue<D::Pair>>,
}

impl<D: SoftDevice> SoftQueue<D> {
    pub(crate) fn new(
        device: &D,
        entries: u32,
        events: Option<&SoftEvents<D>>,
    ) -> Result<SoftQueue<D>> {
        check_limit("completion queue entries", entries, device.limits().completion_entries)?;
        let sleep = events.map(|events| events.sleep.clone());
        let queue = Arc::new(Queue::new(entries as usize, sleep));
        Ok(SoftQueue { device: device.clone(), queue })
    }
}

impl<D: SoftDevice> CompletionQueue for SoftQueue<D> {
    #[inline]
    fn poll(&mut self, out: &mut [Completion]) -> Result<usize> {
        self.device.drive();
        self.queue.poll(out)
    }

    fn arm(&mut self) -> Result<()> {
        self.queue.arm()
    }
}

/// Queues for sends and receives of a pair.
pub(crate) type Queues<'a, D> =
    (&'a Arc<Queue<<D as SoftDevice>::Pair>>, &'a Arc<Queue<<D as SoftDevice>::Pair>>);

/// Checks that a queue pair of these sizes can be made with these queues.
fn check<D: SoftDevice>(device: &D, queues: [&SoftQueue<D>; 2], sizes: QueueSizes) -> Result<()> {
    for asked in [sizes.send, sizes.receive] {
        check_limit("queue entries", asked, device.limits().queue_entries)?;
    }
    if queues.iter().any(|queue| !queue.device.is(device)) {
        return Err(Error::ForeignObject { what: "completion queue" });
    }
    Ok(())
}

/// A reliable connection.
pub struct SoftPair<D: SoftDevice> {
    device: D,
    shared: Arc<D::Pair>,
    queues: [Arc<Queue<D::Pair>>; 2],
}

impl<D: SoftDevice> SoftPair<D> {
    /// A pair created by `make` from the pair's number.
    pub(crate) fn new(
        device: &D,
        queues: [&SoftQueue<D>; 2],
        sizes: QueueSizes,
        make: impl FnOnce(u32, Queues<'_, D>) -> Result<Arc<D::Pair>>,
    ) -> Result<SoftPair<D>> {
        check(device, queues, sizes)?;
        let queues = queues.map(|queue| queue.queue.clone());
        let pair = make(device.next_number(), (&queues[0], &queues[1]))?;
        Queue::attach_pair((&queues[0], &queues[1]), &pair);
        Ok(SoftPair { device: device.clone(), shared: pair, queues })
    }
}

impl<D: SoftDevice> QueuePair for SoftPair<D> {
    fn number(&self) -> u32 {
        self.shared.number()
    }

    fn endpoint(&self) -> Endpoint {
        self.device.pair_endpoint(self.shared.number())
    }

    fn connect(&mut self, peer: &Endpoint) -> Result<()> {
        self.device.connect(&self.shared, peer)
    }

    fn window(&mut self, peer: &RemoteRegion) -> Result<Option<Region>> {
        self.shared.window(peer)
    }

    #[inline]
    fn post(&mut self, requests: &[WorkRequest<'_>]) -> std::result::Result<(), Rejected> {
        self.shared.post(requests)
    }

    fn post_receive(&mut self, receives: &[Receive<'_>]) -> std::result::Result<(), Rejected> {
        self.shared.post_receives(receives)
    }

    fn state(&self) -> State {
        self.shared.state()
    }

    fn fail(&mut self) {
        self.shared.end();
    }
}

impl<D: SoftDevice> Drop for SoftPair<D> {
    fn drop(&mut self) {
        self.shared.end();
        self.device.forget(self.shared.number());
        for queue in &self.queues {
            queue.detach(self.shared.number());
        }
    }
}

/// A datagram queue pair.
pub struct SoftDatagram<D: SoftDevice> {
    device: D,
    endpoint: Endpoint,
    shared: Arc<SharedDatagram<D::Pair>>,
    queues: [Arc<Queue<D::Pair>>; 2],
}

impl<D: SoftDevice> SoftDatagram<D> {
    /// A queue pair on a socket that `make` makes, given its number.
    pub(crate) fn new(
        device: &D,
        queues: [&SoftQueue<D>; 2],
        sizes: QueueSizes,
        make: impl FnOnce(u32) -> Result<(OwnedFd, Endpoint)>,
    ) -> Result<SoftDatagram<D>> {
        check(device, queues, sizes)?;
        let queues = queues.map(|queue| queue.queue.clone());
        let number = device.next_number();
        let (socket, endpoint) = make(number)?;
        let (device_number, token) = device.identity();
        let of = (device_number, *device.limits(), *token);
        let both = (&queues[0], &queues[1]);
        let shared = Arc::new(SharedDatagram::new(number, of, both, sizes, socket));
        let datagrams: Arc<dyn Datagrams<D::Pair>> = shared.clone();
        Queue::attach_datagrams(both, &datagrams);
        Ok(SoftDatagram { device: device.clone(), endpoint, shared, queues })
    }
}

impl<D: SoftDevice> Datagram for SoftDatagram<D> {
    type Address = SocketAddress;

    fn number(&self) -> u32 {
        self.shared.number
    }

    fn endpoint(&self) -> Endpoint {
        self.endpoint
    }

    fn resolve(&mut self, peer: &Endpoint) -> Result<SocketAddress> {
        self.device.datagram_socket(peer)
    }

    fn join(&mut self, group: Group) -> Result<()> {
        self.shared.join(group, || self.device.join(group))
    }

    fn resolve_group(&mut self, group: Group) -> Result<SocketAddress> {
        self.device.group_address(group)
    }

    fn post(
        &mut self,
        requests: &[Outgoing<'_, SocketAddress>],
    ) -> std::result::Result<(), Rejected> {
        post_all(requests, |request| self.shared.post(request.to, request))
    }

    fn post_receive(&mut self, receives: &[Receive<'_>]) -> std::result::Result<(), Rejected> {
        post_all(receives, |receive| self.shared.post_receive(receive))
    }
}

impl<D: SoftDevice> Drop for SoftDatagram<D> {
    fn drop(&mut self) {
        SharedDatagram::detach(&self.queues, self.shared.number);
    }
}

//! The provider `sim`: nodes in one process, in virtual time, from a seed.
//!
//! The provider serves tests of protocols under faults, and projections to racks out of reach. A
//! [`Sim`] is a world; each of its nodes is a [`Fabric`]. Time passes only through [`Sim::step`],
//! [`Sim::advance`], or a thread that waits at its events. Links follow a stated [`Model`]; nodes
//! can stop, and links can be cut. As with real network cards, a connection notices the loss of its
//! peer when it waits for an answer and gets none; the source of a write is read as late as
//! hardware might read it; and the target checks key, range and access rights. A datagram to a
//! group occupies the sender's link once and the link into each member's node once; loss,
//! repetition and delay are drawn for each member. A world is one job.
//!
//! Unlike the other providers, `sim` allocates per message.
//!
//! ```
//! use millstream_fabric::*;
//! use millstream_fabric::sim::{Model, Sim};
//!
//! let sim = Sim::new(7);
//! let (a, b) = (sim.node(Model::default()), sim.node(Model::default()));
//! let (from, to) = (a.allocate(4096, Access::LOCAL)?, b.allocate(4096, Access::REMOTE_WRITE)?);
//! let mut queue = a.completion_queue(16, None)?;
//! let other_queue = b.completion_queue(16, None)?;
//! let sizes = QueueSizes { send: 8, receive: 8 };
//! let mut left = a.queue_pair(&queue, &queue, sizes, Timing::default())?;
//! let mut right = b.queue_pair(&other_queue, &other_queue, sizes, Timing::default())?;
//! left.connect(&right.endpoint())?;
//! right.connect(&left.endpoint())?;
//!
//! from.write(0, b"grist")?;
//! let source = Source::Region { region: &from, offset: 0, bytes: 5 };
//! left.post(&[WorkRequest::write(source, to.remote().at(100, 5)?).signalled(1)])?;
//! let mut done = [Completion::default()];
//! while queue.poll(&mut done)? == 0 {
//!     sim.step();
//! }
//! let mut bytes = [0; 5];
//! to.read(100, &mut bytes)?;
//! assert_eq!((done[0].id, done[0].status, &bytes), (1, Status::Success, b"grist"));
//! # Ok::<(), Error>(())
//! ```

mod handles;
mod model;
mod pair;
mod target;
mod ud;
mod world;

use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub use handles::{SimAddress, SimDatagram, SimEvents, SimPair, SimQueue};
pub use model::{Model, Placement};

use self::pair::Pair;
use self::ud::Ud;
use self::world::{SimCompletions, World, nanoseconds};
use crate::contract::Fabric;
use crate::endpoint::{ENDPOINT_DETAIL_BYTES, Endpoint, Provider};
use crate::error::{Error, Result};
use crate::keys::KeyTable;
use crate::mapping::Mapping;
use crate::memory::{Access, Region, device_number};
use crate::queue::check_limit;
use crate::work::{Limits, QueueSizes, Timing};

type Shared = Arc<Mutex<World>>;

fn lock(world: &Shared) -> MutexGuard<'_, World> {
    world.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A simulated world.
#[derive(Clone)]
pub struct Sim {
    world: Shared,
    number: u32,
}

impl Sim {
    /// An empty world whose every choice is drawn from `seed`.
    pub fn new(seed: u64) -> Sim {
        Sim { world: Arc::new(Mutex::new(World::new(seed))), number: device_number() }
    }

    /// Adds a node.
    pub fn node(&self, model: Model) -> SimDevice {
        let keys = Arc::new(KeyTable::default());
        let node = lock(&self.world).add_node(model, keys.clone());
        let ordered_placement = model.placement != Placement::Shuffled;
        let limits = Limits { ordered_placement, multicast: true, ..Limits::SOFTWARE };
        let inner = Device { sim: self.clone(), node, keys, number: device_number(), limits };
        SimDevice(Arc::new(inner))
    }

    /// Virtual time since the world began.
    pub fn now(&self) -> Duration {
        Duration::from_nanos(lock(&self.world).now)
    }

    /// The time of a look at a device's clock, 50 ns by default. A world whose threads have virtual
    /// clocks of their own sets next to nothing: the look of one thread is no time of others.
    pub fn set_look(&self, time: Duration) {
        lock(&self.world).look = nanoseconds(time);
    }

    /// Lets the next thing happen, at its time. Returns false if nothing is left to happen.
    pub fn step(&self) -> bool {
        lock(&self.world).step()
    }

    /// Lets this much time pass, and happen what is due.
    pub fn advance(&self, time: Duration) {
        let mut world = lock(&self.world);
        let end = world.now + nanoseconds(time);
        world.run_until(end);
    }

    /// The node is gone, without a word to anybody.
    pub fn stop(&self, node: &SimDevice) {
        lock(&self.world).stop(node.0.node);
    }

    /// Nothing passes between the two nodes until [`Sim::mend`]. Connections survive a cut that is
    /// shorter than their [`Timing::silence`].
    pub fn cut(&self, a: &SimDevice, b: &SimDevice) {
        lock(&self.world).cut(a.0.node, b.0.node);
    }

    /// Ends a cut.
    pub fn mend(&self, a: &SimDevice, b: &SimDevice) {
        lock(&self.world).mend(a.0.node, b.0.node);
    }
}

/// A node of a [`Sim`].
#[derive(Clone)]
pub struct SimDevice(Arc<Device>);

struct Device {
    sim: Sim,
    node: usize,
    keys: Arc<KeyTable>,
    number: u32,
    limits: Limits,
}

impl SimDevice {
    fn world(&self) -> MutexGuard<'_, World> {
        lock(&self.0.sim.world)
    }

    fn check_sizes(&self, sizes: QueueSizes) -> Result<()> {
        for asked in [sizes.send, sizes.receive] {
            check_limit("queue entries", asked, self.0.limits.queue_entries)?;
        }
        Ok(())
    }

    fn check_queue(&self, queue: &SimQueue) -> Result<usize> {
        if Arc::ptr_eq(&queue.device.0, &self.0) {
            Ok(queue.index)
        } else {
            Err(Error::ForeignObject { what: "completion queue" })
        }
    }

    fn endpoint(&self, number: u32) -> Endpoint {
        let mut detail = [0; ENDPOINT_DETAIL_BYTES];
        detail[..4].copy_from_slice(&self.0.sim.number.to_le_bytes());
        detail[4..8].copy_from_slice(&number.to_le_bytes());
        Endpoint { provider: Provider::Sim, detail }
    }

    /// The queue pair number in a peer's endpoint.
    fn number_in(&self, peer: &Endpoint) -> Result<u32> {
        let detail = peer.detail_for(Provider::Sim)?;
        let word = |at| u32::from_le_bytes(std::array::from_fn(|i| detail[at + i]));
        if word(0) != self.0.sim.number {
            return Err(Error::BadEndpoint { reason: "it belongs to another simulation" });
        }
        Ok(word(4))
    }
}

impl Fabric for SimDevice {
    type Events = SimEvents;
    type CompletionQueue = SimQueue;
    type QueuePair = SimPair;
    type Datagram = SimDatagram;

    fn provider(&self) -> Provider {
        Provider::Sim
    }

    fn limits(&self) -> &Limits {
        &self.0.limits
    }

    /// Looking at the clock takes time ([`Sim::set_look`]), so that who waits for a time to come
    /// sees it come.
    fn now(&self) -> Duration {
        let mut world = self.world();
        let end = world.now + world.look;
        world.run_until(end);
        Duration::from_nanos(world.now)
    }

    fn allocate(&self, bytes: usize, access: Access) -> Result<Region> {
        let memory = Arc::new(Mapping::anonymous(bytes)?);
        Ok(self.0.keys.add(self.0.number, memory, bytes, access))
    }

    unsafe fn register(&self, start: NonNull<u8>, bytes: usize, access: Access) -> Result<Region> {
        if access.remote() {
            return Err(Error::Unsupported { what: "opening memory to peers that is not its own" });
        }
        Ok(self.0.keys.add_foreign(self.0.number, start, bytes))
    }

    fn events(&self) -> Result<SimEvents> {
        let mut world = self.world();
        world.signals.push(false);
        Ok(SimEvents { device: self.clone(), index: world.signals.len() - 1 })
    }

    fn completion_queue(&self, entries: u32, events: Option<&SimEvents>) -> Result<SimQueue> {
        check_limit("completion queue entries", entries, self.0.limits.completion_entries)?;
        let mut world = self.world();
        world.queues.push(SimCompletions {
            entries: VecDeque::new(),
            capacity: entries as usize,
            events: events.map(|events| events.index),
            armed: false,
            overflow: false,
        });
        Ok(SimQueue { device: self.clone(), index: world.queues.len() - 1 })
    }

    fn queue_pair(
        &self,
        send: &SimQueue,
        receive: &SimQueue,
        sizes: QueueSizes,
        timing: Timing,
    ) -> Result<SimPair> {
        self.check_sizes(sizes)?;
        let (send, receive) = (self.check_queue(send)?, self.check_queue(receive)?);
        let mut world = self.world();
        world.pairs.push(Pair::new(self.0.node, send, receive, sizes, timing));
        Ok(SimPair { device: self.clone(), index: world.pairs.len() - 1 })
    }

    fn datagram(
        &self,
        send: &SimQueue,
        receive: &SimQueue,
        sizes: QueueSizes,
    ) -> Result<SimDatagram> {
        self.check_sizes(sizes)?;
        let (send, receive) = (self.check_queue(send)?, self.check_queue(receive)?);
        let mut world = self.world();
        world.uds.push(Ud::new(self.0.node, send, receive, sizes));
        Ok(SimDatagram { device: self.clone(), index: world.uds.len() - 1 })
    }
}

//! Opening a sending endpoint, and connecting it.

use millstream_fabric::setup::Hello;
use millstream_fabric::{Access, Datagram, Fabric, QueuePair, Region};

use super::core::Core;
use super::datagrams::{Datagrams, Target};
use super::read::Read;
use super::send_receive::SendReceive;
use super::write::Write;
use super::{Out, Sender};
use crate::shuffle::design::{Endpoints, Transport};
use crate::shuffle::error::{Error, Result};
use crate::shuffle::hello::{Role, check_ids, parameters, peer_of};
use crate::shuffle::links::{Blocks, Links, new_pair};
use crate::shuffle::pool::{Buffers, Pool};
use crate::shuffle::settings::{CREDIT_SLOT_BYTES, Depth, Settings};

/// The queue pairs of an endpoint.
enum Pairs<F: Fabric> {
    Reliable(Vec<F::QueuePair>, Blocks),
    Datagrams(F::Datagram, Region),
}

/// A sending endpoint that is open, and not connected yet (`Open`): memory is registered, and
/// every receiver can be told where to connect.
pub struct SenderSetup<F: Fabric> {
    // Queue pairs go before the buffers.
    pairs: Pairs<F>,
    core: Core<F>,
    events: F::Events,
    receivers: usize,
}

impl<F: Fabric> SenderSetup<F> {
    /// Opens an endpoint for so many receivers. `id` is one that no other endpoint of this shuffle
    /// has (as address and port are).
    pub fn new(fabric: &F, id: u32, receivers: usize, settings: Settings) -> Result<Self> {
        SenderSetup::open(fabric, id, receivers, settings, None)
    }

    /// The same with buffers of a pool that other endpoints use, too; not where the receiver reads.
    pub fn with_pool(
        fabric: &F,
        pool: &Pool<F>,
        id: u32,
        receivers: usize,
        settings: Settings,
    ) -> Result<Self> {
        if settings.design.transport == Transport::Read {
            let why = "buffers that receivers read are the endpoint's own".into();
            return Err(Error::Setting { name: "pool", value: None, why });
        }
        SenderSetup::open(fabric, id, receivers, settings, Some(pool))
    }

    fn open(
        fabric: &F,
        id: u32,
        receivers: usize,
        settings: Settings,
        pool: Option<&Pool<F>>,
    ) -> Result<Self> {
        settings.check(fabric.limits(), receivers)?;
        let most = settings.per_peer().1 as usize * receivers;
        let slot_bytes = settings.slot_bytes();
        let read = settings.design.transport == Transport::Read;
        let access = Access { remote_read: read, ..Access::LOCAL };
        let buffers = match (pool, settings.depth) {
            (Some(pool), _) => Buffers::of_pool(pool, most, slot_bytes)?,
            (None, Depth::Adaptive { .. }) if !read => {
                Buffers::as_needed(fabric, most, slot_bytes)?
            }
            (None, _) => Buffers::own(fabric, most, slot_bytes, access)?,
        };
        let events = fabric.events()?;
        let (queue, pairs) = match settings.design.transport {
            Transport::Datagrams => {
                let sizes = settings.sender_datagrams(receivers);
                let queue =
                    fabric.completion_queue(settings.completions(sizes, 1), Some(&events))?;
                let pair = fabric.datagram(&queue, &queue, sizes)?;
                let room = sizes.receive as usize * CREDIT_SLOT_BYTES;
                (queue, Pairs::Datagrams(pair, fabric.allocate(room, Access::LOCAL)?))
            }
            _ => {
                let sizes = settings.sender_queues();
                let entries = settings.completions(sizes, receivers);
                let queue = fabric.completion_queue(entries, Some(&events))?;
                let pair = |_| new_pair(fabric, &queue, sizes, &settings, true);
                let pairs: Result<Vec<_>> = (0..receivers).map(pair).collect();
                let blocks = Blocks::new(fabric, &settings, receivers)?;
                (queue, Pairs::Reliable(pairs?, blocks))
            }
        };
        let core = Core::new(fabric, settings, id, queue, buffers, receivers)?;
        Ok(SenderSetup { pairs, core, events, receivers })
    }

    /// Set-up message for receiver number `to`.
    ///
    /// # Panics
    /// If there is no such receiver.
    pub fn hello(&self, to: usize) -> Hello {
        let settings = &self.core.settings;
        let parameters = parameters(Role::Sender, self.core.id, settings, 0, 0);
        match &self.pairs {
            Pairs::Datagrams(pair, _) => {
                assert!(to < self.receivers, "no receiver {to}");
                Hello { endpoint: pair.endpoint(), regions: Vec::new(), parameters }
            }
            Pairs::Reliable(pairs, blocks) => {
                let mut regions = vec![blocks.remote(to)];
                if settings.design.transport == Transport::Read {
                    regions.extend(self.core.buffers.region().map(Region::remote));
                }
                Hello { endpoint: pairs[to].endpoint(), regions, parameters }
            }
        }
    }

    /// Connects to the receivers, whose messages come in the order of their numbers.
    pub fn connect(self, hellos: &[Hello]) -> Result<Sender<F>> {
        let SenderSetup { pairs, mut core, events, receivers } = self;
        if hellos.len() != receivers {
            let (ours, theirs) = (receivers as u64, hellos.len() as u64);
            return Err(Error::Mismatch { what: "count of receivers", ours, theirs });
        }
        let settings = core.settings;
        let regions = match settings.design.transport {
            Transport::Datagrams => 0,
            Transport::Write(_) => 2,
            _ => 1,
        };
        let peer = |hello: &Hello| peer_of(hello, Role::Receiver, &settings, regions);
        let peers: Vec<_> = hellos.iter().map(peer).collect::<Result<_>>()?;
        check_ids(&peers.iter().map(|peer| peer.id).collect::<Vec<_>>())?;
        let (most, now) = (settings.per_peer().1, core.now());
        let out = match pairs {
            Pairs::Datagrams(mut pair, memory) => {
                let mut targets = Vec::new();
                for (hello, peer) in hellos.iter().zip(&peers) {
                    let address = pair.resolve(&hello.endpoint)?;
                    let (id, credit) = (peer.id, peer.receives);
                    targets.push(Target::new(id, address, credit, now));
                }
                Out::Datagrams(Datagrams::new(pair, memory, targets, &mut core)?)
            }
            Pairs::Reliable(pairs, blocks) => {
                let entries = settings.sender_queues().send;
                let peers = peers.iter().zip(hellos);
                let how = (&settings, entries, true);
                let links = Links::connect(pairs.into_iter(), peers, blocks, how, now)?;
                match settings.design.transport {
                    Transport::Read => Out::Read(Read { links }),
                    Transport::Write(how) => Out::Write(Write::new(links, how, most)),
                    _ => Out::SendReceive(SendReceive::new(links)),
                }
            }
        };
        Ok(Sender::of(core, out, events))
    }

    /// Threads that may share the endpoint.
    pub fn threads(&self) -> u32 {
        match self.core.settings.design.endpoints {
            Endpoints::Several => 1,
            Endpoints::Single => self.core.settings.threads,
        }
    }
}

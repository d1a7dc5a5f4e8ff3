//! Opening a receiving endpoint, and connecting it.

use std::collections::VecDeque;

use millstream_fabric::setup::Hello;
use millstream_fabric::{Access, Datagram, Fabric, QueuePair, Receive, RemoteRegion};

use super::core::Core;
use super::datagrams::{Datagrams, Stream, post};
use super::links::Sources;
use super::read::Read;
use super::send_receive::{SendReceive, receive};
use super::window::Window;
use super::write::Write;
use super::{In, Receiver};
use crate::shuffle::design::{Notification, Transport};
use crate::shuffle::error::{Error, Result};
use crate::shuffle::hello::{Role, check_ids, parameters, peer_of};
use crate::shuffle::links::{Blocks, Links, new_pair};
use crate::shuffle::pool::{Buffers, Pool};
use crate::shuffle::settings::{Depth, Settings};

/// The queue pairs of an endpoint.
enum Pairs<F: Fabric> {
    Reliable(Vec<F::QueuePair>, Blocks),
    Datagrams(F::Datagram),
}

/// A receiving endpoint that is open, and not connected yet (`Open`): memory is registered,
/// receives are posted, and every sender can be told where to connect.
pub struct ReceiverSetup<F: Fabric> {
    // Queue pairs go before the buffers.
    pairs: Pairs<F>,
    core: Core<F>,
    events: F::Events,
    /// Local buffers that are free, where the receiver reads.
    wait: VecDeque<u32>,
}

impl<F: Fabric> ReceiverSetup<F> {
    /// Opens an endpoint for so many senders. `id` is one that no other endpoint of this shuffle
    /// has (as address and port are).
    pub fn new(fabric: &F, id: u32, senders: usize, settings: Settings) -> Result<Self> {
        ReceiverSetup::open(fabric, id, senders, settings, None)
    }

    /// The same with buffers of a pool that other endpoints use, too; not where senders write.
    pub fn with_pool(
        fabric: &F,
        pool: &Pool<F>,
        id: u32,
        senders: usize,
        settings: Settings,
    ) -> Result<Self> {
        if matches!(settings.design.transport, Transport::Write(_)) {
            let why = "buffers that senders write are the endpoint's own".into();
            return Err(Error::Setting { name: "pool", value: None, why });
        }
        ReceiverSetup::open(fabric, id, senders, settings, Some(pool))
    }

    fn open(
        fabric: &F,
        id: u32,
        senders: usize,
        settings: Settings,
        pool: Option<&Pool<F>>,
    ) -> Result<Self> {
        settings.check(fabric.limits(), senders)?;
        let most = settings.per_peer().1 as usize * senders;
        let slot_bytes = settings.slot_bytes();
        let write = matches!(settings.design.transport, Transport::Write(_));
        let access = Access { remote_write: write, ..Access::LOCAL };
        let buffers = match (pool, settings.depth) {
            (Some(pool), _) => Buffers::of_pool(pool, most, slot_bytes)?,
            (None, Depth::Adaptive { .. }) if !write => {
                Buffers::as_needed(fabric, most, slot_bytes)?
            }
            (None, _) => Buffers::own(fabric, most, slot_bytes, access)?,
        };
        let events = fabric.events()?;
        let (queue, pairs) = match settings.design.transport {
            Transport::Datagrams => {
                let sizes = settings.receiver_datagrams(senders);
                let queue =
                    fabric.completion_queue(settings.completions(sizes, 1), Some(&events))?;
                let pair = fabric.datagram(&queue, &queue, sizes)?;
                (queue, Pairs::Datagrams(pair))
            }
            _ => {
                let sizes = settings.receiver_queues();
                let entries = settings.completions(sizes, senders);
                let queue = fabric.completion_queue(entries, Some(&events))?;
                let listens = settings.receiver_listens();
                let pair = |_| new_pair(fabric, &queue, sizes, &settings, listens);
                let pairs: Result<Vec<_>> = (0..senders).map(pair).collect();
                (queue, Pairs::Reliable(pairs?, Blocks::new(fabric, &settings, senders)?))
            }
        };
        let core = Core::new(fabric, settings, id, queue, buffers, senders);
        let mut setup = ReceiverSetup { pairs, core, events, wait: VecDeque::new() };
        for source in 0..senders {
            setup.grant(source)?;
        }
        Ok(setup)
    }

    /// Gives a source its first buffers.
    fn grant(&mut self, source: usize) -> Result<()> {
        let ReceiverSetup { pairs, core, wait, .. } = self;
        let (least, most) = core.settings.per_peer();
        if let Transport::Write(how) = core.settings.design.transport {
            for number in 0..least {
                core.buffers.fetch_number(source as u32 * most + number);
            }
            core.circulate(source, least);
            if how == Notification::CompletionQueue {
                let count = core.settings.receiver_queues().receive;
                let receives = vec![Receive { id: 0, buffer: None }; count as usize];
                if let Pairs::Reliable(pairs, _) = pairs {
                    pairs[source].post_receive(&receives)?;
                }
                core.counters.receives += u64::from(count);
                core.sources[source].granted = count.into();
            }
        } else {
            for slot in core.first_buffers(source)? {
                match pairs {
                    Pairs::Datagrams(pair) => post(pair, core, slot)?,
                    Pairs::Reliable(..) if core.settings.design.transport == Transport::Read => {
                        wait.push_back(slot);
                        continue;
                    }
                    Pairs::Reliable(pairs, _) => {
                        let bytes = core.settings.message_bytes;
                        pairs[source].post_receive(&[receive(
                            core.buffers.slot(slot),
                            slot,
                            bytes,
                        )])?;
                        core.counters.receives += 1;
                    }
                }
                core.sources[source].granted += 1;
            }
        }
        core.sources[source].told = core.sources[source].granted;
        Ok(())
    }

    /// Set-up message for sender number `from`.
    ///
    /// # Panics
    /// If there is no such sender.
    pub fn hello(&self, from: usize) -> Hello {
        let core = &self.core;
        let settings = &core.settings;
        let (granted, receives) = (settings.per_peer().0.into(), core.sources[from].granted);
        let parameters = parameters(Role::Receiver, core.id, settings, granted, receives);
        match &self.pairs {
            Pairs::Datagrams(pair) => {
                Hello { endpoint: pair.endpoint(), regions: Vec::new(), parameters }
            }
            Pairs::Reliable(pairs, blocks) => {
                let mut regions = vec![blocks.remote(from)];
                if let Transport::Write(_) = settings.design.transport
                    && let Some(region) = core.buffers.region()
                {
                    // The source's own buffers.
                    let RemoteRegion { address, key, .. } = region.remote();
                    let bytes = u64::from(settings.per_peer().1) * settings.slot_bytes() as u64;
                    let address = address + from as u64 * bytes;
                    regions.push(RemoteRegion { address, bytes, key });
                }
                Hello { endpoint: pairs[from].endpoint(), regions, parameters }
            }
        }
    }

    /// Connects to the senders, whose messages come in the order of their numbers.
    pub fn connect(self, hellos: &[Hello]) -> Result<Receiver<F>> {
        let ReceiverSetup { pairs, mut core, events, wait } = self;
        let (senders, settings) = (core.sources.len(), core.settings);
        if hellos.len() != senders {
            let (ours, theirs) = (senders as u64, hellos.len() as u64);
            return Err(Error::Mismatch { what: "count of senders", ours, theirs });
        }
        let regions = match settings.design.transport {
            Transport::Datagrams => 0,
            Transport::Read => 2,
            _ => 1,
        };
        let peer = |hello: &Hello| peer_of(hello, Role::Sender, &settings, regions);
        let peers: Vec<_> = hellos.iter().map(peer).collect::<Result<_>>()?;
        let ids: Vec<u32> = peers.iter().map(|peer| peer.id).collect();
        check_ids(&ids)?;
        for (source, id) in core.sources.iter_mut().zip(ids) {
            source.id = id;
        }
        let now = core.now();
        let from = match pairs {
            Pairs::Datagrams(mut pair) => {
                let mut streams = Vec::new();
                for hello in hellos {
                    let address = pair.resolve(&hello.endpoint)?;
                    let window = settings.sequences.then(|| Window::new(settings.per_peer().1));
                    streams.push(Stream::new(address, window, now));
                }
                In::Datagrams(Datagrams::new(pair, streams, &core))
            }
            Pairs::Reliable(pairs, blocks) => {
                let entries = settings.receiver_queues().send;
                let peers = peers.iter().zip(hellos);
                let how = (&settings, entries, settings.receiver_listens());
                let links = Links::connect(pairs.into_iter(), peers, blocks, how, now)?;
                let sources = Sources::new(links);
                match settings.design.transport {
                    Transport::Read => {
                        let slots = settings.per_peer().1 as usize * senders;
                        In::Read(Read::new(sources, wait, slots))
                    }
                    Transport::Write(how) => In::Write(Write::new(sources, how, &core)),
                    _ => In::SendReceive(SendReceive { sources }),
                }
            }
        };
        Ok(Receiver::of(core, from, events))
    }
}

//! Opening a receiving endpoint, and connecting it.

use std::collections::VecDeque;

use millstream_fabric::setup::Hello;
use millstream_fabric::{Access, Datagram, Fabric, QueuePair, Receive, RemoteRegion};

use super::core::ReceiverCore;
use super::datagrams::{DatagramReceiver, Stream, post};
use super::links::Sources;
use super::read::ReadReceiver;
use super::send_receive::{MessageReceiver, receive};
use super::window::Window;
use super::write::WriteReceiver;
use super::{In, Receiver};
use crate::shuffle::design::{Notification, Transport};
use crate::shuffle::error::{Error, Result};
use crate::shuffle::hello::{parameters, peers_of};
use crate::shuffle::links::{Links, Pairs, open};
use crate::shuffle::pool::{Buffers, Pool};
use crate::shuffle::settings::{Role, Settings};

/// A receiving endpoint that is open, and not connected yet (`Open`): memory is registered,
/// receives are posted, and every sender can be told where to connect.
pub struct ReceiverSetup<F: Fabric> {
    // Queue pairs go before the buffers.
    pairs: Pairs<F, ()>,
    core: ReceiverCore<F>,
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
        let (pairs, queue, events) = open(fabric, &settings, Role::Receiver, senders, |_| Ok(()))?;
        let write = matches!(settings.design.transport, Transport::Write(_));
        let access = Access { remote_write: write, ..Access::LOCAL };
        let most = settings.per_peer().1 as usize * senders;
        let buffers = Buffers::open(fabric, pool, &settings, most, access)?;
        let core = ReceiverCore::new(fabric, settings, id, queue, buffers, senders);
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
                let count = core.settings.queues(Role::Receiver, 1).0.receive;
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
                    Pairs::Datagrams(pair, ()) => post(pair, core, slot)?,
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
        let write = matches!(settings.design.transport, Transport::Write(_));
        let own = core.buffers.region().filter(|_| write).map(|region| {
            // The source's own buffers.
            let RemoteRegion { address, key, .. } = region.remote();
            let bytes = u64::from(settings.per_peer().1) * settings.slot_bytes() as u64;
            RemoteRegion { address: address + from as u64 * bytes, bytes, key }
        });
        self.pairs.hello(from, parameters, own)
    }

    /// Connects to the senders, whose messages come in the order of their numbers.
    pub fn connect(self, hellos: &[Hello]) -> Result<Receiver<F>> {
        let ReceiverSetup { pairs, mut core, events, wait } = self;
        let (senders, settings) = (core.sources.len(), core.settings);
        let peers = peers_of(hellos, Role::Sender, &settings, senders)?;
        for (source, peer) in core.sources.iter_mut().zip(&peers) {
            source.id = peer.id;
        }
        let now = core.now();
        let from = match pairs {
            Pairs::Datagrams(mut pair, ()) => {
                let mut streams = Vec::new();
                for hello in hellos {
                    let address = pair.resolve(&hello.endpoint)?;
                    let window = settings.sequences.then(|| Window::new(settings.per_peer().1));
                    streams.push(Stream::new(address, window, now));
                }
                In::Datagrams(DatagramReceiver::new(pair, streams, &core))
            }
            Pairs::Reliable(pairs, blocks) => {
                let (peers, half) = (peers.iter().zip(hellos), (&settings, Role::Receiver));
                let sources = Sources::new(Links::connect(pairs, peers, blocks, half, now)?);
                match settings.design.transport {
                    Transport::Read => {
                        let slots = settings.per_peer().1 as usize * senders;
                        In::Read(ReadReceiver::new(sources, wait, slots))
                    }
                    Transport::Write(how) => In::Write(WriteReceiver::new(sources, how, &core)),
                    _ => In::SendReceive(MessageReceiver { sources }),
                }
            }
        };
        Ok(Receiver::of(core, from, events))
    }
}

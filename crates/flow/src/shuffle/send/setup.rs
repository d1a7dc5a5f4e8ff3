//! Opening a sending endpoint, and connecting it.

use millstream_fabric::setup::Hello;
use millstream_fabric::{Access, Datagram, Fabric, QueueSizes, Region};

use super::core::SenderCore;
use super::datagrams::{DatagramSender, Target};
use super::read::ReadSender;
use super::send_receive::MessageSender;
use super::write::WriteSender;
use super::{Out, Sender};
use crate::shuffle::design::{Endpoints, Transport};
use crate::shuffle::error::{Error, Result};
use crate::shuffle::hello::{parameters, peers_of};
use crate::shuffle::links::{Links, Pairs, open};
use crate::shuffle::pool::{Buffers, Pool};
use crate::shuffle::settings::{CREDIT_SLOT_BYTES, Role, Settings};

/// A sending endpoint that is open, and not connected yet (`Open`): memory is registered, and
/// every receiver can be told where to connect.
pub struct SenderSetup<F: Fabric> {
    // Queue pairs go before the buffers.
    pairs: Pairs<F, Region>,
    core: SenderCore<F>,
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
        // Room for credit.
        let memory = |sizes: QueueSizes| {
            Ok(fabric.allocate(sizes.receive as usize * CREDIT_SLOT_BYTES, Access::LOCAL)?)
        };
        let (pairs, queue, events) = open(fabric, &settings, Role::Sender, receivers, memory)?;
        let read = settings.design.transport == Transport::Read;
        let access = Access { remote_read: read, ..Access::LOCAL };
        let most = settings.per_peer().1 as usize * receivers;
        let buffers = Buffers::open(fabric, pool, &settings, most, access)?;
        let core = SenderCore::new(fabric, settings, id, queue, buffers, receivers)?;
        Ok(SenderSetup { pairs, core, events, receivers })
    }

    /// Set-up message for receiver number `to`.
    ///
    /// # Panics
    /// If there is no such receiver.
    pub fn hello(&self, to: usize) -> Hello {
        assert!(to < self.receivers, "no receiver {to}");
        let settings = &self.core.settings;
        let parameters = parameters(Role::Sender, self.core.id, settings, 0, 0);
        let read = settings.design.transport == Transport::Read;
        let buffers = self.core.buffers.region().filter(|_| read);
        self.pairs.hello(to, parameters, buffers.map(Region::remote))
    }

    /// Connects to the receivers, whose messages come in the order of their numbers.
    pub fn connect(self, hellos: &[Hello]) -> Result<Sender<F>> {
        let SenderSetup { pairs, mut core, events, receivers } = self;
        let settings = core.settings;
        let peers = peers_of(hellos, Role::Receiver, &settings, receivers)?;
        let now = core.now();
        let out = match pairs {
            Pairs::Datagrams(mut pair, memory) => {
                let mut targets = Vec::new();
                for (hello, peer) in hellos.iter().zip(&peers) {
                    let address = pair.resolve(&hello.endpoint)?;
                    let (id, credit) = (peer.id, peer.receives);
                    targets.push(Target::new(id, address, credit, now));
                }
                Out::Datagrams(DatagramSender::new(pair, memory, targets, &mut core)?)
            }
            Pairs::Reliable(pairs, blocks) => {
                let (peers, half) = (peers.iter().zip(hellos), (&settings, Role::Sender));
                let links = Links::connect(pairs, peers, blocks, half, now)?;
                match settings.design.transport {
                    Transport::Read => Out::Read(ReadSender { links }),
                    Transport::Write(how) => {
                        Out::Write(WriteSender::new(links, how, settings.per_peer().1))
                    }
                    _ => Out::SendReceive(MessageSender { links }),
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

//! The fabric of a ring, chosen when the program runs, and the ring's ends over any fabric.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use millstream_dfi::{
    Bandwidth, Consumed, Flow, LocalRegistry, Pipelined, Registry, Result, Route, Schema, Source,
    SourceSetup, Target, TargetSetup, Thread,
};
use millstream_fabric::Fabric;
use millstream_fabric::setup::Token;
use millstream_fabric::shm::ShmDevice;
use millstream_fabric::tcp::TcpDevice;
use millstream_fabric::verbs::{self, Verbs};

use crate::wire::Transport;

/// How long the ends of a ring wait for each other.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
/// The producer is thread 0 of node 1, the job thread 0 of node 0.
const SOURCE: Thread = Thread::new(1, 0);
const TARGET: Thread = Thread::new(0, 0);

/// An open device.
pub(crate) enum Device {
    Shm(ShmDevice),
    Tcp(TcpDevice),
    Verbs(Verbs),
}

impl Device {
    /// `here` is this end's address of the connection that went before.
    pub(crate) fn open(
        transport: Transport,
        token: Token,
        here: IpAddr,
    ) -> millstream_fabric::Result<Device> {
        Ok(match transport {
            Transport::Shm => Device::Shm(ShmDevice::open(token)?),
            Transport::Tcp => Device::Tcp(TcpDevice::open(token, SocketAddr::new(here, 0))?),
            Transport::Rdma => Device::Verbs(Verbs::open(&verbs::Options::default())?),
        })
    }

    /// Joins a flow as its target; [`Joined::connect`] waits for the source.
    pub(crate) fn join(&self, registry: &impl Registry, flow: &str) -> Result<Box<dyn Joined>> {
        fn join<F: Fabric>(
            device: &F,
            registry: &impl Registry,
            flow: &str,
        ) -> Result<Box<dyn Joined>> {
            Ok(Box::new(TargetSetup::join(device, registry, flow, TARGET, PATIENCE)?))
        }
        match self {
            Device::Shm(device) => join(device, registry, flow),
            Device::Tcp(device) => join(device, registry, flow),
            Device::Verbs(device) => join(device, registry, flow),
        }
    }

    /// Joins a flow as its source, and waits for the target.
    pub(crate) fn connect(&self, registry: &impl Registry, flow: &str) -> Result<Box<dyn Outflow>> {
        fn connect<F: Fabric>(
            device: &F,
            registry: &impl Registry,
            flow: &str,
        ) -> Result<Box<dyn Outflow>> {
            let source = SourceSetup::join(device, registry, flow, SOURCE, PATIENCE)?;
            Ok(Box::new(source.connect(registry, PATIENCE)?))
        }
        match self {
            Device::Shm(device) => connect(device, registry, flow),
            Device::Tcp(device) => connect(device, registry, flow),
            Device::Verbs(device) => connect(device, registry, flow),
        }
    }
}

/// A published flow: its name is free again when this is dropped.
pub(crate) struct Published {
    registry: LocalRegistry,
    flow: String,
}

impl Published {
    /// Publishes the flow of a ring: from a producer to a slot, in words of 8 bytes.
    pub(crate) fn new(
        registry: &LocalRegistry,
        flow: &str,
        (segment, segments): (usize, usize),
    ) -> Result<Published> {
        Flow::shuffle(flow)
            .sources([SOURCE])
            .targets([TARGET])
            .schema(Schema::new().u64("word"))
            .route(Route::Explicit)
            .optimise(Pipelined(Bandwidth { segment, segments, source_segments: segments }))
            .publish(registry)?;
        Ok(Published { registry: registry.clone(), flow: flow.to_string() })
    }
}

impl Drop for Published {
    fn drop(&mut self) {
        // The flow is there: it was published.
        let _ = self.registry.withdraw(&self.flow);
    }
}

/// A target without a source yet.
pub(crate) trait Joined: Send {
    fn connect(self: Box<Self>, registry: &LocalRegistry) -> Result<Box<dyn Inflow>>;
}

impl<F: Fabric> Joined for TargetSetup<F>
where
    TargetSetup<F>: Send,
    Target<F>: Send,
{
    fn connect(self: Box<Self>, registry: &LocalRegistry) -> Result<Box<dyn Inflow>> {
        Ok(Box::new(TargetSetup::connect(*self, registry, PATIENCE)?))
    }
}

/// The end of a ring in the job.
pub(crate) trait Inflow: Send {
    fn look(&mut self) -> Result<Consumed<'_>>;
}

impl<F: Fabric> Inflow for Target<F>
where
    Target<F>: Send,
{
    fn look(&mut self) -> Result<Consumed<'_>> {
        self.try_consume()
    }
}

/// The end of a ring at the producer.
pub(crate) trait Outflow: Send {
    fn push(&mut self, bytes: &[u8]) -> Result<()>;
    fn flush(&mut self) -> Result<()>;
    fn close(&mut self) -> Result<()>;
    /// Looks whether the job is there.
    fn progress(&mut self) -> Result<()>;
}

impl<F: Fabric> Outflow for Source<F>
where
    Source<F>: Send,
{
    fn push(&mut self, bytes: &[u8]) -> Result<()> {
        self.push_all_to(0, bytes)
    }

    fn flush(&mut self) -> Result<()> {
        Source::flush(self)
    }

    fn close(&mut self) -> Result<()> {
        Source::close(self)
    }

    fn progress(&mut self) -> Result<()> {
        Source::progress(self)
    }
}

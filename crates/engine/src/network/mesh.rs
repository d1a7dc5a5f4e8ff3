//! The mesh: the channels of one process to all others (paper, section 7.2.2, *Setup Phase*).
//!
//! For each stage there is a channel for deltas from each process to each leader in another
//! process. The leader's worker itself polls the channel, and no stage holds up another. For all
//! other messages there is a channel from each process to each other process. Both ends of a
//! channel are created before they are connected; the set-up messages between the ends go over the
//! job's control connections.

use std::sync::Arc;
use std::task::Waker;

use millstream_fabric::Fabric;
use millstream_fabric::setup::Hello;
use millstream_flow::channel::{Error, Notification, ReceiverSetup, Result, SenderSetup, Settings};
use millstream_state::Heap;

use super::lanes::{LaneSetups, Lanes};
use super::port::{Arena, Inlet, OutPort, Outlet, Sleeper};
use crate::roles::{Place, Roles};
use crate::settings::{Exchange, Settings as JobSettings};

/// Processes from which on slots are shorter, and bytes of a slot of each ring together.
const MANY_PROCESSES: usize = 16;
const SLOTS_BYTES: usize = 256 << 10;
/// Least bytes of such a slot: a page.
const SLOT_BYTES_MIN: usize = 4 << 10;

/// Numbers that determine the channels.
#[derive(Debug, Clone, Copy)]
pub struct MeshOptions {
    /// Workers of every process.
    pub workers: usize,
    /// Stages of the job that have state ([`Plan::state_stages`](crate::plan::Plan::state_stages)).
    pub stages: usize,
    /// The job's budget in a process: so much memory is registered for its state.
    pub memory_bytes: u64,
    /// The job's setting `exchange`.
    pub exchange: Exchange,
}

impl MeshOptions {
    /// For a job with these settings and so many stages that have state.
    pub fn new(settings: &JobSettings, stages: usize) -> MeshOptions {
        let JobSettings { workers, memory_bytes, exchange, .. } = *settings;
        MeshOptions { workers, stages, memory_bytes, exchange }
    }
}

/// The channels of one process, not connected yet.
pub struct MeshSetup<F: Fabric> {
    place: Place,
    arena: Arena,
    /// Per worker.
    events: Vec<F::Events>,
    /// Per process; `None` for this one.
    peers: Vec<Option<Peer<F>>>,
    options: MeshOptions,
    lanes: LaneSetups<F>,
}

struct Peer<F: Fabric> {
    /// To the peer's leaders, stage by stage, then to the peer.
    senders: Vec<SenderSetup<F>>,
    /// From the peer to our leaders, stage by stage, then to us.
    receivers: Vec<ReceiverSetup<F>>,
}

/// The connected channels of one process.
pub struct Mesh {
    pub(crate) place: Place,
    /// Where state stands, so that it can be sent from there.
    pub(crate) heap: Arc<Heap>,
    pub(crate) options: MeshOptions,
    /// Per process: where deltas go, stage by stage, to each of its workers.
    pub(crate) deltas_out: Vec<Vec<Box<dyn Outlet>>>,
    /// Per process: where all else goes.
    pub(crate) posts_out: Vec<Option<Box<dyn Outlet>>>,
    pub(crate) posts_in: Vec<Option<Box<dyn Inlet>>>,
    /// Per worker.
    pub(crate) workers: Vec<Ends>,
}

/// Inlets of a worker, and its sleeper.
pub(crate) struct Ends {
    /// Per stage and process: deltas for this leader.
    pub(crate) deltas_in: Vec<Vec<Option<Box<dyn Inlet>>>>,
    /// For exchanged records, if the job exchanges them.
    pub(crate) lanes: Lanes,
    pub(crate) sleeper: Box<dyn Sleeper>,
}

impl std::fmt::Debug for Mesh {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Mesh({:?})", self.place)
    }
}

impl Mesh {
    /// Wakers of the workers.
    pub(crate) fn wakers(&self) -> Vec<Waker> {
        self.workers.iter().map(|ends| ends.sleeper.waker()).collect()
    }
}

impl<F: Fabric> MeshSetup<F> {
    /// Makes all channels of the process at `place`, and memory for its state, which is registered.
    /// Consumers are notified by footers only where the fabric places bytes in order.
    pub fn new(
        fabric: &F,
        place: Place,
        options: MeshOptions,
        mut settings: Settings,
    ) -> Result<Self> {
        let MeshOptions { workers, stages, memory_bytes, exchange } = options;
        let deltas = stages * workers;
        // Of many processes each sends little to each leader, and each page costs a fault at either
        // end: with long slots, a page of the message and a page of the footer.
        if place.processes > MANY_PROCESSES {
            let bytes = (SLOTS_BYTES / place.processes).max(SLOT_BYTES_MIN) & !63;
            settings.slot_bytes = settings.slot_bytes.min(bytes);
        }
        if !fabric.limits().ordered_placement {
            settings.notification = Notification::Immediate;
        }
        let arena = Arena::new(fabric, usize::try_from(memory_bytes).unwrap_or(usize::MAX))?;
        let events = (0..workers).map(|_| fabric.events());
        let events = events.collect::<std::result::Result<Vec<_>, _>>().map_err(Error::from)?;
        let peer = |process: usize| -> Result<Option<Peer<F>>> {
            if process == place.process {
                return Ok(None);
            }
            // Shared ends wake the first worker.
            let senders = (0..=deltas).map(|_| SenderSetup::new(fabric, &events[0], settings));
            let receivers =
                (0..=deltas).map(|c| ReceiverSetup::new(fabric, &events[c % workers], settings));
            Ok(Some(Peer {
                senders: senders.collect::<Result<_>>()?,
                receivers: receivers.collect::<Result<_>>()?,
            }))
        };
        let peers = (0..place.processes).map(peer).collect::<Result<_>>()?;
        let roles = Roles::new(exchange, place.processes, workers);
        let lanes = LaneSetups::new(fabric, &events, roles, place, settings)?;
        Ok(MeshSetup { place, arena, events, peers, options, lanes })
    }

    /// Set-up messages for `peer`.
    pub fn hellos(&self, peer: usize) -> Vec<Hello> {
        let number = peer;
        let Some(peer) = &self.peers[number] else { return Vec::new() };
        let senders = peer.senders.iter().map(SenderSetup::hello);
        let all = senders.chain(peer.receivers.iter().map(ReceiverSetup::hello));
        all.chain(self.lanes.hellos(number)).collect()
    }

    /// Connects to all processes; `from` has, by process, the result of [`MeshSetup::hellos`] there
    /// for this process.
    pub fn connect(self, from: &[Vec<Hello>]) -> Result<Mesh> {
        let MeshOptions { workers, stages, .. } = self.options;
        // Of channels to a process and of those from it.
        let channels = stages * workers + 1;
        let mut mesh = Mesh {
            place: self.place,
            heap: self.arena.heap.clone(),
            options: self.options,
            deltas_out: Vec::new(),
            posts_out: Vec::new(),
            posts_in: Vec::new(),
            workers: Vec::new(),
        };
        // By stage and worker; then by process.
        let mut deltas_in: Vec<Vec<Option<Box<dyn Inlet>>>> =
            (1..channels).map(|_| Vec::new()).collect();
        let of_lanes: Vec<&[Hello]> = (0..self.place.processes)
            .map(|process| {
                let hellos = from.get(process).map_or(&[][..], Vec::as_slice);
                hellos.get(2 * channels..).unwrap_or_default()
            })
            .collect();
        for (process, peer) in self.peers.into_iter().enumerate() {
            let Some(peer) = peer else {
                mesh.deltas_out.push(Vec::new());
                mesh.posts_out.push(None);
                mesh.posts_in.push(None);
                deltas_in.iter_mut().for_each(|inlets| inlets.push(None));
                continue;
            };
            let hellos = from.get(process).map_or(&[][..], Vec::as_slice);
            let expected = 2 * channels;
            let Some(hellos) = hellos.get(..expected) else {
                let (ours, theirs) = (expected as u64, hellos.len() as u64);
                return Err(Error::Mismatch { what: "number of channels", ours, theirs });
            };
            let (their_senders, their_receivers) = hellos.split_at(channels);
            let mut senders: Vec<Box<dyn Outlet>> = Vec::new();
            for (sender, hello) in peer.senders.into_iter().zip(their_receivers) {
                senders.push(Box::new(OutPort::new(sender.connect(hello)?, self.arena.clone())));
            }
            mesh.posts_out.push(senders.pop());
            mesh.deltas_out.push(senders);
            let mut receivers: Vec<Box<dyn Inlet>> = Vec::new();
            for (receiver, hello) in peer.receivers.into_iter().zip(their_senders) {
                receivers.push(Box::new(receiver.connect(hello)?));
            }
            mesh.posts_in.push(receivers.pop());
            for (inlets, receiver) in deltas_in.iter_mut().zip(receivers) {
                inlets.push(Some(receiver));
            }
        }
        // The surplus, if there are no lanes, is found out there.
        let lanes = self.lanes.connect(&of_lanes)?;
        let end = |(lanes, events)| Ends {
            deltas_in: Vec::with_capacity(stages),
            lanes,
            sleeper: Box::new(events) as Box<dyn Sleeper>,
        };
        mesh.workers = lanes.into_iter().zip(self.events).map(end).collect();
        for (channel, inlets) in deltas_in.into_iter().enumerate() {
            mesh.workers[channel % workers].deltas_in.push(inlets);
        }
        Ok(mesh)
    }
}

//! The network state that the workers of one process share: the channels to the other processes.
//!
//! Any worker with time serves the network: whenever a worker resumes a coroutine, it sends waiting
//! messages and takes in arrived messages, unless another worker is doing so. No call blocks.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex};

use millstream_state::{Heap, Segment};

use super::mesh::{Ends, Mesh};
use super::messages::{Failed, InletMessage, PostInlet};
use super::outbox::{Shipped, Shipping};
use super::outboxes::{Outboxes, lock, try_lock};
use super::port::{Outlet, peer_error, sent_by};
use super::postbox::Postbox;
use super::sleepers::Sleepers;
use super::wire::Head;
use crate::error::{Error, Result};
use crate::roles::Place;
use millstream_operators::windowing::SliceId;

/// Messages taken from a peer before the next peer's turn.
const MESSAGES_AT_ONCE: usize = 8;
/// Peers looked at in a step of a busy worker.
const PEERS_AT_ONCE: usize = 16;

/// A process's part of the job's network.
pub(crate) struct Net {
    pub(crate) place: Place,
    /// Where state stands.
    pub(crate) heap: Arc<Heap>,
    workers: usize,
    /// By stage.
    stages: Vec<Outboxes>,
    /// By process; `None` for this one.
    postboxes: Vec<Option<Mutex<Postbox>>>,
    inlets: Vec<Option<Mutex<PostInlet>>>,
    /// Number of the next inlet in turn.
    turn: AtomicUsize,
    /// How many postboxes have something to send.
    messages: AtomicUsize,
    /// Result rows that have been sent ahead of their turn.
    ahead_bytes: AtomicU64,
    sleepers: Arc<Sleepers>,
}

/// Memory of a stage's state that is free again.
pub(crate) struct Freed {
    pub(crate) stage: usize,
    pub(crate) segments: Vec<(SliceId, Segment)>,
}

/// Outlets by stage; in each by process, one for each of its workers.
fn by_stage(outlets: Vec<Vec<Box<dyn Outlet>>>, stages: usize) -> Vec<Vec<Vec<Box<dyn Outlet>>>> {
    let mut all: Vec<Vec<_>> = (0..stages).map(|_| Vec::new()).collect();
    for of_process in outlets {
        let workers = of_process.len() / stages;
        let mut rest = of_process.into_iter();
        for stage in &mut all {
            stage.push(rest.by_ref().take(workers).collect());
        }
    }
    all
}

impl Net {
    /// The network of a job with these stages, one even if it has no state, and what its workers
    /// poll themselves.
    pub(crate) fn new(mesh: Mesh, stages: &[Shipping]) -> Result<(Net, Vec<Ends>)> {
        let sleepers = Arc::new(Sleepers::new(mesh.wakers()));
        let Mesh { place, heap, deltas_out, posts_out, posts_in, workers: ends, options } = mesh;
        if options.stages != stages.len() {
            let (made, wanted) = (options.stages, stages.len());
            return Err(Error::Internal(format!("channels for {made} stages, not {wanted}")));
        }
        let workers = ends.len();
        let inlet = |inlet| Mutex::new(PostInlet::new(inlet));
        let all = by_stage(deltas_out, stages.len()).into_iter().zip(stages);
        let all = all.map(|(outlets, shipping)| {
            Outboxes::new(outlets, place, workers, &heap, shipping, &sleepers)
        });
        let net = Net {
            place,
            stages: all.collect::<Result<_>>()?,
            heap,
            workers,
            postboxes: posts_out
                .into_iter()
                .map(|outlet| outlet.map(|outlet| Mutex::new(Postbox::new(outlet))))
                .collect(),
            inlets: posts_in.into_iter().map(|i| i.map(inlet)).collect(),
            turn: AtomicUsize::new(0),
            messages: AtomicUsize::new(0),
            ahead_bytes: AtomicU64::new(0),
            sleepers,
        };
        Ok((net, ends))
    }

    /// Outboxes of a stage, for leaders elsewhere.
    pub(crate) fn outboxes(&self, stage: usize) -> &Outboxes {
        &self.stages[stage]
    }

    /// Leaders of all processes.
    pub(crate) fn leaders(&self) -> usize {
        self.place.processes * self.workers
    }

    /// The first worker's number among all.
    pub(crate) fn first(&self) -> usize {
        self.place.process * self.workers
    }

    pub(crate) fn is_coordinator(&self) -> bool {
        self.place.process == 0
    }

    /// Memory is scarce: sends rows that wait to be merged with rows of other workers as they are.
    /// `anyway`: even if leaders let them wait.
    pub(crate) fn hurry(&self, anyway: bool) -> Result<()> {
        self.stages.iter().try_for_each(|outboxes| outboxes.hurry(anyway))
    }

    /// Puts a message into the box of `process`.
    pub(crate) fn post(&self, process: usize, head: Head, body: Vec<u8>) -> Result<()> {
        let Some(postbox) = &self.postboxes[process] else {
            return Err(Error::Internal("a message to ourselves".into()));
        };
        let mut postbox = lock(postbox);
        let was_empty = postbox.is_empty();
        postbox.put(head, body);
        if postbox.pump().map_err(|e| peer_error(process, e))? {
            self.sleepers.wake_parked();
        }
        self.note_messages(was_empty, postbox.is_empty());
        Ok(())
    }

    fn note_messages(&self, was_empty: bool, is_empty: bool) {
        match (was_empty, is_empty) {
            (true, false) => {
                self.messages.fetch_add(1, Release);
                // The first worker is woken by credit.
                self.sleepers.wake(0);
            }
            (false, true) => {
                self.messages.fetch_sub(1, Release);
            }
            _ => {}
        }
    }

    /// Tells all other processes.
    pub(crate) fn broadcast(&self, head: Head) -> Result<()> {
        let others = (0..self.place.processes).filter(|p| *p != self.place.process);
        others.into_iter().try_for_each(|process| self.post(process, head, Vec::new()))
    }

    /// Whether result rows for the coordinator have to wait, since the channel does not keep up.
    pub(crate) fn is_congested(&self) -> bool {
        self.messages.load(Acquire) > 0
            && self.postboxes[0].as_ref().is_some_and(|postbox| lock(postbox).is_full())
    }

    /// Sends what waits, as far as there is credit. Returns whether anything was sent.
    pub(crate) fn pump(&self) -> Result<bool> {
        let mut some = false;
        if self.messages.load(Acquire) > 0 {
            for (process, postbox) in self.postboxes.iter().enumerate() {
                let Some(mut postbox) = postbox.as_ref().and_then(try_lock) else { continue };
                if !postbox.is_empty() {
                    some |= postbox.pump().map_err(|e| peer_error(process, e))?;
                    self.note_messages(false, postbox.is_empty());
                }
            }
        }
        for outboxes in &self.stages {
            some |= outboxes.pump()?;
        }
        Ok(some)
    }

    /// Whether [`Net::receive`] looks at some peers only, unless it is to look at all.
    pub(crate) fn has_many_peers(&self) -> bool {
        self.inlets.len() > PEERS_AT_ONCE
    }

    /// Takes messages in; whatever worker has time: from `all` peers, or from some in turn. Returns
    /// whether there were any.
    pub(crate) fn receive(
        &self,
        all: bool,
        mut take: impl FnMut(usize, Head, Vec<u8>) -> Result<()>,
    ) -> Result<bool> {
        let mut some = false;
        let peers = self.inlets.len();
        let looks = if all { peers } else { peers.min(PEERS_AT_ONCE) };
        let first = self.turn.fetch_add(looks, Relaxed);
        for process in (0..looks).map(|look| first.wrapping_add(look) % peers) {
            let Some(mut inlet) = self.inlets[process].as_ref().and_then(try_lock) else {
                continue;
            };
            for _ in 0..MESSAGES_AT_ONCE {
                let Some(message) = inlet.next().map_err(|e| match e {
                    Failed::Channel(error) => peer_error(process, error),
                    Failed::Message(error) => sent_by(process, error),
                })?
                else {
                    break;
                };
                some = true;
                if let InletMessage::Whole(head, body) = message {
                    take(process, head, body).map_err(|e| sent_by(process, e))?;
                }
            }
        }
        Ok(some)
    }

    /// A leader has merged a delta of ours, or lets another one come.
    pub(crate) fn credit(&self, head: &Head) -> Result<Freed> {
        let stage = usize::from(head.stage);
        let unknown = || Error::Internal(format!("credit for stage {stage}, which is not there"));
        let outboxes = self.stages.get(stage).ok_or_else(unknown)?;
        Ok(Freed { stage, segments: outboxes.credit(head.id, head.flags)? })
    }

    pub(crate) fn ahead_bytes(&self) -> &AtomicU64 {
        &self.ahead_bytes
    }

    /// See [`Sleepers::wake_parked`].
    pub(crate) fn wake_parked(&self) {
        self.sleepers.wake_parked();
    }

    /// One step towards sleep for what all workers share. Returns whether the first worker may
    /// sleep; whatever comes wakes it.
    pub(crate) fn park(&self) -> Result<bool> {
        self.sleepers.park();
        let mut may_sleep = true;
        for (process, inlet) in self.inlets.iter().enumerate() {
            let Some(inlet) = inlet else { continue };
            match try_lock(inlet) {
                Some(inlet) if inlet.ended => {}
                Some(mut inlet) => {
                    may_sleep &= inlet.inlet.park().map_err(|e| peer_error(process, e))?;
                }
                None => may_sleep = false,
            }
        }
        for (process, postbox) in self.postboxes.iter().enumerate() {
            let Some(postbox) = postbox else { continue };
            match try_lock(postbox) {
                Some(postbox) if postbox.is_empty() => {}
                Some(mut postbox) => {
                    may_sleep &= postbox.outlet().park().map_err(|e| peer_error(process, e))?;
                }
                None => may_sleep = false,
            }
        }
        for outboxes in &self.stages {
            may_sleep &= outboxes.park()?;
        }
        Ok(may_sleep)
    }

    /// Whether nothing is left to be sent.
    pub(crate) fn is_drained(&self) -> bool {
        self.stages.iter().all(Outboxes::is_drained)
            && self.postboxes.iter().flatten().all(|postbox| lock(postbox).is_empty())
    }

    /// Whether nothing is left to be sent to `process`, credit included.
    pub(crate) fn is_told(&self, process: usize) -> bool {
        self.postboxes[process].as_ref().is_none_or(|postbox| lock(postbox).is_empty())
    }

    /// One step of ending all streams in order, when all workers are done. Returns whether all have
    /// ended, on both sides.
    pub(crate) fn finish(&self) -> Result<bool> {
        if !self.is_drained() {
            return Ok(false);
        }
        let mut ended = true;
        for outboxes in &self.stages {
            ended &= outboxes.finish()?;
        }
        let others_ended = self.inlets.iter().flatten().all(|inlet| lock(inlet).ended);
        if self.is_coordinator() && !others_ended {
            // What they still have to say may have to be told to others.
            return Ok(false);
        }
        for (process, postbox) in self.postboxes.iter().enumerate() {
            let Some(postbox) = postbox else { continue };
            ended &= lock(postbox).finish().map_err(|e| peer_error(process, e))?;
        }
        Ok(ended && others_ended)
    }

    /// Counters of shipments to the leaders of a process.
    pub(crate) fn shipped_to(&self, process: usize) -> Shipped {
        let mut all = Shipped::default();
        self.stages.iter().for_each(|outboxes| outboxes.count_of(process, &mut all));
        all
    }

    /// Counters of shipments to leaders elsewhere.
    pub(crate) fn counters(&self) -> Shipped {
        let mut all = Shipped::default();
        self.stages.iter().for_each(|outboxes| outboxes.count(&mut all));
        all
    }
}

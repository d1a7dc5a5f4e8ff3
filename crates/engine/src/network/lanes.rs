//! Lanes: the channels of an exchange. There is one from each sending worker to each receiving
//! worker, in the same process or in another.

use std::collections::HashMap;

use millstream_fabric::Fabric;
use millstream_fabric::setup::Hello;
use millstream_flow::channel::{
    Error, Receiver, ReceiverSetup, Result, Sender, SenderSetup, Settings,
};

use super::port::Inlet;
use crate::roles::{Place, Roles};

/// The sending end of a lane.
pub(crate) trait Lane: Send {
    /// The payload of the slot that is being filled, with what was written into it; `None` without
    /// credit.
    fn slot(&mut self) -> Result<Option<&mut [u8]>>;
    /// Sends the first bytes of it.
    fn send(&mut self, bytes: usize) -> Result<()>;
    /// See [`Sender::park`].
    fn park(&mut self) -> Result<bool>;
    /// See [`Sender::try_finish`].
    fn try_finish(&mut self) -> Result<bool>;
}

impl<F: Fabric> Lane for Sender<F> {
    fn slot(&mut self) -> Result<Option<&mut [u8]>> {
        Ok(self.try_acquire()?.map(|slot| slot.into_payload()))
    }

    fn send(&mut self, bytes: usize) -> Result<()> {
        match self.try_acquire()? {
            Some(slot) => slot.send(bytes, 0),
            None => Err(Error::TimedOut { what: "credit that was there" }),
        }
    }

    fn park(&mut self) -> Result<bool> {
        Sender::park(self)
    }

    fn try_finish(&mut self) -> Result<bool> {
        Sender::try_finish(self)
    }
}

/// The lanes of one worker; `None` to and from itself.
#[derive(Default)]
pub(crate) struct Lanes {
    /// Lanes to each receiver; empty for a worker that does not send.
    pub(crate) out: Vec<Option<Box<dyn Lane>>>,
    /// Inlets from each sender; empty for a worker that does not receive.
    pub(crate) from: Vec<Option<Box<dyn Inlet>>>,
}

/// The lanes of one process, not connected yet.
pub(super) struct LaneSetups<F: Fabric> {
    roles: Roles,
    first: usize,
    workers: usize,
    /// By sender and receiver.
    senders: Vec<((usize, usize), SenderSetup<F>)>,
    receivers: Vec<((usize, usize), ReceiverSetup<F>)>,
}

impl<F: Fabric> LaneSetups<F> {
    pub(super) fn new(
        fabric: &F,
        events: &[F::Events],
        roles: Roles,
        place: Place,
        settings: Settings,
    ) -> Result<Self> {
        let (workers, first) = (events.len(), place.process * events.len());
        let (mut senders, mut receivers) = (Vec::new(), Vec::new());
        for (s, r) in pairs(&roles) {
            if let Some(events) = s.checked_sub(first).and_then(|local| events.get(local)) {
                senders.push(((s, r), SenderSetup::new(fabric, events, settings)?));
            }
            if let Some(events) = r.checked_sub(first).and_then(|local| events.get(local)) {
                receivers.push(((s, r), ReceiverSetup::new(fabric, events, settings)?));
            }
        }
        Ok(LaneSetups { roles, first, workers, senders, receivers })
    }

    fn process(&self, worker: usize) -> usize {
        worker / self.workers
    }

    /// Set-up messages for `peer`: our senders to it, then our receivers from it; each by sender
    /// and receiver.
    pub(super) fn hellos(&self, peer: usize) -> Vec<Hello> {
        let to = self.senders.iter().filter(|((_, r), _)| self.process(*r) == peer);
        let from = self.receivers.iter().filter(|((s, _), _)| self.process(*s) == peer);
        to.map(|(_, s)| s.hello()).chain(from.map(|(_, r)| r.hello())).collect()
    }

    /// Connects; `from` has what each process says.
    pub(super) fn connect(self, from: &[&[Hello]]) -> Result<Vec<Lanes>> {
        let me = self.process(self.first);
        let own = self.hellos(me);
        let (mut their_senders, mut their_receivers) = (HashMap::new(), HashMap::new());
        for (process, hellos) in from.iter().enumerate() {
            let hellos = if process == me { &own[..] } else { hellos };
            let between = |sending: usize, receiving: usize| {
                let here = move |(s, r): &(usize, usize)| {
                    (s / self.workers, r / self.workers) == (sending, receiving)
                };
                pairs(&self.roles).filter(here)
            };
            let (to_us, from_us) = (between(process, me), between(me, process));
            let expected = to_us.clone().count() + from_us.clone().count();
            if hellos.len() != expected {
                let (ours, theirs) = (expected as u64, hellos.len() as u64);
                return Err(Error::Mismatch { what: "number of lanes", ours, theirs });
            }
            let (senders, receivers) = hellos.split_at(to_us.clone().count());
            their_senders.extend(to_us.zip(senders));
            their_receivers.extend(from_us.zip(receivers));
        }
        let mut lanes: Vec<Lanes> = (0..self.workers).map(|_| Lanes::default()).collect();
        for (local, lanes) in lanes.iter_mut().enumerate() {
            let worker = self.first + local;
            if self.roles.sender(worker).is_some() {
                lanes.out = self.roles.receivers.iter().map(|_| None).collect();
            }
            if self.roles.receiver(worker).is_some() {
                lanes.from = self.roles.senders.iter().map(|_| None).collect();
            }
        }
        let unknown = || Error::Mismatch { what: "number of lanes", ours: 1, theirs: 0 };
        for (pair, setup) in self.senders {
            let sender: Sender<F> =
                setup.connect(their_receivers.get(&pair).ok_or_else(unknown)?)?;
            let receiver = self.roles.receiver(pair.1).unwrap_or_default();
            lanes[pair.0 - self.first].out[receiver] = Some(Box::new(sender));
        }
        for (pair, setup) in self.receivers {
            let receiver: Receiver<F> =
                setup.connect(their_senders.get(&pair).ok_or_else(unknown)?)?;
            let sender = self.roles.sender(pair.0).unwrap_or_default();
            lanes[pair.1 - self.first].from[sender] = Some(Box::new(receiver));
        }
        Ok(lanes)
    }
}

/// All pairs of a sender and a receiver that are two workers.
fn pairs(roles: &Roles) -> impl Iterator<Item = (usize, usize)> + Clone + '_ {
    let of = move |s: &usize| {
        let s = *s;
        roles.receivers.iter().map(move |r| (s, *r))
    };
    roles.senders.iter().flat_map(of).filter(|(s, r)| s != r)
}

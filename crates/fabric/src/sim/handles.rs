//! The handles that a program holds of a simulated node's objects.

use std::sync::Arc;
use std::task::{Wake, Waker};
use std::time::Duration;

use super::pair::number_of;
use super::ud::{FIRST_NUMBER, Recipient};
use super::world::{Entry, World, nanoseconds};
use super::{Shared, SimDevice, lock};
use crate::contract::{CompletionQueue, Datagram, Events, QueuePair, State};
use crate::endpoint::Endpoint;
use crate::error::{Error, NO_EVENTS, Result};
use crate::group::Group;
use crate::kept::{KeptReceive, post_all};
use crate::work::{Completion, Outgoing, Receive, Rejected, WorkRequest};

/// Where a thread sleeps: virtual time passes meanwhile.
pub struct SimEvents {
    pub(super) device: SimDevice,
    pub(super) index: usize,
}

impl Events for SimEvents {
    fn wait(&mut self, timeout: Duration) -> Result<bool> {
        let mut world = self.device.world();
        let end = world.now + nanoseconds(timeout);
        loop {
            if std::mem::take(&mut world.signals[self.index]) {
                return Ok(true);
            }
            if world.next_at().is_none_or(|at| at > end) {
                world.run_until(end);
                return Ok(false);
            }
            world.step();
        }
    }

    fn waker(&self) -> Waker {
        Arc::new(Signal { world: self.device.0.sim.world.clone(), index: self.index }).into()
    }
}

/// Wakes without time passing. A thread that waits holds the world, so it is woken by what happens
/// in the world only, and others' signals are for its next wait.
struct Signal {
    world: Shared,
    index: usize,
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        lock(&self.world).signals[self.index] = true;
    }
}

/// A completion queue of a node.
pub struct SimQueue {
    pub(super) device: SimDevice,
    pub(super) index: usize,
}

impl CompletionQueue for SimQueue {
    fn poll(&mut self, out: &mut [Completion]) -> Result<usize> {
        let mut world = self.device.world();
        let mut count = 0;
        while count < out.len() {
            let Some(entry) = world.queues[self.index].entries.pop_front() else { break };
            let Entry { completion, frees } = entry;
            match completion.queue_pair.checked_sub(FIRST_NUMBER) {
                Some(ud) => world.uds[ud as usize].used -= frees,
                None => world.pairs[completion.queue_pair as usize - 1].used -= frees,
            }
            out[count] = completion;
            count += 1;
        }
        if count == 0 && world.queues[self.index].overflow {
            return Err(Error::CompletionOverflow);
        }
        Ok(count)
    }

    fn arm(&mut self) -> Result<()> {
        let mut world = self.device.world();
        let queue = &mut world.queues[self.index];
        queue.events.ok_or(NO_EVENTS)?;
        queue.armed = true;
        Ok(())
    }
}

/// A reliable connection of a node.
pub struct SimPair {
    pub(super) device: SimDevice,
    pub(super) index: usize,
}

impl SimPair {
    fn post_one(&self, world: &mut World, request: &WorkRequest<'_>) -> Result<()> {
        let pair = &world.pairs[self.index];
        match pair.state {
            State::Fresh => return Err(Error::NotConnected),
            State::Failed => return Err(Error::Failed),
            State::Connected => {}
        }
        request.operation.check(self.device.0.number, &self.device.0.limits)?;
        if pair.used == pair.sizes.send {
            return Err(Error::QueueFull);
        }
        world.post(self.index, request);
        Ok(())
    }

    fn post_one_receive(&self, world: &mut World, receive: &Receive<'_>) -> Result<()> {
        let pair = &mut world.pairs[self.index];
        if pair.state == State::Failed {
            return Err(Error::Failed);
        }
        KeptReceive::post(receive, self.device.0.number, &mut pair.receives, pair.sizes.receive)
    }
}

impl QueuePair for SimPair {
    fn number(&self) -> u32 {
        number_of(self.index)
    }

    fn endpoint(&self) -> Endpoint {
        self.device.endpoint(self.number())
    }

    fn connect(&mut self, peer: &Endpoint) -> Result<()> {
        let number = self.device.number_in(peer)?;
        let mut world = self.device.world();
        let peer = (number as usize).wrapping_sub(1);
        if peer >= world.pairs.len() {
            return Err(Error::BadEndpoint { reason: "there is no such queue pair" });
        }
        match world.pairs[self.index].state {
            State::Fresh => world.pairs[self.index].connect(peer),
            State::Connected => return Err(Error::AlreadyConnected),
            State::Failed => return Err(Error::Failed),
        }
        Ok(())
    }

    fn post(&mut self, requests: &[WorkRequest<'_>]) -> std::result::Result<(), Rejected> {
        let mut world = self.device.world();
        post_all(requests, |request| self.post_one(&mut world, request))
    }

    fn post_receive(&mut self, receives: &[Receive<'_>]) -> std::result::Result<(), Rejected> {
        let mut world = self.device.world();
        post_all(receives, |receive| self.post_one_receive(&mut world, receive))
    }

    fn state(&self) -> State {
        self.device.world().pairs[self.index].state
    }

    fn fail(&mut self) {
        self.device.world().fail(self.index, crate::Status::Flushed);
    }
}

impl Drop for SimPair {
    fn drop(&mut self) {
        self.device.world().pairs[self.index].drop_work();
    }
}

/// A datagram queue pair of a node.
pub struct SimDatagram {
    pub(super) device: SimDevice,
    pub(super) index: usize,
}

/// A datagram queue pair or a group that was resolved.
#[derive(Debug, Clone, Copy)]
pub struct SimAddress(Recipient);

impl Datagram for SimDatagram {
    type Address = SimAddress;

    fn number(&self) -> u32 {
        FIRST_NUMBER + self.index as u32
    }

    fn endpoint(&self) -> Endpoint {
        self.device.endpoint(self.number())
    }

    fn resolve(&mut self, peer: &Endpoint) -> Result<SimAddress> {
        let index = self.device.number_in(peer)?.wrapping_sub(FIRST_NUMBER) as usize;
        if index >= self.device.world().uds.len() {
            return Err(Error::BadEndpoint { reason: "there is no such datagram queue pair" });
        }
        Ok(SimAddress(Recipient::One(index)))
    }

    fn join(&mut self, group: Group) -> Result<()> {
        self.device.world().uds[self.index].groups.insert(group);
        Ok(())
    }

    fn resolve_group(&mut self, group: Group) -> Result<SimAddress> {
        Ok(SimAddress(Recipient::Members(group)))
    }

    fn post(&mut self, requests: &[Outgoing<'_, SimAddress>]) -> std::result::Result<(), Rejected> {
        let mut world = self.device.world();
        post_all(requests, |request| {
            request.check(self.device.0.number, &self.device.0.limits)?;
            let ud = &world.uds[self.index];
            if ud.used == ud.sizes.send {
                return Err(Error::QueueFull);
            }
            world.send_datagram(self.index, request.to.0, request);
            Ok(())
        })
    }

    fn post_receive(&mut self, receives: &[Receive<'_>]) -> std::result::Result<(), Rejected> {
        let mut world = self.device.world();
        post_all(receives, |receive| {
            let ud = &mut world.uds[self.index];
            KeptReceive::post(receive, self.device.0.number, &mut ud.receives, ud.sizes.receive)
        })
    }
}

impl Drop for SimDatagram {
    fn drop(&mut self) {
        let mut world = self.device.world();
        world.uds[self.index].open = false;
        world.uds[self.index].receives.clear();
    }
}

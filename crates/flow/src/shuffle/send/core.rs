//! Common part of the four sending endpoints: buffers and their states, and the messages that wait
//! for credit.

use std::collections::VecDeque;
use std::time::Duration;

use millstream_fabric::{Completion, Fabric};

use crate::shuffle::counters::Counters;
use crate::shuffle::error::{Error, Result};
use crate::shuffle::links::Links;
use crate::shuffle::pool::{Buffers, PoolSlot};
use crate::shuffle::settings::{Depth, Settings};
use crate::shuffle::wire::{HEADER_AT, Header, Kind, State};

/// A message on its way to a destination.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Parcel {
    pub(crate) slot: u32,
    pub(crate) bytes: u32,
    pub(crate) state: State,
}

/// State of a destination.
pub(crate) struct Lane {
    /// Messages that were put and have no credit yet, oldest first.
    pub(crate) backlog: VecDeque<Parcel>,
    /// Messages whose buffer that destination may still be reading.
    pub(crate) in_flight: u32,
    /// `Depleted` was put.
    pub(crate) depleted: bool,
}

impl Lane {
    /// Whether all that will ever go there has gone.
    pub(crate) fn is_done(&self) -> bool {
        self.depleted && self.is_empty()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.backlog.is_empty() && self.in_flight == 0
    }
}

pub(crate) struct SenderCore<F: Fabric> {
    pub(crate) fabric: F,
    pub(crate) settings: Settings,
    pub(crate) id: u32,
    pub(crate) queue: F::CompletionQueue,
    pub(crate) counters: Counters,
    pub(crate) buffers: Buffers<F>,
    pub(crate) lanes: Vec<Lane>,
    /// By buffer: destinations that are not done with it (state Transmit, if not 0).
    pending: Vec<u32>,
    /// Buffers that are free (state Wait).
    wait: VecDeque<u32>,
}

impl<F: Fabric> SenderCore<F> {
    pub(crate) fn new(
        fabric: &F,
        settings: Settings,
        id: u32,
        queue: F::CompletionQueue,
        mut buffers: Buffers<F>,
        receivers: usize,
    ) -> Result<SenderCore<F>> {
        let (least, most) = settings.per_peer();
        let wait = VecDeque::from(buffers.fetch_least(least as usize * receivers)?);
        let lane = || Lane { backlog: VecDeque::new(), in_flight: 0, depleted: false };
        Ok(SenderCore {
            fabric: fabric.clone(),
            settings,
            id,
            queue,
            counters: Counters { buffers_max: wait.len() as u64, ..Counters::default() },
            buffers,
            lanes: (0..receivers).map(|_| lane()).collect(),
            pending: vec![0; most as usize * receivers],
            wait,
        })
    }

    pub(crate) fn now(&self) -> Duration {
        self.fabric.now()
    }

    /// Counters of this part.
    pub(crate) fn counters(&self) -> Counters {
        let slots = self.buffers.registered_bytes(self.settings.slot_bytes());
        let buffers = self.buffers.circulating() as u64;
        Counters { registered_bytes: slots as u64, buffers, ..self.counters }
    }

    /// Takes note of completions of the connections; with `frees`, that of a message frees its
    /// buffer. Returns whether there were any.
    pub(crate) fn complete_links(&mut self, links: &mut Links<F>, frees: bool) -> Result<bool> {
        let mut some = [Completion::default(); 16];
        let count = self.complete(&mut some)?;
        links.absorb(&some[..count], self.now(), |to, _, slot| {
            if frees {
                self.done(to, slot);
            }
            Ok(())
        })?;
        Ok(count > 0)
    }

    /// Takes up to `out.len()` completions.
    pub(crate) fn complete(&mut self, out: &mut [Completion]) -> Result<usize> {
        self.counters.complete(&mut self.queue, out)
    }

    /// Which connections are still needed.
    pub(crate) fn needed(&self) -> impl Fn(usize) -> bool {
        |to| !self.lanes[to].is_done()
    }

    /// A free buffer (paper, AdaptiveAcquire): of several free buffers, the rest may leave; without
    /// a free buffer, a new buffer may come.
    pub(crate) fn take(&mut self) -> Result<Option<u32>> {
        if let Depth::Adaptive { .. } = self.settings.depth {
            let least = self.settings.per_peer().0 as usize * self.lanes.len();
            while self.wait.len() > 1 && self.buffers.circulating() > least {
                let Some(slot) = self.wait.pop_back() else { break };
                self.buffers.retire(slot);
                self.counters.retired += 1;
            }
            if self.wait.is_empty()
                && let Some(slot) = self.buffers.fetch()?
            {
                self.counters.added += 1;
                self.wait.push_back(slot);
                let now = self.buffers.circulating() as u64;
                self.counters.buffers_max = self.counters.buffers_max.max(now);
            }
        }
        let slot = self.wait.pop_front();
        self.counters.starved += u64::from(slot.is_none());
        Ok(slot)
    }

    /// A buffer that was not sent is free again.
    pub(crate) fn give_back(&mut self, slot: u32) {
        self.wait.push_back(slot);
    }

    /// Checks a call and puts the message behind those that wait.
    pub(crate) fn put(
        &mut self,
        slot: u32,
        bytes: usize,
        to: &[usize],
        state: State,
    ) -> Result<()> {
        if bytes > self.settings.message_bytes {
            return Err(Error::TooLong { bytes, max: self.settings.message_bytes });
        }
        for (at, number) in to.iter().copied().enumerate() {
            let count = self.lanes.len();
            if number >= count || to[..at].contains(&number) {
                return Err(Error::Destination { number, count });
            }
            if self.lanes[number].depleted {
                return Err(Error::Ended { number });
            }
        }
        if to.is_empty() {
            self.give_back(slot);
            return Ok(());
        }
        let bytes = bytes as u32;
        let header = Header { bytes, kind: Kind::Data(state), id: self.id };
        let PoolSlot { region, offset } = self.buffers.slot(slot);
        region.write(offset + HEADER_AT, &header.encode())?;
        self.pending[slot as usize] = to.len() as u32;
        for number in to.iter().copied() {
            let lane = &mut self.lanes[number];
            lane.backlog.push_back(Parcel { slot, bytes, state });
            lane.depleted |= state == State::Depleted;
        }
        Ok(())
    }

    /// A message has been handed to the network card.
    pub(crate) fn sent(&mut self, to: usize, parcel: Parcel) {
        self.lanes[to].in_flight += 1;
        self.counters.messages += 1;
        self.counters.bytes += u64::from(parcel.bytes);
    }

    /// A destination is done with a buffer, which is free when all are. Returns false if it was not
    /// under way there.
    pub(crate) fn done(&mut self, to: usize, slot: u32) -> bool {
        let lane = &mut self.lanes[to];
        let Some(pending) = self.pending.get_mut(slot as usize).filter(|left| **left > 0) else {
            return false;
        };
        if lane.in_flight == 0 {
            return false;
        }
        lane.in_flight -= 1;
        *pending -= 1;
        if *pending == 0 {
            self.wait.push_back(slot);
        }
        true
    }
}

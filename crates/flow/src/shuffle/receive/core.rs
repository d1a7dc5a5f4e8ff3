//! Common part of the four receiving endpoints: sources, buffers and their states, and the messages
//! that wait for a thread.

use std::collections::VecDeque;
use std::time::Duration;

use millstream_fabric::{Completion, Fabric};

use crate::shuffle::counters::Counters;
use crate::shuffle::error::{Error, Result};
use crate::shuffle::pool::Buffers;
use crate::shuffle::settings::{Depth, Settings};
use crate::shuffle::wire::{HEADER_AT, HEADER_BYTES, Header, Kind, State};

/// A message that has arrived (state Consume).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ready {
    pub(crate) source: usize,
    /// The local buffer.
    pub(crate) slot: u32,
    /// The sender's buffer, where the receiver reads.
    pub(crate) remote: u32,
    pub(crate) bytes: u32,
    pub(crate) state: State,
    /// The buffer leaves circulation when it is released.
    pub(crate) surplus: bool,
}

/// A sending endpoint.
pub(crate) struct Origin {
    pub(crate) id: u32,
    /// Its last message has arrived, and all before it.
    pub(crate) ended: bool,
    /// Circulating buffers of the source, buffers that it may fill (state Transmit), and buffers
    /// that leave when released.
    pub(crate) circulating: u32,
    pub(crate) posted: u32,
    pub(crate) surplus: u32,
    /// Receives posted since it was connected (absolute credit), and how many it has been told.
    pub(crate) granted: u64,
    pub(crate) told: u64,
}

pub(crate) struct ReceiverCore<F: Fabric> {
    pub(crate) fabric: F,
    pub(crate) settings: Settings,
    pub(crate) id: u32,
    pub(crate) queue: F::CompletionQueue,
    pub(crate) counters: Counters,
    pub(crate) buffers: Buffers<F>,
    pub(crate) sources: Vec<Origin>,
    pub(crate) ready: VecDeque<Ready>,
}

impl<F: Fabric> ReceiverCore<F> {
    pub(crate) fn new(
        fabric: &F,
        settings: Settings,
        id: u32,
        queue: F::CompletionQueue,
        buffers: Buffers<F>,
        senders: usize,
    ) -> ReceiverCore<F> {
        let source = |_| Origin {
            id: 0,
            ended: false,
            circulating: 0,
            posted: 0,
            surplus: 0,
            granted: 0,
            told: 0,
        };
        ReceiverCore {
            fabric: fabric.clone(),
            settings,
            id,
            queue,
            counters: Counters::default(),
            buffers,
            sources: (0..senders).map(source).collect(),
            ready: VecDeque::new(),
        }
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

    /// Takes up to `out.len()` completions.
    pub(crate) fn complete(&mut self, out: &mut [Completion]) -> Result<usize> {
        self.counters.complete(&mut self.queue, out)
    }

    /// Which connections are still needed.
    pub(crate) fn needed(&self) -> impl Fn(usize) -> bool {
        |source| !self.sources[source].ended
    }

    /// Buffers of its own (or of a pool) for source `source`, when it is opened.
    pub(crate) fn first_buffers(&mut self, source: usize) -> Result<Vec<u32>> {
        let slots = self.buffers.fetch_least(self.settings.per_peer().0 as usize)?;
        self.circulate(source, slots.len() as u32);
        Ok(slots)
    }

    /// So many more buffers circulate for a source.
    pub(crate) fn circulate(&mut self, source: usize, count: u32) {
        self.sources[source].circulating += count;
        self.sources[source].posted += count;
        let now = self.buffers.circulating() as u64;
        self.counters.buffers_max = self.counters.buffers_max.max(now);
    }

    /// A message has arrived in a buffer.
    pub(crate) fn arrived(&mut self, ready: Ready) {
        let source = &mut self.sources[ready.source];
        source.posted = source.posted.saturating_sub(1);
        source.ended |= ready.state == State::Depleted;
        self.counters.messages += 1;
        self.counters.bytes += u64::from(ready.bytes);
        self.ready.push_back(ready);
    }

    /// Several messages were ready at once: all but one of their buffers may leave (paper,
    /// AdaptiveGetData).
    pub(crate) fn mark_surplus(&mut self) {
        let Depth::Adaptive { .. } = self.settings.depth else { return };
        let least = self.settings.per_peer().0;
        for ready in self.ready.iter_mut().skip(1) {
            let source = &mut self.sources[ready.source];
            if !ready.surplus && source.circulating - source.surplus > least {
                ready.surplus = true;
                source.surplus += 1;
            }
        }
    }

    /// A source that may fill few buffers while nothing is ready: the source waits for messages
    /// held by our threads. "Few" is fewer than credit is written for.
    pub(crate) fn starving(&self) -> Option<usize> {
        let Depth::Adaptive { .. } = self.settings.depth else { return None };
        let most = self.settings.per_peer().1;
        let starves = |source: &Origin| {
            !source.ended && source.circulating < most && source.posted < self.settings.credit_every
        };
        self.sources.iter().position(starves)
    }

    /// A buffer for a source that starves has come.
    pub(crate) fn added(&mut self, source: usize) {
        self.counters.added += 1;
        self.circulate(source, 1);
    }

    /// A message is released: its buffer leaves circulation, or its source may fill the buffer
    /// again. Returns whether the source may.
    pub(crate) fn reuse(&mut self, ready: &Ready) -> bool {
        if ready.surplus {
            self.retire(ready);
        } else {
            self.sources[ready.source].posted += 1;
        }
        !ready.surplus
    }

    /// The buffer of a released message leaves circulation.
    pub(crate) fn retire(&mut self, ready: &Ready) {
        self.buffers.retire(ready.slot);
        self.counters.retired += 1;
        let source = &mut self.sources[ready.source];
        source.circulating -= 1;
        source.surplus -= 1;
    }

    /// The header of the message in a buffer, of which so many bytes were written, header included.
    pub(crate) fn header(&self, source: usize, slot: u32, written: usize) -> Result<(u32, State)> {
        let slot = self.buffers.slot(slot);
        let mut bytes = [0; HEADER_BYTES];
        slot.region.read(slot.offset + HEADER_AT, &mut bytes)?;
        let most = self.settings.message_bytes.min(written.saturating_sub(HEADER_BYTES));
        match Header::decode(&bytes) {
            Some(Header { bytes, kind: Kind::Data(state), .. }) if bytes as usize <= most => {
                Ok((bytes, state))
            }
            other => Err(Error::Protocol {
                peer: self.sources[source].id,
                what: "a message's header is wrong or its length impossible",
                found: other.map_or(0, |header| header.bytes.into()),
            }),
        }
    }

    /// Checks that a peer named an existing buffer, and a length within it.
    pub(crate) fn check(&self, source: usize, slot: u32, slots: u32, bytes: u32) -> Result<()> {
        if slot < slots && bytes as usize <= self.settings.message_bytes {
            return Ok(());
        }
        Err(Error::Protocol {
            peer: self.sources[source].id,
            what: "it named a buffer that does not exist, or is shorter",
            found: u64::from(slot) << 32 | u64::from(bytes),
        })
    }

    /// Whether all sources have ended and all messages been taken.
    pub(crate) fn has_ended(&self) -> bool {
        self.ready.is_empty() && self.sources.iter().all(|source| source.ended)
    }
}

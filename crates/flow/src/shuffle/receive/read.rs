//! Reads the senders' buffers (MQ/RD; paper, section 5.4, algorithm 4).
//!
//! Local buffers are for any source: a source's message waits in its own buffer until one is free.

use std::collections::VecDeque;

use millstream_fabric::{Destination, Fabric, Kind, Operation, WorkRequest};

use super::core::{Ready, ReceiverCore};
use super::links::Sources;
use crate::shuffle::error::Result;
use crate::shuffle::settings::Depth;
use crate::shuffle::wire::{Entry, PAYLOAD_AT, SLOTS_MAX};

pub(crate) struct ReadReceiver<F: Fabric> {
    pub(crate) sources: Sources<F>,
    /// Local buffers that are free (state Wait).
    wait: VecDeque<u32>,
    /// By local buffer: the read under way.
    reading: Vec<Option<(usize, Entry)>>,
    /// The source that is looked at first, so that each has its turn.
    first: usize,
}

impl<F: Fabric> ReadReceiver<F> {
    pub(crate) fn new(sources: Sources<F>, wait: VecDeque<u32>, slots: usize) -> ReadReceiver<F> {
        ReadReceiver { sources, wait, reading: vec![None; slots], first: 0 }
    }

    pub(crate) fn poll(&mut self, core: &mut ReceiverCore<F>) -> Result<bool> {
        let reading = &mut self.reading;
        let count = self.sources.complete(core, |core, _, completion, slot| {
            if completion.kind == Kind::Read
                && let Some((source, entry)) = reading[slot as usize].take()
            {
                let Entry { slot: remote, bytes, state } = entry;
                core.arrived(Ready { source, slot, remote, bytes, state, surplus: false });
            }
            Ok(())
        })?;
        let sources = core.sources.len();
        let mut found = false;
        for turn in 0..sources {
            let source = (self.first + turn) % sources;
            found |= self.read(core, source)?;
        }
        self.first = (self.first + 1) % sources;
        Ok(found || count > 0)
    }

    /// Reads what a source has, as far as there are local buffers.
    fn read(&mut self, core: &mut ReceiverCore<F>, source: usize) -> Result<bool> {
        let mut found = false;
        while !core.sources[source].ended && self.sources.links.all[source].room(1) {
            let link = &self.sources.links.all[source];
            let Some(entry) = link.next_entry(&mut core.counters) else { break };
            core.check(source, entry.slot, SLOTS_MAX as u32, entry.bytes)?;
            let Some(local) = self.local(core, source)? else { break };
            self.reading[local as usize] = Some((source, entry));
            let link = &mut self.sources.links.all[source];
            link.took_entry();
            let at = u64::from(entry.slot) * core.settings.slot_bytes() as u64 + PAYLOAD_AT as u64;
            // A message without payload takes the same way as others, or it would overtake them.
            let bytes = (entry.bytes as usize).max(1);
            let from = link.peer.buffers.at(at, bytes as u64)?;
            let slot = core.buffers.slot(local);
            let offset = slot.offset + PAYLOAD_AT;
            let into = Destination { region: &slot.region, offset, bytes };
            let request = WorkRequest::new(Operation::Read { into, from });
            link.post(&mut [request], Some(local))?;
            found = true;
        }
        Ok(found)
    }

    /// A free local buffer. Here a shortage is known for certain: there is something to read.
    fn local(&mut self, core: &mut ReceiverCore<F>, source: usize) -> Result<Option<u32>> {
        if let Some(slot) = self.wait.pop_front() {
            return Ok(Some(slot));
        }
        core.counters.starved += 1;
        let Depth::Adaptive { .. } = core.settings.depth else { return Ok(None) };
        let added = core.buffers.fetch()?;
        if added.is_some() {
            core.added(source);
        }
        Ok(added)
    }

    pub(crate) fn release(&mut self, core: &mut ReceiverCore<F>, ready: &Ready) -> Result<()> {
        if core.reuse(ready) {
            self.wait.push_back(ready.slot);
        }
        self.sources.free(ready.source, ready.remote);
        Ok(())
    }
}

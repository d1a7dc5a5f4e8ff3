//! Buffers that the receiver reads (MQ/RD; paper, section 5.4, algorithm 4).
//!
//! A message is an entry in the receiver's queue of valid buffers. The receiver reads the buffer,
//! and when it has released the data it puts an entry into the queue of free buffers here. A buffer
//! for several destinations is free when all have done so.

use millstream_fabric::Fabric;

use super::core::{Core, Parcel};
use super::links::Links;
use crate::shuffle::error::{Error, Result};
use crate::shuffle::link::CONTROL;
use crate::shuffle::wire::Entry;

pub(crate) struct Read<F: Fabric> {
    pub(crate) links: Links<F>,
    /// By destination: entries written.
    written: Vec<u64>,
}

impl<F: Fabric> Read<F> {
    pub(crate) fn new(links: Links<F>) -> Read<F> {
        Read { written: vec![0; links.links.len()], links }
    }

    /// The receiver's queue has as many entries as a connection has buffers at most.
    pub(crate) fn ready(&mut self, core: &mut Core<F>, to: usize) -> bool {
        core.lanes[to].in_flight < core.settings.per_peer().1 && self.links.links[to].room(1)
    }

    pub(crate) fn send(&mut self, core: &mut Core<F>, to: usize, parcel: Parcel) -> Result<()> {
        let Parcel { slot, bytes, state } = parcel;
        let number = self.written[to];
        self.written[to] += 1;
        let entry = Entry { slot, bytes, state };
        self.links.links[to].write_entry(number, entry, CONTROL, &mut core.counters)
    }

    pub(crate) fn poll(&mut self, core: &mut Core<F>) -> Result<bool> {
        let mut found = self.links.complete(core, false)?;
        for to in 0..core.lanes.len() {
            if core.lanes[to].in_flight == 0 {
                continue;
            }
            while let Some(entry) = self.links.next_free(to, &mut core.counters) {
                if !core.done(to, entry.slot) {
                    return Err(Error::Protocol {
                        peer: self.links.links[to].peer.id,
                        what: "it freed a buffer that was not under way",
                        found: entry.slot.into(),
                    });
                }
                found = true;
            }
        }
        Ok(found)
    }
}

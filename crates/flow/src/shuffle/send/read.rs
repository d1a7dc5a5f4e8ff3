//! Buffers that the receiver reads (MQ/RD; paper, section 5.4, algorithm 4).
//!
//! A message is an entry in the receiver's queue of valid buffers. The receiver reads the buffer,
//! and when it has released the data it puts an entry into the queue of free buffers here. A buffer
//! for several destinations is free when all have done so.

use millstream_fabric::Fabric;

use super::core::{Parcel, SenderCore};
use crate::shuffle::error::{Error, Result};
use crate::shuffle::links::Links;
use crate::shuffle::wire::Entry;

pub(crate) struct ReadSender<F: Fabric> {
    pub(crate) links: Links<F>,
}

impl<F: Fabric> ReadSender<F> {
    /// The receiver's queue has as many entries as a connection has buffers at most.
    pub(crate) fn ready(&mut self, core: &mut SenderCore<F>, to: usize) -> bool {
        core.lanes[to].in_flight < core.settings.per_peer().1 && self.links.all[to].room(1)
    }

    pub(crate) fn send(&mut self, to: usize, parcel: Parcel) -> Result<()> {
        let Parcel { slot, bytes, state } = parcel;
        self.links.all[to].write_entry(Entry { slot, bytes, state }, None)
    }

    pub(crate) fn poll(&mut self, core: &mut SenderCore<F>) -> Result<bool> {
        let mut found = core.complete_links(&mut self.links, false)?;
        for (to, link) in self.links.all.iter_mut().enumerate() {
            if core.lanes[to].in_flight == 0 {
                continue;
            }
            while let Some(entry) = link.next_entry(&mut core.counters) {
                link.took_entry();
                if !core.done(to, entry.slot) {
                    return Err(Error::Protocol {
                        peer: link.peer.id,
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

//! Sends over reliable connections (MQ/SR; paper, section 5.2, algorithm 3).
//!
//! The receiver counts the receives that it has posted (absolute credit) in a word here. A message
//! needs one that has not been used.

use millstream_fabric::{Fabric, Operation, Source, WorkRequest};

use super::core::{Parcel, SenderCore};
use crate::shuffle::error::Result;
use crate::shuffle::links::Links;
use crate::shuffle::wire::{HEADER_AT, HEADER_BYTES};

pub(crate) struct MessageSender<F: Fabric> {
    pub(crate) links: Links<F>,
}

impl<F: Fabric> MessageSender<F> {
    pub(crate) fn ready(&mut self, core: &mut SenderCore<F>, to: usize) -> bool {
        let link = &mut self.links.all[to];
        link.has_credit(&mut core.counters) && link.room(1)
    }

    pub(crate) fn send(
        &mut self,
        core: &mut SenderCore<F>,
        to: usize,
        parcel: Parcel,
    ) -> Result<()> {
        let slot = core.buffers.slot(parcel.slot);
        let bytes = HEADER_BYTES + parcel.bytes as usize;
        let source =
            Source::Region { region: &slot.region, offset: slot.offset + HEADER_AT, bytes };
        let request = WorkRequest::new(Operation::Send { source, immediate: None });
        let link = &mut self.links.all[to];
        link.sent += 1;
        link.post(&mut [request], Some(parcel.slot))
    }

    pub(crate) fn poll(&mut self, core: &mut SenderCore<F>) -> Result<bool> {
        core.complete_links(&mut self.links, true)
    }
}

//! Writes into the receiver's buffers (MQ/WR; paper, section 5.5, algorithms 5 and 6).
//!
//! The receiver announces free buffers in a queue here; a message takes the oldest, so the receiver
//! knows in which order they fill. The notification tells the receiver that a buffer is full.

use std::collections::VecDeque;

use millstream_fabric::{Fabric, Source, WorkRequest};

use super::core::{Parcel, SenderCore};
use crate::shuffle::design::Notification;
use crate::shuffle::error::{Error, Result};
use crate::shuffle::links::{Connection, Links};
use crate::shuffle::wire::{Entry, HEADER_AT, HEADER_BYTES, immediate, seal};

pub(crate) struct WriteSender<F: Fabric> {
    pub(crate) links: Links<F>,
    notification: Notification,
    /// By destination: free buffers there.
    free: Vec<VecDeque<u32>>,
}

impl<F: Fabric> WriteSender<F> {
    pub(crate) fn new(links: Links<F>, notification: Notification, most: u32) -> WriteSender<F> {
        let free = |link: &Connection<F>| (0..link.peer.granted.min(most.into()) as u32).collect();
        WriteSender { free: links.all.iter().map(free).collect(), notification, links }
    }

    /// Where the message of `bytes` goes: from its header to its end, or to the seal.
    fn range(&self, slot_bytes: usize, bytes: u32) -> usize {
        match self.notification {
            Notification::Buffers => slot_bytes - HEADER_AT,
            _ => HEADER_BYTES + bytes as usize,
        }
    }

    pub(crate) fn ready(&mut self, core: &mut SenderCore<F>, to: usize) -> bool {
        let link = &mut self.links.all[to];
        let needs_credit = self.notification == Notification::CompletionQueue;
        !self.free[to].is_empty()
            && (!needs_credit || link.has_credit(&mut core.counters))
            && link.room(2)
    }

    pub(crate) fn send(
        &mut self,
        core: &mut SenderCore<F>,
        to: usize,
        parcel: Parcel,
    ) -> Result<()> {
        let slot_bytes = core.settings.slot_bytes();
        let bytes = self.range(slot_bytes, parcel.bytes);
        let local = core.buffers.slot(parcel.slot);
        if self.notification == Notification::Buffers {
            let word = seal(parcel.bytes, parcel.state).to_le_bytes();
            local.region.write(local.offset + slot_bytes - 8, &word)?;
        }
        let Some(slot) = self.free[to].pop_front() else { return Ok(()) };
        let link = &mut self.links.all[to];
        link.sent += 1;
        let at = u64::from(slot) * slot_bytes as u64 + HEADER_AT as u64;
        let there = link.peer.buffers.at(at, bytes as u64)?;
        let offset = local.offset + HEADER_AT;
        let source = Source::Region { region: &local.region, offset, bytes };
        let token = Some(parcel.slot);
        match self.notification {
            Notification::Buffers => link.tell(&mut [WorkRequest::write(source, there)], 1, token),
            Notification::CompletionQueue => {
                let value = immediate(slot, parcel.state);
                let write = WorkRequest::write_immediate(source, there, value);
                link.post(&mut [write], token)
            }
            Notification::MessageQueue => {
                let write = WorkRequest::write(source, there);
                link.post(&mut [write], None)?;
                let entry = Entry { slot, bytes: parcel.bytes, state: parcel.state };
                // The entry completes after the write before.
                link.write_entry(entry, token)
            }
        }
    }

    pub(crate) fn poll(&mut self, core: &mut SenderCore<F>) -> Result<bool> {
        let mut found = core.complete_links(&mut self.links, true)?;
        let most = core.settings.per_peer().1;
        for (to, (link, free)) in self.links.all.iter_mut().zip(&mut self.free).enumerate() {
            if core.lanes[to].is_done() {
                continue;
            }
            while let Some(entry) = link.next_entry(&mut core.counters) {
                link.took_entry();
                if entry.slot >= most || free.len() >= most as usize {
                    return Err(Error::Protocol {
                        peer: link.peer.id,
                        what: "it freed a buffer that it does not have",
                        found: entry.slot.into(),
                    });
                }
                free.push_back(entry.slot);
                found = true;
            }
        }
        Ok(found)
    }
}

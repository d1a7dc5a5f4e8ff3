//! Buffers that senders write into (MQ/WR; paper, section 5.5, algorithms 5 and 6).
//!
//! Each source has buffers of its own, and fills them in the order in which they were freed. So
//! with [`Notification::Buffers`] the one to look at is known, and a round of polling looks at one
//! word for each source, not at every buffer as in the paper.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use millstream_fabric::{Fabric, Kind, Receive};

use super::core::{Ready, ReceiverCore};
use super::links::Sources;
use crate::shuffle::design::Notification;
use crate::shuffle::error::{Error, Result};
use crate::shuffle::wire::{Entry, of_immediate, unseal};

pub(crate) struct WriteReceiver<F: Fabric> {
    pub(crate) sources: Sources<F>,
    notification: Notification,
    /// By source: its free buffers, in the order of filling, with the source's numbers.
    granted: Vec<VecDeque<u32>>,
}

impl<F: Fabric> WriteReceiver<F> {
    pub(crate) fn new(
        sources: Sources<F>,
        notification: Notification,
        core: &ReceiverCore<F>,
    ) -> WriteReceiver<F> {
        let least = core.settings.per_peer().0;
        let granted = core.sources.iter().map(|_| (0..least).collect()).collect();
        WriteReceiver { sources, notification, granted }
    }

    pub(crate) fn poll(&mut self, core: &mut ReceiverCore<F>) -> Result<bool> {
        let most = core.settings.per_peer().1;
        let granted = &mut self.granted;
        let count = self.sources.complete(core, |core, source, completion, _| {
            if completion.kind != Kind::ReceiveWrite {
                return Ok(());
            }
            let (slot, state) = of_immediate(completion.immediate.unwrap_or(u32::MAX));
            core.check(source, slot, most, 0)?;
            let local = source as u32 * most + slot;
            let (bytes, _) = core.header(source, local, completion.bytes as usize)?;
            take_granted(&mut granted[source], core.sources[source].id, slot)?;
            core.arrived(Ready { source, slot: local, remote: 0, bytes, state, surplus: false });
            Ok(())
        })?;
        let mut found = count > 0;
        for source in 0..core.sources.len() {
            found |= match self.notification {
                Notification::CompletionQueue => false,
                Notification::MessageQueue => self.poll_queue(core, source)?,
                Notification::Buffers => self.poll_seals(core, source)?,
            };
        }
        Ok(found)
    }

    fn poll_queue(&mut self, core: &mut ReceiverCore<F>, source: usize) -> Result<bool> {
        let most = core.settings.per_peer().1;
        let mut found = false;
        while !core.sources[source].ended
            && let Some(entry) = self.sources.links.all[source].next_entry(&mut core.counters)
        {
            self.sources.links.all[source].took_entry();
            let Entry { slot, bytes, state } = entry;
            core.check(source, slot, most, bytes)?;
            take_granted(&mut self.granted[source], core.sources[source].id, slot)?;
            let slot = source as u32 * most + slot;
            core.arrived(Ready { source, slot, remote: 0, bytes, state, surplus: false });
            found = true;
        }
        Ok(found)
    }

    fn poll_seals(&mut self, core: &mut ReceiverCore<F>, source: usize) -> Result<bool> {
        let most = core.settings.per_peer().1;
        let mut found = false;
        while !core.sources[source].ended
            && let Some(next) = self.granted[source].front().copied()
        {
            core.counters.looks += 1;
            let local = source as u32 * most + next;
            let Some(Entry { bytes, state, .. }) = seal(core, local) else { break };
            core.check(source, next, most, bytes)?;
            self.granted[source].pop_front();
            self.sources.links.all[source].saw(1);
            core.arrived(Ready { source, slot: local, remote: 0, bytes, state, surplus: false });
            found = true;
        }
        Ok(found)
    }

    /// Puts one more buffer into circulation for a source, if it has one. Returns whether it had.
    pub(crate) fn add(&mut self, core: &mut ReceiverCore<F>, source: usize) -> bool {
        let most = core.settings.per_peer().1;
        let mut own = source as u32 * most..(source as u32 + 1) * most;
        let Some(local) = own.find(|number| core.buffers.fetch_number(*number)) else {
            return false;
        };
        self.grant(core, source, local);
        true
    }

    /// The source may fill this buffer of its own (again).
    pub(crate) fn grant(&mut self, core: &mut ReceiverCore<F>, source: usize, local: u32) {
        let slot = local - source as u32 * core.settings.per_peer().1;
        if self.notification == Notification::Buffers {
            break_seal(core, local);
        }
        self.granted[source].push_back(slot);
        self.sources.free(source, slot);
    }

    pub(crate) fn release(&mut self, core: &mut ReceiverCore<F>, ready: &Ready) -> Result<()> {
        let source = ready.source;
        if self.notification == Notification::CompletionQueue && !core.sources[source].ended {
            // Receives have no buffers, so they come back even if the buffer does not.
            let receives = [Receive { id: 0, buffer: None }];
            self.sources.links.all[source].post_receives(&receives, &mut core.counters)?;
            core.sources[source].granted += 1;
        }
        if ready.surplus {
            if self.notification == Notification::Buffers {
                break_seal(core, ready.slot);
            }
            core.retire(ready);
        } else if !core.sources[source].ended {
            core.sources[source].posted += 1;
            self.grant(core, source, ready.slot);
        }
        Ok(())
    }
}

/// A source may fill a buffer that is free, once.
fn take_granted(granted: &mut VecDeque<u32>, peer: u32, slot: u32) -> Result<()> {
    // The first, unless the source does not keep to the order.
    let Some(at) = granted.iter().position(|free| *free == slot) else {
        let what = "it filled a buffer that was not free";
        return Err(Error::Protocol { peer, what, found: slot.into() });
    };
    granted.remove(at);
    Ok(())
}

/// The seal of a buffer, if it is sealed.
fn seal<F: Fabric>(core: &ReceiverCore<F>, local: u32) -> Option<Entry> {
    let slot = core.buffers.slot(local);
    let word = slot.region.word(slot.offset + core.settings.slot_bytes() - 8);
    unseal(word.load(Ordering::Acquire))
}

/// Before the source may write the buffer again.
fn break_seal<F: Fabric>(core: &ReceiverCore<F>, local: u32) {
    let slot = core.buffers.slot(local);
    slot.region.word(slot.offset + core.settings.slot_bytes() - 8).store(0, Ordering::Release);
}

//! Sends as unreliable datagrams (SQ/SR; paper, section 5.3).
//!
//! One queue pair for all destinations. Credit is absolute, as over connections, and comes as a
//! datagram; of several the largest counts, so order and loss do no harm, and the receiver repeats
//! it. A message's immediate value is its number for that destination, from 0; that of `Depleted`
//! also tells how many there are. The stream is over when the receiver says that it has all of it.

use std::time::Duration;

use millstream_fabric::{Completion, DATAGRAM_HEADER_BYTES, Datagram, Destination, Fabric};
use millstream_fabric::{Error as FabricError, Kind as Done, Outgoing, Receive, Region};
use millstream_fabric::{Source, Status};

use super::core::{Parcel, SenderCore};
use crate::shuffle::attention::Attention;
use crate::shuffle::error::{Error, Result};
use crate::shuffle::settings::CREDIT_SLOT_BYTES;
use crate::shuffle::wire::{HEADER_AT, HEADER_BYTES, Header, Kind};

pub(crate) struct DatagramSender<F: Fabric> {
    pair: F::Datagram,
    /// Room for credit.
    memory: Region,
    targets: Vec<Target<F>>,
    /// Entries of the send queue, and how many are taken. All requests are signalled.
    entries: u32,
    used: u32,
    /// Completions taken at a time: no more than there are receives for credit, or credit that is
    /// on its way would find none.
    batch: usize,
    attention: Attention,
    /// Destinations have been told that this endpoint has failed.
    parted: bool,
}

/// A destination.
pub(crate) struct Target<F: Fabric> {
    pub(crate) id: u32,
    pub(crate) address: <F::Datagram as Datagram>::Address,
    /// Receives that it has posted for this endpoint, and messages sent there.
    credit: u64,
    sent: u64,
    /// When it was last heard of, and last spoken to.
    heard: Duration,
    spoke: Duration,
    /// The destination has the whole stream.
    complete: bool,
    /// The destination has failed.
    failed: bool,
}

impl<F: Fabric> Target<F> {
    pub(crate) fn new(
        id: u32,
        address: <F::Datagram as Datagram>::Address,
        credit: u64,
        now: Duration,
    ) -> Target<F> {
        let (sent, complete, failed) = (0, false, false);
        Target { id, address, credit, sent, heard: now, spoke: now, complete, failed }
    }
}

/// Place of credit in a slot, so that the word is aligned.
const CREDIT_AT: usize = 64 - DATAGRAM_HEADER_BYTES - HEADER_BYTES;
/// Id of work that is no message.
const TOLD: u64 = u64::MAX;
/// Most completions taken at a time.
const BATCH: usize = 16;

/// Posts the receive for credit of this number.
fn post_receive<D: Datagram>(pair: &mut D, memory: &Region, number: u64) -> Result<()> {
    let offset = number as usize * CREDIT_SLOT_BYTES + CREDIT_AT;
    let bytes = CREDIT_SLOT_BYTES - CREDIT_AT;
    let buffer = Some(Destination { region: memory, offset, bytes });
    Ok(pair.post_receive(&[Receive { id: number, buffer }])?)
}

impl<F: Fabric> DatagramSender<F> {
    pub(crate) fn new(
        mut pair: F::Datagram,
        memory: Region,
        targets: Vec<Target<F>>,
        core: &mut SenderCore<F>,
    ) -> Result<DatagramSender<F>> {
        let sizes = core.settings.sender_datagrams(targets.len());
        for number in 0..sizes.receive {
            post_receive(&mut pair, &memory, number.into())?;
        }
        core.counters.receives += u64::from(sizes.receive);
        let (entries, batch) = (sizes.send, BATCH.min(sizes.receive as usize));
        let attention = Attention::new(core.now());
        let (used, parted) = (0, false);
        Ok(DatagramSender { pair, memory, targets, entries, used, batch, attention, parted })
    }

    #[cfg(test)]
    pub(super) fn skip(&mut self, count: u64) {
        self.targets[0].sent += count;
        self.targets[0].credit += count;
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.memory.len()
    }

    pub(crate) fn ready(&mut self, to: usize) -> bool {
        let target = &self.targets[to];
        target.sent < target.credit && self.used < self.entries
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
        // A buffer goes to several destinations: the id names both.
        let id = u64::from(parcel.slot) | (to as u64) << 32;
        let now = core.now();
        self.post(to, source, id, now)?;
        core.counters.datagrams += 1;
        Ok(())
    }

    fn post(&mut self, to: usize, source: Source<'_>, id: u64, now: Duration) -> Result<()> {
        let target = &mut self.targets[to];
        let immediate = Some(target.sent as u32);
        target.sent += 1;
        target.spoke = now;
        self.used += 1;
        let to = &target.address;
        Ok(self.pair.post(&[Outgoing { id, to, source, immediate, signalled: true }])?)
    }

    pub(crate) fn poll(&mut self, core: &mut SenderCore<F>) -> Result<bool> {
        let now = core.now();
        self.attention.call(now, core.settings.silence);
        let mut some = [Completion::default(); BATCH];
        let count = core.complete(&mut some[..self.batch])?;
        for completion in &some[..count] {
            if completion.status != Status::Success {
                return Err(FabricError::Failed.into());
            }
            match completion.kind {
                Done::Receive => self.take(core, completion, now)?,
                _ => {
                    self.used -= 1;
                    if completion.id != TOLD {
                        core.done((completion.id >> 32) as usize, completion.id as u32);
                    }
                }
            }
        }
        self.keep_alive(core, now)?;
        Ok(count > 0)
    }

    /// Takes credit, or the end. A datagram of anybody else is dropped: sockets are open to the
    /// whole job.
    fn take(
        &mut self,
        core: &mut SenderCore<F>,
        completion: &Completion,
        now: Duration,
    ) -> Result<()> {
        let at = completion.id as usize * CREDIT_SLOT_BYTES + CREDIT_AT + DATAGRAM_HEADER_BYTES;
        let mut header = [0; HEADER_BYTES];
        let mut credit = [0; 8];
        self.memory.read(at, &mut header)?;
        self.memory.read(at + HEADER_BYTES, &mut credit)?;
        let whole = completion.bytes as usize == DATAGRAM_HEADER_BYTES + HEADER_BYTES + 8;
        if let Some(Header { kind, id, .. }) = Header::decode(&header).filter(|_| whole)
            && let Some(to) = self.targets.iter().position(|target| target.id == id)
        {
            let (target, lane) = (&mut self.targets[to], &core.lanes[to]);
            target.heard = now;
            match kind {
                Kind::Credit => target.credit = target.credit.max(u64::from_le_bytes(credit)),
                Kind::Complete => target.complete |= lane.depleted && lane.backlog.is_empty(),
                Kind::Failed => target.failed = true,
                Kind::Data(_) | Kind::KeepAlive => {}
            }
        }
        core.counters.receives += 1;
        post_receive(&mut self.pair, &self.memory, completion.id)
    }

    /// Sends a sign of life to destinations after a silence. The sign takes credit, as any message
    /// does; a receiver that has given no credit does not wait for this endpoint.
    fn keep_alive(&mut self, core: &mut SenderCore<F>, now: Duration) -> Result<()> {
        for to in 0..self.targets.len() {
            let quiet = now.saturating_sub(self.targets[to].spoke) >= core.settings.silence / 4;
            if !quiet || core.lanes[to].depleted || !self.ready(to) {
                continue;
            }
            let header = Header { bytes: 0, kind: Kind::KeepAlive, id: core.id }.encode();
            self.post(to, Source::Inline(&header), TOLD, now)?;
            core.counters.datagrams += 1;
            core.counters.keep_alives += 1;
        }
        Ok(())
    }

    /// Whether a destination is gone: receivers repeat their credit, and at last that they have
    /// all, so none is silent for long.
    pub(crate) fn judge(&self, core: &SenderCore<F>) -> Result<()> {
        let now = core.now();
        for target in self.targets.iter().filter(|target| !target.complete) {
            if target.failed {
                return Err(Error::PeerLost { peer: target.id, status: Status::Flushed });
            }
            let time = self.attention.silent(now, target.heard);
            if time > core.settings.silence {
                return Err(Error::Silent { peer: target.id, time });
            }
        }
        Ok(())
    }

    /// Whether all destinations have all, and the network card has nothing left to send.
    pub(crate) fn is_over(&self) -> bool {
        self.used == 0 && self.targets.iter().all(|target| target.complete)
    }

    /// Tells destinations with open streams that no more will come, as far as credit allows;
    /// further destinations notice missing messages for which they granted credit.
    pub(crate) fn part(&mut self, core: &SenderCore<F>) {
        if std::mem::replace(&mut self.parted, true) {
            return;
        }
        let header = Header { bytes: 0, kind: Kind::Failed, id: core.id }.encode();
        for to in 0..self.targets.len() {
            if !self.targets[to].complete && self.ready(to) {
                // If it cannot be said, silence says it later.
                drop(self.post(to, Source::Inline(&header), TOLD, core.now()));
            }
        }
    }
}

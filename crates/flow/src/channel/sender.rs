//! The producer's end of a channel.

use std::sync::atomic::Ordering;
use std::time::Duration;

use millstream_fabric::setup::Hello;
use millstream_fabric::{
    Access, Events, Fabric, Operation, QueuePair, Region, RemoteRegion, Source, WorkRequest,
};

use crate::channel::error::{Error, Result};
use crate::channel::footer::{FOOTER_BYTES, Footer};
use crate::channel::settings::{Notification, Settings, WRITES_PER_SLOT};
use crate::channel::side::{CREDIT, Fresh, SLOT, Side};
use crate::channel::stats::Stats;
use crate::link::{HEARTBEAT, Misfit, Position, check_region};

/// A sender that has not met its receiver yet.
pub struct SenderSetup<F: Fabric> {
    fresh: Fresh<F>,
    ring: Region,
}

impl<F: Fabric> SenderSetup<F> {
    /// Allocates everything. The channel's completions go to `events`, where its thread may sleep.
    pub fn new(fabric: &F, events: &F::Events, settings: Settings) -> Result<SenderSetup<F>> {
        let fresh = Fresh::new(fabric, events, settings)?;
        let ring = fabric.allocate(settings.ring_bytes(), Access::LOCAL)?;
        Ok(SenderSetup { fresh, ring })
    }

    /// Set-up message for the receiver.
    pub fn hello(&self) -> Hello {
        hello(&self.fresh, &[self.fresh.control.remote()])
    }

    /// Connects to the receiver that sent `peer`.
    pub fn connect(self, peer: &Hello) -> Result<Sender<F>> {
        check_parameters(&self.fresh.settings, peer)?;
        let [control, ring] = peer.regions[..] else {
            return Err(mismatch("number of regions", 2, peer.regions.len() as u64));
        };
        let settings = self.fresh.settings;
        let bytes = settings.ring_bytes();
        if ring.bytes != bytes as u64 {
            return Err(mismatch("length of the ring", bytes as u64, ring.bytes));
        }
        check_region(&ring, bytes)?;
        let mut side = self.fresh.connect(peer, control)?;
        let window = match settings.notification {
            Notification::Footer => side.link.pair.window(&ring)?,
            Notification::Immediate => None,
        };
        Ok(Sender {
            side,
            in_place: window.is_some(),
            ring: window.unwrap_or(self.ring),
            peer_ring: ring,
            position: Position::new(settings.slots, settings.slot_bytes),
            sent: 0,
            released: 0,
            unsignalled: 0,
            ending: false,
        })
    }
}

pub(crate) fn hello<F: Fabric>(fresh: &Fresh<F>, regions: &[RemoteRegion]) -> Hello {
    let Settings { slots, slot_bytes, notification, .. } = fresh.settings;
    Hello {
        endpoint: fresh.pair.endpoint(),
        regions: regions.to_vec(),
        parameters: vec![
            slots as u64,
            slot_bytes as u64,
            (notification == Notification::Immediate).into(),
        ],
    }
}

pub(crate) fn mismatch(what: &'static str, ours: u64, theirs: u64) -> Error {
    Misfit { what, ours, theirs }.into()
}

/// Checks that the peer has the same settings.
pub(crate) fn check_parameters(settings: &Settings, peer: &Hello) -> Result<()> {
    let [slots, slot_bytes, immediate] = peer.parameters[..] else {
        return Err(mismatch("number of parameters", 3, peer.parameters.len() as u64));
    };
    let ours = u64::from(settings.notification == Notification::Immediate);
    for (what, ours, theirs) in [
        ("number of slots", settings.slots as u64, slots),
        ("slot bytes", settings.slot_bytes as u64, slot_bytes),
        ("notification (0 footer, 1 immediate)", ours, immediate),
    ] {
        if ours != theirs {
            return Err(mismatch(what, ours, theirs));
        }
    }
    Ok(())
}

/// The producer of a channel: acquires slots, fills and sends them.
///
/// Dropping it before [`Sender::finish`] is an error at the other side.
pub struct Sender<F: Fabric> {
    side: Side<F>,
    /// Slots as the producer fills them; the peer's ring is their copy, or, where this process can
    /// reach it, the same.
    ring: Region,
    in_place: bool,
    peer_ring: RemoteRegion,
    position: Position,
    /// Slots sent since the beginning.
    sent: u64,
    /// Slots known to be released.
    released: u64,
    /// Slots sent since the last signalled write.
    unsignalled: u64,
    ending: bool,
}

/// A slot to be filled. Dropped without sending it is free again.
pub struct Slot<'a, F: Fabric> {
    sender: &'a mut Sender<F>,
}

impl<F: Fabric> Sender<F> {
    /// Counters.
    pub fn stats(&self) -> Stats {
        self.side.stats()
    }

    /// Bytes of payload that a slot has room for.
    pub fn payload_bytes(&self) -> usize {
        self.side.settings.payload_bytes()
    }

    /// Slots sent since the beginning. Right after sending a slot it is the slot's number, counted
    /// from 1.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Slots that the receiver has processed since the beginning, as far as it has told: those
    /// numbered up to this. Their writes have been placed, whether or not a completion has told so.
    ///
    /// # Errors
    /// The peer claims more than were sent.
    pub fn released(&self) -> Result<u64> {
        self.check_count()
    }

    /// Slots that may be sent now.
    pub fn credits(&self) -> u64 {
        self.credits_of(self.side.link.block.peer_count())
    }

    /// Credit is an absolute count of released slots; a peer that claims more than were sent is
    /// found out here, whatever it writes.
    fn credits_of(&self, released: u64) -> u64 {
        let slots = self.side.settings.slots as u64;
        match self.sent.checked_sub(released) {
            Some(under_way) => slots.saturating_sub(under_way),
            None => 0,
        }
    }

    /// The next slot, if there is credit. Never waits.
    #[inline]
    pub fn try_acquire(&mut self) -> Result<Option<Slot<'_, F>>> {
        if !self.can_send()? {
            self.side.stats.credit_stalls += 1;
            self.look_closer()?;
            return Ok(None);
        }
        Ok(Some(Slot { sender: self }))
    }

    #[inline]
    fn can_send(&mut self) -> Result<bool> {
        // The peer's count is looked at only when what was seen of it is used up: its cache line is
        // the peer's most of the time.
        let slots = self.side.settings.slots as u64;
        if self.sent - self.released >= slots {
            self.released = self.check_count()?;
        }
        Ok(self.sent - self.released < slots && self.side.room(WRITES_PER_SLOT)?)
    }

    /// No credit: is the peer still there, and does it keep the protocol?
    fn look_closer(&mut self) -> Result<()> {
        self.check_count()?;
        self.side.poll()
    }

    /// The peer's count of released slots, if it is possible.
    fn check_count(&self) -> Result<u64> {
        let released = self.side.link.block.peer_count();
        if released > self.sent {
            let what = "credit for slots that were never sent";
            return Err(Error::Protocol { what, found: released });
        }
        Ok(released)
    }

    /// The next slot; waits for credit, at first awake and then asleep, for at most `timeout`.
    pub fn acquire(&mut self, events: &mut F::Events, timeout: Duration) -> Result<Slot<'_, F>> {
        if !self.can_send()? {
            self.side.stats.credit_stalls += 1;
            self.wait(events, timeout, "credit", |sender| sender.can_send())?;
        }
        Ok(Slot { sender: self })
    }

    fn wait(
        &mut self,
        events: &mut F::Events,
        timeout: Duration,
        what: &'static str,
        mut ready: impl FnMut(&mut Self) -> Result<bool>,
    ) -> Result<()> {
        let start = self.side.now();
        let mut looks = 0_u32;
        loop {
            if ready(self)? {
                return Ok(());
            }
            looks = looks.wrapping_add(1);
            self.side.pause();
            if !looks.is_multiple_of(self.side.looks_per_poll(32)) {
                continue;
            }
            self.look_closer()?;
            let waited = self.side.since(start);
            if waited >= timeout {
                return Err(Error::TimedOut { what });
            }
            if waited >= self.side.spin() && self.park()? && !ready(self)? {
                events.wait((timeout - waited).min(HEARTBEAT))?;
            }
        }
    }

    /// One step towards sleep, for a thread that has nothing to do until there is credit. Returns
    /// whether it may sleep at its events now, for at most a quarter of a second; new credit wakes
    /// it. Look for credit once more after a `true` and before sleeping.
    pub fn park(&mut self) -> Result<bool> {
        let seen = self.side.link.block.peer_count();
        self.side.park(seen)
    }

    /// Sends the slot at the position, and moves on. The payload's end stands elsewhere if `body`
    /// says so, which it does only if the slot is not in place.
    #[inline]
    fn send(&mut self, footer: Footer, body: Option<Source<'_>>, tag: u64) -> Result<()> {
        let settings = &self.side.settings;
        let footer_at = self.position.offset + settings.payload_bytes();
        let always = settings.notification == Notification::Immediate;
        let word = footer.encode(self.position.lap());
        self.ring.word(footer_at).store(tag, Ordering::Relaxed);
        let asleep = self.side.link.announce(self.sent + 1);
        if self.in_place {
            self.send_in_place(footer_at + 8, word, asleep)?;
        } else {
            self.ring.word(footer_at + 8).store(word, Ordering::Relaxed);
            self.send_copy(footer.bytes as usize, body, (asleep || always).then_some(SLOT))?;
        }
        self.position.advance();
        self.sent += 1;
        self.side.stats.messages += 1;
        self.side.stats.bytes += u64::from(footer.bytes);
        Ok(())
    }

    /// Everything is in the peer's ring but the word that says so, which is released behind it.
    #[inline]
    fn send_in_place(&mut self, at: usize, word: u64, asleep: bool) -> Result<()> {
        if !asleep && self.side.may_store()? {
            self.ring.word(at).store(word, Ordering::Release);
            return Ok(());
        }
        let word = word.to_ne_bytes();
        let last = WorkRequest::new(Operation::Write {
            source: Source::Inline(&word),
            to: self.peer_ring.at(at as u64, 8)?,
            immediate: asleep.then_some(SLOT),
        });
        self.side.post(&mut [last], true)
    }

    /// Writes the slot to the peer's ring: whole; or if it is less than half full, or its payload's
    /// end stands elsewhere, as chained writes of what is to be written and of the footer.
    #[inline]
    fn send_copy(
        &mut self,
        bytes: usize,
        body: Option<Source<'_>>,
        immediate: Option<u32>,
    ) -> Result<()> {
        let settings = &self.side.settings;
        let (offset, slot_bytes) = (self.position.offset, settings.slot_bytes);
        self.unsignalled += 1;
        let signal = self.unsignalled >= settings.signal_batch();
        let whole = bytes >= slot_bytes / 2 && body.is_none();
        let footer_at = offset + settings.payload_bytes();
        let (from, length) = if whole { (offset, slot_bytes) } else { (footer_at, FOOTER_BYTES) };
        let last = WorkRequest::new(Operation::Write {
            source: Source::Region { region: &self.ring, offset: from, bytes: length },
            to: self.peer_ring.at(from as u64, length as u64)?,
            immediate,
        });
        let head_bytes = bytes - body.as_ref().map_or(0, Source::bytes);
        let mut list = [last; WRITES_PER_SLOT as usize];
        let mut count = 0;
        if !whole && head_bytes > 0 {
            let source = Source::Region { region: &self.ring, offset, bytes: head_bytes };
            list[count] =
                WorkRequest::write(source, self.peer_ring.at(offset as u64, head_bytes as u64)?);
            count += 1;
        }
        if let Some(body) = body {
            let to = self.peer_ring.at((offset + head_bytes) as u64, body.bytes() as u64)?;
            list[count] = WorkRequest::write(body, to);
            count += 1;
        }
        // Beyond the others there are copies of the last.
        self.side.post(&mut list[..=count], signal)?;
        if signal {
            self.unsignalled = 0;
        }
        Ok(())
    }

    /// One step of ending the stream in order. Returns whether the receiver has processed
    /// everything and knows the end; then the sender can be dropped. Never waits.
    pub fn try_finish(&mut self) -> Result<bool> {
        if !self.ending {
            if !self.can_send()? {
                self.look_closer()?;
                return Ok(false);
            }
            self.send(Footer::END, None, 0)?;
            // The end is no message.
            self.side.stats.messages -= 1;
            self.ending = true;
        }
        if self.is_finished() {
            return Ok(true);
        }
        // The receiver may go as soon as it has given its last credit.
        match self.look_closer() {
            Err(error) if !self.is_finished() => Err(error),
            _ => Ok(self.is_finished()),
        }
    }

    fn is_finished(&self) -> bool {
        self.ending && self.side.link.block.peer_count() == self.sent
    }

    /// Ends the stream in order: waits, for at most `timeout`, until the receiver has processed
    /// everything and knows the end.
    pub fn finish(mut self, events: &mut F::Events, timeout: Duration) -> Result<Stats> {
        let what = "the receiver to finish";
        match self.wait(events, timeout, what, |sender| sender.try_finish()) {
            Err(error) if !self.is_finished() => Err(error),
            _ => Ok(self.side.stats()),
        }
    }
}

impl<'a, F: Fabric> Slot<'a, F> {
    /// The slot's payload, to be written. It holds what was sent in an earlier lap.
    #[inline]
    pub fn payload(&mut self) -> &mut [u8] {
        let bytes = self.sender.payload_bytes();
        // SAFETY: there is credit for this slot, so the receiver has released its last content,
        // which means that the write of it has been placed and nobody reads this memory any more; a
        // ring of our own is closed to peers, and the peer's ring has no other writer; the borrow
        // of the sender excludes other slices.
        unsafe { self.sender.ring.slice_mut(self.sender.position.offset, bytes) }
    }

    /// The payload, for as long as the sender is borrowed. [`Sender::try_acquire`] gives the same
    /// slot, with what was written into it, until it is sent: a slot may be filled little by
    /// little.
    #[inline]
    pub fn into_payload(self) -> &'a mut [u8] {
        let bytes = self.sender.payload_bytes();
        // SAFETY: as in `payload`; nobody can send the slot while this borrow of the sender lasts.
        unsafe { self.sender.ring.slice_mut(self.sender.position.offset, bytes) }
    }

    /// Sends the first `bytes` bytes of the payload, and a tag for whatever the user wants.
    #[inline]
    pub fn send(self, bytes: usize, tag: u64) -> Result<()> {
        let max = self.sender.payload_bytes();
        let length = u32::try_from(bytes).ok().filter(|_| bytes <= max);
        let Some(length) = length else { return Err(Error::TooLong { bytes, max }) };
        self.sender.send(Footer::full(length), None, tag)
    }

    /// Sends the first `head_bytes` bytes of the payload, and behind them `bytes` bytes that stand
    /// at `offset` in a region of the same fabric; and a tag. There is no copy on this side: the
    /// fabric reads them where they stand. (In a ring that this process can reach, they are copied
    /// there.)
    ///
    /// The fabric may read the bytes late, so they have to stay as they are until the receiver has
    /// released the slot: remember [`Sender::sent`] right after this call, and wait until
    /// [`Sender::released`] is not below it. Only placed bytes can have been processed; should the
    /// fabric read and send bytes again after that, since an acknowledgement was lost, the
    /// receiver's side drops them. Where credit never comes, since the channel has failed or is
    /// given up, wait until the sender is dropped. The region, as opposed to its contents, has to
    /// live as long as the sender.
    #[inline]
    pub fn send_from(
        mut self,
        head_bytes: usize,
        region: &Region,
        offset: usize,
        bytes: usize,
        tag: u64,
    ) -> Result<()> {
        let max = self.sender.payload_bytes();
        let all = head_bytes.saturating_add(bytes);
        let length = u32::try_from(all).ok().filter(|_| all <= max);
        let Some(length) = length else { return Err(Error::TooLong { bytes: all, max }) };
        region.check(offset, bytes)?;
        let footer = Footer::full(length);
        if self.sender.in_place {
            region.read(offset, &mut self.payload()[head_bytes..all])?;
            return self.sender.send(footer, None, tag);
        }
        let body = (bytes > 0).then_some(Source::Region { region, offset, bytes });
        self.sender.send(footer, body, tag)
    }
}

const _: () = assert!(SLOT != CREDIT, "slots and credits are told apart");

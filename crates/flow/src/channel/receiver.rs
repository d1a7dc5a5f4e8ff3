//! The consumer's end of a channel.

use std::ops::Deref;
use std::sync::atomic::Ordering;
use std::time::Duration;

use millstream_fabric::setup::Hello;
use millstream_fabric::{Access, Events, Fabric, Region};

use crate::channel::error::{Error, Result};
use crate::channel::footer::Footer;
use crate::channel::sender::{Sender, SenderSetup, check_parameters, hello, mismatch};
use crate::channel::settings::{Notification, Settings};
use crate::channel::side::{Fresh, Side};
use crate::channel::stats::Stats;
use crate::link::{HEARTBEAT, Position};

/// A receiver that has not met its sender yet.
pub struct ReceiverSetup<F: Fabric> {
    fresh: Fresh<F>,
    ring: Region,
}

impl<F: Fabric> ReceiverSetup<F> {
    /// Allocates everything. The channel's completions go to `events`, where its thread may sleep.
    ///
    /// # Errors
    /// Footers on a fabric that does not place bytes in order are refused: use
    /// [`ReceiverSetup::unchecked`] to try what happens.
    pub fn new(fabric: &F, events: &F::Events, settings: Settings) -> Result<ReceiverSetup<F>> {
        if settings.notification == Notification::Footer && !fabric.limits().ordered_placement {
            let what =
                "this fabric does not place bytes in order, notification has to be immediate";
            return Err(Error::Setting { what, value: 0 });
        }
        ReceiverSetup::unchecked(fabric, events, settings)
    }

    /// The same, whatever the fabric says of the order in which bytes are placed.
    pub fn unchecked(
        fabric: &F,
        events: &F::Events,
        settings: Settings,
    ) -> Result<ReceiverSetup<F>> {
        let fresh = Fresh::new(fabric, events, settings)?;
        let ring = fabric.allocate(settings.ring_bytes(), Access::REMOTE_WRITE)?;
        Ok(ReceiverSetup { fresh, ring })
    }

    /// Set-up message for the sender.
    pub fn hello(&self) -> Hello {
        hello(&self.fresh, &[self.fresh.control.remote(), self.ring.remote()])
    }

    /// Connects to the sender that sent `peer`.
    pub fn connect(self, peer: &Hello) -> Result<Receiver<F>> {
        check_parameters(&self.fresh.settings, peer)?;
        let [control] = peer.regions[..] else {
            return Err(mismatch("number of regions", 1, peer.regions.len() as u64));
        };
        let Settings { slots, slot_bytes, .. } = self.fresh.settings;
        let position = Position::new(slots, slot_bytes);
        let side = self.fresh.connect(peer, control)?;
        Ok(Receiver {
            side,
            ring: self.ring,
            position,
            released: 0,
            returned: 0,
            credits: 0,
            empty_looks: 0,
            ended: false,
        })
    }
}

/// Connects a sender and a receiver within a process; the devices can reach each other.
pub fn connect<F: Fabric>(
    devices: [&F; 2],
    events: [&F::Events; 2],
    settings: Settings,
) -> Result<(Sender<F>, Receiver<F>)> {
    let sender = SenderSetup::new(devices[0], events[0], settings)?;
    let receiver = ReceiverSetup::new(devices[1], events[1], settings)?;
    let (to_receiver, to_sender) = (sender.hello(), receiver.hello());
    Ok((sender.connect(&to_sender)?, receiver.connect(&to_receiver)?))
}

/// The consumer of a channel: takes messages in order, where they stand, and releases them.
///
/// Dropping it before the end of the stream is an error at the other side.
pub struct Receiver<F: Fabric> {
    side: Side<F>,
    ring: Region,
    position: Position,
    /// Slots processed since the beginning.
    released: u64,
    /// Of them, those the sender has been told of.
    returned: u64,
    /// How often since a completion was asked for.
    credits: u32,
    empty_looks: u32,
    ended: bool,
}

/// So many credits are posted for one completion; a send queue has room for more.
const CREDITS_PER_COMPLETION: u32 = 16;

/// Result of a look for a message.
pub enum Received<'a, F: Fabric> {
    /// The next message.
    Message(Message<'a, F>),
    /// Nothing yet.
    Empty,
    /// The stream has ended in order; there will be nothing more.
    End,
}

/// A message, in the slot that it arrived in. Dropping it releases the slot; an error of that shows
/// at the next call.
pub struct Message<'a, F: Fabric> {
    receiver: &'a mut Receiver<F>,
    bytes: usize,
    tag: u64,
}

impl<F: Fabric> Receiver<F> {
    /// Counters.
    pub fn stats(&self) -> Stats {
        self.side.stats()
    }

    /// The next message, if it is there. Never waits.
    #[inline]
    pub fn try_receive(&mut self) -> Result<Received<'_, F>> {
        if self.ended {
            return self.end();
        }
        let told = self.return_due_credit();
        match self.look()? {
            Some(footer) if !footer.end => {
                self.empty_looks = 0;
                let at = self.position.offset + self.side.settings.payload_bytes();
                let tag = self.ring.word(at).load(Ordering::Relaxed);
                let bytes = footer.bytes as usize;
                Ok(Received::Message(Message { receiver: self, bytes, tag }))
            }
            Some(_) => self.end(),
            None => {
                told?;
                self.found_empty()?;
                Ok(Received::Empty)
            }
        }
    }

    /// The footer of the next slot, if the slot is complete.
    #[inline]
    fn look(&mut self) -> Result<Option<Footer>> {
        if self.side.settings.notification == Notification::Immediate
            && self.side.arrived <= self.released
        {
            return Ok(None);
        }
        let payload_bytes = self.side.settings.payload_bytes();
        let at = self.position.offset + payload_bytes + 8;
        // The private copy that everything is decided on.
        let word = self.ring.word(at).load(Ordering::Acquire);
        match Footer::decode(word, self.position.lap(), payload_bytes) {
            Some(Ok(footer)) if !footer.free => Ok(Some(footer)),
            Some(_) => Err(Error::Protocol { what: "an impossible footer", found: word }),
            None if self.side.settings.notification == Notification::Immediate => {
                Err(Error::Protocol { what: "notified of a slot with a stale footer", found: word })
            }
            None => Ok(None),
        }
    }

    fn found_empty(&mut self) -> Result<()> {
        let told = self.return_credit();
        let every = match self.side.settings.notification {
            Notification::Immediate => 1,
            // To notice the peer's end.
            Notification::Footer => self.side.looks_per_poll(16),
        };
        self.empty_looks = self.empty_looks.wrapping_add(1);
        let is_due = self.empty_looks.is_multiple_of(every);
        let polled = if is_due { self.side.poll() } else { Ok(()) };
        if let Err(error) = told.and(polled) {
            // What arrived before the end is still to be had.
            return match self.look()? {
                Some(_) => Ok(()),
                None => Err(error),
            };
        }
        Ok(())
    }

    /// The slot that ends the stream was found: it is released like the others, and the end is told
    /// when the sender is sure to know of it.
    fn end(&mut self) -> Result<Received<'_, F>> {
        if !self.ended {
            self.ended = true;
            self.released += 1;
        }
        let credit = self.return_credit();
        if self.returned < self.released {
            credit?;
            return Ok(Received::Empty);
        }
        // The sender goes once it has its last credit, perhaps before this side has the
        // acknowledgement: the sender's departure proves as much.
        let gone = credit.is_err() || (!self.side.link.is_done() && self.side.poll().is_err());
        Ok(if gone || self.side.link.is_done() { Received::End } else { Received::Empty })
    }

    #[inline]
    fn release(&mut self, bytes: usize) {
        self.position.advance();
        self.released += 1;
        self.side.stats.messages += 1;
        self.side.stats.bytes += bytes as u64;
    }

    #[inline]
    fn return_due_credit(&mut self) -> Result<()> {
        if self.released - self.returned >= self.side.settings.credit_batch() {
            self.return_credit()?;
        }
        Ok(())
    }

    /// Tells the sender how many slots were released. Absolute: repeating it is harmless.
    fn return_credit(&mut self) -> Result<()> {
        if self.released == self.returned || !self.side.room(1)? {
            return Ok(());
        }
        let asleep = self.side.link.announce(self.released);
        // Its completion frees the queue's entries; at the end it shows that the sender knows.
        self.credits = (self.credits + 1) % CREDITS_PER_COMPLETION;
        let confirm = self.ended || self.credits == 0;
        self.side.tell_count(self.released, asleep, confirm)?;
        self.returned = self.released;
        Ok(())
    }

    /// The next message or the end; waits for it, at first awake and then asleep, for at most
    /// `timeout`, and then returns [`Received::Empty`].
    pub fn receive(
        &mut self,
        events: &mut F::Events,
        timeout: Duration,
    ) -> Result<Received<'_, F>> {
        if self.look()?.is_some_and(|footer| !footer.end) {
            return self.try_receive();
        }
        let start = self.side.now();
        let mut looks = 0_u32;
        while !self.is_ready()? {
            looks = looks.wrapping_add(1);
            self.side.pause();
            if !looks.is_multiple_of(32) {
                continue;
            }
            let waited = self.side.since(start);
            if waited >= timeout {
                return Ok(Received::Empty);
            }
            if waited < self.side.spin() {
                continue;
            }
            let may_sleep = match self.park() {
                Err(error) if !self.is_ready()? => return Err(error),
                may_sleep => may_sleep.unwrap_or(false),
            };
            if may_sleep && !self.is_ready()? {
                events.wait((timeout - waited).min(HEARTBEAT))?;
            }
        }
        self.try_receive()
    }

    /// Whether the next call of `try_receive` will not find the ring empty.
    fn is_ready(&mut self) -> Result<bool> {
        if self.ended {
            return Ok(matches!(self.end()?, Received::End));
        }
        let mut found = self.look()?;
        if found.is_none() {
            self.found_empty()?;
            found = self.look()?;
        }
        match found {
            Some(footer) if footer.end => Ok(matches!(self.end()?, Received::End)),
            found => Ok(found.is_some()),
        }
    }

    /// One step towards sleep, for a thread that has nothing to do until a message comes. Returns
    /// whether it may sleep at its events now, for at most a quarter of a second; a message wakes
    /// it. Look for a message once more after a `true` and before sleeping.
    pub fn park(&mut self) -> Result<bool> {
        self.side.park(self.released)
    }
}

impl<F: Fabric> Message<'_, F> {
    /// Tag of the message.
    pub fn tag(&self) -> u64 {
        self.tag
    }
}

impl<F: Fabric> Deref for Message<'_, F> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the footer of this lap proves that the slot is complete, and the sender writes it
        // again only when it has been released, which dropping this does. Peers that hold the job's
        // token keep that promise (see the crate's documentation on trust).
        unsafe { self.receiver.ring.slice(self.receiver.position.offset, self.bytes) }
    }
}

impl<F: Fabric> Drop for Message<'_, F> {
    #[inline]
    fn drop(&mut self) {
        self.receiver.release(self.bytes);
    }
}

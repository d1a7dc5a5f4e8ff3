//! The receiving half: endpoints that data are got from (paper, section 4.2).

mod core;
mod datagrams;
mod links;
mod read;
mod send_receive;
mod setup;
mod window;
mod write;

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::time::Duration;

use millstream_fabric::{CompletionQueue, Fabric, Region};

use self::core::{Ready, ReceiverCore};
use self::datagrams::DatagramReceiver;
use self::links::Sources;
use self::read::ReadReceiver;
use self::send_receive::MessageReceiver;
pub use self::setup::ReceiverSetup;
pub use self::window::{Seen, Window};
use self::write::WriteReceiver;
use crate::shuffle::counters::Counters;
use crate::shuffle::endpoint::{Endpoint, Half};
use crate::shuffle::error::Result;
use crate::shuffle::links::Links;
use crate::shuffle::pool::PoolSlot;
use crate::shuffle::wire::{PAYLOAD_AT, State};

/// The four implementations. The choice is made once, at start; no call is virtual.
enum In<F: Fabric> {
    SendReceive(MessageReceiver<F>),
    Datagrams(DatagramReceiver<F>),
    Read(ReadReceiver<F>),
    Write(WriteReceiver<F>),
}

impl<F: Fabric> In<F> {
    fn sources(&mut self) -> Option<&mut Sources<F>> {
        match self {
            In::SendReceive(from) => Some(&mut from.sources),
            In::Read(from) => Some(&mut from.sources),
            In::Write(from) => Some(&mut from.sources),
            In::Datagrams(_) => None,
        }
    }

    fn links(&mut self) -> Option<&mut Links<F>> {
        self.sources().map(|sources| &mut sources.links)
    }

    fn poll(&mut self, core: &mut ReceiverCore<F>) -> Result<bool> {
        match self {
            In::SendReceive(from) => from.poll(core),
            In::Read(from) => from.poll(core),
            In::Write(from) => from.poll(core),
            In::Datagrams(from) => from.poll(core),
        }
    }

    fn release(&mut self, core: &mut ReceiverCore<F>, ready: &Ready) -> Result<()> {
        match self {
            In::SendReceive(from) => from.release(core, ready),
            In::Read(from) => from.release(core, ready),
            In::Write(from) => from.release(core, ready),
            In::Datagrams(from) => from.release(core, ready),
        }
    }

    /// Puts one more buffer into circulation for a source that starves.
    fn add(&mut self, core: &mut ReceiverCore<F>) -> Result<()> {
        let Some(source) = core.starving() else { return Ok(()) };
        match self {
            // It knows by itself.
            In::Read(_) => return Ok(()),
            In::Write(from) => {
                if !from.add(core, source) {
                    return Ok(());
                }
            }
            In::SendReceive(from) => {
                let Some(slot) = core.buffers.fetch()? else { return Ok(()) };
                from.grant(core, source, slot)?;
            }
            In::Datagrams(from) => {
                let Some(slot) = core.buffers.fetch()? else { return Ok(()) };
                from.grant(core, source, slot)?;
            }
        }
        core.added(source);
        Ok(())
    }

    fn tell(&mut self, core: &mut ReceiverCore<F>) -> Result<()> {
        match self {
            In::SendReceive(from) => from.sources.tell(core),
            In::Read(from) => from.sources.tell(core),
            In::Write(from) => from.sources.tell(core),
            In::Datagrams(from) => from.tell(core, core.now()),
        }
    }
}

/// Queue pairs go before the buffers that their work names.
pub(super) struct ReceiverHalf<F: Fabric> {
    from: In<F>,
    core: ReceiverCore<F>,
}

impl<F: Fabric> ReceiverHalf<F> {
    /// Whether all streams have ended, every message of them has been taken, and over datagrams
    /// the senders have been told: the caller may go away now.
    fn has_ended(&self) -> bool {
        self.core.has_ended()
            && match &self.from {
                In::Datagrams(from) => from.is_over(&self.core),
                _ => true,
            }
    }

    /// Takes what has come.
    fn advance(&mut self) -> Result<()> {
        let ReceiverHalf { from, core } = self;
        let had_failed = from.links().is_some_and(|links| links.any_failed());
        let found = from.poll(core)?;
        if core.ready.is_empty() {
            core.counters.starved += 1;
            from.add(core)?;
        } else {
            core.mark_surplus();
        }
        from.tell(core)?;
        if found || !core.ready.is_empty() {
            return Ok(());
        }
        match from {
            In::Datagrams(from) => from.judge(core),
            _ => match from.links() {
                Some(links) => links.look_after(had_failed, core.now(), core.needed()),
                None => Ok(()),
            },
        }
    }
}

impl<F: Fabric> Half for ReceiverHalf<F> {
    fn break_connections(&mut self) {
        match &mut self.from {
            In::Datagrams(from) => from.part(&mut self.core),
            from => {
                if let Some(links) = from.links() {
                    links.fail();
                }
            }
        }
    }

    fn park(&mut self) -> Result<bool> {
        let ReceiverHalf { from, core } = self;
        // Sockets of datagrams wake nobody.
        let Some(links) = from.links() else { return Ok(false) };
        links.park(core.now(), core.needed())?;
        core.queue.arm()?;
        let found = from.poll(core)?;
        Ok(!found && from.links().is_some_and(|links| links.may_sleep(core.needed())))
    }
}

impl<F: Fabric> Drop for ReceiverHalf<F> {
    /// Connections end with their queue pairs; datagrams have to say so.
    fn drop(&mut self) {
        if let In::Datagrams(from) = &mut self.from {
            from.part(&mut self.core);
        }
    }
}

/// Result of [`Receiver::try_get`].
pub enum Received<'a, F: Fabric> {
    /// A message.
    Message(Delivery<'a, F>),
    /// Nothing at the moment.
    Empty,
    /// All senders' streams have ended, and every message of them has been taken. It stays so, for
    /// every thread.
    End,
}

/// A receiving endpoint. All threads may call it; each call takes the endpoint for itself.
///
/// Dropped before [`Receiver::finish`] has returned, it breaks its connections, or over datagrams
/// says that it is gone: an error at senders that are not done.
pub struct Receiver<F: Fabric> {
    pub(super) inner: Endpoint<F, ReceiverHalf<F>>,
    id: u32,
    sources: Vec<u32>,
}

impl<F: Fabric> Receiver<F> {
    fn of(core: ReceiverCore<F>, from: In<F>, events: F::Events) -> Receiver<F> {
        let (fabric, spin) = (core.fabric.clone(), core.settings.spin);
        Receiver {
            id: core.id,
            sources: core.sources.iter().map(|source| source.id).collect(),
            inner: Endpoint::new(ReceiverHalf { from, core }, fabric, spin, events),
        }
    }

    /// The endpoint's id.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Ids of the sending endpoints, in the order of connecting.
    pub fn sources(&self) -> &[u32] {
        &self.sources
    }

    /// The next message, if one is there (`GetData`). Does not wait.
    pub fn try_get(&self) -> Result<Received<'_, F>> {
        self.inner.with(|inner| {
            if inner.core.ready.is_empty() {
                inner.advance()?;
            }
            if let Some(ready) = inner.core.ready.pop_front() {
                let slot = inner.core.buffers.slot(ready.slot);
                return Ok(Received::Message(Delivery::new(self, ready, slot)));
            }
            Ok(if inner.has_ended() { Received::End } else { Received::Empty })
        })
    }

    /// The next message (`GetData`), or the end. Waits for it, for at most this time:
    /// [`Error::TimedOut`].
    pub fn get(&self, timeout: Duration) -> Result<Option<Delivery<'_, F>>> {
        self.inner.wait(timeout, "a message", || {
            Ok(match self.try_get()? {
                Received::Message(message) => Some(Some(message)),
                Received::End => Some(None),
                Received::Empty => None,
            })
        })
    }

    /// Takes in received messages, and sends credit to waiting senders. Every call of
    /// [`Receiver::try_get`] that finds no message at hand does the same.
    pub fn keep_alive(&self) -> Result<()> {
        self.inner.with(ReceiverHalf::advance)
    }

    /// Whether all streams have ended and all senders know that they are not needed any more. Does
    /// not wait; call it until it is true, after every message has been released.
    pub fn try_finish(&self) -> Result<bool> {
        self.inner.with(|inner| {
            inner.advance()?;
            let quiet = match &mut inner.from {
                In::Read(from) => from.sources.is_quiet(),
                // They wait for no answer.
                _ => true,
            };
            Ok(inner.has_ended() && quiet)
        })
    }

    /// Waits until all streams have ended and all senders know that they are not needed any more.
    /// Then it may be dropped (`Close`).
    pub fn finish(&self, timeout: Duration) -> Result<()> {
        let what = "senders to end";
        self.inner.wait(timeout, what, || Ok(self.try_finish()?.then_some(())))
    }

    /// Counters so far, also after an error.
    pub fn counters(&self) -> Counters {
        self.inner.look(|ReceiverHalf { from, core }| {
            let mut counters = core.counters();
            match from.links() {
                Some(links) => links.count(&mut counters),
                None => counters.queue_pairs = 1,
            }
            counters
        })
    }

    /// A message is consumed (`Release`).
    fn release(&self, ready: &Ready) -> Result<()> {
        self.inner.with(|inner| {
            inner.from.release(&mut inner.core, ready)?;
            inner.from.tell(&mut inner.core)
        })
    }
}

/// A message, read in place. Dropping it releases its buffer, as [`Delivery::release`] does.
pub struct Delivery<'a, F: Fabric> {
    receiver: &'a Receiver<F>,
    ready: Ready,
    region: Region,
    offset: usize,
}

impl<'a, F: Fabric> Delivery<'a, F> {
    fn new(receiver: &'a Receiver<F>, ready: Ready, slot: &PoolSlot) -> Delivery<'a, F> {
        let offset = slot.offset + PAYLOAD_AT;
        Delivery { receiver, ready, region: slot.region.clone(), offset }
    }

    /// The sending endpoint's number, in the order of connecting; its id is in
    /// [`Receiver::sources`].
    pub fn source(&self) -> usize {
        self.ready.source
    }

    /// Whether the message is the endpoint's last, which may be empty.
    pub fn state(&self) -> State {
        self.ready.state
    }

    /// Gives the buffer back (`Release`): the sender may use it again. Does not wait.
    pub fn release(self) -> Result<()> {
        let mut this = ManuallyDrop::new(self);
        let result = this.receiver.release(&this.ready);
        // SAFETY: `this` is neither used nor dropped afterwards; only the region needs dropping.
        unsafe { std::ptr::drop_in_place(&raw mut this.region) }
        result
    }
}

impl<F: Fabric> Deref for Delivery<'_, F> {
    type Target = [u8];

    /// The payload. It begins at a cache line.
    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the buffer is in state Consume: its receive or read has completed, or its sender
        // holds no credit for it, so no peer writes to the buffer until its release, which ends
        // this borrow. The length was checked when the message was taken.
        unsafe { self.region.slice(self.offset, self.ready.bytes as usize) }
    }
}

impl<F: Fabric> Drop for Delivery<'_, F> {
    fn drop(&mut self) {
        // An error stays with the endpoint, whose next call returns it.
        drop(self.receiver.release(&self.ready));
    }
}

impl<F: Fabric> fmt::Debug for Delivery<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ready { source, bytes, state, .. } = self.ready;
        write!(f, "Delivery({bytes} bytes of source {source}, {state:?})")
    }
}

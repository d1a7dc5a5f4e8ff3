//! The sending half: endpoints that data are put into (paper, section 4.2).

mod core;
mod datagrams;
mod read;
mod send_receive;
mod setup;
mod write;

use std::mem::ManuallyDrop;
use std::time::Duration;

use millstream_fabric::{CompletionQueue, Fabric, Region};

use self::core::SenderCore;
use self::datagrams::DatagramSender;
use self::read::ReadSender;
use self::send_receive::MessageSender;
pub use self::setup::SenderSetup;
use self::write::WriteSender;
use crate::shuffle::counters::Counters;
use crate::shuffle::endpoint::{Endpoint, Half};
use crate::shuffle::error::{Error, Result};
use crate::shuffle::links::Links;
use crate::shuffle::pool::PoolSlot;
use crate::shuffle::wire::{PAYLOAD_AT, State};

/// The four implementations. The choice is made once, at start; no call is virtual.
enum Out<F: Fabric> {
    SendReceive(MessageSender<F>),
    Datagrams(DatagramSender<F>),
    Read(ReadSender<F>),
    Write(WriteSender<F>),
}

impl<F: Fabric> Out<F> {
    fn links(&mut self) -> Option<&mut Links<F>> {
        match self {
            Out::SendReceive(out) => Some(&mut out.links),
            Out::Read(out) => Some(&mut out.links),
            Out::Write(out) => Some(&mut out.links),
            Out::Datagrams(_) => None,
        }
    }

    fn poll(&mut self, core: &mut SenderCore<F>) -> Result<bool> {
        match self {
            Out::SendReceive(out) => out.poll(core),
            Out::Read(out) => out.poll(core),
            Out::Write(out) => out.poll(core),
            Out::Datagrams(out) => out.poll(core),
        }
    }

    /// Sends what waits and has credit.
    fn send(&mut self, core: &mut SenderCore<F>) -> Result<bool> {
        let mut found = false;
        for to in 0..core.lanes.len() {
            while let Some(parcel) = core.lanes[to].backlog.front().copied() {
                let ready = match self {
                    Out::SendReceive(out) => out.ready(core, to),
                    Out::Read(out) => out.ready(core, to),
                    Out::Write(out) => out.ready(core, to),
                    Out::Datagrams(out) => out.ready(to),
                };
                if !ready {
                    break;
                }
                core.lanes[to].backlog.pop_front();
                core.sent(to, parcel);
                match self {
                    Out::SendReceive(out) => out.send(core, to, parcel),
                    Out::Read(out) => out.send(to, parcel),
                    Out::Write(out) => out.send(core, to, parcel),
                    Out::Datagrams(out) => out.send(core, to, parcel),
                }?;
                found = true;
            }
        }
        Ok(found)
    }
}

/// Queue pairs go before the buffers that their work names.
pub(super) struct SenderHalf<F: Fabric> {
    out: Out<F>,
    core: SenderCore<F>,
}

impl<F: Fabric> SenderHalf<F> {
    /// Takes what has come and sends what can go.
    fn advance(&mut self) -> Result<()> {
        let SenderHalf { out, core } = self;
        let had_failed = out.links().is_some_and(|links| links.any_failed());
        let found = out.poll(core)? | out.send(core)?;
        if found {
            return Ok(());
        }
        match out {
            Out::Datagrams(out) => out.judge(core),
            _ => match out.links() {
                Some(links) => links.look_after(had_failed, core.now(), core.needed()),
                None => Ok(()),
            },
        }
    }
}

impl<F: Fabric> Half for SenderHalf<F> {
    fn break_connections(&mut self) {
        match &mut self.out {
            Out::Datagrams(out) => out.part(&self.core),
            out => {
                if let Some(links) = out.links() {
                    links.fail();
                }
            }
        }
    }

    fn park(&mut self) -> Result<bool> {
        let SenderHalf { out, core } = self;
        // Sockets of datagrams wake nobody.
        let Some(links) = out.links() else { return Ok(false) };
        links.park(core.now(), core.needed())?;
        core.queue.arm()?;
        let found = out.poll(core)? | out.send(core)?;
        Ok(!found && out.links().is_some_and(|links| links.may_sleep(core.needed())))
    }
}

impl<F: Fabric> Drop for SenderHalf<F> {
    /// Connections end with their queue pairs; datagrams have to say so.
    fn drop(&mut self) {
        if let Out::Datagrams(out) = &mut self.out {
            out.part(&self.core);
        }
    }
}

/// A sending endpoint. All threads may call it; each call takes the endpoint for itself.
///
/// Dropped before [`Sender::finish`] has returned, it breaks its connections, or over datagrams
/// says that it is gone: an error at its receivers.
pub struct Sender<F: Fabric> {
    pub(super) inner: Endpoint<F, SenderHalf<F>>,
    id: u32,
    receivers: usize,
    message_bytes: usize,
    buffers: usize,
}

impl<F: Fabric> Sender<F> {
    fn of(core: SenderCore<F>, out: Out<F>, events: F::Events) -> Sender<F> {
        let (fabric, spin) = (core.fabric.clone(), core.settings.spin);
        Sender {
            id: core.id,
            receivers: core.lanes.len(),
            message_bytes: core.settings.message_bytes,
            buffers: core.settings.per_peer().0 as usize * core.lanes.len(),
            inner: Endpoint::new(SenderHalf { out, core }, fabric, spin, events),
        }
    }

    /// As if so many datagrams had gone to destination 0, and credit for them had come.
    #[cfg(test)]
    pub(crate) fn skip_datagrams(&self, count: u64) {
        self.inner.look(|inner| {
            let Out::Datagrams(out) = &mut inner.out else { panic!("no datagrams") };
            out.skip(count);
        });
    }

    /// The endpoint's id, which receivers see as the source.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// How many destinations there are; they are named 0, 1, … in the order of connecting.
    pub fn receivers(&self) -> usize {
        self.receivers
    }

    /// Least number of the endpoint's buffers.
    pub fn buffers(&self) -> usize {
        self.buffers
    }

    /// Bytes of payload that a buffer has room for.
    pub fn message_bytes(&self) -> usize {
        self.message_bytes
    }

    /// A free buffer, if there is one (`Acquire`). Does not wait.
    pub fn try_acquire(&self) -> Result<Option<Buffer<'_, F>>> {
        self.inner.with(|inner| {
            inner.advance()?;
            let Some(number) = inner.core.take()? else { return Ok(None) };
            Ok(Some(Buffer::new(self, number, inner.core.buffers.slot(number))))
        })
    }

    /// A free buffer (`Acquire`). Waits while all are in use, for at most this time:
    /// [`Error::TimedOut`].
    pub fn acquire(&self, timeout: Duration) -> Result<Buffer<'_, F>> {
        self.inner.wait(timeout, "a free buffer", || self.try_acquire())
    }

    /// Sends the first `bytes` bytes of a buffer to these destinations (`PutData`). Does not wait:
    /// what has no credit yet is sent by later calls, of any kind. Messages for one destination
    /// are sent in the order of putting.
    ///
    /// A message of 0 bytes is a message like any other. With [`State::Depleted`] it is the last
    /// for these destinations. An error about the call itself ([`Error::TooLong`],
    /// [`Error::Destination`], [`Error::Ended`]) gives the buffer back unsent.
    pub fn put(
        &self,
        buffer: Buffer<'_, F>,
        bytes: usize,
        to: &[usize],
        state: State,
    ) -> Result<()> {
        if !std::ptr::eq(buffer.sender, self) {
            // Dropped, it goes back to where it is from.
            return Err(Error::Destination { number: 0, count: 0 });
        }
        // An error drops the buffer, which takes the lock, so not under it.
        self.inner.with(|inner| inner.core.put(buffer.number, bytes, to, state))?;
        buffer.forget();
        self.inner.with(SenderHalf::advance)
    }

    /// Takes what has come and sends what can go, and over datagrams tells receivers that this
    /// endpoint is alive. Every other call does so, too.
    pub fn keep_alive(&self) -> Result<()> {
        self.inner.with(SenderHalf::advance)
    }

    /// Whether everything that was put has been handed to the network card. Does not wait.
    pub fn try_flush(&self) -> Result<bool> {
        self.inner.with(|inner| {
            inner.advance()?;
            Ok(inner.core.lanes.iter().all(|lane| lane.backlog.is_empty()))
        })
    }

    /// Waits until everything that was put has been handed to the network card: a thread that goes
    /// away, or waits for an answer to what it has put, calls it before.
    pub fn flush(&self, timeout: Duration) -> Result<()> {
        let what = "credit for what was put";
        self.inner.wait(timeout, what, || Ok(self.try_flush()?.then_some(())))
    }

    /// Ends all open streams, and returns whether receivers have received all messages of this
    /// endpoint (see [`Sender::finish`]). Does not wait; call it until it is true. Needs a free
    /// buffer once.
    pub fn try_finish(&self) -> Result<bool> {
        self.inner.with(|inner| {
            inner.advance()?;
            let open = |to: &usize| !inner.core.lanes[*to].depleted;
            let open: Vec<usize> = (0..self.receivers).filter(open).collect();
            if !open.is_empty() {
                let Some(number) = inner.core.take()? else { return Ok(false) };
                inner.core.put(number, 0, &open, State::Depleted)?;
                inner.advance()?;
            }
            Ok(match &inner.out {
                Out::Datagrams(out) => out.is_over(),
                _ => inner.core.lanes.iter().all(core::Lane::is_done),
            })
        })
    }

    /// Ends all streams and waits until receivers have all that they need from this endpoint. Then
    /// it may be dropped (`Close`), or kept and not be called any more. All messages have arrived:
    /// over connections in the receivers' memory, over datagrams and where receivers read, because
    /// their threads have called them. If that is an error, messages may be missing.
    pub fn finish(&self, timeout: Duration) -> Result<()> {
        let what = "receivers to take all messages";
        self.inner.wait(timeout, what, || Ok(self.try_finish()?.then_some(())))
    }

    /// Counters so far, also after an error.
    pub fn counters(&self) -> Counters {
        self.inner.look(|SenderHalf { out, core }| {
            let mut counters = core.counters();
            match out {
                Out::Datagrams(out) => {
                    counters.queue_pairs = 1;
                    counters.registered_bytes += out.memory_bytes() as u64;
                }
                Out::SendReceive(MessageSender { links })
                | Out::Read(ReadSender { links })
                | Out::Write(WriteSender { links, .. }) => links.count(&mut counters),
            }
            counters
        })
    }
}

/// A registered buffer to fill and put. Dropped without, it is free again.
pub struct Buffer<'a, F: Fabric> {
    sender: &'a Sender<F>,
    number: u32,
    payload: &'a mut [u8],
    /// Keeps the payload's memory registered.
    region: Region,
}

impl<'a, F: Fabric> Buffer<'a, F> {
    fn new(sender: &'a Sender<F>, number: u32, slot: &PoolSlot) -> Buffer<'a, F> {
        let region = slot.region.clone();
        // SAFETY: the buffer is in state Populate, so no work names it, peers cannot write to it,
        // and this is the only handle to it. The region, of which it keeps a handle, does not move.
        let payload = unsafe {
            let payload = region.slice_mut(slot.offset + PAYLOAD_AT, sender.message_bytes);
            std::slice::from_raw_parts_mut(payload.as_mut_ptr(), payload.len())
        };
        Buffer { sender, number, payload, region }
    }

    /// Lets go of the handle after putting.
    fn forget(self) {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: `this` is neither used nor dropped afterwards; only the region needs dropping.
        unsafe { std::ptr::drop_in_place(&raw mut this.region) }
    }

    /// The payload, whose content is whatever was there last. It begins at a cache line.
    #[inline]
    pub fn payload(&mut self) -> &mut [u8] {
        self.payload
    }
}

impl<F: Fabric> Drop for Buffer<'_, F> {
    fn drop(&mut self) {
        self.sender.inner.look(|inner| inner.core.give_back(self.number));
    }
}

//! Ports: the two ends of a channel as a job sees them, over any fabric.
//!
//! A message fills a slot of tens of kilobytes, so one virtual call per message costs next to
//! nothing. Below this interface everything is generic (see `flow`).

use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use millstream_fabric::{self as fabric, Access, Events, Fabric, Provider, Region};
use millstream_flow::channel::{Error, Received, Receiver, Result, Sender};
use millstream_state::{Heap, Idle};

use super::wire::{HEAD_BYTES, Head, words_mut};
use crate::error;

/// The sending end.
pub(crate) trait Outlet: Send {
    /// Sends a message if there is credit for it: from where the body stands, if that is the memory
    /// of the state, else from a copy.
    fn try_send(&mut self, head: &Head, body: &[u8]) -> Result<bool>;
    /// Bytes of bodies that were copied, since they stood elsewhere.
    fn copied_bytes(&self) -> u64;
    /// Times that a slot was wanted and there was no credit.
    fn credit_stalls(&self) -> u64 {
        0
    }
    /// Bytes that a body may have.
    fn body_bytes(&self) -> usize;
    /// The body of the next message, which is the open slot's, with what has been written into it;
    /// `None` without credit. No other message may be sent before this one.
    fn slot(&mut self) -> Result<Option<&mut [u64]>>;
    /// Sends the first `words` words of that body; false if there is no room for that now.
    fn send(&mut self, head: &Head, words: usize) -> Result<bool>;
    /// See [`Sender::park`].
    fn park(&mut self) -> Result<bool>;
    /// See [`Sender::try_finish`].
    fn try_finish(&mut self) -> Result<bool>;
}

/// The receiving end.
pub(crate) trait Inlet: Send {
    /// Hands the next message over, if there is one.
    fn try_receive(&mut self, take: &mut dyn FnMut(&[u8])) -> Result<Polled>;
    /// See [`Receiver::park`].
    fn park(&mut self) -> Result<bool>;
}

/// Content of an inlet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Polled {
    Message,
    Empty,
    /// The stream has ended in order.
    End,
}

/// Where a worker sleeps.
pub(crate) trait Sleeper: Send {
    fn wait(&mut self, timeout: Duration) -> Result<()>;
    fn waker(&self) -> Waker;
}

/// A sender, and the memory from which it sends what stands there without a copy.
pub(crate) struct OutPort<F: Fabric> {
    // Dropped before the memory is.
    sender: Sender<F>,
    arena: Arena,
    copied_bytes: u64,
}

impl<F: Fabric> OutPort<F> {
    pub(crate) fn new(sender: Sender<F>, arena: Arena) -> OutPort<F> {
        OutPort { sender, arena, copied_bytes: 0 }
    }
}

/// The state's memory, registered with the fabric.
#[derive(Clone)]
pub(crate) struct Arena {
    pub(crate) region: Region,
    pub(crate) heap: Arc<Heap>,
}

impl Arena {
    /// Memory of so many bytes.
    pub(crate) fn new<F: Fabric>(fabric: &F, bytes: usize) -> Result<Arena> {
        // What a card reads is pinned, and its pages stay the same.
        let pinned = fabric.provider() == Provider::Verbs;
        let heap = Heap::map(bytes, if pinned { Idle::Kept } else { Idle::GivenBack })
            .map_err(|source| fabric::Error::Os { call: "mmap", source })?;
        // SAFETY: the heap stays mapped as long as there is an `Arena` that holds it, and every
        // port that has work under way for the region holds one. What is being sent stays as it is
        // until the leader has merged it.
        let region = unsafe { fabric.register(heap.start(), heap.bytes(), Access::LOCAL) }?;
        Ok(Arena { region, heap })
    }
}

impl<F: Fabric> Outlet for OutPort<F> {
    fn try_send(&mut self, head: &Head, body: &[u8]) -> Result<bool> {
        let max = self.sender.payload_bytes();
        if body.len() > max - HEAD_BYTES {
            return Err(Error::TooLong { bytes: body.len(), max });
        }
        let Some(mut slot) = self.sender.try_acquire()? else { return Ok(false) };
        let (place, rest) = slot.payload().split_at_mut(HEAD_BYTES);
        place.copy_from_slice(&head.encode());
        match self.arena.heap.offset_of(body) {
            Some(offset) => {
                slot.send_from(HEAD_BYTES, &self.arena.region, offset, body.len(), 0)?
            }
            None => {
                rest[..body.len()].copy_from_slice(body);
                slot.send(HEAD_BYTES + body.len(), 0)?;
                self.copied_bytes += body.len() as u64;
            }
        }
        Ok(true)
    }

    fn credit_stalls(&self) -> u64 {
        self.sender.stats().credit_stalls
    }

    fn copied_bytes(&self) -> u64 {
        self.copied_bytes
    }

    fn body_bytes(&self) -> usize {
        self.sender.payload_bytes() - HEAD_BYTES
    }

    fn slot(&mut self) -> Result<Option<&mut [u64]>> {
        let Some(slot) = self.sender.try_acquire()? else { return Ok(None) };
        let body = &mut slot.into_payload()[HEAD_BYTES..];
        let theirs = (body.as_ptr().addr() % size_of::<u64>()) as u64;
        let misaligned = || Error::Mismatch { what: "alignment of a slot", ours: 0, theirs };
        words_mut(body).map(Some).ok_or_else(misaligned)
    }

    fn send(&mut self, head: &Head, words: usize) -> Result<bool> {
        let Some(mut slot) = self.sender.try_acquire()? else { return Ok(false) };
        let bytes = HEAD_BYTES + 8 * words;
        slot.payload()[..HEAD_BYTES].copy_from_slice(&head.encode());
        slot.send(bytes, 0)?;
        Ok(true)
    }

    fn park(&mut self) -> Result<bool> {
        self.sender.park()
    }

    fn try_finish(&mut self) -> Result<bool> {
        self.sender.try_finish()
    }
}

impl<F: Fabric> Inlet for Receiver<F> {
    fn try_receive(&mut self, take: &mut dyn FnMut(&[u8])) -> Result<Polled> {
        Ok(match Receiver::try_receive(self)? {
            Received::Message(message) => {
                take(&message);
                Polled::Message
            }
            Received::Empty => Polled::Empty,
            Received::End => Polled::End,
        })
    }

    fn park(&mut self) -> Result<bool> {
        Receiver::park(self)
    }
}

impl<E: Events> Sleeper for E {
    fn wait(&mut self, timeout: Duration) -> Result<()> {
        Ok(Events::wait(self, timeout).map(|_| ())?)
    }

    fn waker(&self) -> Waker {
        Events::waker(self)
    }
}

/// A channel's error, with the process at its other end.
pub(crate) fn peer_error(process: usize, error: Error) -> error::Error {
    match error {
        Error::PeerLost { .. } => error::Error::PeerLost { process, message: error.to_string() },
        error => error::Error::Peer { process, message: error.to_string() },
    }
}

/// Error for a wrong message, with the number of the process that sent it.
pub(crate) fn sent_by(process: usize, error: error::Error) -> error::Error {
    match error {
        error::Error::Internal(what) => {
            error::Error::Internal(format!("process {process} sent {what}"))
        }
        error => error,
    }
}

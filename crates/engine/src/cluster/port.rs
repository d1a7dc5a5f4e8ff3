//! Ports: the two ends of a channel as a job sees them, whatever the fabric.
//!
//! A message takes a slot of tens of kilobytes, so a virtual call for each costs nothing that counts; below
//! it everything is generic (see `flow`).

use std::task::Waker;
use std::time::Duration;

use millstream_fabric::{Events, Fabric};
use millstream_flow::{Error, Received, Receiver, Result, Sender};

use super::wire::{HEAD_BYTES, Head};

/// The sending end.
pub(crate) trait Outlet: Send {
    /// Sends a message if there is credit for it.
    fn try_send(&mut self, head: &Head, body: &[u8]) -> Result<bool>;
    /// Bytes that a body may have.
    fn body_bytes(&self) -> usize;
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

/// What an inlet had.
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

impl<F: Fabric> Outlet for Sender<F> {
    fn try_send(&mut self, head: &Head, body: &[u8]) -> Result<bool> {
        let max = self.payload_bytes();
        if body.len() > max - HEAD_BYTES {
            return Err(Error::TooLong { bytes: body.len(), max });
        }
        let Some(mut slot) = self.try_acquire()? else { return Ok(false) };
        let (place, rest) = slot.payload().split_at_mut(HEAD_BYTES);
        place.copy_from_slice(&head.encode());
        rest[..body.len()].copy_from_slice(body);
        slot.send(HEAD_BYTES + body.len(), 0)?;
        Ok(true)
    }

    fn body_bytes(&self) -> usize {
        self.payload_bytes() - HEAD_BYTES
    }

    fn park(&mut self) -> Result<bool> {
        Sender::park(self)
    }

    fn try_finish(&mut self) -> Result<bool> {
        Sender::try_finish(self)
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

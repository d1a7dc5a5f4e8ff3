//! A message in its buffer (state Consume).

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Deref;

use millstream_fabric::{Fabric, Region};

use super::Receiver;
use super::core::Ready;
use crate::shuffle::error::Result;
use crate::shuffle::pool::Slot;
use crate::shuffle::wire::{PAYLOAD_AT, State};

/// A message, read where it arrived. Dropping it releases its buffer, as [`Delivery::release`]
/// does.
pub struct Delivery<'a, F: Fabric> {
    receiver: &'a Receiver<F>,
    ready: Ready,
    region: Region,
    offset: usize,
}

impl<'a, F: Fabric> Delivery<'a, F> {
    pub(super) fn new(receiver: &'a Receiver<F>, ready: Ready, slot: &Slot) -> Delivery<'a, F> {
        let offset = slot.offset + PAYLOAD_AT;
        Delivery { receiver, ready, region: slot.region.clone(), offset }
    }

    /// The sending endpoint's number, in the order of connecting; its id is in
    /// [`Receiver::sources`].
    pub fn source(&self) -> usize {
        self.ready.source
    }

    /// Whether it is that endpoint's last message. That one may be empty.
    pub fn state(&self) -> State {
        self.ready.state
    }

    /// Gives the buffer back (`Release`): the sender may use it again. Does not wait.
    pub fn release(self) -> Result<()> {
        let mut this = ManuallyDrop::new(self);
        let result = this.receiver.release(&this.ready);
        // SAFETY: nobody uses or drops `this` after it; only the region needs dropping.
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
        // holds no credit for it, so nobody writes to it until it is released, which ends this
        // borrow. The length was checked when the message was taken.
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

//! A buffer that a thread fills (state Populate).

use std::mem::ManuallyDrop;

use millstream_fabric::{Fabric, Region};

use super::Sender;
use crate::shuffle::pool::Slot;
use crate::shuffle::wire::PAYLOAD_AT;

/// A registered buffer to fill and put. Dropped without, it is free again.
pub struct Buffer<'a, F: Fabric> {
    sender: &'a Sender<F>,
    number: u32,
    payload: &'a mut [u8],
    /// Keeps the payload's memory registered.
    region: Region,
}

impl<'a, F: Fabric> Buffer<'a, F> {
    pub(super) fn new(sender: &'a Sender<F>, number: u32, slot: &Slot) -> Buffer<'a, F> {
        let region = slot.region.clone();
        // SAFETY: the buffer is in state Populate, so no work names it, peers cannot write to it,
        // and this is the only handle to it. The region, of which it keeps a handle, does not move.
        let payload = unsafe {
            let payload = region.slice_mut(slot.offset + PAYLOAD_AT, sender.message_bytes);
            std::slice::from_raw_parts_mut(payload.as_mut_ptr(), payload.len())
        };
        Buffer { sender, number, payload, region }
    }

    pub(super) fn sender(&self) -> &'a Sender<F> {
        self.sender
    }

    pub(super) fn number(&self) -> u32 {
        self.number
    }

    /// It has been put.
    pub(super) fn forget(self) {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: nobody uses or drops `this` after it; only the region needs dropping.
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

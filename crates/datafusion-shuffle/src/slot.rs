//! Messages read in place: a slot as an Arrow buffer, which gives the slot back when the last array
//! over it is dropped.

use std::panic::AssertUnwindSafe;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use datafusion::arrow::buffer::Buffer;
use millstream_fabric::Fabric;
use millstream_flow::shuffle::{Delivery, Received, Receiver};

use crate::common::Registered;
use crate::error::Result;

/// A receiving endpoint. Its memory counts as registered until it is dropped.
pub(crate) struct Endpoint<F: Fabric> {
    pub(crate) receiver: Receiver<F>,
    pub(crate) _registered: Registered,
}

/// A message in its slot. Fields are dropped in this order: the slot is given back before its
/// endpoint may go.
pub(crate) struct Message<F: Fabric> {
    delivery: Delivery<'static, F>,
    _endpoint: Arc<Endpoint<F>>,
    permit: Option<Permit>,
}

/// Result of [`take`].
pub(crate) enum Fetched<F: Fabric> {
    Message(Message<F>),
    Empty,
    End,
}

/// The next message, if one is there.
pub(crate) fn take<F: Fabric>(endpoint: &Arc<Endpoint<F>>) -> Result<Fetched<F>> {
    // SAFETY: the endpoint lives as long as an `Arc` of it. The reference is used in this call and
    // by the delivery, which is kept together with such an `Arc` and dropped before it.
    let receiver: &'static Receiver<F> = unsafe { &(*Arc::as_ptr(endpoint)).receiver };
    Ok(match receiver.try_get()? {
        Received::Message(delivery) => {
            Fetched::Message(Message { delivery, _endpoint: endpoint.clone(), permit: None })
        }
        Received::Empty => Fetched::Empty,
        Received::End => Fetched::End,
    })
}

impl<F: Fabric> Message<F> {
    /// Bytes of the message, which begin at a cache line.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.delivery
    }

    /// Bytes behind the first `from` bytes, in place. The slot is given back when the buffer and
    /// all its slices are dropped.
    pub(crate) fn into_buffer(mut self, from: usize, permit: Permit) -> Buffer {
        self.permit = Some(permit);
        let bytes = &self.bytes()[from..];
        let (start, len) = (NonNull::from(bytes).cast::<u8>(), bytes.len());
        // A panic elsewhere leaves nothing half done here: the owner is only dropped.
        let owner = Arc::new(AssertUnwindSafe(self));
        // SAFETY: the bytes lie in registered memory, not in the message, so moving that leaves
        // them where they are. The endpoint writes to them only when the delivery is released,
        // which the owner does when it is dropped.
        unsafe { Buffer::from_custom_allocation(start, len, owner) }
    }
}

/// The right to hold a slot.
pub(crate) struct Permit(Arc<AtomicUsize>);

impl Permit {
    /// One more, unless `max` slots are held.
    pub(crate) fn take(held: &Arc<AtomicUsize>, max: usize) -> Option<Permit> {
        let more = |now: usize| (now < max).then_some(now + 1);
        held.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).ok()?;
        Some(Permit(held.clone()))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

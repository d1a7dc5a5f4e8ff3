//! Work requests: what a program posts to a queue.

use std::marker::PhantomData;
use std::ptr::null_mut;

use crate::raw::*;
use crate::{AddressHandle, RemoteAddress};

/// A scatter/gather element: a piece of this side's registered memory. [`MemoryRegion::piece`]
/// makes a piece that lies inside its region; the device checks every piece in any case.
///
/// [`MemoryRegion::piece`]: crate::MemoryRegion::piece
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Sge {
    /// The address in this process.
    pub address: u64,
    /// Its length in bytes.
    pub bytes: u32,
    /// The local key of the region it lies in.
    pub local_key: u32,
}

/// Bytes that the processor copies into the request when it is posted: they need not be
/// registered, and may be reused at once.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub struct InlineData<'a> {
    element: Sge,
    bytes: PhantomData<&'a [u8]>,
}

impl<'a> InlineData<'a> {
    /// These bytes.
    pub fn new(bytes: &'a [u8]) -> InlineData<'a> {
        // SAFETY: a slice is readable for its lifetime. A device's limit is far below 4 GiB; the
        // cut length of a longer slice is still inside of it.
        unsafe { InlineData::from_raw(bytes.as_ptr(), bytes.len() as u32) }
    }

    /// The bytes there, which may be shared with the device and so not be a slice.
    ///
    /// # Safety
    ///
    /// They are readable until the request has been posted.
    pub unsafe fn from_raw(address: *const u8, bytes: u32) -> InlineData<'a> {
        InlineData {
            element: Sge { address: address as u64, bytes, local_key: 0 },
            bytes: PhantomData,
        }
    }
}

/// A request for the send queue. Post one, or a list of them, with [`QueuePair::post_send`].
///
/// The local pieces and the remote place stay in use until the request has completed; the list of
/// pieces only until it has been posted. By default a request completes silently when it succeeds:
/// see [`signaled`](SendRequest::signaled).
///
/// [`QueuePair::post_send`]: crate::QueuePair::post_send
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct SendRequest<'a> {
    pub(crate) raw: ibv_send_wr,
    pieces: PhantomData<&'a [Sge]>,
}

impl<'a> SendRequest<'a> {
    fn new(id: u64, opcode: u32, pieces: &'a [Sge], wr: ibv_send_target) -> SendRequest<'a> {
        SendRequest {
            raw: ibv_send_wr {
                wr_id: id,
                next: null_mut(),
                sg_list: pieces.as_ptr().cast_mut(),
                num_sge: pieces.len().min(i32::MAX as usize) as i32,
                opcode,
                send_flags: 0,
                imm_data: 0,
                wr,
                unused: [0; 7],
            },
            pieces: PhantomData,
        }
    }

    /// Sends a message, which takes a receive of the peer. For UD add [`to`](SendRequest::to).
    pub fn send(id: u64, pieces: &'a [Sge]) -> SendRequest<'a> {
        SendRequest::new(id, IBV_WR_SEND, pieces, NO_TARGET)
    }

    /// Writes into the peer's memory, without the peer noticing.
    pub fn write(id: u64, pieces: &'a [Sge], to: RemoteAddress) -> SendRequest<'a> {
        SendRequest::new(id, IBV_WR_RDMA_WRITE, pieces, to.target())
    }

    /// Reads from the peer's memory into the pieces.
    pub fn read(id: u64, pieces: &'a [Sge], from: RemoteAddress) -> SendRequest<'a> {
        SendRequest::new(id, IBV_WR_RDMA_READ, pieces, from.target())
    }

    /// Adds to an aligned 8-byte word in the peer's memory; the former value comes into the one
    /// piece, of 8 bytes.
    pub fn fetch_and_add(
        id: u64,
        former: &'a [Sge; 1],
        at: RemoteAddress,
        add: u64,
    ) -> SendRequest<'a> {
        SendRequest::new(id, IBV_WR_ATOMIC_FETCH_AND_ADD, former, at.atomic_target(add, 0))
    }

    /// Replaces an aligned 8-byte word in the peer's memory if it is `expected`; the former value
    /// comes into the one piece, of 8 bytes.
    pub fn compare_and_swap(
        id: u64,
        former: &'a [Sge; 1],
        at: RemoteAddress,
        expected: u64,
        new: u64,
    ) -> SendRequest<'a> {
        let target = at.atomic_target(expected, new);
        SendRequest::new(id, IBV_WR_ATOMIC_CMP_AND_SWP, former, target)
    }

    /// Takes the bytes from here, now, instead of from registered memory: for sends and writes, up
    /// to the queue pair's [`inline_bytes`](crate::Capacity::inline_bytes).
    #[must_use]
    pub fn inline(mut self, data: &'a [InlineData<'a>]) -> SendRequest<'a> {
        // `InlineData` has the layout of `Sge`.
        self.raw.sg_list = data.as_ptr().cast_mut().cast();
        self.raw.num_sge = data.len().min(i32::MAX as usize) as i32;
        self.raw.send_flags |= IBV_SEND_INLINE;
        self
    }

    /// Adds an immediate value to a send, or to a write, which then takes a receive of the peer and
    /// completes there too. Different requests stay as they are.
    #[must_use]
    pub fn with_immediate(mut self, value: u32) -> SendRequest<'a> {
        self.raw.imm_data = value.to_be();
        self.raw.opcode = match self.raw.opcode {
            IBV_WR_SEND => IBV_WR_SEND_WITH_IMM,
            IBV_WR_RDMA_WRITE => IBV_WR_RDMA_WRITE_WITH_IMM,
            other => other,
        };
        self
    }

    /// Completes visibly. The queue's room is only reused when a later signaled request has
    /// completed *and was polled*, so at least one in every queue's length must be. Failures are
    /// always visible.
    #[must_use]
    pub fn signaled(mut self) -> SendRequest<'a> {
        self.raw.send_flags |= IBV_SEND_SIGNALED;
        self
    }

    /// The receiver of a UD send: its address, and the number and key of its queue pair. The handle
    /// must live until the request has completed.
    #[must_use]
    pub fn to(mut self, address: &'a AddressHandle, queue_pair: u32, key: u32) -> SendRequest<'a> {
        self.raw.wr = ibv_send_target {
            ud: ibv_send_ud { ah: address.raw.as_ptr(), remote_qpn: queue_pair, remote_qkey: key },
        };
        self
    }
}

impl SendRequest<'_> {
    /// Whether it is a send to an address handle of that device.
    pub(crate) fn is_datagram_on(&self, context: *mut ibv_context) -> bool {
        if !matches!(self.raw.opcode, IBV_WR_SEND | IBV_WR_SEND_WITH_IMM) {
            return false;
        }
        // SAFETY: a send's target is empty or was set by `to`, all of which is initialised. A
        // handle is borrowed by the request, so it is alive.
        unsafe {
            let handle = self.raw.wr.ud.ah;
            !handle.is_null() && (*handle).context == context
        }
    }
}

const NO_TARGET: ibv_send_target = ibv_send_target {
    atomic: ibv_send_atomic { remote_addr: 0, compare_add: 0, swap: 0, rkey: 0 },
};

impl RemoteAddress {
    fn target(self) -> ibv_send_target {
        ibv_send_target { rdma: ibv_send_rdma { remote_addr: self.address, rkey: self.remote_key } }
    }

    fn atomic_target(self, compare_add: u64, swap: u64) -> ibv_send_target {
        let (remote_addr, rkey) = (self.address, self.remote_key);
        ibv_send_target { atomic: ibv_send_atomic { remote_addr, compare_add, swap, rkey } }
    }
}

/// A request for a receive queue: room for one message.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct ReceiveRequest<'a> {
    pub(crate) raw: ibv_recv_wr,
    pieces: PhantomData<&'a [Sge]>,
}

impl<'a> ReceiveRequest<'a> {
    /// Room in these pieces, in order. UD puts 40 bytes of header in front of the message. A write
    /// with immediate uses no pieces, so there may be none.
    pub fn new(id: u64, pieces: &'a [Sge]) -> ReceiveRequest<'a> {
        ReceiveRequest {
            raw: ibv_recv_wr {
                wr_id: id,
                next: null_mut(),
                sg_list: pieces.as_ptr().cast_mut(),
                num_sge: pieces.len().min(i32::MAX as usize) as i32,
            },
            pieces: PhantomData,
        }
    }
}

/// Links the requests to one list; its head.
pub(crate) fn link_sends(requests: &mut [SendRequest<'_>]) -> *mut ibv_send_wr {
    let mut next = null_mut();
    for request in requests.iter_mut().rev() {
        request.raw.next = next;
        next = &raw mut request.raw;
    }
    next
}

/// Links the requests to one list; its head.
pub(crate) fn link_receives(requests: &mut [ReceiveRequest<'_>]) -> *mut ibv_recv_wr {
    let mut next = null_mut();
    for request in requests.iter_mut().rev() {
        request.raw.next = next;
        next = &raw mut request.raw;
    }
    next
}

/// The place of the first request that was not posted; `bad` points to it.
pub(crate) fn place_of<R, T>(requests: &[R], bad: *const T) -> usize {
    let offset = (bad as usize).wrapping_sub(requests.as_ptr() as usize);
    // Without a pointer to the bad request, no request counts as posted.
    let place = offset / size_of::<R>();
    if bad.is_null() || place > requests.len() { 0 } else { place }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_linked_in_order() {
        let mut requests = [1, 2, 3].map(|id| SendRequest::send(id, &[]));
        let mut ids = Vec::new();
        let mut at = link_sends(&mut requests);
        while !at.is_null() {
            // SAFETY: the list lies in `requests`, which is alive and not touched otherwise.
            let request = unsafe { &*at };
            ids.push(request.wr_id);
            at = request.next;
        }
        assert_eq!(ids, [1, 2, 3]);
        assert!(link_sends(&mut []).is_null());
        assert_eq!(place_of(&requests, &raw const requests[2].raw), 2);
        assert_eq!(place_of(&requests, std::ptr::null::<ibv_send_wr>()), 0);
    }

    #[test]
    fn immediates_are_sent_in_network_order_and_only_where_they_exist() {
        let write =
            SendRequest::write(0, &[], RemoteAddress::default()).with_immediate(0x0102_0304);
        assert_eq!(write.raw.opcode, IBV_WR_RDMA_WRITE_WITH_IMM);
        assert_eq!(write.raw.imm_data.to_ne_bytes(), [1, 2, 3, 4]);
        let read = SendRequest::read(0, &[], RemoteAddress::default()).with_immediate(7);
        assert_eq!(read.raw.opcode, IBV_WR_RDMA_READ);
    }
}

//! Completion queues and completion channels: polling for completions, and waiting for them.

use std::ffi::{CStr, c_int, c_void};
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::time::Duration;

use crate::error::{check, non_null};
use crate::library::Library;
use crate::raw::*;
use crate::wait::{set_nonblocking, wait_readable};
use crate::{Context, Error};

/// Channel of events from completion queues that have been armed.
pub struct CompletionChannel {
    raw: NonNull<ibv_comp_channel>,
    context: Arc<Context>,
}

// SAFETY: libibverbs' objects may be used from any thread, several at a time.
unsafe impl Send for CompletionChannel {}
// SAFETY: as above.
unsafe impl Sync for CompletionChannel {}

impl CompletionChannel {
    /// A new channel.
    pub fn new(context: &Arc<Context>) -> Result<Arc<CompletionChannel>, Error> {
        // SAFETY: the context is open.
        let raw = unsafe { (context.library.ibv_create_comp_channel)(context.raw.as_ptr()) };
        let raw = non_null("ibv_create_comp_channel", raw)?;
        let channel = CompletionChannel { raw, context: context.clone() };
        set_nonblocking(channel.as_fd())?;
        Ok(Arc::new(channel))
    }

    /// Waits until a completion queue armed by [`CompletionQueue::request_event`] has a completion,
    /// and returns the queue's tag; `None` when the time is up.
    ///
    /// A request gives a single event. After the event, request again and then poll once more
    /// before waiting, or a completion in between is missed. An event may also come for completions
    /// that were already polled.
    pub fn wait(&self, timeout: Duration) -> Result<Option<usize>, Error> {
        if !wait_readable([self.as_fd()], timeout)? {
            return Ok(None);
        }
        let (mut queue, mut tag) = (null_mut(), null_mut());
        let library = self.context.library;
        // SAFETY: the channel is alive, the results are writable.
        let code = unsafe { (library.ibv_get_cq_event)(self.raw.as_ptr(), &mut queue, &mut tag) };
        if code != 0 {
            let error = Error::last("ibv_get_cq_event");
            // Another thread took the event.
            return if error.errno == libc::EAGAIN { Ok(None) } else { Err(error) };
        }
        // SAFETY: each event is acknowledged once; the queue lives, because destroying it waits
        // for the acknowledgement.
        unsafe { (library.ibv_ack_cq_events)(queue, 1) };
        Ok(Some(tag as usize))
    }
}

impl AsFd for CompletionChannel {
    /// Becomes readable when [`CompletionChannel::wait`] would return at once.
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is open as long as the channel lives.
        unsafe { BorrowedFd::borrow_raw(self.raw.as_ref().fd) }
    }
}

impl Drop for CompletionChannel {
    fn drop(&mut self) {
        // SAFETY: queues hold an `Arc` to their channel, so none is left.
        unsafe { (self.context.library.ibv_destroy_comp_channel)(self.raw.as_ptr()) };
    }
}

/// Queue of finished requests, oldest first. Make it large enough for every request that can be
/// outstanding: a queue that overflows is broken for good.
pub struct CompletionQueue {
    pub(crate) raw: NonNull<ibv_cq>,
    context: Arc<Context>,
    channel: Option<Arc<CompletionChannel>>,
}

// SAFETY: libibverbs' objects may be used from any thread, several at a time.
unsafe impl Send for CompletionQueue {}
// SAFETY: as above.
unsafe impl Sync for CompletionQueue {}

impl CompletionQueue {
    /// A queue with room for at least that many completions. `tag` names it in events.
    pub fn new(
        context: &Arc<Context>,
        completions: u32,
        channel: Option<&Arc<CompletionChannel>>,
        tag: usize,
    ) -> Result<Arc<CompletionQueue>, Error> {
        let invalid = Error { call: "ibv_create_cq", errno: libc::EINVAL };
        let entries = c_int::try_from(completions).map_err(|_| invalid)?;
        if channel.is_some_and(|channel| !Arc::ptr_eq(&channel.context, context)) {
            return Err(invalid);
        }
        // SAFETY: context and channel are alive, and kept so by the queue; the tag is never
        // followed as a pointer.
        let raw = unsafe {
            (context.library.ibv_create_cq)(
                context.raw.as_ptr(),
                entries,
                tag as *mut c_void,
                channel.map_or(null_mut(), |channel| channel.raw.as_ptr()),
                0,
            )
        };
        let raw = non_null("ibv_create_cq", raw)?;
        let channel = channel.cloned();
        Ok(Arc::new(CompletionQueue { raw, context: context.clone(), channel }))
    }

    /// How many completions it has room for.
    pub fn capacity(&self) -> u32 {
        // SAFETY: the library's structure lives as long as the queue; only resizing changes it.
        unsafe { self.raw.as_ref().cqe as u32 }
    }

    /// Takes as many finished requests as there are, and as fit; returns how many. Never waits.
    #[inline]
    pub fn poll(&self, completions: &mut [Completion]) -> Result<usize, Error> {
        let room = completions.len().min(c_int::MAX as usize) as c_int;
        // SAFETY: queue and context are alive; `Completion` is `ibv_wc` and there is room for
        // that many.
        let count = unsafe {
            let ops = &(*self.raw.as_ref().context).ops;
            (ops.poll_cq)(self.raw.as_ptr(), room, completions.as_mut_ptr().cast())
        };
        usize::try_from(count).map_err(|_| Error { call: "ibv_poll_cq", errno: libc::EIO })
    }

    /// Asks for one event on the channel at the next completion.
    pub fn request_event(&self) -> Result<(), Error> {
        if self.channel.is_none() {
            return Err(Error { call: "ibv_req_notify_cq", errno: libc::EINVAL });
        }
        // SAFETY: queue and context are alive.
        let code = unsafe {
            let ops = &(*self.raw.as_ref().context).ops;
            (ops.req_notify_cq)(self.raw.as_ptr(), 0)
        };
        check("ibv_req_notify_cq", code)
    }

    /// The device it is on.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        // SAFETY: queue pairs hold an `Arc` to their completion queues, so none is left; events
        // are acknowledged as they are taken, so this does not wait.
        unsafe { (self.context.library.ibv_destroy_cq)(self.raw.as_ptr()) };
    }
}

/// A finished request.
#[derive(Clone, Copy, Default)]
#[repr(transparent)]
pub struct Completion(ibv_wc);

impl Completion {
    /// The number that the request was posted with.
    #[inline]
    pub fn id(&self) -> u64 {
        self.0.wr_id
    }

    /// How it ended. If not with success, only `id`, `status` and `queue_pair` mean something.
    #[inline]
    pub fn status(&self) -> Status {
        Status(self.0.status)
    }

    /// Whether a receive finished (a send's message, or a write with immediate came), rather than
    /// a request of the send queue.
    #[inline]
    pub fn is_receive(&self) -> bool {
        self.0.opcode & (1 << 7) != 0
    }

    /// The finished operation.
    pub fn operation(&self) -> Operation {
        Operation::from_raw(self.0.opcode)
    }

    /// The bytes that were received, or read. For UD these include the 40 bytes of header.
    #[inline]
    pub fn bytes(&self) -> u32 {
        self.0.byte_len
    }

    /// The immediate value that came with the message.
    #[inline]
    pub fn immediate(&self) -> Option<u32> {
        (self.0.wc_flags & IBV_WC_WITH_IMM != 0).then_some(u32::from_be(self.0.imm_data))
    }

    /// The number of this side's queue pair.
    #[inline]
    pub fn queue_pair(&self) -> u32 {
        self.0.qp_num
    }

    /// The number of the sender's queue pair (UD).
    #[inline]
    pub fn source_queue_pair(&self) -> u32 {
        self.0.src_qp
    }
}

impl fmt::Debug for Completion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Completion")
            .field("id", &self.id())
            .field("status", &self.status())
            .field("operation", &self.operation())
            .field("bytes", &self.bytes())
            .field("immediate", &self.immediate())
            .field("queue_pair", &self.queue_pair())
            .finish()
    }
}

/// The kind of a finished request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Send.
    Send,
    /// Write, with or without immediate.
    Write,
    /// Read.
    Read,
    /// Compare-and-swap.
    CompareAndSwap,
    /// Fetch-and-add.
    FetchAndAdd,
    /// A peer's send came.
    Receive,
    /// A peer's write with immediate came: it took a receive, but wrote where the peer said.
    ReceiveWriteWithImmediate,
    /// Another number of `enum ibv_wc_opcode`.
    Other(u32),
}

impl Operation {
    pub(crate) fn from_raw(raw: u32) -> Operation {
        match raw {
            0 => Operation::Send,
            1 => Operation::Write,
            2 => Operation::Read,
            3 => Operation::CompareAndSwap,
            4 => Operation::FetchAndAdd,
            128 => Operation::Receive,
            129 => Operation::ReceiveWriteWithImmediate,
            other => Operation::Other(other),
        }
    }
}

/// How a request ended: a value of `enum ibv_wc_status`. Displays as the library's words.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Status(pub u32);

impl Status {
    /// The request succeeded.
    pub const SUCCESS: Status = Status(0);
    /// A message was longer than the room of the receive that it met.
    pub const LOCAL_LENGTH_ERROR: Status = Status(1);
    /// This side's queue pair could not do it.
    pub const LOCAL_OPERATION_ERROR: Status = Status(2);
    /// A local key was wrong, or a piece was outside of its region.
    pub const LOCAL_PROTECTION_ERROR: Status = Status(4);
    /// The queue pair was in, or fell into, the error state: not done, or not known to be.
    pub const FLUSHED: Status = Status(5);
    /// A local region does not allow what the peer's message needs.
    pub const LOCAL_ACCESS_ERROR: Status = Status(8);
    /// The peer found the request invalid.
    pub const REMOTE_INVALID_REQUEST: Status = Status(9);
    /// The remote key was wrong, the place outside of its region, or the right missing.
    pub const REMOTE_ACCESS_ERROR: Status = Status(10);
    /// The peer could not do it.
    pub const REMOTE_OPERATION_ERROR: Status = Status(11);
    /// The peer did not answer.
    pub const RETRIES_EXCEEDED: Status = Status(12);
    /// The peer had no receive posted (receiver not ready).
    pub const RECEIVER_NOT_READY: Status = Status(13);

    /// Whether this is `SUCCESS`.
    #[inline]
    pub fn is_success(self) -> bool {
        self == Status::SUCCESS
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ok(library) = Library::get() else { return write!(f, "status {}", self.0) };
        // SAFETY: the library returns a C string that lives forever, for any number.
        let text = unsafe { CStr::from_ptr((library.ibv_wc_status_str)(self.0)) };
        write!(f, "{} (status {})", text.to_string_lossy(), self.0)
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

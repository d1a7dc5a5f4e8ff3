//! Work requests and completions, as the contract has them.

use crate::error::{Error, Result};
use crate::memory::{Region, RemoteAddress};

/// Where outgoing bytes come from.
#[derive(Debug, Clone, Copy)]
pub enum Source<'a> {
    /// A range of registered memory, read at any time until the work completes: do not change it
    /// before.
    Region {
        /// The region; it has to belong to the queue pair's device.
        region: &'a Region,
        /// First byte.
        offset: usize,
        /// Length, at most [`Limits::message_bytes`](crate::Limits::message_bytes).
        bytes: usize,
    },
    /// Bytes that are copied when the work is posted, at most
    /// [`Limits::inline_bytes`](crate::Limits::inline_bytes); they need no registration and are
    /// free again when the call returns.
    Inline(&'a [u8]),
}

impl Source<'_> {
    /// Length in bytes.
    #[inline]
    pub fn bytes(&self) -> usize {
        match self {
            Source::Region { bytes, .. } => *bytes,
            Source::Inline(slice) => slice.len(),
        }
    }
}

/// A range of registered memory that incoming bytes go to.
#[derive(Debug, Clone, Copy)]
pub struct Destination<'a> {
    /// The region; it has to belong to the queue pair's device.
    pub region: &'a Region,
    /// First byte.
    pub offset: usize,
    /// Length.
    pub bytes: usize,
}

impl Destination<'_> {
    /// Checks that the range lies inside its region, which belongs to device `device`.
    #[inline]
    pub(crate) fn check(&self, device: u32) -> Result<()> {
        check_region(self.region, self.offset, self.bytes, device)
    }
}

/// Operation of a reliable connection.
#[derive(Debug, Clone, Copy)]
pub enum Operation<'a> {
    /// Writes `source` to the peer's memory. With an immediate value it also takes one of the
    /// peer's receives and completes it, after all bytes are placed.
    Write {
        /// The bytes.
        source: Source<'a>,
        /// Where they go.
        to: RemoteAddress,
        /// A value for the peer's completion.
        immediate: Option<u32>,
    },
    /// Reads the peer's memory.
    Read {
        /// Where the bytes go.
        into: Destination<'a>,
        /// Where they come from.
        from: RemoteAddress,
    },
    /// Sends to the peer's next receive.
    Send {
        /// The bytes, no more than the receive's buffer has.
        source: Source<'a>,
        /// A value for the peer's completion.
        immediate: Option<u32>,
    },
    /// Adds `add` to an aligned 8-byte word of the peer, wrapping; the old value goes to `into`.
    FetchAdd {
        /// 8 bytes for the old value, in this host's byte order.
        into: Destination<'a>,
        /// The word.
        at: RemoteAddress,
        /// The addend.
        add: u64,
    },
    /// Puts `new` into an aligned 8-byte word of the peer if it holds `expected`; the old value
    /// goes to `into`.
    CompareSwap {
        /// 8 bytes for the old value, in this host's byte order.
        into: Destination<'a>,
        /// The word.
        at: RemoteAddress,
        /// Expected value of the word.
        expected: u64,
        /// New value of the word.
        new: u64,
    },
}

impl Operation<'_> {
    /// Kind of the completion.
    #[inline]
    pub fn kind(&self) -> Kind {
        match self {
            Operation::Write { .. } => Kind::Write,
            Operation::Read { .. } => Kind::Read,
            Operation::Send { .. } => Kind::Send,
            Operation::FetchAdd { .. } => Kind::FetchAdd,
            Operation::CompareSwap { .. } => Kind::CompareSwap,
        }
    }

    /// Whether the peer has to have posted a receive.
    #[inline]
    pub fn takes_receive(&self) -> bool {
        matches!(self, Operation::Send { .. } | Operation::Write { immediate: Some(_), .. })
    }

    /// Checks that local ranges lie in regions of `device`, lengths are within limits, atomics
    /// aligned.
    #[inline]
    pub(crate) fn check(&self, device: u32, limits: &Limits) -> Result<()> {
        match self {
            Operation::Write { source, .. } | Operation::Send { source, .. } => {
                check_source(source, device, limits)
            }
            Operation::Read { into, .. } => {
                check_length(into.bytes, limits.message_bytes)?;
                into.check(device)
            }
            Operation::FetchAdd { into, at, .. } | Operation::CompareSwap { into, at, .. } => {
                if !at.address.is_multiple_of(8) {
                    return Err(Error::Unaligned { address: at.address });
                }
                if into.bytes != 8 {
                    return Err(Error::Limit {
                        what: "bytes for an atomic operation's result, which takes 8,",
                        asked: into.bytes as u64,
                        max: 8,
                    });
                }
                into.check(device)
            }
        }
    }
}

/// Checks that a source's bytes exist, belong to `device` and are not too many.
#[inline]
pub(crate) fn check_source(source: &Source<'_>, device: u32, limits: &Limits) -> Result<()> {
    match *source {
        Source::Region { region, offset, bytes } => {
            check_length(bytes, limits.message_bytes)?;
            check_region(region, offset, bytes, device)
        }
        Source::Inline(slice) if slice.len() <= limits.inline_bytes => Ok(()),
        Source::Inline(slice) => Err(Error::Limit {
            what: "inline bytes",
            asked: slice.len() as u64,
            max: limits.inline_bytes as u64,
        }),
    }
}

#[inline]
fn check_length(bytes: usize, max: usize) -> Result<()> {
    if bytes <= max {
        return Ok(());
    }
    Err(Error::Limit { what: "bytes in one message", asked: bytes as u64, max: max as u64 })
}

#[inline]
fn check_region(region: &Region, offset: usize, bytes: usize, device: u32) -> Result<()> {
    if region.device() != device {
        return Err(Error::ForeignObject { what: "region" });
    }
    region.check(offset, bytes)
}

/// One piece of work for a reliable connection.
#[derive(Debug, Clone, Copy)]
pub struct WorkRequest<'a> {
    /// Returned in the completion.
    pub id: u64,
    /// The operation.
    pub operation: Operation<'a>,
    /// Whether success is reported. Errors always are. Without, the queue's entry is free again
    /// when a later signalled request of the same queue pair has completed and been polled: signal
    /// at least one in as many requests as the queue has entries.
    pub signalled: bool,
}

impl<'a> WorkRequest<'a> {
    /// An unsignalled request.
    pub fn new(operation: Operation<'a>) -> WorkRequest<'a> {
        WorkRequest { id: 0, operation, signalled: false }
    }

    /// A write.
    pub fn write(source: Source<'a>, to: RemoteAddress) -> WorkRequest<'a> {
        WorkRequest::new(Operation::Write { source, to, immediate: None })
    }

    /// A write that completes one of the peer's receives.
    pub fn write_immediate(
        source: Source<'a>,
        to: RemoteAddress,
        immediate: u32,
    ) -> WorkRequest<'a> {
        WorkRequest::new(Operation::Write { source, to, immediate: Some(immediate) })
    }

    /// The same request, signalled, with this id.
    pub fn signalled(self, id: u64) -> WorkRequest<'a> {
        WorkRequest { id, signalled: true, ..self }
    }
}

/// A buffer for one incoming message.
#[derive(Debug, Clone, Copy)]
pub struct Receive<'a> {
    /// Returned in the completion.
    pub id: u64,
    /// Where a send's bytes go; `None` takes a send of no bytes, or a write's immediate value.
    pub buffer: Option<Destination<'a>>,
}

/// One datagram to send.
#[derive(Debug)]
pub struct Outgoing<'a, A> {
    /// Returned in the completion.
    pub id: u64,
    /// To whom.
    pub to: &'a A,
    /// The bytes, at most [`Limits::datagram_bytes`].
    pub source: Source<'a>,
    /// A value for the receiver's completion.
    pub immediate: Option<u32>,
    /// As in [`WorkRequest::signalled`].
    pub signalled: bool,
}

impl<A> Outgoing<'_, A> {
    /// Checks that the bytes exist, belong to `device` and are not too many.
    pub(crate) fn check(&self, device: u32, limits: &Limits) -> Result<()> {
        let (asked, max) = (self.source.bytes() as u64, limits.datagram_bytes as u64);
        if asked > max {
            return Err(Error::Limit { what: "bytes in one datagram", asked, max });
        }
        check_source(&self.source, device, limits)
    }
}

/// Bytes in front of a datagram in the receive's buffer (a global route header). A receive's buffer
/// has to have room for them, [`Completion::bytes`] counts them, and their content is the
/// provider's.
pub const DATAGRAM_HEADER_BYTES: usize = 40;

/// Kind of a completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Kind {
    /// Completion of [`Operation::Write`], at the posting side.
    #[default]
    Write,
    /// [`Operation::Read`].
    Read,
    /// [`Operation::Send`] or a datagram, at the side that posted it.
    Send,
    /// [`Operation::FetchAdd`].
    FetchAdd,
    /// [`Operation::CompareSwap`].
    CompareSwap,
    /// A receive, taken by a send or a datagram.
    Receive,
    /// A receive, taken by a write with an immediate value.
    ReceiveWrite,
}

/// How work ended. Anything but success means that the queue pair has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Status {
    /// Done: for a write, the peer's memory holds the bytes.
    #[default]
    Success,
    /// A message was longer than the buffer for it.
    Length,
    /// A local region was not registered any more.
    LocalProtection,
    /// The queue pair failed before this work was done.
    Flushed,
    /// The peer found the request invalid.
    InvalidRequest,
    /// The peer has no such region, the range is not inside it, or its access does not allow it.
    RemoteAccess,
    /// The peer could not do it.
    RemoteOperation,
    /// The peer did not answer, or is gone.
    PeerLost,
    /// The peer had posted no receive for [`Timing::receiver_not_ready`].
    ReceiverNotReady,
    /// Anything else; the number is the provider's (of verbs, `ibv_wc_status`).
    Other(u32),
}

/// Work that has ended. If `status` is not success only `id`, `status` and `queue_pair` are
/// defined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Completion {
    /// The id given with the work.
    pub id: u64,
    /// How it ended.
    pub status: Status,
    /// Number of the queue pair.
    pub queue_pair: u32,
    /// Kind of the completed work.
    pub kind: Kind,
    /// For receives: bytes that arrived, including a datagram's header.
    pub bytes: u32,
    /// For receives: the sender's immediate value.
    pub immediate: Option<u32>,
    /// For datagrams received: number of the sender's queue pair.
    pub source_queue_pair: u32,
}

/// Why a list was not posted whole.
#[derive(Debug)]
pub struct Rejected {
    /// So many requests, from the first on, were posted nevertheless.
    pub posted: usize,
    /// Why the next was not.
    pub reason: Error,
}

impl From<Rejected> for Error {
    fn from(rejected: Rejected) -> Error {
        rejected.reason
    }
}

/// Capabilities of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Most entries of a queue pair's send queue, and of its receive queue.
    pub queue_entries: u32,
    /// Most entries of a completion queue.
    pub completion_entries: u32,
    /// Longest message of a reliable connection.
    pub message_bytes: usize,
    /// Longest datagram, without header.
    pub datagram_bytes: usize,
    /// Longest inline source.
    pub inline_bytes: usize,
    /// Whether the bytes of a write become visible to the target in address order, so that seeing
    /// the last proves all others. True of `shm` and `tcp` by construction, of network cards by
    /// their makers' word.
    pub ordered_placement: bool,
    /// Whether [`Fabric::register`](crate::Fabric::register) can open memory to peers.
    pub registers_remote: bool,
    /// Whether polling a completion queue does a network card's work, so that a thread which waits
    /// for something to appear in its memory should poll as often as it looks.
    pub progress_by_polling: bool,
    /// Whether datagrams can be sent to a multicast [`Group`](crate::Group).
    pub multicast: bool,
}

/// Longest inline source of the providers without a network card, which keep it.
pub(crate) const INLINE_BYTES: usize = 128;

impl Limits {
    /// Of the providers without a network card, but for their peculiarities.
    pub(crate) const SOFTWARE: Limits = Limits {
        queue_entries: 1 << 14,
        completion_entries: 1 << 20,
        message_bytes: 1 << 30,
        datagram_bytes: 4096,
        inline_bytes: INLINE_BYTES,
        ordered_placement: true,
        registers_remote: false,
        progress_by_polling: false,
        multicast: false,
    };
}

/// Sizes of a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueSizes {
    /// Entries of the send queue.
    pub send: u32,
    /// Entries of the receive queue.
    pub receive: u32,
}

/// How long a reliable connection is patient.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// A peer that is silent for so long, with work outstanding, is lost. A provider may round, up
    /// to twice as long.
    pub silence: std::time::Duration,
    /// How long to wait for the peer to post a receive; `None` for ever. Rounded likewise.
    pub receiver_not_ready: Option<std::time::Duration>,
}

impl Default for Timing {
    /// A second of silence, so that with rounding a loss is known within two; receivers may take
    /// their time.
    fn default() -> Self {
        Timing { silence: std::time::Duration::from_secs(1), receiver_not_ready: None }
    }
}

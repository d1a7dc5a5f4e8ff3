//! Requests and receives, kept after they have been posted.

use std::collections::VecDeque;

use crate::error::{Error, Result};
use crate::memory::{Region, RemoteAddress};
use crate::work::{Destination, INLINE_BYTES, Operation, Receive, Rejected, Source, WorkRequest};

/// Bytes to be sent.
pub(crate) enum KeptSource {
    Region(KeptRange),
    Inline([u8; INLINE_BYTES], usize),
}

impl KeptSource {
    pub(crate) fn new(source: &Source<'_>) -> KeptSource {
        match *source {
            Source::Region { region, offset, bytes } => {
                KeptSource::Region(KeptRange { region: region.clone(), offset, bytes })
            }
            Source::Inline(slice) => {
                let mut copy = [0; INLINE_BYTES];
                copy[..slice.len()].copy_from_slice(slice);
                KeptSource::Inline(copy, slice.len())
            }
        }
    }

    /// First byte, readable as long as `self` neither moves nor goes, and length.
    pub(crate) fn parts(&self) -> (*const u8, usize) {
        match self {
            KeptSource::Region(range) => (range.start().cast_const(), range.bytes),
            KeptSource::Inline(copy, bytes) => (copy.as_ptr(), *bytes),
        }
    }

    fn source(&self) -> Source<'_> {
        match self {
            KeptSource::Region(KeptRange { region, offset, bytes }) => {
                Source::Region { region, offset: *offset, bytes: *bytes }
            }
            KeptSource::Inline(copy, bytes) => Source::Inline(&copy[..*bytes]),
        }
    }
}

/// A range of registered memory.
#[derive(Clone)]
pub(crate) struct KeptRange {
    pub(crate) region: Region,
    pub(crate) offset: usize,
    pub(crate) bytes: usize,
}

impl KeptRange {
    pub(crate) fn new(destination: &Destination<'_>) -> KeptRange {
        let Destination { region, offset, bytes } = *destination;
        KeptRange { region: region.clone(), offset, bytes }
    }

    /// First byte.
    pub(crate) fn start(&self) -> *mut u8 {
        self.region.as_ptr().wrapping_add(self.offset)
    }

    fn destination(&self) -> Destination<'_> {
        Destination { region: &self.region, offset: self.offset, bytes: self.bytes }
    }
}

/// A request to be done after its post.
pub(crate) struct KeptRequest {
    pub(crate) id: u64,
    pub(crate) signalled: bool,
    pub(crate) operation: KeptOperation,
}

impl KeptRequest {
    pub(crate) fn new(request: &WorkRequest<'_>) -> KeptRequest {
        let WorkRequest { id, signalled, operation } = request;
        let operation = KeptOperation::new(operation);
        KeptRequest { id: *id, signalled: *signalled, operation }
    }

    /// The operation as it was posted.
    pub(crate) fn operation(&self) -> Operation<'_> {
        self.operation.operation()
    }

    /// Length of a write or send.
    pub(crate) fn sent_bytes(&self) -> usize {
        match &self.operation {
            KeptOperation::Write { source, .. } | KeptOperation::Send { source, .. } => {
                source.parts().1
            }
            _ => 0,
        }
    }

    /// Destination of the answer.
    pub(crate) fn destination(&self) -> Option<&KeptRange> {
        match &self.operation {
            KeptOperation::Read { into, .. }
            | KeptOperation::FetchAdd { into, .. }
            | KeptOperation::CompareSwap { into, .. } => Some(into),
            _ => None,
        }
    }
}

/// An operation to be done after its post.
pub(crate) enum KeptOperation {
    Write { source: KeptSource, to: RemoteAddress, immediate: Option<u32> },
    Read { into: KeptRange, from: RemoteAddress },
    Send { source: KeptSource, immediate: Option<u32> },
    FetchAdd { into: KeptRange, at: RemoteAddress, add: u64 },
    CompareSwap { into: KeptRange, at: RemoteAddress, expected: u64, new: u64 },
}

impl KeptOperation {
    pub(crate) fn new(operation: &Operation<'_>) -> KeptOperation {
        use KeptOperation as Kept;
        match *operation {
            Operation::Write { ref source, to, immediate } => {
                Kept::Write { source: KeptSource::new(source), to, immediate }
            }
            Operation::Read { ref into, from } => Kept::Read { into: KeptRange::new(into), from },
            Operation::Send { ref source, immediate } => {
                Kept::Send { source: KeptSource::new(source), immediate }
            }
            Operation::FetchAdd { ref into, at, add } => {
                Kept::FetchAdd { into: KeptRange::new(into), at, add }
            }
            Operation::CompareSwap { ref into, at, expected, new } => {
                Kept::CompareSwap { into: KeptRange::new(into), at, expected, new }
            }
        }
    }

    fn operation(&self) -> Operation<'_> {
        use KeptOperation as Kept;
        match *self {
            Kept::Write { ref source, to, immediate } => {
                Operation::Write { source: source.source(), to, immediate }
            }
            Kept::Read { ref into, from } => Operation::Read { into: into.destination(), from },
            Kept::Send { ref source, immediate } => {
                Operation::Send { source: source.source(), immediate }
            }
            Kept::FetchAdd { ref into, at, add } => {
                Operation::FetchAdd { into: into.destination(), at, add }
            }
            Kept::CompareSwap { ref into, at, expected, new } => {
                Operation::CompareSwap { into: into.destination(), at, expected, new }
            }
        }
    }
}

/// A receive that was posted.
pub(crate) struct KeptReceive {
    pub(crate) id: u64,
    pub(crate) buffer: Option<KeptRange>,
}

impl KeptReceive {
    /// Bytes it has room for.
    pub(crate) fn room(&self) -> usize {
        self.buffer.as_ref().map_or(0, |buffer| buffer.bytes)
    }

    /// Puts a receive behind the others of a queue of this capacity. The buffer has to belong to
    /// device `device`.
    pub(crate) fn post(
        receive: &Receive<'_>,
        device: u32,
        queue: &mut VecDeque<KeptReceive>,
        capacity: u32,
    ) -> Result<()> {
        if let Some(buffer) = &receive.buffer {
            buffer.check(device)?;
        }
        if queue.len() >= capacity as usize {
            return Err(Error::QueueFull);
        }
        let buffer = receive.buffer.as_ref().map(KeptRange::new);
        queue.push_back(KeptReceive { id: receive.id, buffer });
        Ok(())
    }
}

/// Posts in order until a refusal.
pub(crate) fn post_all<T>(
    list: &[T],
    mut post: impl FnMut(&T) -> Result<()>,
) -> std::result::Result<(), Rejected> {
    for (posted, one) in list.iter().enumerate() {
        post(one).map_err(|reason| Rejected { posted, reason })?;
    }
    Ok(())
}

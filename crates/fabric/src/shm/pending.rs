//! Requests that have to wait: for the peer to connect, or to post a receive.

use super::INLINE_BYTES;
use crate::memory::{Region, RemoteAddress};
use crate::work::{Destination, Operation, Source, WorkRequest};

/// A request to be done after its post.
pub(super) struct Pending {
    pub(super) id: u64,
    pub(super) signalled: bool,
    source: Option<Region>,
    inline: [u8; INLINE_BYTES],
    operation: PendingOperation,
}

enum PendingOperation {
    Write { range: Range, to: RemoteAddress, immediate: Option<u32> },
    Read { range: Range, from: RemoteAddress },
    Send { range: Range, immediate: Option<u32> },
    FetchAdd { range: Range, at: RemoteAddress, add: u64 },
    CompareSwap { range: Range, at: RemoteAddress, expected: u64, new: u64 },
}

#[derive(Clone, Copy)]
struct Range {
    offset: usize,
    bytes: usize,
}

impl Pending {
    pub(super) fn new(request: &WorkRequest<'_>) -> Pending {
        let mut pending = Pending {
            id: request.id,
            signalled: request.signalled,
            source: None,
            inline: [0; INLINE_BYTES],
            operation: PendingOperation::Send {
                range: Range { offset: 0, bytes: 0 },
                immediate: None,
            },
        };
        pending.operation = match &request.operation {
            Operation::Write { source, to, immediate } => PendingOperation::Write {
                range: pending.keep_source(source),
                to: *to,
                immediate: *immediate,
            },
            Operation::Send { source, immediate } => {
                PendingOperation::Send { range: pending.keep_source(source), immediate: *immediate }
            }
            Operation::Read { into, from } => {
                PendingOperation::Read { range: pending.keep(into), from: *from }
            }
            Operation::FetchAdd { into, at, add } => {
                PendingOperation::FetchAdd { range: pending.keep(into), at: *at, add: *add }
            }
            Operation::CompareSwap { into, at, expected, new } => PendingOperation::CompareSwap {
                range: pending.keep(into),
                at: *at,
                expected: *expected,
                new: *new,
            },
        };
        pending
    }

    fn keep_source(&mut self, source: &Source<'_>) -> Range {
        match *source {
            Source::Region { region, offset, bytes } => {
                self.source = Some(region.clone());
                Range { offset, bytes }
            }
            Source::Inline(slice) => {
                self.inline[..slice.len()].copy_from_slice(slice);
                Range { offset: 0, bytes: slice.len() }
            }
        }
    }

    fn keep(&mut self, into: &Destination<'_>) -> Range {
        self.source = Some(into.region.clone());
        Range { offset: into.offset, bytes: into.bytes }
    }

    fn source(&self, range: Range) -> Source<'_> {
        let Range { offset, bytes } = range;
        match &self.source {
            Some(region) => Source::Region { region, offset, bytes },
            None => Source::Inline(&self.inline[offset..offset + bytes]),
        }
    }

    pub(super) fn operation(&self) -> Operation<'_> {
        let into = |range: Range| {
            let region = self.source.as_ref()?;
            Some(Destination { region, offset: range.offset, bytes: range.bytes })
        };
        let empty = Operation::Send { source: Source::Inline(&[]), immediate: None };
        match self.operation {
            PendingOperation::Write { range, to, immediate } => {
                Operation::Write { source: self.source(range), to, immediate }
            }
            PendingOperation::Send { range, immediate } => {
                Operation::Send { source: self.source(range), immediate }
            }
            PendingOperation::Read { range, from } => {
                into(range).map_or(empty, |into| Operation::Read { into, from })
            }
            PendingOperation::FetchAdd { range, at, add } => {
                into(range).map_or(empty, |into| Operation::FetchAdd { into, at, add })
            }
            PendingOperation::CompareSwap { range, at, expected, new } => {
                into(range).map_or(empty, |into| Operation::CompareSwap { into, at, expected, new })
            }
        }
    }
}

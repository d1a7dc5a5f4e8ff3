//! Requests over TCP that are not yet acknowledged.

use super::INLINE_BYTES;
use super::frame::{Frame, FrameKind, HEADER_BYTES};
use crate::memory::Region;
use crate::work::{Destination, Kind, Operation, Source, WorkRequest};

/// A request that is not acknowledged yet.
pub(super) struct Work {
    pub(super) id: u64,
    pub(super) signalled: bool,
    /// `None`: a question whether the peer is there.
    pub(super) kind: Option<Kind>,
    header: [u8; HEADER_BYTES],
    payload: Payload,
    pub(super) into: Option<(Region, usize, usize)>,
}

enum Payload {
    None,
    Region(Region, usize, usize),
    Inline([u8; INLINE_BYTES], usize),
}

impl Payload {
    fn new(source: &Source<'_>) -> Payload {
        match *source {
            Source::Region { region, offset, bytes } => {
                Payload::Region(region.clone(), offset, bytes)
            }
            Source::Inline(slice) => {
                let mut bytes = [0; INLINE_BYTES];
                bytes[..slice.len()].copy_from_slice(slice);
                Payload::Inline(bytes, slice.len())
            }
        }
    }

    fn part(&self) -> (*const u8, usize) {
        match self {
            Payload::None => (std::ptr::null(), 0),
            Payload::Region(region, offset, bytes) => {
                (region.as_ptr().wrapping_add(*offset), *bytes)
            }
            Payload::Inline(bytes, length) => (bytes.as_ptr(), *length),
        }
    }
}

impl Work {
    pub(super) fn new(request: &WorkRequest<'_>) -> Work {
        let keep = |into: &Destination<'_>| Some((into.region.clone(), into.offset, into.bytes));
        let length = |source: &Source<'_>| source.bytes() as u32;
        let (mut frame, payload, into) = match &request.operation {
            Operation::Write { source, to, immediate } => {
                let mut frame = Frame::new(FrameKind::Write);
                frame.bytes = length(source);
                frame.immediate = *immediate;
                (frame.key, frame.address) = (to.key, to.address);
                (frame, Payload::new(source), None)
            }
            Operation::Send { source, immediate } => {
                let mut frame = Frame::new(FrameKind::Send);
                frame.bytes = length(source);
                frame.immediate = *immediate;
                (frame, Payload::new(source), None)
            }
            Operation::Read { into, from } => {
                let mut frame = Frame::new(FrameKind::Read);
                frame.bytes = into.bytes as u32;
                (frame.key, frame.address) = (from.key, from.address);
                (frame, Payload::None, keep(into))
            }
            Operation::FetchAdd { into, at, add } => {
                let mut frame = Frame::new(FrameKind::FetchAdd);
                (frame.key, frame.address, frame.first) = (at.key, at.address, *add);
                (frame, Payload::None, keep(into))
            }
            Operation::CompareSwap { into, at, expected, new } => {
                let mut frame = Frame::new(FrameKind::CompareSwap);
                (frame.key, frame.address) = (at.key, at.address);
                (frame.first, frame.second) = (*expected, *new);
                (frame, Payload::None, keep(into))
            }
        };
        frame.signalled = request.signalled;
        Work {
            id: request.id,
            signalled: request.signalled,
            kind: Some(request.operation.kind()),
            header: frame.encode(),
            payload,
            into,
        }
    }

    pub(super) fn ping() -> Work {
        let header = Frame::new(FrameKind::Ping).encode();
        Work { id: 0, signalled: false, kind: None, header, payload: Payload::None, into: None }
    }

    pub(super) fn bytes(&self) -> usize {
        HEADER_BYTES + self.payload.part().1
    }

    /// Header and bytes, as they go on the wire.
    pub(super) fn parts(&self) -> [(*const u8, usize); 2] {
        [(self.header.as_ptr(), HEADER_BYTES), self.payload.part()]
    }
}

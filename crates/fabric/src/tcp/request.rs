//! Requests over TCP that are not yet acknowledged.

use super::frame::{Frame, FrameKind, HEADER_BYTES};
use crate::kept::{KeptRange, KeptSource};
use crate::work::{Kind, Operation, WorkRequest};

/// A request that is not acknowledged yet.
pub(super) struct TcpWork {
    pub(super) id: u64,
    pub(super) signalled: bool,
    /// `None`: a question whether the peer is there.
    pub(super) kind: Option<Kind>,
    header: [u8; HEADER_BYTES],
    payload: Option<KeptSource>,
    pub(super) into: Option<KeptRange>,
}

impl TcpWork {
    pub(super) fn new(request: &WorkRequest<'_>) -> TcpWork {
        let (mut payload, mut into) = (None, None);
        let mut frame = match &request.operation {
            Operation::Write { source, to, immediate } => {
                payload = Some(source);
                let (immediate, key, address) = (*immediate, to.key, to.address);
                Frame { immediate, key, address, ..Frame::new(FrameKind::Write) }
            }
            Operation::Send { source, immediate } => {
                payload = Some(source);
                Frame { immediate: *immediate, ..Frame::new(FrameKind::Send) }
            }
            Operation::Read { into: to, from } => {
                into = Some(to);
                let (bytes, key, address) = (to.bytes as u32, from.key, from.address);
                Frame { bytes, key, address, ..Frame::new(FrameKind::Read) }
            }
            Operation::FetchAdd { into: to, at, add } => {
                into = Some(to);
                let (key, address, first) = (at.key, at.address, *add);
                Frame { key, address, first, ..Frame::new(FrameKind::FetchAdd) }
            }
            Operation::CompareSwap { into: to, at, expected, new } => {
                into = Some(to);
                let (key, address, first, second) = (at.key, at.address, *expected, *new);
                Frame { key, address, first, second, ..Frame::new(FrameKind::CompareSwap) }
            }
        };
        frame.bytes += payload.map_or(0, |source| source.bytes() as u32);
        frame.signalled = request.signalled;
        TcpWork {
            id: request.id,
            signalled: request.signalled,
            kind: Some(request.operation.kind()),
            header: frame.encode(),
            payload: payload.map(KeptSource::new),
            into: into.map(KeptRange::new),
        }
    }

    pub(super) fn ping() -> TcpWork {
        let header = Frame::new(FrameKind::Ping).encode();
        TcpWork { id: 0, signalled: false, kind: None, header, payload: None, into: None }
    }

    pub(super) fn bytes(&self) -> usize {
        HEADER_BYTES + self.parts()[1].1
    }

    /// Header and bytes, as they go on the wire.
    pub(super) fn parts(&self) -> [(*const u8, usize); 2] {
        let payload = self.payload.as_ref().map_or((std::ptr::null(), 0), KeptSource::parts);
        [(self.header.as_ptr(), HEADER_BYTES), payload]
    }
}
